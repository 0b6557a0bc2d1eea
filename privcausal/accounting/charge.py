"""The cost of one release (`Charge`) and the released numbers themselves (`Release`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, get_args

from privcausal.errors import BudgetError, as_plain, is_number
from privcausal.typing import Neighbors, Vector

PICO = 10**12
"""Privacy amounts are integers in units of 1e-12, because float budgets lose small charges."""

PARALLEL = "(parallel)"
"""Suffix of a parallel charge's query in ledgers."""


def exact(amount: float) -> Fraction:
    """The decimal number that a float stands for: 0.1 is one tenth, not 0.1000000000000000055."""
    return Fraction(repr(float(amount)))


def pico(amount: float) -> int:
    """The smallest integer number of pico-units that is at least `amount` (finite, >= 0)."""
    amount = as_plain(amount)
    if not is_number(amount) or not 0 <= amount < math.inf:
        raise BudgetError("A privacy amount must be a finite, nonnegative number.")
    # Exact arithmetic: a float product may round down, and charging too little would be a leak.
    return math.ceil(exact(amount) * PICO)


@dataclass(frozen=True, slots=True)
class Cost:
    """An amount of privacy loss in the three currencies of the ledger, in pico-units.

    `rho` counts zero-concentrated DP (zCDP), `epsilon` pure DP, and `delta` a failure probability.
    If `gdp` is True, rho is mu^2 / 2 of discrete Gaussian noise on the vault's fine grid. Such rho
    converts to a smaller epsilon than zCDP does (`privcausal.accounting.price`).
    """

    rho: int = 0
    epsilon: int = 0
    delta: int = 0
    gdp: bool = False

    def __post_init__(self) -> None:
        for name in ("rho", "epsilon", "delta"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise BudgetError(
                    f"{name} of a cost must be a nonnegative integer number of pico-units."
                )
        if type(self.gdp) is not bool:
            raise BudgetError("gdp of a cost must be True or False.")


@dataclass(frozen=True, slots=True)
class Charge:
    """One line of the budget: a query, its mechanism and its cost."""

    # `stage`, `query`, `mechanism`: for readers: ``"nuisance"``, ``"moments, p = 17"``, ``"discrete
    # Gaussian"``
    stage: str
    query: str
    mechanism: str
    neighbors: Neighbors
    sensitivity: float  # In the natural units of the released numbers
    noise_sd: float  # Standard deviation of the noise in the same units
    cost: Cost
    rows: float = 1.0  # Public share of the rows that were used, in (0, 1]; never a count
    unit: str = "row"  # The protected unit: ``"row"``, or ``"patient_id (at most 3 rows)"``
    # True for a release on separate rows, if a release on other rows was already charged at least
    # as much. The parallel release is then charged less.
    parallel: bool = False
    # The cost of a parallel release priced in (epsilon, delta), if it were the only one. For
    # releases priced in rho, the noise determines this cost.
    price: Cost | None = None

    def __post_init__(self) -> None:
        if self.neighbors not in get_args(Neighbors):
            raise BudgetError(
                f"neighbors of a charge must be one of {', '.join(get_args(Neighbors))}."
            )
        # A count of rows may be private; a share is public.
        if not 0 < self.rows <= 1:
            raise BudgetError("rows of a charge must be a share in (0, 1], not a count.")
        if not isinstance(self.unit, str) or not self.unit.strip():
            raise BudgetError("unit of a charge must be a nonempty text.")

    @property
    def alone(self) -> int:
        """pico-rho of this release alone; from its noise if it is a parallel release."""
        if self.price is not None:
            return self.price.rho
        if not self.parallel or math.isnan(self.noise_sd):
            return self.cost.rho  # the noise of a private estimator is unknown
        return pico((self.sensitivity / self.noise_sd) ** 2 / 2)


@dataclass(frozen=True, slots=True)
class Release:
    """Released numbers, with their noise and their cost.

    `value` and `noise_sd` have the same shape and units. `labels` names the released levels if the
    query selects them.
    """

    value: Vector
    noise_sd: Vector
    charge: Charge
    labels: tuple[Any, ...] = ()
