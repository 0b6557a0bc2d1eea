"""What the package promises, and what was tried against it: the table in the documentation.

    python tests/benchmarks/trust.py            # all that is not stored yet, then the table
    python tests/benchmarks/trust.py --table    # the table alone, from what is stored
    python tests/benchmarks/trust.py --quick    # a few of each, nothing is written

Audits (`audits.py`), planted faults (`tests/mutants`), a ledger under fire (`tests/accounting`),
random compositions against dp-accounting, wrong calls (`tests/wrong_calls.py`) and canaries
(`tests/privacy`). Some thirty minutes on one core. What was measured is kept in `trust.json` and
`audits.csv`, part by part, and is not measured again: remove a part to repeat it. Exits with 1 if
anything does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "mutants"))
sys.path.insert(0, str(Path(__file__).parents[1] / "accounting"))
sys.path.insert(0, str(Path(__file__).parents[1] / "privacy"))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import audits
import compositions
import hunt
import ledger_fire as fire
import test_bad_input as bad_input
import test_canary as canary
import wrong_calls
from canaries import LONG, NEEDLES, found_in
from canaries import told as all_told
from mutant_catalogue import MUTANTS
from planting import run

import privcausal as pc
from privcausal import testing
from privcausal.errors import PrivcausalError

HERE = Path(__file__).parent

STORED, TABLE = HERE / "trust.json", HERE / "trust-table.md"

Row = dict[str, Any]


# -- the parts ---------------------------------------------------------------------------------


def mutants(quick: bool) -> list[Row]:
    """Each planted fault, the test that finds it, and how."""
    chosen = MUTANTS[::9] if quick else MUTANTS
    return [{"fault": m.name, "check": m.killer, "found": m.killed()} for m in chosen]


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
        "a line is edited": _passes("test_an_edit_is_noticed"),
        "an old copy is put back": _passes("test_an_old_copy_of_the_database"),
        "the head is lost": _passes("test_a_deleted_head"),
        "read-only": _passes("test_a_read_only_ledger"),
        "two names": _passes("test_a_hard_link_is_refused"),
    }
    return [_under_fire(words, fault) for words, fault in tried.items()]


def _under_fire(words: str, fault: Callable[[], int]) -> Row:
    """A function gives how many it tried and survived, and raises at the first that it does not."""
    try:
        count = fault()
    except AssertionError:
        return {"fault": words, "tried": 1, "survived": 0}
    return {"fault": words, "tried": count, "survived": count}


def _passes(test: str) -> Callable[[], int]:
    def survived() -> int:
        assert run(f"accounting/test_ledger_faults.py::{test}").returncode == 0
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


def inputs(quick: bool) -> list[Row]:
    """Wrong calls by kind, and how many were not refused as stated, spent, showed or were slow."""
    names = list(bad_input.CASES)[::25] if quick else list(bad_input.CASES)
    rows: dict[str, Row] = {}
    with tempfile.TemporaryDirectory() as folder:
        ledger = pc.Ledger(Path(folder) / "study.db", "study", eps=5)
        for name in names:
            case = bad_input.CASES[name]
            found, kind = wrong_calls.tried(case, ledger), name.partition(":")[0]
            row = rows.setdefault(
                kind, {"kind": kind} | dict.fromkeys(FAILED, 0) | {"slowest": 0.0}
            )
            row["tried"] += 1
            row["otherwise"] += not found.is_as_stated(case)
            row["charged"] += found.charged != 0
            row["shown"] += found.shows_a_row
            row["slow"] += found.seconds >= 10
            row["slowest"] = round(max(row["slowest"], found.seconds), 2)
    return list(rows.values())


FAILED = ("tried", "otherwise", "charged", "shown", "slow")


def canaries(quick: bool) -> list[Row]:
    """Tables with a canary row, the outputs searched for it in every form, and how often found."""
    some = slice(None, None, 6 if quick else 1)
    return [
        _outputs_searched(list(canary.KINDS)[some]),
        _errors_searched(list(canary.WRONG.values())[some]),
        _faults_searched(canary.STEPS[some]),
    ]


def _outputs_searched(kinds: list[str]) -> Row:
    searched = found = 0
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
            with testing.seeded_noise(3):
                fit = canary.fitted(kind)
            published = "paper" in canary.KINDS[kind].values()
            place = Path(folder)
            for _, content in chain(canary.outputs(fit, place), canary.drawings(fit, place)):
                searched += 1
                found += bool(found_in(content, LONG if published else NEEDLES))
    return _searched("results of fits, in every form they have", len(kinds), searched, found)


def _errors_searched(calls: list[Any]) -> Row:
    found = 0
    for call in calls:
        try:
            call()
        except PrivcausalError as error:
            found += bool(found_in(all_told(error)))
        else:
            found += 1  # it should have been refused
    return _searched("errors, with all that hangs on them", len(calls), len(calls), found)


def _faults_searched(steps: list[str]) -> Row:
    found = searched = 0
    for step in steps:
        for fault in canary.faults(canary.N):
            searched += 1
            with mock.patch(f"privcausal.{step}", side_effect=fault):
                try:
                    pc.privcate(canary.FORMULA, canary.rows(), **canary.STEPPED)
                except PrivcausalError as error:
                    found += bool(found_in(all_told(error)) or error.__context__)
                else:
                    found += 1  # the step was not taken
    return _searched(
        "exceptions that quote it, inside the vault's steps", searched, searched, found
    )


def _searched(where: str, planted: int, searched: int, found: int) -> Row:
    row = {"where": where, "planted": planted, "searched": searched, "found": found}
    return row | {"forms": len(NEEDLES)}


def hunted(quick: bool) -> list[Row]:
    """Cases of the standing hunt by source: how many were fitted, refused, and told apart."""
    rows: dict[str, Row] = {}
    cases = range(hunt.LATER, hunt.LATER + (40 if quick else 5000))
    for number, outcome, _ in hunt.hunt(cases, 1 if quick else 2):
        source = hunt.draw(number).source
        row = rows.setdefault(source, {"source": source} | dict.fromkeys(HUNTED, 0))
        row["tried"] += 1
        told = {"fitted": "fitted", hunt.DEPARTED: "departed"}
        row[told.get(outcome, "refused")] += 1
    return list(rows.values())


HUNTED = ("tried", "fitted", "refused", "departed")


PARTS: dict[str, Callable[[bool], list[Row]]] = {
    "hunt": hunted, "mutants": mutants, "ledger": ledger, "accounting": accounting,
    "inputs": inputs, "canaries": canaries,
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
    for row in found.get("hunt", ()):
        if row["departed"]:
            yield f"neighbours were told apart: {row['source']}"
    for row in found.get("mutants", ()):
        if not row["found"]:
            yield f"not found: {row['fault']}"
    for row in found.get("ledger", ()):
        if row["survived"] < row["tried"]:
            yield f"not survived: {row['fault']}"
    for row in found.get("inputs", ()):
        if any(row[name] for name in FAILED[1:]):
            yield f"wrong calls that were not refused as stated: {row['kind']}"
    for row in found.get("canaries", ()):
        if row["found"]:
            yield f"the canary was found: {row['where']}"
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
    made = {
        "hunt": _hunted, "mutants": _mutants, "ledger": _ledger, "inputs": _inputs,
        "canaries": _canaries, "accounting": _accounting,
    }  # fmt: skip
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
        "as well. *exact* is below *claimed* where no pair that was tried moves all answers as far "
        "as is paid for: the rows that are worst for one answer are not for another, and what is "
        "paid for takes each column of a basis at its largest, which no one row has in all of them."
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


def _hunted(found: dict[str, list[Row]]) -> str:
    rows = [(r["source"], *(r[name] for name in HUNTED)) for r in found["hunt"]]
    rows.append(("all", *(sum(r[name] for r in found["hunt"]) for name in HUNTED)))
    words = (
        "Tables of columns of any type, one of whose rows (or units) is changed or leaves, with "
        "calls drawn at random: learner, base, split, neighbours, units, bounds. Told "
        "apart are two tables where a query, a price, an error, a warning or a byte of the saved "
        "fit differs for equal answers, or an exact answer moves beyond its stated sensitivity. "
        "Refused means that both calls end in the same error. By `python tests/privacy/hunt.py`."
    )
    heads = ("source", "tables", "fitted", "refused alike", "told apart")
    return f"## A standing hunt\n\n{words}\n\n{_grid(heads, rows)}"


def _mutants(found: dict[str, list[Row]]) -> str:
    rows = found["mutants"]
    killed = sum(bool(r["found"]) for r in rows)
    grid = _grid(("planted fault", "found by"), [(r["fault"], r["check"]) for r in rows])
    return f"## Planted faults in the source\n\n{killed} of {len(rows)} found.\n\n{grid}"


def _ledger(found: dict[str, list[Row]]) -> str:
    rows = [(r["fault"], r["tried"], r["survived"]) for r in found["ledger"]]
    rows.append(("all", *(sum(r[name] for r in found["ledger"]) for name in ("tried", "survived"))))
    return f"## A ledger under fire\n\n{_grid(('fault', 'tried', 'survived'), rows)}"


def _inputs(found: dict[str, list[Row]]) -> str:
    rows = [(r["kind"], *(r[n] for n in FAILED), f"{r['slowest']:.1f}") for r in found["inputs"]]
    total = (sum(r[n] for r in found["inputs"]) for n in FAILED)
    rows.append(("all", *total, f"{max(r['slowest'] for r in found['inputs']):.1f}"))
    heads = ("kind", *FAILED[:1], "not refused as stated", "spent something", "showed a row",
             "took 10 s", "slowest, s")  # fmt: skip
    words = "Each has its class of error and words of its message, in `tests/wrong_calls.py`."
    return f"## Wrong calls\n\n{words}\n\n{_grid(heads, rows)}"


def _canaries(found: dict[str, list[Row]]) -> str:
    rows = [(r["where"], r["planted"], r["searched"], r["found"]) for r in found["canaries"]]
    rows.append(("all", *(sum(row[k] for row in rows) for k in (1, 2, 3))))
    words = (
        "A row holds a number far beyond its bounds and a label that nobody declared. Both are "
        f"sought in {found['canaries'][0]['forms']} forms: text in several encodings, digits, "
        "bytes of floats, base64, pickles and others."
    )
    heads = ("where", "tables with a canary", "outputs searched", "found")
    return f"## Canaries\n\n{words}\n\n{_grid(heads, rows)}"


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
    print("\n".join(wrong) or "All checks passed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
