"""How it is learnt: orders to the vault, never a row. Names and option objects of learners."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import get_args

from privcausal.errors import CapabilityError
from privcausal.estimators.arms import S, T, X
from privcausal.estimators.base import CateLearner, EffectLearner, Learner
from privcausal.estimators.bases import BASES, OTHERS, AnyBase
from privcausal.estimators.difference import DifferenceInMeans
from privcausal.estimators.dpcate import DPCATE
from privcausal.estimators.dr import DR
from privcausal.estimators.paper.betlei import PublishedADUM, PublishedTM
from privcausal.estimators.paper.dpcate import PublishedDPCATE
from privcausal.estimators.paper.niu import FirstStage, PrivateEstimator, TwoStage
from privcausal.estimators.paper.private import Published
from privcausal.estimators.private import Private
from privcausal.estimators.r import Auto, R
from privcausal.estimators.regress import LeastSquares
from privcausal.estimators.slopes import LocalAverage, PartiallyLinear
from privcausal.estimators.uplift import ADUM, TM
from privcausal.estimators.words import Description, Estimate
from privcausal.request.request import AVERAGES, Request

LEARNERS: dict[str, EffectLearner] = {
    "r": R(), "dr": DR(), "s": S(), "t": T(), "x": X(), "adum": ADUM(), "tm": TM(),
    "dpcate": DPCATE(), "auto": Auto(),
}  # fmt: skip
"""What `privcate` takes by name."""

_CALLS = (Private, PartiallyLinear, LocalAverage, DifferenceInMeans, LeastSquares)
"""What stands behind a call that is proven."""

_PRINTED = (Published, PublishedADUM, PublishedTM, PublishedDPCATE, TwoStage)
"""What stands behind a call of `privcausal.paper`."""


def describe(estimate: Estimate) -> Description:
    """What the learner of a fit says of it; of one that has no name here, what most would."""
    plan = estimate.plan
    kinds: list[type[Learner]] = [*_CALLS, *(type(one) for one in LEARNERS.values())]
    if plan.request.mode == "paper":
        kinds = [*_PRINTED]
    known = {kind.name: kind for kind in kinds}
    return known.get(plan.learner.partition(" ")[0], Learner).describe(estimate)


def base_of(base: object, listed: Sequence[str] = (*BASES, *OTHERS)) -> AnyBase:
    """The base of this name, or the option object itself; `listed` are the call's own names."""
    check_object("base", base)
    known = {**BASES, **OTHERS}
    if isinstance(base, str) and base in known:
        return known[base]
    if isinstance(base, AnyBase):
        return base
    shown = repr(base)[:40] if isinstance(base, str) else f"of type {type(base).__name__}"
    raise CapabilityError(f"base {shown} is unknown; choose one of {', '.join(map(repr, listed))}")


def check_object(argument: str, value: object) -> None:
    """Refuse a class in the place of its object, and a base in that of a learner.

    Raises
    ------
    CapabilityError
        With what to write instead.
    """
    own = value if isinstance(value, type) else type(value)
    for kind, room, types in (
        ("learner", "pc.learners", (EffectLearner, TwoStage)),
        ("base", "pc.bases", get_args(AnyBase)),
    ):
        if not issubclass(own, types) or inspect.isabstract(own):
            continue
        name = f"{room}.{own.__name__}"
        if own is value:
            given = inspect.signature(own).parameters.values()
            dots = "..." if any(one.default is one.empty for one in given) else ""
            raise CapabilityError(f"{argument}={name} is a class: call it, {kind}={name}({dots})")
        if kind != argument:
            raise CapabilityError(
                f"{argument}={name}(...) is a {kind}, not a {argument}: write {kind}={name}(...)"
            )


def find(learner: object, *others: str) -> EffectLearner:
    """The learner of this name, or the option object itself; `others` are known elsewhere."""
    if isinstance(learner, str) and learner in LEARNERS:
        return LEARNERS[learner]
    check_object("learner", learner)
    if isinstance(learner, EffectLearner) and not isinstance(learner, _PRINTED):
        return learner
    shown = repr(learner)[:40] if isinstance(learner, str) else f"of type {type(learner).__name__}"
    known = ", ".join(map(repr, (*others, *LEARNERS)))
    raise CapabilityError(f"learner {shown} is unknown; choose one of {known}")


def for_effect(learner: object) -> EffectLearner:
    """What `privcate` uses."""
    if isinstance(learner, TwoStage):
        raise CapabilityError(
            "TwoStage rests on what its estimators declare: write pc.paper.two_stage(formula, "
            "data, learner), by which every output says so"
        )
    return find(learner)


def for_average(request: Request) -> Learner:
    """What `private` and `regress` use: the difference in means where nothing is adjusted for.

    A column of known propensities is something to adjust for: with one probability for all the
    arms are comparable as they are, with several they are not.
    """
    if request.estimand == "CATE":
        known = ", ".join(map(repr, AVERAGES))
        raise CapabilityError(
            f"estimand='CATE' is no average effect: write pc.privcate(formula, data), or one of "
            f"{known}"
        )
    if request.estimand == "OLS":
        return LeastSquares()
    if request.estimand == "LATE":
        return LocalAverage()
    if request.formula.terms or request.asked.arms or isinstance(request.propensity, str):
        return PartiallyLinear() if request.estimand == "PLR" else Private()
    return DifferenceInMeans()


__all__ = [
    "ADUM",
    "DPCATE",
    "DR",
    "LEARNERS",
    "TM",
    "Auto",
    "CateLearner",
    "Description",
    "DifferenceInMeans",
    "EffectLearner",
    "Estimate",
    "FirstStage",
    "Learner",
    "LeastSquares",
    "Private",
    "PrivateEstimator",
    "R",
    "S",
    "T",
    "TwoStage",
    "X",
    "base_of",
    "check_object",
    "describe",
    "find",
    "for_average",
    "for_effect",
]
