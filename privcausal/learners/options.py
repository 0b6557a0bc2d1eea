"""The option objects that ``learner=`` and ``base=`` take, told from classes and each other."""

from __future__ import annotations

import inspect
from typing import get_args

from privcausal.errors import CapabilityError
from privcausal.learners.base import EffectLearner
from privcausal.learners.bases import AnyBase, find_base
from privcausal.learners.meta import TwoStage

ROOMS: tuple[tuple[str, str, tuple[type, ...]], ...] = (
    ("learner", "pc.learners", (EffectLearner, TwoStage)),
    ("base", "pc.bases", get_args(AnyBase)),
)
"""The argument that takes objects of some types, and where these are found."""


def base_of(base: object) -> AnyBase:
    """The base of this name, or the option object itself."""
    check_object("base", base)
    return find_base(base)


def check_object(argument: str, value: object) -> None:
    """Refuse a class in the place of its object, and a base in that of a learner.

    Raises
    ------
    CapabilityError
        With what to write instead.
    """
    own = value if isinstance(value, type) else type(value)
    for home, room, types in ROOMS:
        if not issubclass(own, types) or inspect.isabstract(own):
            continue
        name = f"{room}.{own.__name__}"
        if own is value:
            call = f"{name}({'...' if _needs_arguments(own) else ''})"
            raise CapabilityError(f"{argument}={name} is a class: call it, {home}={call}")
        if home != argument:
            raise CapabilityError(
                f"{argument}={name}(...) is a {home}, not a {argument}: write {home}={name}(...)"
            )


def _needs_arguments(own: type) -> bool:
    given = inspect.signature(own).parameters.values()
    return any(one.default is inspect.Parameter.empty for one in given)
