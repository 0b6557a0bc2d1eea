"""Features beyond the additive ones: products of columns, and powers of two released indices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcausal.spec.features import FeatureMap, Rows, combine, squared_norm
from privcausal.typing import Matrix, Vector

REACH = 2.5
"""An index and a factor of a product are cut to this many standard deviations."""


@dataclass(frozen=True, eq=False)
class Index:
    """A released linear combination of additive features, standardised and cut."""

    coef: Vector
    shift: float
    scale: float

    def __call__(self, phi: Matrix) -> Vector:
        return np.clip((combine(phi, self.coef) - self.shift) / self.scale, -REACH, REACH)


@dataclass(frozen=True, eq=False)
class Interactions:
    """psi(x): what additive features cannot express, with them regressed out.

    Columns: for indices u, v of propensity and outcome all products of degree 2 and 3 (an index
    gathers what confounds, whatever the number of columns), products of pairs of linear features,
    and for some pairs products with their curvatures. `lift`
    (p, K) is the regression of the raw columns on phi in the synthetic population; `gain` (K,)
    sets their sizes. Rows get the weight w = min(1, (cut / ||psi||)^2), as in `FeatureMap`.
    """

    features: FeatureMap
    indices: tuple[Index, Index]
    pairs: tuple[tuple[int, int], ...]
    curved: tuple[tuple[int, int], ...]
    scales: Vector
    lift: Matrix
    gain: Vector
    cut: float

    @cached_property
    def size(self) -> int:
        return len(self.gain)

    def of(self, rows: Rows) -> Matrix:
        """psi, shape (n, K)."""
        phi = np.asfortranarray(rows.phi(self.features))  # read column by column
        raw = self.raw(phi)
        for k in range(raw.shape[1]):
            raw[:, k] = self.gain[k] * (raw[:, k] - combine(phi, self.lift[:, k]))
        return raw

    def raw(self, phi: Matrix) -> Matrix:
        """Products before additive features are regressed out, shape (n, K)."""
        u, v = (index(phi) for index in self.indices)
        own = [u * u, u * v, v * v]
        # Hermite products: what squares already say is left out
        own += [(u * u - 3) * u, (u * u - 1) * v, (v * v - 1) * u, (v * v - 3) * v]
        linear = {
            j: np.clip(phi[:, j] / self.scales[j], -REACH, REACH)
            for j in {j for pair in (*self.pairs, *self.curved) for j in pair}
        }
        products = [linear[i] * linear[j] for i, j in self.pairs]
        for i, j in self.curved:
            first, second = linear[i] ** 2 - 1, linear[j] ** 2 - 1
            products += [first * linear[j], linear[i] * second, first * second]
        return np.stack([*own, *products], axis=1)

    def weight(self, psi: Matrix) -> Vector:
        return np.minimum(1.0, self.cut**2 / np.maximum(squared_norm(psi), 1e-300))
