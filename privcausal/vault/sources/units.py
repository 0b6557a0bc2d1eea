"""Which rows of units count, where DuckDB reads the rows: found by its queries, kept in its tables.

Python holds one batch at a time, however many rows and units there are. The tables are in memory,
in a database of their own: some tens of bytes a row while rows are ranked, one byte afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeAlias

import numpy as np

from privcausal.errors import DataError
from privcausal.typing import Integers, Mask
from privcausal.vault import guard
from privcausal.vault.batch import RawColumn
from privcausal.vault.sources.memory import Blocks, text_key

Parts: TypeAlias = Callable[[Sequence[str]], Integers]
"""From names of units to their parts: that of a unit depends on its name only."""

Stream: TypeAlias = tuple[Any, Iterator[Any]]
"""An Arrow schema, and batches of it."""

Batches: TypeAlias = Callable[[Any], Any]
"""From a DuckDB relation to an Arrow reader of it."""

MarkedBlock: TypeAlias = tuple[slice, Mapping[str, RawColumn], Mask, Integers]
"""A block of rows, which of them count, and the part of each."""

_FAILED = (
    "the rows of units could not be read to their end and ranked: the file is damaged, was changed "
    "while it was read, or there is too little memory, of which this takes some tens of bytes for "
    "each row. DuckDB's own message is not shown, because it may quote a row"
)


def _read(step: Callable[[], Any]) -> Any:
    return guard.shielded(step, _FAILED)


class Connections:
    """Databases in memory that are closed together, and not when Python happens to forget them."""

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


class Units(guard.Opaque):
    """The units of one table's rows, asked for by queries over their names.

    `names` gives a new stream of each row's `place`, and the name of its `unit` or null.
    """

    __slots__ = ("_batches", "_names", "_opened", "_size", "_work")

    def __init__(self, opened: Connections, names: Callable[[], Stream], batches: Batches) -> None:
        self._opened = opened
        self._names = names
        self._batches = batches
        self._size: int | None = None
        self._work: Any = None  # a database with the table `units`, each of them once

    def size(self) -> int:
        """Number of units, public under substitution only."""
        if self._size is None:
            self._find()
            found = _read(lambda: self._work.execute("SELECT count(*) FROM units").fetchall())
            self._size = int(found[0][0])
        return self._size

    def marks(self, max_rows: int, parts: Parts | None) -> Marks:
        """Which rows count, as by `batch.first_rows`, and the part of each (None: all in 0)."""
        self._find()
        units, part = "units", "0"
        if parts is not None:
            self._deal(parts)
            units, part = "dealt", "part"
        # names are looked up before rows are ranked: whole numbers take less memory
        ranked = f"""
            SELECT (CASE WHEN unit IS NOT NULL AND rank <= {int(max_rows)} THEN part ELSE -1 END
                   )::TINYINT AS mark
            FROM (SELECT place, unit, part,
                         row_number() OVER (PARTITION BY unit ORDER BY place) AS rank
                  FROM (SELECT place, {units}.rowid AS unit, {part} AS part
                        FROM given LEFT JOIN {units} USING (unit)))
            ORDER BY place
            """
        stored_table(self._work, "marks", ranked, self._names())
        # with its database goes the memory that ranking took
        kept = self._opened.new()
        marks = _read(lambda: self._batches(self._work.table("marks")))
        stored_table(kept, "marks", "FROM given", (marks.schema, marks))
        self._work.close()
        self._work = None
        return Marks(kept, self._batches)

    def _find(self) -> None:
        """Each unit once."""
        if self._work is None:
            work = self._opened.new()
            # of rows that stream in DuckDB knows no number: the table is to be looked up in
            work.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
            each = "SELECT DISTINCT unit FROM given WHERE unit IS NOT NULL"
            stored_table(work, "units", each, self._names())
            self._work = work

    def _deal(self, parts: Parts) -> None:
        """The part of each unit: Python has the keyed hash, and is shown each name once."""
        import pyarrow as pa

        with closing(self._work.cursor()) as beside:
            query = "SELECT unit, unit::VARCHAR FROM units"
            names = _read(lambda: self._batches(beside.sql(query)))
            schema = pa.schema([names.schema.field(0), pa.field("part", pa.int8())])

            def dealt() -> Iterator[Any]:
                for batch in names:
                    part = pa.array(parts([*map(text_key, batch.column(1).to_pylist())]), pa.int8())
                    yield pa.record_batch([batch.column(0), part], schema)

            stored_table(self._work, "dealt", "FROM given", (schema, dealt()))


def stored_table(connection: Any, table: str, query: str, given: Stream) -> None:
    """A new table of what a query gives over the stream `given`."""
    import pyarrow as pa

    schema, batches = given
    pressed = False

    def watched() -> Iterator[Any]:
        nonlocal pressed
        try:
            yield from batches
        except KeyboardInterrupt:  # which DuckDB would make an error of its own
            pressed = True
            raise

    def step() -> None:
        reader = pa.RecordBatchReader.from_batches(schema, watched())
        connection.register("given", reader)
        connection.execute(f"CREATE OR REPLACE TABLE {table} AS {query}").fetchall()
        connection.unregister("given")

    try:
        _read(step)
    except DataError:
        if pressed:
            raise KeyboardInterrupt from None
        raise


class Marks(guard.Opaque):
    """The part of each row, or -1 where it does not count, in the order of the rows."""

    __slots__ = ("_batches", "_connection")

    def __init__(self, connection: Any, batches: Batches) -> None:
        self._connection = connection
        self._batches = batches

    def beside(self, blocks: Blocks) -> Iterator[MarkedBlock]:
        """The blocks of a whole pass, with what is known of their rows."""
        # a pass may end before its time, and leave its answer half read
        with closing(self._connection.cursor()) as own:
            reader = _read(lambda: self._batches(own.table("marks")))
            ahead = np.zeros(0, np.int8)
            for at, columns in blocks:
                rows = at.stop - at.start
                while len(ahead) < rows:
                    batch = _read(lambda: next(reader, None))
                    if batch is None:
                        raise guard.Unreadable(_FAILED)
                    ahead = np.concatenate([ahead, batch.column(0).to_numpy()])
                marks, ahead = ahead[:rows], ahead[rows:]
                yield at, columns, marks >= 0, np.maximum(marks, 0).astype(np.int64)
