"""Rows of one unit may be alike in any way, which standard errors must count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from learners_contract import BOUNDS, GROUPS, fit, study
from scipy.stats import binom

import privcausal as pc
from privcausal.inference.effects import AverageEstimate, with_design_effect
from privcausal.request.formula import ATE_TERM
from privcausal.testing import zero_noise

ROWS = 4


def repeated(data: pd.DataFrame) -> pd.DataFrame:
    """Every row `ROWS` times, as one unit's."""
    again = data.loc[np.repeat(data.index, ROWS)].reset_index(drop=True)
    return again.assign(pid=np.arange(len(again)) // ROWS)


@pytest.mark.parametrize("learner", ["difference", "private", "r"])
def test_a_unit_of_equal_rows_tells_as_much_as_one_row(learner: str) -> None:
    """Without noise, sampling errors of n units of equal rows are those of n rows."""
    options: dict[str, Any] = {"groups": GROUPS, "propensity": None}
    if learner == "difference":
        del options["propensity"]
    with zero_noise():
        once = fit(learner, "linear", study(600), **options).estimate.averages
        many = fit(
            learner, "linear", repeated(study(600)), unit="pid", max_rows=ROWS, **options
        ).estimate.averages
    assert len(once.estimate) > len(GROUPS)
    # priors of the nuisances weigh a little less against four times the rows
    np.testing.assert_allclose(np.diag(many.sampling), np.diag(once.sampling), rtol=0.1)
    np.testing.assert_allclose(many.estimate, once.estimate, atol=0.05)


def test_cells_of_units_of_equal_rows() -> None:
    learner = pc.learners.ADUM(cells=3, shrink=False)
    with zero_noise():
        once, many = (
            pc.privcate("Y ~ T | X1", data, learner=learner, eps=2.0, bounds=BOUNDS, **more)
            for data, more in (
                (study(600), {}),
                (repeated(study(600)), {"unit": "pid", "max_rows": ROWS}),
            )
        )
    np.testing.assert_allclose(many.estimate.effect.spread, once.estimate.effect.spread, rtol=0.02)
    assert many.bse.iloc[0] == pytest.approx(once.bse.iloc[0], rel=0.02)


def test_no_dependence_within_units_has_a_larger_variance() -> None:
    """k sum x x' - (sum x)(sum x)' has no negative direction, whatever the unit's rows are."""
    rng = np.random.default_rng(5)
    for _ in range(200):
        k, width = int(rng.integers(1, 7)), int(rng.integers(1, 5))
        rows = rng.standard_normal((k, width)) * rng.choice([1e-3, 1.0, 1e3], (k, 1))
        found = AverageEstimate(
            (ATE_TERM,), (), np.zeros(width), rows.T @ rows, np.zeros((width, width)),
            np.zeros(width), np.zeros(width), 1.0,
        )  # fmt: skip
        total = rows.sum(axis=0)
        gap = with_design_effect(found, k).sampling - np.outer(total, total)
        assert np.linalg.eigvalsh(gap)[0] >= -1e-9 * np.trace(rows.T @ rows)


@pytest.mark.slow
def test_intervals_cover_where_a_units_rows_are_equal() -> None:
    """Below the least count of 80 fits at 95 % once in a million; as independent rows, 65-73 %."""
    rng, hits, fits = np.random.default_rng(11), 0, 80
    for _ in range(fits):
        t = rng.integers(0, 2, 300)
        y = np.clip(0.3 + 0.2 * t + 0.2 * rng.standard_normal(300), -2, 3)
        data = repeated(pd.DataFrame({"Y": y, "T": t}))
        row = pc.private(
            "Y ~ T", data, eps=50.0, bounds=BOUNDS, unit="pid", max_rows=ROWS
        ).ate.iloc[0]
        hits += row["conf_low"] <= 0.2 <= row["conf_high"]
    assert hits >= binom.ppf(1e-6, fits, 0.95)
