"""Noise has one source: nothing else in the package may draw any."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from trees import FILES, imports, room, tree

SPLITS = "vault/split.py"
"""Splits need independence of the data and not secrecy, so they alone may use NumPy's generator."""

OPENDP = {"vault/noise.py", "accounting/conversion.py"}


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


def test_the_files_that_may_do_it():
    assert list(generators(tree(SPLITS), SPLITS))
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
    assert list(generators(ast.parse(line), "vault/door.py"))
