"""Imports point down, and the rows stay in the vault: security, not taste."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from trees import FILES, PACKAGE, circles, exported, imports, module_of, room, tree

_GROUND = {"errors", "prices", "typing"}
_BELOW_ESTIMATORS = {"accounting", "features", "request", *_GROUND}
_BELOW_RESULTS = {"estimators", "inference", "vault", *_BELOW_ESTIMATORS}

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "prices": set(),
    "typing": set(),
    "accounting": _GROUND,
    "request": {"accounting", *_GROUND},
    "features": {"request", *_GROUND},
    "vault": _BELOW_ESTIMATORS,
    "inference": _BELOW_ESTIMATORS,
    "estimators": {"vault", "inference", *_BELOW_ESTIMATORS},
    "learners": {"estimators"},  # the public names of option objects
    "report": _GROUND,  # plain tables only
    "results": {"report", *_BELOW_RESULTS},
    "run": {"results", "report", *_BELOW_RESULTS},
    "api": {"run", "results", *_BELOW_RESULTS},
    "paper": {"api", "run", "results", *_BELOW_RESULTS},
    "cli": {"", "auditing", "results", "vault", *_BELOW_ESTIMATORS},
    "__main__": {"cli"},
    "datasets": {"request", *_GROUND},  # domains that it declares
    "testing": {"vault", *_GROUND},  # a test room: it puts other noise sources in place
    # it calls fits on rows that it invents, and sees their exact answers: none of the vault's names
    "auditing": {"api", "estimators", "testing", "report", "accounting", "request", *_GROUND},
    "__init__": {"api", "auditing", "paper", "results", "estimators", "learners", "datasets"}
    | {"testing", *_BELOW_ESTIMATORS},
}
"""Room -> rooms it may import from, besides itself; "" is the package's public names."""

HANDLES_DATA = {"api", "cli", "paper", "run", "vault"}

HIDDEN = re.compile(r"privcausal\.vault(\.\w+)*")


def problems(module: ast.Module, file: str) -> Iterator[str]:
    """What the imports of one file do against the rules, in words."""
    own = room(file)
    rooms = {room(other) for other in FILES} - {"__init__"}
    for module_name, name, line in imports(module, file):
        top, *path = module_name.split(".")
        if top != "privcausal":
            continue
        at = path[0] if path else name if name in rooms else ""
        if at != own and at not in MAY_IMPORT[own]:
            yield f"{file}:{line}: {own} may not import from {at or 'the public names'}"
        if "vault" in (at, *path) and own != "vault":
            # `import privcausal.vault.passes` would open every private name; where the room is
            # imported itself, each use is checked below
            by_name = module_name == "privcausal.vault" and name in _vault_names(own)
            as_room = (module_name, name) == ("privcausal", "vault")
            if not (by_name or as_room):
                yield f"{file}:{line}: take {name or module_name} from vault by a name of __all__"
    if own != "vault":
        yield from _side_doors(module, file)
        if any((name, at) == ("vault", "privcausal") for at, name, _ in imports(module, file)):
            yield from _uses(module, file)


def _uses(module: ast.Module, file: str) -> Iterator[str]:
    """What is done with an imported `vault` but to read a name of its `__all__`."""
    read = set()
    for node in ast.walk(module):
        match node:
            case ast.Attribute(value=ast.Name("vault") as room_, attr=name):
                read.add(room_)
                if name not in _vault_names(room(file)):
                    yield f"{file}:{node.lineno}: vault.{name} is not in its __all__"
            case ast.alias(name="vault", asname=str(other)):
                yield f"{file}:{node.lineno}: call the vault by its name, not {other}"
    for node in ast.walk(module):
        if isinstance(node, ast.arg) and node.arg == "vault":
            yield f"{file}:{node.lineno}: a parameter hides the vault"
        if isinstance(node, ast.Name) and node.id == "vault" and node not in read:
            yield f"{file}:{node.lineno}: the vault itself is not handed on"


def _vault_names(own: str) -> set[str]:
    return exported("vault/__init__.py") | ({"noise"} if own == "testing" else set())


def _side_doors(module: ast.Module, file: str) -> Iterator[str]:
    """Ways to the vault that are no imports: its dotted name as text, or as an attribute."""
    for node in ast.walk(module):
        match node:
            case ast.Constant(value=str(text)) if HIDDEN.fullmatch(text):
                yield f"{file}:{node.lineno}: names the vault in a string"
            case ast.Attribute(value=ast.Name("privcausal" | "pc"), attr="vault"):
                yield f"{file}:{node.lineno}: reaches for privcausal.vault"


def test_every_room_is_known():
    assert {room(file) for file in FILES} == set(MAY_IMPORT)


@pytest.mark.parametrize("file", FILES)
def test_imports_point_down(file):
    assert list(problems(tree(file), file)) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("estimators/meta.py", "from privcausal.vault.admission import open_source"),
        ("estimators/meta.py", "import privcausal.vault.passes"),
        ("estimators/meta.py", "import privcausal.vault"),
        ("estimators/meta.py", "from privcausal import vault as v"),
        ("estimators/meta.py", "from privcausal import vault\nvault.passes"),
        ("estimators/meta.py", "from privcausal import vault\nvault.Batch"),
        ("estimators/meta.py", "from privcausal import vault\ngetattr(vault, 'passes')"),
        ("estimators/meta.py", "from privcausal import vault\ndef f(vault): vault.Gram"),
        ("estimators/meta.py", "from privcausal.vault import noise"),
        ("estimators/meta.py", "from privcausal.vault import Batch"),
        ("estimators/meta.py", "from privcausal.vault import *"),
        ("estimators/meta.py", "from ..vault import passes"),
        ("estimators/meta.py", "from ..vault.vault import Vault"),
        ("estimators/meta.py", "from .. import vault\nvault.noise"),
        ("estimators/meta.py", "from privcausal.results import load"),
        ("estimators/meta.py", "def f():\n    from privcausal import results"),
        ("estimators/meta.py", "__import__('importlib').import_module('privcausal.vault.passes')"),
        ("estimators/meta.py", "import privcausal as pc\npc.vault.passes"),
        ("inference/cuts.py", "from privcausal.vault import Vault"),
        ("report/summary.py", "from privcausal.results import Result"),
        ("report/summary.py", "from privcausal.request.schema import Schema"),
        ("request/request.py", "import privcausal.learners"),
        ("accounting/ledger.py", "from privcausal.request.request import Plan"),
        ("vault/vault.py", "from privcausal.learners import R"),
        ("datasets.py", "from privcausal import privcate"),
        ("testing.py", "from privcausal.vault import passes"),
        ("auditing.py", "from privcausal.vault import noise"),
        ("api.py", "from privcausal.auditing import audit"),
        ("api.py", "from privcausal.vault.check_data import inspect"),
    ],
)
def test_the_rule_sees_what_is_forbidden(file, line):
    assert list(problems(ast.parse(line), file))


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("estimators/meta.py", "from privcausal.vault import Vault, Gram"),
        ("estimators/meta.py", "from ..vault import Vault"),
        ("estimators/meta.py", "from privcausal import vault\nvault.Gram"),
        ("estimators/meta.py", "ground.vault.release(stage)"),
        ("vault/vault.py", "from privcausal.vault.batch import Batch"),
        ("testing.py", "from privcausal.vault import noise"),
        ("results/base.py", "from privcausal import report"),
        ("cli.py", "import privcausal as pc"),
    ],
)
def test_the_rule_lets_pass_what_is_meant(file, line):
    assert list(problems(ast.parse(line), file)) == []


def below() -> dict[str, set[str]]:
    """Module -> modules of the package that it imports from, in functions and for types too."""
    found: dict[str, set[str]] = {module_of(file): set() for file in FILES}
    for file in FILES:
        for module, name, _ in imports(tree(file), file):
            of = f"{module}.{name}" if f"{module}.{name}" in found else module
            found[module_of(file)] |= {of} & found.keys()
    return found


def test_no_modules_import_each_other_in_a_circle():
    """Not for types either: who needs a type from above takes values instead."""
    assert circles(below()) == []


def test_a_circle_is_seen():
    more = below()
    more["privcausal.results.frames"].add("privcausal.results.fits")
    (found,) = circles(more)
    assert {"privcausal.results.base", "privcausal.results.view"} < set(found)


def parameters(module: ast.Module) -> Iterator[tuple[str, int]]:
    """Every parameter of every function, method and lambda."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            given = node.args
            named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
            for argument in (*named, given.vararg, given.kwarg):
                if argument is not None:
                    yield argument.arg, argument.lineno


@pytest.mark.parametrize("file", [f for f in FILES if room(f) not in HANDLES_DATA])
def test_only_the_front_and_the_vault_take_data(file):
    found = [f"{file}:{line}" for name, line in parameters(tree(file)) if name == "data"]
    assert found == [], "rows are called data; name anything else for what it is"


def test_every_file_of_the_package_was_read():
    assert len(FILES) > 50
    assert (PACKAGE / "vault" / "vault.py").is_file()
    assert ("data", 1) in parameters(ast.parse("lambda *, data: 0"))
