"""An order that is carried out where the rows are: it goes to them, and only sums come back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from privcausal.spec.features import Space
from privcausal.typing import Integers
from privcausal.vault.batch import Batch, Layout, RawBatch, RawColumn
from privcausal.vault.mechanisms.base import Mechanism
from privcausal.vault.split import parts


@dataclass(frozen=True, eq=False)
class Job:
    """One mechanism's sums over some rows. It holds public values and coins, and no rows.

    Which part a row is in depends on the name of its unit, and on `entropy`: however often rows are
    computed again, or moved, a unit keeps its part.

    Attributes
    ----------
    wanted : tuple of (column, as_labels)
    layout : Layout, optional
        How rows are cleaned; None for a mechanism over raw columns.
    parts : tuple
        The parts of the rows whose sums are wanted; None is all rows.
    unit : str, optional
        The column of labels that names the unit of each row.
    """

    mechanism: Mechanism
    wanted: tuple[tuple[str, bool], ...]
    layout: Layout | None
    parts: tuple[int | None, ...] = (None,)
    shares: tuple[float, ...] = (1.0,)
    entropy: int = 0
    unit: str | None = None

    @property
    def size(self) -> int:
        """Number of sums."""
        return len(self.parts) * len(self.mechanism.units)

    @property
    def columns(self) -> tuple[tuple[str, bool], ...]:
        """All columns that it reads, the unit's last."""
        return self.wanted if self.unit is None else (*self.wanted, (self.unit, True))

    def integers(
        self,
        columns: Mapping[str, RawColumn],
        unit: RawColumn | None,
        rows: int,
        space: Space,
    ) -> Integers:
        """Exact sums over one block of at most `door.BATCH` rows, worked on in `space`."""
        keep = np.ones(rows, bool)
        if self.layout is None:
            return self.mechanism.integers(RawBatch(columns, keep))  # type: ignore[arg-type]
        batch = Batch(columns, self._part(unit, rows), keep, self.layout)
        with batch.rows.within(space):
            return in_parts(self.mechanism, batch, self.parts)

    def _part(self, unit: RawColumn | None, rows: int) -> Integers:
        if len(self.shares) == 1:
            return np.zeros(rows, np.int64)
        assert unit is not None
        # with units the coins are the same under both relations
        return parts(
            rows, self.shares, neighbors="add_remove", entropy=self.entropy,
            units=unit.codes, names=unit.labels,
        )  # fmt: skip


def in_parts(mechanism: Mechanism, batch: Batch, wanted: tuple[int | None, ...]) -> Integers:
    """Exact sums over the rows of each part (None: of all), one after another, shape (k m,)."""
    each = [mechanism.integers(batch if p is None else batch.only(p)) for p in wanted]
    return np.concatenate(each)
