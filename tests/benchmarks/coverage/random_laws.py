"""Confounding by a law drawn anew in each repetition; the defaults were settled on such draws.

Three to seven covariates of four kinds; up to three pairs of them confound by a shape of both,
beside linear functions of all; n is 3000, 6000 or 12000; outcomes are binary or continuous.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

SHAPES: dict[str, Callable[[Any, Any], Any]] = {
    "additive": lambda a, b: a + b**2,
    "sines": lambda a, b: np.sin(1.5 * (a + b)),
    "products": lambda a, b: a * b,
    "thresholds": lambda a, b: np.where((a > 0) & (b > 0), 1.0, -0.33),
}


def random_law(shape: str, seed: int) -> tuple[pd.DataFrame, dict[str, tuple[float, float]], float]:
    """Rows with covariates X0.., T and Y, their bounds and the average effect."""
    rng = np.random.default_rng([91, list(SHAPES).index(shape), seed])
    n, p = int(rng.choice([3000, 6000, 12000])), int(rng.integers(3, 8))
    kinds = [_covariate(rng, n) for _ in range(p)]
    units = np.array([kind[1] for kind in kinds])
    pairs = list(combinations(range(p), 2))
    chosen = rng.choice(len(pairs), size=min(int(rng.integers(1, 4)), len(pairs)), replace=False)
    shared = _standard(sum(SHAPES[shape](*units[list(pairs[k])]) for k in chosen))
    linear = _standard(rng.normal(size=p) @ units)
    own = 0.5 * linear + 0.5 * _standard(rng.normal(size=p) @ units)
    e = 1 / (1 + np.exp(-(rng.uniform(0.3, 0.7) * shared + 0.5 * linear)))
    t = rng.random(n) < np.clip(e, 0.03, 0.97)
    strength = rng.uniform(0.05, 0.12)
    if rng.random() < 0.5:
        base = np.clip(0.45 + strength * shared + 0.06 * own, 0.03, 0.9)
        treated = np.clip(base + 0.05 + 0.03 * linear, 0, 1)
        y = (rng.random(n) < np.where(t, treated, base)).astype(float)
        effect = float((treated - base).mean())
    else:
        y = 0.5 + strength * shared + 0.06 * own + 0.1 * t + 0.1 * rng.normal(size=n)
        y, effect = np.clip(y, 0, 1), 0.1
    columns = {f"X{j}": kind[0] for j, kind in enumerate(kinds)}
    bounds = {f"X{j}": kind[2] for j, kind in enumerate(kinds)}
    return pd.DataFrame({**columns, "T": t.astype(int), "Y": y}), {**bounds, "Y": (0, 1)}, effect


def _covariate(rng: np.random.Generator, n: int) -> tuple[Any, Any, tuple[float, float]]:
    """Values, the same on a scale of about -1 to 1, and public bounds."""
    match int(rng.integers(4)):
        case 0:
            x = rng.uniform(size=n)
            return x, 2 * x - 1, (0, 1)
        case 1:
            x = np.clip(rng.normal(size=n), -4, 4)
            return x, np.clip(x / 2, -1.5, 1.5), (-4, 4)
        case 2:
            x = np.clip(rng.gamma(2, 10, n), 0, 150)
            return x, np.clip((x - 20) / 20, -1, 2), (0, 150)
        case _:
            x = (rng.random(n) < rng.uniform(0.2, 0.8)).astype(float)
            return x, 2 * x - 1, (0, 1)


def _standard(values: Any) -> Any:
    return (values - values.mean()) / max(float(values.std()), 1e-9)
