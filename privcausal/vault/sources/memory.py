"""The vault's interface to tables, and tables in memory: pandas, polars, pyarrow, or arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, Literal, TypeAlias
from uuid import UUID

import numpy as np

from privcausal.errors import CapabilityError
from privcausal.features import design
from privcausal.request import schema
from privcausal.typing import Frame
from privcausal.vault.batch import RawColumn
from privcausal.vault.guard import Opaque

# Names of units: exact texts, so that no two values of a column become one unit.
#
# Rows belong to one unit if the type of their column says that their values are equal. A column of
# Python objects has a type for each cell. There, values of different kinds are different units:
# `1`, `"1"`, `True`, `1.0` and `Decimal(1)` are five units. Values of one kind are one unit if they
# are equal: `Decimal("1.0")` and `Decimal("1.00")`, or one instant in two time zones. A NumPy or
# pandas scalar has the kind of its corresponding Python type. A member of an Enum is identified by
# its class's name and its own. Labels of a schema, or of a Stata or SPSS file, are never used.
#
# Privacy
# -------
# A name is a function of its own cell and of the column's type. Suppose two units shared a name.
# Then the rows of one unit would decide which rows of the other unit are used, and the number of
# units would reveal information about both. Therefore each text below can be read back into its
# value. None, NaN, NaT and NA do not name a unit, and other types, such as lists, do not either.
# Rows with such values are not used.

MARK = "\x1f"
"""Prefix of each name that is not the unchanged text of a cell."""


def unit_key(value: object, *, mixed: bool = True) -> str | None:
    """The name of a value's unit, as text that a file can hold; None for no unit. Never raises.

    If `mixed`, values of the column may be of several kinds, and names begin with the kind.
    """
    try:
        kind, text = _kind_and_text(value)
    except Exception:  # a value may be any object
        return None
    plain = not mixed or kind == "text" or text is None
    return text if plain else f"{MARK}{kind} {text}"


def text_key(text: str) -> str:
    """The unchanged text, unless it holds half a character or begins with `MARK`."""
    plain = str.__str__(text)  # str() could call a subclass's own method
    try:
        plain.encode()
    except UnicodeEncodeError:
        return f"{MARK}half {plain.encode('utf-8', 'surrogatepass').hex()}"
    return f"{MARK}text {plain}" if plain.startswith(MARK) else plain


def unit_codes(series: Any) -> RawColumn:
    """Codes of a frame's column into the names of units, in order of appearance; -1 is no unit."""
    import narwhals as nw
    import pandas as pd

    native = series.to_native()
    if isinstance(getattr(native, "dtype", None), pd.CategoricalDtype):
        values = list(native.cat.categories)
        codes, mixed = native.cat.codes.to_numpy(), native.cat.categories.dtype == object
        names = [unit_key(value, mixed=mixed) for value in values]
    else:
        values, mixed = design.plain_values(series), design.holds_objects(series)
        if not mixed and series.dtype != nw.Categorical:
            codes, values = design.distinct(values)
            names = [unit_key(value, mixed=mixed) for value in values]
        else:  # A dict treats True as 1, and does not accept lists.
            codes, names = design.distinct([unit_key(value, mixed=mixed) for value in values])
    unit_codes, labels = design.by_label(codes, names, lambda name: name)
    return RawColumn(codes=unit_codes, labels=labels)


# -- the texts of each kind ----------------------------------------------------------------------


def _whole(value: Any) -> str:
    number = int.__int__(value) if isinstance(value, int) else int(value)
    # Python does not write very long numbers in decimal digits.
    return str(number) if number.bit_length() <= 512 else hex(number)


def _decimal(value: Decimal) -> str | None:
    """Sign, digits and exponent: the number itself may be too long to write."""
    sign, digits, exponent = Decimal.as_tuple(value)
    if isinstance(exponent, str):
        return ("inf", "-inf")[sign] if exponent == "F" else None
    written = "".join(map(str, digits))
    short = written.rstrip("0")
    if not short:
        return "0"
    return f"{'-' * sign}{short}e{exponent + len(written) - len(short)}"


def _nanoseconds(value: Any) -> int:
    """Exact nanoseconds of a pandas time, which counts seconds or fractions of seconds."""
    unit, _ = np.datetime_data(value.asm8.dtype)
    return int(value.asm8.astype(np.int64)) * {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]


def _kind_and_text(value: Any) -> tuple[str, str | None]:  # noqa: PLR0912, PLR0915 - a case a kind
    """The kind of a value and its text in this kind, or None if the value does not name a unit.

    The order matters: a Python bool is an int, a datetime is a date, and a NumPy span is an int. Of
    dates, times and UUIDs, only their own libraries' classes count: a subclass may redefine
    equality. Classes of pandas are recognized by name, because importing pandas takes time.
    """
    text: str | None = None
    match value:
        case Enum():
            kind, cls = "enum", type(value)
            if value._name_ is not None:  # flag values that no member has are without a name
                text = repr((cls.__module__, cls.__qualname__, value._name_))
        case str():
            kind, text = "text", text_key(value)
        case bool() | np.bool_():
            kind, text = "bool", str(bool(value))
        case bytes():
            kind, text = "bytes", bytes.hex(value)
        case bytearray():
            kind, text = "bytearray", bytearray.hex(value)
        case np.datetime64() | np.timedelta64():  # a time in days differs from a time in hours
            kind = "numpy"
            if not np.isnat(value):
                text = f"{value.dtype} {int(value.astype(np.int64))}"
        case datetime():  # nanoseconds since 1970, on the UTC clock or without a time zone
            kind, utc = "datetime", "" if value.utcoffset() is None else " UTC"
            if schema.library(value) == "datetime":
                span = value.replace(tzinfo=None, fold=0) - datetime(1970, 1, 1)
                span -= value.utcoffset() or timedelta(0)
                text = f"{span // timedelta(microseconds=1) * 1000}{utc}"
            elif schema.library(value) == "pandas" and value == value:  # noqa: PLR0124 - no NaT
                text = f"{_nanoseconds(value)}{utc}"
        case date():
            kind = "date"
            if schema.library(value) == "datetime":
                text = date.isoformat(value)
        case time():
            kind, utc = "time", "" if value.utcoffset() is None else " UTC"
            if schema.library(value) == "datetime":
                clock = datetime.combine(date(1970, 1, 2), value.replace(tzinfo=None))
                offset = value.utcoffset() or timedelta(0)
                text = f"{clock - datetime(1970, 1, 1) - offset}{utc}"
        case timedelta():
            kind = "timedelta"
            if schema.library(value) == "datetime":
                text = str(value // timedelta(microseconds=1) * 1000)
            elif schema.library(value) == "pandas" and value == value:  # noqa: PLR0124 - no NaT
                text = str(_nanoseconds(value))
        case UUID():
            kind = "uuid"
            if schema.library(value) == "uuid":
                text = f"{value.int:x}"
        case int() | np.integer():
            kind, text = "int", _whole(value)
        case float():
            kind, text = "float", schema.number_key(float.__float__(value))
        case np.floating():  # a long double may be no float
            kind, number = "float", float(value)
            if number == value or np.isnan(number):
                text = schema.number_key(number)
            else:
                text = "/".join(map(_whole, value.as_integer_ratio()))
        case Decimal():
            kind, text = "decimal", _decimal(value)
        case Fraction():
            kind, text = "fraction", "/".join(map(_whole, Fraction.as_integer_ratio(value)))
        case _:
            kind = "pandas"
            name = type(value).__name__ if schema.library(value) == "pandas" else ""
            if name == "Period":
                text = f"Period {value.freqstr} {value.ordinal}"
            elif name == "Interval":
                ends = unit_key(value.left), unit_key(value.right)
                text = None if None in ends else f"Interval {(value.closed, *ends)!r}"
    return kind, text


AsLabels: TypeAlias = bool | Literal["units"]
"""Whether a column is read as labels. "units" reads exact names of units, one for each value."""

Wanted: TypeAlias = Sequence[tuple[str, AsLabels]]
"""Names of columns, and how each is read."""

Blocks: TypeAlias = Iterator[tuple[slice, Mapping[str, RawColumn]]]


class RowSource(Opaque):
    """Private rows, wherever they are stored."""

    __slots__ = ()
    header: schema.Header  # Names and types, the only public part
    # Whether every reading gives the rows in the same order. Parts of the rows, and rows of a unit,
    # are identified by position, so both need a fixed order. If rows stay on Spark's executors,
    # both are identified by the unit's name instead.
    ordered: bool
    held: bool  # Whether all rows are in memory together
    absent: str  # Message if the rows are not available here

    def size(self) -> int:
        """Number of rows. It is private under add_remove, so only the vault may use it."""
        raise NotImplementedError

    def column(self, name: str, *, as_labels: AsLabels) -> RawColumn:
        """A whole column."""
        raise CapabilityError(self.absent)

    def blocks(self, wanted: Wanted, rows: int) -> Blocks:
        """Blocks of at most `rows` rows in order, with the wanted columns."""
        raise CapabilityError(self.absent)

    def typed(self, labels: schema.LabelColumns) -> RowSource:
        """These rows, once it is known which columns hold labels, for a table without types.

        `labels` takes the names of all columns, because a formula may refer to all columns.
        """
        return self

    def close(self) -> None:
        """Close the files opened here to read the rows, but no source that was given."""


class Memory(RowSource):
    """A table held in memory, read column by column as numbers or as labels."""

    __slots__ = ("_cache", "_frame", "_of_units", "_size", "header")
    ordered = True
    held = True

    def __init__(self, data: Frame, of_units: Any = None) -> None:
        self._frame: Any = design.open_frame(data)
        # Units are identified by the values before texts replaced codes.
        self._of_units: Any = self._frame if of_units is None else of_units
        self._size: int = self._frame.shape[0]
        self._cache: dict[tuple[str, AsLabels], RawColumn] = {}
        self.header: schema.Header = design.header(self._frame)

    def size(self) -> int:
        return self._size

    def column(self, name: str, *, as_labels: AsLabels) -> RawColumn:
        key = (name, as_labels)
        if key not in self._cache:
            series = self._frame[name]
            if as_labels == "units":
                self._cache[key] = unit_codes(self._of_units[name])
            elif as_labels:
                codes, texts = design.labels(series)
                self._cache[key] = RawColumn(codes=codes, labels=texts)
            else:
                self._cache[key] = RawColumn(numbers=design.numbers(series))
        return self._cache[key]

    def blocks(self, wanted: Wanted, rows: int) -> Blocks:
        whole = {name: self.column(name, as_labels=as_labels) for name, as_labels in wanted}
        for start in range(0, self._size, rows):
            at = slice(start, min(start + rows, self._size))
            yield at, {name: cut_column(column, at) for name, column in whole.items()}


def cut_column(column: RawColumn, at: slice) -> RawColumn:
    """Some rows of a column, with float64 numbers: created block by block, they stay in cache."""
    if column.numbers is not None:
        return RawColumn(numbers=np.asarray(column.numbers[at], np.float64))
    assert column.codes is not None
    return RawColumn(codes=column.codes[at], labels=column.labels)


def no_rows(wanted: Wanted) -> dict[str, RawColumn]:
    """The wanted columns of a table without rows."""
    codes, numeric = RawColumn(codes=np.zeros(0, np.int64)), RawColumn(numbers=np.zeros(0))
    return {name: codes if as_labels else numeric for name, as_labels in wanted}
