"""Bounds for undeclared numbers, read off noisy histograms."""

from __future__ import annotations

import numpy as np

from privcausal.errors import BudgetError
from privcausal.spec.schema import Interval
from privcausal.typing import Vector

COARSE_STANDS_OUT, FINE_STANDS_OUT = 5.0, 4.0
"""A cell counts as occupied at this many noise sd.

One of the coarse cells taken as occupied by luck would widen the range by powers of four, so
hardly any may be: 61 empty cells pass 5 sd once in 60,000 columns. A lucky fine cell only widens
the range within what the coarse one allows.
"""

PAD = 0.25
"""The range found is widened by this share of itself on each side, for tails below the noise."""


def coarse_range(counts: Vector, noise_sd: float, edges: Vector, name: str) -> Interval:
    """Union of the powers of four whose noisy counts stand out."""
    occupied = np.flatnonzero(counts > COARSE_STANDS_OUT * noise_sd)
    if len(occupied) == 0:
        raise BudgetError(
            f"the budget is too small to find bounds for {name!r} among this many rows; declare "
            f"them, bounds={{{name!r}: (lo, hi)}}, or give shares={{'bounds': ...}} more. The "
            "bounds stage was spent"
        )
    return Interval(float(edges[occupied[0]]), float(edges[occupied[-1] + 1]))


def fine_range(counts: Vector, noise_sd: float, coarse: Interval) -> Interval:
    """Cells that stand out, widened by `PAD`, inside the coarse range."""
    occupied = np.flatnonzero(counts > FINE_STANDS_OUT * noise_sd)
    if len(occupied) == 0:
        return coarse
    step = coarse.width / len(counts)
    lo = coarse.lo + occupied[0] * step
    hi = coarse.lo + (occupied[-1] + 1) * step
    pad = PAD * (hi - lo)
    return Interval(max(coarse.lo, lo - pad), min(coarse.hi, hi + pad))
