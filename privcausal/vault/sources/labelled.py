"""Stata, SPSS and R files, held in memory: columns of codes, and the file's labels of the codes.

Each column has the type declared in the file, regardless of the rows. In a data frame, a
missing number would change the type of whole numbers or Boolean values, and types are public.
Columns of dates are refused, as in any table, and are therefore not read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from privcausal.errors import CapabilityError, DataError, SchemaError
from privcausal.features.design import labels
from privcausal.request import schema
from privcausal.vault.guard import opening
from privcausal.vault.sources.memory import Memory

LABELLED_FILES = {
    ".dta": ("pyreadstat", ""),
    ".sav": ("pyreadstat", ""),
    ".rds": ("pyreadr", " It must contain one data frame of plain columns, written by saveRDS."),
}
"""Suffixes of such files, the package that reads each, and what a readable file must hold."""

_DATES = re.compile(r"%-?[dt]|([AEJS]?DATE|D?TIME|YMDHMS|QYR|MOYR|WKYR)")
"""Prefixes of date and time formats in Stata, and in SPSS."""

R_MISSING = -(2**31)
"""The value that R stores for NA in integers, logical values and factor codes."""

Texts: TypeAlias = Mapping[str, Mapping[str, str]]
"""For each column, the text of each code."""


class Labelled(Memory):
    """Rows of such a file. A column's labels are used only if they are declared for this column."""

    __slots__ = ("_texts",)

    def __init__(self, path: Path) -> None:
        table, self._texts = _read(path, rows=True)
        super().__init__(table)

    def typed(self, labels: schema.LabelColumns) -> Memory:
        """These rows, with texts in place of codes in columns with such a declared text.

        Two codes may have the same text, so units are identified by their codes.
        """
        known = labels(self.header.names)
        table = self._frame.to_native()
        for name, texts in self._texts.items():
            declared = known.get(name, frozenset())
            if declared & set(texts.values()):
                column = _worded(self._frame[name], texts, declared)
                table = table.set_column(table.column_names.index(name), name, column)
        return Memory(table, self._of_units)


def _worded(series: Any, texts: Mapping[str, str], declared: Collection[str]) -> Any:
    """Convert each code separately: unchanged if it is declared, otherwise to its declared text."""
    import pyarrow as pa

    codes, keys = labels(series)
    words = [key if key in declared else texts.get(key, key) for key in keys]
    return pa.array(words, pa.large_string()).take(pa.array(codes, mask=codes < 0))


@opening
def file_labels(place: str | os.PathLike[str], columns: Sequence[str]) -> dict[str, list[str]]:
    """The texts of these columns, in the order of their codes, without texts of missing values."""
    if not isinstance(place, str | os.PathLike):
        raise DataError(f"The path of a file must be text, not {schema.kind_of(place)}.")
    path = Path(place)
    if path.suffix.lower() not in LABELLED_FILES:
        raise DataError(
            f"{path.name} has no labels. Files with labels end in {', '.join(LABELLED_FILES)}."
        )
    if not path.is_file():
        raise DataError(f"File {str(path)!r} does not exist.")
    _, texts = _read(path, rows=False)
    for name in columns:
        if not texts.get(name):
            known = ", ".join(map(repr, [each for each in texts if texts[each]][:20])) or "none"
            raise SchemaError(
                f"Column {name!r} has no labels in {path.name}. Columns with labels: {known}."
            )
    # two codes with one text are one level
    return {name: list(dict.fromkeys(texts[name].values())) for name in columns}


def _read(path: Path, *, rows: bool) -> tuple[Any, Texts]:
    """A pyarrow table (without rows, if the format allows this) and the texts of its codes."""
    suffix = path.suffix.lower()
    package, what = LABELLED_FILES[suffix]
    trouble = f"{path.name} is not a complete {suffix} file.{what}"
    try:
        return _r(path) if suffix == ".rds" else _coded(path, rows)
    except ModuleNotFoundError as absent:
        missing = absent.name == package
    except Exception:  # any error message may quote a row
        missing = False
    if missing:
        raise CapabilityError(f"{suffix} files require {package}: pip install 'privcausal[files]'")
    raise DataError(trouble)


def _coded(path: Path, rows: bool) -> tuple[Any, Texts]:
    """Read a Stata or SPSS file. Its missing values are missing, and so are empty texts."""
    import pyarrow as pa
    import pyreadstat

    read = pyreadstat.read_sav if path.suffix.lower() == ".sav" else pyreadstat.read_dta
    meta: Any = read(path, metadataonly=True, user_missing=True)[1]
    types = {
        name: _type(kind, meta.original_variable_types[name])
        for name, kind in meta.readstat_variable_types.items()
    }
    texts = {
        name: {
            str(schema.label_key(code)): text
            for code, text in found.items()
            # Stata's missing values .a to .z are texts among numbers
            if isinstance(code, str) == (types[name] == pa.large_string())
            and not any(m["lo"] <= code <= m["hi"] for m in meta.missing_ranges.get(name, ()))
        }
        for name, found in meta.variable_value_labels.items()
    }
    if not rows:
        return None, texts
    frame, _ = read(path, disable_datetime_conversion=True)
    columns = [_column(frame[name], kind) for name, kind in types.items()]
    return pa.table(columns, names=list(types)), texts


def _type(kind: str, written: str) -> Any:
    """The Arrow type of a column, from ReadStat's type name and the written format."""
    import pyarrow as pa

    if _DATES.match(written):
        return pa.date32()
    return pa.large_string() if kind.startswith("string") else pa.type_for_alias(kind)


def _column(values: Any, kind: Any) -> Any:
    import pyarrow as pa

    if kind == pa.date32():
        return pa.nulls(len(values), kind)
    if kind == pa.large_string():
        return pa.array([word or None for word in values], kind, from_pandas=True)
    return pa.array(values.to_numpy(np.float64), from_pandas=True).cast(kind, safe=False)


def _r(path: Path) -> tuple[Any, Texts]:
    """Read a data frame saved by saveRDS, with factors as texts; it cannot be read in parts.

    The columns are taken as pyreadr parses them, before it derives types from their values.
    """
    import pyarrow as pa
    from pyreadr._pyreadr_parser import PyreadrParser

    parser = PyreadrParser()
    parser.parse(os.fsencode(path))
    (table,) = parser.table_data
    names = {**table.column_names, **table.column_names_special}
    if None in names.values():
        raise ValueError("a vector or a matrix")
    texts, columns = {}, []
    for at, values in enumerate(table.columns):
        kind = table.column_types[at].name
        if at in table.value_labels:
            levels = [text for _, text in sorted(table.value_labels[at].items())]
            texts[names[at]] = {text: text for text in levels if text is not None}
            codes = pa.array(values - 1, mask=values == R_MISSING)
            columns.append(pa.array(levels, pa.large_string()).take(codes))
        elif kind == "CHARACTER":
            columns.append(pa.array(values, pa.large_string(), from_pandas=True))
        elif kind in ("INTEGER", "LOGICAL"):
            column = pa.array(values, pa.int32(), mask=values == R_MISSING)
            columns.append(column.cast(pa.bool_()) if kind == "LOGICAL" else column)
        elif kind == "NUMERIC":
            columns.append(pa.array(values, pa.float64(), from_pandas=True))
        else:
            columns.append(pa.nulls(len(values), pa.date32()))
    return pa.table(columns, names=[names[at] for at in range(len(columns))]), texts
