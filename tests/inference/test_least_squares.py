"""Thresholds of a regression: what they clip, how outliers pull, and the least half-width."""

from __future__ import annotations

import numpy as np
import pytest

from privcausal.estimators.regress import (
    FOCUS,
    RESIDUAL_EDGES,
    Leverage,
    Pull,
    RowMoments,
    first_fit,
    residual_law,
    robust_meat,
)
from privcausal.inference.effects import covering, folded_quantile
from privcausal.inference.population import GramEstimate
from privcausal.inference.ranges import LookCounts

ROWS = 20_000


def drawn(law: str, rng: np.random.Generator) -> np.ndarray:
    if law == "normal":
        return np.abs(rng.normal(size=ROWS))
    if law == "exponential":
        return rng.exponential(size=ROWS)
    return np.exp(rng.normal(size=ROWS)) - 0.5


def counted(sizes: np.ndarray, noise_sd: float, rng: np.random.Generator) -> LookCounts:
    ends = np.r_[0.0, RESIDUAL_EDGES, 18.0, 36.0, 60.0]
    counts = np.histogram(np.clip(sizes, 0, 60), ends)[0]
    return LookCounts(counts + noise_sd * rng.normal(size=len(counts)), noise_sd, ends)


@pytest.mark.slow
@pytest.mark.parametrize("law", ["normal", "exponential", "lognormal"])
def test_the_excess_beyond_a_threshold_is_near_the_rows_own(law: str) -> None:
    """Means over 40 draws: at least the true excess, and at most as much again plus a little.

    The mean excess of a draw has a relative error of some 40 % in the worst case here, and its mean
    therefore one of 7 %. The bounds lie six of these away.
    """
    for at in (1.0, 3.0, 5.0):
        found, true = [], []
        for seed in range(40):
            rng = np.random.default_rng(seed)
            sizes = drawn(law, rng)
            found.append(float(residual_law(counted(sizes, 20.0, rng), ROWS).excess(at)))
            true.append(float(np.maximum(sizes - at, 0).mean()))
        assert 0.8 * np.mean(true) <= np.mean(found) <= 2.0 * np.mean(true) + 0.01


def test_without_noise_no_row_is_beyond_the_last_cell() -> None:
    rng = np.random.default_rng(1)
    law = residual_law(counted(drawn("exponential", rng), 0.0, rng), ROWS)
    assert law.excess(36.0) == 0
    assert law.square(60.0) == pytest.approx(law.kept[-1])


def test_outcomes_with_few_values_may_be_at_the_end_of_their_cell() -> None:
    """Six in ten residuals are 1.45 sds long: a threshold of 1.25 clips .2 of each."""
    rng = np.random.default_rng(3)
    sizes = np.r_[rng.uniform(0, 0.5, 8_000), np.full(12_000, 1.45)]
    law = residual_law(counted(sizes, 20.0, rng), ROWS)
    assert law.excess(1.25) >= 0.6 * 0.2
    assert law.excess(1.5) < 0.01


def test_hidden_rows_anywhere_have_a_larger_excess() -> None:
    rng = np.random.default_rng(1)
    sizes = counted(drawn("normal", rng), 20.0, rng)
    usual, any_ = (residual_law(sizes, ROWS, anywhere=one) for one in (False, True))
    assert any_.excess(6.0) > 10 * usual.excess(6.0)


def test_a_detected_pull_grows_towards_the_threshold() -> None:
    """In a scale family, what is clipped depends more on the scale the further out it lies."""
    rng = np.random.default_rng(2)
    law = residual_law(counted(drawn("exponential", rng), 20.0, rng), ROWS)
    one, two = law.grown(1.0, np.array([1.0, 4.0]))
    assert 1 <= one < two
    across = np.eye(3)
    strong = Pull.read(
        np.array([[0.0, 300.0, 0.0], [0.0, 0.0, 0.0]]), 20.0, 300.0, across, 1.0, np.full(3, 0.15)
    )
    assert strong.bound(2.0)[1] > 1.8 * strong.bound(1.0)[1] - 0.3
    np.testing.assert_array_equal(strong.bound(2.0)[[0, 2]], strong.bound(1.0)[[0, 2]])
    assert strong.size[1] > 0.9
    assert strong.size[0] < 0.5


def test_leverage_that_noise_hides_counts() -> None:
    ends = np.array([0.0, 1.0, 1.5, 2.0, 3.0, 5.0, 9.0])
    counts = np.array([500.0, 400.0, 90.0, 5.0, -3.0, 4.0])
    clear, dim = (Leverage.read(LookCounts(counts, sd, ends), 1000.0, 1.0) for sd in (0.01, 20.0))
    assert dim.hidden > 5 * clear.hidden
    assert dim.lost(1.0) > dim.lost(1.5) > dim.lost(3.0) > 0


def test_a_first_fit_of_exact_moments_is_least_squares() -> None:
    rng = np.random.default_rng(3)
    x = np.c_[np.ones(500), rng.normal(size=(500, 3)) @ np.triu(np.ones((3, 3)))]
    y = x @ [1.0, 2.0, -1.0, 0.5] + rng.normal(size=500)
    gram = x.T @ x / 500
    moments = RowMoments(gram, x.T @ y / 500, float(y @ y) / 500, 1e-9, 0.3)
    for focus in (None, 2):
        fit = first_fit(moments, GramEstimate(gram, 1e-9, gram), np.ones(4), float(y.std()), focus)
        np.testing.assert_allclose(fit.coef, np.linalg.lstsq(x, y, rcond=None)[0], atol=1e-6)
        np.testing.assert_allclose(fit.turn @ gram @ fit.turn.T, np.eye(4), atol=1e-8)
    assert fit.usual[2] == pytest.approx(np.sqrt(FOCUS * 3))
    np.testing.assert_allclose(fit.turn[2] @ gram[:, [0, 1, 3]], 0, atol=1e-8)


def test_a_noisy_meat_is_that_of_equal_variances() -> None:
    model, seen = 2 * np.eye(3), np.diag([2.0, 6.0, 2.0])
    np.testing.assert_allclose(robust_meat(seen, 0.0, np.ones(3), 2.0, model), seen, atol=1e-9)
    noisy = robust_meat(seen, 1e3, np.ones(3), 2.0, model)
    np.testing.assert_allclose(noisy, model, atol=1e-3)


def test_the_critical_value_grows_with_any_bias() -> None:
    """Beyond 20 standard errors it was constant, so that thresholds far too low seemed best."""
    ratio = np.array([0.0, 1.0, 5.0, 19.0, 25.0, 400.0])
    exact = covering(1.959964, ratio, np.ones(6))
    np.testing.assert_allclose(folded_quantile(ratio), exact, rtol=1e-3)
