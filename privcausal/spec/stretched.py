"""Features laid out anew for one release, each stretched as much as its moment is worth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from privcausal.spec.features import FeatureMap, Rows, squared_norm
from privcausal.spec.interactions import Interactions, parts
from privcausal.typing import Matrix, Singles, Vector


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
        return np.asarray(self.singles(rows), np.float64)

    def singles(self, rows: Rows) -> Singles:
        """The same, as it is made."""
        out, p = rows.singles(self.size), self.features.size
        if self.products is None:
            np.copyto(out, rows.phi(self.features), casting="same_kind")
            scale = self.stretch
        else:
            steps = self.products.steps(rows)
            np.copyto(out[:, :p], steps, casting="same_kind")
            self.products.beyond(rows, steps, out[:, p:])
            scale = self.stretch * np.r_[np.full(p, self.products.step), np.ones(self.size - p)]
        for own, factor in zip(out.T, scale.tolist(), strict=True):
            np.multiply(own, factor, out=own)
        return out

    def weighted(self, rows: Rows) -> tuple[Singles, Vector]:
        """The stretched features, and the rows' weights."""
        values = self.singles(rows)
        return values, self._weight(self.features.norm2(rows), values)

    def parts(self, rows: Rows) -> Iterator[tuple[slice, Rows]]:
        """The rows in parts whose features stay in cache while they are worked on."""
        return parts(self.features, rows) if self.products is None else self.products.parts(rows)

    def weight(self, values: Matrix) -> Vector:
        p = self.features.size
        return self._weight(squared_norm(values[:, :p] / self.stretch[:p]), values)

    def _weight(self, own: Vector, values: Matrix | Singles) -> Vector:
        weight = np.minimum(1.0, self.features.cut**2 / own)
        return np.minimum(weight, self.cut / np.sqrt(np.maximum(squared_norm(values), 1e-300)))
