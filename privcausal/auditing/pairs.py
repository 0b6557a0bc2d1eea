"""Invented tables that are neighbours: ordinary rows, and one unit at a corner of the domains.

No row of anybody's comes here: an audit is of the mechanism, and uses declared domains alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from privcausal.errors import CapabilityError
from privcausal.spec.formula import CausalFormula
from privcausal.spec.groups import parse_group
from privcausal.spec.schema import Binary, Domain, Interval, Levels, Schema

CORNERS = 32
"""At most so many corners of the domains are tried for the odd row."""

STEP = 0.6180339887498949
"""The golden ratio's fraction spreads corners where there are more."""

Row = Mapping[str, Any]


def domains(formula: str, schema: Schema, options: Mapping[str, Any]) -> dict[str, Domain]:
    """The declared domain of each column of a call; the treatment is 0/1 unless declared.

    Raises
    ------
    CapabilityError
        A column has no declared domain.
    """
    known = options.get("propensity")
    groups = options.get("groups", ())
    names = [
        *CausalFormula.parse(formula).variables,
        *([known] if isinstance(known, str) else []),
        *(parse_group(name).column for name in ([groups] if isinstance(groups, str) else groups)),
    ]
    found: dict[str, Domain] = {}
    for name in dict.fromkeys(names):
        domain = schema.get(name)
        if domain is None and name != CausalFormula.parse(formula).treatment:
            raise CapabilityError(
                f"an audit needs a declared domain of {name!r}, to invent rows at its ends: write "
                f"bounds={{{name!r}: (lo, hi)}}, or its levels"
            )
        found[name] = Binary() if domain is None else domain
    return found


def corners(found: Mapping[str, Domain], complete: bool) -> list[Row]:
    """Rows at the ends of all domains, spread over the corners if these are many.

    Last comes a row with nothing in it, unless the schema declares that none is missing.
    """
    ends = {name: _ends(domain) for name, domain in found.items()}
    count = math.prod(len(values) for values in ends.values())
    if count <= CORNERS:
        every = itertools.product(*ends.values())
        rows: list[Row] = [dict(zip(ends, row, strict=True)) for row in every]
    else:
        # each column walks through its own values by its own step: columns mix
        rows = [
            {
                name: values[int((k * STEP * (j + 1) + j / 7) % 1.0 * len(values))]
                for j, (name, values) in enumerate(ends.items())
            }
            for k in range(CORNERS)
        ]
    nothing: Row = {name: _missing(domain) for name, domain in found.items()}
    return rows if complete else [*rows, nothing]


def ordinary(found: Mapping[str, Domain], rows: int) -> list[Row]:
    """Rows spread over the domains."""
    return [
        {
            name: _inner(domain, (k * STEP * (j + 1) + 0.5) % 1.0)
            for j, (name, domain) in enumerate(found.items())
        }
        for k in range(rows)
    ]


def table(rows: Sequence[Row], odd: Row | None, unit: str | None, max_rows: int) -> dict[str, Any]:
    """Columns of a table whose last unit is `odd`, or absent if None."""
    import numpy as np

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


def _inner(domain: Domain, place: float) -> Any:
    if isinstance(domain, Interval):
        return domain.lo + place * domain.width
    ends = _ends(domain)
    return ends[int(place * len(ends))]


def _missing(domain: Domain) -> Any:
    texts = isinstance(domain, Levels) or (isinstance(domain, Binary) and domain.labels is not None)
    return None if texts else math.nan
