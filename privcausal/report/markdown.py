"""The table value as Markdown: pipe tables, every name escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import singledispatch

from privcausal.report.table import Block, Column, Grid, Pairs, Prose, Rule, Table
from privcausal.report.words import clean

SPECIAL = re.compile(r"([\\`*_{}|~^$]|\](?=[(\[:]))")
"""A bracket alone makes no link; escaped, it would begin a formula for some readers."""

ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
LISTED = re.compile(r"^(\s*)([-+=#]|\d+(?=[.)]))")

RULES = {"left": ":---", "right": "---:", "center": ":---:"}


def escape(text: object) -> str:
    """Text that Markdown shows as it is, in a cell or in a paragraph."""
    entities = "".join(ENTITIES.get(c, c) for c in clean(text))
    return SPECIAL.sub(r"\\\1", entities)


def render(table: Table) -> str:
    """Paragraphs and tables, a blank line between."""
    alert = [f"**{escape(table.alert)}**"] if table.alert else []
    parts = [part for block in table.blocks for part in _parts(block)]
    return "\n\n".join([*alert, f"**{escape(table.title)}**", *parts, *alert]) + "\n"


@singledispatch
def _parts(block: Block) -> Iterator[str]:
    raise NotImplementedError(type(block).__name__)


@_parts.register
def _(block: Rule) -> Iterator[str]:  # noqa: ARG001 - tables in Markdown have their own rules
    yield from ()


@_parts.register
def _(block: Pairs) -> Iterator[str]:
    columns = (Column("", "left"), Column("", "left"))
    yield _pipes(columns, [*block.left, *block.right])


@_parts.register
def _(block: Grid) -> Iterator[str]:
    yield f"*{escape(block.caption)}*"
    yield _pipes(block.columns, block.rows)


@_parts.register
def _(block: Prose) -> Iterator[str]:
    if block.heading:
        yield f"**{escape(block.heading)}**"
    # a dash or a number in front would begin a list
    yield from (LISTED.sub(_shown, escape(paragraph)) for paragraph in block.paragraphs)


def _shown(found: re.Match[str]) -> str:
    mark = found[2]
    return f"{mark}&#8203;" if mark.isdigit() else f"\\{mark}"


def _pipes(columns: tuple[Column, ...], rows: Iterable[tuple[str, ...]]) -> str:
    heads = tuple(column.words or column.head for column in columns)
    rule = _row(RULES[column.align] for column in columns)
    return "\n".join([_row(map(escape, heads)), rule, *(_row(map(escape, r)) for r in rows)])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
