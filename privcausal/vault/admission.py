"""Open a table and reject plans that it cannot carry out, before any budget is spent.

These checks use only public facts: names, types, the storage format, and the size if it is public.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from privcausal.errors import BudgetError, CapabilityError, DataError
from privcausal.request.panels import Staggered
from privcausal.request.partition import sql_name
from privcausal.request.request import Plan, Request
from privcausal.request.schema import Binary, Domain, Header, LabelColumns, Levels
from privcausal.typing import Frame
from privcausal.vault import guard
from privcausal.vault.batch import RawColumn, cleaned, part_shares, reads_labels
from privcausal.vault.sources import cell_table, files, memory, spark, stored

# Panels: one row per unit, with the change in outcome between two declared periods, or with the
# cohort and the outcomes in all declared periods.
#
# Privacy
# -------
# A unit's row is a function of the unordered set of that unit's own rows.
#
# - The outcome is Y(after) - Y(before) if the unit has exactly one row in each period and was not
#   treated before. Otherwise the outcome is missing.
# - With cohorts, the row has the outcome of each period if the unit has exactly one row in each,
#   and the same cohort in all of them. Otherwise the row is missing.
# - The treatment comes from the unit's row after. Covariates and groups come from its row before.
# - Rows of other periods, or with a missing period, are ignored. Rows without a unit's name belong
#   to no unit.
#
# Each value is read by itself. Outcome, treatment, and period are clipped to their declared
# domains. Therefore the row is defined for all possible data.
#
# As a result, each unit has one row, however many rows the input had. No row depends on another
# unit's rows. Replacing all rows of a unit replaces one row here. Adding or removing a unit adds or
# removes one row here. The rows are sorted by name, but their order does not affect any result:
# sums are exact, and parts depend on the unit's name.


class Changes:
    """Rules for reading rows and for combining the rows of each unit. Holds no rows.

    With cohorts, a unit's row has its cohort and an outcome in each period.
    """

    def __init__(self, request: Request, header: Header) -> None:
        import pyarrow as pa

        panel, formula, schema = request.trust.panel, request.formula, request.schema
        assert panel is not None
        # Domains of period, outcome, and treatment, in this order, to clean these columns
        domains: dict[str, Domain] = {panel.time: schema[panel.time]}
        # With cohorts, names of the outcome in all periods but the first
        self.wide: tuple[str, ...] | None = None
        if isinstance(panel, Staggered):
            domains |= panel.outcome.columns
            self.wide = panel.wide
        else:
            arms = schema.get(formula.treatment)
            coded = Binary(list(arms.values)) if isinstance(arms, Levels) else arms
            domains[formula.outcome] = panel.outcome[formula.outcome]
            domains[formula.treatment] = coded if isinstance(coded, Binary) else Binary()
        # All columns of the request are read; how each is read. The unit's column comes first.
        labels: dict[str, memory.AsLabels] = dict.fromkeys(request.keys.values(), "units")
        for name in request.read:
            domain, kind = domains.get(name, request.schema.get(name)), header.kinds[name]
            labelled = kind == "text" or (kind != "bool" and name in request.formula.categorical)
            labels.setdefault(name, labelled if domain is None else reads_labels(domain, kind))
        # Columns of a unit's row that are copied without a change
        (_, *others), (time, outcome, *_) = labels, domains
        self.columns = tuple(name for name in others if name not in (time, outcome))
        # Names and types of `record`
        kinds = [pa.large_string() if labels[name] else pa.float64() for name in self.columns]
        fields = [("unit", pa.large_string())]
        fields += [(name, pa.float64()) for name in ("p", "y", "t")[: len(domains)]]
        fields += [(f"k{at}", kind) for at, kind in enumerate(kinds)]
        self.domains, self.labels, self.schema = domains, labels, pa.schema(fields)

    def record(self, columns: Mapping[str, RawColumn]) -> Any:
        """An Arrow batch of rows: the unit, period p (0, 1, ...), y, t, and k0, k1, ...

        Missing values are null.
        """
        import pyarrow as pa

        columns = {name: memory.cut_column(column, slice(None)) for name, column in columns.items()}
        arrays = [stored.texts_of(columns[next(iter(self.labels))])]
        with np.errstate(all="ignore"):  # This may run in another library's thread.
            for name, domain in self.domains.items():
                values, present = cleaned(columns[name], domain)
                arrays.append(pa.array(values, pa.float64(), mask=~present))
            for name in self.columns:
                numbers = columns[name].numbers
                plain = None if numbers is None else pa.array(numbers, mask=np.isnan(numbers))
                arrays.append(stored.texts_of(columns[name]) if plain is None else plain)
        return pa.record_batch(arrays, self.schema)

    def aggregates(self) -> dict[str, str]:
        """SQL expression for each column of a unit's row, computed over the unit's records."""
        if self.wide is not None:
            _, outcome = self.domains
            (cohort,) = self.columns
            names, inside = (outcome, *self.wide), "FILTER (WHERE p >= 0)"
            once = [f"count(y) FILTER (WHERE p = {k}) = 1" for k in range(len(names))]
            # Rows of the declared periods: none is missing, and all have one cohort.
            present = f"count(*) {inside} = {len(names)} AND count(k0) {inside} = {len(names)}"
            same = f"min(k0) {inside} = max(k0) {inside}"
            case = f"CASE WHEN {' AND '.join([present, same, *once])} THEN"
            values = [f"{case} max(y) FILTER (WHERE p = {k}) END" for k in range(len(names))]
            return dict(zip(names, values, strict=True)) | {cohort: f"{case} max(k0) {inside} END"}
        before, after = "FILTER (WHERE p = 0)", "FILTER (WHERE p = 1)"
        both = f"count(*) {before} = 1 AND count(*) {after} = 1"
        change = f"max(y) {after} - max(y) {before}"
        _, outcome, treatment = self.domains
        return {outcome: f"CASE WHEN {both} AND max(t) {before} = 0 THEN {change} END"} | {
            name: f"max(k{at}) {after if name == treatment else before}"
            for at, name in enumerate(self.columns)
        }


@guard.guarded
def changes(rows: memory.RowSource, request: Request) -> memory.RowSource:
    """A table with one row per unit, which replaces the given table.

    Rows in memory give a table in memory. For files, relations, and queries, which are streamed
    once, DuckDB holds the table in memory. On Spark, the table is another DataFrame.
    """
    how = Changes(request, rows.header)
    made: spark.Spark | memory.Memory | stored.Stored
    if isinstance(rows, spark.Spark):  # Its executors read the values, as they do for sums.
        from pyspark.sql import functions
        from pyspark.sql.pandas.types import from_arrow_schema

        (unit, _), *_ = labels = tuple(how.labels.items())

        def inside(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                columns = {
                    name: stored.arrow_column(array, as_labels)
                    for array, (name, as_labels) in zip(batch.columns, labels, strict=True)
                }
                yield how.record(columns)

        aliased = [spark.column_of(name).alias(f"c{at}") for at, (name, _) in enumerate(labels)]
        read = rows._frame.select(*aliased).mapInArrow(inside, from_arrow_schema(how.schema))
        units = read.where("unit IS NOT NULL").groupBy(functions.col("unit").alias(unit))
        sums = [functions.expr(sql).alias(name) for name, sql in how.aggregates().items()]
        made = spark.Spark(units.agg(*sums))
    else:
        opened = rows._opened if isinstance(rows, stored.Stored) else ExitStack()
        work, wanted = stored.database(opened), tuple(how.labels.items())
        # Rows in memory share one list of labels, so they form one block.
        size = max(rows.size(), 1) if rows.held else stored.STREAM
        records = (how.record(columns) for _, columns in rows.blocks(wanted, size))
        values = [f"{sql} AS {sql_name(name)}" for name, sql in how.aggregates().items()]
        query = f"""
            SELECT unit AS {sql_name(wanted[0][0])}, {", ".join(values)}
            FROM given WHERE unit IS NOT NULL GROUP BY unit ORDER BY unit
            """
        stored.stored_table(work, "changes", query, (how.schema, records))
        if rows.held:
            made = memory.Memory(work.table("changes").to_arrow_table())
            opened.close()
        else:
            made = stored.Stored(work.table("changes"), opened, ordered=True)
    # The change is a number for every type of outcome.
    kinds = dict(rows.header.kinds)
    for name in (request.formula.outcome, *request.wide):
        kinds[name] = "numeric"
    made.header = replace(rows.header, kinds=kinds, untyped=False)
    return made


MOST_ROWS = 1 << 30
"""int64 holds noisy sums of this many rows, because a row adds at most 2^32 to a coordinate."""

BASES_OF_SUMS = ("gam", "linear", "none")
"""Bases that need only sums over the rows. The learners of cells and arms use "none"."""


@dataclass(frozen=True, eq=False, repr=False)
class Source(guard.Opaque):
    """An opened table before its plan is known. Only its header is public."""

    rows: memory.RowSource

    @property
    def header(self) -> Header:
        return self.rows.header

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the rows, typed or untyped. They are not needed afterwards."""
        self.rows.close()


@guard.opening
def open_source(data: Frame) -> Source:
    """Open a frame, a path to files, or a DuckDB relation. This step releases nothing."""
    if isinstance(data, memory.RowSource):  # from `read_file`
        return Source(data)
    if isinstance(data, str | os.PathLike):
        return Source(files.open_path(data))
    kind = type(data)  # Compare names, to avoid importing the libraries.
    if kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.sql"):
        return Source(spark.open_spark(data))
    if kind.__name__ == "LazyFrame" and kind.__module__.startswith("polars"):
        return Source(stored.Lazy(data))
    if kind.__name__ == "DuckDBPyRelation":
        return Source(files.open_relation(data))
    return Source(memory.Memory(data))


def typed(source: Source, labels: LabelColumns) -> Source:
    """The table with column types, if the format has none of its own (CSV)."""
    return Source(source.rows.typed(labels))


def from_table(table: cell_table.CellTable, header: Header) -> Source:
    """Use an aggregated table instead of rows."""
    return Source(cell_table.Aggregates(table, header))


@guard.guarded
def public_size(source: Source, request: Request) -> int | None:
    """Number of rows or units. It is public under substitution; None under add_remove."""
    if request.trust.neighbors == "add_remove" or isinstance(source.rows, cell_table.Aggregates):
        return None
    if request.trust.unit is None:
        return source.rows.size()
    if isinstance(source.rows, spark.Spark | stored.Stored):
        return source.rows.units(request.trust.unit)
    codes = source.rows.column(request.trust.unit, as_labels="units").codes
    assert codes is not None
    return len(np.unique(codes[codes >= 0]))  # A categorical column may have unused labels.


@guard.opening
def admit(source: Source, plan: Plan) -> None:
    """Refuse a plan that this table cannot support, before it is charged."""
    if not source.rows.held and (plan.base not in BASES_OF_SUMS or plan.request.mode == "paper"):
        what = "A published mechanism" if plan.base in BASES_OF_SUMS else f"base={plan.base!r}"
        raise CapabilityError(
            f"{what} requires rows in memory, but these are read in blocks. Pass a data frame, "
            "or use learner='adum', or base='gam' or 'linear' with learner 'r', 'dr', 's', "
            "'t' or 'x'. No budget was spent."
        )
    check_row_order(source, plan.request)
    # Each sum computes a Spark DataFrame again, so its plan must be deterministic.
    if isinstance(source.rows, spark.Spark) and not source.rows.repeats(plan.request.read):
        raise CapabilityError(
            "Spark may compute different rows each time: the plan has a random function, the time, "
            "limit, sample, window, or function of groups, or is too wide to check. Read files "
            "instead, written by frame.write.parquet('rows'). No budget was spent."
        )
    _check_size(source.rows, plan)
    # Each part needs some rows. Counting units would require reading rows.
    size = public_size(source, plan.request) if plan.request.trust.unit is None else None
    least = min(part_shares(plan)) * (size or 0)
    if size is not None and least < plan.least_part:
        raise DataError(
            f"The smallest part would have {int(least)} of {size} rows, but at least "
            f"{plan.least_part} are required. Use more rows, or split='full'. No budget was spent."
        )


def check_row_order(source: Source, request: Request) -> None:
    """Check that rows keep a stable order if the plan needs one.

    Parts of the rows and rows of a unit are identified by position, except in panels, which have
    one row per unit.
    """
    rows = source.rows
    if request.cluster is not None and not rows.ordered:
        raise CapabilityError(
            "cluster= requires rows in a fixed order in one process, which a Spark DataFrame, a "
            "DuckDB relation or a LazyFrame does not ensure. Write them to a Parquet file and pass "
            "its path. No budget was spent."
        )
    if isinstance(rows, spark.Spark):
        if request.split != "full" and request.trust.unit is None:
            raise CapabilityError(
                f"split={request.split!r} on a Spark DataFrame requires a row key, because "
                "recomputed rows must stay in their part. Name the unit of each row, "
                "unit='patient_id', or a column that differs in every row, with max_rows=1."
            )
        return
    if request.trust.panel is not None:
        return
    if not rows.ordered and (request.split != "full" or request.trust.unit is not None):
        what = "unit=" if request.split == "full" else f"split={request.split!r}"
        raise CapabilityError(
            f"{what} requires rows in a fixed order, which a DuckDB relation or LazyFrame does not "
            "ensure. Write them to a file with write_parquet('rows.parquet') or "
            "sink_parquet('rows.parquet') and pass its path."
        )


def _check_size(rows: memory.RowSource, plan: Plan) -> None:
    """Check the number of rows: at least one, not too many, and enough for a published mechanism.

    Error messages may state the number only if it is public. Otherwise the number is not checked.
    An empty table is then a valid table, and sums are clipped to the range of 64 bits.
    """
    if plan.request.trust.neighbors != "substitute":
        if plan.least_rows:
            raise CapabilityError(
                "A minimum number of rows requires a public number of rows: neighbors='substitute'."
            )
        return
    size = rows.size()
    if size == 0:
        raise DataError("The data have no rows.")
    if size > MOST_ROWS:
        raise CapabilityError(
            f"Tables with more than {MOST_ROWS:,} rows cannot be summed exactly. No budget was "
            "spent."
        )
    if 0 < plan.most_rows < size:
        raise CapabilityError(
            f"Exact kernel regression accepts at most {plan.most_rows:,} rows. Use "
            "second='kernel', which uses a public basis of the kernel. No budget was spent."
        )
    if size < plan.least_rows and plan.request.below_minimum == "refuse":
        raise BudgetError(
            f"The published mechanism requires at least {plan.least_rows} rows for this eps, delta "
            "and shares; with fewer, its privacy claim fails. Raise eps, or omit "
            "below_minimum='refuse': every output then reports it. No budget was spent."
        )
