"""A noisy histogram of residual products, helped by what residuals usually look like."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import ndtr

from privcausal.inference.cut import Sizes, read
from privcausal.typing import Matrix, Vector

SCALES = 60
"""Residual sds that are tried, from the first border of the bins to the last."""


def modelled(counts: Vector, noise_sd: float, borders: Vector, count: float, e: Vector) -> Sizes:
    """Cleaned counts of |(T - e)(Y - eta)|, moved towards those of a normal residual.

    Few rows or little budget leave a histogram that is mostly noise, and a cut read from it may be
    far off. With a residual N(0, s^2) the product is normal within each arm, with sd s e(x) or
    s (1 - e(x)); s is averaged over by its likelihood. What the noisy counts say beyond noise is
    kept: tails that are heavier than normal count as soon as they can be seen.

    Parameters
    ----------
    counts : Vector
        Noisy counts per bin, shape (K,), with upper `borders` (K,).
    count : float
        (Noisy) number of rows.
    e : Vector
        Propensities of a synthetic population, shape (N,).
    """
    seen = read(counts, noise_sd, borders)
    if noise_sd == 0 or (seen.silent and counts.sum() <= noise_sd):
        return seen
    law = count * _chances(borders, e)
    logs = -0.5 * ((counts - law) ** 2).sum(axis=1) / noise_sd**2
    chance = np.exp(logs - logs.max())
    model = chance @ law / chance.sum()
    signal = max(float(((counts - model) ** 2).mean()) - noise_sd**2, 0.0)
    keep = 0.0 if seen.silent else signal / (signal + noise_sd**2)
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
