"""Average effects of several arms, by doubly robust scores of the mean outcome in each.

Arm k is compared with all others as a treatment of two arms is: with A = 1(T = k), the mean outcome
is E[Y(k)] = E[mu + A (Y - mu)/e] for e(x) = P(A = 1 | x) and mu(x) = E[Y | x, A = 1]. The scores of
all arms are one release, so that effects, their differences, have a joint covariance (Cattaneo
2010).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from privcausal.features.functions import Constant
from privcausal.inference.confounding import Remainder
from privcausal.learners import nuisances as nu
from privcausal.learners.averages import One, Target, one_arm_target, weighed
from privcausal.learners.base import MOST_CUT, POOR_OVERLAP
from privcausal.learners.budget import StageWeight
from privcausal.learners.state import FitState
from privcausal.request.plan import StageKey
from privcausal.request.request import Request
from privcausal.vault import Cross, OfArm, OfCovariates, Transform, Treatment


def arm_stages(request: Request, what: str = "treatment") -> list[StageKey]:
    """A stage for each arm, the reference first."""
    return [StageKey("nuisance", f"{what} {arm}") for arm in request.asked.arms]


def treatments(request: Request) -> dict[StageKey, Transform]:
    """Whether T is each arm."""
    return {stage: OfArm(Treatment(), arm) for arm, stage in enumerate(arm_stages(request))}


def by_arm(stages: Sequence[StageKey], weight: float) -> list[StageWeight]:
    """A release for each arm in place of one for all.

    Noise falls with the root of a weight: each arm has that of two arms by the root of their
    number, so that what they have in all grows as their errors do.
    """
    return [StageWeight(key, weight / np.sqrt(len(stages))) for key in stages]


HARDLY = (
    "About {share:.0%} of the rows are hardly ever in arm {arm} (a propensity below {clip:.2g}, by "
    "released numbers): its mean outcome rests on a model of what they would have had there. "
    "estimand='PLR' counts rows by how open their arm is."
)


def arm_effects(state: FitState, stage: StageKey) -> tuple[list[One], tuple[str, ...]]:
    """Effects of all arms but the first, which is their reference; then the arms' mean outcomes.

    And notes on arms that many rows are hardly ever in. The `stage` is that of the scores.
    """
    request = state.session.plan.request
    name, labels = request.formula.treatment, request.asked.arms
    means, notes = _means(state, stage)
    (base, base_law), vectors = means[0], np.eye(len(means))
    effects = [
        # errors of two arms may be of one sign or of two: by Minkowski's inequality
        One(
            f"{name}[T.{label}]", _less(target, base), Remainder(0.0, law.rms + base_law.rms),
            own - vectors[0],
        )
        for label, (target, law), own in zip(labels[1:], means[1:], vectors[1:], strict=True)
    ]  # fmt: skip
    each = zip(labels, means, vectors, strict=True)
    return [*effects, *(One(f"E[Y({label})]", *mean, own) for label, mean, own in each)], notes


def _less(target: Target, reference: Target) -> Target:
    """That of the difference, of which the arm where an outcome weighs more says how it is cut."""
    worse = max(target, reference, key=lambda one: one.extremes.unit_most)
    return replace(target, centre=target.centre - reference.centre, extremes=worse.extremes)


def _means(
    state: FitState, stage: StageKey
) -> tuple[list[tuple[Target, Remainder]], tuple[str, ...]]:
    """Of each arm, what is summed for its mean outcome, and the law of the bias by nuisances."""
    request = state.session.plan.request
    state, grams = nu.moments_of(state, treatments(request))
    etas, own, crosses = nu.outcomes(state, grams), [], dict[StageKey, Cross]()
    pairs = zip(arm_stages(request), arm_stages(request, "residual moments"), strict=True)
    for arm, (treatment, residual) in enumerate(pairs):
        partials = nu.paired(state, nu.propensities(state, grams, treatment), etas)
        own.append(nu.clipped(state, partials))
        crosses[residual] = nu.residual_cross(*own[-1], arm)
    state.session.gather(dict(crosses))
    mass, found, notes = OfCovariates(Constant(1.0), 1.0), [], []  # every complete row is one
    for arm, ((mine, partials), asked) in enumerate(zip(own, crosses.items(), strict=True)):
        tau = nu.residual_effect(mine, grams, partials, asked)
        nuisances = tuple(nu.nuisance_of(p, tau, mine.outcome) for p in partials)
        scored = weighed(mine, partials, nuisances, tau, stage, (arm, mass))
        target = one_arm_target(mine, scored.nuisances, arm, mass)
        found.append((target, scored.remainder))
        least = np.mean([p.e(state.rows) <= mine.clip * (1 + 1e-9) for p in partials])
        if least > POOR_OVERLAP:
            told = HARDLY.format(share=least, arm=request.asked.arms[arm], clip=mine.clip)
            if least > MOST_CUT:
                state.session.alerts["overlap"] = told
            else:
                notes.append(told)
    return found, tuple(notes)
