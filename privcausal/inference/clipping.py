"""Where residual products and outcomes are cut for learning a shape, from noisy histograms.

A cut trades noise against an estimate of the bias, not a bound of it. That may bias a shape or a
nuisance, but an average only by the product with the error of the propensity. For averages, whose
intervals claim coverage, see `score_cut`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import signal_share
from privcausal.request.schema import Interval
from privcausal.typing import Matrix, Vector

HALF_OCTAVES = 16
"""Bins, from a 256th of the bound on: lower cuts are never worth it."""

CUTS = 60
"""Cuts that are tried, 9 % apart."""

TAIL, COMPANY, LONE = 3.0, 2.0, 4.0
"""A tail bin counts at TAIL noise sds if the bin below it has COMPANY of them, and at LONE else:
with 17 bins one release in a thousand invents a tail."""

NEAR = 4
"""Bins (two octaves) beyond the last that stands out, whose counts together tell of a tail."""


def size_edges(bound: float) -> Vector:
    """Bin borders in half octaves, from bound / 2^8 to the bound."""
    return np.asarray(bound * 2.0 ** (-np.arange(HALF_OCTAVES, -1, -1) / 2))


@dataclass(frozen=True, eq=False)
class AbsHistogram:
    """Cleaned counts of |score| by bin; `silent` if nothing stands out.

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
        return np.asarray(PRIORS.bin_typical * self.edges)

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
        return float(self.edges[np.flatnonzero(self.counts > 0)[-1]])


def cleaned(counts: Vector, noise_sd: float, borders: Vector) -> AbsHistogram:
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
    return AbsHistogram(borders, np.maximum(kept, 0.0), noise_sd, silent, tail)


def threshold_for_effect(
    sizes: AbsHistogram, noise_per_cut: float, *, bias: float = PRIORS.cut_bias
) -> float:
    """Cut of least cut_noise (noise_per_cut M)^2 + (bias x excess(M))^2, for estimating tau(x)."""
    grid = np.geomspace(sizes.edges[2], sizes.edges[-1], CUTS)
    loss = [
        PRIORS.cut_noise * (noise_per_cut * m) ** 2 + (bias * sizes.excess(m)) ** 2 for m in grid
    ]
    return float(grid[int(np.argmin(loss))])


def cut_of_least_error(sizes: AbsHistogram, noise_per_cut: float) -> tuple[float, float]:
    """Cut of least squared noise and squared bias (`unseen_bias`), and that bias."""
    grid = np.geomspace(sizes.edges[2], sizes.edges[-1], CUTS)
    bias = np.array([unseen_bias(sizes, m) for m in grid])
    best = int(np.argmin((noise_per_cut * grid) ** 2 + bias**2))
    return float(grid[best]), float(bias[best])


def unseen_bias(sizes: AbsHistogram, cut: float) -> float:
    """Clipping bias to allow for, as a standard deviation, where a shape is learned.

    Scores beyond the cut that the histogram shows count in full, as those of a skewed outcome have
    one sign there. Those that no bin shows count by half a cut each and the part
    `Priors.one_sided`. They are half the rows that would stand out, or what the bins beyond hold
    together if that is more; and at most the share 4/9 (rms/cut)^2 that a unimodal law can have
    there (Vysochanskij and Petunin 1980).
    """
    if cut >= sizes.edges[-1]:
        return 0.0
    unseen = max(0.5 * TAIL * sizes.noise_sd, sizes.tail) / sizes.total
    hidden = min(unseen, (4.0 / 9.0) * (sizes.rms(cut) / cut) ** 2)
    return sizes.excess(cut) + PRIORS.one_sided * 0.5 * hidden * cut


# -- sizes of residual products ---------------------------------------------------------------

SCALES = 60
"""Residual sds that are tried: a grid from the first border of the bins to the last."""


def denoise_normal(
    counts: Vector, noise_sd: float, borders: Vector, count: float, e: Vector
) -> AbsHistogram:
    """Cleaned counts of |(T - e)(Y - eta)|, shrunk towards those of a normal residual.

    With few rows or little budget the histogram is mostly noise, and a cut read from it may be far
    off. With a residual N(0, s^2) the product is normal within each arm, with sd s e(x) or s (1 -
    e(x)); s is averaged over by its likelihood. What the counts say beyond noise is kept: heavier
    tails count as soon as they can be seen.

    Parameters
    ----------
    counts, borders : Vector
        Noisy counts per bin and upper borders, shape (K,).
    count : float
        (Noisy) number of rows.
    e : Vector
        Propensities of a synthetic population, shape (N,).
    """
    seen = cleaned(counts, noise_sd, borders)
    if noise_sd == 0 or (seen.silent and counts.sum() <= noise_sd):
        return seen
    law = count * _chances(borders, e)
    logs = -0.5 * ((counts - law) ** 2).sum(axis=1) / noise_sd**2
    chance = np.exp(logs - logs.max())
    model = chance @ law / chance.sum()
    keep = 0.0 if seen.silent else signal_share(counts - model, noise_sd**2)
    return replace(seen, counts=(1 - keep) * model + keep * seen.counts, silent=False)


def _chances(borders: Vector, e: Vector) -> Matrix:
    """Probability of each bin for every sd of the residual, shape (SCALES, K)."""
    scales = np.geomspace(borders[0], borders[-1], SCALES)
    arms = np.concatenate([e, 1 - e])
    weight = np.concatenate([1 - e, e]) / len(e)
    below = 2 * ndtr(borders[:, None, None] / (scales[:, None] * arms)) - 1
    upto = (below @ weight).T
    upto[:, -1] = 1.0
    return np.asarray(np.diff(upto, axis=1, prepend=0.0))


# -- the outcome ------------------------------------------------------------------------------

BINS = 32
"""Equal bins of the declared range, between whose borders a window's ends are interpolated."""

CENTRES, SPREADS = 63, 25
"""Means and standard deviations of normal laws that are tried: finer than noise can tell."""

STANDS_OUT = 2.5
"""A bin counts beyond the normal laws at this many noise sds: 18 % of histograms have such a bin by
luck, which widens the window."""

TAILS = (0.1, 0.08, 0.06, 0.04, 0.03, 0.02, 0.01, 0.005, 0.002, 0.001)
"""Shares of the rows that may be cut on each side: a grid."""


def window_borders(bounds: Interval) -> Vector:
    """Upper borders of the bins above the lower end, up to the range; shape (BINS,)."""
    return np.asarray(bounds.width * np.arange(1, BINS + 1) / BINS)


def outcome_window(
    counts: Vector, noise_sd: float, lo: float, hi: float, count: float, noise_per_width: float
) -> tuple[float, float]:
    """Interval to which outcomes are cut where their mean given covariates is learned.

    Noise of the moments grows with its width; cutting shrinks slopes by the share of rows that are
    cut (Stein's lemma, for a normal outcome). Of intervals that cut the same share on both sides,
    and the declared range, the one of least squared error is taken.

    Parameters
    ----------
    counts : Vector
        Noisy counts of the bins, shape (BINS,).
    lo, hi : float
        The outcome's declared bounds.
    count : float
        (Noisy) number of rows.
    noise_per_width : float
        Noise sd of the fitted function per unit of half the interval's width.
    """
    if noise_sd == 0:
        return lo, hi
    share = _shares(counts, noise_sd, count)
    upper = np.cumsum(share)
    grid = np.arange(BINS + 1) / BINS
    middle = grid[:-1] + 0.5 / BINS
    variance = float(share @ middle**2 - (share @ middle) ** 2)

    def loss(width: float, cut: float) -> float:
        return (noise_per_width * 0.5 * width) ** 2 + PRIORS.window_explained * variance * cut**2

    best, found = loss(1.0, 0.0), (0.0, 1.0)
    for tail in TAILS:
        low, high = np.interp([tail, 1 - tail], np.r_[0.0, upper], grid)
        if high > low and loss(high - low, 2 * tail) < best:
            best, found = loss(high - low, 2 * tail), (float(low), float(high))
    return lo + (hi - lo) * found[0], lo + (hi - lo) * found[1]


def _shares(counts: Vector, noise_sd: float, count: float) -> Vector:
    """Shares of the bins: normal laws averaged by likelihood, and what is seen beyond them."""
    grid = np.arange(BINS + 1) / BINS
    centres = np.linspace(0.0, 1.0, CENTRES)[:, None, None]
    spreads = np.geomspace(0.5 / BINS, 0.5, SPREADS)[None, :, None]
    below = ndtr((grid - centres) / spreads)
    below[..., 0], below[..., -1] = 0.0, 1.0
    laws = count * np.diff(below, axis=-1).reshape(-1, BINS)
    logs = -0.5 * ((counts - laws) ** 2).sum(axis=1) / noise_sd**2
    chance = np.exp(logs - logs.max())
    model = chance @ laws / chance.sum()
    keep = signal_share(counts - model, noise_sd**2)
    seen = np.where(counts > STANDS_OUT * noise_sd, counts, 0.0)
    mixed = (1 - keep) * model + keep * seen
    return np.asarray(mixed / mixed.sum())
