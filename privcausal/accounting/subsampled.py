"""The Poisson-subsampled Gaussian mechanism, composed, and what it costs to draw its noise exactly.

Sources: Mironov, Talwar and Zhang (2019), *Rényi Differential Privacy of the Sampled Gaussian
Mechanism*; Canonne, Kamath and Steinke (2020), *The Discrete Gaussian for Differential Privacy*.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import gammaln, logsumexp, xlog1py

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

REACH = 16.0
"""Standard deviations within which discrete and rounded noise are compared: see `rounding_slack`.
Beyond them is a mass of 1e-55, which e^64 times 10^12 coordinates leaves below any delta."""

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


def rounding_slack(coordinates: int, sd: float) -> tuple[float, float]:
    """How far discrete Gaussian noise is from rounded Gaussian noise, over a whole transcript.

    Parameters
    ----------
    coordinates : int
        Whole numbers that get noise, d in all, each perhaps chosen with those before in view.
    sd : float
        The least standard deviation, sigma >= 16, in steps of the grid.

    Returns
    -------
    (float, float)
        h and t: if rounded noise is (epsilon, delta)-DP, then discrete noise is
        (epsilon + 2 h, e^h delta + (1 + e^(epsilon + h)) t)-DP.

    Privacy
    -------
    Let G be N(0, sigma^2) with density phi, R = round(G), Z the discrete Gaussian, K = 16, and k
    whole with abs(k) <= K sigma. As phi(k + u) = phi(k) exp(-k u / sigma^2 - u^2 / (2 sigma^2)),

    - P[R = k] / phi(k) is the mean of that exponential over u in [-1/2, 1/2]. By Jensen's
      inequality it is at least exp(-1 / (24 sigma^2)). Without u^2 it is sinh(x) / x for
      x = k / (2 sigma^2), so that it is at most exp(x^2 / 6) <= exp(K^2 / (24 sigma^2)).
    - P[Z = k] / phi(k) is one over the sum of phi over the whole numbers, which by Poisson's
      formula is 1 + 2 sum_m exp(-2 pi^2 sigma^2 m^2): it is between
      exp(-3 exp(-2 pi^2 sigma^2)) and 1.

    So abs(log(P[Z = k] / P[R = k])) <= eta = K^2 / (24 sigma^2) + 3 exp(-2 pi^2 sigma^2). Beyond
    K sigma, Z has mass 2 exp(-K^2 / 2) at most (Canonne, Kamath and Steinke, Proposition 25), and R
    that of abs(G) > K sigma - 1/2, at most exp(-(K - 1 / (2 sigma))^2 / 2) <=
    exp(-K^2 / 2 + K / (2 sigma)): both are below 2.1 exp(-K^2 / 2) for sigma >= K.

    Fix a table and all coins. Given the numbers released so far, the next exact number is fixed, so
    that the probabilities of a transcript under Z and under R are products of d such masses: where
    all noise is within K sigma they differ by a factor in exp(+-h), h = d eta. Transcripts with
    noise beyond have at most mass t = 2.1 d exp(-K^2 / 2) under either. So for any event E,
    P_Z(E) <= e^h P_R(E) + t, and the same with Z and R changed places. Both sides may be averaged
    over the coins, whose law knows nothing of the rows: it holds of mechanisms with secret coins
    too. Then, for a neighbouring table,

    P_Z(E) <= e^h P_R(E) + t <= e^h (e^epsilon P_R'(E) + delta) + t
    <= e^(epsilon + 2 h) P_Z'(E) + e^h delta + (1 + e^(epsilon + h)) t.
    """
    if not (sd >= REACH and coordinates >= 0):
        raise ValueError("the slack is proven for a standard deviation of 16 grid steps or more")
    eta = REACH**2 / (24 * sd**2) + 3 * math.exp(-2 * math.pi**2 * sd**2)
    return coordinates * eta, 2.1 * coordinates * math.exp(-(REACH**2) / 2)


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
