"""Cleaned covariates of some rows, and cached values of public functions of these covariates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from privcausal.errors import CapabilityError, DataError, warn
from privcausal.features.design import Design, header, labels, numbers, open_frame
from privcausal.request import schema
from privcausal.request.request import Queries
from privcausal.typing import Frame, Integers, Mask, Matrix, Singles, Vector

# Points given by the analyst. They are read like rows, but errors may describe their values.


def read_points(
    design: Design, variables: tuple[str, ...], newdata: Frame, propensity: str | None = None
) -> tuple[Rows, Mask, Any]:
    """Return rows for prediction, a mask of the complete ones, and their index.

    Numbers are clipped to the declared bounds, as in fitting. Columns that do not affect the
    effect may be absent, and so may `propensity`.

    Raises
    ------
    DataError
        If a required column is absent, has an unreadable type, or has an undeclared level.
    """
    import pandas as pd

    frame = open_frame(_typed(newdata))
    size, kinds = frame.shape[0], header(frame).kinds
    cleaned: dict[str, Vector | Integers] = {}
    present = np.ones(size, bool)
    for name in design.variables:
        if kinds.get(name) == "other":
            raise DataError(
                f"Column {name!r} has a type that cannot be read. Convert it to numbers or labels "
                "first."
            )
        if name in variables and name not in kinds:
            raise DataError(
                f"Column {name!r} is required for prediction, but the new data do not have it."
            )
        domain = design.schema[name]
        if name not in kinds:
            cleaned[name] = middle(domain, size)
        elif isinstance(domain, schema.Interval):
            values = numbers(frame[name])
            finite = np.isfinite(values)
            present &= finite
            cleaned[name] = np.clip(np.where(finite, values, domain.mid), domain.lo, domain.hi)
        else:
            codes, texts = labels(frame[name])
            if isinstance(domain, schema.Levels):
                value_of = {label: i for i, label in enumerate(domain.labels)}
            else:
                value_of = dict.fromkeys(domain.zeros, 0) | dict.fromkeys(domain.ones, 1)
            undeclared = any(text not in value_of for text in texts)
            if undeclared and not (isinstance(domain, schema.Levels) and domain.other):
                levels = ", ".join(map(repr, schema.level_names(domain)))
                raise DataError(
                    f"Column {name!r} contains an undeclared level. Declared levels: {levels}."
                )
            other = value_of.get("other", 0)
            lookup = np.array([*(value_of.get(text, other) for text in texts), 0], np.int64)
            binary = isinstance(domain, schema.Binary)
            cleaned[name] = lookup[codes].astype(np.float64) if binary else lookup[codes]
            present &= codes >= 0
    scores = numbers(frame[propensity]) if propensity in frame.columns else None
    index = getattr(newdata, "index", None)
    if not isinstance(index, pd.Index):
        index = pd.RangeIndex(size)
    return Rows(cleaned, size, scores), present, index


def _typed(newdata: Frame) -> Frame:
    """Convert lists to arrays. Unlike rows of a study, new points may be typed by their values.

    A single value applies to all points, as in a data frame made from a dict.
    """
    import pandas as pd

    if not isinstance(newdata, Mapping):
        return newdata
    single = {k for k, v in newdata.items() if isinstance(v, str | bool | int | float | np.generic)}
    listed = [v for k, v in newdata.items() if k not in single and hasattr(v, "__len__")]
    size = max(map(len, listed), default=1)
    whole = {k: [v] * size if k in single else v for k, v in newdata.items()}
    bare = {k for k, v in whole.items() if isinstance(v, Sequence) and not hasattr(v, "dtype")}
    return {k: pd.Series(list(v)).to_numpy() if k in bare else v for k, v in whole.items()}


def warn_beyond(design: Design, newdata: Frame) -> None:
    """Warn of points outside a column's bounds. The points are the analyst's own."""
    frame = open_frame(_typed(newdata))
    domains = {n: d for n in design.variables if isinstance(d := design.schema[n], schema.Interval)}
    for name, domain in domains.items():
        values = numbers(frame[name]) if name in frame.columns else np.zeros(0)
        if ((values < domain.lo) | (values > domain.hi)).any():
            warn(
                f"Points outside the bounds ({domain.lo:g}, {domain.hi:g}) of {name!r} were moved "
                "to the nearest bound. The fit does not extrapolate."
            )


def middle(domain: schema.Domain, size: int) -> Vector | Integers:
    """A value inside the domain, for a column that does not affect the result."""
    if isinstance(domain, schema.Levels):
        return np.zeros(size, np.int64)
    return np.full(size, domain.mid if isinstance(domain, schema.Interval) else 0.0)


MOST_QUERY_POINTS = 5000
"""Maximum number of points in `queries=`."""


def declare_queries(frame: Frame, wanted: tuple[str, ...]) -> Queries:
    """The `wanted` columns (the effect modifiers) of a frame of points.

    Raises
    ------
    DataError, CapabilityError
        If a column is absent, or the number of points is zero or too large.
    """
    table = open_frame(_typed(frame))
    for name in wanted:
        if name not in table.columns:
            raise DataError(f"queries= requires the column {name!r}, which is an effect modifier.")
    if not 1 <= table.shape[0] <= MOST_QUERY_POINTS:
        raise CapabilityError(
            f"queries= must have from 1 to {MOST_QUERY_POINTS:,} points. Omit it to release the "
            "whole function, which you can evaluate at any number of points."
        )
    lists = {name: table[name].to_list() for name in wanted}
    plain = {k: [v.item() if isinstance(v, np.generic) else v for v in lists[k]] for k in wanted}
    return Queries({name: tuple(values) for name, values in plain.items()})


def read_queries(queries: Queries, design: Design) -> Rows:
    """Read the points as rows; raise `DataError` for an undeclared level or a missing value."""
    frame = queries.columns or {"": (0.0,)}
    rows, present, _ = read_points(design, tuple(queries.columns), frame)
    if not present.all():
        raise DataError("queries= has a missing value. Every point requires all effect modifiers.")
    return rows


T = TypeVar("T")
Float = TypeVar("Float", np.float32, np.float64)

FINE_BINS = 256
"""Number of public fine bins over a column's range; basis functions are tables on these bins."""


def looked_up(table: NDArray[Float], bins: Integers, out: NDArray[Float]) -> NDArray[Float]:
    """table[bins], in the mode "clip" because NumPy makes a copy in other modes."""
    return table.take(bins, out=out, mode="clip")


def fine_bins(scaled: Vector) -> Integers:
    """Index of the public fine bin of values in [-1, 1]. A row with NaN has weight zero."""
    position = scaled + 1.0
    position *= FINE_BINS / 2
    position[np.isnan(position)] = FINE_BINS / 2
    np.minimum(position, FINE_BINS - 1, out=position)
    np.maximum(position, 0.0, out=position)
    return position.astype(np.int64)  # rounds toward zero, which is down for these values


CHUNK = 1 << 22
"""Size of a chunk of lasting memory, in singles; large enough that NumPy requests huge pages."""


class Space:
    """Memory reused by one block of rows after another. New memory would be cleared each time.

    A block that sets `taken` to 0 overwrites the arrays of earlier blocks, except arrays that are
    `lasting`.
    """

    def __init__(self) -> None:
        self._buffers: list[NDArray[np.uint8]] = []
        self.taken = 0
        self._chunk = np.empty(0, np.float32)

    def matrix(self, rows: int, columns: int, number: type[Float]) -> NDArray[Float]:
        """An uninitialized Fortran-ordered array."""
        if self.taken == len(self._buffers):
            self._buffers.append(np.empty(0, np.uint8))
        size = rows * columns * np.dtype(number).itemsize
        if len(self._buffers[self.taken]) < size:
            self._buffers[self.taken] = np.empty(size, np.uint8)
        flat = self._buffers[self.taken][:size].view(number)
        self.taken += 1
        return flat.reshape(columns, rows).T

    def lasting(self, rows: int, columns: int) -> Singles:
        """An array that later blocks do not overwrite."""
        size = rows * columns
        if len(self._chunk) < size:
            self._chunk = np.empty(max(CHUNK, size), np.float32)
        taken, self._chunk = self._chunk[:size], self._chunk[size:]
        return taken.reshape(columns, rows).T


Lifetime = Literal["rows", "used", "pass"]
"""How long rows keep a value: always, until a pass makes no use of it, or until a pass ends."""


@dataclass(eq=False, slots=True)
class Cached:
    """A value computed from some rows."""

    objects: tuple[object, ...]  # Of the key, kept so that other objects cannot get their ids
    value: Any
    lifetime: Lifetime
    used: bool = True  # In this pass


Cache = dict[tuple[str | int, ...], Cached]
"""Maps the kind of a value and the ids of some objects to the value."""


@dataclass(eq=False)
class Rows:
    """Cleaned covariates of n rows, with a cache of values computed from them."""

    # Column name to numbers inside their bounds, or to level codes (-1: undeclared level)
    frame: Mapping[str, Vector | Integers] = field(repr=False)
    size: int
    propensity: Vector | None = field(default=None, repr=False)  # The known propensity of each row
    # Store matrices column by column, and cache the values of `keep`. Use it for blocks of rows on
    # which many functions are evaluated. Values are the same.
    by_column: bool = False
    # Memory for large matrices while the rows are in use; see `within`
    space: Space | None = field(default=None, repr=False)
    keeps_matrices: bool = False  # Whether the batch stays in memory, with room for its matrices
    cache: Cache = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return self.size

    def scaled(self, design: Design) -> Matrix:
        """Scaled design columns, shape (n, q)."""
        key = "scaled", id(design)
        if key not in self.cache:
            lifetime: Lifetime = "rows"
            if self._passing(design):
                out, lifetime = self.matrix(len(design), np.float64), "pass"
            else:
                out = np.empty((self.size, len(design)), order="F" if self.by_column else "C")
            values = design.scaled(self.frame, self.size, out)
            self.cache[key] = Cached((design,), values, lifetime)
        return cast(Matrix, self.cache[key].value)

    def with_scaled(self, design: Design, values: Matrix) -> Rows:
        """These rows, with the values of `scaled` for a design."""
        self.cache["scaled", id(design)] = Cached((design,), values, "rows")
        return self

    def column(self, design: Design, column: int) -> Vector:
        """One column of `scaled`, shape (n,)."""
        if not self._passing(design):
            return self.scaled(design)[:, column]
        key = "column", id(design), column
        if key not in self.cache:
            values = design.fill(column, self.frame, np.empty(self.size))
            self.cache[key] = Cached((design,), values, "rows")
        return cast(Vector, self.cache[key].value)

    def _passing(self, design: Design) -> bool:
        """Whether columns are computed for one pass only, so that kept rows use little memory."""
        return self.space is not None and design.plain and ("scaled", id(design)) not in self.cache

    def bins(self, design: Design, column: int) -> Integers:
        """Index of the fine bin of a design column for `looked_up`, shape (n,).

        The upper end of the range may give FINE_BINS, which `looked_up` reads as the last bin.
        """
        key, wide = ("bins", id(design), column), ("wide bins", id(design), column)
        if wide in self.cache:
            return cast(Integers, self.cache[wide].value)
        if key not in self.cache:
            if self._passing(design):
                values = design.fill(column, self.frame, np.empty(self.size))
            else:
                values = self.scaled(design)[:, column]
            narrow: NDArray[np.signedinteger]
            if design.plain:  # values in [-1, 1]: no checks, and little memory
                position = values + 1.0
                position *= FINE_BINS / 2
                narrow = position.astype(np.int16)
            else:
                narrow = fine_bins(values)
            narrow = narrow if self.space is not None else narrow.astype(np.intp)
            self.cache[key] = Cached((design,), narrow, "rows")
        if self.space is None:
            return cast(Integers, self.cache[key].value)
        bins: Integers = self.cache[key].value.astype(np.intp)
        self.cache[wide] = Cached((design,), bins, "pass")
        return bins

    @contextmanager
    def within(self, space: Space) -> Iterator[None]:
        """Put large matrices in `space`. At the end, forget values of a shorter lifetime."""
        self.space, space.taken = space, 0
        try:
            yield
        finally:
            self.space = None
            for key, entry in list(self.cache.items()):
                # A vector is dropped if this pass did not use it; a matrix is not.
                vector = getattr(entry.value, "ndim", 2) == 1
                unused = entry.lifetime == "used" and vector and not entry.used
                if entry.lifetime == "pass" or unused:
                    del self.cache[key]
                entry.used = False

    def parts(self, size: int) -> Iterator[tuple[slice, Rows]]:
        """Pieces of at most `size` rows with their caches, each valid until the next is read.

        All pieces use the same part of the space.
        """
        taken = 0 if self.space is None else self.space.taken
        for start in range(0, self.size, size):
            if self.space is not None:
                self.space.taken = taken
            place = slice(start, min(start + size, self.size))
            scores = None if self.propensity is None else self.propensity[place]
            frame = {name: values[place] for name, values in self.frame.items()}
            rows = place.stop - place.start
            part = Rows(frame, rows, scores, by_column=self.by_column, space=self.space)
            for key, entry in self.cache.items():
                if key[0] in ("scaled", "column", "bins", "wide bins"):
                    part.cache[key] = replace(entry, value=entry.value[place])
            yield place, part

    def matrix(self, columns: int, number: type[Float]) -> NDArray[Float]:
        """An uninitialized Fortran-ordered array for these rows, in single or double precision."""
        if self.space is None:
            return np.empty((self.size, columns), number, order="F")
        return self.space.matrix(self.size, columns, number)

    def kept(self, *objects: object) -> Any:
        """The value that `keep` cached for these objects, or None."""
        entry = self.cache.get(("kept", *map(id, objects)))
        if entry is None:
            return None
        entry.used = True
        return entry.value

    def keep(self, objects: tuple[object, ...], value: T, lifetime: Lifetime = "used") -> T:
        """Cache a value by the identity of `objects`, and return it. Do not write to it.

        Values of the lifetime "pass" are cached only while the rows are `within` a space.
        """
        if self.by_column and (lifetime != "pass" or self.space is not None):
            self.cache["kept", *map(id, objects)] = Cached(objects, value, lifetime)
        return value

    def phi(self, features: Any) -> Matrix:
        """The matrix of some `basis.Features`, shape (n, size)."""
        key = "phi", id(features)
        if key not in self.cache:
            self.cache[key] = Cached((features,), features.of(self), "pass")
        return cast(Matrix, self.cache[key].value)
