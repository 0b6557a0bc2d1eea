"""Design columns from a formula and declared domains, each scaled to a known range.

A `Design` is the formula fitted to a skeleton, a small public frame that spans the declared
domains. Terms learn everything from the skeleton: knots, polynomial coefficients and levels.
`Rows` are cleaned covariates of some rows, with the values of public functions kept for them.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from privcausal.errors import CapabilityError, DataError, FormulaError, SchemaError, warn
from privcausal.request import formula, schema
from privcausal.request import schema as domains_of
from privcausal.request.formula import (
    LABEL_KINDS,
    CausalFormula,
    Factor,
    ResultTerm,
    Term,
    TermKind,
    call_factor,
)
from privcausal.request.request import Queries
from privcausal.request.schema import Binary, Interval, Levels, Schema, Transformed, label_key
from privcausal.typing import Frame, Integers, Mask, Matrix, Singles, Vector

# Formulaic's cubic splines, with their constraint absorbed by additions in a fixed order.
#
# Formulaic uses a matrix product for this. Its rounding of a row may depend on the other rows in
# the matrix, and the row's values would then reveal information about other rows.


def _ordered(name: str) -> Callable[..., Any]:
    """The spline transform of this name, in formulaic's calling convention."""

    def spline(x: Any, *args: Any, _state: dict[str, Any], **options: Any) -> Any:
        from formulaic.materializers.types import FactorValues
        from formulaic.transforms import TRANSFORMS

        transform = TRANSFORMS[name]
        unused = {key: options.pop(key) for key in ("_metadata", "_spec", "_context")}
        if not _state:  # on the public skeleton, learn the knots and the constraint
            transform(x, *args, _state=_state, **unused, **options)
        constraint = _state["constraints"]
        unconstrained = {**_state, "constraints": None}
        free = transform(x, *args, _state=unconstrained, **unused, **options)
        if constraint is None:
            return free
        rotation, _ = np.linalg.qr(np.transpose(constraint), mode="complete")
        columns = {}
        for place, weights in enumerate(rotation[:, len(constraint) :].T, start=1):
            total = np.zeros(len(free[1]))
            for value, weight in zip(free.values(), weights, strict=True):
                total += value * weight
            columns[place] = total
        return FactorValues(
            columns,
            kind="numerical",
            spans_intercept=False,
            drop_field=0,
            format="{name}[{field}]",
            encoded=False,
        )

    spline.__is_stateful_transform__ = True  # type: ignore[attr-defined]
    spline.get_required_variables = lambda *_, **__: ()  # type: ignore[attr-defined]
    return spline


SPLINES: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {name: _ordered(name) for name in ("cr", "cs", "cc")}
)


# Reading columns of any data frame into plain arrays, without ever raising on a value.
#
# The vault applies these functions to rows, and `predict` applies them to new data. Errors concern
# only public facts: the container, column names and data types.


def open_frame(native: Frame) -> Any:
    """A narwhals data frame over `native` (pandas, polars, pyarrow, or a mapping of arrays)."""
    import narwhals as nw

    if isinstance(native, Mapping):
        native = _as_table(native)
    columns = getattr(native, "column_names", getattr(native, "columns", ()))
    names = list(columns) if isinstance(columns, Iterable) else []
    if not all(isinstance(name, str) for name in names):
        raise DataError(
            "Column names must be text, and a MultiIndex is not supported. Rename the columns."
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"Column name {twice[0]!r} appears twice in the data. Rename one.")
    try:
        frame = nw.from_native(native, eager_only=True)
    except TypeError:
        frame = None
    if frame is None or not hasattr(frame, "columns"):
        raise DataError(
            f"Data of type {type(native).__name__} cannot be read. Pass a pandas, polars or "
            "pyarrow data frame, or a dict of arrays of equal length."
        )
    return frame


def _as_table(columns: Mapping[Any, Any]) -> Any:
    """A pandas frame of arrays or Series of the same types. They are aligned by position."""
    import pandas as pd

    if not all(isinstance(name, str) for name in columns):
        raise DataError("Column names must be text.")
    supported = pd.Series | pd.Index | pd.api.extensions.ExtensionArray
    made: dict[str, Any] = {}
    for name, values in columns.items():
        if not hasattr(values, "dtype"):
            # The type of a list depends on its values: one row would decide how it is read.
            raise DataError(f"Column {name!r} of the dict has no data type. Pass np.array(...).")
        # pandas infers the types of others. A missing value (a null of polars, the mask of an
        # array) would then turn whole numbers into floats, or truth values into objects.
        array = isinstance(values, np.ndarray) and not isinstance(values, np.ma.MaskedArray)
        kind = type(values)
        polars = kind.__name__ == "Series" and kind.__module__.partition(".")[0] == "polars"
        if not (array or polars or isinstance(values, supported)):
            raise DataError(
                f"Column {name!r} of the dict has type {type(values).__name__}, which is not "
                "supported in a dict. Pass np.array(...), a pandas or polars Series, or the whole "
                "data frame."
            )
        made[name] = values, polars
    if any(getattr(values, "ndim", 1) != 1 for values in columns.values()) or (
        len({len(values) for values in columns.values()}) > 1
    ):
        raise DataError("A dict of columns requires one-dimensional arrays of equal length.")
    for name, (column, polars) in made.items():
        made[name] = column
        if polars and str(column.dtype) == "Object":  # Arrow does not have this type
            made[name] = np.fromiter(column.to_list(), dtype=object, count=len(column))
        elif polars:
            made[name] = pd.Series(pd.arrays.ArrowExtensionArray(column.rechunk().to_arrow()))
        elif isinstance(column, pd.Series | pd.Index):
            made[name] = pd.Series(column.array, dtype=column.dtype)
        if isinstance(made[name], np.ndarray):
            plain = np.ndarray.view(made[name], np.ndarray)  # a subclass may override methods
            made[name] = plain
            if plain.dtype.kind == "O":  # pandas would decide by the values whether it is text
                made[name] = pd.Series(plain, dtype=object)
            elif plain.dtype.kind == "U":
                # Use pandas: Arrow refuses a lone surrogate, whose escape is a different text.
                made[name] = pd.array(plain.astype(object), dtype=pd.StringDtype("python"))
    return pd.DataFrame(made)


def header(frame: Any) -> domains_of.Header:
    """Names and kinds of the columns, from data types alone."""
    import narwhals as nw

    kinds: dict[str, domains_of.ColumnKind] = {}
    for name, dtype in frame.schema.items():
        kinds[name] = "other"
        if dtype in (nw.Int128, nw.UInt128):  # Arrow lacks these; only an empty table could pass
            continue
        if dtype.is_numeric():
            kinds[name] = "numeric"
        elif dtype == nw.Boolean:
            kinds[name] = "bool"
        elif dtype in (nw.String, nw.Categorical, nw.Enum, nw.Object) or isinstance(dtype, nw.Enum):
            kinds[name] = "text"
    whole = frozenset(n for n, dtype in frame.schema.items() if dtype.is_integer())
    objects = set()
    for name in (name for name, kind in kinds.items() if kind == "text"):
        # pandas categories may have a numeric data type, such as 0 and 1.
        dtype = getattr(frame[name].to_native(), "dtype", None)
        categories = getattr(getattr(dtype, "categories", None), "dtype", None)
        if holds_objects(frame[name]) or getattr(categories, "kind", "O") in "biuf":
            objects.add(name)
    native = frame.to_native()
    index = getattr(getattr(native, "index", None), "names", ())
    advice = dict.fromkeys(index, "It is in the index of the data. Call data.reset_index().")
    for name in (name for name, kind in kinds.items() if kind == "other"):
        if hasattr(getattr(native[name], "array", None), "sp_values"):
            advice[name] = f"It is sparse: pass df[{name!r}].sparse.to_dense()."
    return domains_of.Header(kinds, frozenset(objects), integers=whole, advice=advice)


def holds_objects(series: Any) -> bool:
    import narwhals as nw

    # narwhals inspects the values of a pandas object column, so read the type directly.
    native = getattr(series.to_native(), "dtype", None)
    return native == np.dtype(object) if isinstance(native, np.dtype) else series.dtype == nw.Object


def numbers(series: Any) -> Vector:
    """Values as float64, shape (n,); missing or unreadable values are NaN."""
    dtype = series.dtype
    if dtype.is_numeric() or str(dtype) == "Boolean":
        try:
            return np.asarray(series.to_numpy(), dtype=np.float64)
        except Exception:  # convert value by value instead
            pass
    values = np.full(len(series), np.nan)
    # A warning about complex numbers would reveal one.
    with warnings.catch_warnings(action="ignore"):
        for row, value in enumerate(series.to_list()):
            with suppress(Exception):  # a value may be any object; if it raises, it is missing
                values[row] = float(value)
    return values


def labels(series: Any) -> tuple[Integers, tuple[str, ...]]:
    """Codes of shape (n,) and the label texts they refer to, in order of appearance; -1 is missing.

    The label of a row is `label_key` of its own cell, whatever the other rows hold.
    """
    import pandas as pd

    native = series.to_native()
    if isinstance(getattr(native, "dtype", None), pd.CategoricalDtype):
        return by_label(native.cat.codes.to_numpy(), list(native.cat.categories))
    values = plain_values(series)
    if not _is_plain(series):
        # Equal values may have different labels: True equals 1, and one instant is equal in all
        # time zones. A hash table would give them the label of the first. Read each separately.
        values = [value if type(value) is str else label_key(value) for value in values]
    return by_label(*distinct(values))


def plain_values(column: Any) -> list[Any]:
    """The values of a series or an Arrow array; never raises for bytes that are not UTF-8.

    Such a byte becomes half a surrogate pair, whose text names no other value.
    """
    import pyarrow as pa

    is_arrow = isinstance(column, pa.Array)
    try:
        return list(column.to_pylist() if is_arrow else column.to_list())
    except UnicodeDecodeError:
        texts = (column if is_arrow else column.to_arrow()).cast(pa.large_binary())
    return [t if t is None else t.decode("utf-8", "surrogateescape") for t in texts.to_pylist()]


def distinct(values: Sequence[Any]) -> tuple[Integers, list[Any]]:
    """Codes of shape (n,) and the distinct values they refer to, in order of appearance.

    This uses Python's equality. pandas confuses a lone surrogate with the text of its escape.
    """
    place: dict[Any, int] = {}
    codes = np.fromiter((place.setdefault(v, len(place)) for v in values), np.int64, len(values))
    return codes, list(place)


def by_label(
    codes: Integers, values: Iterable[Any], key: Callable[[Any], str | None] = label_key
) -> tuple[Integers, tuple[str, ...]]:
    """Replace codes of distinct values by codes of their labels; -1 stays missing."""
    keys = [key(value) for value in values]
    names = tuple(dict.fromkeys(key for key in keys if key is not None))
    position = {name: i for i, name in enumerate(names)}
    lookup = np.array([-1 if key is None else position[key] for key in keys] + [-1], np.int64)
    return lookup[codes], names


def _is_plain(series: Any) -> bool:
    """Whether all values of this column type are of one kind, so that equal values look equal."""
    import narwhals as nw

    dtype = series.dtype
    same = dtype.is_numeric() or isinstance(dtype, nw.String | nw.Boolean)
    return same and not holds_objects(series)


_LINE = 4097  # grid points for the range of a function of one variable
_SQUARE, _CUBE, _MORE = 129, 33, 17  # points per variable, for two, three and more variables
MOST_ENTRIES, MOST_WORK = 1 << 27, 1 << 32
"""Maximum entries of a design's largest table on a grid (a gigabyte), and of all its tables."""
_JUMP = 1 / 256  # a jump is a point up to this share of an axis: one fine bin
SINGULAR = 1e-9
"""Singular value, relative to the largest, of columns that differ by rounding only. By hand."""
_GRID = 257  # prime, so that any stride gives a variable the same uniform distribution

UNDECLARED_LABEL = "<\x1fundeclared>"
"""Label of undeclared levels, in further brackets if a variable or a label contains it; labels may
be estimated. A formula cannot contain control characters, so column names contain this label only
for undeclared levels."""


@dataclass(frozen=True, slots=True)
class Column:
    """One design column: its name, the term it comes from and its range over the domain."""

    name: str
    term: str
    kind: Literal["numeric", "indicator", "function", "interaction"]
    lo: float
    hi: float
    variable: str | None = None
    middle: float = field(init=False, compare=False)  # The value that is scaled to 0
    # Scaled units per natural unit: a slope in natural units is slope x per_unit
    per_unit: float = field(init=False, compare=False)
    # Its slope; the columns of levels and splines are parts of a term, without a unit
    slope: ResultTerm = field(init=False, compare=False)

    def __post_init__(self) -> None:
        indicator = self.kind == "indicator"
        middle = 0.0 if indicator else 0.5 * (self.lo + self.hi)
        kind: TermKind = "slope" if self.name == self.term else "coefficient"
        slope = ResultTerm(kind, self.name, column=self.variable or self.term)
        object.__setattr__(self, "middle", middle)
        object.__setattr__(self, "per_unit", 1.0 if indicator else 2.0 / (self.hi - self.lo))
        object.__setattr__(self, "slope", slope)

    def scale(self, values: Vector) -> Vector:
        """Values clipped to [lo, hi] and mapped to [-1, 1]; indicators stay 0/1."""
        values = np.clip(values, self.lo, self.hi)
        if self.kind == "indicator":
            return values
        return (values - self.middle) / (0.5 * (self.hi - self.lo))


class Design:
    """Design columns of some formula terms over a schema, each scaled to a known range.

    Parameters
    ----------
    terms : sequence of Term
    schema : Schema
        Has a domain, declared or estimated, for every variable of the terms.
    full_rank : bool
        Drop a reference level per factor (regression tables), or keep all (shrunken bases).
    """

    def __init__(self, terms: Sequence[Term], schema: Schema, *, full_rank: bool) -> None:
        columns: dict[frozenset[str], Term] = {}  # x + s(x) is one column
        for term in terms:
            # The column x replaces ``s(x)``; the basis decides how smooth it is. If all levels are
            # kept, formulaic turns a contrast into one indicator per level.
            plain = []
            for f in term.factors:
                if f.kind == "smooth":
                    plain.append(Factor(f.variables[0], "numeric", f.variables))
                elif f.kind == "contrast" and not full_rank:
                    expr = f"{f.expr.rpartition(', ')[0]})"
                    plain.append(replace(f, expr=expr, kind="categorical"))
                else:
                    plain.append(f)
            name = ":".join(f.expr for f in plain)
            columns[frozenset(f.expr for f in plain)] = Term(name, tuple(plain))
        self.terms = tuple(columns.values())
        # Groups of terms that share a grid: all one-variable terms, then each other term alone
        single = [t for t in self.terms if len(t.variables) == 1]
        self._groups = [
            *([single] if single else []),
            *([t] for t in self.terms if t not in single),
        ]
        smooth = [t.factors[0] for t in terms if t.factors[0].kind == "smooth"]
        self.smooth = {f.variables[0]: cast("int | None", dict(f.options).get("k")) for f in smooth}
        self.schema = schema
        self.full_rank = full_rank
        self.variables = tuple(dict.fromkeys(v for t in terms for v in t.variables))
        factors = [f for t in self.terms for f in t.factors]
        self._contrasts = {f.variables[0] for f in factors if f.kind == "contrast"}
        domains = [self.schema[name] for name in self.variables]
        labels = [label for d in domains if isinstance(d, Levels) for label in d.labels]
        self._undeclared = UNDECLARED_LABEL
        while any(self._undeclared in text for text in (*self.variables, *labels)):
            self._undeclared = f"<{self._undeclared}>"
        # Numbers that a term compares with each numeric variable
        self._cuts: dict[str, list[float]] = {}
        for factor in factors:
            cuts = cast("tuple[float, ...]", dict(factor.options).get("cuts", ()))
            for name in factor.variables:
                if isinstance(self.schema[name], Interval):
                    self._cuts.setdefault(name, []).extend(cuts)
        # Values of each variable at which a column differs from its value almost everywhere: the 6
        # of I(x == 6), and the lower bound of I(x > 0) with bounds (0, 60)
        self.atoms: dict[str, Vector] = {}
        self._spec, self._keep, self.columns = self._materialise()
        self._codes = self._code_tables()
        # Which columns are numbers whose range equals their domain
        self._inside = []
        for column in self.columns:
            domain = self.schema[column.variable] if column.variable else None
            ends = (domain.lo, domain.hi) if isinstance(domain, Interval) else None
            self._inside.append(ends == (column.lo, column.hi))
        # Whether all columns are numbers or levels, and therefore finite
        self.plain = all(column.kind in ("numeric", "indicator") for column in self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def scaled(
        self, frame: Mapping[str, Vector | Integers], size: int, out: Matrix | None = None
    ) -> Matrix:
        """Scaled columns, shape (n, q). Values that are not finite become NaN.

        With `out`, they are written to it, and values must be inside their domains. Otherwise
        values outside are clipped. Numbers and levels are looked up, which is many times faster and
        gives the same bits. Formulaic evaluates the other columns.
        """
        inside = out is not None
        out = np.empty((size, len(self.columns))) if out is None else out
        values = None if self.plain else self._evaluate(frame)
        for j, column in enumerate(self.columns):
            if values is None or column.kind in ("numeric", "indicator"):
                self.fill(j, frame, out[:, j], inside=inside)
            else:
                out[:, j] = column.scale(values[:, j])
        return out

    def fill(
        self,
        j: int,
        frame: Mapping[str, Vector | Integers],
        out: Vector,
        *,
        inside: bool = True,
    ) -> Vector:
        """Write a numeric or indicator column of values, all `inside` their domains, to `out`."""
        column = self.columns[j]
        if column.kind == "indicator":
            # -1, an undeclared label, is the last entry. All other codes are in range.
            codes = frame[str(column.variable)].astype(np.intp)
            values = self._codes[j].take(codes, mode="wrap")
        else:
            values = np.asarray(frame[str(column.variable)], np.float64)
            if inside and self._inside[j]:
                # This gives the same bits as `Column.scale`, in half the steps.
                np.subtract(values, column.middle, out=out)
                return np.divide(out, 0.5 * (column.hi - column.lo), out=out)
        out[:] = column.scale(values)
        return out

    # -- materialization ---------------------------------------------------------------------

    def _materialise(self) -> tuple[Any, list[int], tuple[Column, ...]]:
        """Formulaic's model spec learned from the skeleton, and the columns that are used."""
        from formulaic import model_matrix

        if not self.terms:
            return None, [], ()
        self._check_size()
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            matrix = model_matrix(
                formulaic_terms(self.terms),
                self._skeleton(),
                context={**formula.ENVIRONMENT, **SPLINES},
                na_action="ignore",
                ensure_full_rank=self.full_rank,
            )
        spec = matrix.model_spec
        by_factors = {frozenset(f.expr for f in t.factors): t for t in self.terms}
        owners: list[Term | None] = []  # The term of each column
        names: list[str] = []
        for encoded, places in spec.term_indices.items():
            owner = by_factors.get(frozenset(f.expr for f in encoded.factors))
            for j in places:
                # If the functions of a spline sum to one, its first function is redundant with the
                # intercept. Give this function no owner.
                redundant = owner and owner.factors[0].sums_to_one and j == places[0]
                names.append(spec.column_names[j])
                owners.append(None if self.full_rank and redundant else owner)
        keep, columns = [], []
        ranges = self._ranges(spec, names, owners)
        for j, (name, owner) in enumerate(zip(names, owners, strict=True)):
            if owner is None or self._undeclared in name:
                continue
            lo, hi = ranges[j]
            if hi > lo:  # a constant column is redundant with the intercept
                keep.append(j)
                columns.append(self._column(name, owner, lo, hi))
        return spec, keep, tuple(columns)

    def _check_size(self) -> None:
        """Refuse designs whose levels, or products of them, need too much memory or time."""
        columns = 0  # Maximum number of columns
        for term in self.terms:
            widths = []
            for factor in term.factors:
                width = formula.MAX_BASIS if factor.kind in ("spline", "poly") else 1
                if factor.kind in LABEL_KINDS:
                    domain = self.schema[factor.variables[0]]
                    width = len(domain.labels) + 1 if isinstance(domain, Levels) else 2
                widths.append(width)
            columns += math.prod(widths)
        rows = []  # of each grid
        for terms in self._groups:
            points = [len(axis) for axis in self._axes(terms[0].variables)]
            rows.append(math.prod(points) if len(points) > 1 else max(_LINE, *points))
        if max(rows) * columns > MOST_ENTRIES or sum(rows) * columns > MOST_WORK:
            raise FormulaError(
                f"The formula has up to {columns:,} columns from factors with many levels or their "
                "products, which is too many. Declare fewer levels, or remove interactions."
            )

    def _axes(self, variables: Sequence[str]) -> list[Any]:
        """Grid points of each variable of a term, including the numbers compared with it."""
        size = {1: _LINE, 2: _SQUARE, 3: _CUBE}.get(len(variables), _MORE)
        axes = []
        for name in variables:
            axis, domain = self._points(name, size), self.schema[name]
            cuts = self._cuts.get(name, ())
            inside = isinstance(domain, Interval) and [c for c in cuts if domain.lo < c < domain.hi]
            axes.append(np.union1d(axis, inside) if inside else axis)
        return axes

    def _column(self, name: str, term: Term, lo: float, hi: float) -> Column:
        factor, variable = term.factors[0], None
        kind: Literal["numeric", "indicator", "function", "interaction"] = "function"
        if len(term.factors) > 1:
            kind = "interaction"
        elif factor.kind in ("numeric", "categorical"):
            variable = factor.variables[0]
            number = factor.kind == "numeric" and isinstance(self.schema[variable], Interval)
            kind = "numeric" if number else "indicator"
        # Formulaic's name of the column, with factors as typed and the labels of 0/1 columns
        for factor in (f for f in term.factors if f.kind in LABEL_KINDS):
            domain, typed = self.schema[factor.variables[0]], factor.typed or factor.expr
            both = {"0.0": domain.zero, "1.0": domain.one} if isinstance(domain, Binary) else {}
            pattern = rf"(?<![^:]){re.escape(factor.expr)}(\[[A-Z.]*)([^\]]*)"
            if match := re.search(pattern, name):
                level = match[1] + both.get(match[2], match[2])
                name = name[: match.start()] + typed + level + name[match.end() :]
        return Column(name, term=term.name, kind=kind, lo=lo, hi=hi, variable=variable)

    def _code_tables(self) -> dict[int, Vector]:
        """Values of each indicator at the codes 0, 1, ... of its variable, and last at -1."""
        tables: dict[int, Vector] = {}
        if not any(column.kind == "indicator" for column in self.columns):
            return tables
        points = {}
        for name in self.variables:
            domain = self.schema[name]
            codes = self._points(name, 0)
            points[name] = np.append(codes, -1) if isinstance(domain, Levels) else codes
            if isinstance(domain, Interval):
                points[name] = np.array([domain.mid])
        rows = max(map(len, points.values()))
        # Shorter variables are padded with their last value, which is -1 for levels.
        frame = {v: np.append(p, np.repeat(p[-1:], rows - len(p))) for v, p in points.items()}
        values = self._evaluate(frame)
        for j, column in enumerate(self.columns):
            if column.kind == "indicator":
                tables[j] = values[: len(points[str(column.variable)]), j].copy()
        return tables

    def _skeleton(self) -> Any:
        """A frame with each variable uniform over its domain, by coprime strides."""
        steps = np.arange(_GRID)
        frame: dict[str, Any] = {}
        for i, name in enumerate(self.variables):
            points = self._points(name, _GRID)
            frame[name] = points[(steps * (i + 1)) % _GRID % len(points)]
        return self._as_frame(frame)

    def _points(self, name: str, size: int) -> Any:
        domain = self.schema[name]
        if isinstance(domain, Interval):
            return np.linspace(domain.lo, domain.hi, size)
        if isinstance(domain, Binary):
            return np.array([0.0, 1.0])
        return np.arange(len(domain.labels))

    def _as_frame(self, frame: Mapping[str, Any]) -> Any:
        import pandas as pd

        out = {}
        for name in self.variables:
            domain = self.schema[name]
            if isinstance(domain, Levels):
                categories = pd.Index([*domain.labels, self._undeclared])
                values, beyond = frame[name], len(domain.labels)
                codes = np.where((values >= 0) & (values < beyond), values, beyond)
                if name in self._contrasts:
                    # Make an undeclared label missing, so that contrasts do not count it as one.
                    codes, categories = np.where(codes == beyond, -1, codes), categories[:-1]
                out[name] = pd.Categorical.from_codes(codes.astype(np.int64), categories=categories)
            else:
                out[name] = frame[name]
        return pd.DataFrame(out)

    def _evaluate(self, frame: Mapping[str, Any]) -> Matrix:
        values = self._matrix(self._spec, frame, formula.ENVIRONMENT)[:, self._keep]
        values[~np.isfinite(values)] = np.nan
        return values

    def _matrix(
        self, spec: Any, frame: Mapping[str, Any], environment: Mapping[str, Any]
    ) -> Matrix:
        """The model matrix before columns are dropped and scaled."""
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            # A NumPy warning would reveal a row's value.
            context = {**environment, **SPLINES}
            matrix = spec.get_model_matrix(self._as_frame(frame), context=context)
        return np.asarray(matrix, dtype=np.float64)

    def _ranges(
        self, spec: Any, names: Sequence[str], owners: Sequence[Term | None]
    ) -> dict[int, tuple[float, float]]:
        """Minimum and maximum of each column on a grid of its term's domain.

        Rows are clipped to this range. A grid that misses an extreme costs accuracy, not privacy.
        """
        out = {}
        for terms in self._groups:
            grid = self._grid(terms)
            values = self._matrix(spec, grid, formula.ON_GRID)
            for j, (name, owner) in enumerate(zip(names, owners, strict=True)):
                if owner not in terms or self._undeclared in name:
                    continue
                column = values[:, j]
                numeric = {
                    v: d for v in owner.variables if isinstance(d := self.schema[v], Interval)
                }
                if not np.isfinite(column).all():
                    bounds = {v: f" ({d.lo:g}, {d.hi:g})" for v, d in numeric.items()}
                    listed = ", ".join(f"{v!r}{bounds.get(v, '')}" for v in owner.variables)
                    raise FormulaError(
                        f"Term {owner.name!r} is not finite everywhere within the declared bounds "
                        f"of {listed}. Declare bounds within which it is finite"
                        f"{', or write log1p' if 'log(' in owner.name else ''}."
                    )
                out[j] = float(column.min()), float(column.max())
                if not any(dict(f.options).get("cuts") for f in owner.factors):
                    continue
                jumps = column != np.median(column)
                for v in numeric:
                    places, axis = np.unique(grid[v][jumps]), np.unique(grid[v])
                    if len(places) <= max(_JUMP * len(axis), 1.0):
                        self.atoms[v] = np.union1d(self.atoms.get(v, ()), places)
        return out

    def dependent(self) -> list[str]:
        """Names of columns that are linearly dependent, with an intercept, on their whole domain.

        Columns are compared with those of the same variables or of some of them.
        """
        owners = {term.name: frozenset(term.variables) for term in self.terms}
        for term in {owners[term.name]: term for term in self.terms}.values():
            near = [j for j, c in enumerate(self.columns) if owners[c.term] <= owners[term.name]]
            if len({self.columns[j].term for j in near}) < 2:  # the columns of a term differ
                continue
            grid = self._grid([term])
            values = self._matrix(self._spec, grid, formula.ON_GRID)[:, self._keep]
            scaled = [self.columns[j].scale(values[:, j]) for j in near]
            triangle = np.linalg.qr(np.stack([np.ones(len(values)), *scaled], axis=1), mode="r")
            _, sizes, directions = np.linalg.svd(triangle)
            if len(sizes) <= len(near) or sizes[-1] < SINGULAR * sizes[0]:
                involved = np.abs(directions[-1, 1:]) > np.sqrt(SINGULAR)
                return [self.columns[j].name for j in np.array(near)[involved]]
        return []

    def _grid(self, terms: Sequence[Term]) -> dict[str, Any]:
        """A frame of all variables on a grid of the terms' variables."""
        if len(variables := terms[0].variables) > 1:
            mesh = np.meshgrid(*self._axes(variables), indexing="ij")
            grid = {v: values.ravel() for v, values in zip(variables, mesh, strict=True)}
        else:
            grid = {v: self._axes([v])[0] for t in terms for v in t.variables}
        rows = max(map(len, grid.values()))
        return {v: np.resize(grid.get(v, self._points(v, _GRID)), rows) for v in self.variables}


def design_of(terms: Sequence[Term], schema: Schema, *, full_rank: bool) -> Design:
    """A `Design`, cached because it is public and formulaic is slow."""
    design = copy(_designs(tuple(terms), schema, full_rank=full_rank))
    design.schema = schema  # equal schemas may differ in the spelling of labels
    return design


_designs = lru_cache(maxsize=64)(Design)


def formulaic_terms(terms: Sequence[Term]) -> Any:
    """An intercept and the terms, as a ``formulaic.formula.SimpleFormula``.

    Evaluate it with the context of `Design` on a frame with only the formula's columns. Another
    column could replace the function of the same name.

    Raises
    ------
    FormulaError
        If `CausalFormula.parse` cannot create a factor.
    """
    from formulaic.formula import SimpleFormula
    from formulaic.parser.types import Factor as Formulaic
    from formulaic.parser.types import Term as Product

    products = [Product([Formulaic("1", eval_method="literal")])]
    for term in terms:
        factors = []
        for factor in term.factors:
            numeric = factor.kind == "numeric"
            plain = replace(factor, ref=None, levels=(), typed="")
            # This is the last check before formulaic evaluates the text.
            if not numeric and call_factor(factor.expr) != plain:
                name = formula.short(factor.expr)
                raise FormulaError(f"{name} does not have the form that privcausal writes.")
            method = "lookup" if numeric else "python"
            factors.append(Formulaic(factor.expr, eval_method=method))
        products.append(Product(factors))
    return SimpleFormula(products)


# A function of the outcome, as in ``log(Y) ~ T``: its domain and its values.
#
# The function is read like a term of the right-hand side. Its range on the declared bounds is found
# on the same public grid. Rows are clipped to the bounds, transformed, and clipped to this range.


def transformed(schema: Schema, formula: CausalFormula) -> Schema:
    """The schema with the domain of the transformed outcome.

    Raises
    ------
    SchemaError, FormulaError
        If the outcome has no numeric bounds, or the function is constant or not finite there.
    """
    name, function = formula.outcome, formula.response
    raw = schema.get(name)
    if isinstance(raw, Transformed):
        raw = raw.raw
    if function is None:
        return schema if raw is schema.get(name) else schema.with_columns({name: raw})
    if not isinstance(raw, Interval):
        raise SchemaError(
            f"Outcome {function.expr} requires declared bounds of {name!r} within which it is "
            f"finite: bounds={{{name!r}: (lo, hi)}}."
        )
    term = Term(function.expr, (function,))
    design = design_of([term], Schema({name: raw}), full_rank=True)
    if not design.columns:
        raise FormulaError(f"Outcome {function.expr} is constant within the declared bounds.")
    column = design.columns[0]
    return schema.with_columns({name: Transformed(column.lo, column.hi, raw)})


def response(formula: CausalFormula, domain: Transformed, values: Vector) -> Vector:
    """The function of outcomes inside ``domain.raw``, shape (n,); NaN where it is not finite."""
    assert formula.response is not None
    term = Term(formula.response.expr, (formula.response,))
    design = design_of([term], Schema({formula.outcome: domain.raw}), full_rank=True)
    scaled = design.scaled({formula.outcome: values}, len(values))[:, 0]
    return np.clip(domain.mid + 0.5 * domain.width * scaled, domain.lo, domain.hi)


# -- rows of covariates, and the values kept for them ----------------------------------------------


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

    objects: tuple[object, ...]  # The key's objects, kept so that others cannot get their ids
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
            out: Matrix | None = None  # values of other rows may be outside their domains
            if self._passing(design):
                out, lifetime = self.matrix(len(design), np.float64), "pass"
            elif self.by_column:
                out = np.empty((self.size, len(design)), order="F")
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
        """The matrix of some `functions.Features`, shape (n, size)."""
        key = "phi", id(features)
        if key not in self.cache:
            self.cache[key] = Cached((features,), features.of(self), "pass")
        return cast(Matrix, self.cache[key].value)
