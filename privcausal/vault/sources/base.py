"""What the vault asks of a table: names and types, a size, columns, and its rows in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from privcausal.errors import DataError
from privcausal.spec.columns import Header, LabelColumns
from privcausal.typing import Integers
from privcausal.vault.batch import RawColumn

Blocks = Iterator[tuple[slice, Mapping[str, RawColumn]]]


class Unreadable(DataError):
    """A table cannot be read to its end. The words are the source's own, whatever the rows hold."""


def nothing(wanted: Sequence[tuple[str, bool]]) -> dict[str, RawColumn]:
    """The wanted (column, as_labels) pairs of no rows."""
    none = RawColumn(codes=np.zeros(0, np.int64)), RawColumn(numbers=np.zeros(0))
    return {name: none[0] if as_labels else none[1] for name, as_labels in wanted}


def at_least_one(blocks: Blocks, wanted: Sequence[tuple[str, bool]]) -> Blocks:
    """The blocks, or where there are no rows one without any.

    So a table of no rows goes through the same steps as one of some, and fails in the same.
    """
    none = True
    for block in blocks:
        none = False
        yield block
    if none:
        yield slice(0, 0), nothing(wanted)


class Table(Protocol):
    """Private rows, wherever they are kept.

    Attributes
    ----------
    header : Header
        Names and types: all of it that is public.
    ordered : bool
        Whether every reading gives the rows in the same order. Parts of the rows, and rows of a
        unit, are known by their position, so both need it. (Where rows stay on Spark's executors,
        both go by the unit's name.)
    held : bool
        Whether all rows are in memory together.
    """

    @property
    def header(self) -> Header: ...

    @property
    def ordered(self) -> bool: ...

    @property
    def held(self) -> bool: ...

    def size(self) -> int:
        """Number of rows: private under add_remove, so only the vault may ask."""

    def column(self, name: str, *, as_labels: bool) -> RawColumn:
        """A whole column."""

    def blocks(
        self, wanted: Sequence[tuple[str, bool]], rows: int
    ) -> Iterator[tuple[slice, Mapping[str, RawColumn]]]:
        """Blocks of at most `rows` rows in order, with the wanted (column, as_labels) pairs."""

    def typed(self, labels: LabelColumns) -> Table:
        """The same rows once it is known which columns hold labels, where the table has no types.

        `labels` maps from the names of all columns, since a formula may mean all of them.
        """

    def close(self) -> None:
        """Close what was opened here to read the rows, typed or not; nothing that was given."""

    def counted(self, statement: str, wanted: Sequence[tuple[str, bool]]) -> Integers | None:
        """Rows of whole numbers that a query over the table `data` gives, shape (m, k).

        None where this table runs no SQL, or where SQL would read one of the wanted
        (column, as_labels) pairs otherwise than the vault does.
        """
