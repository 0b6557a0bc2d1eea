"""The table value as a Word document, by python-docx (an optional package)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import Any

from privcausal.errors import CapabilityError
from privcausal.report.tables import Block, Pairs, Prose, Table, TableColumn, TableGrid
from privcausal.report.words import clean

HEAVY, LIGHT = 8, 4
"""Rules above and below a table, and within it, in eighths of a point."""

PAGE, EM, WIDEST = 432, 5.6, 44
"""Width of the text and of a letter, in points; letters in a line of a cell at most."""

SMALL = 9
"""Size of tables and notes, in points."""


def write_word(table: Table, path: str | os.PathLike[str]) -> None:
    """Write a document of `table` to `path`.

    Raises
    ------
    CapabilityError
        python-docx is not installed.
    """
    if find_spec("docx") is None:
        raise CapabilityError("Word tables need python-docx: pip install 'privcausal[word]'")
    from docx import Document

    document = Document()
    if table.alert:
        _say(document, table.alert, bold=True)
    document.add_heading(clean(table.title), level=1)
    for block in table.blocks:
        _add(block, document)
    if table.alert:
        _say(document, table.alert, bold=True)
    document.save(os.fspath(path))


def _add(block: Block, document: Any) -> None:
    match block:
        case Prose() if not block.console:
            if block.heading:
                _say(document, block.heading, bold=True)
            for paragraph in block.paragraphs:
                _say(document, paragraph, size=SMALL)
        case Pairs():
            columns = (TableColumn("", "left"), TableColumn("", "right"))
            _table(document, columns, [*block.left, *block.right], ())
        case TableGrid():
            document.add_paragraph(clean(block.caption), style="Caption")
            heads = tuple(column.words or column.head for column in block.columns)
            _table(document, block.columns, [heads, *block.rows], [0, *block.breaks])
            document.add_paragraph()  # two tables without anything between would become one


def _table(
    document: Any,
    columns: tuple[TableColumn, ...],
    rows: Sequence[tuple[str, ...]],
    ruled: Iterable[int],
) -> None:
    """Three heavy rules at most, as booktabs has them; `ruled` are rows with a light one below."""
    from docx.oxml import OxmlElement

    table = document.add_table(len(rows), len(columns))
    cells = table._cells  # `table.cell` would build all of them anew for each
    for index, row in enumerate(rows):
        for place, (text, column) in enumerate(zip(row, columns, strict=True)):
            _write(cells[index * len(columns) + place], text, column)
    lines = {"top": {0: HEAVY}, "bottom": dict.fromkeys(ruled, LIGHT) | {len(rows) - 1: HEAVY}}
    for side, at in lines.items():
        for index, size in at.items():
            for cell in cells[index * len(columns) : (index + 1) * len(columns)]:
                _border(cell, side, size)
    _fit_widths(table, rows)
    # the first row is read out, and printed again on a new page, as the head
    table.rows[0]._tr.get_or_add_trPr().append(OxmlElement("w:tblHeader"))


def _fit_widths(table: Any, rows: Sequence[tuple[str, ...]]) -> None:
    """Columns as wide as their text is long, up to `WIDEST`: short words are never broken.

    Heads, in the first row, go on as many lines as they have words.
    """
    from docx.shared import Pt

    table.autofit = False
    head, *others = rows
    columns = zip([max(map(len, name.split()), default=0) for name in head], *(
        map(len, row) for row in others), strict=True)  # fmt: skip
    longest = [min(max(column), WIDEST) + 2 for column in columns]
    for place, length in enumerate(longest):
        width = Pt(PAGE * length / max(sum(longest), PAGE / EM))
        table.columns[place].width = width  # LibreOffice reads these, Word those of the cells
        for row in table.rows:
            row.cells[place].width = width


def _write(cell: Any, text: str, column: TableColumn) -> None:
    from docx.enum.text import WD_ALIGN_PARAGRAPH
    from docx.shared import Pt

    paragraph = cell.paragraphs[0]
    paragraph.add_run(clean(text)).font.size = Pt(SMALL)
    paragraph.alignment = getattr(WD_ALIGN_PARAGRAPH, column.align.upper())
    paragraph.paragraph_format.space_after = Pt(0)


def _border(cell: Any, side: str, size: int) -> None:
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    properties = cell._tc.get_or_add_tcPr()
    borders = properties.find(qn("w:tcBorders"))
    if borders is None:
        borders = OxmlElement("w:tcBorders")
        properties.append(borders)
    line = OxmlElement(f"w:{side}")
    for name, value in {"val": "single", "sz": str(size), "space": "0", "color": "000000"}.items():
        line.set(qn(f"w:{name}"), value)
    borders.append(line)


def _say(document: Any, text: str, *, bold: bool = False, size: int = 0) -> None:
    from docx.shared import Pt

    run = document.add_paragraph().add_run(clean(text))
    run.bold = bold
    if size:
        run.font.size = Pt(size)
