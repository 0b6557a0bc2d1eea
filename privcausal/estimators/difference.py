"""Differences in means: of a randomized trial without covariates, and of cohorts in an event study.

The private versions of ``smf.ols("Y ~ T", data).fit(cov_type="HC2")`` (Neyman 1923; Welch 1947),
and of `att_gt` in the R package `did` under staggered adoption (Callaway and Sant'Anna 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar

import numpy as np

from privcausal import vault
from privcausal.errors import CapabilityError
from privcausal.estimators import bases, budget, estimands
from privcausal.estimators.averages import CLUSTER_STEP, ClusterScore, row_sizes, with_dependence
from privcausal.estimators.base import Learner
from privcausal.estimators.budget import Step
from privcausal.estimators.estimands import ESTIMANDS, Tilted
from privcausal.estimators.first_stages import Fit
from privcausal.estimators.survival import SURVIVAL_STEP, with_survival_noise
from privcausal.features.design import Design
from privcausal.features.functions import Constant, NuisanceTriple
from privcausal.inference.cuts import Cut, Extremes, score_cut, trial_window
from privcausal.inference.effects import (
    FEW_SDS,
    AverageEstimate,
    Noisy,
    Reading,
    joint_sampling,
    reconciled,
    reconciling,
    upheld,
)
from privcausal.inference.population import Population
from privcausal.inference.ranges import Window, heights
from privcausal.inference.regression import positive_part, signal_share
from privcausal.request.cohorts import CohortEffect, comparisons, labels_of
from privcausal.request.formula import (
    Partitions,
    Place,
    ResultTerm,
    in_places,
    partitions,
    resolve_groups,
)
from privcausal.request.panels import Staggered
from privcausal.request.request import Plan, Request, StageKey, check_release
from privcausal.request.schema import Interval, Levels, Schema
from privcausal.typing import Mask, Matrix, Vector

# -- the interval ------------------------------------------------------------------------------
#
# Every mean is a ratio of noisy sums. Without noise the standard error is Welch's (1947), which
# equals MacKinnon and White's (1985) HC2 in the regression of Y on T.


@dataclass(frozen=True, eq=False)
class ArmTotals:
    """Noisy sums over the rows of one arm, shape (1 + G,): over all rows, then over the groups.

    `total` sums Y minus the middle of the clipping interval, and `square` its square. If the
    outcome has two values, the square is known and `square` is None.
    """

    total: Noisy
    count: Noisy
    square: Reading | None = None

    @cached_property
    def unseen(self) -> Mask:
        """Where there are too few rows to distinguish from the noise."""
        return np.asarray(self.count.value <= FEW_SDS * self.count.sd)

    def mean(self, window: Interval) -> tuple[Noisy, Vector]:
        """Mean outcomes, and their sampling variances."""
        middle, half = window.mid, 0.5 * window.width
        least = np.maximum(FEW_SDS * self.count.sd, 1.0)
        rows = self.count.held(np.maximum(self.count.value, least))
        most = half * rows.value
        mean = self.total.held(np.clip(self.total.value, -most, most)) / rows
        square, square_sd = np.full(rows.value.shape, half**2), np.zeros(rows.value.shape)
        if self.square is not None:
            square = np.clip(self.square.value / rows.value, 0.0, half**2)
            square_sd = self.square.sd / rows.value
        # Every variance is at least zero, and raised by one sd of its own noise (see
        # `averages.raised`). This noise combines the noise of the square and of mean^2. The noise's
        # variance also makes mean^2 too large. A floor relative to the square would depend on the
        # distance of the mean from the middle of the window.
        slack = np.hypot(square_sd, 2 * np.abs(mean.value) * mean.sd)
        centred = np.maximum(mean.value**2 - mean.sd**2, 0.0)
        variance = np.maximum(square - centred, 0.0) + slack
        return mean + middle, variance / np.maximum(rows.value - 1, 1)


def arm_totals(
    value: tuple[Matrix, Matrix, Matrix | None],
    sd: tuple[Matrix, Matrix, Matrix | None],
    parts: Partitions | None = None,
) -> tuple[list[ArmTotals], Matrix]:
    """Sums by arm, and the identities that they satisfy, shape (q, 1 + G).

    If groups partition the rows, the sums of each arm over the groups are made to add up. `value`
    and `sd` hold totals, counts, and squares, shape (2, 1 + G) each.
    """
    total, count = Noisy.inputs(Reading(value[0], sd[0]), Reading(value[1], sd[1]))
    arms = [ArmTotals(total[arm], count[arm]) for arm in (0, 1)]
    if value[2] is not None and sd[2] is not None:
        squares = Reading(value[2], sd[2])
        arms = [replace(arms[arm], square=squares.at(arm)) for arm in (0, 1)]
    rows, none = count.sum(), np.zeros((0, count.value.shape[1]))
    identities = none if parts is None else upheld(parts, rows.value, rows.sd, FEW_SDS)
    if not len(identities):
        return arms, none
    return [
        ArmTotals(
            reconciled(arm.total, identities),
            reconciled(arm.count, identities),
            arm.square and arm.square.through(reconciling(arm.square.sd, identities)),
        )
        for arm in arms
    ], identities


def estimate_difference(
    terms: tuple[ResultTerm, ...],
    groups: tuple[Place, ...],
    arms: Sequence[ArmTotals],
    identities: Matrix,
    window: Window,
    bounds: Interval,
) -> AverageEstimate:
    """Treated minus control mean, overall and in each group, with the parts of its variance.

    A group has no estimate if one of its arms has too few rows to detect. If an arm as a whole has
    too few rows, its mean is the middle of the bounds, with a standard error of half their width.
    If the sums were reconciled, the average and groups have covariances. `terms` are the difference
    under one or several names, and the means of the arms. Each term has its own groups.
    """
    count = np.stack([arm.count.value for arm in arms])
    # each term is computed with its own groups, and all terms come first
    places = np.arange(len(terms) * (1 + len(groups)))
    order = np.r_[places[:: 1 + len(groups)], np.setdiff1d(places, places[:: 1 + len(groups)])]
    signs = {0: (1.0, 0.0), 1: (0.0, 1.0), None: (-1.0, 1.0)}  # of both arms, by a term's arm
    weights = np.array([signs[term.arm] for term in terms]).T
    means, sampling, privacy = list[Noisy](), np.zeros((1, 1)), np.zeros((1, 1))
    for arm, weight in zip(arms, weights, strict=True):
        mean, variance = arm.mean(window.interval)
        fill, lost = np.where(arm.unseen, np.nan, 0.0), np.where(arm.unseen, np.inf, variance)
        none = np.zeros(len(fill))
        if arm.unseen[0]:
            fill[0], lost[0], none[0] = bounds.mid, 0.0, 0.25 * bounds.width**2
        means.append(mean * ~arm.unseen + fill)
        rows = np.where(arm.unseen, 1.0, arm.count.value)
        share = rows[None, 1:] / rows[0]
        joint = joint_sampling(lost[:1, None], lost[1:, None, None], share, identities)
        # covariances of multiples of this arm's means, (R P, R P); zero for an arm of weight 0
        products, finite = np.outer(weight, weight), np.isfinite(joint)
        spread = np.kron(products, np.where(finite, joint, 0.0))
        infinite = np.kron(weight != 0, ~np.diag(finite))
        spread[infinite, infinite] = np.inf
        sampling = sampling + spread
        privacy = privacy + np.kron(products, np.diag(none))
    by_arm = {0: means[0], 1: means[1], None: means[1] - means[0]}
    estimates = Noisy.joined([by_arm[term.arm] for term in terms])[order]
    entries, size = np.ix_(order, order), float(max(count[:, 0].sum(), 1.0))
    empty = np.any([arm.unseen for arm in arms], axis=0)
    bias = np.where(empty, 0.0, window.bias(count))
    shares = np.maximum(count[:, 1:].sum(axis=0), 0.0) / size
    noise = np.linalg.norm([arm.count.sd for arm in arms], axis=0)
    return AverageEstimate(
        terms,
        in_places(terms, groups),
        estimates.value,
        sampling[entries],
        privacy[entries] + estimates.cov,
        np.tile(bias, len(terms))[order],
        np.zeros(len(order)),
        size,
        size_sd=float(noise[0]),
        treated=float(np.clip(count[1, 0] / size, 0.0, 1.0)),
        shares=np.tile(shares, len(terms)),
        shares_sd=np.tile(noise[1:] / size, len(terms)),
    )


# -- the learner -------------------------------------------------------------------------------

WINDOW, DIFFERENCE_SUMS = StageKey("effect", "outcome"), StageKey("effect", "sums")

HIDDEN_ARM = (
    "Noise hides how many rows one treatment arm has, so only the outcome bounds inform the mean "
    "of this arm. Use more rows or budget."
)


class DifferenceInMeans(Learner):
    """Difference of the arms' mean outcomes, from one release of bounded sums within the arms.

    Valid if treatment was randomized with one probability for all rows. The ATE, ATT, and ATO are
    then equal. The outcome range of a numeric outcome is first estimated with a histogram, so that
    wide bounds cost little if there are many rows. Both arms are clipped to one interval, and the
    confidence interval allows for the clipping bias. An outcome with two labels needs no squares.
    """

    name: ClassVar[str] = "difference"
    title: ClassVar[str] = "difference in means"
    shares: ClassVar[Mapping[str, float]] = {
        "bounds": budget.TOP_BOUNDS,
        "effect": 0.9,  # The whole budget except the bounds: the only stages.
    }
    steps: ClassVar[tuple[Step, ...]] = (
        Step(WINDOW, 0.16, ("wide",)),
        Step(DIFFERENCE_SUMS, 0.92),
        CLUSTER_STEP,
        SURVIVAL_STEP,
    )

    def plan(self, request: Request, base: bases.AnyBase, undeclared: budget.Undeclared) -> Plan:
        """Plan stages with integer budgets.

        Raises
        ------
        CapabilityError
            A split is requested, but the fit has no nuisances to split off.
        """
        if request.split != "full":
            raise CapabilityError(
                f"split={request.split!r} fits nuisance models to separate rows, but a formula "
                "without covariates has no nuisance models. Use split='full'."
            )
        weights, name = self.stages(request, bases.moment_base(base)), request.formula.outcome
        if not (isinstance(request.schema.get(name), Interval) or name in undeclared.numbers):
            weights.pop(WINDOW, None)  # two values have no range
        return budget.make_plan(request, self.name, "none", weights, self.shares, undeclared)

    def run(self, fit: Fit) -> estimands.Estimate:
        fit.estimate_bounds()
        request, schema = fit.request, fit.schema
        groups = resolve_groups(request.groups, schema)
        fit.vault.set_layout(schema, (), groups)
        domain, neighbors = schema[request.formula.outcome], request.trust.neighbors
        bounds = domain if isinstance(domain, Interval) else Interval(0.0, 1.0)
        sums = vault.ArmSums(
            (bounds, bounds),
            len(groups),
            len(request.groups),
            neighbors,
            squares=isinstance(domain, Interval),
        )
        # The clipping interval of the outcome, from a histogram if the plan has one.
        window = Window(bounds)
        if fit.plan.has(WINDOW):
            height = vault.OutcomeResidual(Constant(bounds.lo), vault.Outcome(bounds.lo, bounds.hi))
            cells = vault.ArmHistogram(height, heights(bounds), "outcome")
            release = fit.release(WINDOW, cells)
            # Noise of the sums per half-width of the clipping interval.
            change, unit = sums.sensitivity(neighbors), float(sums.units[0])
            noise = budget.noise_sd(fit.plan, DIFFERENCE_SUMS, change, unit) / (0.5 * bounds.width)
            counts, cell_sd = release.value.reshape(2, -1), float(release.noise_sd[0])
            outcome = request.formula.outcome
            fit.check_domain(outcome, counts.sum(axis=0), np.sqrt(2.0) * cell_sd, WINDOW)
            anywhere = request.tails == "any"
            window = trial_window(counts, cell_sd, bounds, noise, anywhere=anywhere)
        sums = replace(sums, windows=(window.interval, window.interval))
        release = fit.release(DIFFERENCE_SUMS, sums)
        value, sd = sums.split(release.value), sums.split(release.noise_sd)
        rows, count_sd = value[1][:, 0], float(sd[1][:, 0].max())
        fit.check_empty_arm(rows, count_sd)
        if isinstance(request.propensity, float):
            fit.check_arms(rows, count_sd, (request.propensity,) * 2)
        arms, identities = arm_totals(value, sd, partitions(groups, schema, request.needed))
        places = tuple(g.place for g in groups)
        estimate = estimate_difference(request.terms, places, arms, identities, window, bounds)
        if fit.beyond is not None:
            bias = fit.beyond.bias(np.stack([arm.count.value for arm in arms]))
            estimate = replace(estimate, clipping=estimate.clipping + bias)
        scores = partial(_influences, arms, window.interval, bounds)
        estimate = with_dependence(fit, estimate, scores, 1 + len(request.groups))
        estimate = with_survival_noise(request, fit.curves, estimate)
        if any(arm.unseen[0] for arm in arms):
            fit.alerts.setdefault("arm", HIDDEN_ARM)
        population = Population(schema, {}, np.eye(0), estimate.size)
        return fit.finished(Design((), schema, full_rank=True), population, averages=estimate)

    @classmethod
    def describe(cls, estimate: estimands.Estimate) -> estimands.Description:
        request = estimate.plan.request
        text, trial = estimands.words_of(request), request.trust.panel is None
        ratio = (estimands.RATIO,) if request.ratios else ()
        tilted = any(isinstance(ESTIMANDS[name], Tilted) for name in request.averages)
        same = (SAME_NOTE,) if tilted else ()
        assumed = (estimands.RANDOMISED,) if trial else text.identified
        return estimands.Description(
            title=cls.title,
            reading=(estimands.BY_LOT, *same) if trial else (text.reading,),
            rows=(("Nuisance models", "none"), ("Propensity", "one for all rows")),
            assumptions=(*assumed, estimands.NO_INTERFERENCE, estimands.BOUNDED),
            methods=(*text.methods, *DIFFERENCE_METHODS, *ratio),
            adjusts=False,
        )


LEAST_ARM = 1e-3
"""Least share of an arm in the influences of its rows. A guard."""


def _influences(
    arms: Sequence[ArmTotals], window: Interval, bounds: Interval
) -> list[ClusterScore]:
    """Influences of rows on the difference and on its groups: residuals by arm over its share.

    An arm that cannot be detected has the mean of the window.
    """
    outcome, scores = vault.Outcome(bounds.lo, bounds.hi), []
    totals = np.stack([arm.total.value for arm in arms])
    counts = np.stack([arm.count.value for arm in arms])
    for place, (total, count) in enumerate(zip(totals.T, counts.T, strict=True)):
        rows = np.maximum(count, 1.0)
        share = float(np.clip(rows[1] / rows.sum(), LEAST_ARM, 1 - LEAST_ARM))
        means = window.mid + np.clip(total / rows, -window.width / 2, window.width / 2)
        mu0, mu1, e = (Constant(float(x)) for x in (*means, share))
        model, centre = NuisanceTriple(mu0=mu0, mu1=mu1, e=e), Constant(float(means[1] - means[0]))
        aipw = vault.Aipw(model, outcome, min(share, 1 - share), centre)
        ends = np.abs(np.array([[window.lo], [window.hi]]) - means).max(axis=0)
        cut = float((ends / (1 - share, share)).max())
        scores.append(ClusterScore(vault.CutScore(aipw, cut), place, *[float(rows.sum())] * 2))
    return scores


SAME_NOTE = (
    "Without covariates, the averages over all, treated, and other weighted rows are equal. If all "
    "rows have the same probability of treatment, the difference in means estimates each of them."
)

DIFFERENCE_METHODS = (
    f"Difference in means between the treatment arms. {estimands.SUMS}",
    "The mean of each arm is a ratio of noisy sums. Standard errors combine Welch's sampling "
    "variance (HC2 in the regression on treatment) and privacy noise (delta method). If a noisy "
    "histogram of the outcome showed that its bounds are wide, outcomes were clipped to a narrower "
    "interval; confidence intervals and p-values allow for the bias that this can cause "
    "(Armstrong and Kolesár 2018).",
    estimands.MISSING,
)


# -- event studies: effects by cohort and period -------------------------------------------------


def estimate_cohorts(
    effects: Sequence[CohortEffect],
    labels: tuple[tuple[str, ...], tuple[str, ...]],
    path: Reading,
    square: Reading,
    seen: Mask,
    contrasts: Matrix,
    clipped: float,
) -> AverageEstimate:
    """All ATT(g, t) as terms, and their averages as groups, with their joint covariance.

    Estimates are functions of the sums of w by cohort. Let G_j be the derivative of all estimates
    in the sums of cohort j, shape (m, 1 + d). The estimates do not change if all sums are
    multiplied by a number, so the sampling covariance is the sum of G_j (sum w w') G_j' over the
    cohorts. It contains the error of the cohorts' shares, as the influence functions of Callaway
    and Sant'Anna (2021, Section 4) do. `clipped` is a bound of the total norm that clipping removes
    from all paths. An estimate changes by at most its largest derivative in a path times this
    bound, to first order.

    A comparison of cohorts that are too small to detect has no estimate. Averages leave it out.

    `path` (J, 1 + d) and `square` (J, d, d) are sums over the units of each cohort, of w = (1, z)
    for the path z of a unit, and of z z'. `seen` (J,) are cohorts with enough units to distinguish
    from noise.
    """
    (w,) = Noisy.inputs(path)
    units, none = w[:, 0], np.zeros(w.slope.shape[-1])
    unknown = Noisy(np.asarray(np.nan), none, w.noise)

    estimates = list[Noisy]()
    for effect in effects:
        pool, along = [c for c in effect.controls if seen[c]], contrasts[:, effect.period]
        along = along - contrasts[:, effect.base]
        if not (seen[effect.cohort] and pool):
            estimates.append(unknown)
            continue
        change, of_pool = (
            along @ w[cohorts, 1:].sum() / units[cohorts].sum()
            for cohorts in ([effect.cohort], pool)
        )
        estimates.append(change - of_pool)
    lost = np.isnan([estimate.value for estimate in estimates])
    after, places = [effect.event >= 0 for effect in effects], list[Place]()

    def average(place: Place, of: Sequence[int], cohorts: Sequence[int] = ()) -> None:
        """Add the mean of the estimates `of`, weighted by the sizes of `cohorts` if given."""
        places.append(place)
        parts = Noisy.joined([estimates[k] for k in of] or [unknown])
        if cohorts:
            weights = units[[*cohorts]]
            estimates.append((parts * weights).sum() / weights.sum())
        else:
            estimates.append(parts.sum() / len(parts.value))

    for kind, place_of in PLACES.items():
        inside, means = dict[float, list[int]](), list[tuple[int, int]]()
        for k, effect in enumerate(effects):
            if after[k] or kind == "event":
                inside.setdefault(place_of(effect), []).append(k)
        for number, members in sorted(inside.items()):
            of = [k for k in members if not lost[k]]
            event = kind == "event"
            label = f"{number:.10g}" if event else labels[kind == "calendar"][int(number)]
            average(Place(kind, label), of, [effects[k].cohort for k in of])
            if of and after[of[0]]:
                means.append((len(estimates) - 1, effects[of[0]].cohort))
        cohorts = [cohort for _, cohort in means]
        average(Place(kind, "average"), [k for k, _ in means], cohorts if kind == "cohort" else ())
    of = [k for k in range(len(effects)) if after[k] and not lost[k]]
    average(Place("overall"), of, [effects[k].cohort for k in of])

    theta = Noisy.joined(estimates)
    by = theta.slope.reshape(-1, *w.value.shape)
    sampling = np.einsum(
        "kja,jab,ljb->kl", by, _cohort_moments(path.value, square, seen), by, optimize=True
    )
    sampling[np.isnan(theta.value), np.isnan(theta.value)] = np.inf
    # all clipped paths may be of one cohort
    moved = clipped * by[:, :, 1:].swapaxes(0, 1)
    largest = np.linalg.norm(moved, axis=2).max(axis=0)
    terms = tuple(ResultTerm("effect", effect.name) for effect in effects)
    return AverageEstimate(
        terms,
        in_places(terms[:1], places),
        theta.value,
        sampling,
        theta.cov,
        largest,
        np.zeros(len(largest)),
        float(np.maximum(path.value[:, 0], 0.0).sum()),
        size_sd=float(np.linalg.norm(path.sd[:, 0])),
        moved=moved,
    )


PLACES: dict[str, Callable[[CohortEffect], float]] = {
    "event": lambda effect: effect.event,
    "cohort": lambda effect: effect.cohort,
    "calendar": lambda effect: effect.period,
}
"""Kinds of averages, and the place of a comparison in each."""


def _cohort_moments(value: Matrix, square: Reading, seen: Mask) -> Vector:
    """Sums of w w' by cohort for w = (1, z), shape (J, 1 + d, 1 + d); zero if not detected.

    A cohort's covariance of z is its own so far as it differs from the covariance within all
    cohorts by more than the noise. One noise sd is added along every direction, as in
    `averages.raised`, because standard errors that are too small as often as too large undercover.
    """
    out = np.zeros((*value.shape, value.shape[1]))
    detected, entry = np.flatnonzero(seen), float(square.sd.max())
    units, path = value[detected, 0], value[detected, 1:]
    inside = square.value[detected] - np.einsum("ja,jb,j->jab", path, path, 1 / units)
    pooled, pooled_sd = inside.sum(axis=0) / max(units.sum(), 1.0), entry * np.sqrt(len(detected))
    for j, n, total, square_j in zip(detected, units, path, inside, strict=True):
        gap, noise = square_j / n - pooled, float((square.sd[j] ** 2).mean()) / n**2
        share = signal_share(gap.ravel(), noise)
        spread = np.hypot(share * entry / n, (1 - share) * pooled_sd / units.sum())
        out[j] = np.outer(np.r_[n, total], np.r_[n, total]) / n
        out[j, 1:, 1:] += n * (positive_part(pooled + share * gap) + spread * np.eye(len(total)))
    return out


# -- the learner of event studies ----------------------------------------------------------------

PATH_SIZES = StageKey("effect", "sizes of paths")
COHORT_SUMS = StageKey("effect", "sums by cohort")

SMALL = (
    "Too few units to detect in cohorts {names} (noisy counts). Their effects have the widest "
    "possible intervals, and averages leave them out. Check the levels of {column!r}, or combine "
    "cohorts."
)


class EventStudy(Learner):
    """ATT(g, t) of all cohorts and periods, from one release of sums of paths by cohort."""

    name: ClassVar[str] = "cohorts"
    title: ClassVar[str] = "group-time average effects"
    whole: ClassVar[str] = "an event study has no nuisance models"
    shares: ClassVar[Mapping[str, float]] = {"effect": 0.9}  # The only stages.
    steps: ClassVar[tuple[budget.Step, ...]] = (
        budget.Step(PATH_SIZES, 0.10),
        budget.Step(COHORT_SUMS, 0.78),
    )

    def accepted(self, base: bases.AnyBase) -> bases.PrivateBase:
        if base != bases.BASES["gam"]:
            raise CapabilityError("An event study has no nuisance models. Omit base=.")
        return super().accepted(base)

    def stages(self, request: Request, base: bases.PrivateBase) -> budget.Weights:
        check_release(len(_cohort_sums(request, request.schema)[0].units), "periods or cohorts")
        return super().stages(request, base)

    def counted(self, plan: Plan) -> tuple[float, int]:
        sums, labels = _cohort_sums(plan.request, plan.request.schema)
        unit = float((sums.units / sums.weights)[len(sums.size.wide)])
        change = sums.sensitivity(sums.neighbors)
        return budget.noise_sd(plan, COHORT_SUMS, change, unit), len(labels[0])

    def run(self, fit: Fit) -> estimands.Estimate:
        request, schema = fit.request, fit.schema
        fit.vault.set_layout(schema, (), ())
        sums, labels = _cohort_sums(request, schema)
        size = sums.size
        sizes = row_sizes(fit, PATH_SIZES, size, "sizes of paths")
        rows = max(float(sizes.counts.sum()), 1.0)
        change, unit = sums.sensitivity(request.trust.neighbors), float(sums.units[0]) / size.bound
        largest, ones = np.full((1, 1), size.bound), np.ones((1, 1))
        # The bias of a cohort's mean, like its noise, is the bias of the mean of all units over the
        # cohort's share, because all clipped paths may be in this cohort.
        cut = score_cut(
            Extremes(largest, ones, ones),
            budget.noise_sd(fit.plan, COHORT_SUMS, change, unit) / rows,
            sizes,
            None,
            rows,
            anywhere=request.tails == "any",
        )
        if not sizes.noise_sd:  # Tests without noise clip no score.
            cut = Cut(size.bound, 0.0)
        sums = replace(sums, cut=cut.threshold)
        path, units, square = fit.read(COHORT_SUMS, sums)
        path = Reading(*map(np.hstack, zip(units, path, strict=True)))
        seen = np.asarray(path.value[:, 0] > FEW_SDS * path.sd[:, 0])
        effects, bias = comparisons(request), cut.bias * rows
        estimate = estimate_cohorts(effects, labels, path, square, seen, size.contrasts, bias)
        if not seen.all():
            names = estimands.listed([labels[0][k] for k in np.flatnonzero(~seen)])
            fit.alerts["cohorts"] = SMALL.format(names=names, column=sums.cohort)
        return fit.finished(Design((), schema, full_rank=True), averages=estimate)

    @classmethod
    def describe(cls, estimate: estimands.Estimate) -> estimands.Description:
        text, panel = estimands.words_of(estimate.plan.request), estimate.plan.request.trust.panel
        assert isinstance(panel, Staggered)
        labels, periods = labels_of(estimate.schema, panel)
        never = next((f"{panel.cohort} = {x}" for x in labels if x not in periods), "none declared")
        return estimands.Description(
            title=cls.title,
            reading=(text.reading,),
            rows=(("Controls", panel.control_group), ("Never treated", never)),
            assumptions=(*text.identified, estimands.NO_INTERFERENCE, estimands.BOUNDED),
            methods=(*text.methods, estimands.SUMS, COHORT_METHOD),
            adjusts=False,
        )


def _cohort_sums(
    request: Request, schema: Schema
) -> tuple[vault.CohortSums, tuple[tuple[str, ...], tuple[str, ...]]]:
    """The query for the sums by cohort, without clipping, and the labels."""
    panel, outcome = request.trust.panel, schema[request.formula.outcome]
    assert isinstance(panel, Staggered)
    assert isinstance(outcome, Interval)
    levels, size = schema[panel.cohort], vault.PathSize(panel.wide, outcome.width)
    assert isinstance(levels, Levels)
    labels, neighbors = labels_of(schema, panel), request.trust.neighbors
    cohorts = tuple(map(levels.labels.index, labels[0]))
    return vault.CohortSums(size, panel.cohort, cohorts, size.bound, neighbors), labels


COHORT_METHOD = (
    "Each unit has the deviations of its outcomes from their mean. Sums of these vectors and of "
    "their outer products, and counts, were released by cohort. Vectors with a large norm were "
    "shortened; the limit follows from a noisy histogram of the norms, and intervals and p-values "
    "allow for the largest bias that this can cause (Armstrong and Kolesár 2018). Standard errors "
    "combine sampling, including that of the cohorts' sizes, and privacy noise (delta method)."
)
