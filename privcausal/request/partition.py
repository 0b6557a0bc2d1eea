"""Partitions of the declared domain into cells, and the SQL that aggregates rows by cell.

A partition is a public function of one row's features, fixed before rows are read or made of
released numbers. It is total: every row falls into one cell, or into none if a label was not
declared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np

from privcausal.errors import CapabilityError, SchemaError
from privcausal.request.schema import Binary, Domain, Interval, Levels, Schema
from privcausal.stored import stored
from privcausal.typing import Integers, Matrix, Vector

MOST_CELLS = 100_000
"""More cells than anyone has budget for: a mistake."""


class Axis(Protocol):
    """One feature cut into parts."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    def part(self, values: Vector | Integers) -> Integers:
        """The part of each cleaned value, from 0; -1 for a label that was not declared."""

    def label(self, part: int) -> str: ...

    def points(self) -> Matrix:
        """Where each part lies, shape (size, k): in [-1, 1] for numbers, a corner for labels."""

    def sql(self, value: str) -> str:
        """The same as `part` in SQL, to the bit; numbers may lie outside their bounds here."""


@stored
@dataclass(frozen=True)
class RegularAxis:
    """`parts` equal parts of an interval, closed below."""

    name: str
    lo: float
    hi: float
    parts: int

    @property
    def size(self) -> int:
        return self.parts

    @property
    def _scale(self) -> float:
        return self.parts / (self.hi - self.lo)

    def part(self, values: Vector | Integers) -> Integers:
        at = np.floor((values - self.lo) * self._scale)
        return np.minimum(at, self.parts - 1).astype(np.int64)

    def label(self, part: int) -> str:
        step = (self.hi - self.lo) / self.parts
        return _range(self.name, self.lo + part * step, self.lo + (part + 1) * step)

    def points(self) -> Matrix:
        return np.asarray((np.arange(self.parts) + 0.5) * (2.0 / self.parts) - 1.0)[:, None]

    def sql(self, value: str) -> str:
        place = f"FLOOR(({value} - {sql_number(self.lo)}) * {sql_number(self._scale)})"
        return f"CAST(LEAST(GREATEST({place}, 0e0), {sql_number(self.parts - 1)}) AS INTEGER)"


@stored
@dataclass(frozen=True)
class CutAxis:
    """An interval cut at declared points; a point belongs to the part above it."""

    name: str
    lo: float
    hi: float
    cuts: tuple[float, ...]

    @property
    def size(self) -> int:
        return len(self.cuts) + 1

    @property
    def _ends(self) -> Vector:
        return np.array([self.lo, *self.cuts, self.hi])

    def part(self, values: Vector | Integers) -> Integers:
        return np.searchsorted(np.array(self.cuts), values, side="right").astype(np.int64)

    def label(self, part: int) -> str:
        return _range(self.name, self._ends[part], self._ends[part + 1])

    def points(self) -> Matrix:
        middle = 0.5 * (self._ends[1:] + self._ends[:-1])
        return ((middle - self.lo) * (2.0 / (self.hi - self.lo)) - 1.0)[:, None]

    def sql(self, value: str) -> str:
        above = (f"CAST({value} >= {sql_number(cut)} AS INTEGER)" for cut in self.cuts)
        return " + ".join(above) or "0"


@stored
@dataclass(frozen=True)
class LevelAxis:
    """A part for each declared label, or for each value of a 0/1 column."""

    name: str
    labels: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.labels)

    def part(self, values: Vector | Integers) -> Integers:
        part = values.astype(np.int64)
        return np.where(part < self.size, part, -1)

    def label(self, part: int) -> str:
        return f"{self.name} = {self.labels[part]}"

    def points(self) -> Matrix:
        return np.eye(self.size)

    def sql(self, value: str) -> str:
        return value


@stored
@dataclass(frozen=True)
class Product:
    """All combinations of the parts of some features."""

    axes: tuple[Axis, ...]

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    @property
    def size(self) -> int:
        return int(np.prod([axis.size for axis in self.axes], dtype=np.int64))

    @property
    def description(self) -> str:
        return " x ".join(f"{axis.size} of {axis.name}" for axis in self.axes)

    def cell(self, frame: Mapping[str, Vector | Integers]) -> Integers:
        """The cell of each row, shape (n,), from 0; -1 where a label was not declared."""
        parts = [axis.part(frame[axis.name]) for axis in self.axes]
        total, outside = np.zeros_like(parts[0]), np.zeros(len(parts[0]), bool)
        for axis, part in zip(self.axes, parts, strict=True):
            total = total * axis.size + part
            outside |= part < 0
        total[outside] = -1
        return total

    def _parts(self) -> list[Integers]:
        """The part along each axis, of every cell."""
        return list(np.unravel_index(np.arange(self.size), [axis.size for axis in self.axes]))

    def labels(self) -> tuple[str, ...]:
        """What each cell is called."""
        cells = np.stack(self._parts(), axis=1).tolist()
        return tuple(
            ", ".join(axis.label(part) for axis, part in zip(self.axes, cell, strict=True))
            for cell in cells
        )

    def points(self) -> Matrix:
        """Where each cell lies, shape (size, k), for telling which cells are neighbours."""
        along = zip(self.axes, self._parts(), strict=True)
        return np.hstack([axis.points()[part] for axis, part in along])

    def sql(self, values: Mapping[str, str]) -> str:
        """The cell in SQL, from the values of its features."""
        total = ""
        for axis in self.axes:
            part = f"({axis.sql(values[axis.name])})"
            total = f"({total} * {axis.size} + {part})" if total else part
        outside = [f"{values[a.name]} < 0" for a in self.axes if isinstance(a, LevelAxis)]
        return f"CASE WHEN {' OR '.join(outside)} THEN -1 ELSE {total} END" if outside else total


@stored
@dataclass(frozen=True, eq=False)
class Tabulated:
    """A function of the user's own, known on a fine public grid.

    Attributes
    ----------
    grid : Product
    cells : Integers
        The function's cell at each cell of the grid; -1 for none.
    names : tuple of str
    """

    grid: Product
    cells: Integers
    names: tuple[str, ...]

    @property
    def variables(self) -> tuple[str, ...]:
        return self.grid.variables

    @property
    def size(self) -> int:
        return len(self.names)

    @property
    def description(self) -> str:
        return f"{self.size} cells of a function of {', '.join(self.variables)}"

    def cell(self, frame: Mapping[str, Vector | Integers]) -> Integers:
        at = self.grid.cell(frame)
        return np.where(at < 0, -1, self.cells[np.maximum(at, 0)])

    def labels(self) -> tuple[str, ...]:
        return self.names

    def points(self) -> Matrix:
        where = self.grid.points()
        return np.array([where[self.cells == k].mean(axis=0) for k in range(self.size)])


@stored
@dataclass(frozen=True)
class Coordinates:
    """A row's features as a point: numbers in [-1, 1], a corner (0 or 1 each) for labels."""

    schema: Schema
    variables: tuple[str, ...]

    @cached_property
    def size(self) -> int:
        domains = [self.schema[name] for name in self.variables]
        return sum(len(d.labels) if isinstance(d, Levels) else 1 for d in domains)

    def of(self, frame: Mapping[str, Vector | Integers]) -> Matrix:
        """Points, shape (n, size)."""
        return np.hstack([self._of(name, frame[name]) for name in self.variables])

    def _of(self, name: str, values: Vector | Integers) -> Matrix:
        domain = self.schema[name]
        if isinstance(domain, Levels):
            return np.asarray(values[:, None] == np.arange(len(domain.labels)), np.float64)
        if isinstance(domain, Interval):
            place = (values - domain.mid) / (0.5 * domain.width)
            return np.asarray(np.clip(place, -1.0, 1.0), np.float64)[:, None]
        return np.asarray(2.0 * values - 1.0, np.float64)[:, None]


@stored
@dataclass(frozen=True, eq=False)
class Nearest:
    """The cell of the nearest of some centres (the first of several as near)."""

    coordinates: Coordinates
    centres: Matrix

    @property
    def variables(self) -> tuple[str, ...]:
        return self.coordinates.variables

    @property
    def size(self) -> int:
        return len(self.centres)

    @property
    def description(self) -> str:
        return f"{self.size} private clusters of {', '.join(self.variables)}"

    def cell(self, frame: Mapping[str, Vector | Integers]) -> Integers:
        z = self.coordinates.of(frame)
        best = np.full(len(z), np.inf)
        found = np.zeros(len(z), np.int64)
        for k, centre in enumerate(self.centres):
            distance = np.zeros(len(z))
            for j in range(z.shape[1]):  # one fixed order on every engine and batch
                distance += (z[:, j] - centre[j]) ** 2
            closer = distance < best
            found[closer], best = k, np.minimum(best, distance)
        return found

    def labels(self) -> tuple[str, ...]:
        return tuple(f"cluster {k + 1}" for k in range(self.size))

    def points(self) -> Matrix:
        return self.centres


Partition = Product | Tabulated | Nearest


def sql_number(value: float) -> str:
    """A float in SQL, to the bit; without an exponent it would be a decimal."""
    text = repr(float(value))
    return text if "e" in text else f"{text}e0"


def _range(name: str, lo: float, hi: float) -> str:
    return f"{name} in [{lo:.4g}, {hi:.4g}]"


def axis_of(name: str, schema: Schema, how: object) -> Axis:
    """An axis: a whole number gives equal parts, a sequence of numbers cut points.

    Columns with labels have a part for each, whatever `how` says ("levels").
    """
    domain = schema[name]
    if isinstance(domain, Levels):
        return LevelAxis(name, domain.labels)
    if isinstance(domain, Binary):
        return LevelAxis(name, (domain.zero, domain.one))
    if isinstance(how, int) and not isinstance(how, bool):
        return RegularAxis(name, domain.lo, domain.hi, how)
    numbers = isinstance(how, Sequence) and not isinstance(how, str)
    cuts = tuple(float(c) for c in how) if numbers else ()  # type: ignore[attr-defined]
    ends = (domain.lo, *cuts, domain.hi)
    if not cuts or not all(a < b for a, b in pairwise(ends)):
        raise SchemaError(
            f"partition[{name!r}]: write a number of equal parts, or increasing cut points "
            f"strictly inside the bounds ({domain.lo:g}, {domain.hi:g}); columns with labels take "
            "'levels'"
        )
    return CutAxis(name, domain.lo, domain.hi, cuts)


def product_of(schema: Schema, parts: Mapping[str, object]) -> Product:
    """All combinations of the parts of these features."""
    made = Product(tuple(axis_of(name, schema, how) for name, how in parts.items()))
    check_size(math.prod(float(axis.size) for axis in made.axes))
    return made


def check_size(cells: float) -> None:
    """Raise `CapabilityError` if there are more than `MOST_CELLS`."""
    if cells > MOST_CELLS:
        raise CapabilityError(
            f"a partition of {cells:.3g} cells is too fine: at most {MOST_CELLS} cells; name fewer "
            "features, or partition='kmeans'"
        )


STEPS = 30
"""Bits of the grid on half of the outcome's range."""


@dataclass(frozen=True)
class CellQuery:
    """Counts, sums and sums of squares of a bounded outcome by cell and arm, in one SQL query.

    In the vault it must give the numbers of the row-wise code to the bit, so every step is the same
    IEEE operation in the same order. In a data owner's warehouse ties may be rounded otherwise,
    which changes no sensitivity.

    Attributes
    ----------
    labels : frozenset of str
        Columns read as text; the others are numbers.
    """

    outcome: str
    treatment: str
    variables: tuple[str, ...]
    schema: Schema
    partition: Product
    labels: frozenset[str]

    def exact(self, table: str, *, squares: bool) -> str:
        """DuckDB: rows (cell, arm, count, sum, sum of squares) of whole numbers."""
        steps = "SUM(CAST(ROUND_EVEN({} * " + _UNIT + ", 0) AS BIGINT))"
        total, square = steps.format("place"), steps.format("place * place")
        place = self._place
        if not isinstance(self.schema[self.outcome], Interval):  # two values: the ends of the grid
            place = self._names[self.outcome]
            total, square = (
                f"(2 * SUM(place) - COUNT(*)) * {1 << STEPS}",
                f"COUNT(*) * {1 << STEPS}",
            )
        return (
            f"{self._cleaned(table, place, nan=True)}\n"
            f"SELECT cell, arm, COUNT(*), {total}, {square if squares else 0}\n"
            f"FROM placed WHERE cell >= 0 GROUP BY cell, arm"
        )

    def for_owner(self, table: str) -> str:
        """Columns cell, arm, count, sum and steps.

        `steps` is the sum of the outcome's distance from the middle of its bounds in whole steps
        of 2^-30 half ranges: it does not depend on the order of rows.
        """
        lo, hi = self._range
        middle, step = sql_number(0.5 * (lo + hi)), sql_number(0.5 * (hi - lo) / 2.0**STEPS)
        steps = f"CAST(SUM(CAST(ROUND(place * {_UNIT}, 0) AS BIGINT)) AS BIGINT)"
        return (
            f"{self._cleaned(table, self._place, nan=False)}\n"
            f"SELECT cell, arm, COUNT(*) AS count, "
            f"COUNT(*) * {middle} + {steps} * {step} AS sum, {steps} AS steps\n"
            f"FROM placed WHERE cell >= 0 GROUP BY cell, arm ORDER BY cell, arm"
        )

    @property
    def _range(self) -> tuple[float, float]:
        domain = self.schema[self.outcome]
        return (domain.lo, domain.hi) if isinstance(domain, Interval) else (0.0, 1.0)

    @property
    def _names(self) -> dict[str, str]:
        return {name: f"x{k}" for k, name in enumerate(self.variables)}

    @property
    def _place(self) -> str:
        """The outcome's place between its bounds, from -1 to 1."""
        lo, hi = self._range
        middle, half = sql_number(0.5 * (lo + hi)), sql_number(0.5 * (hi - lo))
        value = self._names[self.outcome]
        if isinstance(self.schema[self.outcome], Interval):
            value = f"LEAST(GREATEST({value}, {sql_number(lo)}), {sql_number(hi)})"
        return f"LEAST(GREATEST(({value} - {middle}) / {half}, -1e0), 1e0)"

    def _cleaned(self, table: str, place: str, *, nan: bool) -> str:
        names = self._names
        columns = ", ".join(f"{self._read(name)} AS {x}" for name, x in names.items())
        present = " AND ".join(self._present(name, nan=nan) for name in names)
        return (
            f"WITH cleaned AS (SELECT {columns} FROM {table} WHERE {present}),\n"
            f"placed AS (SELECT {self.partition.sql(names)} AS cell, "
            f"{names[self.treatment]} AS arm, {place} AS place FROM cleaned)"
        )

    def _text(self, name: str) -> str:
        column = sql_name(name)
        return f"CAST({column} AS VARCHAR)" if name in self.labels else column

    def _values(self, domain: Binary, name: str) -> tuple[Sequence[str], Sequence[str]]:
        """The values of 0 and of 1, as SQL writes them."""
        if name in self.labels:
            return [*map(_sql_text, domain.zeros)], [*map(_sql_text, domain.ones)]
        return ["0"], ["1"]

    def _read(self, name: str) -> str:
        domain, column = self.schema[name], sql_name(name)
        if isinstance(domain, Interval):
            return f"CAST({column} AS DOUBLE)"
        if isinstance(domain, Levels):
            cases = " ".join(
                f"WHEN {self._text(name)} = {_sql_text(label)} THEN {k}"
                for k, label in enumerate(domain.values)
            )
            return f"CASE {cases} ELSE {len(domain.values) if domain.other else -1} END"
        _, ones = self._values(domain, name)
        return f"CASE WHEN {self._text(name)} IN ({', '.join(ones)}) THEN 1 ELSE 0 END"

    def _present(self, name: str, *, nan: bool) -> str:
        """Whether a row has a value; comparisons with NULL are not true."""
        domain, column = self.schema[name], sql_name(name)
        if isinstance(domain, Binary):
            zeros, ones = self._values(domain, name)
            return f"{self._text(name)} IN ({', '.join([*zeros, *ones])})"
        if isinstance(domain, Interval) and nan:
            return f"NOT ISNAN(CAST({column} AS DOUBLE))"
        return f"{column} IS NOT NULL"


_UNIT = sql_number(2.0**STEPS)


def _sql_text(label: str) -> str:
    return "'" + label.replace("'", "''") + "'"


def sql_name(name: str) -> str:
    """A column's name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def text_columns(schema: Mapping[str, Domain]) -> frozenset[str]:
    """Columns that a warehouse holds as text, judging by their declared domains."""
    return frozenset(
        name
        for name, domain in schema.items()
        if isinstance(domain, Levels) or (isinstance(domain, Binary) and domain.labels is not None)
    )
