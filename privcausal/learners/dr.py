"""DR-learner (Kennedy 2020): regression of the doubly robust score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privcausal.inference import cut as cuts
from privcausal.inference.additive import Moments
from privcausal.inference.band import spread
from privcausal.inference.effect import Effect, Piece
from privcausal.learners.base import CateLearner, Learnt, shown
from privcausal.learners.bases import Base, Gam
from privcausal.learners.boosted import doubly_robust, two_stage_needs
from privcausal.learners.ground import Grams, Ground
from privcausal.learners.needs import Need
from privcausal.learners.nuisances import (
    LEAST_BELOW,
    by_fold,
    cross_noise,
    nuisance_of,
    read_sizes,
)
from privcausal.learners.orthogonal import (
    CONSTANT_SPREAD,
    conditional,
    nuisance_needs,
    orthogonal_effect,
)
from privcausal.learners.orthogonal import nuisances as nuisances_of
from privcausal.learners.orthogonal import residuals as residuals_of
from privcausal.spec.functions import Additive, Nuisance
from privcausal.spec.request import Request
from privcausal.vault import Aipw, Cross

FIRST_SIZES, FIRST_MOMENTS = "effect: residual sizes", "effect: residual moments"
FIRST_WEIGHTS = "effect: weights"
SIZES, MOMENTS = "effect: score sizes", "effect: score moments"


@dataclass(frozen=True)
class DR(CateLearner):
    """First tau_1(x) by residuals, for the arm means; then the score minus tau_1 is regressed.

    What is regressed has the smaller the range the better tau_1 is; tau(x) = tau_1(x) + its fit.

    The score could be as large as R/c, R the outcome's range and c the propensity clip, and noise
    grows with where it is cut. The cut is chosen from a bought histogram of its size: the noise of
    a wider cut, squared, against the bias of what is cut off. With c = 0.1 few scores come near
    R/c, so that a narrower clip costs noise mostly where overlap is poor; learner "r" divides by
    nothing and is the default for that reason.
    """

    name: ClassVar[str] = "dr"

    def effect_needs(self, request: Request, base: Base) -> list[Need]:
        weights = [Need(FIRST_WEIGHTS, 0.04, "effect")] if base.released_weights else []
        return [
            *nuisance_needs(request, base),
            Need(FIRST_SIZES, 0.01, "effect"),
            Need(FIRST_MOMENTS, 0.24, "effect"),
            *weights,
            Need(SIZES, 0.01, "effect"),
            Need(MOMENTS, 0.24, "effect"),
        ]

    def learn(self, ground: Ground) -> Learnt:
        known = nuisances_of(ground)
        ground, grams, partials = known.ground, known.grams, known.partials
        weights = FIRST_WEIGHTS if ground.session.plan.has(FIRST_WEIGHTS) else None
        found = residuals_of(
            ground, grams, partials, sizes=FIRST_SIZES, moments=FIRST_MOMENTS, weights=weights
        )
        first, partials = orthogonal_effect(ground, partials, found, conditional(ground))
        nuisances = tuple(nuisance_of(p, first, ground.outcome) for p in partials)
        effect = _second_stage(ground, grams, first, nuisances, found.cut)
        return Learnt(
            ground, effect, nuisances, shown(partials, nuisances), known.doubt, partials, first
        )

    def boosted_needs(self, request: Request) -> list[Need]:
        return two_stage_needs(request)

    def boost(self, ground: Ground) -> Learnt:
        return doubly_robust(ground)


def _second_stage(
    ground: Ground, grams: Grams, first: Effect, nuisances: tuple[Nuisance, ...], plausible: float
) -> Effect:
    """Regress psi - tau_1(x) on the effect's features and add tau_1 back.

    A wide cut of the score says nothing of the effect: slopes of what is left are, before the
    moments speak, no larger than the `plausible` ones of the effect itself.
    """
    reach = 2 * ground.outcome.bound
    target = by_fold(lambda n: Aipw(n, ground.outcome, ground.clip, first, reach), nuisances)
    sizes = read_sizes(ground, target, SIZES)
    features = ground.effect_features
    cut = cuts.trade(sizes, cross_noise(ground, MOMENTS, features.cut) / ground.population.count)
    release = ground.session.release(
        MOMENTS, Cross(features, target, cut, "score minus first pass")
    )
    below = max(sizes.below(cut), LEAST_BELOW)
    gram = grams.whole.sub(ground.effect_index)
    moments = Moments(
        gram.value,
        release.value / below,
        gram.sd,
        float(release.noise_sd[0]) / below,
        max(sizes.rms(cut), 1e-3 * cut) ** 2,
    )
    constant = (CONSTANT_SPREAD * ground.outcome.bound) ** 2
    fitted = conditional(ground)(moments, constant, min(cut / 2, plausible) ** 2 / 10)
    before = first.pieces[0].additive.coef
    # first is cut to [-reach, reach] where it centres the score; additive functions stay inside
    total = Additive(features, np.asarray(before + fitted.mean))
    piece = first.pieces[0]
    if isinstance(ground.session.regression, Gam):  # the first's error is what is left to find
        cov = spread(moments, piece.cov, fitted.mean)
    else:
        error = moments.noise_var * moments.gram + moments.cross_sd**2 * np.eye(features.size)
        blind = np.eye(features.size) - fitted.cov @ np.linalg.solve(error, moments.gram).T
        cov = fitted.cov + blind @ piece.cov @ blind.T
    return Effect((Piece(total, np.asarray(cov)),), reach)
