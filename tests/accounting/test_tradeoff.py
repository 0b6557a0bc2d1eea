"""Trade-off functions: never above the truth, and close to it."""

import math
from decimal import Decimal, localcontext
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from privcausal.accounting import TradeOff, convex_envelope, epsilon_of, pico

ALPHA = np.unique(np.concatenate([np.linspace(0, 1, 1001), np.geomspace(1e-12, 1e-3, 200)]))

# mu, epsilon, and Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu) by mpmath, 50 digits
STORED = [
    (0.01, 0.02, 8.575951307878228e-05),
    (0.25, 1, 2.924272104856407e-06),
    (0.5, 0, 0.19741265136584746),
    (1, 1, 0.12693673750664394),
    (1, 8, 3.6508216874217905e-15),
    (4, 30, 7.77462560605894e-09),
]

dp_functions = st.builds(TradeOff.from_dp, st.floats(0, 12), st.floats(0, 0.9))
gaussians = st.builds(TradeOff.from_gaussian, st.floats(1e-3, 8))
zcdp = st.sampled_from((1e-8, 1e-3, 0.03, 0.5, 5.0)).map(cache(TradeOff.from_zcdp))
single = st.one_of(dp_functions, gaussians, zcdp)
functions = st.one_of(
    single, st.lists(single, min_size=1, max_size=4).map(lambda f: TradeOff.minimum(*f))
)


def gaussian_delta(epsilon, mu):
    """Dong, Roth and Su, Corollary 2.13."""
    return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))


def dp_function(alpha, epsilon, delta):
    """Dong, Roth and Su, Equation 5, word for word."""
    e = math.exp(epsilon)
    return np.maximum(0, np.maximum(1 - delta - e * alpha, (1 - delta - alpha) / e))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(functions)
def test_every_one_is_a_tradeoff_function(f):
    beta = f(ALPHA)
    assert (np.diff(beta) <= 0).all()
    assert (beta <= 1 - ALPHA).all()
    assert (beta >= 0).all()
    assert f(1.0) == 0
    slopes = np.diff(beta) / np.diff(ALPHA)
    # differences of numbers near 1 over steps of 1e-12 are only so sharp
    assert (np.diff(slopes) >= -1e-14 / np.diff(ALPHA)[:-1] - 1e-9 * np.abs(slopes[:-1])).all()


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(functions)
def test_every_one_is_its_own_inverse(f):
    beta = f(ALPHA)
    alpha, beta = ALPHA[beta > 0], beta[beta > 0]
    # between two neighbours of beta, since a steep stretch magnifies rounding
    assert (f(np.minimum(1, beta + 1e-14)) <= alpha).all()
    assert (alpha <= f(np.maximum(0, beta - 1e-14)) + 1e-14).all()


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 0), (1, 0), (1, 1e-5), (0.1, 0.2), (20, 1e-9)])
def test_from_dp_is_the_definition_rounded_down(epsilon, delta):
    gap = dp_function(ALPHA, epsilon, delta) - TradeOff.from_dp(epsilon, delta)(ALPHA)
    assert (gap >= 0).all()
    assert (gap <= 1e-13).all()


@settings(deadline=None)
@given(st.floats(0, 30), st.floats(0, 0.5))
def test_from_dp_there_and_back(epsilon, delta):
    f = TradeOff.from_dp(epsilon, delta)
    back = f.epsilon(delta)
    assert back >= epsilon  # rounding is towards less privacy
    assert back == pytest.approx(epsilon, rel=1e-12, abs=1e-13)
    assert f.delta(epsilon) >= delta
    assert f.delta(epsilon) == pytest.approx(delta, abs=1e-13)


@settings(deadline=None)
@given(st.floats(0, 30), st.floats(0, 0.5), st.floats(0, 1))
def test_from_dp_never_promises_a_last_digit_too_much(epsilon, delta, alpha):
    with localcontext() as context:
        context.prec = 60
        factor, one = Decimal(epsilon).exp(), Decimal(1)
        steep = one - Decimal(delta) - factor * Decimal(alpha)
        flat = (one - Decimal(delta) - Decimal(alpha)) / factor
        ours = Decimal(float(TradeOff.from_dp(epsilon, delta)(alpha)))
        assert ours <= max(Decimal(0), steep, flat)


def test_below_its_delta_a_dp_function_promises_nothing():
    assert TradeOff.from_dp(1, 1e-5).epsilon(1e-6) == math.inf
    assert TradeOff.from_dp(1, 1e-5).delta(30) == 1e-5


@pytest.mark.parametrize("mu", [1e-3, 0.05, 0.25, 1, 4, 16, 30])
def test_gaussian_against_the_closed_form(mu):
    f = TradeOff.from_gaussian(mu)
    gap = norm.cdf(norm.isf(ALPHA) - mu) - f(ALPHA)
    assert (gap >= -1e-16).all()
    assert (gap <= 5e-5).all()
    for delta in (1e-10, 1e-6, 1e-5, 1e-3):
        exact = 0.0
        if gaussian_delta(0, mu) > delta:
            exact = brentq(lambda e, d=delta: gaussian_delta(e, mu) - d, 0, 690, xtol=1e-13)
        assert exact * (1 - 1e-12) <= f.epsilon(delta) <= exact * (1 + 1e-4)


def test_gaussian_delta_at_stored_values():
    for mu, epsilon, delta in STORED:
        ours = TradeOff.from_gaussian(mu).delta(epsilon)
        assert delta <= ours <= delta * (1 + 2e-3)


@pytest.mark.parametrize("rho", [1e-12, 1e-6, 0.0085, 0.03, 0.5, 20, 450])
def test_zcdp_says_what_the_budget_says(rho):
    f = TradeOff.from_zcdp(rho)
    for delta in (1e-12, 1e-5, 1e-2):
        budget = epsilon_of(pico(rho), delta)
        assert budget * (1 - 1e-9) <= f.epsilon(delta) <= budget * (1 + 1e-4) + 1e-9


@pytest.mark.parametrize("rho", [0.0085, 0.1, 2])
def test_zcdp_promises_less_than_the_gaussian_that_costs_it(rho):
    gaussian = TradeOff.from_gaussian(math.sqrt(2 * rho))
    assert (TradeOff.from_zcdp(rho)(ALPHA) <= gaussian(ALPHA)).all()


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(single, min_size=1, max_size=4), st.floats(0, 20))
def test_niu_theorem_6_is_the_worst_profile(parts, epsilon):
    # (min f_i)* = max f_i*, and delta(epsilon) = 1 + f*(-e^epsilon): an independent way to say it
    joint = TradeOff.minimum(*parts)
    worst = max(f.delta(epsilon) for f in parts)
    assert joint.delta(epsilon) == pytest.approx(worst, rel=1e-9, abs=1e-15)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(single, min_size=1, max_size=4))
def test_niu_theorem_6_lies_below_every_part(parts):
    joint = TradeOff.minimum(*parts)(ALPHA)
    for f in parts:
        assert (joint <= f(ALPHA) + 1e-15).all()


def test_niu_theorem_6_against_the_double_conjugate():
    # the definition on a grid: g** (x) = sup_y xy - sup_u (uy - g(u))
    parts = [TradeOff.from_dp(1, 0.01), TradeOff.from_dp(0.2, 0.1), TradeOff.from_gaussian(0.8)]
    grid = np.linspace(0, 1, 4001)
    least = np.min([f(grid) for f in parts], axis=0)
    slopes = -np.concatenate([np.geomspace(1e-3, 1, 800), np.geomspace(1, 1e3, 800)])
    conjugate = (slopes[:, None] * grid - least).max(axis=1)
    double = (grid[:, None] * slopes - conjugate).max(axis=1)
    joint = TradeOff.minimum(*parts)(grid)
    assert np.abs(np.maximum(double, 0) - joint).max() < 2e-3
    assert (least - joint).max() > 1e-3  # here the minimum is not convex: the envelope matters


def test_niu_remark_7():
    f = TradeOff.from_dp(1, 1e-5)
    joint = TradeOff.minimum(f, f, f)
    assert joint.epsilon(1e-5) == f.epsilon(1e-5) == pytest.approx(1, rel=1e-12)
    assert (joint(ALPHA) == f(ALPHA)).all()
    strong = TradeOff.from_dp(0.5, 1e-6)  # the better part does not help
    assert (TradeOff.minimum(f, strong)(ALPHA) == f(ALPHA)).all()


def test_losses_beyond_the_floats_promise_nothing():
    assert TradeOff.from_gaussian(30).epsilon(1e-12) == math.inf or (
        TradeOff.from_gaussian(30).epsilon(1e-12) > 600
    )
    assert TradeOff.from_dp(1, 1).epsilon(0.5) == math.inf


points = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30)


@given(points)
def test_convex_envelope_is_convex_and_below(pairs):
    x, y = np.array(pairs).T
    corner_x, corner_y = convex_envelope(x, y)
    assert set(zip(corner_x, corner_y, strict=True)) <= set(zip(x, y, strict=True))
    assert (np.interp(x, corner_x, corner_y) <= y + 1e-12).all()
    with np.errstate(over="ignore"):
        slopes = np.diff(corner_y) / np.diff(corner_x)
    assert (slopes[1:] > slopes[:-1]).all()


def test_it_cannot_be_changed():
    f = TradeOff.from_dp(1)
    with pytest.raises(AttributeError):
        f.level = np.zeros(2)
    with pytest.raises(ValueError, match="read-only"):
        f.level[0] = 0.5
