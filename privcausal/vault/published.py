"""Mechanisms as printed in their papers; their privacy claims are not proven here."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist
from scipy.special import expit

from privcausal.accounting import TradeOff
from privcausal.accounting.price import PICO
from privcausal.errors import CapabilityError
from privcausal.features.design import Design, Rows
from privcausal.features.functions import Fourier, NuisanceTriple, Polynomials
from privcausal.request import schema
from privcausal.request.partition import Partition
from privcausal.request.request import Stage
from privcausal.typing import Integers, Matrix, Neighbors, Vector
from privcausal.vault import estimators, noise
from privcausal.vault.batch import Batch
from privcausal.vault.exit import ONE_FACTOR, ClaimedNoise, Mechanism, Named
from privcausal.vault.guard import Opaque
from privcausal.vault.queries.cells import CELL_UNIT
from privcausal.vault.transforms import Aipw, Outcome

# -- PrivATE (Schroeder et al. 2025): an estimate and its squared error ------------------------

FEWEST_ROWS = 3
"""Minimum number of rows in the formulas: at one row their noise would be zero."""


@dataclass(frozen=True, eq=False)
class PublishedAte:
    """tau_hat with the noise of Theorem 4.3, and V/n of Theorem 4.6 with the noise of Theorem 4.5.

    tau_hat is the mean of the AIPW score Gamma over all complete rows. The nuisance models are
    fitted on the same rows, without cross-fitting: the paper uses "the complete data" (its section
    4.2). sigma_hat^2 is the mean of (Gamma - tau_hat)^2 (its Eq. 8). With U standard normal and
    K(eps, delta) = 5 sqrt(2 ln(n) ln(2/delta)) / (eps n),

        tau_DP     = tau_hat + gamma K(eps_1, delta_1) U                                  (Eq. 7)
        sigma_DP^2 = max(0, sigma_hat^2 + gamma_sigma K(eps_2, delta_2) U')              (Eq. 11)
        V          = sigma_DP^2 + gamma^2 50 ln(n) ln(2/delta_1) / (n eps_1^2)           (Eq. 16)

    gamma = sup |Gamma(z) - tau_hat| over the declared domain. It is exact in treatment and outcome,
    because the score is linear in them. In the covariates it is found by `Supremum`.
    gamma_sigma = sup |(Gamma(z) - tau_hat)^2 - sigma_hat^2| is max(gamma^2 - sigma_hat^2,
    sigma_hat^2), because Gamma(z) = tau_hat for some z.

    Attributes
    ----------
    nuisances : Estimators or Nuisance
        Estimators to be fitted on the rows, or released functions.
    starts : Matrix
        Public starting points of the search for gamma.

    Privacy
    -------
    Privacy is not proven. Suppose the nuisances are *fixed*, gamma is exact and n is large enough.
    Then the noise is a smooth sensitivity bound (Nissim et al. 2007), and tau_DP and sigma_DP^2 are
    private. But fitted nuisances change with a row, and so does n, which counts complete rows. The
    sensitivity is then no longer gamma / n: `tests/estimators/test_published.py` has two
    neighboring tables for which the noise is far too small. V contains gamma, a function of the
    rows, without noise of its own. This function therefore does not return gamma or a noise scale.
    """

    nuisances: estimators.Estimators | NuisanceTriple
    design: Design
    outcome: Outcome
    clip: float
    starts: Matrix

    name = "discrete Gaussian"

    def answer(
        self, batches: Sequence[Batch], effect: Stage, variance: Stage, add_noise: ClaimedNoise
    ) -> tuple[float, float]:
        """(tau_DP, V/n), each rounded to a fine public grid."""
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            # Suppress warnings: an estimator's warning may describe values of the rows.
            nuisance = estimators.learn_nuisances(
                self.nuisances,
                *stacked(batches),
                design=self.design,
                clip=self.clip,
                bounds=(self.outcome.lo, self.outcome.hi),
            )
            score = Aipw(nuisance, self.outcome, self.clip)
            values = np.concatenate([score(batch)[batch.complete] for batch in batches])
            size = max(len(values), FEWEST_ROWS)
            tau = float(values.sum()) / size
            gamma = Supremum(self.design, self.starts).of(
                lambda rows: self._reach(nuisance, rows, tau)
            )
        square = float(((values - tau) ** 2).sum()) / size
        scale = gamma * noise_scale(size, effect)
        grid = 2.0**-ONE_FACTOR
        noisy = add_noise("estimate", np.array([tau]), score.bound * grid, scale)
        sd = max(gamma**2 - square, square) * noise_scale(size, variance)
        unit = (2 * score.bound) ** 2 * grid
        noisy_square = add_noise("variance", np.array([square]), unit, sd)
        return float(noisy[0]), max(0.0, float(noisy_square[0])) / size + scale**2

    def _reach(self, nuisance: NuisanceTriple, rows: Rows, tau: float) -> Vector:
        """max over t and y of |Gamma(t, x, y) - tau| at given covariates, shape (n,)."""
        e, mu0, mu1 = nuisance.values(rows)
        ends = [
            np.abs(mu1 - mu0 - tau + sign * (y - mu) / p)
            for y in (self.outcome.lo, self.outcome.hi)
            for sign, mu, p in ((1.0, mu1, e), (-1.0, mu0, 1 - e))
        ]
        return np.asarray(np.max(ends, axis=0))


def stacked(batches: Sequence[Batch]) -> tuple[Rows, Vector, Vector]:
    """The complete rows as one block, with their treatments and outcomes."""
    keep = [batch.complete for batch in batches]

    def joined(parts: Sequence[Any]) -> Any:
        return np.concatenate([part[k] for part, k in zip(parts, keep, strict=True)])

    names = batches[0].rows.frame
    frame = {name: joined([b.rows.frame[name] for b in batches]) for name in names}
    t, y = joined([b.t for b in batches]), joined([b.y for b in batches])
    return Rows(frame, len(t)), t, y


def noise_scale(size: int, stage: Stage) -> float:
    """5 sqrt(2 ln(n) ln(2/delta)) / (eps n): noise per unit of gross error sensitivity (Eq. 13)."""
    epsilon, delta = stage.epsilon / PICO, stage.delta / PICO
    return float(5 * np.sqrt(2 * np.log(size) * np.log(2 / delta)) / (epsilon * size))


HALF_DIFFERENCE = 1.0 / 256.0
"""Half the width of a central difference, as a share of a variable's range. It is one of the fine
bins of additive bases, so that their steps have a slope too."""

CLIMBS = 10
"""Number of starts to improve, as in the paper."""

LEVEL_ROUNDS = 5
"""Maximum number of rounds that improve first numbers, then levels."""


@dataclass(frozen=True, eq=False)
class Supremum:
    """sup of a function over the declared domain of a design's variables.

    `starts` are public points of the unit cube, shape (starts, variables). The `CLIMBS` starts with
    the largest values are improved by L-BFGS-B with box constraints (Schroeder et al. 2025,
    supplement C.2). Values of two-valued variables, and levels including an undeclared label, are
    tried one by one. A local search finds at most the supremum.
    """

    design: Design
    starts: Matrix
    # The possible values of each variable inside the vault; None for an interval
    values: tuple[Vector | Integers | None, ...] = field(init=False)
    # Each variable's own design columns, at its values or at both ends of its interval. None if a
    # column is a function of variables, which only formulaic can evaluate. formulaic is slow, so it
    # is called only once if columns are linear.
    tables: list[tuple[Integers, Matrix]] | None = field(init=False)

    def __post_init__(self) -> None:
        values: list[Vector | Integers | None] = []
        for name in self.design.variables:
            domain = self.design.schema[name]
            if isinstance(domain, schema.Interval):
                values.append(None)
            elif isinstance(domain, schema.Binary):
                values.append(np.array([0.0, 1.0]))
            else:  # Codes of levels; -1 is an undeclared level.
                values.append(np.arange(0 if domain.other else -1, len(domain.labels)))
        columns = self.design.columns
        vars(self).update(values=tuple(values), tables=None)
        if any(column.variable is None for column in columns):
            return
        tables = []
        for j, name in enumerate(self.design.variables):
            at = np.array([i for i, c in enumerate(columns) if c.variable == name], np.int64)
            discrete = values[j]
            probe = np.zeros((2 if discrete is None else len(discrete), len(values)))
            probe[:, j] = np.arange(len(probe))
            tables.append((at, self.design.scaled(self._frame(probe), len(probe))[:, at]))
        vars(self).update(tables=tables)

    def of(self, value: Callable[[Rows], Vector]) -> float:
        """The largest `value` found; `value` maps n points to shape (n,)."""
        points = self.starts.copy()
        for j, values in enumerate(self.values):
            if values is not None:  # The coordinate of a discrete variable is its value's index.
                indices = (self.starts[:, j] * len(values)).astype(np.int64)
                points[:, j] = np.minimum(indices, len(values) - 1)
        highest = np.argsort(-value(self._rows(points)), kind="stable")[:CLIMBS]
        return max(self._climb(value, points[k]) for k in highest)

    def _climb(self, value: Callable[[Rows], Vector], point: Vector) -> float:
        """The largest `value` found from a starting point."""
        from scipy.optimize import minimize

        smooth = np.array([j for j, v in enumerate(self.values) if v is None], np.int64)
        k = len(smooth)
        above, below = 1 + np.arange(k), 1 + k + np.arange(k)

        def slope(u: Vector, point: Vector) -> tuple[float, Vector]:
            # The point at `u`, then a step up and a step down in each smooth variable.
            points = np.tile(point, (2 * k + 1, 1))
            points[:, smooth] = u
            points[above, smooth] = np.minimum(u + HALF_DIFFERENCE, 1.0)
            points[below, smooth] = np.maximum(u - HALF_DIFFERENCE, 0.0)
            values = value(self._rows(points))
            width = points[above, smooth] - points[below, smooth]
            return -float(values[0]), -(values[above] - values[below]) / width

        best = float(value(self._rows(point[None]))[0])
        for _ in range(LEVEL_ROUNDS):
            # L-BFGS-B in the variables that range over intervals
            if k:
                top = minimize(
                    slope, point[smooth], (point,), "L-BFGS-B", jac=True, bounds=[(0, 1)] * k
                )
                if -top.fun > best:
                    point, best = point.copy(), -float(top.fun)
                    point[smooth] = top.x
            # Every point that differs in the value of one discrete variable.
            others = []
            for j, values in enumerate(self.values):
                for index in range(0 if values is None else len(values)):
                    if index != point[j]:
                        other = point.copy()
                        other[j] = index
                        others.append(other)
            if not others:
                break
            heights = value(self._rows(np.array(others)))
            if not heights.max() > best:
                break
            point, best = others[heights.argmax()], float(heights.max())
        return best

    def _rows(self, points: Matrix) -> Rows:
        """Points as rows, with their design columns if these are plain."""
        frame = self._frame(points)
        if self.tables is None:
            return Rows(frame, len(points))
        scaled = np.empty((len(points), len(self.design)))
        for j, (at, table) in enumerate(self.tables):
            u = points[:, j]
            if self.values[j] is None:
                scaled[:, at] = table[0] + u[:, None] * (table[1] - table[0])
            else:
                scaled[:, at] = table[u.astype(np.int64)]
        return Rows(frame, len(points)).with_scaled(self.design, scaled)

    def _frame(self, points: Matrix) -> dict[str, Vector | Integers]:
        """Points in natural units and level codes."""
        frame: dict[str, Vector | Integers] = {}
        for j, (name, values) in enumerate(zip(self.design.variables, self.values, strict=True)):
            domain = self.design.schema[name]
            if values is not None:
                frame[name] = values[points[:, j].astype(np.int64)]
            else:
                assert isinstance(domain, schema.Interval)
                frame[name] = domain.lo + domain.width * points[:, j]
        return frame


# -- DP-CATE (Schroeder et al. 2025): effects at points, with its noise ------------------------

Weight = Literal["overlap", "one", "treated", "control", "entropy"]
RealFunction = Callable[[Vector], Vector]

WEIGHT_CURVES: dict[str, tuple[RealFunction, RealFunction]] = {
    "overlap": (lambda p: p * (1 - p), lambda p: 1 - 2 * p),
    "one": (np.ones_like, np.zeros_like),
    "treated": (lambda p: p, np.ones_like),
    "control": (lambda p: 1 - p, lambda p: -np.ones_like(p)),
    "entropy": (lambda p: -p * np.log(p) - (1 - p) * np.log(1 - p), lambda p: np.log((1 - p) / p)),
}
"""lambda(pi) and its slope. All are concave and not negative on [0, 1]. rho(a, pi) is the height of
the tangent at a. It is therefore not negative, and is largest where pi is furthest from a."""


def second_stage_scores(
    weight: Weight, nuisances: tuple[Vector, Vector, Vector], t: Vector, y: Vector
) -> tuple[Vector, Vector]:
    """rho and rho phi for a weight lambda(pi) (the paper's Eqs. 4 and 5).

        rho = (a - e) lambda'(e) + lambda(e)
        rho phi = lambda(e) (a - e) / (e (1 - e)) (y - mu_a) + rho (mu_1 - mu_0)

    `nuisances` are e, mu_0 and mu_1 of the rows. "overlap" is the R-learner, with
    rho = (a - e)^2, and "one" the DR-learner (Eq. 21).
    """
    e, mu0, mu1 = nuisances
    value, residual = WEIGHT_CURVES[weight][0](e), y - np.where(t == 1, mu1, mu0)
    rho = tangent(weight, e, t)
    return rho, value * (t - e) / (e * (1 - e)) * residual + rho * (mu1 - mu0)


def tangent(weight: Weight, e: Vector, t: Vector) -> Vector:
    """rho(t, e), kept nonnegative under rounding."""
    value, slope = WEIGHT_CURVES[weight]
    return np.asarray(np.maximum((t - e) * slope(e) + value(e), 0.0))


@dataclass(frozen=True, eq=False)
class _Published:
    """Shared base of both releases: nuisance models from one part of the rows, g from the other.

    If `whole`, the nuisance models are given, and g is fitted on all rows.
    """

    nuisances: estimators.Estimators | NuisanceTriple
    design: Design
    outcome: Outcome
    clip: float
    weight: Weight
    whole: bool

    name = "discrete Gaussian"

    def _fitted(
        self, batches: Sequence[Batch], stage: SecondStage, queries: Rows
    ) -> tuple[NuisanceTriple, FittedStage, int]:
        first, second = ([batch.only(part) for batch in batches] for part in (0, 1))
        nuisance = estimators.learn_nuisances(
            self.nuisances,
            *stacked(first),
            design=self.design,
            clip=self.clip,
            bounds=(self.outcome.lo, self.outcome.hi),
        )
        rows, t, y = stacked([*first, *second] if self.whole else second)
        rho, target = second_stage_scores(self.weight, nuisance.values(rows), t, y)
        return nuisance, stage.fit(rows, rho, target, queries), max(len(t), FEWEST_ROWS)


@dataclass(frozen=True, eq=False)
class PublishedAnswers(_Published):
    """g(queries) + gamma 5 sqrt(2 ln(n) ln(2/delta)) / (eps n) U, U ~ N(0, I_d) (Theorem 1).

    gamma = sup over z of ||h(x)||_2 |rho (phi(z) - g(x))| (Eqs. 11 and 22). It is exact in
    treatment and outcome, because the residual is linear in them. In the covariates it is found by
    `Supremum`.

    Attributes
    ----------
    starts : Matrix
        Public starting points of the search for gamma.

    Privacy
    -------
    Privacy is not proven. The theorem takes the influence of one row on g from the influence
    function at the sample, and takes gamma as a smooth bound of the sensitivity. Neither is shown
    for a fitted second stage, and gamma is found by a local search. Nonprivate nuisance models
    change with a row of their own part, without any noise. Noise scales depend on the rows, so this
    function does not return them.
    """

    second: SecondStage
    queries: Rows
    starts: Matrix

    query = "effect at the queries"

    def answer(self, batches: Sequence[Batch], stage: Stage, add_noise: ClaimedNoise) -> Vector:
        """Noisy effects at the queries, shape (d,)."""
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            # Suppress warnings: an estimator's warning may describe values of the rows.
            nuisance, fitted, size = self._fitted(batches, self.second, self.queries)
            gamma = Supremum(self.design, self.starts).of(
                lambda rows: self._reach(nuisance, fitted, rows)
            )
            exact = fitted.g(self.queries)
        unit = 2 * self.outcome.bound * 2.0**-ONE_FACTOR
        limit = 2 * self.outcome.bound / self.clip
        sd = max(gamma * noise_scale(size, stage), unit)
        return add_noise("answers", np.clip(np.nan_to_num(exact), -limit, limit), unit, sd)

    def _reach(self, nuisance: NuisanceTriple, fitted: FittedStage, rows: Rows) -> Vector:
        """max over t and y of ||h(x)|| |rho (phi - g)| at given covariates, shape (n,)."""
        g, size, values = fitted.g(rows), np.ones(len(rows)), nuisance.values(rows)
        ends = []
        for t in (0.0, 1.0):
            for y in (self.outcome.lo, self.outcome.hi):
                rho, target = second_stage_scores(self.weight, values, t * size, y * size)
                ends.append(np.abs(target - rho * g))
        return np.asarray(fitted.influence(rows) * np.max(ends, axis=0))


@dataclass(frozen=True, eq=False)
class PublishedProcess(_Published):
    """g + r U with U a Gaussian process of covariance K (Theorem 3; Algorithms 1 and 2).

    K = (sqrt(2 pi) h)^-q k, with k the unit Gaussian kernel. g minimizes
    (1/n) sum rho (phi - g)^2 + ridge ||g||^2 over its RKHS. As printed (Eq. 19),
    r = sup rho 4 L sqrt(2 ln(2/delta)) / ((sqrt(2 pi) h)^q ridge n eps), with L the largest |y| of
    the declared outcome (supplement G.3).

    Privacy
    -------
    Privacy is not proven, and it fails. The exponent of sqrt(2 pi) h should be q/2 (Hall, Rinaldo
    and Wasserman 2013). The noise is therefore too small by a factor of (sqrt(2 pi) h)^(q/2)
    wherever this factor is above one. Moreover, the squared loss has no Lipschitz constant on an
    unbounded g.
    """

    features: Fourier
    ridge: float
    queries: Rows | None = None  # Points of a process that is dropped afterwards (Algorithm 1)

    query = "Gaussian process"

    @property
    def density(self) -> float:
        """K(x, x)."""
        q = self.features.frequencies.shape[1]
        return float((math.sqrt(2 * math.pi) * self.features.bandwidth) ** -q)

    def process(self, batches: Sequence[Batch], stage: Stage, add_noise: ClaimedNoise) -> Process:
        """g and its noise, to be queried point by point. The process itself is secret."""
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            model = Ridge(self.features, self.ridge / self.density)
            none = Rows({}, 0).with_scaled(self.design, np.zeros((0, len(self.design))))
            _, fitted, size = self._fitted(batches, model, none)
        # r of Eq. 19
        epsilon, delta = stage.epsilon / PICO, stage.delta / PICO
        ends = np.array([self.clip, 1 - self.clip])
        largest = float(tangent(self.weight, ends, np.array([1.0, 0.0])).max())
        lipschitz = max(abs(self.outcome.lo), abs(self.outcome.hi))
        spread = 4 * lipschitz * math.sqrt(2 * math.log(2 / delta))
        scale = largest * spread * self.density / (self.ridge * size * epsilon)
        return Process(fitted, self.features, self.density, scale, add_noise)

    def answer(self, batches: Sequence[Batch], stage: Stage, add_noise: ClaimedNoise) -> Vector:
        """The process at its declared points."""
        assert self.queries is not None
        return self.process(batches, stage, add_noise).ask(self.queries)


@dataclass(eq=False, repr=False)
class Process(Opaque):
    """g(x) + r U(x), with U drawn point by point given the earlier draws (Algorithm 2).

    As printed, the algorithm conditions on past private *answers*, and therefore loses g after the
    first query. This class conditions on past *noise* instead. The noise must stay secret, and so
    must g, because an answer minus its noise is g(x). Repeating a point repeats its answer
    to the bit: answers are kept, because g may differ in the last bit among other points.
    """

    fitted: FittedStage
    features: Fourier
    density: float
    scale: float
    add_noise: ClaimedNoise
    _points: list[Vector] = field(default_factory=list)
    _root: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    _standard: list[float] = field(default_factory=list)
    _answers: dict[bytes, float] = field(default_factory=dict)

    def ask(self, rows: Rows) -> Vector:
        """Noisy effects at points, one after another, shape (n,).

        Let C = R R' be the covariance at the earlier points, and U = R u there. U at the next point
        is w'u + sd u' for R w = K(., point). This is the conditional distribution given U, since
        C^-1 U = R'^-1 u.
        """
        z = np.ascontiguousarray(rows.scaled(self.features.design)[:, self.features.columns])
        for point, g in zip(z, self.fitted.g(rows), strict=True):
            if point.tobytes() in self._answers:
                continue
            # The next row of R, shape (points so far + 1,).
            if self._points:
                v = self.density * self.features.kernel(np.array(self._points), point)
                w = solve_triangular(self._root[: len(v), : len(v)], v, lower=True)
                # a lower limit, in case points are close together
                left = max(self.density - float(w @ w), 1e-9 * self.density)
                row = np.append(w, math.sqrt(left))
            else:
                row = np.array([math.sqrt(self.density)])
            unit = 2.0**-ONE_FACTOR
            standard = float(self.add_noise("process", np.zeros(1), unit, 1.0)[0])
            noise = float(row[:-1] @ self._standard) + row[-1] * standard
            self._points.append(point)
            self._standard.append(standard)
            k = len(row)
            if k > len(self._root):  # The storage doubles when it is full.
                self._root = np.pad(self._root, (0, k))
            self._root[k - 1, :k] = row
            self._answers[point.tobytes()] = g + self.scale * noise
        return np.array([self._answers[point.tobytes()] for point in z])


# -- second stages; a fitted stage serves one mechanism and is then discarded ------------------


@dataclass(frozen=True, eq=False, repr=False)
class FittedStage(Opaque):
    """g, and the change of g at the queries per unit of residual at x, both of shape (n,).

    The change is ||h(x)||_2 over the queries (Schroeder et al. 2025, Eqs. 13 and 14).
    """

    g: Callable[[Rows], Vector]
    influence: Callable[[Rows], Vector]


@dataclass(frozen=True, eq=False)
class _Columns:
    """The design columns that a stage learns from."""

    design: Design
    columns: Integers

    def scaled(self, rows: Rows) -> Matrix:
        return np.nan_to_num(rows.scaled(self.design)[:, self.columns])


class Affine(_Columns):
    """(1, z) of the named columns."""

    def of(self, rows: Rows) -> Matrix:
        z = self.scaled(rows)
        return np.hstack([np.ones((len(z), 1)), z])


@dataclass(frozen=True, eq=False)
class Ridge:
    """g = f(x)'w minimizing (1/n) sum rho (phi - g)^2 + ridge ||w||^2: Corollaries 1 and 2.

    On the kernel's basis this is kernel ridge regression: h(x) = (L_rho + lambda I)^-1 K(., x) at
    the queries. That equals Z G^-1 f(x), with G = F'RF / n + ridge I and Z = f(queries). On (1, z)
    this is the linear model. Its h(x) = 2 J H^-1 grad g(x), H = 2 G, is the same expression.
    """

    features: Fourier | Affine
    ridge: float

    def fit(self, rows: Rows, rho: Vector, target: Vector, queries: Rows) -> FittedStage:
        of = self.features.of
        f, n = of(rows), max(len(rho), 1)
        gram = (f.T * rho) @ f / n + self.ridge * np.eye(f.shape[1])
        weights: Vector = np.asarray(np.linalg.solve(gram, f.T @ target / n), np.float64)
        moves = np.linalg.solve(gram, of(queries).T).T
        # ||A f|| = ||R f|| for A = QR
        short = len(moves) <= moves.shape[1]
        root: Matrix = np.asarray(moves if short else np.linalg.qr(moves, mode="r"), np.float64)
        return FittedStage(
            lambda rows: np.asarray(of(rows) @ weights),
            lambda rows: np.asarray(np.linalg.norm(of(rows) @ root.T, axis=1)),
        )


@dataclass(frozen=True, eq=False)
class ExactRidge(_Columns):
    """Corollary 2 on the Gaussian kernel itself: g = K(., X) a, (RK + n ridge I) a = rho phi.

    h(x) = (K(., x) - K(., X) (RK + n ridge I)^-1 R K(X, x)) / ridge at the queries. Time grows with
    the third power of the number of rows, memory with its square.
    """

    bandwidth: float
    ridge: float

    def fit(self, rows: Rows, rho: Vector, target: Vector, queries: Rows) -> FittedStage:
        points, at_queries = self.scaled(rows), self.scaled(queries)
        system = rho[:, None] * self.kernel(points, points)
        system[np.diag_indices(len(rho))] += max(len(rho), 1) * self.ridge
        weights: Vector = np.asarray(np.linalg.solve(system, target), np.float64)
        moves = np.linalg.solve(system.T, self.kernel(points, at_queries)).T * rho

        def influence(rows: Rows) -> Vector:
            z = self.scaled(rows)
            at = self.kernel(at_queries, z) - moves @ self.kernel(points, z)
            return np.asarray(np.linalg.norm(at, axis=0) / self.ridge)

        return FittedStage(
            lambda rows: np.asarray(self.kernel(self.scaled(rows), points) @ weights), influence
        )

    def kernel(self, z: Matrix, other: Matrix) -> Matrix:
        return np.asarray(np.exp(-cdist(z, other, "sqeuclidean") / (2 * self.bandwidth**2)))


TANH_WIDTH, TANH_RATE, TANH_BATCH = 32, 0.01, 128
"""Schroeder et al. (2025), supplement G.3."""

# public seed of starting weights and of the order of batches, not of noise
_PUBLIC_SEED = 20_250_601


@dataclass(frozen=True, eq=False)
class TanhNetwork(_Columns):
    """g by Adam on the mean weighted squared error; h by the exact Jacobian and Hessian.

    h(x) = 2 J(queries) (H + damping I)^-1 grad g(x) (Corollary 1). H is the Hessian of the mean
    loss, from exact Hessian-vector products.
    """

    scale: float  # Public size of the effect: the network learns g / scale
    epochs: int  # The paper does not state its value
    # Added to the Hessian after it was made positive, as a share of its largest eigenvalue
    damping: float

    def fit(self, rows: Rows, rho: Vector, target: Vector, queries: Rows) -> FittedStage:
        import torch

        x = torch.from_numpy(self.scaled(rows).copy())
        weight = torch.from_numpy(rho.copy())
        goal = torch.from_numpy(target / self.scale)
        theta = _trained(x, weight, goal, self.epochs)
        hessian = _hessian(theta, x, weight, goal)
        ends = np.linalg.eigvalsh(hessian)
        damping = self.damping * max(float(ends[-1]), 1e-12) - min(float(ends[0]), 0.0)
        jacobian = _gradients(theta, self.scaled(queries))
        damped = hessian + damping * np.eye(len(hessian))
        moves: Matrix = np.asarray(2 * np.linalg.solve(damped, jacobian.T).T, np.float64)

        def g(rows: Rows) -> Vector:
            with torch.no_grad():
                inside = torch.from_numpy(self.scaled(rows).copy())
                return np.asarray(_forward(theta, inside).numpy() * self.scale)

        def influence(rows: Rows) -> Vector:
            slopes = _gradients(theta, self.scaled(rows))
            # The scale of g cancels with the scale of the residual that it is multiplied with.
            return np.asarray(np.linalg.norm(slopes @ moves.T, axis=1))

        return FittedStage(g, influence)


SecondStage: TypeAlias = Ridge | ExactRidge | TanhNetwork
"""Learns g from weights rho and weighted pseudo-outcomes rho phi."""


def _sizes(inputs: int) -> tuple[tuple[int, ...], ...]:
    width = TANH_WIDTH
    return (inputs, width), (width,), (width, width), (width,), (width,), (1,)


def _layers(theta: Any, inputs: int) -> Any:
    """Split flat weights, an array or a tensor, into weights and biases."""
    shapes = _sizes(inputs)
    ends = np.cumsum([int(np.prod(s)) for s in shapes])
    starts = [0, *ends[:-1]]
    return (theta[a:b].reshape(s) for a, b, s in zip(starts, ends, shapes, strict=True))


def _forward(theta: Any, x: Any) -> Any:
    """g / scale of points x, shape (n, q) -> (n,)."""
    w1, b1, w2, b2, w3, b3 = _layers(theta, x.shape[-1])
    hidden = (x @ w1 + b1).tanh()
    return ((hidden @ w2 + b2).tanh() @ w3) + b3.squeeze(0)


def _loss(theta: Any, x: Any, weight: Any, goal: Any) -> Any:
    """Mean of rho (phi - g)^2 minus rho phi^2, for goal = rho phi; rho may be zero."""
    g = _forward(theta, x)
    return (weight * g**2 - 2 * goal * g).mean()


def _trained(x: Any, weight: Any, goal: Any, epochs: int) -> Any:
    import torch

    generator = torch.Generator().manual_seed(_PUBLIC_SEED)
    parts = [
        torch.randn(int(np.prod(s)), generator=generator, dtype=torch.float64)
        * (float(s[0]) ** -0.5 if len(s) == 2 or i == 4 else 0.0)
        for i, s in enumerate(_sizes(x.shape[1]))
    ]
    theta = torch.cat(parts).requires_grad_(True)
    optimiser = torch.optim.Adam([theta], lr=TANH_RATE)
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator)
        for at in torch.split(order, TANH_BATCH):
            optimiser.zero_grad()
            _loss(theta, x[at], weight[at], goal[at]).backward()
            optimiser.step()
    return theta.detach()


def _hessian(theta: Any, x: Any, weight: Any, goal: Any) -> Matrix:
    """Hessian of the mean loss, by Hessian-vector products in blocks of directions; (p, p)."""
    import torch
    from torch.func import grad, jvp, vmap

    slope = grad(_loss)
    product = vmap(lambda v: jvp(lambda w: slope(w, x, weight, goal), (theta,), (v,))[1])
    directions = torch.split(torch.eye(len(theta), dtype=torch.float64), 64)
    blocks = [product(v) for v in directions]
    hessian = np.nan_to_num(torch.cat(blocks).numpy())  # without rows the mean is NaN
    return np.asarray(0.5 * (hessian + hessian.T))


def _gradients(theta: Any, x: Matrix) -> Matrix:
    """grad_theta g / scale at points, shape (n, p), by the chain rule."""
    w1, b1, w2, b2, w3, _ = _layers(theta.numpy(), x.shape[1])
    first = np.tanh(x @ w1 + b1)
    second = np.tanh(first @ w2 + b2)
    at_second = (1 - second**2) * w3
    at_first = (1 - first**2) * (at_second @ w2.T)
    parts = []
    for inputs, slopes in ((x, at_first), (first, at_second)):
        # The outer product of each pair of rows, flattened; -1 fails without rows.
        outer = inputs[:, :, None] * slopes[:, None, :]
        parts += [outer.reshape(len(x), inputs.shape[1] * slopes.shape[1]), slopes]
    return np.hstack([*parts, second, np.ones((len(x), 1))])


# -- Betlei et al. (2021): noisy sums by cell, and logistic regressions for visits -------------


@dataclass(frozen=True, eq=False)
class PrintedCells(Mechanism):
    """COUNT + Lap(2/eps) and SUM + Lap(2 D_y/eps) of y itself in each cell and arm (Algorithm 1).

    D_y is the width of the outcome's bounds. Numbers are on grids of 2^-30 (counts) and
    2^-30 max|y| (sums). A noisy count is therefore zero with probability of only about 2^-31.

    Privacy
    -------
    The claim, for either neighboring relation: counts have sensitivity 1 and sums have sensitivity
    D_y, at epsilon / 2 each. In fact, adding a row changes the count by 1 and the sum by |y|. This
    costs epsilon (1 + max|y| / D_y) / 2, which is at most epsilon only if max|y| <= D_y, that is,
    if 0 is within the bounds. Replacing a row removes it from one cell and adds it to another,
    which costs twice as much. `CellSums` has scales that are proven.
    """

    partition: Partition
    outcome: Outcome
    largest: float = field(init=False)  # max|y| within the outcome's bounds
    weights: Vector = field(init=False)
    units: Vector = field(init=False)  # Units of counts, then sums, by cell and arm

    label = "COUNT and SUM by arm in {self.partition.size} cells"

    def __post_init__(self) -> None:
        lo, hi, entries = self.outcome.lo, self.outcome.hi, 2 * self.partition.size
        largest = max(abs(lo), abs(hi))
        units = np.repeat([1.0 / CELL_UNIT, largest / CELL_UNIT], entries)
        weights = np.repeat([1.0, largest / (hi - lo)], entries)
        vars(self).update(largest=largest, weights=weights, units=units)

    def sensitivity(self, neighbors: Neighbors) -> float:
        raise CapabilityError("The paper's mechanism supports only Laplace noise.")

    def l1_sensitivity(self, neighbors: Neighbors) -> float:
        """The claimed value: 1 for a count and 1 for a sum over D_y."""
        return 2.0 * CELL_UNIT

    def integers(self, batch: Batch) -> Integers:
        lo, hi = self.outcome.lo, self.outcome.hi
        y = np.clip(self.outcome(batch) + 0.5 * (lo + hi), lo, hi)
        cell = self.partition.cell(batch.rows.frame)
        counted = batch.complete & (cell >= 0) & (cell < self.partition.size)
        group, groups = 2 * cell[counted] + (batch.t[counted] == 1), 2 * self.partition.size
        count = np.bincount(group, minlength=groups) * CELL_UNIT
        steps = np.rint(y[counted] / self.largest * CELL_UNIT)
        total = np.bincount(group, steps, minlength=groups)
        return np.concatenate([count, total.astype(np.int64)])


CURVATURE = 0.25
"""c of the paper: the maximum curvature of the logistic loss."""

RIDGE_SHARE = 0.1
"""Share of epsilon that the ridge costs by default. In the paper, users choose the ridge's size."""

MOST_SPENT = 3.0
"""Maximum epsilon spent on making the ridge small. Without a ridge, a minimum may not exist."""

STEPS = 100
"""Maximum number of Newton steps; a dozen are usual."""


@dataclass(frozen=True, eq=False)
class PublishedLogits(Named):
    """Coefficients of P(Y = 1 | x, T = t), each arm by Chaudhuri et al. (2011, Algorithm 2).

    Let s = 2y - 1, and scale rows phi so that ||phi|| <= 1. The w of an arm minimizes

        sum_i log(1 + exp(-s_i phi_i'w)) + (Lambda / 2) ||w||^2 + b'w,

    with b of density proportional to exp(-beta ||b||). The paper's n Lambda is this Lambda, and b
    is the same. With this notation, the formula does not depend on the private number of rows of
    an arm.

    Privacy
    -------
    The claim, for exact numbers: at the same w, adding or removing a row changes b by at most one,
    because the loss has slopes of at most one. It changes the determinant of the Jacobian of b in w
    by a factor of at most 1 + c / Lambda, c = `CURVATURE` (a matrix of rank one). This costs
    beta + log(1 + c / Lambda). Replacing a row, in one arm or across arms, costs twice that.

    Let k = 1 (add or remove) or k = 2 (replace). Then beta = epsilon / k - log(1 + c / Lambda) and
    Lambda = c / (exp(a) - 1), with a the smaller of `RIDGE_SHARE` epsilon / k and `MOST_SPENT`.

    If `C` is given, Lambda = 1 / C, and beta would be zero or less if `ridge_price` reaches
    epsilon. The paper then takes Lambda = c / (exp(epsilon / 4) - 1) and beta = epsilon / 4. Such a
    `C` is refused earlier.

    The claim is not proven for floats: the density ratio needs a continuous b and an exact minimum.
    The digits of w reveal which b of a grid can have led to w (Mironov 2012). There is also no sum
    on a grid to which noise could be added.
    """

    polynomials: Polynomials
    neighbors: Neighbors
    C: float | None = None

    name = "objective perturbation"
    label = "logistic regression by arm, p = {self.polynomials.size}"

    def law(self, epsilon: float) -> tuple[float, float]:
        """beta and Lambda."""
        share = epsilon / (2 if self.neighbors == "substitute" else 1)
        ridge = CURVATURE / math.expm1(min(RIDGE_SHARE * share, MOST_SPENT))
        ridge = ridge if self.C is None else 1 / self.C
        return share - math.log1p(CURVATURE / ridge), ridge

    def answer(self, batches: Sequence[Batch], stage: Stage, add_noise: ClaimedNoise) -> Vector:
        """Coefficients of phi, control before treated, shape (2 p,)."""
        beta, ridge = self.law(stage.epsilon / PICO)
        length = math.sqrt(self.polynomials.bound)  # phi_j^2 <= |phi_j|
        coefficients = []
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            both, t, y = stacked([b.only(part) for part in (0, 1) for b in batches])
            phi = self.polynomials.of(both.frame)
            for arm in (0, 1):
                b = drawn(self.polynomials.size, add_noise) / beta
                rows = t == arm
                w = minimum(phi[rows] / length, 2 * y[rows] - 1, ridge, b)
                coefficients.append(w / length)
        return np.concatenate(coefficients)


def ridge_price(c: float, neighbors: Neighbors) -> float:
    """The part of epsilon that a ridge of 1 / c costs: log(1 + c / 4) for each row that changes."""
    return (2 if neighbors == "substitute" else 1) * math.log1p(CURVATURE * c)


def drawn(size: int, add_noise: ClaimedNoise) -> Vector:
    """A vector of density proportional to exp(-||b||): its length is Gamma with shape `size`.

    The length is half of a chi-square with 2 x `size` degrees of freedom. The direction is uniform.
    """
    unit = 2.0**-ONE_FACTOR
    radius = 0.5 * float((add_noise("length", np.zeros(2 * size), unit, 1.0) ** 2).sum())
    direction = add_noise("direction", np.zeros(size), unit, 1.0)
    norm = float(np.linalg.norm(direction))
    return radius * direction / norm if norm > 0 else np.zeros(size)


def minimum(phi: Matrix, sign: Vector, ridge: float, b: Vector) -> Vector:
    """The w of `PublishedLogits`, by Newton steps that are halved until the objective decreases."""

    def objective(w: Vector) -> float:
        loss = np.logaddexp(0.0, -sign * (phi @ w)).sum()
        return float(loss + 0.5 * ridge * (w @ w) + b @ w)

    w = np.zeros(len(b))
    value = objective(w)
    for _ in range(STEPS):
        p = expit(-sign * (phi @ w))
        slope = ridge * w + b - phi.T @ (sign * p)
        hessian = (phi.T * (p * (1 - p))) @ phi + ridge * np.eye(len(w))
        step = np.linalg.solve(hessian, slope)
        length = 1.0
        while length > 1e-9 and not objective(w - length * step) < value:
            length *= 0.5
        if length <= 1e-9:
            return w
        w = w - length * step
        value = objective(w)
    return w


# -- interpret's DP-EBM in the stages of Niu et al. (2022) -------------------------------------
#
# Row weights are used only by learner "r".
#
# A boosting round adds -(lr sum_i w_i (s_i - y_i) + noise) / D to each leaf of a shape function.
# The meaning of D depends on the version of `interpret/glassbox/ebm/ebm.py`:
#
# - In its first version the histogram of the bins counts rows, so D is a noisy count. The paper's
#   notebook used this version: its warnings cite line 843 of that file.
# - Later versions add up weights, so D is a noisy sum of weights.
#
# With weights (T - e)^2 of about 0.2, a step of the current version, including its noise, is about
# five times as long. In both versions the noise is scaled to the largest weight.

Weighting = Literal["published", "interpret"]


@dataclass(frozen=True, eq=False)
class PublishedEBM:
    """interpret's private explainable boosting with its defaults, and the guarantee that it claims.

    Bounds of columns and target are taken from the rows, as in the paper's experiments. interpret
    warns that this leaks information. It also takes the types of columns from the rows: a column of
    two values is nominal. A fit's statement lists the other leaks. With `classification`, the model
    learns the probability of a 0/1 target.
    """

    epsilon: float
    delta: float
    classification: bool = False
    # Divisor of a leaf's noisy sum if rows have weights: its noisy count of rows, or its noisy sum
    # of weights, as in current versions of interpret
    weighting: Weighting = "published"
    clip: bool = False  # Clip targets and predictions to public bounds, which the paper does not do
    # Columns of a treatment in the first column. With 2, one for each arm follows the covariates.
    arm_columns: Literal[1, 2] = 1
    # Bounds in place of public ones; finite, so that their midpoint is a number
    unclipped: ClassVar[tuple[float, float]] = (-1e100, 1e100)
    _state: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def guarantee(self) -> TradeOff:
        return TradeOff.from_dp(self.epsilon, self.delta)

    def fit(
        self, x: Matrix, target: Vector, *, bounds: tuple[float, float], weight: Vector | None
    ) -> Self:
        """Fit the model; `bounds` are not used, because the paper did not set them in interpret."""
        from interpret.privacy import DPExplainableBoostingClassifier as Classifier
        from interpret.privacy import DPExplainableBoostingRegressor as Regressor

        self._state.clear()
        if self.arm_columns == 2:
            x = np.column_stack([x[:, 1:], 1 - x[:, 0], x[:, 0]])
        x, target, weight = self._with_public_rows(x, target, bounds, weight)
        by_rows = weight is not None and self.weighting == "published"
        source = noise.current()
        seed = None if source.real else source.entropy() % 2**31
        kind = Classifier if self.classification else Regressor
        if by_rows:  # a subclass whose bins hold counts of rows
            kind = type(kind.__name__, (kind,), {"fit": _fit_by_rows(kind.fit)})
        model = kind(epsilon=self.epsilon, delta=self.delta, n_jobs=1, random_state=seed)
        y = target.astype(np.int64) if self.classification else target
        model.fit(x, y, sample_weight=weight)
        self._state["model"] = model
        return self

    def _with_public_rows(
        self, x: Matrix, target: Vector, bounds: tuple[float, float], weight: Vector | None
    ) -> tuple[Matrix, Vector, Vector | None]:
        """The rows, plus public rows if interpret could not learn from the rows alone.

        interpret refuses a table without rows, and its classifier refuses a single class. A
        refusal, or a constant in place of a noisy model, would reveal information about the rows.
        Therefore one public row in the middle of the domain is added for each missing class. For
        regression, one such row is added if there are no rows.
        """
        wanted = (0.0, 1.0) if self.classification else () if len(target) else (0.5 * sum(bounds),)
        added = [value for value in wanted if not (target == value).any()]
        middle = np.full((len(added), x.shape[1]), 0.5)
        if weight is not None:
            weight = np.append(weight, np.ones(len(added)))
        return np.vstack([x, middle]), np.append(target, added), weight

    def predict(self, x: Matrix) -> Vector:
        model = self._state["model"]
        if self.arm_columns == 2:
            x = np.column_stack([x[:, 1:], 1 - x[:, 0], x[:, 0]])
        if self.classification:
            return np.asarray(model.predict_proba(x)[:, 1], np.float64)
        return np.asarray(model.predict(x), np.float64)


def _fit_by_rows(fit: Any) -> Callable[..., Any]:
    """interpret's `fit`, with bins made without weights; interpret itself is not changed.

    All of a fit is one function, which calls the bin maker by a global name. This returns a copy of
    that function, with another function under that name.
    """
    bins = fit.__globals__.get("construct_bins")
    if bins is None or "construct_bins" not in fit.__code__.co_names:
        raise CapabilityError(
            "weighting='published' is not available with this version of interpret, which "
            "creates its bins differently. Use weighting='interpret'."
        )

    names = {
        **fit.__globals__,
        "construct_bins": lambda *args, **options: bins(*args, **options | {"sample_weight": None}),
    }
    copied = FunctionType(fit.__code__, names, fit.__name__, fit.__defaults__, fit.__closure__)
    copied.__kwdefaults__ = fit.__kwdefaults__
    return copied
