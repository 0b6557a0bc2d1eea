"""What a released histogram says is amiss with a declared domain, from its numbers only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privcausal.inference.average import FEW
from privcausal.learners.estimate import Alerts
from privcausal.request.schema import Domain, Interval, Levels
from privcausal.typing import Vector

PANEL_ARM = (
    "Treated or untreated units are too few to be told from none. The treatment must be 0 before: "
    "of a column that is 1 in both periods write the product, df['T'] = df['treated'] * df['post']."
)
"""What is said of differences in differences in the place of a fit's words for an arm."""

SEEN = 6.0
"""Noise standard deviations by which a label of usual frequency must stand out."""

RARE = 0.02
"""A label is named as absent only if noise leaves it no more than this share of the rows."""

ABSENT = (
    "Fewer than {share:.0%} of the rows, possibly none, have the label {labels} of {name} (noisy "
    "counts). Check its spelling."
)
UNDECLARED = (
    "About {share:.0%} of the rows have none of the declared labels of {name}: they are in no "
    "level, and no group of it. Declare the rest, or write pc.Levels([...], other=True)."
)
ALL_ABSENT = (
    "Almost no rows have one of the declared labels of {name} (noisy counts). Check their spelling."
)

NO_LEVEL = (
    "No level of {name} is frequent enough to be released, so it is not adjusted for. Declare its "
    "labels: bounds={{{name}: ['a', 'b']}}."
)

CLIPPED = (
    "About {share:.0%} of the rows have {name} at {end:g}, an end of its bounds, or near it. "
    "Values beyond are clipped, and no interval allows for that. Check the bounds and their unit. "
    "If no value can lie beyond, declare pc.Interval({lo:g}, {hi:g}, natural=True)."
)

ALLOCATION = (
    "About {share:.0%} of the rows (a noisy count: {count:.0f}, standard error {spread:.0f}) have "
    "{name} = {arm}, but propensity= says {declared:.0%}. If it is wrong, so are the estimate and "
    "its interval. Correct it, or leave it out to have it estimated."
)

MANY, MOST, ALL, PILED = 0.1, 0.5, 0.98, 4.0
"""Shares of the rows at an end that are reported: `MANY` if they are `PILED` times those in the
nearest cell that holds any, as where values pile up; in any case `ALL`, as far as noise lets it be
told, but at least `MOST`."""

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
    own_counts, margin = counts[: len(labels)], FEW * noise_sd
    rows, others = float(counts.sum()), float(counts[-1])  # the last cell is of any other label
    seen = own_counts > margin
    lacking = ~seen & (own_counts + margin < RARE * rows)
    absent = [label for label, none in zip(labels, lacking, strict=True) if none]
    said = ABSENT if seen.any() else ALL_ABSENT
    found = said.format(name=listed([name]), labels=listed(absent), share=RARE)
    told = [found] if absent or not seen.any() else []
    if seen.any() and not own.other and others > MANY * rows + FEW * noise_sd:
        told.append(UNDECLARED.format(share=others / rows, name=listed([name])))
    return (("levels", " ".join(told)),) if told else ()


def _clipped(
    name: str, declared: Interval, own: Interval, counts: Vector, noise_sd: float
) -> Alerts:
    """Bounds at which rows pile up, as where these are narrow or the column has other units.

    Not an end at 0, where many a count or an amount is, nor one that is declared as natural. Of
    whole numbers the cells between are empty: the nearest that holds any counts. A column of two
    values has no other cells, and is at an end by nature unless all of it is at one.
    """
    if declared.natural:
        return ()
    margin, ends = FEW * noise_sd, counts[[0, -1]]
    spread, rows = margin * float(np.sqrt(len(counts))), max(float(counts.sum()), 1.0)
    inside = counts[1:-1]
    occupied = inside[inside > margin]
    two_valued = inside.sum() <= spread and not len(occupied)
    beside = occupied[[0, -1]] if len(occupied) else np.full(2, margin)
    piled = (ends > PILED * beside) & (ends > MANY * rows + spread) & (not two_valued)
    told = piled | ((ends > MOST * rows + spread) & (ends + margin > ALL * rows))
    for end, kept, at in ((declared.lo, own.lo, 0), (declared.hi, own.hi, 1)):
        if told[at] and end == kept != 0:
            share = min(float(ends[at]) / rows, 1.0)
            text = CLIPPED.format(
                share=share, name=listed([name]), end=end, lo=declared.lo, hi=declared.hi
            )
            return (("clip", text),)
    return ()


def allocation_alert(
    name: str, arm: str, counts: Vector, noise_sd: float, declared: float
) -> Alerts:
    """What is serious of a known propensity, of mean `declared`, by noisy counts of both arms."""
    rows = max(float(counts.sum()), 1.0)
    chance = FEW * float(np.sqrt(rows * declared * (1 - declared)))
    spread = FEW * noise_sd
    if abs(counts[1] - declared * rows) <= spread + chance + OFF * rows:
        return ()
    share = float(np.clip(counts[1] / rows, 0.0, 1.0))
    text = ALLOCATION.format(
        share=share, count=max(counts[1], 0.0), spread=noise_sd, name=listed([name]), arm=arm,
        declared=declared,
    )  # fmt: skip
    return (("allocation", text),)


OFF = 0.02
"""Share of the rows by which arms may be off without a word: of a column of propensities the mean
is known from a noisy histogram only."""
