"""Average effects of several arms: their limits, their truths, and what is said of them."""

from __future__ import annotations

import time
import warnings
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from fit_helpers import missed, private
from textbook import textbook

import privcausal as pc
from privcausal.estimators import private as several
from privcausal.estimators.averages import WeightedNuisances as Weighed
from privcausal.features.functions import Constant
from privcausal.features.functions import NuisanceTriple as Nuisance
from privcausal.inference.regression import Remainder
from privcausal.testing import seeded_noise

FORMULA = "Y ~ T | X1 + X2"
BOUNDS: dict[str, Any] = {
    "Y": (-8, 8), "X1": (-1, 1), "X2": (-1, 1), "T": ["a", "b", "c"], "site": ["north", "south"],
}  # fmt: skip
TRUTH = {"T[T.b]": 0.5, "T[T.c]": 1.0, "E[Y(a)]": 7 / 6, "E[Y(b)]": 5 / 3, "E[Y(c)]": 13 / 6}


def study(n: int, seed: int = 0) -> pd.DataFrame:
    """Arms depend on x by a multinomial logit, and effects vary: 0.5 + x1 / 2 and 1 + 0.3 x2."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 2))
    drift = np.stack([0 * x[:, 0], 0.5 * x[:, 0] + 0.3 * x[:, 1], -0.6 * x[:, 0]], axis=1)
    arm = (drift + rng.gumbel(size=(n, 3))).argmax(axis=1)
    effect = np.stack([0 * x[:, 0], 0.5 + 0.5 * x[:, 0], 1 + 0.3 * x[:, 1]], axis=1)
    y = 1 + x[:, 0] + 0.5 * x[:, 1] ** 2 + effect[np.arange(n), arm] + rng.normal(size=n)
    frame = pd.DataFrame({"Y": y, "T": np.array(list("abc"))[arm], "X1": x[:, 0], "X2": x[:, 1]})
    return frame.assign(site=np.where(x[:, 0] > 0, "north", "south"))


def fit(data: pd.DataFrame, **options: Any) -> Any:
    return private(options.pop("formula", FORMULA), data, **{"bounds": BOUNDS} | options)


def test_without_noise_it_is_the_doubly_robust_mean_of_each_arm() -> None:
    """With given nuisances: the means of m + 1(T = k) (Y - m)/p, and their joint covariance."""
    data = study(1500)
    p, m = np.array([0.3, 0.45, 0.25]), np.array([0.2, 1.0, -0.5])
    given = [
        Weighed((Nuisance(Constant(a), Constant(0.0), Constant(b)),), Remainder(0.0, 0.0))
        for a, b in zip(p.tolist(), m.tolist(), strict=True)
    ]
    with textbook(), mock.patch.object(several, "choose_limits", side_effect=given):
        found = fit(data, groups="site")
    own = data["T"].to_numpy()[:, None] == np.array(list("abc"))
    scores = m + own * (data["Y"].to_numpy()[:, None] - m) / p
    scores = np.hstack([scores[:, 1:] - scores[:, :1], scores])
    assert found.params.index.tolist() == list(TRUTH)
    assert found.params.to_numpy() == pytest.approx(scores.mean(axis=0), abs=1e-6)
    cov = np.cov(scores.T, ddof=0) / len(data)
    assert found.estimate.averages.sampling[:5, :5] == pytest.approx(cov, abs=2e-4)
    north = scores[(data["site"] == "north").to_numpy()].mean(axis=0)
    groups = [f"{term}:site[north]" for term in TRUTH]
    assert found.gate.loc[groups, "estimate"].to_numpy() == pytest.approx(north, abs=1e-6)


@pytest.mark.slow
def test_without_noise_many_rows_give_the_truth() -> None:
    """Within 5 standard errors of 200,000 rows (a chance of 3e-6): confounding is taken off."""
    data = study(200_000, 3)
    found = fit(data, exact=True)
    error = (found.params - pd.Series(TRUTH)).abs()
    assert (error < 5 * np.sqrt(np.diag(found.estimate.averages.sampling))).all()
    plain = data.groupby("T")["Y"].mean()
    assert plain["b"] - plain["a"] - TRUTH["T[T.b]"] > 10 * found.bse["T[T.b]"]


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["substitute", "add_remove"])
def test_intervals_cover(neighbors: str) -> None:
    """Of 40 fits, at most 8 miss a term (a chance below 1e-4 at 95 %)."""
    fits = (fit(study(3000, k + 1), eps=1.0, neighbors=neighbors, seed=k) for k in range(40))
    assert (missed(fits, list(TRUTH.values())) <= 8).all()


def test_effects_are_differences_of_the_arms() -> None:
    found = fit(study(3000), groups="site", seed=1)
    means = found.params[["E[Y(a)]", "E[Y(b)]", "E[Y(c)]"]].to_numpy()
    assert found.params.iloc[:2].to_numpy() == pytest.approx(means[1:] - means[0])
    told = found.contrast(["T[T.c] - T[T.b]", "E[Y(c)] - E[Y(b)]", "T[T.b]:site[north] - T[T.b]"])
    assert told.frame["estimate"].iloc[0] == pytest.approx(told.frame["estimate"].iloc[1])
    assert np.isfinite(told.frame["std_error"]).all()
    assert np.isfinite(found.wald_test("T[T.b] = T[T.c]").statistic)
    assert found.ate.index.tolist() == ["T[T.b]", "T[T.c]"]


def test_without_covariates_and_noise_it_is_the_difference_in_means() -> None:
    """The AIPW score of constants: shares and means of the arms, which errors of either leave."""
    data = study(20_000)
    data["T"] = np.random.default_rng(1).permutation(data["T"])
    found = fit(data, formula="Y ~ T", exact=True)
    means = data.groupby("T")["Y"].mean()
    assert found.params.iloc[:2].to_numpy() == pytest.approx(means[1:] - means["a"], abs=2e-3)
    plain = np.sqrt(
        (data.groupby("T")["Y"].var() / data.groupby("T").size()).to_numpy() @ [1, 1, 0]
    )
    assert np.sqrt(found.estimate.averages.sampling[0, 0]) == pytest.approx(plain, rel=0.05)
    assert "Causal reading requires randomized treatment" in str(found.summary(full=True))


@pytest.mark.slow
def test_what_results_say(page_of: Any, reloaded: Any) -> None:
    found = fit(study(2000), groups="site", seed=0)
    text = str(found.summary(full=True))
    assert "2 arms vs. a" in text
    assert "one for each arm" in text
    assert "Cattaneo" in found.methods
    assert reloaded(found).params.equals(found.params)
    assert found.sensitivity().term == "T[T.b]"
    report = page_of(found)
    assert "T b instead of a" in report
    assert "T c instead of a: " in report
    plan = pc.plan(FORMULA, n=2000, bounds=BOUNDS, estimand="ATE")
    assert (plan.table["half-width from"] > 0).all()


def test_limits_of_a_mean_are_in_the_bounds_of_the_outcome() -> None:
    data = study(500).assign(Y=lambda d: d["Y"] + 100)
    limits = fit(data, eps=0.05, bounds=BOUNDS | {"Y": (92, 108)}, seed=0).conf_int()
    means = limits.loc[["E[Y(a)]", "E[Y(b)]", "E[Y(c)]"]].to_numpy()
    assert ((means >= 92) & (means <= 108)).all()
    assert (limits.loc["T[T.b]"].abs() <= 16).all()


@pytest.mark.parametrize("estimand", ["ATE", "PLR"])
def test_a_label_that_was_not_declared_is_missing(estimand: str) -> None:
    data = study(4000)
    other = data["X1"] > 0.3
    found = [
        fit(data.assign(T=data["T"].mask(other, label)), estimand=estimand, exact=True).params
        for label in ("z", None)
    ]
    pd.testing.assert_series_equal(*found)


@pytest.mark.slow
def test_many_arms_take_no_minutes() -> None:
    data = study(2000).assign(T=np.random.default_rng(0).choice(list("abcdefghijkl"), 2000))
    start = time.process_time()
    fit(data, bounds=BOUNDS | {"T": list("abcdefghijkl")}, seed=0)
    assert time.process_time() - start < 20


@pytest.mark.slow
def test_an_arm_that_many_are_hardly_ever_in_is_told() -> None:
    data = study(20_000)
    data.loc[(data["X1"] > -0.4) & (data["T"] == "c"), "T"] = "a"
    with seeded_noise(0), pytest.warns(pc.PrivcausalWarning, match="for arm c"):
        found = fit(data, eps=4.0)
    assert "overlap" in found.alerts


def shop(seed: int) -> pd.DataFrame:
    """0.9 % buy, half of them at one price; three arms by lot, seven covariates."""
    rng = np.random.default_rng([9, seed])
    n = 64_000
    x = rng.standard_normal((n, 7)).clip(-3, 3)
    arm = rng.integers(0, 3, n)
    buys = rng.random(n) < 0.009 * (1 + 0.3 * arm)
    amount = np.where(rng.random(n) < 0.5, 29.99, rng.lognormal(4.6, 0.75, n)).clip(0, 500)
    frame = pd.DataFrame(x, columns=[f"X{j}" for j in range(7)])
    return frame.assign(Y=np.where(buys, amount, 0.0), T=np.array(["a", "b", "c"])[arm])


@pytest.mark.slow
def test_amounts_that_are_mostly_one_price_are_covered() -> None:
    """Truths are 0.3 and 0.6 times the first mean; 13 of 20 cover but for a chance of 3e-7."""
    rng = np.random.default_rng(0)
    whole = np.where(rng.random(2_000_000) < 0.5, 29.99, rng.lognormal(4.6, 0.75, 2_000_000))
    base = 0.009 * whole.clip(0, 500).mean()
    bounds = {"Y": (0, 500), "T": ["a", "b", "c"], **{f"X{j}": (-3, 3) for j in range(7)}}
    formula = "Y ~ T | " + " + ".join(f"X{j}" for j in range(7))
    fits = (private(formula, shop(k), bounds=bounds, eps=0.7, seed=k) for k in range(10))
    assert missed(fits, [base * 0.3, base * 0.6]).sum() <= 7


SHARES = {"a": 0.5, "b": 0.25, "c": 0.25}


def trial(n: int, seed: int) -> pd.DataFrame:
    """Arms with the shares `SHARES`; x1 explains two thirds of the outcome's variance."""
    rng = np.random.default_rng([n, seed])
    x, arm = rng.uniform(-1, 1, (n, 2)), rng.choice(3, n, p=list(SHARES.values()))
    y = 2.5 * x[:, 0] + 0.5 * arm + rng.normal(size=n)
    return pd.DataFrame({"Y": y, "T": np.array(list("abc"))[arm], "X1": x[:, 0], "X2": x[:, 1]})


@pytest.mark.slow
def test_intervals_of_a_trial_cover_and_are_narrower() -> None:
    """Of 56 intervals of 95 %, 43 at least cover: fewer has a chance below 1e-6."""
    covered, widths = [], []
    for seed in range(28):
        rows = trial(4000, seed)
        known = fit(rows, propensity=SHARES, seed=seed)
        limits = known.conf_int().iloc[:2].to_numpy()
        covered += ((limits[:, 0] <= [0.5, 1.0]) & (limits[:, 1] >= [0.5, 1.0])).tolist()
        if seed < 8:
            other = fit(rows, formula="Y ~ T", seed=seed).conf_int().iloc[:2].to_numpy()
            widths.append(np.diff(limits)[:, 0] / np.diff(other)[:, 0])
    assert len(covered) == 56
    assert sum(covered) >= 43
    assert np.median(widths) < 0.85


@pytest.mark.slow
def test_known_shares_come_back_and_are_told(reloaded: Any) -> None:
    found = fit(trial(3000, 1), propensity=SHARES, seed=1)
    again = reloaded(found)
    assert again.estimate.plan.request.propensity == SHARES
    assert str(again.summary()) == str(found.summary())
    assert "propensity={'a': 0.5, 'b': 0.25, 'c': 0.25}" in found.call
    assert "a 0.5, b 0.25, c 0.25" in str(found.summary(full=True))
    planned = pc.plan(FORMULA, n=3000, bounds=BOUNDS, propensity=SHARES, outcome_sd=1.8, r2=2 / 3)
    fits = (fit(trial(3000, seed), propensity=SHARES, seed=seed) for seed in range(4))
    widths = [float(np.diff(one.conf_int().iloc[0])[0]) / 2 for one in fits]
    assert 0.5 < planned.table["half-width to"][0] / planned.planner.ends[1] / np.mean(widths) < 2


@pytest.mark.slow
@pytest.mark.parametrize("labels", [False, True])
def test_wrong_shares_raise_an_alert(labels: bool) -> None:
    """Arm c has a fourth of the rows, six noise sds and more below the wrong share."""
    rows, bounds = trial(20_000, 2), BOUNDS
    if labels:
        rows, bounds = rows.assign(Y=(rows["Y"] > 0).astype(int)), BOUNDS | {"Y": (0, 1)}
    few = {"a": 0.5, "b": 0.42, "c": 0.08}  # below the propensity clip, but known
    for shares, told in ((SHARES, {}), (few, {"allocation"})):
        with seeded_noise(3), warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            found = fit(rows, bounds=bounds, propensity=shares)
        assert set(found.alerts) == set(told)
    assert "With a wrong propensity" in found.alerts["allocation"]
    assert "the arms' shares are public inputs" in " ".join(str(found.summary(full=True)).split())


def test_a_stage_of_each_arm_costs_one_over_the_root_of_their_number() -> None:
    stages = fit(trial(500, 1), formula="Y ~ T | X1", seed=0).estimate.plan.stages
    rho = {stage.name: stage.rho for stage in stages}
    for arm in "abc":
        share = rho[f"nuisance: treatment {arm}"] / rho["nuisance: outcome"]
        assert share == pytest.approx(0.31 / np.sqrt(3) / 0.45, rel=1e-6)
