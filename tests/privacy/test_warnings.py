"""Warnings are functions of released numbers: with the same answers any table has the same ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from alert_rows import MANY, many, ruled
from replay_helpers import cleaning, fit

import privcausal as pc
from privcausal.results.fits import Result

BOUNDS: dict[str, Any] = {"Y": (-4, 4), "X": (-1, 1), "G": ["a", "b", "c"]}


def rows(n: int = 3000, chance: float = 0.5, slope: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(8)
    x = rng.uniform(-1, 1, n)
    t = (rng.uniform(size=n) < chance + slope * np.sign(x)).astype(float)
    y = np.clip(x + 0.5 * t + rng.normal(0, 0.5, n), -4, 4)
    return pd.DataFrame({"Y": y, "T": t, "X": x, "G": rng.choice(["a", "b", "c"], n)})


def call(**options: Any) -> dict[str, Any]:
    own = {"formula": "Y ~ T | X + C(G)", "learner": "private", "bounds": BOUNDS, "eps": 2.0}
    return own | options


def panel() -> pd.DataFrame:
    """Units in three periods, hardly any of which is treated in the second."""
    n = 600
    first = np.where(np.arange(n) < 2, 2, np.where(np.arange(n) % 2, 3, 0))
    y = np.random.default_rng(8).random(3 * n)
    return pd.DataFrame(
        {"id": np.repeat(np.arange(n), 3), "t": [1, 2, 3] * n, "C": np.repeat(first, 3), "Y": y}
    )


COHORTS: dict[str, Any] = {
    "learner": "did", "formula": "Y ~ 1", "unit": "id", "time": "t", "cohort": "C", "eps": 2.0,
    "periods": [1, 2, 3], "bounds": {"Y": (0, 1), "C": [0, 2, 3]},
}  # fmt: skip

MORE = BOUNDS | {"G": ["a", "b", "c", "d"]}
NAMED = {"G": lambda d: [f"label {k}" for k in range(len(d))]}
CASES: dict[str, tuple[dict[str, Any], Callable[[], pd.DataFrame]]] = {
    "bounds": (call(bounds={"Y": (-4, 4), "G": ["a", "b", "c"]}), rows),
    "covariates": (
        call(formula="Y ~ T | C(G)", bounds={"Y": (-4, 4)}, eps=0.2),
        lambda: rows(200).assign(**NAMED),
    ),
    "arm": (call(), lambda: rows(chance=1.0)),
    "arm of a trial": (call(formula="Y ~ T"), lambda: rows(chance=1.0)),
    "arm of known propensity": (call(propensity=0.5), lambda: rows(chance=1.0)),
    "arm of cells": (call(formula="Y ~ T | C(G)", learner="adum"), lambda: rows(chance=1.0)),
    "arm of two regressions": (call(formula="Y ~ T | X", learner="tm"), lambda: rows(chance=1.0)),
    "noise": (call(formula="Y ~ T | X", eps=0.1), lambda: rows(300)),
    "levels": (call(bounds=MORE, eps=8.0), rows),
    "allocation": (call(propensity=0.1), rows),
    "groups": (call(bounds=MORE, groups=["G"]), rows),
    "complete": (call(), lambda: rows(chance=0.7).assign(T=lambda d: d["T"] + 1)),
    "clip": (call(), lambda: rows().assign(X=lambda d: 100 + d["X"])),
    "clip of the outcome": (call(learner="r"), lambda: rows().assign(Y=lambda d: 50 + d["Y"])),
    "tail": (
        call(learner="regress", formula="Y ~ X", bounds={**MORE, "Y": (0, 500)}, eps=8.0),
        lambda: rows(20_000).assign(Y=lambda d: np.exp(2 * d["Y"].clip(-3, 3))),
    ),
    "leverage": (
        call(learner="regress", formula="Y ~ X", bounds={"Y": (-4, 4), "X": (0, 1000)}, eps=8.0),
        lambda: rows(20_000).assign(
            X=lambda d: np.where(d.index % 200 == 0, 750 + 250 * d["X"], 10 + 8 * d["X"])
        ),
    ),
    "bias": (
        call(learner="regress", formula="Y ~ X", bounds={**MORE, "Y": (0, 2000)}, eps=0.5),
        lambda: rows(5_000).assign(
            Y=lambda d: np.where(d.index % 33 == 0, np.exp(4 + d["Y"]), 0).clip(0, 2000)
        ),
    ),
    "events": (
        call(learner="logit", formula="T ~ X", bounds=BOUNDS | {"T": [0, 1]}, eps=8.0),
        lambda: rows(chance=0.005),
    ),
    "separation": (
        call(learner="logit", formula="T ~ X", bounds=BOUNDS | {"T": [0, 1]}, eps=8.0),
        lambda: rows(20_000).assign(T=lambda d: 1 * (d["X"] > 0)),
    ),
    "collinear": (
        call(learner="regress", formula="Y ~ X + Z", bounds=BOUNDS | {"Z": (-2, 2)}, eps=8.0),
        lambda: rows().assign(Z=lambda d: 2 * d["X"]),
    ),
    "treatment": (
        call(formula="Y ~ A | X", bounds=BOUNDS | {"A": [*"abcd"]}, estimand="PLR"),
        lambda: rows().assign(A=lambda d: [*"abc"] * 1000),
    ),
    "weights": (
        call(weights="W", bounds=BOUNDS | {"W": (0, 100)}),
        lambda: rows().assign(W=lambda d: np.exp(2 * d["X"]) * np.where(d["Y"] > 0, 8, 1)),
    ),
    "clusters": (
        call(control=pc.Control(cluster="V", max_cluster_rows=300), eps=8.0),
        lambda: rows().assign(V=lambda d: np.arange(len(d)) // 300),
    ),
    "instrument": (
        call(formula="Y ~ T | X | T ~ Z", estimand="LATE"),
        lambda: rows().assign(Z=lambda d: 1.0 * (np.arange(len(d)) % 2)),
    ),
    "censoring": (
        call(formula="Surv(D, E) ~ T", estimand="RMST", horizon=10, bounds={"X": (-1, 1)}),
        lambda: rows().assign(D=lambda d: 3 + d["X"], E=lambda d: 1.0 * (d["Y"] > 0)),
    ),
    "cohorts": (COHORTS, panel),
    "overlap": (call(eps=8.0), lambda: rows(20_000, 0.5, 0.49)),
    "nuisances": (
        call(formula=f"Y ~ T | {' + '.join(MANY)}", bounds={"Y": (-5, 5)} | MANY, eps=0.2),
        many,
    ),
    "adjustment": (call(eps=0.5), lambda: rows(300)),
    "products": (
        call(formula="Y ~ T | X + Z", eps=4.0, bounds={"Y": (-1, 2), "X": (-1, 1), "Z": (-1, 1)}),
        ruled,
    ),
}  # fmt: skip


def other(table: pd.DataFrame) -> pd.DataFrame:
    """A table of as many rows with nothing else alike: columns shuffled, moved and half missing."""
    rng = np.random.default_rng(5)
    out = {name: rng.permutation(column.to_numpy()) for name, column in table.items()}
    for name, values in out.items():
        if name in ("G", "id", "t") or values.dtype.kind not in "if":
            continue
        out[name] = 1.0 - values if set(np.unique(values)) <= {0, 1, 2} else 7.0 - 3.0 * values
        out[name] = np.where(rng.random(len(table)) < 0.5, np.nan, out[name])
    return pd.DataFrame(out)


def both(code: str) -> tuple[Any, Any]:
    options, made = CASES[code]
    table = made()
    first = fit(options, table)
    return first, fit(options, other(table), first.calls)


@pytest.mark.slow
@pytest.mark.parametrize("code", CASES)
def test_the_same_released_numbers_give_the_same_warnings(code: str, tmp_path: Path) -> None:
    first, second = both(code)
    assert (first.error, second.error) == (None, None)
    assert first.warned == second.warned != ()
    assert first.document == second.document
    assert code.split(maxsplit=1)[0] in first.result.alerts
    first.result.save(tmp_path / "fit.json")
    saved = pc.load(tmp_path / "fit.json")
    assert saved.alerts == first.result.alerts == second.result.alerts
    told = [text.removeprefix("PrivcausalWarning: ").removesuffix("...") for text in first.warned]
    own = [text for text in told if "estimated privately, at" not in text]  # a price, told before
    assert len(own) == len(saved.alerts), "and nothing else is warned of"
    assert all(a.startswith(b) for a, b in zip(saved.alerts.values(), own, strict=True))


def test_every_code_has_a_case() -> None:
    """The codes that the docstring of `alerts` names."""
    words = str(Result.alerts.__doc__).partition("Examples")[0].split()
    named = {word[:-1] for word in words if word.endswith(":")}
    assert named == {code.split()[0] for code in CASES}


@pytest.mark.slow
def test_other_released_numbers_give_other_warnings() -> None:
    """The replay is not idle: answers for itself, the other table is warned of otherwise."""
    options, made = CASES["clip"]
    assert fit(options, made()).warned != fit(options, other(made())).warned


@pytest.mark.slow
def test_a_warning_by_a_row_would_be_found() -> None:
    def tell(values: Any) -> None:
        if values.mean() > 0:
            warnings.warn("high values", pc.PrivcausalWarning, stacklevel=3)

    with cleaning(tell):
        first, second = both("clip")
    assert first.warned != second.warned


@pytest.mark.slow
def test_a_weak_promise_is_told_of_whatever_rows() -> None:
    """It follows from the call and the public number of rows."""
    table, options = rows(300), call(eps=20.0, delta=0.01)
    first = fit(options, table)
    second = fit(options, other(table), first.calls)
    assert first.warned == second.warned
    assert [text.split(": ", 1)[1][:9] for text in first.warned[:2]] == ["eps=20 is", "delta=0.0"]
