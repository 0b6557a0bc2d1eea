"""How it is learnt: orders to the vault, never a row. Names and option objects of learners."""

from __future__ import annotations

from privcausal.errors import CapabilityError
from privcausal.learners.arms import S, T, X
from privcausal.learners.base import CateLearner, Learner
from privcausal.learners.difference import Difference
from privcausal.learners.dpcate import DPCATE
from privcausal.learners.dr import DR
from privcausal.learners.estimate import Estimate
from privcausal.learners.private import Private
from privcausal.learners.published import Published
from privcausal.learners.r import R
from privcausal.spec.request import Request

LEARNERS: dict[str, CateLearner] = {
    "r": R(), "dr": DR(), "s": S(), "t": T(), "x": X(), "dpcate": DPCATE(),
}  # fmt: skip


def find(learner: object, *others: str) -> CateLearner:
    """The learner of this name, or the option object itself; `others` are known elsewhere."""
    if isinstance(learner, str) and learner in LEARNERS:
        return LEARNERS[learner]
    if isinstance(learner, CateLearner):
        return learner
    shown = repr(learner)[:40] if isinstance(learner, str) else f"of type {type(learner).__name__}"
    known = ", ".join(map(repr, (*others, *LEARNERS)))
    raise CapabilityError(f"learner {shown} is unknown; choose one of {known}")


def for_average(request: Request) -> Learner:
    """What `private` uses: the difference in means where there is nothing to adjust for.

    ``mode="paper"`` asks for the published mechanism.

    A column of known propensities is something to adjust for: with one probability for all the
    arms are comparable as they are, with several they are not.
    """
    if request.mode == "paper":
        return Published()
    if request.formula.terms or isinstance(request.propensity, str):
        return Private()
    return Difference()


__all__ = [
    "DPCATE",
    "DR",
    "LEARNERS",
    "CateLearner",
    "Difference",
    "Estimate",
    "Learner",
    "Private",
    "Published",
    "R",
    "S",
    "T",
    "X",
    "find",
    "for_average",
]
