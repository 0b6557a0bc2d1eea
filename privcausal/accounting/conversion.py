"""Between the user's (epsilon, delta) and the house currency, zCDP's rho.

Source: Canonne, Kamath and Steinke (2020), *The Discrete Gaussian for Differential Privacy*,
Proposition 12 and Corollary 13, as computed by OpenDP's ``make_zCDP_to_approxDP``, which rounds
towards a larger epsilon.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

from privcausal.accounting.charge import PICO, is_number
from privcausal.errors import BudgetError

MIN_EPSILON = 1e-6
"""Below this an epsilon buys noise only; it is a mistake, such as delta in its place."""

MAX_EPSILON = 1e4
"""Above this an epsilon protects nobody, and the conversion nears the end of the floats."""

MAX_RHO = 50_000 * PICO
"""The most rho that is converted, in pico-units; its epsilon is above `MAX_EPSILON`."""


def check_epsilon(epsilon: float) -> float:
    """`epsilon` as a float in [1e-6, 1e4], or a `BudgetError` that says what it must be."""
    if not is_number(epsilon) or not MIN_EPSILON <= epsilon <= MAX_EPSILON:
        raise BudgetError(
            f"epsilon must be a number from {MIN_EPSILON:g} to {MAX_EPSILON:g}, not {epsilon!r}; "
            "common choices are 0.1 to 4"
        )
    return float(epsilon)


def check_delta(delta: float) -> float:
    """`delta` as a float in (0, 1), or a `BudgetError` that says what it must be."""
    if not is_number(delta) or not 0 < delta < 1:
        raise BudgetError(
            f"delta must be a number strictly between 0 and 1, not {delta!r}; "
            "1e-5 is usual, and it should be far below 1/n"
        )
    return float(delta)


def epsilon_of(rho_pico: int, delta: float) -> float:
    """Epsilon at `delta` of a total of `rho_pico` 1e-12 zCDP; 0.0 for nothing spent.

    Never below the true value, not decreasing in rho, and infinite above `MAX_RHO`.
    """
    if type(rho_pico) is not int or rho_pico < 0:
        raise BudgetError("rho is an integer number of pico-units >= 0")
    return _epsilon_of(rho_pico, check_delta(delta))


def rho_of(epsilon: float, delta: float) -> int:
    """The largest rho, in pico-units, whose `epsilon_of` is at most `epsilon`.

    So a total of `rho_of(epsilon, delta)` meets the request exactly, not just nearly.
    """
    rho = largest_rho(check_epsilon(epsilon), check_delta(delta))
    if rho == 0:
        raise BudgetError(
            f"epsilon={epsilon:g} at delta={delta:g} buys less than rho = 1e-12, "
            "the smallest amount that is counted; ask for a larger epsilon"
        )
    return rho


def noise_multiplier(rho: float) -> float:
    """sigma / Delta = 1 / sqrt(2 rho) of the Gaussian noise that costs `rho` (natural units)."""
    if not is_number(rho) or not 0 < rho < math.inf:
        raise BudgetError(f"rho must be a finite number above 0, not {rho!r}")
    return 1 / math.sqrt(2 * rho)


@lru_cache(maxsize=1024)
def largest_rho(epsilon: float, delta: float) -> int:
    """`rho_of` for numbers already checked, and 0 where not even one pico-unit fits."""
    low, high = _bracket(epsilon, delta)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _epsilon_of(middle, delta) <= epsilon else (low, middle)
    return low


def _bracket(epsilon: float, delta: float) -> tuple[int, int]:
    """Two amounts of rho: `epsilon` pays for the first and not for the second."""
    log = -math.log(delta)
    # the textbook bound epsilon <= rho + 2 sqrt(rho log(1/delta)), solved for rho: a good start
    guess = max(1, int(PICO * (epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))) ** 2))
    if _epsilon_of(guess, delta) > epsilon:
        return 0, guess
    low, high = guess, 2 * guess
    while _epsilon_of(high, delta) <= epsilon:
        low, high = high, 2 * high
    return low, high


@lru_cache(maxsize=4096)
def _epsilon_of(rho_pico: int, delta: float) -> float:
    if rho_pico == 0:
        return 0.0
    # beyond it OpenDP's exponentials overflow; infinity is a bound too, and no cap allows it
    return float(profile(rho_pico).epsilon(delta)) if rho_pico <= MAX_RHO else math.inf


def profile(rho_pico: int) -> Any:
    """OpenDP's privacy profile of zCDP, with methods ``epsilon(delta)`` and ``delta(epsilon)``.

    `rho_pico` lies between 1 and `MAX_RHO`.
    """
    return _gaussian().map(_distance(rho_pico))


@lru_cache(maxsize=1)
def _gaussian() -> Any:
    """OpenDP's Gaussian of scale 1, whose zCDP at distance d is d^2/2, seen as approximate DP."""
    import opendp.prelude as dp  # 1.3 s: not at the top, where everyone would pay it

    dp.enable_features("contrib")
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    return dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=1.0))


def _distance(rho_pico: int) -> float:
    """A float d, least or next to it, with d^2/2 >= rho in exact arithmetic."""
    rho = Fraction(rho_pico, PICO)
    d = math.sqrt(2 * rho)
    while Fraction(d) ** 2 < 2 * rho:
        d = math.nextafter(d, math.inf)
    return d
