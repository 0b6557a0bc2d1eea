"""Bounds of an outcome that are bought cut what noise hides, and intervals allow for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import private, regress
from scipy.stats import binom

import privcausal as pc
from privcausal.errors import BudgetError, SchemaError
from privcausal.testing import seeded_noise, zero_noise

FITS = 40
MISSED = int(binom.isf(1e-6, FITS, 0.05))
"""So many 95 % intervals of `FITS` miss with a chance of less than one in a million."""


def sparse(rng: np.random.Generator, arm: float, size: int) -> np.ndarray:
    """Amounts that 4 % or 6 % have, log-normal."""
    return (rng.random(size) < 0.04 + 0.02 * arm) * np.exp(4 + rng.standard_normal(size))


def skewed(rng: np.random.Generator, arm: float, size: int) -> np.ndarray:
    return np.exp(3 + 0.2 * arm + rng.standard_normal(size))


def rare(rng: np.random.Generator, arm: float, size: int) -> np.ndarray:
    return (rng.random(size) < 0.005 + 0.01 * arm) * 1.0


def visits(rng: np.random.Generator, arm: float, size: int) -> np.ndarray:
    """Whole numbers, most of them zero, with a long tail."""
    return rng.poisson((0.2 + 0.1 * arm) * rng.standard_exponential(size))


EFFECTS = {
    sparse: 0.02 * np.exp(4.5), skewed: np.exp(3.5) * np.expm1(0.2), rare: 0.01, visits: 0.1
}  # fmt: skip

CALLS: dict[str, Any] = {
    "difference": lambda frame: pc.private("Y ~ T", frame, eps=1),
    "private": lambda frame: pc.private("Y ~ T | X", frame, eps=1, bounds={"X": (-1, 1)}),
    "adum": lambda frame: pc.privcate(
        "Y ~ T | X", frame, eps=1, bounds={"X": (-1, 1)}, learner=pc.learners.ADUM(noise="gaussian")
    ),
    "r": lambda frame: pc.privcate("Y ~ T | X", frame, eps=1, bounds={"X": (-1, 1)}),
}


def study(law: Any, rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    T = (rng.random(rows) < 0.5) * 1.0
    Y = np.where(T == 1, law(rng, 1.0, rows), law(rng, 0.0, rows))
    Y = Y.astype(int) if law is visits else Y
    return pd.DataFrame({"Y": Y, "T": T, "X": rng.uniform(-1, 1, rows)})


def misses(call: str, law: Any, rows: int) -> int:
    """Intervals without the effect, of fits that find bounds at all."""
    missed = 0
    for seed in range(FITS):
        with seeded_noise(seed):
            try:
                found = CALLS[call](study(law, rows, seed))
            except BudgetError:
                continue
        low, high = found.conf_int().iloc[0]
        missed += not low <= EFFECTS[law] <= high
    return missed


@pytest.mark.slow
@pytest.mark.sample(2)
@pytest.mark.parametrize("call", list(CALLS))
def test_sparse_amounts_are_covered(call: str) -> None:
    assert misses(call, sparse, 20_000) <= MISSED


@pytest.mark.sample(5)
@pytest.mark.parametrize("call", ["difference", "private"])
@pytest.mark.parametrize("law", [rare, sparse, skewed, visits])
@pytest.mark.slow
def test_what_few_rows_hide_is_covered_or_refused(call: str, law: Any) -> None:
    assert misses(call, law, 4000) <= MISSED


def test_where_only_zeros_are_seen_there_is_no_range() -> None:
    """Events too rare to be told from noise (40 rows, noise of sd 24) may be of any size."""
    with seeded_noise(1), pytest.raises(BudgetError, match="bounds for 'Y'"):
        CALLS["private"](study(rare, 4000, 1))


def test_bounds_cost_little_where_no_tail_is_heavy() -> None:
    frame = study(lambda rng, arm, size: 10 + arm + 2 * rng.standard_normal(size), 20_000, 1)
    bounds = {"X": (-1, 1), "Y": (2, 19)}
    with seeded_noise(1):
        bought = CALLS["private"](frame).conf_int().iloc[0]
        declared = pc.private("Y ~ T | X", frame, eps=1, bounds=bounds).conf_int().iloc[0]
    assert bought[1] - bought[0] < 2 * (declared[1] - declared[0])


@pytest.mark.parametrize("kind", [int, float])
def test_a_dummy_whose_ones_noise_hides_is_a_dummy(kind: type) -> None:
    """12 ones in 600 rows at eps = 1: the coefficient is in the unit of the others."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"D": (np.arange(600) < 12).astype(kind), "X": rng.uniform(-1, 1, 600)})
    frame["Y"] = 1 + frame["X"] + rng.normal(0, 1, 600)
    fit = regress("Y ~ D + X", frame, bounds={"Y": (-4, 6), "X": (-1, 1)}, eps=1, seed=3)
    assert fit.schema["D"] == pc.Schema({"D": (0, 1)})["D"]
    assert abs(fit.params["D"]) < 5 * fit.bse["D"] < 500


@pytest.mark.parametrize("call", ["private", "privcate", "regress"])
@pytest.mark.parametrize("scale", [3e11, -1e12, 1.7e18])
def test_values_beyond_the_last_cell_are_refused(call: str, scale: float) -> None:
    """The last cells of the magnitudes include everything beyond 2^40."""
    rng = np.random.default_rng(1)
    t = rng.integers(0, 2, 5000)
    data = pd.DataFrame({"t": t, "y": scale * (5 + t + rng.normal(size=5000))})
    for noise in (zero_noise(), seeded_noise(1)):
        with noise, pytest.raises(SchemaError, match=r"beyond 1.1e\+12.*bounds="):
            getattr(pc, call)("y ~ t", data, eps=8)


@pytest.mark.parametrize("scale", [3e-7, 1e-3, 1e9, 5e10])
def test_sizes_below_the_last_cell_have_bounds(scale: float) -> None:
    rng = np.random.default_rng(1)
    t = rng.integers(0, 2, 5000)
    data = pd.DataFrame({"t": t, "y": scale * (5 + t + rng.normal(size=5000))})
    found = private("y ~ t", data, eps=8, seed=1)
    assert abs(found.params.iloc[0] / scale - 1) < 5 * found.bse.iloc[0] / scale < 0.5


def test_sizes_below_the_first_cell_are_named() -> None:
    rng = np.random.default_rng(1)
    data = pd.DataFrame({"t": rng.integers(0, 2, 5000), "y": 1e-9 * rng.normal(size=5000)})
    with seeded_noise(1), pytest.raises(BudgetError, match="within 1e-06 of 0"):
        pc.private("y ~ t", data, eps=8)
