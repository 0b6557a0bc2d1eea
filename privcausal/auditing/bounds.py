"""How far apart two laws are at least, from draws of one statistic: mu or epsilon, at a level.

A test says "two" where the statistic is above a cut. From counts of its false alarms and misses,
Clopper and Pearson (1934) bound their rates alpha and beta from above, each with chance
1 - level / 2. Then, with chance at least 1 - level,

- mu >= Phi^-1(1 - alpha) - Phi^-1(beta), since a mu-GDP mechanism allows no test below G_mu
  (Dong, Roth and Su 2022, Definition 4), and
- epsilon >= log((1 - beta - delta) / alpha), and with the two laws exchanged, since an
  (epsilon, delta)-DP mechanism allows none (Kairouz, Oh and Viswanath 2017, equation 3).

The cut is chosen on the first half of the draws and tested on the second; a cut chosen where it is
tested would make the bound too large.

Where epsilon is spread over many numbers with independent noise, all of it shows only where every
one of them is far out, which is too rare to count. `product_bound` counts each by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from privcausal.errors import CapabilityError
from privcausal.typing import Integers, Vector

Measure = Literal["mu", "epsilon"]

CUTS = 200
"""At so many quantiles of the first half a cut is tried."""


def mu_bound(one: Vector, two: Vector, level: float, cut: float | None = None) -> float:
    """A lower bound of mu with chance 1 - `level`, from draws of a statistic larger under `two`.

    Parameters
    ----------
    one, two : Vector, shapes (n,) and (m,)
        Independent draws on two neighbouring tables.
    level : float
        Chance that the bound is above the truth, in (0, 1).
    cut : float, optional
        Known beforehand; then all draws test it.

    Returns
    -------
    float
        0 if nothing is shown.
    """
    return _bound(one, two, level, cut, _mu)


def epsilon_bound(
    one: Vector, two: Vector, level: float, delta: float = 0.0, cut: float | None = None
) -> float:
    """A lower bound of epsilon at `delta`, as `mu_bound`."""
    if not 0 <= delta < 1:
        raise CapabilityError("delta of an audit is a number from 0 to 1")
    return _bound(one, two, level, cut, lambda rates: _epsilon(rates, delta))


def product_bound(hits: Integers, alarms: Integers, trials: int, level: float) -> float:
    """A lower bound of epsilon with chance 1 - `level`, from one event of each of k numbers.

    The numbers' noise is independent, so all k events together have probability p_1 ... p_k on one
    table and q_1 ... q_k on the other, and epsilon >= sum of log(p_j / q_j). With observed shares
    p^_j and q^_j of n draws, Chernoff's bound says that n KL(p^_j || p_j), where p^_j > p_j, and
    n KL(q^_j || q_j), where q^_j < q_j, exceed x with chance at most exp(-x): their sum is
    stochastically below a gamma variable of shape 2 k. The bound is the least sum of logarithms
    where that sum is at most its quantile. It lies at p_j = (m p^_j - 1) / (m - 1),
    q_j = (m q^_j + 1) / (m + 1) for one multiplier m.

    Parameters
    ----------
    hits, alarms : Integers, shapes (k,)
        How often each event, fixed beforehand, happened on the one table and on the other.
    trials : int
        Draws on each table.

    Returns
    -------
    float
        0 if nothing is shown.
    """
    from scipy.optimize import brentq
    from scipy.stats import gamma

    # a hit less shows no more, and keeps logarithms finite
    p, q = np.minimum(hits, trials - 1) / trials, np.asarray(alarms) / trials
    if not len(p) or p.min() <= 0:
        return 0.0
    budget = gamma(2 * len(p)).isf(level) / trials

    def ends(m: float) -> tuple[Vector, Vector]:
        return (m * p - 1) / (m - 1), (m * q + 1) / (m + 1)

    def excess(log: float) -> float:
        low, high = ends(math.exp(log) + 1 / float(p.min()))
        return float(_kl(p, low).sum() + _kl(q, high).sum()) - budget

    m = math.exp(brentq(excess, -30.0, 60.0)) + 1 / float(p.min())
    low, high = ends(m)
    return max(0.0, float(np.log(low).sum() - np.log(high).sum()))


def _kl(seen: Vector, share: Vector) -> Vector:
    """KL of two coins."""
    from scipy.special import xlogy

    rest = xlogy(1 - seen, (1 - seen) / np.maximum(1 - share, 1e-300))
    return np.asarray(xlogy(seen, np.maximum(seen, 1e-300) / share) + rest)


Score = Callable[[tuple[Vector, Vector, Vector, Vector]], Vector]


def _bound(one: Vector, two: Vector, level: float, cut: float | None, score: Score) -> float:
    if not 0 < level < 1:
        raise CapabilityError("level of an audit is a number between 0 and 1")
    # what differs in the last bits alone is one value: a cut between would split a plateau
    one, two = (np.asarray(np.round(draws, 9), np.float64) for draws in (one, two))
    if cut is None:
        (first, one), (other, two) = _halves(one), _halves(two)
        cuts = _cuts(np.concatenate([first, other]))
        cut = float(cuts[np.argmax(score(_rates(first, other, cuts, level)))])
    found = score(_rates(one, two, np.array([cut]), level))
    return max(0.0, float(found[0]))


def _halves(draws: Vector) -> tuple[Vector, Vector]:
    if len(draws) < 2:
        raise CapabilityError("an audit needs at least two trials: one half chooses the cut")
    middle = len(draws) // 2
    return draws[:middle], draws[middle:]


def _cuts(draws: Vector) -> Vector:
    """Places between values, at quantiles and both ends: laws with bounds have plateaus there."""
    values = np.unique(draws)
    between = (values[1:] + values[:-1]) / 2
    if not len(between):
        return values
    at = np.unique(np.searchsorted(between, np.quantile(draws, np.linspace(0, 1, CUTS))))
    return np.asarray(between[np.clip(at, 0, len(between) - 1)])


def _rates(
    one: Vector, two: Vector, cuts: Vector, level: float
) -> tuple[Vector, Vector, Vector, Vector]:
    """Bounds of 1 - alpha (least), alpha (most), 1 - beta (least), beta (most), at each cut."""
    quiet, missed = (
        np.asarray(np.searchsorted(np.sort(v), cuts, side="right")) for v in (one, two)
    )
    alpha = _most(len(one) - quiet, len(one), level / 2)
    beta = _most(missed, len(two), level / 2)
    return 1 - alpha, alpha, 1 - beta, beta


def _most(count: Integers, trials: int, level: float) -> Vector:
    """The Clopper-Pearson upper limit of a share, which the share exceeds with chance `level`."""
    from scipy.stats import beta

    with np.errstate(invalid="ignore"):
        limit = beta.ppf(1 - level, count + 1, trials - count)
    return np.asarray(np.where(count >= trials, 1.0, limit))


def _mu(rates: tuple[Vector, Vector, Vector, Vector]) -> Vector:
    from scipy.special import ndtri

    right, _, hit, _ = rates
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nan_to_num(ndtri(right) + ndtri(hit), nan=0.0, neginf=0.0))


def _epsilon(rates: tuple[Vector, Vector, Vector, Vector], delta: float) -> Vector:
    right, alarm, hit, miss = rates
    ratio = np.maximum((hit - delta) / alarm, (right - delta) / miss)
    return np.asarray(np.log(np.maximum(ratio, 1.0)))
