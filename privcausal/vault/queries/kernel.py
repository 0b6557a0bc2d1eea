"""Regularised regression on a public basis, solved on the rows; its weights leave once, noisy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from privcausal.errors import CapabilityError
from privcausal.features.expansions import Fourier
from privcausal.typing import Integers, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.exit import Solution
from privcausal.vault.guard import Opaque
from privcausal.vault.transforms import Transform

SOLVER_TOLERANCE = 2.0**-10
"""eta / L: the solver ends at a gradient this small; it costs as much of the sensitivity."""

BITS = 20
"""Grid steps of a weight, against the sensitivity over sqrt(p)."""

RIDGE_FLOOR, RIDGE_CEILING = 1e-6, 1e18
"""Ridges between which weights, their grid and the solver stay well inside of floats."""

BLOCK = 1 << 10
"""Rows a block: the order of sums is fixed, whatever the batches are, and a block fits the cache
between its two uses in a gradient."""

KEEP = 200_000_000
"""Basis values that are kept between passes (1.6 GB); beyond, they are computed again."""


@dataclass(frozen=True, eq=False)
class KernelRegression(Solution):
    """Weights w of the g(x) = phi(x)'w that minimises

        F(w) = sum_i a_i l_i(g(x_i) - t_i / a_i) + (lambda / 2) ||w||^2,

    Gaussian-kernel regression of a pseudo-outcome t_i / a_i with weight a_i (Schroeder et al. 2025,
    Eq. 18, with lambda / 2 = n times their lambda). ||phi|| = 1, so ||w|| is the norm of g in the
    RKHS of the basis' kernel.

    Attributes
    ----------
    curvature : Transform
        a in [0, A], A its bound.
    target : Transform
        t = a x pseudo-outcome.
    lipschitz : float
        L. With ``loss="huber"`` the loss of row i is Huber's with its corner at L / a_i, so that
        no row's gradient is longer than L. With ``"squared"`` it is what is proven below, and t is
        cut to [-cut, cut].
    ridge : float
        lambda, public.
    cut, reach : float
        Only for ``"squared"``: the cut of t, and the bound of |t_i| / sqrt(a_i).
    rows : float
        Public number that the rows do not exceed; only rounding depends on it.

    Privacy
    -------
    F is lambda-strongly convex. Let F' be that of a neighbour, with rows z, z' exchanged, and w*,
    w'* the minimisers. Then grad F'(w*) = grad f_z'(w*) - grad f_z(w*), and strong convexity gives
    ||w'* - w*|| <= ||grad F'(w*)|| / lambda <= 2 L / lambda, or L / lambda for a row added, removed
    or incomplete in one table (it adds nothing to F). (Lemma 1 of the paper, with the right power
    of K(x, x), which is 1 here.)

    *Huber*: grad f(w) = clip(a phi'w - t, -L, L) phi, and ||phi|| = 1. *Squared*: grad f(w*) =
    (a phi'w* - t) phi is bounded at w*, which is all the argument needs: (lambda / 2) ||w*||^2 <=
    F(0) <= n reach^2 / 2, so ||w*|| <= B = reach sqrt(n / lambda) and L = A B + cut, with n a
    public bound on the number of rows.

    *The solver* returns w with ||grad F(w)|| <= eta, hence within eta / lambda of w*: with both
    tables' that adds 2 eta / lambda. With u = 2^-53 and n rows, the computed gradient errs by

    - its sum: at most n u (BLOCK + n / BLOCK) L, some 10^-6 L for a million rows;
    - its residuals a phi'w - t: |fl(phi'w) - phi'w| <= p u ||w|| in any order of the sum (Higham
      2002, Eq. 3.5; about sqrt(p) u ||w|| as a rule), since ||phi|| = 1. And ||w|| <= n L / lambda,
      as lambda w* is minus a sum of n gradients that are no longer than L. The factor a, the
      difference and the clip add at most 2 u (A ||w|| + L). That is R L over all rows, with
      R = 2 (p + 4) A u n^2 / lambda.

    A computed gradient below (T / 2 + R) L, T = `TOLERANCE`, is within reach of floats, and makes
    the true one shorter than eta = (T + 2 R) L, the other T / 2 paying for the sum. The method is
    Taylor and Drori's (2023, Algorithm 1) from zero, with a number of steps fixed by the public n,
    A and lambda (`schedule`). F is lambda-strongly convex and S-smooth with S = A n + lambda, so
    after N steps ||w_N - w*||^2 <= ||w*||^2 / (1 + A_N lambda / S) by their Theorem 3, whatever
    the rows are; ||w*|| <= n L / lambda and ||grad F(w_N)|| <= S ||w_N - w*|| then give half of the
    T / 2. The gradient's length is checked once, at the end: arithmetic that is not IEEE 754's
    stops the fit, and releases nothing. Rows that do not count have a = t = 0 and are not left out,
    so that work does not depend on their number. Nothing is divided by less than lambda, which is
    refused below `FLOOR`.

    *The grid*: weights are rounded to multiples of u, which moves each table's by at most sqrt(p)
    u / 2. So integers move by at most Delta / u + sqrt(p), Delta = (2 L + 2 eta) / lambda.
    Max_rows k rows exchanged: k gradients each, k L for L; multiplying all of it by k covers that.
    """

    features: Fourier
    curvature: Transform
    target: Transform
    lipschitz: float
    ridge: float
    loss: Literal["huber", "squared"] = "huber"
    cut: float = np.inf
    rows: float = field(kw_only=True)

    def __post_init__(self) -> None:
        sizes = (self.lipschitz, self.rows, self.curvature.bound)
        if not (RIDGE_FLOOR <= self.ridge <= RIDGE_CEILING and all(0 < v < np.inf for v in sizes)):
            raise CapabilityError(
                f"the ridge of a kernel regression must lie between {RIDGE_FLOOR:g} and "
                f"{RIDGE_CEILING:g}"
            )

    @property
    def query(self) -> str:
        return f"kernel weights, m = {self.features.size}"

    @property
    def units(self) -> Vector:
        size = self._size
        unit = self._moved("substitute") / (np.sqrt(size) * (1 << BITS))
        return np.full(size, unit)

    @property
    def _size(self) -> int:
        return self.features.size

    def _moved(self, neighbors: Neighbors) -> float:
        rows = 2.0 if neighbors == "substitute" else 1.0
        eta = SOLVER_TOLERANCE + 2 * self._rounding
        return (rows + 2 * eta) * self.lipschitz / self.ridge

    @property
    def _rounding(self) -> float:
        """R: what rounding may do to the residuals' part of the gradient, in units of L."""
        a = self.curvature.bound
        return (self.features.size + 4) * a * self.rows**2 / self.ridge * 2.0**-52

    def sensitivity(self, neighbors: Neighbors) -> float:
        return self._moved(neighbors) / float(self.units[0]) + float(np.sqrt(self._size))

    def solve(self, batches: Iterable[Batch]) -> Integers:
        """Weights on the grid, shape (p,)."""
        return self._on_grid(self._weights(batches))

    def _on_grid(self, values: Vector) -> Integers:
        return np.rint(values / float(self.units[0])).astype(np.int64)

    @property
    def smooth(self) -> float:
        """S: no table has a steeper gradient."""
        return (self.curvature.bound * self.rows + self.ridge) * (1 + 2.0**-30)

    @property
    def steps(self) -> tuple[Step, ...]:
        """What the solver does, on every table."""
        shorter = 4 * self.rows * self.smooth / (self.ridge * SOLVER_TOLERANCE)
        return schedule(self.ridge / self.smooth, shorter)

    def _weights(self, batches: Iterable[Batch]) -> Vector:
        a, t, points = [], [], []
        for batch in batches:
            counted = batch.complete
            a.append(
                counted * np.clip(np.nan_to_num(self.curvature(batch)), 0, self.curvature.bound)
            )
            t.append(counted * np.clip(np.nan_to_num(self.target(batch)), -self.cut, self.cut))
            scaled = batch.rows.scaled(self.features.design)[:, self.features.columns]
            points.append(np.nan_to_num(scaled))  # finite for every row
        if not a:  # a table without rows
            return np.zeros(self.features.size)
        corner = self.lipschitz if self.loss == "huber" else np.inf
        problem = KernelProblem(
            self.features, np.concatenate(points), np.concatenate(a), np.concatenate(t), corner,
            self.ridge,
        )  # fmt: skip
        weights = problem.minimum(self.smooth, self.steps)
        length = float(np.linalg.norm(problem.gradient(weights)))
        if not length <= (0.5 * SOLVER_TOLERANCE + self._rounding) * self.lipschitz:
            raise ArithmeticError("the gradient is longer than it can be: arithmetic is not IEEE's")
        return weights


@dataclass(frozen=True, eq=False)
class KernelAnswers(KernelRegression):
    """g at d public points, with independent noise.

    Attributes
    ----------
    points : Matrix
        phi of the points, shape (d, p).

    Privacy
    -------
    Answers Z w move by at most ||Z||_op times as far in l2 as w does. (Independent noise of that
    size is never smaller than the noise Z xi that noise on w leaves at the points, and as small
    where these are orthogonal in the RKHS, as one point is: hiding all Z u, ||u|| <= Delta, at the
    price of Delta / sigma takes a covariance of at least sigma^2 Z Z', which Z xi has.)
    """

    points: Matrix = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def query(self) -> str:
        return f"effect at {len(self.points)} points"

    @property
    def _size(self) -> int:
        return len(self.points)

    def _moved(self, neighbors: Neighbors) -> float:
        return float(np.linalg.norm(self.points, 2)) * super()._moved(neighbors)

    def solve(self, batches: Iterable[Batch]) -> Integers:
        """Answers on the grid, shape (d,)."""
        return self._on_grid(self.points @ self._weights(batches))


def proven_lipschitz(bound: float, reach: float, cut: float, rows: float, ridge: float) -> float:
    """L of the squared loss: A reach sqrt(n / lambda) + cut (see `KernelRegression`)."""
    return float(bound * reach * np.sqrt(rows / ridge) + cut)


class Step(NamedTuple):
    """beta and delta of one step of the solver."""

    mix: float
    length: float


def schedule(share: float, shorter: float) -> tuple[Step, ...]:
    """Steps after which w is nearer to the minimum than zero is, by the factor `shorter`.

    Taylor and Drori (2023), "An optimal gradient method for smooth strongly convex minimization",
    Algorithm 1, with q = `share` = lambda / S; 1 + q A_N >= shorter^2 by their Theorem 3. About
    sqrt(S / lambda) log(shorter sqrt(S / lambda)) steps.
    """
    q, a, steps = share, 0.0, []
    while 1 + q * a < shorter**2:
        grown = ((1 + q) * a + 2 * (1 + math.sqrt((1 + a) * (1 + q * a)))) / (1 - q) ** 2
        length = 0.5 * ((1 - q) ** 2 * grown - (1 + q) * a) / (1 + q + q * a)
        steps.append(Step(a / ((1 - q) * grown), length))
        a = grown
    return tuple(steps)


@dataclass(eq=False, repr=False)
class KernelProblem(Opaque):
    """F of `KernelRegression` on rows: a, t of shape (n,), points of shape (n, q)."""

    features: Fourier
    points: Matrix
    a: Vector
    t: Vector
    corner: float
    ridge: float
    _phi: list[Matrix] = field(default_factory=list)

    def _blocks(self) -> Iterator[tuple[Matrix, Vector, Vector]]:
        keep = self.points.shape[0] * self.features.size <= KEEP
        for k, start in enumerate(range(0, self.points.shape[0], BLOCK)):
            at = slice(start, start + BLOCK)
            phi = self._phi[k] if k < len(self._phi) else self.features.at(self.points[at])
            if keep and k == len(self._phi):
                self._phi.append(phi)
            yield phi, self.a[at], self.t[at]

    def gradient(self, w: Vector) -> Vector:
        total = self.ridge * w
        for phi, a, t in self._blocks():
            pull = phi @ w
            pull *= a
            pull -= t
            np.minimum(pull, self.corner, out=pull)
            np.maximum(pull, -self.corner, out=pull)
            total += pull @ phi
        return total

    def minimum(self, smooth: float, steps: Sequence[Step]) -> Vector:
        """Where `steps` lead from zero; `smooth` is S. No row decides how many they are."""
        x = z = np.zeros(self.features.size)
        q = self.ridge / smooth
        for mix, length in steps:
            y = z + mix * (x - z)
            slope = self.gradient(y) / smooth
            x = y - slope
            z = z + length * (q * (y - z) - slope)
        return np.asarray(z)
