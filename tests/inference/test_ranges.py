"""Where covariates are, from noisy counts over declared bounds that may be far wider."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from privcausal.inference.ranges import LookCounts as Counts
from privcausal.inference.ranges import (
    coarse_range,
    effective_range,
    heights,
    looks_binary,
    outcome_edges,
    outcome_range,
)
from privcausal.request.schema import Interval
from privcausal.vault.queries.cells import ColumnHistograms

CELLS, NOISE = 64, 40.0


def found(x: np.ndarray, declared: Interval, seed: int, noise_sd: float = NOISE) -> Interval:
    edges = np.linspace(declared.lo, declared.hi, CELLS + 1)
    counts = np.histogram(x, edges)[0] + noise_sd * np.random.default_rng(seed).standard_normal(64)
    return effective_range(counts, noise_sd, declared, 1)


@pytest.mark.parametrize("loose", [1.0, 5.0, 20.0, 100.0])
@pytest.mark.parametrize("law", ["uniform", "normal", "skewed"])
def test_loose_bounds_are_narrowed_to_where_the_values_are(loose: float, law: str) -> None:
    rng = np.random.default_rng(1)
    x = {
        "uniform": rng.uniform(-1, 1, 4000),
        "normal": rng.normal(0, 0.3, 4000),
        "skewed": rng.exponential(0.3, 4000) - 1,
    }[law].clip(-loose, loose)
    declared = Interval(-loose, loose)
    for seed in range(20):
        here = found(x, declared, seed)
        assert declared.lo <= here.lo < here.hi <= declared.hi
        assert np.mean((x < here.lo) | (x > here.hi)) < 0.08
        assert here.width < max(4.0, 8 * declared.width / CELLS)


def test_where_nothing_is_seen_the_declared_bounds_stay() -> None:
    declared = Interval(0.0, 7.0)
    assert found(np.random.default_rng(2).uniform(2, 3, 50), declared, 1) == declared


def test_values_in_one_cell_may_hide_others() -> None:
    declared, counts = Interval(0.0, 1.0), np.zeros(CELLS)
    counts[0] = 2800.0
    assert effective_range(counts, NOISE, declared, 1).width < 0.1
    assert effective_range(counts, NOISE, declared, 1, whole=True) == declared
    counts[1] = 2800.0
    assert effective_range(counts, NOISE, declared, 1, whole=True).width < 0.1


def test_few_rows_leave_more_air() -> None:
    x = np.random.default_rng(3).uniform(-1, 1, 20_000)
    many, few = (found(x[:n], Interval(-20, 20), 1).width for n in (20_000, 1000))
    assert few > 1.3 * many


def test_without_noise_every_value_is_held() -> None:
    x = np.array([-3.2, 0.1, 5.9])
    here = found(x, Interval(-100, 100), 1, 0.0)
    assert here.lo <= -3.2
    assert here.hi >= 5.9
    assert here.width < 13


@pytest.mark.parametrize("lo", [0.0, 1e9])
def test_a_range_is_at_least_halved_or_stays(lo: float) -> None:
    """Less is not worth what is held at the ends; and next to a point there is no range."""
    declared = Interval(lo, lo + 1)
    counts = np.zeros(CELLS)
    counts[12:52] = 5000.0
    assert effective_range(counts, 1.0, declared, 1) == declared
    counts[:30] = counts[34:] = 0.0
    narrow = effective_range(counts, 1.0, declared, 1)
    assert narrow == declared if lo else narrow.width <= 0.5


@pytest.mark.slow
@pytest.mark.sample(5)
@pytest.mark.parametrize("anchor", [0.0, 300.0])
@pytest.mark.parametrize("hidden", [0, 60, 200])
@pytest.mark.parametrize("tables", [200, 1000])
def test_what_lies_beyond_bounds_of_an_outcome_is_no_more_than_said(
    tables: int, anchor: float, hidden: int
) -> None:
    """Two bounds in 1,000 err at most where the tail is the heaviest allowed; more of these tables
    than are let through once in a million."""
    rng, wrong = np.random.default_rng(4), 0
    for _ in range(tables):
        tail = 3 * (1 - rng.random(hidden)) ** (-1 / 3)
        y = anchor + np.r_[rng.uniform(-3, 3, 5000), tail]
        rough = counted(y, ColumnHistograms(("Y",)).edges, rng)
        scale = coarse_range(rough, "Y", len(y), outcome=True)
        fine = counted(np.clip(y, scale.lo, scale.hi), np.linspace(scale.lo, scale.hi, 65), rng)
        found = outcome_range(rough, fine, 4.0)
        assert found.interval.lo < anchor - 3 < anchor + 3 < found.interval.hi
        lost = hidden * 3**3 / (2 * (found.interval.hi - anchor) ** 2)  # on average over tails
        wrong += lost > found.lost
    assert wrong <= binom.isf(1e-6, tables, 0.002)


@pytest.mark.parametrize(("rows", "sd"), [(1000, 24.0), (5000, 24.0), (5000, 7.0), (1566, 75.0)])
def test_bounds_of_a_usual_outcome_are_neither_far_too_wide_nor_too_narrow(
    rows: int, sd: float
) -> None:
    """At most one bound in 50 is, of a normal outcome; more tables err once in a million."""
    rng, wide, narrow, tables = np.random.default_rng(8), 0, 0, 100
    for _ in range(tables):
        y = rng.normal(2.6, 8, rows)
        rough = counted(y, ColumnHistograms(("Y",)).edges, rng, sd)
        scale = coarse_range(rough, "Y", rows, outcome=True)
        fine = counted(np.clip(y, scale.lo, scale.hi), np.linspace(scale.lo, scale.hi, 65), rng, sd)
        found = outcome_range(rough, fine, sd / 6).interval
        wide += found.width > 4 * np.ptp(y)
        narrow += np.mean((y < found.lo) | (y > found.hi)) > 0.05
    assert max(wide, narrow) <= binom.isf(1e-6, tables, 0.02)


def test_rows_of_one_size_do_not_make_larger_sizes_look_occupied() -> None:
    """Sparse amounts, and a draw of noise of one to three sds in the four cells beyond theirs."""
    ends = ColumnHistograms(("Y",)).edges
    zero = len(ends) // 2 - 1
    value = np.zeros(len(ends) - 1)
    value[zero] = 63_000.0
    first = zero + 1 + int(np.argmax(ends[zero + 2 :] > 16))  # the cell above 16
    value[first : first + 7] = 557.0, 145.0, 56.0, 61.0, 66.0, 100.0, 45.0
    found = coarse_range(Counts(value, 24.0, ends), "Y", 64_000, outcome=True)
    assert found.hi <= 1024.0  # with runs of eight cells, 65,536


def counted(y: np.ndarray, ends: np.ndarray, rng: np.random.Generator, sd: float = 24.0) -> Counts:
    """With noise of the sd that a fit of eps = 1 has."""
    counts = np.histogram(y, ends)[0]
    return Counts(counts + sd * rng.standard_normal(len(counts)), sd, ends)


@pytest.mark.parametrize(
    ("values", "share", "whole", "binary"),
    [
        ([0, 1], [0.7, 0.3], True, True),
        ([0, 1], [0.1, 0.9], False, True),
        ([0, 1, 2], [0.5, 0.3, 0.2], True, False),
        ([0, 1, 40], [0.5, 0.4, 0.1], True, False),
        ([0, 2], [0.5, 0.5], True, False),
        ([0, 0.5, 1], [0.4, 0.2, 0.4], False, False),
        ([0, 0], [0.5, 0.5], True, False),
    ],
)
def test_two_values_look_binary(
    values: list[float], share: list[float], whole: bool, binary: bool
) -> None:
    """Of 20 tables, at most three of two values are missed (chance 1e-6); no other looks so."""
    rng, said = np.random.default_rng(6), 0
    for _ in range(20):
        y = rng.choice(np.array(values, float), 5000, p=share)
        rough = counted(y, ColumnHistograms(("Y",)).edges, rng)
        scale = coarse_range(rough, "Y", len(y))
        fine = counted(np.clip(y, scale.lo, scale.hi), np.linspace(scale.lo, scale.hi, 65), rng)
        said += looks_binary(rough, fine, whole=whole)
    assert said >= 17 if binary else said == 0


@pytest.mark.parametrize(
    "ends", [(-100.0, 0.0), (0.0, 100.0), (-4.2, 0.0), (-0.3, 0.3), (2.0, 3.0)]
)
def test_the_upper_end_has_one_cell_of_its_own(ends: tuple[float, float]) -> None:
    """Also if it is zero, which has a cell of its own too: laws of outcomes rely on the number."""
    declared = Interval(*ends)
    borders, edges = heights(declared), outcome_edges(declared)
    assert borders[-1] == declared.width and edges[-2:].tolist() == [
        np.nextafter(declared.width, 0.0), declared.width
    ]  # fmt: skip
    assert len(edges) == len(borders) + 1


def test_that_cell_is_not_split_by_rounding() -> None:
    rng = np.random.default_rng(5)
    for _ in range(2000):
        low = round(rng.uniform(-10, 0), int(rng.integers(0, 4)))
        declared = Interval(low - 1, rng.choice([0.0, 1 - low, round(rng.uniform(0, 10), 2)]))
        assert len(outcome_edges(declared)) == len(heights(declared)) + 1
