"""Which rows of units are used, if DuckDB reads the rows; found by queries, stored in its tables.

Python holds one batch at a time, regardless of the number of rows and units. The tables are in
memory, in a separate database. They use some tens of bytes a row while rows are ranked, and one
byte a row afterwards.
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
"""From names of units to their parts; the part of a unit depends only on its name."""

Stream: TypeAlias = tuple[Any, Iterator[Any]]
"""An Arrow schema, and batches with this schema."""

Batches: TypeAlias = Callable[[Any], Any]
"""From a DuckDB relation to its Arrow reader."""

MarkedBlock: TypeAlias = tuple[slice, Mapping[str, RawColumn], Mask, Integers]
"""A block of rows, a mask of the rows that are used, and the part of each row."""

_FAILED = (
    "The rows could not be read and sorted by unit. The file is damaged, was changed while it was "
    "being read, or memory ran out (sorting needs tens of bytes per row). DuckDB's message is "
    "hidden because it may quote a row."
)


def _read(step: Callable[[], Any]) -> Any:
    return guard.shielded(step, _FAILED)


class Connections:
    """Databases in memory that are closed together, at a definite time rather than by Python."""

    def __init__(self) -> None:
        self._open: list[Any] = []

    def new(self) -> Any:
        import duckdb

        connection = duckdb.connect()
        self._open.append(connection)
        # rows of a file are identified by position
        connection.execute("SET preserve_insertion_order = true; SET enable_progress_bar = false")
        connection.execute("SET temp_directory = ''")  # never write rows to a temporary folder
        return connection

    def close(self) -> None:
        while self._open:
            self._open.pop().close()


class Units(guard.Opaque):
    """The units of one table's rows, found by queries over their names.

    `names` gives a new stream of each row's `place`, and of the name of its `unit` or null.
    """

    __slots__ = ("_batches", "_names", "_opened", "_size", "_work")

    def __init__(self, opened: Connections, names: Callable[[], Stream], batches: Batches) -> None:
        self._opened = opened
        self._names = names
        self._batches = batches
        self._size: int | None = None
        self._work: Any = None  # a database with the table `units`, one row per unit

    def size(self) -> int:
        """Number of units; public only under substitution."""
        if self._size is None:
            self._find()
            found = _read(lambda: self._work.execute("SELECT count(*) FROM units").fetchall())
            self._size = int(found[0][0])
        return self._size

    def marks(self, max_rows: int, parts: Parts | None) -> Marks:
        """Which rows are used, as by `batch.first_rows`, and the part of each (None: all in 0)."""
        self._find()
        units, part = "units", "0"
        if parts is not None:
            self._deal(parts)
            units, part = "dealt", "part"
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
        stored_table(self._work, "marks", ranked, self._names())
        # Copy the marks: closing the work database frees the memory that ranking took.
        kept = self._opened.new()
        marks = _read(lambda: self._batches(self._work.table("marks")))
        stored_table(kept, "marks", "FROM given", (marks.schema, marks))
        self._work.close()
        self._work = None
        return Marks(kept, self._batches)

    def _find(self) -> None:
        """Store each unit once."""
        if self._work is None:
            work = self._opened.new()
            # DuckDB does not know the number of streamed rows; the lookup must be in the stored
            # table.
            work.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
            each = "SELECT DISTINCT unit FROM given WHERE unit IS NOT NULL"
            stored_table(work, "units", each, self._names())
            self._work = work

    def _deal(self, parts: Parts) -> None:
        """Store the part of each unit. Python computes the keyed hash, and sees each name once."""
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
        _read(step)
    except DataError:
        if pressed:
            raise KeyboardInterrupt from None
        raise


class Marks(guard.Opaque):
    """The part of each row in the order of the rows; -1 if the row is not used."""

    __slots__ = ("_batches", "_connection")

    def __init__(self, connection: Any, batches: Batches) -> None:
        self._connection = connection
        self._batches = batches

    def beside(self, blocks: Blocks) -> Iterator[MarkedBlock]:
        """The blocks of a whole pass, with the mask and parts of their rows."""
        # a pass may end early, with its answer half read
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
