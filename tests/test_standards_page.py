"""The standards page: complete, and every test on it exists; the citation file is valid."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

import privcausal

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "tests" / "standards.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith(("| ---", "| point", "| standard"))
]
COUNTS = {
    "G1": range(7), "G2": range(17), "G3": range(2), "G4": range(1), "G5": range(13),
    "RE1": range(5), "RE2": range(5), "RE3": range(4), "RE4": range(19), "RE5": range(1),
    "RE6": range(4), "RE7": range(5),
}  # fmt: skip
"""Numbers of the standards, general and of regression, at March 2026."""


def test_every_standard_is_there_once() -> None:
    names = [row[0] for row in ROWS if re.match(r"(G|RE)\d", row[0])]
    assert names == [f"{part}.{k}" for part, numbers in COUNTS.items() for k in numbers]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_has_an_answer_and_its_test_exists(row: list[str]) -> None:
    _, answer = row
    test = re.search(r": `(tests/\S+\.py)`(?: `(test_\w+)`)?$", answer)
    if test is None:
        words = r"(as RE?\d|not applicable|none|alpha|`CONTRIBUTING)"
        assert re.match(words, answer), "only these are answered without a test"
        return
    path, function = test.groups()
    source = (ROOT / path).read_text(encoding="utf-8")
    defined = {n.name for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)}
    assert function in defined if function else any(name.startswith("test_") for name in defined)


def test_the_citation_is_valid() -> None:
    """The fields that Citation File Format 1.2.0 requires, and what else must agree."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert cited["cff-version"] == "1.2.0"
    assert cited["version"] == privcausal.__version__
    assert cited["license"] == "BSD-3-Clause"
    assert cited["type"] == "software"
    assert all(set(author) == {"name"} for author in cited["authors"])
