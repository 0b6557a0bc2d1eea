"""Reading columns of any data frame into plain arrays: total functions that never raise on a value.

The vault applies them to rows, `predict` to new data. Errors are about what is public: the
container, column names and data types.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from privcausal.errors import DataError
from privcausal.request.header import Header, Kind, label_key
from privcausal.typing import Frame, Integers, Vector


def open_frame(native: Frame) -> Any:
    """A narwhals data frame over `native` (pandas, polars, pyarrow, or a mapping of arrays)."""
    import narwhals as nw

    if isinstance(native, Mapping):
        native = _from_mapping(native)
    names = getattr(native, "column_names", getattr(native, "columns", ()))
    _refuse_duplicates(names if isinstance(names, Iterable) else ())
    try:
        frame = nw.from_native(native, eager_only=True)
    except TypeError:
        frame = None
    if frame is None or not hasattr(frame, "columns"):
        raise DataError(
            f"data of type {type(native).__name__} cannot be read; pass a pandas, polars or "
            "pyarrow data frame, or a dict of equally long arrays"
        )
    return frame


def _from_mapping(columns: Mapping[Any, Any]) -> Any:
    import pandas as pd

    if not all(isinstance(name, str) for name in columns):
        raise DataError("column names must be text")
    for name, values in columns.items():
        if not hasattr(values, "dtype"):
            # the type of a list is that of its values: one row would decide how it is read
            raise DataError(f"column {name!r} of the dict has no type; pass np.array(...)")
        if not _keeps_its_type(values):
            raise DataError(
                f"column {name!r} of the dict is of type {type(values).__name__}, which cannot be "
                "read by itself; pass np.array(...), a pandas or polars Series, or the whole frame"
            )
    if any(getattr(values, "ndim", 1) != 1 for values in columns.values()) or (
        len({len(values) for values in columns.values()}) > 1
    ):
        raise DataError("a dict of columns needs one-dimensional arrays of one length")
    return pd.DataFrame({name: _as_pandas(values) for name, values in columns.items()})


def _keeps_its_type(values: Any) -> bool:
    """Whether pandas can hold these without looking at the values.

    Otherwise pandas infers a type: a missing value (a null of polars, the mask of an array) would
    turn whole numbers into floats, or truth values into objects.
    """
    import pandas as pd

    plain = pd.Series | pd.Index | pd.api.extensions.ExtensionArray
    array = isinstance(values, np.ndarray) and not isinstance(values, np.ma.MaskedArray)
    return array or isinstance(values, plain) or _is_polars(values)


def _is_polars(values: Any) -> bool:
    kind = type(values)
    return kind.__name__ == "Series" and kind.__module__.partition(".")[0] == "polars"


def _as_pandas(values: Any) -> Any:
    """A pandas Series or array of the same type. Columns belong together by position."""
    import pandas as pd

    if _is_polars(values) and str(values.dtype) == "Object":  # which Arrow does not have
        values = np.fromiter(values.to_list(), dtype=object, count=len(values))
    if _is_polars(values):
        return pd.Series(pd.arrays.ArrowExtensionArray(values.rechunk().to_arrow()))
    if isinstance(values, pd.Series | pd.Index):
        return pd.Series(values.array, dtype=values.dtype)
    if isinstance(values, np.ndarray):
        plain = np.ndarray.view(values, np.ndarray)  # a subclass may have hooks
        if plain.dtype.kind == "O":  # pandas would call it text or not by its values
            return pd.Series(plain, dtype=object)
        if plain.dtype.kind == "U":
            # by pandas itself: Arrow would refuse half a character, whose escape is another text
            return pd.array(plain.astype(object), dtype=pd.StringDtype("python"))
        return plain
    return values


def _refuse_duplicates(names: Iterable[Any]) -> None:
    names = list(names)
    if not all(isinstance(name, str) for name in names):
        raise DataError("column names must be text; rename the columns (no MultiIndex)")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"column name {twice[0]!r} stands twice in the data; rename one")


def header(frame: Any) -> Header:
    """Names and kinds of the columns, from data types alone."""
    kinds = {name: _kind(dtype) for name, dtype in frame.schema.items()}
    text = (name for name, kind in kinds.items() if kind == "text")
    whole = frozenset(n for n, dtype in frame.schema.items() if dtype.is_integer())
    objects = frozenset(name for name in text if holds_objects(frame[name]))
    return Header(kinds, objects, integers=whole)


def holds_objects(series: Any) -> bool:
    import narwhals as nw

    # narwhals decides by the values whether a pandas column of objects is text: ask for the type
    native = getattr(series.to_native(), "dtype", None)
    return native == np.dtype(object) if isinstance(native, np.dtype) else series.dtype == nw.Object


def _kind(dtype: Any) -> Kind:
    import narwhals as nw

    if dtype in (nw.Int128, nw.UInt128):  # Arrow has none, so that only an empty table could pass
        return "other"
    if dtype.is_numeric():
        return "numeric"
    if dtype == nw.Boolean:
        return "bool"
    if dtype in (nw.String, nw.Categorical, nw.Enum, nw.Object) or isinstance(dtype, nw.Enum):
        return "text"
    return "other"


def numbers(series: Any) -> Vector:
    """Values as float64, shape (n,); missing or unreadable values are NaN."""
    dtype = series.dtype
    if dtype.is_numeric() or str(dtype) == "Boolean":
        try:
            return np.asarray(series.to_numpy(), dtype=np.float64)
        except Exception:  # then value by value
            pass
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning of complex numbers would reveal one
        return np.fromiter((_number(v) for v in series.to_list()), np.float64, len(series))


def _number(value: Any) -> float:
    try:
        return float(value)
    except Exception:  # a value may be any object; it must read as missing, whatever it does
        return math.nan


def labels(series: Any) -> tuple[Integers, tuple[str, ...]]:
    """Codes of shape (n,) into canonical label texts; -1 is missing. Order: first seen.

    The label of a row is `label_key` of its own cell, whatever the other rows hold.
    """
    import pandas as pd

    native = series.to_native()
    if isinstance(getattr(native, "dtype", None), pd.CategoricalDtype):
        return named(native.cat.codes.to_numpy(), list(native.cat.categories))
    values = series.to_list()
    if not _is_plain(series):
        # equal values may have different labels: True equals 1, and an instant is the same in all
        # time zones. In a hash table the first would name the others, so each is read by itself
        values = [value if type(value) is str else label_key(value) for value in values]
    return named(*distinct(values))


def distinct(values: Sequence[Any]) -> tuple[Integers, list[Any]]:
    """Codes of shape (n,) into the values that differ, in the order in which they are met.

    By Python's own equality: pandas takes half a character for the quoted text that stands for it.
    """
    place: dict[Any, int] = {}
    codes = np.fromiter((place.setdefault(v, len(place)) for v in values), np.int64, len(values))
    return codes, list(place)


def named(
    codes: Integers, values: Iterable[Any], key: Callable[[Any], str | None] = label_key
) -> tuple[Integers, tuple[str, ...]]:
    """Codes into the labels of these distinct values; -1 stays missing."""
    keys = [key(value) for value in values]
    names = tuple(dict.fromkeys(key for key in keys if key is not None))
    position = {name: i for i, name in enumerate(names)}
    lookup = np.array([-1 if key is None else position[key] for key in keys] + [-1], np.int64)
    return lookup[codes], names


def _is_plain(series: Any) -> bool:
    """Whether the column's type makes all values of one kind, so that equal ones look alike."""
    import narwhals as nw

    dtype = series.dtype
    same = dtype.is_numeric() or isinstance(dtype, nw.String | nw.Boolean)
    return same and not holds_objects(series)
