"""Spark DataFrames on two local executors: the numbers of memory to the bit, and only sums."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import refused, replayed

import privcausal as pc
from privcausal import testing
from privcausal.errors import CapabilityError, DataError, PrivcausalError
from privcausal.vault.sources.spark import _FUNCTIONS, Spark

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.extra("spark")

FORMULA = "Y ~ T | X1 + C(G) | Z"
BOUNDS: dict[str, Any] = {"Y": (-3, 4), "X1": (0, 1), "Z": (0, 9), "G": ["a", "b"]}
N = 600


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    columns = {"Y": rng.normal(0, 1, N), "T": rng.integers(0, 2, N)}
    columns["X1"] = rng.uniform(-0.1, 1.1, N).astype(np.float32)
    columns["G"] = rng.choice(["a", "b", "new"], N).astype(object)
    columns |= {"Z": rng.integers(0, 10, N).astype(float), "pid": [f"u{i // 3}" for i in range(N)]}
    frame = pd.DataFrame(columns)
    frame.loc[3, "X1"], frame.loc[4, "Y"], frame.loc[5, "G"] = np.nan, np.nan, None
    return frame


@pytest.fixture(scope="module")
def session() -> Any:
    from pyspark.sql import SparkSession

    kept = {k: os.environ.get(k) for k in ("PYSPARK_PYTHON", "PYTHONPATH")}
    # executors run this interpreter, with the package as it is here
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.task.maxFailures": "1",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()
    for name, value in kept.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture(scope="module")
def frame(session: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    file = tmp_path_factory.mktemp("spark") / "rows.parquet"
    rows().to_parquet(file)
    return session.read.parquet(str(file)).repartition(3)


def document(
    data: Any, folder: Path, formula: str = FORMULA, call: Any = pc.private, **options: Any
) -> bytes:
    with testing.seeded_noise(3):
        fit = call(formula, data, **{"bounds": BOUNDS} | options)
    fit.save(folder / "fit.json")
    return (folder / "fit.json").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"groups": ["G"]},
        {"unit": "pid", "max_rows": 3, "control": pc.Control(split="disjoint")},
        {"unit": "pid", "max_rows": 3, "control": pc.Control(split="crossfit")},
    ],
    ids=["rows", "units in parts", "units in folds"],
)
def test_every_byte_of_the_fit_is_that_of_memory(options: Any, frame: Any, tmp_path: Path) -> None:
    assert document(frame, tmp_path, **options) == document(rows(), tmp_path, **options)


PANELS: dict[str, tuple[str, dict[str, Any]]] = {
    "changes": (FORMULA, {"periods": (2018, 2019), "control": pc.Control(split="disjoint")}),
    "cohorts": ("Y ~ 1", {"periods": [2018, 2019, 2020], "cohort": "first", "eps": 8}),
}


@pytest.mark.parametrize("kind", PANELS)
def test_rows_of_units_are_those_of_memory(kind: str, session: Any, tmp_path: Path) -> None:
    """Two rows of most units, some with one, or treated before, or of another year."""
    long = rows().rename(columns={"T": "arm"}).assign(year=2018 + np.arange(N) % 3)
    long["T"] = np.where(long["year"] == 2019, long["arm"], 0).astype(float)
    long.loc[0, "T"], long.loc[7, "year"], long.loc[10, "pid"] = 1.0, 2018, None
    long = long.drop(columns="arm").assign(first=2018 + 2 * (np.arange(N) // 3 % 2))
    formula, options = PANELS[kind]
    bounds = BOUNDS | ({"first": ["2018", "2019", "2020", "2030"]} if kind == "cohorts" else {})
    long.loc[40:, "first"] += 10 * (np.arange(N - 40) // 3 % 3 == 0)
    long.to_parquet(tmp_path / "long.parquet")
    frame = session.read.parquet(str(tmp_path / "long.parquet")).repartition(3)
    given = {"unit": "pid", "time": "year", "bounds": bounds, **options}
    one, two = (document(data, tmp_path, formula, pc.did, **given) for data in (frame, long))
    assert one == two


def test_rows_of_units_in_sparks_order_are_the_first_ones_everywhere(
    frame: Any, tmp_path: Path
) -> None:
    """By position in memory and in a file, by the values of the columns that are used on Spark."""
    used = sorted(["Y", "T", "X1", "G", "Z"])
    table = rows()
    table["X1"] = table["X1"].fillna(0.5)  # pandas and Spark put what is missing elsewhere
    table["G"] = table["G"].fillna("new")
    table["Y"] = table["Y"].fillna(0.0)
    table = table.sort_values(["pid", *used]).reset_index(drop=True)
    table.to_parquet(tmp_path / "t.parquet")
    mixed = frame.sparkSession.read.parquet(str(tmp_path / "t.parquet")).repartition(3)
    options = {"unit": "pid", "max_rows": 2, "control": pc.Control(split="disjoint")}
    expected = document(table, tmp_path, **options)
    assert document(table[::-1], tmp_path, **options) != expected
    assert document(tmp_path / "t.parquet", tmp_path, **options) == expected
    assert document(mixed, tmp_path, **options) == expected


def test_rows_whose_number_is_private_are_not_counted(frame: Any, broken: Any) -> None:
    """It would be a pass over the table, and nobody may be told."""
    with broken("vault.sources.spark.Spark.size", AssertionError()):
        fit = pc.private("Y ~ T", frame, bounds=BOUNDS, neighbors="add_remove", progress=True)
    assert fit.params.notna().all()


@pytest.mark.parametrize("split", ["disjoint", "crossfit"])
def test_parts_need_a_key(split: Any, frame: Any, unspent: Any) -> None:
    control = pc.Control(split=split)
    with pytest.raises(CapabilityError, match="requires a row key"):
        pc.private(FORMULA, frame, bounds=BOUNDS, ledger=unspent, control=control)


def another(session: Any) -> Any:
    """A session that prefers its functions to Spark's, as older versions always do."""
    other = session.newSession()
    other.conf.set("spark.sql.functionResolution.sessionOrder", "first")
    return other


@pytest.fixture
def shadowed(session: Any) -> Any:
    """A session whose functions replace all of Spark's that the vault does not check by name."""
    other = another(session)
    names = {name for (name,) in other.sql("SHOW SYSTEM FUNCTIONS").collect()}
    operators = {"isNotNull", "isNull", "<=", "<", "==", "=", "!=", "and", "or", "not", "-", "+"}
    for name in (names | operators) - set(_FUNCTIONS):
        other.udf.register(name, lambda *_: 7, "int")
    return other


def test_a_session_that_replaces_functions_is_refused(
    session: Any, tmp_path: Path, unspent: Any
) -> None:
    rows().to_parquet(tmp_path / "rows.parquet")
    for name in _FUNCTIONS:
        other = another(session)
        other.udf.register(name, lambda *_: 7, "int")
        table = other.read.parquet(str(tmp_path / "rows.parquet"))
        with pytest.raises(CapabilityError, match=f"another function named '{name}'"):
            pc.private(FORMULA, table, bounds=BOUNDS, ledger=unspent)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["units", "units of numbers", "changes", "levels"])
def test_a_session_cannot_redefine_the_sums(kind: str, shadowed: Any, tmp_path: Path) -> None:
    """All other functions are replaced, and the sums are those of memory."""
    table = rows().rename(columns={"T": "arm"}).assign(year=2018 + np.arange(N) % 3)
    table["T"] = np.where(table["year"] == 2019, table["arm"], 0).astype(float)
    table["number"] = np.where(table["pid"] == "u7", np.nan, np.arange(N) // 3)
    table.to_parquet(tmp_path / "rows.parquet")
    shadow = shadowed.read.parquet(str(tmp_path / "rows.parquet"))
    assert shadow.selectExpr("sqrt(Z)").first()[0] == 7
    few = {"bounds": {"Y": (-3, 4), "X1": (0, 1)}, "eps": 40.0}
    options: dict[str, Any] = {
        "units": {"unit": "pid", "max_rows": 3, "bounds": BOUNDS},
        "units of numbers": {"unit": "number", "max_rows": 3, "bounds": BOUNDS},
        "changes": {"unit": "pid", "time": "year", "periods": (2018, 2019), "bounds": BOUNDS},
        "levels": few,
    }[kind]
    call = pc.did if kind == "changes" else pc.private
    found = []
    for data in (shadow, table):
        with testing.recorded(3) as kept:
            call("Y ~ T | X1 + C(G)", data, **options)
        found.append([(one.query.name, np.asarray(one.exact).tolist()) for one in kept.calls])
    assert found[0] == found[1]


def test_what_holds_rows_names_what_does_not(frame: Any) -> None:
    with pytest.raises(CapabilityError, match="stay on its executors"):
        pc.check_data(frame, bounds=BOUNDS)
    with pytest.raises(CapabilityError, match="base='gam' or 'linear'"):
        pc.privcate(FORMULA, frame, bounds=BOUNDS, base="dpebm")


def test_an_executor_that_fails_leaves_the_fit_paid_for(frame: Any, charged: Any) -> None:
    from pyspark.sql import functions as f

    failing = frame.withColumn(
        "Y", f.when(f.col("Y") > 1, f.raise_error(f.lit("77310"))).otherwise(f.col("Y"))
    )
    with refused(DataError, "Spark job failed", 77310):
        pc.private(FORMULA, failing, bounds=BOUNDS, ledger=charged)


def test_ctrl_c_leaves_the_fit_paid_for(frame: Any, charged: Any, monkeypatch: Any) -> None:
    """Spark's own handler stops the jobs and raises what is raised here."""

    def pressed(_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(frame), "collect", pressed)
    with refused(KeyboardInterrupt, "Any budget already charged stays spent"):
        pc.private(FORMULA, frame, bounds=BOUNDS, ledger=charged)


def test_what_is_drawn_by_lot_is_refused_where_it_is_read(frame: Any, unspent: Any) -> None:
    """Each sum would see other rows, and under a split a unit would change its part."""
    from pyspark.sql import functions as f

    names = ["Y", "T", "pid"]
    unsure = f.udf(lambda y: y, "double").asNondeterministic()
    for column in (f.rand(), f.expr("uuid()"), unsure("Y"), f.monotonically_increasing_id()):
        assert not Spark(frame.withColumn("Y", column)).repeats(names)
        assert Spark(frame.withColumn("unused", column)).repeats(names)
    assert not Spark(frame.where(f.rand() < 0.5)).repeats(names)
    drawn = frame.withColumn("pid", f.floor(f.rand() * 100))
    options = {"bounds": BOUNDS, "ledger": unspent, "unit": "pid", "max_rows": 1}
    for control in (pc.Control(split="disjoint"), pc.Control()):
        with pytest.raises(CapabilityError, match="random function"):
            pc.private(FORMULA, drawn, control=control, **options)


def by_order(frame: Any) -> dict[str, Any]:
    """Frames whose rows depend on the order or the placement of rows; classic and Connect alike."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    ordered = Window.partitionBy("pid").orderBy("Z")
    of_units = frame.groupBy("pid").agg
    rest = [f.max(name).alias(name) for name in ("T", "X1", "G", "Z")]
    return {
        "limit": frame.limit(50),
        "sorted limit": frame.orderBy("Z").limit(50),
        "offset": frame.offset(50),
        "sample": frame.sample(0.5, seed=1),
        "any row of a unit": frame.dropDuplicates(["pid"]),
        "first": of_units(f.first("Y").alias("Y"), *rest),
        "last": of_units(f.last("Y").alias("Y"), *rest),
        "any value": of_units(f.any_value("Y").alias("Y"), *rest),
        "a list": of_units(f.element_at(f.collect_list("Y"), 1).alias("Y"), *rest),
        "by the largest": of_units(f.max_by("Y", "Z").alias("Y"), *rest),
        "number of a row": frame.withColumn("n", f.row_number().over(ordered)).where("n = 1"),
        "row before": frame.withColumn("Y", f.lag("Y").over(ordered)),
        "sum of the rows before": frame.withColumn(
            "Y", f.sum("Y").over(ordered.rowsBetween(-2, 0))
        ),
        "sum and rank": frame.withColumn("n", f.rank().over(ordered)).withColumn(
            "Y", f.col("n") + f.sum("Y").over(ordered.rowsBetween(Window.unboundedPreceding, 0))
        ),
        "largest of the rows after": frame.withColumn(
            "Y", f.max("Y").over(ordered.rowsBetween(0, 1))
        ),
        "function of a group": frame.groupBy("pid").applyInPandas(
            lambda g: g.head(1), frame.schema
        ),
        "function of a pair of groups": frame.groupBy("pid")
        .cogroup(frame.groupBy("pid"))
        .applyInPandas(lambda g, _: g.head(1), frame.schema),
        "current time": frame.where(f.current_timestamp() > f.lit("2020-01-01").cast("timestamp")),
        "today": frame.withColumn("Z", f.datediff(f.current_date(), f.lit("2020-01-01"))),
        "limit inside": frame.join(frame.limit(9).select("pid"), "pid", "left_semi"),
    }


def settled(frame: Any) -> dict[str, Any]:
    """Frames that look alike and are the same each time."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    whole = Window.partitionBy("pid")
    wide = frame.select("*", *[(f.col("Z") + k).alias(f"Z{k}") for k in range(40)])
    return {
        "rows": frame.where("Z > 3").repartition(4),
        "a time": frame.where(f.lit("2020-01-01").cast("timestamp").isNotNull()),
        "distinct": frame.distinct(),
        "largest": frame.groupBy("pid").agg(*[f.max(c).alias(c) for c in ("Y", "T", "X1", "Z")]),
        "mean": frame.withColumn("X1", f.avg("X1").over(whole)),
        "rank": frame.withColumn("n", f.rank().over(whole.orderBy("Z"))).where("n = 1"),
        "all ranks": frame.withColumn(
            "Y", f.rank().over(whole.orderBy("Z", f.desc("X1")))
        ).withColumn(
            "T", f.percent_rank().over(whole.orderBy("Z")) + f.dense_rank().over(whole.orderBy("Z"))
        ),
        "sum up to equals": frame.withColumn("Y", f.sum("Y").over(whole.orderBy("Z"))),
        "sum of all rows": frame.withColumn(
            "Y",
            f.sum("Y").over(
                whole.orderBy("Z").rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
            ),
        ),
        "union": frame.union(frame),
        "names of functions": frame.withColumnRenamed("Z", "first(Z)"),
        "limit of a column that is not read": frame.withColumn("unused", f.lit(1)),
        "many columns": wide.groupBy("pid").agg(*[f.max(c).alias(c) for c in ("Y", "T")]),
    }


def test_what_depends_on_the_order_of_rows_is_refused(frame: Any, unspent: Any) -> None:
    made = by_order(frame)
    assert [kind for kind, rows in made.items() if Spark(rows).repeats(["Y", "T"])] == []
    kept = settled(frame)
    assert [kind for kind, rows in kept.items() if not Spark(rows).repeats(["Y", "T"])] == []
    for kind in ("limit", "any row of a unit"):
        with pytest.raises(CapabilityError, match="random function, the time, limit"):
            pc.private(FORMULA, made[kind], bounds=BOUNDS, ledger=unspent)


def test_a_cached_frame_is_looked_into(frame: Any) -> None:
    """What is cached may be dropped, and is then computed anew."""
    from pyspark.sql import functions as f

    looks = (frame.limit(9), False), (frame.withColumn("Y", f.rand()), False)
    for rows, expected in (*looks, (frame.where("T = 1"), True)):
        kept = rows.cache()
        assert Spark(kept).repeats(["Y", "T"]) is expected
        kept.unpersist()


def test_functions_are_found_wherever_they_stand_in_a_wide_plan(frame: Any) -> None:
    """Spark writes 25 fields of a node; the rest of a plan could hide anything."""
    from pyspark.sql import functions as f

    many = frame.groupBy("pid").agg(
        *[f.max(f.col("Z") + k).alias(f"Z{k}") for k in range(40)], f.first("Y").alias("Y")
    )
    names = [f"Z{k}" for k in range(40)]
    assert not Spark(many).repeats([*names, "Y"])
    assert Spark(many).repeats(names)


CONNECTED = """
import importlib.util, sys
from pathlib import Path
from pyspark.sql import SparkSession, functions as f
import pyspark.sql.connect.dataframe
from privcausal.vault.sources.spark import Spark

spec = importlib.util.spec_from_file_location("classic", sys.argv[1])
classic = importlib.util.module_from_spec(spec)
spec.loader.exec_module(classic)
folder = Path(sys.argv[2])
session = SparkSession.builder.remote("local[2]").getOrCreate()
classic.rows().to_parquet(folder / "rows.parquet")
frame = session.read.parquet(str(folder / "rows.parquet")).repartition(3)
assert type(frame) is pyspark.sql.connect.dataframe.DataFrame
options = {"unit": "pid", "max_rows": 3, "control": classic.pc.Control(split="disjoint")}
there = classic.document(frame, folder, **options)
assert there == classic.document(classic.rows(), folder, **options)
assert not Spark(frame.withColumn("Y", f.rand())).repeats(["Y", "T"])
assert Spark(frame.withColumn("unused", f.rand())).repeats(["Y", "T"])
for kind, rows in classic.by_order(frame).items():
    assert not Spark(rows).repeats(["Y", "T"]), kind
for kind, rows in classic.settled(frame).items():
    assert Spark(rows).repeats(["Y", "T"]), kind
print("the same bytes")
"""


@pytest.mark.slow
@pytest.mark.extra("connect")
def test_over_connect_too_every_byte_is_that_of_memory(tmp_path: Path) -> None:
    """In a process of its own: a session is classic or Connect for as long as it lives."""
    (tmp_path / "connected.py").write_text(CONNECTED)
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    found = subprocess.run(
        [sys.executable, tmp_path / "connected.py", __file__, tmp_path],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": paths},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "the same bytes" in found.stdout, found.stderr[-2_000:]


# -- the claims of the other sources -----------------------------------------------------------


@pytest.mark.parametrize("relation", ["substitute", "add_remove"])
def test_replay_on_a_neighbour(session: Any, relation: str) -> None:
    """As `tests/privacy/test_replay_complete.py` has it for the sources that need no Java."""
    one = rows()
    two = one.copy()
    two.loc[N - 1, ["Y", "T", "X1", "G"]] = [4.0, 1 - one["T"][N - 1], 1.0, "a"]
    if relation == "add_remove":
        two = one.iloc[:-1]
    made = {"bounds": BOUNDS, "neighbors": relation}
    for call in (pc.private, lambda *a, **k: pc.privcate(*a, learner="adum", **k)):
        formula = FORMULA if call is pc.private else "Y ~ T | X1 + C(G)"
        tables = map(session.createDataFrame, (one, two))
        before, after, pairs = replayed(partial(call, formula, **made), *tables)
        moved = 0.0
        for a, b in pairs:
            assert (a.query.name, a.query.scale) == (b.query.name, b.query.scale)
            order = 1 if a.query.law == "laplace" else 2
            change = float(np.linalg.norm((a.exact - b.exact) * a.query.weights, order))
            assert change <= a.query.sensitivity * (1 + 2.0**-40)
            moved += change
        assert moved > 0
        assert str(before.summary()) == str(after.summary())


def test_no_output_holds_the_canary(session: Any, tmp_path: Path) -> None:
    """The search of `tests/privacy/test_canary.py`, in what fits and refusals say."""
    number, label = 77310.4142, "CANARY_ZQX"
    data = rows()
    data.loc[7, ["Y", "Z"]] = number
    data.loc[7, ["G", "pid"]] = label
    on_spark = session.createDataFrame(data)
    with testing.seeded_noise(3):
        fits = [
            pc.private(FORMULA, on_spark, bounds=BOUNDS, groups=["G"]),
            pc.privcate("Y ~ T | X1 + C(G)", on_spark, learner="adum", bounds=BOUNDS),
        ]
    for fit in fits:
        fit.save(tmp_path / "fit.json")
        fit.report(tmp_path / "fit.html")
        texts = [repr(fit), str(fit.summary(full=True)), fit.summary().as_html(), str(fit.plan)]
        texts += [(tmp_path / name).read_text() for name in ("fit.json", "fit.html")]
        assert not [t for t in texts if label in t or "77310.4" in t]
    options = [{"bounds": BOUNDS | {"G": (0, 1)}}, {"control": pc.Control(split="disjoint")}]
    for wrong in (*options, {"groups": ["G == z"]}, {"unit": "nobody", "max_rows": 1}):
        with refused(PrivcausalError, ".") as caught:
            pc.private(FORMULA, on_spark, **{"bounds": BOUNDS} | wrong)
        shown = repr(caught.value) + str(vars(caught.value))
        assert label not in shown and "77310" not in shown
