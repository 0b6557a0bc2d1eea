"""Average effects with private confidence intervals: PrivATE (Schroeder et al. 2025), proven."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from privcausal.inference.ranges import outcome_edges
from privcausal.learners.averages import arm_needs, asked_averages, averages
from privcausal.learners.base import Learner, average_doubts, finish, shown
from privcausal.learners.bases import PrivateBase
from privcausal.learners.budget import StageWeight
from privcausal.learners.estimate import Estimate
from privcausal.learners.interactions import interaction_needs, refine
from privcausal.learners.nuisances import (
    additive_nuisances,
    clipped,
    nuisance_of,
    product_confounding,
    residual_effect,
)
from privcausal.learners.several import arm_effects, arm_stages, by_arm
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


class AverageLearner(Learner):
    """A learner of average effects alone, with nuisances of its own."""

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


@dataclass(frozen=True)
class Private(AverageLearner):
    """AIPW mean with private nuisances, private variance and a noise-aware interval.

    The paper's noise (its Theorems 4.3 to 4.6) rests on nuisances whose estimation is not
    protected; here nuisances are private, the score is bounded by public numbers, and the standard
    error is made of released ones only.
    """

    name: ClassVar[str] = "private"
    title: ClassVar[str] = "doubly robust (AIPW)"

    def needs(self, request: Request, base: PrivateBase) -> list[StageWeight]:
        sizes, scores, squares = STAGES
        arms, looks = request.asked.arms, arm_needs(request, sizes)
        if not is_binary(request):
            looks = [
                StageWeight(Stages.OUTCOME_RANGE, SHARES.private_range),
                StageWeight(sizes, SHARES.private_sizes),
            ]
        first = [] if arms else [StageWeight(Stages.NUISANCE_RESIDUALS, SHARES.private_moments)]
        needs = [
            *range_needs(request, SHARES.private_ranges),
            StageWeight(Stages.MARGINALS, SHARES.private_marginals),
            StageWeight(Stages.GRAM, SHARES.private_gram),
            StageWeight(Stages.OUTCOME, SHARES.private_outcome),
            *first,
            StageWeight(scores, SHARES.private_scores),
            StageWeight(squares, SHARES.private_squares),
            *looks,
        ]
        if arms:
            return [
                *needs,
                *by_arm(arm_stages(request), SHARES.private_treatment),
                *by_arm(arm_stages(request, "residual moments"), SHARES.private_moments),
            ]
        needs += propensity_needs(request, base)
        if base.released_weights:
            needs.append(StageWeight(Stages.NUISANCE_WEIGHTS, SHARES.private_weights))
        return needs

    def run(self, session: Session) -> Estimate:
        if session.plan.request.asked.arms:
            state = looked(session)
            asked, notes = arm_effects(state, STAGES[1])
            found = averages(state, asked, STAGES)
            return finish(state, None, None, found, (*notes, *average_doubts(found)))
        state, grams, partials = additive_nuisances(looked(session))
        state, partials = clipped(state, partials)
        partials = refine(state, partials)
        tau = residual_effect(state, grams, partials)
        nuisances = tuple(nuisance_of(p, tau, state.outcome) for p in partials)
        asked, weight = asked_averages(state, partials, nuisances, tau, STAGES[1])
        found = averages(state, asked, STAGES, weight)
        wanted = session.plan.request.asked.averages
        products = max(product_confounding(state, partials, one) for one in wanted)
        notes = average_doubts(found, products)
        return finish(state, None, shown(partials, nuisances), found, notes)


def propensity_needs(request: Request, base: PrivateBase) -> list[StageWeight]:
    """Releases of a propensity that is not known, and of interactions in both nuisances."""
    if request.propensity is not None:
        return []
    weights = (
        SHARES.private_interactions_treatment,
        SHARES.private_interactions_outcome,
        SHARES.private_interactions_sizes,
    )
    products = interaction_needs(request, *weights) if base.interactions else []
    return [StageWeight(Stages.TREATMENT, SHARES.private_treatment), *products]


def looked(session: Session) -> FitState:
    """What precedes the Gram, where outcomes are cut to the range in which they are seen."""
    state = prepare(session, linear_terms=False, looks={Stages.OUTCOME_RANGE: outcome_edges})
    state = look_at_outcome(state, Stages.OUTCOME_RANGE)
    if state.look is not None:
        window = state.look.window
        state = replace(state, window=Outcome(window.lo, window.hi))
    return state
