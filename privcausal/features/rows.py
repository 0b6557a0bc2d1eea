"""Cleaned covariates of some rows, and what public maps make of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from privcausal.features.design import Design
from privcausal.typing import Integers, Matrix, Singles, Vector

T = TypeVar("T")
Float = TypeVar("Float", np.float32, np.float64)

FINE = 256
"""Public fine bins over a column's range; basis functions are tables on them."""


def looked_up(table: NDArray[Float], bins: Integers, out: NDArray[Float]) -> NDArray[Float]:
    """table[bins]; in any mode but "clip" NumPy would make a copy."""
    return table.take(bins, out=out, mode="clip")


def _places(scaled: Vector) -> Any:
    """`fine_bins` of values surely in [-1, 1], in little memory; 1 itself gives FINE."""
    position = scaled + 1.0
    position *= FINE / 2
    return position.astype(np.int16)


def fine_bins(scaled: Vector) -> Integers:
    """Index of the public fine bin of values in [-1, 1]; a row with NaN has weight zero."""
    position = scaled + 1.0
    position *= FINE / 2
    position[np.isnan(position)] = FINE / 2
    np.minimum(position, FINE - 1, out=position)
    np.maximum(position, 0.0, out=position)
    return position.astype(np.int64)  # towards zero, which is down here


class Features(Protocol):
    """A vector of `size` functions of a row, with weights that keep its norm below `cut`."""

    @property
    def size(self) -> int: ...

    @property
    def cut(self) -> float: ...

    def of(self, rows: Rows) -> Matrix: ...

    def weight(self, phi: Matrix) -> Vector: ...


CHUNK = 1 << 22
"""Singles in a piece of lasting memory: so many that NumPy asks for huge pages."""


class Space:
    """Memory for one block of rows after another: new memory would be cleared each time.

    A block that sets `taken` to 0 overwrites what earlier ones had in it, except arrays that are
    `lasting`.
    """

    def __init__(self) -> None:
        self._buffers: list[NDArray[np.uint8]] = []
        self.taken = 0
        self._chunk = np.empty(0, np.float32)

    def matrix(self, rows: int, columns: int, number: type[Float]) -> NDArray[Float]:
        """An uninitialised Fortran-ordered array."""
        if self.taken == len(self._buffers):
            self._buffers.append(np.empty(0, np.uint8))
        size = rows * columns * np.dtype(number).itemsize
        if len(self._buffers[self.taken]) < size:
            self._buffers[self.taken] = np.empty(size, np.uint8)
        flat = self._buffers[self.taken][:size].view(number)
        self.taken += 1
        return flat.reshape(columns, rows).T

    def lasting(self, rows: int, columns: int) -> Singles:
        """An array that no other block overwrites."""
        size = rows * columns
        if len(self._chunk) < size:
            self._chunk = np.empty(max(CHUNK, size), np.float32)
        own, self._chunk = self._chunk[:size], self._chunk[size:]
        return own.reshape(columns, rows).T


Remembered = dict[tuple[int, ...], tuple[tuple[object, ...], Any]]
"""By the ids of some objects: the objects, and their value on some rows."""


@dataclass(eq=False)
class Rows:
    """Cleaned covariates of n rows, which cache what is computed from them.

    Attributes
    ----------
    frame : mapping
        Column name to numbers inside their bounds, or to level codes (-1: undeclared level).
    size : int
    propensity : Vector, optional
        The known propensity of each row.
    by_column : bool
        Store matrices column by column, and cache what `memo` makes: for blocks of rows on which
        many functions are evaluated. Values are the same.
    space : Space, optional
        Where large matrices are while the rows are worked on; see `within`.
    before : mapping
        What `remembered` gave when the same rows were read before.
    keeps_matrices : bool
        Whether the batch stays in memory, with room for its matrices.
    """

    frame: Mapping[str, Vector | Integers] = field(repr=False)
    size: int
    propensity: Vector | None = field(default=None, repr=False)
    _scaled: dict[Design, Matrix] = field(default_factory=dict, repr=False)
    _phi: dict[Features, Matrix] = field(default_factory=dict, repr=False)
    by_column: bool = False
    space: Space | None = field(default=None, repr=False)
    _bins: dict[tuple[Design, int], Integers] = field(default_factory=dict, repr=False)
    _places: dict[tuple[Design, int], Integers] = field(default_factory=dict, repr=False)
    _columns: dict[tuple[Design, int], Vector] = field(default_factory=dict, repr=False)
    _made: Remembered = field(default_factory=dict, repr=False)
    _asked: set[tuple[int, ...]] = field(default_factory=set, repr=False)
    _brief: Remembered = field(default_factory=dict, repr=False)
    before: Remembered = field(default_factory=dict, repr=False)
    keeps_matrices: bool = False

    def __len__(self) -> int:
        return self.size

    def scaled(self, design: Design) -> Matrix:
        if design in self._scaled:
            return self._scaled[design]
        if self._passing(design):
            return self.scratch(
                (design,), lambda: design.into(self.matrix(len(design)), self.frame)
            )
        if self.by_column:
            out = np.empty((self.size, len(design)), order="F")
            self._scaled[design] = design.into(out, self.frame)
        else:
            self._scaled[design] = design.scaled(self.frame, self.size)
        return self._scaled[design]

    def column(self, design: Design, column: int) -> Vector:
        """One column of `scaled`, shape (n,)."""
        if not self._passing(design):
            return self.scaled(design)[:, column]
        key = design, column
        if key not in self._columns:
            self._columns[key] = design.one(column, self.frame, np.empty(self.size))
        return self._columns[key]

    def _passing(self, design: Design) -> bool:
        """Whether columns are made for one pass only, so that kept rows take little memory."""
        return self.space is not None and design.plain and design not in self._scaled

    def bins(self, design: Design, column: int) -> Integers:
        """Index of the fine bin of a design column for `looked_up`, shape (n,).

        The upper end of the range may give FINE, which is looked up as the last bin.
        """
        key = design, column
        if key not in self._bins:
            if self._passing(design):
                own = design.one(column, self.frame, np.empty(self.size))
            else:
                own = self.scaled(design)[:, column]
            self._bins[key] = _places(own) if design.plain else fine_bins(own)
            if self.space is None:
                self._bins[key] = self._bins[key].astype(np.intp)
        if self.space is None:
            return self._bins[key]
        if key not in self._places:
            self._places[key] = self._bins[key].astype(np.intp)
        return self._places[key]

    @contextmanager
    def within(self, space: Space) -> Iterator[None]:
        """Work with large matrices in `space`; they and what `scratch` keeps are then forgotten."""
        self.space, space.taken = space, 0
        try:
            yield
        finally:
            self.space = None
            self._phi.clear()
            self._brief.clear()
            self._places.clear()
            # vectors that this pass did not ask for are dropped
            self._made = {
                key: one
                for key, one in self._made.items()
                if key in self._asked or getattr(one[1], "ndim", 2) > 1
            }
            self._asked.clear()

    def parts(self, size: int) -> Iterator[tuple[slice, Rows]]:
        """Pieces of at most `size` rows with their caches, each valid until the next.

        All use the same part of the space.
        """
        taken = 0 if self.space is None else self.space.taken
        for start in range(0, self.size, size):
            if self.space is not None:
                self.space.taken = taken
            at = slice(start, min(start + size, self.size))
            yield at, self._part(at)

    def _part(self, at: slice) -> Rows:
        known = None if self.propensity is None else self.propensity[at]
        frame = {name: values[at] for name, values in self.frame.items()}
        part = Rows(frame, at.stop - at.start, known, by_column=self.by_column, space=self.space)
        part._scaled = {design: values[at] for design, values in self._scaled.items()}
        part._columns = {key: values[at] for key, values in self._columns.items()}
        part._bins = {key: self.bins(*key)[at] for key in self._bins}
        part._places = part._bins if self.space is not None else {}
        return part

    def matrix(self, columns: int) -> Matrix:
        """An uninitialised Fortran-ordered array of these rows."""
        if self.space is None:
            return np.empty((self.size, columns), order="F")
        return self.space.matrix(self.size, columns, np.float64)

    def singles(self, columns: int) -> Singles:
        """The same in single precision."""
        if self.space is None:
            return np.empty((self.size, columns), np.float32, order="F")
        return self.space.matrix(self.size, columns, np.float32)

    def lasting(self, columns: int) -> Singles:
        """The same, to be kept with the rows."""
        if self.space is None:
            return self.singles(columns)
        return self.space.lasting(self.size, columns)

    def memo(self, objects: tuple[object, ...], make: Callable[[], T]) -> T:
        """make(), cached by the identity of `objects`. Do not write to the result."""
        if not self.by_column:
            return make()
        key = tuple(map(id, objects))
        self._asked.add(key)
        if key not in self._made:
            # the objects are kept too, so that no others can get their ids
            self._made[key] = self.before[key] if key in self.before else (objects, make())
        return cast(T, self._made[key][1])

    def scratch(self, objects: tuple[object, ...], make: Callable[[], T]) -> T:
        """The same, cached only while the rows are `within` a space."""
        if self.space is None:
            return make()
        key = tuple(map(id, objects))
        if key not in self._brief:
            self._brief[key] = objects, make()
        return cast(T, self._brief[key][1])

    def store(self, objects: tuple[object, ...], value: object) -> None:
        """Let `memo` give this value for these objects."""
        self.memo(objects, lambda: value)

    def has(self, objects: tuple[object, ...]) -> bool:
        """Whether `memo` has it (or caches nothing)."""
        key = tuple(map(id, objects))
        return not self.by_column or key in self._made or key in self.before

    def remembered(self) -> Remembered:
        """The arrays that `memo` made of these rows."""
        return {key: one for key, one in self._made.items() if isinstance(one[1], np.ndarray)}

    def phi(self, features: Features) -> Matrix:
        if features not in self._phi:
            self._phi[features] = features.of(self)
        return self._phi[features]
