"""Tables that are aggregated already: cell, arm, count and sum, read strictly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privcausal.errors import DataError
from privcausal.spec.cell_query import STEPS
from privcausal.spec.columns import header, labels, numbers, open_frame
from privcausal.spec.schema import Binary, Interval
from privcausal.typing import Frame, Integers, Matrix, Vector

COLUMNS = ("cell", "arm", "count", "sum")

MOST_COUNT = 2.0**31
"""Of rows in a line: their sums in whole steps then stay below 2^62."""

SLACK = 1e-9
"""Relative rounding that a sum of floats may have."""


@dataclass(frozen=True, eq=False, repr=False)
class CellTable:
    """Counts and centred sums by cell and arm, shape (cells, 2) each; absent cells are zero.

    `steps` are the sums in whole steps of 2^-30 half ranges.
    """

    count: Matrix
    total: Matrix
    steps: Integers


def read_cells(
    frame: Frame, cells: Sequence[str], arms: Binary, outcome: Interval, *, noisy: bool
) -> CellTable:
    """A table with the columns cell, arm, count and sum (or steps), a line per cell and arm.

    Parameters
    ----------
    cells : sequence of str
        The declared cells, in order.
    noisy : bool
        Counts may then be below zero and no whole numbers, and sums beyond the bounds.

    Raises
    ------
    DataError
        A column is absent or of a wrong type; a value is missing, an arm or cell unknown, a line
        twice there; an exact count is negative or no whole number, or its sum beyond what the
        bounds allow. No value is told.
    """
    table = open_frame(frame)
    kinds = header(table).kinds
    for name in COLUMNS[:3]:
        if name not in kinds:
            raise DataError(f"a table of cells needs the columns {', '.join(COLUMNS)}; no {name!r}")
    if "sum" not in kinds and "steps" not in kinds:
        raise DataError("a table of cells needs a column 'sum' (or 'steps')")
    if noisy and "sum" not in kinds:
        raise DataError("a table of cells with noise needs a column 'sum': steps are exact")
    for name in ("count", "sum", "steps"):
        if name in kinds and kinds[name] != "numeric":
            raise DataError(f"column {name!r} of a table of cells holds no numbers")
    at = _places(table, cells, arms)
    count = _filled(table, "count", at, len(cells))
    half = 0.5 * outcome.width
    if "steps" in kinds and not noisy:
        steps = _filled(table, "steps", at, len(cells))
        total = steps * (half / 2.0**STEPS)
    else:
        total = _filled(table, "sum", at, len(cells)) - outcome.mid * count
        steps = np.rint(np.clip(total / half, -count, count) * 2.0**STEPS)
    if not noisy:
        _check_exact(count, total, steps, outcome)
        steps = np.clip(steps, -count * 2.0**STEPS, count * 2.0**STEPS)
    return CellTable(count, total, steps.astype(np.int64))


def _places(table: object, cells: Sequence[str], arms: Binary) -> Integers:
    """Cell and arm of each line as one number, 2 cell + arm."""
    position = {name: k for k, name in enumerate(cells)}
    cell = _looked_up(table, "cell", position, "cells= does not declare one of the table's cells")
    number = dict.fromkeys(arms.zeros, 0) | dict.fromkeys(arms.ones, 1)
    known = f"{arms.zero!r} and {arms.one!r}"
    arm = _looked_up(table, "arm", number, f"the table has an unknown arm: known are {known}")
    at = 2 * cell + arm
    if len(np.unique(at)) < len(at):
        raise DataError("the table of cells has a cell and arm in two lines: add them up")
    return at


def _looked_up(table: object, name: str, known: dict[str, int], problem: str) -> Integers:
    codes, texts = labels(table[name])  # type: ignore[index]  # a narwhals frame
    if (codes < 0).any():
        raise DataError(f"column {name!r} of the table of cells has a missing value")
    if any(text not in known for text in texts):
        raise DataError(problem)
    return np.array([known[text] for text in texts], np.int64)[codes]


def _filled(table: object, name: str, at: Integers, cells: int) -> Matrix:
    values: Vector = numbers(table[name])  # type: ignore[index]  # a narwhals frame
    if not np.isfinite(values).all():
        raise DataError(f"column {name!r} of the table of cells has a value that is no number")
    out = np.zeros(2 * cells)
    out[at] = values
    return out.reshape(-1, 2)


def _check_exact(count: Matrix, total: Matrix, steps: Matrix, outcome: Interval) -> None:
    if (count < 0).any():
        raise DataError(
            "the table of cells has a negative count: an exact count is zero or more; for a table "
            "with noise say which, noise={'count': sd, 'sum': sd}"
        )
    if (count != np.rint(count)).any() or (count > MOST_COUNT).any():
        raise DataError("the table of cells has a count that is no whole number, or above 2^31")
    room = 0.5 * outcome.width * (1 + SLACK) * count + SLACK * abs(outcome.mid) * count
    if (np.abs(total) > room).any() or (np.abs(steps) > count * 2.0**STEPS * (1 + SLACK)).any():
        raise DataError(
            f"the table of cells has a sum that {outcome.lo:g} to {outcome.hi:g} for each row "
            "cannot give: cut outcomes to their bounds before they are added up"
        )
