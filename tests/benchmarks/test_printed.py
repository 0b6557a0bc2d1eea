"""The numbers of the papers' page are those that the studies stored."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import printed
import pytest


def test_the_page_holds_the_stored_numbers() -> None:
    text = printed.PAGE.read_text(encoding="utf-8")
    assert printed.page(text) == text, "run python tests/benchmarks/printed.py"


def test_the_summary_on_the_site_counts_them() -> None:
    page = printed.PAGE.parents[1] / "vignettes" / "reference" / "papers.md"
    text = page.read_text(encoding="utf-8")
    for folder in printed.FOLDERS.values():
        run = [n.verdict for n in printed.read(printed.HERE / folder) if n.verdict != "not run"]
        assert f"| {run.count('reproduced')} of {len(run)} |" in text, folder


LINE = printed.Line("Table 1", "an error", 2.0, 2.1, 0.9, 1.1, "python tests/benchmarks/x.py")


def test_verdicts_follow_from_the_numbers() -> None:
    assert LINE.verdict == "reproduced"
    assert replace(LINE, measured=3.0, reason="why").verdict == "not reproduced"
    assert replace(LINE, printed=math.nan, measured=1.0).verdict == "reproduced"
    assert replace(LINE, measured=math.nan, reason="why").verdict == "not run"
    with pytest.raises(ValueError, match="no reason"):
        replace(LINE, measured=3.0)


def test_lines_are_stored_and_read(tmp_path: Path) -> None:
    lines = [LINE, replace(LINE, printed=math.nan, measured=0.95, says="1")]
    printed.write(tmp_path, lines)
    assert repr(printed.read(tmp_path)) == repr(lines)
