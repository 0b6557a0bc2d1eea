"""Totals over rho, pure epsilon and delta: valid, least, and compared without rounding."""

import math
from fractions import Fraction

import numpy as np
import pytest
from compositions import least_total, random
from hypothesis import given, settings
from hypothesis import strategies as st

from privcausal.accounting import PICO, Cost, Events, delta_after, epsilon_of, rho_of, total_epsilon
from privcausal.accounting.price import exact, remaining, within

DELTA = 1e-5
ONE = rho_of(1, DELTA)

costs = st.builds(
    Cost,
    rho=st.sampled_from([0, 1, 10**7, 10**9, 2 * 10**10]),
    epsilon=st.sampled_from([0, 10**8, 10**10, 2 * 10**11, PICO]),
    delta=st.sampled_from([0, 0, 10**5]),
    gdp=st.booleans(),
)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("pure", [400, 800])
def test_a_huge_pure_price_is_counted_without_a_warning(pure):
    events = Events.of([Cost(0, pure * PICO)])
    assert not within(events, 1.0, DELTA)
    assert total_epsilon(events, DELTA) == pytest.approx(pure, rel=1e-6)


@given(st.floats(1e-12, 0.5), st.integers(1, 10**11))
def test_what_is_left_of_delta_is_never_rounded_up(delta, spent):
    left = exact(delta) - Fraction(spent, PICO)
    assert Fraction(delta_after(delta, spent)) <= left


def test_many_small_pure_events_are_counted_as_rho_or_better():
    events = Events.of([Cost(epsilon=PICO // 100)] * 400)
    total = total_epsilon(events, DELTA)
    # randomised responses of 0.01 are next to Gaussian noise of mu = 0.01 each
    assert epsilon_of(400 * PICO // 20_000, DELTA, gdp=True) == pytest.approx(total, rel=0.02)
    assert total < epsilon_of(400 * PICO // 20_000, DELTA) < 1


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(costs, max_size=7))
def test_never_above_the_least_of_all_subsets(spent):
    events = Events.of(spent)
    total = total_epsilon(events, DELTA)
    assert total <= least_total(events, DELTA) * (1 + 1e-9) + 1e-12
    if not events.pure and not events.gdp:
        assert total == least_total(events, DELTA)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(costs, max_size=6), costs)
def test_spending_more_never_lowers_the_total(spent, more):
    before, after = Events.of(spent), Events.of([*spent, more])
    assert total_epsilon(after, DELTA) >= total_epsilon(before, DELTA) - 1e-12


@pytest.mark.parametrize("count", [8, pytest.param(150, marks=pytest.mark.slow)])
def test_never_below_the_true_composition(count):
    """The truth is bounded from below here, so no rounding of either side is a false alarm."""
    tight = 0
    for one in random(count):
        truth, ours = one.truth(1e-3), one.ours
        assert ours >= truth - 1e-9, one
        if ours <= 1.3 * truth:
            tight += 1
        else:
            # where Laplace noise dominates no assignment of its prices is tight: ours is the least
            assert one.scales, one
            assert ours == pytest.approx(one.least(), rel=1e-9), one
    assert tight >= 0.9 * count


def test_the_last_fit_fits_to_the_unit():
    for epsilon in (0.1, 0.3, 1, 2, 7.7):
        rho = rho_of(epsilon, DELTA)
        assert within(Events(rho=rho), epsilon, DELTA)
        assert not within(Events(rho=rho + 1), epsilon, DELTA)


def test_decimal_caps_of_pure_epsilon_are_decimal():
    tenth = Cost(epsilon=PICO // 10)
    assert within(Events.of([tenth] * 3), 0.3, DELTA)  # though 0.1 + 0.1 + 0.1 > 0.3 in floats
    assert not within(Events.of([tenth] * 3 + [Cost(epsilon=1)]), 0.3, 0.0)


def test_delta_is_taken_off_before_rho_is_converted():
    events = Events.of([Cost(rho=ONE), Cost(delta=9 * 10**6)])
    assert delta_after(DELTA, 9 * 10**6) == 1e-6
    assert total_epsilon(events, DELTA) == epsilon_of(ONE, 1e-6) > 1
    assert not within(events, 1, DELTA)


def test_a_plan_that_takes_delta_off_with_delta_after_fits_to_the_unit():
    rho = rho_of(1, delta_after(DELTA, 3 * 10**6 + 1))
    spent = [Cost(rho=rho), Cost(delta=3 * 10**6 + 1)]
    assert within(Events.of(spent), 1, DELTA)
    assert not within(Events.of([*spent, Cost(rho=1)]), 1, DELTA)


def test_no_delta_left_leaves_pure_epsilon_only():
    all_of_it = Cost(delta=10**7)
    assert within(Events.of([all_of_it, Cost(epsilon=PICO)]), 1, DELTA)
    assert not within(Events.of([all_of_it, Cost(rho=1)]), 1, DELTA)
    assert not within(Events.of([Cost(delta=10**7 + 1)]), 1, DELTA)
    assert total_epsilon(Events.of([all_of_it, Cost(rho=1)]), DELTA) == math.inf


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(costs, max_size=5), st.sampled_from([0.5, 1.0, 3.0]))
def test_what_remains_can_be_spent_and_no_more(spent, cap):
    events = Events.of(spent)
    left = remaining(events, cap, DELTA)
    if not within(events, cap, DELTA):
        assert left.epsilon == left.rho == left.pure_epsilon == 0
        return
    rho = math.floor(left.rho * PICO * (1 - 1e-12))
    assert within(Events.of([*spent, Cost(rho=rho, gdp=True)]), cap, DELTA)
    # what is told leaves room for the slack of as many releases as a fit may have
    more = Cost(rho=rho + 100 + rho // 10**5, gdp=True)
    assert not within(Events.of([*spent, more]), cap, DELTA)
    fit = Cost(rho=rho_of(max(left.epsilon, 1e-6), left.delta, gdp=True), gdp=True)
    assert left.epsilon < 1e-3 or within(Events.of([*spent, fit]), cap, DELTA)
    pure = math.floor(left.pure_epsilon * PICO * (1 - 1e-9))
    assert within(Events.of([*spent, Cost(epsilon=pure)]), cap, DELTA)


def test_remaining_of_a_used_ledger_as_the_manual_says():
    one = Cost(rho=rho_of(1, DELTA, gdp=True), gdp=True)
    left = remaining(Events.of([one] * 2), 2, DELTA)
    assert left.epsilon == pytest.approx(1.250, abs=0.001)
    assert left.pure_epsilon == pytest.approx(0.535, abs=0.001)


def test_thousands_of_events_are_quick_to_total():
    rng = np.random.default_rng(1)
    pure = [Cost(epsilon=int(e)) for e in np.exp(rng.uniform(10, 22, size=5000))]
    assert 0 < total_epsilon(Events.of([*pure, Cost(rho=ONE)]), DELTA) < 2000


@pytest.mark.parametrize("delta", [1e-4, 1e-6, 1e-12])
@pytest.mark.parametrize("gdp", [True, False])
def test_the_price_is_monotone_and_its_own_inverse(delta, gdp):
    """From 0.01 to the largest epsilon: epsilons above 64 once had no Gaussian price."""
    epsilons = [*np.geomspace(0.01, 50, 8), 60, 64, 65, 80, 94, 96, 97, 98, 100, 150, 600, 1e3, 1e4]
    rhos = [rho_of(float(epsilon), delta, gdp) for epsilon in epsilons]
    assert rhos == sorted(rhos)
    for epsilon, rho in zip(epsilons, rhos, strict=True):
        assert epsilon_of(rho, delta, gdp) == pytest.approx(epsilon, rel=1e-6)
        assert epsilon_of(rho, delta, gdp) <= epsilon * (1 + 1e-12)
    gaussian = [rho_of(float(epsilon), delta, gdp=True) for epsilon in epsilons]
    assert all(a >= b for a, b in zip(gaussian, rhos, strict=True))


@pytest.mark.parametrize("cap", [1, 10, 50, 64, 65, 66, 80, 94, 96, 98, 100, 200, 1000])
@pytest.mark.parametrize("fits", [0, 1, 50])
@pytest.mark.parametrize("kinds", ["gaussian", "mixed"])
def test_what_remains_of_any_cap_is_below_it_and_can_be_spent(cap, fits, kinds):
    share = rho_of(cap / (fits + 1), 1e-6, gdp=True) // 4
    pure = Cost(0, share // 40)
    kind = {"gaussian": [True], "mixed": [True, False]}[kinds]
    costs = [Cost(share, 0, 0, gdp) for _ in range(fits) for gdp in kind]
    spent = Events.of(costs + [pure] * (kinds == "mixed"))
    assert within(spent, cap, 1e-6)
    left = remaining(spent, cap, 1e-6)
    assert 0 <= left.epsilon <= cap
    assert 0 <= left.pure_epsilon <= cap
    last = Cost(rho_of(left.epsilon, 1e-6, gdp=True), 0, 0, True)
    full = Events.of([*costs, *[pure] * (kinds == "mixed"), last])
    assert within(full, cap, 1e-6)
    assert total_epsilon(full, 1e-6) <= cap * (1 + 1e-12)
