"""False alarms and power of tests behind alerts, from draws of the noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from privcausal.estimators.regress import collinear
from privcausal.inference.ranges import FALSE_ALARMS, SMALL_ARM, lacks_arm

DRAWS = 4000
MOST = int(binom.isf(1e-6, DRAWS, FALSE_ALARMS))


@pytest.mark.slow
@pytest.mark.parametrize("share", [SMALL_ARM, 0.25, 185 / 445])
@pytest.mark.parametrize("sd", [0.01, 0.03, 0.1, 0.3, 1.0])
def test_an_arm_of_a_tenth_is_rarely_called_small(share: float, sd: float) -> None:
    noise = np.random.default_rng(1).normal(0, sd, (DRAWS, 2))
    told = [lacks_arm(np.array([1 - share, share]) + e, sd) for e in noise]
    assert sum(told) <= MOST


@pytest.mark.slow
def test_an_empty_arm_is_found_if_the_noise_permits() -> None:
    noise = np.random.default_rng(2).normal(0, 1, (DRAWS, 2))
    found = [np.mean([lacks_arm(np.array([1.0, 0.0]) + s * e, s) for e in noise])
             for s in (0.01, 0.02, 0.03)]  # fmt: skip
    assert found[0] > 0.99
    assert found[1] > 0.99
    assert found[2] > 0.75


def symmetric(rng: np.random.Generator, p: int, sd: float) -> np.ndarray:
    """Noise of `sd` off the diagonal and sqrt(2) times as much on it."""
    upper = rng.normal(0, sd, (p, p))
    return np.asarray((upper + upper.T) / np.sqrt(2))


def second(columns: np.ndarray) -> np.ndarray:
    full = np.c_[np.ones(len(columns)), columns]
    return np.asarray(full.T @ full / len(full))


@pytest.mark.slow
@pytest.mark.parametrize("sd", [0.003, 0.03, 0.1, 0.3, 1.0])
def test_independent_columns_are_rarely_called_collinear(sd: float) -> None:
    """Of sd 0.3, within a range of half-width 1."""
    rng, p, half = np.random.default_rng(3), 5, np.ones(4)
    own, told = second(rng.normal(0, 0.3, (5000, p - 1))), 0
    spread = np.diag(np.r_[1.0, np.full(p - 1, 1 / 0.3)])  # whitened, as in a regression
    for _ in range(DRAWS):
        noisy = spread @ own @ spread + symmetric(rng, p, sd)
        told += bool(np.any(collinear(noisy, sd, spread, half)))
    assert told <= MOST


@pytest.mark.parametrize("sd", [0.0, 0.0003, 0.001])
def test_collinear_and_constant_columns_are_named(sd: float) -> None:
    rng = np.random.default_rng(4)
    x, z, u = rng.normal(0, 1, (3, 5000))
    columns = np.c_[x, z, x - z, u, np.full(5000, 0.3)]
    noisy = second(columns) + symmetric(rng, 6, sd)
    alike, still = collinear(noisy, sd, np.eye(6), np.full(5, 2.0))
    assert alike.tolist() == [True, True, True, False, False]
    assert still.tolist() == [False, False, False, False, True]


def test_correlated_columns_that_noise_lets_apart_are_not_named() -> None:
    """A column and its square, with a variance inflation of 40."""
    rng = np.random.default_rng(5)
    x = rng.uniform(0.25, 1, 5000)
    noisy = second(np.c_[x, x**2]) + symmetric(rng, 3, 1e-5)
    assert not np.any(collinear(noisy, 1e-5, np.eye(3), np.ones(2)))
