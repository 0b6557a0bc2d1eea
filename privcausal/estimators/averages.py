"""Average effects of any learner: what is summed over the rows, and how it is cut and weighed.

Every estimand is E[q tau(X)] / E[q] with a weight q(X): 1 for the ATE, e(X) for the ATT and
e(X) (1 - e(X)) for the ATO, the effect in the overlap population (Li, Morgan and Zaslavsky 2018).
The estimate is c + sum(score) / sum(mass), with scores centred at a c near the average itself, so
that scores are small and noise in the mass matters little. The sums also give the effects in groups
and the best linear projection. Several averages come from one release of their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from privcausal import vault
from privcausal.estimators import budget, survey
from privcausal.estimators.nuisances import FoldFit, by_fold, limited, remainder
from privcausal.features import functions
from privcausal.features.rows import Rows
from privcausal.inference.averages import (
    AverageEstimate,
    JointAverage,
    JointData,
    SumsContext,
    estimate_averages,
    noise_shape,
    with_design_effect,
)
from privcausal.inference.confounding import Remainder
from privcausal.inference.cuts import ArmSizes, Extremes, score_cut, score_edges, slope_kept
from privcausal.inference.effects import Effect
from privcausal.inference.priors import PRIORS
from privcausal.request.factors import partitions
from privcausal.request.plan import StageKey
from privcausal.request.request import RISKS, Request
from privcausal.request.schema import Interval
from privcausal.typing import Average, Matrix, Vector


class Score(vault.Transform, Protocol):
    """A transform that can also be evaluated at covariates of no row."""

    def at(self, rows: Rows, t: Vector | float, y: Vector | float) -> Vector: ...


@dataclass(frozen=True, eq=False)
class EffectCentre:
    """The projection a'coef of an effect that is known already, and scores centred at it.

    Slopes are the pilot's plus those of what is left; this is exact, as both are linear in the
    score. What is left has a range that does not grow with the effect's, so that the cut takes less
    of it.
    """

    score: vault.Transform
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
    score: vault.Transform
    mass: vault.Transform
    extremes: Extremes
    mass_spread: float = PRIORS.balance_sd
    group_masses: bool = False
    pilot: EffectCentre | None = None
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
    estimand: Average,
    state: survey.Survey,
    partials: Sequence[FoldFit],
    nuisances: Sequence[functions.NuisanceTriple],
    tau: functions.Function,
) -> Target:
    """Score and mass of the ATT or the ATO, around the mean of tau(x) by the estimand's weight."""
    e, outcome, clip, soft = partials[0].e_soft, state.outcome, state.clip, state.soft_clip
    chance = e(state.rows)
    weight = chance if estimand == "ATT" else chance * (1 - chance)
    centre = _held(state, float(np.average(tau(state.rows), weights=weight)))
    scale = float(np.mean(weight))
    scores: list[Score]
    if estimand == "ATT":
        e, mass = (
            functions.Capped(e, 1 - clip),
            by_fold(lambda _: vault.TreatedMass(scale), partials),
        )
        scores = [
            vault.TreatedScore(
                functions.Capped(p.e_soft, 1 - clip), n.mu0, outcome, clip, centre, scale
            )
            for p, n in zip(partials, nuisances, strict=True)
        ]
    else:
        mass = by_fold(lambda p: vault.OverlapMass(p.e_soft, soft, scale), partials)
        scores = [
            vault.OverlapScore(p.e_soft, p.eta, outcome, soft, centre, scale) for p in partials
        ]
    return replace(
        _target(state, centre, scores, mass, e), mass_spread=PRIORS.mass_sd, group_masses=True
    )


def average_target(
    state: survey.Survey,
    nuisances: Sequence[functions.NuisanceTriple],
    centre: float,
    tau: functions.Function | None = None,
    within: vault.Outcome | None = None,
) -> Target:
    """That of the ATE: psi - c and its balance; `tau` also centres the scores of the slopes.

    Extremes are those of outcomes `within` a range, or anywhere in their bounds.
    """
    clip, centre = state.clip, _held(state, centre)
    scores = [
        vault.Aipw(n, state.outcome, clip, functions.Constant(centre), abs(centre))
        for n in nuisances
    ]
    mass = by_fold(lambda n: vault.MassBalance(n.e, clip), nuisances)
    found = _target(state, centre, scores, mass, nuisances[0].e, within)
    return found if tau is None else replace(found, pilot=_pilot(state, nuisances, tau))


SAME_MASS_SD = 1e-6
"""Prior sd of a mass that counts rows, as their size does."""


def arm_target(
    state: survey.Survey,
    nuisances: Sequence[functions.NuisanceTriple],
    arm: int,
    mass: vault.Transform,
) -> Target:
    """That of E[Y(0)] or E[Y(1)], whose difference is that of the ATE, over the ATE's `mass`."""
    centre, scores = _arm_scores(state, nuisances, arm)
    return _target(state, centre, scores, mass, nuisances[0].e)


def one_arm_target(
    state: survey.Survey,
    nuisances: Sequence[functions.NuisanceTriple],
    arm: int,
    mass: vault.Transform,
    within: vault.Outcome | None = None,
) -> Target:
    """That of the mean outcome in one of several arms, of which all others are the control."""
    centre, scores = _arm_scores(state, nuisances, 1)
    several = [vault.OfArm(score, arm) for score in scores]
    found = _target(state, centre, several, mass, nuisances[0].e, within)
    return replace(found, mass_spread=SAME_MASS_SD, arm=arm)


def _arm_scores(
    state: survey.Survey, nuisances: Sequence[functions.NuisanceTriple], arm: int
) -> tuple[float, list[vault.ArmScore]]:
    centre = float(np.mean([(n.mu1 if arm else n.mu0)(state.rows).mean() for n in nuisances]))
    return centre, [vault.ArmScore(n, state.outcome, state.clip, arm, centre) for n in nuisances]


def _target(
    state: survey.Survey,
    centre: float,
    scores: Sequence[Score],
    mass: vault.Transform,
    e: functions.Function,
    within: vault.Outcome | None = None,
) -> Target:
    """By the scores of each fold, with what these are by the propensity `e` of one of them."""
    outcome, rows, p = within or state.outcome, state.rows, e(state.rows)
    ends = [[scores[0].at(rows, t, y) for y in (outcome.lo, outcome.hi)] for t in (0.0, 1.0)]
    extremes = Extremes(
        np.stack([np.maximum(np.abs(low), np.abs(high)) for low, high in ends]),
        np.stack([(high - low) / (2 * outcome.bound) for low, high in ends]),
        np.stack([1 - p, p]),
    )
    return Target(centre, by_fold(lambda s: s, scores), mass, extremes)


def _pilot(
    state: survey.Survey, nuisances: Sequence[functions.NuisanceTriple], tau: functions.Function
) -> EffectCentre | None:
    if not len(state.linear):
        return None
    z = state.rows.scaled(state.linear)
    middle = z.mean(axis=0)
    slopes = np.linalg.lstsq(z - middle, tau(state.rows), rcond=1e-6)[0]
    centre = functions.LinearFunction(
        state.linear, slopes, float(np.mean(tau(state.rows)) - middle @ slopes)
    )
    scores = [vault.Aipw(n, state.outcome, state.clip, centre, centre.bound) for n in nuisances]
    coef = np.r_[centre.offset, slopes / state.regressors.alpha]
    return EffectCentre(by_fold(lambda s: s, scores), coef)


def _held(state: survey.Survey, centre: float) -> float:
    """Inside the range that an effect can have."""
    reach = 2 * state.outcome.bound
    return float(np.clip(centre, -reach, reach))


# -- the release ------------------------------------------------------------------------------

Keys = tuple[StageKey, StageKey, StageKey]
"""Stages of an average: sizes of the scores, their sums, and sums of their squares."""

STAGES: Keys = (
    budget.Stages.AVERAGE_SIZES,
    budget.Stages.AVERAGE_SCORES,
    budget.Stages.AVERAGE_SQUARES,
)


def averages_needs(request: Request) -> list[budget.StageWeight]:
    """Releases of the averages of a learner of tau(x); an outcome of two values has no sizes."""
    looks = [
        budget.StageWeight(budget.Stages.AVERAGE_RANGE, budget.SHARES.average_range),
        budget.StageWeight(STAGES[0], budget.SHARES.average_sizes),
    ]
    return [
        *(arm_needs(request, STAGES[0]) if survey.is_binary(request) else looks),
        budget.StageWeight(STAGES[1], budget.SHARES.average_scores),
        budget.StageWeight(STAGES[2], budget.SHARES.average_squares),
    ]


def arm_needs(request: Request, sizes: StageKey) -> list[budget.StageWeight]:
    """Counts of the arms in place of `sizes`: whether a known propensity is right."""
    if request.propensity is None:
        return []
    return [budget.StageWeight(sizes, budget.SHARES.known_arms)]


class WeightedNuisances(NamedTuple):
    """What the scores of an average are made of.

    `nuisances` are one per fold, `remainder` is the law of the bias by their errors, and `weight`
    the most that a row weighs, in weights of a difference of means.
    """

    nuisances: tuple[functions.NuisanceTriple, ...]
    remainder: Remainder
    weight: float = np.inf


class One(NamedTuple):
    """An average that is asked for: its score combines those of the components by `parts`."""

    name: str
    target: Target
    remainder: Remainder
    parts: Vector = np.ones(1)


class ChosenCut(NamedTuple):
    """Where the score of an average is cut, the most that its mean loses, and the scores' rms."""

    at: float
    bias: float
    rms: float
    noise: float


def averages(
    state: survey.Survey, asked: Sequence[One], stages: Keys, weight: float = np.inf
) -> AverageEstimate:
    """Averages from one release of their scores and one of the squares, with their covariance.

    Each component is cut as it would be alone, by sizes of its own. One is released times (1, z, g)
    and so has slopes. Of several, a row's cut scores are released as one vector, with noise of the
    shape that hides all that they can be. `weight` is that of `Weighed`.
    """
    session, request = state.session, state.session.plan.request
    chosen = _chosen(state, asked, stages)
    sums, squares = _queries(state, asked, chosen)
    session.gather({stages[1]: sums, stages[2]: squares})
    first, second = session.release(stages[1], sums), session.release(stages[2], squares)
    value, sd = (
        _read(sums, sums.split(a), squares.split(b))
        for a, b in ((first.value, second.value), (first.noise_sd, second.noise_sd))
    )
    # makes the released scores those of the components
    back = (
        np.linalg.inv(sums.scores.basis)
        if isinstance(sums.scores, vault.ScoreVector)
        else np.eye(1)
    )
    limits = size_limits(state, float(sd.size[0, 0]), session.plan.stage(stages[1]).rows)
    columns, z = state.linear.columns, state.rows.scaled(state.linear)
    points = np.hstack([np.ones((len(z), 1)), state.regressors.alpha * z])
    units = state.regressors.alpha * np.array([c.per_unit for c in columns])
    parts = partitions(state.groups, session.schema, request.needed)
    lost = 0.0 if session.beyond is None else session.beyond.lost
    places, found = list(_by_mass(asked)), []
    for (name, aim, doubt, own), cut in zip(asked, chosen, strict=True):
        frame = SumsContext(
            aim.centre, float(np.clip(value.size[0, 0], *limits)), points, units,
            cut.bias + aim.extremes.unit_most * lost / state.population.count, doubt,
            PRIORS.least_square * cut.rms**2, aim.mass_spread, aim.group_masses,
            aim.kept(cut.at, cut.rms), None if aim.pilot is None else aim.pilot.coef, parts, limits,
        )  # fmt: skip
        terms = (name, *(c.name for c in columns))
        found.append(JointAverage(terms, own @ back, 1 + places.index(id(aim.mass)), frame))
    groups, robust = tuple(g.label for g in state.groups), request.cov_type == "HC0"
    estimate = estimate_averages(found, groups, value, sd, robust=robust)
    return replace(with_design_effect(estimate, request.trust.max_rows), weight=weight)


def _by_mass(asked: Sequence[One]) -> dict[int, Target]:
    """A target for each mass, which several may share."""
    return {id(one.target.mass): one.target for one in asked}


def _queries(
    state: survey.Survey, asked: Sequence[One], chosen: Sequence[ChosenCut]
) -> tuple[vault.ScoreSums, vault.ScoreSquares]:
    """What is released of the scores, and of their squares."""
    request, regressors = state.session.plan.request, state.regressors
    if len(asked) == 1:
        sums = summed_scores(state, asked[0].target, chosen[0].at)
        return sums, vault.ScoreSquares(sums.scores, regressors, meat=request.cov_type == "HC0")
    scores, targets = _vector(state, asked, chosen), _by_mass(asked).values()
    by_group = 0, *(1 + k for k, one in enumerate(targets) if one.group_masses)
    masses = tuple(one.mass for one in targets)
    sums = vault.ScoreSums(scores, masses, regressors, request.trust.neighbors, by_group)
    return sums, vault.ScoreSquares(scores, regressors)


def _read(sums: vault.ScoreSums, parts: Sequence[Matrix], squares: Sequence[Matrix]) -> JointData:
    """Parts of both releases; a mass that is not summed in groups is NaN there.

    Of one score, either rows or masses are summed in groups, and stand for both.
    """
    score, outer, masses, of_groups = parts
    square, *meat = squares
    width = len(outer)
    size = np.full((1 + len(masses), 1 + of_groups.shape[1]), np.nan)
    size[:, 0] = outer[0, 0], *masses
    size[list(sums.by_group) if len(score) > 1 else slice(None), 1:] = of_groups
    of_scores = np.delete(score, np.s_[1:width], axis=1)
    return JointData(
        of_scores, size, square, score[0, 1:width], outer, *(meat or [np.zeros((0, 0))])
    )


def _components(asked: Sequence[One]) -> list[int]:
    """The places of the averages whose scores are entries of the vector, in its order."""
    found = [k for k, one in enumerate(asked) if one.parts.min() >= 0]
    return sorted(found, key=lambda k: int(np.argmax(asked[k].parts)))


def _chosen(state: survey.Survey, asked: Sequence[One], stages: Keys) -> list[ChosenCut]:
    """The cut of each component as if it were alone; another loses what its components do."""
    components = _components(asked)
    sizes = score_sizes(state, [asked[k].target for k in components], stages[0])
    found = []
    for k, one in enumerate(asked):
        noise = noise_per_cut(state, summed_scores(state, one.target), stages[1])
        own = sizes[components.index(k)] if k in components else None
        cut = score_cut(
            one.target.extremes, noise, own, state.look, state.population.count,
            anywhere=state.session.plan.request.tails == "any",
        )  # fmt: skip
        rms = 0.0 if own is None else own.rms(cut.at)
        found.append(ChosenCut(cut.at, cut.bias, rms, noise * cut.at))
    bias = np.array([found[k].bias for k in components])
    return [
        own._replace(bias=float(np.abs(one.parts) @ bias))
        for one, own in zip(asked, found, strict=True)
    ]


def _vector(
    state: survey.Survey, asked: Sequence[One], chosen: Sequence[ChosenCut]
) -> vault.ScoreVector:
    """The scores in a basis in which no row's norm is above 1, of least predicted variances.

    Each variance counts in what its average has alone of noise and bias. A convex function of the
    outcome, as the norm of the cut scores is between the places where one meets its cut, is largest
    at these or at the ends of the outcome's bounds: the shape holds what scores are there.
    """
    components, found = _components(asked), []
    arms = range(len(state.session.plan.request.asked.arms) or 2)
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
    for one, own in zip(asked, chosen, strict=True):
        worth += np.outer(one.parts, one.parts) / (
            own.noise**2 + own.bias**2 + one.remainder.rms**2
        )
    some = all_[:: max(THINNED, len(all_) // MOST_SHAPE_POINTS)]
    basis = np.linalg.inv(np.linalg.cholesky(noise_shape(some, worth)))
    basis /= max(1.0, float(np.linalg.norm(all_ @ basis.T, axis=1).max()))
    return vault.ScoreVector(tuple(asked[k].target.score for k in components), cuts, basis)


THINNED, MOST_SHAPE_POINTS = 4, 10_000
"""One of so many points, and about so many at most, find the shape; it is then scaled to hold all
of them."""


def score_sizes(
    state: survey.Survey, targets: Sequence[Target], stage: StageKey
) -> list[ArmSizes] | list[None]:
    """Sizes of each score by arm; None for an outcome of two values, whose sizes are known.

    If the propensity is known, they count the arms too, which is all that two values need.
    """
    session, none = state.session, [None] * len(targets)
    if not session.plan.has(stage):
        return none
    two_valued = not isinstance(session.schema[session.plan.request.formula.outcome], Interval)
    if two_valued and state.known is None:
        session.unused(stage)
        return none
    histograms = []
    for target in targets[:1] if two_valued else targets:
        factors = (*map(float, target.extremes.factors),)
        size = vault.ArmSize(target.score, factors, target.arm)  # type: ignore[arg-type]  # two
        edges = score_edges(size.bound)[-1:] if two_valued else score_edges(size.bound)[:-1]
        histograms.append(vault.ArmHistogram(size, edges, "score sizes", target.arm))
    counts, noise_sd = _counts(session, stage, histograms, declared_share(state))
    if two_valued:
        return none
    return [
        ArmSizes(c, noise_sd, score_edges(one.target.bound), target.extremes.factors)
        for c, one, target in zip(counts, histograms, targets, strict=True)
    ]


def _counts(
    session: survey.FitRun,
    stage: StageKey,
    histograms: Sequence[vault.ArmHistogram],
    declared: float | None,
) -> tuple[list[Matrix], float]:
    """Of each, the counts by arm, and their noise sd. Arms are looked at if a share is `declared`.

    Else the treatment's own moments have shown them.
    """
    first, many = histograms[0], len(histograms) > 1
    release = session.release(stage, vault.ArmHistograms(tuple(histograms)) if many else first)
    parts, noise_sd = np.split(release.value, len(histograms)), float(release.noise_sd[0])
    counts = [one.split(part) for one, part in zip(histograms, parts, strict=True)]
    if declared is not None:
        session.look_at_arms(counts[0].sum(axis=1), noise_sd * first.cells**0.5, declared)
    return counts, noise_sd


def declared_share(state: survey.Survey) -> float | None:
    """Mean of the known propensities; None where they are estimated."""
    return None if state.known is None else float(np.mean(state.known(state.rows)))


def row_sizes(
    session: survey.FitRun,
    stage: StageKey,
    target: vault.Transform,
    what: str = "score sizes",
    declared: float | None = None,
) -> ArmSizes:
    """Sizes over all rows, whatever their arms; these are counted if a share is `declared`."""
    borders, alone = score_edges(target.bound), np.ones(1)
    if declared is None:
        release = session.release(stage, vault.SizeHistogram(target, borders, what))
        return ArmSizes(release.value[None], float(release.noise_sd[0]), borders, alone)
    histogram = vault.ArmHistogram(vault.ArmSize(target, (1.0, 1.0)), borders[:-1], what)
    (counts,), noise_sd = _counts(session, stage, [histogram], declared)
    return ArmSizes(counts.sum(axis=0)[None], np.sqrt(2.0) * noise_sd, borders, alone)


def summed_scores(state: survey.Survey, target: Target, cut: float = 1.0) -> vault.ScoreSums:
    """The sums of scores that are cut there."""
    return vault.ScoreSums(
        vault.CutScore(target.score, cut),
        (target.mass,),
        state.regressors,
        state.session.plan.request.trust.neighbors,
        (int(target.group_masses),),
        None if target.pilot is None else target.pilot.score,
    )


def noise_per_cut(state: survey.Survey, sums: vault.Mechanism, stage: StageKey) -> float:
    """Noise sd of the mean score per unit of its cut."""
    change = sums.sensitivity(state.session.plan.request.trust.neighbors)
    return state.session.noise_sd(stage, change, float(sums.units[0])) / state.population.count


def size_limits(state: survey.Survey, noise_sd: float, share: float) -> tuple[float, float]:
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


# -- how much one row may weigh ---------------------------------------------------------------

FACTORS = (np.inf, 4.0, 3.2, 2.5, 2.0, 1.6, 1.25, 1.0)
"""Most that a row may weigh, in weights of a difference of means; the first has no limit. A grid:
the one of least predicted error is taken."""


def weighed(
    state: survey.Survey,
    partials: tuple[FoldFit, ...],
    nuisances: tuple[functions.NuisanceTriple, ...],
    tau: Effect,
    stage: StageKey,
    arm: tuple[int, vault.Transform] | None = None,
) -> WeightedNuisances:
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
        return WeightedNuisances(nuisances, remainder(state, partials))
    share = float(np.mean([p.e(state.rows).mean() for p in partials]))
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
            aim = one_arm_target(state, scored, *arm, within)
        rest = remainder(state, parts, "ATE" if arm is None else RISKS[1], tau)
        loss = rest.rms**2 + _noise(state, aim, stage)
        if found is None or loss < best:
            best, found = loss, WeightedNuisances(scored, rest, factor)
    assert found is not None
    return found


def _noise(state: survey.Survey, target: Target, stage: StageKey) -> float:
    """Squared noise and bias of the best cut, whatever the sizes within what scores could be."""
    noise = noise_per_cut(state, summed_scores(state, target), stage)
    cut = score_cut(target.extremes, noise, None, None, state.population.count)
    return float((noise * cut.at) ** 2 + cut.bias**2)


# -- what a call asks for ---------------------------------------------------------------------


def asked_averages(
    state: survey.Survey,
    partials: tuple[FoldFit, ...],
    nuisances: tuple[functions.NuisanceTriple, ...],
    tau: Effect,
    stage: StageKey,
) -> tuple[list[One], float]:
    """The averages, then the risks that ratios are of; and the most that a row weighs in the ATE.

    The `stage` is that of the scores.
    """
    request, weight, found = state.session.plan.request, np.inf, dict[str, One]()
    vectors = np.eye(len(request.asked.averages) + bool(request.asked.ratios))
    for name, own in zip(request.asked.averages, vectors, strict=False):
        if name != "ATE":
            aim = target(name, state, partials, nuisances, tau)
            found[name] = One(name, aim, remainder(state, partials, name), own)
            continue
        scored = weighed(state, partials, nuisances, tau, stage)
        centre, weight = float(np.mean(tau(state.rows))), scored.weight
        aim = average_target(state, scored.nuisances, centre)
        if request.asked.ratios:
            share = float(np.mean([p.e(state.rows).mean() for p in partials]))
            limits = share / weight, 1 - (1 - share) / weight
            used = tuple(limited(p, *limits) for p in partials)
            for arm, risk in enumerate(RISKS):
                one = arm_target(state, scored.nuisances, arm, aim.mass)
                parts = vectors[-1] if arm else own
                found[risk] = One(risk, one, remainder(state, used, risk, tau), parts)
            centre = found[RISKS[1]].target.centre - found[RISKS[0]].target.centre
            aim = replace(average_target(state, scored.nuisances, centre), mass=aim.mass)
        parts = vectors[-1] - own if request.asked.ratios else own
        found[name] = One(name, aim, scored.remainder, parts)
    order = (*request.asked.averages, *(RISKS if request.asked.ratios else ()))
    return [found[name] for name in order], weight
