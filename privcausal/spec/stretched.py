"""Features laid out anew for one release, each stretched as much as its moment is worth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from privcausal.spec.features import FeatureMap, Rows, squared_norm
from privcausal.spec.interactions import Interactions, parts
from privcausal.typing import Matrix, Vector


@dataclass(frozen=True, eq=False)
class Stretched:
    """stretch x (phi, psi), with row weights w = min(w_phi, cut / ||stretch x (phi, psi)||).

    Then ||w stretch x (phi, psi)|| <= cut, which bounds cross moments (not a Gram matrix), and rows
    shorter than the cut count as they do in moments of phi alone. `stretch` (p + K,) is positive.
    """

    features: FeatureMap
    products: Interactions | None
    stretch: Vector
    cut: float

    @property
    def size(self) -> int:
        return len(self.stretch)

    def of(self, rows: Rows) -> Matrix:
        out = rows.matrix(self.size)
        p = self.features.size
        for number, column in enumerate(rows.columns(self.features)):
            np.multiply(column, self.stretch[number], out=out[:, number])
        if self.products is not None:
            psi = rows.phi(self.products)
            for own, column, factor in zip(out.T[p:], psi.T, self.stretch[p:], strict=True):
                np.multiply(column, factor, out=own)
        return out

    def parts(self, rows: Rows) -> Iterator[tuple[slice, Rows]]:
        """The rows in parts whose features stay in cache while they are worked on."""
        return parts(self.features, rows) if self.products is None else self.products.parts(rows)

    def weight(self, values: Matrix) -> Vector:
        p = self.features.size
        own, norm2 = squared_norm(values[:, :p] / self.stretch[:p]), squared_norm(values)
        weight = np.minimum(1.0, self.features.cut**2 / own)
        return np.minimum(weight, self.cut / np.sqrt(np.maximum(norm2, 1e-300)))
