"""Learners: their names and option objects. They send queries to the vault and see no rows."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from privcausal.errors import CapabilityError
from privcausal.estimators.averages import ASSUMED, CLUSTERED, METHOD, NUISANCES, WEIGHING
from privcausal.estimators.base import CateLearner, EffectLearner, Learner
from privcausal.estimators.bases import BASES, OTHERS, AnyBase
from privcausal.estimators.difference import DifferenceInMeans, EventStudy
from privcausal.estimators.dpcate import DPCATE
from privcausal.estimators.estimands import Description, Estimate
from privcausal.estimators.meta import DR, Auto, R, S, T, X
from privcausal.estimators.private import Private
from privcausal.estimators.published import Published, PublishedADUM, PublishedDPCATE, PublishedTM
from privcausal.estimators.regress import LeastSquares
from privcausal.estimators.slopes import LocalAverage, PartiallyLinear
from privcausal.estimators.survival import CENSORING, SURVIVAL_METHODS
from privcausal.estimators.two_stage import FirstStage, PrivateEstimator, TwoStage, WithGuarantee
from privcausal.estimators.uplift import ADUM, TM
from privcausal.request.request import AVERAGES, COHORTS, Request

LEARNERS: dict[str, EffectLearner] = {
    "r": R(), "dr": DR(), "s": S(), "t": T(), "x": X(), "adum": ADUM(), "tm": TM(),
    "dpcate": DPCATE(), "auto": Auto(),
}  # fmt: skip
"""Learners that `privcate` accepts by name."""

_CALLS = (Private, PartiallyLinear, LocalAverage, DifferenceInMeans, LeastSquares, EventStudy)
"""Learners with a proven guarantee that other calls use."""

PRINTED: tuple[type[Learner], ...] = (
    Published,
    PublishedADUM,
    PublishedTM,
    PublishedDPCATE,
    TwoStage,
)
"""Learners of the calls in `privcausal.paper`."""


def learner_kinds() -> list[type[Learner]]:
    """The classes of all learners with a proven guarantee."""
    return [*_CALLS, *map(type, LEARNERS.values())]


def describe(estimate: Estimate) -> Description:
    """Describe a fit by its learner's description; unnamed learners use the default description."""
    plan = estimate.plan
    kinds = PRINTED if plan.request.mode == "paper" else learner_kinds()
    by_name = {kind.name: kind for kind in kinds}
    text = by_name.get(plan.learner.partition(" ")[0], Learner).describe(estimate)
    title, rows, methods, assumed = text.title, text.rows, text.methods, list[str]()
    request, averages = plan.request, estimate.averages
    if request.horizon is not None:
        rows, methods = (*rows, ("Horizon", f"{request.horizon:g}")), (*SURVIVAL_METHODS, *methods)
        assumed.append(CENSORING)
    if request.cluster is not None:
        name = request.cluster.column
        kept = (row for row in rows if row[0] != "Covariance")
        rows, methods = (
            (*kept, ("Std err clustered by", name)),
            (*methods, METHOD.format(name=name)),
        )
        assumed.append(CLUSTERED.format(name=name, most=request.cluster.max_rows))
    if request.weights is not None and averages is not None:
        name, most = request.weights, f"{averages.most_weight:.4g}"
        effect = f"{averages.weighting:.2f} (of the weights)"
        rows = (*rows, ("Weights", f"{name}, at most {most}"), ("Design effect", effect))
        weighing = WEIGHING.format(name=name, most=most) + NUISANCES * (not request.regression)
        title, methods = f"weighted {title}" if request.regression else title, (*methods, weighing)
        assumed.append(ASSUMED.format(name=name))
    assumptions, notes = (*text.assumptions, *assumed), (*text.notes, *assumed)
    return replace(
        text, title=title, rows=rows, methods=methods, assumptions=assumptions, notes=notes
    )


def base_of(base: object, listed: Sequence[str] = (*BASES, *OTHERS)) -> AnyBase:
    """Find a base by name, or return the option object; `listed` are the names the call accepts."""
    check_object("base", base)
    known = {**BASES, **OTHERS}
    if isinstance(base, str) and base in known:
        return known[base]
    if isinstance(base, AnyBase):
        return base
    shown = repr(base)[:40] if isinstance(base, str) else f"of type {type(base).__name__}"
    raise CapabilityError(f"Base {shown} is unknown. Choose one of {', '.join(map(repr, listed))}.")


def check_object(argument: str, value: object) -> None:
    """Refuse a class instead of its object, and a base or learner given as the wrong argument.

    The `CapabilityError` states the correct call.
    """
    cls = value if isinstance(value, type) else type(value)
    for kind, room, types in (
        ("learner", "pc.learners", (EffectLearner, TwoStage)),
        ("base", "pc.bases", get_args(AnyBase)),
    ):
        if not issubclass(cls, types) or inspect.isabstract(cls):
            continue
        name = f"{room}.{cls.__name__}"
        if cls is value:
            parameters = inspect.signature(cls).parameters.values()
            dots = "..." if any(p.default is p.empty for p in parameters) else ""
            raise CapabilityError(f"{argument}={name} is a class. Call it: {kind}={name}({dots}).")
        if kind != argument:
            raise CapabilityError(
                f"{argument}={name}(...) is a {kind}, not a {argument}. Write {kind}={name}(...)."
            )


def find(learner: object, *others: str) -> EffectLearner:
    """Find a learner by name, or return the option object; `others` are accepted elsewhere."""
    if isinstance(learner, str) and learner in LEARNERS:
        return LEARNERS[learner]
    check_object("learner", learner)
    if isinstance(learner, EffectLearner) and not isinstance(learner, PRINTED):
        return learner
    shown = repr(learner)[:40] if isinstance(learner, str) else f"of type {type(learner).__name__}"
    known = ", ".join(map(repr, (*others, *LEARNERS)))
    raise CapabilityError(f"Learner {shown} is unknown. Choose one of {known}.")


def for_effect(learner: object) -> EffectLearner:
    """Learner that `privcate` uses."""
    if isinstance(learner, TwoStage):
        raise CapabilityError(
            "The guarantee of TwoStage relies on declarations by its estimators. Use "
            "pc.paper.two_stage(formula, data, learner), which states this in all output."
        )
    return find(learner)


def for_average(request: Request) -> Learner:
    """Learner that `private` and `regress` use: the difference in means if no adjustment is needed.

    A column of known propensities requires adjustment. The arms are comparable without adjustment
    only if one probability applies to all rows. Survey weights are weights of scores.
    """
    if request.estimand == "CATE":
        known = ", ".join(map(repr, AVERAGES))
        raise CapabilityError(
            "estimand='CATE' is not an average effect. Use pc.privcate(formula, data), or choose "
            f"one of {known}."
        )
    if request.regression:
        return LeastSquares()
    if request.estimand == COHORTS:
        return EventStudy()
    if request.estimand == "LATE":
        return LocalAverage()
    weighs = request.weights is not None or isinstance(request.propensity, str)
    if request.formula.terms or request.arms or weighs:
        return PartiallyLinear() if request.estimand == "PLR" else Private()
    return DifferenceInMeans()


__all__ = [
    "ADUM", "DPCATE", "DR", "LEARNERS", "PRINTED", "TM", "Auto", "CateLearner", "Description",
    "DifferenceInMeans", "EffectLearner", "Estimate", "FirstStage", "Learner", "LeastSquares",
    "Private", "PrivateEstimator", "R", "S", "T", "TwoStage", "WithGuarantee", "X", "base_of",
    "check_object", "describe", "find", "for_average", "for_effect", "learner_kinds",
]  # fmt: skip
