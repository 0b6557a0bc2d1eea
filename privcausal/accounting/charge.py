"""What one release costs (`Charge`) and what comes out of the vault (`Release`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any, TypeGuard, get_args

from privcausal.errors import BudgetError
from privcausal.stored import stored
from privcausal.typing import Neighbors, Vector

PICO = 10**12
"""Privacy amounts are integers in units of 1e-12: float budgets lose small spends."""


PARALLEL = "(parallel)"
"""Ends the query of a parallel charge in ledgers, and in fits saved before it was a field."""


def is_number(value: object) -> TypeGuard[float]:
    """Whether `value` is a real number; a bool or a string is not, though Python might add it."""
    return isinstance(value, Real) and not isinstance(value, bool)


def exact(amount: float) -> Fraction:
    """The decimal number a person means by a float: 0.1 is one tenth, not 0.1000000000000000055."""
    return Fraction(repr(float(amount)))


def pico(amount: float) -> int:
    """The least integer number of pico-units that is not below `amount` (finite, >= 0)."""
    if not is_number(amount) or not 0 <= amount < math.inf:
        raise BudgetError("a privacy amount is a finite number that is not negative")
    # in exact arithmetic: a float product may round down, and below the true amount is a leak
    return math.ceil(exact(amount) * PICO)


@stored
@dataclass(frozen=True, slots=True)
class Cost:
    """An amount of privacy loss in the three currencies of the ledger, in pico-units.

    `rho` counts zero-concentrated DP (zCDP), `epsilon` pure DP, `delta` a failure probability.
    `gdp` says that rho is mu^2 / 2 of discrete Gaussian noise on the vault's fine grid, which
    converts to less than zCDP does (`privcausal.accounting.price`).
    """

    rho: int = 0
    epsilon: int = 0
    delta: int = 0
    gdp: bool = False

    def __post_init__(self) -> None:
        for name in ("rho", "epsilon", "delta"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise BudgetError(f"{name} of a cost is an integer number of pico-units >= 0")
        if type(self.gdp) is not bool:
            raise BudgetError("gdp of a cost is True or False")


@stored
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
    unit : str
        Whose data the price protects: ``"row"``, or ``"patient_id (at most 3 rows)"``.
    parallel : bool
        For work on rows of its own, which others have paid for as dearly: it is charged less.
    price : Cost, optional
        What a parallel release priced in (epsilon, delta) would cost by itself. (That of one priced
        in rho is in its noise.)
    """

    stage: str
    query: str
    mechanism: str
    neighbors: Neighbors
    sensitivity: float
    noise_sd: float
    cost: Cost
    rows: float = 1.0
    unit: str = "row"
    parallel: bool = False
    price: Cost | None = None

    def __post_init__(self) -> None:
        if self.neighbors not in get_args(Neighbors):
            raise BudgetError(f"neighbors of a charge is one of {', '.join(get_args(Neighbors))}")
        # a count of rows may be private; a share is public
        if not 0 < self.rows <= 1:
            raise BudgetError("rows of a charge is a share in (0, 1], never a count")
        if not isinstance(self.unit, str) or not self.unit.strip():
            raise BudgetError("unit of a charge is a text that is not empty")

    @property
    def alone(self) -> int:
        """pico-rho of this release by itself: that of its noise where others have paid for it."""
        if self.price is not None:
            return self.price.rho
        if not self.parallel or math.isnan(self.noise_sd):
            return self.cost.rho  # of a private estimator's own noise nothing is known
        return pico((self.sensitivity / self.noise_sd) ** 2 / 2)


@stored
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
