"""The map of the papers is complete, and the verdicts on their numbers follow from stored rows."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import math
import re
import sys
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

sys.path += [
    str(Path(__file__).parent / "benchmarks"),
    str(Path(__file__).parents[1] / "vignettes"),
]

import execute
import papers_page
import printed

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


@pytest.mark.slow
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


# -- numbers: each verdict from the rows that are stored ------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("paper", printed.FOLDERS)
def test_every_verdict_follows_from_stored_rows(paper: str) -> None:
    table = printed.read(printed.HERE / printed.FOLDERS[paper])
    lines = printed.computed()[paper]
    assert [line.says for line in lines] == table["says"].tolist()
    assert [line.verdict for line in lines] == table["verdict"].tolist()
    for name in ("printed", "measured", "distance"):
        ours = [getattr(line, name) for line in lines]
        assert table[name].tolist() == pytest.approx(ours, rel=1e-4, abs=1e-9, nan_ok=True)


@pytest.mark.slow
def test_the_pages_hold_these_lines() -> None:
    for file, text in papers_page.made(printed.computed()).items():
        assert file.read_text(encoding="utf-8") == text, "run python tests/benchmarks/printed.py"


@pytest.mark.slow
def test_the_shares_at_the_top_are_counted() -> None:
    text = papers_page.SUMMARY.read_text(encoding="utf-8").split("\n## ")[0]
    found = [row.strip("| ").split(" | ") for row in text.splitlines() if row.startswith("| ")]
    shown = {row[0]: [int(cell.split()[0]) for cell in row[1:]] for row in found[2:]}
    words = {paper: [line.verdict for line in lines] for paper, lines in printed.computed().items()}
    words["all"] = [word for own in words.values() for word in own]
    counts = {paper: Counter(own) for paper, own in words.items()}
    assert shown == {
        paper: [c.total(), *(c[v] for v in papers_page.VERDICTS)] for paper, c in counts.items()
    }


def test_every_line_that_is_not_reproduced_has_a_cause_on_the_summary() -> None:
    text = papers_page.SUMMARY.read_text(encoding="utf-8")
    for lines in printed.computed().values():
        for line in lines:
            assert (line.verdict == printed.REPRODUCED) == (line.cause == "")
            assert line.cause in text


def test_runs_stand_beside_every_measured_number() -> None:
    """Only numbers that are computed, not estimated, have no runs."""
    for lines in printed.computed().values():
        for line in lines:
            assert line.runs > 0 or line.error == 0 or math.isnan(line.measured), line


@pytest.mark.parametrize("paper", printed.FOLDERS)
def test_a_changed_number_changes_the_word(paper: str) -> None:
    line = next(
        n for n in printed.computed()[paper]
        if n.verdict == printed.REPRODUCED and n.error > 0 and n.claim == "equal"
    )  # fmt: skip
    level = line.printed if math.isnan(line.level) else line.level
    away = 3 * line.error
    far = level * math.exp(away) if line.log else level + away
    assert replace(line, measured=far, reason="why").verdict == printed.DIFFERS


@pytest.mark.slow
def test_a_changed_row_changes_the_word(tmp_path: Path) -> None:
    import niu_lines

    rows = pd.read_csv(printed.HERE / "niu" / "errors.csv", dtype={"code": str})
    says = "MSE, A, n 32,000, learner r, eps 16"

    def word(factor: float) -> str:
        moved = rows.assign(mse=rows["mse"] * factor)
        moved.to_csv(tmp_path / "errors.csv", index=False)
        (line,) = (n for n in niu_lines.stored(tmp_path) if n.says == says)
        return line.verdict

    assert [word(1.0), word(1.5)] == [printed.REPRODUCED, printed.DIFFERS]


# -- the table of calls ----------------------------------------------------------------------------


def calls() -> list[str]:
    text = papers_page.SUMMARY.read_text(encoding="utf-8")
    section = text.split("## One call per system")[1].split("\n## ")[0]
    return [
        row.split("`")[1] for row in section.splitlines() if row.startswith("| ") and "`" in row
    ]


@pytest.mark.slow
def test_every_call_of_the_table_runs() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    blocks = list(execute.run(papers_page.SUMMARY, names))
    assert sum(len(block.figures) for block in blocks) == len(printed.FOLDERS)
    have_torch = importlib.util.find_spec("torch") is not None
    assert len(calls()) == 20
    for call in calls():
        if '"nn"' in call and not have_torch:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = eval(call, names)
        kind = "published" if call.startswith("pc.paper") else "proven"
        assert fit.guarantee.kind == kind, call
