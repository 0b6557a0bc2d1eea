"""Confounding of forms that nuisance models do not learn: does the interval still hold?

    python tests/benchmarks/rough_laws.py --reps 100 --sizes 5000,20000,100000 --eps 1,4
    python tests/benchmarks/rough_laws.py --quick

Three laws confound by thresholds or by hidden transforms; one has thirty columns of which four
matter. In the two harmless laws, additive functions suffice. Rows and noise have seeds.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded

import numpy as np
import pandas as pd

import privcausal as pc
from privcausal.testing import seeded_noise


class Drawn(NamedTuple):
    """Covariates, propensity, mean outcome of the controls, effect, noise sd, and bounds."""

    covariates: pd.DataFrame
    e: Any
    baseline: Any
    effect: float
    sd: float
    outcome: tuple[float, float]
    bounds: dict[str, Any]


def _expit(z: Any) -> Any:
    return 1 / (1 + np.exp(-z))


def _normals(x: Any) -> tuple[pd.DataFrame, dict[str, Any]]:
    frame = pd.DataFrame(x, columns=[f"x{j + 1}" for j in range(x.shape[1])])
    return frame, dict.fromkeys(frame.columns, (-4, 4))


def rule(rng: Any, n: int) -> Drawn:
    """A threshold on a risk score of two numbers and a product of two flags."""
    age, severity = rng.normal(50, 15, n).clip(18, 95), rng.uniform(0, 10, n)
    f, g = rng.random(n) < 0.4, rng.random(n) < 0.5
    risky = (age - 50) / 15 + (severity - 5) / 2.9 + 1.5 * ((f & g) - 0.2) > 0
    frame = pd.DataFrame({"age": age, "severity": severity, "f": f * 1.0, "g": g * 1.0})
    bounds = {"age": (18, 95), "severity": (0, 10), "f": (0, 1), "g": (0, 1)}
    baseline = 0.4 + 0.2 * risky + 0.02 * (severity - 5)
    return Drawn(frame, np.where(risky, 0.75, 0.25), baseline, -0.05, 0.15, (-0.5, 1.5), bounds)


def two_thresholds(rng: Any, n: int) -> Drawn:
    """A threshold on a sum of three correlated columns, and one column above its own threshold."""
    x = rng.normal(size=(n, 6)) @ np.linalg.cholesky(0.4 + 0.6 * np.eye(6)).T
    first, second = x[:, 0] + x[:, 1] - x[:, 2] > 0.3, (x[:, 3] > 0.5) & (x[:, 4] > 0)
    e, baseline = 0.2 + 0.35 * first + 0.25 * second, 1.0 * first + second + 0.3 * x[:, 5]
    frame, bounds = _normals(x)
    return Drawn(frame, e, baseline, 0.5, 1.0, (-5, 7), bounds)


def hidden(rng: Any, n: int) -> Drawn:
    """Transforms of the causes are observed (Kang and Schafer 2007)."""
    z = rng.normal(size=(n, 4))
    e = _expit(-z[:, 0] + 0.5 * z[:, 1] - 0.25 * z[:, 2] - 0.1 * z[:, 3])
    seen = {
        "x1": np.exp(z[:, 0] / 2),
        "x2": z[:, 1] / (1 + np.exp(z[:, 0])) + 10,
        "x3": (z[:, 0] * z[:, 2] / 25 + 0.6) ** 3,
        "x4": (z[:, 1] + z[:, 3] + 20) ** 2,
    }
    bounds = {"x1": (0, 6), "x2": (6, 14), "x3": (0, 0.6), "x4": (200, 640)}
    baseline = 210 + 27.4 * z[:, 0] + 13.7 * z[:, 1:].sum(axis=1)
    return Drawn(pd.DataFrame(seen), e, baseline, 10.0, 1.0, (50, 370), bounds)


def thirty(rng: Any, n: int) -> Drawn:
    """Four of thirty columns matter, two of them by their product."""
    x = rng.normal(size=(n, 30))
    e = _expit(0.5 * x[:, 0] - 0.5 * x[:, 1] + 0.6 * x[:, 2] * x[:, 3])
    baseline = x[:, 0] - x[:, 1] + 1.2 * x[:, 2] * x[:, 3] + 0.3 * x[:, 2]
    frame, bounds = _normals(x)
    return Drawn(frame, e, baseline, 1.0, 1.0, (-10, 10), bounds)


def linear(rng: Any, n: int) -> Drawn:
    """Harmless: linear confounding."""
    x = rng.normal(size=(n, 5))
    frame, bounds = _normals(x)
    e = _expit(0.8 * x[:, 0] - 0.6 * x[:, 1])
    return Drawn(frame, e, x[:, 0] - x[:, 1] + 0.5 * x[:, 2], 1.0, 1.0, (-8, 8), bounds)


def unconfounded(rng: Any, n: int) -> Drawn:
    """Harmless: a constant propensity."""
    return linear(rng, n)._replace(e=np.full(n, 0.5))


LAWS: dict[str, Callable[[Any, int], Drawn]] = {
    law.__name__: law for law in (rule, two_thresholds, hidden, thirty, linear, unconfounded)
}


def fitted(job: tuple[str, int, float, int]) -> dict[str, Any]:
    """One fit of `private`: law, rows, eps and seed."""
    name, n, eps, seed = job
    rng = np.random.default_rng([n, seed])
    drawn = LAWS[name](rng, n)
    t = rng.random(n) < drawn.e
    y = (drawn.baseline + drawn.effect * t + rng.normal(0, drawn.sd, n)).clip(*drawn.outcome)
    formula = f"Y ~ T | {' + '.join(drawn.covariates)}"
    with warnings.catch_warnings(), seeded_noise(7919 * seed + n):
        warnings.simplefilter("ignore")
        fit = pc.private(
            formula, drawn.covariates.assign(Y=y, T=t * 1.0), eps=eps,
            bounds=drawn.bounds | {"Y": drawn.outcome, "T": (0, 1)},
        )  # fmt: skip
    low, high = fit.conf_int().iloc[0]
    return {
        "law": name, "n": n, "eps": eps, "covered": low <= drawn.effect <= high,
        "error": float(fit.params.iloc[0]) - drawn.effect, "half": (high - low) / 2,
        "alert": bool(fit.alerts),
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Coverage, bias, sd of the estimate, median half-width, and share of fits with an alert."""
    groups = pd.DataFrame(rows).groupby(["law", "n", "eps"], sort=False)
    return groups.agg(
        covered=("covered", "mean"), bias=("error", "mean"), sd=("error", "std"),
        half=("half", "median"), alert=("alert", "mean"),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=100)
    parser.add_argument("--sizes", default="5000,20000")
    parser.add_argument("--eps", default="1,4")
    parser.add_argument("--laws", default=",".join(LAWS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="few fits")
    options = parser.parse_args()
    if options.quick:
        options.reps, options.sizes, options.eps = 2, "2000", "1"
    sizes, budgets = options.sizes.split(","), options.eps.split(",")
    names = product(options.laws.split(","), map(int, sizes), map(float, budgets))
    jobs = [(*one, seed) for one in names for seed in range(options.reps)]
    with ProcessPoolExecutor(options.jobs) as pool:
        print(table(list(pool.map(fitted, jobs, chunksize=4))).round(4).to_string())


if __name__ == "__main__":
    main()
