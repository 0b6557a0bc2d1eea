"""Predict the widths of a fit's intervals before rows exist, by simulating the fit.

A learner runs as it would on rows, but on a vault of simulated rows (`vault.simulate`). Stages,
mechanisms, sensitivities, clips, nuisances, and error allowances are the same as in the fit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.stats import norm

from privcausal.accounting import Release
from privcausal.errors import BudgetError, CapabilityError
from privcausal.estimators.base import Learner
from privcausal.estimators.bases import AnyBase
from privcausal.estimators.budget import Undeclared, check_rows, resolve_domains
from privcausal.estimators.estimands import Estimate, words_of
from privcausal.estimators.slopes import late_limits
from privcausal.inference.effects import USUAL_Z, AverageEstimate, covering
from privcausal.prices import as_typed
from privcausal.request import schema as domains
from privcausal.request.request import COHORTS, GENERALIZED, Assumptions, Plan, Request
from privcausal.request.schema import Binary, ColumnKind, Header, Interval, Transformed
from privcausal.typing import Matrix, Vector
from privcausal.vault import simulate, single_blas_thread

LEAST_ROWS, MOST_PLANNED_ROWS = 10, 10**9

LEAST_EPSILON, MOST_EPSILON = 1e-3, 64.0
"""Range of the search for the epsilon that gives a requested width."""

ANCHOR_RATIO = 4
ANCHORS = tuple(160 * ANCHOR_RATIO**k for k in range(7))
"""Numbers of rows of the simulated fits at eps 1 that all ranges of half-widths follow from."""

RANGE_ENDS = {
    False: {"bounds": (0.35, 2.92), "outcome_sd": (0.6, 1.73), "like": (0.66, 1.65)},
    True: {"bounds": (0.07, 1.85), "outcome_sd": (0.32, 2.89), "like": (0.57, 1.33)},
}
"""Ends of the range of half-widths over the forecast, for averages (False) and regressions (True),
by what says the outcome's scale (`Assumptions.scale_source`). Quantiles on the building half of
public data sets, at the level that held 80% of the half-widths on data sets not used for it."""

PRECISION = 0.004
"""Relative tolerance of the search, finer than the three reported digits."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """Predicted variances of the estimates of one fit, by source, shape (m,) each.

    `clipping` holds squared bounds of the bias and is not part of the variance.
    """

    rows: int
    plan: Plan
    terms: tuple[str, ...]  # The average effect, slopes, then groups
    sampling: Vector
    privacy: Vector
    clipping: Vector
    nuisances: Vector
    releases: tuple[Release, ...]
    passes: int  # Over the rows
    # Share of the adjustment for covariates that noise hides; NaN without learned nuisances
    hidden: float = np.nan
    # Index of the planned term: the average effect, the first slope of a regression, or the overall
    # effect of an event study
    lead: int = field(init=False)
    # `variance`, `bias`: their sum, and the bound of the bias. `parts`: by source, shape (4, m).
    variance: Vector = field(init=False)
    bias: Vector = field(init=False)
    parts: Matrix = field(init=False)

    def __post_init__(self) -> None:
        estimand, last = self.plan.request.estimand, len(self.terms) - 1
        vars(self).update(
            lead=last if estimand == COHORTS else int(self.plan.request.regression and last > 0),
            variance=self.sampling + self.privacy + self.nuisances,
            bias=np.sqrt(self.clipping),
            parts=np.stack([self.sampling, self.privacy, self.clipping, self.nuisances]),
        )

    def half_width(self, alpha: float) -> Vector:
        """Half-widths of intervals at level 1 - alpha; infinite if the fit gives no interval."""
        variance, z = self.variance, float(norm.ppf(1 - alpha / 2))
        finite = np.isfinite(variance)
        sd = np.sqrt(np.where(finite, variance, 0.0))
        return np.where(finite, covering(z, self.bias, sd), np.inf)


@dataclass(frozen=True, eq=False)
class Planner:
    """Forecasts of one analysis for any number of rows and epsilon.

    Forecasts are cached, because a plan, its text, and its plots request the same ones.
    """

    learner: Learner
    base: AnyBase
    request: Request
    schema: domains.Schema
    undeclared: Undeclared
    assumed: Assumptions
    _forecasts: dict[tuple[int, float], Forecast] = field(default_factory=dict, repr=False)
    # Factors of a forecast that give the ends of the range
    ends: tuple[float, float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        source = self.assumed.scale_source
        if self.request.estimand in GENERALIZED and source == "bounds":
            source = "outcome_sd"  # coefficients do not depend on the outcome's scale
        ends = RANGE_ENDS[self.request.regression][source]
        vars(self).update(ends=ends)
        if self.request.mode == "paper":
            raise CapabilityError(
                "Mechanisms in pc.paper cannot be planned, because the width of their intervals "
                "depends on the rows."
            )
        if len(self.request.formula.instruments) > 1:
            raise CapabilityError(
                "A plan assumes one instrument. Plan the fit with the strongest one: "
                "'Y ~ T | X | T ~ Z'."
            )

    @classmethod
    def of(cls, learner: Learner, base: AnyBase, request: Request, assumed: Assumptions) -> Planner:
        """Planner for a request; the declared bounds determine the kind of each column."""
        kinds: dict[str, ColumnKind] = {}
        for name in request.columns:  # numeric unless declared to be text
            domain = request.schema.get(name)
            binary_labels = isinstance(domain, Binary) and domain.labels
            text = isinstance(domain, domains.Levels) or binary_labels
            kinds[name] = "text" if text else "numeric"
        schema, undeclared = resolve_domains(request, Header(kinds))
        return cls(learner, base, request, schema, undeclared, assumed)

    @property
    def has_nuisances(self) -> bool:
        """Whether the fit learns nuisances; the difference in means and regressions do not."""
        if self.request.regression or self.request.estimand == COHORTS:
            return False
        stages = self.plan(self.request.budget.epsilon, None).stages
        return any(stage.heading == "nuisance" for stage in stages)

    def plan(self, epsilon: float, rows: int | None) -> Plan:
        """The stages of the fit at this epsilon."""
        trust, budget = self.request.trust, replace(self.request.budget, epsilon=epsilon)
        public = None if trust.unit is not None or trust.neighbors == "add_remove" else rows
        request = replace(self.request, budget=budget, nobs=public)
        return self.learner.plan(request, self.base, self.undeclared)

    def at(self, rows: int, epsilon: float) -> Forecast:
        """Forecast of one fit: the mean of two simulated fits with mirrored noise."""
        if (rows, epsilon) in self._forecasts:
            return self._forecasts[rows, epsilon]
        if any(values is None for values in self.assumed.like.values()):
            raise CapabilityError(
                "A plan keeps no rows of like=, so it has forecasts only for the n and eps of "
                "its call. Call pc.plan again with the other n and eps."
            )
        plan = self.plan(epsilon, rows)
        public = None if self.request.trust.neighbors == "add_remove" else rows
        try:  # a fit's refusals for its public number of rows
            check_rows(plan, self.undeclared, public, self.learner.counted(plan))
            fits = [self._simulated(rows, plan, mirrored=mirrored) for mirrored in (False, True)]
            if fits[0][1].names != fits[1][1].names:
                raise BudgetError("Noise decides which labels are found.")
        except BudgetError:  # The fit would fail too: it has too few rows for this budget.
            infinite, zero, estimand = np.array([np.inf]), np.zeros(1), plan.request.estimand
            lead = "Intercept" if plan.request.regression else estimand.replace("CATE", "ATE")
            forecast = Forecast(
                rows=rows,
                plan=plan,
                terms=(lead,),
                sampling=infinite,
                privacy=zero,
                clipping=zero,
                nuisances=zero,
                releases=(),
                passes=len(plan.stages),
            )
            return self._forecasts.setdefault((rows, epsilon), forecast)
        estimates, averages, simulated, passes = zip(*fits, strict=True)
        sampling, privacy, clipping, nuisances = np.mean(simulated, axis=0)
        # both noises by root mean square; they may differ if a clip was chosen
        releases = []
        for first, last in zip(estimates[0].releases, estimates[-1].releases, strict=False):
            a, b = first.charge, last.charge
            noise_sd = float(np.hypot(a.noise_sd, b.noise_sd) / np.sqrt(2.0))
            sensitivity = float(np.hypot(a.sensitivity, b.sensitivity) / np.sqrt(2.0))
            charge = replace(a, noise_sd=noise_sd, sensitivity=sensitivity)
            releases.append(replace(first, charge=charge))
        forecast = Forecast(
            rows=rows,
            plan=plan,
            terms=averages[0].names,
            sampling=sampling,
            privacy=privacy,
            clipping=clipping,
            nuisances=nuisances,
            releases=tuple(releases),
            passes=passes[0],
            hidden=float(np.mean([a.hidden for a in averages])),
        )
        return self._forecasts.setdefault((rows, epsilon), forecast)

    def falling(self, rows: int, epsilon: float) -> Forecast:
        """A forecast that never grows with rows or epsilon, from fits of `ANCHORS` rows at eps 1.

        Call rows times the square root of rho the precision of the noise. At equal precision, the
        sampling variance is inversely proportional to rows, and the other parts do not depend on
        rows. Each part is the largest at this precision or a larger one, log-linear between
        anchors. Below the first anchor with an interval, the other parts fall like noise alone, and
        beyond the last anchor like the sampling variance.
        """
        plan, anchors = self.plan(epsilon, rows), [self.at(n, 1.0) for n in ANCHORS]
        last = anchors[-1]
        nothing = np.full_like(last.parts, np.inf)
        errors = [nothing]
        for n, anchor in zip(ANCHORS, anchors, strict=True):
            parts = anchor.parts * _scale(n) if anchor.terms == last.terms else nothing
            # without an interval, some parts of a term are infinite and others are missing
            errors.append(np.where(np.isfinite(parts).all(axis=0), parts, np.inf))
        relative = epsilon if plan.pure else float(np.sqrt(plan.rho / last.plan.rho))
        place = 1 + float(np.log(relative * rows / ANCHORS[0]) / np.log(ANCHOR_RATIO))
        public = None if self.request.trust.neighbors == "add_remove" else rows
        try:
            check_rows(plan, self.undeclared, public, self.learner.counted(plan))
            # the parts at the place of this precision among the anchors
            parts = errors[0]
            if place >= 0:
                most = np.maximum.accumulate(errors[::-1])[::-1]
                k = min(int(place), len(most) - 2)
                share, ratio = min(place - k, 1.0), ANCHOR_RATIO / _scale(ANCHOR_RATIO)
                below = np.where(np.isinf(most[k]), most[k + 1] * ratio**2, most[k])
                beyond = ratio ** max(place - k - 1, 0.0)
                parts = below ** (1 - share) * most[k + 1] ** share / beyond
            parts = parts / _scale(rows)
        except BudgetError:
            parts = nothing
        sampling, privacy, clipping, nuisances = parts
        return replace(
            last,
            rows=rows,
            plan=plan,
            sampling=sampling,
            privacy=privacy,
            clipping=clipping,
            nuisances=nuisances,
        )

    def half_widths(self, rows: int, epsilon: float, alpha: float) -> tuple[Forecast, Matrix]:
        """A forecast, and the ends of the range of half-widths, shape (2, m)."""
        forecast = self.falling(rows, epsilon)
        return forecast, np.outer(self.ends, forecast.half_width(alpha))

    def first(self, rows: int, epsilon: float, alpha: float) -> list[float]:
        """The ends of the range of half-widths of the planned term."""
        forecast, ends = self.half_widths(rows, epsilon, alpha)
        return [float(end) for end in ends[:, forecast.lead]]

    def _simulated(
        self, rows: int, plan: Plan, *, mirrored: bool
    ) -> tuple[Estimate, AverageEstimate, np.ndarray, int]:
        """A fit of simulated rows, its averages, their variances by source, and its passes.

        The variances, of all terms and groups, have shape (4, m): sampling, privacy, clipping, and
        nuisances.
        """
        schema, formula = self.schema, plan.request.formula
        domain = schema.get(formula.outcome)
        invented = formula.outcome not in self.assumed.like
        if isinstance(domain, Transformed) and invented:  # The invented values are log(Y), not Y.
            schema = schema.with_columns({formula.outcome: Interval(domain.lo, domain.hi)})
            formula = replace(formula, response=None)
            plan = replace(plan, request=replace(plan.request, formula=formula, schema=schema))
        vault = simulate(plan, rows, self.assumed, mirrored=mirrored)
        # As in a fit, the matrices are too small for several BLAS threads.
        with warnings.catch_warnings(), single_blas_thread():
            warnings.simplefilter("ignore")  # A fit's warnings are about its own rows.
            estimate = self.learner.fit(plan, vault, schema, self.undeclared, self.base)
        averages = estimate.averages
        if averages is None:
            raise CapabilityError(
                "This fit releases no average effects and therefore has no intervals to plan. Set "
                "shares={'average': ...} to a share above 0."
            )
        sampling, privacy = np.diag(averages.sampling), np.diag(averages.privacy)
        variances = np.stack([sampling, privacy, averages.clipping**2, averages.remainder**2])
        if words_of(estimate.plan.request).in_set:  # as in a fit, the set may be unbounded
            bounded = np.isfinite(late_limits(averages, USUAL_Z)).all()
            variances[0, 0] += 0.0 if bounded else np.inf
        return estimate, averages, variances, vault.passes

    def epsilon_for(self, width: float, rows: int, alpha: float) -> float:
        """Smallest epsilon, to three digits, with a half-width of at most `width`.

        Raises
        ------
        BudgetError
            Sampling error already exceeds the width.
        """
        limits = LEAST_EPSILON, MOST_EPSILON
        epsilon = _search(lambda eps: self.first(rows, eps, alpha)[1], width, 1.0, limits, up)
        if epsilon is None:
            least = self.first(rows, MOST_EPSILON, alpha)[1]
            raise BudgetError(
                f"No eps gives a half-width of {width:.4g} with n={rows}. Even with almost no "
                f"noise (eps={MOST_EPSILON:g}), the half-width is {least:.3g}. Use more rows."
            )
        return epsilon

    def rows_for(self, width: float, epsilon: float, alpha: float) -> int:
        """Smallest number of rows, to three digits, with a half-width of at most `width`.

        Raises
        ------
        BudgetError
            The number would exceed the maximum of a plan.
        """
        rows = _search(
            lambda rows: self.first(int(rows), epsilon, alpha)[1],
            width,
            start=4000.0,
            limits=(float(LEAST_ROWS), float(MOST_PLANNED_ROWS)),
            rounded=lambda rows: up(np.ceil(rows)),
        )
        if rows is None:
            raise BudgetError(
                f"No n up to {MOST_PLANNED_ROWS:,} gives a half-width of {width:.4g} at "
                f"eps={as_typed(epsilon)}. Accept a wider interval, or use a larger eps."
            )
        return int(rows)


def _scale(rows: float) -> Matrix:
    """Rows for the sampling variance, and 1 for the other parts, shape (4, 1)."""
    return np.array([[rows], [1.0], [1.0], [1.0]])


def up(value: float) -> float:
    """Round `value` up to three significant digits."""
    unit = 10.0 ** (np.floor(np.log10(value)) - 2)
    return float(f"{np.ceil(round(value / unit, 6)) * unit:.3g}")


def _search(
    half_width: Callable[[float], float],
    width: float,
    start: float,
    limits: tuple[float, float],
    rounded: Callable[[float], float],
) -> float | None:
    """Smallest rounded x within limits with half_width(x) <= width, or None.

    `half_width` decreases. The search brackets x from `start`, then bisects log x.
    """
    low, high = limits
    above = start
    while half_width(rounded(above)) > width:
        if above >= high:
            return None
        above = min(4 * above, high)
    below = max(above / 4, low)
    while half_width(rounded(below)) <= width:
        if below <= low:
            return rounded(below)
        above, below = below, max(below / 4, low)
    while above > (1 + PRECISION) * below:
        middle = float(np.sqrt(below * above))
        if half_width(rounded(middle)) <= width:
            above = middle
        else:
            below = middle
    return rounded(above)
