"""Subgroups declared beforehand: how they are written, and which rows belong to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from privcausal.errors import SchemaError
from privcausal.spec.schema import Binary, Domain, Interval, Levels, Schema, label_key
from privcausal.typing import Integers, Mask, Vector


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
