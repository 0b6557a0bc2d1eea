"""The total epsilon of releases priced in rho, in pure epsilon and in delta.

Each of these totals is valid, and the smallest is reported:

1. *Everything as zCDP.* Events in rho add up. A pure event is counted either as its own epsilon,
   or as rho = epsilon^2 / 2 (Bun and Steinke 2016, Proposition 1.4). Every choice of the pure
   events counted as epsilon gives the total
   sum of their epsilon + epsilon_of(rho of all other events, delta - sum of delta events).
2. *Gaussian noise separately.* Discrete Gaussian events, whose rho is mu^2 / 2, and pure events
   have the joint delta of `delta_of`. Other events in rho are converted at a share of delta of
   their own (`DELTA_SPLITS`). The epsilons of the two groups add up, and so do the deltas.

Amounts are integers of pico-units and are compared as integers. A float that a user typed means
its shortest decimal, so that three charges of 0.1 fit a cap of 0.3.

A `Charge` is the cost of one release, and a `Release` holds the released numbers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, product
from typing import Any, NamedTuple, get_args

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx, gammaln, logsumexp, ndtr, xlog1py

from privcausal.errors import BudgetError, as_plain, is_number
from privcausal.prices import DELTA_DIGITS, as_typed, at_most
from privcausal.typing import Neighbors, Vector

# -- charges ----------------------------------------------------------------------------------

PICO = 10**12
"""Privacy amounts are integers in units of 1e-12, because float budgets lose small charges."""

PARALLEL = "(parallel)"
"""Suffix of a parallel charge's query in ledgers."""


def exact(amount: float) -> Fraction:
    """The decimal number that a float stands for: 0.1 is one tenth, not 0.1000000000000000055."""
    return Fraction(repr(float(amount)))


def pico(amount: float) -> int:
    """The smallest integer number of pico-units that is at least `amount` (finite, >= 0)."""
    amount = as_plain(amount)
    if not is_number(amount) or not 0 <= amount < math.inf:
        raise BudgetError("A privacy amount must be a finite, nonnegative number.")
    # Exact arithmetic: a float product may round down, and charging too little would be a leak.
    return math.ceil(exact(amount) * PICO)


@dataclass(frozen=True, slots=True)
class Cost:
    """An amount of privacy loss in the three currencies of the ledger, in pico-units.

    `rho` counts zero-concentrated DP (zCDP), `epsilon` pure DP, and `delta` a failure probability.
    If `gdp` is True, rho is mu^2 / 2 of discrete Gaussian noise on the vault's fine grid. Such rho
    converts to a smaller epsilon than zCDP does (`privcausal.accounting.price`).
    """

    rho: int = 0
    epsilon: int = 0
    delta: int = 0
    gdp: bool = False

    def __post_init__(self) -> None:
        for name in ("rho", "epsilon", "delta"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise BudgetError(
                    f"{name} of a cost must be a nonnegative integer number of pico-units."
                )
        if type(self.gdp) is not bool:
            raise BudgetError("gdp of a cost must be True or False.")


@dataclass(frozen=True, slots=True)
class Charge:
    """One line of the budget: a query, its mechanism and its cost."""

    # `stage`, `query`, `mechanism`: for readers: ``"nuisance"``, ``"moments, p = 17"``, ``"discrete
    # Gaussian"``
    stage: str
    query: str
    mechanism: str
    neighbors: Neighbors
    sensitivity: float  # In the natural units of the released numbers
    noise_sd: float  # Standard deviation of the noise in the same units
    cost: Cost
    rows: float = 1.0  # Public share of the rows that were used, in (0, 1]; never a count
    unit: str = "row"  # The protected unit: ``"row"``, or ``"patient_id (at most 3 rows)"``
    # True for a release on separate rows, if a release on other rows was already charged at least
    # as much. The parallel release is then charged less.
    parallel: bool = False
    # The cost of a parallel release priced in (epsilon, delta), if it were the only one. For
    # releases priced in rho, the noise determines this cost.
    price: Cost | None = None

    def __post_init__(self) -> None:
        if self.neighbors not in get_args(Neighbors):
            raise BudgetError(
                f"neighbors of a charge must be one of {', '.join(get_args(Neighbors))}."
            )
        # A count of rows may be private; a share is public.
        if not 0 < self.rows <= 1:
            raise BudgetError("rows of a charge must be a share in (0, 1], not a count.")
        if not isinstance(self.unit, str) or not self.unit.strip():
            raise BudgetError("unit of a charge must be a nonempty text.")

    @property
    def alone(self) -> int:
        """pico-rho of this release alone; from its noise if it is a parallel release."""
        if self.price is not None:
            return self.price.rho
        if not self.parallel or math.isnan(self.noise_sd):
            return self.cost.rho  # the noise of a private estimator is unknown
        return pico((self.sensitivity / self.noise_sd) ** 2 / 2)


@dataclass(frozen=True, slots=True)
class Release:
    """Released numbers, with their noise and their cost.

    `value` and `noise_sd` have the same shape and units. `labels` names the released levels if the
    query selects them.
    """

    value: Vector
    noise_sd: Vector
    charge: Charge
    labels: tuple[Any, ...] = ()


# -- totals -----------------------------------------------------------------------------------

# The cost of discrete Gaussian noise: Gaussian differential privacy, with a stated slack.
#
# A number released with Gaussian noise is a whole number plus discrete Gaussian noise. The grid is
# so fine that the standard deviation of the noise is at least `FINEST` steps. Such a release equals
# a rounded Gaussian mechanism up to a slack, which `rounding_slack` proves.
#
# Privacy
# -------
# Let q(D) be whole numbers, and R = round(G) for G ~ N(0, sigma^2). Then q + R = round(q + G) is
# post-processing of the Gaussian mechanism. Take an adaptive sequence of such releases, the i-th
# with l2 sensitivity Delta_i. The sequence is mu-GDP with mu^2 = sum of (Delta_i / sigma_i)^2
# (Dong, Roth and Su 2022, Corollary 3.3). This also holds if later prices depend on earlier
# answers, as long as mu^2 stays within a budget (Smith and Thakurta 2022). The code stores
# rho = mu^2 / 2, which adds up. Therefore
#
#     delta_mu(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)
#
# (Balle and Wang 2018, Theorem 8). Discrete noise in place of R gives, for d numbers in all,
#
#     delta(epsilon) <= e^h delta_mu(epsilon - 2 h) + (1 + e^(epsilon - h)) t,    (h, t) of d.
#
# The sequence may also contain mechanisms of pure epsilon_i. Each is dominated by randomized
# response. Its privacy loss is epsilon_i with probability e^epsilon_i / (1 + e^epsilon_i), and
# -epsilon_i otherwise (Kairouz, Oh and Viswanath 2015, Theorem 3.3). An (epsilon_i, delta_i)-DP
# mechanism also fails with probability delta_i. An adaptive sequence is dominated by the product
# (Zhu, Dong and Wang 2022, Theorem 10). delta_mu(epsilon) above is therefore replaced by its
# average over the loss of the pure mechanisms: the mean of delta_mu(epsilon - loss).

FINEST = 2.0**26
"""Minimum standard deviation of the vault's discrete Gaussian noise, in steps of its grid."""

NUMBERS = 2**20
"""Maximum count of numbers in one event. Each event is charged the slack for this many."""

EVENTS = 64
"""Maximum count of events in one fit. Their slack, 3.2e-7, is taken off epsilon beforehand."""

COMPARED_SDS = 16.0
"""Fewest standard deviations K within which discrete and rounded noise are compared: see
`rounding_slack`. The mass outside is 1e-55."""

COMPARED_EPSILON = 20.0
"""Epsilon from which K^2 / 2 grows as epsilon does. The mass outside, times e^epsilon and 10^12
numbers, is then below 1e-34 for every epsilon."""

MOST_PATTERNS = 4096
"""Maximum number of loss combinations of pure mechanisms to average over; beyond, epsilons add."""

DELTA_ROUNDING = 1e-11
"""A delta is raised by this relative amount. Its factors are accurate to about 1e-13 each if the
exponent a^2 / 2 of their size is below 1,000. Beyond that, delta is below the smallest float."""


def rounding_slack(coordinates: int, sd: float, further: float = 0.0) -> tuple[float, float]:
    """Distance of discrete Gaussian noise from rounded Gaussian noise, over a whole transcript.

    Parameters
    ----------
    coordinates : int
        Total count d of whole numbers with noise. Each may be chosen in view of earlier answers.
    sd : float
        The smallest standard deviation, sigma >= K, in steps of the grid.
    further : float
        f >= 0. The laws are compared within K standard deviations, K^2 = 16^2 + 2 f. Every f gives
        a valid pair.

    Returns
    -------
    (float, float)
        h and e^f t: if rounded noise is (epsilon, delta)-DP, then discrete noise is
        (epsilon + 2 h, e^h delta + (1 + e^(epsilon + h)) t)-DP.

    Privacy
    -------
    Let G be N(0, sigma^2) with density phi, R = round(G), and Z the discrete Gaussian. Let k be a
    whole number with abs(k) <= K sigma. Use
    phi(k + u) = phi(k) exp(-k u / sigma^2 - u^2 / (2 sigma^2)).

    - P[R = k] / phi(k) is the mean of this exponential over u in [-1/2, 1/2]. By Jensen's
      inequality it is at least exp(-1 / (24 sigma^2)). Without the u^2 term it is sinh(x) / x for
      x = k / (2 sigma^2), so it is at most exp(x^2 / 6) <= exp(K^2 / (24 sigma^2)).
    - P[Z = k] / phi(k) is one over the sum of phi over the whole numbers. By Poisson's formula this
      sum is 1 + 2 sum_m exp(-2 pi^2 sigma^2 m^2). The ratio is therefore between
      exp(-3 exp(-2 pi^2 sigma^2)) and 1.

    Hence abs(log(P[Z = k] / P[R = k])) <= eta = K^2 / (24 sigma^2) + 3 exp(-2 pi^2 sigma^2).

    Beyond K sigma, Z has mass at most 2 exp(-K^2 / 2) (Canonne, Kamath and Steinke, Proposition
    25). R has the mass of abs(G) > K sigma - 1/2, which is at most
    exp(-(K - 1 / (2 sigma))^2 / 2) <= exp(-K^2 / 2 + K / (2 sigma)). Both masses are below
    2.1 exp(-K^2 / 2) for sigma >= K.

    Fix a table and all random bits. Given the numbers released before, the next exact number is
    fixed. The probability of a transcript, under Z or under R, is therefore a product of d such
    masses. If all noise is within K sigma, the two probabilities differ by a factor in exp(+-h),
    h = d eta. Transcripts with larger noise have at most mass t = 2.1 d exp(-K^2 / 2) under either
    distribution. Hence P_Z(E) <= e^h P_R(E) + t for any event E, and the same with Z and R
    exchanged. Both sides may be averaged over the random bits, whose distribution does not depend
    on the rows. The bound therefore also holds for mechanisms with secret random bits. Then, for a
    neighboring table,

    P_Z(E) <= e^h P_R(E) + t <= e^h (e^epsilon P_R'(E) + delta) + t
    <= e^(epsilon + 2 h) P_Z'(E) + e^h delta + (1 + e^(epsilon + h)) t.
    """
    square = COMPARED_SDS**2 + 2 * further
    if not (sd**2 >= square >= COMPARED_SDS**2 and coordinates >= 0):
        raise ValueError(
            "The slack is proven only for standard deviations of at least 16 grid steps."
        )
    eta = square / (24 * sd**2) + 3 * math.exp(-2 * math.pi**2 * sd**2)
    return coordinates * eta, 2.1 * coordinates * math.exp(-(COMPARED_SDS**2) / 2)


def gaussian_delta(epsilon: Vector, mu: float) -> Vector:
    """delta_mu(epsilon), rounded up; `epsilon` of any sign, shape (k,), `mu` above 0.

    The factor exp(-a^2 / 2) is taken out of both terms so that the tail keeps its digits. The
    subtraction can lose digits, so an error of 1e-13 in each term is added back.
    """
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    root = math.sqrt(2)
    with np.errstate(over="ignore", invalid="ignore"):
        factor = np.exp(-(a**2) / 2) / 2
        # If b <= 0, compute e^epsilon Phi(-b) directly: epsilon < 0, so it cannot overflow.
        plain = np.exp(np.minimum(epsilon, 0)) * ndtr(-b)
        behind = np.where(b > 0, factor * erfcx(np.maximum(b, 0) / root), plain)
        far = factor * erfcx(np.maximum(a, 0) / root)
        ahead = np.where(a > 0, far, ndtr(-a))
    delta = ahead * (1 + 1e-13) - behind * (1 - 1e-13)
    return np.asarray(np.clip(delta * (1 + DELTA_ROUNDING), 0, 1), np.float64)


def delta_of(epsilon: float, rho: int, events: int, pure: tuple[int, ...] = ()) -> float:
    """An upper bound of delta, so that releases are (epsilon, delta)-DP together.

    Parameters
    ----------
    epsilon : float
    rho : int
        pico-rho = mu^2 / 2 of all discrete Gaussian noise with sd of `FINEST` steps or more.
    events : int
        Number of these releases, each of at most `NUMBERS` numbers.
    pure : tuple of int
        pico-epsilon of each additional pure mechanism.
    """
    further = max(0.0, epsilon - COMPARED_EPSILON)
    h, t = rounding_slack(NUMBERS * events, FINEST, further)
    rest = math.nextafter(epsilon - 2 * h, -math.inf)
    loss, chance = _losses(pure)
    if rho:
        deltas = gaussian_delta(rest - loss, gaussian_mu(rho))
    else:
        deltas = np.clip(-np.expm1(np.minimum(rest - loss, 0)) + 1e-15, 0, 1)
    outside = (math.exp(-further) + math.exp(rest + h - further)) * t
    whole = math.exp(h) * float(deltas @ chance) + outside
    return min(1.0, whole * (1 + DELTA_ROUNDING))


def gaussian_mu(rho: int) -> float:
    """mu = sqrt(2 rho) of pico-rho, rounded up."""
    mu = math.sqrt(2 * rho / PICO)
    while Fraction(mu) ** 2 < Fraction(2 * rho, PICO):
        mu = math.nextafter(mu, math.inf)
    return mu


@lru_cache(maxsize=256)
def _losses(pure: tuple[int, ...]) -> tuple[Vector, Vector]:
    """Joint losses of randomized responses, rounded up, and their probabilities; shape (k,)."""
    counts = Counter(pure)
    if math.prod(n + 1 for n in counts.values()) > MOST_PATTERNS:
        return np.array([sum(pure) / PICO * (1 + DELTA_ROUNDING)]), np.ones(1)
    ways = []
    for amount, n in counts.items():
        epsilon = amount / PICO
        lost = np.arange(n + 1)
        logs = gammaln(n + 1) - gammaln(lost + 1) - gammaln(n - lost + 1)
        logs -= lost * math.log1p(math.exp(-epsilon)) + (n - lost) * np.logaddexp(0, epsilon)
        chance = np.exp(logs) * (1 + DELTA_ROUNDING)
        ways.append(list(zip((epsilon * (2 * lost - n)).tolist(), chance.tolist(), strict=True)))
    joint = [(sum(loss for loss, _ in way), math.prod(c for _, c in way)) for way in product(*ways)]
    loss, chance = np.array(joint).T if pure else (np.zeros(1), np.ones(1))
    return loss + np.abs(loss).max() * DELTA_ROUNDING, chance


@lru_cache(maxsize=4096)
def epsilon_at(delta: float, rho: int, events: int, pure: tuple[int, ...] = ()) -> float:
    """The smallest epsilon with `delta_of` at most `delta`, to 1e-12; infinite if there is none."""
    if not delta > 0:
        return math.inf
    if not rho and not pure:
        return 0.0
    low, high = 0.0, 1.0
    while delta_of(high, rho, events, pure) > delta:
        low, high = high, 2 * high
        if high > 2 * MAX_EPSILON:
            return math.inf
    while high - low > 1e-12 * max(high, 1e-6):
        middle = 0.5 * (low + high)
        enough = delta_of(middle, rho, events, pure) <= delta
        low, high = (low, middle) if enough else (middle, high)
    return high


# The Poisson-subsampled Gaussian mechanism under composition, with exactly sampled noise.
#
# Sources: Mironov, Talwar and Zhang (2019), *Rényi Differential Privacy of the Sampled Gaussian
# Mechanism*; Canonne, Kamath and Steinke (2020), *The Discrete Gaussian for Differential Privacy*.

LEAST_MULTIPLIER, MOST_MULTIPLIER = 0.25, 2.0**20
"""Noise multipliers. Below the first, epsilon is useless; above the second, the answers are."""

ORDERS = sorted({round(2 * 1.1**k) for k in range(81)})
"""Orders of the Rényi divergence, from 2 to about 4,000. Each order gives a valid epsilon, and the
smallest epsilon is used. An order 10% from the best one gives an epsilon larger by one part in 200.
Fractional orders between small ones could save up to 3% of the noise. They are not used because
their series are not finite sums."""

EPSILON_ROUNDING = 1e-9
"""Divergences, and then epsilon, are raised by this relative amount. Both are float sums with
almost no cancellation. Logarithms of factorials make them inaccurate by about 1e-11 of their size.
"""

LARGEST_EPSILON = 64.0
"""A larger epsilon gives no useful protection, and gets the noise of this epsilon."""


def divergence(order: int, rate: float, multiplier: float) -> float:
    """Rényi divergence of one step, times order - 1, for adding or removing a row.

    A row enters with probability q = `rate` and then changes the sum by at most 1 in l2. The noise
    has standard deviation s = `multiplier`. The worst case is (1 - q) N(0, s^2) + q N(1, s^2)
    against N(0, s^2). Its divergence is at least the divergence in the other direction (Mironov,
    Talwar and Zhang, Theorems 4 and 5), so the result is valid in both directions. For a whole
    order a the divergence is log(A) / (a - 1). A is the sum over k = 0, ..., a of
    choose(a, k) (1 - q)^(a - k) q^k exp(k (k - 1) / (2 s^2)). The binomial probabilities add up to
    1 and can be subtracted. The terms of A - 1 are then positive, so they cannot cancel.
    """
    k = np.arange(2.0, order + 1)
    rise = k * (k - 1) / (2 * multiplier**2)
    # log(e^rise - 1), accurate for any size of rise
    log_rise = np.where(
        rise < 1, np.log(np.expm1(np.minimum(rise, 1))), rise + np.log1p(-np.exp(-rise))
    )
    masses = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    masses += k * math.log(rate) + xlog1py(order - k, -rate)
    return float(np.logaddexp(0.0, logsumexp(masses + log_rise)))


def epsilon_of_steps(multiplier: float, delta: float, rate: float, steps: int) -> float:
    """Epsilon at `delta` of `steps` such steps, each chosen in view of the previous answers.

    Divergences of one order add up (Mironov 2017), and (a, D) gives epsilon = D + log(1 - 1/a) -
    log(a delta) / (a - 1) (Canonne, Kamath and Steinke, Proposition 12).
    """
    epsilons = [
        steps * divergence(a, rate, multiplier) * (1 + EPSILON_ROUNDING) / (a - 1)
        + math.log1p(-1 / a)
        - math.log(a * delta) / (a - 1)
        for a in ORDERS
    ]
    return max(0.0, min(epsilons)) * (1 + EPSILON_ROUNDING)


@lru_cache(maxsize=64)
def multiplier_for_replaced(
    epsilon: float, delta: float, rate: float, steps: int, coordinates: int, grid: float
) -> float:
    """Noise sd per clipping norm, 1/4 or more, that makes *replacing* a row (epsilon, delta)-DP.

    Parameters
    ----------
    rate, steps : float, int
        Probability that a row enters a step, and number of steps.
    coordinates : int
        Numbers released in a step.
    grid : float
        Grid steps per clipping norm, for the exact sampler.

    Raises
    ------
    BudgetError
        The largest noise multiplier is too small, by all these orders.

    Privacy
    -------
    Replacing a row means removing one and adding one. Suppose each of these is (e, f)-DP with
    rounded noise. Then both together are (2 e, (1 + exp(e)) f)-DP. By `rounding_slack` at the
    smallest multiplier, discrete noise makes them
    (2 e + 2 h, exp(h) (1 + exp(e)) f + (1 + exp(2 e + h)) t)-DP. These h and t hold for every
    multiplier, because h and t decrease as the noise grows. With 2 e = epsilon - 2 h the last
    factor is below 1 + exp(epsilon). f is chosen so that the whole delta equals `delta`.
    """
    epsilon = min(epsilon, LARGEST_EPSILON)
    h, t = rounding_slack(steps * coordinates, LEAST_MULTIPLIER * grid)
    half = 0.5 * epsilon - h
    left = delta - (1 + math.exp(epsilon)) * t
    failing = left * math.exp(-h) / (1 + math.exp(half)) if half > 0 else 0.0
    if failing <= 0 or epsilon_of_steps(MOST_MULTIPLIER, failing, rate, steps) > half:
        raise BudgetError(
            "eps is too small for base='nn': no amount of noise is enough. Use a larger eps, or "
            "base='kernel'."
        )
    if epsilon_of_steps(LEAST_MULTIPLIER, failing, rate, steps) <= half:
        return LEAST_MULTIPLIER
    low, high = LEAST_MULTIPLIER, MOST_MULTIPLIER
    while high > low * (1 + 1e-4):
        middle = math.sqrt(low * high)
        enough = epsilon_of_steps(middle, failing, rate, steps) <= half
        low, high = (low, middle) if enough else (middle, high)
    return high


# Conversion between the user's (epsilon, delta) and the internal currency rho.
#
# For any mechanism, rho is the parameter of zero-concentrated DP: Canonne, Kamath and Steinke
# (2020), *The Discrete Gaussian for Differential Privacy*, Proposition 12 and Corollary 13.
# OpenDP's ``make_zCDP_to_approxDP`` computes the conversion and rounds towards a larger epsilon.
# For discrete Gaussian noise on a fine grid, rho is also mu^2 / 2 and converts to a smaller epsilon
# (see above).

MIN_EPSILON = 1e-6
"""A smaller epsilon releases only noise. It is a mistake, such as passing delta in its place."""

MAX_EPSILON = 1e4
"""A larger epsilon gives no protection, and the conversion comes close to the largest floats."""

MAX_RHO = 50_000 * PICO
"""The largest rho that is converted, in pico-units; its epsilon is above `MAX_EPSILON`."""


def check_epsilon(epsilon: float) -> float:
    """Return `epsilon` as a float in [1e-6, 1e4], or raise a `BudgetError` with the range."""
    if not is_number(epsilon) or not MIN_EPSILON <= epsilon <= MAX_EPSILON:
        raise BudgetError(
            f"epsilon must be a number from {MIN_EPSILON:g} to {MAX_EPSILON:g}, not {epsilon!r}. "
            "Common choices are 0.1 to 4."
        )
    return float(epsilon)


def check_delta(delta: float) -> float:
    """Return `delta` as a float in (0, 1), or raise a `BudgetError` with the range."""
    if not is_number(delta) or not 0 < delta < 1:
        raise BudgetError(
            f"delta must be a number strictly between 0 and 1, not {delta!r}. A common choice is "
            "1e-5; delta should be far below 1/n."
        )
    return float(delta)


USUAL_EPSILON, USUAL_DELTA = 10.0, 1e-4
"""Largest epsilon and delta of a meaningful guarantee. A fit warns if it exceeds either."""


def weak_promise(epsilon: float, delta: float, size: int | None) -> tuple[str, ...]:
    """Caveats about a weak guarantee, one or two sentences each; empty if there are none.

    `size` is the public number of rows or units, or None. A `delta` of 0 means pure epsilon.
    """
    caveats = []
    if epsilon > USUAL_EPSILON:
        caveats.append(
            f"eps={at_most(epsilon)} is above {USUAL_EPSILON:g}. The release may reveal almost "
            "with certainty whether a person's data were used. Common choices are 0.1 to 4."
        )
    if size and delta >= 1 / size:
        caveats.append(
            f"delta={at_most(delta, DELTA_DIGITS)} is not below 1/n, with n = {size:,}. Publishing "
            "the data of one randomly chosen person would satisfy such a guarantee. Choose delta "
            "far below 1/n."
        )
    elif delta > USUAL_DELTA:
        caveats.append(
            f"delta={at_most(delta, DELTA_DIGITS)} is above {USUAL_DELTA:g}. The guarantee then "
            "permits a complete failure with that probability. Choose delta far below 1 over the "
            "number of people."
        )
    return tuple(caveats)


def epsilon_of(rho_pico: int, delta: float, gdp: bool = False) -> float:
    """Epsilon at `delta` of a total of `rho_pico` 1e-12; 0.0 if nothing was spent.

    The result is never below the true value, and is infinite above `MAX_RHO`.

    Parameters
    ----------
    gdp : bool
        True for discrete Gaussian noise of the vault in at most `EVENTS` releases. False for zCDP
        of any mechanism.
    """
    if type(rho_pico) is not int or rho_pico < 0:
        raise BudgetError("rho must be a nonnegative integer number of pico-units.")
    delta = check_delta(delta)
    zcdp = _zcdp_epsilon(rho_pico, delta)
    if not gdp or not 0 < rho_pico <= MAX_RHO:
        return zcdp
    return min(zcdp, epsilon_at(delta, rho_pico, EVENTS))


def rho_of(epsilon: float, delta: float, gdp: bool = False) -> int:
    """The largest rho, in pico-units, within (`epsilon`, `delta`); the inverse of `epsilon_of`.

    `gdp` is as in `epsilon_of`. Discrete Gaussian noise gets 18% more rho at (1, 1e-5).
    """
    rho = largest_rho(check_epsilon(epsilon), check_delta(delta), gdp)
    if rho == 0:
        raise BudgetError(
            f"epsilon={as_typed(epsilon)} at delta={as_typed(delta)} allows less than rho = 1e-12, "
            "the smallest amount that can be charged. Use a larger epsilon."
        )
    return rho


@lru_cache(maxsize=1024)
def largest_rho(epsilon: float, delta: float, gdp: bool = False) -> int:
    """`rho_of` for numbers already checked; 0 if even one pico-unit does not fit."""
    rho = largest_gaussian(epsilon, delta) if gdp else 0
    # The next line is usually true with Gaussian noise, and false for tiny epsilon.
    if _zcdp_epsilon(rho + 1, delta) > epsilon:
        return rho

    def excess(log_rho: float) -> float:
        """OpenDP's delta(epsilon) is thirty times faster than its epsilon(delta)."""
        distance = gaussian_mu(min(max(1, int(math.exp(log_rho))), MAX_RHO))
        converted = gaussian_profiles().map(distance).delta(epsilon)
        return math.log(max(converted, 1e-300) / delta)

    high = math.log(_guess(epsilon, delta)) + 1
    while excess(high) <= 0:
        high += 1
    guess = int(math.exp(brentq(excess, -1, high, xtol=1e-15, rtol=1e-15)))
    return _most(lambda rho: _zcdp_epsilon(rho, delta) <= epsilon, guess)


@lru_cache(maxsize=1024)
def largest_gaussian(
    epsilon: float, delta: float, events: int = EVENTS, pure: tuple[int, ...] = ()
) -> int:
    """The largest pico-rho of Gaussian noise with `delta_of` at most `delta`, or 0."""
    return _most(
        lambda rho: rho <= MAX_RHO and delta_of(epsilon, rho, events, pure) <= delta,
        _guess(max(epsilon, MIN_EPSILON), delta),
    )


def _guess(epsilon: float, delta: float) -> int:
    """Solve the textbook bound epsilon <= rho + 2 sqrt(rho log(1/delta)) for pico-rho."""
    log = -math.log(delta)
    return max(1, int(PICO * (epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))) ** 2))


def _most(enough: Callable[[int], bool], guess: int) -> int:
    """The largest number that is enough, given that smaller numbers are; 0 if there is none."""
    step, upward = 1, enough(guess)
    low = high = guess
    while upward and enough(high := low + step):
        low, step = high, 2 * step
    while not upward and low > 0 and not enough(low := max(0, high - step)):
        high, step = low, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low


@lru_cache(maxsize=4096)
def _zcdp_epsilon(rho_pico: int, delta: float) -> float:
    if rho_pico == 0:
        return 0.0
    # Beyond MAX_RHO, OpenDP's exponentials overflow. Infinity is valid too: no cap allows it.
    if rho_pico > MAX_RHO:
        return math.inf
    return float(gaussian_profiles().map(gaussian_mu(rho_pico)).epsilon(delta))


@lru_cache(maxsize=1)
def gaussian_profiles() -> Any:
    """OpenDP's Gaussian of scale 1, with zCDP d^2/2 at distance d, converted to approximate DP.

    Its `map` of a distance has the methods ``epsilon(delta)`` and ``delta(epsilon)``.
    """
    import opendp.prelude as dp  # takes 1.3 s, so not imported at the top

    dp.enable_features("contrib")
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    return dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=1.0))


DELTA_SPLITS = (0.5, 0.1, 0.01)
"""Shares of delta tried for each group if zCDP and Gaussian events are combined; all are valid."""


@dataclass(frozen=True, slots=True)
class Events:
    """All amounts spent, in pico-units.

    `rho` is the total of events that are only zCDP. `gdp` is the total rho of `releases` with
    Gaussian noise. `pure` lists the pure epsilons one by one, and `delta` is a total.
    """

    rho: int = 0
    pure: tuple[int, ...] = ()
    delta: int = 0
    gdp: int = 0
    releases: int = 0

    @classmethod
    def of(cls, costs: Iterable[Cost]) -> Events:
        """The events of several releases; zero costs are left out."""
        costs = tuple(costs)
        return cls(
            sum(cost.rho for cost in costs if not cost.gdp),
            tuple(sorted((cost.epsilon for cost in costs if cost.epsilon), reverse=True)),
            sum(cost.delta for cost in costs),
            sum(cost.rho for cost in costs if cost.gdp),
            sum(cost.gdp for cost in costs),
        )


@dataclass(frozen=True, slots=True)
class Remaining:
    """The remaining budget under a cap, in natural units.

    Any one of the first three amounts may be spent, but not all of them.
    """

    # The remaining rho, converted: the largest epsilon for a fit with Gaussian noise
    epsilon: float
    pure_epsilon: float  # The remaining budget for a fit of pure epsilon
    # The remaining budget for Gaussian noise. Less may remain for a fit priced only in zCDP.
    rho: float
    # The remaining budget for selecting labels, and the delta at which `epsilon` holds
    delta: float


class Assignment(NamedTuple):
    """`pure` is the sum counted as epsilon, `rho` the sum over all other events (pico-units)."""

    pure: int
    rho: int


def delta_after(delta: float, spent: int) -> float:
    """The delta for converting rho: `delta` minus `spent` pico-units, rounded down."""
    left = exact(delta) - Fraction(spent, PICO)
    rest = float(left) if spent else float(delta)
    return rest if not spent or Fraction(rest) <= left else math.nextafter(rest, -math.inf)


def total_epsilon(events: Events, delta: float) -> float:
    """The smallest total epsilon at `delta`; infinite if no finite total is known."""
    left = delta_after(delta, events.delta)
    as_zcdp = min(float(_total(choice, left)) for choice in _shortlist(events, left))
    as_gaussian = [
        before + epsilon_at(rest, events.gdp, events.releases, events.pure)
        for before, rest in _beside(events, left)
    ]
    return min([as_zcdp, *as_gaussian])


def within(events: Events, epsilon: float, delta: float) -> bool:
    """Whether the total is at most `epsilon` at `delta`; every rounding is towards False."""
    left = delta_after(delta, events.delta)
    # `rho_of` searches by these same comparisons, so a plan that uses the cap's whole rho fits.
    return left >= 0 and (
        any(
            delta_of(_less(epsilon, before), events.gdp, events.releases, events.pure) <= rest
            for before, rest in _beside(events, left)
        )
        or any(_total(choice, left) <= exact(epsilon) for choice in _shortlist(events, left))
    )


def remaining(events: Events, epsilon: float, delta: float) -> Remaining:
    """The remaining budget of a cap of (`epsilon`, `delta`) after `events`."""
    left = max(0.0, delta_after(delta, events.delta))
    as_zcdp = 0  # pico-rho that can be added to an assignment
    for choice in _shortlist(events, left, epsilon):
        rest = exact(epsilon) - Fraction(choice.pure, PICO)
        if rest >= 0 and left > 0:
            as_zcdp = max(as_zcdp, largest_rho(float(rest), left) - choice.rho)
    releases = events.releases + EVENTS
    gaussian = [
        largest_gaussian(_less(epsilon, before), rest, releases, events.pure) - events.gdp
        for before, rest in _beside(events, left)
    ]
    rho = max([as_zcdp, *gaussian])
    # Epsilon of a fit with Gaussian noise that needs at most this rho
    fitted, step = epsilon_of(rho, left, gdp=True) if left else 0.0, 1e-12
    whole = round(fitted, 9)  # 1 instead of 0.99999999998, if 1 was meant
    if whole > MIN_EPSILON and largest_rho(whole, left, gdp=True) <= rho:
        fitted = whole
    while fitted > MIN_EPSILON and largest_rho(fitted, left, gdp=True) > rho:
        fitted, step = fitted * (1 - step), 2 * step
    gap = float(exact(epsilon) - exact(min(total_epsilon(events, delta), epsilon)))
    return Remaining(
        epsilon=fitted,
        # A pure event is added to the total, or counted as rho = epsilon^2 / 2.
        pure_epsilon=max(gap, math.sqrt(2 * as_zcdp / PICO)),
        rho=rho / PICO,
        delta=left,
    )


def _beside(events: Events, delta: float) -> Iterator[tuple[float, float]]:
    """Epsilon of the events that are only zCDP, and the delta that remains for the others."""
    if not delta > 0:
        return
    if not events.rho:
        yield 0.0, delta
        return
    for part in DELTA_SPLITS:
        for share in (part, 1 - part):
            first = math.nextafter(share * delta, 0)
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
    return Fraction(choice.pure, PICO) + exact(converted) if converted < math.inf else math.inf


def _shortlist(events: Events, delta: float, cap: float | None = None) -> Sequence[Assignment]:
    """The few assignments to convert exactly: both ends, and the best by a float formula.

    The formula only selects. Each assignment is valid: a poor selection costs budget, not privacy.
    With a `cap`, the best assignment is the one with the most remaining rho. Without a cap, it is
    the one with the smallest total.

    Assignments count the largest pure events as epsilon and the others as rho. Others need not be
    tried. `epsilon_of` is a minimum of lines s rho + c(s), one for each Renyi order s. The smallest
    total is therefore the minimum over s of

        c(s) + s rho + sum over pure events of min(epsilon_j, s epsilon_j^2 / 2),

    and the inner minimum equals epsilon_j exactly when epsilon_j >= 2/s, which is a threshold.
    """
    as_epsilon = accumulate(events.pure, initial=0)
    # epsilon^2 / 2 in pico-units, rounded up
    as_rho = [*accumulate((-(-(e**2) // (2 * PICO)) for e in events.pure), initial=0)]
    choices = [
        Assignment(pure, events.rho + events.gdp + as_rho[-1] - rho)
        for pure, rho in zip(as_epsilon, as_rho, strict=True)
    ]
    if len(choices) <= 2 or not delta > 0:
        return choices
    pure, rho = np.array(choices, dtype=np.float64).T[:, :, None] / PICO
    # At Renyi order s, epsilon <= s rho + c(s) at `delta` (Canonne et al., Prop. 12).
    order = 1 + np.geomspace(1e-2, 1e7, 400)
    line = np.log1p(-1 / order) - (math.log(delta) + np.log(order)) / (order - 1)
    if cap is None:
        best = np.argmin((pure + order * rho + line).min(axis=1))
    else:
        best = np.argmax(((cap - pure - line) / order - rho).max(axis=1))
    return choices[0], choices[int(best)], choices[-1]
