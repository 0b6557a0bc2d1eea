"""How long fits take, against what else one could run: ratios within one run, of CPU seconds.

``python tests/benchmarks/speed.py [--quick] [--only WHAT ...] [--file rows.parquet]
[--econml PYTHON] [--out speed.csv] [--table PAGE]`` prints a line per comparison:
what was timed, its rows and columns, its seconds, those of what it is compared with, and the ratio.
CPU seconds of the process, all threads together, since those of the clock say more about a busy
machine than about the code; the clock, and the largest memory of the process so far, stand beside
them. Lines of one name and size replace those in ``--out``; ``--table`` writes what is there into
the page.

- ``fit`` against the DR-learner on DP-EBM as published, ``pc.paper.dpebm``, which is interpret's.
- ``fit`` against EconML's LinearDML with histogram boosting, which is not private: by
  ``linear_dml.py`` and the interpreter of an environment that has EconML.
- ``a fit of a file``: all of its passes, against one bare pass: reading the same columns with
  DuckDB and the float64 Gram matrix of as many columns as there are features, once before the fit
  and once after.
- ``ADUM on a file`` (``cells``) against a GROUP BY by hand, in turn: see ``adum_files.py`` too.
- ``a fit on Spark``, two local executors, against the same fit of the same file by DuckDB: every
  byte of the two saved fits has to be the same. Skipped, with a reason, without PySpark or Java 17.
- ``growth``: a fit in rows, columns and groups.
- ``start``: what ``import privcausal`` adds to bare Python, and ``privcausal --help``.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from adum_files import BOUNDS as ADUM_BOUNDS
from adum_files import BY_HAND, LEARNER
from linear_dml import study
from threadpoolctl import threadpool_limits

import privcausal as pc
from privcausal.testing import seeded_noise

HERE = Path(__file__).resolve().parent
FIELDS = ("what", "n", "p", "seconds", "clock", "peak_gb", "against", "its_seconds", "ratio")
BLOCK = 1 << 13
RUNS, STARTS = 30, 7
"""Of a fit of few rows, and of processes: the least counts."""


def cpu(step: Callable[[], object], times: int = 1) -> float:
    """The least CPU seconds of a few runs."""
    found = []
    for _ in range(times):
        start = time.process_time()
        step()
        found.append(time.process_time() - start)
    return min(found)


def ours(n: int, p: int, **options: Any) -> float:
    formula, frame, bounds = study(n, p)
    times = RUNS if n <= 100_000 else 3 if n <= 1_000_000 else 1
    return cpu(lambda: pc.privcate(formula, frame, learner="r", bounds=bounds, **options), times)


def published(n: int, p: int) -> float:
    formula, frame, bounds = study(n, p)
    del bounds["t"]
    return cpu(
        lambda: pc.paper.dpebm(formula, frame, learner="dr", bounds=bounds, eps=1),
        min(3, RUNS),
    )


def linear_dml(python: str, n: int, p: int) -> float:
    """EconML's LinearDML with histogram boosting, by that interpreter."""
    words = [python, str(HERE / "linear_dml.py"), str(n), str(p)]
    # its threads wait asleep: where others work too, to wait awake would count as work
    env = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    return float(subprocess.run(words, capture_output=True, text=True, check=True, env=env).stdout)


# -- files -----------------------------------------------------------------------------------


def floor(file: Path, columns: list[str], width: int) -> None:
    """Read the columns, and add up the Gram matrix of a block of `width` columns of floats."""
    connection = duckdb.connect()
    relation = connection.sql(f"SELECT {', '.join(columns)} FROM read_parquet('{file}')")
    read = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch
    total = np.zeros((width, width))
    block = np.empty((width, BLOCK))
    for batch in read(1 << 17):
        numbers = [np.asarray(column.to_numpy(), np.float64) for column in batch.columns]
        for first in range(0, batch.num_rows, BLOCK):
            rows = min(BLOCK, batch.num_rows - first)
            for k in range(width):
                block[k, :rows] = numbers[k % len(numbers)][first : first + rows]
            part = block[:, :rows]
            total += part @ part.T


def over_file(file: Path, names: list[str], bounds: dict[str, Any]) -> dict[str, Any]:
    """A fit with ATE, BLP and bands, against the floor."""
    treatment, outcome = names[-2:]
    formula = f"{outcome} ~ {treatment} | {' + '.join(names[:-2])}"
    width = 1 + 3 * (len(names) - 2)
    with threadpool_limits(limits=1, user_api="blas"):
        least = cpu(lambda: floor(file, names, width))
    clock, start = time.perf_counter(), time.process_time()
    fit = pc.privcate(formula, file, learner="r", bounds=bounds)
    seconds, clock = time.process_time() - start, time.perf_counter() - clock
    made = line_of_clock(clock)
    with threadpool_limits(limits=1, user_api="blas"):
        least = 0.5 * (least + cpu(lambda: floor(file, names, width)))
    assert width == fit.estimate.effect.pieces[0].additive.features.size
    assert {"ate", "params"} <= {*dir(fit)}
    rows = count(file)
    what = f"a fit of a file, {width} features"
    return line(what, rows, len(names) - 2, seconds, "reading and a Gram", least, made)


def count(file: Path) -> int:
    return int(duckdb.sql(f"SELECT count(*) FROM read_parquet('{file}')").fetchall()[0][0])


def adum(file: Path) -> dict[str, Any]:
    """ADUM's one pass and the same GROUP BY by hand, five times in turn after one not counted."""
    connection = duckdb.connect()

    def fit() -> object:
        words = "visit ~ treatment | f0 + f1"
        return pc.privcate(words, file, learner=LEARNER, bounds=ADUM_BOUNDS, eps=1.0)

    def by_hand() -> object:
        return connection.sql(BY_HAND.format(file=file)).fetchall()

    runs = np.array([(cpu(fit), cpu(by_hand)) for _ in range(6)])[1:]
    own, its = np.median(runs, axis=0)
    return line("ADUM on a file, 64 cells", count(file), 2, own, "GROUP BY by hand", its)


def starts() -> Iterator[dict[str, Any]]:
    """The least of `STARTS`, of CPU seconds of a process of its own."""

    def least(*words: str) -> float:
        seconds = []
        for _ in range(STARTS):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, *words], capture_output=True, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            seconds.append(used)
        return min(seconds)

    bare = least("-c", "pass")
    yield line("import privcausal", 0, 0, least("-c", "import privcausal"), "bare Python", bare)
    yield line("privcausal --help", 0, 0, least("-m", "privcausal", "--help"), "bare Python", bare)


# -- the table -------------------------------------------------------------------------------


def line_of_clock(clock: float | None = None) -> dict[str, str]:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {"clock": "" if clock is None else f"{clock:.3g}", "peak_gb": f"{peak:.2f}"}


def line(
    what: str,
    n: int,
    p: int,
    seconds: float,
    against: str = "",
    other: float | None = None,
    made: dict[str, str] | None = None,
) -> dict[str, Any]:
    row: dict[str, Any] = {"what": what, "n": n, "p": p, "seconds": f"{seconds:.3g}"}
    row |= made or dict.fromkeys(("clock", "peak_gb"), "")
    row |= {"against": against, "its_seconds": "", "ratio": ""}
    if other is not None:
        row |= {"its_seconds": f"{other:.3g}", "ratio": f"{seconds / other:.3g}"}
    print("  ".join(f"{value!s:>10}" for value in row.values()), flush=True)
    return row


def fits(quick: bool, econml: str | None, _: Path | None) -> Iterator[dict[str, Any]]:
    ours(2_000, 6)  # imports
    for n in (2_000,) if quick else (16_000, 1_000_000):
        own = ours(n, 6)
        yield line("a fit", n, 6, own, "DP-EBM DR-learner", published(n, 6))
        if econml is not None:
            yield line("a fit", n, 6, own, "LinearDML, not private", linear_dml(econml, n, 6))


def growth(quick: bool, _: str | None, __: Path | None) -> Iterator[dict[str, Any]]:
    ours(2_000, 6)
    # up to 2^20 rows in memory what was made of them is kept, and beyond it is made anew
    millions = (250_000, 500_000, 1_000_000, 2_000_000, 4_000_000)
    for n in (20_000, 40_000) if quick else millions:
        yield line("growth in rows", n, 6, ours(n, 6))
    n = 20_000 if quick else 500_000
    for p in (3, 6) if quick else (3, 6, 12, 24):
        yield line("growth in columns", n, p, ours(n, p))
    for cuts in (0, 2) if quick else (0, 4, 16):
        groups = [f"x0 >= {k / (cuts + 1):.3f}" for k in range(1, cuts + 1)]
        yield line(f"growth in groups: {cuts}", n, 6, ours(n, 6, groups=groups))


def files(quick: bool, _: str | None, file: Path | None) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "rows.parquet"
        _, frame, bounds = study(50_000 if quick else 1_000_000, 6)
        frame.to_parquet(made)
        yield over_file(made, [f"x{j}" for j in range(6)] + ["t", "y"], bounds)
    if file is not None:
        names = [f"f{j}" for j in range(12)]
        wide: dict[str, Any] = dict.fromkeys(names, (-1, 2)) | {
            "visit": (0, 1),
            "treatment": (0, 1),
        }
        yield over_file(file, [*names, "treatment", "visit"], wide)


def cells(_: bool, __: str | None, file: Path | None) -> Iterator[dict[str, Any]]:
    if file is not None:
        yield adum(file)


def cpu_of_all() -> float:
    """CPU seconds of this process and of all that it started, Spark's machine and workers too."""
    spent: dict[int, tuple[int, float]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        # after the name: state, parent, ..., own and waited-for children's ticks
        spent[int(stat.parent.name)] = int(words[1]), sum(map(float, words[11:15]))
    family, found = set[int](), {os.getpid()}
    while found:
        family |= found
        found = {own for own, (parent, _) in spent.items() if parent in family} - family
    return sum(spent[one][1] for one in family) / os.sysconf("SC_CLK_TCK")


def session() -> Any:
    """Two local executors that run this interpreter with the package as it is here."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parents[1]), *sys.path])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name in ("host", "bindAddress"):
        builder = builder.config(f"spark.driver.{name}", "127.0.0.1")
    made = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def spark(quick: bool, _: str | None, __: Path | None) -> Iterator[dict[str, Any]]:
    n = 50_000 if quick else 2_000_000
    try:
        running = session()
    except Exception as fault:
        print(f"spark: skipped, {type(fault).__name__}: no PySpark, or no Java 17", flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        file, kept = Path(folder) / "rows.parquet", Path(folder) / "fit.json"
        formula, frame, bounds = study(n, 6)
        frame.to_parquet(file, row_group_size=1 << 17)

        def fit(data: Any) -> tuple[float, float, bytes]:
            before, clock = cpu_of_all(), time.perf_counter()
            with seeded_noise(3):
                made = pc.privcate(formula, data, learner="r", bounds=bounds)
            clock, spent = time.perf_counter() - clock, cpu_of_all() - before
            made.save(kept)
            return spent, clock, kept.read_bytes()

        frame[:2_000].to_parquet(small := Path(folder) / "few.parquet")
        fit(running.read.parquet(str(small)))  # imports, on the executors too
        table = running.read.parquet(str(file))
        runs = [(fit(table), fit(file)) for _ in range(2)]
        assert all(here[2] == there[2] for there, here in runs), "other sums than DuckDB's"
        there, here = (min(both) for both in zip(*runs, strict=True))
        what = "a fit by two executors of Spark"
        made = line_of_clock(there[1])
        yield line(what, n, 6, there[0], "by DuckDB, same bytes", here[0], made)
        made = line_of_clock(here[1])
        yield line("a fit by DuckDB", n, 6, here[0], made=made)
    running.stop()


def start(_: bool, __: str | None, ___: Path | None) -> Iterator[dict[str, Any]]:
    yield from starts()


PARTS: dict[str, Callable[[bool, str | None, Path | None], Iterator[dict[str, Any]]]] = {
    "fit": fits, "growth": growth, "files": files, "cells": cells, "spark": spark,
    "start": start,
}  # fmt: skip

KEY = ("what", "n", "p", "against")
BEGIN, END = "<!-- speed.csv, by tests/benchmarks/speed.py -->\n", "<!-- end of speed.csv -->\n"


def stored(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def table(rows: list[dict[str, Any]]) -> str:
    """The lines as Markdown."""
    head = ("", "rows", "columns", "CPU s", "clock s", "GB", "against", "its CPU s", "ratio")
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for row in rows:
        cells = [f"{int(row[f]):,}" if f in ("n", "p") and int(row[f]) else row[f] for f in FIELDS]
        lines.append("| " + " | ".join("" if cell == "0" else str(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def into(page: Path, rows: list[dict[str, Any]]) -> None:
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(before + BEGIN + table(rows) + END + rest.partition(END)[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small tables, a few seconds")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--file", type=Path, help="the file that adum_files.py writes")
    parser.add_argument("--econml", help="a Python interpreter that has EconML")
    parser.add_argument("--out", type=Path, help="a CSV file for the lines")
    parser.add_argument("--table", type=Path, help="a page for what --out holds")
    chosen = parser.parse_args()
    if chosen.quick:
        global RUNS, STARTS  # settings of a script
        RUNS, STARTS = 1, 1
    for part in chosen.only:
        for row in PARTS[part](chosen.quick, chosen.econml, chosen.file):
            if chosen.out is not None:
                known = {tuple(str(r[k]) for k in KEY): r for r in [*stored(chosen.out), row]}
                with chosen.out.open("w", newline="") as out:
                    writer = csv.DictWriter(out, FIELDS)
                    writer.writeheader()
                    writer.writerows(known.values())
    if chosen.table is not None:
        into(chosen.table, stored(chosen.out))


if __name__ == "__main__":
    main()
