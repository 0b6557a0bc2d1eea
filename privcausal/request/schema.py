"""Declared domains of columns: an interval, levels, or a 0/1 coding.

Declared domains are public. They fix names, shapes and noise before any row is read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, Literal, TypeAlias
from uuid import UUID

import numpy as np

from privcausal.errors import SchemaError, Strict, as_plain, is_number, named
from privcausal.typing import Frame

# The header of a table, which is public before any release, and the reading of labels.

ColumnKind = Literal["numeric", "bool", "text", "other"]

NO_SUCH_FIELD = (
    "is not in the first line of the CSV file. This line must contain the column names, separated "
    "by commas. It is not shown here, because without a header it would be a row of data."
)

LabelColumns = Callable[[Sequence[str]], Mapping[str, frozenset[str]]]
"""Maps the names of all columns to the columns of labels and the labels declared for each."""


@dataclass(frozen=True, slots=True)
class Header:
    """Column names and data types."""

    kinds: Mapping[str, ColumnKind]
    objects: frozenset[str] = frozenset()
    """Text columns that may hold numbers: Python objects, such as decimals, and categories."""
    untyped: bool = False
    """Whether names and values are both texts, as in a CSV file. If such a file has no header, its
    first row is read as the header. Messages therefore quote only names that the caller wrote."""
    integers: frozenset[str] = frozenset()
    """Numeric columns of an integer type."""
    inexact: frozenset[str] = frozenset()
    """Columns that are read as floats although their type is more precise."""
    advice: Mapping[str, str] = field(default_factory=dict)
    """What to do about names that are not readable columns: sparse columns, levels of an index, and
    names of folders."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.kinds)


def _labels(name: str, dtype: Any, series: Any) -> Iterator[tuple[str, list[Any] | None]]:
    """Yield a category or enum column with its labels, and a bool column with None."""
    import narwhals as nw

    if dtype == nw.Boolean:
        yield name, None
    elif dtype != nw.Categorical:
        if getattr(dtype, "categories", None):
            yield name, list(dtype.categories)
    elif series is None:
        raise SchemaError(
            f"Column {name!r}: A lazy frame does not list its categories. Declare them: "
            f"bounds={{{name!r}: [...]}}."
        )
    elif hasattr(native := series.to_native(), "cat") and hasattr(native.cat, "categories"):
        yield name, list(native.cat.categories)  # pandas keeps the whole list, in order
    else:  # sorted, so that the result does not reveal the order of the rows
        yield name, sorted(series.drop_nulls().cast(nw.String).unique().to_list())


def kind_of(value: object) -> str:
    """Type of a value, for a message that must not show the value."""
    return "None" if value is None else f"a value of type {type(value).__name__}"


def label_key(value: object) -> str | None:
    """Return the canonical text of one label, or None if it is missing. Never raises.

    ``None``, NaN, NaT and NA are missing. A bool is ``"True"`` or ``"False"``. A whole number of
    any type (3, 3.0, ``np.int8(3)``, ``Decimal(3)``) is ``"3"``; any other number is the repr of
    its float. Bytes are decoded as UTF-8. Dates, times, periods, intervals, UUIDs and members of an
    Enum keep their Python text. Lone surrogates are escaped, ``\\udc80``, because a file cannot
    hold them.

    A value of any other type (a list, a dict, a user-defined object) is missing. Its text could
    depend on more than the value, such as an address in memory. An error would reveal that such a
    row exists.
    """
    try:
        # NaT is unequal to itself, and a comparison with NA returns NA.
        unequal = value is not None and value != value  # noqa: PLR0124
        truth = isinstance(unequal, bool | np.bool_)
        if value is None or (bool(unequal) if truth else unequal is value):
            return None
        text = next((text for kinds, text in _TEXTS if isinstance(value, kinds)), None)
        if text is not None:
            key = text(value)
        else:  # Compare by name, because importing pandas takes time.
            pandas = type(value).__name__ in ("Period", "Interval") and library(value) == "pandas"
            key = str(value) if pandas else None
        return key if key is None else key.encode("utf-8", "backslashreplace").decode("utf-8")
    except Exception:
        return None


def library(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def number_key(x: float) -> str | None:
    if math.isnan(x):
        return None
    return str(int(x)) if x.is_integer() else repr(x)


_DATED = ("datetime", "numpy", "pandas", "uuid")

# The order matters: to Python a bool is an int, and to NumPy a time span is an int.
_TEXTS: tuple[tuple[Any, Callable[[Any], str | None]], ...] = (
    (bool | np.bool_, lambda value: str(bool(value))),
    (str, str.__str__),  # not str(), which a subclass may override
    (bytes | bytearray, lambda value: bytes(value).decode("utf-8", errors="replace")),
    (
        date | time | timedelta | np.datetime64 | np.timedelta64 | UUID,
        # A subclass may define another text.
        lambda value: str(value) if library(value) in _DATED else None,
    ),
    (Enum, lambda value: f"{type(value).__name__}.{value.name}"),
    (int | np.integer, lambda value: str(int(value))),
    (float | np.floating | Decimal | Fraction, lambda value: number_key(float(value))),
)
"""Types whose text depends on the value alone, with the function that writes it."""

MAX_WIDTH = 2.0**60
"""Intervals must be narrower. On wider ones, a grid of 2^-11 of the width is meaningless."""

LEAST_WIDTH, LEAST_RELATIVE_WIDTH = 2.0**-60, 2.0**-30
"""Intervals must be wider than the first number, and than the second times their larger end.
Otherwise, squares of moments underflow, or float64 is coarser than the vault's grid."""

OTHER = "other"
"""Level of labels that were not declared, if the user requested it."""

# 0/1 coding: a bool column and a 0/1 column are equivalent.
_SYNONYMS = {"0": "False", "1": "True", "False": "0", "True": "1"}
_CODINGS = ({"0", "1"}, {"False", "True"})


@named
@dataclass(frozen=True)
class Interval:
    """All numbers from `lo` to `hi`; values outside are clipped.

    Parameters
    ----------
    lo, hi : float
    natural : bool
        Whether values beyond the ends are impossible (a household of less than one person). The
        fit then does not warn about narrow bounds if many rows are at an end.

    Raises
    ------
    SchemaError
        Unless both ends are finite, ``2**-60 < hi - lo < 2**60``, and the width exceeds
        ``2**-30`` times the larger end.

    Examples
    --------
    >>> pc.Interval(0, 100).width
    100.0
    """

    lo: float
    hi: float
    natural: bool = field(default=False, kw_only=True, repr=False)
    width: float = field(init=False, repr=False, compare=False)
    mid: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        lo: Any = self.lo
        hi: Any = self.hi
        if not (is_number(lo) and is_number(hi)):
            other = "Binary() for bool"
            if isinstance(lo, date | np.datetime64):
                other = "convert dates to numbers, for example to days since January 1"
            raise SchemaError(
                f"An interval requires two numbers, not {kind_of(lo)} and {kind_of(hi)}. Write "
                f"(0, 1), or {other}."
            )
        try:
            low, high = float(lo), float(hi)
        except OverflowError:
            low = high = math.inf
        pair = f"({number_key(low)}, {number_key(high)})"
        if not (math.isfinite(low) and math.isfinite(high)):
            raise SchemaError(
                "Bounds must be finite. Write the widest possible range, for example (0, 120)."
            )
        if low == high:
            raise SchemaError(
                f"Both bounds of {pair} are equal. Write lo < hi, or remove a constant column."
            )
        if low > high:
            raise SchemaError(
                "The lower bound must come first. Write "
                f"({number_key(high)}, {number_key(low)}), not {pair}."
            )
        if not least_width(low, high) < high - low < MAX_WIDTH:
            narrow = high - low < MAX_WIDTH
            problem = "too narrow for floating-point numbers" if narrow else "wider than 2**60"
            raise SchemaError(
                f"The interval {pair} is {problem}. Shift the column or change its unit."
            )
        width, natural = high - low, bool(self.natural)
        vars(self).update(lo=low, hi=high, natural=natural, width=width, mid=low + width / 2)


@dataclass(frozen=True)
class Transformed(Interval):
    """Domain of a function of a column, such as log(Y), and the domain of the original column."""

    raw: Interval


def least_width(lo: float, hi: float) -> float:
    """Lower limit of the width of an interval between numbers of this size."""
    return max(LEAST_WIDTH, LEAST_RELATIVE_WIDTH * max(abs(lo), abs(hi)))


@named
@dataclass(frozen=True, init=False)
class Levels:
    """The labels a column may hold, in order; the first is the reference.

    Parameters
    ----------
    values
        Labels, read by `label_key`: 1, 1.0 and "1" are the same label.
    other
        Whether undeclared labels form an additional level "other", the last of `labels`. Including
        "other" among the values has the same effect.

    Raises
    ------
    SchemaError
        If there are no labels, one is missing, or two have the same text.

    Examples
    --------
    >>> pc.Levels(["north", "south"], other=True).labels
    ('north', 'south', 'other')
    """

    values: tuple[str, ...]
    other: bool
    numeric: bool = field(default=False, repr=False, compare=False)
    labels: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __init__(self, values: object, other: bool = False) -> None:
        keys, numeric = _label_keys(values)
        if not isinstance(other, bool):
            raise SchemaError("other must be True or False.")
        if not keys and not other:
            raise SchemaError(
                "No level is declared. Write at least one label, for example ['a', 'b']."
            )
        plain, other = tuple(k for k in keys if k != OTHER), other or OTHER in keys
        labels = (*plain, OTHER) if other else plain
        vars(self).update(values=plain, other=other, numeric=numeric, labels=labels)


@named
@dataclass(frozen=True, init=False, repr=False)
class Binary:
    """Two labels, read as 0 and 1: ``Binary(["No RHC", "RHC"], ref="No RHC")``.

    Parameters
    ----------
    labels
        Label of 0, then label of 1.
    ref
        Label of 0, if it is not the first.

    Attributes
    ----------
    labels : tuple of two str, or None
        None is the 0/1 coding.
    zero, one : str
        Names of both values in results.

    Notes
    -----
    ``Binary()`` is the 0/1 coding. It accepts bool, 0 and 1, 0.0 and 1.0, and the texts "0", "1",
    "True" and "False". ``Binary([False, True])`` accepts the same values, and results name them
    False and True. Any other pair accepts only its two labels. All other values are missing.

    Examples
    --------
    >>> pc.Binary(["no", "yes"]).one
    'yes'
    """

    labels: tuple[str, str] | None
    zero: str
    one: str
    numeric: bool = field(default=False, compare=False)
    # Label keys read as 0, and those read as 1
    zeros: tuple[str, ...] = field(default=(), compare=False)
    ones: tuple[str, ...] = field(default=(), compare=False)

    def __init__(self, labels: object = (0, 1), ref: object = None) -> None:
        keys, numeric = _label_keys(labels)
        if len(keys) != 2:
            raise SchemaError(
                f"Binary() requires two labels, not {len(keys)}. Write the label for 0 first: "
                "['no', 'yes']."
            )
        zero, one = _reference_first(keys, ref)
        coded = (zero, one) in (("0", "1"), ("False", "True"))
        synonyms = {zero, one} in _CODINGS  # also of the reversed coding, Binary([0, 1], ref=1)
        zeros = (zero, _SYNONYMS[zero]) if synonyms else (zero,)
        ones = (one, _SYNONYMS[one]) if synonyms else (one,)
        vars(self).update(labels=None if coded else (zero, one), zero=zero, one=one)
        vars(self).update(numeric=numeric, zeros=zeros, ones=ones)

    def __repr__(self) -> str:
        if self.labels is None:
            return "Binary()" if self.zero == "0" else "Binary([False, True])"
        return f"Binary({list(self.labels)!r})"


Domain: TypeAlias = Interval | Levels | Binary


def level_names(domain: Levels | Binary) -> tuple[str, ...]:
    """All labels of the domain, in order; of the 0/1 coding, the names of both values."""
    return domain.labels if isinstance(domain, Levels) else (domain.zero, domain.one)


@dataclass(frozen=True, init=False, repr=False)
class Schema(Strict):
    """The declared domain of each column, by name. It is frozen and holds no data.

    Parameters
    ----------
    columns
        Per column, one of: ``(18, 95)`` for an interval; ``["N", "S"]`` for levels; an `Interval`,
        `Levels` or `Binary`; or a dict, as in a TOML or JSON file. The dicts are
        ``{"lo": 18, "hi": 95}``, ``{"labels": ["N", "S"], "other": true}`` and
        ``{"labels": ["N", "S"], "ref": "N"}``. Two labels with a `ref` are a `Binary`; more labels
        are levels, the `ref` first. The lists ``[0, 1]`` and ``[False, True]`` are the 0/1 coding.
        Any other list of two numbers is refused, because it could be an interval or two labels. A
        covariate of type bool or whole numbers with bounds ``(0, 1)`` has these two values, too.
    complete
        Whether you declare that the used columns cannot have missing values.

    Raises
    ------
    SchemaError
        If a domain is wrong. The message names the column, the problem and the fix.

    Examples
    --------
    >>> schema = pc.Schema({"age": (18, 95), "ward": ["north", "south"]})
    >>> schema["age"]
    Interval(lo=18.0, hi=95.0)
    >>> list(schema)
    ['age', 'ward']
    """

    domains: tuple[tuple[str, Domain], ...]
    complete: bool

    def __init__(self, columns: Mapping[str, Any] | None = None, complete: bool = False) -> None:
        if not isinstance(columns, Mapping | None):
            raise SchemaError(
                "bounds= must be a dict of column names and their domains, not "
                f"{kind_of(columns)}. "
                "Write bounds={'age': (18, 95), 'region': ['N', 'S']}."
            )
        if not isinstance(complete, bool):
            raise SchemaError("complete must be True or False.")
        pairs = []
        for name, value in (columns or {}).items():
            if not isinstance(name, str) or not name:
                raise SchemaError(
                    f"Column name {label_key(name)!r} must be text and not empty. Rename the "
                    "column."
                )
            problem = ""
            try:
                pairs.append((name, _as_domain(value)))
            except SchemaError as error:
                problem = str(error)
            if problem:
                raise SchemaError(f"bounds[{name!r}]: {problem}")
        vars(self).update(domains=tuple(pairs), complete=complete)

    @classmethod
    def of(cls, bounds: object, labels: Sequence[str] = ()) -> Schema:
        """Return a schema from a value of `bounds=`: None, a dict or a schema.

        A list of two numbers declares two labels of the columns in `labels`.

        Examples
        --------
        >>> pc.Schema.of({"age": (18, 95)})["age"].width
        77.0
        """
        if labels and isinstance(bounds, Mapping):
            pairs = {n: Levels(bounds[n]) for n in labels if _two_numbers(bounds.get(n))}
            bounds = {**bounds, **pairs}
        return bounds if isinstance(bounds, Schema) else cls(bounds)  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Schema:
        """Return the schema that `to_dict` wrote.

        Examples
        --------
        >>> pc.Schema.from_dict(schema.to_dict()) == schema
        True
        """
        if not isinstance(content, Mapping) or not set(content) <= {"bounds", "complete"}:
            raise SchemaError(
                'A saved schema must be a dict with only the keys "bounds" and "complete".'
            )
        return cls(content.get("bounds", {}), complete=content.get("complete", False))

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Schema:
        """Read a schema from the table ``[bounds]`` and the key ``complete`` of a TOML file.

        TOML does not have tuples, so an array of two numbers is read as an interval. Other tables
        of the file are ignored.

        Examples
        --------
        >>> with open("bounds.toml", "w") as file:
        ...     _ = file.write("[bounds]\\nage = [18, 95]")
        >>> pc.Schema.from_toml("bounds.toml").columns
        {'age': Interval(lo=18.0, hi=95.0)}
        """
        import tomllib

        if not isinstance(path, str | os.PathLike):
            raise SchemaError(f"The path of a TOML file must be text, not {kind_of(path)}.")
        content, trouble = None, "is not valid TOML"
        try:
            with open(path, "rb") as file:
                content = tomllib.load(file)
        except OSError:
            trouble = "cannot be read"
        except ValueError:  # bad syntax, bad UTF-8, or a null byte in the path
            pass
        if content is None:
            # Raise outside the handler, so that the original exception is not attached.
            raise SchemaError(
                f"{os.fspath(path)!r} {trouble}. Pass a TOML file with a table [bounds]."
            )
        bounds = content.get("bounds", {})
        if not isinstance(bounds, dict):
            raise SchemaError("bounds must be a table of the TOML file. Write [bounds].")
        if isinstance(bounds.get("complete"), bool):
            raise SchemaError("'complete' is an option, not a column. Write it above [bounds].")
        pairs = {name: tuple(v) if _two_numbers(v) else v for name, v in bounds.items()}
        return cls(pairs, complete=content.get("complete", False))

    @classmethod
    def from_dtypes(cls, frame: Frame, /, **bounds: Any) -> Schema:
        """Build a schema from the category, enum and bool dtypes of a frame.

        **The categories of these columns become public:** by calling this method, you declare them
        so. A category dtype usually holds the labels that were *observed* (``astype("category")``).
        Use this method only if the list of labels is already public. Numeric and text columns are
        never read. Keywords declare further columns and override the dtypes.

        Examples
        --------
        >>> study = pc.datasets.clinic(10)
        >>> list(pc.Schema.from_dtypes(study.frame, age=(18, 95)))
        ['age']
        """
        import narwhals as nw

        pairs: list[tuple[str, list[Any] | None]] = []
        if isinstance(frame, Mapping):
            options: dict[str, Any] = {"series_only": True, "allow_series": True}
            for name, column in frame.items():
                series = nw.from_native(column, pass_through=True, **options)
                if isinstance(series, nw.Series):
                    pairs += _labels(name, series.dtype, series)
                elif getattr(column, "dtype", None) == np.bool_:
                    pairs.append((name, None))
        else:
            table = nw.from_native(frame, pass_through=True)
            if not isinstance(table, nw.DataFrame | nw.LazyFrame):
                raise SchemaError(
                    f"Data types cannot be read from {kind_of(frame)}. Pass a data frame."
                )
            for name, dtype in table.collect_schema().items():
                read = dtype == nw.Categorical and isinstance(table, nw.DataFrame)
                pairs += _labels(name, dtype, table[name] if read else None)
        columns = {
            name: Binary([False, True]) if labels is None else {"labels": labels}
            for name, labels in pairs
            if labels != []
        }
        return cls({**columns, **bounds})

    @property
    def columns(self) -> dict[str, Domain]:
        """A new dict of the declared domains, in the order declared."""
        return dict(self.domains)

    def __getitem__(self, name: str) -> Domain:
        domain = self.get(name)
        if domain is None:
            names = ", ".join(self) or "none"
            raise SchemaError(f"Column {name!r} has no declared domain. Declared columns: {names}.")
        return domain

    def get(self, name: str, default: Domain | None = None) -> Domain | None:
        return self.columns.get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.domains)

    def __repr__(self) -> str:
        return f"Schema({self.columns!r}, complete={self.complete})"

    def with_columns(self, columns: Mapping[str, Any]) -> Schema:
        """Return a new schema with these columns added or replaced.

        Examples
        --------
        >>> list(schema.with_columns({"bmi": (15, 50)}))
        ['age', 'ward', 'bmi']
        """
        return Schema({**self.columns, **Schema(columns).columns}, complete=self.complete)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, numbers and texts, ready for JSON.

        Examples
        --------
        >>> sorted(schema.to_dict())
        ['bounds', 'complete']
        """
        bounds: dict[str, dict[str, Any]] = {}
        for name, domain in self.domains:
            if isinstance(domain, Interval):
                bounds[name] = {"lo": domain.lo, "hi": domain.hi}
                if isinstance(domain, Transformed):
                    bounds[name]["raw"] = [domain.raw.lo, domain.raw.hi]
                elif domain.natural:
                    bounds[name]["natural"] = True
            elif isinstance(domain, Binary):
                bounds[name] = {"labels": [domain.zero, domain.one], "ref": domain.zero}
            else:
                bounds[name] = {"labels": list(domain.values), "other": domain.other}
        return {"bounds": bounds, "complete": self.complete}

    def label_columns(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return the columns of labels in an untyped table, with the declared labels of each.

        `names` names columns used as labels, as in ``C(region)``. Columns declared as an interval
        or as the 0/1 coding are excluded.
        """
        columns = {name: frozenset[str]() for name in names}
        for name, domain in self.domains:
            labels = getattr(domain, "labels", None)  # None for intervals and the 0/1 coding
            if labels is None:
                columns.pop(name, None)
            else:
                columns[name] = frozenset(labels)
        return columns


# Conversion of user input to domains.


def _as_domain(value: Any) -> Domain:
    if isinstance(value, Interval | Levels | Binary):
        return value
    if isinstance(value, Mapping):
        return _from_mapping(value)
    value = as_plain(value)  # an array of labels
    if isinstance(value, tuple) and not all(isinstance(v, str) for v in value):
        if len(value) != 2:
            raise SchemaError(
                f"An interval is a pair (lo, hi), not {len(value)} values. "
                "For labels, write a list: [1, 2, 3]."
            )
        return Interval(*value)
    pair = isinstance(value, list | tuple) and len(value) == 2
    if isinstance(value, list) and pair:
        if {label_key(v) for v in value if not isinstance(v, str)} in _CODINGS:
            return Binary(value)
        if _two_numbers(value) and None not in map(label_key, value):
            # Do not guess. As levels, every other number would silently be missing; as an
            # interval, a label would silently become a number.
            lo, hi = map(label_key, value)
            raise SchemaError(
                f"The list [{lo}, {hi}] could be an interval or two labels. "
                f"Write ({lo}, {hi}) for an interval, or ['{lo}', '{hi}'] for two labels."
            )
    if isinstance(value, tuple) and pair and all(map(is_numeral, value)):
        lo, hi = value
        raise SchemaError(
            f"The bounds are text. Write ({lo}, {hi}) for an interval, or ['{lo}', '{hi}'] for two "
            "labels."
        )
    if isinstance(value, tuple | list | range):
        return Levels(value)
    raise SchemaError(
        f"A domain must be (lo, hi) for numbers or ['a', 'b'] for labels, not {kind_of(value)}."
    )


def _from_mapping(value: Mapping[str, Any]) -> Domain:
    keys = set(value)
    if keys == {"lo", "hi", "raw"}:
        return Transformed(value["lo"], value["hi"], Interval(*value["raw"]))
    if {"lo", "hi"} <= keys <= {"lo", "hi", "natural"}:
        return Interval(value["lo"], value["hi"], natural=value.get("natural", False))
    if not ("labels" in keys and keys <= {"labels", "ref", "other"}):
        raise SchemaError(
            "A domain given as a dict has the keys lo and hi, or labels (with ref, other). "
            "Write {'lo': 18, 'hi': 95} or {'labels': ['a', 'b'], 'ref': 'a'}."
        )
    labels, other = _label_keys(value["labels"])[0], value.get("other", False)
    labels = _reference_first(labels, value.get("ref"))
    if value.get("ref") is not None and len(labels) == 2 and other is False:
        return Binary(labels)
    return Levels(labels, other)


def _label_keys(values: Any) -> tuple[tuple[str, ...], bool]:
    """Distinct labels, and whether all are numbers.

    Messages quote only positions, because the labels may be observed data.
    """
    values = as_plain(values)
    if not isinstance(values, tuple | list | range):
        raise SchemaError(f"Labels must be a list, not {kind_of(values)}. Write ['a', 'b'].")
    seen: dict[str, int] = {}
    for place, key in enumerate(map(label_key, values), start=1):
        if key is None:
            raise SchemaError(
                f"Label {place} is missing (None or NaN). Remove it, or give these rows a label in "
                "the data, for example fillna(0), and declare that label."
            )
        if key in seen:
            raise SchemaError(
                f"Labels {seen[key]} and {place} have the same text. Write each once."
            )
        seen[key] = place
    return tuple(seen), len(values) > 0 and all(isinstance(v, int | float) for v in values)


def _reference_first(keys: tuple[str, ...], ref: Any) -> tuple[str, ...]:
    first = keys[0] if ref is None and keys else label_key(ref)
    if ref is not None and first not in keys:
        choices = ", ".join(map(repr, keys[:10]))
        raise SchemaError(f"ref={first!r} is not among the labels. Choose one of {choices}.")
    return (*(k for k in keys if k == first), *(k for k in keys if k != first))


def is_numeral(value: object) -> bool:
    try:
        return isinstance(value, str) and float(value) is not None
    except ValueError:
        return False


def _two_numbers(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_number, value))


def with_levels(schema: Schema, levels: Mapping[str, Sequence[str]]) -> Schema:
    """Add the levels that ``C(x, levels=[...])`` declares, in their order."""
    changed = {}
    for name, labels in levels.items():
        domain, listed = schema.get(name), Levels(labels)
        if domain is not None and not (
            isinstance(domain, Levels) and {*domain.labels} == {*listed.labels}
        ):
            raise SchemaError(
                f"C({name}, levels=...) and bounds= declare different labels of {name!r}. Declare "
                "them only once."
            )
        changed[name] = listed
    return schema.with_columns(changed) if changed else schema
