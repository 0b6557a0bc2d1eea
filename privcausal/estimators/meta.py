"""Meta-learners of tau(x) on noisy moments: R, DR, S, T and X.

One release of sum w (T - e)(Y - eta) phi is combined with the joint distribution of both nuisances.
Part of the mean of the product of their errors is subtracted, and part of its covariance is added
to the noise. The bands include everything that remains. The correction is post-processing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.linalg import block_diag

from privcausal import vault
from privcausal.errors import CapabilityError, named
from privcausal.estimators import bases, boosting, budget
from privcausal.estimators import nuisances as nu
from privcausal.estimators.base import CateLearner, EffectFit, Recipe
from privcausal.estimators.bases import Base, Gam
from privcausal.estimators.boosting import TWO_STAGES, dr_learner, r_learner
from privcausal.estimators.budget import Step
from privcausal.estimators.first_stages import FitState
from privcausal.estimators.nuisances import WEIGHTED_STEPS, fit_nuisances, gains, regressed_out
from privcausal.features.functions import (
    Additive,
    Constant,
    FeatureMap,
    Features,
    Function,
    Interactions,
    Pointwise,
    RescaledFeatures,
)
from privcausal.inference import cuts, regression
from privcausal.inference.effects import Effect, Piece
from privcausal.inference.population import amplitude, population_gram
from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import Moments, Posterior, ScaleMixturePrior, leftover
from privcausal.request.request import StageKey
from privcausal.typing import Matrix, Vector
from privcausal.vault import Aipw, ResidualProduct

# -- the effect from moments of the residual product --------------------------------------------

RESIDUAL_SIZES = StageKey("effect", "residual sizes")
RESIDUALS, WEIGHTS = StageKey("effect", "residual moments"), StageKey("effect", "weights")

LEAST_RMS = 1e-3
"""Minimum root mean square, as a share of the threshold, to avoid division by a zero variance."""

ERROR_POINTS = 128
"""Number of points of the synthetic population for nuisance errors.

Their covariances are over all pairs of points, so the number is kept small.
"""


EffectRegression = Callable[[Moments, FeatureMap, float, float], regression.Posterior]
"""From moments, features and prior variances of the intercept and the slopes to the effect."""


class Residuals(NamedTuple):
    """Released moments of the residual product, corrected for clipping."""

    # `cross`, `cross_sd`: sum of w (T - e)(Y - eta) phi, shape (p,), and the noise sd of each entry
    cross: Vector
    cross_sd: Vector
    # Clipping threshold, and the root mean square below this threshold
    cut: float
    spread: float
    clipping: float  # Standard deviation allowed for the effect of clipping on the mean
    # `gram`, `gram_sd`: sum of w (T - e)^2 phi phi', shape (p, p), computed or released, and its
    # noise sd
    gram: Matrix
    gram_sd: float
    mean_weight: float  # Mean of (T - e)^2
    sizes: cuts.AbsHistogram  # Histogram of the product's size


EffectStages = tuple[StageKey, StageKey, StageKey | None]
"""Stages of the sizes, the moments and, if they may be released, the weights."""


def residual_moments(
    state: FitState,
    partials: nu.Folds,
    target: vault.Transform | None = None,
    stages: EffectStages = (RESIDUAL_SIZES, RESIDUALS, WEIGHTS),
    *,
    by_arm: bool = False,
) -> Residuals:
    """Release the sizes of the residual product (or of another target), then its moments."""
    size_stage, moment_stage, weight_stage = stages
    if target is None:
        limits = state.outcome, state.soft_clip
        target = nu.by_fold(ResidualProduct(p.e_soft, p.eta, *limits) for p in partials)
    target = state.weigh(target)
    sizes = residual_sizes(state, target, size_stage, partials[0])
    gram, gram_sd, mean_weight = nu.weights_gram(state, partials, weight_stage)
    cut, features = cut_of(state, sizes, moment_stage, PRIORS.cut_bias), state.effect_features
    moments = cut_moments(state, features, target, sizes, cut, moment_stage, by_arm=by_arm)
    return Residuals(*moments, gram=gram, gram_sd=gram_sd, mean_weight=mean_weight, sizes=sizes)


class ReleasedMoments(NamedTuple):
    """Results of one release, corrected for clipping: fields of `Residuals`."""

    cross: Vector
    cross_sd: Vector
    cut: float
    spread: float
    clipping: float


def cut_of(state: FitState, law: cuts.AbsHistogram, stage: StageKey, bias: float) -> float:
    """Clipping threshold of a stage's target, at this `bias` (`cuts.threshold_for_effect`)."""
    noise = nu.cross_noise(state, stage, state.effect_features.cut) / state.population.count
    return cuts.threshold_for_effect(law, noise, bias=bias)


def cut_moments(
    state: FitState,
    features: Features,
    target: vault.Transform,
    law: cuts.AbsHistogram,
    cut: float,
    stage: StageKey,
    *,
    what: str = "residual product",
    by_arm: bool = False,
) -> ReleasedMoments:
    """Release the moments of a clipped target, scaled to the moments of the unclipped target.

    `spread` and `clipping` are relative to the sum of the weights in [0, 1], if there are weights.
    """
    query = vault.Cross(features, target, cut, what, by_arm=by_arm)
    release = state.release(stage, query)
    below = max(law.below(cut), PRIORS.least_below)
    rows = state.population.count / state.count
    return ReleasedMoments(
        cross=release.value / below,
        cross_sd=release.noise_sd / below,
        cut=cut,
        spread=max(law.rms(cut), LEAST_RMS * cut) * float(np.sqrt(rows)),
        clipping=PRIORS.cut_allowance * cuts.unseen_bias(law, cut) * rows,
    )


def residual_sizes(
    state: FitState, target: vault.Transform, stage: StageKey, part: nu.FoldFit
) -> cuts.AbsHistogram:
    """Histogram of a residual product's size, denoised with the usual shape of such products."""
    borders = cuts.score_edges(target.bound, cuts.SHAPE_OCTAVES)
    release = state.release(stage, vault.SizeHistogram(target, borders, "|product|"))
    e = part.e_soft(state.rows)[:ERROR_POINTS]
    noise = float(release.noise_sd[0])
    return cuts.denoise_normal(release.value, noise, borders, state.population.count, e)


class FittedEffect(NamedTuple):
    """The effect as fitted from moments."""

    effect: Effect  # The effect, with the covariance of its band
    # Covariance of the coefficients under the effect's own prior and noise, shape (p, p)
    cov: Matrix
    # Mean and covariance of the bias from nuisance errors in the moments, by fold
    biases: list[tuple[Vector, Matrix]]


def orthogonal_effect(
    state: FitState, partials: nu.Folds, residuals: Residuals, regress: EffectRegression
) -> tuple[Effect, nu.Folds]:
    """tau(x), and the nuisances refitted with its constant part.

    The distribution of their errors depends on the mean effect. A second refit would change little.
    """
    effect = read_effect(state, residuals, partials, partials, regress).effect
    if partials[0].pair is None:  # a known propensity adds no bias
        return effect, partials
    updated = nu.updated_for_effect(state, partials, effect)
    return read_effect(state, residuals, partials, updated, regress).effect, updated


def effect_spreads(state: FitState, slopes: float) -> tuple[float, float]:
    """Prior variances of the mean effect, and of its terms, with total scale `slopes`."""
    return (PRIORS.constant_sd * state.outcome.bound) ** 2, slopes**2 / PRIORS.effect_terms


def read_effect(
    state: FitState,
    residuals: Residuals,
    used: nu.Folds,
    updated: nu.Folds,
    regress: EffectRegression,
) -> FittedEffect:
    """Regress the released moments minus the bias from the nuisances `used`.

    The band includes the covariance of the remaining bias. It also includes the possible effect of
    clipping on the constant. Its prior is of plausible effects. Averages take effects of the usual
    size, as in `nuisances.residual_effect`.
    """
    features, mean_weight = state.effect_features, residuals.mean_weight
    moments = Moments(
        residuals.gram,
        residuals.cross,
        residuals.gram_sd,
        residuals.cross_sd,
        residuals.spread**2 / mean_weight,
    )
    spreads = effect_spreads(state, residuals.cut)
    base = state.regression
    if not isinstance(base, Gam):
        posterior = regress(moments, features, *spreads)
        return FittedEffect(nu.as_effect(state, posterior), posterior.cov, [])
    # distributions of d_e d_b by fold; none for a known e
    biases, phi = list[tuple[Vector, Matrix]](), state.rows.phi(state.features)[:ERROR_POINTS]
    for part, after in zip(used, updated, strict=True):
        if part.pair is None or after.pair is None:
            continue
        sources = [(phi, after.pair, *part.pair.mean)]
        if part.beyond is not None and after.beyond is not None:
            psi, pair = part.beyond
            columns = state.rows.phi(psi)[:ERROR_POINTS]
            sources.append((columns, after.beyond[1], *pair.mean))
        biases.append(leftover(sources))
    mean, cov = product_bias_moments(state, biases, features)
    moments = replace(moments, cross=residuals.cross - mean)
    posterior = regress(moments, features, *spreads)
    cov[0, 0] += (residuals.clipping * residuals.gram[0, 0] / mean_weight) ** 2
    plausible = PRIORS.plausible * residuals.cut / amplitude(len(features.blocks))
    usual = PRIORS.effect_sd * float(np.sqrt(state.variance / nu.slope_variance(features)))
    moments, rough = replace(moments, extra=cov), np.maximum(features.order - 1, 0)
    bands = []
    for unit in (plausible, usual):
        # prior covariance of effects whose linear coefficients have the sd `unit`
        variance = (unit * PRIORS.plausible_decay**rough) ** 2
        variance[0] = max(spreads[0], unit**2)
        bands.append(regression.second_moment(moments, np.diag(variance), posterior.mean))
    effect = nu.as_effect(state, replace(posterior, cov=bands[0]))
    pieces = (replace(effect.pieces[0], usual=bands[1]),)
    return FittedEffect(replace(effect, pieces=pieces), posterior.cov, biases)


def product_bias_moments(
    state: FitState, laws: Sequence[tuple[Vector, Matrix]], features: Features
) -> tuple[Vector, Matrix]:
    """The subtracted part of sum w phi d_e d_b, and the covariance around it; zero without `laws`.

    In the worst case the folds' errors are equal. The covariance of their mean is therefore at most
    the mean of their covariances.
    """
    if not laws:
        return np.zeros(features.size), np.zeros((features.size, features.size))
    phi = state.rows.phi(features)[:ERROR_POINTS]
    lead = phi.T * features.weight(phi) * (state.count / len(phi))
    mean = np.mean([mean for mean, _ in laws], axis=0)
    cov = np.mean([cov for _, cov in laws], axis=0)
    whole = lead @ mean
    rest = (1 - PRIORS.product_bias_mean) * whole
    around = np.asarray(lead @ cov @ lead.T + np.multiply.outer(rest, rest))
    return PRIORS.product_bias_mean * whole, around


# -- the R-learner (Nie and Wager 2021): residuals on residuals -----------------------------------

# Moments of the residual product are released twice. The second release subtracts the first effect
# tau_1: (T - e) (Y - eta - (T - e) tau_1) has the weighted mean tau - tau_1. A better first effect
# gives the product a smaller range, and the release needs less noise. Errors from the Gram or from
# clipping then affect tau - tau_1 only.
#
# The first release also shows which coefficients are uncertain. Their features are stretched in the
# second release. Products of modifiers are added if they can be distinguished from noise. All
# choices in this module use released numbers only.

REMAINING = StageKey("effect", "remaining moments")


def learn_r(state: FitState, regress: EffectRegression) -> EffectFit:
    """tau(x) by the steps of vignettes/explanation/r-learner-steps.md, with their numbers.

    Ranges, marginals and a basis exist already (steps 1 and 2: `first_stages.prepare`). The
    averages come from doubly robust scores with this effect and these nuisances (steps 12 and 13:
    `CateLearner.run`).
    """
    # 3 to 7: Gram matrix, propensity, mean outcome
    state, partials, doubt = fit_nuisances(state)
    # 8: clipped moments of the residual product
    residuals = residual_moments(state, partials)
    # 9, 10: bias removed, regressed
    first = read_effect(state, residuals, partials, partials, regress)
    # 11: remaining effect, and the regression again
    residuals, products = second_release(state, partials, residuals, first)
    updated = nu.updated_for_effect(state, partials, first.effect)
    second = read_effect(state, residuals, partials, updated, regress)
    effect = second.effect
    if products is None:
        return EffectFit.of(state, doubt, updated, effect)
    # Products of modifiers join the effect if the moments clearly support them. Without any, a
    # marginal likelihood ratio has mean 1, so it exceeds 1 / products_false_alarm with probability
    # at most products_false_alarm (Markov's inequality).
    (features, released), e = products, partials[0].e_soft(state.rows)
    psi, p = features.products, features.features.size
    assert psi is not None
    whole = population_gram(features, state.rows, state.count, e * (1 - e))
    bias = product_bias_moments(state, second.biases, features)
    mean, cov = (v[..., p:] for v in bias)
    stretch = features.stretch[p:]
    scale = np.outer(stretch, stretch)
    moments = Moments(
        gram=whole[p:, p:] / scale,
        cross=released.cross - mean / stretch,
        gram_sd=0.0,
        cross_sd=released.cross_sd,
        noise_var=released.spread**2 / residuals.mean_weight,
        extra=cov[p:] / scale,
    )
    law = ScaleMixturePrior(1.0, np.full(psi.size, residuals.cut), np.zeros(psi.size, np.int64))
    fitted = regression.mixture(moments, law)
    # log marginal likelihood of moments whose coefficients are all zero
    error = moments.noise_var * regression.positive_part(moments.gram)
    error = error + regression.noise_cov(moments, np.zeros(psi.size))
    lower = regression.factored(error)
    cross = moments.cross
    nothing = -float(np.log(lower.diagonal()).sum())
    nothing -= 0.5 * float(cross @ regression.solve(lower, cross))
    # Evidence that is not a number adds nothing.
    if fitted.evidence - nothing >= np.log(1 / PRIORS.products_false_alarm):
        piece = Piece(Additive(psi, fitted.mean), fitted.cov)
        effect = replace(effect, pieces=(*effect.pieces, piece))
    return EffectFit.of(state, doubt, updated, effect)


ProductMoments = tuple[RescaledFeatures, ReleasedMoments]
"""Moments of products of modifiers, after subtraction of a first effect.

The features of the release have the products last. The moments belong to the products alone, each
divided by its stretch, shape (K,).
"""


def second_release(
    state: FitState, partials: nu.Folds, first: Residuals, reading: FittedEffect
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
    remaining = nu.by_fold(
        ResidualProduct(p.e_soft, p.eta, state.outcome, soft, centre, reach) for p in partials
    )
    target = state.weigh(remaining)
    law = sizes_left(first.sizes, partials[0].e_soft(state.rows), centre(state.rows))
    cut = cut_of(state, law, REMAINING, PRIORS.cut_bias_rest)
    features = _layout(state, partials[0], first, reading, cut)
    rest = cut_moments(state, features, target, law, cut, REMAINING)
    cross, noise, p = rest.cross / features.stretch, rest.cross_sd / features.stretch, len(coef)
    # the mean of both releases
    again, again_sd = cross[:p] + first.gram @ coef, noise[:p]
    total = first.cross_sd**2 + again_sd**2
    weight = np.divide(again_sd**2, total, out=np.zeros_like(total), where=total > 0)
    share = float(weight.mean())
    residuals = first._replace(
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
    state: FitState, part: nu.FoldFit, first: Residuals, reading: FittedEffect, cut: float
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
    noise = nu.cross_noise(state, REMAINING, cut)
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
    lift, left = regressed_out(start, state.rows, weight)
    gain = gains(1.0, np.sqrt(weight @ left**2 / weight.sum()))
    return replace(start, lift=lift, gain=gain) if gain.any() else None


HIDING = 1e9
"""Relative noise that hides everything; larger values make no difference."""


def water_filling(variance: Vector, noise: float) -> Vector:
    """Squared sizes u^2 of unit sum that minimize sum V S / (S + u^2 V), shape (p,).

    A coefficient of prior variance V that is measured with noise of variance S / u^2 has the
    posterior variance V S / (S + u^2 V). The minimum has u^2 = (L - S / V)+, with the level L at
    which the sizes sum to one (water-filling: Cover and Thomas 2006, Section 9.4).

    Each V (`variance`) is positive. S (`noise`) is the noise variance of an entry that has all of
    the norm.
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
        *WEIGHTED_STEPS,
        Step(RESIDUAL_SIZES, 0.02),
        Step(RESIDUALS, 0.17),
        Step(REMAINING, 0.31),
        Step(WEIGHTS, 0.08, ("released weights",)),
    )
    recipe: ClassVar[Recipe | None] = Recipe(TWO_STAGES, r_learner)

    def learn(self, state: FitState) -> EffectFit:
        return learn_r(state, state.regression.conditional)


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

        return learn_r(state, choose)._replace(notes=(note,))


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
        *WEIGHTED_STEPS,
        Step(RESIDUAL_SIZES, 0.01),
        Step(RESIDUALS, 0.24),
        Step(WEIGHTS, 0.04, ("released weights",)),
        Step(nu.SCORE_SIZES, 0.01),
        Step(DR_MOMENTS, 0.24),
    )
    recipe: ClassVar[Recipe | None] = Recipe(TWO_STAGES, dr_learner)

    def learn(self, state: FitState) -> EffectFit:
        state, partials, doubt = fit_nuisances(state)
        # a first effect, from the residual product
        residuals = residual_moments(state, partials)
        regress = state.regression.conditional
        first, partials = orthogonal_effect(state, partials, residuals, regress)
        # psi - tau_1(x), regressed on the effect's features
        reach, features = 2 * state.outcome.bound, state.effect_features
        triples = tuple(nu.nuisance_of(p, first, state.outcome) for p in partials)
        target = state.weigh(
            nu.by_fold(Aipw(n, state.outcome, state.clip, first, reach) for n in triples)
        )
        sizes = nu.read_sizes(state, target)
        assert state.gram is not None  # released with the nuisances
        gram = state.gram.value[np.ix_(state.effect_index, state.effect_index)]
        cut = cut_of(state, sizes, DR_MOMENTS, PRIORS.cut_bias)
        scores = cut_moments(
            state, features, target, sizes, cut, DR_MOMENTS, what="score minus first pass"
        )
        sd, spread = state.gram.sd, scores.spread
        moments = Moments(gram, scores.cross, sd, scores.cross_sd, spread**2)
        # a wide threshold of the score does not show a large effect, so the prior slopes of the
        # remaining effect are no larger than the effect's own
        spreads = effect_spreads(state, min(cut / 2, residuals.cut))
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
        return EffectFit.of(state, doubt, partials, effect, first)


# -- S-, T- and X-learner (Kuenzel et al. 2019): regressions within the arms ----------------------

# The regressions use the outcome minus a mean that both arms share. This does not change the
# effect, and it reduces the noise, which grows with the range of the summed values.
#
# Rows have overlap weights |T - e|. If a mean is not additive and the covariates differ between
# arms, its best additive approximation differs too. This difference would look like an effect. With
# overlap weights, the approximations agree, and the moments of both arms share one Gram matrix.
#
# S and T differ from R in the parameters that they shrink. They shrink the regression of each arm,
# not the effect. Without noise there is no shrinkage, and on base "linear" their effects equal R's.

IMPUTED_SIZES = StageKey("effect", "imputed sizes")
IMPUTED = StageKey("effect", "imputed effects")

Arms = tuple[Moments, Moments]
"""Moments for the regression in each arm, the control first."""


ArmStages = tuple[StageKey, StageKey, StageKey]
"""Stages of the sizes, the moments and, if they are released, the weights."""

FINAL_ARMS: ArmStages = (
    StageKey("nuisance", "arm sizes"),
    StageKey("nuisance", "arm outcomes"),
    StageKey("nuisance", "weights"),
)
FIRST_ARMS: ArmStages = (
    StageKey("effect", "arm sizes"),
    StageKey("effect", "arm outcomes"),
    StageKey("effect", "weights"),
)
"""The arms' regressions that give the effect, and those before a second stage."""


class _Arms(CateLearner):
    """Shared steps of the three learners: moments of the outcome's residuals within each arm."""

    name: ClassVar[str] = "arms"
    shares: ClassVar[Mapping[str, float]] = {
        "bounds": budget.TOP_BOUNDS,
        "nuisance": 0.75,  # Nuisances and arms together, without a second stage. By hand.
        "average": budget.TOP_AVERAGE,
    }
    steps: ClassVar[tuple[Step, ...]] = (
        *WEIGHTED_STEPS,
        Step(FINAL_ARMS[0], 0.03),
        Step(FINAL_ARMS[2], 0.06, ("released weights",)),
        Step(FINAL_ARMS[1], 0.7),
    )
    recipe: ClassVar[Recipe | None] = Recipe(
        boosting.ONE_STAGE, partial(boosting.s_or_t_learner, joint=False)
    )

    def contrast(
        self, base: Base, arms: Arms, features: FeatureMap, intercept: float, size: float
    ) -> Posterior:
        """Coefficients of the difference of the two arms' means, from prior variances."""
        raise NotImplementedError

    def learn(self, state: FitState) -> EffectFit:
        state, partials, doubt = fit_nuisances(state)
        effect, partials = self._first(state, partials, FINAL_ARMS)
        return EffectFit.of(state, doubt, partials, effect)

    def _first(
        self, state: FitState, partials: nu.Folds, stages: ArmStages
    ) -> tuple[Effect, nu.Folds]:
        """The difference of the arms' regressions, and the nuisances refitted with its mean."""
        residuals, arms = _moments(state, partials, None, stages)

        def regress(
            moments: Moments, features: FeatureMap, intercept: float, size: float
        ) -> Posterior:
            # the joint bias correction is split equally between the arms
            off = 0.5 * (residuals.cross - moments.cross)
            sd, noise_var = moments.cross_sd / np.sqrt(2), moments.noise_var / 2
            arm = replace(moments, cross_sd=sd, noise_var=noise_var)
            control, treated = (replace(arm, cross=c) for c in (off - arms[0], arms[1] - off))
            return self.contrast(state.regression, (control, treated), features, intercept, size)

        return orthogonal_effect(state, partials, residuals, regress)


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
        *WEIGHTED_STEPS,
        Step(FIRST_ARMS[0], 0.01),
        Step(FIRST_ARMS[2], 0.06, ("released weights",)),
        Step(FIRST_ARMS[1], 0.24),
        Step(IMPUTED_SIZES, 0.01),
        Step(IMPUTED, 0.24),
    )
    recipe: ClassVar[Recipe | None] = Recipe(TWO_STAGES, boosting.x_learner)

    def learn(self, state: FitState) -> EffectFit:
        state, partials, doubt = fit_nuisances(state)
        first, partials = self._first(state, partials, FIRST_ARMS)
        # In each arm, regress the effect that the other arm's mean implies for its rows. If the
        # first effect has error d, mu_0 has error -e d and mu_1 has error (1 - e) d. The combined
        # effect then has error 2 e (1 - e) d <= d / 2, which is included in its band.
        outcome, features = state.outcome, state.effect_features
        soft = state.soft_clip
        target = nu.by_fold(
            vault.TransformProduct(
                vault.OfTreatment("residual", p.e_soft, soft),
                vault.ImputedEffect(nu.nuisance_of(p, first, outcome), outcome),
            )
            for p in partials
        )
        stages = IMPUTED_SIZES, IMPUTED, None
        residuals, arms = _moments(state, partials, target, stages)
        variance = residuals.spread**2 / residuals.mean_weight / 2
        spreads = effect_spreads(state, residuals.cut)
        nothing = Additive(features, np.zeros(features.size))
        pieces = [Piece(nothing, first.pieces[0].cov, Constant(0.5))]
        e = nu.mixed(p.e for p in partials)
        weights: list[Function] = [e, Pointwise(np.subtract, Constant(1.0), e)]
        gram, gram_sd, cross_sd = residuals.gram, residuals.gram_sd, residuals.cross_sd
        for cross, weight in zip((-arms[0], arms[1]), weights, strict=True):
            moments = Moments(gram, cross, gram_sd, cross_sd / np.sqrt(2), variance)
            fitted = state.regression.conditional(moments, features, *spreads)
            pieces.append(Piece(Additive(features, fitted.mean), fitted.cov, weight))
        return EffectFit.of(state, doubt, partials, Effect(tuple(pieces), 2 * outcome.bound))


def _moments(
    state: FitState, partials: nu.Folds, target: vault.Transform | None, stages: EffectStages
) -> tuple[Residuals, Matrix]:
    """Moments of the target (by default the residual product), and moments by arm, shape (2, p)."""
    residuals = residual_moments(state, partials, target, stages, by_arm=True)
    arms = residuals.cross.reshape(2, -1)
    sd = np.sqrt(2) * residuals.cross_sd[: arms.shape[1]]
    return residuals._replace(cross=arms.sum(axis=0), cross_sd=sd), arms
