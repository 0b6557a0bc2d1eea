"""Whether a method's cells reach what is wanted of its intervals and errors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

COVER, CELL, MOST_CELLS = 0.93, 0.90, 0.95
"""Coverage of each kind on average, of single cells, and the share of cells that must have it."""
COVER_80 = (0.78, 0.92)
"""Coverage of 80 % intervals in the median cell."""
WIDTH, WIDTH_PLAIN, SIZES = 3.5, 3.0, (4000, 20_000)
"""Half-widths over the oracle's at eps = 1: over all kinds and where nothing confounds, in cells of
these sizes."""
FACTOR = 0.8
"""What half-widths could be multiplied by, in the median cell, to cover 95 %."""
ERROR = 1.1
"""RMSE over that of the plain private difference, in each kind."""


class Verdict(NamedTuple):
    """Whether something holds, in a sentence."""

    holds: bool
    text: str

    def __str__(self) -> str:
        return f"{'PASS' if self.holds else 'FAIL'} {self.text}"


def verdicts(cells: pd.DataFrame, kinds: pd.DataFrame) -> list[Verdict]:
    """Of one method at one eps; `kinds` has a line for each kind in `cells`."""
    held = float((cells["cover"] >= CELL).mean())
    median = float(cells["cover80"].median())
    found = [
        each(kinds["cover"], COVER, "coverage at least", least=True),
        Verdict(held >= MOST_CELLS, f"{held:.0%} of cells cover at least {CELL:.0%} "
                f"({MOST_CELLS:.0%} wanted)"),
        Verdict(COVER_80[0] <= median <= COVER_80[1],
                f"80 % intervals cover {median:.0%} in the median cell"),
        Verdict(bool((cells["factor"].median()) >= FACTOR),
                f"the factor that gives 95 %: median {cells['factor'].median():.2f} "
                f"({FACTOR} wanted)"),
    ]  # fmt: skip
    beside = kinds["rmse/plain"].dropna()  # missing without rows of the plain difference
    if len(beside):
        found.append(each(beside, ERROR, "RMSE over the plain difference's at most"))
    if (cells["study"] == "trials").all():
        narrow = int((cells["width"] < 1).sum())
        found.append(Verdict(not narrow, f"{narrow} cells have intervals narrower than the oracle"))
    elif (cells["eps"] == 1).all():
        found += _widths(cells[cells["n"].between(*SIZES)])
    return found


def each(values: Any, bound: float, what: str, *, least: bool = False) -> Verdict:
    beyond = values[values < bound] if least else values[values > bound]
    listed = ", ".join(f"{kind} {value:.2f}" for kind, value in beyond.items())
    return Verdict(beyond.empty, f"{what} {bound:g} in each kind{listed and ', but '}{listed}")


def _widths(cells: pd.DataFrame) -> list[Verdict]:
    among = f"{SIZES[0]:,} to {SIZES[1]:,} rows"
    found = []
    for part, bound, where in (
        (cells, WIDTH, "all kinds"),
        (cells[cells["confounding"] == "none"], WIDTH_PLAIN, "cells without confounding"),
    ):
        if len(part):
            width = float(np.exp(np.log(part["width"]).groupby(part["kind"]).mean().mean()))
            said = f"half-width over the oracle's, {among}, {where}: {width:.2f} ({bound} wanted)"
            found.append(Verdict(width <= bound, said))
    return found
