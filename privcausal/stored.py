"""The classes whose instances a saved fit may hold, each registered where it is defined."""

from __future__ import annotations

from typing import TypeVar

KindT = TypeVar("KindT", bound=type)

CLASSES: dict[str, type] = {}
"""By the name that files have for them."""


def stored(kind: KindT) -> KindT:
    """Let saved fits hold a frozen dataclass; its fields are checked by their types.

    What a row map could trip over is refused by `results.sound`, which has a rule for each.
    """
    if CLASSES.setdefault(kind.__name__, kind) is not kind:
        raise TypeError(f"files know another class by the name {kind.__name__}")
    return kind
