"""DR-learner (Kennedy 2020): regression of the doubly robust score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privcausal.estimators import orthogonal
from privcausal.estimators.base import CateLearner, EffectFit, Recipe
from privcausal.estimators.bases import Gam
from privcausal.estimators.boosting import TWO_STAGES, dr_learner
from privcausal.estimators.budget import Use, weighs_gram
from privcausal.estimators.nuisances import SCORE_SIZES, by_fold, nuisance_of, read_sizes, sizes_of
from privcausal.estimators.survey import Grams, Survey
from privcausal.features.functions import Additive, Triples
from privcausal.inference.effects import Effect, Piece
from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import Moments, second_moment
from privcausal.request.plan import StageKey
from privcausal.vault import Aipw

DR_MOMENTS = StageKey("effect", "score moments")


@dataclass(frozen=True)
class DR(CateLearner):
    """Regress the doubly robust score minus a first effect tau_1(x).

    The first effect comes from residuals and gives the arm means. The final effect is
    tau(x) = tau_1(x) plus the fit. A better tau_1 gives a smaller range of the regressed score.

    The score can be as large as R/c for an outcome of range R and a propensity clip c. The noise
    grows with the clipping threshold of the score. This threshold is chosen from a noisy histogram
    of the score's size: a wider threshold adds squared noise, a narrower one adds bias. With
    c = 0.1, few scores come near R/c. A narrower propensity clip therefore costs noise mostly where
    overlap is poor. Learner "r" is the default because it does not divide by the propensity.
    """

    name: ClassVar[str] = "dr"
    title: ClassVar[str] = "DR-learner"
    uses: ClassVar[tuple[Use, ...]] = (
        *orthogonal.WEIGHTED_USES,
        Use(orthogonal.RESIDUAL_SIZES, 0.01, "Half of learner 'r': there are two. By hand."),
        Use(orthogonal.RESIDUALS, 0.24, "Half of the sketch's 0.48, for a first effect. By hand."),
        Use(orthogonal.WEIGHTS, 0.04, "Half of learner 'r', because the first effect only centers "
            "the scores. By hand.", weighs_gram),
        Use(SCORE_SIZES, 0.01, "Half of learner 'r': there are two. By hand."),
        Use(DR_MOMENTS, 0.24, "Half of the sketch's 0.48, for scores minus a first effect. These "
            "scores have as large a range. By hand."),
    )  # fmt: skip

    def learn(self, state: Survey) -> EffectFit:
        known = orthogonal.fit_nuisances(state)
        state, grams, partials = known.state, known.grams, known.partials
        found = orthogonal.residual_moments(known)
        own = orthogonal.conditional(state)
        first, partials = orthogonal.orthogonal_effect(state, partials, found, own)
        nuisances = tuple(nuisance_of(p, first, state.outcome) for p in partials)
        effect = _second_stage(state, grams, first, nuisances, found.cut)
        return EffectFit.of(known, partials, effect, first)

    def boosted(self) -> Recipe:
        return Recipe(TWO_STAGES, dr_learner)


def _second_stage(
    state: Survey, grams: Grams, first: Effect, nuisances: Triples, plausible: float
) -> Effect:
    """Regress psi - tau_1(x) on the effect's features and add tau_1 back.

    A wide threshold of the score does not show a large effect. The prior slopes of the remaining
    effect are therefore no larger than the `plausible` slopes of the effect itself.
    """
    reach = 2 * state.outcome.bound
    scores = by_fold(lambda n: Aipw(n, state.outcome, state.clip, first, reach), nuisances)
    target = state.weigh(scores)
    sizes = read_sizes(state, sizes_of(target), SCORE_SIZES)
    features, gram = state.effect_features, grams.whole.sub(state.effect_index)
    cut = orthogonal.cut_of(state, sizes, DR_MOMENTS, PRIORS.cut_bias)
    what = "score minus first pass"
    found = orthogonal.cut_moments(state, features, target, sizes, cut, DR_MOMENTS, what=what)
    moments = Moments(gram.value, found.cross, gram.sd, found.cross_sd, found.spread**2)
    spreads = orthogonal.effect_spreads(state, min(cut / 2, plausible))
    fitted = orthogonal.conditional(state)(moments, *spreads)
    piece = first.pieces[0]
    # `first` is clipped to [-reach, reach] where it centers the score; additive functions stay
    # inside
    total = Additive(features, np.asarray(piece.additive.coef + fitted.mean))
    if isinstance(state.session.regression, Gam):  # the second stage estimates its error
        cov = second_moment(moments, piece.cov, fitted.mean)
    else:
        error = moments.noise_var * moments.gram + moments.cross_sd**2 * np.eye(features.size)
        blind = np.eye(features.size) - fitted.cov @ np.linalg.solve(error, moments.gram).T
        cov = fitted.cov + blind @ piece.cov @ blind.T
    return Effect((Piece(total, np.asarray(cov)),), reach)
