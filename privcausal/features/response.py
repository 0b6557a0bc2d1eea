"""A function of the outcome, as in ``log(Y) ~ T``: its domain and its values.

The function is read like a term of the right-hand side. Its range on the declared bounds is found
on the same public grid. Rows are clipped to the bounds, transformed, and clipped to this range.
"""

from __future__ import annotations

import numpy as np

from privcausal.errors import FormulaError, SchemaError
from privcausal.features.design import Design, design_of
from privcausal.request.formula import CausalFormula, Term
from privcausal.request.schema import Interval, Schema, Transformed
from privcausal.typing import Vector


def transformed(schema: Schema, formula: CausalFormula) -> Schema:
    """The schema with the domain of the transformed outcome.

    Raises
    ------
    SchemaError, FormulaError
        If the outcome has no numeric bounds, or the function is constant or not finite there.
    """
    name, function = formula.outcome, formula.response
    raw = schema.get(name)
    if isinstance(raw, Transformed):
        raw = raw.raw
    if function is None:
        return schema if raw is schema.get(name) else schema.with_columns({name: raw})
    if not isinstance(raw, Interval):
        raise SchemaError(
            f"Outcome {function.expr} requires declared bounds of {name!r} within which it is "
            f"finite: bounds={{{name!r}: (lo, hi)}}."
        )
    design = _design(formula, raw)
    if not design.columns:
        raise FormulaError(f"Outcome {function.expr} is constant within the declared bounds.")
    column = design.columns[0]
    return schema.with_columns({name: Transformed(column.lo, column.hi, raw)})


def response(formula: CausalFormula, domain: Transformed, values: Vector) -> Vector:
    """The function of outcomes inside ``domain.raw``, shape (n,); NaN where it is not finite."""
    design = _design(formula, domain.raw)
    scaled = design.scaled({formula.outcome: values}, len(values))[:, 0]
    return np.clip(domain.mid + 0.5 * domain.width * scaled, domain.lo, domain.hi)


def _design(formula: CausalFormula, raw: Interval) -> Design:
    assert formula.response is not None
    term = Term(formula.response.expr, (formula.response,))
    return design_of([term], Schema({formula.outcome: raw}), full_rank=True)
