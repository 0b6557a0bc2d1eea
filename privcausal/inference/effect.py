"""The conditional effect as a function with a posterior band."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcausal.spec.features import Rows, combine
from privcausal.spec.functions import Additive, Function, within
from privcausal.typing import Matrix, Vector


@dataclass(frozen=True, eq=False)
class Piece:
    """weight(x) x additive(x), with the covariance of the additive function's coefficients."""

    additive: Additive
    cov: Matrix
    weight: Function | None = None


@dataclass(frozen=True, eq=False)
class Effect:
    """tau(x) as a sum of independent pieces, cut to [-reach, reach] (the outcome's range)."""

    pieces: tuple[Piece, ...]
    reach: float

    def __call__(self, rows: Rows) -> Vector:
        return rows.briefly((self,), lambda: self._of(rows))

    def _of(self, rows: Rows) -> Vector:
        total = np.zeros(len(rows))
        for piece in self.pieces:
            value = piece.additive(rows)
            total += value if piece.weight is None else value * piece.weight(rows)
        return within(total, -self.reach, self.reach)

    def sd(self, rows: Rows) -> Vector:
        """Posterior standard deviation, shape (n,)."""
        total = np.zeros(len(rows))
        for piece in self.pieces:
            phi = np.asfortranarray(rows.phi(piece.additive.features))  # read by column
            values, vectors = np.linalg.eigh(piece.cov)
            spread = sum(
                (max(v, 0.0) * combine(phi, vectors[:, k]) ** 2 for k, v in enumerate(values)),
                np.zeros(len(rows)),
            )
            total += spread if piece.weight is None else spread * piece.weight(rows) ** 2
        return np.sqrt(total)

    def mean_sd(self, rows: Rows, weight: Vector) -> float:
        """Posterior standard deviation of the mean of weight x tau(x)."""
        total = 0.0
        for piece in self.pieces:
            own = weight if piece.weight is None else weight * piece.weight(rows)
            lead = rows.phi(piece.additive.features).T @ own / len(rows)
            total += float(lead @ piece.cov @ lead)
        return float(np.sqrt(max(total, 0.0)))


@dataclass(frozen=True, eq=False)
class Predicted(Effect):
    """tau(x) as some function that came without a law of its error: its sd is not a number."""

    function: Function

    def __call__(self, rows: Rows) -> Vector:
        return np.minimum(np.maximum(self.function(rows), -self.reach), self.reach)

    def sd(self, rows: Rows) -> Vector:
        return np.full(len(rows), np.nan)
