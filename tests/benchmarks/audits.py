"""Audits of everything that releases, by both relations, and of planted narrow noise.

    python tests/benchmarks/audits.py --out tests/benchmarks/audits.csv
    python tests/benchmarks/audits.py --quick

Each case of `privcausal.auditing.CASES` is one fit; each query of it is a line: its claim, what the
exact answers on the worst pair of tables come to, and what drawn noise shows at least. Rows that
are in the file already are kept, so that a run that was stopped goes on. Exits with 1 if a claim is
refuted, if planted narrow noise is not caught, or if a bound stays so far below what is there that
the audit sees nothing.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "mutants"))

from planting import planted

from privcausal.auditing import CASES, AuditResult, audit_case
from privcausal.typing import Neighbors

TRIALS, LEVEL = 10_000, 1e-3

MORE = dict.fromkeys(("adum", "adum, count and sum", "adum, kmeans", "tm"), 50_000)
"""Draws where noise is Laplace's: a bound of epsilon comes near it more slowly than one of mu."""

RELATIONS: tuple[Neighbors, ...] = get_args(Neighbors)

FIELDS = (
    "case", "relation", "noise", "query", "measure", "claimed", "exact", "bound", "trials", "holds",
)  # fmt: skip

NARROW: dict[str, tuple[str, float]] = {
    "trial": ("gaussian", 1.5),
    "s": ("gaussian", 1.5),
    "boosting": ("gaussian", 2.0),
    "kernel": ("gaussian", 1.5),
    "adum, count and sum": ("laplace", 2.0),
}
"""Cases that are audited with noise too narrow by a factor; it is to be seen in 10,000 draws."""

LEAST, LEAST_QUICK = 0.6, 0.3
"""Shares of what is there that the bound of a whole fit shows at least: by all draws, by few."""

Row = dict[str, Any]


def jobs() -> list[tuple[str, Neighbors, str]]:
    """Case, relation and noise of every audit."""
    right = [(case, relation, "right") for case in CASES for relation in RELATIONS]
    return right + [
        (case, relation, f"{by:g} times too narrow")
        for case, (_, by) in NARROW.items()
        for relation in RELATIONS
    ]


def audited(case: str, relation: Neighbors, told: str, trials: int) -> list[Row]:
    """The lines of one audit; all lines of all right audits together have the stated level."""
    level = LEVEL / len(jobs())
    if told == "right":
        found = audit_case(case, relation, trials=trials, level=level)
    else:
        law, by = NARROW[case]
        space = {"gaussian": 'l2_distance(T="f64")', "laplace": 'l1_distance(T="i64")'}[law]
        narrow = f"{space}, scale=scale"
        with planted("vault.noise:_sampler", narrow, f"{narrow} / {by}"):
            found = audit_case(case, relation, trials=trials, level=level)
    return [_row(case, relation, told, line) for line in _lines(found)]


def _lines(found: AuditResult) -> list[Any]:
    if found.departed is not None:
        raise AssertionError(found.departed)
    return list(found.lines)


def _row(case: str, relation: str, told: str, line: Any) -> Row:
    values = (line.query, line.measure, line.claimed, line.exact, line.bound, line.trials)
    return dict(zip(FIELDS, (case, relation, told, *values, line.holds), strict=True))


def measure(out: Path, trials: int = 0) -> list[Row]:
    """All audits; those in the file are kept. By `trials` draws each, if that is not 0."""
    done = {job(row) for row in stored(out)}
    for case, relation, told in jobs():
        if (case, relation, told) not in done:
            draws = trials or MORE.get(case, TRIALS)
            write(out, [*stored(out), *audited(case, relation, told, draws)])
    return stored(out)


def quick() -> list[Row]:
    """Two cases and one with narrow noise, by 2,000 draws."""
    rows = audited("trial", "substitute", "right", 2000)
    rows += audited("trial", "add_remove", "1.5 times too narrow", 2000)
    return rows + audited("adum, count and sum", "add_remove", "right", 2000)


def stored(path: Path) -> list[Row]:
    """Rows of a file, with their types; none where there is no file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [_typed(row) for row in csv.DictReader(file)]


def _typed(row: dict[str, str]) -> Row:
    numbers = {name: float(row[name]) for name in ("claimed", "exact", "bound")}
    return {**row, **numbers, "trials": int(row["trials"]), "holds": row["holds"] == "True"}


def job(row: Row) -> tuple[str, str, str]:
    """Case, relation and noise of a row."""
    return row["case"], row["relation"], row["noise"]


def write(path: Path, rows: list[Row]) -> None:
    order = {one: k for k, one in enumerate(jobs())}
    rows = sorted(rows, key=lambda row: order[job(row)])
    draft = path.with_suffix(".new")
    with draft.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows
        )
    draft.replace(path)


def problems(rows: list[Row]) -> Iterator[str]:
    """What the audits show against the package, or against themselves."""
    for row in rows:
        if row["noise"] == "right" and not row["holds"]:
            yield f"{row['case']}, {row['relation']}: {row['query']} is refuted"
    for case, relation, told in jobs():
        own = [row for row in rows if job(row) == (case, relation, told)]
        if told != "right" and own and all(r["holds"] for r in own):
            yield f"{case}, {relation}: noise {told} was not seen"
        if told == "right" and own and not _sees(whole(own)):
            yield f"{case}, {relation}: the bound is far below what is there"


def _sees(row: Row) -> bool:
    least = LEAST if row["trials"] >= TRIALS else LEAST_QUICK
    return bool(row["bound"] >= least * row["exact"])


def whole(rows: list[Row]) -> Row:
    """The line of all answers together."""
    (row,) = (r for r in rows if r["query"] == "all answers together")
    return row


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    parser.add_argument("--quick", action="store_true", help="two cases, 2,000 draws, no file")
    options = parser.parse_args(argv)
    rows = quick() if options.quick else measure(options.out)
    for row in rows:
        words = "{case}, {relation}, noise {noise}: {query}: {bound:.3f} of {claimed:.3f}"
        print(words.format(**row))
    found = list(problems(rows))
    print("\n".join(found) or "no claim refuted, all narrow noise seen")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
