"""A first look at an outcome: where its values are, and whether they have a scale at all.

Declared bounds may be far wider than the values, so that everything calibrated to them is noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcausal.inference.tail import told
from privcausal.spec.schema import Interval, least_width
from privcausal.typing import Mask, Vector

PARTS, OCTAVES = 32, 10
"""Cells of an outcome: equal parts of its range, and half octaves around zero (or the end nearest
to it) down to a thousandth of the range, where amounts, costs and counts have their mass."""

POINT = 1e-12
"""Cells narrower than this share of the range hold one value."""

MOSTLY = 0.5
"""Share of the rows at single values from which the others tell the scale."""


def heights(bounds: Interval) -> Vector:
    """Borders of cells of Y - lo, ascending from 0 to the range.

    The ends and zero have cells of their own: what many rows share there tells of no scale.
    """
    anchor = float(np.clip(0.0, bounds.lo, bounds.hi) - bounds.lo)
    steps = bounds.width * 2.0 ** (-0.5 * np.arange(2 * OCTAVES + 1))
    edges = np.r_[
        np.linspace(0.0, bounds.width, PARTS + 1), anchor - steps, anchor + steps,
        np.nextafter(anchor, -np.inf), anchor,
    ]  # fmt: skip
    return np.unique(edges[(edges >= 0) & (edges <= bounds.width)])


@dataclass(frozen=True, eq=False)
class Core:
    """Where counts can be told from noise: around their median, how far down and up."""

    middle: float
    below: float
    above: float

    @classmethod
    def of(cls, seen: Mask, counts: Vector, ends: Vector) -> Core | None:
        """None where nothing but single values is seen, for then no scale is known.

        On a side where nothing is seen, the scale is that of the other.

        Parameters
        ----------
        seen : Mask
            Shape (K,).
        counts : Vector
            Noisy counts of the cells between `ends`, shape (K,).
        ends : Vector
            Shape (K + 1,).
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


def look(counts: Vector, noise_sd: float, bounds: Interval) -> Look:
    """Read the counts of |Y - lo| up to each of `edges`, shape (K,)."""
    ends = np.r_[0.0, edges(bounds)]
    seen = told(counts, noise_sd, 1)
    core = Core.of(seen, counts, ends)
    if core is None:
        return Look(bounds, False, 0.0, True)
    low, high = (bounds.lo + core.middle + d for d in (-core.below, core.above))
    single = np.diff(ends) <= POINT * bounds.width
    held = np.where(seen, np.maximum(counts, 0.0), 0.0)
    mostly = held[single].sum() > MOSTLY * held.sum()
    low, high = max(low, bounds.lo), min(high, bounds.hi)
    if high - low <= least_width(bounds.lo, bounds.hi):  # too near to a point to be a range
        return Look(bounds, False, 0.0, True)
    return Look(Interval(low, high), True, max(core.below, core.above), bool(mostly))


def edges(bounds: Interval) -> Vector:
    """Upper borders of the cells, shape (K,); the first holds the lower end, the last the upper."""
    return np.unique(np.r_[heights(bounds), np.nextafter(bounds.width, 0.0)])
