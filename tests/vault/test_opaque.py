"""Nothing in the vault can be shown, tested, looped over, copied or stored; no result holds it."""

from __future__ import annotations

import copy
import dataclasses
import gc
import io
import json
import logging
import pickle
import pprint
import reprlib
import types
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

import privcausal as pc
from privcausal.errors import PrivacyBreach
from privcausal.vault.admission import open_source
from privcausal.vault.batch import RawColumn
from privcausal.vault.guard import Opaque

CANARY = 77310.4142
N = 613  # a number of rows that no public array of a fit has


@cache
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    columns = {"Y": np.r_[rng.random(N - 1), CANARY], "T": rng.integers(0, 2, N)}
    return pd.DataFrame(columns | {"X1": rng.random(N), "X2": rng.choice(["a", "b"], N)})


BOUNDS = {"Y": (0, 1), "X1": (0, 1), "X2": ["a", "b"]}


@cache
def sealed_objects() -> dict[str, Any]:
    """One of each sealed class, caught where the package makes it."""
    from vault_helpers import batches, mechanisms, random_rows, study, table

    s = study("substitute")
    vault = s.vault(table(random_rows(9, 0)), s.plan(["s"]))
    vault.release("s", mechanisms(s)["gram"])
    source = open_source(frame())
    column = RawColumn(numbers=np.array([CANARY]))
    return {
        "Vault": vault,
        "Passes": vault._passes,
        "Batch": batches(vault)[0],
        "RawColumn": column,
        "Source": source,
        "Memory": source.rows,
    }


NAMED = (repr, str, ascii, format, bytes, bool, int, float, complex, len, iter, next, list, tuple)
NAMED += (
    sorted,
    max,
    reversed,
    hash,
    dir,
    copy.copy,
    copy.deepcopy,
    np.asarray,
    np.array,
    np.sum,
)
WAYS: dict[str, Callable[[Any], Any]] = {
    **{way.__name__: way for way in NAMED},
    "f-string": lambda v: f"{v}",
    "f-string with !r": lambda v: f"{v!r}",
    "percent": lambda v: "%s" % v,  # noqa: UP031
    "if": lambda v: 1 if v else 0,
    "not": lambda v: not v,
    "index": lambda v: [0, 1][v],
    "unpacking": lambda v: [*v],
    "getitem": lambda v: v[0],
    "in": lambda v: CANARY in v,
    "set": lambda v: {v},
    "dict key": lambda v: {v: 0},
    "==": lambda v: v == v,
    "== another": lambda v: v == 0,
    "!=": lambda v: v != 0,
    "<": lambda v: v < 0,
    ">=": lambda v: v >= 0,
    "in a list": lambda v: 0 in [v],
    **{
        f"pickle {p}": lambda v, p=p: pickle.dumps(v, p) for p in range(pickle.HIGHEST_PROTOCOL + 1)
    },
    "json as text": lambda v: json.dumps(v, default=str),
    "json of a repr": lambda v: json.dumps({"v": v}, default=repr),
    "pprint": pprint.pformat,
    "print": lambda v: print(v, file=io.StringIO()),
    "a list's repr": lambda v: repr([v]),
    "a frame": lambda v: str(pd.DataFrame({"v": [v]}, dtype=object)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["Vault", "Batch", "RawColumn", "Source", "Memory"])
def test_every_way_of_looking_is_refused(kind: str, way: str) -> None:
    sealed = sealed_objects()[kind]
    with pytest.raises(PrivacyBreach) as caught:
        WAYS[way](sealed)
    assert "77310" not in str(caught.value)
    assert kind in str(caught.value)


def classes(of: type = Opaque) -> Iterator[type]:
    for own in of.__subclasses__():
        yield from (own, *classes(own))


def test_all_sealed_classes_refuse_in_one_way() -> None:
    """Sums, marks, tables on Spark and what was fitted as well: none has a look of its own."""
    refuse, names = Opaque.__repr__, {each.__name__ for each in classes()}
    ways = [name for name, way in vars(Opaque).items() if way is refuse]
    assert names >= {"ExactSum", "FittedEstimators", "Marks", "Stored", "Spark", "KernelProblem"}
    assert len(ways) >= 30
    assert not [(each, way) for each in classes() for way in ways if getattr(each, way) != refuse]


@pytest.mark.parametrize("kind", list(sealed_objects()))
def test_json_and_asdict_are_refused(kind: str) -> None:
    sealed = sealed_objects()[kind]
    with pytest.raises(TypeError):
        json.dumps(sealed)
    with pytest.raises(TypeError):
        dataclasses.asdict(sealed) if kind == "Source" else pickle.dumps({"v": [sealed]})
    assert "77310" not in reprlib.repr({"v": object}) + object.__repr__(sealed)


def test_a_log_line_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    logger, handler = logging.getLogger("sealed"), logging.StreamHandler(stream)
    logger.propagate = False  # pytest's own handler would raise
    logger.addHandler(handler)
    for sealed in sealed_objects().values():
        logger.warning("%s", sealed)  # logging prints the error of the failed format
    logger.removeHandler(handler)
    shown = stream.getvalue() + "".join(capsys.readouterr())
    assert "PrivacyBreach" in shown
    assert "77310" not in shown


def test_rows_of_covariates_do_not_print() -> None:
    """`Rows` holds public points too, so it is not sealed; but its repr shows no value."""
    batch = sealed_objects()["Batch"]
    assert repr(batch.rows).startswith("Rows(size=")
    assert "array" not in repr(batch.rows)


# -- results ---------------------------------------------------------------------------------

_LEAVES = (type, types.ModuleType, types.BuiltinFunctionType, str, bytes, int, float, complex)


def reachable(start: Any) -> Iterator[tuple[str, Any]]:
    """Everything a value leads to by any reference, with the path; no code and no modules."""
    seen: set[int] = set()
    stack = [("result", start)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, _LEAVES) or id(value) in seen:
            continue
        seen.add(id(value))
        yield path, value
        if isinstance(value, types.FunctionType):
            # not its globals: they are the module's
            parts = [*(value.__closure__ or ()), *(value.__defaults__ or ())]
        elif isinstance(value, np.ndarray):
            parts = [value.base, *(value.ravel() if value.dtype == object else ())]
        else:
            parts = gc.get_referents(value)
        stack += [(f"{path}.{type(value).__name__}", part) for part in parts]


def private_parts(result: Any) -> list[str]:
    """Paths in a result that lead to sealed values or to anything with a line per row."""
    return [path for path, value in reachable(result) if isinstance(value, Opaque) or long(value)]


def long(value: Any) -> bool:
    """Whether some side of it has the number of rows."""
    if isinstance(value, np.ndarray | pd.DataFrame | pd.Series | pd.Index):
        return N in value.shape
    return isinstance(value, list | tuple | dict | set) and len(value) == N


@pytest.mark.slow
@pytest.mark.sample(5)
@pytest.mark.parametrize("learner", ["r", "dr", "s", "t", "x", "private"])
@pytest.mark.parametrize("split", ["full", "disjoint", "crossfit"])
def test_no_result_leads_to_a_row(learner: str, split: str) -> None:
    options: dict[str, Any] = {"bounds": BOUNDS, "groups": ["X2"]}
    options["control"] = pc.Control(split=split)
    formula = "Y ~ T | X1 + X2"
    if learner == "private":
        result: Any = pc.private(formula, frame(), **options)
    else:
        result = pc.privcate(formula, frame(), learner=learner, **options)
        result.predict(frame())  # predicting keeps nothing either
        assert result.nuisances["propensity"](frame()) is not None
    str(result)
    assert private_parts(result) == []
    kinds = {type(value).__name__ for _, value in reachable(result)}  # it did look
    assert kinds >= {"Design", "ModelSpec", "Population", "Release", "FeatureMap", "ndarray"}


@pytest.mark.parametrize("kind", list(sealed_objects()))
def test_a_planted_row_would_be_found(kind: str) -> None:
    result = pc.private("Y ~ T | X1", frame(), bounds=BOUNDS)
    secret = sealed_objects()[kind]
    object.__setattr__(result.estimate.design, "left", lambda: secret)
    assert private_parts(result)
    object.__setattr__(result.estimate.design, "left", {"x": [frame()["X1"].to_numpy()[:]]})
    assert private_parts(result)
