"""The table of running times shows the stored lines of the study of speed."""

from __future__ import annotations

from pathlib import Path

import speed

HERE = Path(__file__).parent
PAGE = HERE / "speed.md"


def test_the_table_is_that_of_the_stored_lines() -> None:
    rows = speed.stored(HERE / "speed.csv")
    assert rows
    shown = PAGE.read_text().partition(speed.BEGIN)[2].partition(speed.END)[0]
    assert shown == speed.table(rows)
