"""From a formula and declared domains to bounded features: public functions of one row.

A `Design` is the formula materialised on a skeleton, a small public frame that spans the declared
domains; whatever a formula term learns (knots, polynomial coefficients, levels) it learns there.
A `FeatureMap` expands the design's columns into basis functions with a norm cut.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Literal, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from privcausal.errors import FormulaError
from privcausal.spec.factors import MAX_BASIS
from privcausal.spec.formula import ENVIRONMENT, Factor, Term, formulaic_terms
from privcausal.spec.schema import Binary, Domain, Interval, Levels, Schema
from privcausal.typing import Integers, Matrix, Singles, Vector

T = TypeVar("T")
Float = TypeVar("Float", np.float32, np.float64)

FINE = 256
"""Public fine bins over a column's range; basis functions are tables on them."""
_LINE = 4097  # points on which the range of a function of one variable is taken
_SQUARE, _CUBE = 129, 33  # of each variable, for functions of two and of more
MOST_ENTRIES, MOST_WORK = 1 << 27, 1 << 32
"""Numbers of a design's largest table on a grid of the domain, a gigabyte, and of all of them."""
_GRID = 257  # prime, so that strides give every variable the same uniform skeleton marginal


@dataclass(frozen=True, slots=True)
class Column:
    """One design column: its name, the term it comes from and its range over the domain."""

    name: str
    term: str
    kind: Literal["numeric", "indicator", "function", "interaction"]
    lo: float
    hi: float
    variable: str | None = None

    def scale(self, values: Vector) -> Vector:
        """Values cut to [lo, hi] and mapped to [-1, 1]; indicators stay 0/1."""
        values = np.clip(values, self.lo, self.hi)
        if self.kind == "indicator":
            return values
        return (values - 0.5 * (self.lo + self.hi)) / (0.5 * (self.hi - self.lo))

    @property
    def per_unit(self) -> float:
        """Scaled units per natural unit: a slope in natural units is slope x per_unit."""
        return 1.0 if self.kind == "indicator" else 2.0 / (self.hi - self.lo)


class Design:
    """Design columns of some formula terms over a schema, each scaled to a known range.

    Parameters
    ----------
    terms : sequence of Term
    schema : Schema
        Must declare (or have bought) a domain for every variable of the terms.
    full_rank : bool
        Drop a reference level per factor (regression tables), or keep all (shrunken bases).
    """

    def __init__(self, terms: Sequence[Term], schema: Schema, *, full_rank: bool) -> None:
        self.asked = tuple(terms)
        self.terms = _without_repeats([_as_column(term) for term in terms])
        self.smooth = {t.factors[0].variables[0]: _size(t) for t in terms if _is_smooth(t)}
        self.schema = schema
        self.full_rank = full_rank
        names = (v for t in terms for f in t.factors for v in f.variables)
        self.variables = tuple(dict.fromkeys(names))
        self._undeclared = _unlike([*self.variables, *self._labels()])
        self._spec, self._keep, self.columns = self._materialise()
        self._codes = self._code_tables()

    def __len__(self) -> int:
        return len(self.columns)

    def scaled(self, frame: Mapping[str, Vector | Integers], size: int) -> Matrix:
        """Scaled columns, shape (n, q), from clipped numbers and level codes of the variables.

        A row on which some term is not finite is NaN in that column.
        """
        if not self.columns:
            return np.zeros((size, 0))
        values = self._evaluate(frame)
        out = np.empty((size, len(self.columns)))
        for j, column in enumerate(self.columns):
            out[:, j] = column.scale(values[:, j])
        return out

    def by_column(self, frame: Mapping[str, Vector | Integers], size: int) -> Matrix:
        """The same, of values inside their domains, column by column in memory (Fortran's order).

        Formulaic is asked only where a term is more than one column: numbers and levels are looked
        up, which gives the same bits many times faster.
        """
        out = np.empty((size, len(self.columns)), order="F")
        return self.into(out, frame)

    def into(self, out: Matrix, frame: Mapping[str, Vector | Integers]) -> Matrix:
        """`by_column` of as many rows as `out` has, written there."""
        values = None if self.plain else self._evaluate(frame)
        for j, column in enumerate(self.columns):
            if column.kind in ("numeric", "indicator"):
                self.one(j, frame, out[:, j])
            else:
                assert values is not None
                out[:, j] = column.scale(values[:, j])
        return out

    def one(self, j: int, frame: Mapping[str, Vector | Integers], out: Vector) -> Vector:
        """A column that is a number or a level, of values inside their domains, to `out`."""
        column = self.columns[j]
        if column.kind == "indicator":
            # -1, an undeclared label, is the last; no other code goes beyond either end
            codes = frame[str(column.variable)].astype(np.intp)
            own = self._codes[j].take(codes, mode="wrap")
        else:
            own = np.asarray(frame[str(column.variable)], np.float64)
            if self._inside[j]:
                # the same bits as of `Column.scale`, in half the steps
                np.subtract(own, 0.5 * (column.lo + column.hi), out=out)
                return np.divide(out, 0.5 * (column.hi - column.lo), out=out)
        out[:] = column.scale(own)
        return out

    @cached_property
    def _inside(self) -> list[bool]:
        """Which columns are numbers whose domain is the column's own range."""
        domains = [self.schema[c.variable] if c.variable else None for c in self.columns]
        return [
            isinstance(domain, Interval) and (domain.lo, domain.hi) == (c.lo, c.hi)
            for c, domain in zip(self.columns, domains, strict=True)
        ]

    @cached_property
    def plain(self) -> bool:
        """Whether every column is a number or a level, and so finite inside its domain."""
        return all(column.kind in ("numeric", "indicator") for column in self.columns)

    # -- materialisation ---------------------------------------------------------------------

    def _labels(self) -> list[str]:
        domains = [self.schema[name] for name in self.variables]
        return [label for d in domains if isinstance(d, Levels) for label in d.labels]

    def _materialise(self) -> tuple[Any, list[int], tuple[Column, ...]]:
        if not self.terms:
            return None, [], ()
        self._check_size()
        spec, names, owners = _fit_spec(self.terms, self._skeleton(), full_rank=self.full_rank)
        keep, columns = [], []
        ranges = self._ranges(spec, names, owners)
        for j, (name, owner) in enumerate(zip(names, owners, strict=True)):
            if owner is None or self._undeclared in name:
                continue
            lo, hi = ranges[j]
            if hi > lo:  # a constant column says what the intercept says
                keep.append(j)
                columns.append(self._column(name, owner, lo, hi))
        return spec, keep, tuple(columns)

    def _check_size(self) -> None:
        """Factors of many levels, or many products of them, would take all memory, or hours."""
        columns = sum(math.prod(map(self._width, term.factors)) for term in self.terms)
        rows = [self._grid_size(_variables(terms[0])) for terms in self._evaluated_together()]
        if max(rows) * columns > MOST_ENTRIES or sum(rows) * columns > MOST_WORK:
            raise FormulaError(
                f"the formula has up to {columns} columns, of factors with many levels or their "
                "products, which is too many; declare fewer levels, or leave out interactions"
            )

    def _width(self, factor: Factor) -> int:
        """Columns of a factor, at most."""
        if factor.kind == "categorical":
            domain = self.schema[factor.variables[0]]
            return len(domain.labels) + 1 if isinstance(domain, Levels) else 2
        return MAX_BASIS if factor.kind in ("spline", "poly") else 1

    def _grid_size(self, variables: tuple[str, ...]) -> int:
        """Rows of the grid on which a term of these variables is evaluated."""
        size = {1: _LINE, 2: _SQUARE}.get(len(variables), _CUBE)
        points = [_count(self.schema[name], size) for name in variables]
        return math.prod(points) if len(points) > 1 else max(_LINE, *points)

    def _column(self, name: str, term: Term, lo: float, hi: float) -> Column:
        kind, variable = _column_kind(term), _bare(term)
        if kind == "numeric" and not isinstance(self.schema[str(variable)], Interval):
            kind = "indicator"
        return Column(name, term.name, kind, lo, hi, variable)

    def _code_tables(self) -> dict[int, Vector]:
        """Each indicator's value at the codes 0, 1, ... of its variable, the last one at -1."""
        found: dict[int, Vector] = {}
        if not any(column.kind == "indicator" for column in self.columns):
            return found
        points = {v: self._coded(v) for v in self.variables}
        rows = max(map(len, points.values()))
        # a shorter variable's last value fills its rows to the end: -1 for levels
        frame = {v: np.append(p, np.repeat(p[-1:], rows - len(p))) for v, p in points.items()}
        values = self._evaluate(frame)
        for j, column in enumerate(self.columns):
            if column.kind == "indicator":
                found[j] = values[: len(points[str(column.variable)]), j].copy()
        return found

    def _coded(self, name: str) -> Any:
        domain = self.schema[name]
        if isinstance(domain, Interval):
            return np.array([domain.mid])
        return np.append(self._points(name, 0), -1) if isinstance(domain, Levels) else np.r_[0.0, 1]

    def _skeleton(self) -> Any:
        """All variables at once, each uniform over its own domain by coprime strides."""
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
                own, beyond = frame[name], len(domain.labels)
                codes = np.where((own >= 0) & (own < beyond), own, beyond)
                out[name] = pd.Categorical.from_codes(codes.astype(np.int64), categories=categories)
            else:
                out[name] = frame[name]
        return pd.DataFrame(out)

    def _evaluate(self, frame: Mapping[str, Any]) -> Matrix:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            # numpy would tell of a row's value; a value that is not finite is a missing feature
            warnings.simplefilter("ignore")
            matrix = self._spec.get_model_matrix(self._as_frame(frame), context=ENVIRONMENT)
        values = np.asarray(matrix, dtype=np.float64)[:, self._keep]
        values[~np.isfinite(values)] = np.nan
        return values

    def _ranges(
        self, spec: Any, names: Sequence[str], owners: Sequence[Term | None]
    ) -> dict[int, tuple[float, float]]:
        """Smallest and largest value of each column on a product grid of its term's domain.

        Rows are cut to this range, so a grid that misses an extreme costs accuracy, not privacy.
        """
        out = {}
        for terms in self._evaluated_together():
            values = self._on_grid(terms, spec)
            for j, (name, owner) in enumerate(zip(names, owners, strict=True)):
                if owner not in terms or self._undeclared in name:
                    continue
                column = values[:, j]
                if not np.isfinite(column).all():
                    raise FormulaError(
                        f"term {owner.name!r} is not finite everywhere on the declared bounds of "
                        f"{', '.join(map(repr, _variables(owner)))}; declare bounds on which it is"
                    )
                out[j] = float(column.min()), float(column.max())
        return out

    def _evaluated_together(self) -> list[list[Term]]:
        """Terms of one variable do not mind what the others' variables do: one grid serves all."""
        alone = [t for t in self.terms if len(_variables(t)) == 1]
        return [*([alone] if alone else []), *([t] for t in self.terms if t not in alone)]

    def _on_grid(self, terms: Sequence[Term], spec: Any) -> Matrix:
        """The whole design, shape (rows, all columns), on a grid of the terms' variables."""
        if len(variables := _variables(terms[0])) > 1:
            size = _SQUARE if len(variables) == 2 else _CUBE
            axes = [self._points(v, size) for v in variables]
            mesh = np.meshgrid(*axes, indexing="ij")
            grid = {v: values.ravel() for v, values in zip(variables, mesh, strict=True)}
        else:
            grid = {v: self._points(v, _LINE) for t in terms for v in _variables(t)}
        rows = max(map(len, grid.values()))
        full = {v: np.resize(grid.get(v, self._points(v, _GRID)), rows) for v in self.variables}
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            matrix = spec.get_model_matrix(self._as_frame(full), context=ENVIRONMENT)
        return np.asarray(matrix, dtype=np.float64)


def _count(domain: Domain, size: int) -> int:
    """How many `Design._points` a domain has."""
    if isinstance(domain, Interval):
        return size
    return 2 if isinstance(domain, Binary) else len(domain.labels)


def design_of(terms: Sequence[Term], schema: Schema, *, full_rank: bool) -> Design:
    """A `Design`, made anew or as one before: it is public, and formulaic takes its time."""
    found = copy(_made(tuple(terms), schema, full_rank))
    found.asked, found.schema = tuple(terms), schema  # what is saved refers to these very objects
    return found


@lru_cache(maxsize=64)
def _made(terms: tuple[Term, ...], schema: Schema, full_rank: bool) -> Design:
    return Design(terms, schema, full_rank=full_rank)


def _variables(term: Term) -> tuple[str, ...]:
    return tuple(dict.fromkeys(v for f in term.factors for v in f.variables))


def _unlike(texts: Sequence[str]) -> str:
    """A label for undeclared levels that is part of none of `texts`: labels may be bought.

    No formula holds a control character, so no other text can bring the label into a column name.
    """
    marker = "<\x1fundeclared>"
    while any(marker in text for text in texts):
        marker = f"<{marker}>"
    return marker


def _is_smooth(term: Term) -> bool:
    return len(term.factors) == 1 and term.factors[0].kind == "smooth"


def _size(term: Term) -> int | None:
    """Basis functions asked for by ``s(x, k=...)``."""
    k = dict(term.factors[0].options).get("k")
    return int(k) if isinstance(k, int | float) else None


def _as_column(term: Term) -> Term:
    """``s(x)`` is the column x; how smooth it is, the base decides."""
    factors = tuple(
        Factor(f.variables[0], "numeric", f.variables) if f.kind == "smooth" else f
        for f in term.factors
    )
    return Term(":".join(f.expr for f in factors), factors)


def _without_repeats(terms: Sequence[Term]) -> tuple[Term, ...]:
    """``x + s(x)`` is one column."""
    return tuple({frozenset(f.expr for f in t.factors): t for t in terms}.values())


def _fit_spec(
    terms: Sequence[Term], skeleton: Any, *, full_rank: bool
) -> tuple[Any, list[str], list[Term | None]]:
    """Formulaic's model spec learned from the public skeleton, with the term of each column."""
    from formulaic import model_matrix

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        matrix = model_matrix(
            formulaic_terms(terms),
            skeleton,
            context=ENVIRONMENT,
            na_action="ignore",
            ensure_full_rank=full_rank,
        )
    spec = matrix.model_spec
    by_factors = {frozenset(f.expr for f in t.factors): t for t in terms}
    names: list[str] = []
    owners: list[Term | None] = []
    for encoded, columns in spec.term_indices.items():
        owner = by_factors.get(frozenset(f.expr for f in encoded.factors))
        for j in columns:
            names.append(spec.column_names[j])
            owners.append(owner)
    return spec, names, owners


def _column_kind(term: Term) -> Literal["numeric", "indicator", "function", "interaction"]:
    if len(term.factors) > 1:
        return "interaction"
    kind = term.factors[0].kind
    if kind == "categorical":
        return "indicator"
    return "numeric" if kind == "numeric" else "function"


def _bare(term: Term) -> str | None:
    alone = len(term.factors) == 1 and term.factors[0].kind in ("numeric", "categorical")
    return term.factors[0].variables[0] if alone else None


@dataclass(frozen=True)
class Block:
    """Basis functions of one design column.

    `table` has shape (FINE, K) for smooth columns and is looked up; otherwise the single function
    is ``gain * (column - shift)``. `order` is 1 for linear, 2, 3, ... by roughness; `group` names
    what shares a prior variance.
    """

    column: int
    order: tuple[int, ...]
    group: str
    gain: float = 1.0
    shift: float = 0.0
    table: Matrix | None = None

    def __call__(self, scaled: Matrix) -> Matrix:
        values = scaled[:, self.column]
        if self.table is None:
            return (self.gain * (values - self.shift))[:, None]
        return np.asarray(self.table[fine_bins(values)])

    @cached_property
    def tables(self) -> tuple[Vector, ...]:
        """The columns of `table`, each contiguous in memory."""
        assert self.table is not None
        return tuple(np.ascontiguousarray(self.table.T))

    @property
    def reach(self) -> float:
        """Largest size of a function of the block."""
        if self.table is None:
            return abs(self.gain) * (1.0 + abs(self.shift))
        return float(np.abs(self.table).max())

    def function(self, rows: Rows, design: Design, number: int, out: Vector) -> Vector:
        """One function of the block at rows, written to `out`."""
        if self.table is not None:
            return looked_up(self.tables[number], rows.bins(design, self.column), out)
        np.subtract(rows.column(design, self.column), self.shift, out=out)
        return np.multiply(self.gain, out, out=out)


def looked_up(table: NDArray[Float], bins: Integers, out: NDArray[Float]) -> NDArray[Float]:
    """table[bins]; with another mode than "clip" NumPy would go through a copy."""
    return table.take(bins, out=out, mode="clip")


def _places(scaled: Vector) -> Any:
    """`fine_bins` of values that are surely in [-1, 1], but for the upper end, in little memory."""
    position = scaled + 1.0
    position *= FINE / 2
    return position.astype(np.int16)


def fine_bins(scaled: Vector) -> Integers:
    """Index of the public fine bin of values in [-1, 1]; a row with NaN counts zero anyway."""
    position = scaled + 1.0
    position *= FINE / 2
    position[np.isnan(position)] = FINE / 2
    np.minimum(position, FINE - 1, out=position)
    np.maximum(position, 0.0, out=position)
    return position.astype(np.int64)  # towards zero, which is down here


class Features(Protocol):
    """A vector of `size` functions of a row, with weights that hold its norm below `cut`."""

    @property
    def size(self) -> int: ...

    @property
    def cut(self) -> float: ...

    def of(self, rows: Rows) -> Matrix: ...

    def weight(self, phi: Matrix) -> Vector: ...


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """phi(x) = (1, basis functions), with row weight w = min(1, (C / ||phi||)^2).

    Then ||sqrt(w) phi|| <= C and ||w phi|| <= C, which bounds both the Gram matrix and the cross
    moments, while predictions use phi as it is.
    """

    design: Design
    blocks: tuple[Block, ...]
    cut: float

    @cached_property
    def size(self) -> int:
        return 1 + sum(len(b.order) for b in self.blocks)

    @cached_property
    def order(self) -> Integers:
        """0 for the intercept, else the order of roughness of each function."""
        return np.array([0, *(o for b in self.blocks for o in b.order)], np.int64)

    @cached_property
    def group(self) -> tuple[str, ...]:
        return ("", *(b.group for b in self.blocks for _ in b.order))

    @cached_property
    def variables(self) -> tuple[tuple[str, ...], ...]:
        """Variables that each function depends on; the intercept depends on none."""
        of = {term.name: _variables(term) for term in self.design.terms}
        return tuple(of[self.design.columns[c].term] if c >= 0 else () for c in self.column)

    @cached_property
    def column(self) -> Integers:
        """Design column of each function; -1 for the intercept."""
        return np.array([-1, *(b.column for b in self.blocks for _ in b.order)], np.int64)

    def phi(self, scaled: Matrix) -> Matrix:
        """Features, shape (n, p), of scaled design columns, shape (n, q)."""
        out = np.empty((len(scaled), self.size))
        out[:, 0] = 1.0
        for block, (at, stop) in zip(self.blocks, self._places, strict=True):
            out[:, at:stop] = block(scaled)
        return out

    @cached_property
    def _places(self) -> list[tuple[int, int]]:
        """Where each block's functions begin and end."""
        ends = np.cumsum([1, *(len(b.order) for b in self.blocks)]).tolist()
        return list(pairwise(ends))

    def of(self, rows: Rows) -> Matrix:
        if not rows.by_column:
            return self.phi(rows.scaled(self.design))
        out = rows.matrix(self.size)
        for number in range(self.size):
            self.one(rows, number, out[:, number])
        return out

    def columns(self, rows: Rows) -> Iterator[Vector]:
        """The features one after another, each valid until the next: they stay in cache."""
        out = np.empty(len(rows))
        for number in range(self.size):
            yield self.one(rows, number, out)

    def norm2(self, rows: Rows) -> Vector:
        """||phi(x)||^2, shape (n,)."""
        total, part = np.ones(len(rows)), np.empty(len(rows))
        for block, squares in zip(self.blocks, self._squares, strict=True):
            if squares is None:
                np.square(block.function(rows, self.design, 0, part), out=part)
            else:
                looked_up(squares, rows.bins(self.design, block.column), part)
            total += part
        return total

    @cached_property
    def _squares(self) -> tuple[Vector | None, ...]:
        """Sum of squares of each block's functions on the fine bins."""
        return tuple(None if b.table is None else squared_norm(b.table) for b in self.blocks)

    @cached_property
    def owner(self) -> list[tuple[Block, int]]:
        """The block of each function after the first, and its number there."""
        return [(block, k) for block in self.blocks for k in range(len(block.order))]

    def one(self, rows: Rows, number: int, out: Vector) -> Vector:
        """The feature of this number, written to `out`."""
        if number == 0:
            out[:] = 1.0
            return out
        block, own = self.owner[number - 1]
        return block.function(rows, self.design, own, out)

    def total(self, coef: Vector) -> Sum:
        """phi(x)'coef as a function of rows."""
        constant = float(coef[0])
        parts: list[tuple[int, Vector | float]] = []
        for block, (at, stop) in zip(self.blocks, self._places, strict=True):
            own = coef[at:stop]
            if block.table is None:
                slope = float(block.gain * own[0])
                constant -= slope * block.shift
                parts.append((block.column, slope))
            else:
                parts.append((block.column, combine(np.asfortranarray(block.table), own)))
        return Sum(self.design, constant, tuple(parts))

    def weight(self, phi: Matrix) -> Vector:
        """Row weights, shape (n,), in (0, 1]."""
        return np.minimum(1.0, self.cut**2 / squared_norm(phi))

    def restricted(self, terms: Sequence[str]) -> FeatureMap:
        """The functions of some terms only, with the same tables and cut."""
        columns = self.design.columns
        blocks = tuple(b for b in self.blocks if columns[b.column].term in terms)
        return FeatureMap(self.design, blocks, self.cut)


@dataclass(frozen=True, eq=False)
class Sum:
    """constant + a function of each design column: a slope, or a table on the fine bins.

    The sum over a column's basis functions is taken in its table, once, and not for each row. It
    is in one fixed order, so that no engine, block or machine gives other bits.
    """

    design: Design
    constant: float
    parts: tuple[tuple[int, Vector | float], ...]

    def __call__(self, rows: Rows) -> Vector:
        total, part = np.full(len(rows), self.constant), np.empty(len(rows))
        for column, effect in self.parts:
            if isinstance(effect, float):
                np.multiply(rows.column(self.design, column), effect, out=part)
            else:
                looked_up(effect, rows.bins(self.design, column), part)
            total += part
        return total


def squared_norm(phi: Matrix | Singles) -> Vector:
    """Squared row norms summed column by column: one fixed order on every engine and batch."""
    total, square = np.zeros(len(phi), phi.dtype), np.empty(len(phi), phi.dtype)
    for j in range(phi.shape[1]):
        total += np.multiply(phi[:, j], phi[:, j], out=square)
    return np.asarray(total, np.float64)


SMALL = 1 << 10
"""Rows of which OpenBLAS takes products of a few columns at once, without copies of its own."""


def by_rows(left: Matrix, right: Matrix) -> Matrix:
    """left' right of two tables of as many rows, whose products have exact sums."""
    pieces = len(left) // SMALL
    rows, p, q = pieces * SMALL, left.shape[1], right.shape[1]
    total = left[rows:].T @ right[rows:]
    if rows:
        # sizes in full: of a table without columns NumPy cannot find one that is left open
        parts = left[:rows].T.reshape(p, pieces, SMALL), right[:rows].T.reshape(q, pieces, SMALL)
        total += np.matmul(parts[0].swapaxes(0, 1), parts[1].transpose(1, 2, 0)).sum(axis=0)
    return total


def onto(phi: Matrix, lift: Matrix, out: Matrix) -> None:
    """phi lift, written to `out`; both tables column by column in memory, sums exact."""
    pieces = len(phi) // SMALL
    rows, (p, k) = pieces * SMALL, lift.shape
    np.matmul(lift.T, phi[rows:].T, out=out[rows:].T)
    if rows:
        own = phi[:rows].T.reshape(p, pieces, SMALL).swapaxes(0, 1)
        np.matmul(lift.T, own, out=out[:rows].T.reshape(k, pieces, SMALL).swapaxes(0, 1))


FEW_ROWS = 256
"""Up to so many rows, one call on a table of products is faster than one a column."""


def combine(phi: Matrix, coef: Vector) -> Vector:
    """phi @ coef in one fixed order, so that the result does not depend on the batch size."""
    if len(phi) <= FEW_ROWS and phi.shape[1]:
        return np.asarray(np.add.accumulate(phi * coef, axis=1)[:, -1] + 0.0)  # the same order
    total, part = np.zeros(len(phi)), np.empty(len(phi))
    for j in range(phi.shape[1]):
        total += np.multiply(phi[:, j], coef[j], out=part)
    return total


CHUNK = 1 << 22
"""Floats of 32 bits in a piece of lasting memory: so large that NumPy asks for huge pages."""


class Space:
    """Memory that blocks of rows use one after another: given back, it would be cleared each time.

    A block takes it with `start`; what an earlier block had in it is overwritten from then on, but
    for what is `lasting`.
    """

    def __init__(self) -> None:
        self._buffers: list[NDArray[np.uint8]] = []
        self.taken = 0
        self._chunk = np.empty(0, np.float32)

    def start(self) -> Space:
        self.taken = 0
        return self

    def matrix(self, rows: int, columns: int, number: type[Float]) -> NDArray[Float]:
        """An array of its own for the block, column by column in memory, of no certain content."""
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
"""By the identities of some objects: the objects, and what they make of some rows."""


@dataclass(eq=False)
class Rows:
    """Cleaned covariates of n rows, remembering what was computed from them.

    Attributes
    ----------
    frame : mapping
        Column name to numbers inside their bounds, or to level codes (-1: undeclared level).
    size : int
    propensity : Vector, optional
        The known propensity of each row.
    by_column : bool
        Matrices are kept column by column in memory, and what `once` makes is remembered: for
        blocks of rows on which many functions are evaluated. Values are the same.
    space : Space, optional
        Where large matrices are while the rows are worked on: see `within`.
    before : mapping
        What `remembered` gave of the same rows when they were read before.
    roomy : bool
        Whether the rows stay, and there is room for matrices of them beside.
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
    roomy: bool = False

    def __len__(self) -> int:
        return self.size

    def scaled(self, design: Design) -> Matrix:
        if design in self._scaled:
            return self._scaled[design]
        if self._passing(design):
            return self.briefly(
                (design,), lambda: design.into(self.matrix(len(design)), self.frame)
            )
        make = design.by_column if self.by_column else design.scaled
        self._scaled[design] = make(self.frame, self.size)
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
        """Whether columns are made for a pass, so that rows which stay take little memory."""
        return self.space is not None and design.plain and design not in self._scaled

    def bins(self, design: Design, column: int) -> Integers:
        """Index of the fine bin of a design column for `looked_up`, shape (n,).

        The upper end of the range may be FINE itself, which is looked up as the last bin.
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
        """Large matrices are in `space`, and forgotten afterwards: others use it next.

        So is what `briefly` remembers.
        """
        self.space = space.start()
        try:
            yield
        finally:
            self.space = None
            self._phi.clear()
            self._brief.clear()
            self._places.clear()
            # of numbers for each row, what was not asked for is made anew if ever it is
            self._made = {
                key: one
                for key, one in self._made.items()
                if key in self._asked or getattr(one[1], "ndim", 2) > 1
            }
            self._asked.clear()

    def parts(self, size: int) -> Iterator[tuple[slice, Rows]]:
        """At most `size` rows after another, with what is known of them, each valid till the next.

        They work in the same part of the space.
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
        """An array of these rows, column by column in memory, of no certain content."""
        return self._array(columns, np.float64)

    def singles(self, columns: int) -> Singles:
        """The same, of floats of 32 bits."""
        return self._array(columns, np.float32)

    def lasting(self, columns: int) -> Singles:
        """The same, to be kept with the rows."""
        if self.space is None:
            return self.singles(columns)
        return self.space.lasting(self.size, columns)

    def _array(self, columns: int, number: type[Float]) -> NDArray[Float]:
        if self.space is None:
            return np.empty((self.size, columns), number, order="F")
        return self.space.matrix(self.size, columns, number)

    def once(self, objects: tuple[object, ...], make: Callable[[], T]) -> T:
        """make(), whose value these objects, each by its identity, fix. Not to be written to."""
        if not self.by_column:
            return make()
        key = tuple(map(id, objects))
        self._asked.add(key)
        if key not in self._made:
            # the objects are kept with the value, so that no others can have their ids
            self._made[key] = self.before[key] if key in self.before else (objects, make())
        return cast(T, self._made[key][1])

    def briefly(self, objects: tuple[object, ...], make: Callable[[], T]) -> T:
        """The same, `within` a space only, and until the rows leave it."""
        if self.space is None:
            return make()
        key = tuple(map(id, objects))
        if key not in self._brief:
            self._brief[key] = objects, make()
        return cast(T, self._brief[key][1])

    def keep(self, objects: tuple[object, ...], value: object) -> None:
        """What `once` is to give for these objects."""
        self.once(objects, lambda: value)

    def made(self, objects: tuple[object, ...]) -> bool:
        """Whether `once` need not make it (or keeps nothing)."""
        key = tuple(map(id, objects))
        return not self.by_column or key in self._made or key in self.before

    def remembered(self) -> Remembered:
        """Of what `once` gave of these rows, the numbers: one for each row."""
        return {key: one for key, one in self._made.items() if isinstance(one[1], np.ndarray)}

    def phi(self, features: Features) -> Matrix:
        if features not in self._phi:
            self._phi[features] = features.of(self)
        return self._phi[features]

    def columns(self, features: Features) -> Iterator[Vector]:
        """Columns of phi one after another, each valid until the next."""
        if isinstance(features, FeatureMap):
            return features.columns(self)
        return iter(self.phi(features).T)

    def weight(self, features: Features) -> Vector:
        """Row weights of the features, shape (n,)."""
        if isinstance(features, FeatureMap):
            return np.minimum(1.0, features.cut**2 / features.norm2(self))
        return features.weight(self.phi(features))
