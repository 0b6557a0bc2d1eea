"""Public expansions of bounded norm: Fourier features of a Gaussian kernel, and polynomials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcausal.features.design import Design
from privcausal.features.rows import Rows
from privcausal.request.partition import Coordinates
from privcausal.request.schema import Interval
from privcausal.stored import stored
from privcausal.typing import Integers, Matrix, Vector

PAIRS = 4096
"""Public pairs of points at which the basis is compared with the kernel."""

_PUBLIC_SEED = 20_250_601  # frequencies and points of comparison are public, and no noise
_ORDERS = (2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)


@stored
@dataclass(frozen=True, eq=False)
class Fourier:
    """phi(x) with <phi(x), phi(x')> near exp(-||z - z'||^2 / (2 h^2)) and ||phi(x)|| = 1.

    phi(x) = (sqrt(p_j) cos(w_j'z), sqrt(p_j) sin(w_j'z))_j with public frequencies w_j and weights
    p_j that sum to one (Rahimi and Recht 2007). z are the design columns named by `columns`, scaled
    to [-1, 1] by their declared ranges (indicators are 0/1). The basis defines a kernel of its own,
    for which proofs hold exactly; `error` is its distance from the Gaussian one.

    Attributes
    ----------
    frequencies : Matrix
        Shape (m, q).
    shares : Vector
        p_j, shape (m,).
    bandwidth : float
        h, in scaled units.
    """

    design: Design
    columns: Integers
    frequencies: Matrix
    shares: Vector
    bandwidth: float

    cut = 1.0

    @property
    def size(self) -> int:
        return 2 * len(self.shares)

    def of(self, rows: Rows) -> Matrix:
        """phi, shape (n, 2 m), summed in a fixed order so that batches do not matter."""
        return self.at(np.nan_to_num(rows.scaled(self.design)[:, self.columns]))

    def at(self, z: Matrix) -> Matrix:
        """phi of scaled columns, shape (n, q)."""
        m = len(self.shares)
        out = np.zeros((len(z), 2 * m))
        angle = np.zeros((len(z), m))
        for j in range(z.shape[1]):
            angle += z[:, j, None] * self.frequencies[:, j]
        root = np.sqrt(self.shares)
        out[:, :m] = root * np.cos(angle)
        out[:, m:] = root * np.sin(angle)
        return out

    def weight(self, phi: Matrix) -> Vector:
        """One for every row, since all have norm one."""
        return np.ones(len(phi))

    def kernel(self, z: Matrix, other: Matrix) -> Vector:
        """The Gaussian kernel of pairs of rows of `z` and `other`, shape (n,)."""
        distance = ((z - other) ** 2).sum(axis=1)
        return np.asarray(np.exp(-distance / (2 * self.bandwidth**2)))

    @cached_property
    def error(self) -> float:
        """99th percentile of |<phi, phi'> - k| over public pairs of points of the domain."""
        z, other = self.pairs(_PUBLIC_SEED)
        found = (self.at(z) * self.at(other)).sum(axis=1)
        return float(np.quantile(np.abs(found - self.kernel(z, other)), 0.99))

    def pairs(self, seed: int) -> tuple[Matrix, Matrix]:
        """Pairs of points, the first uniform over the domain, the second at any distance."""
        rng = np.random.default_rng(seed)
        lo = [-1.0 if self.design.columns[c].kind != "indicator" else 0.0 for c in self.columns]
        shape = (PAIRS, len(self.columns))
        z, far = (rng.uniform(lo, 1.0, shape) for _ in range(2))
        return z, z + rng.random((PAIRS, 1)) * (far - z)


def fourier(design: Design, columns: Integers, bandwidth: float, size: int) -> Fourier:
    """The basis of at most `size` functions with the least error.

    In one or two columns Gauss-Hermite quadrature of the kernel's spectrum is nearly exact unless
    the bandwidth is small (Mutny and Krause 2018). Otherwise frequencies are random (and public),
    orthogonal within blocks (Yu et al. 2016).
    """
    m, q = size // 2, len(columns)
    found = [Fourier(design, columns, *law, bandwidth) for law in _laws(m, q, bandwidth)]
    return min(found, key=lambda basis: basis.error)


def _laws(m: int, q: int, bandwidth: float) -> list[tuple[Matrix, Vector]]:
    if q == 0:  # no effect modifiers: a constant
        return [(np.zeros((1, 0)), np.ones(1))]
    laws = [(_orthogonal(m, q) / bandwidth, np.full(m, 1.0 / m))]
    if q <= 2:
        laws += [(w / bandwidth, p) for w, p in (_quadrature(n, q) for n in _ORDERS) if len(p) <= m]
    return laws


def _quadrature(order: int, q: int) -> tuple[Matrix, Vector]:
    """Nodes and weights for the normal law; one of each pair w, -w, which share a cosine."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    weights = weights / weights.sum()
    if q == 1:
        half = nodes > 0
        return nodes[half, None], 2 * weights[half]
    first, second = np.meshgrid(nodes, nodes, indexing="ij")
    mass = np.outer(weights, weights)
    half = first > 0  # orders are even, so no node is zero
    return np.column_stack([first[half], second[half]]), 2 * mass[half]


def _orthogonal(m: int, q: int) -> Matrix:
    """Normal frequencies whose directions are orthogonal within blocks of q, shape (m, q)."""
    rng = np.random.default_rng(_PUBLIC_SEED)
    blocks = []
    for _ in range(-(-m // q)):
        rotation, _ = np.linalg.qr(rng.standard_normal((q, q)))
        lengths = np.linalg.norm(rng.standard_normal((q, q)), axis=1)
        blocks.append(rotation * lengths[:, None])
    return np.vstack(blocks)[:m]


@stored
@dataclass(frozen=True)
class Polynomials:
    """1, then Legendre polynomials up to `degree` of every number, and the labels' dummies.

    A sum of functions of one feature each; there are no products of features.
    """

    coordinates: Coordinates
    degree: int

    @cached_property
    def _numeric(self) -> tuple[bool, ...]:
        """Which features are numbers."""
        schema = self.coordinates.schema
        return tuple(isinstance(schema[n], Interval) for n in self.coordinates.variables)

    @property
    def size(self) -> int:
        return 1 + self.coordinates.size + (self.degree - 1) * sum(self._numeric)

    @property
    def bound(self) -> float:
        """Largest sum of absolute values: at most one dummy of a column with labels is 1."""
        return float(1 + sum(self.degree if numeric else 1 for numeric in self._numeric))

    def of(self, frame: Mapping[str, Vector | Integers]) -> Matrix:
        """Shape (n, size); cut to [-1, 1], so that no rounding passes the bound."""
        columns: list[Matrix] = []
        for name, numeric in zip(self.coordinates.variables, self._numeric, strict=True):
            z = Coordinates(self.coordinates.schema, (name,)).of(frame)
            columns.append(_legendre(z[:, 0], self.degree) if numeric else z)
        ones = np.ones((len(columns[0]), 1))
        return np.asarray(np.clip(np.hstack([ones, *columns]), -1.0, 1.0))


def _legendre(z: Vector, degree: int) -> Matrix:
    """P_1 to P_degree, shape (n, degree), by their three-term recurrence."""
    found = [np.ones_like(z), z]
    for k in range(1, degree):
        found.append(((2 * k + 1) * z * found[k] - k * found[k - 1]) / (k + 1))
    return np.stack(found[1:], axis=1)
