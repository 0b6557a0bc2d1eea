"""Squared sums of scores by cluster, for cluster-robust standard errors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from privcausal.typing import Integers, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.exit import Solution
from privcausal.vault.noise import LIMIT
from privcausal.vault.queries.sums import CutScore

CLUSTER_BITS = 12
"""Bits of a score. Squared sums of clusters with thousands of rows then fit into 62 bits."""

LEAST_CAP = 2.0
"""Least limit of a cluster's sum, in scores. The proof below needs at least one."""

ONE = 1 << CLUSTER_BITS


@dataclass(frozen=True, eq=False)
class ClusterSquares(Solution):
    """Sums over clusters of the squared sum of a score, for several scores; number of clusters.

    Score j is summed over the rows of place `places[j]`: 0 is all rows, and k is group k - 1. The
    sum of a cluster is clipped to [-cap, cap], in units of the score's own clipping threshold. No
    row is dropped, so a cluster may have any number of rows. A cluster is counted if it has a
    complete row.

    Privacy
    -------
    This is not a sum over rows. Let K >= h be the integers of `cap` and of the largest score. The
    answer is sum_c T_c^2 for each score, with T_c = clip(S_c, -K, K) and the sum S_c of integers in
    [-h, h] over the rows of cluster c. A row is in at most `most` of the places; a row in more
    places counts as zero. Rows that are incomplete or lack a cluster also count as zero.

    *Adding or removing a row* changes S_c of one cluster by at most h. Clipping does not increase
    differences, so T_c changes by at most h, between -K and K. Then T_c^2 changes by at most
    K^2 - (K - h)^2 = (2K - h) h. This holds for at most `most` scores. If the row is alone in its
    cluster, T_c was 0, and T_c^2 changes by at most h^2. The number of clusters changes by one in
    this case only.

    *Replacing a row* removes one row and adds another, perhaps in another cluster. Let M = `most`
    and let beta be the weight of the number of clusters.

    - If this number stays the same, the answer changes by at most 2 sqrt(M) (2K - h) h.
    - If it changes by one, either the removed row was alone in its cluster and the new row joins
      another, or the reverse. The squared change is at most M (h^2 + (2K - h) h)^2 + beta^2, which
      is M (2 K h)^2 + beta^2.

    The weight beta makes both bounds equal. Replacing a row by one that counts as zero is a
    removal, with a squared change of at most M h^4 + beta^2, which is smaller because h <= 2 K. For
    adding or removing, the bounds are sqrt(M) (2K - h) h and the root of M h^4 + beta^2, and beta
    makes them equal too. Therefore the number of clusters has no cost. beta is positive because
    K >= 2 h.

    The sum is clipped at 2^62, which does not increase differences either. The proof is for one
    row. `max_rows` rows of a unit are replaced one by one, so they change the answer by at most
    `max_rows` times as much.
    """

    scores: tuple[CutScore, ...]
    places: tuple[int, ...]
    most: int
    cap: float
    neighbors: Neighbors

    query = "squared cluster sums"

    @property
    def _cap(self) -> int:
        """K."""
        return int(max(self.cap, LEAST_CAP) * ONE)

    @property
    def units(self) -> Vector:
        """Natural units of a squared sum, and 1 for the number of clusters."""
        return np.array([*((score.unit / ONE) ** 2 for score in self.scores), 1.0])

    @property
    def weights(self) -> Vector:
        joins, alone = self._moved
        if self.neighbors == "substitute":
            joins, alone = 2 * joins, joins + alone
        beta = np.sqrt(self.most * (joins - alone) * (joins + alone)) * (1 - 2.0**-40)
        return np.array([*np.ones(len(self.scores)), beta])

    @property
    def _moved(self) -> tuple[float, float]:
        """Largest change of one T_c^2 by a row, and by a row that is alone in its cluster."""
        return float((2 * self._cap - ONE) * ONE), float(ONE**2)

    def sensitivity(self, neighbors: Neighbors) -> float:
        rows = 2.0 if neighbors == "substitute" else 1.0
        return float(rows * np.sqrt(self.most) * self._moved[0])

    def solve(self, batches: Iterable[Batch]) -> Integers:
        sums = np.zeros((1 + len(self.scores), 0))  # Whole numbers far below 2^53; last, rows.
        for batch in batches:  # Transforms may divide by zero in rows that do not count.
            assert batch.cluster is not None
            inside = np.column_stack([np.ones(len(batch.cluster)), batch.member])[:, self.places]
            counted = batch.complete & (batch.cluster >= 0)
            at = np.where(counted, batch.cluster, 0)
            new = max(int(at.max(initial=-1)) + 1 - sums.shape[1], 0)
            sums = np.pad(sums, ((0, 0), (0, new)))
            few = counted & (inside.sum(axis=1) <= self.most)
            with np.errstate(all="ignore"):
                rows = [
                    np.where(few, np.rint(score(batch)[:, 0] * ONE) * member, 0.0)
                    for score, member in zip(self.scores, inside.T, strict=True)
                ]
            for k, values in enumerate((*rows, counted)):
                sums[k] += np.bincount(at, values, minlength=sums.shape[1])
        clipped = np.clip(sums[:-1], -self._cap, self._cap).astype(np.int64) ** 2
        # Exact sums, clipped at 2^62: squares below 2^51 are added in two parts of fewer bits.
        high, low = clipped >> 20, clipped & ((1 << 20) - 1)
        parts = zip(high.sum(axis=1).tolist(), low.sum(axis=1).tolist(), strict=True)
        totals = [min((above << 20) + below, LIMIT) for above, below in parts]
        return np.array([*totals, int((sums[-1] > 0).sum())], np.int64)
