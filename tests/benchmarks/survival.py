"""Intervals of survival outcomes: coverage and width, by law, estimand and epsilon.

    python tests/benchmarks/survival.py --reps 400
    python tests/benchmarks/survival.py --quick

Two laws with times in days: a randomized trial without covariates, and an observational study with
two covariates, of which one confounds. In the study, times of censoring are shorter in the treated
arm, and a third to a half of the rows is censored before the horizon of 180 days. Half-widths are
divided by those of the same estimator without noise. In the trial, that estimator is the difference
of Kaplan-Meier estimates. Rows and noise have seeds: choices were made with `--first 0`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded

import numpy as np
import pandas as pd

import privcausal as pc
from privcausal.testing import seeded_noise, zero_noise

EPSILONS, HORIZON, REPORTED = (0.5, 1.0, 4.0), 180, 10_000
FORMULAS = {"trial": "Surv(days, died) ~ T", "study": "Surv(days, died) ~ T | X1 + X2"}
SHAPES = {"trial": 1.0, "study": 1.5}


def scale(x: Any, t: Any) -> Any:
    return 130 * (1 + 0.4 * t) * np.exp(0.8 * (x - 0.5))


def rows(law: str, seed: int, n: int) -> pd.DataFrame:
    rng = np.random.default_rng([47, seed])
    x, other = rng.random(n), rng.random(n)
    e = 0.5 if law == "trial" else 1 / (1 + np.exp(2 * (x - 0.5)))
    t = 1.0 * (rng.random(n) < e)
    died = np.ceil(scale(x, t) * rng.exponential(size=n) ** (1 / SHAPES[law]))
    lost = rng.uniform(60, 600, n) if law == "trial" else rng.exponential(400 - 150 * t)
    days = np.minimum(died, np.ceil(lost))
    return pd.DataFrame({"days": days, "died": died <= lost, "T": t, "X1": x, "X2": other})


def truth(law: str, estimand: str) -> float:
    x, k = np.linspace(0, 1, 1001), np.arange(HORIZON + 1)[:, None]
    alive = [np.exp(-((k / scale(x, t)) ** SHAPES[law])).mean(axis=1) for t in (0, 1)]
    before, by = (alive[1] - alive[0])[:-1].sum(), alive[0][-1] - alive[1][-1]
    return float(before if estimand == "RMST" else by)


def fitted(law: str, estimand: str, seed: int, n: int) -> Iterator[dict[str, Any]]:
    """The interval at each epsilon, and the one without noise, of one draw."""
    frame, right = rows(law, seed, n), truth(law, estimand)

    def limits(eps: float, noise: AbstractContextManager[None]) -> tuple[float, bool]:
        with warnings.catch_warnings(), noise:
            warnings.simplefilter("ignore")
            fit = pc.private(
                FORMULAS[law], frame, estimand=estimand, horizon=HORIZON, eps=eps,
                bounds={"X1": (0, 1), "X2": (0, 1)},
            )  # fmt: skip
        low, high = fit.conf_int().iloc[0]
        return (high - low) / 2, low <= right <= high

    plain, covered = limits(1.0, zero_noise())
    for eps in EPSILONS:
        half, covers = limits(eps, seeded_noise(7919 * seed + round(10 * eps)))
        yield {"law": law, "estimand": estimand, "n": n, "eps": eps, "half-width": half,
               "over public": half / plain, "covers": covers, "public covers": covered}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=400)
    parser.add_argument("--first", type=int, default=REPORTED, help="first seed")
    parser.add_argument("--rows", default="2000")
    parser.add_argument("--quick", action="store_true", help="two draws of each law")
    options = parser.parse_args()
    reps, found = 2 if options.quick else options.reps, list[dict[str, Any]]()
    sizes = map(int, options.rows.split(","))
    for n, law, estimand in itertools.product(sizes, FORMULAS, ("RMST", "risk")):
        for seed in range(options.first, options.first + reps):
            found += fitted(law, estimand, seed, n)
    groups = pd.DataFrame(found).groupby(["n", "law", "estimand", "eps"], sort=False)
    table = groups[["half-width", "over public"]].median()
    table = table.join(groups[["covers", "public covers"]].mean())
    table["loses"] = np.where(table["covers"] < 0.95 - 2 * np.sqrt(0.0475 / reps), "*", "")
    print(table.round(3).to_string())


if __name__ == "__main__":
    main()
