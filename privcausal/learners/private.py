"""Average effects with private confidence intervals: PrivATE (Schroeder et al. 2025), proven."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privcausal.learners.averages import averages
from privcausal.learners.base import Learner, finish, shown
from privcausal.learners.bases import Base
from privcausal.learners.estimate import Estimate
from privcausal.learners.ground import Session, gram_of, lay
from privcausal.learners.needs import Need
from privcausal.learners.nuisances import (
    nuisance_of,
    partial,
    partial_needs,
    remainder,
    residual_effect,
)
from privcausal.spec.request import Request

SIZES, MOMENTS, WEIGHTS = (
    "nuisance: residual sizes",
    "nuisance: residual moments",
    "nuisance: weights",
)
STAGES = ("effect: score sizes", "effect: scores", "variance: squared scores")


@dataclass(frozen=True)
class Private(Learner):
    """AIPW mean with private nuisances, private variance and a noise-aware interval.

    The paper's noise (its Theorems 4.3 to 4.6) rests on nuisances whose estimation is not
    protected; here nuisances are private, the score is bounded by public numbers, and the standard
    error is made of released ones only.
    """

    name: ClassVar[str] = "private"

    def needs(self, request: Request, base: Base) -> list[Need]:
        needs = [
            Need("nuisance: marginals", 0.04, "nuisance"),
            *partial_needs(request.propensity is not None),
            Need(SIZES, 0.01, "nuisance"),
            Need(MOMENTS, 0.08, "nuisance"),
        ]
        if base.released_weights:
            needs.append(Need(WEIGHTS, 0.04, "nuisance"))
        sizes, scores, squares = STAGES
        return [
            *needs,
            Need(sizes, 0.10, "effect"),
            Need(scores, 0.72, "effect"),
            Need(squares, 0.18, "effect"),
        ]

    def run(self, session: Session) -> Estimate:
        ground, grams = gram_of(lay(session, linear_terms=False))
        partials = partial(ground, grams)
        weights = WEIGHTS if session.plan.has(WEIGHTS) else None
        tau = residual_effect(ground, grams, partials, (SIZES, MOMENTS, weights))
        nuisances = tuple(nuisance_of(p, tau, ground.outcome) for p in partials)
        centre = float(np.mean(tau(ground.rows)))
        first = partials[0]
        rest = remainder(ground, first.e, first.e_cov, first.eta_cov)
        found = averages(ground, nuisances, centre, rest, STAGES, session.plan.request.estimand)
        return finish(ground, None, shown(partials, nuisances), found)
