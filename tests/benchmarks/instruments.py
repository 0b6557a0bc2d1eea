"""Sets of Anderson and Rubin for several instruments: coverage and length, by law and epsilon.

    python tests/benchmarks/instruments.py --reps 1000
    python tests/benchmarks/instruments.py --quick

Two laws of 8,000 rows: two strong 0/1 instruments of a 0/1 treatment, and three weak ones, one of
them a number, of a numeric treatment. The effect is 1. Lengths are medians of the bounded sets,
over those of the set of the same rows without noise (controls in a linear regression, normal
residuals); `bounded` is the share of bounded sets, and `empty` of empty ones. Rows and noise have
seeds.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded

import numpy as np
import pandas as pd
from law_fits import Found, study
from scipy.stats import chi2

import privcausal as pc
from privcausal.testing import seeded_noise

EPSILONS, LAWS, ROWS = (0.5, 1.0, 4.0), ("strong", "weak"), 8000
BOUNDS: dict[str, Any] = {"Y": (-8, 8), "A": (-1, 1), "B": (0, 1)}
NUMBERS: dict[str, Any] = BOUNDS | {"T": (-4, 4), "Z3": (-3, 3)}
FORMULAS = {"strong": "Y ~ T | A + B | T ~ Z1 + Z2", "weak": "Y ~ T | A + B | T ~ Z1 + Z2 + Z3"}


def rows(law: str, seed: int, n: int) -> pd.DataFrame:
    rng = np.random.default_rng([53, seed])
    a, b, u = rng.uniform(-1, 1, n), rng.random(n), rng.normal(size=n)
    z1 = 1 * (rng.random(n) < 1 / (1 + np.exp(-a)))
    z2 = 1 * (rng.random(n) < 0.4)
    z3 = (0.5 * b + rng.normal(size=n)).clip(-3, 3)
    if law == "strong":
        t = 1.0 * (1.2 * z1 + 0.9 * z2 - 1 + 0.5 * a + u + 0.5 * rng.normal(size=n) > 0)
    else:
        t = 0.12 * z1 + 0.1 * z2 + 0.05 * z3 + 0.6 * u + 0.5 * rng.normal(size=n) + 0.3 * b
        t = t.clip(-4, 4)
    y = (t + a + b**2 + u + rng.normal(size=n)).clip(-8, 8)
    return pd.DataFrame({"Y": y, "T": t, "A": a, "B": b, "Z1": z1, "Z2": z2, "Z3": z3})


def public_length(data: pd.DataFrame, names: list[str]) -> float:
    """Length of the set without noise; infinite if it is not bounded."""
    w = np.column_stack([np.ones(len(data)), data[["A", "B"]], data["B"] ** 2])

    def left(x: Any) -> Any:
        return x - w @ np.linalg.lstsq(w, x, rcond=None)[0]

    z, t, y = (left(data[names].to_numpy(float)), *(left(data[c].to_numpy()) for c in "TY"))
    theta, root = np.linspace(-9, 11, 20_001), np.linalg.cholesky(z.T @ z)
    made = np.linalg.solve(root, z.T @ np.column_stack([y, t]))
    explained = ((made[:, :1] - made[:, 1:] * theta) ** 2).sum(axis=0)
    variance = (y @ y - 2 * theta * (y @ t) + theta**2 * (t @ t)) / len(y)
    held = explained / variance <= chi2.isf(0.05, len(names))
    return np.inf if held[0] or held[-1] or not held.any() else float(np.ptp(theta[held]))


def fitted(law: str, eps: float, seed: int, size: int) -> dict[str, Any]:
    data, formula = rows(law, seed, size), FORMULAS[law]
    bounds = NUMBERS if law == "weak" else BOUNDS
    with warnings.catch_warnings(), seeded_noise(7919 * seed + round(10 * eps)):
        warnings.simplefilter("ignore")
        fit = pc.private(formula, data, eps=eps, bounds=bounds, estimand="LATE")
    parts = fit.confidence_set()
    bounded = bool(parts) and np.isfinite(parts[0][0]) and np.isfinite(parts[-1][1])
    length = parts[-1][1] - parts[0][0] if bounded else np.nan
    public = public_length(data, formula.rpartition("~")[2].replace(" ", "").split("+"))
    return {
        "law": law, "eps": eps, "covers": any(low <= 1 <= high for low, high in parts),
        "bounded": bounded, "empty": not parts, "length": length,
        "public": public if np.isfinite(public) else np.nan, "public bounded": np.isfinite(public),
    }  # fmt: skip


def table(found: Found) -> pd.DataFrame:
    groups = pd.DataFrame(found).groupby(["law", "eps"], sort=False)
    middle, mean = groups[["length", "public"]].median(), groups.mean()
    return pd.DataFrame({
        "covers": mean["covers"], "bounded": mean["bounded"], "empty": mean["empty"],
        "length": middle["length"], "over public": middle["length"] / middle["public"],
        "public bounded": mean["public bounded"],
    })  # fmt: skip


if __name__ == "__main__":
    study(__doc__, LAWS, EPSILONS, ROWS, fitted, table)
