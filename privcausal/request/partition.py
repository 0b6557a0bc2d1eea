"""Partitions of the declared domain into cells, and the SQL that aggregates rows by cell.

A partition is a public function of one row's features. It is fixed before rows are read, or made of
released numbers. It is total: every row is in exactly one cell, or in none if a label is
undeclared.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from privcausal.errors import CapabilityError, SchemaError, as_plain
from privcausal.request.schema import Binary, Domain, Interval, Levels, Schema, level_names
from privcausal.typing import Integers, Matrix, Vector

MOST_CELLS = 100_000
"""Maximum number of cells. More cells than this exceed any realistic budget."""


@dataclass(frozen=True)
class Axis:
    """One feature divided into parts: one for each label, or intervals between `lo` and `hi`.

    A 0/1 column has a label for each of its values. The intervals are `parts` equal ones, or lie
    between `cuts`. They are closed below: a cut belongs to the part above it.
    """

    name: str
    labels: tuple[str, ...] = ()
    lo: float = 0.0
    hi: float = 1.0
    parts: int = 0
    cuts: tuple[float, ...] = ()
    size: int = field(init=False, repr=False, compare=False)
    # Ends of all intervals, shape (size + 1,)
    ends: Vector = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        size = len(self.labels) or self.parts or len(self.cuts) + 1
        ends = np.array([self.lo, *self.cuts, self.hi])
        if self.parts:
            ends = np.linspace(self.lo, self.hi, self.parts + 1)
        vars(self).update(size=size, ends=ends)

    def part(self, values: Vector | Integers) -> Integers:
        """Part of each cleaned value, counted from 0; -1 for an undeclared label."""
        if self.labels:
            part = values.astype(np.int64)
            return np.where(part < self.size, part, -1)
        if self.cuts:
            return np.searchsorted(np.array(self.cuts), values, side="right").astype(np.int64)
        place = np.floor((values - self.lo) * (self.parts / (self.hi - self.lo)))
        return np.minimum(place, self.parts - 1).astype(np.int64)

    def label(self, part: int) -> str:
        if self.labels:
            return f"{self.name} = {self.labels[part]}"
        if self.cuts:
            lo, hi = self.ends[part], self.ends[part + 1]
        else:
            step = (self.hi - self.lo) / self.parts
            lo, hi = self.lo + part * step, self.lo + (part + 1) * step
        return f"{self.name} in [{lo:.4g}, {hi:.4g}]"

    def points(self) -> Matrix:
        """Position of each part, shape (size, k): numbers in [-1, 1], labels at a corner."""
        if self.labels:
            return np.eye(self.size)
        if self.cuts:
            middle = 0.5 * (self.ends[1:] + self.ends[:-1])
            return ((middle - self.lo) * (2.0 / (self.hi - self.lo)) - 1.0)[:, None]
        return np.asarray((np.arange(self.parts) + 0.5) * (2.0 / self.parts) - 1.0)[:, None]

    def sql(self, value: str) -> str:
        """`part` in SQL, identical to the bit. Here, numbers may lie outside their bounds."""
        if self.labels:
            return value
        if self.cuts:
            return " + ".join(f"CAST({value} >= {sql_number(c)} AS INTEGER)" for c in self.cuts)
        scale = sql_number(self.parts / (self.hi - self.lo))
        place = f"FLOOR(({value} - {sql_number(self.lo)}) * {scale})"
        return f"CAST(LEAST(GREATEST({place}, 0e0), {sql_number(self.parts - 1)}) AS INTEGER)"


@dataclass(frozen=True)
class Product:
    """All combinations of the parts of some features."""

    axes: tuple[Axis, ...]
    variables: tuple[str, ...] = field(init=False, repr=False, compare=False)
    size: int = field(init=False, repr=False, compare=False)
    description: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sizes = [axis.size for axis in self.axes]
        names = tuple(axis.name for axis in self.axes)
        parts = (f"{size} of {name}" for size, name in zip(sizes, names, strict=True))
        size = int(np.prod(sizes, dtype=np.int64))
        vars(self).update(variables=names, size=size, description=" x ".join(parts))

    def cell(self, frame: Mapping[str, Vector | Integers]) -> Integers:
        """Cell of each row, counted from 0, shape (n,); -1 for an undeclared label."""
        parts = [axis.part(frame[axis.name]) for axis in self.axes]
        total, outside = np.zeros_like(parts[0]), np.zeros(len(parts[0]), bool)
        for axis, part in zip(self.axes, parts, strict=True):
            total = total * axis.size + part
            outside |= part < 0
        total[outside] = -1
        return total

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Label of each cell."""
        along = ([axis.label(part) for part in range(axis.size)] for axis in self.axes)
        return tuple(map(", ".join, product(*along)))

    @cached_property
    def points(self) -> Matrix:
        """Position of each cell, shape (size, k), which shows which cells are adjacent."""
        parts = np.unravel_index(np.arange(self.size), [axis.size for axis in self.axes])
        along = zip(self.axes, parts, strict=True)
        return np.hstack([axis.points()[part] for axis, part in along])

    def sql(self, values: Mapping[str, str]) -> str:
        """SQL of the cell number, given SQL of each feature's value."""
        total = ""
        for axis in self.axes:
            part = f"({axis.sql(values[axis.name])})"
            total = f"({total} * {axis.size} + {part})" if total else part
        outside = [f"{values[a.name]} < 0" for a in self.axes if a.labels]
        return f"CASE WHEN {' OR '.join(outside)} THEN -1 ELSE {total} END" if outside else total


@dataclass(frozen=True, eq=False)
class Tabulated:
    """A user-defined function, evaluated on a fine public grid."""

    grid: Product
    # Value of the function (a cell number) at each cell of the grid; -1 for no cell
    cells: Integers
    labels: tuple[str, ...]
    variables: tuple[str, ...] = field(init=False, repr=False, compare=False)
    size: int = field(init=False, repr=False, compare=False)
    description: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names, size = self.grid.variables, len(self.labels)
        text = f"{size} cells of a function of {', '.join(names)}"
        vars(self).update(variables=names, size=size, description=text)

    def cell(self, frame: Mapping[str, Vector | Integers]) -> Integers:
        place = self.grid.cell(frame)
        return np.where(place < 0, -1, self.cells[np.maximum(place, 0)])

    @cached_property
    def points(self) -> Matrix:
        where = self.grid.points
        return np.array([where[self.cells == k].mean(axis=0) for k in range(self.size)])


class Coordinates(NamedTuple):
    """A row's features as a point: numbers in [-1, 1], labels at a corner (each 0 or 1)."""

    schema: Schema
    variables: tuple[str, ...]

    @property
    def size(self) -> int:
        domains = [self.schema[name] for name in self.variables]
        return sum(len(d.labels) if isinstance(d, Levels) else 1 for d in domains)

    def of(self, frame: Mapping[str, Vector | Integers]) -> Matrix:
        """Points, shape (n, size)."""
        points = []
        for name in self.variables:
            values, domain = frame[name], self.schema[name]
            if isinstance(domain, Levels):
                place = values[:, None] == np.arange(len(domain.labels))
            elif isinstance(domain, Interval):
                place = np.clip((values - domain.mid) / (0.5 * domain.width), -1.0, 1.0)[:, None]
            else:
                place = (2.0 * values - 1.0)[:, None]
            points.append(np.asarray(place, np.float64))
        return np.hstack(points)


@dataclass(frozen=True, eq=False)
class Nearest:
    """Assigns each row to the nearest center, or to the first of several equally near centers."""

    coordinates: Coordinates
    centres: Matrix
    labels: tuple[str, ...] = field(init=False, repr=False)
    points: Matrix = field(init=False, repr=False)
    variables: tuple[str, ...] = field(init=False, repr=False, compare=False)
    size: int = field(init=False, repr=False, compare=False)
    description: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names, size = self.coordinates.variables, len(self.centres)
        text = f"{size} private clusters of {', '.join(names)}"
        labels = tuple(f"cluster {k + 1}" for k in range(size))
        vars(self).update(variables=names, size=size, description=text)
        vars(self).update(labels=labels, points=self.centres)

    def cell(self, frame: Mapping[str, Vector | Integers]) -> Integers:
        z = self.coordinates.of(frame)
        best = np.full(len(z), np.inf)
        cells = np.zeros(len(z), np.int64)
        for k, centre in enumerate(self.centres):
            distance = np.zeros(len(z))
            for j in range(z.shape[1]):  # fixed order for every engine and batch
                distance += (z[:, j] - centre[j]) ** 2
            closer = distance < best
            cells[closer], best = k, np.minimum(best, distance)
        return cells


Partition = Product | Tabulated | Nearest


def sql_number(value: float) -> str:
    """A float in SQL, to the bit. Without an exponent, SQL would read a decimal."""
    text = repr(float(value))
    return text if "e" in text else f"{text}e0"


def axis_of(name: str, schema: Schema, how: object) -> Axis:
    """Build an axis: a whole number gives equal parts, a sequence gives the dividing points.

    Columns of labels have one part per label, whatever the value of `how` ("levels").
    """
    domain = schema[name]
    if not isinstance(domain, Interval):
        return Axis(name, labels=level_names(domain))
    how = as_plain(how)
    if isinstance(how, int) and not isinstance(how, bool):
        return Axis(name, lo=domain.lo, hi=domain.hi, parts=how)
    numbers = isinstance(how, Sequence) and not isinstance(how, str)
    cuts = tuple(float(c) for c in how) if numbers else ()  # type: ignore[attr-defined]
    ends = (domain.lo, *cuts, domain.hi)
    if not cuts or not all(a < b for a, b in pairwise(ends)):
        raise SchemaError(
            f"partition[{name!r}] must be a number of equal parts, or increasing thresholds "
            f"strictly inside the bounds ({domain.lo:g}, {domain.hi:g}). For a column of labels, "
            "write 'levels'."
        )
    return Axis(name, lo=domain.lo, hi=domain.hi, cuts=cuts)


def product_of(schema: Schema, parts: Mapping[str, object]) -> Product:
    """All combinations of the parts of these features."""
    axes = tuple(axis_of(name, schema, how) for name, how in parts.items())
    check_size(math.prod(float(axis.size) for axis in axes))
    return Product(axes)


def check_size(cells: float) -> None:
    """Raise `CapabilityError` if there are more than `MOST_CELLS` cells."""
    if cells > MOST_CELLS:
        raise CapabilityError(
            f"A partition of {cells:.3g} cells is too fine. The maximum is {MOST_CELLS:,} cells. "
            "Use fewer features, or partition='kmeans'."
        )


GRID_BITS = 30
"""Bits of the grid on half of the outcome's range."""


def cell_sql(
    table: str,
    partition: Product,
    schema: Schema,
    *,
    outcome: str,
    treatment: str,
    variables: Sequence[str],
) -> str:
    """Counts and sums of a bounded outcome by cell and arm, in one SQL query for a data owner.

    Every step is the same IEEE operation as in the vault's row-wise code, in the same order. A
    warehouse may round ties differently, which does not change any sensitivity.

    The columns are cell, arm, count, sum and steps. `steps` sums the outcome's distance from the
    middle of its bounds, in whole steps of 2^-30 half ranges. It does not depend on the order of
    rows.
    """
    domain = schema[outcome]
    lo, hi = (domain.lo, domain.hi) if isinstance(domain, Interval) else (0.0, 1.0)
    middle, half = 0.5 * (lo + hi), 0.5 * (hi - lo)
    names = {name: f"x{k}" for k, name in enumerate(variables)}
    # The outcome's position between its bounds, from -1 to 1
    value = names[outcome]
    if isinstance(domain, Interval):
        value = f"LEAST(GREATEST({value}, {sql_number(domain.lo)}), {sql_number(domain.hi)})"
    place = f"({value} - {sql_number(middle)}) / {sql_number(half)}"
    steps = f"CAST(SUM(CAST(ROUND(place * {_UNIT}, 0) AS BIGINT)) AS BIGINT)"
    total = f"COUNT(*) * {sql_number(middle)} + {steps} * {sql_number(half / 2.0**GRID_BITS)}"
    read = {x: _column_sql(name, schema[name]) for name, x in names.items()}
    columns = ", ".join(f"{value} AS {x}" for x, (value, _) in read.items())
    present = " AND ".join(there for _, there in read.values())
    return (
        f"WITH cleaned AS (SELECT {columns} FROM {table} WHERE {present}),\n"
        f"placed AS (SELECT {partition.sql(names)} AS cell, {names[treatment]} AS arm, "
        f"LEAST(GREATEST({place}, -1e0), 1e0) AS place FROM cleaned)\n"
        f"SELECT cell, arm, COUNT(*) AS count, {total} AS sum, {steps} AS steps\n"
        "FROM placed WHERE cell >= 0 GROUP BY cell, arm ORDER BY cell, arm"
    )


def _column_sql(name: str, domain: Domain) -> tuple[str, str]:
    """SQL of a column's cleaned value, and SQL that tests whether a row has one.

    Comparisons with NULL are not true. NaN is above all numbers, or its comparisons are false.
    """
    column = sql_name(name)
    number, there = f"CAST({column} AS DOUBLE)", f"{column} IS NOT NULL"
    if isinstance(domain, Interval):
        return number, f"ABS({number}) <= {_LARGEST}"
    text = name in text_columns({name: domain})
    value = f"CAST({column} AS VARCHAR)" if text else column
    if isinstance(domain, Levels):
        cases = " ".join(
            f"WHEN {value} = {sql_text(label)} THEN {k}" for k, label in enumerate(domain.values)
        )
        return f"CASE {cases} ELSE {len(domain.values) if domain.other else -1} END", there
    zeros, ones = ["0"], ["1"]
    if text:
        zeros, ones = [*map(sql_text, domain.zeros)], [*map(sql_text, domain.ones)]
    present = f"{value} IN ({', '.join([*zeros, *ones])})"
    return f"CASE WHEN {value} IN ({', '.join(ones)}) THEN 1 ELSE 0 END", present


_UNIT, _LARGEST = sql_number(2.0**GRID_BITS), sql_number(sys.float_info.max)


def sql_text(label: str) -> str:
    """A quoted text in SQL."""
    return "'" + label.replace("'", "''") + "'"


def sql_name(name: str) -> str:
    """A column name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def text_columns(schema: Mapping[str, Domain]) -> frozenset[str]:
    """Columns that a warehouse stores as text, according to their declared domains."""
    return frozenset(
        name
        for name, domain in schema.items()
        if isinstance(domain, Levels) or (isinstance(domain, Binary) and domain.labels is not None)
    )
