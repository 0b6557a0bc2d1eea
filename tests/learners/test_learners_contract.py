"""Every learner on every base keeps the contract."""

from __future__ import annotations

from learners_contract import Contract

from privcausal.learners import S


class TestRGam(Contract):
    learner, base = "r", "gam"


class TestRLinear(Contract):
    learner, base = "r", "linear"


class TestDRGam(Contract):
    learner, base = "dr", "gam"


class TestDRLinear(Contract):
    learner, base = "dr", "linear"


class TestSGam(Contract):
    learner, base = "s", "gam"


class TestSLinear(Contract):
    learner, base = "s", "linear"


class TestConstantSGam(Contract):
    learner, base = S(interactions=False), "gam"


class TestConstantSLinear(Contract):
    learner, base = S(interactions=False), "linear"


class TestTGam(Contract):
    learner, base = "t", "gam"


class TestTLinear(Contract):
    learner, base = "t", "linear"


class TestXGam(Contract):
    learner, base = "x", "gam"


class TestXLinear(Contract):
    learner, base = "x", "linear"


class TestPrivateGam(Contract):
    learner, base = "private", "gam"


class TestPrivateLinear(Contract):
    learner, base = "private", "linear"
