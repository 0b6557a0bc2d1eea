"""Names of units: two values of a column never share one, whatever the type and the source."""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntFlag, StrEnum
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pyreadstat
import pytest
from fit_helpers import replayed
from hypothesis import given, settings
from hypothesis import strategies as st

import privcausal as pc
from privcausal.errors import DataError
from privcausal.features.design import labels, open_frame
from privcausal.request.formula import CausalFormula
from privcausal.request.panels import panel_of
from privcausal.request.request import Budget, Request, Trust
from privcausal.request.schema import Schema, label_key
from privcausal.vault import open_source
from privcausal.vault.admission import changes
from privcausal.vault.sources import memory, stored
from privcausal.vault.sources.memory import unit_codes, unit_key

BIG = 2**53
"""From here on floats are not all whole numbers."""

AUTUMN = datetime(2020, 10, 25, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))


class Ward(Enum):
    NORTH = 1


class Site(Enum):
    NORTH = 1


class Word(StrEnum):
    A = "a"


class Flags(IntFlag):
    ONE = 1


class Ids(str):  # a text with another text of its own
    __slots__ = ()

    def __str__(self) -> str:
        return "other"


DIFFERENT: list[Any] = [
    1, "1", True, 1.0, Decimal(1), Fraction(1), b"1", bytearray(b"1"), 0, "", "0", False, "True",
    BIG, BIG + 1, 2**64, 10**5000, 10**5000 + 1, -(10**5000),
    Decimal(BIG), Decimal(BIG + 1), Decimal("1e999999999"), Decimal("1e-999999999"),
    Decimal("inf"), Decimal("-inf"), float("inf"), -float("inf"), 5e-324, 0.1, np.float32(0.1),
    np.longdouble(2) ** 63, np.longdouble(2) ** 63 + 1, Fraction(1, 3), Fraction(1, 10**5000),
    "a", "a\0b", "a\0c", "\udc80", "\\udc80", "'\\udc80'", "�", "\u00e9", "e\u0301", "\x1fint 1",
    "\x1ftext a", "\x1ftext \x1fint 1", "\x1fhalf 61", b"\x80", b"\x81", "�".encode(),
    datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=UTC), AUTUMN, AUTUMN.replace(fold=1),
    datetime.min, datetime.max, datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
    pd.Timestamp(1), pd.Timestamp(2), pd.Timestamp(1, tz="UTC"), date(2020, 1, 1), time(1),
    time(1, tzinfo=UTC), timedelta(1), pd.Timedelta(1), np.timedelta64(1, "D"),
    np.datetime64("2020-01-01"), np.datetime64("2020"), pd.Period("2020", "Y-DEC"),
    pd.Period("2020", "Y-JUN"), pd.Interval(0, 1), pd.Interval(0, 1, closed="left"),
    pd.Interval(0, 1.0), pd.Interval(pd.Timestamp(1), pd.Timestamp(2)), UUID(int=1), UUID(int=2),
    Ward.NORTH, Site.NORTH, Word.A, Flags.ONE, Flags.ONE | Flags(8),
]  # fmt: skip
"""Values of one column of Python objects, each another unit."""

EQUAL: list[tuple[Any, Any]] = [
    (1, np.int8(1)), (1.0, np.float32(1)), (1.0, np.longdouble(1)), (True, np.True_),
    (0.0, -0.0), ("a", np.str_("a")), ("a", Ids("a")), (b"a", np.bytes_(b"a")),
    (Decimal("1.0"), Decimal("1.00")), (Decimal("1E3"), Decimal(1000)), (Decimal("-0"), Decimal(0)),
    (datetime(2020, 1, 1, tzinfo=UTC),
     datetime(2020, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
    (pd.Timestamp("2020-01-01"), datetime(2020, 1, 1)), (timedelta(1), pd.Timedelta(1, "D")),
]  # fmt: skip


class Hostile:
    """Whatever is asked of it fails."""

    def __getattribute__(self, name: str) -> Any:
        raise ValueError("no")

    __eq__ = __hash__ = __repr__ = __len__ = None  # type: ignore[assignment]


NOBODY: list[Any] = [
    None, np.nan, float("nan"), pd.NA, pd.NaT, Decimal("NaN"), Decimal("sNaN"),
    np.datetime64("NaT"), np.timedelta64("NaT"), np.longdouble("nan"), [1], {"k": 1}, {1}, (1,),
    np.ones(2), object(), 1j, len, Flags(8), Hostile(),
]  # fmt: skip
"""What names no unit: rows that hold it count for nothing."""


def objects(values: list[Any]) -> Any:
    column = np.empty(len(values), object)
    for at, value in enumerate(values):
        column[at] = value
    return column


def codes_of(data: Any) -> list[int]:
    """The unit of each row, as a frame's column `id` says."""
    found = unit_codes(open_frame(data)["id"]).codes
    assert found is not None
    return found.tolist()


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("held", ["dict", "pandas", "polars"])
def test_no_two_values_of_objects_share_a_unit(held: str, order: int) -> None:
    values = [*NOBODY, *DIFFERENT][::order]
    made: dict[str, Callable[[], Any]] = {
        "dict": lambda: {"id": objects(values)},
        "pandas": lambda: pd.DataFrame({"id": pd.Series(objects(values), dtype=object)}),
        "polars": lambda: pl.DataFrame({"id": pl.Series(values, dtype=pl.Object)}),
    }
    codes = codes_of(made[held]())
    assert codes.count(-1) == len(NOBODY)
    assert len(set(codes)) == len(DIFFERENT) + 1
    for name in map(unit_key, DIFFERENT):
        assert name is not None
        assert name.encode().decode() == name  # a file can hold it


@pytest.mark.parametrize("at", range(len(EQUAL)))
def test_equal_values_of_one_kind_are_one_unit(at: int) -> None:
    assert codes_of({"id": objects([*EQUAL[at], "z"])}) == [0, 0, 1]


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and a == b


VALUES = st.one_of(
    st.integers(), st.floats(allow_nan=False), st.text(), st.binary(), st.booleans(),
    st.decimals(allow_nan=False), st.fractions(), st.datetimes(), st.times(), st.timedeltas(),
    st.dates(), st.uuids(), st.text(alphabet=["\x1f", "\udc80", "a", "\\"]),
    st.datetimes(timezones=st.just(UTC)),
)  # fmt: skip


@pytest.mark.slow
@given(one=VALUES, two=VALUES)
@settings(max_examples=300, deadline=None)
def test_names_are_equal_where_values_of_one_kind_are(one: Any, two: Any) -> None:
    assert (unit_key(one) == unit_key(two)) == _same(one, two)


@given(st.lists(st.integers(0, len(DIFFERENT + NOBODY) - 1), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_a_name_is_of_its_own_cell(chosen: list[int]) -> None:
    values = [[*DIFFERENT, *NOBODY][at] for at in chosen]
    found = unit_codes(open_frame({"id": objects(values)})["id"])
    assert found.codes is not None
    names = [None if c < 0 else found.labels[c] for c in found.codes.tolist()]
    assert names == list(map(unit_key, values))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0, -3, BIG, BIG + 1], "int64"),
        (["a", "3", "", "True", "ü", "\\udc80"], "str"),
        (["a", "3", "", "True", "ü", "\\udc80"], object),
        (["a", "3"], "category"),
        ([3, 1], "category"),
    ],
)
def test_names_of_ordinary_units_stay_as_they_are(values: list[Any], kind: Any) -> None:
    """Parts of the rows go by the name, so seeded results rest on it."""
    found = unit_codes(open_frame(pd.DataFrame({"id": pd.Series(values, dtype=kind)}))["id"])
    expected = list(map(label_key, values))
    assert found.codes is not None
    assert [found.labels[c] for c in found.codes.tolist()] == expected


# -- one grouping in all sources -------------------------------------------------------------------

TYPES: dict[str, tuple[Any, list[Any]]] = {
    "text": (pa.string(), ["a", "A", "a ", "", "\u00e9", "e\u0301", "a\0b", "a\0c", "\x1f", "1"]),
    "coded": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", ""]),
    "whole": (pa.int64(), [0, BIG, BIG + 1, -(2**63), 2**63 - 1]),
    "unsigned": (pa.uint64(), [0, 2**64 - 1, 2**64 - 2]),
    "double": (pa.float64(), [0.0, 0.1, BIG, 5e-324, float("inf")]),
    "single": (pa.float32(), [0.5, 0.1, 16777216.0]),
    "bool": (pa.bool_(), [True, False]),
    "decimal": (
        pa.decimal128(38, 2), [Decimal(v) for v in ("1", "1.5", BIG, BIG + 1, 10**35, 10**35 + 1)],
    ),
    "money": (pa.decimal128(9, 2), [Decimal(v) for v in ("0", "0.01", "-0.01")]),
}  # fmt: skip


def _parquet(table: pa.Table, folder: Path) -> str:
    pa.parquet.write_table(table, folder / "t.parquet", row_group_size=3)
    return str(folder / "t.parquet")


NULLABLE = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}

SOURCES: dict[str, Callable[[pa.Table, Path], Any]] = {
    "pyarrow": lambda table, _: table,
    "pandas": lambda table, _: table.to_pandas(types_mapper=NULLABLE.get),
    "ArrowDtype": lambda table, _: table.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda table, _: pl.from_arrow(table),
    "LazyFrame": lambda table, _: pl.from_arrow(table).lazy(),  # type: ignore[union-attr]
    "DuckDB": lambda table, _: duckdb.from_arrow(table),
    "Parquet": _parquet,
}


def panel(source: Any, bounds: dict[str, Any] | None = None) -> dict[str, int]:
    """Of each unit's change its number of units, by the way of `did`."""
    declared = {"Y": (0, 1e6), "T": pc.Binary(), **(bounds or {})}
    formula = CausalFormula.parse("Y ~ T")
    with open_source(source) as opened:
        schema, periods = panel_of(
            formula, Schema(declared), opened.header.kinds, "id", "year", (0, 1), ()
        )
        trust = Trust(unit="id", panel=periods)
        rows = changes(opened.rows, Request(formula, schema, Budget(1.0), trust, estimand="ATT"))
        found = rows.column("Y", as_labels=False).numbers
        assert found is not None
        return {"rows": rows.size(), "changes": sorted(found.tolist())}  # type: ignore[dict-item]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", TYPES)
def test_a_panel_has_one_row_of_each_unit(kind: str, source: str, tmp_path: Path) -> None:
    """Every unit's change is its own number: none is missing, and none of two units' rows."""
    arrow, values = TYPES[kind]
    size = len(values)
    table = pa.table(
        {
            "id": pa.array([*values, None, *values[::-1], None], arrow),
            "year": pa.array([0.0] * (size + 1) + [1.0] * (size + 1)),
            "Y": pa.array([0.0] * (size + 1) + [float(k + 1) for k in reversed(range(size))] + [9]),
            "T": pa.array(np.zeros(2 * size + 2)),
        }
    )
    found = panel(SOURCES[source](table, tmp_path))
    assert found == {"rows": size, "changes": [float(k + 1) for k in range(size)]}


@pytest.mark.parametrize("number", [2**127 - 2, 1 - 2**127])
@pytest.mark.parametrize("kind", ["HUGEINT", "UHUGEINT", "UUID"])
def test_types_of_duckdb_alone(kind: str, number: int) -> None:
    """Whole numbers of 39 digits that differ in the last, and UUIDs."""
    if kind == "UUID":
        one, two = f"'{UUID(int=1)}'::UUID", f"'{UUID(int=2)}'::UUID"
    else:
        text = abs(number) if kind == "UHUGEINT" else number
        one, two = f"{text}::{kind}", f"({text}::{kind} + 1::{kind})"
    with duckdb.connect() as connection:
        query = f"""
            SELECT * FROM (VALUES ({one}, 0.0, 0.0, 0.0), ({one}, 1.0, 1.0, 0.0),
                                  ({two}, 0.0, 0.0, 0.0), ({two}, 1.0, 2.0, 0.0)) t(id, year, Y, T)
            """
        assert panel(connection.sql(query)) == {"rows": 2, "changes": [1.0, 2.0]}


@pytest.mark.parametrize("bounds", [{}, {"id": (0, 1)}, {"id": ["3", "a"]}])
def test_units_of_csv_are_what_is_written(bounds: dict[str, Any], tmp_path: Path) -> None:
    ids = ["3", "3.0", str(BIG), str(BIG + 1), "a"]
    frame = pd.DataFrame({"id": ids * 2, "year": [0] * 5 + [1] * 5, "T": 0})
    frame["Y"] = [0] * 5 + [1, 2, 3, 4, 5]
    frame.to_csv(tmp_path / "t.csv", index=False)
    with open_source(tmp_path / "t.csv") as opened:
        typed = opened.rows.typed(lambda _: Schema(bounds).label_columns(["id"]))
        found = typed.column("id", as_labels="units")
        assert found.labels == tuple(ids)


# -- one unit moves its own rows alone -------------------------------------------------------------

N = 40
BOUNDS: dict[str, Any] = {"Y": (0, 1)}


def moves(one: Any, two: Any, **options: Any) -> list[float]:
    """How far queries move, in their sensitivities, and that all else is alike."""
    made = {"bounds": BOUNDS, "unit": "id", "max_rows": 1, **options}
    fit, again, pairs = replayed(partial(pc.private, "Y ~ T", **made), one, two, 3)
    assert fit.estimate.size == again.estimate.size
    return [
        float(np.linalg.norm((a.exact - b.exact) * a.query.weights) / a.query.sensitivity)
        for a, b in pairs
    ]


def rows(ids: list[Any], replaced: bool) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    y, t = rng.integers(0, 2, len(ids)).astype(float), rng.integers(0, 2, len(ids)).astype(float)
    y[:2], t[:2] = (float(replaced), 1.0), 1.0
    return {"id": ids, "Y": y, "T": t}


NEARLY: dict[str, tuple[Any, Any, Any, Callable[[list[Any]], Any]]] = {
    "decimals": (Decimal(BIG), Decimal(BIG + 1), Decimal(7), objects),
    "bytes": (b"\x80\x01", b"\x81\x01", b"z", lambda ids: np.array(ids, "S8")),
    "objects": (b"\x80\x01", "�\x01", True, objects),
    "half a character": ("\udc80", "\\udc80", "z", lambda ids: np.array(ids, "U")),
    "quoted half": ("\udc80", "'\\udc80'", "z", objects),
    "long": (10**5000, 10**5000 + 1, 7, objects),
    "number and text": (1, "1", True, objects),
    "categories": (1, "1", "z", lambda ids: pd.Categorical(objects(ids), objects(ids))),
}  # fmt: skip


@pytest.mark.parametrize("kind", NEARLY)
@pytest.mark.parametrize("neighbors", ["substitute", "add_remove"])
def test_a_unit_moves_no_row_of_another(kind: str, neighbors: str) -> None:
    first, second, other, held = NEARLY[kind]
    rest = [f"u{k}" for k in range(N)]
    if kind in ("decimals", "long"):
        rest = list(map(type(first), range(100, 100 + N)))
    if kind == "bytes":
        rest = [text.encode() for text in rest]
    one = rows([first, second, *rest], replaced=False)
    if neighbors == "substitute":
        two = rows([other, second, *rest], replaced=True)
    else:
        two = {name: values[1:] for name, values in one.items()}
    one, two = ({**table, "id": held(list(table["id"]))} for table in (one, two))
    moved = moves(one, two, neighbors=neighbors)
    assert 0 < max(moved) <= 1 + 2**-40


def test_two_codes_with_one_text_are_two_units(tmp_path: Path) -> None:
    """Labels that are declared are for other columns' sake, and may be of this one by chance."""
    texts = {1: "North", 2: "North", 3: "South", **{k: f"c{k}" for k in range(4, 4 + N)}}
    files = []
    for replaced in (False, True):
        table = rows([3.0 if replaced else 1.0, 2.0, *map(float, range(4, 4 + N))], replaced)
        files.append(tmp_path / f"{replaced}.dta")
        pyreadstat.write_dta(pd.DataFrame(table), files[-1], variable_value_labels={"id": texts})
    declared = pc.declare_labels(files[0], ["id"], BOUNDS)
    assert 0 < max(moves(*files, bounds=declared)) <= 1 + 2**-40
    grouped = moves(*files, bounds=declared, groups=["id == 'North'"])
    assert max(grouped) <= 1 + 2**-40


# -- what no source can tell apart -----------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 40])
def test_a_decimal_that_is_read_as_a_float_names_no_unit(
    size: int, tmp_path: Path, unspent: Any
) -> None:
    """By its type, before anything is spent; as a covariate it is read as before."""
    ids = pa.array([Decimal(k) for k in range(size)], pa.decimal256(50, 0))
    half = np.arange(size) % 2 / 1.0
    table = pa.table({"id": ids, "Y": half, "T": half[::-1].copy()})
    file = _parquet(table, tmp_path)
    options: dict[str, Any] = {"bounds": BOUNDS, "unit": "id", "max_rows": 1, "ledger": unspent}
    with pytest.raises(DataError, match=r"Unit column 'id' is a decimal with more than 38 digits"):
        pc.private("Y ~ T", file, **options)
    if nw.from_native(table).schema["id"] == nw.Decimal:  # versions of narwhals that read it
        ends = pa.table({"id": pa.array([Decimal(10**45), Decimal(10**45 + 1)], ids.type)})
        assert len(unit_codes(nw.from_native(ends)["id"]).labels) == 2
    else:
        with pytest.raises(DataError, match="Column 'id' has a type that cannot be read"):
            pc.private("Y ~ T", table, **options)
    if size:
        bounds = {**BOUNDS, "id": (0, 40)}
        assert pc.private("Y ~ T | id", file, bounds=bounds).params.notna().all()


def test_labels_are_not_named_by_a_text_in_quotes() -> None:
    """Half a character is not its own escape in quotes, whichever row comes first."""
    values = ["'\\udc80'", "\udc80", "'\\udc80'"]
    for order in (values, values[1:]):
        codes, names = labels(open_frame({"x": objects(order)})["x"])
        assert [names[c] for c in codes.tolist()] == list(map(label_key, order))
    array = labels(open_frame({"x": np.array(values)})["x"])
    assert array[1] == ("'\\udc80'", "\\udc80")


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary"])
@pytest.mark.parametrize("as_labels", [True, "units"])
def test_bytes_that_are_no_text_name_a_label_of_their_own(kind: str, as_labels: Any) -> None:
    """In memory, and in the batches that DuckDB, polars and Spark give."""
    words = [b"a", b"\xffA", b"\xfeA", b"a", None, "\u00e9".encode(), b"\xffA"]
    text = pa.large_string() if kind == "large_string" else pa.string()
    array = pa.array(words, pa.binary()).cast(text, safe=False)
    array = array.dictionary_encode() if kind == "dictionary" else array
    held = memory.Memory(pa.table({"g": array})).column("g", as_labels=as_labels)
    for column in (held, stored.arrow_column(array, as_labels)):
        assert column.codes.tolist() == [0, 1, 2, 0, -1, 3, 1]
        assert (column.labels[0], column.labels[3]) == ("a", "\u00e9")
        assert all(name.encode() for name in column.labels)
