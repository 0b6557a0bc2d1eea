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


def module_of(file: str) -> str:
    """The dotted name of a file: "results/view.py" is privcausal.results.view."""
    return ".".join(
        ["privcausal", *file.removesuffix(".py").removesuffix("__init__").split("/")]
    ).rstrip(".")


def circles(below: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that reach each other: what is left once all that end are taken away."""
    reach = {module: set(near) for module, near in below.items()}
    while any(reach[near] - far for far in reach.values() for near in far):
        for far in reach.values():
            far.update(*(reach[near] for near in list(far)))
    inside = {m: frozenset(o for o in far if m in reach[o]) for m, far in reach.items() if m in far}
    return [sorted(group) for group in dict.fromkeys(inside.values()) if len(group) > 1]
