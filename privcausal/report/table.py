"""The one table value from which text, LaTeX and HTML are all written.

Numbers are text already, so the three formats cannot disagree; names are whole, and only the
text writer, which has 78 columns, cuts them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across, of ``=`` or ``-``; LaTeX and HTML have their own rules."""

    character: Literal["=", "-"] = "-"


@dataclass(frozen=True, slots=True)
class Pairs:
    """Labels with their values, in two columns."""

    caption: str
    left: tuple[tuple[str, str], ...]
    right: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its short head, its alignment, and the head where there is room for words.

    Text to the left may be cut to fit, numbers to the right or in the centre never are; in plain
    text numbers of the centre stand one above the other, with or without brackets.
    """

    head: str
    align: Literal["left", "right", "center"] = "right"
    words: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Rows of cells under columns; the first column names the row.

    `headed=False` drops the heads in text, where the caption stands above the rows instead.
    `frame` keeps the numbers behind the cells, unrounded, with whole names. `breaks` are the
    numbers of rows that a light rule stands above.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    frame: pd.DataFrame | None = None
    headed: bool = True
    breaks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"every row of the table {self.caption!r} needs a cell per column")


@dataclass(frozen=True, slots=True)
class Prose:
    """Paragraphs, wrapped; under a heading they are indented."""

    paragraphs: tuple[str, ...]
    heading: str = ""


Block: TypeAlias = Rule | Pairs | Grid | Prose


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A title and blocks; `alert` is printed first and last in every format."""

    title: str
    blocks: tuple[Block, ...]
    alert: str = ""
