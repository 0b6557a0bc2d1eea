"""The methods of `niu_study.py`, and which code made its rows.

``paper``: interpret's DP-EBM on parts of .25, .25 and .5 of the rows. ``interpret``, for learner
"r" alone: the same with the weighting that interpret has today and the paper's version had not.
``arms``, for learner "s" alone: the same with a column per arm, as in the authors' notebook.
``raw`` and ``smooth``: base "dpebm" with all rows and shares of rho, its shapes as the rounds left
them, or smoothed. Learner "s" of ``paper`` and ``raw`` is the paper's, a constant; that of
``smooth`` has an effect for each modifier, which ``constant`` has not. ``disjoint`` and ``full``:
as ``smooth``, on parts of the rows with all of rho and on all rows with shares of it, with the
average effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from study_rows import numbers_digest

import privcausal as pc
from privcausal.testing import seeded_noise

SETUPS = {"A": "A", "B": "B", "C": "C", "D": "D-code", "E": "E-code"}
"""Name in the paper -> generator; the published figures of D and E are those of its notebook."""

CLIP = 0.05
"""The notebook's."""

RAW, SMOOTH = pc.bases.DPEBM(smooth=False), pc.bases.DPEBM()
CONSTANT = pc.learners.S(interactions=False)


def call(variant: str, learner: str) -> dict[str, Any]:
    """Options of `privcate`, or of `pc.paper.dpebm`, for one variant."""
    if variant in ("paper", "interpret"):
        weighting = "published" if variant == "paper" else "interpret"
        return {"learner": learner, "weighting": weighting, "call": pc.paper.dpebm}
    if variant == "arms":
        return {"learner": learner, "arm_columns": 2, "call": pc.paper.dpebm}
    if variant in ("disjoint", "full"):
        return {"learner": learner, "base": SMOOTH, "control": pc.Control(split=variant)}  # type: ignore[arg-type]
    constant = learner == "s" and variant in ("raw", "constant")
    return {
        "learner": CONSTANT if constant else learner,
        "base": RAW if variant == "raw" else SMOOTH,
        "control": pc.Control(shares={"average": 0}),
    }  # fmt: skip


def printed(learner: str) -> str:
    """The variant whose errors the authors have."""
    return "arms" if learner == "s" else "paper"


def variants(learner: str) -> tuple[str, ...]:
    more = {"s": ("constant",), "r": ("interpret",)}
    return ("paper", "raw", "smooth", *more.get(learner, ()))


def fitted(study: Any, eps: float, **options: Any) -> Any:
    run = options.pop("call", pc.privcate)
    if run is pc.privcate:
        options["control"] = replace(options["control"], propensity_clip=CLIP)
    else:
        options["propensity_clip"] = CLIP
    return run(study.formula, study.frame, eps=eps, bounds=study.bounds, **options)


@lru_cache
def drawn(setup: str, n: int, seed: int) -> Any:
    return pc.datasets.niu(SETUPS[setup], n, seed)  # type: ignore[arg-type]


# -- which code made a row -----------------------------------------------------------------------


@cache
def code(variant: str, learner: str) -> str:
    """What tells rows of a method from those that other code made: numbers of one small table."""
    with seeded_noise(0):
        fit = fitted(drawn("A", 400, 0), 2.0, **call(variant, learner))
    effects = fit.predict(drawn("A", 25, 1).frame)["estimate"]
    average = np.ravel(fit.conf_int()) if variant in ("disjoint", "full") else ()
    return numbers_digest([*effects, *average])


def read(file: Path) -> pd.DataFrame:
    """All rows of a part."""
    # a column of 1, 4 and 16 would be read as integers, which look unlike 1.0, 4.0 and 16.0
    return pd.read_csv(file, dtype={"epsilon": float, "shift": float, "code": str})


def of_today(rows: pd.DataFrame) -> pd.Series:
    """Which rows were made by today's code; others stay where they are."""
    methods: Iterable[tuple[str, str]] = set(zip(rows["variant"], rows["learner"], strict=True))
    now = {method: code(*method) for method in methods}
    made = zip(rows["variant"], rows["learner"], rows["code"], strict=True)
    return pd.Series([now[v, learner] == by for v, learner, by in made], rows.index)
