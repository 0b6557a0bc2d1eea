"""Slopes of the partially linear model.

Y = theta'T + g(X) + u (Robinson 1988), by its partialled-out score. theta solves
sum (T - e)(Y - eta - theta'(T - e)) = 0 with e(x) = E[T | x] and eta(x) = E[Y | x]
(Chernozhukov et al. 2018, Eq. 4.4). T is a number, scaled to its place in its range, or consists of
the indicators of all arms except the first. For two arms, theta is the ATO of learner "private".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from privcausal import vault
from privcausal.estimators import averages, budget, first_stages, interactions, private
from privcausal.estimators import nuisances as nu
from privcausal.estimators.base import finish, product_alert
from privcausal.estimators.bases import PrivateBase
from privcausal.estimators.budget import Step, several_arms
from privcausal.estimators.words import Estimate, words_of
from privcausal.features import functions
from privcausal.inference import effects
from privcausal.inference.averages import FEW_SDS, with_design_effect
from privcausal.inference.confounding import unrelated
from privcausal.inference.cuts import Extremes, score_cut
from privcausal.inference.priors import PRIORS
from privcausal.request import schema
from privcausal.request.plan import StageKey
from privcausal.request.request import Request
from privcausal.request.terms import PLR_TERM
from privcausal.typing import Matrix, Vector

UNSEEN_SLOPE = (
    "Given the covariates, the treatment or one of its arms varies too little to be distinguished "
    "from noise, so slopes may be far off. Check the bounds and labels, or use more rows or budget."
)

LEAST_SLOPE_SHARE = 1 / 3
"""Minimum share of a slope that errors of e leave.

The distribution of the errors is too rough for a smaller share.
"""

SLOPE_SIZES = StageKey("effect", "residual sizes")

FoldsByArm = Sequence[nu.Folds]
"""Nuisances by arm and fold."""

DOSES = Step(SLOPE_SIZES, 0.10, (lambda request, _: request.dose,))
SLOPE_STEPS = (
    private.COVARIATE_RANGES,
    *private.MOMENTS,
    Step(nu.NUISANCE_RESIDUALS, 0.12),
    Step(private.AVERAGE_STAGES[1], 0.88),
    private.outcome_look(0.18),
)
"""Releases for slopes, without sizes and assignment."""


def _sized_first(request: Request, base: PrivateBase) -> bool:
    return budget.wide(request, base) or several_arms(request, base)


@dataclass(frozen=True)
class PartiallyLinear(private.AverageLearner):
    """Residual on residual, with private nuisances and a noise-aware interval."""

    name: ClassVar[str] = "plr"
    title: ClassVar[str] = "partialling-out (PLR)"
    steps: ClassVar[tuple[Step, ...]] = (
        *SLOPE_STEPS,
        Step(private.AVERAGE_STAGES[0], 0.10, (_sized_first,)),
        Step(lambda request: private.arm_stages(request)[1:], 0.31, (several_arms,)),
        *private.UNKNOWN_PROPENSITY,
        Step(
            private.AVERAGE_STAGES[0],
            0.10,
            (lambda request, base: not _sized_first(request, base),),
        ),
        DOSES,
    )

    def run(self, fit: first_stages.Fit) -> Estimate:
        request = fit.request
        state, parts, share, (lost, doubt) = _nuisances(private.prepared(fit))
        rows = max(state.population.count, 1.0)
        unit = width_of(fit.schema[request.formula.treatment])
        model = rows * share
        estimate = partial(
            effects.estimate_slopes, request.terms, model=model, size=rows, doubt=doubt
        )
        none, reach = np.zeros(len(parts)), 2 * state.outcome.bound
        # half the outcome range times the typical residual of T
        cut = 4 * nu.RESIDUAL_SHARE * state.centre.bound * float(np.sqrt(np.trace(share)))
        sums = vault.SlopeSums(_scores(state, parts, none), cut)
        totals = effects.SlopeTotals(*fit.read(nu.NUISANCE_RESIDUALS, sums))
        slopes = np.clip(estimate(totals, none, 0.0, none).estimate, -reach, reach)
        mass = effects.posterior_mass(totals.mass, model, rows, doubt)
        shares = np.diag(mass.value + mass.sd) / rows  # not less than the rows may have
        typical = float(shares.sum())
        masses = np.maximum(shares, PRIORS.least_mass * typical).tolist()
        # Refit the nuisances and their distribution for these slopes, corrected for errors of e. If
        # e has error d, a slope is attenuated by the factor E[(T - e)^2] / (E[(T - e)^2] + E[d^2]).
        refitted = []
        for folds, square, slope in zip(parts, masses, slopes.tolist(), strict=True):
            weight = nu.remainder_weight(state, state.features, folds[0].e_soft, PLR_TERM)
            pairs = [fold.pair for fold in folds if fold.pair is not None]
            attenuation = sum((weight * pair.e_cov).sum() / square for pair in pairs) / len(folds)
            raised = functions.Constant(slope / max(1 - attenuation, LEAST_SLOPE_SHARE))
            refitted.append(nu.updated_for_effect(state, folds, raised))
        parts = refitted
        sums, bias = cut_sums(state, _scores(state, parts, slopes), typical)
        totals = effects.SlopeTotals(*fit.read(private.AVERAGE_STAGES[1], sums))
        if (np.diag(totals.mass.value) <= FEW_SDS * np.diag(totals.mass.sd)).any():
            fit.alerts["treatment"] = UNSEEN_SLOPE
        errors = _nuisance_errors(state, parts, slopes)
        theta = estimate(totals, slopes, bias, errors, lost=lost, unit=unit)
        theta = with_design_effect(theta, request.trust.max_rows)
        theta = replace(theta, size_sd=state.population.count_sd)
        fit.alerts |= product_alert(state, parts[0], theta, PLR_TERM, masses[0] * unit)
        return finish(state, None, None, theta)


def _nuisances(
    state: first_stages.FitState,
) -> tuple[first_stages.FitState, FoldsByArm, Matrix, tuple[float, float]]:
    """Nuisances by arm, the model's E[(T - e)(T - e)'], and the last two results of `residual_cut`.

    These are zero for several arms.
    """
    request, state = state.request, replace(state, floor=0.0)
    if request.arms:
        stages = private.arm_indicators(request)
        stages.pop(next(iter(stages)))  # drop the reference arm
        state, grams = nu.moments_of(state, stages)
        etas = nu.outcomes(state, grams)
        parts = [nu.paired(state, nu.propensities(state, grams, stage), etas) for stage in stages]
        e = np.stack([folds[0].e(state.rows) for folds in parts], axis=1)
        e /= np.maximum(e.sum(axis=1, keepdims=True), 1.0)
        return state, parts, np.diag(e.mean(axis=0)) - e.T @ e / len(e), (0.0, 0.0)
    state, _, partials = nu.additive_nuisances(state)
    state, mass, lost, doubt = residual_cut(state, partials)
    parts = [interactions.refine(state, partials)]
    return state, parts, np.full((1, 1), mass), (lost, doubt)


def residual_cut(
    state: first_stages.FitState, partials: nu.Folds
) -> tuple[first_stages.FitState, float, float, float]:
    """Clipping threshold of T - e for a numeric T, its mean square, and the effect on the slope.

    The last result is the sum of squares of as many rows at the threshold as noise hides in a cell.

    Let V be the clipped T - e, and c the center of the scores V (Y - eta - c (T - e)). The slope
    errs by (theta - c) E[V (T - e - V)] / E[V^2]. Relative to theta - c, this error is at most the
    threshold times the mean excess over the threshold, divided by the mean square (`tails`). The
    threshold is not below the largest detected size, and minimizes this error plus the last result
    as a share of the sum of squares.

    e(x) is learned from a T that is clipped to its effective range. This causes an error of e,
    which enters through its product with an error of eta.
    """
    anywhere = state.request.tails == "any"
    name = {"treatment": "T - e", "instrument": "Z - m"}[words_of(state.request).compared]
    most = largest_residual(state.schema[state.request.formula.assigned])
    target = nu.by_fold(lambda p: vault.OfTreatment("residual", p.e_soft, 1 - most), partials)
    sizes = averages.row_sizes(state, SLOPE_SIZES, target, f"|{name}|")
    if not sizes.reach:
        return replace(state, most=most), 0.25, 0.0, 0.0  # Popoviciu (1935)
    count = state.population.count
    cuts = np.geomspace(most if anywhere else min(sizes.reach, most), most, 200)
    (excess,), (square,) = sizes.beyond(count, anywhere=anywhere)(cuts)
    lost, doubt = cuts * excess / square, sizes.noise_sd * cuts**2
    k = int(np.argmin(lost + doubt / (count * square)))
    return replace(state, most=float(cuts[k])), float(square[k]), float(lost[k]), float(doubt[k])


def largest_residual(domain: schema.Domain) -> float:
    """Maximum |T - e|: e is in the effective range, T anywhere in the declared range."""
    if not isinstance(domain, schema.Interval):
        return 1.0
    raw = domain.raw if isinstance(domain, schema.Transformed) else domain
    return max(raw.hi - domain.lo, domain.hi - raw.lo) / domain.width


def width_of(domain: schema.Domain) -> float:
    """The divisor that scaled a number; 1 for two arms."""
    return domain.width if isinstance(domain, schema.Interval) else 1.0


def _scores(state: first_stages.FitState, parts: FoldsByArm, centre: Vector) -> vault.SlopeScores:
    folds = list(zip(*parts, strict=True))
    e = tuple(tuple(part.e_soft for part in fold) for fold in folds)
    eta = tuple(tuple(part.eta for part in fold) for fold in folds)
    if not state.request.dose:
        return vault.SlopeScores(e, eta, state.outcome, centre)
    most = largest_residual(state.schema[state.request.formula.treatment])
    return vault.SlopeScores(e, eta, state.outcome, centre, state.most, most)


def cut_sums(
    state: first_stages.FitState, scores: vault.SlopeScores | vault.InstrumentScores, typical: float
) -> tuple[vault.SlopeSums, float]:
    """Clipped sums, and the maximum change of their mean; `typical` is E|T - e|^2."""
    rough, rows = vault.SlopeSums(scores, 1.0), state.population.count
    shares, stage = averages.declared_shares(state), private.AVERAGE_STAGES[0]
    sizes = averages.row_sizes(state, stage, scores, declared=shares)
    sizes_of, weights, chances = (np.full((1, 1), x) for x in (scores.bound, np.sqrt(typical), 1.0))
    extremes = Extremes(sizes_of, weights, chances)
    noise = averages.noise_per_cut(state, rough, private.AVERAGE_STAGES[1])
    anywhere = state.request.tails == "any"
    cut = score_cut(extremes, noise, sizes, state.look, rows, anywhere=anywhere)
    beyond = state.beyond
    lost = 0.0 if beyond is None else extremes.unit_most * beyond.lost / rows
    return replace(rough, cut=cut.at), cut.bias + lost


def _nuisance_errors(state: first_stages.FitState, parts: FoldsByArm, slopes: Vector) -> Vector:
    """Root mean squares of E[d_j (d_y - sum_i theta_i d_i)] for errors d, shape (J,).

    The pair of arm j covers d_j (d_y - theta_j d_j). The correlation with errors of other arms may
    be arbitrary.
    """
    errors = [nu.remainder(state, part, PLR_TERM).rms for part in parts]
    if len(parts) == 1:
        return np.array(errors)
    weight = nu.remainder_weight(state, state.features, parts[0][0].e, PLR_TERM)
    covs = [part[0].pair.e_cov for part in parts if part[0].pair is not None]
    others = np.array([[unrelated(weight, row, col).rms for col in covs] for row in covs])
    np.fill_diagonal(others, 0.0)
    return np.asarray(np.linalg.norm(np.column_stack([errors, others * np.abs(slopes)]), axis=1))
