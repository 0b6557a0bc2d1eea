"""R-learner (Nie and Wager 2021): residuals of outcome on residuals of treatment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from privcausal.learners.base import CateLearner, Learnt, shown
from privcausal.learners.bases import Base
from privcausal.learners.boosted import residuals, two_stage_needs
from privcausal.learners.ground import Ground
from privcausal.learners.needs import Need
from privcausal.learners.nuisances import nuisance_of, settled
from privcausal.learners.orthogonal import (
    Regression,
    conditional,
    nuisance_needs,
    read,
)
from privcausal.learners.orthogonal import nuisances as nuisances_of
from privcausal.learners.orthogonal import residuals as residuals_of
from privcausal.learners.remaining import once_more, with_products
from privcausal.spec.request import Request

SIZES, WEIGHTS = "effect: residual sizes", "effect: weights"
MOMENTS, REST = "effect: residual moments", "effect: remaining moments"


@dataclass(frozen=True)
class R(CateLearner):
    """tau(x) minimising sum [(Y - eta) - (T - e) tau(x)]^2; never divides by the propensity.

    Its moments are released twice, the second time of what the first effect leaves.
    """

    name: ClassVar[str] = "r"

    def effect_needs(self, request: Request, base: Base) -> list[Need]:
        needs = [
            *nuisance_needs(request, base),
            Need(SIZES, 0.02, "effect"),
            Need(MOMENTS, 0.17, "effect"),
            Need(REST, 0.31, "effect"),
        ]
        if base.released_weights:
            needs.append(Need(WEIGHTS, 0.08, "effect"))
        return needs

    def learn(self, ground: Ground) -> Learnt:
        return self._learnt(ground, conditional(ground))

    def _learnt(self, ground: Ground, regress: Regression) -> Learnt:
        known = nuisances_of(ground)
        ground, grams, partials = known.ground, known.grams, known.partials
        weights = WEIGHTS if ground.session.plan.has(WEIGHTS) else None
        found = residuals_of(ground, grams, partials, sizes=SIZES, moments=MOMENTS, weights=weights)
        first = read(ground, found, partials, partials, regress)
        found, products = once_more(ground, partials, found, first, REST)
        after = settled(ground, partials, first.effect)
        second = read(ground, found, partials, after, regress)
        e = partials[0].e_soft(ground.rows)
        effect, partials = with_products(ground, found, products, e, second), after
        nuisances = tuple(nuisance_of(p, effect, ground.outcome) for p in partials)
        return Learnt(
            ground, effect, nuisances, shown(partials, nuisances), known.doubt, partials, effect
        )

    def boosted_needs(self, request: Request) -> list[Need]:
        return two_stage_needs(request)

    def boost(self, ground: Ground) -> Learnt:
        return residuals(ground)
