"""Regressions by private boosting: orders to the vault, and what is read off their noisy sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache

import numpy as np

from privcausal.accounting import Release
from privcausal.inference import cut as cuts
from privcausal.inference import smoothing
from privcausal.inference.additive import Posterior
from privcausal.inference.smoothing import Course, Fitted, Totals
from privcausal.learners.dpebm import DPEBM
from privcausal.learners.ground import Ground
from privcausal.spec.functions import Constant
from privcausal.spec.request import FOLDS
from privcausal.spec.steps import Bins, Steps, make_bins
from privcausal.typing import Integers, Matrix, Vector
from privcausal.vault import ArmHistogram, Boosting, OutcomeResidual, Regression, Shapes

_PUBLIC_SEED = 20_220_214  # random leaves are no noise: they are public, and the same in each fit

LEAST_SHARE = 0.01
"""A bin counts with at least this share of the rows, or its steps would be noise alone."""

CELLS = 32
"""Equal cells of the outcome's interval, from which its centre and cut are read."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Ask(Regression):
    """One regression by boosting.

    Attributes
    ----------
    size : float
        Typical size of the target, for the prior.
    curvature : Vector
        Mean of a^2 (logistic: e (1 - e)) at the synthetic rows; by arm, of each arm's share
        times it, shape (arms, SIZE).
    dispersion : float
        Variance of a residual per unit of curvature.
    """

    size: float
    curvature: Matrix
    dispersion: float


@dataclass(frozen=True, eq=False)
class Machine:
    """The bins and options that all boostings of one fit share."""

    ground: Ground
    option: DPEBM
    bins: Bins

    @classmethod
    def of(cls, ground: Ground) -> Machine:
        option = ground.session.base
        assert isinstance(option, DPEBM)
        return cls(ground, option, make_bins(ground.design, ground.rows, option.bins))

    @property
    def effect(self) -> Machine:
        """The same on the effect modifiers alone."""
        terms = {block.group for block in self.ground.effect_features.blocks}
        return replace(self, bins=self.bins.restricted(terms))

    def rate(self, axes: int) -> float:
        """All axes move at once: the more of them, the shorter the steps may be."""
        return min(self.option.learning_rate, 1.0 / axes)

    # -- training ----------------------------------------------------------------------------

    def train(self, stage: str, ask: Ask, *, folds: bool = False) -> list[Trained]:
        """Boost on the stage's rows, or on each fold where the plan cross-fits `folds`."""
        session = self.ground.session
        split = folds and session.plan.request.split == "crossfit"
        count = self.ground.population.count / (FOLDS if split else 1)
        order = self._order(ask, count)
        vault = session.vault
        found = vault.boost_folds(stage, order) if split else (vault.boost(stage, order),)
        trained = [Trained(self, ask, order, count, release) for release in found]
        session.releases.append(trained[0].short)
        return trained

    def _order(self, ask: Ask, count: float) -> Boosting:
        weight = np.maximum(self.mass(ask), LEAST_SHARE * ask.curvature.mean(axis=1)[:, None])
        bins = self.bins
        axes = max(len(bins.axes) + int(ask.with_treatment), 1)
        sizes = [axis.size for axis in bins.axes] + [2] * ask.with_treatment
        leaf = _leaves(tuple(sizes) or (1,), self.option.rounds, self.option.leaves)
        regression = {f.name: getattr(ask, f.name) for f in fields(Regression)}
        return Boosting(bins, weight * count, leaf, self.rate(axes), **regression)

    def mass(self, ask: Ask) -> Matrix:
        """Mean curvature over each bin's rows times its share, shape (arms, M)."""
        codes, start = self.bins.codes(self.ground.rows), self.bins.start
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

    def price(self, stage: str, *, more: int = 0) -> float:
        """Noise sd of the fitted values per unit of the cut: what the price of a wider cut is."""
        plan = self.ground.session.plan
        trust = plan.request.trust
        change = 2.0 if trust.neighbors == "substitute" else 1.0
        axes = max(len(self.bins.axes) + more, 1)
        noise = change * trust.max_rows * axes / np.sqrt(2 * plan.stage(stage).rho / 1e12)
        return float(noise / self.ground.population.count)

    def look(self, stage: str, price: float) -> Centre:
        """Centre and cut of the outcome, from a noisy histogram over its declared interval."""
        outcome = self.ground.outcome
        edges = np.linspace(-outcome.bound, outcome.bound, CELLS + 1)
        release = self.ground.session.release(stage, ArmHistogram(outcome, edges[1:-1], "outcome"))
        arms, sd = release.value.reshape(2, CELLS), float(release.noise_sd[0])
        self.ground.session.look_for(float(arms.sum(axis=1).min()), sd * np.sqrt(CELLS))
        counts, sd = arms.sum(axis=0), sd * np.sqrt(2.0)
        return centre_of(counts, sd, edges, price, 0.5 * (outcome.lo + outcome.hi))

    def residual(self, centre: float) -> OutcomeResidual:
        return OutcomeResidual(Constant(centre), self.ground.outcome)


@dataclass(frozen=True, eq=False)
class Centre:
    """Public centre of the outcome, cut of its residuals and their typical size."""

    value: float
    cut: float
    size: float


def centre_of(counts: Vector, sd: float, edges: Vector, price: float, middle: float) -> Centre:
    """Mean of a noisy histogram, and the cut that trades noise for clipping.

    Cells that do not stand out from the noise count nothing; if none does, the whole interval is
    taken.
    """
    middles = 0.5 * (edges[1:] + edges[:-1])
    half = float(edges[-1])
    kept = np.where(counts >= cuts.TAIL * sd, np.maximum(counts, 0.0), 0.0)
    if not kept.any():
        return Centre(middle, half, 0.5 * half)
    # outer cells hold what lies at the bounds: a two-valued outcome sits there
    middles[[0, -1]] = edges[[0, -1]]
    mean = float(kept @ middles / kept.sum())
    away = np.abs(middles - mean)
    borders = cuts.edges(half + abs(mean))
    cells = np.minimum(np.searchsorted(borders, away), len(borders) - 1)
    sizes = cuts.Sizes(borders, np.asarray(np.bincount(cells, kept, len(borders)), np.float64), sd)
    size = float(np.sqrt(kept @ away**2 / kept.sum()))
    # residuals of a good fit are smaller, but a lopsided outcome must not be cut at all
    cut = cuts.trade(sizes, price, bias=1.0)
    cut = min(max(cut, size), half + abs(mean))
    return Centre(middle + mean, cut, max(size, 1e-3 * half))


@lru_cache(maxsize=16)
def _leaves(sizes: tuple[int, ...], rounds: int, leaves: int) -> Integers:
    """Leaf of every bin in every round, shape (rounds, M): unions of neighbours, or of levels.

    Borders between leaves are drawn at random without regard to any row, from a public seed.
    """
    rng = np.random.default_rng(_PUBLIC_SEED)
    out = np.zeros((rounds, sum(sizes)), np.int64)
    first = 0
    for size in sizes:
        own = min(leaves, size)
        for number in range(rounds):
            borders = np.sort(rng.permutation(size - 1)[: own - 1]) + 1
            out[number, first : first + size] = np.searchsorted(
                borders, np.arange(size), side="right"
            )
        first += size
    return out


@dataclass(frozen=True, eq=False)
class Trained:
    """The noisy sums of one boosting, and what can be read off them."""

    machine: Machine
    ask: Ask
    order: Boosting
    count: float
    release: Release

    @cached_property
    def _path(self) -> list[Shapes]:
        """The shapes before each round, and after the last."""
        return self.order.path(self.release.value)

    @property
    def _shapes(self) -> Shapes:
        return self._path[-1]

    @cached_property
    def _masses(self) -> Matrix:
        """Sums of the curvature over each bin's rows, shape (arms, M).

        That of log odds is e (1 - e), and the rounds began where it is 1/4: a first smoothing,
        which leans towards there, says where they went. Beyond the clip e is not used.
        """
        start = self.machine.mass(self.ask) * self.count
        if not (self.ask.logistic and self.machine.option.smooth):
            return start
        bins, ground = self.machine.bins, self.machine.ground
        laws = [self._smoothed(self._total(start, 0, k)) for k in self._axes]
        law = coefficients(bins, smoothing.assemble(self._constant(0), laws))
        ends = ground.clip, 1 - ground.clip
        e = Steps(bins.features, law.mean, 0.0, *ends, logistic=True)(ground.rows)
        ask = replace(self.ask, curvature=(e * (1 - e))[None, :])
        return self.machine.mass(ask) * self.count

    def _axis(self, k: int) -> slice:
        """The bins of an axis."""
        return slice(int(self.order.start[k]), int(self.order.start[k + 1]))

    @cached_property
    def _courses(self) -> list[list[Course]]:
        """How the raw shape of each axis came about, by arm."""
        return [[self._course(arm, k) for k in self._axes] for arm in range(self.order.arms)]

    def _course(self, arm: int, k: int) -> Course:
        order, own = self.order, self._axis(k)
        weight, mass = order.weight[arm, own], self._masses[arm, own]
        sd = float(self.release.noise_sd[0])
        carried, noise = smoothing.propagate(order.leaf[:, own], weight, mass, order.rate, sd)
        return Course(self._shapes.scores[arm, own], weight, mass, carried, noise)

    @cached_property
    def _totals(self) -> list[list[Totals]]:
        """What all rounds say of each axis, by arm."""
        arms = range(self.order.arms)
        return [[self._total(self._masses, arm, k) for k in self._axes] for arm in arms]

    def _total(self, masses: Matrix, arm: int, k: int) -> Totals:
        order, own, axes = self.order, self._axis(k), self.machine.bins.axes
        sums = self.release.value.reshape(order.rounds, order.arms, order.axes, order.leaves)
        before = [made.scores[arm, own] + made.constant[arm] for made in self._path[:-1]]
        return smoothing.totals(
            order.leaf[:, own], sums[:, arm, k], np.array(before), masses[arm, own],
            float(self.release.noise_sd[0]), axes[k].position if k < len(axes) else None,
        )  # fmt: skip

    @property
    def _axes(self) -> range:
        """All that have a shape: the treatment's too, but not the lone constant's."""
        return range(len(self.machine.bins.axes) + int(self.ask.with_treatment))

    def _constant(self, arm: int) -> tuple[float, float]:
        order = self.order
        # the mean over axes of their leaves' totals
        sd = float(self.release.noise_sd[0]) * np.sqrt(order.leaves / order.axes)
        weight = float(order.weight[arm, : order.start[1]].sum())
        raw, whole, variance = smoothing.constant_law(
            float(self._shapes.constant[arm]), order.constant_rate, order.rounds, sd, weight,
            self.ask.dispersion,
        )  # fmt: skip
        return (whole if self.machine.option.smooth else raw), variance

    def _laws(self, arm: int) -> list[tuple[Vector, Matrix]]:
        """Of each axis's shape in one arm."""
        dispersion = self.ask.dispersion
        if not self.machine.option.smooth:
            return [smoothing.raw_law(course, dispersion) for course in self._courses[arm]]
        return [self._smoothed(one) for one in self._totals[arm]]

    def _smoothed(self, found: Totals) -> tuple[Vector, Matrix]:
        return smoothing.smooth(found, self.ask.size, self.ask.dispersion)

    def fitted(self, arm: int = 0) -> Fitted:
        """Law of the constant and the shapes of one arm (or of all rows)."""
        return smoothing.assemble(self._constant(arm), self._laws(arm))

    def fitted_arms(self, shared: Sequence[bool] | None) -> Fitted:
        """Law of both arms' constants and shapes.

        `shared` says of each axis whether only a common shape may differ by arm (False: a
        difference is allowed for, but expected to be small); None takes the arms apart.
        """
        if shared is None or not self.machine.option.smooth:
            shapes = [_apart(a, b) for a, b in zip(self._laws(0), self._laws(1), strict=True)]
        else:
            size, dispersion = self.ask.size, self.ask.dispersion
            shapes = [
                smoothing.smooth_arms(a, b, size, dispersion, apart=not alike)
                for a, b, alike in zip(*self._totals, shared, strict=True)
            ]
        return smoothing.assemble_arms([self._constant(0), self._constant(1)], shapes)

    @property
    def short(self) -> Release:
        """The release as it is kept: the shapes in place of the sums that made them."""
        shapes, size = self._shapes, self.order.arms
        sds = [
            np.concatenate([[np.nan], *(np.sqrt(np.diag(c.noise)) for c in self._courses[arm])])
            for arm in range(size)
        ]
        values = [np.r_[shapes.constant[arm], shapes.scores[arm]] for arm in range(size)]
        return replace(self.release, value=np.concatenate(values), noise_sd=np.concatenate(sds))


def _apart(a: tuple[Vector, Matrix], b: tuple[Vector, Matrix]) -> tuple[Vector, Matrix]:
    """Two independent laws as one."""
    zero = np.zeros((len(a[0]), len(b[0])))
    return np.r_[a[0], b[0]], np.block([[a[1], zero], [zero.T, b[1]]])


def coefficients(bins: Bins, fitted: Fitted) -> Posterior:
    """The law of the coefficients of the bins' indicators."""
    return fitted.through(bins.to_coef)
