"""The effect by an instrument: Y = theta T + g(X) + u, where E[u | X, Z] = 0 (Wright 1928).

theta is the reduced form over the first stage, E[(Z - m)(Y - eta)] / E[(Z - m)(T - e)] for
m(x) = E[Z | x], e(x) = E[T | x] and eta(x) = E[Y | x] (Chernozhukov et al. 2018, Eq. 4.8):
two-stage least squares, with controls that need not be linear. Where effects differ it is an
average of those whom the instrument moves, by Var(Z | x) (Imbens and Angrist 1994; Angrist and
Imbens 1995).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.stats import norm

from privcausal.features.functions import Additive, Function
from privcausal.inference.average import FEW, AverageEstimate, with_design_effect
from privcausal.inference.contrasts import late_limits
from privcausal.inference.regression import Posterior
from privcausal.inference.slopes import VectorSums, estimate_reduced
from privcausal.learners import nuisances as nu
from privcausal.learners.base import average_doubts, finish
from privcausal.learners.bases import PrivateBase
from privcausal.learners.budget import StageWeight
from privcausal.learners.estimate import Estimate
from privcausal.learners.interactions import INTERACTIONS
from privcausal.learners.plr import SIZES, cut_sums, released, residual_cut
from privcausal.learners.private import STAGES, Private, looked
from privcausal.learners.shares import SHARES, Stages
from privcausal.learners.state import FitState, Session
from privcausal.request.plan import StageKey
from privcausal.request.request import Request
from privcausal.request.schema import Interval, Schema, Transformed
from privcausal.typing import Vector
from privcausal.vault import InstrumentScores, SlopeSums, Taken, Transform, Treatment

WEAK = (
    "The first stage cannot be told from zero, noise included, so the LATE has no limits. More "
    "rows or budget, narrower bounds or a stronger instrument would help."
)


@dataclass(frozen=True)
class LocalAverage(Private):
    """Two-stage least squares on residuals, with the limits of Anderson and Rubin (1949)."""

    name: ClassVar[str] = "late"
    title: ClassVar[str] = "two-stage least squares (2SLS)"

    def needs(self, request: Request, base: PrivateBase) -> list[StageWeight]:
        found = {need.key: need.weight for need in super().needs(request, base)}
        for key in (Stages.NUISANCE_WEIGHTS, Stages.TREATMENT, *INTERACTIONS):
            found.pop(key, None)
        # scores and their squares are one release
        found[STAGES[1]] += found.pop(STAGES[2])
        found |= {STAGES[0]: SHARES.private_sizes, Stages.NUISANCE_RESIDUALS: SHARES.plr_first}
        if request.dose:
            found[SIZES] = SHARES.private_sizes
        if request.propensity is None:
            found[Stages.INSTRUMENT] = SHARES.private_treatment
        found[Stages.TREATMENT] = SHARES.late_treatment
        return [StageWeight(key, weight) for key, weight in found.items()]

    def run(self, session: Session) -> Estimate:
        request = session.plan.request
        found = _learnt(replace(looked(session), floor=0.0))
        state, square = found.state, found.square
        # twice the typical residual of an outcome, as one of a treatment in [0, 1] is a half
        scale = 4 * nu.RESIDUAL_SHARE * state.centre.bound
        sums = SlopeSums(found.scores(0.0, scale), scale * float(np.sqrt(square)))
        value, sd = released(state, Stages.NUISANCE_RESIDUALS, sums)
        first = found.estimate(value, sd, sums, 0.0)
        # limits hold whatever the centre, which makes the scores small
        seen = abs(first.estimate[2]) > FEW * np.sqrt(first.cov[2, 2])
        reach = 2 * state.outcome.bound
        taken = _width(request.formula.treatment, session.schema)
        centre = float(np.clip(first.estimate[0] * taken if seen else 0.0, -reach, reach))
        scale *= _ratio(np.diag(value[2]), np.diag(sd[2]))
        sums, bias = cut_sums(state, found.scores(centre, scale), square)
        own = found.estimate(*released(state, STAGES[1], sums), sums, bias)
        own = with_design_effect(own, request.trust.max_rows)
        own = replace(own, size_sd=state.population.count_sd)
        if np.isinf(late_limits(own, float(norm.ppf(0.975)))[1]):
            session.alerts["instrument"] = WEAK
        return finish(state, None, None, own, average_doubts(own))


def _ratio(squares: Vector, sd: Vector) -> float:
    """Root of the ratio of two noisy sums of squares, each raised by its noise.

    Where both scores are alike in size, the noise of each is sqrt(2) times what it is alone.
    """
    one, two = np.maximum(squares, 0.0) + sd
    return float(np.sqrt(one / two)) if two > 0 else 1.0


@dataclass(frozen=True, eq=False)
class _Learnt:
    """Nuisances by fold, and E[(Z - m)^2] as they say."""

    state: FitState
    instrument: tuple[nu.FoldNuisances, ...]
    treatment: tuple[nu.FoldNuisances, ...]
    e: tuple[Function, ...]
    square: float

    def scores(self, centre: float, scale: float) -> InstrumentScores:
        state = self.state
        request = state.session.plan.request
        return InstrumentScores(
            tuple((part.e_soft,) for part in self.instrument),
            tuple((e,) for e in self.e),
            tuple((part.eta,) for part in self.instrument),
            state.outcome,
            centre,
            scale,
            _most(request.formula.treatment, state.session.schema),
            state.most if request.dose else 0.0,
        )

    def estimate(
        self, value: VectorSums, sd: VectorSums, sums: SlopeSums, bias: float
    ) -> AverageEstimate:
        """By one release."""
        state, formula = self.state, self.state.session.plan.request.formula
        widths = [
            _width(name, state.session.schema) for name in (formula.assigned, formula.treatment)
        ]
        remainders = [nu.remainder(state, p, "PLR").rms for p in (self.instrument, self.treatment)]
        assert isinstance(sums.scores, InstrumentScores)
        return estimate_reduced(
            value, sd, (sums.scores.centre, sums.scores.scale), bias, np.array(remainders),
            model=state.population.count * self.square, size=state.population.count, units=widths,
        )  # fmt: skip


def _learnt(state: FitState) -> _Learnt:
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

    taken = means(Stages.TREATMENT, request.per_unit)
    e = tuple(Additive(state.features, one.mean, 0.5, 0.0, 1.0) for one in taken)
    if known is not None:
        parts = tuple(nu.FoldNuisances(known, known, nu.mean(state, y.mean), None) for y in etas)
        chance = known(state.rows)
        return _Learnt(state, parts, parts, e, float(np.mean(chance * (1 - chance))))
    moved = means(Stages.INSTRUMENT, request.dose)
    parts, others = nu.paired(state, moved, etas), nu.paired(state, moved, taken)
    if request.dose:
        # what is cut of Z - m is an error of m, which counts by its products with the others
        state, square, _ = residual_cut(state, parts)
    else:
        chance = parts[0].e_soft(state.rows)
        square = float(np.mean(chance * (1 - chance)))
    return _Learnt(state, parts, others, e, square)


def _most(name: str, schema: Schema) -> float:
    """Largest |T - e|, for e in [0, 1]: T may lie anywhere in its declared range."""
    domain = schema[name]
    if not isinstance(domain, Interval):
        return 1.0
    raw = domain.raw if isinstance(domain, Transformed) else domain
    return max(raw.hi - domain.lo, domain.hi - raw.lo) / domain.width


def _width(name: str, schema: Schema) -> float:
    domain = schema[name]
    return domain.width if isinstance(domain, Interval) else 1.0
