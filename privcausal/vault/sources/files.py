"""Files and relations: read into memory, or opened for streaming.

CSV has no types: each value is read separately, as a label or a number.
"""

from __future__ import annotations

import csv
import glob
import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from privcausal.errors import CapabilityError, DataError, SchemaError
from privcausal.features import design
from privcausal.request import schema
from privcausal.request.partition import sql_text
from privcausal.vault.batch import RawColumn
from privcausal.vault.guard import opening
from privcausal.vault.sources import memory, stored

# Stata, SPSS and R files, held in memory: columns of codes, and the file's labels of the codes.
#
# Each column has the type declared in the file, regardless of the rows. In a data frame, a
# missing number would change the type of whole numbers or Boolean values, and types are public.
# Columns of dates are refused, as in any table, and are therefore not read.

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


class Labelled(memory.Memory):
    """Rows of such a file. A column's labels are used only if they are declared for this column."""

    __slots__ = ("_texts",)

    def __init__(self, path: Path) -> None:
        table, self._texts = _read(path, rows=True)
        super().__init__(table)

    def typed(self, labels: schema.LabelColumns) -> memory.Memory:
        """These rows, with texts in place of codes in columns with such a declared text.

        Two codes may have the same text, so units are identified by their codes.
        """
        by_column = labels(self.header.names)
        table = self._frame.to_native()
        for name, texts in self._texts.items():
            declared = by_column.get(name, frozenset())
            if declared & set(texts.values()):
                # Convert each code separately: unchanged if it is declared, otherwise to its text.
                codes, keys = design.labels(self._frame[name])
                words = tuple(key if key in declared else texts.get(key, key) for key in keys)
                column = stored.texts_of(RawColumn(codes=codes, labels=words))
                table = table.set_column(table.column_names.index(name), name, column)
        return memory.Memory(table, self._of_units)


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
            labelled = [column for column in texts if texts[column]][:20]
            listed = ", ".join(map(repr, labelled)) or "none"
            raise SchemaError(
                f"Column {name!r} has no labels in {path.name}. Columns with labels: {listed}."
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
    # Arrow types, from ReadStat's type names and the written formats.
    dates, words = pa.date32(), pa.large_string()
    types: dict[str, Any] = {}
    for name, kind in meta.readstat_variable_types.items():
        if _DATES.match(meta.original_variable_types[name]):
            types[name] = dates
        else:
            types[name] = words if kind.startswith("string") else pa.type_for_alias(kind)
    texts = {
        name: {
            str(schema.label_key(code)): text
            for code, text in code_texts.items()
            # Stata's missing values .a to .z are texts among numbers
            if isinstance(code, str) == (types[name] == words)
            and not any(m["lo"] <= code <= m["hi"] for m in meta.missing_ranges.get(name, ()))
        }
        for name, code_texts in meta.variable_value_labels.items()
    }
    if not rows:
        return None, texts
    frame, _ = read(path, disable_datetime_conversion=True)
    columns = []
    for name, kind in types.items():
        values = frame[name]
        if kind == dates:
            columns.append(pa.nulls(len(values), kind))
        elif kind == words:
            columns.append(pa.array([word or None for word in values], kind, from_pandas=True))
        else:
            numbers = pa.array(values.to_numpy(np.float64), from_pandas=True)
            columns.append(numbers.cast(kind, safe=False))
    return pa.table(columns, names=list(types)), texts


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


# -- Parquet and CSV files, and relations ----------------------------------------------------------

SUFFIXES = (".parquet", ".pq", ".csv")
READ_WHOLE = (".parquet", ".csv", ".feather", ".arrow")
_SINGLE = f"Single files may also end in {', '.join(LABELLED_FILES)}."


class HeldTexts(memory.Memory):
    """A CSV file in memory: texts, until it is known which columns hold labels."""

    __slots__ = ()

    def typed(self, labels: schema.LabelColumns) -> memory.Memory:
        """These rows with numbers and labels. Units are the texts as written."""
        table, names = self._frame.to_native(), self.header.names
        units = _typed(table, dict.fromkeys(names, frozenset()))
        made = memory.Memory(_typed(table, labels(names)), design.open_frame(units))
        made.header = replace(made.header, untyped=True)
        return made


def read_file(path: Path) -> memory.RowSource:
    """Read a table into memory.

    Raises
    ------
    DataError
        The suffix is unknown, or the content does not match the suffix. The reader's own message
        is not shown, because it quotes rows.
    """
    import pyarrow as pa
    from pyarrow import csv, feather, parquet

    suffix, table = path.suffix.lower(), None
    if suffix not in READ_WHOLE:
        ends = ", ".join(READ_WHOLE)
        raise DataError(f"{path.name} cannot be read. Supported files end in {ends}. {_SINGLE}")
    try:
        if suffix == ".parquet":
            table = parquet.read_table(path, partitioning=None)
        elif suffix == ".csv":  # every column is text
            with csv.open_csv(path) as reader:
                texts = dict.fromkeys(reader.schema.names, pa.large_string())
            options = csv.ConvertOptions(column_types=texts)
            table = csv.read_csv(path, convert_options=options)
        else:
            table = feather.read_table(path, memory_map=False)
    except Exception:  # any error message may quote a row
        pass
    if table is None:
        raise DataError(f"{path.name} is not a complete {suffix[1:]} file.")
    if suffix != ".csv":
        return memory.Memory(table)
    check_header(table.column_names, path)
    held = HeldTexts(table)
    held.header = replace(held.header, untyped=True)
    return held


def check_header(names: Sequence[str], path: Path) -> None:
    """Refuse a first line that may be a row. It would be read as names, and names are public.

    Raises
    ------
    DataError
        A field is empty, reads as a number or a missing value, has no letter (for example a date),
        or occurs twice. The message contains no part of the line.
    """
    words, blanks = [name.strip() for name in names], {t.casefold() for t in stored.BLANKS}
    values = [
        not any(map(str.isalpha, word))
        or word.casefold() in blanks
        or not math.isnan(stored.number_of(word))
        for word in words
    ]
    if len(set(names)) < len(names) or any(values):
        raise DataError(
            f"{path.name}: the first line must contain the column names, but a field is empty, a "
            "number, a date, or a duplicate. The line may hold private data, so it is not "
            "shown. Write the file with a header: to_csv(index=False)."
        )


def _typed(table: Any, labels: Mapping[str, frozenset[str]]) -> Any:
    """The columns of a CSV file as texts where they have `labels`, else as numbers.

    Most readers guess types from the values. One row would then decide how all other rows are
    read. Here each value is read separately, and unreadable values are missing.
    """
    import pyarrow as pa

    columns = [
        stored.typed_column(texts.combine_chunks(), labels.get(column))
        for column, texts in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.table(columns, names=table.column_names)


def open_relation(relation: Any) -> stored.Stored:
    """Open a DuckDB relation, whose rows may come in another order each time."""
    try:
        return stored.Stored(relation, ordered=False)
    except DataError:
        raise
    except Exception:
        pass
    raise DataError(
        "The DuckDB relation cannot be opened. Check that its connection is still open."
    )


FOLDERS = (
    "It is in the names of the folders, which are not read. Pass a DuckDB relation instead: "
    "duckdb.sql(\"SELECT * FROM read_parquet('folder/**/*.parquet', hive_partitioning=true)\")."
)


def open_path(path: str | os.PathLike[str]) -> memory.RowSource:
    """Open a Parquet or CSV file, a folder of files, or a pattern such as ``"visits/*.parquet"``.

    A single Stata, SPSS or R file is also accepted, and is held in memory.

    Raises
    ------
    DataError
        The file does not exist or is incomplete, or the files differ in columns or types. The
        message contains no content of the files.
    """
    place = Path(path)
    if place.suffix.lower() in LABELLED_FILES and place.is_file():
        return Labelled(place)
    text = os.fspath(path)
    if place.is_dir():
        # As in Spark and Hive, names that begin with a dot or an underscore are excluded. An
        # editor's copy or the leftovers of a failed job would count rows twice.
        inside = [p for p in sorted(place.rglob("*")) if p.suffix.lower() in SUFFIXES]
        named = [(p, p.relative_to(place).parts) for p in inside if p.is_file()]
        files = [p for p, names in named if not any(n.startswith((".", "_")) for n in names)]
        where = f"The folder {text!r} contains no file that ends in {', '.join(SUFFIXES)}."
    elif place.is_file():
        files, where = [place], ""
    else:
        files = [p for p in map(Path, sorted(glob.glob(text, recursive=True))) if p.is_file()]
        where = f"File {text!r} does not exist."
    if not files:
        raise DataError(where)
    suffix, *others = {p.suffix.lower() for p in files}
    if not {suffix, *others} <= set(SUFFIXES):
        ends = ", ".join(SUFFIXES)
        raise DataError(f"{text!r} cannot be read. Supported files end in {ends}. {_SINGLE}")
    if ".csv" in (suffix, *others) and others:
        raise DataError(f"{text!r} contains CSV and Parquet files. Select only one kind.")
    for file in files:
        if glob.escape(str(file)) != str(file):
            raise DataError(
                f"{str(file)!r}: a path that contains *, ? or [ cannot be read. Rename the file or "
                "folder."
            )
    opened = ExitStack()
    try:
        made = (_open_csv if suffix == ".csv" else _open_parquet)(files, opened)
    except BaseException:
        opened.close()
        raise
    folders = {part.partition("=")[0] for file in files for part in file.parts[:-1] if "=" in part}
    made.header = replace(made.header, advice=dict.fromkeys(folders, FOLDERS))
    return made


def _open_parquet(files: Sequence[Path], opened: ExitStack) -> stored.Stored:
    import pyarrow.parquet

    # Names and types. They are at the end of a file, so a truncated file has lost them.
    schemas: list[dict[str, str]] = []
    for file in files:
        read = partial(pyarrow.parquet.read_schema, file)
        footer = _opened(read, [file], "Parquet")
        _check_names(footer.names, file)
        schemas.append(dict(zip(footer.names, map(str, footer.types), strict=True)))
    first = schemas[0]
    for types, file in zip(schemas, files, strict=True):
        for name in first:
            if name not in types:
                raise DataError(
                    f"Column {name!r} is missing from {file.name}, but {files[0].name} has it."
                )
            if types[name] != first[name]:
                raise DataError(
                    f"Column {name!r} has type {types[name]} in {file.name}, but type "
                    f"{first[name]} in {files[0].name}. Write all files with the same type."
                )
    paths = ", ".join(sql_text(str(file)) for file in files)
    scan = f"SELECT * FROM read_parquet([{paths}], hive_partitioning=false)"
    relation = _opened(lambda: stored.database(opened).sql(scan), files, "Parquet")
    made = stored.Stored(relation, opened, ordered=True)
    read_as = zip(relation.columns, map(str, relation.types), strict=True)
    cut = {n for n, kind in read_as if kind == "DOUBLE" and first[n].startswith("decimal")}
    made.header = replace(made.header, inexact=frozenset(cut))
    return made


_WHOLE_FILE = {
    "Parquet": "",
    "CSV": " It must be uncompressed UTF-8 text, separated by commas, with one value per column "
    "in each row.",
}


def _opened(step: Any, files: Sequence[Path], kind: str) -> Any:
    """Run a step of opening, before any budget is spent."""
    try:
        return step()
    except Exception:
        pass
    names = files[0].name if len(files) == 1 else f"One of the files like {files[0].name!r}"
    raise DataError(f"{names} is not a complete {kind} file.{_WHOLE_FILE[kind]}")


def _check_names(names: Sequence[str], file: Path) -> None:
    """Refuse names that differ only in case, because DuckDB would rename one of the two columns."""
    if len(set(names)) < len(names):
        raise DataError(f"{file.name}: two columns have the same name. Rename one.")
    if len({name.casefold() for name in names}) < len(names):
        raise DataError(
            f"{file.name}: the names of two columns differ only in upper and lower case. Rename "
            "one."
        )


def _open_csv(files: Sequence[Path], opened: ExitStack) -> stored.Stored:
    """Read all values as texts: guessing types from values would let one row decide for all."""
    headers: list[list[str]] = []
    for file in files:

        def first_line(file: Path = file) -> list[str]:
            with file.open(encoding="utf-8-sig", newline="") as lines:
                return next(csv.reader(lines))

        headers.append(_opened(first_line, [file], "CSV"))
        check_header(headers[-1], file)
        _check_names(headers[-1], file)
    names = headers[0]
    for other, file in zip(headers, files, strict=True):
        if other != names:
            what = "column orders" if sorted(other) == sorted(names) else "column names"
            raise DataError(f"{file.name} and {files[0].name} have different {what}.")
    paths = ", ".join(sql_text(str(file)) for file in files)
    columns = ", ".join(f"{sql_text(name)}: 'VARCHAR'" for name in names)
    scan = (
        f"SELECT * FROM read_csv([{paths}], auto_detect=false, header=true, delim=',', quote='\"', "
        f"escape='\"', columns={{{columns}}})"
    )
    relation = _opened(lambda: stored.database(opened).sql(scan), files, "CSV")
    table = stored.Stored(relation, opened, ordered=True, levels={})
    # Counting rows detects a truncated row before any budget is spent.
    _opened(table.size, files, "CSV")
    return table
