"""Clipping thresholds from noisy histograms of sizes: least squared noise plus squared bias.

The bias of clipping is estimated if a shape or a nuisance is learned. It may bias these directly,
but it biases an average only by the product with the error of the propensity. Averages and
regressions allow for it in their intervals.

Sizes come from noisy counts. Up to a border x0, they are as counted. Beyond, they fall as the
Weibull distributions that fit the counts: P(|r| > x) = N exp((x0 / s)^g - (x / s)^g), up to the
last border. The posterior is a grid over g and s, with N fitted. It allows for tails from normal
ones to much heavier than exponential ones. The rows that a threshold clips are therefore bounded by
an allowance, not by a proof.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit, ndtr
from scipy.stats import norm

from privcausal.features.functions import TINY
from privcausal.inference import ranges
from privcausal.inference.effects import folded_quantile
from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import likelihoods, signal_share
from privcausal.request.schema import Interval, least_width
from privcausal.typing import Matrix, Vector

# -- sizes, and the sizes beyond those that were detected --------------------------------------

SHAPES = np.r_[np.linspace(0.1, 0.5, 7), np.linspace(0.6, 2.2, 9)]
"""Shapes of the Weibull distributions that a tail may have: from stretched to normal."""

SCALES = 60
"""Scales that are tried, from a thousandth of the first border to the last."""

START_SDS, LEAST_START = 12.0, 3
"""The tail starts at the last border with more rows beyond it than this many noise sds, and after
this many cells at the earliest."""

MISFIT = 0.2
"""Sd of the count of a cell around the Weibull distribution, relative to the count. Public data."""

TAIL_SDS, LONG_TAIL_SDS = 0.5, 1.5
"""Posterior sds that are added to the mean excess beyond a threshold. The second is for a long
tail, where the distributions that fit the detected sizes underestimate it. Public data."""

LONG_FROM = 0.2
"""Share of the squares beyond `OUTLIER` root mean squares in a long tail. By hand."""

OUTLIER = 4.0
"""Root mean squares beyond which a size is an outlier."""

SIZE_SD, SPARSE_SIZE_SD = 0.7, 2.5
"""Prior sd of the log mean square around half the outcome's variance. Tails that no count shows are
then as far out as that variance lets them be. If most outcomes have one value, the variance is
mostly of the others, few of which are detected: with 0.7, the set affairs is covered in 33% of 12
fits in place of 83%. With 0.5, widths are 8% smaller than with 1, and coverage is 88% in place of
91%. Building half."""


SHOWN_SIZE_SD = 0.3
"""As `SIZE_SD`, around the mean square of the detected outcomes. With 0.7 and the allowance of a
long tail, intervals of trials of 1,000 and 2,000 rows are 25% wider and cover as often. Without any
allowance, half of the clipping bias of LaLonde's trial is left at eps = 4. Building half."""

COMMON = 0.99
"""Prior probability that the arms have one tail. With 0.5, widths at 1,000 rows are 19% larger.
Arms that differ by a factor of three are told apart all the same. Building half."""

LEAST_COUNT_SDS = 3.0
"""The rows of an arm are at least this many noise sds of their number."""


def held_rows(counts: Vector | Matrix, noise_sd: float | Vector | Matrix) -> float:
    """The number of rows in these cells, at least `LEAST_COUNT_SDS` noise sds and 1."""
    sd = float(np.linalg.norm(np.broadcast_to(noise_sd, counts.shape)))
    return max(float(counts.sum()), LEAST_COUNT_SDS * sd, 1.0)


class SizeLaw(NamedTuple):
    """Means over all rows of (size - x)+ and of min(size, x)^2 at each x of `at`, by arm: (A, X).

    `over` includes an allowance. `far` is the share of the squares beyond `OUTLIER` root mean
    squares.
    """

    at: Vector
    over: Matrix
    kept: Matrix

    @property
    def far(self) -> float:
        squares = self.kept.sum(axis=0)
        total = float(squares[-1])
        return 1 - float(np.interp(OUTLIER * total**0.5, self.at, squares)) / max(total, TINY)


def size_law(
    counts: Matrix,
    noise_sd: float | Matrix,
    ends: Vector,
    count: float,
    *,
    sparse: bool = False,
    anywhere: bool = False,
    usual: float = 0.0,
    shown: bool = False,
    start: int | None = None,
) -> SizeLaw:
    """Sizes of the rows in A arms, which may have the same tail or different ones.

    `counts` are noisy, in the cells between `ends`, shapes (A, K) and (K + 1,); the first end is 0.
    `count` is the (noisy) number of rows in these arms.

    If most outcomes have one value (`sparse`), the tail starts one cell later, where few rows are
    left: the sizes of these rows do not show the sizes of the others. With `anywhere`, hidden rows
    may lie at the end. `usual` is the usual mean square of the sizes in these arms; 0 if unknown.
    If it is that of detected outcomes (`shown`), the tail is not a long one: clipping biases both
    arms, and intervals allow for the worst pair of signs. `start` is the number of cells that are
    taken as counted, which otherwise follows from the counts. If it is given, few rows show the
    tail, and the allowance is that of a long tail.
    """
    at = np.r_[0.0, np.geomspace(ends[1] / 5, ends[-1], 300)]
    middle, share = (ends[1:] + ends[:-1]) / 2, np.maximum(counts, 0.0) / count
    sd = np.broadcast_to(noise_sd, counts.shape)
    if not sd.any():
        over = share @ np.maximum(ends[1:, None] - at, 0.0)
        return SizeLaw(at, over, share @ np.minimum(middle[:, None], at) ** 2)
    few = start is not None
    if start is None:
        # Cells are taken as counted while the rows beyond are distinguishable from noise.
        cells = len(counts.T)
        beyond, variance = (np.cumsum(x.sum(axis=0)[::-1])[::-1] for x in (counts, sd**2))
        least = START_SDS * np.sqrt(variance)
        start = min(LEAST_START, cells - 1)
        while start + 3 < cells and beyond[start + 1] > least[start + 1]:
            start += 1
        start += sparse and start + 2 < cells
    low, tail = share[:, :start], counts[:, start:]
    if anywhere:
        margin = norm.isf(ranges.ERROR / len(tail)) * np.linalg.norm(sd[:, start:], axis=1)
        rows = np.clip((tail.sum(axis=1) + margin) / count, 0.0, 1.0)[:, None]
        over, square = rows * np.maximum(ends[-1] - at, 0.0), rows * np.minimum(ends[-1], at) ** 2
        spread = np.zeros_like(over)
    else:
        near = low @ middle[:start] ** 2
        by_arm = np.array([held_rows(c, s) for c, s in zip(counts, sd, strict=True)])
        prior = usual, SHOWN_SIZE_SD if shown else SPARSE_SIZE_SD if sparse else SIZE_SD
        rows, x, curves = _weibull(
            tail, sd[:, start:], ends[start:], count, near, by_arm / by_arm.sum(), prior
        )
        over, spread, square = (np.stack([np.interp(at, x, c) for c in curve]) for curve in curves)
        over += rows * np.maximum(ends[start] - at, 0.0)
        square += rows * np.minimum(at, ends[start]) ** 2
    over += low @ np.maximum(middle[:start, None] - at, 0.0)
    low = low * max(1 - float(rows.sum()), 0.0) / max(float(low.sum()), TINY)
    law = SizeLaw(at, over, square + low @ np.minimum(middle[:start, None], at) ** 2)
    long = 0.0 if shown else 1.0 if few else min(law.far / LONG_FROM, 1.0)
    return law._replace(over=over + (TAIL_SDS + long * (LONG_TAIL_SDS - TAIL_SDS)) * spread)


def _mixed(common: Vector, by_arm: Matrix) -> Matrix:
    """Probabilities of laws (G, A), from log likelihoods of a common law (G,) and of each arm's."""
    laws = []
    for log in (common[:, None], by_arm):
        most = log.max(axis=0)
        chance, total = np.full(log.shape, 1 / len(log)), np.zeros(log.shape[1])
        if np.isfinite(most).all():
            chance = np.exp(log - most)
            total = most + np.log(chance.mean(axis=0))
            chance = chance / chance.sum(axis=0)
        laws.append((chance, total))
    (joint, one_log), (separate, several_log) = laws
    share = float(expit(logit(COMMON) + one_log.sum() - several_log.sum()))
    return share * joint + (1 - share) * separate


def _weibull(
    counts: Matrix,
    sd: Matrix,
    ends: Vector,
    count: float,
    near: Vector,
    shares: Vector,
    usual: tuple[float, float],
) -> tuple[Matrix, Vector, tuple[Matrix, Matrix, Matrix]]:
    """Shares of rows beyond the first border (A, 1), and curves at x (X,), each of shape (A, X).

    The curves are the mean excess of these rows, its posterior sd, and their mean squares. `near`
    is the mean over all rows of the squares up to the first border, and `shares` are the rows, by
    arm. `usual` are the usual mean square, or 0, and the sd of its log.
    """
    scales = np.geomspace(1e-3 * ends[0], ends[-1], SCALES)
    shape, scale = (grid.ravel()[:, None] for grid in np.meshgrid(SHAPES, scales))
    first = (ends[0] / scale) ** shape

    # Cells without noise are beyond the bounds of their row, where its distribution is truncated.
    inside = sd > 0
    lasts = ends[np.where(inside, np.arange(1, len(ends)), 0).max(axis=1)]  # (A,)

    def survival(x: Vector) -> Vector:
        """P(r > x) in each row, shape (G, A, X)."""
        upto = np.exp(np.clip(first - (np.r_[x, lasts] / scale) ** shape, -500.0, 0.0))
        within, beyond = upto[:, None, : len(x)], upto[:, len(x) :, None]
        out = np.clip((within - beyond) / np.maximum(1 - beyond, TINY), 0.0, 1.0)
        return np.asarray(np.where(x < lasts[:, None], out, 0.0))

    upto = survival(ends)
    law = -np.diff(upto, axis=2)  # (G, A, K)
    rows = np.tile(np.maximum(counts.sum(axis=1), 1.0), (len(law), 1))
    for _ in range(3):
        mean = rows[..., None] * law
        variance = np.where(inside, sd**2, 1.0) + mean + (MISFIT * mean) ** 2
        precision = np.maximum((law**2 / variance).sum(axis=-1), TINY)
        rows = np.clip((counts * law / variance).sum(axis=-1) / precision, 1.0, count)
    nowhere = ~inside.any(axis=1)
    rows[:, nowhere], precision[:, nowhere] = 0.0, np.inf
    gap = inside * (counts - rows[..., None] * law)
    log = -0.5 * (gap**2 / variance + np.log(variance)).sum(axis=2)
    falls = np.exp(np.clip(first - (ends[1] / scale) ** shape, -500.0, 0.0))[:, 0]
    log[(falls > 1 - 1e-4) | (falls < 1e-8)] = -np.inf  # indistinguishable from a point
    x = np.geomspace(ends[0], ends[-1], 160)
    curve = survival(x)
    pieces = (curve[..., 1:] + curve[..., :-1]) / 2 * np.diff(x)
    none = np.zeros((*rows.shape, 1))
    over = np.concatenate([np.cumsum(pieces[..., ::-1], axis=2)[..., ::-1], none], axis=2)
    square = np.concatenate([none, np.cumsum(pieces * (x[1:] + x[:-1]), axis=2)], axis=2)
    prior, by_arm = np.zeros(len(log)), np.zeros_like(log)
    if usual[0]:
        mean2 = rows * (ends[0] ** 2 + square[..., -1]) / count + near
        prior = -0.5 * (np.log(mean2.sum(axis=1) / usual[0]) / usual[1]) ** 2
        some = ~nowhere  # an empty side cannot compare one law with several
        by_arm[:, some] = -0.5 * (np.log(mean2[:, some] / shares[some] / usual[0]) / usual[1]) ** 2
    chance = _mixed(log.sum(axis=1) + prior, log + by_arm)
    mean, squares = (np.einsum("ga,gax->ax", chance * rows, curve) for curve in (over, square))
    spread = np.einsum("ga,gax->ax", chance * (rows**2 + 1 / precision), over**2) - mean**2
    curves = mean / count, np.sqrt(np.maximum(spread, 0.0)) / count, squares / count
    return (chance * rows).sum(axis=0)[:, None] / count, x, curves


# -- outcomes -------------------------------------------------------------------------------------

HIDDEN_MORE = 1e-9
"""Chance that more rows hide beyond the core than lie within it. With 1e-6, intervals of trials of
1,000 rows are 11% narrower and cover 91% in place of 93%. Building half."""


class OutcomeLaw(NamedTuple):
    """Distances of the outcomes from the middle of their core, by side (low, high) and arm."""

    core: ranges.Core
    ends: Vector  # Ends of the cells of Y - lo, from 0 to the width of the bounds, (K + 1,)
    held: Matrix  # Counts of the detected cells, by arm, shape (A, K)
    # `reach`, `lasts`: of the core and of the bounds, from the middle, by side, shape (2,)
    reach: Vector
    lasts: Vector
    units: Vector  # Units of the sizes in `sizes`, by side, shape (2,)
    sizes: SizeLaw  # By side, then by arm, over the rows of all arms
    arms: Vector  # (Noisy) numbers of detected rows, shape (A,)
    variance: float  # Variance over all arms, with the tails that the counts allow


def outcome_law(
    counts: Matrix, noise_sd: float, bounds: Interval, *, anywhere: bool = False
) -> OutcomeLaw | None:
    """The law of the outcomes, from noisy counts by arm in the cells of `ranges.heights`.

    There is none if only the ends and zero are distinguishable from noise (an outcome of two
    values, rare events), because the scale is then unknown. The core is that of `Core.stretched`,
    because few rows may show one mode of several, or the middle of a flat distribution. Distances
    beyond it, on both sides and in each arm, are sets of sizes as of `size_law`. If many rows
    may be outside the core, the law is that of the sizes beyond it alone. A law that fits the core,
    too, would have no tail if the core is one value that most rows have.
    """
    if bounds.width * 2.0**-ranges.OCTAVES <= least_width(bounds.lo, bounds.hi):
        return None  # too narrow to divide into intervals
    ends = np.r_[0.0, ranges.heights(bounds), bounds.width]  # of cells k: ends[k] to ends[k + 1]
    pooled, pooled_sd = counts.sum(axis=0), float(np.sqrt(len(counts))) * noise_sd
    looks = [(arm, noise_sd) for arm in counts] + [(pooled, pooled_sd)] * (len(counts) > 1)
    seen = np.logical_or.reduce([ranges.visible_cells(c, s, len(looks)) for c, s in looks])
    core = ranges.Core.of(seen, pooled, ends)
    if core is None:
        return None
    held = np.where(seen, np.maximum(counts, 0.0), 0.0)
    core = core.stretched(pooled, pooled_sd, ends, HIDDEN_MORE)
    arms = np.array([max(float(arm.sum()), noise_sd, 1.0) for arm in counts[:, seen]])
    rows, away = float(arms.sum()), 0.5 * (ends[1:] + ends[:-1]) - core.middle
    lasts = np.array([core.middle, bounds.width - core.middle])
    reach = np.maximum([core.below, core.above], ranges.POINT * bounds.width)
    outside = (ends[1:] <= core.middle - core.below) | (ends[:-1] >= core.middle + core.above)
    many, units = ranges.many(pooled[outside], pooled_sd, rows), np.ones(2)
    sizes = ranges.heights(Interval(0.0, float(lasts.max())))
    if many:  # sizes in units of the reach of their side
        units, room = reach, lasts > reach * (1 + 1e-9)
        last = float((lasts / reach)[room].max(initial=1.0))
        step = bounds.width / ranges.PARTS / float(reach[room].min(initial=bounds.width))
        # cells from 0 to the core's end, 1, and in half octaves to `last` or beyond; these cells
        # have at least the width of a counted cell
        borders = [1.0]
        while borders[-1] < last or len(borders) <= LEAST_CELLS:
            borders.append(max(ranges.MERGE_RATIO * borders[-1], borders[-1] + step))
        sizes = np.concatenate([np.arange(CORE_CELLS) / CORE_CELLS, borders])
    # the share of each counted cell, which may be a point, in each cell of the sizes, by side
    inside, widths = [], np.diff(ends)
    below = np.r_[-np.inf, core.middle - units[0] * sizes[-2::-1]]
    for borders in (below, np.r_[core.middle + units[1] * sizes[:-1], np.inf]):
        low, high = borders[:-1, None], borders[1:, None]
        overlap = np.minimum(high, ends[1:]) - np.maximum(low, ends[:-1])
        part = np.clip(overlap / np.where(widths > 0, widths, 1.0), 0.0, 1.0)
        inside.append(np.where(widths > 0, part, (low <= ends[:-1]) & (ends[:-1] < high)))
    inside[0] = inside[0][::-1]  # from the middle outwards
    noise_sds = np.stack([np.sqrt((share**2).sum(axis=1)) for share in inside])
    square = held.sum(axis=0) @ (away / np.where(away < 0, *units)) ** 2
    law = size_law(
        np.concatenate([counts @ share.T for share in inside]),
        noise_sd * np.repeat(noise_sds, len(counts), axis=0),
        sizes,
        rows,
        usual=float(square) / max(float(held.sum()), 1.0),
        anywhere=anywhere,
        shown=int(seen.sum()) >= SCALE_CELLS,
        start=CORE_CELLS if many else None,
    )
    mean_sizes, squares = law.over[:, 0].reshape(2, -1), law.kept[:, -1].reshape(2, -1)
    sides = units * mean_sizes.sum(axis=1)
    variance = max(float(units**2 @ squares.sum(axis=1) - (sides[1] - sides[0]) ** 2), 0.0)
    return OutcomeLaw(core, ends, held, reach, lasts, units, law, arms, variance)


SCALE_CELLS = 4
"""Detected cells that show the scale of an outcome. Fewer may hold one value of most rows."""

CORE_CELLS, LEAST_CELLS = 8, 4
"""Cells of the core, which are taken as counted, and the least number of cells beyond."""


# -- thresholds -------------------------------------------------------------------------------

SCORE_HALF_OCTAVES = 40
"""Bins of a score's size below its bound, down to a millionth of the bound."""


SIGNED_HALF_OCTAVES = 24
"""Bins of a score of one sign, down to a 4,000th of the bound."""


def score_edges(bound: float, bins: int = SCORE_HALF_OCTAVES) -> Vector:
    """Upper borders of bins of half an octave each, ascending to the bound, shape (bins + 1,)."""
    return np.asarray(bound * 2.0 ** (-0.5 * np.arange(bins, -1, -1)))


@dataclass(frozen=True)
class Cut:
    """A clipping threshold, and the maximum change of the mean score.

    Scores are clipped at the distance `threshold` from the `middle`. `rms` is the root mean square
    of the clipped scores, or 0 if it is unknown.
    """

    threshold: float
    bias: float
    middle: float = 0.0
    rms: float = 0.0

    @classmethod
    def least(cls, cuts: Vector, noise: float, bias: Vector, weight: float = 1.0) -> Cut:
        """The threshold of least squared error.

        `noise` is an sd per unit of the threshold; its square has this `weight`.
        """
        best = int(np.argmin(weight * (noise * cuts) ** 2 + bias**2))
        return cls(float(cuts[best]), float(bias[best]))

    @classmethod
    def narrowest(
        cls, cuts: Vector, bias: Matrix, square: Matrix, noise: float, rows: float, *, centred: bool
    ) -> Cut:
        """The two thresholds with the narrowest 95% interval that allows for the bias.

        Scores below the lower threshold raise the mean if they are clipped, and scores above the
        upper threshold lower it. The bias is therefore at most the larger of the two changes.

        `noise` is as in `least`. If `centred`, the thresholds are at equal distances from zero.

        Parameters
        ----------
        cuts : Vector
            Candidate thresholds, as distances from zero, shape (K,).
        bias, square : Matrix
            Below and above zero, shape (2, K): bounds of the mean over all rows of the scores
            beyond a threshold, and the mean over all rows of the side's squared clipped scores.
        """
        at = np.arange(len(cuts))
        i, j = (at, at) if centred else (np.repeat(at, len(at)), np.tile(at, len(at)))
        largest = np.maximum(bias[0, i], bias[1, j])
        cut, middle = 0.5 * (cuts[j] + cuts[i]), 0.5 * (cuts[j] - cuts[i])
        squares = square[0, i] + square[1, j]
        sd = np.sqrt((noise * cut) ** 2 + squares / rows)
        best = int(np.argmin(sd * folded_quantile(largest / sd)))
        return cls(*(float(x[best]) for x in (cut, largest, middle, np.sqrt(squares))))


# -- shapes and nuisances ---------------------------------------------------------------------

SHAPE_OCTAVES = 16
"""Bins of half an octave, from a 256th of the bound on: lower thresholds are never useful."""

SHAPE_CUTS = 60
"""Clipping thresholds that are tried, 9% apart."""

TAIL, COMPANY, LONE = 3.0, 2.0, 4.0
"""A tail bin counts at TAIL noise sds if the bin below it has at least COMPANY noise sds. Otherwise
it counts at LONE noise sds. With 17 bins, one release in a thousand invents a tail."""

NEAR_BINS = 4
"""Bins (two octaves) beyond the last detected bin; their total count shows a tail."""


@dataclass(frozen=True, eq=False)
class AbsHistogram:
    """Cleaned counts of |score| by bin; `silent` if no bin is detectable.

    `tail` is the noisy number of scores in the `NEAR_BINS` bins beyond the last detected bin.
    """

    edges: Vector
    counts: Vector
    noise_sd: float
    silent: bool = False
    tail: float = 0.0
    total: float = field(init=False)  # Sum of the counts, at least 1
    cuts: Vector = field(init=False)  # Clipping thresholds that are tried, shape (SHAPE_CUTS,)

    def __post_init__(self) -> None:
        cuts = np.geomspace(self.edges[2], self.edges[-1], SHAPE_CUTS)
        vars(self).update(total=float(max(self.counts.sum(), 1.0)), cuts=cuts)

    def excess(self, cut: float) -> float:
        """Mean of (|score| - cut)+ according to the histogram."""
        typical = PRIORS.bin_typical * self.edges  # a value inside each bin
        return float(self.counts @ np.maximum(typical - cut, 0.0)) / self.total

    def rms(self, cut: float) -> float:
        """Root mean square of the score clipped at `cut`."""
        typical = PRIORS.bin_typical * self.edges
        return float(np.sqrt(self.counts @ np.minimum(typical, cut) ** 2 / self.total))

    def below(self, cut: float) -> float:
        """Share of scores below `cut`."""
        return float(np.interp(cut, self.edges, np.cumsum(self.counts) / self.total))


def without_noise_tail(counts: Vector, noise_sd: float, borders: Vector) -> AbsHistogram:
    """Drop tail bins that cannot be distinguished from the noise."""
    cells = counts.copy()
    for i in range(len(cells) - 1, -1, -1):
        lone = i > 0 and cells[i - 1] < COMPANY * noise_sd
        if cells[i] >= (LONE if lone else TAIL) * noise_sd and cells[i] > 0:
            break
        cells[i] = 0.0
    silent = not cells.any()
    last = len(cells) if silent else int(np.flatnonzero(cells)[-1])
    tail = float(counts[last + 1 : last + 1 + NEAR_BINS].sum())
    if silent:  # all noise: assume the widest bin; it costs accuracy, not validity
        cells[-1] = 1.0
    return AbsHistogram(borders, np.maximum(cells, 0.0), noise_sd, silent, tail)


def threshold_for_effect(
    sizes: AbsHistogram, noise_per_cut: float, *, bias: float = PRIORS.cut_bias
) -> float:
    """Threshold M minimizing cut_noise (noise_per_cut M)^2 + (bias x excess(M))^2, for tau(x)."""
    lost = np.array([bias * sizes.excess(m) for m in sizes.cuts])
    return Cut.least(sizes.cuts, noise_per_cut, lost, PRIORS.cut_noise).threshold


def unseen_bias(sizes: AbsHistogram, cut: float) -> float:
    """Allowance for clipping bias, as a standard deviation, if a shape is learned.

    Scores beyond the threshold that the histogram shows count in full, because a skewed outcome's
    scores have one sign there. Each score that no bin shows counts by half the threshold, times
    `Priors.one_sided`. The assumed number of such scores is half of a detectable count, or the
    total of the bins beyond if that is more. It is at most the share 4/9 (rms/cut)^2 that a
    unimodal distribution can have there (Vysochanskij and Petunin 1980).
    """
    if cut >= sizes.edges[-1]:
        return 0.0
    unseen = max(0.5 * TAIL * sizes.noise_sd, sizes.tail) / sizes.total
    hidden = min(unseen, (4.0 / 9.0) * (sizes.rms(cut) / cut) ** 2)
    return sizes.excess(cut) + PRIORS.one_sided * 0.5 * hidden * cut


RESIDUAL_SCALES = 60
"""Residual sds that are tried: a grid from the first border of the bins to the last."""


def denoise_normal(
    counts: Vector, noise_sd: float, borders: Vector, count: float, e: Vector
) -> AbsHistogram:
    """Cleaned counts of |(T - e)(Y - eta)|, shrunk towards the counts for a normal residual.

    With few rows or little budget the histogram is mostly noise, and a threshold based on it may be
    very inaccurate. For a residual N(0, s^2), the product is normal within each arm, with sd s e(x)
    or s (1 - e(x)). The model averages over s by its likelihood. Counts beyond noise are kept:
    heavier tails count as soon as they are detectable.

    `counts` and `borders` (K,) are noisy counts per bin and upper borders, `count` is the (noisy)
    number of rows, and `e` (N,) are propensities of a synthetic population.
    """
    seen = without_noise_tail(counts, noise_sd, borders)
    if noise_sd == 0 or (seen.silent and counts.sum() <= noise_sd):
        return seen
    scales = np.geomspace(borders[0], borders[-1], RESIDUAL_SCALES)
    arms, weight = np.concatenate([e, 1 - e]), np.concatenate([1 - e, e]) / len(e)
    below = 2 * ndtr(borders[:, None, None] / (scales[:, None] * arms)) - 1
    upto = (below @ weight).T
    upto[:, -1] = 1.0
    law = count * np.diff(upto, axis=1, prepend=0.0)  # by bin for every scale, (SCALES, K)
    chance = likelihoods(counts, noise_sd, law)
    model = chance @ law / chance.sum()
    keep = 0.0 if seen.silent else signal_share(counts - model, noise_sd**2)
    return replace(seen, counts=(1 - keep) * model + keep * seen.counts, silent=False)


# -- scores of averages -----------------------------------------------------------------------
#
# Scores of the smaller arm are larger, because they are divided by its share of the rows. Each arm
# therefore has its own sizes, divided by the weight of an outcome in its scores. This puts both
# arms on the same scale. Unless the counts tell them apart, the arms have one tail.


@dataclass(frozen=True, eq=False)
class ArmSizes:
    """Noisy counts of |score| x factor of the row's arm, up to each of `edges` (K,), shape (R, K).

    There are rows for A = 2 arms, or one for all rows of the study; their `factors` (R,) are in
    (0, 1]. If scores are counted by sign, `sides` (R,) are -1 or 1, `arms` are the positions of
    the arms. Sizes of one of the `kinds` may share their tail: scores of high outcomes, those
    of low outcomes, and on each side scores of an arm whose outcomes do not enter.
    """

    counts: Matrix
    noise_sd: float
    edges: Vector
    factors: Vector
    sides: tuple[int, ...] = ()
    arms: tuple[int, ...] = ()
    kinds: tuple[int, ...] = ()

    @classmethod
    def by_sign(
        cls, counts: Matrix, noise_sd: float, edges: Vector, factors: Vector, weights: Matrix
    ) -> ArmSizes:
        """From counts by arm in ascending cells of the signed score, shape (A, 2 K).

        `weights` are as in `Extremes`.
        """
        k, slopes = len(edges), weights.sum(axis=1)
        rows = [side for arm in counts for side in (arm[:k][::-1], arm[k:])]
        arms = tuple(np.repeat(np.arange(len(counts)), 2).tolist())
        sides = (-1, 1) * len(counts)
        kinds = tuple(
            int((side > 0) == (slopes[arm] >= 0)) + 2 * int(slopes[arm] == 0)
            for side, arm in zip(sides, arms, strict=True)
        )
        return cls(np.stack(rows), noise_sd, edges, np.repeat(factors, 2), sides, arms, kinds)

    @property
    def reach(self) -> float:
        """Largest detected size of all; 0 if no size is detected."""
        counts, sd = self.counts.sum(axis=0), np.sqrt(len(self.counts)) * self.noise_sd
        seen = np.flatnonzero(ranges.visible_cells(counts, float(sd), 1))
        return float(self.edges[seen[-1]]) if len(seen) else 0.0

    def beyond(
        self,
        rows: float,
        *,
        anywhere: bool = False,
        sparse: bool = False,
        usual: float = 0.0,
        shifts: Vector | float = 0.0,
    ) -> Callable[[Vector], tuple[Matrix, Matrix]]:
        """Means over all `rows` of (|score| - cut)+ and of min(|score|, cut)^2, for cuts (C,).

        Both have shape (R, C); the first includes an allowance. `usual` is the usual mean square of
        sizes, if it is not 0. Sizes of arm a may be `shifts[a]` larger on one side than they are
        on both, by an error of the arm's mean outcome. See `size_law` for the rest.
        """
        kinds = np.array(self.kinds or (1,) * len(self.counts))
        groups = [np.flatnonzero(kinds == kind) for kind in np.unique(kinds)]
        sizes = np.array([held_rows(self.counts[group], self.noise_sd) for group in groups])
        ends, shares = np.r_[0.0, self.edges], sizes / sizes.sum()
        laws = [
            size_law(
                self.counts[group],
                self.noise_sd,
                ends,
                share * rows,
                sparse=sparse,
                anywhere=anywhere,
                usual=usual,
            )
            for group, share in zip(groups, shares, strict=True)
        ]

        arms = list(self.arms or (0,) * len(self.counts))
        shift = (np.zeros(max(arms) + 1) + shifts)[arms]

        def means(cuts: Vector) -> tuple[Matrix, Matrix]:
            over, square = np.zeros((2, len(kinds), len(cuts)))
            for group, share, law in zip(groups, shares, laws, strict=True):
                for row, excess, clipped in zip(group, law.over, law.kept, strict=True):
                    factor = float(self.factors[row])
                    near = np.maximum(cuts * factor - shift[row], 0.0)
                    over[row] = share * np.interp(near, law.at, excess) / factor
                    square[row] = share * np.interp(cuts * factor, law.at, clipped) / factor**2
            return over, square

        return means


@dataclass(frozen=True, eq=False)
class Extremes:
    """Possible scores of a synthetic population, by arm, shape (A, N) each.

    `sizes` are the largest |score| for outcomes within their bounds. `weights` are the slopes of
    the score in the outcome, and `chances` the probabilities of the arms. If they are known, `ends`
    are the scores of the lowest and the highest outcome, shape (A, 2, N), `means` the mean outcomes
    from 0 (lowest) to 1 (highest), and `span` has the smallest and the largest score of all.
    """

    sizes: Matrix
    weights: Matrix
    chances: Matrix
    span: tuple[float, float] | None = None
    ends: Matrix | None = None
    means: Matrix | None = None
    # One unit of the outcome in scores of each arm, by the mean weight, shape (A,), and factors
    # that make the outcome's mean weight equal in both arms; the larger is 1
    units: Vector = field(init=False)
    factors: Vector = field(init=False)

    def __post_init__(self) -> None:
        shares = np.maximum(self.chances.mean(axis=1), 1e-12)
        weighed = (self.chances * np.abs(self.weights)).mean(axis=1)
        # scores of one arm's mean do not include outcomes of the other arm
        units = np.maximum(weighed / shares, 1e-12)
        units = np.where(weighed > 0, units, units.max())
        vars(self).update(units=units, factors=units.min() / units)

    def excess(self, cuts: Vector, doubt: float, local: float = 1e12) -> Matrix:
        """Maximum means over all rows of (|score| - cut)+, by arm and sign, shape (A, 2, C).

        (|score| - cut)+ is convex in the outcome. Among all outcomes with a given mean, those at
        the two ends therefore lose most. The share of all rows at an end is at most `MEAN_FACTOR`
        times the share that the estimated overall mean implies, plus `doubt`. These rows may have
        the largest scores, because the mean outcome of rows with rare propensities is uncertain.
        The share at each point is at most `local` times the estimate.
        """
        if self.ends is None or self.means is None:
            arms = zip(self.sizes, self.chances, strict=True)
            lost = [_excess(size, chance, cuts) for size, chance in arms]
            return np.repeat(np.array(lost)[:, None], 2, axis=1)
        high = float((self.chances * self.means).mean(axis=1).sum())
        shares = [(1 - high + doubt, 1 - self.means), (high + doubt, self.means)]
        out = np.zeros((len(self.ends), 2, len(cuts)))
        for arm, chance in enumerate(self.chances):
            for side, sign in enumerate((-1.0, 1.0)):
                size = np.maximum(sign * self.ends[arm], 0.0)
                most = [_excess(size.max(axis=0), chance, cuts), np.zeros(len(cuts))]
                for end, (share, means) in zip(size, shares, strict=True):
                    by_point = np.minimum(local * np.maximum(means[arm], share), 1.0) * chance
                    most[1] += _excess(end, by_point, cuts, MEAN_FACTOR * share)
                out[arm, side] = np.minimum(*most)
        return out


MEAN_FACTOR = 2.0
"""Largest mean outcome, relative to its estimate, if it limits what is clipped: overall, and at a
point if noisy counts of the scores show the tail, too. By hand."""


def _excess(size: Vector, chance: Vector, cuts: Vector, most: float = 1.0) -> Vector:
    """Mean of chance (size - cut)+ at each cut, for the largest sizes of a total chance `most`."""
    order = np.argsort(-size)
    size, chance = size[order], chance[order] / len(size)
    chance = np.clip(most - (np.cumsum(chance) - chance), 0.0, chance)
    rows, amount = (np.r_[0.0, np.cumsum(x)] for x in (chance, chance * size))
    above = np.searchsorted(-size, -cuts)
    return np.asarray(np.maximum(amount[above] - cuts * rows[above], 0.0))


# -- outcomes of a difference in means ---------------------------------------------------------


def trial_window(
    counts: Matrix, noise_sd: float, bounds: Interval, noise: float, *, anywhere: bool = False
) -> ranges.Window:
    """One interval for both arms, of the narrowest 95% interval that allows for the bias.

    The interval equals the bounds if the outcomes have no `outcome_law`.

    `counts` (2, K) are noisy counts by arm in the cells between `heights`, and at both ends.
    `noise` is the noise sd of an arm's sum per unit of half the interval's width. With `anywhere`,
    hidden outcomes may lie anywhere in the bounds.
    """
    law = outcome_law(counts, noise_sd, bounds, anywhere=anywhere)
    if law is None:
        return ranges.Window(bounds)
    sizes, rows, arms = law.sizes, float(law.arms.sum()), law.arms
    away = 0.5 * (law.ends[1:] + law.ends[:-1]) - law.core.middle
    cuts, lost, squares = [], [], []
    for side, (unit, last) in enumerate(zip(law.units.tolist(), law.lasts.tolist(), strict=True)):
        distances = ranges.cuts_between(float(law.reach[side]), last)
        over, clipped = (
            np.stack([np.interp(np.r_[distances, last] / unit, sizes.at, arm) for arm in curve])
            for curve in (sizes.over[2 * side :][:2], sizes.kept[2 * side :][:2])
        )
        # detected rows may contradict the law, and without noise they are all
        seen = law.held @ np.maximum((2 * side - 1) * away[:, None] - distances, 0.0)
        beyond = rows * unit * (over[:, :-1] - over[:, -1:])
        cuts.append(distances)
        lost.append(np.maximum(beyond, seen) if noise_sd else seen)
        squares.append(rows * unit**2 * clipped[:, :-1])
    i, j = (index.ravel() for index in np.indices((len(cuts[0]), len(cuts[1]))))
    amount = np.stack([lost[0][:, i], lost[1][:, j]], axis=1)  # (arms, sides, pairs)
    sampling = ((squares[0][:, i] + squares[1][:, j]) / arms[:, None] ** 2).sum(axis=0)
    privacy = noise * 0.5 * (cuts[0][i] + cuts[1][j]) * float(np.sqrt((1 / arms**2).sum()))
    error = np.sqrt(privacy**2 + sampling)
    bias = ranges.pulled(amount / arms[:, None, None])
    k = int(np.argmin(error * folded_quantile(bias / error)))
    near, middle = np.array([cuts[0][i[k]], cuts[1][j[k]]]), bounds.lo + law.core.middle
    excess = np.maximum(law.lasts - near, 0.0)
    most = np.divide(amount[:, :, k], excess, out=np.zeros((2, 2)), where=excess > 0)
    low, high = max(middle - float(near[0]), bounds.lo), min(middle + float(near[1]), bounds.hi)
    return ranges.Window(Interval(low, high), most, excess)


UNFORESEEN = 2.0
"""Largest possible score, over the largest detected one, if the synthetic population has none as
large. By hand."""

MEAN_SDS = 2.0
"""Doubt about the overall mean outcome, as noise sds of a mean score per unit. By hand."""

NEAREST = 0.25
"""Least threshold that is tried, as a share of the root mean square of the scores."""


def score_cut(
    extremes: Extremes,
    noise_per_cut: float,
    sizes: ArmSizes | None,
    look: ranges.Look | None,
    rows: float,
    *,
    anywhere: bool = False,
    movable: bool = False,
    doubt: float = 0.0,
) -> Cut:
    """The thresholds of the narrowest interval.

    If the outcome's scale is unknown (two values, rare events), the bias is at most that for any
    outcomes. The threshold then has the least squared noise plus squared bias.

    `noise_per_cut` is the noise sd of the mean score per unit of the threshold, and `rows` the
    (noisy) number of rows. `look` is the summary of a histogram of the outcome, half of whose
    variance is the usual mean square of a residual. With `anywhere`, hidden scores may have any
    size. If `movable`, the two thresholds may be at different distances from zero. `doubt` is the
    sd of the first effect, which centers the scores: an arm's mean outcome has this error times the
    share of the other arms.
    """
    largest = float(extremes.sizes.max())
    scaled = look is None or look.scaled
    variance = 0.0 if look is None else look.variance
    if sizes is None or not scaled or not (variance or sizes.reach):
        cuts = ranges.cuts_between(PRIORS.lowest_cut * largest, largest)
        lost = extremes.excess(cuts, MEAN_SDS * noise_per_cut).sum(axis=0).max(axis=0)
        cut = Cut.least(cuts, noise_per_cut, lost)
        if not movable or extremes.span is None:
            return cut
        least_score, most_score = extremes.span
        half, middle = 0.5 * (most_score - least_score), 0.5 * (most_score + least_score)
        whole = Cut(half, 0.0, middle=middle)
        return min(cut, whole, key=lambda c: (noise_per_cut * c.threshold) ** 2 + c.bias**2)
    sparse, unit = look is not None and look.mostly, float(extremes.units.min())
    usual = 0.5 * variance * unit**2
    # scores detected beyond the largest possible score contradict the synthetic population, which
    # then has scores as much larger
    grown, ends = 1.0, extremes.sizes.max(axis=1)
    end = float(((ends[list(sizes.arms)] if sizes.arms else ends) * sizes.factors).max())
    if sizes.reach > np.sqrt(2.0) * end:
        grown = UNFORESEEN * sizes.reach / end
    largest = min(grown * largest, float((sizes.edges[-1] / sizes.factors).max()))
    shifts = doubt * unit * (1 - extremes.chances.mean(axis=1))
    beyond = sizes.beyond(rows, anywhere=anywhere, sparse=sparse, usual=usual, shifts=shifts)
    start = NEAREST * float(np.sqrt(beyond(np.array([largest]))[1].sum()))
    # detected amounts among zeros are not clipped
    start = max(start, look.reach * unit if look and sparse else 0.0)
    cuts = ranges.cuts_between(min(start, largest), largest)
    most = grown * extremes.excess(cuts / grown, MEAN_SDS * noise_per_cut, MEAN_FACTOR)
    over, square = beyond(cuts)
    for row, (arm, side) in enumerate(zip(sizes.arms, sizes.sides, strict=True)):
        over[row] = np.minimum(over[row], most[arm, int(side > 0)])
    bias, squares, share = [], [], 1.0 if sizes.sides else 0.5
    for k, sign in enumerate((-1, 1)):
        on_side = np.array([float(side in (0, sign)) for side in sizes.sides or (0,) * len(over)])
        bias.append(np.minimum(on_side @ over, most[:, k].sum(axis=0)))
        squares.append(share * on_side @ square)
    return Cut.narrowest(
        cuts, np.array(bias), np.array(squares), noise_per_cut, rows, centred=not movable
    )


LEAST_KEPT = 0.5
"""At most half the slope is assumed to be lost, because the model is too rough for more."""


def slope_kept(weights: Matrix, slopes: Matrix, chances: Matrix, cut: float, rms: float) -> float:
    """The share of the slope that remains after clipping, for normal residuals.

    A score s = w (Y - m) is clipped at M. If a wrong constant effect shifts the means m, scores
    below M change in full and clipped scores do not change. The sum of clipped scores falls by
    E[slope 1(|s| < M)], although the mass implies a larger fall, E[slope]. The ratio of sum and
    mass would then stay near the center that scores were clipped around. Dividing by the remaining
    share corrects this to first order, as Newton's step to Huber's (1964) estimate would.

    `weights`, `slopes` and `chances` (2, N) are w, the slope of its score, and the probability of
    the arm, by arm and point of the synthetic population. `cut` and `rms` are M, and the root mean
    square of the clipped scores.
    """
    sizes = np.abs(weights) / cut

    def excess(log_sd: float) -> float:
        x = 1 / (sizes * np.exp(log_sd) + 1e-12)
        inside = 1 - 2 * norm.sf(x)
        # E min((z / x)^2, 1) for a standard normal z
        square = (inside - 2 * x * norm.pdf(x)) / x**2 + 2 * norm.sf(x)
        return float((chances * square).mean() * len(chances) - (rms / cut) ** 2)

    scale = np.log(cut / np.abs(weights).max())
    low, high = scale - 12.0, scale + 12.0
    if excess(high) <= 0:
        return LEAST_KEPT
    sd = np.exp(brentq(excess, low, high)) if excess(low) < 0 else np.exp(low)
    inside = 1 - 2 * norm.sf(1 / (sizes * sd + 1e-12))
    share = float((chances * slopes * inside).sum() / (chances * slopes).sum())
    return max(share, LEAST_KEPT)
