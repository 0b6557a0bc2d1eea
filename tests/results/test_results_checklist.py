"""The checklist of a reviewer comes from the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from results_fits import BOUNDS, FORMULA

import privcausal as pc
from privcausal.results.plan import EVIDENCE

ROOT = Path(__file__).parents[2]


def planned(**call: Any) -> Any:
    whole = BOUNDS | {"smoker": [False, True]}
    return pc.plan(FORMULA, bounds=whole, base="linear", **{"n": 2000, "eps": 1.5} | call)


@pytest.mark.slow
def test_the_checklist_answers_from_the_plan() -> None:
    found = str(planned(neighbors="add_remove", unit="pid", max_rows=3).checklist())
    flat = " ".join(found.split())
    assert "epsilon 1.5, delta 1e-05" in flat
    assert "One pid (at most 3 rows)" in flat
    assert "Budget of a fit: " in flat
    assert "Public: the declared domains" in flat
    assert "Public: the number of rows" in " ".join(str(planned().checklist()).split())
    least, most = planned().table[["half-width from", "half-width to"]].iloc[0]
    assert f"+/- {least:.3g} to {most:.3g} (in about 80% of fits)" in " ".join(
        str(planned().checklist()).split()
    )
    pure = pc.plan("cost ~ mailed | ward", n=2000, eps=2, bounds=BOUNDS, learner="adum")
    assert "Pure DP: epsilon 2." in str(pure.checklist())
    for head in EVIDENCE:
        assert f"\n{head}\n" in found


@pytest.mark.slow
def test_a_checklist_of_several_fits_says_what_is_the_same_once() -> None:
    plan = planned(eps=[1, 2])
    flat = " ".join(str(plan.checklist()).split())
    assert "epsilon 1, delta 1e-05." in flat
    assert "epsilon 2, delta 1e-05." in flat
    for eps, width in zip((1, 2), plan.table["half-width to"], strict=True):
        assert f"at eps = {eps}, the expected 95% interval of the average effect" in flat
        assert f" to {width:.3g} (in about 80% of fits)" in flat
    assert flat.count("Public: the number of rows") == flat.count("The noise is the same") == 1


def test_what_the_checklist_points_to_exists() -> None:
    for places in EVIDENCE.values():
        for place in places.split(", "):
            assert (ROOT / place).exists(), place


def test_a_checklist_of_several_prices_rounds_each_up() -> None:
    plan = pc.plan("Y ~ T", n=1000, eps=[1 / 3, 1.2345678], bounds={"Y": (0, 1)})
    text = " ".join(str(plan.checklist()).split())
    assert "at eps = 0.3334, the" in text
    assert "at eps = 1.235, the" in text
