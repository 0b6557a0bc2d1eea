"""Passes that end before their time: the charge stays, the error is clear, nothing hangs."""

from __future__ import annotations

import re
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from fit_helpers import refused
from vault_helpers import interrupted

import privcausal as pc
from privcausal.errors import BudgetError, CapabilityError, DataError
from privcausal.vault import passes

N = 3_000
FORMULA, BOUNDS = "Y ~ T | X", {"Y": (0, 1), "X": (0, 1), "T": [0, 1]}
CANARY = 0.773104142


def rows(size: int = N) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {"Y": np.full(size, CANARY), "T": rng.integers(0, 2, size), "X": rng.random(size), "pid": 1}
    )


def places(folder: Path) -> dict[str, Callable[[], Any]]:
    rows().to_parquet(folder / "t.parquet", row_group_size=500)
    rows().to_csv(folder / "t.csv", index=False)
    return {
        "memory": rows,
        "parquet": lambda: folder / "t.parquet",
        "csv": lambda: folder / "t.csv",
        "relation": lambda: duckdb.sql(f"FROM '{folder / 't.parquet'}'"),
        "polars": lambda: pl.scan_parquet(folder / "t.parquet"),
    }


PLACES = ("memory", "parquet", "csv", "relation", "polars")


@pytest.fixture(autouse=True)
def small_blocks(limits: Any) -> Iterator[None]:
    with limits(BATCH=100, KEEP_ROWS=0, KEEP_HELD=0, THREADS=2, STREAM=500):
        yield


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize("place", PLACES)
def test_ctrl_c_midway_leaves_the_fit_paid_for_and_nothing_running(
    place: str, tmp_path: Path, charged: pc.Ledger
) -> None:
    """The signal itself, raised once a thousand rows are read; the next fit works."""
    data = places(tmp_path)[place]
    before, tell = threading.active_count(), passes.Progress.rows

    def pressed(progress: Any, done: int, of: Any) -> None:
        tell(progress, done, of)
        if 1_000 <= done < N:
            signal.raise_signal(signal.SIGINT)

    with interrupted("vault.passes.Progress.rows", pressed) as caught:
        pc.private(FORMULA, data(), bounds=BOUNDS, eps=1, ledger=charged)
    assert threading.active_count() == before or place == "polars"  # polars keeps its own
    assert caught.value.__context__ is None
    inside = [
        frame.f_locals for frame, _ in traceback.walk_tb(caught.tb) if "vault" in str(frame.f_code)
    ]
    assert not any(isinstance(v, np.ndarray) for names in inside for v in names.values())
    spent = len(charged.history)
    pc.private(FORMULA, data(), bounds=BOUNDS, eps=1, ledger=charged)
    assert len(charged.history) == 2 * spent > 0


class Meanwhile:
    """A ledger that lets something happen once the fit is paid for."""

    def __init__(self, ledger: pc.Ledger, happens: Callable[[], object]) -> None:
        self.ledger, self.happens = ledger, happens

    @property
    def delta(self) -> float:
        return self.ledger.delta

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ledger, name)

    def charge(self, *args: Any, **options: Any) -> None:
        self.ledger.charge(*args, **options)
        self.happens()


def cut(file: Path) -> None:
    """Half of the file is gone."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def shorter(file: Path) -> None:
    """Another file in its place, whole, with fewer rows."""
    frame = rows(N - 7)
    frame.to_csv(file, index=False) if file.suffix == ".csv" else frame.to_parquet(file)


@pytest.mark.parametrize("change", [cut, shorter, Path.unlink], ids=["cut", "shorter", "gone"])
@pytest.mark.parametrize("place", ["parquet", "csv", "relation", "polars"])
def test_a_file_that_changes_after_the_charge(
    place: str, change: Callable[[Path], None], tmp_path: Path, charged: pc.Ledger
) -> None:
    data = places(tmp_path)[place]()
    file = tmp_path / ("t.csv" if place == "csv" else "t.parquet")
    meanwhile: Any = Meanwhile(charged, lambda: change(file))
    with refused(DataError, "Not all rows could be read", 7731):
        pc.private(FORMULA, data, bounds=BOUNDS, eps=1, ledger=meanwhile)


@pytest.mark.parametrize("kind", ["view", "query"])
def test_a_table_that_grows_between_passes(kind: str, charged: pc.Ledger) -> None:
    """Under a view, or under a query of polars that reads what is there by then."""
    connection = duckdb.connect()
    connection.register("start", rows())
    connection.execute("CREATE TABLE t AS FROM start; CREATE VIEW v AS SELECT * FROM t")
    several = rows().assign(more=1)
    data: Any = connection.view("v")
    if kind == "query":
        grown, query = lambda _: pl.from_pandas(several)[:, :4], pl.from_pandas(rows()).lazy()
        data = query.map_batches(grown, projection_pushdown=False)

    def grows() -> None:
        nonlocal several
        connection.execute("INSERT INTO t SELECT * FROM t LIMIT 5")
        several = pd.concat([several, several[:5]])

    meanwhile: Any = Meanwhile(charged, grows)
    with pytest.raises(DataError, match="was changed while it was being read"):
        pc.private(FORMULA, data, bounds=BOUNDS, eps=1, ledger=meanwhile)


@pytest.mark.parametrize(
    "options",
    [
        {"control": pc.Control(split="disjoint")},
        {"control": pc.Control(split="crossfit")},
        {"unit": "pid", "max_rows": 1},
        {"control": pc.Control(cluster="pid", max_cluster_rows=20)},
    ],
)
@pytest.mark.parametrize("place", ["relation", "polars"])
def test_rows_that_may_come_in_another_order_have_no_parts(
    place: str, options: Any, tmp_path: Path, unspent: pc.Ledger
) -> None:
    """A view may change between passes: a row's coin, or which rows a unit keeps, would too."""
    with pytest.raises(CapabilityError, match=r"in a fixed order.* Write them to a"):
        pc.private(FORMULA, places(tmp_path)[place](), bounds=BOUNDS, ledger=unspent, **options)


@pytest.mark.slow
def test_rows_in_another_order_each_time_are_the_same_sums(tmp_path: Path) -> None:
    """What the refusals above do not touch: sums have no order."""
    places(tmp_path)
    found = []
    for query in ("", " ORDER BY random()"):
        data = duckdb.sql(f"FROM '{tmp_path / 't.parquet'}'{query}")
        with pc.testing.seeded_noise(1):
            found.append(pc.private(FORMULA, data, bounds=BOUNDS, eps=1).params["ATE"])
    assert found[0] == found[1]


def test_a_fit_that_must_stop_says_what_it_used(charged: pc.Ledger) -> None:
    """At its first stage, after which it can only go on with bounds that it does not have."""
    few = rows().assign(Y=lambda d: d["Y"].where(d.index < 40))
    with refused(BudgetError, "Could not estimate bounds for 'Y'") as caught:
        pc.private(FORMULA, few, eps=1, ledger=charged)
    said = str(caught.value)
    assert re.search(r"The fit stopped after 1 of \d+ stages, with \d% of its budget\. ", said)
    assert said.endswith("was charged for all stages before the first and returns nothing.")
    assert len(charged.history) > 1
    with pytest.raises(BudgetError, match=r"% of its budget\.$"):
        pc.private(FORMULA, few, eps=1)


@pytest.mark.slow
def test_levels_that_make_too_many_columns_stop_the_fit(charged: pc.Ledger) -> None:
    """Their number is known only from the release: then the fit says so."""
    levels = np.repeat([f"level {k}" for k in range(1100)], 60)
    data = rows(len(levels)).assign(G=levels)
    with refused(CapabilityError, r"makes 1,\d\d\d columns.*The fit stopped after 1 of"):
        pc.private("Y ~ T | C(G)", data, bounds=BOUNDS, eps=4, ledger=charged)


def test_a_release_of_too_many_numbers_is_refused_by_its_size(limits: Any) -> None:
    """The size of a query is public: the message is not that of a step on rows."""
    said = r"numbers, but at most 5 are allowed.*stopped after"
    with limits(LARGEST_RELEASE=5), refused(CapabilityError, said):
        pc.private(FORMULA, rows(), bounds=BOUNDS)
