"""ADUM on a file larger than memory: time against the same GROUP BY by hand, and peak memory.

``python tests/benchmarks/adum_files.py [rows] [--quick]`` writes a Parquet file of 12 features in
float32, treatment and visit (14,000,000 rows: 0.7 GB; 100,000 with ``--quick``), once, and prints a
line per method. Both read the same two features; each is the median of seven runs, in turn, after
one that is not counted.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np

import privcausal as pc

FEATURES = tuple(f"f{j}" for j in range(12))
BOUNDS = {"visit": pc.Binary(), "f0": (-1, 2), "f1": (-1, 2)}
LEARNER = pc.learners.ADUM(partition={"f0": 8, "f1": 8}, shrink=True)

BY_HAND = """
SELECT CAST(LEAST(FLOOR((f0 + 1) * (8 / 3)), 7) AS INT) AS a,
       CAST(LEAST(FLOOR((f1 + 1) * (8 / 3)), 7) AS INT) AS b,
       treatment, COUNT(*), SUM(visit)
FROM read_parquet('{file}') GROUP BY ALL
"""


def write(file: Path, rows: int) -> None:
    """Uniform features, 85 % treated, a visit rate of 4.7 %."""
    columns = ", ".join(f"(random() * 1.4 - 0.2)::FLOAT AS {name}" for name in FEATURES)
    duckdb.sql(
        f"COPY (SELECT {columns}, (random() < 0.85)::TINYINT AS treatment, "
        f"(random() < 0.047)::TINYINT AS visit FROM range({rows})) TO '{file}' (FORMAT parquet)"
    )


def seconds(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int, nargs="?", default=14_000_000)
    parser.add_argument("--quick", action="store_true", help="a small file, which is removed")
    chosen = parser.parse_args()
    if chosen.quick:
        with tempfile.TemporaryDirectory() as folder:
            compare(Path(folder) / "rows.parquet", min(chosen.rows, 100_000))
    else:
        compare(Path(tempfile.gettempdir()) / f"adum_files_{chosen.rows}.parquet", chosen.rows)


def compare(file: Path, rows: int) -> None:
    if not file.exists():
        write(file, rows)

    def fit() -> object:
        return pc.privcate(
            "visit ~ treatment | f0 + f1", file, learner=LEARNER, bounds=BOUNDS, eps=1.0
        )

    fit()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    connection = duckdb.connect()

    def by_hand() -> object:
        return connection.sql(BY_HAND.format(file=file)).fetchall()

    by_hand()
    # in turn, so that whatever else the machine does falls on both
    runs = np.array([(seconds(fit), seconds(by_hand)) for _ in range(7)])
    adum, hand = np.median(runs, axis=0)
    print(f"rows {rows:,}  cells 64  file {file.stat().st_size / 1e9:.2f} GB")
    print(f"ADUM {adum:.2f} s  GROUP BY {hand:.2f} s  ratio {adum / hand:.2f}  peak {peak:.0f} MB")


if __name__ == "__main__":
    main()
