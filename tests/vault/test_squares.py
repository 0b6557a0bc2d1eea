"""Squares of scores ride along with their sums for nothing under substitution, and just so."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from vault_helpers import regressors, study, widest

from privcausal.vault import CutScore, ScoreSums
from privcausal.vault.queries.sums import ADDED_SQUARES, FREE_COUNT, FREE_SQUARES, UNIT

GRID = np.linspace(-1, 1, 401)
MOST = (11 + 5 * np.sqrt(5)) / 8


def alone(weight: float) -> Any:
    return np.stack([GRID, np.sqrt(weight) * GRID**2], axis=1)


def test_squares_of_one_score_are_free_up_to_their_weight() -> None:
    assert widest(alone(MOST)) == pytest.approx(4)
    assert widest(alone(1.02 * MOST)) > 4.001
    assert FREE_SQUARES["alone"] <= MOST
    assert 1 + FREE_SQUARES["alone"] + FREE_COUNT <= 4  # an incomplete row


def test_squares_of_one_score_in_groups_are_free() -> None:
    """Three groups, of which a row is in at most two."""
    sets = [g for g in itertools.product([0, 1], repeat=3) if sum(g) <= 2]
    found = [
        np.outer([1, *g], [x, np.sqrt(FREE_SQUARES["groups"]) * x**2]).ravel()
        for x in (-1.0, -0.4, 0.0, 0.3, 1.0)
        for g in sets
    ]
    assert widest(np.array(found)) <= 4 * (1 + 2) + 1e-9


@pytest.mark.parametrize("sets", [0, 2])
def test_squares_of_several_scores_are_free(sets: int) -> None:
    angles = np.linspace(0, 2 * np.pi, 73)
    scores = [r * np.array([np.cos(a), np.sin(a)]) for a in angles for r in (0.6, 1.0)]
    places = [[1.0, 0, 0, 0], [1.0, 1, 1, 0], [1.0, 0, 1, 1]] if sets else [[1.0]]
    root = np.sqrt(FREE_SQUARES["vector"])
    found = [
        np.r_[np.outer(g, x).ravel(), root * np.outer(g, np.outer(x, x)).ravel()]
        for x in scores
        for g in places
    ]
    assert widest(np.array(found)) <= 4 * (1 + sets) + 1e-9
    worse = [np.r_[x, 1.2 * root * np.outer(x, x).ravel()] for x in scores]
    assert widest(np.array(worse)) > 4.01


def test_the_stated_change_is_that_of_the_scores() -> None:
    one = CutScore(study("substitute").aipw, 1.0)
    for relation, change in (("substitute", 4.0), ("add_remove", 1 + ADDED_SQUARES)):
        s = study(relation)
        made = ScoreSums(one, (), regressors(s, "mean"), s.neighbors, squares=True)
        count = 0.0 if relation == "substitute" else 0.2 * change
        expected = np.sqrt(change + count) * UNIT
        assert made.sensitivity(s.neighbors) == pytest.approx(expected)
