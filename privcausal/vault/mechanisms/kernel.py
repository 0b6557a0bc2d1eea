"""Regularised regression on a public basis, solved on the rows; its weights leave once, noisy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from privcausal.errors import CapabilityError
from privcausal.spec.features import Rows
from privcausal.spec.fourier import Fourier
from privcausal.typing import Integers, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.mechanisms.base import Solution
from privcausal.vault.sealed import Sealed
from privcausal.vault.transforms.scores import Transform

TOLERANCE = 2.0**-10
"""eta / L: the solver ends at a gradient this small; it costs as much of the sensitivity."""

BITS = 20
"""Grid steps of a weight, against the sensitivity over sqrt(p)."""

NEWTON = 500
"""Newton steps before the slow and certain method takes over; a dozen are the rule."""

STEADY = 16
"""Newton steps that are taken in any case, so that their number does not tell of the rows."""

HALVINGS = 32
"""Of the bends along a ray, two a row; enough for 2^30 rows, and as many for few."""

FLOOR, CEILING = 1e-6, 1e18
"""Ridges between which weights, their grid and the solver stay well inside of floats."""

BLOCK = 1 << 13
"""Rows a block: the order of sums is fixed, whatever the batches are."""

KEEP = 50_000_000
"""Basis values that are kept between passes (400 MB); beyond, they are computed again."""


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
    ||w'* - w*|| <= ||grad F'(w*)|| / lambda <= 2 L / lambda; for a row added or removed, or for one
    that is incomplete in one table (it adds nothing to F), L / lambda. (Lemma 1 of the paper, with
    the right power of K(x, x), which is 1 here.)

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

    It ends where the computed gradient is below (T / 2 + R) L, T = `TOLERANCE`, so it is not asked
    for what floats may not reach; the true one is then below eta = (T + 2 R) L, the other T / 2
    paying for the sum. Newton steps are exact along their ray, where F' is piecewise linear; should
    `NEWTON` of them not get there, Nesterov's accelerated gradient starts from zero, for as many
    steps as its rate needs in any case. Nothing is divided by less than lambda, which is refused
    below `FLOOR`, so no table makes a step fail.

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
        if not (FLOOR <= self.ridge <= CEILING and all(0 < v < np.inf for v in sizes)):
            raise CapabilityError(
                f"the ridge of a kernel regression must lie between {FLOOR:g} and {CEILING:g}"
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
        eta = TOLERANCE + 2 * self._rounding
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

    def _weights(self, batches: Iterable[Batch]) -> Vector:
        a, t, points = [], [], []
        for batch in batches:
            counted = batch.complete
            if counted.any():
                a.append(np.clip(_finite(self.curvature(batch)), 0, self.curvature.bound)[counted])
                t.append(np.clip(_finite(self.target(batch)), -self.cut, self.cut)[counted])
                points.append(_points(batch.rows, self.features)[counted])
        p = self.features.size
        if not a:
            return np.zeros(p)
        corner = self.lipschitz if self.loss == "huber" else np.inf
        problem = Problem(
            self.features, np.concatenate(points), np.concatenate(a), np.concatenate(t), corner,
            self.ridge,
        )  # fmt: skip
        tolerance = (0.5 * TOLERANCE + self._rounding) * self.lipschitz
        return problem.minimum(tolerance, self.curvature.bound)


@dataclass(frozen=True, eq=False)
class KernelAnswers(KernelRegression):
    """g at d public points, with independent noise.

    Attributes
    ----------
    points : Matrix
        phi of the points, shape (d, p).

    Privacy
    -------
    Answers Z w move by at most ||Z||_op as far in l2 as w does. Independent noise of that size is
    never smaller than the noise Z xi that noise on w leaves at the points: a Gaussian law of
    covariance S hides all Z u with ||u|| <= Delta at the price of Delta / sigma only if S >=
    sigma^2 Z Z' (as matrices), and Z xi is that law with equality. It is as small where the points
    are orthogonal in the RKHS, as one point is; then nothing but the answers is released.
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


def _finite(values: Vector) -> Vector:
    return np.nan_to_num(values)


def _points(rows: Rows, features: Fourier) -> Matrix:
    """Scaled columns of the basis, shape (n, q); finite for every row."""
    return np.nan_to_num(rows.scaled(features.design)[:, features.columns])


@dataclass(eq=False, repr=False)
class Problem(Sealed):
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
        total = np.zeros(len(w))
        for phi, a, t in self._blocks():
            total += phi.T @ np.clip(a * (phi @ w) - t, -self.corner, self.corner)
        return total + self.ridge * w

    def hessian(self, w: Vector) -> Matrix:
        total = self.ridge * np.eye(len(w))
        for phi, a, t in self._blocks():
            inside = np.abs(a * (phi @ w) - t) <= self.corner
            total += phi.T @ (phi * (a * inside)[:, None])
        return total

    def minimum(self, tolerance: float, bound: float) -> Vector:
        """A point where the gradient is at most `tolerance` long: the first that is met."""
        w, found = np.zeros(self.features.size), None
        for step in range(1, NEWTON + 1):
            slope = self.gradient(w)
            if found is None and np.linalg.norm(slope) <= tolerance:
                found = w
            if found is not None and step >= STEADY:
                return found
            w = self._step(w, slope)
        return self._certain(tolerance, bound) if found is None else found

    def _step(self, w: Vector, slope: Vector) -> Vector:
        """One Newton step, as long as is best along its ray."""
        hessian = self.hessian(w)
        # the floats of a large sum may have a negative direction as small as this
        jitter = len(w) * 2.0**-52 * float(np.trace(hessian))
        direction = np.asarray(-np.linalg.solve(hessian + jitter * np.eye(len(w)), slope), float)
        return np.asarray(w + self._length(w, direction) * direction)

    def _length(self, w: Vector, direction: Vector) -> float:
        """The minimum of F along a ray: F' is piecewise linear in the length, and rises."""
        at = [(a * (phi @ w) - t, phi @ direction, a) for phi, a, t in self._blocks()]
        s, along, a = (np.concatenate(parts) for parts in zip(*at, strict=True))
        speed = a * along
        start, rise = self.ridge * float(w @ direction), self.ridge * float(direction @ direction)

        def slope(length: float) -> float:
            pull = np.clip(s + length * speed, -self.corner, self.corner)
            return float(pull @ along) + start + length * rise

        with np.errstate(divide="ignore", invalid="ignore"):
            bends = np.concatenate([(c - s) / speed for c in (-self.corner, self.corner)])
        bends = np.sort(bends[np.isfinite(bends) & (bends > 0)])
        # the last bend before the minimum, by halving; beyond it F' is one straight line
        below, above = 0, len(bends)
        for _ in range(HALVINGS):
            middle = min((below + above) // 2, len(bends) - 1)
            falls = slope(float(bends[middle]) if len(bends) else 0.0) < 0
            if below < above:
                below, above = (middle + 1, above) if falls else (below, middle)
        first = float(bends[below - 1]) if below else 0.0
        inside = np.abs(s + _beyond(first, bends, below) * speed) < self.corner
        curve = rise + float(along[inside] @ speed[inside])
        # at the minimum itself there is no direction to go
        return max(first - slope(first) / curve, first) if curve > 0 else 0.0

    def _certain(self, tolerance: float, bound: float) -> Vector:
        """Nesterov's method from zero: after `steps` the gradient is short on every table.

        With S = A n + lambda, kappa = S / lambda and ||w*|| <= B = n max |grad f| / lambda:
        F(w_k) - F* <= (1 - 1/sqrt(kappa))^k S B^2 whatever the rows are (Nesterov 2004, Thm 2.2.3),
        and ||grad F||^2 <= 2 S (F - F*).
        """
        smooth = bound * self.points.shape[0] + self.ridge
        root = np.sqrt(smooth / self.ridge)
        radius = self.points.shape[0] * min(self.corner, float(np.abs(self.t).max())) / self.ridge
        steps = int(np.ceil(2 * root * np.log(max(2.0, 2 * smooth * radius / tolerance))))
        w = ahead = np.zeros(self.features.size)
        for _ in range(steps):
            slope = self.gradient(ahead)
            new = ahead - slope / smooth
            ahead = new + (root - 1) / (root + 1) * (new - w)
            w = new
        return np.asarray(w)


def _beyond(first: float, bends: Vector, at: int) -> float:
    """A length inside the straight piece that starts at `first`."""
    return 0.5 * (first + float(bends[at])) if at < len(bends) else 2 * first + 1.0
