"""Where most outcomes are, from a noisy histogram of them: the declared range may be far wider."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from privcausal.typing import Vector

BINS = 32
"""Bins of equal width over the declared range."""

CENTRES, SPREADS = 63, 25
"""Means and standard deviations of normal laws that are tried."""

STANDS_OUT = 2.5
"""A bin counts beyond the normal laws at this many noise sds."""

TAILS = (0.1, 0.08, 0.06, 0.04, 0.03, 0.02, 0.01, 0.005, 0.002, 0.001)
"""Shares of the rows that may be cut on each side."""

EXPLAINED = 0.5
"""Share of the outcome's variance that covariates might explain: what cutting would shrink."""


def borders(lo: float, hi: float) -> Vector:
    """Upper borders of the bins above `lo`, ascending to the range hi - lo; shape (BINS,)."""
    return np.asarray((hi - lo) * np.arange(1, BINS + 1) / BINS)


def window(
    counts: Vector, noise_sd: float, lo: float, hi: float, count: float, noise_per_width: float
) -> tuple[float, float]:
    """Interval to which outcomes are cut where their mean given covariates is learned.

    Noise of the moments grows with the interval's width; cutting shrinks slopes by the share of
    rows that are cut (Stein's lemma, for a normal outcome). The interval of least squared error
    is taken, of those that cut the same share on both sides, or the declared range.

    Parameters
    ----------
    counts : Vector
        Noisy counts of the bins, shape (BINS,), with noise of sd `noise_sd`.
    lo, hi : float
        The outcome's declared bounds.
    count : float
        (Noisy) number of rows.
    noise_per_width : float
        Noise sd of the fitted function by the moments, per unit of half the interval's width.
    """
    if noise_sd == 0:
        return lo, hi
    share = _shares(counts, noise_sd, count)
    upper = np.cumsum(share)
    grid = np.arange(BINS + 1) / BINS
    middle = grid[:-1] + 0.5 / BINS
    variance = float(share @ middle**2 - (share @ middle) ** 2)

    def loss(width: float, cut: float) -> float:
        return (noise_per_width * 0.5 * width) ** 2 + EXPLAINED * variance * cut**2

    best, found = loss(1.0, 0.0), (0.0, 1.0)
    for tail in TAILS:
        low, high = np.interp([tail, 1 - tail], np.r_[0.0, upper], grid)
        if high > low and loss(high - low, 2 * tail) < best:
            best, found = loss(high - low, 2 * tail), (float(low), float(high))
    return lo + (hi - lo) * found[0], lo + (hi - lo) * found[1]


def _shares(counts: Vector, noise_sd: float, count: float) -> Vector:
    """Shares of the bins: of normal laws, averaged by likelihood, and what is seen beyond them."""
    grid = np.arange(BINS + 1) / BINS
    centres = np.linspace(0.0, 1.0, CENTRES)[:, None, None]
    spreads = np.geomspace(0.5 / BINS, 0.5, SPREADS)[None, :, None]
    below = ndtr((grid - centres) / spreads)
    below[..., 0], below[..., -1] = 0.0, 1.0
    laws = count * np.diff(below, axis=-1).reshape(-1, BINS)
    logs = -0.5 * ((counts - laws) ** 2).sum(axis=1) / noise_sd**2
    chance = np.exp(logs - logs.max())
    model = chance @ laws / chance.sum()
    signal = max(float(((counts - model) ** 2).mean()) - noise_sd**2, 0.0)
    keep = signal / (signal + noise_sd**2)
    seen = np.where(counts > STANDS_OUT * noise_sd, counts, 0.0)
    mixed = (1 - keep) * model + keep * seen
    return np.asarray(mixed / mixed.sum())
