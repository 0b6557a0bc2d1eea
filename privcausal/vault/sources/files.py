"""Tables in files, read into memory: Parquet, Feather, and CSV, which has no types."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from privcausal.errors import DataError
from privcausal.spec.columns import LabelColumns
from privcausal.spec.schema import label_key


def read_file(path: Path, label_columns: LabelColumns) -> Any:
    """The table as a pyarrow table in memory.

    Parameters
    ----------
    path : Path
    label_columns : callable
        Asked of a CSV file only; its other columns are read as numbers.

    Raises
    ------
    DataError
        The suffix is unknown, or the file is not what its suffix says. The reader's own message
        is not shown: it quotes rows.
    """
    suffix = path.suffix.lower()
    if suffix not in _READERS:
        raise DataError(f"{path.name} cannot be read; known files end in {', '.join(_READERS)}")
    try:
        table = _READERS[suffix](path)
    except Exception:  # whatever it is, it may quote a row
        table = None
    if table is None:
        raise DataError(f"{path.name} is not a whole {suffix[1:]} file")
    if suffix != ".csv":
        return table
    check_header(table.column_names, path)
    return _typed(table, label_columns(table.column_names))


def _parquet(path: Path) -> Any:
    import pyarrow.parquet

    return pyarrow.parquet.read_table(path, partitioning=None)


def _feather(path: Path) -> Any:
    import pyarrow.feather

    return pyarrow.feather.read_table(path, memory_map=False)


def _csv(path: Path) -> Any:
    """Every column as text."""
    import pyarrow as pa
    from pyarrow import csv

    with csv.open_csv(path) as reader:
        names = reader.schema.names
    return csv.read_csv(
        path,
        convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names, pa.large_string())),
    )


_READERS: dict[str, Callable[[Path], Any]] = {
    ".parquet": _parquet, ".csv": _csv, ".feather": _feather, ".arrow": _feather,
}  # fmt: skip

_BLANKS = {"", "NA", "N/A", "#N/A", "NaN", "nan", "NULL", "null", "None"}
_WORDS = {"true": 1.0, "false": 0.0}


def check_header(names: Sequence[str], path: Path) -> None:
    """Refuse a first line that may be a row: it would be read as names, and names are public.

    Raises
    ------
    DataError
        A field is empty, reads as a number or a missing value, has no letter (a date, say), or is
        there twice. Nothing of the line is told.
    """
    if len(set(names)) < len(names) or any(map(_is_value, names)):
        raise DataError(
            f"{path.name}: the first line must hold the names of the columns, and one of its "
            "fields is empty, a number or a date, or stands there twice. The line is not shown: "
            "without a header it is a row. Write the names above the rows, and leave out an index "
            "without a name, to_csv(index=False)"
        )


def _is_value(field: str) -> bool:
    word = field.strip()
    lettered = any(character.isalpha() for character in word)
    blank = word.casefold() in {known.casefold() for known in _BLANKS}
    return not lettered or blank or not math.isnan(number_of(word))


def _typed(table: Any, known: Mapping[str, frozenset[str]]) -> Any:
    """The columns of a CSV file as labels where `known`, and as numbers elsewhere.

    Guessing types from the values, as most readers do, would let one row decide how all others
    are read. Here each value is read by itself, and what cannot be read is missing.
    """
    import pyarrow as pa

    columns = [
        typed_column(texts.combine_chunks(), known.get(column))
        for column, texts in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.table(columns, names=table.column_names)


def typed_column(texts: Any, known: frozenset[str] | None) -> Any:
    """An Arrow array of texts as labels where some are `known`, else as float64."""
    import pyarrow as pa

    coded = texts.dictionary_encode()
    words = ["" if word is None else word for word in coded.dictionary.to_pylist()]
    indices = coded.indices
    if indices.null_count:  # an empty field
        indices, words = indices.fill_null(len(words)), [*words, ""]
    if known is None:
        values = pa.array([number_of(word) for word in words], pa.float64())
    else:
        values = pa.array([label_of(word, known) for word in words], pa.large_string())
    return values.take(indices)


def label_of(word: str, known: frozenset[str]) -> str | None:
    """The label as written, or as the declared number it means ("3.0" for 3); None if missing."""
    if word in known:
        return word
    number = label_key(number_of(word))
    return number if number in known else None if word in _BLANKS else word


def number_of(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return _WORDS.get(word.strip().lower(), float("nan"))
