"""The default summary fits on a card: 22 lines for an average, 14 and its rows for a regression."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fit_helpers import private, regress, view_of

import privcausal as pc
from privcausal.report.summary import summarize

STUDY = pc.datasets.clinic(6000, 4)
BOUNDS: dict[str, Any] = dict(STUDY.bounds)
TRIAL = "recovery ~ programme"
AVERAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "ATE": (STUDY.formula, {}),
    "ATT": (STUDY.formula, {"estimand": "ATT"}),
    "ATO": (STUDY.formula, {"estimand": "ATO"}),
    "difference in means": (TRIAL, {}),
    "known propensity": (f"{TRIAL} | age", {"propensity": 0.5}),
    "linear": (STUDY.formula, {"base": "linear"}),
    "add or remove": (f"{TRIAL} | age + severity", {"neighbors": "add_remove"}),
    "three estimands": (f"{TRIAL} | age", {"estimand": ["ATE", "ATT", "ATO"]}),
    "disjoint": (f"{TRIAL} | age", {"control": pc.Control(split="disjoint")}),
}
REGRESSIONS = ("recovery ~ age", "recovery ~ programme + age + severity + C(ward)")


def card(fit: Any) -> list[str]:
    """The lines that a fit with real noise prints if nothing is serious."""
    plain = f"{fit.plan.request.budget.epsilon:g}, 1e-05)-DP, proven, one row added or removed."
    view = replace(view_of(fit), kind="proven", serious=0, promise=(f"({plain}",))
    lines = str(summarize(view)).splitlines()
    assert max(map(len, lines)) <= 79
    assert any(line.startswith("Privacy: ") for line in lines)
    assert lines[-1] == "summary(full=True) has the meaning, the releases, and the assumptions."
    return lines


@pytest.mark.parametrize("kind", AVERAGES)
def test_an_average_has_22_lines(kind: str) -> None:
    formula, options = AVERAGES[kind]
    fit = private(formula, STUDY.frame, eps=4, bounds=BOUNDS, **options, seed=3)
    assert len(card(replace_ledger(fit))) <= 22


def replace_ledger(fit: Any) -> Any:
    """The same fit as one that was charged to a ledger, whose line is then printed too."""
    return replace(
        fit, ledger_line="Ledger 'clinic': epsilon 16.4 of 20 remaining. More remains than 16, "
        "because fits with Gaussian noise cost less together than the sum of their epsilons."
    )  # fmt: skip


@pytest.mark.parametrize("formula", REGRESSIONS)
def test_a_regression_has_14_lines_and_its_rows(formula: str) -> None:
    fit = regress(formula, STUDY.frame, eps=4, bounds=BOUNDS, seed=3)
    assert len(card(fit)) <= 14 + len(fit.params)
