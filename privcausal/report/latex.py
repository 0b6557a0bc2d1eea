"""The table value as LaTeX, for a document that loads booktabs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest

from privcausal.report.tables import Block, Pairs, Prose, Table, TableColumn, TableGrid
from privcausal.report.words import clean, cut

PREAMBLE = r"% \usepackage{booktabs}; UTF-8 (names outside the Latin script: XeLaTeX or LuaLaTeX)"

ESCAPES = {
    "\\": r"\textbackslash{}", "~": r"$\sim$", "^": r"\textasciicircum{}",
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

FRACTION = re.compile(r"1/x\$?\\textasciicircum\{\}(\d+)")
"""How tails fall, as the summary writes it."""

LONG = 30
"""A value of the head with more characters gets a line of its own, which may wrap."""

NAME = 48
"""Characters of a name in a table, which cannot wrap there; `Summary.tables` has it whole."""


PAGE = 24
"""Rows of one tabular; a longer table goes on in another, with its head."""


def escape_latex(text: object) -> str:
    """Text that LaTeX prints as it is."""
    escaped = "".join(ESCAPES.get(c, c) for c in clean(text))
    return escaped.replace("--", "-{}-{}")


def render_latex(table: Table) -> str:
    """A centred group of tabulars, one per block."""
    alert = _alert(table)
    title = rf"\textbf{{{escape_latex(table.title)}}}\par\medskip"
    body = [line for block in table.blocks for line in _lines(block)]
    return _joined(r"\begin{center}\small", *alert, title, *body, *alert, r"\end{center}")


def render_float(table: Table, caption: str, label: str) -> str:
    """A floating `table`, its caption above: to be cited by `label` where there is one."""
    alert = _alert(table)
    head = [r"\begin{table}[htbp]", r"\centering\small", rf"\caption{{{escape_latex(caption)}}}"]
    head += [rf"\label{{{label}}}"] if label else []
    alone = sum(isinstance(block, TableGrid) for block in table.blocks) == 1
    body: list[str] = []
    for block in table.blocks:
        # the float's caption is that of an only table; several are told apart by their own
        body += _tabular(block) if alone and isinstance(block, TableGrid) else _lines(block)
    return _joined(*head, *alert, *body, *alert, r"\end{table}")


def _alert(table: Table) -> list[str]:
    return [rf"\textbf{{{escape_latex(table.alert)}}}\par\medskip"] if table.alert else []


def _joined(*lines: str) -> str:
    return "\n".join([PREAMBLE, *lines]) + "\n"


def _lines(block: Block) -> Iterator[str]:
    match block:
        case Pairs():
            yield from _pairs(block)
        case TableGrid():
            yield rf"\emph{{{escape_latex(block.caption)}}}\par"
            for part in _parts(block):
                yield from _tabular(part)
        case Prose() if not block.console:
            yield r"\begin{minipage}{\linewidth}\footnotesize\raggedright"
            if block.heading:
                yield rf"\emph{{{escape_latex(block.heading)}}}\par"
            for paragraph in block.paragraphs:
                text = POWER.sub(_power, escape_latex(paragraph))
                yield FRACTION.sub(r"$1/x^{\1}$", text) + r"\par"
            yield r"\end{minipage}\par\smallskip"


def _pairs(block: Pairs) -> Iterator[str]:
    sides = [[p for p in side if len(p[1]) <= LONG] for side in (block.left, block.right)]
    yield r"\begin{tabular}{@{}lr@{\quad}lr@{}}"
    yield r"\toprule"
    for pairs in zip_longest(*sides, fillvalue=("", "")):
        yield _row(
            [cell for label, value in pairs for cell in (_label(label), escape_latex(value))]
        )
    for label, value in (p for p in (*block.left, *block.right) if len(p[1]) > LONG):
        # grouped, because \raggedright would take the row's \\ for itself
        paragraph = rf"{{\raggedright {escape_latex(value)}\par}}"
        yield rf"{_label(label)} & \multicolumn{{3}}{{p{{0.7\linewidth}}}}{{{paragraph}}} \\"
    yield from (r"\bottomrule", r"\end{tabular}\par\smallskip")


def _label(label: str) -> str:
    return f"{escape_latex(cut(label, NAME))}:" if label else ""


def _parts(block: TableGrid) -> Iterator[TableGrid]:
    """Pieces between which a page may end, as it cannot within a tabular."""
    for start in range(0, max(len(block.rows), 1), PAGE):
        breaks = tuple(b - start for b in block.breaks if start < b < start + PAGE)
        yield replace(block, rows=block.rows[start : start + PAGE], breaks=breaks)


def _tabular(block: TableGrid) -> Iterator[str]:
    yield rf"\begin{{tabular}}{{@{{}}{''.join(column.align[0] for column in block.columns)}@{{}}}}"
    yield r"\toprule"
    if block.headed:
        yield _row([escape_latex(cut(column.head, NAME)) for column in block.columns])
        yield r"\midrule"
    for index, row in enumerate(block.rows):
        if index and index in block.breaks:
            yield r"\midrule"
        yield _row(map(_cell, row, block.columns))
    yield from (r"\bottomrule", r"\end{tabular}\par\smallskip")


def _row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _cell(text: str, column: TableColumn) -> str:
    """A name, cut; or a number with a minus sign in place of a hyphen, and its power of ten."""
    if column.align == "left":
        return escape_latex(cut(text, NAME))
    return POWER.sub(_power, MINUS.sub("$-$", escape_latex(text)))


def _power(found: re.Match[str]) -> str:
    factor, exponent = found[1], int(found[2])
    times = "" if factor == "1" else rf"{factor} \times "
    return f"${times}10^{{{exponent}}}$"
