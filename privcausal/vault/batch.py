"""A block of private rows: which of them count, in which part, cut to their declared domains."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from privcausal.features.design import Design
from privcausal.features.response import response
from privcausal.features.rows import Rows
from privcausal.request.factors import Group, group_mask
from privcausal.request.plan import Plan
from privcausal.request.request import FOLDS, Request
from privcausal.request.schema import (
    Binary,
    ColumnKind,
    Domain,
    Interval,
    Levels,
    Schema,
    Transformed,
)
from privcausal.typing import Integers, Mask, Matrix, Neighbors, Vector
from privcausal.vault.guard import Opaque


@dataclass(frozen=True, eq=False, repr=False)
class RawColumn(Opaque):
    """One column of a block as read: numbers (NaN missing), or codes into label texts (-1)."""

    numbers: Vector | None = None
    codes: Integers | None = None
    labels: tuple[str, ...] = ()


class RawBatch(Opaque):
    """Columns of a block before their domains are known; `keep` says which rows count."""

    __slots__ = ("columns", "keep")

    def __init__(self, columns: Mapping[str, RawColumn], keep: Mask) -> None:
        self.columns = columns
        self.keep = keep


class Batch(Opaque):
    """Rows ready for row maps. Everything is defined for every row; `complete` says which count.

    Attributes
    ----------
    rows : Rows
        Covariates; missing ones hold an arbitrary value inside the domain.
    complete : Mask
        False where a needed value is missing: such a row adds the zero vector to every sum.
    y, t : Vector
        Outcome inside its bounds; treatment 0/1 (0 in a regression), a number's place in its
        effective range, held in [0, 1], or the position of one of several arms.
    dose : Vector
        The same, also beyond [0, 1], inside the declared bounds.
    taken : Vector
        The treatment where `t` and `dose` are of its instrument; as `dose`.
    member : Matrix
        Indicators of the declared groups, shape (n, G).
    part : Integers
        Split part or fold of each row.
    chosen : Mask
        Rows of the part, complete or not, of which no unit has more than it may.
    """

    __slots__ = ("chosen", "complete", "dose", "member", "part", "rows", "t", "taken", "y")

    def __init__(
        self, columns: Mapping[str, RawColumn], part: Integers, keep: Mask, layout: Layout
    ) -> None:
        size = len(part)
        clean = {name: cleaned(columns[name], layout.schema[name]) for name in layout.variables}
        complete = keep.copy()
        for name in layout.needed:
            complete &= clean[name][1]
        request = layout.request
        self.y = np.asarray(clean[request.formula.outcome][0], np.float64)
        domain = layout.schema[request.formula.outcome]
        if isinstance(domain, Transformed):
            self.y = response(request.formula, domain, self.y)
            complete &= np.isfinite(self.y)
            self.y[~complete] = domain.mid

        def placed(name: str) -> Vector:
            """Values, or where they are in the range of a number."""
            values, domain = np.asarray(clean[name][0], np.float64), layout.schema[name]
            return (values - domain.lo) / domain.width if isinstance(domain, Interval) else values

        formula = request.formula
        self.dose = self.t = placed(formula.assigned) if formula.assigned else np.zeros(size)
        if isinstance(layout.schema.get(formula.assigned), Interval):
            self.t = np.clip(self.dose, 0.0, 1.0)
        self.taken = placed(formula.treatment) if formula.instrument else self.dose
        if request.asked.arms:  # a label that is none of them is no arm
            complete &= self.t >= 0
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
        view, chosen = self._view(), self.part == part
        view.complete, view.chosen = self.complete & chosen, self.chosen & chosen
        return view

    def of_arm(self, arm: int) -> Batch:
        """The same rows, treated where they are in one of several arms."""
        view = self._view()
        view.dose = view.t = np.asarray(self.t == arm, np.float64)
        return view

    def _view(self) -> Batch:
        view: Batch = object.__new__(Batch)
        for name in Batch.__slots__:
            setattr(view, name, getattr(self, name))
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


def reads_labels(domain: Domain, kind: ColumnKind) -> bool:
    """Whether a column of this kind is read as labels for this domain, and not as numbers."""
    if isinstance(domain, Interval):
        return False
    return isinstance(domain, Levels) or kind == "text" or domain.labels is not None


def cleaned(column: RawColumn, domain: Domain) -> tuple[Vector | Integers, Mask]:
    """Values inside `domain`, and which were present."""
    if isinstance(domain, Interval):
        return _clean_interval(column, domain)
    if isinstance(domain, Levels):
        return _clean_levels(column, domain)
    return _clean_binary(column, domain)


def _clean_interval(column: RawColumn, domain: Interval) -> tuple[Vector, Mask]:
    assert column.numbers is not None
    domain = domain.raw if isinstance(domain, Transformed) else domain
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


# -- parts of the rows, decided without looking at their values ------------------------------


def part_names(plan: Plan) -> list[str]:
    """Names of the parts of the rows, in the order in which stages ask for them."""
    named = [part for part in dict.fromkeys(s.part for s in plan.stages) if part != "all"]
    return ["nuisance", *named] if named == ["effect"] else named


def part_shares(plan: Plan) -> tuple[float, ...]:
    """Shares of the rows by part: one part, a nuisance and an effect part, or folds."""
    split = plan.request.split
    if split == "disjoint":
        of = {s.part: s.rows for s in plan.stages}
        # estimators that read their half themselves have no stage
        return tuple(of.get(part, 1.0 - sum(of.values())) for part in part_names(plan))
    return (1.0 / FOLDS,) * FOLDS if split == "crossfit" else (1.0,)


def part_number(plan: Plan, part: str) -> int | None:
    """The number of a part of the rows, or None for all."""
    return None if part == "all" else part_names(plan).index(part)


def dealt(
    size: int,
    shares: Sequence[float],
    *,
    neighbors: Neighbors,
    entropy: int,
    units: Integers | None,
    names: Sequence[str],
) -> Integers:
    """Part of each row, shape (n,), in proportion of `shares`.

    By index with fixed sizes under substitution. By independent coins under add_remove, where
    fixed sizes would move other rows when one leaves (Niu et al.'s Theorem 6 then fails). By coins
    keyed on the unit's name where there are units.

    Coins are independent and of one law. So a unit that takes another's place may be given its
    coin, and the rows that stay when one leaves may keep theirs: the output's law is the same
    mixture over coins, and no easier to tell apart than its worst member. With the coins fixed,
    neighbours differ in one part only.
    """
    cut = np.cumsum(np.asarray(shares, float)) / sum(shares)
    if units is not None:
        coins = np.append(_keyed_coins(entropy, names), 0.0)[units]
        return np.searchsorted(cut[:-1], coins, side="right").astype(np.int64)
    rng = np.random.default_rng(entropy)  # splits need independence of the data, not secrecy
    if neighbors == "add_remove":
        return np.searchsorted(cut[:-1], rng.random(size), side="right").astype(np.int64)
    place = rng.permutation(size)
    return np.searchsorted(np.floor(cut[:-1] * size), place, side="right").astype(np.int64)


def _keyed_coins(entropy: int, names: Sequence[str]) -> Vector:
    keyed = hashlib.blake2b(key=entropy.to_bytes(16, "little", signed=False), digest_size=8)

    def digest(name: str) -> bytes:
        own = keyed.copy()
        own.update(name.encode("utf-8", "replace"))
        return own.digest()

    return np.frombuffer(b"".join(map(digest, names)), "<u8") / 2.0**64


def first_rows(units: Integers, max_rows: int) -> Mask:
    """The first `max_rows` rows of each unit, and no row without a unit.

    Whether a row is kept depends on its own unit's rows only.
    """
    order = np.argsort(units, kind="stable")
    ranked = units[order]
    place = np.arange(len(units))
    starts = np.ones(len(units), bool)
    starts[1:] = ranked[1:] != ranked[:-1]
    rank = place - np.maximum.accumulate(np.where(starts, place, 0))
    keep = np.zeros(len(units), bool)
    keep[order] = rank < max_rows
    return keep & (units >= 0)
