"""Every planted fault is found by the quick battery, which passes the package as it is."""

from __future__ import annotations

from typing import Any

import pytest
from mutant_catalogue import MUTANTS
from planting import Mutant, planted

from privcausal.accounting import charge

KILLERS = {mutant.words: mutant for mutant in MUTANTS}


@pytest.mark.sample(7)
@pytest.mark.parametrize("killer", KILLERS)
def test_the_package_as_it_is_passes(killer: str) -> None:
    KILLERS[killer].check()


def test_each_fault_can_be_planted() -> None:
    """Its text is in the source once."""
    for mutant in MUTANTS:
        with planted(mutant):
            pass


@pytest.mark.slow
@pytest.mark.sample(7)
@pytest.mark.parametrize("name", [mutant.name for mutant in MUTANTS])
def test_it_is_killed(name: str) -> None:
    (mutant,) = (m for m in MUTANTS if m.name == name)
    assert mutant.killed(), f"{mutant.words} passes on: {name}"


def test_there_are_many_and_no_two_alike() -> None:
    assert len(MUTANTS) >= 60
    assert len({m.name for m in MUTANTS}) == len(MUTANTS)
    assert len({(m.target, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)


# -- the harness -------------------------------------------------------------------------------


def mutant(**changed: Any) -> Mutant:
    fields: dict[str, Any] = {
        "name": "test", "target": "accounting.charge:pico",
        "old": "return math.ceil(exact(amount) * PICO)", "new": "return 7",
    }  # fmt: skip
    return Mutant(**fields | {"killer": (lambda: None,)} | changed)


def test_a_fault_is_there_by_every_name_and_gone_afterwards() -> None:
    from privcausal.accounting import pico

    with planted(mutant()):
        assert pico(1.0) == charge.pico(1.0) == 7
    assert pico(1.0) == 10**12
    with pytest.raises(ZeroDivisionError), planted(mutant()):
        raise ZeroDivisionError
    assert pico(1.0) == 10**12


def test_what_no_check_sees_lives() -> None:
    assert mutant().killed() is None


def test_a_mutant_that_only_breaks_is_none() -> None:
    def broken() -> None:
        charge.pico(1.0)

    with pytest.raises(NameError):
        mutant(new="return nothing_of_this_name", killer=(broken,)).killed()


@pytest.mark.parametrize("old", ["amount", "not in the source"])
def test_a_text_that_is_not_there_once_is_refused(old: str) -> None:
    with pytest.raises(ValueError, match="does not hold once"), planted(mutant(old=old)):
        pass
