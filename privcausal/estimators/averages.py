"""Average effects for all learners: the sums of their scores over the rows, clipping, and weights.

The estimate is c + sum(score) / sum(mass), as in `estimands`. Scores are centered at a value c near
the average, so scores are small and noise in the mass matters little. The same sums give the
effects in groups and the best linear projection. Several averages share one release of their
scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from privcausal import vault
from privcausal.accounting.charge import Release
from privcausal.estimators import budget, survey
from privcausal.estimators.bases import PrivateBase
from privcausal.estimators.budget import Use
from privcausal.estimators.clusters import influences, with_dependence
from privcausal.estimators.estimands import ESTIMANDS, Score, ScoreParts, Tilted, estimand_of
from privcausal.estimators.nuisances import (
    FoldFit,
    Folds,
    by_fold,
    compare_arms,
    limited,
    remainder,
)
from privcausal.estimators.survey import Survey
from privcausal.estimators.weights import with_weights
from privcausal.features import functions
from privcausal.features.functions import Constant, Function, LinearFunction, Triples
from privcausal.features.rows import Rows
from privcausal.inference import averages as estimates
from privcausal.inference import cuts as cuts_of
from privcausal.inference.averages import AverageEstimate
from privcausal.inference.confounding import Remainder
from privcausal.inference.cuts import Cut, score_cut
from privcausal.inference.effects import Effect
from privcausal.inference.noisy import Reading
from privcausal.inference.priors import PRIORS
from privcausal.request.factors import partitions
from privcausal.request.plan import StageKey
from privcausal.request.request import Request
from privcausal.request.schema import Interval
from privcausal.request.terms import ATE_TERM, ResultTerm
from privcausal.typing import Matrix, Vector
from privcausal.vault import Outcome, ScoreVector, Transform


@dataclass(frozen=True, eq=False)
class EffectCentre:
    """The projection a'coef of a known effect, and scores centered at this projection.

    The slopes are the pilot's slopes plus the slopes of the remaining effect. This is exact because
    both are linear in the score. The range of the remaining effect does not grow with the effect,
    so clipping removes a smaller part.
    """

    score: Transform
    coef: Vector


@dataclass(frozen=True, eq=False)
class Target:
    """The score and the mass to sum for an average effect.

    Attributes
    ----------
    centre : float
        c, in units of the outcome.
    score : Transform
        Score of each row, from the nuisances of its own fold.
    mass : Transform or None
        Mass of each row, near 1 on average. None means that each row counts as 1.
    extremes : Extremes
        Largest possible scores.
    mass_spread : float
        Prior sd of the mean mass around 1, without survey weights.
    own_mass : bool
        Whether the estimand gives rows unequal masses, as the ATT and the ATO do.
    weighted : bool
        Whether rows have survey weights.
    pilot : EffectCentre or None
        Center of the scores for the slopes.
    arm : int
        The arm that counts as treated.
    """

    centre: float
    score: Transform
    mass: Transform | None
    extremes: cuts_of.Extremes
    mass_spread: float = PRIORS.balance_sd
    own_mass: bool = False
    weighted: bool = False
    pilot: EffectCentre | None = None
    arm: int = 1

    @property
    def group_masses(self) -> bool:
        """Whether groups are weighted by their own mass. If False, they are weighted by rows."""
        return self.own_mass or self.weighted

    @property
    def spread(self) -> float:
        """Prior sd of the mean mass around 1; with survey weights, their mean is a rough number."""
        return WEIGHTED_MASS_SD if self.weighted else self.mass_spread

    def kept(self, cut: float, rms: float) -> float:
        """Share of the slope in a constant effect that remains after clipping; 1 for the ATE.

        `rms` is the root mean square of the scores, or 0 if it is unknown.
        """
        if not self.own_mass or rms == 0:
            return 1.0
        x = self.extremes
        left = np.stack([-x.chances[1], x.chances[0]])  # T - e
        return cuts_of.slope_kept(x.weights, x.weights * left, x.chances, cut, rms)


def target(
    estimand: Tilted, state: Survey, partials: Sequence[FoldFit], nuisances: Triples, tau: Function
) -> Target:
    """Score and mass of the ATT or the ATO, centered at the estimand's weighted mean of tau(x)."""
    limits = state.outcome, state.clip, state.soft_clip
    known = [
        ScoreParts(p.e_soft, p.eta, n.mu0, *limits)
        for p, n in zip(partials, nuisances, strict=True)
    ]
    weight = estimand.tilt(known[0].e(state.rows))
    centre = _held(state, float(np.average(tau(state.rows), weights=weight)))
    scale = float(np.mean(weight))
    scores = [estimand.score(k, centre, scale) for k in known]
    mass = by_fold(lambda k: estimand.mass(k, scale), known)
    found = _target(state, centre, scores, mass, estimand.limited(known[0]))
    return replace(found, mass_spread=PRIORS.mass_sd, own_mass=True)


def average_target(
    state: Survey,
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
    centre = _held(state, centre)
    scores = [
        vault.Aipw(n, state.outcome, state.clip, Constant(centre), abs(centre)) for n in nuisances
    ]
    mass = None
    if state.known is None and state.weights is None:
        mass = by_fold(lambda n: vault.MassBalance(n.e, state.clip), nuisances)
    found = _target(state, centre, scores, mass, nuisances[0].e, within)
    if tau is None:
        return found
    return _with_pilot(found, state, nuisances, tau, within or state.outcome)


SAME_MASS_SD, WEIGHTED_MASS_SD = 1e-6, 1.0
"""Prior sds of the mean mass: of a mass that counts rows, and of a mass with survey weights."""


def arm_target(
    state: Survey,
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
        return _target(state, centre, scores, mass, nuisances[0].e, within)
    scores = [vault.OfArm(score, arm) for score in scores]
    found = _target(state, centre, scores, mass, nuisances[0].e, within)
    return replace(found, mass_spread=SAME_MASS_SD, arm=arm)


def _target(
    state: Survey,
    centre: float,
    scores: Sequence[Score],
    mass: Transform | None,
    e: Function,
    within: Outcome | None = None,
) -> Target:
    """Target from the scores of each fold; extremes use one fold's score and its propensity `e`.

    Survey weights multiply scores and masses.
    """
    outcome, rows, p, law = within or state.outcome, state.rows, e(state.rows), state.weights
    if law is not None:
        weight = vault.SurveyWeight(law.column, law.top)
        scores = [vault.WeightedScore(score, weight, law.mean) for score in scores]
        mass = weighted_mass(state, mass)
    ends = _ends(scores[0], rows, outcome)
    extremes = cuts_of.Extremes(
        np.abs(ends).max(axis=1),
        (ends[:, 1] - ends[:, 0]) / (2 * outcome.bound),
        np.stack([1 - p, p]),
        (float(ends.min()), float(ends.max())),
    )
    target = by_fold(lambda s: s, scores)
    return Target(centre, target, mass, extremes, weighted=law is not None)


def _ends(score: Score, rows: Rows, outcome: Outcome) -> Matrix:
    """Scores of the smallest and the largest outcome in each arm, shape (2, 2, N)."""
    return np.array([
        [score.at(rows, t, y) for y in (outcome.lo, outcome.hi)] for t in (0.0, 1.0)
    ])  # fmt: skip


def weighted_mass(state: Survey, mass: Transform | None) -> Transform | None:
    """The mass times survey weights, once: averages with one mass share its sums."""
    law = state.weights
    if law is None or isinstance(mass, vault.WeightedScore):
        return mass
    mass = mass or vault.OfCovariates(Constant(1.0), 1.0)
    return vault.WeightedScore(mass, vault.SurveyWeight(law.column, law.top), law.mean)


def _with_pilot(
    found: Target, state: Survey, nuisances: Triples, tau: Function, outcome: Outcome
) -> Target:
    """The target, with scores of the slopes that are centered at the projection of tau.

    Both kinds of scores are clipped at the same thresholds, so the span has the ends of both.
    """
    if not len(state.linear):
        return found
    z = state.rows.scaled(state.linear)
    middle = z.mean(axis=0)
    slopes = np.linalg.lstsq(z - middle, tau(state.rows), rcond=1e-6)[0]
    centre = LinearFunction(state.linear, slopes, float(np.mean(tau(state.rows)) - middle @ slopes))
    scores = [vault.Aipw(n, state.outcome, state.clip, centre, centre.bound) for n in nuisances]
    coef = np.r_[centre.offset, slopes / state.regressors.alpha]
    pilot = EffectCentre(by_fold(lambda s: s, scores), coef)
    ends, span = _ends(scores[0], state.rows, outcome), found.extremes.span
    if span is not None:
        span = min(span[0], float(ends.min())), max(span[1], float(ends.max()))
    return replace(found, pilot=pilot, extremes=replace(found.extremes, span=span))


def _held(state: Survey, centre: float) -> float:
    """Clip the center to the range of possible effects."""
    reach = 2 * state.outcome.bound
    return float(np.clip(centre, -reach, reach))


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


def with_meat(request: Request, _: object = None) -> bool:
    """Whether the sandwich is requested. Only an average released alone has slopes, so has meat."""
    return request.cov_type == "HC0" and not request.arms


def _sized(request: Request, base: PrivateBase) -> bool:
    """The sizes of a binary outcome's scores are known, unless rows have survey weights."""
    return budget.wide(request, base) or request.weights is not None


def sizes_of_scores(
    stage: StageKey, weight: budget.Weighing, why: str, *when: budget.When
) -> tuple[Use, ...]:
    """The sizes of scores, or only the counts of the arms, to check a known propensity."""
    return Use(stage, weight, why, _sized, *when), Use(
        stage, 0.01,
        "With a known propensity, counts the arms to 1% of the rows at n = 5,000 and eps = 1.",
        lambda request, base: not _sized(request, base), budget.known, *when,
    )  # fmt: skip


AVERAGE_USES = (
    *sizes_of_scores(
        STAGES[0], 0.12,
        "Sizes of scores by arm; the maximum clipping bias falls with its noise. Building half.",
    ),
    Use(AVERAGE_RANGE, 0.08, "A histogram of the outcome, so that loose bounds cost little. "
        "Building half.", budget.wide),
    Use(STAGES[1], 0.66, "The estimate itself. Building half."),
    Use(STAGES[2], 0.14, "Its noise is added to the variance, so a small weight widens intervals. "
        "Building half.", with_meat),
)  # fmt: skip
"""The averages of a learner of tau(x)."""


class One(NamedTuple):
    """A requested average: its score combines the scores of the components with weights `parts`."""

    term: ResultTerm
    target: Target
    remainder: Remainder
    parts: Vector = np.ones(1)


def averages(
    state: Survey, asked: Sequence[One], stages: Keys, weight: float = np.inf
) -> AverageEstimate:
    """Averages with their covariance, from one release of the scores and their squares.

    Each component is clipped as it would be alone, using a histogram of its own sizes. A single
    score is released times (1, z, g), which gives slopes and groups. The scores of several averages
    are released as one vector, with noise of its possible shape. See `WeightedNuisances.weight`.
    """
    session, request = state.session, state.session.plan.request
    chosen, noise = _chosen(state, asked, stages)
    sums, squares = _queries(state, asked, chosen, noise)
    session.gather({stages[1]: sums} | ({} if squares is None else {stages[2]: squares}))
    release = session.release(stages[1], sums)
    # from the released scores to the scores of the components
    back = np.linalg.inv(sums.scores.basis) if isinstance(sums.scores, ScoreVector) else np.eye(1)
    totals = _totals(state, sums, release, stages[1])
    if squares is not None:
        square, meat = session.read(stages[2], squares)
        totals = replace(totals, square=square, meat=meat)
    lost = 0.0 if session.beyond is None else session.beyond.lost / state.population.count
    masses, found = list(_by_mass(asked)), []
    for (term, aim, doubt, own), cut in zip(asked, chosen, strict=True):
        place, mass_spread = 0, SAME_MASS_SD if totals.limits[0] == totals.limits[1] else 1.0
        if aim.mass is not None:
            place, mass_spread = 1 + masses.index(id(aim.mass)), aim.spread
        found.append(estimates.ScoreAverage(
            (term, *(c.slope for c in state.linear.columns)), own @ back, place,
            aim.centre + cut.middle, cut.bias + aim.extremes.unit_most * lost, doubt,
            PRIORS.least_square * cut.rms**2, mass_spread, aim.group_masses,
            aim.kept(cut.at, cut.rms), None if aim.pilot is None else aim.pilot.coef, cut.middle,
        ))  # fmt: skip
    groups, aim, cut = tuple(g.place for g in state.groups), asked[0].target, chosen[0]
    estimate = estimates.estimate_averages(found, groups, totals, robust=request.cov_type == "HC0")
    first = vault.CutScore(aim.score, cut.at, cut.middle)  # only a single average has clusters
    scores = partial(influences, estimate, first, aim.mass, found[0].centre)
    estimate = with_dependence(session, estimate, scores, 1 + len(request.groups))
    return with_weights(state, replace(estimate, weight=weight))


def _by_mass(asked: Sequence[One]) -> dict[int, Target]:
    """One target for each distinct mass; several targets may share a mass."""
    return {id(one.target.mass): one.target for one in asked if one.target.mass is not None}


def _queries(
    state: Survey, asked: Sequence[One], chosen: Sequence[Cut], noise: Sequence[float]
) -> tuple[vault.ScoreSums, vault.ScoreSquares | None]:
    """The query for the scores, and the query for their squares with the sandwich's meat."""
    request, regressors = state.session.plan.request, state.regressors
    if len(asked) == 1:
        sums = summed_scores(state, asked[0].target, chosen[0].at, chosen[0].middle)
        if sums.squares:
            return sums, None
        return sums, vault.ScoreSquares(sums.scores, regressors, meat=True)
    scores, targets = _vector(state, asked, chosen, noise), _by_mass(asked).values()
    by_group = 0, *(1 + k for k, one in enumerate(targets) if one.group_masses)
    masses = tuple(one.mass for one in targets if one.mass is not None)
    neighbors = request.trust.neighbors
    return vault.ScoreSums(scores, masses, regressors, neighbors, by_group, squares=True), None


def _totals(
    state: Survey, sums: vault.ScoreSums, release: Release, stage: StageKey
) -> estimates.ScoreTotals:
    """Parts of a release; a mass without group sums is NaN in the groups.

    With a single score, the groups have sums of either rows or masses. These sums serve as both.
    """
    read, session = [], state.session
    for part in (release.value, release.noise_sd):
        all_, *squares, outer, masses, of_groups = sums.split(part)
        width, none = len(outer), np.zeros((0, 0))
        sizes = np.full((1 + len(masses), 1 + of_groups.shape[1]), np.nan)
        sizes[:, 0] = outer[0, 0], *masses
        sizes[list(sums.by_group) if len(all_) > 1 else slice(None), 1:] = of_groups
        own = np.delete(all_, np.s_[1:width], axis=1)
        read.append((own, sizes, *(squares or [none]), all_[0, 1:width], outer, none))
    score, size, square, slope, products, meat = map(Reading, *read)
    alpha, z = state.regressors.alpha, state.rows.scaled(state.linear)
    return estimates.ScoreTotals(
        score, size, square, slope, products, meat,
        points=np.hstack([np.ones((len(z), 1)), alpha * z]),
        units=alpha * np.array([c.per_unit for c in state.linear.columns]),
        parts=partitions(state.groups, session.schema, session.plan.request.needed),
        limits=size_limits(state, float(size.sd[0, 0]), session.plan.stage(stage).rows),
    )  # fmt: skip


def _components(asked: Sequence[One]) -> list[int]:
    """Positions of the averages whose scores are entries of the vector, in the vector's order."""
    found = [k for k, one in enumerate(asked) if one.parts.min() >= 0]
    return sorted(found, key=lambda k: int(np.argmax(asked[k].parts)))


def _chosen(state: Survey, asked: Sequence[One], stages: Keys) -> tuple[list[Cut], list[float]]:
    """Thresholds of the averages, and their noise.

    Each component has its own threshold; other averages combine the biases of their components.
    """
    components = _components(asked)
    sizes = score_sizes(state, [asked[k].target for k in components], stages[0])
    found, noises = [], []
    for k, one in enumerate(asked):
        noise = noise_per_cut(state, summed_scores(state, one.target), stages[1])
        own = sizes[components.index(k)] if k in components else None
        cut = score_cut(
            one.target.extremes, noise, own, state.look, state.population.count,
            anywhere=state.session.plan.request.tails == "any",
            movable=len(asked) == 1 and one.target.mass is None,
        )  # fmt: skip
        found.append(cut)
        noises.append(noise * cut.at)
    bias = np.array([found[k].bias for k in components])
    biases = [float(np.abs(one.parts) @ bias) for one in asked]
    return [replace(cut, bias=b) for cut, b in zip(found, biases, strict=True)], noises


def _vector(
    state: Survey, asked: Sequence[One], chosen: Sequence[Cut], noise: Sequence[float]
) -> ScoreVector:
    """The scores in a basis with row norms of at most 1, chosen for small predicted variances.

    Each average is weighted by the inverse of its own squared noise, clipping bias, and nuisance
    error.

    Between the points where some score meets its threshold, the norm of the clipped scores is a
    convex function of the outcome. It is therefore largest at these points or at the ends of the
    outcome's bounds. The shape contains the scores at all these points.
    """
    components, found = _components(asked), []
    arms = range(len(state.session.plan.request.arms) or 2)
    for k in components:
        aim = asked[k].target
        first: Any = aim.score.transforms[0] if isinstance(aim.score, vault.ByFold) else aim.score
        treated = [float(arm == aim.arm) for arm in arms]
        ends = state.outcome.lo, state.outcome.hi
        found.append([[first.at(state.rows, t, y) for t in treated] for y in ends])
    low, high = np.moveaxis(np.array(found), 0, -1)  # (2, N, J) each
    cuts = np.array([chosen[k].at for k in components])
    slope = np.where(high == low, np.inf, high - low)
    meets = np.concatenate([(s * cuts - low) / slope for s in (-1.0, 1.0)], axis=-1)
    at = np.moveaxis(np.clip(meets, 0.0, 1.0), -1, 0)[..., None]
    at = np.concatenate([at, np.zeros_like(at[:1]), np.ones_like(at[:1])])
    all_ = np.clip(low + at * (high - low), -cuts, cuts).reshape(-1, len(cuts))
    worth = np.zeros((len(cuts),) * 2)
    for one, own, sd in zip(asked, chosen, noise, strict=True):
        error = sd**2 + own.bias**2 + one.remainder.rms**2
        worth += np.outer(one.parts, one.parts) / error
    some = all_[:: max(THINNED, len(all_) // MOST_SHAPE_POINTS)]
    basis = np.linalg.inv(np.linalg.cholesky(estimates.noise_shape(some, worth)))
    basis /= max(1.0, float(np.linalg.norm(all_ @ basis.T, axis=1).max()))
    return ScoreVector(tuple(asked[k].target.score for k in components), cuts, basis)


THINNED, MOST_SHAPE_POINTS = 4, 10_000
"""Thinning of the points that determine the shape, and about how many points to keep.

The shape is then scaled to contain all points.
"""


def score_sizes(
    state: Survey, targets: Sequence[Target], stage: StageKey
) -> list[cuts_of.ArmSizes] | list[None]:
    """Sizes of each score by arm; None for a binary outcome, or scores of survival times.

    If the propensity is known, the histograms count the arms too. These outcomes then need only
    these counts.
    """
    session, none = state.session, [None] * len(targets)
    if not session.plan.has(stage):
        return none
    binary = (two_valued(state) or session.curves) and state.weights is None
    declared = declared_shares(state, targets)
    if binary and not declared:
        session.unused(stage)
        return none
    histograms = []
    for target in targets[: len(declared)] if binary else targets:
        factors = (*map(float, target.extremes.factors),)
        size = vault.ArmSize(target.score, factors, target.arm, signed=True)  # type: ignore[arg-type]  # two
        borders = cuts_of.score_edges(size.bound, cuts_of.SIGNED_HALF_OCTAVES)[:-1]
        edges = np.array([size.bound]) if binary else np.r_[-borders[::-1], 0.0, borders]
        histograms.append(vault.ArmHistogram(size, edges, "score sizes", target.arm))
    counts, noise_sd = _counts(session, stage, histograms, declared)
    if binary:
        return none
    return [
        cuts_of.ArmSizes.by_sign(
            c, noise_sd, cuts_of.score_edges(one.target.bound, cuts_of.SIGNED_HALF_OCTAVES),
            target.extremes.factors, target.extremes.weights,
        )
        for c, one, target in zip(counts, histograms, targets, strict=True)
    ]  # fmt: skip


def _counts(
    session: survey.FitRun,
    stage: StageKey,
    histograms: Sequence[vault.ArmHistogram],
    declared: Sequence[tuple[float, float]],
) -> tuple[list[Matrix], float]:
    """Counts by arm for each histogram, and their noise sd.

    If shares are `declared`, the counts of the arms are checked against them. Otherwise the moments
    of the treatment have already shown the arms.
    """
    first, many = histograms[0], len(histograms) > 1
    release = session.release(stage, vault.ArmHistograms(tuple(histograms)) if many else first)
    parts, noise_sd = np.split(release.value, len(histograms)), float(release.noise_sd[0])
    counts = [one.split(part) for one, part in zip(histograms, parts, strict=True)]
    for one, share, histogram in zip(counts, declared, histograms, strict=False):
        session.look_at_arms(one.sum(axis=1), noise_sd * first.cells**0.5, share, histogram.arm)
    return counts, noise_sd


def declared_shares(state: Survey, targets: Sequence[Target] = ()) -> list[tuple[float, float]]:
    """Limits of the mean known propensity, or the known share of each target's arm, if declared.

    The mean of a column is known if the column is a covariate, from its released distribution.
    """
    request, known = state.session.plan.request, state.known
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
    shares = [float(request.propensity[request.arms[one.arm]]) for one in targets]
    return [(share, share) for share in shares]


def row_sizes(
    session: survey.FitRun,
    stage: StageKey,
    target: Transform,
    what: str = "score sizes",
    declared: Sequence[tuple[float, float]] = (),
) -> cuts_of.ArmSizes:
    """Sizes over all rows of all arms; the arms are counted too if a share is `declared`."""
    borders, alone = cuts_of.score_edges(target.bound), np.ones(1)
    if not declared:
        release = session.release(stage, vault.SizeHistogram(target, borders, what))
        return cuts_of.ArmSizes(release.value[None], float(release.noise_sd[0]), borders, alone)
    histogram = vault.ArmHistogram(vault.ArmSize(target, (1.0, 1.0)), borders[:-1], what)
    (counts,), noise_sd = _counts(session, stage, [histogram], declared)
    return cuts_of.ArmSizes(counts.sum(axis=0)[None], np.sqrt(2.0) * noise_sd, borders, alone)


def summed_scores(
    state: Survey, target: Target, cut: float = 1.0, middle: float = 0.0
) -> vault.ScoreSums:
    """The sums of the scores' distances from the `middle`, clipped at `cut`."""
    request = state.session.plan.request
    return vault.ScoreSums(
        vault.CutScore(target.score, cut, middle), () if target.mass is None else (target.mass,),
        state.regressors, request.trust.neighbors, (int(target.group_masses),),
        None if target.pilot is None else target.pilot.score, squares=not with_meat(request),
    )  # fmt: skip


def noise_per_cut(state: Survey, sums: vault.Mechanism, stage: StageKey) -> float:
    """Noise sd of the mean score per unit of its clipping threshold."""
    change = sums.sensitivity(state.session.plan.request.trust.neighbors)
    return state.session.noise_sd(stage, change, float(sums.units[0])) / state.population.count


def size_limits(state: Survey, noise_sd: float, share: float) -> tuple[float, float]:
    """Limits of the number of complete rows: the declared size if no value can be missing.

    If the number of rows is not public, the lower limit is at least the noise sd, so that division
    by the size is bounded.
    """
    session = state.session
    public = session.vault.size
    if public is None or session.plan.request.trust.unit is not None:
        return max(noise_sd, 1.0), np.inf
    if session.schema.complete and share == 1.0:
        return float(public), float(public)
    return 1.0, public * share


def two_valued(state: Survey) -> bool:
    """Whether the outcome has two values."""
    session = state.session
    return not isinstance(session.schema[session.plan.request.formula.outcome], Interval)


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


def weighed(
    state: survey.Survey,
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

    Parameters
    ----------
    partials, nuisances : tuple of FoldFit, tuple of NuisanceTriple
        By fold: propensity and mean outcome, and the nuisances of the scores. A known propensity
        has no limits.
    tau : Effect
        The effect that is already known.
    stage : StageKey
        Stage of the scores.
    arm : (int, Transform), optional
        One of several arms, for its mean outcome, and the mass of its score. The default is the
        ATE.

    Returns
    -------
    WeightedNuisances
        The nuisances with these limits, and the distribution of their bias.
    """
    if partials[0].pair is None:
        if state.known is not None and two_valued(state) and arm is None:
            nuisances = narrowed(state, nuisances, stage)
        return WeightedNuisances(nuisances, remainder(state, partials))
    share = float(np.mean([p.e(state.rows).mean() for p in partials]))
    if arm is None:
        compare_arms(state, partials, share)
    term = ATE_TERM if arm is None else ResultTerm("mean", "E[Y(1)]", arm=1)  # against all others
    centre, found, best = float(np.mean(tau(state.rows))), None, np.inf
    window = state.look.window if state.look is not None else state.outcome
    within = vault.Outcome(window.lo, window.hi)
    for factor in FACTORS:
        most = 1 - (1 - share) / factor if arm is None else 1.0
        parts = tuple(limited(p, share / factor, most) for p in partials)
        scored = tuple(replace(n, e=p.e) for n, p in zip(nuisances, parts, strict=True))
        if arm is None:
            aim = average_target(state, scored, centre, within=within)
        else:
            aim = arm_target(state, scored, *arm, within, several=True)
        rest = remainder(state, parts, term, tau)
        loss = rest.rms**2 + _noise(state, aim, stage) + _sampling(state, parts, term)
        if found is None or loss < best:
            best, found = loss, WeightedNuisances(scored, rest, factor)
    assert found is not None
    return found


MODEL_ENDS = 7
"""Quantiles of the fitted means that are tried on each side."""


def narrowed(state: survey.Survey, nuisances: Triples, stage: StageKey) -> Triples:
    """Arm means within the limits of least predicted variance, for two values and a known e.

    Scores then lie between public numbers, and nothing else is clipped. Wide means shrink the
    residuals but need noise for a wide range of scores. With a known propensity, any means leave
    the average without bias, so the limits cost only the variance that the means would explain. If
    even wide limits explain little, the means become constant.
    """
    rows, p = state.rows, nuisances[0].e(state.rows)
    count = state.population.count

    def mixed(one: functions.NuisanceTriple) -> Vector:
        return np.asarray((1 - p) * one.mu1(rows) + p * one.mu0(rows))

    full, found, best = mixed(nuisances[0]), nuisances, np.inf
    means = np.r_[nuisances[0].mu0(rows), nuisances[0].mu1(rows)]
    ends = np.quantile(means, np.linspace(0.0, 1.0, 2 * MODEL_ENDS - 1))
    for low in ends[:MODEL_ENDS]:
        for high in ends[MODEL_ENDS - 1 :]:
            scored = tuple(_within(n, float(low), float(high)) for n in nuisances)
            aim = average_target(state, scored, 0.0)
            noise = noise_per_cut(state, summed_scores(state, aim), stage)
            cut = score_cut(aim.extremes, noise, None, None, count, movable=True)
            lost = float(np.mean((mixed(scored[0]) - full) ** 2 / (p * (1 - p)))) / count
            loss = (noise * cut.at) ** 2 + cut.bias**2 + lost
            if loss < best:
                best, found = loss, scored
    return found


def _within(one: functions.NuisanceTriple, low: float, high: float) -> functions.NuisanceTriple:
    """Arm means, clipped to these limits too."""
    means = one.mu0, one.mu1
    if not all(isinstance(m, functions.ArmMean) for m in means):
        return one
    mu0, mu1 = (replace(m, lo=low, hi=high) for m in means)  # type: ignore[type-var]  # as checked
    return replace(one, mu0=mu0, mu1=mu1)


def _sampling(state: survey.Survey, parts: Folds, term: ResultTerm) -> float:
    """Sampling variance of an average whose outcomes vary as usual around their means."""
    each = [estimand_of(term).bias_weight(p.e(state.rows), state.clip).mean() for p in parts]
    variance = PRIORS.outcome_noise_sd**2 * state.variance * np.mean(each)
    return float(variance / state.population.count)


def _noise(state: survey.Survey, target: Target, stage: StageKey) -> float:
    """Squared noise plus squared bias of the best threshold, for any sizes within the extremes."""
    noise = noise_per_cut(state, summed_scores(state, target), stage)
    cut = score_cut(target.extremes, noise, None, None, state.population.count)
    return float((noise * cut.at) ** 2 + cut.bias**2)


# -- the averages of a call --------------------------------------------------------------------


def asked_averages(
    state: survey.Survey, partials: Folds, nuisances: Triples, tau: Effect, stage: StageKey
) -> tuple[list[One], float]:
    """The requested averages, then the risks for ratios; and a row's maximum weight in the ATE.

    `stage` is the stage of the scores.
    """
    terms, weight = state.session.plan.request.terms, np.inf
    effects, means = ([one for one in terms if one.kind == kind] for kind in ("effect", "mean"))
    found, risks = list[One](), list[One]()
    vectors = np.eye(len(effects) + bool(means))
    for term, own in zip(effects, vectors, strict=False):
        if isinstance(tilted := ESTIMANDS[term.of], Tilted):
            aim = target(tilted, state, partials, nuisances, tau)
            found.append(One(term, aim, remainder(state, partials, term), own))
            continue
        scored = weighed(state, partials, nuisances, tau, stage)
        centre, weight = float(np.mean(tau(state.rows))), scored.weight
        aim = average_target(state, scored.nuisances, centre)
        if means:
            share = float(np.mean([p.e(state.rows).mean() for p in partials]))
            limits = share / weight, 1 - (1 - share) / weight
            used = tuple(limited(p, *limits) for p in partials)
            for arm, (mean, parts) in enumerate(zip(means, (own, vectors[-1]), strict=True)):
                one = arm_target(state, scored.nuisances, arm, aim.mass)
                risks.append(One(mean, one, remainder(state, used, mean, tau), parts))
            centre = risks[1].target.centre - risks[0].target.centre
            aim = replace(average_target(state, scored.nuisances, centre), mass=aim.mass)
        parts = vectors[-1] - own if means else own
        found.append(One(term, aim, scored.remainder, parts))
    return [*found, *risks], weight
