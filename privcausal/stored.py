"""Registry of classes whose instances a saved fit may hold. Each registers where it is defined."""

from __future__ import annotations

from typing import TypeVar

KindT = TypeVar("KindT", bound=type)

CLASSES: dict[str, type] = {}
"""Classes by their name in files."""


def stored(kind: KindT) -> KindT:
    """Allow saved fits to hold this frozen dataclass; the types of its fields are checked.

    `results.stored` has a rule for each class, and refuses values that could make a row map fail.
    """
    if CLASSES.setdefault(kind.__name__, kind) is not kind:
        raise TypeError(f"Saved files already use the name {kind.__name__} for another class.")
    return kind
