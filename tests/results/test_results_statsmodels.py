"""What a user of statsmodels calls on a fit, on each of the six kinds of fit."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from fit_helpers import private, privcate
from scipy.stats import chi2, norm

import privcausal as pc
from privcausal.errors import CapabilityError
from privcausal.testing import seeded_noise

TRIAL = pc.datasets.clinic(2000)
GIVEN: dict[str, Any] = {"eps": 8, "bounds": TRIAL.bounds}


@lru_cache
def fit_of(kind: str) -> Any:
    with seeded_noise(5):
        return KINDS[kind]()


def changes() -> Any:
    rng = np.random.default_rng(0)
    first = np.repeat(rng.choice([0, 3, 4], 900), 4)  # 0: never treated
    return pd.DataFrame({
        "id": np.repeat(range(900), 4), "year": [1, 2, 3, 4] * 900, "first": first,
        "T": (first > 0).astype(int), "Y": rng.random(3600),
    })  # fmt: skip


def did() -> Any:
    rows = changes()
    two = rows[rows["year"].isin([1, 4])]
    two = two.assign(T=two["T"] * (two["year"] == 4))
    at = {"unit": "id", "time": "year", "periods": [1, 4]}
    return pc.did("Y ~ T", two, **at, eps=8, bounds={"Y": (0, 1)})


def event_study() -> Any:
    at = {"unit": "id", "time": "year", "cohort": "first", "periods": [1, 2, 3, 4]}
    return pc.did("Y ~ 1", changes(), **at, eps=8, bounds={"Y": (0, 1), "first": [0, 3, 4]})


def survival() -> Any:
    frame = TRIAL.frame.assign(days=TRIAL.frame["age"] * 3, died=TRIAL.frame["age"] > 40)
    formula = "Surv(days, died) ~ programme"
    return pc.private(formula, frame, estimand="RMST", horizon=180, eps=8)


KINDS: dict[str, Callable[[], Any]] = {
    "private": lambda: pc.private(TRIAL.formula, TRIAL.frame, groups=["ward"], **GIVEN),
    "privcate": lambda: pc.privcate(TRIAL.formula, TRIAL.frame, base="linear", **GIVEN),
    "regress": lambda: pc.regress("recovery ~ programme + age + C(ward)", TRIAL.frame, **GIVEN),
    "did": did,
    "event study": event_study,
    "survival": survival,
}
FACTORS = {"private": "ward", "privcate": "ward", "regress": "C(ward)", "event study": "event"}
POINTS = TRIAL.frame.head(3)


def first(fit: Any) -> str:
    return str(fit.params.index[0])


def names(fit: Any) -> list[str]:
    return [f"x{place}" for place in range(len(fit.params))]


CALLS: dict[str, Callable[[Any], Any]] = {
    "params": lambda fit: fit.params,
    "bse": lambda fit: fit.bse,
    "tvalues": lambda fit: fit.tvalues,
    "pvalues": lambda fit: fit.pvalues,
    "conf_int": lambda fit: fit.conf_int(),
    "conf_int(alpha)": lambda fit: fit.conf_int(alpha=0.1),
    "conf_int(0.1)": lambda fit: fit.conf_int(0.1),
    "cov_params": lambda fit: fit.cov_params(),
    "use_t": lambda fit: fit.use_t,
    "df_resid": lambda fit: fit.df_resid,
    "df_model": lambda fit: fit.df_model,
    "cov_type": lambda fit: fit.cov_type,
    "nobs": lambda fit: fit.nobs,
    "model.formula": lambda fit: fit.model.formula,
    "model.endog_names": lambda fit: fit.model.endog_names,
    "model.exog_names": lambda fit: fit.model.exog_names,
    "t_test(text)": lambda fit: fit.t_test(f"{first(fit)} = 0"),
    "t_test(array)": lambda fit: fit.t_test(np.eye(len(fit.params))),
    "t_test(row)": lambda fit: fit.t_test(np.eye(len(fit.params))[0]),
    "t_test(pair)": lambda fit: fit.t_test((np.eye(len(fit.params)), np.ones(len(fit.params)))),
    "t_test.effect": lambda fit: fit.t_test(f"{first(fit)} = 0").effect,
    "t_test.sd": lambda fit: fit.t_test(f"{first(fit)} = 0").sd,
    "t_test.tvalue": lambda fit: fit.t_test(f"{first(fit)} = 0").tvalue,
    "t_test.pvalue": lambda fit: fit.t_test(f"{first(fit)} = 0").pvalue,
    "t_test.conf_int": lambda fit: fit.t_test(f"{first(fit)} = 0").conf_int(alpha=0.1),
    "t_test.summary_frame": lambda fit: fit.t_test(f"{first(fit)} = 0").summary_frame(),
    "t_test.summary": lambda fit: str(fit.t_test(f"{first(fit)} = 0").summary()),
    "f_test": lambda fit: fit.f_test(np.eye(len(fit.params))[:1]).fvalue,
    "wald_test": lambda fit: fit.wald_test(f"{first(fit)} = 0", scalar=True).statistic,
    "wald_test(use_f)": lambda fit: fit.wald_test(np.eye(len(fit.params))[:1], use_f=True).pvalue,
    "wald_test_terms": lambda fit: fit.wald_test_terms().table,
    "wald_test_terms(skip)": lambda fit: str(fit.wald_test_terms(skip_single=True)),
    "summary": lambda fit: str(fit.summary()),
    "summary(names)": lambda fit: str(
        fit.summary(title="A title", yname="the outcome", xname=names(fit), alpha=0.1)
    ),
    "summary.as_csv": lambda fit: fit.summary().as_csv(),
    "summary.as_latex": lambda fit: fit.summary().as_latex(),
    "summary.as_html": lambda fit: fit.summary().as_html(),
    "summary.as_text": lambda fit: fit.summary().as_text(),
    "summary.tables": lambda fit: fit.summary().tables,
}
REFUSED = ("resid", "fittedvalues", "llf", "aic", "bic", "ssr", "scale", "get_robustcov_results")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_call_has_an_answer(kind: str) -> None:
    fit, before = fit_of(kind), fit_of(kind).budget
    for name, call in CALLS.items():
        found = call(fit)
        assert found is not None, name
        if isinstance(found, pd.Series | pd.DataFrame):
            numbers = found.select_dtypes("number") if found.ndim == 2 else found
            assert np.isfinite(numbers.to_numpy()).all(), name
    assert fit.budget.equals(before)  # nothing was released


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_no_meaning_tells_why(kind: str) -> None:
    more = () if kind == "regress" else ("rsquared", "rsquared_adj")
    more += () if kind in ("regress", "privcate") else ("predict",)
    for name in (*REFUSED, *more):
        assert not hasattr(fit_of(kind), name)
        with pytest.raises(AttributeError, match=f"no attribute '{name}': .*") as told:
            getattr(fit_of(kind), name)
        assert "\n" not in str(told.value)


@pytest.mark.parametrize("kind", KINDS)
def test_tests_agree_with_the_estimates(kind: str) -> None:
    fit = fit_of(kind)
    told = fit.t_test(np.eye(len(fit.params)))
    assert told.effect == pytest.approx(fit.params.to_numpy())
    assert told.sd == pytest.approx(fit.bse.to_numpy())
    assert told.pvalue == pytest.approx(fit.pvalues.to_numpy(), abs=1e-9)
    for alpha in (0.05, 0.1):
        assert told.conf_int(alpha) == pytest.approx(fit.conf_int(alpha).to_numpy())
    assert told.frame.index.tolist() == [f"c{place}" for place in range(len(fit.params))]
    by_name = fit.t_test(", ".join(f"{term} = 0" for term in fit.params.index))
    assert by_name.tvalue == pytest.approx(told.statistic)
    shifted = fit.t_test((np.eye(len(fit.params)), fit.params.to_numpy()))
    assert shifted.tvalue == pytest.approx(np.zeros(len(fit.params)), abs=1e-9)
    assert (fit.use_t, fit.df_resid) == (False, np.inf)
    terms = [term for term in fit.params.index if term != "Intercept"]
    assert fit.df_model == len(terms)
    joint, divided = fit.wald_test(", ".join(terms)), fit.f_test()
    assert divided.fvalue == pytest.approx(joint.statistic / len(terms))
    assert divided.pvalue == joint.pvalue
    assert joint.pvalue == pytest.approx(chi2.sf(joint.statistic, len(terms)))
    assert (divided.df_num, divided.df_denom) == (len(terms), np.inf)
    singles = fit.wald_test_terms().table
    for term in set(singles.index) & set(terms):
        assert singles.loc[term, "pvalue"] == pytest.approx(fit.pvalues[term])
        assert singles.loc[term, "statistic"] <= fit.zvalues[term] ** 2 * (1 + 1e-9)
    slopes = len(fit.blp) if kind == "privcate" else 0
    assert singles["df_constraint"].sum() == len(fit.params) + slopes


def test_terms_of_a_formula_are_tested_together() -> None:
    fit, rows = fit_of("regress"), TRIAL.frame
    known = smf.ols(fit.model.formula, rows).fit().wald_test_terms(scalar=True).table
    table = fit.wald_test_terms(combine_terms=["ward", "prog"]).table
    assert set(table.index) == {*known.index, "ward", "prog"}
    assert table.loc[known.index, "df_constraint"].tolist() == known["df_constraint"].tolist()
    assert table.loc["ward", "statistic"] == table.loc["C(ward)", "statistic"]
    assert fit.wald_test_terms(skip_single=True).table.index.tolist() == ["C(ward)"]


@pytest.mark.parametrize("kind", FACTORS)
def test_levels_are_compared_in_pairs(kind: str) -> None:
    fit = fit_of(kind)
    told = fit.t_test_pairwise(FACTORS[kind], method="bonferroni", alpha=0.1)
    frame = told.result_frame
    adjusted = frame["pvalue-bonferroni"]
    assert adjusted.tolist() == pytest.approx(np.minimum(frame["P>|z|"] * len(frame), 1).tolist())
    assert frame["reject-bonferroni"].tolist() == (adjusted <= 0.1).tolist()
    assert "average" not in " ".join(frame.index)
    if kind == "regress":
        known = (
            smf.ols(fit.model.formula, TRIAL.frame).fit().t_test_pairwise("C(ward)").result_frame
        )
        assert frame.index.tolist() == known.index.tolist()
        south = fit.params["C(ward)[T.south]"]
        assert frame.loc["south-east", "coef"] == pytest.approx(south)
        west = fit.contrast("C(ward)[T.west] - C(ward)[T.south]", alpha=0.1)
        assert told.conf_int()[-1] == pytest.approx(west.conf_int()[0])
    if kind == "private":
        gate = fit.gate["estimate"]
        assert frame.loc["west-north", "coef"] == gate["ward[west]"] - gate["ward[north]"]
    assert told.tidy()["term"].tolist() == frame.index.tolist()


def test_groups_are_compared_before_slopes() -> None:
    fit = privcate(TRIAL.formula, TRIAL.frame, groups=["ward"], **GIVEN, seed=3)
    pairs = fit.t_test_pairwise("ward").frame
    one = fit.contrast("ward[west] - ward[north]").frame
    assert pairs.loc["west-north", "estimate"] == one["estimate"].iloc[0]


def test_arms_are_compared_in_pairs() -> None:
    arm = np.random.default_rng(1).choice(["a", "b", "c"], len(TRIAL.frame))
    levels = TRIAL.bounds | {"arm": ["a", "b", "c"]}
    fit = private("recovery ~ arm", TRIAL.frame.assign(arm=arm), eps=8, bounds=levels, seed=2)
    frame = fit.t_test_pairwise("arm").frame
    assert frame.index.tolist() == ["b-a", "c-a", "c-b"]
    assert frame["estimate"].iloc[:2].tolist() == pytest.approx(fit.params.tolist()[:2])


@pytest.mark.parametrize("kind", ["regress", "privcate"])
def test_predictions_have_the_names_of_statsmodels(kind: str) -> None:
    fit = fit_of(kind)
    new = POINTS.assign(age=[30.0, np.nan, 50.0])
    found, ours = fit.get_prediction(new), fit.predict(new, alpha=0.1)
    frame = found.summary_frame(alpha=0.1)
    assert list(frame) == ["mean", "mean_se", "mean_ci_lower", "mean_ci_upper"]
    own = ours[["estimate", "std_error", "conf_low", "conf_high"]]
    np.testing.assert_array_equal(frame.to_numpy(), own.to_numpy())
    np.testing.assert_array_equal(found.conf_int(0.1), own.to_numpy()[:, 2:])
    np.testing.assert_array_equal(found.predicted_mean, own["estimate"])
    np.testing.assert_array_equal(found.se_mean, own["std_error"])
    assert frame.isna().all(axis=1).tolist() == [False, True, False]
    assert frame.index.equals(new.index)
    with pytest.raises(CapabilityError, match="alpha must be"):
        found.summary_frame(alpha=5)


@pytest.mark.parametrize("kind", KINDS)
def test_names_of_a_summary_are_chosen(kind: str) -> None:
    fit = fit_of(kind)
    shown = [f"<{name}>" for name in names(fit)]
    text = str(fit.summary(title="Own title", yname="the \n outcome", xname=shown))
    lines = text.splitlines()
    assert lines[1].strip() == "Own title"
    assert "NOT PRIVATE" in lines[0]
    assert "the outcome" in " ".join(text.split())
    first_line = next(line for line in lines if line.startswith("<x0>"))
    usual = next(
        line for line in str(fit.summary()).splitlines() if line.startswith(first(fit) + " ")
    )
    assert first_line.split()[1:] == usual.removeprefix(first(fit)).split()
    if kind == "regress":
        labels = {"programme": "The course"}
        for options, name in (
            ({}, "programme"), ({"xname": shown}, "<x1>"), ({"labels": labels}, "The course"),
            ({"xname": shown, "labels": labels}, "<x1>"),
        ):  # fmt: skip
            told = " ".join(str(fit.summary(full=True, **options)).split())
            assert f"this can bias {name}, its interval" in told
    assert str(fit.summary()) == str(fit.summary(xname=list(fit.params.index)))


def test_csv_has_the_printed_cells() -> None:
    import csv
    import io

    fit = fit_of("regress")
    rows = [row for row in csv.reader(io.StringIO(fit.summary().as_csv())) if row]
    assert "NOT PRIVATE" in rows[0][0] and rows[0] == rows[-1]
    assert rows[1] == ["Private Linear Regression"]
    age = next(row for row in rows if row[0] == "age")
    printed = next(line for line in str(fit.summary()).splitlines() if line.startswith("age "))
    assert age == printed.split()
    assert ["Observations", "2,000"] in rows
    slope = next(row for row in rows if row[0] == "programme")
    assert not any(cell.startswith("'") for cell in slope)  # a sign begins no formula
    spelt = [f"=cmd{name}" for name in names(fit)]
    assert "\n'=cmdx0," in fit.summary(xname=spelt).as_csv()


def test_a_private_number_of_rows_is_not_shown() -> None:
    fit = private("recovery ~ programme", TRIAL.frame, neighbors="add_remove", **GIVEN, seed=1)
    assert not hasattr(fit, "nobs")
    assert (fit.df_resid, fit.use_t) == (np.inf, False)
    assert fit.t_test("ATE").pvalue[0] <= 2 * norm.sf(abs(fit.zvalues["ATE"])) + 0.05
