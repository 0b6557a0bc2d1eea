"""Which part a row is in says nothing about it, and no row moves when another changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from vault_helpers import Study, batches, random_rows, study, table

from privcausal import testing
from privcausal.errors import CapabilityError
from privcausal.vault.batch import dealt, first_rows
from privcausal.vault.exit import Mechanism

UNITS = st.lists(st.sampled_from(["a", "b", "c", "d", None]), max_size=12)
LEVEL = 1e-6  # chance of a false alarm, in each random test


def coded(units: list[Any]) -> tuple[Any, tuple[str, ...]]:
    """Codes and names in order of first use, as columns are read."""
    names = tuple(dict.fromkeys(u for u in units if u is not None))
    return np.array([-1 if u is None else names.index(u) for u in units], np.int64), names


def split(size: int, neighbors: Any, entropy: int = 5, **units: Any) -> Any:
    options = {"units": None, "names": ()} | units
    return dealt(size, (0.5, 0.5), neighbors=neighbors, entropy=entropy, **options)


def parts(s: Study, data: Any, stages: list[str]) -> Any:
    return np.concatenate([batch.part for batch in batches(s.vault(data, s.plan(stages)))])


@pytest.mark.parametrize("neighbors", ["substitute", "add_remove"])
@pytest.mark.parametrize("kind", ["disjoint", "crossfit"])
def test_parts_do_not_depend_on_values(neighbors: str, kind: str) -> None:
    s = study(neighbors, split=kind)
    stages = ["nuisance: a", "effect: b"]
    with testing.recorded(3):
        one, two = (parts(s, table(random_rows(50, seed)), stages) for seed in (1, 2))
    assert np.array_equal(one, two)
    assert set(one) == {0, 1}


@pytest.mark.parametrize("size", [0, 1, 2, 7, 100])
def test_sizes_are_fixed_under_substitution(size: int) -> None:
    for entropy in range(20):
        assert np.count_nonzero(split(size, "substitute", entropy) == 0) == size // 2
    shares = dealt(size, (0.25, 0.5, 0.25), neighbors="substitute", entropy=1, units=None, names=())
    assert np.count_nonzero(shares == 0) == size // 4


def test_coins_are_independent_under_add_remove() -> None:
    sizes = [np.count_nonzero(split(100, "add_remove", e) == 0) for e in range(200)]
    assert len(set(sizes)) > 10
    # the rows that stay keep their part when the last one leaves
    assert np.array_equal(split(101, "add_remove")[:100], split(100, "add_remove"))


@pytest.mark.parametrize("neighbors", ["substitute", "add_remove"])
def test_every_row_falls_in_every_part_alike(neighbors: str) -> None:
    times = 4_000
    counts = sum(split(10, neighbors, e) for e in range(times))
    # under substitution the ten counts have a fixed sum: slightly less spread than independent
    deviations = ((counts - times / 2) ** 2 / (times / 4)).sum()
    from scipy.stats import chi2

    assert chi2.sf(deviations, 10) > LEVEL
    unlike = ((counts - 0.55 * times) ** 2 / (times / 4)).sum()
    assert chi2.sf(unlike, 10) < LEVEL


@given(units=UNITS, entropy=st.integers(0, 2**64))
@settings(deadline=None, database=None)
def test_units_are_kept_whole(units: list[Any], entropy: int) -> None:
    codes, names = coded(units)
    found = split(len(units), "substitute", entropy, units=codes, names=names)
    for code in range(len(names)):
        assert len(set(found[codes == code])) == 1


@given(units=UNITS, extra=UNITS, entropy=st.integers(0, 2**64))
@settings(deadline=None, database=None)
def test_the_part_of_a_unit_depends_on_its_name_only(units: Any, extra: Any, entropy: int) -> None:
    """Whoever else is there, and in which order."""

    def by_name(column: list[Any]) -> dict[str, int]:
        codes, names = coded(column)
        found = split(len(column), "add_remove", entropy, units=codes, names=names)
        return {u: int(p) for u, p in zip(column, found, strict=True) if u is not None}

    alone, together = by_name(units), by_name([*extra, *reversed(units)])
    assert alone == {name: together[name] for name in alone}


def test_coins_of_units_are_fair() -> None:
    names = tuple(f"unit {i}" for i in range(20_000))
    codes = np.arange(20_000)
    found = dealt(
        20_000, (0.25, 0.25, 0.5), neighbors="substitute", entropy=9, units=codes, names=names
    )
    counts = np.bincount(found, minlength=3)
    assert chisquare(counts, [5_000, 5_000, 10_000]).pvalue > LEVEL
    assert chisquare(counts, [5_000, 5_500, 9_500]).pvalue < LEVEL


@pytest.mark.slow
@given(units=UNITS, extra=UNITS, most=st.integers(1, 4))
@settings(deadline=None, database=None)
def test_which_rows_are_kept_depends_on_the_own_unit_only(
    units: list[Any], extra: list[Any], most: int
) -> None:
    extra = [None if u is None else f"other {u}" for u in extra]
    mixed: list[tuple[Any, bool]] = []
    for i in range(max(len(units), len(extra))):
        mixed += [(u, True) for u in units[i : i + 1]] + [(u, False) for u in extra[i : i + 1]]
    kept = first_rows(coded(units)[0], most)
    among = first_rows(coded([u for u, _ in mixed])[0], most)
    own = [keep for keep, (_, mine) in zip(among, mixed, strict=True) if mine]
    assert own == kept.tolist()


@given(units=UNITS, most=st.integers(1, 4))
@settings(deadline=None, database=None)
def test_the_first_rows_of_each_unit_are_kept(units: list[Any], most: int) -> None:
    seen: dict[Any, int] = {}
    expected = []
    for unit in units:
        seen[unit] = seen.get(unit, 0) + 1
        expected.append(unit is not None and seen[unit] <= most)
    assert first_rows(coded(units)[0], most).tolist() == expected


def test_two_fits_split_anew() -> None:
    """Real splits take fresh entropy: two of 200 rows agree with chance below 1e-50."""
    s = study("substitute", split="crossfit")
    data = table(random_rows(200, 1))
    assert not np.array_equal(parts(s, data, ["a"]), parts(s, data, ["a"]))


def test_a_unit_that_moves_to_another_fold_must_not_cost_more_than_a_replaced_one() -> None:
    """Adding and removing r changes two folds by sqrt(2) r together."""
    s = study("substitute", split="crossfit")

    def release(substituted: float) -> None:
        with testing.seeded_noise(1):
            vault = s.vault(table(random_rows(20, 1)), s.plan(["a"]))
            vault.release_folds("a", Moving(substituted))

    release(np.sqrt(2.0))
    release(2.0)
    with pytest.raises(CapabilityError, match="by fold"):
        release(1.4)


class Moving(Mechanism):
    """A sum with a stated change if a row is replaced, and 1 if a row is added."""

    name = label = "moving"
    units = np.ones(1)

    def __init__(self, substituted: float) -> None:
        self.substituted = substituted

    def sensitivity(self, neighbors: Any) -> float:
        return self.substituted if neighbors == "substitute" else 1.0

    def integers(self, batch: Any) -> Any:
        return np.zeros(1, np.int64)
