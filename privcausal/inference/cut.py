"""Where to cut a score, chosen from a noisy histogram of its size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcausal.typing import Vector

HALF_OCTAVES = 16
TAIL = 3.0
"""Tail bins count only at this many noise sd: with 17 bins, 2 % of releases invent a tail."""


def edges(bound: float) -> Vector:
    """Bin borders from bound / 2^8 to bound in half octaves, ascending, shape (17,)."""
    return np.asarray(bound * 2.0 ** (-np.arange(HALF_OCTAVES, -1, -1) / 2))


@dataclass(frozen=True, eq=False)
class Sizes:
    """What a noisy histogram says of |score|: cleaned counts per bin."""

    edges: Vector
    counts: Vector
    noise_sd: float

    @property
    def typical(self) -> Vector:
        """A value inside each bin."""
        return np.asarray(0.85 * self.edges)

    @property
    def total(self) -> float:
        return float(max(self.counts.sum(), 1.0))

    def excess(self, cut: float) -> float:
        """Mean of (|score| - cut)+ as far as the histogram shows."""
        return float(self.counts @ np.maximum(self.typical - cut, 0.0)) / self.total

    def rms(self, cut: float) -> float:
        """Root mean square of the score cut at `cut`."""
        return float(np.sqrt(self.counts @ np.minimum(self.typical, cut) ** 2 / self.total))

    def below(self, cut: float) -> float:
        """Share of scores below `cut`."""
        return float(np.interp(cut, self.edges, np.cumsum(self.counts) / self.total))

    @property
    def reach(self) -> float:
        """Upper border of the last bin that stands out."""
        seen = np.flatnonzero(self.counts > 0)
        return float(self.edges[seen[-1]]) if len(seen) else float(self.edges[-1])


def read(counts: Vector, noise_sd: float, borders: Vector) -> Sizes:
    """Drop tail bins that do not stand out from the noise."""
    kept = counts.copy()
    for i in range(len(kept) - 1, -1, -1):
        if kept[i] >= TAIL * noise_sd and kept[i] > 0:
            break
        kept[i] = 0.0
    if not kept.any():  # all noise: assume the widest, which costs accuracy and never the claim
        kept[-1] = 1.0
    return Sizes(borders, np.maximum(kept, 0.0), noise_sd)


def trade(sizes: Sizes, noise_per_cut: float, *, weight: float = 2.0, bias: float = 0.3) -> float:
    """Cut of least weight (noise_per_cut M)^2 + (bias x excess(M))^2: for estimating tau(x)."""
    grid = np.geomspace(sizes.edges[2], sizes.edges[-1], 60)
    loss = [weight * (noise_per_cut * m) ** 2 + (bias * sizes.excess(m)) ** 2 for m in grid]
    return float(grid[int(np.argmin(loss))])


def generous(sizes: Sizes) -> float:
    """Half an octave beyond the last bin that stands out: for averages that claim coverage."""
    return float(min(sizes.reach * np.sqrt(2.0), sizes.edges[-1]))


def unseen_bias(sizes: Sizes, cut: float) -> float:
    """Clipping bias to allow for: the tail beyond the cut if bins keep falling as the last ones.

    Half of the noise threshold's rows might sit in the first bin beyond the cut without standing
    out; counts are taken to halve from bin to bin after it, and signs to agree for a third.
    """
    if cut >= sizes.edges[-1]:
        return 0.0
    beyond = sizes.edges[sizes.edges > cut * (1 + 1e-9)]
    rows = 0.5 * TAIL * sizes.noise_sd * 0.5 ** np.arange(len(beyond))
    return float(rows @ (beyond - cut)) / sizes.total / 3.0
