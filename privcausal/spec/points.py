"""Points told by the analyst: read like the rows were, but strict about what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from privcausal.errors import DataError, PrivcausalError
from privcausal.spec.columns import header, labels, numbers, open_frame
from privcausal.spec.features import Design, Rows
from privcausal.spec.schema import Binary, Domain, Interval, Levels
from privcausal.typing import Frame, Integers, Mask, Vector

if TYPE_CHECKING:
    import pandas as pd


def read_points(
    design: Design, variables: tuple[str, ...], newdata: Frame, propensity: str | None = None
) -> tuple[Rows, Mask, Any]:
    """Rows for prediction, which of them are complete, and their index.

    Numbers outside the declared bounds are cut to them, as they were when fitting. Variables that
    the effect does not depend on may be absent. `propensity` is read where it is there.

    Raises
    ------
    DataError
        A needed column is absent, of a type that cannot be read, or holds a level that was not
        declared. Its traceback ends here, since the frames below hold points.
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
    return Rows(cleaned, size, known), present, _index(newdata, size)


def _typed(newdata: Frame) -> Frame:
    """Lists as arrays: unlike the rows of a study, new points may be typed by their values.

    One value stands for all points, as in a data frame made of a dict.
    """
    if not isinstance(newdata, Mapping):
        return newdata
    single = [name for name, values in newdata.items() if _is_single(values)]
    listed = [v for name, v in newdata.items() if name not in single and hasattr(v, "__len__")]
    size = max(map(len, listed), default=1)
    whole = {**newdata, **{name: [newdata[name]] * size for name in single}}
    return {k: v if hasattr(v, "dtype") else _array(v) for k, v in whole.items()}


def _is_single(values: Any) -> bool:
    return isinstance(values, str | bool | int | float | np.generic)


def _array(values: Any) -> Any:
    import pandas as pd

    return pd.Series(list(values)).to_numpy() if isinstance(values, Sequence) else values


def _read(design: Design, name: str, series: Any) -> tuple[Vector | Integers, Mask]:
    domain = design.schema[name]
    if isinstance(domain, Interval):
        found = numbers(series)
        there = ~np.isnan(found)
        return np.clip(np.where(there, found, domain.mid), domain.lo, domain.hi), there
    codes, texts = labels(series)
    known = _known(domain)
    strange = [text for text in texts if text not in known]
    if strange and not (isinstance(domain, Levels) and domain.other):
        shown = ", ".join(sorted(map(repr, known)))
        raise DataError(f"column {name!r} has a level that was not declared; known are {shown}")
    other = known.get("other", 0)
    lookup = np.array([*(known.get(text, other) for text in texts), 0], np.int64)
    values = lookup[codes]
    return (values.astype(np.float64) if isinstance(domain, Binary) else values), codes >= 0


def _known(domain: Levels | Binary) -> dict[str, int]:
    """Code of each label."""
    if isinstance(domain, Levels):
        return {label: i for i, label in enumerate(domain.labels)}
    return dict.fromkeys(domain.zeros, 0) | dict.fromkeys(domain.ones, 1)


def middle(domain: Domain, size: int) -> Vector | Integers:
    """A harmless value, for a column on which nothing depends."""
    if isinstance(domain, Levels):
        return np.zeros(size, np.int64)
    return np.full(size, domain.mid if isinstance(domain, Interval) else 0.0)


def _index(newdata: Frame, size: int) -> pd.Index:
    import pandas as pd

    index = getattr(newdata, "index", None)
    return index if isinstance(index, pd.Index) else pd.RangeIndex(size)
