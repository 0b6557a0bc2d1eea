"""Coverage and widths of the partially linear effect on three laws fixed beforehand.

Run ``python tests/benchmarks/plr.py [--quick] [repetitions]``. Noise is seeded, data are fresh each
time. Beside each half-width stands that of least squares (HC0) with the law's own regressors. A
loose range of the treatment is 20 times as wide.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf

import privcausal as pc
from privcausal.testing import seeded_noise


class Law(NamedTuple):
    """Invented rows, bounds, the formula of least squares, and the true slopes."""

    rows: Callable[[int, int], pd.DataFrame]
    bounds: dict[str, Any]
    plain: str
    slopes: tuple[float, ...]


def dose(n: int, seed: int) -> pd.DataFrame:
    """A number, confounded linearly."""
    rng = np.random.default_rng([1, seed])
    a, b, c = rng.uniform(-2, 2, n), rng.integers(0, 2, n), rng.normal(0, 1, n)
    t = 3 + 1.2 * a - 0.8 * b + rng.normal(0, 1.5, n)
    y = 10 + 1.5 * t + 2 * a - 3 * b + c + rng.normal(0, 3, n)
    return pd.DataFrame({"Y": y, "T": t, "A": a, "B": b, "C": c})


def curved(n: int, seed: int) -> pd.DataFrame:
    """Two arms, confounded by the square of a covariate."""
    rng = np.random.default_rng([2, seed])
    a, b = rng.uniform(-2, 2, n), rng.uniform(0, 1, n)
    t = (rng.random(n) < 1 / (1 + np.exp(1.2 - 0.8 * a**2 - 0.5 * b))).astype(int)
    y = t + a**2 + b + rng.normal(0, 1, n)
    return pd.DataFrame({"Y": y, "T": t, "A": a, "A2": a**2, "B": b})


def arms(n: int, seed: int) -> pd.DataFrame:
    """Four arms with about 46, 28, 16 and 10 % of the rows."""
    rng = np.random.default_rng([3, seed])
    a, b = rng.uniform(-1, 1, n), rng.integers(0, 2, n)
    lift = np.stack([0 * a, 0.8 * a, 0.6 * b - 0.6 * a, -0.5 * a - 0.4 * b])
    draw = lift + np.array([[0.0], [-0.5], [-1.3], [-1.3]]) + rng.gumbel(size=(4, n))
    arm = draw.argmax(axis=0)
    y = np.array([0.0, 0.5, -0.3, 1.0])[arm] + 2 * a - b + rng.normal(0, 1, n)
    return pd.DataFrame({"Y": y, "T": np.array(list("klmn"))[arm], "A": a, "B": b})


LAWS = {
    "dose": Law(dose, {"Y": (-30, 60), "T": (-10, 20), "A": (-2, 2), "B": [0, 1], "C": (-5, 5)},
                "Y ~ T + A + B + C", (1.5,)),
    "curved": Law(curved, {"Y": (-6, 12), "A": (-2, 2), "B": (0, 1)}, "Y ~ T + A2 + B", (1.0,)),
    "arms": Law(arms, {"Y": (-8, 8), "T": list("klmn"), "A": (-1, 1), "B": [0, 1]},
                "Y ~ C(T) + A + B", (0.5, -0.3, 1.0)),
}  # fmt: skip
LAWS["dose, loose"] = LAWS["dose"]._replace(bounds={**LAWS["dose"].bounds, "T": (-297, 303)})
ROWS, EPSILONS = (5000, 50_000), (0.5, 1.0, 4.0)


def cell(name: str, n: int, eps: float, repetitions: int) -> dict[str, Any]:
    """Of all slopes together: coverage, the least of a slope, bias, rmse and half-widths."""
    law, errors, halves, plain = LAWS[name], [], [], []
    covariates = [c for c in law.bounds if c not in "YT"]
    for seed in range(repetitions):
        data = law.rows(n, seed)
        with seeded_noise(seed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = pc.private(
                f"Y ~ T | {' + '.join(covariates)}", data, estimand="PLR", eps=eps,
                bounds=law.bounds,
            )  # fmt: skip
        errors.append(fit.params.to_numpy() - law.slopes)
        halves.append(np.diff(fit.conf_int().to_numpy(), axis=1)[:, 0] / 2)
        if seed < 20:
            least = smf.ols(law.plain, data).fit(cov_type="HC0")
            plain.append(1.96 * least.bse[least.params.index.str.contains("T")].to_numpy())
    error, half = np.array(errors), np.array(halves)
    held = (np.abs(error) <= half).mean(axis=0)
    return {
        "law": name, "n": n, "eps": eps, "reps": repetitions, "coverage": held.mean(),
        "least": held.min(), "bias": np.abs(error.mean(axis=0)).max(),
        "rmse": np.sqrt((error**2).mean()), "half": np.median(half), "plain": np.median(plain),
    }  # fmt: skip


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[1:] if a.isdigit()]
    quick = "--quick" in sys.argv
    repetitions = numbers[0] if numbers else 2 if quick else 200
    for name in LAWS:
        sizes = ROWS[:1] if quick else ROWS
        found = [cell(name, n, eps, repetitions) for n in sizes for eps in EPSILONS]
        print(pd.DataFrame(found).round(4).to_string(index=False), flush=True)
