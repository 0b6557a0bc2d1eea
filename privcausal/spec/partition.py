"""Partitions of the declared domain into cells: public functions of one row's features.

A partition is fixed before rows are read, or made of released numbers. Each is total: every row
falls into one cell, or into none where a label was not declared.
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
from privcausal.spec.schema import Binary, Interval, Levels, Schema
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
        """The part of a value in SQL, equal to `part` of the cleaned value to the bit.

        Numbers may lie outside of their bounds here; labels are numbered.
        """


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
        place = f"FLOOR(({value} - {number(self.lo)}) * {number(self._scale)})"
        return f"CAST(LEAST(GREATEST({place}, 0e0), {number(self.parts - 1)}) AS INTEGER)"


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
        return " + ".join(f"CAST({value} >= {number(cut)} AS INTEGER)" for cut in self.cuts) or "0"


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
        rows = zip(self.axes, self._parts(), strict=True)
        return np.hstack([axis.points()[part] for axis, part in rows])

    def sql(self, values: Mapping[str, str]) -> str:
        """The cell in SQL, from the values of its features."""
        total = ""
        for axis in self.axes:
            part = f"({axis.sql(values[axis.name])})"
            total = f"({total} * {axis.size} + {part})" if total else part
        outside = [f"{values[a.name]} < 0" for a in self.axes if isinstance(a, LevelAxis)]
        return f"CASE WHEN {' OR '.join(outside)} THEN -1 ELSE {total} END" if outside else total


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
        middles = [where[self.cells == k].mean(axis=0) for k in range(self.size)]
        return np.array(middles)


@dataclass(frozen=True)
class Coordinates:
    """A row's features as a point: numbers in [-1, 1], a corner (0 or 1 each) for labels."""

    schema: Schema
    variables: tuple[str, ...]

    @cached_property
    def size(self) -> int:
        return sum(self._width(name) for name in self.variables)

    def _width(self, name: str) -> int:
        domain = self.schema[name]
        return len(domain.labels) if isinstance(domain, Levels) else 1

    def of(self, frame: Mapping[str, Vector | Integers]) -> Matrix:
        """Points, shape (n, size)."""
        return np.hstack([self._of(name, frame[name]) for name in self.variables])

    def _of(self, name: str, values: Vector | Integers) -> Matrix:
        domain = self.schema[name]
        if isinstance(domain, Levels):
            same = values[:, None] == np.arange(len(domain.labels))
            return np.asarray(same, np.float64)
        if isinstance(domain, Interval):
            place = (values - domain.mid) / (0.5 * domain.width)
            return np.asarray(np.clip(place, -1.0, 1.0), np.float64)[:, None]
        return np.asarray(2.0 * values - 1.0, np.float64)[:, None]


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


def number(value: float) -> str:
    """A float as SQL writes it, to the bit: with an exponent it is no decimal."""
    text = repr(float(value))
    return text if "e" in text else f"{text}e0"


def _range(name: str, lo: float, hi: float) -> str:
    return f"{name} in [{lo:.4g}, {hi:.4g}]"


# -- making one ------------------------------------------------------------------------------


def axis_of(name: str, schema: Schema, how: object) -> Axis:
    """An axis: whole numbers are equal parts, sequences of numbers are cut points.

    Columns with labels have one part for each, whatever `how` says ("levels").
    """
    domain = schema[name]
    if isinstance(domain, Levels):
        return LevelAxis(name, domain.labels)
    if isinstance(domain, Binary):
        return LevelAxis(name, (domain.zero, domain.one))
    if isinstance(how, int) and not isinstance(how, bool):
        return RegularAxis(name, domain.lo, domain.hi, how)
    return CutAxis(name, domain.lo, domain.hi, _cuts(name, domain, how))


def _cuts(name: str, domain: Interval, how: object) -> tuple[float, ...]:
    numbers = isinstance(how, Sequence) and not isinstance(how, str)
    cuts = tuple(float(c) for c in how) if numbers else ()  # type: ignore[attr-defined]
    inside = all(domain.lo < c < domain.hi for c in cuts)
    if not cuts or not inside or any(a >= b for a, b in pairwise(cuts)):
        raise SchemaError(
            f"partition[{name!r}]: write a number of equal parts, or increasing cut points "
            f"strictly inside the bounds ({domain.lo:g}, {domain.hi:g}); columns with labels take "
            "'levels'"
        )
    return cuts


def product_of(schema: Schema, parts: Mapping[str, object]) -> Product:
    """All combinations of the parts of these features."""
    made = Product(tuple(axis_of(name, schema, how) for name, how in parts.items()))
    check_size(math.prod(float(axis.size) for axis in made.axes))
    return made


def check_size(cells: float) -> None:
    if cells > MOST_CELLS:
        raise CapabilityError(
            f"a partition of {cells:.3g} cells is too fine: at most {MOST_CELLS} cells; name fewer "
            "features, or partition='kmeans'"
        )
