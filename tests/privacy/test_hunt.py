"""Two hundred cases of the standing hunt; `python tests/privacy/hunt.py` tries 5,000."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hunt import draw, hunted

CASES, STEP = 200, 20
AHEAD = {"labels": 99, "units in memory": 95, "units of a stream": 688}
"""The first case that finds each fault is tried before the others, which all follow."""


@pytest.mark.slow
@pytest.mark.sample(5)
@pytest.mark.parametrize("first", range(0, CASES, STEP))
def test_one_row_of_any_table_is_seen_in_its_answers_only(first: int) -> None:
    told = Counter(hunted(number) for number in range(first, first + STEP))
    assert told["fitted"] >= STEP // 5  # most cases are not refused before rows are read


def test_a_case_is_its_number() -> None:
    one, two = draw(7), draw(7)
    assert one.words == two.words
    assert repr(one.one) == repr(two.one)
    assert draw(8).words != one.words


def test_the_hunt_sees_labels_that_another_row_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fault that a column of objects is known by its first hundred values."""
    from privcausal.features import design as columns

    monkeypatch.setattr(columns, "_is_plain", lambda series: str(series.dtype) == "String")
    # of some twenty, many of which are refused or say the same
    cases = (n for n in (AHEAD["labels"], *range(CASES)) if draws_objects(n))
    assert any(outcome(n).startswith("departed") for n in cases)


@pytest.mark.parametrize("streamed", [False, True])
def test_the_hunt_sees_units_that_share_a_name(
    streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the fault that units go by the labels of their cells."""
    from privcausal.features.design import labels
    from privcausal.request.schema import label_key
    from privcausal.vault.batch import RawColumn
    from privcausal.vault.sources import memory

    def by_labels(series: Any) -> RawColumn:
        codes, names = labels(series)
        return RawColumn(codes=codes, labels=names)

    monkeypatch.setattr(memory, "unit_codes", by_labels)
    monkeypatch.setattr(memory, "unit_key", lambda value, mixed: label_key(value))
    ahead = AHEAD["units of a stream" if streamed else "units in memory"]
    cases = (n for n in (ahead, *range(CASES)) if has_units(n, streamed))
    assert any(outcome(n).startswith("departed") for n in cases)


def has_units(number: int, streamed: bool) -> bool:
    case = draw(number)
    return "unit" in case.call and streamed == (
        case.source in ("Parquet", "LazyFrame", "DuckDB", "CSV")
    )


def draws_objects(number: int) -> bool:
    case = draw(number)
    return case.types["G"].name == "texts, then objects" and "G" in case.call["formula"]


def outcome(number: int) -> str:
    try:
        return hunted(number)
    except Exception as fault:
        return f"departed: {type(fault).__name__}"
