"""Neighbours with the same released numbers: all else is the same, work and output included."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

import numpy as np
import pytest
from canaries import PACKAGE, Written, logs_into
from replay_helpers import (
    BOUNDS,
    FORMULA,
    HIGH,
    HUGE,
    LOW,
    MISSING,
    REGRESSIONS,
    Pair,
    aligned,
    cleaning,
    fit,
    hostile,
    ordinary,
)
from test_replay import neighbours

import privcausal as pc

RELATIONS = ("substitute", "add_remove")
SHORT = "Y ~ T | X1 + C(G)"
KERNEL = {"learner": "dpcate", "base": pc.bases.Kernel(functions=10)}
KINDS: dict[str, dict[str, Any]] = {
    "r": {"learner": "r", "base": "linear", "groups": ["G", "X1 >= 0"]},
    "r by gam": {"learner": "r"},
    "dr": {"learner": "dr", "base": "linear", "control": pc.Control(split="crossfit")},
    "s": {"learner": "s", "base": "linear"},
    "t": {"learner": "t", "base": "linear", "control": pc.Control(split="disjoint")},
    "x": {"learner": "x", "base": "linear"},
    "private": {"learner": "private"},
    "ATT": {"learner": "private", "base": "linear", "estimand": "ATT"},
    "ATO": {"learner": "private", "base": "linear", "estimand": "ATO"},
    "difference": {"learner": "private", "formula": "Y ~ T", "groups": ["G"]},
    "regression": REGRESSIONS["regression"],
    "logit": REGRESSIONS["logit"],
    "boosted": {"learner": "s", "base": pc.bases.DPEBM(rounds=10, learning_rate=0.3)},
    "kernel": KERNEL | {"formula": "Y ~ T | X1"},
    "squared": {"learner": "dpcate", "base": pc.bases.Kernel(functions=10, loss="squared")}
    | {"formula": "Y ~ T | X1"},
    "queries": KERNEL
    | {"learner": pc.learners.DPCATE(queries={"X1": np.array([-0.5, 0.5])})}
    | {"formula": "Y ~ T | X1"},
    "cells": {"learner": "adum", "formula": SHORT},
    "clusters": {
        "learner": pc.learners.ADUM(partition="kmeans", cells=3, rounds=2),
        "formula": "Y ~ T | X1 + X2",
    },
    "tm": {"learner": "tm", "formula": SHORT},
}
PAIRS = 4
"""Pairs of each kind and relation, beside those of the replay tests."""


def call(kind: str, relation: str) -> dict[str, Any]:
    return {"formula": FORMULA, "bounds": BOUNDS, "eps": 1.0, "neighbors": relation} | KINDS[kind]


@dataclass(frozen=True)
class Outside:
    """What a stranger sees of a fit, but for its price."""

    result: Any
    error: Any
    warned: tuple[str, ...]
    logged: str
    printed: str
    written: tuple[str, ...]
    work: Counter[str]


def watched(run: Callable[[], Any]) -> Outside:
    stream, said, work = io.StringIO(), io.StringIO(), Counter[str]()

    def count(frame: FrameType, event: str, what: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if module.split(".")[0] != PACKAGE or module in DRAWING:
            return
        if event == "call" and not frame.f_code.co_flags & inspect.CO_GENERATOR:
            # generators are also entered when they are thrown away, whenever that is
            work[f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}"] += 1
        elif event == "c_call":
            caller = f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}"
            work[f"{caller} calls {getattr(what, '__name__', 'something')}"] += 1

    with logs_into(stream), Written() as written, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            sys.setprofile(count)
            try:
                found = run()
            finally:
                sys.setprofile(None)
    warned = tuple(f"{w.category.__name__}: {w.message}" for w in caught) + found.warned
    return Outside(
        found, found.error, warned, stream.getvalue(), said.getvalue(), tuple(written), work
    )


def both(made: dict[str, Any], one: Any, two: Any, *, warm: bool = True) -> tuple[Outside, Outside]:
    """The fit, and its neighbour on the same answers."""
    if warm:
        fit(made, one)  # what is imported or kept on first use is not of these rows
    first = watched(lambda: fit(made, one))
    answers = aligned(Pair("pair", made, one, two), first.result.calls)
    second = watched(lambda: fit(made, two, answers))
    return first, second


def outside(result: Any, folder: Path) -> dict[str, Any]:
    """All that a result offers, as text or bytes; and the names, shapes and types of its frames."""
    found: dict[str, Any] = {}
    result.save(folder / "fit.json")
    found["keys"] = keys(json.loads((folder / "fit.json").read_text()))
    found["bytes"] = (folder / "fit.json").read_bytes()
    for audience in ("technical", "public"):
        result.report(folder / "fit.html", audience)
        found[audience] = (folder / "fit.html").read_bytes()
    summary = result.summary(full=True)
    found |= {"text": str(summary), "LaTeX": summary.as_latex(), "HTML": summary.as_html()}
    found |= {"repr": repr(result), "notebook": result._repr_html_()}
    compared = pc.compare([result], groups=True)
    found |= {"compared": str(compared), "compared LaTeX": compared.as_latex()}
    tables = {"budget": result.budget, "tidy": result.tidy(), "glance": result.glance()}
    for name, table in tables.items():
        found[name] = (list(table.columns), table.shape, list(map(str, table.dtypes)))
        found[f"{name} to the bit"] = table.to_csv(float_format="%.17g")
    found["plan"] = str(result.plan)
    return found


def keys(document: Any) -> Any:
    if isinstance(document, dict):
        return {key: keys(value) for key, value in document.items()}
    if isinstance(document, list):
        return [len(document), *(keys(v) for v in document if isinstance(v, dict | list))]
    return type(document).__name__


def pairs(kind: str, relation: str) -> Iterator[tuple[Any, Any]]:
    rng = np.random.default_rng([sum(map(ord, kind)), len(relation)])
    fixed = [(LOW, HIGH), (HIGH, MISSING), (LOW, HUGE)]
    for number in range(PAIRS):
        old, new = fixed[number] if number < 3 else (hostile(rng), hostile(rng))
        size = int(rng.integers(40, 60))
        yield neighbours(relation, [*ordinary(size, number), old], new)


DRAWING = ("privcausal.testing", "privcausal.vault.noise")
"""The recorder draws for one of the two, and reads for the other."""

LABELS = ("labels", "label_key", "_key", "_number_key", "factorize")
"""Work by distinct label, which is once for each: a new label is one more."""


def constant(work: Counter[str]) -> dict[str, int]:
    """How often everything was called but what reads labels by distinct text."""
    return {
        name: times
        for name, times in work.items()
        if not any(word in name.replace("label_columns", "") for word in LABELS)
        and "distinct.<" not in name
        and "cleaned.<" not in name
        and "passes._libraries" not in name  # once after a module is first imported in a process
    }


ASKED = [
    (kind, relation)
    for kind in KINDS
    for relation in RELATIONS
    if (kind, relation) != ("squared", "add_remove")  # refused: it needs a public number of rows
]


WARMED: set[tuple[str, str]] = set()


@pytest.mark.slow
@pytest.mark.sample(11)
@pytest.mark.parametrize("number", range(PAIRS))
@pytest.mark.parametrize(("kind", "relation"), ASKED)
def test_only_released_numbers_tell_neighbours_apart(
    kind: str, relation: str, number: int, tmp_path: Path
) -> None:
    one, two = list(pairs(kind, relation))[number]
    warm = (kind, relation) not in WARMED
    WARMED.add((kind, relation))
    first, second = both(call(kind, relation), one, two, warm=warm)
    assert first.error == second.error
    assert first.error is None
    assert first.warned == second.warned
    assert (first.logged, first.printed) == (second.logged, second.printed)
    assert first.written == second.written == ()
    assert constant(first.work) == constant(second.work)
    if number == 0:
        seen = outside(first.result.result, tmp_path)
        other = outside(second.result.result, tmp_path)
        for name, content in seen.items():
            assert content == other[name], name


@pytest.mark.slow
def test_a_loop_as_long_as_the_rows_decide_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from privcausal.vault.queries import moments

    one, two = neighbours("substitute", [*ordinary(40, 1), LOW], HIGH)
    kept = moments.Cross.integers
    # counted as one of the package's functions
    half = FunctionType((lambda value: value * 0.9).__code__, {"__name__": f"{PACKAGE}.planted"})

    def until_small(self: Any, batch: Any) -> Any:
        rest = float(np.abs(batch.y).sum())
        while rest > 1e-3:
            rest = half(rest)
        return kept(self, batch)

    monkeypatch.setattr(moments.Cross, "integers", until_small)
    first, second = both(call("r", "substitute"), one, two)
    assert constant(first.work) != constant(second.work)


@pytest.mark.slow
def test_a_log_line_of_a_row_would_be_found() -> None:
    one, two = neighbours("substitute", [*ordinary(40, 1), LOW], HIGH)
    log = logging.getLogger("privcausal")
    with cleaning(lambda values: log.debug("up to %s", values.max())):
        first, second = both(call("r", "substitute"), one, two)
    assert first.logged != second.logged
