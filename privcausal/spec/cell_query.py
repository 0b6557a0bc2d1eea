"""The aggregates of a partition as one SQL query: for DuckDB here, for a warehouse elsewhere.

In the vault it must give the numbers of the row-wise code to the bit, so every step is the same
IEEE operation in the same order. Handed to a data owner, rounding may differ in ties, which changes
no sensitivity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from privcausal.errors import CapabilityError
from privcausal.spec.partition import Product, number
from privcausal.spec.schema import Binary, Domain, Interval, Levels, Schema

STEPS = 30
"""Bits of the grid on half of the outcome's range."""


@dataclass(frozen=True)
class CellQuery:
    """Counts, sums and sums of squares of a bounded outcome by cell and arm.

    Attributes
    ----------
    labels : frozenset of str
        Columns that are read as texts, the others as numbers.
    """

    outcome: str
    treatment: str
    variables: tuple[str, ...]
    schema: Schema
    partition: Product
    labels: frozenset[str]

    def exact(self, table: str) -> str:
        """DuckDB: rows (cell, arm, count, sum, sum of squares) of whole numbers."""
        return (
            f"{self._cleaned(table, nan=True)}\n"
            f"SELECT cell, arm, COUNT(*), SUM(CAST(ROUND_EVEN(place * {_UNIT}, 0) AS BIGINT)), "
            f"SUM(CAST(ROUND_EVEN(place * place * {_UNIT}, 0) AS BIGINT))\n"
            f"FROM placed WHERE cell >= 0 GROUP BY cell, arm"
        )

    def for_owner(self, table: str) -> str:
        """Columns cell, arm, count, sum and steps.

        `steps` is the sum of the outcome's distance from the middle of its bounds in whole steps
        of 2^-30 half ranges: it does not depend on the order of rows.
        """
        lo, hi = self._range
        middle, step = 0.5 * (lo + hi), 0.5 * (hi - lo) / 2.0**STEPS
        steps = f"CAST(SUM(CAST(ROUND(place * {_UNIT}, 0) AS BIGINT)) AS BIGINT)"
        return (
            f"{self._cleaned(table, nan=False)}\n"
            f"SELECT cell, arm, COUNT(*) AS count, "
            f"COUNT(*) * {number(middle)} + {steps} * {number(step)} AS sum, {steps} AS steps\n"
            f"FROM placed WHERE cell >= 0 GROUP BY cell, arm ORDER BY cell, arm"
        )

    @property
    def _range(self) -> tuple[float, float]:
        domain = self.schema[self.outcome]
        return (domain.lo, domain.hi) if isinstance(domain, Interval) else (0.0, 1.0)

    def _cleaned(self, table: str, *, nan: bool) -> str:
        names = {name: f"x{k}" for k, name in enumerate(self.variables)}
        columns = ", ".join(f"{self._read(name)} AS {x}" for name, x in names.items())
        present = " AND ".join(self._present(name, x, nan=nan) for name, x in names.items())
        clipped = {name: self._clipped(name, x) for name, x in names.items()}
        lo, hi = self._range
        middle, half = 0.5 * (lo + hi), 0.5 * (hi - lo)
        place = f"({clipped[self.outcome]} - {number(middle)}) / {number(half)}"
        cell = self.partition.sql(clipped)
        return (
            f"WITH cleaned AS (SELECT {columns} FROM {table}),\n"
            f"placed AS (SELECT {cell} AS cell, {names[self.treatment]} AS arm, "
            f"LEAST(GREATEST({place}, -1e0), 1e0) AS place FROM cleaned WHERE {present})"
        )

    def _read(self, name: str) -> str:
        domain, column = self.schema[name], quoted(name)
        if isinstance(domain, Interval):
            return f"CAST({column} AS DOUBLE)"
        text = name in self.labels
        found = f"CAST({column} AS VARCHAR)" if text else f"CAST({column} AS DOUBLE)"
        if isinstance(domain, Levels):
            cases = _cases(found, [(label,) for label in domain.values])
            other = len(domain.values) if domain.other else -1
            return f"CASE WHEN {column} IS NULL THEN NULL {cases} ELSE {other} END"
        values = (domain.zeros, domain.ones) if text else ((0.0,), (1.0,))
        return f"CASE {_cases(found, values)} END"

    def _present(self, name: str, x: str, *, nan: bool) -> str:
        number_like = nan and isinstance(self.schema[name], Interval)
        return f"{x} IS NOT NULL" + (f" AND NOT ISNAN({x})" if number_like else "")

    def _clipped(self, name: str, x: str) -> str:
        domain = self.schema[name]
        if not isinstance(domain, Interval):
            return x
        return f"LEAST(GREATEST({x}, {number(domain.lo)}), {number(domain.hi)})"


_UNIT = number(2.0**STEPS)


def _cases(found: str, groups: Sequence[Sequence[str | float]]) -> str:
    return " ".join(
        f"WHEN {found} IN ({', '.join(map(_literal, group))}) THEN {k}"
        for k, group in enumerate(groups)
    )


def _literal(value: str | float) -> str:
    return number(value) if isinstance(value, float) else "'" + value.replace("'", "''") + "'"


def quoted(name: str) -> str:
    """A column's name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def labels_of(schema: Mapping[str, Domain]) -> frozenset[str]:
    """Columns that a warehouse holds as texts, as far as their declared domains tell."""
    return frozenset(
        name
        for name, domain in schema.items()
        if isinstance(domain, Levels) or (isinstance(domain, Binary) and domain.labels is not None)
    )


def translated(statement: str, dialect: str) -> str:
    """The statement in another dialect of SQL, by sqlglot.

    Raises
    ------
    CapabilityError
        sqlglot is not installed, or knows no such dialect.
    """
    if dialect == "duckdb":
        return statement
    try:
        import sqlglot
    except ImportError:
        raise CapabilityError(
            f"SQL for {dialect!r} needs the package sqlglot: pip install 'privcausal[sql]'"
        ) from None
    try:
        return str(sqlglot.transpile(statement, read="duckdb", write=dialect, pretty=True)[0])
    except ValueError:
        raise CapabilityError(
            f"dialect={str(dialect)[:40]!r} is unknown to sqlglot; common ones are 'duckdb', "
            "'postgres', 'snowflake', 'bigquery', 'spark'"
        ) from None
