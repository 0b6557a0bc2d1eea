"""Average effects of any learner: what is summed over the rows, and how it is cut and weighed.

Every estimand is E[q tau(X)] / E[q] with a weight q(X): 1 for the ATE, e(X) for the ATT and
e(X) (1 - e(X)) for the ATO, the effect in the overlap population (Li, Morgan and Zaslavsky 2018).
The estimate is c + sum(score) / sum(mass), with scores centred at a c near the average itself, so
that scores are small and noise in the mass matters little. The sums also give the effects in groups
and the best linear projection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from privcausal.features.functions import Capped, Constant, Function, LinearFunction, Nuisance
from privcausal.features.rows import Rows
from privcausal.inference.average import (
    AverageEstimate,
    Frame,
    ScoreData,
    estimate_averages,
    with_design_effect,
)
from privcausal.inference.confounding import Remainder
from privcausal.inference.cuts import ArmSizes, Extremes, score_cut, score_edges, slope_kept
from privcausal.inference.effect import Effect
from privcausal.inference.priors import PRIORS
from privcausal.learners.budget import StageWeight
from privcausal.learners.nuisances import FoldNuisances, by_fold, limited, remainder
from privcausal.learners.shares import SHARES, Stages
from privcausal.learners.state import FitState, Session, is_binary
from privcausal.request.groups import partitions
from privcausal.request.plan import StageKey
from privcausal.request.request import RISKS, Request
from privcausal.request.schema import Interval
from privcausal.typing import Estimand, Matrix, Vector
from privcausal.vault import (
    Aipw,
    ArmHistogram,
    ArmHistograms,
    ArmScore,
    ArmSize,
    MassBalance,
    Mechanism,
    OfArm,
    Outcome,
    OverlapMass,
    OverlapScore,
    ScoreSquares,
    ScoreSums,
    SizeHistogram,
    Transform,
    TreatedMass,
    TreatedScore,
)


class Score(Transform, Protocol):
    """A transform that can also be evaluated at covariates of no row."""

    def at(self, rows: Rows, t: Vector | float, y: Vector | float) -> Vector: ...


@dataclass(frozen=True, eq=False)
class Pilot:
    """The projection a'coef of an effect that is known already, and scores centred at it.

    Slopes are the pilot's plus those of what is left; this is exact, as both are linear in the
    score. What is left has a range that does not grow with the effect's, so that the cut takes less
    of it.
    """

    score: Transform
    coef: Vector


@dataclass(frozen=True, eq=False)
class Target:
    """What is summed for an average effect.

    Attributes
    ----------
    centre : float
        c, in units of the outcome.
    score, mass : Transform
        Of each row, by the nuisances of its own fold; the mass is near 1 on average.
    extremes : Extremes
        What scores could be.
    mass_spread : float
        Prior sd of the mean mass around 1.
    group_masses : bool
        Whether groups are weighed by their own mass; else by their rows.
    pilot : Pilot or None
        What scores are centred at for the slopes.
    arm : int
        The arm that counts as treated.
    """

    centre: float
    score: Transform
    mass: Transform
    extremes: Extremes
    mass_spread: float
    group_masses: bool
    pilot: Pilot | None = None
    arm: int = 1

    def kept(self, cut: float, rms: float) -> float:
        """Share of the slope in a constant effect that a cut leaves; all of it for the ATE.

        `rms` is the root mean square of the scores, 0 where it is not known.
        """
        if not self.group_masses or rms == 0:
            return 1.0
        x = self.extremes
        left = np.stack([-x.chances[1], x.chances[0]])  # T - e
        return slope_kept(x.weights, x.weights * left, x.chances, cut, rms)


def target(
    estimand: Estimand,
    state: FitState,
    partials: Sequence[FoldNuisances],
    nuisances: Sequence[Nuisance],
    tau: Function,
) -> Target:
    """Score and mass of the ATT or the ATO, around the mean of tau(x) by the estimand's weight."""
    e, outcome, clip, soft = partials[0].e_soft, state.outcome, state.clip, state.soft_clip
    chance = e(state.rows)
    weight = chance if estimand == "ATT" else chance * (1 - chance)
    centre = _held(state, float(np.average(tau(state.rows), weights=weight)))
    scale = float(np.mean(weight))
    scores: list[Score]
    masses: list[Transform]
    if estimand == "ATT":
        e = Capped(e, 1 - clip)
        scores = [
            TreatedScore(Capped(p.e_soft, 1 - clip), n.mu0, outcome, clip, centre, scale)
            for p, n in zip(partials, nuisances, strict=True)
        ]
        masses = [TreatedMass(scale)] * len(partials)
    else:
        scores = [OverlapScore(p.e_soft, p.eta, outcome, soft, centre, scale) for p in partials]
        masses = [OverlapMass(p.e_soft, soft, scale) for p in partials]
    return Target(
        centre,
        by_fold(lambda s: s, scores),
        by_fold(lambda m: m, masses),
        _extremes(state, scores[0], e, outcome),
        PRIORS.mass_sd,
        group_masses=True,
    )


def average_target(
    state: FitState,
    nuisances: Sequence[Nuisance],
    centre: float,
    tau: Function | None = None,
    within: Outcome | None = None,
) -> Target:
    """That of the ATE: psi - c and its balance; `tau` also centres the scores of the slopes.

    Extremes are those of outcomes `within` a range, or anywhere in their bounds.
    """
    clip, centre = state.clip, _held(state, centre)
    scores = [Aipw(n, state.outcome, clip, Constant(centre), abs(centre)) for n in nuisances]
    masses = [MassBalance(n.e, clip) for n in nuisances]
    return Target(
        centre,
        by_fold(lambda s: s, scores),
        by_fold(lambda m: m, masses),
        _extremes(state, scores[0], nuisances[0].e, within or state.outcome),
        PRIORS.balance_sd,
        group_masses=False,
        pilot=None if tau is None or not len(state.linear) else _pilot(state, nuisances, tau),
    )


def arm_targets(
    state: FitState, nuisances: Sequence[Nuisance], mass: Transform
) -> tuple[Target, Target]:
    """Those of E[Y(0)] and E[Y(1)], whose difference is that of the ATE, over the ATE's `mass`."""
    found = []
    for arm in (0, 1):
        scores, centre = _arm_scores(state, nuisances, arm)
        extremes = _extremes(state, scores[0], nuisances[0].e, state.outcome)
        score = by_fold(lambda s: s, scores)
        found.append(Target(centre, score, mass, extremes, PRIORS.balance_sd, group_masses=False))
    return found[0], found[1]


SAME = 1e-6
"""Prior sd of a mass that counts rows, as their size does."""


def one_arm_target(
    state: FitState,
    nuisances: Sequence[Nuisance],
    arm: int,
    mass: Transform,
    within: Outcome | None = None,
) -> Target:
    """That of the mean outcome in one of several arms, of which all others are the control."""
    scores, centre = _arm_scores(state, nuisances, 1)
    extremes = _extremes(state, scores[0], nuisances[0].e, within or state.outcome)
    score = by_fold(lambda s: OfArm(s, arm), scores)
    return Target(centre, score, mass, extremes, SAME, group_masses=False, arm=arm)


def _arm_scores(
    state: FitState, nuisances: Sequence[Nuisance], arm: int
) -> tuple[list[ArmScore], float]:
    means = [(n.mu1 if arm else n.mu0)(state.rows).mean() for n in nuisances]
    centre = float(np.mean(means))
    return [ArmScore(n, state.outcome, state.clip, arm, centre) for n in nuisances], centre


def _pilot(state: FitState, nuisances: Sequence[Nuisance], tau: Function) -> Pilot:
    z = state.rows.scaled(state.linear)
    middle = z.mean(axis=0)
    slopes = np.linalg.lstsq(z - middle, tau(state.rows), rcond=1e-6)[0]
    centre = LinearFunction(state.linear, slopes, float(np.mean(tau(state.rows)) - middle @ slopes))
    scores = [Aipw(n, state.outcome, state.clip, centre, centre.bound) for n in nuisances]
    coef = np.r_[centre.offset, slopes / state.regressors.alpha]
    return Pilot(by_fold(lambda s: s, scores), coef)


def _held(state: FitState, centre: float) -> float:
    """Inside the range that an effect can have."""
    reach = 2 * state.outcome.bound
    return float(np.clip(centre, -reach, reach))


def _extremes(state: FitState, score: Score, e: Function, outcome: Outcome) -> Extremes:
    rows, p = state.rows, e(state.rows)
    ends = [[score.at(rows, t, y) for y in (outcome.lo, outcome.hi)] for t in (0.0, 1.0)]
    return Extremes(
        np.stack([np.maximum(np.abs(low), np.abs(high)) for low, high in ends]),
        np.stack([(high - low) / (2 * outcome.bound) for low, high in ends]),
        np.stack([1 - p, p]),
    )


# -- the release ------------------------------------------------------------------------------

Keys = tuple[StageKey, StageKey, StageKey]
"""Stages of an average: sizes of the scores, their sums, and sums of their squares."""

STAGES: Keys = (Stages.AVERAGE_SIZES, Stages.AVERAGE_SCORES, Stages.AVERAGE_SQUARES)


def averages_needs(request: Request) -> list[StageWeight]:
    """Releases of the averages of a learner of tau(x); an outcome of two values has no sizes."""
    looks = [
        StageWeight(Stages.AVERAGE_RANGE, SHARES.average_range),
        StageWeight(STAGES[0], SHARES.average_sizes),
    ]
    return [
        *(arm_needs(request, STAGES[0]) if is_binary(request) else looks),
        StageWeight(STAGES[1], SHARES.average_scores),
        StageWeight(STAGES[2], SHARES.average_squares),
    ]


def arm_needs(request: Request, sizes: StageKey) -> list[StageWeight]:
    """Counts of the arms in place of `sizes`: whether a known propensity is right."""
    if request.propensity is None:
        return []
    return [StageWeight(sizes, SHARES.known_arms)]


class Weighed(NamedTuple):
    """What the scores of an average are made of.

    `nuisances` are one per fold, `remainder` is the law of the bias by their errors, and `weight`
    the most that a row weighs, in weights of a difference of means.
    """

    nuisances: tuple[Nuisance, ...]
    remainder: Remainder
    weight: float = np.inf


def averages(
    state: FitState, target: Target, weighed: Weighed, stages: Keys, name: str
) -> AverageEstimate:
    """Release sums of the score times (1, z, g), and of its square; estimates with covariances."""
    request = state.session.plan.request
    (sizes,) = score_sizes(state, [target], stages[0])
    regressors, robust = state.regressors, request.cov_type == "HC0"
    rough = rough_sums(state, target)
    chosen = score_cut(
        target.extremes,
        noise_per_cut(state, rough, stages[1]),
        sizes,
        state.look,
        state.population.count,
        anywhere=request.tails == "any",
    )
    cut = chosen.at
    rms = 0.0 if sizes is None else sizes.rms(cut)
    sums, bias = replace(rough, cut=cut), chosen.bias
    if state.session.beyond is not None:
        bias += target.extremes.unit_most * state.session.beyond.lost / state.population.count
    squares = ScoreSquares(target.score, cut, regressors, meat=robust)
    state.session.gather({stages[1]: sums, stages[2]: squares})
    first = state.session.release(stages[1], sums)
    second = state.session.release(stages[2], squares)
    value, sd = (
        ScoreData(*sums.split(a), *squares.split(b))
        for a, b in ((first.value, second.value), (first.noise_sd, second.noise_sd))
    )
    limits = size_limits(state, float(sd.outer[0, 0]), state.session.plan.stage(stages[1]).rows)
    columns = state.linear.columns
    frame = Frame(
        target.centre,
        float(np.clip(value.outer[0, 0], *limits)),
        points(state),
        regressors.alpha * np.array([c.per_unit for c in columns]),
        bias,
        weighed.remainder,
        PRIORS.least_square * rms**2,
        (1.0, target.mass_spread),
        target.group_masses,
        target.kept(cut, rms),
        None if target.pilot is None else target.pilot.coef,
        partitions(state.groups, state.session.schema, request.needed),
        limits,
    )
    terms = (name, *(c.name for c in columns))
    groups = tuple(g.label for g in state.groups)
    found = estimate_averages(terms, groups, value, sd, frame, robust=robust)
    return replace(with_design_effect(found, request.trust.max_rows), weight=weighed.weight)


def score_sizes(
    state: FitState, targets: Sequence[Target], stage: StageKey
) -> list[ArmSizes] | list[None]:
    """Sizes of each score by arm; None for an outcome of two values, whose sizes are known.

    If the propensity is known, they count the arms too, which is all that two values need.
    """
    session = state.session
    if not session.plan.has(stage):
        return [None] * len(targets)
    two_valued = not isinstance(session.schema[session.plan.request.formula.outcome], Interval)
    if two_valued and state.known is None:
        session.unused(stage)
        return [None] * len(targets)
    histograms = []
    for target in targets[:1] if two_valued else targets:
        factors = (*map(float, target.extremes.factors),)
        size = ArmSize(target.score, factors, target.arm)  # type: ignore[arg-type]  # two
        edges = score_edges(size.bound)[-1:] if two_valued else score_edges(size.bound)[:-1]
        histograms.append(ArmHistogram(size, edges, "score sizes", target.arm))
    many = len(histograms) > 1
    release = session.release(stage, ArmHistograms(tuple(histograms)) if many else histograms[0])
    noise_sd = float(release.noise_sd[0])
    parts = np.split(release.value, len(histograms))
    counts = [one.split(part) for one, part in zip(histograms, parts, strict=True)]
    declared = declared_share(state)
    if declared is not None:  # else the treatment's own moments have shown them
        arms_sd = noise_sd * histograms[0].cells ** 0.5
        session.look_at_arms(counts[0].sum(axis=1), arms_sd, declared)
    if two_valued:
        return [None] * len(targets)
    return [
        ArmSizes(c, noise_sd, score_edges(one.target.bound), target.extremes.factors)
        for c, one, target in zip(counts, histograms, targets, strict=True)
    ]


def declared_share(state: FitState) -> float | None:
    """Mean of the known propensities; None where they are estimated."""
    return None if state.known is None else float(np.mean(state.known(state.rows)))


def row_sizes(
    session: Session,
    stage: StageKey,
    target: Transform,
    what: str = "score sizes",
    declared: float | None = None,
) -> ArmSizes:
    """Sizes over all rows, whatever their arms; these are counted if a share is `declared`."""
    borders, alone = score_edges(target.bound), np.ones(1)
    if declared is None:
        release = session.release(stage, SizeHistogram(target, borders, what))
        return ArmSizes(release.value[None], float(release.noise_sd[0]), borders, alone)
    histogram = ArmHistogram(ArmSize(target, (1.0, 1.0)), borders[:-1], what)
    release = session.release(stage, histogram)
    counts, noise_sd = histogram.split(release.value), float(release.noise_sd[0])
    session.look_at_arms(counts.sum(axis=1), noise_sd * histogram.cells**0.5, declared)
    return ArmSizes(counts.sum(axis=0)[None], np.sqrt(2.0) * noise_sd, borders, alone)


def rough_sums(state: FitState, target: Target) -> ScoreSums:
    """The sums of scores that are cut at 1."""
    return ScoreSums(
        target.score,
        1.0,
        target.mass,
        state.regressors,
        state.session.plan.request.trust.neighbors,
        target.group_masses,
        None if target.pilot is None else target.pilot.score,
    )


def noise_per_cut(state: FitState, sums: Mechanism, stage: StageKey) -> float:
    """Noise sd of the mean score per unit of its cut."""
    change = sums.sensitivity(state.session.plan.request.trust.neighbors)
    return state.session.noise_sd(stage, change, float(sums.units[0])) / state.population.count


def size_limits(state: FitState, noise_sd: float, share: float) -> tuple[float, float]:
    """Limits of the number of complete rows: the declared size, where nothing can be missing.

    Where no number is public, at least the noise, so that division by it is bounded.
    """
    session = state.session
    public = session.vault.size
    if public is None or session.plan.request.trust.unit is not None:
        return max(noise_sd, 1.0), np.inf
    if session.schema.complete and share == 1.0:
        return float(public), float(public)
    return 1.0, public * share


def points(state: FitState) -> Matrix:
    """Regressors a of the synthetic population."""
    z = state.rows.scaled(state.linear)
    return np.hstack([np.ones((len(z), 1)), state.regressors.alpha * z])


# -- how much one row may weigh ---------------------------------------------------------------

FACTORS = (np.inf, 4.0, 3.2, 2.5, 2.0, 1.6, 1.25, 1.0)
"""Most that a row may weigh, in weights of a difference of means; the first has no limit. A grid:
the one of least predicted error is taken."""


def weighed(
    state: FitState,
    partials: tuple[FoldNuisances, ...],
    nuisances: tuple[Nuisance, ...],
    tau: Effect,
    stage: StageKey,
    arm: tuple[int, Transform] | None = None,
) -> Weighed:
    """Nuisances with the limits of least predicted squared error, and the law of their bias.

    A score divides by the propensity. Where that is small, the score is large, and with it the
    noise that hides it. Limits of the propensity save noise at the cost of a bias: what they leave
    out of the fitted propensity, times the error of the mean outcome. The law of that bias is known
    from the releases and joins the interval. Without any weights but the arms' shares, an average
    is the difference of the arms' means, adjusted by the mean outcome alone.

    Parameters
    ----------
    partials, nuisances : tuple of FoldNuisances, tuple of Nuisance
        By fold: propensity and mean outcome (a known propensity has no limits), and what the scores
        are made of.
    tau : Effect
        The effect that is known already.
    stage : StageKey
        Of the scores.
    arm : (int, Transform), optional
        One of several arms, whose mean outcome is wanted, and the mass of its score; else the ATE.
    """
    if partials[0].pair is None:
        return Weighed(nuisances, remainder(state, partials))
    share = float(np.mean([p.e(state.rows).mean() for p in partials]))
    centre, found, best = float(np.mean(tau(state.rows))), None, np.inf
    window = state.look.window if state.look is not None else state.outcome
    within = Outcome(window.lo, window.hi)
    for factor in FACTORS:
        most = 1 - (1 - share) / factor if arm is None else 1.0
        parts = tuple(limited(p, share / factor, most) for p in partials)
        scored = tuple(replace(n, e=p.e) for n, p in zip(nuisances, parts, strict=True))
        if arm is None:
            aim = average_target(state, scored, centre, within=within)
        else:
            aim = one_arm_target(state, scored, *arm, within)
        rest = remainder(state, parts, "ATE" if arm is None else RISKS[1], tau)
        loss = rest.rms**2 + _noise(state, aim, stage)
        if found is None or loss < best:
            best, found = loss, Weighed(scored, rest, factor)
    assert found is not None
    return found


def _noise(state: FitState, target: Target, stage: StageKey) -> float:
    """Squared noise and bias of the best cut, whatever the sizes within what scores could be."""
    noise = noise_per_cut(state, rough_sums(state, target), stage)
    cut = score_cut(target.extremes, noise, None, None, state.population.count)
    return float((noise * cut.at) ** 2 + cut.bias**2)
