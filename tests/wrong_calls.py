"""Wrong calls beside those of `test_bad_input`: files, types, options, tables, results.

Each row of a table is a call, the class of its error and words of its message. A call takes a
ledger, which nothing of it may charge.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import io
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from text_type import TEXT

import privcausal as pc
from privcausal import cli
from privcausal.errors import (
    BudgetError,
    CapabilityError,
    DataError,
    FormulaError,
    LedgerError,
    PrivcausalError,
    SchemaError,
)
from privcausal.testing import seeded_noise

CANARY, RARE = 77310.4142, "CANARY_ZQX"
N = 60
FORMULA = "Y ~ T | X1 + C(G)"
BOUNDS: dict[str, Any] = {"Y": (0, 1), "X1": (0, 10), "G": ["a", "b"]}

Case = tuple[Callable[[Any], Any], type[PrivcausalError], str]


@dataclass(frozen=True)
class Tried:
    """What came of a wrong call: its error, what it charged, CPU seconds, and all that it said."""

    error: PrivcausalError | None
    charged: int
    seconds: float
    said: str

    @property
    def shows_a_row(self) -> bool:
        return "77310" in self.said or RARE in self.said

    def is_as_stated(self, case: Case) -> bool:
        """Refused in its own words, for nothing, in time, and without a word on the rows."""
        _, kind, words = case
        refused = isinstance(self.error, kind) and bool(re.search(words, str(self.error)))
        return refused and self.charged == 0 and self.seconds < 10 and not self.shows_a_row


def tried(case: Case, ledger: Any) -> Tried:
    """Make a wrong call. What is printed counts as said; seconds are of this process alone, since
    another one may keep the machine busy."""
    before, start = len(ledger.history), time.process_time()
    error, said = None, io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            case[0](ledger)
        except PrivcausalError as problem:
            error = problem
    seconds = time.process_time() - start
    return Tried(error, len(ledger.history) - before, seconds, said.getvalue() + told(error))


def told(error: BaseException | None) -> str:
    if error is None:
        return ""
    parts = [str(error), repr(error.args), told(error.__cause__), told(error.__context__)]
    return "\n".join(parts)


@cache
def _study() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "Y": rng.random(N),
            "T": rng.integers(0, 2, N),
            "X1": rng.uniform(0, 10, N),
            "G": rng.choice(["a", "b"], N),
            "P": rng.uniform(0.3, 0.6, N),
            "arm": rng.choice(["no", "yes"], N),
            "pid": [f"id{i // 2}" for i in range(N)],
            "day": pd.Timestamp("2020-01-01"),
        }
    )
    frame.loc[7, ["Y", "X1", "P"]] = CANARY
    frame.loc[7, ["G", "arm", "pid"]] = RARE
    return frame


def study(**columns: Any) -> pd.DataFrame:
    return _study().copy().assign(**columns)


def ate(formula: str = FORMULA, data: Any = None, **options: Any) -> Callable[[Any], Any]:
    """`private` on the study, waiting for a ledger."""
    frame = study() if data is None else data
    return lambda ledger: pc.private(
        formula, frame, **({"bounds": BOUNDS} | options), ledger=ledger
    )


def cate(formula: str = FORMULA, data: Any = None, **options: Any) -> Callable[[Any], Any]:
    frame = study() if data is None else data
    return lambda ledger: pc.privcate(
        formula, frame, **({"bounds": BOUNDS} | options), ledger=ledger
    )


def paper(**options: Any) -> Callable[[Any], Any]:
    """`paper.private` on the study, waiting for a ledger."""
    return lambda ledger: pc.paper.private(
        FORMULA, study(), bounds=BOUNDS, ledger=ledger, **options
    )


def bounds(**columns: Any) -> dict[str, Any]:
    return BOUNDS | columns


def late(make: Callable[[], Any], formula: str = FORMULA, **options: Any) -> Callable[[Any], Any]:
    """A fit of data that are made when it is called."""

    def run(ledger: Any) -> Any:
        return ate(formula, make(), **options)(ledger)

    return run


def alone(call: Callable[[], Any]) -> Callable[[Any], Any]:
    """A call that takes no ledger."""
    return lambda _: call()


# -- files -----------------------------------------------------------------------------------


@cache
def folder() -> Path:
    """Files that are wrong each in its own way."""
    kept = tempfile.TemporaryDirectory(prefix="wrong")
    _KEPT.append(kept)
    place, frame = Path(kept.name), _study().drop(columns="day")
    frame.to_parquet(place / "whole.parquet")
    content = (place / "whole.parquet").read_bytes()
    (place / "cut.parquet").write_bytes(content[: len(content) // 2])
    (place / "text.parquet").write_text("Y,T\n1,0\n")
    (place / "empty.parquet").write_bytes(b"")
    frame.head(0).astype({"G": TEXT}).to_parquet(place / "no rows.parquet")
    frame.to_csv(place / "no rows.txt")
    lines = frame.to_csv(index=False).splitlines()
    wrong = {
        "ragged": "\n".join([*lines[:9], lines[9].rpartition(",")[0], *lines[10:]]),
        "longer": "\n".join([*lines[:9], lines[9] + ",1,2", *lines[10:]]),
        "quote": "\n".join([*lines[:9], '"' + lines[9], *lines[10:]]),
        "semicolons": "\n".join(line.replace(",", ";") for line in lines),
        "twice": "\n".join(["Y,T,X1,X1,P,arm,pid", *lines[1:]]),
        "unnamed": "\n".join(["Y,T,,G,P,arm,pid", *lines[1:]]),
        "header only": lines[0] + "\n",
        "no header": "\n".join(lines[1:]),
        "blank": "",
    }
    for name, text in wrong.items():
        (place / f"{name}.csv").write_text(text)
    latin = "\n".join([*lines[:9], lines[9] + "\xe9", *lines[10:]])
    (place / "latin.csv").write_bytes(latin.encode("latin-1"))
    (place / "utf-16.csv").write_text("\n".join(lines), encoding="utf-16")
    (place / "zeros.csv").write_bytes(bytes(500))
    (place / "packed.csv.gz").write_bytes(b"\x1f\x8b")
    (place / "star*.csv").write_text("\n".join(lines))
    (place / "void").mkdir()
    _two(place / "mixed", {"a.parquet": frame, "b.csv": frame})
    _two(place / "types", {"a.parquet": frame, "b.parquet": frame.astype({"X1": "str"})})
    _two(place / "columns", {"a.parquet": frame, "b.parquet": frame.drop(columns="X1")})
    _two(place / "names", {"a.csv": frame, "b.csv": frame.rename(columns={"X1": "Z"})})
    _two(place / "order", {"a.csv": frame, "b.csv": frame[frame.columns[::-1]]})
    return place


_KEPT: list[Any] = []


def _two(place: Path, files: Mapping[str, pd.DataFrame]) -> None:
    place.mkdir()
    for name, frame in files.items():
        path = place / name
        frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)


def at(name: str, **options: Any) -> Callable[[Any], Any]:
    return late(lambda: folder() / name, **options)


FILES: dict[str, Case] = {
    "a path object": (at("nothing.parquet"), DataError, "does not exist"),
    "a pattern of nothing": (at("*.nothing"), DataError, "does not exist"),
    "an empty folder": (at("void"), DataError, "contains no file"),
    "another suffix": (at("no rows.txt"), DataError, "Supported files end in"),
    "packed": (at("packed.csv.gz"), DataError, "Supported files end in"),
    "Parquet cut off": (at("cut.parquet"), DataError, "not a complete Parquet file"),
    "Parquet of text": (at("text.parquet"), DataError, "not a complete Parquet file"),
    "Parquet of nothing": (at("empty.parquet"), DataError, "not a complete Parquet file"),
    "Parquet without rows": (at("no rows.parquet"), DataError, "The data have no rows"),
    "CSV with a short line": (at("ragged.csv"), DataError, "not a complete CSV file"),
    "CSV with a long line": (at("longer.csv"), DataError, "not a complete CSV file"),
    "CSV with an open quote": (at("quote.csv"), DataError, "not a complete CSV file"),
    "CSV by semicolons": (at("semicolons.csv"), FormulaError, "not in the first line"),
    "CSV with a name twice": (at("twice.csv"), DataError, "a duplicate"),
    "CSV with no name": (at("unnamed.csv"), DataError, "a field is empty"),
    "CSV of a header": (
        at("header only.csv", bounds=BOUNDS | {"T": [0, 1]}),
        DataError,
        "The data have no rows",
    ),
    "CSV without a header": (at("no header.csv"), DataError, "The line may hold private data"),
    "CSV of nothing": (at("blank.csv"), DataError, "not a complete CSV file"),
    "CSV in Latin-1": (at("latin.csv"), DataError, "not a complete CSV file"),
    "CSV in UTF-16": (at("utf-16.csv"), DataError, "not a complete CSV file"),
    "CSV of zeros": (at("zeros.csv"), DataError, "The line may hold private data"),
    "a star in a name": (at("star[*].csv"), DataError, "Rename the file"),
    "two kinds of file": (at("mixed"), DataError, "Select only one kind"),
    "two types of a column": (at("types"), DataError, "has type"),
    "a file lacks a column": (at("columns"), DataError, "Column 'X1' is missing"),
    "CSV files differ": (at("names"), DataError, "different column names"),
    "CSV files different column orders": (at("order"), DataError, "different column orders"),
    "bytes as a path": (ate(data=b"data.csv"), DataError, "of type bytes cannot be read"),
    "an address": (ate(data="https://example.org/data.csv"), DataError, "does not exist"),
    "an address of a bucket": (ate(data="s3://bucket/data.parquet"), DataError, "does not exist"),
    "a folder of no file system": (ate(data="\0"), DataError, "does not exist"),
}


# -- DuckDB and other sources ----------------------------------------------------------------


@cache
def _connection() -> Any:
    import duckdb

    connection = duckdb.connect()
    connection.register("frame", _study())
    return connection


atexit.register(_connection.cache_clear)  # or it would be open until after Python's end


def sql(query: str, **options: Any) -> Callable[[Any], Any]:
    formula = options.pop("formula", FORMULA)

    def run(ledger: Any) -> Any:
        relation = _connection().sql(query)
        return pc.private(formula, relation, **({"bounds": BOUNDS} | options), ledger=ledger)

    return run


def closed() -> Any:
    import duckdb

    connection = duckdb.connect()
    relation = connection.sql("SELECT 1 AS Y, 0 AS T, 1 AS X1, 'a' AS G")
    connection.close()
    return relation


def _reader() -> Any:
    import pyarrow as pa

    return pa.Table.from_pandas(_study()).to_reader()


def _sparse() -> Any:
    from scipy.sparse import csr_array

    return csr_array(np.eye(3))


class _Spark:
    """Looks like the frame of an engine that is not supported."""

    columns = ("Y", "T", "X1", "G")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(RARE)


SQL = "SELECT Y, T, X1, G, pid, day FROM frame"

SOURCES: dict[str, Case] = {
    "a relation by halves": (
        sql(SQL, control=pc.Control(split="disjoint")),
        CapabilityError,
        "in a fixed order",
    ),
    "a relation by folds": (
        sql(SQL, control=pc.Control(split="crossfit")),
        CapabilityError,
        "in a fixed order",
    ),
    "a relation of units": (sql(SQL, unit="pid", max_rows=2), CapabilityError, "in a fixed order"),
    "a relation without rows": (sql(f"{SQL} WHERE false"), DataError, "The data have no rows"),
    "a relation without a column": (sql("SELECT Y, T, G FROM frame"), FormulaError, "not in the"),
    "a relation of dates": (sql(SQL, formula="Y ~ T | day"), DataError, "cannot be read. Convert"),
    "a relation of lists": (
        sql("SELECT Y, T, [X1] AS X1, G FROM frame"),
        DataError,
        "cannot be read. Convert",
    ),
    "a relation of structures": (
        sql("SELECT Y, T, {'a': X1} AS X1, G FROM frame"),
        DataError,
        "cannot be read. Convert",
    ),
    "a relation of maps": (
        sql("SELECT Y, T, MAP {'a': X1} AS X1, G FROM frame"),
        DataError,
        "cannot be read. Convert",
    ),
    "a relation of blobs": (
        sql("SELECT Y, T, X1, G::BLOB AS G FROM frame"),
        DataError,
        "cannot be read. Convert",
    ),
    "a relation of spans": (
        sql("SELECT Y, T, to_days(X1::INT) AS X1, G FROM frame WHERE X1 < 11"),
        DataError,
        "cannot be read. Convert",
    ),
    "a closed relation": (
        late(closed),
        DataError,
        "connection is still open",
    ),
    "a connection": (late(_connection), DataError, "cannot be read"),
    "a reader of batches": (
        late(_reader),
        DataError,
        "cannot be read",
    ),
    "a generator": (ate(data=(row for row in [1])), DataError, "of type generator cannot be read"),
    "a series": (ate(data=_study()["Y"]), DataError, "cannot be read"),
    "a frame's type": (ate(data=pd.DataFrame), DataError, "cannot be read"),
    "a sparse matrix": (late(_sparse), DataError, "cannot be read"),
    "a structured array": (
        ate(data=np.zeros(3, [("Y", float), ("T", int)])),
        DataError,
        "cannot be read",
    ),
    "a list of dicts": (ate(data=[{"Y": CANARY}]), DataError, "of type list cannot be read"),
    "a set": (ate(data={1, 2}), DataError, "of type set cannot be read"),
    "another engine's frame": (late(_Spark), DataError, "cannot be"),
    "an empty dict": (ate(data={}), FormulaError, "is not in the data"),
    "a frame without columns": (ate(data=pd.DataFrame()), FormulaError, "is not in the data"),
}


# -- types of columns ------------------------------------------------------------------------


def typed(make: Callable[[pd.DataFrame], Any], name: str = "Z") -> Callable[[Any], Any]:
    """A fit by a column of a type that cannot be read."""
    return late(lambda: make(study()), f"Y ~ T | {name}")


def arrow(kind: str, value: Any) -> Callable[[pd.DataFrame], Any]:
    def make(frame: pd.DataFrame) -> Any:
        import pyarrow as pa

        types = {
            "list": pa.list_(pa.float64()),
            "struct": pa.struct([("a", pa.float64())]),
            "map": pa.map_(pa.string(), pa.float64()),
            "binary": pa.binary(),
            "time": pa.time64("us"),
            "date": pa.date32(),
            "stamp": pa.timestamp("us", tz="UTC"),
            "span": pa.duration("s"),
            "null": pa.null(),
        }
        column = pa.array([value] * len(frame), types[kind])
        return pa.Table.from_pandas(frame.drop(columns="day")).append_column("Z", column)

    return make


def polars(dtype: str, value: Any) -> Callable[[pd.DataFrame], Any]:
    def make(frame: pd.DataFrame) -> Any:
        import polars as pl

        kind = {"Array": lambda: pl.Array(pl.Float64, 2), "List": lambda: pl.List(pl.Float64)}
        chosen = kind[dtype]() if dtype in kind else getattr(pl, dtype)
        column = pl.Series("Z", [value] * len(frame), dtype=chosen)
        return pl.from_pandas(frame.drop(columns="day")).with_columns(column)

    return make


def own(make: Callable[[int], Any]) -> Callable[[pd.DataFrame], Any]:
    return lambda frame: frame.assign(Z=make(len(frame)))


_TYPE = (DataError, "has a type that cannot be read")
TYPES: dict[str, Case] = {
    **{
        f"pyarrow {kind}": (typed(arrow(kind, value)), *_TYPE)
        for kind, value in (
            ("list", [CANARY]),
            ("struct", {"a": CANARY}),
            ("map", [(RARE, CANARY)]),
            ("binary", RARE.encode()),
            ("time", datetime.time(12)),
            ("date", datetime.date(2020, 1, 1)),
            ("stamp", datetime.datetime(2020, 1, 1)),
            ("span", datetime.timedelta(1)),
            ("null", None),
        )
    },
    **{
        f"polars {kind}": (typed(polars(kind, value)), *_TYPE)
        for kind, value in (
            ("List", [CANARY]),
            ("Array", [CANARY, 1.0]),
            ("Binary", RARE.encode()),
            ("Date", datetime.date(2020, 1, 1)),
            ("Time", datetime.time(12)),
            ("Duration", datetime.timedelta(1)),
            ("Null", None),
        )
    },
    **{
        f"pandas {kind}": (typed(own(make)), *_TYPE)
        for kind, make in (
            ("period", lambda n: pd.period_range("2020", periods=n, freq="D")),
            ("interval", lambda n: pd.interval_range(0, n, n)),
            ("time zone", lambda n: pd.date_range("2020", periods=n, tz="Europe/Paris")),
            ("span", lambda n: pd.to_timedelta(np.arange(n), unit="D")),
            ("complex", lambda n: np.full(n, CANARY * 1j)),
        )
    },
    "dict of structures": (
        typed(lambda f: {"Y": f["Y"], "T": f["T"], "Z": np.zeros(len(f), [("a", float)])}),
        *_TYPE,
    ),
    "dict of dates": (
        typed(lambda f: {"Y": f["Y"], "T": f["T"], "Z": np.full(len(f), "2020", "M8[D]")}),
        *_TYPE,
    ),
    "a group of dates": (cate(groups=["day"], bounds=bounds(day=["a", "b"])), *_TYPE),
    "a propensity of dates": (ate(propensity="day", bounds=bounds(day=(0.1, 0.9))), *_TYPE),
    "an outcome of dates": (ate("day ~ T | X1", bounds=bounds(day=(0, 1))), *_TYPE),
    "a treatment of dates": (ate("Y ~ day | X1"), *_TYPE),
}


# -- learners and bases ----------------------------------------------------------------------


def made(make: Callable[[], Any]) -> Callable[[Any], Any]:
    return alone(make)


def adum(learner: Any = "adum", formula: str = "Y ~ T | X1", **options: Any) -> Any:
    """A fit by cells; what makes its learner may refuse too."""

    def run(ledger: Any) -> Any:
        chosen = learner() if callable(learner) else learner
        return cate(formula, learner=chosen, **options)(ledger)

    return run


ADUM, TM, DPCATE = pc.learners.ADUM, pc.learners.TM, pc.learners.DPCATE

CELLS: dict[str, Case] = {
    **{
        f"cells={k!r}": (made(lambda k=k: ADUM(cells=k)), CapabilityError, "cells must be a whole")
        for k in (0, -1, 2.5, "many", True, np.nan)
    },
    "too many cells": (made(lambda: ADUM(cells=10**9)), CapabilityError, "too fine"),
    "unknown partition": (
        made(lambda: ADUM(partition="tree")),
        CapabilityError,
        "partition= must be",
    ),
    "partition of a number": (
        made(lambda: ADUM(partition=5)),
        CapabilityError,
        "partition= must be",
    ),
    "unknown noise": (made(lambda: ADUM(noise="uniform")), CapabilityError, "noise must be one of"),
    "unknown release": (
        made(lambda: ADUM(release="all")),
        CapabilityError,
        "release must be one of",
    ),
    "shrink=2": (made(lambda: ADUM(shrink=2)), CapabilityError, "shrink must be True or False"),
    "rounds=0": (made(lambda: ADUM(rounds=0)), CapabilityError, "rounds must be a whole number"),
    "rows of text": (made(lambda: ADUM(rows="5")), CapabilityError, "rows must be a whole number"),
    "sigma=0": (made(lambda: ADUM(sigma=0)), CapabilityError, "sigma= must be a number above 0"),
    "slopes=inf": (made(lambda: ADUM(slopes=np.inf)), CapabilityError, "slopes= must be a number"),
    "bound with k-means": (
        made(lambda: ADUM(partition="kmeans", cells="bound")),
        CapabilityError,
        "requires partition='grid'",
    ),
    "cells with a partition": (
        made(lambda: ADUM(partition={"X1": [5]}, cells=4)),
        CapabilityError,
        "requires partition",
    ),
    "a partition of an unknown column": (
        adum(lambda: ADUM(partition={"Z": [5]})),
        SchemaError,
        "not an effect modifier",
    ),
    "a partition beyond bounds": (
        adum(lambda: ADUM(partition={"X1": [50]})),
        SchemaError,
        "inside the",
    ),
    "a partition not in order": (
        adum(lambda: ADUM(partition={"X1": [5, 2]})),
        SchemaError,
        "inside the",
    ),
    "a partition of text": (adum(lambda: ADUM(partition={"X1": "old"})), SchemaError, "inside the"),
    "a function that fails": (
        adum(lambda: ADUM(partition=lambda points: points["nope"])),
        CapabilityError,
        "failed with KeyError",
    ),
    "a function of one value": (
        adum(lambda: ADUM(partition=lambda _: 1)),
        CapabilityError,
        "failed with TypeError",
    ),
    "controls": (adum(formula="Y ~ T | X1 | P"), CapabilityError, "extra controls"),
    "no modifiers": (adum(formula="Y ~ T"), CapabilityError, "at least one effect modifier"),
    "groups": (adum(groups=["G"]), CapabilityError, "groups="),
    "split": (
        adum(control=pc.Control(split="disjoint")),
        CapabilityError,
        "it has no nuisance models",
    ),
    "a propensity column": (
        adum(propensity="P", bounds=bounds(P=(0.1, 0.9))),
        CapabilityError,
        "a column of known propensities",
    ),
    "undeclared bounds": (adum(formula="Y ~ T | P"), SchemaError, "cannot estimate bounds"),
    "bound without rows": (
        adum(lambda: ADUM(cells="bound"), neighbors="add_remove"),
        CapabilityError,
        "requires the number of rows",
    ),
    **{
        f"degree={d!r}": (made(lambda d=d: TM(degree=d)), CapabilityError, "degree must be a whole")
        for d in (0, 13, 1.5, "2", None)
    },
    "tm undeclared": (adum("tm", formula="Y ~ T | P"), SchemaError, "cannot estimate bounds"),
    "tm with groups": (adum("tm", groups=["G"]), CapabilityError, "groups="),
    "mode paper": (adum(mode="paper"), CapabilityError, "pc.paper"),
}

KERNEL: dict[str, Case] = {
    **{
        f"bandwidth={h!r}": (
            made(lambda h=h: pc.bases.Kernel(bandwidth=h)),
            CapabilityError,
            r"bandwidth=\) must be",
        )
        for h in (0, -1, np.nan, np.inf, "1", True, 1e9)
    },
    **{
        f"ridge={r!r}": (
            made(lambda r=r: pc.bases.Kernel(ridge=r)),
            CapabilityError,
            r"ridge=\) must be",
        )
        for r in (0, -1, np.nan, 1e9)
    },
    "unknown loss": (made(lambda: pc.bases.Kernel(loss="l1")), CapabilityError, "loss"),
    **{
        f"functions={m!r}": (
            made(lambda m=m: pc.bases.Kernel(functions=m)),
            CapabilityError,
            r"functions=\) must be",
        )
        for m in (0, 3, 2.0, 10**5, True)
    },
    "score of dpcate": (
        made(lambda: DPCATE(score="other")),
        CapabilityError,
        r"DPCATE\(score=\) must be one of 'r', 'dr'",
    ),
    **{
        f"{name} of the printed dpcate": (
            lambda ledger, name=name: pc.paper.dpcate(
                "Y ~ T | X1", study(), bounds=BOUNDS, ledger=ledger, **{name: "other"}
            ),
            CapabilityError,
            "must be one of",
        )
        for name in ("weight", "second", "noise")
    },
    **{
        f"rounds={r!r} of dpebm": (
            made(lambda r=r: pc.bases.DPEBM(rounds=r)),
            CapabilityError,
            "from 10 to 3000",
        )
        for r in (0, -1, 1.5, "9", 10**9)
    },
    **{
        f"bins={b!r} of dpebm": (
            made(lambda b=b: pc.bases.DPEBM(bins=b)),
            CapabilityError,
            "from 2 to 256",
        )
        for b in (0, 1, 1.5, 10**9)
    },
    **{
        f"learning_rate={r!r} of dpebm": (
            made(lambda r=r: pc.bases.DPEBM(learning_rate=r)),
            CapabilityError,
            "a number in",
        )
        for r in (0, -1, np.nan, np.inf, "1")
    },
    "smooth=2 of dpebm": (made(lambda: pc.bases.DPEBM(smooth=2)), CapabilityError, "True or False"),
    **{
        f"functions={f!r} of gam": (
            made(lambda f=f: pc.bases.Gam(functions=f)),
            CapabilityError,
            "from 1 to 8",
        )
        for f in (0, 9, 1.5, "3", True)
    },
    "interactions=2 of gam": (
        made(lambda: pc.bases.Gam(interactions=2)),
        CapabilityError,
        "True or",
    ),
    "interactions of s": (made(lambda: pc.learners.S(interactions=2)), CapabilityError, "True or"),
    "Sklearn of nothing": (
        made(lambda: pc.bases.Sklearn(None, None)),
        CapabilityError,
        "requires an",
    ),
    "Sklearn of classes": (made(lambda: pc.bases.Sklearn(dict, list)), CapabilityError, "a class"),
    "epochs=0 of networks": (
        made(lambda: pc.bases.NN(epochs=0)),
        CapabilityError,
        "from 1 to 1000",
    ),
    "kernel with learner r": (cate(base="kernel"), CapabilityError, "requires learner='dpcate'"),
    "dpebm with private": (ate(base="dpebm"), CapabilityError, "privcate"),
    "dpebm with dpcate": (
        cate(learner="dpcate", base="dpebm"),
        CapabilityError,
        "does not support base=",
    ),
    "Sklearn where it is not private": (
        cate(base=pc.bases.Sklearn.kernel()),
        CapabilityError,
        "without privacy protection",
    ),
    "the class for the option": (
        cate(learner=ADUM),
        CapabilityError,
        r"learner=pc.learners.ADUM is a class. Call it: learner=pc.learners.ADUM\(\).$",
    ),
    "the class of a base": (
        cate(base=pc.bases.Gam),
        CapabilityError,
        r"base=pc.bases.Gam is a class. Call it: base=pc.bases.Gam\(\).$",
    ),
    "paper with learner t": (
        lambda ledger: pc.paper.dpebm(FORMULA, study(), learner="t", bounds=BOUNDS, ledger=ledger),
        CapabilityError,
        "'dr', 'r', 's'",
    ),
    "paper under add_remove": (
        paper(base=pc.bases.Sklearn.kernel(), neighbors="add_remove"),
        CapabilityError,
        "has no argument neighbors=",
    ),
    "paper in a ledger that is not": (
        paper(base=pc.bases.Sklearn.kernel()),
        LedgerError,
        "accepts only proven guarantees",
    ),
    "paper on few rows": (
        paper(base=pc.bases.Sklearn.kernel(), below_minimum="refuse"),
        BudgetError,
        "at least",
    ),
    "below_minimum unknown": (paper(below_minimum="run"), CapabilityError, "below_minimum"),
    "below_minimum of what is proven": (
        ate(below_minimum="published"),
        CapabilityError,
        "pc.paper",
    ),
    "mode": (ate(mode="best"), CapabilityError, "pc.paper"),
    "queries without dpcate": (
        cate("Y ~ T | X1", queries={"X1": np.ones(1)}),
        CapabilityError,
        "DPCATE",
    ),
    **{
        f"queries {name}": (
            lambda ledger, make=make: cate(
                "Y ~ T | X1", learner=pc.learners.DPCATE(queries=make())
            )(ledger),
            kind,
            words,
        )
        for name, make, kind, words in (
            ("without the column", lambda: _study()[["Y"]], DataError, "requires the column"),
            ("without rows", lambda: _study().head(0), CapabilityError, "from 1 to 5,000"),
            ("of too many", lambda: {"X1": np.zeros(5001)}, CapabilityError, "from 1 to 5,000"),
            ("with a missing value", lambda: {"X1": np.array([np.nan])}, DataError, "missing"),
            ("that are a list", lambda: [CANARY], DataError, "cannot be read"),
            ("of text", lambda: {"X1": np.array([RARE])}, DataError, "missing value"),
        )
    },
    "undeclared bounds of dpcate networks": (
        cate("Y ~ T | P", learner="dpcate", base="nn"),
        CapabilityError,
        "base='nn'",
    ),
}


# -- plans, audits, tables of cells ----------------------------------------------------------


def plan(**options: Any) -> Callable[[Any], Any]:
    formula = options.pop("formula", FORMULA)
    return alone(lambda: pc.plan(formula, **({"bounds": BOUNDS, "n": 100} | options)))


PLANS: dict[str, Case] = {
    **{
        f"n={n!r}": (plan(n=n), CapabilityError, "n (must be|is) a")
        for n in (0, -1, 1.5, np.nan, "5", True, [], 10**15, [100, "b"], {"a": 1})
    },
    **{
        f"eps={e!r}": (plan(eps=e), BudgetError, "eps must be")
        for e in (0, -1, np.nan, np.inf, [1, -1], True)
    },
    **{
        f"eps={e!r}": (plan(eps=e), CapabilityError, "eps (is an|must be a)") for e in ("1", [], {})
    },
    **{
        f"width={w!r}": (plan(width=w), CapabilityError, "width must be")
        for w in (0, -1, np.nan, "1", True)
    },
    "neither n nor width": (plan(n=None), CapabilityError, "n= is missing"),
    "public rows in a list": (plan(like=[1, 2]), CapabilityError, "must be a pandas DataFrame"),
    "n, eps and width": (plan(eps=1, width=0.1), CapabilityError, "Give only one of"),
    "a width below all reach": (plan(n=None, eps=0.01, width=1e-12), BudgetError, "wider interval"),
    **{
        f"alpha={a!r}": (plan(alpha=a), CapabilityError, "alpha must be")
        for a in (0, 1, -1, np.nan, "a")
    },
    **{
        f"power={p!r}": (plan(power=p), CapabilityError, "power must be")
        for p in (0, 1, 0.01, np.nan, "a")
    },
    **{
        f"outcome_sd={s!r}": (plan(outcome_sd=s), CapabilityError, "outcome_sd must be")
        for s in (0, -1, 5, np.nan, np.inf, "1", True)
    },
    **{f"r2={r!r}": (plan(r2=r), CapabilityError, "r2 must be") for r in (-0.1, 1, 2, np.nan, "0")},
    **{
        f"treated={t!r}": (plan(treated=t), CapabilityError, "treated must be")
        for t in (0, 1, -1, np.nan, "0")
    },
    "learner": (plan(learner="z"), CapabilityError, "unknown"),
    "estimand": (plan(estimand="MEAN"), CapabilityError, "unknown"),
    "estimand of privcate": (
        plan(learner="r", estimand="ATT"),
        CapabilityError,
        "requires learner",
    ),
    "formula": (plan(formula="Y ~"), FormulaError, "treatment is missing"),
    "outcome bounds": (plan(bounds={"Y": (1, 0)}), SchemaError, "must come first"),
    "delta": (plan(delta=2), BudgetError, "delta must be"),
    "shares": (plan(control=pc.Control(shares={"tea": 1})), BudgetError, "cannot contain 'tea'"),
    "shares as a list": (plan(control=pc.Control(shares=[1])), BudgetError, "a dict"),
    "groups": (plan(groups=["X1"]), SchemaError, "X1 >= 65"),
    "neighbors": (plan(neighbors="both"), CapabilityError, "neighbors"),
    "max_rows": (plan(max_rows=5), BudgetError, "requires unit="),
}


def audit(**options: Any) -> Callable[[Any], Any]:
    formula = options.pop("formula", "Y ~ T | X1")
    return alone(lambda: pc.audit(formula, **({"bounds": BOUNDS, "trials": 10} | options)))


AUDITS: dict[str, Case] = {
    **{
        f"trials={t!r}": (audit(trials=t), CapabilityError, "trials must be a whole number")
        for t in (0, 1, -5, 2.0, 10**9, "10", None, True)
    },
    **{
        f"level={level!r}": (audit(level=level), CapabilityError, "level= must be a number")
        for level in (0, 1, 0.0, 1.0, -0.1, np.nan, "a", None)
    },
    **{
        f"rows={r!r}": (audit(rows=r), CapabilityError, "rows must be a whole number")
        for r in (0, 1, 1.5, 10**6, "5", True)
    },
    "statistic": (audit(statistic="best"), CapabilityError, "statistic= must be"),
    "a statistic that fails": (
        audit(statistic=lambda fit: fit.nothing, eps=2),
        CapabilityError,
        "failed with Attr",
    ),
    "a statistic of text": (
        audit(statistic=lambda _: "a", eps=2),
        CapabilityError,
        "failed with Value",
    ),
    "learner": (audit(learner="z"), CapabilityError, "unknown"),
    "an option": (audit(tea=1), CapabilityError, "has no argument tea="),
    "data": (audit(data=_study()), CapabilityError, "has no argument data="),
    "mode paper": (audit(mode="paper"), CapabilityError, "has no argument mode="),
    "undeclared column": (audit(formula="Y ~ T | Z"), CapabilityError, "a declared domain"),
    "no bounds": (audit(bounds=None), CapabilityError, "a declared domain"),
    "formula": (audit(formula="Y"), FormulaError, "start with an outcome"),
    "no text": (audit(formula=5), FormulaError, "A formula must be text"),
    "eps": (audit(eps=0), BudgetError, "eps must be"),
    "neighbors": (audit(neighbors="both"), CapabilityError, "neighbors"),
    "unit": (audit(unit=5), BudgetError, "name of a column"),
    "max_rows": (audit(unit="pid", max_rows="2"), BudgetError, "whole number"),
}

TABLE: dict[str, Any] = {
    "cell": ["a", "a", "b", "b"],
    "arm": [0, 1, 0, 1],
    "count": [10.0, 12.0, 9.0, 11.0],
    "sum": [1.0, 3.0, 2.0, 4.0],
}


def cells(*drop: str, declared: Any = ("a", "b"), **changes: Any) -> Callable[[Any], Any]:
    """`from_cells` on a table with columns left out or replaced; other names are options."""
    columns = {k: v for k, v in (TABLE | changes).items() if k in (*TABLE, "steps")}
    options = {k: v for k, v in changes.items() if k not in columns}
    frame = pd.DataFrame({k: v for k, v in columns.items() if k not in drop})
    return lambda ledger: pc.from_cells(frame, declared, ledger=ledger, **options)


FROM_CELLS: dict[str, Case] = {
    **{f"no {name}": (cells(name), DataError, "requires") for name in TABLE},
    "a missing cell": (cells(cell=["a", None, "b", "b"]), DataError, "has a missing value"),
    "an unknown cell": (
        cells(cell=["a", "a", RARE, "b"]),
        DataError,
        "that cells= does not declare",
    ),
    "an unknown arm": (cells(arm=[0, 2, 0, 1]), DataError, "unknown arm"),
    "a line twice": (cells(arm=[0, 0, 0, 1]), DataError, "two lines"),
    "a missing count": (cells(count=[1, np.nan, 1, 1]), DataError, "missing or infinite"),
    "an infinite sum": (cells(sum=[np.inf, 1, 1, 1]), DataError, "missing or infinite"),
    "a negative count": (cells(count=[-5, 1, 1, 1]), DataError, "negative count"),
    "half a row": (cells(count=[10.5, 12, 9, 11]), DataError, "not a whole number"),
    "an enormous count": (cells(count=[1e18, 12, 9, 11]), DataError, "exceeds 2"),
    "a sum beyond bounds": (cells(sum=[CANARY, 3, 2, 4]), DataError, "is impossible"),
    "a negative sum": (cells(sum=[-1, 3, 2, 4]), DataError, "is impossible"),
    "counts of text": (cells(count=["1", "2", "3", "4"]), DataError, "must be numeric"),
    "sums of text": (cells(sum=["a"] * 4), DataError, "must be numeric"),
    "no declared cells": (cells(declared=()), SchemaError, "No level is declared"),
    "cells as text": (cells(declared="ab"), SchemaError, "list all declared cells"),
    "cells of a number": (cells(declared=5), SchemaError, "list all declared cells"),
    "cells alike": (cells(declared=["a", "a", "b"]), SchemaError, "have the same text"),
    "the outcome": (cells(outcome=(1, 0)), SchemaError, "must come first"),
    "eps": (cells(eps=0), BudgetError, "eps must be"),
    "delta": (cells(delta=2), BudgetError, "delta must be"),
    "noise without eps": (cells(noise={"count": 1, "sum": 1}), BudgetError, "requires eps="),
    "noise with a ledger": (
        cells(noise={"count": 1, "sum": 1}, eps=1),
        CapabilityError,
        "Remove ledger=",
    ),
    "a learner with cells": (cells(learner=ADUM(cells=4)), CapabilityError, "Omit cells="),
    "another learner": (cells(learner="adum"), CapabilityError, "requires learner=pc"),
    "neighbors": (cells(neighbors="swap"), CapabilityError, "neighbors"),
    "propensity": (cells(propensity=2), SchemaError, "propensity"),
    "a list": (lambda ledger: pc.from_cells([1], ["a"], ledger=ledger), DataError, "cannot be"),
    **{
        f"noise={noise!r}": (
            lambda _, noise=noise: pc.from_cells(
                pd.DataFrame(TABLE), ["a", "b"], noise=noise, eps=1
            ),
            DataError,
            "noise= ",
        )
        for noise in ({}, {"count": 1}, {"count": 0, "sum": -1}, {"count": "1", "sum": 1}, 5, [1])
    },
}


# -- results, comparison, ledgers, schemas ----------------------------------------------------


@cache
def fit(learner: str = "r") -> Any:
    with seeded_noise(3):
        if learner == "private":
            return pc.private(FORMULA, study(), bounds=BOUNDS)
        return pc.privcate("Y ~ T | X1", study(), bounds=BOUNDS, learner=learner, base="linear")


def of(learner: str, use: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda _: use(fit(learner))


RESULTS: dict[str, Case] = {
    **{
        f"alpha={a!r}": (of("r", lambda f, a=a: f.conf_int(alpha=a)), CapabilityError, "alpha")
        for a in (0, 1, -0.1, np.nan, "a", None)
    },
    "summary's alpha": (of("r", lambda f: f.summary(alpha=2)), CapabilityError, "alpha"),
    "predict's alpha": (
        of("r", lambda f: f.predict({"X1": np.ones(1)}, 2)),
        CapabilityError,
        "alpha",
    ),
    "prediction of nothing": (of("r", lambda f: f.predict()), CapabilityError, "requires new data"),
    "prediction of a number": (of("r", lambda f: f.predict(5)), DataError, "cannot be read"),
    "prediction of dates": (of("r", lambda f: f.predict({"X1": study()["day"]})), *_TYPE),
    "unknown plot": (of("r", lambda f: f.plot("scatter")), CapabilityError, "Choices"),
    "plot of another type": (of("r", lambda f: f.plot(5)), CapabilityError, "Choices"),
    "plot on something else": (of("r", lambda f: f.plot("coef", ax=5)), CapabilityError, "axes"),
    "report's audience": (
        of("r", lambda f: f.report(folder() / "a.html", "everyone")),
        CapabilityError,
        "audience",
    ),
    "no cells": (of("r", lambda f: f.cells), CapabilityError, "has no cells"),
    "no uplift": (of("r", lambda f: f.uplift(study(), eps=1)), CapabilityError, "propensity="),
    "uplift's eps": (of("adum", lambda f: f.uplift(study(), eps=0)), BudgetError, "eps"),
    "uplift's frame": (of("adum", lambda f: f.uplift([1], eps=1)), DataError, "cannot be read"),
    "overlap's eps": (of("r", lambda f: f.overlap(study(), eps=-1)), BudgetError, "eps"),
    "overlap's frame": (of("r", lambda f: f.overlap(5, eps=1)), DataError, "cannot be read"),
    "balance's frame": (
        of("r", lambda f: f.balance(study()[["T"]], eps=1)),
        DataError,
        "not in the",
    ),
    "overlap's ledger": (
        of("r", lambda f: f.overlap(study(), eps=1, ledger=5)),
        LedgerError,
        "ledger",
    ),
    "no overlap of cells": (
        of("adum", lambda f: f.overlap(study(), eps=1)),
        CapabilityError,
        "released no propensity",
    ),
    "nuisances of cells": (
        of("adum", lambda f: f.nuisances),
        CapabilityError,
        "no nuisance models",
    ),
    "interpret of cells": (of("adum", lambda f: f.to_interpret()), CapabilityError, "not a sum"),
    "comparing nothing": (alone(lambda: pc.compare([])), CapabilityError, "at least one fit"),
    "comparing a number": (alone(lambda: pc.compare(5)), CapabilityError, "several fits"),
    "comparing texts": (alone(lambda: pc.compare(["a"])), CapabilityError, "cannot be compared"),
    "comparing rows": (alone(lambda: pc.compare([study()])), CapabilityError, "have the column"),
    "comparing None": (
        alone(lambda: pc.compare({"a": None})),
        CapabilityError,
        "cannot be compared",
    ),
    "unknown terms": (of("r", lambda f: pc.compare([f], terms=["tea"])), CapabilityError, "No fit"),
    "terms of text": (of("r", lambda f: pc.compare([f], terms="ATE")), CapabilityError, "list"),
    "unknown statistic": (
        of("r", lambda f: pc.compare([f], statistic="t")),
        CapabilityError,
        "statistic",
    ),
    "comparison's alpha": (of("r", lambda f: pc.compare([f], alpha=7)), CapabilityError, "alpha"),
    "loading nothing": (alone(lambda: pc.load("nothing.json")), DataError, "does not exist"),
    "loading rows": (alone(lambda: pc.load(folder() / "whole.parquet")), DataError, "not a fit"),
    "checking a number": (
        alone(lambda: pc.check_data(5, bounds=BOUNDS)),
        DataError,
        "cannot be read",
    ),
    "checking by a number": (
        alone(lambda: pc.check_data(study(), bounds=5)),
        SchemaError,
        "must be a dict",
    ),
}


def ledger_at(name: str, **options: Any) -> Any:
    return pc.Ledger(folder() / name, **({"dataset": "study", "eps": 1} | options))


LEDGERS: dict[str, Case] = {
    **{
        f"eps={e!r}": (alone(lambda e=e: ledger_at("l.db", eps=e)), BudgetError, "eps")
        for e in (0, -1, np.nan, np.inf, "1", None, True)
    },
    **{
        f"delta={d!r}": (alone(lambda d=d: ledger_at("l.db", delta=d)), BudgetError, "delta")
        for d in (1, -1, np.nan, "1")
    },
    **{
        f"dataset={d!r}": (
            alone(lambda d=d: ledger_at("l.db", dataset=d)),
            LedgerError,
            "a label of the data",
        )
        for d in ("", 5, None, "a\nb")
    },
    "no folder": (
        alone(lambda: pc.Ledger("/no/such/place.db", "a", eps=1)),
        LedgerError,
        "not exist",
    ),
    "a folder": (
        alone(lambda: pc.Ledger(folder() / "void", "a", eps=1)),
        LedgerError,
        "is not a file",
    ),
    "a path of a number": (
        alone(lambda: pc.Ledger(5, "a", eps=1)),
        LedgerError,
        "a string or a path",
    ),
    "a file of rows": (alone(lambda: ledger_at("whole.parquet")), LedgerError, "not a ledger"),
    "opening nothing": (
        alone(lambda: pc.Ledger.open(folder() / "no.db")),
        LedgerError,
        "is missing",
    ),
    "published of text": (
        alone(lambda: ledger_at("l.db", allow_published="yes")),
        LedgerError,
        "True or False",
    ),
}

SCHEMAS: dict[str, Case] = {
    "an interval reversed": (made(lambda: pc.Interval(1, 0)), SchemaError, "must come first"),
    "an interval of text": (made(lambda: pc.Interval("0", "1")), SchemaError, "two numbers"),
    "an interval of nan": (made(lambda: pc.Interval(np.nan, 1)), SchemaError, "finite"),
    "levels of nothing": (made(lambda: pc.Levels([])), SchemaError, "No level"),
    "levels of a number": (made(lambda: pc.Levels(5)), SchemaError, "must be a list"),
    "levels of a text": (made(lambda: pc.Levels("ab")), SchemaError, "must be a list"),
    "other=2": (made(lambda: pc.Levels(["a"], other=2)), SchemaError, "other must be"),
    "three of two": (made(lambda: pc.Binary(["a", "b", "c"])), SchemaError, "two labels, not 3"),
    "two alike": (made(lambda: pc.Binary(["1", 1])), SchemaError, "have the same text"),
    "a reference that is none": (
        made(lambda: pc.Binary(["a", "b"], ref="c")),
        SchemaError,
        "not among",
    ),
    "complete=2": (made(lambda: pc.Schema({}, complete=2)), SchemaError, "complete"),
    "a keyword of a class method": (
        made(lambda: pc.Schema.from_dict(contents={})),
        CapabilityError,
        "Write content=",
    ),
    "a name of a number": (made(lambda: pc.Schema({5: (0, 1)})), SchemaError, "must be text"),
    "a domain of a set": (made(lambda: pc.Schema({"a": {1, 2}})), SchemaError, "A domain must be"),
    "a domain of a dict": (made(lambda: pc.Schema({"a": {"tea": 1}})), SchemaError, "has the keys"),
    "TOML of nothing": (
        made(lambda: pc.Schema.from_toml("no.toml")),
        SchemaError,
        "cannot be read",
    ),
    "TOML of rows": (
        made(lambda: pc.Schema.from_toml(folder() / "whole.parquet")),
        SchemaError,
        "is not valid TOML",
    ),
    "no such column": (made(lambda: pc.Schema({"a": (0, 1)})["b"]), SchemaError, "no declared"),
    "types of a number": (made(lambda: pc.Schema.from_dtypes(5)), SchemaError, "cannot be read"),
    "trade-off at eps=-1": (made(lambda: pc.TradeOff.from_dp(-1.0)), BudgetError, "epsilon of a"),
    "trade-off at delta=2": (
        made(lambda: pc.TradeOff.from_dp(1.0, 2.0)),
        BudgetError,
        "delta of a",
    ),
    "trade-off at mu=nan": (made(lambda: pc.TradeOff.from_gaussian(np.nan)), BudgetError, "mu of"),
    "trade-off at rho=-1": (made(lambda: pc.TradeOff.from_zcdp(-1.0)), BudgetError, "rho of a"),
    "trade-off of nothing": (made(pc.TradeOff.minimum), BudgetError, "at least one"),
    **{
        f"clinic of {n!r}": (made(lambda n=n: pc.datasets.clinic(n)), DataError, "number of rows")
        for n in (0, -1, 1.5, "5")
    },
    "an unknown setup": (made(lambda: pc.datasets.niu("Z")), CapabilityError, "is unknown"),
    "an unknown data set": (made(lambda: pc.datasets.dpcate(7)), CapabilityError, "is unknown"),
}


# -- words that help -------------------------------------------------------------------------


def event_study(data: Any = None, **options: Any) -> Callable[[Any], Any]:
    """`did` with cohorts, on a panel of the study."""
    kept = study(pid=range(N), first=[0, 2001] * (N // 2))
    panel = pd.concat([kept.assign(year=year) for year in range(2000, 2003)])
    given = {"unit": "pid", "time": "year", "cohort": "first", "periods": [2000, 2001, 2002]}
    declared = {"bounds": {"Y": (0, 1), "first": [0, 2001, 2002]}}
    return lambda ledger: pc.did(
        "Y ~ 1",
        panel if data is None else data(panel),
        **(given | declared | options),
        ledger=ledger,
    )


def hive() -> Path:
    place = folder() / "hive"
    if not place.exists():
        _study().drop(columns="day").to_parquet(place, partition_cols=["T"])
    return place


WORDS: dict[str, Case] = {
    "a product as treatment": (ate("Y ~ T * arm"), FormulaError, "D = treated \\* post"),
    "a factor as treatment": (ate("Y ~ C(arm, ref='no')"), FormulaError, "the reference first"),
    "an instrument twice": (
        ate("Y ~ T | X1 | T ~ arm + arm", estimand="LATE"),
        FormulaError,
        "'arm' is written twice",
    ),
    "a name in Q()": (ate("Y ~ T | Q('X 1')"), FormulaError, "backticks: `X 1`"),
    "controls of cohorts": (event_study(control_group="never"), CapabilityError, "^control_group="),
    "groups of cohorts": (event_study(groups=["G"]), CapabilityError, "has no groups=. Fit"),
    "a cohort between the periods": (
        event_study(periods=[2000, 2002]),
        SchemaError,
        "2001 of 'first' lies between the periods. Recode it to the next period, 2002",
    ),
    "a cohort before the periods": (
        event_study(bounds={"Y": (0, 1), "first": [1999, 2001]}),
        SchemaError,
        "1999 of 'first' does not come after the last period.*leave it out of bounds=",
    ),
    "a cohort that has no place among the periods": (
        event_study(bounds={"Y": (0, 1), "first": ["wave 0", 2001]}),
        SchemaError,
        "wave 0 of 'first' does not come after the last period.*0 or 'never'",
    ),
    "a text of periods": (
        event_study(periods="2000, 2001"),
        SchemaError,
        "periods= must be a list or a range",
    ),
    "periods in descending order": (
        event_study(periods=[2002, 2001, 2000]),
        SchemaError,
        "ascending",
    ),
    "a missing cohort": (
        event_study(bounds={"Y": (0, 1), "first": [np.nan, 2001]}),
        SchemaError,
        r"fillna\(0\), and declare",
    ),
    "a unit in the index": (
        event_study(lambda panel: panel.set_index(["pid", "year"])),
        DataError,
        r"reset_index\(\)",
    ),
    "a covariate in the index": (ate(data=study().set_index("X1")), FormulaError, "reset_index"),
    "a sparse column": (
        ate(data=study(X1=pd.arrays.SparseArray(np.zeros(N)))),
        DataError,
        r"sparse.to_dense\(\)",
    ),
    "a column of folders": (late(hive), FormulaError, "'T' is not a column.*hive_partitioning"),
    "no horizon": (
        ate("Surv(Y, T) ~ arm", estimand="RMST"),
        CapabilityError,
        "the end of the follow-up, for example horizon=180, in the units of 'Y'",
    ),
}


# -- the command line ------------------------------------------------------------------------


class Refused(PrivcausalError):
    """What the command line said before it left with the code of a wrong input."""


def command(spec: str | None, *words: str) -> Callable[[Any], Any]:
    """A command with a spec file, whose ledger is the one that is watched."""

    def run(ledger: Any) -> Any:
        place = folder() / "spec.toml"
        watched = f'[ledger]\npath = "{ledger._store.path}"\ndataset = "study"\neps = 5\n'
        place.write_text((spec or "") + watched)
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            try:
                code = cli.main([str(folder() / w) if w in HERE else w for w in words])
            except SystemExit as leave:
                code = leave.code
        if code == cli.WRONG_INPUT:
            raise Refused(said.getvalue())
        raise AssertionError(f"exit code {code}: {said.getvalue()}")

    return run


HERE = {"spec.toml", "whole.parquet", "cut.parquet", "ragged.csv", "latin.csv", "nothing.csv"}
SPEC = 'formula = "Y ~ T | X1"\n{}\n[bounds]\nY = [0, 1]\nX1 = [0, 10]\n'
COMMANDS: dict[str, Case] = {
    **{
        f"fit with {line!r}": (
            command(SPEC.format(line), "fit", "spec.toml", "whole.parquet"),
            Refused,
            "Error",
        )
        for line in (
            "eps = 0",
            "eps = nan",
            'eps = "1"',
            "delta = 1",
            'learner = "z"',
            'base = "forest"',
            'neighbors = "swap"',
            'split = "half"',
            'unit = "nobody"',
            "max_rows = 3",
            "propensity = 2",
            "propensity_clip = 0.5",
            'groups = ["X1"]',
            "tea = 1",
            "shares = {tea = 1}",
            'mode = "best"',
            'complete = "yes"',
        )
    },
    "a broken spec": (command("formula = ", "fit", "spec.toml", "whole.parquet"), Refused, "TOML"),
    "no formula": (command("eps = 1\n", "fit", "spec.toml", "whole.parquet"), Refused, "formula"),
    "a file cut off": (
        command(SPEC.format(""), "fit", "spec.toml", "cut.parquet"),
        Refused,
        "not a complete",
    ),
    "a short line": (
        command(SPEC.format(""), "fit", "spec.toml", "ragged.csv"),
        Refused,
        "not a complete",
    ),
    "another encoding": (
        command(SPEC.format(""), "fit", "spec.toml", "latin.csv"),
        Refused,
        "not a complete",
    ),
    "no data": (command(SPEC.format(""), "fit", "spec.toml", "nothing.csv"), Refused, "no file"),
    "no command": (command(None), Refused, "required"),
    "an unknown command": (command(None, "forecast"), Refused, "invalid choice"),
    "a plan of no rows": (
        command(SPEC.format(""), "plan", "spec.toml", "--n", "0"),
        Refused,
        "from 10",
    ),
    "a plan of text": (command(SPEC.format(""), "plan", "spec.toml", "--n", "a"), Refused, "int"),
    "an audit of no trials": (
        command(SPEC.format(""), "audit", "spec.toml", "--trials", "0"),
        Refused,
        "trials",
    ),
    "a report of rows": (
        command(None, "report", "whole.parquet", "out.html"),
        Refused,
        "not a fit",
    ),
}


# -- panels and slopes: facts of the call that once were found only after the charge ---------------


def panel(formula: str = "Y ~ T", **options: Any) -> Callable[[Any], Any]:
    """`did` on two rows of each unit, waiting for a ledger."""
    frame = study(year=np.arange(N) % 2 + 2018, y=np.arange(N) % 7, day="2018-01-01")
    own = {"unit": "pid", "time": "year", "periods": (2018, 2019), "bounds": {"Y": (0, 1)}}
    return lambda ledger: pc.did(formula, frame, **(own | options), ledger=ledger)


def events(count: int = 4, **options: Any) -> Callable[[Any], Any]:
    """An event study of yearly periods with a cohort in each but the first."""
    years = list(range(2000, 2000 + count))
    own = {"time": "X1", "cohort": "P", "periods": years}
    return panel("Y ~ 1", **(own | {"bounds": {"Y": (0, 1), "P": [0, *years[1:]]}} | options))


def slope(formula: str, estimand: str = "LATE", **options: Any) -> Callable[[Any], Any]:
    frame = study(Z=np.arange(N) % 2, Z2=np.arange(N) % 3)
    return ate(formula, frame, estimand=estimand, **options)


def robust(call: Callable[..., Callable[[Any], Any]], *words: Any, **options: Any) -> Case:
    control = pc.Control(cov_type="HC0")
    return call(*words, control=control, **options), CapabilityError, "Omit cov_type="


_ORDER = (SchemaError, "ascending order")
_CASE = (SchemaError, "differ only in upper and lower case")
_WIDE = pd.DataFrame({f"V{k}": np.linspace(0, 1, N) for k in range(400)})

PANELS: dict[str, Case] = {
    "periods backwards": (panel(periods=(2019, 2018)), *_ORDER),
    "periods backwards as text": (panel(periods=("2019", "2018")), *_ORDER),
    "dates backwards": (panel(time="day", periods=("2019-01-01", "2018-01-01")), *_ORDER),
    "levels backwards": (
        panel(periods=None, bounds={"Y": (0, 1), "year": ["2019", "2018"]}), *_ORDER,
    ),
    "an event study backwards": (events(periods=[2003, 2002, 2001, 2000]), *_ORDER),
    "a cluster in other case": (
        panel(control=pc.Control(cluster="y", max_cluster_rows=9)), *_CASE,
    ),
    "a covariate in other case": (panel("Y ~ T | y", bounds={"Y": (0, 1), "y": (0, 6)}), *_CASE),
    "a group in other case": (panel(groups=["y"], bounds={"Y": (0, 1), "y": [0, 1]}), *_CASE),
    "too many periods": (events(120), CapabilityError, "Use fewer periods or cohorts"),
    "too many smooth columns": (
        ate(f"Y ~ T | {' + '.join(_WIDE)}", pd.concat([study(), _WIDE], axis=1),
            bounds={"Y": (0, 1)} | dict.fromkeys(_WIDE, (0, 1))),
        CapabilityError, "makes 1,200 columns",
    ),
    "robust slope": robust(slope, "Y ~ X1 | T", estimand="PLR"),
    "robust LATE": robust(slope, "Y ~ T | X1 | T ~ Z"),
    "robust arms": robust(slope, "Y ~ Z2 | X1", estimand="ATE", bounds=bounds(Z2=[0, 1, 2])),
    "robust trial": robust(ate, "Y ~ T"),
    "robust cells": robust(cate, "Y ~ T | X1", learner="adum"),
    "robust events": robust(events),
    "an instrument twice": (slope("Y ~ T | X1 | T ~ Z + Z"), FormulaError, "written twice"),
    "an instrument as dummies": (slope("Y ~ T | X1 | T ~ C(Z2)"), FormulaError, "one column name"),
    "an instrument among covariates": (slope("Y ~ T | Z | T ~ Z"), FormulaError, "another role"),
}  # fmt: skip


def families() -> Iterator[tuple[str, dict[str, Case]]]:
    """The tables of this module by the kind of call."""
    yield from (
        ("files", FILES),
        ("sources", SOURCES),
        ("types", TYPES),
        ("cells", CELLS),
        ("bases", KERNEL),
        ("plan", PLANS),
        ("audit", AUDITS),
        ("from_cells", FROM_CELLS),
        ("results", RESULTS),
        ("ledger", LEDGERS),
        ("schemas", SCHEMAS),
        ("words", WORDS),
        ("command", COMMANDS),
        ("panels", PANELS),
    )
