"""Gaussian accounting: by 50 digits, by lattice sums of the discrete law, and by Google's PLD."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from privcausal.accounting import PICO, TradeOff, epsilon_of, rho_of
from privcausal.accounting.price import delta_of, epsilon_at, gaussian_delta

DELTA = 1e-5


def exact_delta(epsilon, mu):
    """Balle and Wang's formula by 50 digits."""
    with mp.workdps(60):
        e, m = mpf(epsilon), mpf(mu)
        return mp.ncdf(-e / m + m / 2) - mp.exp(e) * mp.ncdf(-e / m - m / 2)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.floats(-4, 1.4).map(lambda x: 10**x), st.floats(-8, 30))
def test_the_delta_of_a_gaussian_is_an_upper_bound_and_a_tight_one(mu, away):
    epsilon = mu * away
    found, truth = float(gaussian_delta(np.array([epsilon]), mu)[0]), exact_delta(epsilon, mu)
    assert found >= truth * (1 - mpf(10) ** -30)
    assert found <= truth * (1 + mpf("1e-6")) + mpf("1e-300")


@pytest.mark.parametrize(
    ("epsilon", "rho"),
    [(0.1, 5.29e-4), (0.5, 0.01011), (1, 0.03593), (2, 0.1258), (4, 0.4277), (8, 1.388)],
)
def test_what_epsilon_pays_for(epsilon, rho):
    found = rho_of(epsilon, DELTA, gdp=True)
    assert found / PICO == pytest.approx(rho, rel=1e-3)
    mu = math.sqrt(2 * found / PICO)
    assert exact_delta(epsilon, mu) <= DELTA  # and, but for the slack, no more is to be had
    assert exact_delta(epsilon * (1 - 1e-5), mu) > DELTA
    assert epsilon_of(found, DELTA, gdp=True) == pytest.approx(epsilon, rel=1e-9)
    assert epsilon_of(found, DELTA, gdp=True) <= epsilon * (1 + 1e-12)


# -- the discrete law itself -------------------------------------------------------------------


def lattice_delta(epsilon, sigma, moves):
    """delta of one number moved by each of `moves` steps in turn, each time with new noise.

    The loss of z is linear in it, sum of (2 z_i m_i + m_i^2) / (2 sigma^2), so that its law is a
    convolution of those of m_i z_i. Both tails are summed as they are; what lies beyond 18 sigma
    is counted as lost.
    """
    reach = math.ceil(18 * sigma)
    z = np.arange(-reach, reach + 1)
    mass = np.exp(-(z**2) / (2 * sigma**2))
    mass /= mass.sum()
    total, lowest = np.ones(1), 0
    for move in moves:
        spread = np.zeros(2 * reach * move + 1)
        spread[::move] = mass
        total, lowest = np.convolve(total, spread), lowest - reach * move
    loss = (2 * (lowest + np.arange(len(total))) + sum(m * m for m in moves)) / (2 * sigma**2)
    beyond = 1e-60
    return float(total @ np.maximum(0, -np.expm1(epsilon - loss))) + beyond


@pytest.mark.parametrize("moves", [(20,), (64,), (12, 9), (3, 4, 5), (30, 1, 1)])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0])
def test_the_discrete_law_loses_no_more_than_is_charged(limits, moves, epsilon):
    """At 64 steps, where the slack is a million million times that of the vault's 2^26."""
    sigma = 64.0
    rho = math.ceil(PICO * sum(m * m for m in moves) / (2 * sigma**2))
    truth = lattice_delta(epsilon, sigma, moves)
    with limits(FINEST=sigma, NUMBERS=1):
        assert truth <= delta_of(epsilon, rho, len(moves)) * (1 + 1e-9)
        if truth > 1e-9:
            tight = epsilon_at(truth, rho, len(moves))
            assert tight <= epsilon + 0.03 * len(moves)  # two slacks of 0.0026 a number, and more


def pair_delta(epsilon, sigma, first, second):
    """The same of two numbers, the second's tail sums looked up for each value of the first.

    `second` may be an array: the move for each value of the first number, from -18 to 18 sigma.
    """
    reach = math.ceil(18 * sigma)
    z = np.arange(-reach, reach + 1)
    mass = np.exp(-(z**2) / (2 * sigma**2))
    mass /= mass.sum()
    left = epsilon - (2 * first * z + first**2) / (2 * sigma**2)
    moves, total = np.broadcast_to(second, z.shape), 1e-60
    for move in np.unique(moves):
        other, here = (2 * move * z + move**2) / (2 * sigma**2), moves == move
        if move < 0:  # the losses fall in z: those of the mirrored number
            other = other[::-1]
        stay = np.append(np.cumsum(mass[::-1])[::-1], 0)
        gone = np.append(np.cumsum((mass * np.exp(-other))[::-1])[::-1], 0)
        at = np.searchsorted(other, left[here])
        total += float(mass[here] @ (stay[at] - np.exp(np.minimum(left[here], 700)) * gone[at]))
    return total


@settings(max_examples=60, deadline=None)
@given(
    first=st.integers(0, 60),
    cuts=st.lists(st.integers(-200, 200), max_size=6),
    shares=st.lists(st.floats(-1, 1), min_size=7, max_size=7),
    epsilon=st.floats(0, 3),
)
def test_what_is_asked_next_may_depend_on_the_answer(limits, first, cuts, shares, epsilon):
    """The second number is moved as far as the first one's value tempts to, within one total."""
    sigma, total = 64.0, 64
    most = math.isqrt(total**2 - first**2)
    reach = math.ceil(18 * sigma)
    part = np.searchsorted(np.sort(cuts), np.arange(-reach, reach + 1))
    second = np.rint(most * np.array(shares)).astype(int)[part]
    rho = math.ceil(PICO * total**2 / (2 * sigma**2))
    with limits(FINEST=sigma, NUMBERS=1):
        assert pair_delta(epsilon, sigma, first, second) <= delta_of(epsilon, rho, 2) * (1 + 1e-9)


@pytest.mark.parametrize("moves", [(2000, 0), (900, 700)])
def test_on_a_finer_grid_the_claim_is_the_truth(limits, moves):
    sigma = 4096.0
    rho = math.ceil(PICO * sum(m * m for m in moves) / (2 * sigma**2))
    with limits(FINEST=sigma, NUMBERS=1):
        claimed = epsilon_at(DELTA, rho, len(moves))
    assert pair_delta(claimed, sigma, *moves) <= DELTA
    assert pair_delta(claimed * 0.999, sigma, *moves) > DELTA


# -- compositions with pure mechanisms ---------------------------------------------------------


def responses(epsilon):
    """Google's PLD of randomised response, by a lower bound of the truth."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    flip = 2 / (1 + math.exp(epsilon))
    return pld.from_randomized_response(flip, 2, pessimistic_estimate=False)


@pytest.mark.parametrize("sigma", [2.0, 6.0, 25.0])
@pytest.mark.parametrize("pure", [(), (0.5,), (0.1,) * 6, (0.3, 0.05, 0.05, 0.2)])
def test_mixtures_are_those_of_privacy_loss_distributions(sigma, pure):
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    truth = pld.from_gaussian_mechanism(sigma, pessimistic_estimate=False)
    for epsilon in pure:
        truth = truth.compose(responses(epsilon))
    rho = math.ceil(PICO / (2 * sigma**2))
    ours = epsilon_at(DELTA, rho, 1, tuple(math.ceil(PICO * e) for e in pure))
    real = truth.get_epsilon_for_delta(DELTA)
    assert real - 1e-9 <= ours <= real * 1.001 + 1e-3  # Google's grid is 1e-4 wide a part


def test_too_many_kinds_of_pure_mechanisms_are_added_up():
    many = tuple(PICO // 100 + k for k in range(13))
    rho = rho_of(1, DELTA, gdp=True)
    assert epsilon_at(DELTA, rho, 1, many) == pytest.approx(1 + sum(many) / PICO, rel=1e-6)


def test_the_trade_off_function_is_the_gaussian_one():
    rho = rho_of(1, DELTA, gdp=True)
    mu = math.sqrt(2 * rho / PICO)
    ours, exact = TradeOff.from_noise(rho, 16), TradeOff.from_gaussian(mu)
    level = np.linspace(0, 1, 101)
    assert (ours(level) <= exact(level)).all()
    assert ours(level) == pytest.approx(exact(level), abs=1e-6)
    assert 0.5 * (1 + ours.delta(0.0)) == pytest.approx(float(mp.ncdf(mu / 2)), abs=1e-6)  # .553


def test_nothing_spent_and_no_delta():
    assert epsilon_at(DELTA, 0, 0) == 0
    assert epsilon_at(0.0, 10, 1) == math.inf
    assert epsilon_at(1e-50, PICO, 1) == math.inf  # the slack alone is larger
