"""Points given by the analyst: read like rows, but with errors that say what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from privcausal.errors import CapabilityError, DataError, PrivcausalError, warn
from privcausal.features.columns import header, labels, numbers, open_frame
from privcausal.features.design import Design
from privcausal.features.rows import Rows
from privcausal.request.request import Queries
from privcausal.request.schema import Binary, Domain, Interval, Levels
from privcausal.typing import Frame, Integers, Mask, Vector


def read_points(
    design: Design, variables: tuple[str, ...], newdata: Frame, propensity: str | None = None
) -> tuple[Rows, Mask, Any]:
    """Rows for prediction, which of them are complete, and their index.

    Numbers are clipped to the declared bounds, as in fitting. Columns on which the effect does not
    depend may be absent, and so may `propensity`.

    Raises
    ------
    DataError
        A needed column is absent, of a type that cannot be read, or has an undeclared level. The
        traceback ends here, since the frames below hold points.
    """
    try:
        return _read_all(design, variables, newdata, propensity)
    except PrivcausalError as error:
        refused = error.with_traceback(None)
        refused.__cause__ = refused.__context__ = None
    raise refused


def _read_all(
    design: Design, variables: tuple[str, ...], newdata: Frame, propensity: str | None
) -> tuple[Rows, Mask, Any]:
    import pandas as pd

    frame = open_frame(_typed(newdata))
    size, kinds = frame.shape[0], header(frame).kinds
    cleaned: dict[str, Vector | Integers] = {}
    present = np.ones(size, bool)
    for name in design.variables:
        if kinds.get(name) == "other":
            raise DataError(f"column {name!r} has a type that cannot be read; convert it first")
        if name in kinds:
            cleaned[name], there = _read(design, name, frame[name])
            present &= there
        elif name in variables:
            raise DataError(f"column {name!r} is needed for prediction and not in the new data")
        else:
            cleaned[name] = middle(design.schema[name], size)
    known = None
    if propensity is not None and propensity in frame.columns:
        known = numbers(frame[propensity])
    index = getattr(newdata, "index", None)
    own = index if isinstance(index, pd.Index) else pd.RangeIndex(size)
    return Rows(cleaned, size, known), present, own


def _typed(newdata: Frame) -> Frame:
    """Lists as arrays: unlike the rows of a study, new points may be typed by their values.

    A single value stands for all points, as in a data frame made of a dict.
    """
    import pandas as pd

    if not isinstance(newdata, Mapping):
        return newdata
    single = {k for k, v in newdata.items() if isinstance(v, str | bool | int | float | np.generic)}
    listed = [v for k, v in newdata.items() if k not in single and hasattr(v, "__len__")]
    size = max(map(len, listed), default=1)
    whole = {k: [v] * size if k in single else v for k, v in newdata.items()}
    bare = {k for k, v in whole.items() if isinstance(v, Sequence) and not hasattr(v, "dtype")}
    return {k: pd.Series(list(v)).to_numpy() if k in bare else v for k, v in whole.items()}


def _read(design: Design, name: str, series: Any) -> tuple[Vector | Integers, Mask]:
    domain = design.schema[name]
    if isinstance(domain, Interval):
        found = numbers(series)
        there = ~np.isnan(found)
        return np.clip(np.where(there, found, domain.mid), domain.lo, domain.hi), there
    codes, texts = labels(series)
    if isinstance(domain, Levels):
        known = {label: i for i, label in enumerate(domain.labels)}
    else:
        known = dict.fromkeys(domain.zeros, 0) | dict.fromkeys(domain.ones, 1)
    strange = [text for text in texts if text not in known]
    if strange and not (isinstance(domain, Levels) and domain.other):
        shown = ", ".join(sorted(map(repr, known)))
        raise DataError(f"column {name!r} has a level that was not declared; known are {shown}")
    other = known.get("other", 0)
    lookup = np.array([*(known.get(text, other) for text in texts), 0], np.int64)
    values = lookup[codes]
    return (values.astype(np.float64) if isinstance(domain, Binary) else values), codes >= 0


def warn_beyond(design: Design, newdata: Frame) -> None:
    """Warn of points outside the bounds of a column: they are the analyst's own."""
    frame = open_frame(_typed(newdata))
    domains = {n: d for n in design.variables if isinstance(d := design.schema[n], Interval)}
    for name, domain in domains.items():
        found = numbers(frame[name]) if name in frame.columns else np.zeros(0)
        if ((found < domain.lo) | (found > domain.hi)).any():
            warn(
                f"Points lie outside the bounds ({domain.lo:g}, {domain.hi:g}) of {name!r}, and "
                "were moved to the nearest end: the fit says nothing of what lies beyond."
            )


def middle(domain: Domain, size: int) -> Vector | Integers:
    """A value inside the domain, for a column on which nothing depends."""
    if isinstance(domain, Levels):
        return np.zeros(size, np.int64)
    return np.full(size, domain.mid if isinstance(domain, Interval) else 0.0)


MOST = 5000
"""Most points that `queries=` takes."""


def declare_queries(frame: Frame, wanted: tuple[str, ...]) -> Queries:
    """The `wanted` columns (the effect modifiers) of a frame of points.

    Raises
    ------
    DataError, CapabilityError
        A column is absent, there are no points, or too many.
    """
    table = open_frame(_typed(frame))
    for name in wanted:
        if name not in table.columns:
            raise DataError(f"queries= needs the column {name!r}: the effect depends on it")
    if not 1 <= table.shape[0] <= MOST:
        raise CapabilityError(
            f"queries= takes from 1 to {MOST} points; leave it out to release the whole "
            "function, which can be asked anywhere and without limit"
        )
    return Queries(
        {
            name: tuple(v.item() if isinstance(v, np.generic) else v for v in table[name].to_list())
            for name in wanted
        }
    )


def read_queries(queries: Queries, design: Design) -> Rows:
    """The points as rows of a design; `DataError` if a level is undeclared or a value missing."""
    frame = queries.columns or {"": (0.0,)}
    rows, present, _ = read_points(design, tuple(queries.columns), frame)
    if not present.all():
        raise DataError("queries= has a missing value: every point needs all effect modifiers")
    return rows
