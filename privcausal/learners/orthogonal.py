"""tau(x) from the residual product, with what the nuisances' errors leave in it taken off.

One release of sum w (T - e)(Y - eta) phi is read with the joint law of both nuisances: a part of
the mean of their errors' product is subtracted, a part of its covariance joins the noise, and all
that is left is in the bands. It is post-processing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from privcausal.inference import cut as cuts
from privcausal.inference import window as windows
from privcausal.inference.additive import Moments, Posterior
from privcausal.inference.band import spread
from privcausal.inference.basis import amplitude
from privcausal.inference.confounding import Remainder
from privcausal.inference.effect import Effect
from privcausal.inference.leftover import Leftover, Source, leftover
from privcausal.inference.sizes import modelled
from privcausal.learners.bases import Base, Gam
from privcausal.learners.ground import Grams, Ground, gram_of, is_binary, outcome_histogram
from privcausal.learners.interactions import OUTCOME as OUTCOME_INTERACTIONS
from privcausal.learners.interactions import SIZES as RESIDUAL_SIZES
from privcausal.learners.interactions import TREATMENT as INTERACTIONS
from privcausal.learners.interactions import interaction_needs, refine
from privcausal.learners.needs import Need
from privcausal.learners.nuisances import (
    LEAST_BELOW,
    Partial,
    as_effect,
    clipped,
    cross_noise,
    extended,
    from_pair,
    over_folds,
    partial,
    partial_needs,
    remainder_weight,
    residual_product,
    settled,
    weights_gram,
)
from privcausal.spec.features import Features
from privcausal.spec.request import Request
from privcausal.typing import Matrix, Vector
from privcausal.vault import (
    Cross,
    Outcome,
    SizeHistogram,
    Transform,
)

CLIPPED = 0.25
"""Of the bias that cutting could make at most, what is allowed for after scaling up again."""

BIAS = 0.3
"""Price of cutting the residual product."""

LEFT_MEAN = 0.5
"""Of the mean of what the nuisances leave, what is taken off: the law knows little of its sign."""

LEFT_NOISE = 0.2
"""Of the covariance of what the nuisances leave, what counts as noise to the additive part of an
effect: all of it, as products of modifiers have it, would hide every slope of a small study."""

POINTS = 128
"""Points of the synthetic population at which errors of nuisances are looked at."""

CONSTANT_SPREAD = 0.1
"""Public prior sd of the constant part of an effect, as a share of half the outcome's range."""


def conditional(ground: Ground) -> Regression:
    """The base's own regression of an effect whose shape is wanted."""

    def regress(moments: Moments, intercept_var: float, size_var: float) -> Posterior:
        base = ground.session.regression
        return base.conditional(moments, ground.effect_features, intercept_var, size_var)

    return regress


Regression = Callable[[Moments, float, float], Posterior]
"""From moments and prior variances, of the intercept and of slopes, to the effect."""


@dataclass(frozen=True, eq=False)
class Residuals:
    """Released moments of the residual product, as if nothing had been cut.

    Attributes
    ----------
    cross, cross_sd
        Sum of w (T - e)(Y - eta) phi, shape (p,), and the noise sd of each entry.
    cut, spread : float
        The cut, and the root mean square of what is below it.
    clipping : float
        Standard deviation allowed for what cutting did to the mean of the product.
    gram, gram_sd
        Sum of w (T - e)^2 phi phi', shape (p, p), by post-processing or bought.
    mean_weight : float
        Mean of (T - e)^2.
    sizes : Sizes
        The histogram of the product's size.
    """

    cross: Vector
    cross_sd: Vector
    cut: float
    spread: float
    clipping: float
    gram: Matrix
    gram_sd: float
    mean_weight: float
    sizes: cuts.Sizes


INTERACTIONS_WEIGHTS = (0.06, 0.14, 0.01)
"""Weights of the interactions' stages (treatment, outcome, sizes) within the nuisances' share."""


WINDOW, WINDOW_WEIGHT = "nuisance: outcome range", 0.02
"""The histogram of outcomes, and its weight within the nuisances' share."""


def _windowed(ground: Ground) -> Ground:
    """The ground with a narrower range of the outcome, where a histogram of it is bought."""
    outcome = ground.outcome
    release = outcome_histogram(ground, WINDOW, lambda _: windows.borders(outcome.lo, outcome.hi))
    if release is None:
        return ground
    features, count = ground.features, ground.population.count
    noise = cross_noise(ground, "nuisance: outcome", features.cut) / count
    linear = int((features.order == 1).sum())
    found = windows.window(
        release.value,
        float(release.noise_sd[0]),
        outcome.lo,
        outcome.hi,
        count,
        noise * float(np.sqrt(linear)) / amplitude(len(features.blocks)),
    )
    return replace(ground, window=Outcome(*found))


def nuisance_needs(request: Request, base: Base) -> list[Need]:
    """Stages of both nuisances, with their interactions where the base learns them."""
    needs = partial_needs(request.propensity is not None)
    if not base.released_weights and not is_binary(request):
        needs.insert(0, Need(WINDOW, WINDOW_WEIGHT, "nuisance"))
    if request.propensity is None and base.interactions:
        needs += interaction_needs(*INTERACTIONS_WEIGHTS)
    return needs


@dataclass(frozen=True, eq=False)
class Learned:
    """Nuisances, and what was released on the way to them.

    Attributes
    ----------
    ground : Ground
        With the outcome's window, where one is bought.
    grams : Grams
    partials : tuple of Partial
        Propensity and mean outcome, by fold.
    doubt : Remainder
        About averages, beyond what the partials' laws say.
    """

    ground: Ground
    grams: Grams
    partials: tuple[Partial, ...]
    doubt: Remainder


def nuisances(ground: Ground) -> Learned:
    """All stages of `nuisance_needs`: those who plan with the one learn with the other."""
    ground, grams = gram_of(ground)
    ground = _windowed(ground)
    ground, partials = clipped(ground, partial(ground, grams))
    return Learned(ground, grams, *_refined(ground, partials))


def _refined(
    ground: Ground, partials: tuple[Partial, ...]
) -> tuple[tuple[Partial, ...], Remainder]:
    if not ground.session.plan.has(INTERACTIONS):
        return partials, Remainder(0.0, 0.0)
    refined = refine(ground, partials)
    if refined is partials:  # the covariates have no products
        ground.session.unused(RESIDUAL_SIZES, INTERACTIONS, OUTCOME_INTERACTIONS)
        return partials, Remainder(0.0, 0.0)
    return believed(ground, refined)


def believed(
    ground: Ground, partials: tuple[Partial, ...]
) -> tuple[tuple[Partial, ...], Remainder]:
    """The partials without interactions where the moments speak against those (any fold's).

    What they may be nevertheless stays a doubt about averages.
    """
    beyond = [p.beyond for p in partials]
    if any(one is None or one[1].support > 0 for one in beyond):
        return partials, Remainder(0.0, 0.0)
    laws = []
    for part, one in zip(partials, beyond, strict=True):
        assert one is not None
        psi, pair = one
        weight = remainder_weight(ground, psi, part.e)
        law = pair.remainder(weight)
        shift = pair.confounding(weight) + law.mean
        laws.append(Remainder(0.0, float(np.hypot(law.sd, shift))))
    return tuple(_without(ground, p) for p in partials), over_folds(laws)


def _without(ground: Ground, part: Partial) -> Partial:
    """With interactions of zero, so that what is saved has the same structure."""
    assert part.pair is not None
    assert part.beyond is not None
    psi, pair = part.beyond
    return extended(from_pair(ground, part.pair), psi, pair.without())


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
    target = residual_product(ground, partials)
    law = residual_sizes(ground, target, sizes, partials[0])
    gram, gram_sd, mean_weight = weights_gram(ground, grams, partials, weights)
    cut = cut_of(ground, law, moments, BIAS)
    return Residuals(
        **moments_of(ground, ground.effect_features, target, law, cut, moments)._asdict(),
        gram=gram,
        gram_sd=gram_sd,
        mean_weight=mean_weight,
        sizes=law,
    )


class Moved(NamedTuple):
    """What one release says, as if nothing had been cut: fields of `Residuals`."""

    cross: Vector
    cross_sd: Vector
    cut: float
    spread: float
    clipping: float


def cut_of(ground: Ground, law: cuts.Sizes, stage: str, bias: float) -> float:
    """Where the target of a stage is cut, at a `bias` per cut (`cuts.trade`)."""
    noise = cross_noise(ground, stage, ground.effect_features.cut) / ground.population.count
    return cuts.trade(law, noise, bias=bias)


def moments_of(
    ground: Ground,
    features: Features,
    target: Transform,
    law: cuts.Sizes,
    cut: float,
    stage: str,
    *,
    by_arm: bool = False,
) -> Moved:
    """Ask for the moments of a target that is cut, and scale them to what they are uncut."""
    order = Cross(features, target, cut, "residual product", by_arm=by_arm)
    release = ground.session.release(stage, order)
    below = max(law.below(cut), LEAST_BELOW)
    return Moved(
        release.value / below,
        release.noise_sd / below,
        cut,
        max(law.rms(cut), 1e-3 * cut),
        CLIPPED * cuts.unseen_bias(law, cut),
    )


def residual_sizes(ground: Ground, target: Transform, stage: str, part: Partial) -> cuts.Sizes:
    """Histogram of a residual product's size, helped by what such products usually look like."""
    borders = cuts.edges(target.bound)
    release = ground.session.release(stage, SizeHistogram(target, borders))
    e = part.e_soft(ground.rows)[:POINTS]
    noise = float(release.noise_sd[0])
    return modelled(release.value, noise, borders, ground.population.count, e)


class Reading(NamedTuple):
    """What moments say of the effect.

    Attributes
    ----------
    effect : Effect
        With the covariance of its band.
    cov : Matrix
        Covariance of the coefficients given the prior and the noise that the effect is of, with a
        part of the leftover's only; shape (p, p).
    left : list of Leftover
        Laws of what the nuisances left in the moments.
    """

    effect: Effect
    cov: Matrix
    left: list[Leftover]


def orthogonal_effect(
    ground: Ground, partials: tuple[Partial, ...], found: Residuals, regress: Regression
) -> tuple[Effect, tuple[Partial, ...]]:
    """tau(x), and the nuisances read again with its constant part.

    The law of their errors depends on that part, which is learned with it: once more is enough.
    """
    effect = read(ground, found, partials, partials, regress).effect
    if partials[0].pair is None:  # a known propensity leaves nothing
        return effect, partials
    after = settled(ground, partials, effect)
    return read(ground, found, partials, after, regress).effect, after


def read(
    ground: Ground,
    found: Residuals,
    used: tuple[Partial, ...],
    known: tuple[Partial, ...],
    regress: Regression,
) -> Reading:
    """Regression of the released moments, less what is left of the nuisances `used` in them.

    A part of what the leftover may be beyond what is taken off is noise to the regression. All of
    it, with what cutting may have done to the constant, is in the band.
    """
    bound, features = ground.outcome.bound, ground.effect_features
    noise_var = found.spread**2 / found.mean_weight
    moments = Moments(found.gram, found.cross, found.gram_sd, found.cross_sd, noise_var)
    spreads = (CONSTANT_SPREAD * bound) ** 2, found.cut**2 / 10
    base = ground.session.regression
    if not isinstance(base, Gam):
        posterior = regress(moments, *spreads)
        return Reading(as_effect(ground, posterior), posterior.cov, [])
    left = leftovers(ground, used, known)
    mean, cov = left_moments(ground, left, features)
    moments = replace(moments, cross=found.cross - mean)
    posterior = regress(replace(moments, extra=LEFT_NOISE * cov), *spreads)
    cov[0, 0] += (found.clipping * found.gram[0, 0] / found.mean_weight) ** 2
    reference = base.reference(features, *spreads)
    around = spread(replace(moments, extra=cov), reference, posterior.mean)
    return Reading(as_effect(ground, replace(posterior, cov=around)), posterior.cov, left)


def leftovers(
    ground: Ground, used: tuple[Partial, ...], known: tuple[Partial, ...]
) -> list[Leftover]:
    """Laws of d_e d_b by fold, none where e is known."""
    if used[0].pair is None:
        return []
    return [_leftover(ground, one, two) for one, two in zip(used, known, strict=True)]


def left_moments(
    ground: Ground, laws: Sequence[Leftover], features: Features
) -> tuple[Vector, Matrix]:
    """What of sum w phi d_e d_b is taken off, and the covariance around it, zero without laws.

    Folds err alike at worst, so that the covariance of their mean is at most the mean of theirs.
    """
    if not laws:
        return np.zeros(features.size), np.zeros((features.size, features.size))
    phi = ground.rows.phi(features)[:POINTS]
    lead = phi.T * features.weight(phi) * (ground.population.count / len(phi))
    mean = np.mean([law.mean for law in laws], axis=0)
    cov = np.mean([law.cov for law in laws], axis=0)
    whole = lead @ mean
    rest = (1 - LEFT_MEAN) * whole
    return LEFT_MEAN * whole, np.asarray(lead @ cov @ lead.T + np.multiply.outer(rest, rest))


def _leftover(ground: Ground, used: Partial, known: Partial) -> Leftover:
    rows = ground.rows
    assert used.pair is not None
    assert known.pair is not None
    sources = [Source(rows.phi(ground.features)[:POINTS], known.pair, *used.pair.mean)]
    if used.beyond is not None and known.beyond is not None:
        psi, pair = used.beyond
        sources.append(Source(rows.phi(psi)[:POINTS], known.beyond[1], *pair.mean))
    return leftover(sources)
