"""Epsilon, delta, rho and what follows from them, as text that stays true.

What is promised or spent is rounded up, what is left or shown at least is rounded down. A float
whose shortest decimal has few digits is that decimal: 0.1 is one tenth, as the person who typed it
meant, though the float lies a little above.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext

DELTA_DIGITS = 3
"""Significant digits of a delta; an epsilon and a rho have one more."""


def at_most(amount: float, digits: int = 4) -> str:
    """`amount` in at most so many significant digits, rounded up."""
    return _text(_rounded(amount, digits, ROUND_CEILING))


def at_least(amount: float, digits: int = 4) -> str:
    """`amount` in at most so many significant digits, rounded down."""
    return _text(_rounded(amount, digits, ROUND_FLOOR))


def as_typed(amount: float) -> str:
    """All digits: what has to be typed to get the same float."""
    return _text(_decimal(amount))


def pair(epsilon: float, delta: float) -> str:
    """``"(1, 1e-05)"``."""
    return f"({at_most(epsilon)}, {at_most(delta, DELTA_DIGITS)})"


def column(amounts: Iterable[float]) -> tuple[str, ...]:
    """Prices in one column, rounded up: equal decimals, blank where NaN."""
    spent = [float(amount) for amount in amounts]
    paid = [amount for amount in spent if math.isfinite(amount) and amount > 0]
    decimals = 4
    if paid:
        needed = max(1 - math.floor(math.log10(max(paid))), -math.floor(math.log10(min(paid))))
        decimals = min(6, max(2, needed))
    return tuple(_cell(amount, decimals) for amount in spent)


def _cell(amount: float, decimals: int) -> str:
    if math.isnan(amount):
        return ""
    if 0 < amount < 10.0**-decimals or amount >= 1e6:
        return at_most(amount, 2)
    return f"{_decimal(amount).quantize(Decimal(1).scaleb(-decimals), ROUND_CEILING):f}"


def percent(share: float) -> str:
    """How often at most, in tenths of a percent and without the sign: ``"55.4"``."""
    tenths = (100 * _decimal(share)).quantize(Decimal("0.1"), ROUND_CEILING)
    return _text(min(tenths, Decimal(100)))


def chance(delta: float) -> str:
    """A failure chance at most, in words: ``"1 in 100,000"``."""
    if not 1e-9 <= delta < 0.5:
        return at_most(delta, DELTA_DIGITS)
    whole = round(1 / delta)
    return f"1 in {whole if 1 / whole >= delta else whole - 1:,}"


CERTAIN = 1_000_000
"""Odds above it are told as more than that."""


def odds(prior: float, epsilon: float = 0.0) -> str:
    """The furthest that a belief can move, as odds: ``"73.2:26.8"``.

    Prior odds times e^epsilon, rounded away from the prior; a negative epsilon is for the least.
    Out of a hundred where that shows both sides, else to one: ``"22,100:1"``.
    """
    if math.isnan(epsilon):
        return "unknown"
    rounding = ROUND_CEILING if epsilon > 0 else ROUND_FLOOR
    with localcontext(Context(prec=50)):
        # beyond 100 all odds are above `CERTAIN`, and infinity has no quotient
        against = 1 - _decimal(prior)
        odds_for = _decimal(prior) * _decimal(min(max(epsilon, -100.0), 100.0)).exp()
        share = (100 * odds_for / (against + odds_for)).quantize(Decimal("0.1"), rounding)
        if 1 <= share <= 99:
            return f"{_text(share)}:{_text(100 - share)}"
        ratio = max(odds_for / against, against / odds_for)
    many, qualified = f"{CERTAIN:,}", ratio > CERTAIN
    if not qualified:
        many = f"{Context(prec=3, rounding=ROUND_CEILING).plus(ratio):,f}"
    if share > 99:
        return f"{'more than ' * qualified}{many}:1"
    return f"{'less than ' * qualified}1:{many}"


def _decimal(amount: float) -> Decimal:
    """The shortest decimal that reads back as the float."""
    return Decimal(repr(float(amount)))


def _rounded(amount: float, digits: int, rounding: str) -> Decimal:
    return Context(prec=digits, rounding=rounding).create_decimal(repr(float(amount)))


def _text(amount: Decimal) -> str:
    """As Python writes a float of these digits: ``1``, ``0.125``, ``1e-05``."""
    return repr(float(amount)).removesuffix(".0")
