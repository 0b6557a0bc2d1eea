"""Sums of units' paths of outcomes by cohort, for event studies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import helmert

from privcausal.features.basis import squared_norm
from privcausal.typing import Integers, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.queries.sums import MASS_WEIGHTS, BlockSums, QueryBlock


@dataclass(frozen=True)
class PathSize:
    """||z|| for the path z = H y of a unit: T outcomes in [lo, hi], without their mean.

    H are the T - 1 orthonormal contrasts of Helmert (1876), so that ||z||^2 = sum_t (y_t - mean)^2.
    This is convex in the outcomes, so it is largest if each is at one end. With k of T outcomes at
    hi, it is (hi - lo)^2 k (T - k) / T, which is largest at k = T // 2.
    """

    wide: tuple[str, ...]  # Columns of the outcomes after the first period
    width: float  # hi - lo

    @property
    def contrasts(self) -> Matrix:
        """H, shape (T - 1, T)."""
        return np.asarray(helmert(len(self.wide) + 1))

    @property
    def bound(self) -> float:
        periods = len(self.wide) + 1
        low = periods // 2
        return float(self.width * np.sqrt(low * (periods - low) / periods))

    def path(self, batch: Batch) -> Matrix:
        """z, shape (n, T - 1)."""
        contrasts, out = self.contrasts, np.zeros((len(batch.y), len(self.wide)))
        # Columns are added in a fixed order, so that a row gets the same bits in every block.
        for name, weights in zip(self.wide, contrasts.T[1:], strict=True):
            out += (np.asarray(batch.rows.frame[name]) - batch.y)[:, None] * weights
        return out

    def __call__(self, batch: Batch) -> Vector:
        return np.minimum(np.sqrt(squared_norm(self.path(batch))), self.bound)


@dataclass(frozen=True, eq=False)
class CohortSums(BlockSums):
    """Sums of x, of 1, and of the upper triangle of x x' by cohort, for clipped paths x.

    x is the path of the unit divided by `cut`. A path with norm above `cut` is shortened to norm
    `cut`. `cohorts` are the positions of the cohorts' labels; units of other cohorts count as zero.

    Privacy
    -------
    The rule of `BlockSums` applies, with cohorts as arms. Let beta and gamma be the weights of
    counts and products. A row adds v = (x, beta, gamma x x') to the block of its cohort, with
    |x| <= 1 and |x x'| = |x|^2 <= 1 in the Frobenius norm. Adding a row changes the sums by at most
    A, A^2 = 1 + beta^2 + gamma^2. Rows of different cohorts differ by at most sqrt(2) A.

    Two rows x and y of one cohort have the same count. Let c = x'y. Their squared distance is
    |x|^2 + |y|^2 - 2 c + gamma^2 (|x|^4 + |y|^4 - 2 c^2). For given c it grows with |x| and |y|, so
    it is at most 2 (1 - c) + 2 gamma^2 (1 - c^2). For c >= 0 this is at most 2 + 2 gamma^2. For
    c < 0 it is 2 (1 + |c|) (1 + gamma^2 (1 - |c|)). In |c|, the derivative is
    2 - 4 gamma^2 |c|, which is not negative if gamma^2 <= 1/2. The distance is then largest at
    |c| = 1, where it is 4. So for gamma^2 <= 1/2 it is at most 4, the bound of x alone, and the
    products are stated with a change of 0. Under substitution, beta^2 + gamma^2 <= 1 makes counts
    and products free. The weights are those of `ArmSums`.

    `grid_sum` drops a row with a larger norm (a fault).
    """

    size: PathSize
    cohort: str
    cohorts: tuple[int, ...]
    cut: float
    neighbors: Neighbors

    query = "sums by cohort"

    @property
    def arms(self) -> int:
        return len(self.cohorts)

    @cached_property
    def blocks(self) -> tuple[QueryBlock, ...]:
        count, square = MASS_WEIGHTS[self.neighbors][True]
        dim = len(self.size.wide)
        return (
            QueryBlock((dim,), 1.0, 4.0, unit=self.cut),
            QueryBlock((1,), 1.0, 0.0, weight=count),
            QueryBlock((), 1.0, 0.0, weight=square, unit=self.cut**2, matrix=dim),
        )

    def integers(self, batch: Batch) -> Integers:
        path = self.size.path(batch)
        x = (path / np.maximum(np.sqrt(squared_norm(path)), self.cut)[:, None]).T
        pairs = list(zip(*np.triu_indices(len(x)), strict=True))
        codes = np.asarray(batch.rows.frame[self.cohort])

        def columns(scale: float) -> Iterator[Vector]:
            yield from (one * scale for one in x)
            yield np.full(len(codes), scale)
            yield from (x[i] * x[j] * scale for i, j in pairs)

        return np.concatenate(
            [self.summed(columns, batch.complete & (codes == code)) for code in self.cohorts]
        )
