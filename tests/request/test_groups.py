"""Declared groups: a numeric right side names a level as the level's own label does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privcausal.errors import SchemaError
from privcausal.request.factors import group_mask, partitions, resolve_groups
from privcausal.request.schema import Binary, Levels, Schema


@pytest.mark.parametrize(
    ("level", "written"),
    [
        (1000000, "1000000"),
        ("1000000", "1e6"),
        (1234567, "1234567"),
        (94110, "94110.0"),
        (0.1234567, "0.1234567"),
        (-3, "-3"),
        (3.0, "3"),
        (0, "-0.0"),
        ("01234", "'01234'"),
    ],
)
@pytest.mark.parametrize("comparison", ["==", "!="])
def test_a_number_names_a_level(level: Any, written: str, comparison: str) -> None:
    schema = Schema({"zip": Levels([level, "b", "c"])})
    (group,) = resolve_groups([f"zip {comparison} {written}"], schema)
    assert group.value == schema["zip"].labels[0]
    assert group.label == f"zip {comparison} {written}"
    mask = group_mask(group, np.array([0, 1, 2, 0]), schema["zip"])
    same = [True, False, False, True]
    assert mask.tolist() == [s == (comparison == "==") for s in same]


def test_a_number_names_one_of_two_labels() -> None:
    schema = Schema({"code": Binary([1000000, 2000000])})
    (group,) = resolve_groups(["code == 2000000"], schema)
    assert group_mask(group, np.array([0.0, 1.0]), schema["code"]).tolist() == [False, True]


def test_every_spelling_of_a_zero_one_column() -> None:
    schema = Schema({"smoker": Binary()})
    for text in ("smoker == 1", "smoker == 1.0", "smoker == True"):
        (group,) = resolve_groups([text], schema)
        assert group_mask(group, np.array([0.0, 1.0]), schema["smoker"]).tolist() == [False, True]


@pytest.mark.parametrize("text", ["zip == 1000001", "zip == 1e+06x", "zip >= 1000000"])
def test_a_level_that_is_not_there_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        resolve_groups([text], Schema({"zip": [1000000, "b", "c"]}))


@pytest.mark.parametrize("twice", [["x >= 1", "x >= 1"], ["x >= 1", "x>=1.0"], ["g", "g == a"]])
def test_a_group_is_declared_once(twice: list[str]) -> None:
    schema = Schema({"x": (0, 2), "g": ["a", "b"]})
    with pytest.raises(SchemaError, match="declared twice"):
        resolve_groups(twice, schema)


SCHEMA = {
    "ward": ["N", "S", "W"], "open": Levels(["N", "S"], other=True), "sex": Binary(["F", "M"]),
    "age": (18, 95),
}  # fmt: skip


def found(texts: list[str], needed: tuple[str, ...] = (), *, complete: bool = False) -> Any:
    schema = Schema(SCHEMA, complete=complete)
    groups = resolve_groups(texts, schema)
    parts = partitions(groups, schema, needed)
    assert parts.identities.shape == (len(parts.certain), 1 + len(groups))
    return parts


@pytest.mark.parametrize(
    "texts",
    [
        ["ward"],
        ["sex"],
        ["open"],
        ["ward == N", "ward != N"],
        ["age >= 65", "age < 65"],
        ["age < 30", "age >= 30.0"],
        ["age < 30", "age == 30", "age > 30"],
        ["age == 50", "age != 50"],
        ["sex == F", "sex == M"],
        ["age >= 18"],
    ],
)
def test_groups_that_part_a_column(texts: list[str]) -> None:
    (identity,) = found(texts).identities
    assert identity[0] == 1 and (identity[1:] == -1).all()


@pytest.mark.parametrize(
    "texts",
    [
        [],
        ["age >= 65"],
        ["age > 65", "age < 65"],  # 65 is in neither
        ["age >= 65", "age <= 65"],  # and here in both
        ["age >= 65", "age < 60"],
        ["ward == N", "ward == S"],
        ["ward", "ward != N"],
        ["sex == F"],
    ],
)
def test_groups_that_overlap_or_leave_a_rest(texts: list[str]) -> None:
    assert len(found(texts).identities) == 0


def test_each_column_has_its_identity() -> None:
    parts = found(["sex", "age >= 65", "ward"])
    np.testing.assert_array_equal(
        parts.identities, [[1, -1, -1, 0, 0, 0, 0], [1, 0, 0, 0, -1, -1, -1]]
    )


@pytest.mark.parametrize(
    ("texts", "certain"),
    [
        (["sex"], True),
        (["open"], True),
        (["age >= 65", "age < 65"], True),
        (["ward"], False),  # a label nobody declared is in no level
        (["ward == N", "ward != N"], True),
    ],
)
def test_a_rest_that_no_row_can_be_in(texts: list[str], certain: bool) -> None:
    column = texts[0].split()[0]
    assert found(texts, (column,)).certain.tolist() == [certain]
    assert found(texts, complete=True).certain.tolist() == [certain]
    assert found(texts, ("other",)).certain.tolist() == [False]  # values may be missing
