"""Table 1 of PrivATE (Schroeder et al. 2025): coverage of its own intervals, here and as printed.

Paper mode, the interval without privacy and the naive one, n = 3000, eps = 0.5, delta = 1e-5, the
kernel and the neural base, 500 repetitions as in the paper; with 0.9 of the budget for the mean, as
the table's caption says; for the kernel also in equal shares, as supplement C.2 says.

    python tests/benchmarks/coverage/table1.py --repetitions 500
    python tests/benchmarks/coverage/table1.py --quick
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from cells import Cell, summary
from tables import NOMINAL, Section, Study, Verdict, at, main, unfinished

REPETITIONS, ROWS, EPS = 500, 3000, 0.5
LEVELS = tuple(NOMINAL)
BASES, KINDS = ("kernel", "network"), ("standard", "naive", "private")
PRINTED = {
    # (dataset, base): at 80, 90 and 95 %, (standard, naive, private)
    (1, "kernel"): ((0.792, 0.008, 0.784), (0.902, 0.036, 0.912), (0.960, 0.038, 0.964)),
    (1, "network"): ((0.762, 0.024, 0.824), (0.868, 0.028, 0.894), (0.950, 0.020, 0.962)),
    (2, "kernel"): ((0.770, 0.004, 0.848), (0.904, 0.008, 0.910), (0.950, 0.010, 0.958)),
    (2, "network"): ((0.800, 0.012, 0.832), (0.912, 0.008, 0.904), (0.952, 0.016, 0.954)),
}
METHODS = ("paper kernel 0.9", "paper network 0.9", "paper kernel 0.5")
CELLS = tuple(Cell(f"dataset {k}", ROWS, EPS, METHODS, 500_000 + 1000 * k) for k in (1, 2))


def section(rows: pd.DataFrame) -> Section:
    found = summary(rows)
    lines, verdicts = [], unfinished(found, REPETITIONS)
    for (dataset, base), printed in PRINTED.items():
        for kind in KINDS:
            for share in ("0.9",) if kind == "standard" else ("0.9", "0.5"):
                ours = at(found, data=f"dataset {dataset}", method=_method(kind, base, share))
                if ours is None:
                    continue
                theirs = [level[KINDS.index(kind)] for level in printed]
                line = {"dataset": dataset, "base": base, "interval": kind,
                        "share": "" if kind == "standard" else share,
                        "reps": ours["repetitions"]}  # fmt: skip
                away = [
                    apart(ours[level], there, ours["repetitions"])
                    for level, there in zip(LEVELS, theirs, strict=True)
                ]
                for level, there, z in zip(LEVELS, theirs, away, strict=True):
                    line[f"{level[2:]} %"] = f"{ours[level]:.3f} / {there:.3f} ({z:+.1f})"
                line["half-width"] = f"{ours['half_width']:.3f}"
                lines.append(line)
                verdicts += _agree(line, away, kind, share)
    return pd.DataFrame(lines), verdicts, [
        "ours / printed (distance in standard errors of the difference of two proportions)",
        *REASONS,
    ]  # fmt: skip


REASONS = (
    "dataset 2, kernel, at 80 %: the printed .848 is itself 2.7 standard errors above nominal; "
    "ours is at nominal",
    "dataset 2, intervals without privacy: with the network ours are off by 1.2 of their standard "
    "deviations (the paper leaves open how long SGD runs; ours takes scikit-learn's 200 epochs), "
    "with the kernel they are a tenth too narrow: errors of the base on 24 covariates, which "
    "privacy's noise, a hundred times as large, hides in paper mode",
)


def _method(kind: str, base: str, share: str) -> str:
    if kind == "standard":
        return f"standard {base}"
    return f"{'paper' if kind == 'private' else 'naive'} {base} {share}"


def apart(ours: float, theirs: float, repetitions: int) -> float:
    """Difference over its standard error, both coverages being estimates; half a hit at 0 and 1."""
    errors = []
    for covered, count in ((ours, repetitions), (theirs, REPETITIONS)):
        p = min(max(covered, 0.5 / count), 1 - 0.5 / count)
        errors.append(p * (1 - p) / count)
    return (ours - theirs) / float(np.sqrt(sum(errors)))


def _agree(line: dict[str, object], away: list[float], kind: str, share: str) -> list[Verdict]:
    """PrivATE's own intervals, with the caption's shares, are what must agree."""
    if kind != "private" or share != "0.9":
        return []
    where = f"dataset {line['dataset']}, {line['base']}"
    shown = ", ".join(f"{z:+.1f}" for z in away)
    text = f"{where}: paper mode's coverages are {shown} standard errors from those printed"
    return [Verdict(max(map(abs, away)) <= 2, f"{text}, within 2")]


STUDY = Study(
    "table1",
    "Table 1 of PrivATE, here and as printed",
    CELLS,
    REPETITIONS,
    section,
    (tuple(Cell(c.data, c.n, c.eps, METHODS[:1], c.first_seed) for c in CELLS[:1]), 5),
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
