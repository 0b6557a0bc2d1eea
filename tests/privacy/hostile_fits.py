"""Saved fits that were tampered with: one small study, its fits, and files made of them."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import privcausal as pc
from privcausal import testing
from privcausal.errors import DataError
from privcausal.features.functions import Constant, Difference, Known
from privcausal.inference.effects import Answers
from privcausal.request.partition import LevelAxis, Product, RegularAxis

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


def changed(fit: Any, **parts: Any) -> Any:
    """The fit with other parts of its estimate."""
    return replace(fit, estimate=replace(fit.estimate, **parts))


# -- crafted: each would tell of a row, or take all there is -----------------------------------


def _with_propensity(make: Callable[[Any], Any], kind: str = "dr by linear") -> str:
    fit = fitted(kind)
    nuisances = replace(fit.estimate.nuisances, propensity=make(fit.estimate))
    return written(changed(fit, nuisances=nuisances))


def _points(estimate: Any) -> Any:
    """Known where x is 0, 1, 2 or 3, of which a row may be none."""
    points = (np.arange(4.0) / 4 - 1)[:, None]
    return Answers((), 1.0, estimate.design, np.array([0]), points, np.full(4, 0.5), np.ones(4))


def _doubled(times: int) -> Callable[[Any], Any]:
    def make(_: Any) -> Any:
        found: Any = Constant(0.5)
        for _ in range(times):
            found = Difference(found, found)
        return found

    return make


def _with_axes(*axes: Any) -> str:
    fit = fitted("cells")
    effect, partition = fit.estimate.effect, Product(axes)
    n = partition.size if partition.size < 10**5 else 4
    wide = replace(
        effect, partition=partition, value=np.zeros(n), root=np.zeros((n, 1)),
        count=np.ones((n, 2)),
    )  # fmt: skip
    return written(changed(fit, effect=wide))


def _edited(kind: str, old: str, new: str) -> str:
    text = document(kind)
    assert old in text, old
    return text.replace(old, new)


def _of_another_schema() -> str:
    """Designs of narrower bounds than those that rows are cut to."""
    content = json.loads(document("dr by linear"))
    bounds = fitted("dr by linear").estimate.schema.to_dict()
    narrow = bounds | {"bounds": bounds["bounds"] | {"x": {"lo": 0.0, "hi": 2.0}}}

    def walk(node: Any) -> None:
        if isinstance(node, dict) and node.get("class") == "Design":
            number = 10**6 + node["new"]
            node["fields"]["schema"] = {"new": number, "class": "Schema", "fields": narrow}
        for child in node.values() if isinstance(node, dict) else node:
            if isinstance(child, dict | list):
                walk(child)

    walk(content)
    return json.dumps(content)


def _with_shape(shape: list[int]) -> str:
    """Cells one of whose arrays has this shape, and no numbers."""
    content = json.loads(document("cells"))
    effect = content["body"]["estimate"]["fields"]["effect"]["fields"]
    effect["root"] |= {"array": [], "shape": shape}
    return json.dumps(content)


def _with_reach(text: str) -> str:
    return _edited("cells", '"reach": 1.0', f'"reach": {text}')


def _with_many_terms() -> str:
    """A design of 200,000 references to one term."""
    text = document("dr by linear")
    start = text.index('"terms": {"tuple": [', text.index('"class": "Design"'))
    start = text.index("[", start) + 1
    one = text[start : text.index("}", start) + 1]
    assert set(json.loads(one)) == {"ref"}
    return text[:start] + f"{one}, " * 200_000 + text[start:]


def _with_least_rows() -> str:
    fit = fitted("cells", "add_remove")
    return written(changed(fit, plan=replace(fit.plan, least_rows=41)))


CRAFTED: dict[str, Callable[[], str]] = {
    "known at some points only": lambda: _with_propensity(_points),
    "a column that is not there": lambda: _with_propensity(lambda _: Known(0.1, 0.9)),
    "one value for each row": lambda: _with_propensity(lambda _: Constant(np.full(40, 0.5))),  # type: ignore[arg-type]
    "eight times two calls": lambda: _with_propensity(_doubled(8)),
    "fewer labels than the schema": lambda: _with_axes(LevelAxis("g", ("a", "b"))),
    "an axis of other bounds": lambda: _with_axes(RegularAxis("x", 0.0, 4.0, 2)),
    "a trillion parts": lambda: _with_axes(RegularAxis("x", 0.0, 8.0, 10**12)),
    "an axis of no column": lambda: _with_axes(RegularAxis("z", 0.0, 8.0, 4)),
    "another schema": _of_another_schema,
    "a billion powers": lambda: _edited("polynomials", '"degree": 1', '"degree": 1000000000'),
    "a whole number that is no float": lambda: _with_reach(str(10**400)),
    "too many digits": lambda: _with_reach("9" * 5000),
    "a shape without numbers": lambda: _with_shape([10**12]),
    "no rows and many columns": lambda: _with_shape([0, 10**12]),
    "deep": lambda: _with_reach('{"tuple": [' * 9000 + "]}" * 9000),
    "20,000 levels": lambda: _edited(
        "dr by linear", '["a", "b", "c"]', json.dumps([f"l{k}" for k in range(20_000)])
    ),
    "200,000 terms": _with_many_terms,
    "a least number of rows, which is private": _with_least_rows,
}  # fmt: skip


# -- mutated: any leaf, any value ----------------------------------------------------------------

VALUES: tuple[Any, ...] = (
    0, -1, 1, 2, 7, 2.5, 1e308, 10**6, 10**18, 10**30, True, None, "", "x", "g", "a",
    {"float": "nan"}, {"float": "inf"}, {"tuple": []}, {"ref": 0}, {"ref": 3}, {"ref": 9},
)  # fmt: skip


NUMBERS: dict[type, tuple[Any, ...]] = {
    float: (0.0, -1.0, 0.25, 0.5, 1.0, 3.7, 1e6, -1e6, 1e300, 1e-300),
    int: (-1, 0, 1, 2, 3, 5, 100),
}


def mutated(content: str, rng: np.random.Generator) -> str:
    """The file with one or two of its leaves, lists or references made anything else."""
    root = json.loads(content)
    for _ in range(int(rng.integers(1, 3))):
        holder, key = _place(root["body"]["estimate"], rng)
        old = holder[key]
        if type(old) in NUMBERS and rng.random() < 0.9:
            holder[key] = NUMBERS[type(old)][rng.integers(len(NUMBERS[type(old)]))]
        elif isinstance(old, list) and rng.random() < 0.7:
            holder[key] = _another_list(old, rng)
        elif isinstance(old, dict) and "array" in old and rng.random() < 0.5:
            size = int(rng.integers(0, 6))
            holder[key] = {"array": [0.5] * size, "shape": [size], "dtype": "float64"}
        else:
            holder[key] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])
    return json.dumps(root)


def _another_list(old: list[Any], rng: np.random.Generator) -> list[Any]:
    if not old:
        return [1]
    at = int(rng.integers(len(old)))
    value = VALUES[rng.integers(len(VALUES))]
    others = [*old[:at], *old[at + 1 :]], [*old, old[at]], [*old[:at], value, *old[at + 1 :]]
    return others[rng.integers(3)]


def _place(root: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """A holder and a key, functions of rows more often than other parts."""
    fields = root["fields"]
    part = ("nuisances", "effect", "design", "schema", "population", "plan")[
        rng.choice(6, p=[0.35, 0.3, 0.1, 0.1, 0.05, 0.1])
    ]
    places = list(_places(fields, part))
    holder, key = places[rng.integers(len(places))]
    return holder, key


def _places(holder: Any, key: Any) -> Iterator[tuple[Any, Any]]:
    yield holder, key
    value = holder[key]
    if isinstance(value, dict):
        for name in value:
            if name not in ("new", "dtype"):
                yield from _places(value, name)
    elif isinstance(value, list):
        # of a long array some numbers stand for all
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
