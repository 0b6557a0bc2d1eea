"""ADUM on a file larger than memory: time against the same GROUP BY by hand, and peak memory.

``python tests/benchmarks/adum_files.py [rows] [--quick]`` writes a Parquet file of 12 features in
float32, treatment and visit (14,000,000 rows: 0.7 GB; 100,000 with ``--quick``), once. Both read
the same two features, in seven pairs of runs in turn after one that is not counted. Without
``--quick`` the runs go to adum/files.csv, for results.md.
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
import pandas as pd

import privcausal as pc

RESULTS = Path(__file__).parent / "adum" / "files.csv"
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
        file = Path(tempfile.gettempdir()) / f"adum_files_{chosen.rows}.parquet"
        compare(file, chosen.rows).to_csv(RESULTS, index=False, float_format="%.4g")


def compare(file: Path, rows: int) -> pd.DataFrame:
    """A line per pair: seconds of both, their ratio, and the peak memory of a fit in MB."""
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
    found = pd.DataFrame(runs, columns=["adum", "by_hand"])
    found = found.assign(rows=rows, ratio=found["adum"] / found["by_hand"], peak_mb=peak)
    print(f"cells 64, file {file.stat().st_size / 1e9:.2f} GB\n{found.round(3).to_string()}")
    print(found.median().round(2).to_string())
    return found


if __name__ == "__main__":
    main()
