"""Rows that raise an alert, harmless rows, and the chance of a false alarm of every alert."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import privcausal as pc


def ruled() -> pd.DataFrame:
    """A threshold on a sum of two columns confounds."""
    rng = np.random.default_rng(8)
    x, z = rng.uniform(-1, 1, (2, 4000))
    high = x + z > 0
    t = (rng.uniform(size=4000) < np.where(high, 0.8, 0.2)).astype(int)
    y = np.clip(high + rng.normal(0, 0.2, 4000), -1, 2)
    return pd.DataFrame({"Y": y, "T": t, "X": x, "Z": z})


MANY: dict[str, Any] = {f"X{k}": (-1, 1) for k in range(15)}


def many() -> pd.DataFrame:
    """Many rows and covariates at a small budget: little but confounding is uncertain."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.uniform(-1, 1, (50_000, len(MANY))), columns=list(MANY))
    index = frame["X0"] + frame["X1"]
    treated = rng.random(len(frame)) < 1 / (1 + np.exp(-1.5 * index))
    return frame.assign(T=1 * treated, Y=2 * index + rng.normal(0, 0.1, len(frame)))


FALSE_ALARMS: dict[str, float] = {
    "bounds": 0.0,  # declared bounds
    "covariates": 1e-3,  # a covariate of usual variation
    "arm": 0.01,  # each arm has a tenth of the rows
    "allocation": 0.003,  # a correct propensity
    "treatment": 1e-3,  # a treatment of usual variation
    "levels": 0.01,  # each label has 2% of the rows
    "complete": 0.002,  # half of the rows are complete, or three quarters if T is undeclared
    "overlap": 0.01,  # propensities between 0.15 and 0.85, n eps = 2,000
    "clip": 0.01,  # bounds beyond all values, or two values, the rarer in a tenth of the rows
    "nuisances": 0.01,  # confounding by a sum of functions, n eps = 2,000
    "noise": 0.0,  # n eps = 200
    "adjustment": 0.01,  # n eps = 2,000
    "products": 0.01,  # additive confounding
    "groups": 0.002,  # groups of six noise sds
    "cohorts": 0.002,  # cohorts of six noise sds
    "weights": 0.0,  # weights between 1 and 3
    "clusters": 0.0,  # 50 clusters
    "instrument": 0.01,  # a first stage of ten standard errors
    "collinear": 0.01,  # independent columns
    "events": 0.0,  # 1,000 events
    "separation": 0.01,  # independent columns
    "tail": 0.01,  # normal residuals
    "leverage": 0.01,  # normal columns
    "bias": 0.05,  # normal residuals, n eps = 2,000
    "censoring": 0.01,  # half of the rows are followed to the horizon
}  # fmt: skip
"""Chance that an alert is raised by rows as in the comment."""

TRUE_ALARMS: dict[str, set[str]] = {"little budget": {"adjustment"}}
"""Alerts on the budget, which are right for these calls."""


def harmless(seed: int) -> pd.DataFrame:
    """Rows without any problem; B is 1 in half of the rows, and A has a propensity P."""
    rng, n = np.random.default_rng(seed), 2000
    x, z, noise = rng.normal(0, 1, (3, n)).clip(-3, 3)
    b, iv = rng.integers(0, 2, (2, n))
    p = np.where(x > 1, 0.45, 0.3)
    t = (rng.random(n) < np.where(x > 0, 0.5, 0.4)).astype(int)
    y = (x + 0.5 * t + noise).clip(-6, 6)
    return pd.DataFrame(
        {
            "Y": y, "T": t, "X": x, "Z": z, "B": b, "IV": iv, "P": p, "G": rng.choice([*"abc"], n),
            "A": (rng.random(n) < p).astype(int), "V": np.arange(n) // 40,
            "W": rng.uniform(1, 3, n), "D": rng.exponential(10, n), "E": rng.integers(0, 2, n),
            "H": ((iv + 0.4 * noise) > 0.5).astype(int), "R": (rng.random(n) < 0.1).astype(int),
        }
    )  # fmt: skip


HARMLESS_BOUNDS: dict[str, Any] = {
    "Y": (-6, 6), "X": (-3, 3), "Z": (-3, 3), "B": (0, 1), "P": (0.1, 0.9), "G": [*"abc"],
    "W": (1, 3), "D": (0, 200),
}  # fmt: skip


def _fit(formula: str, **options: Any) -> Callable[[pd.DataFrame], Any]:
    return lambda d: pc.private(formula, d, bounds=HARMLESS_BOUNDS, **{"eps": 1.0} | options)


def _panel(d: pd.DataFrame) -> Any:
    parts = [d.assign(id=d.index, time=t, S=d["T"] * t, Y=(d["Y"] / 2).clip(-3, 3)) for t in (0, 1)]
    return pc.did(
        "Y ~ S", pd.concat(parts), unit="id", time="time", periods=(0, 1), bounds={"Y": (-3, 3)}
    )


HARMLESS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "covariates": _fit("Y ~ T | X + B + C(G)", groups=["G"]),
    "little budget": _fit("Y ~ T | B", eps=0.1),
    "propensity of a column": _fit("Y ~ A | X", propensity="P"),
    "propensity of a covariate": _fit("Y ~ A | X + P", propensity="P"),
    "trial": _fit("B ~ T", propensity=0.45),
    "outcome of two values": _fit("B ~ T | X"),
    "a tenth is treated": _fit("Y ~ R | X"),
    "survival": _fit("Surv(D, E) ~ T", estimand="RMST", horizon=9),
    "LATE": _fit("Y ~ H | X | H ~ IV", estimand="LATE", eps=4.0),
    "PLR": _fit("Y ~ Z | X", estimand="PLR"),
    "weights": _fit("Y ~ T | X", weights="W"),
    "clusters": _fit("Y ~ T | X", control=pc.Control(cluster="V", max_cluster_rows=40)),
    "CATE": lambda d: pc.privcate("Y ~ T | X + B", d, bounds=HARMLESS_BOUNDS),
    "differences": _panel,
    "regression": lambda d: pc.regress("Y ~ X + Z + B + C(G)", d, bounds=HARMLESS_BOUNDS, eps=1),
    "logit": lambda d: pc.logit("B ~ X + Z", d, bounds=HARMLESS_BOUNDS | {"B": [0, 1]}, eps=2),
}  # fmt: skip
