"""Several fits in one table: stored layouts in every format, panels, names that attack."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest
from report_fakes import HOSTILE, PLAIN_TAGS, ate_view, cate_view, check_latex_rows, hostile_view

from privcausal.errors import CapabilityError
from privcausal.report.summary import (
    BELOW,
    TIDY,
    Comparison,
    Statistic,
    compared,
    escape_markdown,
    summarize,
)

GOLDEN = Path(__file__).parent / "golden"
FACTS = {
    "Outcome": "death180", "Estimator": "private / gam", "n": "5735", "ε": "0.5", "δ": "1e-05",
    "Guarantee": "proven",
}  # fmt: skip


def tidy(rows: dict[str, tuple[float, ...]]) -> pd.DataFrame:
    """Estimate, standard error, z, p, limits, bound of the bias for each term."""
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=list(TIDY[1:]))
    return frame.rename_axis("term").reset_index()


class Entry(NamedTuple):
    """A fit of a comparison: its name, terms, facts, and the kind of its guarantee."""

    name: str
    terms: pd.DataFrame
    facts: dict[str, str]
    kind: Any = None


def together(entries: Sequence[Entry], *said: Any) -> Comparison:
    frame = pd.concat([e.terms.assign(fit=e.name) for e in entries], ignore_index=True)
    facts, kinds = {e.name: e.facts for e in entries}, {e.kind for e in entries if e.kind}
    return compared(frame[["fit", *TIDY]], facts, kinds, *said)


AVERAGE = {"ATE": (0.0532, 0.0224, 2.375, 0.01755, 0.0093, 0.0971, 0.0)}
CURVE = {"ATE": (0.0481, 0.0301, 1.598, 0.11, -0.0109, 0.1071, 0.0042)}
CURVE["age"] = (-0.00131, 0.00042, -3.12, 0.0018, -0.00213, -0.00049, 0.0001)
BY_R = {**FACTS, "Estimator": "r / gam", "ε": "1", "Sampling alone": "0.0182"}
LINE = {"rhc": (0.0617, 0.0131, 4.71, 2.5e-6, 0.036, 0.0874, 0.0)}
BY_OLS = {"Outcome": "death180", "Estimator": "OLS", "n": "5735", "Guarantee": "none"}
ENTRIES = (
    Entry("AIPW", tidy(AVERAGE), FACTS, "proven"),
    Entry("R-learner, with a long name", tidy(CURVE), BY_R, "proven"),
    Entry("OLS", tidy(LINE), BY_OLS),
)


def table(
    entries: Sequence[Entry] = ENTRIES, statistic: Statistic = "std_error", title: str = "Effects"
) -> Comparison:
    return together(entries, title, statistic, 0.05, ["No guarantee covers OLS."])


def hostile() -> Comparison:
    frame = tidy(dict.fromkeys(HOSTILE, (0.1, 0.05, 2.0, 0.05, 0.0, 0.2, 0.01)))
    facts = {"Outcome": HOSTILE[6], HOSTILE[2]: HOSTILE[0], HOSTILE[7]: HOSTILE[5]}
    entries = [Entry(name, frame, facts, "published") for name in HOSTILE]
    return together(entries, HOSTILE[0], "conf_int", 0.1, HOSTILE)


FORMATS = {"txt": "as_text", "tex": "as_latex", "html": "as_html", "md": "as_markdown"}


@pytest.mark.parametrize("suffix", FORMATS)
def test_layout_is_the_stored_one(suffix: str) -> None:
    """PRIVCAUSAL_GOLDEN=1 writes the files anew; read the difference before keeping it."""
    text = getattr(table(), FORMATS[suffix])().rstrip("\n") + "\n"
    file = GOLDEN / f"comparison.{suffix}"
    if os.environ.get("PRIVCAUSAL_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("statistic", BELOW)
def test_every_format_has_the_same_numbers(statistic: Any) -> None:
    made = table(statistic=statistic)
    below = {
        "std_error": ["(0.0224)", "(0.0301)", "(0.0131)", "(0.00042)"],
        "conf_int": ["[0.0093, 0.0971]", "[-0.0109, 0.1071]", "[-0.00213, -0.00049]"],
        "p_value": ["(0.018)", "(0.110)", "(0.002)", "(<0.001)"],
    }[statistic]
    latex = made.as_latex().replace("$-$", "-").replace("{[}", "[")
    latex = latex.replace(r"\textless{}", "<")
    page = made.as_html().replace("&lt;", "<")
    for text in (str(made), latex, page, made.as_markdown().replace("&lt;", "<")):
        for cell in ("0.0532", "0.0481", "-0.00131", "0.0617", *below):
            assert cell in text, cell


def test_signs_are_minus_signs_in_latex() -> None:
    latex = table(statistic="conf_int").as_latex()
    assert "{[}$-$0.00213, $-$0.00049]" in latex
    assert r"$\delta$ & $10^{-5}$ & $10^{-5}$" in latex


@pytest.mark.parametrize("count", [1, 4, 5, 9, 20])
def test_many_fits_take_panels_of_eighty_columns(count: int) -> None:
    entries = [Entry(f"specification {i}", *_parts(ENTRIES[i % 3])) for i in range(count)]
    lines = str(table(entries)).split("\n")
    assert max(map(len, lines)) <= 78
    heads = [name for line in lines for name in re.findall(r"speci\S*(?: \d+)?", line)]
    assert len(heads) == count
    assert sum(line.count("(0.0224)") for line in lines) == len(range(0, count, 3))
    assert [line for line in lines if line.strip() in ("ATE", "age", "rhc")] == []


def _parts(entry: Entry) -> tuple[Any, ...]:
    return entry.terms, entry.facts, entry.kind


def test_the_worst_fit_speaks_for_the_table() -> None:
    frame = ENTRIES[0].terms
    kinds = {"none": "NOT PRIVATE", "published": "CLAIMED, NOT PROVEN"}
    for kind, words in kinds.items():
        made = table([ENTRIES[0], Entry("other", frame, {}, kind)])  # type: ignore[arg-type]
        for name in FORMATS.values():
            assert getattr(made, name)().count(words) == 2, name
    both = [Entry(kind, frame, {}, kind) for kind in kinds]  # type: ignore[arg-type]
    assert "CLAIMED, NOT PROVEN" not in str(table(both))
    assert str(table()).count("NOT PR") == 0


def test_numbers_behind_the_table() -> None:
    made = table()
    frame, stats = made.tables
    assert list(frame.columns) == ["fit", *TIDY]
    assert frame["fit"].tolist() == ["AIPW"] + ["R-learner, with a long name"] * 2 + ["OLS"]
    assert frame["estimate"].tolist() == [0.0532, 0.0481, -0.00131, 0.0617]
    assert stats.loc["OLS", "ε"] == ""
    assert stats.loc["AIPW", "Estimator"] == "private / gam"
    frame["estimate"] = 0.0
    assert made.frame["estimate"].all()


# -- names that attack -----------------------------------------------------------------------


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)


def test_hostile_names_stay_text() -> None:
    made = hostile()
    text = str(made)
    assert text.isascii() and max(map(len, text.split("\n"))) <= 78
    assert Tags(made.as_html()).seen <= PLAIN_TAGS
    latex = made.as_latex(caption=HOSTILE[6])
    assert r"\textbackslash{}input" in latex
    assert r"\input" not in latex
    check_latex_rows(latex)


def test_markdown_rows_keep_their_cells() -> None:
    for text in (hostile().as_markdown(), summarize(hostile_view()).as_markdown()):
        assert "<script>" not in text and "<img" not in text
        for block in re.findall(r"(?:^\|.*\|\n?)+", text, flags=re.MULTILINE):
            cells = {len(re.findall(r"(?<!\\)\|", row)) for row in block.strip().split("\n")}
            assert len(cells) == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", r"a\|b"),
        ("[x](javascript:1)", r"[x\](javascript:1)"),
        ("C(ward)[T.S]", "C(ward)[T.S]"),
        ("y ~ x_1 * $2^k$", r"y \~ x\_1 \* \$2\^k\$"),
        ("<b>&", "&lt;b&gt;&amp;"),
    ],
)
def test_markdown_is_escaped(text: str, shown: str) -> None:
    assert escape_markdown(text) == shown


# -- programs that read it -------------------------------------------------------------------


def test_latex_is_compiled(compiled: Callable[..., Path]) -> None:
    compiled(
        table().as_latex(caption="Effects & 100% of them", label="tab:effects"),
        table(statistic="conf_int").as_latex(),
        "See Table \\ref{tab:effects}.",
        summarize(ate_view()).as_latex(),
        summarize(cate_view()).as_latex(),
    )


@pytest.mark.slow
def test_word_documents(tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    made = table([*ENTRIES, Entry("test", ENTRIES[0].terms, {}, "none")])
    made.to_word(tmp_path / "table.docx")
    page = docx.Document(str(tmp_path / "table.docx"))
    (grid,) = page.tables
    assert [cell.text for cell in grid.rows[0].cells][1:] == [*made.stats.index]
    assert [cell.text for cell in grid.rows[1].cells] == ["ATE", "0.0532", "0.0481", "", "0.0532"]
    assert [cell.text for cell in grid.rows[2].cells][:3] == ["", "(0.0224)", "(0.0301)"]
    paragraphs = [paragraph.text for paragraph in page.paragraphs]
    assert paragraphs[0] == paragraphs[-1] == made.alert != ""
    heads = [row for row in grid.rows if row._tr.xpath(".//w:tblHeader")]
    assert len(heads) == 1
    for attack in (hostile(), summarize(hostile_view("none"))):
        attack.to_word(tmp_path / "attack.docx")
        assert len(docx.Document(str(tmp_path / "attack.docx")).tables) >= 1


def test_word_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privcausal.report.summary.find_spec", lambda name: None)
    with pytest.raises(CapabilityError, match=r"privcausal\[word\]"):
        table().to_word(tmp_path / "table.docx")
    assert not (tmp_path / "table.docx").exists()
