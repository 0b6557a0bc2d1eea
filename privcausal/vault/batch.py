"""A block of private rows, cleaned into their declared domains: total maps that never raise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from privcausal.spec.columns import Kind
from privcausal.spec.features import Design, Rows
from privcausal.spec.groups import Group, group_mask
from privcausal.spec.request import Request
from privcausal.spec.schema import Binary, Domain, Interval, Levels, Schema
from privcausal.typing import Integers, Mask, Matrix, Vector
from privcausal.vault.sealed import Sealed


@dataclass(frozen=True, eq=False, repr=False)
class RawColumn(Sealed):
    """One column of a block as read: numbers (NaN missing), or codes into label texts (-1)."""

    numbers: Vector | None = None
    codes: Integers | None = None
    labels: tuple[str, ...] = ()


class RawBatch(Sealed):
    """Columns of a block before their domains are known; `keep` says which rows count."""

    __slots__ = ("columns", "keep")

    def __init__(self, columns: Mapping[str, RawColumn], keep: Mask) -> None:
        self.columns = columns
        self.keep = keep


class Batch(Sealed):
    """Rows ready for row maps. Everything is defined for every row; `complete` says which count.

    Attributes
    ----------
    rows : Rows
        Covariates; missing ones hold an arbitrary value inside the domain.
    complete : Mask
        False where a needed value is missing: such a row adds the zero vector to every sum.
    y, t : Vector
        Outcome inside its bounds, treatment 0/1.
    member : Matrix
        Indicators of the declared groups, shape (n, G).
    part : Integers
        Split part or fold of each row.
    chosen : Mask
        Rows of the part, complete or not, of which no unit has more than it may.
    """

    __slots__ = ("chosen", "complete", "member", "part", "rows", "t", "y")

    def __init__(
        self, columns: Mapping[str, RawColumn], part: Integers, keep: Mask, layout: Layout
    ) -> None:
        size = len(part)
        clean = {name: _clean(columns[name], layout.schema[name]) for name in layout.variables}
        complete = keep.copy()
        for name in layout.needed:
            complete &= clean[name][1]
        request = layout.request
        self.y = np.asarray(clean[request.formula.outcome][0], np.float64)
        self.t = np.asarray(clean[request.formula.treatment][0], np.float64)
        known = request.propensity
        self.rows = Rows(
            {name: value for name, (value, _) in clean.items()},
            size,
            np.asarray(clean[known][0], np.float64) if isinstance(known, str) else None,
            by_column=True,
        )
        for design in layout.designs:
            if not design.plain:
                complete &= np.isfinite(self.rows.scaled(design)).all(axis=1)
        self.complete = complete
        self.member = _members(layout.groups, clean, layout.schema, size)
        self.part = part
        self.chosen = keep

    def only(self, part: int) -> Batch:
        """The same rows, of which only those in `part` count."""
        view: Batch = object.__new__(Batch)
        view.rows, view.y, view.t, view.member = self.rows, self.y, self.t, self.member
        chosen = self.part == part
        view.part, view.complete, view.chosen = (
            self.part, self.complete & chosen, self.chosen & chosen,
        )  # fmt: skip
        return view


@dataclass(frozen=True, eq=False)
class Layout:
    """How raw columns become a batch: domains, what must be present, designs and groups."""

    request: Request
    schema: Schema
    designs: tuple[Design, ...]
    groups: tuple[Group, ...]

    @property
    def needed(self) -> tuple[str, ...]:
        """Columns whose missing values make a row count as zero."""
        return self.request.needed

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.needed, *(g.column for g in self.groups)]))


def reads_labels(domain: Domain, kind: Kind) -> bool:
    """Whether a column of this kind is read as labels for this domain, and not as numbers."""
    if isinstance(domain, Interval):
        return False
    return isinstance(domain, Levels) or kind == "text" or domain.labels is not None


def _clean(column: RawColumn, domain: Domain) -> tuple[Vector | Integers, Mask]:
    """Values inside `domain`, and which were present."""
    if isinstance(domain, Interval):
        return _clean_interval(column, domain)
    if isinstance(domain, Levels):
        return _clean_levels(column, domain)
    return _clean_binary(column, domain)


def _clean_interval(column: RawColumn, domain: Interval) -> tuple[Vector, Mask]:
    assert column.numbers is not None
    missing = np.isnan(column.numbers)
    values = np.clip(column.numbers, domain.lo, domain.hi)
    values[missing] = domain.mid
    return values, ~missing


def _clean_levels(column: RawColumn, domain: Levels) -> tuple[Integers, Mask]:
    position = {label: i for i, label in enumerate(domain.labels)}
    undeclared = position["other"] if domain.other else -1
    lookup = [position.get(label, undeclared) for label in column.labels]
    assert column.codes is not None
    codes = np.array([*lookup, -1], np.int64)[column.codes]
    return codes, column.codes >= 0


def _clean_binary(column: RawColumn, domain: Binary) -> tuple[Vector, Mask]:
    if column.numbers is not None:
        is_one, is_zero = column.numbers == 1, column.numbers == 0
    else:
        assert column.codes is not None
        number = dict.fromkeys(domain.zeros, 0) | dict.fromkeys(domain.ones, 1)
        value = [number.get(label, -1) for label in column.labels]
        coded = np.array([*value, -1], np.int64)[column.codes]
        is_one, is_zero = coded == 1, coded == 0
    return is_one.astype(np.float64), is_one | is_zero


def _members(
    groups: tuple[Group, ...],
    clean: Mapping[str, tuple[Vector | Integers, Mask]],
    schema: Schema,
    size: int,
) -> Matrix:
    out = np.zeros((size, len(groups)))
    for j, group in enumerate(groups):
        values, present = clean[group.column]
        out[:, j] = present & group_mask(group, values, schema[group.column])
    return out
