"""Average effects of several arms, by doubly robust scores of the mean outcome in each.

Arm k is compared with all others as a treatment of two arms is: with A = 1(T = k), the mean outcome
is E[Y(k)] = E[mu + A (Y - mu)/e] for e(x) = P(A = 1 | x) and mu(x) = E[Y | x, A = 1]. The scores of
all arms are one release, so that effects, their differences, have a joint covariance (Cattaneo
2010).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from privcausal.features.functions import Constant
from privcausal.inference.average import AverageEstimate
from privcausal.inference.confounding import Remainder
from privcausal.learners import nuisances as nu
from privcausal.learners.averages import Keys, Target, one_arm_target, weighed
from privcausal.learners.base import MOST_CUT, POOR_OVERLAP
from privcausal.learners.budget import StageWeight
from privcausal.learners.interactions import INTERACTIONS
from privcausal.learners.joint import One, released
from privcausal.learners.shares import Stages
from privcausal.learners.state import FitState
from privcausal.request.plan import StageKey
from privcausal.request.request import Request
from privcausal.vault import OfArm, OfCovariates, Transform, Treatment


def treatment_stages(request: Request) -> list[StageKey]:
    return [StageKey("nuisance", f"treatment {arm}") for arm in request.arms]


def _residual_stages(request: Request) -> list[StageKey]:
    return [StageKey("nuisance", f"residual moments {arm}") for arm in request.arms]


def treatments(request: Request) -> dict[StageKey, Transform]:
    """Whether T is each arm, the reference first."""
    return {stage: OfArm(Treatment(), arm) for arm, stage in enumerate(treatment_stages(request))}


def by_arm(
    needs: Mapping[StageKey, float], stages: Mapping[StageKey, Sequence[StageKey]]
) -> dict[StageKey, float]:
    """Weights with a stage for each arm in place of one for all, and without interactions.

    Noise falls with the root of a weight: each arm has that of two arms by the root of their
    number, so that what they have in all grows as their errors do.
    """
    found = {key: needs[key] for key in needs if key not in (*INTERACTIONS, *stages)}
    for key, own in stages.items():
        found |= dict.fromkeys(own, needs[key] / np.sqrt(len(own)))
    return found


def several_needs(request: Request, needs: Sequence[StageWeight]) -> list[StageWeight]:
    """Those of `Private` for two arms, with nuisances and a first effect for each arm."""
    weights = {need.key: need.weight for need in needs}
    stages = {
        Stages.TREATMENT: treatment_stages(request),
        Stages.NUISANCE_RESIDUALS: _residual_stages(request),
    }
    return [StageWeight(key, weight) for key, weight in by_arm(weights, stages).items()]


HARDLY = (
    "About {share:.0%} of the rows are hardly ever in arm {arm} (a propensity below {clip:.2g}, by "
    "released numbers): its mean outcome rests on a model of what they would have had there. "
    "estimand='PLR' counts rows by how open their arm is."
)


def arm_effects(state: FitState, stages: Keys) -> tuple[AverageEstimate, tuple[str, ...]]:
    """Effects of all arms but the first, which is their reference; then the arms' mean outcomes.

    And notes on arms that many rows are hardly ever in.
    """
    request = state.session.plan.request
    name, labels = request.formula.treatment, request.arms
    means, notes = _means(state, stages)
    effects = []
    for arm, (target, law) in enumerate(means[1:], 1):
        parts = np.zeros(len(means))
        parts[0], parts[arm] = -1.0, 1.0
        # errors of two arms may be of one sign or of two: by Minkowski's inequality
        both = Remainder(0.0, law.rms + means[0][1].rms)
        effects.append(One(f"{name}[T.{labels[arm]}]", _less(target, means[0][0]), both, parts))
    each = [
        One(f"E[Y({label})]", target, law, parts)
        for label, (target, law), parts in zip(labels, means, np.eye(len(means)), strict=True)
    ]
    return released(state, [*effects, *each], stages), notes


def _less(target: Target, reference: Target) -> Target:
    """That of the difference, of which the arm where an outcome weighs more says how it is cut."""
    worse = max(target, reference, key=lambda one: one.extremes.unit_most)
    return replace(target, centre=target.centre - reference.centre, extremes=worse.extremes)


def _means(state: FitState, stages: Keys) -> tuple[list[tuple[Target, Remainder]], tuple[str, ...]]:
    """Of each arm, what is summed for its mean outcome, and the law of the bias by nuisances."""
    request, residuals = state.session.plan.request, _residual_stages(state.session.plan.request)
    state, grams = nu.moments_of(state, treatments(request))
    etas, own = nu.outcomes(state, grams), []
    for stage in treatment_stages(request):
        partials = nu.paired(state, nu.propensities(state, grams, stage), etas)
        own.append(nu.clipped(state, partials))
    crosses = {
        stage: nu.residual_cross(*one, arm)
        for arm, (stage, one) in enumerate(zip(residuals, own, strict=True))
    }
    state.session.gather(dict(crosses))
    mass, found, notes = OfCovariates(Constant(1.0), 1.0), [], []  # every complete row is one
    for arm, ((mine, partials), asked) in enumerate(zip(own, crosses.items(), strict=True)):
        tau = nu.residual_effect(mine, grams, partials, asked)
        nuisances = tuple(nu.nuisance_of(p, tau, mine.outcome) for p in partials)
        scored = weighed(mine, partials, nuisances, tau, stages[1], (arm, mass))
        target = one_arm_target(mine, scored.nuisances, arm, mass)
        found.append((target, scored.remainder))
        least = np.mean([p.e(state.rows) <= mine.clip * (1 + 1e-9) for p in partials])
        if least > POOR_OVERLAP:
            told = HARDLY.format(share=least, arm=request.arms[arm], clip=mine.clip)
            if least > MOST_CUT:
                state.session.alerts["overlap"] = told
            else:
                notes.append(told)
    return found, tuple(notes)
