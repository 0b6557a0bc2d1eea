"""The horizon of a survival outcome, and the bounds of its time."""

from __future__ import annotations

import math
import re
from typing import Any

from privcausal.errors import SchemaError, is_number
from privcausal.request.formula import CausalFormula
from privcausal.request.schema import Interval, Schema
from privcausal.typing import Average

SURVIVAL: tuple[Average, ...] = ("RMST", "risk")
"""Averages of survival outcomes, which need a horizon."""

REQUIRED = (
    "A survival outcome, a horizon, and one of the estimands 'RMST' and 'risk' of private() "
    "require each other. Write pc.private('Surv(days, died) ~ T | X', data, estimand='RMST', "
    "horizon=180)."
)

LEAST_HORIZON = 1e-6
"""Smallest horizon, and inverse of the largest. A guard."""


def events_of(formula: object) -> tuple[str, ...]:
    """The event's column of a formula ``Surv(time, event) ~ ...``, whatever the rest of it is.

    Two numbers declared for it are labels: an event has no interval.
    """
    if not isinstance(formula, str):
        return ()
    return tuple(re.findall(r"^\s*Surv\s*\([^,()]*,\s*`?([^,()`]+?)`?\s*\)", formula))


def followed(schema: Schema, formula: CausalFormula, horizon: Any) -> Schema:
    """The schema with bounds of a survival time, which need only extend beyond the horizon."""
    name = formula.outcome
    if not (formula.event and is_number(horizon) and 0 < horizon < math.inf) or name in schema:
        return schema
    return schema.with_columns({name: Interval(0.0, 2.0 * horizon)})


def check_horizon(formula: CausalFormula, schema: Schema, horizon: float) -> None:
    """Raise `SchemaError` unless the horizon is a number within the bounds of the time."""
    if not (is_number(horizon) and LEAST_HORIZON <= horizon <= 1 / LEAST_HORIZON):
        raise SchemaError("horizon= must be a positive number in the units of the time.")
    time = schema.get(formula.outcome)
    raw = getattr(time, "raw", time)
    if not (isinstance(raw, Interval) and raw.lo >= 0 and raw.hi > horizon):
        raise SchemaError(
            f"The bounds of the survival time {formula.outcome!r} must be (0, hi), with hi beyond "
            f"the horizon. Leave them out, or write bounds={{{formula.outcome!r}: "
            f"(0, {2 * horizon:g})}}."
        )
