"""Averages with survey weights: coverage and width, by law and epsilon.

    python tests/benchmarks/weights.py --reps 1000
    python tests/benchmarks/weights.py --quick

Three laws of 8,000 rows from a larger population:

- *survey*: weights depend on a covariate and on a stratum that is not a covariate. The stratum
  changes the effect, the outcome and the treatment.
- *attrition*: rows stay in the study with a chance that depends on treatment, a covariate and the
  stratum; the weight is its inverse.
- *heavy*: log-normal weights, unrelated to the rest, whose largest is 30 times the mean.

The truth is the average effect in the population. Half-widths are divided by those of weighted
doubly robust scores with the true nuisances, without noise. The last columns have fits of the same
rows without weights. Rows and noise have seeds; the seeds of choices differ from those of reports.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded

import numpy as np
import pandas as pd
from law_fits import Found, study

import privcausal as pc
from privcausal.testing import seeded_noise

EPSILONS, LAWS, ROWS, Z = (0.5, 1.0, 4.0), ("survey", "attrition", "heavy"), 8000, 1.959964
BOUNDS = {"Y": (-8, 8), "X1": (-1, 1), "X2": (-1, 1), "w": (0, 40)}
FORMULA = "Y ~ T | X1 + X2"


def chance(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-0.8 * x))


def rows(law: str, seed: int, size: int) -> tuple[pd.DataFrame, float, float]:
    """Sampled rows, the population's average effect, and the half-width of the public estimate.

    Treatment depends on X1 only, so that X1 and X2 suffice in the population.
    """
    rng = np.random.default_rng([47, seed])
    n = 40 * size
    x1, x2 = rng.uniform(-1, 1, (2, n))
    stratum = rng.random(n) < 0.5
    t = rng.random(n) < chance(x1)
    tau = 1 + 0.5 * x2 + 0.8 * stratum
    y = x1 + 0.5 * x2 + 1.0 * stratum + tau * t + rng.normal(size=n)
    if law == "survey":
        kept = 0.25 * np.exp(-0.7 * (1 + x2)) * np.where(stratum, 1.0, 0.3)
    elif law == "attrition":
        kept = 0.25 * np.where(t & stratum, 0.4, 1.0) * np.exp(-0.5 * (1 + x1))
    else:
        kept = 0.25 / np.clip(np.exp(rng.normal(size=n)), 1.0, 30.0)
    kept *= 1.3 * size / kept.sum()
    at = np.flatnonzero(rng.random(n) < kept)[:size]
    frame = pd.DataFrame({
        "Y": y.clip(-8, 8), "T": 1 * t, "X1": x1, "X2": x2, "w": 0.5 * kept.max() / kept,
    }).iloc[at]  # fmt: skip
    e, base = chance(frame["X1"]), frame["X1"] + 0.5 * frame["X2"] + 0.5
    mu0, mu1 = base, base + 1.4 + 0.5 * frame["X2"]
    t1, w = frame["T"], frame["w"]
    psi = mu1 - mu0 + t1 * (frame["Y"] - mu1) / e - (1 - t1) * (frame["Y"] - mu0) / (1 - e)
    error = w * (psi - np.average(psi, weights=w)) / w.sum()
    return frame, float(tau.mean()), Z * float(np.sqrt((error**2).sum()))


def fitted(law: str, eps: float, seed: int, size: int) -> dict[str, Any]:
    frame, truth, public = rows(law, seed, size)
    found: dict[str, Any] = {"law": law, "eps": eps, "public": public}
    for name, weights in (("weighted", "w"), ("unweighted", None)):
        with warnings.catch_warnings(), seeded_noise(7919 * seed + round(10 * eps)):
            warnings.simplefilter("ignore")
            fit = pc.private(FORMULA, frame, eps=eps, bounds=BOUNDS, weights=weights)
        (low, high), value = fit.conf_int().iloc[0], fit.params.iloc[0]
        found |= {name: (high - low) / 2, f"covers {name}": low <= truth <= high}
        found[f"error {name}"] = value - truth
    return found


def table(found: Found) -> pd.DataFrame:
    groups = pd.DataFrame(found).groupby(["law", "eps"], sort=False)
    middle = groups[["weighted", "unweighted", "public"]].median()
    mean = groups.mean()
    rms = groups[["error weighted", "error unweighted"]].agg(lambda x: np.sqrt(np.mean(x**2)))
    return pd.DataFrame({
        "half-width": middle["weighted"], "over public": middle["weighted"] / middle["public"],
        "covers": mean["covers weighted"], "RMSE": rms["error weighted"],
        "bias": mean["error weighted"],
        "unweighted over public": middle["unweighted"] / middle["public"],
        "unweighted covers": mean["covers unweighted"], "unweighted RMSE": rms["error unweighted"],
    })  # fmt: skip


if __name__ == "__main__":
    study(__doc__, LAWS, EPSILONS, ROWS, fitted, table)
