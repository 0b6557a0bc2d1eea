"""Regularized regression on a public basis, solved on the rows; noisy weights are released once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from privcausal.errors import CapabilityError
from privcausal.features.functions import Fourier
from privcausal.typing import Integers, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.exit import Solution
from privcausal.vault.guard import Opaque
from privcausal.vault.transforms import Transform

SOLVER_TOLERANCE = 2.0**-10
"""T: the solver ends at this gradient norm, in units of L and up to rounding.

It adds to the sensitivity (see `KernelRegression`).
"""

BITS = 20
"""Each sensitivity over sqrt(p) is divided into 2^BITS grid steps of a weight."""

RIDGE_FLOOR, RIDGE_CEILING = 1e-6, 1e18
"""For ridges in this range, weights, their grid, and the solver stay well within float range."""

BLOCK = 1 << 10
"""Rows per block. The order of sums is fixed and does not depend on the batches. A block stays in
the cache between its two uses in a gradient.
"""

KEEP = 200_000_000
"""Maximum number of basis values kept between passes (1.6 GB). Others are computed again."""


@dataclass(frozen=True, eq=False)
class KernelRegression(Solution):
    """Weights w of the g(x) = phi(x)'w that minimizes

        F(w) = sum_i a_i l_i(g(x_i) - t_i / a_i) + (lambda / 2) ||w||^2.

    This is Gaussian-kernel regression of a pseudo-outcome t_i / a_i with weight a_i (Schroeder et
    al. 2025, Eq. 18, with lambda / 2 = n times their lambda). ||phi|| = 1, so ||w|| is the norm of
    g in the RKHS of the basis' kernel.

    Attributes
    ----------
    curvature : Transform
        a in [0, A], where A is its bound.
    target : Transform
        t = a x pseudo-outcome.
    lipschitz : float
        L. With ``loss="huber"``, the loss of row i is Huber's with its corner at L / a_i. Then no
        row's gradient is longer than L. With ``"squared"``, L is the bound proven below, and t is
        clipped to `[-cut, cut]`.
    ridge : float
        lambda, public.
    cut : float
        Clipping threshold of t. Only for ``"squared"``.
    rows : float
        Public upper bound on the number of rows. It determines the solver's steps and the bounds on
        rounding.
    points : Matrix, optional
        Z, phi of d public points, shape (d, p). If given, the values Z w of g are released with
        independent noise, in place of w.

    Privacy
    -------
    F is lambda-strongly convex. Let F' be the objective of a neighbor with row z' instead of row z.
    Let w* and w'* be the minimizers. Then grad F'(w*) = grad f_z'(w*) - grad f_z(w*). Strong
    convexity gives ||w'* - w*|| <= ||grad F'(w*)|| / lambda <= 2 L / lambda. The bound is
    L / lambda for a row that is added, removed, or incomplete in one table, because it adds zero to
    F there. (This is Lemma 1 of the paper, with the right power of K(x, x), which is 1 here.)

    *Huber*: grad f(w) = clip(a phi'w - t, -L, L) phi, and ||phi|| = 1.

    *Squared*: grad f(w*) = (a phi'w* - t) phi. The argument needs only a bound at w*. Let `reach`
    be a bound on |t_i| / sqrt(a_i). Then (lambda / 2) ||w*||^2 <= F(0) <= n reach^2 / 2, so
    ||w*|| <= B = reach sqrt(n / lambda) and L = A B + `cut`, with n a public bound on the number of
    rows.

    *The solver* returns w with ||grad F(w)|| <= eta, hence within eta / lambda of w*. For both
    tables together, this adds 2 eta / lambda. Let u = 2^-53. With n rows, the computed gradient has
    two errors:

    - Its sum: at most n u (BLOCK + n / BLOCK) L, about 10^-6 L for a million rows.
    - Its residuals a phi'w - t. Since ||phi|| = 1, |fl(phi'w) - phi'w| <= p u ||w|| in any order of
      the sum (Higham 2002, Eq. 3.5). As a rule it is about sqrt(p) u ||w||. Also ||w|| <= n
      L / lambda, because lambda w* is minus a sum of n gradients, each no longer than L. The factor
      a, the difference, and the clipping add at most 2 u (A ||w|| + L). Over all rows, this error
      is at most 2 (p + 4) A u n^2 L / lambda.

    Let T = `SOLVER_TOLERANCE`, and let R L be the error of the residuals plus what the error of the
    sum exceeds T L / 2 by (from 2^26 rows on). A computed gradient below (T / 2 + R) L is
    attainable in floats. Together both errors are at most (R + T / 2) L, so the true gradient is
    then no longer than eta = (T + 2 R) L.

    The method is Algorithm 1 of Taylor and Drori (2023), started at zero. Its number of steps is
    fixed by the public n, A, and lambda (`schedule`). F is lambda-strongly convex and S-smooth with
    S = A n + lambda. By their Theorem 3, after N steps ||w_N - w*||^2 <= ||w*||^2 / (1 + A_N lambda
    / S), for all possible rows. Then ||w*|| <= n L / lambda and ||grad F(w_N)|| <= S ||w_N - w*||
    give half of the T / 2. The gradient's length is checked once, at the end. If the arithmetic
    does not follow IEEE 754, the fit stops and does not release anything. Incomplete rows have a =
    t = 0 and are kept, so that the work does not depend on their number. All divisors are at least
    lambda, and lambda below `RIDGE_FLOOR` is refused.

    *The grid*: weights are rounded to multiples of a unit h (`units`), which changes each table's
    weights by at most sqrt(p) h / 2. Therefore the integers change by at most Delta / h + sqrt(p),
    Delta = (2 L + 2 eta) / lambda. If max_rows = k, k rows are exchanged. They have k gradients in
    each table, so k L replaces L. Multiplying the whole sensitivity by k covers this case.

    *Values at points* Z w change by at most ||Z||_op times the change of w, in l2. (Noise xi on w
    would give noise Z xi at the points. Independent noise of this size is never smaller than Z xi.
    It is equally small if the points are orthogonal in the RKHS, as a single point is. To hide all
    Z u, ||u|| <= Delta, at the cost of Delta / sigma, the noise needs a covariance of at least
    sigma^2 Z Z', which Z xi has.)
    """

    features: Fourier
    curvature: Transform
    target: Transform
    lipschitz: float
    ridge: float
    loss: Literal["huber", "squared"] = "huber"
    cut: float = np.inf
    rows: float = field(kw_only=True)
    points: Matrix | None = field(default=None, kw_only=True)
    query: str = field(init=False)
    units: Vector = field(init=False)
    # R: effect of rounding on the gradient that T / 2 does not cover, in units of L
    rounding: float = field(init=False)
    # S, an upper bound on the gradient's Lipschitz constant for every table
    smooth: float = field(init=False)

    def __post_init__(self) -> None:
        sizes = (self.lipschitz, self.rows, self.curvature.bound)
        if not (RIDGE_FLOOR <= self.ridge <= RIDGE_CEILING and all(0 < v < np.inf for v in sizes)):
            raise CapabilityError(
                f"The ridge of a kernel regression must be between {RIDGE_FLOOR:g} and "
                f"{RIDGE_CEILING:g}."
            )
        a, p = self.curvature.bound, self.features.size
        residuals = (p + 4) * a * self.rows**2 / self.ridge * 2.0**-52
        total = self.rows * 2.0**-53 * (BLOCK + self.rows / BLOCK)
        size = p if self.points is None else len(self.points)
        vars(self).update(
            query=f"kernel weights, m = {p}" if self.points is None else f"effect at {size} points",
            rounding=residuals + max(0.0, total - SOLVER_TOLERANCE / 2),
            smooth=(a * self.rows + self.ridge) * (1 + 2.0**-30),
        )
        unit = self._moved("substitute") / (np.sqrt(size) * (1 << BITS))
        vars(self).update(units=np.full(size, unit))

    def _moved(self, neighbors: Neighbors) -> float:
        rows = 2.0 if neighbors == "substitute" else 1.0
        eta = SOLVER_TOLERANCE + 2 * self.rounding
        moved = (rows + 2 * eta) * self.lipschitz / self.ridge
        return moved if self.points is None else float(np.linalg.norm(self.points, 2)) * moved

    def sensitivity(self, neighbors: Neighbors) -> float:
        return self._moved(neighbors) / float(self.units[0]) + float(np.sqrt(len(self.units)))

    @property
    def steps(self) -> tuple[GradientStep, ...]:
        """The solver's steps, the same on every table."""
        shorter = 4 * self.rows * self.smooth / (self.ridge * SOLVER_TOLERANCE)
        return schedule(self.ridge / self.smooth, shorter)

    def solve(self, batches: Iterable[Batch]) -> Integers:
        """Weights on the grid, shape (p,), or values at the points, shape (d,)."""
        a, t, points = [], [], []
        for batch in batches:
            counted = batch.complete
            a.append(
                counted * np.clip(np.nan_to_num(self.curvature(batch)), 0, self.curvature.bound)
            )
            t.append(counted * np.clip(np.nan_to_num(self.target(batch)), -self.cut, self.cut))
            scaled = batch.rows.scaled(self.features.design)[:, self.features.columns]
            points.append(np.nan_to_num(scaled))  # Finite for every row.
        weights = np.zeros(self.features.size)
        if a:  # The table has rows.
            problem = KernelProblem(
                features=self.features,
                points=np.concatenate(points),
                a=np.concatenate(a),
                t=np.concatenate(t),
                corner=self.lipschitz if self.loss == "huber" else np.inf,
                ridge=self.ridge,
            )
            weights = problem.minimum(self.smooth, self.steps)
            length = float(np.linalg.norm(problem.gradient(weights)))
            if not length <= (0.5 * SOLVER_TOLERANCE + self.rounding) * self.lipschitz:
                raise ArithmeticError(
                    "The gradient exceeds its bound: floating-point arithmetic is not IEEE."
                )
        values = weights if self.points is None else self.points @ weights
        return np.rint(values / float(self.units[0])).astype(np.int64)


def proven_lipschitz(bound: float, reach: float, cut: float, rows: float, ridge: float) -> float:
    """L of the squared loss: A reach sqrt(n / lambda) + cut (see `KernelRegression`)."""
    return float(bound * reach * np.sqrt(rows / ridge) + cut)


GradientStep = tuple[float, float]
"""beta and delta of one step of the solver."""


def schedule(share: float, shorter: float) -> tuple[GradientStep, ...]:
    """Steps that bring w closer to the minimum than zero is, by the factor `shorter`.

    Taylor and Drori (2023), "An optimal gradient method for smooth strongly convex minimization",
    Algorithm 1, with q = `share` = lambda / S. By their Theorem 3, 1 + q A_N >= shorter^2 is
    sufficient. The schedule has about sqrt(S / lambda) log(shorter sqrt(S / lambda)) steps.
    """
    q, a = share, 0.0
    steps: list[GradientStep] = []
    while 1 + q * a < shorter**2:
        grown = ((1 + q) * a + 2 * (1 + math.sqrt((1 + a) * (1 + q * a)))) / (1 - q) ** 2
        length = 0.5 * ((1 - q) ** 2 * grown - (1 + q) * a) / (1 + q + q * a)
        steps.append((a / ((1 - q) * grown), length))
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

    def gradient(self, w: Vector) -> Vector:
        total = self.ridge * w
        keep = self.points.shape[0] * self.features.size <= KEEP
        for k, start in enumerate(range(0, self.points.shape[0], BLOCK)):
            at = slice(start, start + BLOCK)
            phi = self._phi[k] if k < len(self._phi) else self.features.at(self.points[at])
            if keep and k == len(self._phi):
                self._phi.append(phi)
            pull = phi @ w
            pull *= self.a[at]
            pull -= self.t[at]
            np.minimum(pull, self.corner, out=pull)
            np.maximum(pull, -self.corner, out=pull)
            total += pull @ phi
        return total

    def minimum(self, smooth: float, steps: Sequence[GradientStep]) -> Vector:
        """Result of `steps` from zero; `smooth` is S. Their number does not depend on any row."""
        x = z = np.zeros(self.features.size)
        q = self.ridge / smooth
        for mix, length in steps:
            y = z + mix * (x - z)
            slope = self.gradient(y) / smooth
            x = y - slope
            z = z + length * (q * (y - z) - slope)
        return np.asarray(z)
