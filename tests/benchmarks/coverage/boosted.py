"""Coverage of the averages of learners on base "dpebm", where covariates confound.

Setups A to E of Niu et al. (2022) and three laws of ours on which nothing was chosen. Products of
covariates confound in A and in "orchard", which shapes of single columns cannot express.

    python tests/benchmarks/coverage/boosted.py --repetitions 12
    python tests/benchmarks/coverage/boosted.py --quick
"""

from __future__ import annotations

import sys

import pandas as pd
from cells import summary
from tables import Section, Study, Verdict, coverage_table, grid, main, unfinished

REPETITIONS, LEAST = 12, 0.93
DATA = (*(f"setup {s}" for s in "ABCDE"), "harbour", "orchard", "canyon")
METHODS = ("boosted r", "boosted dr", "boosted x")
CELLS = grid(DATA, (4000, 16_000), (1,), METHODS, 9_000_000)


def section(rows: pd.DataFrame) -> Section:
    found = summary(rows)
    verdicts = unfinished(found, REPETITIONS)
    for (method, n), part in rows.groupby(["method", "n"], sort=False):
        missed = part[part["in95"] == 0]
        covered, noted = 1 - len(missed) / len(part), (missed["noted"] > 0).mean()
        text = f"{method}, n = {n:g}: {covered:.1%} of {len(part)} covered, {LEAST:.0%} wanted"
        if len(missed):
            text += f"; a note stands in {noted:.0%} of the misses"
        verdicts.append(Verdict(covered >= LEAST, text))
    return coverage_table(found), verdicts, []


STUDY = Study(
    "boosted",
    "coverage of averages on base dpebm",
    CELLS,
    REPETITIONS,
    section,
    (CELLS[:1], 1),
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
