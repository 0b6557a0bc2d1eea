"""A mutant: one change of the package's source, in force within a block.

Functions are not replaced but given other code, so that every name under which one was imported
means the changed one, as it would after an edit of the file.
"""

from __future__ import annotations
import __future__

import ast
import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import _lru_cache_wrapper
from types import CodeType, FunctionType
from typing import Any

from privcausal.auditing.audits import Departure
from privcausal.errors import PrivcausalError

_FLAGS = __future__.annotations.compiler_flag


@dataclass(frozen=True)
class Mutant:
    """`old` written as `new` once in the source of `target`; the check `killer` must then fail.

    Attributes
    ----------
    name : str
        The fault in words.
    target : str
        ``"vault.exit:Exit.noise_query"``, below the package's name.
    killer : tuple
        A check's function and its arguments.
    """

    name: str
    target: str
    old: str
    new: str
    killer: tuple[Callable[..., None], Any]

    @property
    def words(self) -> str:
        """Which check, in words."""
        check, *arguments = self.killer
        return " ".join([check.__name__.replace("_", " "), *map(str, arguments)])

    def check(self) -> None:
        check, *arguments = self.killer
        check(*arguments)

    def killed(self) -> str | None:
        """How it was found, or None where it lives. Any other error is a mutant that is none."""
        with planted(self):
            try:
                self.check()
            except AssertionError:
                return "failed"
            except Departure:
                return "departed"
            except PrivcausalError:
                return "refused"
        return None


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Within this block the package is the mutant."""
    function = _function(_find(mutant.target))
    code = function.__code__
    function.__code__ = _changed(function, mutant.old, mutant.new)
    _forget()
    try:
        yield
    finally:
        function.__code__ = code
        _forget()


def _find(target: str) -> Any:
    place, _, name = target.partition(":")
    found: Any = importlib.import_module(f"privcausal.{place}")
    for part in name.split("."):
        # of a class what is written there, and not what a property gives
        found = vars(found)[part] if part in vars(found) else getattr(found, part)
    return found


def _function(found: Any) -> FunctionType:
    """The function below a property, a class method or a decorator."""
    if isinstance(found, property):
        found = found.fget
    for name in ("__func__", "func", "__wrapped__"):
        found = getattr(found, name, found)
    found = inspect.unwrap(found)  # a guard stands in two layers
    assert isinstance(found, FunctionType)
    return found


def _changed(function: FunctionType, old: str, new: str) -> CodeType:
    source = textwrap.dedent(inspect.getsource(function.__code__))
    if source.count(old) != 1:
        raise ValueError(f"{function.__qualname__} does not hold once: {old}")
    tree = ast.parse(source.replace(old, new))
    (defined,) = tree.body
    assert isinstance(defined, ast.FunctionDef)
    defined.decorator_list = []
    names = dict(function.__globals__)
    exec(compile(tree, "<mutant>", "exec", _FLAGS), names)
    changed: CodeType = names[function.__name__].__code__
    if changed.co_freevars != function.__code__.co_freevars:
        raise ValueError(f"{function.__qualname__} needs names around it")
    return changed


def _forget() -> None:
    """Empty every cache of the package: what is in them was made by other code."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "privcausal":
            for value in list(vars(module).values()):
                if isinstance(value, _lru_cache_wrapper):
                    value.cache_clear()
