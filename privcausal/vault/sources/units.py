"""Which rows of units count, where DuckDB reads the rows: found by its queries, kept in its tables.

Python holds one batch at a time, however many rows and units there are. The tables are in memory,
in a database of their own: some tens of bytes a row while rows are ranked, one byte afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from privcausal.errors import DataError
from privcausal.typing import Integers, Mask
from privcausal.vault.batch import RawColumn
from privcausal.vault.sealed import Sealed

Parts: TypeAlias = Callable[[Sequence[str]], Integers]
"""From names of units to their parts: that of a unit depends on its name only."""

Batches: TypeAlias = Callable[[Any], Any]
"""From a DuckDB relation to an Arrow reader of its rows."""

MarkedBlock: TypeAlias = tuple[slice, Mapping[str, RawColumn], Mask, Integers]
"""A block of rows, which of them count, and the part of each."""

_FAILED = (
    "the rows of units could not be ranked: the file is damaged, or was changed while it was read, "
    "or there is too little memory, of which this takes some tens of bytes for each row. DuckDB's "
    "own message is not shown, because it may quote a row"
)


class Units(Sealed):
    """The units of one table's rows, asked for by queries over their names.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        To an empty database in memory.
    names : callable
        A new Arrow reader of each row's `place`, and the name of its `unit` or null.
    """

    __slots__ = ("_batches", "_connection", "_names", "_size")

    def __init__(self, connection: Any, names: Callable[[], Any], batches: Batches) -> None:
        self._connection = connection
        self._names = names
        self._batches = batches
        self._size: int | None = None
        # of rows that stream in nobody knows the number: of a join's sides, the second is the table
        self._connection.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")

    def size(self) -> int:
        """Number of units, public under substitution only."""
        if self._size is None:
            each = "SELECT DISTINCT unit FROM given WHERE unit IS NOT NULL"
            self._run(f"CREATE OR REPLACE TABLE units AS {each}", self._names())
            found = read(lambda: self._connection.execute("SELECT count(*) FROM units").fetchall())
            self._size = int(found[0][0])
        return self._size

    def marks(self, max_rows: int, parts: Parts | None) -> Marks:
        """Which rows count, as `privcausal.vault.split.first_rows` says, and the part of each.

        Parameters
        ----------
        parts : callable, optional
            None: all rows are in part 0.
        """
        part, joined = "0", ""
        if parts is not None:
            self._deal(parts)
            part, joined = "part", "LEFT JOIN dealt USING (unit)"
        self._run(
            f"""
            CREATE OR REPLACE TABLE marks AS
            SELECT (CASE WHEN unit IS NOT NULL AND rank <= {int(max_rows)} THEN {part} ELSE -1 END
                   )::TINYINT AS mark
            FROM (SELECT place, unit, row_number() OVER (PARTITION BY unit ORDER BY place) AS rank
                  FROM given) {joined}
            ORDER BY place
            """,
            self._names(),
        )
        return Marks(self._connection, self._batches)

    def _deal(self, parts: Parts) -> None:
        """The part of each unit: Python has the keyed hash, and is shown each name once."""
        import pyarrow as pa

        self.size()
        asked = self._connection.cursor().sql("SELECT unit, unit::VARCHAR FROM units")
        names = read(lambda: self._batches(asked))
        schema = pa.schema([names.schema.field(0), pa.field("part", pa.int8())])

        def dealt() -> Iterator[Any]:
            for batch in names:
                part = pa.array(parts(batch.column(1).to_pylist()), pa.int8())
                yield pa.record_batch([batch.column(0), part], schema)

        reader = pa.RecordBatchReader.from_batches(schema, dealt())
        self._run("CREATE OR REPLACE TABLE dealt AS FROM given", reader)

    def _run(self, statement: str, given: Any) -> None:
        """A statement over the Arrow reader `given`."""

        def step() -> None:
            self._connection.register("given", given)
            self._connection.execute(statement).fetchall()
            self._connection.unregister("given")

        read(step)


class Marks(Sealed):
    """The part of each row, or -1 where it does not count, in the order of the rows."""

    __slots__ = ("_batches", "_connection")

    def __init__(self, connection: Any, batches: Batches) -> None:
        self._connection = connection
        self._batches = batches

    def beside(
        self, blocks: Iterator[tuple[slice, Mapping[str, RawColumn]]]
    ) -> Iterator[MarkedBlock]:
        """The blocks of a whole pass, with what is known of their rows."""
        # a cursor of its own: a pass may end before its time, and leave its answer half read
        reader = read(lambda: self._batches(self._connection.cursor().sql("FROM marks")))
        ahead = np.zeros(0, np.int8)
        for at, columns in blocks:
            rows = at.stop - at.start
            while len(ahead) < rows:
                batch = read(lambda: next(reader, None))
                if batch is None:
                    raise DataError(_FAILED)
                ahead = np.concatenate([ahead, batch.column(0).to_numpy()])
            marks, ahead = ahead[:rows], ahead[rows:]
            yield at, columns, marks >= 0, np.maximum(marks, 0).astype(np.int64)


def read(step: Callable[[], Any]) -> Any:
    """A step of DuckDB's, whose own message may quote a row."""
    try:
        return step()
    except Exception:
        pass
    raise DataError(_FAILED)
