"""The distribution of survey weights, from a noisy histogram."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcausal.inference.ranges import visible_cells
from privcausal.typing import Vector

WEIGHT_HALF_OCTAVES = 24
"""Bins of the weights below their upper bound, down to a 4,000th of the bound."""

HEADROOM = 2.0
"""Largest weight in use, relative to the largest detected weight: few rows have larger weights."""

LARGEST_USUAL = 2.0
"""Largest weight in the nuisances, relative to the mean weight.

The noise of the nuisances, relative to their moments, grows with this number. Larger weights count
as this weight there. This matters only if weights depend on treatment or outcome among rows with
equal covariates.
"""


def weight_edges(bound: float) -> Vector:
    """Upper borders of bins of half an octave each, ascending to the bound."""
    return np.asarray(bound * 2.0 ** (-0.5 * np.arange(WEIGHT_HALF_OCTAVES, -1, -1)))


@dataclass(frozen=True, eq=False)
class WeightLaw:
    """Weights of a column: uniform between neighboring `edges` (K + 1,), with chances `p` (K,).

    `top` is the largest weight in use, and `most` the largest weight in the nuisances, relative to
    the mean. Larger weights count as these.
    """

    column: str
    edges: Vector
    p: Vector
    top: float
    most: float = LARGEST_USUAL

    @classmethod
    def read(
        cls,
        column: str,
        counts: Vector,
        noise_sd: float,
        edges: Vector,
        most: float = LARGEST_USUAL,
    ) -> WeightLaw:
        """From noisy counts up to each of the `edges`; counts hidden by noise are dropped."""
        ends = np.r_[0.0, edges]
        seen = np.where(visible_cells(counts, noise_sd, 1), np.maximum(counts, 0.0), 0.0)
        if not seen.any():  # all noise: weights may be anything
            seen = np.diff(ends)
        top = min(HEADROOM * float(edges[np.flatnonzero(seen)[-1]]), float(edges[-1]))
        return cls(column, ends, seen / seen.sum(), top, most)

    def quantiles(self, chance: Vector) -> Vector:
        return np.interp(chance, np.r_[0.0, np.cumsum(self.p)], self.edges)

    @cached_property
    def mean(self) -> float:
        return float(self.p @ (self.edges[1:] + self.edges[:-1])) / 2

    @property
    def design_effect(self) -> float:
        """E[w^2] / E[w]^2: the factor of a mean's variance, for equal variances (Kish 1965)."""
        low, high = self.edges[:-1], self.edges[1:]
        return float(self.p @ (low**2 + low * high + high**2)) / 3 / self.mean**2

    @property
    def usual(self) -> float:
        """Largest weight in the nuisances."""
        return min(self.most * self.mean, self.top)

    @property
    def usual_mean(self) -> float:
        """Mean of the weights in the nuisances, relative to the largest of them."""
        low, high, c = self.edges[:-1], self.edges[1:], self.usual
        cut = np.clip(c, low, high)
        # mean of min(w, c) for w uniform between low and high
        inside = (cut - low) * (cut + low) / 2 + (high - cut) * c
        return float(self.p @ (inside / (high - low))) / c
