"""`private` without covariates: the textbook's difference in means, at the stated price."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from fit_helpers import private

import privcausal as pc
from privcausal.testing import seeded_noise

BOUNDS: dict[str, Any] = {"Y": (-3, 7), "G": ["a", "b"], "X": (0, 1)}
GRID = 1e-7
"""Sums are rounded to 2^-30 of the outcome's bounds."""


def trial(n: int = 800, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    t = (rng.random(n) < 0.3).astype(int)
    y = rng.normal(1 + 0.5 * t, 0.5 + 0.4 * t)
    frame = pd.DataFrame({"Y": y.clip(-3, 7), "T": t, "G": rng.choice(["a", "b"], n)})
    return frame.assign(X=rng.random(n))


def welch(frame: pd.DataFrame) -> Any:
    return smf.ols("Y ~ T", frame.astype({"Y": float})).fit(cov_type="HC2")


def noiseless(frame: pd.DataFrame, formula: str = "Y ~ T", **options: Any) -> Any:
    return private(formula, frame, **{"bounds": BOUNDS, **options}, exact=True)


def assert_same(row: pd.Series, textbook: Any) -> None:
    assert row["estimate"] == pytest.approx(textbook.params["T"], rel=GRID, abs=GRID)
    assert row["std_error"] == pytest.approx(textbook.bse["T"], rel=1e-5)
    assert row["se_sampling"] == row["std_error"]


# -- limit -----------------------------------------------------------------------------------


@pytest.mark.parametrize("formula", ["Y ~ T", "Y ~ T | 1"])
@pytest.mark.parametrize("relation", ["substitute", "add_remove"])
def test_without_noise_it_is_ols_with_hc2(formula: str, relation: str) -> None:
    frame = trial()
    fit = noiseless(frame, formula, neighbors=relation)
    assert_same(fit.ate.iloc[0], welch(frame))
    ols = welch(frame).conf_int().loc["T"]
    assert fit.conf_int().loc["ATE"].to_numpy() == pytest.approx(ols.to_numpy(), rel=1e-4)


@pytest.mark.parametrize("kind", ["bool", "labels", "0/1"])
def test_two_values(kind: str) -> None:
    frame = trial().assign(Y=lambda d: d["Y"] > 1.6)
    bounds: Any = {"bool": None, "labels": {"Y": ["no", "yes"]}, "0/1": {"Y": [0, 1]}}[kind]
    held = frame["Y"].map({True: "yes", False: "no"}) if kind == "labels" else frame["Y"]
    fit = noiseless(frame.assign(Y=held if kind != "0/1" else held.astype(int)), bounds=bounds)
    assert_same(fit.ate.iloc[0], welch(frame))
    assert fit.budget["query"].tolist() == ["sums by arm"]


@pytest.mark.parametrize("bounds", [BOUNDS, None])
def test_means_of_a_trial_are_free(bounds: Any) -> None:
    alone = private("Y ~ T", trial(), bounds=bounds, seed=1)
    fit = private("Y ~ T", trial(), bounds=bounds, estimand="means", seed=1)
    assert fit.ate.equals(alone.ate)
    assert fit.budget.equals(alone.budget)
    assert fit.params.index.tolist() == ["ATE", "E[Y(0)]", "E[Y(1)]"]
    assert fit.f_test().pvalue == alone.f_test().pvalue
    assert fit.params["E[Y(1)]"] - fit.params["E[Y(0)]"] == pytest.approx(fit.params["ATE"])


def test_means_are_those_of_the_arms() -> None:
    fit, arms = noiseless(trial(), estimand=["ATE", "means"]), trial().groupby("T")["Y"]
    for arm, (mean, error) in enumerate(zip(arms.mean(), arms.sem(), strict=True)):
        assert fit.params[f"E[Y({arm})]"] == pytest.approx(mean, rel=GRID, abs=GRID)
        assert fit.bse[f"E[Y({arm})]"] == pytest.approx(error, rel=1e-5)


def test_groups_are_the_same_within() -> None:
    frame = trial()
    fit = noiseless(frame, groups=["G", "X >= 0.5"])
    assert list(fit.gate.index) == ["G[a]", "G[b]", "X >= 0.5"]
    inside = [frame["G"] == "a", frame["G"] == "b", frame["X"] >= 0.5]
    for rows, (_, row) in zip(inside, fit.gate.iterrows(), strict=True):
        assert_same(row, welch(frame[rows]))


def test_rows_with_missing_values_and_values_beyond_the_bounds() -> None:
    frame = trial()
    frame.loc[::9, "Y"] = np.nan
    frame["T"] = frame["T"].astype(float)
    frame.loc[3::11, "T"] = np.nan
    frame.loc[5::13, "Y"] = 1e9
    fit = noiseless(frame)
    assert_same(fit.ate.iloc[0], welch(frame.assign(Y=frame["Y"].clip(-3, 7)).dropna()))


def test_only_max_rows_of_a_unit_count() -> None:
    frame = trial().assign(pid=np.arange(800) // 4)
    fit = noiseless(frame, unit="pid", max_rows=3)
    textbook, row = welch(frame[np.arange(800) % 4 < 3]), fit.ate.iloc[0]
    assert row["estimate"] == pytest.approx(textbook.params["T"], rel=GRID, abs=GRID)
    # a unit's three rows might be the same
    assert row["std_error"] == pytest.approx(np.sqrt(3) * textbook.bse["T"], rel=1e-5)
    assert fit.guarantee.unit == "one pid (at most 3 rows)"


# -- law -------------------------------------------------------------------------------------


def half_width(row: pd.Series) -> float:
    return float(row["conf_high"] - row["conf_low"]) / 2


@pytest.mark.slow
@pytest.mark.sample(2)
@pytest.mark.parametrize("relation", ["substitute", "add_remove"])
def test_intervals_cover(relation: Any) -> None:
    """150 trials of 500 rows, where noise hides the ends; 127 are covered, but for 5e-7."""
    hits, widths, plain = 0, [], []
    for seed in range(70_000, 70_150):
        study = pc.datasets.private_trial(500, seed=seed)
        fit = private(
            "Y ~ T", study.frame, eps=1, bounds=study.bounds, neighbors=relation, seed=seed
        )
        row = fit.ate.iloc[0]
        hits += row["conf_low"] <= study.ate <= row["conf_high"]
        widths.append(half_width(row))
        plain.append(1.96 * welch(study.frame).bse["T"])
    assert hits >= 127  # binomial(150, 0.95): P(< 127) < 5e-7
    assert np.mean(plain) < np.mean(widths) < 3 * np.mean(plain)


@pytest.mark.slow
@pytest.mark.sample(2)
@pytest.mark.parametrize("relation", ["substitute", "add_remove"])
def test_intervals_cover_where_noise_may_hide_a_second_mode(relation: Any) -> None:
    """150 samples of 500; the second mode holds 30 % of the rows. P(< 127 hits) < 5e-7."""
    hits = 0
    for seed in range(71_000, 71_150):
        rng = np.random.default_rng(seed)
        first, t = rng.random(500) < 0.7, rng.integers(0, 2, 500)
        y = np.where(first, rng.normal(0, 0.5, 500), rng.normal(6, 0.5, 500)) + 0.5 * t
        fit = private(
            "Y ~ T", pd.DataFrame({"Y": y, "T": t}), eps=1, bounds={"Y": (-3, 9)},
            neighbors=relation, seed=seed
        )  # fmt: skip
        row = fit.ate.iloc[0]
        hits += row["conf_low"] <= 0.5 <= row["conf_high"]
    assert hits >= 127


def test_wide_bounds_cost_little_where_there_are_many_rows() -> None:
    """Ten times the width of the outcome, noise as of three times at most; and it is allowed for"""
    frame = trial(12_000)
    bounds = {"Y": (-3, 7)}, {"Y": (-48, 52)}
    with seeded_noise(1):
        narrow, wide = (pc.private("Y ~ T", frame, eps=1, bounds=b) for b in bounds)
    noise = [np.sqrt(f.estimate.averages.privacy[0, 0]) for f in (narrow, wide)]
    assert noise[1] < 3 * noise[0]
    assert wide.estimate.averages.clipping[0] > 0
    truth = welch(frame).params["T"]
    assert all(abs(f.params["ATE"] - truth) < 4 * f.bse["ATE"] for f in (narrow, wide))


def test_bounds_that_are_bought_are_used() -> None:
    fit = private("Y ~ T", trial(5000), eps=2, seed=2)
    assert fit.budget["stage"].tolist() == ["bounds", "bounds", "effect", "effect"]
    assert abs(fit.params["ATE"] - 0.5) < 4 * fit.bse["ATE"]


def test_an_arm_too_small_to_see_is_told_of() -> None:
    frame = trial(700)
    frame["T"] = (np.arange(700) < 5).astype(float)
    fit = private("Y ~ T", frame, eps=0.05, bounds=BOUNDS, seed=3)
    assert half_width(fit.ate.iloc[0]) > 5
    assert "Noise hides how many rows one treatment arm has" in fit.alerts["arm"]


# -- what it shows -----------------------------------------------------------------------------


def test_the_summary_says_what_it_is() -> None:
    fit = pc.private("Y ~ T", trial(), eps=1, bounds=BOUNDS)
    text = " ".join(str(fit.summary(full=True)).split())
    assert "Estimator: difference in means" in text
    assert "Nuisance models: none" in text
    assert "requires randomized treatment" in text
    assert "overlap" not in text
    assert "clipping limits" not in text
    assert "The number of rows and the bounds are public inputs" in text
    assert fit.guarantee.kind == "proven"
    assert fit.glance()["base"].item() == "none"
    assert fit.call.splitlines()[2:4] == ["pc.private(", "    'Y ~ T',"]


@pytest.mark.slow
def test_report_and_file(page_of: Any, reloaded: Any) -> None:
    fit = pc.private("Y ~ T", trial(), eps=1, bounds=BOUNDS, groups=["G"])
    assert "Randomized treatment" in page_of(fit)
    again = reloaded(fit)
    assert str(again.summary()) == str(fit.summary())
    assert again.estimate.nuisances is None


def test_under_add_remove_the_count_is_noisy() -> None:
    fit = private("Y ~ T", trial(), eps=1, bounds=BOUNDS, neighbors="add_remove", seed=1)
    head = fit.summary().tables[0]["value"]
    assert abs(int(head["Observations"].split()[0].replace(",", "")) - 800) < 200
    assert fit.glance()["n"].isna().all()


# -- what is chosen, and what is refused -----------------------------------------------------


def test_a_known_number_changes_nothing_and_a_column_weighs() -> None:
    frame = trial()
    plain, known = noiseless(frame), noiseless(frame, propensity=0.3)
    assert known.ate.equals(plain.ate)
    weighed = noiseless(frame.assign(P=0.3), propensity="P", bounds=BOUNDS | {"P": (0.2, 0.7)})
    adjusted = noiseless(frame, "Y ~ T | X"), noiseless(frame, "Y ~ T | 1 | X")
    assert {fit.plan.learner for fit in (plain, known)} == {"difference"}
    assert {fit.plan.learner for fit in (weighed, *adjusted)} == {"private"}


def test_the_ledger_holds_both_releases(tmp_path: Path) -> None:
    ledger = pc.Ledger(tmp_path / "trial.db", "trial", eps=2)
    pc.private("Y ~ T", trial(), eps=1, bounds=BOUNDS, ledger=ledger)
    assert ledger.history["query"].tolist() == ["outcome", "sums"]


@pytest.mark.parametrize(
    ("kind", "top"), [("exponential", 500), ("lognormal", 2000), ("far from the middle", 100)]
)
def test_standard_errors_of_skewed_outcomes_are_welchs(kind: str, top: float) -> None:
    """At eps = 4, noise is small beside the sampling error of 20,000 rows, and so is the clip."""
    rng = np.random.default_rng(5)
    draws: Any = {
        "exponential": lambda n: rng.exponential(10, n),
        "lognormal": lambda n: rng.lognormal(3, 0.8, n),
        "far from the middle": lambda n: rng.normal(95, 1, n),
    }
    y = draws[kind](20_000).clip(0, top)
    frame = pd.DataFrame({"Y": y, "T": rng.integers(0, 2, len(y))})
    textbook, found = welch(frame).bse["T"], []
    for seed in range(5):
        found.append(private("Y ~ T", frame, eps=4, bounds={"Y": (0, top)}, seed=seed).bse["ATE"])
    assert 0.97 * textbook < np.median(found) < 1.15 * textbook
