"""Rows that are read again for each pass: by DuckDB from files or a relation, or by polars.

The requested columns are streamed as Arrow batches. The numbers equal the numbers of the same table
in memory, to the bit: each value is read separately, by the functions for a frame's columns. A
relation's connection only gives columns. It evaluates none of the vault's functions, types, or
comparisons, because macros and settings, which a database file may bring, can redefine them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from privcausal.errors import DataError
from privcausal.features import design
from privcausal.request.partition import sql_name
from privcausal.request.schema import Header, LabelColumns, label_key
from privcausal.typing import Integers, Mask
from privcausal.vault.batch import RawColumn
from privcausal.vault.guard import Opaque, Unreadable, shielded
from privcausal.vault.sources import memory

STREAM = 1 << 17
"""Rows of an Arrow batch; the vault's own blocks are slices of a batch."""

_UNREADABLE = (
    "Not all rows could be read. The file is damaged, or was changed while it was being read. The "
    "reader's message is hidden because it may quote a row."
)

BLANKS = {"", "NA", "N/A", "#N/A", "NaN", "nan", "NULL", "null", "None"}
"""Texts in a CSV file that mean a missing value."""


# Which rows of units are used, found by queries and stored in DuckDB's tables.
#
# Python holds one batch at a time, regardless of the number of rows and units. The tables are in
# memory, in a separate database. They use some tens of bytes a row while rows are ranked, and one
# byte a row afterwards.

Parts: TypeAlias = Callable[[Sequence[str]], Integers]
"""From names of units to their parts; the part of a unit depends only on its name."""

Stream: TypeAlias = tuple[Any, Iterator[Any]]
"""An Arrow schema, and batches with this schema."""

MarkedBlock: TypeAlias = tuple[slice, Mapping[str, RawColumn], Mask, Integers]
"""A block of rows, a mask of the rows that are used, and the part of each row."""

_UNSORTED = (
    "The rows could not be read and sorted by unit. The file is damaged, was changed while it was "
    "being read, or memory ran out (sorting needs tens of bytes per row). DuckDB's message is "
    "hidden because it may quote a row."
)


def database(opened: ExitStack) -> Any:
    """A new database in memory, closed with `opened`, at a definite time rather than by Python."""
    import duckdb

    connection = duckdb.connect()
    opened.callback(connection.close)
    # rows of a file are identified by position
    connection.execute("SET preserve_insertion_order = true; SET enable_progress_bar = false")
    connection.execute("SET temp_directory = ''")  # never write rows to a temporary folder
    return connection


def stored_table(connection: Any, table: str, query: str, given: Stream) -> None:
    """Create a table from a query over the stream `given`."""
    import pyarrow as pa

    schema, batches = given
    pressed = False

    def watched() -> Iterator[Any]:
        nonlocal pressed
        try:
            yield from batches
        except KeyboardInterrupt:  # DuckDB would convert it to its own error
            pressed = True
            raise

    def step() -> None:
        reader = pa.RecordBatchReader.from_batches(schema, watched())
        connection.register("given", reader)
        connection.execute(f"CREATE OR REPLACE TABLE {table} AS {query}").fetchall()
        connection.unregister("given")

    try:
        shielded(step, _UNSORTED)
    except DataError:
        if pressed:
            raise KeyboardInterrupt from None
        raise


class Marks(Opaque):
    """The part of each row in the order of the rows; -1 if the row is not used."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def beside(self, blocks: memory.Blocks) -> Iterator[MarkedBlock]:
        """The blocks of a whole pass, with the mask and parts of their rows."""
        # a pass may end early, with its answer half read
        with closing(self._connection.cursor()) as cursor:
            reader = shielded(lambda: _batches(cursor.table("marks")), _UNSORTED)
            ahead = np.zeros(0, np.int8)
            for at, columns in blocks:
                rows = at.stop - at.start
                while len(ahead) < rows:
                    batch = shielded(lambda: next(reader, None), _UNSORTED)
                    if batch is None:
                        raise Unreadable(_UNSORTED)
                    ahead = np.concatenate([ahead, batch.column(0).to_numpy()])
                marks, ahead = ahead[:rows], ahead[rows:]
                yield at, columns, marks >= 0, np.maximum(marks, 0).astype(np.int64)


# -- the rows --------------------------------------------------------------------------------------


class Stored(memory.RowSource):
    """Rows that DuckDB reads again each time; only one batch is held in memory.

    A whole column is held only if the data holder requests it.
    """

    __slots__ = (
        "_counts", "_distinct", "_labels", "_levels", "_opened", "_relation", "_size", "header",
        "ordered",
    )  # fmt: skip
    held = False

    def __init__(
        self,
        relation: Any,
        opened: ExitStack | None = None,
        *,
        ordered: bool,
        levels: Mapping[str, frozenset[str]] | None = None,
        columns: Header | None = None,
    ) -> None:
        self._relation = relation
        self._opened = ExitStack() if opened is None else opened
        self._levels = levels  # by column, for a table of texts; None: it has types
        self._labels: dict[str, RawColumn] = {}
        self._size: int | None = None
        self._counts: dict[str, int] = {}  # of the units in a column
        self._distinct: dict[str, Any] = {}  # databases with a table `units`, one row per unit
        self.ordered = ordered
        if columns is None:  # Names and kinds, from an empty table of the relation's types.
            import narwhals as nw

            if len(set(relation.columns)) < len(relation.columns):
                raise DataError("Two columns of the data have the same name. Rename one.")
            empty = nw.from_native(relation.limit(0).to_arrow_table(), eager_only=True)
            columns = design.header(empty)
        self.header: Header = replace(columns, untyped=levels is not None)

    def size(self) -> int:
        if self._size is None:
            self._size = int(shielded(self._count, _UNREADABLE))
        return self._size

    def _count(self) -> Any:
        return sum(batch.num_rows for batch in _batches(self._relation.project("0")))

    def units(self, unit: str) -> int:
        """Number of units; public under substitution."""
        if unit not in self._counts:
            units = self._with_units(unit)
            count = "SELECT count(*) FROM units"
            rows = shielded(lambda: units.execute(count).fetchall(), _UNSORTED)
            self._counts[unit] = int(rows[0][0])
        return self._counts[unit]

    def marks(self, unit: str, max_rows: int, parts: Parts | None) -> Marks:
        """Which rows are used, as by `batch.first_rows`, and the part of each (None: all in 0)."""
        work, units, part = self._with_units(unit), "units", "0"
        if parts is not None:  # Python computes the keyed hash, and sees each name once.
            import pyarrow as pa

            units, part = "dealt", "part"
            with closing(work.cursor()) as beside:
                query = "SELECT unit, unit::VARCHAR FROM units"
                names = shielded(lambda: _batches(beside.sql(query)), _UNSORTED)
                schema = pa.schema([names.schema.field(0), pa.field("part", pa.int8())])
                batches = (
                    pa.record_batch([batch.column(0), pa.array(parts(keys), pa.int8())], schema)
                    for batch in names
                    for keys in [[*map(memory.text_key, batch.column(1).to_pylist())]]
                )
                stored_table(work, "dealt", "FROM given", (schema, batches))
        # Names are looked up before rows are ranked, because whole numbers take less memory.
        ranked = f"""
            SELECT (CASE WHEN unit IS NOT NULL AND rank <= {int(max_rows)} THEN part ELSE -1 END
                   )::TINYINT AS mark
            FROM (SELECT place, unit, part,
                         row_number() OVER (PARTITION BY unit ORDER BY place) AS rank
                  FROM (SELECT place, {units}.rowid AS unit, {part} AS part
                        FROM given LEFT JOIN {units} USING (unit)))
            ORDER BY place
            """
        stored_table(work, "marks", ranked, self._names(unit))
        # Copy the marks: closing the work database frees the memory that ranking took.
        copy = database(self._opened)
        marks = shielded(lambda: _batches(work.table("marks")), _UNSORTED)
        stored_table(copy, "marks", "FROM given", (marks.schema, marks))
        self._distinct.pop(unit).close()
        return Marks(copy)

    def _with_units(self, unit: str) -> Any:
        """A database with a table `units`, which stores each unit once."""
        if unit not in self._distinct:
            work = database(self._opened)
            # DuckDB does not know the number of streamed rows; the lookup must be in the stored
            # table.
            work.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
            distinct = "SELECT DISTINCT unit FROM given WHERE unit IS NOT NULL"
            stored_table(work, "units", distinct, self._names(unit))
            self._distinct[unit] = work
        return self._distinct[unit]

    def _names(self, unit: str) -> Stream:
        """The position and unit's name (or null) of each row; plain types are left unchanged."""
        import pyarrow as pa

        kind = shielded(lambda: self._type(unit), _UNREADABLE)
        is_plain = (pa.types.is_integer, pa.types.is_string, pa.types.is_dictionary)
        plain = self._levels is None and any(holds(kind) for holds in is_plain)
        kind = kind if plain else pa.large_string()
        schema = pa.schema([("place", pa.int64()), ("unit", kind)])

        def batches() -> Iterator[Any]:
            start = 0
            for batch in self._stream([unit]):
                stop = start + batch.num_rows
                names = batch.column(0)
                if not plain:
                    names = texts_of(self._raw(unit, names, "units"))
                yield pa.record_batch([pa.array(np.arange(start, stop)), names], schema)
                start = stop

        return schema, batches()

    def _type(self, name: str) -> Any:
        return self._relation.project(sql_name(name)).limit(0).to_arrow_table().schema.field(0).type

    def column(self, name: str, *, as_labels: memory.AsLabels) -> RawColumn:
        blocks = (columns[name] for _, columns in self.blocks([(name, as_labels)], STREAM))
        if not as_labels:
            numbers = [block.numbers for block in blocks if block.numbers is not None]
            return RawColumn(numbers=np.concatenate([np.zeros(0), *numbers]))
        if name not in self._labels:
            position: dict[str, int] = {}
            codes = [np.zeros(0, np.int64)]
            for block in blocks:
                assert block.codes is not None
                lookup = [position.setdefault(label, len(position)) for label in block.labels]
                codes.append(np.array([*lookup, -1], np.int64)[block.codes])
            self._labels[name] = RawColumn(codes=np.concatenate(codes), labels=tuple(position))
        return self._labels[name]

    def blocks(self, wanted: memory.Wanted, rows: int) -> memory.Blocks:
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
                part = {name: memory.cut_column(c, slice(first, last)) for name, c in whole.items()}
                yield slice(start + first, start + last), part
            start += batch.num_rows
        if start != size:
            raise Unreadable(_UNREADABLE)

    def _stream(self, names: Sequence[str]) -> Iterator[Any]:
        """Arrow batches of these columns; other columns are never read."""
        columns = ", ".join(map(sql_name, names))
        reader = shielded(lambda: _batches(self._relation.project(columns)), _UNREADABLE)
        while (batch := shielded(lambda: next(reader, None), _UNREADABLE)) is not None:
            yield batch

    def _raw(self, name: str, array: Any, as_labels: memory.AsLabels) -> RawColumn:
        # names of units are the texts as written, regardless of declarations
        if self._levels is not None:
            levels = frozenset[str]() if as_labels == "units" else self._levels.get(name)
            array = typed_column(array, levels)
        return arrow_column(array, as_labels)

    def typed(self, labels: LabelColumns) -> Stored:
        """A table of texts, with types from its formula and schema."""
        if self._levels is None:
            return self
        levels = labels(self.header.names)
        kinds = {n: "text" if n in levels else "numeric" for n in self.header.names}
        columns = Header(kinds)  # type: ignore[arg-type]  # two of the literals
        table = Stored(
            self._relation, self._opened, ordered=self.ordered, levels=levels, columns=columns
        )
        # closed together with these rows
        table._counts, table._distinct = self._counts, self._distinct
        return table

    def close(self) -> None:
        self._counts.clear()
        self._distinct.clear()
        self._opened.close()


class Lazy(Stored):
    """A query that polars runs again for each pass; only the requested columns are computed."""

    __slots__ = ()

    def __init__(self, frame: Any) -> None:
        import narwhals as nw

        empty = nw.from_native(frame.collect_schema().to_frame(eager=True), eager_only=True)
        # rows of a query may come in another order each time
        super().__init__(frame, ordered=False, columns=design.header(empty))

    def _count(self) -> Any:
        import polars as pl

        return self._relation.select(pl.len()).collect(engine="streaming").item()

    def _type(self, name: str) -> Any:
        return self._relation.select(name).head(0).collect().to_arrow().schema.field(0).type

    def _stream(self, names: Sequence[str]) -> Iterator[Any]:
        query = self._relation.select(list(names))
        # Older versions of polars hold the requested columns in memory.
        batches = shielded(
            lambda: iter(
                query.collect_batches(chunk_size=STREAM, engine="streaming")
                if hasattr(query, "collect_batches")
                else query.collect(engine="streaming").iter_slices(STREAM)
            ),
            _UNREADABLE,
        )
        while (batch := shielded(lambda: next(batches, None), _UNREADABLE)) is not None:
            yield from batch.to_arrow().to_batches()


def _batches(relation: Any) -> Any:
    # Older versions of DuckDB have the first method under the second name.
    stream = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch
    return stream(STREAM)


def arrow_column(array: Any, as_labels: memory.AsLabels) -> RawColumn:
    """A batch's column in the requested form; labels are codes into the batch's own texts."""
    import pyarrow as pa

    if as_labels:
        coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        key = partial(memory.unit_key, mixed=False) if as_labels == "units" else label_key
        codes, names = design.by_label(
            coded.indices.cast(pa.int64()).fill_null(-1).to_numpy(),
            design.plain_values(coded.dictionary),
            key,
        )
        return RawColumn(codes=codes, labels=names)
    numbers = array.to_numpy(zero_copy_only=False)  # of any type until they are sliced
    if numbers.dtype.kind not in "fiu":
        import narwhals as nw

        numbers = design.numbers(nw.from_native(pa.chunked_array([array]), series_only=True))
    return RawColumn(numbers=numbers)


def texts_of(column: RawColumn) -> Any:
    """The label of each row as an Arrow array, null if missing."""
    import pyarrow as pa

    assert column.codes is not None
    return pa.array(column.labels, pa.large_string()).take(
        pa.array(column.codes, mask=column.codes < 0)
    )


def typed_column(texts: Any, levels: frozenset[str] | None) -> Any:
    """An Arrow array of texts, as labels if there are `levels`, otherwise as float64."""
    import pyarrow as pa

    coded = texts.dictionary_encode()
    words = ["" if word is None else word for word in coded.dictionary.to_pylist()]
    indices = coded.indices
    if indices.null_count:  # an empty field
        indices, words = indices.fill_null(len(words)), [*words, ""]
    if levels is None:
        values = pa.array([number_of(word) for word in words], pa.float64())
    else:  # The labels as written, or as the declared number they mean ("3.0" for 3).
        labels: list[str | None] = []
        for word in words:
            number = label_key(number_of(word))
            if word in levels or (number not in levels and word not in BLANKS):
                labels.append(word)
            else:
                labels.append(number if number in levels else None)
        values = pa.array(labels, pa.large_string())
    return values.take(indices)


def number_of(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return {"true": 1.0, "false": 0.0}.get(word.strip().lower(), float("nan"))
