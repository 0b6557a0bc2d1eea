"""Private nuisances from noisy moments: propensity, mean outcome, and the means of each arm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from privcausal.inference import cut as cuts
from privcausal.inference.additive import Moments, Posterior
from privcausal.inference.average import remainder_sd
from privcausal.inference.basis import amplitude
from privcausal.inference.effect import Effect, Piece
from privcausal.inference.gram import GramEstimate, population_gram
from privcausal.learners.ground import Grams, Ground, complements
from privcausal.learners.needs import Need
from privcausal.spec.features import FeatureMap
from privcausal.spec.functions import (
    Additive,
    ArmMean,
    Constant,
    Function,
    Mixture,
    Nuisance,
)
from privcausal.typing import Matrix, Vector
from privcausal.vault import (
    ByFold,
    Cross,
    Gram,
    Outcome,
    ResidualProduct,
    SizeHistogram,
    Transform,
    Treatment,
    TreatmentResidual,
)

F = TypeVar("F")

RESIDUAL_CLIP = 0.03
"""e is cut here where nothing is divided by it (the R-learner); `propensity_clip` elsewhere."""

PROPENSITY_SPREAD = 0.12
"""Public prior sd of e(x) over the covariates."""

OUTCOME_SPREAD = 0.2
"""Public prior sd of E[Y | x] over the covariates, as a share of half the outcome's range."""

LEAST_BELOW = 0.6
"""A cut moment is scaled up by the share of scores below the cut, but by no more than 1/0.6."""


@dataclass(frozen=True, eq=False)
class Partial:
    """e(x) and eta(x) = E[Y | x] of one fold's rows, learned on the others.

    `e` is cut to the arm clip, `e_soft` to `RESIDUAL_CLIP`; the covariances are of coefficients.
    """

    e: Function
    e_soft: Function
    eta: Function
    e_cov: Matrix
    eta_cov: Matrix


@dataclass(frozen=True, eq=False)
class Propensity:
    """e(x) at the arm clip and at the residual clip, with its coefficients' covariance."""

    e: Function
    soft: Function
    cov: Matrix


def partial_needs(ground_known: bool) -> list[Need]:
    needs = [Need("nuisance: moments", 0.14, "nuisance")]
    if not ground_known:
        needs.append(Need("nuisance: treatment", 0.07, "nuisance"))
    return [*needs, Need("nuisance: outcome", 0.25, "nuisance")]


def partial(ground: Ground, grams: Grams) -> tuple[Partial, ...]:
    """Propensity and mean outcome, one pair per fold (one without cross-fitting)."""
    es = _propensities(ground, grams)
    etas = _outcomes(ground, grams)
    return tuple(
        Partial(e.e, e.soft, eta, e.cov, cov) for e, (eta, cov) in zip(es, etas, strict=True)
    )


def known_propensity(ground: Ground, known: Function) -> Propensity:
    return Propensity(known, known, np.zeros((ground.features.size,) * 2))


def _propensities(ground: Ground, grams: Grams) -> list[Propensity]:
    if ground.known is not None:
        return [known_propensity(ground, ground.known)] * len(grams.outside)
    mechanism = Cross(ground.features, Treatment(), 0.5, "treatment")
    releases = ground.session.moments("nuisance: treatment", mechanism)
    sd = float(releases[0].noise_sd[0])
    crosses = complements([r.value for r in releases], sd)
    return [
        propensity(ground, gram, cross, noise)
        for gram, (cross, noise, _) in zip(grams.outside, crosses, strict=True)
    ]


def propensity(ground: Ground, gram: GramEstimate, cross: Vector, cross_sd: float) -> Propensity:
    """e(x) from moments of T - 1/2."""
    moments = Moments(gram.value, cross, gram.sd, cross_sd, 0.25)
    size = PROPENSITY_SPREAD**2 / spread(ground.features)
    fitted = ground.session.base.nuisance(moments, ground.features, 0.25, size, fit_noise=False)
    e = Additive(ground.features, fitted.mean, 0.5, ground.clip, 1 - ground.clip)
    soft = min(RESIDUAL_CLIP, ground.clip)
    return Propensity(e, replace(e, lo=soft, hi=1 - soft), fitted.cov)


def spread(features: FeatureMap) -> float:
    """Variance of phi'beta for slopes of unit variance on the linear functions."""
    return float(max((features.order == 1).sum(), 1)) * amplitude(len(features.blocks)) ** 2


def _outcomes(ground: Ground, grams: Grams) -> list[tuple[Function, Matrix]]:
    outcome = ground.outcome
    mechanism = Cross(ground.features, outcome, outcome.bound, "outcome")
    releases = ground.session.moments("nuisance: outcome", mechanism)
    sd = float(releases[0].noise_sd[0])
    crosses = complements([r.value for r in releases], sd)
    return [
        _mean(ground, gram, cross, noise)
        for gram, (cross, noise, _) in zip(grams.outside, crosses, strict=True)
    ]


def _mean(
    ground: Ground, gram: GramEstimate, cross: Vector, cross_sd: float
) -> tuple[Function, Matrix]:
    outcome = ground.outcome
    half = outcome.bound
    moments = Moments(gram.value, cross, gram.sd, cross_sd, (half / 4) ** 2)
    size = (OUTCOME_SPREAD * half) ** 2 / spread(ground.features)
    fitted = ground.session.base.nuisance(
        moments, ground.features, half**2 / 4, size, fit_noise=True
    )
    middle = 0.5 * (outcome.lo + outcome.hi)
    return Additive(ground.features, fitted.mean, middle, outcome.lo, outcome.hi), fitted.cov


def remainder(ground: Ground, e: Function, e_cov: Matrix, mean_cov: Matrix) -> float:
    """Root mean square of the product of nuisance errors over the synthetic population."""
    rows = ground.rows
    phi, p = rows.phi(ground.features), e(rows)
    weight = (phi.T / (p * (1 - p))) @ phi / len(rows)
    return remainder_sd(np.asarray(weight), e_cov, mean_cov)


def by_fold(make: Callable[[F], Transform], folds: Sequence[F]) -> Transform:
    """The transform of the only nuisance, or each row's own fold's."""
    transforms = tuple(make(fold) for fold in folds)
    return transforms[0] if len(transforms) == 1 else ByFold(transforms)


RESIDUAL_SHARE = 0.25
"""Public cut of the residual product, as a share of the outcome's range, where no histogram of it
is bought: (T - e)(Y - eta) is mostly below half the residual's size."""


def residual_effect(
    ground: Ground,
    grams: Grams,
    partials: tuple[Partial, ...],
    *,
    sizes: str | None,
    moments: str,
    weights: str | None,
) -> Effect:
    """tau(x) minimising sum [(Y - eta) - (T - e) tau(x)]^2 (Nie and Wager 2021, Eq. 4).

    The names are those of stages: the histogram of the residual product (None: a public cut), its
    moments, and the Gram of the weights (None: by post-processing).
    """
    features, outcome = ground.effect_features, ground.outcome
    soft = min(RESIDUAL_CLIP, ground.clip)
    target = by_fold(lambda p: ResidualProduct(p.e_soft, p.eta, outcome, soft), partials)
    if sizes is None:
        cut = 2 * RESIDUAL_SHARE * outcome.bound
        below, spread = 1.0, 0.5 * cut
    else:
        law = read_sizes(ground, target, sizes)
        cut = cuts.trade(law, cross_noise(ground, moments, features.cut) / ground.population.count)
        below, spread = max(law.below(cut), LEAST_BELOW), max(law.rms(cut), 1e-3 * cut)
    release = ground.session.release(moments, Cross(features, target, cut, "residual product"))
    gram, gram_sd, mean_weight = _weights_gram(ground, grams, partials, weights)
    found = Moments(
        gram,
        release.value / below,
        gram_sd,
        float(release.noise_sd[0]) / below,
        spread**2 / mean_weight,
    )
    constant = min(16 * cut**2, 0.25 * outcome.bound**2)
    return as_effect(ground, effect_fit(ground, found, constant, cut**2 / (10 if sizes else 40)))


def effect_fit(ground: Ground, moments: Moments, intercept: float, size: float) -> Posterior:
    return ground.session.base.effect(moments, ground.effect_features, intercept, size)


def as_effect(ground: Ground, posterior: Posterior) -> Effect:
    function = Additive(ground.effect_features, posterior.mean)
    return Effect((Piece(function, posterior.cov),), 2 * ground.outcome.bound)


def read_sizes(ground: Ground, target: Transform, stage: str) -> cuts.Sizes:
    """Noisy histogram of a score's size, cleaned."""
    borders = cuts.edges(target.bound)
    release = ground.session.release(stage, SizeHistogram(target, borders))
    return cuts.read(release.value, float(release.noise_sd[0]), borders)


def cross_noise(ground: Ground, stage: str, norm: float) -> float:
    """Noise sd of a cross moment per unit of its cut: what the price of a wider cut is."""
    plan = ground.session.plan
    trust = plan.request.trust
    change = 2.0 if trust.neighbors == "substitute" else 1.0
    rho = plan.stage(stage).rho / 1e12
    return float(change * trust.max_rows * norm / np.sqrt(2 * rho))


def _weights_gram(
    ground: Ground, grams: Grams, partials: tuple[Partial, ...], stage: str | None
) -> tuple[Matrix, float, float]:
    """Sum of (T - e)^2 w phi phi', its noise sd and the mean weight.

    Base "gam" computes it from the synthetic population, with (T - e)^2 replaced by its mean
    e (1 - e), and moved by what the noisy Gram says beyond the population; base "linear" buys it.
    """
    e = partials[0].e_soft(ground.rows)
    mean_weight = float(np.mean(e * (1 - e)))
    if stage is not None:
        soft = min(RESIDUAL_CLIP, ground.clip)
        factor = by_fold(lambda p: TreatmentResidual(p.e_soft, soft), partials)
        mechanism = Gram(ground.effect_features, factor=factor)
        release = ground.session.release(stage, mechanism)
        sd = mechanism.matrix(release.noise_sd)
        off = float(sd[0, 1]) if len(sd) > 1 else float(sd[0, 0] / np.sqrt(2.0))
        return mechanism.matrix(release.value), off, mean_weight
    rows, features = ground.rows, ground.effect_features
    model = population_gram(features, rows, ground.population.count, e * (1 - e))
    whole = grams.whole.sub(ground.effect_index)
    seen = whole.value - whole.model
    return model + mean_weight * seen, whole.sd * mean_weight, mean_weight


def nuisance_of(part: Partial, tau: Function, outcome: Outcome) -> Nuisance:
    """Arm means around eta: mu_t = eta + (t - e) tau."""
    low, high = outcome.lo, outcome.hi
    mu0 = ArmMean(0.0, part.eta, part.e_soft, tau, low, high)
    mu1 = ArmMean(1.0, part.eta, part.e_soft, tau, low, high)
    return Nuisance(part.e, mu0, mu1)


def overall(partials: tuple[Partial, ...]) -> Partial:
    """One nuisance to show and predict with: the folds' mean (folds only exist for rows)."""
    if len(partials) == 1:
        return partials[0]
    first, second = partials
    half = Constant(0.5)
    return replace(
        first,
        e=Mixture(half, first.e, second.e),
        e_soft=Mixture(half, first.e_soft, second.e_soft),
        eta=Mixture(half, first.eta, second.eta),
    )
