"""What discrete Gaussian noise costs: Gaussian differential privacy, with a stated slack.

Every number that the vault releases with Gaussian noise is a whole number plus discrete Gaussian
noise on a grid so fine that its standard deviation is at least `FINEST` steps. Such releases are
those of a Gaussian mechanism that is rounded, but for a slack that is proven in `rounding_slack`.

Privacy
-------
Let q(D) be whole numbers, and R = round(G) for G ~ N(0, sigma^2). Then q + R = round(q + G) is
post-processing of the Gaussian mechanism, so that an adaptive sequence of such releases, the i-th
moved by at most Delta_i in l2, is mu-GDP with mu^2 = sum of (Delta_i / sigma_i)^2 (Dong, Roth and
Su 2022, Corollary 3.3), also where the next price depends on the answers before, as long as mu^2
stays within a budget (Smith and Thakurta 2022). It is held as rho = mu^2 / 2, which adds up. So

    delta_mu(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)

(Balle and Wang 2018, Theorem 8). Discrete noise in place of R gives, for d numbers in all,

    delta(epsilon) <= e^h delta_mu(epsilon - 2 h) + (1 + e^(epsilon - h)) t,    (h, t) of d.

Beside it may stand mechanisms of pure epsilon_i. Each is dominated by randomised response, which
loses epsilon_i with probability e^epsilon_i / (1 + e^epsilon_i) and gains it else (Kairouz, Oh and
Viswanath 2015, Theorem 3.3; an (epsilon_i, delta_i)-DP one fails besides with probability delta_i),
and an adaptive sequence is dominated by the product (Zhu, Dong and Wang 2022, Theorem 10). So
delta_mu(epsilon) above is averaged over what they lose: the mean of delta_mu(epsilon - loss).
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np
from scipy.special import erfcx, gammaln, ndtr

from privcausal.accounting.charge import PICO
from privcausal.typing import Vector

FINEST = 2.0**26
"""Least standard deviation of the vault's discrete Gaussian noise, in steps of its grid."""

NUMBERS = 2**20
"""Most numbers that one event releases: each is charged the slack of so many."""

EVENTS = 64
"""Most events of one fit, whose slack is taken off its epsilon beforehand: 3.2e-7."""

REACH = 16.0
"""Standard deviations within which discrete and rounded noise are compared: see `rounding_slack`.
Beyond them is a mass of 1e-55, which e^64 times 10^12 coordinates leaves below any delta."""

MOST_PATTERNS = 4096
"""Combinations of losses of pure mechanisms that are averaged over; more are simply added up."""

ROUNDING = 1e-11
"""By which a delta is raised, as a part of it. Its factors are right to some 1e-13 each, where the
exponent a^2 / 2 of its size is below 1,000; beyond, it is below the least float."""


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


def gaussian_delta(epsilon: Vector, mu: float) -> Vector:
    """delta_mu(epsilon), rounded up; `epsilon` of any sign, shape (k,), `mu` above 0.

    Both terms carry the factor exp(-a^2 / 2), taken out so that the tail keeps its digits; what
    the subtraction can lose is added back as an error of 1e-13 in each term.
    """
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    root = math.sqrt(2)
    with np.errstate(over="ignore", invalid="ignore"):
        factor = np.exp(-(a**2) / 2) / 2
        # where b <= 0, e^epsilon Phi(-b) as it stands: epsilon < 0, so that nothing overflows
        plain = np.exp(np.minimum(epsilon, 0)) * ndtr(-b)
        behind = np.where(b > 0, factor * erfcx(np.maximum(b, 0) / root), plain)
        far = factor * erfcx(np.maximum(a, 0) / root)
        ahead = np.where(a > 0, far, ndtr(-a))
    found = ahead * (1 + 1e-13) - behind * (1 - 1e-13)
    return np.asarray(np.clip(found * (1 + ROUNDING), 0, 1), np.float64)


def delta_of(epsilon: float, rho: int, events: int, pure: tuple[int, ...] = ()) -> float:
    """A delta, never too small, with which releases are (epsilon, delta)-DP together.

    Parameters
    ----------
    epsilon : float
    rho : int
        pico-rho = mu^2 / 2 of all discrete Gaussian noise of `FINEST` steps or more.
    events : int
        How many releases that is, each of at most `NUMBERS` numbers.
    pure : tuple of int
        pico-epsilon of each pure mechanism beside them.
    """
    return float(deltas_of(np.array([epsilon]), rho, events, pure)[0])


def deltas_of(epsilon: Vector, rho: int, events: int, pure: tuple[int, ...] = ()) -> Vector:
    """`delta_of` of several epsilons, shape (k,)."""
    h, t = rounding_slack(NUMBERS * events, FINEST)
    rest = np.nextafter(epsilon - 2 * h, -np.inf)
    loss, chance = _losses(pure)
    beyond = np.minimum(rest, 700)[:, None] - loss
    if rho:
        each = gaussian_delta(beyond, gaussian_mu(rho))
    else:
        each = np.clip(-np.expm1(np.minimum(beyond, 700)) + 1e-15, 0, 1)
    whole = math.exp(h) * (each @ chance) + (1 + np.exp(np.minimum(rest + h, 700))) * t
    return np.where(rest > 600, 1.0, np.minimum(1.0, whole * (1 + ROUNDING)))


def gaussian_mu(rho: int) -> float:
    """mu = sqrt(2 rho) of pico-rho, rounded up."""
    mu = math.sqrt(2 * rho / PICO)
    while Fraction(mu) ** 2 < Fraction(2 * rho, PICO):
        mu = math.nextafter(mu, math.inf)
    return mu


@lru_cache(maxsize=256)
def _losses(pure: tuple[int, ...]) -> tuple[Vector, Vector]:
    """What randomised responses lose together, rounded up, and how likely that is; shape (k,)."""
    counts = Counter(pure)
    if math.prod(n + 1 for n in counts.values()) > MOST_PATTERNS:
        return np.array([sum(pure) / PICO * (1 + ROUNDING)]), np.ones(1)
    ways = []
    for amount, n in counts.items():
        epsilon = amount / PICO
        lost = np.arange(n + 1)
        logs = gammaln(n + 1) - gammaln(lost + 1) - gammaln(n - lost + 1)
        logs -= lost * math.log1p(math.exp(-epsilon)) + (n - lost) * np.logaddexp(0, epsilon)
        chance = np.exp(logs) * (1 + ROUNDING)
        ways.append(list(zip((epsilon * (2 * lost - n)).tolist(), chance.tolist(), strict=True)))
    found = [(sum(loss for loss, _ in way), math.prod(c for _, c in way)) for way in product(*ways)]
    loss, chance = np.array(found).T if pure else (np.zeros(1), np.ones(1))
    return loss + np.abs(loss).max() * ROUNDING, chance


def epsilon_at(delta: float, rho: int, events: int, pure: tuple[int, ...] = ()) -> float:
    """The least epsilon with `delta_of` at most `delta`, to 1e-12; infinite without one."""
    if not delta > 0:
        return math.inf
    if not rho and not pure:
        return 0.0
    low, high = 0.0, 1.0
    while delta_of(high, rho, events, pure) > delta:
        low, high = high, 2 * high
        if high > 600:
            return math.inf
    while high - low > 1e-12 * max(high, 1e-6):
        middle = 0.5 * (low + high)
        enough = delta_of(middle, rho, events, pure) <= delta
        low, high = (low, middle) if enough else (middle, high)
    return high
