"""Declared groups: a numeric right side names a level as the level's own label does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import private

from privcausal.errors import SchemaError
from privcausal.request.formula import group_mask, partitions, resolve_groups
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
    assert group.parts[0].value == schema["zip"].labels[0]
    assert str(group.place) == f"zip {comparison} {written}"
    mask = group_mask(group, {"zip": np.array([0, 1, 2, 0])}, schema)
    same = [True, False, False, True]
    assert mask.tolist() == [s == (comparison == "==") for s in same]


def test_a_number_names_one_of_two_labels() -> None:
    schema = Schema({"code": Binary([1000000, 2000000])})
    (group,) = resolve_groups(["code == 2000000"], schema)
    assert group_mask(group, {"code": np.array([0.0, 1.0])}, schema).tolist() == [False, True]


def test_every_spelling_of_a_zero_one_column() -> None:
    schema = Schema({"smoker": Binary()})
    for text in ("smoker == 1", "smoker == 1.0", "smoker == True"):
        (group,) = resolve_groups([text], schema)
        assert group_mask(group, {"smoker": np.array([0.0, 1.0])}, schema).tolist() == [False, True]


@pytest.mark.parametrize("text", ["zip == 1000001", "zip == 1e+06x", "zip >= 1000000"])
def test_a_level_that_is_not_there_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        resolve_groups([text], Schema({"zip": [1000000, "b", "c"]}))


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
        ["age < 30", "30 <= age < 65", "age >= 65"],
        ["18 <= age <= 40", "95 >= age > 40"],
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


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("30 <= age < 65", [1, 1, 0, 0]),
        ("65 > age >= 30", [1, 1, 0, 0]),
        ("(age >= 30) & (ward == N)", [1, 0, 1, 0]),
        ("30 < age < 70 & ward != S & sex == M", [0, 0, 1, 0]),
        ("unit == R & D", [1, 0, 0, 0]),
        ("unit == R & D & X", [0, 0, 0, 1]),
    ],
)
def test_a_group_is_a_conjunction(text: str, members: list[int]) -> None:
    schema = Schema(SCHEMA | {"unit": ["R & D", "S", "T", "R & D & X"]})
    (group,) = resolve_groups([text], schema)
    frame = {
        "age": np.array([30.0, 64.0, 65.0, 20.0]), "ward": np.array([0, 1, 0, -1]),
        "sex": np.array([0.0, 0, 1, 1]), "unit": np.arange(4),
    }  # fmt: skip
    assert str(group.place) == text
    assert group_mask(group, frame, schema).tolist() == members


def test_a_group_in_two_columns_parts_neither() -> None:
    assert len(found(["ward == N & age >= 65", "ward == S", "ward == W"]).identities) == 0
    (identity,) = found(["sex", "ward == N & age >= 65"]).identities
    np.testing.assert_array_equal(identity, [1, -1, -1, 0])


def test_effects_in_conjunctions_are_those_of_their_rows() -> None:
    rng = np.random.default_rng(1)
    rows = pd.DataFrame({"T": rng.integers(0, 2, 4000), "x": rng.uniform(0, 1, 4000)})
    rows["w"] = rng.choice(["a", "b"], 4000)
    rows["Y"] = (rng.random(4000) < 0.3 + 0.3 * rows["T"] * (rows["x"] < 0.5)) * 1.0
    bounds = {"Y": (0, 1), "x": (0, 1), "w": ["a", "b"]}
    groups = {"0.2 <= x < 0.5 & w == a": rows.x.between(0.2, 0.5, "left") & (rows.w == "a")}
    groups["x >= 0.5"] = rows.x >= 0.5
    fit = private("Y ~ T", rows, bounds=bounds, groups=list(groups), exact=True)
    for name, inside in zip(fit.gate.index, groups.values(), strict=True):
        means = rows[inside].groupby("T")["Y"].mean()
        assert fit.gate["estimate"][name] == pytest.approx(means[1] - means[0], abs=1e-3)


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
