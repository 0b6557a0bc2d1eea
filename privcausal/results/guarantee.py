"""The promise of one fit, as a value and as sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from privcausal.accounting import PICO, epsilon_of
from privcausal.learners import Estimate
from privcausal.typing import Neighbors


@dataclass(frozen=True)
class Guarantee:
    """What a fit promises.

    Attributes
    ----------
    epsilon, delta : float
        The price as asked for: what was spent is at most this.
    rho : float
        What was spent, in zCDP.
    neighbors : {"substitute", "add_remove"}
    unit : str
        Whose data are protected: ``"one row"``, or ``"one patient_id (at most 3 rows)"``.
    kind : {"proven", "published", "none"}
    statement : str
    """

    epsilon: float
    delta: float
    rho: float
    neighbors: Neighbors
    unit: str
    kind: Literal["proven", "published", "none"]
    statement: str


def guarantee_of(estimate: Estimate) -> Guarantee:
    plan = estimate.plan
    trust, budget = plan.request.trust, plan.request.budget
    spent = plan.rho
    epsilon = epsilon_of(spent, budget.delta - plan.delta / PICO)
    unit = "one row" if trust.unit is None else f"one {trust.unit} (at most {trust.max_rows} rows)"
    kind: Literal["proven", "none"] = "proven" if estimate.real else "none"
    return Guarantee(
        min(epsilon, budget.epsilon), budget.delta, spent / PICO, trust.neighbors, unit, kind,
        _statement(estimate, unit),
    )


_VERBS = {
    "substitute": "have the data of {unit} replaced by any other",
    "add_remove": "gain or lose the data of {unit}",
}


def _statement(estimate: Estimate, unit: str) -> str:
    plan = estimate.plan
    budget, trust = plan.request.budget, plan.request.trust
    if not estimate.real:
        return "NOT PRIVATE: made with a test noise source; nothing is guaranteed."
    change = _VERBS[trust.neighbors].format(unit=unit)
    return (
        f"({budget.epsilon:g}, {budget.delta:g})-differential privacy, proven: all numbers of this "
        f"fit together, for two tables that {change}, whatever the data are. "
        f"Spent: {plan.rho / PICO:.3g} zCDP of the {plan.rho_cap / PICO:.3g} this allows."
    )
