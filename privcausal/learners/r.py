"""R-learner (Nie and Wager 2021): residuals of outcome on residuals of treatment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from privcausal.inference.additive import Moments, Posterior
from privcausal.inference.confounding import Remainder
from privcausal.learners.base import CateLearner, Learnt, shown
from privcausal.learners.bases import Base
from privcausal.learners.boosted import residuals, two_stage_needs
from privcausal.learners.ground import Ground, gram_of
from privcausal.learners.interactions import OUTCOME as OUTCOME_INTERACTIONS
from privcausal.learners.interactions import SIZES as RESIDUAL_SIZES
from privcausal.learners.interactions import TREATMENT as INTERACTIONS
from privcausal.learners.interactions import interaction_needs, refine
from privcausal.learners.needs import Need
from privcausal.learners.nuisances import (
    nuisance_of,
    partial,
    partial_needs,
    remainder,
)
from privcausal.learners.orthogonal import Regression, believed, orthogonal_effect
from privcausal.learners.orthogonal import residuals as residuals_of
from privcausal.spec.request import Request

INTERACTIONS_WEIGHTS = (0.03, 0.07, 0.01)
"""Weights of the interactions' stages (treatment, outcome, sizes) within the nuisances' share."""

SIZES, MOMENTS, WEIGHTS = "effect: residual sizes", "effect: residual moments", "effect: weights"


@dataclass(frozen=True)
class R(CateLearner):
    """tau(x) minimising sum [(Y - eta) - (T - e) tau(x)]^2; never divides by the propensity."""

    name: ClassVar[str] = "r"

    def effect_needs(self, request: Request, base: Base) -> list[Need]:
        needs = [*partial_needs(request.propensity is not None), Need(SIZES, 0.02, "effect")]
        if request.propensity is None and base.interactions:
            needs += interaction_needs(*INTERACTIONS_WEIGHTS)
        needs.append(Need(MOMENTS, 0.48, "effect"))
        if base.released_weights:
            needs.append(Need(WEIGHTS, 0.08, "effect"))
        return needs

    def learn(self, ground: Ground) -> Learnt:
        def regress(moments: Moments, intercept_var: float, size_var: float) -> Posterior:
            base = ground.session.regression
            return base.conditional(moments, ground.effect_features, intercept_var, size_var)

        return self._learnt(ground, regress)

    def _learnt(self, ground: Ground, regress: Regression) -> Learnt:
        ground, grams = gram_of(ground)
        partials, doubt = partial(ground, grams), Remainder(0.0, 0.0)
        if ground.session.plan.has(INTERACTIONS):
            additive, partials = partials, refine(ground, partials)
            if partials is additive:  # the covariates have no products
                ground.session.unused(RESIDUAL_SIZES, INTERACTIONS, OUTCOME_INTERACTIONS)
            doubt, partials = believed(ground, partials)
        weights = WEIGHTS if ground.session.plan.has(WEIGHTS) else None
        found = residuals_of(ground, grams, partials, sizes=SIZES, moments=MOMENTS, weights=weights)
        effect, partials = orthogonal_effect(ground, partials, found, regress)
        nuisances = tuple(nuisance_of(p, effect, ground.outcome) for p in partials)
        rest = remainder(ground, partials) + doubt
        return Learnt(ground, effect, nuisances, shown(partials, nuisances), rest)

    def boosted_needs(self, request: Request) -> list[Need]:
        return two_stage_needs(request)

    def boost(self, ground: Ground) -> Learnt:
        return residuals(ground)
