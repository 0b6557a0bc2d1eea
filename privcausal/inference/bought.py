"""Bounds of columns without declared bounds, from noisy counts.

A histogram by powers of four finds a column's size, and a histogram of equal cells its range. Few
rows do not stand out of the noise, so a range is widened if many rows may lie beyond it.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import norm

from privcausal.errors import BudgetError
from privcausal.inference.ranges import (
    ERROR,
    INDEX,
    LUCKY,
    MOSTLY,
    Core,
    LookCounts,
    Window,
    hidden,
    visible_cells,
)
from privcausal.request.schema import Interval, least_width
from privcausal.typing import Mask, Vector

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
        raise BudgetError(
            f"Could not estimate bounds for {name!r}: the budget is too small for this number of "
            f"rows. Declare them, bounds={{{name!r}: (lo, hi)}}, or increase "
            "shares={'bounds': ...}."
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


def rows_to_find(noise_sd: float) -> float:
    """Rows with which the size of a usual column is detected, positive and negative together."""
    return (COARSE_STANDS_OUT + ROOM) * float(np.sqrt(2.0)) * noise_sd / USUAL_SHARE


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
    the coarse range is kept, because a wide bound costs noise but a narrow bound biases.
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


def rounded(found: Interval, whole: bool) -> Interval:
    """The interval with short numbers for ends, at most 2% wider.

    For a column of whole numbers, the ends are the least and the largest whole number within the
    interval. Values inside are then not clipped; for values beyond see `Window.kept`. An end within
    `ZERO_CELL` of zero becomes zero if the interval is far wider. This changes a value by at most
    2^-20, which the allowances ignore.
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


def outcome_range(rough: LookCounts, fine: LookCounts, noise: float) -> Window:
    """Bounds for an outcome, and limits of the rows beyond them, which bias averages.

    On each side, the bound has the least squared noise plus squared bound of the bias of a sum over
    the rows. At most rows x (c / reach)^-INDEX lie beyond a distance c from the middle. The reach
    usually comes from the fine cells that are distinguishable from noise. Narrow cells can lose a
    long tail in noise. If the fine cells do not account for the count of the outermost rough cell,
    the reach is this cell's border.

    Parameters
    ----------
    rough, fine : LookCounts
        Counts by magnitude; and counts in equal cells of the range of `coarse_range`, whose outer
        cells include everything beyond.
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
    lost = reaches * (cuts / reaches) ** (1 - INDEX) / (INDEX - 1)
    interval = Interval(core.middle - float(cuts[0]), core.middle + float(cuts[1]))
    return Window(interval, np.stack([rows, rows]), lost)


def _side(rough: LookCounts, fine: LookCounts, seen: Mask, reach: float) -> tuple[float, float]:
    """Largest detected distance on one side, and the maximum number of rows beyond."""
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
