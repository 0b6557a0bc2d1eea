"""A second release of the residual product's moments: of what a first effect leaves.

(T - e) (Y - eta - (T - e) tau_1) has the weighted mean tau - tau_1, the smaller the better the
first effect is: so is the range that it needs, and with it the noise. What is wrong with the Gram
or with the cut then touches tau - tau_1 only. What the first release left uncertain is also known
by now, and tells which features the second is worth most for: those are stretched, and products of
modifiers join where they can be told from noise. All that is chosen here follows from releases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from privcausal.inference import cut as cuts
from privcausal.inference.additive import Moments, of_nothing
from privcausal.inference.allotment import allotted
from privcausal.inference.effect import Effect, Piece
from privcausal.inference.gram import population_gram
from privcausal.inference.mixture import Law, mixture
from privcausal.learners.bases import Gam
from privcausal.learners.ground import Ground
from privcausal.learners.interactions import gains, regressed_out
from privcausal.learners.nuisances import RESIDUAL_CLIP, Partial, by_fold, cross_noise
from privcausal.learners.orthogonal import (
    Moved,
    Reading,
    Residuals,
    cut_of,
    left_moments,
    moments_of,
)
from privcausal.spec.features import FeatureMap
from privcausal.spec.functions import Additive, Function
from privcausal.spec.interactions import Interactions
from privcausal.spec.stretched import Stretched
from privcausal.typing import Vector
from privcausal.vault import CentredProduct

REST_BIAS = 0.1
"""Price of cutting what a first effect leaves: a cut can bias no more than tau - tau_1."""

LEAST_LEFT = 0.15
"""Of the product's mean square, what a first effect leaves at least."""

EVEN = 0.5
"""Share of the norm that stays as it is; the rest goes where most is to be learned."""

DOUBT = 0.02
"""Of what a band thinks of a coefficient's variance, what the second release allows for where the
first seems to know it."""

PRODUCT_SPREAD, PRODUCTS_SHARE = 0.2, 0.1
"""Sd of a product's coefficient before moments speak, in cuts of the residual product, and the
largest share of the norm that all products get."""

FALSE_ALARM = 1e-3
"""Chance that noise is taken for products of modifiers: what it adds to an effect is many times
the effect's own error."""

MOST_COLUMNS = 12
"""Products are taken of this many linear functions, those with the largest first slopes."""

NORM_QUANTILE = 0.6
"""The norm cut is this quantile of the stretched features over the synthetic population."""


@dataclass(frozen=True, eq=False)
class Products:
    """Moments of products of modifiers, of what a first effect leaves.

    Attributes
    ----------
    features : Stretched
        As they were released; the products come last.
    moments : Moved
        Of the products alone, each per its stretch: shape (K,).
    unit : float
        Scale of a coefficient before moments speak.
    """

    features: Stretched
    moments: Moved
    unit: float


def once_more(
    ground: Ground, partials: tuple[Partial, ...], first: Residuals, reading: Reading, stage: str
) -> tuple[Residuals, Products | None]:
    """The moments with those of a second release, and those of products where it has them.

    Moments of tau are those of tau - tau_1 plus G beta_1. Those of both releases are averaged entry
    by entry by the precision of their noise, so that no budget is lost where the first effect
    explains nothing.
    """
    reach = 2 * ground.outcome.bound
    coef = reading.effect.pieces[0].additive.coef
    centre = Additive(ground.effect_features, coef, 0.0, -reach, reach)
    soft = min(RESIDUAL_CLIP, ground.clip)
    target = by_fold(
        lambda p: CentredProduct(p.e_soft, p.eta, ground.outcome, soft, centre, reach), partials
    )
    law = _left(ground, first.sizes, partials[0], centre)
    cut = cut_of(ground, law, stage, REST_BIAS)
    features = _layout(ground, partials[0], first, reading, stage, cut)
    rest = moments_of(ground, features, target, law, cut, stage)
    cross, noise, p = rest.cross / features.stretch, rest.cross_sd / features.stretch, len(coef)
    again = rest._replace(cross=cross[:p] + first.gram @ coef, cross_sd=noise[:p])
    found = _averaged(first, again)
    if features.products is None:
        return found, None
    last = rest._replace(cross=cross[p:], cross_sd=noise[p:])
    return found, Products(features, last, first.cut)


def _averaged(first: Residuals, again: Moved) -> Residuals:
    """Both releases by the precision of each entry's noise."""
    total = first.cross_sd**2 + again.cross_sd**2
    own = np.divide(again.cross_sd**2, total, out=np.zeros_like(total), where=total > 0)
    share = float(own.mean())
    return replace(
        first,
        cross=own * first.cross + (1 - own) * again.cross,
        cross_sd=np.hypot(own * first.cross_sd, (1 - own) * again.cross_sd),
        spread=share * first.spread + (1 - share) * again.spread,
        clipping=share * first.clipping + (1 - share) * again.clipping,
    )


def _left(ground: Ground, law: cuts.Sizes, part: Partial, effect: Function) -> cuts.Sizes:
    """The histogram of sizes, moved to what is left where this effect is taken out.

    E[(T - e)^4 | x] = e (1 - e) ((1 - e)^3 + e^3) tells how much of the mean square goes.
    """
    e, tau = part.e_soft(ground.rows), effect(ground.rows)
    taken = float(np.mean(e * (1 - e) * ((1 - e) ** 3 + e**3) * tau**2))
    left = max(1 - taken / law.rms(float(law.edges[-1])) ** 2, LEAST_LEFT)
    return replace(law, edges=law.edges * float(np.sqrt(left)))


def _layout(
    ground: Ground, part: Partial, first: Residuals, reading: Reading, stage: str, cut: float
) -> Stretched:
    """Features of the second release: base "gam" stretches them, others have them as they are."""
    features = ground.effect_features
    base = ground.session.regression
    if not isinstance(base, Gam):
        return Stretched(features, None, np.ones(features.size), features.cut)
    phi, e = ground.rows.phi(features), part.e_soft(ground.rows)
    weight = features.weight(phi) * e * (1 - e)
    size = np.maximum(weight @ phi**2 / weight.sum(), 1e-6)  # mean squares
    band = reading.effect.pieces[0].cov.diagonal()
    variance = np.maximum(reading.cov.diagonal(), DOUBT * band) * size
    noise = cross_noise(ground, stage, cut) / (ground.population.count * first.mean_weight)
    psi = products(ground, weight, reading.effect) if base.interactions else None
    share = 0.0 if psi is None else _share_of(psi, variance, noise**2, PRODUCT_SPREAD * first.cut)
    own = (1 - EVEN) * allotted(variance, noise**2) + EVEN * size / size.sum()
    stretch = np.sqrt((1 - share) * own / size)
    if psi is not None and share > 0:
        # products have unit mean square
        return _with_cut(
            ground, features, psi, np.r_[stretch, np.full(psi.size, np.sqrt(share / psi.size))]
        )
    return _with_cut(ground, features, None, stretch)


def _share_of(psi: Interactions, variance: Vector, noise: float, spread: float) -> float:
    """The products' share of the norm; none where noise would hide most of what they may be."""
    own = np.full(psi.size, spread**2)
    each = min(float(allotted(np.r_[variance, own], noise)[-1]), PRODUCTS_SHARE / psi.size)
    return each * psi.size if each * spread**2 > noise else 0.0


def _with_cut(
    ground: Ground, features: FeatureMap, psi: Interactions | None, stretch: Vector
) -> Stretched:
    uncut = Stretched(features, psi, stretch, np.inf)
    values = ground.rows.phi(uncut)
    norms = np.linalg.norm(values, axis=1) * uncut.weight(values)
    return replace(uncut, cut=float(np.quantile(norms, NORM_QUANTILE)))


def products(ground: Ground, weight: Vector, effect: Effect) -> Interactions | None:
    """Products of pairs of linear functions, of mean square 1 beyond the effect's own functions.

    Both under the `weight` of synthetic rows, so that what is wrong with the additive part does not
    look like a product.
    """
    features = ground.effect_features
    phi = ground.rows.phi(features)
    scales = phi.std(axis=0) + 1e-12
    strength = np.abs(effect.pieces[0].additive.coef) * scales
    order = sorted(_own_functions(features), key=lambda j: -float(strength[j]))
    owner = features.variables
    pairs = tuple(
        (i, j)
        for i, j in combinations(sorted(order[:MOST_COLUMNS]), 2)
        if not set(owner[i]) & set(owner[j])
    )
    if not pairs:
        return None
    lift = np.zeros((features.size, len(pairs)))
    start = Interactions(features, None, pairs, (), scales, lift, np.ones(len(pairs)), np.inf)
    lift, left = regressed_out(start, ground.rows, weight)
    gain = gains(1.0, np.sqrt(weight @ left**2 / weight.sum()))
    return replace(start, lift=lift, gain=gain) if gain.any() else None


def _own_functions(features: FeatureMap) -> list[int]:
    """Linear functions, but for the last level of each factor: what it says, the others say."""
    found: list[int] = []
    for number in np.flatnonzero(features.order == 1).tolist():
        column = features.design.columns[features.column[number]]
        last = number + 1 == features.size or features.group[number + 1] != features.group[number]
        alone = features.group.count(features.group[number]) == 1
        if column.kind != "indicator" or alone or not last:
            found.append(number)
    return found


def with_products(
    ground: Ground, found: Residuals, more: Products | None, e: Vector, reading: Reading
) -> Effect:
    """The effect, and products of modifiers if the moments leave no doubt of them.

    Where there are none, a marginal likelihood ratio has the mean 1, so that it is above
    1 / FALSE_ALARM with no more than that chance (Markov's inequality).

    `e` are propensities of the synthetic rows.
    """
    effect = reading.effect
    if more is None:
        return effect
    psi, own = more.features.products, more.moments
    assert psi is not None
    p, rows = more.features.features.size, ground.rows
    whole = population_gram(more.features, rows, ground.population.count, e * (1 - e))
    mean, cov = (v[..., p:] for v in left_moments(ground, reading.left, more.features))
    stretch = more.features.stretch[p:]
    gram = whole[p:, p:] / np.outer(stretch, stretch)
    moments = Moments(
        gram,
        own.cross - mean / stretch,
        0.0,
        own.cross_sd,
        own.spread**2 / found.mean_weight,
        cov[p:] / np.outer(stretch, stretch),
    )
    law = Law(1.0, np.full(psi.size, more.unit), np.zeros(psi.size, np.int64))
    fitted = mixture(moments, law)
    # nor where it is no number
    if not fitted.evidence - of_nothing(moments) >= np.log(1 / FALSE_ALARM):
        return effect
    piece = Piece(Additive(psi, fitted.mean), fitted.cov)
    return replace(effect, pieces=(*effect.pieces, piece))
