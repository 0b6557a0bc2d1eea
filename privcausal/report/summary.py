"""The table values of `summary()` and `compare()`, and their output formats.

Text, LaTeX, HTML, Markdown, comma-separated cells, and Word (by python-docx).
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib.util import find_spec
from itertools import zip_longest
from textwrap import shorten, wrap
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from privcausal.errors import CapabilityError, Strict
from privcausal.prices import at_most
from privcausal.report import tables
from privcausal.report.plots import forest_plot
from privcausal.report.tables import FitView
from privcausal.typing import Kind

if TYPE_CHECKING:
    import pandas as pd

# The table value as plain text: 78 columns of ASCII for all names and numbers.

TEXT_WIDTH = 78
HALF = 38
"""Columns of each side of the head; two blanks between."""

LEAST_TEXT = 8
"""A text column is not cut below this width while another column is wider."""

HEAD_WIDTH = 14
"""Maximum characters of the head of a column of narrower numbers."""

LONGEST_PAIR = 3
"""Maximum lines of a long value of the head (a formula)."""


def _text_pairs(block: tables.Pairs) -> Iterator[str]:
    """Pairs side by side; a value too long for its half has lines below, as a formula is whole."""
    halves, long = list[list[str]](), list[tuple[str, str]]()
    for side in (block.left, block.right):
        halves.append([])
        for label, value in ((tables.ascii_only(a), tables.ascii_only(b)) for a, b in side):
            if len(label) + len(value) + 2 <= HALF:
                halves[-1].append(f"{label}:{value:>{HALF - len(label) - 1}}")
            else:
                long.append((label, value))
    for first, second in zip_longest(*halves, fillvalue=""):
        yield f"{first:<{HALF}}  {second}"
    for label, value in long:
        head = f"{tables.cut(label, HALF)}: "
        width = TEXT_WIDTH - len(head)
        lines = _wrap(value, width) or [""]
        if len(lines) > LONGEST_PAIR:
            # Cut anywhere: words of a shortened value may be split.
            short = tables.cut(" ".join(value.split()), width * LONGEST_PAIR)
            lines = [short[i : i + width] for i in range(0, width * LONGEST_PAIR, width)]
        yield head + lines[0]
        yield from (" " * len(head) + line for line in lines[1:])


def _grid(block: tables.TableGrid) -> Iterator[str]:
    cells = [tuple(map(_text_cell, row, block.columns)) for row in block.rows]
    if not block.headed:
        yield from _wrap(tables.ascii_only(block.caption), TEXT_WIDTH)
        for lines in _laid_out(cells, block.columns, TEXT_WIDTH - 2):
            yield from ("  " + line for line in lines)
        return
    # A head above narrow numbers is shortened, as names are.
    heads = []
    for i, column in enumerate(block.columns):
        width = max((len(row[i]) for row in cells), default=0)
        short = tables.cut(tables.ascii_only(column.head), max(HEAD_WIDTH, width))
        heads.append(_text_cell(column.head if column.align == "left" else short, column))
    cells.insert(0, tuple(heads))
    # Panels of columns that fit next to each other; each panel repeats the row names.
    lengths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    names = [i for i, column in enumerate(block.columns) if column.align == "left"]
    room = TEXT_WIDTH - sum(min(lengths[i], LEAST_TEXT) + 2 for i in names)
    panels: list[list[int]] = [[]]
    for i in (i for i in range(len(lengths)) if i not in names):
        if panels[-1] and sum(lengths[j] + 1 for j in [*panels[-1], i]) > room:
            panels.append([])
        panels[-1].append(i)
    # A rule separates a head without a name from its rows.
    breaks = block.breaks if cells[0][0] else (0, *block.breaks)
    for panel in panels:
        chosen = sorted([*names, *panel])
        columns = tuple(block.columns[i] for i in chosen)
        part = [tuple(row[i] for i in chosen) for row in cells]
        ruled = panel is not panels[0]
        for index, lines in enumerate(_laid_out(part, columns, TEXT_WIDTH), -1):
            ruled = ruled or index in breaks
            # If there are several panels, rows without numbers are omitted.
            if len(panels) == 1 or any(cells[index + 1][i].strip() for i in panel):
                if ruled:
                    yield "-" * TEXT_WIDTH
                ruled = False
                yield from lines


def _text_cell(text: str, column: tables.TableColumn) -> str:
    """Cell text; in a centered column, a number without a bracket gets a trailing blank."""
    plain = tables.ascii_only(text)
    return plain if column.align != "center" or plain.endswith((")", "]")) else f"{plain} "


def _laid_out(
    cells: list[tuple[str, ...]], columns: tuple[tables.TableColumn, ...], room: int
) -> Iterator[list[str]]:
    """The lines of each row in `room`: a long name continues below, if possible between words."""
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    texts = [i for i, column in enumerate(columns) if column.align == "left"]
    gaps = [0] + [2] * (len(columns) - 1)
    if sum(widths) + sum(gaps) > room:  # Reduce the gaps between numbers before shortening a name.
        gaps = [0] + [2 if column.align == "left" else 1 for column in columns[1:]]
    # Shrink the widest text column, one character at a time, until all fit or none can shrink.
    for floor in (LEAST_TEXT, 1):
        while sum(widths) > room - sum(gaps):
            widest = max(texts, key=lambda i: widths[i], default=-1)
            if widest < 0 or widths[widest] <= floor:
                break
            widths[widest] -= 1
    spare = max(0, room - sum(widths) - sum(gaps))
    airy = [i for i, column in enumerate(columns) if column.align != "left"]
    if airy:
        extra = min(3, spare // len(airy))
        gaps = [gap + (extra if i in airy else 0) for i, gap in enumerate(gaps)]
        widths[0] += spare - extra * len(airy)
    for row in cells:
        columned = [
            (_wrap(cell, max(width, 1)) if i in texts else [cell]) or [""]
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines = []
        for parts in zip_longest(*columned, fillvalue=""):
            placed = [
                " " * gap + (text.ljust(width) if i in texts else text.rjust(width))
                for i, (text, width, gap) in enumerate(zip(parts, widths, gaps, strict=True))
            ]
            lines.append("".join(placed))
        yield lines


def _wrap(text: str, width: int) -> list[str]:
    # a long product of columns is broken between its columns
    words = (w if len(w) <= width else w.replace(":", ": ") for w in text.split(" "))
    return wrap(" ".join(words), width, break_on_hyphens=False)


# The table value as LaTeX, for a document that loads booktabs.

PREAMBLE = r"% Requires \usepackage{booktabs}. Names outside the Latin script: XeLaTeX or LuaLaTeX."

ESCAPES = {
    "\\": r"\textbackslash{}", "~": r"$\sim$", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\textasciigrave{}",
    "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    # After a row's \\, LaTeX would read these two characters as an argument.
    "[": "{[}", "*": "{*}",
    # Symbols that a fit itself may print; they need no package.
    "≤": r"$\le$", "≥": r"$\ge$", "±": r"$\pm$", "×": r"$\times$", "−": "$-$",
    "ε": r"$\varepsilon$", "δ": r"$\delta$", "ρ": r"$\rho$", "τ": r"$\tau$", "β": r"$\beta$",
}  # fmt: skip

MINUS = re.compile(r"(?<![\w.])-(?=\d|inf\b)")
"""A sign before a number, also in brackets; not a dash in a name or in an exponent."""

POWER = re.compile(r"(?<![\w.])(\d(?:\.\d+)?)e([+-]\d+)(?![\w.])")
"""A number in scientific notation, as ``number`` writes it; its sign precedes the match."""

LONG = 30
"""A longer value of the head gets a line of its own, which may wrap."""

TEX_NAME = 48
"""Characters of a name in a table, where it cannot wrap; `Summary.tables` has the full name."""

TABLE_ROWS = 24
"""Rows of one tabular; a longer table continues in another tabular with the same head."""


def escape_latex(text: object) -> str:
    """Text escaped so that LaTeX prints it literally."""
    escaped = "".join(ESCAPES.get(c, c) for c in tables.clean(text))
    return escaped.replace("--", "-{}-{}")


def _facts(block: tables.Pairs) -> tuple[list[tuple[tables.Pair, ...]], list[tables.Pair]]:
    """The rows of short facts, and the long facts."""
    sides = [[p for p in side if len(p[1]) <= LONG] for side in (block.left, block.right)]
    long = [p for p in (*block.left, *block.right) if len(p[1]) > LONG]
    return list(zip_longest(*sides, fillvalue=("", ""))), long


def _tabular(block: tables.TableGrid) -> Iterator[str]:
    yield rf"\begin{{tabular}}{{@{{}}{''.join(column.align[0] for column in block.columns)}@{{}}}}"
    yield r"\toprule"
    if block.headed:
        heads = (escape_latex(tables.cut(column.head, TEX_NAME)) for column in block.columns)
        yield " & ".join(heads) + r" \\"
        yield r"\midrule"
    for index, row in enumerate(block.rows):
        if index and index in block.breaks:
            yield r"\midrule"
        cells = []
        for text, column in zip(row, block.columns, strict=True):
            if column.align == "left":  # a shortened name
                cells.append(escape_latex(tables.cut(text, TEX_NAME)))
            else:  # a number with a minus sign instead of a hyphen, and its power of ten
                cells.append(POWER.sub(_power, MINUS.sub("$-$", escape_latex(text))))
        yield " & ".join(cells) + r" \\"
    yield from (r"\bottomrule", r"\end{tabular}\par\smallskip")


def _power(match: re.Match[str]) -> str:
    factor, exponent = match[1], int(match[2])
    times = "" if factor == "1" else rf"{factor} \times "
    return f"${times}10^{{{exponent}}}$"


# The table value as HTML and as Markdown, with all text escaped; no script, no style sheet.

SIDES = {side: f' style="text-align:{side}"' for side in ("left", "right", "center")}
# The contrast on white is 9.3 : 1, above the AA requirement. The border needs no color.
ALERT_HTML = (
    '<p role="note" class="alert" style="border:3px solid #8a1c00;color:#8a1c00;background:#fff;'
    'padding:.5em 1em;font-weight:bold">{}</p>'
)
"""The alert line, which every reader must see."""


def escape_html(text: object) -> str:
    """Text escaped so that HTML shows it literally, in an element or in a quoted attribute."""
    # Escape braces too: the result may pass through a template of the user's site.
    return escape(tables.clean(text)).replace("{", "&#123;").replace("}", "&#125;")


TABLE_STYLE = """<style>
.privcausal-summary table { border-collapse: collapse; border-top: 2px solid #333; \
border-bottom: 2px solid #333; margin: 0.6em 0; font-variant-numeric: tabular-nums; }
.privcausal-summary caption { text-align: left; font-size: 0.85em; color: #555; padding: 0.2em 0; }
.privcausal-summary thead th { border-bottom: 1px solid #333; font-weight: 600; }
.privcausal-summary th, .privcausal-summary td { padding: 0.25em 0.7em; border-left: 0; \
border-right: 0; background: none; }
.privcausal-summary tbody th { font-weight: normal; }
.privcausal-summary .facts th { font-weight: normal; white-space: nowrap; }
.privcausal-summary tbody + tbody { border-top: 1px solid #333; }
</style>"""
"""Rules above, below and under the head, without vertical rules, as in print."""


def grid_html(grid: tables.TableGrid) -> str:
    """One `table`, with a caption and with scopes on its heads."""
    heads = "".join(
        f'<th scope="col"{SIDES[column.align]}>{escape_html(column.words or column.head)}</th>'
        for column in grid.columns
    )
    sides = [column.align for column in grid.columns[1:]]
    rows = []
    for place, (name, *values) in enumerate(grid.rows):
        if place in grid.breaks:
            rows += ["</tbody>", "<tbody>"]
        cells = "".join(
            f"<td{SIDES[side]}>{escape_html(text)}</td>"
            for text, side in zip(values, sides, strict=True)
        )
        rows.append(f"<tr>{_named(name)}{cells}</tr>")
    caption = f"<caption>{escape_html(grid.caption)}</caption>"
    head = f"<thead><tr>{heads}</tr></thead>"
    return "\n".join(["<table>", caption, head, "<tbody>", *rows, "</tbody>", "</table>"])


def _named(name: str) -> str:
    if not name:  # continues the row above
        return "<td></td>"
    return f'<th scope="row"{SIDES["left"]}>{escape_html(name)}</th>'


# -- Markdown --------------------------------------------------------------------------------------

SPECIAL = re.compile(r"([\\`*_{}|~^$]|\](?=[(\[:]))")
"""A bracket alone does not make a link; escaped, some readers would start a formula."""

ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
DASH, NUMBERED = re.compile(r"^\s*([-+=#])"), re.compile(r"^\s*(\d+)(?=[.)])")

RULES = {"left": ":---", "right": "---:", "center": ":---:"}


def escape_markdown(text: object) -> str:
    """Text escaped so that Markdown shows it literally, in a cell or in a paragraph."""
    return SPECIAL.sub(r"\\\1", tables.clean(text).translate(ENTITIES))


FORMULA = re.compile(r"[=@]|[+-](?![\d.]|inf)")


HEAVY, LIGHT = 8, 4
"""Rules above and below a table, and within it, in eighths of a point."""

PAGE_WIDTH, EM, CELL_WIDTH = 432, 5.6, 44
"""Width of the text and of a letter, in points; maximum letters in a line of a cell."""

SMALL_POINTS = 9
"""Size of tables and notes, in points."""


def _table(
    document: Any,
    columns: tuple[tables.TableColumn, ...],
    rows: Sequence[tuple[str, ...]],
    ruled: Iterable[int],
) -> None:
    """At most three heavy rules, as in booktabs; `ruled` are rows with a light rule below."""
    from docx.enum.text import WD_ALIGN_PARAGRAPH
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn
    from docx.shared import Pt

    table = document.add_table(len(rows), len(columns))
    cells = table._cells  # `table.cell` would rebuild all cells on each call.
    for index, row in enumerate(rows):
        for place, (text, column) in enumerate(zip(row, columns, strict=True)):
            paragraph = cells[index * len(columns) + place].paragraphs[0]
            paragraph.add_run(tables.clean(text)).font.size = Pt(SMALL_POINTS)
            paragraph.alignment = getattr(WD_ALIGN_PARAGRAPH, column.align.upper())
            paragraph.paragraph_format.space_after = Pt(0)
    lines = {"top": {0: HEAVY}, "bottom": dict.fromkeys(ruled, LIGHT) | {len(rows) - 1: HEAVY}}
    for side, sizes in lines.items():
        for index, size in sizes.items():
            for cell in cells[index * len(columns) : (index + 1) * len(columns)]:
                properties = cell._tc.get_or_add_tcPr()
                borders = properties.find(qn("w:tcBorders"))
                if borders is None:
                    borders = OxmlElement("w:tcBorders")
                    properties.append(borders)
                line = OxmlElement(f"w:{side}")
                values = {"val": "single", "sz": str(size), "space": "0", "color": "000000"}
                for name, value in values.items():
                    line.set(qn(f"w:{name}"), value)
                borders.append(line)
    # Set columns to the width of their longest text, up to `CELL_WIDTH`; short words never break.
    # Heads, in the first row, may use as many lines as they have words.
    table.autofit = False
    longest = [
        min(max([0, *map(len, texts), *map(len, head.split())]), CELL_WIDTH) + 2
        for head, *texts in zip(*rows, strict=True)
    ]
    for place, length in enumerate(longest):
        width = Pt(PAGE_WIDTH * length / max(sum(longest), PAGE_WIDTH / EM))
        # LibreOffice reads these widths; Word reads the widths of the cells.
        table.columns[place].width = width
        for cell in table.columns[place].cells:
            cell.width = width
    # Mark the first row as the head, for screen readers and for repetition on new pages.
    table.rows[0]._tr.get_or_add_trPr().append(OxmlElement("w:tblHeader"))


def _paragraph(document: Any, text: str, *, bold: bool = False, size: int = 0) -> None:
    from docx.shared import Pt

    run = document.add_paragraph().add_run(tables.clean(text))
    run.bold = bold
    if size:
        run.font.size = Pt(size)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Summary(Strict):
    """A summary that prints itself; its numbers are the same in every format."""

    title: str
    blocks: tuple[tables.TableBlock, ...]
    alert: str  # Printed first and last in every format; empty for a proven guarantee

    floats: ClassVar[bool] = False
    """Whether LaTeX uses a float even without a caption and a label."""

    def as_text(self) -> str:
        """The summary as ASCII text of at most 78 columns; long names are cut in the middle."""
        wrapped = (_wrap(tables.ascii_only(text), TEXT_WIDTH) for text in (self.alert, self.title))
        # Centered; a trailing blank is removed below.
        alert, title = ([f"{line:^{TEXT_WIDTH}}" for line in text] for text in wrapped)
        lines = [*alert, *title]
        for block in self.blocks:
            match block:
                case tables.Rule():
                    lines.append(block * TEXT_WIDTH)
                case tables.Pairs():
                    lines.extend(_text_pairs(block))
                case tables.TableGrid():
                    lines.extend(_grid(block))
                case tables.Prose():
                    indent = "  " if block.heading else ""
                    if block.heading:
                        lines.extend(_wrap(tables.ascii_only(block.heading), TEXT_WIDTH))
                    for paragraph in block.paragraphs:
                        text, width = tables.ascii_only(paragraph), TEXT_WIDTH - 2 * len(indent)
                        for n, line in enumerate(_wrap(text, width)):
                            lines.append(indent + (indent if n else "") + line)
        return "\n".join(line[:TEXT_WIDTH].rstrip() for line in [*lines, *alert])

    __str__ = __repr__ = as_text

    def as_latex(self, caption: str | None = None, label: str = "") -> str:
        """The tables as LaTeX for a document that loads booktabs: a centered group, or a float.

        Parameters
        ----------
        caption : str, optional
            Plain text. With a caption or a label, the tables are in one floating `table`. A
            comparison always is; its default caption is the title.
        label : str
            For ``\\ref``, inserted literally.
        """
        floating = caption is not None or label or self.floats
        caption = self.title if floating and caption is None else caption
        alert = [rf"\textbf{{{escape_latex(self.alert)}}}\par\medskip"] if self.alert else []
        if caption is None:
            head = [r"\begin{center}\small", *alert]
            head.append(rf"\textbf{{{escape_latex(self.title)}}}\par\medskip")
        else:
            head = [r"\begin{table}[htbp]", r"\centering\small"]
            head.append(rf"\caption{{{escape_latex(caption)}}}")
            head += [*([rf"\label{{{label}}}"] if label else []), *alert]
        single = sum(isinstance(block, tables.TableGrid) for block in self.blocks) == 1
        body = list[str]()
        for block in self.blocks:
            match block:
                case tables.Pairs():
                    body += [r"\begin{tabular}{@{}lr@{\quad}lr@{}}", r"\toprule"]
                    short, long = _facts(block)
                    for pairs in short:
                        cells = list[str]()
                        for name, value in pairs:
                            cut = escape_latex(tables.cut(name, TEX_NAME))
                            cells += [f"{cut}:" if name else "", escape_latex(value)]
                        body.append(" & ".join(cells) + r" \\")
                    for name, value in long:
                        # Group the paragraph, because \raggedright would redefine the row's \\.
                        text = rf"{{\raggedright {escape_latex(value)}\par}}"
                        cut = escape_latex(tables.cut(name, TEX_NAME))
                        body.append(
                            rf"{cut}: & \multicolumn{{3}}{{p{{0.7\linewidth}}}}{{{text}}} \\"
                        )
                    body += [r"\bottomrule", r"\end{tabular}\par\smallskip"]
                case tables.TableGrid() if caption is not None and single:
                    body += _tabular(block)  # It has the float's caption.
                case tables.TableGrid():
                    body.append(rf"\smallskip\emph{{{escape_latex(block.caption)}}}\par")
                    # A page cannot break within a tabular.
                    for start in range(0, max(len(block.rows), 1), TABLE_ROWS):
                        end = start + TABLE_ROWS
                        breaks = tuple(b - start for b in block.breaks if start < b < end)
                        body += _tabular(replace(block, rows=block.rows[start:end], breaks=breaks))
                case tables.Prose() if not block.console:
                    body.append(r"\begin{minipage}{\linewidth}\footnotesize\raggedright")
                    if block.heading:
                        body.append(rf"\emph{{{escape_latex(block.heading)}}}\par")
                    escaped = (POWER.sub(_power, escape_latex(t)) for t in block.paragraphs)
                    body += [rf"{paragraph}\par" for paragraph in escaped]
                    body.append(r"\end{minipage}\par\smallskip")
        tail = r"\end{center}" if caption is None else r"\end{table}"
        return "\n".join([PREAMBLE, *head, *body, *alert, tail]) + "\n"

    def as_html(self) -> str:
        """A `div` of tables, with every name escaped."""
        alert = [ALERT_HTML.format(escape_html(self.alert))] if self.alert else []
        title = f"<p><strong>{escape_html(self.title)}</strong></p>"
        parts = list[str]()
        for block in self.blocks:
            match block:
                case tables.Pairs():
                    parts.append('<table class="facts">')
                    parts.append(f"<caption>{escape_html(block.caption)}</caption>")
                    short, long = _facts(block)
                    for pairs in short:
                        cells = (
                            f"{_named(label)}<td{SIDES['right']}>{escape_html(v)}</td>"
                            for label, v in pairs
                        )
                        parts.append(f"<tr>{''.join(cells)}</tr>")
                    for label, value in long:
                        cell = f'<td colspan="3">{escape_html(value)}</td>'
                        parts.append(f"<tr>{_named(label)}{cell}</tr>")
                    parts.append("</table>")
                case tables.TableGrid():
                    parts.append(grid_html(block))
                case tables.Prose() if not block.console:
                    if block.heading:
                        parts.append(f"<p><strong>{escape_html(block.heading)}</strong></p>")
                    parts += [f"<p>{escape_html(paragraph)}</p>" for paragraph in block.paragraphs]
        lines = [TABLE_STYLE, *alert, title, *parts, *alert]
        return "\n".join(['<div class="privcausal-summary">', *lines, "</div>"]) + "\n"

    _repr_html_ = as_html

    def as_markdown(self) -> str:
        """Pipe tables for GitHub, Quarto and pandoc."""
        alert = [f"**{escape_markdown(self.alert)}**"] if self.alert else []
        parts = list[str]()
        for block in self.blocks:
            columns, rows = list[tables.TableColumn](), list[tuple[str, ...]]()
            match block:
                case tables.Pairs():
                    columns = [tables.TableColumn("", "left"), tables.TableColumn("", "left")]
                    rows = [*block.left, *block.right]
                case tables.TableGrid():
                    parts.append(f"*{escape_markdown(block.caption)}*")
                    columns, rows = list(block.columns), list(block.rows)
                case tables.Prose() if not block.console:
                    if block.heading:
                        parts.append(f"**{escape_markdown(block.heading)}**")
                    # Escape a leading dash or number, which would begin a list.
                    escaped = map(escape_markdown, block.paragraphs)
                    parts += [DASH.sub(r"\\\1", NUMBERED.sub(r"\1&#8203;", t)) for t in escaped]
            if columns:
                heads = tuple(column.words or column.head for column in columns)
                first, *others = ([escape_markdown(cell) for cell in row] for row in (heads, *rows))
                lines = [first, [RULES[column.align] for column in columns], *others]
                parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
        return "\n\n".join([*alert, f"**{escape_markdown(self.title)}**", *parts, *alert]) + "\n"

    def as_csv(self) -> str:
        """Comma-separated cells, as printed; `tables` has unrounded numbers."""
        out = io.StringIO()
        lines = csv.writer(out, lineterminator="\n")
        alert = [tables.Prose((self.alert,))] if self.alert else []
        for block in (*alert, tables.Prose((self.title,)), *self.blocks, *alert):
            rows: list[Sequence[str]] = []
            match block:
                case tables.Pairs():
                    rows = [*block.left, *block.right]
                case tables.TableGrid():
                    rows = [[column.words or column.head for column in block.columns], *block.rows]
                case tables.Prose() if not block.console:
                    rows = [[text] for text in (block.heading, *block.paragraphs) if text]
            # A cell that a spreadsheet would take for a formula starts with a quote.
            for row in rows:
                cells = map(tables.clean, row)
                lines.writerow([f"'{cell}" if FORMULA.match(cell) else cell for cell in cells])
            if rows:
                lines.writerow([])
        return out.getvalue().rstrip("\n") + "\n"

    def to_word(self, path: str | os.PathLike[str]) -> None:
        """Write a Word document to `path`; needs the extra ``privcausal[word]``.

        Raises
        ------
        CapabilityError
            python-docx is not installed.
        """
        if find_spec("docx") is None:
            raise CapabilityError("Word tables require python-docx: pip install 'privcausal[word]'")
        from docx import Document

        document = Document()
        if self.alert:
            _paragraph(document, self.alert, bold=True)
        document.add_heading(tables.clean(self.title), level=1)
        for block in self.blocks:
            match block:
                case tables.Prose() if not block.console:
                    if block.heading:
                        _paragraph(document, block.heading, bold=True)
                    for text in block.paragraphs:
                        _paragraph(document, text, size=SMALL_POINTS)
                case tables.Pairs():
                    columns = (tables.TableColumn("", "left"), tables.TableColumn("", "right"))
                    _table(document, columns, [*block.left, *block.right], ())
                case tables.TableGrid():
                    document.add_paragraph(tables.clean(block.caption), style="Caption")
                    heads = tuple(column.words or column.head for column in block.columns)
                    _table(document, block.columns, [heads, *block.rows], [0, *block.breaks])
                    document.add_paragraph()  # A paragraph between two tables keeps them separate.
        if self.alert:
            _paragraph(document, self.alert, bold=True)
        document.save(os.fspath(path))

    @property
    def tables(self) -> list[pd.DataFrame]:
        """The head and every table as frames, with full names and unrounded numbers."""
        import pandas as pd

        grids = [block.frame for block in self.blocks if isinstance(block, tables.TableGrid)]
        pairs = [(*b.left, *b.right) for b in self.blocks if isinstance(b, tables.Pairs)]
        heads = [pd.DataFrame({"value": dict(rows)}, index=[k for k, _ in rows]) for rows in pairs]
        return [*heads, *(frame.copy() for frame in grids if frame is not None)]


class Printed(Strict):
    """An object that prints its summary, and shows it in notebooks."""

    def summary(self) -> Summary:
        """The table: `str()`, `.as_text()`, `.as_latex()`, `.as_html()`, `.tables`."""
        raise NotImplementedError

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary().as_html()


def summarize(view: FitView, *, full: bool = False) -> Summary:
    """The summary of a fit: a card, or with `full` everything about it.

    The card has four lines of facts, the estimates, alerts, budget, and guarantee. The full summary
    adds sources of uncertainty, every release, the meaning of the guarantee, and complete notes.
    """
    # The average, then groups, then slopes, which are the least informative alone. If the fit has
    # effect curves, only the full summary shows slopes. Slopes are not shrunken, but the curves
    # are. Readers would therefore take the slopes for a second, different answer.
    effects, slopes = view.effects, None
    if effects is not None and (view.gates is not None or view.shapes):
        first, rest = effects.iloc[: view.averages], effects.iloc[view.averages :]
        effects, slopes = first, rest if full or not view.shapes else None
    grids = tables.fit_grids(view, effects, slopes).values()
    estimates: list[list[tables.TableBlock]] = [[grid] for grid in grids]
    below = (view.adjustment, *(() if full else (view.region,)))
    if any(below) and estimates:
        estimates[0].append(tables.Prose(tuple(filter(None, below))))
    # The only curve of a fit by cells has the effects of the cells.
    repeated = view.cells is not None and len(view.shapes) == 1
    if view.shapes and (full or not repeated):
        lead = (view.variation,) if view.variation else ()
        curves = view.shapes if full or view.varies else ()
        lines = (f"{tables.clean(shape.name)}: {tables.shape_line(shape)}" for shape in curves)
        estimates.append([tables.Prose((*lead, *lines), "Effect by modifier")])
    promise = " ".join(view.guarantee if full else view.promise)
    head = "" if view.kind == "none" else "Privacy: "
    private: tables.TableBlock = tables.Prose((f"{head}{promise}",))
    left, right = view.left, view.right
    ends: list[list[list[tables.TableBlock]]]
    if full:
        numbered = " ".join(f"[{i}] {note}" for i, note in enumerate(view.notes, 1))
        notes = tables.Prose((f"Notes: {numbered}",) if numbered else ())
        ends = [[*_prices(view), [private]], [[notes]]]
    else:
        complete = tuple(fact for fact in left if fact[0] == tables.COMPLETE)
        left = tuple(fact for fact in left if fact[0] not in (*ON_FULL, tables.COMPLETE))
        right = (*right[:2], *(fact for fact in right if fact[0] in ON_CARD), *complete)
        firsts = (tables.first_sentence(note) for note in view.notes[: view.serious])
        alerts = (shorten(f"Alert: {text}", ALERT_WIDTH, placeholder=" ...") for text in firsts)
        # One line: how the budget was divided, and how much remains.
        stages = tables.stage_shares(view.budget)
        shares = (f"{SHOWN.get(k, k)} {tables.share_percent(s)}" for k, s in stages.items())
        costs = [f"Budget: {', '.join(shares)}."] if len(stages) > 1 else []
        costs += [view.ledger.split(REST)[0]] if view.ledger else []
        cost = tables.Prose((*alerts, *filter(None, [" ".join(costs)])))
        ends = [[[cost, private, tables.Prose((MORE,), console=True)]]]
    # Heavy rules between sections, and light rules within
    blocks = list[tables.TableBlock]()
    facts: list[tables.TableBlock] = [tables.Pairs("The analysis", left, right)]
    for section in ([facts], estimates, *ends):
        for i, part in enumerate(section):
            blocks += [tables.Rule("-" if i else "="), *part]
    return Summary(view.title, tuple(blocks), tables.ALERTS[view.kind])


ON_FULL = ("Periods", "Instrument", "Treated (noisy)", "Outcome bounds")
"""Facts that only the full summary shows."""

ON_CARD = ("Horizon", "Weights", "First-stage F", "Instruments agree")
"""Facts about the estimator that the card shows, too."""

ALERT_WIDTH = 150
"""Maximum characters of an alert on the card: two lines."""


def _prices(view: FitView) -> list[list[tables.TableBlock]]:
    """Tables of the sources of the uncertainty, and of the cost."""
    terms = [] if view.effects is None else [str(term) for term in view.effects.index]
    of = f" of {terms[view.lead]}" if len(terms) > 1 else ""
    grouped = view.gates is not None and len(view.gates)
    remarks = [line for line in (view.bias, view.tails, SAMPLING if grouped else "") if line]
    mechanisms = {str(name) for name in view.budget["mechanism"] if name}
    noise = mechanisms.pop() if len(mechanisms) == 1 else None
    costs = [f"Cost of this fit: {view.total}." + (f"  {view.ledger}" if view.ledger else "")]
    costs += [f"Noise: {noise}."] if noise else []
    costs += [RHO.format(at_most(view.rho))] if view.rho else []
    costs += [view.parallel] if view.parallel else []
    budget = tables.budget_grid(view.budget, mechanisms=noise is None)
    parts: list[list[tables.TableBlock]] = [[budget, tables.Prose(tuple(costs))]]
    if view.uncertainty:
        grid = tables.source_grid(view.uncertainty, of)
        parts.insert(0, [grid, *([tables.Prose(tuple(remarks))] if remarks else [])])
    return parts


SHOWN = {"nuisance": "models for adjustment"}
"""Display names of stages."""

SAMPLING = "Sampling: the standard error of each group from sampling alone."
REST = " More remains than"

RHO = "rho is the cost in zero-concentrated DP, rounded up. All releases cost {}."


MORE = "summary(full=True) has the meaning, the releases, and the assumptions."

# -- several fits in one table ---------------------------------------------------------------------

Statistic: TypeAlias = Literal["std_error", "conf_int", "p_value"]

TIDY = (
    "term", "estimate", "std_error", "statistic", "p_value", "conf_low", "conf_high", "max_bias",
)  # fmt: skip

BELOW: dict[str, str] = {
    "std_error": "Standard errors in parentheses{bias}",
    "conf_int": "{level} confidence intervals in brackets",
    "p_value": "p-values in parentheses",
}

FACT = 19
"""Maximum characters of a fact about a fit (a column's name); `Comparison.stats` has it all."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison(Summary):
    """One table of several fits, which prints itself.

    Attributes
    ----------
    frame : DataFrame
        One row per fit and term, unrounded: fit term estimate std_error statistic p_value conf_low
        conf_high max_bias.
    stats : DataFrame
        One row per fit: the facts below the estimates, as text.
    alpha : float
        Limits are at level 1 - alpha.
    """

    frame: pd.DataFrame
    stats: pd.DataFrame
    alpha: float = 0.05

    floats: ClassVar[bool] = True

    @property
    def tables(self) -> list[pd.DataFrame]:
        """`frame` and `stats`."""
        return [self.frame.copy(), self.stats.copy()]

    def plot(self, term: str | None = None, *, ax: Any = None) -> Any:
        """Forest plot of one term over all fits that have it; default: the first fit's first term.

        Raises
        ------
        CapabilityError
            No fit has the term.
        """
        wanted = str(self.frame["term"].iloc[0]) if term is None else term
        rows = self.frame[self.frame["term"] == wanted].set_index("fit")
        if rows.empty:
            choices = ", ".join(map(repr, dict.fromkeys(self.frame["term"])))
            raise CapabilityError(f"No fit has the term {wanted!r}. Choices: {choices}.")
        return forest_plot(rows, ax=ax, alpha=self.alpha, term=wanted)


def compared(
    frame: pd.DataFrame,
    facts: Mapping[str, Mapping[str, str]],
    kinds: Collection[Kind],
    title: str,
    statistic: Statistic,
    alpha: float,
    notes: Sequence[str],
) -> Comparison:
    """The comparison of fits: terms in order of appearance, facts as in the fit with the most.

    `frame` is as in `Comparison`; names of fits and terms are untrusted text. `facts` has facts
    about each fit as a whole, by label, ready to print. `kinds` are the guarantees of this
    package's fits.
    """
    import pandas as pd

    fullest = sorted(facts.values(), key=len, reverse=True)
    labels = list(dict.fromkeys(label for lines in fullest for label in lines))
    stats = pd.DataFrame(
        {label: [lines.get(label, "") for lines in facts.values()] for label in labels},
        index=pd.Index(list(facts), name="fit"),
    )
    # Limits and p values allow for the bias; standard errors do not.
    biased = statistic == "std_error" and bool((frame["max_bias"] > 0).any())
    heads = (tables.TableColumn(tables.clean(fit), "center") for fit in stats.index)
    # The estimate of a term, and the text of the two lines below it.
    cells = {}
    for row in frame.to_dict("records"):
        estimate, error, bias, low, high = tables.estimates(row)
        texts = {
            "std_error": f"({error})",
            "conf_int": f"[{low}, {high}]",
            "p_value": f"({tables.p_value_text(float(row['p_value']))})",
        }
        braces = f"{{{bias}}}" if row["max_bias"] > 0 else ""
        cells[row["fit"], str(row["term"])] = estimate, texts[statistic], braces
    rows = [
        (term * (line == 0), *(cells.get((fit, term), ("",) * 3)[line] for fit in stats.index))
        for term in dict.fromkeys(map(str, frame["term"]))
        for line in range(3 if biased else 2)
    ]
    lines: list[tuple[str, ...]] = []
    for label in stats:  # on as many lines as the longest value needs
        broken = [wrap(tables.clean(value), FACT) for value in stats[label]]
        lines += zip_longest([str(label)], *broken, fillvalue="")
    columns = (tables.TableColumn("", "left", "term"), *heads)
    breaks = (len(rows),) if lines else ()
    grid = tables.TableGrid("Estimates by fit", columns, (*rows, *lines), frame, breaks=breaks)
    bias = ", maximum bias from clipping in braces" if biased else ""
    below = BELOW[statistic].format(level=tables.confidence(alpha), bias=bias)
    legend = tables.Prose((f"Notes: {' '.join([f'{below}.', *notes])}",))
    blocks = (tables.Rule("="), grid, tables.Rule("="), legend)
    worst: Kind = "none" if "none" in kinds else "published" if "published" in kinds else "proven"
    return Comparison(title, blocks, tables.ALERTS[worst], frame, stats, alpha)
