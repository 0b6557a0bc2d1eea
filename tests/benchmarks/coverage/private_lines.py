"""Numbers of PrivATE (Schroeder et al. 2025) beside ours, from the rows that the studies stored.

Rows made by other code are left out.

    python tests/benchmarks/coverage/private_lines.py
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import pairwise
from math import nan

import budgets
import pandas as pd
from cells import read, stale, summary
from scipy.stats import norm
from tables import HERE

sys.path.append(str(HERE.parent))

import printed
from printed import Line

REFERENCE, FOLDER = HERE.parents[1] / "reference", HERE.parent / "private"
NEAR = 0.9, 1.1
"""Ratio to what is printed, where data and nuisances are the same."""

WIDTHS = 1 / 1.5, 1.5
"""The same where the paper does not say which covariates and bandwidths it took."""

BASES = {"kernel": "kernel", "nn": "network"}
NARROW = (
    "an interval that protects nothing is narrower at every epsilon, so that it wins where width "
    "weighs most or epsilon is large; how the paper scales privacy and width is not printed"
)
SGD = (
    "the paper leaves open how long SGD runs; with scikit-learn's 200 epochs the network's "
    "estimate without privacy is off by 1.2 of its standard deviations on dataset 2"
)


def rows(study: str) -> pd.DataFrame:
    """A line for each cell of a study, from the rows of today's code."""
    found = read(HERE / f"{study}.parquet")
    return summary(found[~stale(found)]).set_index(["data", "n", "eps", "method"])


def table1() -> Iterator[Line]:
    table, command = rows("table1"), "python tests/benchmarks/coverage/table1.py"
    for row in pd.read_csv(REFERENCE / "private2025_table1.csv").to_dict("records"):
        base, level = BASES[row["base"]], f"in{100 * row['level']:.0f}"
        cell = table.loc[(f"dataset {row['dataset']}", 3000, 0.5)][level]
        said = f"dataset {row['dataset']}, {base}, {row['level']:.0%}"
        yield Line(
            "Table 1", f"{said}: coverage", row["coverage_private"], cell[f"paper {base} 0.9"],
            *NEAR, command,
        )  # fmt: skip
        if row["level"] == 0.95:
            yield Line(
                "Table 1", f"{said}: without privacy", row["coverage_standard"],
                cell[f"standard {base}"], *NEAR, command, SGD,
            )  # fmt: skip
            naive = cell[f"naive {base} 0.9"]
            yield Line("Table 1", f"{said}: the naive interval, at most .1", nan, naive, 0, 0.1,
                       command)  # fmt: skip


def table2() -> Iterator[Line]:
    table, command = rows("widths"), "python tests/benchmarks/coverage/widths.py"
    for row in pd.read_csv(REFERENCE / "private2025_table2.csv").to_dict("records"):
        here = table.loc[("RHC", 5735, row["epsilon"], "paper kernel 0.9")]
        half = here["rms_std_error"] * float(norm.ppf(0.5 + row["level"] / 2))
        yield Line(
            "Table 2", f"RHC, eps {row['epsilon']:g}, {row['level']:.0%}: half-width, 20 runs",
            row["half_width"], half, *WIDTHS, command,
            "covariates and bandwidths of the paper are not known",
        )  # fmt: skip
        naive = table.loc[("RHC", 5735, row["epsilon"], "valid naive kernel 0.9")]
        said = f"RHC, eps {row['epsilon']:g}, {row['level']:.0%}: valid naive half-width (one fit)"
        ratio = naive["rms_std_error"] / here["rms_std_error"]
        yield Line("Table 2", f"{said} over ours, at most 1", nan, ratio, 0, 1.0, command)


def table3() -> Iterator[Line]:
    table, command = rows("trial"), "python tests/benchmarks/coverage/trial.py"
    for row in pd.read_csv(REFERENCE / "private2025_table3.csv").to_dict("records"):
        base = BASES.get(row["method"], "difference of Guha and Reiter")
        name = f"paper {base} 0.9" if row["method"] in BASES else "aggregated"
        here = table.loc[("trial", 1000, 0.5, name)]
        yield Line(
            "Table 3", f"trial, {base}, {row['level']:.0%}: coverage", row["coverage"],
            here[f"in{100 * row['level']:.0f}"], *NEAR, command,
            "the printed one is of ten runs",
        )  # fmt: skip


def figures() -> Iterator[Line]:
    table, command = rows("budgets").reset_index(), "python tests/benchmarks/coverage/budgets.py"
    for along in budgets.GRIDS:
        widths = budgets.curve(table, along, budgets.METHOD)
        falls = sum(a > b for a, b in pairwise(widths))
        said = f"intervals narrow as {along} grows: share of steps"
        yield Line("Figure 4", said, nan, falls / (len(widths) - 1), 1, 1, command)
        plain = budgets.curve(table, along, "standard kernel")
        nearer = (widths[0] / plain[0]) / (widths[-1] / plain[-1])
        said = f"and come nearer to those without privacy: factor along {along}, at least 2"
        yield Line("Figure 4", said, nan, nearer, 2, 1000, command)
    above = {
        (other, weight): float((scores["PrivATE"] > scores[other]).mean())
        for weight in budgets.WEIGHTS
        for other, scores in ((o, budgets.utility(table, weight)) for o in ("bootstrap", "naive"))
    }
    for weight in budgets.WEIGHTS:
        said = f"utility above the bootstrap's, weight of privacy {weight:g}: share of budgets"
        yield Line("Figure 5", said, nan, above["bootstrap", weight], 1, 1, command)
    for weight in budgets.WEIGHTS:
        said = f"utility above the naive interval's, weight of privacy {weight:g}: share of budgets"
        yield Line("Figure 5", said, nan, above["naive", weight], 1, 1, command, NARROW)
    trial = rows("trial").loc[("trial", 1000, 0.5)]["half_width"]
    yield Line(
        "Figure 6", "half-width of the difference of Guha and Reiter over PrivATE's, networks, "
        "above 1", nan, trial["aggregated"] / trial["paper network 0.9"], 1, 1000,
        "python tests/benchmarks/coverage/trial.py",
    )  # fmt: skip


def lines() -> list[Line]:
    """In the paper's order."""
    return [*table1(), *table2(), *table3(), *figures()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="write nothing")
    options, found = parser.parse_args(), lines()
    if not options.quick:
        printed.write(FOLDER, found)


if __name__ == "__main__":
    main()
