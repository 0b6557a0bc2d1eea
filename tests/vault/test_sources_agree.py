"""Every call and option gets the same integers from every source that it accepts."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import privcausal as pc
from privcausal import testing
from privcausal.vault.sources.files import read_file

N = 240
BOUNDS: dict[str, Any] = {
    "Y": (-2, 3), "X": (-1, 1), "G": ["a", "b"], "T": pc.Binary(), "Z": pc.Binary(), "W": (0, 4),
    "P": (0.2, 0.8), "died": pc.Binary(), "days": (0, 50), "arm": ["none", "low", "high"],
}  # fmt: skip


def study() -> pd.DataFrame:
    """Rows with values missing or infinite, ids above 2^53, and villages of text."""
    rng = np.random.default_rng(4)
    columns = {"Y": rng.normal(0, 1, N), "T": rng.integers(0, 2, N).astype(float)}
    columns |= {"Z": rng.integers(0, 2, N), "X": rng.uniform(-1.2, 1.2, N)}
    columns["G"] = pd.Series(rng.choice(["a", "b", "new"], N), dtype="str")
    columns |= {"W": rng.uniform(0, 5, N), "P": rng.uniform(0.2, 0.8, N)}
    columns |= {"days": rng.uniform(0, 45, N), "died": rng.integers(0, 2, N)}
    columns["arm"] = pd.Series(rng.choice(["none", "low", "high"], N), dtype="str")
    columns["id"] = 2**53 + np.arange(N) // 3
    columns["village"] = pd.Series([f"v{k // 6}" for k in range(N)], dtype="str")
    frame = pd.DataFrame(columns)
    frame.loc[3, "X"], frame.loc[4, "Y"], frame.loc[5, "G"] = np.nan, np.nan, None
    frame.loc[6, "Y"], frame.loc[8, "X"], frame.loc[9, "W"] = np.inf, -np.inf, np.inf
    frame.loc[10, "P"], frame.loc[11, "days"], frame.loc[12, "T"] = np.inf, -np.inf, np.inf
    return frame


def panel() -> pd.DataFrame:
    """Three years of each unit, with whole numbers above 2^53 as clusters."""
    rng = np.random.default_rng(5)
    made = pd.DataFrame(
        [(f"u{u}", year, u) for u in range(90) for year in (2001, 2002, 2003)],
        columns=["unit", "year", "u"],
    )
    made["Y"] = rng.uniform(-2, 3, len(made))
    made["X"] = rng.uniform(-1, 1, len(made))
    made["T"] = ((made["u"] % 2 == 1) & (made["year"] == 2002)).astype(int)
    made["first"] = np.array([0, 2002, 2003])[made["u"] % 3]
    made["big"] = 2**53 + made["u"] // 5
    made["village"] = pd.Series([f"v{u // 5}" for u in made["u"]], dtype="str")
    made.loc[made["u"] == 7, "Y"], made.loc[made["u"] == 8, "X"] = np.inf, -np.inf
    return made


def clusters(column: str) -> pc.Control:
    return pc.Control(cluster=column, max_cluster_rows=15)


BOTH = {"unit": "unit", "time": "year", "bounds": {"Y": (-2, 3), "X": (-1, 1), "T": pc.Binary()}}
DID = BOTH | {"periods": [2001, 2002]}
UNIT = {"unit": "id", "max_rows": 2}
CALLS: dict[str, Any] = {
    "private": partial(pc.private, "Y ~ T | X + C(G)"),
    "private, means": partial(pc.private, "Y ~ T"),
    "private, units": partial(pc.private, "Y ~ T | X", **UNIT),
    "private, clusters of text": partial(pc.private, "Y ~ T | X", control=clusters("village")),
    "private, clusters of numbers": partial(pc.private, "Y ~ T | X", control=clusters("id")),
    "private, weights": partial(pc.private, "Y ~ T | X", weights="W"),
    "private, propensity": partial(pc.private, "Y ~ T | X", propensity="P"),
    "private, instrument": partial(pc.private, "Y ~ T | X | T ~ Z", estimand="LATE"),
    "private, arms": partial(pc.private, "Y ~ arm | X"),
    "private, survival": partial(
        pc.private, "Surv(days, died) ~ T | X", estimand="RMST", horizon=30
    ),
    "private, parts": partial(
        pc.private, "Y ~ T | X", control=pc.Control(split="disjoint"), **UNIT
    ),
    "privcate": partial(pc.privcate, "Y ~ T | X + C(G)", groups=["G", "X >= 0"]),
    "privcate, units": partial(pc.privcate, "Y ~ T | X", base="linear", **UNIT),
    "privcate, weights": partial(pc.privcate, "Y ~ T | X", weights="W"),
    "privcate, cells": partial(
        pc.privcate, "Y ~ T | X + C(G)", learner=pc.learners.ADUM(partition={"X": 2, "G": "levels"})
    ),
    "regress": partial(pc.regress, "Y ~ T + X + C(G)"),
    "regress, units": partial(pc.regress, "Y ~ T + X", **UNIT),
    "regress, clusters": partial(pc.regress, "Y ~ T + X", control=clusters("village")),
    "regress, weights": partial(pc.regress, "Y ~ T + X", weights="W"),
    "bought bounds": partial(
        pc.private, "Y ~ T | X", bounds={"T": pc.Binary()}, eps=40.0,
        control=pc.Control(shares={"bounds": 0.5}),
    ),
    "did": partial(pc.did, "Y ~ T | X", **DID),
    "did, clusters of text": partial(pc.did, "Y ~ T", control=clusters("village"), **DID),
    "did, clusters of numbers": partial(pc.did, "Y ~ T", control=clusters("big"), **DID),
    "event study": partial(
        pc.did, "Y ~ 1", cohort="first", periods=[2001, 2002, 2003],
        **BOTH | {"bounds": {"Y": (-2, 3), "first": [0, 2002, 2003]}},
    ),
}  # fmt: skip

NO_ORDER = ("units", "clusters", "parts")
"""Options that a DuckDB relation does not allow, because its rows have no order."""


def integers(call: Any, data: Any) -> list[Any]:
    """The exact sums of all queries, given the same noise."""
    with testing.recorded(3) as kept:
        call(data=data)
    return [(one.query.name, np.asarray(one.exact).tolist()) for one in kept.calls]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.sample(5)
@pytest.mark.parametrize("name", CALLS)
def test_every_source_gives_every_call_the_same_integers(name: str, tmp_path: Path) -> None:
    call, staged = CALLS[name], "did" in name or "event" in name
    frame = panel() if staged else study()
    if not staged and "bounds" not in call.keywords:
        call = partial(call, bounds=BOUNDS)
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    sources = {
        "finite frame": frame.replace([np.inf, -np.inf], np.nan),
        "parquet": tmp_path / "t.parquet",
        "csv": tmp_path / "t.csv",
        "csv in memory": read_file(tmp_path / "t.csv"),
    }
    if not any(word in name for word in NO_ORDER):
        sources["relation"] = duckdb.sql(f"FROM '{tmp_path / 't.parquet'}'")
    expected = integers(call, frame)
    assert any(np.any(numbers) for _, numbers in expected)
    for source, data in sources.items():
        assert integers(call, data) == expected, source


SETTINGS = (
    "default_collation='NOCASE.NOACCENT'", "integer_division=true", "ieee_floating_point_ops=false",
    "old_implicit_casting=true", "preserve_insertion_order=false", "arrow_large_buffer_size=true",
    "produce_arrow_string_view=true",
)  # fmt: skip


def strange(frame: pd.DataFrame) -> duckdb.DuckDBPyConnection:
    """A database with these rows in which no function, operator or text means what it should."""
    connection = duckdb.connect()
    connection.register("seen", frame)
    connection.execute("CREATE TABLE rows AS SELECT * FROM seen")
    for name, kind in frame.dtypes.items():
        if kind == "str":
            connection.execute(f"ALTER TABLE rows ALTER {name} TYPE VARCHAR COLLATE NOCASE")
    functions = connection.execute("SELECT function_name FROM duckdb_functions()").fetchall()
    for name in {name.replace('"', '""') for (name,) in functions} | {"count_star"}:
        connection.execute(f'CREATE MACRO "{name}"() AS 7, (a) AS 7, (a, b) AS 7, (a, b, c) AS 7')
    for name in ("given", "units", "dealt", "marks", "changes", "data"):
        connection.execute(f"CREATE TABLE {name} (Y DOUBLE, unit VARCHAR, place BIGINT)")
    for setting in SETTINGS:
        connection.execute(f"SET {setting}")
    return connection


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["private", "privcate, cells", "regress", "did", "event study"])
@pytest.mark.parametrize("neighbors", ["substitute", "add_remove"])
def test_a_database_cannot_redefine_the_sums(name: str, neighbors: str) -> None:
    staged = "did" in name or "event" in name
    call = partial(CALLS[name], neighbors=neighbors)
    frame = panel() if staged else study()
    if not staged:
        call = partial(call, bounds=BOUNDS)
        frame.loc[20:60, "G"] = "A"  # not the declared level "a"
    connection = strange(frame)
    assert connection.execute("SELECT count(*), 1 + 1 FROM rows").fetchall()[0] == (7, 7)
    assert integers(call, connection.table("rows")) == integers(call, frame)
