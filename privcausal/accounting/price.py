"""The total epsilon of releases priced in rho, in pure epsilon and in delta.

Each of these is a valid total, and the least of them is reported:

1. *All as zCDP.* Events in rho add up; a pure event is counted as it is, or as rho = epsilon^2 / 2
   (Bun and Steinke 2016, Proposition 1.4). For every choice of the pure events that are counted as
   they are, sum of their epsilon + epsilon_of(rho of all the rest, delta - sum of delta events).
2. *As Gaussian noise.* Events whose rho is mu^2 / 2 of discrete Gaussian noise, and pure events,
   have the joint delta of `gaussian.delta_of`. What other events in rho there are is converted at a
   part of delta of its own (`SPLITS`), and epsilons and deltas of both add up.

Amounts are integers of pico-units, and compared as such. A float that a person typed stands for
its shortest decimal, so that three spends of 0.1 fit a cap of 0.3.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, product
from typing import Any, NamedTuple

import numpy as np
from scipy.special import erfcx, gammaln, logsumexp, ndtr, xlog1py

from privcausal.accounting import charge
from privcausal.errors import BudgetError
from privcausal.prices import DELTA_DIGITS, as_typed, at_most
from privcausal.typing import Vector

# What discrete Gaussian noise costs: Gaussian differential privacy, with a stated slack.
#
# Every number that the vault releases with Gaussian noise is a whole number plus discrete Gaussian
# noise on a grid so fine that its standard deviation is at least `FINEST` steps. Such releases are
# those of a Gaussian mechanism that is rounded, but for a slack that is proven in `rounding_slack`.
#
# Privacy
# -------
# Let q(D) be whole numbers, and R = round(G) for G ~ N(0, sigma^2). Then q + R = round(q + G) is
# post-processing of the Gaussian mechanism, so that an adaptive sequence of such releases, the i-th
# moved by at most Delta_i in l2, is mu-GDP with mu^2 = sum of (Delta_i / sigma_i)^2 (Dong, Roth and
# Su 2022, Corollary 3.3), also where the next price depends on the answers before, as long as mu^2
# stays within a budget (Smith and Thakurta 2022). It is held as rho = mu^2 / 2, which adds up. So
#
#     delta_mu(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)
#
# (Balle and Wang 2018, Theorem 8). Discrete noise in place of R gives, for d numbers in all,
#
#     delta(epsilon) <= e^h delta_mu(epsilon - 2 h) + (1 + e^(epsilon - h)) t,    (h, t) of d.
#
# Beside it may stand mechanisms of pure epsilon_i. Each is dominated by randomised response, which
# loses epsilon_i with probability e^epsilon_i / (1 + e^epsilon_i) and gains it else (Kairouz, Oh
# and
# Viswanath 2015, Theorem 3.3; an (epsilon_i, delta_i)-DP one fails besides with probability
# delta_i),
# and an adaptive sequence is dominated by the product (Zhu, Dong and Wang 2022, Theorem 10). So
# delta_mu(epsilon) above is averaged over what they lose: the mean of delta_mu(epsilon - loss).

FINEST = 2.0**26
"""Least standard deviation of the vault's discrete Gaussian noise, in steps of its grid."""

NUMBERS = 2**20
"""Most numbers that one event releases: each is charged the slack of so many."""

EVENTS = 64
"""Most events of one fit, whose slack is taken off its epsilon beforehand: 3.2e-7."""

COMPARED_SDS = 16.0
"""Standard deviations within which discrete and rounded noise are compared: see `rounding_slack`.
Beyond them is a mass of 1e-55, which e^64 times 10^12 coordinates leaves below any delta."""

MOST_PATTERNS = 4096
"""Combinations of losses of pure mechanisms that are averaged over; more are simply added up."""

DELTA_ROUNDING = 1e-11
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
    if not (sd >= COMPARED_SDS and coordinates >= 0):
        raise ValueError("the slack is proven for a standard deviation of 16 grid steps or more")
    eta = COMPARED_SDS**2 / (24 * sd**2) + 3 * math.exp(-2 * math.pi**2 * sd**2)
    return coordinates * eta, 2.1 * coordinates * math.exp(-(COMPARED_SDS**2) / 2)


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
    return np.asarray(np.clip(found * (1 + DELTA_ROUNDING), 0, 1), np.float64)


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
    return np.where(rest > 600, 1.0, np.minimum(1.0, whole * (1 + DELTA_ROUNDING)))


def gaussian_mu(rho: int) -> float:
    """mu = sqrt(2 rho) of pico-rho, rounded up."""
    mu = math.sqrt(2 * rho / charge.PICO)
    while Fraction(mu) ** 2 < Fraction(2 * rho, charge.PICO):
        mu = math.nextafter(mu, math.inf)
    return mu


@lru_cache(maxsize=256)
def _losses(pure: tuple[int, ...]) -> tuple[Vector, Vector]:
    """What randomised responses lose together, rounded up, and how likely that is; shape (k,)."""
    counts = Counter(pure)
    if math.prod(n + 1 for n in counts.values()) > MOST_PATTERNS:
        return np.array([sum(pure) / charge.PICO * (1 + DELTA_ROUNDING)]), np.ones(1)
    ways = []
    for amount, n in counts.items():
        epsilon = amount / charge.PICO
        lost = np.arange(n + 1)
        logs = gammaln(n + 1) - gammaln(lost + 1) - gammaln(n - lost + 1)
        logs -= lost * math.log1p(math.exp(-epsilon)) + (n - lost) * np.logaddexp(0, epsilon)
        chance = np.exp(logs) * (1 + DELTA_ROUNDING)
        ways.append(list(zip((epsilon * (2 * lost - n)).tolist(), chance.tolist(), strict=True)))
    found = [(sum(loss for loss, _ in way), math.prod(c for _, c in way)) for way in product(*ways)]
    loss, chance = np.array(found).T if pure else (np.zeros(1), np.ones(1))
    return loss + np.abs(loss).max() * DELTA_ROUNDING, chance


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


# The Poisson-subsampled Gaussian mechanism, composed, and what it costs to draw its noise exactly.
#
# Sources: Mironov, Talwar and Zhang (2019), *Rényi Differential Privacy of the Sampled Gaussian
# Mechanism*; Canonne, Kamath and Steinke (2020), *The Discrete Gaussian for Differential Privacy*.

LEAST_MULTIPLIER, MOST_MULTIPLIER = 0.25, 2.0**20
"""Noise multipliers: below the first no epsilon is of any use, above the second no number."""

ORDERS = sorted({round(2 * 1.1**k) for k in range(81)})
"""Orders of the Rényi divergence from 2 to some 4,000. Each gives a valid epsilon, so the least
counts; a tenth more or less than the best order makes it one part in 200 larger. Between small ones
orders that are not whole could save up to 3 % of the noise, but their series are no finite sums."""

EPSILON_ROUNDING = 1e-9
"""By which divergences, and then epsilon, are raised. Both are sums of floats of hardly any
cancellation, off by some 1e-11 of their size from the logarithms of factorials."""

LARGEST_EPSILON = 64.0
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
        steps * divergence(a, rate, multiplier) * (1 + EPSILON_ROUNDING) / (a - 1)
        + math.log1p(-1 / a)
        - math.log(a * delta) / (a - 1)
        for a in ORDERS
    ]
    return max(0.0, min(found)) * (1 + EPSILON_ROUNDING)


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
    epsilon = min(epsilon, LARGEST_EPSILON)
    h, t = rounding_slack(steps * coordinates, LEAST_MULTIPLIER * grid)
    half = 0.5 * epsilon - h
    left = delta - (1 + math.exp(epsilon)) * t
    failing = left * math.exp(-h) / (1 + math.exp(half)) if half > 0 else 0.0
    if failing <= 0 or epsilon_of_steps(MOST_MULTIPLIER, failing, rate, steps) > half:
        raise BudgetError(
            "eps is too small for base='nn': no noise is enough. base='kernel' takes it"
        )
    if epsilon_of_steps(LEAST_MULTIPLIER, failing, rate, steps) <= half:
        return LEAST_MULTIPLIER
    low, high = LEAST_MULTIPLIER, MOST_MULTIPLIER
    while high > low * (1 + 1e-4):
        middle = math.sqrt(low * high)
        enough = epsilon_of_steps(middle, failing, rate, steps) <= half
        low, high = (low, middle) if enough else (middle, high)
    return high


# Between the user's (epsilon, delta) and the house currency, rho.
#
# Of any mechanism, rho is that of zero-concentrated DP: Canonne, Kamath and Steinke (2020), *The
# Discrete Gaussian for Differential Privacy*, Proposition 12 and Corollary 13, as computed by
# OpenDP's ``make_zCDP_to_approxDP``, which rounds towards a larger epsilon. Of discrete Gaussian
# noise on a fine grid it is also mu^2 / 2, and converts to less: see `gaussian`.

MIN_EPSILON = 1e-6
"""Below this an epsilon buys noise only; it is a mistake, such as delta in its place."""

MAX_EPSILON = 1e4
"""Above this an epsilon protects nobody, and the conversion nears the end of the floats."""

MAX_RHO = 50_000 * charge.PICO
"""The most rho that is converted, in pico-units; its epsilon is above `MAX_EPSILON`."""


def check_epsilon(epsilon: float) -> float:
    """`epsilon` as a float in [1e-6, 1e4], or a `BudgetError` that says what it must be."""
    if not charge.is_number(epsilon) or not MIN_EPSILON <= epsilon <= MAX_EPSILON:
        raise BudgetError(
            f"epsilon must be a number from {MIN_EPSILON:g} to {MAX_EPSILON:g}, not {epsilon!r}; "
            "common choices are 0.1 to 4"
        )
    return float(epsilon)


def check_delta(delta: float) -> float:
    """`delta` as a float in (0, 1), or a `BudgetError` that says what it must be."""
    if not charge.is_number(delta) or not 0 < delta < 1:
        raise BudgetError(
            f"delta must be a number strictly between 0 and 1, not {delta!r}; "
            "1e-5 is usual, and it should be far below 1/n"
        )
    return float(delta)


USUAL_EPSILON, USUAL_DELTA = 10.0, 1e-4
"""Of a promise that is worth something; beyond them a fit is warned of."""


def weak_promise(epsilon: float, delta: float, size: int | None) -> tuple[str, ...]:
    """What a promise is not worth, a sentence or two each; empty where it is worth something.

    `size` is the public number of rows or units, or None; a `delta` of 0 promises without a slack.
    """
    said = []
    if epsilon > USUAL_EPSILON:
        said.append(
            f"eps={at_most(epsilon)} is above {USUAL_EPSILON:g}: what is released may tell almost "
            "surely whether a person's data were used. Common choices are 0.1 to 4."
        )
    if size and delta >= 1 / size:
        said.append(
            f"delta={at_most(delta, DELTA_DIGITS)} is not below 1/n, with n = {size:,}: even the "
            "data of one person, drawn by lot and published, would keep such a promise. Choose "
            "delta far below 1/n."
        )
    elif delta > USUAL_DELTA:
        said.append(
            f"delta={at_most(delta, DELTA_DIGITS)} is above {USUAL_DELTA:g}: with that chance the "
            "promise may fail altogether. Choose delta far below 1 over the number of people."
        )
    return tuple(said)


def epsilon_of(rho_pico: int, delta: float, gdp: bool = False) -> float:
    """Epsilon at `delta` of a total of `rho_pico` 1e-12; 0.0 for nothing spent.

    Never below the true value, and infinite above `MAX_RHO`.

    Parameters
    ----------
    gdp : bool
        Whether it is of discrete Gaussian noise of the vault, in at most `EVENTS` releases; else it
        is zCDP of whatever mechanism.
    """
    if type(rho_pico) is not int or rho_pico < 0:
        raise BudgetError("rho is an integer number of pico-units >= 0")
    return _epsilon_of(rho_pico, check_delta(delta), gdp)


def rho_of(epsilon: float, delta: float, gdp: bool = False) -> int:
    """The largest rho, in pico-units, that (`epsilon`, `delta`) pays for; `epsilon_of` undone.

    `gdp` as there: such noise gets 18 % more rho at (1, 1e-5).
    """
    rho = largest_rho(check_epsilon(epsilon), check_delta(delta), gdp)
    if rho == 0:
        raise BudgetError(
            f"epsilon={as_typed(epsilon)} at delta={as_typed(delta)} buys less than rho = 1e-12, "
            "the smallest amount that is counted; ask for a larger epsilon"
        )
    return rho


def noise_multiplier(rho: float) -> float:
    """sigma / Delta = 1 / sqrt(2 rho) of the Gaussian noise that costs `rho` (natural units)."""
    if not charge.is_number(rho) or not 0 < rho < math.inf:
        raise BudgetError(f"rho must be a finite number above 0, not {rho!r}")
    return 1 / math.sqrt(2 * rho)


@lru_cache(maxsize=1024)
def largest_rho(epsilon: float, delta: float, gdp: bool = False) -> int:
    """`rho_of` for numbers already checked, and 0 where not even one pico-unit fits."""

    def enough(rho: int) -> bool:
        return _zcdp_epsilon(rho, delta) <= epsilon

    rho = largest_gaussian(epsilon, delta) if gdp else 0
    if rho and not enough(rho + 1):  # as it is but for tiny and for huge epsilon
        return rho
    return max(rho, _most(enough, _guess(epsilon, delta)))


@lru_cache(maxsize=1024)
def largest_gaussian(
    epsilon: float, delta: float, events: int = EVENTS, pure: tuple[int, ...] = ()
) -> int:
    """The largest pico-rho of Gaussian noise with `gaussian.delta_of` at most `delta`, or 0."""

    def enough(rho: int) -> bool:
        return rho <= MAX_RHO and delta_of(epsilon, rho, events, pure) <= delta

    return _most(enough, _guess(max(epsilon, MIN_EPSILON), delta))


def _guess(epsilon: float, delta: float) -> int:
    """epsilon <= rho + 2 sqrt(rho log(1/delta)), the textbook's bound, solved for pico-rho."""
    log = -math.log(delta)
    return max(1, int(charge.PICO * (epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))) ** 2))


def _most(enough: Callable[[int], bool], guess: int) -> int:
    """The largest whole number that is enough, given that smaller ones are; 0 without one."""
    low, high = 0, guess
    while enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low


@lru_cache(maxsize=4096)
def _epsilon_of(rho_pico: int, delta: float, gdp: bool) -> float:
    zcdp = _zcdp_epsilon(rho_pico, delta)
    if not gdp or not 0 < rho_pico <= MAX_RHO:
        return zcdp
    return min(zcdp, epsilon_at(delta, rho_pico, EVENTS))


@lru_cache(maxsize=4096)
def _zcdp_epsilon(rho_pico: int, delta: float) -> float:
    if rho_pico == 0:
        return 0.0
    # beyond it OpenDP's exponentials overflow; infinity is a bound too, and no cap allows it
    return float(profile(rho_pico).epsilon(delta)) if rho_pico <= MAX_RHO else math.inf


def profile(rho_pico: int) -> Any:
    """OpenDP's privacy profile of zCDP, with methods ``epsilon(delta)`` and ``delta(epsilon)``.

    `rho_pico` lies between 1 and `MAX_RHO`.
    """
    return _gaussian().map(_distance(rho_pico))


@lru_cache(maxsize=1)
def _gaussian() -> Any:
    """OpenDP's Gaussian of scale 1, whose zCDP at distance d is d^2/2, seen as approximate DP."""
    import opendp.prelude as dp  # 1.3 s: not at the top, where everyone would pay it

    dp.enable_features("contrib")
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    return dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=1.0))


def _distance(rho_pico: int) -> float:
    """A float d, least or next to it, with d^2/2 >= rho in exact arithmetic."""
    rho = Fraction(rho_pico, charge.PICO)
    d = math.sqrt(2 * rho)
    while Fraction(d) ** 2 < 2 * rho:
        d = math.nextafter(d, math.inf)
    return d


DELTA_SPLITS = (0.5, 0.1, 0.01)
"""Parts of delta, tried for either side where zCDP stands beside Gaussian noise: each is valid."""


@dataclass(frozen=True, slots=True)
class Events:
    """What was spent, in pico-units.

    `rho` is the total of events that are zCDP alone, `gdp` that of `releases` with Gaussian
    noise; `pure` are epsilons one by one, `delta` is a total.
    """

    rho: int = 0
    pure: tuple[int, ...] = ()
    delta: int = 0
    gdp: int = 0
    releases: int = 0

    @classmethod
    def of(cls, costs: Iterable[charge.Cost]) -> Events:
        """The events of several releases; a cost of zero is no event."""
        costs = tuple(costs)
        return cls(
            sum(cost.rho for cost in costs if not cost.gdp),
            tuple(sorted((cost.epsilon for cost in costs if cost.epsilon), reverse=True)),
            sum(cost.delta for cost in costs),
            sum(cost.rho for cost in costs if cost.gdp),
            sum(cost.gdp for cost in costs),
        )

    @property
    def converted(self) -> bool:
        """Whether there is rho, which takes a delta to convert."""
        return self.rho + self.gdp > 0


@dataclass(frozen=True, slots=True)
class Remaining:
    """What a cap leaves, in natural units; any one of the first three may be spent, not all.

    Attributes
    ----------
    epsilon : float
        What the rho that is left converts to: a fit with Gaussian noise may ask for this much.
    pure_epsilon : float
        What is left for a fit of pure epsilon.
    rho : float
        What is left for Gaussian noise; a fit priced in zCDP alone may find less.
    delta : float
        What is left for selecting labels, and at which `epsilon` holds.
    """

    epsilon: float
    pure_epsilon: float
    rho: float
    delta: float


class Assignment(NamedTuple):
    """`pure`: the sum counted as epsilon; `rho`: that of all the rest (pico-units)."""

    pure: int
    rho: int


def delta_after(delta: float, spent: int) -> float:
    """The delta at which rho is converted, less `spent` pico-units; rounded down."""
    left = charge.exact(delta) - Fraction(spent, charge.PICO)
    found = float(left) if spent else float(delta)
    return found if not spent or Fraction(found) <= left else math.nextafter(found, -math.inf)


def total_epsilon(events: Events, delta: float) -> float:
    """The least total epsilon at `delta`; infinite where no finite one is known."""
    left = delta_after(delta, events.delta)
    as_zcdp = min(float(_total(choice, left)) for choice in _shortlist(events, left))
    return min(
        [as_zcdp]
        + [
            before + epsilon_at(own, events.gdp, events.releases, events.pure)
            for before, own in _beside(events, left)
        ]
    )


def within(events: Events, epsilon: float, delta: float) -> bool:
    """Whether the total is at most `epsilon` at `delta`; every rounding is towards no."""
    left = delta_after(delta, events.delta)
    # `rho_of` searches by these very comparisons: a plan that takes the cap's whole rho fits
    return left >= 0 and (
        any(
            delta_of(_less(epsilon, before), events.gdp, events.releases, events.pure) <= own
            for before, own in _beside(events, left)
        )
        or any(_total(choice, left) <= charge.exact(epsilon) for choice in _shortlist(events, left))
    )


def remaining(events: Events, epsilon: float, delta: float) -> Remaining:
    """What a cap of (`epsilon`, `delta`) leaves after `events`."""
    left = max(0.0, delta_after(delta, events.delta))
    as_zcdp = max(_room(choice, epsilon, left) for choice in _shortlist(events, left, epsilon))
    releases = events.releases + EVENTS
    gaussian = [
        largest_gaussian(_less(epsilon, before), own, releases, events.pure) - events.gdp
        for before, own in _beside(events, left)
    ]
    rho = max([as_zcdp, *gaussian])
    gap = float(charge.exact(epsilon) - charge.exact(min(total_epsilon(events, delta), epsilon)))
    return Remaining(
        epsilon=_payable(rho, left) if left else 0.0,
        # a pure event is counted on top of the total, or as rho = epsilon^2 / 2
        pure_epsilon=max(gap, math.sqrt(2 * as_zcdp / charge.PICO)),
        rho=rho / charge.PICO,
        delta=left,
    )


def _payable(rho: int, delta: float) -> float:
    """Epsilon of a fit with Gaussian noise that needs no more than `rho`."""
    epsilon = epsilon_of(rho, delta, gdp=True)
    whole = round(epsilon, 9)  # 1 and not 0.99999999998, where that is what was meant
    if whole > MIN_EPSILON and largest_rho(whole, delta, gdp=True) <= rho:
        return whole
    while epsilon > MIN_EPSILON and largest_rho(epsilon, delta, gdp=True) > rho:
        epsilon *= 1 - 1e-12
    return epsilon


def _beside(events: Events, delta: float) -> Iterator[tuple[float, float]]:
    """Epsilon of the events that are zCDP alone, and the delta that is left to the others."""
    if not delta > 0:
        return
    if not events.rho:
        yield 0.0, delta
        return
    for part in DELTA_SPLITS:
        for own in (part, 1 - part):
            first = math.nextafter(own * delta, 0)
            before = epsilon_of(events.rho, first)
            if before < math.inf:
                yield before, math.nextafter(delta - first, 0)


def _less(epsilon: float, before: float) -> float:
    """epsilon - before, rounded down."""
    return math.nextafter(epsilon - before, -math.inf) if before else epsilon


def _total(choice: Assignment, delta: float) -> Fraction | float:
    if choice.rho and not delta > 0:
        return math.inf
    converted = epsilon_of(choice.rho, delta) if choice.rho else 0.0
    return (
        Fraction(choice.pure, charge.PICO) + charge.exact(converted)
        if converted < math.inf
        else math.inf
    )


def _room(choice: Assignment, epsilon: float, delta: float) -> int:
    """The rho that may be added to `choice`, in pico-units."""
    rest = charge.exact(epsilon) - Fraction(choice.pure, charge.PICO)
    if rest < 0 or not delta > 0:
        return 0
    return max(0, largest_rho(float(rest), delta) - choice.rho)


def _assignments(events: Events) -> list[Assignment]:
    """Every assignment that counts the largest pure events as epsilon and the others as rho.

    Others need no look. `epsilon_of` is a least of lines s rho + c(s) (one for each Renyi order
    s), so the least total is the least over s of

        c(s) + s rho + sum over pure events of min(epsilon_j, s epsilon_j^2 / 2),

    and the inner minimum takes epsilon_j itself exactly when epsilon_j >= 2/s: a threshold.
    """
    as_epsilon = accumulate(events.pure, initial=0)
    as_rho = list(accumulate((_pure_as_rho(e) for e in events.pure), initial=0))
    return [
        Assignment(pure, events.rho + events.gdp + as_rho[-1] - rho)
        for pure, rho in zip(as_epsilon, as_rho, strict=True)
    ]


def _pure_as_rho(epsilon: int) -> int:
    """epsilon^2 / 2 in pico-units, rounded up."""
    return -(-(epsilon**2) // (2 * charge.PICO))


def _shortlist(events: Events, delta: float, cap: float | None = None) -> Sequence[Assignment]:
    """The few assignments worth an exact conversion: both ends, and the best by a float formula.

    The formula only chooses: each assignment is valid, so a poor choice costs budget, not privacy.
    With a `cap` the best is the one that leaves the most rho below it, else the least total.
    """
    choices = _assignments(events)
    if len(choices) <= 2 or not delta > 0:
        return choices
    pure, rho = np.array(choices, dtype=np.float64).T[:, :, None] / charge.PICO
    order, line = _lines(delta)
    if cap is None:
        best = np.argmin((pure + order * rho + line).min(axis=1))
    else:
        best = np.argmax(((cap - pure - line) / order - rho).max(axis=1))
    return choices[0], choices[int(best)], choices[-1]


def _lines(delta: float) -> tuple[Vector, Vector]:
    """Renyi orders s and c(s): epsilon <= s rho + c(s) at `delta` (Canonne et al., Prop. 12)."""
    order = 1 + np.geomspace(1e-2, 1e7, 400)
    return order, np.log1p(-1 / order) - (math.log(delta) + np.log(order)) / (order - 1)
