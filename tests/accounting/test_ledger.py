"""What a ledger answers while nothing is wrong with its file."""

import dataclasses
import datetime

import ledger_fire as fire
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privcausal.accounting import (
    PICO,
    BudgetExhaustedError,
    Cost,
    Ledger,
    epsilon_of,
    pico,
    rho_of,
    run_name,
)
from privcausal.accounting.store import lines_of
from privcausal.errors import BudgetError, LedgerError

ONE = rho_of(1, 1e-5)


def test_a_new_ledger_has_everything_left(ledger):
    assert ledger.spent.epsilon == 0.0
    assert ledger.spent.kind == "proven"
    assert ledger.remaining.rho == rho_of(2, 1e-5, gdp=True) / PICO
    assert ledger.remaining.epsilon == pytest.approx(2)
    assert ledger.remaining.pure_epsilon == 2
    assert ledger.fits == 0
    assert (ledger.dataset, ledger.epsilon, ledger.delta) == ("rhc", 2.0, 1e-5)
    text = "eps 0 of 2 spent at delta=1e-05 in 0 fits; the next fit can use up to 2"
    assert repr(ledger) == f"<Ledger 'rhc': {text}>"


def test_two_fits_of_one_spend_146(ledger, charge):
    ledger.charge("a", [charge(rho=ONE // 2), charge(rho=ONE - ONE // 2)])
    assert ledger.spent.epsilon <= 1
    left = int(1000 * ledger.remaining.epsilon) / 1000  # rounded down
    assert 1.5 < left < 2
    text = f"eps 1 of 2 spent at delta=1e-05 in 1 fit; the next fit can use up to {left:g}"
    assert repr(ledger).endswith(f"{text}>")
    ledger.charge("b", [charge(rho=ONE)])
    assert ledger.spent.epsilon == pytest.approx(1.46, abs=0.005)
    assert ledger.spent.rho == 2 * ONE / PICO
    assert ledger.fits == 2


def test_what_remains_can_be_asked_for_and_then_nothing_remains(ledger, charge):
    ledger.charge("a", [charge(rho=ONE, gdp=True)])
    rho = rho_of(ledger.remaining.epsilon, 1e-5, gdp=True)
    ledger.charge("b", [charge(rho=rho, gdp=True)])
    assert ledger.spent.epsilon <= 2
    with pytest.raises(BudgetError):
        ledger.charge("c", [charge(rho=10**6, gdp=True)])


def test_all_charges_of_a_fit_or_none(ledger, charge):
    with pytest.raises(BudgetExhaustedError):
        ledger.charge("a", [charge(rho=1), charge(rho=rho_of(2, 1e-5))])
    assert ledger.fits == 0
    assert ledger.spent.rho == 0


def test_exhausted_says_what_was_asked_and_what_is_left(path, charge):
    ledger = Ledger(path, "rhc", 1.2)
    ledger.charge("a", [charge(rho=ONE)])
    with pytest.raises(BudgetExhaustedError) as caught:
        ledger.charge("b", [charge(rho=ONE)])
    left = caught.value.remaining.epsilon
    assert rho_of(left, 1e-5, gdp=True) <= rho_of(1.2, 1e-5) - ONE
    assert left == pytest.approx(epsilon_of(rho_of(1.2, 1e-5) - ONE, 1e-5, gdp=True))
    assert str(caught.value) == (
        "Not enough budget for this fit in ledger 'rhc'.\n"
        f"  Requested  eps 1    Remaining  eps {int(left * 10_000) / 10_000:g} "
        "(from the remaining rho)\n"
        "  No budget was spent."
    )
    assert caught.value.requested == epsilon_of(ONE, 1e-5)


def test_exhausted_speaks_in_the_currency_that_was_asked(path, charge):
    ledger = Ledger(path, "rhc", 1)
    ledger.charge("a", [charge(epsilon=pico(0.7))])
    with pytest.raises(BudgetError, match=r"eps 0\.4    Remaining  eps 0\.3 \(as pure epsilon\)"):
        ledger.charge("b", [charge(epsilon=pico(0.4))])
    with pytest.raises(BudgetError, match="delta 2e-05    Remaining  delta 1e-05"):
        ledger.charge("b", [charge(epsilon=1, delta=pico(2e-5))])


@pytest.mark.parametrize(
    ("spent", "asked", "wanted", "left"),
    [
        (1e-5, {"rho": ONE}, "delta above 0", "delta 0"),
        (9e-6, {"rho": ONE, "delta": pico(1e-6)}, "delta above 1e-06", "delta 1e-06"),
        (8e-6, {"epsilon": 1, "delta": pico(3e-6)}, "delta 3e-06", "delta 2e-06"),
    ],
)
def test_exhausted_says_that_it_is_delta_that_is_spent(path, charge, spent, asked, wanted, left):
    """Rho is converted at what is left of delta, so that without any no eps can be paid."""
    ledger = Ledger(path, "rhc", 5)
    ledger.charge("a", [charge(epsilon=1, delta=pico(spent))])
    with pytest.raises(BudgetExhaustedError) as caught:
        ledger.charge("b", [charge(**asked)])
    assert str(caught.value) == (
        "Not enough budget for this fit in ledger 'rhc'.\n"
        f"  Requested  {wanted}    Remaining  {left}\n"
        f"  The limit is delta, not eps: {spent:.3g} of 1e-05 is spent. Pure epsilon needs no "
        "delta.\n"
        "  No budget was spent."
    )
    assert caught.value.payable == 0
    ledger.charge("c", [charge(epsilon=pico(4))])


def test_exhausted_keeps_delta_for_the_rho_spent_before(path, charge):
    ledger = Ledger(path, "rhc", 5)
    ledger.charge("a", [charge(rho=ONE)])
    with pytest.raises(BudgetError, match=r"delta above 1e-05    Remaining  delta 1e-05"):
        ledger.charge("b", [charge(epsilon=1, delta=pico(1e-5))])


def test_exhausted_counts_the_fits_own_delta_first(path, charge):
    """What selecting labels takes of delta, rho is not converted at."""
    ledger = Ledger(path, "rhc", 1)
    own = pico(9.9e-6)
    with pytest.raises(BudgetExhaustedError, match="at the remaining delta of 1e-07") as caught:
        ledger.charge("a", [charge(rho=ONE, delta=own)])
    assert caught.value.remaining.rho == rho_of(1, 1e-5, gdp=True) / PICO
    less = rho_of(caught.value.payable, 1e-7, gdp=True)
    assert less < 0.8 * ONE
    with pytest.raises(BudgetExhaustedError):
        ledger.charge("a", [charge(rho=less + 10**6, delta=own, gdp=True)])
    ledger.charge("a", [charge(rho=less - 10**6, delta=own, gdp=True)])


def test_affordable(ledger, charge):
    assert ledger.affordable(Cost(rho=rho_of(2, 1e-5)))
    assert not ledger.affordable(Cost(rho=rho_of(2, 1e-5) + 1))
    ledger.charge("a", [charge(rho=ONE)])
    assert ledger.affordable(Cost(rho=ONE))
    assert not ledger.affordable(Cost(rho=rho_of(2, 1e-5)))
    assert not ledger.affordable(Cost(rho=10**30))


def test_a_charge_larger_than_sqlite_can_hold_is_refused(ledger, charge):
    for rho in (2**63, 2**63 - 1):
        with pytest.raises(BudgetError):
            ledger.charge("a", [charge(rho=rho)])


def test_no_run_is_charged_twice(ledger, charge):
    ledger.charge("a", [charge(rho=5)])
    with pytest.raises(LedgerError, match="Run 'a' was already charged to this ledger"):
        ledger.charge("a", [charge(rho=5)])
    assert ledger.spent.rho == 5 / PICO


def test_neighbours_are_not_mixed(ledger, charge):
    with pytest.raises(LedgerError, match="mix substitute and add_remove"):
        ledger.charge("a", [charge(rho=5), charge(rho=5, neighbors="add_remove")])
    ledger.charge("a", [charge(rho=5)])
    with pytest.raises(LedgerError, match="mix substitute and add_remove"):
        ledger.charge("b", [charge(rho=5, neighbors="add_remove")])
    assert ledger.fits == 1


ID = "id (at most 5 rows)"


@pytest.mark.parametrize(
    ("first", "second"), [("row", ID), (ID, "row"), (ID, "id (at most 3 rows)"), (ID, ID.upper())]
)
def test_units_are_not_mixed(ledger, charge, first, second):
    with pytest.raises(LedgerError, match="cannot mix the units"):
        ledger.charge("a", [charge(rho=5, unit=first), charge(rho=5, unit=second)])
    assert ledger.history.empty
    ledger.charge("a", [charge(rho=5, unit=first)])
    spent = ledger.spent
    with pytest.raises(LedgerError) as caught:
        ledger.charge("b", [charge(rho=5, unit=second)])
    assert str(caught.value) == (
        f"Ledger 'rhc' cannot mix the units {first!r} and {second!r}. "
        "Keep a separate ledger for each."
    )
    assert ledger.spent == spent
    assert list(ledger.history["unit"]) == [first]
    ledger.verify()


def test_charges_of_one_unit_add_up(ledger, path, charge):
    ledger.charge("a", [charge(rho=5, unit=ID), charge(rho=5, unit=ID)])
    Ledger.open(path).charge("b", [charge(rho=5, unit=ID)])
    assert list(ledger.history["unit"]) == [ID] * 3
    assert ledger.spent.rho == 15 / PICO


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unit": ID}, "two protected units"),
        ({"neighbors": "add_remove"}, "two definitions of neighbors"),
    ],
)
def test_verify_finds_a_mixture(ledger, charge, change, message):
    lines = lines_of("a", [charge(rho=5), charge(rho=5, **change)], published=False)
    ledger._store.append(lambda book: lines)
    with pytest.raises(LedgerError, match=message):
        ledger.verify()


@pytest.mark.slow
def test_a_spend_that_floats_would_lose_is_kept(path, charge):
    ledger = Ledger(path, "rhc", 1e-4)
    whole = rho_of(1e-4, 1e-5)
    ledger.charge("a", [charge(rho=whole - 30)])
    for k in range(30):
        ledger.charge(f"b{k}", [charge(rho=pico(1e-17))])
    with pytest.raises(BudgetError):
        ledger.charge("c", [charge(rho=pico(1e-17))])
    assert ledger.spent.rho == whole / PICO


def test_pure_epsilon_is_not_counted_as_its_square(path, charge):
    ledger = Ledger(path, "rhc", 2)
    ledger.charge("adum", [charge(epsilon=PICO)])
    assert 0.9999 < ledger.spent.epsilon <= 1  # at delta 1e-5: a hair less
    assert epsilon_of(PICO // 2, 1e-5) > 4.6  # all of it as rho would be right, and ruinous
    ledger.charge("r", [charge(rho=ONE)])
    assert ledger.spent.epsilon == pytest.approx(2, abs=1e-3)
    with pytest.raises(BudgetError):
        ledger.charge("more", [charge(epsilon=PICO // 100)])


def test_a_ledger_without_delta_takes_pure_epsilon_only(path, charge):
    ledger = Ledger(path, "rhc", 1, delta=0)
    with pytest.raises(BudgetError):
        ledger.charge("a", [charge(rho=1)])
    with pytest.raises(BudgetError):
        ledger.charge("a", [charge(delta=1)])
    assert ledger.remaining.pure_epsilon == 1.0
    ledger.charge("a", [charge(epsilon=PICO)])
    assert ledger.spent.epsilon == 1.0


def test_published_charges_are_refused_by_default(ledger, charge):
    with pytest.raises(LedgerError, match="accepts only proven guarantees"):
        ledger.charge("a", [charge(rho=5)], published=True)
    assert ledger.fits == 0


def test_a_published_charge_labels_the_total_for_ever(path, charge):
    ledger = Ledger(path, "rhc", 2, allow_published=True)
    ledger.charge("a", [charge(rho=5)])
    assert ledger.spent.kind == "proven"
    ledger.charge("b", [charge(rho=5)], published=True)
    ledger.charge("c", [charge(rho=5)])
    assert ledger.spent.kind == "published"
    assert "claimed" in repr(ledger)
    assert ledger.history["published"].tolist() == [False, True, False]


def test_history_has_a_line_per_charge(ledger, charge):
    ledger.charge("a", [charge(rho=pico(0.01)), charge(epsilon=pico(0.1), noise_sd=float("nan"))])
    ledger.charge(
        "b", [charge(rho=7, delta=pico(1e-6), query="C(région), ψ 'x'; DROP TABLE\ud800")]
    )
    frame = ledger.history
    assert list(frame["run"]) == ["a", "a", "b"]
    assert list(frame["rho"]) == [0.01, 0.0, 7e-12]
    assert frame["epsilon"].isna().tolist() == [True, False, True]  # a pure charge alone has one
    assert frame["epsilon"][1] == 0.1
    assert list(frame["delta"]) == [0.0, 0.0, 1e-6]
    assert list(frame["rows"]) == [0.25] * 3
    assert list(frame["unit"]) == ["row"] * 3
    assert frame["noise_sd"].isna().tolist() == [False, True, False]
    assert frame["query"].iloc[2] == "C(région), ψ 'x'; DROP TABLE\\ud800"
    assert frame["sensitivity"].iloc[0] == 1.5
    assert "intact: 3 charges" in ledger.verify()


def test_a_parallel_charge_is_written_as_ever(ledger, charge):
    """At the end of the query, without a column of its own: older ledgers go on."""
    before = list(ledger.history.columns)
    ledger.charge("a", [charge(rho=1), charge(rho=0, parallel=True)])
    wanted = ["moments, p = 17", "moments, p = 17 (parallel)"]
    assert ledger.history["query"].tolist() == wanted
    assert list(ledger.history.columns) == before
    assert "intact: 2 charges" in ledger.verify()


def test_an_empty_history_has_the_same_columns(ledger, charge):
    empty = ledger.history
    ledger.charge("a", [charge(rho=1)])
    assert list(empty.columns) == list(ledger.history.columns)
    assert isinstance(empty, pd.DataFrame)
    assert empty.empty


def test_times_are_rounded_to_the_day(ledger, path, charge):
    ledger.charge("a", [charge(rho=1)])
    (day,) = ledger.history["day"]
    assert abs(datetime.date.fromisoformat(day) - datetime.date.today()).days <= 1
    assert f"{datetime.datetime.now():%H:%M}".encode() not in path.read_bytes()


def test_a_clock_that_goes_back_changes_nothing():
    assert fire.clock_back() == 1


def test_it_is_there_again_when_reopened(ledger, path, charge):
    ledger.charge("a", [charge(rho=ONE)])
    again = Ledger(path, dataset="rhc", eps=2, delta=1e-5)
    assert again.spent == ledger.spent
    assert Ledger.open(path).spent == ledger.spent
    assert Ledger.open(str(path)).epsilon == 2.0


def test_opening_does_not_create(path):
    with pytest.raises(LedgerError, match="is missing"):
        Ledger.open(path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dataset": "nsw"}, "a ledger for a different data set"),
        ({"eps": 3}, "a ledger for a different eps. It was created with epsilon=2.0"),
        ({"delta": 1e-6}, "a ledger for a different delta. It was created with delta=1e-05"),
        ({"delta": 0}, "a ledger for a different delta"),
        ({"allow_published": True}, "created with allow_published=False, which cannot change"),
    ],
)
def test_a_ledger_keeps_what_it_was_created_with(ledger, path, change, message):
    with pytest.raises(LedgerError, match=message):
        Ledger(path, **{"dataset": "rhc", "eps": 2, "delta": 1e-5} | change)


@pytest.mark.parametrize(
    "change", [{"dataset": ""}, {"eps": 0}, {"delta": 1}, {"allow_published": 1}]
)
def test_bad_arguments_leave_no_file(path, change):
    with pytest.raises((BudgetError, LedgerError)):
        Ledger(path, **{"dataset": "rhc", "eps": 2} | change)
    with pytest.raises(LedgerError):
        Ledger(path.with_name("x" * 300), "rhc", 2)
    assert list(path.parent.iterdir()) == []


BAD = [(run, [1]) for run in ("", "  ", "a\nb", None, 7)]
BAD += [("a", charges) for charges in ([], [None], [Cost(rho=1)])]


@pytest.mark.parametrize(("run", "charges"), BAD)
def test_bad_charges(ledger, charge, run, charges):
    with pytest.raises(LedgerError):
        ledger.charge(run, [charge(rho=1)] if charges == [1] else charges)
    assert ledger.fits == 0


def test_other_paths_to_a_file_are_one_ledger():
    assert fire.other_paths() == 4


def test_a_relative_path_survives_a_change_of_folder(tmp_path, monkeypatch, charge):
    monkeypatch.chdir(tmp_path)
    ledger = Ledger("study.db", "rhc", 2)
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    ledger.charge("a", [charge(rho=5)])
    assert Ledger.open(tmp_path / "study.db").fits == 1


def test_records_are_frozen(ledger):
    for record in (ledger.spent, ledger.remaining):
        with pytest.raises(dataclasses.FrozenInstanceError):
            record.epsilon = 0.0


amounts = st.builds(
    Cost,
    rho=st.integers(0, 10**9),
    epsilon=st.integers(0, 10**10),
    delta=st.sampled_from([0, 10**5]),
    gdp=st.booleans(),
)


@pytest.mark.slow
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.lists(amounts, min_size=1, max_size=3), max_size=5))
def test_spent_is_the_sum_of_the_charges(tmp_path_factory, charge, fits):
    ledger = Ledger(tmp_path_factory.mktemp("ledger") / "study.db", "rhc", 8)
    for number, costs in enumerate(fits):
        charges = [charge(c.rho, c.epsilon, c.delta, c.gdp) for c in costs]
        ledger.charge(f"run {number}", charges)
    costs, spent = [cost for costs in fits for cost in costs], ledger.spent
    assert spent.rho == sum(cost.rho for cost in costs) / PICO
    assert spent.pure_epsilon == sum(cost.epsilon for cost in costs) / PICO
    assert spent.delta == sum(cost.delta for cost in costs) / PICO
    assert spent.epsilon <= 8
    assert ledger.fits == len(fits)
    ledger.verify()


# -- Gaussian noise ------------------------------------------------------------------------------


def test_gaussian_noise_is_counted_by_its_own_law(ledger, charge):
    rho = rho_of(1, 1e-5, gdp=True)
    ledger.charge("a", [charge(rho=rho, gdp=True)])
    assert 1 - 1e-5 < ledger.spent.epsilon <= 1
    assert rho > 1.17 * ONE
    assert ledger.history["gaussian"].tolist() == [True]


def test_a_mixed_ledger_takes_the_least_of_the_valid_totals(ledger, charge):
    ledger.charge("old", [charge(rho=ONE // 4)])
    ledger.charge("new", [charge(rho=ONE // 4, gdp=True)])
    both = epsilon_of(2 * (ONE // 4), 1e-5)
    assert epsilon_of(ONE // 4, 1e-5) < ledger.spent.epsilon <= both


def test_a_pure_run_costs_its_epsilon_and_a_name_of_ones_own_is_kept(tmp_path, charge):
    ledger = Ledger(tmp_path / "pure.db", "study", eps=1, delta=0)
    ledger.charge("a: own name", [charge(epsilon=PICO // 2)])
    (row,) = ledger.runs.to_dict("records")
    assert (row["run"], row["question"], row["epsilon"]) == ("a: own name", "", 0.5)


def test_a_question_is_one_printable_line_in_the_chain(ledger, charge):
    run = run_name("private('Y ~ T')\n\x1b[31m")
    ledger.charge(run, [charge(rho=1)])
    assert ledger.runs["question"].item() == "private('Y ~ T')  [31m"
    assert ledger.runs["run"].item() == run[:16]
    ledger.verify()


def test_no_printed_number_is_above_a_large_cap(path, charge):
    ledger = Ledger(path, "d", eps=94)
    assert "up to 94" in repr(ledger)
    ledger.charge("first", [charge(rho=rho_of(1, 1e-5, gdp=True), gdp=True)])
    assert 93 < ledger.remaining.epsilon < 94
    with pytest.raises(BudgetExhaustedError):
        ledger.charge("more", [charge(rho=rho_of(98, 1e-5, gdp=True), gdp=True)])
    ledger.charge("rest", [charge(rho=rho_of(ledger.remaining.epsilon, 1e-5, gdp=True), gdp=True)])
    assert "eps 94 of 94 spent" in repr(ledger)
