"""Privacy accounting: the zCDP budget, conversions, trade-off functions and the ledger.

This subpackage never sees a value of a row.
"""

# ruff: noqa: I001 - the imports are set like `__all__`
from privcausal.accounting.price import PICO, Charge, Cost, Release, pico
from privcausal.accounting.ledger import BudgetExhaustedError, Ledger, Spent
from privcausal.accounting.price import (
    Events, Remaining, delta_after, epsilon_of, multiplier_for_replaced, rho_of,
    total_epsilon, weak_promise,
)  # fmt: skip
from privcausal.accounting.store import run_name
from privcausal.accounting.tradeoff import TradeOff, convex_envelope

__all__ = [
    "PICO", "BudgetExhaustedError", "Charge", "Cost", "Events", "Ledger", "Release",
    "Remaining", "Spent", "TradeOff", "convex_envelope", "delta_after", "epsilon_of",
    "multiplier_for_replaced", "pico", "rho_of", "run_name",
    "total_epsilon", "weak_promise",
]  # fmt: skip
