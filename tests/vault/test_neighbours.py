"""No change of one row, or of one unit's rows, moves an exact answer by more than is stated."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vault_helpers import (
    NAMES,
    RELATIONS,
    ROUNDING,
    Answer,
    Study,
    answers,
    corner_answers,
    corner_rows,
    hostile_tables,
    neighbours,
    raw_mechanisms,
    study,
    table,
)

from privcausal import testing
from privcausal.vault import LabelSelection

QUICK = settings(
    max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


def assert_close_enough(one: dict[str, Answer], other: dict[str, Answer]) -> None:
    for name, answer in one.items():
        moved = answer.distance(other[name])
        assert moved <= answer.sensitivity * ROUNDING, name
        # what is public does not depend on the rows
        assert answer.sensitivity == other[name].sensitivity
        assert answer.scale == other[name].scale
        assert np.array_equal(answer.weights, other[name].weights)


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
@QUICK
@given(data=st.data())
def test_changing_a_row(relation: str, data: Any) -> None:
    s = study(relation)
    rows, other = data.draw(neighbours(relation, 1, 5))
    assert_close_enough(answers(s, table(rows)), answers(s, table(other)))


@pytest.mark.slow
@QUICK
@given(
    rows=hostile_tables(0, 4),
    old=hostile_tables(1, 5),
    new=hostile_tables(1, 5),
    relation=st.sampled_from(RELATIONS),
)
def test_changing_a_unit(rows: list[Any], old: list[Any], new: list[Any], relation: str) -> None:
    """A unit brings any number of rows, of which at most max_rows count."""
    s = study(relation, max_rows=2, unit="pid")
    others = [f"u{i // 2}" for i in range(len(rows))]
    one = table([*old, *rows], ["x"] * len(old) + others)
    new = new if relation == "substitute" else []
    two = table([*rows, *new], others + ["y"] * len(new))
    assert_close_enough(answers(s, one), answers(s, two))


@pytest.mark.slow
@pytest.mark.sample(11)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", NAMES)
def test_the_sensitivity_is_reached_at_the_corners(name: str, relation: str) -> None:
    """The largest change between corner rows lies between 0.7 and 1 times what is stated."""
    rows = [found[name] for found in corner_answers(study(relation))]
    vectors = np.unique([a.exact * a.weights for a in rows], axis=0)
    sizes = (vectors**2).sum(axis=1)
    changes = [sizes.max()]  # a row added, or replaced by one that counts zero
    if relation == "substitute":
        changes += [((vectors - v) ** 2).sum(axis=1).max() for v in vectors]
    share = np.sqrt(max(changes)) / rows[0].sensitivity
    assert 0.7 <= share <= ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_unit_of_k_rows_moves_k_times_as_much(relation: str) -> None:
    corners = corner_answers(study(relation))
    s = study(relation, max_rows=3, unit="pid")
    for name, found in answers(s, table([corner_rows()[0]], ["x"])).items():
        assert found.sensitivity == pytest.approx(3 * corners[0][name].sensitivity)
        assert found.scale == pytest.approx(3 * corners[0][name].scale)


@pytest.mark.slow
def test_rows_beyond_max_rows_do_not_count() -> None:
    s = study("substitute", max_rows=2, unit="pid")
    row: Any = {"Y": 6.0, "T": 1.0, "X1": 10.0, "X2": 99.0, "G": "a", "B": "no", "P": 0.2}
    two, ten = answers(s, table([row] * 2, ["x"] * 2)), answers(s, table([row] * 10, ["x"] * 10))
    assert all(np.array_equal(two[name].exact, ten[name].exact) for name in two)
    nobody = answers(s, table([row] * 3, [None] * 3))
    assert all(not found.exact.any() for found in nobody.values())


# -- labels ----------------------------------------------------------------------------------

_TEXTS = st.sampled_from(["a", "b", "c", "d", "e", None, "", "zzz"])
MAX_ROWS = 2


def selection(s: Study, texts: list[Any], units: list[Any], delta: float = 1e-6) -> Any:
    """The recorded query of a selection among `texts`, and the labels it let through."""
    frame = pd.DataFrame({"G": pd.Series(texts, dtype="str"), "pid": units})
    with testing.recorded() as recorder:
        vault = s.vault(frame, s.plan(["levels"]))
        found = vault.release("levels", LabelSelection("G", s.max_rows, delta))
    assert len(recorder.calls) == 1
    return recorder.calls[0], found.labels


def counted(texts: list[Any], units: list[Any], max_rows: int) -> Counter[str]:
    """Labels of the first rows of each unit, counted one by one."""
    seen: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    for text, unit in zip(texts, units, strict=True):
        seen[unit] += 1
        if seen[unit] <= max_rows and text is not None:
            kept[text] += 1
    return kept


@QUICK
@given(
    texts=st.lists(_TEXTS, max_size=6),
    old=st.lists(_TEXTS, min_size=1, max_size=5),
    new=st.lists(_TEXTS, min_size=1, max_size=5),
    relation=st.sampled_from(RELATIONS),
)
def test_label_counts(texts: list[Any], old: list[Any], new: list[Any], relation: str) -> None:
    s = study(relation, max_rows=MAX_ROWS, unit="pid")
    others = [f"u{i // 2}" for i in range(len(texts))]
    two = [*texts, *new] if relation == "substitute" else texts
    tables = [
        ([*old, *texts], ["x"] * len(old) + others),
        (two, others + ["y"] * (len(two) - len(texts))),
    ]
    if not tables[1][0]:
        return
    found = []
    for column, units in tables:
        call, _ = selection(s, column, units)
        kept = counted(column, units, MAX_ROWS)
        # labels of rows that do not count take no part: they would have a chance to be let through
        assert call.exact.tolist() == [kept[label] for label in sorted(kept)]
        found.append((call.query, kept))
    (query, one), (_, other) = found
    common = [one[label] - other[label] for label in one.keys() & other.keys()]
    assert np.linalg.norm(common) <= query.sensitivity * ROUNDING
    for first, second in ((one, other), (other, one)):
        alone = [first[label] for label in first.keys() - second.keys()]
        assert len(alone) <= MAX_ROWS
        assert max(alone, default=0) <= MAX_ROWS


def test_label_sensitivity_is_reached() -> None:
    s = study("substitute", max_rows=MAX_ROWS, unit="pid")
    units = ["x"] * 2 + ["y"] * 2 + ["z"] * 2
    one, _ = selection(s, ["a", "a", "a", "a", "b", "b"], units)
    two, _ = selection(s, ["b", "b", "a", "a", "b", "b"], units)
    assert np.linalg.norm(one.exact - two.exact) == pytest.approx(one.query.sensitivity)


def test_a_unit_cannot_bring_many_labels_in() -> None:
    """Only max_rows labels of a unit are tried: delta pays for no more."""
    s = study("substitute", max_rows=1, unit="pid")
    texts = [f"only {i}" for i in range(500)]
    call, _ = selection(s, texts, ["x"] * 500)
    assert call.exact.tolist() == [1]


@pytest.mark.parametrize("sigma", [0.5, 3.0, 100.0])
@pytest.mark.parametrize("max_rows", [1, 7])
def test_threshold_is_rarely_passed_by_one_unit(sigma: float, max_rows: int) -> None:
    """A label of one unit has count <= k; it passes with probability <= delta / k."""
    delta = 1e-6
    least = LabelSelection("G", max_rows, delta).threshold(sigma) - max_rows
    support = np.arange(-int(40 * sigma) - 2, int(40 * sigma) + 3)
    density = np.exp(-(support**2) / (2 * sigma**2))
    tail = density[support >= least].sum() / density.sum()
    assert tail <= delta / max_rows
    if sigma > 1:
        assert tail >= 1e-3 * delta / max_rows  # and no label is refused for nothing


def test_the_parts_of_two_raw_histograms() -> None:
    """Huge and tiny numbers have a cell; missing and infinite ones have none."""
    s = study("substitute")
    strange = [np.inf, -np.inf, 1e308, 5e-324, -0.0, np.nan]
    rows: Any = [
        {"Y": v, "T": 1.0, "X1": v, "X2": v, "G": "a", "B": "no", "P": 0.2} for v in strange
    ]
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        found = answers(s, table(rows), raw_mechanisms())
    for name, answer in found.items():
        assert answer.exact.sum() == 3 * (2 if name == "grid of rows with weight" else 3)
