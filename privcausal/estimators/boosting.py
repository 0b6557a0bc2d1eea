"""Base "dpebm" (private explainable boosting): training, and the CATE learners on it.

Nuisances have two parts: shapes of single columns, by boosting, and products of columns, by
moments (`nu.refine`). Without the products, a confounder such as X1 X2 would
bias averages and effects, and no interval would show the bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import block_diag, cho_factor, cho_solve, null_space

from privcausal import vault
from privcausal.estimators import nuisances as nu
from privcausal.estimators.base import EffectFit, reported_nuisances
from privcausal.estimators.bases import DPEBM
from privcausal.estimators.budget import Step
from privcausal.estimators.estimands import Nuisances
from privcausal.estimators.first_stages import FitState
from privcausal.estimators.nuisances import cross_noise
from privcausal.features import functions
from privcausal.features.functions import (
    Constant,
    Extended,
    FeatureMap,
    NuisanceTriple,
    Steps,
    Triples,
)
from privcausal.inference import cuts
from privcausal.inference.effects import Effect, Piece
from privcausal.inference.regression import Posterior, Remainder, mixture_law, unrelated
from privcausal.request.request import FOLDS, LEAST_PROPENSITY, StageKey
from privcausal.typing import Integers, Matrix, Vector
from privcausal.vault import (
    ArmHistogram,
    BoostedRegression,
    Boosting,
    OutcomeResidual,
    Shapes,
    TransformProduct,
)

# -- shapes from boosting with noise of known size: raw, or smoothed by empirical Bayes --------
#
# Boosting is linear in its data as long as no residual is clipped. Let S_t be the sums over the
# leaves of round t, h the bins' masses (sums of a^2 over their rows), U_t the step computed from
# leaf sums, and f_t the constant and the shape before the step. Round t releases, for an axis,
#
#     y_t = S_t (h (f* - f_t) + e) + noise_t.
#
# The loss is least at f*. The sums of rows' deviations from f* are e, of variance s^2 h.
#
# Raw shapes add up the steps U_t y_t. They end at g = D (h g* + e) + error, where D and the
# covariance C of the error follow from the public leaves, the masses and the noise scale:
#
#     D <- D + U_t S_t (I - h D),   C <- (I - U_t S_t h) C (I - U_t S_t h)' + sd^2 U_t U_t'.
#
# Smoothed shapes use that f_t is public: adding S_t h f_t gives S_t (h f* + e) and noise that is
# new in every round. All rounds therefore measure one vector of totals, h f* + e. Least squares
# extracts more information on it than the last shape, which has half forgotten the early rounds and
# has not fully converged. The first quarter of the rounds is omitted for two reasons. Other
# columns' shapes have not yet been removed from the residuals, which matters for correlated
# columns. Residuals are also clipped most often in these
# rounds.
#
# Masses are not weights. Steps are divided by weights that are never close to zero, so that every
# step is short, but an empty bin contains no information on f*. Each axis is treated separately.
# If the rows are few for the noise, the noise alone changes rows' values by a large part of the
# clipping threshold. Residuals are then clipped, and shapes are smaller than this model predicts:
# effects lean towards their unadjusted values.
#
# The prior of a shape is a mixture of Gaussian processes along the axis, from flat to rough and
# from small to large, weighted by marginal likelihood. The difference of two arms' shapes is zero
# with substantial probability, so that an effect is constant if the data contain no information.

POSITION_SDS = 2.5
"""Positions on an axis are clipped to this many standard deviations, to limit outliers."""

SHAPE_SDS = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Prior sds of a shape, as shares of the target's size."""

ROUGHNESS = ((1.0, 0.0, 0.0), (1.0, 0.3, 0.0), (0.5, 1.0, 0.0), (0.5, 0.5, 0.3))
"""Prior variances of a shape's linear, smooth and rough part, up to its size."""

ARM_DIFFERENCES = ((0.0, 0.65), (0.1, 0.25), (0.5, 0.10))
"""Prior sds of the arms' difference, as shares of the shape's own size, and their chances."""


class Totals(NamedTuple):
    """Estimate from all rounds together of the totals h f* + e on one axis of one arm."""

    # Least squares estimate, shape (K,), and the covariance of its error
    value: Vector
    noise: Matrix
    # Orthonormal directions that the rounds measured, shape (K, r - 1), without the one that has
    # information on the constant. r is K, unless rounds are few.
    free: Matrix
    mass: Vector  # Public estimate of h, shape (K,)
    position: Vector | None  # Place of each bin along the axis; None for a factor


def _through(to_coef: Matrix, law: Posterior) -> Posterior:
    """Distribution of `to_coef` @ (constant, shapes)."""
    return Posterior(to_coef @ law.mean, to_coef @ law.cov @ to_coef.T, 0.0)


def propagate(
    leaf: Integers, weight: Vector, mass: Vector, rate: float, noise_sd: float
) -> tuple[Matrix, Matrix]:
    """D and C of one axis, from the leaf of each bin in every round, shape (rounds, K).

    `weight` and `mass` (K,) are the public weights that divided the steps, and the estimate of h.
    `noise_sd` is that of one leaf's sum.
    """
    size, leaves = len(weight), int(leaf.max(initial=0)) + 1
    carried, noise = np.zeros((size, size)), np.zeros((size, size))
    share = weight / weight.sum()
    for leaves_of in leaf:
        member = (leaves_of[:, None] == np.arange(leaves)).astype(np.float64)
        up = member / np.maximum(weight @ member, 1e-300)
        up = rate * (up - share @ up)
        lead = member.T * mass  # sums over the leaves
        carried = carried + up @ (member.T - lead @ carried)
        seen = lead @ noise
        move = up @ seen
        inner = seen @ lead.T + noise_sd**2 * np.eye(leaves)
        noise = noise - move - move.T + up @ inner @ up.T
    return carried, 0.5 * (noise + noise.T)


def totals(
    leaf: Integers,
    sums: Matrix,
    before: Matrix,
    mass: Vector,
    noise_sd: float,
    position: Vector | None,
) -> Totals:
    """Totals of one axis, from the rounds after the first quarter.

    `leaf` (rounds, K) is the leaf of each bin, and `sums` (rounds, leaves) are noisy sums of
    residuals in the leaves. Residuals subtract the constant and shape `before` (rounds, K).
    `noise_sd` is that of one leaf's sum. `position` (K,) is None for a factor.
    """
    used = slice(len(leaf) // 4, None)
    leaf, sums, before = leaf[used], sums[used], before[used]
    member = (leaf[:, None, :] == np.arange(sums.shape[1])[:, None]).astype(np.float64)
    seen = sums + (member @ (mass * before)[:, :, None])[:, :, 0]
    member = member.reshape(-1, len(mass))
    precision, basis = np.linalg.eigh(member.T @ member)
    measured = precision > 1e-9 * precision[-1]
    precision, basis = precision[measured], basis[:, measured]
    inverse = (basis / precision) @ basis.T
    value = inverse @ (member.T @ seen.ravel())
    free = np.asarray(basis @ null_space((basis.T @ mass)[None, :]))
    return Totals(value, noise_sd**2 * inverse, free, mass, position)


def smooth(arm: Totals, size: float, dispersion: float) -> tuple[Vector, Matrix]:
    """Posterior mean and covariance of the shape; `size` is the target's typical size."""
    kernels = _kernels(arm.mass, arm.position)
    priors = [((size * s) ** 2 * kernel, 1.0) for s in SHAPE_SDS for kernel in kernels]
    return _mixture([arm], dispersion, priors)


def smooth_arms(
    first: Totals, second: Totals, size: float, dispersion: float, *, apart: bool
) -> tuple[Vector, Matrix]:
    """`smooth` for both arms' shapes together, (control, treated), whose difference is smaller.

    Both are m -+ d / 2 with independent m and d (d = 0 unless `apart`), each centered under its own
    arm's masses. If the arms differ in the column, the two centers differ, and m determines by how
    much. This difference is confounding, which a prior of two centered shapes would shrink away.
    """
    pooled = _kernels(first.mass + second.mass, first.position)
    keep = block_diag(*(np.eye(len(a.mass)) - a.mass / a.mass.sum() for a in (first, second)))
    rough, apart_by = pooled[::2], [(np.zeros_like(pooled[0]), 1.0)]
    if apart:
        apart_by = [
            (ratio**2 * kernel, chance / len(rough))
            for ratio, chance in ARM_DIFFERENCES
            for kernel in rough
        ]
    priors = [
        ((size * s) ** 2 * keep @ np.block([[m + q, m - q], [m - q, m + q]]) @ keep.T, chance)
        for s in SHAPE_SDS
        for m in pooled
        for difference, chance in apart_by
        for q in [0.25 * difference]  # Cov(m - d/2, m + d/2) in blocks
    ]
    return _mixture([first, second], dispersion, priors)


def _kernels(mass: Vector, place: Vector | None) -> list[Matrix]:
    """Prior covariances of unit size, centered under the masses."""
    size, share = len(mass), mass / mass.sum()
    if place is None:
        raw: tuple[Matrix, ...] = (np.eye(size),)
    else:
        mean = float(share @ place)
        sd = max(float(np.sqrt(share @ (place - mean) ** 2)), 1e-9)
        z = np.clip((place - mean) / sd, -POSITION_SDS, POSITION_SDS)
        gap = np.abs(z[:, None] - z)
        raw = (np.outer(z, z), np.exp(-0.5 * gap**2), np.exp(-2.0 * gap))
    keep, parts = np.eye(size) - share / share.sum(), []  # subtracts a shape's mean
    for kernel in raw:
        part = keep @ kernel @ keep.T
        parts.append(part / max(float(share @ np.diag(part)), 1e-12))
    if place is None:
        return parts
    none = np.zeros((size, size))
    return [sum((v * part for v, part in zip(mix, parts, strict=True)), none) for mix in ROUGHNESS]


def _mixture(
    arms: Sequence[Totals], dispersion: float, priors: Sequence[tuple[Matrix, float]]
) -> tuple[Vector, Matrix]:
    """Mean and covariance of the arms' shapes, over (prior, chance) and marginal likelihood."""
    free = block_diag(*(arm.free for arm in arms))
    seen = free.T @ np.concatenate([arm.value for arm in arms])
    errors = [arm.noise + dispersion * np.diag(arm.mass) for arm in arms]  # around h f*
    base = free.T @ block_diag(*errors) @ free
    lead = free.T * np.concatenate([arm.mass for arm in arms])
    ridge = 1e-9 * max(float(np.trace(base)), 1e-300) / max(len(base), 1)
    base = base + ridge * np.eye(len(base))
    laws = []
    for prior, chance in priors:
        across = lead @ prior
        factor = cho_factor(base + across @ lead.T, lower=True, check_finite=False)
        solved = cho_solve(factor, np.c_[seen, across], check_finite=False)
        fit = -np.log(np.diag(factor[0])).sum() - 0.5 * float(seen @ solved[:, 0])
        cov = prior - across.T @ solved[:, 1:]
        laws.append((np.log(chance) + fit, across.T @ solved[:, 0], cov))
    return mixture_law(laws)[1:]


def constant_law(
    raw: float, rate: float, rounds: int, noise_sd: float, weight: float, dispersion: float
) -> tuple[float, float, float]:
    """The raw constant, the constant at convergence, and its variance."""
    left = (1.0 - rate) ** rounds
    gain = (rate / (2.0 - rate)) * (1.0 - left**2)
    variance = gain * (noise_sd / weight) ** 2 + dispersion / weight
    return raw, raw / (1.0 - left), variance


def assemble(
    constants: Sequence[tuple[float, float]], shapes: Sequence[tuple[Vector, Matrix]]
) -> Posterior:
    """(constant, shapes) of each arm, the control first, shape (arms (1 + M),).

    `shapes` holds the arms' shapes of one axis together, shape (arms K,). Axes are assumed
    independent.
    """
    arms = np.arange(len(constants))
    widths = [len(mean) // len(arms) for mean, _ in shapes]
    size = 1 + sum(widths)
    mean, cov = np.zeros(len(arms) * size), np.zeros((len(arms) * size, len(arms) * size))
    for arm, (value, variance) in enumerate(constants):
        mean[arm * size], cov[arm * size, arm * size] = value, variance
    first = 1
    for width, (shape, spread) in zip(widths, shapes, strict=True):
        places = (size * arms[:, None] + np.arange(first, first + width)).ravel()
        mean[places], cov[np.ix_(places, places)] = shape, spread
        first += width
    return Posterior(mean, cov, 0.0)


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

    state: FitState
    option: DPEBM
    bins: functions.Bins
    es: tuple[_Propensity, ...]  # Each fold's rows use the other fold's propensity
    shares: Matrix  # Share of control and treated at the synthetic rows, shape (2, SIZE)

    @property
    def effect(self) -> BoostingSession:
        """This session, restricted to the bins of the effect modifiers."""
        terms = {block.group for block in self.state.effect_features.blocks}
        return replace(self, bins=self.bins.restricted(terms))

    def train(self, stage: StageKey, task: BoostingTask, *, folds: bool = False) -> list[Trained]:
        """Boost on the stage's rows.

        With `folds` and two folds, each result is for one fold and is learned on the other.
        """
        state, bins = self.state, self.bins
        split = folds and state.request.split == "crossfit"
        count = self.state.population.count / (FOLDS if split else 1)
        least = LEAST_BIN_SHARE * task.curvature.mean(axis=1)[:, None]
        weight = np.maximum(self.mass(task), least)
        axes = max(len(bins.axes) + int(task.with_treatment), 1)
        sizes = [axis.size for axis in bins.axes] + [2] * task.with_treatment
        leaf = _leaves(tuple(sizes) or (1,), self.option.rounds, self.option.leaves)
        rate = min(self.option.learning_rate, 1.0 / axes)  # All axes move at once.
        regression = {f.name: getattr(task, f.name) for f in fields(BoostedRegression)}
        query = Boosting(bins, weight * count, leaf, rate, **regression)
        if split:
            releases = state.vault.release_folds(stage, query)
        else:
            releases = (state.vault.release(stage, query),)
        # bins of each axis with a shape, the treatment's last; a lone constant has no axis
        ends = pairwise(query.start.tolist())
        cells = [slice(*pair) for pair in islice(ends, len(bins.axes) + int(task.with_treatment))]
        trained = []
        for release in releases:
            path, noise_sd = query.path(release.value), float(release.noise_sd[0])
            trained.append(Trained(self, task, query, count, cells, release.value, path, noise_sd))
        state.releases.append(releases[0])
        return trained[::-1]

    def mass(self, task: BoostingTask) -> Matrix:
        """Mean curvature over each bin's rows times the bin's share, shape (arms, M)."""
        codes, start = self.bins.codes(self.state.rows), self.bins.start
        out = []
        for curvature in task.curvature:
            total = float(curvature.mean())
            parts = [
                np.bincount(code - first, curvature, axis.size) / len(code)
                for code, first, axis in zip(codes, start[:-1], self.bins.axes, strict=True)
            ] or [np.array([total])]
            if task.with_treatment:
                parts.append(np.full(2, 0.5 * total))
            out.append(np.concatenate(parts))
        return np.stack(out)

    def price(self, stage: StageKey, *, more: int = 0) -> float:
        """Noise sd of the fitted values per unit of the clip: the cost of a wider clip."""
        axes = max(len(self.bins.axes) + more, 1)
        return cross_noise(self.state, stage, axes) / self.state.population.count

    def outcome_centre(self, *, more: int = 0) -> Centre:
        """Center and clip of the outcome, from a noisy histogram over its declared interval.

        The center is the mean of the histogram. The clip balances noise against clipping bias.
        Residuals beyond the clip are lost to the arms' means and to the effect's shape. Averages
        use doubly robust scores of whole outcomes, with a separate clip. Cells that cannot be
        distinguished from noise are ignored. If no cell is detectable, the whole interval is used.
        """
        state, outcome = self.state, self.state.outcome
        price = self.price(nu.OUTCOME, more=more)
        edges = np.linspace(-outcome.bound, outcome.bound, OUTCOME_CELLS + 1)
        release = state.release(BOOSTED_SIZES, ArmHistogram(outcome, edges[1:-1], "outcome"))
        arms, sd = release.value.reshape(2, OUTCOME_CELLS), float(release.noise_sd[0])
        state.check_empty_arm(arms.sum(axis=1), sd * np.sqrt(OUTCOME_CELLS))
        counts, sd = arms.sum(axis=0), sd * np.sqrt(2.0)
        middle, half = 0.5 * (outcome.lo + outcome.hi), float(edges[-1])
        seen = np.where(counts >= cuts.TAIL * sd, np.maximum(counts, 0.0), 0.0)
        if not seen.any():
            return Centre(middle, half, 0.5 * half)
        middles = 0.5 * (edges[1:] + edges[:-1])
        # Outer cells hold values at the bounds; a two-valued outcome lies there.
        middles[[0, -1]] = edges[[0, -1]]
        mean = float(seen @ middles / seen.sum())
        away = np.abs(middles - mean)
        borders = cuts.score_edges(half + abs(mean), cuts.SHAPE_OCTAVES)
        cells = np.minimum(np.searchsorted(borders, away), len(borders) - 1)
        rows = np.asarray(np.bincount(cells, seen, len(borders)), np.float64)
        sizes = cuts.AbsHistogram(borders, rows, sd)
        size = float(np.sqrt(seen @ away**2 / seen.sum()))
        # Residuals of a good fit are smaller, but a skewed outcome must not be clipped at all.
        cut = cuts.threshold_for_effect(sizes, price, bias=1.0)
        cut = min(max(cut, size), half + abs(mean))
        return Centre(middle + mean, cut, max(size, 1e-3 * half))

    def remainder(self, means: Sequence[Matrix]) -> Remainder:
        """Bias from the product of both nuisances' errors, given covariances of the mean outcomes.

        An error of the log odds changes e by e (1 - e) times that error. This factor cancels the
        weight of the AIPW score.
        """
        phi = self.state.rows.phi(self.bins.features)
        weight = np.asarray(phi.T @ phi / len(phi))
        laws = [
            Remainder(0.0, 0.0) if e.cov is None else unrelated(weight, e.cov, cov)
            for e, cov in zip(self.es, means, strict=True)
        ]
        return nu.over_folds(laws)

    def outcome_task(self, centre: Centre, what: str = "outcome", **options: Any) -> BoostingTask:
        """Task for regressing the outcome on all covariates."""
        return BoostingTask(
            target=OutcomeResidual(Constant(centre.value), self.state.outcome),
            what=what,
            bound=centre.cut,
            size=centre.size,
            dispersion=centre.size**2,
            **{"curvature": np.ones((1, len(self.state.rows))), **options},
        )


class Centre(NamedTuple):
    """Public center of the outcome, clip of its residuals, and typical size of its residuals."""

    value: float
    cut: float
    size: float


@lru_cache(maxsize=16)
def _leaves(sizes: tuple[int, ...], rounds: int, leaves: int) -> Integers:
    """Leaf of every bin in every round, shape (rounds, M): unions of neighbors, or of levels.

    Borders between leaves are drawn at random from a public seed, independently of the rows.
    """
    rng = np.random.default_rng(_PUBLIC_SEED)
    out = np.zeros((rounds, sum(sizes)), np.int64)
    first = 0
    for size in sizes:
        number = min(leaves, size)
        for step in range(rounds):
            borders = np.sort(rng.permutation(size - 1)[: number - 1]) + 1
            leaf = np.searchsorted(borders, np.arange(size), side="right")
            out[step, first : first + size] = leaf
        first += size
    return out


@dataclass(frozen=True, eq=False)
class Trained:
    """The noisy sums of one boosting, and the distributions computed from them."""

    machine: BoostingSession
    task: BoostingTask
    query: Boosting
    count: float
    cells: list[slice]  # Bins of each axis with a shape
    sums: Vector  # As released
    path: list[Shapes]  # The shapes before each round, and after the last
    noise_sd: float  # Sd of a sum's noise

    @cached_property
    def _masses(self) -> Matrix:
        """Sums of the curvature over each bin's rows, shape (arms, M).

        For log odds the curvature is e (1 - e), and the rounds start where it is 1/4. A first
        smoothing with that value shows where the rounds ended. Values of e beyond the clip are not
        used.
        """
        task, bins, state = self.task, self.machine.bins, self.machine.state
        start = self.machine.mass(task) * self.count
        if not (task.logistic and self.machine.option.smooth):
            return start
        laws = [smooth(total, task.size, task.dispersion) for total in self._totals(start, 0)]
        law = _through(bins.to_coef, assemble([self._constant(0)], laws))
        ends = state.clip, 1 - state.clip
        e = functions.Steps(bins.features, law.mean, 0.0, *ends, logistic=True)(state.rows)
        return self.machine.mass(replace(task, curvature=(e * (1 - e))[None, :])) * self.count

    def _totals(self, masses: Matrix, arm: int) -> list[Totals]:
        """Combined evidence of all rounds on each axis of an arm."""
        query, axes, out = self.query, self.machine.bins.axes, []
        sums = self.sums.reshape(query.rounds, query.arms, query.axes, query.leaves)
        before = np.array([made.scores[arm] + made.constant[arm] for made in self.path[:-1]])
        for k, cells in enumerate(self.cells):
            position = axes[k].position if k < len(axes) else None
            leaf, mass = query.leaf[:, cells], masses[arm, cells]
            part = totals(leaf, sums[:, arm, k], before[:, cells], mass, self.noise_sd, position)
            out.append(part)
        return out

    def _constant(self, arm: int) -> tuple[float, float]:
        query = self.query
        # The constant uses the mean over axes of their leaves' totals.
        sd = self.noise_sd * np.sqrt(query.leaves / query.axes)
        raw, whole, variance = constant_law(
            float(self.path[-1].constant[arm]),
            query.constant_rate,
            query.rounds,
            sd,
            float(query.weight[arm, : query.start[1]].sum()),
            self.task.dispersion,
        )
        return (whole if self.machine.option.smooth else raw), variance

    def _laws(self, arm: int) -> list[tuple[Vector, Matrix]]:
        """Distribution of each axis's shape in one arm."""
        task, query = self.task, self.query
        if self.machine.option.smooth:
            totals = self._totals(self._masses, arm)
            return [smooth(total, task.size, task.dispersion) for total in totals]
        laws = []
        for cells in self.cells:  # How the rounds produced the raw shape.
            weight, mass = query.weight[arm, cells], self._masses[arm, cells]
            leaf = query.leaf[:, cells]
            carried, noise = propagate(leaf, weight, mass, query.rate, self.noise_sd)
            cov = noise + task.dispersion * (carried * mass) @ carried.T  # around D h g*
            laws.append((self.path[-1].scores[arm, cells], cov))
        return laws

    def coefficients(self, arm: int = 0) -> Posterior:
        """Distribution of the coefficients of the bins' indicators."""
        return _through(self.machine.bins.to_coef, self.fitted(arm))

    def fitted(self, arm: int = 0) -> Posterior:
        """Distribution of the constant and the shapes of one arm (or of all rows)."""
        return assemble([self._constant(arm)], self._laws(arm))

    def fitted_arms(self, shared: Sequence[bool] | None) -> Posterior:
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
            size, dispersion = self.task.size, self.task.dispersion
            first, second = (self._totals(self._masses, arm) for arm in (0, 1))
            shapes = [
                smooth_arms(a, b, size, dispersion, apart=not alike)
                for a, b, alike in zip(first, second, shared, strict=True)
            ]
        return assemble([self._constant(0), self._constant(1)], shapes)


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


_PRODUCTS = nu.interaction_steps(0.01, 0.11, 0.25)
_WEIGHTING = (Step(PROPENSITY, 0.15, ("not known propensity",)), Step(BOOSTED_SIZES, 0.03))

ONE_STAGE = (*_WEIGHTING, Step(nu.OUTCOME, 0.78), *_PRODUCTS)
"""Stages of learners that only regress the outcome within arms."""

MEAN_FIRST = (*_WEIGHTING, Step(nu.OUTCOME, 0.66), *_PRODUCTS, Step(BOOSTED_MEAN, 0.12))
"""Stages of learners that regress the outcome within arms after a mean effect."""

TWO_STAGES = (
    Step(PROPENSITY, 0.25, ("not known propensity",)),
    Step(BOOSTED_SIZES, 0.04),
    Step(nu.OUTCOME, 0.67),
    *_PRODUCTS,
    Step(nu.SCORE_SIZES, 0.04),
    Step(BOOSTED_EFFECT, 0.96),
)
"""Stages of learners that regress an effect on pseudo-outcomes from nuisances."""


# -- nuisances -------------------------------------------------------------------------------


class _Propensity(NamedTuple):
    """e(x) of a fold's rows at the arm clip and at the residual clip.

    `cov` is the covariance of its coefficients, or None if the propensity is known.
    """

    e: functions.Function
    soft: functions.Function
    cov: Matrix | None


class _Means(NamedTuple):
    """Both arms' means by fold, the propensities, and the difference of treated and control.

    `remainder` is the distribution of the joint bias from errors of propensity and means.
    """

    partials: nu.Folds
    nuisances: Triples
    centre: Centre
    contrast: Posterior
    remainder: Remainder


def _session(state: FitState) -> BoostingSession:
    """Learn propensities, and set the clip of the session's state by the share of the treated."""
    option, crossfit = state.base, state.request.split == "crossfit"
    assert isinstance(option, DPEBM)
    bins = functions.make_bins(state.design, state.rows, option.bins)
    if state.propensity is not None:
        es = (_Propensity(state.propensity, state.propensity, None),) * (FOLDS if crossfit else 1)
    else:
        task = BoostingTask(
            target=vault.OfTreatment("residual", Constant(0.0), 0.0),
            what="propensity",
            bound=PROPENSITY_CUT,
            size=PROPENSITY_SIZE,
            curvature=np.full((1, len(state.rows)), 0.25),
            dispersion=1.0,
            logistic=True,
        )
        even = np.full((2, len(state.rows)), 0.5)
        trained = BoostingSession(state, option, bins, (), even).train(PROPENSITY, task, folds=True)
        laws = [fit.coefficients() for fit in trained]
        ends = LEAST_PROPENSITY, 1 - LEAST_PROPENSITY
        free = [Steps(bins.features, law.mean, 0.0, *ends, logistic=True) for law in laws]
        state = nu.lower_clip(state, float(np.mean([e(state.rows) for e in free])), 0.0)
        clip, soft = state.clip, state.soft_clip
        es = tuple(
            _Propensity(replace(e, lo=clip, hi=1 - clip), replace(e, lo=soft, hi=1 - soft), law.cov)
            for e, law in zip(free, laws, strict=True)
        )
    e = np.mean([p.soft(state.rows) for p in es], axis=0)
    return BoostingSession(state, option, bins, es, np.stack([1 - e, e]))


def _arm_means(
    machine: BoostingSession, shared: Sequence[bool] | None, *, overlap: bool = False
) -> _Means:
    """Learn both arms' means in one boosting.

    `overlap` applies overlap weights. Means are not additive. The nearest additive functions differ
    between arms with different covariates, which gives a spurious effect. With overlap weights the
    arms' covariates are more similar, and products of columns also become more similar on average.
    """
    centre = machine.outcome_centre()
    shares = machine.shares
    task = machine.outcome_task(centre, "outcome by arm", curvature=shares, by_arm=True)
    if overlap:  # the weights are one for rows of the rarer arm
        root = nu.by_fold(vault.OfTreatment("root", e.soft, scale=TOP_WEIGHT) for e in machine.es)
        target = TransformProduct(root, task.target)
        curvature = shares * np.minimum(shares[::-1] / TOP_WEIGHT, 1.0)
        task = replace(task, target=target, factor=root, curvature=curvature)
    trained = machine.train(nu.OUTCOME, task, folds=True)
    return _means(machine, centre, [fit.fitted_arms(shared) for fit in trained])


def _means(machine: BoostingSession, centre: Centre, fitted: Sequence[Posterior]) -> _Means:
    """Nuisances for each fold's rows, from both arms' constants and shapes, control first.

    Products of columns correct the shapes of single columns. The mean outcome is
    (1 - e) mu_0 + e mu_1. Given the mean effect, the products' correction of its baseline is added
    to the means of both arms.
    """
    state, bins, modifiers = machine.state, machine.bins, machine.effect.bins
    ends = centre.value, state.outcome.lo, state.outcome.hi
    to_coef = np.asarray(block_diag(bins.to_coef, bins.to_coef))
    plain, partials, covs = list[NuisanceTriple](), list[nu.FoldFit](), []
    for e, both in zip(machine.es, fitted, strict=True):
        law = _through(to_coef, both)
        p = len(law.mean) // 2
        mu0, mu1 = (Steps(bins.features, coef, *ends) for coef in (law.mean[:p], law.mean[p:]))
        plain.append(NuisanceTriple(e.e, mu0, mu1))
        partials.append(nu.FoldFit(e.e, e.soft, functions.Mixture(e.soft, mu1, mu0), None))
        covs.append(np.asarray(0.5 * (law.cov[:p, :p] + law.cov[p:, p:])))
    # Map (constant, shapes) to (constant, shapes of the effect's axes), shape (1 + M', 1 + M). The
    # other shapes are centered within their own arm. The map adds their average over all rows to
    # the constant. Omitting this average would confound the effect, as far as the arms differ in
    # these columns.
    onto = np.eye(1 + bins.size)[modifiers.within(bins)]
    for axis, first in zip(bins.axes, bins.start[:-1], strict=True):
        if axis not in modifiers.axes:
            cells = slice(int(first), int(first) + axis.size)
            onto[0, 1 + cells.start : 1 + cells.stop] = bins.share[cells]
    # mu_1 - mu_0 on the effect's bins, averaged over the folds (only rows belong to a fold).
    turn = np.hstack([-onto, onto])
    mean = np.mean([turn @ law.mean for law in fitted], axis=0)
    cov = sum((turn @ law.cov @ turn.T for law in fitted), np.zeros((len(onto),) * 2))
    contrast = _through(modifiers.to_coef, Posterior(mean, cov / len(fitted) ** 2, 0.0))
    parts, doubt = nu.refine_supported(state, tuple(partials), centre.size)
    parts = nu.updated_for_effect(state, parts, _effect(machine, contrast))
    nuisances = list[NuisanceTriple]()
    for means, part in zip(plain, parts, strict=True):
        if part.beyond is None:
            nuisances.append(means)
            continue
        psi, joint = part.beyond
        mus = (Extended(mu, psi, joint.slopes[1]) for mu in (means.mu0, means.mu1))
        nuisances.append(NuisanceTriple(part.e, *mus))
    remainder = machine.remainder(covs) + nu.remainder(state, parts) + doubt
    return _Means(parts, tuple(nuisances), centre, contrast, remainder)


# -- learners --------------------------------------------------------------------------------


def s_or_t_learner(state: FitState, *, joint: bool) -> EffectFit:
    """S-learner with interactions (`joint`) or T-learner: both arms' means, and their difference.

    One boosting has a shape for each arm. A row is in only one arm, so two shapes cost the same as
    one. With `joint`, three things change. The arms' shapes are smoothed together and expected to
    be similar. Rows have overlap weights if public or released numbers indicate little noise. The
    mean effect is measured once more, by sum (T - e)(Y - mu_T) / sum e (1 - e). This correction is
    a single number and has the noise of one number, not of all axes. It is correct if either the
    arms' means or the propensity are correct. The shapes' mean, in contrast, is biased if means are
    not additive, or if noise shrinks the confounding shapes. The correction is shrunk: its noise is
    weighed against the possible error of the shapes' mean.
    """
    machine = _session(state)
    state, modifiers = machine.state, set(machine.effect.bins.axes)
    shared = [axis not in modifiers for axis in machine.bins.axes] if joint else None
    overlap = joint and machine.price(nu.OUTCOME) < OVERLAP_PRICE
    means = _arm_means(machine, shared, overlap=overlap)
    effect = _effect(machine, means.contrast)
    if not joint:
        return _assembled(machine, means, effect)
    # residuals with overlap weights
    outcome, size = state.outcome, means.centre.size
    softs, scores = [part.e_soft for part in means.partials], []
    for e, means_of in zip(softs, means.nuisances, strict=True):
        mu0, mu1 = means_of.mu0, means_of.mu1
        eta, tau = functions.Mixture(e, mu1, mu0), functions.Pointwise(np.subtract, mu1, mu0)
        most = 2 * outcome.bound
        scores.append(vault.ResidualProduct(e, eta, outcome, state.soft_clip, tau, most))
    target = nu.by_fold(scores)
    treated = np.mean([soft(state.rows) for soft in softs], axis=0)
    share = float(np.mean(treated * (1 - treated)))
    cut = min(MEAN_CUT * size * float(np.sqrt(share)), target.bound)
    constant = FeatureMap(state.design, (), 1.0)
    release = state.release(BOOSTED_MEAN, vault.Cross(constant, target, cut, "mean residual"))
    mass = state.population.count * share
    move, noise = float(release.value[0]) / mass, float(release.noise_sd[0]) / mass
    # the shapes' mean, moved towards the correction
    (piece,) = effect.pieces
    additive = piece.additive
    phi = state.rows.phi(additive.features).mean(axis=0)
    off = float(phi @ piece.cov @ phi) + (MEAN_BIAS * size) ** 2
    weight = off / (off + noise**2)
    # Residuals use means clipped to the outcome's bounds; the arms' shapes may exceed these bounds.
    clipped = np.mean([np.mean(n.mu1(state.rows) - n.mu0(state.rows)) for n in means.nuisances])
    coef, turn = additive.coef.copy(), np.eye(len(phi))
    coef[0] += float(clipped - phi @ coef) + weight * move
    turn[0] -= weight * phi
    cov = turn @ piece.cov @ turn.T
    cov[0, 0] += (weight * noise) ** 2
    moved = replace(piece, additive=replace(additive, coef=coef), cov=cov)
    return _assembled(machine, means, replace(effect, pieces=(moved,)))


def constant_s_learner(state: FitState) -> EffectFit:
    """The S-learner of Niu et al. (2022): the treatment is one more axis of an additive fit."""
    machine = _session(state)
    centre = machine.outcome_centre(more=1)
    task = machine.outcome_task(centre, with_treatment=True)
    size = 1 + machine.bins.size
    turn = np.tile(np.eye(size, size + 2), (2, 1))  # Maps to (constant, shapes) by arm.
    turn[0, size], turn[size, size + 1] = 1.0, 1.0
    fitted = [fit.fitted() for fit in machine.train(nu.OUTCOME, task, folds=True)]
    both = [_through(turn, law) for law in fitted]
    means = _means(machine, centre, both)
    return _assembled(machine, means, _effect(machine, means.contrast))


def _assembled(machine: BoostingSession, means: _Means, effect: Effect) -> EffectFit:
    """Assemble the fit; nuisances for new data are the mean over folds."""
    folds = [(n.e, n.mu0, n.mu1) for n in means.nuisances]
    e, mu0, mu1 = map(nu.mixed, zip(*folds, strict=True))
    seen = Nuisances(e, functions.Mixture(e, mu1, mu0), mu0, mu1)
    return EffectFit(machine.state, effect, means.nuisances, seen, means.remainder)


def r_learner(state: FitState) -> EffectFit:
    """R-learner (Nie and Wager 2021, Eq. 4).

    The shapes minimize sum [(Y - eta) - (T - e) tau(x)]^2. The clip applies to the whole residual,
    (T - e)(Y - eta - (T - e) tau), including its weight.
    """
    machine = _session(state)
    state = machine.state
    outcome, clip = state.outcome, state.soft_clip
    centre = machine.outcome_centre()
    trained = machine.train(nu.OUTCOME, machine.outcome_task(centre), folds=True)
    etas = [fit.coefficients() for fit in trained]
    ends = centre.value, outcome.lo, outcome.hi
    partials: nu.Folds = tuple(
        nu.FoldFit(e.e, e.soft, Steps(machine.bins.features, eta.mean, *ends), None)
        for e, eta in zip(machine.es, etas, strict=True)
    )
    partials, doubt = nu.refine_supported(state, partials, centre.size)
    product = nu.by_fold(vault.ResidualProduct(p.e_soft, p.eta, outcome, clip) for p in partials)
    share = machine.shares.prod(axis=0)
    fitted = _second_boosting(
        machine,
        product,
        "effect",
        share[None, :],
        float(share.mean()),
        target=nu.by_fold(vault.OutcomeResidual(p.eta, outcome) for p in partials),
        factor=nu.by_fold(vault.OfTreatment("residual", p.e_soft, clip) for p in partials),
    )
    effect = _effect(machine, fitted.coefficients())
    partials = nu.updated_for_effect(state, partials, effect)
    nuisances = tuple(nu.nuisance_of(p, effect, outcome) for p in partials)
    remainder = machine.remainder([eta.cov for eta in etas]) + nu.remainder(state, partials) + doubt
    return EffectFit(state, effect, nuisances, reported_nuisances(partials, nuisances), remainder)


def dr_learner(state: FitState) -> EffectFit:
    """DR-learner: learn the arms' means, then boost the score (Niu et al. 2022, Algorithm 2).

    The score is centered at the difference of the means' constants, so the rounds need not find it.
    The score does not start from the means' shapes. Undoing their errors would add as much noise as
    learning the shapes anew.
    """
    machine = _session(state)
    state = machine.state
    outcome = state.outcome
    means = _arm_means(machine, [False] * len(machine.bins.axes))
    middle = float(np.clip(means.contrast.mean[0], -outcome.bound, outcome.bound))
    target = nu.by_fold(
        vault.Aipw(n, outcome, state.clip, Constant(middle), abs(middle)) for n in means.nuisances
    )
    fitted = _second_boosting(machine, target, "score", np.ones((1, len(state.rows))))
    return _assembled(machine, means, _effect(machine, fitted.coefficients(), middle))


def x_learner(state: FitState) -> EffectFit:
    """X-learner: imputed effects boosted within the arms, tau = e tau_0 + (1 - e) tau_1."""
    machine = _session(state)
    state = machine.state
    means = _arm_means(machine, [False] * len(machine.bins.axes))
    target = nu.by_fold(vault.ImputedEffect(n, state.outcome) for n in means.nuisances)
    what = "imputed effects by arm"
    fitted = _second_boosting(machine, target, what, machine.shares, by_arm=True)
    fit = _assembled(machine, means, Effect((), 2 * state.outcome.bound))
    e, pieces = fit.reported.propensity, list[Piece]()
    weights: list[functions.Function]
    weights = [e, functions.Pointwise(np.subtract, Constant(1.0), e)]
    for arm, weight in enumerate(weights):
        law = fitted.coefficients(arm)
        pieces.append(Piece(Steps(machine.effect.bins.features, law.mean), law.cov, weight))
    return fit._replace(effect=replace(fit.effect, pieces=tuple(pieces)))


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
    sizes = nu.read_sizes(machine.state, score)
    cut = cuts.threshold_for_effect(sizes, machine.effect.price(BOOSTED_EFFECT))
    rms = max(sizes.rms(cut), 1e-3 * cut)
    task = BoostingTask(
        target=target or score,
        what=what,
        bound=cut,
        size=rms / float(np.sqrt(weight)),
        curvature=curvature,
        dispersion=rms**2 / weight,
        **options,
    )
    (fitted,) = machine.effect.train(BOOSTED_EFFECT, task)
    return fitted


def _effect(machine: BoostingSession, law: Posterior, middle: float = 0.0) -> Effect:
    piece = Piece(Steps(machine.effect.bins.features, law.mean, middle), law.cov)
    return Effect((piece,), 2 * machine.state.outcome.bound)
