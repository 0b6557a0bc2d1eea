"""Rare events: what their mean says of how much covariates can explain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import missed, private

import privcausal as pc
from privcausal.estimators.nuisances import _most_variance as most_variance
from privcausal.inference.population import GramEstimate
from privcausal.testing import seeded_noise

COLUMNS = [f"X{j}" for j in range(1, 7)]
BOUNDS: dict[str, Any] = {"Y": [0, 1], "T": (0.0, 1.0), **dict.fromkeys(COLUMNS, (0.0, 1.0))}


def study(share: float, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.random((3000, len(COLUMNS))), columns=COLUMNS)
    return frame.assign(T=(rng.random(3000) < 0.5) * 1.0, Y=(rng.random(3000) < share) * 1)


def fit(frame: pd.DataFrame, seed: int, **options: Any) -> Any:
    found = private(
        f"Y ~ T | {' + '.join(COLUMNS)}", frame, eps=0.5, bounds=BOUNDS, **options, seed=seed
    )
    return found.estimate.averages


@pytest.mark.slow
def test_rare_events_cannot_vary_much_with_covariates() -> None:
    narrow, wide = (fit(study(share, 1), 1).remainder[0] for share in (0.002, 0.5))
    assert narrow < 0.9 * wide


@pytest.mark.parametrize("mean", [-1.0, -0.98, -0.3, 0.0, 0.7, 1.0])
def test_the_most_variance_is_that_of_two_values(mean: float) -> None:
    """(half - mean)(half + mean), which outcomes at both ends have; with noise it is no less."""
    rows, half = 1000.0, 1.0
    gram = GramEstimate(np.eye(2) * rows, 0.0, np.eye(2) * rows)
    exact = most_variance(mean * rows, 0.0, gram, half, 1.0)
    assert exact == pytest.approx(1 - mean**2, abs=0.003)
    assert exact > 0
    assert most_variance(mean * rows, 30.0, gram, half, 1.0) >= exact
    assert most_variance(mean * rows, 0.0, gram, half, 5.0) >= exact


def test_means_of_two_values_are_limited_where_noise_is_large() -> None:
    """A tenth treated: with little budget the scores need a narrow range, with much the model."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.random((3000, len(COLUMNS))), columns=COLUMNS)
    chance = 0.1 + 0.8 * (frame["X1"] > 0.5)
    t, y = rng.random(3000) < 0.1, rng.random(3000) < chance
    frame = frame.assign(T=t * 1.0, Y=y * 1)
    half = {}
    for eps in (0.3, 30.0):
        with seeded_noise(4):
            found = pc.private("Y ~ T | X1 + X2", frame, eps=eps, bounds=BOUNDS, propensity=0.1)
            plain = pc.private("Y ~ T", frame, eps=eps, bounds=BOUNDS, propensity=0.1)
        assert found.estimate.averages.clipping[0] == 0.0
        half[eps] = found.bse.iloc[0] / plain.bse.iloc[0]
    assert half[0.3] < 1.25
    assert half[30.0] < 0.8


def test_rows_that_weigh_little_may_hold_the_events() -> None:
    """A tenth of the rows weighs a fifth, and has all events: the bound is met over all rows."""
    gram = GramEstimate(np.eye(2) * 920.0, 0.0, np.eye(2) * 920.0)
    events = np.r_[np.ones(100), np.zeros(900)] - 0.5
    weights = np.r_[np.full(100, 0.2), np.ones(900)]
    most = most_variance(weights @ events, 0.0, gram, 0.5, weights.mean() / 0.2)
    assert most >= events.var() - 1e-12


CELLS = {(0, 0): (0.31, 0.175, 0.012), (0, 1): (0.49, 0.38, 0.065),
         (1, 0): (0.05, 0.043, 0.003), (1, 1): (0.15, 0.10, 0.016)}  # fmt: skip
"""By two covariates: their share, the propensity, and the share of controls with an amount."""


@pytest.mark.slow
def test_confounded_amounts_that_are_mostly_none() -> None:
    """A cut of residuals that takes all amounts off is no sign of products of covariates."""
    shares, chance, some = np.array(list(CELLS.values())).T
    truth = -0.25 * float(shares @ some) * float(np.exp(-2 + 0.7**2 / 2))
    missed, errors = 0, []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        cell = rng.choice(4, 90_000, p=shares)
        x = np.array(list(CELLS))[cell]
        t = rng.random(len(cell)) < chance[cell]
        has = rng.random(len(cell)) < some[cell] * np.where(t, 0.75, 1.0)
        y = np.minimum(has * rng.lognormal(-2, 0.7, len(cell)), 14)
        frame = pd.DataFrame({"Y": y, "T": t.astype(int), "X1": x[:, 0], "X2": x[:, 1]})
        bounds = {"Y": (0, 14), "X1": (0, 1), "X2": (0, 1)}
        fit = private("Y ~ T | X1 + X2", frame, eps=1, bounds=bounds, seed=seed)
        low, high = fit.conf_int().loc["ATE"]
        missed += not low <= truth <= high
        errors.append(fit.params["ATE"] - truth)
    assert missed <= 1
    assert abs(np.mean(errors)) < 0.013  # 4.9 sds of their mean; an error has the sd 0.0075


@pytest.mark.slow
@pytest.mark.parametrize("formula", ["Y ~ T", "Y ~ T | X"])
def test_one_value_that_most_rows_have_is_no_scale(formula: str) -> None:
    """As hours worked, or a capped amount. Fewer than 12 of 20 intervals hold in 2e-7 of runs."""
    fits = []
    for seed in range(20):
        rng = np.random.default_rng([8, seed])
        t = rng.random(3000) < 0.5
        y = np.where(rng.random(3000) < 0.8 + 0.05 * t, 180.0, rng.uniform(0, 180, 3000))
        frame = pd.DataFrame({"Y": y, "T": 1 * t, "X": rng.random(3000)})
        bounds = {"Y": (0, 400), "X": (0, 1)}
        fits.append(private(formula, frame, eps=1, bounds=bounds, propensity=0.5, seed=seed))
    assert missed(fits, 0.05 * 90) <= 8
