"""S-, T- and X-learner (Kuenzel et al. 2019): regressions within the arms.

The regressions use the outcome minus a mean that both arms share. This does not change the effect,
and it reduces the noise, which grows with the range of the summed values.

Rows have overlap weights |T - e|. If a mean is not additive and the covariates differ between arms,
its best additive approximation differs too. This difference would look like an effect. With overlap
weights, the approximations agree, and the moments of both arms share one Gram matrix.

S and T differ from R in the parameters that they shrink. They shrink the regression of each arm,
not the effect. Without noise there is no shrinkage, and on base "linear" their effects equal R's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
from scipy.linalg import block_diag

from privcausal import vault
from privcausal.errors import named
from privcausal.estimators import bases, boosting, budget, nuisances, orthogonal
from privcausal.estimators.base import CateLearner, EffectFit, Recipe
from privcausal.estimators.bases import Base
from privcausal.estimators.budget import Step, weighs_gram
from privcausal.estimators.first_stages import FitState
from privcausal.features.basis import FeatureMap
from privcausal.features.functions import Additive, Constant, Difference
from privcausal.inference.effects import Effect, Piece
from privcausal.inference.regression import Moments, Posterior
from privcausal.request.plan import StageGroup, StageKey
from privcausal.typing import Matrix

IMPUTED_SIZES = StageKey("effect", "imputed sizes")
IMPUTED = StageKey("effect", "imputed effects")

Arms = tuple[Moments, Moments]
"""Moments for the regression in each arm, the control first."""


def _stages(group: StageGroup) -> tuple[StageKey, StageKey, StageKey]:
    """Stages of the sizes, the moments and, if they are released, the weights."""
    sizes, moments, weights = "arm sizes", "arm outcomes", "weights"
    return StageKey(group, sizes), StageKey(group, moments), StageKey(group, weights)


def _steps(group: StageGroup, look: float, outcomes: float) -> tuple[Step, ...]:
    sizes, moments, weights = _stages(group)
    return (
        *orthogonal.WEIGHTED_STEPS,
        Step(sizes, look),
        Step(weights, 0.06, (weighs_gram,)),
        Step(moments, outcomes),
    )


@dataclass(frozen=True)
class _Arms(CateLearner):
    """Shared steps of the three learners: moments of the outcome's residuals within each arm."""

    name: ClassVar[str] = "arms"
    shares: ClassVar[Mapping[str, float]] = {
        "bounds": budget.TOP_BOUNDS,
        "nuisance": 0.75,  # Nuisances and arms together, without a second stage. By hand.
        "average": budget.TOP_AVERAGE,
    }
    steps: ClassVar[tuple[Step, ...]] = _steps("nuisance", 0.03, 0.7)

    def boosted(self) -> Recipe:
        return Recipe(boosting.ONE_STAGE, partial(boosting.s_or_t_learner, joint=False))

    def contrast(
        self, base: Base, arms: Arms, features: FeatureMap, intercept: float, size: float
    ) -> Posterior:
        """Coefficients of the difference of the two arms' means, from prior variances."""
        raise NotImplementedError

    def learn(self, state: FitState) -> EffectFit:
        fit = orthogonal.fit_nuisances(state)
        effect, partials = self._first(fit, "nuisance")
        return EffectFit.of(fit, partials, effect)

    def _first(
        self, fit: orthogonal.NuisanceFit, group: StageGroup
    ) -> tuple[Effect, nuisances.Folds]:
        """The difference of the arms' regressions, and the nuisances refitted with its mean."""
        state, partials = fit.state, fit.partials
        residuals, arms = _moments(fit, None, _stages(group))

        def regress(
            moments: Moments, features: FeatureMap, intercept: float, size: float
        ) -> Posterior:
            # the joint bias correction is split equally between the arms
            off = 0.5 * (residuals.cross - moments.cross)
            sd, noise_var = moments.cross_sd / np.sqrt(2), moments.noise_var / 2
            arm = replace(moments, cross_sd=sd, noise_var=noise_var)
            control, treated = (replace(arm, cross=c) for c in (off - arms[0], arms[1] - off))
            return self.contrast(state.regression, (control, treated), features, intercept, size)

        return orthogonal.orthogonal_effect(state, partials, residuals, regress)


@named
@dataclass(frozen=True)
class S(_Arms):
    """One regression on (T, phi(x)) and, by default, T phi(x).

    Parameters
    ----------
    interactions : bool
        False gives the constant effect of Niu et al. (2022).
    """

    interactions: bool = True
    name: ClassVar[str] = "s"
    title: ClassVar[str] = "S-learner"

    def __post_init__(self) -> None:
        bases.check_switch("S(interactions=)", self.interactions)

    def boosted(self) -> Recipe:
        joint = partial(boosting.s_or_t_learner, joint=True)
        learn = joint if self.interactions else boosting.constant_s_learner
        return Recipe(boosting.MEAN_FIRST if self.interactions else boosting.ONE_STAGE, learn)

    def contrast(
        self, base: Base, arms: Arms, features: FeatureMap, intercept: float, size: float
    ) -> Posterior:
        (control, treated), p = arms, features.size
        both = replace(
            treated,
            gram=np.asarray(block_diag(control.gram, treated.gram)),
            cross=np.r_[control.cross, treated.cross],
            cross_sd=np.tile(treated.cross_sd, 2),  # both arms have equal noise
        )
        kept = np.arange(p) if self.interactions else np.arange(1)
        fitted = base.arms(both, features, intercept, size, kept)
        pick = np.hstack([-np.eye(p), np.eye(p)])
        return Posterior(pick @ fitted.mean, pick @ fitted.cov @ pick.T, fitted.evidence)


@named
@dataclass(frozen=True)
class T(_Arms):
    """One regression per arm; tau is their difference."""

    name: ClassVar[str] = "t"
    title: ClassVar[str] = "T-learner"

    def contrast(
        self, base: Base, arms: Arms, features: FeatureMap, intercept: float, size: float
    ) -> Posterior:
        a, b = (base.conditional(moments, features, intercept, size) for moments in arms)
        return Posterior(b.mean - a.mean, b.cov + a.cov, b.evidence + a.evidence)


@named
@dataclass(frozen=True)
class X(T):
    """Imputed effects regressed within each arm and combined: tau = e tau_0 + (1 - e) tau_1."""

    name: ClassVar[str] = "x"
    title: ClassVar[str] = "X-learner"
    shares: ClassVar[Mapping[str, float]] = budget.TOP

    steps: ClassVar[tuple[Step, ...]] = (
        *_steps("effect", 0.01, 0.24),
        Step(IMPUTED_SIZES, 0.01),
        Step(IMPUTED, 0.24),
    )

    def boosted(self) -> Recipe:
        return Recipe(boosting.TWO_STAGES, boosting.x_learner)

    def learn(self, state: FitState) -> EffectFit:
        fit = orthogonal.fit_nuisances(state)
        first, partials = self._first(fit, "effect")
        fit = replace(fit, partials=partials)
        # In each arm, regress the effect that the other arm's mean implies for its rows. If the
        # first effect has error d, mu_0 has error -e d and mu_1 has error (1 - e) d. The combined
        # effect then has error 2 e (1 - e) d <= d / 2, which is included in its band.
        state, outcome, features = fit.state, fit.state.outcome, fit.state.effect_features
        soft = state.soft_clip

        def imputed(part: nuisances.FoldFit) -> vault.Transform:
            effect = vault.ImputedEffect(nuisances.nuisance_of(part, first, outcome), outcome)
            return vault.TransformProduct(vault.OfTreatment("residual", part.e_soft, soft), effect)

        target = nuisances.by_fold(imputed, partials)
        residuals, arms = _moments(fit, target, (IMPUTED_SIZES, IMPUTED, None))
        variance = residuals.spread**2 / residuals.mean_weight / 2
        spreads = orthogonal.effect_spreads(state, residuals.cut)
        nothing = Additive(features, np.zeros(features.size))
        pieces = [Piece(nothing, first.pieces[0].cov, Constant(0.5))]
        e = nuisances.overall(partials).e
        weights = e, Difference(Constant(1.0), e)
        gram, gram_sd, cross_sd = residuals.gram, residuals.gram_sd, residuals.cross_sd
        for cross, weight in zip((-arms[0], arms[1]), weights, strict=True):
            moments = Moments(gram, cross, gram_sd, cross_sd / np.sqrt(2), variance)
            fitted = state.regression.conditional(moments, features, *spreads)
            pieces.append(Piece(Additive(features, fitted.mean), fitted.cov, weight))
        return EffectFit.of(fit, partials, Effect(tuple(pieces), 2 * outcome.bound))


def _moments(
    fit: orthogonal.NuisanceFit, target: vault.Transform | None, stages: orthogonal.EffectStages
) -> tuple[orthogonal.Residuals, Matrix]:
    """Moments of the target (by default the residual product), and moments by arm, shape (2, p)."""
    residuals = orthogonal.residual_moments(fit, target, stages, by_arm=True)
    arms = residuals.cross.reshape(2, -1)
    sd = np.sqrt(2) * residuals.cross_sd[: arms.shape[1]]
    return replace(residuals, cross=arms.sum(axis=0), cross_sd=sd), arms
