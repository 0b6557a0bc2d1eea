"""How it is learnt: orders to the vault, never a row. Names and option objects of learners."""

from __future__ import annotations

from privcausal.errors import CapabilityError
from privcausal.learners.arms import S, T, X
from privcausal.learners.base import CateLearner, Learner
from privcausal.learners.dr import DR
from privcausal.learners.estimate import Estimate
from privcausal.learners.private import Private
from privcausal.learners.r import R

LEARNERS: dict[str, CateLearner] = {"r": R(), "dr": DR(), "s": S(), "t": T(), "x": X()}


def find(learner: object) -> CateLearner:
    """The learner of this name, or the option object itself."""
    if isinstance(learner, str) and learner in LEARNERS:
        return LEARNERS[learner]
    if isinstance(learner, CateLearner):
        return learner
    shown = repr(learner)[:40] if isinstance(learner, str) else f"of type {type(learner).__name__}"
    known = ", ".join(map(repr, LEARNERS))
    raise CapabilityError(f"learner {shown} is unknown; choose one of {known}")


__all__ = [
    "DR",
    "LEARNERS",
    "CateLearner",
    "Estimate",
    "Learner",
    "Private",
    "R",
    "S",
    "T",
    "X",
    "find",
]
