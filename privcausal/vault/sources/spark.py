"""Rows of a Spark DataFrame: queries run on the executors, and only sums come back.

Classic and Connect sessions are both supported, through `DataFrame.mapInArrow`. The package must be
installed on the executors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from privcausal.errors import CapabilityError, DataError
from privcausal.features.design import Space, header
from privcausal.request.schema import Header, label_key
from privcausal.typing import Integers
from privcausal.vault.batch import Batch, Layout, RawColumn, dealt
from privcausal.vault.exit import ExactSum, SummedQueries
from privcausal.vault.guard import shielded
from privcausal.vault.queries.cells import ColumnHistograms
from privcausal.vault.sources import memory
from privcausal.vault.sources.stored import arrow_column


@dataclass(frozen=True, eq=False)
class RemoteSum:
    """Sums of mechanisms, computed where the rows are. It holds public values and no rows.

    The part of a row depends only on the name of its unit and on `entropy`. A unit therefore keeps
    its part however often rows are computed again, or moved.
    """

    queries: SummedQueries | ColumnHistograms
    size: int  # Number of sums
    wanted: tuple[tuple[str, bool], ...]
    layout: Layout | None  # How rows are cleaned; None for histograms of raw columns
    shares: tuple[float, ...] = (1.0,)
    entropy: int = 0
    unit: str | None = None  # The column that names the unit of each row

    @property
    def columns(self) -> tuple[tuple[str, memory.AsLabels], ...]:
        """All columns that the job reads, the unit's column last."""
        return self.wanted if self.unit is None else (*self.wanted, (self.unit, "units"))

    def integers(
        self, columns: Mapping[str, RawColumn], unit: RawColumn | None, rows: int, space: Space
    ) -> Integers:
        """Exact sums over one block of at most `passes.BATCH` rows; `space` is the workspace."""
        keep = np.ones(rows, bool)
        if isinstance(self.queries, ColumnHistograms):
            return self.queries.integers(columns, keep)
        assert self.layout is not None
        part = np.zeros(rows, np.int64)
        if len(self.shares) > 1:
            assert unit is not None
            # With units, the random bits are the same under both relations.
            part = dealt(
                rows,
                self.shares,
                neighbors="add_remove",
                entropy=self.entropy,
                units=unit.codes,
                names=unit.labels,
            )
        batch = Batch(columns, part, keep, self.layout)
        with batch.rows.within(space):
            sums = [
                mechanism.integers(batch if part is None else batch.only(part))
                for mechanism, parts in self.queries
                for part in parts
            ]
        return np.concatenate(sums)


_FAILED = (
    "The Spark job failed or was canceled: an executor was lost, lacks privcausal, or could not "
    "read its rows. The message is in the Spark UI; it is hidden here because it may quote a row. "
    "Any budget already charged stays spent."
)

_UNPLANNED = (
    "Spark cannot plan a query of the columns in the formula. Spark's message is hidden because "
    "it may quote a row. To see the problem, run frame.select(...) with these columns. No budget "
    "was spent."
)


class Spark(memory.RowSource):
    """A Spark DataFrame, recomputed by Spark for each sum."""

    __slots__ = ("_frame", "_rows", "_units", "header")
    ordered = False
    held = False
    absent = (
        "This step needs the rows locally, but rows of a Spark DataFrame stay on its executors. "
        "Write them to files with frame.write.parquet('rows'), and pass the path."
    )

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self._rows: int | None = None
        self._units: dict[str, int] = {}
        # Names and kinds, from an empty table of the frame's types.
        import narwhals as nw
        from pyspark.sql.pandas.types import to_arrow_schema

        names = list(frame.columns)
        if len(set(names)) < len(names):
            raise DataError("Two columns of the data have the same name. Rename one.")
        # Under a collation, Spark treats different texts as one unit or level, and the vault does
        # not.
        readable = [
            field.name
            for field in frame.schema.fields
            if field.dataType.typeName() in _READABLE
            and "collate" not in field.dataType.simpleString().lower()
        ]
        schema = to_arrow_schema(frame.select(*map(column_of, readable)).schema)
        plain = header(nw.from_native(schema.empty_table(), eager_only=True))
        kinds = {name: plain.kinds.get(name, "other") for name in names}
        self.header: Header = Header(kinds, integers=plain.integers)

    def size(self) -> int:
        if self._rows is None:
            self._rows = int(shielded(self._frame.count, _FAILED))
        return self._rows

    def units(self, unit: str) -> int:
        """Number of units; public under substitution."""
        if unit not in self._units:
            names = self._of_units(unit).select(column_of(unit))
            self._units[unit] = int(shielded(lambda: names.distinct().count(), _FAILED))
        return self._units[unit]

    def repeats(self, names: Sequence[str]) -> bool:
        """Whether, by the query's plan, these columns are the same each time they are computed."""
        columns = [*map(column_of, names)]
        return bool(shielded(lambda: repeatable(self._frame.select(*columns)), _UNPLANNED))

    def sums(
        self, job: RemoteSum, rows: int, unit: str | None, max_rows: int, order: Sequence[str]
    ) -> Integers:
        """The job's exact sums over the first `max_rows` rows of each unit, shape (k m,).

        Parameters
        ----------
        rows : int
            Rows of a block.
        order : sequence of str
            A unit's rows are sorted by these columns. Rows that are equal in all of them are
            interchangeable, so the sum is the same each time.
        """
        frame = self._frame if unit is None else self._first(unit, max_rows, order)
        columns = [column_of(name).alias(f"c{at}") for at, (name, _) in enumerate(job.columns)]
        sums = frame.select(*columns).mapInArrow(carried_out(job, rows), "sums binary")
        total = ExactSum(job.size)
        for (packed,) in shielded(sums.collect, _FAILED):
            total.merge(bytes(packed))
        return total.value()

    def tally(
        self, name: str, unit: str | None, max_rows: int, order: Sequence[str]
    ) -> tuple[tuple[str, ...], Integers]:
        """The labels of a column and their exact counts, before noise and a threshold."""
        frame = self._frame if unit is None else self._first(unit, max_rows, order)
        counts: dict[str, int] = {}
        for value, count in shielded(frame.groupBy(column_of(name)).count().collect, _FAILED):
            key = label_key(value)
            if key is not None:
                counts[key] = counts.get(key, 0) + int(count)
        return tuple(counts), np.array(list(counts.values()), np.int64)

    def _of_units(self, unit: str) -> Any:
        """Rows with a named unit. In Spark's SQL, NaN equals itself."""
        number = dict(self._frame.dtypes)[unit] in ("float", "double")
        named = f" AND {spark_name(unit)} <> CAST('NaN' AS DOUBLE)" if number else ""
        return self._frame.where(f"{spark_name(unit)} IS NOT NULL{named}")

    def _first(self, unit: str, max_rows: int, order: Sequence[str]) -> Any:
        from pyspark.sql import Window, functions

        rank = "rank of privcausal"
        window = Window.partitionBy(column_of(unit)).orderBy(*map(column_of, order))
        ranked = self._of_units(unit).withColumn(rank, functions.row_number().over(window))
        return ranked.where(f"{spark_name(rank)} <= {int(max_rows)}")


def carried_out(job: RemoteSum, rows: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function run by each executor: from Arrow batches of its rows to one record of sums."""

    def inside(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from threadpoolctl import threadpool_limits

        total, space = ExactSum(job.size), Space()
        # Spark runs one task per core. NumPy must not warn of a row's value here either.
        with threadpool_limits(limits=1, user_api="blas"), np.errstate(all="ignore"):
            for batch in batches:
                columns = [
                    arrow_column(array, as_labels)
                    for array, (_, as_labels) in zip(batch.columns, job.columns, strict=True)
                ]
                for first in range(0, batch.num_rows, rows):
                    at = slice(first, min(first + rows, batch.num_rows))
                    block = [memory.cut_column(column, at) for column in columns]
                    unit = None if job.unit is None else block[-1]
                    named = {name: c for (name, _), c in zip(job.wanted, block, strict=False)}
                    rows_here = at.stop - at.start
                    total.add(job.integers(named, unit, rows_here, space))
        sums = pa.array([total.packed()], pa.binary())
        yield pa.RecordBatch.from_arrays([sums], ["sums"])

    return inside


_READABLE = {
    "boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "string", "char",
    "varchar",
}  # fmt: skip


def spark_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def column_of(name: str) -> Any:
    from pyspark.sql import functions

    return functions.col(spark_name(name))


_FUNCTIONS = ("count", "max", "min", "row_number")
"""All functions that the vault names in Spark's queries. Operators in SQL text have no name."""


def open_spark(frame: Any) -> Spark:
    """Open a DataFrame, unless its session replaces a function that the vault's queries name."""
    for name in _FUNCTIONS:
        function = shielded(partial(frame.sparkSession.catalog.getFunction, name), _UNPLANNED)
        if not str(function.className).startswith("org.apache.spark.sql.catalyst.expressions."):
            raise CapabilityError(
                f"The Spark session has another function named {name!r}, which privcausal's sums "
                "would use. Pass a DataFrame of another session, such as spark.newSession(). No "
                "budget was spent."
            )
    return Spark(frame)


def repeatable(frame: Any) -> bool:
    """Whether Spark's optimized plan contains no operation that may differ between computations.

    Such operations are random functions, which Spark marks. They also include operations that
    depend on the order or placement of rows, which Spark calls deterministic. Examples are limits
    and samples, the first or any value of a group, Python functions of a group, and windows that
    number or count rows. These are searched by name in the plan's text, which is all that Connect
    provides. If a plan is truncated where it may hold such an operation, it counts as not
    repeatable. The optimizer replaces the current time by a value, so it is searched in the plan
    before that.

    A plan cannot show a function wrongly declared deterministic, rows from an RDD, or a source that
    changes between reads. It also cannot show that float sums differ in their last digits if the
    order differs. Write such rows to files first.
    """
    plan = getattr(frame, "_jdf", None)
    if plan is None:
        text = str(frame._explain_string(mode="extended"))
        analyzed, _, text = text.partition("== Optimized Logical Plan ==")
        analyzed = analyzed.partition("== Analyzed Logical Plan ==")[2]
        optimised = text.partition("== Physical Plan ==")[0]
    else:
        execution = plan.queryExecution()
        if not execution.optimizedPlan().deterministic():
            return False
        analyzed, optimised = _text_of(execution.analyzed()), _text_of(execution.optimizedPlan())
    reads_clock = _CLOCK.search(_COLUMNS.sub("", analyzed)) is not None
    return not reads_clock and _repeats(optimised)


def _text_of(plan: Any) -> str:
    # The plan's text with all the fields of each node, if this version of Spark can write it. The
    # arguments are: verbose, a suffix, the maximum number of fields, and one or two more options.
    for more in ((False,), (False, False)):
        try:
            return str(plan.treeString(True, False, 2**31 - 1, *more))
        except Exception:  # not available in this version
            continue
    return str(plan.toString())  # may be truncated, which is detected


def _repeats(text: str) -> bool:
    # Remove column names: all names of a table, and names like function calls, found in files.
    text = _RANKS.sub("", _COLUMNS.sub("", text))
    return _BY_LOT.search(text) is None and _CUT_SHORT.search(text) is None


_NODE = r"^[\s:|+-]*(?:\*\(\d+\) )?"

_COLUMNS = re.compile(
    rf"{_NODE}(?:\w*Relation\w*|LogicalRDD|FileScan|Scan|BatchScan|InMemoryTableScan)\b.*$"
    r"|\w+\([^()]*\)#\d+", re.MULTILINE
)  # fmt: skip

_FRAME = r"specifiedwindowframe\(RowFrame, "

_RANKS = re.compile(
    r"\b(?:dense_|percent_)?rank\([^()]*\) windowspecdefinition\([^\n]*?"
    rf"{_FRAME}unboundedpreceding\$\(\), currentrow\$\(\)\)"
)
"""Ranks, which are equal for rows that are equal in the order, in spite of their frame."""

_CUT_SHORT = re.compile(r"\.\.\. \d+ more fields")

_CLOCK = re.compile(r"\b(?:now|localtimestamp|current_(?:time|date|timestamp))\(", re.IGNORECASE)

_BY_LOT = re.compile(
    rf"{_NODE}(?:\w*Limit|TakeOrderedAndProject\w*|Offset|Tail|Sample)\b(?<!WindowGroupLimit)"
    rf"|{_NODE}\w*Map(?:Co)?Groups\w*"
    rf"|{_FRAME}(?!unboundedpreceding\$\(\), unboundedfollowing\$\(\))"
    r"|\b(?:rand|randn|random|uniform|randstr|uuid|shuffle|monotonically_increasing_id"
    r"|spark_partition_id|input_file_name|first|first_value|last|last_value|any_value|nth_value"
    r"|row_number|ntile|lag|lead|collect_list|collect_set|array_agg|listagg|string_agg|max_by"
    r"|min_by|mode|approx_percentile|percentile_approx)\(", re.IGNORECASE | re.MULTILINE
)  # fmt: skip
