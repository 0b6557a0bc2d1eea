"""One step of Lloyd's algorithm: counts and sums of points by the nearest of public centres."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcausal.spec.partition import Coordinates, Nearest
from privcausal.typing import Integers, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.mechanisms.base import ONE_FACTOR, Mechanism

UNIT = 1 << ONE_FACTOR


@dataclass(frozen=True, eq=False)
class ClusterSums(Mechanism):
    """Sums of z, and of 1, over the rows nearest to each centre (DP-Lloyd, Su et al. 2016).

    z has one coordinate in [-1, 1] for each number, and for each column with labels one corner,
    0 or 1 a label, of which one is 1 at most.

    Privacy
    -------
    A complete row adds to the entries of one cluster only, any other row nothing. With m columns
    its point has sum |z_j| <= m and sum z_j^2 <= m, on the grid too, since whole numbers bound each
    coordinate. With the count weighted by the root of m in l2 (by m in l1) a row has squared norm
    at most 2 m (norm at most 2 m). So adding a row moves the sums by at most sqrt(2 m) in l2 and
    2 m in l1. Replacing it moves them by at most twice that in l1; in l2 by 2 sqrt(m): two
    clusters, 2 m + 2 m; the same cluster, |z - z'|^2 <= 4 m, the count stays.
    """

    nearest: Nearest
    law: str

    @property
    def query(self) -> str:
        return f"sums in {self.nearest.size} clusters"

    @property
    def _columns(self) -> int:
        return len(self.nearest.variables)

    @property
    def weights(self) -> Vector:
        count = float(self._columns) if self.law == "laplace" else float(np.sqrt(self._columns))
        entries = self.nearest.size * self.nearest.coordinates.size
        return np.repeat([1.0, count * UNIT], [entries, self.nearest.size])

    def sensitivity(self, neighbors: Neighbors) -> float:
        return float(np.sqrt((4.0 if neighbors == "substitute" else 2.0) * self._columns)) * UNIT

    def l1_sensitivity(self, neighbors: Neighbors) -> float:
        return (4.0 if neighbors == "substitute" else 2.0) * self._columns * UNIT

    @property
    def units(self) -> Vector:
        entries = self.nearest.size * self.nearest.coordinates.size
        return np.repeat([1.0 / UNIT, 1.0], [entries, self.nearest.size])

    def integers(self, batch: Batch) -> Integers:
        frame, size = batch.rows.frame, self.nearest.size
        cell = self.nearest.cell(frame)[batch.complete]
        z = np.rint(self.nearest.coordinates.of(frame)[batch.complete] * UNIT)
        sums = [np.bincount(cell, z[:, j], minlength=size) for j in range(z.shape[1])]
        count = np.bincount(cell, minlength=size)
        return np.concatenate([*sums, count]).astype(np.int64)

    def split(self, values: Vector) -> tuple[Matrix, Vector]:
        """Sums of z, shape (clusters, coordinates), and counts."""
        size = self.nearest.size
        return values[:-size].reshape(-1, size).T, values[-size:]


def public_centres(coordinates: Coordinates, size: int) -> Matrix:
    """Where the centres start: public points spread over the domain, shape (size, coordinates)."""
    steps = np.arange(1.0, size + 1)[:, None]
    # fractions of multiples of the roots of primes, which fill a cube evenly
    primes = [p for p in range(2, 10_000) if all(p % q for q in range(2, int(p**0.5) + 1))]
    roots = np.sqrt(np.array(primes[: coordinates.size], np.float64))
    return np.asarray(2.0 * ((steps * roots) % 1.0) - 1.0)
