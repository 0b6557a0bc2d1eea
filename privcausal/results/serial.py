"""Versioned JSON of a fit: released numbers and public declarations only, never pickle.

Only the frozen classes listed in `CLASSES` are written or read, so a file can hold no code.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from privcausal.accounting import Charge, Cost, Release
from privcausal.errors import DataError
from privcausal.inference.effect import Effect, Piece
from privcausal.inference.population import Population
from privcausal.inference.average import AverageEstimate
from privcausal.learners.estimate import Estimate, Nuisances
from privcausal.spec.features import Block, Design, FeatureMap
from privcausal.spec.formula import CausalFormula, Factor, Term
from privcausal.spec.functions import (
    Additive,
    ArmMean,
    Constant,
    Difference,
    Known,
    Mixture,
)
from privcausal.spec.plan import Plan, Stage
from privcausal.spec.request import Budget, Request, Trust
from privcausal.spec.schema import Schema

FORMAT, VERSION = "privcausal fit", 1

CLASSES: dict[str, type] = {
    c.__name__: c
    for c in (
        Additive, ArmMean, AverageEstimate, Block, Budget, CausalFormula, Charge, Constant, Cost,
        Difference, Effect, Estimate, Factor, FeatureMap, Known, Mixture, Nuisances, Piece, Plan,
        Population, Release, Request, Stage, Term, Trust,
    )
}  # fmt: skip


def save(kind: str, content: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write `content` as JSON of this format; the same content gives the same bytes."""
    writer = _Writer()
    body = {name: writer.encode(value) for name, value in content.items()}
    document = {"format": FORMAT, "version": VERSION, "kind": kind, "body": body}
    Path(path).write_text(json.dumps(document, allow_nan=False), encoding="utf-8")


def load(path: str | os.PathLike[str]) -> tuple[str, dict[str, Any]]:
    """Kind and content of a saved fit.

    Raises
    ------
    DataError
        The file is missing, is no fit of this package, or comes from a newer version.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        document = None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise DataError(f"{os.fspath(path)!r} is not a fit saved by privcausal")
    if document.get("version") != VERSION:
        raise DataError(f"{os.fspath(path)!r} was saved by another version of privcausal")
    try:
        reader = _Reader()
        content = {name: reader.decode(value) for name, value in document["body"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        content = {}
    if not content:
        raise DataError(f"{os.fspath(path)!r} is damaged")
    return str(document["kind"]), content


class _Writer:
    """Encodes values as JSON; a class instance met again becomes a reference to the first."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # references keep ids from being used again

    def encode(self, value: Any) -> Any:
        if value is None or isinstance(value, str | bool):
            return value
        if isinstance(value, int | np.integer):
            return int(value)
        if isinstance(value, float | np.floating):
            return _plain(float(value))
        if isinstance(value, np.ndarray):
            return {"array": _flat(value), "shape": list(value.shape), "dtype": str(value.dtype)}
        if isinstance(value, tuple | list):
            return {"tuple": [self.encode(v) for v in value]}
        if isinstance(value, Mapping):
            return {"map": [[self.encode(k), self.encode(v)] for k, v in value.items()]}
        return self._instance(value)

    def _instance(self, value: Any) -> Any:
        if id(value) in self._seen:
            return {"ref": self._seen[id(value)]}
        fields = self._fields(value)
        number = self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return {"new": number, "class": type(value).__name__, "fields": fields}

    def _fields(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Schema):
            return value.to_dict()
        if isinstance(value, Design):
            return {
                "terms": self.encode(value.asked),
                "schema": self.encode(value.schema),
                "full_rank": value.full_rank,
            }
        if type(value).__name__ not in CLASSES:
            raise TypeError(f"{type(value).__name__} cannot be saved")
        return {f.name: self.encode(getattr(value, f.name)) for f in dataclasses.fields(value)}


class _Reader:
    """Rebuilds what `_Writer` wrote."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}

    def decode(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        (tag, handler), *_ = [(t, h) for t, h in _TAGS.items() if t in value]
        return handler(self, value)

    def _array(self, value: dict[str, Any]) -> Any:
        if value["dtype"] not in ("float64", "int64", "bool"):
            raise ValueError("array type")
        flat = [float(v) if isinstance(v, str) else v for v in value["array"]]
        return np.array(flat, dtype=value["dtype"]).reshape(value["shape"])

    def _map(self, value: dict[str, Any]) -> Any:
        return {self.decode(k): self.decode(v) for k, v in value["map"]}

    def _new(self, value: dict[str, Any]) -> Any:
        name, fields = value["class"], value["fields"]
        if name == "Schema":
            made: Any = Schema.from_dict(fields)
        elif name == "Design":
            made = Design(
                self.decode(fields["terms"]),
                self.decode(fields["schema"]),
                full_rank=fields["full_rank"],
            )
        else:
            made = CLASSES[name](**{k: self.decode(v) for k, v in fields.items()})
        self._made[value["new"]] = made
        return made


_TAGS: dict[str, Callable[[_Reader, dict[str, Any]], Any]] = {
    "float": lambda _, value: float(value["float"]),
    "array": _Reader._array,
    "tuple": lambda reader, value: tuple(reader.decode(v) for v in value["tuple"]),
    "map": _Reader._map,
    "ref": lambda reader, value: reader._made[value["ref"]],
    "new": _Reader._new,
}


def _plain(number: float) -> Any:
    """JSON has no nan and no infinity."""
    return number if math.isfinite(number) else {"float": repr(number)}


def _flat(array: Any) -> list[Any]:
    return [
        v if not isinstance(v, float) or math.isfinite(v) else repr(v)
        for v in array.ravel().tolist()
    ]
