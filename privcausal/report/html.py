"""The table value as HTML: captions, scopes, every word escaped, no script, no style sheet."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from html import escape as escape_html

from privcausal.report.table import Block, Column, Grid, Pairs, Prose, Rule, Table
from privcausal.report.words import clean

RIGHT = ' style="text-align:right"'
LEFT = ' style="text-align:left"'
CENTER = ' style="text-align:center"'
# darker than AA asks for on white (7.5 : 1), and marked by a border as well as by colour
ALERT = "border:3px solid #8a1c00;color:#8a1c00;background:#fff;padding:.5em 1em;font-weight:bold"


def escape(text: object) -> str:
    """Text that HTML shows as it is, in an element or in a quoted attribute."""
    # braces too: the result may pass through a template of the user's site
    return escape_html(clean(text)).replace("{", "&#123;").replace("}", "&#125;")


def render(table: Table) -> str:
    """A `div` that a notebook or a page can hold."""
    alert = [alert_html(table.alert)] if table.alert else []
    title = f"<p><strong>{escape(table.title)}</strong></p>"
    parts = [part for block in table.blocks for part in _parts(block)]
    lines = ['<div class="privcausal-summary">', *alert, title, *parts, *alert, "</div>"]
    return "\n".join(lines) + "\n"


def alert_html(alert: str) -> str:
    """The line that no reader must miss."""
    return f'<p role="note" class="alert" style="{ALERT}">{escape(alert)}</p>'


def grid_html(grid: Grid) -> str:
    """One `table`, with a caption, and scopes on its heads."""
    heads = "".join(
        f'<th scope="col"{_side(column)}>{escape(column.words or column.head)}</th>'
        for column in grid.columns
    )
    rows = [_row_html(row, grid.columns) for row in grid.rows]
    for place in grid.breaks:
        rows[place] = f"</tbody>\n<tbody>\n{rows[place]}"
    return "\n".join(
        [
            "<table>",
            f"<caption>{escape(grid.caption)}</caption>",
            f"<thead><tr>{heads}</tr></thead>",
            "<tbody>",
            *rows,
            "</tbody>",
            "</table>",
        ]
    )


def _row_html(row: tuple[str, ...], columns: tuple[Column, ...]) -> str:
    # a row without a name continues the one above
    name = f'<th scope="row"{LEFT}>{escape(row[0])}</th>' if row[0] else "<td></td>"
    cells = (
        f"<td{_side(column)}>{escape(cell)}</td>"
        for cell, column in zip(row[1:], columns[1:], strict=True)
    )
    return f"<tr>{name}{''.join(cells)}</tr>"


def _side(column: Column) -> str:
    return {"left": LEFT, "right": RIGHT, "center": CENTER}[column.align]


@singledispatch
def _parts(block: Block) -> Iterator[str]:
    raise NotImplementedError(type(block).__name__)


@_parts.register
def _(block: Rule) -> Iterator[str]:  # noqa: ARG001 - tables in HTML have their own rules
    yield from ()


@_parts.register
def _(block: Pairs) -> Iterator[str]:
    yield "<table>"
    yield f"<caption>{escape(block.caption)}</caption>"
    for index in range(max(len(block.left), len(block.right))):
        pairs = [side[index] for side in (block.left, block.right) if index < len(side)]
        cells = (
            f'<th scope="row"{LEFT}>{escape(label)}</th><td{RIGHT}>{escape(value)}</td>'
            for label, value in pairs
        )
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</table>"


@_parts.register
def _(block: Grid) -> Iterator[str]:
    yield grid_html(block)


@_parts.register
def _(block: Prose) -> Iterator[str]:
    if block.heading:
        yield f"<p><strong>{escape(block.heading)}</strong></p>"
    yield from (f"<p>{escape(paragraph)}</p>" for paragraph in block.paragraphs)
