"""Every epsilon, delta, chance and odds that is printed is true of what was spent."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import view_of
from printed_prices import AWKWARD, Budget, budgets, check_numbers, check_text, exact, facts

import privcausal as pc
from privcausal import prices
from privcausal.accounting import BudgetExhaustedError, Charge, Cost
from privcausal.report.document import render_report
from privcausal.results.guarantee import ledger_line, ledger_summary

RNG = np.random.default_rng(3)
TABLE = pd.DataFrame(
    {"Y": RNG.integers(0, 2, 20_000) * 1.0, "T": RNG.integers(0, 2, 20_000) * 1.0,
     "G": ["a", "b"] * 10_000}
)  # fmt: skip
BOUNDS: dict[str, Any] = {"Y": (0, 1), "G": ["a", "b"]}


@cache
def fitted(asked: Budget) -> Any:
    """A cheap fit at this budget: with Gaussian noise, or in pure epsilon."""
    if asked.delta:
        return pc.private("Y ~ T", TABLE, eps=asked.epsilon, delta=asked.delta, bounds=BOUNDS)
    return pc.privcate("Y ~ T | C(G)", TABLE, learner="adum", eps=asked.epsilon, bounds=BOUNDS)


def test_numbers_stay_true() -> None:
    check_numbers()


def test_numbers_as_they_look() -> None:
    shown = [prices.at_most(x) for x in (1, 1.25, 0.125, 0.004, 1e-5, 1 / 3, 1e4, 0.0, np.inf)]
    assert shown == ["1", "1.25", "0.125", "0.004", "1e-05", "0.3334", "10000", "0", "inf"]
    assert prices.at_least(1 / 3) == "0.3333"
    assert prices.pair(1, 1 / 5735) == "(1, 0.000175)"
    assert prices.chance(1e-5) == "1 in 100,000"
    assert prices.chance(1 / 5735) == "1 in 5,735"
    assert [prices.chance(x) for x in (1e-12, 0.7)] == ["1e-12", "0.7"]
    assert [prices.percent(x) for x in (0.5531, 0.5, 0.99999, 1.0)] == ["55.4", "50", "100", "100"]


def test_columns_are_even_and_nothing_looks_free() -> None:
    assert prices.column([0.0, 0.00261, 0.0048]) == ("0.0000", "0.0027", "0.0048")
    assert prices.column([0.5, 1e-9]) == ("0.500000", "1e-09")
    assert prices.column([0.0, np.nan]) == ("0.0000", "")
    assert prices.column([2.0, np.inf]) == ("2.00", "inf")
    assert prices.column([1234567.0]) == ("1300000",)


def test_odds() -> None:
    assert prices.odds(0.1) == "10:90"
    assert prices.odds(0.5, 0.5) == "62.3:37.7"
    assert prices.odds(0.5, -0.5) == "37.7:62.3"
    assert prices.odds(0.5, 10) == "22,100:1"
    assert prices.odds(0.01, -1) == "1:270"
    assert prices.odds(0.5, 800.0) == prices.odds(0.5, np.inf) == "more than 1,000,000:1"
    assert prices.odds(0.5, -np.inf) == "less than 1:1,000,000"
    assert prices.odds(0.5, np.nan) == "unknown"


SOME = (*(Budget(*one) for one in AWKWARD), *list(budgets())[len(AWKWARD) :: 165])
"""Budgets of whole fits."""


@pytest.mark.parametrize("asked", SOME, ids=lambda b: f"{b.epsilon:.3g}-{b.delta:.2g}")
def test_outputs_of_a_fit_stay_true(asked: Budget) -> None:
    fit = fitted(asked)
    least, right = exact(fit.guarantee)
    assert least.epsilon <= asked.epsilon
    assert least.delta == asked.delta
    price = "pair" if asked.delta else "epsilon"
    outputs = {
        "repr": repr(fit), "short": fit.guarantee.short, "statement": fit.guarantee.statement,
        "summary": str(fit.summary()), "full": str(fit.summary(full=True)),
        "latex": fit.summary().as_latex(), "html": fit.summary().as_html(),
        "markdown": fit.summary().as_markdown(),
        "full html": fit.summary(full=True).as_html(),
        "full markdown": fit.summary(full=True).as_markdown(),
        "headline": " ".join(view_of(fit).headline), "methods": " ".join(view_of(fit).methods),
    }  # fmt: skip
    for name, text in outputs.items():
        said = check_text(text, least, asked, right)
        assert name == "methods" or price in said, name
        if name in ("full", "full html", "full markdown"):
            assert ("guess" if asked.delta else "odds") in said, name
    spent = re.search(r"used: rho = ([\d.e-]+) of ([\d.e-]+) \(", fit.guarantee.statement)
    if asked.delta:
        assert spent
        assert fit.guarantee.rho <= float(spent[1]) <= float(spent[2])
        assert fit.plan.rho_cap / 1e12 <= float(spent[2])
    frame = fit.glance()
    assert (frame["epsilon"][0], frame["delta"][0]) == least


@pytest.mark.parametrize("asked", SOME[:12:3], ids=lambda b: f"{b.epsilon:.3g}-{b.delta:.2g}")
@pytest.mark.parametrize("audience", ["technical", "public"])
def test_reports_stay_true(asked: Budget, audience: Any) -> None:
    fit = fitted(asked)
    least, right = exact(fit.guarantee)
    page = render_report(view_of(fit), audience)
    said = check_text(page, least, asked, right)
    assert said >= ({"pair", "epsilon", "delta", "chance", "guess"} if asked.delta else {"epsilon"})
    power = view_of(fit).attack
    if power is not None:
        shown = re.findall(r">(\d+)%</th><td[^>]*>([\d.]+)%</td>", page)
        assert len(shown) == (5 if audience == "technical" else 0)
        for alarms, most in shown:
            assert float(most) >= 100 * power["power"][int(alarms)] - 1e-12


@pytest.mark.parametrize("start", range(0, 12, 4))
def test_comparisons_stay_true(start: int) -> None:
    asked = SOME[start : start + 4]
    fits = [fitted(one) for one in asked]
    table = pc.compare(*fits)
    rows = facts(table.as_markdown())
    for column, (fit, one) in enumerate(zip(fits, asked, strict=True)):
        least, _ = exact(fit.guarantee)
        epsilon, delta = (float(rows[name][column]) for name in ("ε", "δ"))
        assert least.epsilon <= epsilon <= 1.001 * one.epsilon
        assert least.delta <= delta <= 1.01 * one.delta
        assert fit.__maketables_stat__("epsilon") == rows["ε"][column]
    first, second = fitted(SOME[1]), fitted(SOME[2])
    text = pc.compare(first, second).as_markdown()
    together = re.search(r"are \(([\d.e-]+), ([\d.e-]+)\)-DP together", " ".join(text.split()))
    assert together
    costs = [release.charge.cost for fit in (first, second) for release in fit.estimate.releases]
    total = pc.accounting.total_epsilon(pc.accounting.Events.of(costs), 1e-5)
    assert total <= float(together[1]) <= 1.001 * total


@pytest.mark.parametrize("asked", SOME[::3], ids=lambda b: f"{b.epsilon:.3g}-{b.delta:.2g}")
def test_plans_stay_true(asked: Budget) -> None:
    options: dict[str, Any] = {"learner": "adum"} if not asked.delta else {"delta": asked.delta}
    formula = "Y ~ T" if asked.delta else "Y ~ T | C(G)"
    plan = pc.plan(formula, n=20_000, eps=asked.epsilon, bounds=BOUNDS, **options)
    assert check_text(str(plan), asked, asked) >= ({"delta"} if asked.delta else set())
    (line,) = re.findall(r"^20,000 +([\d.e-]+) ", str(plan), re.M)
    assert asked.epsilon <= float(line) <= 1.001 * asked.epsilon
    spent = plan.planner.plan(asked.epsilon, 20_000)
    least = Budget(spent.epsilon / 1e12, 0.0) if spent.pure else asked
    least = Budget(least.epsilon * (1 - 1e-9), least.delta)  # a plan spends a little less
    assert "epsilon" in check_text(str(plan.checklist()), least, asked)


@pytest.mark.parametrize("k", range(10))
def test_ledgers_stay_true(k: int, tmp_path: Path) -> None:
    cap, first, second = (b for b in list(budgets())[20 + 3 * k : 23 + 3 * k])
    cap = Budget(cap.epsilon, cap.delta or 1e-7)
    ledger = pc.Ledger(tmp_path / "l.db", "study", eps=cap.epsilon, delta=cap.delta)
    share = min(1.0, cap.epsilon / (first.epsilon + 1e-9)) * 0.617
    amount = int(share * first.epsilon * 1e12)
    ledger.charge("a", [charge(Cost(epsilon=amount))])
    spent, left = ledger.spent, ledger.remaining
    text = repr(ledger)
    told = re.search(r"eps (\S+) of (\S+) spent at delta=(\S+) in 1 fit; .* up to (\S+)>", text)
    assert told
    assert spent.epsilon <= float(told[1]) <= float(told[2])
    assert cap.epsilon <= float(told[2])
    assert cap.delta <= float(told[3])
    assert 0 <= float(told[4]) <= max(left.epsilon, left.pure_epsilon)
    line = re.search(r": epsilon (\S+) of (\S+) remaining\b", str(ledger_line(ledger)))
    assert line
    assert float(line[1]) <= left.epsilon
    assert cap.epsilon <= float(line[2])
    whole = " ".join(str(ledger_summary(ledger)).split())
    check_text(whole[whole.index("Spent") :], Budget(spent.epsilon, cap.delta), cap)
    for name, most in (("Gaussian", left.epsilon), ("pure", left.pure_epsilon)):
        shown = re.search(rf"Remaining \({name}\): eps (\S+)", whole)
        assert shown
        assert float(shown[1]) <= most
    with pytest.raises(BudgetExhaustedError) as refused:
        ledger.charge(
            "b", [charge(Cost(epsilon=int(second.epsilon * 1e12) + int(cap.epsilon * 1e12)))]
        )
    error = refused.value
    asked = re.search(r"Requested  eps (\S+)    Remaining  eps (\S+) ", str(error))
    assert asked
    assert float(asked[1]) >= error.requested
    assert float(asked[2]) <= error.payable


def charge(cost: Cost) -> Charge:
    return Charge("effect", "sums", "discrete Laplace", "substitute", 1.0, 1.0, cost)
