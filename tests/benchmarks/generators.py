"""Studies for tuning defaults, unlike any that results are reported on.

Each has a known truth. What is tuned here is scored elsewhere: on the papers' simulations, with
seeds that no tuning has seen. `draw(name, n, seed)` gives a `privcausal.datasets.Study`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from privcausal.datasets import Study

TRUTH_ROWS, TRUTH_SEED = 1_000_000, 1


class Law(NamedTuple):
    """Covariates, (e, baseline, tau) of them, the outcome's noise sd, and public bounds."""

    covariates: Callable[[np.random.Generator, int], Any]
    surface: Callable[..., tuple[Any, Any, Any]]
    sigma: float
    outcome: tuple[float, float]
    bounds: tuple[float, float]


def square(p: int) -> Callable[[np.random.Generator, int], Any]:
    """p uniform covariates on [-1, 1]."""
    return lambda rng, n: rng.uniform(-1, 1, (n, p))


def bell(p: int, reach: float = 3.0) -> Callable[[np.random.Generator, int], Any]:
    """p normal covariates, cut to [-reach, reach]."""
    return lambda rng, n: np.clip(rng.standard_normal((n, p)), -reach, reach)


def _skew(rng: np.random.Generator, n: int) -> Any:
    """Correlated and skewed: a common factor in half of the covariates."""
    common = rng.gamma(2.0, 1.0, (n, 1))
    own = rng.gamma(2.0, 1.0, (n, 6))
    mixed = 0.5 * own + 0.5 * np.where(np.arange(6) < 3, common, own)
    return np.clip(mixed, 0, 6)


def _expit(z: Any) -> Any:
    return 1 / (1 + np.exp(-z))


def _saddle(x: Any) -> tuple[Any, Any, Any]:
    """Confounding by a pure product: nothing of it is additive."""
    return _expit(1.6 * x[0] * x[1] + 0.4 * x[2]), 2 * x[0] * x[1] + x[2], 0.5 + 0.5 * x[3]


def _tent(x: Any) -> tuple[Any, Any, Any]:
    hinge = np.maximum(x[0] + x[1] - 0.3, 0)
    return _expit(1.2 * hinge - 0.8), 1.5 * hinge + 0.5 * x[2], np.sin(1.5 * x[3])


def _mount(x: Any) -> tuple[Any, Any, Any]:
    top = np.exp(-2 * ((x[0] - 0.4) ** 2 + (x[1] + 0.2) ** 2))
    return 0.15 + 0.6 * top, 2 * top + x[2] ** 2, 1.0 + 0.5 * x[0]


def _steps(x: Any) -> tuple[Any, Any, Any]:
    high = (x[0] > 0.2) * 1.0
    return 0.3 + 0.35 * high, 1.2 * high + 0.6 * x[1], np.where(x[2] > 0, 1.0, -0.5)


def _many(x: Any) -> tuple[Any, Any, Any]:
    z = sum(x[j] / (1 + j) for j in range(12))
    return _expit(0.7 * z), z + 0.5 * x[12], 0.3 + 0.2 * x[0] * (x[1] > 0)


def _spread(x: Any) -> tuple[Any, Any, Any]:
    ratio = x[0] / (1 + x[1])
    return _expit(0.8 * (ratio - 1)), ratio + 0.5 * np.sqrt(x[3]), 0.5 * np.log1p(x[4])


def _twist(x: Any) -> tuple[Any, Any, Any]:
    return 0.5 + 0.3 * np.sin(1.5 * (x[0] + x[1])), np.cos(1.5 * (x[0] - x[1])) + x[0], 0.4 * x[2]


def _lumpy(rng: np.random.Generator, n: int) -> Any:
    """Numeric columns of few values, which depend on each other: two of 0/1, one of 1 to 8."""
    common = rng.standard_normal((n, 1))
    z = 0.7 * common + 0.7 * rng.standard_normal((n, 5))
    count = np.clip(np.floor(4.5 + 1.5 * z[:, 2:3]), 1, 8)
    return np.hstack([z[:, :2] > 0.4, (count - 1) / 3.5 - 1, np.clip(z[:, 3:] / 3, -1, 1)])


def _lumps(x: Any) -> tuple[Any, Any, Any]:
    z = x[0] + x[2] + x[3]
    return _expit(1.5 * z - 1), 2 * z - x[1] + x[4] ** 2, 0.5 + 0.5 * x[0]


LAWS: dict[str, Law] = {
    "saddle": Law(square(5), _saddle, 0.7, (-6, 6), (-1, 1)),
    "tent": Law(bell(6), _tent, 1.0, (-5, 9), (-3, 3)),
    "mount": Law(square(5), _mount, 0.5, (-2.5, 6), (-1, 1)),
    "steps": Law(square(6), _steps, 0.8, (-4.5, 6), (-1, 1)),
    "many": Law(bell(15), _many, 1.0, (-9, 9), (-3, 3)),
    "spread": Law(_skew, _spread, 0.6, (-2.5, 8), (0, 6)),
    "lumps": Law(_lumpy, _lumps, 0.7, (-7, 9), (-1, 1)),
    "twist": Law(square(4), _twist, 0.6, (-4, 5), (-1, 1)),
}


def draw(name: str, n: int, seed: int) -> Study:
    """One study of this law, of n rows."""
    law = LAWS[name]
    rng = np.random.default_rng(seed)
    x = law.covariates(rng, n)
    e, b, tau = law.surface(list(x.T))
    t = rng.uniform(size=n) < e
    y = np.clip(b + t * tau + law.sigma * rng.standard_normal(n), *law.outcome)
    names = [f"X{j + 1}" for j in range(x.shape[1])]
    frame = pd.DataFrame(x, columns=names).assign(T=t, Y=y)
    return Study(
        name=name,
        formula=f"Y ~ T | {' + '.join(names)}",
        bounds={"Y": law.outcome, **dict.fromkeys(names, law.bounds)},
        ate=truth(name),
        frame=frame,
        tau=tau,
        propensity=e,
        baseline=b,
        effect=lambda f: law.surface(list(np.asarray(f[names], float).T))[2],
    )


@lru_cache
def truth(name: str) -> float:
    """E[tau(X)], by a million draws: right to about 0.001."""
    law = LAWS[name]
    x = law.covariates(np.random.default_rng(TRUTH_SEED), TRUTH_ROWS)
    return float(np.mean(law.surface(list(x.T))[2]))
