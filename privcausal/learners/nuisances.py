"""Private nuisances from noisy moments, and the bias that their errors leave in an average."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from privcausal.features.basis import FeatureMap
from privcausal.features.functions import (
    Additive,
    ArmMean,
    Constant,
    Extended,
    Function,
    Mixture,
    Nuisance,
)
from privcausal.features.products import Interactions
from privcausal.features.rows import Features
from privcausal.inference import cuts
from privcausal.inference.confounding import Pair, Remainder
from privcausal.inference.effect import Effect, Piece
from privcausal.inference.population import GramEstimate, alignment, amplitude, population_gram
from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import Moments, Posterior
from privcausal.learners.shares import Stages
from privcausal.learners.state import FitState, Grams, complements, gram_of, off_diagonal_sd
from privcausal.request.plan import StageKey
from privcausal.request.request import LEAST_PROPENSITY, RISKS
from privcausal.typing import Matrix, Vector
from privcausal.vault import (
    ByFold,
    Cross,
    Gram,
    OfArm,
    Outcome,
    OutcomeResidual,
    ResidualProduct,
    SizeHistogram,
    Transform,
    Treatment,
    TreatmentResidual,
)  # fmt: skip

F = TypeVar("F")


@dataclass(frozen=True, eq=False)
class FoldNuisances:
    """e(x) and eta(x) = E[Y | x] for one fold's rows, learned on the others.

    `e` is cut to the arm clip, `e_soft` to `FitState.soft_clip`. `pair` is the joint law of their
    coefficients (None for a known propensity, and where they were boosted), `beyond` that of
    interactions.
    """

    e: Function
    e_soft: Function
    eta: Function
    pair: Pair | None
    beyond: tuple[Interactions, Pair] | None = None


def additive_nuisances(state: FitState) -> tuple[FitState, Grams, tuple[FoldNuisances, ...]]:
    """Gram, propensity and mean outcome, one pair per fold (one without cross-fitting).

    One pass over the rows serves all three.
    """
    known, numbers = state.known, state.session.plan.request.asked.dose
    state, grams = moments_of(state, {Stages.TREATMENT: Treatment()} if known is None else {})
    if known is not None:
        etas = outcomes(state, grams)
        found = [FoldNuisances(known, known, mean(state, eta.mean), None) for eta in etas]
        return state, grams, tuple(found)
    es = means(state, grams, Stages.TREATMENT, 0.5) if numbers else propensities(state, grams)
    return state, grams, paired(state, es, outcomes(state, grams))


def moments_of(state: FitState, treatments: Mapping[StageKey, Transform]) -> tuple[FitState, Grams]:
    """The Gram, in one pass with what will be asked of the outcome and of each treatment."""
    centre = state.centre
    outcome: Transform = centre
    if state.window is not None:
        outcome = OutcomeResidual(Constant(0.5 * (centre.lo + centre.hi)), state.outcome)
    bounds = {Stages.OUTCOME: centre.bound} | {k: t.bound for k, t in treatments.items()}
    targets = {Stages.OUTCOME: outcome, **treatments}
    crosses = {k: Cross(state.features, t, bounds[k], k.query) for k, t in targets.items()}
    return gram_of(state, crosses)


def paired(
    state: FitState, es: Sequence[Posterior], etas: Sequence[Posterior]
) -> tuple[FoldNuisances, ...]:
    found = []
    for e, eta in zip(es, etas, strict=True):
        assert e.regression is not None
        assert eta.regression is not None
        found.append(from_pair(state, Pair(e.regression, eta.regression, state.features.order > 0)))
    return tuple(found)


def from_pair(state: FitState, joint: Pair) -> FoldNuisances:
    coef, eta = joint.mean
    e = Additive(state.features, coef, 0.5, state.clip, 1 - state.clip)
    soft = replace(e, lo=state.soft_clip, hi=1 - state.soft_clip)
    return FoldNuisances(e, soft, mean(state, eta), joint)


def clipped(
    state: FitState, partials: tuple[FoldNuisances, ...]
) -> tuple[FitState, tuple[FoldNuisances, ...]]:
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


def floored(state: FitState, share: float, noise: float) -> FitState:
    """The same with a clip for this noisy share of the treated, of at least two noise sds."""
    rarer = max(min(share, 1 - share), 2 * noise)
    if rarer >= PRIORS.rare_share:
        return state
    return replace(state, floor=max(state.clip * rarer / PRIORS.rare_share, LEAST_PROPENSITY))


def updated_for_effect(
    state: FitState, partials: tuple[FoldNuisances, ...], tau: Function
) -> tuple[FoldNuisances, ...]:
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


def extended(part: FoldNuisances, psi: Interactions, joint: Pair) -> FoldNuisances:
    """Additive nuisances plus interactions."""
    e, eta = joint.mean
    additive = (f.base if isinstance(f, Extended) else f for f in (part.e, part.e_soft, part.eta))
    one, soft, mu = (Extended(f, psi, c) for f, c in zip(additive, (e, e, eta), strict=True))
    return FoldNuisances(one, soft, mu, part.pair, (psi, joint))


def _crosses(
    state: FitState, grams: Grams, stage: StageKey
) -> list[tuple[GramEstimate, Vector, float]]:
    """Gram, cross moments and their noise sd, by fold."""
    releases = state.session.moments(stage, state.session.asked[stage])
    found = complements([r.value for r in releases], float(releases[0].noise_sd[0]))
    return [(g, cross, sd) for g, (cross, sd, _) in zip(grams.outside, found, strict=True)]


def propensities(
    state: FitState, grams: Grams, stage: StageKey = Stages.TREATMENT
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
    return float(max((features.order == 1).sum(), 1)) * amplitude(len(features.blocks)) ** 2


def outcomes(state: FitState, grams: Grams) -> list[Posterior]:
    return means(state, grams, Stages.OUTCOME, state.centre.bound)


def means(state: FitState, grams: Grams, stage: StageKey, half: float) -> list[Posterior]:
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
    first: float, noise_sd: float, gram: GramEstimate, half: float, relative: float
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


def mean(state: FitState, coef: Vector) -> Function:
    outcome = state.centre
    middle = 0.5 * (outcome.lo + outcome.hi)
    return Additive(state.features, coef, middle, outcome.lo, outcome.hi)


def limited(part: FoldNuisances, low: float, high: float) -> FoldNuisances:
    """The same with a propensity for weights in [low, high], or its own limits where narrower."""
    if part.pair is None:
        return part
    e = part.e
    base = e.base if isinstance(e, Extended) else e
    assert isinstance(base, Additive)
    base = replace(base, lo=max(base.lo, low), hi=min(base.hi, high))
    return replace(part, e=replace(e, base=base) if isinstance(e, Extended) else base)


def by_fold(make: Callable[[F], Transform], folds: Sequence[F]) -> Transform:
    """The transform of the only nuisance, or each row's own fold's."""
    transforms = tuple(make(fold) for fold in folds)
    return transforms[0] if len(transforms) == 1 else ByFold(transforms)


RESIDUAL_SHARE = 0.25
"""Cut of the residual product, as a share of where outcomes are seen, where no histogram of it is
bought: (T - e)(Y - eta) is mostly below half the residual's size."""


def residual_cross(
    state: FitState, partials: tuple[FoldNuisances, ...], arm: int | None = None
) -> Cross:
    """Sum of w (T - e)(Y - eta) phi with a public cut; of several arms, with one against others."""
    target = residual_product(state, partials, arm)
    cut = 2 * RESIDUAL_SHARE * state.centre.bound
    return Cross(state.effect_features, target, cut, "residual product")


def residual_effect(
    state: FitState,
    grams: Grams,
    partials: tuple[FoldNuisances, ...],
    asked: tuple[StageKey, Cross] | None = None,
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
    state: FitState, partials: tuple[FoldNuisances, ...], arm: int | None = None
) -> Transform:
    """(T - e)(Y - eta), each row by its own fold's nuisances; T is one of several arms, or T."""
    soft = state.soft_clip

    def product(part: FoldNuisances) -> Transform:
        found = ResidualProduct(part.e_soft, part.eta, state.outcome, soft)
        return found if arm is None else OfArm(found, arm)

    return by_fold(product, partials)


def as_effect(state: FitState, posterior: Posterior) -> Effect:
    function = Additive(state.effect_features, posterior.mean)
    return Effect((Piece(function, posterior.cov),), 2 * state.outcome.bound)


def sizes_of(target: Transform) -> SizeHistogram:
    """The query for a histogram of a score's size, in half octaves up to its bound."""
    return SizeHistogram(target, cuts.size_edges(target.bound))


def read_sizes(state: FitState, order: SizeHistogram, stage: StageKey) -> cuts.AbsHistogram:
    """Cleaned noisy histogram of a score's size."""
    release = state.session.release(stage, order)
    return cuts.cleaned(release.value, float(release.noise_sd[0]), order.edges)


def cross_noise(state: FitState, stage: StageKey, norm: float) -> float:
    """Noise sd of a cross moment per unit of its cut."""
    substitute = state.session.plan.request.trust.neighbors == "substitute"
    return state.session.noise_sd(stage, 2.0 if substitute else 1.0, norm)


def weights_gram(
    state: FitState, grams: Grams, partials: tuple[FoldNuisances, ...], stage: StageKey | None
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
        factor = by_fold(lambda p: TreatmentResidual(p.e_soft, soft), partials)
        mechanism = Gram(state.effect_features, factor=factor)
        release = state.session.release(stage, mechanism)
        sd = off_diagonal_sd(mechanism, release)
        return mechanism.matrix(release.value), sd, mean_weight
    rows, features = state.rows, state.effect_features
    model = population_gram(features, rows, state.population.count, e * (1 - e))
    whole = grams.whole.sub(state.effect_index)
    seen = whole.value - whole.model
    return model + mean_weight * seen, whole.sd * mean_weight, mean_weight


def nuisance_of(part: FoldNuisances, tau: Function, outcome: Outcome) -> Nuisance:
    """Arm means around eta: mu_t = eta + (t - e) tau."""
    low, high = outcome.lo, outcome.hi
    mu0 = ArmMean(0.0, part.eta, part.e_soft, tau, low, high)
    mu1 = ArmMean(1.0, part.eta, part.e_soft, tau, low, high)
    return Nuisance(part.e, mu0, mu1)


def overall(partials: tuple[FoldNuisances, ...]) -> FoldNuisances:
    """The folds' mean nuisances, to show and predict with: folds only exist for rows."""
    if len(partials) == 1:
        return partials[0]
    (one, two), half = partials, Constant(0.5)
    return replace(
        one,
        e=Mixture(half, one.e, two.e),
        e_soft=Mixture(half, one.e_soft, two.e_soft),
        eta=Mixture(half, one.eta, two.eta),
    )


def mixed(first: Function, second: Function) -> Function:
    """Half of each."""
    return Mixture(Constant(0.5), first, second)


# -- what their errors leave in an average ----------------------------------------------------


def remainder(
    state: FitState,
    parts: Sequence[FoldNuisances],
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


def _remainder(
    state: FitState, part: FoldNuisances, estimand: str, tau: Effect | None
) -> Remainder:
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
    state: FitState, features: Features, weigh: Vector, g: Vector
) -> tuple[Matrix, Vector]:
    """E[w phi phi'] and E[w g phi] over the synthetic population."""
    phi = state.rows.phi(features)
    return np.asarray((phi.T * weigh) @ phi / len(phi)), phi.T @ (weigh * g) / len(phi)


def _uncut(e: Function) -> Function:
    if isinstance(e, Extended):
        return replace(e, base=_uncut(e.base))
    assert isinstance(e, Additive)
    return replace(e, lo=-np.inf, hi=np.inf)


def _move(state: FitState, pair: Pair) -> Matrix:
    """Moves moments of the synthetic features to the rows', once for all limits that are tried."""

    def moved() -> Matrix:
        rows, one = state.rows, pair.e
        model = population_gram(state.features, rows, 1.0, np.ones(len(rows)))
        # of the rows of a fold, or of all: few of them may be hidden by the noise
        scale = np.trace(model) / max(np.trace(one.gram), len(model) * one.gram_sd, 1e-9)
        return alignment(model, one.gram * scale, one.gram_sd * scale)

    return state.rows.memo((state.features, pair.e.gram), moved)


def product_confounding(state: FitState, parts: Sequence[FoldNuisances], estimand: str) -> float:
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
    state: FitState, features: Features, e: Function, estimand: str = "ATE"
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


def _weights(state: FitState, e: Function, estimand: str) -> Vector:
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
