"""Replay of fits on base "dpebm": each round is a query of its own, asked of both tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from replay_helpers import BOUNDS, FORMULA, HIGH, LOW, Pair, check, frame, hostile, ordinary
from test_replay import CORNERS, neighbours

import privcausal as pc
from privcausal.estimators import boosting as boosted

LEARNERS: dict[str, Any] = {"r": "r", "dr": "dr", "s": "s"}
LEARNERS |= {"constant s": pc.learners.S(interactions=False), "t": "t", "x": "x"}
RELATIONS = ("substitute", "add_remove")
SPLITS = ("full", "disjoint", "crossfit")
QUICK = pc.bases.DPEBM(rounds=12, learning_rate=0.3, bins=6)
PAIRS, LOTS = 18, 3  # of random rows for each learner and relation: some two hundred together


def call(**options: Any) -> dict[str, Any]:
    made = {"formula": FORMULA, "learner": "r", "base": QUICK, "bounds": BOUNDS, "eps": 1.0}
    return made | options


@pytest.mark.slow
@pytest.mark.sample(5)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("learner", LEARNERS)
def test_every_learner_and_split(learner: str, split: str, relation: str) -> None:
    options = call(learner=LEARNERS[learner], control=pc.Control(split=split), neighbors=relation)
    one, two = neighbours(relation, [*ordinary(60, 2), LOW], HIGH)
    report = check(Pair("low to high", options, one, two), texts=split == "full")
    assert report.share > 0.03  # a row moved the sums by a good part of what was paid for


@pytest.mark.slow
@pytest.mark.sample(11)
@pytest.mark.parametrize("lot", range(LOTS))
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("learner", LEARNERS)
def test_many_pairs(learner: str, relation: str, lot: int) -> None:
    """Rows at corners and with values that are none, in small tables and large budgets."""
    rng = np.random.default_rng([len(learner), len(relation), 17, lot])
    for number in range(PAIRS // LOTS):
        rows = [*ordinary(int(rng.integers(40, 64)), number), hostile(rng)]
        options = call(
            learner=LEARNERS[learner], neighbors=relation, eps=float(rng.choice([1.0, 3.0, 100.0]))
        )
        one, two = neighbours(relation, rows, hostile(rng))
        check(Pair(f"pair {number}", options, one, two))


@pytest.mark.sample(5)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("corner", CORNERS)
def test_corners(corner: str, relation: str) -> None:
    options, rows, new = CORNERS[corner]
    learner = list(LEARNERS)[list(CORNERS).index(corner) % 6]
    made = call(learner=LEARNERS[learner], neighbors=relation, **options)
    check(Pair(corner, made, *neighbours(relation, rows, new)))


@pytest.mark.parametrize("relation", RELATIONS)
def test_largest_weight(relation: str) -> None:
    """T - e at its limits: known propensities near the ends, all rows treated."""
    bounds = BOUNDS | {"P": (0.02, 0.98)}
    rows = [row | {"P": 0.02, "T": 1.0} for row in ordinary(30, 3)]
    made = call(propensity="P", bounds=bounds, neighbors=relation, eps=20.0)
    one, two = neighbours(relation, [*rows, LOW | {"P": 0.98}], HIGH | {"P": 0.02})
    check(Pair("largest weight", made, one, two))


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_overlap_weights(relation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget at which the S-learner's rows have them."""
    plain, seen = boosted.TransformProduct, []
    monkeypatch.setattr(boosted, "TransformProduct", lambda *a: seen.append(1) or plain(*a))
    made = call(learner="s", neighbors=relation, eps=3000.0)
    one, two = neighbours(relation, [*ordinary(60, 2), LOW], HIGH)
    check(Pair("overlap", made, one, two))
    assert len(seen) == 2


@pytest.mark.parametrize("relation", RELATIONS)
def test_units(relation: str) -> None:
    rows = ordinary(80, 4)
    ids = [f"u{i // 2}" for i in range(80)]
    made = call(learner="dr", neighbors=relation, unit="pid", max_rows=2)
    one = frame([LOW, *rows, LOW], pid=["x", *ids, "x"])
    two = frame(rows, pid=ids)
    if relation == "substitute":
        two = frame([*rows[:9], *[HIGH] * 4, *rows[9:]], pid=[*ids[:9], *["x"] * 4, *ids[9:]])
    check(Pair("unit", made, one, two))


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_bought_bounds(relation: str) -> None:
    made = call(
        neighbors=relation, eps=60.0, bounds=None, control=pc.Control(shares={"bounds": 0.5})
    )
    one, two = neighbours(relation, ordinary(150, 3), HIGH | {"G": "b"})
    check(Pair("bought", made, one, two))
