"""The window to which outcomes are cut, from a noisy histogram of them."""

from __future__ import annotations

import numpy as np
import pytest

from privcausal.inference import ranges
from privcausal.request.schema import Interval

LO, HI, ROWS = -5.0, 15.0, 5000


def counts(y):
    cell = np.searchsorted(ranges.window_borders(Interval(LO, HI)), y - LO, side="left")
    return np.bincount(np.minimum(cell, ranges.LOOK_BINS - 1), minlength=ranges.LOOK_BINS).astype(
        float
    )


def read(noisy, noise_sd, rows, noise_per_width):
    bounds = Interval(LO, HI)
    borders = ranges.window_borders(bounds)
    return ranges.outcome_window(noisy, noise_sd, bounds, borders, rows, noise_per_width)


def found(y, noise_sd, noise_per_width=0.02):
    noisy = counts(y) + noise_sd * np.sin(np.arange(ranges.LOOK_BINS) * 12.9898) * np.sqrt(2)
    window = read(noisy, noise_sd, len(y), noise_per_width)
    return window.interval.lo, window.interval.hi


def test_without_noise_nothing_is_cut():
    y = np.random.default_rng(1).normal(2, 1, ROWS)
    window = read(counts(y), 0.0, ROWS, 0.02)
    assert (window.interval, window.kept) == (Interval(LO, HI), 1.0)
    assert abs(window.variance - y.var()) < 0.1


def test_the_window_holds_most_of_a_normal_outcome_and_little_more():
    y = np.random.default_rng(2).normal(2, 1, ROWS)
    low, high = found(y, 60.0)
    assert LO <= low < high <= HI
    assert np.mean((y >= low) & (y <= high)) > 0.9  # the window follows 5000 rows at noise 60
    assert high - low < 0.4 * (HI - LO)


def test_a_window_of_which_every_cell_is_seen():
    """No rows lie in unseen cells then, and none can be placed there."""
    y = np.random.default_rng(4).uniform(LO, HI, 200_000)
    window = read(counts(y) - 1, 1.0, len(y), 0.02)
    assert window.variance == pytest.approx((HI - LO) ** 2 / 12, rel=0.1)


@pytest.mark.parametrize("noise_per_width", [1e-4, 0.5])
def test_it_widens_as_noise_falls(noise_per_width):
    y = np.random.default_rng(3).normal(2, 1, ROWS)
    low, high = found(y, 60.0, noise_per_width)
    inside = np.mean((y >= low) & (y <= high))
    assert inside > 0.99 if noise_per_width < 0.01 else inside < 0.95


def test_what_clipping_takes_from_slopes_and_variance_is_given_back():
    """Stein's lemma: the clipped outcome's slope is the share that is kept."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=400_000)
    y = 2 + 0.6 * x + 0.8 * rng.normal(size=len(x))
    noisy = counts(y) + 60 * rng.normal(size=ranges.LOOK_BINS)
    window = read(noisy, 60.0, len(y), 0.5)
    assert window.kept < 0.8
    held = np.clip(y, window.interval.lo, window.interval.hi)
    assert np.cov(held, x)[0, 1] / window.kept == pytest.approx(0.6, rel=0.05)
    assert window.variance == pytest.approx(1.0, rel=0.2)


def test_all_noise_leaves_a_wide_window_within_the_bounds():
    rng = np.random.default_rng(4)
    window = read(rng.normal(0, 1e6, ranges.LOOK_BINS), 1e6, 100.0, 1e-3)
    low, high = window.interval.lo, window.interval.hi
    assert LO <= low < high <= HI
    assert high - low > 0.4 * (HI - LO)


def test_outcomes_far_from_any_normal_law_are_kept():
    y = np.r_[np.full(ROWS // 2, -4.0), np.full(ROWS // 2, 14.0)]
    low, high = found(y, 20.0)
    assert low <= -4.0
    assert high >= 13.5
