"""Noise has one source, and one function that asks it: all that leaves the vault passes there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from trees import FILES, imports, room, tree

SPLITS = "vault/batch.py"
"""Splits need independence of the data and not secrecy, so they alone may use NumPy's generator."""

SOURCES = {"vault/noise.py", "testing.py"}
"""Where noise is made; a source of a test may pass a question on to another."""

OPENDP = {"vault/noise.py", "accounting/price.py"}


def generators(module: ast.Module, file: str) -> Iterator[str]:
    """Uses of a generator that is not made for privacy."""
    for source, name, line in imports(module, file):
        if source.startswith("numpy.random") or (source, name) == ("numpy", "random"):
            yield f"{file}:{line}: imports numpy.random"
        if source.split(".")[0] == "random":
            yield f"{file}:{line}: imports random"
    for node in ast.walk(module):
        match node:
            case ast.Attribute(value=ast.Name("np" | "numpy"), attr="random"):
                yield f"{file}:{node.lineno}: uses numpy.random"
            case ast.Attribute(attr="rvs"):  # a distribution of scipy.stats draws
                yield f"{file}:{node.lineno}: draws"


@pytest.mark.parametrize("file", [f for f in FILES if room(f) == "vault" and f != SPLITS])
def test_the_vault_draws_from_no_other_generator(file):
    assert list(generators(tree(file), file)) == []


@pytest.mark.parametrize("file", sorted({*FILES} - OPENDP))
def test_only_the_noise_and_the_conversion_know_opendp(file):
    found = [i for i in imports(tree(file), file) if i.module.split(".")[0] == "opendp"]
    assert found == []


def askers(module: ast.Module) -> list[str]:
    """Functions that name a noise source's draw, each as often as it does; "" is the module."""
    found, within = list[str](), {}
    for node in ast.walk(module):
        name = node.name if isinstance(node, ast.FunctionDef) else within.get(node, "")
        within |= dict.fromkeys(ast.iter_child_nodes(node), name)
        match node:
            case ast.Attribute(attr="with_noise"):
                found.append(name)
            case ast.Call(func=ast.Name("getattr"), args=[_, ast.Constant("with_noise")]):
                found.append(name)
    return found


@pytest.mark.slow
def test_one_function_asks_for_noise():
    found = {file: asked for file in {*FILES} - SOURCES if (asked := askers(tree(file)))}
    assert found == {"vault/exit.py": ["noisy"]}


@pytest.mark.parametrize(
    "line",
    ["source.with_noise(x, q)", "draw = a.b.with_noise", "getattr(a, 'with_noise')(x, q)"],
)
def test_the_rule_sees_another_asker(line):
    assert askers(ast.parse(line)) == [""]
    assert askers(ast.parse(f"class A:\n    def f(self):\n        {line}")) == ["f"]


def test_the_files_that_may_do_it():
    assert len(list(generators(tree(SPLITS), SPLITS))) == 1  # that of the splits
    for file in OPENDP:
        assert any(i.module.startswith("opendp") for i in imports(tree(file), file))


@pytest.mark.parametrize(
    "line",
    [
        "np.random.default_rng(0)",
        "import numpy; numpy.random.normal()",
        "from numpy import random",
        "from numpy.random import default_rng",
        "import numpy.random as r",
        "import random",
        "def f():\n    from random import gauss",
        "laplace(0, 1).rvs(3)",
    ],
)
def test_the_rule_sees_a_generator(line):
    assert list(generators(ast.parse(line), "vault/vault.py"))
