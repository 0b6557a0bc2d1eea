"""An aggregated table in the place of rows: private until noise is added, as rows are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from privcausal.errors import CapabilityError
from privcausal.spec.cell_table import CellTable
from privcausal.spec.columns import Header, LabelColumns
from privcausal.typing import Integers
from privcausal.vault.batch import RawColumn
from privcausal.vault.sealed import Sealed


class Aggregates(Sealed):
    """Exact counts and sums by cell and arm, which serve one order: `CellSums`."""

    __slots__ = ("_table", "header")
    ordered = True
    held = True

    def __init__(self, table: CellTable, columns: Header) -> None:
        self._table = table
        self.header = columns

    def size(self) -> int:
        """Of rows nothing is known here; there is something, at least."""
        return 1

    def column(self, name: str, *, as_labels: bool) -> RawColumn:
        raise self._refused()

    def blocks(
        self, wanted: Sequence[tuple[str, bool]], rows: int
    ) -> Iterator[tuple[slice, Mapping[str, RawColumn]]]:
        raise self._refused()

    def _refused(self) -> CapabilityError:
        return CapabilityError("a table of cells has no rows: only learner='adum' reads it")

    def typed(self, labels: LabelColumns) -> Aggregates:
        return self

    def close(self) -> None:
        """Nothing was opened."""

    def counted(self, statement: str, wanted: Sequence[tuple[str, bool]]) -> Integers | None:
        """Rows (cell, arm, count, steps, 0): the table is the answer already."""
        count = self._table.count.astype(np.int64)
        cell, arm = np.indices(count.shape).reshape(2, -1)
        zero = np.zeros(count.size, np.int64)
        return np.stack([cell, arm, count.ravel(), self._table.steps.ravel(), zero], axis=1)
