"""What is public of a table before any release, its header; and how a label is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, Literal
from uuid import UUID

import numpy as np

from privcausal.errors import DataError, SchemaError
from privcausal.typing import Frame

Kind = Literal["numeric", "bool", "text", "other"]


NO_SUCH_FIELD = (
    "is not in the first line of the CSV file, which must hold the names of the columns, with "
    "commas between them. Those it holds are not shown: without a header they are a row"
)

LabelColumns = Callable[[Sequence[str]], Mapping[str, frozenset[str]]]
"""From the names of all columns to those that hold labels, with the labels declared for each."""


@dataclass(frozen=True, slots=True)
class Header:
    """Column names and data types."""

    kinds: Mapping[str, Kind]
    objects: frozenset[str] = frozenset()
    """Text columns of Python objects: they may hold numbers too (decimals, say)."""
    untyped: bool = False
    """Whether names and values are both texts, as in a CSV file. If such a file has no header, its
    first row stands in for one: messages quote only names that the caller wrote."""
    integers: frozenset[str] = frozenset()
    """Numeric columns of an integer type."""
    inexact: frozenset[str] = frozenset()
    """Columns that are read as floats, though their type tells more numbers apart."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.kinds)

    def refuse_unknown(self, name: str) -> None:
        """Raise `DataError` if there is no such column."""
        if name in self.kinds:
            return
        if self.untyped:
            raise DataError(f"column {name!r} {NO_SUCH_FIELD}")
        known = ", ".join(map(repr, self.names[:20]))
        raise DataError(f"column {name!r} is not in the data; they have {known}")


def dtype_labels(frame: Frame) -> Iterator[tuple[str, list[Any] | None]]:
    """Columns of a category or enum dtype with their labels, and bool columns with None."""
    import narwhals as nw

    if isinstance(frame, Mapping):
        for name, column in frame.items():
            series = nw.from_native(column, series_only=True, allow_series=True, pass_through=True)
            if isinstance(series, nw.Series):
                yield from _labels(name, series.dtype, series)
            elif getattr(column, "dtype", None) == np.bool_:
                yield name, None
        return
    table = nw.from_native(frame, pass_through=True)
    if not isinstance(table, nw.DataFrame | nw.LazyFrame):
        del table  # a traceback shows what is here
        raise SchemaError(f"dtypes cannot be read from {kind_of(frame)}; give a data frame")
    for name, dtype in table.collect_schema().items():
        read = dtype == nw.Categorical and isinstance(table, nw.DataFrame)
        yield from _labels(name, dtype, table[name] if read else None)


def _labels(name: str, dtype: Any, series: Any) -> Iterator[tuple[str, list[Any] | None]]:
    import narwhals as nw

    if dtype == nw.Boolean:
        yield name, None
    elif dtype != nw.Categorical:
        if getattr(dtype, "categories", None):
            yield name, list(dtype.categories)
    elif series is None:
        raise SchemaError(
            f"column {name!r}: a lazy frame does not tell its categories; declare them: "
            f"bounds={{{name!r}: [...]}}"
        )
    elif hasattr(native := series.to_native(), "cat") and hasattr(native.cat, "categories"):
        yield name, list(native.cat.categories)  # pandas keeps the whole list, in order
    else:  # sorted, so that the order of the rows does not show
        yield name, sorted(series.drop_nulls().cast(nw.String).unique().to_list())


def kind_of(value: object) -> str:
    """The type of a value, for a message that must not show the value itself."""
    return "None" if value is None else f"a value of type {type(value).__name__}"


def label_key(value: object) -> str | None:
    """Canonical text of one label; None if it is missing. Never raises.

    ``None``, NaN, NaT and NA are missing. A bool is ``"True"`` or ``"False"``. A whole number of
    any type (3, 3.0, ``np.int8(3)``, ``Decimal(3)``) is ``"3"``; any other number is the repr of
    its float. Bytes are decoded as UTF-8. Dates, times, periods, intervals, UUIDs and members of an
    Enum are written as Python writes them. Lone surrogates are escaped, ``\\udc80``, since no
    file can hold them.

    A value of any other type (a list, a dict, an object of one's own) is missing. Its text could
    depend on more than the value, such as an address in memory, and an error would reveal that
    such a row exists.
    """
    try:
        key = _key(value)
        return key if key is None else key.encode("utf-8", "backslashreplace").decode("utf-8")
    except Exception:
        return None


def _key(value: Any) -> str | None:
    if _is_missing(value):
        return None
    for kinds, text in _TEXTS:
        if isinstance(value, kinds):
            return text(value)
    # by name, since importing pandas takes time
    known = type(value).__name__ in ("Period", "Interval") and library(value) == "pandas"
    return str(value) if known else None


def library(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def number_key(x: float) -> str | None:
    if math.isnan(x):
        return None
    return str(int(x)) if x.is_integer() else repr(x)


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    # NaT differs from itself, and NA answers NA
    unequal = value != value  # noqa: PLR0124
    return bool(unequal) if isinstance(unequal, bool | np.bool_) else unequal is value


def _dated(value: Any) -> str | None:
    # a subclass may have a text of its own
    return str(value) if library(value) in ("datetime", "numpy", "pandas", "uuid") else None


# in this order: to Python a bool is an int, and to NumPy a time span is one
_TEXTS: tuple[tuple[Any, Callable[[Any], str | None]], ...] = (
    (bool | np.bool_, lambda value: str(bool(value))),
    (str, str.__str__),  # not str(): a subclass may have its own
    (bytes | bytearray, lambda value: bytes(value).decode("utf-8", errors="replace")),
    (date | time | timedelta | np.datetime64 | np.timedelta64 | UUID, _dated),
    (Enum, lambda value: f"{type(value).__name__}.{value.name}"),
    (int | np.integer, lambda value: str(int(value))),
    (float | np.floating | Decimal | Fraction, lambda value: number_key(float(value))),
)
"""Types whose text depends on the value alone, and how it is written."""
