"""One small study, fitted in every way that results must carry."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from fit_helpers import private, privcate

import privcausal as pc
from privcausal.estimators import S

SIZE, EPSILON = 900, 20.0
FORMULA = "cost ~ mailed | age + C(ward) + smoker | income"
BOUNDS = {"cost": (0, 20), "age": (18, 90), "ward": ["N", "S", "W"], "income": (0, 5)}
GROUPS = ["ward", "age >= 65"]

CANARY = 7777.0625
"""A row's value that no output may hold."""
RARE = "zzcanary"
"""A level of one row, never declared."""


@lru_cache
def study(n: int = SIZE) -> pd.DataFrame:
    """A study with missing values, an undeclared level and one outlier; shuffled index."""
    rng = np.random.default_rng(2)
    age, income = rng.uniform(18, 90, n), rng.uniform(0, 5, n)
    ward, smoker = rng.choice(["N", "S", "W"], n), rng.random(n) < 0.3
    p = np.clip(0.3 + 0.4 * (age - 18) / 72, 0.25, 0.75)
    mailed = (rng.random(n) < p).astype(int)
    cost = 5 + 0.05 * age + income + mailed * (1 + 0.02 * age + (ward == "S")) + rng.normal(0, 1, n)
    data = pd.DataFrame(
        {
            "cost": np.clip(cost, 0, 20), "mailed": mailed, "age": age, "ward": ward,
            "smoker": smoker, "income": income, "p": p, "pid": [f"id{i // 2}" for i in range(n)],
        },
        index=rng.permutation(n) + 1000,
    )  # fmt: skip
    data.iloc[3, data.columns.get_loc("cost")] = CANARY
    data.iloc[5, data.columns.get_loc("age")] = CANARY
    data.iloc[7, data.columns.get_loc("ward")] = RARE
    data.iloc[9, data.columns.get_loc("income")] = np.nan
    return data


VARIANTS: dict[str, dict[str, Any]] = {
    f"{learner} on {base}": {"learner": learner, "base": base}
    for learner in ("r", "dr", "s", "t", "x", "private")
    for base in ("gam", "linear")
} | {
    "constant effect": {"learner": S(interactions=False)},
    "crossfit": {"learner": "dr", "base": "linear", "control": pc.Control(split="crossfit")},
    "crossfit arms": {"learner": "t", "base": "linear", "control": pc.Control(split="crossfit")},
    "disjoint": {"learner": "r", "base": "linear", "control": pc.Control(split="disjoint")},
    "private crossfit": {
        "learner": "private", "base": "linear", "control": pc.Control(split="crossfit"),
    },
    "on the treated": {"learner": "private", "estimand": "ATT"},
    "in the overlap": {"learner": "private", "base": "linear", "estimand": "ATO"},
    "units": {"learner": "r", "base": "linear", "unit": "pid", "max_rows": 2},
    "add_remove": {"learner": "private", "base": "linear", "neighbors": "add_remove"},
    "bought bounds": {"learner": "r", "base": "linear", "bounds": None, "groups": [], "eps": 60.0},
    "propensity column": {
        "learner": "x", "base": "linear", "propensity": "p", "bounds": BOUNDS | {"p": (0.2, 0.8)},
    },
    "r boosted": {"learner": "r", "base": pc.bases.DPEBM(rounds=10, learning_rate=0.1)},
    "x boosted": {"learner": "x", "base": pc.bases.DPEBM(rounds=10, learning_rate=0.1)},
    "propensity number": {"learner": "dr", "propensity": 0.5},
    "robust covariance": {"learner": "r", "base": "linear", "control": pc.Control(cov_type="HC0")},
    "no averages": {
        "learner": "r", "base": "linear", "groups": [],
        "control": pc.Control(shares={"average": 0}),
    },
    "complete": {
        "learner": "private", "base": "linear", "bounds": pc.Schema(BOUNDS, complete=True),
    },
}  # fmt: skip


@lru_cache
def variant(name: str) -> Any:
    """A fit with seeded noise, so it is marked as not private."""
    return fit(**VARIANTS[name], seed=11)


@lru_cache
def proven() -> Any:
    """A fit with real noise."""
    return fit(learner="r", base="linear")


@lru_cache
def proven_average() -> Any:
    return fit(learner="private", base="linear")


def fit(learner: Any, **options: Any) -> Any:
    options = {"eps": EPSILON, "bounds": BOUNDS, "groups": GROUPS, **options}
    if learner == "private":
        return private(FORMULA, study(), **options)
    return privcate(FORMULA, study(), learner=learner, **options)


def points() -> pd.DataFrame:
    """New data, inside the bounds but for one row."""
    columns = {"age": [20.0, 50.0, 90.0, 120.0], "ward": ["N", "S", "W", "S"]}
    columns |= {"smoker": [True, False, True, False], "income": [0.5, 2.5, 5.0, 1.0]}
    return pd.DataFrame(columns | {"p": [0.3, 0.5, 0.7, 0.9]}, index=[10, 30, 20, 40])
