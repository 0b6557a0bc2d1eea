"""What may not be seen: sealed values, and errors on rows, which are told in constant words."""

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
    """Base class of everything that holds rows: it cannot be shown, stored, tested or copied."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise PrivacyBreach(
            f"{type(self).__name__} holds private rows: it cannot be shown, tested, looped over, "
            "copied or pickled. Use a release"
        )

    __repr__ = __str__ = __format__ = __bytes__ = _refuse
    __bool__ = __int__ = __float__ = __complex__ = __index__ = __len__ = _refuse
    __iter__ = __next__ = __getitem__ = __contains__ = __reversed__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = _refuse
    __array__ = __hash__ = __dir__ = _refuse


class Unreadable(DataError):
    """A table cannot be read to its end. The words are constants, whatever the rows hold."""


def shielded(step: Callable[[], Any], words: str) -> Any:
    """A step of another library's, whose own message may quote a row.

    Raises
    ------
    Unreadable
        Whatever failed, in these `words`.
    """
    try:
        return step()
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a panic of polars is no Exception
        pressed = str(error) == "Query interrupted"  # what DuckDB before 2.0 makes of Ctrl-C
    if pressed:
        raise KeyboardInterrupt
    raise Unreadable(words)


def opening(step: Callable[P, R]) -> Callable[P, R]:
    """A step before any row is read, on names, types and files: our own errors keep their words.

    Errors of other libraries may still quote a value, and are told in constant words.
    """
    return _guard(np.errstate(all="ignore")(step), PrivcausalError)


def paid(step: Callable[P, R]) -> Callable[P, R]:
    """A step after the charge, on what was released: our own errors keep their words.

    Whatever else fails in it, as for want of memory, is told in constant words.
    """
    return _guard(step, PrivcausalError)


def guarded(step: Callable[P, R]) -> Callable[P, R]:
    """A step on rows, whose failures are all told in the same words, our own errors included.

    NumPy's messages may quote a value, a memory error the number of rows, and the frames of a
    traceback hold arrays of rows, which some tools print. Our own errors quote nothing, but which
    one was raised could depend on a row. So whatever can be refused without rows is refused
    earlier, and here only a table that cannot be read (`Unreadable`) keeps its words. NumPy may not
    warn or raise on floating-point errors either, whatever the caller's `numpy.seterr` says.
    """
    return _guard(np.errstate(all="ignore")(step), Unreadable)


def _guard(step: Callable[P, R], public: type[PrivcausalError]) -> Callable[P, R]:
    """The step, of whose failures only the `public` ones keep their words."""

    @wraps(step)
    def inside(*args: P.args, **options: P.kwargs) -> R:
        refused: BaseException | None = None
        try:
            return step(*args, **options)
        except KeyboardInterrupt:
            refused = KeyboardInterrupt("interrupted; what was charged stays spent")
        except SystemExit:
            refused = SystemExit(1)  # its argument may be a value
        except GeneratorExit:
            refused = GeneratorExit()
        except BaseException as error:  # a panic of polars is no Exception
            if not noise.current().real:
                raise  # with test noise nothing is private, and the fault can be found
            if isinstance(error, Unreadable):
                refused = DataError(*error.args)
            elif isinstance(error, public):
                refused = error.with_traceback(None)
                refused.__cause__ = refused.__context__ = None
        del args, options
        # raised outside the handler, so that the other exception is not kept as its context
        if refused is not None:
            raise refused
        raise DataError(
            "a step on the rows failed, and its message could quote one. What was charged stays "
            "spent. Whoever holds the data sees the fault by the same call within "
            "privcausal.testing.zero_noise(): do not publish that"
        )

    return inside
