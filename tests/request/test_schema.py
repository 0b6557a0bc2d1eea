"""Declared domains: every spelling, every refusal, and labels that never raise."""

from __future__ import annotations

import copy
import datetime
import decimal
import enum
import fractions
import json
import pickle
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from fit_helpers import refused
from hypothesis import given
from hypothesis import strategies as st

import privcausal as pc
from privcausal.errors import SchemaError
from privcausal.request.schema import (
    MAX_WIDTH,
    Binary,
    Interval,
    Levels,
    Schema,
    label_key,
    least_width,
)


class Hostile:
    def __str__(self):
        raise RuntimeError("secret")

    __ne__ = __eq__ = __repr__ = __float__ = __str__
    __hash__ = None


class Colour(enum.StrEnum):
    RED = "red"


class Shouting(str):
    __slots__ = ()

    def __str__(self):
        raise RuntimeError("secret")


class Own(datetime.date):
    """A date that could say anything: what another row holds, or where it is in memory."""

    def __str__(self):
        return "another"


NO_LABEL = [None, pd.NaT, pd.NA, *(kind("NaT") for kind in (np.datetime64, np.timedelta64))]
NO_LABEL += [float("nan"), np.float32("nan"), decimal.Decimal("NaN"), decimal.Decimal("sNaN")]
NO_LABEL += [Hostile(), ("N\udc80",), 1 + 2j, (1, 2), Own(2020, 1, 2)]
THREE = [3, 3.0, np.int8(3), np.float32(3), decimal.Decimal("3.00"), fractions.Fraction(6, 2)]


@pytest.mark.parametrize(
    ("value", "key"),
    [
        *((value, None) for value in NO_LABEL),
        *((value, "3") for value in THREE),
        *((value, str(value)) for value in (True, np.False_, 0.1, 2.5, float("inf"))),
        *((value, value) for value in ("3.0", " N ", "")),
        *((value, "a") for value in (np.str_("a"), Shouting("a"), bytearray(b"a"))),
        (-0.0, "0"),
        (np.uint64(2**64 - 1), "18446744073709551615"),
        (Colour.RED, "red"),
        (b"caf\xc3\xa9", "café"),
        (b"\xff", "\ufffd"),
        ("N\udc80", "N\\udc80"),
        (datetime.date(2020, 1, 2), "2020-01-02"),
    ],
)
def test_label_key(value, key):
    got = label_key(value)
    assert got == key
    assert got is None or type(got) is str


KINDS = st.none, st.booleans, st.integers, st.floats, st.decimals, st.text, st.binary
KINDS += st.complex_numbers, st.datetimes, partial(st.builds, object), partial(st.builds, Hostile)
ANYTHING = st.recursive(
    st.one_of(*(kind() for kind in KINDS)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=5,
)


@pytest.mark.slow
@given(ANYTHING)
def test_label_key_is_total(value):
    key = label_key(value)
    assert key is None or type(key) is str


def test_a_number_too_long_to_print_is_missing():
    assert label_key(10**5000) is None


@given(st.integers(-(2**53), 2**53))
def test_a_whole_number_is_one_label_in_every_type(n):
    assert label_key(n) == label_key(float(n)) == label_key(np.int64(n)) == str(n)


# Domains


def test_interval():
    interval = Interval(18, np.float32(95))
    assert (interval.lo, interval.hi, interval.width, interval.mid) == (18.0, 95.0, 77.0, 56.5)
    assert type(interval.lo) is type(interval.hi) is float
    assert interval == Interval(18.0, 95.0)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 2.0**59, exclude_min=True))
def test_the_middle_of_an_interval_is_inside(lo, width):
    hi = lo + width
    if hi < float("inf") and least_width(lo, hi) < hi - lo < MAX_WIDTH:
        interval = Interval(lo, hi)
        assert interval.lo <= interval.mid <= interval.hi


BAD_INTERVALS = {
    "must come first. Write (18, 95)": [(95, 18)],
    "lo < hi": [(1, 1)],
    "must be finite": [(np.nan, 1), (0, np.inf), (-np.inf, 0), (0, 10**5000)],
    "wider than 2**60": [(0, 2.0**60), (-1e308, 1e308)],
    "too narrow": [(0, 1e-200), (1e-300, 3e-300), (1e9, 1e9 + 0.5), (-1 - 2.0**-40, -1)],
    "two numbers": [("0", 1), (0, None), (0, np.True_), (0, 1j), (0, [1])],
    "Binary() for bool": [(False, True)],
}


def test_levels():
    levels = Levels(["N", "S", 3.0])
    assert levels.values == levels.labels == ("N", "S", "3")
    assert not levels.other
    assert Levels(("N", "S"), other=True).labels == ("N", "S", "other")
    assert Levels(["other", "N"]) == Levels(["N"], other=True)
    assert Levels(["other", "N"]).labels == ("N", "other")
    assert Levels([], other=True).labels == ("other",)
    assert Levels(range(3)).labels == ("0", "1", "2")


def test_binary():
    plain = Binary(["No RHC", "RHC"])
    assert (plain.zero, plain.one) == plain.labels == ("No RHC", "RHC")
    assert (plain.zeros, plain.ones) == (("No RHC",), ("RHC",))
    assert plain == Binary(["No RHC", "RHC"], ref="No RHC") == Binary(["RHC", "No RHC"], "No RHC")
    assert Binary([2, 1], ref=1.0).labels == ("1", "2")


@pytest.mark.parametrize("labels", [(0, 1), [0.0, 1.0], ["0", "1"], [False, True], (np.False_, 1)])
def test_the_0_1_coding(labels):
    coding = Binary(labels)
    if labels != (np.False_, 1):
        assert coding.labels is None
        assert {*coding.zeros, *coding.ones} == {"0", "1", "False", "True"}
    assert (coding.zero, coding.one) == (label_key(labels[0]), label_key(labels[1]))


def test_the_0_1_coding_has_no_labels_of_its_own():
    assert (Binary().labels, Binary().zeros, Binary().ones) == (None, ("0", "False"), ("1", "True"))
    turned = Binary([0, 1], ref=1)
    assert turned.labels == ("1", "0")
    assert (turned.zeros, turned.ones) == (("1", "True"), ("0", "False"))


# The schema


@pytest.mark.parametrize(
    ("spelling", "domain"),
    [
        ((18, 95), Interval(18, 95)),
        ((0, 1), Interval(0, 1)),
        ((np.int64(0), np.float64(1.5)), Interval(0, 1.5)),
        (["N", "S"], Levels(["N", "S"])),
        (("N", "S"), Levels(["N", "S"])),
        (("N", "S", "E"), Levels(["N", "S", "E"])),
        (["only"], Levels(["only"])),
        ([1, 2, 3], Levels(["1", "2", "3"])),
        ([1], Levels(["1"])),
        (["1", "2"], Levels(["1", "2"])),
        (range(3), Levels([0, 1, 2])),
        (["a", "other"], Levels(["a"], other=True)),
        ([0, 1], Binary()),
        ([0.0, 1.0], Binary()),
        ([False, True], Binary([False, True])),
        (["0", "1"], Levels([0, 1])),
        ([1, 0], Binary([1, 0])),
        (Interval(0, 1), Interval(0, 1)),
        (Levels(["a"]), Levels(["a"])),
        (Binary(["a", "b"]), Binary(["a", "b"])),
        ({"lo": 0, "hi": 1}, Interval(0, 1)),
        ({"labels": ["a", "b"]}, Levels(["a", "b"])),
        ({"labels": [1, 2]}, Levels([1, 2])),
        ({"labels": ["a", "b"], "other": True}, Levels(["a", "b"], other=True)),
        ({"labels": ["a", "b"], "ref": "b"}, Binary(["b", "a"])),
        ({"labels": ["a", "b", "c"], "ref": "b"}, Levels(["b", "a", "c"])),
    ],
)
def test_spellings(spelling, domain):
    assert Schema({"x": spelling})["x"] == domain


@pytest.mark.parametrize(
    ("spelling", "message"),
    [
        *((ends, message) for message, several in BAD_INTERVALS.items() for ends in several),
        ([], "No level"),
        ((), "No level"),
        (["a", "a"], "have the same text"),
        (["a", None], "is missing"),
        ((1, 2, 3), "a pair (lo, hi), not 3 values"),
        ((1,), "a pair (lo, hi), not 1 values"),
        ([18, 95], "Write (18, 95) for an interval, or ['18', '95'] for two labels"),
        (("18", "95"), "Write (18, 95)"),
        ("18-95", "A domain must be"),
        (5, "A domain must be"),
        (None, "labels, not None"),
        ({"a", "b"}, "A domain must be"),
        (np.array([18, 95]), "Write (18, 95)"),
        (float, "A domain must be"),
        ({}, "keys lo and hi, or labels"),
        ({"lo": 1}, "keys lo and hi, or labels"),
        ({"lo": 1, "hi": 2, "labels": ["a"]}, "keys lo and hi, or labels"),
        ({"lo": 2, "hi": 1}, "must come first"),
        ({"labels": "ab"}, "must be a list"),
        ({"labels": ["a", "b"], "ref": "c"}, "ref='c' is not among the labels"),
        ({"labels": ["a"], "other": 1}, "other must be True or False"),
    ],
)
def test_bad_spellings_name_the_column(spelling, message):
    with refused(SchemaError, r"^bounds\['the age'\]: ") as caught:
        Schema({"fine": (0, 1), "the age": spelling})
    assert message in str(caught.value)


SCHEMA = Schema(
    {"age": (18, 95), "region": ["N", "S", "other"], "rhc": Binary(["No RHC", "RHC"]), "t": [0, 1]},
    complete=True,
)


def test_a_schema_reads_like_a_mapping():
    assert SCHEMA["age"] == SCHEMA.get("age") == Interval(18, 95)
    assert "age" in SCHEMA
    assert "sex" not in SCHEMA
    assert SCHEMA.get("sex") is None
    assert SCHEMA.get("sex", Binary()) == Binary()
    assert list(SCHEMA) == ["age", "region", "rhc", "t"]
    assert len(SCHEMA) == 4
    words = r"'sex' has no declared domain\. Declared columns: age, region"
    with pytest.raises(SchemaError, match=words):
        SCHEMA["sex"]


def test_a_schema_is_frozen_and_a_value():
    again = Schema(SCHEMA.columns, complete=True)
    assert again == SCHEMA
    assert hash(again) == hash(SCHEMA)
    assert Schema({"age": (18, 95)}) != Schema({"age": (18, 95)}, complete=True)
    assert pickle.loads(pickle.dumps(SCHEMA)) == copy.deepcopy(SCHEMA) == SCHEMA
    with pytest.raises(AttributeError):
        SCHEMA.complete = False
    SCHEMA.columns.clear()
    assert len(SCHEMA) == 4


def test_repr():
    assert repr(SCHEMA) == (
        "Schema({'age': Interval(lo=18.0, hi=95.0), "
        "'region': Levels(values=('N', 'S'), other=True), "
        "'rhc': Binary(['No RHC', 'RHC']), 't': Binary()}, complete=True)"
    )
    assert eval(repr(SCHEMA)) == SCHEMA


def test_with_columns_gives_a_new_schema():
    more = SCHEMA.with_columns({"age": (0, 120), "sex": ["F", "M"]})
    assert more["age"] == Interval(0, 120)
    assert more["sex"] == Levels(["F", "M"])
    assert more.complete
    assert "sex" not in SCHEMA
    with pytest.raises(SchemaError, match="bounds\\['age'\\]"):
        SCHEMA.with_columns({"age": (1, 0)})


def test_of():
    assert Schema.of(None) == Schema({}) == Schema() == Schema.from_dict({})
    assert Schema.of(SCHEMA) is SCHEMA
    assert Schema.of({"x": (0, 1)}) == Schema({"x": (0, 1)})


NAMES = st.text(min_size=1, max_size=5)
PAIRS = st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=2, unique=True)
DOMAINS = (
    PAIRS.map(sorted).map(tuple)
    | st.lists(st.text(max_size=5), min_size=1, max_size=5, unique=True).map(Levels)
    | st.lists(st.text(max_size=5), min_size=2, max_size=2, unique=True).map(Binary)
    | st.lists(st.text(max_size=5), unique=True).map(lambda v: Levels(v, other=True))
    | st.sampled_from([Binary(), Binary([0, 1], ref=1)])
)


@given(st.dictionaries(NAMES, DOMAINS, max_size=5), st.booleans())
def test_dict_round_trip_through_json(columns, complete):
    schema = Schema(columns, complete=complete)
    text = json.dumps(schema.to_dict())
    again = Schema.from_dict(json.loads(text))
    assert again == schema
    assert repr(again) == repr(schema)


# TOML


def toml(tmp_path, text):
    path = tmp_path / "spec.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_from_toml(tmp_path):
    path = toml(
        tmp_path,
        """
        formula = "Y ~ T | age"
        complete = true

        [bounds]
        age = [18, 95]
        income = {lo = 0, hi = 1e6}
        region = ["N", "S"]
        rhc = {labels = ["RHC", "No RHC"], ref = "No RHC"}
        dose = {labels = [1, 2]}

        [budget]
        eps = 1
        """,
    )
    schema = Schema.from_toml(path)
    assert schema == Schema.from_toml(str(path))
    domains = {"age": (18, 95), "income": (0, 1e6), "region": ["N", "S"]}
    domains |= {"rhc": Binary(["No RHC", "RHC"]), "dose": Levels([1, 2])}
    assert schema == Schema(domains, complete=True)
    assert Schema.from_toml(toml(tmp_path, "")) == Schema()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[bounds", "not valid TOML"),
        (b"\xff", "not valid TOML"),
        ("bounds = 3", "Write \\[bounds\\]"),
        ("complete = 1", "complete must be True or False"),
        ("[bounds]\ncomplete = true", "above \\[bounds\\]"),
        ("[bounds]\nage = [95, 18]", "bounds\\['age'\\].*must come first"),
    ],
)
def test_bad_toml(tmp_path, text, message):
    with refused(SchemaError, message):
        Schema.from_toml(toml(tmp_path, text))


# dtypes


LOW_HIGH = pd.Categorical(["lo", "hi"], categories=["lo", "hi"], ordered=True)
PANDAS = pd.DataFrame({"g": pd.Categorical(["a", "b"], categories=["c", "a", "b"]), "o": LOW_HIGH})
PANDAS = PANDAS.assign(t=[True, False], n=pd.array([True, None], dtype="boolean"), x=[1.5, 2.5])
PANDAS = PANDAS.assign(s=["secret1", "secret2"], e=pd.Categorical([None, None]))


def test_from_dtypes_pandas():
    schema, truth = Schema.from_dtypes(PANDAS, x=(0, 10)), Binary([False, True])
    assert schema == Schema(
        {"g": ["c", "a", "b"], "o": ["lo", "hi"], "t": truth, "n": truth, "x": (0, 10)}
    )
    assert "secret" not in repr(schema)
    assert Schema.from_dtypes(PANDAS, g=["a", "b"])["g"] == Levels(["a", "b"])
    with pytest.raises(SchemaError, match="must be text"):
        Schema.from_dtypes(pd.DataFrame({3: [True, False]}))


def test_from_dtypes_polars():
    frame = pl.DataFrame(
        {
            "g": pl.Series(["b", "a", None], dtype=pl.Categorical),
            "e": pl.Series(["x", "y", "x"], dtype=pl.Enum(["y", "x", "z"])),
            "t": [True, None, False],
            "x": [1, 2, 3],
        }
    )
    without = {"e": ["y", "x", "z"], "t": Binary([False, True])}
    assert Schema.from_dtypes(frame) == Schema({"g": ["a", "b"], **without})
    assert Schema.from_dtypes(frame.lazy().drop("g")) == Schema(without)
    with pytest.raises(SchemaError, match="Column 'g': A lazy frame"):
        Schema.from_dtypes(frame.lazy())


def test_from_dtypes_arrow_and_dicts():
    table = pa.table({"g": pa.array(["b", "a"]).dictionary_encode(), "t": pa.array([True, None])})
    assert Schema.from_dtypes(table) == Schema({"g": ["a", "b"], "t": Binary([False, True])})
    arrays = {"g": PANDAS["g"], "t": np.array([True]), "x": np.array([1.0]), "l": [True, False]}
    assert Schema.from_dtypes(arrays) == Schema({"g": ["c", "a", "b"], "t": Binary([False, True])})


def test_from_dtypes_says_what_becomes_public():
    assert "become public" in Schema.from_dtypes.__doc__


def test_bounds_of_no_column_are_told() -> None:
    """Those of other tables may share a schema, and are not."""
    frame = pd.DataFrame({"Y": [0.0, 1.0] * 30, "T": [0, 0, 1, 1] * 15, "X": [0.5] * 60})
    frame["ward"] = "a"
    bounds = {"Y": (0, 1), "X": (0, 1), "wrad": ["a", "b"], "height": (100, 250)}
    with pytest.warns(pc.PrivcausalWarning, match="not in the data and were ignored: 'wrad'"):
        pc.private("Y ~ T | X", frame, bounds=bounds)
