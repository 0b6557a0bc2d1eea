"""LaTeX and HTML of the summary: escaped, balanced, and with the numbers of the text."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from report_fakes import (
    HOSTILE,
    PLAIN_TAGS,
    ate_view,
    cate_view,
    check_latex_rows,
    effects,
    hostile_view,
    uplift_view,
)

from privcausal.errors import CapabilityError, DataError
from privcausal.report.summary import Summary, escape_latex, summarize
from privcausal.report.tables import FitView, Prose, Shape, TableColumn, TableGrid

NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e[+-]\d+)?(?![\w.])")
POWER = re.compile(r"\$(?:([\d.]+) \\times )?10\^\{(-?\d+)\}\$")


def _scientific(found: re.Match[str]) -> str:
    return f"{found[1] or 1}e{int(found[2]):+03d}"


VIEWS = [ate_view, cate_view, uplift_view]


def numbers_in(summary: Summary) -> list[str]:
    grids = [block for block in summary.blocks if isinstance(block, TableGrid)]
    return [n for grid in grids for row in grid.rows for cell in row for n in NUMBER.findall(cell)]


@pytest.mark.parametrize("make", VIEWS)
def test_numbers_are_equal_in_all_formats(make: Callable[..., FitView]) -> None:
    summary = summarize(make())
    expected = numbers_in(summary)
    assert len(expected) > 5
    html = re.sub(r"<[^>]*>", " ", summary.as_html())
    latex = summary.as_latex().replace("$-$", "-").replace("{[}", "[").replace("{]}", "]")
    latex = POWER.sub(_scientific, latex)
    for text in (summary.as_text(), html, latex):
        found = iter(NUMBER.findall(text))
        # in this order, with the head's and the notes' own numbers between
        assert all(number in found for number in expected)


def test_latex_environments_and_braces_balance() -> None:
    for view in (ate_view(), cate_view(), hostile_view("none")):
        latex = summarize(view).as_latex()
        open_: list[str] = []
        for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", latex):
            assert kind == "begin" or open_.pop() == name
            if kind == "begin":
                open_.append(name)
        assert open_ == []
        body = "\n".join(line for line in latex.split("\n") if not line.startswith("%"))
        bare = re.sub(r"\\[\\{}]", "", body)
        assert bare.count("{") == bare.count("}")


def test_every_latex_row_has_the_cells_of_its_table() -> None:
    check_latex_rows(summarize(hostile_view()).as_latex())


@pytest.mark.parametrize("text", HOSTILE)
def test_latex_escapes_leave_no_command(text: str) -> None:
    allowed = r"\\(textbackslash|textasciicircum|textless|textgreater|textbar|le|beta|sim)\b"
    escaped = re.sub(allowed, "", escape_latex(text))
    assert not re.search(r"\\[a-zA-Z]", escaped)
    assert not re.search(r"(?<!\\)[&%#_~^]", escaped)


def test_latex_protects_what_follows_a_row() -> None:
    assert escape_latex("[dp] *x") == "{[}dp] {*}x"
    latex = summarize(
        ate_view(effects=effects({"*": (-0.1, 0.05, 0.0, 0.05, -0.2, 0.0)}))
    ).as_latex()
    assert "{*} & $-$0.1000" in latex


@pytest.mark.parametrize("kind", ["proven", "published", "none"])
def test_html_holds_no_tag_from_a_name(kind: str) -> None:
    html = summarize(hostile_view(kind)).as_html()
    tags = {tag.lower() for tag in re.findall(r"</?([a-zA-Z]+)", html)}
    assert tags <= PLAIN_TAGS
    assert "onerror=alert" in html  # shown as text, not dropped
    assert "{{" not in html


def test_html_tables_have_captions_and_scopes() -> None:
    html = summarize(cate_view(), full=True).as_html()
    assert html.count("<table") == html.count("<caption>") == 6
    assert len(re.findall(r"<th(?! scope=)[ >]", html)) == 0


@pytest.mark.parametrize("make", VIEWS)
def test_not_private_is_first_and_last_in_every_format(make: Callable[..., FitView]) -> None:
    summary = summarize(make(kind="none"))
    lines = summary.as_text().split("\n")
    assert "NOT PRIVATE" in lines[0]
    assert "NOT PRIVATE" in lines[-1]
    for text in (summary.as_html(), summary.as_latex(), summary._repr_html_()):
        assert text.count("NOT PRIVATE") == 2
        assert text.index("NOT PRIVATE") < text.index("Private")
        assert text.rindex("NOT PRIVATE") > text.rindex("Estimand")


def test_published_says_so_and_proven_says_nothing() -> None:
    published, proven = (summarize(ate_view(kind=kind)) for kind in ("published", "proven"))
    for name in ("as_text", "as_html", "as_latex"):
        assert getattr(published, name)().count("CLAIMED, NOT PROVEN") == 2
        assert "NOT PR" not in getattr(proven, name)()


def test_the_table_value_is_enough_for_other_tables() -> None:
    grid = TableGrid(
        "Planned", (TableColumn("eps", "left"), TableColumn("half-width")), (("0.5", "0.044"),)
    )
    assert "half-width" in str(Summary("Plan", (grid, Prose(("One line.",))), alert=""))
    with pytest.raises(ValueError, match="cell per column"):
        TableGrid("Planned", (TableColumn("eps"),), (("1", "2"),))


def test_shapes_are_checked() -> None:
    with pytest.raises(DataError, match="the same nonzero length"):
        Shape("x", "continuous", (1.0, 2.0), (1.0,), (1.0,), (1.0,))
    with pytest.raises(CapabilityError, match="'continuous' or 'levels'"):
        Shape("x", "cubic", (1.0,), (1.0,), (1.0,), (1.0,))  # type: ignore[arg-type]


def test_empty_parts_leave_no_trace() -> None:
    bare = ate_view(effects=None, uncertainty=(), notes=(), ledger=None,
                    budget=ate_view().budget.iloc[:0])  # fmt: skip
    text = str(summarize(bare))
    assert "estimate" not in text
    assert "\n\n" not in text
    assert len(summarize(bare, full=True).blocks) == 9
    assert len(summarize(bare).blocks) == 6


def test_a_long_table_in_latex_is_several_between_which_a_page_may_end() -> None:
    terms = {f"X{i}": (0.1, 0.05, 0.0, 0.05, 0.0, 0.2) for i in range(60)}
    latex = summarize(ate_view(effects=effects(terms))).as_latex()
    parts = [part.split(r"\end{tabular}")[0] for part in latex.split(r"\begin{tabular}")[2:]]
    assert len(parts) == 3
    assert all("estimate" in part for part in parts)
    assert sum(part.count("X") for part in parts) == 60


def test_a_summary_in_latex_can_be_cited() -> None:
    summary = summarize(ate_view(), full=True)
    plain = summary.as_latex()
    assert r"\begin{table}" not in plain
    cited = summary.as_latex(label="tab:ate")
    assert r"\caption{Private Average Treatment Effect}" in cited
    assert cited.index(r"\caption") < cited.index(r"\label{tab:ate}") < cited.index(r"\toprule")
    assert r"\caption{Effects of 5\% more}" in summarize(ate_view()).as_latex("Effects of 5% more")
    for name in ("Effects", "Privacy budget by release"):  # several tables, told apart
        assert rf"\emph{{{name}}}" in plain and rf"\emph{{{name}}}" in cited
    assert cited.count(r"\toprule") == plain.count(r"\toprule")
