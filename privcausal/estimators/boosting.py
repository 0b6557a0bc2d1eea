"""Base "dpebm" (private explainable boosting): training, and the CATE learners on it.

Nuisances have two parts: shapes of single columns, by boosting, and products of columns, by
moments (`interactions.refine`). Without the products, a confounder such as X1 X2 would
bias averages and effects, and no interval would show the bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from privcausal import vault
from privcausal.accounting import Release
from privcausal.estimators import interactions
from privcausal.estimators import nuisances as nu
from privcausal.estimators.base import EffectFit, shown
from privcausal.estimators.budget import Use, learned, products
from privcausal.estimators.nuisances import cross_noise
from privcausal.estimators.options import DPEBM
from privcausal.estimators.orthogonal import refined
from privcausal.estimators.survey import Survey
from privcausal.estimators.words import Nuisances
from privcausal.features import functions
from privcausal.features.basis import FeatureMap
from privcausal.features.functions import Constant, Extended, NuisanceTriple, Steps, Triples
from privcausal.inference import cuts, smoothing
from privcausal.inference.confounding import Remainder, unrelated
from privcausal.inference.effects import Effect, Piece
from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import Posterior
from privcausal.inference.smoothing import Fitted
from privcausal.request.plan import StageKey
from privcausal.request.request import FOLDS, LEAST_PROPENSITY
from privcausal.typing import Integers, Matrix, Vector
from privcausal.vault import (
    ArmHistogram,
    BoostedRegression,
    Boosting,
    OutcomeResidual,
    Shapes,
    TransformProduct,
)

# -- training ----------------------------------------------------------------------------------

_PUBLIC_SEED = 20_220_214  # Random leaves are public and the same in each fit.

LEAST_BIN_SHARE = 0.01
"""Minimum share of the rows that a bin counts as; otherwise its steps would be pure noise."""

OUTCOME_CELLS = 32
"""Number of equal cells of the outcome's interval for choosing its center and clip."""


@dataclass(frozen=True, eq=False, kw_only=True)
class BoostingTask(BoostedRegression):
    """One regression by boosting."""

    size: float  # Typical size of the target, for the prior
    # Mean of a^2 (logistic: e (1 - e)) at the synthetic rows, shape (arms, SIZE). Multiplied by
    # each arm's share if the regression is by arm.
    curvature: Matrix
    dispersion: float  # Variance of a residual per unit of curvature


@dataclass(frozen=True, eq=False)
class BoostingSession:
    """The bins and options that all boostings of one fit share."""

    state: Survey
    option: DPEBM
    bins: functions.Bins

    @classmethod
    def of(cls, state: Survey) -> BoostingSession:
        option = state.session.base
        assert isinstance(option, DPEBM)
        return cls(state, option, functions.make_bins(state.design, state.rows, option.bins))

    @property
    def effect(self) -> BoostingSession:
        """This session, restricted to the bins of the effect modifiers."""
        terms = {block.group for block in self.state.effect_features.blocks}
        return replace(self, bins=self.bins.restricted(terms))

    def train(self, stage: StageKey, ask: BoostingTask, *, folds: bool = False) -> list[Trained]:
        """Boost on the stage's rows.

        With `folds` and two folds, each result is for one fold and is learned on the other.
        """
        session = self.state.session
        split = folds and session.plan.request.split == "crossfit"
        count = self.state.population.count / (FOLDS if split else 1)
        order = self._order(ask, count)
        release, release_folds = session.vault.release, session.vault.release_folds
        found = release_folds(stage, order) if split else (release(stage, order),)
        trained = [Trained(self, ask, order, count, release) for release in found]
        session.releases.append(found[0])
        return trained[::-1]

    def _order(self, ask: BoostingTask, count: float) -> Boosting:
        weight = np.maximum(self.mass(ask), LEAST_BIN_SHARE * ask.curvature.mean(axis=1)[:, None])
        bins = self.bins
        axes = max(len(bins.axes) + int(ask.with_treatment), 1)
        sizes = [axis.size for axis in bins.axes] + [2] * ask.with_treatment
        leaf = _leaves(tuple(sizes) or (1,), self.option.rounds, self.option.leaves)
        rate = min(self.option.learning_rate, 1.0 / axes)  # All axes move at once.
        regression = {f.name: getattr(ask, f.name) for f in fields(BoostedRegression)}
        return Boosting(bins, weight * count, leaf, rate, **regression)

    def mass(self, ask: BoostingTask) -> Matrix:
        """Mean curvature over each bin's rows times the bin's share, shape (arms, M)."""
        codes, start = self.bins.codes(self.state.rows), self.bins.start
        out = []
        for curvature in ask.curvature:
            total = float(curvature.mean())
            parts = [
                np.bincount(code - first, curvature, axis.size) / len(code)
                for code, first, axis in zip(codes, start[:-1], self.bins.axes, strict=True)
            ] or [np.array([total])]
            if ask.with_treatment:
                parts.append(np.full(2, 0.5 * total))
            out.append(np.concatenate(parts))
        return np.stack(out)

    def price(self, stage: StageKey, *, more: int = 0) -> float:
        """Noise sd of the fitted values per unit of the clip: the cost of a wider clip."""
        axes = max(len(self.bins.axes) + more, 1)
        return cross_noise(self.state, stage, axes) / self.state.population.count

    def look(self, stage: StageKey, price: float) -> Centre:
        """Center and clip of the outcome, from a noisy histogram over its declared interval."""
        outcome = self.state.outcome
        edges = np.linspace(-outcome.bound, outcome.bound, OUTCOME_CELLS + 1)
        release = self.state.session.release(stage, ArmHistogram(outcome, edges[1:-1], "outcome"))
        arms, sd = release.value.reshape(2, OUTCOME_CELLS), float(release.noise_sd[0])
        self.state.session.look_for(arms.sum(axis=1), sd * np.sqrt(OUTCOME_CELLS))
        counts, sd = arms.sum(axis=0), sd * np.sqrt(2.0)
        return centre_of(counts, sd, edges, price, 0.5 * (outcome.lo + outcome.hi))

    def residual(self, centre: Centre) -> OutcomeResidual:
        return OutcomeResidual(functions.Constant(centre.value), self.state.outcome)

    def outcome_task(self, centre: Centre, *, with_treatment: bool = False) -> BoostingTask:
        """Task for regressing the outcome on all covariates, optionally with the treatment."""
        return BoostingTask(
            target=self.residual(centre), what="outcome", bound=centre.cut, size=centre.size,
            curvature=np.ones((1, len(self.state.rows))), dispersion=centre.size**2,
            with_treatment=with_treatment,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Centre:
    """Public center of the outcome, clip of its residuals, and typical size of its residuals."""

    value: float
    cut: float
    size: float

    @property
    def explained(self) -> float:
        """Sd of the mean outcome over the covariates, if they explain the assumed share."""
        return float(np.sqrt(PRIORS.window_explained)) * self.size


def centre_of(counts: Vector, sd: float, edges: Vector, price: float, middle: float) -> Centre:
    """Mean of a noisy histogram, and the clip that balances noise against clipping bias.

    Residuals beyond the clip are lost to the arms' means and to the effect's shape. Averages use
    doubly robust scores of whole outcomes, with a separate clip. Cells that cannot be distinguished
    from noise are ignored. If no cell is detectable, the whole interval is used.
    """
    middles = 0.5 * (edges[1:] + edges[:-1])
    half = float(edges[-1])
    kept = np.where(counts >= cuts.TAIL * sd, np.maximum(counts, 0.0), 0.0)
    if not kept.any():
        return Centre(middle, half, 0.5 * half)
    # Outer cells hold values at the bounds; a two-valued outcome lies there.
    middles[[0, -1]] = edges[[0, -1]]
    mean = float(kept @ middles / kept.sum())
    away = np.abs(middles - mean)
    borders = cuts.size_edges(half + abs(mean))
    cells = np.minimum(np.searchsorted(borders, away), len(borders) - 1)
    held = np.asarray(np.bincount(cells, kept, len(borders)), np.float64)
    sizes = cuts.AbsHistogram(borders, held, sd)
    size = float(np.sqrt(kept @ away**2 / kept.sum()))
    # Residuals of a good fit are smaller, but a skewed outcome must not be clipped at all.
    cut = cuts.threshold_for_effect(sizes, price, bias=1.0)
    cut = min(max(cut, size), half + abs(mean))
    return Centre(middle + mean, cut, max(size, 1e-3 * half))


@lru_cache(maxsize=16)
def _leaves(sizes: tuple[int, ...], rounds: int, leaves: int) -> Integers:
    """Leaf of every bin in every round, shape (rounds, M): unions of neighbors, or of levels.

    Borders between leaves are drawn at random from a public seed, independently of the rows.
    """
    rng = np.random.default_rng(_PUBLIC_SEED)
    out = np.zeros((rounds, sum(sizes)), np.int64)
    first = 0
    for size in sizes:
        own = min(leaves, size)
        for number in range(rounds):
            borders = np.sort(rng.permutation(size - 1)[: own - 1]) + 1
            leaf = np.searchsorted(borders, np.arange(size), side="right")
            out[number, first : first + size] = leaf
        first += size
    return out


@dataclass(frozen=True, eq=False)
class Trained:
    """The noisy sums of one boosting, and the distributions computed from them."""

    machine: BoostingSession
    ask: BoostingTask
    order: Boosting
    count: float
    release: Release

    @property
    def _sd(self) -> float:
        """Noise sd of a sum."""
        return float(self.release.noise_sd[0])

    @cached_property
    def _path(self) -> list[Shapes]:
        """The shapes before each round, and after the last."""
        return self.order.path(self.release.value)

    @cached_property
    def _masses(self) -> Matrix:
        """Sums of the curvature over each bin's rows, shape (arms, M).

        For log odds the curvature is e (1 - e), and the rounds start where it is 1/4. A first
        smoothing with that value shows where the rounds ended. Values of e beyond the clip are not
        used.
        """
        start = self.machine.mass(self.ask) * self.count
        if not (self.ask.logistic and self.machine.option.smooth):
            return start
        bins, state = self.machine.bins, self.machine.state
        laws = [self._smoothed(self._total(start, 0, k)) for k in self._axes]
        law = smoothing.assemble(self._constant(0), laws).through(bins.to_coef)
        ends = state.clip, 1 - state.clip
        e = functions.Steps(bins.features, law.mean, 0.0, *ends, logistic=True)(state.rows)
        ask = replace(self.ask, curvature=(e * (1 - e))[None, :])
        return self.machine.mass(ask) * self.count

    def _axis(self, k: int) -> slice:
        return slice(int(self.order.start[k]), int(self.order.start[k + 1]))

    @cached_property
    def _courses(self) -> list[list[smoothing.Course]]:
        """How the rounds produced the raw shape of each axis, by arm."""
        return [[self._course(arm, k) for k in self._axes] for arm in range(self.order.arms)]

    def _course(self, arm: int, k: int) -> smoothing.Course:
        order, own = self.order, self._axis(k)
        weight, mass = order.weight[arm, own], self._masses[arm, own]
        leaf = order.leaf[:, own]
        carried, noise = smoothing.propagate(leaf, weight, mass, order.rate, self._sd)
        return smoothing.Course(self._path[-1].scores[arm, own], weight, mass, carried, noise)

    @cached_property
    def _totals(self) -> list[list[smoothing.Totals]]:
        """Combined evidence of all rounds on each axis, by arm."""
        arms = range(self.order.arms)
        return [[self._total(self._masses, arm, k) for k in self._axes] for arm in arms]

    def _total(self, masses: Matrix, arm: int, k: int) -> smoothing.Totals:
        order, own, axes = self.order, self._axis(k), self.machine.bins.axes
        sums = self.release.value.reshape(order.rounds, order.arms, order.axes, order.leaves)
        before = [made.scores[arm, own] + made.constant[arm] for made in self._path[:-1]]
        return smoothing.totals(
            order.leaf[:, own], sums[:, arm, k], np.array(before), masses[arm, own],
            self._sd, axes[k].position if k < len(axes) else None,
        )  # fmt: skip

    @property
    def _axes(self) -> range:
        """All axes with a shape, including the treatment's, but not the axis of a lone constant."""
        return range(len(self.machine.bins.axes) + int(self.ask.with_treatment))

    def _constant(self, arm: int) -> tuple[float, float]:
        order = self.order
        # The constant uses the mean over axes of their leaves' totals.
        sd = self._sd * np.sqrt(order.leaves / order.axes)
        weight = float(order.weight[arm, : order.start[1]].sum())
        raw, whole, variance = smoothing.constant_law(
            float(self._path[-1].constant[arm]), order.constant_rate, order.rounds, sd, weight,
            self.ask.dispersion,
        )  # fmt: skip
        return (whole if self.machine.option.smooth else raw), variance

    def _laws(self, arm: int) -> list[tuple[Vector, Matrix]]:
        """Distribution of each axis's shape in one arm."""
        dispersion = self.ask.dispersion
        if not self.machine.option.smooth:
            return [(course.raw, course.error(dispersion)) for course in self._courses[arm]]
        return [self._smoothed(one) for one in self._totals[arm]]

    def _smoothed(self, found: smoothing.Totals) -> tuple[Vector, Matrix]:
        return smoothing.smooth(found, self.ask.size, self.ask.dispersion)

    def coefficients(self, arm: int = 0) -> Posterior:
        """Distribution of the coefficients of the bins' indicators."""
        return self.fitted(arm).through(self.machine.bins.to_coef)

    def fitted(self, arm: int = 0) -> smoothing.Fitted:
        """Distribution of the constant and the shapes of one arm (or of all rows)."""
        return smoothing.assemble(self._constant(arm), self._laws(arm))

    def fitted_arms(self, shared: Sequence[bool] | None) -> smoothing.Fitted:
        """Distribution of both arms' constants and shapes, control first.

        `shared` states for each axis whether the arms have one shape. False means that they may
        differ, but only slightly a priori. With None, the arms are treated separately.
        """
        if shared is None or not self.machine.option.smooth:
            shapes = [
                (np.r_[a[0], b[0]], np.asarray(block_diag(a[1], b[1])))
                for a, b in zip(self._laws(0), self._laws(1), strict=True)
            ]
        else:
            size, dispersion = self.ask.size, self.ask.dispersion
            shapes = [
                smoothing.smooth_arms(a, b, size, dispersion, apart=not alike)
                for a, b, alike in zip(*self._totals, shared, strict=True)
            ]
        return smoothing.assemble_arms([self._constant(0), self._constant(1)], shapes)


# -- recipes of the learners -------------------------------------------------------------------

PROPENSITY = StageKey("nuisance", "propensity")
BOOSTED_SIZES = StageKey("nuisance", "outcome sizes")
BOOSTED_MEAN = StageKey("nuisance", "mean effect")
BOOSTED_EFFECT = StageKey("effect", "boosting")

PROPENSITY_CUT = 0.75
"""Clip of the residuals T - e(x); larger ones occur only if an arm's probability is below 1/4."""

OVERLAP_PRICE = 0.02
"""Maximum noise cost (`BoostingSession.price`) for overlap weights.

Overlap weights discard rows and depend on the propensity. With more noise, adjusting for the
shapes gives smaller errors.
"""

TOP_WEIGHT = 0.5
"""Overlap weights are divided by this and capped at one.

A row of the arm that is rarer at its x counts in full. The weights balance the arms' covariates
only in part, but add less noise than full balance.
"""

MEAN_CUT = 3.0
"""Clip of the residuals for the mean effect, in multiples of their typical size."""

MEAN_BIAS = 0.15
"""Prior sd of residual confounding in the shapes' mean effect, in units of the outcome's size."""

PROPENSITY_SIZE = 1.0
"""Typical size of log odds, for the prior of a propensity's shapes."""


_PRODUCTS = (
    Use(interactions.INTERACTION_SIZES, 0.01, "One histogram, used for one quantile. By hand.",
        products),
    Use(interactions.TREATMENT_INTERACTIONS, 0.11, "With the outcome's interactions and the sizes, "
        "28% of the group, as for learner 'r'. By hand.", products),
    Use(interactions.OUTCOME_INTERACTIONS, 0.25, "As for the treatment. By hand.", products),
)  # fmt: skip
_WEIGHTING = (
    Use(PROPENSITY, 0.15, "It only weights the arms, so its errors matter least. By hand.",
        learned),
    Use(BOOSTED_SIZES, 0.03, "As for learner 'r', in a larger group. By hand."),
)  # fmt: skip

ONE_STAGE = (*_WEIGHTING, Use(nu.OUTCOME, 0.78, "The estimate itself. By hand."), *_PRODUCTS)
"""Stages of learners that only regress the outcome within arms."""

MEAN_FIRST = (
    *_WEIGHTING,
    Use(nu.OUTCOME, 0.66, "The rest of the estimate after a mean effect. By hand."),
    *_PRODUCTS,
    Use(BOOSTED_MEAN, 0.12, "One number, the mean effect. By hand."),
)
"""Stages of learners that regress the outcome within arms after a mean effect."""

TWO_STAGES = (
    Use(PROPENSITY, 0.25, "Its errors times the outcome's errors bias the effect. By hand.",
        learned),
    Use(BOOSTED_SIZES, 0.04, "As for learner 'r', with few other stages. By hand."),
    Use(nu.OUTCOME, 0.67, "As for learner 'r': its errors widen the residual's range. By hand."),
    *_PRODUCTS,
    Use(nu.SCORE_SIZES, 0.04, "As for learner 'r', with few other stages. By hand."),
    Use(BOOSTED_EFFECT, 0.96, "The effect itself. By hand."),
)  # fmt: skip
"""Stages of learners that regress an effect on pseudo-outcomes from nuisances."""


# -- nuisances -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Propensity:
    """e(x) of a fold's rows at the arm clip and at the residual clip.

    `cov` is the covariance of its coefficients, or None if the propensity is known.
    """

    e: functions.Function
    soft: functions.Function
    cov: Matrix | None

    def beside(self, eta: functions.Function) -> nu.FoldFit:
        return nu.FoldFit(self.e, self.soft, eta, None)


@dataclass(frozen=True, eq=False)
class _Means:
    """Both arms' means by fold, the propensities, and the difference of treated and control.

    `remainder` is the distribution of the joint bias from errors of propensity and means.
    """

    partials: nu.Folds
    nuisances: Triples
    centre: Centre
    contrast: Posterior
    remainder: Remainder


@dataclass(frozen=True, eq=False)
class _Start:
    """The session with its propensities; each fold's rows use the other fold's propensity."""

    machine: BoostingSession
    es: tuple[_Propensity, ...]

    @cached_property
    def shares(self) -> Matrix:
        """Share of control and treated at the synthetic rows, shape (2, SIZE)."""
        return _shares(self.machine.state, [p.soft for p in self.es])

    def remainder(self, means: Sequence[Matrix]) -> Remainder:
        """Bias from the product of both nuisances' errors, given covariances of the mean outcomes.

        An error of the log odds changes e by e (1 - e) times that error. This factor cancels the
        weight of the AIPW score.
        """
        phi = self.machine.state.rows.phi(self.machine.bins.features)
        weight = np.asarray(phi.T @ phi / len(phi))
        laws = [
            Remainder(0.0, 0.0) if e.cov is None else unrelated(weight, e.cov, cov)
            for e, cov in zip(self.es, means, strict=True)
        ]
        return nu.over_folds(laws)


def _shares(state: Survey, es: Sequence[functions.Function]) -> Matrix:
    e = np.mean([soft(state.rows) for soft in es], axis=0)
    return np.stack([1 - e, e])


def _start(state: Survey) -> _Start:
    """Learn propensities, and set the clip of the session's state by the share of the treated."""
    machine = BoostingSession.of(state)
    if state.known is not None:
        folds = FOLDS if state.session.plan.request.split == "crossfit" else 1
        return _Start(machine, (_Propensity(state.known, state.known, None),) * folds)
    ask = BoostingTask(
        target=vault.TreatmentResidual(Constant(0.0), 0.0), what="propensity",
        bound=PROPENSITY_CUT, size=PROPENSITY_SIZE, curvature=np.full((1, len(state.rows)), 0.25),
        dispersion=1.0, logistic=True,
    )  # fmt: skip
    laws = [t.coefficients() for t in machine.train(PROPENSITY, ask, folds=True)]
    ends = LEAST_PROPENSITY, 1 - LEAST_PROPENSITY
    free = [Steps(machine.bins.features, w.mean, 0.0, *ends, logistic=True) for w in laws]
    state = nu.floored(state, float(np.mean([e(state.rows) for e in free])), 0.0)
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
    """Learn both arms' means in one boosting.

    `overlap` applies overlap weights. Means are not additive. The nearest additive functions differ
    between arms with different covariates, which gives a spurious effect. With overlap weights the
    arms' covariates are more similar, and products of columns also become more similar on average.
    """
    machine = start.machine
    centre = machine.look(BOOSTED_SIZES, machine.price(nu.OUTCOME))
    ask = BoostingTask(
        target=machine.residual(centre), what="outcome by arm", bound=centre.cut, size=centre.size,
        curvature=start.shares, dispersion=centre.size**2, by_arm=True,
    )  # fmt: skip
    if overlap:
        ask = _weighted(start, ask)
    trained = machine.train(nu.OUTCOME, ask, folds=True)
    return _means(start, centre, [t.fitted_arms(shared) for t in trained])


def _weighted(start: _Start, ask: BoostingTask) -> BoostingTask:
    """The same regression with overlap weights, which are one for rows of the rarer arm."""
    share = start.shares
    root = nu.by_fold(lambda p: vault.OverlapRoot(p.soft, TOP_WEIGHT), start.es)
    curvature = share * np.minimum(share[::-1] / TOP_WEIGHT, 1.0)
    return replace(ask, target=TransformProduct(root, ask.target), factor=root, curvature=curvature)


def _means(start: _Start, centre: Centre, fitted: Sequence[Fitted]) -> _Means:
    """Nuisances for each fold's rows, from both arms' constants and shapes, control first.

    Products of columns correct the shapes of single columns. The mean outcome is
    (1 - e) mu_0 + e mu_1. Given the mean effect, the products' correction of its baseline is added
    to the means of both arms.
    """
    machine, state = start.machine, start.machine.state
    to_coef = np.asarray(block_diag(machine.bins.to_coef, machine.bins.to_coef))
    plain, partials, covs = list[NuisanceTriple](), list[nu.FoldFit](), []
    for e, both in zip(start.es, fitted, strict=True):
        law = both.through(to_coef)
        p = len(law.mean) // 2
        mu0, mu1 = _mean(machine, law.mean[:p], centre), _mean(machine, law.mean[p:], centre)
        plain.append(NuisanceTriple(e.e, mu0, mu1))
        partials.append(e.beside(functions.Mixture(e.soft, mu1, mu0)))
        covs.append(np.asarray(0.5 * (law.cov[:p, :p] + law.cov[p:, p:])))
    # mu_1 - mu_0 on the effect's bins, averaged over the folds (only rows belong to a fold).
    own = _averaged(machine.bins, machine.effect.bins)
    turn = np.hstack([-own, own])
    mean = np.mean([turn @ one.mean for one in fitted], axis=0)
    cov = sum((turn @ one.cov @ turn.T for one in fitted), np.zeros((len(own),) * 2))
    contrast = Fitted(mean, cov / len(fitted) ** 2).through(machine.effect.bins.to_coef)
    more, doubt = refined(state, tuple(partials), centre.explained)
    more = nu.updated_for_effect(state, more, _effect(machine, contrast))
    nuisances = tuple(map(_extended, plain, more))
    rest = start.remainder(covs) + nu.remainder(state, more) + doubt
    return _Means(more, nuisances, centre, contrast, rest)


def _extended(means: NuisanceTriple, part: nu.FoldFit) -> NuisanceTriple:
    if part.beyond is None:
        return means
    psi, joint = part.beyond
    baseline = joint.slopes[1]
    return NuisanceTriple(part.e, *(Extended(mu, psi, baseline) for mu in (means.mu0, means.mu1)))


def _averaged(bins: functions.Bins, kept: functions.Bins) -> Matrix:
    """Map from (constant, shapes) to (constant, shapes of kept axes), shape (1 + M', 1 + M).

    The other shapes are centered within their own arm. The map adds their average over all rows to
    the constant. Omitting this average would confound the effect, as far as the arms differ in
    these columns.
    """
    out = np.eye(1 + bins.size)[kept.within(bins)]
    for axis, first in zip(bins.axes, bins.start[:-1], strict=True):
        if axis not in kept.axes:
            at = slice(int(first), int(first) + axis.size)
            out[0, 1 + at.start : 1 + at.stop] = bins.share[at]
    return out


# -- learners --------------------------------------------------------------------------------


def s_or_t_learner(state: Survey, *, joint: bool) -> EffectFit:
    """S-learner with interactions (`joint`) or T-learner: both arms' means, and their difference.

    One boosting has a shape for each arm. A row is in only one arm, so two shapes cost the same as
    one. With `joint`, three things change. The arms' shapes are smoothed together and expected to
    be similar. Rows have overlap weights if public or released numbers indicate little noise. The
    mean effect is measured once more.
    """
    start = _start(state)
    machine = start.machine
    own = set(machine.effect.bins.axes)
    shared = [axis not in own for axis in machine.bins.axes] if joint else None
    overlap = joint and machine.price(nu.OUTCOME) < OVERLAP_PRICE
    means = _arm_means(start, shared, overlap=overlap)
    effect = _effect(machine, means.contrast)
    return _learnt(start, means, _with_mean(machine.state, means, effect) if joint else effect)


def constant_s_learner(state: Survey) -> EffectFit:
    """The S-learner of Niu et al. (2022): the treatment is one more axis of an additive fit."""
    start = _start(state)
    machine = start.machine
    centre = machine.look(BOOSTED_SIZES, machine.price(nu.OUTCOME, more=1))
    ask = machine.outcome_task(centre, with_treatment=True)
    size = 1 + machine.bins.size
    turn = np.tile(np.eye(size, size + 2), (2, 1))  # Maps to (constant, shapes) by arm.
    turn[0, size], turn[size, size + 1] = 1.0, 1.0
    fitted = [t.fitted() for t in machine.train(nu.OUTCOME, ask, folds=True)]
    both = [Fitted(turn @ one.mean, turn @ one.cov @ turn.T) for one in fitted]
    means = _means(start, centre, both)
    return _learnt(start, means, _effect(machine, means.contrast))


def _learnt(start: _Start, means: _Means, effect: Effect) -> EffectFit:
    """Assemble the fit; nuisances for new data are the mean over folds."""
    first, last = means.nuisances[0], means.nuisances[-1]
    e, mu0, mu1 = first.e, first.mu0, first.mu1
    if last is not first:
        e, mu0, mu1 = nu.mixed(e, last.e), nu.mixed(mu0, last.mu0), nu.mixed(mu1, last.mu1)
    seen = Nuisances(e, functions.Mixture(e, mu1, mu0), mu0, mu1)
    return EffectFit(start.machine.state, effect, means.nuisances, seen, means.remainder)


def _with_mean(state: Survey, means: _Means, found: Effect) -> Effect:
    """Correct the mean of the effect with overlap-weighted residuals.

    The correction is sum (T - e)(Y - mu_T) / sum e (1 - e). It is a single number and has the noise
    of one number, not of all axes. It is correct if either the arms' means or the propensity are
    correct. The shapes' mean, in contrast, is biased if means are not additive, or if noise shrinks
    the confounding shapes. The correction is shrunk: its noise is weighed against the possible
    error of the shapes' mean.
    """
    outcome, size = state.outcome, means.centre.size
    clip, most = state.soft_clip, 2 * outcome.bound
    softs = [part.e_soft for part in means.partials]

    def score(part: tuple[functions.Function, NuisanceTriple]) -> vault.Transform:
        e, (mu0, mu1) = part[0], (part[1].mu0, part[1].mu1)
        eta, tau = functions.Mixture(e, mu1, mu0), functions.Difference(mu1, mu0)
        return vault.ResidualProduct(e, eta, outcome, clip, tau, most)

    target = nu.by_fold(score, tuple(zip(softs, means.nuisances, strict=True)))
    share = float(_shares(state, softs).prod(axis=0).mean())
    cut = min(MEAN_CUT * size * float(np.sqrt(share)), target.bound)
    one = FeatureMap(state.design, (), 1.0)
    release = state.session.release(BOOSTED_MEAN, vault.Cross(one, target, cut, "mean residual"))
    mass = state.population.count * share
    move, noise = float(release.value[0]) / mass, float(release.noise_sd[0]) / mass
    (piece,) = found.pieces
    effect = piece.additive
    phi = state.rows.phi(effect.features).mean(axis=0)
    off = float(phi @ piece.cov @ phi) + (MEAN_BIAS * size) ** 2
    kept = off / (off + noise**2)
    # Residuals use means clipped to the outcome's bounds; the arms' shapes may exceed these bounds.
    held = np.mean([np.mean(n.mu1(state.rows) - n.mu0(state.rows)) for n in means.nuisances])
    coef, turn = effect.coef.copy(), np.eye(len(phi))
    coef[0] += float(held - phi @ coef) + kept * move
    turn[0] -= kept * phi
    cov = turn @ piece.cov @ turn.T
    cov[0, 0] += (kept * noise) ** 2
    moved = replace(piece, additive=replace(effect, coef=coef), cov=cov)
    return replace(found, pieces=(moved,))


def r_learner(state: Survey) -> EffectFit:
    """R-learner (Nie and Wager 2021, Eq. 4).

    The shapes minimize sum [(Y - eta) - (T - e) tau(x)]^2. The clip applies to the whole residual,
    (T - e)(Y - eta - (T - e) tau), including its weight.
    """
    start = _start(state)
    machine, state = start.machine, start.machine.state
    outcome, clip = state.outcome, state.soft_clip
    centre = machine.look(BOOSTED_SIZES, machine.price(nu.OUTCOME))
    trained = machine.train(nu.OUTCOME, machine.outcome_task(centre), folds=True)
    etas = [t.coefficients() for t in trained]
    pairs = zip(start.es, etas, strict=True)
    partials = tuple(e.beside(_mean(machine, eta.mean, centre)) for e, eta in pairs)
    partials, doubt = refined(state, partials, centre.explained)
    product = nu.by_fold(lambda p: vault.ResidualProduct(p.e_soft, p.eta, outcome, clip), partials)
    share = start.shares.prod(axis=0)
    fitted = _second_boosting(
        machine, product, "effect", share[None, :], float(share.mean()),
        target=nu.by_fold(lambda p: vault.OutcomeResidual(p.eta, outcome), partials),
        factor=nu.by_fold(lambda p: vault.TreatmentResidual(p.e_soft, clip), partials),
    )  # fmt: skip
    effect = _effect(machine, fitted.coefficients())
    partials = nu.updated_for_effect(state, partials, effect)
    nuisances = tuple(nu.nuisance_of(p, effect, outcome) for p in partials)
    rest = start.remainder([eta.cov for eta in etas]) + nu.remainder(state, partials) + doubt
    return EffectFit(state, effect, nuisances, shown(partials, nuisances), rest)


def dr_learner(state: Survey) -> EffectFit:
    """DR-learner: learn the arms' means, then boost the score (Niu et al. 2022, Algorithm 2).

    The score is centered at the difference of the means' constants, so the rounds need not find it.
    The score does not start from the means' shapes. Undoing their errors would add as much noise as
    learning the shapes anew.
    """
    start = _start(state)
    machine, state = start.machine, start.machine.state
    outcome = state.outcome
    means = _arm_means(start, [False] * len(machine.bins.axes))
    middle = float(np.clip(means.contrast.mean[0], -outcome.bound, outcome.bound))
    target = nu.by_fold(
        lambda n: vault.Aipw(n, outcome, state.clip, Constant(middle), abs(middle)), means.nuisances
    )
    fitted = _second_boosting(machine, target, "score", np.ones((1, len(state.rows))))
    return _learnt(start, means, _effect(machine, fitted.coefficients(), middle))


def x_learner(state: Survey) -> EffectFit:
    """X-learner: imputed effects boosted within the arms, tau = e tau_0 + (1 - e) tau_1."""
    start = _start(state)
    machine, state = start.machine, start.machine.state
    means = _arm_means(start, [False] * len(machine.bins.axes))
    target = nu.by_fold(lambda n: vault.ImputedEffect(n, state.outcome), means.nuisances)
    what = "imputed effects by arm"
    fitted = _second_boosting(machine, target, what, start.shares, by_arm=True)
    learnt = _learnt(start, means, Effect((), 2 * state.outcome.bound))
    e, pieces = learnt.shown.propensity, list[Piece]()
    for arm, weight in enumerate((e, functions.Difference(Constant(1.0), e))):
        law = fitted.coefficients(arm)
        pieces.append(Piece(Steps(machine.effect.bins.features, law.mean), law.cov, weight))
    return replace(learnt, effect=replace(learnt.effect, pieces=tuple(pieces)))


def _second_boosting(
    machine: BoostingSession,
    score: vault.Transform,
    what: str,
    curvature: Matrix,
    weight: float = 1.0,
    *,
    target: vault.Transform | None = None,
    **options: Any,
) -> Trained:
    """Boost the effect's shapes from the score, or from the `target` and factor of its product.

    A noisy histogram of the score's size determines the clip. `weight` is the rows' mean weight.
    """
    sizes = nu.read_sizes(machine.state, nu.sizes_of(score), nu.SCORE_SIZES)
    cut = cuts.threshold_for_effect(sizes, machine.effect.price(BOOSTED_EFFECT))
    rms = max(sizes.rms(cut), 1e-3 * cut)
    ask = BoostingTask(
        target=target or score, what=what, bound=cut, size=rms / float(np.sqrt(weight)),
        curvature=curvature, dispersion=rms**2 / weight, **options,
    )  # fmt: skip
    (fitted,) = machine.effect.train(BOOSTED_EFFECT, ask)
    return fitted


def _effect(machine: BoostingSession, law: Posterior, middle: float = 0.0) -> Effect:
    piece = Piece(Steps(machine.effect.bins.features, law.mean, middle), law.cov)
    return Effect((piece,), 2 * machine.state.outcome.bound)
