"""epsilon-ADUM and epsilon-TM exactly as their papers print them, for comparison in studies.

Noise is NumPy's, seeded: nothing here is private, and the printed scales are not what they claim
(`privcausal.vault.CellSums`). `right_adum` has scales that are, and takes a tenth of the time of
`ADUM(cells=, shrink=False, release="count_sum")`, which is the same estimate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

HALF = 5.0
"""Outcomes are cut to [-HALF, HALF], so that D_y = 2 HALF."""


def adum(frame: pd.DataFrame, groups: int, epsilon: float, rng: Any, at: Any) -> Any:
    """Algorithm 1 of Betlei et al. (2021): C + Lap(2/eps), S + Lap(2 D_y/eps), S / C as it is."""
    count, total = _noisy(frame, groups, 2 / epsilon, 2 * 2 * HALF / epsilon, rng)
    return _difference(total / count, at)


def right_adum(frame: pd.DataFrame, groups: int, epsilon: float, rng: Any, at: Any) -> Any:
    """The same where a row is replaced: C + Lap(4/eps), S + Lap(2 D_y/eps); means are cut."""
    count, total = _noisy(frame, groups, 4 / epsilon, 2 * 2 * HALF / epsilon, rng)
    return _difference(np.clip(total / np.maximum(count, 1.0), -HALF, HALF), at)


def _noisy(frame: pd.DataFrame, groups: int, count: float, total: float, rng: Any) -> Any:
    cell = np.clip(((frame["X"] + 1) * groups / 2).astype(int), 0, groups - 1)
    key = 2 * cell.to_numpy() + frame["T"].to_numpy()
    y = frame["Y"].clip(-HALF, HALF).to_numpy()
    size = 2 * groups
    counts, totals = np.bincount(key, minlength=size), np.bincount(key, y, minlength=size)
    return counts + rng.laplace(0, count, size), totals + rng.laplace(0, total, size)


def _difference(means: Any, at: Any) -> Any:
    """Treated less control at points of [-1, 1], of means by cell and arm in turn."""
    effect = means[1::2] - means[::2]
    return effect[np.clip(((at + 1) * len(effect) / 2).astype(int), 0, len(effect) - 1)]


def tm(frame: pd.DataFrame, degree: int, epsilon: float, rng: Any, at: Any) -> Any:
    """Two linear regressions on 1, x, ..., x^degree by the functional mechanism, epsilon each.

    Zhang et al. (2012), Algorithm 1 with Delta = 2 (d + 1)^2 for d features of total length one and
    outcomes in [-1, 1]; its section 6: a ridge of four noise sds, then spectral trimming.
    """
    d = degree + 1
    scale = 2 * (d + 1) ** 2 / epsilon
    curves = []
    for arm in (0, 1):
        part = frame[frame["T"] == arm]
        x = np.vander(part["X"], d) / np.sqrt(d)
        y = part["Y"].clip(-HALF, HALF).to_numpy() / HALF
        noise = np.triu(rng.laplace(0, scale, (d, d)))
        gram = x.T @ x + noise + np.triu(noise, 1).T
        linear = -2 * x.T @ y + rng.laplace(0, scale, d)
        values, vectors = np.linalg.eigh(gram + 4 * np.sqrt(2) * scale * np.eye(d))
        kept = values > 0
        inner = vectors[:, kept]
        coef = -0.5 * inner @ ((inner.T @ linear) / values[kept])
        curves.append(HALF * np.vander(at, d) / np.sqrt(d) @ coef)
    return curves[1] - curves[0]


def library_tm(frame: pd.DataFrame, degree: int, epsilon: float, rng: Any, at: Any) -> Any:
    """The same by diffprivlib's LinearRegression, which cites the paper's references 16, 24, 25."""
    from diffprivlib.models import LinearRegression

    curves = []
    powers = np.arange(1, degree + 1)
    for arm in (0, 1):
        part = frame[frame["T"] == arm]
        made = LinearRegression(
            epsilon=epsilon, bounds_X=(-1, 1), bounds_y=(-HALF, HALF),
            random_state=int(rng.integers(2**31)),
        )  # fmt: skip
        made.fit(part["X"].to_numpy()[:, None] ** powers, part["Y"].clip(-HALF, HALF).to_numpy())
        curves.append(made.predict(at[:, None] ** powers))
    return curves[1] - curves[0]
