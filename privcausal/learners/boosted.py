"""The CATE learners on base "dpebm": which regressions they boost, and what they make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import block_diag

from privcausal.inference import cut as cuts
from privcausal.inference.additive import Posterior
from privcausal.inference.confounding import Remainder, unrelated
from privcausal.inference.effect import Effect, Piece
from privcausal.inference.smoothing import Fitted
from privcausal.learners.base import Learnt, mixed, shown
from privcausal.learners.boosting import Ask, Centre, Machine, coefficients
from privcausal.learners.estimate import Nuisances
from privcausal.learners.ground import Ground
from privcausal.learners.needs import Need
from privcausal.learners.nuisances import (
    RESIDUAL_CLIP,
    Partial,
    by_fold,
    floored,
    nuisance_of,
    over_folds,
    read_sizes,
)
from privcausal.spec.features import FeatureMap
from privcausal.spec.functions import Constant, Difference, Function, Mixture, Nuisance
from privcausal.spec.request import FOLDS, LEAST_PROPENSITY, Request
from privcausal.spec.steps import Bins, Steps
from privcausal.typing import Matrix, Vector
from privcausal.vault import (
    Aipw,
    CentredProduct,
    Cross,
    ImputedEffect,
    OutcomeResidual,
    OverlapRoot,
    Product,
    ResidualProduct,
    Transform,
    TreatmentResidual,
)

PROPENSITY = "nuisance: propensity"
SIZES, OUTCOME = "nuisance: outcome sizes", "nuisance: outcome"
MEAN = "nuisance: mean effect"
EFFECT_SIZES, EFFECT = "effect: score sizes", "effect: boosting"

PROPENSITY_CUT = 0.75
"""Residuals T - e(x) are cut to it: they pass it only where the rarer arm is rarer than 1/4."""

OVERLAP_PRICE = 0.02
"""Overlap weights are taken where the price of noise (`Machine.price`) is less than this. They
take weight from the rows and rest on the propensity: with more noise, adjusting for the shapes does
better."""

TOP = 0.5
"""Overlap weights are relative to this, and at most one: a row of the arm that is the rarer one
where it stands counts in full. Arms are brought nearer to each other than they are by nature, for
less noise than the weights that would make them alike."""

MEAN_CUT = 3.0
"""Residuals for the mean effect are cut to this many times their typical size."""

MEAN_BIAS = 0.15
"""Prior sd of what confounding leaves in the shapes' mean effect, as a share of the outcome's
size."""

PROPENSITY_SIZE = 1.0
"""Typical size of log odds, for the prior of a propensity's shapes."""


def one_stage_needs(request: Request, *, mean: bool = False) -> list[Need]:
    """Of the learners that only regress the outcome within arms; with the mean effect or not."""
    needs = [*_propensity_needs(request, 0.15), Need(SIZES, 0.03, "nuisance")]
    if not mean:
        return [*needs, Need(OUTCOME, 0.78, "nuisance")]
    return [*needs, Need(OUTCOME, 0.66, "nuisance"), Need(MEAN, 0.12, "nuisance")]


def two_stage_needs(request: Request) -> list[Need]:
    """Of the learners that regress an effect on what nuisances make of the rows."""
    return [
        *_propensity_needs(request, 0.25), Need(SIZES, 0.04, "nuisance"),
        Need(OUTCOME, 0.67, "nuisance"), Need(EFFECT_SIZES, 0.04, "effect"),
        Need(EFFECT, 0.96, "effect"),
    ]  # fmt: skip


def _propensity_needs(request: Request, weight: float) -> list[Need]:
    return [] if request.propensity is not None else [Need(PROPENSITY, weight, "nuisance")]


# -- nuisances -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Propensity:
    """e(x) at the arm clip and at the residual clip, and its coefficients' covariance.

    The latter is None where the propensity is known.
    """

    e: Function
    soft: Function
    cov: Matrix | None


def _propensities(machine: Machine) -> tuple[Machine, list[_Propensity]]:
    """e(x) for each fold, learned on the other (one without cross-fitting).

    The machine's ground then has a clip for the share of the treated.
    """
    ground = machine.ground
    if ground.known is not None:
        folds = FOLDS if ground.session.plan.request.split == "crossfit" else 1
        return machine, [_Propensity(ground.known, ground.known, None)] * folds
    ask = Ask(
        target=TreatmentResidual(Constant(0.0), 0.0),
        what="propensity",
        bound=PROPENSITY_CUT,
        size=PROPENSITY_SIZE,
        curvature=np.full((1, len(ground.rows)), 0.25),
        dispersion=1.0,
        logistic=True,
    )
    laws = [
        coefficients(machine.bins, trained.fitted())
        for trained in machine.train(PROPENSITY, ask, folds=True)[::-1]
    ]
    least = LEAST_PROPENSITY
    free = [
        Steps(machine.bins.features, w.mean, 0.0, least, 1 - least, logistic=True) for w in laws
    ]
    ground = floored(ground, float(np.mean([e(ground.rows) for e in free])), 0.0)
    soft = min(RESIDUAL_CLIP, ground.clip)
    found = [
        _Propensity(
            replace(e, lo=ground.clip, hi=1 - ground.clip),
            replace(e, lo=soft, hi=1 - soft),
            law.cov,
        )
        for e, law in zip(free, laws, strict=True)
    ]
    return replace(machine, ground=ground), found


def _mean(machine: Machine, coef: Vector, centre: Centre) -> Steps:
    outcome = machine.ground.outcome
    return Steps(machine.bins.features, coef, centre.value, outcome.lo, outcome.hi)


def _by_arm(machine: Machine, es: Sequence[_Propensity]) -> Matrix:
    """Each arm's share at the synthetic rows, shape (2, SIZE)."""
    e = np.mean([p.soft(machine.ground.rows) for p in es], axis=0)
    return np.stack([1 - e, e])


def _arm_means(
    machine: Machine,
    es: Sequence[_Propensity],
    shared: Sequence[bool] | None,
    *,
    overlap: bool = False,
) -> tuple[Centre, list[Fitted]]:
    """Both arms' means in one boosting; for each fold, or one.

    With `overlap` rows have overlap weights. Means are not additive, and what is nearest to one
    differs between arms of different covariates: an effect that is none. With these weights the
    arms' covariates are more alike, on average also as regards products of columns.
    """
    centre = machine.look(SIZES, machine.price(OUTCOME))
    ask = Ask(
        target=machine.residual(centre.value),
        what="outcome by arm",
        bound=centre.cut,
        size=centre.size,
        curvature=_by_arm(machine, es),
        dispersion=centre.size**2,
        by_arm=True,
    )
    if overlap:
        ask = _weighted(machine, es, ask)
    trained = machine.train(OUTCOME, ask, folds=True)
    return centre, [t.fitted_arms(shared) for t in trained]


def _weighted(machine: Machine, es: Sequence[_Propensity], ask: Ask) -> Ask:
    """The same regression with overlap weights, those of the rarer arm being one."""
    e = _by_arm(machine, es)
    root = by_fold(lambda p: OverlapRoot(p.soft, TOP), es)
    curvature = e * np.minimum(e[::-1] / TOP, 1.0)
    return replace(ask, target=Product(root, ask.target), factor=root, curvature=curvature)


def _alike(machine: Machine) -> list[bool]:
    """For nuisances: arms' shapes that are expected to be alike, and may differ on every axis."""
    return [False] * len(machine.bins.axes)


def _arm_laws(machine: Machine, fitted: Fitted) -> Posterior:
    """Coefficients of the control mean, then of the treated one."""
    return fitted.through(np.asarray(block_diag(machine.bins.to_coef, machine.bins.to_coef)))


def _arm_nuisance(machine: Machine, law: Posterior, e: _Propensity, centre: Centre) -> Nuisance:
    control, treated = np.split(law.mean, 2)
    return Nuisance(e.e, _mean(machine, control, centre), _mean(machine, treated, centre))


def _shown(nuisances: Sequence[Nuisance]) -> Nuisances:
    """Nuisances as functions of new data: the folds' mean under cross-fitting."""
    first, last = nuisances[0], nuisances[-1]
    e, mu0, mu1 = first.e, first.mu0, first.mu1
    if last is not first:
        e, mu0, mu1 = mixed(e, last.e), mixed(mu0, last.mu0), mixed(mu1, last.mu1)
    return Nuisances(e, Mixture(e, mu1, mu0), mu0, mu1)


def _remainder(
    machine: Machine, es: Sequence[_Propensity], mean_covs: Sequence[Matrix]
) -> Remainder:
    """The product of both nuisances' errors: an error of the log odds moves e by e (1 - e) of it,
    which cancels the weight of the AIPW score. Over the folds; means are of the fold they learned
    from, propensities of the fold that they are for."""
    phi = machine.ground.rows.phi(machine.bins.features)
    weight = np.asarray(phi.T @ phi / len(phi))
    return over_folds(
        [
            Remainder(0.0, 0.0) if e.cov is None else unrelated(weight, e.cov, cov)
            for e, cov in zip(es, mean_covs[::-1], strict=True)
        ]
    )


def _contrast(machine: Machine, fitted: Sequence[Fitted]) -> Posterior:
    """mu_1 - mu_0 on the effect's bins: the folds' mean (folds only exist for rows)."""
    own = _averaged(machine.bins, machine.effect.bins)
    turn = np.hstack([-own, own])
    mean = np.mean([turn @ one.mean for one in fitted], axis=0)
    cov = sum((turn @ one.cov @ turn.T for one in fitted), np.zeros((len(own),) * 2))
    return coefficients(machine.effect.bins, Fitted(mean, cov / len(fitted) ** 2))


def _averaged(bins: Bins, kept: Bins) -> Matrix:
    """From (constant, shapes) to those of the axes kept, shape (1 + M', 1 + M).

    The other shapes are centred within their own arm. What they are on average over all rows goes
    into the constant: left out, it would confound, as far as the arms differ in these columns.
    """
    out = np.eye(1 + bins.size)[kept.within(bins)]
    for axis, first in zip(bins.axes, bins.start[:-1], strict=True):
        if axis not in kept.axes:
            at = slice(int(first), int(first) + axis.size)
            out[0, 1 + at.start : 1 + at.stop] = bins.share[at]
    return out


def _effect(machine: Machine, law: Posterior, middle: float = 0.0) -> Effect:
    piece = Piece(Steps(machine.effect.bins.features, law.mean, middle), law.cov)
    return Effect((piece,), 2 * machine.ground.outcome.bound)


# -- learners --------------------------------------------------------------------------------


def arms(ground: Ground, *, joint: bool) -> Learnt:
    """S-learner with interactions (`joint`) or T-learner: both arms' means, and their difference.

    One boosting has a shape for each arm: a row is in one arm, so both cost as much as one. With
    `joint` the arms' shapes are smoothed together and expected to be alike, rows have overlap
    weights where there are rows enough for the noise, which is public or released, and the mean
    effect is looked at once more.
    """
    machine, es = _propensities(Machine.of(ground))
    own = set(machine.effect.bins.axes)
    shared = [axis not in own for axis in machine.bins.axes] if joint else None
    overlap = joint and machine.price(OUTCOME) < OVERLAP_PRICE
    centre, fitted = _arm_means(machine, es, shared, overlap=overlap)
    learnt = _of_arms(machine, es, centre, fitted)
    return _with_mean(machine, es, learnt, centre) if joint else learnt


def _of_arms(
    machine: Machine, es: Sequence[_Propensity], centre: Centre, fitted: Sequence[Fitted]
) -> Learnt:
    """Nuisances, and the effect as the arms' difference, from both arms' shapes of each fold."""
    laws = [_arm_laws(machine, one) for one in fitted]
    nuisances = tuple(
        _arm_nuisance(machine, law, e, centre) for law, e in zip(laws[::-1], es, strict=True)
    )
    rest = _remainder(machine, es, [_mean_cov(law) for law in laws])
    effect = _effect(machine, _contrast(machine, fitted))
    return Learnt(machine.ground, effect, nuisances, _shown(nuisances), rest)


def _with_mean(
    machine: Machine, es: Sequence[_Propensity], learnt: Learnt, centre: Centre
) -> Learnt:
    """The effect, its mean moved by what overlap-weighted residuals say that it lacks.

    sum (T - e)(Y - mu_T) / sum e (1 - e) is one number, whose noise is that of one and not of all
    axes. It holds where either the arms' means or the propensity do, whereas the shapes' mean is
    off where means are not additive, and where noise shrinks what confounds. The move is shrunk
    by its noise against how far that is thought to be.
    """
    ground, outcome = machine.ground, machine.ground.outcome
    clip, most = min(RESIDUAL_CLIP, ground.clip), 2 * outcome.bound

    def score(part: tuple[_Propensity, Nuisance]) -> Transform:
        e, (mu0, mu1) = part[0].soft, (part[1].mu0, part[1].mu1)
        return CentredProduct(e, Mixture(e, mu1, mu0), outcome, clip, Difference(mu1, mu0), most)

    target = by_fold(score, tuple(zip(es, learnt.nuisances, strict=True)))
    share = float(_by_arm(machine, es).prod(axis=0).mean())
    cut = min(MEAN_CUT * centre.size * float(np.sqrt(share)), target.bound)
    one = FeatureMap(ground.design, (), 1.0)
    release = ground.session.release(MEAN, Cross(one, target, cut, "mean residual"))
    mass = ground.population.count * share
    move, noise = float(release.value[0]) / mass, float(release.noise_sd[0]) / mass
    (piece,) = learnt.effect.pieces
    effect = piece.additive
    phi = ground.rows.phi(effect.features).mean(axis=0)
    off = float(phi @ piece.cov @ phi) + (MEAN_BIAS * centre.size) ** 2
    kept = off / (off + noise**2)
    # residuals are from means within the outcome's bounds, which the arms' shapes may leave
    held = np.mean([np.mean(n.mu1(ground.rows) - n.mu0(ground.rows)) for n in learnt.nuisances])
    coef, turn = effect.coef.copy(), np.eye(len(phi))
    coef[0] += float(held - phi @ coef) + kept * move
    turn[0] -= kept * phi
    cov = turn @ piece.cov @ turn.T
    cov[0, 0] += (kept * noise) ** 2
    moved = replace(piece, additive=replace(effect, coef=coef), cov=cov)
    return replace(learnt, effect=replace(learnt.effect, pieces=(moved,)))


def _mean_cov(law: Posterior) -> Matrix:
    """The two arms' covariances averaged."""
    p = len(law.mean) // 2
    return np.asarray(0.5 * (law.cov[:p, :p] + law.cov[p:, p:]))


def constant_effect(ground: Ground) -> Learnt:
    """The S-learner of Niu et al. (2022): the treatment is one more axis of an additive fit."""
    machine, es = _propensities(Machine.of(ground))
    ground = machine.ground
    centre = machine.look(SIZES, machine.price(OUTCOME, more=1))
    ask = Ask(
        target=machine.residual(centre.value),
        what="outcome",
        bound=centre.cut,
        size=centre.size,
        curvature=np.ones((1, len(ground.rows))),
        dispersion=centre.size**2,
        with_treatment=True,
    )
    fitted = [t.fitted() for t in machine.train(OUTCOME, ask, folds=True)]
    both = [_arms_of(machine, one) for one in fitted]
    return _of_arms(machine, es, centre, both)


def _arms_of(machine: Machine, fitted: Fitted) -> Fitted:
    """(constant, shapes) of both arms from those with an axis of the treatment."""
    size = 1 + machine.bins.size
    turn = np.vstack([np.eye(size, size + 2), np.eye(size, size + 2)])
    turn[0, size], turn[size, size + 1] = 1.0, 1.0
    return Fitted(turn @ fitted.mean, turn @ fitted.cov @ turn.T)


def residuals(ground: Ground) -> Learnt:
    """R-learner: shapes of least sum [(Y - eta) - (T - e) tau(x)]^2 (Nie and Wager 2021, Eq. 4).

    Its residual (T - e)(Y - eta - (T - e) tau) is what is cut, weight and all.
    """
    machine, es = _propensities(Machine.of(ground))
    ground = machine.ground
    outcome, clip = ground.outcome, min(RESIDUAL_CLIP, ground.clip)
    centre, laws = _mean_outcome(machine)
    partials = tuple(
        Partial(e.e, e.soft, _mean(machine, law.mean, centre), None)
        for e, law in zip(es, laws[::-1], strict=True)
    )
    product = by_fold(lambda p: ResidualProduct(p.e_soft, p.eta, outcome, clip), partials)
    cut, rms = _cut(machine.effect, product)
    share = _by_arm(machine, es).prod(axis=0)
    ask = Ask(
        target=by_fold(lambda p: OutcomeResidual(p.eta, outcome), partials),
        what="effect",
        bound=cut,
        size=rms / float(np.sqrt(share.mean())),
        curvature=share[None, :],
        dispersion=rms**2 / float(share.mean()),
        factor=by_fold(lambda p: TreatmentResidual(p.e_soft, clip), partials),
    )
    (trained,) = machine.effect.train(EFFECT, ask)
    effect = _effect(machine, coefficients(machine.effect.bins, trained.fitted()))
    nuisances = tuple(nuisance_of(p, effect, outcome) for p in partials)
    rest = _remainder(machine, es, [law.cov for law in laws])
    return Learnt(ground, effect, nuisances, shown(partials, nuisances), rest)


def _mean_outcome(machine: Machine) -> tuple[Centre, list[Posterior]]:
    """eta(x) = E[Y | x]; for each fold, or one."""
    centre = machine.look(SIZES, machine.price(OUTCOME))
    ask = Ask(
        target=machine.residual(centre.value),
        what="outcome",
        bound=centre.cut,
        size=centre.size,
        curvature=np.ones((1, len(machine.ground.rows))),
        dispersion=centre.size**2,
    )
    trained = machine.train(OUTCOME, ask, folds=True)
    return centre, [coefficients(machine.bins, t.fitted()) for t in trained]


def _cut(machine: Machine, target: Transform) -> tuple[float, float]:
    """Cut of a score and its root mean square there, from a noisy histogram of its size."""
    sizes = read_sizes(machine.ground, target, EFFECT_SIZES)
    cut = cuts.trade(sizes, machine.price(EFFECT))
    return cut, max(sizes.rms(cut), 1e-3 * cut)


def doubly_robust(ground: Ground) -> Learnt:
    """DR-learner: first the arms' means, then the score is boosted (Niu et al. 2022, Algorithm 2).

    The score is centred at the difference of the means' constants, which the rounds need not find.
    The means' shapes are no start for it: what they have wrong would take the noise of a shape
    each to be taken off again.
    """
    machine, es = _propensities(Machine.of(ground))
    ground = machine.ground
    outcome = ground.outcome
    centre, fitted = _arm_means(machine, es, _alike(machine))
    laws = [_arm_laws(machine, one) for one in fitted]
    nuisances = tuple(
        _arm_nuisance(machine, law, e, centre) for law, e in zip(laws[::-1], es, strict=True)
    )
    middle = float(np.clip(_contrast(machine, fitted).mean[0], -outcome.bound, outcome.bound))
    target = by_fold(
        lambda n: Aipw(n, outcome, ground.clip, Constant(middle), abs(middle)), nuisances
    )
    cut, rms = _cut(machine.effect, target)
    ask = Ask(
        target=target,
        what="score",
        bound=cut,
        size=rms,
        curvature=np.ones((1, len(ground.rows))),
        dispersion=rms**2,
    )
    (trained,) = machine.effect.train(EFFECT, ask)
    law = coefficients(machine.effect.bins, trained.fitted())
    effect = _effect(machine, law, middle)
    rest = _remainder(machine, es, [_mean_cov(law) for law in laws])
    return Learnt(ground, effect, nuisances, _shown(nuisances), rest)


def imputed(ground: Ground) -> Learnt:
    """X-learner: imputed effects boosted within the arms, tau = e tau_0 + (1 - e) tau_1."""
    machine, es = _propensities(Machine.of(ground))
    ground = machine.ground
    centre, fitted = _arm_means(machine, es, _alike(machine))
    laws = [_arm_laws(machine, one) for one in fitted]
    nuisances = tuple(
        _arm_nuisance(machine, law, e, centre) for law, e in zip(laws[::-1], es, strict=True)
    )
    target = by_fold(lambda n: ImputedEffect(n, ground.outcome), nuisances)
    cut, rms = _cut(machine.effect, target)
    ask = Ask(
        target=target,
        what="imputed effects by arm",
        bound=cut,
        size=rms,
        curvature=_by_arm(machine, es),
        dispersion=rms**2,
        by_arm=True,
    )
    (trained,) = machine.effect.train(EFFECT, ask)
    nuisance = _shown(nuisances)
    one = Difference(Constant(1.0), nuisance.propensity)
    pieces = []
    for arm, weight in enumerate((nuisance.propensity, one)):
        law = coefficients(machine.effect.bins, trained.fitted(arm))
        pieces.append(Piece(Steps(machine.effect.bins.features, law.mean), law.cov, weight))
    effect = Effect(tuple(pieces), 2 * ground.outcome.bound)
    rest = _remainder(machine, es, [_mean_cov(law) for law in laws])
    return Learnt(ground, effect, nuisances, nuisance, rest)
