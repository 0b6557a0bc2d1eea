"""A standing hunt: tables of any types, one row changed, and nothing outside may tell.

    python tests/privacy/hunt.py                  # 5,000 cases; prints what departs
    python tests/privacy/hunt.py --cases 200 --first 0    # those of the tests
    python tests/privacy/hunt.py --case 4711      # one case again, in words

A case is drawn by its number. Both tables are fitted, the second on the answers of the first. Some
end in an error, which both tables then have in common.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent))

from replay_helpers import WHO, Pair, check, same_look

import privcausal as pc

Rng = np.random.Generator
Cells = list[Any]
Table = dict[str, Cells]


# -- cells -------------------------------------------------------------------------------------

EXTREMES = (np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0, 0.0, 77310.4142, 2.0**53 + 2)
INSTANT = (
    datetime(2020, 1, 1, tzinfo=UTC),
    datetime(2020, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
)  # fmt: skip
ANY: tuple[Any, ...] = (
    True, False, np.True_, 1, 0, 1.0, -0.0, 2, 2.0, "1", "True", "a", "b", "", " a", "nan",
    None, np.nan, float("inf"), pd.NA, pd.NaT, Decimal("1"), Decimal("1.50"), Decimal("NaN"),
    Decimal("sNaN"), np.int8(1), np.float32(1.5), np.float64(0.5), Fraction(1, 2), 10**400, 2**64,
    b"a", bytearray(b"b"), "b\udc80", "é", "é", "x" * 200, 1j, [1], {"k": 1}, (1,), {1},
    frozenset({1}), object(), len, np.ones(2), date(2020, 1, 1), datetime(2020, 1, 1),
    datetime(2020, 1, 1, tzinfo=UTC),
    datetime(2020, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), pd.Timestamp("2020-01-01"),
    pd.Timedelta(1, "D"), np.datetime64("NaT"), np.timedelta64(1, "D"), pd.Period("2020"),
    pd.Interval(0, 1), UUID(int=1), type("Text", (str,), {"__str__": lambda self: "other"})("a"),
)  # fmt: skip
"""What a column of Python objects may hold."""


EQUAL: tuple[tuple[Any, ...], ...] = (
    (True, 1, 1, 1, 1.0, Decimal(1), "1"), (False, 0, 0, -0.0, Fraction(0), "0"),
    INSTANT,
)  # fmt: skip


def _number(rng: Rng) -> float:
    return float(rng.choice([rng.uniform(-1.2, 1.2), rng.integers(-1, 3), rng.normal() * 3]))


def _float(rng: Rng) -> Any:
    return float(rng.choice(EXTREMES)) if rng.random() < 0.1 else _number(rng)


def _whole(rng: Rng) -> Any:
    return int(rng.choice([-128, 127, 0, 1])) if rng.random() < 0.1 else int(rng.integers(0, 3))


def _natural(rng: Rng) -> Any:
    return int(rng.integers(0, 3))


def _huge(rng: Rng) -> Any:
    large = (2**53 + 1, 2**63 - 1, 2**64 - 1)[rng.integers(3)]
    return large if rng.random() < 0.1 else int(rng.integers(0, 3))


def _coin(rng: Rng) -> Any:
    return bool(rng.integers(2))


def _money(rng: Rng) -> Any:
    return Decimal(int(rng.integers(-150, 150))).scaleb(-2)


def _word(rng: Rng) -> Any:
    return str(rng.choice(["a", "b", "c", "1", "0", "True", "", "z", "é", "1.0", "nan"]))


def _day(rng: Rng) -> Any:
    return datetime(2020, 1, int(rng.integers(1, 28)))


def _object(rng: Rng) -> Any:
    draw = rng.random()
    if draw < 0.35:
        return str(rng.choice(["a", "b", "1", "0"]))
    if draw < 0.7:
        return [0, 1, 0.5, 1.0, True, False][rng.integers(6)]
    return ANY[rng.integers(len(ANY))]


LEVELS = pd.Index(
    ["a", "b", "1", "0", True, False, 0.5, 2.5, date(2020, 1, 1), Decimal("3.5"), "unused"],
    dtype=object,
)
"""Categories of several types."""


def _level(rng: Rng) -> Any:
    return LEVELS[rng.integers(len(LEVELS) - 1)]


@dataclass(frozen=True)
class Dtype:
    """A public type: how its cells are drawn, whether they may be missing, what can hold it."""

    name: str
    draw: Callable[[Rng], Any]
    missing: bool
    arrow: str | None = None
    """Arrow's type, where it has one."""
    pandas: str | None = None

    def cells(self, rng: Rng, size: int) -> Cells:
        rate = rng.choice([0.0, 0.05, 0.3]) if self.missing else 0.0
        return [None if rng.random() < rate else self.draw(rng) for _ in range(size)]


DTYPES = {
    d.name: d
    for d in (
        Dtype("float64", _float, True, "float64", "float64"),
        Dtype("float32", _number, True, "float32", "Float32"),
        Dtype("int64", _whole, False, "int64", "int64"),
        Dtype("int8", _whole, False, "int8", "int8"),
        Dtype("Int64", _whole, True, "int64", "Int64"),
        Dtype("UInt64", _huge, True, "uint64", "UInt64"),
        Dtype("bool", _coin, False, "bool", "bool"),
        Dtype("boolean", _coin, True, "bool", "boolean"),
        Dtype("decimal", _money, True, "decimal", None),
        Dtype("text", _word, True, "string", "str"),
        Dtype("string", _word, True, "large_string", "string"),
        Dtype("category", _word, True, "dictionary", "category"),
        Dtype("number category", _natural, True, None, "category"),
        Dtype("object category", _level, True, None, "object category"),
        Dtype("object", _object, True, None, "object"),
        Dtype("texts, then objects", _object, True, None, "object"),
        Dtype("date", _day, True, "timestamp", "datetime64[us]"),
        Dtype("zone", _day, True, "zone", None),
        Dtype("list", lambda rng: [int(rng.integers(3))], True, "list", None),
    )
}  # fmt: skip


def _words(unit: int) -> str:
    return f"{unit // 4}{('', '.0', 'e0', ' ')[unit % 4]}"


HALF = ("\udc80", "\\udc80", "'\\udc80'")
"""Half a character, and what is written for it."""

SEVERAL: tuple[Any, ...] = (
    1, "1", True, 1.0, Decimal(1), Fraction(1), b"1", bytearray(b"1"), *HALF, "\x1fint 1", 10**400,
    10**5000, Decimal(2**53), Decimal(2**53 + 1), 2**53, 2**53 + 1, b"\x80", b"\x81", "\ufffd",
    *INSTANT[:1], datetime(2020, 1, 1), pd.Timestamp(1), pd.Timestamp(2), date(2020, 1, 1),
    UUID(int=1), timedelta(1), pd.Period("2020", "Y-DEC"), pd.Period("2020", "Y-JUN"),
    "a\0b", "a\0c",
)  # fmt: skip
"""What one column of objects may have beside another, each of them another unit."""

UNIT_LEVELS = pd.Index([value for k in range(1200) for value in (k, str(k))], dtype=object)

UNITS: dict[str, tuple[Dtype, Callable[[int], Any]]] = {
    name: (Dtype(name, _whole, True, arrow, made), cell)
    for name, arrow, made, cell in (
        ("text", "string", "str", lambda k: f"u{k}"),
        ("category", "dictionary", "unit category", str),
        ("words of numbers", "large_string", "string", _words),
        ("Int64", "int64", "Int64", lambda k: 2**53 + k),
        ("UInt64", "uint64", "UInt64", lambda k: 2**64 - 1 - k),
        ("float64", "float64", "float64", lambda k: k / 2),
        ("long decimal", "long decimal", None, lambda k: Decimal(2**53 + k)),
        ("decimal", "decimal", None, lambda k: Decimal(k).scaleb(-2)),
        ("object", None, "object", lambda k: SEVERAL[k] if k < len(SEVERAL) else f"u{k}"),
        ("decimals", None, "object", lambda k: Decimal(2**53 + k)),
        ("bytes", None, "object", lambda k: b"%d" % (k // 2) + bytes([128 + k % 2])),
        ("half texts", None, "object", lambda k: HALF[k % 3] + f"{k // 3}"),
        ("long numbers", None, "object", lambda k: 10**5000 + k),
        ("instants", None, "object", lambda k: pd.Timestamp(k, tz="UTC")),
        ("several categories", None, "unit category", lambda k: UNIT_LEVELS[k]),
    )
}
"""Types of a column of units, and the value of each unit: no two have the same."""

WRITTEN = ("text", "words of numbers", "Int64", "long decimal", "long decimal")
"""Those that a file of texts tells apart."""

NUMBERS = (
    "float64", "float64", "float64", "float32", "int64", "Int64", "UInt64", "int8", "bool",
    "boolean", "decimal", "object", "texts, then objects",
)  # fmt: skip
LABELS = (
    "text", "text", "string", "category", "number category", "object category", "object",
    *["texts, then objects"] * 5, "int64", "boolean", "decimal", "float64",
)  # fmt: skip
RARELY = ("date", "zone", "list", "text")
"""What a column of numbers should not be; mostly it is refused before rows are read."""


def cells_of(dtype: Dtype, rng: Rng, size: int) -> Cells:
    cells = dtype.cells(rng, size)
    if dtype.name == "texts, then objects":
        # libraries look at the first hundred values, or so, and think that they have seen all
        texts = int(rng.choice([0, 1, 99, 100, 101, 110]))
        cells[:texts] = [str(rng.choice(["a", "b", "1"])) for _ in cells[:texts]]
        if rng.random() < 0.7:  # what is equal to a hash table, and no more alike than that
            alike = EQUAL[rng.integers(len(EQUAL))]
            cells[texts:] = [alike[rng.integers(len(alike))] for _ in cells[texts:]]
    return cells


# -- sources -----------------------------------------------------------------------------------


def _pandas_column(dtype: Dtype, cells: Cells) -> pd.Series:
    made = dtype.pandas
    if made is None:
        return pd.Series(pd.arrays.ArrowExtensionArray(_chunked(dtype, cells)))
    if made == "category":
        known = ["a", "b", "c", "1", "0", "True", "", "z", "é", "1.0", "nan", "never seen"]
        levels: list[Any] = known if dtype.name == "category" else [2, 1, 0, 7]
        codes = [-1 if v is None else levels.index(v) for v in cells]
        return pd.Series(pd.Categorical.from_codes(codes, levels))
    if made == "unit category":
        codes = [-1 if v is None else UNIT_LEVELS.get_loc(v) for v in cells]
        return pd.Series(pd.Categorical.from_codes(codes, UNIT_LEVELS))
    if made == "object category":
        at = {id(level): code for code, level in enumerate(LEVELS)}
        return pd.Series(pd.Categorical.from_codes([at.get(id(v), -1) for v in cells], LEVELS))
    if made == "object":
        column = pd.Series([None] * len(cells), dtype=object)
        for at, value in enumerate(cells):
            column.iat[at] = value
        return column
    if made == "float64":
        return pd.Series([np.nan if v is None else v for v in cells], dtype=made)
    return pd.Series(pd.array(cells, dtype=made))


def _arrow_type(name: str) -> Any:
    import pyarrow as pa

    made = {
        "decimal": pa.decimal128(12, 2), "long decimal": pa.decimal128(38, 0),
        "dictionary": pa.dictionary(pa.int32(), pa.string()),
        "timestamp": pa.timestamp("us"), "zone": pa.timestamp("us", "Europe/Berlin"),
        "list": pa.list_(pa.int64()), "bool": pa.bool_(),
    }  # fmt: skip
    return made.get(name) or getattr(pa, name)()


def _chunked(dtype: Dtype, cells: Cells) -> Any:
    import pyarrow as pa

    return pa.chunked_array([pa.array(cells, _arrow_type(str(dtype.arrow)))])


def to_pandas(types: dict[str, Dtype], table: Table) -> pd.DataFrame:
    return pd.DataFrame({name: _pandas_column(types[name], c) for name, c in table.items()})


def to_dict(types: dict[str, Dtype], table: Table) -> dict[str, Any]:
    frame = to_pandas(types, table)
    return {name: frame[name].to_numpy() if types[name].pandas == "object" else frame[name].array
            for name in table}  # fmt: skip


def to_arrow(types: dict[str, Dtype], table: Table) -> Any:
    import pyarrow as pa

    return pa.table({name: _chunked(types[name], cells) for name, cells in table.items()})


def to_polars(types: dict[str, Dtype], table: Table) -> Any:
    import polars as pl

    columns = {}
    for name, cells in table.items():
        if types[name].arrow is None:
            columns[name] = pl.Series(name, cells, dtype=pl.Object)
        else:
            columns[name] = pl.Series(name, pl.from_arrow(_chunked(types[name], cells)))
    return pl.DataFrame(columns)


def to_dict_of_polars(types: dict[str, Dtype], table: Table) -> dict[str, Any]:
    frame = to_polars(types, table)
    return {name: frame[name] for name in frame.columns}


def to_lazy(types: dict[str, Dtype], table: Table) -> Any:
    return to_polars(types, table).lazy()


def to_relation(types: dict[str, Dtype], table: Table) -> Any:
    import duckdb

    return duckdb.from_arrow(to_arrow(types, table))


def to_parquet(types: dict[str, Dtype], table: Table) -> str:
    import pyarrow.parquet

    path = Path(tempfile.mkdtemp(dir=_FOLDER.name)) / "rows.parquet"
    pyarrow.parquet.write_table(to_arrow(types, table), path, row_group_size=37)
    return str(path)


def to_csv(types: dict[str, Dtype], table: Table) -> str:
    path = Path(tempfile.mkdtemp(dir=_FOLDER.name)) / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    return str(path)


def _as_word(cell: Any) -> str | None:
    """A cell as a file of texts has it; None where that is read as missing."""
    word = "" if cell is None else str(cell).encode("utf-8", "backslashreplace").decode("utf-8")
    return None if word in ("", "nan", "NaN", "NA", "None", "null") else word


_FOLDER = tempfile.TemporaryDirectory(prefix="hunt")

SOURCES: dict[str, Callable[[dict[str, Dtype], Table], Any]] = {
    "pandas": to_pandas, "dict": to_dict, "pyarrow": to_arrow, "polars": to_polars,
    "dict of polars": to_dict_of_polars, "LazyFrame": to_lazy, "DuckDB": to_relation,
    "Parquet": to_parquet, "CSV": to_csv,
}  # fmt: skip
TYPED = ("pyarrow", "LazyFrame", "DuckDB", "Parquet")
"""Sources without Python's objects."""


# -- sizes of blocks -----------------------------------------------------------------------------

SIZES: dict[str, tuple[int, ...]] = {
    "privcausal.features.functions.SMALL_PRODUCT": (4, 32, 1 << 10),
    "privcausal.features.functions.FEW_ROWS": (0, 8),
    "privcausal.features.functions.PART": (8, 1 << 13),
    "privcausal.vault.passes.BATCH": (16, 1 << 15),
    "privcausal.vault.passes.KEEP_ROWS": (0, 1 << 18),
    "privcausal.vault.passes.KEEP_HELD": (0, 1 << 20),
    "privcausal.vault.passes.KEEP_VALUES": (0, 1 << 24),
    "privcausal.vault.passes.KEEP_NUMBERS": (0, 1 << 25), "privcausal.vault.passes.THREADS": (1, 3),
    "privcausal.vault.sources.stored.STREAM": (16, 1 << 17),
}  # fmt: skip
"""Where the number of rows makes a difference to how they are worked on, and to nothing else."""


@contextlib.contextmanager
def any_sizes(rng: Rng) -> Iterator[Callable[[], None]]:
    """Gives a function that draws all sizes; afterwards they are what they were."""
    with contextlib.ExitStack() as kept:
        for name in SIZES:
            kept.enter_context(mock.patch(name))
        yield lambda: _draw_sizes(rng)


def _draw_sizes(rng: Rng) -> None:
    for name, sizes in SIZES.items():
        module, _, constant = name.rpartition(".")
        setattr(importlib.import_module(module), constant, sizes[rng.integers(len(sizes))])


# -- calls -------------------------------------------------------------------------------------


def _bases(name: str) -> Any:
    return {
        "dpebm": lambda: pc.bases.DPEBM(rounds=10), "kernel": lambda: pc.bases.Kernel(functions=20),
        "nn": lambda: pc.bases.NN(epochs=1),
    }.get(name, lambda: name)()  # fmt: skip


LEARNERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("private", {}), ("private", {}), ("private", {"estimand": "ATT"}), ("trial", {}),
    ("trial", {"propensity": "P"}), ("private", {"formula": "Y ~ T | 1 | X1 + C(G)"}),
    ("r", {"formula": "Y ~ T | 1 | X1 + X2", "base": "linear"}),
    ("private", {"estimand": "ATO", "base": "linear"}), ("private", {"propensity": "P"}),
    ("r", {"base": "linear"}), ("r", {}), ("dr", {"base": "linear"}), ("s", {"base": "linear"}),
    ("t", {"base": "linear"}), ("x", {"base": "linear"}), ("adum", {}),
    ("adum", {"noise": "gaussian"}), ("tm", {}), ("s", {"base": "dpebm"}),
    ("dr", {"base": "dpebm"}), ("dpcate", {"base": "kernel"}),
    ("dpcate", {"base": "nn", "neighbors": "substitute"}),
    ("regress", {"formula": "Y ~ X1 + C(G)"}),
    ("regress", {"formula": "Y ~ X1:X2", "weights": "P"}),
)  # fmt: skip

FORMULAS = (
    "Y ~ T | X1 + C(G)", "Y ~ T | X1 + C(G)", "Y ~ T | C(G)", "Y ~ T | X1", "Y ~ T | X1 | X2 + G",
    "Y ~ T | X1 + X2 + C(G)", "Y ~ T | X1:C(G) + X2", "Y ~ T | np.exp(X1) + X2",
)  # fmt: skip


CHANGES: tuple[dict[str, Any], ...] = (
    {"formula": "Y ~ T"}, {"formula": "Y ~ T | X1 + C(G)", "base": "linear"},
)  # fmt: skip
"""Calls of `did`."""


@dataclass(frozen=True)
class Case:
    """One call and two neighbouring tables, by the number that draws them."""

    number: int
    source: str
    types: dict[str, Dtype]
    call: dict[str, Any]
    one: Table
    two: Table
    look: str | None

    @property
    def words(self) -> str:
        types = {name: d.name for name, d in self.types.items()}
        return f"case {self.number}: {self.source}, {types}, {self.call}, look {self.look}"


def draw(number: int) -> Case:
    """The case of this number."""
    rng, own = (np.random.default_rng([20_261_122, number, *more]) for more in ((), (1,)))
    source = str(rng.choice(list(SOURCES)))
    types = {name: _type(rng, name, source) for name in ("Y", "T", "X1", "X2", "G", "P")}
    types |= {name: _type(own, name, source) for name in ("W", "U")}
    call = _call(rng, own, source)
    if call["learner"] == "did":
        types["T"] = DTYPES["float64"]
    size = int(rng.choice([1, 2, 12, 40, 130]))
    if types["G"].name == "texts, then objects" and rng.random() < 0.8:
        size = 130
    one = {name: cells_of(dtype, rng, size) for name, dtype in types.items()}
    one[WHO] = [i // 2 if rng.random() < 0.95 else None for i in range(size)]
    one["W"] = [i % 2 for i in range(size)]  # the periods of a unit's two rows
    if call["learner"] == "did":  # in the first of which few are treated
        one["T"][::2] = [0.0 if own.random() < 0.95 else 1.0 for _ in one["T"][::2]]
    two = _neighbour(rng, own, types, one, call)
    for table in (one, two):
        named = UNITS[types["U"].name][1]
        table["U"] = [None if unit is None else named(unit) for unit in table[WHO]]
    if source == "CSV":
        one, two = (
            {n: cells if n == WHO else [*map(_as_word, cells)] for n, cells in t.items()}
            for t in (one, two)
        )
    if rng.random() < 0.5:  # what is added may also be what leaves
        one, two = two, one
    look = [None, None, "overlap", "balance"][rng.integers(4)]
    return Case(number, source, types, call, one, two, look)


def _type(rng: Rng, name: str, source: str) -> Dtype:
    if name == "U":
        known = [n for n, (made, _) in UNITS.items() if made.arrow or source not in TYPED]
        return UNITS[str(rng.choice(WRITTEN if source == "CSV" else known))][0]
    if name == "W":
        return DTYPES["float64"]
    choice = LABELS if name == "G" else NUMBERS
    if rng.random() < 0.03:
        choice = RARELY
    if name == "P":
        choice = ("float64", "float32")
    found = DTYPES[str(rng.choice(choice))]
    if found.arrow is None and source in TYPED:
        return DTYPES["text" if name == "G" else "float64"]
    return found


def _call(rng: Rng, own: Rng, source: str) -> dict[str, Any]:
    learner, options = LEARNERS[rng.integers(len(LEARNERS))]
    if own.random() < 0.08:
        learner, options = "did", CHANGES[own.integers(2)]
    call: dict[str, Any] = {"learner": learner, **options}
    if "base" in call:
        call["base"] = _bases(call["base"])
    if "noise" in call:
        del call["noise"]
        call["learner"] = pc.learners.ADUM(noise="gaussian")
    call.setdefault("formula", str(rng.choice(FORMULAS)))
    if learner == "trial":
        call |= {"learner": "private", "formula": "Y ~ T"}
    call.setdefault("neighbors", str(rng.choice(["substitute", "add_remove"])))
    call["eps"] = float(rng.choice([4.0, 400.0]))
    call["bounds"] = _bounds(rng)
    if source == "CSV":  # otherwise refused: a file of texts does not show the labels
        call["bounds"].setdefault("T", [0, 1])
    if learner in ("private", "r", "s") and rng.random() < 0.3:
        call["split"] = str(rng.choice(["disjoint", "crossfit"]))
    if rng.random() < 0.25 or learner == "did" or own.random() < 0.2:
        call |= {"unit": "U", "max_rows": int(own.choice([1, 2]))}
        if learner == "did":
            del call["max_rows"]
            call |= {"time": "W", "periods": (0, 1)}
        if source == "CSV" and own.random() < 0.5:  # what is declared says nothing of units
            call["bounds"]["U"] = [(0, 1), ["0", "1"]][own.integers(2)]
    if learner == "private" and rng.random() < 0.3:
        call["groups"] = [["X1 >= 0"], ["G == 'a'"], ["G"]][rng.integers(3)]
    return call


def _bounds(rng: Rng) -> dict[str, Any]:
    """Mostly declared; what is left out is bought."""
    declared: dict[str, Any] = {
        "Y": [(-1, 1), (0, 1), (-1, 1)][rng.integers(3)], "X1": (-1, 1), "X2": (0, 2),
        "G": [["1", "True"], pc.Levels(["a", "1"], other=True), ["a", "1", "0"]][rng.integers(3)],
        "P": (0.2, 0.8),
    }  # fmt: skip
    if rng.random() < 0.3:
        declared["T"] = [["0", "1"], ["a", "b"], ["False", "True"]][rng.integers(3)]
    for name in ("Y", "X1", "X2", "G"):
        if rng.random() < 0.12:
            del declared[name]
    return declared


def _neighbour(
    rng: Rng, own: Rng, types: dict[str, Dtype], one: Table, call: dict[str, Any]
) -> Table:
    """The table with the cells of one unit's rows drawn anew, or with its rows gone."""
    size = len(one["Y"])
    # parts of the rows go by position where there are no units: then only the last row may leave
    fixed = call.get("split", "full") != "full"
    at = size - 1 if fixed else int(rng.integers(size))
    turns = [i for i, cell in enumerate(one["G"]) if not isinstance(cell, str)]
    if turns and not fixed and rng.random() < 0.7:
        at = turns[0]  # the first of another type
    if call.get("unit") == "U" and not fixed and own.random() < 0.5:
        at = 0  # of units that are taken for one, the first has the rows that count
    rows = [at]
    if call.get("unit") == "U" and one[WHO][at] is not None:
        rows = [i for i in range(size) if one[WHO][i] == one[WHO][at]]
    if call["neighbors"] == "add_remove":
        return {name: [v for i, v in enumerate(c) if i not in rows] for name, c in one.items()}
    two = {name: list(cells) for name, cells in one.items()}
    if not fixed and one[WHO][at] is not None and own.random() < 0.5:
        new = size + int(own.integers(50))  # a unit that is not in the table comes in its place
        for i in rows:
            two[WHO][i] = new
    for name in ("Y", "T", "X1", "X2", "G", "P"):
        for i in rows:
            if rng.random() < 0.8:
                two[name][i] = cells_of(types[name], rng, 1)[0]
                if types[name].name == "texts, then objects":
                    alike = EQUAL[rng.integers(len(EQUAL))]
                    draws = (_object(rng), alike[0], alike[1])
                    two[name][i] = draws[rng.integers(len(draws))]
    return two


DEPARTED = "DEPARTED"

LATER = 100_000
"""Numbers from here on are for the command: those of the tests were looked at while it was made."""


# -- the hunt ----------------------------------------------------------------------------------


def hunted(number: int) -> str:
    """What became of a case: "fitted" or the shared error; AssertionError if the tables differ."""
    case = draw(number)
    with warnings.catch_warnings(), any_sizes(np.random.default_rng(number)) as drawn:
        warnings.simplefilter("ignore")

        def held(table: Table) -> Any:
            drawn()
            return SOURCES[case.source](case.types, {n: table[n] for n in case.types})

        pair = Pair(case.words, case.call, case.one, case.two, held=held)
        found = check(pair, refusable=True)
        if found.error is None and case.look is not None:
            same_look(pair, found.fit, case.look)
    return found.error or "fitted"


def _outcome(number: int) -> tuple[int, str, str]:
    try:
        return number, hunted(number), ""
    except Exception:
        return number, DEPARTED, traceback.format_exc()


def hunt(numbers: Sequence[int], processes: int = 1) -> Iterator[tuple[int, str, str]]:
    """Number, outcome and traceback of each case."""
    if processes == 1:
        yield from map(_outcome, numbers)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(_outcome, numbers, chunksize=20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--first", type=int, default=LATER)
    parser.add_argument("--case", type=int)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    if asked.case is not None:
        print(draw(asked.case).words)
        print(hunted(asked.case))
        return
    told: Counter[str] = Counter()
    for number, outcome, trace in hunt(
        range(asked.first, asked.first + asked.cases), asked.processes
    ):
        told[outcome] += 1
        if trace:
            print(f"case {number} departed\n{trace}", flush=True)
    for outcome, count in told.most_common():
        print(f"{count:6} {outcome}")
    sys.exit(bool(told[DEPARTED]))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
