"""Several instruments: two-stage least squares without noise, and sets of Anderson and Rubin."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from fit_helpers import private
from scipy.stats import chi2, norm
from textbook import textbook

from privcausal import vault
from privcausal.estimators.slopes import instrument_tests, late_limits, late_set
from privcausal.inference.effects import AverageEstimate
from privcausal.request.formula import late_terms

BOUNDS: dict[str, Any] = {"Y": (-8, 8), "A": (-1, 1), "Z3": (-2, 2), "T": (-4, 4)}
FORMULA = "Y ~ T | A | T ~ Z1 + Z2 + Z3"


def study(n: int = 4000, seed: int = 0, strength: float = 1.0, direct: float = 0.0) -> pd.DataFrame:
    """Two 0/1 instruments and a number for a numeric treatment whose effect is 1."""
    rng = np.random.default_rng([seed, n])
    a, u = rng.uniform(-1, 1, n), rng.normal(size=n)
    z1, z2 = (rng.random(n) < 1 / (1 + np.exp(-a))) * 1, (rng.random(n) < 0.5) * 1
    z3 = rng.normal(size=n).clip(-2, 2)
    t = strength * (0.8 * z1 + 0.5 * z2 + 0.5 * z3) + 0.5 * u + 0.5 * rng.normal(size=n) + 0.3 * a
    y = t + a + u + direct * z2 + 0.5 * rng.normal(size=n)
    return pd.DataFrame({
        "Y": y.clip(-8, 8), "T": t.clip(-4, 4), "A": a, "Z1": z1, "Z2": z2, "Z3": z3,
    })  # fmt: skip


def fit(data: pd.DataFrame, formula: str = FORMULA, **options: Any) -> Any:
    options = {"bounds": BOUNDS, "estimand": "LATE"} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return private(formula, data, **options)


def two_stage(data: pd.DataFrame, names: list[str]) -> float:
    """Two-stage least squares with an intercept and A as controls."""
    w = np.column_stack([np.ones(len(data)), data["A"]])

    def left(x: Any) -> Any:
        return x - w @ np.linalg.lstsq(w, x, rcond=None)[0]

    z, t, y = left(data[names].to_numpy(float)), left(data["T"].to_numpy()), left(data["Y"])
    fitted = z @ np.linalg.lstsq(z, t, rcond=None)[0]
    return float(fitted @ y / (fitted @ t))


@pytest.mark.parametrize("names", [["Z1", "Z2"], ["Z2", "Z3"], ["Z1", "Z2", "Z3"]])
def test_without_noise_it_is_two_stage_least_squares(names: list[str]) -> None:
    data = study()
    with textbook(norm_quantile=1.0):
        found = fit(data, f"Y ~ T | A | T ~ {' + '.join(names)}", base="linear")
    assert found.params["LATE"] == pytest.approx(two_stage(data, names), abs=1e-5)
    assert list(found.params.index) == list(map(str, late_terms(names)))
    assert found.conf_int().loc["LATE", 0] < found.params["LATE"] < found.conf_int().loc["LATE", 1]


@pytest.mark.slow
def test_the_effect_is_found_and_named() -> None:
    """A normal error exceeds five standard errors with a chance below 1e-6."""
    found = fit(study(20_000, 1), eps=4, seed=1)
    assert abs(found.params["LATE"] - 1) < 5 * found.bse["LATE"]
    text = str(found.summary(full=True))
    assert "Z1 + Z2 + Z3" in text and "First-stage F" in text and "Instruments agree" in text
    assert len(found.confidence_set()) == 1
    assert found.pvalues["LATE"] < 1e-4
    assert found.zvalues["LATE"] == pytest.approx(norm.isf(found.pvalues["LATE"] / 2))


@pytest.mark.slow
def test_instruments_that_contradict_each_other() -> None:
    found = fit(study(40_000, 2, direct=2.0), eps=8, seed=2)
    assert found.confidence_set() == []
    assert "contradict" in found.alerts["instrument"]
    assert found.conf_int().loc["LATE"].isna().all()
    assert "confidence set of the LATE: empty" in " ".join(str(found.summary()).split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "of"), [("Z4", {"Z4": (-4, 4)}), ("Z5", {}), ("Z4 + Z5", {"Z4": (-4, 4)})]
)
def test_an_instrument_that_is_a_combination_of_others(more: str, of: dict[str, Any]) -> None:
    """It is named, and the set has the degrees of freedom of the others."""
    data = study(10_000).assign(Z4=lambda d: 2 * d["Z3"], Z5=lambda d: 1 - d["Z1"])
    with textbook():
        one = fit(data)
        other = fit(data, f"{FORMULA} + {more}", bounds=BOUNDS | of)
    assert "collinear" not in one.alerts
    assert ", ".join(f"'{name}'" for name in more.split(" + ")) in other.alerts["collinear"]
    (low, high), (low_of, high_of) = one.confidence_set()[0], other.confidence_set()[0]
    assert high_of - low_of == pytest.approx(high - low, rel=0.02)
    for name in more.split(" + "):
        assert np.isnan(other.params[f"first stage[{name}]"])
        assert other.bse[f"first stage[{name}]"] == np.inf
    assert "Instruments agree" in str(other.summary(full=True))
    noisy = fit(data, f"{FORMULA} + {more}", bounds=BOUNDS | of, eps=4, seed=4)
    assert noisy.alerts["collinear"] == other.alerts["collinear"]


@pytest.mark.parametrize("formula", ["Y ~ T | X | T ~ Z + W", "Y ~ T | X | T ~ Z"])
def test_rows_that_are_all_equal_have_no_limits(formula: str) -> None:
    """With this noise, the number of rows seems to be 0, and all chances 1."""
    data = pd.DataFrame([dict.fromkeys("YTXZW", 1.0)] * 400)
    bounds = {"Y": (0, 1), "X": (-1, 1), **{name: [0, 1] for name in "TZW"}}
    for seed in (1054, 1055):
        found = fit(data, formula, bounds=bounds, eps=0.2, seed=seed)
        assert found.confidence_set() == [(-np.inf, np.inf)]
        assert "instrument" in found.alerts


@pytest.mark.slow
def test_weak_instruments_have_half_lines() -> None:
    found = fit(study(3000, 3, strength=0.02), eps=1, seed=3)
    assert found.confidence_set()[0][0] == -np.inf
    assert "instrument" in found.alerts
    assert "confidence set of the LATE: any value" in " ".join(str(found.summary()).split())
    (_, below), (above, _) = found.confidence_set(0.5)
    assert below < above
    words = " ".join(str(found.summary(alpha=0.5)).split())
    assert re.search(r"50% confidence set of the LATE: below -?[\d.]+ or above -?[\d.]+\.", words)


# -- the set -------------------------------------------------------------------------------------


def estimate(slopes: list[float], sds: list[float], remainder: float = 0.0) -> AverageEstimate:
    many = len(slopes) // 2
    values = np.array([0.0, *slopes])
    sampling = np.diag([1.0, *sds]) ** 2
    names = late_terms([f"Z{k}" for k in range(many)])
    none = np.zeros(len(values))
    return AverageEstimate(
        names, (), values, sampling, 0 * sampling, none, none + remainder, 100.0,
        moved=np.zeros((1, len(values), 1)),
    )  # fmt: skip


def within(found: AverageEstimate, theta: float, z: float) -> bool:
    many = len(found.estimate) // 2
    mix = np.hstack([np.eye(many), -theta * np.eye(many)])
    moment, cov = mix @ found.estimate[1:], mix @ found.sampling[1:, 1:] @ mix.T
    return bool(moment @ np.linalg.solve(cov, moment) <= chi2.isf(2 * norm.sf(z), many))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slopes", "sds", "parts"),
    [
        ([1.0, 1.0], [0.1, 0.1], 1),
        ([1.0, 0.3], [0.1, 0.3], 2),
        ([0.1, 0.1], [0.2, 0.2], 1),
        ([1.0, 1.2, 1.0, 1.1], [0.1, 0.2, 0.1, 0.1], 1),
        ([1.0, 0.9, 0.2, 0.3], [0.1, 0.1, 0.3, 0.3], 2),
        ([1.0, -1.0, 1.0, 1.0], [0.1, 0.1, 0.1, 0.1], 0),
        ([1.0, 1.1, 0.9, 1.0, 0.9, 1.1], [0.2] * 6, 1),
    ],
)
def test_the_set_holds_what_is_compatible(slopes: Any, sds: Any, parts: int) -> None:
    found = estimate(slopes, sds)
    own = late_set(found, 1.96)
    assert len(own) == parts
    ends = [end for part in own for end in part if np.isfinite(end)]
    grid = np.r_[np.linspace(-50, 50, 2001), [e + s for e in ends for s in (-1e-6, 1e-6)]]
    for theta in grid:
        assert within(found, theta, 1.96) == any(low <= theta <= high for low, high in own)
    low, high = late_limits(found, 1.96)
    assert np.isnan(low) if not own else (low, high) == (own[0][0], own[-1][1])
    assert late_set(estimate(slopes, sds, 5.0), 1.96) == ((-np.inf, np.inf),)


@pytest.mark.parametrize("slopes", [[-1.0, 0.05], [-1.0, -0.6], [-1.0, -0.6, 0.9, 0.7]])
def test_a_late_without_limits_has_no_test(slopes: list[float]) -> None:
    late = slopes[0] / slopes[len(slopes) // 2]
    found = replace(estimate(slopes, [0.1] * len(slopes)), estimate=np.array([late, *slopes]))
    fit = private(FORMULA, study(400), eps=1, estimand="LATE", bounds=BOUNDS, exact=True)
    frame = replace(fit, estimate=replace(fit.estimate, averages=found)).tidy()
    row, forms = frame.iloc[0], frame.iloc[1 : 1 + len(slopes) // 2]
    unlimited = bool(np.isinf(row[["conf_low", "conf_high"]].astype(float)).all())
    assert unlimited == (slopes[1] > 0 and len(slopes) == 2)
    assert row[["statistic", "p_value"]].isna().all() == unlimited
    assert forms["p_value"].max() < 1e-6
    assert unlimited or np.sign(row["statistic"]) == np.sign(late)


@pytest.mark.parametrize("unit", [1e-8, 1e8])
def test_units_of_an_instrument_do_not_matter(unit: float) -> None:
    """An instrument in other units has other slopes, with the same effect."""
    slopes, sds = np.array([1.0, 0.6, 0.9, 0.7]), np.array([0.2, 0.1, 0.1, 0.2])
    by = np.array([1.0, unit, 1.0, unit])
    one, other = (estimate(list(slopes / k), list(sds / k)) for k in (np.ones(4), by))
    np.testing.assert_allclose(late_set(other, 1.96), late_set(one, 1.96), rtol=1e-6)
    np.testing.assert_allclose(instrument_tests(other), instrument_tests(one), rtol=1e-4)


def test_tests_of_instruments() -> None:
    tests = instrument_tests(estimate([1.0, 0.0, 0.5, 0.0], [0.1, 0.1, 0.1, 0.1]))
    assert tests.strength == pytest.approx(12.5)
    assert tests.p_zero == pytest.approx(chi2.sf(100, 2), rel=1e-6)
    assert tests.p_agree > 0.9
    assert instrument_tests(estimate([1.0, -1.0, 1.0, 1.0], [0.1] * 4)).p_agree < 1e-6


def test_scores_stay_in_their_bound() -> None:
    """For instruments, treatments and outcomes at all ends of their ranges."""
    half = lambda rows: np.full(len(rows), 0.5)  # noqa: E731
    scores = vault.InstrumentScores(
        ((half, half),), ((half,),), ((lambda rows: np.zeros(len(rows)),),),  # type: ignore[arg-type]
        vault.Outcome(-1.0, 1.0), 0.7, 2.0, 1.0,
    )  # fmt: skip
    ends = np.array(np.meshgrid([0, 1], [0, 1], [0, 1], [-1, 1])).reshape(4, -1).astype(float)
    batch = mock.Mock(rows=range(16), instruments=ends[:2].T, taken=ends[2], y=ends[3])
    left, made = scores.parts(batch)
    assert (np.linalg.norm(left, axis=1) <= scores.reach + 1e-12).all()
    assert (np.linalg.norm(made, axis=1) <= scores.bound + 1e-12).all()
    assert made.shape[1] == 4
