"""What the vault asks of a table, and tables in memory: pandas, polars, pyarrow, or arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from privcausal.errors import CapabilityError
from privcausal.features.columns import header, labels, numbers, open_frame
from privcausal.request.header import Header, LabelColumns
from privcausal.typing import Frame, Integers
from privcausal.vault.batch import RawColumn
from privcausal.vault.guard import Opaque
from privcausal.vault.sources.keys import unit_codes

AsLabels: TypeAlias = bool | Literal["units"]
"""Whether a column is read as labels; "units": as exact names of units, one for each value."""

Wanted: TypeAlias = Sequence[tuple[str, AsLabels]]
"""Names of columns, and how each is read."""

Blocks: TypeAlias = Iterator[tuple[slice, Mapping[str, RawColumn]]]


class RowSource(Opaque):
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
    absent : str
        What is said of rows that are not here to be read.
    """

    __slots__ = ()
    header: Header
    ordered: bool
    held: bool
    absent: str

    def size(self) -> int:
        """Number of rows: private under add_remove, so only the vault may ask."""
        raise NotImplementedError

    def column(self, name: str, *, as_labels: AsLabels) -> RawColumn:
        """A whole column."""
        raise CapabilityError(self.absent)

    def blocks(self, wanted: Wanted, rows: int) -> Blocks:
        """Blocks of at most `rows` rows in order, with the wanted columns."""
        raise CapabilityError(self.absent)

    def typed(self, labels: LabelColumns) -> RowSource:
        """The same rows once it is known which columns hold labels, where the table has no types.

        `labels` maps from the names of all columns, since a formula may mean all of them.
        """
        return self

    def close(self) -> None:
        """Close what was opened here to read the rows, typed or not; nothing that was given."""

    def counted(self, statement: str, wanted: Wanted) -> Integers | None:
        """Rows of whole numbers that a query over the table `data` gives, shape (m, k).

        None where this table runs no SQL, or where SQL would read one of the wanted columns
        otherwise than the vault does.
        """
        return None


class Memory(RowSource):
    """A table held in memory, read column by column as numbers or as labels."""

    __slots__ = ("_cache", "_frame", "_of_units", "_size", "header")
    ordered = True
    held = True

    def __init__(self, data: Frame, of_units: Any = None) -> None:
        self._frame: Any = open_frame(data)
        # units are told apart by what the columns held before words were put for codes
        self._of_units: Any = self._frame if of_units is None else of_units
        self._size: int = self._frame.shape[0]
        self._cache: dict[tuple[str, AsLabels], RawColumn] = {}
        self.header: Header = header(self._frame)

    def size(self) -> int:
        return self._size

    def column(self, name: str, *, as_labels: AsLabels) -> RawColumn:
        key = (name, as_labels)
        if key not in self._cache:
            series = self._frame[name]
            if as_labels == "units":
                self._cache[key] = unit_codes(self._of_units[name])
            elif as_labels:
                codes, texts = labels(series)
                self._cache[key] = RawColumn(codes=codes, labels=texts)
            else:
                self._cache[key] = RawColumn(numbers=numbers(series))
        return self._cache[key]

    def blocks(self, wanted: Wanted, rows: int) -> Blocks:
        whole = {name: self.column(name, as_labels=as_labels) for name, as_labels in wanted}
        for start in range(0, self._size, rows):
            at = slice(start, min(start + rows, self._size))
            yield at, {name: cut_column(column, at) for name, column in whole.items()}


def cut_column(column: RawColumn, at: slice) -> RawColumn:
    """Some rows of a column, its numbers as float64: block by block, they are made in cache."""
    if column.numbers is not None:
        return RawColumn(numbers=np.asarray(column.numbers[at], np.float64))
    assert column.codes is not None
    return RawColumn(codes=column.codes[at], labels=column.labels)


def no_rows(wanted: Wanted) -> dict[str, RawColumn]:
    """The wanted columns of a table without rows."""
    codes, numeric = RawColumn(codes=np.zeros(0, np.int64)), RawColumn(numbers=np.zeros(0))
    return {name: codes if as_labels else numeric for name, as_labels in wanted}


def at_least_one(blocks: Blocks, wanted: Wanted) -> Blocks:
    """The blocks, or one block without rows where there are none.

    So a table of no rows goes through the same steps as any other, and fails in the same.
    """
    none = True
    for block in blocks:
        none = False
        yield block
    if none:
        yield slice(0, 0), no_rows(wanted)
