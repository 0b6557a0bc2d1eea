"""A mutant: one change of the package's source, in force within a block, or while tests run.

As a plugin of pytest this plants what the environment names, and tells how it was found. Functions
are not replaced but given other code, so that every name under which one was imported means the
changed one, as it would after an edit of the file.
"""

from __future__ import annotations
import __future__

import ast
import importlib
import inspect
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import _lru_cache_wrapper
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from privcausal.auditing import Departure
from privcausal.errors import PrivcausalError

_FLAGS = __future__.annotations.compiler_flag

TESTS = Path(__file__).resolve().parents[1]
PLANTED, FOUND = "PRIVCAUSAL_PLANTED", "found by the first: "
OPTIONS = ("-o", "addopts=", "-n", "0", "-x", "-q", "-p", "no:cacheprovider", "-p", "planting")


@dataclass(frozen=True)
class Mutant:
    """`old` written as `new` once in the source of `target`; the test `killer` must then fail.

    Attributes
    ----------
    name : str
        The fault in words.
    target : str
        ``"vault.exit:Exit.noise_query"``, below the package's name.
    killer : str
        The node of a test below the folder of tests; where it has cases, one is enough.
    """

    name: str
    target: str
    old: str
    new: str
    killer: str

    def killed(self) -> str | None:
        """How it was found, or None where it lives. Any other error is a mutant that is none."""
        done = run(self.killer, {PLANTED: json.dumps([self.target, self.old, self.new])})
        if done.returncode == pytest.ExitCode.OK:
            return None
        how = done.stdout.rpartition(FOUND)[2].split("\n")[0]
        if done.returncode != pytest.ExitCode.TESTS_FAILED or how in BROKEN:
            said = done.stdout[-2000:] + done.stderr[-2000:]
            raise ValueError(f"{self.name} is no mutant: {said}")
        return how


BROKEN = ("NameError", "AttributeError")
"""What a change raises that cannot run."""


def run(node: str, planted: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a test in a process of its own, until its first failure."""
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, str(TESTS / node)], cwd=TESTS.parent,
        env=os.environ | {"PYTHONPATH": path, "PRIVCAUSAL_ALL": "1", "PRIVCAUSAL_PART": ""}
        | (planted or {}),
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    if PLANTED in os.environ:
        planting = planted(*json.loads(os.environ[PLANTED]))
        planting.__enter__()
        config.add_cleanup(lambda: planting.__exit__(None, None, None))


def pytest_exception_interact(call: pytest.CallInfo[Any]) -> None:
    words = {AssertionError: "failed", pytest.fail.Exception: "failed"}
    words |= {Departure: "departed", PrivcausalError: "refused"}
    if call.excinfo is not None:
        error = call.excinfo.type
        how = next((words[kind] for kind in words if issubclass(error, kind)), error.__name__)
        print(f"\n{FOUND}{how}")


@contextmanager
def planted(target: str, old: str, new: str) -> Iterator[None]:
    """Within this block the package is the mutant."""
    function = _function(_find(target))
    code = function.__code__
    function.__code__ = _changed(function, old, new)
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
