"""The learners on base "dpebm" keep the contract, and find what the textbook finds."""

from __future__ import annotations

from learners_contract import EverySplit

import privcausal as pc
from privcausal.learners import S

QUICK = pc.bases.DPEBM(rounds=40, learning_rate=0.1)
RAW = pc.bases.DPEBM(rounds=40, learning_rate=0.1, smooth=False)


class TestR(EverySplit):
    learner, base = "r", QUICK


class TestDR(EverySplit):
    learner, base = "dr", QUICK


class TestS(EverySplit):
    learner, base = "s", QUICK


class TestConstantS(EverySplit):
    learner, base = S(interactions=False), QUICK


class TestT(EverySplit):
    learner, base = "t", QUICK


class TestX(EverySplit):
    learner, base = "x", QUICK


class TestRawDR(EverySplit):
    learner, base = "dr", RAW
