"""Wrong calls and their answers: the table `wrong_calls.txt`, and what its calls are made of.

A section of the table is a kind of call. An answer is the class of the error and words of its
message; it stands behind its call, or below several. A line that is indented by eight goes on the
one above. `CALL  for x in VALUES`, with two spaces, is a call for each value. Calls take a ledger,
which nothing of the table may charge. In the section `first`, the answer is the whole message.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime  # noqa: F401 - in the table
import io
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from text_type import TEXT

import privcausal as pc
from privcausal import cli, errors
from privcausal.errors import PrivcausalError
from privcausal.testing import seeded_noise

CANARY, RARE = 77310.4142, "CANARY_ZQX"
N = 60
FORMULA = "Y ~ T | X1 + C(G)"
BOUNDS: dict[str, Any] = {"Y": (0, 1), "X1": (0, 10), "G": ["a", "b"]}


class Case(NamedTuple):
    """A call that takes a ledger, the class of its error, and words of its message."""

    call: Callable[[Any], Any]
    error: type[PrivcausalError]
    words: str


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
        refused = isinstance(self.error, case.error) and re.search(case.words, str(self.error))
        return bool(refused) and self.charged == 0 and self.seconds < 10 and not self.shows_a_row


def tried(case: Case, ledger: Any) -> Tried:
    """Make a wrong call. What is printed counts as said; seconds are of this process alone."""
    before, start = len(ledger.history), time.process_time()
    error, said = None, io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            made = case.call(ledger)
            if callable(made):  # a fit that waits for its ledger
                made(ledger)
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
    columns = {"Y": rng.random(N), "T": rng.integers(0, 2, N), "X1": rng.uniform(0, 10, N)}
    columns |= {"G": rng.choice(["a", "b"], N), "P": rng.uniform(0.3, 0.6, N)}
    columns |= {"arm": rng.choice(["no", "yes"], N), "pid": [f"id{i // 2}" for i in range(N)]}
    frame = pd.DataFrame(columns | {"day": pd.Timestamp("2020-01-01")})
    frame.loc[7, ["Y", "X1", "P"]] = CANARY
    frame.loc[7, ["G", "arm", "pid"]] = RARE
    return frame


def study(**columns: Any) -> pd.DataFrame:
    return _study().copy().assign(**columns)


def fitted(call: Any) -> Callable[..., Callable[[Any], Any]]:
    """A fit of the study, or of other data, that waits for its ledger."""

    def made(formula: str = FORMULA, data: Any = None, **options: Any) -> Callable[[Any], Any]:
        frame = study() if data is None else data
        return lambda ledger: call(formula, frame, **{"bounds": BOUNDS} | options, ledger=ledger)

    return made


ate, cate, paper = fitted(pc.private), fitted(pc.privcate), fitted(pc.paper.private)
reg, dp, tm = fitted(pc.regress), fitted(pc.paper.dpcate), fitted(pc.paper.tm)


def bounds(**columns: Any) -> dict[str, Any]:
    return BOUNDS | columns


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
    return ate(data=folder() / name, **options)


# -- DuckDB and other sources ----------------------------------------------------------------


@cache
def _connection() -> Any:
    import duckdb

    connection = duckdb.connect()
    connection.register("frame", _study())
    return connection


atexit.register(_connection.cache_clear)  # or it would be open until after Python's end


def sql(query: str, formula: str = FORMULA, **options: Any) -> Callable[[Any], Any]:
    return ate(formula, _connection().sql(query), **options)


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


# -- types of columns ------------------------------------------------------------------------


def typed(make: Callable[[pd.DataFrame], Any], name: str = "Z") -> Callable[[Any], Any]:
    """A fit by a column of a type that cannot be read."""
    return ate(f"Y ~ T | {name}", make(study()))


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


# -- learners and bases ----------------------------------------------------------------------


def adum(learner: Any = "adum", formula: str = "Y ~ T | X1", **options: Any) -> Any:
    return cate(formula, learner=learner, **options)


ADUM, TM, DPCATE = pc.learners.ADUM, pc.learners.TM, pc.learners.DPCATE


# -- plans, audits, tables of cells ----------------------------------------------------------


def plan(formula: str = FORMULA, **options: Any) -> Any:
    return pc.plan(formula, **({"bounds": BOUNDS, "n": 100} | options))


def audit(formula: Any = "Y ~ T | X1", **options: Any) -> Any:
    return pc.audit(formula, **({"bounds": BOUNDS, "trials": 10} | options))


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


# -- results, comparison, ledgers, schemas ----------------------------------------------------


@cache
def fit(learner: str = "r") -> Any:
    with seeded_noise(3):
        if learner == "private":
            return pc.private(FORMULA, study(), bounds=BOUNDS)
        return pc.privcate("Y ~ T | X1", study(), bounds=BOUNDS, learner=learner, base="linear")


def ledger_at(name: str, **options: Any) -> Any:
    return pc.Ledger(folder() / name, **({"dataset": "study", "eps": 1} | options))


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


def timed(formula: str = "Surv(days, died) ~ T", **options: Any) -> Callable[[Any], Any]:
    frame = study(days=1.0 + np.arange(N), died=np.arange(N) % 2)
    own = {"estimand": "RMST", "horizon": 100, "bounds": {"X1": (0, 10)}}
    return ate(formula, frame, **(own | options))


NUMBERS = {f"Z{i}": np.arange(N) for i in range(4)}  # beside P, and the text of G
CODED = {"T": _study()["T"].to_numpy() + 1}
ROBUST, BY_G = pc.Control(cov_type="HC0"), pc.Control(cluster="G", max_cluster_rows=9)
KERNEL, AT = pc.bases.Sklearn.kernel(), {"X1": np.array([2.0, 5.0])}
GIVEN = pc.bases.Given(*[lambda x: np.full(len(x), 0.5)] * 3)
NOISE = {"count": 2, "sum": 2}
local_secret = "a local variable"
_WIDE = pd.DataFrame({f"V{k}": np.linspace(0, 1, N) for k in range(400)})


# -- the table -------------------------------------------------------------------------------


KINDS = vars(errors) | {"Refused": Refused}


def _table() -> tuple[dict[str, Case], dict[str, str]]:
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    cases, first, above, kind = dict[str, Case](), dict[str, str](), list[str](), ""
    for line in text.replace("\n        ", " ").splitlines():
        call, answered, answer = (part.strip() for part in line.partition("-> "))
        if line.startswith("["):
            kind = line.strip("[]")
        elif call:
            above.append(call)
        if not answered:
            continue
        if kind == "first":
            first[above.pop()] = answer
        error, _, words = answer.partition(": ")
        for call in above:
            made = {f"{kind}: {n}": Case(f, KINDS[error], words) for n, f in _calls(call)}
            assert not made.keys() & cases.keys(), f"two alike: {call}"
            cases |= made
        above = []
    return cases, first


def _calls(text: str) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """The calls of a row, each by its name: one, or one for each of its values."""
    call, several, rest = text.partition("  for ")
    if not several:
        yield call, eval(f"lambda ledger: {call}", globals())
    names, _, values = rest.partition(" in ")
    if several:
        each = f"(lambda {names}: lambda ledger: {call})({names})"
        made = eval(f"[{each} for {names} in {values}]", globals())
        yield from ((f"{call} {number}", one) for number, one in enumerate(made))


CASES, FIRST = _table()
