"""Bounds for undeclared numbers, read off noisy histograms."""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from privcausal.errors import BudgetError
from privcausal.inference.outcome import Core
from privcausal.inference.tail import INDEX, hidden, told
from privcausal.spec.schema import Interval, least_width
from privcausal.typing import Vector

COARSE_STANDS_OUT, FINE_STANDS_OUT = 5.0, 4.0
"""A cell counts as occupied at this many noise sd.

One of the coarse cells taken as occupied by luck would widen the range by powers of four, so
hardly any may be: 61 empty cells pass 5 sd once in 60,000 columns. A lucky fine cell only widens
the range within what the coarse one allows.
"""

PAD = 0.25
"""The range found is widened by this share of itself on each side, for tails below the noise."""


MISSED, FAR_MISSED = 0.02, 0.1
"""Shares of the rows beyond what stands out at which the coarse range is made symmetric, and at
which it is also widened by a factor of four."""

BEYOND = 0.05
"""Share of the rows that may lie beyond the fine range before `PAD`, by estimate and noise."""


LUCKY = 0.05
"""Chance that cells beyond are taken to hold values by luck. It widens a range that could be
narrower; values beyond a range that is too narrow are held at its end, which is worse."""

LEFT_OUT = 0.02
"""Share of the rows that may lie beyond either end of a column's effective range."""


def effective_range(counts: Vector, noise_sd: float, declared: Interval, looks: int) -> Interval:
    """Where a column's values are: it is held at the ends of that range.

    The cells that can be told from noise, stretched from their median until no more than
    `LEFT_OUT` of the rows can lie beyond an end, by the condition of `inference.tail`. The declared
    range where that is not at most half of it, or next to a point; and where more rows may
    lie beyond those cells than in them: then they are no middle, whose tails a condition could be
    about.

    Parameters
    ----------
    counts : Vector
        Noisy counts in equal cells of the declared range, shape (K,).
    looks : int
        Columns that are looked at.
    """
    seen = told(counts, noise_sd, looks, LUCKY, LUCKY)
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
        limits.append(reach * max(most / (LEFT_OUT * rows), 1.0) ** (1 / INDEX))
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
        raise BudgetError(
            f"the budget is too small to find bounds for {name!r} among this many rows; declare "
            f"them, bounds={{{name!r}: (lo, hi)}}, or give shares={{'bounds': ...}} more. What "
            "this fit was charged stays spent"
        )
    lo, hi = float(edges[occupied[0]]), float(edges[occupied[-1] + 1])
    inside = float(counts[occupied[0] : occupied[-1] + 1].sum())
    missed = 1.0 - inside / present_rows(counts, noise_sd, public)
    if missed > MISSED:
        hi = max(abs(lo), abs(hi)) * (4.0 if missed > FAR_MISSED else 1.0)
        lo = -hi
    return Interval(lo, hi)


def fine_range(counts: Vector, noise_sd: float, coarse: Interval, rows: float) -> Interval:
    """The cells of the coarse range that hold nearly all rows, widened by `PAD`.

    Cells are merged until they stand out from the noise; where too many rows might lie beyond
    those that do, the coarse range is kept: a wide bound costs noise, a tight one biases.
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
