"""The study of Betlei et al. (2021): rows of other code, its lines, and a file like CRITEO's."""

from __future__ import annotations

import math
from pathlib import Path

import adum_lines
import adum_results
import adum_study
import numpy as np
import pandas as pd
import pytest
from adum_methods import LEARNERS, MEANS, RIGHT, code, criteo_like


def test_a_row_of_other_code_is_not_used(tmp_path: Path) -> None:
    rows = [
        {"method": RIGHT, "epsilon": 1.0, "groups": groups, "pehe": 0.1, "runs": 1, "code": made}
        for groups, made in ((2, code(RIGHT)), (5, "deadbeef"))
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "figure2.csv", index=False)
    found, others = adum_results.current(tmp_path / "figure2.csv")
    assert (found["groups"].tolist(), others) == ([2], 1)
    assert "1 lines of figure2.csv are left out" in adum_results.written(tmp_path)
    asked = []

    def run(point: dict, method: str, quick: bool) -> list[dict]:
        asked.append(point["groups"])
        return [point | {"pehe": 0.2, "runs": 1}]

    wanted = [{"epsilon": 1.0, "groups": groups} for groups in (2, 5)]
    adum_study.fill(tmp_path / "figure2.csv", wanted, run, (RIGHT,), True)
    adum_study.fill(tmp_path / "figure2.csv", wanted, run, (RIGHT,), True)
    assert asked == [5]  # the other one's is there, and what was made again is there then
    assert adum_results.current(tmp_path / "figure2.csv")[1] == 1


def test_a_row_compared_with_another_bound_is_not_used(tmp_path: Path) -> None:
    """Corollary 1's bound is ours too, and no part of a method's digest."""
    today = adum_results.corollary(10, 1.0)
    rows = [
        {"method": RIGHT, "epsilon": 1.0, "groups": 10, "bound": bound, "code": code(RIGHT)}
        for bound in (float(f"{today:.5g}"), 1.01 * today)
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "bound.csv", index=False)
    found, others = adum_results.current(tmp_path / "bound.csv")
    assert (found["bound"].tolist(), others) == ([rows[0]["bound"]], 1)


@pytest.mark.slow
def test_a_digest_tells_methods_apart() -> None:
    marks = [code(method) for method in (RIGHT, MEANS, "ADUM, printed", "default", *LEARNERS)]
    assert len(set(marks)) == len(marks)


def test_bias_and_variance_add_up_as_proposition_1_says() -> None:
    """PEHE = bias^2 + variance of the difference, at most twice the sums over arms."""
    (found,) = adum_study.proposition1({"groups": 6}, MEANS, True)
    both = found["bias2_control"] + found["bias2_treated"]
    spread = found["variance_control"] + found["variance_treated"]
    assert found["pehe"] <= 2 * (both + spread)
    width = 2 / 6  # the treated arm's bias is that of sin x within a cell, about width^2 / 12
    slopes = (np.cos(np.linspace(-1, 1, 1000)) ** 2).mean()
    assert abs(found["bias2_treated"] - slopes * width**2 / 12) < 5e-4
    assert abs(spread / (2 * 6 / 10_000) - 1) < 0.3


def test_lines_without_rows_are_missing(tmp_path: Path) -> None:
    """Only the rate of the bound and CRITEO's line need no rows."""
    rate, criteo = adum_lines.stored(tmp_path)
    assert (rate.item, rate.verdict) == ("Corollary 1", "differs")
    assert math.isclose(rate.measured, 0.5, abs_tol=0.02)
    assert (criteo.item, criteo.verdict) == ("Figure 3", "missing")


def test_figure_3_runs_on_a_file_like_criteos(tmp_path: Path) -> None:
    rows = criteo_like(3000).assign(conversion=0, exposure=0)
    rows[[f"f{j}" for j in range(12)]] *= 20
    rows.to_csv(tmp_path / "criteo.csv", index=False)
    point = {"data": "criteo", "split": 0, "epsilon": 5.0}
    method = "default (adum), first feature"
    (found,) = adum_study.figure3(point, method, True, tmp_path / "criteo.csv")
    assert np.isfinite(found["auuc"])
