"""A package that reads like a paper: few files and functions, short ways, one name for a thing."""

from __future__ import annotations

import ast
import inspect
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import FrameType

import numpy as np
import pandas as pd
from trees import FILES, PACKAGE, tree

import privcausal as pc

MOST_FUNCTIONS = 42.0
"""Of 1,000 lines."""

MOST_FILES, MOST_LINES = 101, 48_500

LONGEST_WAY = {"functions": 565, "files": 36, "depth": 28}
"""Of a warm fit by learner "r". A ratchet: 500 functions are the aim."""

SHARED = {"private", "dpcate"}
"""Public calls whose module says which is meant: `pc.private` and `pc.paper.private`."""


def test_functions_are_few_and_do_much() -> None:
    lines = sum(len((PACKAGE / f).read_text(encoding="utf-8").splitlines()) for f in FILES)
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    functions = sum(isinstance(node, kinds) for f in FILES for node in ast.walk(tree(f)))
    now = math.ceil(10_000 * functions / lines) / 10
    assert now <= MOST_FUNCTIONS, f"{now} functions per 1,000 lines"
    assert len(FILES) <= MOST_FILES
    assert lines <= MOST_LINES, f"{lines} lines"


def way(fit: Callable[[], object]) -> dict[str, int]:
    """How many of the package's functions a call runs, in how many files, and how deep."""
    met, depth, deepest = set[tuple[str, str]](), 0, 0

    def seen(frame: FrameType, event: str, _: object) -> None:
        nonlocal depth, deepest
        code = frame.f_code
        own = code.co_filename.startswith(str(PACKAGE)) and not code.co_name.startswith("<")
        if own and code.co_flags & inspect.CO_OPTIMIZED:  # neither a class's body nor a module's
            met.add((code.co_filename, code.co_qualname))
            depth += {"call": 1, "return": -1}.get(event, 0)
            deepest = max(deepest, depth)

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        fit()
    finally:
        sys.setprofile(before)
    return {"functions": len(met), "files": len({file for file, _ in met}), "depth": deepest}


def test_a_fit_takes_a_short_way() -> None:
    rng, n = np.random.default_rng(0), 4000
    x1, x2 = rng.normal(size=(2, n)).clip(-3, 3)
    t = rng.integers(0, 2, n)
    y = (x1 + t * (1 + x2) + rng.normal(size=n)).clip(-8, 8)
    data = pd.DataFrame({"X1": x1, "X2": x2, "T": t, "Y": y})
    bounds = {"Y": (-8, 8), "X1": (-3, 3), "X2": (-3, 3)}

    def fit() -> object:
        return pc.privcate("Y ~ T | X1 + X2", data, learner="r", eps=1, bounds=bounds)

    fit()  # what is kept from fit to fit is made
    now = way(fit)
    assert all(now[name] <= most for name, most in LONGEST_WAY.items()), now
    assert now["functions"] > 300  # it was looked at


def defined(module: ast.Module) -> Iterator[str]:
    """Public names of more than a letter (type variables have one) at the top of a file."""
    for node in module.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found = [name]
            case ast.Assign(targets=targets):
                inner = [each for target in targets for each in ast.walk(target)]
                found = [each.id for each in inner if isinstance(each, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                found = [name]
            case _:
                found = []
        yield from (name for name in found if len(name) > 1 and not name.startswith("_"))


def test_no_public_name_is_defined_twice() -> None:
    where = defaultdict(set)
    for file in FILES:
        for name in defined(tree(file)):
            where[name].add(file)
    twice = {name: files for name, files in where.items() if len(files) > 1 and name not in SHARED}
    assert twice == {}
    assert {"ScoreSums", "privcate", "PRIORS"} <= set(where)
    source = "A, b = 1, 2\ndef f2(): pass\nclass C2: pass\nd3: int = 1"
    assert set(defined(ast.parse(source))) == {"f2", "C2", "d3"}
