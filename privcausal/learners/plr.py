"""The partially linear model Y = theta'T + g(X) + u (Robinson 1988), by its partialled-out score.

theta solves sum (T - e)(Y - eta - theta'(T - e)) = 0 with e(x) = E[T | x], eta(x) = E[Y | x]
(Chernozhukov et al. 2018, Eq. 4.4). T is 0 or 1, and theta then is the ATO; or a number, worked on
as its place in its range; or the indicators of all arms but the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from privcausal.features.functions import Constant
from privcausal.inference.average import FEW, with_design_effect
from privcausal.inference.confounding import unrelated
from privcausal.inference.cuts import Extremes, score_cut
from privcausal.inference.priors import PRIORS
from privcausal.inference.ranges import Tail
from privcausal.inference.slopes import VectorSums, estimate_slopes
from privcausal.learners import nuisances as nu
from privcausal.learners.averages import declared_share, noise_per_cut, row_sizes
from privcausal.learners.base import average_doubts, finish, shown
from privcausal.learners.bases import PrivateBase
from privcausal.learners.budget import StageWeight
from privcausal.learners.estimate import Estimate
from privcausal.learners.interactions import refine
from privcausal.learners.private import STAGES, AverageLearner, looked, propensity_needs
from privcausal.learners.several import arm_stages, by_arm, treatments
from privcausal.learners.shares import SHARES, Stages
from privcausal.learners.state import FitState, Session, is_binary, range_needs
from privcausal.request.plan import StageKey
from privcausal.request.request import Request
from privcausal.request.schema import Domain, Interval, Transformed
from privcausal.typing import Matrix, Vector
from privcausal.vault import InstrumentScores, SlopeScores, SlopeSums, TreatmentResidual

UNSEEN = (
    "What covariates leave of the treatment, or of an arm, cannot be told from noise: slopes may "
    "be far off. More rows or budget would help; are the bounds or labels those of the data?"
)

RESIDUAL_REACH = 2.0
"""Where T - e is cut if T is a number, in how far it is seen: a quarter of its tail's excess, which
biases, is left then, and 1.5 to 3 do alike: noise grows with the square. By hand."""

LEAST_SHARE = 1 / 3
"""Of a slope, what errors of e leave at least: for more the law of the errors is too rough."""

SIZES = Stages.RESIDUAL_SIZES

Parts = Sequence[tuple[nu.FoldNuisances, ...]]
"""Nuisances by arm and fold."""


def slope_needs(request: Request) -> list[StageWeight]:
    """Of slopes, but for their sizes and what is assigned: scores and squares are one release."""
    needs = [
        *range_needs(request, SHARES.private_ranges),
        StageWeight(Stages.MARGINALS, SHARES.private_marginals),
        StageWeight(Stages.GRAM, SHARES.private_gram),
        StageWeight(Stages.OUTCOME, SHARES.private_outcome),
        StageWeight(Stages.NUISANCE_RESIDUALS, SHARES.plr_first),
        StageWeight(STAGES[1], SHARES.private_scores + SHARES.private_squares),
    ]
    if not is_binary(request):
        needs.append(StageWeight(Stages.OUTCOME_RANGE, SHARES.private_range))
    return needs


@dataclass(frozen=True)
class PartiallyLinear(AverageLearner):
    """Residual on residual, with private nuisances and a noise-aware interval."""

    name: ClassVar[str] = "plr"
    title: ClassVar[str] = "partialling-out (PLR)"

    def needs(self, request: Request, base: PrivateBase) -> list[StageWeight]:
        needs, sizes = slope_needs(request), StageWeight(STAGES[0], SHARES.private_sizes)
        if request.asked.arms:
            own = by_arm(arm_stages(request)[1:], SHARES.private_treatment)
            return [*needs, sizes, *own]
        own = propensity_needs(request, base)
        needs += [*own, sizes] if is_binary(request) else [sizes, *own]
        if request.asked.dose:
            needs.append(StageWeight(SIZES, SHARES.private_sizes))
        return needs

    def run(self, session: Session) -> Estimate:
        request = session.plan.request
        state, parts, share, lost = _learnt(looked(session))
        rows, unit = state.population.count, width_of(session.schema[request.formula.treatment])
        terms = tuple(f"{request.formula.treatment}[T.{arm}]" for arm in request.asked.arms[1:])
        known = partial(estimate_slopes, terms or ("PLR",), model=rows * share, size=rows)
        none, reach = np.zeros(len(parts)), 2 * state.outcome.bound
        # as far as half the range of outcomes, by the typical residual
        cut = 4 * nu.RESIDUAL_SHARE * state.centre.bound * float(np.sqrt(np.trace(share)))
        sums = SlopeSums(_scores(state, parts, none), cut)
        first = known(*released(state, Stages.NUISANCE_RESIDUALS, sums), none, 0.0, none)
        slopes = np.clip(first.estimate, -reach, reach)
        masses = np.maximum(np.diag(share), PRIORS.least_mass * np.trace(share)).tolist()
        parts = [_reread(state, *one) for one in zip(parts, masses, slopes.tolist(), strict=True)]
        sums, bias = cut_sums(state, _scores(state, parts, slopes), float(np.trace(share)))
        value, sd = released(state, STAGES[1], sums)
        if (np.diag(value[1]) <= FEW * np.diag(sd[1])).any():
            session.alerts["treatment"] = UNSEEN
        doubt = _remainders(state, parts, slopes)
        found = known(value, sd, slopes, bias, doubt, lost=lost, unit=unit)
        found = with_design_effect(found, request.trust.max_rows)
        found = replace(found, size_sd=state.population.count_sd)
        products = nu.product_confounding(state, parts[0], "PLR") / masses[0] / unit
        notes = average_doubts(found, products)
        if request.asked.dose or request.asked.arms:
            return finish(state, None, None, found, notes)
        tau = Constant(float(slopes[0]))
        arms = tuple(nu.nuisance_of(part, tau, state.outcome) for part in parts[0])
        return finish(state, None, shown(parts[0], arms), found, notes)


def _learnt(state: FitState) -> tuple[FitState, Parts, Matrix, float]:
    """Nuisances by arm, E[(T - e)(T - e)'] as they say, and what the cut of T - e takes off."""
    request, lost = state.session.plan.request, 0.0
    if request.asked.dose or request.asked.arms:
        state = replace(state, floor=0.0)
    if request.asked.arms:
        stages = treatments(request)
        stages.pop(next(iter(stages)))  # of the reference
        state, grams = nu.moments_of(state, stages)
        etas = nu.outcomes(state, grams)
        parts = [nu.paired(state, nu.propensities(state, grams, stage), etas) for stage in stages]
        e = np.stack([own[0].e(state.rows) for own in parts], axis=1)
        e /= np.maximum(e.sum(axis=1, keepdims=True), 1.0)
        return state, parts, np.diag(e.mean(axis=0)) - e.T @ e / len(e), lost
    state, _, partials = nu.additive_nuisances(state)
    if request.asked.dose:
        state, mass, lost = residual_cut(state, partials)
    else:
        state, partials = nu.clipped(state, partials)
        chance = partials[0].e_soft(state.rows)
        mass = float(np.mean(chance * (1 - chance)))
    return state, [refine(state, partials)], np.full((1, 1), mass), lost


def residual_cut(
    state: FitState, partials: tuple[nu.FoldNuisances, ...]
) -> tuple[FitState, float, float]:
    """Where T - e is cut if T is a number, its mean square, and what that does to the slope.

    As V, the cut T - e, takes the place of both residuals, the slope errs by
    theta E[V (T - e - V)] / E[V^2]: relative to itself at most by the cut times the mean excess
    over it, by the tail condition, over the mean square. That e(x) is learnt of a T held in its
    effective range is an error of e, which counts by its product with one of eta.
    """
    session, anywhere = state.session, state.session.plan.request.tails == "any"
    of = "Z - m" if session.plan.request.formula.instrument else "T - e"
    most = largest_residual(session.schema[session.plan.request.formula.assigned])
    target = nu.by_fold(lambda p: TreatmentResidual(p.e_soft, 1 - most), partials)
    sizes = row_sizes(session, SIZES, target, f"|{of}|")
    if not sizes.reach:
        return replace(state, most=most), 0.25, 0.0  # Popoviciu (1935)
    cut = most if anywhere else min(RESIDUAL_REACH * sizes.reach, most)
    beyond = float(sizes.hidden(np.array([sizes.reach]), anywhere)[1]) / state.population.count
    excess, square = float(Tail(sizes.reach, most, anywhere).excess(cut)), sizes.rms(cut) ** 2
    return replace(state, most=cut), square, cut * beyond * excess / square


def largest_residual(domain: Domain) -> float:
    """Largest |T - e|: e is in the effective range, T anywhere in the declared one."""
    if not isinstance(domain, Interval):
        return 1.0
    raw = domain.raw if isinstance(domain, Transformed) else domain
    return max(raw.hi - domain.lo, domain.hi - raw.lo) / domain.width


def width_of(domain: Domain) -> float:
    """What a number was divided by; 1 for two arms."""
    return domain.width if isinstance(domain, Interval) else 1.0


def _scores(state: FitState, parts: Parts, centre: Vector) -> SlopeScores:
    folds = list(zip(*parts, strict=True))
    e = tuple(tuple(part.e_soft for part in fold) for fold in folds)
    eta = tuple(tuple(part.eta for part in fold) for fold in folds)
    cut = state.most if state.session.plan.request.asked.dose else 0.0
    return SlopeScores(e, eta, state.outcome, centre, cut)


def released(state: FitState, stage: StageKey, sums: SlopeSums) -> tuple[VectorSums, VectorSums]:
    """Sums and their noise sds."""
    release = state.session.release(stage, sums)
    return sums.split(release.value), sums.split(release.noise_sd)


def cut_sums(
    state: FitState, scores: SlopeScores | InstrumentScores, typical: float
) -> tuple[SlopeSums, float]:
    """The sums with a cut, and the most that their mean is moved; `typical` is E|T - e|^2."""
    rough, rows = SlopeSums(scores, 1.0), state.population.count
    sizes = row_sizes(state.session, STAGES[0], scores, declared=declared_share(state))
    extremes = Extremes(*(np.full((1, 1), x) for x in (scores.bound, np.sqrt(typical), 1.0)))
    noise, anywhere = noise_per_cut(state, rough, STAGES[1]), state.session.plan.request.tails
    cut = score_cut(extremes, noise, sizes, state.look, rows, anywhere=anywhere == "any")
    beyond = state.session.beyond
    lost = 0.0 if beyond is None else extremes.unit_most * beyond.lost / rows
    return replace(rough, cut=cut.at), cut.bias + lost


def _reread(
    state: FitState, partials: tuple[nu.FoldNuisances, ...], mass: float, slope: float
) -> tuple[nu.FoldNuisances, ...]:
    """Nuisances read again, and their law, for this slope, less what errors of e take off it.

    Where e errs by d, the slope is seen as its share E[(T - e)^2] / (E[(T - e)^2] + E[d^2]).
    """
    weight = nu.remainder_weight(state, state.features, partials[0].e_soft, "PLR")
    errors = [(weight * part.pair.e_cov).sum() / mass for part in partials if part.pair is not None]
    raised = slope / max(1 - sum(errors) / len(partials), LEAST_SHARE)
    return nu.updated_for_effect(state, partials, Constant(raised))


def _remainders(state: FitState, parts: Parts, slopes: Vector) -> Vector:
    """Root mean squares of E[d_j (d_y - sum_i theta_i d_i)] for errors d, shape (J,).

    The pair of arm j has d_j (d_y - theta_j d_j); errors of other arms are correlated as may be.
    """
    own = [nu.remainder(state, part, "PLR").rms for part in parts]
    if len(parts) == 1:
        return np.array(own)
    weight = nu.remainder_weight(state, state.features, parts[0][0].e, "PLR")
    covs = [part[0].pair.e_cov for part in parts if part[0].pair is not None]
    others = np.array([[unrelated(weight, one, two).rms for two in covs] for one in covs])
    np.fill_diagonal(others, 0.0)
    return np.asarray(np.linalg.norm(np.column_stack([own, others * np.abs(slopes)]), axis=1))
