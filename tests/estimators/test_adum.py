"""Uplift by cells: its contract, limits, choice of groups, shrinkage, tables and wrong calls."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from fit_helpers import privcate, seedable

import privcausal as pc
from privcausal import testing
from privcausal.errors import BudgetError, CapabilityError
from privcausal.estimators import ADUM, TM
from privcausal.estimators.published import PrintedLoss
from privcausal.features.functions import Polynomials
from privcausal.inference.cells import bound, by_bound, fine
from privcausal.request.partition import Coordinates
from privcausal.request.schema import Schema
from privcausal.vault import Outcome

BOUNDS: dict[str, Any] = {"Y": (-5, 5), "X": (-1, 1), "G": ["a", "b"]}
FORMULA = "Y ~ T | X"


def study(n: int = 4000, seed: int = 0, noise: float = 1.0) -> pd.DataFrame:
    """Figure 1 of Betlei et al. (2021): tau(x) = sin x, no baseline."""
    rng = np.random.default_rng(seed)
    x, t = rng.uniform(-1, 1, n), rng.integers(0, 2, n)
    y = t * np.sin(x) + rng.normal(0, noise, n)
    return pd.DataFrame({"Y": y, "T": t, "X": x, "G": rng.choice(["a", "b"], n)})


def fit(learner: Any = "adum", frame: Any = None, formula: str = FORMULA, **options: Any) -> Any:
    table = study() if frame is None else frame
    return privcate(formula, table, learner=learner, **({"bounds": BOUNDS} | options))


@seedable
def printed(frame: Any = None, formula: str = FORMULA, **options: Any) -> Any:
    table = visits() if frame is None else frame
    return pc.paper.tm(formula, table, **({"bounds": BINARY} | options))


GRID = np.linspace(-0.999, 0.999, 400)


def error(made: Any) -> float:
    return float(((made.predict({"X": GRID})["estimate"] - np.sin(GRID)) ** 2).mean())


KINDS: dict[str, Any] = {
    "default": ADUM(),
    "as released": ADUM(cells=8, shrink=False, release="count_sum"),
    "bound": ADUM(cells="bound"),
    "gaussian": ADUM(noise="gaussian"),
    "kmeans": ADUM(partition="kmeans", cells=6, rounds=3),
    "parts": ADUM(partition={"X": [-0.5, 0.25], "G": "levels"}),
    "function": ADUM(partition=lambda points: np.where(points["X"] > 0, points["G"], "low")),
    "tm": TM(degree=3),
}


@pytest.mark.slow
@pytest.mark.sample(5)
@pytest.mark.parametrize("neighbors", ["substitute", "add_remove"])
@pytest.mark.parametrize("kind", KINDS)
def test_contract(kind: str, neighbors: Any, tmp_path: Path, reloaded: Any) -> None:
    """Spends what was asked and says so; saves, loads, prints and predicts the same."""
    learner = KINDS[kind]
    if kind == "bound":
        learner = ADUM(cells="bound", rows=4000)
    made = fit(learner, formula="Y ~ T | X + G", neighbors=neighbors, eps=0.7)
    promise, pure = made.guarantee, kind != "gaussian"
    assert promise.kind == "proven"
    assert promise.delta == (0.0 if pure else 1e-5)
    assert 0.999 * 0.7 < promise.epsilon <= 0.7
    spent = [r.charge.cost for r in made.estimate.releases]
    assert sum(c.epsilon for c in spent) == (made.plan.epsilon if pure else 0)
    assert sum(c.rho for c in spent) == made.plan.rho
    again = reloaded(made)
    points = {"X": [-0.7, 0.0, 0.9, 7.0], "G": ["a", "b", "a", "b"]}
    pd.testing.assert_frame_equal(again.predict(points), made.predict(points))
    assert str(again.summary()) == str(made.summary())
    assert promise.short in repr(made)
    made.report(tmp_path / "report.html")
    assert np.isfinite(made.params).all()
    assert np.isfinite(made.predict(points)["estimate"]).all()


def test_the_ledger_counts_pure_epsilon(tmp_path: Path) -> None:
    ledger = pc.Ledger(tmp_path / "l.db", "study", eps=1.0, delta=0)
    fit(eps=0.6, ledger=ledger)
    fit("tm", eps=0.4, ledger=ledger)
    assert ledger.spent.epsilon == pytest.approx(1.0)
    with pytest.raises(BudgetError):
        fit(eps=0.01, ledger=ledger)


@pytest.mark.parametrize("release", ["ends", "count_sum"])
def test_without_noise_it_is_the_difference_of_means(release: Any) -> None:
    frame = study()
    made = fit(ADUM(cells=5, shrink=False, release=release), frame, exact=True)
    cell = np.minimum(np.floor((frame["X"] + 1) * 2.5), 4).astype(int)
    means = frame["Y"].clip(-5, 5).groupby([cell, frame["T"]]).mean().unstack()
    assert made.cells["estimate"].to_numpy() == pytest.approx((means[1] - means[0]).to_numpy())
    counts = frame.groupby([cell, "T"]).size().unstack()
    assert np.array_equal(made.cells[["control", "treated"]], counts)
    arms = frame["Y"].clip(-5, 5).groupby(frame["T"]).mean()
    assert made.params["ATE"] == pytest.approx(arms[1] - arms[0])


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("degree", [1, 3])
def test_without_noise_tm_is_least_squares(degree: int, published: bool) -> None:
    frame = study()
    if published:
        made = printed(frame, degree=degree, bounds=BOUNDS, exact=True)
    else:
        made = fit(TM(degree=degree), frame, exact=True)
    fits = [
        np.polynomial.Polynomial.fit(arm["X"], arm["Y"].clip(-5, 5), degree)
        for _, arm in frame.groupby("T")
    ]
    found = made.predict({"X": GRID})["estimate"].to_numpy()
    assert found == pytest.approx(fits[1](GRID) - fits[0](GRID), abs=1e-5)


def test_tm_says_what_it_is_for_two_values() -> None:
    frame = study().assign(Y=lambda d: (d["Y"] > 0).astype(int))
    made = fit("tm", frame, bounds={"Y": pc.Binary(), "X": (-1, 1)})
    assert "the regressions are linear" in " ".join(str(made.summary(full=True)).split())
    assert "the regressions are linear" not in " ".join(str(fit("tm").summary(full=True)).split())


BINARY: dict[str, Any] = {"Y": pc.Binary(), "X": (-1, 1), "G": ["a", "b"]}


def visits(n: int = 4000, seed: int = 0) -> pd.DataFrame:
    return study(n, seed).assign(Y=lambda d: (d["Y"] > 0.3).astype(int))


def test_logistic_regressions_by_objective_perturbation(tmp_path: Path, reloaded: Any) -> None:
    """Published, not proven: every output says so, and only a ledger that takes such is charged."""
    willing = pc.Ledger(tmp_path / "p.db", "study", eps=5, delta=0, allow_published=True)
    made = printed(eps=0.7, ledger=willing, formula="Y ~ T | X + G")
    assert willing.spent.epsilon == pytest.approx(0.7)
    promise = made.guarantee
    assert (promise.kind, promise.epsilon, promise.delta) == ("published", 0.7, 0.0)
    assert "Chaudhuri" in promise.statement and "not proven" in promise.statement
    text = " ".join(str(made.summary(full=True)).split())
    assert "objective perturbation" in text and "not proven" in text
    points = {"X": [-0.7, 0.0, 7.0], "G": ["a", "b", "a"]}
    found = made.predict(points)
    assert (found["estimate"].abs() < 1).all() and found["std_error"].isna().all()
    pd.testing.assert_frame_equal(reloaded(made).predict(points), found)
    made.report(tmp_path / "report.html")


@pytest.mark.parametrize(
    ("degree", "options", "error"), [(1, {}, 2e-3), (3, {}, 2e-3), (1, {"C": 0.05}, 1e-4)]
)
def test_without_noise_they_are_penalised_logistic_regressions(
    degree: int, options: dict[str, float], error: float
) -> None:
    """The ridge is one over C, of rows of length one at most; by default it is almost none."""
    from scipy.special import expit
    from sklearn.linear_model import LogisticRegression

    frame, strength = visits(), options.get("C", 1e8)
    made = printed(frame, degree=degree, eps=1e4, exact=True, **options)
    assert ("C=0.05" in made.call) == bool(options)

    def powers(x: Any) -> Any:
        return np.polynomial.legendre.legvander(x, degree) / np.sqrt(degree + 1)

    curves = []
    for _, arm in frame.groupby("T"):
        model = LogisticRegression(C=strength, fit_intercept=False, tol=1e-10, max_iter=1000)
        model.fit(powers(arm["X"]), arm["Y"])
        curves.append(expit(powers(GRID) @ model.coef_[0]))
    found = made.predict({"X": GRID})["estimate"].to_numpy()
    assert found == pytest.approx(curves[1] - curves[0], abs=error)


@pytest.mark.parametrize("neighbors", ["substitute", "add_remove"])
def test_the_printed_tm_has_the_noise_that_is_printed(neighbors: Any, reloaded: Any) -> None:
    """Noise Lap(2 (1 + p)^2 / eps) on the coefficients, a ridge of four of its sds: by hand."""
    frame, eps, p = study(), 2.0, 3
    made = printed(frame, degree=p - 1, bounds=BOUNDS, eps=eps, neighbors=neighbors)
    sums = made.estimate.releases[0].value.reshape(2, -1)
    sd = math.sqrt(2) * 2 * (1 + p) ** 2 / eps  # of a coefficient
    curves = []
    for part in sums:
        gram, upper = np.zeros((p, p)), np.triu_indices(p)
        gram[upper] = gram.T[upper] = part[p:] / p
        values, vectors = np.linalg.eigh(gram + 4 * sd * np.eye(p))
        own = vectors[:, values > 0]
        coef = own @ (own.T @ (5 * part[:p] / math.sqrt(p)) / values[values > 0])
        curves.append(np.polynomial.legendre.legvander(GRID, p - 1) / math.sqrt(p) @ coef)
    expected = curves[1] - curves[0]
    found = made.predict({"X": GRID})["estimate"].to_numpy()
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-8)
    linear, square = made.estimate.releases[0].noise_sd[[0, p]]
    assert (2 * linear / math.sqrt(p), square / p) == pytest.approx((sd, sd), rel=1e-6)
    assert made.guarantee.kind == "published"
    assert "no failure of the claim is known" in made.guarantee.statement
    again = reloaded(made).predict({"X": GRID})
    pd.testing.assert_frame_equal(again, made.predict({"X": GRID}))


def test_the_printed_noise_covers_a_row() -> None:
    """Rows at the ends of the domain change the weighted sums by less than is printed."""
    schema = Schema({"X": (-1, 1), "Y": (-5, 5)})
    loss = PrintedLoss(Polynomials(Coordinates(schema, ("X",)), 2), Outcome(-5, 5))
    for a, p in ((1.0, 1), (3.0, 3), (4.0, 9)):
        assert 2 * (2 * math.sqrt(a) + 0.5 * (a + 1)) < 2 * (1 + p) ** 2
    steps = loss.l1_sensitivity("substitute") * loss.units[0]
    assert steps == pytest.approx(2 * 16, rel=1e-6)


@pytest.mark.parametrize("neighbors", ["substitute", "add_remove"])
def test_neighbors_of_the_printed_linear_tm_differ_by_less_than_its_noise(neighbors: str) -> None:
    """With Laplace noise of scale b_i, sums that differ by d_i cost sum |d_i| / b_i of epsilon."""
    frame = visits().head(40).assign(Y=lambda d: d["Y"] * 10.0 - 5.0)

    def release(rows: pd.DataFrame) -> Any:
        made = pc.paper.tm(
            "Y ~ T | X", rows, eps=1.0, neighbors=neighbors,
            bounds={"Y": (-5, 5), "X": (-1, 1), "T": (0, 1)},
        )  # fmt: skip
        return made.estimate.releases[0]

    with testing.seeded_noise(1):
        scale = release(frame).noise_sd / math.sqrt(2)
    base, costs = frame if neighbors == "substitute" else frame.drop(0), []
    with testing.zero_noise():
        before = release(base).value
        for x, y, t in itertools.product((-1.0, 0.0, 1.0), (-5.0, 0.0, 5.0), (0, 1)):
            other = frame.copy()
            other.loc[0, ["X", "Y", "T"]] = x, y, t
            costs.append(float(np.sum(np.abs(release(other).value - before) / scale)))
    assert 0.1 < max(costs) <= 1.0


@pytest.mark.slow
def test_default_beats_groups_tuned_with_the_truth() -> None:
    """A hard case of Figure 1, few repetitions; the study has all of them."""
    tables = [study(20_000, seed) for seed in range(3)]
    for epsilon in (0.1, 1.0):

        def mean(learner: Any, epsilon: float = epsilon) -> float:
            with testing.seeded_noise(5):
                return float(np.mean([error(fit(learner, t, eps=epsilon)) for t in tables]))

        tuned = min(
            mean(ADUM(cells=p, shrink=False, release="count_sum")) for p in (2, 3, 5, 8, 12, 20)
        )
        assert mean(ADUM()) < tuned


@pytest.mark.slow
def test_intervals_cover() -> None:
    inside = []
    with testing.seeded_noise(3):
        for seed in range(12):
            cells = fit(frame=study(8000, seed), eps=1.0).cells
            truth = np.sin(np.linspace(-1, 1, 2 * len(cells) + 1)[1::2])
            inside.append(((cells["conf_low"] < truth) & (truth < cells["conf_high"])).mean())
    assert np.mean(inside) > 0.85


def test_a_constant_effect_is_pooled() -> None:
    frame = study(20_000).assign(Y=lambda d: d["Y"] - d["T"] * np.sin(d["X"]) + 0.5 * d["T"])
    made = fit(frame=frame, eps=1.0, seed=1)
    assert made.cells["estimate"].std() < 0.05
    assert made.cells["estimate"].mean() == pytest.approx(0.5, abs=0.1)


# -- the number of groups ------------------------------------------------------------------------


def test_the_bound_is_equation_7() -> None:
    """2 L / p^2 + 4 (2 sigma^2 + L) p / n + (24 D_y)^2 p^2 / (n eps)^2, worked by hand."""
    found = bound(np.array([10.0]), 20_000, 0.5, 4.0, 1.5, 10.0)
    assert found == pytest.approx([0.08 + 0.017 + 0.0576])
    # for 20,000 rows at 0.04 it holds up to some 20 groups (section 2.4.2), wherever it is least
    assert by_bound(20_000, 0.04, 1e6, 0.0, 1e-3, 1000) == int(800 / (8 * np.log(100)))


def test_groups_of_the_bound_have_both_regimes() -> None:
    """p grows like sqrt(n eps) where noise counts, not n eps as section 2.4.2 prints (Eq. 7)."""

    def groups(rows: float, epsilon: float) -> int:
        return by_bound(rows, epsilon, 1.0, 0.25, 1.0, 10**5)

    noisy = [groups(1e6, eps) for eps in (0.02, 0.08)]
    assert noisy[1] / noisy[0] == pytest.approx(2.0, rel=0.15)  # of p^-2 and (p / n eps)^2
    assert groups(4e6, 0.02) / noisy[0] == pytest.approx(2.0, rel=0.15)  # of n as of eps
    silent = [groups(rows, 1e6) for rows in (1e6, 8e6)]
    assert silent[1] / silent[0] == pytest.approx(2.0, rel=0.05)
    assert groups(1e6, 1e6) == groups(1e6, 1e7)
    least = groups(1e6, 0.5)
    around = bound(np.array([least - 1.0, least, least + 1.0]), 1e6, 0.5, 1.0, 0.25, 1.0)
    assert around.argmin() == 1


def test_the_default_grid_grows_with_n_epsilon() -> None:
    assert [fine(n, 1.0) for n in (100, 20_000, 10**7)] == [3, 26, 64]
    assert fine(None, 1.0) == 32
    assert len(fit(eps=1.0).cells) == fine(4000, 1.0)


# -- aggregated tables ---------------------------------------------------------------------------


def test_the_owners_sql_gives_the_released_sums(tmp_path: Path) -> None:
    """SQL for a data owner, then noise: with none, the fit on rows."""
    frame = study()
    learner = ADUM(partition={"X": [-0.5, 0.0], "G": "levels"}, shrink=False)
    with testing.zero_noise():
        rows = fit(learner, frame, "Y ~ T | X + G")
        table = duckdb.sql(rows.plan.sql(table="frame")).df()
        assert table["steps"].dtype == np.int64
        made = pc.from_cells(table, rows.plan, learner=ADUM(shrink=False))
        assert made.cells["estimate"].to_numpy() == pytest.approx(
            rows.cells["estimate"].to_numpy(), abs=1e-7
        )
        sums = pc.from_cells(table.drop(columns="steps"), rows.plan, learner=ADUM(shrink=False))
    assert sums.cells["estimate"].to_numpy() == pytest.approx(rows.cells["estimate"], abs=1e-7)
    points = pd.DataFrame({"X": [-0.9, 0.3], "G": ["a", "b"]})
    assert made.predict(points)["estimate"].to_numpy() == pytest.approx(
        rows.predict(points)["estimate"], abs=1e-7
    )


@pytest.mark.parametrize("dialect", ["postgres", "snowflake", "bigquery", "spark"])
def test_sql_in_other_dialects(dialect: str) -> None:
    pytest.importorskip("sqlglot")
    import sqlglot

    text = fit().plan.sql(dialect, table="visits")
    assert sqlglot.parse_one(text, read=dialect)
    assert "visits" in text


def table(**columns: Any) -> pd.DataFrame:
    made = {
        "cell": ["a", "a", "b", "b"], "arm": [0, 1, 0, 1], "count": [900, 100, 500, 500],
        "sum": [90.0, 20.0, 50.0, 100.0],
    }  # fmt: skip
    return pd.DataFrame(made | columns)


def test_a_declared_cell_that_is_absent_is_zero_and_gets_noise() -> None:
    made = pc.from_cells(table(), ["a", "b", "c"], outcome=["0", "1"], eps=1)
    counts = made.cells.loc["cell = c", ["treated", "control"]]
    assert (counts != 0).any()
    assert made.guarantee.epsilon == 1.0
    assert made.guarantee.delta == 0.0
    assert made.guarantee.kind == "proven"
    assert np.isnan(made.glance()["n"].iloc[0])  # the size of the table is private


def test_a_table_as_snowflake_returns_it_gives_the_same_fit() -> None:
    """Names in upper case, and numbers as Decimal objects."""
    plain = table(sum=[90, 20, 50, 100])
    objects = {name: [*map(Decimal, plain[name].tolist())] for name in ("arm", "count", "sum")}
    upper = plain.assign(**objects).rename(columns=str.upper)
    with testing.seeded_noise(1):
        known = pc.from_cells(plain, ["a", "b"], outcome=(0, 1), eps=1)
    with testing.seeded_noise(1):
        found = pc.from_cells(upper, ["a", "b"], outcome=(0, 1), eps=1)
    pd.testing.assert_frame_equal(found.cells, known.cells)


def test_a_noisy_table_is_post_processed(reloaded: Any) -> None:
    noisy = table(count=[899.3, 101.2, 498.8, 503.0], sum=[88.1, 21.7, 51.0, 99.9])
    made = pc.from_cells(noisy, ["a", "b"], outcome=(0, 1), eps=1, noise={"count": 3, "sum": 3})
    assert made.guarantee.kind == "published"
    assert made.plan.epsilon == made.plan.rho == 0
    expected = np.array([21.7 / 101.2 - 88.1 / 899.3, 99.9 / 503.0 - 51.0 / 498.8])
    plain = pc.from_cells(
        noisy, ["a", "b"], eps=1, noise={"count": 3, "sum": 3}, learner=ADUM(shrink=False)
    )
    assert (made.guarantee.epsilon, made.guarantee.delta) == (1.0, 0.0)
    assert plain.cells["estimate"].to_numpy() == pytest.approx(expected)
    assert str(reloaded(made).summary()) == str(made.summary())


def test_what_an_exact_table_takes_for_granted_is_said() -> None:
    proviso = "assumes that each row was counted once, with its outcome clipped to its bounds"
    assert proviso in pc.from_cells(table(), ["a", "b"]).guarantee.statement
    assert proviso not in fit().guarantee.statement


def test_a_plan_that_protects_units_has_no_sql() -> None:
    frame = study().assign(id=lambda d: np.arange(len(d)) // 2)
    plan = fit(frame=frame, unit="id", max_rows=2).plan
    with pytest.raises(CapabilityError, match="one row per person"):
        plan.sql()
    with pytest.raises(CapabilityError, match="one row per person"):
        pc.from_cells(table(), plan)


@pytest.mark.slow
def test_adum_as_printed(tmp_path: Path, reloaded: Any) -> None:
    """S / C as it is, for outcomes away from zero; published, and every output says so."""
    frame = study().assign(Y=lambda d: d["Y"].clip(-3, 3) + 7)
    options: dict[str, Any] = {"cells": 8, "bounds": BOUNDS | {"Y": (4, 10)}}
    with testing.recorded() as recorder:
        made = pc.paper.adum(FORMULA, frame, eps=0.02, **options)
    count, total = recorder.calls[0].noisy.reshape(2, 8, 2) * [[[2.0**-30]], [[10 * 2.0**-30]]]
    mean = total / count
    assert made.cells["estimate"].to_numpy() == pytest.approx(mean[:, 1] - mean[:, 0])
    assert made.cells["estimate"].abs().max() > 6  # nothing is cut to the width of the bounds
    with testing.zero_noise():
        exact = pc.paper.adum(FORMULA, frame, **options)
        same = fit(ADUM(cells=8, shrink=False), frame, bounds=options["bounds"])
    found = exact.predict({"X": GRID})["estimate"].to_numpy()
    assert found == pytest.approx(same.predict({"X": GRID})["estimate"].to_numpy(), abs=1e-6)

    real = pc.paper.adum(FORMULA, frame, **options)
    assert real.guarantee.kind == "published"
    assert "2.667 times the stated epsilon" in real.guarantee.statement  # 2 (1 + 10/6) / 2
    added = pc.paper.adum(FORMULA, frame, neighbors="add_remove", **options)
    assert "1.334 times the stated epsilon" in added.guarantee.statement
    assert "pc.paper.adum(" in real.call and "cells=8" in real.call
    again = reloaded(real)
    pd.testing.assert_frame_equal(again.predict({"X": GRID}), real.predict({"X": GRID}))
    assert again.guarantee == real.guarantee
    assert "Algorithm 1" in again.guarantee.statement
    assert "CLAIMED, NOT PROVEN" in str(again.summary())
    real.report(tmp_path / "report.html")


@pytest.mark.parametrize("eps", [0.5, 2.0])
def test_the_spread_of_the_printed_adum_is_its_formula(eps: float) -> None:
    """An arm's mean m has variance 8 (D_y^2 + m^2) / (eps c)^2; 22% are five standard errors."""
    cells, c, means, width = 512, 40, (-1.0, 2.0), 6.0
    x = np.repeat((np.arange(cells) + 0.5) / cells * 2 - 1, 2 * c)
    t = np.tile(np.repeat([0, 1], c), cells)
    frame = pd.DataFrame({"Y": np.where(t == 1, means[1], means[0]), "T": t, "X": x, "G": "a"})
    made = pc.paper.adum(
        "Y ~ T | X", frame, cells=cells, eps=eps * 100, bounds=BOUNDS | {"Y": (-3, 3)}
    )
    spread = (made.cells["estimate"] - (means[1] - means[0])).std()
    expected = np.sqrt(sum(8 * (width**2 + m**2) for m in means)) / (eps * 100 * c)
    assert spread == pytest.approx(expected, rel=0.22)


def test_a_function_never_sees_a_row() -> None:
    seen = []

    def halves(points: pd.DataFrame) -> Any:
        seen.append(points)
        return np.where(points["X"] > 0.1, "high", "low")

    made = fit(ADUM(partition=halves), frame=study().assign(X=0.123456789))
    assert seen
    for points in seen:
        assert not np.isclose(points["X"], 0.123456789, atol=1e-9).any()
    assert list(made.cells.index) == ["low", "high"]


# -- uplift curves -------------------------------------------------------------------------------


def test_uplift_of_other_rows() -> None:
    """Treating by sin x: the exact area, and the straight random line."""
    with testing.seeded_noise(4):
        made = fit(frame=study(20_000, 1), eps=4.0)
        look = made.uplift(study(60_000, 2), eps=4.0)
    curve = look.frame()
    assert curve["share"].iloc[0] == curve["gain"].iloc[0] == 0
    assert curve["share"].iloc[-1] == pytest.approx(1)
    assert np.allclose(curve["random"], curve["share"] * curve["gain"].iloc[-1])
    # treat x from 1 down to 1 - 2 s: the gain is (cos(1 - 2 s) - cos 1) / 2, its area 0.1506
    exact = (np.cos(1 - 2 * curve["share"]) - np.cos(1)) / 2
    assert (np.abs(curve["gain"] - exact) < 5 * curve["std_error"] + 1e-3).all()
    area = look.areas().loc["AUUC"]
    assert area["estimate"] == pytest.approx((np.sin(1) - np.cos(1)) / 2, abs=0.03)
    assert area["conf_low"] > area["random"] + 0.05
    assert look.areas().loc["Qini", "conf_low"] > 0


def test_uplift_costs_what_it_says(tmp_path: Path) -> None:
    made = fit(eps=1.0)
    ledger = pc.Ledger(tmp_path / "l.db", "study", eps=0.5, delta=0)
    look = made.uplift(study(seed=3), eps=0.5, ledger=ledger)
    assert look.guarantee.epsilon == 0.5
    assert look.guarantee.delta == 0.0
    assert look.guarantee.kind == "proven"
    assert ledger.spent.epsilon == pytest.approx(0.5)
    assert len(look.budget) == 1
    assert "AUUC" in str(look)
    assert "Cost of this release: 0.5-DP (pure)." in str(look)
    assert max(map(len, str(look).split("\n"))) <= 78
    assert look._repr_html_() == look.summary().as_html()
    look.plot("qini")
    with pytest.raises(BudgetError):
        made.uplift(study(seed=3), eps=0.5, ledger=ledger)


@pytest.mark.parametrize("learner", ["r", "dr", "s", "t", "x", "tm", "dpcate", "auto"])
def test_uplift_of_effects_without_cells(learner: str) -> None:
    """Rows are treated by their estimated effects, so the area is near that of the best order."""
    with testing.seeded_noise(5):
        made = fit(learner, study(20_000, 1), eps=4.0, propensity=0.5)
        look = made.uplift(study(60_000, 2), eps=4.0)
    area = look.areas().loc["AUUC"]
    # the best order gives 0.1506 over a continuum of ranges, and 0.149 over ten
    assert 0.13 < area["estimate"] < 0.149 + 5 * area["std_error"]
    assert area["conf_low"] > area["random"] + 0.05


def test_uplift_without_an_order_is_refused() -> None:
    flat = fit("r", study().assign(Y=0.0), propensity=0.5, exact=True)
    with pytest.raises(CapabilityError, match="same for all rows"):
        flat.uplift(study(), eps=1)


@pytest.mark.slow
def test_bands_of_uplift_cover() -> None:
    inside = []
    exact = (np.sin(1) - np.cos(1)) / 2
    with testing.seeded_noise(8):
        made = fit(ADUM(cells=16), study(20_000, 1), eps=4.0)
        for seed in range(40):
            area = made.uplift(study(3000, seed + 50), eps=1.0).areas().loc["AUUC"]
            inside.append(abs(area["estimate"] - exact) < 1.96 * area["std_error"] + 0.004)
    assert np.mean(inside) > 0.7  # at 95 % fewer has a chance below 1e-6


def test_polynomials_take_more_features_than_a_grid() -> None:
    rng = np.random.default_rng(3)
    names = [f"X{j}" for j in range(12)]
    frame = pd.DataFrame(rng.random((400, 12)), columns=names)
    frame = frame.assign(T=rng.integers(0, 2, 400), Y=rng.random(400))
    bounds = dict.fromkeys([*names, "Y"], (0, 1))
    made = privcate(
        f"Y ~ T | {' + '.join(names)}", frame, learner="tm", bounds=bounds, eps=4.0, seed=1
    )
    assert np.isfinite(made.predict(frame.head())["estimate"]).all()


@pytest.mark.parametrize("make", [lambda d: d, pl.from_pandas], ids=["pandas", "polars"])
def test_few_whole_numbers_have_a_cell_each(make: Any) -> None:
    """By the column's public type alone: of floats with the same values parts are equal."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"T": rng.integers(0, 2, 4000), "G": rng.integers(0, 2, 4000)})
    frame["Y"], frame["K"] = frame["T"] * frame["G"], rng.integers(2, 5, 4000)
    bounds = {"Y": (0, 1), "G": (0, 1), "K": (2, 4)}
    with testing.zero_noise():
        fit = pc.privcate("Y ~ T | G", make(frame), learner="adum", eps=1, bounds=bounds)
        assert fit.cells.index.tolist() == ["G = 0", "G = 1"]
        np.testing.assert_allclose(fit.cells["estimate"], [0, 1], atol=0.01)
        three = pc.privcate("Y ~ T | K", make(frame), learner="adum", eps=1, bounds=bounds)
        assert len(three.cells) == 3
        floats = frame.astype({"G": float})
        many = pc.privcate("Y ~ T | G", make(floats), learner="adum", eps=1, bounds=bounds)
    assert len(many.cells) > 2


@pytest.mark.parametrize("rounds", [1, 4])
def test_clusters_have_half_of_the_budget(rounds: int) -> None:
    """Section 3.2: private k-means takes half of epsilon, and the cells the rest."""
    fitted = fit(ADUM(partition="kmeans", cells=6, rounds=rounds), eps=1.0)
    price = fitted.budget.groupby("stage")["epsilon"].sum()
    assert price["nuisance"] == pytest.approx(0.5)
    assert price["effect"] == pytest.approx(0.5)
    assert len(fitted.budget) == rounds + 1


def test_wide_bounds_of_whole_numbers_make_no_list_of_them() -> None:
    frame = pd.DataFrame({"Y": [0.0, 1.0] * 50, "T": [0, 0, 1, 1] * 25, "X": np.arange(100)})
    bounds = {"Y": (0, 1), "X": (0, 10**15)}
    assert len(pc.privcate(FORMULA, frame, learner="adum", bounds=bounds).cells) > 2
