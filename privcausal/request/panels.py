"""Panels of differences in differences: rows of each unit in several periods.

The vault reduces them to one row per unit, which holds the change between two declared periods, or
the outcomes of all declared periods.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from privcausal.errors import CapabilityError, FormulaError, SchemaError
from privcausal.request.formula import CausalFormula, group_columns
from privcausal.request.schema import Binary, ColumnKind, Domain, Interval, Levels, Schema

ControlGroup = Literal["nevertreated", "notyettreated"]


@dataclass(frozen=True)
class Panel:
    """A table with rows of each unit in several periods, to be reduced to one row per unit."""

    time: str  # Column of periods. The request's schema holds its two levels, before and after.
    # Domain of the outcome in one period. The request's schema holds the domain of its change.
    outcome: Schema


@dataclass(frozen=True)
class Staggered(Panel):
    """A panel whose rows per unit have a cohort and the outcomes of all periods."""

    cohort: str  # Column of the first treated period
    # Names of the outcome in a unit's row, after the first period. The first keeps its own name.
    wide: tuple[str, ...]
    control_group: ControlGroup  # Cohorts that serve as controls


def panel_of(
    formula: CausalFormula,
    schema: Schema,
    kinds: Mapping[str, ColumnKind],
    unit: Any,
    time: Any,
    periods: Any,
    groups: Sequence[str],
    control_group: ControlGroup = "nevertreated",
) -> tuple[Schema, Panel]:
    """Domains of the rows per unit: an outcome in [lo, hi] has a change in [lo - hi, hi - lo].

    Refuse undeclared periods, and columns that cannot be used for changes.
    """
    name = formula.outcome
    if control_group != "nevertreated":
        raise CapabilityError("control_group= requires cohort=, the column of the first treatment.")
    if formula.response is not None:
        raise FormulaError(
            f"did() requires a column as its outcome. Add {formula.effect_on} to the data, and "
            "declare its bounds."
        )
    check_panel_columns(formula, unit, time, groups)
    arms = schema.get(formula.treatment)
    many = isinstance(arms, Levels) and len(arms.labels) > 2
    if many or (isinstance(arms, Interval) and (arms.lo, arms.hi) != (0.0, 1.0)):
        raise CapabilityError(
            f"did() requires a binary treatment, but {formula.treatment!r} is not. For staggered "
            "treatment, name the column of the first treated period: did('Y ~ 1', data, "
            "cohort='first')."
        )
    domain = schema.get(name)
    if domain is None and kinds.get(name) == "bool":
        domain = Binary([False, True])
    if isinstance(domain, Levels) and len(domain.labels) == 2:
        domain = Binary(list(domain.labels))
    if domain is None or isinstance(domain, Levels):
        raise SchemaError(
            f"did() requires bounds of the outcome {name!r}, because they limit its change. "
            f"Declare bounds={{{name!r}: (lo, hi)}}, or its two labels."
        )
    both = declared_periods(schema, time, periods)
    if not (isinstance(both, Levels) and len(both.values) == 2 and not both.other):
        raise SchemaError(
            f"did() compares two periods of {time!r}. Name them, the earlier one first: "
            "periods=(2018, 2019)."
        )
    check_order(time, both.values)
    width = domain.width if isinstance(domain, Interval) else 1.0
    changes = schema.with_columns({name: Interval(-width, width), time: both})
    return changes, Panel(time, Schema({name: domain}))


def declared_periods(schema: Schema, time: str, periods: Any) -> Domain | None:
    """The domain of the column of periods."""
    if periods is None:
        return schema.get(time)
    if not isinstance(periods, list | tuple | range):
        raise SchemaError("periods= must be a list or a range, for example range(2003, 2006).")
    return Levels(periods)


def check_panel_columns(
    formula: CausalFormula, unit: Any, time: Any, groups: Sequence[str], *more: str
) -> None:
    """Check that each column has one role, also after the rows of a unit are combined.

    `more` are further columns.
    """
    if not all(isinstance(name, str) and name for name in (time, unit, *more)):
        raise SchemaError("unit=, time= and cohort= must be column names.")
    if {*group_columns(groups)} & {unit, time, formula.outcome, formula.treatment}:
        raise SchemaError(
            "did() takes groups from the first period of each unit. groups= cannot use the unit, "
            "time, outcome or treatment column."
        )
    if time in (unit, *formula.variables):
        raise SchemaError(f"Time column {time!r} cannot also be in the formula or be the unit.")
    if {*more} & {unit, time, *formula.variables}:
        raise SchemaError("The column of cohort= cannot also be the unit, time, or outcome.")


def check_order(time: str, periods: Sequence[str]) -> None:
    """Check that periods that are numbers or dates ascend."""
    times = numbers_of(periods)
    if times != sorted(times):
        raise SchemaError(
            f"The periods of {time!r} must be in ascending order. Write the earlier one first: "
            "periods=(2018, 2019)."
        )


def numbers_of(labels: Sequence[str]) -> list[float]:
    """The labels as numbers, ISO dates, months (2018-03) or quarters (2018Q1); otherwise empty."""
    for read in (
        float,
        lambda label: float(date.fromisoformat(label).toordinal()),
        lambda label: float(date.fromisoformat(f"{label}-01").toordinal()),
        lambda label: float(re.sub("-?Q", ".", label.upper())),
    ):
        try:
            return [read(label) for label in labels]
        except ValueError:
            continue
    return []


def clock(labels: Sequence[str]) -> list[float]:
    """The times of the periods in their own unit; whole numbers if they are only counted.

    Dates and months such as 202401 have no unit of their own: months and years differ in length.
    """
    if not all(re.fullmatch(r"\d{4}(0[1-9]|1[0-2])", label) for label in labels):
        with suppress(ValueError):
            return [float(label) for label in labels]
    return [*range(len(labels))]
