"""Average effects with private confidence intervals: PrivATE (Schroeder et al. 2025), proven."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privcausal.learners.averages import Weighed, averages
from privcausal.learners.base import Learner, doubts, finish, shown
from privcausal.learners.bases import PrivateBase
from privcausal.learners.estimands import average_target, target
from privcausal.learners.estimate import Estimate
from privcausal.learners.ground import (
    Session,
    gram_of,
    is_binary,
    lay,
    look_at_outcome,
    range_needs,
)
from privcausal.learners.interactions import OUTCOME as OUTCOME_INTERACTIONS
from privcausal.learners.interactions import SIZES, interaction_needs, refine
from privcausal.learners.interactions import TREATMENT as INTERACTIONS
from privcausal.learners.needs import Need
from privcausal.learners.nuisances import (
    clipped,
    nuisance_of,
    partial,
    products,
    remainder,
    residual_effect,
    settled,
)
from privcausal.learners.overlap import weighed
from privcausal.spec.request import Request
from privcausal.vault import Outcome

RANGE = "nuisance: outcome range"
MOMENTS, WEIGHTS = "nuisance: residual moments", "nuisance: weights"
STAGES = ("effect: score sizes", "effect: scores", "variance: squared scores")


@dataclass(frozen=True)
class Private(Learner):
    """AIPW mean with private nuisances, private variance and a noise-aware interval.

    The paper's noise (its Theorems 4.3 to 4.6) rests on nuisances whose estimation is not
    protected; here nuisances are private, the score is bounded by public numbers, and the standard
    error is made of released ones only.
    """

    name: ClassVar[str] = "private"
    # "average" is no part of it: the average is the effect itself
    shares: ClassVar[Mapping[str, float]] = {"bounds": 0.1, "nuisance": 0.42, "effect": 0.48}

    def top(self, request: Request) -> Mapping[str, float]:
        """A known propensity leaves half of the nuisances' stages out, and what they cost."""
        known = {"nuisance": 0.24, "effect": 0.66} if request.propensity is not None else {}
        return {**self.shares, **known}

    def needs(self, request: Request, base: PrivateBase) -> list[Need]:
        sizes, scores, squares = STAGES
        needs = [
            *range_needs(request, 0.06),
            Need("nuisance: marginals", 0.08, "nuisance"),
            Need("nuisance: moments", 0.10, "nuisance"),
            Need("nuisance: outcome", 0.45, "nuisance"),
            Need(MOMENTS, 0.06, "nuisance"),
            Need(scores, 0.78, "effect"),
            Need(squares, 0.10, "effect"),
        ]
        if not is_binary(request):
            needs += [Need(RANGE, 0.18, "nuisance"), Need(sizes, 0.16, "effect")]
        if request.propensity is None:
            needs.append(Need("nuisance: treatment", 0.31, "nuisance"))
            if base.interactions:
                needs += interaction_needs(0.16, 0.22, 0.03)
        if base.released_weights:
            needs.append(Need(WEIGHTS, 0.04, "nuisance"))
        return needs

    def run(self, session: Session) -> Estimate:
        ground = look_at_outcome(lay(session, linear_terms=False), RANGE)
        if ground.look is not None:
            window = ground.look.window
            ground = replace(ground, window=Outcome(window.lo, window.hi))
        ground, grams = gram_of(ground)
        ground, partials = clipped(ground, partial(ground, grams))
        if session.plan.has(INTERACTIONS):
            additive, partials = partials, refine(ground, partials)
            if partials is additive:  # the covariates have no products
                session.unused(SIZES, INTERACTIONS, OUTCOME_INTERACTIONS)
        weights = WEIGHTS if session.plan.has(WEIGHTS) else None
        tau = residual_effect(ground, grams, partials, moments=MOMENTS, weights=weights)
        partials = settled(ground, partials, tau)
        nuisances = tuple(nuisance_of(p, tau, ground.outcome) for p in partials)
        estimand = session.plan.request.estimand
        assert estimand != "CATE"  # by `learners.for_average`
        if estimand == "ATE":
            scored = weighed(ground, partials, nuisances, tau, STAGES[1])
            aim = average_target(ground, scored.nuisances, float(np.mean(tau(ground.rows))))
        else:
            aim = target(estimand, ground, partials, nuisances, tau)
            scored = Weighed(nuisances, remainder(ground, partials, estimand))
        found = averages(ground, aim, scored, STAGES, estimand)
        notes = doubts(found, products(ground, partials, estimand))
        return finish(ground, None, shown(partials, nuisances), found, notes)
