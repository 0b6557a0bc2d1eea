"""Difference in means of a randomized trial without covariates.

The private version of ``smf.ols("Y ~ T", data).fit(cov_type="HC2")`` (Neyman 1923; Welch 1947).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privcausal import vault
from privcausal.errors import CapabilityError
from privcausal.estimators import bases, budget, words
from privcausal.estimators.base import Learner
from privcausal.estimators.budget import Use
from privcausal.estimators.clusters import CLUSTER_USE, ClusterScore, with_dependence
from privcausal.estimators.estimands import ESTIMANDS, Tilted
from privcausal.estimators.survey import FitRun
from privcausal.estimators.survival import SURVIVAL_USE, with_noise
from privcausal.features.design import Design
from privcausal.features.functions import Constant, NuisanceTriple
from privcausal.inference import cuts, ranges
from privcausal.inference.averages import FEW_SDS, AverageEstimate
from privcausal.inference.population import Population
from privcausal.inference.ranges import Window
from privcausal.inference.reconcile import joint_sampling, reconcile, terms_first, upheld
from privcausal.request.factors import Partitions, partitions, resolve_groups
from privcausal.request.plan import Plan, StageKey
from privcausal.request.request import Request
from privcausal.request.schema import Interval
from privcausal.request.terms import Place, ResultTerm, in_places
from privcausal.typing import Mask, Matrix, Vector

# -- the interval ------------------------------------------------------------------------------
#
# Every mean is a ratio of noisy sums. Without noise the standard error is Welch's (1947), which
# equals MacKinnon and White's (1985) HC2 in the regression of Y on T.


@dataclass(frozen=True, eq=False)
class ArmTotals:
    """Noisy sums over the rows of the control and the treated arm, shape (2, 1 + G) each.

    The columns are all rows, then the groups. `total` sums Y minus the middle of the clipping
    interval, and `square` its square. If the outcome has two values, the square is known and
    `square` is None.
    """

    total: Matrix
    count: Matrix
    square: Matrix | None


@dataclass(frozen=True, eq=False)
class JointNoise:
    """Noise covariances of reconciled totals and counts, shape (2, 1 + G, 1 + G) each.

    Each arm's sums over all rows and the groups satisfy `identities`.
    """

    total: Vector
    count: Vector
    identities: Matrix


def agreed(
    value: ArmTotals, sd: ArmTotals, parts: Partitions
) -> tuple[ArmTotals, ArmTotals, JointNoise | None]:
    """Sums of each arm, made to add up over groups that partition the rows; noise sds; joint noise.

    If no groups partition the rows, the sums are unchanged and the joint noise is None.
    """
    rows, rows_sd = value.count.sum(axis=0), np.sqrt((sd.count**2).sum(axis=0))
    identities = upheld(parts, rows, rows_sd, FEW_SDS)
    if not len(identities):
        return value, sd, None

    def both(reading: Matrix, noise: Matrix) -> tuple[Matrix, Matrix, Vector]:
        arms = [reconcile(x, s, identities) for x, s in zip(reading, noise, strict=True)]
        found, covs = (np.stack(one) for one in zip(*arms, strict=True))
        return found, np.sqrt(np.maximum(np.einsum("ajj->aj", covs), 0.0)), covs

    total, total_sd, total_cov = both(value.total, sd.total)
    count, count_sd, count_cov = both(value.count, sd.count)
    value = replace(value, total=total, count=count)
    sd = replace(sd, total=total_sd, count=count_sd)
    if value.square is not None and sd.square is not None:
        square, square_sd, _ = both(value.square, sd.square)
        value, sd = replace(value, square=square), replace(sd, square=square_sd)
    return value, sd, JointNoise(total_cov, count_cov, identities)


def unseen(value: ArmTotals, sd: ArmTotals) -> Mask:
    """Which arms (of all rows, of each group) have too few rows to distinguish from the noise."""
    return np.asarray(value.count <= FEW_SDS * sd.count)


def estimate_difference(
    terms: tuple[ResultTerm, ...],
    groups: tuple[Place, ...],
    value: ArmTotals,
    sd: ArmTotals,
    window: Window,
    bounds: Interval,
    noise: JointNoise | None = None,
) -> AverageEstimate:
    """Treated minus control mean, overall and in each group, with the parts of its variance.

    A group has no estimate if one of its arms has too few rows to detect. If an arm as a whole has
    too few rows, its mean is the middle of the bounds, with a standard error of half their width.
    `value` has the sums and `sd` the noise sds of their entries. If `noise` is given, the sums were
    reconciled, and the average and groups have covariances. `terms` are the difference under one or
    several names, and the means of the arms. Each term has its own groups.
    """
    mean, sampling, privacy = _means(value, sd, window.interval)
    lost = unseen(value, sd)
    mean[lost], sampling[lost], privacy[lost] = np.nan, np.inf, 0.0
    arms = lost[:, 0]
    mean[arms, 0], sampling[arms, 0], privacy[arms, 0] = bounds.mid, 0.0, 0.25 * bounds.width**2
    parts = [(np.diag(s), np.diag(p)) for s, p in zip(sampling, privacy, strict=True)]
    if noise is not None:
        parts = _joint(value, lost, mean - window.interval.mid, sampling, privacy, noise)
    rows = float(max(value.count[:, 0].sum(), 1.0))
    empty = lost.any(axis=0)
    bias = np.where(empty, 0.0, window.bias(value.count))
    signs = {0: (1.0, 0.0), 1: (0.0, 1.0), None: (-1.0, 1.0)}
    arms = np.array([signs[term.arm] for term in terms])
    order = terms_first(len(terms), len(groups) + 1)
    sampled, noisy = (
        sum((_spread(w, part[kind]) for w, part in zip(arms.T, parts, strict=True)), np.zeros(1))
        for kind in (0, 1)
    )
    both = np.where(arms[:, :, None] == 0, 0.0, arms[:, :, None] * mean).sum(axis=1)
    shares = np.maximum(value.count[:, 1:].sum(axis=0), 0.0) / rows
    return AverageEstimate(
        terms, in_places(terms, groups), both.ravel()[order], sampled[np.ix_(order, order)],
        noisy[np.ix_(order, order)], np.tile(bias, len(terms))[order], np.zeros(len(order)), rows,
        size_sd=float(np.linalg.norm(sd.count[:, 0])),
        treated=float(np.clip(value.count[1, 0] / rows, 0.0, 1.0)),
        shares=np.tile(shares, len(terms)),
        shares_sd=np.tile(np.linalg.norm(sd.count[:, 1:], axis=0) / rows, len(terms)),
    )  # fmt: skip


def _spread(weight: Vector, cov: Matrix) -> Matrix:
    """Covariance of multiples of one arm's means, (R P, R P); zero for an arm of weight 0."""
    finite = np.where(np.isfinite(cov), cov, 0.0)
    out = np.kron(np.outer(weight, weight), finite)
    lost = np.kron(weight != 0, ~np.isfinite(np.diag(cov)))
    out[lost, lost] = np.inf
    return np.asarray(out)


def _joint(
    value: ArmTotals, lost: Mask, mean: Matrix, sampling: Matrix, privacy: Matrix, noise: JointNoise
) -> list[tuple[Matrix, Matrix]]:
    """Sampling and privacy covariances of each arm's means; no row is in both arms."""
    lost = lost | np.r_[False, lost[:, 1:].any(axis=0)]
    rows = np.where(lost, 1.0, value.count)
    found = []
    for arm in (0, 1):
        by_total = np.where(lost[arm], 0.0, 1.0 / rows[arm])
        by_count = np.where(lost[arm], 0.0, -mean[arm] / rows[arm])
        own = by_total[:, None] * noise.total[arm] * by_total
        own += by_count[:, None] * noise.count[arm] * by_count
        np.fill_diagonal(own, privacy[arm])
        variances = np.where(lost[arm, 1:], np.inf, sampling[arm, 1:])
        first, share = sampling[arm, :1, None], rows[arm, 1:] / rows[arm, 0]
        found.append((joint_sampling(first, variances, share, noise.identities), own))
    return found


def _means(value: ArmTotals, sd: ArmTotals, window: Interval) -> tuple[Matrix, Matrix, Matrix]:
    """Means with their sampling and privacy variances, shape (2, 1 + G) each."""
    middle, half = window.mid, 0.5 * window.width
    rows = np.maximum(value.count, np.maximum(FEW_SDS * sd.count, 1.0))
    mean = np.clip(value.total / rows, -half, half)
    privacy = (sd.total**2 + (mean * sd.count) ** 2) / rows**2  # delta method
    square, square_sd = np.full(rows.shape, half**2), np.zeros(rows.shape)
    if value.square is not None and sd.square is not None:
        square, square_sd = np.clip(value.square / rows, 0.0, half**2), sd.square / rows
    # Every variance is at least zero, and raised by one sd of its own noise (see
    # `averages.raised`). This noise combines the noise of the square and of mean^2. The noise's
    # variance also makes mean^2 too large. A floor relative to the square would depend on the
    # distance of the mean from the middle of the window.
    slack = np.hypot(square_sd, 2 * np.abs(mean) * np.sqrt(privacy))
    variance = np.maximum(square - np.maximum(mean**2 - privacy, 0.0), 0.0) + slack
    return mean + middle, variance / np.maximum(rows - 1, 1), privacy


# -- the learner -------------------------------------------------------------------------------

WINDOW, DIFFERENCE_SUMS = StageKey("effect", "outcome"), StageKey("effect", "sums")

HIDDEN_ARM = (
    "Noise hides how many rows one treatment arm has, so only the outcome bounds inform the mean "
    "of this arm. Use more rows or budget."
)


@dataclass(frozen=True)
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
        "effect": 0.9,  # The whole budget except the bounds, because there are no other stages.
    }
    uses: ClassVar[tuple[Use, ...]] = (
        Use(WINDOW, 0.16, "A histogram of the outcome. With 0.08, intervals of 700 to 1,400 rows "
            "are 12% wider. Public data.", budget.wide),
        Use(DIFFERENCE_SUMS, 0.92, "The estimate itself, next to the histogram."),
        CLUSTER_USE,
        SURVIVAL_USE,
    )  # fmt: skip

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
        needs, name = self.needs(request, bases.moment_base(base)), request.formula.outcome
        if not (isinstance(request.schema.get(name), Interval) or name in undeclared.numbers):
            needs = [need for need in needs if need.key != WINDOW]  # two values have no range
        return budget.make_plan(request, self.name, "none", needs, self.shares, undeclared)

    def run(self, session: FitRun) -> words.Estimate:
        session.buy_bounds()
        request, schema = session.plan.request, session.schema
        groups = resolve_groups(request.groups, schema)
        session.vault.set_layout(schema, (), groups)
        domain = schema[request.formula.outcome]
        bounds = domain if isinstance(domain, Interval) else Interval(0.0, 1.0)
        rough = vault.ArmSums(
            (bounds, bounds), len(groups), len(request.groups),
            request.trust.neighbors, squares=isinstance(domain, Interval),
        )  # fmt: skip
        cut = _window(session, bounds, rough)
        sums = replace(rough, windows=(cut.interval, cut.interval))
        release = session.release(DIFFERENCE_SUMS, sums)
        value, sd = (ArmTotals(*sums.split(part)) for part in (release.value, release.noise_sd))
        arms, count_sd = value.count[:, 0], float(sd.count[:, 0].max())
        session.look_for(arms, count_sd)
        if isinstance(request.propensity, float):
            session.look_at_arms(arms, count_sd, (request.propensity,) * 2)
        value, sd, noise = agreed(value, sd, partitions(groups, schema, request.needed))
        places = tuple(g.place for g in groups)
        found = estimate_difference(request.terms, places, value, sd, cut, bounds, noise)
        if session.beyond is not None:
            bias = session.beyond.bias(value.count)
            found = replace(found, clipping=found.clipping + bias)
        scores = [] if request.cluster is None else _influences(value, cut.interval, bounds)
        found = with_dependence(session, found, scores, 1 + len(request.groups))
        found = with_noise(request, session.curves, found)
        if unseen(value, sd)[:, 0].any():
            session.alerts.setdefault("arm", HIDDEN_ARM)
        population = Population(schema, {}, np.eye(0), found.size)
        return session.finished(Design((), schema, full_rank=True), population, averages=found)

    @classmethod
    def describe(cls, estimate: words.Estimate) -> words.Description:
        request = estimate.plan.request
        own, trial = words.words_of(request), request.trust.panel is None
        ratio = (words.RATIO,) if request.ratios else ()
        tilted = any(isinstance(ESTIMANDS[one], Tilted) for one in request.averages)
        same = (SAME_NOTE,) if tilted else ()
        assumed = (words.RANDOMISED,) if trial else own.identified
        return words.Description(
            title=cls.title, reading=(words.BY_LOT, *same) if trial else (own.reading,),
            rows=(("Nuisance models", "none"), ("Propensity", "one for all rows")),
            assumptions=(*assumed, words.NO_INTERFERENCE, words.BOUNDED),
            methods=(*own.methods, *DIFFERENCE_METHODS, *ratio), adjusts=False,
        )  # fmt: skip


LEAST_ARM = 1e-3
"""Least share of an arm in the influences of its rows. A guard."""


def _influences(value: ArmTotals, window: Interval, bounds: Interval) -> list[ClusterScore]:
    """Influences of rows on the difference and on its groups: residuals by arm over its share.

    An arm that cannot be detected has the mean of the window.
    """
    outcome, scores = vault.Outcome(bounds.lo, bounds.hi), []
    for place, (total, count) in enumerate(zip(value.total.T, value.count.T, strict=True)):
        arms = np.maximum(count, 1.0)
        share = float(np.clip(arms[1] / arms.sum(), LEAST_ARM, 1 - LEAST_ARM))
        means = window.mid + np.clip(total / arms, -window.width / 2, window.width / 2)
        mu0, mu1, e = (Constant(float(x)) for x in (*means, share))
        model, centre = NuisanceTriple(mu0=mu0, mu1=mu1, e=e), Constant(float(means[1] - means[0]))
        aipw = vault.Aipw(model, outcome, min(share, 1 - share), centre)
        ends = np.abs(np.array([[window.lo], [window.hi]]) - means).max(axis=0)
        cut = float((ends / (1 - share, share)).max())
        scores.append(ClusterScore(vault.CutScore(aipw, cut), place, *[float(arms.sum())] * 2))
    return scores


SAME_NOTE = (
    "Without covariates, ATE, ATT, and ATO are equal. If all rows have the same probability of "
    "treatment, the difference in means estimates all three."
)

DIFFERENCE_METHODS = (
    f"Difference in means between the treatment arms. {words.SUMS}",
    "The mean of each arm is a ratio of noisy sums. Standard errors combine Welch's sampling "
    "variance (HC2 in the regression on treatment) and privacy noise (delta method). If a noisy "
    "histogram of the outcome showed that its bounds are wide, outcomes were clipped to a narrower "
    "interval; confidence intervals and p-values allow for the bias that this can cause "
    "(Armstrong and Kolesár 2018).",
    words.MISSING,
)


def _window(session: FitRun, bounds: Interval, sums: vault.ArmSums) -> ranges.Window:
    """Clipping interval of the outcome, from a histogram if the plan has one."""
    if not session.plan.has(WINDOW):
        return ranges.Window(bounds)
    height = vault.OutcomeResidual(Constant(bounds.lo), vault.Outcome(bounds.lo, bounds.hi))
    cells = vault.ArmHistogram(height, ranges.heights(bounds), "outcome")
    release = session.release(WINDOW, cells)
    # Noise of the sums per half-width of the clipping interval.
    change = sums.sensitivity(session.plan.request.trust.neighbors)
    noise = session.noise_sd(DIFFERENCE_SUMS, change, float(sums.units[0])) / (0.5 * bounds.width)
    counts, sd = cells.split(release.value), float(release.noise_sd[0])
    outcome = session.plan.request.formula.outcome
    session.look_at(outcome, counts.sum(axis=0), np.sqrt(2.0) * sd)
    anywhere = session.plan.request.tails == "any"
    return cuts.trial_window(counts, sd, bounds, noise, anywhere=anywhere)
