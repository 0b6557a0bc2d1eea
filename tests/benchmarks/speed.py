"""How long fits take, against what else one could run: ratios within one run, of CPU seconds.

``python tests/benchmarks/speed.py [--quick] [--file rows.parquet] [--out speed.csv]`` prints a line
per comparison: what was timed, its rows and columns, its seconds, those of what it is compared
with, and the ratio. CPU seconds of the process, all threads together, since those of the clock say
more about a busy machine than about the code; a file's lines give the clock too.

- ``fit`` against the DR-learner on DP-EBM as published, ``mode="paper"``, which is interpret's.
- ``fit`` against EconML's LinearDML with histogram boosting, which is not private; where installed.
- ``pass over a file``: all of a fit over its number of passes, against the floor: reading the same
  columns with DuckDB and the float64 Gram matrix of as many columns as there are features.
- growth of a fit in rows, columns and groups.

ADUM against a GROUP BY written by hand: ``adum_files.py``.
"""

from __future__ import annotations

import argparse
import csv
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

import privcausal as pc

FIELDS = ("what", "n", "p", "seconds", "against", "its_seconds", "ratio")
BLOCK = 1 << 13


def study(n: int, p: int, seed: int = 1) -> tuple[str, pd.DataFrame, dict[str, Any]]:
    """A smooth study: `p` uniform covariates in float32."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 1, (n, p)).astype(np.float32)
    t = rng.random(n) < 0.2 + 0.6 * x[:, 0]
    y = np.sin(3 * x[:, 1]) + x[:, 0] + t * (x[:, 2] - 0.3) + rng.normal(0, 0.5, n)
    names = [f"x{j}" for j in range(p)]
    frame = pd.DataFrame(x, columns=names).assign(t=t.astype(np.int8), y=y.astype(np.float32))
    bounds: dict[str, Any] = {"y": (-2, 4), "t": (0, 1), **dict.fromkeys(names, (0, 1))}
    return f"y ~ t | {' + '.join(names)}", frame, bounds


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
    times = 3 if n <= 100_000 else 1
    return cpu(lambda: pc.privcate(formula, frame, learner="r", bounds=bounds, **options), times)


def published(n: int, p: int) -> float:
    formula, frame, bounds = study(n, p)
    del bounds["t"]
    return cpu(
        lambda: pc.privcate(
            formula, frame, learner="dr", base="dpebm", mode="paper", bounds=bounds, eps=1
        )
    )


def linear_dml(n: int, p: int) -> float | None:
    """EconML's LinearDML with histogram boosting; None where it is not installed."""
    try:
        from econml.dml import LinearDML
    except ImportError:
        return None
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    _, frame, _ = study(n, p)
    x = frame[[f"x{j}" for j in range(p)]].to_numpy(np.float64)
    model = LinearDML(
        model_y=HistGradientBoostingRegressor(),
        model_t=HistGradientBoostingClassifier(),
        discrete_treatment=True,
        cv=2,
    )
    return cpu(lambda: model.fit(frame["y"].to_numpy(), frame["t"].to_numpy(), X=x))


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
    """A fit with ATE, BLP and bands, per pass, against the floor."""
    treatment, outcome = names[-2:]
    formula = f"{outcome} ~ {treatment} | {' + '.join(names[:-2])}"
    clock, start = time.perf_counter(), time.process_time()
    fit = pc.privcate(formula, file, learner="r", bounds=bounds)
    seconds, clock = time.process_time() - start, time.perf_counter() - clock
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    passes, width = fit.plan.passes, fit.estimate.effect.pieces[0].additive.features.size
    rows = duckdb.sql(f"SELECT count(*) FROM read_parquet('{file}')").fetchall()[0][0]
    with threadpool_limits(limits=1, user_api="blas"):
        least = cpu(lambda: floor(file, names, width), 2)
    print(f"  {passes} passes, {width} features, {clock:.1f} s by the clock, peak {peak:.2f} GB")
    return line("pass over a file", rows, len(names) - 2, seconds / passes, "floor", least)


# -- the table -------------------------------------------------------------------------------


def line(
    what: str, n: int, p: int, seconds: float, against: str = "", other: float | None = None
) -> dict[str, Any]:
    ratio = "" if other is None else f"{seconds / other:.3g}"
    its = "" if other is None else f"{other:.3g}"
    row = dict(zip(FIELDS, (what, n, p, f"{seconds:.3g}", against, its, ratio), strict=True))
    print("  ".join(f"{value!s:>18}" for value in row.values()), flush=True)
    return row


def lines(quick: bool, file: Path | None) -> Iterator[dict[str, Any]]:
    ours(2_000, 6)  # imports
    sizes = (2_000,) if quick else (16_000, 1_000_000)
    for n in sizes:
        own = ours(n, 6)
        yield line("fit", n, 6, own, "DP-EBM DR-learner", published(n, 6))
        other = linear_dml(n, 6)
        if other is None:
            print("EconML is not installed: not compared")
        else:
            yield line("fit", n, 6, own, "LinearDML, not private", other)
    for n in (20_000, 40_000) if quick else (250_000, 500_000, 1_000_000, 2_000_000):
        yield line("growth in rows", n, 6, ours(n, 6))
    for p in (3, 6) if quick else (3, 6, 12, 24):
        yield line(
            "growth in columns",
            50_000 if quick else 500_000,
            p,
            ours(500_000 // (10 if quick else 1), p),
        )
    for cuts in (0, 2) if quick else (0, 4, 16):
        groups = [f"x0 >= {k / (cuts + 1):.3f}" for k in range(1, cuts + 1)]
        n = 20_000 if quick else 500_000
        yield line(f"growth in groups: {cuts}", n, 6, ours(n, 6, groups=groups))
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "rows.parquet"
        _, frame, bounds = study(300_000 if quick else 1_000_000, 6)
        frame.to_parquet(made)
        yield over_file(made, [f"x{j}" for j in range(6)] + ["t", "y"], bounds)
    if file is not None:
        names = [f"f{j}" for j in range(12)]
        wide: dict[str, Any] = {
            "visit": (0, 1),
            "treatment": (0, 1),
            **dict.fromkeys(names, (-1, 2)),
        }
        yield over_file(file, [*names, "treatment", "visit"], wide)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small tables, a few seconds")
    parser.add_argument("--file", type=Path, help="the file that adum_files.py writes")
    parser.add_argument("--out", type=Path, help="a CSV file for the lines")
    chosen = parser.parse_args()
    # the folder `coverage` beside this file is not the package that EconML's numba looks for
    sys.path[:] = [p for p in sys.path if Path(p).resolve() != Path(__file__).resolve().parent]
    found = list(lines(chosen.quick, chosen.file))
    if chosen.out is not None:
        with chosen.out.open("w", newline="") as out:
            writer = csv.DictWriter(out, FIELDS)
            writer.writeheader()
            writer.writerows(found)


if __name__ == "__main__":
    main()
