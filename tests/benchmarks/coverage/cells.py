"""Cells of a study, run in batches that can be stopped and taken up again.

Every repetition is a row of a Parquet file, appended when its batch is done; what is in the file
is not run again. Data are drawn from `first_seed` + repetition; noise is real and has no seed.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
from draws import DRAWS
from methods import METHODS, Fit, code
from study_rows import appending, read_rows

KEYS = ["data", "n", "eps", "method", "repetition"]
COLUMNS = [
    *KEYS, "truth", "estimate", "std_error", "half_width", "in80", "in90", "in95", "noted",
    "failed", "code",
]  # fmt: skip
TEXTS = ("data", "method", "failed", "code")
BATCH = 20


@dataclass(frozen=True)
class Cell:
    """One setting, in which all methods see the same draws."""

    data: str
    n: int
    eps: float
    methods: tuple[str, ...]
    first_seed: int

    @property
    def name(self) -> str:
        return f"{self.data}, n = {self.n}, eps = {self.eps:g}"


@dataclass(frozen=True)
class Batch:
    """Repetitions of a cell that lack the same methods."""

    cell: Cell
    methods: tuple[str, ...]
    repetitions: tuple[int, ...]


def run_batch(batch: Batch) -> list[list[object]]:
    return [row for repetition in batch.repetitions for row in _repeat(batch, repetition)]


def _repeat(batch: Batch, repetition: int) -> Iterator[list[object]]:
    cell = batch.cell
    draw = DRAWS[cell.data](cell.n, cell.first_seed + repetition)
    for method in batch.methods:
        try:
            fits, failed = list(METHODS[method](draw, cell.eps)), ""
        except Exception as error:  # a fit that fails is a result: it counts as not covering
            nothing = (float("nan"), float("nan"))
            fits, failed = [Fit(method, *nothing, (nothing,) * 3)], type(error).__name__
        for fit in fits:
            low, high = fit.limits[-1]
            yield [
                cell.data, cell.n, f"{cell.eps:g}", fit.method, repetition, f"{draw.truth:.7g}",
                f"{fit.estimate:.6g}", f"{fit.std_error:.5g}", f"{(high - low) / 2:.5g}",
                *(int(a <= draw.truth <= b) for a, b in fit.limits), int(fit.noted), failed,
                code(method),
            ]  # fmt: skip


def read(file: Path) -> pd.DataFrame:
    """The rows of a file."""
    frame = read_rows(file, COLUMNS, TEXTS)
    whole_numbers = ["n", "repetition", "in80", "in90", "in95", "noted"]
    frame[whole_numbers] = frame[whole_numbers].astype(int)
    return frame.drop_duplicates(KEYS, ignore_index=True)


def stale(rows: pd.DataFrame) -> pd.Series:
    """Which rows were made by other code than today's."""
    return ~rows["code"].isin({code(m) for m in METHODS.keys() & set(rows["method"])})


def batches(cells: Sequence[Cell], repetitions: int, done: pd.DataFrame) -> list[Batch]:
    """What is left to do, a batch of every cell in turn: early rows tell of all cells."""
    have: dict[tuple[str, int, float, str], set[int]] = defaultdict(set)
    for (data, n, eps, method), part in done.groupby(KEYS[:4]):
        have[data, int(n), float(eps), method] = set(part["repetition"])
    found = []
    for start in range(0, repetitions, BATCH):
        for cell in cells:
            lacking: dict[tuple[str, ...], list[int]] = defaultdict(list)
            for r in range(start, min(start + BATCH, repetitions)):
                key = (cell.data, cell.n, float(f"{cell.eps:g}"))
                lacking[tuple(m for m in cell.methods if r not in have[(*key, m)])].append(r)
            found += [Batch(cell, m, tuple(which)) for m, which in lacking.items() if m]
    return found


def run(cells: Sequence[Cell], repetitions: int, jobs: int, file: Path) -> None:
    """Append to `file` what it lacks of `repetitions` of each cell."""
    done = read(file)
    for method in {method for cell in cells for method in cell.methods}:
        code(method)  # read once, before processes are forked
    todo, start = batches(cells, repetitions, done), time.monotonic()
    with appending(file, COLUMNS, TEXTS) as append, ProcessPoolExecutor(jobs) as pool:
        futures: list[Future[list[list[object]]]] = [pool.submit(run_batch, b) for b in todo]
        try:
            for count, future in enumerate(as_completed(futures), 1):
                append(future.result())
                spent = time.monotonic() - start
                left = spent / count * (len(todo) - count)
                print(f"{count} of {len(todo)} batches, {left / 60:.0f} min left", flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """A row per cell and method, in the order of the rows."""
    found = []
    for key, part in rows.groupby(KEYS[:4], sort=False):
        error = part["estimate"] - part["truth"]
        sd = float(error.std()) if len(part) > 1 else float("nan")
        found.append(
            dict(zip(KEYS[:4], key, strict=True))
            | {"repetitions": len(part), "failed": int((part["failed"] != "").sum())}
            | {level: float(part[level].mean()) for level in ("in80", "in90", "in95")}
            | {
                "half_width": float(part["half_width"].mean()),
                "median_half_width": float(part["half_width"].median()),
                "bias": float(error.mean()),
                "sd": sd,
                "rms_std_error": float(np.sqrt((part["std_error"] ** 2).mean())),
                "noted": float(part["noted"].mean()),
                "missed_and_noted": _share(part.loc[part["in95"] == 0, "noted"]),
            }
        )  # fmt: skip
    return pd.DataFrame(found)


def _share(values: pd.Series) -> float:
    return float(values.mean()) if len(values) else float("nan")
