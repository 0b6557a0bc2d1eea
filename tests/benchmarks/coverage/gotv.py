"""A large trial: Get Out the Vote (Gerber, Green and Larimer 2008), propensity 1/6 known.

Every repetition reads the same 229,444 rows with new noise. The interval should hold the trial's
difference in means, and at eps = 1 be hardly wider than without privacy.

    python tests/benchmarks/coverage/gotv.py --repetitions 20
    python tests/benchmarks/coverage/gotv.py --quick
"""

from __future__ import annotations

import sys

import pandas as pd
from cells import Cell, summary
from tables import Section, Study, Verdict, main, unfinished

REPETITIONS, ROWS, MOST = 20, 229_444, 1.15
METHODS = ("default", "difference", "regression, no privacy", "difference, no privacy")
CELLS = tuple(
    Cell("GOTV", ROWS, eps, METHODS, 700_000 + 1000 * k) for k, eps in enumerate((0.1, 1))
)


def section(rows: pd.DataFrame) -> Section:
    found = summary(rows)
    table = found[["method", "eps"]].copy()
    table["reps"] = found["repetitions"]
    table["inside at 95 %"] = [f"{value:.2f}" for value in found["in95"]]
    for column, name in (
        ("half_width", "half-width"), ("bias", "estimate - .0813"), ("sd", "sd of noise"),
    ):  # fmt: skip
        table[name] = [f"{value:.5f}" for value in found[column]]
    table["noted"] = [f"{value:.0%}" for value in found["noted"]]
    return table, [*unfinished(found, REPETITIONS), *_verdicts(found)], [
        "without privacy nothing is random here: the rows are the same",
    ]  # fmt: skip


def _verdicts(found: pd.DataFrame) -> list[Verdict]:
    rows = {(row["method"], row["eps"]): row for row in found.to_dict("records")}
    verdicts = []
    for (method, eps), row in rows.items():
        if method == "default":
            text = f"default, eps = {eps:g}: .0813 is inside {row['in95']:.0%} of the intervals"
            verdicts.append(Verdict(row["in95"] >= 0.95, f"{text}, at least 95 % wanted"))
    if ("default", 1) in rows:
        for plain in ("regression, no privacy", "difference, no privacy"):
            ratio = rows["default", 1]["half_width"] / rows[plain, 1]["half_width"]
            text = f"default, eps = 1: {ratio:.3f} times as wide as {plain}, at most {MOST} wanted"
            verdicts.append(Verdict(ratio <= MOST, text))
    return verdicts


STUDY = Study(
    "gotv",
    "Get Out the Vote, known propensity",
    CELLS,
    REPETITIONS,
    section,
    (CELLS, 1),
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
