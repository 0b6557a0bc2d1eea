"""A fit that is audited, and the tables it is tried on."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from privcausal import api
from privcausal.auditing import pairs, replays
from privcausal.errors import CapabilityError
from privcausal.spec.request import Trust
from privcausal.spec.schema import Schema
from privcausal.typing import Neighbors

_OWN = {"formula", "data", "bounds", "learner", "eps", "delta", "neighbors", "ledger", "queries",
        "progress"}  # fmt: skip
_PAPER = {"mode", "below_minimum"}


@dataclass(frozen=True, eq=False)
class Subject:
    """A fit and the tables it is tried on."""

    fit: replays.Fit
    words: str
    tables: tuple[Mapping[str, Any], ...]
    neighbors: Neighbors

    @classmethod
    def of(
        cls,
        formula: str,
        learner: Any,
        bounds: Any,
        eps: float,
        delta: float,
        neighbors: Neighbors,
        rows: int,
        options: Mapping[str, Any],
    ) -> Subject:
        average = isinstance(learner, str) and learner == "private"
        _check(options, api.private if average else api.privcate)
        Trust(neighbors, options.get("unit"), options.get("max_rows", 1))  # refuses what is wrong
        if isinstance(rows, bool) or not isinstance(rows, int) or not 2 <= rows <= 10_000:
            raise CapabilityError("rows is a whole number from 2 to 10000")
        schema = Schema.of(bounds)
        domains = pairs.domains(formula, schema, options)
        unit, most = options.get("unit"), options.get("max_rows", 1)
        plain = pairs.ordinary(domains, rows)
        odd: list[Any] = pairs.corners(domains, schema.complete)
        if neighbors == "add_remove":
            odd = [None, *odd]
        tables = tuple(pairs.table(plain, row, unit, most) for row in odd)
        call = dict(options) | {
            "bounds": schema, "eps": eps, "delta": delta, "neighbors": neighbors,
        }  # fmt: skip
        if average:
            fit = partial(_private, formula, call)
        else:
            fit = partial(_privcate, formula, {**call, "learner": learner})
        name = learner if isinstance(learner, str) else repr(learner)
        words = ", ".join([formula, name, *(f"{k}={v!r}" for k, v in options.items())])
        return cls(fit, words, tables, neighbors)

    def pairs(self) -> list[tuple[int, int]]:
        """Numbers of tables that are neighbours."""
        if self.neighbors == "add_remove":
            return [(0, k) for k in range(1, len(self.tables))]
        return list(itertools.combinations(range(len(self.tables)), 2))


def _private(formula: str, call: Mapping[str, Any], table: Any) -> Any:
    return api.private(formula, table, **call)


def _privcate(formula: str, call: Mapping[str, Any], table: Any) -> Any:
    return api.privcate(formula, table, **call)


def _check(options: Mapping[str, Any], call: Callable[..., Any]) -> None:
    known = [n for n in inspect.signature(call).parameters if n not in _OWN | _PAPER]
    for name in options:
        if name in _PAPER:
            raise CapabilityError(f"{name}= is not audited: only what is proven can be refuted")
        if name not in known:
            raise CapabilityError(f"audit has no {name}=; known are {', '.join(known)}")
