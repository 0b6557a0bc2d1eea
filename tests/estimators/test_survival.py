"""RMST and risk: equal to Kaplan-Meier without noise, honest with noise, refused elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import made_again, missed, private, view_of

import privcausal as pc
from privcausal.errors import CapabilityError
from privcausal.estimators.survival import arm_curve, noise_square, scores
from privcausal.testing import seeded_noise, zero_noise
from privcausal.vault import FollowUp, SurvivalCounts

REFERENCE = Path(__file__).parents[1] / "reference"
sys.path.insert(0, str(REFERENCE))

import survival as lifelines_rows  # noqa: E402

TIMED = "Surv(days, died) ~ T"


def trial(n: int = 2000, seed: int = 0, **changed: Any) -> pd.DataFrame:
    rng = np.random.default_rng([3, seed])
    x, t = rng.random(n), rng.random(n) < 0.5
    died = np.ceil(rng.exponential(80 * (1 + t) * (0.5 + x)))
    lost = np.ceil(rng.uniform(1, 300, n))
    columns = {"days": np.minimum(died, lost), "died": 1 * (died <= lost), "T": 1 * t, "X": x}
    return pd.DataFrame(columns).assign(**changed)


def fit(
    formula: str = TIMED,
    frame: Any = None,
    estimand: Any = "RMST",
    horizon: Any = 100,
    **options: Any,
) -> Any:
    frame = trial() if frame is None else frame
    return private(
        formula, frame, estimand=estimand, horizon=horizon,
        **{"bounds": {"X": (0, 1)}, "eps": 1.0, **options},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", lifelines_rows.HORIZONS)
def test_without_noise_the_estimates_are_those_of_lifelines(name: str) -> None:
    stored = pd.read_csv(REFERENCE / "survival.csv").set_index("data").loc[name]
    frame, horizon = lifelines_rows.rows(name), lifelines_rows.HORIZONS[name]
    with zero_noise():
        found = {
            e: fit(frame=frame, estimand=e, horizon=horizon, bounds=None) for e in ("RMST", "risk")
        }
    for estimand, column in (("RMST", "rmst"), ("risk", "risk")):
        control, treated = stored[column]
        assert found[estimand].params[estimand] == pytest.approx(treated - control, rel=1e-6)
    curves = found["RMST"].survival().set_index(["arm", "time"])["survival"]
    for arm, risk, half in zip(("0", "1"), stored["risk"], stored["half"], strict=True):
        assert curves[arm, horizon] == pytest.approx(1 - risk, rel=1e-6)
        assert curves[arm, horizon // 2] == pytest.approx(half, rel=1e-6)


def test_without_noise_the_standard_error_is_greenwoods() -> None:
    with zero_noise():
        found = fit(estimand="risk")
        curves = found.survival().groupby("arm")
    last = np.array([one["std_error"].iloc[-1] for _, one in curves])
    assert found.bse["risk"] == pytest.approx(np.sqrt((last**2).sum()), rel=0.01)
    dependent = fit(
        estimand="risk", frame=trial(unit=np.arange(2000)), unit="unit", max_rows=4, exact=True
    )
    assert dependent.bse["risk"] == pytest.approx(2 * found.bse["risk"], rel=0.01)


@pytest.mark.slow
def test_other_scales_labels_and_weeks() -> None:
    """Twelve and a half weeks have equal bins; labels of events are coded as declared."""
    weeks = trial(
        died=lambda f: np.where(f["died"] == 1, "dead", "alive"), days=lambda f: f["days"] / 7
    )
    with zero_noise():
        days = fit(horizon=87.5)
        found = fit(frame=weeks, horizon=12.5, bounds={"died": ["alive", "dead"]})
    assert 7 * found.params["RMST"] == pytest.approx(days.params["RMST"], rel=1e-9)
    assert len(found.survival()) == 2 * 251


def test_censoring_by_arm_does_not_bias_the_adjusted_effect() -> None:
    """Means of the observed times would show an effect of censoring."""
    frame = trial(20_000, 1)
    lost = np.where(frame["T"] == 1, 40 + 200 * frame["X"].sample(frac=1, random_state=0), 300)
    early = frame["days"] > lost
    frame["days"], frame["died"] = np.minimum(frame["days"], np.ceil(lost)), frame["died"] * ~early
    with zero_noise():
        whole, cut = (fit(TIMED + " | X", f) for f in (trial(20_000, 1), frame))
    assert abs(whole.params["RMST"] - cut.params["RMST"]) < 2.5 * cut.bse["RMST"]
    naive = frame["days"].clip(upper=100).groupby(frame["T"]).mean().diff().iloc[-1]
    assert whole.params["RMST"] - naive > 8 * cut.bse["RMST"]


@pytest.mark.slow
@pytest.mark.parametrize("sd", [15.0, 40.0])
def test_the_added_variance_is_that_of_the_noise(sd: float) -> None:
    """Noise moves the mean score of an arm as `noise_square` says, and not at first order."""
    rng, follow = np.random.default_rng(0), FollowUp("died", 100.0)
    query, frame = SurvivalCounts(follow), trial(1000, 2)
    cell = follow.cell(*(frame[c].to_numpy(float) for c in ("days", "died")), np.zeros(1000))
    counts = np.bincount(cell, minlength=4 * 101).reshape(4, 101)[:2].astype(float)
    exact = counts @ query.root.T
    value, last = np.ones(101), 0.0
    right = 1 - float(arm_curve(exact, query.root).survival[-1])
    errors, squares, naive = [], [], []
    for _ in range(60):
        curve = arm_curve(exact + rng.normal(0, sd, exact.shape), query.root)
        errors.append(float((scores(curve, value, last) * counts).sum()) / 1000 - right)
        squares.append(noise_square(curve, curve.replicas(sd, query.root), value, last))
        naive.append(1 - float(curve.survival[-1]) - right)
    assert 0.5 < np.mean(np.square(errors)) / np.median(squares) < 2
    assert np.mean(np.square(errors)) < 0.25 * np.mean(np.square(naive))


@pytest.mark.slow
@pytest.mark.parametrize("formula", [TIMED, TIMED + " | X"])
def test_intervals_cover_where_noise_is_large(formula: str) -> None:
    k = np.arange(100)[:, None]
    x = np.linspace(0, 1, 201)
    alive = [np.exp(-k / (80 * (1 + t) * (0.5 + x))).mean(axis=1) for t in (0, 1)]
    truth = float((alive[1] - alive[0]).sum())
    fits = (fit(formula, trial(2000, 10 + seed), eps=0.5, seed=seed) for seed in range(12))
    # at most 9 of 12 cover with a chance of 0.2% at 95% coverage
    assert missed(fits, truth) <= 2


@pytest.mark.slow
def test_results(tmp_path: Path, reloaded: Any) -> None:
    found = fit(TIMED + " | X", estimand="risk", seed=3)
    text = str(found.summary(full=True))
    assert "Surv(days, died)" in text
    assert "Independent censoring" in text
    assert "Horizon:" in text
    assert "survival times by arm, 101 bins" in str(found.summary(full=True))
    assert "Right-censored" in found.methods
    assert "Robins, J. M. and Rotnitzky, A. (1992)" in found.methods
    assert "the risk of died by days = 100" in view_of(found).headline[0]
    curves = found.survival(alpha=0.1)
    assert curves[["conf_low", "conf_high"]].stack().between(0, 1).all()
    assert (curves["band_low"] <= curves["conf_low"] + 1e-12).all()
    assert (curves.groupby("arm")["survival"].diff().dropna() <= 0).all()
    assert found.plot("survival").get_xlabel() == "days"
    found.report(tmp_path / "report.html")
    again = reloaded(found)
    assert str(again.summary(full=True)) == text
    pd.testing.assert_frame_equal(again.survival(0.1), curves)
    assert made_again(found, trial(), seed=3).params.equals(found.params)


@pytest.mark.parametrize("unit", [86_400.0, 86_400e9, 1 / 365.25])
def test_times_may_have_any_unit(unit: float) -> None:
    """Seconds, nanoseconds and years, as days."""
    with zero_noise():
        days = fit()
        other = fit(frame=trial(days=trial()["days"] * unit), horizon=100 * unit)
    assert other.params.iloc[0] / unit == pytest.approx(days.params.iloc[0], rel=0.01)
    assert other.bse.iloc[0] / unit == pytest.approx(days.bse.iloc[0], rel=0.01)


def test_a_horizon_beyond_the_follow_up_has_an_alert() -> None:
    with seeded_noise(1), pytest.warns(pc.PrivcausalWarning, match="followed to the horizon"):
        found = fit(horizon=290)
    assert "censoring" in found.alerts
    with seeded_noise(1):
        assert "censoring" not in fit(horizon=100, eps=4).alerts


def test_events_coded_1_and_2_have_an_alert_or_labels() -> None:
    """Without noise, declared labels give the fit of events coded 0 and 1."""
    coded = trial()
    coded["died"] += 1
    with zero_noise():
        plain = fit(eps=4)
        for labels in ([1, 2], ["1", "2"], pc.Levels([1, 2])):
            found = fit(frame=coded, eps=4, bounds={"died": labels})
            assert found.params.equals(plain.params)
    assert "events" not in plain.alerts
    with seeded_noise(1), pytest.warns(pc.PrivcausalWarning, match="No row is censored"):
        assert "events" in fit(frame=coded, eps=4).alerts


def test_negative_times_have_an_alert() -> None:
    early = trial()
    early["days"] -= 30
    with seeded_noise(1), pytest.warns(pc.PrivcausalWarning, match="0 or negative"):
        assert "times" in fit(frame=early, eps=4).alerts
    with seeded_noise(1):
        assert "times" not in fit(eps=4).alerts


@pytest.mark.parametrize(
    "options",
    [
        {"estimand": ["RMST", "risk"]}, {"groups": ["X >= 0.5"]}, {"weights": "X"},
        {"formula": TIMED + " | X", "control": pc.Control(split="crossfit")},
    ],
)  # fmt: skip
def test_each_is_fitted_separately(options: dict[str, Any], unspent: Any) -> None:
    with pytest.raises(CapabilityError, match=r"weights=.*separately"):
        fit(**options, ledger=unspent)


@pytest.mark.slow
@pytest.mark.parametrize("estimand", ["RMST", "risk"])
def test_a_plan_is_near_the_fit(estimand: Any) -> None:
    """The plan assumes another law of the times."""
    bounds = {"days": (0, 300), "X": (0, 1)}
    plan = pc.plan(
        TIMED + " | X", n=2000, eps=[1, 4], estimand=estimand, horizon=100, bounds=bounds
    )
    assert "60% of the times end with the event" in " ".join(str(plan).split())
    for planned, eps in zip(
        plan.table["half-width to"] / plan.planner.ends[1], (1, 4), strict=True
    ):
        low, high = fit(TIMED + " | X", estimand=estimand, eps=eps).conf_int().iloc[0]
        assert 0.5 < 2 * planned / (high - low) < 2


@pytest.mark.slow
def test_times_of_which_most_reach_the_horizon_are_covered() -> None:
    """Most scores have one value. Fewer than 12 of 20 intervals hold in 2e-7 of runs."""
    for formula in (TIMED, TIMED + " | X"):
        fits = []
        for seed in range(20):
            rng = np.random.default_rng([5, seed])
            t, x, died = rng.random(3000) < 0.5, rng.random(3000), rng.random(3000) < 0.6
            days = 300 * rng.beta(1.5, 1.5, 3000)
            rows = pd.DataFrame({"days": days, "died": 1 * died, "T": 1 * t, "X": x})
            fits.append(fit(formula, rows, horizon=130, eps=0.5, seed=seed))
        assert missed(fits, 0) <= 8
