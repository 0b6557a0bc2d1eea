"""Private boosting: queries to the vault, and distributions computed from their noisy sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache

import numpy as np
from scipy.linalg import block_diag

from privcausal.accounting import Release
from privcausal.estimators.nuisances import cross_noise
from privcausal.estimators.options import DPEBM
from privcausal.estimators.survey import Survey
from privcausal.features import functions
from privcausal.inference import cuts, smoothing
from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import Posterior
from privcausal.request.plan import StageKey
from privcausal.request.request import FOLDS
from privcausal.typing import Integers, Matrix, Vector
from privcausal.vault import ArmHistogram, BoostedRegression, Boosting, OutcomeResidual, Shapes

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

    # -- training ----------------------------------------------------------------------------

    def train(self, stage: StageKey, ask: BoostingTask, *, folds: bool = False) -> list[Trained]:
        """Boost on the stage's rows.

        With `folds` and two folds, each result is for one fold and is learned on the other.
        """
        session = self.state.session
        split = folds and session.plan.request.split == "crossfit"
        count = self.state.population.count / (FOLDS if split else 1)
        order = self._order(ask, count)
        vault = session.vault
        found = vault.release_folds(stage, order) if split else (vault.release(stage, order),)
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
