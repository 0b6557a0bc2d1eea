"""Sums for the slopes on several arms: the vector of one row's residuals, and its products."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcausal.features.functions import Function
from privcausal.typing import Integers, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.exit import Mechanism
from privcausal.vault.mechanisms.moments import symmetric, triangle_weights
from privcausal.vault.mechanisms.scores import UNIT, grid_sum, sum_scale
from privcausal.vault.transforms import Outcome

Functions = tuple[Function, ...]


@dataclass(frozen=True, eq=False)
class ArmScores:
    """s_j = d_j (Y - eta_j - sum_i c_i d_i) for the arms j = 1, ..., J; as a transform, their norm.

    d_j = T_j - e_j, where T_j says whether the row is in arm j, and arm 0 is the reference. The
    e_j are in [0, 1], and are divided by their sum where that is above 1. Then in the reference
    |d|^2 = sum e_j^2 <= 1, and in arm a it is (1 - e_a)^2 + sum_(j not a) e_j^2 <= 2 (1 - e_a)^2,
    as a sum of squares is at most the square of the sum: |d|^2 <= 2. With |Y - eta_j| <= R,
    |s| <= sqrt(2) (R + sqrt(2) |c|). `es` and `etas` hold the arms' functions by fold.
    """

    es: tuple[Functions, ...]
    etas: tuple[Functions, ...]
    outcome: Outcome
    centre: Vector

    @property
    def bound(self) -> float:
        reach = 2 * self.outcome.bound + np.sqrt(2) * np.linalg.norm(self.centre)
        return float(np.sqrt(2) * reach)

    def __call__(self, batch: Batch) -> Vector:
        return np.asarray(np.linalg.norm(self.parts(batch)[1], axis=1))

    def parts(self, batch: Batch) -> tuple[Matrix, Matrix]:
        """d and s, shape (n, J) each."""
        e = _of_arms(self.es, batch)
        e /= np.maximum(e.sum(axis=1, keepdims=True), 1.0)
        left = (batch.t[:, None] == np.arange(1, len(self.centre) + 1)) - e
        rest = batch.y[:, None] - _of_arms(self.etas, batch) - (left @ self.centre)[:, None]
        return left, left * rest


def _of_arms(folds: tuple[Functions, ...], batch: Batch) -> Matrix:
    """Each row's values by its own fold's functions, shape (n, J)."""
    each = [np.stack([f(batch.rows) for f in functions], axis=1) for functions in folds]
    return each[0] if len(each) == 1 else np.where(batch.part[:, None] == 0, *each)


BETA2 = 0.5
"""Squared weight of each of the products in the norm: scores have a fifth more noise than alone."""


@dataclass(frozen=True, eq=False)
class ContrastSums(Mechanism):
    """Sums of x, and of the upper triangles of d d' and x x', over complete rows.

    x is the vector of scores over its cut, shortened to norm 1 where it is longer.

    Privacy
    -------
    A row adds (x, beta d d' / 2, beta x x'), with |x| <= 1, and |d d' / 2| = |d|^2 / 2 <= 1 and
    |x x'| <= 1 by Frobenius: squared norm at most 1 + 2 beta^2, which is the bound for adding a
    row. Replacing a row moves x by at most 2, and each product by at most sqrt(2), as PSD matrices
    have a non-negative inner product: together at most sqrt(4 + 4 beta^2). A row that is none of
    these (a fault) is left out by `grid_sum`.
    """

    scores: ArmScores
    cut: float

    @property
    def query(self) -> str:
        return "sums of scores and products, by arm"

    @property
    def arms(self) -> int:
        return len(self.scores.centre)

    @cached_property
    def weights(self) -> Vector:
        products = np.sqrt(BETA2) * triangle_weights(self.arms)
        return np.concatenate([np.ones(self.arms), products, products])

    def sensitivity(self, neighbors: Neighbors) -> float:
        return float(np.sqrt(4 + 4 * BETA2 if neighbors == "substitute" else 1 + 2 * BETA2)) * UNIT

    @property
    def _row_norm(self) -> float:
        return float(np.sqrt(1 + 2 * BETA2))

    @property
    def units(self) -> Vector:
        size = self.arms * (self.arms + 1) // 2
        each = np.repeat([self.cut, 2.0, self.cut**2], [self.arms, size, size])
        return np.asarray(each / sum_scale(self.weights, self._row_norm))

    def integers(self, batch: Batch) -> Integers:
        left, score = self.scores.parts(batch)
        x = score / np.maximum(np.linalg.norm(score, axis=1, keepdims=True), self.cut)
        i, j = np.triu_indices(self.arms)
        rows = np.hstack([x, 0.5 * left[:, i] * left[:, j], x[:, i] * x[:, j]]).T
        return grid_sum(
            lambda scale: iter(rows * scale), self.weights, self._row_norm, batch.complete
        )

    def split(self, values: Vector) -> tuple[Vector, Matrix, Matrix]:
        """Sums of s (J,), of d d' and of s s' (J, J), in natural units."""
        total, mass, square = np.split(values, [self.arms, (len(values) + self.arms) // 2])
        return total, symmetric(mass, self.arms), symmetric(square, self.arms)
