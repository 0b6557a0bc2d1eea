"""Logit and Poisson regressions: those of statsmodels at a large budget, with intervals that hold.

Newton's step is made once, so that even without noise an estimate is that of statsmodels only up to
a part of its standard error, which the interval contains.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from fit_helpers import logit, made_again, poisson
from hypothesis import given
from scipy.special import expit

import privcausal as pc
from privcausal.features.design import Rows
from privcausal.features.functions import Constant, Family
from privcausal.testing import seeded_noise
from privcausal.vault import LinkWeight, Outcome, WorkingResidual

BOUNDS: dict[str, Any] = {
    "a": (-4, 4), "b": (0, 12), "k": ["u", "v", "w"], "y": [0, 1], "c": (0, 60), "w": (0, 5),
    "g": (0, 500),
}  # fmt: skip
CALLS = {"y": (logit, smf.logit), "c": (poisson, smf.poisson)}


def table(size: int, seed: int, base: float = -0.6) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=size).clip(-4, 4), rng.gamma(2, 1, size).clip(0, 12)
    k = rng.choice(list("uvw"), size, p=[0.5, 0.3, 0.2])
    eta = base + 0.4 * a - 0.1 * (b - 2) + 0.5 * (k == "w")
    y = (rng.random(size) < expit(eta)) * 1
    c = rng.poisson(np.exp(eta + 1) * rng.gamma(3, 1 / 3, size)).clip(0, 60)
    columns = {"a": a, "b": b, "k": k, "y": y, "c": c, "w": rng.uniform(0.5, 5, size)}
    return pd.DataFrame(columns | {"g": rng.integers(0, 500, size)})


TRUTH = {"C(k)[T.v]": 0.0, "C(k)[T.w]": 0.5, "a": 0.4, "b": -0.1}
ROWS = table(20_000, 1)


@pytest.mark.parametrize("outcome", CALLS)
@pytest.mark.parametrize("formula", ["a + b", "a + b + C(k)", "a * C(k)", "C(k):a", "1"])
def test_without_noise_it_is_nearly_that_of_statsmodels(outcome: str, formula: str) -> None:
    call, model = CALLS[outcome]
    fit = call(f"{outcome} ~ {formula}", ROWS, bounds=BOUNDS, exact=True)
    known = model(f"{outcome} ~ {formula}", ROWS).fit(disp=0, cov_type="HC0")
    assert sorted(fit.params.index) == sorted(known.params.index)
    unit = known.bse[fit.params.index]
    assert (np.abs(fit.params - known.params[fit.params.index]) < 0.5 * unit).all()
    np.testing.assert_allclose(fit.bse, unit, rtol=0.1)


@pytest.mark.parametrize("outcome", CALLS)
def test_weights_and_errors_of_statsmodels(outcome: str) -> None:
    call, _ = CALLS[outcome]
    fit = call(f"{outcome} ~ a + b", ROWS, bounds=BOUNDS, weights="w", exact=True)
    family = {"y": "Binomial", "c": "Poisson"}[outcome]
    known = sm.GLM(
        ROWS[outcome],
        sm.add_constant(ROWS[["a", "b"]]),
        family=getattr(sm.families, family)(),
        freq_weights=ROWS["w"] / ROWS["w"].mean(),
    ).fit()
    assert (np.abs(fit.params.to_numpy() - known.params.to_numpy()) < 0.5 * fit.bse).all()
    control = pc.Control(cluster="g", max_cluster_rows=90)
    clusters = call(f"{outcome} ~ a + b", ROWS, bounds=BOUNDS, control=control, exact=True)
    grouped = CALLS[outcome][1](f"{outcome} ~ a + b", ROWS).fit(
        disp=0, cov_type="cluster", cov_kwds={"groups": ROWS["g"]}
    )
    np.testing.assert_allclose(clusters.bse, grouped.bse[clusters.params.index], rtol=0.15)


def test_an_outcome_of_one_in_a_hundred_has_nearly_the_errors_of_statsmodels() -> None:
    """The first fit clipped such outcomes, so that one step was far, and its curvature an error."""
    rows = table(40_000, 4, base=-4.4)
    fit = logit("y ~ a", rows, bounds=BOUNDS, eps=4, seed=1)
    known = smf.logit("y ~ a", rows).fit(disp=0, cov_type="HC0")
    assert (fit.bse < 1.5 * known.bse[fit.params.index]).all()
    assert (np.abs(fit.params - known.params[fit.params.index]) < 4 * fit.bse).all()


@pytest.mark.slow
@pytest.mark.parametrize("outcome", CALLS)
@pytest.mark.parametrize(("size", "eps"), [(4000, 2.0), (20_000, 1.0)])
def test_intervals_hold(outcome: str, size: int, eps: float) -> None:
    """Each coefficient in at least 0.87 of 120 fits: 1e-6 for a coverage of .95."""
    call, fits = CALLS[outcome][0], []
    for k in range(120):
        rows = table(size, 100 + k)
        fits.append(call(f"{outcome} ~ a + b + C(k)", rows, bounds=BOUNDS, eps=eps, seed=k))
    names = list(fits[0].params.index)
    limits = np.array([fit.conf_int().to_numpy() for fit in fits])
    for name, truth in TRUTH.items():
        low, high = limits[:, names.index(name)].T
        assert np.mean((low <= truth) & (truth <= high)) >= 0.85, name


FAMILIES = [Family("logit", -6.0, 6.0, *cut) for cut in ((), (0.15,))]
FAMILIES += [Family("poisson", -3.0, 2.0, *cut) for cut in ((), (0.5,))]


@given(eta=st.floats(-1e6, 1e6), y=st.floats(0, 1), family=st.sampled_from(FAMILIES))
def test_weights_and_residuals_are_within_their_bounds(eta: float, y: float, family: Any) -> None:
    top = 1.0 if family.name == "logit" else float(np.exp(family.hi))
    batch: Any = type("B", (), {"rows": Rows({}, 1, None), "y": np.array([top * y])})()
    weight = LinkWeight(family, Constant(eta))(batch)
    residual = WorkingResidual(family, Constant(eta), Outcome(0.0, top))
    assert 0 <= weight[0] <= 1
    assert abs(residual(batch)[0]) <= residual.bound
    mean = family.mean(np.array([eta]))
    np.testing.assert_allclose(residual(batch)[0] * family.weight(mean), top * y - mean)


def test_what_does_not_fit_is_refused_before_any_charge(unspent: pc.Ledger) -> None:
    with pytest.raises(pc.SchemaError, match="two declared values"):
        pc.logit("c ~ a", ROWS, bounds=BOUNDS, ledger=unspent)
    with pytest.raises(pc.SchemaError, match="start at 0"):
        pc.poisson("a ~ b", ROWS, bounds=BOUNDS, ledger=unspent)
    with pytest.raises(pc.BudgetError, match=r"moments of the columns\..*rows are required"):
        pc.logit("y ~ a + b + C(k)", ROWS.head(900), bounds=BOUNDS, eps=0.5, ledger=unspent)


def test_results_speak_of_odds() -> None:
    fit = logit("y ~ a + b + C(k)", ROWS, bounds=BOUNDS, eps=8, seed=1)
    known = smf.logit("y ~ a + b + C(k)", ROWS).fit(disp=0)
    names = fit.params.index[1:]
    printed = str(fit.summary(exponentiate=True))
    assert "Odds Ratios" in printed
    assert f"{np.exp(fit.params['a']):.4f}" in printed
    assert "odds ratios" in str(fit.summary(full=True))
    margins = fit.get_margeff().summary_frame()
    theirs = known.get_margeff()
    gap = margins["mean"] - pd.Series(theirs.margeff, known.params.index[1:])[names]
    assert (gap.abs() < 4 * margins["mean_se"]).all()
    frame = fit.predict(ROWS.head(50))
    assert ((frame["conf_low"] > 0) & (frame["conf_high"] < 1)).all()
    assert np.abs(frame["estimate"] - known.predict(ROWS.head(50))).max() < 0.05
    assert np.isnan(fit.rsquared)
    assert "Logit" in str(pc.compare({"private": fit, "logit": known}))
    assert "Rate Ratios" in str(
        poisson("c ~ a", ROWS, bounds=BOUNDS, eps=8).summary(exponentiate=True)
    )


def test_a_fit_is_saved_printed_and_made_again(tmp_path: Any) -> None:
    fit = logit("y ~ a + C(k)", ROWS, bounds=BOUNDS, eps=8, seed=3)
    fit.save(tmp_path / "fit.json")
    again = pc.load(tmp_path / "fit.json")
    assert isinstance(again, pc.GeneralizedResult)
    pd.testing.assert_frame_equal(again.conf_int(), fit.conf_int())
    assert "cov_type" not in fit.call
    assert (made_again(fit, ROWS, seed=3).params == fit.params).all()
    fit.report(tmp_path / "fit.html")
    assert "Private Logit Regression" in (tmp_path / "fit.html").read_text()


def test_plans_say_the_width() -> None:
    with seeded_noise(1):
        plan = pc.plan("y ~ a + b", learner="logit", n=20_000, eps=1, bounds=BOUNDS, like=ROWS)
        fit = pc.logit("y ~ a + b", ROWS, bounds=BOUNDS, eps=1)
    limits = fit.conf_int().loc["a"]
    half = (limits.iloc[1] - limits.iloc[0]) / 2
    table_ = plan.table.iloc[0]
    assert table_["half-width from"] < half < table_["half-width to"]
    with pytest.raises(pc.BudgetError, match="required"):
        pc.logit("y ~ a + b", ROWS.head(300), bounds=BOUNDS, eps=1)


def test_labels_of_an_outcome_are_its_two_values() -> None:
    rows = ROWS.assign(y=np.where(ROWS["y"] == 1, "yes", "no"))
    fit = logit("y ~ a", rows, bounds=BOUNDS | {"y": ["no", "yes"]}, eps=8, seed=4)
    number = logit("y ~ a", ROWS, bounds=BOUNDS, eps=8, seed=4)
    assert fit.params["a"] == pytest.approx(number.params["a"], abs=5 * fit.bse["a"])
    assert fit.params["a"] > 0


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e3])
@pytest.mark.parametrize("loose", [1.0, 20.0])
def test_a_rate_ratio_depends_neither_on_units_nor_on_loose_bounds(
    unit: float, loose: float
) -> None:
    """Each within five standard errors: 1e-6."""
    rows = ROWS.assign(c=ROWS["c"] * unit)
    fit = poisson("c ~ a", rows, bounds=BOUNDS | {"c": (0, 60 * unit * loose)}, eps=8, seed=5)
    known = smf.poisson("c ~ a", ROWS).fit(disp=0, cov_type="HC0")
    assert abs(fit.params["a"] - known.params["a"]) < 5 * known.bse["a"]
    assert fit.bse["a"] < 3 * known.bse["a"]


def test_a_poisson_regression_of_two_values_gives_risk_ratios() -> None:
    fit = poisson("y ~ a", ROWS, bounds=BOUNDS, eps=8, seed=6)
    known = smf.poisson("y ~ a", ROWS).fit(disp=0, cov_type="HC0")
    assert abs(fit.params["a"] - known.params["a"]) < 5 * known.bse["a"]
