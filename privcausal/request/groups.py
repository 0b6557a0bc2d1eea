"""Declared subgroups: how they are written, and which rows belong to them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from privcausal.errors import SchemaError
from privcausal.request.header import label_key
from privcausal.request.schema import Binary, Domain, Interval, Levels, Schema
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
    """Declared groups with every level of a bare column spelt out, checked against the schema."""
    groups: list[Group] = []
    for text in texts:
        group = parse_group(text)
        domain = schema.get(group.column)
        if domain is None:
            raise SchemaError(f"group {text!r} needs a declared domain for {group.column!r}")
        groups += _levels_of(group, domain) if group.value == "" else [_checked(group, domain)]
    seen = set()
    for group in groups:
        rows = group.column, group.comparison, group.value
        if rows in seen:
            raise SchemaError(f"group {group.label!r} is declared twice")
        seen.add(rows)
    return tuple(groups)


def numeric_group(column: str) -> SchemaError:
    """The refusal of a bare column of numbers."""
    return SchemaError(
        f"group {column!r} is numeric: write a comparison such as '{column} >= 65', or, if it is "
        f"0/1, declare that: bounds={{{column!r}: [0, 1]}}"
    )


def _levels_of(group: Group, domain: Domain) -> list[Group]:
    if isinstance(domain, Interval):
        raise numeric_group(group.column)
    labels = domain.labels if isinstance(domain, Levels) else (domain.zero, domain.one)
    return [Group(f"{group.column}[{label}]", group.column, "==", label) for label in labels]


def _checked(group: Group, domain: Domain) -> Group:
    """The group, with a label on its right-hand side as `label_key` writes it."""
    if isinstance(domain, Interval):
        if isinstance(group.value, str):
            raise SchemaError(f"group {group.label!r}: {group.column!r} is numeric")
        return group
    value = str(label_key(group.value))
    if isinstance(domain, Binary):
        if value not in (*domain.zeros, *domain.ones):
            raise SchemaError(
                f"group {group.label!r}: {group.column!r} is {domain.zero} or {domain.one}"
            )
    elif group.comparison not in ("==", "!="):
        raise SchemaError(f"group {group.label!r}: levels are compared with == or != only")
    elif value not in domain.labels:
        raise SchemaError(
            f"group {group.label!r}: unknown level; declared are {', '.join(domain.labels)}"
        )
    return replace(group, value=value)


def group_mask(group: Group, values: Vector | Integers, domain: Domain) -> Mask:
    """Which cleaned values belong to the group, shape (n,)."""
    if isinstance(domain, Levels):
        same = values == domain.labels.index(str(group.value))
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
    """Sets of groups that partition the rows, so that their sums add up to that over all rows.

    Attributes
    ----------
    identities : Matrix
        A row for each set, shape (q, 1 + G): 1 for all rows, -1 for each of its groups. Times the
        sums over all rows and over the groups, it gives the sum over the rest, rows in no group.
    certain : Mask
        Whether the rest is surely empty. Otherwise it may have rows with an undeclared label or a
        missing value.
    """

    identities: Matrix
    certain: Mask


def partitions(groups: Sequence[Group], schema: Schema, needed: Collection[str]) -> Partitions:
    """A set for each column every declared value of which is in exactly one of its groups.

    Parameters
    ----------
    needed : collection of str
        Columns of which no counted row misses a value. A row that misses another column's counts,
        but in none of its groups. So does a row with an undeclared label (except in groups that
        say ``!=``), unless ``Levels(..., other=True)`` has a level for it.
    """
    found, certain = [], []
    for column in dict.fromkeys(group.column for group in groups):
        own = [j for j, group in enumerate(groups) if group.column == column]
        domain = schema[column]
        inside = [
            np.sum([group_mask(groups[j], values, domain) for j in own], axis=0)
            for values in _examples([groups[j] for j in own], domain)
        ]
        if not (inside[0] == 1).all():
            continue
        found.append(np.zeros(1 + len(groups)))
        found[-1][0], found[-1][[1 + j for j in own]] = 1.0, -1.0
        present = schema.complete or column in needed
        certain.append(present and bool((inside[1] == 1).all()))
    return Partitions(np.reshape(found, (-1, 1 + len(groups))), np.array(certain, bool))


def _examples(
    groups: Sequence[Group], domain: Domain
) -> tuple[Vector | Integers, Vector | Integers]:
    """A cleaned value of each kind that the groups can tell apart: declared ones, and others."""
    if isinstance(domain, Levels):
        return np.arange(len(domain.labels)), np.array([] if domain.other else [-1])
    if isinstance(domain, Binary):
        return np.array([0.0, 1.0]), np.zeros(0)
    cuts = [float(group.value) for group in groups]
    ends = np.unique(np.clip([domain.lo, domain.hi, *cuts], domain.lo, domain.hi))
    return np.r_[ends, 0.5 * (ends[:-1] + ends[1:])], np.zeros(0)
