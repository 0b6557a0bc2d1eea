"""Every planted fault is found by the test that it names."""

from __future__ import annotations

from typing import Any

import pytest
from mutant_catalogue import MUTANTS
from planting import TESTS, Mutant, planted

from privcausal.accounting import price


def test_each_fault_can_be_planted() -> None:
    """Its text is in the source once, and its killer is a test."""
    for mutant in MUTANTS:
        with planted(mutant.target, mutant.old, mutant.new):
            pass
        file, *_, test = mutant.killer.partition("[")[0].split("::")
        assert f"def {test}(" in (TESTS / file).read_text(encoding="utf-8"), mutant.killer


@pytest.mark.slow
@pytest.mark.sample(7)
@pytest.mark.parametrize("name", [mutant.name for mutant in MUTANTS])
def test_it_is_killed(name: str) -> None:
    (mutant,) = (m for m in MUTANTS if m.name == name)
    assert mutant.killed(), f"{mutant.killer} passes on: {name}"


def test_there_are_many_and_no_two_alike() -> None:
    assert len(MUTANTS) >= 60
    assert len({m.name for m in MUTANTS}) == len(MUTANTS)
    assert len({(m.target, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)


# -- the harness -------------------------------------------------------------------------------


def mutant(**changed: Any) -> Mutant:
    fields: dict[str, Any] = {
        "name": "test", "target": "accounting.price:pico",
        "old": "return math.ceil(exact(amount) * PICO)", "new": "return 7",
        "killer": "accounting/test_charge.py::"
        "test_pico_reads_a_float_as_the_decimal_a_person_typed",
    }  # fmt: skip
    return Mutant(**fields | changed)


def planting(**changed: Any) -> Any:
    made = mutant(**changed)
    return planted(made.target, made.old, made.new)


def test_a_fault_is_there_by_every_name_and_gone_afterwards() -> None:
    from privcausal.accounting import pico

    with planting():
        assert pico(1.0) == price.pico(1.0) == 7
    assert pico(1.0) == 10**12
    with pytest.raises(ZeroDivisionError), planting():
        raise ZeroDivisionError
    assert pico(1.0) == 10**12


@pytest.mark.slow
def test_a_fault_is_found_lives_or_is_none() -> None:
    assert mutant().killed() == "failed"
    assert mutant(killer="accounting/test_ledger.py::test_opening_does_not_create").killed() is None
    with pytest.raises(ValueError, match="is no mutant"):
        mutant(new="return nothing_of_this_name").killed()


@pytest.mark.parametrize("old", ["amount", "not in the source"])
def test_a_text_that_is_not_there_once_is_refused(old: str) -> None:
    with pytest.raises(ValueError, match="does not hold once"), planting(old=old):
        pass
