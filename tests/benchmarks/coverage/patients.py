"""Coverage of the default interval on real covariates with a simulated treatment and outcome.

The covariates are those of the Right Heart Catheterization study; the laws bias the unadjusted
difference by .060 through smooth functions, by .050 through products of covariates (`draws.py`).

    python tests/benchmarks/coverage/patients.py --repetitions 1000
    python tests/benchmarks/coverage/patients.py --quick
"""

from __future__ import annotations

import sys
from itertools import pairwise

import pandas as pd
from cells import summary
from tables import Section, Study, Verdict, coverage_table, grid, main, nominal_verdicts

REPETITIONS, ROWS = 1000, 5735
BUDGETS = (0.1, 0.25, 0.5, 1)
METHODS = ["default", "difference, no privacy"]
CELLS = grid(("RHC smooth", "RHC interacting"), (ROWS,), BUDGETS, METHODS, 340_000)


def section(rows: pd.DataFrame) -> Section:
    every = summary(rows)
    found = every[every["method"] == "default"].reset_index(drop=True)
    plain = every[every["method"] != "default"].set_index(["data", "eps"])["bias"]
    table = coverage_table(found)
    shares = [row["bias"] / plain[row["data"], row["eps"]] for row in found.to_dict("records")]
    table.insert(len(table.columns) - 1, "bias / unadjusted", [f"{share:+.2f}" for share in shares])
    return table, [*nominal_verdicts(found, REPETITIONS), *_falling(found)], [
        "`bias / unadjusted`: 1 if the estimate were the unadjusted difference"
    ]  # fmt: skip


def _falling(found: pd.DataFrame) -> list[Verdict]:
    verdicts = []
    for data, part in found.sort_values("eps").groupby("data", sort=False):
        for column in ("half_width", "median_half_width"):
            widths = part[column].to_list()
            falls = all(a > b for a, b in pairwise(widths))
            shown = ", ".join(f"{w:.4f}" for w in widths)
            verdicts.append(
                Verdict(falls, f"{data}: {column.replace('_', ' ')} falls as eps grows: {shown}")
            )
    return verdicts


STUDY = Study(
    "patients",
    "coverage on RHC covariates, simulated treatment and outcome",
    CELLS,
    REPETITIONS,
    section,
    (tuple(cell for cell in CELLS if cell.eps in (0.1, 1)), 3),
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
