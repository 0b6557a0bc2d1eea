"""The methods that `adum_study.py` compares, and digests of what each gives."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import adum_printed
import numpy as np
import pandas as pd
from study_rows import numbers_digest

import privcausal as pc
from privcausal.estimators import ADUM, TM
from privcausal.testing import seeded_noise

GROUPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 64)
BOUNDS: dict[str, Any] = {"Y": (-5, 5), "X": (-1, 1)}
GRID = np.linspace(-0.9995, 0.9995, 2000)
RIGHT, MEANS = "ADUM, right", "means"


def trial(surface: Callable[[Any], Any], rows: int, sigma: float, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng([seed, 2021])
    x, t = rng.uniform(-1, 1, rows), rng.integers(0, 2, rows)
    return pd.DataFrame({"X": x, "T": t, "Y": t * surface(x) + rng.normal(0, sigma, rows)})


def criteo_like(rows: int, seed: int = 7) -> pd.DataFrame:
    """12 features, two of which drive a visit rate of 4.7 % and its uplift; 85 % treated."""
    rng = np.random.default_rng(seed)
    x = rng.beta(2, 4, (rows, 12))
    t = (rng.random(rows) < 0.85).astype(int)
    base = 0.012 + 0.16 * x[:, 0] ** 2 + 0.02 * x[:, 3]
    uplift = 0.03 * (x[:, 0] > 0.4) * x[:, 1]
    visit = (rng.random(rows) < base + t * uplift).astype(int)
    frame = pd.DataFrame(x, columns=[f"f{j}" for j in range(12)])
    return frame.assign(treatment=t, visit=visit)


def arm_means(frame: pd.DataFrame, groups: int) -> Any:
    """Exact means by cell and arm (Eq. 6), shape (groups, 2)."""
    cell = np.clip(((frame["X"] + 1) * groups / 2).astype(int), 0, groups - 1)
    key = 2 * cell.to_numpy() + frame["T"].to_numpy()
    count = np.bincount(key, minlength=2 * groups)
    return (np.bincount(key, frame["Y"], minlength=2 * groups) / count).reshape(-1, 2)


@dataclass(frozen=True)
class Method:
    """tau at `GRID` from a table, an option, epsilon and a seed; options are tuned over."""

    fit: Callable[..., Any]
    options: tuple[Any, ...] = (None,)


def _ours(learner: Callable[[Any], Any], frame: Any, option: Any, epsilon: float, seed: int) -> Any:
    with warnings.catch_warnings(), seeded_noise(seed):
        warnings.simplefilter("ignore")
        fit = pc.privcate(
            "Y ~ T | X", frame, learner=learner(option), bounds=BOUNDS, eps=epsilon, propensity=0.5
        )
    return fit.predict({"X": GRID})["estimate"].to_numpy()


def _printed(frame: Any, groups: int, epsilon: float, seed: int) -> Any:
    with seeded_noise(seed):
        fit = pc.paper.adum("Y ~ T | X", frame, cells=groups, bounds=BOUNDS, eps=epsilon)
    return fit.predict({"X": GRID})["estimate"].to_numpy()


def _theirs(method: Any, frame: Any, degree: int, epsilon: float, seed: int) -> Any:
    return method(frame, degree, epsilon, np.random.default_rng([seed, degree, 7]), GRID)


DEGREES = tuple(range(1, 6))
METHODS = {
    "ADUM, printed": Method(_printed, GROUPS),
    "TM, printed": Method(partial(_theirs, adum_printed.tm), DEGREES),
    RIGHT: Method(
        partial(_ours, lambda p: ADUM(cells=p, shrink=False, release="count_sum")), GROUPS
    ),
    "TM, right": Method(partial(_ours, lambda k: TM(degree=k)), DEGREES),
    "default": Method(partial(_ours, lambda _: "adum")),
    "R-learner": Method(partial(_ours, lambda _: "r")),
    "TM, library": Method(partial(_theirs, adum_printed.library_tm), DEGREES),
}
"""Of Figure 1."""


@cache
def usable() -> tuple[str, ...]:
    """Those of `METHODS` whose package is there and works beside this scikit-learn."""
    try:
        importlib.import_module("diffprivlib.models")
    except ImportError:
        return tuple(name for name in METHODS if name != "TM, library")
    return tuple(METHODS)


def _scored(
    learner: Any, train: Any, features: Any, domains: Any, epsilon: float, seed: int
) -> Any:
    with warnings.catch_warnings(), seeded_noise(seed):
        warnings.simplefilter("ignore")
        call = learner if callable(learner) else partial(pc.privcate, learner=learner)
        text = f"visit ~ treatment | {' + '.join(features)}"
        return call(text, train, bounds=domains, eps=epsilon)


def _first(learner: Any, train: Any, features: Any, domains: Any, epsilon: float, seed: int) -> Any:
    return _scored(learner, train, features[:1], domains, epsilon, seed)


LEARNERS: dict[str, Callable[..., Any]] = {
    "default (adum), first feature": partial(_first, "adum"),
    "adum, 16 cells of the first feature, as in the paper": partial(
        _first, partial(pc.paper.adum, cells=16)
    ),
    "adum kmeans": partial(_scored, ADUM(partition="kmeans", cells=16)),
    "adum kmeans, as in the paper": partial(
        _scored, partial(pc.paper.adum, partition="kmeans", cells=16)
    ),
    "tm, linear": partial(_scored, "tm"),
    "tm, logistic as in the paper": partial(_scored, pc.paper.tm),
    "tm, logistic, C = 0.01": partial(_scored, partial(pc.paper.tm, C=0.01)),
    "r": partial(_scored, "r"),
}
"""Of Figure 3."""


TUNED: dict[str, Method] = {
    "adum, first feature": Method(
        lambda *of: _first(partial(pc.paper.adum, cells=of[-1]), *of[:-1]), (2, 4, 8, 16, 32, 64)
    ),
    "adum kmeans": Method(
        lambda *of: _scored(partial(pc.paper.adum, partition="kmeans", cells=of[-1]), *of[:-1]),
        (4, 16, 64),
    ),
    "tm, logistic": Method(
        lambda *of: _scored(partial(pc.paper.tm, C=of[-1]), *of[:-1]),
        (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0),
    ),
}  # fmt: skip
"""Of Figure 3 with its tuning: the number of groups, and C. The option comes last."""


@cache
def code(method: str) -> str:
    """What tells rows of this method from those that other code made; "" where it cannot run."""
    if method in METHODS:
        if method not in usable():
            return ""
        made = METHODS[method]
        option = made.options[min(2, len(made.options) - 1)]
        return numbers_digest(made.fit(trial(np.sin, 500, 1.0, 3), option, 5.0, 1)[::400])
    if method == MEANS:
        return numbers_digest(arm_means(trial(np.sin, 500, 1.0, 3), 3).ravel())
    frame, features = criteo_like(4000), [f"f{j}" for j in range(12)]
    domains = dict.fromkeys(features, (0, 1)) | {"visit": pc.Binary()}
    if method in TUNED:
        fit = TUNED[method].fit(frame, features, domains, 5.0, 1, TUNED[method].options[0])
    else:
        fit = LEARNERS[method](frame, features, domains, 5.0, 1)
    return numbers_digest(fit.predict(frame[:5])["estimate"])
