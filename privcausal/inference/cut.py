"""Where to cut what a shape is learned from, chosen from a noisy histogram of its size.

For averages, whose intervals claim coverage, see `score_cut`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcausal.typing import Vector

HALF_OCTAVES = 16
TAIL, COMPANY, LONE = 3.0, 2.0, 4.0
"""A tail bin counts at TAIL noise sds if the bin below it has COMPANY of them, and at LONE else:
with 17 bins one release in a thousand invents a tail."""

NEAR = 4
"""Bins (two octaves) beyond the last that stands out whose noisy counts together tell of a tail."""

ONE_SIDED = 0.4
"""Of the bias that scores beyond the cut can make at most, what is allowed for as a standard
deviation: measured on outcomes that are skewed, where all of them have one sign."""


def edges(bound: float) -> Vector:
    """Bin borders in half octaves, ascending: from bound / 2^8 to the bound."""
    return np.asarray(bound * 2.0 ** (-np.arange(HALF_OCTAVES, -1, -1) / 2))


@dataclass(frozen=True, eq=False)
class Sizes:
    """What a noisy histogram says of |score|: cleaned counts per bin; `silent`: it says nothing.

    `tail` is the noisy number of scores in the `NEAR` bins beyond the last that stands out.
    """

    edges: Vector
    counts: Vector
    noise_sd: float
    silent: bool = False
    tail: float = 0.0

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

    def quantile(self, share: float) -> float:
        """The least border with at least this share of scores below; the widest if it is silent."""
        if self.silent:
            return float(self.edges[-1])
        seen = np.cumsum(self.counts) >= share * self.total
        return float(self.edges[int(np.argmax(seen))])

    @property
    def reach(self) -> float:
        """Upper border of the last bin that stands out."""
        return float(self.edges[np.flatnonzero(self.counts > 0)[-1]])


def read(counts: Vector, noise_sd: float, borders: Vector) -> Sizes:
    """Drop tail bins that do not stand out from the noise."""
    kept = counts.copy()
    for i in range(len(kept) - 1, -1, -1):
        lone = i > 0 and kept[i - 1] < COMPANY * noise_sd
        if kept[i] >= (LONE if lone else TAIL) * noise_sd and kept[i] > 0:
            break
        kept[i] = 0.0
    last = int(np.flatnonzero(kept)[-1]) if kept.any() else len(kept)
    tail = float(counts[last + 1 : last + 1 + NEAR].sum())
    silent = not kept.any()
    if silent:  # all noise: assume the widest, which costs accuracy and never the claim
        kept[-1] = 1.0
    return Sizes(borders, np.maximum(kept, 0.0), noise_sd, silent, tail)


def trade(sizes: Sizes, noise_per_cut: float, *, weight: float = 2.0, bias: float = 0.3) -> float:
    """Cut of least weight (noise_per_cut M)^2 + (bias x excess(M))^2: for estimating tau(x)."""
    grid = np.geomspace(sizes.edges[2], sizes.edges[-1], 60)
    loss = [weight * (noise_per_cut * m) ** 2 + (bias * sizes.excess(m)) ** 2 for m in grid]
    return float(grid[int(np.argmin(loss))])


def unseen_bias(sizes: Sizes, cut: float) -> float:
    """Clipping bias to allow for, as a standard deviation, where a shape is learned.

    Scores beyond the cut: those the histogram shows, which count in full, as the scores of a skewed
    outcome have one sign there; and those that no bin of it shows, by half a cut each and the part
    `ONE_SIDED`. These are half the rows that it would take to stand out, or what the bins beyond
    hold together if that is more; and at most the share 4/9 (rms/cut)^2 that a unimodal law can
    have there (Vysochanskij and Petunin 1980).
    """
    if cut >= sizes.edges[-1]:
        return 0.0
    unseen = max(0.5 * TAIL * sizes.noise_sd, sizes.tail) / sizes.total
    hidden = min(unseen, (4.0 / 9.0) * (sizes.rms(cut) / cut) ** 2)
    return sizes.excess(cut) + ONE_SIDED * 0.5 * hidden * cut
