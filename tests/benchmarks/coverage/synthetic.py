"""Coverage of the default interval on PrivATE's data (Schroeder et al. 2025, supplements C and E).

Datasets 1 and 2 and the trial, whose propensity is known.

    python tests/benchmarks/coverage/synthetic.py --repetitions 1000
    python tests/benchmarks/coverage/synthetic.py --quick
"""

from __future__ import annotations

import sys

import pandas as pd
from cells import summary
from tables import Section, Study, coverage_table, grid, main, nominal_verdicts

DATA, SIZES, BUDGETS = (
    ("dataset 1", "dataset 2", "trial"),
    (1000, 3000, 10_000),
    (0.1, 0.25, 0.5, 1),
)
REPETITIONS = 1000
CELLS = grid(DATA, SIZES, BUDGETS, ["default"], 100_000)


def section(rows: pd.DataFrame) -> Section:
    found = summary(rows)
    return coverage_table(found), nominal_verdicts(found, REPETITIONS), []


STUDY = Study(
    "synthetic",
    "coverage on datasets 1 and 2 and the trial of PrivATE",
    CELLS,
    REPETITIONS,
    section,
    (tuple(cell for cell in CELLS if cell.n == 1000 and cell.eps in (0.1, 1)), 2),
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
