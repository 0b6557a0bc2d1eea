"""The command line of studies that make many fits of each law at each epsilon."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

Found = list[dict[str, Any]]


def study(
    about: str | None,
    laws: Sequence[str],
    epsilons: Sequence[float],
    rows: int,
    fitted: Callable[[str, float, int, int], dict[str, Any]],
    table: Callable[[Found], pd.DataFrame],
) -> None:
    """Print the table of fits by law, epsilon and seed, from one seed on.

    Choices used seeds from 0, and reports use those from 100,000.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--reps", type=int, default=200)
    parser.add_argument("--first", type=int, default=100_000, help="first seed; choices used 0")
    parser.add_argument("--rows", type=int, default=rows)
    parser.add_argument("--laws", default=",".join(laws))
    parser.add_argument("--quick", action="store_true", help="two fits of each law")
    options = parser.parse_args()
    seeds = range(options.first, options.first + (2 if options.quick else options.reps))
    cells = itertools.product(options.laws.split(","), epsilons, seeds)
    found = [fitted(law, eps, seed, options.rows) for law, eps, seed in cells]
    print(table(found).round(3).to_string())
