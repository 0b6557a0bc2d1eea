"""Between the user's (epsilon, delta) and the house currency, rho.

Of any mechanism, rho is that of zero-concentrated DP: Canonne, Kamath and Steinke (2020), *The
Discrete Gaussian for Differential Privacy*, Proposition 12 and Corollary 13, as computed by
OpenDP's ``make_zCDP_to_approxDP``, which rounds towards a larger epsilon. Of discrete Gaussian
noise on a fine grid it is also mu^2 / 2, and converts to less: see `gaussian`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from privcausal.accounting.charge import PICO, is_number
from privcausal.accounting.gaussian import EVENTS, delta_of, epsilon_at
from privcausal.errors import BudgetError
from privcausal.prices import DELTA_DIGITS, as_typed, at_most

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


USUAL_EPSILON, USUAL_DELTA = 10.0, 1e-4
"""Of a promise that is worth something; beyond them a fit is warned of."""


def weak_promise(epsilon: float, delta: float, size: int | None) -> tuple[str, ...]:
    """What a promise is not worth, a sentence or two each; empty where it is worth something.

    `size` is the public number of rows or units, or None; a `delta` of 0 promises without a slack.
    """
    said = []
    if epsilon > USUAL_EPSILON:
        said.append(
            f"eps={at_most(epsilon)} is above {USUAL_EPSILON:g}: what is released may tell almost "
            "surely whether a person's data were used. Common choices are 0.1 to 4."
        )
    if size and delta >= 1 / size:
        said.append(
            f"delta={at_most(delta, DELTA_DIGITS)} is not below 1/n, with n = {size:,}: even the "
            "data of one person, drawn by lot and published, would keep such a promise. Choose "
            "delta far below 1/n."
        )
    elif delta > USUAL_DELTA:
        said.append(
            f"delta={at_most(delta, DELTA_DIGITS)} is above {USUAL_DELTA:g}: with that chance the "
            "promise may fail altogether. Choose delta far below 1 over the number of people."
        )
    return tuple(said)


def epsilon_of(rho_pico: int, delta: float, gdp: bool = False) -> float:
    """Epsilon at `delta` of a total of `rho_pico` 1e-12; 0.0 for nothing spent.

    Never below the true value, and infinite above `MAX_RHO`.

    Parameters
    ----------
    gdp : bool
        Whether it is of discrete Gaussian noise of the vault, in at most `EVENTS` releases; else it
        is zCDP of whatever mechanism.
    """
    if type(rho_pico) is not int or rho_pico < 0:
        raise BudgetError("rho is an integer number of pico-units >= 0")
    return _epsilon_of(rho_pico, check_delta(delta), gdp)


def rho_of(epsilon: float, delta: float, gdp: bool = False) -> int:
    """The largest rho, in pico-units, that (`epsilon`, `delta`) pays for; `epsilon_of` undone.

    `gdp` as there: such noise gets 18 % more rho at (1, 1e-5).
    """
    rho = largest_rho(check_epsilon(epsilon), check_delta(delta), gdp)
    if rho == 0:
        raise BudgetError(
            f"epsilon={as_typed(epsilon)} at delta={as_typed(delta)} buys less than rho = 1e-12, "
            "the smallest amount that is counted; ask for a larger epsilon"
        )
    return rho


def noise_multiplier(rho: float) -> float:
    """sigma / Delta = 1 / sqrt(2 rho) of the Gaussian noise that costs `rho` (natural units)."""
    if not is_number(rho) or not 0 < rho < math.inf:
        raise BudgetError(f"rho must be a finite number above 0, not {rho!r}")
    return 1 / math.sqrt(2 * rho)


@lru_cache(maxsize=1024)
def largest_rho(epsilon: float, delta: float, gdp: bool = False) -> int:
    """`rho_of` for numbers already checked, and 0 where not even one pico-unit fits."""

    def enough(rho: int) -> bool:
        return _zcdp_epsilon(rho, delta) <= epsilon

    rho = largest_gaussian(epsilon, delta) if gdp else 0
    if rho and not enough(rho + 1):  # as it is but for tiny and for huge epsilon
        return rho
    return max(rho, _most(enough, _guess(epsilon, delta)))


@lru_cache(maxsize=1024)
def largest_gaussian(
    epsilon: float, delta: float, events: int = EVENTS, pure: tuple[int, ...] = ()
) -> int:
    """The largest pico-rho of Gaussian noise with `gaussian.delta_of` at most `delta`, or 0."""

    def enough(rho: int) -> bool:
        return rho <= MAX_RHO and delta_of(epsilon, rho, events, pure) <= delta

    return _most(enough, _guess(max(epsilon, MIN_EPSILON), delta))


def _guess(epsilon: float, delta: float) -> int:
    """epsilon <= rho + 2 sqrt(rho log(1/delta)), the textbook's bound, solved for pico-rho."""
    log = -math.log(delta)
    return max(1, int(PICO * (epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))) ** 2))


def _most(enough: Callable[[int], bool], guess: int) -> int:
    """The largest whole number that is enough, given that smaller ones are; 0 without one."""
    low, high = 0, guess
    while enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low


@lru_cache(maxsize=4096)
def _epsilon_of(rho_pico: int, delta: float, gdp: bool) -> float:
    zcdp = _zcdp_epsilon(rho_pico, delta)
    if not gdp or not 0 < rho_pico <= MAX_RHO:
        return zcdp
    return min(zcdp, epsilon_at(delta, rho_pico, EVENTS))


@lru_cache(maxsize=4096)
def _zcdp_epsilon(rho_pico: int, delta: float) -> float:
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
