"""tau(x) from the residual product, with what the nuisances' errors leave in it taken off.

One release of sum w (T - e)(Y - eta) phi is read with the joint law of both nuisances: the mean of
their errors' product is subtracted, its covariance joins the noise. All of it is post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcausal.inference import cut as cuts
from privcausal.inference.additive import Moments
from privcausal.inference.effect import Effect, Piece
from privcausal.inference.leftover import Leftover, Source, leftover
from privcausal.inference.sizes import modelled
from privcausal.learners.ground import Grams, Ground
from privcausal.learners.nuisances import (
    LEAST_BELOW,
    RESIDUAL_CLIP,
    Partial,
    by_fold,
    cross_noise,
    settled,
    weights_gram,
)
from privcausal.spec.functions import Additive
from privcausal.typing import Matrix, Vector
from privcausal.vault import Cross, ResidualProduct, SizeHistogram, Transform

POINTS = 200
"""Points of the synthetic population at which errors of nuisances are looked at."""

CONSTANT_SPREAD = 0.2
"""Public prior sd of the constant part of an effect, as a share of half the outcome's range."""

ROUNDS = 1
"""The law of the errors depends on the constant part of the effect, which is learned with it."""


@dataclass(frozen=True, eq=False)
class Residuals:
    """Released moments of the residual product, as if nothing had been cut.

    Attributes
    ----------
    cross, cross_sd
        Sum of w (T - e)(Y - eta) phi, shape (p,), and the noise sd of an entry.
    gram, gram_sd
        Sum of w (T - e)^2 phi phi', shape (p, p), by post-processing or bought.
    cut, spread : float
        The cut, and the root mean square of what is below it.
    mean_weight : float
        Mean of (T - e)^2.
    """

    cross: Vector
    cross_sd: float
    gram: Matrix
    gram_sd: float
    cut: float
    spread: float
    mean_weight: float


def residuals(
    ground: Ground,
    grams: Grams,
    partials: tuple[Partial, ...],
    *,
    sizes: str,
    moments: str,
    weights: str | None,
) -> Residuals:
    """Ask for the sizes of the residual product, then for its moments (names are stages)."""
    features = ground.effect_features
    soft = min(RESIDUAL_CLIP, ground.clip)
    target = by_fold(lambda p: ResidualProduct(p.e_soft, p.eta, ground.outcome, soft), partials)
    law = _sizes(ground, target, sizes, partials[0])
    cut = cuts.trade(law, cross_noise(ground, moments, features.cut) / ground.population.count)
    release = ground.session.release(moments, Cross(features, target, cut, "residual product"))
    gram, gram_sd, mean_weight = weights_gram(ground, grams, partials, weights)
    below = max(law.below(cut), LEAST_BELOW)
    return Residuals(
        release.value / below,
        float(release.noise_sd[0]) / below,
        gram,
        gram_sd,
        cut,
        max(law.rms(cut), 1e-3 * cut),
        mean_weight,
    )


def _sizes(ground: Ground, target: Transform, stage: str, part: Partial) -> cuts.Sizes:
    borders = cuts.edges(target.bound)
    release = ground.session.release(stage, SizeHistogram(target, borders))
    e = part.e_soft(ground.rows)[:POINTS]
    noise = float(release.noise_sd[0])
    return modelled(release.value, noise, borders, ground.population.count, e)


def orthogonal_effect(
    ground: Ground, partials: tuple[Partial, ...], found: Residuals
) -> tuple[Effect, tuple[Partial, ...]]:
    """tau(x), and the nuisances read again with its constant part."""
    effect, after = _effect(ground, found, partials, partials), partials
    if partials[0].pair is None:  # a known propensity leaves nothing
        return effect, partials
    for _ in range(ROUNDS):
        after = settled(ground, partials, effect)
        effect = _effect(ground, found, partials, after)
    return effect, after


def _effect(
    ground: Ground, found: Residuals, used: tuple[Partial, ...], known: tuple[Partial, ...]
) -> Effect:
    """Regression of the released moments, less what is left of the nuisances `used` in them."""
    cross, extra = found.cross, None
    if used[0].pair is not None:
        mean, extra = _moments(ground, used, known)
        cross = cross - mean
    outcome = ground.outcome
    moments = Moments(
        found.gram,
        cross,
        found.gram_sd,
        found.cross_sd,
        found.spread**2 / found.mean_weight,
        extra,
    )
    constant = (CONSTANT_SPREAD * outcome.bound) ** 2
    posterior = ground.session.regression.conditional(
        moments, ground.effect_features, constant, found.cut**2 / 10
    )
    function = Additive(ground.effect_features, posterior.mean)
    return Effect((Piece(function, posterior.cov),), 2 * outcome.bound)


def _moments(
    ground: Ground, used: tuple[Partial, ...], known: tuple[Partial, ...]
) -> tuple[Vector, Matrix]:
    """Mean and covariance of sum w phi d_e d_b.

    Folds err alike at worst, so that the covariance of their mean is at most the mean of theirs.
    """
    phi = ground.rows.phi(ground.effect_features)[:POINTS]
    lead = phi.T * ground.effect_features.weight(phi) * (ground.population.count / len(phi))
    laws = [_leftover(ground, one, two) for one, two in zip(used, known, strict=True)]
    mean = np.mean([law.mean for law in laws], axis=0)
    cov = np.mean([law.cov for law in laws], axis=0)
    return lead @ mean, np.asarray(lead @ cov @ lead.T)


def _leftover(ground: Ground, used: Partial, known: Partial) -> Leftover:
    rows = ground.rows
    assert used.pair is not None
    assert known.pair is not None
    sources = [Source(rows.phi(ground.features)[:POINTS], known.pair, *used.pair.mean)]
    if used.beyond is not None and known.beyond is not None:
        psi, pair = used.beyond
        sources.append(Source(rows.phi(psi)[:POINTS], known.beyond[1], *pair.mean))
    return leftover(sources)
