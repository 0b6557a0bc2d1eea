"""Saved fits that were tampered with: one small study, its fits, and files made of them."""

from __future__ import annotations

import contextlib
import copy
import json
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import privcausal as pc
from privcausal import testing
from privcausal.errors import DataError
from privcausal.results import stored as serial

FORMULA = "Y ~ T | x + C(g)"
BOUNDS: dict[str, Any] = {"Y": (0, 1), "x": (0, 8), "g": ["a", "b", "c"]}

ORDINARY = {"Y": 0.5, "T": 1.0, "x": 2.0, "g": "a"}
STRANGE: tuple[dict[str, Any], ...] = (
    {"x": 7.5}, {"x": np.inf}, {"x": np.nan}, {"x": -1e308}, {"g": "undeclared"}, {"g": "c"},
    {"g": None}, {"T": 0.5}, {"T": np.nan}, {"Y": 1e300}, {"x": 0.0, "g": "b", "T": 0.0},
)  # fmt: skip
"""What one row holds instead."""


def table(*rows: dict[str, Any], size: int = 40) -> pd.DataFrame:
    """Ordinary rows and then these."""
    rng = np.random.default_rng(4)
    made = pd.DataFrame(
        {
            "Y": rng.random(size), "T": rng.integers(0, 2, size).astype(float),
            "x": rng.integers(0, 4, size).astype(float), "g": rng.choice(["a", "b"], size),
        }
    )  # fmt: skip
    more = pd.DataFrame([ORDINARY | row for row in rows], columns=list(ORDINARY))
    return pd.concat([made, more.astype(made.dtypes.to_dict())], ignore_index=True)


CALLS: dict[str, dict[str, Any]] = {
    "r by gam": {"learner": "r"},
    "dr by linear": {"learner": "dr", "base": "linear"},
    "x": {"learner": "x"},
    "boosting": {"learner": "s", "base": pc.bases.DPEBM(rounds=10)},
    "kernel": {"learner": "dpcate", "base": pc.bases.Kernel(functions=6)},
    "cells": {"learner": pc.learners.ADUM(partition={"x": 4, "g": "levels"})},
    "cuts": {"learner": pc.learners.ADUM(partition={"x": [1, 5]}, noise="gaussian")},
    "function": {"learner": pc.learners.ADUM(partition=lambda f: np.where(f["x"] > 3, "p", "q"))},
    "clusters": {"learner": pc.learners.ADUM(partition="kmeans", cells=3, rounds=2)},
    "polynomials": {"learner": "tm"},
}


@lru_cache
def fitted(kind: str, relation: Any = "substitute") -> Any:
    with testing.seeded_noise(5):
        if kind == "as printed":
            return pc.paper.tm(FORMULA, table(), bounds=BOUNDS)
        return pc.privcate(FORMULA, table(), bounds=BOUNDS, neighbors=relation, **CALLS[kind])


@lru_cache
def document(kind: str, relation: Any = "substitute") -> str:
    return written(fitted(kind, relation))


def written(fit: Any) -> str:
    """The fit as it is saved."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fit.json"
        fit.save(path)
        return path.read_text()


def loaded(content: str) -> Any:
    """The fit of a file, or None where it is refused as it must be."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fit.json"
        path.write_text(content)
        try:
            return pc.load(path)
        except DataError:
            return None


# -- crafted: each would claim too much, or take all there is -----------------------------------


def edited(kind: str, path: str, value: Any, relation: Any = "substitute") -> str:
    """The file with another value at a path; a function makes it from the old one."""
    root = json.loads(document(kind, relation))
    *way, last = path.split("/")
    holder = root
    for key in way:
        holder = holder[int(key) if isinstance(holder, list) else key]
    key = int(last) if isinstance(holder, list) else last
    if value is ...:
        del holder[key]
    else:
        holder[key] = value(holder[key]) if callable(value) else value
    return json.dumps(root)


ROWS = "asked/RowRequest"
REQUEST = f"{ROWS}/request/Request"
PARTITION = f"{ROWS}/learner/ADUM/partition"
BOUNDED = f"{REQUEST}/schema/Schema/bounds"
MOMENTS = "releases/nuisance: moments/0/0"


def _formula(text: str, columns: Any = ("Y", "T", "x", "g")) -> str:
    return edited(
        "dr by linear", f"{REQUEST}/formula", {"CausalFormula": [text, list(columns), True]}
    )


def _raw(kind: str, old: str, new: str) -> str:
    text = document(kind)
    assert old in text, old
    return text.replace(old, new, 1)


CRAFTED: dict[str, Callable[[], str] | tuple[str, str, Any] | tuple[str, str, Any, str]] = {
    "a column of no domain": lambda: _formula("Y ~ T | x + C(g) + z", "YTxgz"),
    "a column that is not listed": lambda: _formula("Y ~ T | z"),
    "another formula": lambda: _formula("Y ~ T | x"),
    "200,000 terms": lambda: _formula("Y ~ T | " + " + ".join(f"x{k}" for k in range(200_000))),
    "a power of many terms": lambda: _formula("Y ~ T | (x + g)**99999999"),
    "20,000 levels": ("dr by linear", f"{BOUNDED}/g/labels", [f"l{k}" for k in range(20_000)]),
    "another kind of domain": ("dr by linear", f"{BOUNDED}/x", ["a", "b"]),
    "bounds that are no numbers": ("r by gam", f"{BOUNDED}/x/hi", "8"),
    "a trillion cells": ("cells", f"{PARTITION}/map/0/1", 10**12),
    "cells of no column": ("cells", f"{PARTITION}/map/0/0", "z"),
    "a negative number of cells": ("cells", f"{PARTITION}/map/0/1", -4),
    "cells of fewer points": ("function", f"{PARTITION}/Own/values", lambda old: old[:-1]),
    "no function of cells": ("function", f"{PARTITION}/Own/values", []),
    "a million clusters": ("clusters", f"{ROWS}/learner/ADUM/cells", 10**6),
    "a billion powers": ("polynomials", f"{ROWS}/learner/TM/degree", 10**9),
    "a billion functions": ("kernel", f"{ROWS}/base/Kernel/functions", 10**9),
    "a billion rounds": ("boosting", f"{ROWS}/base/DPEBM/rounds", 10**9),
    "a whole number that is no float": ("r by gam", f"{REQUEST}/budget/Budget/epsilon", 10**400),
    "too many digits": lambda: _raw("r by gam", '"size": 40', f'"size": {"9" * 5000}'),
    "a huge number of rows": ("r by gam", "size", 10**18),
    "a number of rows that is no number": ("r by gam", "size", True),
    "no number of rows": ("r by gam", "size", None),
    "a number of rows, which is private": ("cells", "size", 40, "add_remove"),
    "deep": lambda: edited("r by gam", "call", "").replace('""', "[" * 9000 + "]" * 9000, 1),
    "a class of another package": ("r by gam", f"{ROWS}/learner", {"Popen": {}}),
    "an unknown field": ("r by gam", f"{ROWS}/learner", {"R": {"code": "x"}}),
    "a learner that is a base": ("r by gam", f"{ROWS}/learner", {"Linear": {}}),
    "a published mechanism that is told to be proven": ("as printed", f"{REQUEST}/mode", "proven"),
    "a learner of averages": ("r by gam", f"{ROWS}/learner", {"Private": {}}),
    "a promise by others": ("r by gam", f"{REQUEST}/budget/Budget/given", True),
    "a smaller price": ("r by gam", "prices/0/1", 1),
    "another budget": ("r by gam", f"{REQUEST}/budget/Budget/epsilon", 9.0),
    "a stage less": ("r by gam", "prices/0", ...),
    "a release less": ("r by gam", "releases/nuisance: moments", ...),
    "a release more": ("r by gam", "releases", lambda old: old | {"effect: more": [[[1.0], []]]}),
    "a release of another stage": (
        "r by gam",
        "releases",
        lambda old: old | {"effect: more": old.pop("nuisance: moments")},
    ),
    "two folds of one": ("r by gam", "releases/nuisance: moments", lambda old: old * 2),
    "a number more": ("r by gam", MOMENTS, lambda old: [*old, 0.5]),
    "no numbers": ("r by gam", MOMENTS, []),
    "a list of lists": ("r by gam", MOMENTS, lambda old: [[x] for x in old]),
    "texts": ("r by gam", MOMENTS, lambda old: [str(x) for x in old]),
    "a number that is none": ("r by gam", f"{MOMENTS}/0", float("nan")),
    "a number without an end": ("r by gam", f"{MOMENTS}/0", float("inf")),
    "a number that no sum has": ("r by gam", f"{MOMENTS}/0", 1e300),
    "labels of sums": ("r by gam", "releases/nuisance: moments/0/1", ["a"]),
    "other results": ("r by gam", "results", lambda old: [x * 2 for x in old]),
    "fewer results": ("r by gam", "results", []),
    "noise of another name": ("r by gam", "noise", "small"),
}
"""How each is made: by a function, or by the arguments of `edited`."""


def crafted(name: str) -> str:
    made = CRAFTED[name]
    return made() if callable(made) else edited(*made)


# -- mutated: any leaf, any value ----------------------------------------------------------------

VALUES: tuple[Any, ...] = (
    0, -1, 1, 2, 7, 2.5, 1e308, 10**6, 10**18, 10**30, True, None, "", "x", "g", "a", [],
    {"map": []}, {"Own": {"values": []}},
)  # fmt: skip


NUMBERS: dict[type, tuple[Any, ...]] = {
    float: (0.0, -1.0, 0.25, 0.5, 1.0, 3.7, 1e6, -1e6, 1e300, 1e-300),
    int: (-1, 0, 1, 2, 3, 5, 100),
}


def mutated(content: str, rng: np.random.Generator) -> str:
    """The file with one or two of its leaves or lists made anything else, and prices that fit."""
    root = json.loads(content)
    for _ in range(int(rng.integers(1, 3))):
        holder, key = _place(root, rng)
        old = holder[key]
        if type(old) in NUMBERS and rng.random() < 0.9:
            holder[key] = NUMBERS[type(old)][rng.integers(len(NUMBERS[type(old)]))]
        elif isinstance(old, list) and rng.random() < 0.7:
            holder[key] = _another_list(old, rng)
        else:
            holder[key] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])
    with contextlib.suppress(Exception):
        return priced(root)
    return json.dumps(root)


def priced(root: dict[str, Any]) -> str:
    """The file with the prices of what it asks."""
    plan, _ = serial._made(root["asked"]).planned()
    return json.dumps(root | {"prices": serial._prices(plan)})


def _another_list(old: list[Any], rng: np.random.Generator) -> list[Any]:
    if not old:
        return [1]
    at = int(rng.integers(len(old)))
    value = VALUES[rng.integers(len(VALUES))]
    others = [*old[:at], *old[at + 1 :]], [*old, old[at]], [*old[:at], value, *old[at + 1 :]]
    return others[rng.integers(3)]


def _place(root: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """A holder and a key, most often of a released number."""
    part = ("releases", "asked", "size", "noise")[rng.choice(4, p=[0.6, 0.34, 0.03, 0.03])]
    places = list(_places(root, part))
    return places[rng.integers(len(places))]


def _places(holder: Any, key: Any) -> Iterator[tuple[Any, Any]]:
    yield holder, key
    value = holder[key]
    if isinstance(value, dict):
        for name in value:
            yield from _places(value, name)
    elif isinstance(value, list):
        # of a long list some numbers stand for all
        for at in range(0, len(value), max(1, len(value) // 8)):
            yield from _places(value, at)


# -- what a look shows ---------------------------------------------------------------------------


LOOKS = ("overlap", "balance", "uplift")


def seen(fit: Any, look: str, rows: Any, frozen: Any = None) -> tuple[str, tuple[Any, ...]]:
    """What a look comes to, and its queries."""
    with testing.recorded(3, frozen) as recorder:
        try:
            found = str(getattr(fit, look)(rows, eps=1.0))
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
    return found, tuple(recorder.calls)


def alike(fit: Any, look: str, one: tuple[str, tuple[Any, ...]], two: Any) -> None:
    """On the same answers a table comes to what was seen of another, and exact ones are near."""
    first, calls = one
    second, again = seen(fit, look, two, calls)
    assert first == second, (first[-200:], second[-200:])
    assert len(calls) == len(again)
    for a, b in zip(calls, again, strict=True):
        power = 1 if a.query.law == "laplace" else 2
        moved = np.linalg.norm((a.exact - b.exact) * a.query.weights, power)
        assert moved <= a.query.sensitivity * (1 + 2.0**-40)
        assert (a.query.scale, a.query.sensitivity) == (b.query.scale, b.query.sensitivity)
