"""The partially linear model Y = theta T + g(X) + u (Robinson 1988), by its partialled-out score.

theta solves sum (T - e)(Y - eta - theta (T - e)) = 0 with e(x) = E[T | x], eta(x) = E[Y | x]
(Chernozhukov et al. 2018, Eq. 4.4). For a binary treatment that is the ATO's score, and the two
are one number; here a first look at theta also centres the scores and enters the nuisances' law.
The treatment may be a number within declared bounds, and is then worked on as its place in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from privcausal.features.functions import ArmMean, Constant, Mixture
from privcausal.inference.average import FEW, AverageEstimate, with_design_effect
from privcausal.inference.confounding import unrelated
from privcausal.inference.contrasts import estimate_contrasts
from privcausal.inference.priors import PRIORS
from privcausal.inference.ranges import Tail, cuts_between
from privcausal.inference.score_cut import score_cut
from privcausal.learners.averages import (
    Weighed,
    averages,
    held,
    noise_per_cut,
    of_numbers,
    row_sizes,
    target,
)
from privcausal.learners.base import average_doubts, finish, shown
from privcausal.learners.bases import PrivateBase
from privcausal.learners.budget import StageWeight
from privcausal.learners.estimate import Estimate, Nuisances
from privcausal.learners.interactions import INTERACTIONS
from privcausal.learners.nuisances import (
    RESIDUAL_SHARE,
    FoldNuisances,
    additive_nuisances,
    by_fold,
    clipped,
    moments_of,
    nuisance_of,
    outcomes,
    overall,
    paired,
    product_confounding,
    remainder,
    remainder_weight,
    treatments,
    updated_for_effect,
)
from privcausal.learners.private import STAGES, Private, looked, refined
from privcausal.learners.shares import SHARES, Stages
from privcausal.learners.state import FitState, Session
from privcausal.request.plan import StageKey
from privcausal.request.request import Request
from privcausal.request.schema import Interval, Transformed
from privcausal.typing import Matrix, Vector
from privcausal.vault import (
    ArmScores,
    ContrastSums,
    OverlapMass,
    OverlapScore,
    ScoreSums,
    Treatment,
    TreatmentResidual,
)

FLAT = (
    "What the covariates leave of the treatment cannot be told from noise, so the slope may be far "
    "off. More rows or budget would help, or narrower bounds of the treatment."
)

FEW_IN_ARM = (
    "An arm has too few rows to be told from none: its slope, and those it is confounded with, may "
    "be far off. Are the labels of the data those of bounds=?"
)

MOST_VARIANCE = 0.25
"""Of a treatment in [0, 1] (Popoviciu 1935), where nothing is seen of it."""

MASS_DOUBT = 0.1
"""What the first look leaves unknown of a slope, as a share; 0.03 to 0.3 do alike. By hand."""

LEAST_MASS = 1e-3
"""Of an arm, whose share of the rows may be next to nothing. A guard."""

LEAST_SHARE = 1 / 3
"""Of a slope, what errors of e leave at least: for more the law of the errors is too rough."""

LEAST_SPREAD = 0.02
"""Of the prior of the mass, whose relative sd is known by its noise. A guard."""

SIZES = Stages.RESIDUAL_SIZES


@dataclass(frozen=True)
class PartiallyLinear(Private):
    """Residual on residual, with private nuisances and a noise-aware interval."""

    name: ClassVar[str] = "plr"
    title: ClassVar[str] = "partialling-out (PLR)"

    def needs(self, request: Request, base: PrivateBase) -> list[StageWeight]:
        needs = {need.key: need for need in super().needs(request, base)}
        needs.pop(Stages.NUISANCE_WEIGHTS, None)
        first = Stages.NUISANCE_RESIDUALS
        needs[first] = StageWeight(first, SHARES.plr_first)
        if request.dose:  # how far scores reach, the treatment tells
            needs[STAGES[0]] = StageWeight(STAGES[0], SHARES.private_sizes)
            needs[SIZES] = StageWeight(SIZES, SHARES.plr_sizes)
        if request.arms:
            weight = needs.pop(Stages.TREATMENT).weight / np.sqrt(len(request.arms) - 1)
            needs |= {stage: StageWeight(stage, weight) for stage in arm_stages(request)}
            for stage in INTERACTIONS:
                needs.pop(stage, None)
            needs[STAGES[0]] = StageWeight(STAGES[0], SHARES.private_sizes)
            # what was for the squares is the scores', which are released with them
            both = SHARES.private_scores + needs.pop(STAGES[2]).weight
            needs[STAGES[1]] = StageWeight(STAGES[1], both)
        return list(needs.values())

    def run(self, session: Session) -> Estimate:
        request, state = session.plan.request, looked(session)
        if request.arms:
            return contrasts(replace(state, floor=0.0))
        if request.dose:
            state = replace(state, floor=0.0)
        state, _, partials = additive_nuisances(state)
        lost = 0.0
        if request.dose:
            state, lost = residual_cut(state, partials)
        else:
            state, partials = clipped(state, partials)
        partials = refined(state, partials)
        state, slope, spread = first_look(state, partials)
        partials, tau = reread(state, partials, slope), Constant(slope)
        nuisances = tuple(nuisance_of(p, tau, state.outcome) for p in partials)
        aim = replace(target("PLR", state, partials, nuisances, tau), mass_spread=spread)
        scored = Weighed(nuisances, remainder(state, partials, "PLR"))
        found = averages(state, aim, scored, STAGES, "PLR")
        notes = average_doubts(found, product_confounding(state, partials, "PLR"))
        if not request.dose:
            return finish(state, None, shown(partials, nuisances), found, notes)
        found, natural = in_its_units(state, partials, found, lost)
        # what share of the rows is treated is no question here
        return replace(finish(state, None, natural, found, notes), averages=found)


def residual_cut(state: FitState, partials: tuple[FoldNuisances, ...]) -> tuple[FitState, float]:
    """Where residuals of a treatment that is a number are cut, and what that does to the slope.

    As V, the cut T - e, takes the place of both residuals, the slope errs by
    theta E[V (T - e - V)] / E[V^2]: relative to itself at most by the cut times the mean excess
    over it, by the tail condition, over the mean square. The cut is that of least squared sum of
    this and of the noise in the mass, which counts by what is not known yet of the slope.
    """
    session, request = state.session, state.session.plan.request
    domain = session.schema[request.formula.treatment]
    assert isinstance(domain, Interval)
    raw = domain.raw if isinstance(domain, Transformed) else domain
    # e is in the effective range, T anywhere in the declared one
    most = max(raw.hi - domain.lo, domain.hi - raw.lo) / domain.width
    target = by_fold(lambda p: TreatmentResidual(p.e_soft, 1 - most), partials)
    sizes = row_sizes(session, SIZES, target, "|T - e|")
    if not sizes.reach:
        session.alerts["treatment"] = FLAT
        return replace(state, most=most, mass=MOST_VARIANCE), 0.0
    rough, rows = _sums(replace(state, most=1.0), partials, 1.0), state.population.count
    noise = noise_per_cut(state, rough, STAGES[1]) / rough.beta
    beyond = float(sizes.hidden(np.array([sizes.reach]), request.tails == "any")[1]) / rows
    tail = Tail(sizes.reach, most, request.tails == "any")
    cuts = cuts_between(sizes.reach, most)
    square = np.array([sizes.rms(float(cut)) ** 2 for cut in cuts])
    lost = cuts * beyond * tail.excess(cuts) / square
    doubt = 1.0 if request.groups else MASS_DOUBT  # groups are weighed by masses of their own
    best = int(np.argmin((doubt * noise * cuts**2 / square) ** 2 + lost**2))
    return replace(state, most=float(cuts[best]), mass=float(square[best])), float(lost[best])


def _sums(state: FitState, partials: tuple[FoldNuisances, ...], cut: float) -> ScoreSums:
    """The sums of (T - e)(Y - eta), cut, and of (T - e)^2."""
    clip = state.residual_clip
    score = by_fold(
        lambda p: OverlapScore(p.e_soft, p.eta, state.outcome, clip, 0.0, 1.0), partials
    )
    mass = by_fold(lambda p: OverlapMass(p.e_soft, clip), partials)
    neighbors = state.session.plan.request.trust.neighbors
    return ScoreSums(score, cut, mass, state.regressors, neighbors, group_masses=True)


def first_look(
    state: FitState, partials: tuple[FoldNuisances, ...]
) -> tuple[FitState, float, float]:
    """The same with the mean of (T - e)^2; the slope, and the relative sd of that mean.

    The mean is read with a prior: e (1 - e) of two arms, or by the sizes of residuals.
    """
    e, rows = partials[0].e_soft(state.rows), state.population.count
    prior = rows * (state.mass or float(np.mean(e * (1 - e))))
    # as far as half the range of outcomes, by the typical residual
    cut = 4 * RESIDUAL_SHARE * state.centre.bound * float(np.sqrt(prior / rows))
    sums = _sums(state, partials, cut)
    release = state.session.release(Stages.NUISANCE_RESIDUALS, sums)
    (total, *_), _, _, seen, _ = sums.split(release.value)
    noise = sums.split(release.noise_sd)[3]
    doubt = PRIORS.mass_sd * prior
    keep = doubt**2 / (doubt**2 + noise**2)
    mass = max(prior + keep * (seen - prior), PRIORS.least_mass * prior)
    spread = max(PRIORS.mass_sd * float(np.sqrt(1 - keep)), LEAST_SPREAD)
    return replace(state, mass=mass / rows), held(state, float(total) / mass), spread


def reread(
    state: FitState, partials: tuple[FoldNuisances, ...], slope: float
) -> tuple[FoldNuisances, ...]:
    """Nuisances read again, and their law, for this slope, less what errors of e take off it.

    Where e errs by d, the slope is seen as its share E[(T - e)^2] / (E[(T - e)^2] + E[d^2]).
    """
    errors = 0.0
    for part in partials:
        for features, pair in ((state.features, part.pair), part.beyond or (None, None)):
            if features is not None and pair is not None:
                weight = remainder_weight(state, features, part.e_soft, "PLR")
                errors += pair.e_error(weight) / len(partials)
    raised = slope / max(1 - errors, LEAST_SHARE)
    return updated_for_effect(state, partials, Constant(raised))


def in_its_units(
    state: FitState, partials: tuple[FoldNuisances, ...], found: AverageEstimate, lost: float
) -> tuple[AverageEstimate, Nuisances]:
    """Slopes per unit of the treatment, and nuisances as functions of X in its own units.

    `lost` is the most that the cut of the residuals takes off a slope, as a share of it: it joins
    the bound of cut scores. That e(x) is learnt of a treatment held in its effective range is an
    error of e, which counts by its product with one of eta.
    """
    domain = state.session.schema[state.session.plan.request.formula.treatment]
    assert isinstance(domain, Interval)
    width, whole = domain.width, overall(partials)
    doubt = lost * (np.abs(found.estimate) + np.sqrt(np.diag(found.cov)))
    doubt[~np.isfinite(doubt)] = 0.0  # of a group without an estimate
    out = replace(
        found, estimate=found.estimate / width, sampling=found.sampling / width**2,
        privacy=found.privacy / width**2, clipping=(found.clipping + doubt) / width,
        remainder=found.remainder / width,
    )  # fmt: skip
    theta, ends = Constant(float(out.estimate[0])), (domain.lo, domain.hi)
    own = Mixture(whole.e, Constant(domain.hi), Constant(domain.lo))
    low, high = (
        ArmMean(end, whole.eta, own, theta, state.outcome.lo, state.outcome.hi) for end in ends
    )
    return out, Nuisances(own, whole.eta, low, high)


# -- several arms -----------------------------------------------------------------------------


def arm_stages(request: Request) -> list[StageKey]:
    return [StageKey("nuisance", f"treatment {arm}") for arm in request.arms[1:]]


def contrasts(state: FitState) -> Estimate:
    """Slopes on the indicators of all arms but the first, jointly."""
    session, request = state.session, state.session.plan.request
    stages = arm_stages(request)
    moments = {stage: Treatment(arm) for arm, stage in enumerate(stages, 1)}
    # of the products of errors, which the inverse mass is applied to later
    state, grams = moments_of(replace(state, mass=1.0), moments)
    etas, laws = outcomes(state, grams), [treatments(state, grams, stage) for stage in stages]
    parts = [paired(state, law, etas) for law in laws]
    e = np.stack([own[0].e(state.rows) for own in parts], axis=1)
    e /= np.maximum(e.sum(axis=1, keepdims=True), 1.0)
    rows, share = state.population.count, np.diag(e.mean(axis=0)) - e.T @ e / len(e)
    typical = float(np.trace(share))
    name = request.formula.treatment
    known = partial(
        estimate_contrasts, tuple(f"{name}[T.{arm}]" for arm in request.arms[1:]),
        model=rows * share, size=rows,
    )  # fmt: skip
    none = np.zeros(len(stages))
    cut = 4 * RESIDUAL_SHARE * state.centre.bound * float(np.sqrt(typical))
    first = ContrastSums(_arm_scores(state, parts, none), cut)
    release = session.release(Stages.NUISANCE_RESIDUALS, first)
    value, sd = first.split(release.value), first.split(release.noise_sd)
    slopes = known(value, sd, centre=none, bias=0.0, remainder=none).estimate
    slopes = np.array([held(state, slope) for slope in slopes.tolist()])
    parts = [
        reread(replace(state, mass=max(float(mass), LEAST_MASS)), own, slope)
        for own, mass, slope in zip(parts, np.diag(share), slopes.tolist(), strict=True)
    ]
    rough = ContrastSums(_arm_scores(state, parts, slopes), 1.0)
    extremes = of_numbers(rough.scores.bound, 1 / typical)
    sizes = row_sizes(session, STAGES[0], rough.scores)
    noise = noise_per_cut(state, rough, STAGES[1])
    chosen = score_cut(extremes, noise, sizes, state.look, rows, anywhere=request.tails == "any")
    bias = chosen.bias
    if session.beyond is not None:
        bias += extremes.unit_most * session.beyond.lost / rows
    sums = replace(rough, cut=chosen.at)
    release = session.release(STAGES[1], sums)
    value, sd = sums.split(release.value), sums.split(release.noise_sd)
    if (np.diag(value[1]) <= FEW * np.diag(sd[1])).any():
        session.alerts["arm"] = FEW_IN_ARM
    doubt = _arm_remainders(state, parts, [law[0].cov for law in laws], slopes)
    found = known(value, sd, centre=slopes, bias=bias, remainder=doubt)
    found = with_design_effect(found, request.trust.max_rows)
    found = replace(found, size_sd=state.population.count_sd)
    return finish(state, None, None, found, average_doubts(found))


def _arm_scores(
    state: FitState, parts: Sequence[tuple[FoldNuisances, ...]], centre: Vector
) -> ArmScores:
    folds = list(zip(*parts, strict=True))
    es, etas = (tuple(tuple(getattr(p, of) for p in fold) for fold in folds) for of in ("e", "eta"))
    return ArmScores(es, etas, state.outcome, centre)


def _arm_remainders(
    state: FitState,
    parts: Sequence[tuple[FoldNuisances, ...]],
    covs: Sequence[Matrix],
    slopes: Vector,
) -> Vector:
    """Root mean squares of E[d_j (d_y - sum_i theta_i d_i)] for errors d, shape (J,).

    The pair of arm j has d_j (d_y - theta_j d_j); errors of other arms are correlated as may be.
    """
    weight = remainder_weight(state, state.features, parts[0][0].e, "PLR")
    own = [remainder(state, part, "PLR").rms for part in parts]
    others = [
        [abs(slope) * unrelated(weight, one, other).rms * (one is not other)
         for other, slope in zip(covs, slopes.tolist(), strict=True)]
        for one in covs
    ]  # fmt: skip
    return np.asarray(np.linalg.norm(np.column_stack([own, others]), axis=1))
