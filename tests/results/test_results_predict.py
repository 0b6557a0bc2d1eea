"""tau(x) and the nuisances at new points: free, and strict about the new data."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from results_fits import CANARY, points, proven, variant
from scipy.stats import norm

import privcausal as pc
from privcausal.errors import DataError

CATES = [
    "r on gam", "dr on linear", "s on gam", "t on linear", "x on gam", "crossfit", "disjoint",
]  # fmt: skip


@pytest.fixture(params=CATES)
def fitted(request: pytest.FixtureRequest) -> Any:
    return variant(request.param)


def test_estimates_have_the_index_of_the_new_data_and_normal_limits(fitted: Any) -> None:
    found = fitted.predict(points(), alpha=0.2)
    assert list(found.columns) == ["estimate", "std_error", "conf_low", "conf_high"]
    assert found.index.equals(points().index)
    assert np.isfinite(found).all(axis=None)
    assert (found["std_error"] > 0).all()
    half = norm.ppf(0.9) * found["std_error"]
    assert found["conf_high"].to_numpy() == pytest.approx(found["estimate"] + half)
    assert found["conf_low"].to_numpy() == pytest.approx(found["estimate"] - half)


def test_prediction_is_the_same_each_time_and_row_by_row(fitted: Any) -> None:
    whole = fitted.predict(points())
    assert fitted.predict(points()).equals(whole)
    parts = pd.concat([fitted.predict(points().iloc[[i]]) for i in range(len(points()))])
    pd.testing.assert_frame_equal(parts, whole, rtol=1e-12)


def test_a_missing_value_gives_a_missing_row(fitted: Any) -> None:
    data = points().astype({"ward": object})
    data.loc[10, "age"] = np.nan
    data.loc[20, "ward"] = None
    data = data.astype({"age": float})
    assert fitted.predict(data.assign(age=-np.inf)).isna().all(axis=None)
    found = fitted.predict(data)
    assert found.loc[[10, 20]].isna().all(axis=None)
    assert found.loc[[30, 40]].equals(fitted.predict(points()).loc[[30, 40]])


def test_numbers_outside_the_bounds_are_cut(fitted: Any) -> None:
    data = points()
    one = fitted.predict(data.assign(age=[-1e300, 0, 95, CANARY]))
    other = fitted.predict(data.assign(age=[18, 18, 90, 90]))
    assert one.equals(other)


def test_an_unseen_level_and_a_missing_column_are_errors_that_name_it(fitted: Any) -> None:
    with pytest.raises(DataError, match=r"'ward'.*undeclared level.*'N', 'S', 'W'") as caught:
        fitted.predict(points().assign(ward="secret"))
    assert "secret" not in str(caught.value)
    with pytest.raises(DataError, match="'age' is required"):
        fitted.predict(points().drop(columns="age"))


def test_controls_are_not_needed_for_the_effect() -> None:
    data = points()
    for name in ("r on gam", "dr on linear", "s on gam", "t on linear"):
        found = variant(name).predict(data.drop(columns=["income", "p"]))
        assert found.equals(variant(name).predict(data))


def test_any_frame_will_do() -> None:
    fitted, data = variant("r on gam"), points()
    expected = fitted.predict(data).to_numpy()
    mapping = {name: data[name].to_numpy() for name in data}
    assert fitted.predict(mapping).to_numpy().tolist() == expected.tolist()
    as_text = data.assign(smoker=data["smoker"].astype(int), ward=data["ward"].astype("category"))
    assert fitted.predict(as_text).to_numpy().tolist() == expected.tolist()


def test_no_rows_no_predictions() -> None:
    assert variant("r on gam").predict(points().iloc[:0]).shape == (0, 4)


@pytest.mark.parametrize("learner", ["s", "constant effect"])
def test_a_constant_effect_is_constant(learner: str) -> None:
    found = variant("s on linear" if learner == "s" else learner).predict(points())
    assert (found["estimate"].nunique() == 1) == (learner != "s")


def test_x_needs_the_known_propensity() -> None:
    fitted = variant("propensity column")
    assert np.isfinite(fitted.predict(points())).all(axis=None)
    with pytest.raises(DataError, match="propensities"):
        fitted.predict(points().drop(columns="p"))


class TestNuisances:
    @pytest.fixture(params=[*CATES, "private on gam", "private on linear"])
    def fitted(self, request: pytest.FixtureRequest) -> Any:
        return variant(request.param)

    def test_four_functions_of_new_data(self, fitted: Any) -> None:
        assert set(fitted.nuisances) == {"propensity", "outcome", "mu0", "mu1"}
        for name, function in fitted.nuisances.items():
            found = function(points())
            assert isinstance(found, pd.Series)
            assert found.name == name
            assert found.index.equals(points().index)
            assert name in repr(function)

    def test_they_keep_their_limits(self, fitted: Any) -> None:
        found = {name: f(points()) for name, f in fitted.nuisances.items()}
        assert found["propensity"].between(0.1, 0.9).all()
        for name in ("outcome", "mu0", "mu1"):
            assert found[name].between(0, 20).all()

    def test_missing_values_and_columns(self, fitted: Any) -> None:
        data = points()
        data.loc[30, "income"] = np.nan
        for function in fitted.nuisances.values():
            assert function(data).isna().tolist() == [False, True, False, False]
            with pytest.raises(DataError, match="'income'"):
                function(data.drop(columns="income"))

    def test_known_propensities_are_themselves(self) -> None:
        known = variant("propensity number").nuisances["propensity"](points())
        assert known.tolist() == [0.5] * 4
        column = variant("propensity column").nuisances["propensity"](points())
        assert column.tolist() == [0.3, 0.5, 0.7, 0.8], "cut to the declared 0.8"


def test_one_value_stands_for_all_points() -> None:
    fit = proven()
    ages = [20.0, 50.0, 90.0]
    whole = fit.predict({"age": ages, "ward": ["S"] * 3, "smoker": [True] * 3})
    short = fit.predict({"age": np.array(ages), "ward": "S", "smoker": True})
    pd.testing.assert_frame_equal(short, whole)
    one = fit.predict({"age": 50, "ward": "S", "smoker": np.True_})
    pd.testing.assert_frame_equal(one, whole.iloc[[1]].reset_index(drop=True))
    with pytest.raises(DataError, match="'ward' contains an undeclared level"):
        fit.predict({"age": 50, "ward": "north", "smoker": True})


def test_points_beyond_the_bounds_are_told(fitted: Any) -> None:
    inside = points().iloc[:3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.predict(inside)
    with pytest.warns(pc.PrivcausalWarning, match=r"outside the bounds \(.*\) of 'age'") as told:
        fitted.predict(inside.assign(age=200))
    assert told[0].filename == __file__
    with pytest.warns(pc.PrivcausalWarning, match="outside the bounds"):
        fitted.nuisances["outcome"](inside.assign(age=-5))
