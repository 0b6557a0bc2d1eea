"""A fault, which quotes the canary, in each function that runs behind the vault's guard."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from canaries import LABEL, NUMBER, PACKAGE, assert_clean, behind, faults, found_in, told
from fit_helpers import private, refused

import privcausal as pc
from privcausal import testing
from privcausal.errors import PrivcausalError
from privcausal.vault import admission, guard, noise

N = 96
GUARD = next(c for c in guard._guard.__code__.co_consts if isinstance(c, CodeType))
"""The code of the wrapper that every step on rows runs in."""

FORMULA = "Y ~ T | X1 + C(X2)"
BOUNDS: dict[str, Any] = {"Y": (-1, 3), "X1": (0, 1), "X2": ["a", "b"], "T": [0, 1]}


@cache
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    columns = {"Y": rng.random(N), "T": rng.integers(0, 2, N).astype(float), "X1": rng.random(N)}
    columns |= {"X2": rng.choice(["a", "b"], N), "P": rng.uniform(0.3, 0.7, N)}
    frame = pd.DataFrame(columns | {"pid": [f"id{i // 2}" for i in range(N)]})
    frame.loc[17, ["Y", "X1", "P"]] = NUMBER
    frame.loc[17, ["X2", "pid"]] = LABEL
    return frame


TABLE = {"cell": ["a", "a", "b", "b"], "arm": [0, 1, 0, 1], "count": [9.0] * 4, "sum": [1.5] * 4}

Call = Callable[[Any], Any]


def fit_by(call: Any, formula: str = FORMULA, **options: Any) -> Call:
    made = {"bounds": BOUNDS, "base": "linear"} | options
    return lambda ledger: call(formula, rows(), ledger=ledger, **made)


cate, ate = partial(fit_by, pc.privcate), partial(fit_by, pc.private)


def stored(kind: str) -> Call:
    """The same rows from a file or a relation, which are read while the fit runs."""

    def run(ledger: Any) -> Any:
        return pc.privcate("Y ~ T | X1", files(kind), learner="adum", bounds=BOUNDS, ledger=ledger)

    return run


@cache
def files(kind: str) -> Any:
    import tempfile

    import duckdb

    folder = tempfile.TemporaryDirectory(prefix="faults")
    _KEPT.append(folder)
    place = Path(folder.name) / f"rows.{kind}"
    if kind == "relation":
        connection = duckdb.connect()
        connection.register("rows", rows())
        _KEPT.append(connection)
        return connection.sql("SELECT * FROM rows")
    rows().to_parquet(place) if kind == "parquet" else rows().to_csv(place, index=False)
    return place


_KEPT: list[Any] = []


@cache
def fitted(kind: str) -> Any:
    with testing.seeded_noise(1):
        return CALLS[kind](None)


def look(kind: str, name: str) -> Call:
    """A look at the rows by a fit, whose price is charged too; its noise is real."""
    return lambda ledger: getattr(real(kind), name)(rows(), eps=1.0, ledger=ledger)


@cache
def real(kind: str) -> Any:
    return CALLS[kind](None)


CALLS: dict[str, Call] = {
    "r": cate(
        unit="pid", max_rows=2, control=pc.Control(split="disjoint"), groups=["X2", "X1 >= 0.5"]
    ),
    "dr": cate(
        learner="dr", neighbors="add_remove",
        control=pc.Control(split="crossfit", cov_type="HC0"),
    ),
    "s": cate(learner="s"),
    "t": cate(learner="t"),
    "x": cate(learner="x", propensity="P", bounds=BOUNDS | {"P": (0.3, 0.7)}),
    "bought": cate(bounds=None, eps=60.0, control=pc.Control(shares={"bounds": 0.5})),
    "private": ate(base="gam"),
    "ATT": ate(estimand="ATT"),
    "ATO": ate(estimand="ATO"),
    "difference": ate("Y ~ T", groups=["X2"]),
    "boosted": cate(learner="r", base=pc.bases.DPEBM(rounds=10, learning_rate=0.3)),
    "cells": cate("Y ~ T | X1", learner="adum"),
    "clusters": cate(
        "Y ~ T | X1", learner=pc.learners.ADUM(partition="kmeans", cells=3, rounds=2)
    ),
    "tm": cate("Y ~ T | X1", learner="tm"),
    "kernel": cate("Y ~ T | X1", learner="dpcate", base=pc.bases.Kernel(functions=10)),
    "squared": cate(
        "Y ~ T | X1", learner="dpcate", base=pc.bases.Kernel(functions=10, loss="squared")
    ),
    "queries": cate(
        "Y ~ T | X1", base="kernel", learner=pc.learners.DPCATE(queries={"X1": np.array([0.5])})
    ),
    "Parquet": stored("parquet"),
    "CSV": stored("csv"),
    "relation": stored("relation"),
    "from_cells": lambda ledger: pc.from_cells(pd.DataFrame(TABLE), ["a", "b"], ledger=ledger),
    "overlap": look("dr", "overlap"),
    "balance": look("dr", "balance"),
    "uplift": look("cells", "uplift"),
    "published": lambda ledger: pc.paper.private(
        FORMULA, rows(), base=pc.bases.Sklearn.kernel(), bounds=BOUNDS,
        below_minimum="published", shares={"effect": 0.5, "variance": 0.5}, ledger=ledger,
    ),
}  # fmt: skip

LEAST = 250
"""Functions that run behind the guard in these calls together."""


class Steps:
    """Which of the package's functions run behind the guard within the block."""

    def __init__(self) -> None:
        self.codes: dict[CodeType, str] = {}
        self.depth = 0

    def _seen(self, frame: FrameType, event: str, _: Any) -> None:
        if frame.f_code is GUARD:
            self.depth += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and self.depth:
            self._behind(frame)

    def _behind(self, frame: FrameType) -> None:
        if frame.f_globals.get("__name__", "").split(".")[0] == PACKAGE:
            name = f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}"
            self.codes.setdefault(frame.f_code, name)

    def __enter__(self) -> Steps:
        noise._sampler.cache_clear()  # samplers are kept by scale
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


class Fault(Steps):
    """Raises when `target` is called behind the guard for the first time."""

    def __init__(self, target: CodeType, error: BaseException) -> None:
        super().__init__()
        self.target, self.error, self.raised = target, error, False

    def _behind(self, frame: FrameType) -> None:
        if frame.f_code is self.target and not self.raised:
            self.raised = True
            raise self.error


@cache
def steps(*kinds: str) -> dict[str, dict[str, CodeType]]:
    """The functions of each call that none before has run, by name; of statistics a third."""
    found: dict[str, dict[str, CodeType]] = {}
    before: set[CodeType] = set()
    for kind, call in list(CALLS.items())[: len(kinds) or None]:
        if kind in ("overlap", "balance", "uplift"):
            real("cells" if kind == "uplift" else "dr")
        with Steps() as seen:
            call(None)
        new = [(code, name) for code, name in seen.codes.items() if code not in before]
        found[kind] = {
            f"{name} at {code.co_firstlineno}": code
            for number, (code, name) in enumerate(new)
            if number % 3 == 0 or "inference" not in Path(code.co_filename).parts
        }
        before |= set(seen.codes)
    return found


PARTS = 6
"""Each call's steps are planted in so many tests."""


@pytest.mark.sample(11)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.slow
def test_a_fault_at_every_step_shows_nothing(kind: str, part: int, tmp_path: Path) -> None:
    kept, swallowed = [], []
    declared = pc.DataError("in constant words")  # raised while another error was handled
    declared.__context__, declared.__cause__ = KeyError(LABEL), ValueError(str(NUMBER))
    kinds, planted_in = [*faults(N), declared], list(enumerate(steps()[kind].items()))[part::PARTS]
    for number, (step, code) in planted_in:
        ledger = pc.Ledger(tmp_path / f"{number}.db", "study", eps=60, allow_published=True)
        fault = kinds[number % len(kinds)]
        try:
            with Fault(code, fault) as planted:
                CALLS[kind](ledger)
            error: BaseException | None = None
        except PrivcausalError as caught:
            error = caught
        if not planted.raised:
            kept.append(step)  # its answer is, from the call before
        elif error is None:
            swallowed.append(step)  # read as a missing value, say
        else:
            assert_clean(error, step)
            assert str(N) not in str(error), step
            assert list(behind(error)) == [error], step
        assert ledger.fits in (0, 1), step
        assert "is intact" in ledger.verify()
    assert len(kept) + len(swallowed) <= 0.25 * len(planted_in) + 2, (kept, swallowed)


@pytest.mark.parametrize(
    ("kinds", "least"), [(("r",), 100), pytest.param((), LEAST, marks=pytest.mark.slow)]
)
def test_there_are_many_steps(kinds: tuple[str, ...], least: int) -> None:
    found = steps(*kinds)
    assert sum(map(len, found.values())) >= least
    names = " ".join(name for of in found.values() for name in of)
    for part in ("vault.queries", "vault.sources", "vault.transforms", "vault.batch", "noise"):
        assert part in names


def test_a_step_without_the_guard_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check is not idle: with the guard gone the canary comes through."""
    code = next(c for n, c in steps("r")["r"].items() if "Memory.__init__" in n)

    def bare(data: Any) -> Any:
        return admission.Source(admission.memory.Memory(data))

    monkeypatch.setattr("privcausal.api.open_source", bare)
    with pytest.raises(ValueError, match=LABEL):
        _unguarded(code)


def _unguarded(target: CodeType) -> None:
    def seen(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is target:
            raise ValueError(LABEL)

    sys.setprofile(seen)
    try:
        CALLS["r"](None)
    finally:
        sys.setprofile(None)


def test_an_interrupt_goes_through(charged: pc.Ledger) -> None:
    """Whoever stops a fit stops it; what was charged stays charged, and nothing came out."""
    code = next(c for n, c in steps("r")["r"].items() if "RowProducts.integers" in n)
    with pytest.raises(KeyboardInterrupt), Fault(code, KeyboardInterrupt()):
        CALLS["r"](charged)
    assert charged.fits == 1


# -- what the caller set up beforehand ---------------------------------------------------------


EXTREME = (1e308, -1e308, 5e-324, np.inf, -np.inf, -0.0, 1e300)


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize("learner", ["private", "r", "dr", "x", "adum", "tm", "dpcate"])
def test_numpy_told_to_raise_does_not_tell_of_a_row(learner: str) -> None:
    """A value at the end of floats is cut as any other, whatever `numpy.seterr` asks for."""
    base: Any = pc.bases.Kernel(functions=10) if learner == "dpcate" else "linear"
    for value in EXTREME:
        data = rows().astype({"X2": object})
        data.loc[3, ["X1", "P"]] = value
        data.loc[4, "Y"] = value
        call = pc.private if learner == "private" else partial(pc.privcate, learner=learner)
        with np.errstate(all="raise"):
            fit = call(FORMULA, data, bounds=BOUNDS, base=base)
        assert fit.guarantee.kind == "proven"


class Hooked(np.ndarray):
    """An array whose arithmetic and indexing quote the canary."""

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        raise ValueError(LABEL)

    def __array_function__(self, *_: Any, **__: Any) -> Any:
        raise ValueError(str(NUMBER))

    def __getitem__(self, _: Any) -> Any:
        raise KeyError(NUMBER)

    def __repr__(self) -> str:
        return LABEL


def test_arrays_with_hooks_are_read_as_plain_ones() -> None:
    plain = {name: column.to_numpy() for name, column in rows().items()}
    hooked = plain | {name: plain[name].view(Hooked) for name in ("Y", "X1", "T")}
    made = {"bounds": BOUNDS, "base": "linear"}
    one, two = (private(FORMULA, data, **made, seed=1) for data in (plain, hooked))
    assert str(one.summary(full=True)) == str(two.summary(full=True))


def test_a_frame_whose_columns_cannot_be_read_is_refused_in_constant_words() -> None:
    class Talking(pd.DataFrame):
        def __getitem__(self, _: Any) -> Any:
            raise ValueError(f"{NUMBER} {LABEL}")

    with refused(PrivcausalError, ".") as caught:
        pc.private(FORMULA, Talking(rows()), bounds=BOUNDS, base="linear")
    assert found_in(told(caught.value)) == []


def test_what_hangs_on_a_frame_is_left_behind() -> None:
    """Attributes, names of axes, and categories that no row has."""
    data = rows()
    data = data.assign(X2=pd.Categorical(data["X2"], categories=["a", "b", LABEL]))
    data.attrs["note"] = LABEL
    data.index.name = data.columns.name = LABEL
    fit = pc.private(FORMULA, data, bounds=BOUNDS, base="linear")
    outputs = (repr(fit), str(fit.summary(full=True)), fit.summary().as_html())
    assert not [text for text in outputs if LABEL in text]
    assert LABEL.encode() not in pickle.dumps(fit)


@pytest.mark.parametrize("fault", [MemoryError(f"{NUMBER}"), ValueError(f"{LABEL}")])
def test_a_fault_beside_the_rows_after_the_charge_is_told_in_constant_words(
    fault: Exception, broken: Any, charged: pc.Ledger
) -> None:
    """As where post-processing of releases finds no memory."""
    words = "(?s)from the released numbers failed.*Any budget already charged stays spent"
    with broken("estimators.base.finish", fault), refused(PrivcausalError, words, NUMBER, LABEL):
        ate()(charged)
    assert charged.fits == 1


def test_an_interruption_after_the_charge_passes(broken: Any) -> None:
    stopped = broken("estimators.base.finish", KeyboardInterrupt())
    with stopped, pytest.raises(KeyboardInterrupt, match="stays spent"):
        ate()(None)


def test_more_groups_than_fit_are_refused_before_the_charge(unspent: pc.Ledger) -> None:
    labels = [f"g{i}" for i in range(2001)]
    several = {"estimand": ["ATE", "ATT"], "groups": [f"X2 == {g}" for g in labels[:1001]]}
    for options in ({"groups": ["X2"]}, several):
        with pytest.raises(PrivcausalError, match="maximum is 2,000 in total"):
            ate("Y ~ T | X1", bounds={**BOUNDS, "X2": labels}, **options)(unspent)
