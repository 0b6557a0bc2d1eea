"""Overlap and balance: exact without noise, honest with it, and priced as planned."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from learners_contract import BOUNDS, FORMULA, fit, study

import privcausal as pc
from privcausal.estimators.diagnostics import OVERLAP_CELLS as CELLS
from privcausal.testing import seeded_noise, zero_noise

SIZE = 1500
COLUMNS = ("X1", "C(G)[T.b]", "C(G)[T.c]", "X2")


def table() -> pd.DataFrame:
    """The study with strong selection, and a few values missing."""
    data = study(SIZE, seed=4).copy()
    rng = np.random.default_rng(11)
    data["T"] = (rng.random(SIZE) < 1 / (1 + np.exp(-3 * data["X1"]))).astype(float)
    data.loc[::29, "X1"] = np.nan
    data.loc[3::31, "T"] = np.nan
    data.loc[5::37, "Y"] = np.nan
    return data


@lru_cache
def noiseless(split: str = "full", base: str = "gam", **options: Any) -> Any:
    return fit("r", base, table(), control=pc.Control(split=split), **options, exact=True)


def columns(data: pd.DataFrame) -> np.ndarray:
    parts = [data["X1"], data["G"] == "b", data["G"] == "c", data["X2"]]
    return np.column_stack(parts).astype(float)


def textbook(data: pd.DataFrame, e: Any) -> tuple[Any, Any]:
    """Differences of the arms' means before and after weighting, in natural units."""
    x, treated = columns(data), data["T"].to_numpy() == 1
    weights = np.where(treated, 1 / e, 1 / (1 - e))
    plain, weighted = (
        np.average(x[treated], axis=0, weights=w[treated])
        - np.average(x[~treated], axis=0, weights=w[~treated])
        for w in (np.ones(len(data)), weights)
    )
    return plain, weighted


def population_sd(fitted: Any) -> Any:
    """Standard deviations of the columns among the released population's rows."""
    frame = fitted.estimate.population.rows().frame
    parts = [frame["X1"], frame["G"] == 1, frame["G"] == 2, frame["X2"]]
    return np.column_stack(parts).astype(float).std(axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("split", ["full", "crossfit"])
def test_overlap_counts_the_rows_of_the_fit(split: str) -> None:
    fitted, data = noiseless(split), table()
    with zero_noise():
        found = fitted.overlap(data, eps=0.3).frame
    complete = data.dropna()
    e = fitted.nuisances["propensity"](complete).to_numpy()
    edges = np.linspace(0.1, 0.9, CELLS + 1)
    for arm, name in enumerate(("control", "treated")):
        own = e[complete["T"] == arm]
        inner = [((own > a) & (own <= b) & (own < 0.9)).sum() for a, b in pairwise(edges)]
        assert found[name].tolist() == [(own <= 0.1).sum(), *inner, (own >= 0.9).sum()]
        assert found[name].iloc[[0, -1]].max() > 0, "selection is strong: some rows are cut"
    assert found[["treated", "control"]].to_numpy().sum() == len(complete)
    assert (found["std_error"] == 0).all()
    assert found["low"].iloc[0] == 0
    assert found["high"].iloc[-1] == 1


@pytest.mark.slow
@pytest.mark.parametrize(("split", "base"), [("full", "gam"), ("crossfit", "linear")])
def test_balance_is_that_of_weighted_means(split: str, base: str) -> None:
    """Sums are exact to 2^-30 of their bounds, the largest of which is 1 / clip."""
    fitted, data = noiseless(split, base), table()
    with zero_noise():
        found = fitted.balance(data, eps=0.3).frame
    complete = data.dropna()
    e = fitted.nuisances["propensity"](complete).to_numpy()
    before, after = textbook(complete, e)
    sd = population_sd(fitted)
    assert tuple(found.index) == COLUMNS
    assert found["before"].to_numpy() == pytest.approx(before / sd, abs=1e-6)
    assert found["after"].to_numpy() == pytest.approx(after / sd, abs=1e-6)
    assert (found[["std_error_before", "std_error_after"]] == 0).all(axis=None)
    assert abs(found.loc["X1", "before"]) > 1 > 2 * abs(found.loc["X1", "after"])


@pytest.mark.slow
def test_standard_is_near_the_rows_own_standard_deviation() -> None:
    own = columns(table().dropna()).std(axis=0)
    assert population_sd(noiseless()) == pytest.approx(own, rel=0.06)


@pytest.mark.slow
def test_balance_errors_are_as_large_as_stated() -> None:
    """sd of (noisy - exact) / stated over 60 draws of 4 differences: 1 within five sd of itself."""
    fitted, data = noiseless(), table()
    with zero_noise():
        exact = fitted.balance(data, eps=1.0).frame
    with seeded_noise(5):
        draws = [fitted.balance(data, eps=1.0).frame for _ in range(60)]
    for which in ("before", "after"):
        z = [(found[which] - exact[which]) / found[f"std_error_{which}"] for found in draws]
        assert np.std(z) == pytest.approx(1, abs=5 / np.sqrt(2 * 240))
        assert abs(np.mean(z)) < 5 / np.sqrt(240)


def test_an_arm_too_small_to_see_has_no_means() -> None:
    data = table().head(20)
    with seeded_noise(1):
        found = noiseless().balance(data, eps=0.05).frame
    assert found.isna().all(axis=None)


@pytest.mark.parametrize("what", ["overlap", "balance"])
class TestPrice:
    def look(self, what: str, fitted: Any, data: Any, **options: Any) -> Any:
        with seeded_noise(2):
            return getattr(fitted, what)(data, **options)

    def test_units_and_rows_of_a_unit(self, what: str) -> None:
        data = table().assign(pid=np.arange(SIZE) // 2)
        fitted = fit("r", "linear", data, unit="pid", max_rows=3, exact=True)
        three = self.look(what, fitted, data, eps=0.4)
        one = self.look(what, noiseless(), data, eps=0.4)
        ratio = three.budget["sensitivity"].item() / one.budget["sensitivity"].item()
        assert ratio == pytest.approx(3, rel=1e-6)
        assert three.guarantee.unit == "one pid (at most 3 rows)"

    def test_adding_a_row_moves_less_than_replacing_one(self, what: str) -> None:
        fitted = fit("r", "linear", table(), neighbors="add_remove", exact=True)
        one, other = (self.look(what, f, table(), eps=0.4) for f in (fitted, noiseless()))
        ratio = other.budget["sensitivity"].item() / one.budget["sensitivity"].item()
        assert ratio == pytest.approx(np.sqrt(2), rel=1e-6)
        assert one.guarantee.neighbors == "add_remove"


def test_a_known_number_leaves_nothing_to_see() -> None:
    with zero_noise():
        fitted = fit("r", "linear", study(), propensity=0.5)
        plain, weighted = fitted.balance(study(), eps=1).frame[["before", "after"]].to_numpy().T
    assert weighted == pytest.approx(plain, abs=1e-6)


def test_a_known_column_is_counted_as_it_is() -> None:
    data = study().assign(p=np.repeat([0.05, 0.2, 0.6], len(study()) // 3))
    bounds = BOUNDS | {"p": (0.2, 0.8)}
    with zero_noise():
        fitted = pc.privcate(FORMULA, data, base="linear", bounds=bounds, propensity="p")
        found = fitted.overlap(data, eps=1).frame
        assert len(fitted.balance(data, eps=1).frame) == len(COLUMNS)
    counts = (found["treated"] + found["control"]).to_numpy()
    assert counts[0] == 200  # 0.05 is cut to 0.2
    assert counts[1:].max() == 100
