"""Tables name the script and the commit that made them."""

from __future__ import annotations

import pytest
import stale


def test_each_row_of_the_large_studies_names_its_script_and_commit() -> None:
    lines = stale.PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("|") and ".py" in line]
    assert len(rows) > 10
    assert [line for line in rows if not stale.NAMED.search(line)] == []


def test_tables_are_of_commits_that_exist() -> None:
    if stale.git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("needs the repository with its history")
    for one in stale.tables():
        assert (stale.HERE / one.script).is_file(), one
        assert stale.changes(one.commit) >= 0, one  # raises if the commit is not in the history
