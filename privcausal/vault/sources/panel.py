"""The rows of a panel's units, one for each: what changed between two declared periods.

Privacy
-------
The row of a unit is a function of that unit's own rows, taken as a set without order: its outcome
is Y(after) - Y(before) where exactly one of them is of each period and the unit was not treated
before, and is missing otherwise; the treatment is that of its row after, covariates and groups are
those of its row before. Rows of other periods, or of none, count for nothing, and rows without a
unit's name are of no unit. Each value is read by itself, and outcome, treatment and period are cut
to their declared domains, so that all of this is defined whatever the rows hold.

So a unit has one row however many it came with, and no row depends on another unit's. To replace
all rows of a unit, or to add or remove a unit, replaces, adds or removes one row here. The rows are
sorted by name, and their order reaches nothing: sums are exact, and parts go by a unit's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privcausal.request.header import Header
from privcausal.request.partition import sql_name
from privcausal.request.request import Request
from privcausal.request.schema import Binary, Domain, Levels
from privcausal.vault.batch import RawColumn, cleaned, reads_labels
from privcausal.vault.guard import guarded
from privcausal.vault.sources.memory import AsLabels, Memory, RowSource, cut_column
from privcausal.vault.sources.spark import Spark, column_of
from privcausal.vault.sources.stored import STREAM, Stored, arrow_column, texts_of
from privcausal.vault.sources.units import Connections, stored_table


@dataclass(frozen=True)
class Changes:
    """How rows are read, and how those of a unit are put together. It holds no rows.

    Attributes
    ----------
    domains : mapping
        Of period, outcome and treatment, in this order, by which these are cleaned.
    labels : mapping
        All columns that are read, the unit's first, and how each is read.
    """

    domains: Mapping[str, Domain]
    labels: Mapping[str, AsLabels]

    @classmethod
    def of(cls, request: Request, header: Header) -> Changes:
        panel, formula, schema = request.trust.panel, request.formula, request.schema
        assert panel is not None
        arms = schema.get(formula.treatment)
        coded = Binary(list(arms.values)) if isinstance(arms, Levels) else arms
        domains: dict[str, Domain] = {
            panel.time: schema[panel.time],
            formula.outcome: panel.outcome[formula.outcome],
            formula.treatment: coded if isinstance(coded, Binary) else Binary(),
        }
        labels: dict[str, AsLabels] = {str(request.trust.unit): "units"}
        for name in request.read:
            domain, kind = domains.get(name, schema.get(name)), header.kinds[name]
            bought = kind == "text" or (kind != "bool" and name in formula.categorical)
            labels.setdefault(name, bought if domain is None else reads_labels(domain, kind))
        return cls(domains, labels)

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of a unit's row that are taken as they are."""
        _, *others = self.labels
        time, outcome, _ = self.domains
        return tuple(name for name in others if name not in (time, outcome))

    @property
    def schema(self) -> Any:
        """Names and types of `record`."""
        import pyarrow as pa

        kinds = [pa.large_string() if self.labels[n] else pa.float64() for n in self.columns]
        fields = [("unit", pa.large_string()), *((name, pa.float64()) for name in ("p", "y", "t"))]
        return pa.schema([*fields, *((f"k{at}", kind) for at, kind in enumerate(kinds))])

    def record(self, columns: Mapping[str, RawColumn]) -> Any:
        """An Arrow batch of rows: the unit, p = 0, 1 for its period, y, t, and k0, k1, ...

        Null is what is missing.
        """
        import pyarrow as pa

        columns = {name: cut_column(column, slice(None)) for name, column in columns.items()}
        arrays = [texts_of(columns[next(iter(self.labels))])]
        with np.errstate(all="ignore"):  # another library's thread may be the one that asks
            for name, domain in self.domains.items():
                values, known = cleaned(columns[name], domain)
                arrays.append(pa.array(values, pa.float64(), mask=~known))
            for name in self.columns:
                numbers = columns[name].numbers
                plain = None if numbers is None else pa.array(numbers, mask=np.isnan(numbers))
                arrays.append(texts_of(columns[name]) if plain is None else plain)
        return pa.record_batch(arrays, self.schema)

    def aggregates(self) -> dict[str, str]:
        """SQL of each column of a unit's row, over its records."""
        before, after = "FILTER (WHERE p = 0)", "FILTER (WHERE p = 1)"
        once = f"count(*) {before} = 1 AND count(*) {after} = 1"
        change = f"max(y) {after} - max(y) {before}"
        _, outcome, treatment = self.domains
        return {outcome: f"CASE WHEN {once} AND max(t) {before} = 0 THEN {change} END"} | {
            name: f"max(k{at}) {after if name == treatment else before}"
            for at, name in enumerate(self.columns)
        }


@guarded
def changes(rows: RowSource, request: Request) -> RowSource:
    """A table with one row for each unit, in the place of the one given.

    Rows in memory give one in memory. Of files, relations and queries, which are streamed once,
    DuckDB holds it, in memory; on Spark it is another DataFrame.
    """
    how = Changes.of(request, rows.header)
    made = _on_spark(rows, how) if isinstance(rows, Spark) else _by_duckdb(rows, how)
    # the change is a number, whatever the outcome is
    kinds = {**rows.header.kinds, request.formula.outcome: "numeric"}
    made.header = replace(rows.header, kinds=kinds, untyped=False)
    return made


def _by_duckdb(rows: RowSource, how: Changes) -> Memory | Stored:
    opened = rows._opened if isinstance(rows, Stored) else Connections()
    work, wanted = opened.new(), tuple(how.labels.items())
    # rows in memory have one list of labels: they are one block
    size = max(rows.size(), 1) if rows.held else STREAM
    records = (how.record(columns) for _, columns in rows.blocks(wanted, size))
    own = [f"{sql} AS {sql_name(name)}" for name, sql in how.aggregates().items()]
    query = f"""
        SELECT unit AS {sql_name(wanted[0][0])}, {", ".join(own)}
        FROM given WHERE unit IS NOT NULL GROUP BY unit ORDER BY unit
        """
    stored_table(work, "changes", query, (how.schema, records))
    if not rows.held:
        return Stored(work.table("changes"), opened, ordered=True)
    held = Memory(work.table("changes").to_arrow_table())
    opened.close()
    return held


def _on_spark(rows: Spark, how: Changes) -> Spark:
    """Executors read the values, as they do for sums."""
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import from_arrow_schema

    (unit, _), *_ = labels = tuple(how.labels.items())

    def inside(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            columns = {
                name: arrow_column(array, as_labels)
                for array, (name, as_labels) in zip(batch.columns, labels, strict=True)
            }
            yield how.record(columns)

    asked = [column_of(name).alias(f"c{at}") for at, (name, _) in enumerate(labels)]
    records = rows._frame.select(*asked).mapInArrow(inside, from_arrow_schema(how.schema))
    units = records.where("unit IS NOT NULL").groupBy(functions.col("unit").alias(unit))
    own = [functions.expr(sql).alias(name) for name, sql in how.aggregates().items()]
    return Spark(units.agg(*own))
