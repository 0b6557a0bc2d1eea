"""Rows in files or in a DuckDB relation, streamed as Arrow batches of the columns asked for.

The numbers are those of the same table in memory, to the bit: each value is read by itself, by the
functions that read a frame's columns.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from privcausal.errors import DataError
from privcausal.spec.cell_query import quoted
from privcausal.spec.columns import Header, LabelColumns, header, named, numbers
from privcausal.typing import Integers
from privcausal.vault.batch import RawColumn
from privcausal.vault.sealed import Sealed
from privcausal.vault.sources.base import Unreadable
from privcausal.vault.sources.files import check_header, typed_column
from privcausal.vault.sources.memory import cut
from privcausal.vault.sources.units import Marks, Parts, Stream, Units

STREAM = 1 << 17
"""Rows of an Arrow batch; the vault's own blocks are cut from it."""

SUFFIXES = (".parquet", ".pq", ".csv")

_WHOLE = {f"{sign}{size}INT" for sign in ("", "U") for size in ("TINY", "SMALL", "BIG")} | {
    "INTEGER",
    "UINTEGER",
}
_SAME: dict[bool, set[str]] = {
    False: {"FLOAT", "DOUBLE", "BOOLEAN", *_WHOLE},
    True: {"VARCHAR", "ENUM", *_WHOLE},
}
"""DuckDB types that a cast turns into the numbers, or the labels, of the vault."""

_UNREADABLE = (
    "the rows could not be read to their end: the file is damaged, or was changed while it was "
    "read. The reader's own message is not shown, because it may quote a row"
)


class Stored(Sealed):
    """Rows that DuckDB reads anew each time: nothing but one batch is held in memory.

    A whole column is held only where the curator asks for it.
    """

    __slots__ = (
        "_known", "_labels", "_opened", "_relation", "_size", "_units", "header", "ordered",
    )  # fmt: skip
    held = False

    def __init__(
        self,
        relation: Any,
        opened: Connections | None = None,
        *,
        ordered: bool,
        known: Mapping[str, frozenset[str]] | None = None,
        columns: Header | None = None,
    ) -> None:
        self._relation = relation
        self._opened = Connections() if opened is None else opened
        self._known = known  # labels by column, of a table of texts; None: it has types
        self._labels: dict[str, RawColumn] = {}
        self._size: int | None = None
        self._units: dict[str, Units] = {}
        self.ordered = ordered
        found = header_of(relation) if columns is None else columns
        self.header: Header = replace(found, untyped=known is not None)

    def size(self) -> int:
        """Number of rows: private under add_remove, so only the vault may ask."""
        if self._size is None:
            self._size = int(read(lambda: self._relation.aggregate("count(*)").fetchall()[0][0]))
        return self._size

    def units(self, unit: str) -> int:
        """Number of units, public under substitution."""
        return self._of_units(unit).size()

    def marks(self, unit: str, max_rows: int, parts: Parts | None) -> Marks:
        """Which rows count, the first `max_rows` of each unit by their place; and their parts."""
        return self._of_units(unit).marks(max_rows, parts)

    def _of_units(self, unit: str) -> Units:
        if unit not in self._units:
            self._units[unit] = Units(self._opened, lambda: self._names(unit), _batches)
        return self._units[unit]

    def _names(self, unit: str) -> Stream:
        """Of each row its place, and its unit's name or null.

        Names of a plain type are compared as they are, others as the vault reads them.
        """
        import pyarrow as pa

        kind = pa.large_string()
        plain = self._reads_alike(unit, labels=True)
        if plain:
            empty = self._relation.project(quoted(unit)).limit(0)
            kind = read(lambda: empty.to_arrow_table().schema.field(0).type)
        schema = pa.schema([("place", pa.int64()), ("unit", kind)])

        def batches() -> Iterator[Any]:
            start = 0
            for batch in self._stream([unit]):
                stop = start + batch.num_rows
                names = batch.column(0)
                if not plain:
                    names = texts_of(self._raw(unit, names, True))
                yield pa.record_batch([pa.array(np.arange(start, stop)), names], schema)
                start = stop

        return schema, batches()

    def column(self, name: str, *, as_labels: bool) -> RawColumn:
        if not as_labels:
            parts = [np.zeros(0)]
            for _, columns in self.blocks([(name, False)], STREAM):
                block = columns[name].numbers
                assert block is not None
                parts.append(block)
            return RawColumn(numbers=np.concatenate(parts))
        if name not in self._labels:
            self._labels[name] = self._whole_labels(name)
        return self._labels[name]

    def _whole_labels(self, name: str) -> RawColumn:
        position: dict[str, int] = {}
        parts = [np.zeros(0, np.int64)]
        for _, columns in self.blocks([(name, True)], STREAM):
            block = columns[name]
            assert block.codes is not None
            lookup = [position.setdefault(label, len(position)) for label in block.labels]
            parts.append(np.array([*lookup, -1], np.int64)[block.codes])
        return RawColumn(codes=np.concatenate(parts), labels=tuple(position))

    def blocks(
        self, wanted: Sequence[tuple[str, bool]], rows: int
    ) -> Iterator[tuple[slice, Mapping[str, RawColumn]]]:
        """Blocks of at most `rows` rows with the wanted (column, as_labels) pairs."""
        start, size = 0, self.size()
        for batch in self._stream([name for name, _ in wanted]):
            if start + batch.num_rows > size:
                raise Unreadable(_UNREADABLE)
            whole = {
                name: self._raw(name, batch.column(at), as_labels)
                for at, (name, as_labels) in enumerate(wanted)
            }
            for first in range(0, batch.num_rows, rows):
                last = min(first + rows, batch.num_rows)
                at_rows = slice(start + first, start + last)
                yield at_rows, {name: cut(c, slice(first, last)) for name, c in whole.items()}
            start += batch.num_rows
        if start != size:
            raise Unreadable(_UNREADABLE)

    def _stream(self, names: Sequence[str]) -> Iterator[Any]:
        """Arrow batches of these columns; the others are never read."""
        columns = ", ".join(map(quoted, names))
        reader = read(lambda: _batches(self._relation.project(columns)))
        while (batch := read(lambda: next(reader, None))) is not None:
            yield batch

    def _raw(self, name: str, array: Any, as_labels: bool) -> RawColumn:
        if self._known is not None:
            array = typed_column(array, self._known.get(name))
        return labels_of(array) if as_labels else RawColumn(numbers=numbers_of(array))

    def typed(self, labels: LabelColumns) -> Stored:
        """A table of texts with the types that its formula and schema give it."""
        if self._known is None:
            return self
        known = labels(self.header.names)
        kinds = {n: "text" if n in known else "numeric" for n in self.header.names}
        found = Stored(
            self._relation, self._opened, ordered=self.ordered, known=known,
            columns=Header(kinds),  # type: ignore[arg-type]  # two of the literals
        )  # fmt: skip
        found._units = self._units  # to be closed with these
        return found

    def close(self) -> None:
        self._units.clear()
        self._opened.close()

    def counted(self, statement: str, wanted: Sequence[tuple[str, bool]]) -> Integers | None:
        """The query's rows of whole numbers, where its columns are read as the vault reads them.

        Texts of a CSV file become numbers by a rule of this package, and labels of numbers are
        written by it, so that neither is left to SQL.
        """
        if not all(self._reads_alike(name, labels) for name, labels in wanted):
            return None
        found = read(lambda: self._relation.query("data", statement))
        rows = read(found.fetchall)  # none at all, where no row is complete
        return np.array(rows, dtype=np.int64).reshape(len(rows), len(found.columns))

    def _reads_alike(self, name: str, labels: bool) -> bool:
        """Whether SQL reads the column's numbers, or labels, as the vault does."""
        if self._known is not None:
            return False
        types = dict(zip(self._relation.columns, map(str, self._relation.types), strict=True))
        return types[name].partition("(")[0] in _SAME[labels]


def _batches(relation: Any) -> Any:
    # the second is what DuckDB before 1.4 calls the first
    stream = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch
    return stream(STREAM)


def read(step: Any) -> Any:
    """A step of the reader, whose own message may quote a row."""
    try:
        return step()
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException:  # a panic of polars is no Exception
        pass
    raise Unreadable(_UNREADABLE)


def header_of(relation: Any) -> Header:
    """Names and kinds, from an empty table of the relation's types."""
    import narwhals as nw

    names = list(relation.columns)
    if len(set(names)) < len(names):
        raise DataError("two columns of the data have one name; rename one")
    return header(nw.from_native(relation.limit(0).to_arrow_table(), eager_only=True))


def numbers_of(array: Any) -> Any:
    """The values of an Arrow array as a frame's are read, of whatever type until they are `cut`."""
    plain = array.to_numpy(zero_copy_only=False)
    return plain if plain.dtype.kind in "fiu" else numbers(_series(array))


def _series(array: Any) -> Any:
    import narwhals as nw
    import pyarrow as pa

    return nw.from_native(pa.chunked_array([array]), series_only=True)


def labels_of(array: Any) -> RawColumn:
    """Codes of the batch into the texts of its own labels; -1 is missing."""
    import pyarrow as pa

    coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    codes, names = named(
        coded.indices.cast(pa.int64()).fill_null(-1).to_numpy(), coded.dictionary.to_pylist()
    )
    return RawColumn(codes=codes, labels=names)


def texts_of(column: RawColumn) -> Any:
    """The labels of each row as an Arrow array, null where one is missing."""
    import pyarrow as pa

    assert column.codes is not None
    return pa.array(column.labels, pa.large_string()).take(
        pa.array(column.codes, mask=column.codes < 0)
    )


# -- opening ---------------------------------------------------------------------------------


def is_relation(value: object) -> bool:
    """Whether this is a DuckDB relation, without importing DuckDB."""
    return type(value).__name__ == "DuckDBPyRelation"


def open_relation(relation: Any) -> Stored:
    """A DuckDB relation, whose rows may come in another order each time."""
    try:
        return Stored(relation, ordered=False)
    except DataError:
        raise
    except Exception:
        pass
    raise DataError("the DuckDB relation cannot be opened; is its connection closed?")


def open_path(path: str | os.PathLike[str]) -> Stored:
    """A Parquet or CSV file, a folder of them, or a pattern such as ``"visits/*.parquet"``.

    Raises
    ------
    DataError
        There is no such file, it is not whole, or the files differ in columns or types. Nothing of
        what the files hold is told.
    """
    files = _files(os.fspath(path))
    suffix = files[0].suffix.lower()
    opened = Connections()
    try:
        return (_open_csv if suffix == ".csv" else _open_parquet)(files, opened)
    except BaseException:
        opened.close()
        raise


class Connections:
    """Databases in memory that are closed together.

    Python would close each when it forgets it, which may be at its end: rows would stay till then.
    """

    def __init__(self) -> None:
        self._open: list[Any] = []

    def new(self) -> Any:
        import duckdb

        connection = duckdb.connect()
        self._open.append(connection)
        # rows of a file are known by their position
        connection.execute("SET preserve_insertion_order = true; SET enable_progress_bar = false")
        connection.execute("SET temp_directory = ''")  # rows are never spilled to a folder
        return connection

    def close(self) -> None:
        while self._open:
            self._open.pop().close()


def _open_parquet(files: Sequence[Path], opened: Connections) -> Stored:
    _check_alike([_parquet_schema(file) for file in files], files)
    paths = ", ".join(map(_literal, files))
    scan = f"SELECT * FROM read_parquet([{paths}], hive_partitioning=false)"
    relation = _opened(lambda: opened.new().sql(scan), files, "Parquet")
    return Stored(relation, opened, ordered=True)


def _files(text: str) -> list[Path]:
    """The files that are meant, sorted by name; all of one kind."""
    place = Path(text)
    if place.is_dir():
        found = [p for p in sorted(place.rglob("*")) if _is_table(p, place)]
        where = f"the folder {text!r} holds no file that ends in {', '.join(SUFFIXES)}"
    elif place.is_file():
        found, where = [place], ""
    else:
        found = [p for p in map(Path, sorted(glob.glob(text, recursive=True))) if p.is_file()]
        where = f"there is no file {text!r}"
    if not found:
        raise DataError(where)
    suffixes = {p.suffix.lower() for p in found}
    if not suffixes <= set(SUFFIXES):
        raise DataError(f"{text!r} cannot be read; known files end in {', '.join(SUFFIXES)}")
    if ".csv" in suffixes and len(suffixes) > 1:
        raise DataError(f"{text!r} holds CSV and Parquet files; name one kind")
    for file in found:
        if glob.escape(str(file)) != str(file):
            raise DataError(
                f"{str(file)!r}: a path with *, ? or [ cannot be read; rename the file or folder"
            )
    return found


def _is_table(path: Path, folder: Path) -> bool:
    """Whether a path inside a folder is one of its files, and not one that is being written.

    As for Spark and Hive, names that begin with a dot or an underscore are not of the table: a
    copy that an editor keeps, or a failed job's leftovers, would count rows twice.
    """
    hidden = any(name.startswith((".", "_")) for name in path.relative_to(folder).parts)
    return path.suffix.lower() in SUFFIXES and not hidden and path.is_file()


def _literal(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


_WHOLE_FILE = {
    "Parquet": "",
    "CSV": ": text in UTF-8, not compressed, with commas, and as many fields in each row as names",
}


def _opened(step: Any, files: Sequence[Path], kind: str) -> Any:
    """A step of opening, before anything is spent."""
    try:
        return step()
    except Exception:
        pass
    names = files[0].name if len(files) == 1 else f"one of {files[0].name!r} and its like"
    raise DataError(f"{names} is not a whole {kind} file{_WHOLE_FILE[kind]}")


def _parquet_schema(file: Path) -> dict[str, str]:
    """Names and types; a file that was cut off has lost them, since they stand at its end."""
    import pyarrow.parquet

    found = _opened(lambda: pyarrow.parquet.read_schema(file), [file], "Parquet")
    _check_names(found.names, file)
    return dict(zip(found.names, map(str, found.types), strict=True))


def _check_names(names: Sequence[str], file: Path) -> None:
    """DuckDB would give one of two columns another name where they differ in case alone."""
    if len(set(names)) < len(names):
        raise DataError(f"{file.name}: two columns have one name; rename one")
    if len({name.casefold() for name in names}) < len(names):
        raise DataError(f"{file.name}: two columns differ only in upper and lower case; rename one")


def _check_alike(schemas: Sequence[Mapping[str, str]], files: Sequence[Path]) -> None:
    first = schemas[0]
    for schema, file in zip(schemas, files, strict=True):
        for name in first:
            if name not in schema:
                raise DataError(f"{file.name} lacks the column {name!r}, which {files[0].name} has")
            if schema[name] != first[name]:
                raise DataError(
                    f"column {name!r} is of type {schema[name]} in {file.name} and of type "
                    f"{first[name]} in {files[0].name}; write the files with one type"
                )


def _open_csv(files: Sequence[Path], opened: Connections) -> Stored:
    """All values as texts: to guess types from the values would let one row decide for all."""
    headers = [_csv_names(file) for file in files]
    names = headers[0]
    for other, file in zip(headers, files, strict=True):
        if other != names:
            what = "in another order" if sorted(other) == sorted(names) else "with other names"
            raise DataError(f"{file.name} has its columns {what}: it differs from {files[0].name}")
    paths = ", ".join(map(_literal, files))
    columns = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in names)
    scan = (
        f"SELECT * FROM read_csv([{paths}], auto_detect=false, header=true, delim=',', quote='\"', "
        f"escape='\"', columns={{{columns}}})"
    )
    relation = _opened(lambda: opened.new().sql(scan), files, "CSV")
    table = Stored(relation, opened, ordered=True, known={})
    # a row that was cut off is found by counting, before anything is spent
    _opened(table.size, files, "CSV")
    return table


def _csv_names(file: Path) -> list[str]:
    import csv

    def first() -> list[str]:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            return next(csv.reader(lines))

    names: list[str] = _opened(first, [file], "CSV")
    check_header(names, file)
    _check_names(names, file)
    return names


def _text(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"
