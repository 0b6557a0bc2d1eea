"""What a released histogram says is amiss with a declared domain, from its numbers only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privcausal.inference.average import FEW
from privcausal.learners.estimate import Alerts
from privcausal.request.schema import Domain, Interval, Levels
from privcausal.typing import Vector

SEEN = 6.0
"""Noise standard deviations by which a label of usual frequency must stand out."""

ABSENT = "Hardly any row has the label {labels} of {name}: is it spelt as in the data?"
UNDECLARED = (
    "About {share:.0%} of the rows have none of the declared labels of {name}: they are in no "
    "level, and no group of it. Declare the rest, or write pc.Levels([...], other=True)."
)
ALL_ABSENT = "Hardly any row has one of the declared labels of {name}: are they right?"

CLIPPED = (
    "About {share:.0%} of the rows have {name} at {end:g}, an end of its bounds, or near it. What "
    "lies beyond is cut, and no interval allows for that: are the bounds wide enough, and in its "
    "units?"
)

MANY, MOST, PILED = 0.1, 0.5, 4.0
"""Shares of the rows at an end that are told of: the first if they are so many times those in the
cell beside it, as where values pile up, the second in any case."""

MOST_NAMES, LONGEST_NAME = 3, 24
"""Of a list of names in a sentence: a warning has three lines."""


def listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name[:LONGEST_NAME]) for name in names[:MOST_NAMES])
    return shown + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")


def domain_alerts(
    name: str, declared: Domain | None, own: Domain, counts: Vector, noise_sd: float
) -> Alerts:
    """What is serious of the column by its noisy counts, in the cells of its domain or labels.

    Parameters
    ----------
    declared, own : Domain
        As declared (nothing is said of bought ones), and as used: a range may have been narrowed.
    """
    if isinstance(declared, Levels) and isinstance(own, Levels):
        return _absent(name, own, counts, noise_sd)
    if isinstance(declared, Interval) and isinstance(own, Interval):
        return _clipped(name, declared, own, counts, noise_sd)
    return ()


def _absent(name: str, own: Levels, counts: Vector, noise_sd: float) -> Alerts:
    """Labels that nobody seems to have, where usual ones would be seen; and others' share."""
    labels = own.values  # nobody need have the level "other"
    if counts.sum() < SEEN * len(labels) * noise_sd:
        return ()
    seen = counts[: len(labels)] > FEW * noise_sd
    absent = [label for label, there in zip(labels, seen, strict=True) if not there]
    said = ABSENT if seen.any() else ALL_ABSENT
    told = [said.format(name=listed([name]), labels=listed(absent))] if absent else []
    rows, others = float(counts.sum()), float(counts[-1])  # the last cell is of any other label
    if seen.any() and not own.other and others > MANY * rows + FEW * noise_sd:
        told.append(UNDECLARED.format(share=others / rows, name=listed([name])))
    return (("levels", " ".join(told)),) if told else ()


def _clipped(
    name: str, declared: Interval, own: Interval, counts: Vector, noise_sd: float
) -> Alerts:
    """Bounds at which rows pile up, as where these are narrow or the column has other units.

    Not an end at 0, where many a count or an amount is; nor the ends of a column of two values,
    which have codes that differ by one.
    """
    spread, ends = FEW * noise_sd * float(np.sqrt(len(counts))), counts[[0, -1]]
    if declared.width == 1 and counts[1:-1].sum() <= spread:
        return ()
    rows = max(float(counts.sum()), 1.0)
    piled = ends > PILED * np.maximum(counts[[1, -2]], FEW * noise_sd)
    told = (ends > MOST * rows + spread) | (piled & (ends > MANY * rows + spread))
    for end, kept, at in ((declared.lo, own.lo, 0), (declared.hi, own.hi, 1)):
        if told[at] and end == kept != 0:
            share = min(float(ends[at]) / rows, 1.0)
            return (("clip", CLIPPED.format(share=share, name=listed([name]), end=end)),)
    return ()
