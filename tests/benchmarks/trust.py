"""What the package promises, and what was tried against it: the table in the documentation.

    python tests/benchmarks/trust.py            # all that is not stored yet, then the table
    python tests/benchmarks/trust.py --table    # the table alone, from what is stored
    python tests/benchmarks/trust.py --quick    # a few of each, nothing is written

Audits (`audits.py`), planted faults (`tests/mutants`), a ledger under fire (`tests/accounting`) and
random compositions against dp-accounting. Some twenty minutes on one core. What was measured is
kept in `trust.json` and `audits.csv`, part by part, and is not measured again: remove a part to
repeat it. Exits with 1 if anything does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "mutants"))
sys.path.insert(0, str(Path(__file__).parents[1] / "accounting"))
sys.path.insert(0, str(Path(__file__).parent))

import audits
import compositions
import ledger_fire as fire
import quick_battery as battery
from mutant_catalogue import MUTANTS

HERE = Path(__file__).parent

STORED, TABLE = HERE / "trust.json", HERE.parents[1] / "vignettes" / "trust-table.md"

Row = dict[str, Any]


# -- the parts ---------------------------------------------------------------------------------


def mutants(quick: bool) -> list[Row]:
    """Each planted fault, and how the quick battery finds it."""
    chosen = MUTANTS[::9] if quick else MUTANTS
    return [{"fault": m.name, "check": m.words, "found": m.killed()} for m in chosen]


def ledger(quick: bool) -> list[Row]:
    """Faults tried on a ledger; a function raises at the first that is not survived."""
    some = 3 if quick else 20
    tried: dict[str, Callable[[], int]] = {
        "kill -9 at each call of a charge": lambda: fire.killed_at_every_step(6 if quick else None),
        **{
            f"kill -9 in a fit, {place}": lambda place=place: fire.killed_within_a_fit(place, some)
            for place in fire.PLACES
        },
        "eight processes against an exact cap": lambda: fire.processes_to_an_exact_cap(
            1 if quick else 50
        ),
        "disk full at a size": lambda: fire.full_disk(range(6_000, 80_000, 74_000 // some)),
        "a write of the head fails": fire.failing_writes,
        "a byte is another": lambda: fire.damaged_bytes(10 * some),
        "the file is cut short": lambda: fire.cut_short(some),
        "other paths to the file": fire.other_paths,
        "the clock goes back": fire.clock_back,
        "a line is edited": _once(battery.ledger_notices_an_edit),
        "an old copy is put back": _once(battery.ledger_notices_an_old_copy),
        "the head is lost": _once(battery.ledger_notices_a_lost_head),
        "read-only, or two names": _once(battery.ledger_refuses_two_names_and_read_only),
    }
    return [{"fault": words, "survived": fault()} for words, fault in tried.items()]


def _once(check: Callable[[], None]) -> Callable[[], int]:
    def survived() -> int:
        check()
        return 1

    return survived


def accounting(quick: bool) -> list[Row]:
    """Our total over a lower bound of the true epsilon, for each random composition."""
    return [
        {
            "gaussian": len(one.sigmas), "laplace": len(one.scales), "delta": one.delta,
            "ours": one.ours, "least": one.least(), "truth": one.truth(1e-3),
        }
        for one in compositions.random(20 if quick else 500)
    ]  # fmt: skip


PARTS: dict[str, Callable[[bool], list[Row]]] = {
    "mutants": mutants, "ledger": ledger, "accounting": accounting,
}  # fmt: skip


def stored() -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    if STORED.exists():
        found = json.loads(STORED.read_text(encoding="utf-8"))
    return found | {"audits": audits.stored(HERE / "audits.csv")}


def measure() -> None:
    """What is not stored yet."""
    for name, part in PARTS.items():
        found = {k: v for k, v in stored().items() if k in PARTS}
        if name not in found:
            text = json.dumps(found | {name: part(False)}, indent=1) + "\n"
            STORED.write_text(text, encoding="utf-8")
    audits.measure(HERE / "audits.csv")


# -- what holds --------------------------------------------------------------------------------


def problems(found: dict[str, list[Row]]) -> Iterator[str]:
    """Everything that does not hold, in words."""
    yield from audits.problems(found["audits"])
    for name in PARTS:
        if name not in found:
            yield f"not measured yet: {name}"
    for row in found.get("mutants", ()):
        if not row["found"]:
            yield f"not found: {row['fault']}"
    for row in found.get("accounting", ()):
        if row["ours"] < row["truth"] - 1e-9:
            yield f"a composition is priced below its truth: {row}"
        if row["ours"] > 1.3 * row["truth"] and not _is_least(row):
            yield f"a composition is priced far above its truth: {row}"


def _is_least(row: Row) -> bool:
    return bool(row["laplace"] and row["ours"] <= row["least"] * (1 + 1e-9))


# -- the table ---------------------------------------------------------------------------------


def table(found: dict[str, list[Row]]) -> str:
    """Markdown, for the documentation to include; what was not measured yet is left out."""
    made = {"mutants": _mutants, "ledger": _ledger, "accounting": _accounting}
    parts = [_audits(found), _narrow(found), *(made[name](found) for name in made if name in found)]
    return "\n\n".join([HEAD, *parts]) + "\n"


HEAD = """# What was tried against the promise

Written by `python tests/benchmarks/trust.py`."""


def _grid(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def _grouped(rows: list[Row], told: str) -> Iterator[list[Row]]:
    for job in audits.jobs():
        own = [row for row in rows if audits.job(row) == job]
        if own and (job[2] == "right") == (told == "right"):
            yield own


def _audits(found: dict[str, list[Row]]) -> str:
    rows = []
    for own in _grouped(found["audits"], "right"):
        w = audits.whole(own)
        share = f"{w['bound'] / w['claimed']:.2f}"
        verdict = "no" if all(r["holds"] for r in own) else "**yes**"
        rows.append(
            (
                w["case"], w["relation"].replace("_", "/"), len(own) - 1, w["measure"],
                f"{w['claimed']:.3f}", f"{w['exact']:.3f}", f"{w['bound']:.3f}", share,
                f"{w['trials']:,}", verdict,
            )
        )  # fmt: skip
    heads = (
        "fit", "neighbours", "claims", "of", "claimed", "exact", "shown", "share", "draws",
        "refuted",
    )  # fmt: skip
    wanted = sum(told == "right" for _, _, told in audits.jobs())
    words = (
        f"## Audits\n\n{len(rows)} of {wanted} fits audited, at level {audits.LEVEL:g} for all "
        "together. *claimed* is what all answers of the fit were charged (mu of Gaussian noise, "
        "epsilon of Laplace noise), *exact* what the worst invented pair of tables comes to under "
        "the stated noise, *shown* what drawn noise proves at least; each answer was audited alone "
        "as well."
    )
    return f"{words}\n\n{_grid(heads, rows)}"


def _narrow(found: dict[str, list[Row]]) -> str:
    rows = []
    for own in _grouped(found["audits"], "narrow"):
        most = max(own, key=lambda r: r["bound"] / r["claimed"])
        seen = "yes" if any(not r["holds"] for r in own) else "**no**"
        name = own[0]["case"], own[0]["relation"].replace("_", "/"), own[0]["noise"]
        rows.append((*name, f"{most['bound'] / most['claimed']:.2f}", seen))
    heads = ("fit", "neighbours", "planted: noise", "shown / claimed", "caught")
    return f"## Planted narrow noise\n\n{_grid(heads, rows)}"


def _mutants(found: dict[str, list[Row]]) -> str:
    rows = found["mutants"]
    killed = sum(bool(r["found"]) for r in rows)
    grid = _grid(("planted fault", "found by"), [(r["fault"], r["check"]) for r in rows])
    return f"## Planted faults in the source\n\n{killed} of {len(rows)} found.\n\n{grid}"


def _ledger(found: dict[str, list[Row]]) -> str:
    rows = [(r["fault"], r["survived"], r["survived"]) for r in found["ledger"]]
    return f"## A ledger under fire\n\n{_grid(('fault', 'tried', 'survived'), rows)}"


def _accounting(found: dict[str, list[Row]]) -> str:
    rows = []
    for words, kind in (
        ("Gaussian alone", lambda r: not r["laplace"]),
        ("Laplace alone", lambda r: not r["gaussian"]),
        ("both", lambda r: r["gaussian"] and r["laplace"]),
    ):
        ratio = [r["ours"] / r["truth"] for r in found["accounting"] if kind(r)]
        rows.append((words, len(ratio), f"{min(ratio):.3f}", f"{max(ratio):.3f}"))
    heads = ("random compositions", "number", "least ours / true", "most")
    words = "Totals of the ledger over Google's privacy loss distributions (dp-accounting)."
    return f"## Accounting\n\n{words}\n\n{_grid(heads, rows)}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few of each, nothing is written")
    parser.add_argument("--table", action="store_true", help="from what is stored")
    options = parser.parse_args(argv)
    if options.quick:
        found = {name: part(True) for name, part in PARTS.items()}
        found["audits"] = audits.quick()
        print(table(found))
    else:
        if not options.table:
            measure()
        found = stored()
        TABLE.write_text(table(found), encoding="utf-8")
        left = len(audits.jobs()) - len({audits.job(row) for row in found["audits"]})
        print(f"{left} audits are left to do")
    wrong = list(problems(found))
    print("\n".join(wrong) or "everything holds")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
