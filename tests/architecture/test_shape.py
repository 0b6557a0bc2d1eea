"""Files that can be read in one sitting, and one name for one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

import pytest
from trees import FILES, PACKAGE, tree

LONGEST = 1500

SHARED = {"private", "dpcate"}
"""Public calls whose module says which is meant: `pc.private` and `pc.paper.private`."""


@pytest.mark.parametrize("file", FILES)
def test_no_file_is_too_long(file: str) -> None:
    assert len((PACKAGE / file).read_text(encoding="utf-8").splitlines()) <= LONGEST


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
