"""Save and load fits as JSON, and check that a loaded object could come from this package.

A file may come from anyone. Functions in the file are evaluated on private rows when you call
`overlap`, `balance` or `uplift`. If a function failed for some values only, the failure would
reveal exactly whether a row has such a value, at no privacy cost. For this reason the checks on
types, shapes and sizes refuse every object that could make a row map fail, while no rows are
present. All accepted functions are defined for every row. The checks also refuse anything that
expands a small file into a large object.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from privcausal.accounting.charge import PARALLEL
from privcausal.errors import CapabilityError, DataError
from privcausal.estimators.uplift import MOST_DEGREE
from privcausal.estimators.words import Estimate, Nuisances
from privcausal.features import expansions, functions
from privcausal.features.basis import Block, FeatureMap
from privcausal.features.design import MOST_ENTRIES, Design
from privcausal.features.functions import Function
from privcausal.features.rows import FINE_BINS, Features, Rows
from privcausal.inference import effects
from privcausal.inference.cells import CellEffect
from privcausal.inference.population import Population
from privcausal.request import factors, partition
from privcausal.request.formula import Term, check_terms
from privcausal.request.request import COHORTS, Request
from privcausal.request.schema import Binary, Domain, Interval, Levels, Schema, level_names
from privcausal.request.terms import Place, ResultTerm, in_places
from privcausal.stored import CLASSES

# Versioned JSON of a fit: released numbers and public declarations only, never pickle. Only frozen
# classes marked `@stored` are written or read, so a file cannot contain code.

FORMAT, VERSION = "privcausal fit", 1

LARGEST = 1 << 30
"""Largest file that is read, in bytes: far more than any fit needs."""

FORMER = {("AverageEstimate", "taken_off"), ("CausalFormula", "instrument")}
"""Fields that files of this format may contain and that are no longer used."""

CONTENT = {"estimate", "call", "ledger_line"}
"""Entries of a file that store a result."""


def save(kind: str, content: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write `content` as JSON of this format; the same content gives the same bytes."""
    writer = _Writer()
    body = {name: writer.encode(value) for name, value in content.items()}
    document = {"format": FORMAT, "version": VERSION, "kind": kind, "body": body}
    Path(path).write_text(json.dumps(document, allow_nan=False), encoding="utf-8")


def load_content(path: str | os.PathLike[str]) -> tuple[str, dict[str, Any]]:
    """Kind and content of a saved fit.

    Raises
    ------
    DataError
        The file is missing, is not a fit of this package, or comes from a newer version.
    """
    if not Path(path).exists():
        raise DataError(f"File {os.fspath(path)!r} does not exist.")
    try:
        if Path(path).stat().st_size > LARGEST:
            raise ValueError("size")
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise DataError(f"{os.fspath(path)!r} is not a fit saved by privcausal.")
    if document.get("version") != VERSION:
        raise DataError(
            f"{os.fspath(path)!r} was saved by another version of privcausal (format "
            f"{str(document.get('version'))[:20]}). This version reads format {VERSION}."
        )
    try:
        reader = _Reader()
        content = {name: reader.decode(value) for name, value in document["body"].items()}
        texts = (content["call"], content["ledger_line"] or "")
        if set(content) != CONTENT or not all(isinstance(text, str) for text in texts):
            raise ValueError("content")
        if not isinstance(content["estimate"], Estimate):
            raise ValueError("content")
        with np.errstate(all="ignore"):
            reader.checked.fit(content["estimate"])
        return str(document["kind"]), content
    except Exception:  # Any error in the content means that the file is damaged.
        raise DataError(f"{os.fspath(path)!r} is damaged.") from None


class _Writer:
    """Encodes values as JSON; a repeated class instance becomes a reference to its first
    occurrence.
    """

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # Keep references, so that Python cannot reuse an id.

    def encode(self, value: Any) -> Any:
        for kinds, write in _WRITERS:
            if isinstance(value, kinds):
                return write(self, value)
        if id(value) in self._seen:
            return {"ref": self._seen[id(value)]}
        fields = self._fields(value)
        number = self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return {"new": number, "class": type(value).__name__, "fields": fields}

    def _fields(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Schema):
            return value.to_dict()
        if isinstance(value, Design):
            return {
                "terms": self.encode(value.asked),
                "schema": self.encode(value.schema),
                "full_rank": value.full_rank,
            }
        kind: type[Any] = type(value)
        if why := getattr(kind, "unsaved", ""):
            raise CapabilityError(why)
        if CLASSES.get(kind.__name__) is not kind:
            raise TypeError(f"{kind.__name__} cannot be saved")
        return {f.name: self.encode(getattr(value, f.name)) for f in dataclasses.fields(value)}


# The order matters: in Python a bool is an int.
_WRITERS: tuple[tuple[Any, Callable[[_Writer, Any], Any]], ...] = (
    (type(None) | str | bool, lambda _, value: value),
    (int | np.integer, lambda _, value: int(value)),
    (float | np.floating, lambda _, value: _plain(float(value))),
    (
        np.ndarray,
        lambda _, value: {
            "array": _flat_arrays(value), "shape": list(value.shape), "dtype": str(value.dtype),
        },
    ),
    (tuple | list, lambda writer, value: {"tuple": [writer.encode(v) for v in value]}),
    (
        Mapping,
        lambda writer, value: {
            "map": [[writer.encode(k), writer.encode(v)] for k, v in value.items()]
        },
    ),
)  # fmt: skip


class _Reader:
    """Rebuilds the objects that `_Writer` wrote."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}
        self.checked = Checked()

    def decode(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        tag = next(tag for tag in value if tag in _TAGS)
        return _TAGS[tag](self, value)

    def _array(self, value: dict[str, Any]) -> Any:
        if value["dtype"] not in ("float64", "int64", "bool"):
            raise ValueError("array type")
        shape = value["shape"]
        whole = all(type(size) is int and 0 <= size <= MOST_ENTRIES for size in shape)
        if not whole or math.prod(shape) != len(value["array"]):
            raise ValueError("array shape")
        flat = [float(v) if isinstance(v, str) else v for v in value["array"]]
        return np.array(flat, dtype=value["dtype"]).reshape(shape)

    def _new(self, value: dict[str, Any]) -> Any:
        name, fields = value["class"], value["fields"]
        if name == "Schema":
            made: Any = Schema.from_dict(fields)
        elif name == "Design":
            made = self.checked.design(
                self.decode(fields["terms"]), self.decode(fields["schema"]), fields["full_rank"]
            )
        else:
            # Older files store it in the query's text.
            if name == "Charge" and "parallel" not in fields:
                query = str(fields["query"])
                told = {"query": query.removesuffix(f" {PARALLEL}")}
                fields = fields | told | {"parallel": query.endswith(PARALLEL)}
            if fields.get("instrument"):  # Files from before formulas had several instruments.
                fields = fields | {"instruments": {"tuple": [fields["instrument"]]}}
            if name == "AverageEstimate" and isinstance(fields["terms"]["tuple"][0], str):
                fields = fields | self._named(fields["terms"]["tuple"], fields["groups"]["tuple"])
            known = {k: v for k, v in fields.items() if (name, k) not in FORMER}
            made = self.checked.add(CLASSES[name](**{k: self.decode(v) for k, v in known.items()}))
        self._made[value["new"]] = made
        return made

    def _named(self, terms: list[str], groups: list[str]) -> dict[str, tuple[ResultTerm, ...]]:
        """Terms and groups of older files, which store their names only."""
        request = next(one for one in self.checked.kept if isinstance(one, Request))
        found, places = list(request.terms), []
        for name in terms[len(found) :]:
            kind: Any = "coefficient" if "[" in name or not found else "slope"
            column = re.sub(r"^C\((.+?)\)\[.*|\[.*", r"\1", name) if found else ""
            if request.estimand == COHORTS:
                kind, column = "effect", ""
            found.append(ResultTerm(kind, name, column=column))
        averages = request.terms or found[:1]
        for name in groups[: len(groups) // len(averages)]:
            factor, bracket, level = name.removeprefix(f"{averages[0]}:").partition("[")
            places.append(Place(factor, level[:-1] if bracket else None))
        return {"terms": tuple(found), "groups": in_places(averages, places)}


_TAGS: dict[str, Callable[[_Reader, dict[str, Any]], Any]] = {
    "float": lambda _, value: float(value["float"]),
    "array": _Reader._array,
    "tuple": lambda reader, value: tuple(reader.decode(v) for v in value["tuple"]),
    "map": lambda reader, value: {reader.decode(k): reader.decode(v) for k, v in value["map"]},
    "ref": lambda reader, value: reader._made[value["ref"]],
    "new": _Reader._new,
}


def _plain(number: float) -> Any:
    """A JSON value; JSON cannot represent nan and infinity as numbers."""
    return number if math.isfinite(number) else {"float": repr(number)}


def _flat_arrays(array: Any) -> list[Any]:
    return [
        v if not isinstance(v, float) or math.isfinite(v) else repr(v)
        for v in array.ravel().tolist()
    ]


MOST_CALLS = 100
"""Maximum number of function calls that one function makes, counting repeats.

A reference to an earlier object costs a few bytes. A chain of forty references could therefore make
a trillion calls. Fits have up to a dozen.
"""

MOST_STORED_COLUMNS, MOST_COLUMNS_IN_ALL = 2_000, 20_000
"""Maximum columns of a design, and of all designs of a file, by the declared levels.

Fits have up to a thousand. A design of 20,000 columns would take ten gigabytes.
"""

PROTOCOL_CLASSES: dict[Any, tuple[type, ...]] = {
    # Functions of one row. Functions known at some points only are excluded. Functions of products
    # of whole matrices are excluded too, because their last bits depend on the other rows.
    Function: (
        functions.Additive, functions.ArmMean, functions.Constant, functions.Difference,
        effects.Effect, functions.Extended, functions.Known, functions.Mixture, functions.Network,
    ),
    Features: (FeatureMap, expansions.Fourier, expansions.Interactions),
    partition.Axis: (partition.CutAxis, partition.LevelAxis, partition.RegularAxis),
}  # fmt: skip
"""The classes that implement each protocol."""

_ARRAYS = {name: type(name, (), {}) for name in ("Vector", "Matrix", "Integers")}
"""Placeholders for array types, which do not state their number of axes."""

_AXES = dict(zip(_ARRAYS.values(), ((1, "float64"), (2, "float64"), (1, "int64")), strict=True))
"""Number of axes and dtype of each array type."""


class Checked:
    """The objects of one file, checked as they are created.

    Raises
    ------
    ValueError
        An object could not come from this package. The error reveals nothing about its content.
    """

    def __init__(self) -> None:
        self._calls: dict[int, int] = {}
        self.kept: list[Any] = []  # Keep each object, so that no other object can get its id.
        self._columns = 0

    def add(self, made: Any) -> Any:
        """The object, after it passes its own checks."""
        hints = _hints(made.__class__)
        values = {name: getattr(made, name) for name in hints}
        _need(all(_is(value, hints[name]) for name, value in values.items()))
        _need(_sized(made))
        self.kept.append(made)
        parts = [part for value in values.values() for part in _flat(value)]
        own = isinstance(made, PROTOCOL_CLASSES[Function])
        self._calls[id(made)] = own + sum(self._calls.get(id(part), 0) for part in parts)
        _need(self._calls[id(made)] <= MOST_CALLS or isinstance(made, Estimate | Nuisances))
        return made

    def design(self, terms: Any, schema: Any, full_rank: Any) -> Design:
        """The design of checked terms."""
        _need(_is(terms, tuple[Term, ...]) and isinstance(schema, Schema))
        _need(type(full_rank) is bool)
        # Each function counts as one column.
        sizes = {v: len(d.labels) for v in schema if isinstance(d := schema[v], Levels)}
        columns = sum(math.prod(sizes.get(v, 1) for v in term.variables) for term in terms)
        self._columns += columns
        _need(columns <= MOST_STORED_COLUMNS and self._columns <= MOST_COLUMNS_IN_ALL)
        check_terms(terms)
        made = Design(terms, schema, full_rank=full_rank)
        self.kept.append(made)
        return made

    def fit(self, estimate: Estimate) -> None:
        """Check that the parts of a fit agree, and that its functions return numbers."""
        request, schema = estimate.plan.request, estimate.schema
        replace(request, schema=schema)  # The constructor runs its own checks.
        _need(not estimate.plan.least_rows or request.trust.neighbors == "substitute")
        columns = request.needed
        _need(all(name in schema for name in columns))
        formula = request.formula
        if formula.treatment:
            kind = Interval if request.asked.per_unit else Levels if request.asked.arms else Binary
            _need(isinstance(schema[formula.treatment], kind))
        for name in formula.instruments:
            number, several = isinstance(schema[name], Interval), len(formula.instruments) > 1
            _need(several or number == request.asked.dose)
            _need(number or isinstance(schema[name], Binary))
        _need(isinstance(schema[request.formula.outcome], Binary | Interval))
        for one in self.kept:
            if isinstance(one, Design | partition.Coordinates | Population):
                names = tuple(one.probabilities) if isinstance(one, Population) else one.variables
                _need(set(names) <= set(columns))
                _need(all(one.schema.get(name) == schema[name] for name in names))
            if isinstance(one, partition.Product):
                _need(all(a.name in columns and _cuts(a, schema[a.name]) for a in one.axes))
        rows = _corners(schema, columns, estimate.known)
        found = estimate.nuisances
        maps = [getattr(found, f.name) for f in fields(found)] if found is not None else []
        if estimate.effect is not None and not isinstance(estimate.effect, effects.Answers):
            maps += [estimate.effect, estimate.effect.sd]
        estimate.population.rows(estimate.known)
        for function in maps:
            _need(function(rows).shape == (len(rows),))


def _need(true: object) -> None:
    if not true:
        raise ValueError("not written by this package")


# -- types -------------------------------------------------------------------------------------


@lru_cache
def _hints(kind: type) -> dict[str, Any]:
    """The types of a class's fields."""
    hints = get_type_hints(kind, localns=_ARRAYS)
    return {field.name: hints[field.name] for field in fields(kind)}


def _is(value: Any, hint: Any) -> bool:
    """Whether a value has the type in a field's annotation."""
    if hint in _AXES:
        axes, number = _AXES[hint]
        return isinstance(value, np.ndarray) and (value.ndim, value.dtype) == (axes, number)
    if hint is Function and isinstance(value, effects.Answers):
        return False
    generic = _GENERIC.get(get_origin(hint))
    if generic is not None:
        return generic(value, get_args(hint))
    plain = _PLAIN.get(hint)
    return isinstance(value, PROTOCOL_CLASSES.get(hint, hint)) if plain is None else plain(value)


def _is_tuple(value: Any, of: tuple[Any, ...]) -> bool:
    if not isinstance(value, tuple):
        return False
    each = of[:1] * len(value) if of[-1] is ... else of
    return len(value) == len(each) and all(map(_is, value, each))


def _is_mapping(value: Any, of: tuple[Any, ...]) -> bool:
    return isinstance(value, dict) and all(
        _is(key, of[0]) and _is(one, of[1]) for key, one in value.items()
    )


_GENERIC: dict[Any, Callable[[Any, tuple[Any, ...]], bool]] = {
    **dict.fromkeys((Union, UnionType), lambda value, of: any(_is(value, one) for one in of)),
    Literal: lambda value, of: isinstance(value, str) and value in of,
    tuple: _is_tuple,
    Mapping: _is_mapping,
}

_PLAIN: dict[Any, Callable[[Any], bool]] = {
    Any: lambda value: isinstance(value, str | int | float | None),
    # A whole number too large for a float raises OverflowError.
    float: lambda value: type(value) is float or (type(value) is int and _finite(float(value))),
    int: lambda value: type(value) is int,
    bool: lambda value: type(value) is bool,
    str: lambda value: type(value) is str,
    NoneType: lambda value: value is None,
}


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        for one in value:
            yield from _flat(one)
    else:
        yield value


# -- shapes ------------------------------------------------------------------------------------


def _finite(*values: Any) -> bool:
    return all(bool(np.isfinite(value).all()) for value in values)


def _ordered(lo: float, hi: float) -> bool:
    return bool(lo <= hi)  # False if one of them is NaN


def _within(places: Any, size: int) -> bool:
    return bool(((places >= 0) & (places < size)).all())


def _sized(f: Any) -> bool:  # noqa: PLR0911, PLR0912, PLR0915 - a table of classes
    """Whether shapes and numbers of one object are valid for a row map."""
    match f:
        case functions.Additive():
            fits = f.coef.shape == (f.features.size,) and _finite(f.coef, f.offset)
            return fits and _ordered(f.lo, f.hi)
        case effects.Answers():
            d = len(f.points)
            shapes = f.points.shape[1] == len(f.columns) and f.value.shape == f.spread.shape == (d,)
            return shapes and _within(f.columns, len(f.design)) and f.reach >= 0
        case functions.ArmMean():
            return _finite(f.arm) and _ordered(f.lo, f.hi)
        case effects.ArmPolynomials():
            fits = f.coef.shape == (2, f.polynomials.size)
            return fits and _finite(f.coef, f.half) and f.half > 0
        case Block():
            k = len(f.order)
            shape = (
                k == 1 if f.table is None else f.table.shape == (FINE_BINS, k) and _finite(f.table)
            )
            orders = k > 0 and all(0 <= order <= FINE_BINS for order in f.order)
            return shape and orders and _finite(f.gain, f.shift)
        case CellEffect():
            n = f.partition.size
            axes = not isinstance(f.partition, partition.Product) or bool(f.partition.axes)
            shapes = f.value.shape == (n,) and len(f.root) == n and f.count.shape == (n, 2)
            return axes and shapes and _finite(f.value, f.root, f.count)
        case functions.Constant():
            return _finite(f.value)
        case partition.Coordinates():
            return bool(f.variables) and all(name in f.schema for name in f.variables)
        case partition.CutAxis():
            return all(x < y for x, y in pairwise([f.lo, *f.cuts, f.hi]))
        case effects.Effect():
            return f.reach >= 0
        case functions.Extended():
            plain, p = type(f.base) is functions.Additive, f.features.features.size
            own = not plain or f.base.coef.shape == (p,)  # type: ignore[attr-defined]
            return own and f.coef.shape == (f.features.size,) and _finite(f.coef)
        case factors.Factor():
            as_written = (
                factors.bare_factor(f.expr) if f.kind == "numeric" else factors.call_factor(f.expr)
            )
            same = not f.typed or factors.call_factor(f.typed).evaluated == f.evaluated
            return same and as_written == f.evaluated
        case FeatureMap():
            return f.cut > 0 and all(0 <= b.column < len(f.design) for b in f.blocks)
        case expansions.Fourier():
            shapes = len(f.shares) > 0 and f.frequencies.shape == (len(f.shares), len(f.columns))
            numbers = _finite(f.frequencies, f.shares) and min(f.shares, default=-1) >= 0
            return shapes and numbers and f.bandwidth > 0 and _within(f.columns, len(f.design))
        case expansions.Index():
            return _finite(f.coef, f.shift, f.scale) and f.scale != 0
        case expansions.Interactions():
            p, k = f.features.size, f.size
            raw = len(f.pairs) + 3 * len(f.curved) + f.leaves
            shapes = k == raw and f.lift.shape == (p, k) and f.scales.shape == (p,)
            linear = all(0 < j < p for pair in (*f.pairs, *f.curved) for j in pair)
            own = [index.coef.shape == (p,) for index in f.indices or ()]
            split = all(-len(own) <= j < p and j != 0 for tree in f.trees for j, _ in tree)
            known = all(own) and split
            return shapes and linear and known and f.cut > 0 and _finite(f.lift, f.gain, f.scales)
        case functions.Known():
            return _ordered(f.lo, f.hi)
        case partition.LevelAxis():
            return bool(f.labels)
        case partition.Nearest():
            cells = 0 < f.size <= partition.MOST_CELLS and f.centres.shape[1] == f.coordinates.size
            return cells and _finite(f.centres)
        case functions.Network():
            inputs = len(f.design) + (f.arm is not None)
            numbers = _finite(f.weights, f.offset, f.gain, 0.0 if f.arm is None else f.arm)
            return f.weights.shape == (functions.size(inputs),) and numbers and _ordered(f.lo, f.hi)
        case effects.Piece():
            k = f.additive.features.size
            return f.cov.shape == (k, k) and _finite(f.cov)
        case expansions.Polynomials():
            return 1 <= f.degree <= MOST_DEGREE
        case Population():
            sizes = {name: (_codes(f.schema[name]),) for name in f.probabilities}
            shapes = all(v.shape == sizes[name] for name, v in f.probabilities.items())
            square = f.correlation.shape == (len(f.numeric), len(f.numeric))
            return shapes and square and _finite(f.correlation, *f.probabilities.values())
        case partition.Product():
            names = {axis.name for axis in f.axes}
            cells = math.prod(axis.size for axis in f.axes)
            return len(names) == len(f.axes) and cells <= partition.MOST_CELLS
        case partition.RegularAxis():
            return 1 <= f.parts <= partition.MOST_CELLS
        case partition.Tabulated():
            cells = f.cells.shape == (f.grid.size,) and _within(f.cells + 1, f.size + 1)
            return cells and 0 < f.size <= partition.MOST_CELLS
    return True


def _codes(domain: Domain) -> int:
    """Number of probabilities of a variable with this domain."""
    if isinstance(domain, Levels):
        return len(domain.labels) + 1
    return FINE_BINS if isinstance(domain, Interval) else 2


# -- the whole fit -----------------------------------------------------------------------------


def _cuts(axis: partition.Axis, domain: Domain) -> bool:
    """Whether an axis has this domain."""
    if isinstance(axis, partition.LevelAxis):
        return not isinstance(domain, Interval) and axis.labels == level_names(domain)
    assert isinstance(axis, partition.CutAxis | partition.RegularAxis)
    return isinstance(domain, Interval) and (axis.lo, axis.hi) == (domain.lo, domain.hi)


def _corners(schema: Schema, columns: tuple[str, ...], known: functions.Known | None) -> Rows:
    """Three public rows: ends and middle of each interval; no level, first and last level."""
    ends = {
        name: np.array([-1, 0, len(domain.labels) - 1])
        if isinstance(domain, Levels)
        else np.array([domain.lo, domain.mid, domain.hi])
        if isinstance(domain, Interval)
        else np.array([0.0, 1.0, 0.0])
        for name, domain in ((name, schema[name]) for name in columns)
    }
    return Rows(ends, 3, None if known is None else np.array([known.lo, known.hi, known.lo]))
