"""The effect by an instrument: its limits, its truth, and what it refuses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import missed, private, view_of
from textbook import textbook

import privcausal as pc
from privcausal.estimators.slopes import late_limits
from privcausal.inference.effects import AverageEstimate
from privcausal.request.formula import late_terms
from privcausal.testing import seeded_noise

REFERENCE = Path(__file__).parents[1] / "reference"
sys.path.insert(0, str(REFERENCE))
from iv2sls import CARD, KINDS, card, rows  # noqa: E402

FORMULA = "Y ~ T | A + B | T ~ Z"
BOUNDS: dict[str, Any] = {"Y": (-15, 20), "A": (-1, 1), "B": (0, 1)}
NUMBERS: dict[str, Any] = {"T": (-8, 12), "Z": (-6, 6)}
DECLARED: dict[str, dict[str, Any]] = {"two values": BOUNDS, "numbers": BOUNDS | NUMBERS}


def fit(kind: str, data: pd.DataFrame, **options: Any) -> Any:
    asked = {"formula": FORMULA, "estimand": "LATE", "bounds": DECLARED[kind], **options}
    return private(asked.pop("formula"), data, **asked)


def exact(kind: str, data: pd.DataFrame, **options: Any) -> Any:
    """Without noise, and without the weights of rows that lie far out."""
    with textbook(norm_quantile=1.0):
        return fit(kind, data, base="linear", **options)


@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_it_is_two_stage_least_squares(kind: str) -> None:
    """linearmodels' estimate and robust standard error."""
    reference = pd.read_csv(REFERENCE / "iv2sls.csv").set_index("kind").loc[kind]
    found = exact(kind, rows(kind, 1500))
    assert found.params["LATE"] == pytest.approx(reference["estimate"], abs=1e-6)
    sampling = found.estimate.averages.sampling[0, 0]
    assert np.sqrt(sampling) == pytest.approx(reference["std_error"], rel=2e-3)


def test_cards_returns_to_schooling() -> None:
    pytest.importorskip("causaldata")
    reference = pd.read_csv(REFERENCE / "iv2sls.csv").set_index("kind").loc["card"]
    bounds = {"Y": (4, 8), "T": (0, 18), "exper": (0, 25)} | dict.fromkeys(CARD[1:], (0, 1))
    formula = f"Y ~ T | {' + '.join(CARD)} | T ~ Z"
    found = exact("numbers", card(), formula=formula, bounds=bounds)
    assert found.params["LATE"] == pytest.approx(reference["estimate"], abs=1e-6)
    sampling = found.estimate.averages.sampling[0, 0]
    assert np.sqrt(sampling) == pytest.approx(reference["std_error"], rel=2e-3)


def test_without_covariates_it_is_walds_ratio() -> None:
    data = rows("two values", 1500)
    by = data.groupby("Z")[["Y", "T"]].mean()
    reduced, first = (by.loc[1] - by.loc[0])[["Y", "T"]]
    found = exact("two values", data, formula="Y ~ T | T ~ Z")
    assert found.params.to_numpy() == pytest.approx([reduced / first, reduced, first], abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_intervals_cover(kind: str) -> None:
    """Of 40 fits, at most 5 miss (a chance of 2e-3 at 95 %)."""
    fits = (fit(kind, rows(kind, 4000, seed + 1), seed=seed) for seed in range(40))
    assert missed(fits, 1.5) <= 5


def estimate(slopes: tuple[float, float], sds: tuple[float, float]) -> AverageEstimate:
    cov = np.zeros((3, 3))
    cov[1:, 1:] = np.outer(sds, sds) * np.array([[1, 0.3], [0.3, 1]])
    moved = np.array([[0.0, 0.0], [0.2 * sds[0], 0.0], [0.1 * sds[1], 0.1 * sds[1]]])
    found = np.array([slopes[0] / slopes[1], *slopes])
    terms = late_terms(["Z"])
    bias = np.array([0.0, 0.3, 0.1]) * np.array([1.0, *sds])
    clipping = np.linalg.norm(moved, axis=1)
    return AverageEstimate(
        terms, (), found, 0.5 * cov, 0.5 * cov, clipping, bias, 1000.0, moved=moved[None]
    )


def held(found: AverageEstimate, theta: Any, z: float) -> Any:
    """Whether reduced form - theta first stage is within its limits, value by value."""
    from privcausal.inference.effects import covering

    cov = (found.sampling + found.privacy)[1:, 1:]
    weight = np.column_stack([np.ones_like(theta), -theta])
    variance = np.einsum("ij,jk,ik->i", weight, cov, weight)
    spread = np.sqrt(variance + (np.abs(weight) @ found.remainder[1:]) ** 2)
    bound = np.linalg.norm(weight @ found.moved[0, 1:], axis=1)
    return np.abs(weight @ found.estimate[1:]) <= covering(z, bound, spread)


@pytest.mark.slow
@pytest.mark.parametrize("slopes", [(1.0, 0.5), (-1.0, 0.5), (0.2, -0.4), (0.0, 2.0)])
def test_limits_are_those_of_the_test_inverted(slopes: tuple[float, float]) -> None:
    found = estimate(slopes, (0.1, 0.05))
    low, high = late_limits(found, 1.96)
    grid = np.linspace(low - 1, high + 1, 200_001)
    inside = held(found, grid, 1.96)
    step = grid[1] - grid[0]
    assert grid[inside][0] == pytest.approx(low, abs=2 * step)
    assert grid[inside][-1] == pytest.approx(high, abs=2 * step)


@pytest.mark.parametrize("first", [0.05, -0.05, 1e-9])
def test_a_weak_instrument_has_no_limits(first: float) -> None:
    found = estimate((1.0, first), (0.1, 0.05))
    assert late_limits(found, 1.96) == (-np.inf, np.inf)
    assert held(found, np.array([-1e9, 1e9]), 1.96).all()


def test_what_a_weak_instrument_says() -> None:
    data = rows("two values", 1500).assign(Z=np.arange(1500) % 2)
    with seeded_noise(0), pytest.warns(pc.PrivcausalWarning, match="LATE has no finite interval"):
        found = fit("two values", data)
    assert "instrument" in found.alerts
    assert np.isinf(found.conf_int().loc["LATE"]).all()
    assert "has no finite 95% interval" in " ".join(view_of(found).headline)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_results_say(kind: str, tmp_path: Any, reloaded: Any) -> None:
    found = fit(kind, rows(kind, 5000), eps=4.0, seed=0)
    text = str(found.summary(full=True))
    assert "Private Local Average Treatment Effect" in text
    assert "Instrument:" in text
    assert "clipped" not in text
    table = found.tidy().set_index("term")
    assert table.index.tolist() == ["LATE", "reduced form", "first stage"]
    # no effect is no reduced form: Anderson and Rubin's test
    late, form = table.iloc[0], table.iloc[1]
    assert late["p_value"] == form["p_value"]
    assert late["statistic"] == pytest.approx(np.copysign(form["statistic"], late["estimate"]))
    assert reloaded(found).conf_int().equals(found.conf_int())
    found.report(tmp_path / "report.html")
    assert "Anderson and Rubin" in found.methods
    assert np.isfinite(found.wald_test("`first stage` = 0").statistic)
    assert found.wald_test_terms().table.index.tolist() == ["reduced form", "first stage"]
    assert found.f_test().df_num == 2
    plan = pc.plan(FORMULA, n=5000, bounds=DECLARED[kind], estimand="LATE")
    assert (plan.table["half-width from"] > 0).all()


def test_a_known_chance_of_the_instrument_costs_nothing() -> None:
    data = rows("two values", 4000).assign(Z=lambda d: np.arange(len(d)) % 2)
    data["T"] = data["T"] * data["Z"]
    found = fit("two values", data, propensity=0.5, seed=0)
    assert "instrument" not in set(found.budget["query"].str.partition(",")[0])
    assert found.estimate.averages.remainder == pytest.approx(np.zeros(3))
    assert np.isfinite(found.conf_int().loc["LATE"]).all()


@pytest.mark.slow
def test_units_of_treatment_and_instrument() -> None:
    data = rows("numbers", 3000)
    one = fit("numbers", data, seed=1)
    wide = BOUNDS | {"T": (-800, 1200), "Z": (-60, 60)}
    other = fit("numbers", data.assign(T=100 * data["T"], Z=10 * data["Z"]), bounds=wide, seed=1)
    scale = np.array([0.01, 0.1, 10.0])
    assert other.params.to_numpy() == pytest.approx(scale * one.params.to_numpy())
    assert other.bse.to_numpy() == pytest.approx(scale * one.bse.to_numpy())


def test_labels_of_treatment_and_instrument() -> None:
    data = rows("two values", 1000)
    named = data.assign(T=data["T"].map(["no", "yes"].__getitem__), Z=data["Z"].astype(bool))
    one = fit("two values", data, seed=2)
    other = fit("two values", named, bounds=BOUNDS | {"T": ["no", "yes"]}, seed=2)
    assert other.params.equals(one.params)


def test_controls_of_their_own_stand_before_the_first_stage() -> None:
    read = pc.request.formula.CausalFormula.parse("Y ~ T | A | B | T ~ Z")
    assert (read.instruments, [str(t) for t in read.controls]) == (("Z",), ["B"])


def test_a_plan_is_infinite_where_the_set_is() -> None:
    """Half-widths fall with eps, and are infinite where the first stage is hidden by noise."""
    plan = pc.plan(
        FORMULA, n=400, eps=[0.1, 0.3, 1, 4, 16], bounds=DECLARED["numbers"], estimand="LATE"
    )
    half = plan.table["half-width to"].to_numpy()
    assert np.isinf(half[0])
    assert np.isfinite(half[-1])
    assert (np.diff(half[np.isfinite(half)]) <= 0).all()
    assert "no finite interval" in " ".join(str(plan.summary()).split())
