"""Subgroups declared beforehand: how they are written, and which rows belong to them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from privcausal.errors import SchemaError
from privcausal.spec.schema import Binary, Domain, Interval, Levels, Schema, label_key
from privcausal.typing import Integers, Mask, Matrix, Vector


@dataclass(frozen=True)
class Group:
    """A declared subgroup: rows with `column == level`, or with `column` compared to a number."""

    label: str
    column: str
    comparison: Literal["==", "!=", ">=", "<=", ">", "<"]
    value: str | float


def parse_group(text: Any) -> Group:
    """A group as written: ``"age >= 65"``, ``"sex == F"``, or a column whose levels are meant.

    A bare column name gives a `Group` with an empty value; its levels come from the schema.
    """
    if not isinstance(text, str) or not text.strip():
        raise SchemaError("groups are column names or comparisons such as 'age >= 65'")
    for comparison in ("==", "!=", ">=", "<=", ">", "<"):
        if comparison in text:
            column, _, value = (part.strip() for part in text.partition(comparison))
            if not column or not value:
                raise SchemaError(f"group {text!r} must read 'column {comparison} value'")
            return Group(text.strip(), column, comparison, _group_value(text, comparison, value))
    return Group(text.strip(), text.strip(), "==", "")


def _group_value(text: str, comparison: str, value: str) -> str | float:
    try:
        number = float(value)
    except ValueError:
        if comparison in ("==", "!="):
            return value.strip("'\"")
        raise SchemaError(f"group {text!r} must compare with a number") from None
    if not math.isfinite(number):
        raise SchemaError(f"group {text!r} must compare with a finite number")
    return number


def resolve_groups(texts: Sequence[str], schema: Schema) -> tuple[Group, ...]:
    """Declared groups with every level of a bare column spelled out, checked against the schema."""
    groups: list[Group] = []
    for text in texts:
        group = parse_group(text)
        domain = schema.get(group.column)
        if domain is None:
            raise SchemaError(f"group {text!r} needs a declared domain for {group.column!r}")
        if group.value == "":
            groups += _levels_of(group, domain)
        else:
            _check_group(group, domain)
            groups.append(_as_label(group, domain))
    for k, group in enumerate(groups):
        if any(_same(group, other) for other in groups[:k]):
            raise SchemaError(f"group {group.label!r} is declared twice")
    return tuple(groups)


def _same(one: Group, other: Group) -> bool:
    """Whether two groups hold the same rows by what is written."""
    return replace(one, label="") == replace(other, label="")


def _levels_of(group: Group, domain: Any) -> list[Group]:
    if isinstance(domain, Interval):
        raise SchemaError(
            f"group {group.column!r} is numeric: write a comparison such as '{group.column} >= 65'"
        )
    labels = domain.labels if isinstance(domain, Levels) else (domain.zero, domain.one)
    return [Group(f"{group.column}[{label}]", group.column, "==", label) for label in labels]


def _check_group(group: Group, domain: Any) -> None:
    if isinstance(domain, Levels):
        if group.comparison not in ("==", "!="):
            raise SchemaError(f"group {group.label!r}: levels are compared with == or != only")
        value = _as_label(group, domain).value
        if value not in domain.labels:
            raise SchemaError(
                f"group {group.label!r}: unknown level; declared are {', '.join(domain.labels)}"
            )
    elif isinstance(domain, Interval) and isinstance(group.value, str):
        raise SchemaError(f"group {group.label!r}: {group.column!r} is numeric")
    elif isinstance(domain, Binary) and str(_as_label(group, domain).value) not in (
        *domain.zeros,
        *domain.ones,
    ):
        raise SchemaError(
            f"group {group.label!r}: {group.column!r} is {domain.zero} or {domain.one}"
        )


def _as_label(group: Group, domain: Any) -> Group:
    """For levels, the right-hand side is the level's text, as `label_key` writes it."""
    if isinstance(domain, Interval):
        return group
    return replace(group, value=str(label_key(group.value)))


def group_mask(group: Group, values: Vector | Integers, domain: Domain) -> Mask:
    """Which cleaned values belong to the group, shape (n,)."""
    if isinstance(domain, Levels):
        at = domain.labels.index(str(group.value))
        same = values == at
        return np.asarray(same if group.comparison == "==" else ~same)
    if isinstance(domain, Binary) and isinstance(group.value, str):
        number = 1.0 if group.value in domain.ones else 0.0
    else:
        number = float(group.value)
    return np.asarray(_COMPARE[group.comparison](values, number))


_COMPARE = {
    "==": np.equal,
    "!=": np.not_equal,
    ">=": np.greater_equal,
    "<=": np.less_equal,
    ">": np.greater,
    "<": np.less,
}


@dataclass(frozen=True, eq=False)
class Partitions:
    """Sets of groups that partition the rows: what is summed over them is the sum over all rows.

    Attributes
    ----------
    identities : Matrix
        A row for each set, shape (q, 1 + G): 1 for all rows, -1 for each of its groups. Its product
        with sums over all rows and over the groups is the sum over the rest, rows in none of them.
    certain : Mask
        Where the rest is empty whatever the rows hold. Elsewhere it holds those with a label that
        was not declared or a missing value.
    """

    identities: Matrix
    certain: Mask

    @classmethod
    def none(cls, groups: int) -> Partitions:
        """No set."""
        return cls(np.zeros((0, 1 + groups)), np.zeros(0, bool))


def partitions(groups: Sequence[Group], schema: Schema, needed: Collection[str]) -> Partitions:
    """The columns each of whose declared values is in exactly one of the column's groups.

    Parameters
    ----------
    needed : collection of str
        Columns of which no counted row misses a value. A row that misses one of another column
        counts, in no group of it; so does one with a label that was not declared (in the groups
        that say ``!=``), unless ``Levels(..., other=True)`` has a level for it.
    """
    found, certain = [], []
    for column in dict.fromkeys(group.column for group in groups):
        own = [j for j, group in enumerate(groups) if group.column == column]
        domain = schema[column]
        declared, beyond = _examples([groups[j] for j in own], domain)
        inside = [_times(groups, own, values, domain) for values in (declared, beyond)]
        if not (inside[0] == 1).all():
            continue
        found.append(np.zeros(1 + len(groups)))
        found[-1][0], found[-1][[1 + j for j in own]] = 1.0, -1.0
        present = schema.complete or column in needed
        certain.append(present and bool((inside[1] == 1).all()))
    if not found:
        return Partitions.none(len(groups))
    return Partitions(np.array(found), np.array(certain, bool))


def _examples(
    groups: Sequence[Group], domain: Domain
) -> tuple[Vector | Integers, Vector | Integers]:
    """Cleaned values, one of each kind the groups can tell apart: declared ones, and others."""
    if isinstance(domain, Levels):
        return np.arange(len(domain.labels)), np.array([] if domain.other else [-1])
    if isinstance(domain, Binary):
        return np.array([0.0, 1.0]), np.zeros(0)
    cuts = [float(group.value) for group in groups]
    ends = np.unique(np.clip([domain.lo, domain.hi, *cuts], domain.lo, domain.hi))
    return np.r_[ends, 0.5 * (ends[:-1] + ends[1:])], np.zeros(0)


def _times(
    groups: Sequence[Group], own: Sequence[int], values: Vector | Integers, domain: Domain
) -> Integers:
    """In how many of its column's groups each value is."""
    masks = [group_mask(groups[j], values, domain) for j in own]
    return np.asarray(np.sum(masks, axis=0, dtype=np.int64))
