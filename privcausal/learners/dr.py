"""DR-learner (Kennedy 2020): regression of the doubly robust score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privcausal.features.functions import Additive, Nuisance
from privcausal.inference.effect import Effect, Piece
from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import Moments, second_moment
from privcausal.learners.base import CateLearner, Learnt
from privcausal.learners.bases import Base, Gam
from privcausal.learners.boosting.recipes import dr_learner, two_stage_needs
from privcausal.learners.budget import StageWeight
from privcausal.learners.nuisances import by_fold, nuisance_of, read_sizes, sizes_of
from privcausal.learners.orthogonal import (
    conditional,
    cut_moments,
    cut_of,
    effect_spreads,
    nuisance_needs,
    orthogonal_effect,
    residual_moments,
)
from privcausal.learners.orthogonal import nuisances as nuisances_of
from privcausal.learners.shares import SHARES, Stages
from privcausal.learners.state import FitState, Grams
from privcausal.request.plan import StageKey
from privcausal.request.request import Request
from privcausal.vault import Aipw

MOMENTS = StageKey("effect", "score moments")


@dataclass(frozen=True)
class DR(CateLearner):
    """First tau_1(x) by residuals, for the arm means; then the score minus tau_1 is regressed.

    The better tau_1, the smaller the range of what is regressed; tau(x) = tau_1(x) + its fit.

    The score could be as large as R/c, R the outcome's range and c the propensity clip, and noise
    grows with the cut. The cut is chosen from a noisy histogram of its size, by the squared noise
    of a wider one against the bias. With c = 0.1 few scores come near R/c, so that a narrower clip
    costs noise mostly where overlap is poor. Learner "r" divides by nothing, and is therefore the
    default.
    """

    name: ClassVar[str] = "dr"
    title: ClassVar[str] = "DR-learner"

    def effect_needs(self, request: Request, base: Base) -> list[StageWeight]:
        weights = StageWeight(Stages.WEIGHTS, SHARES.dr_first_weights)
        return [
            *nuisance_needs(request, base),
            StageWeight(Stages.RESIDUAL_SIZES, SHARES.dr_first_sizes),
            StageWeight(Stages.RESIDUALS, SHARES.dr_first),
            *([weights] if base.released_weights else []),
            StageWeight(Stages.SCORE_SIZES, SHARES.dr_sizes),
            StageWeight(MOMENTS, SHARES.dr_scores),
        ]

    def learn(self, state: FitState) -> Learnt:
        known = nuisances_of(state)
        state, grams, partials = known.state, known.grams, known.partials
        found = residual_moments(known)
        first, partials = orthogonal_effect(state, partials, found, conditional(state))
        nuisances = tuple(nuisance_of(p, first, state.outcome) for p in partials)
        effect = _second_stage(state, grams, first, nuisances, found.cut)
        return Learnt.of(known, partials, effect, first)

    def boosted_needs(self, request: Request) -> list[StageWeight]:
        return two_stage_needs(request)

    def boost(self, state: FitState) -> Learnt:
        return dr_learner(state)


def _second_stage(
    state: FitState, grams: Grams, first: Effect, nuisances: tuple[Nuisance, ...], plausible: float
) -> Effect:
    """Regress psi - tau_1(x) on the effect's features and add tau_1 back.

    A wide cut of the score says nothing of the effect: a priori, slopes of what is left are no
    larger than the `plausible` ones of the effect itself.
    """
    reach = 2 * state.outcome.bound
    target = by_fold(lambda n: Aipw(n, state.outcome, state.clip, first, reach), nuisances)
    sizes = read_sizes(state, sizes_of(target), Stages.SCORE_SIZES)
    features, gram = state.effect_features, grams.whole.sub(state.effect_index)
    cut = cut_of(state, sizes, MOMENTS, PRIORS.cut_bias)
    found = cut_moments(state, features, target, sizes, cut, MOMENTS, what="score minus first pass")
    moments = Moments(gram.value, found.cross, gram.sd, found.cross_sd, found.spread**2)
    fitted = conditional(state)(moments, *effect_spreads(state, min(cut / 2, plausible)))
    piece = first.pieces[0]
    # first is cut to [-reach, reach] where it centres the score; additive functions stay inside
    total = Additive(features, np.asarray(piece.additive.coef + fitted.mean))
    if isinstance(state.session.regression, Gam):  # the first's error is what is left to find
        cov = second_moment(moments, piece.cov, fitted.mean)
    else:
        error = moments.noise_var * moments.gram + moments.cross_sd**2 * np.eye(features.size)
        blind = np.eye(features.size) - fitted.cov @ np.linalg.solve(error, moments.gram).T
        cov = fitted.cov + blind @ piece.cov @ blind.T
    return Effect((Piece(total, np.asarray(cov)),), reach)
