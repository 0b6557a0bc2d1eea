"""Prices: integers that are never below the amount meant."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privcausal.accounting import PICO, Charge, Cost, pico
from privcausal.errors import BudgetError


def test_pico_reads_a_float_as_the_decimal_a_person_typed():
    assert pico(0.1) == PICO // 10
    assert 3 * pico(0.1) == pico(0.3)
    assert pico(1e-5) == 10**7
    assert pico(0.0) == 0


@given(st.floats(min_value=0, max_value=1e6, allow_subnormal=True))
def test_pico_rounds_up_and_by_less_than_one_unit(amount):
    units = pico(amount)
    assert units / PICO >= amount
    assert 0 <= units - Fraction(repr(amount)) * PICO < 1


@pytest.mark.parametrize("amount", [1e-17, 5e-324])
def test_an_amount_that_floats_would_lose_costs_one_unit(amount):
    assert pico(amount) == 1
    assert sum(pico(amount) for _ in range(1000)) == 1000


@pytest.mark.parametrize("amount", [-1e-9, float("nan"), float("inf"), True, "1", None, 1j])
def test_pico_refuses_what_is_no_amount(amount):
    with pytest.raises(BudgetError):
        pico(amount)


@pytest.mark.parametrize("value", [-1, 0.5, True, 1e12])
def test_a_cost_holds_whole_units_only(value):
    with pytest.raises(BudgetError):
        Cost(rho=value)


@pytest.mark.parametrize("change", [{"rows": 400}, {"rows": 0}, {"neighbors": "swap"}])
def test_a_charge_holds_a_share_of_rows_never_a_count(change):
    fields = {"neighbors": "substitute", "rows": 0.5} | change
    with pytest.raises(BudgetError):
        Charge("a", "b", "c", sensitivity=1.0, noise_sd=1.0, cost=Cost(), **fields)


def test_a_charge_protects_a_row_unless_told(charge):
    assert charge().unit == "row"
    assert charge(unit="id (at most 3 rows)").unit == "id (at most 3 rows)"


def test_a_parallel_charge_costs_by_itself_what_its_noise_does(charge):
    assert charge(rho=7, sensitivity=1.0, noise_sd=8.0).alone == 7
    beside = charge(rho=0, sensitivity=1.0, noise_sd=8.0, parallel=True)
    assert beside.alone == pico(1 / 128)


@pytest.mark.parametrize("unit", ["", "  ", None, 3, b"row"])
def test_a_charge_names_its_unit(charge, unit):
    with pytest.raises(BudgetError, match="unit of a charge"):
        charge(unit=unit)
