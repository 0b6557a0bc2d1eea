"""What a plan is asked: for which n and epsilon, or for which half-width."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from privcausal.errors import BudgetError, CapabilityError
from privcausal.learners.forecast import LEAST_ROWS, MOST_ROWS, Planner
from privcausal.results.frames import check_alpha

Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Question:
    """Numbers of rows and epsilons, or the half-width by which one of the two is found.

    Attributes
    ----------
    rows, epsilons : tuple
        Empty for the one that is looked for.
    width : float or None
    alpha, power : float
        Intervals are at level 1 - alpha; detectable effects are found with this power.
    """

    rows: tuple[int, ...]
    epsilons: tuple[float, ...]
    width: float | None = None
    alpha: float = 0.05
    power: float = 0.8

    @classmethod
    def of(cls, n: Any, eps: Any, width: Any, alpha: float, power: float) -> Question:
        """A question from what a user may write.

        Raises
        ------
        BudgetError, CapabilityError
            Neither n alone nor two of n, eps and width; or one of them is no such number.
        """
        _check_levels(alpha, power)
        rows = () if n is None else tuple(_rows(v) for v in _listed("n", n))
        epsilons = () if eps is None else tuple(_epsilon(v) for v in _listed("eps", eps))
        if width is None:
            if not rows:
                raise CapabilityError(
                    "a plan needs n=, the number of rows; or width= and eps= to find it"
                )
            return cls(rows, epsilons or (1.0,), None, alpha, power)
        if not (_is_number(width) and 0 < width < np.inf):
            raise CapabilityError("width must be a finite number above 0: the half-width wanted")
        if bool(rows) == bool(epsilons):
            raise CapabilityError(
                "width= finds eps for a given n, or n for a given eps: give one of n= and eps="
            )
        return cls(rows, epsilons, float(width), alpha, power)

    @property
    def first_epsilon(self) -> float:
        """One that is asked for; 1 where it is looked for."""
        return self.epsilons[0] if self.epsilons else 1.0

    @property
    def sought(self) -> str:
        """``"eps"`` or ``"n"``, or nothing where both are given."""
        if self.width is None:
            return ""
        return "eps" if self.rows else "n"

    def points(self, planner: Planner) -> Points:
        """The (n, eps) to plan: as asked, or one of the two found from the half-width."""
        if self.width is None:
            return tuple(product(self.rows, self.epsilons))
        width, alpha = self.width, self.alpha
        if self.rows:
            return tuple((n, planner.epsilon_for(width, n, alpha)) for n in self.rows)
        return tuple((planner.rows_for(width, eps, alpha), eps) for eps in self.epsilons)


def _check_levels(alpha: float, power: float) -> None:
    check_alpha(alpha)
    if not (_is_number(power) and alpha / 2 < power < 1):
        raise CapabilityError("power must be a number in (0, 1) above alpha / 2, such as 0.8")


def _listed(name: str, value: Any) -> list[Any]:
    """One number or several as a list without repeats."""
    if isinstance(value, str | bytes | Mapping):
        raise CapabilityError(f"{name} is a number or a list of numbers")
    listed = [value] if np.ndim(value) == 0 else list(value)
    if not listed:
        raise CapabilityError(f"{name} is an empty list: give at least one number")
    return list(dict.fromkeys(listed))


def _rows(value: Any) -> int:
    if not (_is_number(value) and LEAST_ROWS <= value <= MOST_ROWS and value == int(value)):
        raise CapabilityError(f"n must be a whole number from {LEAST_ROWS} to {MOST_ROWS:,}")
    return int(value)


def _epsilon(value: Any) -> float:
    if not (_is_number(value) and 0 < value < np.inf):
        raise BudgetError("eps must be a finite number above 0")
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
