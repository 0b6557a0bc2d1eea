"""Coverage and widths of the effect by an instrument on four laws fixed beforehand.

Run ``python tests/benchmarks/late.py [--quick] [repetitions]``. Noise is seeded, data are fresh
each time. Beside each half-width stands that of two-stage least squares (HC0) with a law's own
regressors. A first stage of a law called weak is about three standard errors at 5,000 rows without
privacy: `open` is the share of intervals without an end, and half-widths are of the others.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import privcausal as pc
from privcausal.testing import seeded_noise


class Law(NamedTuple):
    """Invented rows, bounds, regressors of two-stage least squares; the true effect is 1."""

    rows: Callable[[int, int], pd.DataFrame]
    bounds: dict[str, Any]
    regressors: tuple[str, ...]


def _logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def letters(n: int, seed: int) -> pd.DataFrame:
    """A trial of a third encouraged, of whom half comply and nobody else; a skewed outcome."""
    rng = np.random.default_rng([1, seed])
    a, b = rng.uniform(-1, 1, n), rng.integers(0, 2, n)
    z = (rng.random(n) < 1 / 3).astype(int)
    complier = rng.random(n) < _logistic(a)
    t = z * complier
    y = t + 2 * a - b + 1.5 * complier + rng.gamma(1, 2, n)
    return pd.DataFrame({"Y": y, "T": t, "Z": z, "A": a, "B": b})


def curved(n: int, seed: int) -> pd.DataFrame:
    """Two values each, an instrument confounded by a square, a treatment by what is not seen."""
    rng = np.random.default_rng([2, seed])
    a, b, u = rng.uniform(-2, 2, n), rng.uniform(0, 1, n), rng.normal(0, 1, n)
    z = (rng.random(n) < _logistic(-1 + 0.8 * a**2 - 0.5 * b)).astype(int)
    t = (1.5 * z + 0.5 * a + u + rng.normal(0, 0.5, n) > 0.8).astype(int)
    y = t + a**2 + b + u + rng.normal(0, 1, n)
    return pd.DataFrame({"Y": y, "T": t, "Z": z, "A": a, "A2": a**2, "B": b})


def numbers(n: int, seed: int, strength: float = 0.6) -> pd.DataFrame:
    """Instrument and treatment are numbers, confounded linearly."""
    rng = np.random.default_rng([3, seed])
    a, b, u = rng.uniform(-2, 2, n), rng.integers(0, 2, n), rng.normal(0, 1, n)
    z = 5 + a - b + rng.normal(0, 1, n)
    t = 2 + strength * z + 0.5 * a + u + rng.normal(0, 1, n)
    y = t - 2 * a + b + u + rng.normal(0, 1, n)
    return pd.DataFrame({"Y": y, "T": t, "Z": z, "A": a, "B": b})


def weak(n: int, seed: int) -> pd.DataFrame:
    return numbers(n, seed, 0.06)


_NUMBERS = {"Y": (-10, 20), "T": (-5, 15), "Z": (0, 10), "A": (-2, 2), "B": [0, 1]}
LAWS = {
    "letters": Law(letters, {"Y": (-5, 40), "A": (-1, 1), "B": [0, 1]}, ("A", "B")),
    "curved": Law(curved, {"Y": (-6, 12), "A": (-2, 2), "B": (0, 1)}, ("A2", "A", "B")),
    "numbers": Law(numbers, _NUMBERS, ("A", "B")),
    "weak": Law(weak, _NUMBERS, ("A", "B")),
}
ROWS, EPSILONS = (5000, 50_000), (0.5, 1.0, 4.0)


def least_squares(data: pd.DataFrame, regressors: tuple[str, ...]) -> float:
    """Standard error of two-stage least squares, HC0."""
    w = np.column_stack([np.ones(len(data)), data[list(regressors)]])
    y, t, z = (
        v - w @ np.linalg.lstsq(w, v, rcond=None)[0]
        for v in (data[name].to_numpy(float) for name in "YTZ")
    )
    slope = float(z @ y) / float(z @ t)
    return float(np.sqrt(((z * (y - slope * t)) ** 2).sum()) / abs(z @ t))


def cell(name: str, n: int, eps: float, repetitions: int) -> dict[str, Any]:
    """Coverage, median error and root mean square error where an end is known, half-widths."""
    law, errors, limits, plain = LAWS[name], [], [], []
    covariates = [c for c in law.bounds if c not in "YTZ"]
    for seed in range(repetitions):
        data = law.rows(n, seed)
        with seeded_noise(seed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = pc.private(
                f"Y ~ T | {' + '.join(covariates)} | T ~ Z", data, estimand="LATE", eps=eps,
                bounds=law.bounds,
            )  # fmt: skip
        errors.append(fit.params["LATE"] - 1)
        limits.append(fit.conf_int().loc["LATE"] - 1)
        if seed < 20:
            plain.append(1.96 * least_squares(data, law.regressors))
    error, (low, high) = np.array(errors), np.array(limits).T
    ends = np.isfinite(high - low)
    return {
        "law": name, "n": n, "eps": eps, "reps": repetitions,
        "coverage": ((low <= 0) & (high >= 0)).mean(), "open": 1 - ends.mean(),
        "median error": np.median(error),
        "rmse": np.sqrt((error[ends] ** 2).mean()), "half": np.median((high - low)[ends]) / 2,
        "plain": np.median(plain),
    }  # fmt: skip


if __name__ == "__main__":
    counts = [int(a) for a in sys.argv[1:] if a.isdigit()]
    repetitions = counts[0] if counts else 3 if "--quick" in sys.argv else 200
    for name in LAWS:
        found = [cell(name, n, eps, repetitions) for n in ROWS for eps in EPSILONS]
        print(pd.DataFrame(found).round(4).to_string(index=False), flush=True)
