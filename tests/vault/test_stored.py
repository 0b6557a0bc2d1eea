"""Tables in files and DuckDB relations: the numbers of memory to the bit, errors without rows."""

from __future__ import annotations

import gzip
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fit_helpers import refused
from vault_helpers import saved

import privcausal as pc
from privcausal.errors import DataError
from privcausal.features.functions import Sum
from privcausal.vault.sources import stored
from privcausal.vault.sources.files import open_path, open_relation, read_file
from privcausal.vault.sources.memory import Memory

FORMULA = "Y ~ T | X + C(G) + B | Z"
BOUNDS: dict[str, Any] = {"Y": (-2, 3), "X": (-1, 1), "Z": (0, 9), "G": ["a", "b", "ü,\"'"]}
N = 700
CANARY = 77310.4142


def study() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    columns = {"Y": rng.normal(0, 1, N), "T": rng.integers(0, 2, N)}
    columns["X"] = rng.uniform(-1.2, 1.2, N).astype(np.float32)
    columns["G"] = rng.choice(["a", "b", "ü,\"'", "new"], N).astype(object)
    columns |= {"B": rng.random(N) < 0.3, "Z": rng.integers(0, 10, N).astype(float)}
    columns |= {"unused": pd.Timestamp("2020-01-01"), "pid": [f"u{i // 3}" for i in range(N)]}
    frame = pd.DataFrame(columns)
    frame.loc[3, "X"], frame.loc[4, "Y"], frame.loc[5, "G"] = np.nan, np.nan, None
    frame.loc[6, "Y"], frame.loc[8, "X"], frame.loc[9, "Z"] = CANARY, np.inf, -np.inf
    return frame


def places(folder: Path) -> dict[str, Any]:
    """The study as stored in every way."""
    frame = study()
    parts = folder / "parts"
    parts.mkdir()
    frame.to_parquet(folder / "one.parquet")
    frame.to_csv(folder / "one.csv", index=False)
    frame[:300].to_parquet(parts / "a.parquet")
    frame[300:].to_parquet(parts / "b.parquet", row_group_size=50)
    return {
        "parquet": str(folder / "one.parquet"),
        "path": folder / "one.parquet",
        "folder": parts,
        "pattern": str(parts / "*.parquet"),
        "csv": folder / "one.csv",
        "relation": duckdb.sql(f"FROM '{folder / 'one.parquet'}'"),
    }


def document(table: Any, folder: Path, **options: Any) -> bytes:
    return saved(folder, pc.privcate, FORMULA, table, **{"bounds": BOUNDS} | options)


@pytest.mark.slow
@pytest.mark.sample(5)
@pytest.mark.parametrize("learner", ["r", "dr", "s", "t", "x"])
def test_same_numbers_as_memory(learner: str, tmp_path: Path, limits: Any) -> None:
    """Every byte of the saved fit, whatever the batches."""
    kept = places(tmp_path)
    options = {"learner": learner, "groups": ["G", "X >= 0"]}
    options["base"] = "gam" if learner in ("r", "s") else "linear"
    expected = document(study(), tmp_path, **options)
    with limits(BATCH=97, KEEP_ROWS=0, STREAM=211):
        for kind in ("parquet", "path", "folder", "pattern", "relation"):
            assert document(kept[kind], tmp_path, **options) == expected, kind


@pytest.mark.slow
def test_csv_has_the_numbers_of_csv_in_memory(tmp_path: Path, limits: Any) -> None:
    """Types are what formula and bounds say: labels for G and the unit, else numbers."""
    file = places(tmp_path)["csv"]
    bounds = BOUNDS | {"T": [0, 1], "B": [0, 1]}
    options = {"unit": "pid", "max_rows": 2, "base": "linear", "bounds": bounds}
    expected = document(read_file(file), tmp_path, **options)
    with limits(STREAM=211):
        assert document(file, tmp_path, **options) == expected


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "options",
    [
        {"control": pc.Control(split="disjoint")},
        {"control": pc.Control(split="crossfit"), "neighbors": "add_remove"},
        {"unit": "pid", "max_rows": 2, "base": "linear", "control": pc.Control(split="disjoint")},
        {"bounds": None, "eps": 30.0, "control": pc.Control(shares={"bounds": 0.5})},
    ],
)
def test_same_numbers_with_parts_units_and_bought_bounds(options: Any, tmp_path: Path) -> None:
    kept = places(tmp_path)
    expected = document(study(), tmp_path, **options)
    for kind in ("parquet", "folder"):
        assert document(kept[kind], tmp_path, **options) == expected, kind


@pytest.mark.slow
@pytest.mark.parametrize("split", ["full", "crossfit"])
def test_functions_are_remembered_where_rows_come_in_one_order(
    split: str, tmp_path: Path, limits: Any
) -> None:
    """The same bytes with fewer evaluations; a relation, which promises no order, has them all."""
    kept, plain, control = places(tmp_path), Sum.__call__, pc.Control(split=split)

    def fitted(kind: str, most: int) -> tuple[bytes, int]:
        counting = mock.patch.object(Sum, "__call__", autospec=True, side_effect=plain)
        with limits(BATCH=97, KEEP_ROWS=0, KEEP_VALUES=most), counting as counted:
            return document(kept[kind], tmp_path, control=control), counted.call_count

    (expected, most), (found, fewer) = fitted("parquet", 0), fitted("parquet", N)
    assert found == expected
    assert fewer < 0.8 * most
    if split == "full":
        assert fitted("relation", N) == (expected, most)


def test_columns_of_every_type_are_those_of_memory(tmp_path: Path) -> None:
    table = pa.table(
        {
            "int8": pa.array([1, None, -3], pa.int8()),
            "uint64": pa.array([2**64 - 1, 2**53 + 1, None], pa.uint64()),
            "int64": pa.array([2**53 + 1, -1, None], pa.int64()),
            "float": pa.array([0.1, None, float("nan")], pa.float32()),
            "double": pa.array([-0.0, float("inf"), 5e-324]),
            "bool": pa.array([True, None, False]),
            "decimal": pa.array([1, None, 3], pa.decimal128(9, 2)),
            "text": pa.array(["3", None, ""]),
            "coded": pa.array(["b", "a", None]).dictionary_encode(),
        }
    )
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    file, memory = open_path(tmp_path / "t.parquet"), Memory(table)
    assert file.header.kinds == memory.header.kinds
    for name in table.column_names:
        one, two = (t.column(name, as_labels=True) for t in (file, memory))
        texts = [[c.labels[k] if k >= 0 else None for k in c.codes] for c in (one, two)]
        assert texts[0] == texts[1], name
        one, two = (t.column(name, as_labels=False) for t in (file, memory))
        assert np.array_equal(one.numbers, two.numbers, equal_nan=True), name


def test_only_the_columns_asked_for_are_read(tmp_path: Path) -> None:
    """A relation whose other column fails as soon as it is read."""
    relation = duckdb.sql("SELECT range AS x, error('read') AS y FROM range(3)")
    rows = open_relation(relation.project("x, y"))
    assert rows.column("x", as_labels=False).numbers.tolist() == [0, 1, 2]
    with pytest.raises(DataError, match="Not all rows could be read"):
        rows.column("y", as_labels=False)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.csv", gzip.compress(b"X,Y,T\n1,2,0\n"), "must be uncompressed UTF-8"),
        ("t.csv", b"X,Y,T,x\n1,2,0,4\n", "differ only in upper and lower case"),
        ("t.parquet", {"Z": "x"}, "differ only in upper and lower case"),
        ("Z=1", {}, "'Z' is not a column. It is in the names of the folders"),
    ],
    ids=["packed", "twins in csv", "twins", "a hive folder"],
)
def test_a_bad_file_is_refused_before_anything_is_spent(
    name: str, content: Any, words: str, tmp_path: Path, unspent: Any
) -> None:
    """Beside the files of `wrong_calls.py`."""
    (tmp_path / "files").mkdir()
    place = tmp_path / "files" / name
    if isinstance(content, bytes):
        place.write_bytes(content)
    elif content:
        study().rename(columns=content).to_parquet(place)
    else:
        study().assign(Z=1).drop(columns="unused").to_parquet(place.parent, partition_cols=["Z"])
    with refused(pc.PrivcausalError, words, CANARY):
        pc.privcate(FORMULA, place.parent, bounds=BOUNDS, ledger=unspent)


def test_paths_with_quotes_and_letters_of_any_kind(tmp_path: Path) -> None:
    for name in ("it's ünï ☃; DROP.parquet", 'two "words".parquet', "per%20cent.parquet"):
        study().to_parquet(tmp_path / name)
        assert open_path(tmp_path / name).size() == N


def test_what_is_being_written_is_not_of_the_folder(tmp_path: Path) -> None:
    """Spark's and Hive's rule; and a folder whose own name looks like a file's is no file."""
    for place in (
        "rows/part-0.parquet", "rows/more.parquet/part-1.parquet",
        "rows/_temporary/0/part-0.parquet", "rows/.ipynb_checkpoints/part-0.parquet",
        "rows/.part-0.parquet", "rows/_metadata.parquet",
    ):  # fmt: skip
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        study().to_parquet(tmp_path / place)
    assert open_path(tmp_path / "rows").size() == 2 * N


def test_columns_of_files_are_matched_by_name(tmp_path: Path) -> None:
    frame = study()
    frame[:300].to_parquet(tmp_path / "a.parquet")
    frame[300:][frame.columns[::-1]].assign(more=1).to_parquet(tmp_path / "b.parquet")
    found = open_path(tmp_path).column("X", as_labels=False).numbers
    assert np.array_equal(found, frame["X"].to_numpy(np.float64), equal_nan=True)


def test_a_file_that_breaks_midway_stays_paid_for(tmp_path: Path, charged: Any) -> None:
    file = tmp_path / "t.parquet"
    study().to_parquet(file, row_group_size=100)
    whole = bytearray(file.read_bytes())
    whole[4:2000] = b"\xff" * 1996  # the pages of the first rows; the index at the end is whole
    file.write_bytes(bytes(whole))
    with refused(DataError, "Not all rows could be read"):
        pc.privcate(FORMULA, file, bounds=BOUNDS, ledger=charged)


def test_the_curator_sees_the_same_in_a_file(tmp_path: Path) -> None:
    tables, wanted = (
        (places(tmp_path)["parquet"], study()),
        ["column", "problem", "rows", "examples"],
    )
    found, expected = (pc.check_data(table, bounds=BOUNDS).frame[wanted] for table in tables)
    pd.testing.assert_frame_equal(found, expected)


def test_rows_are_never_spilled_to_a_folder() -> None:
    """DuckDB's own default is a folder beside whatever is run."""
    with ExitStack() as opened:
        setting = "SELECT current_setting('temp_directory')"
        (found,) = stored.database(opened).execute(setting).fetchone()
    assert not found
