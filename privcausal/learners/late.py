"""The effect by an instrument: Y = theta T + g(X) + u, where E[u | X, Z] = 0 (Wright 1928).

theta is the reduced form over the first stage, E[(Z - m)(Y - eta)] / E[(Z - m)(T - e)] for
m(x) = E[Z | x], e(x) = E[T | x] and eta(x) = E[Y | x] (Chernozhukov et al. 2018, Eq. 4.8):
two-stage least squares, with controls that need not be linear. Where effects differ it is an
average of those whom the instrument moves, by Var(Z | x) (Imbens and Angrist 1994; Angrist and
Imbens 1995).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
from scipy.stats import norm

from privcausal.features.functions import Additive, Function
from privcausal.inference.average import FEW, with_design_effect
from privcausal.inference.contrasts import late_limits
from privcausal.inference.regression import Posterior
from privcausal.inference.slopes import estimate_reduced
from privcausal.learners import nuisances as nu
from privcausal.learners.base import average_doubts, finish
from privcausal.learners.bases import PrivateBase
from privcausal.learners.budget import StageWeight
from privcausal.learners.estimate import Estimate
from privcausal.learners.plr import (
    SIZES,
    cut_sums,
    largest_residual,
    released,
    residual_cut,
    slope_needs,
    width_of,
)
from privcausal.learners.private import STAGES, AverageLearner, looked
from privcausal.learners.shares import SHARES, Stages
from privcausal.learners.state import FitState, Session
from privcausal.request.plan import StageKey
from privcausal.request.request import Request
from privcausal.typing import Vector
from privcausal.vault import InstrumentScores, SlopeSums, Taken, Transform, Treatment

WEAK = (
    "The first stage cannot be told from zero, noise included, so the LATE has no limits. More "
    "rows or budget, narrower bounds or a stronger instrument would help."
)


@dataclass(frozen=True)
class LocalAverage(AverageLearner):
    """Two-stage least squares on residuals, with the limits of Anderson and Rubin (1949)."""

    name: ClassVar[str] = "late"
    title: ClassVar[str] = "two-stage least squares (2SLS)"

    def needs(self, request: Request, base: PrivateBase) -> list[StageWeight]:
        needs = [*slope_needs(request), StageWeight(STAGES[0], SHARES.private_sizes)]
        if request.asked.dose:
            needs.append(StageWeight(SIZES, SHARES.private_sizes))
        if request.propensity is None:
            needs.append(StageWeight(Stages.INSTRUMENT, SHARES.private_treatment))
        return [*needs, StageWeight(Stages.TREATMENT, SHARES.late_treatment)]

    def run(self, session: Session) -> Estimate:
        request, formula = session.plan.request, session.plan.request.formula
        state, instrument, treatment, e, square = _learnt(replace(looked(session), floor=0.0))
        rows, domain = state.population.count, session.schema[formula.treatment]
        taken = width_of(domain)
        doubts = [nu.remainder(state, parts, "PLR").rms for parts in (instrument, treatment)]
        known = partial(
            estimate_reduced,
            remainder=np.array(doubts),
            model=rows * square,
            size=rows,
            units=(width_of(session.schema[formula.assigned]), taken),
        )
        # twice the typical residual of an outcome, as one of a treatment in [0, 1] is a half
        scale = 4 * nu.RESIDUAL_SHARE * state.centre.bound
        scores = InstrumentScores(
            tuple((part.e_soft,) for part in instrument),
            tuple((one,) for one in e),
            tuple((part.eta,) for part in instrument),
            state.outcome,
            0.0,
            scale,
            largest_residual(domain),
            state.most if request.asked.dose else 0.0,
        )
        sums = SlopeSums(scores, scale * float(np.sqrt(square)))
        value, sd = released(state, Stages.NUISANCE_RESIDUALS, sums)
        first = known(value, sd, (0.0, scale), 0.0)
        # limits hold whatever the centre, which makes the scores small
        seen = abs(first.estimate[2]) > FEW * np.sqrt(first.cov[2, 2])
        reach = 2 * state.outcome.bound
        centre = float(np.clip(first.estimate[0] * taken if seen else 0.0, -reach, reach))
        scale *= _ratio(np.diag(value[2]), np.diag(sd[2]))
        sums, bias = cut_sums(state, replace(scores, centre=centre, scale=scale), square)
        own = known(*released(state, STAGES[1], sums), (centre, scale), bias)
        own = with_design_effect(own, request.trust.max_rows)
        own = replace(own, size_sd=state.population.count_sd)
        if np.isinf(late_limits(own, float(norm.ppf(0.975)))[1]):
            session.alerts["instrument"] = WEAK
        return finish(state, None, None, own, average_doubts(own))


Folds = tuple[nu.FoldNuisances, ...]


def _ratio(squares: Vector, sd: Vector) -> float:
    """Root of the ratio of two noisy sums of squares, each raised by its noise.

    Where both scores are alike in size, the noise of each is sqrt(2) times what it is alone.
    """
    one, two = np.maximum(squares, 0.0) + sd
    return float(np.sqrt(one / two)) if two > 0 else 1.0


def _learnt(state: FitState) -> tuple[FitState, Folds, Folds, tuple[Function, ...], float]:
    """Nuisances of instrument and treatment by fold, e(x), and E[(Z - m)^2] as they say."""
    request, known = state.session.plan.request, state.known
    stages: dict[StageKey, Transform] = {Stages.TREATMENT: Taken()}
    if known is None:
        stages = {Stages.INSTRUMENT: Treatment(), **stages}
    state, grams = nu.moments_of(state, stages)
    etas = nu.outcomes(state, grams)

    def means(stage: StageKey, number: bool) -> list[Posterior]:
        return (
            nu.means(state, grams, stage, 0.5) if number else nu.propensities(state, grams, stage)
        )

    taken = means(Stages.TREATMENT, request.asked.per_unit)
    e = tuple(Additive(state.features, one.mean, 0.5, 0.0, 1.0) for one in taken)
    if known is not None:
        parts = tuple(nu.FoldNuisances(known, known, nu.mean(state, y.mean), None) for y in etas)
        chance = known(state.rows)
        return state, parts, parts, e, float(np.mean(chance * (1 - chance)))
    moved = means(Stages.INSTRUMENT, request.asked.dose)
    parts, others = nu.paired(state, moved, etas), nu.paired(state, moved, taken)
    if request.asked.dose:
        # what is cut of Z - m is an error of m, which counts by its products with the others
        state, square, _ = residual_cut(state, parts)
    else:
        chance = parts[0].e_soft(state.rows)
        square = float(np.mean(chance * (1 - chance)))
    return state, parts, others, e, square
