"""Second pass of the nuisances: what the additive fits leave of products of covariates.

Residuals of treatment and outcome are regressed on `features.products.Interactions`: products of
the columns that matter most, chosen from released numbers. How much of them is believed follows
from marginal likelihood.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, TypeVar

import numpy as np

from privcausal import vault
from privcausal.estimators import survey
from privcausal.estimators.budget import Stages, StageWeight
from privcausal.features import functions
from privcausal.features.basis import FeatureMap
from privcausal.features.expansions import Interactions
from privcausal.features.rows import Features, Rows
from privcausal.inference import cuts, population
from privcausal.inference.confounding import RegressionPair, Remainder
from privcausal.inference.cuts import cut_of_least_error
from privcausal.inference.effects import Effect, Piece
from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import Moments, Posterior, Prior, Regression, fit
from privcausal.request.plan import StageKey
from privcausal.request.request import LEAST_PROPENSITY, RISKS, Request
from privcausal.typing import Matrix, Vector

# Private nuisances from noisy moments, and the bias that their errors leave in an average.

F = TypeVar("F")


@dataclass(frozen=True, eq=False)
class FoldFit:
    """e(x) and eta(x) = E[Y | x] for one fold's rows, learned on the others.

    `e` is cut to the arm clip, `e_soft` to `FitState.soft_clip`. `pair` is the joint law of their
    coefficients (None for a known propensity, and where they were boosted), `beyond` that of
    interactions.
    """

    e: functions.Function
    e_soft: functions.Function
    eta: functions.Function
    pair: RegressionPair | None
    beyond: tuple[Interactions, RegressionPair] | None = None


def additive_nuisances(
    state: survey.Survey,
) -> tuple[survey.Survey, survey.Grams, tuple[FoldFit, ...]]:
    """Gram, propensity and mean outcome, one pair per fold (one without cross-fitting).

    One pass over the rows serves all three.
    """
    known, numbers = state.known, state.session.plan.request.asked.dose
    state, grams = moments_of(state, {Stages.TREATMENT: vault.Assigned()} if known is None else {})
    if known is not None:
        etas = outcomes(state, grams)
        found = [FoldFit(known, known, mean(state, eta.mean), None) for eta in etas]
        return state, grams, tuple(found)
    es = means(state, grams, Stages.TREATMENT, 0.5) if numbers else propensities(state, grams)
    return state, grams, paired(state, es, outcomes(state, grams))


def moments_of(
    state: survey.Survey, treatments: Mapping[StageKey, vault.Transform]
) -> tuple[survey.Survey, survey.Grams]:
    """The Gram, in one pass with what will be asked of the outcome and of each treatment."""
    centre = state.centre
    outcome: vault.Transform = centre
    if state.window is not None:
        outcome = vault.OutcomeResidual(
            functions.Constant(0.5 * (centre.lo + centre.hi)), state.outcome
        )
    bounds = {Stages.OUTCOME: centre.bound} | {k: t.bound for k, t in treatments.items()}
    targets = {Stages.OUTCOME: outcome, **treatments}
    crosses = {k: vault.Cross(state.features, t, bounds[k], k.query) for k, t in targets.items()}
    return survey.gram_of(state, crosses)


def paired(
    state: survey.Survey, es: Sequence[Posterior], etas: Sequence[Posterior]
) -> tuple[FoldFit, ...]:
    found = []
    for e, eta in zip(es, etas, strict=True):
        assert e.regression is not None
        assert eta.regression is not None
        found.append(
            from_pair(state, RegressionPair(e.regression, eta.regression, state.features.order > 0))
        )
    return tuple(found)


def from_pair(state: survey.Survey, joint: RegressionPair) -> FoldFit:
    coef, eta = joint.mean
    e = functions.Additive(state.features, coef, 0.5, state.clip, 1 - state.clip)
    soft = replace(e, lo=state.soft_clip, hi=1 - state.soft_clip)
    return FoldFit(e, soft, mean(state, eta), joint)


def clipped(
    state: survey.Survey, partials: tuple[FoldFit, ...]
) -> tuple[survey.Survey, tuple[FoldFit, ...]]:
    """The same with a clip that leaves the propensities of a rare treatment as they are."""
    if partials[0].pair is None:
        return state, partials
    phi = state.rows.phi(state.features)
    pairs = [p.pair for p in partials if p.pair is not None]
    share = 0.5 + float(np.mean([phi.mean(axis=0) @ pair.mean[0] for pair in pairs]))
    noise = float(np.sqrt(pairs[0].e.error[0, 0])) / max(float(pairs[0].e.gram[0, 0]), 1e-9)
    state.session.look_for(min(share, 1 - share), noise)
    lower = floored(state, share, noise)
    if lower is state:
        return state, partials
    return lower, tuple(from_pair(lower, pair) for pair in pairs)


def floored(state: survey.Survey, share: float, noise: float) -> survey.Survey:
    """The same with a clip for this noisy share of the treated, of at least two noise sds."""
    rarer = max(min(share, 1 - share), 2 * noise)
    if rarer >= PRIORS.rare_share:
        return state
    return replace(state, floor=max(state.clip * rarer / PRIORS.rare_share, LEAST_PROPENSITY))


def updated_for_effect(
    state: survey.Survey, partials: tuple[FoldFit, ...], tau: functions.Function
) -> tuple[FoldFit, ...]:
    """The same moments read again once the effect is known: only the baseline confounds."""
    effect, found = float(np.mean(tau(state.rows))), []
    for part in partials:
        again = part
        if part.pair is not None:
            again = from_pair(state, replace(part.pair, effect=effect))
        if part.beyond is not None:
            psi, joint = part.beyond
            again = extended(again, psi, replace(joint, effect=effect))
        found.append(again)
    return tuple(found)


def extended(part: FoldFit, psi: Interactions, joint: RegressionPair) -> FoldFit:
    """Additive nuisances plus interactions."""
    e, eta = joint.mean
    additive = (
        f.base if isinstance(f, functions.Extended) else f for f in (part.e, part.e_soft, part.eta)
    )
    one, soft, mu = (
        functions.Extended(f, psi, c) for f, c in zip(additive, (e, e, eta), strict=True)
    )
    return FoldFit(one, soft, mu, part.pair, (psi, joint))


def _crosses(
    state: survey.Survey, grams: survey.Grams, stage: StageKey
) -> list[tuple[population.GramEstimate, Vector, float]]:
    """Gram, cross moments and their noise sd, by fold."""
    releases = state.session.moments(stage, state.session.asked[stage])
    found = survey.complements([r.value for r in releases], float(releases[0].noise_sd[0]))
    return [(g, cross, sd) for g, (cross, sd, _) in zip(grams.outside, found, strict=True)]


def propensities(
    state: survey.Survey, grams: survey.Grams, stage: StageKey = Stages.TREATMENT
) -> list[Posterior]:
    found = []
    for gram, cross, sd in _crosses(state, grams, stage):
        share = 0.5 + float(cross[0]) / max(float(gram.value[0, 0]), 1e-9)
        # Var(T) over the most that it can be; a rare treatment's propensity varies less, too
        most = share * (1 - share) / PRIORS.even_variance
        even = float(np.clip(most, PRIORS.least_variance, 1.0))
        moments = Moments(gram.value, cross, gram.sd, sd, PRIORS.treatment_variance * even)
        size = even * PRIORS.propensity_sd**2 / _slope_variance(state.features)
        spreads = PRIORS.propensity_intercept_sd**2, size
        base = state.session.regression
        found.append(base.nuisance(moments, state.features, *spreads, fit_noise=False))
    return found


def _slope_variance(features: FeatureMap) -> float:
    """Variance of phi'beta for slopes of unit variance on the linear functions."""
    return (
        float(max((features.order == 1).sum(), 1)) * population.amplitude(len(features.blocks)) ** 2
    )


def outcomes(state: survey.Survey, grams: survey.Grams) -> list[Posterior]:
    return means(state, grams, Stages.OUTCOME, state.centre.bound)


def means(
    state: survey.Survey, grams: survey.Grams, stage: StageKey, half: float
) -> list[Posterior]:
    """Of a number within `half` of the middle of its range."""
    found = []
    weights = state.features.weight(state.rows.phi(state.features))
    relative = float(weights.mean() / weights.min())
    for gram, cross, sd in _crosses(state, grams, stage):
        most = _most_variance(cross[0], sd, gram, half, relative)
        moments = Moments(gram.value, cross, gram.sd, sd, PRIORS.outcome_noise_sd**2 * most)
        size = PRIORS.outcome_sd**2 * most / _slope_variance(state.features)
        spreads = (PRIORS.outcome_intercept_sd * half) ** 2, size
        base = state.session.regression
        found.append(base.nuisance(moments, state.features, *spreads, fit_noise=True))
    return found


def _most_variance(
    first: float, noise_sd: float, gram: population.GramEstimate, half: float, relative: float
) -> float:
    """The most that an outcome in [-half, half] with this noisy sum varies (Bhatia and Davis 2000).

    It is (half - mean)(half + mean), for a mean two noise sds nearer to the middle than is seen:
    the mean of rare events, or of amounts that are mostly none, cannot vary much with covariates.
    As the sum is weighted, the mean of all rows may be up to `relative` times as far from the
    nearer end: the mean weight over the least.
    """
    rows = max(float(gram.value[0, 0]), 1.0)
    mean = max(abs(first) - 2 * noise_sd, 0.0) / rows
    away = min(relative * max(half - mean, max(noise_sd, half) / rows), half)
    return away * (2 * half - away)


def mean(state: survey.Survey, coef: Vector) -> functions.Function:
    outcome = state.centre
    middle = 0.5 * (outcome.lo + outcome.hi)
    return functions.Additive(state.features, coef, middle, outcome.lo, outcome.hi)


def limited(part: FoldFit, low: float, high: float) -> FoldFit:
    """The same with a propensity for weights in [low, high], or its own limits where narrower."""
    if part.pair is None:
        return part
    e = part.e
    base = e.base if isinstance(e, functions.Extended) else e
    assert isinstance(base, functions.Additive)
    base = replace(base, lo=max(base.lo, low), hi=min(base.hi, high))
    return replace(part, e=replace(e, base=base) if isinstance(e, functions.Extended) else base)


def by_fold(make: Callable[[F], vault.Transform], folds: Sequence[F]) -> vault.Transform:
    """The transform of the only nuisance, or each row's own fold's."""
    transforms = tuple(make(fold) for fold in folds)
    return transforms[0] if len(transforms) == 1 else vault.ByFold(transforms)


RESIDUAL_SHARE = 0.25
"""Cut of the residual product, as a share of where outcomes are seen, where no histogram of it is
bought: (T - e)(Y - eta) is mostly below half the residual's size."""


def residual_cross(
    state: survey.Survey, partials: tuple[FoldFit, ...], arm: int | None = None
) -> vault.Cross:
    """Sum of w (T - e)(Y - eta) phi with a public cut; of several arms, with one against others."""
    target = residual_product(state, partials, arm)
    cut = 2 * RESIDUAL_SHARE * state.centre.bound
    return vault.Cross(state.effect_features, target, cut, "residual product")


def residual_effect(
    state: survey.Survey,
    grams: survey.Grams,
    partials: tuple[FoldFit, ...],
    asked: tuple[StageKey, vault.Cross] | None = None,
) -> Effect:
    """tau(x) minimising sum [(Y - eta) - (T - e) tau(x)]^2 (Nie and Wager 2021, Eq. 4).

    A first look, with a public cut and no correction for the nuisances' errors (for these see
    `orthogonal`). Its bias enters the arms' means but no average: with the right propensity, the
    mean of a doubly robust score is that of the effect whatever the means are, and products with an
    error of the propensity are of second order.
    """
    features, bound = state.effect_features, state.centre.bound
    stage, cross = asked or (Stages.NUISANCE_RESIDUALS, residual_cross(state, partials))
    release, cut = state.session.release(stage, cross), cross.cut
    gram, gram_sd, mean_weight = weights_gram(state, grams, partials, Stages.NUISANCE_WEIGHTS)
    noise_var = (0.5 * cut) ** 2 / mean_weight
    found = Moments(gram, release.value, gram_sd, float(release.noise_sd[0]), noise_var)
    constant = min(16 * cut**2, 0.25 * bound**2)
    base = state.session.regression
    return as_effect(state, base.effect(found, features, constant, cut**2 / 40))


def residual_product(
    state: survey.Survey, partials: tuple[FoldFit, ...], arm: int | None = None
) -> vault.Transform:
    """(T - e)(Y - eta), each row by its own fold's nuisances; T is one of several arms, or T."""
    soft = state.soft_clip

    def product(part: FoldFit) -> vault.Transform:
        found = vault.ResidualProduct(part.e_soft, part.eta, state.outcome, soft)
        return found if arm is None else vault.OfArm(found, arm)

    return by_fold(product, partials)


def as_effect(state: survey.Survey, posterior: Posterior) -> Effect:
    function = functions.Additive(state.effect_features, posterior.mean)
    return Effect((Piece(function, posterior.cov),), 2 * state.outcome.bound)


def sizes_of(target: vault.Transform) -> vault.SizeHistogram:
    """The query for a histogram of a score's size, in half octaves up to its bound."""
    return vault.SizeHistogram(target, cuts.size_edges(target.bound))


def read_sizes(
    state: survey.Survey, order: vault.SizeHistogram, stage: StageKey
) -> cuts.AbsHistogram:
    """Cleaned noisy histogram of a score's size."""
    release = state.session.release(stage, order)
    return cuts.without_noise_tail(release.value, float(release.noise_sd[0]), order.edges)


def cross_noise(state: survey.Survey, stage: StageKey, norm: float) -> float:
    """Noise sd of a cross moment per unit of its cut."""
    substitute = state.session.plan.request.trust.neighbors == "substitute"
    return state.session.noise_sd(stage, 2.0 if substitute else 1.0, norm)


def weights_gram(
    state: survey.Survey, grams: survey.Grams, partials: tuple[FoldFit, ...], stage: StageKey | None
) -> tuple[Matrix, float, float]:
    """Sum of (T - e)^2 w phi phi', its noise sd and the mean weight.

    Where the `stage` is planned (base "linear") it is bought. Else it is computed from the
    synthetic population, with (T - e)^2 replaced by its mean e (1 - e), and moved by what the noisy
    Gram says beyond the population.
    """
    e = partials[0].e_soft(state.rows)
    mean_weight = float(np.mean(e * (1 - e)))
    if stage is not None and state.session.plan.has(stage):
        soft = state.soft_clip
        factor = by_fold(lambda p: vault.TreatmentResidual(p.e_soft, soft), partials)
        mechanism = vault.Gram(state.effect_features, factor=factor)
        release = state.session.release(stage, mechanism)
        sd = survey.off_diagonal_sd(mechanism, release)
        return mechanism.matrix(release.value), sd, mean_weight
    rows, features = state.rows, state.effect_features
    model = population.population_gram(features, rows, state.population.count, e * (1 - e))
    whole = grams.whole.sub(state.effect_index)
    seen = whole.value - whole.model
    return model + mean_weight * seen, whole.sd * mean_weight, mean_weight


def nuisance_of(
    part: FoldFit, tau: functions.Function, outcome: vault.Outcome
) -> functions.NuisanceTriple:
    """Arm means around eta: mu_t = eta + (t - e) tau."""
    low, high = outcome.lo, outcome.hi
    mu0 = functions.ArmMean(0.0, part.eta, part.e_soft, tau, low, high)
    mu1 = functions.ArmMean(1.0, part.eta, part.e_soft, tau, low, high)
    return functions.NuisanceTriple(part.e, mu0, mu1)


def overall(partials: tuple[FoldFit, ...]) -> FoldFit:
    """The folds' mean nuisances, to show and predict with: folds only exist for rows."""
    if len(partials) == 1:
        return partials[0]
    (one, two), half = partials, functions.Constant(0.5)
    return replace(
        one,
        e=functions.Mixture(half, one.e, two.e),
        e_soft=functions.Mixture(half, one.e_soft, two.e_soft),
        eta=functions.Mixture(half, one.eta, two.eta),
    )


def mixed(first: functions.Function, second: functions.Function) -> functions.Function:
    """Half of each."""
    return functions.Mixture(functions.Constant(0.5), first, second)


# -- what their errors leave in an average ----------------------------------------------------


def remainder(
    state: survey.Survey,
    parts: Sequence[FoldFit],
    estimand: str = "ATE",
    tau: Effect | None = None,
) -> Remainder:
    """Bias of an average by the errors of both nuisances, over the synthetic population.

    `parts` holds nuisances by fold, or one for all. `tau` is the effect in use, whose errors matter
    where the propensity's limits leave something out.
    """
    return over_folds([_remainder(state, part, estimand, tau) for part in parts])


def over_folds(found: Sequence[Remainder]) -> Remainder:
    """Law of the mean of the folds' biases.

    The folds' errors are not independent (they share priors, and what the features lack): by
    Minkowski's inequality the sd of a mean is at most the mean of the sds.
    """
    mean, sd = np.mean([[one.mean, one.sd] for one in found], axis=0)
    return Remainder(float(mean), float(sd))


def _remainder(state: survey.Survey, part: FoldFit, estimand: str, tau: Effect | None) -> Remainder:
    """Law of E[w (d_e + g) d_b], w as in `remainder_weight`, for both kinds of features.

    The propensity in use is the fitted one less g, by its limits; d_e and d_b are the errors of the
    fitted ones. What no feature can express gets the sd `Priors.unseen_confounding` times what
    fitted interactions confound, as other shapes confound where products do. Where the limits leave
    adjustment to the mean outcome, it gets that times each of its coefficients. Where the effect
    errs by d_tau, the ATE errs by E[w g (1 - 2e) d_tau] more, E[Y(1)] by E[w g (1 - e) d_tau].
    """
    found = Remainder(0.0, 0.0)
    if part.pair is None and part.beyond is None:
        return found
    e = part.e_soft if estimand in ("ATT", "ATO") else part.e
    weigh = _weights(state, e, estimand)
    g = np.clip(_uncut(part.e)(state.rows), 0.0, 1.0) - e(state.rows)
    if part.pair is not None:
        move = _move(state, part.pair)
        weight, gap = _averaged(state, state.features, weigh, g)
        found = part.pair.remainder(move @ weight @ move.T, move @ gap)
        found = found + Remainder(
            0.0, PRIORS.unseen_confounding * float(np.linalg.norm(gap * part.pair.slopes[1]))
        )
    if part.beyond is not None:
        psi, joint = part.beyond
        weight, gap = _averaged(state, psi, weigh, g)
        unseen = PRIORS.unseen_confounding * abs(joint.confounding(weight))
        found = found + joint.remainder(weight, gap) + Remainder(0.0, unseen)
    if tau is not None and e is part.e:
        p = e(state.rows)
        lost = weigh * g * {RISKS[0]: p, RISKS[1]: 1 - p}.get(estimand, 1 - 2 * p)
        if estimand == "ATE":  # its ratio by the balance takes off what a constant error does
            lost = lost - lost.mean()
        found = found + Remainder(0.0, tau.mean_sd(state.rows, lost))
    return found


def _averaged(
    state: survey.Survey, features: Features, weigh: Vector, g: Vector
) -> tuple[Matrix, Vector]:
    """E[w phi phi'] and E[w g phi] over the synthetic population."""
    phi = state.rows.phi(features)
    return np.asarray((phi.T * weigh) @ phi / len(phi)), phi.T @ (weigh * g) / len(phi)


def _uncut(e: functions.Function) -> functions.Function:
    if isinstance(e, functions.Extended):
        return replace(e, base=_uncut(e.base))
    assert isinstance(e, functions.Additive)
    return replace(e, lo=-np.inf, hi=np.inf)


def _move(state: survey.Survey, pair: RegressionPair) -> Matrix:
    """Moves moments of the synthetic features to the rows', once for all limits that are tried."""

    def moved() -> Matrix:
        rows, one = state.rows, pair.e
        model = population.population_gram(state.features, rows, 1.0, np.ones(len(rows)))
        # of the rows of a fold, or of all: few of them may be hidden by the noise
        scale = np.trace(model) / max(np.trace(one.gram), len(model) * one.gram_sd, 1e-9)
        return population.alignment(model, one.gram * scale, one.gram_sd * scale)

    return state.rows.memo((state.features, pair.e.gram), moved)


def product_confounding(state: survey.Survey, parts: Sequence[FoldFit], estimand: str) -> float:
    """Most that the fitted interactions can confound: root of E[w e_psi^2] E[w b_psi^2].

    e_psi = psi'beta_e and b_psi = psi'(beta_y - tau beta_e), w as for the remainder; the mean over
    folds, 0 without interactions.
    """
    found = [0.0] * len(parts)
    for k, part in enumerate(parts):
        if part.beyond is not None:
            psi, joint = part.beyond
            e, b = joint.slopes
            used = part.e if estimand == "ATE" else part.e_soft
            weight = remainder_weight(state, psi, used, estimand)
            found[k] = float(np.sqrt((e @ weight @ e) * (b @ weight @ b)))
    return float(np.mean(found))


def remainder_weight(
    state: survey.Survey, features: Features, e: functions.Function, estimand: str = "ATE"
) -> Matrix:
    """W = E[w phi phi'] over the synthetic population: how errors enter an average's score.

    Let the truth be e + d_e, eta + d_y, with E[Y | X, T] = eta + d_y + (T - e - d_e) tau, and the
    effect tau be right. Then with d_b = d_y - tau d_e the mean of each score errs by E[w d_e d_b]:

    - ATE: Y - mu_T has mean d_b in both arms, as mu_T = eta + (T - e) tau; and
      E[(T - e)/(e (1 - e)) | X] = d_e / (e (1 - e)). So w = 1 / (e (1 - e)). Of it 1 / e is that
      of E[Y(1)], and 1 / (1 - e) that of E[Y(0)].
    - ATT: Y - mu0 = Y - eta + e tau has mean T tau + d_b. E[(T - e)/(1 - e) | X] = d_e / (1 - e),
      and T (T - e)/(1 - e) = T. So sum(score) / sum(T) has mean
      E[T tau]/E[T] + E[d_e d_b / (1 - e)]/E[T]: w = 1 / ((1 - e) E[T]).
    - ATO: (T - e)(Y - eta) = (T - e)(d_y + (T - e - d_e) tau + u) has mean
      E[h tau] + E[d_e d_y], and (T - e)^2 has mean E[h] + E[d_e^2], for h = Var(T | X). So the
      ratio errs by E[d_e (d_y - tau d_e)] / E[(T - e)^2] for the tau it estimates:
      w = 1 / E[(T - e)^2], taken to be 1 / E[e (1 - e)].
    - PLR: the same before the division, w = 1. Of several arms the mean of the score of arm j errs
      by E[d_j (d_y - sum_i tau_i d_i)], and the slopes by E[(T - e)(T - e)']^-1 times that.

    Where the effect errs too, by d_tau, the ATE errs by E[d_e d_tau (1 - 2e)/(e (1 - e))] more,
    from which its ratio by the balance takes what is due to a constant d_tau; the ATT by
    -E[d_e d_tau e/(1 - e)]/E[T], which is nothing for constant d_tau and e; the ATO by nothing.
    """
    phi = state.rows.phi(features)
    return np.asarray((phi.T * _weights(state, e, estimand)) @ phi / len(phi))


def _weights(state: survey.Survey, e: functions.Function, estimand: str) -> Vector:
    """w at the synthetic rows."""
    p = e(state.rows)
    if estimand == "PLR":
        return np.ones_like(p)
    if estimand == "ATO":
        return np.full_like(p, 1 / np.mean(p * (1 - p)))
    if estimand == "ATT":
        return np.asarray(1 / ((1 - np.minimum(p, 1 - state.clip)) * np.mean(p)))
    if estimand in RISKS:
        return np.asarray(1 / (p if estimand == RISKS[1] else 1 - p))
    return np.asarray(1 / (p * (1 - p)))


INTERACTIONS = (
    Stages.INTERACTION_SIZES,
    Stages.TREATMENT_INTERACTIONS,
    Stages.OUTCOME_INTERACTIONS,
)
"""Their stages."""

CURVES = 3
"""Products with curvatures that each pair has."""

ADDITIVE = 0.05
"""Columns of which additive functions leave no larger sd are additive, but for rounding."""


def interaction_needs(
    request: Request, treatment: float, outcome: float, sizes: float
) -> list[StageWeight]:
    if len(request.formula.terms) < 2:  # products are of two terms
        return []
    return [
        StageWeight(Stages.INTERACTION_SIZES, sizes),
        StageWeight(Stages.TREATMENT_INTERACTIONS, treatment),
        StageWeight(Stages.OUTCOME_INTERACTIONS, outcome),
    ]


def refine(
    state: survey.Survey, partials: tuple[FoldFit, ...], spread: float | None = None
) -> tuple[FoldFit, ...]:
    """The same nuisances with interactions, where they are planned.

    `spread` is a prior sd of the mean outcome over the rows, where its fit does not give it.
    """
    if not state.session.plan.has(Stages.TREATMENT_INTERACTIONS):
        return partials
    psi = interactions(state, partials)
    if psi is None:  # the covariates have no products
        state.session.unused(*INTERACTIONS)
        return partials
    soft = state.residual_clip
    # the nuisance of a fold's rows was learned on the other folds': those are its own residuals
    own = partials[::-1]
    treatment = by_fold(lambda p: vault.TreatmentResidual(p.e_soft, soft), own)
    outcome = by_fold(lambda p: vault.OutcomeResidual(p.eta, state.outcome), own)
    half = state.centre.bound
    first = vault.Cross(psi, treatment, 1 - soft, Stages.TREATMENT_INTERACTIONS.query)
    sizing = replace(sizes_of(outcome), what="|residual|")
    state.session.gather({Stages.INTERACTION_SIZES: sizing}, {Stages.TREATMENT_INTERACTIONS: first})
    es = _regressions(
        state, psi, Stages.TREATMENT_INTERACTIONS, first,
        noise_var=PRIORS.treatment_variance, spread=PRIORS.propensity_sd,
    )  # fmt: skip
    sizes = read_sizes(state, sizing, Stages.INTERACTION_SIZES)
    spread = spread or _outcome_spread(state, partials)
    cut = cut_of_least_error(sizes, _noise_per_cut(state, psi))
    ys = _regressions(
        state, psi, Stages.OUTCOME_INTERACTIONS,
        vault.Cross(psi, outcome, cut.at, Stages.OUTCOME_INTERACTIONS.query),
        noise_var=(PRIORS.outcome_noise_sd * half) ** 2, spread=spread,
        lost=cut.bias,
    )  # fmt: skip
    pairs = [RegressionPair(e, y, np.full(psi.size, True)) for e, y in zip(es, ys, strict=True)]
    return tuple(extended(p, psi, pair) for p, pair in zip(partials, pairs, strict=True))


def _noise_per_cut(state: survey.Survey, psi: Interactions) -> float:
    """Noise sd of a mean outcome along one direction of psi, per unit of the residuals' cut.

    Without shrinkage its mean square is that of a cross moment times the mean eigenvalue of
    E[psi psi']^-1. What a cut takes off is of the same unit.
    """
    moments = population.population_gram(psi, state.rows, 1.0, np.ones(len(state.rows)))
    inverse = np.linalg.pinv(moments, rcond=1e-6, hermitian=True)
    noise = cross_noise(state, Stages.OUTCOME_INTERACTIONS, psi.cut)
    return noise * float(np.sqrt(np.trace(inverse) / psi.size)) / state.population.count


def _outcome_spread(state: survey.Survey, partials: tuple[FoldFit, ...]) -> float:
    """Prior sd of the additive part: the public one, or that of the fits where it is less.

    The declared range of an outcome says little of its spread.
    """
    phi = state.rows.phi(state.features)
    fitted = np.mean([p.pair.y.prior for p in partials if p.pair], axis=0)
    found = float(np.sqrt((fitted * phi.var(axis=0))[state.features.order > 0].sum()))
    return min(PRIORS.outcome_sd * state.centre.bound, found)


def interactions(state: survey.Survey, partials: tuple[FoldFit, ...]) -> Interactions | None:
    """The map psi, built over the synthetic population from released fits."""
    phi = state.rows.phi(state.features)
    means = [_slopes(p, phi, state.rows) for p in partials]
    e, y = np.mean([m[0] for m in means], axis=0), np.mean([m[1] for m in means], axis=0)
    pairs, curved = _pairs(state, phi, e, y)
    if not pairs:
        return None
    start = Interactions(
        state.features,
        None,
        pairs,
        curved,
        phi.std(axis=0) + 1e-12,
        np.zeros((0, 0)),
        np.zeros(len(pairs) + CURVES * len(curved)),
        1.0,
    )
    lift, left = regressed_out(start, state.rows)
    many = CURVES * len(curved)
    size = np.r_[
        np.full(len(pairs), PRIORS.pairs_size / np.sqrt(len(pairs))),
        np.full(many, PRIORS.curved_size / np.sqrt(many or 1)),
    ]
    psi = replace(start, lift=lift, gain=gains(size, left.std(axis=0)))
    norms = np.linalg.norm(psi.of(state.rows), axis=1)
    cut = float(np.quantile(norms, PRIORS.interaction_norm_quantile))
    return replace(psi, cut=cut) if cut > 0 else None


def _slopes(part: FoldFit, phi: Matrix, rows: Rows) -> tuple[Vector, Vector]:
    """Coefficients of propensity and mean outcome: of shapes, those of the nearest functions."""
    if part.pair is not None:
        return part.pair.mean
    values = np.stack([part.e_soft(rows), part.eta(rows)], axis=1)
    e, y = np.linalg.lstsq(phi, values, rcond=1e-6)[0].T
    return e, y


def regressed_out(
    start: Interactions, rows: Rows, weight: Vector | None = None
) -> tuple[Matrix, Matrix]:
    """Regression of the raw columns on phi, shape (p, K), and what it leaves of them, (N, K)."""
    phi = rows.phi(start.features)
    raw = np.stack([column.copy() for column in start.raw(rows)], axis=1)
    root = 1.0 if weight is None else np.sqrt(weight)[:, None]
    lift = np.asarray(np.linalg.lstsq(phi * root, raw * root, rcond=1e-6)[0], float)
    return lift, raw - phi @ lift


def gains(size: Vector | float, left: Vector) -> Vector:
    """Factors that give columns of these sds the wanted ones, shape (K,).

    What is additive already (a square of a binary column, a product of levels of one factor) has
    nothing left to scale up.
    """
    return np.where(left > ADDITIVE, size / np.maximum(left, ADDITIVE), 0.0)


ColumnPairs = tuple[tuple[int, int], ...]


def _pairs(
    state: survey.Survey, phi: Matrix, e: Vector, y: Vector
) -> tuple[ColumnPairs, ColumnPairs]:
    """Pairs of linear functions of different terms, of the columns with the largest slopes.

    The second are those whose curvatures are multiplied too.
    """
    features = state.features
    linear = np.flatnonzero(features.order == 1)
    strength = sum((c * phi.std(axis=0)) ** 2 / max(float(c @ c), 1e-300) for c in (e, y))
    kept = sorted(linear, key=lambda j: -float(np.asarray(strength)[j]))
    columns = features.design.columns
    bent = [j for j in kept if columns[features.column[j]].kind != "indicator"]

    def pairs(chosen: Sequence[Any]) -> ColumnPairs:
        return tuple(
            (int(i), int(j))
            for i, j in combinations(sorted(chosen), 2)
            if features.group[i] != features.group[j]
        )

    return pairs(kept[: PRIORS.interaction_columns]), pairs(bent[: PRIORS.curved_columns])


def _regressions(
    state: survey.Survey,
    psi: Interactions,
    stage: StageKey,
    order: vault.Cross,
    *,
    noise_var: float,
    spread: float,
    lost: float = 0.0,
) -> list[Regression]:
    """Of a nuisance's residuals for each fold, from prior variance of noise and additive part's sd.

    There is one variance for products of pairs and one for curved products. A cut may take any
    function of the covariates of root mean square `lost` off: by Cauchy and Schwarz a moment
    v'E[psi h] is at most that times the root of v'E[psi psi']v, and errs by as much.
    """
    releases = state.session.moments(stage, order)
    ones, found = np.ones(len(state.rows)), []
    noise_sd = float(releases[0].noise_sd[0])
    for cross, sd, share in survey.complements([r.value for r in releases], noise_sd):
        rows = state.population.count * share
        gram = population.population_gram(psi, state.rows, rows, ones)
        moments = Moments(gram, cross, 0.0, sd, noise_var, lost**2 * rows * gram)
        regression = fit(moments, _prior(psi, spread)).regression
        assert regression is not None
        found.append(regression)
    return found


def _prior(psi: Interactions, spread: float) -> Prior:
    # 0 for products of pairs, 1 for those with curvatures
    kinds = np.repeat(np.array([0, 1]), (len(psi.pairs), CURVES * len(psi.curved)))
    sizes = np.array([PRIORS.pairs_size, PRIORS.curved_size])
    of_kind = (np.array([PRIORS.pairs_spread, PRIORS.curved_spread]) / sizes) ** 2
    var = np.log(spread**2 * of_kind[kinds])
    centre = np.bincount(kinds, var) / np.bincount(kinds)
    return Prior(kinds + 1, np.ones(psi.size), 1.0, centre, PRIORS.kinds_pull, fit_noise=True)
