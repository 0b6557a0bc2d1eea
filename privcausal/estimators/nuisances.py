"""Private nuisances from noisy moments, and the bias of averages from their errors.

They are additive fits and interactions of the covariates. After the additive fits, residuals of
treatment and outcome are regressed on products of covariates and on steps of the two fitted indices
(`functions.Interactions`). The products use the columns that matter most, chosen from released
numbers. Marginal likelihood determines how much these regressions are shrunk. How much of the norm
each kind of function gets follows from the noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np

from privcausal import vault
from privcausal.estimators import first_stages
from privcausal.estimators.budget import (
    GRAM,
    ROW_WEIGHTS,
    Step,
    for_products,
    noise_sd,
)
from privcausal.estimators.estimands import ESTIMANDS, Tilted, bias_weight
from privcausal.estimators.first_stages import FitState
from privcausal.features import functions
from privcausal.features.design import Rows
from privcausal.features.functions import Constant, Extended, FeatureMap, Function, Interactions
from privcausal.inference import cuts, population
from privcausal.inference.effects import Effect, Piece
from privcausal.inference.priors import PRIORS
from privcausal.inference.ranges import HIDDEN_SDS, outcome_window, read_look, window_borders
from privcausal.inference.regression import (
    Moments,
    Posterior,
    Prior,
    Regression,
    RegressionPair,
    Remainder,
    fit,
)
from privcausal.request.formula import ATE_TERM, ResultTerm
from privcausal.request.request import LEAST_PROPENSITY, StageKey
from privcausal.request.schema import Interval
from privcausal.typing import Matrix, Vector
from privcausal.vault import Cross, Transform

TREATMENT, OUTCOME = StageKey("nuisance", "treatment"), StageKey("nuisance", "outcome")
NUISANCE_RESIDUALS = StageKey("nuisance", "residual moments")
NUISANCE_WEIGHTS = StageKey("nuisance", "weights")
SCORE_SIZES = StageKey("effect", "score sizes")

# -- the additive fits ---------------------------------------------------------------------------


class FoldFit(NamedTuple):
    """e(x) and eta(x) = E[Y | x] for the rows of one fold, learned on the other folds.

    `e` is clipped to the arm clip, `e_soft` to `FitState.soft_clip`. `pair` is the joint law
    of their coefficients. It is None for a known propensity and for boosted nuisances. `beyond` is
    the joint distribution of the interactions' coefficients.
    """

    e: Function
    e_soft: Function
    eta: Function
    pair: RegressionPair | None
    beyond: tuple[Interactions, RegressionPair] | None = None

    def propensity(self, term: ResultTerm) -> Function:
        """The propensity that the term's scores use."""
        tilted = term.arm is None and isinstance(ESTIMANDS[term.of], Tilted)
        return self.e_soft if tilted else self.e


Folds = tuple[FoldFit, ...]


def additive_nuisances(state: FitState) -> tuple[FitState, Folds]:
    """Gram, propensity and mean outcome, one pair per fold (one pair without cross-fitting).

    One pass over the rows computes all three.
    """
    known, dose = state.propensity, state.request.dose
    state = moments_of(state, {TREATMENT: vault.Assigned()} if known is None else {})
    if known is not None:
        etas = outcomes(state)
        folds = tuple(FoldFit(known, known, mean(state, eta.mean), None) for eta in etas)
        return state, folds
    es = means(state, TREATMENT, 0.5) if dose else propensities(state)
    return state, paired(state, es, outcomes(state))


def with_outcomes(
    state: FitState, stage: StageKey, *, window: bool = False, look: bool = False
) -> FitState:
    """Release the histogram of the outcome that `first_stages.prepare` computed, if one is planned.

    With `window`, nuisances clip outcomes to its range. With `look`, averages have its summary.
    """
    name = state.request.formula.outcome
    if not state.plan.has(stage):
        return state
    if not isinstance(state.schema[name], Interval):  # an undeclared column turned out to hold 0/1
        state.unused(stage)
        return state
    release = state.release(stage, state.queries[stage])
    bounds = Interval(state.outcome.lo, state.outcome.hi)
    counts, sd = release.value, float(release.noise_sd[0])
    state.check_domain(name, counts, sd, stage)
    if window:
        features, borders = state.features, state.queries[stage].edges
        noise = cross_noise(state, OUTCOME, features.cut) / state.count
        noise *= float(np.sqrt(int((features.order == 1).sum())))
        noise /= population.amplitude(len(features.blocks))
        range_ = outcome_window(counts, sd, bounds, borders, state.count, noise)
        state = replace(state, window=range_)
    if look:
        variance = 0.0 if state.window is None else state.window.variance
        law = cuts.outcome_law(counts[None], sd, bounds)
        # the window's normal distributions have no tails, and the law starts from few cells
        if law is not None:
            variance = max(variance, law.variance)
        summary = read_look(counts, sd, bounds)
        if not summary.reach:  # noise hides all amounts
            hidden = min(HIDDEN_SDS * sd / max(state.count, 1.0), 1.0)
            variance = max(variance, hidden * (bounds.width / 8) ** 2)
        state = replace(state, look=replace(summary, variance=variance))
    return state


def moments_of(state: FitState, treatments: Mapping[StageKey, Transform]) -> FitState:
    """The Gram and the population's dependence, with the moments of outcome and treatments.

    The release of the Gram is shrunk to the population. One pass over the rows computes all.
    """
    window, features = state.clipping, state.features
    outcome: Transform = window
    if state.window is not None:
        outcome = vault.OutcomeResidual(Constant(0.5 * (window.lo + window.hi)), state.outcome)
    bounds = {OUTCOME: window.bound} | {k: t.bound for k, t in treatments.items()}
    targets = {k: state.weigh(t) for k, t in {OUTCOME: outcome, **treatments}.items()}
    crosses = {k: Cross(features, t, bounds[k], k.query) for k, t in targets.items()}
    mechanism = vault.Gram(features, state.weigh_root())
    state.gather(moments={GRAM: mechanism, **crosses})
    releases = state.moments(GRAM, mechanism)
    noisy = [mechanism.matrix(r.value) for r in releases]
    sd = first_stages.off_diagonal_sd(mechanism, releases[0])
    # Each fold has its own noise of the same size.
    whole = np.sum(noisy, axis=0), sd * np.sqrt(len(noisy)), 1.0
    state = first_stages.dependent(state, *whole[:2])
    rows, grams = state.rows, list[population.GramEstimate]()
    for part, noise, share in [whole, *first_stages.complements(noisy, sd)]:
        if state.base.released_weights:  # the textbook base keeps the released moments
            grams.append(population.GramEstimate(part, noise, part))
            continue
        count, ones = state.count * share, np.ones(len(rows))
        model = population.population_gram(features, rows, count, ones)
        grams.append(population.shrunken(part, model, noise, features))
    return replace(state, gram=grams[0], grams=tuple(grams[1:]))


def paired(state: FitState, es: Sequence[Posterior], etas: Sequence[Posterior]) -> Folds:
    pairs = [(e.regression, eta.regression) for e, eta in zip(es, etas, strict=True)]
    slopes = state.features.order > 0
    joints = [
        RegressionPair(e, eta, slopes) for e, eta in pairs if e is not None and eta is not None
    ]
    return tuple(from_pair(state, joint) for joint in joints)


def from_pair(state: FitState, joint: RegressionPair) -> FoldFit:
    coef, eta = joint.mean
    e = functions.Additive(state.features, coef, 0.5, state.clip, 1 - state.clip)
    soft = replace(e, lo=state.soft_clip, hi=1 - state.soft_clip)
    return FoldFit(e, soft, mean(state, eta), joint)


def with_lower_clip(state: FitState, partials: Folds) -> tuple[FitState, Folds]:
    """Lower the propensity clip if the treatment is rare, so that it does not bind."""
    if partials[0].pair is None:
        return state, partials
    phi = state.rows.phi(state.features)
    pairs = [p.pair for p in partials if p.pair is not None]
    share = 0.5 + float(np.mean([phi.mean(axis=0) @ pair.mean[0] for pair in pairs]))
    noise = float(np.sqrt(pairs[0].e.error[0, 0])) / max(float(pairs[0].e.gram[0, 0]), 1e-9)
    state.check_empty_arm(np.array([1 - share, share]), noise)
    lower = lower_clip(state, share, noise)
    if lower is state:
        return state, partials
    return lower, tuple(from_pair(lower, pair) for pair in pairs)


def lower_clip(state: FitState, share: float, noise: float) -> FitState:
    """Lower the clip for this noisy share of the treated, taken to be at least two noise sds."""
    rarer = max(min(share, 1 - share), 2 * noise)
    if rarer >= PRIORS.rare_share:
        return state
    clip = max(state.clip * rarer / PRIORS.rare_share, LEAST_PROPENSITY)
    return replace(state, clip=min(state.request.arm_clip, clip))


def updated_for_effect(state: FitState, partials: Folds, tau: Function) -> Folds:
    """Refit from the same moments with the effect known; only the baseline then confounds."""
    effect, folds = float(np.mean(tau(state.rows))), []
    for part in partials:
        updated = part
        if part.pair is not None:
            updated = from_pair(state, replace(part.pair, effect=effect))
        if part.beyond is not None:
            psi, joint = part.beyond
            updated = extended(updated, psi, replace(joint, effect=effect))
        folds.append(updated)
    return tuple(folds)


def extended(part: FoldFit, psi: Interactions, joint: RegressionPair) -> FoldFit:
    """Additive nuisances plus interactions."""
    e, eta = joint.mean
    additive = (f.base if isinstance(f, Extended) else f for f in (part.e, part.e_soft, part.eta))
    hard, soft, mu = (Extended(f, psi, c) for f, c in zip(additive, (e, e, eta), strict=True))
    return FoldFit(hard, soft, mu, part.pair, (psi, joint))


def _crosses(
    state: FitState, stage: StageKey
) -> list[tuple[population.GramEstimate, Vector, float]]:
    """Gram, cross moments and their noise sd, by fold."""
    releases = state.moments(stage, state.queries[stage])
    noise_sd = float(releases[0].noise_sd[0])
    folds = first_stages.complements([r.value for r in releases], noise_sd)
    return [(g, cross, sd) for g, (cross, sd, _) in zip(state.grams, folds, strict=True)]


def propensities(state: FitState, stage: StageKey = TREATMENT) -> list[Posterior]:
    posteriors = []
    for gram, cross, sd in _crosses(state, stage):
        even = evenness(0.5 + float(cross[0]) / max(float(gram.value[0, 0]), 1e-9))
        moments = Moments(gram.value, cross, gram.sd, sd, PRIORS.treatment_variance * even)
        size = even * PRIORS.propensity_sd**2 / slope_variance(state.features)
        spreads = PRIORS.propensity_intercept_sd**2, size
        base = state.regression
        posteriors.append(base.nuisance(moments, state.features, *spreads, fit_noise=False))
    return posteriors


def evenness(share: float) -> float:
    """Ratio of Var(T) to its maximum; the propensity of a rare treatment varies less, too."""
    most = share * (1 - share) / PRIORS.even_variance
    return float(np.clip(most, PRIORS.least_variance, 1.0))


def slope_variance(features: FeatureMap) -> float:
    """Variance of phi'beta for slopes of unit variance on the linear functions."""
    linear = float(max((features.order == 1).sum(), 1))
    return linear * population.amplitude(len(features.blocks)) ** 2


def outcomes(state: FitState) -> list[Posterior]:
    kept = 1.0 if state.window is None else state.window.kept
    return means(state, OUTCOME, state.mean_range.bound, kept, state.variance)


def means(
    state: FitState, stage: StageKey, half: float, kept: float = 1.0, variance: float = np.inf
) -> list[Posterior]:
    """Mean functions of a number within `half` of the middle of its range.

    Moments are divided by the share `kept` of the slopes that clipping left. The number has at most
    this `variance`.
    """
    posteriors = []
    weights = state.features.weight(state.rows.phi(state.features))
    relative = float(weights.mean() / weights.min())
    for gram, clipped_cross, clipped_sd in _crosses(state, stage):
        cross, sd = clipped_cross / kept, clipped_sd / kept
        most = min(_most_variance(cross[0], sd, gram, half, relative), variance)
        moments = Moments(gram.value, cross, gram.sd, sd, PRIORS.outcome_noise_sd**2 * most)
        size = PRIORS.outcome_sd**2 * most / slope_variance(state.features)
        spreads = (PRIORS.outcome_intercept_sd * half) ** 2, size
        base = state.regression
        posteriors.append(base.nuisance(moments, state.features, *spreads, fit_noise=True))
    return posteriors


def _most_variance(
    first: float, noise_sd: float, gram: population.GramEstimate, half: float, relative: float
) -> float:
    """Maximum variance of an outcome in [-half, half] with this noisy sum (Bhatia and Davis 2000).

    The bound is (half - mean)(half + mean), with the noisy mean moved two noise sds toward the
    middle. The mean of rare events, or of amounts that are mostly zero, cannot vary much with
    covariates. The sum is weighted. The distance of the mean of all rows from the nearer end may
    therefore be up to `relative` times as large. Here, `relative` is the mean weight divided by the
    smallest weight.
    """
    rows = max(float(gram.value[0, 0]), 1.0)
    mean = max(abs(first) - 2 * noise_sd, 0.0) / rows
    away = min(relative * max(half - mean, max(noise_sd, half) / rows), half)
    return away * (2 * half - away)


def mean(state: FitState, coef: Vector) -> Function:
    outcome = state.mean_range
    middle = 0.5 * (outcome.lo + outcome.hi)
    return functions.Additive(state.features, coef, middle, outcome.lo, outcome.hi)


def limited(part: FoldFit, low: float, high: float) -> FoldFit:
    """Limit the propensity to [low, high], or to its own limits if they are narrower."""
    if part.pair is None:
        return part
    e = part.e
    base = e.base if isinstance(e, Extended) else e
    assert isinstance(base, functions.Additive)
    base = replace(base, lo=max(base.lo, low), hi=min(base.hi, high))
    return part._replace(e=replace(e, base=base) if isinstance(e, Extended) else base)


def by_fold(transforms: Iterable[Transform]) -> Transform:
    """The only transform, or for each row the transform of its own fold."""
    folds = tuple(transforms)
    return folds[0] if len(folds) == 1 else vault.ByFold(folds)


RESIDUAL_SHARE = 0.25
"""Clipping threshold of the residual product, as a share of the detected outcome range.

It applies if no histogram of the product is released: (T - e)(Y - eta) is mostly below half the
residual's size.
"""


def residual_cross(state: FitState, partials: Folds, arm: int | None = None) -> Cross:
    """Sum of w (T - e)(Y - eta) phi with a public clip, each row by its own fold's nuisances.

    T is 1(arm) if `arm` is given, which is then compared with all others.
    """
    limits = state.outcome, state.soft_clip
    products = [vault.ResidualProduct(p.e_soft, p.eta, *limits) for p in partials]
    one_arm = None if arm is None else [vault.OfArm(product, arm) for product in products]
    target = state.weigh(by_fold(one_arm or products))
    cut = 2 * RESIDUAL_SHARE * state.mean_range.bound
    return Cross(state.effect_features, target, cut, "residual product")


def residual_effect(
    state: FitState, partials: Folds, query: tuple[StageKey, Cross] | None = None
) -> Effect:
    """tau(x) minimizing sum [(Y - eta) - (T - e) tau(x)]^2 (Nie and Wager 2021, Eq. 4).

    This is a first estimate, with a public clip and no correction for nuisance errors (`meta`
    has the correction). Its bias enters the arms' means but not the averages. If the propensity is
    right, the mean of a doubly robust score equals the mean effect for any arm means. Products with
    an error of the propensity are of second order.
    """
    features, bound = state.effect_features, state.mean_range.bound
    stage, cross = query or (NUISANCE_RESIDUALS, residual_cross(state, partials))
    release, cut = state.release(stage, cross), cross.cut
    gram, gram_sd, mean_weight = weights_gram(state, partials, NUISANCE_WEIGHTS)
    noise_var = (0.5 * cut) ** 2 / mean_weight
    moments = Moments(gram, release.value, gram_sd, float(release.noise_sd[0]), noise_var)
    constant = min(16 * cut**2, 0.25 * bound**2)
    size = PRIORS.effect_sd**2 * state.variance / slope_variance(features)
    return as_effect(state, state.regression.effect(moments, features, constant, size))


def as_effect(state: FitState, posterior: Posterior) -> Effect:
    function = functions.Additive(state.effect_features, posterior.mean)
    return Effect((Piece(function, posterior.cov),), 2 * state.outcome.bound)


def read_sizes(state: FitState, score: Transform) -> cuts.AbsHistogram:
    """Cleaned noisy histogram of a score's size, in half octaves up to its bound."""
    edges = cuts.score_edges(score.bound, cuts.SHAPE_OCTAVES)
    release = state.release(SCORE_SIZES, vault.SizeHistogram(score, edges))
    return cuts.without_noise_tail(release.value, float(release.noise_sd[0]), edges)


def cross_noise(state: FitState, stage: StageKey, norm: float) -> float:
    """Noise sd of a cross moment per unit of its clipping threshold."""
    substitute = state.request.trust.neighbors == "substitute"
    return noise_sd(state.plan, stage, 2.0 if substitute else 1.0, norm)


def weights_gram(
    state: FitState, partials: Folds, stage: StageKey | None
) -> tuple[Matrix, float, float]:
    """Sum of (T - e)^2 w phi phi', its noise sd and the mean weight.

    If the `stage` is planned (base "linear"), the sum is released. Otherwise it is computed from
    the synthetic population, with (T - e)^2 replaced by its mean e (1 - e). The difference between
    the noisy Gram and the population's Gram is then added, scaled by the mean weight.
    """
    e = partials[0].e_soft(state.rows)
    mean_weight = float(np.mean(e * (1 - e)))
    if stage is not None and state.plan.has(stage):
        soft = state.soft_clip
        factor = by_fold(vault.OfTreatment("residual", p.e_soft, soft) for p in partials)
        mechanism = vault.Gram(state.effect_features, factor=state.weigh_root(factor))
        release = state.release(stage, mechanism)
        sd = first_stages.off_diagonal_sd(mechanism, release)
        return mechanism.matrix(release.value), sd, mean_weight
    rows, features = state.rows, state.effect_features
    model = population.population_gram(features, rows, state.count, e * (1 - e))
    assert state.gram is not None  # released by `moments_of`
    at = np.ix_(state.effect_index, state.effect_index)
    seen = state.gram.value[at] - state.gram.model[at]
    return model + mean_weight * seen, state.gram.sd * mean_weight, mean_weight


def nuisance_of(part: FoldFit, tau: Function, outcome: vault.Outcome) -> functions.NuisanceTriple:
    """Arm means around eta: mu_t = eta + (t - e) tau."""
    low, high = outcome.lo, outcome.hi
    mu0 = functions.ArmMean(0.0, part.eta, part.e_soft, tau, low, high)
    mu1 = functions.ArmMean(1.0, part.eta, part.e_soft, tau, low, high)
    return functions.NuisanceTriple(part.e, mu0, mu1)


def mixed(folds: Iterable[Function]) -> Function:
    """The folds' mean function, for display and prediction; new data have no folds."""
    first, *others = folds
    return functions.Mixture(Constant(0.5), first, *others) if others else first


# -- the bias of an average from nuisance errors -----------------------------------------------


def remainder(
    state: FitState,
    parts: Sequence[FoldFit],
    term: ResultTerm = ATE_TERM,
    tau: Effect | None = None,
) -> Remainder:
    """Bias of an average from the errors of both nuisances, over the synthetic population.

    `parts` holds nuisances by fold, or one entry for all rows. `tau` is the effect in use. Its
    errors matter if the fitted propensity exceeds its limits.

    For both kinds of features, the bias is E[w (d_e + g) d_b] with w of `bias_weight`. The
    propensity in use is the fitted one minus g, because of its limits; d_e and d_b are the errors
    of the fitted functions. Where the limits leave adjustment to the mean outcome, the share
    `Priors.unadjusted` of each of its coefficients is added. If the effect has error d_tau, the ATE
    has the additional error E[(w f (1 - f) - 1) d_tau] with the fitted propensity f, and E[Y(1)]
    has E[w g (1 - f) d_tau].
    """
    biases = []
    for part in parts:
        bias, e = Remainder(0.0, 0.0), part.propensity(term)
        if part.pair is None and part.beyond is None:  # neither is learned from moments
            biases.append(bias)
            continue
        weigh = bias_weight(term, e(state.rows), state.clip)
        base = part.e.base if isinstance(part.e, Extended) else part.e
        assert isinstance(base, functions.Additive)
        free = replace(base, lo=-np.inf, hi=np.inf)
        unlimited = replace(part.e, base=free) if isinstance(part.e, Extended) else free
        fitted = np.clip(unlimited(state.rows), 0.0, 1.0)
        g = fitted - e(state.rows)
        if part.pair is not None:
            # once for all limits that are tried
            key = state.features, part.pair.e.gram
            move = state.rows.kept(*key)
            if move is None:
                move = state.rows.keep(key, _move(state, part.pair))
            weight, gap = _averaged(state, state.features, weigh, g)
            bias = part.pair.remainder(move @ weight @ move.T, move @ gap)
            size = float(np.linalg.norm(gap * part.pair.slopes[1]))
            bias = bias + Remainder(0.0, PRIORS.unadjusted * size)
        if part.beyond is not None:
            psi, joint = part.beyond
            weight, gap = _averaged(state, psi, weigh, g)
            bias = bias + joint.remainder(weight, gap)
        if tau is not None and e is part.e:
            lost = weigh * fitted * (1 - fitted) - 1
            if term.arm is not None:
                lost = weigh * g * np.abs(term.arm - fitted)
            bias = bias + Remainder(0.0, tau.mean_sd(state.rows, lost))
        biases.append(bias)
    return over_folds(biases)


def over_folds(biases: Sequence[Remainder]) -> Remainder:
    """Distribution of the mean of the folds' biases.

    The folds' errors are dependent: the folds share priors and the limitations of the features. By
    Minkowski's inequality, the sd of a mean is at most the mean of the sds.
    """
    mean, sd = np.mean([[bias.mean, bias.sd] for bias in biases], axis=0)
    return Remainder(float(mean), float(sd))


def _averaged(
    state: FitState, features: functions.Features, weigh: Vector, g: Vector
) -> tuple[Matrix, Vector]:
    """E[w phi phi'] and E[w g phi] over the synthetic population."""
    phi = state.rows.phi(features)
    # A product of a matrix with itself takes half the time.
    root = phi * np.sqrt(weigh / len(phi))[:, None]
    return np.asarray(root.T @ root), phi.T @ (weigh * g) / len(phi)


def _move(state: FitState, pair: RegressionPair) -> Matrix:
    """Matrix that maps moments of the synthetic features to moments of the rows."""
    rows, fit = state.rows, pair.e
    model = population.population_gram(state.features, rows, 1.0, np.ones(len(rows)))
    # rows of a fold or of all folds; noise may hide small counts
    scale = np.trace(model) / max(np.trace(fit.gram), len(model) * fit.gram_sd, 1e-9)
    return population.alignment(model, fit.gram * scale, fit.gram_sd * scale)


def remainder_weight(
    state: FitState, features: functions.Features, e: Function, term: ResultTerm = ATE_TERM
) -> Matrix:
    """E[w phi phi'] over the synthetic population, for w of `Estimand.bias_weight`."""
    phi, weigh = state.rows.phi(features), bias_weight(term, e(state.rows), state.clip)
    return np.asarray((phi.T * weigh) @ phi / len(phi))


# -- interactions -----------------------------------------------------------------------------

INTERACTION_SIZES = StageKey("nuisance", "residual sizes")
TREATMENT_INTERACTIONS = StageKey("nuisance", "treatment interactions")
OUTCOME_INTERACTIONS = StageKey("nuisance", "outcome interactions")


def interaction_steps(sizes: float, treatment: float, outcome: float) -> tuple[Step, ...]:
    """The releases of interactions, with their largest weights."""
    weights = {
        INTERACTION_SIZES: sizes,
        TREATMENT_INTERACTIONS: treatment,
        OUTCOME_INTERACTIONS: outcome,
    }
    return tuple(
        Step(key, partial(for_products, most=most), ("products",)) for key, most in weights.items()
    )


CURVES = 3
"""Number of products with curvatures for each pair."""

ADDITIVE = 0.05
"""Residual sd below which a column counts as additive, to allow for rounding."""


def refine(state: FitState, partials: Folds, size: float | None = None) -> Folds:
    """The same nuisances, with interactions if they are planned.

    `size` is a typical size of the outcome's residuals. It gives the prior sd of the mean outcome
    over the rows if the fit does not.
    """
    if not state.plan.has(TREATMENT_INTERACTIONS):
        return partials
    psi = interactions(state, partials)
    if psi is None:  # no products of these covariates
        state.unused(INTERACTION_SIZES, TREATMENT_INTERACTIONS, OUTCOME_INTERACTIONS)
        return partials
    # T - e is in [soft - 1, 1 - soft]: by the limits of e, or by clipping if T is a number
    soft = 1 - state.most if state.request.dose else state.soft_clip
    # A fold's nuisance was learned on the other fold. Its own residuals are at those rows.
    swapped = partials[::-1]
    treatment = by_fold(vault.OfTreatment("residual", p.e_soft, soft) for p in swapped)
    outcome = by_fold(vault.OutcomeResidual(p.eta, state.outcome) for p in swapped)
    first = vault.Cross(psi, state.weigh(treatment), 1 - soft, TREATMENT_INTERACTIONS.query)
    edges = cuts.score_edges(outcome.bound, cuts.SHAPE_OCTAVES)
    sizing = vault.SizeHistogram(outcome, edges, "|residual|")
    state.gather({INTERACTION_SIZES: sizing}, {TREATMENT_INTERACTIONS: first})
    even = 1.0
    if not state.request.dose:
        even = evenness(float(np.mean([p.e_soft(state.rows).mean() for p in partials])))
    es = _regressions(
        state,
        psi,
        TREATMENT_INTERACTIONS,
        first,
        noise_var=PRIORS.treatment_variance * even,
        spread=PRIORS.propensity_sd * np.sqrt(even),
    )
    look = state.release(INTERACTION_SIZES, sizing)
    sizes = cuts.without_noise_tail(look.value, float(look.noise_sd[0]), edges)
    if size:
        spread = float(np.sqrt(PRIORS.window_explained)) * size
    else:
        # prior sd of the additive part: its usual sd, or the sd of the fits if it is smaller
        prior = np.mean([p.pair.y.prior for p in partials if p.pair], axis=0)
        variances = prior * state.rows.phi(state.features).var(axis=0)
        fitted = float(np.sqrt(variances[state.features.order > 0].sum()))
        spread = min(PRIORS.outcome_sd * float(np.sqrt(state.variance)), fitted)
    # noise of a cross moment over the root of the mean eigenvalue of E[psi psi']; directions with
    # much smaller ones are shrunk, so their noise does not matter
    typical = float(np.sqrt((psi.of(state.rows) ** 2).mean()))
    noise = cross_noise(state, OUTCOME_INTERACTIONS, psi.cut) / (typical * state.count)
    lost = np.array([cuts.unseen_bias(sizes, threshold) for threshold in sizes.cuts])
    cut = cuts.Cut.least(sizes.cuts, noise, lost)
    ys = _regressions(
        state,
        psi,
        OUTCOME_INTERACTIONS,
        vault.Cross(psi, state.weigh(outcome), cut.threshold, OUTCOME_INTERACTIONS.query),
        noise_var=PRIORS.outcome_noise_sd**2 * state.variance,
        spread=spread,
        lost=cut.bias,
    )
    every = np.full(psi.size, True)
    pairs = [RegressionPair(e, y, every, one_factor=True) for e, y in zip(es, ys, strict=True)]
    return tuple(extended(p, psi, pair) for p, pair in zip(partials, pairs, strict=True))


NUISANCE_STEPS = (
    Step(first_stages.COLUMN_RANGES, 0.02, ("loose bounds",)),
    Step(
        first_stages.OUTCOME_RANGE,
        0.02,
        ("wide", "not released weights"),
        window_borders,
    ),
    Step(GRAM, 0.14),
    Step(TREATMENT, 0.07, ("not known propensity",)),
    Step(OUTCOME, 0.25),
    *interaction_steps(0.01, 0.06, 0.14),
)
"""Both nuisances, with their interactions if the base learns interactions."""

WEIGHTED_STEPS = (NUISANCE_STEPS[0], Step(ROW_WEIGHTS, 0.02, ("weights",)), *NUISANCE_STEPS[1:])
"""Nuisances that accept survey weights."""


def fit_nuisances(state: FitState) -> tuple[FitState, Folds, Remainder]:
    """Release the stages of `NUISANCE_STEPS` that `first_stages.prepare` has not released.

    Returns the nuisances by fold, and the bias of averages beyond the bias
    that the distributions of the nuisances describe.
    """
    state = with_outcomes(state, first_stages.OUTCOME_RANGE, window=True)
    state, partials = additive_nuisances(state)
    state, partials = with_lower_clip(state, partials)
    return state, *refine_supported(state, partials)


def refine_supported(
    state: FitState, partials: Folds, size: float | None = None
) -> tuple[Folds, Remainder]:
    """Add planned interactions if the evidence of some fold supports them.

    If interactions are dropped, the averages allow for the confounding that they may cause.
    """
    refined = refine(state, partials, size)
    beyond = [p.beyond for p in refined if p.beyond is not None]
    supported = any(pair.support > 0 for _, pair in beyond)
    if refined is partials or supported or len(beyond) < len(refined):
        return refined, Remainder(0.0, 0.0)
    biases, without = [], []
    for part, (psi, pair) in zip(refined, beyond, strict=True):
        weight = remainder_weight(state, psi, part.e)
        bias, (e, b) = pair.remainder(weight), pair.slopes
        shift = float(e @ weight @ b) + bias.mean  # with the confounding by the fitted coefficients
        biases.append(Remainder(0.0, float(np.hypot(bias.sd, shift))))
        # Interactions known to be zero keep the structure of saved results unchanged.
        none, unshared = np.zeros_like(pair.e.prior), np.zeros_like(pair.shared)
        zeros = [replace(fitted, prior=none, unsure=None) for fitted in (pair.e, pair.y)]
        zero = replace(pair, e=zeros[0], y=zeros[1], shared=unshared, before=pair)
        without.append(extended(part, psi, zero))
    return tuple(without), over_folds(biases)


def interactions(state: FitState, partials: Folds) -> Interactions | None:
    """The map psi, built over the synthetic population from released fits."""
    phi, slopes = state.rows.phi(state.features), []
    for part in partials:  # coefficients; boosted shapes use the nearest functions
        if part.pair is not None:
            slopes.append(part.pair.mean)
        else:
            values = np.stack([part.e_soft(state.rows), part.eta(state.rows)], axis=1)
            e, y = np.linalg.lstsq(phi, values, rcond=1e-6)[0].T
            slopes.append((e, y))
    e, y = (np.mean(coefs, axis=0) for coefs in zip(*slopes, strict=True))
    pairs, curved = _pairs(state, phi, e, y)
    if not pairs:
        return None
    indices, splits = functions.index_splits(state.features, (e, y), state.rows, PRIORS.index_steps)
    start = Interactions(
        state.features,
        indices,
        pairs,
        curved,
        phi.std(axis=0) + 1e-12,
        np.zeros((0, 0)),
        np.zeros(0),
        1.0,
        splits,
    )
    lift, left = regressed_out(start, state.rows)
    # factors of the columns: a mean square of one for each kind, times its share of the norm
    gain, spectra, kinds = np.zeros(left.shape[1]), [], _kinds(start)
    for columns, _, alike in kinds:
        residuals = left[:, columns]
        if alike:
            gain[columns] = gains(1 / np.sqrt(residuals.shape[1]), residuals.std(axis=0))
        else:  # steps are correlated
            gain[columns] = gains(1.0, np.sqrt((residuals**2).sum(axis=1).mean()))
        scaled = residuals * gain[columns]
        spectra.append(np.maximum(np.linalg.eigvalsh(scaled.T @ scaled / len(residuals)), 0.0))
    # Shares of the squared norm of psi that leave the smallest expected error of the propensity.
    # The noise of a moment grows with the norm of the whole psi; `noise` is its sd for a column of
    # norm 1. Along an eigenvector of eigenvalue l, a kind with the share a of the squared norm is
    # known with the precision a l / noise^2, beside its prior variance spread^2 l. If n eps is
    # small, the norm goes to few, likely functions. The algorithm is the multiplicative one of
    # optimal design (Silvey, Titterington and Torsney 1978).
    spreads = PRIORS.propensity_sd * np.array([spread for _, spread, _ in kinds])
    noise = cross_noise(state, TREATMENT_INTERACTIONS, 1.0) / state.count
    shares = np.full(len(spectra), 1 / len(spectra))
    for _ in range(SHARE_ROUNDS):
        slopes_of = np.zeros(len(shares))
        for k, (squares, spread) in enumerate(zip(spectra, spreads, strict=True)):
            error = 1 / (1 / (spread**2 * squares + 1e-300) + shares[k] * squares / noise**2)
            slopes_of[k] = np.sum(error**2 * squares) / noise**2
        shares = shares * np.sqrt(slopes_of)
        shares = np.maximum(shares / max(shares.sum(), 1e-300), LEAST_SHARE)
    for (columns, _, _), share in zip(kinds, shares / shares.sum(), strict=True):
        gain[columns] *= np.sqrt(share)
    psi = replace(start, lift=lift, gain=gain)
    norms = np.linalg.norm(psi.of(state.rows), axis=1)
    cut = float(np.quantile(norms, PRIORS.interaction_norm_quantile))
    return replace(psi, cut=cut) if cut > 0 else None


def _kinds(psi: Interactions) -> list[tuple[slice, float, bool]]:
    """Products of pairs, products with curvatures, and steps of an index.

    The columns of a kind have one prior variance. The prior sd of their sum is relative to the
    additive part. The columns of some kinds get equal sds.
    """
    many = len(psi.pairs), CURVES * len(psi.curved), len(psi.splits)
    spreads = PRIORS.pairs_spread, PRIORS.curved_spread, PRIORS.steps_spread
    ends = np.cumsum((0, *many)).tolist()
    return [
        (slice(ends[k], ends[k + 1]), spread, k < 2) for k, spread in enumerate(spreads) if many[k]
    ]


SHARE_ROUNDS = 40
"""Rounds for the shares of the norm; they then change by less than a hundredth."""

LEAST_SHARE = 0.01
"""Smallest share of a kind: its columns stay measurable, at a cost below 1% of the noise each."""


def regressed_out(
    start: Interactions, rows: Rows, weight: Vector | None = None
) -> tuple[Matrix, Matrix]:
    """Regress the raw columns on phi: coefficients, shape (p, K), and residuals, shape (N, K)."""
    phi = rows.phi(start.features)
    raw = np.stack([column.copy() for column in start.raw(rows)], axis=1)
    root = 1.0 if weight is None else np.sqrt(weight)[:, None]
    lift = np.asarray(np.linalg.lstsq(phi * root, raw * root, rcond=1e-6)[0], float)
    return lift, raw - phi @ lift


def gains(size: Vector | float, left: Vector) -> Vector:
    """Factors that scale columns with these sds to the desired sds, shape (K,).

    A column that is already additive has a residual of zero and is not scaled up. Examples are the
    square of a binary column and the product of two levels of one factor.
    """
    return np.where(left > ADDITIVE, size / np.maximum(left, ADDITIVE), 0.0)


ColumnPairs = tuple[tuple[int, int], ...]


def _pairs(state: FitState, phi: Matrix, e: Vector, y: Vector) -> tuple[ColumnPairs, ColumnPairs]:
    """Pairs of linear functions of different terms, for the columns with the largest slopes.

    The second result holds the pairs whose curvatures are multiplied too.
    """
    features = state.features
    linear = np.flatnonzero(features.order == 1)
    strength = sum((c * phi.std(axis=0)) ** 2 / max(float(c @ c), 1e-300) for c in (e, y))
    kept = sorted(linear, key=lambda j: -float(np.asarray(strength)[j]))
    columns = features.design.columns
    bent = [j for j in kept if columns[features.column[j]].kind != "indicator"]
    pairs, curved = (
        tuple(
            (int(i), int(j))
            for i, j in combinations(sorted(chosen), 2)
            if features.group[i] != features.group[j]
        )
        for chosen in (kept[: PRIORS.interaction_columns], bent[: PRIORS.curved_columns])
    )
    return pairs, curved


def _regressions(
    state: FitState,
    psi: Interactions,
    stage: StageKey,
    query: vault.Cross,
    *,
    noise_var: float,
    spread: float,
    lost: float = 0.0,
) -> list[Regression]:
    """Regress a nuisance's residuals for each fold, given the noise variance and the prior sd.

    `spread` is the prior sd of the additive part. Products of pairs and curved products each have
    one prior variance. Clipping may remove any function h of the covariates with root mean square
    of at most `lost`. By the Cauchy-Schwarz inequality, a moment v'E[psi h] is at most `lost` times
    the root of v'E[psi psi']v, and has an error of at most this size.
    """
    # one prior variance for each kind; its center gives the kind its spread, relative to `spread`
    values, centre, group = psi.of(state.rows), [], np.zeros(psi.size, int)
    for columns, relative, _ in _kinds(psi):
        square = (values[:, columns] ** 2).sum(axis=1).mean()
        if square > 0:  # otherwise all columns are additive
            centre.append(2 * np.log(spread * relative) - np.log(square))
        group[columns] = max(len(centre), 1)
    unsure = np.ones(psi.size, bool)
    prior = Prior(
        group,
        np.ones(psi.size),
        1.0,
        np.array(centre),
        PRIORS.kinds_pull,
        fit_noise=True,
        unsure=unsure,
    )
    releases, regressions = state.moments(stage, query), []
    noise_sd, ones = float(releases[0].noise_sd[0]), np.ones(len(state.rows))
    for cross, sd, share in first_stages.complements([r.value for r in releases], noise_sd):
        rows = state.count * share
        gram = population.population_gram(psi, state.rows, rows, ones)
        moments = Moments(gram, cross, 0.0, sd, noise_var, lost**2 * rows * gram)
        regression = fit(moments, prior).regression
        assert regression is not None
        regressions.append(regression)
    return regressions
