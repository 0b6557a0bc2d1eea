"""The trust pages: what they name exists, and their table of sensitivities is that of the code."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest

import privcausal.vault.queries as proven
from privcausal.request.schema import Interval, Levels, Schema
from privcausal.vault.exit import Query
from privcausal.vault.queries.cells import LabelSelection
from privcausal.vault.queries.moments import Marginals

ROOT = Path(__file__).parents[1]
PAGES = {
    name: (ROOT / name).read_text(encoding="utf-8")
    for name in (
        "SECURITY.md",
        "vignettes/explanation/threat-model.md",
        "vignettes/explanation/guarantees.md",
        "vignettes/explanation/known-limits.md",
    )
}
GUARANTEES = PAGES["vignettes/explanation/guarantees.md"]


def mechanisms() -> dict[str, type]:
    """Every class of these rooms that leaves the vault, by name."""
    found: dict[str, type] = {}
    files = [m.name for m in pkgutil.iter_modules(proven.__path__, f"{proven.__name__}.")]
    for file in (*files, "privcausal.vault.published"):
        for name, value in vars(importlib.import_module(file)).items():
            if inspect.isclass(value) and value.__module__ == file:
                found[name] = value
    return {
        name: value
        for name, value in found.items()
        if not name.startswith("_")
        and not inspect.isabstract(value)
        and (issubclass(value, Query) or "Privacy\n" in (inspect.getdoc(value) or ""))
    }


@pytest.mark.parametrize("name", mechanisms())
def test_every_mechanism_is_on_the_page_with_its_file(name: str) -> None:
    assert f"`{name}`" in GUARANTEES
    value = mechanisms()[name]
    proof = next(p for p in value.__mro__ if "Privacy\n" in (inspect.getdoc(p) or ""))
    assert proof is not object
    file = Path(inspect.getfile(value)).name
    line = next(line for line in GUARANTEES.splitlines() if f"`{name}`" in line)
    assert f"`{file}`" in line or f"`{file}`" in GUARANTEES.split(line)[1][:200]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_points_to_exists(page: str) -> None:
    text, folder = PAGES[page], (ROOT / page).parent
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (folder / target).exists(), target
    for path in re.findall(r"`((?:privcausal|tests)/[\w/]+(?:\.py)?/?)`", text):
        assert (ROOT / path).exists(), path
    tests = {p.name for p in (ROOT / "tests").rglob("test_*.py")}
    for name in re.findall(r"`(test_\w+\.py)`", text):
        assert name in tests, name


@pytest.mark.parametrize("page", PAGES)
def test_functions_that_a_page_names_are_in_the_files_it_names(page: str) -> None:
    for names, path in re.findall(
        r"((?:`[\w.]+`(?:, | and )?)+) in `(privcausal/[\w/]+\.py)`", PAGES[page]
    ):
        source = (ROOT / path).read_text(encoding="utf-8")
        for name in re.findall(r"`([\w.]+)`", names):
            assert re.search(rf"(def|class) {name.split('.')[-1]}\b", source), (name, path)


def test_the_sensitivities_of_counts_are_those_of_the_page() -> None:
    schema = Schema({"a": Interval(0, 1), "b": Levels(["x", "y"]), "c": Interval(0, 1)})
    counts, labels = Marginals(("a", "b", "c"), schema), LabelSelection("b", 2, 1e-6)
    assert counts.sensitivity("substitute") == pytest.approx(np.sqrt(6))
    assert counts.sensitivity("add_remove") == pytest.approx(np.sqrt(3))
    assert labels.sensitivity("substitute") / 2 == pytest.approx(np.sqrt(2))
    assert labels.sensitivity("add_remove") / 2 == pytest.approx(1)
