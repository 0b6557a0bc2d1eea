"""The laboratory: intervals and errors of average effects on laws by kind, with random parameters.

    python tests/benchmarks/lab/run.py --methods private,plain --eps 1 --reps 10 --out rows.csv
    python tests/benchmarks/lab/run.py --study aa,trials --methods private,r --out rows.csv
    python tests/benchmarks/lab/run.py --kinds "bounds" --vary loose_outcome=1,5,20 --out wide.csv
    python tests/benchmarks/lab/run.py --show rows.csv
    python tests/benchmarks/lab/run.py --quick

Every fit is a row of `--out`, appended when its cell is done; what is in the file is not run again.
Rows and noise have seeds, so that two versions of the code are compared on the same draws. Studies:
`laws`; `aa`, the same cells with treatment by lot that does nothing; `trials`, with an allocation
of 1, 3, 10 and 30 % for every family of outcomes.

Cells are in two halves (see `kinds`). Choose on "build" alone. "report" is for the end: it runs
with --report, on committed code, and says which.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import fits
import shown
from kinds import HALVES, STUDIES, Cell, cells

VARIED = {"n": int, "loose_outcome": float, "loose_covariates": float}


class Batch(NamedTuple):
    """Repetitions of a cell, by the methods and budgets that it lacks."""

    cell: Cell
    seeds: tuple[int, ...]
    methods: tuple[str, ...]
    budgets: tuple[float, ...]


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    if options.show:
        return _show(options)
    if options.quick:
        return _quick(options)
    if options.half == "report":
        if not options.report:
            print("the reporting half is run once, when all is chosen: --report says it is")
            return 2
        if fits.commit().endswith("+"):
            print("the reporting half runs on committed code: files differ from the commit")
            return 2
    if options.out.exists():
        made = fits.read(options.out)
        if ((made["code"] != fits.code()) | (made["lab"] != fits.lab())).any():
            print(f"rows of {options.out} were made by other code: name another file")
            return 2
    print(f"{options.half} half, commit {fits.commit()}, code {fits.code()}, lab {fits.lab()}")
    _run(options)
    print(shown.text(fits.read(options.out), options.worst))
    return 0


def _quick(options: argparse.Namespace) -> int:
    options.half, options.reps, options.cells = "build", 2, 1
    options.kinds, options.study = ["trial", "1% zero-inflated"], list(STUDIES)
    options.methods = ["private", "plain", "adum"]
    with tempfile.TemporaryDirectory() as folder:
        options.out = Path(folder) / "rows.csv"
        _run(options)
        print(shown.text(fits.read(options.out), options.worst))
    return 0


def _show(options: argparse.Namespace) -> int:
    rows = fits.read(options.show)
    if rows["code"].nunique() > 1:
        print("these rows were made by several versions of the code: show one, --against another")
        return 2
    rows = rows[rows["n"].between(options.least, options.most)]
    if options.against is None:
        print(shown.text(rows, options.worst))
    else:
        print(shown.beside(rows, fits.read(options.against)))
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Average effects on laws by kind.")
    parser.add_argument("--half", choices=HALVES, default="build")
    parser.add_argument("--report", action="store_true", help="allow the reporting half")
    parser.add_argument("--study", type=_names, default=["laws"], help=",".join(STUDIES))
    parser.add_argument("--kinds", type=_names, default=[""], help="kinds whose names hold these")
    parser.add_argument("--cells", type=int, default=8, help="of each kind")
    parser.add_argument("--reps", type=int, default=40, help="repetitions of each cell")
    parser.add_argument(
        "--method", "--methods", dest="methods", type=_names, default=["private"],
        help=",".join(fits.METHODS),
    )  # fmt: skip
    parser.add_argument("--eps", type=_names, default=["1"], help='"drawn": each cell has its own')
    parser.add_argument(
        "--vary", type=_varied, action="append", default=[],
        help="n=1000,4000 or loose_outcome=1,5 or loose_covariates=1,5 in place of the drawn one",
    )  # fmt: skip
    parser.add_argument("--least", type=int, default=0, help="leave out cells with fewer rows")
    parser.add_argument("--most", type=int, default=10**7, help="leave out cells with more rows")
    parser.add_argument("--out", type=Path, default=Path("rows.csv"))
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--show", type=Path, nargs="+", help="run nothing: tables of these rows")
    parser.add_argument("--against", type=Path, help="with --show: the rows of other code")
    parser.add_argument("--worst", type=int, default=12, help="cells that are listed")
    parser.add_argument("--quick", action="store_true", help="few fits, nothing stored")
    options = parser.parse_args(argv)
    if options.kinds == ["all"]:
        options.kinds = [""]
    unknown = {*options.study} - {*STUDIES} | {*options.methods} - {*fits.METHODS}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return options


def _names(text: str) -> list[str]:
    return text.split(",")


def _varied(text: str) -> tuple[str, list[float]]:
    name, values = text.split("=")
    return name, [VARIED[name](value) for value in values.split(",")]


def _chosen(options: argparse.Namespace) -> Iterator[Cell]:
    """The first cells of all kinds, then the second ones: early rows tell of all kinds."""
    found = [
        cells(study, options.half, kind, options.cells)
        for study in options.study
        for kind in STUDIES[study]
        if any(kind == name if name in STUDIES[study] else name in kind for name in options.kinds)
    ]
    for turn in zip(*found, strict=True):
        for cell in turn:
            variants = [cell]
            for name, values in options.vary:
                variants = [replace(v, **{name: value}) for v in variants for value in values]
            yield from (v for v in variants if options.least <= v.n <= options.most)


def _batches(options: argparse.Namespace) -> list[Batch]:
    done = set()
    if options.out.exists():
        made = fits.read(options.out)
        done = set(made[fits.KEYS].itertuples(index=False, name=None))
    found = []
    for cell in _chosen(options):
        budgets = [cell.eps if text == "drawn" else float(text) for text in options.eps]
        for eps in budgets:
            for method in options.methods:
                key = fits.key(cell, eps, method)
                seeds = tuple(s for s in range(options.reps) if (*key, s) not in done)
                if seeds and fits.applies(method, cell):
                    found.append(Batch(cell, seeds, (method,), (eps,)))
    return _together(found)


def _together(found: list[Batch]) -> list[Batch]:
    """Batches of the same cell and seeds as one, whose rows are drawn once."""
    joined: dict[tuple[Cell, tuple[int, ...]], Batch] = {}
    for batch in found:
        known = joined.setdefault(batch[:2], batch)
        joined[batch[:2]] = Batch(
            *batch[:2],
            tuple(dict.fromkeys(known.methods + batch.methods)),
            tuple(dict.fromkeys(known.budgets + batch.budgets)),
        )
    return list(joined.values())


def _fit(batch: Batch) -> list[list[object]]:
    return list(fits.rows(*batch))


def _run(options: argparse.Namespace) -> None:
    """Append to `--out` what it lacks."""
    fits.code(), fits.lab(), fits.commit()  # read once, before processes are forked
    todo, start = _batches(options), time.monotonic()
    text = options.out.read_text("utf-8") if options.out.exists() else ""
    if not text.endswith("\n"):  # new, or stopped while a row was written
        whole = text[: text.rfind("\n") + 1] or ",".join(fits.COLUMNS) + "\n"
        options.out.write_text(whole, "utf-8")
    with options.out.open("a", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        for count, made in enumerate(_made(todo, options.jobs), 1):
            writer.writerows(made)
            out.flush()
            if count % 10 == 0:
                left = (time.monotonic() - start) / count * (len(todo) - count)
                print(f"{count} of {len(todo)} cells, {left / 60:.0f} min left", flush=True)


def _made(todo: list[Batch], jobs: int) -> Iterator[list[list[object]]]:
    if jobs == 1:
        yield from map(_fit, todo)
        return
    with ProcessPoolExecutor(jobs) as pool:
        futures = [pool.submit(_fit, batch) for batch in todo]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


if __name__ == "__main__":
    sys.exit(main())
