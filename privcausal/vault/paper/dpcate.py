"""DP-CATE as its paper prints it (Schroeder et al. 2025): effects at points, with its own noise."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.linalg import solve_triangular

from privcausal.accounting.charge import PICO
from privcausal.features.design import Design
from privcausal.features.expansions import Fourier
from privcausal.features.functions import Nuisance
from privcausal.features.rows import Rows
from privcausal.request.plan import Stage
from privcausal.typing import Matrix, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.estimators import Estimators
from privcausal.vault.exit import ONE_FACTOR, ClaimedNoise
from privcausal.vault.guard import Opaque
from privcausal.vault.paper.private import LEAST, Supremum, noise_scale, nuisances_on, stacked
from privcausal.vault.paper.second_stage import FittedStage, Ridge, SecondStage
from privcausal.vault.transforms import Outcome

Weight = Literal["overlap", "one", "treated", "control", "entropy"]
Curve = Callable[[Vector], Vector]

WEIGHTS: dict[str, tuple[Curve, Curve]] = {
    "overlap": (lambda p: p * (1 - p), lambda p: 1 - 2 * p),
    "one": (np.ones_like, np.zeros_like),
    "treated": (lambda p: p, np.ones_like),
    "control": (lambda p: 1 - p, lambda p: -np.ones_like(p)),
    "entropy": (lambda p: -p * np.log(p) - (1 - p) * np.log(1 - p), lambda p: np.log((1 - p) / p)),
}
"""lambda(pi) and its slope. All are concave and not negative on [0, 1]: so rho(a, pi), the height
of the tangent at a, is not negative, and largest where pi is furthest from a."""


@dataclass(frozen=True, eq=False)
class Scores:
    """rho and rho phi for a weight lambda(pi) (the paper's Eqs. 4 and 5).

        rho = (a - e) lambda'(e) + lambda(e)
        rho phi = lambda(e) (a - e) / (e (1 - e)) (y - mu_a) + rho (mu_1 - mu_0)

    "overlap" is the R-learner, with rho = (a - e)^2, and "one" the DR-learner (Eq. 21).
    """

    nuisance: Nuisance
    weight: Weight

    def __call__(self, rows: Rows, t: Vector, y: Vector) -> tuple[Vector, Vector]:
        return self.from_values(self.at(rows), t, y)

    def at(self, rows: Rows) -> tuple[Vector, Vector, Vector]:
        """e, mu_0 and mu_1 of the rows."""
        n = self.nuisance
        return n.e(rows), n.mu0(rows), n.mu1(rows)

    def from_values(
        self, at: tuple[Vector, Vector, Vector], t: Vector, y: Vector
    ) -> tuple[Vector, Vector]:
        e, mu0, mu1 = at
        value, residual = WEIGHTS[self.weight][0](e), y - np.where(t == 1, mu1, mu0)
        rho = tangent(self.weight, e, t)
        return rho, value * (t - e) / (e * (1 - e)) * residual + rho * (mu1 - mu0)


def tangent(weight: Weight, e: Vector, t: Vector) -> Vector:
    """rho(t, e): not negative, whatever rounding does."""
    value, slope = WEIGHTS[weight]
    return np.asarray(np.maximum((t - e) * slope(e) + value(e), 0.0))


@dataclass(frozen=True, eq=False)
class _Published:
    """What both releases share: nuisances, fitted on one part of the rows; g on the other.

    With `whole` the nuisances were given, and g is fitted on all rows.
    """

    nuisances: Estimators | Nuisance
    design: Design
    outcome: Outcome
    clip: float
    weight: Weight
    whole: bool

    name = "discrete Gaussian"

    def _scores(self, batches: Sequence[Batch]) -> Scores:
        nuisance = nuisances_on(
            self.nuisances, self.design, self.outcome, self.clip, *stacked(batches)
        )
        return Scores(nuisance, self.weight)

    def _fitted(
        self, first: Sequence[Batch], second: Sequence[Batch], stage: SecondStage, queries: Rows
    ) -> tuple[Scores, FittedStage, int]:
        scores = self._scores(first)
        rows, t, y = stacked([*first, *second] if self.whole else second)
        return scores, stage.fit(rows, *scores(rows, t, y), queries), max(len(t), LEAST)


@dataclass(frozen=True, eq=False)
class PublishedAnswers(_Published):
    """g(queries) + gamma 5 sqrt(2 ln(n) ln(2/delta)) / (eps n) U, U ~ N(0, I_d) (Theorem 1).

    gamma = sup over z of ||h(x)||_2 |rho (phi(z) - g(x))| (Eqs. 11 and 22): exact in treatment and
    outcome, where the residual is linear, by `Supremum` in the covariates.

    Attributes
    ----------
    starts : Matrix
        Public starting points of the search for gamma.

    Privacy
    -------
    None is proven. The theorem takes the influence of one row on g from the influence function at
    the sample, and gamma as a smooth bound of the sensitivity; neither is shown for a fitted second
    stage, and gamma is found by a local search. Nuisances that are not private move with a row of
    their own part without any noise. Noise scales depend on the rows, so none leaves this function.
    """

    second: SecondStage
    queries: Rows
    starts: Matrix

    query = "effect at the queries"

    def answer(
        self,
        first: Sequence[Batch],
        second: Sequence[Batch],
        stage: Stage,
        add_noise: ClaimedNoise,
    ) -> Vector:
        """Noisy effects at the queries, shape (d,)."""
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            # an estimator warns of what it saw in the rows
            warnings.simplefilter("ignore")
            scores, fitted, size = self._fitted(first, second, self.second, self.queries)
            gamma = Supremum(self.design, self.starts).of(
                lambda rows: self._reach(scores, fitted, rows)
            )
            exact = fitted.g(self.queries)
        unit = 2 * self.outcome.bound * 2.0**-ONE_FACTOR
        limit = 2 * self.outcome.bound / self.clip
        sd = max(gamma * noise_scale(size, stage), unit)
        return add_noise("answers", np.clip(np.nan_to_num(exact), -limit, limit), unit, sd)

    def _reach(self, scores: Scores, fitted: FittedStage, rows: Rows) -> Vector:
        """max over t and y of ||h(x)|| |rho (phi - g)| at given covariates, shape (n,)."""
        g, size, at = fitted.g(rows), np.ones(len(rows)), scores.at(rows)
        ends = []
        for t in (0.0, 1.0):
            for y in (self.outcome.lo, self.outcome.hi):
                rho, target = scores.from_values(at, t * size, y * size)
                ends.append(np.abs(target - rho * g))
        return np.asarray(fitted.influence(rows) * np.max(ends, axis=0))


@dataclass(frozen=True, eq=False)
class PublishedProcess(_Published):
    """g + r U with U a Gaussian process of covariance K (Theorem 3; Algorithms 1 and 2).

    K = (sqrt(2 pi) h)^-q k, k the unit Gaussian kernel, g minimises (1/n) sum rho (phi - g)^2 +
    ridge ||g||^2 over its RKHS, and r = sup rho 4 L sqrt(2 ln(2/delta)) / ((sqrt(2 pi) h)^q ridge
    n eps) as printed (Eq. 19), L the largest |y| of the declared outcome (supplement G.3).

    Privacy
    -------
    None is proven, and it fails: the exponent of sqrt(2 pi) h should be q/2 (Hall, Rinaldo and
    Wasserman 2013), so the noise is too small by (sqrt(2 pi) h)^(q/2) wherever that is above one;
    and the squared loss has no Lipschitz constant on an unbounded g.
    """

    features: Fourier
    ridge: float

    query = "Gaussian process"

    @property
    def density(self) -> float:
        """K(x, x)."""
        q = self.features.frequencies.shape[1]
        return float((math.sqrt(2 * math.pi) * self.features.bandwidth) ** -q)

    def scale(self, size: int, stage: Stage) -> float:
        """r of Eq. 19."""
        epsilon, delta = stage.epsilon / PICO, stage.delta / PICO
        ends = np.array([self.clip, 1 - self.clip])
        largest = float(tangent(self.weight, ends, np.array([1.0, 0.0])).max())
        lipschitz = max(abs(self.outcome.lo), abs(self.outcome.hi))
        spread = 4 * lipschitz * math.sqrt(2 * math.log(2 / delta))
        return largest * spread * self.density / (self.ridge * size * epsilon)

    def process(
        self, first: Sequence[Batch], second: Sequence[Batch], stage: Stage, add_noise: ClaimedNoise
    ) -> Process:
        """g and its noise, to be asked point by point. It is secret."""
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            model = Ridge(self.features, self.ridge / self.density)
            none = Rows({}, 0, None, {self.design: np.zeros((0, len(self.design)))})
            _, fitted, size = self._fitted(first, second, model, none)
        return Process(fitted, self.features, self.density, self.scale(size, stage), add_noise)


@dataclass(eq=False, repr=False)
class Process(Opaque):
    """g(x) + r U(x), with U drawn point by point given what was drawn before (Algorithm 2).

    As printed the algorithm conditions on past private *answers* and so loses g after the first
    query. Here it conditions on past *noise*, which must stay secret, as g must: an answer less its
    noise is g(x). The same point asked again gets the same answer.
    """

    fitted: FittedStage
    features: Fourier
    density: float
    scale: float
    add_noise: ClaimedNoise
    _points: list[Vector] = field(default_factory=list)
    _root: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    _standard: list[float] = field(default_factory=list)
    _known: dict[bytes, float] = field(default_factory=dict)

    def ask(self, rows: Rows) -> Vector:
        """Noisy effects at points, one after another, shape (n,)."""
        z = np.ascontiguousarray(rows.scaled(self.features.design)[:, self.features.columns])
        exact = self.fitted.g(rows)
        return np.array(
            [g + self.scale * self._noise(point) for point, g in zip(z, exact, strict=True)]
        )

    def _noise(self, point: Vector) -> float:
        """U at a point given U at the points before.

        With C = R R' at those points and U = R u there, it is w'u + sd u' for R w = K(., point):
        the law given U, since C^-1 U = R'^-1 u.
        """
        key = point.tobytes()
        if key not in self._known:
            row = self._row(point)
            unit = 2.0**-ONE_FACTOR
            standard = float(self.add_noise("process", np.zeros(1), unit, 1.0)[0])
            self._known[key] = float(row[:-1] @ self._standard) + row[-1] * standard
            self._points.append(point)
            self._standard.append(standard)
            self._grow(row)
        return self._known[key]

    def _row(self, point: Vector) -> Vector:
        """The next row of R, shape (points so far + 1,)."""
        if not self._points:
            return np.array([math.sqrt(self.density)])
        v = self.density * self.features.kernel(np.array(self._points), point)
        known = solve_triangular(self._root[: len(v), : len(v)], v, lower=True)
        # points may lie close together
        left = max(self.density - float(known @ known), 1e-9 * self.density)
        return np.append(known, math.sqrt(left))

    def _grow(self, row: Vector) -> None:
        """Keep the next row of R, in room that is doubled where it is full."""
        k = len(row)
        if k > len(self._root):
            more = k + len(self._root)
            self._root = np.pad(self._root, (0, more - len(self._root)))
        self._root[k - 1, :k] = row
