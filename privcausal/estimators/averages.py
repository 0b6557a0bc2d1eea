"""Average effects for all learners: the sums of their scores over the rows, clipping, and weights.

The estimate is c + sum(score) / sum(mass), as in `estimands`. Scores are centered at a value c near
the average, so scores are small and noise in the mass matters little. The mass of the ATE with a
learned propensity is the slope of the score in a shift of the effect (`OfTreatment`, "balance"),
with the mean 1 if e is correct. The same sums give the
effects in groups and the best linear projection. Several averages share one release of their
scores.

Cluster-robust standard errors ask for one more release, of squared sums of scores by cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from privcausal import vault
from privcausal.accounting.price import Release
from privcausal.estimators import budget, first_stages
from privcausal.estimators.budget import Step
from privcausal.estimators.estimands import ESTIMANDS, Score, ScoreParts, Tilted, bias_weight
from privcausal.estimators.first_stages import FitState
from privcausal.estimators.nuisances import Folds, by_fold, limited, remainder
from privcausal.features import functions
from privcausal.features.design import Rows
from privcausal.features.functions import Constant, Function, LinearFunction, Triples
from privcausal.inference import cuts as cuts_of
from privcausal.inference import effects as estimates
from privcausal.inference.cuts import Cut, score_cut
from privcausal.inference.effects import (
    AverageEstimate,
    Effect,
    Reading,
    raised,
    with_design_effect,
)
from privcausal.inference.population import LARGEST_USUAL
from privcausal.inference.priors import PRIORS
from privcausal.inference.ranges import outcome_edges
from privcausal.inference.regression import Remainder
from privcausal.request.formula import ATE_TERM, ResultTerm, partitions
from privcausal.request.request import StageKey
from privcausal.request.schema import Interval
from privcausal.typing import Matrix, Vector
from privcausal.vault import ClusterSquares, CutScore, Influence, Outcome, ScoreVector, Transform


class EffectCentre(NamedTuple):
    """The projection a'coef of a known effect, and scores centered at this projection.

    The slopes are the pilot's slopes plus the slopes of the remaining effect. This is exact because
    both are linear in the score. The range of the remaining effect does not grow with the effect,
    so clipping removes a smaller part.
    """

    score: Transform
    coef: Vector


@dataclass(frozen=True, eq=False)
class Target:
    """The score and the mass to sum for an average effect."""

    centre: float  # c, in units of the outcome
    score: Transform  # Score of a row, from the nuisances of its fold
    mass: Transform | None  # Near 1 on average; None means that each row counts as 1
    extremes: cuts_of.Extremes  # Largest possible scores
    mass_spread: float = PRIORS.balance_sd  # Prior sd of the mean mass around 1, without weights
    own_mass: bool = False  # Whether rows have unequal masses, as of the ATT and the ATO
    # Sd of the first effect if the propensity is known; 0 otherwise (`cuts.score_cut`)
    doubt: float = 0.0
    weighted: bool = False  # Whether rows have survey weights
    pilot: EffectCentre | None = None  # Center of the scores for the slopes
    arm: int = 1  # The arm that counts as treated
    group_masses: bool = False  # Whether groups are weighted by their own mass, and not by rows


def average_target(
    state: FitState,
    nuisances: Triples,
    centre: float,
    tau: Function | None = None,
    within: Outcome | None = None,
) -> Target:
    """Target of the ATE: the score psi - c and the balance as its mass.

    The mean of the balance is exactly 1 if the propensity is known, so the rows are then counted
    instead. With survey weights the mass is the weight, because groups then need less noise. If
    `tau` is given, it also centers the scores of the slopes. The extremes allow for outcomes
    `within` a range, or for any outcome in the declared bounds.
    """
    reach = 2 * state.outcome.bound  # the largest possible effect
    centre = float(np.clip(centre, -reach, reach))
    scores = [
        vault.Aipw(n, state.outcome, state.clip, Constant(centre), abs(centre)) for n in nuisances
    ]
    mass = None
    if state.propensity is None and state.weights is None:
        mass = by_fold(vault.OfTreatment("balance", n.e, state.clip) for n in nuisances)
    average = _target(state, centre, scores, mass, nuisances[0], within)
    if tau is None or not len(state.linear):
        return average
    # the projection of tau on the linear terms
    z = state.rows.scaled(state.linear)
    middle = z.mean(axis=0)
    slopes = np.linalg.lstsq(z - middle, tau(state.rows), rcond=1e-6)[0]
    line = LinearFunction(state.linear, slopes, float(np.mean(tau(state.rows)) - middle @ slopes))
    reach = abs(line.offset) + float(np.abs(slopes).sum())  # the largest |line|
    scores = [vault.Aipw(n, state.outcome, state.clip, line, reach) for n in nuisances]
    coef = np.r_[line.offset, slopes / state.regressors.alpha]
    pilot = EffectCentre(by_fold(scores), coef)
    # both kinds of scores are clipped at the same thresholds, so the span has the ends of both
    ends, span = _ends(scores[0], state.rows, within or state.outcome), average.extremes.span
    if span is not None:
        span = min(span[0], float(ends.min())), max(span[1], float(ends.max()))
    return replace(average, pilot=pilot, extremes=replace(average.extremes, span=span))


SAME_MASS_SD, WEIGHTED_MASS_SD = 1e-6, 1.0
"""Prior sds of the mean mass: of a mass that counts rows, and of a mass with survey weights."""


def arm_target(
    state: FitState,
    nuisances: Triples,
    arm: int,
    mass: Transform | None,
    within: Outcome | None = None,
    *,
    several: bool = False,
) -> Target:
    """Target of a mean outcome: E[Y(0)] or E[Y(1)], whose difference is the ATE over its `mass`.

    With `several` arms, all others than `arm` are its control.
    """
    treated = 1 if several else arm
    centre = float(np.mean([(n.mu1 if treated else n.mu0)(state.rows).mean() for n in nuisances]))
    limits = state.outcome, state.clip, treated, centre
    scores: list[Any] = [vault.ArmScore(n, *limits) for n in nuisances]
    if not several:
        return _target(state, centre, scores, mass, nuisances[0], within)
    scores = [vault.OfArm(score, arm) for score in scores]
    mean = _target(state, centre, scores, mass, nuisances[0], within)
    return replace(mean, mass_spread=SAME_MASS_SD, arm=arm)


def _target(
    state: FitState,
    centre: float,
    scores: Sequence[Score],
    mass: Transform | None,
    nuisances: functions.NuisanceTriple,
    within: Outcome | None = None,
) -> Target:
    """Target from the scores of each fold; extremes use one fold's score and its `nuisances`.

    Survey weights multiply scores and masses.
    """
    outcome, rows, law = within or state.outcome, state.rows, state.weights
    p, *means = nuisances.values(rows)
    if law is not None:
        weight = vault.SurveyWeight(law.column, law.top)
        scores = [vault.WeightedScore(score, weight, law.mean) for score in scores]
        mass = weighted_mass(state, mass)
    ends, width = _ends(scores[0], rows, outcome), 2 * outcome.bound
    extremes = cuts_of.Extremes(
        np.abs(ends).max(axis=1),
        (ends[:, 1] - ends[:, 0]) / width,
        np.stack([1 - p, p]),
        (float(ends.min()), float(ends.max())),
        ends,
        np.clip((np.stack(means) - outcome.lo) / width, 0.0, 1.0),
    )
    score = by_fold(scores)
    weighted = law is not None
    return Target(centre, score, mass, extremes, weighted=weighted, group_masses=weighted)


def _ends(score: Score, rows: Rows, outcome: Outcome) -> Matrix:
    """Scores of the smallest and the largest outcome in each arm, shape (2, 2, N)."""
    arms = [[score.at(rows, t, y) for y in (outcome.lo, outcome.hi)] for t in (0.0, 1.0)]
    return np.array(arms)


def weighted_mass(state: FitState, mass: Transform | None) -> Transform | None:
    """The mass times survey weights, once: averages with one mass share its sums."""
    law = state.weights
    if law is None or isinstance(mass, vault.WeightedScore):
        return mass
    mass = mass or vault.OfCovariates(Constant(1.0), 1.0)
    return vault.WeightedScore(mass, vault.SurveyWeight(law.column, law.top), law.mean)


# -- the release ------------------------------------------------------------------------------

Keys = tuple[StageKey, StageKey, StageKey]
"""Stages of an average: sizes of the scores, their sums, and the sandwich's sums of their squares.

Without the sandwich, the squares are released with the scores.
"""

STAGES: Keys = (
    StageKey("average", "score sizes"),
    StageKey("average", "scores"),
    StageKey("average", "squared scores"),
)
AVERAGE_RANGE = StageKey("average", "outcome range")


AVERAGE_STEPS = (
    # the sizes of scores, or only the counts of the arms, to check a known propensity
    Step(STAGES[0], 0.12, ("sized",)),
    Step(STAGES[0], 0.01, ("not sized", "known propensity")),
    Step(AVERAGE_RANGE, 0.08, ("wide",), outcome_edges),
    Step(STAGES[1], 0.66),
    Step(STAGES[2], 0.14, ("sandwich",)),
)
"""The averages of a learner of tau(x)."""


class RequestedAverage(NamedTuple):
    """A requested average: its score combines the scores of the components with weights `parts`."""

    term: ResultTerm
    target: Target
    remainder: Remainder
    parts: Vector = np.ones(1)


def release_averages(
    state: FitState, requested: Sequence[RequestedAverage], stages: Keys, weight: float = np.inf
) -> AverageEstimate:
    """Averages with their covariance, from one release of the scores and their squares.

    Each component is clipped as it would be alone, using a histogram of its own sizes. A single
    score is released times (1, z, g), which gives slopes and groups. The scores of several averages
    are released as one vector, with noise of its possible shape. See `WeightedNuisances.weight`.
    """
    request = state.request
    components, cuts, noises = _chosen(state, requested, stages)
    # one target for each distinct mass; several targets may share a mass
    by_mass = {id(r.target.mass): r.target for r in requested if r.target.mass is not None}
    # the query for the scores, and the query for their squares with the sandwich's meat
    squares = None
    if len(requested) == 1:
        sums = summed_scores(state, requested[0].target, cuts[0].threshold, cuts[0].middle)
        if not sums.squares:
            squares = vault.ScoreSquares(sums.scores, state.regressors, meat=True)
    else:
        scores = _vector(state, requested, components, cuts, noises)
        by_group = 0, *(1 + k for k, t in enumerate(by_mass.values()) if t.group_masses)
        masses = tuple(t.mass for t in by_mass.values() if t.mass is not None)
        neighbors = request.trust.neighbors
        sums = vault.ScoreSums(scores, masses, state.regressors, neighbors, by_group, squares=True)
    state.gather({stages[1]: sums} | ({} if squares is None else {stages[2]: squares}))
    # from the released scores to the scores of the components
    back = np.linalg.inv(sums.scores.basis) if isinstance(sums.scores, ScoreVector) else np.eye(1)
    totals = _totals(state, sums, state.release(stages[1], sums), stages[1])
    if squares is not None:
        square, meat = state.read(stages[2], squares)
        totals = totals._replace(square=square, meat=meat)
    lost = 0.0 if state.beyond is None else state.beyond.lost / state.population.count
    mass_order, scored = list(by_mass), []
    for (term, target, bias, parts), cut in zip(requested, cuts, strict=True):
        # the row of the released sums that has this mass; row 0 has the number of rows
        mass_row, mass_spread = 0, SAME_MASS_SD if totals.limits[0] == totals.limits[1] else 1.0
        if target.mass is not None:
            mass_row = 1 + mass_order.index(id(target.mass))
            mass_spread = WEIGHTED_MASS_SD if target.weighted else target.mass_spread
        # share of the slope in a constant effect that remains after clipping; 1 for the ATE
        kept = 1.0
        if target.own_mass and cut.rms != 0:
            x = target.extremes
            treated = np.stack([-x.chances[1], x.chances[0]])  # T - e
            kept = cuts_of.slope_kept(
                x.weights, x.weights * treated, x.chances, cut.threshold, cut.rms
            )
        average = estimates.ScoreAverage(
            terms=(term, *(c.slope for c in state.linear.columns)),
            parts=parts @ back,
            mass=mass_row,
            centre=target.centre + cut.middle,
            clipping=cut.bias + target.extremes.units.max() * lost,
            remainder=bias,
            least_square=PRIORS.least_square * cut.rms**2,
            mass_spread=mass_spread,
            group_masses=target.group_masses,
            kept=kept,
            pilot=None if target.pilot is None else target.pilot.coef,
            middle=cut.middle,
        )
        scored.append(average)
    groups, target, cut = tuple(g.place for g in state.groups), requested[0].target, cuts[0]
    robust = request.cov_type == "HC0"
    estimate = estimates.estimate_averages(scored, groups, totals, robust=robust)
    # only a single average has clusters
    first = vault.CutScore(target.score, cut.threshold, cut.middle)
    influence = partial(influences, estimate, first, target.mass, scored[0].centre)
    estimate = with_dependence(state, estimate, influence, 1 + len(request.groups))
    return with_weights(state, replace(estimate, weight=weight))


def _totals(
    state: FitState, sums: vault.ScoreSums, release: Release, stage: StageKey
) -> estimates.ScoreTotals:
    """Parts of a release; a mass without group sums is NaN in the groups.

    With a single score, the groups have sums of either rows or masses. These sums serve as both.
    """
    read = []
    for part in (release.value, release.noise_sd):
        all_, *squares, outer, masses, of_groups = sums.split(part)
        width, none = len(outer), np.zeros((0, 0))
        sizes = np.full((1 + len(masses), 1 + of_groups.shape[1]), np.nan)
        sizes[:, 0] = outer[0, 0], *masses
        sizes[list(sums.by_group) if len(all_) > 1 else slice(None), 1:] = of_groups
        scores = np.delete(all_, np.s_[1:width], axis=1)
        read.append((scores, sizes, *(squares or [none]), all_[0, 1:width], outer, none))
    score, size, square, slope, products, meat = map(Reading, *read)
    alpha, z = state.regressors.alpha, state.rows.scaled(state.linear)
    # the number of complete rows, if it is public and no value can be missing; otherwise its
    # limits, of which the lower is at least the noise sd, so that division by the size is bounded
    public, share = state.vault.size, state.plan.stage(stage).rows
    limits = 1.0, np.inf if public is None else public * share
    if public is None or state.request.trust.unit is not None:
        limits = max(float(size.sd[0, 0]), 1.0), np.inf
    elif state.schema.complete and share == 1.0:
        limits = float(public), float(public)
    return estimates.ScoreTotals(
        score=score,
        size=size,
        square=square,
        slope=slope,
        outer=products,
        meat=meat,
        points=np.hstack([np.ones((len(z), 1)), alpha * z]),
        units=alpha * np.array([c.per_unit for c in state.linear.columns]),
        parts=partitions(state.groups, state.schema, state.request.needed),
        limits=limits,
    )


def _chosen(
    state: FitState, requested: Sequence[RequestedAverage], stages: Keys
) -> tuple[list[int], list[Cut], list[float]]:
    """Positions of the components, in the vector's order, and thresholds of averages and noise.

    Each component has its own threshold; other averages combine the biases of their components.
    Thresholds follow from the sizes of each score by arm, but not for a binary outcome or scores of
    survival times. If the propensity is known, the histograms of sizes count the arms too. These
    outcomes then need only these counts.
    """
    # the averages whose scores are entries of the vector
    entries = [k for k, average in enumerate(requested) if average.parts.min() >= 0]
    components = sorted(entries, key=lambda k: int(np.argmax(requested[k].parts)))
    targets, sizes = [requested[k].target for k in components], dict[int, cuts_of.ArmSizes]()
    two_valued = not isinstance(state.schema[state.request.formula.outcome], Interval)
    binary = (two_valued or state.curves) and state.weights is None
    declared, planned = declared_shares(state, targets), state.plan.has(stages[0])
    if planned and binary and not declared:
        state.unused(stages[0])
    elif planned:
        bins, histograms = cuts_of.SIGNED_HALF_OCTAVES, []
        for target in targets[: len(declared)] if binary else targets:
            control, treated = map(float, target.extremes.factors)
            size = vault.ArmSize(target.score, (control, treated), target.arm, signed=True)
            borders = cuts_of.score_edges(size.bound, bins)[:-1]
            edges = np.array([size.bound]) if binary else np.r_[-borders[::-1], 0.0, borders]
            histograms.append(vault.ArmHistogram(size, edges, "score sizes", target.arm))
        counts, noise_sd = _counts(state, stages[0], histograms, declared)
        for k, c, histogram in () if binary else zip(components, counts, histograms, strict=True):
            x = requested[k].target.extremes
            edges = cuts_of.score_edges(histogram.target.bound, bins)
            sizes[k] = cuts_of.ArmSizes.by_sign(c, noise_sd, edges, x.factors, x.weights)
    cuts, noises = [], []
    for k, average in enumerate(requested):
        noise = noise_per_cut(state, summed_scores(state, average.target), stages[1])
        cut = score_cut(
            average.target.extremes,
            noise,
            sizes.get(k),
            state.look,
            state.population.count,
            anywhere=state.request.tails == "any",
            movable=len(requested) == 1 and average.target.mass is None,
            doubt=average.target.doubt,
        )
        cuts.append(cut)
        noises.append(noise * cut.threshold)
    component_bias = np.array([cuts[k].bias for k in components])
    biases = [float(np.abs(average.parts) @ component_bias) for average in requested]
    cuts = [replace(cut, bias=bias) for cut, bias in zip(cuts, biases, strict=True)]
    return components, cuts, noises


def _vector(
    state: FitState,
    requested: Sequence[RequestedAverage],
    components: Sequence[int],
    chosen: Sequence[Cut],
    noises: Sequence[float],
) -> ScoreVector:
    """The scores in a basis with row norms of at most 1, chosen for small predicted variances.

    Each average is weighted by the inverse of its own squared noise, clipping bias, and nuisance
    error.

    Between the points where some score meets its threshold, the norm of the clipped scores is a
    convex function of the outcome. It is therefore largest at these points or at the ends of the
    outcome's bounds. The shape contains the scores at all these points.
    """
    scores = []
    arms = range(len(state.request.arms) or 2)
    for k in components:
        target = requested[k].target
        score = target.score
        first: Any = score.transforms[0] if isinstance(score, vault.ByFold) else score
        treated = [float(arm == target.arm) for arm in arms]
        ends = state.outcome.lo, state.outcome.hi
        scores.append([[first.at(state.rows, t, y) for t in treated] for y in ends])
    low, high = np.moveaxis(np.array(scores), 0, -1)  # (2, N, J) each
    cuts = np.array([chosen[k].threshold for k in components])
    slope = np.where(high == low, np.inf, high - low)
    meets = np.concatenate([(s * cuts - low) / slope for s in (-1.0, 1.0)], axis=-1)
    at = np.moveaxis(np.clip(meets, 0.0, 1.0), -1, 0)[..., None]
    at = np.concatenate([at, np.zeros_like(at[:1]), np.ones_like(at[:1])])
    all_ = np.clip(low + at * (high - low), -cuts, cuts).reshape(-1, len(cuts))
    worth = np.zeros((len(cuts),) * 2)
    for average, cut, sd in zip(requested, chosen, noises, strict=True):
        error = sd**2 + cut.bias**2 + average.remainder.rms**2
        worth += np.outer(average.parts, average.parts) / error
    some = all_[:: max(THINNED, len(all_) // MOST_SHAPE_POINTS)]
    basis = np.linalg.inv(np.linalg.cholesky(estimates.noise_shape(some, worth)))
    basis /= max(1.0, float(np.linalg.norm(all_ @ basis.T, axis=1).max()))
    return ScoreVector(tuple(requested[k].target.score for k in components), cuts, basis)


THINNED, MOST_SHAPE_POINTS = 4, 10_000
"""Thinning of the points that determine the shape, and about how many points to keep.

The shape is then scaled to contain all points.
"""


def _counts(
    fit: first_stages.Fit,
    stage: StageKey,
    histograms: Sequence[vault.ArmHistogram],
    declared: Sequence[tuple[float, float]],
) -> tuple[list[Matrix], float]:
    """Counts by arm for each histogram, and their noise sd.

    If shares are `declared`, the counts of the arms are checked against them. Otherwise the moments
    of the treatment have already shown the arms.
    """
    first, many = histograms[0], len(histograms) > 1
    release = fit.release(stage, vault.ArmHistograms(tuple(histograms)) if many else first)
    parts, noise_sd = np.split(release.value, len(histograms)), float(release.noise_sd[0])
    counts = [part.reshape(2, -1) for part in parts]
    for by_arm, share, histogram in zip(counts, declared, histograms, strict=False):
        fit.check_arms(by_arm.sum(axis=1), noise_sd * first.cells**0.5, share, histogram.arm)
    return counts, noise_sd


def declared_shares(state: FitState, targets: Sequence[Target] = ()) -> list[tuple[float, float]]:
    """Limits of the mean known propensity, or the known share of each target's arm, if declared.

    The mean of a column is known if the column is a covariate, from its released distribution.
    """
    request, known = state.request, state.propensity
    if isinstance(known, functions.Known):
        column, count = state.rows.frame.get(str(request.propensity)), state.population.count
        if column is None:
            return [(known.lo, known.hi)]
        mean = float(np.mean(column))
        doubt = estimates.FEW_SDS * (known.hi - known.lo) * state.population.count_sd / count
        return [(max(mean - doubt, known.lo), min(mean + doubt, known.hi))]
    if isinstance(known, Constant):
        return [(known.value, known.value)]
    if not isinstance(request.propensity, Mapping):
        return []
    shares = [float(request.propensity[request.arms[target.arm]]) for target in targets]
    return [(share, share) for share in shares]


def row_sizes(
    fit: first_stages.Fit,
    stage: StageKey,
    target: Transform,
    what: str = "score sizes",
    declared: Sequence[tuple[float, float]] = (),
) -> cuts_of.ArmSizes:
    """Sizes over all rows of all arms; the arms are counted too if a share is `declared`."""
    borders, alone = cuts_of.score_edges(target.bound), np.ones(1)
    if not declared:
        release = fit.release(stage, vault.SizeHistogram(target, borders, what))
        return cuts_of.ArmSizes(release.value[None], float(release.noise_sd[0]), borders, alone)
    histogram = vault.ArmHistogram(vault.ArmSize(target, (1.0, 1.0)), borders[:-1], what)
    (counts,), noise_sd = _counts(fit, stage, [histogram], declared)
    return cuts_of.ArmSizes(counts.sum(axis=0)[None], np.sqrt(2.0) * noise_sd, borders, alone)


def summed_scores(
    state: FitState, target: Target, cut: float = 1.0, middle: float = 0.0
) -> vault.ScoreSums:
    """The sums of the scores' distances from the `middle`, clipped at `cut`."""
    request = state.request
    return vault.ScoreSums(
        vault.CutScore(target.score, cut, middle),
        () if target.mass is None else (target.mass,),
        state.regressors,
        request.trust.neighbors,
        (int(target.group_masses),),
        None if target.pilot is None else target.pilot.score,
        squares=request.cov_type != "HC0" or bool(request.arms),  # without the sandwich
    )


def noise_per_cut(state: FitState, sums: vault.Mechanism, stage: StageKey) -> float:
    """Noise sd of the mean score per unit of its clipping threshold."""
    change = sums.sensitivity(state.request.trust.neighbors)
    unit = float(sums.units[0])
    return budget.noise_sd(state.plan, stage, change, unit) / state.population.count


# -- limits of weights, and the averages of a call ---------------------------------------------


class WeightedNuisances(NamedTuple):
    """The nuisances for the scores of an average.

    `nuisances` holds one entry per fold. `remainder` is the distribution of the bias from their
    errors. `weight` is the maximum weight of a row, relative to its weight in a difference of
    means.
    """

    nuisances: Triples
    remainder: Remainder
    weight: float = np.inf


FACTORS = (np.inf, 4.0, 3.2, 2.5, 2.0, 1.6, 1.25, 1.0)
"""Maximum weights of a row, relative to a difference of means; the first has no limit. The entry of
this grid with the smallest predicted error is used.
"""


FEW, UNLIKE = 0.15, 0.5
"""Share of the rarer arm, and standardized difference of the arms' baselines, that raise an alert.

Rubin (2001) advises against regression adjustment above half a standard deviation. Of 36 public
data sets, four have alerts, all with poor overlap; one of them is covered in few fits.
"""

UNLIKE_ALERT = (
    "Few rows are in one arm ({share:.0%}), and the baseline outcome that covariates predict "
    "differs by {gap:.1f} standard deviations between the arms. The average effect over all rows "
    "extrapolates from few rows, and its interval may undercover. Consider estimand='ATT' or 'ATO'."
)


def choose_limits(
    state: first_stages.FitState,
    partials: Folds,
    nuisances: Triples,
    tau: Effect,
    stage: StageKey,
    arm: tuple[int, vault.Transform] | None = None,
) -> WeightedNuisances:
    """Choose the weight limits with the smallest predicted squared error.

    A score divides by the propensity. If the propensity is small, the score and the noise it needs
    are large. Limits on the propensity reduce this noise but add a bias. The bias is the part of
    the fitted propensity beyond the limits, times the error of the mean outcome. The distribution
    of that bias is known from the releases and enters the interval. If the arms' shares are the
    only weights, the average is the difference of the arms' means, adjusted by the mean outcome
    alone.

    `partials` have propensity and mean outcome by fold, and `nuisances` those of the scores. A
    known propensity has no limits. `tau` is the effect that is already known, and `stage` the stage
    of the scores. The default is the ATE; `arm` is one of several arms, for its mean outcome, with
    the mass of its score.
    """
    if partials[0].pair is None:
        two_valued = not isinstance(state.schema[state.request.formula.outcome], Interval)
        if state.propensity is not None and two_valued and arm is None:
            nuisances = narrowed(state, nuisances, stage)
        return WeightedNuisances(nuisances, remainder(state, partials))
    share = float(np.mean([p.e(state.rows).mean() for p in partials]))
    # an alert if one arm is small and its covariates are unlike the other's
    if arm is None and min(share, 1 - share) < FEW and "arm" not in state.alerts:
        phi, gaps = state.rows.phi(state.features), []
        for pair in (part.pair for part in partials if part.pair is not None):
            e, baseline = (phi @ slopes for slopes in pair.slopes)
            covariance = float(np.mean((e - e.mean()) * (baseline - baseline.mean())))
            gaps.append(covariance / (share * (1 - share) * (float(baseline.std()) + 1e-300)))
        gap = abs(float(np.mean(gaps)))
        if gap > UNLIKE:
            text = UNLIKE_ALERT.format(share=min(share, 1 - share), gap=gap)
            state.alerts["overlap"] = text
    term = ATE_TERM if arm is None else ResultTerm("mean", "E[Y(1)]", arm=1)  # against all others
    centre, chosen, best = float(np.mean(tau(state.rows))), None, np.inf
    count = state.population.count
    window = state.look.window if state.look is not None else state.outcome
    within = vault.Outcome(window.lo, window.hi)
    for factor in FACTORS:
        most = 1 - (1 - share) / factor if arm is None else 1.0
        parts = tuple(limited(p, share / factor, most) for p in partials)
        scored = tuple(replace(n, e=p.e) for n, p in zip(nuisances, parts, strict=True))
        if arm is None:
            average = average_target(state, scored, centre, within=within)
        else:
            average = arm_target(state, scored, *arm, within, several=True)
        bias = remainder(state, parts, term, tau)
        # squared noise plus squared bias of the best threshold, for any sizes within the extremes
        noise = noise_per_cut(state, summed_scores(state, average), stage)
        cut = score_cut(average.extremes, noise, None, None, count)
        clipping = float((noise * cut.threshold) ** 2 + cut.bias**2)
        # sampling variance of an average whose outcomes vary as usual around their means
        tilts = [bias_weight(term, p.e(state.rows), state.clip).mean() for p in parts]
        variance = PRIORS.outcome_noise_sd**2 * state.variance * np.mean(tilts)
        loss = bias.rms**2 + clipping + float(variance / count)
        if chosen is None or loss < best:
            best, chosen = loss, WeightedNuisances(scored, bias, factor)
    assert chosen is not None
    return chosen


MODEL_ENDS = 7
"""Quantiles of the fitted means that are tried on each side."""


def narrowed(state: first_stages.FitState, nuisances: Triples, stage: StageKey) -> Triples:
    """Arm means within the limits of least predicted variance, for two values and a known e.

    Scores then lie between public numbers, and nothing else is clipped. Wide means shrink the
    residuals but need noise for a wide range of scores. With a known propensity, any means leave
    the average without bias, so the limits cost only the variance that the means would explain. If
    even wide limits explain little, the means become constant.
    """
    rows, p = state.rows, nuisances[0].e(state.rows)
    count = state.population.count
    narrowest, best = nuisances, np.inf
    control, treated = nuisances[0].mu0(rows), nuisances[0].mu1(rows)
    full, means = (1 - p) * treated + p * control, np.r_[control, treated]
    ends = np.quantile(means, np.linspace(0.0, 1.0, 2 * MODEL_ENDS - 1))
    for low in map(float, ends[:MODEL_ENDS]):
        for high in map(float, ends[MODEL_ENDS - 1 :]):
            scored = tuple(
                replace(n, mu0=replace(n.mu0, lo=low, hi=high), mu1=replace(n.mu1, lo=low, hi=high))
                if isinstance(n.mu0, functions.ArmMean) and isinstance(n.mu1, functions.ArmMean)
                else n
                for n in nuisances
            )
            average = average_target(state, scored, 0.0)
            noise = noise_per_cut(state, summed_scores(state, average), stage)
            cut = score_cut(average.extremes, noise, None, None, count, movable=True)
            mixed = (1 - p) * scored[0].mu1(rows) + p * scored[0].mu0(rows)
            lost = float(np.mean((mixed - full) ** 2 / (p * (1 - p)))) / count
            loss = (noise * cut.threshold) ** 2 + cut.bias**2 + lost
            if loss < best:
                best, narrowest = loss, scored
    return narrowest


# -- the averages of a call --------------------------------------------------------------------


def requested_averages(
    state: first_stages.FitState, partials: Folds, nuisances: Triples, tau: Effect, stage: StageKey
) -> tuple[list[RequestedAverage], float]:
    """The requested averages, then the risks for ratios; and a row's maximum weight in the ATE.

    `stage` is the stage of the scores.
    """
    terms, weight = state.request.terms, np.inf
    effects, means = ([term for term in terms if term.kind == k] for k in ("effect", "mean"))
    averages, risks = list[RequestedAverage](), list[RequestedAverage]()
    units = np.eye(len(effects) + bool(means))
    for term, unit in zip(effects, units, strict=False):
        if isinstance(tilted := ESTIMANDS[term.of], Tilted):
            # score and mass of the ATT or the ATO, centered at its weighted mean of tau(x)
            ends = state.outcome, state.clip, state.soft_clip
            pairs = zip(partials, nuisances, strict=True)
            folds = [ScoreParts(p.e_soft, p.eta, n.mu0, n.mu1, *ends) for p, n in pairs]
            tilt, reach = tilted.tilt(folds[0].e(state.rows)), 2 * state.outcome.bound
            centre = float(np.clip(np.average(tau(state.rows), weights=tilt), -reach, reach))
            scale = float(np.mean(tilt))
            scores = [tilted.score(fold, centre, scale) for fold in folds]
            mass = by_fold(tilted.mass(fold, scale) for fold in folds)
            # scores that divide by 1 - e limit it
            e, most = folds[0].e, Constant(1 - state.clip)
            e = functions.Pointwise(np.minimum, e, most) if tilted.by_rest else e
            average = _target(state, centre, scores, mass, replace(nuisances[0], e=e))
            average = replace(average, mass_spread=PRIORS.mass_sd, own_mass=True, group_masses=True)
            averages.append(RequestedAverage(term, average, remainder(state, partials, term), unit))
            continue
        scored = choose_limits(state, partials, nuisances, tau, stage)
        centre, weight = float(np.mean(tau(state.rows))), scored.weight
        average = average_target(state, scored.nuisances, centre)
        if state.propensity is not None:
            # Clipped scores of a small arm pull the average to the first effect. Without this, a
            # trial of 4,000 rows with 3% treated is covered 82% of the time, and 91% with it.
            average = replace(average, doubt=float(np.sqrt(tau.pieces[0].cov[0, 0])))
        if means:
            share = float(np.mean([p.e(state.rows).mean() for p in partials]))
            limits = share / weight, 1 - (1 - share) / weight
            within = tuple(limited(p, *limits) for p in partials)
            for arm, (mean, parts) in enumerate(zip(means, (unit, units[-1]), strict=True)):
                risk = arm_target(state, scored.nuisances, arm, average.mass)
                bias = remainder(state, within, mean, tau)
                risks.append(RequestedAverage(mean, risk, bias, parts))
            centre = risks[1].target.centre - risks[0].target.centre
            average = replace(average_target(state, scored.nuisances, centre), mass=average.mass)
        parts = units[-1] - unit if means else unit
        averages.append(RequestedAverage(term, average, scored.remainder, parts))
    return [*averages, *risks], weight


# -- survey weights: their sentences in results, and an alert if they vary much -----------------

MOST_DESIGN_EFFECT = 2.0
"""Design effect of weights that raises an alert. Common surveys have 1.2 to 2."""

VARIED = (
    "Weights vary much: their design effect is {effect:.1f}, and the largest weight in use is "
    "{most:.0f} times the mean. Intervals are therefore wider than without weights. If covariates "
    "explain the weights, add these covariates to the formula and leave weights= out."
)


def with_weights(state: FitState, estimate: AverageEstimate) -> AverageEstimate:
    """The averages with the weights' design effect and largest weight; an alert if they vary."""
    law = state.weights
    if law is None:
        return estimate
    if law.design_effect > MOST_DESIGN_EFFECT:
        text = VARIED.format(effect=law.design_effect, most=law.top / law.mean)
        state.alerts["weights"] = text
    return replace(estimate, weighting=law.design_effect, most_weight=law.top)


ASSUMED = (
    "Estimates describe the population that the rows represent with the weights {name!r}. A weight "
    "is inversely proportional to the chance that a row is in the data."
)

WEIGHING = (
    "Rows were weighted by {name!r}. A noisy histogram located the weights; weights above {most} "
    "counted as {most}. The design effect of the weights is the ratio of their mean square to the "
    "square of their mean (Kish 1965)."
)

NUISANCES = (
    f" In propensity and mean outcome, weights above {LARGEST_USUAL:g} times the mean counted as "
    f"{LARGEST_USUAL:g} times the mean."
)


# -- clusters: intervals from squared sums ----------------------------------------------------

MIN_CLUSTERS = 30.0
"""Number of clusters below which a result warns: standard errors are then too small."""

ASSUMED_CORRELATION = 0.1
"""With this correlation within clusters, `cluster_cap` clips few sums. By hand."""

CAP_SDS = 2.5
"""Limit of a cluster's sum, in its standard deviations at that correlation. By hand."""

MAX_CORRECTION = 2.7
"""Largest factor for clipped sums: at a correlation of 1, normal sums need 2.7 at most."""


def cluster_cap(rms: float, max_rows: int) -> float:
    """Limit of the sum of up to `max_rows` scores with this root mean square.

    At any correlation, the limit is at least 0.8 standard deviations of the sum. `correction` makes
    up for clipped sums.
    """
    variance = max_rows * (1 + (max_rows - 1) * ASSUMED_CORRELATION)
    return float(min(CAP_SDS * rms * math.sqrt(variance), max_rows))


def correction(share: float) -> float:
    """Variance of a normal sum over its mean square after clipping.

    `share` is that mean square over the squared limit, E[min(Z^2, c^2)] / c^2 for a limit of c
    standard deviations. It decreases with c.
    """
    c = np.geomspace(8.0, 0.5, 400)
    square = 1 - 2 * norm.sf(c) - 2 * c * norm.pdf(c) + 2 * c**2 * norm.sf(c)
    return float(min(np.interp(share, square / c**2, 1 / square), MAX_CORRECTION))


# -- clusters: the release --------------------------------------------------------------------

CLUSTER_SQUARES = StageKey("effect", "squared cluster sums", heading="variance")

FEW_CLUSTERS = (
    "Fewer than {least:g} clusters (about {clusters:.0f}, by a noisy count). Cluster-robust "
    "standard errors may be too small. Use data with more clusters."
)


LARGER_CLUSTERS = (
    "The mean cluster has about {mean:,.0f} rows, by noisy counts, but max_cluster_rows={most} was "
    "declared, so cluster sums were clipped too far. Standard errors are those of clusters of one "
    "size with equal rows. Repeat the fit with a larger max_cluster_rows=. "
)


CLUSTER_STEP = Step(CLUSTER_SQUARES, 0.4, ("clusters",))


class ClusterScore(NamedTuple):
    """The score of one estimate, its place, and the mass that the estimate divides it by.

    `place` is 0 for all rows and k for group k - 1; `rows` is the (noisy) number of its rows. The
    score's middle is its mean, so that the scores are the influences of the rows on the estimate.
    """

    score: CutScore
    place: int
    mass: float
    rows: float


def influences(
    estimate: AverageEstimate, score: CutScore, mass: Transform | None, centre: float
) -> list[ClusterScore]:
    """Scores of an average and its groups, whose masses are shares of the total mass.

    The estimates are ratios of sums of the clipped `score` and of the `mass`, plus the `centre`.
    """
    out = []
    for place, share in enumerate(np.r_[1.0, estimate.shares]):
        mean = float(np.nan_to_num(estimate.estimate[place] - centre))
        influence = Influence(score.score, mass, mean)
        clipped = CutScore(influence, score.cut + abs(mean), score.middle)
        out.append(ClusterScore(clipped, place, share * estimate.mass, share * estimate.size))
    return out


def with_dependence(
    fit: first_stages.Fit,
    estimate: AverageEstimate,
    scores_of: Callable[[], Sequence[ClusterScore]],
    most: int,
) -> AverageEstimate:
    """The estimate with sampling variances for dependent rows of a cluster, or of a unit.

    A row has at most `most` of the scores, which only clusters need.

    An estimate is a sum of scores over a mass M. Its cluster-robust variance is
    G / (G - 1) sum_c S_c^2 / M^2 for the sums S_c over G clusters. Sums are assumed normal to
    correct for their limits. The variance is raised by the noise of its squares. It is at most
    `limit` times the variance for independent rows: the largest cluster times by Cauchy-Schwarz,
    unless that variance assumes homoskedasticity. Correlations of estimates are those for
    independent rows.

    Degrees of freedom use a lower limit of the number of clusters. If the noisy number shows fewer
    clusters than the rows and the largest cluster imply, sums were clipped too far. The variance is
    then that of equal rows in clusters of one size, its largest for this size.
    """
    request = fit.request
    if request.cluster is None:
        return with_design_effect(estimate, request.trust.max_rows)
    most_rows, scores = request.cluster.max_rows, scores_of()
    units = np.array([score.score.cut for score in scores])
    masses = np.array([score.mass for score in scores])
    rms = [
        np.sqrt(variance / max(score.rows, 1.0)) * score.mass / score.score.cut
        for variance, score in zip(np.diag(estimate.sampling), scores, strict=True)
        if 0 < variance < np.inf and score.mass > 0
    ]
    cap = cluster_cap(max(rms, default=1.0), most_rows)
    if not np.diag(estimate.privacy).any():
        cap = float(most_rows)  # Tests without noise clip no influence.
    query = ClusterSquares(
        tuple(score.score for score in scores),
        tuple(score.place for score in scores),
        most,
        cap,
        request.trust.neighbors,
    )
    # squared cluster sums of the scores of each estimate, then the number of clusters
    release = fit.release(CLUSTER_SQUARES, query)
    value, sd = release.value, release.noise_sd
    number, number_sd, limits = float(value[-1]), float(sd[-1]), query.cap * units
    # Noise shows fewer clusters than there are with chance 1e-6.
    size_sd = float(np.nan_to_num(estimate.size_sd, posinf=0.0))
    margin = float(norm.isf(1e-6)) * math.hypot(number_sd, size_sd / most_rows)
    rows, larger = np.diag(estimate.sampling), number + margin < estimate.size / most_rows
    least = 2.0 if larger else max(estimate.size / most_rows, 2.0)
    clusters, variance = max(number, least), rows.copy()
    limit = np.inf if request.regression else float(most_rows)
    for j in np.flatnonzero(np.isfinite(rows) & (rows > 0) & (masses > 0)):
        floor = PRIORS.least_unexplained * rows[j] * masses[j] ** 2
        share = max(float(value[j]), floor) / (clusters * limits[j] ** 2)
        total = raised(float(value[j]), float(sd[j]), floor) * correction(share)
        robust = total / masses[j] ** 2 * clusters / (clusters - 1)
        variance[j] = min(robust, limit * rows[j] * clusters / (clusters - 1))
    change = np.sqrt(np.divide(variance, rows, out=np.ones(len(rows)), where=variance != rows))
    independent, lowest = estimate.sampling, max(number - number_sd, least)
    with np.errstate(invalid="ignore"):
        sampling = np.where(independent == 0, 0.0, independent * np.outer(change, change))
    if larger:
        sampling = independent * estimate.size / lowest * clusters / (clusters - 1)
        change = np.full_like(change, np.sqrt(estimate.size / lowest))
    likely, alert = max(number, lowest), ""
    if larger:
        alert = LARGER_CLUSTERS.format(mean=estimate.size / likely, most=most_rows)
    if likely < MIN_CLUSTERS:
        alert += FEW_CLUSTERS.format(least=MIN_CLUSTERS, clusters=likely)
    if alert:
        fit.alerts["clusters"] = alert.strip()
    effect = float(change[0] ** 2)
    return replace(estimate, sampling=sampling, clusters=float(lowest), design_effect=effect)


CLUSTERED = (
    "Clusters: rows of different {name!r} are independent, and no cluster has more than {most:,} "
    "rows."
)

METHOD = (
    "Sampling standard errors are cluster-robust by {name!r} (Liang and Zeger 1986), from noisy "
    "sums of the squared sums of scores by cluster. Intervals use Student's t distribution with "
    "the number of clusters less one as its degrees of freedom. Cluster sums were clipped at "
    f"{CAP_SDS:g} standard deviations for a correlation of {ASSUMED_CORRELATION:g} within "
    "clusters; a correction for clipped sums assumes that the sums are normal. The allowance for "
    "nuisance errors treats rows as independent."
)
