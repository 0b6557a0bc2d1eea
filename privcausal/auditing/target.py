"""A fit that is audited, and the tables it is tried on.

The tables are neighbours: ordinary rows, and one unit at a corner of the declared domains. All rows
are invented, since an audit is of the mechanism and uses domains alone.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from privcausal import api
from privcausal.auditing import replays
from privcausal.errors import CapabilityError
from privcausal.learners.options import check_whole
from privcausal.request.formula import CausalFormula
from privcausal.request.groups import parse_group
from privcausal.request.request import Trust
from privcausal.request.schema import Binary, Domain, Interval, Levels, Schema
from privcausal.typing import Neighbors

CORNERS = 32
"""At most this many corners of the domains are tried for the odd row."""

STEP = 0.6180339887498949
"""The golden ratio's fraction, by whose multiples corners are spread where there are more."""

_OWN = {"formula", "data", "bounds", "learner", "eps", "delta", "neighbors", "ledger", "progress"}

Row = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class AuditTarget:
    """A fit and the tables it is tried on."""

    fit: replays.Fit
    words: str
    tables: tuple[Mapping[str, Any], ...]
    neighbors: Neighbors

    def pairs(self) -> list[tuple[int, int]]:
        """Numbers of tables that are neighbours."""
        if self.neighbors == "add_remove":
            return [(0, k) for k in range(1, len(self.tables))]
        return list(itertools.combinations(range(len(self.tables)), 2))


def audit_target(
    formula: str,
    learner: Any,
    bounds: Any,
    eps: float,
    delta: float,
    neighbors: Neighbors,
    rows: int,
    options: Mapping[str, Any],
) -> AuditTarget:
    """The fit of a call, and invented tables for it."""
    own = {"private": api.private, "regress": api.regress}
    fit: Any = own.get(learner, api.privcate) if isinstance(learner, str) else api.privcate
    known = [name for name in inspect.signature(fit).parameters if name not in _OWN]
    for name in options:
        if name not in known:
            raise CapabilityError(f"audit has no {name}=; known are {', '.join(known)}")
    unit, most = options.get("unit"), options.get("max_rows", 1)
    Trust(neighbors, unit, most)  # refuses what is wrong
    check_whole("rows", rows, 2, 10_000)
    schema = Schema.of(bounds)
    read = CausalFormula.regression if fit is api.regress else CausalFormula.parse
    domains = _domains(read(formula), schema, options)
    plain = [_ordinary(domains, k) for k in range(rows)]
    odd: list[Row | None] = [None] if neighbors == "add_remove" else []
    odd += _corners(domains, schema.complete)
    call = {**options, "bounds": schema, "eps": eps, "delta": delta, "neighbors": neighbors}
    if fit is api.privcate:
        call["learner"] = learner
    name = learner if isinstance(learner, str) else repr(learner)
    return AuditTarget(
        partial(fit, formula, **call),
        ", ".join([formula, name, *(f"{k}={v!r}" for k, v in options.items())]),
        tuple(_table(plain, row, unit, most) for row in odd),
        neighbors,
    )


def _domains(
    parsed: CausalFormula, schema: Schema, options: Mapping[str, Any]
) -> dict[str, Domain]:
    """The declared domain of each column; treatment and instrument are 0/1 unless declared."""
    known, groups = (options.get("propensity"), options.get("weights")), options.get("groups", ())
    names = [
        *parsed.variables,
        *(name for name in known if isinstance(name, str)),
        *(parse_group(name).column for name in ([groups] if isinstance(groups, str) else groups)),
    ]
    found: dict[str, Domain] = {}
    for name in dict.fromkeys(names):
        domain = schema.get(name)
        if domain is None and name not in (parsed.treatment, parsed.instrument):
            raise CapabilityError(
                f"an audit needs a declared domain of {name!r}, to invent rows at its ends: write "
                f"bounds={{{name!r}: (lo, hi)}}, or its levels"
            )
        found[name] = Binary() if domain is None else domain
    return found


def _corners(domains: Mapping[str, Domain], complete: bool) -> list[Row]:
    """Rows at the ends of all domains, spread over the corners if these are many.

    Last comes a row with nothing in it, unless the schema declares that none is missing.
    """
    ends = {name: _ends(domain) for name, domain in domains.items()}
    rows: list[Row]
    if math.prod(len(values) for values in ends.values()) <= CORNERS:
        rows = [dict(zip(ends, row, strict=True)) for row in itertools.product(*ends.values())]
    else:
        # each column walks through its own values by its own step: columns mix
        rows = [
            {
                name: values[int((k * STEP * (j + 1) + j / 7) % 1.0 * len(values))]
                for j, (name, values) in enumerate(ends.items())
            }
            for k in range(CORNERS)
        ]
    nothing = {name: math.nan if _is_number(d) else None for name, d in domains.items()}
    return rows if complete else [*rows, nothing]


def _ordinary(domains: Mapping[str, Domain], k: int) -> Row:
    """One of many rows that are spread over the domains."""
    row: dict[str, Any] = {}
    for j, (name, domain) in enumerate(domains.items()):
        place, ends = (k * STEP * (j + 1) + 0.5) % 1.0, _ends(domain)
        row[name] = ends[int(place * len(ends))]
        if isinstance(domain, Interval):
            row[name] = domain.lo + place * domain.width
    return row


def _table(rows: Sequence[Row], odd: Row | None, unit: str | None, max_rows: int) -> dict[str, Any]:
    """Columns of a table whose last unit is `odd`, or absent if None."""
    added = [] if odd is None else [odd] * max_rows
    every = [*rows, *added]
    columns = {name: np.array([row[name] for row in every]) for name in rows[0]}
    for name in rows[0]:
        if columns[name].dtype.kind in "UO":
            columns[name] = np.array([row[name] for row in every], object)
    if unit is not None:
        owners = [f"u{k}" for k in range(len(rows))] + ["odd"] * len(added)
        columns[unit] = np.array(owners, object)
    return columns


def _ends(domain: Domain) -> list[Any]:
    if isinstance(domain, Interval):
        return [domain.lo, domain.hi]
    if isinstance(domain, Levels):
        return list(domain.values)
    return [0.0, 1.0] if domain.labels is None else list(domain.labels)


def _is_number(domain: Domain) -> bool:
    return isinstance(domain, Interval) or (isinstance(domain, Binary) and domain.labels is None)
