"""Random budgets, and whether what is printed of one is true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Context, Decimal, localcontext
from typing import Any, NamedTuple

import numpy as np

from privcausal import prices

AWKWARD = (
    (1.25, 1e-5), (0.125, 1e-5), (0.004, 1e-5), (0.1 + 0.2, 0.1 / 3), (1 / 3, 1 / 5735),
    (1.0, 1.2349e-5), (10.4, 1 / 229444), (0.99995, 9.9995e-6), (12.3450001, 1e-2), (50.0, 0.0),
    (1.00005, 0.0), (float(np.nextafter(2.0, 3.0)), float(np.nextafter(1e-6, 1.0))),
)  # fmt: skip


class Budget(NamedTuple):
    epsilon: float
    delta: float


def budgets(count: int = 1000) -> Iterator[Budget]:
    """Epsilon from 1e-3 to 50 and delta from 1e-12 to 1e-2, or 0; digits from two to all."""
    rng = np.random.default_rng(20)
    yield from (Budget(*one) for one in AWKWARD)
    for k in range(count - len(AWKWARD)):
        epsilon = float(np.exp(rng.uniform(np.log(1e-3), np.log(50))))
        delta = 0.0 if k % 5 == 0 else float(10 ** rng.uniform(-12, -2))
        digits = k % 6 + 2
        if digits < 7:
            epsilon, delta = float(f"{epsilon:.{digits}g}"), float(f"{delta:.{digits}g}")
        yield Budget(epsilon, delta)


def check_numbers(count: int = 1000) -> None:
    """Every formatter errs on the side on which what is said stays true, and by little."""
    for epsilon, delta in budgets(count):
        for amount, digits in ((epsilon, 4), (delta, 3), (1 / epsilon, 4)):
            up, down = prices.at_most(amount, digits), prices.at_least(amount, digits)
            assert float(down) <= amount <= float(up), amount
            assert float(up) - float(down) <= 1.001 * 10.0 ** (1 - digits) * amount
            assert (float(down) > 0) == (amount > 0)
            assert float(prices.as_typed(amount)) == amount
            if float(f"{amount:.{digits}g}") == amount:
                assert up == down == prices.as_typed(amount)
        for amount, text in zip((epsilon, delta), prices.column([epsilon, delta]), strict=True):
            assert amount <= float(text)
        right = 0.5 * (1 + min(1.0, epsilon / 50))
        check_percent(prices.percent(right), right)
        if delta:
            assert delta <= chance(prices.chance(delta)) <= 1.5 * delta
        for prior in (0.01, 0.5, 0.9):
            check_odds(prices.odds(prior, epsilon), prior, epsilon)
            check_odds(prices.odds(prior, -epsilon), prior, -epsilon)


def check_odds(text: str, prior: float, epsilon: float) -> None:
    with localcontext(Context(prec=60)):
        exact = Decimal(prior) / (1 - Decimal(prior)) * Decimal(epsilon).exp()
        if text.startswith(("more", "less")):
            assert exact > 10**6 if epsilon > 0 else exact < Decimal(10) ** -6
            return
        one, other = (Decimal(side) for side in text.replace(",", "").split(":"))
        shown = one / other
        assert exact <= shown if epsilon > 0 else shown <= exact, (text, prior, epsilon)
        assert abs(shown / exact - 1) < Decimal("0.11"), (text, prior, epsilon)


def check_percent(text: str, share: float) -> None:
    assert 0 <= Decimal(text) - 100 * Decimal(repr(share)) < Decimal("0.1"), (text, share)


def chance(text: str) -> float:
    return 1 / float(text[5:].replace(",", "")) if text.startswith("1 in ") else float(text)


NUMBER = r"(\d+(?:\.\d+)?(?:e-\d+)?)"
EPSILON = (
    rf"(?<![\d.]){NUMBER}-DP \(pure\)", rf"(?<![\d.]){NUMBER}-differential privacy",
    rf"epsilon {NUMBER}, pure", rf"ε = {NUMBER}", rf"epsilon: +{NUMBER}", rf"DP: epsilon {NUMBER}",
)  # fmt: skip
DELTA = (
    rf"δ = {NUMBER}(?![\de]| in )",
    rf"delta: +{NUMBER}", rf", delta {NUMBER}", rf"\(eps, {NUMBER}\)-DP",
    rf"up to a slack of {NUMBER}",
)  # fmt: skip
PAIR = rf"\({NUMBER}, {NUMBER}\)-(?:DP|differential privacy)"


def check_text(text: str, least: Budget, most: Budget, right: float | None = None) -> set[str]:
    """Hold each price in `text` against the exact one; what kinds of claims there were."""
    text = re.sub(r"\$(?:([\d.]+) \\times )?10\^\{(-?\d+)\}\$", _power, text)  # LaTeX
    tags = r"<[^>]+>|" if "</" in text else ""
    flat = " ".join(re.sub(rf"{tags}\\_|\$|\\[a-z]+", " ", text).split())
    found = [("pair", one) for one in re.findall(PAIR, flat)]
    said = {kind for kind, _ in found}
    epsilons = [one for _, (one, _) in found]
    deltas = [one for _, (_, one) in found]
    for kind, patterns, into in (("epsilon", EPSILON, epsilons), ("delta", DELTA, deltas)):
        more = [one for pattern in patterns for one in re.findall(pattern, flat)]
        into.extend(more)
        said |= {kind} if more else set()
    for one in epsilons:
        assert least.epsilon <= float(one) <= 1.00101 * most.epsilon, (one, least, flat)
    for one in deltas:
        assert least.delta <= float(one) <= 1.0101 * most.delta, (one, least, flat)
    for one in re.findall(r"1 in [\d,]+\d", flat):
        said.add("chance")
        assert chance(one) >= least.delta, (one, least)
    for one in re.findall(rf"with probability at most {NUMBER}", flat):
        said.add("guess")
        assert right is not None
        check_percent(one, right)
    for one in re.findall(r"move that belief to at most ((?:more than )?[\d.,]+:[\d.,]*\d)", flat):
        said.add("odds")
        check_odds(one, 0.5, most.epsilon)
    return said


def _power(found: re.Match[str]) -> str:
    return f"{found[1] or 1}e{found[2]}"


def facts(markdown: str) -> dict[str, list[str]]:
    """Rows of a pipe table by their first cell."""
    lines = [line.strip("| ").split("|") for line in markdown.splitlines() if "|" in line]
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines}


def exact(guarantee: Any) -> tuple[Budget, float | None]:
    """What was spent, and how often a guess is right at most."""
    right = None
    if guarantee.trade_off is not None:
        right = 0.5 * (1 + guarantee.trade_off.delta(0.0))
    return Budget(guarantee.epsilon, guarantee.delta), right
