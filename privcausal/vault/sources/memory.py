"""Rows in memory: pandas, polars, pyarrow or a mapping of arrays, through narwhals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from privcausal.spec.columns import (
    Header,
    LabelColumns,
    header,
    labels,
    numbers,
    open_frame,
)
from privcausal.typing import Frame, Integers
from privcausal.vault.batch import RawColumn
from privcausal.vault.sealed import Sealed


class Memory(Sealed):
    """A table held in memory, read column by column as numbers or as labels."""

    __slots__ = ("_cache", "_frame", "_size", "header")
    ordered = True
    held = True

    def __init__(self, data: Frame) -> None:
        self._frame: Any = open_frame(data)
        self._size: int = self._frame.shape[0]
        self._cache: dict[tuple[str, bool], RawColumn] = {}
        self.header: Header = header(self._frame)

    def size(self) -> int:
        """Number of rows: private under add_remove, so only the vault may ask."""
        return self._size

    def column(self, name: str, *, as_labels: bool) -> RawColumn:
        key = (name, as_labels)
        if key not in self._cache:
            series = self._frame[name]
            if as_labels:
                codes, texts = labels(series)
                self._cache[key] = RawColumn(codes=codes, labels=texts)
            else:
                self._cache[key] = RawColumn(numbers=numbers(series))
        return self._cache[key]

    def blocks(
        self, wanted: Sequence[tuple[str, bool]], rows: int
    ) -> Iterator[tuple[slice, Mapping[str, RawColumn]]]:
        """Blocks of at most `rows` rows with the wanted (column, as_labels) pairs."""
        whole = {name: self.column(name, as_labels=as_labels) for name, as_labels in wanted}
        for start in range(0, self._size, rows):
            at = slice(start, min(start + rows, self._size))
            yield at, {name: cut(column, at) for name, column in whole.items()}

    def typed(self, labels: LabelColumns) -> Memory:
        """Frames have types."""
        return self

    def close(self) -> None:
        """Nothing was opened."""

    def counted(self, statement: str, wanted: Sequence[tuple[str, bool]]) -> Integers | None:
        return None


def cut(column: RawColumn, at: slice) -> RawColumn:
    """Some rows of a column, its numbers as float64: block by block, they are made in cache."""
    if column.numbers is not None:
        return RawColumn(numbers=np.asarray(column.numbers[at], np.float64))
    assert column.codes is not None
    return RawColumn(codes=column.codes[at], labels=column.labels)
