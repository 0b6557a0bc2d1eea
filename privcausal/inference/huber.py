"""What cutting scores does to their slope, as in Huber's (1964) estimate of a location.

A score s = w (Y - m) is cut at M. If the means m are off by what a wrong constant effect makes of
them, uncut scores tell of it in full and cut ones not at all: the sum of cut scores falls by
E[slope 1(|s| < M)] where the mass, E[slope], says it would fall by more. The ratio by the mass
would then stay near the centre that the scores were cut around. Dividing by the part of the slope
that is kept mends that, to first order, as Newton's step to Huber's estimate would.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from privcausal.typing import Matrix

LEAST_KEPT = 0.5
"""No more than half the slope is taken to be lost: the model below is too rough for more."""


def slope_kept(weights: Matrix, slopes: Matrix, chances: Matrix, cut: float, rms: float) -> float:
    """The share of the slope that is left after the cut, for normal residuals.

    Parameters
    ----------
    weights, slopes, chances : Matrix
        w, the slope of its score, and the probability of the arm: a row for each arm and a column
        for each point of the synthetic population, shape (2, N).
    cut : float
        M.
    rms : float
        Root mean square of the scores after the cut, which tells the residuals' size.
    """
    sizes = np.abs(weights) / cut

    def excess(log_sd: float) -> float:
        x = 1 / (sizes * np.exp(log_sd) + 1e-12)
        inside = 1 - 2 * norm.sf(x)
        # E min((z / x)^2, 1) for a standard normal z
        square = (inside - 2 * x * norm.pdf(x)) / x**2 + 2 * norm.sf(x)
        return float((chances * square).mean() * 2 - (rms / cut) ** 2)

    scale = np.log(cut / np.abs(weights).max())
    low, high = scale - 12.0, scale + 12.0
    if excess(high) <= 0:
        return LEAST_KEPT
    sd = np.exp(brentq(excess, low, high)) if excess(low) < 0 else np.exp(low)
    inside = 1 - 2 * norm.sf(1 / (sizes * sd + 1e-12))
    kept = float((chances * slopes * inside).sum() / (chances * slopes).sum())
    return max(kept, LEAST_KEPT)
