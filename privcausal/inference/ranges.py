"""Ranges of values, and bounds of the rows beyond them, from noisy counts.

Clipping saves noise, but it biases an estimate if values lie beyond the threshold. Noise hides
small masses. An estimate of the bias is therefore far too small for rare, sparse or skewed
outcomes. For the ranges of columns the bias is bounded instead, under one condition on the tail:

    beyond x0, the last border up to which counts are distinguishable from noise, the mass beyond
    x falls at least as fast as (x / x0)^-INDEX.

The mass at x0 is an upper confidence bound. For every distribution that meets the condition, the
bound of the bias therefore holds in all but `ERROR` of fits. Outcomes, scores and residuals, which
make the estimate itself, have the laws of `tails`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import ndtr
from scipy.stats import norm

from privcausal.errors import BudgetError
from privcausal.inference.effects import FEW_SDS
from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import likelihoods, signal_share
from privcausal.request.schema import Domain, Interval, least_width
from privcausal.typing import Mask, Matrix, Vector

# -- tails ------------------------------------------------------------------------------------

INDEX = 3.0
"""The heaviest tail that the condition allows. A normal interval needs third moments (Berry 1941,
Esseen 1942). With a heavier tail it would not hold without privacy either."""

ERROR = 1e-3
"""Chance that a mass exceeds its bound in one fit, or that noise alone makes cells next to others
look occupied."""

LUCK, CELLS_APART = 1e-6, 8
"""Chance that noise alone makes a cell look occupied, if it is more than CELLS_APART cells from
others. One false detection makes an interval hundreds of times too wide. A missed real cell is
covered by the bound of hidden rows."""

RUNS = (1, 2, 4, 8, 16)
"""Numbers of neighboring cells that are tested together, short runs first. Only long runs detect
a flat tail."""

MERGE_RATIO = float(np.sqrt(2.0))
"""Cells beyond x0 are merged until their borders differ by this factor: finer cells only add
noise."""


def visible_cells(
    counts: Vector,
    noise_sd: float,
    looks: int,
    error: float = ERROR,
    luck: float = LUCK,
    runs: Sequence[int] = RUNS,
) -> Mask:
    """Cells distinguishable from noise, alone or in a run without such cells; shape (K,).

    Cells are first detected at the chance `luck`. Cells linked to these by gaps of at most
    `CELLS_APART` are detected at the chance `error`, and other cells at the chance `luck`. If no
    cell is detected at the chance `luck`, `error` applies to all cells.

    `looks` is the number of histograms of a fit that are tested in this way: they share the
    chances. `runs` are the lengths of runs of cells that are tested together.
    """
    size, cells = len(counts), []
    tests = sum(max(size - length + 1, 0) for length in runs)
    for chance in (luck, error):
        stands_out = float(norm.isf(chance / (looks * tests))) * noise_sd
        marks = bytearray(size)  # slices of an array would take most of a fit's time
        for length in (length for length in runs if length <= size):
            totals = sliding_window_view(counts, length).sum(axis=1)
            for start in np.flatnonzero(totals > max(stands_out * np.sqrt(length), 0.0)).tolist():
                if not any(marks[start : start + length]):
                    # drop the last cells of a run whose counts are below one noise sd
                    run = int(np.flatnonzero(counts[start : start + length] > noise_sd)[-1]) + 1
                    marks[start : start + run] = b"\1" * run
        cells.append(np.frombuffer(marks, bool).copy())
    sure, likely = cells
    if not sure.any():
        return likely
    at = np.flatnonzero(sure | likely)
    near = np.cumsum(np.diff(at, prepend=at[0]) > CELLS_APART)  # index of a cell's chain
    detected = sure.copy()
    detected[at[np.isin(near, near[sure[at]])]] = True
    return detected


def hidden(counts: Vector, noise_sd: float, edges: Vector, looks: int) -> float:
    """Upper confidence bound of the rows beyond x0 = edges[0]; `counts` lie between `edges`.

    Let p_k be the mass of (x / x0)^-INDEX in cell k; the last cell holds all the mass beyond its
    start. A tail that falls at least as fast has its mass in nearer cells. Hence, for weights w_k
    that do not rise and a mass A beyond x0, E[sum w c] >= A sum w p.

    `edges` (K + 1,) are distances, ascending from x0 > 0. `looks` is the number of such bounds in a
    fit: they share `ERROR`.
    """
    if not len(counts):
        return 0.0
    first = [0]
    for k in range(1, len(edges) - 1):
        if edges[k] >= MERGE_RATIO * (1 - 1e-9) * edges[first[-1]]:
            first.append(k)  # merged cells begin here
    mass = -np.diff(np.r_[(edges[first] / edges[0]) ** -INDEX, 0.0])
    cells = np.diff(np.r_[first, len(counts)])
    weight = np.minimum.accumulate(mass / cells)
    seen, sd = float(weight @ np.add.reduceat(counts, first)), noise_sd * np.sqrt(weight**2 @ cells)
    return max(float((seen + norm.isf(ERROR / looks) * sd) / (weight @ mass)), 0.0)


CUTS = 40
"""Number of clipping thresholds that are tried: a geometric grid."""


def cuts_between(start: float, end: float) -> Vector:
    """From `start` to `end`; shape (CUTS,), or (1,) if `end` does not exceed `start`."""
    return np.geomspace(start, end, CUTS) if end > start else np.array([start])


# -- outcomes ---------------------------------------------------------------------------------

PARTS, OCTAVES = 32, 10
"""Cells of an outcome. There are equal parts of its range. There are also half octaves around
zero (or the end nearest to zero), down to a thousandth of the range, where amounts, costs and
counts concentrate."""

POINT = 1e-12
"""A cell narrower than this share of the range holds one value."""

MOSTLY = 0.5
"""If more than this share of the rows is at single values, the others determine the scale."""


def heights(bounds: Interval) -> Vector:
    """Borders of cells of Y - lo, ascending from 0 to the range.

    The ends and zero have their own cells, because many rows at one value do not show a scale. The
    cell of the upper end is beyond the last border below it.
    """
    anchor = float(np.clip(0.0, bounds.lo, bounds.hi) - bounds.lo)
    steps = bounds.width * 2.0 ** (-0.5 * np.arange(2 * OCTAVES + 1))
    ends = np.r_[
        np.linspace(0.0, bounds.width, PARTS + 1), anchor - steps, anchor + steps,
        np.nextafter(anchor, -np.inf), anchor,
    ]  # fmt: skip
    inside = ends[(ends >= 0) & (ends < np.nextafter(bounds.width, 0.0))]
    return np.unique(np.r_[inside, bounds.width])


class Core(NamedTuple):
    """The cells with detectable counts: their median, and the distances down and up from it."""

    middle: float
    below: float
    above: float

    @classmethod
    def of(cls, seen: Mask, counts: Vector, ends: Vector) -> Core | None:
        """The core, or None if only single values are detected, because the scale is then unknown.

        A side without detected cells takes the scale of the other side. `counts` are the noisy
        counts of the cells between `ends`, shapes (K,) and (K + 1,). `seen` marks the detectable
        cells.
        """
        least = POINT * float(ends[-1] - ends[0])
        if not seen[np.diff(ends) > least].any():
            return None
        held = np.where(seen, np.maximum(counts, 0.0), 0.0)
        half = int(np.searchsorted(np.cumsum(held), 0.5 * held.sum()))
        middle = float(0.5 * (ends[half] + ends[half + 1]))
        at = np.flatnonzero(seen)
        low, high = middle - float(ends[at[0]]), float(ends[at[-1] + 1]) - middle
        return cls(
            middle,
            min(low if low > least else high, middle - float(ends[0])),
            min(high if high > least else low, float(ends[-1]) - middle),
        )

    def stretched(
        self, counts: Vector, noise_sd: float, ends: Vector, error: float, *, sparse: bool = False
    ) -> Core:
        """The core, stretched until at most as many rows can hide beyond it as lie within it.

        The factor is a power of `MERGE_RATIO`. If more rows may hide beyond the core, it is not a
        middle with tails, and the tail condition would not apply to it. Rows at single values do
        not belong to a middle. For a `sparse` outcome, most rows are at single values, and the
        fullest cell is excluded too. Many of the other rows may be at one more value, such as the
        price that most customers paid. `error` is the chance that more rows hide.
        """
        single = np.diff(ends) <= POINT * float(ends[-1] - ends[0])
        if sparse:
            single[np.argmax(np.where(single, -np.inf, counts))] = True
        lowest, highest = self.middle - float(ends[0]), float(ends[-1]) - self.middle
        below, above = self.below, self.above
        while below < lowest or above < highest:
            beyond = (ends[:-1] < self.middle - below) | (ends[1:] > self.middle + above)
            most = counts[beyond].sum() + norm.isf(error) * noise_sd * np.sqrt(beyond.sum())
            if most <= counts[~beyond & ~single].sum():
                break
            below, above = min(MERGE_RATIO * below, lowest), min(MERGE_RATIO * above, highest)
        return self._replace(below=below, above=above)


@dataclass(frozen=True, eq=False)
class Look:
    """Summary of a noisy histogram of all outcomes."""

    window: Interval  # Interval of detected outcomes; their bounds if none is detected
    # Whether more than single values are detected, or no row is likely to be at the upper end
    scaled: bool
    reach: float  # Largest detected distance from the middle; 0 if the scale is unknown
    mostly: bool  # Whether most rows are at single values
    lone: bool = False  # Whether one cell is detected, and many rows may be in others
    variance: float = 0.0  # Variance of the outcome; 0 if its scale is unknown


def read_look(counts: Vector, noise_sd: float, bounds: Interval) -> Look:
    """Read the counts of Y - lo up to each of `outcome_edges`, shape (K,)."""
    ends = np.r_[0.0, outcome_edges(bounds)]
    seen = visible_cells(counts, noise_sd, 1)
    core = Core.of(seen, counts, ends)
    # Rare events have one value, and only the bounds show which.
    events = (bounds.lo, bounds.hi) == (0.0, 1.0) or bool(counts[-1] > noise_sd)
    if core is None:
        return Look(bounds, not events, 0.0, True)
    wide = np.diff(ends) > POINT * float(ends[-1])
    if seen.sum() == 1 and many(counts[~seen], noise_sd, float(counts.sum())):
        return Look(bounds, not events, 0.0, True, lone=True)
    held = np.where(seen, np.maximum(counts, 0.0), 0.0)
    k, rows = int(np.argmax(np.where(wide, held, 0.0))), float(counts.sum())
    spiked = held[k] > MOSTLY * rows and many(np.delete(counts, k), noise_sd, rows)
    mostly = sparse(held, ends) or bool(spiked)
    low, high = (bounds.lo + core.middle + d for d in (-core.below, core.above))
    if mostly:
        core = core.stretched(counts, noise_sd, ends, ERROR, sparse=True)
    low, high = max(low, bounds.lo), min(high, bounds.hi)
    if high - low <= least_width(bounds.lo, bounds.hi):  # too narrow to be a range
        return Look(bounds, not events, 0.0, True)
    return Look(Interval(low, high), True, max(core.below, core.above), mostly)


HIDDEN_SDS = 3.0
"""Noise sds of rows that may hide at an eighth of the outcome's range. Public data."""

FEW_OUTSIDE, OUTSIDE_SDS = 0.05, 0.5
"""Share of the rows that may be outside the detected cells, by their count and so many noise sds,
without doubt about the scale. If one cell is detected, it may hold one value that most rows have,
and the others may be anywhere; or the bounds are far too wide. With 80% of the rows at one value,
1.64 sds in place of 0.5 give full coverage, but twice the width at bounds 20 times too wide."""


def many(outside: Vector, noise_sd: float, rows: float) -> bool:
    """Whether many of the `rows` may be in these cells."""
    most = float(outside.sum()) + OUTSIDE_SDS * noise_sd * np.sqrt(len(outside))
    return bool(most > FEW_OUTSIDE * rows)


def sparse(held: Vector, ends: Vector) -> bool:
    """Whether most rows are at single values, according to the detected counts."""
    single = np.diff(ends) <= POINT * float(ends[-1] - ends[0])
    return bool(held[single].sum() > MOSTLY * held.sum())


def outcome_edges(bounds: Interval) -> Vector:
    """Upper borders of the cells, shape (K,); the first holds the lower end, the last the upper."""
    return np.unique(np.r_[heights(bounds), np.nextafter(bounds.width, 0.0)])


@dataclass(frozen=True, eq=False)
class Window:
    """Interval to which the outcomes of both arms are clipped, and bounds of the rows beyond.

    `rows` are the maximum numbers of rows beyond the ends, by arm and end (low, high), shape
    (2, 2). `excess` is the maximum average distance of these rows from an end, shape (2,).
    """

    interval: Interval
    rows: Matrix = field(default_factory=lambda: np.zeros((2, 2)))
    excess: Vector = field(default_factory=lambda: np.zeros(2))

    @property
    def lost(self) -> float:
        """Maximum amount that clipping removes from the sum of the outcomes of both arms."""
        return float(self.rows.max(axis=0) @ self.excess)

    def moved_to(self, interval: Interval) -> Window:
        """This clipping interval with other ends.

        If an end moves inward, clipped outcomes lose this distance in addition. If outcomes are
        whole numbers and none lies between the old end and the new end, at most the same rows are
        clipped. If ends move outward, the bounds remain valid unchanged.
        """
        moved = [interval.lo - self.interval.lo, self.interval.hi - interval.hi]
        inward = np.maximum(moved, 0.0)
        return Window(interval, self.rows, self.excess + inward)

    def bias(self, count: Matrix) -> Vector:
        """Maximum change, by clipping, of the difference of arms with `count` rows (2, m)."""
        share = np.minimum(self.rows[:, :, None] / np.maximum(count, 1.0)[:, None, :], 1.0)
        return pulled(share * self.excess[:, None])


def pulled(lost: Vector) -> Vector:
    """Maximum change of a difference, given the losses of its arms at each end, (2, 2, m) to (m,).

    High rows raise the treated mean and low rows lower it; in the control arm the signs are
    opposite. Upward and downward changes cannot both occur in full.
    """
    return np.asarray(np.maximum(lost[1, 1] + lost[0, 0], lost[1, 0] + lost[0, 1]))


# -- the window of a nuisance (estimated bias) -----------------------------------------------

LOOK_BINS = 32
"""Equal bins of the declared range; an interval's ends are interpolated between their borders."""

CENTRES, SPREADS = 63, 25
"""Means and standard deviations of normal distributions that are tried: finer than the noise."""

STANDS_OUT = 2.5
"""A bin counts in addition to the normal distributions at this many noise sds. Noise alone
produces such a bin in 18% of histograms, which widens the interval."""

TAILS = (0.15, 0.12, 0.1, 0.08, 0.06, 0.04, 0.03, 0.02, 0.01, 0.005, 0.002, 0.001)
"""Shares of the rows that may be clipped on each side: a grid."""

NARROW = 1e-6
"""Least width of the interval, and least sd of the outcome, as shares of the bounds. A guard."""


def window_borders(bounds: Interval) -> Vector:
    """Upper borders of the bins above the lower end, up to the range; shape (LOOK_BINS,)."""
    return np.asarray(bounds.width * np.arange(1, LOOK_BINS + 1) / LOOK_BINS)


class MeanWindow(NamedTuple):
    """Clipping interval of outcomes, share of slopes that it keeps, and variance of outcomes."""

    interval: Interval
    kept: float
    variance: float


def normal_laws(
    ends: Vector, centres: int = CENTRES, least: float = 0.5 / LOOK_BINS
) -> tuple[Matrix, Vector, Vector]:
    """Chances of the cells between `ends` for normal distributions, shape (L, K), with mean and sd.

    The sds are `least` to half of the range. Values beyond the range count in its last cells.
    """
    width = float(ends[-1] - ends[0])
    means = np.repeat(np.linspace(ends[0], ends[-1], centres), SPREADS)
    sds = np.tile(width * np.geomspace(least, 0.5, SPREADS), centres)
    below = ndtr((ends - means[:, None]) / sds[:, None])
    below[:, 0], below[:, -1] = 0.0, 1.0
    return np.diff(below, axis=1), means, sds


def outcome_window(
    counts: Vector,
    noise_sd: float,
    bounds: Interval,
    borders: Vector,
    count: float,
    noise_per_width: float,
) -> MeanWindow:
    """Interval to which outcomes are clipped when their mean given covariates is learned.

    Noise of the moments grows with the interval's width. Clipping multiplies slopes by the share of
    outcomes in the interval (Stein's lemma, for a normal outcome), so moments are divided by it,
    and the variance of the clipped outcomes by its square. For outcomes that are not normal, the
    slopes keep an error of `PRIORS.window_doubt` times the clipped share. The candidates are the
    declared range and the intervals that clip equal shares on both sides. The candidate of least
    squared error is returned.

    `counts` (K,) are noisy counts of Y - lo up to each of `borders` (K,), which ascend to the width
    of the declared bounds. `noise_per_width` is the noise sd of the fitted function per unit of
    half the interval's width.
    """
    grid = np.r_[0.0, borders] / bounds.width
    # shares of the bins: detected counts, and normal distributions averaged by likelihood
    share = counts / max(counts.sum(), 1.0)
    if noise_sd:
        laws = count * normal_laws(grid)[0]
        chance = likelihoods(counts, noise_sd, laws)
        model = chance @ laws / chance.sum()
        keep = signal_share(counts - model, noise_sd**2)
        seen = counts > STANDS_OUT * noise_sd
        mixed = np.where(seen, (1 - keep) * model + keep * counts, 0.0)
        # rows that the detected bins lack lie elsewhere, as the model has them
        lacking = max(count - mixed.sum(), 0.0)
        mixed += np.where(seen, 0.0, model) * lacking / max(model[~seen].sum(), 1.0)
        share = mixed / mixed.sum()
    upper, middle = np.r_[0.0, np.cumsum(share)], 0.5 * (grid[1:] + grid[:-1])
    variance = float(share @ middle**2 - (share @ middle) ** 2)
    wrong = PRIORS.window_explained * variance * PRIORS.window_doubt**2
    least = max(NARROW, 2 * least_width(bounds.lo, bounds.hi) / bounds.width)
    limits, kept, best = np.array([0.0, 1.0]), 1.0, (noise_per_width * 0.5) ** 2
    for tail in TAILS if noise_sd else ():
        ends, inside = np.interp([tail, 1 - tail], upper, grid), 1 - 2 * tail
        width = float(ends[1] - ends[0])
        loss = (noise_per_width * 0.5 * width / inside) ** 2 + wrong * (2 * tail) ** 2
        if width > least and loss < best:
            best, limits, kept = loss, ends, inside
    clipped = np.clip(middle, *limits)
    within = float(share @ np.diff(grid) ** 2) / 12  # if one bin holds all outcomes
    variance = max(float(share @ clipped**2 - (share @ clipped) ** 2), within) / kept**2
    variance = bounds.width**2 * max(variance, least**2)
    return MeanWindow(Interval(*(bounds.lo + bounds.width * limits)), kept, variance)


# -- bounds that are too wide -----------------------------------------------------------------


class LookCounts(NamedTuple):
    """Noisy counts of the cells between `ends`, shapes (K,) and (K + 1,)."""

    value: Vector
    noise_sd: float
    ends: Vector


LUCKY = 0.05
"""Chance that noise alone makes cells beyond look occupied. A false detection widens a range that
could be narrower. A range that is too narrow clips values, which is worse."""

SHARE_BEYOND = 0.02
"""Maximum share of the rows beyond either end of a column's effective range; they are clipped.
Building half."""

STRETCH = 1.5
"""Factor of a range that noise hides cell by cell: three sds of a normal column. By hand."""

UNIFORM_ODDS = 5.0
"""A column is this many times as likely normal as uniform over its bounds. Everyday laws."""


def effective_range(
    counts: Vector, noise_sd: float, declared: Interval, looks: int, *, whole: bool = False
) -> Interval:
    """Range to which a column's values are clipped.

    The range covers the cells that are distinguishable from noise. It is stretched from their
    median until at most `SHARE_BEYOND` of the rows can lie beyond an end, by the tail condition.
    If more rows may lie beyond the detected cells than in them, these cells are not a middle whose
    tails could meet a condition; the range then follows from the usual distributions that fit the
    counts. The result is the declared range if the effective range is close to a point, or wider
    than half the declared range.

    `counts` (K,) are noisy counts in equal cells of the declared range, and `looks` is the number
    of columns that are tested. With `whole`, a single detected cell gives the declared range, too:
    it may hold one value that most rows have, and the others may be anywhere.
    """
    seen, cells = visible_cells(counts, noise_sd, looks, LUCKY, LUCKY), len(counts)
    ends = np.linspace(declared.lo, declared.hi, cells + 1)
    core = Core.of(seen, counts, ends)
    if whole and seen.sum() == 1:
        return declared
    at = np.flatnonzero(seen)
    outside = (counts[: at[0]][::-1], counts[at[-1] + 1 :]) if len(at) else (counts, counts[:0])
    elsewhere = np.concatenate(outside)
    rows = max(float(counts.sum() - elsewhere.sum()), noise_sd, 1.0)
    doubt = norm.isf(LUCKY) * noise_sd * np.sqrt(len(elsewhere))
    if core is None or elsewhere.sum() + doubt > rows:
        if whole:
            return declared
        # Normal distributions and the uniform are averaged by their likelihood. The range has the
        # middle 96% of the average, stretched from its median.
        grid = np.arange(cells + 1) / cells
        normal = normal_laws(grid, 2 * cells + 1, 0.25 / cells)[0]
        laws = np.r_[normal, np.full((1, cells), 1 / cells)]
        prior = np.r_[np.zeros(len(normal)), np.log(len(normal) / UNIFORM_ODDS)]
        whole_count = max(float(counts.sum()), noise_sd, 1.0)
        chance = likelihoods(counts, noise_sd, whole_count * laws, prior)
        law = np.r_[0.0, np.cumsum(chance @ laws / chance.sum())]
        nearest = np.interp([SHARE_BEYOND, 0.5, 1 - SHARE_BEYOND], law, grid)
        ends = nearest[1] + STRETCH * (nearest[[0, 2]] - nearest[1])
        low, high = (declared.lo + declared.width * np.clip(ends, 0.0, 1.0)).tolist()
    else:
        step, reaches = declared.width / cells, []
        for beyond, reach in zip(outside, (core.below, core.above), strict=True):
            distance = reach + step * np.arange(len(beyond) + 1.0)
            most = hidden(beyond, noise_sd, distance, 2 * looks)
            reaches.append(reach * max(most / (SHARE_BEYOND * rows), 1.0) ** (1 / INDEX))
        low = max(declared.lo, core.middle - reaches[0])
        high = min(declared.hi, core.middle + reaches[1])
    # a range above half the declared width saves too little noise to justify the clipping
    worth = least_width(declared.lo, declared.hi) < high - low <= declared.width / 2
    return Interval(float(low), float(high)) if worth else declared


# -- bounds estimated from noisy counts --------------------------------------------------------
#
# A histogram by powers of four finds a column's size, and a histogram of equal cells its range. Few
# rows do not exceed the noise, so a range is widened if many rows may lie beyond it.


COARSE_STANDS_OUT, FINE_STANDS_OUT = 5.0, 4.0
"""A cell counts as occupied at this many noise sds. A falsely detected coarse cell widens the
range by powers of four, so false detections must be very rare: one of 61 empty cells exceeds 5 sd
once in 60,000 columns. A falsely detected fine cell widens the range within the coarse range
only."""

INVENTED = 1e-5
"""Chance that noise alone makes sizes of an outcome look occupied, which makes its bounds far too
wide."""

COARSE_RUNS = 1, 2
"""Lengths of runs of powers of four that are tested together. A longer run whose first cells hold
rows would take empty cells beyond them for occupied: in 3% of samples of sparse amounts, bounds
were 15 to 10,000 times too wide."""

PAD = 0.25
"""The range is widened by this share of its width on each side, for tails below the noise."""

MISSED, FAR_MISSED = 0.02, 0.1
"""Thresholds for the share of rows outside the detected cells. Above the first, the coarse range
is made symmetric. Above the second, it is also widened by a factor of four."""

BEYOND = 0.05
"""Maximum share of the rows beyond the fine range before `PAD`, by estimate and noise."""

USUAL_SHARE, ROOM = 0.48, 2.0
"""Share of the rows with sizes in the fullest power of four: 0.48 or more for a normal column
around zero, wherever its borders lie. Noise sds of this count above the threshold."""

ZERO_CELL = 2.0**-20
"""Ends at most this far from zero are set to zero. The zero cell of a histogram by magnitude is as
wide."""


def present_rows(counts: Vector, noise_sd: float, public: float | None) -> float:
    """Rows with a value: the public number, unless the noisy count shows that many lack a value."""
    seen, noise = float(counts.sum()), noise_sd * np.sqrt(len(counts))
    if public is None or public - seen > 3 * noise:
        return max(seen, 1.0)
    return float(public)


def coarse_range(
    rough: LookCounts, name: str, public: float | None, *, outcome: bool = False
) -> Interval:
    """Powers of four with detectable counts, widened if many rows may lie outside them.

    Positive and negative values are also tested together: of one size, a column around zero has
    twice as many. An outcome needs detectable values other than zero, unlike a covariate. If only
    zeros are detected (rare events, sparse amounts), the outcome has an unknown range: the other
    values may lie anywhere, and they alone determine the mean.
    """
    zero, sd = len(rough.value) // 2, rough.noise_sd
    seen, others = rough.value > COARSE_STANDS_OUT * sd, np.arange(len(rough.value)) != zero
    if outcome:
        seen[others] = visible_cells(rough.value[others], sd, 1, INVENTED, runs=COARSE_RUNS)
    sizes = rough.value[zero + 1 :] + rough.value[:zero][::-1]
    both = visible_cells(sizes, np.sqrt(2.0) * sd, 1, INVENTED, runs=COARSE_RUNS)
    both &= ~(seen[zero + 1 :] | seen[:zero][::-1])
    seen |= np.r_[both[::-1], False, both]
    if not seen[others].any() if outcome else not seen.any():
        why = "the budget is too small for this number of rows"
        if seen[zero]:
            why = f"only values within {ZERO_CELL:.0e} of 0 are detected (noisy counts)"
        raise BudgetError(
            f"Could not estimate bounds for {name!r}: {why}. Declare them, "
            f"bounds={{{name!r}: (lo, hi)}}, or increase shares={{'bounds': ...}}."
        )
    at = np.flatnonzero(seen)
    lo, hi = float(rough.ends[at[0]]), float(rough.ends[at[-1] + 1])
    cells = slice(at[0], at[-1] + 1)
    # Fine cells at the ends would hold the rows beyond as if they were values there. The count of
    # an outcome's rows is lowered by one noise sd, because they decide its average.
    inside = float(rough.value[cells].sum())
    inside -= outcome * sd * np.sqrt(at[-1] + 1 - at[0])
    missed = 1.0 - inside / present_rows(rough.value, sd, public)
    if missed > MISSED:
        hi = max(abs(lo), abs(hi)) * (4.0 if missed > FAR_MISSED else 1.0)
        lo = -hi
    return Interval(lo, hi)


NONE_ELSE = 2.0
"""Noise sds that the count of all values but 0 and 1 does not exceed in a column of these two."""


def looks_binary(rough: LookCounts, fine: LookCounts, *, whole: bool) -> bool:
    """Whether 0 and 1 are detected, and other values cannot be distinguished from noise.

    For a column of `whole` numbers, only cells that hold a whole number are compared.
    """
    two = np.searchsorted(fine.ends, [0.0, 1.0], side="right") - 1
    if not (fine.ends[0] <= 0.0 and fine.ends[-1] > 1.0 and two[0] < two[1]):
        return False
    others = np.ceil(fine.ends[:-1]) < fine.ends[1:] if whole else np.full(len(fine.value), True)
    others[two] = False
    beyond = (rough.ends[:-1] < fine.ends[0]) | (rough.ends[1:] > fine.ends[-1])
    rest, sd = np.r_[fine.value[others], rough.value[beyond]], max(fine.noise_sd, rough.noise_sd)
    return bool(
        (fine.value[two] > FINE_STANDS_OUT * fine.noise_sd).all()
        and not visible_cells(rest, sd, 1).any()
        and rest.sum() <= NONE_ELSE * sd * np.sqrt(len(rest))
    )


def fine_range(counts: Vector, noise_sd: float, coarse: Interval, rows: float) -> Interval:
    """The cells of the coarse range that hold nearly all rows, widened by `PAD`.

    Cells are merged until they are distinguishable from noise. If too many rows might lie beyond,
    the coarse range is kept, because a wide bound costs noise but a narrow bound biases. If only
    zeros are detected, the range is [0, 1]: the scale of the other values is unknown, and they may
    be ones.
    """
    if coarse.width <= 8 * ZERO_CELL:  # both sides of zero, four times as wide if rows are missed
        return Interval(0.0, 1.0)
    for merged in (1, 2, 4, 8):
        cells, sd = counts.reshape(-1, merged).sum(axis=1), noise_sd * np.sqrt(merged)
        occupied = np.flatnonzero(cells > FINE_STANDS_OUT * sd)
        if len(occupied) == 0:
            continue
        first, last = occupied[0], occupied[-1] + 1
        outside = np.r_[cells[:first], cells[last:]]
        beyond = float(outside.sum()) + 2 * sd * np.sqrt(len(outside))
        if beyond <= BEYOND * rows:
            step = coarse.width / len(cells)
            lo, hi = coarse.lo + first * step, coarse.lo + last * step
            pad = PAD * (hi - lo)
            return Interval(max(coarse.lo, lo - pad), min(coarse.hi, hi + pad))
    return coarse


def rounded(interval: Interval, whole: bool) -> Interval:
    """The interval with short numbers for ends, at most 2% wider.

    For a column of whole numbers, the ends are the least and the largest whole number within the
    interval. Values inside are then not clipped; for values beyond see `Window.moved_to`. An end
    within `ZERO_CELL` of zero becomes zero if the interval is far wider. This changes a value by at
    most 2^-20, which the allowances ignore.
    """
    near = ZERO_CELL if interval.width >= 1.0 else 0.0
    lo, hi = (0.0 if abs(end) <= near else end for end in (interval.lo, interval.hi))
    if whole and least_width(lo, hi) < math.floor(hi) - math.ceil(lo):
        return Interval(math.ceil(lo), math.floor(hi))
    room = (hi - lo) / 100
    power = 10.0 ** math.floor(math.log10(room))
    step = next(m * power for m in (5, 2, 1) if m * power <= room * (1 + 1e-9))
    digits = 1 - math.floor(math.log10(step))
    ends = round(step * math.floor(lo / step), digits), round(step * math.ceil(hi / step), digits)
    return Interval(min(ends[0], lo), max(ends[1], hi))


def outcome_range(rough: LookCounts, fine: LookCounts, noise: float) -> Window:
    """Bounds for an outcome, and limits of the rows beyond them, which bias averages.

    On each side, the bound has the least squared noise plus squared bound of the bias of a sum over
    the rows. At most rows x (c / reach)^-INDEX lie beyond a distance c from the middle. The reach
    comes from the fine cells that are distinguishable from noise. Narrow cells can lose a long
    tail in noise, so the reach allows for the rows of the outermost rough cell that the fine cells
    do not account for. These rows may lie between the last detected cell and the `top` of the
    detected sizes. If their density does not rise, at most `most` (top - c)^2 / (2 (top - reach))
    is lost beyond c. The tail condition allows rows x reach^3 / (2 c^2), so the reach is raised
    until this is as large for every c.

    `rough` are counts by magnitude, and `fine` counts in equal cells of the range of
    `coarse_range`, whose outer cells include everything beyond. `noise` is the noise sd of a sum
    over the rows per unit of the outcome's range.
    """
    lo, hi = float(fine.ends[0]), float(fine.ends[-1])
    seen = visible_cells(fine.value, fine.noise_sd, 1)
    if not seen.any():  # a core is the fullest quarter of the cells
        quarter = len(seen) // 4
        first = int(np.argmax(sliding_window_view(fine.value, quarter).sum(axis=1)))
        seen[first : first + quarter] = True
    core = Core.of(seen, fine.value, fine.ends)
    assert core is not None  # the cells are wider than points
    zeros = float(rough.value[len(rough.value) // 2])
    if zeros > MOSTLY * float(rough.value.sum()) and lo <= 0 <= hi:
        others, at = fine.value.copy(), int(np.searchsorted(fine.ends, 0.0, side="right")) - 1
        others[min(at, len(others) - 1)] -= zeros
        core = core.stretched(others, fine.noise_sd, fine.ends, ERROR, sparse=True)
    sides, z = [], norm.isf(LUCKY)
    for sign, reach in ((-1, core.below), (1, core.above)):
        # the cells by their distance from the middle on this side, nearest first
        coarse, near = (
            LookCounts(c.value[::sign], c.noise_sd, (sign * (c.ends - core.middle))[::sign])
            for c in (rough, fine)
        )
        last = int(np.searchsorted(coarse.ends, near.ends[-1] * (1 - 1e-9)))
        # sizes into which the range was only widened hold no rows
        while coarse.ends[last - 1] > reach and coarse.value[last - 1] <= z * coarse.noise_sd:
            last -= 1
        top = min(float(near.ends[-1]), float(coarse.ends[last]))
        inside = seen[::sign] & (near.ends[1:] > coarse.ends[last - 1])
        rest = max(coarse.value[last - 1] - near.value[inside].sum(), 0.0)
        most = rest + z * np.hypot(coarse.noise_sd, near.noise_sd * np.sqrt(inside.sum()))
        counts, at = near, int(np.searchsorted(near.ends, reach * (1 + 1e-9))) - 1
        if at == len(near.value):
            counts, at = coarse, int(np.searchsorted(coarse.ends, near.ends[-1] * (1 - 1e-9)))
        ends = np.r_[reach, counts.ends[at + 1 :]]
        beyond, farther = hidden(counts.value[at:], counts.noise_sd, ends, 2), reach
        if reach < top:
            worst = max(reach, 0.5 * top)  # the c with the largest difference of losses
            beyond = max(beyond, most)
            flat = most * worst**2 * (top - worst) ** 2 / (top - reach)
            farther = max(reach, (flat / beyond) ** (1 / INDEX))
        sides.append((farther, beyond))
    reaches, rows = np.array(sides).T
    wider = (rows / noise) ** 2 / (INDEX - 1)
    cuts = reaches * np.maximum(wider, 1.0) ** (1 / (2 * INDEX))
    lost = reaches * (cuts / reaches) ** (1 - INDEX) / (INDEX - 1)
    interval = Interval(core.middle - float(cuts[0]), core.middle + float(cuts[1]))
    return Window(interval, np.stack([rows, rows]), lost)


# -- alerts on released counts, with the chance of a false alarm ---------------------------------

FALSE_ALARMS = 0.01
"""Largest chance that noise alone raises an alert on harmless data."""

SMALL_ARM = 0.1
"""Share of the rows above which an arm is harmless. Many trials treat a tenth of the rows."""


def lacks_arm(arms: Vector, noise_sd: float) -> bool:
    """Whether an arm may be empty and is small, from noisy counts or shares of all arms.

    The noise cannot explain a harmless arm: if all arms have a share of `SMALL_ARM` or more, a
    false alarm has at most the chance `FALSE_ALARMS`. If the noise hides all arms, there is no
    alert.
    """
    margin = float(norm.isf(FALSE_ALARMS)) * noise_sd
    least, rows = float(np.min(arms)), float(np.sum(arms))
    return least <= FEW_SDS * noise_sd and least + margin <= SMALL_ARM * rows


MANY_AT_END, MOST_AT_END, PILED = 0.1, 0.5, 4.0
"""Shares of the rows at a bound that trigger a report.

A bound with a share above `MANY_AT_END` is reported if its cell has over `PILED` times the rows
of the nearest occupied cell, which indicates a pile-up. If no other cell is occupied, a bound with
a share above `MOST_AT_END` is reported. The intervals of averages are then infinite.
"""

RARER, MISSED_BOUNDS = 0.1, 1e-4
"""Share of the rarer of two values that noise may not take for none, and the chance that an alert
on a bound that holds three quarters of the rows or more is missed."""


def clipped_share(
    declared: Domain | None, domain: Domain, counts: Vector, noise_sd: float, public: float | None
) -> tuple[float, float] | None:
    """The bound with too many rows, and its share of them, because bounds or units are wrong.

    There is none for a bound at 0, common for counts and amounts, or for bounds declared as
    natural. For whole numbers the cells between values are empty, so the test uses the nearest
    occupied cell. A column of two values has no other cells and lies at its bounds naturally. If
    the other bound holds `RARER` of the rows, an alert has at most the chance `FALSE_ALARMS`. If
    it holds none, `RARER` of the rows are six noise sds, and the number of rows is public, the
    alert is missed with at most the chance `MISSED_BOUNDS`.
    """
    if not (isinstance(declared, Interval) and isinstance(domain, Interval)) or declared.natural:
        return None
    ends, inside, quantile = counts[[0, -1]], counts[1:-1], float(norm.isf(MISSED_BOUNDS))
    rows, total_sd = present_rows(counts, noise_sd, public), noise_sd * len(counts) ** 0.5
    if rows == public:
        total_sd = 0.0
    above_many, above_most = (
        np.asarray(ends > share * rows + quantile * np.hypot(noise_sd, share * total_sd))
        for share in (MANY_AT_END, MOST_AT_END)
    )
    occupied = inside[inside > float(norm.isf(FALSE_ALARMS / 2 / len(counts))) * noise_sd]
    hidden = inside.sum() <= FEW_SDS * noise_sd * len(counts) ** 0.5 and not len(occupied)
    doubt = float(norm.isf(FALSE_ALARMS)) * np.hypot(noise_sd, RARER * total_sd)
    rarer = min(quantile * noise_sd, RARER * rows - doubt)
    beside = occupied[[0, -1]] if len(occupied) else np.full(2, FEW_SDS * noise_sd)
    piled = above_many & (ends > PILED * beside)
    too_many = above_most & (ends.min() <= rarer) if hidden else piled
    for end, clip, at in ((declared.lo, domain.lo, 0), (declared.hi, domain.hi, 1)):
        if too_many[at] and end == clip != 0:
            return end, min(float(ends[at]) / rows, 1.0)
    return None
