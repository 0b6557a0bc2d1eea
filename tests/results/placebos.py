"""Randomized trials in which nothing happens: an effect that is found to vary is a false claim."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from fit_helpers import view_of

import privcausal as pc
from privcausal.results.looks import FLAT
from privcausal.testing import seeded_noise

FORMULA = "Y ~ T | X + M + C(G)"
OUTCOMES: dict[str, tuple[Callable[..., Any], Any]] = {
    "binary": (lambda rng, n: (rng.random(n) < 0.3).astype(int), [0, 1]),
    "rare": (lambda rng, n: (rng.random(n) < 0.05).astype(int), [0, 1]),
    "normal": (lambda rng, n: rng.normal(50, 10, n).clip(0, 100), (0, 100)),
    "exponential": (lambda rng, n: rng.exponential(10, n).clip(0, 500), (0, 500)),
    "zeros": (lambda rng, n: (rng.random(n) < 0.1) * rng.exponential(100, n), (0, 2000)),
    "count": (lambda rng, n: rng.poisson(2, n).clip(0, 40), (0, 40)),
    "likert": (lambda rng, n: rng.choice(5, n, p=[0.05, 0.1, 0.2, 0.4, 0.25]) + 1, (1, 5)),
}  # fmt: skip
SHARES = (0.1, 1 / 6, 1 / 3, 0.5, 0.7, 0.9)
KNOWN = ("number", "column", "estimated")


def trial(outcome: str, share: float, n: int, seed: int) -> pd.DataFrame:
    """Rows of a trial with a share of treated rows and an outcome that nothing moves."""
    rng = np.random.default_rng([n, seed, round(1000 * share)])
    return pd.DataFrame({
        "X": rng.normal(50, 14, n).clip(18, 110),
        "M": rng.integers(0, 2, n),
        "G": rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2]),
        "T": (rng.random(n) < share).astype(int),
        "E": share,
        "Y": OUTCOMES[outcome][0](rng, n),
    })  # fmt: skip


def placebo(
    outcome: str, share: float, known: str, n: int, seed: int, **options: Any
) -> tuple[pd.Series[float], bool]:
    """The z values of slopes and group differences of a fit, and whether it claims variation."""
    bounds = {"X": (18, 110), "M": [0, 1], "G": ["a", "b", "c"], "Y": OUTCOMES[outcome][1]}
    propensity = {"number": share, "column": "E", "estimated": None}[known]
    if known == "column":
        bounds["E"] = (share / 2, (1 + share) / 2)
    with seeded_noise(seed):
        fit: Any = pc.privcate(
            FORMULA, trial(outcome, share, n, seed), bounds=bounds, groups=["G", "X >= 50"],
            propensity=propensity, **options,
        )  # fmt: skip
    gate, tidy = fit.gate, fit.tidy().set_index("term")
    groups = (gate["estimate"] - fit.params["ATE"]) / gate["std_error"]
    z = pd.concat([tidy["statistic"].iloc[1:], groups])
    return z, view_of(fit).variation != FLAT


def cells(learner: str, fits: int) -> list[tuple[str, float, str, int]]:
    """Outcome, share of treated rows, knowledge of the propensity, and seed of some placebos."""
    table = list(itertools.product(OUTCOMES, SHARES, KNOWN))
    first = 11 * sum(map(ord, learner))
    return [(*table[(first + 37 * k) % len(table)], first + k) for k in range(fits)]
