"""The partially linear effect: its limits, its truth, and what it refuses."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from fit_helpers import missed, private
from textbook import textbook

import privcausal as pc
from privcausal.estimators import nuisances
from privcausal.testing import seeded_noise, zero_noise

FORMULA = "Y ~ T | X1 + X2"
BOUNDS: dict[str, Any] = {"Y": (-40, 40), "X1": (-1, 1), "X2": (0, 1)}
TREATMENTS: dict[str, dict[str, Any]] = {
    "a number": {"T": (-20, 20)}, "several arms": {"T": list("abcd")},
}  # fmt: skip


def study(kind: str, n: int, seed: int = 0) -> pd.DataFrame:
    """Slopes are 0.5, or 0.5, 1 and -0.4 for arms b, c and d."""
    rng = np.random.default_rng(seed)
    x1, x2 = rng.uniform(-1, 1, n), rng.uniform(0, 1, n)
    base = 2 * x1 + x2 + rng.normal(0, 1, n)
    if kind == "several arms":
        drift = np.stack([0 * x1, 0.5 * x1, 0.3 * x2 - 0.5, -0.7 - 0.4 * x1], axis=1)
        arm = (drift + rng.gumbel(size=(n, 4))).argmax(axis=1)
        effect, t = np.array([0, 0.5, 1, -0.4])[arm], np.array(list("abcd"))[arm]
    else:
        t = 2 + 1.5 * x1 - x2 + rng.normal(0, 1, n)
        effect = 0.5 * t
    return pd.DataFrame({"Y": base + effect, "T": t, "X1": x1, "X2": x2})


def fit(kind: str, data: pd.DataFrame, **options: Any) -> Any:
    bounds = options.pop("bounds", BOUNDS | TREATMENTS[kind])
    return private(FORMULA, data, estimand="PLR", bounds=bounds, **options)


@pytest.mark.parametrize("kind", TREATMENTS)
def test_without_noise_it_is_least_squares(kind: str) -> None:
    """Frisch and Waugh (1933): all slopes jointly, with the sandwich as their covariance."""
    data = study(kind, 1500)
    ols = smf.ols("Y ~ T + X1 + X2", data).fit(cov_type="HC0")
    own = [name for name in ols.params.index if name.startswith("T")]
    with textbook(norm_quantile=1.0), mock.patch.object(nuisances, "RESIDUAL_SHARE", 8.0):
        found = fit(kind, data, base="linear")
    assert found.params.to_numpy() == pytest.approx(ols.params[own].to_numpy(), abs=1e-6)
    cov = ols.cov_params().loc[own, own].to_numpy()
    assert found.estimate.averages.sampling == pytest.approx(cov, rel=2e-3, abs=1e-7)


@pytest.mark.parametrize("kind", TREATMENTS)
@pytest.mark.slow
def test_intervals_cover(kind: str) -> None:
    """Of 40 fits, at most 5 miss (a chance of 2e-3 at 95 %)."""
    truth = np.array([0.5, 1.0, -0.4] if kind == "several arms" else [0.5])
    fits = (fit(kind, study(kind, 3000, seed + 1), eps=1.0, seed=seed) for seed in range(40))
    assert (missed(fits, truth) <= 5).all()


@pytest.mark.slow
def test_a_slope_is_per_unit_of_the_treatment() -> None:
    data, bounds = study("a number", 2000), BOUNDS | {"T": (-20, 20)}
    one = fit("a number", data, bounds=bounds, seed=1)
    bounds["T"] = (-2e3, 2e3)
    other = fit("a number", data.assign(T=100 * data["T"]), bounds=bounds, seed=1)
    assert other.params["PLR"] == pytest.approx(one.params["PLR"] / 100)
    assert other.bse["PLR"] == pytest.approx(one.bse["PLR"] / 100)


@pytest.mark.slow
def test_loose_bounds_of_the_treatment_cost_little() -> None:
    data = study("a number", 20_000)
    widths = [
        fit("a number", data, bounds=BOUNDS | {"T": (2 - reach, 2 + reach)}, seed=3).bse["PLR"]
        for reach in (5, 100)
    ]
    assert widths[1] < 1.5 * widths[0]


def test_a_dose_that_few_rows_get_has_a_slope() -> None:
    """Of 3,000 rows, 5% have the dose 1, which noise hides; the others have 0."""
    rng, kept = np.random.default_rng(5), 0
    for seed in range(6):
        x = rng.uniform(-1, 1, 3000)
        t = (rng.random(3000) < 0.05).astype(float)
        data = pd.DataFrame({"Y": 0.5 * t + x + rng.normal(0, 1, 3000), "T": t, "X": x})
        with seeded_noise(seed):
            bounds = {"Y": (-6, 6), "T": (0, 1), "X": (-1, 1)}
            found = pc.private("Y ~ T | X", data, estimand="PLR", bounds=bounds, eps=1)
        low, high = found.conf_int().iloc[0]
        assert high - low < 12  # the width of the bounds of Y: without this, up to thousands
        kept += low <= 0.5 <= high
    assert kept >= 3  # of 6 intervals of 95%, fewer with probability 1e-4 at 80%; noise is seeded


def test_rows_without_a_dose_do_not_set_the_threshold() -> None:
    """Noise hides all doses but 0, whose residuals are almost zero where e(x) is at its limit."""
    rng = np.random.default_rng([5, 30, 3000])
    x = rng.normal(size=(3000, 3)).clip(-4, 4)
    some, dose = rng.random(3000) < 0.05, 2 + 0.5 * x[:, 0] + rng.normal(size=3000)
    t = np.where(some, dose.clip(0, 8), 0.0)
    y = x @ [1, 0.5, 0.3] + 0.5 * t + rng.normal(size=3000)
    data = pd.DataFrame(x, columns=list("abc")).assign(T=t, Y=y)
    bounds = dict.fromkeys("abc", (-4, 4)) | {"T": (0, 8), "Y": (-8, 12)}
    found = private("Y ~ T | a + b + c", data, estimand="PLR", bounds=bounds, eps=1, seed=30)
    low, high = found.conf_int().iloc[0]
    assert low <= 0.5 <= high
    assert high - low < 20  # the width of the bounds of Y: with the largest detected size, 7e10


@pytest.mark.slow
@pytest.mark.parametrize("kind", TREATMENTS)
def test_what_results_say(kind: str, tmp_path: Any, reloaded: Any) -> None:
    found = fit(kind, study(kind, 1000), seed=0)
    text = str(found.summary(full=True))
    assert "Private Partially Linear Effect" in text
    assert {"a number": "T in [-20, 20]", "several arms": "3 arms vs. a"}[kind] in text
    assert "clipped to [" not in text  # no propensity divides
    terms = ["T[T.b]", "T[T.c]", "T[T.d]"] if kind == "several arms" else ["PLR"]
    assert found.params.index.tolist() == terms
    assert reloaded(found).params.equals(found.params)
    assert found.sensitivity().term == terms[0]
    found.report(tmp_path / "report.html")
    plan = pc.plan(FORMULA, n=1000, bounds=BOUNDS | TREATMENTS[kind], estimand="PLR")
    assert (plan.table["half-width to"] > 0).all()
    if kind == "several arms":
        assert np.isfinite(found.wald_test("T[T.b] = T[T.c]").statistic)


def test_no_slope_of_an_arm_exceeds_the_width_of_the_bounds() -> None:
    found = fit("several arms", study("several arms", 500), eps=0.05, seed=1)
    assert (np.abs(found.estimate.averages.estimate) + found.bse > 80).any(), "the noise is large"
    assert (found.conf_int().abs() <= 80).all(axis=None)


def test_an_arm_that_nobody_has_is_told() -> None:
    data = study("several arms", 3000)
    data = data[data["T"] != "d"]
    words = "to be distinguished from noise"
    with seeded_noise(0), pytest.warns(pc.PrivcausalWarning, match=words):
        found = fit("several arms", data)
    assert "treatment" in found.alerts


@pytest.mark.parametrize("value", [2.0, 1e300, -1e300])
def test_a_treatment_without_variation_gives_no_error(value: float) -> None:
    data = study("a number", 300).assign(T=value)
    with zero_noise(), pytest.warns(pc.PrivcausalWarning):
        assert np.isfinite(fit("a number", data).params["PLR"])


@pytest.mark.parametrize("options", [{}, {"propensity": 0.4}, {"groups": ["X1 >= 0"]}])
@pytest.mark.parametrize("labels", [None, [0, 1], ["no", "yes"]])
def test_the_slope_of_two_arms_is_the_ato(options: dict[str, Any], labels: Any) -> None:
    data = study("a number", 500)
    names = np.array(labels or [0, 1])
    data["T"] = names[(data["T"] > 2).astype(int)]
    bounds = BOUNDS | ({"T": labels} if labels else {})
    one, two = (
        private(FORMULA, data, estimand=estimand, bounds=bounds, seed=3, **options)
        for estimand in ("PLR", "ATO")
    )
    assert one.params.index[0] == "ATO"
    pd.testing.assert_frame_equal(one.tidy(), two.tidy())
    assert str(one.summary()) == str(two.summary())
