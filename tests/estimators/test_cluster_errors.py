"""Cluster-robust standard errors: as in statsmodels without noise, and what they need."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from fit_helpers import private, regress
from scipy.stats import f as f_law
from scipy.stats import norm
from scipy.stats import t as student

import privcausal as pc
from privcausal.estimators.averages import cluster_cap, correction
from privcausal.testing import seeded_noise, zero_noise

BOUNDS: dict[str, Any] = {"Y": (-6, 9), "X": (0, 1), "G": ["a", "b"]}
MOST = 12


def villages(
    assigned: str, clusters: int = 150, seed: int = 0, icc: float = 0.2, most: int = MOST
) -> pd.DataFrame:
    """Villages of different sizes; treatment by village or by row. G is a village's or a row's."""
    rng = np.random.default_rng(seed)
    own = np.repeat(np.arange(clusters), rng.integers(3, most + 1, clusters))
    by_village = assigned == "cluster"
    t = rng.random(clusters)[own] if by_village else rng.random(len(own))
    x = rng.random(len(own))
    y = 1 + 0.3 * (t < 0.5) + x + np.sqrt(icc) * rng.normal(size=clusters)[own]
    y += np.sqrt(1 - icc) * rng.normal(size=len(own))
    g = np.where((own if by_village else rng.integers(0, 2, len(own))) % 2, "a", "b")
    names = np.array([f"v{k}" for k in own])
    return pd.DataFrame({"Y": y, "T": 1 * (t < 0.5), "X": x, "G": g, "village": names})


def clustered(most: int = MOST, **more: Any) -> pc.Control:
    return pc.Control(cluster="village", max_cluster_rows=most, **more)


def fit(data: Any, formula: str = "Y ~ T", **options: Any) -> Any:
    options = {"bounds": BOUNDS, "control": clustered()} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return private(formula, data, **options)


def by_statsmodels(data: pd.DataFrame, formula: str = "Y ~ T") -> Any:
    kwds = {"groups": pd.factorize(data["village"])[0]}
    return smf.ols(formula, data).fit(cov_type="cluster", cov_kwds=kwds, use_t=True)


@pytest.mark.parametrize("assigned", ["cluster", "row"])
def test_a_difference_has_the_errors_of_statsmodels(assigned: str) -> None:
    """Up to its factor (n - 1) / (n - k), to the grid of the vault's sums."""
    data = villages(assigned)
    found = fit(data, groups=["G"], exact=True)
    rest = (len(data) - 2) / (len(data) - 1)
    expected = by_statsmodels(data)
    assert found.bse.iloc[0] == pytest.approx(expected.bse["T"] * rest**0.5, rel=1e-4)
    low, high = found.conf_int().iloc[0]
    half = student.ppf(0.975, 149) * found.bse.iloc[0]
    assert (high - low) / 2 == pytest.approx(half, rel=1e-6)
    assert found.tidy()["p_value"].iloc[0] == pytest.approx(expected.pvalues["T"], rel=0.02)
    errors = found.estimate.averages.sd[1:]
    for label, error in zip("ab", errors, strict=True):
        part = data[data["G"] == label]
        own = by_statsmodels(part).bse["T"] * np.sqrt((len(part) - 2) / (len(part) - 1))
        share = part["village"].nunique() / (part["village"].nunique() - 1)
        assert error == pytest.approx(own * np.sqrt(150 / 149 / share), rel=1e-3)


@pytest.mark.parametrize(("clusters", "size"), [(20, 200), (200, 20)])
@pytest.mark.parametrize("call", ["private", "regress"])
def test_clusters_larger_than_declared_are_seen(call: str, clusters: int, size: int) -> None:
    """Their sums are clipped: a declared fifth or tenth gave half or a tenth of the error."""
    rng, own = np.random.default_rng(1), np.repeat(np.arange(clusters), size)
    data = pd.DataFrame({"village": own, "T": own % 2})
    data["Y"] = data["T"] + rng.normal(size=clusters)[own] + rng.normal(size=len(own))
    known = by_statsmodels(data).bse["T"]
    for most, larger in ((size // 5, True), (size, False)):
        options = {"bounds": {"Y": (-6, 9), "T": [0, 1]}, "control": clustered(most), "eps": 8}
        with warnings.catch_warnings(), seeded_noise(1):
            warnings.simplefilter("ignore")
            found = getattr(pc, call)("Y ~ T", data, **options)
        said = found.alerts.get("clusters", "")
        assert (f"max_cluster_rows={most}" in said) == larger
        assert ("Fewer than 30" in said) == (clusters < 30)
        assert found.bse.iloc[-1] > (1 if larger else 0.7) * known


def test_changes_have_the_errors_of_statsmodels() -> None:
    """A difference in differences is a difference in means of the units' changes."""
    after = villages("cluster").assign(year=2020).rename_axis("id").reset_index()
    before = after.assign(year=2019, T=0, Y=np.random.default_rng(1).random(len(after)))
    rows, bounds = pd.concat([before, after]), {"Y": (-6, 9)}
    with zero_noise():
        at = {"unit": "id", "time": "year", "periods": (2019, 2020)}
        found = pc.did("Y ~ T", rows, **at, bounds=bounds, control=clustered())
    expected = by_statsmodels(after.assign(Y=after["Y"] - before["Y"]))
    rest = (len(after) - 2) / (len(after) - 1)
    assert found.params["ATT"] == pytest.approx(expected.params["T"], abs=1e-4)
    assert found.bse["ATT"] == pytest.approx(expected.bse["T"] * rest**0.5, rel=1e-4)


@pytest.mark.parametrize("assigned", ["cluster", "row"])
@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATO"])
def test_adjusted_averages_are_close_to_least_squares(assigned: str, estimand: str) -> None:
    data = villages(assigned, 600, seed=3)
    with zero_noise():
        found = fit(data, "Y ~ T | X", estimand=estimand, base="linear")
        plain = fit(data, "Y ~ T | X", estimand=estimand, base="linear", control=pc.Control())
    expected = by_statsmodels(data, "Y ~ T + X").bse["T"]
    sampling = np.sqrt(found.estimate.averages.sampling[0, 0])
    assert sampling == pytest.approx(expected, rel=0.06)
    ratio = sampling / np.sqrt(plain.estimate.averages.sampling[0, 0])
    assert (ratio > 1.4) == (assigned == "cluster")
    # shares of the budget, and with them the priors of the nuisances, differ a little
    assert found.params.iloc[0] == pytest.approx(plain.params.iloc[0], abs=2e-3)


@pytest.mark.parametrize("formula", ["Y ~ T", "Y ~ T | X"])
def test_clusters_of_one_row_change_nothing(formula: str) -> None:
    data = villages("row").assign(village=lambda d: np.arange(len(d)))
    with zero_noise():
        one = fit(data, formula, control=clustered(1), groups=["G"])
        plain = fit(data, formula, control=pc.Control(), groups=["G"])
    one, plain = one.estimate.averages, plain.estimate.averages
    np.testing.assert_allclose(one.sd, plain.sd, rtol=2e-3 if formula == "Y ~ T" else 0.02)
    assert one.clusters == len(data)


def test_equal_rows_of_a_unit_count_once() -> None:
    """Units that are also clusters: their own errors, not those of the worst case."""
    rows = villages("row", 300).drop_duplicates("village")
    data = rows.loc[np.repeat(rows.index, [2, 4] * 150)]
    options = {"unit": "village", "max_rows": 4}
    with zero_noise():
        found = fit(data, **options, control=clustered(4))
        worst = fit(data, **options, control=pc.Control())
    expected = by_statsmodels(data).bse["T"]
    assert found.bse.iloc[0] == pytest.approx(expected, rel=2e-3)
    assert worst.bse.iloc[0] > 1.05 * expected


def test_rows_without_a_cluster_are_not_used() -> None:
    data = villages("cluster")
    missing = data.assign(village=data["village"].where(np.arange(len(data)) % 7 > 0))
    found = fit(missing, exact=True)
    expected = by_statsmodels(missing.dropna())
    assert found.params.iloc[0] == pytest.approx(expected.params["T"], abs=1e-4)
    assert found.bse.iloc[0] == pytest.approx(expected.bse["T"], rel=2e-3)


@pytest.mark.parametrize("assigned", ["cluster", "row"])
def test_a_regression_has_the_errors_of_statsmodels(assigned: str) -> None:
    """Up to the factor (n - 1) / (n - k), to the grid of the vault's sums."""
    data, formula = villages(assigned, 300, seed=2), "Y ~ T + X + C(G)"
    bounds = BOUNDS | {"T": (0, 1)}
    with zero_noise():
        found = pc.regress(formula, data, bounds=bounds, control=clustered())
        one = data.assign(village=np.arange(len(data)))
        alone = pc.regress(formula, one, bounds=bounds, control=clustered(1))
        robust = pc.regress(formula, data, bounds=bounds, control=pc.Control(cov_type="HC0"))
    expected = by_statsmodels(data, formula)
    errors = expected.bse * np.sqrt((len(data) - 4) / (len(data) - 1))
    np.testing.assert_allclose(found.bse, errors[found.bse.index], rtol=1e-3)
    np.testing.assert_allclose(found.params, expected.params[found.bse.index], atol=1e-3)
    np.testing.assert_allclose(alone.bse, robust.bse, rtol=1e-3)
    assert "Equal variances" not in str(found.summary(full=True))
    assert "Std err clustered by" in str(found.summary(full=True))


def test_a_weighted_regression_has_the_errors_of_statsmodels() -> None:
    data = villages("cluster", 300, seed=4).assign(w=lambda d: 1.0 + (d["X"] > 0.5))
    found = regress(
        "Y ~ T + X", data, weights="w", bounds=BOUNDS | {"T": (0, 1), "w": (0, 2)},
        control=clustered(), exact=True
    )  # fmt: skip
    kwds = {"groups": pd.factorize(data["village"])[0]}
    model = smf.wls("Y ~ T + X", data, weights=data["w"])
    expected = model.fit(cov_type="cluster", cov_kwds=kwds).bse
    errors = expected * np.sqrt((len(data) - 3) / (len(data) - 1))
    np.testing.assert_allclose(found.bse, errors[found.bse.index], rtol=0.01)


def test_every_test_of_few_clusters_uses_students_t() -> None:
    """Contrasts, predictions and joint tests, as the limits and p values of single terms."""
    rows, bounds = villages("row", 12), BOUNDS | {"T": (0, 1)}
    found = regress("Y ~ T + X", rows, bounds=bounds, control=clustered(), exact=True)
    averages = found.estimate.averages
    assert found.use_t
    assert found.df_resid == pytest.approx(averages.clusters - 1, rel=0.01)
    told = found.contrast("X")
    assert told.conf_int()[0] == pytest.approx(found.conf_int().loc["X"].to_numpy())
    assert told.pvalue[0] == pytest.approx(found.pvalues["X"])
    assert told.pvalue[0] > 1.01 * 2 * norm.sf(abs(told.statistic[0]))
    assert list(told.summary_frame())[2:4] == ["t", "P>|t|"]
    joint, one = found.wald_test("X = 0, T = 0"), found.wald_test("X = 0")
    assert one.pvalue == pytest.approx(found.pvalues["X"], rel=0.05)  # hardly a score is cut
    degrees = float(joint.df_denom)
    assert joint.pvalue == pytest.approx(f_law.sf(joint.fvalue, 2, degrees), rel=0.05)
    assert found.wald_test("X = 0, T = 0", use_f=False).statistic == pytest.approx(2 * joint.fvalue)
    point = found.get_prediction({"T": [0], "X": [0.0]})
    wide = point.conf_int()[0, 1] - point.predicted_mean[0]
    assert wide > 1.01 * norm.isf(0.025) * point.se_mean[0]


def test_few_clusters_raise_an_alert() -> None:
    with pytest.warns(pc.PrivcausalWarning, match="Fewer than 30 clusters"), seeded_noise(1):
        few = pc.private(
            "Y ~ T", villages("row", 12), eps=8, bounds=BOUNDS, control=clustered()
        )  # fmt: skip
    assert "clusters" in few.alerts
    with seeded_noise(1):
        assert "clusters" not in fit(villages("row", 200), eps=8).alerts
    # the declared largest size alone shows that there are enough clusters
    with seeded_noise(1):
        assert "clusters" not in fit(villages("row", 900), eps=0.1).alerts


def test_clipped_normal_sums_are_corrected_at_any_correlation() -> None:
    for rows in (1, 2, 20, 1_000, 10_000):
        limit = cluster_cap(0.2, rows)
        assert 0.79 * 0.2 * rows <= limit <= rows
        for icc in (0.0, 0.1, 0.3, 1.0):
            sd = 0.2 * np.sqrt(rows * (1 + (rows - 1) * icc))
            sums = sd * np.random.default_rng(rows).standard_normal(400_000)
            kept = float(np.mean(np.clip(sums, -limit, limit) ** 2))
            assert kept * correction(kept / limit**2) == pytest.approx(sd**2, rel=0.02)
    assert correction(1e-9) == pytest.approx(1, abs=1e-9)
    assert correction(1.0) <= 2.7


def test_noise_raises_the_error_and_the_number_of_clusters_is_released() -> None:
    data = villages("cluster", 400, seed=5)
    exact = fit(data, exact=True)
    found = [fit(data, eps=2.0, seed=seed).estimate.averages for seed in range(20)]
    errors = [np.sqrt(one.sampling[0, 0]) for one in found]
    assert 1.0 < np.mean(errors) / exact.bse.iloc[0] < 1.35
    assert all(one.clusters >= len(data) / MOST for one in found)
    assert np.mean([one.clusters for one in found]) == pytest.approx(400, abs=30)


def test_output_names_the_clusters_and_files_keep_them(reloaded: Any) -> None:
    found = fit(villages("cluster"), eps=4.0, seed=2)
    again = reloaded(found)
    assert again.estimate.averages.clusters == found.estimate.averages.clusters
    for text in (str(found.summary(full=True)), str(again.summary(full=True))):
        assert "Std err clustered by:          village" in text
    assert "Liang and Zeger 1986" in again.methods
    assert "no cluster has more than 12 rows" in " ".join(str(again.summary(full=True)).split())
    assert "control=pc.Control(cluster='village', max_cluster_rows=12)" in again.call
    (line,) = found.budget[found.budget["query"] == "squared cluster sums"].to_dict("records")
    assert line["stage"] == "variance"
    assert line["rho"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("formula", ["Y ~ T", "Y ~ T | X"])
def test_the_plan_has_the_stages_of_the_fit(formula: str) -> None:
    data = villages("cluster", 700, icc=0.1)
    options: dict[str, Any] = {"bounds": BOUNDS, "control": clustered()}
    widths = []
    for icc in (0.0, 0.1, 0.3):
        plan = pc.plan(formula, n=len(data), eps=4.0, outcome_sd=1.0, icc=icc, **options)
        widths.append(float(plan.table["half-width to"].iloc[0]))
    assert widths[0] < widths[1] < widths[2]
    assert "each village has 12 rows, whose influences have a correlation of 0.3" in " ".join(
        str(plan).split()
    )
    found = fit(data, formula, eps=4.0, seed=3)
    planned = plan.planner.plan(4.0, len(data))
    assert [(s.name, s.rho) for s in planned.stages] == [
        (s.name, s.rho) for s in found.plan.stages
    ]  # fmt: skip
    low, high = found.conf_int().iloc[0]
    assert (high - low) / 2 < widths[1]  # clusters of seven and a half rows on average
