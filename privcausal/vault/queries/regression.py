"""Moments of a regression: of columns and residuals, of outliers, and of squared residuals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from privcausal.features import basis
from privcausal.typing import Integers, Matrix, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.queries import sums
from privcausal.vault.queries.moments import RowProducts, grid_rows, row_scale, surely
from privcausal.vault.transforms import RegressionRow


@dataclass(frozen=True)
class RegressionMoments(RowProducts):
    """Sum of z z' over rows, for the vectors z of `joint`: the normal equations of a regression.

    Privacy
    -------
    z = (w u, t e) with ||w u|| <= L and t |e| <= sqrt(C^2 - ||w u||^2). Hence ||z|| <= C, the
    `bound` of `RowProducts`, and the rule there applies.
    """

    joint: RegressionRow

    @property
    def size(self) -> int:
        return self.joint.features.size + 1

    @property
    def bound(self) -> float:
        return self.joint.cut

    def rows(self, batch: Batch) -> Matrix:
        weight, last = self.joint.parts(batch)
        scale = row_scale(self.size) / self.bound
        out, root = batch.rows.matrix(self.size), weight * scale
        phi = basis.columns_of(self.joint.features, batch.rows)
        for column, own in zip(phi, out[:, :-1].T, strict=True):
            np.rint(np.multiply(column, root, out=own), out=own)
        np.rint(np.multiply(last, self.joint.scale * scale, out=out[:, -1]), out=out[:, -1])
        return surely(out)


@dataclass(frozen=True)
class ResidualMoments(RowProducts):
    """Sum of v v' over rows: v = w u (e - w u'delta), shortened to norm `cut` (a sandwich's meat).

    Privacy
    -------
    ||v|| <= `cut`, the `bound` of `RowProducts`, and the rule there applies.
    """

    joint: RegressionRow
    delta: Vector
    cut: float

    @property
    def size(self) -> int:
        return self.joint.features.size

    @property
    def bound(self) -> float:
        return self.cut

    def rows(self, batch: Batch) -> Matrix:
        weight, left = self.joint.left(batch, self.delta)
        root = weight * left
        size = np.abs(root) * np.sqrt(basis.squared_norm(batch.rows.phi(self.joint.features)))
        root *= np.minimum(1.0, self.cut / np.maximum(size, basis.TINY))
        return grid_rows(self.joint.features, batch.rows, root, self.cut)


@dataclass(frozen=True, eq=False)
class OutlierSums(sums.BlockSums):
    """Sums of w u g over rows with residuals above `at`, and over rows below -`at`.

    g = min((|r| - at) / at, 1). With u whitened columns, the two sums are the directions to which
    clipping residuals moves a regression.

    Privacy
    -------
    The rule of `BlockSums` applies, with the two signs of r as arms. A row has one sign. It adds a
    vector of norm ||w u|| g / L <= 1 to the sums of its sign, in units of L. Two rows of one sign
    differ by at most 2.
    """

    joint: RegressionRow
    at: float

    arms = 2

    @property
    def query(self) -> str:
        return f"outliers, p = {self.joint.features.size}"

    @property
    def blocks(self) -> tuple[sums.QueryBlock, ...]:
        shape, most = (self.joint.features.size,), self.joint.features.cut
        return (sums.QueryBlock(shape, 1.0, 4.0, unit=most),)

    def integers(self, batch: Batch) -> Integers:
        weight, rest, _ = self.joint.weighted(batch)
        beyond = np.minimum((np.abs(rest) - self.at) / self.at, 1.0) / self.joint.features.cut
        u = batch.rows.phi(self.joint.features)
        found = []
        for sign in (1, -1):
            far = np.flatnonzero(batch.complete & (sign * rest > self.at))  # false for NaN
            own, root = u[far], weight[far] * beyond[far]

            def columns(scale: float, own: Matrix = own, root: Vector = root) -> Iterator[Vector]:
                yield from (column * (root * scale) for column in own.T)

            found.append(self.summed(columns, np.ones(len(far), bool)))
        return np.concatenate(found)
