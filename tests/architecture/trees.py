"""The package as syntax trees: what its files import, without running any of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "privcausal"

FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


class Import(NamedTuple):
    """One imported name: ``from module import name``, or ``import module`` with an empty name."""

    module: str
    name: str
    line: int


@cache
def tree(file: str) -> ast.Module:
    return ast.parse((PACKAGE / file).read_text(encoding="utf-8"), filename=file)


def room(file: str) -> str:
    """The folder of a file, or its own name at the top: "vault", "api"."""
    return file.split("/", maxsplit=1)[0].removesuffix(".py")


def imports(module: ast.AST, file: str) -> Iterator[Import]:
    """Every import, also inside functions and under TYPE_CHECKING."""
    package = ["privcausal", *file.split("/")[:-1]]
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, "", node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            source = ".".join([*above, node.module] if node.module else above)
            yield from (Import(source, alias.name, node.lineno) for alias in node.names)


def exported(file: str) -> set[str]:
    """The names of a literal ``__all__``."""
    for node in tree(file).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    raise AssertionError(f"{file} has no literal __all__")
