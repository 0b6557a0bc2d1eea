"""Errors, grouped by the phase that raises them.

A message names the problem, its place, and the text to write instead. It never contains a value
from a row. Messages contain only the call's own arguments, column names, data types and released
numbers.

Examples
--------
>>> issubclass(pc.errors.SchemaError, pc.errors.PrivcausalError)
True
"""

from __future__ import annotations

import inspect
import math
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from enum import Enum
from fractions import Fraction
from functools import wraps
from traceback import clear_frames
from typing import Any, TypeGuard, TypeVar, cast

C = TypeVar("C", bound=Callable[..., Any])


class PrivcausalError(Exception):
    """Base class of all errors that this package raises on purpose.

    Examples
    --------
    >>> try:
    ...     pc.Interval(95, 18)
    ... except pc.PrivcausalError as error:
    ...     print(type(error).__name__)
    SchemaError
    """


class FormulaError(PrivcausalError, ValueError):
    """The formula is invalid, or uses an operation that is not row-local and public."""


class SchemaError(PrivcausalError, ValueError):
    """A declared domain (bounds, levels, coding) is invalid."""


class DataError(PrivcausalError, ValueError):
    """The data have the wrong shape, columns or types. Values of rows never raise this error."""


class BudgetError(PrivcausalError, ValueError):
    """The privacy budget is impossible, divided wrongly, or exhausted."""


class LedgerError(PrivcausalError, RuntimeError):
    """The ledger cannot be trusted or used. The call releases no results."""


class CapabilityError(PrivcausalError, NotImplementedError):
    """The learner, base or source does not support the request, or its name is unknown."""


class PrivacyBreach(PrivcausalError, TypeError):
    """Code tried to read private values in the vault (repr, iteration, pickling)."""


class PrivcausalWarning(UserWarning):
    """A warning computed only from public or released numbers.

    If a warnings filter turns it into an error, `fit` holds the result, whose budget was spent.
    """

    fit: object = None


HERE = os.path.join(os.path.dirname(__file__), "")  # the separator excludes sibling folders


def warn(*texts: str) -> None:
    """Issue warnings that point to the user's line that called this package."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(HERE):
        frame, level = frame.f_back, level + 1
    for text in texts:
        warnings.warn(text, PrivcausalWarning, stacklevel=level)


def write(path: str | os.PathLike[str], text: str) -> None:
    """Write a file of released numbers; raise `DataError` if the system refuses."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    except OSError as error:
        reason = error.strerror
    raise DataError(
        f"File {os.fspath(path)!r} cannot be written: {reason}. Create its folder, or write to "
        "another place. The fit is not lost."
    )


# -- arguments -------------------------------------------------------------------------------------


def as_plain(value: Any) -> Any:
    """An argument in Python's own types. Never raises.

    Numbers of NumPy, `decimal`, and `fractions` become int or float, also within lists, tuples, and
    dicts, and so do arrays without dimensions. An array with one dimension becomes a list, but not
    in a dict, which may hold columns.
    """
    import numpy as np  # not above, because importing it takes time

    if isinstance(value, np.ndarray) and value.ndim < 2:
        value = value[()] if value.ndim == 0 else list(value)
    if type(value) in (list, tuple):
        return type(value)(map(as_plain, value))
    if type(value) is dict:
        return {k: v if getattr(v, "ndim", 0) else as_plain(v) for k, v in value.items()}
    if isinstance(value, bool | np.timedelta64 | Enum):
        return value
    kinds: tuple[tuple[Any, type], ...] = (
        (np.bool_, bool),
        (np.str_, str),
        (int | np.integer, int),
        (float | np.floating | Decimal | Fraction, float),
    )
    kind = next((plain for types, plain in kinds if isinstance(value, types)), None)
    try:
        return value if kind is None else kind(value)
    except OverflowError:
        return math.inf
    except Exception:  # a subclass may do anything
        return math.nan


def is_number(value: object) -> TypeGuard[float]:
    """Whether the value, after `as_plain`, is a number; a bool does not count."""
    return isinstance(value, int | float) and not isinstance(value, bool)


SWAPS = {
    **dict.fromkeys(("level", "conf_level", "confidence", "ci", "conf"), "alpha"),
    **dict.fromkeys(("epsilon", "privacy_budget"), "eps"),
    **dict.fromkeys(("file", "filename", "fname", "path_or_buf", "out"), "path"),
    **dict.fromkeys(("X", "x", "exog", "data", "df"), "newdata"),
    "r_matrix": "hypotheses",
}
"""Keywords of other packages, mapped to the keyword of this package."""

EXAMPLES = {"alpha": "alpha=0.05 for 95% intervals", "eps": "eps=1.0"}

_HINTS = {
    **dict.fromkeys(
        ("seed", "random_state", "rng"),
        "Privacy noise cannot be seeded. For tests, use pc.testing.seeded_noise().",
    ),
    "n_jobs": "The number of threads is chosen automatically.",
    **dict.fromkeys(
        ("cv", "n_folds", "folds"),
        "For cross-fitting over two folds, write control=pc.Control(split='crossfit').",
    ),
}
"""Keywords of other packages that this package lacks, with advice for each."""

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def refuse_arguments(
    name: str,
    parameters: Mapping[str, inspect.Parameter],
    positional: int,
    keys: Sequence[str],
    moved: Mapping[str, str] = {},  # not modified
) -> None:
    """Refuse unknown keywords, and the absence of a required argument, by a `CapabilityError`.

    `positional` is the number of positional arguments. These and the values of `keys` may be rows,
    and a traceback would keep them in its variables. The caller therefore does not pass them.
    `moved` maps an unknown keyword to its advice. `SWAPS` holds the keywords of other packages.
    """
    for key in keys:
        if key not in parameters:
            ours = SWAPS.get(key, "")
            near = get_close_matches(key, parameters, 1)
            meant = f"Write {near[0]}= instead." if near else ""
            if ours in parameters:
                meant = f"Write {EXAMPLES.get(ours, f'{ours}=...')}."
            listed = f"Its arguments are {', '.join(parameters)}."
            meant = meant or (listed if parameters else "It has no arguments.")
            advice = moved.get(key) or _HINTS.get(key) or meant
            raise CapabilityError(f"{name}() has no argument {key}=. {advice}")
    places = [key for key, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    needed = [k for k, p in parameters.items() if p.default is p.empty and p.kind in _BY_NAME]
    missing = [key for key in needed if key not in (*places[:positional], *keys)]
    if missing:
        first = [parameters[k].kind is not inspect.Parameter.KEYWORD_ONLY for k in needed]
        words = [k if plain else f"{k}=..." for k, plain in zip(needed, first, strict=True)]
        raise CapabilityError(
            f"{name}() requires the argument {missing[0]}. Write {name}({', '.join(words)})."
        )


def named(call: C) -> C:
    """Wrap a call: arguments pass `as_plain`, and wrong keywords raise this package's own error.

    A class that users create is returned itself, with its constructor wrapped.
    """
    if isinstance(call, type):
        call.__init__ = named(call.__init__)  # type: ignore[misc]
        return call
    name, parameters = call.__name__, dict(inspect.signature(call).parameters)
    if name in ("__init__", "__call__"):
        name = call.__qualname__.split(".")[-2]
    parameters.pop("self", None) or parameters.pop("cls", None)
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    bound = len(inspect.signature(call).parameters) - len(parameters)

    @wraps(call)
    def checked(*args: Any, **options: Any) -> Any:
        try:
            if not open_ended:
                refuse_arguments(name, parameters, len(args) - bound, list(options))
            return call(*map(as_plain, args), **{k: as_plain(v) for k, v in options.items()})
        except BaseException as error:
            clear_frames(error.__traceback__)  # variables may be rows, and some tools print them
            raise
        finally:
            del args, options

    return cast("C", checked)


class Strict:
    """Base of public classes whose methods also refuse wrong keywords with this package's error."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in dir(cls):
            method = inspect.getattr_static(cls, name)
            constructor = name == "__init__" and name in vars(cls)
            # A classmethod always has __wrapped__, so look at its function.
            plain = getattr(method, "__func__", method)
            if (name.startswith("_") and not constructor) or hasattr(plain, "__wrapped__"):
                continue
            if inspect.isfunction(method):
                setattr(cls, name, named(method))
            elif isinstance(method, classmethod):
                setattr(cls, name, classmethod(named(plain)))
