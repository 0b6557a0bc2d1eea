"""The table value as plain text: 78 columns of ASCII, whatever the names and numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import zip_longest

from privcausal.report.tables import Block, Pairs, Prose, Rule, Table, TableColumn, TableGrid
from privcausal.report.words import ascii_only, cut

WIDTH = 78
HALF = 38
"""Columns of each side of the head; two blanks between."""

FLOOR = 8
"""A text column is not cut below this while another one is wider."""

HEAD = 14
"""Characters that the head of a column of narrower numbers may have."""

LONGEST_PAIR = 3
"""Lines that a long value of the head (a formula) may take."""


def render_text(table: Table) -> str:
    """Lines joined by newlines, none longer than `WIDTH`, no trailing blanks."""
    alert = list(_centred(table.alert)) if table.alert else []
    lines = [*alert, *_centred(table.title)]
    for block in table.blocks:
        lines.extend(_lines(block))
    return "\n".join(line[:WIDTH].rstrip() for line in [*lines, *alert])


def _lines(block: Block) -> Iterator[str]:
    match block:
        case Rule():
            yield block.character * WIDTH
        case Pairs():
            yield from _pairs(block)
        case TableGrid():
            yield from _grid(block)
        case Prose():
            indent = "  " if block.heading else ""
            if block.heading:
                yield from _wrap(ascii_only(block.heading), WIDTH)
            for paragraph in block.paragraphs:
                lines = _wrap(ascii_only(paragraph), WIDTH - 2 * len(indent))
                yield from (indent + (indent if n else "") + line for n, line in enumerate(lines))


def _pairs(block: Pairs) -> Iterator[str]:
    sides = [
        [(ascii_only(a), ascii_only(b)) for a, b in side] for side in (block.left, block.right)
    ]
    halves = ([_half(pair) for pair in side if _fits(pair)] for side in sides)
    for first, second in zip_longest(*halves, fillvalue=""):
        yield f"{first:<{HALF}}  {second}"
    for label, value in (pair for side in sides for pair in side if not _fits(pair)):
        yield from _long_pair(label, value)


def _fits(pair: tuple[str, str]) -> bool:
    return len(pair[0]) + len(pair[1]) + 2 <= HALF


def _half(pair: tuple[str, str]) -> str:
    label, value = pair
    return f"{label}:{value:>{HALF - len(label) - 1}}"


def _long_pair(label: str, value: str) -> Iterator[str]:
    """A value too long for its half gets lines of its own: a formula cut says little."""
    head = f"{cut(label, HALF)}: "
    lines = _wrap(value, WIDTH - len(head)) or [""]
    if len(lines) > LONGEST_PAIR:
        room = (WIDTH - len(head)) * LONGEST_PAIR
        # cut anywhere: words of a shortened value need not stay whole
        value = cut(" ".join(value.split()), room)
        lines = [value[i : i + WIDTH - len(head)] for i in range(0, room, WIDTH - len(head))]
    yield head + lines[0]
    yield from (" " * len(head) + line for line in lines[1:])


def _grid(block: TableGrid) -> Iterator[str]:
    cells = [tuple(map(_cell, row, block.columns)) for row in block.rows]
    if not block.headed:
        yield from _wrap(ascii_only(block.caption), WIDTH)
        widths, gaps = _layout(cells, block.columns, WIDTH - 2)
        yield from ("  " + line for row in cells for line in _row(row, block.columns, widths, gaps))
        return
    cells.insert(0, _heads(block.columns, cells))
    panels = _panels(cells, block.columns)
    for index, chosen in enumerate(panels):
        if index:
            yield "-" * WIDTH
        columns = tuple(block.columns[i] for i in chosen)
        part = [tuple(row[i] for i in chosen) for row in cells]
        yield from _panel(part, columns, block.breaks, whole=len(panels) == 1)


def _cell(text: str, column: TableColumn) -> str:
    """In the centre a number without a bracket leaves its place free."""
    plain = ascii_only(text)
    return plain if column.align != "center" or plain.endswith((")", "]")) else f"{plain} "


def _heads(columns: tuple[TableColumn, ...], cells: list[tuple[str, ...]]) -> tuple[str, ...]:
    """The heads; one above narrow numbers is cut, as names are."""
    widest = [max((len(row[i]) for row in cells), default=0) for i in range(len(columns))]
    return tuple(
        _cell(cut(ascii_only(c.head), max(HEAD, width)) if c.align != "left" else c.head, c)
        for c, width in zip(columns, widest, strict=True)
    )


def _panels(cells: list[tuple[str, ...]], columns: tuple[TableColumn, ...]) -> list[list[int]]:
    """Columns that fit beside each other; the names of the rows stand in every panel."""
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    names = [i for i, column in enumerate(columns) if column.align == "left"]
    room = WIDTH - sum(min(widths[i], FLOOR) + 2 for i in names)
    panels: list[list[int]] = [[]]
    for i in (i for i in range(len(columns)) if i not in names):
        if panels[-1] and sum(widths[j] + 1 for j in [*panels[-1], i]) > room:
            panels.append([])
        panels[-1].append(i)
    return [sorted([*names, *panel]) for panel in panels]


def _panel(
    cells: list[tuple[str, ...]],
    columns: tuple[TableColumn, ...],
    breaks: tuple[int, ...],
    whole: bool,
) -> Iterator[str]:
    """A head and its rows; those that say nothing in one of several panels are left out."""
    widths, gaps = _layout(cells, columns, WIDTH)
    if not cells[0][0]:  # a head without a name of its own is set off from its rows
        breaks = (0, *breaks)
    numbers = [i for i, column in enumerate(columns) if column.align != "left"]
    ruled = False
    for index, row in enumerate(cells, -1):
        ruled = ruled or index in breaks
        if not whole and not any(row[i].strip() for i in numbers):
            continue
        if ruled:
            yield "-" * WIDTH
        ruled = False
        yield from _row(row, columns, widths, gaps)


def _row(
    cells: tuple[str, ...], columns: tuple[TableColumn, ...], widths: list[int], gaps: list[int]
) -> Iterator[str]:
    """Lines of a row: a name that is too long goes on below, between its words where it can."""
    columned = [
        (_wrap(cell, max(width, 1)) if column.align == "left" else [cell]) or [""]
        for cell, column, width in zip(cells, columns, widths, strict=True)
    ]
    for parts in zip_longest(*columned, fillvalue=""):
        yield "".join(
            " " * gap + (text.ljust(width) if column.align == "left" else text.rjust(width))
            for text, column, width, gap in zip(parts, columns, widths, gaps, strict=True)
        )


def _layout(
    cells: list[tuple[str, ...]], columns: tuple[TableColumn, ...], room: int
) -> tuple[list[int], list[int]]:
    """Widths of the columns and the gaps before them that fill `room`."""
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    texts = [i for i, column in enumerate(columns) if column.align == "left"]
    gaps = [0] + [2] * (len(columns) - 1)
    if sum(widths) + sum(gaps) > room:  # numbers move together before a name is cut
        gaps = [0] + [2 if column.align == "left" else 1 for column in columns[1:]]
    for floor in (FLOOR, 1):
        _shrink(widths, texts, room - sum(gaps), floor)
    spare = max(0, room - sum(widths) - sum(gaps))
    airy = [i for i, column in enumerate(columns) if column.align != "left"]
    if airy:
        extra = min(3, spare // len(airy))
        gaps = [gap + (extra if i in airy else 0) for i, gap in enumerate(gaps)]
        widths[0] += spare - extra * len(airy)
    return widths, gaps


def _shrink(widths: list[int], texts: list[int], room: int, floor: int) -> None:
    """Take from the widest text column, one character at a time, until all fit or none can."""
    while sum(widths) > room:
        widest = max(texts, key=lambda i: widths[i], default=-1)
        if widest < 0 or widths[widest] <= floor:
            return
        widths[widest] -= 1


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)


def _centred(text: str) -> Iterator[str]:
    for line in _wrap(ascii_only(text), WIDTH):
        yield " " * ((WIDTH - len(line)) // 2) + line
