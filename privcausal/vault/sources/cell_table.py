"""Aggregated tables of cell, arm, count and sum, read strictly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from privcausal.errors import DataError
from privcausal.features import design
from privcausal.request.partition import GRID_BITS
from privcausal.request.schema import Binary, Header, Interval
from privcausal.typing import Frame, Integers, Matrix, Vector
from privcausal.vault.sources.memory import RowSource

COLUMNS = ("cell", "arm", "count", "sum")

MOST_COUNT = 2.0**31
"""Maximum number of rows in a line, assumed to be public. The sums of these rows in whole steps are
then below 2^62, and the last digit of a float that holds their sum is known."""

MOST_ROUNDING = 2.0**-10
"""Largest float rounding, as a share of half the outcome's range. Float sums with a larger last
digit are refused. The noise is increased by the rounding, so by at most one part in a thousand."""

SLACK = 1e-9
"""Relative rounding error allowed in a sum of floats."""


@dataclass(frozen=True, eq=False, repr=False)
class CellTable:
    """Counts and centered sums by cell and arm, shape (cells, 2) each; absent cells are zero.

    `steps` are the sums in whole steps of 2^-30 half ranges. If the rows of a cell and arm change,
    its sum may change by `rounding` steps more than the rows do. `rounding` follows from bounds and
    data types, which are public.

    Privacy
    -------
    Let s be the exact sum of a line's outcomes minus the midpoint of their bounds, in steps. A row
    changes s by at most 2^31 steps if it changes within the line, and by at most 2^30 steps if it
    is added or removed.

    - *Steps* are sums of whole numbers of such sizes.
    - *Integers and decimals*, as numbers or objects, give s as a fraction. It is rounded once, to
      the nearest step, halves to the even step. This rounding is monotone. It maps x + d to the
      rounded x plus d for an even d, such as 2^31 and 2^30. It therefore changes by no more than s
      may change.
    - *Floats*: the sum S in the table is the exact sum T rounded once, and
      |T| <= L = 2^31 max(|lo|, |hi|). Hence |S - T| <= ulp(L) / 2 in each of two tables. Everything
      else is computed in fractions, and two roundings to a step add one half each. Together this is
      ulp(L) / step + 1. Clipping to +- count x 2^30 never moves a sum further from the exact sum,
      because the exact sum is within these limits.
    """

    count: Matrix
    total: Matrix
    steps: Integers
    rounding: float = 0.0


def read_cells(
    frame: Frame, cells: Sequence[str], arms: Binary, outcome: Interval, *, noisy: bool
) -> CellTable:
    """Read a table with the columns cell, arm, count and sum (or steps), a line per cell and arm.

    Parameters
    ----------
    cells : sequence of str
        The declared cells, in order.
    noisy : bool
        Counts may then be negative or fractional, and sums may be outside the bounds.

    Raises
    ------
    DataError
        A column is absent, has a wrong type, or has too few digits. A value is missing, an arm or
        cell is unknown, or a line occurs twice. An exact count is negative or fractional, or its
        sum is outside the limits from the bounds. The message contains no value.
    """
    table = design.open_frame(frame)
    typed = {name.lower(): name for name in table.columns}  # Snowflake writes names in upper case
    lacking = [name for name in (*COLUMNS, "steps") if name in typed and name not in table.columns]
    table = table.rename({typed[name]: name for name in lacking})
    header = design.header(table)
    kinds = header.kinds
    for name in COLUMNS[:3]:
        if name not in kinds:
            raise DataError(
                f"A table of cells requires the columns {', '.join(COLUMNS)}. {name!r} is missing."
            )
    if "sum" not in kinds and "steps" not in kinds:
        raise DataError("A table of cells requires a column 'sum' or 'steps'.")
    if noisy and "sum" not in kinds:
        raise DataError(
            "A table of cells with noise requires a column 'sum'; 'steps' is for exact sums."
        )
    for name in ("count", "sum", "steps"):
        # Database drivers give large numbers as objects: whole numbers or decimals.
        objects = name in header.objects and all(
            isinstance(value, int | Decimal) for value in table[name].to_list()
        )
        if name in kinds and kinds[name] != "numeric" and not objects:
            raise DataError(
                f"Column {name!r} of the table of cells must be numeric. Objects must be int or "
                "Decimal."
            )
    stepwise = "steps" in kinds and not noisy
    rounding = 0.0 if noisy else _check_digits(table, outcome, stepwise=stepwise)
    at = _places(table, cells, arms)
    count = _filled(table, "count", at, len(cells))
    half = 0.5 * outcome.width
    total = np.zeros_like(count)
    steps = np.zeros(count.shape, np.int64)
    if noisy:
        total = _filled(table, "sum", at, len(cells)) - outcome.mid * count
    else:
        if (count < 0).any():
            raise DataError(
                "The table of cells has a negative count, but exact counts are never negative. If "
                "the table contains noise, declare it: noise={'count': sd, 'sum': sd}."
            )
        if (count != np.rint(count)).any() or (count > MOST_COUNT).any():
            raise DataError(
                "The table of cells has a count that is not a whole number or exceeds 2^31."
            )
        whole = count.astype(np.int64)
        sums = _exact(table, "steps" if stepwise else "sum", at, len(cells))
        if not stepwise:
            # Sums of outcomes minus the midpoint of their bounds, in the nearest whole steps
            lo, hi = Fraction(outcome.lo), Fraction(outcome.hi)
            rows = zip(sums, whole.ravel().tolist(), strict=True)
            places = [(2 * Fraction(s) - (lo + hi) * n) / (hi - lo) for s, n in rows]
            sums = [round(place * (1 << GRID_BITS)) for place in places]
        room = half * (1 + SLACK) + (0.0 if stepwise else SLACK * abs(outcome.mid))
        steps = _within(sums, whole, room / half, outcome)
        total = steps.astype(np.float64) * (half / 2.0**GRID_BITS)
    return CellTable(count, total, steps, rounding)


def _check_digits(table: Any, outcome: Interval, *, stepwise: bool) -> float:
    """A sum may change by these steps beyond its rows; raises if there are too many."""
    import narwhals as nw

    used = ("count", "steps" if stepwise else "sum")
    for name in used:
        if table[name].dtype == nw.Float32:
            raise DataError(
                f"Column {name!r} of the table of cells has 32-bit floats, which are too coarse "
                "for the contribution of one row. Convert the values to 64 bits before summing."
            )
    dtype = table[used[1]].dtype
    if not dtype.is_float():  # integers, decimals, or objects of these kinds
        return 0.0
    if stepwise:
        raise DataError(
            "Column 'steps' of the table of cells has floats, which round large sums. Convert it "
            "to 64-bit integers where it is computed."
        )
    last = math.ulp(MOST_COUNT * max(abs(outcome.lo), abs(outcome.hi)))
    half = (Fraction(outcome.hi) - Fraction(outcome.lo)) / 2
    if last > MOST_ROUNDING * half:
        middle = float(outcome.mid)
        raise DataError(
            f"Float sums of outcomes from {outcome.lo!r} to {outcome.hi!r} are too coarse for the "
            "contribution of one row. Pass exact integers or decimals, or 'steps' from "
            f"fit.plan.sql(), or subtract {middle!r} from the outcome and its bounds. No budget "
            "was spent."
        )
    return float(math.ceil(Fraction(last) / half * 2**GRID_BITS) + 1)


def _within(sums: Sequence[int], count: Integers, room: float, outcome: Interval) -> Integers:
    """Sums of steps, clipped to the limits for their rows; raises if a sum is too far outside."""
    clipped = np.zeros(count.size, np.int64)
    for k, (value, rows) in enumerate(zip(sums, count.ravel().tolist(), strict=True)):
        most = rows << GRID_BITS
        if abs(value) > most * room:
            raise DataError(
                "The table of cells has a sum that is impossible for outcomes from "
                f"{outcome.lo:g} to {outcome.hi:g}. Clip outcomes to their bounds before summing."
            )
        clipped[k] = max(-most, min(value, most))
    return clipped.reshape(count.shape)


def _places(table: object, cells: Sequence[str], arms: Binary) -> Integers:
    """Cell and arm of each line as one number, 2 cell + arm."""
    number = dict.fromkeys(arms.zeros, 0) | dict.fromkeys(arms.ones, 1)
    declared = f"{arms.zero!r} and {arms.one!r}"
    undeclared = "The table has a cell that cells= does not declare."
    unknown = f"The table has an unknown arm. Declared arms: {declared}."
    places = []
    for name, numbers, problem in (
        ("cell", {name: k for k, name in enumerate(cells)}, undeclared),
        ("arm", number, unknown),
    ):
        codes, texts = design.labels(table[name])  # type: ignore[index]  # a narwhals frame
        if (codes < 0).any():
            raise DataError(f"Column {name!r} of the table of cells has a missing value.")
        if any(text not in numbers for text in texts):
            raise DataError(problem)
        places.append(np.array([numbers[text] for text in texts], np.int64)[codes])
    at = 2 * places[0] + places[1]
    if len(np.unique(at)) < len(at):
        raise DataError("The table of cells has two lines for one cell and arm. Add them up.")
    return np.asarray(at)


def _filled(table: object, name: str, at: Integers, cells: int) -> Matrix:
    values: Vector = design.numbers(table[name])  # type: ignore[index]  # a narwhals frame
    if not np.isfinite(values).all():
        raise DataError(f"Column {name!r} of the table of cells has a missing or infinite value.")
    out = np.zeros(2 * cells)
    out[at] = values
    return out.reshape(-1, 2)


def _exact(table: Any, name: str, at: Integers, cells: int) -> list[Any]:
    """The values unchanged (integers, decimals or floats), in the order of cells and arms."""
    _filled(table, name, at, cells)  # checks that all values are present and finite
    out: list[Any] = [0] * (2 * cells)
    for place, value in zip(at.tolist(), table[name].to_list(), strict=True):
        out[place] = value
    return out


class Aggregates(RowSource):
    """A table of cells in place of rows, equally private; used only by `CellSums`."""

    __slots__ = ("header", "table")
    ordered = True
    held = True
    absent = "A table of cells has no rows. Only learner='adum' accepts it."

    def __init__(self, table: CellTable, columns: Header) -> None:
        self.table = table
        self.header = columns

    def size(self) -> int:
        """A placeholder of 1: the number of rows is unknown, and the table is not empty."""
        return 1
