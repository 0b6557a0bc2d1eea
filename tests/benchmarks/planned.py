"""Planned half-widths beside those of fits, on data that no default was chosen on.

Run ``python tests/benchmarks/planned.py [--quick]``. A plan is told what a statistician might
know beforehand: the outcome's standard deviation within an arm, the share that covariates explain,
the share treated. Fits are made with seeded noise, on fresh data each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pandas as pd

import privcausal as pc
from privcausal.testing import seeded_noise

STUDIES: dict[str, Callable[[int, int], pc.datasets.Study]] = {
    "clinic": pc.datasets.clinic,
    "dpcate 1": lambda n, seed: pc.datasets.dpcate(1, n, seed),
    "dpcate 2": lambda n, seed: pc.datasets.dpcate(2, n, seed),
}
ROWS, EPSILONS = (1000, 4000, 16000), (0.25, 1.0, 4.0)
LARGE = 100_000


def known(study: pc.datasets.Study) -> dict[str, float]:
    """outcome_sd, r2 and treated of the study's law.

    r2 counts what covariates explain alike in both arms: the mean of the arms' regressions.
    """
    y, t = study.formula.split("|")[0].split("~")
    outcome, arm = study.frame[y.strip()], study.frame[t.strip()]
    within = float(outcome.groupby(arm).var().mean())
    alike = float(np.var(study.baseline + 0.5 * study.tau))
    return {"outcome_sd": within**0.5, "r2": alike / within, "treated": float(arm.mean())}


def compare(name: str, repetitions: int) -> pd.DataFrame:
    """A row per n and eps: planned and median realised half-width and their ratios."""
    make = STUDIES[name]
    law = make(LARGE, 0)
    facts = known(law)
    plans = {
        "ratio": pc.plan(law.formula, n=ROWS, eps=EPSILONS, bounds=law.bounds, **facts),
        "ratio, r2 = 0": pc.plan(
            law.formula, n=ROWS, eps=EPSILONS, bounds=law.bounds, outcome_sd=facts["outcome_sd"]
        ),
    }
    rows = []
    for k, (n, eps) in enumerate(plans["ratio"].points):
        fits = [half_widths(make(n, seed + 1), eps, seed) for seed in range(repetitions)]
        real, low, high = np.median(fits), min(fits), max(fits)
        row = {"study": name, "n": n, "eps": eps, "realised": real,
               "low": low / real, "high": high / real}  # fmt: skip
        for label, plan in plans.items():
            row[label] = plan.table["half-width"][k] / real
        rows.append(row)
    return pd.DataFrame(rows)


def half_widths(study: pc.datasets.Study, eps: float, seed: int) -> float:
    with seeded_noise(seed):
        fit = pc.private(study.formula, study.frame, eps=eps, bounds=study.bounds)
    low, high = fit.conf_int().iloc[0]
    return float(high - low) / 2


if __name__ == "__main__":
    quick = "--quick" in sys.argv
    repetitions = 1 if quick else 9
    for study in list(STUDIES)[: 1 if quick else None]:
        print(compare(study, repetitions).round(3).to_string(index=False), flush=True)
