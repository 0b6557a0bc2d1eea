"""The curator's findings: exact, complete, in step with what the vault does, and marked."""

from __future__ import annotations

import dataclasses
import datetime
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privcausal as pc
from privcausal.errors import DataError
from privcausal.vault import Findings
from privcausal.vault.admission import open_source
from privcausal.vault.batch import cleaned
from privcausal.vault.check_data import BANNER, MOST_LINES
from privcausal.vault.check_data import NO_PROBLEM as FINE

SCHEMA = pc.Schema(
    {"y": (0, 100), "t": pc.Binary(), "arm": pc.Binary(["No RHC", "RHC"]), "age": (18, 95)}
    | {"ward": ["north", "south"], "job": pc.Levels(["nurse"], other=True), "gone": (0, 1)}
)
COLUMNS = {"t": [0.0, 1.0, 2.0, np.nan, 1.0, 0.5], "y": [-0.5, 0, 50, 100, 100.5, np.inf]}
COLUMNS |= {"arm": ["RHC", "No RHC", "rhc", "", None, "RHC"], "age": [18, 95, 20, 21, 22, 23]}
COLUMNS["ward"] = ["north", "nrth", "south ", None, "nrth", "south"]
COLUMNS["job"] = ["nurse", "clerk", "other", "nurse", None, "nurse"]
COLUMNS |= {"id": [1, 2, 3, 4, 5, 6], "trial": [True, False, True, True, True, True]}
COLUMNS["seen"] = [datetime.date(2020, 1, 1)] * 6
FRAME = pd.DataFrame(COLUMNS).astype({"seen": "datetime64[ns]"})


def lines(findings: Findings) -> dict[tuple[str, str], list[int]]:
    """Positions by column and problem, read through the public members only."""
    frame = findings.frame
    return {
        (column, problem): findings.rows(column, problem).tolist()
        for column, problem in zip(frame["column"], frame["problem"], strict=True)
    }


def test_every_problem_is_found_in_exactly_its_rows():
    assert lines(pc.check_data(FRAME, bounds=SCHEMA)) == {
        ("y", "below 0"): [0],
        ("y", "above 100"): [4],
        ("y", "infinite"): [5],
        ("t", "missing"): [3],
        ("t", "neither '0' nor '1' but '0.5'"): [5],
        ("t", "neither '0' nor '1' but '2'"): [2],
        ("arm", "missing"): [4],
        ("arm", "neither 'No RHC' nor 'RHC' but ''"): [3],
        ("arm", "neither 'No RHC' nor 'RHC' but 'rhc'"): [2],
        ("age", FINE): [],
        ("ward", "missing"): [3],
        ("ward", "undeclared level 'nrth'"): [1, 4],
        ("ward", "undeclared level 'south '"): [2],
        ("job", "missing"): [4],
        ("job", "undeclared level 'clerk'"): [1],
        ("gone", "not in the data"): [],
        ("id", "not declared"): [],
        ("trial", "not declared"): [],
        ("seen", "not declared"): [],
    }


def test_frame_tells_type_consequence_count_and_examples():
    frame = pc.check_data(FRAME, bounds=SCHEMA).frame
    assert list(frame) == ["column", "type", "problem", "consequence", "rows", "examples"]
    line = frame[frame["problem"] == "above 100"].iloc[0]
    assert tuple(line) == ("y", "numeric", "above 100", "becomes 100", 1, (4,))
    fate = frame.set_index("problem")["consequence"]
    assert fate["infinite"] == "is ignored (incomplete row)"
    assert fate["undeclared level 'nrth'"] == "belongs to no level"
    assert fate["undeclared level 'clerk'"] == "becomes 'other'"
    assert fate["neither '0' nor '1' but '2'"] == "is ignored (incomplete row)"
    types = frame.drop_duplicates("column").set_index("column")["type"]
    assert types[["gone", "trial", "seen", "ward"]].tolist() == ["absent", "bool", "other", "text"]
    assert [*types.index] == [*SCHEMA, "id", "trial", "seen"]  # as declared, and then as they come
    fate = frame.set_index("column")["consequence"]
    assert fate["seen"] == fate["gone"] == "the fit stops with an error"
    assert fate["trial"] == "is read as 0/1"


def test_examples_are_a_few_and_rows_are_all():
    findings = pc.check_data({"x": np.arange(1000.0)}, bounds={"x": (0, 9)})
    assert findings.frame["rows"].tolist() == [990]
    assert findings.frame["examples"].tolist() == [(10, 11, 12, 13, 14)]
    assert findings.rows("x", "above 9").tolist() == list(range(10, 1000))


NUMBER = pc.Schema({"x": (0, 1)}, complete=True)
SMALL: dict[str, tuple[Any, Any, dict[str, list[int]]]] = {
    "text with numeric bounds": (
        ["1", "2,5", None, "200", "nan"],
        {"x": (0, 9)},
        {"text with numeric bounds": [], "not a number, first '2,5'": [1, 4], "missing": [2]}
        | {"above 9": [3]},
    ),
    "a type of no value": (
        FRAME["seen"], {"x": ["2020-01-01"]}, {"a type that cannot be read": []},
    ),
    "complete": ([np.nan, 0.5], NUMBER, {"missing, but declared complete": [0]}),
    "long bounds": (
        [1e9, 0], {"x": (0.1, 123456789.5)}, {"below 0.1": [1], "above 123456789.5": [0]},
    ),
}  # fmt: skip
"""Values of one column, its declaration, and the rows of each problem."""


@pytest.mark.parametrize("kind", SMALL)
def test_problems_of_one_column(kind):
    values, bounds, expected = SMALL[kind]
    found = lines(pc.check_data(pd.DataFrame({"x": values}), bounds=bounds))
    assert found == {("x", problem): rows for problem, rows in expected.items()}


def test_texts_of_a_csv_file_that_are_no_numbers_are_not_called_missing(tmp_path):
    written = ["1", "", "1,234.5", "$5", "3e2", "NA", " 7 "]
    pd.DataFrame({"x": written, "y": 1}).to_csv(tmp_path / "rows.csv", index=False)
    found = pc.check_data(tmp_path / "rows.csv", bounds={"x": (0, 300), "y": (0, 1)})
    assert lines(found) == {
        ("x", "not a number, first '1,234.5'"): [2, 3],
        ("x", "missing"): [1, 5],
        ("y", "no problem"): [],
    }


@pytest.mark.parametrize("make", [pl.from_pandas, pa.Table.from_pandas, dict])
def test_every_kind_of_table_gives_the_same_findings(make):
    frame = FRAME.drop(columns="seen")
    expected = pc.check_data(frame, bounds=SCHEMA).frame
    pd.testing.assert_frame_equal(pc.check_data(make(frame), bounds=SCHEMA).frame, expected)


numbers = st.one_of(st.floats(width=32), st.sampled_from([0.0, 1.0, -1.0, 3.0]))
texts = st.sampled_from(["a", "b", "A", "0", "1", "1.0", "True", "", "other", None])
domains = st.sampled_from(
    [
        pc.Interval(-1, 3), pc.Binary(), pc.Binary(["a", "b"]), pc.Binary([0, 1], ref=1),
        pc.Levels(["a", "1"]), pc.Levels(["a", "b"], other=True),
    ]
)  # fmt: skip


@pytest.mark.slow
@settings(deadline=None)  # a busy machine is no fault
@given(st.one_of(st.lists(numbers, min_size=1), st.lists(texts, min_size=1)), domains)
def test_findings_are_what_the_vault_does(values, domain):
    """A row is found exactly where the vault changes its value or takes it for missing."""
    text = all(v is None or isinstance(v, str) for v in values)
    data = pd.DataFrame({"x": np.array(values, dtype=object if text else float)})
    source, found = open_source(data), lines(pc.check_data(data, bounds={"x": domain}))
    number = isinstance(domain, pc.Interval) or (
        isinstance(domain, pc.Binary) and domain.labels is None and not text
    )
    column = source.rows.column("x", as_labels=not number)
    clean, present = cleaned(column, domain)
    assert sorted(i for (_, p), at in found.items() if _is_missing(p) for i in at) == (
        np.flatnonzero(~present).tolist()
    )
    if isinstance(domain, pc.Interval):
        cut = present & (clean != column.numbers)
        assert _positions(found, ("below", "above")) == np.flatnonzero(cut).tolist()
    if isinstance(domain, pc.Levels):
        named = np.array([i >= 0 and column.labels[i] in domain.labels for i in column.codes])
        assert _positions(found, ("undeclared",)) == np.flatnonzero(present & ~named).tolist()


def _is_missing(problem: str) -> bool:
    return problem.startswith(("missing", "infinite", "neither", "not a number"))


def _positions(found: dict[tuple[str, str], list[int]], starts: tuple[str, ...]) -> list[int]:
    return sorted(i for (_, problem), at in found.items() if problem.startswith(starts) for i in at)


def test_it_says_do_not_publish_above_and_below():
    findings = pc.check_data(FRAME, bounds=SCHEMA)
    for text in (str(findings), repr(findings)):
        shown = text.splitlines()
        assert shown[0] == shown[-1] == BANNER
        assert BANNER == "DO NOT PUBLISH: exact findings about private rows"
        assert len(shown) == 3 + len(findings.frame)
    frame = findings.frame
    for text in (str(frame), frame.to_csv(), frame.to_html(), str(frame[["column"]].head(1))):
        assert BANNER in text
    page = findings._repr_html_()
    assert page.count(BANNER) == 2
    assert page.index(BANNER) < page.index("<table>") < page.rindex(BANNER)


def test_with_a_formula_only_its_columns_are_looked_at():
    found = pc.check_data(
        FRAME, "y ~ t | age + trial + C(ward, levels=['south', 'nrth'])", {"y": (0, 100)}
    )
    named = found.frame["column"].drop_duplicates().tolist()
    assert named == ["y", "ward", "t", "age", "trial"]
    assert found.rows("ward", "undeclared level 'north'").tolist() == [0]
    assert found.rows("age", "not declared").size == 0
    with pytest.raises(pc.FormulaError, match="'x' is not in the data"):
        pc.check_data(FRAME, "y ~ t | x", SCHEMA)
    with pytest.raises(pc.CapabilityError, match="data, formula and bounds="):
        pc.check_data(FRAME, SCHEMA)


def test_many_lines_are_cut_in_print_and_not_in_the_frame():
    findings = pc.check_data(
        pd.DataFrame({"x": [f"name {i:03}" for i in range(500)]}), bounds={"x": ["a"]}
    )
    assert len(findings.frame) == 500
    shown = str(findings).splitlines()
    assert len(shown) == MOST_LINES + 4
    assert shown[-2] == f"... and {500 - MOST_LINES} more lines; see .frame"
    assert shown[-2] in findings._repr_html_()


def test_names_and_levels_cannot_change_the_page_or_the_terminal():
    evil = "<script>alert(1)</script>\x1b[31m\u202e\n"
    findings = pc.check_data(pd.DataFrame({evil: ["b", evil * 9]}), bounds={evil: ["a", "b"]})
    for text in (str(findings), findings._repr_html_()):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert len(str(findings).splitlines()) == 4
    assert "<script>" not in findings._repr_html_()
    tags: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append(tag)  # type: ignore[method-assign]
    parser.feed(findings._repr_html_())
    assert set(tags) == {"div", "p", "strong", "table", "thead", "tbody", "tr", "th", "td"}
    # shown short, but found by its whole name
    (problem,) = findings.frame["problem"]
    assert findings.rows(evil, problem).tolist() == [1]


def test_an_unknown_line_is_an_error_that_names_the_known_ones():
    findings = pc.check_data(FRAME, bounds=SCHEMA)
    with pytest.raises(DataError, match=r"Its problems: 'infinite', 'below 0', 'above 100'"):
        findings.rows("y", "missing")
    with pytest.raises(DataError, match="is not declared and not in the data"):
        findings.rows("x", "missing")


def test_findings_are_frozen():
    findings = pc.check_data(FRAME, bounds=SCHEMA)
    with pytest.raises(dataclasses.FrozenInstanceError):
        findings.found = ()
    with pytest.raises(ValueError, match="read-only"):
        findings.rows("y", "below 0")[0] = 7


@pytest.mark.slow
def test_a_column_of_names_takes_one_sort():
    names = np.arange(200_000).astype(str)
    assert len(pc.check_data(pd.DataFrame({"x": names}), bounds={"x": ["a"]}).found) == 200_000
