"""Columns of any frame as arrays: row by row, total, and typed by what is public."""

from __future__ import annotations

import warnings
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_type import TEXT

from privcausal.errors import DataError
from privcausal.features.design import header, labels, numbers, open_frame
from privcausal.request.schema import label_key

ANY = st.one_of(
    st.sampled_from([True, False, None, np.nan, pd.NA, pd.NaT, 1, 0, 1.0, -0.0, "1", "True", ""]),
    st.sampled_from([b"a", "a", 1 + 0j, (1,), (True,), [1], {"a": 1}, frozenset({1}), {1}]),
    st.sampled_from([Decimal("1"), Decimal("NaN"), Decimal("sNaN"), np.int8(1), np.float32(1.5)]),
    st.sampled_from([10**400, pd.Timestamp("2020-01-01"), np.datetime64("2020-01-01"), object]),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
)


def series(values: list[Any]) -> Any:
    column = pd.Series(values, dtype=object)
    return open_frame(pd.DataFrame({"x": column}))["x"]


def read(values: list[Any]) -> list[str | None]:
    """Labels row by row."""
    codes, names = labels(series(values))
    return [None if code < 0 else names[code] for code in codes]


@pytest.mark.slow
@given(st.lists(ANY, max_size=8))
@settings(deadline=None, database=None)
def test_labels_are_row_by_row(values: list[Any]) -> None:
    """A row's label is the text of its own value, whatever the other rows hold."""
    assert read(values) == [label_key(value) for value in values]


@pytest.mark.slow
@given(st.lists(ANY, max_size=8))
@settings(deadline=None, database=None)
def test_numbers_are_row_by_row(values: list[Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        together = numbers(series(values))
        alone = [numbers(series([value]))[0] for value in values]
    assert np.array_equal(together, np.array(alone, np.float64), equal_nan=True)


def test_equal_values_of_different_types_keep_their_labels() -> None:
    """Python holds True and 1 to be equal; the first must not name the others."""
    values = [True, 1, 1.0, "1", np.True_, Decimal(1)]
    assert read(values) == ["True", "1", "1", "1", "True", "1"]
    assert read(values[::-1]) == ["1", "True", "1", "1", "1", "True"]


ONE_INSTANT = [
    pd.Timestamp("2020-01-01 00:00", tz="UTC"),
    pd.Timestamp("2020-01-01 01:00", tz="Europe/Berlin"),
]
MIXED = [
    True, 1, 1.0, False, 0, -0.0, 0.0, Decimal(1), np.int8(1), np.float64(1), np.bool_(True), "1",
    None, np.nan, float("-nan"), pd.NA, pd.NaT, Decimal("NaN"), [1], {"k": 1}, object(), "a",
    date(2020, 1, 1), UUID(int=1), pd.Period("2020"), Fraction(1, 2), *ONE_INSTANT,
]  # fmt: skip


@pytest.mark.parametrize("texts", [0, 1, 99, 100, 101, 150])
@given(st.permutations(MIXED), st.integers(0, len(MIXED) - 1), st.sampled_from(MIXED))
@settings(deadline=None, database=None, max_examples=15)
def test_a_label_is_of_its_own_cell(texts: int, cells: list[Any], at: int, new: Any) -> None:
    """After any number of texts, in any order, with any one cell replaced by another.

    Of a pandas column of objects its first hundred values must decide nothing.
    """
    values = ["a"] * texts + cells
    told = read(values)
    assert told == [label_key(value) for value in values]
    values[texts + at] = new
    other = read(values)
    assert [i for i in range(len(told)) if told[i] != other[i]] in ([], [texts + at])
    assert read(values[::-1]) == other[::-1]


def test_a_category_is_named_by_itself() -> None:
    """Categories may be of any type, each of another."""
    categories = pd.Index(["1", True, 2.5, *ONE_INSTANT[:1]], dtype=object)
    column = pd.Categorical.from_codes([0, 0, 1, 2, 3, -1], categories)
    codes, names = labels(open_frame(pd.DataFrame({"x": column}))["x"])
    assert [None if c < 0 else names[c] for c in codes] == [
        None if c < 0 else label_key(categories[c]) for c in column.codes
    ]


@pytest.mark.parametrize("value", [[1], {"k": 1}, {1}, (1,), object(), 1 + 0j, np.ones(2), len])
def test_what_is_no_label_is_missing_wherever_it_stands(value: Any) -> None:
    """Its text could hold an address; and a refusal would tell that such a row exists."""
    for before in (7, 700):
        cells: list[Any] = ["a"] * before + [value] + ["b"] * 100
        assert read(cells) == ["a"] * before + [None] + ["b"] * 100


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pd.Series([1, 2]), "numeric"),
        (pd.Series([1.5, np.nan]), "numeric"),
        (pd.array([1, None], dtype="Int64"), "numeric"),
        (pd.array([True, None], dtype="boolean"), "bool"),
        (pd.Series([True, False]), "bool"),
        (pd.Series(["a", None], dtype="str"), "text"),
        (pd.Categorical(["a", "b"]), "text"),
        (pd.Series(["a", 1], dtype=object), "text"),
        (pd.Series([1, 2], dtype=object), "text"),
        (pd.Series(pd.Timestamp("2020-01-01"), index=[0, 1]), "other"),
        (np.array([1j, 2j]), "other"),
    ],
)
def test_kinds_come_from_types(column: Any, kind: str) -> None:
    assert header(open_frame(pd.DataFrame({"x": column}))).kinds["x"] == kind


@pytest.mark.parametrize("values", [["a", "b"], ["a", 1], [1, 2], [None, None], [1.5, None]])
def test_columns_of_objects_are_known_by_their_type(values: list[Any]) -> None:
    """Not by what they hold: one row could change that."""
    for column in (pd.Series(values, dtype=object), np.array(values, dtype=object)):
        for table in ({"x": column}, pd.DataFrame({"x": pd.Series(column, dtype=object)})):
            found = header(open_frame(table))
            assert found.kinds["x"] == "text"
            assert found.objects == {"x"}
    assert not header(open_frame(pd.DataFrame({"x": ["a", "b"]}, dtype=TEXT))).objects


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"x": pd.array([1, None, 3], dtype="Int64")}),
        pd.DataFrame({"x": [1.0, None, 3.0]}),
        pd.DataFrame({"x": pd.Series([1, None, Decimal(3)], dtype=object)}),
        pd.DataFrame({"x": pd.Series(["1", "?", "3"], dtype=object)}),
        pl.DataFrame({"x": [1, None, 3]}),
        pl.DataFrame({"x": [Decimal(1), None, Decimal(3)]}),
        pa.table({"x": [1, None, 3]}),
        pa.table({"x": pa.array([Decimal(1), None, Decimal(3)])}),
        {"x": np.array([1.0, np.nan, 3.0])},
        {"x": pl.Series([1, None, 3])},
    ],
    ids=lambda frame: type(frame).__module__.split(".")[0],
)
def test_numbers_of_every_container(frame: Any) -> None:
    found = numbers(open_frame(frame)["x"])
    assert found.dtype == np.float64
    assert np.array_equal(found, [1.0, np.nan, 3.0], equal_nan=True)


@pytest.mark.parametrize("dtype", [object, "U2"])
def test_half_a_character_is_spelt_out(dtype: Any) -> None:
    """pandas' own text columns cannot hold it: an exception would tell of that row."""
    codes, names = labels(open_frame({"x": np.array(["a", "b\udc80"], dtype=dtype)})["x"])
    assert names == ("a", "b\\udc80")
    assert codes.tolist() == [0, 1]


def test_columns_of_a_dict_belong_together_by_position() -> None:
    frame = open_frame({"x": pd.Series([1, 2], index=[5, 5]), "y": pd.Series([3, 4])})
    assert frame.shape == (2, 2)
    assert numbers(frame["y"]).tolist() == [3.0, 4.0]


@pytest.mark.parametrize("values", [[1.0, 2.0], [1, None], ["a", 1], (True, False), range(2)])
def test_a_list_has_no_type(values: Any) -> None:
    """Its values would decide how it is read, so that one row would decide for all."""
    with pytest.raises(DataError, match=r"Column 'x' of the dict has no data type. Pass np.array"):
        open_frame({"x": values})


def test_other_things_are_refused() -> None:
    """More are in the table of wrong calls."""
    for wrong in ({"x": "abc"}, {"x": {1, 2}}, "x", None, pl.LazyFrame({"x": [1]})):
        with pytest.raises(DataError):
            open_frame(wrong)


def test_narwhals_frames_are_frames() -> None:
    frame = nw.from_native(pd.DataFrame({"x": [1, 2]}))
    assert numbers(open_frame(frame)["x"]).tolist() == [1.0, 2.0]


BIG: list[Any] = [2**53 + 1, 2**63 - 1, 7, 0, -3]
MONEY: list[Any] = [Decimal("0.1"), Decimal("1.12345678901234567891"), Decimal(3)]
TYPED: dict[str, tuple[Any, list[Any]]] = {
    "polars Int64": (lambda v: pl.Series(v, dtype=pl.Int64), BIG),
    "polars Boolean": (lambda v: pl.Series(v, dtype=pl.Boolean), [True, False]),
    "polars Decimal": (lambda v: pl.Series(v, dtype=pl.Decimal(38, 20)), MONEY),
    "polars String": (lambda v: pl.Series(v, dtype=pl.String), ["a", "1", "1.0"]),
    "polars Categorical": (lambda v: pl.Series(v, dtype=pl.Categorical), ["a", "1"]),
    "polars Object": (lambda v: pl.Series(v, dtype=pl.Object), ["a", 1, True, 1.0]),
    "Int64": (lambda v: pd.Series(v, dtype="Int64"), BIG),
    "int64[pyarrow]": (lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.int64())), BIG),
    "decimal[pyarrow]": (lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.decimal128(38, 20))), MONEY),
    "boolean": (lambda v: pd.Series(v, dtype="boolean"), [True, False]),
    "str": (lambda v: pd.Series(v, dtype="str"), ["a", "1"]),
    "array of objects": (lambda v: np.array([*v, None], dtype=object)[:-1], ["a", 1, True, 1.0]),
}


@pytest.mark.parametrize("name", TYPED)
@pytest.mark.parametrize("in_dict", [False, True])
def test_a_missing_cell_changes_no_other(name: str, in_dict: bool) -> None:
    """Nor the type of its column: in a dict each column is read by its own type."""
    make, values = TYPED[name]

    def opened(cells: list[Any]) -> Any:
        column = make(cells)
        if in_dict:
            return open_frame({"x": column})
        held = pl.DataFrame if isinstance(column, pl.Series) else pd.DataFrame
        if isinstance(column, np.ndarray):
            column = pd.Series(column, dtype=object)
        return open_frame(held({"x": column}))

    whole, some = opened(values), opened([None, *values])
    assert header(whole) == header(some)
    assert np.array_equal(numbers(whole["x"]), numbers(some["x"])[1:], equal_nan=True)
    (codes, names), (others, alike) = labels(whole["x"]), labels(some["x"])
    assert [names[c] for c in codes] == [alike[c] for c in others[1:]]
    assert others[0] == -1


def test_what_pandas_would_type_by_its_values_is_refused_in_a_dict() -> None:
    with pytest.raises(DataError, match="not supported in a dict"):
        open_frame({"x": np.ma.array([1, 2], mask=[False, True])})
