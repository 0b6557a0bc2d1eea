"""Prior assumptions and allowances of learner "r" and the average effects.

Each number has its reason next to it: a bound, a distribution, or the scenarios used to choose it
by trial. `estimators.budget` explains the names of the scenarios.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Priors:
    """Prior standard deviations, scales and allowances.

    "Half range" means half of the outcome's range.
    """

    # features and the synthetic population
    norm_quantile: float = 0.5
    """The norm bound C, as a quantile of the population's norms: errors are flat from the 50th to
    the 90th percentile. Sketch."""
    feature_sd: float = 0.5
    """Sd of a basis function, relative to the intercept's 1, if there are few functions. Sketch."""
    features_sd: float = 1.2
    """Root of the summed squares of these sds: C stays bounded as columns are added. Sketch."""
    feature_decay: float = 0.6
    """Sd of each rougher function of a column, relative to the previous function. Sketch."""
    spread_evenly: float = 0.02
    """Share of a marginal that is uniform, so that all of its cells have mass. By hand."""

    # nuisances
    window_explained: float = 0.5
    """Share of Var(Y) that covariates explain and clipping of Y shrinks. Half of the maximum."""
    window_doubt: float = 0.5
    """Share of this shrinkage that remains after Stein's correction of skewed outcomes. By hand."""
    propensity_intercept_sd: float = 0.5
    """Prior sd of the mean of T - 1/2: its largest possible distance from 0."""
    treatment_variance: float = 0.25
    """Variance of T around e(x): the largest possible value."""
    propensity_sd: float = 0.12
    """Sd of the linear part of e(x): its median over public data sets. Library."""
    even_variance: float = 0.1875
    """e (1 - e) with a quarter treated: below it, prior variances of e(x) fall with e (1 - e)."""
    least_variance: float = 0.05
    """Floor as a share of `even_variance`, if the noisy treated share is close to 0. A guard."""
    outcome_intercept_sd: float = 0.5
    """Prior sd of the mean of Y, in half ranges: half of the largest possible value."""
    outcome_sd: float = 0.34
    """Sd of the linear part of E[Y | x], as a share of the sd of Y: between its median, 0.39, and
    its geometric mean, 0.3, over public data sets. Library."""
    outcome_noise_sd: float = 0.9
    """Sd of Y around E[Y | x], in the same unit: the rest. It is fitted, too. Library."""
    noise_pull: float = 0.5
    """Precision of the log of this variance: its sd is 1.4, a factor of four. By hand."""
    nuisance_curves: float = 0.4
    """Prior variance of curves, relative to slopes: 0.6 for e(x) and 0.28 for E[Y | x] over public
    data sets. With 1, intervals were 4% wider. Library."""
    nuisance_pull: float = 0.8
    """Precision of a log prior variance: over public data sets, log sds differ by 0.5 to 0.65.
    Library."""
    residual_clip: float = 0.03
    """Clip of e(x) in formulas that do not divide by e(x). Sketch."""
    rare_share: float = 0.4
    """Rarer arm's share below which the clip falls with it: 0.1 becomes share / 4. By hand."""

    # both nuisances
    correlations: tuple[float, ...] = (-0.9, -0.6, -0.3, 0.0, 0.3, 0.6, 0.9)
    """Correlations of the coefficients of e(x) and the baseline that are tried. By hand."""
    correlation_sd: float = 0.45
    """Prior sd of this correlation: its root mean square over public data sets. If all were equally
    likely, intervals would be 6% to 7% wider. Library."""
    baseline_least: float = 0.25
    """Least baseline variance after e tau is subtracted, as a share of Var(beta_y). A guard."""

    # interactions of the nuisances
    interaction_columns: int = 8
    """Products use the columns that matter most. They give 28 pairs, which bounds the noise."""
    curved_columns: int = 3
    """Products with curvatures use this many columns: 9 more. Random laws."""
    pairs_spread: float = 0.2
    """Prior sd of the products of pairs together, relative to the additive part: its median over
    public data sets, as are the two spreads below. Library."""
    curved_spread: float = 0.065
    """Prior sd of the products with curvatures, in the same unit. Library."""
    index_steps: int = 7
    """Splits of each index, at its octiles. Without them, coverage of thresholds falls from 91% to
    68% at eps = 4. Leaves of random trees beside them change no coverage and 2% of the width, and
    make fits slower. Random laws."""
    steps_spread: float = 0.095
    """Prior sd of these steps together, as `pairs_spread`. Library."""
    kinds_pull: float = 0.5
    """As `nuisance_pull`, for the variance of a kind: log sds differ by 0.5 to 0.85. Library."""
    interaction_norm_quantile: float = 0.8
    """As `norm_quantile`, for products: heavier tails do not justify their noise. Random laws."""

    # moments of the residual product
    bin_typical: float = 0.85
    """A value inside a bin as a share of its upper border: about (1 + 2^-1/2) / 2."""
    cut_noise: float = 2.0
    """Weight of squared noise against the squared bias of clipping. Sketch."""
    cut_bias: float = 0.3
    """Weight of the amount that clipping removes from the product; 0.1 did worse. Effect laws."""
    cut_bias_rest: float = 0.1
    """Clipping in the second release biases tau - tau_1 only; 0.15 did no better. Effect laws."""
    least_below: float = 0.6
    """Clipped moments are scaled up by at most 1/0.6, because the histogram is noisy. By hand."""
    cut_allowance: float = 0.25
    """Share of the largest clipping bias that bands include after scaling up. By hand."""
    one_sided: float = 0.4
    """Sd of the bias from undetected values, as a share of the largest bias. Measured on skewed
    outcomes. Random laws."""
    product_bias_mean: float = 0.5
    """Share of the mean of d_e d_b that is subtracted. In regressions of moments on this mean, the
    slopes were 0 to 0.8. Effect laws."""

    # the effect
    constant_sd: float = 0.1
    """Prior sd of the mean effect, in half ranges; twice this lost 6% at n = 1,000. Effect laws."""
    effect_terms: float = 10.0
    """A slope's prior variance is the squared threshold divided by this: the shares of ten terms.
    Sketch."""
    near_constant: float = 1e-4
    """Prior variance of slopes of a constant effect, against other slopes: a hundredth in sd."""
    effect_decay: float = 0.35
    """Prior sd of each rougher function of a constant effect, against the previous. Sketch."""
    least_scale: float = 3e-3
    """Least scale of a coefficient, in its unit: almost zero. Effect laws."""
    most_scale: float = 10.0
    """Largest scale of a coefficient: wider than any coefficient. Effect laws."""
    negligible: float = 0.8
    """Base weight of the least scale; 0.6 and 0.4 did worse. Effect laws."""
    concentration: float = 6.0
    """Sum of the base weights, in coefficients: 2% better than 3. Effect laws."""
    plausible: float = 2.0
    """Reference sd of a term's linear part in bands, in clipping thresholds: 1.2 covered less.
    Effect laws."""
    plausible_decay: float = 0.5
    """Reference sd of each rougher part, relative to the previous part. Effect laws."""

    # the second release
    least_left: float = 0.15
    """Least share of the product's mean square that remains after a first effect. Effect laws."""
    even_norm: float = 0.5
    """Share of the norm that keeps its layout; a quarter hurts single scenarios. Effect laws."""
    doubt: float = 0.02
    """Least variance of an apparently known coefficient, as a share of a band's. By hand."""
    product_columns: int = 12
    """Products of modifiers use the columns with the largest slopes: 66 at most. By hand."""
    product_sd: float = 0.2
    """Prior sd of a product's coefficient, in thresholds; half of it did worse. Effect laws."""
    products_norm: float = 0.1
    """Maximum share of the norm for all products; 0.3 and 0.05 did no better. Effect laws."""
    products_false_alarm: float = 1e-3
    """Chance that noise is mistaken for products: Markov's bound of the likelihood ratio."""
    rescaled_norm_quantile: float = 0.6
    """As `norm_quantile`; errors are flat from the 30th to the 70th percentile. Effect laws."""

    # averages
    effect_sd: float = 0.46
    """Sd of the effect over the covariates, as a share of the sd of Y: its root mean square over
    public data sets, from how much the effect varies along e(x) (1 - e(x)). Library."""
    effect_pull: float = 1.5
    """As `nuisance_pull`, for this variance: log sds differ by 0.4. Library."""
    unadjusted: float = 0.1
    """Prior sd of the error of a coefficient of the mean outcome, as a share of it, where limits of
    e(x) leave adjustment to it. With 0, limits are too tight: 22% wider in a test. By hand."""
    lowest_cut: float = 0.1
    """Without detected sizes, thresholds start at this share of the largest. Building half."""
    balance_sd: float = 0.1
    """Prior sd of the mean balance, which is 1 if the propensity is right. By hand."""
    mass_sd: float = 0.3
    """Prior sd of a mean mass (ATT, ATO), against the value implied by the propensity. By hand."""
    least_mass: float = 0.02
    """A mass is at least this share of its prior mean, so that a ratio stays finite. A guard."""
    least_square: float = 0.25
    """Floor of E[score^2], as a share of its value in the histogram of sizes. A guard."""
    least_spread: float = 0.1
    """Floor of a variance, as a share of E[score^2]; a squared mean is at most 0.9 of E[score^2].
    A guard."""
    least_unexplained: float = 0.25
    """Floor of the variance left after slopes, or in a group, as a share of the whole. A guard."""
    eigenvalues: tuple[float, float] = (0.4, 2.5)
    """Limits of a noisy Gram's eigenvalues, relative to the population's. They bound a slope's
    variance. By hand."""
    slope_doubt: float = 3.0
    """The sd of a slope's loss by clipping (ATT, ATO) is the loss over this, as the model is rough.
    By hand."""


PRIORS = Priors()
