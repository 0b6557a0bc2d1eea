"""Estimates under statsmodels' names, and broom's frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from results_fits import EPSILON, FORMULA, SIZE, fit, points, proven, variant
from scipy.optimize import brentq
from scipy.stats import norm
from statsmodels.base.model import LikelihoodModelResults

import privcausal as pc

TERMS = ["ATE", "age", "C(ward)[T.S]", "C(ward)[T.W]", "smoker[T.True]"]
GATES = ["ward[N]", "ward[S]", "ward[W]", "age >= 65"]


@pytest.fixture(params=["r on gam", "private on linear"])
def fitted(request: pytest.FixtureRequest) -> Any:
    return variant(request.param)


def test_terms_are_the_average_and_slopes_are_on_request() -> None:
    fit = variant("r on gam")
    assert list(fit.params.index) == ["ATE"]
    found = [t.split("[")[0] for t in (*fit.params.index, *fit.blp.index)]
    assert found == [t.split("[")[0] for t in TERMS]
    assert [*fit.blp] == [c for c in fit.tidy() if c not in ("term", "alerts")]
    assert list(variant("private on linear").params.index) == ["ATE"]


def test_members_are_aligned_pandas_objects(fitted: Any) -> None:
    for name in ("params", "bse", "zvalues", "pvalues"):
        series = getattr(fitted, name)
        assert isinstance(series, pd.Series)
        assert series.index.equals(fitted.params.index)
        assert np.isfinite(series).all()
    cov = fitted.cov_params()
    assert cov.index.equals(fitted.params.index)
    assert cov.columns.equals(fitted.params.index)
    assert np.sqrt(np.diag(cov)) == pytest.approx(fitted.bse.to_numpy(), rel=1e-12)
    assert cov.to_numpy() == pytest.approx(cov.to_numpy().T)
    assert (np.linalg.eigvalsh(cov) > 0).all()


def test_z_p_and_limits_are_statsmodels(fitted: Any) -> None:
    model = LikelihoodModelResults(
        None, fitted.params.to_numpy(), fitted.cov_params().to_numpy(), use_t=False
    )
    assert fitted.bse.to_numpy() == pytest.approx(model.bse, rel=1e-12)
    assert fitted.zvalues.to_numpy() == pytest.approx(model.tvalues, rel=1e-12)
    for alpha in (0.01, 0.05, 0.4):
        limits = fitted.conf_int(alpha)
        assert list(limits.columns) == [0, 1]
        half, z = np.diff(limits)[:, 0] / 2, norm.ppf(1 - alpha / 2)
        assert (half >= z * fitted.bse * (1 - 1e-12)).all()
        assert (half <= z * fitted.bse + fitted.max_bias).all()


def test_every_interval_and_p_value_follows_from_the_printed_columns(fitted: Any) -> None:
    """As R's RDHonest does: a folded normal quantile at the bias in standard errors."""
    table = fitted.tidy(alpha=0.1)
    assert (table["max_bias"] > 0).any()
    assert table["max_bias"].tolist() == fitted.max_bias.tolist()
    for row in table.itertuples():
        b, t = row.max_bias / row.std_error, abs(row.estimate) / row.std_error

        def beyond(c: float, b: float = b) -> float:
            return float(norm.sf(c - b) + norm.sf(c + b))

        c = brentq(lambda c: beyond(c) - 0.1, 0, 50)
        assert row.conf_high - row.estimate == pytest.approx(c * row.std_error, rel=1e-6)
        assert row.estimate - row.conf_low == pytest.approx(c * row.std_error, rel=1e-6)
        assert row.p_value == pytest.approx(beyond(t), rel=1e-9)
        assert row.statistic == pytest.approx(row.estimate / row.std_error, rel=1e-12)
        assert (row.p_value < 0.1) == (row.conf_low * row.conf_high > 0)


def test_simultaneous_limits_are_wider_and_hold_the_groups(fitted: Any) -> None:
    single, joint = fitted.conf_int(), fitted.conf_int(simultaneous=True)
    assert list(joint.index) == [*single.index, *GATES]
    width = joint[1] - joint[0]
    assert (width[single.index] > single[1] - single[0]).all()
    z = float(norm.ppf(1 - 0.025 / len(joint)))
    most = z * fitted.bse * 1.01 + fitted.max_bias
    assert (width[single.index] <= 2 * most).all(), "no wider than Bonferroni's"
    assert joint.equals(fitted.conf_int(simultaneous=True)), "no chance in it"


def test_one_interval_is_its_own_simultaneous_one() -> None:
    fitted = fit("private", base="linear", groups=[], seed=1)
    assert fitted.conf_int(simultaneous=True).equals(fitted.conf_int())


def test_ate_is_the_first_term_with_its_error_from_sampling(fitted: Any) -> None:
    assert list(fitted.ate.columns) == [
        "estimate", "std_error", "max_bias", "conf_low", "conf_high", "se_sampling",
    ]  # fmt: skip
    row = fitted.ate.loc["ATE"]
    assert len(fitted.ate) == 1
    assert row["estimate"] == fitted.params["ATE"]
    assert row["std_error"] == pytest.approx(fitted.bse["ATE"])
    assert [row["conf_low"], row["conf_high"]] == pytest.approx(list(fitted.conf_int().loc["ATE"]))
    assert 0 < row["se_sampling"] < row["std_error"]


def test_gate_has_a_row_for_each_group(fitted: Any) -> None:
    gate = fitted.gate
    assert list(gate.index) == GATES
    assert list(gate.columns) == list(fitted.ate.columns)
    seen = gate.dropna()
    assert len(seen)
    assert ((seen["conf_low"] < seen["estimate"]) & (seen["estimate"] < seen["conf_high"])).all()
    assert seen["se_sampling"].between(0, seen["std_error"]).all()


def test_no_groups_no_rows() -> None:
    assert variant("bought bounds").gate.empty


def test_tidy_has_brooms_columns(fitted: Any) -> None:
    tidy = fitted.tidy(alpha=0.1)
    assert list(tidy.columns) == [
        "term", "estimate", "std_error", "statistic", "p_value", "conf_low", "conf_high",
        "max_bias", "alerts",
    ]  # fmt: skip
    assert tidy["term"].tolist() == list(fitted.params.index)
    assert tidy["statistic"].tolist() == fitted.zvalues.tolist()
    limits = tidy[["conf_low", "conf_high"]].to_numpy()
    assert limits.tolist() == fitted.conf_int(0.1).to_numpy().tolist()


def test_glance_is_one_row(fitted: Any) -> None:
    glance = fitted.glance()
    assert list(glance.columns) == [
        "learner", "base", "estimand", "n", "epsilon", "delta", "rho", "neighbors", "guarantee",
        "alerts",
    ]  # fmt: skip
    row = glance.iloc[0]
    assert len(glance) == 1
    assert row["n"] == SIZE
    assert row["epsilon"] <= EPSILON
    assert row["delta"] == 1e-5
    assert row["neighbors"] == "substitute"
    assert row["guarantee"] == "none"


def test_a_private_size_is_not_shown() -> None:
    row = variant("add_remove").glance().iloc[0]
    assert np.isnan(row["n"])
    for full in (False, True):
        text = variant("add_remove").summary(full=full).as_text()
        assert f"{SIZE:,}" not in text.split("Observations:")[1][:30]
    assert variant("units").glance()["n"].item() == SIZE / 2, "units are public, rows are not"


def test_without_averages_there_are_still_predictions() -> None:
    fitted = variant("no averages")
    assert len(fitted.glance()) == 1
    assert len(fitted.predict(points())) == 4


class TestBudget:
    def test_a_line_per_release(self, fitted: Any) -> None:
        budget = fitted.budget
        assert list(budget.columns) == [
            "stage", "query", "mechanism", "neighbors", "sensitivity", "noise_sd", "rho",
            "epsilon", "delta", "rows", "parallel",
        ]  # fmt: skip
        assert len(budget) == len(fitted.plan.stages)
        assert budget["rho"].sum() == pytest.approx(fitted.guarantee.rho, rel=1e-12)
        assert (budget["epsilon"] < fitted.guarantee.epsilon).all()
        assert (budget["neighbors"] == "substitute").all()

    def test_rows_are_shares(self) -> None:
        assert set(variant("r on gam").budget["rows"]) == {1.0}
        assert set(variant("disjoint").budget["rows"]) == {0.5}

    def test_disjoint_rows_are_paid_once(self) -> None:
        disjoint, full = variant("disjoint"), variant("r on linear")
        assert disjoint.guarantee.rho == pytest.approx(full.guarantee.rho, rel=1e-6)
        lines = disjoint.budget
        spent = 0.5 * (lines["sensitivity"] / lines["noise_sd"]) ** 2
        assert spent.sum() == pytest.approx(2 * full.guarantee.rho, rel=1e-6)

    def test_bought_bounds_have_their_lines(self) -> None:
        stages = variant("bought bounds").budget["stage"]
        assert (stages == "bounds").sum() == 3  # levels of the ward, magnitudes, grid
        assert variant("bought bounds").budget["delta"].sum() > 0


class TestGuarantee:
    def test_test_noise_guarantees_nothing(self, fitted: Any) -> None:
        assert fitted.guarantee.kind == "none"
        assert fitted.guarantee.statement.startswith("NOT PRIVATE")

    def test_real_noise_keeps_what_was_asked(self) -> None:
        promise = proven().guarantee
        assert promise.kind == "proven"
        assert 0.99 * EPSILON < promise.epsilon <= EPSILON
        assert promise.delta == 1e-5
        assert promise.unit == "one row"
        assert promise.statement.startswith("(20, 1e-05)-differential privacy, proven")
        assert "replaced" in promise.statement

    def test_other_neighbours_and_units(self) -> None:
        assert variant("add_remove").guarantee.neighbors == "add_remove"
        assert variant("units").guarantee.unit == "one pid (at most 2 rows)"

    def test_label_selection_is_part_of_delta(self) -> None:
        promise = variant("bought bounds").guarantee
        assert promise.delta == 1e-5
        assert promise.epsilon <= 60


def test_repr_is_short_and_says_what_it_is(fitted: Any) -> None:
    assert type(fitted).__name__ in repr(fitted)
    assert FORMULA in repr(fitted)
    assert "NOT PRIVATE" in repr(fitted)
    assert "(20, 1e-05)-DP, proven" in repr(proven())
    assert len(repr(fitted)) < 200
    assert isinstance(fitted, pc.CateResult | pc.AteResult)
