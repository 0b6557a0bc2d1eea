"""The aggregates of a partition as one SQL query: for DuckDB here, for a warehouse elsewhere.

In the vault it must give the numbers of the row-wise code to the bit, so every step is the same
IEEE operation in the same order. Handed to a data owner, rounding may differ in ties, which changes
no sensitivity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

    def exact(self, table: str, *, squares: bool) -> str:
        """DuckDB: rows (cell, arm, count, sum, sum of squares) of whole numbers."""
        steps = "SUM(CAST(ROUND_EVEN({} * " + _UNIT + ", 0) AS BIGINT))"
        total, square = steps.format("place"), steps.format("place * place")
        if not isinstance(self.schema[self.outcome], Interval):  # two values: the ends of the grid
            total, square = (
                f"(2 * SUM(place) - COUNT(*)) * {1 << STEPS}",
                f"COUNT(*) * {1 << STEPS}",
            )
        return (
            f"{self._cleaned(table, self._exact_place, nan=True)}\n"
            f"SELECT cell, arm, COUNT(*), {total}, {square if squares else 0}\n"
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
            f"{self._cleaned(table, self._place, nan=False)}\n"
            f"SELECT cell, arm, COUNT(*) AS count, "
            f"COUNT(*) * {number(middle)} + {steps} * {number(step)} AS sum, {steps} AS steps\n"
            f"FROM placed WHERE cell >= 0 GROUP BY cell, arm ORDER BY cell, arm"
        )

    @property
    def _range(self) -> tuple[float, float]:
        domain = self.schema[self.outcome]
        return (domain.lo, domain.hi) if isinstance(domain, Interval) else (0.0, 1.0)

    def _place(self, value: str) -> str:
        """The outcome's place between its bounds, from -1 to 1."""
        lo, hi = self._range
        middle, half = number(0.5 * (lo + hi)), number(0.5 * (hi - lo))
        return f"LEAST(GREATEST(({value} - {middle}) / {half}, -1e0), 1e0)"

    def _exact_place(self, value: str) -> str:
        return self._place(value) if isinstance(self.schema[self.outcome], Interval) else value

    def _cleaned(self, table: str, place: Callable[[str], str], *, nan: bool) -> str:
        names = {name: f"x{k}" for k, name in enumerate(self.variables)}
        columns = ", ".join(f"{self._read(name)} AS {x}" for name, x in names.items())
        present = " AND ".join(self._present(name, nan=nan) for name in names)
        outcome = names[self.outcome]
        domain = self.schema[self.outcome]
        if isinstance(domain, Interval):
            outcome = f"LEAST(GREATEST({outcome}, {number(domain.lo)}), {number(domain.hi)})"
        return (
            f"WITH cleaned AS (SELECT {columns} FROM {table} WHERE {present}),\n"
            f"placed AS (SELECT {self.partition.sql(names)} AS cell, "
            f"{names[self.treatment]} AS arm, {place(outcome)} AS place FROM cleaned)"
        )

    def _text(self, name: str) -> str:
        column = quoted(name)
        return f"CAST({column} AS VARCHAR)" if name in self.labels else column

    def _values(self, domain: Binary, name: str) -> tuple[Sequence[str], Sequence[str]]:
        """The values of 0 and of 1, as SQL writes them."""
        if name in self.labels:
            return [*map(_literal, domain.zeros)], [*map(_literal, domain.ones)]
        return ["0"], ["1"]

    def _read(self, name: str) -> str:
        domain, column = self.schema[name], quoted(name)
        if isinstance(domain, Interval):
            return f"CAST({column} AS DOUBLE)"
        if isinstance(domain, Levels):
            cases = " ".join(
                f"WHEN {self._text(name)} = {_literal(label)} THEN {k}"
                for k, label in enumerate(domain.values)
            )
            return f"CASE {cases} ELSE {len(domain.values) if domain.other else -1} END"
        _, ones = self._values(domain, name)
        return f"CASE WHEN {self._text(name)} IN ({', '.join(ones)}) THEN 1 ELSE 0 END"

    def _present(self, name: str, *, nan: bool) -> str:
        """Whether a row's value is there; a comparison with NULL is no yes."""
        domain, column = self.schema[name], quoted(name)
        if isinstance(domain, Binary):
            zeros, ones = self._values(domain, name)
            return f"{self._text(name)} IN ({', '.join([*zeros, *ones])})"
        if isinstance(domain, Interval) and nan:
            return f"NOT ISNAN(CAST({column} AS DOUBLE))"
        return f"{column} IS NOT NULL"


_UNIT = number(2.0**STEPS)


def _literal(label: str) -> str:
    return "'" + label.replace("'", "''") + "'"


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
