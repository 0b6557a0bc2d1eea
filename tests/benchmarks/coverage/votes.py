"""Outcomes of 0 or 1 in a trial with known propensity: coverage, and what privacy costs in width.

Scores have few values there, and an interval that allows for a long tail is too wide at any eps.

    python tests/benchmarks/coverage/votes.py --repetitions 400
    python tests/benchmarks/coverage/votes.py --quick
"""

from __future__ import annotations

import sys

import pandas as pd
from cells import summary
from draws import SHARES
from tables import Section, Study, Verdict, at, coverage_table, grid, main, nominal_verdicts

REPETITIONS, ROWS, BUDGETS = 400, 20_000, (0.5, 1, 4)
PLAIN, MOST = "regression, no privacy", {0.5: 1.5, 1: 1.15, 4: 1.05}
"""How much wider than without privacy an interval may be."""

NAMES = [f"vote of {share:.0%}" for share in SHARES]
CELLS = grid(NAMES, (ROWS,), BUDGETS, ["default", PLAIN], 600_000)


def section(rows: pd.DataFrame) -> Section:
    every = summary(rows)
    found = every[every["method"] == "default"].reset_index(drop=True)
    verdicts = nominal_verdicts(found, REPETITIONS)
    for row in found.to_dict("records"):
        where = {"data": row["data"], "n": row["n"], "eps": row["eps"]}
        plain = at(every, **where, method=PLAIN)
        if plain is not None:
            ratio, most = row["half_width"] / plain["half_width"], MOST[row["eps"]]
            text = f"{row['data']}, eps = {row['eps']:g}: {ratio:.3f} times as wide as {PLAIN}"
            verdicts.append(Verdict(ratio <= most, f"{text}, at most {most} wanted"))
    return coverage_table(found), verdicts, []


STUDY = Study(
    "votes",
    "coverage and widths for outcomes of 0 or 1, known propensity",
    CELLS,
    REPETITIONS,
    section,
    (tuple(cell for cell in CELLS if cell.eps == 1), 3),
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
