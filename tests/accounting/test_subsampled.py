"""The subsampled Gaussian's divergences, and discrete against rounded noise, by direct numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from mpmath import mp, mpf

from privcausal.accounting import multiplier_for_replaced
from privcausal.accounting import price as subsampled
from privcausal.accounting.price import COMPARED_SDS as REACH
from privcausal.accounting.price import LEAST_MULTIPLIER as LEAST
from privcausal.accounting.price import ORDERS, divergence, epsilon_of_steps, rounding_slack
from privcausal.errors import BudgetError

RATE, STEPS = 128 / 2700, 422
GRID = 2.0**30


@pytest.fixture(autouse=True)
def precise() -> Any:
    with mp.workdps(90):
        yield


# -- divergences -------------------------------------------------------------------------------


@pytest.mark.sample(5)
@pytest.mark.parametrize("order", [2, 3, 17])
@pytest.mark.parametrize(("rate", "sd"), [(0.05, 1.0), (0.5, 3.0), (1.0, 2.0), (1e-4, 0.6)])
def test_divergences_are_the_integrals_and_the_worse_way_round(
    order: int, rate: float, sd: float
) -> None:
    def ratio(x: Any) -> Any:
        return 1 - mpf(rate) + mpf(rate) * mp.exp((2 * x - 1) / (2 * mpf(sd) ** 2))

    def integral(power: int) -> Any:
        def at(x: Any) -> Any:
            return mp.npdf(x, 0, sd) * ratio(x) ** power

        marks = [-40 * sd, -10 * sd, 0, 1, order / 2, order, order + 10 * sd, order + 40 * sd]
        return mp.quad(at, marks, maxdegree=8)

    with mp.workdps(30):
        there, back = mp.log(integral(order)), mp.log(integral(1 - order))
    assert divergence(order, rate, sd) == pytest.approx(float(there), rel=1e-10)
    assert back <= there * (1 + mpf(10) ** -15)


def test_small_divergences_keep_their_digits() -> None:
    """a (a - 1) q^2 (e^(1 / s^2) - 1) / 2 to first order in q^2."""
    first = 45 * 1e-14 * math.expm1(1.0)
    assert divergence(10, 1e-7, 1.0) == pytest.approx(first, rel=1e-3)


@pytest.mark.parametrize("sd", [0.7, 2.0, 30.0])
def test_epsilon_is_googles_at_the_same_orders(sd: float) -> None:
    accounting = pytest.importorskip("dp_accounting")
    accountant = accounting.rdp.RdpAccountant(orders=[float(a) for a in ORDERS])
    event = accounting.PoissonSampledDpEvent(RATE, accounting.GaussianDpEvent(sd))
    accountant.compose(accounting.SelfComposedDpEvent(event, STEPS))
    for delta in (1e-4, 1e-10):
        assert epsilon_of_steps(sd, delta, RATE, STEPS) == pytest.approx(
            accountant.get_epsilon(delta), rel=1e-6
        )


# -- discrete noise against rounded noise ------------------------------------------------------


class Laws:
    """Masses of the discrete and of the rounded Gaussian at whole numbers."""

    def __init__(self, sd: float) -> None:
        self.sd = mpf(sd)
        self.total = sum(self.density(k) for k in range(-int(30 * sd), int(30 * sd) + 1))

    def density(self, k: int) -> Any:
        return mp.exp(-(mpf(k) ** 2) / (2 * self.sd**2))

    def discrete(self, k: int) -> Any:
        return self.density(k) / self.total

    def rounded(self, k: int) -> Any:
        low, high = ((abs(k) + u) / (self.sd * mp.sqrt(2)) for u in (mpf(-0.5), mpf(0.5)))
        return (mp.erfc(low) - mp.erfc(high)) / 2


@pytest.mark.parametrize("sd", [REACH, 17.3, 64.0])
def test_masses_differ_by_what_is_stated_and_hardly_less(sd: float) -> None:
    laws = Laws(sd)
    stated, beyond = rounding_slack(1, sd)
    far = int(REACH * sd)
    apart = [abs(mp.log(laws.discrete(k) / laws.rounded(k))) for k in range(far + 1)]
    assert 0.98 * stated < max(apart) <= stated
    within = [laws.discrete(k) for k in range(-far, far + 1)]
    assert 0 < 1 - sum(within) <= beyond
    assert 0 < mp.erfc((far + mpf(0.5)) / (laws.sd * mp.sqrt(2))) <= beyond


def test_slack_adds_up_over_coordinates_and_needs_a_fine_grid() -> None:
    one, many = rounding_slack(1, 100.0), rounding_slack(1000, 100.0)
    assert many == pytest.approx((1000 * one[0], 1000 * one[1]))
    for sd in (REACH - 0.1, 0.0, math.nan):
        with pytest.raises(ValueError, match="grid steps"):
            rounding_slack(1, sd)


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize("move", [16, 40])
def test_discrete_noise_keeps_the_promise_of_rounded_noise_and_its_slack(
    rate: float, move: int
) -> None:
    """One number of two tables, of which one row enters by a secret coin; delta by exact sums."""
    sd = 16.0
    laws, q = Laws(sd), mpf(rate)
    points = range(-int(18 * sd), int(18 * sd) + move + 1)

    def pairs_of(law: Any) -> list[tuple[Any, Any]]:
        masses = {k: law(k) for k in range(points.start - move, points.stop)}
        return [(masses[k], (1 - q) * masses[k] + q * masses[k - move]) for k in points]

    def delta(pairs: Any, epsilon: Any) -> Any:
        return max(
            sum(max(mpf(0), a - mp.exp(epsilon) * b) for a, b in pairs),
            sum(max(mpf(0), b - mp.exp(epsilon) * a) for a, b in pairs),
        )

    h, t = (mpf(v) for v in rounding_slack(1, sd))
    rounded, discrete = pairs_of(laws.rounded), pairs_of(laws.discrete)
    for epsilon in (mpf("0.05"), mpf("0.4"), mpf(2)):
        promised = mp.exp(h) * delta(rounded, epsilon) + (1 + mp.exp(epsilon + h)) * t
        assert delta(discrete, epsilon + 2 * h) <= promised


# -- the multiplier ----------------------------------------------------------------------------


@pytest.mark.sample(5)
@pytest.mark.parametrize("grid", [GRID, 2.0**10])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 7.0])
def test_the_price_of_a_replaced_row_holds_with_the_slack_inside(
    epsilon: float, grid: float
) -> None:
    """On the coarser grid the slack is a third of the smallest price."""
    delta = 1e-6
    multiplier = multiplier_for_replaced(epsilon, delta, RATE, STEPS, 1, grid)
    h, t = rounding_slack(STEPS, LEAST * grid)
    assert h == pytest.approx(STEPS * 256 / (24 * (grid / 4) ** 2))
    failing = (delta - (1 + math.exp(epsilon)) * t) * math.exp(-h) / (1 + math.exp(epsilon / 2 - h))
    half = epsilon_of_steps(multiplier, failing, RATE, STEPS)
    assert 2 * (half + h) <= epsilon
    whole = math.exp(h) * (1 + math.exp(half)) * failing + (1 + math.exp(2 * half + h)) * t
    assert whole <= delta * (1 + 1e-12)
    assert 2 * (epsilon_of_steps(0.999 * multiplier, failing, RATE, STEPS) + h) > epsilon


@pytest.mark.slow
def test_more_privacy_takes_more_noise_and_there_is_a_least() -> None:
    def found(epsilon: float, delta: float = 1e-6, steps: int = STEPS) -> float:
        return multiplier_for_replaced(epsilon, delta, RATE, steps, 161, GRID)

    assert found(2.0) < found(1.0) < found(1.0, steps=2 * STEPS)
    assert found(1.0) < found(1.0, delta=1e-9)
    assert found(1e4) == found(64.0) >= LEAST
    assert multiplier_for_replaced(64.0, 0.9, 1e-6, 1, 1, GRID) == LEAST
    with pytest.raises(BudgetError, match="too small"):
        found(1e-9, 1e-12)
    with pytest.raises(BudgetError, match="too small"):  # the slack alone costs more
        multiplier_for_replaced(1.0, 1e-6, RATE, STEPS, 161, 64.0)


def test_what_is_not_counted_would_not_matter_on_this_grid() -> None:
    """Ten million numbers, which would take days: the slack is below 1e-8 of epsilon."""
    h, t = rounding_slack(10**7, LEAST * GRID)
    assert h < 2e-9
    assert t * math.exp(subsampled.LARGEST_EPSILON) < 1e-20
