"""Average effects with private confidence intervals: PrivATE (Schroeder et al. 2025), proven."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privcausal.inference.ranges import outcome_edges
from privcausal.learners.averages import (
    Weighed,
    arm_needs,
    average_target,
    averages,
    target,
    weighed,
)
from privcausal.learners.base import Learner, average_doubts, finish, shown
from privcausal.learners.bases import PrivateBase
from privcausal.learners.budget import StageWeight
from privcausal.learners.estimate import Estimate
from privcausal.learners.interactions import interaction_needs, refine
from privcausal.learners.joint import together
from privcausal.learners.nuisances import (
    additive_nuisances,
    clipped,
    nuisance_of,
    product_confounding,
    remainder,
    residual_effect,
)
from privcausal.learners.several import arm_effects, several_needs
from privcausal.learners.shares import SHARES, Stages
from privcausal.learners.state import (
    FitState,
    Session,
    is_binary,
    look_at_outcome,
    prepare,
    range_needs,
)
from privcausal.request.plan import StageKey
from privcausal.request.request import Request
from privcausal.vault import Outcome

STAGES = (
    Stages.SCORE_SIZES,
    StageKey("effect", "scores"),
    StageKey("effect", "squared scores", heading="variance"),
)


@dataclass(frozen=True)
class Private(Learner):
    """AIPW mean with private nuisances, private variance and a noise-aware interval.

    The paper's noise (its Theorems 4.3 to 4.6) rests on nuisances whose estimation is not
    protected; here nuisances are private, the score is bounded by public numbers, and the standard
    error is made of released ones only.
    """

    name: ClassVar[str] = "private"
    title: ClassVar[str] = "doubly robust (AIPW)"
    # "average" is no part of it: the average is the effect itself
    shares: ClassVar[Mapping[str, float]] = {
        "bounds": SHARES.top_bounds,
        "nuisance": SHARES.private_nuisance,
        "effect": SHARES.private_effect,
    }

    def top(self, request: Request) -> Mapping[str, float]:
        """A known propensity leaves half of the nuisances' stages out, and what they cost.

        Without covariates they are numbers, and no functions.
        """
        if request.propensity is None and request.formula.terms:
            return self.shares
        known = SHARES.private_nuisance_known, SHARES.private_effect_known
        return {**self.shares, "nuisance": known[0], "effect": known[1]}

    def needs(self, request: Request, base: PrivateBase) -> list[StageWeight]:
        sizes, scores, squares = STAGES
        needs = [
            *range_needs(request, SHARES.private_ranges),
            StageWeight(Stages.MARGINALS, SHARES.private_marginals),
            StageWeight(Stages.GRAM, SHARES.private_gram),
            StageWeight(Stages.OUTCOME, SHARES.private_outcome),
            StageWeight(Stages.NUISANCE_RESIDUALS, SHARES.private_moments),
            StageWeight(scores, SHARES.private_scores),
            StageWeight(squares, SHARES.private_squares),
        ]
        if not is_binary(request):
            needs += [
                StageWeight(Stages.OUTCOME_RANGE, SHARES.private_range),
                StageWeight(sizes, SHARES.private_sizes),
            ]
        else:
            needs += arm_needs(request, sizes)
        if request.propensity is None:
            needs.append(StageWeight(Stages.TREATMENT, SHARES.private_treatment))
            if base.interactions:
                needs += interaction_needs(
                    request,
                    SHARES.private_interactions_treatment,
                    SHARES.private_interactions_outcome,
                    SHARES.private_interactions_sizes,
                )
        if request.estimand == "ATE" and request.arms:
            return several_needs(request, needs)
        if base.released_weights:
            needs.append(StageWeight(Stages.NUISANCE_WEIGHTS, SHARES.private_weights))
        return needs

    def run(self, session: Session) -> Estimate:
        if session.plan.request.arms:
            state = looked(session)
            found, notes = arm_effects(state, STAGES)
            return finish(state, None, None, found, (*notes, *average_doubts(found)))
        state, grams, partials = additive_nuisances(looked(session))
        state, partials = clipped(state, partials)
        partials = refine(state, partials)
        tau = residual_effect(state, grams, partials)
        nuisances = tuple(nuisance_of(p, tau, state.outcome) for p in partials)
        request, estimand = session.plan.request, session.plan.request.estimand
        assert estimand != "CATE"  # by `learners.for_average`
        assert estimand != "OLS"
        if request.more:
            found = together(state, partials, nuisances, tau, STAGES)
            products = max(product_confounding(state, partials, one) for one in request.averages)
            return finish(
                state, None, shown(partials, nuisances), found, average_doubts(found, products)
            )
        if estimand == "ATE":
            scored = weighed(state, partials, nuisances, tau, STAGES[1])
            aim = average_target(state, scored.nuisances, float(np.mean(tau(state.rows))))
        else:
            aim = target(estimand, state, partials, nuisances, tau)
            scored = Weighed(nuisances, remainder(state, partials, estimand))
        found = averages(state, aim, scored, STAGES, estimand)
        notes = average_doubts(found, product_confounding(state, partials, estimand))
        return finish(state, None, shown(partials, nuisances), found, notes)


def looked(session: Session) -> FitState:
    """What precedes the Gram, where outcomes are cut to the range in which they are seen."""
    state = prepare(session, linear_terms=False, looks={Stages.OUTCOME_RANGE: outcome_edges})
    state = look_at_outcome(state, Stages.OUTCOME_RANGE)
    if state.look is not None:
        window = state.look.window
        state = replace(state, window=Outcome(window.lo, window.hi))
    return state
