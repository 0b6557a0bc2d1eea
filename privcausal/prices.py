"""Formatting of epsilon, delta, rho and quantities derived from them, with safe rounding.

Guaranteed and spent amounts are rounded up. Remaining amounts and lower limits are rounded down. A
float is read as its shortest decimal. For example, 0.1 is read as one tenth, which the user meant,
although the float is slightly larger.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext

DELTA_DIGITS = 3
"""Significant digits of a delta; an epsilon or a rho has one more."""


def at_most(amount: float, digits: int = 4) -> str:
    """Format `amount` with at most `digits` significant digits, rounded up."""
    return _text(Context(digits, ROUND_CEILING).create_decimal(_decimal(amount)))


def at_least(amount: float, digits: int = 4) -> str:
    """Format `amount` with at most `digits` significant digits, rounded down."""
    return _text(Context(digits, ROUND_FLOOR).create_decimal(_decimal(amount)))


def as_typed(amount: float) -> str:
    """Format `amount` with all digits, so that the text reads back as the same float."""
    return _text(_decimal(amount))


def pair(epsilon: float, delta: float) -> str:
    """Format (epsilon, delta), for example as ``"(1, 1e-05)"``."""
    return f"({at_most(epsilon)}, {at_most(delta, DELTA_DIGITS)})"


def column(amounts: Iterable[float]) -> tuple[str, ...]:
    """Format a column of amounts, rounded up, with equal decimals; NaN gives a blank."""
    spent = [float(amount) for amount in amounts]
    paid = [amount for amount in spent if math.isfinite(amount) and amount > 0]
    decimals = 4
    if paid:
        needed = max(1 - math.floor(math.log10(max(paid))), -math.floor(math.log10(min(paid))))
        decimals = min(6, max(2, needed))
    cells = []
    for amount in spent:
        if 0 < amount < 10.0**-decimals or amount >= 1e6:
            cells.append(at_most(amount, 2))
        elif math.isnan(amount):
            cells.append("")
        else:
            smallest = Decimal(1).scaleb(-decimals)
            cells.append(f"{_decimal(amount).quantize(smallest, ROUND_CEILING):f}")
    return tuple(cells)


def percent(share: float) -> str:
    """Format an upper limit in tenths of a percent, without the percent sign: ``"55.4"``."""
    tenths = (100 * _decimal(share)).quantize(Decimal("0.1"), ROUND_CEILING)
    return _text(min(tenths, Decimal(100)))


def chance(delta: float) -> str:
    """Format an upper limit of a failure probability: ``"1 in 100,000"``."""
    if not 1e-9 <= delta < 0.5:
        return at_most(delta, DELTA_DIGITS)
    whole = round(1 / delta)
    return f"1 in {whole if 1 / whole >= delta else whole - 1:,}"


CERTAIN = 1_000_000
"""Larger odds are shown as more than this number."""


def odds(prior: float, epsilon: float = 0.0) -> str:
    """Format the most extreme posterior odds, for example ``"73.2:26.8"``.

    They are the prior odds times e^epsilon, rounded away from the prior. A negative epsilon gives
    the lower limit. The two sides add up to one hundred if this shows both; otherwise one side is
    one: ``"22,100:1"``.
    """
    if math.isnan(epsilon):
        return "unknown"
    rounding = ROUND_CEILING if epsilon > 0 else ROUND_FLOOR
    with localcontext(Context(prec=50)):
        # Above 100 all odds exceed `CERTAIN`, and infinity has no quotient.
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
    """The shortest decimal that reads back as the same float."""
    return Decimal(repr(float(amount)))


def _text(amount: Decimal) -> str:
    """Text of a float with these digits, as in Python: ``1``, ``0.125``, ``1e-05``."""
    return repr(float(amount)).removesuffix(".0")
