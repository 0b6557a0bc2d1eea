"""Staggered adoption: cohorts of units by their first treated period, and their comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple, cast, get_args

from privcausal.errors import CapabilityError, FormulaError, SchemaError
from privcausal.request.formula import CausalFormula
from privcausal.request.request import ControlGroup, Panel, Request, check_panel_columns
from privcausal.request.schema import Binary, ColumnKind, Interval, Levels, Schema


class Comparison(NamedTuple):
    """ATT(g, t): the change of cohort g from the base period to t, less that of the controls.

    Cohorts and periods are positions, in `cohort_labels` and in the declared periods. `event` is
    the number of periods since treatment; it is negative before.
    """

    term: str
    cohort: int
    period: int
    base: int
    event: int
    controls: tuple[int, ...]


def cohorts_of(
    formula: CausalFormula,
    schema: Schema,
    kinds: Mapping[str, ColumnKind],
    unit: Any,
    time: Any,
    periods: Any,
    cohort: Any,
    control_group: Any,
) -> tuple[Schema, Panel]:
    """Domains of the rows per unit: the cohort, and the outcome in each declared period.

    Raises
    ------
    FormulaError, SchemaError, CapabilityError
        If the periods or cohorts are not declared, or a column has two roles.
    """
    if formula.terms or formula.response is not None:
        raise FormulaError(
            "did() with cohort= has neither covariates nor functions of the outcome. Write "
            f"'{formula.outcome} ~ 1'. To adjust for covariates, compare one cohort with untreated "
            f"units in two periods: did('{formula.outcome} ~ treated | x', periods=(a, b))."
        )
    if control_group not in get_args(ControlGroup):
        known = " or ".join(map(repr, get_args(ControlGroup)))
        raise CapabilityError(f"control_group= must be {known}.")
    if not (isinstance(cohort, str) and cohort):
        raise SchemaError("cohort= must be a column name.")
    check_panel_columns(formula, unit, time, (), cohort)
    name, domain, levels = formula.outcome, schema.get(formula.outcome), schema.get(cohort)
    if domain is None and kinds.get(name) == "bool":
        domain = Interval(0.0, 1.0)
    if isinstance(domain, Binary) and domain.labels is None:
        domain = Interval(0.0, 1.0)
    if not isinstance(domain, Interval):
        raise SchemaError(
            f"did() requires numeric bounds of the outcome {name!r}, because they limit its "
            f"changes: bounds={{{name!r}: (lo, hi)}}."
        )
    found = schema.get(time) if periods is None else Levels(periods)
    if not (isinstance(found, Levels) and len(found.values) >= 2 and not found.other):
        raise SchemaError(f"Name all periods of {time!r} in order: periods=[2003, 2004, 2005].")
    numbers = [_number(label) for label in found.values]
    if None not in numbers and any(a >= b for a, b in pairwise(cast("list[float]", numbers))):
        raise SchemaError("periods= must be in ascending order.")
    if not isinstance(levels, Levels) or levels.other:
        raise SchemaError(
            f"did() requires the levels of the cohort {cohort!r}: the first treated periods, and "
            f"one level for never-treated units, bounds={{{cohort!r}: [0, 2004, 2006]}}."
        )
    outside = [label for label in levels.values if label not in found.values]
    inside = [_number(label) for label in outside]
    if len(outside) > 1 or any(
        None not in (x, *numbers) and min(numbers) < x < max(numbers) for x in inside
    ):
        raise SchemaError(
            f"One level of {cohort!r} may be outside the periods; it marks never-treated units. "
            "Leave out the levels of units treated before the first period, and code units treated "
            "after the last period as never treated."
        )
    treated = [label for label in levels.values if label in found.values[1:]]
    if not treated or (not outside and (control_group == "nevertreated" or len(treated) < 2)):
        raise SchemaError(
            f"No comparison is possible: {cohort!r} requires a level among the periods after the "
            "first, and one outside them for never-treated units. Without never-treated units, "
            "write control_group='notyettreated'."
        )
    wide = tuple(f"{name} in {time} {label}" for label in found.values[1:])
    row = {name: domain, time: found, **dict.fromkeys(wide, domain)}
    return schema.with_columns(row), Panel(time, Schema({name: domain}), cohort, wide, control_group)


def _number(label: str) -> float | None:
    try:
        return float(label)
    except ValueError:
        return None


def cohort_labels(request: Request) -> tuple[str, ...]:
    """Labels of the cohorts that are compared, in order of treatment; never treated last.

    Units that are treated in the first period have no period before, and are left out.
    """
    periods, levels = _levels(request)
    treated = [label for label in periods[1:] if label in levels]
    return (*treated, *(label for label in levels if label not in periods))


def comparisons(request: Request) -> tuple[Comparison, ...]:
    """All ATT(g, t) that have controls, by cohort and period (Callaway and Sant'Anna 2021).

    The base is the last period before treatment. Before treatment it is the period before t. Units
    not yet treated are those first treated after t and the base.
    """
    periods, _ = _levels(request)
    labels, panel = cohort_labels(request), request.trust.panel
    starts = [periods.index(x) if x in periods else len(periods) for x in labels]
    assert panel is not None
    found = []
    for g, start in enumerate(starts):
        for t in range(1, len(periods)) if start < len(periods) else ():
            base = start - 1 if t >= start else t - 1
            last = len(periods) - 1 if panel.control_group == "nevertreated" else max(t, base)
            controls = tuple(c for c, s in enumerate(starts) if c != g and s > last)
            if controls:
                term = f"ATT({labels[g]}, {periods[t]})"
                found.append(Comparison(term, g, t, base, t - start, controls))
    return tuple(found)


def _levels(request: Request) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Labels of the periods, and of all cohorts."""
    panel = request.trust.panel
    assert panel is not None
    time, cohort = request.schema[panel.time], request.schema[panel.cohort]
    assert isinstance(time, Levels)
    assert isinstance(cohort, Levels)
    return time.values, cohort.values
