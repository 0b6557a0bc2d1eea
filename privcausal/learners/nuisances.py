"""Private nuisances from noisy moments: propensity, mean outcome, and the means of each arm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from privcausal.inference import cut as cuts
from privcausal.inference.additive import Moments, Posterior
from privcausal.inference.basis import amplitude
from privcausal.inference.confounding import Pair, Remainder
from privcausal.inference.effect import Effect, Piece
from privcausal.inference.gram import GramEstimate, alignment, population_gram
from privcausal.learners.ground import Grams, Ground, complements, off_diagonal_sd
from privcausal.learners.needs import Need
from privcausal.spec.features import FeatureMap, Features
from privcausal.spec.functions import (
    Additive,
    ArmMean,
    Constant,
    Extended,
    Function,
    Mixture,
    Nuisance,
    within,
)
from privcausal.spec.interactions import Interactions
from privcausal.spec.request import LEAST_PROPENSITY
from privcausal.typing import Estimand, Matrix, Vector
from privcausal.vault import (
    ByFold,
    Cross,
    Gram,
    Outcome,
    OutcomeResidual,
    ResidualProduct,
    SizeHistogram,
    Transform,
    Treatment,
    TreatmentResidual,
)

F = TypeVar("F")

RESIDUAL_CLIP = 0.03
"""e is cut here where nothing is divided by it (the R-learner); `propensity_clip` elsewhere."""

PROPENSITY_SPREAD = 0.12
"""Public prior sd of e(x) over the covariates."""

EVEN = 0.1875
"""Var(T) with a quarter treated: from there on the spread and the residual's variance fall."""

OUTCOME_SPREAD = 0.2
"""Public prior sd of E[Y | x] over the covariates, as a share of half the outcome's range."""


LEAST_BELOW = 0.6
"""A cut moment is scaled up by the share of scores below the cut, but by no more than 1/0.6."""


@dataclass(frozen=True, eq=False)
class Partial:
    """e(x) and eta(x) = E[Y | x] of one fold's rows, learned on the others.

    `e` is cut to the arm clip, `e_soft` to `RESIDUAL_CLIP`; `pair` is the joint law of their
    coefficients (None where the propensity is known).
    """

    e: Function
    e_soft: Function
    eta: Function
    pair: Pair | None
    beyond: tuple[Interactions, Pair] | None = None


@dataclass(frozen=True, eq=False)
class Propensity:
    """e(x) at the arm clip and at the residual clip, with its coefficients' covariance."""

    e: Function
    soft: Function
    cov: Matrix


def partial_needs(ground_known: bool) -> list[Need]:
    needs = [Need("nuisance: moments", 0.14, "nuisance")]
    if not ground_known:
        needs.append(Need("nuisance: treatment", 0.07, "nuisance"))
    return [*needs, Need("nuisance: outcome", 0.25, "nuisance")]


def partial(ground: Ground, grams: Grams) -> tuple[Partial, ...]:
    """Propensity and mean outcome, one pair per fold (one without cross-fitting)."""
    known = ground.known
    if known is not None:
        etas = _outcomes(ground, grams)
        return tuple(Partial(known, known, _mean(ground, eta.mean), None) for eta in etas)
    es = _treatments(ground, grams)
    etas = _outcomes(ground, grams)
    return tuple(_paired(ground, e, eta) for e, eta in zip(es, etas, strict=True))


def _paired(ground: Ground, e: Posterior, eta: Posterior) -> Partial:
    assert e.regression is not None
    assert eta.regression is not None
    group = np.minimum(ground.features.order, 2)
    return from_pair(ground, Pair(e.regression, eta.regression, group))


def from_pair(ground: Ground, joint: Pair) -> Partial:
    e, eta = joint.mean
    one = _propensity(ground, e, np.zeros((0, 0)))
    return Partial(one.e, one.soft, _mean(ground, eta), joint)


RARE = 0.4
"""Share of the rarer arm below which the clip falls in proportion to it. With the default clip of
0.1 it is then a quarter of that share: rows that are this much less likely than most to be in the
arm hold little of what is known of it."""


def clipped(ground: Ground, partials: tuple[Partial, ...]) -> tuple[Ground, tuple[Partial, ...]]:
    """The same with a clip that leaves the propensities of a rare treatment as they are.

    The share of the treated is that of the released moments, and at least two of its noise sds.
    """
    if partials[0].pair is None:
        return ground, partials
    phi = ground.rows.phi(ground.features)
    pairs = [p.pair for p in partials if p.pair is not None]
    share = 0.5 + float(np.mean([phi.mean(axis=0) @ pair.mean[0] for pair in pairs]))
    noise = float(np.sqrt(pairs[0].e.error[0, 0])) / max(float(pairs[0].e.gram[0, 0]), 1e-9)
    ground.session.look_for(min(share, 1 - share), noise)
    lower = floored(ground, share, noise)
    if lower is ground:
        return ground, partials
    return lower, tuple(from_pair(lower, pair) for pair in pairs)


def floored(ground: Ground, share: float, noise: float) -> Ground:
    """The same with a clip for this share of the treated, of this noise sd."""
    rarer = max(min(share, 1 - share), 2 * noise)
    if rarer >= RARE:
        return ground
    return replace(ground, floor=max(ground.clip * rarer / RARE, LEAST_PROPENSITY))


def settled(ground: Ground, partials: tuple[Partial, ...], tau: Function) -> tuple[Partial, ...]:
    """The same moments read again once the effect is known: only the baseline confounds."""
    effect = float(np.mean(tau(ground.rows)))
    return tuple(_settled(ground, p, effect) for p in partials)


def _settled(ground: Ground, part: Partial, effect: float) -> Partial:
    if part.pair is None:
        return part
    again = from_pair(ground, replace(part.pair, effect=effect))
    if part.beyond is None:
        return again
    psi, joint = part.beyond
    return extended(again, psi, replace(joint, effect=effect))


def extended(part: Partial, psi: Interactions, joint: Pair) -> Partial:
    """Additive nuisances plus interactions."""
    e, eta = joint.mean
    return replace(
        part,
        e=_more(part.e, psi, e),
        e_soft=_more(part.e_soft, psi, e),
        eta=_more(part.eta, psi, eta),
        beyond=(psi, joint),
    )


def _more(base: Function, psi: Interactions, coef: Vector) -> Function:
    assert isinstance(base, Additive)
    return Extended(base, psi, coef)


def known_propensity(ground: Ground, known: Function) -> Propensity:
    return Propensity(known, known, np.zeros((ground.features.size,) * 2))


def _treatments(ground: Ground, grams: Grams) -> list[Posterior]:
    mechanism = Cross(ground.features, Treatment(), 0.5, "treatment")
    releases = ground.session.moments("nuisance: treatment", mechanism)
    sd = float(releases[0].noise_sd[0])
    crosses = complements([r.value for r in releases], sd)
    return [
        _treatment_fit(ground, gram, cross, noise)
        for gram, (cross, noise, _) in zip(grams.outside, crosses, strict=True)
    ]


def _treatment_fit(ground: Ground, gram: GramEstimate, cross: Vector, sd: float) -> Posterior:
    share = 0.5 + float(cross[0]) / max(float(gram.value[0, 0]), 1e-9)
    # Var(T) over the most that it can be; a rare treatment's propensity varies less, too
    even = float(np.clip(share * (1 - share) / EVEN, 0.05, 1.0))
    moments = Moments(gram.value, cross, gram.sd, sd, 0.25 * even)
    size = even * PROPENSITY_SPREAD**2 / spread(ground.features)
    return ground.session.regression.nuisance(moments, ground.features, 0.25, size, fit_noise=False)


def propensity(ground: Ground, gram: GramEstimate, cross: Vector, cross_sd: float) -> Propensity:
    """e(x) from moments of T - 1/2."""
    fitted = _treatment_fit(ground, gram, cross, cross_sd)
    return _propensity(ground, fitted.mean, fitted.cov)


def _propensity(ground: Ground, coef: Vector, cov: Matrix) -> Propensity:
    e = Additive(ground.features, coef, 0.5, ground.clip, 1 - ground.clip)
    soft = min(RESIDUAL_CLIP, ground.clip)
    return Propensity(e, replace(e, lo=soft, hi=1 - soft), cov)


def spread(features: FeatureMap) -> float:
    """Variance of phi'beta for slopes of unit variance on the linear functions."""
    return float(max((features.order == 1).sum(), 1)) * amplitude(len(features.blocks)) ** 2


def _outcomes(ground: Ground, grams: Grams) -> list[Posterior]:
    outcome = ground.centre
    target = outcome if ground.window is None else _centred(ground, outcome)
    mechanism = Cross(ground.features, target, outcome.bound, "outcome")
    releases = ground.session.moments("nuisance: outcome", mechanism)
    sd = float(releases[0].noise_sd[0])
    crosses = complements([r.value for r in releases], sd)
    half = outcome.bound
    weights = ground.features.weight(ground.rows.phi(ground.features))
    found = []
    for gram, (cross, noise, _) in zip(grams.outside, crosses, strict=True):
        most = _most_variance(cross[0], noise, gram, half, float(weights.mean() / weights.min()))
        moments = Moments(gram.value, cross, gram.sd, noise, most / 16)
        size = OUTCOME_SPREAD**2 * most / spread(ground.features)
        found.append(
            ground.session.regression.nuisance(
                moments, ground.features, half**2 / 4, size, fit_noise=True
            )
        )
    return found


def _most_variance(
    first: float, noise_sd: float, gram: GramEstimate, half: float, relative: float
) -> float:
    """The most that an outcome in [-half, half] of this noisy sum varies (Bhatia and Davis 2000).

    It is (half - mean)(half + mean), for a mean two noise sds nearer to the middle than is seen:
    the mean of rare events, or of amounts that are mostly none, cannot vary much with covariates.
    The sum has weights; the mean of all rows may be `relative` times as far from the nearer end,
    the mean weight over the least.
    """
    rows = max(float(gram.value[0, 0]), 1.0)
    mean = max(abs(first) - 2 * noise_sd, 0.0) / rows
    away = min(relative * max(half - mean, max(noise_sd, half) / rows), half)
    return away * (2 * half - away)


def _centred(ground: Ground, window: Outcome) -> Transform:
    """Y minus the middle of the window (which lies in the outcome's bounds)."""
    return OutcomeResidual(Constant(0.5 * (window.lo + window.hi)), ground.outcome)


def _mean(ground: Ground, coef: Vector) -> Function:
    outcome = ground.centre
    middle = 0.5 * (outcome.lo + outcome.hi)
    return Additive(ground.features, coef, middle, outcome.lo, outcome.hi)


UNSEEN = 0.25
"""What fitted interactions confound, times this, is the sd allowed for what they cannot express:
where products confound, so do shapes that no product has. Measured on laws of other shapes.

The same share of each coefficient of the mean outcome is allowed for, one apart from the other,
where limits of the propensity leave all adjustment to it."""


def remainder(
    ground: Ground,
    parts: Sequence[Partial],
    estimand: Estimand = "ATE",
    tau: Effect | None = None,
) -> Remainder:
    """Bias of an average from the errors of both nuisances, over the synthetic population.

    Each fold's rows have nuisances of their own: `parts` holds one per fold, or one. `tau` is the
    effect in use, whose errors matter where the propensity's limits leave something out.
    """
    return over_folds([_remainder(ground, part, estimand, tau) for part in parts])


def over_folds(found: Sequence[Remainder]) -> Remainder:
    """Law of the mean of the folds' biases, each fold half of the rows.

    The folds' errors are not independent (their priors are the same, and so is what is missing
    from the features): by Minkowski's inequality the sd of a mean is at most the mean of the sds.
    """
    mean, sd = np.mean([[one.mean, one.sd] for one in found], axis=0)
    return Remainder(float(mean), float(sd))


def _remainder(ground: Ground, part: Partial, estimand: Estimand, tau: Effect | None) -> Remainder:
    """Law of E[w (d_e + g) d_b], w as in `remainder_weight`, for both kinds of features.

    The propensity in use is the fitted one less g, by its limits; d_e and d_b are the errors of the
    fitted ones. Where the effect errs by d_tau, the ATE errs by E[w g (1 - 2e) d_tau] more.
    """
    if part.pair is None:
        return Remainder(0.0, 0.0)
    e = part.e if estimand == "ATE" else part.e_soft
    weigh = _weights(ground, e, estimand)
    g = within(_uncut(part.e)(ground.rows), 0.0, 1.0) - e(ground.rows)
    move = _move(ground, part.pair)
    weight, gap = _averaged(ground, ground.features, weigh, g)
    found = part.pair.remainder(move @ weight @ move.T, move @ gap)
    found = found + Remainder(0.0, UNSEEN * float(np.linalg.norm(gap * part.pair.slopes[1])))
    if part.beyond is not None:
        psi, joint = part.beyond
        weight, gap = _averaged(ground, psi, weigh, g)
        unseen = UNSEEN * abs(joint.confounding(weight))
        found = found + joint.remainder(weight, gap) + Remainder(0.0, unseen)
    if tau is not None and estimand == "ATE":
        # the ratio by the balance takes off what a constant error of the effect does
        lost = weigh * g * (1 - 2 * e(ground.rows))
        found = found + Remainder(0.0, tau.mean_sd(ground.rows, lost - lost.mean()))
    return found


def _averaged(
    ground: Ground, features: Features, weigh: Vector, g: Vector
) -> tuple[Matrix, Vector]:
    """E[w phi phi'] and E[w g phi] over the synthetic population."""
    phi = ground.rows.phi(features)
    return np.asarray((phi.T * weigh) @ phi / len(phi)), phi.T @ (weigh * g) / len(phi)


def _uncut(e: Function) -> Function:
    if isinstance(e, Extended):
        return replace(e, base=replace(e.base, lo=-np.inf, hi=np.inf))
    assert isinstance(e, Additive)
    return replace(e, lo=-np.inf, hi=np.inf)


def limited(part: Partial, low: float, high: float) -> Partial:
    """The same with a propensity for weights in [low, high], or narrower limits of its own."""
    if part.pair is None:
        return part
    e = part.e
    base = e.base if isinstance(e, Extended) else e
    assert isinstance(base, Additive)
    base = replace(base, lo=max(base.lo, low), hi=min(base.hi, high))
    return replace(part, e=replace(e, base=base) if isinstance(e, Extended) else base)


def _move(ground: Ground, pair: Pair) -> Matrix:
    """Moves moments of the synthetic features to where the released Gram says that rows are.

    Once for all limits that are tried: they share the Gram.
    """
    return ground.rows.once((ground.features, pair.e.gram), lambda: _moved(ground, pair))


def _moved(ground: Ground, pair: Pair) -> Matrix:
    rows, one = ground.rows, pair.e
    model = population_gram(ground.features, rows, 1.0, np.ones(len(rows)))
    # of the rows of a fold, or of all: few of them may be hidden by the noise
    scale = np.trace(model) / max(np.trace(one.gram), len(model) * one.gram_sd, 1e-9)
    return alignment(model, one.gram * scale, one.gram_sd * scale)


def products(ground: Ground, parts: Sequence[Partial], estimand: Estimand) -> float:
    """Most that the fitted interactions can confound: root of E[w e_psi^2] E[w b_psi^2].

    e_psi = psi'beta_e and b_psi = psi'(beta_y - tau beta_e), w as for the remainder; 0 without
    interactions. The mean over folds: an average's bias is at most that of the folds'.
    """
    return float(np.mean([_products(ground, part, estimand) for part in parts]))


def _products(ground: Ground, part: Partial, estimand: Estimand) -> float:
    if part.beyond is None:
        return 0.0
    psi, joint = part.beyond
    e, b = joint.slopes
    weight = remainder_weight(ground, psi, part.e if estimand == "ATE" else part.e_soft, estimand)
    return float(np.sqrt((e @ weight @ e) * (b @ weight @ b)))


def remainder_weight(
    ground: Ground, features: Features, e: Function, estimand: Estimand = "ATE"
) -> Matrix:
    """W = E[w phi phi'] over the synthetic population: how errors enter an average's score.

    Let the truth be e + d_e, eta + d_y, with E[Y | X, T] = eta + d_y + (T - e - d_e) tau, and the
    effect tau be right. Then with d_b = d_y - tau d_e the mean of each score errs by E[w d_e d_b]:

    - ATE: Y - mu_T has mean d_b in both arms, as mu_T = eta + (T - e) tau; and
      E[(T - e)/(e (1 - e)) | X] = d_e / (e (1 - e)). So w = 1 / (e (1 - e)).
    - ATT: Y - mu0 = Y - eta + e tau has mean T tau + d_b. E[(T - e)/(1 - e) | X] = d_e / (1 - e),
      and T (T - e)/(1 - e) = T. So sum(score) / sum(T) has mean
      E[T tau]/E[T] + E[d_e d_b / (1 - e)]/E[T]: w = 1 / ((1 - e) E[T]).
    - ATO: (T - e)(Y - eta) = (T - e)(d_y + (T - e - d_e) tau + u) has mean
      E[h tau] + E[d_e d_y], and (T - e)^2 has mean E[h] + E[d_e^2], for h = Var(T | X). So the
      ratio errs by E[d_e (d_y - tau d_e)] / E[(T - e)^2] for the tau it estimates:
      w = 1 / E[(T - e)^2], taken to be 1 / E[e (1 - e)].

    Where the effect errs too, by d_tau, the ATE errs by E[d_e d_tau (1 - 2e)/(e (1 - e))] more,
    from which its ratio by the balance takes what is due to a constant d_tau; the ATT by
    -E[d_e d_tau e/(1 - e)]/E[T], which is nothing for constant d_tau and e; the ATO by nothing.
    """
    phi = ground.rows.phi(features)
    return np.asarray((phi.T * _weights(ground, e, estimand)) @ phi / len(phi))


def _weights(ground: Ground, e: Function, estimand: Estimand) -> Vector:
    """w at the synthetic rows."""
    p = e(ground.rows)
    if estimand == "ATO":
        return np.full_like(p, 1 / np.mean(p * (1 - p)))
    if estimand == "ATT":
        return np.asarray(1 / ((1 - np.minimum(p, 1 - ground.clip)) * np.mean(p)))
    return np.asarray(1 / (p * (1 - p)))


def by_fold(make: Callable[[F], Transform], folds: Sequence[F]) -> Transform:
    """The transform of the only nuisance, or each row's own fold's."""
    transforms = tuple(make(fold) for fold in folds)
    return transforms[0] if len(transforms) == 1 else ByFold(transforms)


RESIDUAL_SHARE = 0.25
"""Cut of the residual product, as a share of where outcomes are seen, where no histogram of it
is bought: (T - e)(Y - eta) is mostly below half the residual's size."""


def residual_effect(
    ground: Ground,
    grams: Grams,
    partials: tuple[Partial, ...],
    *,
    moments: str,
    weights: str | None,
) -> Effect:
    """tau(x) minimising sum [(Y - eta) - (T - e) tau(x)]^2 (Nie and Wager 2021, Eq. 4).

    A first look, with a public cut and no leftover taken off (`orthogonal` has those). The names
    are those of stages: the moments of the residual product, and the Gram of the weights (None: by
    post-processing).
    """
    features, bound = ground.effect_features, ground.centre.bound
    cut = 2 * RESIDUAL_SHARE * bound
    target = residual_product(ground, partials)
    release = ground.session.release(moments, Cross(features, target, cut, "residual product"))
    gram, gram_sd, mean_weight = weights_gram(ground, grams, partials, weights)
    noise_var = (0.5 * cut) ** 2 / mean_weight
    found = Moments(gram, release.value, gram_sd, float(release.noise_sd[0]), noise_var)
    constant = min(16 * cut**2, 0.25 * bound**2)
    base = ground.session.regression
    return as_effect(ground, base.effect(found, features, constant, cut**2 / 40))


def residual_product(ground: Ground, partials: tuple[Partial, ...]) -> Transform:
    """(T - e)(Y - eta), each row by its own fold's nuisances."""
    soft = min(RESIDUAL_CLIP, ground.clip)
    return by_fold(lambda p: ResidualProduct(p.e_soft, p.eta, ground.outcome, soft), partials)


def as_effect(ground: Ground, posterior: Posterior) -> Effect:
    function = Additive(ground.effect_features, posterior.mean)
    return Effect((Piece(function, posterior.cov),), 2 * ground.outcome.bound)


def read_sizes(ground: Ground, target: Transform, stage: str) -> cuts.Sizes:
    """Noisy histogram of a score's size, cleaned."""
    borders = cuts.edges(target.bound)
    release = ground.session.release(stage, SizeHistogram(target, borders))
    return cuts.read(release.value, float(release.noise_sd[0]), borders)


def cross_noise(ground: Ground, stage: str, norm: float) -> float:
    """Noise sd of a cross moment per unit of its cut: what the price of a wider cut is."""
    plan = ground.session.plan
    trust = plan.request.trust
    change = 2.0 if trust.neighbors == "substitute" else 1.0
    rho = plan.stage(stage).rho / 1e12
    return float(change * trust.max_rows * norm / np.sqrt(2 * rho))


def weights_gram(
    ground: Ground, grams: Grams, partials: tuple[Partial, ...], stage: str | None
) -> tuple[Matrix, float, float]:
    """Sum of (T - e)^2 w phi phi', its noise sd and the mean weight.

    Base "gam" computes it from the synthetic population, with (T - e)^2 replaced by its mean
    e (1 - e), and moved by what the noisy Gram says beyond the population; base "linear" buys it.
    """
    e = partials[0].e_soft(ground.rows)
    mean_weight = float(np.mean(e * (1 - e)))
    if stage is not None:
        soft = min(RESIDUAL_CLIP, ground.clip)
        factor = by_fold(lambda p: TreatmentResidual(p.e_soft, soft), partials)
        mechanism = Gram(ground.effect_features, factor=factor)
        release = ground.session.release(stage, mechanism)
        sd = off_diagonal_sd(mechanism, release)
        return mechanism.matrix(release.value), sd, mean_weight
    rows, features = ground.rows, ground.effect_features
    model = population_gram(features, rows, ground.population.count, e * (1 - e))
    whole = grams.whole.sub(ground.effect_index)
    seen = whole.value - whole.model
    return model + mean_weight * seen, whole.sd * mean_weight, mean_weight


def nuisance_of(part: Partial, tau: Function, outcome: Outcome) -> Nuisance:
    """Arm means around eta: mu_t = eta + (t - e) tau."""
    low, high = outcome.lo, outcome.hi
    mu0 = ArmMean(0.0, part.eta, part.e_soft, tau, low, high)
    mu1 = ArmMean(1.0, part.eta, part.e_soft, tau, low, high)
    return Nuisance(part.e, mu0, mu1)


def overall(partials: tuple[Partial, ...]) -> Partial:
    """One nuisance to show and predict with: the folds' mean (folds only exist for rows)."""
    if len(partials) == 1:
        return partials[0]
    first, second = partials
    half = Constant(0.5)
    return replace(
        first,
        e=Mixture(half, first.e, second.e),
        e_soft=Mixture(half, first.e_soft, second.e_soft),
        eta=Mixture(half, first.eta, second.eta),
    )
