"""What learner "r" and the average effects assume before releases speak, and what they allow for.

Every number has its reason beside it: a bound or a law where there is one, and else the laws on
which it was chosen by trial, by the names that `learners.shares` explains.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Priors:
    """Prior standard deviations, scales and allowances; "outcome" stands for half its range."""

    # features and the synthetic population
    norm_quantile: float = 0.5
    """Norm cut C, of the population's norms: errors are flat from the 50th to the 90th. Sketch."""
    feature_sd: float = 0.5
    """Sd of a basis function beside the intercept's 1, where there are few. Sketch."""
    features_sd: float = 1.2
    """Root of the summed squares of those sds: C stays bounded as columns are added. Sketch."""
    feature_decay: float = 0.6
    """Sd of each rougher function of a column against the one before. Sketch."""
    spread_evenly: float = 0.02
    """Share of a marginal that is uniform: none of its cells is taken to be empty. By hand."""

    # nuisances
    window_explained: float = 0.5
    """Share of Var(Y) that covariates explain, where a cut of Y shrinks it. Half of what can be."""
    propensity_intercept_sd: float = 0.5
    """Of the mean of T - 1/2: the most that it can be away from 0."""
    treatment_variance: float = 0.25
    """Variance of T around e(x): the most that it can be."""
    propensity_sd: float = 0.12
    """Sd of e(x) over the covariates, a quarter of the most that it can be. Random laws."""
    even_variance: float = 0.1875
    """e (1 - e) at a quarter treated: below it the prior variances of e(x) fall with e (1 - e)."""
    least_variance: float = 0.05
    """As a share of `even_variance`, where the noisy share of the treated is next to 0. A guard."""
    outcome_intercept_sd: float = 0.5
    """Of the mean of Y, in outcomes: half of the most that it can be."""
    outcome_sd: float = 0.2
    """Sd of E[Y | x], in the largest sd that an outcome of this mean can have. Random laws."""
    outcome_noise_sd: float = 0.25
    """Sd of Y around it, in the same unit, before it is fitted. By hand."""
    noise_pull: float = 0.5
    """Precision of the log of that variance: its sd is 1.4, a factor of four. By hand."""
    nuisance_pull: float = 0.25
    """Precision of a log prior variance: where data are silent it stays at its centre. By hand."""
    residual_clip: float = 0.03
    """Limit of e(x) where nothing is divided by it. Sketch."""
    rare_share: float = 0.4
    """Of the rarer arm: below, the clip falls with it, so that 0.1 is a quarter of it. By hand."""

    # both nuisances together
    correlations: tuple[float, ...] = (-0.9, -0.6, -0.3, 0.0, 0.3, 0.6, 0.9)
    """Of the coefficients of e(x) and the baseline, alike a priori: nothing is known of them."""
    baseline_least: float = 0.25
    """Of Var(beta_y), what the baseline has at least when e tau is taken off. A guard."""
    law_inflation: float = 1.4
    """Of sds: a standing bias of 1.4 sds is then covered in 95 % of repetitions. Random laws."""

    # interactions of the nuisances
    interaction_columns: int = 8
    """Products are of the columns that matter most: 28 of pairs, so that noise is bounded."""
    curved_columns: int = 3
    """Products with curvatures are of so many columns: 9 more. Random laws."""
    pairs_size: float = 0.7
    """Root of the summed variances of products of pairs, the kind with most columns. By hand."""
    curved_size: float = 0.5
    """The same of products with curvatures. By hand."""
    pairs_spread: float = 0.6
    """The same of products of pairs. Random laws."""
    curved_spread: float = 0.2
    """The same of products with curvatures: rarer. Random laws."""
    kinds_pull: float = 0.25
    """As `nuisance_pull`, for the variance of a kind."""
    interaction_norm_quantile: float = 0.8
    """As `norm_quantile`: products have heavier tails than their noise is worth. Random laws."""

    # moments of the residual product
    bin_typical: float = 0.85
    """A value inside a bin as a share of its upper border: about (1 + 2^-1/2) / 2."""
    cut_noise: float = 2.0
    """Weight of squared noise against the squared price of a cut. Sketch."""
    cut_bias: float = 0.3
    """Price of what a cut takes off the product; 0.1 did worse. Effect laws."""
    cut_bias_rest: float = 0.1
    """In the second release a cut biases tau - tau_1 only; 0.15 did no better. Effect laws."""
    least_below: float = 0.6
    """Cut moments are scaled up by no more than 1/0.6: the histogram is noisy. By hand."""
    cut_allowance: float = 0.25
    """Of the largest bias of a cut, what is in the band after scaling up. By hand."""
    one_sided: float = 0.4
    """Of the largest bias by unseen values, an sd: measured on skewed outcomes. Random laws."""
    product_bias_mean: float = 0.5
    """Part of d_e d_b's mean taken off: regressed on it, moments had 0 to 0.8. Effect laws."""

    # the effect
    constant_sd: float = 0.1
    """Of the mean effect, in outcomes; twice it lost 6 % at n = 1,000. Effect laws."""
    effect_terms: float = 10.0
    """A slope's prior variance is the cut's square over this: the parts of ten terms. Sketch."""
    near_constant: float = 1e-4
    """Prior variance of slopes of a constant effect, against others': a hundredth in sd."""
    effect_decay: float = 0.35
    """Prior sd of each rougher function of a constant effect against the one before. Sketch."""
    least_scale: float = 3e-3
    """Least of the scales of a coefficient, in its unit: next to nothing. Effect laws."""
    most_scale: float = 10.0
    """Largest: wider than any coefficient. Effect laws."""
    negligible: float = 0.8
    """Base weight of the least scale; 0.6 and 0.4 did worse. Effect laws."""
    concentration: float = 6.0
    """Of the base weights, in coefficients: better than 3 by 2 %. Effect laws."""
    plausible: float = 2.0
    """Reference sd of a term's linear part in bands, in cuts: 1.2 covered less. Effect laws."""
    plausible_decay: float = 0.5
    """The same of each rougher part against the one before. Effect laws."""

    # the second release
    least_left: float = 0.15
    """Of the product's mean square, what a first effect leaves at least. Effect laws."""
    even_norm: float = 0.5
    """Share of the norm laid out as it was: with a quarter single laws lose. Effect laws."""
    doubt: float = 0.02
    """Of a band's variance, what a coefficient that seems known has at least. By hand."""
    product_columns: int = 12
    """Products of modifiers are of the columns with the largest slopes, 66 at most. By hand."""
    product_sd: float = 0.2
    """Prior sd of a product's coefficient, in cuts; half of it did worse. Effect laws."""
    products_norm: float = 0.1
    """Most of the norm that all products get; 0.3 and 0.05 did no better. Effect laws."""
    products_false_alarm: float = 1e-3
    """Chance that noise is taken for products: Markov's bound of the likelihood ratio."""
    rescaled_norm_quantile: float = 0.6
    """As `norm_quantile`; flat from the 30th to the 70th. Effect laws."""

    # averages
    unseen_confounding: float = 0.25
    """Of what fitted interactions confound, an sd of what they cannot express. Random laws."""
    lowest_cut: float = 0.1
    """Where sizes are not seen, cuts are tried from this share of the largest. Building half."""
    balance_sd: float = 0.1
    """Of the mean balance, which is 1 where the propensity is right. By hand."""
    mass_sd: float = 0.3
    """Of a mean mass (ATT, ATO), against what the propensity says of it. By hand."""
    least_mass: float = 0.02
    """A mass is at least this share of its prior mean, so that a ratio stays finite. A guard."""
    least_square: float = 0.25
    """Floor of E[score^2], in what the histogram of sizes shows of it. A guard."""
    least_spread: float = 0.1
    """Floor of a variance, in E[score^2]: the squared mean is at most this much of it. A guard."""
    least_unexplained: float = 0.25
    """Floor of what slopes, or a group, leave of the scores' variance. A guard."""
    eigenvalues: tuple[float, float] = (0.4, 2.5)
    """Of a noisy Gram against the population's: a slope's variance is bounded. By hand."""
    slope_doubt: float = 3.0
    """What a cut loses of a slope (ATT, ATO), over this, is its sd: the model is rough. By hand."""


PRIORS = Priors()
