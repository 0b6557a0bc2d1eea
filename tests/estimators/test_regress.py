"""Linear regression: least squares without noise, to 2^-16 of the clip, and intervals with it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from fit_helpers import made_again, privcate, regress, spied
from scipy.stats import chi2, ncx2

import privcausal as pc
from privcausal.testing import seeded_noise, zero_noise
from privcausal.vault.passes import Passes

BOUNDS = {"a": (0, 1), "b": (0, 20), "k": ["u", "v", "w"], "y": (-60, 60), "w": (0, 5)}


def table(size: int, seed: int) -> pd.DataFrame:
    """Residuals vary with `a`, and `b` is skewed."""
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(0, 1, size), rng.gamma(2, 1, size).clip(0, 20)
    k = rng.choice(list("uvw"), size, p=[0.6, 0.3, 0.1])
    y = 1 + 2 * a - b + a * b + 2 * (k == "w") + rng.normal(size=size) * (1 + a)
    return pd.DataFrame({"a": a, "b": b, "k": k, "y": y, "w": rng.uniform(0.5, 5, size)})


ROWS = table(3000, 1)


def without_noise(formula: str, **options: Any) -> pc.RegressionResult:
    return regress(formula, ROWS, bounds=BOUNDS, **options, exact=True)


FORMULAS = ["y ~ a + b", "y ~ a * b + C(k)", "y ~ I(b ** 2) + I(a ** 2)", "y ~ C(k):a", "y ~ 1"]


@pytest.mark.parametrize(
    ("formula", "cov_type", "weights"),
    [
        *((formula, "nonrobust", None) for formula in FORMULAS),
        *(("y ~ a * b + C(k)", cov_type, None) for cov_type in ("HC0", "HC1")),
        *(("y ~ a + b", cov_type, "w") for cov_type in ("nonrobust", "HC0", "HC1")),
    ],
)
def test_without_noise_it_is_least_squares(formula: str, cov_type: Any, weights: Any) -> None:
    """HC to a thousandth: clipping after the second fit takes a little from the largest."""
    fit = without_noise(formula, weights=weights, control=pc.Control(cov_type=cov_type))
    model = smf.wls(formula, ROWS, weights=ROWS["w"]) if weights else smf.ols(formula, ROWS)
    known, rtol = model.fit(cov_type=cov_type), 1e-4 if cov_type == "nonrobust" else 1e-3
    np.testing.assert_allclose(fit.params, known.params[fit.params.index], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(fit.bse, known.bse[fit.params.index], rtol=rtol)


@pytest.mark.parametrize(
    "term",
    [
        "C(k, Treatment('v'))",
        "C(k, Treatment(reference='v'))",
        'C(k,Treatment(reference="v"))',
        "C(k, Sum)",
        "C(k, Helmert)",
        "C(t)",
        "C(t, Sum)",
        "C(t) * a",
        "C(i) + C(k, Sum) * a",
    ],
)
def test_names_and_codings_are_those_of_statsmodels(term: str) -> None:
    rows = ROWS.assign(t=ROWS.a < 0.4, i=1 * (ROWS.b > 2))
    known = smf.ols(f"y ~ {term}", rows).fit()
    for declared in ({}, {"t": [False, True]}):
        fit = regress(f"y ~ {term}", rows, bounds=BOUNDS | {"i": [0, 1]} | declared, exact=True)
        assert sorted(fit.params.index) == sorted(known.params.index)
        np.testing.assert_allclose(fit.params, known.params[fit.params.index], rtol=1e-3, atol=1e-3)


def points(size: int, seed: int) -> pd.DataFrame:
    """Whole numbers, and a treatment whose effect is 1 at no cigarettes and 1.5 otherwise."""
    rng = np.random.default_rng(seed)
    cigs = np.where(rng.random(size) < 0.6, 0, rng.integers(1, 61, size))
    month, day = rng.integers(1, 13, size), rng.integers(1, 8, size)
    a, t = rng.uniform(0, 1, size), rng.integers(0, 2, size)
    b = np.where(rng.random(size) < 0.3, a, rng.uniform(0, 1, size))
    y = 0.5 * (cigs > 0) + 0.3 * (month == 6) * a + rng.normal(0, 0.3, size)
    z = t * (1 + 0.5 * (cigs > 0)) + rng.normal(0, 0.3, size)
    columns = {"cigs": cigs, "month": month, "day": day, "a": a, "b": b, "t": t, "y": y, "z": z}
    return pd.DataFrame(columns)


POINT_BOUNDS = {
    "y": (-3, 4), "z": (-3, 4), "cigs": (0, 60), "month": (1, 12), "day": (1, 7), "a": (0, 1),
    "b": (0, 1),
}  # fmt: skip


@pytest.mark.parametrize(
    "terms",
    [
        "I(month == 6)",
        "a + I(month != 6)",
        "I(month >= 12)",
        "I(cigs > 0)",
        "a + I(cigs > 0)",
        "I(month > 11.999)",
        "I((month == 6) & (day == 1))",
        "a * I(month == 6)",
        "I(abs(a - b) < 0.001)",
        "I(1 * (abs(a - b) < 0.001) - 1 * (abs(a - b - 0.5) < 0.001))",
    ],
)
def test_a_term_that_jumps_at_a_point_is_a_usual_column(terms: str) -> None:
    """Constant on almost all of its domain: least squares without noise, and near it with."""
    rows = points(5000, 7)
    known = smf.ols(f"y ~ {terms}", rows).fit()
    params, bse = (
        x.rename(lambda name: name.replace("[T.True]", "")) for x in (known.params, known.bse)
    )
    fit = regress(f"y ~ {terms}", rows, bounds=POINT_BOUNDS, exact=True)
    names = fit.params.index
    np.testing.assert_allclose(fit.params, params[names], atol=1e-3)
    np.testing.assert_allclose(fit.bse, bse[names], rtol=1e-3)
    noisy = regress(f"y ~ {terms}", rows, eps=5, bounds=POINT_BOUNDS, seed=1)
    assert (noisy.bse < 6 * bse[names]).all()
    assert (abs(noisy.params - params[names]) < 5 * noisy.bse).all()  # 1e-6 for two


@pytest.mark.parametrize("terms", ["I(cigs > 0)", "I(month == 6)", "I(month >= 12)"])
def test_a_plan_has_rows_where_a_term_jumps(terms: str) -> None:
    """Its half-width is that of an indicator of a usual share, and not of one without rows."""
    widths = [
        pc.plan(f"y ~ {term}", n=5000, eps=5, bounds=POINT_BOUNDS, learner="regress").table
        for term in (terms, "I(month >= 6)")
    ]
    assert widths[0]["half-width to"].item() < 2 * widths[1]["half-width to"].item()


def test_effects_at_a_point_are_those_of_its_rows() -> None:
    rows = points(5000, 8)
    fit = privcate("z ~ t | I(cigs > 0)", rows, eps=5, bounds=POINT_BOUNDS, seed=1)
    at = fit.predict({"cigs": [0, 10]})
    assert (abs(at["estimate"] - [1.0, 1.5]) < 5 * at["std_error"]).all()  # 1e-6 for two
    assert (at["std_error"] < 0.1).all()


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
def test_rows_of_weight_zero_are_not_observations(share: float) -> None:
    """Standard errors for equal variances are those without such rows, as in R."""
    rows = ROWS.assign(w=np.random.default_rng(2).random(len(ROWS)) < share).astype({"w": float})
    fit = regress("y ~ a", rows, bounds=BOUNDS | {"w": (0, 1)}, weights="w", exact=True)
    known = smf.ols("y ~ a", rows[rows.w > 0]).fit()
    np.testing.assert_allclose(fit.params, known.params[fit.params.index], atol=1e-3)
    np.testing.assert_allclose(fit.bse, known.bse[fit.params.index], rtol=1e-3)


def test_hc1_is_hc0_by_the_factor_of_statsmodels() -> None:
    formula, rows = "y ~ a * b + C(k)", ROWS.head(60)
    with zero_noise():
        own = [
            pc.regress(formula, rows, bounds=BOUNDS, control=pc.Control(cov_type=cov_type))
            for cov_type in ("HC0", "HC1")
        ]
    known = [smf.ols(formula, rows).fit(cov_type=cov_type) for cov_type in ("HC0", "HC1")]
    factor = float((known[1].bse / known[0].bse).iloc[0])
    assert factor == pytest.approx(np.sqrt(60 / 54))
    np.testing.assert_allclose(own[1].bse / own[0].bse, factor, rtol=1e-6)
    assert own[1].budget["rho"].tolist() == own[0].budget["rho"].tolist()
    for cov_type, fit in zip(("HC0", "HC1"), own, strict=True):
        assert cov_type in str(fit.summary(full=True))


def test_without_noise_rows_with_missing_values_are_left_out() -> None:
    holes = ROWS.copy()
    holes.loc[::7, "y"] = np.nan
    holes.loc[::11, "k"] = None
    fit = regress("y ~ a + C(k)", holes, bounds=BOUNDS, exact=True)
    known = smf.ols("y ~ a + C(k)", holes).fit()
    np.testing.assert_allclose(fit.params, known.params[fit.params.index], rtol=1e-4, atol=1e-4)


def test_what_is_explained_and_joint_tests_are_those_of_statsmodels() -> None:
    fit, known = without_noise("y ~ a * b + C(k)"), smf.ols("y ~ a * b + C(k)", ROWS).fit()
    assert fit.rsquared == pytest.approx(known.rsquared, abs=1e-3)
    assert fit.rsquared_adj == pytest.approx(known.rsquared_adj, abs=1e-3)
    order = list(fit.params.index)
    joint = known.f_test(np.eye(len(order))[1:])
    assert float(fit.f_test().fvalue) == pytest.approx(float(joint.fvalue), rel=1e-3)
    assert fit.fvalue == pytest.approx(known.fvalue, rel=1e-3)
    assert float(fit.t_test("a = 0").frame["statistic"].iloc[0]) == pytest.approx(
        known.tvalues["a"], rel=1e-3
    )


@pytest.mark.parametrize(
    "hypothesis",
    [
        "a:b = 0",
        "a = 0, a:b = 1",
        "(a = 0), (a:b = 0)",
        "2 * a + 0.5 * a:b = 1",
        "C(k, Treatment('v'))[T.u] = C(k, Treatment('v'))[T.w]",
        "C(k, Treatment('v'))[T.w]",
    ],
)
def test_constraints_name_terms_as_in_statsmodels(hypothesis: str) -> None:
    formula = "y ~ a * b + C(k, Treatment('v'))"
    known = smf.ols(formula, ROWS).fit().wald_test(hypothesis, use_f=False, scalar=True)
    fit = without_noise(formula)
    assert float(fit.wald_test(hypothesis).statistic) == pytest.approx(known.statistic, rel=1e-3)


@pytest.mark.parametrize("term", ["I(a**2)", "I( a ** 2 )", "I(a ** 2)"])
def test_spaces_in_the_call_of_a_term_do_not_matter(term: str) -> None:
    fit = without_noise("y ~ a + b + a:I(a**2) + I(a**2)")
    first = fit.wald_test("I(a ** 2) = 0, a:I(a ** 2) = b")
    assert fit.wald_test(f"{term} = 0, a:{term} = b").statistic == first.statistic
    assert fit.contrast(f"b - {term}").frame["estimate"].iloc[0] == pytest.approx(
        fit.params["b"] - fit.params["I(a ** 2)"]
    )


def test_constraints_on_names_with_spaces() -> None:
    with zero_noise():
        rows = ROWS.rename(columns={"a": "a b"})
        fit = pc.regress("y ~ `a b` * b", rows, bounds=BOUNDS | {"a b": (0, 1)})
    own = fit.contrast("a b").frame["statistic"].iloc[0]
    for name in ("a b", "`a b`"):
        assert float(fit.wald_test(f"{name} = 0").statistic) == pytest.approx(own**2)
    assert fit.wald_test("a b:b = 0").df_denom == 1


@pytest.mark.parametrize("name", ["my col", "a.b", "50%"])
def test_levels_of_factors_with_quoted_names_can_be_compared(name: str) -> None:
    fit = regress(
        f"y ~ a + C(`{name}`)", ROWS.rename(columns={"k": name}),
        bounds={"a": (0, 1), "y": (-60, 60), name: list("uvw")}, exact=True
    )  # fmt: skip
    known = without_noise("y ~ a + C(k)").t_test_pairwise("k").frame
    v, w = (f"C(`{name}`)[T.{level}]" for level in "vw")
    assert {v, w} < {*fit.params.index}
    for found in (
        fit.contrast(f"{w} - {v}"), fit.t_test(f"{w} - {v} = 0"), fit.t_test(f"`{w}` = `{v}`"),
        fit.contrast(f"{w} - {v}".replace("`", "")),
    ):  # fmt: skip
        assert float(found.effect[0]) == pytest.approx(known["estimate"]["w-v"], abs=1e-4)
    for factor in (name, f"C(`{name}`)"):
        pairs = fit.t_test_pairwise(factor).frame
        np.testing.assert_allclose(pairs["estimate"], known["estimate"], atol=1e-4)


def test_a_prediction_is_that_of_statsmodels() -> None:
    fit, known = without_noise("y ~ a + C(k)"), smf.ols("y ~ a + C(k)", ROWS).fit()
    new = pd.DataFrame({"a": [0.2, 0.9, np.nan], "k": ["u", "w", "v"]}, index=["p", "q", "r"])
    found = fit.predict(new)
    wanted = known.get_prediction(new.iloc[:2]).summary_frame()
    np.testing.assert_allclose(found["estimate"].iloc[:2], wanted["mean"], atol=1e-4)
    np.testing.assert_allclose(found["std_error"].iloc[:2], wanted["mean_se"], rtol=1e-4)
    assert found.loc["r"].isna().all()


@pytest.mark.slow
@pytest.mark.parametrize("neighbors", ["substitute", "add_remove"])
def test_intervals_cover(neighbors: Any) -> None:
    """Of 200 intervals of 95 %, 168 at least cover: fewer has a chance below 1e-6."""
    truth, covered, tried = {"Intercept": 1.0, "a": 2.0, "b": -1.0, "C(k)[T.w]": 2.0}, 0, 0
    for seed in range(50):
        rng = np.random.default_rng([7, seed])
        rows = table(4000, seed)
        rows["y"] = 1 + 2 * rows.a - rows.b + 2 * (rows.k == "w") + rng.normal(size=4000)
        fit = regress(
            "y ~ a + b + C(k)", rows, bounds=BOUNDS, neighbors=neighbors, eps=2, seed=seed
        )
        limits = fit.conf_int().loc[list(truth)]
        seen = limits.notna().all(axis=1)
        inside = (limits[0] <= pd.Series(truth)) & (pd.Series(truth) <= limits[1])
        covered, tried = covered + int((inside | ~seen).sum()), tried + len(truth)
        assert seen.all()
    assert tried == 200
    assert covered >= 168


@pytest.mark.slow
def test_a_factor_with_many_levels() -> None:
    """50 levels and 20,000 rows at eps = 1; of four intervals, two at least cover."""
    effects, errors, covered = np.random.default_rng(5).normal(size=50), [], 0
    bounds = {"y": (-10, 10), "x": (-5, 5), "state": [str(k) for k in range(50)]}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        state = rng.integers(50, size=20_000)
        x = 0.5 * effects[state] + rng.normal(size=20_000)
        y = 0.3 * x + effects[state] + rng.normal(size=20_000)
        rows = pd.DataFrame({"y": y, "x": x, "state": state.astype(str)})
        fit = regress("y ~ x + C(state)", rows, bounds=bounds, seed=seed)
        errors.append(fit.params["x"] - 0.3)
        covered += int(fit.conf_int().loc["x", 0] <= 0.3 <= fit.conf_int().loc["x", 1])
    assert covered >= 2
    assert np.sqrt(np.mean(np.square(errors))) < 6 / np.sqrt(20_000)


def test_noise_that_hides_columns_widens_intervals() -> None:
    """300 rows at eps = .1: every coefficient has a finite interval, much wider than with 3,000."""
    with seeded_noise(3):
        few = pc.regress("y ~ a + b + C(k)", ROWS.iloc[:300], bounds=BOUNDS, eps=0.1)
        many = pc.regress("y ~ a + b + C(k)", ROWS, bounds=BOUNDS, eps=4)
    assert np.isfinite(few.conf_int()).all(axis=None)
    assert (few.bse > 5 * many.bse).all()


def test_collinear_columns_have_wide_intervals() -> None:
    rows = ROWS.assign(c=ROWS["b"])
    with seeded_noise(3):
        fit = pc.regress("y ~ b + c", rows, bounds={**BOUNDS, "c": (0, 20)}, eps=4)
        alone = pc.regress("y ~ b", rows, bounds=BOUNDS, eps=4)
    assert np.isfinite(fit.conf_int()).all(axis=None)
    assert (fit.bse[["b", "c"]] > 5 * alone.bse["b"]).all()


@pytest.mark.parametrize("zeros", [0.5, 0.95, 1.0])
def test_an_outcome_that_is_mostly_zero_has_finite_wide_intervals(zeros: float) -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(size=1000)
    y = np.where(rng.random(1000) < zeros, 0.0, rng.exponential(10, 1000)).clip(0, 100)
    bounds = {"x": (0, 1), "y": (0, 100)}
    for seed in range(5):
        fit = regress("y ~ x", pd.DataFrame({"x": x, "y": y}), bounds=bounds, seed=seed)
        assert np.isfinite(fit.conf_int()).all(axis=None)
        assert float(np.diff(fit.conf_int().loc["x"])[0]) > 3.9 * y.std() / np.sqrt(1000 / 12)


@pytest.mark.slow
@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.95])
def test_outliers_at_one_end_of_a_column_are_covered(zeros: float) -> None:
    """Amounts, most of them zero, whose tail grows with x; of 60 intervals, 48 at least cover."""
    rng, bounds, covered = np.random.default_rng(1), {"x": (0, 1), "y": (0, 100)}, 0

    def rows(size: int) -> pd.DataFrame:
        x, some = rng.uniform(size=size), rng.random(size) >= zeros
        return pd.DataFrame(
            {"x": x, "y": (some * rng.exponential(10, size) * 8 * x**3).clip(0, 100)}
        )

    truth = smf.ols("y ~ x", rows(1_000_000)).fit().params["x"]
    for seed in range(20):
        for eps in (1, 4, 10):
            robust = pc.Control(cov_type="HC0")
            fit = regress("y ~ x", rows(5000), bounds=bounds, eps=eps, control=robust, seed=seed)
            low, high = fit.conf_int().loc["x"]
            covered += int(low <= truth <= high)
    assert covered >= 48


@pytest.mark.parametrize("share", [0.97, 1.0])
def test_an_outcome_at_one_value_has_a_result(share: float) -> None:
    """Answers on a scale from 1 to 5: nearly all of them, or all, are 3."""
    rng = np.random.default_rng(6)
    y = np.where(rng.random(2000) < share, 3.0, rng.integers(1, 6, 2000))
    rows = pd.DataFrame({"y": y, "a": rng.uniform(size=2000)})
    for eps in (0.1, 1, 10):
        fit = regress("y ~ a", rows, bounds={"y": (1, 5), "a": (0, 1)}, eps=eps, seed=4)
        limits = fit.conf_int().loc["a"]
        assert np.isfinite(fit.conf_int()).all(axis=None)
        assert limits[0] <= 0 <= limits[1]


@pytest.mark.parametrize(("cov_type", "most"), [("nonrobust", 4), ("HC1", 5)])
def test_rows_are_read_five_times(cov_type: Any, most: int) -> None:
    with spied(Passes, "sums") as read:
        regress("y ~ a + b", ROWS, bounds=BOUNDS, control=pc.Control(cov_type=cov_type), seed=1)
    assert len(read) == most


def test_the_residuals_decide_the_width() -> None:
    """A range of the outcome 40 times as wide as its residuals costs little."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(5000, 3)).clip(-5, 5)
    rows = pd.DataFrame({"p": x[:, 0], "q": x[:, 1], "r": x[:, 2]})
    rows["y"] = x @ [1.0, 0.5, 0.0] + rng.normal(size=5000)
    bounds = {"p": (-5, 5), "q": (-5, 5), "r": (-5, 5)}
    widths = []
    for reach in (20, 200):
        fit = regress("y ~ p + q + r", rows, bounds={**bounds, "y": (-reach, reach)}, seed=3)
        half = np.diff(fit.conf_int().loc[["p", "q", "r"]])[:, 0] / 2
        widths.append(float(half.mean()) / (1.96 / np.sqrt(5000)))
    assert widths[0] < 2.5
    assert widths[1] < 1.7 * widths[0]


def test_alerts_name_leverage_and_bias() -> None:
    rng = np.random.default_rng(2)
    far = np.where(
        rng.random(20_000) < 0.005, rng.uniform(500, 1000, 20_000), rng.gamma(2, 5, 20_000)
    )
    rows = pd.DataFrame({"far": far, "y": 0.01 * far + rng.normal(size=20_000)})
    fit = regress("y ~ far", rows, bounds={"far": (0, 1000), "y": (-20, 40)}, eps=8, seed=2)
    assert "leverage" in fit.alerts
    spend = np.where(rng.random(5000) < 0.03, np.exp(rng.normal(4, 1, 5000)), 0).clip(0, 2000)
    some = pd.DataFrame({"y": spend, "a": rng.uniform(size=5000)})
    sparse = regress("y ~ a", some, bounds={"y": (0, 2000), "a": (0, 1)}, eps=0.5, seed=2)
    assert "bias" in sparse.alerts
    biased = sparse.tidy().set_index("term")
    assert (biased["max_bias"] > biased["std_error"]).any()


@pytest.mark.slow
def test_a_treatment_is_nearly_as_accurate_as_its_adjusted_average() -> None:
    rng = np.random.default_rng(8)
    t, x = rng.integers(2, size=20_000), rng.normal(size=(20_000, 4)).clip(-5, 5)
    chance = 1 / (1 + np.exp(1.5 - 0.3 * t - 0.5 * x[:, 0]))
    names = ["a", "b", "c", "d"]
    rows = pd.DataFrame(x, columns=names).assign(T=t, y=(rng.random(20_000) < chance).astype(int))
    bounds = dict.fromkeys(names, (-5, 5)) | {"T": [0, 1], "y": [0, 1]}
    ratios = []
    for seed in range(4):
        with seeded_noise(seed):
            one = pc.regress("y ~ T + a + b + c + d", rows, bounds=bounds)
            other = pc.private("y ~ T | a + b + c + d", rows, bounds=bounds, propensity=0.5)
        width = np.diff(one.conf_int().loc["T"])[0]
        ratios.append(width / np.diff(other.conf_int().iloc[0])[0])
    assert np.mean(ratios) < 1.3


def test_bounds_a_hundred_times_too_wide_are_advised_to_be_narrower() -> None:
    usual = table(3000, 3)
    fit = regress("y ~ a + b", usual, bounds={**BOUNDS, "y": (-1000, 1000)}, seed=2)
    assert "Declare narrower bounds" in fit.alerts["tail"]


def test_long_tails_alert_and_the_logarithm_is_advised_for_amounts_only() -> None:
    """Not for an outcome that can be negative, nor for one that already is a logarithm."""
    usual, rng = table(20_000, 3), np.random.default_rng(4)
    assert "tail" not in regress("y ~ a + b", usual, bounds=BOUNDS, eps=4, seed=2).alerts
    tall = np.exp(1.5 * rng.normal(size=len(usual)))
    far = {"wage": (tall, (0, 500)), "log_wage": (tall, (0, 500)), "gain": (tall - 2, (-2, 500)),
           "pay": (np.clip(15 + tall / 5, 0, 100), (0, 100))}  # fmt: skip
    for name, (values, bounds) in far.items():
        rows = usual.assign(**{name: values})
        fit = regress(f"{name} ~ a + b", rows, bounds={**BOUNDS, name: bounds}, eps=4, seed=2)
        assert f"{name!r} has a long tail" in fit.alerts["tail"]
        assert ("logarithm" in fit.alerts["tail"]) == (name == "wage")


def test_collinear_and_constant_columns_are_named() -> None:
    """Whatever the noise: see `test_inference_alerts` for false alarms."""
    own = table(5000, 3)
    levels = {f"k{j}": (own["k"] == j).astype(int) for j in "uvw"}
    rows = own.assign(twice=2 * own["a"], same=0.5, **levels)
    bounds = {**BOUNDS, "twice": (0, 2), "same": (0, 1)} | dict.fromkeys(levels, (0, 1))
    for formula, said in (
        ("y ~ a + b + twice", "Collinear columns: 'a', 'twice'."),
        ("y ~ a + ku + kv + kw", "Collinear columns: 'ku', 'kv', 'kw'."),
        ("y ~ a + same", "Nearly constant columns: 'same'."),
    ):
        fit = regress(formula, rows, bounds=bounds, eps=4, seed=2)
        assert said in fit.alerts["collinear"]


def test_rows_of_a_unit_may_be_alike() -> None:
    rows = ROWS.assign(who=np.arange(len(ROWS)) // 2)
    with zero_noise():
        alone = pc.regress("y ~ a", rows, bounds=BOUNDS)
        pairs = pc.regress("y ~ a", rows, bounds=BOUNDS, unit="who", max_rows=2)
    np.testing.assert_allclose(pairs.bse, np.sqrt(2) * alone.bse, rtol=1e-6)


def test_what_bought_bounds_cut_is_in_the_interval() -> None:
    rows = ROWS.assign(y=np.exp(ROWS["y"].clip(-2, 4)))
    declared = {name: domain for name, domain in BOUNDS.items() if name != "y"}
    fit = regress("y ~ a + b", rows, bounds=declared, eps=8, seed=2)
    averages = fit.estimate.averages
    assert averages is not None
    assert (averages.clipping > 0).all()
    assert "y" in fit.alerts["bounds"]


@pytest.fixture(scope="module")
def fit() -> pc.RegressionResult:
    return regress("y ~ a + b + C(k)", ROWS, bounds=BOUNDS, eps=4, seed=5)


def test_it_comes_back_from_its_file_and_its_call(fit: pc.RegressionResult, reloaded: Any) -> None:
    again = reloaded(fit)
    assert isinstance(again, pc.RegressionResult)
    assert str(again.summary()) == str(fit.summary())
    pd.testing.assert_frame_equal(again.predict(ROWS.head(3)), fit.predict(ROWS.head(3)))
    assert made_again(fit, ROWS, seed=5).params.equals(fit.params)


@pytest.mark.slow
def test_summary_and_report_say_what_it_is(fit: pc.RegressionResult, page_of: Any) -> None:
    text = " ".join(str(fit.summary(full=True)).split())
    assert "Private Linear Regression" in text
    assert "Treatment" not in text
    assert "Coefficients are associations" in text
    assert "Sources of uncertainty of a" in text
    page = page_of(fit)
    assert "A regression of" in page
    assert "Propensity" not in page
    assert "treated" not in page


def test_a_joint_test_of_correlated_terms_allows_for_the_joint_bias() -> None:
    """p is the tail of the largest noncentrality over the joint changes by clipping."""
    fit = regress("y ~ b + I(b ** 2) + a", ROWS, eps=1, bounds=BOUNDS, seed=5)
    names, found = ["b", "I(b ** 2)"], fit.estimate.averages
    at = [fit.params.index.get_loc(name) for name in names]
    inverse, value = np.linalg.inv(found.cov[np.ix_(at, at)]), found.estimate[at]
    moved = found.moved[0, at]
    assert (fit.max_bias[names] > 0.1 * fit.bse[names]).all()
    worst = np.linalg.eigvalsh(moved.T @ inverse @ moved).max()
    test = fit.wald_test(", ".join(f"{name} = 0" for name in names))
    assert test.pvalue == pytest.approx(ncx2.sf(value @ inverse @ value, 2, worst))
    assert test.pvalue == pytest.approx(chi2.sf(test.statistic, 2))
    assert test.pvalue < 2 * fit.pvalues[names].min()


def test_it_stands_beside_other_fits(fit: pc.RegressionResult) -> None:
    table = pc.compare({"private": fit, "plain": smf.ols("y ~ a + b + C(k)", ROWS).fit()})
    assert set(table.frame["term"]) == set(fit.params.index)
    assert fit.wald_test("a = 0, b = 0").pvalue < 1e-6
    assert fit.tidy()["term"].tolist() == list(fit.params.index)
    assert json.loads(fit.glance().to_json())["estimand"]["0"] == "OLS"


def test_a_plan_has_the_noise_of_the_fit() -> None:
    plan = pc.plan("y ~ a + b", n=3000, eps=4, bounds=BOUNDS, learner="regress", outcome_sd=5)
    fit = regress("y ~ a + b", ROWS, bounds=BOUNDS, eps=4, seed=1)
    assert plan.budget["rho"].tolist() == fit.budget["rho"].tolist()
    assert "interval of a," in " ".join(str(plan).split())
    assert np.isfinite(plan.table["half-width to"]).all()


@pytest.mark.parametrize("share", [1.0, 0.99, 0.9])
@pytest.mark.parametrize("bounds", [(1, 5), (0, 6), (2, 102)])
def test_outcomes_that_mostly_have_one_value(share: float, bounds: tuple[float, float]) -> None:
    """Where noise hides other answers, limits are wider than those of least squares and hold it."""
    rng = np.random.default_rng(4)
    for seed in range(8):
        y = np.where(rng.random(1000) < share, 3.0, rng.integers(2, 6, 1000))
        data = pd.DataFrame({"y": y, "x": rng.uniform(-1, 1, 1000)})
        fit = regress("y ~ x", data, bounds={"y": bounds, "x": (-1, 1)}, eps=1, seed=seed)
        (low, high), known = fit.conf_int().loc["x"], smf.ols("y ~ x", data).fit()
        assert (high - low) / 2 > 1.1 * 1.96 * known.bse["x"]
        assert low < known.params["x"] < high


def test_noise_does_not_count_as_explained() -> None:
    """Of 30 fits of rows that nothing explains, most are hidden; a clear R squared is unbiased."""
    found = []
    for seed in range(15):
        with seeded_noise(seed):
            few = pc.regress("y ~ a + b", table(110, seed), bounds=BOUNDS, eps=0.3)
            found.append(pc.regress("y ~ a + b", table(3000, seed), bounds=BOUNDS, eps=2).rsquared)
        if np.isnan(few.rsquared):
            assert "hidden by noise" in str(few.summary(full=True))
    known = smf.ols("y ~ a + b", ROWS).fit().rsquared
    assert np.median(found) == pytest.approx(known, abs=0.05)
    with seeded_noise(1):
        assert np.isnan(pc.regress("y ~ a + b", table(500, 1), bounds=BOUNDS, eps=0.05).rsquared)


@pytest.mark.parametrize(("n", "eps"), [(40, 1.0), (300, 0.5)])
def test_noise_is_not_taken_for_slopes(n: int, eps: float) -> None:
    """If noise exceeds the moments, estimates stay near the range, and intervals cover."""
    misses, furthest = 0, 0.0
    for seed in range(20):
        rng = np.random.default_rng([n, seed])
        frame = pd.DataFrame({"T": rng.integers(0, 2, n), "X": rng.normal(size=n)})
        frame["W"] = rng.uniform(size=n)
        frame["Y"] = 1 + frame["T"] + 0.5 * frame["X"] + rng.normal(size=n)
        bounds = {"T": (0, 1), "X": (-4, 4), "W": (0, 1), "Y": (-6, 8)}
        fit = regress("Y ~ T + X + W", frame, bounds=bounds, eps=eps, seed=seed)
        low, high = fit.conf_int().loc["T"]
        misses += not low <= 1 <= high
        furthest = max(furthest, abs(fit.params["T"] - 1))
    assert misses <= 6
    assert furthest < 100


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ b + I(b ** 2) + I(b ** 3) + I(b ** 4)", "y ~ I(b > 5) + I(b >= 5)",
        "y ~ a * b * C(k)", "y ~ a + I(a - b)", "y ~ bs(b, 4) + a", "y ~ log1p(b) + b + sqrt(b)",
    ],
)  # fmt: skip
def test_columns_that_differ_in_some_data_are_accepted(formula: str) -> None:
    assert pc.plan(formula, bounds=BOUNDS, n=3000, eps=4, learner="regress").terms is not None
