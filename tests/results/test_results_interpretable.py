"""The effect as an ExplainableBoostingRegressor: the same shapes, in interpret's own terms."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import privcate
from interpret.glassbox import ExplainableBoostingRegressor
from results_fits import BOUNDS, study, variant

import privcausal as pc
from privcausal.features.design import FINE_BINS as FINE

MODIFIERS = ["age", "ward", "smoker"]
SMOOTH = ["r on gam", "dr on gam", "s on gam", "t on gam", "constant levels", "crossfit gam"]
STEPPED = ["r on linear", "dr on linear", "s on linear", "t on linear"]


@lru_cache
def effect(name: str) -> Any:
    made: dict[str, dict[str, Any]] = {
        "constant levels": {"formula": "cost ~ mailed | C(ward) + smoker | income + age"},
        "crossfit gam": {
            "formula": "cost ~ mailed | age + C(ward) + smoker",
            "control": pc.Control(split="crossfit"),
        },
    }
    if name not in made:
        return variant(name)
    options = made[name]
    return privcate(options.pop("formula"), study(), bounds=BOUNDS, eps=20.0, **options, seed=11)


def booster(name: str) -> Any:
    return effect(name).to_interpret()


def anywhere(n: int = 500) -> pd.DataFrame:
    """Points inside the bounds, and both ends and all borders of fine bins."""
    rng = np.random.default_rng(1)
    borders = 18 + 72 * np.arange(FINE + 1) / FINE
    near = [borders, np.nextafter(borders, 0)[1:], np.nextafter(borders, 99)[:-1]]
    age = np.concatenate([rng.uniform(18, 90, n), *near])
    columns = {"age": age, "ward": rng.choice(["N", "S", "W"], len(age))}
    return pd.DataFrame(columns | {"smoker": rng.random(len(age)) < 0.5})


def used(made: Any, data: pd.DataFrame) -> pd.DataFrame:
    return data[made.feature_names_in_]


@pytest.mark.parametrize("name", SMOOTH)
def test_predictions_are_equal_everywhere_inside_the_bounds(name: str) -> None:
    made, data = booster(name), anywhere()
    assert isinstance(made, ExplainableBoostingRegressor)
    expected = effect(name).predict(data)["estimate"]
    assert made.predict(used(made, data)) == pytest.approx(expected.to_numpy(), abs=1e-9)


@pytest.mark.parametrize("name", STEPPED)
def test_straight_lines_become_steps_right_in_the_middle(name: str) -> None:
    made = booster(name)
    middles = 18 + 72 * (np.arange(FINE) + 0.5) / FINE
    data = pd.DataFrame({"age": middles, "ward": "S", "smoker": True})
    expected = effect(name).predict(data)["estimate"].to_numpy()
    assert made.predict(data) == pytest.approx(expected, abs=1e-9)
    half_step = 0.5 * np.abs(np.diff(expected)).max() * 1.001
    error = made.predict(anywhere()) - effect(name).predict(anywhere())["estimate"]
    assert np.abs(error).max() <= half_step


def test_outside_the_bounds_both_cut() -> None:
    made = booster("r on gam")
    data = anywhere(10).head(4).assign(age=[-1e9, 17.9, 90.1, 1e9])
    expected = effect("r on gam").predict(data)["estimate"]
    assert made.predict(data) == pytest.approx(expected.to_numpy(), abs=1e-9)


def test_levels_of_any_type_are_found() -> None:
    made, data = booster("r on gam"), anywhere(50)
    expected = made.predict(data)
    for name, kind in (("ward", "category"), ("smoker", int), ("smoker", float)):
        assert made.predict(data.astype({name: kind})).tolist() == expected.tolist()


def test_a_missing_value_counts_as_average() -> None:
    made = booster("r on gam")
    data = pd.DataFrame({"age": [np.nan], "ward": [None], "smoker": [np.nan]})
    assert made.predict(data) == pytest.approx([made.intercept_], abs=1e-12)


def test_terms_are_centred_on_the_released_population() -> None:
    made = booster("r on gam")
    assert made.feature_names_in_ == made.term_names_ == MODIFIERS
    assert made.feature_types_in_ == ["continuous", "nominal", "continuous"]
    count = effect("r on gam").estimate.population.count
    for scores, weights in zip(made.term_scores_, made.bin_weights_, strict=True):
        assert scores.shape == weights.shape
        assert scores @ weights == pytest.approx(0, abs=1e-6 * count)
        assert weights.sum() == pytest.approx(count)
        assert weights[0] == 0, "nobody is missing"
    population = effect("r on gam").estimate.population
    assert made.histogram_weights_[0][1:-1] == pytest.approx(
        population.probabilities["age"] * count
    )
    assert len(made.bins_[0][0]) == FINE - 1
    assert made.bins_[1][0] == {"N": 1, "S": 2, "W": 3}
    assert made.feature_bounds_[0].tolist() == [18, 90]


def test_standard_deviations_are_posterior_ones() -> None:
    """Of differences from the average: by draws of the coefficients."""
    fitted, made = effect("r on gam"), booster("r on gam")
    piece = fitted.estimate.effect.pieces[0]
    middles = 18 + 72 * (np.arange(FINE) + 0.5) / FINE
    data = {"age": middles, "ward": np.zeros(FINE, np.int64), "smoker": np.zeros(FINE)}
    data["income"] = np.zeros(FINE)
    from privcausal.features.design import Rows

    phi = Rows(data, FINE).phi(piece.additive.features)
    draws = np.random.default_rng(0).multivariate_normal(piece.additive.coef, piece.cov, 4000)
    curves = draws @ phi.T
    curves -= (curves @ fitted.estimate.population.probabilities["age"])[:, None]
    assert made.standard_deviations_[0][1:-1] == pytest.approx(curves.std(axis=0), rel=0.08)


@pytest.mark.parametrize("name", ["r on gam", "t on linear"])
def test_interprets_own_displays_work(name: str) -> None:
    made, data = booster(name), anywhere(5).head(5)
    overall = made.explain_global().data()
    assert overall["names"] == MODIFIERS
    assert len(overall["scores"]) == 3
    shape = made.explain_global().data(0)
    assert len(shape["names"]) == FINE + 1
    assert len(shape["scores"]) == len(shape["upper_bounds"]) == FINE
    assert len(shape["density"]["names"]) == FINE + 1
    assert made.explain_global().data(1)["names"] == ["N", "S", "W"]
    assert len(made.explain_local(data).data(0)["scores"]) == 3
    assert made.eval_terms(data).sum(axis=1) + made.intercept_ == pytest.approx(made.predict(data))
    assert (made.term_importances() > 0).all()
    assert made.copy().predict(data).tolist() == made.predict(data).tolist()
    with pytest.warns(UserWarning, match="beta"):
        assert made.to_jsonable()["ebm"]["features"][0]["name"] == "age"


def test_functions_of_one_modifier_are_one_term() -> None:
    fitted = privcate(
        "cost ~ mailed | age + I(age**2) + C(ward)", study(), bounds=BOUNDS, eps=20.0, seed=2
    )
    made = fitted.to_interpret()
    assert made.feature_names_in_ == ["age", "ward"]
    assert made.term_names_[:2] == ["age", "ward"]  # and at most a pair of them
    middles = 18 + 72 * (np.arange(FINE) + 0.5) / FINE
    data = pd.DataFrame({"age": middles, "ward": "N"})
    expected = fitted.predict(data)["estimate"].to_numpy()
    # products are made as floats of 32 bits
    assert made.predict(data) == pytest.approx(expected, abs=1e-6)
