"""S-, T- and X-learner (Kuenzel et al. 2019): regressions within the arms.

What is regressed is the outcome less a mean that both arms share, which leaves an effect as it is:
noise grows with the range of what is summed. Rows have overlap weights |T - e|. The additive
function nearest to a mean that is not additive differs between arms whose covariates differ, which
would look like an effect. So weighted they do not, and both arms' moments have one Gram. What tells
S and T from R is what they shrink: each arm's regression, not the effect. Without noise nothing is
shrunk, and on base "linear" their effects are R's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
from scipy.linalg import block_diag

from privcausal.errors import CapabilityError
from privcausal.inference.additive import Moments, Posterior
from privcausal.inference.effect import Effect, Piece
from privcausal.learners import boosted
from privcausal.learners.base import CateLearner, Learnt, shown
from privcausal.learners.bases import Base
from privcausal.learners.ground import Ground
from privcausal.learners.needs import TOP, Need
from privcausal.learners.nuisances import (
    RESIDUAL_CLIP,
    Partial,
    by_fold,
    nuisance_of,
    overall,
    residual_product,
    weights_gram,
)
from privcausal.learners.orthogonal import (
    BIAS,
    CONSTANT_SPREAD,
    Learned,
    Residuals,
    conditional,
    cut_of,
    moments_of,
    nuisance_needs,
    orthogonal_effect,
    residual_sizes,
)
from privcausal.learners.orthogonal import nuisances as nuisances_of
from privcausal.spec.functions import Additive, Constant, Difference
from privcausal.spec.request import Request
from privcausal.typing import Matrix
from privcausal.vault import ImputedEffect, Product, Transform, TreatmentResidual

IMPUTED_SIZES, IMPUTED = "effect: imputed sizes", "effect: imputed effects"

Arms = tuple[Moments, Moments]
"""What is regressed in either arm, those of the control first."""


@dataclass(frozen=True)
class _Arms(CateLearner):
    """What the three share: moments of the outcome's residuals within each arm."""

    name: ClassVar[str] = "arms"
    shares: ClassVar[Mapping[str, float]] = {"bounds": 0.1, "nuisance": 0.75, "average": 0.15}

    def effect_needs(self, request: Request, base: Base) -> list[Need]:
        return _arm_needs(request, base, "nuisance", 0.03, 0.7)

    def boosted_needs(self, request: Request) -> list[Need]:
        return boosted.one_stage_needs(request)

    def boost(self, ground: Ground) -> Learnt:
        return boosted.arms(ground, joint=False)

    def contrast(self, ground: Ground, arms: Arms, intercept: float, size: float) -> Posterior:
        """Coefficients of the difference of both arms' means, from prior variances."""
        raise NotImplementedError

    def learn(self, ground: Ground) -> Learnt:
        known = nuisances_of(ground)
        effect, partials = self._first(known, "nuisance")
        return _learnt(known, partials, effect)

    def _first(self, known: Learned, group: str) -> tuple[Effect, tuple[Partial, ...]]:
        ground, partials = known.ground, known.partials
        found, arms = _residuals(known, *_stages(group))
        regress = partial(self._regress, ground, found, arms)
        return orthogonal_effect(ground, partials, found, regress)

    def _regress(
        self,
        ground: Ground,
        found: Residuals,
        arms: Matrix,
        moments: Moments,
        intercept: float,
        size: float,
    ) -> Posterior:
        """What is taken off or added as noise where arms are one, by half in either."""
        off = 0.5 * (found.cross - moments.cross)
        own = replace(
            moments,
            cross_sd=moments.cross_sd / np.sqrt(2),
            noise_var=moments.noise_var / 2,
            extra=None if moments.extra is None else moments.extra / 2,
        )
        zero, one = (replace(own, cross=c) for c in (off - arms[0], arms[1] - off))
        return self.contrast(ground, (zero, one), intercept, size)


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

    def __post_init__(self) -> None:
        if not isinstance(self.interactions, bool):
            raise CapabilityError("S(interactions=) must be True or False")

    def boosted_needs(self, request: Request) -> list[Need]:
        return boosted.one_stage_needs(request, mean=self.interactions)

    def boost(self, ground: Ground) -> Learnt:
        if self.interactions:
            return boosted.arms(ground, joint=True)
        return boosted.constant_effect(ground)

    def contrast(self, ground: Ground, arms: Arms, intercept: float, size: float) -> Posterior:
        zero, one = arms
        features, p = ground.effect_features, ground.effect_features.size
        both = replace(
            one,
            gram=np.asarray(block_diag(zero.gram, one.gram)),
            cross=np.r_[zero.cross, one.cross],
            cross_sd=np.tile(one.cross_sd, 2),
            # both arms have the same
            extra=None if one.extra is None else np.asarray(block_diag(one.extra, one.extra)),
        )
        kept = np.arange(p) if self.interactions else np.arange(1)
        fitted = ground.session.regression.arms(both, features, intercept, size, size, kept=kept)
        pick = np.hstack([-np.eye(p), np.eye(p)])
        return Posterior(pick @ fitted.mean, pick @ fitted.cov @ pick.T, fitted.evidence)


@dataclass(frozen=True)
class T(_Arms):
    """One regression per arm; tau is their difference."""

    name: ClassVar[str] = "t"

    def contrast(self, ground: Ground, arms: Arms, intercept: float, size: float) -> Posterior:
        zero, one = (conditional(ground)(moments, intercept, size) for moments in arms)
        return Posterior(one.mean - zero.mean, one.cov + zero.cov, one.evidence + zero.evidence)


@dataclass(frozen=True)
class X(T):
    """Imputed effects regressed within each arm and joined: tau = e tau_0 + (1 - e) tau_1."""

    name: ClassVar[str] = "x"
    shares: ClassVar[Mapping[str, float]] = TOP

    def effect_needs(self, request: Request, base: Base) -> list[Need]:
        return [
            *_arm_needs(request, base, "effect", 0.01, 0.24),
            Need(IMPUTED_SIZES, 0.01, "effect"),
            Need(IMPUTED, 0.24, "effect"),
        ]

    def boosted_needs(self, request: Request) -> list[Need]:
        return boosted.two_stage_needs(request)

    def boost(self, ground: Ground) -> Learnt:
        return boosted.imputed(ground)

    def learn(self, ground: Ground) -> Learnt:
        known = nuisances_of(ground)
        first, partials = self._first(known, "effect")
        known = replace(known, partials=partials)
        return _learnt(known, partials, _joined(known, first))


def _joined(known: Learned, first: Effect) -> Effect:
    """Both arms' regressions of what the other arm's mean says that the effect of a row is.

    Where the first effect errs by d, mu_0 errs by -e d and mu_1 by (1 - e) d, and the joined effect
    by 2 e (1 - e) d <= d / 2: a part of its band.
    """
    ground, outcome = known.ground, known.ground.outcome
    soft = min(RESIDUAL_CLIP, ground.clip)

    def imputed(part: Partial) -> Transform:
        effect = ImputedEffect(nuisance_of(part, first, outcome), outcome)
        return Product(TreatmentResidual(part.e_soft, soft), effect)

    target = by_fold(imputed, known.partials)
    found, arms = _moments(known, target, IMPUTED_SIZES, IMPUTED, None)
    e, variance = overall(known.partials).e, found.spread**2 / found.mean_weight / 2
    spreads = (CONSTANT_SPREAD * outcome.bound) ** 2, found.cut**2 / 10
    features = ground.effect_features
    nothing = Additive(features, np.zeros(features.size))
    pieces = [Piece(nothing, first.pieces[0].cov, Constant(0.5))]
    for cross, weight in zip((-arms[0], arms[1]), (e, Difference(Constant(1.0), e)), strict=True):
        moments = Moments(found.gram, cross, found.gram_sd, found.cross_sd / np.sqrt(2), variance)
        fitted = conditional(ground)(moments, *spreads)
        pieces.append(Piece(Additive(features, fitted.mean), fitted.cov, weight))
    return Effect(tuple(pieces), 2 * outcome.bound)


def _stages(group: str) -> tuple[str, str, str]:
    """Names of the sizes, the moments and, where they are bought, the weights."""
    return f"{group}: arm sizes", f"{group}: arm outcomes", f"{group}: weights"


def _arm_needs(
    request: Request, base: Base, group: str, look: float, outcomes: float
) -> list[Need]:
    sizes, moments, weights = _stages(group)
    return [
        *nuisance_needs(request, base),
        Need(sizes, look, group),
        *([Need(weights, 0.06, group)] if base.released_weights else []),
        Need(moments, outcomes, group),
    ]


def _residuals(known: Learned, sizes: str, stage: str, weights: str) -> tuple[Residuals, Matrix]:
    """Moments of the residual product, and those of each arm, shape (2, p)."""
    target = residual_product(known.ground, known.partials)
    bought = weights if known.ground.session.plan.has(weights) else None
    return _moments(known, target, sizes, stage, bought)


def _moments(
    known: Learned, target: Transform, sizes: str, stage: str, weights: str | None
) -> tuple[Residuals, Matrix]:
    ground, features = known.ground, known.ground.effect_features
    law = residual_sizes(ground, target, sizes, known.partials[0])
    gram, gram_sd, mean_weight = weights_gram(ground, known.grams, known.partials, weights)
    cut = cut_of(ground, law, stage, BIAS)
    moved = moments_of(ground, features, target, law, cut, stage, by_arm=True)
    arms = moved.cross.reshape(2, -1)
    sd = np.sqrt(2) * moved.cross_sd[: features.size]
    whole = moved._replace(cross=arms.sum(axis=0), cross_sd=sd)
    return Residuals(
        **whole._asdict(), gram=gram, gram_sd=gram_sd, mean_weight=mean_weight, sizes=law
    ), arms


def _learnt(known: Learned, partials: tuple[Partial, ...], effect: Effect) -> Learnt:
    ground = known.ground
    nuisances = tuple(nuisance_of(p, effect, ground.outcome) for p in partials)
    return Learnt(
        ground, effect, nuisances, shown(partials, nuisances), known.doubt, partials, effect
    )
