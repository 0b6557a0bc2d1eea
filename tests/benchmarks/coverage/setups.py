"""Coverage of the default interval on setups A and D of Niu et al. (2022, table 1).

A's confounding is a product of two covariates.

    python tests/benchmarks/coverage/setups.py --repetitions 1000
    python tests/benchmarks/coverage/setups.py --quick
"""

from __future__ import annotations

import sys

import pandas as pd
from cells import summary
from tables import Section, Study, Verdict, coverage_table, grid, main, unfinished

REPETITIONS, LEAST = 1000, 0.93
CELLS = grid(("setup A", "setup D"), (3000, 10_000), (0.5, 1), ["default"], 200_000)


def section(rows: pd.DataFrame) -> Section:
    found = summary(rows)
    verdicts = unfinished(found, REPETITIONS)
    for row in found.to_dict("records"):
        where = f"{row['data']}, n = {row['n']}, eps = {row['eps']:g}"
        text = f"{where}: {row['in95']:.1%} covered, at least {LEAST:.0%} wanted"
        if row["in95"] < LEAST:
            text += f"; the note stands in {row['noted']:.0%} of the fits"
        verdicts.append(Verdict(row["in95"] >= LEAST, text))
    return coverage_table(found), verdicts, []


STUDY = Study(
    "setups",
    "coverage on setups A and D of Niu et al.",
    CELLS,
    REPETITIONS,
    section,
    (tuple(cell for cell in CELLS if cell.n == 3000), 4),
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
