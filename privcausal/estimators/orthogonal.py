"""tau(x) from the residual product, corrected for errors of the nuisances.

One release of sum w (T - e)(Y - eta) phi is combined with the joint distribution of both nuisances.
Part of the mean of the product of their errors is subtracted, and part of its covariance is added
to the noise. The bands include everything that remains. The correction is post-processing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from privcausal import vault
from privcausal.estimators import first_stages, interactions
from privcausal.estimators import nuisances as nu
from privcausal.estimators.bases import Gam
from privcausal.estimators.budget import (
    GRAM,
    ROW_WEIGHTS,
    Step,
    learned_propensity,
    weighted,
    wide,
)
from privcausal.estimators.first_stages import FitState
from privcausal.estimators.interactions import refine
from privcausal.estimators.nuisances import FoldFit, Folds
from privcausal.features.basis import FeatureMap
from privcausal.features.rows import Features
from privcausal.inference import cuts, regression
from privcausal.inference.confounding import BiasSource, ProductBias, Remainder, leftover
from privcausal.inference.effects import Effect
from privcausal.inference.population import amplitude
from privcausal.inference.priors import PRIORS
from privcausal.inference.ranges import window_borders
from privcausal.inference.regression import Moments
from privcausal.request.plan import StageKey
from privcausal.typing import Matrix, Vector

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


@dataclass(frozen=True, eq=False)
class Residuals:
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


NUISANCE_STEPS = (
    Step(first_stages.COLUMN_RANGES, 0.02, (first_stages.loose,)),
    Step(
        first_stages.OUTCOME_RANGE,
        0.02,
        (wide, lambda _, base: not base.released_weights),
        window_borders,
    ),
    Step(GRAM, 0.14),
    Step(nu.TREATMENT, 0.07, (learned_propensity,)),
    Step(nu.OUTCOME, 0.25),
    *interactions.interaction_steps(0.01, 0.06, 0.14),
)
"""Both nuisances, with their interactions if the base learns interactions."""

WEIGHTED_STEPS = (
    NUISANCE_STEPS[0],
    Step(ROW_WEIGHTS, 0.02, (weighted,)),
    *NUISANCE_STEPS[1:],
)
"""Nuisances that accept survey weights."""


@dataclass(frozen=True, eq=False)
class NuisanceFit:
    """Nuisances, and the releases that produced them.

    `partials` are by fold. `doubt` is the bias of averages beyond the bias that their distributions
    describe.
    """

    state: FitState
    grams: first_stages.Grams
    partials: Folds
    doubt: Remainder


def fit_nuisances(state: FitState) -> NuisanceFit:
    """Run every stage that `NUISANCE_STEPS` planned."""
    release = first_stages.outcome_histogram(state, first_stages.OUTCOME_RANGE)
    state, grams, partials = nu.additive_nuisances(nu.windowed(state, release))
    state, partials = nu.clipped(state, partials)
    return NuisanceFit(state, grams, *refined(state, partials))


def refined(
    state: FitState, partials: Folds, spread: float | None = None
) -> tuple[Folds, Remainder]:
    """Add planned interactions if the evidence of some fold supports them.

    If interactions are dropped, the averages allow for the confounding that they may cause.
    """
    extended = refine(state, partials, spread)
    beyond = [p.beyond for p in extended if p.beyond is not None]
    supported = any(pair.support > 0 for _, pair in beyond)
    if extended is partials or supported or len(beyond) < len(extended):
        return extended, Remainder(0.0, 0.0)
    biases, without = [], []
    for part, (psi, pair) in zip(extended, beyond, strict=True):
        weight = nu.remainder_weight(state, psi, part.e)
        bias = pair.remainder(weight)
        shift = pair.confounding(weight) + bias.mean
        biases.append(Remainder(0.0, float(np.hypot(bias.sd, shift))))
        # Interactions of zero keep the structure of saved results unchanged.
        without.append(nu.extended(part, psi, pair.without()))
    return tuple(without), nu.over_folds(biases)


EffectStages = tuple[StageKey, StageKey, StageKey | None]
"""Stages of the sizes, the moments and, if they may be released, the weights."""


def residual_moments(
    fit: NuisanceFit,
    target: vault.Transform | None = None,
    stages: EffectStages = (RESIDUAL_SIZES, RESIDUALS, WEIGHTS),
    *,
    by_arm: bool = False,
) -> Residuals:
    """Release the sizes of the residual product (or of another target), then its moments."""
    state, partials = fit.state, fit.partials
    size_stage, moment_stage, weight_stage = stages
    target = state.weigh(target or nu.residual_product(state, partials))
    sizes = residual_sizes(state, target, size_stage, partials[0])
    gram, gram_sd, mean_weight = nu.weights_gram(state, fit.grams, partials, weight_stage)
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
    order = vault.Cross(features, target, cut, what, by_arm=by_arm)
    release = state.release(stage, order)
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
    state: FitState, target: vault.Transform, stage: StageKey, part: FoldFit
) -> cuts.AbsHistogram:
    """Histogram of a residual product's size, denoised with the usual shape of such products."""
    borders = cuts.size_edges(target.bound)
    release = state.release(stage, vault.SizeHistogram(target, borders, "|product|"))
    e = part.e_soft(state.rows)[:ERROR_POINTS]
    noise = float(release.noise_sd[0])
    return cuts.denoise_normal(release.value, noise, borders, state.population.count, e)


class FittedEffect(NamedTuple):
    """The effect as fitted from moments."""

    effect: Effect  # The effect, with the covariance of its band
    # Covariance of the coefficients under the effect's own prior and noise, shape (p, p)
    cov: Matrix
    biases: list[ProductBias]  # Distributions of the bias from nuisance errors in the moments


def orthogonal_effect(
    state: FitState, partials: Folds, residuals: Residuals, regress: EffectRegression
) -> tuple[Effect, Folds]:
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
    state: FitState, residuals: Residuals, used: Folds, updated: Folds, regress: EffectRegression
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
    biases = product_biases(state, used, updated)
    mean, cov = product_bias_moments(state, biases, features)
    moments = replace(moments, cross=residuals.cross - mean)
    posterior = regress(moments, features, *spreads)
    cov[0, 0] += (residuals.clipping * residuals.gram[0, 0] / mean_weight) ** 2
    plausible = PRIORS.plausible * residuals.cut / amplitude(len(features.blocks))
    usual = PRIORS.effect_sd * float(np.sqrt(state.variance / nu.slope_variance(features)))
    band, usual_band = (
        regression.second_moment(
            replace(moments, extra=cov), base.reference(features, spreads[0], unit), posterior.mean
        )
        for unit in (plausible, usual)
    )
    effect = nu.as_effect(state, replace(posterior, cov=band))
    pieces = (replace(effect.pieces[0], usual=usual_band),)
    return FittedEffect(replace(effect, pieces=pieces), posterior.cov, biases)


def product_biases(state: FitState, used: Folds, updated: Folds) -> list[ProductBias]:
    """Distributions of d_e d_b by fold; an empty list for a known e."""
    if used[0].pair is None:
        return []
    phi, biases = state.rows.phi(state.features)[:ERROR_POINTS], []
    for part, after in zip(used, updated, strict=True):
        assert part.pair is not None
        assert after.pair is not None
        sources = [BiasSource(phi, after.pair, *part.pair.mean)]
        if part.beyond is not None and after.beyond is not None:
            psi, pair = part.beyond
            columns = state.rows.phi(psi)[:ERROR_POINTS]
            sources.append(BiasSource(columns, after.beyond[1], *pair.mean))
        biases.append(leftover(sources))
    return biases


def product_bias_moments(
    state: FitState, laws: Sequence[ProductBias], features: Features
) -> tuple[Vector, Matrix]:
    """The subtracted part of sum w phi d_e d_b, and the covariance around it; zero without `laws`.

    In the worst case the folds' errors are equal. The covariance of their mean is therefore at most
    the mean of their covariances.
    """
    if not laws:
        return np.zeros(features.size), np.zeros((features.size, features.size))
    phi = state.rows.phi(features)[:ERROR_POINTS]
    lead = phi.T * features.weight(phi) * (state.count / len(phi))
    mean = np.mean([law.mean for law in laws], axis=0)
    cov = np.mean([law.cov for law in laws], axis=0)
    whole = lead @ mean
    rest = (1 - PRIORS.product_bias_mean) * whole
    around = np.asarray(lead @ cov @ lead.T + np.multiply.outer(rest, rest))
    return PRIORS.product_bias_mean * whole, around
