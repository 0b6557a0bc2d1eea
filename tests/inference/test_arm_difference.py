"""The difference in means: Welch's without noise, and honest with it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm, ttest_ind

from privcausal.inference.difference import Totals, Window, estimate_difference, unseen, window
from privcausal.spec.schema import Interval

BOUNDS = Interval(0.0, 10.0)
WHOLE = Window(BOUNDS), Window(BOUNDS)


def totals(y: np.ndarray, t: np.ndarray, middle: float = 5.0, *, squares: bool = True) -> Totals:
    arms = [y[t == arm] - middle for arm in (0, 1)]
    total = np.array([[a.sum()] for a in arms])
    count = np.array([[float(len(a))] for a in arms])
    return Totals(total, count, np.array([[(a**2).sum()] for a in arms]) if squares else None)


def noise(total: float, count: float, square: float | None) -> Totals:
    one = np.ones((2, 1))
    return Totals(total * one, count * one, None if square is None else square * one)


def rows(seed: int, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    t = (rng.random(n) < 0.3).astype(int)
    return rng.normal(3 + t, 1 + 0.5 * t).clip(0, 10), t


def test_without_noise_it_is_welch() -> None:
    y, t = rows(1)
    found = estimate_difference("ATE", (), totals(y, t), noise(0, 0, 0), WHOLE, BOUNDS)
    welch = ttest_ind(y[t == 1], y[t == 0], equal_var=False)
    assert found.estimate[0] == pytest.approx(y[t == 1].mean() - y[t == 0].mean())
    assert found.estimate[0] / np.sqrt(found.cov[0, 0]) == pytest.approx(welch.statistic)
    assert found.privacy[0, 0] == 0
    assert found.clipping[0] == found.remainder[0] == 0
    assert found.size == len(y)


@pytest.mark.parametrize("rate", [0.5, 0.02])
def test_two_values_need_no_squares(rate: float) -> None:
    rng = np.random.default_rng(2)
    t = np.arange(1000) % 2
    y = (rng.random(1000) < rate).astype(float)
    one = Interval(0.0, 1.0)
    value = totals(y, t, 0.5, squares=False)
    found = estimate_difference("ATE", (), value, noise(0, 0, None), (Window(one),) * 2, one)
    welch = ttest_ind(y[t == 1], y[t == 0], equal_var=False)
    assert found.estimate[0] / np.sqrt(found.cov[0, 0]) == pytest.approx(welch.statistic)


@pytest.mark.parametrize("squares", [True, False])
def test_stated_variance_is_that_of_the_noise(squares: bool) -> None:
    """4,000 draws of noise alone: their variance is the stated one within five sd of itself."""
    rng = np.random.default_rng(3)
    t = np.arange(4000) % 2
    y = np.where(rng.random(4000) < 0.3 + 0.1 * t, 10.0, 0.0)
    exact, sd = totals(y, t, squares=squares), noise(60.0, 12.0, 300.0 if squares else None)
    estimates, privacy, sampling = [], [], []
    for _ in range(4000):
        value = Totals(
            exact.total + 60 * rng.standard_normal((2, 1)),
            exact.count + 12 * rng.standard_normal((2, 1)),
            None if exact.square is None else exact.square + 300 * rng.standard_normal((2, 1)),
        )
        found = estimate_difference("ATE", (), value, sd, WHOLE, BOUNDS)
        estimates.append(found.estimate[0])
        privacy.append(found.privacy[0, 0])
        sampling.append(found.sampling[0, 0])
    assert np.var(estimates) / np.mean(privacy) == pytest.approx(1, abs=5 * np.sqrt(2 / 4000))
    truth = sum(y[t == arm].var(ddof=1) / (t == arm).sum() for arm in (0, 1))
    low = np.quantile(sampling, 0.16)
    assert low == pytest.approx(truth, rel=0.04)  # raised by one sd of its noise
    assert np.mean(sampling) < 1.1 * truth


def test_an_arm_that_is_not_seen_has_the_bounds_for_an_interval() -> None:
    y, t = rows(4)
    y[t == 1] = 10.0
    sd = noise(400.0, 40.0, 4000.0)
    value = totals(y, t)
    value.count[:, 0] = 500.0, 90.0
    assert unseen(value, sd)[:, 0].tolist() == [False, True]
    found = estimate_difference("ATE", (), value, sd, WHOLE, BOUNDS)
    control = value.total[0, 0] / 500 + 5
    assert found.estimate[0] == pytest.approx(5 - control)
    # whatever the mean of that arm, the interval holds it
    half = norm.ppf(0.975) * np.sqrt(found.cov[0, 0])
    assert half > 5


def test_groups_stand_beside_all_rows() -> None:
    y, t = rows(5, 400)
    g = np.arange(400) % 4 == 0
    parts = [totals(y, t), totals(y[g], t[g])]
    value = Totals(
        *(np.hstack([getattr(p, k) for p in parts]) for k in ("total", "count", "square"))
    )
    none = Totals(*(np.zeros((2, 2)) for _ in range(3)))
    found = estimate_difference("ATE", ("g",), value, none, WHOLE, BOUNDS)
    alone = ttest_ind(y[g & (t == 1)], y[g & (t == 0)], equal_var=False)
    assert found.groups == ("g",)
    assert found.estimate[1] / np.sqrt(found.cov[1, 1]) == pytest.approx(alone.statistic)
    few = Totals(np.zeros((2, 2)), np.array([[0.0, 40.0], [0.0, 5.0]]), np.zeros((2, 2)))
    hidden = estimate_difference("ATE", ("g",), value, few, WHOLE, BOUNDS)
    assert np.isfinite(hidden.estimate[0])
    assert np.isnan(hidden.estimate[1])
    assert hidden.cov[1, 1] == np.inf


# -- windows -----------------------------------------------------------------------------------


def test_a_window_holds_the_rows_with_air_around() -> None:
    counts = np.zeros(16)
    counts[4:6] = 3000.0
    found = window(counts, 5.0, Interval(0.0, 160.0))
    assert found.interval == Interval(35.0, 65.0)
    assert 0 < found.clipping < 1.0


def test_few_rows_leave_the_bounds_alone() -> None:
    counts = np.zeros(16)
    counts[4:6] = 200.0
    assert window(counts, 20.0, Interval(0.0, 160.0)) == Window(Interval(0.0, 160.0))


def test_a_heavy_tail_leaves_the_bounds_alone() -> None:
    """Seven rows in ten in one cell, the others so thin in the tail that no cell stands out."""
    counts = np.r_[0.7, np.full(15, 0.02)] * 1000
    assert window(counts, 20.0, Interval(0.0, 160.0)) == Window(Interval(0.0, 160.0))


def test_noise_alone_gives_no_window() -> None:
    """A cell that stands out by luck, one in some 1,000 tables, does not hold nearly all rows."""
    rng = np.random.default_rng(6)
    whole = Interval(-1.0, 1.0)
    assert all(
        window(20 * rng.standard_normal(16), 20.0, whole) == Window(whole) for _ in range(2000)
    )


@pytest.mark.parametrize("noise_sd", [0.0, 3.0])
def test_all_rows_at_both_ends_use_the_whole_range(noise_sd: float) -> None:
    counts = np.zeros(16)
    counts[[0, 15]] = 500.0
    assert window(counts, noise_sd, BOUNDS) == Window(BOUNDS)
