"""On a large and easy study every learner finds the truth, within its own standard errors."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from learners_contract import GROUPS, SPLITS, TRUE_ATE, fit, study, tau

import privcausal as pc

SIZE = 20_000
LEARNERS = ("r", "dr", "s", "t", "x")
TRUE_SLOPES = [0.2, 0.2, 0.0]  # X1, G = b, G = c
TRUE_GROUPS = [0.5, 0.7, 0.5, TRUE_ATE + 0.1]  # G = a, b, c, X1 >= 0


@lru_cache
def large_fit(learner: str, base: str, split: str = "full") -> Any:
    return fit(learner, base, study(SIZE), control=pc.Control(split=split), groups=GROUPS, seed=3)


@pytest.mark.parametrize(
    ("base", "split"), [("gam", "full"), *(("linear", split) for split in SPLITS)]
)
@pytest.mark.parametrize("learner", [*LEARNERS, "private"])
def test_average(learner: str, base: str, split: str) -> None:
    fitted = large_fit(learner, base, split)
    assert abs(fitted.params["ATE"] - TRUE_ATE) < 4 * fitted.bse["ATE"]
    assert fitted.bse["ATE"] < (0.0055 if split == "full" else 0.0075)


@pytest.mark.parametrize("base", ["gam", "linear"])
@pytest.mark.parametrize("learner", [*LEARNERS, "private"])
def test_groups(learner: str, base: str) -> None:
    gate = large_fit(learner, base).gate
    assert (np.abs(gate["estimate"] - TRUE_GROUPS) < 4 * gate["std_error"]).all()
    assert (gate["std_error"] < 0.02).all()


@pytest.mark.parametrize("base", ["gam", "linear"])
@pytest.mark.parametrize("learner", LEARNERS)
class TestTrueEffect:
    def test_slopes(self, learner: str, base: str) -> None:
        slopes = large_fit(learner, base).blp
        assert (np.abs(slopes["estimate"] - TRUE_SLOPES) < 4 * slopes["std_error"]).all()
        assert (slopes["std_error"] < 0.037).all()

    def test_effect(self, learner: str, base: str) -> None:
        points = study(200, seed=9)
        found = large_fit(learner, base).predict(points)
        error = found["estimate"] - tau(points["X1"], points["G"])
        assert np.sqrt(np.mean(error**2)) < 0.04
        if learner != "x":  # whose band leaves out the error of the imputed means
            assert (error.abs() < 4 * found["std_error"]).all()


@pytest.mark.parametrize("learner", ["r", "dr", "x"])
def test_the_average_has_what_few_rows_cannot_use_for_tau(learner: Any) -> None:
    """And what a known propensity saves; from n eps = 4,000 on tau(x) has its whole share."""
    shares: dict[Any, Any] = {}
    for n, known in ((500, {}), (2000, {}), (4000, {}), (50_000, {}), (4000, {"propensity": 0.5})):
        bounds = {"Y": (0, 10), "T": [0, 1], "X": (0, 1)}
        plan = pc.plan("Y ~ T | X", bounds=bounds, learner=learner, n=n, eps=1, **known)
        rho = plan.budget.groupby("stage")["rho"].sum()
        shares[n, bool(known)] = rho / rho.sum()
    average = [shares[n, False]["average"] for n in (500, 2000, 4000, 50_000)]
    assert average[0] > average[1] > average[2] == pytest.approx(average[3])
    assert shares[4000, True]["average"] > average[2]
    assert shares[4000, True]["effect"] == pytest.approx(shares[4000, False]["effect"])
