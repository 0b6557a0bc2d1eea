"""The map of the papers: complete, and every call, script and test on it exists."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "tests" / "papers.md").read_text(encoding="utf-8")
SECTIONS = TEXT.split("\n## ")[1:]


def numbered(word: str, *numbers: object) -> set[str]:
    return {f"{word} {number}" for number in numbers}


ITEMS = {
    "Niu": numbered("Definition", 1, 2, 3) | numbered("Algorithm", 1, 2)
    | numbered("Remark", 4, 5, 7, 8, 9) | {"Theorem 6", "Lemma 10", "Table 1"}
    | numbered("Figure", 1, 2, 3),
    "DP-CATE": numbered("Definition", 1, 2, 3, 4, 5) | numbered("Theorem", 1, 2, 3)
    | numbered("Corollary", 1, 2) | numbered("Lemma", 1, 2, 3, 4, 5)
    | numbered("Algorithm", 1, 2) | {"Remark 1"} | numbered("Figure", *range(1, 10)),
    "ADUM": {"Proposition 1", "Algorithm 1", "Corollary 1"} | numbered("Figure", 1, 2, 3),
    "PrivATE": numbered("Definition", 3.1, 3.2, 4.1) | numbered("Lemma", 4.2, 4.4, "A.1", "A.2")
    | numbered("Theorem", 4.3, 4.5, 4.6) | numbered("Table", 1, 2, 3)
    | numbered("Figure", *range(1, 7)),
}  # fmt: skip
"""Every numbered statement of each paper, from its text."""


def rows(section: str) -> list[list[str]]:
    section = section.split("\n### ", maxsplit=1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


ROWS = [row for section in SECTIONS for row in rows(section)]


@pytest.mark.parametrize("paper", ITEMS)
def test_every_statement_is_there(paper: str) -> None:
    (section,) = (s for s in SECTIONS if paper in s.splitlines()[0])
    assert ITEMS[paper] <= {row[0] for row in rows(section)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_what_there_is(row: list[str]) -> None:
    _, _, here, test = row
    names = re.findall(r"(?:pc|privcausal)(?:\.\w+)+", here)
    found = {name: resolve(name) for name in names}
    assert None not in found.values(), found
    for script in re.findall(r"python (tests/\S+\.py)", here):
        assert (ROOT / script).exists(), script
    if here == "drawing" or test.startswith("none: "):
        return
    path, _, function = test.strip("`").partition("::")
    source = (ROOT / path).read_text(encoding="utf-8")
    if function:
        defined = {n.name for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)}
        assert function in defined


def test_every_call_on_it_runs_in_a_test() -> None:
    tests = "\n".join(f.read_text(encoding="utf-8") for f in (ROOT / "tests").rglob("test_*.py"))
    tests += "\n".join(f.read_text(encoding="utf-8") for f in (ROOT / "tests").rglob("*helpers.py"))
    names = {name for row in ROWS for name in re.findall(r"(?:pc|privcausal)(?:\.\w+)+", row[2])}
    unused = {name for name in names if not re.search(rf"\b{name.rpartition('.')[2]}\b", tests)}
    assert not unused


def resolve(name: str) -> object:
    """The object of a dotted name; None if there is none."""
    parts = name.split(".")
    found: object = importlib.import_module("privcausal")
    for k, part in enumerate(parts[1:], 2):
        if hasattr(found, part):
            found = getattr(found, part)
            continue
        try:
            found = importlib.import_module(".".join(["privcausal", *parts[1:k]]))
        except ImportError:
            return None
    return found
