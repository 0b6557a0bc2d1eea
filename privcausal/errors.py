"""Errors, grouped by the phase that raises them.

A message says what is wrong, where, and what to write instead. It never holds a value
taken from a row: messages are built from the call's own arguments, column names, data
types and released numbers only.
"""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, Self, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class PrivcausalError(Exception):
    """Base of every error this package raises on purpose."""


class FormulaError(PrivcausalError, ValueError):
    """The formula cannot be read, or asks for something that is not row-local and public."""


class SchemaError(PrivcausalError, ValueError):
    """A declared domain (bounds, levels, coding) is wrong."""


class DataError(PrivcausalError, ValueError):
    """The data have the wrong shape, columns or types (never: the wrong values)."""


class BudgetError(PrivcausalError, ValueError):
    """The privacy budget is impossible, badly divided or not left."""


class LedgerError(PrivcausalError, RuntimeError):
    """The ledger cannot be trusted or used; nothing is released."""


class CapabilityError(PrivcausalError, NotImplementedError):
    """This learner, base or source cannot do what was asked, or has an unknown name."""


class PrivacyBreach(PrivcausalError, TypeError):
    """Code tried to look inside the vault (repr, iteration, pickling of private values)."""


class PrivcausalWarning(UserWarning):
    """A warning computed from public or released numbers only.

    Where a filter makes it an error, `fit` has the result, which was paid for.
    """

    fit: object = None


HERE = os.path.join(os.path.dirname(__file__), "")  # not of a folder beside it


def warn(text: str) -> None:
    """Warn on the line of the user's that called this package."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(HERE):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, PrivcausalWarning, stacklevel=level)


# -- wrong arguments -------------------------------------------------------------------------------

SWAPS = {
    **dict.fromkeys(("level", "conf_level", "confidence", "ci", "conf"), "alpha"),
    **dict.fromkeys(("epsilon", "privacy_budget"), "eps"),
    **dict.fromkeys(("file", "filename", "fname", "path_or_buf", "out"), "path"),
    **dict.fromkeys(("X", "x", "exog", "data", "df"), "newdata"),
}
"""Keywords of other packages: ours, where a call has it."""

EXAMPLES = {"alpha": "alpha=0.05 for 95% intervals", "eps": "eps=1.0"}


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _unknown(
    name: str,
    known: Mapping[str, inspect.Parameter],
    keys: Sequence[str],
    moved: Mapping[str, str],
) -> None:
    for key in keys:
        if key not in known:
            ours = SWAPS.get(key, "")
            near = get_close_matches(key, known, 1)
            meant = f"did you mean {near[0]}=?" if near else ""
            if ours in known:
                meant = f"write {EXAMPLES.get(ours, f'{ours}=...')}"
            listed = f"it has {', '.join(known)}" if known else "it takes nothing"
            raise CapabilityError(f"{name} has no {key}=; {moved.get(key) or meant or listed}")


def refuse_arguments(
    name: str,
    known: Mapping[str, inspect.Parameter],
    given: int,
    keys: Sequence[str],
    moved: Mapping[str, str] = {},  # never changed
) -> None:
    """Refuse keywords that a call has not, and one that it needs and was not given.

    Parameters
    ----------
    given : int
        How many arguments have no name. These and the values of `keys` may be rows, and would stay
        in the variables of a traceback, so neither is handed over.
    moved : mapping
        By unknown keyword what to write instead; see `SWAPS` for those of other packages.

    Raises
    ------
    CapabilityError
    """
    _unknown(name, known, keys, moved)
    placed = [key for key, p in known.items() if p.kind is p.POSITIONAL_OR_KEYWORD][:given]
    needed = [k for k, p in known.items() if p.default is p.empty and p.kind in _BY_NAME]
    missing = [key for key in needed if key not in (*placed, *keys)]
    if missing:
        first = [known[k].kind is not inspect.Parameter.KEYWORD_ONLY for k in needed]
        shown = [k if plain else f"{k}=..." for k, plain in zip(needed, first, strict=True)]
        raise CapabilityError(f"{name} needs {missing[0]}: write {name}({', '.join(shown)})")


def named(call: Callable[P, R]) -> Callable[P, R]:
    """The call, which refuses wrong keywords in words of our own."""
    name, own = call.__name__, dict(inspect.signature(call).parameters)
    if name == "__init__":
        name = call.__qualname__.split(".")[-2]
    own.pop("self", None) or own.pop("cls", None)
    if any(p.kind is p.VAR_KEYWORD for p in own.values()):
        return call
    held = len(inspect.signature(call).parameters) - len(own)

    @wraps(call)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        try:
            refuse_arguments(name, own, len(args) - held, list(options))
            return call(*args, **options)
        finally:  # they may be rows, which a traceback would keep
            del args, options

    return checked


class Made:
    """Base of what a user makes: it refuses unknown keywords in words of our own."""

    __slots__ = ()

    def __new__(cls, *_: Any, **options: Any) -> Self:
        if options:
            known = dict(inspect.signature(cls).parameters)
            _unknown(cls.__name__, known, list(options), {})
        return super().__new__(cls)


class Strict(Made):
    """Base of public classes whose methods, too, refuse wrong keywords in words of our own."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in dir(cls):
            method = inspect.getattr_static(cls, name)
            own = name == "__init__" and name in vars(cls)
            if (name.startswith("_") and not own) or hasattr(method, "__wrapped__"):
                continue
            if inspect.isfunction(method):
                setattr(cls, name, named(method))
            elif isinstance(method, classmethod):
                setattr(cls, name, classmethod(named(method.__func__)))
