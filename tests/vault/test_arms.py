"""Sums within arms: counts and squares ride along for nothing, and just so."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from vault_helpers import widest

from privcausal.request.schema import Interval
from privcausal.vault.queries.sums import MASS_WEIGHTS as WEIGHTS
from privcausal.vault.queries.sums import UNIT, ArmSums

GRID = np.linspace(-1, 1, 201)


def row(x: float, arm: int, beta2: float, gamma2: float) -> np.ndarray:
    """What a row adds, times the weights: (x, beta, gamma x^2) in the places of its arm."""
    own = np.array([x, np.sqrt(beta2), np.sqrt(gamma2) * x**2])
    return np.r_[own, np.zeros(3)] if arm == 0 else np.r_[np.zeros(3), own]


def largest_change(beta2: float, gamma2: float) -> float:
    """Over all pairs of rows, one of which may be missing."""
    rows = np.array([row(x, arm, beta2, gamma2) for x in GRID for arm in (0, 1)])
    return float(np.sqrt(widest(np.vstack([rows, np.zeros(6)]))))


@pytest.mark.parametrize("squares", [True, False])
def test_counts_and_squares_are_free_under_substitution(squares: bool) -> None:
    """The sums alone would move by 2, from one end of the window to the other."""
    made = ArmSums((Interval(-1, 1), Interval(-1, 1)), 0, 0, "substitute", squares)
    assert made.sensitivity("substitute") == 2 * UNIT
    assert largest_change(*WEIGHTS["substitute"][squares]) == pytest.approx(2)


@pytest.mark.parametrize(("beta2", "gamma2"), [(0.9, 0.5), (0.0, 3.0), (1.2, 0.0)])
def test_with_larger_weights_they_are_not(beta2: float, gamma2: float) -> None:
    assert largest_change(beta2, gamma2) > 2.02


@pytest.mark.parametrize("squares", [True, False])
@pytest.mark.parametrize("sets", [0, 2])
def test_an_added_row_moves_by_its_norm(squares: bool, sets: int) -> None:
    made = ArmSums((Interval(0, 8), Interval(-1, 1)), 5, sets, "add_remove", squares)
    beta2, gamma2 = WEIGHTS["add_remove"][squares]
    norm = np.linalg.norm(row(1.0, 0, beta2, gamma2)) * np.sqrt(1 + sets)
    assert made.sensitivity("add_remove") == pytest.approx(norm * UNIT)


@pytest.mark.parametrize("squares", [True, False])
def test_groups_that_a_row_leaves_cost_no_more_than_those_it_stays_in(squares: bool) -> None:
    """All pairs of rows at the ends or middle, in any of three groups of which at most two."""
    beta2, gamma2 = WEIGHTS["substitute"][squares]
    sets = [g for g in itertools.product([0, 1], repeat=3) if sum(g) <= 2]
    rows = np.array(
        [
            np.outer([1, *g], row(x, arm, beta2, gamma2)).ravel()
            for x in (-1.0, 0.0, 0.3, 1.0)
            for arm in (0, 1)
            for g in sets
        ]
    )
    made = ArmSums((Interval(-1, 1), Interval(-1, 1)), 3, 2, "substitute", squares)
    assert np.sqrt(widest(rows)) * UNIT == pytest.approx(made.sensitivity("substitute"))
