"""The page on scale shows what the study of speed has stored."""

from __future__ import annotations

from pathlib import Path

import speed

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "vignettes" / "explanation" / "distributed-sums.md"


def test_the_table_is_that_of_the_stored_lines() -> None:
    rows = speed.stored(HERE / "speed.csv")
    assert rows
    shown = PAGE.read_text().partition(speed.BEGIN)[2].partition(speed.END)[0]
    assert shown == speed.table(rows)
