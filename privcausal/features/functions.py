"""Public functions of a row: features of bounded norm, nuisances, effects, and a small network.

Features are basis functions of design columns, kernels, and products of columns.

The network has one hidden layer of rectified units. For each row it computes a fixed sequence of
operations that IEEE 754 rounds correctly: sums, products, quotients, comparisons, and roundings to
whole numbers. The result therefore has the same bits for any other rows, instructions and threads.
Sums over the columns of a row are loops over whole columns. NumPy's own sums and matrix products
depend on the shape, and its exponential differs between processors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from privcausal.errors import DataError
from privcausal.features.design import FINE_BINS, Design, Rows, fine_bins, looked_up
from privcausal.request.partition import Coordinates
from privcausal.request.schema import Interval
from privcausal.typing import Integers, Matrix, Singles, Vector

# -- features: functions of a row as columns -------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """Basis functions of one design column.

    A smooth column has a lookup `table` of shape (FINE_BINS, K). Any other column has one function,
    ``gain * (column - shift)``. `order` is 1 for linear, and 2, 3, ... in order of roughness.
    Functions of the same `group` share a prior variance.
    """

    column: int
    order: tuple[int, ...]
    group: str
    gain: float = 1.0
    shift: float = 0.0
    table: Matrix | None = None
    tables: tuple[Vector, ...] = field(init=False)  # Columns of `table`, each contiguous in memory
    reach: float = field(init=False)  # Maximum absolute value of the functions

    def __post_init__(self) -> None:
        reach, tables = abs(self.gain) * (1.0 + abs(self.shift)), tuple[Vector, ...]()
        if self.table is not None:
            reach, tables = float(np.abs(self.table).max()), (*np.ascontiguousarray(self.table.T),)
        vars(self).update(reach=reach, tables=tables)

    def function(self, rows: Rows, design: Design, number: int, out: Vector) -> Vector:
        """Write one function of the block to `out`."""
        if self.table is not None:
            return looked_up(self.tables[number], rows.bins(design, self.column), out)
        np.subtract(rows.column(design, self.column), self.shift, out=out)
        return np.multiply(self.gain, out, out=out)


class Shortened:
    """A feature vector phi whose row weight is w = min(1, (cut / ||phi||)^2)."""

    cut: float

    def weight(self, phi: Matrix | Singles) -> Vector:
        """Row weights, shape (n,), in (0, 1]."""
        return np.minimum(1.0, self.cut**2 / np.maximum(squared_norm(phi), TINY))


@dataclass(frozen=True, eq=False)
class FeatureMap(Shortened):
    """phi(x) = (1, basis functions), with row weight w = min(1, (C / ||phi||)^2).

    Then ||sqrt(w) phi|| <= C and ||w phi|| <= C, which bounds the Gram matrix and the cross
    moments. Predictions use phi without weights.
    """

    design: Design
    blocks: tuple[Block, ...]
    cut: float
    # The block of each function after the first, and its number within the block
    owner: list[tuple[Block, int]] = field(init=False, repr=False)
    size: int = field(init=False)  # Number of functions, with the intercept
    # By function: 0 for the intercept, otherwise the order of roughness; the group of the block;
    # and the design column, -1 for the intercept
    order: Integers = field(init=False, repr=False)
    group: tuple[str, ...] = field(init=False, repr=False)
    column: Integers = field(init=False, repr=False)
    # Variables of each function; the intercept has no variables
    variables: tuple[tuple[str, ...], ...] = field(init=False, repr=False)
    # Largest absolute value of each function, shape (p,), and an upper bound of ||phi||
    ends: Vector = field(init=False, repr=False)
    reach: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        of, columns = {t.name: t.variables for t in self.design.terms}, self.design.columns
        owner = [(block, k) for block in self.blocks for k in range(len(block.order))]
        ends = np.array([1.0, *(block.reach for block, _ in owner)])
        vars(self).update(
            owner=owner,
            size=1 + len(owner),
            order=np.array([0, *(block.order[k] for block, k in owner)], np.int64),
            group=("", *(block.group for block, _ in owner)),
            column=np.array([-1, *(block.column for block, _ in owner)], np.int64),
            variables=((), *(of[columns[block.column].term] for block, _ in owner)),
            ends=ends,
            reach=float(np.linalg.norm(ends)),
        )

    def of(self, rows: Rows) -> Matrix:
        """phi, shape (n, p)."""
        out = rows.matrix(self.size, np.float64)
        for number in range(self.size):
            self.fill(rows, number, out[:, number])
        return out

    def norm2(self, rows: Rows) -> Vector:
        """||phi(x)||^2, shape (n,)."""
        total, part = np.ones(len(rows)), np.empty(len(rows))
        for block in self.blocks:
            if block.table is None:
                np.square(block.function(rows, self.design, 0, part), out=part)
            else:
                squares = squared_norm(block.table)
                looked_up(squares, rows.bins(self.design, block.column), part)
            total += part
        return total

    def fill(self, rows: Rows, number: int, out: Vector) -> Vector:
        """Write the feature of this number to `out`."""
        if number == 0:
            out[:] = 1.0
            return out
        block, place = self.owner[number - 1]
        return block.function(rows, self.design, place, out)

    def total(self, coef: Vector) -> Sum:
        """phi(x)'coef as a function of rows."""
        constant = float(coef[0])
        parts: list[tuple[int, Vector | float]] = []
        ends = np.cumsum([1, *(len(b.order) for b in self.blocks)]).tolist()
        for block, (first, stop) in zip(self.blocks, pairwise(ends), strict=True):
            weights = coef[first:stop]
            if block.table is None:
                slope = float(block.gain * weights[0])
                constant -= slope * block.shift
                parts.append((block.column, slope))
            else:
                parts.append((block.column, combine(np.asfortranarray(block.table), weights)))
        return Sum(self.design, constant, tuple(parts))

    def norm_of(self, rows: Rows, quantile: float) -> float:
        """A quantile of ||phi(x)|| over the rows."""
        phi = np.ascontiguousarray(self.of(rows))  # the norm sums along rows
        return float(np.quantile(np.linalg.norm(phi, axis=1), quantile))

    def restricted(self, terms: Sequence[str]) -> FeatureMap:
        """Keep only the functions of some terms, with the same tables and clip."""
        columns = self.design.columns
        blocks = tuple(b for b in self.blocks if columns[b.column].term in terms)
        return FeatureMap(self.design, blocks, self.cut)


@dataclass(frozen=True, eq=False)
class Turned(Shortened):
    """Linear combinations of features, turn'phi of shape (k,), with weights as in `FeatureMap`.

    Features are summed in a fixed order, so that a row's values do not depend on its block.
    """

    features: FeatureMap
    turn: Matrix
    cut: float
    size: int = field(init=False)
    reach: float = field(init=False)  # An upper bound of ||turn'phi||

    def __post_init__(self) -> None:
        reach = float(np.linalg.norm(np.abs(self.turn).T @ self.features.ends))
        vars(self).update(size=int(self.turn.shape[1]), reach=reach)

    def of(self, rows: Rows) -> Matrix:
        phi = self.features.of(rows)
        out = np.empty((len(phi), self.size), order="F")
        for column, coef in zip(out.T, self.turn.T, strict=True):
            column[:] = combine(phi, coef)
        return out


TINY = 1e-300
"""Lower limit of squared norms used as divisors."""


@dataclass(frozen=True, eq=False)
class Sum:
    """A constant plus a function of each design column: a slope, or a table on the fine bins.

    The basis functions of a column are summed once, in its table, in a fixed order. All engines,
    blocks and machines therefore give the same bits.
    """

    design: Design
    constant: float
    parts: tuple[tuple[int, Vector | float], ...]

    def __call__(self, rows: Rows) -> Vector:
        total, part = np.full(rows.size, self.constant), np.empty(rows.size)
        for column, effect in self.parts:
            if isinstance(effect, float):
                np.multiply(rows.column(self.design, column), effect, out=part)
            else:
                looked_up(effect, rows.bins(self.design, column), part)
            total += part
        return total


def squared_norm(phi: Matrix | Singles) -> Vector:
    """Squared row norms, summed in a fixed order for every engine and batch."""
    total, square = np.zeros(len(phi), phi.dtype), np.empty(len(phi), phi.dtype)
    for j in range(phi.shape[1]):
        total += np.multiply(phi[:, j], phi[:, j], out=square)
    return np.asarray(total, np.float64)


SMALL_PRODUCT = 1 << 10
"""Number of rows that OpenBLAS multiplies without making its own copies."""


def by_rows(left: Matrix, right: Matrix) -> Matrix:
    """left' right, for inputs whose sums are exact in any order."""
    pieces = len(left) // SMALL_PRODUCT
    rows, p, q = pieces * SMALL_PRODUCT, left.shape[1], right.shape[1]
    total = left[rows:].T @ right[rows:]
    if rows:
        # Give all sizes, because NumPy cannot infer one for a table without columns.
        parts = (
            left[:rows].T.reshape(p, pieces, SMALL_PRODUCT),
            right[:rows].T.reshape(q, pieces, SMALL_PRODUCT),
        )
        total += np.matmul(parts[0].swapaxes(0, 1), parts[1].transpose(1, 2, 0)).sum(axis=0)
    return total


def onto(phi: Matrix, lift: Matrix, out: Matrix) -> None:
    """Write phi lift to `out`. Both are Fortran-ordered, and sums are exact in any order."""
    pieces = len(phi) // SMALL_PRODUCT
    rows, (p, k) = pieces * SMALL_PRODUCT, lift.shape
    np.matmul(lift.T, phi[rows:].T, out=out[rows:].T)
    if rows:
        blocks = phi[:rows].T.reshape(p, pieces, SMALL_PRODUCT).swapaxes(0, 1)
        np.matmul(lift.T, blocks, out=out[:rows].T.reshape(k, pieces, SMALL_PRODUCT).swapaxes(0, 1))


FEW_ROWS = 256
"""Up to this number of rows, one call on a table of products is faster than one per column."""


def combine(phi: Matrix, coef: Vector) -> Vector:
    """phi @ coef in a fixed order, so that the batch size does not matter."""
    if len(phi) <= FEW_ROWS and phi.shape[1]:
        return np.asarray(np.add.accumulate(phi * coef, axis=1)[:, -1] + 0.0)  # the same order
    total, part = np.zeros(len(phi)), np.empty(len(phi))
    for j in range(phi.shape[1]):
        total += np.multiply(phi[:, j], coef[j], out=part)
    return total


def columns_of(features: Features, rows: Rows) -> Iterator[Vector]:
    """Columns of phi one after another; each is valid until the next is read."""
    if not isinstance(features, FeatureMap):
        yield from rows.phi(features).T
        return
    out = np.empty(len(rows))  # One buffer stays in the CPU cache.
    for number in range(features.size):
        yield features.fill(rows, number, out)


def row_weights(features: Features, rows: Rows) -> Vector:
    """Row weights of the features, shape (n,)."""
    if isinstance(features, FeatureMap):
        return np.minimum(1.0, features.cut**2 / features.norm2(rows))
    return features.weight(rows.phi(features))


# -- public expansions: Fourier features of a Gaussian kernel, and polynomials -------------------

PAIRS = 4096
"""Number of public pairs of points for comparing the basis with the kernel."""

_PUBLIC_SEED = 20_250_601  # for public frequencies and comparison points, not for noise
_ORDERS = (2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)


@dataclass(frozen=True, eq=False)
class Fourier:
    """phi(x) with <phi(x), phi(x')> near exp(-||z - z'||^2 / (2 h^2)) and ||phi(x)|| = 1.

    phi(x) = (sqrt(p_j) cos(w_j'z), sqrt(p_j) sin(w_j'z))_j with public frequencies w_j and weights
    p_j that sum to one (Rahimi and Recht 2007). z are the design columns given by `columns`, scaled
    to [-1, 1] by their declared ranges (indicators are 0/1). Proofs hold exactly for the kernel
    that the basis defines. `error` is the distance of this kernel from the Gaussian kernel.
    """

    design: Design
    columns: Integers
    frequencies: Matrix  # Shape (m, q)
    shares: Vector  # p_j, shape (m,)
    bandwidth: float  # h, in scaled units
    size: int = field(init=False)
    # 99th percentile of |<phi, phi'> - k| over public pairs of points of the domain
    error: float = field(init=False)

    cut = 1.0

    def __post_init__(self) -> None:
        z, other = self.pairs(_PUBLIC_SEED)
        products = (self.at(z) * self.at(other)).sum(axis=1)
        error = np.quantile(np.abs(products - self.kernel(z, other)), 0.99)
        vars(self).update(size=2 * len(self.shares), error=float(error))

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
        """Weight one for every row, because all rows have norm one."""
        return np.ones(len(phi))

    def kernel(self, z: Matrix, other: Matrix) -> Vector:
        """The Gaussian kernel of pairs of rows of `z` and `other`, shape (n,)."""
        distance = ((z - other) ** 2).sum(axis=1)
        return np.asarray(np.exp(-distance / (2 * self.bandwidth**2)))

    def pairs(self, seed: int) -> tuple[Matrix, Matrix]:
        """Pairs of points. The first is uniform over the domain, the second at any distance."""
        rng = np.random.default_rng(seed)
        lo = [-1.0 if self.design.columns[c].kind != "indicator" else 0.0 for c in self.columns]
        shape = (PAIRS, len(self.columns))
        z, far = (rng.uniform(lo, 1.0, shape) for _ in range(2))
        return z, z + rng.random((PAIRS, 1)) * (far - z)


def fourier(design: Design, columns: Integers, bandwidth: float, size: int) -> Fourier:
    """The basis of at most `size` functions with the smallest error.

    In one or two columns, Gauss-Hermite quadrature of the kernel's spectrum is nearly exact unless
    the bandwidth is small (Mutny and Krause 2018). The alternative is random public frequencies
    that are orthogonal within blocks (Yu et al. 2016).
    """
    m, q = size // 2, len(columns)
    laws = [(np.zeros((1, 0)), np.ones(1))]  # without effect modifiers, the basis is a constant
    if q:
        # Normal frequencies whose directions are orthogonal within blocks of q, shape (m, q)
        rng = np.random.default_rng(_PUBLIC_SEED)
        blocks = []
        for _ in range(-(-m // q)):
            rotation, _ = np.linalg.qr(rng.standard_normal((q, q)))
            lengths = np.linalg.norm(rng.standard_normal((q, q)), axis=1)
            blocks.append(rotation * lengths[:, None])
        laws = [(np.vstack(blocks)[:m], np.full(m, 1.0 / m))]
    if q in (1, 2):
        for order in _ORDERS:  # nodes and weights for the normal distribution
            nodes, weights = np.polynomial.hermite_e.hermegauss(order)
            weights = weights / weights.sum()
            # w and -w share a cosine, so keep one. Orders are even, so every node differs from 0.
            half = nodes > 0
            law = nodes[half, None], 2 * weights[half]
            if q == 2:
                first, second = np.meshgrid(nodes, nodes, indexing="ij")
                half = first > 0
                mass = 2 * np.outer(weights, weights)[half]
                law = np.column_stack([first[half], second[half]]), mass
            if len(law[1]) <= m:
                laws.append(law)
    bases = [Fourier(design, columns, w / bandwidth, p, bandwidth) for w, p in laws]
    return min(bases, key=lambda basis: basis.error)


@dataclass(frozen=True)
class Polynomials:
    """1, then Legendre polynomials up to `degree` of each number, and dummies of the labels.

    The features are additive: each depends on one column, without products.
    """

    coordinates: Coordinates
    degree: int
    size: int = field(init=False, repr=False, compare=False)
    # Maximum sum of absolute values; at most one dummy of a column of labels is 1
    bound: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        points, schema = self.coordinates, self.coordinates.schema
        numeric = [isinstance(schema[name], Interval) for name in points.variables]
        size = 1 + points.size + (self.degree - 1) * sum(numeric)
        bound = float(1 + sum(self.degree if number else 1 for number in numeric))
        vars(self).update(size=size, bound=bound)

    def of(self, frame: Mapping[str, Vector | Integers]) -> Matrix:
        """Shape (n, size), clipped to [-1, 1] so that rounding cannot exceed the bound."""
        columns: list[Matrix] = []
        for name in self.coordinates.variables:
            points = Coordinates(self.coordinates.schema, (name,)).of(frame)
            if not isinstance(self.coordinates.schema[name], Interval):
                columns.append(points)
                continue
            # P_1 to P_degree by their three-term recurrence
            z = points[:, 0]
            p = [np.ones_like(z), z]
            for k in range(1, self.degree):
                p.append(((2 * k + 1) * z * p[k] - k * p[k - 1]) / (k + 1))
            columns.append(np.stack(p[1:], axis=1))
        ones = np.ones((len(columns[0]), 1))
        return np.asarray(np.clip(np.hstack([ones, *columns]), -1.0, 1.0))


# -- products of columns, and powers of two released indices --------------------------------------

FEATURE_BITS = 24
"""Bits of a feature in exact products with the lift."""

PART = 1 << 13
"""Rows whose products are computed together: thirty columns of them take two megabytes."""

PRODUCT_SDS = 2.5
"""Indices and factors of products are clipped to this many standard deviations. Otherwise, a few
rows would determine the norm."""


Index: TypeAlias = tuple[Vector, float, float]
"""Coefficients of a released linear combination of additive features, and its mean and sd."""


@dataclass(frozen=True, eq=False)
class Interactions(Shortened):
    """psi(x): products of columns and steps of indices, with the additive features regressed out.

    Products of pairs of linear features come first. Next come, for some pairs, products with their
    curvatures. Last come the indicators of `splits`: index k of propensity or outcome exceeds a
    threshold. `lift` (p, K) is the regression of the raw columns on phi in the
    synthetic population. `gain` (K,) sets the sizes of the columns. Rows have the weight
    w = min(1, (cut / ||psi||)^2), as in `FeatureMap`.
    """

    features: FeatureMap
    indices: tuple[Index, Index] | None
    pairs: tuple[tuple[int, int], ...]
    curved: tuple[tuple[int, int], ...]
    scales: Vector
    lift: Matrix
    gain: Vector
    cut: float
    splits: tuple[tuple[int, float], ...] = ()
    size: int = field(init=False)
    # A power of two; features are at most 2^FEATURE_BITS times this step
    step: float = field(init=False)
    names: list[str] = field(init=False)  # Each pair as a product of terms in a formula
    # The features in whole steps, if they are looked up, and the lift on its grid. This is
    # -gain x lift, shape (p, K), in steps of a power of two, times one step of phi.
    tables: list[Vector | None] = field(init=False, repr=False)
    grid: Matrix = field(init=False, repr=False)
    # Tables of the linear features that occur in a product, if they are looked up
    standard: dict[int, Singles | None] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        columns, of = self.features.design.columns, self.features.column
        names = [f"{columns[of[i]].term}:{columns[of[j]].term}" for i, j in self.pairs]
        step = float(2.0 ** (np.ceil(np.log2(self.features.ends.max())) - FEATURE_BITS))
        tables: list[Vector | None] = [None]
        for block, number in self.features.owner:
            numeric = block.table is None
            tables.append(None if numeric else np.rint(block.tables[number] / step))
        whole = self.lift * self.gain
        bits = 52 - FEATURE_BITS - int(np.ceil(np.log2(self.features.size)))
        most = max(float(np.abs(whole).max(initial=0.0)), 2.0**-100)
        scale = float(2.0 ** (bits - np.ceil(np.log2(most))))
        grid = np.asarray(np.rint(whole * scale) * (-step / scale))
        standard: dict[int, Singles | None] = {}
        for j in sorted(set().union(*self.pairs, *self.curved)):
            block, number = self.features.owner[j - 1]
            standard[j] = None
            if block.table is not None:
                values = np.clip(block.tables[number] / self.scales[j], -PRODUCT_SDS, PRODUCT_SDS)
                standard[j] = values.astype(np.float32)
        vars(self).update(size=len(self.gain), step=step, names=names)
        vars(self).update(tables=tables, grid=grid, standard=standard)

    def of(self, rows: Rows) -> Matrix:
        """psi, shape (n, K): gain times (raw columns - phi'lift)."""
        return np.asarray(self.singles(rows), np.float64)

    def singles(self, rows: Rows) -> Singles:
        """psi in single precision."""
        out = rows.matrix(self.size, np.float32)
        self.beyond(rows, self.steps(rows), out)
        return out

    def weighted(self, rows: Rows) -> tuple[Singles, Vector]:
        """psi, and the weights of the rows."""
        psi = self.singles(rows)
        return psi, self.weight(psi)

    def steps(self, rows: Rows) -> Matrix:
        """phi on a grid, in whole steps of `step`, shape (n, p)."""
        phi = rows.matrix(self.features.size, np.float64)
        design, columns = self.features.design, self.features.column.tolist()
        for number, (column, table) in enumerate(zip(phi.T, self.tables, strict=True)):
            if table is not None:
                looked_up(table, rows.bins(design, columns[number]), column)
            else:
                self.features.fill(rows, number, column)
                np.rint(np.multiply(column, 1 / self.step, out=column), out=column)
        return phi

    def beyond(self, rows: Rows, steps: Matrix, out: Singles) -> None:
        """Write psi of rows with these `steps` to `out`.

        phi and the lift are on grids of 2^-a and 2^-b, and every partial sum stays below 2^53.
        The matrix product is therefore exact, in any order and for any block.
        """
        whole, lifted = rows.matrix(self.size, np.float64), rows.matrix(self.size, np.float32)
        onto(steps, self.grid, whole)
        np.copyto(lifted, whole, casting="same_kind")
        for column, raw, gain in zip(out.T, self.raw(rows), self.gain.tolist(), strict=True):
            np.multiply(raw, gain, out=column)
        np.add(out.T, lifted.T, out=out.T)

    def parts(self, rows: Rows) -> Iterator[tuple[slice, Rows]]:
        """Parts of the rows whose psi stays in cache."""
        indices = self._indices(rows)
        for place, part in _pieces(self.features, rows):
            part.keep((self,), tuple(index[place] for index in indices))
            yield place, part

    def raw(self, rows: Rows) -> Iterator[Singles]:
        """Products before phi is regressed out: K columns, each valid until the next is read.

        Recomputing them is cheaper than keeping them.
        """
        indices, linear = self._indices(rows), rows.kept(self.standard)
        if linear is None:  # A lookup in the tables costs less than keeping them beyond a pass.
            values = rows.matrix(len(self.standard), np.float32).T
            columns = zip(self.standard, values, strict=True)
            linear = {j: self.linear(rows, j, column) for j, column in columns}
            rows.keep((self.standard,), linear, "pass")
        out = np.empty(len(rows), np.float32)
        for i, j in self.pairs:
            yield np.multiply(linear[i], linear[j], out=out)
        for i, j in self.curved:
            first, second = linear[i] ** 2 - 1, linear[j] ** 2 - 1
            for left, right in ((first, linear[j]), (linear[i], second), (first, second)):
                yield np.multiply(left, right, out=out)
        for k, threshold in self.splits:
            np.copyto(out, indices[k] > threshold)
            yield out

    def _indices(self, rows: Rows) -> tuple[Singles, ...]:
        """Both indices, or an empty tuple."""
        indices: tuple[Singles, ...] | None = rows.kept(self)
        if indices is not None:
            return indices
        places = []
        for coef, shift, scale in self.indices or ():
            place = (self.features.total(coef)(rows) - shift) / scale
            places.append(np.clip(place, -PRODUCT_SDS, PRODUCT_SDS).astype(np.float32))
        return rows.keep((self,), tuple(places))

    def linear(self, rows: Rows, number: int, out: Singles) -> Singles:
        """Write a linear feature, standardized and clipped, to `out`."""
        table = self.standard[number]
        if table is not None:
            bins = rows.bins(self.features.design, int(self.features.column[number]))
            return looked_up(table, bins, out)
        feature = self.features.fill(rows, number, np.empty(len(rows)))
        out[:] = np.clip(feature / self.scales[number], -PRODUCT_SDS, PRODUCT_SDS)
        return out

    def total(self, base: Vector, coef: Vector) -> Extra:
        """phi(x)'base + psi(x)'coef as a function of rows."""
        gained = self.gain * coef
        return Extra(self, self.features.total(base - combine(self.lift, gained)), gained)


def index_splits(
    features: FeatureMap, coefs: Sequence[Vector], rows: Rows, number: int
) -> tuple[tuple[Index, Index], tuple[tuple[int, float], ...]]:
    """Indices with these coefficients, and splits of each at `number` evenly spaced quantiles.

    Together, the steps express any function of an index. A threshold is a quantile of the public
    `rows`, midway between two of their values.
    """
    sums = [features.total(coef)(rows) for coef in coefs]
    first, second = (
        (coef, float(total.mean()), float(total.std()) + 1e-12)
        for coef, total in zip(coefs, sums, strict=True)
    )
    splits = []
    for k, (_, shift, scale) in enumerate((first, second)):
        place = np.clip((sums[k] - shift) / scale, -PRODUCT_SDS, PRODUCT_SDS)
        for share in np.arange(1, number + 1) / (number + 1):
            below = np.quantile(place, share, method="lower")
            below = (
                below if below < place.max() else np.max(place[place < below], initial=place.min())
            )
            above = np.min(place[place > below], initial=place.max())
            splits.append((k, float(0.5 * (below + above))))
    return (first, second), tuple(splits)


def _pieces(features: FeatureMap, rows: Rows) -> Iterator[tuple[slice, Rows]]:
    """Parts of the rows, which share the bins used for looking up features."""
    for block in features.blocks:
        if block.table is not None:
            rows.bins(features.design, block.column)
    return rows.parts(PART)


@dataclass(frozen=True, eq=False)
class Extra:
    """An additive function plus the raw products times coefficients."""

    features: Interactions
    additive: Sum
    coef: Vector

    def __call__(self, rows: Rows) -> Vector:
        return extras(rows, [self])[0]


def extras(rows: Rows, functions: Sequence[Extra]) -> list[Vector]:
    """Evaluate several functions of the same products, computing the products once."""
    values = [function.additive(rows) for function in functions]
    coefs = np.array([function.coef for function in functions]).T.tolist()
    if any(map(any, coefs)):
        part = np.empty(len(rows), np.float32)
        sums = [np.zeros(len(rows), np.float32) for _ in functions]
        for raw, weights in zip(functions[0].features.raw(rows), coefs, strict=True):
            for total, coef in zip(sums, weights, strict=True):
                if coef:
                    np.add(total, np.multiply(raw, coef, out=part), out=total)
        for value, total in zip(values, sums, strict=True):
            np.add(value, total, out=value)
    return values


@dataclass(frozen=True, eq=False)
class RescaledFeatures:
    """Features for one release, each stretched according to the value of its moment.

    The features are stretch x (phi, psi), with row weights
    w = min(w_phi, cut / ||stretch x (phi, psi)||). Then ||w stretch x (phi, psi)|| <= cut, which
    bounds cross moments (not a Gram matrix). Rows whose norm is below `cut` have the same weight
    as in moments of phi alone. `stretch` (p + K,) is positive.
    """

    features: FeatureMap
    products: Interactions | None
    stretch: Vector
    cut: float

    of = Interactions.of

    @property
    def size(self) -> int:
        return len(self.stretch)

    def singles(self, rows: Rows) -> Singles:
        """The stretched features in single precision."""
        out, p = rows.matrix(self.size, np.float32), self.features.size
        if self.products is None:
            np.copyto(out, rows.phi(self.features), casting="same_kind")
            scale = self.stretch
        else:
            steps = self.products.steps(rows)
            np.copyto(out[:, :p], steps, casting="same_kind")
            self.products.beyond(rows, steps, out[:, p:])
            scale = self.stretch * np.r_[np.full(p, self.products.step), np.ones(self.size - p)]
        for column, factor in zip(out.T, scale.tolist(), strict=True):
            np.multiply(column, factor, out=column)
        return out

    def weighted(self, rows: Rows) -> tuple[Singles, Vector]:
        """The stretched features, and the weights of the rows."""
        values = self.singles(rows)
        return values, self.weight(values, self.features.norm2(rows))

    def parts(self, rows: Rows) -> Iterator[tuple[slice, Rows]]:
        """Parts of the rows whose features stay in cache."""
        return _pieces(self.features, rows) if self.products is None else self.products.parts(rows)

    def weight(self, values: Matrix | Singles, norm2: Vector | None = None) -> Vector:
        """Row weights; `norm2` is ||phi||^2, by default of the values."""
        p = self.features.size
        if norm2 is None:
            norm2 = squared_norm(values[:, :p] / self.stretch[:p])
        weight = np.minimum(1.0, self.features.cut**2 / norm2)
        return np.minimum(weight, self.cut / np.sqrt(np.maximum(squared_norm(values), 1e-300)))


Features: TypeAlias = FeatureMap | Turned | Fourier | Interactions | RescaledFeatures
"""A vector of `size` functions of a row, with weights that keep its norm below `cut`."""


# -- functions of a row ----------------------------------------------------------------------------


# Public functions of a row's covariates: nuisances and effects made from released numbers.


Function: TypeAlias = Callable[[Rows], Vector]
"""A map from covariates to a number; calling it returns shape (n,)."""


@dataclass(frozen=True)
class Constant:
    """A constant: one number for all rows."""

    value: float

    def __call__(self, rows: Rows) -> Vector:
        return np.full(len(rows), self.value)


@dataclass(frozen=True)
class Known:
    """A value supplied with the row (a trial's propensity), clipped to declared bounds."""

    lo: float
    hi: float

    def __call__(self, rows: Rows) -> Vector:
        if rows.propensity is None:
            raise DataError("The new data must contain the column of known propensities.")
        return np.minimum(np.maximum(rows.propensity, self.lo), self.hi)


@dataclass(frozen=True, eq=False)
class Additive:
    """offset + phi(x)' coef, clipped to [lo, hi]."""

    features: Features
    coef: Vector
    offset: float = 0.0
    lo: float = -np.inf
    hi: float = np.inf

    @cached_property
    def _sum(self) -> Callable[[Rows], Vector]:
        if isinstance(self.features, FeatureMap):
            return self.features.total(self.coef)
        if isinstance(self.features, Interactions):
            return self.features.total(np.zeros(self.features.features.size), self.coef)
        return lambda rows: combine(rows.phi(self.features), self.coef)

    def __call__(self, rows: Rows) -> Vector:
        value: Vector | None = rows.kept(self)
        if value is None:
            total = rows.kept(self.features, self.coef)
            if total is None:
                total = rows.keep((self.features, self.coef), self._sum(rows))
            value = self.offset + total
            rows.keep((self,), np.clip(value, self.lo, self.hi, out=value), "pass")
        return value


@dataclass(frozen=True, eq=False)
class Extended:
    """A function plus psi(x)' coef, clipped to the function's [lo, hi] if that is additive."""

    base: Function
    features: Interactions
    coef: Vector
    # The base's coefficients in the features of the products, and the rest, not clipped
    shared: Vector | None = field(init=False)
    rest: Function | float = field(init=False)
    total: Extra = field(init=False)  # Sum by the shared coefficients and products

    def __post_init__(self) -> None:
        base, shared = self.base, None
        rest: Function | float = base
        if type(base) is Additive and isinstance(base.features, FeatureMap):
            shared, rest = base.coef, base.offset
        elif isinstance(base, Additive):
            rest = replace(base, lo=-np.inf, hi=np.inf)
        coef = np.zeros(self.features.features.size) if shared is None else shared
        vars(self).update(shared=shared, rest=rest, total=self.features.total(coef, self.coef))

    def __call__(self, rows: Rows) -> Vector:
        value: Vector | None = rows.kept(self)
        if value is None:
            key = self.shared, self.features, self.coef
            total = rows.kept(*key)
            if total is None:
                total = rows.keep(key, self.total(rows))
            value = (self.rest(rows) if callable(self.rest) else self.rest) + total
            if isinstance(self.base, Additive):
                np.clip(value, self.base.lo, self.base.hi, out=value)
            rows.keep((self,), value, "pass")
        return value

    @staticmethod
    def together(rows: Rows, functions: Sequence[Function]) -> None:
        """Compute and cache the sums of functions that share the same products."""
        new: list[tuple[Extended, tuple[object, ...]]] = []
        for f in functions:
            if isinstance(f, Extended):
                key: tuple[object, ...] = f.shared, f.features, f.coef
                if rows.by_column and rows.kept(*key) is None:
                    new.append((f, key))
        if len(new) > 1 and all(f.features is new[0][0].features for f, _ in new):
            values = extras(rows, [f.total for f, _ in new])
            for (_, key), value in zip(new, values, strict=True):
                rows.keep(key, value)


@dataclass(frozen=True)
class ArmMean:
    """mu_t(x) = eta(x) + (t - e(x)) tau(x), clipped to the outcome's bounds [lo, hi].

    The mean of Y is eta = mu_0 + e tau (Nie and Wager 2021, Eq. 1). The formula is therefore exact
    wherever eta, e and tau are exact.
    """

    arm: float
    eta: Function
    e: Function
    tau: Function
    lo: float
    hi: float

    def __call__(self, rows: Rows) -> Vector:
        value: Vector | None = rows.kept(self)
        if value is None:
            Extended.together(rows, (self.e, self.eta))
            value = self.arm - self.e(rows)
            value *= self.tau(rows)
            value += self.eta(rows)
            rows.keep((self,), np.clip(value, self.lo, self.hi, out=value), "pass")
        return value


@dataclass(frozen=True)
class Mixture:
    """e(x) mu1(x) + (1 - e(x)) mu0(x): the mean outcome eta, or the X-learner's combined effect."""

    e: Function
    at_one: Function
    at_zero: Function

    def __call__(self, rows: Rows) -> Vector:
        e = self.e(rows)
        return e * self.at_one(rows) + (1.0 - e) * self.at_zero(rows)


@dataclass(frozen=True, eq=False)
class LinearFunction:
    """offset + z'coef, z the scaled columns of a design; |.| <= |offset| + sum |coef|."""

    design: Design
    coef: Vector
    offset: float

    def __call__(self, rows: Rows) -> Vector:
        scaled = rows.scaled(self.design)
        finite = scaled if self.design.plain else np.nan_to_num(scaled)
        return self.offset + combine(finite, self.coef)


@dataclass(frozen=True)
class Pointwise:
    """A NumPy function of two values, such as their minimum or their difference."""

    operation: np.ufunc
    first: Function
    second: Function

    def __call__(self, rows: Rows) -> Vector:
        return np.asarray(self.operation(self.first(rows), self.second(rows)))


class Ranks(NamedTuple):
    """Cells between the `borders` of an effect, which is a function of the row to the last bit."""

    effect: Function
    borders: Vector

    @property
    def size(self) -> int:
        return len(self.borders) + 1

    def cell(self, frame: Mapping[str, Vector | Integers]) -> Integers:
        rows = Rows(frame, len(next(iter(frame.values()))))
        return np.searchsorted(self.borders, self.effect(rows))


@dataclass(frozen=True)
class NuisanceTriple:
    """e(x) = P(T = 1 | x) and the arm means mu_0(x), mu_1(x)."""

    e: Function
    mu0: Function
    mu1: Function

    def values(self, rows: Rows) -> tuple[Vector, Vector, Vector]:
        """e, mu_0 and mu_1 of the rows."""
        return self.e(rows), self.mu0(rows), self.mu1(rows)


Triples = tuple[NuisanceTriple, ...]
"""Nuisances by fold, or one triple for all rows."""


# Step functions on public bins of columns, which boosting learns.

SYNTHETIC_CELLS = 16
"""Cells of the histogram behind synthetic rows; each has FINE_BINS / SYNTHETIC_CELLS fine bins."""

LUMP = 0.04
"""Minimum share of rows in a lump's cell. Smaller lumps cannot be distinguished from noise."""


@dataclass(frozen=True, eq=False)
class TermBins:
    """The bins of one term: of a numeric column, or one for each level of a factor."""

    # Design columns: one numeric column, or the indicators of a factor's levels
    columns: tuple[int, ...]
    # Bin of each public fine bin of a numeric column, shape (FINE_BINS,). A factor has None; its
    # bin 0 is for rows with none of its levels, and its bin k for the k-th level.
    bin_of: Integers | None
    size: int  # Number of bins

    @property
    def position(self) -> Vector | None:
        """Middle of each bin on the column's scale of [-1, 1], shape (size,); None for a factor."""
        if self.bin_of is None:
            return None
        middles = (np.arange(FINE_BINS) + 0.5) * (2.0 / FINE_BINS) - 1.0
        return np.asarray(np.bincount(self.bin_of, middles) / np.bincount(self.bin_of))

    def codes(self, scaled: Matrix) -> Integers:
        """Bin of each row, shape (n,); every value has a bin."""
        if self.bin_of is not None:
            return np.asarray(self.bin_of[fine_bins(scaled[:, self.columns[0]])])
        code = np.zeros(len(scaled), np.int64)
        for k, column in enumerate(self.columns, start=1):
            code[scaled[:, column] > 0.5] = k
        return code


@dataclass(frozen=True, eq=False)
class Bins:
    """Public bins of all terms of a design, numbered consecutively over all axes."""

    design: Design
    axes: tuple[TermBins, ...]
    # Public estimate of each bin's share of the rows, shape (M,). It sums to one on each axis.
    share: Vector
    size: int = field(init=False)  # Number of bins
    start: Integers = field(init=False)  # Each axis's first bin, then their number, shape (p + 1,)

    def __post_init__(self) -> None:
        start = np.cumsum([0, *(axis.size for axis in self.axes)]).astype(np.int64)
        vars(self).update(size=int(start[-1]), start=start)

    @cached_property
    def features(self) -> FeatureMap:
        """Indicators of all bins as features, except a factor's bin 0, whose shape is zero."""
        blocks: list[Block] = []
        columns = self.design.columns
        for axis in self.axes:
            term = columns[axis.columns[0]].term
            if axis.bin_of is not None:
                table = np.zeros((FINE_BINS, axis.size))
                table[np.arange(FINE_BINS), axis.bin_of] = 1.0
                blocks.append(Block(axis.columns[0], (1,) * axis.size, term, table=table))
            else:
                blocks += [Block(j, (1,), term) for j in axis.columns]
        return FeatureMap(self.design, tuple(blocks), np.inf)

    @cached_property
    def to_coef(self) -> Matrix:
        """Matrix from (constant, shapes), shape (1 + M,), to coefficients of `features`.

        The value of a factor's bin 0 is added to the constant and subtracted from its levels.
        """
        rows = [np.eye(1 + self.size)[0]]
        for k, axis in enumerate(self.axes):
            first = 1 + int(self.start[k])
            bins = np.eye(1 + self.size)[first : first + axis.size]
            if axis.bin_of is None:
                rows[0] = rows[0] + bins[0]
                rows += list(bins[1:] - bins[0])
            else:
                rows += list(bins)
        return np.array(rows)

    def restricted(self, terms: Collection[str]) -> Bins:
        """Keep only the axes of some terms."""
        columns = self.design.columns
        places = [k for k, axis in enumerate(self.axes) if columns[axis.columns[0]].term in terms]
        shares = [self.share[self.start[k] : self.start[k + 1]] for k in places]
        axes = tuple(self.axes[k] for k in places)
        return Bins(self.design, axes, np.concatenate([np.zeros(0), *shares]))

    def within(self, other: Bins) -> Integers:
        """Positions of (constant, shapes) of these bins in the order of `other`, shape (1 + M,)."""
        first = {axis: other.start[k] for k, axis in enumerate(other.axes)}
        bins = [1 + first[axis] + np.arange(axis.size) for axis in self.axes]
        return np.concatenate([[0], *bins]).astype(np.int64)

    def codes(self, rows: Rows) -> list[Integers]:
        """Bin of each row on each axis, by its number over all axes."""
        scaled = rows.scaled(self.design)
        pairs = zip(self.axes, self.start[:-1], strict=True)
        return [axis.codes(scaled) + int(first) for axis, first in pairs]


def make_bins(design: Design, rows: Rows, most: int) -> Bins:
    """About `most` bins of equal shares of the public synthetic `rows` on each numeric column."""
    scaled = rows.scaled(design)
    axes, shares = [], []
    # Columns of each axis: all indicators of a factor together, any other column alone
    groups: dict[str | int, list[int]] = {}
    for j, column in enumerate(design.columns):
        groups.setdefault(column.term if column.kind == "indicator" else j, []).append(j)
    for columns in map(tuple, groups.values()):
        if design.columns[columns[0]].kind == "indicator":
            axis = TermBins(columns, None, 1 + len(columns))
        else:
            # Join fine bins into about `most` bins of equal shares of the rows.
            fine = np.bincount(fine_bins(scaled[:, columns[0]]), minlength=FINE_BINS)
            share = fine / max(len(scaled), 1)
            # Lump of each fine bin, numbered from 1; 0 means no lump. A lump is a cell of the
            # released histogram with most of the rows in its neighborhood. Such a cell holds many
            # rows of one value, for example 0 or 1 of a 0/1 column. The position of that value in
            # the cell is unknown, and smoothing may have moved an unknown amount to the next cell.
            # A border there could make a bin that seems to have rows but is empty.
            cells = np.pad(share.reshape(SYNTHETIC_CELLS, -1).sum(axis=1), 2)
            center, nearest = cells[2:-2], np.maximum(cells[1:-3], cells[3:-1])
            second = np.maximum(cells[:-4], cells[4:])
            alone = (center > LUMP) & (nearest < 0.6 * center) & (second < 0.15 * center)
            lumps = np.zeros(SYNTHETIC_CELLS, np.int64)
            for number, cell in enumerate(np.flatnonzero(alone), start=1):
                lumps[max(cell - 1, 0) : cell + 2] = number
            lump = np.repeat(lumps, FINE_BINS // SYNTHETIC_CELLS)
            # Mix with the uniform distribution, so that an empty stretch of the domain is not one
            # bin.
            share = 0.9 * share + 0.1 / FINE_BINS
            middle = np.cumsum(share) - 0.5 * share
            place = np.minimum(np.floor(middle * most), most - 1).astype(np.int64)
            border = np.r_[True, (np.diff(place) > 0) & ((lump[1:] == 0) | (lump[:-1] == 0))]
            border[1:] |= lump[1:] != lump[:-1]
            bin_of = np.cumsum(border) - 1
            axis = TermBins(columns, bin_of.astype(np.int64), int(bin_of[-1]) + 1)
        counts = np.bincount(axis.codes(scaled), minlength=axis.size).astype(np.float64)
        axes.append(axis)
        shares.append((counts + 0.5) / (counts + 0.5).sum())
    return Bins(design, tuple(axes), np.concatenate([np.zeros(0), *shares]))


@dataclass(frozen=True, eq=False)
class Steps(Additive):
    """offset + sum of step functions, passed through 1 / (1 + e^-z) if `logistic`."""

    features: FeatureMap
    logistic: bool = False

    @cached_property
    def _whole(self) -> Sum:
        """The sum including the offset, which is added first."""
        total = self.features.total(self.coef)
        return replace(total, constant=self.offset + total.constant)

    def __call__(self, rows: Rows) -> Vector:
        value = self._whole(rows)
        if self.logistic:
            value = expit(value)
        return np.asarray(np.minimum(np.maximum(value, self.lo), self.hi))


def expit(z: Vector) -> Vector:
    """1 / (1 + e^-z), without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * z)))


@dataclass(frozen=True)
class Family:
    """Outcomes with a canonical link: the mean mu has logit(mu) = eta, or log(mu) = eta.

    eta is clipped to [`lo`, `hi`]. V = d mu / d eta is the variance of an outcome, up to a factor.
    Weights of rows are V, but at least `least`.
    """

    name: Literal["logit", "poisson"]
    lo: float = -np.inf
    hi: float = np.inf
    least: float = 0.0

    def mean(self, eta: Vector) -> Vector:
        eta = np.clip(eta, self.lo, self.hi)
        return expit(eta) if self.name == "logit" else np.exp(eta)

    def variance(self, mean: Vector) -> Vector:
        return mean * (1 - mean) if self.name == "logit" else mean

    def weight(self, mean: Vector) -> Vector:
        return np.maximum(self.variance(mean), self.least)

    @property
    def most(self) -> float:
        """Largest weight."""
        return 0.25 if self.name == "logit" else float(np.exp(self.hi))


NETWORK_WIDTH = 32
"""Number of hidden units. It must be a power of two for `folded`."""

_LN2 = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""log 2 in two parts. The first is short enough that its product with a small integer is exact."""

_EXP = [1 / math.factorial(k) for k in range(13, -1, -1)]
"""1/13!, ..., 1/1!, 1/0!. The next term is below 2^-57 for |r| <= log(2) / 2."""


@dataclass(frozen=True, eq=False)
class Network:
    """A network of one hidden layer, offset + gain f(z), clipped to [lo, hi].

    f = w2' max(0, W1 z + b1) + b2, or sigmoid(f) for a share. z are the scaled design columns,
    followed by `arm` unless it is None.
    """

    design: Design
    weights: Vector  # W1 (32 x q, by rows), b1, w2, b2
    lo: float
    hi: float
    offset: float = 0.0
    gain: float = 1.0
    arm: float | None = None
    share: bool = False  # Whether f is passed through the logistic function

    def __call__(self, rows: Rows) -> Vector:
        z = inputs(rows, self.design, self.arm)
        w1, b1, w2, b2 = split(self.weights, z.shape[1])
        value = folded(w2[:, None] * np.maximum(before(w1, b1, z), 0.0)) + b2
        if self.share:
            value = logistic(value)
        return np.clip(self.offset + self.gain * value, self.lo, self.hi)


def inputs(rows: Rows, design: Design, arm: float | Vector | None = None) -> Matrix:
    """Scaled columns, finite for every row, followed by the arm if it is given."""
    z = np.nan_to_num(rows.scaled(design))
    return z if arm is None else np.column_stack([z, np.broadcast_to(arm, len(z))])


def before(w1: Matrix, b1: Vector, z: Matrix) -> Matrix:
    """W1 z + b1 of each row, the input of the hidden units, shape (32, n)."""
    total = np.repeat(b1[:, None], len(z), axis=1)
    part = np.empty_like(total)
    for j in range(z.shape[1]):
        total += np.multiply(w1[:, j, None], z[None, :, j], out=part)
    return total


def folded(parts: Matrix) -> Vector:
    """Sums over the first axis by halves: (m, n) -> (n,). m must be a power of two."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = parts[:half] + parts[half:]
    return np.asarray(parts[0])


def logistic(f: Vector) -> Vector:
    """1 / (1 + e^-f), f clipped to [-40, 40], accurate to a few units in the last place."""
    x = -np.minimum(np.abs(f), 40.0)
    twos = np.rint(x / _LN2[0])
    r = (x - twos * _LN2[0]) - twos * _LN2[1]
    series = np.full_like(r, _EXP[0])
    for c in _EXP[1:]:
        series = series * r + c
    small = np.ldexp(series, twos.astype(np.int32))
    return np.asarray(np.where(f < 0, small, 1.0) / (1.0 + small))


def start(width: int) -> Vector:
    """Public starting weights for training, flat, drawn with a fixed seed. They are not noise.

    W1 is normal with variance 2/q, w2 is standard normal, and b1 and b2 are zero.
    """
    weights = np.random.default_rng(20_250_601).standard_normal(size(width))
    w1, b1, _, _ = split(weights, width)
    w1 *= np.sqrt(2.0 / max(width, 1))
    b1[:] = weights[-1] = 0.0
    return weights


def size(width: int) -> int:
    """Number of weights for `width` inputs."""
    return NETWORK_WIDTH * (width + 2) + 1


def split(weights: Vector, width: int) -> tuple[Matrix, Vector, Vector, float]:
    """W1, b1, w2 and b2 of flat weights."""
    ends = np.cumsum([NETWORK_WIDTH * width, NETWORK_WIDTH, NETWORK_WIDTH])
    w1, b1, w2, b2 = np.split(weights, ends)
    return w1.reshape(NETWORK_WIDTH, width), b1, w2, float(b2[0])
