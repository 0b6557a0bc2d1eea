"""Protect private rows: sealed values, and constant messages for errors raised on rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

import numpy as np

from privcausal.errors import DataError, PrivacyBreach, PrivcausalError
from privcausal.vault import noise

P = ParamSpec("P")
R = TypeVar("R")


class Opaque:
    """Base class of all objects that hold rows. They cannot be shown, stored, tested, or copied."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise PrivacyBreach(
            f"{type(self).__name__} holds private rows, so it cannot be shown, tested, iterated, "
            "copied or pickled. Use a release instead."
        )

    __repr__ = __str__ = __format__ = __bytes__ = _refuse
    __bool__ = __int__ = __float__ = __complex__ = __index__ = __len__ = _refuse
    __iter__ = __next__ = __getitem__ = __contains__ = __reversed__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = _refuse
    __array__ = __hash__ = __dir__ = _refuse


class Unreadable(DataError):
    """A table cannot be read to its end. The message is constant and independent of the rows."""


def shielded(step: Callable[[], Any], words: str) -> Any:
    """Run third-party code whose error messages might quote a row.

    Raises
    ------
    Unreadable
        If the step fails, with the constant message `words`.
    """
    try:
        return step()
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # A polars panic is not an Exception.
        pressed = str(error) == "Query interrupted"  # DuckDB before 2.0 raises this on Ctrl-C.
    if pressed:
        raise KeyboardInterrupt
    raise Unreadable(words)


def opening(step: Callable[P, R]) -> Callable[P, R]:
    """Guard a step on names, types, files, and numbers of rows, before any value is read.

    Our own errors keep their text. Errors of other libraries might quote a value, so they get a
    constant message.
    """
    return _guard(np.errstate(all="ignore")(step), PrivcausalError)


def paid(step: Callable[P, R]) -> Callable[P, R]:
    """Guard a step after the charge, on released values. Our own errors keep their text.

    All other failures, such as running out of memory, get a constant message. The steps on rows
    inside are `guarded`, and their failures arrive here as our own errors. The message therefore
    says that the failure was in a computation from released numbers.
    """
    return _guard(step, PrivcausalError, AFTERWARDS)


def guarded(step: Callable[P, R]) -> Callable[P, R]:
    """Guard a step on rows. All failures get the same message, including our own errors.

    NumPy's messages might quote a value, and a memory error might quote the number of rows. The
    frames of a traceback hold arrays of rows, which some tools print. Our own errors do not quote
    values, but the choice of error could depend on a row. Therefore all checks that do not need
    rows run earlier. Here, only a table that cannot be read (`Unreadable`) keeps its message. Also,
    NumPy must not warn or raise on floating-point errors, regardless of the caller's
    `numpy.seterr`.
    """
    return _guard(np.errstate(all="ignore")(step), Unreadable)


REPEAT = (
    "If you hold the data, repeat the call in privcausal.testing.zero_noise() to see it, but do "
    "not publish that. Any budget already charged stays spent."
)
ON_ROWS = "A step on the rows failed. Its message is hidden because it could quote a row. " + REPEAT
AFTERWARDS = (
    "A computation from the released numbers failed, not a step on the rows. Its message is hidden "
    "as a precaution. " + REPEAT
)


def _guard(
    step: Callable[P, R], public: type[PrivcausalError], words: str = ON_ROWS
) -> Callable[P, R]:
    """Guard the step. Only failures of class `public` and unreadable tables keep their message.

    All other failures get the constant message `words`.
    """

    @wraps(step)
    def inside(*args: P.args, **options: P.kwargs) -> R:
        refused: BaseException | None = None
        try:
            return step(*args, **options)
        except KeyboardInterrupt:
            refused = KeyboardInterrupt("Interrupted. Any budget already charged stays spent.")
        except SystemExit:
            refused = SystemExit(1)  # Its argument may be a value from a row.
        except GeneratorExit:
            refused = GeneratorExit()
        except BaseException as error:  # A polars panic is not an Exception.
            if not noise.current().real:
                raise  # Test noise gives no privacy, so show the error.
            if isinstance(error, Unreadable):
                refused = DataError(*error.args)
            elif isinstance(error, public):
                refused = error.with_traceback(None)
                refused.__cause__ = refused.__context__ = None
        del args, options
        # Raise outside the handler, so that the original exception is not kept as context.
        if refused is not None:
            raise refused
        raise DataError(words)

    return inside
