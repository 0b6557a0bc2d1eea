"""The table value as LaTeX, for a document that loads booktabs."""

from __future__ import annotations

import re
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

MINUS = re.compile(r"(?<![\w.])-(?=\d|inf\b)")
"""A sign before a number, also in brackets; not the dash of a name or of an exponent."""

POWER = re.compile(r"(?<![\w.])(\d(?:\.\d+)?)e([+-]\d+)(?![\w.])")
"""A number in scientific notation, as ``number`` writes it; its sign stands before it."""

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


def render_float(table: Table, caption: str, label: str) -> str:
    """A floating `table`, its caption above: to be cited by `label` where there is one."""
    alert = [_bold(table.alert) + r"\par\medskip"] if table.alert else []
    marked = [rf"\label{{{label}}}"] if label else []
    lines = [PREAMBLE, r"\begin{table}[htbp]", r"\centering", rf"\caption{{{escape(caption)}}}"]
    lines += [*marked, *alert]
    alone = sum(isinstance(block, Grid) for block in table.blocks) == 1
    for block in table.blocks:
        # the float's caption is that of an only table; several are told apart by their own
        lines.extend(_tabular(block) if alone and isinstance(block, Grid) else _lines(block))
    return "\n".join([*lines, *alert, r"\end{table}"]) + "\n"


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
    yield from _tabular(block)


def _tabular(block: Grid) -> Iterator[str]:
    yield rf"\begin{{tabular}}{{{''.join(column.align[0] for column in block.columns)}}}"
    yield r"\toprule"
    if block.headed:
        yield _row([escape(cut(column.head, NAME)) for column in block.columns])
        yield r"\midrule"
    for index, row in enumerate(block.rows):
        if index and index in block.breaks:
            yield r"\midrule"
        yield _row(
            [
                escape(cut(cell, NAME)) if column.align == "left" else _typeset(escape(cell))
                for cell, column in zip(row, block.columns, strict=True)
            ]
        )
    yield from (r"\bottomrule", r"\end{tabular}\par\smallskip")


def _row(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _typeset(cell: str) -> str:
    """Numbers with a minus sign in place of a hyphen, and powers of ten as such."""
    return POWER.sub(_power, MINUS.sub("$-$", cell))


def _power(found: re.Match[str]) -> str:
    factor, exponent = found[1], int(found[2])
    times = "" if factor == "1" else rf"{factor} \times "
    return f"${times}10^{{{exponent}}}$"


@_lines.register
def _(block: Prose) -> Iterator[str]:
    yield r"\begin{minipage}{\linewidth}\footnotesize\raggedright"
    if block.heading:
        yield rf"\emph{{{escape(block.heading)}}}\par"
    yield from (POWER.sub(_power, escape(p)) + r"\par" for p in block.paragraphs)
    yield r"\end{minipage}\par\smallskip"
