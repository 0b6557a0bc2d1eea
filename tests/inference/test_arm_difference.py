"""The difference in means: Welch's without noise, and honest with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import lognorm, norm, ttest_ind
from scipy.stats import t as student

from privcausal.estimators.difference import arm_totals, estimate_difference
from privcausal.inference.cuts import outcome_law, trial_window
from privcausal.inference.effects import AverageEstimate
from privcausal.inference.ranges import Window, heights
from privcausal.request.formula import ATE_TERM, Place
from privcausal.request.schema import Interval

BOUNDS = Interval(0.0, 10.0)
WHOLE = Window(BOUNDS)


Sums = tuple[Any, Any, Any]
"""Totals, counts and squares by arm and place."""


def totals(y: np.ndarray, t: np.ndarray, middle: float = 5.0, *, squares: bool = True) -> Sums:
    arms = [y[t == arm] - middle for arm in (0, 1)]
    total = np.array([[a.sum()] for a in arms])
    count = np.array([[float(len(a))] for a in arms])
    return total, count, np.array([[(a**2).sum()] for a in arms]) if squares else None


def noise(total: float, count: float, square: float | None) -> Sums:
    one = np.ones((2, 1))
    return total * one, count * one, None if square is None else square * one


def estimated(value: Sums, sd: Sums, window: Window = WHOLE, *groups: Place) -> AverageEstimate:
    bounds = BOUNDS if window is WHOLE else window.interval
    return estimate_difference((ATE_TERM,), groups, *arm_totals(value, sd), window, bounds)


def rows(seed: int, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    t = (rng.random(n) < 0.3).astype(int)
    return rng.normal(3 + t, 1 + 0.5 * t).clip(0, 10), t


def test_without_noise_it_is_welch() -> None:
    y, t = rows(1)
    found = estimated(totals(y, t), noise(0, 0, 0))
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
    found = estimated(value, noise(0, 0, None), Window(one))
    welch = ttest_ind(y[t == 1], y[t == 0], equal_var=False)
    assert found.estimate[0] / np.sqrt(found.cov[0, 0]) == pytest.approx(welch.statistic)


@pytest.mark.parametrize("squares", [True, False])
@pytest.mark.slow
def test_stated_variance_is_that_of_the_noise(squares: bool) -> None:
    """4,000 draws of noise alone: their variance is the stated one within five sd of itself."""
    rng = np.random.default_rng(3)
    t = np.arange(4000) % 2
    y = np.where(rng.random(4000) < 0.3 + 0.1 * t, 10.0, 0.0)
    exact, sd = totals(y, t, squares=squares), noise(60.0, 12.0, 300.0 if squares else None)
    estimates, privacy, sampling = [], [], []
    for _ in range(4000):
        found = estimated(tuple(
            None if one is None else one + spread * rng.standard_normal((2, 1))
            for one, spread in zip(exact, (60, 12, 300), strict=True)
        ), sd)  # fmt: skip
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
    value[1][:, 0] = 500.0, 90.0
    assert [arm.unseen.tolist() for arm in arm_totals(value, sd)[0]] == [[False], [True]]
    found = estimated(value, sd)
    control = value[0][0, 0] / 500 + 5
    assert found.estimate[0] == pytest.approx(5 - control)
    # whatever the mean of that arm, the interval holds it
    half = norm.ppf(0.975) * np.sqrt(found.cov[0, 0])
    assert half > 5


def test_groups_stand_beside_all_rows() -> None:
    y, t = rows(5, 400)
    g = np.arange(400) % 4 == 0
    parts = [totals(y, t), totals(y[g], t[g])]
    value = tuple(map(np.hstack, zip(*parts, strict=True)))
    none = tuple(np.zeros((3, 2, 2)))
    found = estimated(value, none, WHOLE, Place("g"))
    alone = ttest_ind(y[g & (t == 1)], y[g & (t == 0)], equal_var=False)
    assert found.names == ("ATE", "g")
    assert found.estimate[1] / np.sqrt(found.cov[1, 1]) == pytest.approx(alone.statistic)
    few = none[0], np.array([[0.0, 40.0], [0.0, 5.0]]), none[0]
    hidden = estimated(value, few, WHOLE, Place("g"))
    assert np.isfinite(hidden.estimate[0])
    assert np.isnan(hidden.estimate[1])
    assert hidden.cov[1, 1] == np.inf


# -- windows -----------------------------------------------------------------------------------

WIDE = Interval(-80.0, 80.0)


def cells(y: np.ndarray, t: np.ndarray, bounds: Interval) -> np.ndarray:
    """Counts as `vault.ArmHistogram` has them."""
    edges, y = heights(bounds), y - bounds.lo
    at = np.where(y >= edges[-1], len(edges), np.searchsorted(edges, y, side="left"))
    return np.stack(
        [np.bincount(at[t == arm], minlength=len(edges) + 1).astype(float) for arm in (0, 1)]
    )


def noisy(exact: np.ndarray, noise_sd: float, seed: int) -> np.ndarray:
    return exact + noise_sd * np.random.default_rng(seed).standard_normal(exact.shape)


LAWS = {"normal": norm(0, 1), "student": student(4, scale=0.5), "cost": lognorm(0.75)}


@pytest.mark.slow
@pytest.mark.sample(5)
@pytest.mark.parametrize("share", [0.5, 0.1])
@pytest.mark.parametrize("shape", list(LAWS))
def test_what_a_window_loses_is_allowed_for(shape: str, share: float) -> None:
    """Of each arm, on average over its law: an allowance, which half of the windows keep.

    At least within a quarter of a standard error of the smaller arm's mean, and all within one.
    """
    rng, law = np.random.default_rng(7), LAWS[shape]
    widths, over = [], []
    for seed in range(60):
        t = (rng.random(8000) < share).astype(int)
        y = law.rvs(8000, random_state=rng).clip(-80, 80)
        found = trial_window(noisy(cells(y, t, WIDE), 20.0, seed), 20.0, WIDE, 8.0)
        widths.append(found.interval.width)
        x = np.linspace(found.interval.hi, 80, 20_000)
        lost = np.trapezoid(law.sf(x), x)
        few = min((t == 0).sum(), (t == 1).sum())
        for arm in (0, 1):
            allowed = found.rows[arm, 1] / (t == arm).sum() * found.excess[1]
            over.append((lost - allowed) / (law.std() / np.sqrt(few)))
    assert np.median(widths) < 0.1 * WIDE.width
    assert np.median(over) < 0.25
    assert max(over) < 1


@pytest.mark.parametrize("shape", list(LAWS))
def test_the_variance_of_outcomes_has_their_tails(shape: str) -> None:
    """Within a factor of two in the median of 40 draws; detected cells alone have less."""
    rng, law, found = np.random.default_rng(9), LAWS[shape], []
    for seed in range(40):
        y = law.rvs(3000, random_state=rng).clip(-80, 80)
        counts = noisy(cells(y, np.zeros(3000, int), WIDE), 20.0, seed)[:1]
        one = outcome_law(counts, 20.0, WIDE)
        assert one is not None
        found.append(one.variance / law.var())
    assert 0.5 < np.median(found) < 2


def test_a_bound_near_the_middle_says_nothing_of_the_other_tail() -> None:
    """Earnings of few rows, a third of them zero: what is clipped is allowed for in the median.

    Up to half a standard error of the smaller arm's mean. If that no rows are below zero counted as
    evidence against a tail above, 1.2 standard errors would be missing.
    """
    bounds, missing = Interval(0.0, 75.0), []
    for seed in range(40):
        rng = np.random.default_rng([12, seed])
        t = (rng.random(450) < 0.4).astype(int)
        y = np.where(rng.random(450) < 0.3, 0.0, rng.exponential(8.0, 450)).clip(0, 75)
        found = trial_window(noisy(cells(y, t, bounds), 4.0, seed), 4.0, bounds, 2.0)
        lost = 0.7 * 8 * np.exp(-found.interval.hi / 8)
        allowed = found.rows[1, 1] / t.sum() * found.excess[1]
        missing.append((lost - allowed) / (7.4 / np.sqrt(t.sum())))
    assert np.median(missing) < 0.5


def test_mass_at_the_ends_and_at_zero_tells_of_no_scale() -> None:
    """One row in 50 at the upper end cannot be seen: two values are never cut."""
    rng = np.random.default_rng(8)
    t, zero_one = np.arange(4000) % 2, Interval(0.0, 1.0)
    for rate in (0.0, 0.004, 0.02, 0.5, 1.0):
        y = (rng.random(4000) < rate).astype(float)
        for noise_sd in (0.0, 30.0):
            found = trial_window(noisy(cells(y, t, zero_one), noise_sd, 9), noise_sd, zero_one, 8.0)
            assert found.interval == zero_one
            assert found.bias(np.full((2, 1), 2000.0))[0] == 0
    amounts = np.where(rng.random(4000) < 0.01, rng.uniform(20, 40, 4000), 0.0)
    assert trial_window(noisy(cells(amounts, t, WIDE), 30.0, 9), 30.0, WIDE, 8.0).interval == WIDE


def test_sparse_amounts_that_are_seen_are_held() -> None:
    rng = np.random.default_rng(10)
    t = np.arange(40_000) % 2
    y = np.where(rng.random(40_000) < 0.03, rng.uniform(20, 40, 40_000), 0.0)
    found = trial_window(noisy(cells(y, t, WIDE), 20.0, 9), 20.0, WIDE, 8.0)
    assert found.interval.hi >= 40
    assert found.interval.width < WIDE.width


def test_few_rows_leave_the_bounds_alone() -> None:
    y, t = rows(11)
    assert trial_window(noisy(cells(y, t, BOUNDS), 60.0, 1), 60.0, BOUNDS, 8.0).interval == BOUNDS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tables", "most"), [(250, 5), pytest.param(2000, 12, marks=pytest.mark.slow)]
)
def test_noise_alone_gives_no_window(tables: int, most: int) -> None:
    """A cell is told from noise by luck in one table of 1,000: in more than `most` of `tables` with
    chance below 1e-6."""
    size = len(heights(WIDE)) + 1
    found = [
        trial_window(noisy(np.zeros((2, size)), 20.0, k), 20.0, WIDE, 8.0) for k in range(tables)
    ]
    assert sum(one.interval != WIDE for one in found) <= most


def test_bounds_too_narrow_to_be_parted_are_left_alone() -> None:
    narrow = Interval(1e9, 1e9 + 1)
    counts = np.full((2, len(heights(narrow)) + 1), 1000.0)
    assert trial_window(counts, 5.0, narrow, 8.0).interval == narrow


def test_what_pulls_up_and_what_pulls_down_do_not_both_count() -> None:
    one = Window(BOUNDS, np.array([[10.0, 20.0], [30.0, 5.0]]), np.array([1.0, 2.0]))
    count = np.array([[100.0, 1000.0], [50.0, 1.0]])
    assert one.bias(count)[0] == pytest.approx(max(5 / 50 * 2 + 0.1, 30 / 50 + 20 / 100 * 2))
    assert one.bias(count)[1] == pytest.approx(max(2.0 + 0.01, 1.0 + 0.02 * 2))  # all of an arm
