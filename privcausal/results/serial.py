"""Versioned JSON of a fit: released numbers and public declarations only, never pickle.

Only frozen classes marked `@stored` are written or read, so a file can hold no code.
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

from privcausal.accounting.charge import PARALLEL
from privcausal.errors import CapabilityError, DataError
from privcausal.features.design import MOST_ENTRIES, Design
from privcausal.learners import Estimate  # and with it all that a fit is made of
from privcausal.request.schema import Schema
from privcausal.results.sound import Checked
from privcausal.stored import CLASSES

FORMAT, VERSION = "privcausal fit", 1

LARGEST = 1 << 30
"""Bytes of a file that is read at all: far more than a fit has."""

FORMER = {("AverageEstimate", "taken_off")}
"""Fields that files of this format may hold and nothing asks for any more."""

CONTENT = {"estimate", "call", "ledger_line"}
"""What a file holds of a result."""


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
    if not Path(path).exists():
        raise DataError(f"there is no file {os.fspath(path)!r}")
    try:
        if Path(path).stat().st_size > LARGEST:
            raise ValueError("size")
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise DataError(f"{os.fspath(path)!r} is not a fit saved by privcausal")
    if document.get("version") != VERSION:
        raise DataError(
            f"{os.fspath(path)!r} was saved by another version of privcausal, in format "
            f"{str(document.get('version'))[:20]}; this one reads format {VERSION}"
        )
    try:
        reader = _Reader()
        content = {name: reader.decode(value) for name, value in document["body"].items()}
        texts = (content["call"], content["ledger_line"] or "")
        if set(content) != CONTENT or not all(isinstance(text, str) for text in texts):
            raise ValueError("content")
        if not isinstance(content["estimate"], Estimate):
            raise ValueError("content")
        with np.errstate(all="ignore"):
            reader.checked.fit(content["estimate"])
        return str(document["kind"]), content
    except Exception:  # whatever is wrong with the content, the file is at fault
        raise DataError(f"{os.fspath(path)!r} is damaged") from None


class _Writer:
    """Encodes values as JSON; a class instance met again becomes a reference to the first."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # references keep ids from being used again

    def encode(self, value: Any) -> Any:
        for kinds, write in _WRITERS:
            if isinstance(value, kinds):
                return write(self, value)
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
        kind: type[Any] = type(value)
        if why := getattr(kind, "unsaved", ""):
            raise CapabilityError(why)
        if CLASSES.get(kind.__name__) is not kind:
            raise TypeError(f"{kind.__name__} cannot be saved")
        return {f.name: self.encode(getattr(value, f.name)) for f in dataclasses.fields(value)}


# in this order: a bool is an int to Python
_WRITERS: tuple[tuple[Any, Callable[[_Writer, Any], Any]], ...] = (
    (type(None) | str | bool, lambda _, value: value),
    (int | np.integer, lambda _, value: int(value)),
    (float | np.floating, lambda _, value: _plain(float(value))),
    (
        np.ndarray,
        lambda _, value: {
            "array": _flat(value), "shape": list(value.shape), "dtype": str(value.dtype),
        },
    ),
    (tuple | list, lambda writer, value: {"tuple": [writer.encode(v) for v in value]}),
    (
        Mapping,
        lambda writer, value: {
            "map": [[writer.encode(k), writer.encode(v)] for k, v in value.items()]
        },
    ),
)  # fmt: skip


class _Reader:
    """Rebuilds what `_Writer` wrote."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}
        self.checked = Checked()

    def decode(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        tag = next(tag for tag in value if tag in _TAGS)
        return _TAGS[tag](self, value)

    def _array(self, value: dict[str, Any]) -> Any:
        if value["dtype"] not in ("float64", "int64", "bool"):
            raise ValueError("array type")
        shape = value["shape"]
        whole = all(type(size) is int and 0 <= size <= MOST_ENTRIES for size in shape)
        if not whole or math.prod(shape) != len(value["array"]):
            raise ValueError("array shape")
        flat = [float(v) if isinstance(v, str) else v for v in value["array"]]
        return np.array(flat, dtype=value["dtype"]).reshape(shape)

    def _map(self, value: dict[str, Any]) -> Any:
        return {self.decode(k): self.decode(v) for k, v in value["map"]}

    def _new(self, value: dict[str, Any]) -> Any:
        name, fields = value["class"], value["fields"]
        if name == "Schema":
            made: Any = Schema.from_dict(fields)
        elif name == "Design":
            made = self.checked.design(
                self.decode(fields["terms"]), self.decode(fields["schema"]), fields["full_rank"]
            )
        else:
            if name == "Charge" and "parallel" not in fields:  # older: in the query's words
                query = str(fields["query"])
                told = {"query": query.removesuffix(f" {PARALLEL}")}
                fields = fields | told | {"parallel": query.endswith(PARALLEL)}
            known = {k: v for k, v in fields.items() if (name, k) not in FORMER}
            made = self.checked.add(CLASSES[name](**{k: self.decode(v) for k, v in known.items()}))
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
