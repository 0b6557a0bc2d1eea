"""Private nuisances from noisy moments: propensity, mean outcome, and the means of each arm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from privcausal.inference import cut as cuts
from privcausal.inference.additive import Moments, Posterior
from privcausal.inference.effect import Effect, Piece
from privcausal.inference.gram import GramEstimate, population_gram
from privcausal.learners.ground import Grams, Ground, complements
from privcausal.learners.needs import Need
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

RESIDUAL_CLIP = 0.03
"""e is cut here where nothing is divided by it (the R-learner); `propensity_clip` elsewhere."""

LEAST_BELOW = 0.6
"""A cut moment is scaled up by the share of scores below the cut, but by no more than 1/0.6."""


@dataclass(frozen=True, eq=False)
class Partial:
    """e(x) and eta(x) = E[Y | x] of one fold's rows, learned on the others.

    `e` is cut to the arm clip, `e_soft` to `RESIDUAL_CLIP`.
    """

    e: Function
    e_soft: Function
    eta: Function


def partial_needs(ground_known: bool) -> list[Need]:
    needs = [Need("nuisance: moments", 0.14, "nuisance")]
    if not ground_known:
        needs.append(Need("nuisance: treatment", 0.07, "nuisance"))
    return [*needs, Need("nuisance: outcome", 0.25, "nuisance")]


def partial(ground: Ground, grams: Grams) -> tuple[Partial, ...]:
    """Propensity and mean outcome, one pair per fold (one without cross-fitting)."""
    es = _propensities(ground, grams)
    etas = _outcomes(ground, grams)
    return tuple(Partial(e, soft, eta) for (e, soft), eta in zip(es, etas, strict=True))


def _propensities(ground: Ground, grams: Grams) -> list[tuple[Function, Function]]:
    if ground.known is not None:
        return [(ground.known, ground.known)] * len(grams.outside)
    mechanism = Cross(ground.features, Treatment(), 0.5, "treatment")
    releases = ground.session.moments("nuisance: treatment", mechanism)
    sd = float(releases[0].noise_sd[0])
    crosses = complements([r.value for r in releases], sd)
    return [
        propensity(ground, gram, cross, noise)
        for gram, (cross, noise, _) in zip(grams.outside, crosses, strict=True)
    ]


def propensity(
    ground: Ground, gram: GramEstimate, cross: Vector, cross_sd: float
) -> tuple[Function, Function]:
    """e(x) from moments of T - 1/2, at the arm clip and at the residual clip."""
    moments = Moments(gram.value, cross, gram.sd, cross_sd, 0.25)
    fitted = ground.session.base.nuisance(
        moments, ground.features, 0.25, np.exp(-5.0), fit_noise=False
    )
    e = Additive(ground.features, fitted.mean, 0.5, ground.clip, 1 - ground.clip)
    soft = min(RESIDUAL_CLIP, ground.clip)
    return e, replace(e, lo=soft, hi=1 - soft)


def _outcomes(ground: Ground, grams: Grams) -> list[Function]:
    outcome = ground.outcome
    mechanism = Cross(ground.features, outcome, outcome.bound, "outcome")
    releases = ground.session.moments("nuisance: outcome", mechanism)
    sd = float(releases[0].noise_sd[0])
    crosses = complements([r.value for r in releases], sd)
    return [
        _mean(ground, gram, cross, noise)
        for gram, (cross, noise, _) in zip(grams.outside, crosses, strict=True)
    ]


def _mean(ground: Ground, gram: GramEstimate, cross: Vector, cross_sd: float) -> Function:
    outcome = ground.outcome
    half = outcome.bound
    moments = Moments(gram.value, cross, gram.sd, cross_sd, (half / 4) ** 2)
    fitted = ground.session.base.nuisance(
        moments, ground.features, half**2 / 4, half**2 / 100, fit_noise=True
    )
    middle = 0.5 * (outcome.lo + outcome.hi)
    return Additive(ground.features, fitted.mean, middle, outcome.lo, outcome.hi)


def by_fold(make: Callable[[Partial], Transform], partials: tuple[Partial, ...]) -> Transform:
    """The transform of the only nuisance, or each row's own fold's."""
    transforms = tuple(make(p) for p in partials)
    return transforms[0] if len(transforms) == 1 else ByFold(transforms)


def residual_effect(
    ground: Ground, grams: Grams, partials: tuple[Partial, ...], stages: tuple[str, str, str | None]
) -> Effect:
    """tau(x) minimising sum [(Y - eta) - (T - e) tau(x)]^2 (Nie and Wager 2021, Eq. 4).

    `stages` names the releases: the histogram of the residual product, its moments, and with a
    textbook base the weights' Gram.
    """
    features, outcome = ground.effect_features, ground.outcome
    soft = min(RESIDUAL_CLIP, ground.clip)
    target = by_fold(lambda p: ResidualProduct(p.e_soft, p.eta, outcome, soft), partials)
    sizes = read_sizes(ground, target, stages[0])
    per_cut = cross_noise(ground, stages[1], features.cut) / ground.population.count
    cut = cuts.trade(sizes, per_cut)
    release = ground.session.release(stages[1], Cross(features, target, cut, "residual product"))
    below = max(sizes.below(cut), LEAST_BELOW)
    gram, gram_sd, mean_weight = _weights_gram(ground, grams, partials, stages[2])
    moments = Moments(
        gram, release.value / below, gram_sd, float(release.noise_sd[0]) / below,
        max(sizes.rms(cut), 1e-3 * cut) ** 2 / mean_weight,
    )
    return as_effect(ground, effect_fit(ground, moments, 16 * cut**2, cut**2 / 10))


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
    return change * trust.max_rows * norm / np.sqrt(2 * rho)


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
    return Partial(
        Mixture(half, first.e, second.e), Mixture(half, first.e_soft, second.e_soft),
        Mixture(half, first.eta, second.eta),
    )
