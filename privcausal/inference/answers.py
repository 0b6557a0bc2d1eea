"""An effect that was released at some points only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcausal.errors import CapabilityError
from privcausal.inference.effect import Effect
from privcausal.spec.features import Design, Rows
from privcausal.typing import Integers, Matrix, Vector


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
        return np.minimum(np.maximum(self.value[self._at(rows)], -self.reach), self.reach)

    def sd(self, rows: Rows) -> Vector:
        """Standard deviation of the error, shape (n,)."""
        return np.asarray(self.spread[self._at(rows)])

    def _at(self, rows: Rows) -> Integers:
        """Number of the point that each row is."""
        position = {point.tobytes(): i for i, point in enumerate(self.points)}
        asked = np.ascontiguousarray(rows.scaled(self.design)[:, self.columns])
        found = [position.get(point.tobytes(), -1) for point in asked]
        if -1 in found:
            raise CapabilityError(
                f"the effect was released at the {len(self.points)} points of queries= only, and "
                "others were not paid for. Leave queries= out to release the whole function"
            )
        return np.array(found, np.int64)
