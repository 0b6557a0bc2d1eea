"""(epsilon, delta) <-> rho against the formula, an independent library and stored values."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.optimize import minimize_scalar

from privcausal.accounting import PICO, epsilon_of, pico, rho_of
from privcausal.accounting.price import MAX_RHO, gaussian_mu
from privcausal.errors import BudgetError

NO_EPSILON = [0, -1, 1e-12, math.nan, math.inf, True, "1", None, 1e6, 1j]
NO_DELTA = [0, 1, 2, -1e-5, math.nan, math.inf, True, "1e-5", None]
WRONG = [(rho_of, (epsilon, 1e-5), "epsilon must be a number") for epsilon in NO_EPSILON]
WRONG += [(rho_of, (1.0, delta), "delta must be a number") for delta in NO_DELTA]
WRONG += [(epsilon_of, (10**9, delta), "delta must be a number") for delta in NO_DELTA]
WRONG += [(epsilon_of, (rho, 1e-5), None) for rho in (-1, 0.5, True, "1", None)]


@pytest.mark.parametrize(("epsilon", "multiplier"), [(0.5, 7.67), (1, 4.05), (2, 2.15)])
def test_noise_multipliers_at_delta_1e_5(epsilon, multiplier):
    assert (2 * rho_of(epsilon, 1e-5) / PICO) ** -0.5 == pytest.approx(multiplier, abs=0.005)


@pytest.mark.parametrize("rho", [1e-4, 0.03, 0.5, 20])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_epsilon_is_the_formula_of_canonne_kamath_steinke(rho, delta):
    def bound(log_order):  # Proposition 12, minimised here by other means than OpenDP's
        s = 1 + math.exp(log_order)
        return s * rho + math.log1p(-1 / s) - (math.log(delta) + math.log(s)) / (s - 1)

    least = minimize_scalar(bound, bounds=(-4, 14), method="bounded", options={"xatol": 1e-10})
    assert epsilon_of(pico(rho), delta) == pytest.approx(max(least.fun, 0), rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("rho", [0.001, 0.03, 1.0])
def test_epsilon_lies_between_the_gaussian_truth_and_renyi_accounting(rho):
    from dp_accounting import GaussianDpEvent
    from dp_accounting.pld import privacy_loss_distribution
    from dp_accounting.rdp import RdpAccountant

    sigma, ours = (2 * rho) ** -0.5, epsilon_of(pico(rho), 1e-5)
    truth = privacy_loss_distribution.from_gaussian_mechanism(sigma, pessimistic_estimate=False)
    renyi = RdpAccountant(1 + np.geomspace(0.1, 1e4, 2000)).compose(GaussianDpEvent(sigma))
    assert truth.get_epsilon_for_delta(1e-5) <= ours <= 1.15 * truth.get_epsilon_for_delta(1e-5)
    assert ours == pytest.approx(renyi.get_epsilon(1e-5), rel=1e-4)


@pytest.mark.sample(3)
@pytest.mark.parametrize("delta", [1e-5, 1e-300])
@pytest.mark.parametrize("epsilon", [1e-4, 1e-3, 0.1, 1, 10, 1e3, 1e4])
def test_rho_of_is_the_largest_that_fits(epsilon, delta):
    rho = rho_of(epsilon, delta)
    assert epsilon_of(rho, delta) <= epsilon < epsilon_of(rho + 1, delta)


def test_a_tiny_epsilon_still_converts():
    assert epsilon_of(rho_of(1e-6, 1e-5), 1e-5) <= 1e-6


def test_an_epsilon_that_buys_less_than_one_unit_is_refused():
    assert epsilon_of(1, 1e-300) > 1e-6
    with pytest.raises(BudgetError, match="smallest amount that can be charged"):
        rho_of(1e-6, 1e-300)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.floats(0.01, 20), st.floats(1e-12, 1e-2))
def test_a_request_is_met_exactly(epsilon, delta):
    rho = rho_of(epsilon, delta)
    assert epsilon_of(rho, delta) <= epsilon < epsilon_of(rho + 1, delta)


@given(st.integers(1, MAX_RHO))
def test_the_distance_behind_a_rho_never_stands_for_less(rho):
    d = Fraction(gaussian_mu(rho))
    assert Fraction(rho, PICO) <= d**2 / 2 <= Fraction(rho, PICO) * (1 + Fraction(1, 10**14))


def test_the_ends_of_the_scale():
    assert epsilon_of(0, 1e-5) == 0.0
    assert epsilon_of(1, 1e-5) == 0.0  # total variation is far below delta
    assert epsilon_of(MAX_RHO, 1e-5) > 1e4
    assert epsilon_of(MAX_RHO + 1, 1e-5) == math.inf


@pytest.mark.parametrize(("convert", "amounts", "words"), WRONG)
def test_what_is_no_amount_is_refused(convert, amounts, words):
    with pytest.raises(BudgetError, match=words):
        convert(*amounts)


def least_delta(rho, epsilon):
    """Canonne, Kamath and Steinke (2020, Corollary 13), the least over alpha, by 50 digits."""
    with mp.workdps(50):
        rho, epsilon = mpf(rho) / PICO, mpf(epsilon)

        def log_delta(u):
            alpha = 1 + mp.exp(u)
            return (alpha - 1) * (alpha * rho - epsilon) - u + alpha * mp.log1p(-1 / alpha)

        low, high, golden = mpf(-60), mpf(60), (mp.sqrt(5) - 1) / 2
        for _ in range(220):  # it is convex in u
            x, y = high - golden * (high - low), low + golden * (high - low)
            low, high = (low, y) if log_delta(x) < log_delta(y) else (x, high)
        return mp.exp(log_delta((low + high) / 2))


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9, 1e-15])
@pytest.mark.parametrize("rho", [1, 10**6, 30_600_000_000, PICO, 50 * PICO, 400 * PICO])
def test_the_conversion_of_opendp_is_a_bound_by_50_digits(rho, delta):
    """Of networks, old ledgers and declared stages; and no more than rounding above the least."""
    epsilon = epsilon_of(rho, delta)
    assert least_delta(rho, epsilon) <= delta
    if epsilon > 0:
        assert least_delta(rho, epsilon * (1 - 1e-6)) > delta
