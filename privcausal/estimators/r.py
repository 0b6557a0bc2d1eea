"""R-learner (Nie and Wager 2021), which regresses residuals on residuals, and DR-learner.

Moments of the residual product are released twice. The second release subtracts the first effect
tau_1: (T - e) (Y - eta - (T - e) tau_1) has the weighted mean tau - tau_1. A better first effect
gives the product a smaller range, and the release needs less noise. Errors from the Gram or from
clipping then affect tau - tau_1 only.

The first release also shows which coefficients are uncertain. Their features are stretched in the
second release. Products of modifiers are added if they can be distinguished from noise. All choices
in this module use released numbers only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import ClassVar

import numpy as np

from privcausal.errors import CapabilityError, named
from privcausal.estimators import bases, budget, interactions, nuisances, orthogonal
from privcausal.estimators.base import CateLearner, EffectFit, Recipe
from privcausal.estimators.boosting import TWO_STAGES, dr_learner, r_learner
from privcausal.estimators.budget import Step
from privcausal.estimators.first_stages import FitState
from privcausal.estimators.orthogonal import FittedEffect, Residuals
from privcausal.features.basis import FeatureMap, Interactions, RescaledFeatures
from privcausal.features.functions import Additive
from privcausal.inference import cuts, regression
from privcausal.inference.effects import Effect, Piece
from privcausal.inference.population import population_gram
from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import Moments, ScaleMixturePrior
from privcausal.request.plan import StageKey
from privcausal.typing import Vector
from privcausal.vault import Aipw, ResidualProduct

REMAINING = StageKey("effect", "remaining moments")


def learn_r(state: FitState, regress: orthogonal.EffectRegression) -> EffectFit:
    """tau(x) by the steps of vignettes/explanation/r-learner.md; comments give their numbers.

    Ranges, marginals and a basis exist already (steps 1 and 2: `first_stages.prepare`). The
    averages come from doubly robust scores with this effect and these nuisances (steps 12 and 13:
    `CateLearner.run`).
    """
    fit = orthogonal.fit_nuisances(state)  # 3 to 7: Gram matrix, propensity, mean outcome
    state, partials = fit.state, fit.partials
    residuals = orthogonal.residual_moments(fit)  # 8: clipped moments of the residual product
    # 9, 10: bias removed, regressed
    first = orthogonal.read_effect(state, residuals, partials, partials, regress)
    residuals, products = second_release(state, partials, residuals, first)  # 11: remaining effect
    updated = nuisances.updated_for_effect(state, partials, first.effect)
    second = orthogonal.read_effect(state, residuals, partials, updated, regress)
    effect = with_products(state, residuals, products, partials[0].e_soft(state.rows), second)
    return EffectFit.of(fit, updated, effect)


ProductMoments = tuple[RescaledFeatures, orthogonal.ReleasedMoments]
"""Moments of products of modifiers, after subtraction of a first effect.

The features of the release have the products last. The moments belong to the products alone, each
divided by its stretch, shape (K,).
"""


def second_release(
    state: FitState, partials: nuisances.Folds, first: Residuals, reading: FittedEffect
) -> tuple[Residuals, ProductMoments | None]:
    """Average the moments with a second release; also return moments of products, if any.

    Moments of tau are the moments of tau - tau_1 plus G beta_1. The two releases are averaged entry
    by entry, weighted by the precision of their noise. No budget is lost, even if the first effect
    is uninformative.
    """
    reach = 2 * state.outcome.bound
    coef = reading.effect.pieces[0].additive.coef
    centre = Additive(state.effect_features, coef, 0.0, -reach, reach)
    soft = state.soft_clip
    remaining = nuisances.by_fold(
        lambda p: ResidualProduct(p.e_soft, p.eta, state.outcome, soft, centre, reach), partials
    )
    target = state.weigh(remaining)
    law = sizes_left(first.sizes, partials[0].e_soft(state.rows), centre(state.rows))
    cut = orthogonal.cut_of(state, law, REMAINING, PRIORS.cut_bias_rest)
    features = _layout(state, partials[0], first, reading, cut)
    rest = orthogonal.cut_moments(state, features, target, law, cut, REMAINING)
    cross, noise, p = rest.cross / features.stretch, rest.cross_sd / features.stretch, len(coef)
    # the mean of both releases
    again, again_sd = cross[:p] + first.gram @ coef, noise[:p]
    total = first.cross_sd**2 + again_sd**2
    weight = np.divide(again_sd**2, total, out=np.zeros_like(total), where=total > 0)
    share = float(weight.mean())
    residuals = replace(
        first,
        cross=weight * first.cross + (1 - weight) * again,
        cross_sd=np.hypot(weight * first.cross_sd, (1 - weight) * again_sd),
        spread=share * first.spread + (1 - share) * rest.spread,
        clipping=share * first.clipping + (1 - share) * rest.clipping,
    )
    if features.products is None:
        return residuals, None
    return residuals, (features, rest._replace(cross=cross[p:], cross_sd=noise[p:]))


def sizes_left(law: cuts.AbsHistogram, e: Vector, tau: Vector) -> cuts.AbsHistogram:
    """The histogram of sizes, rescaled to the sizes after the effect tau is subtracted.

    E[(T - e)^4 | x] = e (1 - e) ((1 - e)^3 + e^3) gives the reduction of the mean square.
    """
    taken = float(np.mean(e * (1 - e) * ((1 - e) ** 3 + e**3) * tau**2))
    left = max(1 - taken / law.rms(float(law.edges[-1])) ** 2, PRIORS.least_left)
    return replace(law, edges=law.edges * float(np.sqrt(left)))


def _layout(
    state: FitState, part: nuisances.FoldFit, first: Residuals, reading: FittedEffect, cut: float
) -> RescaledFeatures:
    """Features of the second release: base "gam" stretches its features, other bases do not."""
    features = state.effect_features
    base = state.regression
    if not isinstance(base, bases.Gam):
        return RescaledFeatures(features, None, np.ones(features.size), features.cut)
    phi, e = state.rows.phi(features), part.e_soft(state.rows)
    weight = features.weight(phi) * e * (1 - e)
    size = np.maximum(weight @ phi**2 / weight.sum(), 1e-6)  # mean squares
    band = reading.effect.pieces[0].cov.diagonal()
    variance = np.maximum(reading.cov.diagonal(), PRIORS.doubt * band) * size
    noise = nuisances.cross_noise(state, REMAINING, cut)
    noise /= state.count * first.mean_weight
    psi = modifier_products(state, weight, reading.effect) if base.interactions else None
    share = 0.0  # share of the norm; zero for products that noise would mostly hide
    if psi is not None:
        spread = (PRIORS.product_sd * first.cut) ** 2
        filled = water_filling(np.r_[variance, np.full(psi.size, spread)], noise**2)
        each = min(float(filled[-1]), PRIORS.products_norm / psi.size)
        share = each * psi.size if each * spread > noise**2 else 0.0
    even = PRIORS.even_norm
    squares = (1 - even) * water_filling(variance, noise**2) + even * size / size.sum()
    stretch = np.sqrt((1 - share) * squares / size)
    products = psi if share > 0 else None
    if products is not None:  # of unit mean square
        stretch = np.r_[stretch, np.full(products.size, np.sqrt(share / products.size))]
    uncut = RescaledFeatures(features, products, stretch, np.inf)
    values = state.rows.phi(uncut)
    norms = np.linalg.norm(values, axis=1) * uncut.weight(values)
    return replace(uncut, cut=float(np.quantile(norms, PRIORS.rescaled_norm_quantile)))


def modifier_products(state: FitState, weight: Vector, effect: Effect) -> Interactions | None:
    """Products of pairs of linear functions, orthogonal to the effect's own, of mean square 1.

    Both properties hold under the `weight` of synthetic rows. Errors of the additive part therefore
    do not look like a product.
    """
    features = state.effect_features
    phi = state.rows.phi(features)
    scales = phi.std(axis=0) + 1e-12
    strength = np.abs(effect.pieces[0].additive.coef) * scales
    # linear functions without the last level of each factor, which the other levels determine
    linear, group = [], features.group
    for j in np.flatnonzero(features.order == 1).tolist():
        last = j + 1 == features.size or group[j + 1] != group[j]
        indicator = features.design.columns[features.column[j]].kind == "indicator"
        if not (indicator and last) or group.count(group[j]) == 1:
            linear.append(j)
    order = sorted(linear, key=lambda j: -float(strength[j]))
    owner = features.variables
    pairs = tuple(
        (i, j)
        for i, j in combinations(sorted(order[: PRIORS.product_columns]), 2)
        if not set(owner[i]) & set(owner[j])
    )
    if not pairs:
        return None
    lift = np.zeros((features.size, len(pairs)))
    start = Interactions(features, None, pairs, (), scales, lift, np.ones(len(pairs)), np.inf)
    lift, left = interactions.regressed_out(start, state.rows, weight)
    gain = interactions.gains(1.0, np.sqrt(weight @ left**2 / weight.sum()))
    return replace(start, lift=lift, gain=gain) if gain.any() else None


def with_products(
    state: FitState,
    residuals: Residuals,
    products: ProductMoments | None,
    e: Vector,
    reading: FittedEffect,
) -> Effect:
    """The effect, with products of modifiers if the moments clearly support products.

    Under the null hypothesis of no products, a marginal likelihood ratio has mean 1. It then
    exceeds 1 / products_false_alarm with probability at most products_false_alarm (Markov's
    inequality). `e` holds propensities of the synthetic rows.
    """
    effect = reading.effect
    if products is None:
        return effect
    features, released = products
    psi, p = features.products, features.features.size
    assert psi is not None
    whole = population_gram(features, state.rows, state.count, e * (1 - e))
    bias = orthogonal.product_bias_moments(state, reading.biases, features)
    mean, cov = (v[..., p:] for v in bias)
    stretch = features.stretch[p:]
    gram = whole[p:, p:] / np.outer(stretch, stretch)
    moments = Moments(
        gram=gram,
        cross=released.cross - mean / stretch,
        gram_sd=0.0,
        cross_sd=released.cross_sd,
        noise_var=released.spread**2 / residuals.mean_weight,
        extra=cov[p:] / np.outer(stretch, stretch),
    )
    law = ScaleMixturePrior(1.0, np.full(psi.size, residuals.cut), np.zeros(psi.size, np.int64))
    fitted = regression.mixture(moments, law)
    # The negation also covers evidence that is not a number.
    gained = fitted.evidence - regression.of_nothing(moments)
    if not gained >= np.log(1 / PRIORS.products_false_alarm):
        return effect
    piece = Piece(Additive(psi, fitted.mean), fitted.cov)
    return replace(effect, pieces=(*effect.pieces, piece))


HIDING = 1e9
"""Relative noise that hides everything; larger values make no difference."""


def water_filling(variance: Vector, noise: float) -> Vector:
    """Squared sizes u^2 of unit sum that minimize sum V S / (S + u^2 V), shape (p,).

    A coefficient of prior variance V that is measured with noise of variance S / u^2 has the
    posterior variance V S / (S + u^2 V). The minimum has u^2 = (L - S / V)+, with the level L at
    which the sizes sum to one (water-filling: Cover and Thomas 2006, Section 9.4).

    Parameters
    ----------
    variance : Vector
        V, shape (p,), each positive.
    noise : float
        S, the noise variance of an entry that has all of the norm.
    """
    price = noise / variance
    # Floats could not distinguish 1 + price from price.
    price = price - max(float(price.min()) - HIDING, 0.0)
    order = np.sort(price)
    levels = (1 + np.cumsum(order)) / np.arange(1, len(order) + 1)
    return np.asarray(np.maximum(levels[int(np.flatnonzero(levels > order)[-1])] - price, 0.0))


# -- the learner ------------------------------------------------------------------------------


@named
@dataclass(frozen=True)
class R(CateLearner):
    """tau(x) minimizing sum [(Y - eta) - (T - e) tau(x)]^2; never divides by the propensity."""

    name: ClassVar[str] = "r"
    title: ClassVar[str] = "R-learner"
    steps: ClassVar[tuple[Step, ...]] = (
        *orthogonal.WEIGHTED_STEPS,
        Step(orthogonal.RESIDUAL_SIZES, 0.02),
        Step(orthogonal.RESIDUALS, 0.17),
        Step(REMAINING, 0.31),
        Step(orthogonal.WEIGHTS, 0.08, (budget.weighs_gram,)),
    )

    def learn(self, state: FitState) -> EffectFit:
        return learn_r(state, state.regression.conditional)

    def boosted(self) -> Recipe:
        return Recipe(TWO_STAGES, r_learner)


FORM_NOTE = (
    "The effect is modeled as {form}. Among the forms {all}, it has the highest marginal "
    "likelihood given the released moments. Choosing it used no budget."
)


@named
@dataclass(frozen=True)
class Auto(R):
    """Learner "r" with a chosen form of the effect: constant, linear, or smooth.

    A smooth effect has one prior variance for all terms, one per order of roughness, or one per
    term and order.

    All forms are fitted to the moments that learner "r" releases, so their marginal likelihoods are
    comparable. Marginal likelihoods of other learners are not comparable, because their moments
    differ. The choice needs no further release and no further budget.
    """

    name: ClassVar[str] = "auto"
    title: ClassVar[str] = "R-learner (auto)"

    def accepted(self, base: bases.AnyBase) -> bases.PrivateBase:
        if not isinstance(base, bases.Gam):
            raise CapabilityError(
                "Learner 'auto' compares forms of base 'gam'. Use base='gam', or learner='r'."
            )
        return base

    def learn(self, state: FitState) -> EffectFit:
        base = state.regression
        assert isinstance(base, bases.Gam)  # by `accepted`
        note = ""

        def choose(
            moments: Moments, features: FeatureMap, intercept: float, size: float
        ) -> regression.Posterior:
            nonlocal note
            forms = base.forms(moments, features, intercept, size)
            best = max(forms, key=lambda form: forms[form].evidence)
            note = FORM_NOTE.format(all=", ".join(forms), form=best)
            return forms[best]

        return replace(learn_r(state, choose), notes=(note,))


# -- the DR-learner (Kennedy 2020): regression of the doubly robust score ------------------------

DR_MOMENTS = StageKey("effect", "score moments")


@named
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
    steps: ClassVar[tuple[Step, ...]] = (
        *orthogonal.WEIGHTED_STEPS,
        Step(orthogonal.RESIDUAL_SIZES, 0.01),
        Step(orthogonal.RESIDUALS, 0.24),
        Step(orthogonal.WEIGHTS, 0.04, (budget.weighs_gram,)),
        Step(nuisances.SCORE_SIZES, 0.01),
        Step(DR_MOMENTS, 0.24),
    )

    def learn(self, state: FitState) -> EffectFit:
        fit = orthogonal.fit_nuisances(state)
        state, partials = fit.state, fit.partials
        # a first effect, from the residual product
        residuals = orthogonal.residual_moments(fit)
        regress = state.regression.conditional
        first, partials = orthogonal.orthogonal_effect(state, partials, residuals, regress)
        # psi - tau_1(x), regressed on the effect's features
        reach, features = 2 * state.outcome.bound, state.effect_features
        triples = tuple(nuisances.nuisance_of(p, first, state.outcome) for p in partials)
        target = state.weigh(
            nuisances.by_fold(lambda n: Aipw(n, state.outcome, state.clip, first, reach), triples)
        )
        sizes = nuisances.read_sizes(state, nuisances.sizes_of(target), nuisances.SCORE_SIZES)
        gram = fit.grams.whole.sub(state.effect_index)
        cut = orthogonal.cut_of(state, sizes, DR_MOMENTS, PRIORS.cut_bias)
        scores = orthogonal.cut_moments(
            state, features, target, sizes, cut, DR_MOMENTS, what="score minus first pass"
        )
        moments = Moments(gram.value, scores.cross, gram.sd, scores.cross_sd, scores.spread**2)
        # a wide threshold of the score does not show a large effect, so the prior slopes of the
        # remaining effect are no larger than those of the effect itself
        spreads = orthogonal.effect_spreads(state, min(cut / 2, residuals.cut))
        fitted = regress(moments, features, *spreads)
        # tau_1 added back: it is clipped to [-reach, reach] where it centers the score; additive
        # functions stay inside
        piece = first.pieces[0]
        total = Additive(features, np.asarray(piece.additive.coef + fitted.mean))
        if isinstance(state.regression, bases.Gam):  # the second stage estimates its error
            cov = regression.second_moment(moments, piece.cov, fitted.mean)
        else:
            error = moments.noise_var * moments.gram + moments.cross_sd**2 * np.eye(features.size)
            blind = np.eye(features.size) - fitted.cov @ np.linalg.solve(error, moments.gram).T
            cov = fitted.cov + blind @ piece.cov @ blind.T
        effect = Effect((Piece(total, np.asarray(cov)),), reach)
        return EffectFit.of(fit, partials, effect, first)

    def boosted(self) -> Recipe:
        return Recipe(TWO_STAGES, dr_learner)
