"""What the user declares about the columns: intervals, levels and codings. No row enters here.

A declared domain is public: it decides names, shapes and noise before any row is read.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np

from privcausal.errors import SchemaError
from privcausal.typing import Frame

MAX_WIDTH = 2.0**60
"""An interval must be narrower: beyond it a grid of 2^-11 of the width means nothing."""

LEAST_WIDTH, LEAST_RELATIVE_WIDTH = 2.0**-60, 2.0**-30
"""An interval must be wider than the first, and than the second times its larger end: below, the
squares of moments leave what float64 can hold, or its steps are coarser than the vault's grid."""

OTHER = "other"
"""The level that takes labels nobody declared, where the user asked for one."""

# 0/1 coding: a bool column and a 0/1 column are the same thing to a statistician
_SYNONYMS = {"0": "False", "1": "True", "False": "0", "True": "1"}
_CODINGS = ({"0", "1"}, {"False", "True"})


def label_key(value: object) -> str | None:
    """Canonical text of one label; None if it is missing. Never raises.

    ``None``, NaN, NaT and NA are missing; a bool is ``"True"`` or ``"False"``; a whole
    number of any type (3, 3.0, ``np.int8(3)``, ``Decimal(3)``) is ``"3"``; any other number is
    the repr of its float; bytes are read as UTF-8; dates, times, periods, intervals, UUIDs and
    members of an Enum are written as Python writes them. Halves of characters (lone surrogates)
    are spelt out, ``\\udc80``, since no file takes them.

    A value of any other type (a list, a dict, an object of one's own) is missing. Its text could
    depend on more than the value, as an address in memory does, and to refuse it would tell that
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
    of_pandas = type(value).__module__.partition(".")[0] == "pandas"  # to import it takes its time
    return str(value) if of_pandas and type(value).__name__ in ("Period", "Interval") else None


def _number_key(x: float) -> str | None:
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
    """The text of a date or a time by its library's type; a subclass may have a text of its own."""
    library = type(value).__module__.partition(".")[0] in ("datetime", "numpy", "pandas", "uuid")
    return str(value) if library else None


# in this order: to Python a bool is an int, and to NumPy a time span is one
_TEXTS: tuple[tuple[Any, Callable[[Any], str | None]], ...] = (
    (bool | np.bool_, lambda value: str(bool(value))),
    (str, str.__str__),  # not str(): a subclass may have its own
    (bytes | bytearray, lambda value: bytes(value).decode("utf-8", errors="replace")),
    (date | time | timedelta | np.datetime64 | np.timedelta64 | UUID, _dated),
    (Enum, lambda value: f"{type(value).__name__}.{value.name}"),
    (int | np.integer, lambda value: str(int(value))),
    (float | np.floating | Decimal | Fraction, lambda value: _number_key(float(value))),
)
"""Types of values whose text says what they are and nothing else, and how it is written."""


@dataclass(frozen=True)
class Interval:
    """Every number from `lo` to `hi`; values outside are cut to it.

    Raises
    ------
    SchemaError
        Unless both are finite numbers, ``lo < hi`` and ``2**-60 < hi - lo < 2**60``, and the
        width is more than ``2**-30`` of the larger end.
    """

    lo: float
    hi: float

    def __post_init__(self) -> None:
        problem = _interval_problem(self.lo, self.hi)
        if problem:
            raise SchemaError(f"Interval: {problem}")
        object.__setattr__(self, "lo", float(self.lo))
        object.__setattr__(self, "hi", float(self.hi))

    @property
    def width(self) -> float:
        return self.hi - self.lo

    @property
    def mid(self) -> float:
        return self.lo + self.width / 2


def least_width(lo: float, hi: float) -> float:
    """An interval between numbers of this size must be wider."""
    return max(LEAST_WIDTH, LEAST_RELATIVE_WIDTH * max(abs(lo), abs(hi)))


@dataclass(frozen=True, init=False)
class Levels:
    """The labels a column may hold, in order; the first is the reference.

    Parameters
    ----------
    values
        Labels, read by `label_key`: 1, 1.0 and "1" are one label.
    other
        Whether labels that are not declared form a level of their own, "other", last in
        `labels`. Declaring "other" among the values says the same.

    Raises
    ------
    SchemaError
        No label, a missing one, or two that read alike.
    """

    values: tuple[str, ...]
    other: bool

    def __init__(self, values: object, other: bool = False) -> None:
        problem = _levels_problem(values, other)
        if problem:
            raise SchemaError(f"Levels: {problem}")
        keys = _keys(values)
        object.__setattr__(self, "values", tuple(k for k in keys if k != OTHER))
        object.__setattr__(self, "other", other or OTHER in keys)

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.values, OTHER) if self.other else self.values


@dataclass(frozen=True, init=False, repr=False)
class Binary:
    """Two labels, read as 0 and 1: ``Binary(["No RHC", "RHC"], ref="No RHC")``.

    Parameters
    ----------
    labels
        The label of 0, then that of 1.
    ref
        The label that means 0, if it is not the first.

    Attributes
    ----------
    labels : tuple of two str, or None
        None is the 0/1 coding.

    Notes
    -----
    ``Binary()`` is the 0/1 coding. It accepts bool, 0 and 1, 0.0 and 1.0, and the texts
    "0", "1", "True" and "False"; ``Binary([0, 1])`` and ``Binary([False, True])`` are the
    same. Any other pair accepts these two labels only. What is not accepted is missing.
    """

    labels: tuple[str, str] | None

    def __init__(self, labels: object = (0, 1), ref: object = None) -> None:
        problem = _binary_problem(labels, ref)
        if problem:
            raise SchemaError(f"Binary: {problem}")
        zero, one = _keys(labels)
        if ref is not None and label_key(ref) == one:
            zero, one = one, zero
        coded = (zero, one) in (("0", "1"), ("False", "True"))
        object.__setattr__(self, "labels", None if coded else (zero, one))

    def __repr__(self) -> str:
        return "Binary()" if self.labels is None else f"Binary({list(self.labels)!r})"

    @property
    def zero(self) -> str:
        return "0" if self.labels is None else self.labels[0]

    @property
    def one(self) -> str:
        return "1" if self.labels is None else self.labels[1]

    @property
    def zeros(self) -> tuple[str, ...]:
        """The label keys read as 0."""
        return self._spellings(self.zero)

    @property
    def ones(self) -> tuple[str, ...]:
        """The label keys read as 1."""
        return self._spellings(self.one)

    def _spellings(self, key: str) -> tuple[str, ...]:
        # also where the coding is turned round, Binary([0, 1], ref=1)
        coded = {self.zero, self.one} in _CODINGS
        return (key, _SYNONYMS[key]) if coded else (key,)


Domain: TypeAlias = Interval | Levels | Binary


@dataclass(frozen=True, init=False, repr=False)
class Schema:
    """The declared domain of each column, by name; frozen and free of data.

    Parameters
    ----------
    columns
        Per column: ``(18, 95)`` for an interval, ``["N", "S"]`` for levels, an `Interval`,
        `Levels` or `Binary`, or, as in a TOML or JSON file, ``{"lo": 18, "hi": 95}`` or
        ``{"labels": ["N", "S"], "ref": "N"}`` (two labels with a `ref` are a `Binary`, more
        are levels with that one first) or ``{"labels": ["N", "S"], "other": true}``. The
        lists ``[0, 1]`` and ``[False, True]`` are the 0/1 coding; any other list of two
        numbers is refused, because it could mean either.
    complete
        The declaration that no value of any used column can be missing.

    Raises
    ------
    SchemaError
        Naming the column, what is wrong with it and what to write.
    """

    domains: tuple[tuple[str, Domain], ...]
    complete: bool

    def __init__(self, columns: Mapping[str, Any] | None = None, complete: bool = False) -> None:
        if not isinstance(columns, Mapping | None):
            raise SchemaError(
                f"bounds must be a dict of column name to domain, not {_kind(columns)}: "
                "write bounds={'age': (18, 95), 'region': ['N', 'S']}"
            )
        if not isinstance(complete, bool):
            raise SchemaError("complete must be True or False")
        pairs = tuple((_column(name), _domain(name, v)) for name, v in (columns or {}).items())
        object.__setattr__(self, "domains", pairs)
        object.__setattr__(self, "complete", complete)

    @classmethod
    def of(cls, bounds: object) -> Schema:
        """A schema from what `bounds=` takes: None, a dict or a schema."""
        return bounds if isinstance(bounds, Schema) else cls(bounds)  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Schema:
        """The inverse of `to_dict`."""
        if not isinstance(content, Mapping) or not set(content) <= {"bounds", "complete"}:
            raise SchemaError('a saved schema is a dict with "bounds" and "complete" only')
        return cls(content.get("bounds", {}), complete=content.get("complete", False))

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Schema:
        """A schema from the table ``[bounds]`` and the key ``complete`` of a TOML file.

        TOML has no tuples, so an array of two numbers is an interval there. Other tables
        of the file are ignored.
        """
        content = _read_toml(path)
        bounds = content.get("bounds", {})
        if not isinstance(bounds, dict):
            raise SchemaError("bounds must be a table of the TOML file: write [bounds]")
        if isinstance(bounds.get("complete"), bool):
            raise SchemaError("'complete' is no column: write it above [bounds], not below")
        pairs = {name: tuple(v) if _two_numbers(v) else v for name, v in bounds.items()}
        return cls(pairs, complete=content.get("complete", False))

    @classmethod
    def from_dtypes(cls, frame: Frame, /, **bounds: Any) -> Schema:
        """A schema from the category, enum and bool dtypes of a frame.

        Calling this is a declaration: **the categories of these columns become public.**
        A category dtype usually holds the labels that were *observed*
        (``astype("category")``), so use it only where the list of labels is known to all
        anyway. Numeric and text columns are never read. Keywords declare further columns,
        and replace what the dtype says.
        """
        found = dict(_dtype_domains(frame))
        return cls({**found, **bounds})

    @property
    def columns(self) -> dict[str, Domain]:
        """A fresh dict of the declared domains, in the order declared."""
        return dict(self.domains)

    def __getitem__(self, name: str) -> Domain:
        domain = self.get(name)
        if domain is None:
            known = ", ".join(self) or "none"
            raise SchemaError(f"column {name!r} has no declared domain; declared: {known}")
        return domain

    def get(self, name: str, default: Domain | None = None) -> Domain | None:
        return self.columns.get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.domains)

    def __repr__(self) -> str:
        return f"Schema({self.columns!r}, complete={self.complete})"

    def with_columns(self, columns: Mapping[str, Any]) -> Schema:
        """A new schema with these columns added or replaced."""
        return Schema({**self.columns, **Schema(columns).columns}, complete=self.complete)

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and text, ready for JSON."""
        bounds = {name: _plain(domain) for name, domain in self.domains}
        return {"bounds": bounds, "complete": self.complete}


# Spellings: each reader answers for one kind of thing a user may write for a column.


def _domain(name: str, value: Any) -> Domain:
    if isinstance(value, Interval | Levels | Binary):
        return value
    if isinstance(value, Mapping):
        return _from_mapping(name, value)
    if isinstance(value, tuple) and any(isinstance(v, numbers.Real) for v in value):
        return _interval(name, value)
    if _is_coding(value):
        return Binary(value)
    if _two_numbers(value):
        raise _ambiguous(name, *value)
    if isinstance(value, tuple | list | range):
        _check(name, _quoted_numbers(value) or _levels_problem(value))
        return Levels(value)
    raise SchemaError(
        f"bounds[{name!r}]: {_kind(value)} is no domain; "
        "write (lo, hi) for numbers or ['a', 'b'] for labels"
    )


def _interval(name: str, value: tuple[Any, ...]) -> Interval:
    if len(value) != 2:
        raise SchemaError(
            f"bounds[{name!r}]: an interval is a pair (lo, hi), not {len(value)} values; "
            "for labels write a list, [1, 2, 3]"
        )
    _check(name, _interval_problem(*value))
    return Interval(*value)


def _ambiguous(name: str, *ends: Any) -> SchemaError:
    lo, hi = map(label_key, ends)
    # as levels, every other number would silently be missing; as an interval, a label
    # would silently become a number: so neither is guessed
    return SchemaError(
        f"bounds[{name!r}]: the list [{lo}, {hi}] could be an interval or two labels; "
        f"write ({lo}, {hi}) for the interval, ['{lo}', '{hi}'] for the labels"
    )


def _from_mapping(name: str, value: Mapping[str, Any]) -> Domain:
    keys = set(value)
    if keys == {"lo", "hi"}:
        _check(name, _interval_problem(value["lo"], value["hi"]))
        return Interval(value["lo"], value["hi"])
    if "labels" in keys and keys <= {"labels", "ref", "other"}:
        return _labelled(name, value["labels"], value.get("ref"), value.get("other", False))
    raise SchemaError(
        f"bounds[{name!r}]: a table has the keys lo and hi, or labels (with ref, other); "
        "write {'lo': 18, 'hi': 95} or {'labels': ['a', 'b'], 'ref': 'a'}"
    )


def _labelled(name: str, labels: Any, ref: Any, other: Any) -> Domain:
    _check(name, _levels_problem(labels, other))
    if ref is None:
        return Levels(labels, other)
    _check(name, _ref_problem(_keys(labels), ref))
    if len(labels) == 2 and not other:
        return Binary(labels, ref)
    first = label_key(ref)
    return Levels([first, *(k for k in _keys(labels) if k != first)], other)


def _plain(domain: Domain) -> dict[str, Any]:
    if isinstance(domain, Interval):
        return {"lo": domain.lo, "hi": domain.hi}
    if isinstance(domain, Binary):
        return {"labels": [domain.zero, domain.one], "ref": domain.zero}
    return {"labels": list(domain.values), "other": domain.other}


def _check(name: str, problem: str | None) -> None:
    if problem:
        raise SchemaError(f"bounds[{name!r}]: {problem}")


def _column(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise SchemaError(
            f"column {label_key(name)!r}: a name must be text and not empty; rename the column"
        )
    return str(name)


# What is wrong, in words, or None. Labels are told by position: they may be observed ones.


def _interval_problem(lo: Any, hi: Any) -> str | None:
    if not (_is_number(lo) and _is_number(hi)):
        kinds = " and ".join(_kind(v) for v in (lo, hi))
        return f"an interval needs two numbers, not {kinds}; write (0, 1), or Binary() for bool"
    low, high = _float(lo), _float(hi)
    pair = f"({_number_key(low)}, {_number_key(high)})"
    if not (math.isfinite(low) and math.isfinite(high)):
        return "an end is not finite; write the widest range that is possible, such as (0, 120)"
    if low == high:
        return f"both ends of {pair} are the same; write lo < hi, or leave out a constant column"
    if low > high:
        return f"{pair} is reversed; write ({_number_key(high)}, {_number_key(low)})"
    if not least_width(low, high) < high - low < MAX_WIDTH:
        narrow = high - low < MAX_WIDTH
        problem = "too narrow to be told from a point" if narrow else "wider than 2**60"
        return f"{pair} is {problem}; shift the column or change its unit"
    return None


def _levels_problem(values: Any, other: Any = False) -> str | None:
    if not isinstance(values, tuple | list | range):
        return f"labels must be a list, not {_kind(values)}; write ['a', 'b']"
    if not isinstance(other, bool):
        return "other must be True or False"
    if not values and not other:
        return "there is no level; write at least one label, ['a', 'b']"
    seen: dict[str, int] = {}
    for place, key in enumerate(map(label_key, values), start=1):
        if key is None:
            return f"label {place} is missing (None or NaN); leave it out"
        if key in seen:
            return f"labels {seen[key]} and {place} read alike; write each label once"
        seen[key] = place
    return None


def _binary_problem(labels: Any, ref: Any) -> str | None:
    problem = _levels_problem(labels)
    if problem:
        return problem
    if len(labels) != 2:
        return f"there are {len(labels)} labels; write two, the one for 0 first: ['no', 'yes']"
    return None if ref is None else _ref_problem(_keys(labels), ref)


def _ref_problem(keys: tuple[str, ...], ref: Any) -> str | None:
    if label_key(ref) in keys:
        return None
    known = ", ".join(map(repr, keys[:10]))
    return f"ref={label_key(ref)!r} is not among the labels; write one of {known}"


def _quoted_numbers(values: Any) -> str | None:
    if not (isinstance(values, tuple) and len(values) == 2):
        return None
    if not all(isinstance(v, str) and _is_numeral(v) for v in values):
        return None
    lo, hi = values
    return f"the ends are text; write ({lo}, {hi}), or ['{lo}', '{hi}'] for two labels"


def _is_numeral(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_coding(value: object) -> bool:
    pair = (
        isinstance(value, list) and len(value) == 2 and not any(isinstance(v, str) for v in value)
    )
    return pair and set(_keys(value)) in _CODINGS


def _two_numbers(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))


def _is_number(value: object) -> bool:
    # a bool is an int to Python, but True is no bound
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _keys(values: Any) -> tuple[str, ...]:
    return tuple(key for key in map(label_key, values) if key is not None)


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


def _read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    import tomllib

    if not isinstance(path, str | os.PathLike):
        raise SchemaError(f"the path of a TOML file must be text, not {_kind(path)}")
    trouble = "is not valid TOML"
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError:
        trouble = "cannot be read"
    except ValueError:  # bad syntax, bad UTF-8, a null byte in the path
        pass
    # raised here, not in the handler, so that no foreign exception hangs on it
    raise SchemaError(f"{os.fspath(path)!r} {trouble}; give a file with a table [bounds]")


# dtypes, for `Schema.from_dtypes` only


def _dtype_domains(frame: Frame) -> Iterator[tuple[str, Domain]]:
    import narwhals as nw

    for name, dtype, labels in _dtypes(frame):
        if dtype == nw.Boolean:
            yield _column(name), Binary()
        elif labels:
            yield _column(name), _labelled(name, list(labels), None, False)


def _dtypes(frame: Frame) -> Iterator[tuple[str, Any, Any]]:
    """Name, dtype and categories (None unless category or enum) of each column."""
    import narwhals as nw

    if isinstance(frame, Mapping):
        for name, column in frame.items():
            yield from _array_dtype(name, column)
        return
    table = nw.from_native(frame, pass_through=True)
    if not isinstance(table, nw.DataFrame | nw.LazyFrame):
        del table  # a traceback shows what is here
        raise SchemaError(f"dtypes cannot be read from {_kind(frame)}; give a data frame")
    for name, dtype in table.collect_schema().items():
        if dtype == nw.Categorical and isinstance(table, nw.LazyFrame):
            raise SchemaError(
                f"column {name!r}: a lazy frame does not tell its categories; declare them: "
                f"bounds={{{name!r}: [...]}}"
            )
        yield name, dtype, _categories(table[name]) if dtype == nw.Categorical else _enum(dtype)


def _array_dtype(name: str, column: Any) -> Iterator[tuple[str, Any, Any]]:
    import narwhals as nw

    series = nw.from_native(column, series_only=True, allow_series=True, pass_through=True)
    if isinstance(series, nw.Series):
        categorical = series.dtype == nw.Categorical
        yield name, series.dtype, _categories(series) if categorical else _enum(series.dtype)
    elif getattr(column, "dtype", None) == np.bool_:
        yield name, nw.Boolean, None


def _enum(dtype: Any) -> Any:
    return getattr(dtype, "categories", None)


def _categories(series: Any) -> list[str]:
    declared = getattr(getattr(series.to_native(), "cat", None), "categories", None)
    if declared is not None:  # pandas keeps the whole list, in order
        return list(declared)
    import narwhals as nw

    # sorted, so that the order of the rows does not show
    return sorted(series.drop_nulls().cast(nw.String).unique().to_list())
