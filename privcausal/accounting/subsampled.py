"""The Poisson-subsampled Gaussian mechanism, composed, and what it costs to draw its noise exactly.

Sources: Mironov, Talwar and Zhang (2019), *Rényi Differential Privacy of the Sampled Gaussian
Mechanism*; Canonne, Kamath and Steinke (2020), *The Discrete Gaussian for Differential Privacy*.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import gammaln, logsumexp, xlog1py

from privcausal.accounting.gaussian import rounding_slack
from privcausal.errors import BudgetError

LEAST, MOST = 0.25, 2.0**20
"""Noise multipliers: below the first no epsilon is of any use, above the second no number."""

ORDERS = sorted({round(2 * 1.1**k) for k in range(81)})
"""Orders of the Rényi divergence from 2 to some 4,000. Each gives a valid epsilon, so the least
counts; a tenth more or less than the best order makes it one part in 200 larger. Between small ones
orders that are not whole could save up to 3 % of the noise, but their series are no finite sums."""

ROUNDING = 1e-9
"""By which divergences, and then epsilon, are raised. Both are sums of floats of hardly any
cancellation, off by some 1e-11 of their size from the logarithms of factorials."""

ENOUGH = 64.0
"""A larger epsilon protects nobody, and gets the noise of this one."""


def divergence(order: int, rate: float, multiplier: float) -> float:
    """Rényi divergence of one step, times order - 1, either way, for a row added or removed.

    A row enters by a coin of probability `rate` and then moves the sum by at most 1 in l2; the
    noise has the standard deviation `multiplier`. The worst case is (1 - q) N(0, s^2) + q N(1, s^2)
    against N(0, s^2), which diverges no less than the other way round (their Theorems 4 and 5). For
    a whole order a its divergence is log(A) / (a - 1), where A is the sum over k = 0, ..., a of
    choose(a, k) (1 - q)^(a - k) q^k exp(k (k - 1) / (2 s^2)). The binomial law's masses add up
    to 1 and so can be taken off: what is left of A - 1 are positive terms, of which nothing
    cancels.
    """
    k = np.arange(2.0, order + 1)
    rise = k * (k - 1) / (2 * multiplier**2)
    # log(e^rise - 1), whatever its size
    log_rise = np.where(
        rise < 1, np.log(np.expm1(np.minimum(rise, 1))), rise + np.log1p(-np.exp(-rise))
    )
    masses = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    masses += k * math.log(rate) + xlog1py(order - k, -rate)
    return float(np.logaddexp(0.0, logsumexp(masses + log_rise)))


def epsilon_of_steps(multiplier: float, delta: float, rate: float, steps: int) -> float:
    """Epsilon at `delta` of `steps` such steps, each chosen with those before in view.

    Divergences of one order add up (Mironov 2017), and (a, D) gives epsilon = D + log(1 - 1/a) -
    log(a delta) / (a - 1) (Canonne, Kamath and Steinke, Proposition 12).
    """
    found = [
        steps * divergence(a, rate, multiplier) * (1 + ROUNDING) / (a - 1)
        + math.log1p(-1 / a)
        - math.log(a * delta) / (a - 1)
        for a in ORDERS
    ]
    return max(0.0, min(found)) * (1 + ROUNDING)


@lru_cache(maxsize=64)
def multiplier_for_replaced(
    epsilon: float, delta: float, rate: float, steps: int, coordinates: int, grid: float
) -> float:
    """Noise sd per clipping norm, 1/4 or more, at which *replacing* a row is (epsilon, delta)-DP.

    Parameters
    ----------
    rate, steps : float, int
        Probability of each row to enter a step, and their number.
    coordinates : int
        Numbers released in a step.
    grid : float
        Grid steps per clipping norm, for the exact sampler.

    Raises
    ------
    BudgetError
        No noise of these orders is enough.

    Privacy
    -------
    A row is replaced by removing one and adding one. Where each is (e, f)-DP with noise that is
    rounded, both are (2 e, (1 + exp(e)) f)-DP, and with discrete noise
    (2 e + 2 h, exp(h) (1 + exp(e)) f + (1 + exp(2 e + h)) t)-DP, by `rounding_slack` at the least
    multiplier: h and t fall with the noise. With 2 e = epsilon - 2 h the last factor is below
    1 + exp(epsilon), and f is chosen so that the whole is `delta`.
    """
    epsilon = min(epsilon, ENOUGH)
    h, t = rounding_slack(steps * coordinates, LEAST * grid)
    half = 0.5 * epsilon - h
    left = delta - (1 + math.exp(epsilon)) * t
    failing = left * math.exp(-h) / (1 + math.exp(half)) if half > 0 else 0.0
    if failing <= 0 or epsilon_of_steps(MOST, failing, rate, steps) > half:
        raise BudgetError(
            "eps is too small for base='nn': no noise is enough. base='kernel' takes it"
        )
    if epsilon_of_steps(LEAST, failing, rate, steps) <= half:
        return LEAST
    low, high = LEAST, MOST
    while high > low * (1 + 1e-4):
        middle = math.sqrt(low * high)
        enough = epsilon_of_steps(middle, failing, rate, steps) <= half
        low, high = (low, middle) if enough else (middle, high)
    return high
