"""Counts and sums by cell and arm with the noise that Betlei et al. (2021) print."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcausal.errors import CapabilityError
from privcausal.request.partition import Partition
from privcausal.typing import Integers, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.exit import Mechanism
from privcausal.vault.mechanisms.cells import UNIT
from privcausal.vault.transforms import Outcome


@dataclass(frozen=True, eq=False)
class PrintedCells(Mechanism):
    """COUNT + Lap(2/eps) and SUM + Lap(2 D_y/eps) of y itself in each cell and arm (Algorithm 1).

    D_y is the width of the outcome's bounds. Numbers lie on grids of 2^-30 (counts) and
    2^-30 max|y| (sums), so that a noisy count is zero with a probability of 2^-31 or so.

    Privacy
    -------
    Claimed, whatever the relation of neighbours: counts of sensitivity 1 and sums of sensitivity
    D_y, at epsilon / 2 each. A row that is added moves them by 1 and |y|, so it costs
    epsilon (1 + max|y| / D_y) / 2: epsilon only for max|y| <= D_y, that is 0 within the bounds. A
    row that is replaced leaves one cell and enters another, and costs twice that. `CellSums` has
    scales that are proven.
    """

    partition: Partition
    outcome: Outcome

    @property
    def query(self) -> str:
        return f"COUNT and SUM by arm in {self.partition.size} cells"

    @property
    def largest(self) -> float:
        """max|y| within the outcome's bounds."""
        return max(abs(self.outcome.lo), abs(self.outcome.hi))

    @property
    def _groups(self) -> int:
        return 2 * self.partition.size

    @property
    def weights(self) -> Vector:
        total = self.largest / (self.outcome.hi - self.outcome.lo)
        return np.repeat([1.0, total], self._groups)

    @property
    def units(self) -> Vector:
        return np.repeat([1.0 / UNIT, self.largest / UNIT], self._groups)

    def sensitivity(self, neighbors: Neighbors) -> float:
        raise CapabilityError("the paper has Laplace noise only")

    def l1_sensitivity(self, neighbors: Neighbors) -> float:
        """As claimed: 1 for a count and 1 for a sum over D_y."""
        return 2.0 * UNIT

    def integers(self, batch: Batch) -> Integers:
        lo, hi = self.outcome.lo, self.outcome.hi
        y = np.clip(self.outcome(batch) + 0.5 * (lo + hi), lo, hi)
        cell = self.partition.cell(batch.rows.frame)
        counted = batch.complete & (cell >= 0) & (cell < self.partition.size)
        at = 2 * cell[counted] + (batch.t[counted] == 1)
        count = np.bincount(at, minlength=self._groups) * UNIT
        total = np.bincount(at, np.rint(y[counted] / self.largest * UNIT), minlength=self._groups)
        return np.concatenate([count, total.astype(np.int64)])

    def split(self, values: Vector) -> tuple[Matrix, Matrix]:
        """Counts and sums of y, shape (cells, 2) each: control and treated."""
        count, total = values.reshape(2, -1, 2)
        return count, total
