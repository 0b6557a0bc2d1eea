"""Every learner on every base keeps the contract."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from learners_contract import SPLITS, Contract, quiet_fit, study

from privcausal.estimators import DPCATE, S
from privcausal.estimators.bases import Kernel

KERNEL, KERNELS = Kernel(functions=40), ("dpcate", DPCATE(score="dr"))
LEARNERS: tuple[Any, ...] = ("r", "dr", "s", S(interactions=False), "t", "x", "private")


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(
    ("learner", "base"),
    [*product(LEARNERS, ("gam", "linear")), ("auto", "gam"), *product(KERNELS, (KERNEL,))],
)
class TestEveryLearner(Contract):
    """The contract of learners with nuisances, whose rows can be kept apart."""


@pytest.mark.parametrize(("learner", "base", "split"), [("difference", "gam", "full")])
class TestDifference(Contract):
    """Without nuisances, rows are not kept apart."""


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("learner", ["r", "dr", "s", "t", "x", "auto"])
def test_predictions_average_to_the_average_effect(learner: str, split: str) -> None:
    fitted = quiet_fit(learner, "gam", split)
    low, high = fitted.conf_int().loc["ATE"]
    assert low <= fitted.predict(study())["estimate"].mean() <= high
