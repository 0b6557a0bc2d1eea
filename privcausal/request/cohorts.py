"""Staggered adoption: cohorts of units by their first treated period, and their comparisons."""

from __future__ import annotations

import math
import re
from bisect import bisect
from typing import Any, NamedTuple, get_args

from privcausal.errors import CapabilityError, FormulaError, SchemaError
from privcausal.request import panels
from privcausal.request.formula import CausalFormula
from privcausal.request.request import Request
from privcausal.request.schema import Interval, Levels, Schema


class CohortEffect(NamedTuple):
    """ATT(g, t): the change of cohort g from the base period to t, less that of the controls.

    Cohorts and periods are positions in `labels_of`. `event` is the time since treatment, in the
    unit of the periods if these are numbers; otherwise it counts periods.
    """

    name: str
    cohort: int
    period: int
    base: int
    event: float
    controls: tuple[int, ...]


def cohorts_of(
    formula: CausalFormula,
    schema: Schema,
    unit: Any,
    time: Any,
    periods: Any,
    cohort: Any,
    control_group: Any,
    groups: object,
) -> tuple[Schema, panels.Panel]:
    """Domains of the rows per unit: the cohort, and the outcome in each declared period.

    Refuse undeclared periods or cohorts, and a column with two roles.
    """
    name, domain = formula.outcome, schema.get(formula.outcome)
    if formula.terms or formula.response is not None:
        raise FormulaError(
            f"did() with cohort= has neither covariates nor functions: write '{name} ~ 1'. To "
            "adjust for covariates, compare one cohort with untreated units in two periods: "
            f"did('{name} ~ treated | x', periods=(a, b))."
        )
    if groups:
        raise CapabilityError(
            "did() with cohort= has no groups=. Fit the rows of each group separately."
        )
    if control_group not in get_args(panels.ControlGroup):
        raise CapabilityError(
            f"control_group= must be {' or '.join(map(repr, get_args(panels.ControlGroup)))}."
        )
    panels.check_panel_columns(formula, unit, time, (), cohort)
    if not isinstance(domain, Interval):
        raise SchemaError(f"did() requires numeric bounds: bounds={{{name!r}: (lo, hi)}}.")
    waves, levels = panels.declared_periods(schema, time, periods), schema.get(cohort)
    if not (isinstance(waves, Levels) and len(waves.values) > 1 and not waves.other):
        raise SchemaError(f"Name all periods of {time!r} in order: periods=[2003, 2004, 2005].")
    if not isinstance(levels, Levels) or levels.other:
        raise SchemaError(
            f"did() requires the levels of {cohort!r}: the first treated periods, and one level "
            f"for never-treated units, bounds={{{cohort!r}: [0, 2004, 2006]}}."
        )
    panels.check_order(time, waves.values)
    outside = [x for x in levels.values if x not in waves.values]
    for level in outside:
        *numbers, number = panels.numbers_of([*waves.values, level]) or [math.nan]
        if numbers and numbers[0] < number < numbers[-1]:
            after = waves.values[bisect(numbers, number)]
            raise SchemaError(
                f"Level {level} of {cohort!r} lies between the periods. Recode it to the next "
                f"period, {after}, or add {level} to periods=."
            )
        later = bool(numbers) and number > numbers[-1]
        if not later and panels.numbers_of([level]) != [0.0] and re.search(r"\d", level):
            raise SchemaError(
                f"Level {level} of {cohort!r} does not come after the last period, so it does not "
                "mark never-treated units. If its units are treated before the first period, leave "
                "it out of bounds=. Code never-treated units as 0 or 'never'."
            )
    if len(outside) > 1:
        raise SchemaError(
            f"Only one level of {cohort!r} may be outside the periods. It marks never-treated "
            "units. Code units treated after the last period as never treated."
        )
    # These names are longer than the name of any column, so none occurs twice.
    wide = tuple(f"{name}, {unit}, {cohort}, {time} {k}" for k in range(1, len(waves.values)))
    panel = panels.Staggered(time, Schema({name: domain}), cohort, wide, control_group)
    schema = schema.with_columns({time: waves, **dict.fromkeys(wide, domain)})
    if not _comparisons(schema, panel):
        raise SchemaError(
            f"No comparison is possible: {cohort!r} requires a level among the periods after the "
            "first, and one outside them for never-treated units. Without never-treated units, "
            "write control_group='notyettreated'."
        )
    return schema, panel


def labels_of(schema: Schema, panel: panels.Staggered) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Labels of the cohorts, in order of treatment with never treated last, and of the periods.

    Units that are treated in the first period have no period before, and are left out.
    """
    time, cohort = schema[panel.time], schema[panel.cohort]
    assert isinstance(time, Levels)
    assert isinstance(cohort, Levels)
    treated = [label for label in time.values[1:] if label in cohort.values]
    return (*treated, *(x for x in cohort.values if x not in time.values)), time.values


def comparisons(request: Request) -> tuple[CohortEffect, ...]:
    """All ATT(g, t) that have controls, by cohort and period (Callaway and Sant'Anna 2021).

    The base is the last period before treatment; before treatment it is the period before t. Units
    not yet treated are those first treated after t and the base.
    """
    assert isinstance(request.trust.panel, panels.Staggered)
    return _comparisons(request.schema, request.trust.panel)


def _comparisons(schema: Schema, panel: panels.Staggered) -> tuple[CohortEffect, ...]:
    labels, periods = labels_of(schema, panel)
    end, effects, times = len(periods), [], panels.clock(periods)
    starts = [periods.index(label) if label in periods else end for label in labels]
    for g, start in enumerate(starts):
        for t in range(1, end) if start < end else ():
            base = start - 1 if t >= start else t - 1
            last = end - 1 if panel.control_group == "nevertreated" else max(t, base)
            controls = tuple(c for c, s in enumerate(starts) if c != g and s > last)
            if controls:
                name = f"ATT({labels[g]}, {periods[t]})"
                event = round(times[t] - times[start], 9)
                effects.append(
                    CohortEffect(
                        name, cohort=g, period=t, base=base, event=event, controls=controls
                    )
                )
    return tuple(effects)
