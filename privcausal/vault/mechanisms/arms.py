"""Counts and sums within the arms: what a comparison of arms needs of the rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcausal.spec.schema import Interval
from privcausal.typing import Integers, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.mechanisms.base import Mechanism
from privcausal.vault.mechanisms.scores import UNIT, grid_sum, sum_scale
from privcausal.vault.transforms.scores import Transform


@dataclass(frozen=True, eq=False)
class ArmHistogram(Mechanism):
    """Counts of a number of each row in public cells, within each arm.

    The cells are (-inf, edges[0]], the gaps (edges[k], edges[k + 1]), closed above but for the
    last one, and [edges[-1], inf): where the number was cut to the edges, the outer cells hold
    what was cut.

    Privacy
    -------
    A row's cell depends on that row alone. A complete row adds one to one cell of one arm, any
    other row, and one whose number is none, nothing: replacing a row moves the counts by at most
    sqrt(2) in l2, adding one by 1.
    """

    target: Transform
    edges: Vector
    what: str

    @property
    def query(self) -> str:
        return f"{self.what} by arm, {self.cells} cells"

    @property
    def cells(self) -> int:
        return len(self.edges) + 1

    @property
    def units(self) -> Vector:
        return np.ones(2 * self.cells)

    def sensitivity(self, neighbors: Neighbors) -> float:
        return float(np.sqrt(2.0)) if neighbors == "substitute" else 1.0

    def integers(self, batch: Batch) -> Integers:
        value = self.target(batch)
        inner = np.searchsorted(self.edges, value, side="left")
        cell = np.where(value >= self.edges[-1], len(self.edges), inner)
        at = np.where(batch.t == 1, self.cells, 0) + cell
        counted = batch.complete & ~np.isnan(value)
        return np.bincount(at[counted], minlength=2 * self.cells).astype(np.int64)

    def split(self, values: Vector) -> Matrix:
        """Counts of the control and of the treated arm, shape (2, cells)."""
        return values.reshape(2, self.cells)


WEIGHTS: dict[Neighbors, dict[bool, tuple[float, float]]] = {
    "substitute": {True: (0.5, 0.5), False: (1.0, 0.0)},
    "add_remove": {True: (0.25, 0.15), False: (0.5, 0.0)},
}
"""Squared weights (beta^2, gamma^2) of counts and squares in the norm, with squares or without.

Under substitution they are free while their sum is at most 1. Where a row is added each is paid
for: a mean x then has variance in proportion of (1 + beta^2 + gamma^2) (1 + x^2 / beta^2), whose
least is at beta^2 = |x|, and little is lost by half of that or twice as much.
"""


@dataclass(frozen=True, eq=False)
class ArmSums(Mechanism):
    """Sums of x, of 1 and (with `squares`) of x^2 by arm, over all its rows and in each group.

    x is Y's place in the window of the row's arm, a public interval: -1 at its lower end and
    below, 1 at its upper end and above.

    Privacy
    -------
    Let beta and gamma <= 1 be the norm's weights of counts and squares, m the largest number of
    groups a row is in. A row adds v = (x, beta, gamma x^2), squared norm at most
    S = 1 + beta^2 + gamma^2, to the entries of its arm and of each of its groups there: squared
    norm at most (1 + m) S, which is the bound for adding a row.

    Replaced by a row of the other arm, which moves other entries: at most 2 (1 + m) S. By a row
    of the same arm that shares k groups with it: in 1 + k places v moves to v', and in up to
    2 (m - k) others one of them appears or is gone. The count of the shared places stays. With
    d = |x - x'| and |x + x'| <= 2 - d, |v - v'|^2 <= d^2 (1 + gamma^2 (2 - d)^2) <= 4, because
    gamma^2 d^2 (2 - d) <= 32/27 < 2 + d. Together at most 4 (1 + k) + 2 (m - k) S. So replacing a
    row moves the sums by at most Delta, Delta^2 = (1 + m) max(4, 2 S): the counts and squares
    cost nothing while beta^2 + gamma^2 <= 1, where the triangle inequality would give
    4 (1 + m) S.
    """

    windows: tuple[Interval, Interval]
    groups: int
    group_sets: int
    neighbors: Neighbors
    squares: bool = True

    @property
    def query(self) -> str:
        return "sums by arm"

    @property
    def _squared_weights(self) -> tuple[float, float]:
        return WEIGHTS[self.neighbors][self.squares]

    @property
    def _kinds(self) -> int:
        """Sums, counts, and squares where they are asked for."""
        return 3 if self.squares else 2

    @property
    def weights(self) -> Vector:
        one = np.sqrt([1.0, *self._squared_weights])[: self._kinds]
        return np.tile(np.repeat(one, 1 + self.groups), 2)

    @property
    def _half(self) -> Vector:
        """Half the width of each arm's window, shape (2,)."""
        return np.array([0.5 * w.width for w in self.windows])

    @property
    def _row_norm2(self) -> float:
        return (1 + self.group_sets) * (1.0 + sum(self._squared_weights))

    def sensitivity(self, neighbors: Neighbors) -> float:
        if neighbors == "add_remove":
            return float(np.sqrt(self._row_norm2)) * UNIT
        return float(np.sqrt(max(4.0 * (1 + self.group_sets), 2 * self._row_norm2))) * UNIT

    @property
    def units(self) -> Vector:
        one = 1.0 / sum_scale(self.weights, float(np.sqrt(self._row_norm2)))
        half = self._half
        kinds = np.stack([half, np.ones(2), half**2], axis=1)[:, : self._kinds]
        return np.repeat(kinds.ravel() * one, 1 + self.groups)

    def integers(self, batch: Batch) -> Integers:
        arm = (batch.t == 1).astype(np.int64)
        middle = np.array([w.mid for w in self.windows])
        x = np.clip((batch.y - middle[arm]) / self._half[arm], -1.0, 1.0)
        kinds = np.stack([x, np.ones_like(x), x**2], axis=1)[:, : self._kinds]
        places = np.hstack([np.ones((len(x), 1)), batch.member])
        row = (kinds[:, :, None] * places[:, None, :]).reshape(
            len(x), self._kinds * places.shape[1]
        )
        vectors = np.hstack([row * (1 - arm)[:, None], row * arm[:, None]])
        norm = float(np.sqrt(self._row_norm2))
        return grid_sum(lambda scale: iter(vectors.T * scale), self.weights, norm, batch.complete)

    def split(self, values: Vector) -> tuple[Matrix, Matrix, Matrix | None]:
        """Sums of Y - middle of the window, counts, sums of (Y - middle)^2 or None.

        In natural units; each of shape (2, 1 + groups): control and treated, all rows and groups.
        """
        found = values.reshape(2, self._kinds, 1 + self.groups)
        return found[:, 0], found[:, 1], found[:, 2] if self.squares else None
