"""What a fit opens is closed when it ends, however it ends; and stops of any kind tell nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from fit_helpers import refused
from polars.exceptions import PanicException

import privcausal as pc
from privcausal.errors import DataError, PrivcausalError
from privcausal.vault import Vault

N, CANARY = 400, "Alice Example"
STEP = "vault.queries.moments.Marginals.integers"
FORMULA, BOUNDS = "Y ~ T | X", {"Y": (0, 1), "X": (0, 1), "T": [0, 1]}


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    columns = {"Y": rng.random(N), "T": rng.integers(0, 2, N), "X": rng.random(N)}
    return pd.DataFrame(columns | {"pid": np.arange(N) // 2})


@pytest.fixture
def opened(monkeypatch: Any) -> list[Any]:
    """Every connection that is opened, cursors left out: those go with their connection."""
    made: list[Any] = []
    connect = duckdb.connect

    def recorded(*args: Any, **options: Any) -> Any:
        made.append(connect(*args, **options))
        return made[-1]

    monkeypatch.setattr(duckdb, "connect", recorded)
    return made


def closed(connection: Any) -> bool:
    try:
        connection.execute("SELECT 1")
    except duckdb.ConnectionException:
        return True
    return False


def fit(file: Path, learner: str = "dr") -> Any:
    return pc.privcate(FORMULA, file, bounds=BOUNDS, learner=learner)


def without(file: Path, column: str) -> Path:
    """Another file of the same kind, which lacks a column."""
    return written(file.parent, file.suffix[1:], rows().drop(columns=column))


UNIT = {"unit": "pid", "max_rows": 2}
CALLS: dict[str, Callable[[Path], Any]] = {
    "rows": lambda file: pc.private(FORMULA, file, bounds=BOUNDS),
    "bounds that are bought": lambda file: pc.private(FORMULA, file, eps=80, bounds={"T": [0, 1]}),
    "units": lambda file: pc.private(FORMULA, file, bounds=BOUNDS, **UNIT),
    "units in parts": lambda file: pc.private(
        FORMULA, file, bounds=BOUNDS, control=pc.Control(split="disjoint"), **UNIT
    ),
    "effects": lambda file: pc.privcate(FORMULA, file, bounds=BOUNDS, **UNIT),
    "cells": lambda file: fit(file, "adum"),
    "the curator": lambda file: pc.check_data(file, bounds=BOUNDS),
    "looks": lambda file: fit(file).overlap(file, eps=1),
    "uplift": lambda file: fit(file, "adum").uplift(file, eps=1),
}
REFUSED: dict[str, Callable[[Path], Any]] = {
    "formula": lambda file: pc.private("Y ~ Z | X", file, bounds=BOUNDS),
    "budget": lambda file: pc.private(FORMULA, file, bounds=BOUNDS, eps=-1),
    "unit": lambda file: pc.private(FORMULA, file, bounds=BOUNDS, unit="nobody", max_rows=1),
    "base": lambda file: pc.privcate(FORMULA, file, bounds=BOUNDS, base="dpebm"),
    "look": lambda file: fit(file).overlap(without(file, "X"), eps=1),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("call", CALLS)
def test_connections_are_closed(call: str, kind: str, tmp_path: Path, opened: list[Any]) -> None:
    with duckdb.connect() as other:
        assert not closed(other)
        opened.clear()
        CALLS[call](written(tmp_path, kind))
    assert opened
    assert all(map(closed, opened))


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("call", REFUSED)
def test_connections_are_closed_where_a_call_is_refused(
    call: str, kind: str, tmp_path: Path, opened: list[Any]
) -> None:
    with pytest.raises(PrivcausalError):
        REFUSED[call](written(tmp_path, kind))
    assert opened
    assert all(map(closed, opened))


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_connections_are_closed_where_a_fit_fails(
    kind: str, tmp_path: Path, opened: list[Any], broken: Any
) -> None:
    failing = broken(STEP, ValueError(CANARY))
    with failing, refused(DataError, "A step on the rows failed", CANARY):
        pc.private(FORMULA, written(tmp_path, kind), bounds=BOUNDS, **UNIT)
    assert all(map(closed, opened))
    assert len(opened) == 3  # of the file, of the ranking and of the marks


def test_connections_are_closed_where_a_file_is_not_whole(tmp_path: Path, opened: Any) -> None:
    file = written(tmp_path, "csv")
    file.write_text(file.read_text() + "1,2,3,4,5,6,7\n")
    with pytest.raises(DataError, match="not a complete CSV file"):
        pc.private(FORMULA, file, bounds=BOUNDS)
    assert len(opened) == 1
    assert closed(opened[0])


def test_a_relation_keeps_the_connection_it_came_with() -> None:
    connection = duckdb.connect()
    connection.register("given", rows())
    relation = connection.sql("FROM given")
    for _ in range(2):
        pc.private(FORMULA, relation, bounds=BOUNDS)
    assert not closed(connection)
    connection.close()


def written(folder: Path, kind: str, table: pd.DataFrame | None = None) -> Path:
    file = folder / f"{'rows' if table is None else 'other'}.{kind}"
    table = rows() if table is None else table
    table.to_csv(file, index=False) if kind == "csv" else table.to_parquet(file)
    return file


# -- what is no Exception ----------------------------------------------------------------------


def test_a_panic_is_no_exception() -> None:
    """Or the tests below would test nothing."""
    assert not issubclass(PanicException, Exception)


@pytest.mark.parametrize("kind", [PanicException, asyncio.CancelledError, BaseException])
def test_a_panic_ends_in_constant_words(kind: Any, charged: pc.Ledger, broken: Any) -> None:
    with broken(STEP, kind(CANARY)), refused(DataError, "A step on the rows failed", CANARY):
        pc.private(FORMULA, rows(), bounds=BOUNDS, ledger=charged)
    assert charged.fits == 1


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit])
def test_an_exit_stays_one_and_carries_nothing(kind: Any, broken: Any) -> None:
    with broken(STEP, kind(CANARY)), pytest.raises(kind) as caught:
        pc.private(FORMULA, rows(), bounds=BOUNDS)
    assert CANARY not in str(caught.value.args)
    assert caught.value.__context__ is None
    assert getattr(caught.value, "code", 1) == 1  # no success


def test_a_query_that_panics_tells_nothing(broken: Any) -> None:
    """Also where rows are counted, before the vault is open."""
    counting = broken("vault.sources.stored.Lazy._count", PanicException(CANARY))
    with counting, refused(DataError, "Not all rows could be read", CANARY):
        pc.private(FORMULA, pl.from_pandas(rows()).lazy(), bounds=BOUNDS)


def test_no_step_on_rows_is_left_without_the_guard() -> None:
    steps = dict(vars(Vault))
    steps["release_published"] = steps["_published"]  # which it calls with both its stages
    names = [name for name in steps if name.startswith(("release", "fit"))]
    assert len(names) == 5
    assert all(hasattr(steps[name], "__wrapped__") for name in names)
