"""Stages priced in epsilon on rows of their own: what pays for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import privcausal as pc
from privcausal.errors import BudgetError
from privcausal.request.request import Plan, Stage


def plan(*stages: Stage) -> Plan:
    s = pc.datasets.dpcate(1, 60, 0)
    found: Any = pc.paper.dpcate(
        s.formula, s.frame, queries=s.frame.iloc[:2], bounds=s.bounds, below_minimum="published"
    )
    return replace(found.plan, stages=stages)


FREE = Stage("nuisance: a", 0, 4, 0, 0.5, "nuisance", 10, free=True)
PAYS = Stage("effect: b", 0, 5, 0, 0.5, "effect", 12)


def test_the_dearest_part_is_the_total() -> None:
    found = plan(FREE, PAYS)
    assert (found.epsilon, found.delta) == (12, 5)
    assert (found.cost(FREE).epsilon, found.cost(FREE).delta) == (0, 0)
    assert FREE.parallel and not PAYS.parallel


@pytest.mark.parametrize(
    "stages",
    [
        (FREE,),
        (replace(FREE, epsilon=13), PAYS),
        (replace(FREE, delta=6), PAYS),
        (FREE, replace(FREE, name="nuisance: c"), PAYS),
        (replace(FREE, part="all"), PAYS),
        (FREE, replace(PAYS, part="nuisance")),
        (FREE, replace(PAYS, part="all")),
    ],
    ids=["alone", "dearer", "more delta", "two", "all rows", "its own rows", "all rows pay"],
)
def test_what_nothing_pays_for_is_no_plan(stages: tuple[Stage, ...]) -> None:
    with pytest.raises(BudgetError, match="not covered by the charges"):
        plan(*stages)
