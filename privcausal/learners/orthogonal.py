"""tau(x) from the residual product, with what the nuisances' errors leave in it taken off.

One release of sum w (T - e)(Y - eta) phi is read with the joint law of both nuisances: the mean of
their errors' product is subtracted, its covariance joins the noise. All of it is post-processing.
"""

from __future__ import annotations

from collections.abc import Callable
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
from privcausal.learners.ground import Grams, Ground, gram_of
from privcausal.learners.interactions import OUTCOME as OUTCOME_INTERACTIONS
from privcausal.learners.interactions import SIZES as RESIDUAL_SIZES
from privcausal.learners.interactions import TREATMENT as INTERACTIONS
from privcausal.learners.interactions import interaction_needs, refine
from privcausal.learners.needs import Need
from privcausal.learners.nuisances import (
    LEAST_BELOW,
    RESIDUAL_CLIP,
    Partial,
    as_effect,
    by_fold,
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
from privcausal.spec.functions import Additive, Constant, Function
from privcausal.spec.request import Request
from privcausal.spec.schema import Interval
from privcausal.typing import Matrix, Vector
from privcausal.vault import (
    CentredProduct,
    Cross,
    Outcome,
    OutcomeResidual,
    SizeHistogram,
    Transform,
)

CLIPPED = 0.25
"""Of the bias that cutting could make at most, what is allowed for after scaling up again."""

BIAS, REST_BIAS = 0.3, 0.1
"""Prices of cutting the residual product, and what a first effect leaves of it: there a cut can
bias no more than tau - tau_1."""

LEAST_LEFT = 0.15
"""Of the product's mean square, what a first effect leaves at least."""

POINTS = 200
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
        Sum of w (T - e)(Y - eta) phi, shape (p,), and the noise sd of an entry.
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
    cross_sd: float
    cut: float
    spread: float
    clipping: float
    gram: Matrix
    gram_sd: float
    mean_weight: float
    sizes: cuts.Sizes


INTERACTIONS_WEIGHTS = (0.03, 0.07, 0.01)
"""Weights of the interactions' stages (treatment, outcome, sizes) within the nuisances' share."""


WINDOW, WINDOW_WEIGHT = "nuisance: outcome range", 0.02
"""The histogram of outcomes, and its weight within the nuisances' share."""


def _windowed(ground: Ground) -> Ground:
    """The ground with a narrower range of the outcome, where a histogram of it is bought."""
    session, outcome = ground.session, ground.outcome
    if not session.plan.has(WINDOW):
        return ground
    domain = session.schema[session.plan.request.formula.outcome]
    if not isinstance(domain, Interval):  # an undeclared column turned out to hold 0/1
        session.unused(WINDOW)
        return ground
    height = OutcomeResidual(Constant(outcome.lo), outcome)  # Y - lo, from 0 to the range
    release = session.release(
        WINDOW, SizeHistogram(height, windows.borders(outcome.lo, outcome.hi))
    )
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


def _is_binary(request: Request) -> bool:
    domain = request.schema.get(request.formula.outcome)
    return domain is not None and not isinstance(domain, Interval)


def nuisance_needs(request: Request, base: Base) -> list[Need]:
    """Stages of both nuisances, with their interactions where the base learns them."""
    needs = partial_needs(request.propensity is not None)
    if not base.released_weights and not _is_binary(request):
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
    return Learned(ground, grams, *_partials(ground, grams))


def _partials(ground: Ground, grams: Grams) -> tuple[tuple[Partial, ...], Remainder]:
    partials = partial(ground, grams)
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
    return Residuals(
        **_cross(ground, target, law, moments, BIAS)._asdict(),
        gram=gram,
        gram_sd=gram_sd,
        mean_weight=mean_weight,
        sizes=law,
    )


class _Release(NamedTuple):
    """What one release says: fields of `Residuals`."""

    cross: Vector
    cross_sd: float
    cut: float
    spread: float
    clipping: float


def _cross(ground: Ground, target: Transform, law: cuts.Sizes, stage: str, bias: float) -> _Release:
    """Moments of the target, as if nothing had been cut, at a `bias` per cut (`cuts.trade`)."""
    features = ground.effect_features
    noise = cross_noise(ground, stage, features.cut) / ground.population.count
    cut = cuts.trade(law, noise, bias=bias)
    release = ground.session.release(stage, Cross(features, target, cut, "residual product"))
    below = max(law.below(cut), LEAST_BELOW)
    return _Release(
        release.value / below,
        float(release.noise_sd[0]) / below,
        cut,
        max(law.rms(cut), 1e-3 * cut),
        CLIPPED * cuts.unseen_bias(law, cut),
    )


def once_more(
    ground: Ground,
    partials: tuple[Partial, ...],
    first: Residuals,
    effect: Effect,
    stage: str,
) -> Residuals:
    """The moments with those of a second release, of what a first effect leaves.

    (T - e) (Y - eta - (T - e) tau_1) has the weighted mean tau - tau_1, the smaller the better the
    first effect is: so is the range that it needs, and with it the noise. What is wrong with the
    Gram or with the cut then touches tau - tau_1 only. Moments of tau are these plus G beta_1;
    those of both releases are averaged by the precision of their noise, so that no budget is lost
    where the first effect explains nothing.
    """
    reach = 2 * ground.outcome.bound
    coef = effect.pieces[0].additive.coef
    centre = Additive(ground.effect_features, coef, 0.0, -reach, reach)
    soft = min(RESIDUAL_CLIP, ground.clip)
    target = by_fold(
        lambda p: CentredProduct(p.e_soft, p.eta, ground.outcome, soft, centre, reach), partials
    )
    law = _left(ground, first.sizes, partials[0], centre)
    rest = _cross(ground, target, law, stage, REST_BIAS)
    cross = rest.cross + first.gram @ coef
    variances = first.cross_sd**2, rest.cross_sd**2
    own = variances[1] / sum(variances) if sum(variances) > 0 else 0.0
    return replace(
        first,
        cross=own * first.cross + (1 - own) * cross,
        cross_sd=float(np.hypot(own * first.cross_sd, (1 - own) * rest.cross_sd)),
        spread=own * first.spread + (1 - own) * rest.spread,
        clipping=own * first.clipping + (1 - own) * rest.clipping,
    )


def _left(ground: Ground, law: cuts.Sizes, part: Partial, effect: Function) -> cuts.Sizes:
    """The histogram of sizes, moved to what is left where this effect is taken out.

    E[(T - e)^4 | x] = e (1 - e) ((1 - e)^3 + e^3) tells how much of the mean square goes.
    """
    e, tau = part.e_soft(ground.rows), effect(ground.rows)
    taken = float(np.mean(e * (1 - e) * ((1 - e) ** 3 + e**3) * tau**2))
    left = max(1 - taken / law.rms(float(law.edges[-1])) ** 2, LEAST_LEFT)
    return replace(law, edges=law.edges * float(np.sqrt(left)))


def residual_sizes(ground: Ground, target: Transform, stage: str, part: Partial) -> cuts.Sizes:
    """Histogram of a residual product's size, helped by what such products usually look like."""
    borders = cuts.edges(target.bound)
    release = ground.session.release(stage, SizeHistogram(target, borders))
    e = part.e_soft(ground.rows)[:POINTS]
    noise = float(release.noise_sd[0])
    return modelled(release.value, noise, borders, ground.population.count, e)


def orthogonal_effect(
    ground: Ground, partials: tuple[Partial, ...], found: Residuals, regress: Regression
) -> tuple[Effect, tuple[Partial, ...]]:
    """tau(x), and the nuisances read again with its constant part.

    The law of their errors depends on that part, which is learned with it: once more is enough.
    """
    effect = _effect(ground, found, partials, partials, regress)
    if partials[0].pair is None:  # a known propensity leaves nothing
        return effect, partials
    after = settled(ground, partials, effect)
    return _effect(ground, found, partials, after, regress), after


def _effect(
    ground: Ground,
    found: Residuals,
    used: tuple[Partial, ...],
    known: tuple[Partial, ...],
    regress: Regression,
) -> Effect:
    """Regression of the released moments, less what is left of the nuisances `used` in them.

    Of what the leftover may be around its mean, the constant part is noise to the regression, which
    shrinks the constant. Its shape would hide every slope of a small study, and is left to the
    band, with what cutting may have done to the constant.
    """
    bound, features = ground.outcome.bound, ground.effect_features
    noise_var = found.spread**2 / found.mean_weight
    moments = Moments(found.gram, found.cross, found.gram_sd, found.cross_sd, noise_var)
    spreads = (CONSTANT_SPREAD * bound) ** 2, found.cut**2 / 10
    base = ground.session.regression
    if not isinstance(base, Gam):
        return as_effect(ground, regress(moments, *spreads))
    mean, cov = np.zeros(features.size), np.zeros((features.size,) * 2)
    if used[0].pair is not None:
        mean, cov = _moments(ground, used, known)
    constant = np.zeros_like(cov)
    constant[0, 0] = cov[0, 0]
    moments = replace(moments, cross=found.cross - mean)
    posterior = regress(replace(moments, extra=constant), *spreads)
    cov[0, 0] += (found.clipping * found.gram[0, 0] / found.mean_weight) ** 2
    reference = base.reference(features, *spreads)
    around = spread(replace(moments, extra=cov), reference, posterior.mean)
    return as_effect(ground, replace(posterior, cov=around))


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
