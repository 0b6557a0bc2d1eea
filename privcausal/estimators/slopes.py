"""The effect by an instrument: Y = theta T + g(X) + u, where E[u | X, Z] = 0 (Wright 1928).

theta is the reduced form over the first stage, E[(Z - m)(Y - eta)] / E[(Z - m)(T - e)] for
m(x) = E[Z | x], e(x) = E[T | x] and eta(x) = E[Y | x] (Chernozhukov et al. 2018, Eq. 4.8):
two-stage least squares, with controls that need not be linear. Where effects differ it is an
average of those whom the instrument moves, by Var(Z | x) (Imbens and Angrist 1994; Angrist and
Imbens 1995).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
from scipy.stats import norm

from privcausal import vault
from privcausal.estimators import averages, budget, private, survey
from privcausal.estimators import nuisances as nu
from privcausal.estimators.base import average_doubts, finish, shown
from privcausal.estimators.bases import PrivateBase
from privcausal.estimators.nuisances import refine
from privcausal.estimators.words import Estimate
from privcausal.features import functions
from privcausal.inference import effects
from privcausal.inference.averages import FEW_SDS, with_design_effect
from privcausal.inference.confounding import unrelated
from privcausal.inference.cuts import Extremes, score_cut
from privcausal.inference.priors import PRIORS
from privcausal.inference.ranges import Tail
from privcausal.inference.regression import Posterior
from privcausal.request import schema
from privcausal.request.plan import StageKey
from privcausal.request.request import Request
from privcausal.typing import Matrix, Vector

# The partially linear model Y = theta'T + g(X) + u (Robinson 1988), by its partialled-out score.
#
# theta solves sum (T - e)(Y - eta - theta'(T - e)) = 0 with e(x) = E[T | x], eta(x) = E[Y | x]
# (Chernozhukov et al. 2018, Eq. 4.4). T is 0 or 1, and theta then is the ATO; or a number, worked
# on
# as its place in its range; or the indicators of all arms but the first.

UNSEEN_SLOPE = (
    "What covariates leave of the treatment, or of an arm, cannot be told from noise: slopes may "
    "be far off. More rows or budget would help; are the bounds or labels those of the data?"
)

RESIDUAL_REACH = 2.0
"""Where T - e is cut if T is a number, in how far it is seen: a quarter of its tail's excess, which
biases, is left then, and 1.5 to 3 do alike: noise grows with the square. By hand."""

LEAST_SLOPE_SHARE = 1 / 3
"""Of a slope, what errors of e leave at least: for more the law of the errors is too rough."""

SLOPE_SIZES = budget.Stages.RESIDUAL_SIZES

FoldsByArm = Sequence[tuple[nu.FoldFit, ...]]
"""Nuisances by arm and fold."""


def slope_needs(request: Request) -> list[budget.StageWeight]:
    """Of slopes, but for their sizes and what is assigned: scores and squares are one release."""
    needs = [
        *survey.range_needs(request, budget.SHARES.private_ranges),
        budget.StageWeight(budget.Stages.MARGINALS, budget.SHARES.private_marginals),
        budget.StageWeight(budget.Stages.GRAM, budget.SHARES.private_gram),
        budget.StageWeight(budget.Stages.OUTCOME, budget.SHARES.private_outcome),
        budget.StageWeight(budget.Stages.NUISANCE_RESIDUALS, budget.SHARES.plr_first),
        budget.StageWeight(
            private.AVERAGE_STAGES[1], budget.SHARES.private_scores + budget.SHARES.private_squares
        ),
    ]
    if not survey.is_binary(request):
        needs.append(budget.StageWeight(budget.Stages.OUTCOME_RANGE, budget.SHARES.private_range))
    return needs


@dataclass(frozen=True)
class PartiallyLinear(private.AverageLearner):
    """Residual on residual, with private nuisances and a noise-aware interval."""

    name: ClassVar[str] = "plr"
    title: ClassVar[str] = "partialling-out (PLR)"

    def needs(self, request: Request, base: PrivateBase) -> list[budget.StageWeight]:
        needs, sizes = (
            slope_needs(request),
            budget.StageWeight(private.AVERAGE_STAGES[0], budget.SHARES.private_sizes),
        )
        if request.asked.arms:
            own = private.by_arm(private.arm_stages(request)[1:], budget.SHARES.private_treatment)
            return [*needs, sizes, *own]
        own = private.propensity_needs(request, base)
        needs += [*own, sizes] if survey.is_binary(request) else [sizes, *own]
        if request.asked.dose:
            needs.append(budget.StageWeight(SLOPE_SIZES, budget.SHARES.private_sizes))
        return needs

    def run(self, session: survey.FitRun) -> Estimate:
        request = session.plan.request
        state, parts, share, lost = _learnt(private.looked(session))
        rows, unit = state.population.count, width_of(session.schema[request.formula.treatment])
        terms = tuple(f"{request.formula.treatment}[T.{arm}]" for arm in request.asked.arms[1:])
        known = partial(effects.estimate_slopes, terms or ("PLR",), model=rows * share, size=rows)
        none, reach = np.zeros(len(parts)), 2 * state.outcome.bound
        # as far as half the range of outcomes, by the typical residual
        cut = 4 * nu.RESIDUAL_SHARE * state.centre.bound * float(np.sqrt(np.trace(share)))
        sums = vault.SlopeSums(_scores(state, parts, none), cut)
        first = known(
            *released_slopes(state, budget.Stages.NUISANCE_RESIDUALS, sums), none, 0.0, none
        )
        slopes = np.clip(first.estimate, -reach, reach)
        masses = np.maximum(np.diag(share), PRIORS.least_mass * np.trace(share)).tolist()
        parts = [_reread(state, *one) for one in zip(parts, masses, slopes.tolist(), strict=True)]
        sums, bias = cut_sums(state, _scores(state, parts, slopes), float(np.trace(share)))
        value, sd = released_slopes(state, private.AVERAGE_STAGES[1], sums)
        if (np.diag(value[1]) <= FEW_SDS * np.diag(sd[1])).any():
            session.alerts["treatment"] = UNSEEN_SLOPE
        doubt = _remainders(state, parts, slopes)
        found = known(value, sd, slopes, bias, doubt, lost=lost, unit=unit)
        found = with_design_effect(found, request.trust.max_rows)
        found = replace(found, size_sd=state.population.count_sd)
        products = nu.product_confounding(state, parts[0], "PLR") / masses[0] / unit
        notes = average_doubts(found, products)
        if request.asked.dose or request.asked.arms:
            return finish(state, None, None, found, notes)
        tau = functions.Constant(float(slopes[0]))
        arms = tuple(nu.nuisance_of(part, tau, state.outcome) for part in parts[0])
        return finish(state, None, shown(parts[0], arms), found, notes)


def _learnt(state: survey.Survey) -> tuple[survey.Survey, FoldsByArm, Matrix, float]:
    """Nuisances by arm, E[(T - e)(T - e)'] as they say, and what the cut of T - e takes off."""
    request, lost = state.session.plan.request, 0.0
    if request.asked.dose or request.asked.arms:
        state = replace(state, floor=0.0)
    if request.asked.arms:
        stages = private.arm_indicators(request)
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
    state: survey.Survey, partials: tuple[nu.FoldFit, ...]
) -> tuple[survey.Survey, float, float]:
    """Where T - e is cut if T is a number, its mean square, and what that does to the slope.

    As V, the cut T - e, takes the place of both residuals, the slope errs by
    theta E[V (T - e - V)] / E[V^2]: relative to itself at most by the cut times the mean excess
    over it, by the tail condition, over the mean square. That e(x) is learnt of a T held in its
    effective range is an error of e, which counts by its product with one of eta.
    """
    session, anywhere = state.session, state.session.plan.request.tails == "any"
    of = "Z - m" if session.plan.request.formula.instrument else "T - e"
    most = largest_residual(session.schema[session.plan.request.formula.assigned])
    target = nu.by_fold(lambda p: vault.TreatmentResidual(p.e_soft, 1 - most), partials)
    sizes = averages.row_sizes(session, SLOPE_SIZES, target, f"|{of}|")
    if not sizes.reach:
        return replace(state, most=most), 0.25, 0.0  # Popoviciu (1935)
    cut = most if anywhere else min(RESIDUAL_REACH * sizes.reach, most)
    beyond = float(sizes.hidden(np.array([sizes.reach]), anywhere)[1]) / state.population.count
    excess, square = float(Tail(sizes.reach, most, anywhere).excess(cut)), sizes.rms(cut) ** 2
    return replace(state, most=cut), square, cut * beyond * excess / square


def largest_residual(domain: schema.Domain) -> float:
    """Largest |T - e|: e is in the effective range, T anywhere in the declared one."""
    if not isinstance(domain, schema.Interval):
        return 1.0
    raw = domain.raw if isinstance(domain, schema.Transformed) else domain
    return max(raw.hi - domain.lo, domain.hi - raw.lo) / domain.width


def width_of(domain: schema.Domain) -> float:
    """What a number was divided by; 1 for two arms."""
    return domain.width if isinstance(domain, schema.Interval) else 1.0


def _scores(state: survey.Survey, parts: FoldsByArm, centre: Vector) -> vault.SlopeScores:
    folds = list(zip(*parts, strict=True))
    e = tuple(tuple(part.e_soft for part in fold) for fold in folds)
    eta = tuple(tuple(part.eta for part in fold) for fold in folds)
    cut = state.most if state.session.plan.request.asked.dose else 0.0
    return vault.SlopeScores(e, eta, state.outcome, centre, cut)


def released_slopes(
    state: survey.Survey, stage: StageKey, sums: vault.SlopeSums
) -> tuple[effects.VectorSums, effects.VectorSums]:
    """Sums and their noise sds."""
    release = state.session.release(stage, sums)
    return sums.split(release.value), sums.split(release.noise_sd)


def cut_sums(
    state: survey.Survey, scores: vault.SlopeScores | vault.InstrumentScores, typical: float
) -> tuple[vault.SlopeSums, float]:
    """The sums with a cut, and the most that their mean is moved; `typical` is E|T - e|^2."""
    rough, rows = vault.SlopeSums(scores, 1.0), state.population.count
    sizes = averages.row_sizes(
        state.session, private.AVERAGE_STAGES[0], scores, declared=averages.declared_share(state)
    )
    extremes = Extremes(*(np.full((1, 1), x) for x in (scores.bound, np.sqrt(typical), 1.0)))
    noise, anywhere = (
        averages.noise_per_cut(state, rough, private.AVERAGE_STAGES[1]),
        state.session.plan.request.tails,
    )
    cut = score_cut(extremes, noise, sizes, state.look, rows, anywhere=anywhere == "any")
    beyond = state.session.beyond
    lost = 0.0 if beyond is None else extremes.unit_most * beyond.lost / rows
    return replace(rough, cut=cut.at), cut.bias + lost


def _reread(
    state: survey.Survey, partials: tuple[nu.FoldFit, ...], mass: float, slope: float
) -> tuple[nu.FoldFit, ...]:
    """Nuisances read again, and their law, for this slope, less what errors of e take off it.

    Where e errs by d, the slope is seen as its share E[(T - e)^2] / (E[(T - e)^2] + E[d^2]).
    """
    weight = nu.remainder_weight(state, state.features, partials[0].e_soft, "PLR")
    errors = [(weight * part.pair.e_cov).sum() / mass for part in partials if part.pair is not None]
    raised = slope / max(1 - sum(errors) / len(partials), LEAST_SLOPE_SHARE)
    return nu.updated_for_effect(state, partials, functions.Constant(raised))


def _remainders(state: survey.Survey, parts: FoldsByArm, slopes: Vector) -> Vector:
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


WEAK = (
    "The first stage cannot be told from zero, noise included, so the LATE has no limits. More "
    "rows or budget, narrower bounds or a stronger instrument would help."
)


@dataclass(frozen=True)
class LocalAverage(private.AverageLearner):
    """Two-stage least squares on residuals, with the limits of Anderson and Rubin (1949)."""

    name: ClassVar[str] = "late"
    title: ClassVar[str] = "two-stage least squares (2SLS)"

    def needs(self, request: Request, base: PrivateBase) -> list[budget.StageWeight]:
        needs = [
            *slope_needs(request),
            budget.StageWeight(private.AVERAGE_STAGES[0], budget.SHARES.private_sizes),
        ]
        if request.asked.dose:
            needs.append(budget.StageWeight(SLOPE_SIZES, budget.SHARES.private_sizes))
        if request.propensity is None:
            needs.append(
                budget.StageWeight(budget.Stages.INSTRUMENT, budget.SHARES.private_treatment)
            )
        return [*needs, budget.StageWeight(budget.Stages.TREATMENT, budget.SHARES.late_treatment)]

    def run(self, session: survey.FitRun) -> Estimate:
        request, formula = session.plan.request, session.plan.request.formula
        state, instrument, treatment, e, square = _late_learnt(
            replace(private.looked(session), floor=0.0)
        )
        rows, domain = state.population.count, session.schema[formula.treatment]
        taken = width_of(domain)
        doubts = [nu.remainder(state, parts, "PLR").rms for parts in (instrument, treatment)]
        known = partial(
            effects.estimate_reduced,
            remainder=np.array(doubts),
            model=rows * square,
            size=rows,
            units=(width_of(session.schema[formula.assigned]), taken),
        )
        # twice the typical residual of an outcome, as one of a treatment in [0, 1] is a half
        scale = 4 * nu.RESIDUAL_SHARE * state.centre.bound
        scores = vault.InstrumentScores(
            tuple((part.e_soft,) for part in instrument),
            tuple((one,) for one in e),
            tuple((part.eta,) for part in instrument),
            state.outcome,
            0.0,
            scale,
            largest_residual(domain),
            state.most if request.asked.dose else 0.0,
        )
        sums = vault.SlopeSums(scores, scale * float(np.sqrt(square)))
        value, sd = released_slopes(state, budget.Stages.NUISANCE_RESIDUALS, sums)
        first = known(value, sd, (0.0, scale), 0.0)
        # limits hold whatever the centre, which makes the scores small
        seen = abs(first.estimate[2]) > FEW_SDS * np.sqrt(first.cov[2, 2])
        reach = 2 * state.outcome.bound
        centre = float(np.clip(first.estimate[0] * taken if seen else 0.0, -reach, reach))
        scale *= _ratio(np.diag(value[2]), np.diag(sd[2]))
        sums, bias = cut_sums(state, replace(scores, centre=centre, scale=scale), square)
        own = known(*released_slopes(state, private.AVERAGE_STAGES[1], sums), (centre, scale), bias)
        own = with_design_effect(own, request.trust.max_rows)
        own = replace(own, size_sd=state.population.count_sd)
        if np.isinf(effects.late_limits(own, float(norm.ppf(0.975)))[1]):
            session.alerts["instrument"] = WEAK
        return finish(state, None, None, own, average_doubts(own))


Folds = tuple[nu.FoldFit, ...]


def _ratio(squares: Vector, sd: Vector) -> float:
    """Root of the ratio of two noisy sums of squares, each raised by its noise.

    Where both scores are alike in size, the noise of each is sqrt(2) times what it is alone.
    """
    one, two = np.maximum(squares, 0.0) + sd
    return float(np.sqrt(one / two)) if two > 0 else 1.0


def _late_learnt(
    state: survey.Survey,
) -> tuple[survey.Survey, Folds, Folds, tuple[functions.Function, ...], float]:
    """Nuisances of instrument and treatment by fold, e(x), and E[(Z - m)^2] as they say."""
    request, known = state.session.plan.request, state.known
    stages: dict[StageKey, vault.Transform] = {budget.Stages.TREATMENT: vault.Received()}
    if known is None:
        stages = {budget.Stages.INSTRUMENT: vault.Assigned(), **stages}
    state, grams = nu.moments_of(state, stages)
    etas = nu.outcomes(state, grams)

    def means(stage: StageKey, number: bool) -> list[Posterior]:
        return (
            nu.means(state, grams, stage, 0.5) if number else nu.propensities(state, grams, stage)
        )

    taken = means(budget.Stages.TREATMENT, request.asked.per_unit)
    e = tuple(functions.Additive(state.features, one.mean, 0.5, 0.0, 1.0) for one in taken)
    if known is not None:
        parts = tuple(nu.FoldFit(known, known, nu.mean(state, y.mean), None) for y in etas)
        chance = known(state.rows)
        return state, parts, parts, e, float(np.mean(chance * (1 - chance)))
    moved = means(budget.Stages.INSTRUMENT, request.asked.dose)
    parts, others = nu.paired(state, moved, etas), nu.paired(state, moved, taken)
    if request.asked.dose:
        # what is cut of Z - m is an error of m, which counts by its products with the others
        state, square, _ = residual_cut(state, parts)
    else:
        chance = parts[0].e_soft(state.rows)
        square = float(np.mean(chance * (1 - chance)))
    return state, parts, others, e, square
