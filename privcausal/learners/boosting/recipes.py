"""The CATE learners on base "dpebm": what each boosts, and what it makes of that.

Nuisances are shapes of single columns, by boosting, and what these leave of products of columns, by
moments (`learners.interactions`). Without the products a confounder such as X1 X2 would bias
averages and effects alike, and no interval would show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import block_diag

from privcausal.features.basis import FeatureMap
from privcausal.features.functions import (
    Constant,
    Difference,
    Extended,
    Function,
    Mixture,
    Nuisance,
)
from privcausal.features.products import Interactions
from privcausal.features.steps import Bins, Steps
from privcausal.inference import cuts
from privcausal.inference.confounding import Pair, Remainder, unrelated
from privcausal.inference.effect import Effect, Piece
from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import Posterior
from privcausal.inference.smoothing import Fitted
from privcausal.learners.base import Learnt, shown
from privcausal.learners.boosting.training import BoostingSession, BoostingTask, Centre
from privcausal.learners.budget import StageWeight
from privcausal.learners.estimate import Nuisances
from privcausal.learners.interactions import interaction_needs
from privcausal.learners.nuisances import (
    FoldNuisances,
    by_fold,
    floored,
    mixed,
    nuisance_of,
    over_folds,
    read_sizes,
    remainder,
    sizes_of,
    updated_for_effect,
)
from privcausal.learners.orthogonal import refined
from privcausal.learners.shares import SHARES, Stages
from privcausal.learners.state import FitState
from privcausal.request.plan import StageKey
from privcausal.request.request import FOLDS, LEAST_PROPENSITY, Request
from privcausal.typing import Matrix, Vector
from privcausal.vault import (
    Aipw,
    Cross,
    ImputedEffect,
    OutcomeResidual,
    OverlapRoot,
    ResidualProduct,
    Transform,
    TransformProduct,
    TreatmentResidual,
)

SIZES, MEAN = StageKey("nuisance", "outcome sizes"), StageKey("nuisance", "mean effect")
EFFECT = StageKey("effect", "boosting")

PROPENSITY_CUT = 0.75
"""Residuals T - e(x) are cut to it: larger ones occur only where an arm is rarer than 1/4."""

OVERLAP_PRICE = 0.02
"""Overlap weights are used where the price of noise (`BoostingSession.price`) is below this. They
cost rows and rest on the propensity: with more noise, adjusting for the shapes does better."""

TOP = 0.5
"""Overlap weights are relative to this, and at most one: a row of the arm that is rarer at its x
counts in full. The arms' covariates become more alike, for less noise than full balance costs."""

MEAN_CUT = 3.0
"""Residuals for the mean effect are cut to this many times their typical size."""

MEAN_BIAS = 0.15
"""Prior sd of the confounding left in the shapes' mean effect, as a share of the outcome's size."""

PROPENSITY_SIZE = 1.0
"""Typical size of log odds, for the prior of a propensity's shapes."""


def one_stage_needs(request: Request, *, mean: bool = False) -> list[StageWeight]:
    """Of the learners that only regress the outcome within arms; with the mean effect or not."""
    outcome = SHARES.boosted_mean_outcome if mean else SHARES.boosted_arms_outcome
    return [
        *_propensity_needs(request, SHARES.boosted_arms_propensity),
        StageWeight(SIZES, SHARES.boosted_arms_sizes),
        StageWeight(Stages.OUTCOME, outcome),
        *_product_needs(request),
        *([StageWeight(MEAN, SHARES.boosted_mean)] if mean else []),
    ]


def two_stage_needs(request: Request) -> list[StageWeight]:
    """Of the learners that regress an effect on what nuisances make of the rows."""
    return [
        *_propensity_needs(request, SHARES.boosted_propensity),
        StageWeight(SIZES, SHARES.boosted_sizes),
        StageWeight(Stages.OUTCOME, SHARES.boosted_outcome),
        *_product_needs(request),
        StageWeight(Stages.SCORE_SIZES, SHARES.boosted_effect_sizes),
        StageWeight(EFFECT, SHARES.boosted_effect),
    ]


def _propensity_needs(request: Request, weight: float) -> list[StageWeight]:
    return [] if request.propensity is not None else [StageWeight(Stages.PROPENSITY, weight)]


def _product_needs(request: Request) -> list[StageWeight]:
    """What shapes of single columns leave of products, where these may confound."""
    if request.propensity is not None:
        return []
    return interaction_needs(
        request,
        SHARES.boosted_interactions_treatment,
        SHARES.boosted_interactions_outcome,
        SHARES.boosted_interactions_sizes,
    )


# -- nuisances -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Propensity:
    """e(x) of a fold's rows at the arm clip and at the residual clip.

    `cov` is the covariance of its coefficients, None where the propensity is known.
    """

    e: Function
    soft: Function
    cov: Matrix | None


@dataclass(frozen=True, eq=False)
class _Means:
    """Both arms' means: nuisances of each fold's rows, and the difference of treated and control.

    `start` has the propensities with what products add to them. `remainder` is the law
    of the bias that the errors of propensity and means leave together.
    """

    start: _Start
    centre: Centre
    nuisances: tuple[Nuisance, ...]
    contrast: Posterior
    remainder: Remainder


@dataclass(frozen=True, eq=False)
class _Start:
    """The session once propensities are learned: one for each fold's rows, on the other fold's."""

    machine: BoostingSession
    es: tuple[_Propensity, ...]

    @cached_property
    def shares(self) -> Matrix:
        """Share of control and treated at the synthetic rows, shape (2, SIZE)."""
        e = np.mean([p.soft(self.machine.state.rows) for p in self.es], axis=0)
        return np.stack([1 - e, e])

    def remainder(self, means: Sequence[Matrix]) -> Remainder:
        """Of the product of both nuisances' errors, from the covariances of the mean outcomes.

        An error of the log odds moves e by e (1 - e) of it, which cancels the weight of the AIPW
        score. The sd is raised as that of other nuisances' laws (`inference.confounding`).
        """
        phi = self.machine.state.rows.phi(self.machine.bins.features)
        weight = np.asarray(phi.T @ phi / len(phi))
        law = over_folds(
            [
                Remainder(0.0, 0.0) if e.cov is None else unrelated(weight, e.cov, cov)
                for e, cov in zip(self.es, means, strict=True)
            ]
        )
        return Remainder(law.mean, PRIORS.law_inflation * law.sd)


def _start(state: FitState) -> _Start:
    """Propensities; the session's state then has a clip for the share of the treated."""
    machine = BoostingSession.of(state)
    if state.known is not None:
        folds = FOLDS if state.session.plan.request.split == "crossfit" else 1
        return _Start(machine, (_Propensity(state.known, state.known, None),) * folds)
    ask = BoostingTask(
        target=TreatmentResidual(Constant(0.0), 0.0),
        what="propensity",
        bound=PROPENSITY_CUT,
        size=PROPENSITY_SIZE,
        curvature=np.full((1, len(state.rows)), 0.25),
        dispersion=1.0,
        logistic=True,
    )
    laws = [t.coefficients() for t in machine.train(Stages.PROPENSITY, ask, folds=True)]
    least = LEAST_PROPENSITY
    free = [
        Steps(machine.bins.features, w.mean, 0.0, least, 1 - least, logistic=True) for w in laws
    ]
    state = floored(state, float(np.mean([e(state.rows) for e in free])), 0.0)
    clip, soft = state.clip, state.soft_clip
    es = tuple(
        _Propensity(replace(e, lo=clip, hi=1 - clip), replace(e, lo=soft, hi=1 - soft), law.cov)
        for e, law in zip(free, laws, strict=True)
    )
    return _Start(replace(machine, state=state), es)


def _mean(machine: BoostingSession, coef: Vector, centre: Centre) -> Steps:
    outcome = machine.state.outcome
    return Steps(machine.bins.features, coef, centre.value, outcome.lo, outcome.hi)


def _arm_means(start: _Start, shared: Sequence[bool] | None, *, overlap: bool = False) -> _Means:
    """Both arms' means in one boosting.

    With `overlap` rows have overlap weights. Means are not additive, and the nearest additive
    functions differ between arms of different covariates: a spurious effect. With these weights the
    arms' covariates are more alike, on average also as regards products of columns.
    """
    machine = start.machine
    centre = machine.look(SIZES, machine.price(Stages.OUTCOME))
    ask = BoostingTask(
        target=machine.residual(centre),
        what="outcome by arm",
        bound=centre.cut,
        size=centre.size,
        curvature=start.shares,
        dispersion=centre.size**2,
        by_arm=True,
    )
    if overlap:
        ask = _weighted(start, ask)
    trained = machine.train(Stages.OUTCOME, ask, folds=True)
    return _means(start, centre, [t.fitted_arms(shared) for t in trained])


def _weighted(start: _Start, ask: BoostingTask) -> BoostingTask:
    """The same regression with overlap weights, those of the rarer arm being one."""
    share = start.shares
    root = by_fold(lambda p: OverlapRoot(p.soft, TOP), start.es)
    curvature = share * np.minimum(share[::-1] / TOP, 1.0)
    return replace(ask, target=TransformProduct(root, ask.target), factor=root, curvature=curvature)


def _means(start: _Start, centre: Centre, fitted: Sequence[Fitted]) -> _Means:
    """From both arms' constants and shapes, those of the control first, for each fold's rows."""
    machine = start.machine
    to_coef = np.asarray(block_diag(machine.bins.to_coef, machine.bins.to_coef))
    nuisances, covs = [], []
    for e, both in zip(start.es, fitted, strict=True):
        law = both.through(to_coef)
        p = len(law.mean) // 2
        mu0, mu1 = _mean(machine, law.mean[:p], centre), _mean(machine, law.mean[p:], centre)
        nuisances.append(Nuisance(e.e, mu0, mu1))
        covs.append(np.asarray(0.5 * (law.cov[:p, :p] + law.cov[p:, p:])))
    contrast = _contrast(machine, fitted)
    return _with_products(_Means(start, centre, tuple(nuisances), contrast, start.remainder(covs)))


def _with_products(means: _Means) -> _Means:
    """The same with what shapes of single columns leave of products of columns.

    Their mean outcome is (1 - e) mu_0 + e mu_1. Given the mean effect, what products add to its
    baseline is added to the means of both arms.
    """
    start, state = means.start, means.start.machine.state
    partials = tuple(
        FoldNuisances(e.e, e.soft, Mixture(e.soft, n.mu1, n.mu0), None)
        for e, n in zip(start.es, means.nuisances, strict=True)
    )
    partials, doubt = refined(state, partials, means.centre.explained)
    partials = updated_for_effect(state, partials, _effect(start.machine, means.contrast))
    es, nuisances = [], []
    for p, e, n in zip(partials, start.es, means.nuisances, strict=True):
        es.append(replace(e, e=p.e, soft=p.e_soft))
        nuisances.append(n if p.beyond is None else _extended(n, p.e, *p.beyond))
    rest = means.remainder + remainder(state, partials) + doubt
    return replace(
        means, start=replace(start, es=tuple(es)), nuisances=tuple(nuisances), remainder=rest
    )


def _extended(means: Nuisance, e: Function, psi: Interactions, joint: Pair) -> Nuisance:
    baseline = joint.slopes[1]
    return Nuisance(e, *(Extended(mu, psi, baseline) for mu in (means.mu0, means.mu1)))


def _contrast(machine: BoostingSession, fitted: Sequence[Fitted]) -> Posterior:
    """mu_1 - mu_0 on the effect's bins: the folds' mean (folds only exist for rows)."""
    own = _averaged(machine.bins, machine.effect.bins)
    turn = np.hstack([-own, own])
    mean = np.mean([turn @ one.mean for one in fitted], axis=0)
    cov = sum((turn @ one.cov @ turn.T for one in fitted), np.zeros((len(own),) * 2))
    return Fitted(mean, cov / len(fitted) ** 2).through(machine.effect.bins.to_coef)


def _averaged(bins: Bins, kept: Bins) -> Matrix:
    """From (constant, shapes) to those of the axes kept, shape (1 + M', 1 + M).

    The other shapes are centred within their own arm. Their average over all rows goes into the
    constant: left out, it would confound, as far as the arms differ in these columns.
    """
    out = np.eye(1 + bins.size)[kept.within(bins)]
    for axis, first in zip(bins.axes, bins.start[:-1], strict=True):
        if axis not in kept.axes:
            at = slice(int(first), int(first) + axis.size)
            out[0, 1 + at.start : 1 + at.stop] = bins.share[at]
    return out


def _shown(nuisances: Sequence[Nuisance]) -> Nuisances:
    """Nuisances as functions of new data: the folds' mean under cross-fitting."""
    first, last = nuisances[0], nuisances[-1]
    e, mu0, mu1 = first.e, first.mu0, first.mu1
    if last is not first:
        e, mu0, mu1 = mixed(e, last.e), mixed(mu0, last.mu0), mixed(mu1, last.mu1)
    return Nuisances(e, Mixture(e, mu1, mu0), mu0, mu1)


# -- learners --------------------------------------------------------------------------------


def s_or_t_learner(state: FitState, *, joint: bool) -> Learnt:
    """S-learner with interactions (`joint`) or T-learner: both arms' means, and their difference.

    One boosting has a shape for each arm: a row is in one arm, so both cost as much as one. With
    `joint` the arms' shapes are smoothed together and expected to be alike, rows have overlap
    weights where noise is small (by public or released numbers), and the mean effect is measured
    once more.
    """
    start = _start(state)
    machine = start.machine
    own = set(machine.effect.bins.axes)
    shared = [axis not in own for axis in machine.bins.axes] if joint else None
    overlap = joint and machine.price(Stages.OUTCOME) < OVERLAP_PRICE
    means = _arm_means(start, shared, overlap=overlap)
    learnt = _of_arms(means)
    return _with_mean(means.start, learnt, means.centre) if joint else learnt


def constant_s_learner(state: FitState) -> Learnt:
    """The S-learner of Niu et al. (2022): the treatment is one more axis of an additive fit."""
    start = _start(state)
    machine = start.machine
    centre = machine.look(SIZES, machine.price(Stages.OUTCOME, more=1))
    ask = machine.outcome_task(centre, with_treatment=True)
    size = 1 + machine.bins.size
    turn = np.vstack(
        [np.eye(size, size + 2), np.eye(size, size + 2)]
    )  # to (constant, shapes) by arm
    turn[0, size], turn[size, size + 1] = 1.0, 1.0
    fitted = [t.fitted() for t in machine.train(Stages.OUTCOME, ask, folds=True)]
    both = [Fitted(turn @ one.mean, turn @ one.cov @ turn.T) for one in fitted]
    return _of_arms(_means(start, centre, both))


def _of_arms(means: _Means) -> Learnt:
    """The effect as the difference of the arms' means."""
    machine = means.start.machine
    effect = _effect(machine, means.contrast)
    return Learnt(machine.state, effect, means.nuisances, _shown(means.nuisances), means.remainder)


def _with_mean(start: _Start, learnt: Learnt, centre: Centre) -> Learnt:
    """The effect, its mean moved by what overlap-weighted residuals say that it lacks.

    sum (T - e)(Y - mu_T) / sum e (1 - e) is one number, whose noise is that of one and not of all
    axes. It is right where either the arms' means or the propensity are, whereas the shapes' mean
    is off where means are not additive, and where noise shrinks what confounds. The move is shrunk
    by its noise against how far off that mean may be.
    """
    state, outcome = learnt.state, learnt.state.outcome
    clip, most = state.soft_clip, 2 * outcome.bound

    def score(part: tuple[_Propensity, Nuisance]) -> Transform:
        e, (mu0, mu1) = part[0].soft, (part[1].mu0, part[1].mu1)
        return ResidualProduct(e, Mixture(e, mu1, mu0), outcome, clip, Difference(mu1, mu0), most)

    target = by_fold(score, tuple(zip(start.es, learnt.nuisances, strict=True)))
    share = float(start.shares.prod(axis=0).mean())
    cut = min(MEAN_CUT * centre.size * float(np.sqrt(share)), target.bound)
    one = FeatureMap(state.design, (), 1.0)
    release = state.session.release(MEAN, Cross(one, target, cut, "mean residual"))
    mass = state.population.count * share
    move, noise = float(release.value[0]) / mass, float(release.noise_sd[0]) / mass
    (piece,) = learnt.effect.pieces
    effect = piece.additive
    phi = state.rows.phi(effect.features).mean(axis=0)
    off = float(phi @ piece.cov @ phi) + (MEAN_BIAS * centre.size) ** 2
    kept = off / (off + noise**2)
    # residuals are from means within the outcome's bounds, which the arms' shapes may leave
    held = np.mean([np.mean(n.mu1(state.rows) - n.mu0(state.rows)) for n in learnt.nuisances])
    coef, turn = effect.coef.copy(), np.eye(len(phi))
    coef[0] += float(held - phi @ coef) + kept * move
    turn[0] -= kept * phi
    cov = turn @ piece.cov @ turn.T
    cov[0, 0] += (kept * noise) ** 2
    moved = replace(piece, additive=replace(effect, coef=coef), cov=cov)
    return replace(learnt, effect=replace(learnt.effect, pieces=(moved,)))


def r_learner(state: FitState) -> Learnt:
    """R-learner: shapes of least sum [(Y - eta) - (T - e) tau(x)]^2 (Nie and Wager 2021, Eq. 4).

    Its residual (T - e)(Y - eta - (T - e) tau) is what is cut, weight and all.
    """
    start = _start(state)
    machine, state = start.machine, start.machine.state
    outcome, clip = state.outcome, state.soft_clip
    centre = machine.look(SIZES, machine.price(Stages.OUTCOME))
    trained = machine.train(Stages.OUTCOME, machine.outcome_task(centre), folds=True)
    etas = [t.coefficients() for t in trained]
    partials = tuple(
        FoldNuisances(e.e, e.soft, _mean(machine, eta.mean, centre), None)
        for e, eta in zip(start.es, etas, strict=True)
    )
    partials, doubt = refined(state, partials, centre.explained)
    product = by_fold(lambda p: ResidualProduct(p.e_soft, p.eta, outcome, clip), partials)
    cut, rms = _cut(machine.effect, product)
    share = start.shares.prod(axis=0)
    ask = BoostingTask(
        target=by_fold(lambda p: OutcomeResidual(p.eta, outcome), partials),
        what="effect",
        bound=cut,
        size=rms / float(np.sqrt(share.mean())),
        curvature=share[None, :],
        dispersion=rms**2 / float(share.mean()),
        factor=by_fold(lambda p: TreatmentResidual(p.e_soft, clip), partials),
    )
    (fitted,) = machine.effect.train(EFFECT, ask)
    effect = _effect(machine, fitted.coefficients())
    partials = updated_for_effect(state, partials, effect)
    nuisances = tuple(nuisance_of(p, effect, outcome) for p in partials)
    rest = start.remainder([eta.cov for eta in etas]) + remainder(state, partials) + doubt
    return Learnt(state, effect, nuisances, shown(partials, nuisances), rest)


def dr_learner(state: FitState) -> Learnt:
    """DR-learner: first the arms' means, then the score is boosted (Niu et al. 2022, Algorithm 2).

    The score is centred at the difference of the means' constants, which the rounds need not find.
    The means' shapes are no start for it: undoing their errors would cost as much noise as learning
    the shapes anew.
    """
    start = _start(state)
    machine, state = start.machine, start.machine.state
    outcome = state.outcome
    means = _arm_means(start, [False] * len(machine.bins.axes))
    middle = float(np.clip(means.contrast.mean[0], -outcome.bound, outcome.bound))
    target = by_fold(
        lambda n: Aipw(n, outcome, state.clip, Constant(middle), abs(middle)), means.nuisances
    )
    cut, rms = _cut(machine.effect, target)
    ask = BoostingTask(
        target=target,
        what="score",
        bound=cut,
        size=rms,
        curvature=np.ones((1, len(state.rows))),
        dispersion=rms**2,
    )
    (fitted,) = machine.effect.train(EFFECT, ask)
    effect = _effect(machine, fitted.coefficients(), middle)
    return Learnt(state, effect, means.nuisances, _shown(means.nuisances), means.remainder)


def x_learner(state: FitState) -> Learnt:
    """X-learner: imputed effects boosted within the arms, tau = e tau_0 + (1 - e) tau_1."""
    start = _start(state)
    machine, state = start.machine, start.machine.state
    means = _arm_means(start, [False] * len(machine.bins.axes))
    target = by_fold(lambda n: ImputedEffect(n, state.outcome), means.nuisances)
    cut, rms = _cut(machine.effect, target)
    ask = BoostingTask(
        target=target,
        what="imputed effects by arm",
        bound=cut,
        size=rms,
        curvature=start.shares,
        dispersion=rms**2,
        by_arm=True,
    )
    (fitted,) = machine.effect.train(EFFECT, ask)
    nuisance = _shown(means.nuisances)
    e = nuisance.propensity
    pieces = []
    for arm, weight in enumerate((e, Difference(Constant(1.0), e))):
        law = fitted.coefficients(arm)
        pieces.append(Piece(Steps(machine.effect.bins.features, law.mean), law.cov, weight))
    effect = Effect(tuple(pieces), 2 * state.outcome.bound)
    return Learnt(state, effect, means.nuisances, nuisance, means.remainder)


def _cut(machine: BoostingSession, target: Transform) -> tuple[float, float]:
    """Cut of a score and its root mean square there, from a noisy histogram of its size."""
    sizes = read_sizes(machine.state, sizes_of(target), Stages.SCORE_SIZES)
    cut = cuts.threshold_for_effect(sizes, machine.price(EFFECT))
    return cut, max(sizes.rms(cut), 1e-3 * cut)


def _effect(machine: BoostingSession, law: Posterior, middle: float = 0.0) -> Effect:
    piece = Piece(Steps(machine.effect.bins.features, law.mean, middle), law.cov)
    return Effect((piece,), 2 * machine.state.outcome.bound)
