"""`summary()`: one table value, and its three formats."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from privcausal.report import html, latex, markdown, tables, text, word
from privcausal.report.table import Block, Grid, Pairs, Prose, Rule, Table
from privcausal.report.view import FitView
from privcausal.report.words import ALERTS, MARKS, clean, shape_line

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Summary:
    """A summary that prints itself; its numbers are the same in every format."""

    table: Table

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        return self.as_text()

    def _repr_html_(self) -> str:
        return self.as_html()

    def as_text(self) -> str:
        """At most 78 columns of ASCII; long names are cut in the middle."""
        return text.render(self.table)

    def as_latex(self, caption: str | None = None, label: str = "") -> str:
        """Tables for a document that loads booktabs: a centred group, or a float to be cited.

        Parameters
        ----------
        caption : str, optional
            Plain text. With it, or with a label, the tables stand in one floating `table`, whose
            caption is the title unless given.
        label : str
            For ``\\ref``, put there as it is.
        """
        if caption is None and not label:
            return latex.render(self.table)
        title = self.table.title if caption is None else caption
        return latex.render_float(self.table, title, label)

    def as_html(self) -> str:
        """A `div` of tables, every name escaped."""
        return html.render(self.table)

    def as_markdown(self) -> str:
        """Pipe tables, as GitHub, Quarto and pandoc read them."""
        return markdown.render(self.table)

    def to_word(self, path: str | os.PathLike[str]) -> None:
        """Write a Word document to `path`; needs the extra ``privcausal[word]``.

        Raises
        ------
        CapabilityError
            python-docx is not installed.
        """
        word.write(self.table, path)

    @property
    def tables(self) -> list[pd.DataFrame]:
        """The head and every table as frames, with whole names and unrounded numbers."""
        grids = [block.frame for block in self.table.blocks if isinstance(block, Grid)]
        heads = [_head_frame(block) for block in self.table.blocks if isinstance(block, Pairs)]
        return [*heads, *(frame.copy() for frame in grids if frame is not None)]


def _head_frame(block: Pairs) -> pd.DataFrame:
    import pandas as pd

    pairs = [*block.left, *block.right]
    return pd.DataFrame({"value": [v for _, v in pairs]}, index=[label for label, _ in pairs])


def summarize(view: FitView) -> Summary:
    """The summary of a fit."""
    return Summary(tabulate(view))


def tabulate(view: FitView) -> Table:
    """The table value of a fit: head, estimates, uncertainty, budget, guarantee, notes."""
    parts = (
        [Pairs("The analysis", view.left, view.right)],
        _ruled(_estimates(view)),
        _ruled([*_sources(view), _budget(view), _guarantee(view)]),
        _notes(view),
    )
    blocks = [block for part in parts if part for block in (Rule("="), *part)]
    return Table(view.title, tuple(blocks), ALERTS[view.kind])


def _ruled(parts: list[list[Block]]) -> list[Block]:
    """Parts with a light rule between."""
    full = [part for part in parts if part]
    return [block for i, part in enumerate(full) for block in ([Rule("-")] if i else []) + part]


def _estimates(view: FitView) -> list[list[Block]]:
    shown = (
        (view.effects, tables.effect_grid),
        (view.gates, tables.gate_grid),
        (view.cells, tables.cell_grid),
    )
    grids: list[list[Block]] = [
        [grid(frame, view.alpha)] for frame, grid in shown if frame is not None and len(frame)
    ]
    lines = tuple(f"{clean(shape.name)}: {shape_line(shape)}" for shape in view.shapes)
    return [*grids, [Prose(lines, "Effect by modifier [post]")] if lines else []]


def _sources(view: FitView) -> list[list[Block]]:
    if not view.uncertainty:
        return []
    terms = [] if view.effects is None else [str(term) for term in view.effects.index]
    grid = tables.source_grid(view.sources, terms[0] if len(terms) > 1 else "")
    return [[grid, *([Prose((view.tails,))] if view.tails else [])]]


def _budget(view: FitView) -> list[Block]:
    total = f"This fit: {view.total}." + (f"  {view.ledger}" if view.ledger else "")
    return [tables.budget_grid(view.budget), Prose((total,))]


def _guarantee(view: FitView) -> list[Block]:
    if not view.guarantee:
        return []
    return [Prose((f"Guarantee: {' '.join(view.guarantee)}",))]


def _notes(view: FitView) -> list[Block]:
    numbered = " ".join(f"[{i}] {note}" for i, note in enumerate(view.notes, 1))
    known = [f"[{mark}] {meaning}" for mark, meaning in MARKS.items() if mark in _marks(view)]
    lines = [f"Notes: {numbered}"] if numbered else []
    lines += [f"Marks: {', '.join(known)}."] if known else []
    return [Prose(tuple(lines))] if lines else []


def _marks(view: FitView) -> set[str]:
    """The marks that the summary shows."""
    shown = "" if view.effects is None else " ".join(f"[{m}]" for m in view.effects["mark"])
    shown += " ".join(value for _, value in (*view.left, *view.right))
    shown += "" if view.gates is None and view.cells is None else "[dp]"
    shown += "[post]" if view.shapes else ""
    return {mark for mark in MARKS if f"[{mark}]" in shown}
