"""The table value as LaTeX, for a document that loads booktabs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from itertools import zip_longest

from privcausal.report.table import Block, Grid, Pairs, Prose, Rule, Table
from privcausal.report.words import clean, cut

PREAMBLE = r"% \usepackage{booktabs}; UTF-8 (names outside the Latin script: XeLaTeX or LuaLaTeX)"

ESCAPES = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\textasciigrave{}",
    "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    # after a row's \\ these two would be read as its argument
    "[": "{[}", "*": "{*}",
    # the symbols a fit itself may print, without a package
    "≤": r"$\le$", "≥": r"$\ge$", "±": r"$\pm$", "×": r"$\times$", "−": "$-$",
    "ε": r"$\varepsilon$", "δ": r"$\delta$", "ρ": r"$\rho$", "τ": r"$\tau$", "β": r"$\beta$",
}  # fmt: skip

LONG = 34
"""A value of the head with more characters gets a line of its own, which may wrap."""


NAME = 48
"""Characters of a name in a table, which cannot wrap there; `Summary.tables` has it whole."""


def escape(text: object) -> str:
    """Text that LaTeX prints as it is."""
    escaped = "".join(ESCAPES.get(c, c) for c in clean(text))
    return escaped.replace("--", "-{}-{}")


def render(table: Table) -> str:
    """A centred group of tabulars, one per block."""
    alert = [_bold(table.alert) + r"\par\medskip"] if table.alert else []
    lines = [PREAMBLE, r"\begin{center}", *alert, _bold(table.title) + r"\par\medskip"]
    for block in table.blocks:
        lines.extend(_lines(block))
    return "\n".join([*lines, *alert, r"\end{center}"]) + "\n"


def _bold(text: str) -> str:
    return rf"\textbf{{{escape(text)}}}"


@singledispatch
def _lines(block: Block) -> Iterator[str]:
    raise NotImplementedError(type(block).__name__)


@_lines.register
def _(block: Rule) -> Iterator[str]:  # noqa: ARG001 - booktabs rules its own tables
    yield from ()


@_lines.register
def _(block: Pairs) -> Iterator[str]:
    sides = [[p for p in side if len(p[1]) <= LONG] for side in (block.left, block.right)]
    yield r"\begin{tabular}{lr@{\qquad}lr}"
    yield r"\toprule"
    for pairs in zip_longest(*sides, fillvalue=("", "")):
        yield _row([cell for label, value in pairs for cell in (_label(label), escape(value))])
    for label, value in (p for p in (*block.left, *block.right) if len(p[1]) > LONG):
        # grouped, because \raggedright would take the row's \\ for itself
        paragraph = rf"{{\raggedright {escape(value)}\par}}"
        yield rf"{_label(label)} & \multicolumn{{3}}{{p{{0.7\linewidth}}}}{{{paragraph}}} \\"
    yield from (r"\bottomrule", r"\end{tabular}\par\smallskip")


def _label(label: str) -> str:
    return f"{escape(cut(label, NAME))}:" if label else ""


@_lines.register
def _(block: Grid) -> Iterator[str]:
    yield rf"\emph{{{escape(block.caption)}}}\par"
    yield rf"\begin{{tabular}}{{{''.join(column.align[0] for column in block.columns)}}}"
    yield r"\toprule"
    if block.headed:
        yield _row([escape(column.head) for column in block.columns])
        yield r"\midrule"
    for row in block.rows:
        yield _row(
            [
                _signed(escape(cell)) if column.align == "right" else escape(cut(cell, NAME))
                for cell, column in zip(row, block.columns, strict=True)
            ]
        )
    yield from (r"\bottomrule", r"\end{tabular}\par\smallskip")


def _row(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _signed(cell: str) -> str:
    """A number with a minus sign in place of a hyphen."""
    return f"${cell[0]}$" + cell[1:] if cell.startswith("-") else cell


@_lines.register
def _(block: Prose) -> Iterator[str]:
    yield r"\begin{minipage}{\linewidth}\footnotesize\raggedright"
    if block.heading:
        yield rf"\emph{{{escape(block.heading)}}}\par"
    yield from (escape(paragraph) + r"\par" for paragraph in block.paragraphs)
    yield r"\end{minipage}\par\smallskip"
