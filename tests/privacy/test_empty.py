"""A table of no rows and one of one row are neighbours: they must look alike in every mode."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import pytest

import privcausal as pc
from privcausal import testing
from privcausal.errors import CapabilityError, PrivcausalError

BOUNDS: dict[str, Any] = {"Y": (0, 1), "x": (0, 1), "g": ["a", "b"], "T": [0, 1]}
BINARY = BOUNDS | {"Y": pc.Binary()}
FORMULA = "Y ~ T | x + C(g)"
MISSING = {"Y": np.nan, "T": np.nan, "x": np.nan, "g": None, "pid": "u"}


def table(rows: int) -> pd.DataFrame:
    whole = {
        "Y": np.array([0.0, 1.0, 1.0]), "T": np.array([0.0, 1.0, 0.0]),
        "x": np.array([0.2, 0.9, 0.4]), "g": np.array(["a", "b", "a"], object),
        "pid": np.array(["u", "v", "w"], object),
    }  # fmt: skip
    frame = pd.DataFrame(whole).astype({"g": "str", "pid": "str"})
    return frame.iloc[:rows]


class Middle:
    """A private estimator of the user's own, which learns nothing."""

    guarantee = (1.0, 1e-5)

    def fit(self, x: Any, target: Any, *, bounds: Any, weight: Any) -> Self:
        assert x.shape == (len(target), x.shape[1])
        assert weight is None or weight.shape == target.shape
        self.middle = sum(bounds) / 2
        return self

    def predict(self, x: Any) -> Any:
        return np.full(len(x), self.middle)


def own(transform: Any, **options: Any) -> dict[str, Any]:
    learner = pc.learners.TwoStage(Middle(), Middle(), Middle(), transform=transform, **options)
    return {"formula": "Y ~ T | x", "learner": learner, "call": pc.paper.two_stage}


def less_control(y: Any, _: Any, first: Any) -> Any:
    return y - first["mu0"]


INTERPRET = importlib.util.find_spec("interpret") is not None
SPLITS = ("full", "disjoint", "crossfit")

CALLS: dict[str, dict[str, Any]] = {
    f"{learner} {split}": {"learner": learner, "control": pc.Control(split=split)}
    for learner in ("r", "dr", "s", "t", "x", "private")
    for split in SPLITS
} | {
    "linear": {"learner": "dr", "base": "linear", "groups": ["g", "x >= 0.5"]},
    "ATT": {"learner": "private", "estimand": "ATT"},
    "ATO": {"learner": "private", "estimand": "ATO", "control": pc.Control(split="disjoint")},
    "units": {"learner": "private", "unit": "pid", "max_rows": 2},
    "trial": {"learner": "private", "formula": "Y ~ T", "groups": ["g"]},
    "boosting": {"learner": "s", "base": pc.bases.DPEBM(rounds=10)},
    "kernel": {"learner": "dpcate", "base": pc.bases.Kernel(functions=6)},
    "cells": {"learner": "adum"},
    "clusters": {"learner": pc.learners.ADUM(partition="kmeans", cells=3, rounds=2)},
    "cells as published": {"learner": pc.learners.ADUM(release="count_sum", shrink=False)},
    "cells as printed": {"learner": None, "call": pc.paper.adum},
    "polynomials": {"learner": "tm"},
    "logits as published": {"learner": None, "call": pc.paper.tm, "bounds": BINARY},
    "bounds bought": {"learner": "private", "formula": "Y ~ T | x + g", "bounds": None},
    "own dr": own("dr"),
    "own r": own("r"),
    "own s": own("s"),
    "own function": own(less_control, target_bounds=(-1.0, 1.0)),
}  # fmt: skip
if INTERPRET:
    for learner in ("s", "dr", "r"):
        CALLS[f"interpret {learner}"] = {"learner": learner, "call": pc.paper.dpebm}


def outcome(call: dict[str, Any], rows: Any, folder: Path) -> tuple[Any, ...]:
    """What comes of a call, but for released numbers: its error, or what it hands back."""
    options = {"formula": FORMULA, "bounds": BOUNDS, "eps": 1.0} | call
    learner, formula = options.pop("learner"), options.pop("formula")
    call_of = options.pop("call", pc.private if learner == "private" else pc.privcate)
    if learner not in (None, "private"):
        options["learner"] = learner
    options["neighbors"] = "add_remove"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit: Any = call_of(formula, rows, **options)
    except PrivcausalError as error:
        return type(error).__name__, str(error)
    if isinstance(fit, pc.CateResult):
        found = fit.predict({"x": [0.1, 0.6], "g": ["a", "b"]})
        assert np.isfinite(found["estimate"]).all()
    return "released", fit.guarantee.statement, len(fit.budget), str(fit.plan), saved(fit, folder)


def saved(fit: Any, folder: Path) -> Any:
    """Which parts the fit has as it is saved, or why it is not."""
    try:
        fit.save(folder / "fit.json")
    except CapabilityError as error:
        return str(error)
    parts = vars(pc.load(folder / "fit.json").estimate)
    return {name: type(part).__name__ for name, part in parts.items()}


@pytest.mark.slow
@pytest.mark.sample(11)
@pytest.mark.parametrize("kind", CALLS)
def test_no_rows_look_like_one(kind: str, tmp_path: Path) -> None:
    incomplete = pd.DataFrame([MISSING]).astype(table(1).dtypes.to_dict())
    tables = [table(0), table(1), table(2), table(3), incomplete]
    first, *others = [outcome(CALLS[kind], rows, tmp_path) for rows in tables]
    assert first[0] == ("BudgetError" if kind == "bounds bought" else "released"), first
    for other in others:
        assert other == first


SOURCES: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "parquet": lambda rows, path: rows.to_parquet(path / "rows.parquet") or path / "rows.parquet",
    "csv": lambda rows, path: rows.to_csv(path / "rows.csv", index=False) or path / "rows.csv",
    "polars": lambda rows, _: pytest.importorskip("polars").from_pandas(rows).lazy(),
}


@pytest.mark.slow
@pytest.mark.sample(5)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", ["r full", "trial", "cells", "units"])
def test_no_rows_of_a_source_look_like_one(source: str, kind: str, tmp_path: Path) -> None:
    if (source, kind) == ("polars", "units"):
        pytest.skip("units need rows in one order")
    none, one = (
        outcome(CALLS[kind], SOURCES[source](table(n), tmp_path), tmp_path) for n in (0, 1)
    )
    assert none == one
    assert none[0] == "released"


def test_what_fails_for_any_row_fails_without_one(tmp_path: Path, broken: Any) -> None:
    """A step that no row can pass does not tell that there is a row."""

    class Failing(Middle):
        def fit(self, x: Any, target: Any, *, bounds: Any, weight: Any) -> Self:
            raise PrivcausalError(f"{len(x)} rows")

    call = own("s") | {"learner": pc.learners.TwoStage(Failing(), transform="s")}
    found = [outcome(call, table(n), tmp_path) for n in (0, 1, 2)]
    assert found[0] == found[1] == found[2]
    assert "Failing failed in the stage 'effect: regression'." in found[0][1]
    call = {"learner": "private", "formula": "Y ~ T"}
    with broken("vault.queries.sums.ArmSums.integers", TypeError()):
        found = [outcome(call, table(n), tmp_path) for n in (0, 1, 2)]
    assert found[0] == found[1] == found[2]
    assert "A step on the rows failed" in found[0][1]


@pytest.mark.slow
@pytest.mark.skipif(not INTERPRET, reason="needs interpret")
@pytest.mark.filterwarnings("ignore")
def test_a_published_classifier_learns_a_model_from_any_rows() -> None:
    """Also from none, or one class: in the place of a model with noise a constant would tell."""
    from privcausal.vault.published import PublishedEBM

    def learned(target: Any) -> float:
        # With a smaller epsilon, the noise rounds some probabilities to 0 or 1.
        order = PublishedEBM(30.0, 1e-5, classification=True)
        x = np.full((len(target), 2), 0.3)
        order.fit(x, target, bounds=(0.0, 1.0), weight=np.ones(len(target)))
        return float(order.predict(np.full((1, 2), 0.3))[0])

    for target in (np.zeros(0), np.zeros(1), np.ones(1), np.ones(5), np.array([0.0, 1.0])):
        found = {learned(target) for _ in range(2)}
        assert len(found) == 2
        assert all(0 < value < 1 for value in found)


def test_without_noise_nobody_is_told_twice() -> None:
    """Under test noise an empty table is refused in words of its own: nothing is private then."""
    with testing.zero_noise(), pytest.raises(PrivcausalError, match="No row of the data"):
        pc.private("Y ~ T", table(0), bounds=BOUNDS, neighbors="add_remove")
