"""Estimators fitted inside the vault, and the search for the largest influence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest, truncnorm
from sklearn.linear_model import LinearRegression, LogisticRegression

import privcausal as pc
from privcausal.errors import BudgetError
from privcausal.estimators.budget import Undeclared
from privcausal.estimators.published import Published
from privcausal.features.design import Design, Rows
from privcausal.features.functions import Constant
from privcausal.features.functions import NuisanceTriple as Nuisance
from privcausal.request.formula import CausalFormula
from privcausal.request.request import Budget, Request
from privcausal.request.schema import Schema
from privcausal.testing import zero_noise
from privcausal.vault import Estimators, Outcome, PublishedAte, open_source, open_vault
from privcausal.vault.estimators import FittedEstimators, learn_nuisances, unit_columns
from privcausal.vault.published import Supremum

KS_LEVEL = 1e-6

SCHEMA = Schema({"X": (-2, 4), "Z": (0, 1), "G": ["a", "b", "c"], "B": pc.Binary()})


def design(formula: str = "X + Z + C(G) + B") -> Design:
    return Design(CausalFormula.parse(f"y ~ t | {formula}").terms, SCHEMA, full_rank=False)


def search(made: Design, starts: int = 10) -> Supremum:
    size = (starts, len(made.variables))
    return Supremum(made, np.random.default_rng(0).random(size))


# -- the search ----------------------------------------------------------------------------------


def test_a_maximum_inside_and_one_in_a_corner_are_found() -> None:
    made = design("X + Z")

    def inside(rows: Rows) -> Any:
        return 5 - (rows.frame["X"] - 1.7) ** 2 - (rows.frame["Z"] - 0.3) ** 2

    def corner(rows: Rows) -> Any:
        return rows.frame["X"] - 3 * rows.frame["Z"]

    assert search(made).of(inside) == pytest.approx(5, abs=1e-4)
    assert search(made).of(corner) == pytest.approx(4, abs=1e-9)


def test_levels_and_an_undeclared_label_are_tried() -> None:
    made = design()

    def value(rows: Rows) -> Any:
        best = {-1: 7.0, 0: 1.0, 1: 2.0, 2: 3.0}
        level = np.array([best[int(g)] for g in rows.frame["G"]])
        return level + rows.frame["B"] - np.abs(rows.frame["X"])

    assert search(made, starts=1).of(value) == pytest.approx(8, abs=0.02)


def test_the_largest_of_several_local_maxima_is_kept() -> None:
    made = design("X")

    def waves(rows: Rows) -> Any:
        return np.sin(3 * rows.frame["X"]) + 0.1 * rows.frame["X"]

    x = np.linspace(-2, 4, 100_001)
    assert search(made).of(waves) == pytest.approx((np.sin(3 * x) + 0.1 * x).max(), abs=1e-3)


def test_nothing_to_search_is_one_point() -> None:
    made = Design((), SCHEMA, full_rank=False)
    assert search(made).of(lambda rows: np.full(len(rows), 3.0)) == 3.0


@pytest.mark.parametrize("formula", ["X + Z + C(G) + B", "s(X) + G", "X:Z + log(X + 3)"])
def test_columns_of_points_are_those_of_the_formula(formula: str) -> None:
    """Plain columns are read from tables, others by formulaic: the same numbers."""
    made = design(formula)
    rng = np.random.default_rng(1)
    tried, seen = Supremum(made, rng.random((50, len(made.variables)))), list[Rows]()

    def value(rows: Rows) -> np.ndarray:
        seen.append(rows)
        return np.zeros(len(rows))

    tried.of(value)
    rows = seen[0]  # the starts
    assert len(rows) == 50
    again = made.scaled(rows.frame, len(rows))
    np.testing.assert_allclose(rows.scaled(made), again, atol=1e-12)


# -- estimators ------------------------------------------------------------------------------------


def test_columns_lie_in_the_unit_interval() -> None:
    frame = {
        "X": np.array([-2.0, 1.0, 4.0]), "Z": np.array([0.0, 0.5, 1.0]),
        "G": np.array([0, 2, -1]), "B": np.array([0.0, 1.0, 1.0]),
    }  # fmt: skip
    got = unit_columns(Rows(frame, 3), design("X + Z + C(G)"))
    want = [[0, 0, 1, 0, 0], [0.5, 0.5, 0, 0, 1], [1, 1, 0, 0, 0]]
    np.testing.assert_allclose(got, want, atol=1e-12)
    assert unit_columns(Rows(frame, 3), Design((), SCHEMA, full_rank=False)).tolist() == [[0]] * 3


class Wild:
    """Predictions far outside every bound, and NaN."""

    def predict(self, x: Any) -> Any:
        return np.resize([np.nan, -1e9, 1e9], len(x))


def test_predictions_are_cut_and_never_nan() -> None:
    made = design("X")
    rows = Rows({"X": np.zeros(3)}, 3)
    assert FittedEstimators(Wild(), made, -1.0, 3.0)(rows).tolist() == [1.0, -1.0, 3.0]


def rows_of(n: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(n)
    return rng.random((n, 1)), rng.integers(0, 2, n).astype(float), rng.random(n)


@pytest.mark.parametrize("case", ["all treated", "none treated", "no rows"])
def test_learning_is_total(case: str) -> None:
    x, t, y = rows_of(0 if case == "no rows" else 20)
    t = np.full(len(t), 1.0 if case == "all treated" else 0.0)
    wanted = Estimators(LogisticRegression(), LinearRegression())
    made = design("Z")
    z = Rows({"Z": x[:, 0]}, len(t))
    found = learn_nuisances(wanted, z, t, y, design=made, clip=0.1, bounds=(0.0, 1.0))
    rows = Rows({"Z": np.linspace(0, 1, 5)}, 5)
    share = {"all treated": 0.9, "none treated": 0.1, "no rows": 0.5}[case]
    assert found.e(rows).tolist() == [share] * 5
    for mean in (found.mu0, found.mu1):
        assert ((mean(rows) >= 0) & (mean(rows) <= 1)).all()


def test_a_known_propensity_replaces_the_classifier() -> None:
    x, t, y = rows_of(30)
    known = Constant(0.3)
    wanted = Estimators(None, LinearRegression(), known)
    z = Rows({"Z": x[:, 0]}, len(t))
    found = learn_nuisances(wanted, z, t, y, design=design("Z"), clip=0.3, bounds=(0.0, 1.0))
    assert found.e is known


# -- the vault -------------------------------------------------------------------------------------


def trial(n: int) -> tuple[Any, Any, Any, PublishedAte]:
    """Rows, a plan and an order whose nuisances are 1/2: gamma = 1 + |tau|, by hand."""
    rng = np.random.default_rng(0)
    frame = {"y": rng.random(n), "t": rng.integers(0, 2, n), "X": rng.uniform(-2, 4, n)}
    schema = Schema({"y": (0, 1), "X": (-2, 4), "t": pc.Binary()})
    request = Request(
        CausalFormula.parse("y ~ t | X"), schema, Budget(1.0), estimand="ATE", mode="paper",
        below_minimum="published",
    )  # fmt: skip
    base = pc.bases.Sklearn(LogisticRegression(), LinearRegression())
    plan = Published().plan(request, base, Undeclared((), ()))
    made = Design(request.formula.terms, schema, full_rank=False)
    fixed = Nuisance(Constant(0.5), Constant(0.5), Constant(0.5))
    return frame, plan, made, PublishedAte(fixed, made, Outcome(0.0, 1.0), 0.5, HALF)


HALF = np.full((1, 1), 0.5)


def answer(frame: Any, plan: Any, made: Design, order: PublishedAte) -> tuple[Any, Any]:
    vault = open_vault(open_source(frame), plan, None, "run")
    vault.set_layout(plan.request.schema, [made], ())
    effect, variance = (stage.name for stage in plan.stages)
    return vault.release_published(effect, variance, order)


def k(n: int, eps: float, delta: float) -> float:
    return 5 * np.sqrt(2 * np.log(n) * np.log(2 / delta)) / (eps * n)


def test_without_noise_it_is_the_formula() -> None:
    frame, *rest = trial(80)
    score = 2 * (2 * frame["t"] - 1) * (frame["y"] - 0.5)
    with zero_noise():
        first, second = answer(frame, *rest)
    assert first.value[0] == pytest.approx(score.mean(), abs=1e-8)
    scale = (1 + abs(score.mean())) * k(80, 0.5, 5e-6)
    assert second.value[0] == pytest.approx(score.var() / 80 + scale**2, rel=1e-6)
    assert np.isnan(first.noise_sd).all() and np.isnan(second.charge.noise_sd)


@pytest.mark.slow
def test_real_noise_has_the_published_law() -> None:
    """400 draws pass a KS test at 1e-6, and fail it where the scale is three times off."""
    n = 30
    frame, *rest = trial(n)
    score = 2 * (2 * frame["t"] - 1) * (frame["y"] - 0.5)
    tau, gamma = score.mean(), 1 + abs(score.mean())
    scale = gamma * k(n, 0.5, 5e-6)
    draws = np.array([[r.value[0] for r in answer(frame, *rest)] for _ in range(400)])
    z = (draws[:, 0] - tau) / scale
    assert kstest(z, "norm").pvalue > KS_LEVEL
    assert kstest(3 * z, "norm").pvalue < KS_LEVEL
    noisy = (draws[:, 1] - scale**2) * n
    square_scale = (gamma**2 - score.var()) * k(n, 0.5, 5e-6)
    law = truncnorm((0 - score.var()) / square_scale, np.inf, score.var(), square_scale)
    seen = noisy[noisy > 1e-6]
    assert 120 < len(seen) < 280  # 8 sd of a fair coin
    assert kstest(seen, law.cdf).pvalue > KS_LEVEL
    assert kstest(3 * seen, law.cdf).pvalue < KS_LEVEL
    # the two draws are independent
    assert abs(np.corrcoef(z[noisy > 1e-6], seen)[0, 1]) < 5 / np.sqrt(len(seen))


def test_its_two_stages_are_spent_once() -> None:
    frame, plan, made, order = trial(80)
    vault = open_vault(open_source(frame), plan, None, "run")
    vault.set_layout(plan.request.schema, [made], ())
    effect, variance = (stage.name for stage in plan.stages)
    vault.release_published(effect, variance, order)
    with pytest.raises(BudgetError, match="was already spent"):
        vault.release_published(effect, variance, order)
