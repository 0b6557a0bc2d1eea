"""Neighbouring tables, and a fit played again on the neighbour with the first one's answers."""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_helpers import replayed

import privcausal as pc
from privcausal import testing
from privcausal.accounting import PICO
from privcausal.errors import PrivcausalError
from privcausal.features.design import Design
from privcausal.request.schema import label_key
from privcausal.testing import Call

ROUNDING = 1 + 2.0**-40
"""The vault raises every noise scale by this, for the rounding of the floats behind it."""

WHO = "whose row"
"""A column that no source has: which rows are of one unit, where the unit's own may hide it."""

NEVER = -(2**60)
"""A noisy count that passes no threshold."""


@contextmanager
def cleaning(tell: Callable[[Any], None]) -> Iterator[None]:
    """A planted fault: within this block `tell` sees the values of every column of rows."""
    module = sys.modules["privcausal.vault.batch"]
    clean = module.cleaned

    def telling(column: Any, domain: Any) -> Any:
        values, present = clean(column, domain)
        tell(values[present])
        return values, present

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "cleaned", telling)
        yield


@dataclass(frozen=True)
class Fit:
    """One fit with recorded answers: what it asked, what came of it, what was seen outside."""

    calls: tuple[Call, ...]
    result: Any
    error: tuple[str, str] | None
    warned: tuple[str, ...]

    @property
    def saved(self) -> bytes:
        """The saved file."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "fit.json"
            self.result.save(path)
            return path.read_bytes()

    @property
    def document(self) -> bytes:
        """Everything that is released, and every number and text computed from it."""
        return self.saved + json.dumps(plain(self.result.estimate)).encode()


def plain(value: Any) -> Any:
    """All parts of a value, to the last bit."""
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.shape, value.tolist()]
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list | frozenset):
        return [plain(one) for one in value]
    if isinstance(value, Design):
        return plain((value.terms, value.schema))
    return value if isinstance(value, str | int | float | None) else repr(value)


def fit(
    call: dict[str, Any], data: Any, frozen: Sequence[Call] | None = None, *, system: bool = False
) -> Fit:
    """Run `call` on `data` with a recorder; with `frozen`, answered from another table's fit."""
    recording = testing.recorded(11, frozen, system=system)
    options = {k: v for k, v in call.items() if k not in ("formula", "learner")}
    learner = call["learner"]
    result, error = None, None
    with warnings.catch_warnings(record=True) as caught, recording as recorder:
        warnings.simplefilter("always")
        try:
            if learner in ("private", "regress", "logit", "poisson", "did"):
                result = getattr(pc, learner)(call["formula"], data, **options)
            else:
                result = pc.privcate(call["formula"], data, learner=learner, **options)
        except PrivcausalError as problem:
            error = type(problem).__name__, str(problem)
    warned = tuple(f"{w.category.__name__}: {w.message}" for w in caught)
    return Fit(tuple(recorder.calls), result, error, warned)


@dataclass(frozen=True, eq=False)
class Pair:
    """Two neighbouring tables and the call made on both. `call` holds keyword arguments."""

    name: str
    call: dict[str, Any]
    one: Any
    two: Any
    text: tuple[str, ...] = ()
    """Text columns whose levels are bought."""
    held: Callable[[Any], Any] = field(default=lambda table: table)
    """From a table to the source that is fitted."""


def selected(pair: Pair, data: Any, column: str) -> list[str]:
    """Labels of the rows that count, as the vault tries them."""
    cells = list(data[column])
    unit = pair.call.get("unit")
    if unit is not None:
        met: Counter[Any] = Counter()
        kept = []
        units = data[WHO] if WHO in data else map(label_key, data[unit])
        for name, value in zip(units, cells, strict=True):
            met[name] += 1
            if name is not None and met[name] <= pair.call.get("max_rows", 1):
                kept.append(value)
        cells = kept
    return sorted({key for v in cells if (key := label_key(v)) is not None})


def aligned(pair: Pair, calls: Sequence[Call]) -> list[Call]:
    """The first table's answers, where levels are bought by label: others never pass."""
    out = []
    for call in calls:
        if call.query.name.startswith("levels of "):
            column = call.query.name.removeprefix("levels of ")
            of_one, of_two = (selected(pair, d, column) for d in (pair.one, pair.two))
            assert len(of_one) == len(call.noisy)
            answers = dict(zip(of_one, call.noisy.tolist(), strict=True))
            noisy = np.array([answers.get(label, NEVER) for label in of_two], call.noisy.dtype)
            call = replace(call, noisy=noisy)  # noqa: PLW2901
        out.append(call)
    return out


def change(pair: Pair, one: Call, two: Call) -> float:
    """Weighted distance of two exact answers; of the labels both tables have, where bought."""
    before, after, weights = one.exact, two.exact, one.query.weights
    if one.query.name.startswith("levels of "):
        column = one.query.name.removeprefix("levels of ")
        a, b = (selected(pair, d, column) for d in (pair.one, pair.two))
        most = pair.call.get("max_rows", 1)
        for own, other, call in ((a, b, one), (b, a, two)):
            # labels of one table only come from one unit: few, rare, and delta pays for them
            alone = [i for i, label in enumerate(own) if label not in other]
            assert len(alone) <= most
            assert all(call.exact[i] <= most for i in alone)
        common = [label for label in a if label in b]
        before = before[[a.index(label) for label in common]] if common else before[:0]
        after = after[[b.index(label) for label in common]] if common else after[:0]
        weights = np.ones(len(common))
    order = 1 if one.query.law == "laplace" else 2
    return float(np.linalg.norm((before - after).astype(float) * weights, order))


@dataclass
class Report:
    """How much of its budget a pair used, for tests that a bound is not idle."""

    fit: Fit
    share: float = 0.0
    reached: dict[str, float] = field(default_factory=dict)

    @property
    def error(self) -> str | None:
        return None if self.fit.error is None else self.fit.error[0]


def check(
    pair: Pair, *, texts: bool = False, first: Fit | None = None, refusable: bool = False
) -> Report:
    """Replay `pair` (with `texts`, printed ones too); AssertionError where the fits depart."""
    one = fit(pair.call, pair.held(pair.one)) if first is None else first
    two = fit(pair.call, pair.held(pair.two), aligned(pair, one.calls))
    report = Report(one)
    assert refusable or one.error is None or one.error[0] != "BudgetError", one.error
    assert (one.error, len(one.calls)) == (two.error, len(two.calls)), pair.name
    loss = pure = 0.0
    for a, b in zip(one.calls, two.calls, strict=True):
        assert a.query.name == b.query.name
        assert a.query.scale == b.query.scale
        assert a.query.sensitivity == b.query.sensitivity
        if not a.query.name.startswith("levels of "):
            assert np.array_equal(a.query.weights, b.query.weights)
        moved = change(pair, a, b)
        assert moved <= a.query.sensitivity * ROUNDING, (pair.name, a.query.name)
        assert a.query.law == b.query.law
        if a.query.law == "laplace":
            pure += moved / a.query.scale
        else:
            loss += (moved / a.query.scale) ** 2 / 2
        report.reached[a.query.name] = moved / a.query.sensitivity
    assert one.error == two.error, pair.name
    assert one.warned == two.warned, pair.name
    if one.result is not None:
        plan = one.result.estimate.plan
        assert loss * PICO <= plan.rho, pair.name
        assert pure * PICO <= plan.epsilon, pair.name
        report.share = loss * PICO / plan.rho if plan.rho else pure * PICO / plan.epsilon
        assert one.document == two.document, pair.name  # not a byte of what is released differs
        if texts:
            assert_same_texts(one.result, two.result)
    return report


def moved_by(run: Callable[[Any], Any], one: Any, two: Any, order: int = 1) -> tuple[Call, float]:
    """Of the one release of `run`, and how far it moves between tables that it reads alike."""
    before, after, ((a, b),) = replayed(run, one, two, 3)
    assert (a.query.name, a.query.scale) == (b.query.name, b.query.scale)
    assert str(before) == str(after)
    moved = float(np.linalg.norm((a.exact - b.exact) * a.query.weights, order))
    assert moved <= a.query.sensitivity * ROUNDING
    return a, moved


def same_look(pair: Pair, fitted: Fit, look: str) -> None:
    """A priced look through the first fit at both tables; AssertionError if they differ."""
    seen = []
    for table in (pair.one, pair.two):
        frozen = seen[0][0] if seen else None
        with testing.recorded(12, frozen) as recorder:
            try:
                told = str(getattr(fitted.result, look)(pair.held(table), eps=1.0))
            except PrivcausalError as problem:
                told = f"{type(problem).__name__}: {problem}"
        seen.append((tuple(recorder.calls), told))
    (before, one), (after, two) = seen
    assert (one, len(before)) == (two, len(after)), pair.name
    for a, b in zip(before, after, strict=True):
        assert a.query.name == b.query.name
        assert a.query.scale == b.query.scale
        assert change(pair, a, b) <= a.query.sensitivity * ROUNDING, (pair.name, a.query.name)


def assert_same_texts(one: Any, two: Any) -> None:
    assert one.budget.equals(two.budget)
    # a cost that is absent is NaN, which Python 3.13 compares by value, also in a dataclass
    assert repr(one.guarantee) == repr(two.guarantee)
    assert one.glance().equals(two.glance())
    assert str(one.summary()) == str(two.summary())
    assert repr(one) == repr(two)
    assert str(one.plan) == str(two.plan)


# -- tables ----------------------------------------------------------------------------------

FORMULA = "Y ~ T | X1 + C(G) | X2"
BOUNDS: dict[str, Any] = {"Y": (-2, 3), "X1": (-1, 1), "X2": (0, 10), "G": ["a", "b", "c"]}
REGRESSIONS: dict[str, dict[str, Any]] = {
    "regression": {"learner": "regress", "control": pc.Control(cov_type="HC0")}
    | {"formula": "Y ~ X1 + C(G)"},
    "logit": {"learner": "logit", "formula": "T ~ X1 + C(G)", "eps": 100.0}
    | {"bounds": BOUNDS | {"T": [0, 1]}},
    "poisson": {"learner": "poisson", "formula": "Y ~ X1 + C(G)", "eps": 100.0}
    | {"bounds": BOUNDS | {"Y": (0, 4)}},
}
ROW: dict[str, Any] = {"Y": 0.5, "T": 1.0, "X1": 0.0, "X2": 5.0, "G": "a", "P": 0.4}
LOW: dict[str, Any] = {"Y": -2.0, "T": 0.0, "X1": -1.0, "X2": 0.0, "G": "a", "P": 0.2}
HIGH: dict[str, Any] = {"Y": 3.0, "T": 1.0, "X1": 1.0, "X2": 10.0, "G": "c", "P": 0.7}
INSIDE: dict[str, Any] = {"X1": 0.0, "X2": 5.0, "G": "a"}
"""Covariates with which a row has its full weight."""
MISSING: dict[str, Any] = dict.fromkeys(ROW, np.nan) | {"G": None}
HUGE: dict[str, Any] = {"Y": 1e308, "T": 1.0, "X1": -np.inf, "X2": 77310.4142, "G": "z", "P": 9.0}

_EXTREME = [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 77310.4142]


def ordinary(n: int, seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [
        {
            "Y": float(rng.normal(0.5, 1.0)),
            "T": float(rng.integers(2)),
            "X1": float(rng.uniform(-1, 1)),
            "X2": float(rng.uniform(0, 10)),
            "G": str(rng.choice(["a", "b", "c"])),
            "P": float(rng.uniform(0.2, 0.7)),
        }
        for _ in range(n)
    ]


def hostile(rng: np.random.Generator) -> dict[str, Any]:
    """A row of corner values, with now and then something that is no value at all."""
    row = {name: (LOW, HIGH)[rng.integers(2)][name] for name in ROW}
    for name in ("Y", "T", "X1", "X2", "P"):
        if rng.random() < 0.15:
            row[name] = float(rng.choice(_EXTREME))
    if rng.random() < 0.2:
        row["G"] = rng.choice(["z", "b", None])
    return row


def frame(rows: Sequence[dict[str, Any]], **columns: Any) -> pd.DataFrame:
    names = list(ROW)
    made = pd.DataFrame({name: [row[name] for row in rows] for name in names})
    numbers = made.columns.drop("G")
    made[numbers] = made[numbers].astype(float)
    made["G"] = made["G"].astype("str") if len(made) else pd.Series([], dtype="str")
    return made.assign(**columns)
