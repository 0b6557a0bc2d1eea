"""epsilon-TM exactly as its papers print it, for comparison in studies (`pc.paper.adum` is ADUM).

Noise is NumPy's, seeded: nothing here is private.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

HALF = 5.0
"""Outcomes are cut to [-HALF, HALF], so that D_y = 2 HALF."""


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
    """The same by diffprivlib's LinearRegression, which cites the paper's references 16, 24, 25.

    Its forests import names that scikit-learn has dropped: version 0.6.6 needs an older one, or
    an empty module in the place of `diffprivlib.models.forest`.
    """
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
