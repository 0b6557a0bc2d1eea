"""What one release costs (`Charge`) and what comes out of the vault (`Release`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from privcausal.errors import BudgetError
from privcausal.typing import Neighbors, Vector

PICO = 10**12
"""Privacy amounts are integers in units of 1e-12: float budgets lose small spends."""


def pico(amount: float) -> int:
    """The integer number of pico-units that is not less than `amount` (>= 0, finite)."""
    if not (math.isfinite(amount) and amount >= 0):
        raise BudgetError("a privacy amount must be finite and not negative")
    units = math.ceil(amount * PICO)
    # the float product may round down; the integer must never be below the true amount
    return units if units >= amount * PICO and units / PICO >= amount else units + 1


@dataclass(frozen=True, slots=True)
class Cost:
    """An amount of privacy loss in the three currencies of the ledger, in pico-units.

    `rho` counts zero-concentrated DP (zCDP), `epsilon` pure DP, `delta` a failure probability.
    """

    rho: int = 0
    epsilon: int = 0
    delta: int = 0

    def __post_init__(self) -> None:
        for name in ("rho", "epsilon", "delta"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise BudgetError(f"{name} of a cost is an integer number of pico-units >= 0")

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.rho + other.rho, self.epsilon + other.epsilon, self.delta + other.delta
        )


@dataclass(frozen=True, slots=True)
class Charge:
    """One line of the budget: what was asked, by which mechanism, at which price.

    Attributes
    ----------
    stage, query, mechanism : str
        For people: ``"nuisance"``, ``"moments, p = 17"``, ``"discrete Gaussian"``.
    neighbors : {"substitute", "add_remove"}
    sensitivity : float
        In the natural units of the released numbers.
    noise_sd : float
        Standard deviation of the noise in the same units.
    cost : Cost
    rows : float
        Public share of the rows that were seen, in (0, 1]; never a count.
    """

    stage: str
    query: str
    mechanism: str
    neighbors: Neighbors
    sensitivity: float
    noise_sd: float
    cost: Cost
    rows: float = 1.0


@dataclass(frozen=True, slots=True)
class Release:
    """Numbers that left the vault, with their noise and their price.

    `value` and `noise_sd` have the same shape and units; `labels` names released levels where
    the query selects them.
    """

    value: Vector
    noise_sd: Vector
    charge: Charge
    labels: tuple[Any, ...] = ()
