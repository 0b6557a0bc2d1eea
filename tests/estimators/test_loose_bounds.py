"""Declared bounds that are far too wide cost little: of covariates, and of the outcome."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import privcate

import privcausal as pc
from privcausal.testing import seeded_noise

TRUE_SLOPE = 1.0
SEEDS = range(4)


def study(seed: int) -> pd.DataFrame:
    """A confounded study whose effect is 1 + X1, and whose covariates are within (-1, 1)."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (8000, 3))
    treated = rng.uniform(size=len(x)) < 1 / (1 + np.exp(-x[:, 1]))
    y = x[:, 1] + treated * (1 + TRUE_SLOPE * x[:, 0]) + 0.5 * rng.standard_normal(len(x))
    return pd.DataFrame(x, columns=["X1", "X2", "X3"]).assign(Y=y.clip(-4, 5), T=treated * 1)


def fit(seed: int, learner: str, covariates: float = 1.0, outcome: float = 1.0, **more: Any) -> Any:
    """A fit whose declared bounds are this many times as wide as they need be."""
    bounds = dict.fromkeys(("X1", "X2", "X3"), (-covariates, covariates))
    bounds["Y"] = (0.5 - 4.5 * outcome, 0.5 + 4.5 * outcome)
    options = {"eps": 1, "bounds": bounds, "learner": learner, "seed": seed}
    return privcate("Y ~ T | X1 + X2 + X3", study(seed), **options, **more)


@cache
def drawn(learner: str, covariates: float = 1.0, outcome: float = 1.0) -> list[Any]:
    """A fit of each seed, of which those under tight bounds serve several tests."""
    return [fit(seed, learner, covariates, outcome) for seed in SEEDS]


def told(fits: list[Any]) -> tuple[float, float]:
    """Squared error of the effect at new points, and width of the average's interval, in median."""
    at = pd.DataFrame(np.random.default_rng(9).uniform(-1, 1, (500, 3)), columns=["X1", "X2", "X3"])
    truth = 1 + TRUE_SLOPE * at["X1"]
    errors = [np.mean((one.predict(at)["estimate"] - truth) ** 2) for one in fits]
    widths = [np.ptp(one.conf_int().to_numpy()[0]) for one in fits]
    return float(np.median(errors)), float(np.mean(widths))


@pytest.mark.slow
@pytest.mark.sample(7)
@pytest.mark.parametrize("learner", ["r", "dr", "s", "t", "x", "dpcate"])
def test_covariate_bounds_twenty_times_too_wide(learner: str) -> None:
    tight, loose = told(drawn(learner)), told(drawn(learner, 20.0))
    assert loose[0] < 2.5 * tight[0]
    assert loose[1] < 1.25 * tight[1]


@pytest.mark.slow
@pytest.mark.sample(5)
@pytest.mark.parametrize("learner", ["r", "dr", "s", "t", "x"])
def test_outcome_bounds_twenty_times_too_wide(learner: str) -> None:
    tight, loose = told(drawn(learner)), told(drawn(learner, outcome=20.0))
    assert loose[0] < max(4 * tight[0], 0.05)
    # the first histogram has 32 cells, of which loose bounds leave two for the outcome
    assert loose[1] < 1.9 * tight[1]


@pytest.mark.slow
def test_slopes_are_per_unit_of_the_column_whatever_its_bounds() -> None:
    slopes = [one.blp.loc["X1", "estimate"] for one in drawn("r", 20.0)]
    assert np.mean(slopes) == pytest.approx(TRUE_SLOPE, abs=0.2)


@pytest.mark.slow
def test_a_loaded_fit_has_the_narrowed_ranges(reloaded: Any) -> None:
    found = fit(0, "x", 20.0)
    at = pd.DataFrame({"X1": [-20.0, -3.0, 0.5, 3.0, 20.0], "X2": 0.0, "X3": 0.0})
    values = found.predict(at)["estimate"].to_numpy()
    # held at the ends of where values are
    assert values[0] == values[1]
    assert values[3] == values[4]
    again = reloaded(found)
    np.testing.assert_array_equal(again.predict(at)["estimate"].to_numpy(), values)


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["r", "s", "t", "x"])
def test_columns_of_groups_keep_their_bounds(learner: str) -> None:
    found = fit(0, learner, 20.0, groups=["X1 >= 10"])
    schema = found.estimate.schema
    assert schema["X1"].hi == 20.0
    assert schema["X2"].hi < 10.0


@pytest.mark.parametrize("known", [True, False])
def test_arms_have_the_stages_of_the_learners_by_residuals(known: bool) -> None:
    """A known propensity needs no moments of the treatment."""
    more = {"propensity": 0.5} if known else {}
    stages = [s.name for s in fit(0, "t", **more).estimate.plan.stages]
    assert stages[:3] == ["nuisance: marginals", "nuisance: ranges", "nuisance: outcome range"]
    assert ("nuisance: treatment" in stages) is not known
    assert "nuisance: arm outcomes" in stages


@pytest.mark.parametrize("call", ["private", "privcate", "PLR", "regress", "trial"])
def test_an_outcome_that_is_never_positive(call: str) -> None:
    """Bounds (-100, 0): losses, or scores below a maximum. The estimate is near the truth, -3."""
    rng = np.random.default_rng(4)
    data = pd.DataFrame({"T": rng.integers(0, 2, 3000), "X": rng.uniform(-1, 1, 3000)})
    data["Y"] = -np.abs(30 + 3 * data["T"] + 5 * data["X"] + rng.normal(0, 5, 3000)).clip(0, 100)
    bounds = {"Y": (-100, 0), "X": (-1, 1)}
    with seeded_noise(4):
        if call == "regress":
            fit = pc.regress("Y ~ T + X", data, bounds=bounds, eps=2)
        elif call == "privcate":
            fit = pc.privcate("Y ~ T | X", data, bounds=bounds, eps=2)
        else:
            options = {"estimand": "PLR"} if call == "PLR" else {}
            treatment, rest = ("X", " | T") if call == "PLR" else ("T", " | X")
            rest = "" if call == "trial" else rest
            fit = pc.private(f"Y ~ {treatment}{rest}", data, bounds=bounds, eps=2, **options)
    at, truth = {"regress": (1, -3), "PLR": (0, -5)}.get(call, (0, -3))
    assert abs(fit.params.iloc[at] - truth) < 5 * fit.bse.iloc[at]
    assert fit.bse.iloc[at] < 2
