"""An effect that was released at some points only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcausal.inference.effect import Effect
from privcausal.spec.features import Design, Rows
from privcausal.typing import Integers, Mask, Matrix, Vector


@dataclass(frozen=True, eq=False)
class Answers(Effect):
    """tau at declared points; nothing is known elsewhere.

    Attributes
    ----------
    design : Design
    columns : Integers
        Design columns on which the effect depends.
    points : Matrix
        Scaled columns of the points, shape (d, q).
    value, spread : Vector
        tau and the standard deviation of its error (NaN where that would tell of rows), shape (d,).
    """

    design: Design
    columns: Integers
    points: Matrix
    value: Vector
    spread: Vector

    def __call__(self, rows: Rows) -> Vector:
        """tau, not a number elsewhere: an error would tell that a row is no such point."""
        value = np.append(self.value, np.nan)[self._at(rows)]
        return np.asarray(np.minimum(np.maximum(value, -self.reach), self.reach))

    def sd(self, rows: Rows) -> Vector:
        """Standard deviation of the error, shape (n,)."""
        return np.asarray(np.append(self.spread, np.nan)[self._at(rows)])

    def knows(self, rows: Rows) -> Mask:
        """Which rows are at one of the points."""
        return self._at(rows) >= 0

    def _at(self, rows: Rows) -> Integers:
        """Number of the point that each row is, -1 for none."""
        position = {point.tobytes(): i for i, point in enumerate(self.points)}
        asked = np.ascontiguousarray(rows.scaled(self.design)[:, self.columns])
        return np.array([position.get(point.tobytes(), -1) for point in asked], np.int64)
