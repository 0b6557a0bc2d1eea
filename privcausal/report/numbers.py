"""Numbers as text: at most ten characters, ASCII, the same in every format."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, SupportsFloat

WIDEST = 9
"""Characters a fixed-point number may take before the scientific form is used."""


def number(value: SupportsFloat, digits: int = 4) -> str:
    """One number to `digits` significant digits, never longer than ten characters."""
    x = float(value)
    if not math.isfinite(x):
        return "nan" if math.isnan(x) else ("inf" if x > 0 else "-inf")
    if x == 0:
        return "0"
    exponent = math.floor(math.log10(abs(x)))
    if not -4 <= exponent < 7:
        return f"{x:.{min(digits - 1, 2)}e}"
    return fixed(x, max(0, digits - 1 - exponent))


def fixed(value: float, decimals: int) -> str:
    """Fixed-point text without a negative zero."""
    text = f"{value:.{decimals}f}"
    return text.lstrip("-") if text.strip("-0.") == "" else text


def alike(values: Sequence[float], spread: float, digits: int = 3) -> tuple[str, ...]:
    """Numbers on one scale: as many decimals as show `spread` to `digits` digits.

    An estimate, its standard error and its limits read best with the same decimals. Where that
    would be too long (a tiny spread around a huge number), each is written on its own.
    """
    if not (math.isfinite(spread) and spread > 0):
        return tuple(number(v) for v in values)
    decimals = max(0, digits - 1 - math.floor(math.log10(spread)))
    # four decimals are read at a glance; more only if two digits need them
    decimals = max(min(decimals, 4), decimals + 2 - digits)
    largest = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    # sizes are compared first: 1e300 in fixed point has three hundred digits
    if decimals <= WIDEST - 3 and largest < 10**WIDEST:
        texts = tuple(fixed(v, decimals) if math.isfinite(v) else number(v) for v in values)
        if all(len(text) <= WIDEST for text in texts):
            return texts
    ratio = math.log10(largest) - math.log10(spread) if largest > 0 else 0.0
    return tuple(number(v, min(4, max(2, 2 + math.floor(ratio)))) for v in values)


def interval(row: Any, digits: int = 3) -> tuple[str, ...]:
    """Estimate and both limits of a row of estimates, on the scale of its standard error."""
    values = [float(row[name]) for name in ("estimate", "conf_low", "conf_high")]
    return alike(values, float(row["std_error"]), digits)


def noise(value: float) -> str:
    """A noise level; blank where there was none to tell of."""
    return "" if math.isnan(value) else number(value, 3)


def p_value(value: float) -> str:
    """Three decimals; below 0.001 the exact value is of no use."""
    if math.isnan(value):
        return "--"
    return "<0.001" if value < 0.001 else fixed(value, 3)


def percent(share: float) -> str:
    """A share of one; what is neither nothing nor all is never shown as such."""
    if not math.isfinite(share):
        return "nan"
    if 0 < share < 0.005:
        return "<1%"
    if 0.995 < share < 1:
        return ">99%"
    return f"{100 * share:.0f}%" if abs(share) < 1e6 else number(share, 3)


def count(value: float) -> str:
    """A (noisy) count, to the nearest whole number."""
    return fixed(value, 0) if abs(value) < 10**WIDEST else number(value)


def level(alpha: float) -> str:
    """The level of an interval, ``"95%"``."""
    return f"{100 * (1 - alpha):.4g}%"


def limits(alpha: float) -> tuple[str, str]:
    """Heads of the two interval columns, ``("[0.025", "0.975]")``."""
    return f"[{alpha / 2:.4g}", f"{1 - alpha / 2:.4g}]"


def point(value: float) -> str:
    """A place on an axis: no digits that say nothing."""
    text = number(value)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text
