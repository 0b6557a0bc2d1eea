"""`compare`: private fits beside those of other packages, and fits in other packages' tables."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from results_fits import proven, proven_average, study, variant
from scipy.stats import norm
from statsmodels.iolib.summary2 import summary_col

import privcausal as pc
from privcausal.accounting import epsilon_of
from privcausal.errors import CapabilityError


def ols() -> Any:
    return smf.ols("cost ~ mailed + age", study()).fit()


class Feols:
    """The attributes of pyfixest's `Feols` that are read."""

    _depvar, _N = "cost", 900

    def tidy(self) -> pd.DataFrame:
        columns = {"Estimate": [2.0], "Std. Error": [0.5], "t value": [4.0], "Pr(>|t|)": [0.001]}
        return pd.DataFrame(columns, index=pd.Index(["mailed"], name="Coefficient"))

    def confint(self, alpha: float = 0.05) -> pd.DataFrame:
        half = {0.05: 1.0, 0.1: 0.8}[alpha]
        return pd.DataFrame({"low": [2 - half], "high": [2 + half]}, index=["mailed"])


@pytest.mark.slow
def test_private_fits_are_read_whole() -> None:
    fits = {"R": proven(), "AIPW": proven_average()}
    made = pc.compare(fits)
    assert made.frame["term"].tolist() == ["ATE", "ATE"], (
        "slopes are shown where they are asked for"
    )
    whole = pc.compare(fits, terms=list(proven().params.index))
    for name, fit in fits.items():
        rows = whole.frame[whole.frame["fit"] == name].drop(columns="fit").reset_index(drop=True)
        pd.testing.assert_frame_equal(rows, fit.tidy().drop(columns="alerts"))
    assert made.stats.loc["R", ["ε", "δ"]].tolist() == ["20", "1e-05"]
    # of complete rows, as it was released
    assert re.fullmatch(r"(8[89]|9[01])\d \(noise sd \d+(\.\d)?\)", made.stats.loc["R", "n"])
    assert made.stats.loc["AIPW", "Estimator"] == "AIPW / linear"
    assert set(made.stats["Guarantee"]) == {"proven"}
    assert "No guarantee" not in str(made)
    assert "NOT PRIVATE" not in str(made)
    alone = float(fits["R"].ate["se_sampling"].iloc[0])
    assert float(made.stats.loc["R", "Sampling alone"]) == pytest.approx(alone, rel=0.02)


@pytest.mark.slow
def test_fits_may_be_listed_or_not() -> None:
    one, other = proven(), proven_average()
    assert str(pc.compare(one, other)) == str(pc.compare([one, other]))


@pytest.mark.slow
def test_fits_of_one_data_set_have_a_price_together() -> None:
    one, two = proven(), proven_average()
    rho = round(sum(fit.budget["rho"].sum() for fit in (one, two)) * 1e12)
    total = epsilon_of(rho, 1e-5, gdp=True)
    text = " ".join(str(pc.compare([one, two, one])).split())
    shown = float(text.split("they are (")[1].split(",")[0])
    assert total - 0.01 <= shown < total + 0.02
    assert max(fit.guarantee.epsilon for fit in (one, two)) < shown < 40
    assert "together" not in str(pc.compare([one, one]))
    assert "together" not in str(pc.compare([one, variant("units")]))


@pytest.mark.slow
def test_statsmodels_and_pyfixest_beside_private_fits() -> None:
    made = pc.compare({"private": proven(), "OLS": ols(), "feols": Feols()}, alpha=0.1)
    frame = made.frame.set_index(["fit", "term"])
    assert frame.loc[("OLS", "age"), "estimate"] == ols().params["age"]
    assert frame.loc[("OLS", "age"), "std_error"] == ols().bse["age"]
    low, high = ols().conf_int(0.1).loc["age"]
    assert frame.loc[("OLS", "age"), ["conf_low", "conf_high"]].tolist() == [low, high]
    assert frame.loc[("feols", "mailed"), ["conf_low", "conf_high"]].tolist() == [1.2, 2.8]
    assert frame.loc[("feols", "mailed"), ["statistic", "p_value"]].tolist() == [4.0, 0.001]
    assert made.stats["Guarantee"].tolist() == ["proven", "none", "none"]
    turned = pc.compare([ols(), proven()])
    assert turned.stats.columns.tolist() == made.stats.columns.tolist()
    assert made.stats["Outcome"].tolist() == ["cost"] * 3
    assert made.stats.loc["OLS", ["Estimator", "n"]].tolist() == ["OLS", f"{ols().nobs:.0f}"]
    for text in (str(made), made.as_html(), made.as_latex(), made.as_markdown()):
        assert "No privacy guarantee covers OLS, feols" in " ".join(text.split())


def half(alpha: float) -> float:
    return float(norm.isf(alpha / 2))


class DoubleML:
    """The attributes of a fitted `doubleml.DoubleMLIRM` that are read."""

    coef, se, pval, n_obs, params = np.array([2.0]), np.array([0.5]), np.array([6e-5]), 900, {}

    def confint(self, joint: bool = False, level: float = 0.95) -> pd.DataFrame:
        ends = [2 - 0.5 * half(1 - level), 2 + 0.5 * half(1 - level)]
        columns = [f"{50 * (1 - level):.1f} %", f"{50 * (1 + level):.1f} %"]
        return pd.DataFrame([ends], index=["mailed"], columns=columns)


class CoxPHFitter:
    """The attributes of a fitted `lifelines.CoxPHFitter` that are read."""

    duration_col, event_col, alpha = "days", "died", 0.05
    event_observed = pd.Series(np.ones(900))
    params_ = pd.Series([0.4], index=pd.Index(["mailed"], name="covariate"), name="coef")
    standard_errors_ = pd.Series([0.1], index=["mailed"], name="se")
    summary = pd.DataFrame({"coef": [0.4], "se(coef)": [0.1], "p": [6e-5]}, index=["mailed"])


class WeibullAFT(CoxPHFitter):
    """Parameters of several parts have an index of two levels."""

    params_ = pd.Series(
        [0.4], index=pd.MultiIndex.from_tuples([("lambda_", "mailed")]), name="coef"
    )


class NormalInferenceResults:
    """The attributes of an inference of EconML that are read."""

    point_estimate, stderr = np.array([2.0]), np.array([0.5])

    def __init__(self, term: str = "age") -> None:
        self.term = term

    def summary_frame(
        self, alpha: float = 0.05, value: float = 0, decimals: int = 3
    ) -> pd.DataFrame:
        row = [2.0, 0.5, 4.0, 6e-5, 2 - 0.5 * half(alpha), 2 + 0.5 * half(alpha)]
        names = ["point_estimate", "stderr", "zstat", "pvalue", "ci_lower", "ci_upper"]
        return pd.DataFrame([row], index=pd.Index([self.term], name="X"), columns=names)


class LinearDML:
    """A linear estimator of EconML."""

    def coef__inference(self) -> NormalInferenceResults:
        return NormalInferenceResults()

    def intercept__inference(self) -> NormalInferenceResults:
        return NormalInferenceResults("cate_intercept")


class LinearDRLearner(LinearDML):
    def coef__inference(self, T: int) -> NormalInferenceResults:  # type: ignore[override]
        return NormalInferenceResults()


class PopulationSummaryResults:
    """What `ate_inference` of EconML returns."""

    mean_point, stderr_mean = 2.0, 0.5

    def conf_int_mean(self, *, alpha: float) -> tuple[float, float]:
        return 2 - 0.5 * half(alpha), 2 + 0.5 * half(alpha)

    def pvalue(self, *, value: float = 0) -> float:
        return 6e-5


OTHERS = {
    "DoubleML": (DoubleML(), ["mailed"], ["", "DoubleML", "900"]),
    "lifelines": (CoxPHFitter(), ["mailed"], ["Surv(days, died)", "CoxPHFitter", "900"]),
    "AFT": (WeibullAFT(), ["lambda_:mailed"], ["Surv(days, died)", "WeibullAFT", "900"]),
    "EconML": (LinearDML(), ["cate_intercept", "age"], ["", "LinearDML", ""]),
    "inference": (NormalInferenceResults(), ["age"], ["", "NormalInferenceResults", ""]),
    "ATE": (PopulationSummaryResults(), ["ATE"], ["", "PopulationSummaryResults", ""]),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_fits_of_other_packages_are_read_by_their_attributes(name: str) -> None:
    fit, terms, facts = OTHERS[name]
    made = pc.compare({"private": proven(), name: fit}, alpha=0.1)
    rows = made.frame[made.frame["fit"] == name]
    assert rows["term"].tolist() == terms
    value, spread = (0.4, 0.1) if facts[0] else (2.0, 0.5)
    assert (rows[["estimate", "std_error", "p_value"]] == [value, spread, 6e-5]).all(axis=None)
    ends = [value - half(0.1) * spread, value + half(0.1) * spread]
    for limits in rows[["conf_low", "conf_high"]].to_numpy():
        assert limits == pytest.approx(ends)
    assert made.stats.loc[name, ["Outcome", "Estimator", "n"]].tolist() == facts
    assert made.stats.loc[name, "Guarantee"] == "none"
    assert f"No privacy guarantee covers {name}" in " ".join(str(made).split())


def test_instruments_of_linearmodels_are_read() -> None:
    linearmodels = pytest.importorskip("linearmodels.iv")
    rows = study().dropna().assign(offer=study()["mailed"] + np.arange(900) % 3)
    known = linearmodels.IV2SLS.from_formula("cost ~ 1 + age + [mailed ~ offer]", rows).fit()
    made = pc.compare({"IV": known, "private": proven_average()}, alpha=0.1)
    frame = made.frame[made.frame["fit"] == "IV"].set_index("term")
    assert frame.index.tolist() == known.params.index.tolist()
    for ours, theirs in {
        "estimate": "params",
        "std_error": "std_errors",
        "p_value": "pvalues",
    }.items():
        np.testing.assert_allclose(frame[ours], getattr(known, theirs))
    np.testing.assert_allclose(frame[["conf_low", "conf_high"]], known.conf_int(level=0.9))
    facts = ["cost", "IV2SLS", f"{len(rows)}", "none"]
    assert made.stats.loc["IV", ["Outcome", "Estimator", "n", "Guarantee"]].tolist() == facts


def test_arrays_have_the_models_names() -> None:
    x = sm.add_constant(np.arange(20.0))
    fit = sm.OLS(np.arange(20.0) ** 2, x).fit()
    assert pc.compare([fit]).frame["term"].tolist() == ["const", "x1"]


def test_frames_and_the_protocol() -> None:
    broom = pd.DataFrame({"term": ["a"], "estimate": [1.0], "std.error": [0.5]})
    table = pd.DataFrame({"b": [1.0], "se": [0.5], "p": [0.04], "ci95l": [0.1]}, index=["a"])
    plugin = SimpleNamespace(__maketables_coef_table__=table, __maketables_depvar__="y")
    frame = pc.compare({"R": broom, "plug-in": plugin}).frame.set_index("fit")
    z = norm.ppf(0.975)
    assert frame["statistic"].tolist() == [2.0, 2.0]
    assert frame["p_value"].tolist() == pytest.approx([2 * norm.sf(2.0), 0.04])
    assert frame["conf_low"].tolist() == pytest.approx([1 - z / 2, 0.1])
    assert frame["conf_high"].tolist() == pytest.approx([1 + z / 2] * 2)


def test_terms_are_chosen_and_share_rows() -> None:
    fits = {"private": proven(), "OLS": ols()}
    made = pc.compare(fits, terms={"ATE": "effect", "mailed": "effect"})
    assert made.frame["term"].tolist() == ["effect", "effect"]
    assert made.frame["estimate"].tolist() == [proven().params["ATE"], ols().params["mailed"]]
    assert str(made).count("effect") == 1
    ordered = pc.compare(fits, terms=["age", "ATE"]).frame
    assert ordered["term"].tolist() == ["age", "ATE", "age"]


def test_groups_are_rows_if_asked_for() -> None:
    fit = proven()
    assert not set(fit.gate.index) & set(pc.compare([fit]).frame["term"])
    frame = pc.compare([fit], groups=True).frame.set_index("term")
    assert frame.loc[fit.gate.index, "estimate"].tolist() == fit.gate["estimate"].tolist()
    assert frame.loc[fit.gate.index, "conf_low"].to_numpy() == pytest.approx(fit.gate["conf_low"])


def test_private_sizes_and_test_noise_are_said() -> None:
    made = pc.compare({"seeded": variant("add_remove"), "proven": proven()})
    assert made.stats.loc["seeded", ["n", "Guarantee"]].tolist() == ["private", "NOT PRIVATE"]
    lines = str(made).split("\n")
    assert "NOT PRIVATE" in lines[0] and "NOT PRIVATE" in lines[-1]


def test_a_learner_without_numbers_of_its_own_is_told_what_to_pass() -> None:
    with pytest.raises(CapabilityError, match=r"Pass an inference.*ate_inference\(X\)"):
        pc.compare([proven(), LinearDRLearner()])


# -- in other packages' tables ---------------------------------------------------------------


def test_results_enter_summary_col() -> None:
    fit = proven()
    text = str(summary_col([fit, ols()], model_names=["private", "OLS"]))
    assert f"{fit.params['ATE']:.4f}" in text
    assert f"({fit.bse['ATE']:.4f})" in text
    assert f"{ols().params['mailed']:.4f}" in text
    lines = {line.split("  ")[0]: line.split() for line in text.split("\n")}
    assert lines["Guarantee"] == ["Guarantee", "proven"]
    assert lines["Epsilon"] == ["Epsilon", "20"]
    counted = str(summary_col([fit], info_dict={"N": lambda x: f"{int(x.nobs)}"}))
    assert "900" in counted
    hidden = variant("add_remove")
    assert not hasattr(hidden, "nobs")
    assert "NOT PRIVATE" in str(summary_col([hidden]))


def test_the_protocol_of_maketables() -> None:
    for fit in (proven(), proven().to_maketables()):
        table = fit.__maketables_coef_table__
        assert table.index.name == "Coefficient"
        assert table["b"].to_dict() == proven().params.to_dict()
        assert table["p"].to_dict() == proven().pvalues.to_dict()
        for level, alpha in (("95", 0.05), ("90", 0.1)):
            found = table[[f"ci{level}l", f"ci{level}u"]].to_numpy()
            assert found == pytest.approx(proven().conf_int(alpha).to_numpy())
        assert fit.__maketables_stat__("N") == 900
        assert fit.__maketables_stat__("r2") is None
        assert fit.__maketables_depvar__ == "cost"
        keys = fit.__maketables_default_stat_keys__
        assert {"epsilon", "delta", "guarantee"} <= set(keys) <= {*fit.__maketables_stat_labels__}
        assert [fit.__maketables_stat__(key) for key in keys][-1] == "proven"
    handed = proven().to_maketables()
    assert not any(hasattr(handed, name) for name in ("params", "bse", "pvalues"))
    assert variant("add_remove").__maketables_stat__("N") is None
    pd.testing.assert_frame_equal(pc.compare([handed]).frame, pc.compare([proven()]).frame)


def test_guarantees_in_notebooks() -> None:
    fit = proven()
    assert fit.guarantee.statement.split(":")[0] in fit.guarantee._repr_html_()
    assert "NOT PRIVATE" in variant("disjoint").guarantee._repr_html_()
