"""The table value as HTML and as Markdown, every word escaped; no script, no style sheet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape

from privcausal.report.tables import Block, Pairs, Prose, Table, TableColumn, TableGrid
from privcausal.report.words import clean

SIDES = {side: f' style="text-align:{side}"' for side in ("left", "right", "center")}
# darker than AA asks for on white (7.5 : 1), and marked by a border as well as by colour
ALERT = "border:3px solid #8a1c00;color:#8a1c00;background:#fff;padding:.5em 1em;font-weight:bold"


def escape_html(text: object) -> str:
    """Text that HTML shows as it is, in an element or in a quoted attribute."""
    # braces too: the result may pass through a template of the user's site
    return escape(clean(text)).replace("{", "&#123;").replace("}", "&#125;")


def render_html(table: Table) -> str:
    """A `div` that a notebook or a page can hold."""
    alert = [alert_html(table.alert)] if table.alert else []
    title = f"<p><strong>{escape_html(table.title)}</strong></p>"
    parts = [part for block in table.blocks for part in _html_parts(block)]
    lines = ['<div class="privcausal-summary">', STYLE, *alert, title, *parts, *alert, "</div>"]
    return "\n".join(lines) + "\n"


STYLE = """<style>
.privcausal-summary table { border-collapse: collapse; border-top: 2px solid #333; \
border-bottom: 2px solid #333; margin: 0.6em 0; font-variant-numeric: tabular-nums; }
.privcausal-summary caption { text-align: left; font-size: 0.85em; color: #555; padding: 0.2em 0; }
.privcausal-summary thead th { border-bottom: 1px solid #333; font-weight: 600; }
.privcausal-summary th, .privcausal-summary td { padding: 0.25em 0.7em; border-left: 0; \
border-right: 0; background: none; }
.privcausal-summary tbody th { font-weight: normal; }
.privcausal-summary tbody + tbody { border-top: 1px solid #333; }
</style>"""
"""Rules above, below and under the head, none upright, as tables in print have."""


def alert_html(alert: str) -> str:
    """The line that no reader must miss."""
    return f'<p role="note" class="alert" style="{ALERT}">{escape_html(alert)}</p>'


def _html_parts(block: Block) -> Iterator[str]:
    match block:
        case Pairs():
            yield from ("<table>", f"<caption>{escape_html(block.caption)}</caption>")
            for index in range(max(len(block.left), len(block.right))):
                pairs = [side[index] for side in (block.left, block.right) if index < len(side)]
                cells = (_named(label) + _cell(value, "right") for label, value in pairs)
                yield f"<tr>{''.join(cells)}</tr>"
            yield "</table>"
        case TableGrid():
            yield grid_html(block)
        case Prose() if not block.console:
            if block.heading:
                yield f"<p><strong>{escape_html(block.heading)}</strong></p>"
            yield from (f"<p>{escape_html(paragraph)}</p>" for paragraph in block.paragraphs)


def grid_html(grid: TableGrid) -> str:
    """One `table`, with a caption, and scopes on its heads."""
    heads = "".join(
        f'<th scope="col"{SIDES[column.align]}>{escape_html(column.words or column.head)}</th>'
        for column in grid.columns
    )
    sides = [column.align for column in grid.columns[1:]]
    rows = []
    for place, (name, *values) in enumerate(grid.rows):
        if place in grid.breaks:
            rows += ["</tbody>", "<tbody>"]
        cells = "".join(map(_cell, values, sides))
        # a row without a name continues the one above
        rows.append(f"<tr>{_named(name) if name else '<td></td>'}{cells}</tr>")
    caption = f"<caption>{escape_html(grid.caption)}</caption>"
    head = f"<thead><tr>{heads}</tr></thead>"
    return "\n".join(["<table>", caption, head, "<tbody>", *rows, "</tbody>", "</table>"])


def _named(name: str) -> str:
    return f'<th scope="row"{SIDES["left"]}>{escape_html(name)}</th>'


def _cell(text: str, side: str) -> str:
    return f"<td{SIDES[side]}>{escape_html(text)}</td>"


# -- Markdown --------------------------------------------------------------------------------------

SPECIAL = re.compile(r"([\\`*_{}|~^$]|\](?=[(\[:]))")
"""A bracket alone makes no link; escaped, it would begin a formula for some readers."""

ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
LISTED = re.compile(r"^(\s*)([-+=#]|\d+(?=[.)]))")

RULES = {"left": ":---", "right": "---:", "center": ":---:"}


def escape_markdown(text: object) -> str:
    """Text that Markdown shows as it is, in a cell or in a paragraph."""
    return SPECIAL.sub(r"\\\1", clean(text).translate(ENTITIES))


def render_markdown(table: Table) -> str:
    """Paragraphs and pipe tables, a blank line between."""
    alert = [f"**{escape_markdown(table.alert)}**"] if table.alert else []
    parts = [part for block in table.blocks for part in _markdown_parts(block)]
    return "\n\n".join([*alert, f"**{escape_markdown(table.title)}**", *parts, *alert]) + "\n"


def _markdown_parts(block: Block) -> Iterator[str]:
    match block:
        case Pairs():
            columns = (TableColumn("", "left"), TableColumn("", "left"))
            yield _pipes(columns, [*block.left, *block.right])
        case TableGrid():
            yield f"*{escape_markdown(block.caption)}*"
            yield _pipes(block.columns, block.rows)
        case Prose() if not block.console:
            if block.heading:
                yield f"**{escape_markdown(block.heading)}**"
            # a dash or a number in front would begin a list
            yield from (LISTED.sub(_unlisted, escape_markdown(text)) for text in block.paragraphs)


def _unlisted(found: re.Match[str]) -> str:
    mark = found[2]
    return f"{mark}&#8203;" if mark.isdigit() else f"\\{mark}"


def _pipes(columns: tuple[TableColumn, ...], rows: Iterable[tuple[str, ...]]) -> str:
    heads = tuple(column.words or column.head for column in columns)
    first, *others = ([escape_markdown(cell) for cell in row] for row in (heads, *rows))
    lines = [first, [RULES[column.align] for column in columns], *others]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
