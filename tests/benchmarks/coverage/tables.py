"""Verdicts on a study's rows, and their tables in `results.md`."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import cells as running
import numpy as np
import pandas as pd
from cells import Cell
from draws import missing
from study_rows import store_rows

HERE = Path(__file__).parent
RESULTS = HERE / "results.md"
ORDER = (
    "synthetic", "setups", "patients", "laws", "votes", "boosted", "budgets", "widths",
    "table1", "trial",
    "gotv",
)  # fmt: skip
NOMINAL = {"in80": 0.80, "in90": 0.90, "in95": 0.95}

HEAD = """# Average effects: coverage and widths

Written by the scripts beside it, from the rows in the Parquet files there. Noise is real. Beside a
coverage stands its distance from nominal in standard errors (negative: below). `noted`: the share
of fits whose summary says that intervals can cover less than they say.
"""


class Verdict(NamedTuple):
    """Whether something holds (None: nothing to judge yet), in a sentence."""

    holds: bool | None
    text: str

    def __str__(self) -> str:
        word = {True: "PASS", False: "FAIL", None: "----"}[self.holds]
        return f"{word} {self.text}"


Section = tuple[pd.DataFrame, list[Verdict], list[str]]


@dataclass(frozen=True)
class Study:
    """A study and what is to be shown by it.

    `section` turns its rows into a table, verdicts and remarks; `quick` are cells and repetitions
    that take seconds.
    """

    name: str
    title: str
    cells: tuple[Cell, ...]
    repetitions: int
    section: Callable[[pd.DataFrame], Section]
    quick: tuple[tuple[Cell, ...], int]

    @property
    def file(self) -> Path:
        return HERE / f"{self.name}.parquet"

    def ordered(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows in the order of the cells."""
        place = {(c.data, c.n, float(c.eps)): k for k, c in enumerate(self.cells)}
        keys = zip(rows["data"], rows["n"].astype(int), rows["eps"].astype(float), strict=True)
        order = rows.assign(place=[place.get(key, len(place)) for key in keys])
        return order.sort_values(["place", "repetition"], kind="stable").drop(columns="place")


def main(study: Study, argv: Sequence[str] | None = None) -> int:
    """Run what is missing, print the table and the verdicts, write them to `results.md`."""
    options = _options(study, argv)
    absent = missing({cell.data for cell in study.cells})
    if absent:
        print(f"{study.name}: skipped, {absent}")
        return 1 if options.check else 0
    if options.quick:
        return _quick(study, options)
    chosen = [
        replace(cell, methods=tuple(m for m in cell.methods if options.methods in m))
        for cell in study.cells
        if options.only in cell.name
    ]
    if not options.show:
        rows = running.read(study.file)
        old = running.stale(rows)
        if old.any() and options.fresh:
            store_rows(rows[~old], study.file)
        elif old.any() and not options.mixed:
            print(
                f"{int(old.sum())} rows of {study.file.name} were made by other code: --fresh "
                "drops them, --mixed goes on beside them"
            )
            return 2
        running.run(chosen, options.repetitions, options.jobs, study.file)
    verdicts = _show(study, running.read(study.file), write=True)
    return _status(verdicts, options)


def _options(study: Study, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=study.title)
    parser.add_argument("--quick", action="store_true", help="few repetitions, nothing stored")
    parser.add_argument("--repetitions", type=int, default=study.repetitions)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--only", default="", help='cells whose name holds this: "dataset 1, n"')
    parser.add_argument("--methods", default="", help='methods whose name holds this: "paper"')
    parser.add_argument("--show", action="store_true", help="run nothing: tables from the rows")
    parser.add_argument("--fresh", action="store_true", help="drop rows made by other code")
    parser.add_argument("--mixed", action="store_true", help="keep rows made by other code")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a verdict fails")
    return parser.parse_args(argv)


def _quick(study: Study, options: argparse.Namespace) -> int:
    cells, repetitions = study.quick
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / study.file.name
        running.run(cells, repetitions, options.jobs, file)
        return _status(_show(study, running.read(file), write=False), options)


def _status(verdicts: list[Verdict], options: argparse.Namespace) -> int:
    """Only with --check; what cannot be judged yet passes in the quick setting only."""
    passing = (True, None) if options.quick else (True,)
    return 1 if options.check and any(v.holds not in passing for v in verdicts) else 0


def _show(study: Study, rows: pd.DataFrame, *, write: bool) -> list[Verdict]:
    if rows.empty:
        print(f"{study.name}: no rows yet")
        return [Verdict(None, "no rows yet")]
    table, verdicts, remarks = study.section(study.ordered(rows))
    verdicts = [*_whole(study, rows), *verdicts]
    print(f"\n{study.title}\n{table.to_string(index=False)}")
    print(*verdicts, *remarks, sep="\n")
    if write:
        _write(study, "\n".join([_markdown(table), "", *_listed(verdicts, remarks)]))
    return verdicts


def _whole(study: Study, rows: pd.DataFrame) -> list[Verdict]:
    """What the rows themselves lack."""
    found = []
    failed = rows.loc[rows["failed"] != "", "failed"]
    if len(failed):
        found.append(Verdict(False, f"{len(failed)} fits failed: {', '.join(set(failed))}"))
    made = rows["code"].nunique() - rows.loc[rows["code"].isin(_today(study)), "code"].nunique()
    if made:
        found.append(Verdict(False, f"rows of {made} earlier versions of the code are among these"))
    present = set(rows[["data", "n", "eps", "method"]].itertuples(index=False, name=None))
    wanted = [(c.data, c.n, c.eps, method) for c in study.cells for method in c.methods]
    lacking = [
        f"{method} on {data}, n = {n}, eps = {eps:g}"
        for data, n, eps, method in wanted
        if (data, n, eps, method) not in present
    ]
    if lacking:
        found.append(Verdict(None, f"no rows: {'; '.join(lacking)}"))
    return found


def _today(study: Study) -> set[str]:
    from methods import code

    return {code(method) for cell in study.cells for method in cell.methods}


def _listed(verdicts: Sequence[Verdict], remarks: Sequence[str]) -> list[str]:
    return [*(f"- {verdict}" for verdict in verdicts), *(f"- {remark}" for remark in remarks)]


def _markdown(table: pd.DataFrame) -> str:
    lines = [table.columns, ["---"] * len(table.columns), *table.astype(str).to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _write(study: Study, body: str) -> None:
    """Replace the study's own section of `results.md`."""
    text = RESULTS.read_text("utf-8") if RESULTS.exists() else ""
    parts = {part.split("\n", 1)[0].split("`")[1]: part for part in text.split("\n## ")[1:]}
    command = f"python tests/benchmarks/coverage/{study.name}.py --repetitions {study.repetitions}"
    parts[study.name] = f"`{study.name}`: {study.title}\n\n    {command}\n\n{body}\n"
    ordered = [parts[name].rstrip("\n") + "\n" for name in ORDER if name in parts]
    RESULTS.write_text("\n## ".join([HEAD, *ordered]), encoding="utf-8")


# --- coverage ----------------------------------------------------------------------------------


def below(covered: float, nominal: float, repetitions: int) -> float:
    """Distance from nominal in standard errors of the nominal level."""
    return (covered - nominal) / float(np.sqrt(nominal * (1 - nominal) / repetitions))


def distances(found: pd.DataFrame) -> pd.DataFrame:
    """`below` of each cell (rows) and level (columns)."""
    return pd.DataFrame(
        {
            level: [below(c, p, r) for c, r in zip(found[level], found["repetitions"], strict=True)]
            for level, p in NOMINAL.items()
        }
    )


def coverage_table(found: pd.DataFrame, *, reasons: bool = True) -> pd.DataFrame:
    """Every cell, as it is printed."""
    away = distances(found)
    table = found[["data", "n", "eps"]].copy()
    if found["method"].nunique() > 1:
        table["method"] = found["method"]
    table["reps"] = found["repetitions"]
    for level in NOMINAL:
        table[level.replace("in", "") + " %"] = [
            f"{c:.3f} ({z:+.1f})" for c, z in zip(found[level], away[level], strict=True)
        ]
    for column, name in (
        ("half_width", "half-width"), ("median_half_width", "median"), ("bias", "bias"),
        ("sd", "sd"), ("rms_std_error", "std err"),
    ):  # fmt: skip
        table[name] = [f"{value:.4g}" for value in found[column]]
    table["noted"] = [f"{value:.0%}" for value in found["noted"]]
    table["of misses"] = [
        "" if np.isnan(value) else f"{value:.0%}" for value in found["missed_and_noted"]
    ]
    if reasons:
        table["why below"] = [
            reason(row) if (away.iloc[i] < -2).any() else ""
            for i, row in enumerate(found.to_dict("records"))
        ]
    return table


def reason(row: dict[str, float]) -> str:
    """What of a cell's errors its intervals do not hold, and how often they warned."""
    parts = []
    if row["failed"]:
        parts.append(f"{row['failed']:.0f} fits failed")
    if abs(row["bias"]) > 0.25 * row["sd"]:
        parts.append(f"bias of {row['bias'] / row['sd']:+.2f} sd")
    if row["rms_std_error"] < 0.97 * row["sd"]:
        parts.append(f"std err {row['rms_std_error'] / row['sd']:.2f} of the sd of the errors")
    why = ", ".join(parts) or "neither bias nor std err: chance or tails"
    warned = row["missed_and_noted"]
    return why if np.isnan(warned) else f"{why}; {warned:.0%} of the misses carry the note"


def nominal_verdicts(found: pd.DataFrame, least: int) -> list[Verdict]:
    """No cell below by more than three standard errors; at most 5 % by more than two."""
    away = distances(found).to_numpy()
    far, near, count = int((away < -3).sum()), int((away < -2).sum()), away.size
    worst = np.unravel_index(np.argmin(away), away.shape)
    cell = found.iloc[int(worst[0])]
    where = (
        f"{cell['data']}, n = {cell['n']}, eps = {cell['eps']:g} at {list(NOMINAL)[worst[1]][2:]} %"
    )
    return [
        *unfinished(found, least),
        Verdict(
            far == 0,
            f"{far} of {count} coverages (cells by levels) are more than 3 standard errors below "
            f"nominal; the lowest is {away.min():+.1f}, {where}",
        ),
        Verdict(
            near <= 0.05 * count,
            f"{near} of {count} ({near / count:.1%}) are more than 2 below; allowed are 5 %",
        ),
    ]  # fmt: skip


def unfinished(found: pd.DataFrame, least: int) -> list[Verdict]:
    """A word where cells have too few repetitions to be judged."""
    short = int((found["repetitions"] < least).sum())
    return [Verdict(None, f"{short} lines with fewer than {least} repetitions")] if short else []


def grid(
    data: Sequence[str],
    sizes: Sequence[int],
    budgets: Sequence[float],
    methods: Sequence[str],
    first_seed: int,
) -> tuple[Cell, ...]:
    """All combinations, each with 1,000 seeds of its own."""
    settings = [(d, n, eps) for d in data for n in sizes for eps in budgets]
    return tuple(
        Cell(d, n, eps, tuple(methods), first_seed + 1000 * k)
        for k, (d, n, eps) in enumerate(settings)
    )


def at(found: pd.DataFrame, **where: object) -> pd.Series | None:
    """The one row of a summary, or None."""
    hit = np.logical_and.reduce([found[column] == value for column, value in where.items()])
    return found[hit].iloc[0] if hit.any() else None
