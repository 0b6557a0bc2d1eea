"""The stages of a fit and what each may spend: frozen, and checked before rows are read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from privcausal.accounting.charge import PICO
from privcausal.accounting.tradeoff import TradeOff
from privcausal.errors import BudgetError, CapabilityError
from privcausal.spec.cell_query import CellQuery, labels_of, translated
from privcausal.spec.partition import Partition, Product
from privcausal.spec.request import Request

TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Stage:
    """One release to come.

    Attributes
    ----------
    name : str
        Unique within the plan, e.g. ``"nuisance: outcome"``; the part before the colon is the
        stage of the budget table.
    rho : int
        pico-rho that sets its noise; 0 where `epsilon` does.
    delta : int
        pico-delta: of label selection, of a mechanism priced in (epsilon, delta), or the chance
        that a proof in rho fails.
    charged : int
        pico-rho that enters the total: 0 for work in parallel with an equally dear part.
    rows : float
        Public share of the rows it reads.
    part : str
        Which rows: ``"all"``, or the name of a part, such as ``"nuisance"`` or ``"effect"``.
    epsilon : int
        pico-epsilon of a mechanism priced in (epsilon, delta) and not in rho.
    """

    name: str
    rho: int
    delta: int = 0
    charged: int = -1
    rows: float = 1.0
    part: str = "all"
    epsilon: int = 0

    def __post_init__(self) -> None:
        if self.rho <= 0 and self.epsilon <= 0:
            raise BudgetError(
                f"stage {self.name!r} would get no budget: eps, delta or its share is too small to "
                "be divided, as prices are whole numbers of 1e-12"
            )
        if self.charged < 0:
            object.__setattr__(self, "charged", self.rho)


@dataclass(frozen=True)
class Plan:
    """The stages of one fit. `rho`, `epsilon` and `delta` are its totals in pico-units.

    Attributes
    ----------
    rho_cap : int
        What the budget allows, in pico-rho.
    least_rows : int
        Fewest rows for which the claim of ``mode="paper"`` holds; 0 elsewhere.
    partition : Partition or None
        The cells whose aggregates were released, by a learner that reads nothing else.
    least_part : int
        Fewest rows that each part of a split must hold.
    trade_off : TradeOff, optional
        What stages with declared guarantees promise together.
    aggregated : bool
        The rows were added up by cell before they came here.
    """

    request: Request
    learner: str
    base: str
    stages: tuple[Stage, ...]
    rho_cap: int
    least_rows: int = 0
    partition: Partition | None = None
    least_part: int = 0
    trade_off: TradeOff | None = None
    aggregated: bool = False

    def __post_init__(self) -> None:
        names = [s.name for s in self.stages]
        if len(set(names)) != len(names):
            raise BudgetError("two stages of a plan have one name")
        if self.rho > self.rho_cap:
            raise BudgetError("the stages of a plan cost more than its budget")

    @property
    def rho(self) -> int:
        return sum(s.charged for s in self.stages)

    @property
    def passes(self) -> int:
        """How often the rows are read through, by a learner whose stages are sums."""
        return len(self.stages)

    @property
    def epsilon(self) -> int:
        return sum(s.epsilon for s in self.stages)

    @property
    def delta(self) -> int:
        return sum(s.delta for s in self.stages)

    def stage(self, name: str) -> Stage:
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise BudgetError(f"the plan has no stage {name!r}")

    def has(self, name: str) -> bool:
        return any(s.name == name for s in self.stages)

    @property
    def pure(self) -> bool:
        """Whether everything is priced in epsilon alone."""
        return self.rho == 0 and self.delta == 0

    def sql(self, dialect: str = "duckdb", table: str = "data") -> str:
        """SQL for the exact aggregates by cell and arm, for whoever holds the rows.

        Its result is what `privcausal.from_cells` takes: cell, arm, count, sum, and the sum in
        whole steps. It is private, and exact until noise is added.

        Parameters
        ----------
        dialect : str
            ``"duckdb"``, or any that sqlglot knows: ``"snowflake"``, ``"bigquery"``, ``"spark"``.
        table : str
            What to call the table, as SQL writes it.

        Raises
        ------
        CapabilityError
            The plan protects units of several rows, the learner reads more than aggregates, its
            cells are no product of parts, or sqlglot is not installed or knows no such dialect.
        """
        if not isinstance(self.partition, Product):
            raise CapabilityError(
                "SQL is written for cells that are parts of features: learner='adum' with "
                "partition='grid' or declared parts"
            )
        if self.request.trust.unit is not None:
            raise CapabilityError(PER_ROW)
        formula = self.request.formula
        schema = self.request.schema
        query = CellQuery(
            formula.outcome, formula.treatment, formula.variables, schema, self.partition,
            labels_of(schema.columns),
        )  # fmt: skip
        return translated(query.for_owner(table), dialect)

    def __str__(self) -> str:
        lines = [f"{self.learner} on base {self.base}: {self.request.formula}"]
        lines += [f"  {s.name:<28} rho {s.rho / PICO:.6f}  rows {s.rows:.2f}" for s in self.stages]
        return "\n".join(lines)


PER_ROW = (
    "a table of cells protects one row: SQL does not see which rows of a unit= count, so such a "
    "plan has none. Plan the fit without unit=, for data with one row per person"
)


def divide(defaults: Mapping[str, float], given: Mapping[str, float] | None) -> dict[str, float]:
    """Shares that sum to one: the given ones as they are, the rest in proportion of what is left.

    Raises
    ------
    BudgetError
        Unknown names, shares below 0 or above 1, a sum above one, or all four below one.
    """
    given = dict(given or {})
    for name, value in given.items():
        if name not in KNOWN_SHARES:
            raise BudgetError(f"shares has no {str(name)!r}; this fit has {_listed(defaults)}")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and 0 <= value <= 1):
            raise BudgetError(f"shares[{name!r}] must be a number from 0 to 1")
    if given.get("average") and "average" not in defaults:
        raise BudgetError("shares has no 'average' here: the average is the effect itself")
    left = 1.0 - sum(given.values())
    rest = {name: share for name, share in defaults.items() if name not in given}
    if left < -TOLERANCE or (set(KNOWN_SHARES) <= set(given) and abs(left) > TOLERANCE):
        raise BudgetError("shares must sum to 1")
    if left <= TOLERANCE and "average" in rest:
        # all of rho was divided without a word on the averages: they keep their default share
        left = rest["average"]
        given = {name: value * (1 - left) for name, value in given.items()}
        rest = {"average": left}
    scale = max(left, 0.0) / sum(rest.values()) if rest else 0.0
    shares = {n: float(given[n]) if n in given else defaults[n] * scale for n in defaults}
    total = sum(shares.values())
    if total <= 0:
        raise BudgetError(f"shares leave nothing to spend: all this fit has is {_listed(defaults)}")
    # a share for something this fit does not need (bounds all declared) goes to the others
    return {name: share / total for name, share in shares.items()}


KNOWN_SHARES = ("bounds", "nuisance", "effect", "average")


def _listed(shares: Iterable[str]) -> str:
    return ", ".join(map(repr, shares))


def portions(total: int, shares: Sequence[float]) -> list[int]:
    """Integer amounts in proportion of `shares` that never sum above `total`."""
    whole = sum(shares)
    return [math.floor(total * (share / whole) * (1 - 1e-12)) for share in shares]
