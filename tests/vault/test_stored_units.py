"""Rows of units in files: DuckDB ranks them, and counts the rows that count in memory."""

from __future__ import annotations

import itertools
import math
import signal
import tempfile
import tracemalloc
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from fit_helpers import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from vault_helpers import answers, interrupted, random_rows, saved, study, table
from vault_helpers import mechanisms as made_for

import privcausal as pc
from privcausal.errors import DataError
from privcausal.vault.batch import dealt, first_rows
from privcausal.vault.sources import stored
from privcausal.vault.sources.files import open_path, read_file
from privcausal.vault.sources.memory import Memory

SHARES, ENTROPY = (0.25, 0.5, 0.25), 2**100 + 9

NAMES: dict[str, tuple[Any, list[Any]]] = {
    "text": (pa.string(), ["a", "b", "", "ü,\"'", "3", "a\0b", "a\0c", "\x1fint 3", None]),
    "coded": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", None]),
    "whole": (pa.int64(), [0, -3, 2**53, 2**53 + 1, None]),
    "unsigned": (pa.uint64(), [0, 2**64 - 1, 2**64 - 2, None]),
    "double": (pa.float64(), [0.0, -0.0, 0.1, 3.0, math.nan, math.inf, None]),
    "single": (pa.float32(), [0.5, 0.1, math.nan, None]),
    "half": (pa.float16(), [np.float16(v) for v in (0.5, 0.1, math.nan)]),
    "bool": (pa.bool_(), [True, False, None]),
    "decimal": (pa.decimal128(9, 2), [Decimal("1.00"), Decimal("1.5"), None]),
    "long decimal": (
        pa.decimal128(38, 4),
        [Decimal(2**53), Decimal(2**53 + 1), Decimal(10**34 - 1), Decimal(10**34 - 2), None],
    ),
}
"""Arrow types of a column of names, and values of each."""


@st.composite
def columns(draw: Any) -> pa.Array:
    kind, values = NAMES[draw(st.sampled_from(sorted(NAMES)))]
    chosen = draw(st.lists(st.sampled_from(range(len(values))), min_size=1, max_size=30))
    return pa.array([values[k] for k in chosen], kind)


@contextmanager
def written(data: pa.Table, cuts: Sequence[int], group: int) -> Iterator[Path]:
    """The rows in several files, in row groups, some files empty."""
    ends = [0, *sorted(min(c, data.num_rows) for c in cuts), data.num_rows]
    with tempfile.TemporaryDirectory() as folder:
        for number, (start, stop) in enumerate(itertools.pairwise(ends)):
            file = Path(folder) / f"{number:02}.parquet"
            pa.parquet.write_table(data.slice(start, stop - start), file, row_group_size=group)
        yield Path(folder)


def dealt_parts(names: Sequence[str]) -> Any:
    return dealt(
        len(names), SHARES, neighbors="substitute", entropy=ENTROPY,
        units=np.arange(len(names)), names=names,
    )  # fmt: skip


def found_in(file: Any, most: int, block: int, of_units: Any = dealt_parts) -> tuple[Any, Any]:
    """Which rows count, and their parts, as DuckDB has it."""
    blocks = file.blocks([("pid", True)], block)
    seen = list(file.marks("pid", most, of_units).beside(blocks))
    assert [at.stop - at.start for at, *_ in seen] == [len(keep) for *_, keep, _ in seen]
    return np.concatenate([b[2] for b in seen]), np.concatenate([b[3] for b in seen])


def found_by(memory: Any, most: int) -> tuple[Any, Any]:
    """The same by the functions that rows in memory go through."""
    column = memory.column("pid", as_labels="units")
    part = dealt(
        memory.size(), SHARES, neighbors="substitute", entropy=ENTROPY,
        units=column.codes, names=column.labels,
    )  # fmt: skip
    return first_rows(column.codes, most), part


def assert_same(file: Any, memory: Any, most: int, block: int) -> None:
    (keep, part), (expected, where) = found_in(file, most, block), found_by(memory, most)
    assert np.array_equal(keep, expected)
    assert np.array_equal(part[keep], where[keep])
    assert file.units("pid") == len(memory.column("pid", as_labels="units").labels)
    whole = found_in(file, most, block, None)
    assert np.array_equal(whole[0], expected)
    assert not whole[1].any()


@pytest.mark.slow
@given(
    names=columns(),
    cuts=st.lists(st.integers(0, 30), max_size=3),
    group=st.integers(1, 9),
    stream=st.integers(1, 9),
    block=st.integers(1, 9),
    most=st.integers(1, 4),
)
@settings(max_examples=20, deadline=None)
def test_the_rows_that_count_are_those_of_memory(
    limits: Any, names: Any, cuts: list[int], group: int, stream: int, block: int, most: int
) -> None:
    """Whatever the type of the names, and however the rows are cut into files and batches."""
    data = pa.table({"pid": names})
    with written(data, cuts, group) as folder, limits(STREAM=stream):
        assert_same(open_path(folder), Memory(data), most, block)


@pytest.mark.slow
@given(
    names=st.lists(
        st.sampled_from(
            ["a", "3", "3.0", "03", str(2**53), str(2**53 + 1), "NA", "", "x y", "nan"]
        ),
        min_size=1,
    ),
    known=st.sampled_from([{"pid": frozenset(["3"])}, {"pid": frozenset()}, {}]),
    most=st.integers(1, 3),
)
@settings(max_examples=12, deadline=None)
def test_names_in_csv_are_those_that_are_written(names: list[str], known: Any, most: int) -> None:
    """Whatever is declared for the column, if anything; and some words mean that there is none."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "t.csv"
        pd.DataFrame({"pid": names, "x": 1}).to_csv(file, index=False)
        streamed = open_path(file).typed(lambda _: known)
        whole = read_file(file).typed(lambda _: known)
        assert_same(streamed, whole, most, 7)
        assert streamed.units("pid") == len(set(names) - {"NA", "", "nan"})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["whole", "text"])
def test_rows_of_many_row_groups_stay_in_order(kind: str, tmp_path: Path) -> None:
    """Read, ranked, sorted and written by several threads."""
    size = 200_000
    codes = np.random.default_rng(1).integers(0, 45_000, size)
    names = pa.array(codes) if kind == "whole" else pa.array(np.char.mod("u%d", codes).tolist())
    data = pa.table({"pid": names})
    pa.parquet.write_table(data, tmp_path / "t.parquet", row_group_size=15_000)
    assert_same(open_path(tmp_path / "t.parquet"), Memory(data), 3, 1 << 15)


def test_no_row_and_no_name(tmp_path: Path) -> None:
    for size in (0, 5):
        nobody = pa.table({"pid": pa.nulls(size, pa.string()), "x": pa.array(np.zeros(size))})
        pa.parquet.write_table(nobody, tmp_path / "t.parquet")
        file = open_path(tmp_path / "t.parquet")
        assert file.units("pid") == 0
        blocks = list(file.marks("pid", 1, dealt_parts).beside(file.blocks([("x", False)], 3)))
        assert not any(keep.any() for *_, keep, _ in blocks)


# -- the same numbers --------------------------------------------------------------------------

ROWS = random_rows(60, 4)
UNITS = [None if k % 11 == 0 else f"u{k * k % 17}" for k in range(60)]  # of one to ten rows
WANTED = {
    name: order
    for name, order in made_for(study("substitute")).items()
    if name in ("gram", "cross outcome", "sizes", "marginals", "squares, mean", "arm sums")
}


@st.composite
def interleavings(draw: Any) -> list[int]:
    """Places of the rows when units mix in another way, each with its own rows in their order."""
    turns = draw(st.permutations(UNITS))
    queues = {u: iter([k for k, v in enumerate(UNITS) if v == u]) for u in set(UNITS)}
    return [next(queues[u]) for u in turns]


@pytest.mark.slow
@given(
    order=interleavings(),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    group=st.integers(1, 40),
    block=st.integers(1, 40),
)
@settings(max_examples=8, deadline=None)
def test_sums_of_units_depend_on_no_partition(
    limits: Any, order: list[int], cuts: list[int], group: int, block: int
) -> None:
    """In memory and in files, however units mix, files are cut and blocks are read."""
    frame = table(ROWS, UNITS)
    mixed = frame.iloc[order].reset_index(drop=True)
    s = study("substitute", max_rows=2, unit="pid")

    def exact(data: Any) -> dict[str, list[int]]:
        return {name: a.exact.tolist() for name, a in answers(s, data, WANTED).items()}

    expected = exact(frame)
    assert expected != exact(frame[::-1])  # other rows are the first ones
    assert exact(mixed) == expected
    rows = pa.Table.from_pandas(mixed, preserve_index=False)
    small = limits(BATCH=block, KEEP_ROWS=0, STREAM=group)
    with written(rows, cuts, group) as folder, small:
        assert exact(folder) == expected


FORMULA = "Y ~ T | X1 + C(G) | X2"
BOUNDS: dict[str, Any] = {"Y": (-2, 6), "X1": (0, 10), "X2": (99, 100), "G": ["a", "b"]}


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "options",
    [
        {"learner": "r", "control": pc.Control(split="crossfit")},
        {"learner": "dr", "control": pc.Control(split="disjoint")}
        | {"base": "linear", "groups": ["G"]},
        {"learner": "adum", "formula": "Y ~ T | X1 + C(G)", "control": pc.Control(split="full")},
        {"bounds": None, "eps": 60.0, "control": pc.Control(shares={"bounds": 0.5})}
        | {"learner": "r"},
    ],
    ids=["crossfit", "disjoint", "adum", "bought"],
)
@pytest.mark.parametrize("neighbors", ["substitute", "add_remove"])
def test_every_byte_of_a_fit_by_units(
    options: dict[str, Any], neighbors: str, tmp_path: Path, limits: Any
) -> None:
    made = {"formula": FORMULA, "bounds": BOUNDS, "unit": "pid", "max_rows": 2} | options
    frame = table(random_rows(300, 5), [f"u{k * k % 113}" for k in range(300)])

    made["neighbors"] = neighbors
    expected = saved(tmp_path, pc.privcate, data=frame, **made)
    rows = pa.Table.from_pandas(frame, preserve_index=False)
    with written(rows, [100, 250], 50) as folder, limits(BATCH=97, KEEP_ROWS=0, STREAM=71):
        assert saved(tmp_path, pc.privcate, data=folder, **made) == expected


# -- what Python holds, and what is told -------------------------------------------------------


@pytest.mark.slow
def test_python_holds_no_more_for_more_rows_and_units(tmp_path: Path, limits: Any) -> None:
    """Names of 100,000 units would be some 10 MB of Python's."""
    most = []
    for size in (20_000, 200_000):
        names = pa.array([f"patient {k // 2}" for k in range(size)])
        pa.parquet.write_table(pa.table({"pid": names}), tmp_path / "t.parquet")
        del names
        file = open_path(tmp_path / "t.parquet")
        tracemalloc.start()
        try:
            with limits(STREAM=5_000):
                blocks = file.blocks([("pid", False)], 5_000)
                deque(file.marks("pid", 1, dealt_parts).beside(blocks), maxlen=0)
                assert file.units("pid") == size // 2
            most.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert most[1] < 1.5 * most[0] < 12e6


def rows_of_units(file: Path) -> Path:
    frame = table(random_rows(3_000, 2), [f"CANARY_{k // 3}" for k in range(3_000)])
    frame.to_parquet(file, row_group_size=500)
    return file


@pytest.mark.slow
def test_a_file_whose_names_cannot_be_read(tmp_path: Path, charged: Any) -> None:
    file = rows_of_units(tmp_path / "t.parquet")
    meta = pa.parquet.read_metadata(file)
    place = meta.row_group(3).column(meta.schema.names.index("pid")).data_page_offset
    whole = bytearray(file.read_bytes())
    whole[place : place + 200] = b"\xff" * 200
    file.write_bytes(bytes(whole))
    options: dict[str, Any] = {"unit": "pid", "max_rows": 1, "neighbors": "add_remove"}
    with refused(DataError, "could not be read and sorted by unit", "CANARY", 3000):
        pc.privcate("Y ~ T | X1", file, bounds=BOUNDS, ledger=charged, **options)


@pytest.mark.slow
@pytest.mark.parametrize("split", ["full", "disjoint"])
def test_ctrl_c_while_rows_are_ranked(
    split: str, tmp_path: Path, limits: Any, charged: Any
) -> None:
    """The signal itself, in the middle of the names; the next fit works."""
    file, number = rows_of_units(tmp_path / "t.parquet"), [0]
    stream = stored.Stored._stream

    def pressed(table: Any, names: Any) -> Any:
        for batch in stream(table, names):
            number[0] += 1
            if number[0] == 3:
                signal.raise_signal(signal.SIGINT)
            yield batch

    options: dict[str, Any] = {"unit": "pid", "max_rows": 1, "control": pc.Control(split=split)}
    options |= {"bounds": BOUNDS, "eps": 1, "ledger": charged}
    with limits(STREAM=500):
        with interrupted("vault.sources.stored.Stored._stream", pressed) as caught:
            pc.private("Y ~ T | X1", file, **options)
        assert caught.value.__context__ is None
        assert pc.private("Y ~ T | X1", file, **options).params.notna().all()


def test_units_of_a_categorical_column_are_those_that_occur() -> None:
    """A part of a table keeps the categories of the whole; nobody else is in it."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"Y": rng.random(80), "T": rng.integers(0, 2, 80)})
    frame["U"] = pd.Categorical.from_codes(np.arange(80) // 2, [f"u{i}" for i in range(500)])
    fit = pc.private("Y ~ T", frame, bounds={"Y": (0, 1)}, unit="U", max_rows=2)
    assert fit.estimate.size == 40
