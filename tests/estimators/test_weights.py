"""Survey weights of averages: the weighted estimate without noise, the population, the refusals."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from fit_helpers import private
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr
from textbook import textbook

import privcausal as pc
from privcausal import vault
from privcausal.errors import SchemaError
from privcausal.features.design import Rows
from privcausal.inference.cuts import score_edges
from privcausal.inference.population import WEIGHT_HALF_OCTAVES, WeightLaw
from privcausal.testing import seeded_noise, zero_noise

BOUNDS: dict[str, Any] = {"Y": (-8, 8), "X": (-1, 1), "w": (0, 30), "G": ["a", "b"]}
FORMULA = "Y ~ T | X"


def survey(n: int = 4000, seed: int = 0, spread: float = 0.4) -> pd.DataFrame:
    """A stratum G changes treatment, outcome and effect; weights depend on it and on X."""
    rng = np.random.default_rng([seed, n])
    x, b = rng.uniform(-1, 1, n), rng.random(n) < 0.5
    t = rng.random(n) < 1 / (1 + np.exp(-x))
    y = x + b + (1 + 0.8 * b) * t + rng.normal(size=n)
    w = np.exp(spread * rng.normal(size=n) + 0.5 * x) * np.where(b, 3.0, 0.5)
    label = np.where(b, "b", "a")
    return pd.DataFrame({"Y": y.clip(-8, 8), "T": 1 * t, "X": x, "w": w.clip(0, 30), "G": label})


def fit(data: Any, formula: str = FORMULA, **options: Any) -> Any:
    options = {"bounds": BOUNDS, "weights": "w"} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return private(formula, data, **options)


# -- without noise -------------------------------------------------------------------------------


def test_without_covariates_it_is_the_weighted_difference_in_means() -> None:
    data = survey()
    with textbook():
        found = fit(data, "Y ~ T", groups=["G"])
    expected = smf.wls("Y ~ T", data, weights=data["w"]).fit(cov_type="HC0")
    assert found.params.iloc[0] == pytest.approx(expected.params["T"], abs=1e-4)
    assert found.bse.iloc[0] == pytest.approx(expected.bse["T"], rel=0.06)


def test_with_covariates_it_is_near_weighted_least_squares() -> None:
    data = survey(20_000)
    found = fit(data, base="linear", estimand="ATO", exact=True)
    expected = smf.wls("Y ~ T + X", data, weights=data["w"]).fit(cov_type="HC0")
    assert found.params.iloc[0] == pytest.approx(expected.params["T"], abs=0.02)
    assert found.bse.iloc[0] == pytest.approx(expected.bse["T"], rel=0.1)


def test_the_unit_of_weights_does_not_matter() -> None:
    data = survey()
    with zero_noise():
        one = fit(data)
        two = fit(data.assign(w=1000 * data["w"]), bounds=BOUNDS | {"w": (0, 30_000)})
    assert two.params.iloc[0] == pytest.approx(one.params.iloc[0], abs=1e-6)
    assert two.bse.iloc[0] == pytest.approx(one.bse.iloc[0], rel=1e-6)


@pytest.mark.slow
def test_ratios_and_several_arms_have_weighted_means() -> None:
    """Every mass is weighted once."""
    data = survey(seed=5)
    data["high"] = 1 * (data["Y"] > 1)
    data["arm"] = np.where(data["T"] == 1, np.where(data["X"] > 0, "high", "low"), "none")
    bounds = {"w": (0, 30), "high": (0, 1), "arm": ["none", "low", "high"]}

    def mean(rows: Any) -> float:
        return float(np.average(data["high"][rows], weights=data["w"][rows]))

    with textbook():
        ratio = fit(data, "high ~ T", estimand="RR", bounds=bounds)
        arms = fit(data, "high ~ arm", bounds=bounds)
    for t in (0, 1):
        assert ratio.params[f"E[Y({t})]"] == pytest.approx(mean(data["T"] == t), abs=1e-4)
    for arm in bounds["arm"]:
        own = arms.params[f"E[Y({arm})]"]
        assert own == pytest.approx(mean(data["arm"] == arm), abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATO", ["ATE", "ATT", "ATO"]])
def test_equal_weights_are_no_weights(estimand: Any) -> None:
    data = survey().assign(w=2.0)
    with zero_noise():
        own, none = fit(data, estimand=estimand), fit(data, estimand=estimand, weights=None)
    assert own.params.to_numpy() == pytest.approx(none.params.to_numpy(), abs=5e-3)
    assert own.bse.to_numpy() == pytest.approx(none.bse.to_numpy(), rel=0.05)
    assert own.estimate.averages.weighting == pytest.approx(1.0, abs=0.02)


# -- with noise ----------------------------------------------------------------------------------

TRUTH = 1 + 0.8 * 3.0 / 3.5  # of the population; the sample has 1.4
ARMS = {"Y": (-8, 8), "X": (-1, 1), "w": (0, 30), "T": ["none", "low", "high"]}


@pytest.mark.parametrize("estimand", ["ATE", "ATT", ["ATO", "ATE"]])
def test_the_effect_in_the_population(estimand: Any) -> None:
    """A normal error exceeds five standard errors with a chance below 1e-6."""
    data = survey(30_000, 1)
    with seeded_noise(3):
        own, none = fit(data, estimand=estimand, eps=2), fit(data, weights=None, eps=2)
    assert (abs(own.params - TRUTH) < 5 * own.bse + 0.05).all()
    assert abs(none.params.iloc[0] - TRUTH) > 5 * none.bse.iloc[0]


@pytest.mark.parametrize("learner", ["r", pytest.param("dr", marks=pytest.mark.slow), "t"])
def test_effects_as_functions(learner: str) -> None:
    data = survey(20_000, 2)
    with seeded_noise(5), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = pc.privcate(FORMULA, data, learner=learner, eps=8, bounds=BOUNDS, weights="w")
    assert list(found.params.index) == ["ATE"]
    assert abs(found.params["ATE"] - TRUTH) < 5 * found.bse["ATE"]
    assert float(found.predict(pd.DataFrame({"X": [0.0]})).iloc[0, 0]) == pytest.approx(
        TRUTH, abs=0.2
    )


@pytest.mark.slow
def test_groups_ratios_arms_and_clusters() -> None:
    data = survey(20_000, 4)
    data["high"], data["village"] = 1 * (data["Y"] > 1), np.arange(len(data)) // 5
    data["arm"] = np.where(data["T"] == 1, np.where(data["X"] > 0, "high", "low"), "none")
    with seeded_noise(6):
        groups = fit(data, groups=["G"], eps=4)
        ratio = fit(data, "high ~ T | X", estimand="RR", eps=4, bounds=BOUNDS | {"high": (0, 1)})
        arms = fit(data.assign(T=data["arm"]), bounds=ARMS, eps=4)
        robust = pc.Control(cluster="village", max_cluster_rows=5)
        clusters = fit(data, control=robust, eps=4)
    assert abs(groups.gate["estimate"].to_numpy() - [1.0, 1.8]).max() < 0.25
    mean, b = data["X"] - 1, 1.0 * (data["G"] == "b")
    risks = [np.average(ndtr(mean + b + (1 + 0.8 * b) * t), weights=data["w"]) for t in (1, 0)]
    assert ratio.params["RR"] == pytest.approx(risks[0] / risks[1], abs=0.15)
    assert list(arms.params.index)[:2] == ["T[T.low]", "T[T.high]"]
    assert clusters.bse.iloc[0] == pytest.approx(groups.bse.iloc[0], rel=0.3)


@pytest.mark.slow
def test_weights_that_vary_much_are_told() -> None:
    with seeded_noise(2), pytest.warns(pc.PrivcausalWarning, match="their design effect is"):
        found = pc.private(FORMULA, survey(spread=1.0), bounds=BOUNDS, weights="w", eps=4)
    text = str(found.summary(full=True))
    assert "Weights" in text and "Design effect" in text and "rows represent" in text
    assert found.estimate.averages.most_weight <= 30
    with seeded_noise(2), warnings.catch_warnings():
        warnings.simplefilter("error")
        pc.private(FORMULA, survey(spread=0.0).assign(w=1.0), bounds=BOUNDS, weights="w", eps=4)


@pytest.mark.slow
@pytest.mark.parametrize("tiny", [0.0, 1e-9])
def test_weights_that_may_all_be_zero_give_no_estimate(tiny: float) -> None:
    """Sums of noise over an unknown sum of weights are not estimates."""
    data = survey().assign(w=lambda rows: tiny * rows["w"])
    calls = (
        partial(pc.regress, "Y ~ X"), partial(pc.private, "Y ~ T"), partial(pc.private, FORMULA),
        partial(pc.privcate, FORMULA),
    )  # fmt: skip
    for call in calls:
        for noise in (seeded_noise(1), zero_noise()):
            with noise, pytest.raises(SchemaError, match=r"'w' are 0.*smaller upper bound"):
                call(data, eps=8, bounds=BOUNDS, weights="w")


def test_a_part_of_zero_weights_gives_estimates() -> None:
    data = survey().assign(w=lambda rows: rows["w"] * (np.arange(len(rows)) % 10 == 0))
    with seeded_noise(1):
        assert fit(data, eps=8).params.notna().all()


def test_rows_without_weight_do_not_set_estimated_bounds() -> None:
    """Codes such as 99,999 of rows outside the domain gave bounds a thousand times too wide."""
    rng = np.random.default_rng(1)
    rows = pd.DataFrame({"T": rng.integers(0, 2, 9000), "w": rng.choice([0.0, 1.0, 1.0], 9000)})
    rows["y"] = np.where(rows["w"] > 0, rng.normal(3, 1, 9000) + rows["T"], 99_999.0)
    with seeded_noise(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = pc.private("y ~ T", rows, weights="w", eps=8, bounds={"w": (0, 1)})
    assert found.schema["y"].hi < 100
    assert abs(found.params.iloc[0] - 1) < 5 * found.bse.iloc[0] < 0.5


def test_any_weight_is_a_row() -> None:
    data = survey()
    data["w"] = data["w"].astype(object)
    data.loc[:5, "w"] = [np.nan, -3.0, 1e300, "many", None, np.inf]
    with seeded_noise(1):
        assert np.isfinite(fit(data).bse).all()


@pytest.mark.slow
def test_a_plan_knows_public_weights() -> None:
    call: dict[str, Any] = {"n": 8000, "eps": 4, "bounds": BOUNDS, "weights": "w"}
    even = pc.plan(FORMULA, **call, like=pd.DataFrame({"w": np.ones(100)}))
    public = pc.plan(FORMULA, **call, like=survey(1000)[["w"]])
    assert 1.1 < public.table["half-width to"][0] / even.table["half-width to"][0] < 3


# -- refusals and parts --------------------------------------------------------------------------


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=5))
def test_weighted_scores_stay_in_their_bound(weights: list[float]) -> None:
    score = vault.OfCovariates(lambda rows: np.full(len(rows), 2.0), 2.0)  # type: ignore[arg-type]
    own = vault.WeightedScore(score, vault.SurveyWeight("w", 3.0), 0.5)
    rows = Rows({"w": np.nan_to_num(np.array(weights), posinf=1e308)}, len(weights))
    batch = mock.Mock(rows=rows)
    assert own.bound == 12.0
    assert (abs(own(batch)) <= own.bound * (1 + 1e-12)).all()


def test_the_law_of_weights() -> None:
    rng, edges = np.random.default_rng(0), score_edges(100.0, WEIGHT_HALF_OCTAVES)
    w = rng.gamma(4.0, 1.0, 200_000)
    counts = np.histogram(w, np.r_[0.0, edges])[0].astype(float)
    law = WeightLaw.read("w", counts, 1.0, 100.0)
    assert law.mean == pytest.approx(4.0, rel=0.03)
    assert law.design_effect == pytest.approx(1.25, rel=0.05)
    median = np.interp(0.5, np.r_[0.0, np.cumsum(law.p)], law.edges)
    assert median == pytest.approx(np.median(w), rel=0.1)
    assert law.usual_mean * law.usual == pytest.approx(np.minimum(w, law.usual).mean(), rel=0.03)
    assert w.max() <= law.top < 100
    silent = WeightLaw.read("w", np.zeros(len(edges)), 5.0, 100.0)
    assert silent.top == 100 and 0 < silent.mean < 100
