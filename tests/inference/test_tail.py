"""Bounds of what noise hides beyond a cut."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from privcausal.inference.cuts import size_law
from privcausal.inference.ranges import INDEX, cuts_between, hidden
from privcausal.inference.ranges import visible_cells as told

EDGES = 3.0 * 2.0 ** (np.arange(13) / 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tables", "most"), [(1000, 9), pytest.param(5000, 19, marks=pytest.mark.slow)]
)
def test_cells_are_told_from_noise_as_seldom_by_luck_as_stated(tables: int, most: int) -> None:
    """ERROR = 1e-3 a table (by the union bound): more than `most` of `tables` with chance 1e-6."""
    rng = np.random.default_rng(1)
    lucky = sum(told(20 * rng.standard_normal(60), 20.0, 1).any() for _ in range(tables))
    assert lucky <= most


def test_a_lone_cell_far_out_takes_more_to_be_told() -> None:
    counts = np.zeros(60)
    counts[5:10] = 400.0
    counts[[14, 40]] = 100.0  # five noise sds
    found = told(counts, 20.0, 1)
    assert found[5:10].all()
    assert found[14]
    assert not found[40]
    counts[40] = 160.0
    assert told(counts, 20.0, 1)[40]
    # alone in the table it is all that is known
    assert told(np.where(np.arange(60) == 40, 100.0, 0.0), 20.0, 1)[40]


def test_neighbours_are_told_together_where_none_is_alone() -> None:
    counts = np.zeros(40)
    counts[20:28] = 60.0
    assert told(counts, 20.0, 1)[20:27].all()
    counts[21:28] = 0.0
    assert not told(counts, 20.0, 1).any()


def test_without_noise_what_holds_a_row_is_told() -> None:
    counts = np.array([0.0, 3.0, 0.0, 1.0])
    assert told(counts, 0.0, 1).tolist() == [False, True, False, True]
    assert hidden(np.zeros(4), 0.0, EDGES[:5], 1) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("index", [INDEX, 5.0])
@pytest.mark.parametrize("mass", [0.0, 400.0])
def test_the_bound_of_hidden_rows_holds(index: float, mass: float) -> None:
    """One bound in 1,000 errs where the tail is the heaviest: of 4,000 at most 16, but for 1e-6."""
    rng = np.random.default_rng(2)
    share = -np.diff(np.r_[(EDGES[:-1] / EDGES[0]) ** -index, 0.0])
    wrong, bounds = 0, []
    for _ in range(4000):
        bounds.append(hidden(mass * share + 20 * rng.standard_normal(12), 20.0, EDGES, 1))
        wrong += bounds[-1] < mass
    assert wrong <= 16
    if index == INDEX:
        assert np.mean(bounds) < mass + 5 * 20.0  # and it is no wider than it must be


@pytest.mark.slow
@pytest.mark.parametrize("place", [3, 5, 11])
def test_without_a_condition_the_bound_holds_wherever_the_rows_are(place: int) -> None:
    """One bound in 1,000 errs: of 4,000 at most 16, but for 1e-6. All rows may be at the end."""
    rng, ends = np.random.default_rng(2), np.r_[0.0, EDGES[1:]]
    counts, wrong = np.where(np.arange(12) == place, 400.0, 0.0), 0
    for _ in range(4000):
        noisy = (counts + 20 * rng.standard_normal(12))[None]
        law = size_law(noisy, 20.0, ends, 1000.0, anywhere=True)
        far = float(np.interp(ends[-2], law.at, law.over[0]))
        wrong += far < 0.4 * (ends[-1] - ends[-2])
    assert wrong <= 16


@pytest.mark.slow
def test_the_heaviest_tail_meets_the_bound_in_one_of_a_thousand() -> None:
    """Exactly ERROR: of 20,000 bounds at least 4 err, but for 1e-6. A weaker bound would not."""
    rng = np.random.default_rng(3)
    share = -np.diff(np.r_[(EDGES[:-1] / EDGES[0]) ** -INDEX, 0.0])
    wrong = sum(
        hidden(400 * share + 20 * rng.standard_normal(12), 20.0, EDGES, 1) < 400
        for _ in range(20_000)
    )
    assert 4 <= wrong <= 46


def test_cells_of_any_width_are_put_together() -> None:
    fine = np.sort(np.r_[EDGES, 3.001, 3.1, 4.0, 4.0 + 1e-13, 50.0])
    counts = np.zeros(len(fine) - 1)
    # with as much noise as there are cells in the nearest group
    assert 1 < hidden(counts, 1.0, fine, 1) / hidden(np.zeros(12), 1.0, EDGES, 1) < np.sqrt(5)


def test_cuts_are_a_grid_between_their_ends() -> None:
    assert cuts_between(2.0, 50.0)[[0, -1]] == pytest.approx([2.0, 50.0])
    assert cuts_between(2.0, 2.0).tolist() == [2.0]


def test_a_normal_law_is_lighter_than_the_condition_allows() -> None:
    """From 1.7 of its standard deviations on."""
    for start in (1.7, 2.0, 3.0):
        x = start * np.linspace(1, 4, 50)
        assert (norm.sf(x) <= norm.sf(start) * (x / start) ** -INDEX * (1 + 1e-9)).all()
