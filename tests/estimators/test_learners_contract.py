"""Every learner on every base keeps the contract."""

from __future__ import annotations

import pytest
from learners_contract import SPLITS, Contract, EverySplit, quiet_fit, study

from privcausal.estimators import DPCATE, S
from privcausal.estimators.bases import Kernel


class TestRGam(EverySplit):
    learner, base = "r", "gam"


class TestRLinear(EverySplit):
    learner, base = "r", "linear"


class TestAutoGam(EverySplit):
    learner, base = "auto", "gam"


class TestDRGam(EverySplit):
    learner, base = "dr", "gam"


class TestDRLinear(EverySplit):
    learner, base = "dr", "linear"


class TestSGam(EverySplit):
    learner, base = "s", "gam"


class TestSLinear(EverySplit):
    learner, base = "s", "linear"


class TestConstantSGam(EverySplit):
    learner, base = S(interactions=False), "gam"


class TestConstantSLinear(EverySplit):
    learner, base = S(interactions=False), "linear"


class TestTGam(EverySplit):
    learner, base = "t", "gam"


class TestTLinear(EverySplit):
    learner, base = "t", "linear"


class TestXGam(EverySplit):
    learner, base = "x", "gam"


class TestXLinear(EverySplit):
    learner, base = "x", "linear"


class TestDPCATE(EverySplit):
    learner, base = "dpcate", Kernel(functions=40)


class TestDoublyRobustDPCATE(EverySplit):
    learner, base = DPCATE(score="dr"), Kernel(functions=40)


class TestPrivateGam(EverySplit):
    learner, base = "private", "gam"


class TestPrivateLinear(EverySplit):
    learner, base = "private", "linear"


@pytest.mark.parametrize("split", ["full"])
class TestDifference(Contract):
    learner, base = "difference", "gam"


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("learner", ["r", "dr", "s", "t", "x", "auto"])
def test_predictions_average_to_the_average_effect(learner: str, split: str) -> None:
    fitted = quiet_fit(learner, "gam", split)
    low, high = fitted.conf_int().loc["ATE"]
    assert low <= fitted.predict(study())["estimate"].mean() <= high
