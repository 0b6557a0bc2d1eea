"""What an audit found: a line per query, one for all of them, and what a fit promises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from privcausal.auditing.bounds import Measure
from privcausal.errors import Strict
from privcausal.prices import at_least, at_most
from privcausal.report.summary import Summary
from privcausal.report.tables import Pairs, Prose, Rule, Table, TableColumn, TableGrid

if TYPE_CHECKING:
    import pandas as pd

ROUNDING = 1 + 2.0**-30
"""Claims are held to this: integers of pico-rho and the rounding of floats lie far below."""


READING = (
    "claimed: what was charged. exact: what the worst of the pairs of tables that were tried comes "
    "to under the stated noise. bound: what drawn noise shows at least; all bounds together are "
    "right with the chance 1 - level. An audit can refute a claim and not prove it."
)


@dataclass(frozen=True)
class Line:
    """One claim and what is known against it.

    Attributes
    ----------
    query : str
        What was released.
    measure : {"mu", "epsilon"}
        mu of Gaussian noise, sqrt(2 rho); epsilon of Laplace noise, and of the fit's promise.
    claimed : float
        What was charged, or promised.
    exact : float
        What the exact answers on the worst pair of tables amount to under the noise that the
        query states; NaN where only outputs were seen.
    bound : float
        What the noise that was drawn shows at least.
    trials : int
        Draws on each of the two tables.
    """

    query: str
    measure: Measure
    claimed: float
    exact: float
    bound: float
    trials: int

    @property
    def holds(self) -> bool:
        return not (self.bound > self.claimed or self.exact > self.claimed * ROUNDING)


@dataclass(frozen=True, eq=False)
class AuditResult(Strict):
    """What `privcausal.audit` found. No row of anybody's was read.

    Attributes
    ----------
    call : str
        What was audited.
    lines : tuple of Line
    level : float
        Chance that code which keeps its promise fails a bound: of all lines together.
    neighbors : str
    departed : str or None
        What differed between neighbours on the same answers: it depends on a row beside the noise,
        and nothing else counts.
    """

    call: str
    lines: tuple[Line, ...]
    level: float
    neighbors: str
    departed: str | None = None

    @property
    def passes(self) -> bool:
        """Whether no claim was shown to be false."""
        return self.departed is None and all(line.holds for line in self.lines)

    @property
    def table(self) -> pd.DataFrame:
        """Columns query, measure, claimed, exact, bound, trials, holds; a line per claim."""
        import pandas as pd

        names = ["query", "measure", "claimed", "exact", "bound", "trials", "holds"]
        values = [[getattr(line, name) for name in names] for line in self.lines]
        return pd.DataFrame(values, columns=names)

    def summary(self) -> Summary:
        """The table: `str()`, `.as_text()`, `.as_latex()`, `.as_html()`, `.tables`."""
        rule = Rule("=")
        head = Pairs(
            "The audit",
            (("Call", self.call), ("Neighbours", self.neighbors.replace("_", "/"))),
            (("Level", f"{self.level:g}"), ("Verdict", self.verdict)),
        )
        departed = self.departed is not None
        note = Prose((f"On the same answers {self.departed}." if departed else READING,))
        return Summary(Table("Privacy Audit", (rule, head, rule, self._grid(), rule, note)))

    @property
    def verdict(self) -> str:
        return "no claim refuted" if self.passes else "CLAIM REFUTED"

    def _grid(self) -> TableGrid:
        heads = ("claimed", "exact", "bound", "trials", "")
        left = (TableColumn(name, "left") for name in ("query", "of"))
        columns = (*left, *map(TableColumn, heads))
        return TableGrid("Claims", columns, tuple(map(_cells, self.lines)), self.table)

    def __str__(self) -> str:
        return str(self.summary())

    def __repr__(self) -> str:
        return f"<audit of {self.call}: {self.verdict}>"

    def _repr_html_(self) -> str:
        return self.summary().as_html()


def _cells(line: Line) -> tuple[str, ...]:
    exact = "" if line.exact != line.exact else at_least(line.exact)
    mark = "" if line.holds else "FAILS"
    return (
        line.query, line.measure, at_most(line.claimed), exact, at_least(line.bound),
        f"{line.trials}", mark,
    )  # fmt: skip
