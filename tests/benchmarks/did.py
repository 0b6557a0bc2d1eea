"""Coverage and width of `pc.did` on three laws that were fixed before any of them was fitted.

Run ``python tests/benchmarks/did.py [--quick]``. Every fit has fresh data and seeded noise. Beside
each median half-width stands that of the doubly robust estimate with the true nuisances and without
privacy. The truth is the effect on the treated of the law.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import privcausal as pc
from privcausal.testing import seeded_noise

UNITS, EPSILONS = (5_000, 50_000), (0.5, 1.0, 4.0)
REPETITIONS = {5_000: 400, 50_000: 200}
LOST = 0.02
"""Share of units without a row of the second period."""


class Drawn(NamedTuple):
    """Columns by unit: covariates, treatment, its chance, and the untreated change as expected."""

    x: pd.DataFrame
    t: Any
    e: Any
    trend: Any
    effect: Any
    before: Any
    error: Any


def _expit(z: Any) -> Any:
    return 1 / (1 + np.exp(-z))


def parallel(rng: np.random.Generator, n: int) -> Drawn:
    """Levels differ between the arms, trends do not."""
    t = (rng.random(n) < 0.4).astype(float)
    before = rng.normal(40 + 10 * t, 12)
    flat = np.full(n, 3.0)
    effect = rng.normal(2, 3, n)
    return Drawn(pd.DataFrame(index=range(n)), t, np.full(n, 0.4), flat, effect, before,
                 rng.normal(0, 6, n))  # fmt: skip


def conditional(rng: np.random.Generator, n: int) -> Drawn:
    """Trends and treatment both depend on the covariates: without them the bias is 1.0."""
    a, b = rng.uniform(20, 60, n), rng.beta(2, 3, n)
    g = rng.integers(0, 3, n)
    u = (a - 40) / 20
    e = _expit(-0.3 + 0.8 * u + 0.6 * (g == 1) - 0.5 * b)
    t = (rng.random(n) < e).astype(float)
    trend = 2 + 2.5 * np.sin(1.5 * u) + 1.5 * (g == 1) - 2 * b**2
    before = rng.normal(45 + 8 * u + 5 * (g == 2), 10)
    x = pd.DataFrame({"age": a, "score": b, "region": np.array(["n", "s", "w"], object)[g]})
    return Drawn(x, t, e, trend, 2 + 1.5 * u, before, rng.normal(0, 5, n))


def heavy(rng: np.random.Generator, n: int) -> Drawn:
    """Changes have the tails of Student's t with three degrees of freedom."""
    made = conditional(rng, n)
    return made._replace(error=3.0 * rng.standard_t(3, n), before=rng.normal(50, 5, n))


LAWS: dict[str, tuple[Callable[[np.random.Generator, int], Drawn], str, tuple[float, float]]] = {
    "parallel": (parallel, "Y ~ T", (-50, 150)),
    "conditional": (conditional, "Y ~ T | age + score + C(region)", (-50, 150)),
    "heavy": (heavy, "Y ~ T | age + score + C(region)", (-400, 500)),
}
BOUNDS = {"age": (20, 60), "score": (0, 1), "region": ["n", "s", "w"]}


@lru_cache
def truth(law: str) -> float:
    """By four million units, to 0.002."""
    made = LAWS[law][0](np.random.default_rng(0), 4_000_000)
    return float(np.average(made.effect, weights=made.e))


def table(made: Drawn, rng: np.random.Generator) -> pd.DataFrame:
    """Two rows of each unit, but for those lost."""
    n = len(made.t)
    after = made.before + made.trend + made.t * made.effect + made.error
    one = made.x.assign(id=np.arange(n), year=2018, Y=made.before, T=0.0)
    two = one.assign(year=2019, Y=after, T=made.t)[rng.random(n) >= LOST]
    return pd.concat([one, two], ignore_index=True)


def without_privacy(made: Drawn) -> float:
    """Half-width by the influence function, with the true nuisances."""
    odds = made.e / (1 - made.e)
    gained = made.t * made.effect + made.error
    score = (made.t - (1 - made.t) * odds) * gained
    score -= made.t * score.sum() / made.t.sum()
    kept = len(score) * (1 - LOST)
    return float(1.96 * score.std() / made.t.mean() / np.sqrt(kept))


HEADS = ("units", "eps", "fits", "coverage", "bias", "half-width", "no privacy")


def line(law: str, n: int, eps: float, repetitions: int) -> list[float]:
    make, formula, outcome = LAWS[law]
    value, hits, widths, plain, errors = truth(law), 0, [], [], []
    for seed in range(repetitions):
        rng = np.random.default_rng([seed, n, int(10 * eps), len(law)])
        made = make(rng, n)
        with seeded_noise(seed):
            fit = pc.did(
                formula, table(made, rng), unit="id", time="year", periods=(2018, 2019), eps=eps,
                bounds={**BOUNDS, "Y": outcome},
            )  # fmt: skip
        low, high = fit.conf_int().iloc[0]
        hits += low <= value <= high
        widths.append((high - low) / 2)
        plain.append(without_privacy(made))
        errors.append(fit.params.iloc[0] - value)
    medians = map(np.median, (widths, plain))
    return [n, eps, repetitions, hits / repetitions, float(np.mean(errors)), *map(float, medians)]


if __name__ == "__main__":
    quick, start = "--quick" in sys.argv, time.process_time()
    warnings.simplefilter("ignore", pc.PrivcausalWarning)
    print(" " * 11, " ".join(f"{name:>10}" for name in HEADS))
    for n in UNITS[: 1 if quick else None]:
        for law in LAWS:
            for eps in EPSILONS:
                found = line(law, n, eps, 3 if quick else REPETITIONS[n])
                print(f"{law:<11}", " ".join(f"{v:>10.4g}" for v in found), flush=True)
    print(f"{time.process_time() - start:.0f} s of CPU")
