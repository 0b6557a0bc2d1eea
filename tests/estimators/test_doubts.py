"""Notes on averages whose data hold little: an arm that may be empty, and poor overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import private

import privcausal as pc
from privcausal.testing import seeded_noise

BOUNDS = {"Y": (-6.0, 6.0), "T": (0.0, 1.0), "X": (-1.0, 1.0)}

FITS = {
    "private": {},
    "r": {"learner": "r"},
    "dr": {"learner": "dr"},
    "s": {"learner": "s"},
    "t": {"learner": "t"},
    "x": {"learner": "x"},
    "dpcate": {"learner": "dpcate", "base": "kernel"},
    "boosted": {"learner": "r", "base": pc.bases.DPEBM(rounds=10, learning_rate=0.3)},
}


def study(n: int, chance: Any, seed: int = 1) -> pd.DataFrame:
    """No effect; `chance` of treatment is a number or a function of X."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, n)
    p = chance(x) if callable(chance) else chance
    return pd.DataFrame({"Y": x + rng.standard_normal(n), "T": (rng.random(n) < p) * 1.0, "X": x})


def notes(kind: str, frame: pd.DataFrame, eps: float) -> str:
    options = FITS[kind]
    with seeded_noise(1):
        if kind == "private":
            fit: Any = pc.private("Y ~ T | X", frame, eps=eps, bounds=BOUNDS)
        else:
            fit = pc.privcate("Y ~ T | X", frame, eps=eps, bounds=BOUNDS, **options)
    return " ".join([*fit.estimate.notes, *fit.alerts.values()])


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", FITS)
@pytest.mark.parametrize("arm", [0, 1])
def test_an_empty_arm_is_told(kind: str, arm: int) -> None:
    """With 4,000 rows, the counts of boosting cannot exclude an arm of a tenth."""
    assert "One treatment arm is empty or too small" in notes(kind, study(8000, arm), 1)


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", FITS)
def test_an_arm_that_is_there_raises_no_note(kind: str) -> None:
    found = notes(kind, study(4000, 0.3), 4)
    assert "One treatment arm" not in found
    assert "ATO" not in found


@pytest.mark.parametrize("kind", ["private", "r", "t", "boosted"])
def test_poor_overlap_points_to_the_overlap_population(kind: str) -> None:
    found = notes(kind, study(8000, lambda x: (x > 0) * 1.0), 8)
    assert "estimand='ATO'" in found


def test_a_known_propensity_is_taken_at_its_word() -> None:
    fit = private("Y ~ T | X", study(4000, 0.02), eps=4, bounds=BOUNDS, propensity=0.02, seed=1)
    assert not any("overlap" in note for note in fit.estimate.notes)
    assert "overlap" not in fit.alerts
