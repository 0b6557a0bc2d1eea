"""Coverage where the law of confounding is drawn anew in each repetition, by its shape.

What the default allows for shapes that its interactions cannot express was settled on such draws,
of other seeds. `n` is that of the largest draw (`random_laws.py`).

    python tests/benchmarks/coverage/laws.py --repetitions 100
    python tests/benchmarks/coverage/laws.py --quick
"""

from __future__ import annotations

import sys

import pandas as pd
from cells import summary
from random_laws import SHAPES
from tables import Section, Study, coverage_table, grid, main, nominal_verdicts

REPETITIONS, MOST_ROWS = 100, 12_000
BUDGETS = (0.5, 1, 2)
METHODS = ["default", "difference, no privacy"]
CELLS = grid([f"random {shape}" for shape in SHAPES], (MOST_ROWS,), BUDGETS, METHODS, 800_000)


def section(rows: pd.DataFrame) -> Section:
    found = summary(rows)
    ours = found[found["method"] == "default"].reset_index(drop=True)
    return coverage_table(ours), nominal_verdicts(ours, REPETITIONS), [
        "bias and sd are over laws as well as draws, so that their signs cancel",
    ]  # fmt: skip


STUDY = Study(
    "laws",
    "coverage under random laws of confounding",
    CELLS,
    REPETITIONS,
    section,
    (tuple(cell for cell in CELLS if cell.eps == 1), 2),
)

if __name__ == "__main__":
    sys.exit(main(STUDY))
