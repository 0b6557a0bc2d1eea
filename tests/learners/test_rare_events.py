"""Rare events: what their mean says of the effect, and of how much covariates can explain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import privcausal as pc
from privcausal.inference.gram import GramEstimate
from privcausal.learners import averages, nuisances
from privcausal.testing import seeded_noise

COLUMNS = [f"X{j}" for j in range(1, 7)]
BOUNDS: dict[str, Any] = {"Y": [0, 1], "T": (0.0, 1.0), **dict.fromkeys(COLUMNS, (0.0, 1.0))}


def study(share: float, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.random((3000, len(COLUMNS))), columns=COLUMNS)
    return frame.assign(T=(rng.random(3000) < 0.5) * 1.0, Y=(rng.random(3000) < share) * 1)


def fit(frame: pd.DataFrame, seed: int, **options: Any) -> Any:
    with seeded_noise(seed):
        found = pc.private(
            f"Y ~ T | {' + '.join(COLUMNS)}", frame, eps=0.5, bounds=BOUNDS, **options
        )
    return found.estimate.averages


def test_estimates_of_rare_events_are_what_their_mean_leaves_possible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frames = [study(0.002, seed) for seed in range(6)]
    held = [fit(frame, seed).estimate[0] for seed, frame in enumerate(frames)]
    monkeypatch.setattr(averages, "held", lambda found, *_: found)
    free = [fit(frame, seed).estimate[0] for seed, frame in enumerate(frames)]
    assert np.linalg.norm(held) < 0.85 * np.linalg.norm(free)


def test_frequent_events_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    held = fit(study(0.5, 1), 1)
    monkeypatch.setattr(averages, "held", lambda found, *_: found)
    assert held.estimate[0] == fit(study(0.5, 1), 1).estimate[0]


def test_rare_events_cannot_vary_much_with_covariates(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = fit(study(0.002, 1), 1)
    monkeypatch.setattr(nuisances, "_most_variance", lambda *a: a[-1] ** 2)
    wide = fit(study(0.002, 1), 1)
    assert narrow.remainder[0] < 0.8 * wide.remainder[0]


@pytest.mark.parametrize("mean", [-1.0, -0.98, -0.3, 0.0, 0.7, 1.0])
def test_the_most_variance_is_that_of_two_values(mean: float) -> None:
    """(half - mean)(half + mean), which outcomes at both ends have; with noise it is no less."""
    rows, half = 1000.0, 1.0
    gram = GramEstimate(np.eye(2) * rows, 0.0, np.eye(2) * rows)
    exact = nuisances._most_variance(mean * rows, 0.0, gram, half)
    assert exact == pytest.approx(1 - mean**2, abs=0.003)
    assert exact > 0
    assert nuisances._most_variance(mean * rows, 30.0, gram, half) >= exact
