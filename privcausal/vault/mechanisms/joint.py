"""Sums of several cut scores of each row together: averages of one effect from one charge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from privcausal.features.basis import squared_norm
from privcausal.typing import Integers, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.exit import Mechanism
from privcausal.vault.mechanisms.moments import symmetric, triangle_weights
from privcausal.vault.mechanisms.scores import (
    UNIT,
    ArmHistogram,
    Regressors,
    ScoresAndMasses,
    cut_share,
    grid_sum,
    sum_scale,
)
from privcausal.vault.transforms import ScoreVector, Transform


def cut_vector(vector: ScoreVector, batch: Batch) -> Matrix:
    """The rows' vectors, moved towards zero onto the unit ball, shape (n, J)."""
    out = vector(batch)
    return np.asarray(out / np.maximum(np.sqrt(squared_norm(out)), 1.0)[:, None])


@dataclass(frozen=True, eq=False)
class JointSums(ScoresAndMasses):
    """Sums of x_j (1, g), of 1 and the masses q_k, of g and of q_k g, over complete rows.

    x in R^J is the row's vector of scores, cut to norm 1; q_k in [0, 1] are masses over their
    bounds, g the row's groups. The masses that `grouped` names by place are summed in groups too.

    Privacy
    -------
    The rule is that of `ScoresAndMasses`. Let m = ||g||^2 at most, K the number of masses, G one
    more than that of `grouped`. Scores: ||x (1, g)||^2 <= 1 + m = C^2. All else: S^2 = 1 + K + m G.
    Two complete rows differ not at all in 1, in each q_k by at most 1, and in g, or q_k g, by at
    most sqrt(2 m) (non-negative vectors of norm at most sqrt(m)): D^2 = K + 2 m G.

    `cut_vector` and `cut_share` hold x and q, whatever the row; `grid_sum` checks each row's norm.
    """

    vector: ScoreVector
    masses: tuple[Transform, ...]
    grouped: tuple[int, ...]
    regressors: Regressors
    neighbors: Neighbors

    @property
    def _c2(self) -> float:
        return 1.0 + self.regressors.group_sets

    @property
    def _s2(self) -> float:
        return 1.0 + len(self.masses) + self.regressors.group_sets * (1 + len(self.grouped))

    @property
    def _d2(self) -> float:
        return len(self.masses) + 2.0 * self.regressors.group_sets * (1 + len(self.grouped))

    @property
    def _sizes(self) -> tuple[int, int]:
        """Entries of the scores, and of all else."""
        groups = self.regressors.groups
        scores = len(self.vector.scores) * (1 + groups)
        return scores, 1 + len(self.masses) + groups * (1 + len(self.grouped))

    @property
    def weights(self) -> Vector:
        return np.repeat([1.0, self.beta], self._sizes)

    @property
    def units(self) -> Vector:
        bounds = [q.bound for q in self.masses]
        by_group = [1.0, *(bounds[k] for k in self.grouped)]
        rest = np.r_[1.0, bounds, np.repeat(by_group, self.regressors.groups)]
        return np.asarray(np.r_[np.ones(self._sizes[0]), rest] / self._scale)

    @property
    def _scale(self) -> float:
        return sum_scale(self.weights, self._row_norm)

    def integers(self, batch: Batch) -> Integers:
        x, g = cut_vector(self.vector, batch).T, batch.member.T
        q = [np.ones(x.shape[1]), *(cut_share(m(batch), m.bound, 0.0) for m in self.masses)]

        def columns(scale: float) -> Iterator[Vector]:
            for one in x:
                yield one * scale
                yield from (one * member * scale for member in g)
            yield from (one * scale for one in q)
            for k in (0, *(1 + k for k in self.grouped)):
                yield from (q[k] * member * scale for member in g)

        return grid_sum(columns, self.weights, self._row_norm, batch.complete)

    def split(self, values: Vector) -> tuple[Matrix, Matrix]:
        """Sums of the scores, shape (J, 1 + groups), and of 1 and the masses, (1 + K, 1 + groups).

        The first column is that over all rows; NaN in groups where a mass is not summed there.
        """
        groups, k = self.regressors.groups, 1 + len(self.masses)
        scores, rest = np.split(values, self._sizes[:1])
        sizes = np.full((k, 1 + groups), np.nan)
        sizes[:, 0] = rest[:k]
        sizes[[0, *(1 + k for k in self.grouped)], 1:] = rest[k:].reshape(
            1 + len(self.grouped), groups
        )
        return scores.reshape(-1, 1 + groups), sizes


@dataclass(frozen=True, eq=False)
class JointSquares(Mechanism):
    """Sums of the upper triangle of x x' over all rows and in each group; x as in `JointSums`.

    Privacy
    -------
    ||x x'||_F = ||x||^2 <= 1, so a row's vector x x' (1, g) has norm at most N, N^2 = 1 + ||g||^2.
    Any two have the inner product (x'y)^2 (1 + g'h) >= 0, so replacing a row moves the sum by at
    most sqrt(2) N, adding one by N.
    """

    vector: ScoreVector
    regressors: Regressors

    @property
    def query(self) -> str:
        return "sums of squared scores"

    @property
    def _row_norm(self) -> float:
        return float(np.sqrt(1.0 + self.regressors.group_sets))

    @property
    def weights(self) -> Vector:
        return np.tile(triangle_weights(len(self.vector.scores)), 1 + self.regressors.groups)

    def sensitivity(self, neighbors: Neighbors) -> float:
        factor = np.sqrt(2.0) if neighbors == "substitute" else 1.0
        return float(factor) * self._row_norm * UNIT

    @property
    def units(self) -> Vector:
        weights = self.weights
        return np.full(len(weights), 1.0 / sum_scale(weights, self._row_norm))

    def integers(self, batch: Batch) -> Integers:
        x = cut_vector(self.vector, batch).T
        pairs = list(zip(*np.triu_indices(len(x)), strict=True))

        def columns(scale: float) -> Iterator[Vector]:
            for member in (scale, *(member * scale for member in batch.member.T)):
                yield from (x[i] * x[j] * member for i, j in pairs)

        return grid_sum(columns, self.weights, self._row_norm, batch.complete)

    def split(self, values: Vector) -> Matrix:
        """Sums of x x', over all rows and by group, shape (1 + groups, J, J)."""
        size = len(self.vector.scores)
        parts = values.reshape(1 + self.regressors.groups, -1)
        return np.stack([symmetric(part, size) for part in parts])


@dataclass(frozen=True, eq=False)
class ArmHistograms(Mechanism):
    """Histograms of several numbers of each row, within each arm.

    Privacy
    -------
    Each is an `ArmHistogram`, so squared sensitivities add up.
    """

    parts: tuple[ArmHistogram, ...]

    @property
    def query(self) -> str:
        return f"{self.parts[0].query}, {len(self.parts)} times"

    @property
    def units(self) -> Vector:
        return np.concatenate([part.units for part in self.parts])

    def sensitivity(self, neighbors: Neighbors) -> float:
        return float(np.sqrt(sum(part.sensitivity(neighbors) ** 2 for part in self.parts)))

    def integers(self, batch: Batch) -> Integers:
        return np.concatenate([part.integers(batch) for part in self.parts])
