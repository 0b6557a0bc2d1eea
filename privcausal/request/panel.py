"""Two declared periods: what one row is where a unit's change between them is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from privcausal.errors import CapabilityError, FormulaError, SchemaError
from privcausal.request.formula import CausalFormula
from privcausal.request.groups import parse_group
from privcausal.request.header import Kind
from privcausal.request.schema import Binary, Domain, Interval, Levels, Schema
from privcausal.stored import stored


@stored
@dataclass(frozen=True)
class Panel:
    """A table with rows of each unit in two periods, of which each unit gives one row.

    Attributes
    ----------
    time : str
        The column of periods. Its two levels in the request's schema are before and after.
    outcome : Schema
        The domain of the outcome in a period; the request's schema has that of its change.
    """

    time: str
    outcome: Schema


def panel_of(
    formula: CausalFormula,
    schema: Schema,
    kinds: Mapping[str, Kind],
    unit: Any,
    time: Any,
    periods: Any,
    groups: Sequence[str],
) -> tuple[Schema, Panel]:
    """Domains of the rows that units give, of an outcome in [lo, hi] a change in [lo-hi, hi-lo].

    Raises
    ------
    FormulaError, SchemaError, CapabilityError
        No two periods are declared, or a column of the call has no meaning for changes.
    """
    name = formula.outcome
    if formula.response is not None:
        raise FormulaError(
            f"did takes a column as its outcome: put {formula.effect_on} into the data, and "
            "declare its bounds"
        )
    _check_columns(formula, unit, time, groups)
    _check_arms(formula.treatment, schema.get(formula.treatment))
    domain = schema.get(name)
    if domain is None and kinds.get(name) == "bool":
        domain = Binary()
    if isinstance(domain, Levels) and len(domain.labels) == 2:
        domain = Binary(list(domain.labels))
    if domain is None or isinstance(domain, Levels):
        raise SchemaError(
            f"did needs the bounds of the outcome {name!r} in a period, which bound its change: "
            f"bounds={{{name!r}: (lo, hi)}}, or its two labels"
        )
    both = schema.get(time) if periods is None else Levels(periods)
    if not (isinstance(both, Levels) and len(both.values) == 2 and not both.other):
        raise SchemaError(
            f"say which two periods of {time!r} are compared, before then after: "
            "periods=(2018, 2019)"
        )
    width = domain.width if isinstance(domain, Interval) else 1.0
    found = {name: Interval(-width, width), time: both}
    return schema.with_columns(found), Panel(time, Schema({name: domain}))


def _check_columns(formula: CausalFormula, unit: Any, time: Any, groups: Sequence[str]) -> None:
    """Each column has one role, which it keeps where a unit's rows are made one."""
    if not (isinstance(time, str) and time and isinstance(unit, str) and unit):
        raise SchemaError("unit= and time= are names of columns")
    listed = (groups,) if isinstance(groups, str) else groups
    of_groups = {parse_group(text).column for text in listed}
    if of_groups & {unit, time, formula.outcome, formula.treatment}:
        raise SchemaError(
            "groups of did are by columns as they were before treatment, and not by the unit, the "
            "period, the outcome or the treatment"
        )
    if time in (unit, *formula.variables):
        raise SchemaError(f"time column {time!r} cannot also be in the formula, or name the unit")
    names = {unit, time, *formula.variables, *of_groups}
    if len({name.casefold() for name in names}) < len(names):
        raise SchemaError(
            "two columns of the call differ in upper and lower case alone; rename one"
        )


def _check_arms(name: str, domain: Domain | None) -> None:
    many = isinstance(domain, Levels) and len(domain.labels) > 2
    if many or (isinstance(domain, Interval) and (domain.lo, domain.hi) != (0.0, 1.0)):
        raise CapabilityError(
            f"did compares treated with untreated units, and {name!r} has more than two levels. Of "
            "times of first treatment fit each cohort by itself: a column that is 1 once it is "
            "treated, 0 before and for units never treated, and missing for all others"
        )
