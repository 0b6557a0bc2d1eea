"""Where values lie, and what may lie beyond, from noisy counts.

A cut saves noise and costs the bias of what lies beyond it. Noise hides small masses, so that a
guess of that bias is far too small just where outcomes are rare, sparse or skewed. It is bounded
instead, under one condition on the tail:

    beyond x0, the last border up to which counts can be told from noise, the mass beyond x falls
    at least as fast as (x / x0)^-INDEX.

The mass at x0 is an upper confidence bound. So the bound of the bias holds in all but `ERROR` of
fits for every law that meets the condition, and it goes into the interval."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import ndtr
from scipy.stats import norm

from privcausal.errors import BudgetError
from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import likelihoods, signal_share
from privcausal.request.schema import Interval, least_width
from privcausal.typing import Mask, Matrix, Vector

# -- tails ------------------------------------------------------------------------------------

INDEX = 3.0
"""The heaviest tail that the condition allows. A normal interval rests on third moments (Berry
1941, Esseen 1942): where a tail is heavier, it would not hold without privacy either."""

ERROR = 1e-3
"""Chance that a mass exceeds its bound in one fit, or that cells beside others are told from noise
by luck."""

LUCK, CELLS_APART = 1e-6, 8
"""Chance that cells more than APART cells from others are told from noise by luck. One of them
makes an interval hundreds of times too wide, while a real one that is missed is in the bound of
what is hidden."""

RUNS = (1, 2, 4, 8, 16)
"""Neighbouring cells that are looked at together, short runs first: a flat tail shows in long ones
only."""

MERGE_RATIO = float(np.sqrt(2.0))
"""Cells beyond x0 are merged until their borders differ by this factor: finer ones only add
noise."""

LOOKS = 3
"""Histograms that are looked at, and bounds of hidden rows: each arm's and their sum."""


def visible_cells(
    counts: Vector, noise_sd: float, looks: int, error: float = ERROR, luck: float = LUCK
) -> Mask:
    """Cells that can be told from noise, alone or in a run without such cells; shape (K,).

    At the chance `error` within `APART` cells of ones that are told at the chance `luck`, or where
    there are none of these; elsewhere at the chance `luck`.

    Parameters
    ----------
    looks : int
        Histograms of a fit that are looked at like this: they share the chances.
    """
    sure, likely = (_told(counts, noise_sd, looks, chance) for chance in (luck, error))
    if not sure.any():
        return likely
    at = np.flatnonzero(sure | likely)
    near = np.cumsum(np.diff(at, prepend=at[0]) > CELLS_APART)  # which chain a cell belongs to
    found = sure.copy()
    found[at[np.isin(near, near[sure[at]])]] = True
    return found


def _told(counts: Vector, noise_sd: float, looks: int, chance: float) -> Mask:
    size = len(counts)
    tests = sum(max(size - length + 1, 0) for length in RUNS)
    stands_out = float(norm.isf(chance / (looks * tests))) * noise_sd
    found = bytearray(size)  # as an array, small pieces of it would take most of a fit's time
    for length in RUNS:
        if length > size:
            break
        totals = sliding_window_view(counts, length).sum(axis=1)
        for start in np.flatnonzero(totals > max(stands_out * np.sqrt(length), 0.0)).tolist():
            if not any(found[start : start + length]):
                # the last cells of a run that hold less than noise does tell nothing themselves
                held = int(np.flatnonzero(counts[start : start + length] > noise_sd)[-1]) + 1
                found[start : start + held] = b"\1" * held
    return np.frombuffer(found, bool).copy()


def hidden(
    counts: Vector, noise_sd: float, edges: Vector, looks: int, *, anywhere: bool = False
) -> float:
    """Upper confidence bound of the rows beyond x0 = edges[0]; `counts` are those between `edges`.

    Let p_k be the mass of (x / x0)^-INDEX in cell k, the last of which holds all that lies beyond.
    A tail that falls at least as fast has its mass in nearer cells. So for weights w_k that do not
    rise, and a mass A beyond x0, E[sum w c] >= A sum w p.

    Parameters
    ----------
    counts : Vector
        Shape (K,).
    edges : Vector
        Distances, ascending from x0 > 0, shape (K + 1,).
    looks : int
        Bounds like this one in a fit: they share `ERROR`.
    anywhere : bool
        Whether the mass may lie anywhere beyond x0, whatever the condition says.
    """
    if not len(counts):
        return 0.0
    if anywhere:
        most = float(norm.isf(ERROR / looks)) * noise_sd * float(np.sqrt(len(counts)))
        return max(float(counts.sum()) + most, 0.0)
    first = [0]
    for k in range(1, len(edges) - 1):
        if edges[k] >= MERGE_RATIO * (1 - 1e-9) * edges[first[-1]]:
            first.append(k)  # merged cells begin there
    mass = -np.diff(np.r_[(edges[first] / edges[0]) ** -INDEX, 0.0])
    cells = np.diff(np.r_[first, len(counts)])
    weight = np.minimum.accumulate(mass / cells)
    noise = float(norm.isf(ERROR / looks)) * noise_sd * float(np.sqrt(weight**2 @ cells))
    seen = float(weight @ np.add.reduceat(counts, first))
    return max((seen + noise) / float(weight @ mass), 0.0)


def hidden_beyond(
    start: float, counts: Vector, noise_sd: float, edges: Vector, looks: int, *, anywhere: bool
) -> float:
    """The same of all counts of cells up to `edges`, shapes (K,): those of cells after `start`."""
    first = int(np.searchsorted(edges, start, side="right"))
    ends = np.r_[start, edges[first:]]
    return hidden(counts[first:], noise_sd, ends, looks, anywhere=anywhere)


@dataclass(frozen=True)
class Tail:
    """Rows beyond `start` under the tail condition, and none beyond `end`.

    With `anywhere` there is no condition: all of them may lie at the end.
    """

    start: float
    end: float
    anywhere: bool = False

    def excess(self, cut: float | Vector) -> Vector:
        """Largest mean of (x - cut)+ over the rows, for cuts from `start` on.

        It is the integral of (x / start)^-INDEX from the cut to the end.
        """
        if self.end <= self.start:
            return np.zeros_like(cut, dtype=float)
        held = np.clip(cut, self.start, self.end)
        if self.anywhere:
            return np.asarray(self.end - held)
        last = (self.end / self.start) ** (1 - INDEX)
        return np.asarray(self.start * ((held / self.start) ** (1 - INDEX) - last) / (INDEX - 1))


CUTS = 40
"""Cuts that are tried: a geometric grid."""


def cuts_between(start: float, end: float) -> Vector:
    """From `start` to `end`; shape (CUTS,), or (1,) where nothing lies between."""
    return np.geomspace(start, end, CUTS) if end > start else np.array([start])


# -- outcomes ---------------------------------------------------------------------------------

PARTS, OCTAVES = 32, 10
"""Cells of an outcome: equal parts of its range, and half octaves around zero (or the end nearest
to it) down to a thousandth of the range, where amounts, costs and counts have their mass."""

POINT = 1e-12
"""Cells narrower than this share of the range hold one value."""

MOSTLY = 0.5
"""Share of the rows at single values from which the others tell the scale."""


def heights(bounds: Interval) -> Vector:
    """Borders of cells of Y - lo, ascending from 0 to the range.

    The ends and zero have cells of their own: many rows at one value tell of no scale.
    """
    anchor = float(np.clip(0.0, bounds.lo, bounds.hi) - bounds.lo)
    steps = bounds.width * 2.0 ** (-0.5 * np.arange(2 * OCTAVES + 1))
    ends = np.r_[
        np.linspace(0.0, bounds.width, PARTS + 1), anchor - steps, anchor + steps,
        np.nextafter(anchor, -np.inf), anchor,
    ]  # fmt: skip
    return np.unique(ends[(ends >= 0) & (ends <= bounds.width)])


@dataclass(frozen=True, eq=False)
class Core:
    """Where counts can be told from noise: around their median, how far down and up."""

    middle: float
    below: float
    above: float

    @classmethod
    def of(cls, seen: Mask, counts: Vector, ends: Vector) -> Core | None:
        """None where only single values are seen, for then no scale is known.

        On a side where nothing is seen, the scale is that of the other. `counts` are the noisy ones
        of the cells between `ends`, shapes (K,) and (K + 1,); `seen` says which are told from
        noise.
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
        """Stretched by a power of `STEP`, until at most as many rows can hide beyond as lie within.

        Where more may hide, it is no middle that has tails: the condition would not be about them.
        Rows at single values are no part of a middle. Neither is the fullest cell of a `sparse`
        outcome, most of which is at single values: of the others many may be at one more, the price
        that most paid. `error` is the chance that more rows hide.
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
        return replace(self, below=below, above=above)


@dataclass(frozen=True, eq=False)
class Look:
    """What a noisy histogram says of all outcomes.

    Attributes
    ----------
    window : Interval
        Where outcomes can be seen; their bounds where none can.
    scaled : bool
        Whether more than single values is seen.
    reach : float
        Distance from the middle that is seen; 0 where no scale is.
    mostly : bool
        Whether most rows are at single values.
    """

    window: Interval
    scaled: bool
    reach: float
    mostly: bool


def read_look(counts: Vector, noise_sd: float, bounds: Interval) -> Look:
    """Read the counts of Y - lo up to each of `outcome_edges`, shape (K,)."""
    ends = np.r_[0.0, outcome_edges(bounds)]
    seen = visible_cells(counts, noise_sd, 1)
    core = Core.of(seen, counts, ends)
    if core is None:
        return Look(bounds, False, 0.0, True)
    held = np.where(seen, np.maximum(counts, 0.0), 0.0)
    mostly = sparse(held, ends)
    low, high = (bounds.lo + core.middle + d for d in (-core.below, core.above))
    if mostly:
        core = core.stretched(counts, noise_sd, ends, ERROR, sparse=True)
    low, high = max(low, bounds.lo), min(high, bounds.hi)
    if high - low <= least_width(bounds.lo, bounds.hi):  # too near to a point to be a range
        return Look(bounds, False, 0.0, True)
    return Look(Interval(low, high), True, max(core.below, core.above), mostly)


def sparse(held: Vector, ends: Vector) -> bool:
    """Whether most rows are at single values, by the counts that are seen."""
    single = np.diff(ends) <= POINT * float(ends[-1] - ends[0])
    return bool(held[single].sum() > MOSTLY * held.sum())


def outcome_edges(bounds: Interval) -> Vector:
    """Upper borders of the cells, shape (K,); the first holds the lower end, the last the upper."""
    return np.unique(np.r_[heights(bounds), np.nextafter(bounds.width, 0.0)])


@dataclass(frozen=True, eq=False)
class Window:
    """Where the outcomes of both arms are cut, and what may lie beyond.

    `rows` are the most that lie beyond its ends by arm and end (low, high), shape (2, 2), and
    `excess` the most that one of them lies beyond an end on average, shape (2,).
    """

    interval: Interval
    rows: Matrix = field(default_factory=lambda: np.zeros((2, 2)))
    excess: Vector = field(default_factory=lambda: np.zeros(2))

    @property
    def lost(self) -> float:
        """The most that the cut takes from the sum of the outcomes of both arms."""
        return float(self.rows.max(axis=0) @ self.excess)

    def kept(self, interval: Interval) -> Window:
        """With other ends: outcomes lose more by what an end moves inward.

        So do at most the same rows, where the outcomes are whole numbers and none lies between the
        old end and the new one. It holds as it is where ends move outward.
        """
        own = self.interval
        inward = np.maximum([interval.lo - own.lo, own.hi - interval.hi], 0.0)
        return Window(interval, self.rows, self.excess + inward)

    def bias(self, count: Matrix) -> Vector:
        """The most that the cut moves the difference of arms with `count` rows (2, m)."""
        share = np.minimum(self.rows[:, :, None] / np.maximum(count, 1.0)[:, None, :], 1.0)
        return pulled(share * self.excess[:, None])


def pulled(lost: Vector) -> Vector:
    """The most that a difference moves by what its arms lose at each end, (2, 2, m) to (m,).

    High rows raise the treated mean and low ones lower it; in the control arm it is the other way
    round. What pulls up and what pulls down cannot both count in full.
    """
    return np.asarray(np.maximum(lost[1, 1] + lost[0, 0], lost[1, 0] + lost[0, 1]))


# -- windows: of a trial, whose interval holds the bias; and of a nuisance, by an estimate of it --

BOUNDS = 6
"""Bounds of hidden rows: of each histogram on two sides."""


def trial_window(
    counts: Matrix, noise_sd: float, bounds: Interval, noise: float, *, anywhere: bool = False
) -> Window:
    """One interval for both arms, of least squared noise plus squared bound of the bias.

    It is all of the bounds where only the ends and zero can be told from noise (an outcome of two
    values, rare events), for then no scale is known. It holds at least what `Core.stretched` does:
    with few rows, what is told from noise may be one mode of several, or the middle of a flat one.

    Parameters
    ----------
    counts : Matrix
        Noisy counts by arm in the cells between `heights`, and at both ends, shape (2, K).
    noise : float
        Noise sd of an arm's sum per unit of half the interval's width.
    anywhere : bool
        Whether hidden outcomes may lie anywhere in the bounds (no condition on their tail).
    """
    if bounds.width * 2.0**-OCTAVES <= least_width(bounds.lo, bounds.hi):
        return Window(bounds)  # no part of it would be an interval
    ends = np.r_[0.0, heights(bounds), bounds.width]  # cell k lies between ends[k] and ends[k + 1]
    pooled = counts.sum(axis=0)
    looked = [(counts[0], noise_sd), (counts[1], noise_sd), (pooled, np.sqrt(2.0) * noise_sd)]
    seen = np.logical_or.reduce([visible_cells(c, s, LOOKS) for c, s in looked])
    core = Core.of(seen, pooled, ends)
    if core is None:
        return Window(bounds)
    core = core.stretched(pooled, looked[2][1], ends, ERROR)
    starts, rows = (core.below, core.above), np.zeros((2, 2))
    for side, sign in enumerate((-1, 1)):
        distance = (sign * (ends - core.middle))[::sign][1:]
        least = [
            hidden_beyond(starts[side], c[::sign], s, distance, BOUNDS, anywhere=anywhere)
            for c, s in looked
        ]
        rows[:, side] = np.minimum(least[:2], least[2])
    middle = bounds.lo + core.middle
    lasts = core.middle, bounds.width - core.middle
    cuts = [cuts_between(s, e) for s, e in zip(starts, lasts, strict=True)]
    lost = [Tail(s, e, anywhere).excess(c) for s, e, c in zip(starts, lasts, cuts, strict=True)]
    low, high = (np.ravel(c) for c in np.meshgrid(*cuts, indexing="ij"))
    excess = np.stack([np.ravel(c) for c in np.meshgrid(*lost, indexing="ij")])
    arms = np.array([max(float(arm.sum()), noise_sd, 1.0) for arm in counts[:, seen]])
    spread = noise * 0.5 * (low + high) * float(np.sqrt((1 / arms**2).sum()))
    bias = pulled(np.minimum(rows / arms[:, None], 1.0)[:, :, None] * excess)
    best = int(np.argmin(spread**2 + bias**2))
    interval = Interval(max(middle - low[best], bounds.lo), min(middle + high[best], bounds.hi))
    return Window(interval, rows, excess[:, best])


LOOK_BINS = 32
"""Equal bins of the declared range, between whose borders a window's ends are interpolated."""

CENTRES, SPREADS = 63, 25
"""Means and standard deviations of normal laws that are tried: finer than noise can tell."""

STANDS_OUT = 2.5
"""A bin counts beyond the normal laws at this many noise sds: 18 % of histograms have such a bin by
luck, which widens the window."""

TAILS = (0.1, 0.08, 0.06, 0.04, 0.03, 0.02, 0.01, 0.005, 0.002, 0.001)
"""Shares of the rows that may be cut on each side: a grid."""


def window_borders(bounds: Interval) -> Vector:
    """Upper borders of the bins above the lower end, up to the range; shape (BINS,)."""
    return np.asarray(bounds.width * np.arange(1, LOOK_BINS + 1) / LOOK_BINS)


def outcome_window(
    counts: Vector, noise_sd: float, lo: float, hi: float, count: float, noise_per_width: float
) -> tuple[float, float]:
    """Interval to which outcomes are cut where their mean given covariates is learned.

    Noise of the moments grows with its width; cutting shrinks slopes by the share of rows that are
    cut (Stein's lemma, for a normal outcome). Of intervals that cut the same share on both sides,
    and the declared range, the one of least squared error is taken.

    Parameters
    ----------
    counts : Vector
        Noisy counts of the bins, shape (BINS,).
    lo, hi : float
        The outcome's declared bounds.
    count : float
        (Noisy) number of rows.
    noise_per_width : float
        Noise sd of the fitted function per unit of half the interval's width.
    """
    if noise_sd == 0:
        return lo, hi
    share = _shares(counts, noise_sd, count)
    upper = np.cumsum(share)
    grid = np.arange(LOOK_BINS + 1) / LOOK_BINS
    middle = grid[:-1] + 0.5 / LOOK_BINS
    variance = float(share @ middle**2 - (share @ middle) ** 2)

    def loss(width: float, cut: float) -> float:
        return (noise_per_width * 0.5 * width) ** 2 + PRIORS.window_explained * variance * cut**2

    best, found = loss(1.0, 0.0), (0.0, 1.0)
    for tail in TAILS:
        low, high = np.interp([tail, 1 - tail], np.r_[0.0, upper], grid)
        if high > low and loss(high - low, 2 * tail) < best:
            best, found = loss(high - low, 2 * tail), (float(low), float(high))
    return lo + (hi - lo) * found[0], lo + (hi - lo) * found[1]


def _shares(counts: Vector, noise_sd: float, count: float) -> Vector:
    """Shares of the bins: normal laws averaged by likelihood, and what is seen beyond them."""
    grid = np.arange(LOOK_BINS + 1) / LOOK_BINS
    centres = np.linspace(0.0, 1.0, CENTRES)[:, None, None]
    spreads = np.geomspace(0.5 / LOOK_BINS, 0.5, SPREADS)[None, :, None]
    below = ndtr((grid - centres) / spreads)
    below[..., 0], below[..., -1] = 0.0, 1.0
    laws = count * np.diff(below, axis=-1).reshape(-1, LOOK_BINS)
    chance = likelihoods(counts, noise_sd, laws)
    model = chance @ laws / chance.sum()
    keep = signal_share(counts - model, noise_sd**2)
    seen = np.where(counts > STANDS_OUT * noise_sd, counts, 0.0)
    mixed = (1 - keep) * model + keep * seen
    return np.asarray(mixed / mixed.sum())


# -- bounds that are bought, and loose ones ---------------------------------------------------

COARSE_STANDS_OUT, FINE_STANDS_OUT = 5.0, 4.0
"""A cell counts as occupied at this many noise sds. A coarse cell occupied by luck widens the range
by powers of four, so hardly any may be: 61 empty cells pass 5 sd once in 60,000 columns. A fine one
widens it within the coarse range only."""

INVENTED = 1e-5
"""Chance that sizes of an outcome are told from noise by luck, which makes its bounds far too
wide."""

PAD = 0.25
"""The range is widened by this share of itself on each side, for tails below the noise."""


MISSED, FAR_MISSED = 0.02, 0.1
"""Shares of the rows beyond what stands out from which the coarse range is made symmetric, and from
which it is also widened by a factor of four."""

BEYOND = 0.05
"""Share of the rows that may lie beyond the fine range before `PAD`, by estimate and noise."""


LUCKY = 0.05
"""Chance that cells beyond are taken to hold values by luck. It widens a range that could be
narrower; values beyond a range that is too narrow are held at its end, which is worse."""

SHARE_BEYOND = 0.02
"""Share of the rows that may lie beyond either end of a column's effective range, and are held
there. Building half."""


def effective_range(counts: Vector, noise_sd: float, declared: Interval, looks: int) -> Interval:
    """Where a column's values are: it is held at the ends of that range.

    The cells that can be told from noise, stretched from their median until at most `LEFT_OUT` of
    the rows can lie beyond an end, by the tail condition. The declared range where that is not at
    most half of it, or next to a point; and where more rows may lie beyond those cells than in
    them, which are then no middle whose tails a condition could be about.

    Parameters
    ----------
    counts : Vector
        Noisy counts in equal cells of the declared range, shape (K,).
    looks : int
        Columns that are looked at.
    """
    seen = visible_cells(counts, noise_sd, looks, LUCKY, LUCKY)
    ends = np.linspace(declared.lo, declared.hi, len(counts) + 1)
    core = Core.of(seen, counts, ends)
    if core is None:
        return declared
    at = np.flatnonzero(seen)
    rows = max(float(counts[at[0] : at[-1] + 1].sum()), noise_sd, 1.0)
    outside = counts[: at[0]][::-1], counts[at[-1] + 1 :]
    step, limits = declared.width / len(counts), []
    elsewhere = np.concatenate(outside)
    if elsewhere.sum() + norm.isf(LUCKY) * noise_sd * np.sqrt(len(elsewhere)) > rows:
        return declared
    for beyond, reach in zip(outside, (core.below, core.above), strict=True):
        distance = reach + step * np.arange(len(beyond) + 1.0)
        most = hidden(beyond, noise_sd, distance, 2 * looks)
        limits.append(reach * max(most / (SHARE_BEYOND * rows), 1.0) ** (1 / INDEX))
    low = float(max(declared.lo, core.middle - limits[0]))
    high = float(min(declared.hi, core.middle + limits[1]))
    # less than halved, a range saves less noise than what is held at its ends may cost
    worth = least_width(declared.lo, declared.hi) < high - low <= declared.width / 2
    return Interval(low, high) if worth else declared


def present_rows(counts: Vector, noise_sd: float, public: float | None) -> float:
    """Rows with a value: the public number, unless the noisy count says that many lack one."""
    seen, noise = float(counts.sum()), noise_sd * np.sqrt(len(counts))
    if public is None or public - seen > 3 * noise:
        return max(seen, 1.0)
    return float(public)


def coarse_range(
    counts: Vector, noise_sd: float, edges: Vector, name: str, public: float | None
) -> Interval:
    """Powers of four whose noisy counts stand out, widened where rows are missing from them."""
    occupied = np.flatnonzero(counts > COARSE_STANDS_OUT * noise_sd)
    if len(occupied) == 0:
        raise _not_found(name)
    lo, hi = float(edges[occupied[0]]), float(edges[occupied[-1] + 1])
    inside = float(counts[occupied[0] : occupied[-1] + 1].sum())
    missed = 1.0 - inside / present_rows(counts, noise_sd, public)
    if missed > MISSED:
        hi = max(abs(lo), abs(hi)) * (4.0 if missed > FAR_MISSED else 1.0)
        lo = -hi
    return Interval(lo, hi)


def fine_range(counts: Vector, noise_sd: float, coarse: Interval, rows: float) -> Interval:
    """The cells of the coarse range that hold nearly all rows, widened by `PAD`.

    Cells are merged until they stand out from the noise. Where too many rows might lie beyond, the
    coarse range is kept: a wide bound costs noise, a tight one biases.
    """
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


ZERO_CELL = 2.0**-20
"""Ends this near to zero stand for it: the cell of zero in a look by magnitude is as wide."""


def rounded(found: Interval, whole: bool) -> Interval:
    """The interval with short numbers for ends, at most 2 % wider.

    Of a column of whole numbers, the least and the largest that lie within: those inside are not
    cut, and for those beyond see `Window.kept`. An end of `ZERO` is zero where the interval is far
    wider: that moves a value by at most 2^-20, which no allowance counts.
    """
    near = ZERO_CELL if found.width >= 1.0 else 0.0
    lo, hi = (0.0 if abs(end) <= near else end for end in (found.lo, found.hi))
    if whole and least_width(lo, hi) < math.floor(hi) - math.ceil(lo):
        return Interval(math.ceil(lo), math.floor(hi))
    room = (hi - lo) / 100
    power = 10.0 ** math.floor(math.log10(room))
    step = next(m * power for m in (5, 2, 1) if m * power <= room * (1 + 1e-9))
    digits = 1 - math.floor(math.log10(step))
    ends = round(step * math.floor(lo / step), digits), round(step * math.ceil(hi / step), digits)
    return Interval(min(ends[0], lo), max(ends[1], hi))


def _not_found(name: str) -> BudgetError:
    return BudgetError(
        f"the budget is too small to find bounds for {name!r} among this many rows; declare "
        f"them, bounds={{{name!r}: (lo, hi)}}, or give shares={{'bounds': ...}} more. What "
        "this fit was charged stays spent"
    )


class LookCounts(NamedTuple):
    """Noisy counts of the cells between `ends`, shapes (K,) and (K + 1,)."""

    value: Vector
    noise_sd: float
    ends: Vector


def outcome_scale(rough: LookCounts, name: str) -> Interval:
    """Powers of four that hold what can be told from noise of an outcome.

    Unlike a covariate, an outcome of which only zeros can be told (rare events, sparse amounts) has
    no range: the others may lie anywhere, and its mean is made of them alone.
    """
    zero = len(rough.value) // 2
    seen = np.zeros(len(rough.value), bool)
    others = np.arange(len(seen)) != zero
    seen[others] = visible_cells(rough.value[others], rough.noise_sd, 1, INVENTED)
    if not seen.any():
        raise _not_found(name)
    seen[zero] = rough.value[zero] > COARSE_STANDS_OUT * rough.noise_sd
    at = np.flatnonzero(seen)
    return Interval(float(rough.ends[at[0]]), float(rough.ends[at[-1] + 1]))


def outcome_range(rough: LookCounts, fine: LookCounts, noise: float) -> Window:
    """Bounds for an outcome, and what may lie beyond them: it biases averages.

    On each side, least squared noise plus squared bound of the bias of a sum over the rows, where
    at most rows (reach / c)^-INDEX lie beyond a distance c from the middle. The reach is that of
    the fine cells that can be told from noise; or, where these do not account for what the
    outermost rough cell holds, that cell's border, as narrow cells lose a long tail in noise.

    Parameters
    ----------
    rough, fine : Counts
        By magnitude; and in equal cells of the range of `outcome_scale`, the outer ones with all
        that lies beyond.
    noise : float
        Noise sd of a sum over the rows per unit of the outcome's range.
    """
    lo, hi = float(fine.ends[0]), float(fine.ends[-1])
    seen = visible_cells(fine.value, fine.noise_sd, 1)
    middle = 0.5 * (lo + hi)
    core = Core.of(seen, fine.value, fine.ends) or Core(middle, middle - lo, hi - middle)
    zeros = float(rough.value[len(rough.value) // 2])
    if zeros > MOSTLY * float(rough.value.sum()) and lo <= 0 <= hi:
        others, at = fine.value.copy(), int(np.searchsorted(fine.ends, 0.0, side="right")) - 1
        others[min(at, len(others) - 1)] -= zeros
        core = core.stretched(others, fine.noise_sd, fine.ends, ERROR, sparse=True)
    found = []
    for sign, reach in ((-1, core.below), (1, core.above)):
        # the cells by their distance from the middle on this side, nearest first
        one, other = (
            LookCounts(c.value[::sign], c.noise_sd, (sign * (c.ends - core.middle))[::sign])
            for c in (rough, fine)
        )
        found.append(_side(one, other, seen[::sign], reach))
    reaches, rows = np.array(found).T
    wider = (rows / noise) ** 2 / (INDEX - 1)
    cuts = reaches * np.maximum(wider, 1.0) ** (1 / (2 * INDEX))
    lost = [Tail(s, np.inf).excess(c) for s, c in zip(reaches.tolist(), cuts, strict=True)]
    interval = Interval(core.middle - float(cuts[0]), core.middle + float(cuts[1]))
    return Window(interval, np.stack([rows, rows]), np.array(lost))


def _side(rough: LookCounts, fine: LookCounts, seen: Mask, reach: float) -> tuple[float, float]:
    """How far values are seen on one side, and the most rows beyond."""
    last = int(np.searchsorted(rough.ends, fine.ends[-1] * (1 - 1e-9)))
    inside = seen & (fine.ends[1:] > rough.ends[last - 1])
    rest = rough.value[last - 1] - fine.value[inside].sum()
    noise = np.hypot(rough.noise_sd, fine.noise_sd * np.sqrt(inside.sum()))
    if rest > norm.isf(LUCKY) * noise:
        reach = float(fine.ends[-1])
    counts, at = fine, int(np.searchsorted(fine.ends, reach * (1 + 1e-9))) - 1
    if at == len(fine.value):
        counts, at = rough, last
    ends = np.r_[reach, counts.ends[at + 1 :]]
    return reach, hidden(counts.value[at:], counts.noise_sd, ends, 2)
