"""What a ledger that cannot pay leaves for a smaller fit, in words."""

from __future__ import annotations

import math
from collections.abc import Callable

from privcausal.accounting import BudgetExhaustedError
from privcausal.errors import PrivcausalError
from privcausal.learners.forecast import LEAST_EPSILON, Planner
from privcausal.report.numbers import number

LEVEL = 0.05


def with_plan(
    refused: BudgetExhaustedError, planner: Callable[[], Planner], asked: float, rows: int | None
) -> BudgetExhaustedError:
    """The same refusal with the planned half-width of a fit that the ledger could pay.

    Parameters
    ----------
    planner : callable
        Makes the planner of the refused fit; not every fit has one.
    asked : float
        Its epsilon.
    rows : int or None
        Public number of rows; None where it is private, and then nothing is planned.
    """
    left = math.floor(100 * refused.payable) / 100
    if rows is None or not LEAST_EPSILON <= left < asked:
        return refused
    try:
        fits = planner()
        smaller, now = (float(fits.at(rows, e).half_width(LEVEL)[0]) for e in (left, asked))
    except PrivcausalError:  # what has no plan is refused without one
        return refused
    return BudgetExhaustedError(
        f"{refused} With eps={left:g} the planned 95% half-width is {number(smaller, 2)} "
        f"(now {number(now, 2)}).",
        refused.requested,
        refused.remaining,
        refused.payable,
    )
