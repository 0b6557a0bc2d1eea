"""The stages of a fit and what each may spend, and what a forecast of it assumes of the rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from privcausal.accounting.charge import PICO, Cost
from privcausal.accounting.price import EVENTS
from privcausal.accounting.tradeoff import TradeOff
from privcausal.errors import BudgetError, CapabilityError
from privcausal.prices import at_most
from privcausal.request.partition import CellQuery, Partition, Product, text_columns
from privcausal.request.request import Request, is_real
from privcausal.request.schema import Interval
from privcausal.stored import stored

SHARE_TOLERANCE = 1e-9

PRICES = ("rho", "epsilon", "delta")

StageGroup = Literal["bounds", "nuisance", "effect", "average", "look"]
"""What stages are for; each of the first four has a share of the budget, and looks one apiece."""


class StageKey(str):
    """What a stage is known by: its group, whose share of the budget it has, and what is asked.

    As text it is ``"group: query"``, or ``"heading: query"`` where one is given: so plans, files
    and budget tables show it. Each stage is named once, and asked for by its key.
    """

    group: StageGroup
    query: str

    def __new__(cls, group: StageGroup, query: str, *, heading: str = "") -> StageKey:
        key = super().__new__(cls, f"{heading or group}: {query}")
        key.group, key.query = group, query
        return key


@stored
@dataclass(frozen=True, slots=True)
class Stage:
    """One release to come.

    Attributes
    ----------
    name : str
        The text of its key, unique within the plan: ``"nuisance: outcome"``.
    rho : int
        pico-rho that sets its noise; 0 where `epsilon` does.
    delta : int
        pico-delta of label selection, of a mechanism priced in (epsilon, delta), or of the event
        that a proof in rho fails.
    charged : int
        pico-rho that enters the total: 0 for work in parallel with an equally expensive part.
    rows : float
        Public share of the rows it reads.
    part : str
        Which rows: ``"all"``, or the name of a part, such as ``"nuisance"`` or ``"effect"``.
    epsilon : int
        pico-epsilon of a mechanism priced in (epsilon, delta) and not in rho.
    free : bool
        Its epsilon and delta do not enter the total: a part of other rows is charged as much.
    """

    name: str
    rho: int
    delta: int = 0
    charged: int = -1
    rows: float = 1.0
    part: str = "all"
    epsilon: int = 0
    free: bool = False

    def __post_init__(self) -> None:
        if self.rho <= 0 and self.epsilon <= 0:
            raise BudgetError(
                f"stage {self.name!r} would get no budget: eps, delta or its share is too small to "
                "be divided, as prices are whole numbers of 1e-12"
            )
        object.__setattr__(self, "name", str(self.name))  # files hold text, not keys
        if self.charged < 0:
            object.__setattr__(self, "charged", self.rho)

    @property
    def heading(self) -> str:
        """Its stage in the budget table."""
        return self.name.partition(": ")[0]

    @property
    def query(self) -> str:
        """What is asked for."""
        return self.name.partition(": ")[2] or self.name

    @property
    def parallel(self) -> bool:
        """Whether an equally expensive part pays for it."""
        return self.charged < self.rho or self.free


@stored
@dataclass(frozen=True)
class Plan:
    """The stages of one fit. `rho`, `epsilon` and `delta` are its totals in pico-units.

    Attributes
    ----------
    rho_cap : int
        What the budget allows, in pico-rho.
    least_rows : int
        Fewest rows for which a published claim holds; 0 elsewhere.
    most_rows : int
        Most rows that the learner can work on; 0 where there is no such number.
    partition : Partition or None
        The cells whose aggregates are all that the learner reads.
    least_part : int
        Fewest rows that each part of a split must hold.
    trade_off : TradeOff, optional
        What stages with declared guarantees promise together.
    aggregated : bool
        The rows were added up by cell before they came here.
    gdp : bool
        Every stage in rho is one release of discrete Gaussian noise on the vault's fine grid, so
        that rho is mu^2 / 2.
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
    gdp: bool = False
    most_rows: int = 0

    def __post_init__(self) -> None:
        names = [s.name for s in self.stages]
        if len(set(names)) != len(names):
            raise BudgetError("two stages of a plan have one name")
        if self.rho > self.rho_cap:
            raise BudgetError("the stages of a plan cost more than its budget")
        self._check_free()
        if self.gdp and len(self.stages) > EVENTS:
            raise BudgetError(
                f"this fit would have {len(self.stages)} stages, and {EVENTS} are the most; "
                "declare bounds=, or fewer arms or rounds"
            )

    def _check_free(self) -> None:
        """What is free reads rows that no other stage reads, and is no dearer than those that pay.

        A row is in one part, so that tables which differ in one row differ in one part: the others
        follow from what was released. Their total is that of the dearest part, in each currency. A
        stage on all rows reads a free part's too, and so pays for none.
        """
        paying = [s for s in self.stages if not s.free and s.part != "all"]
        paid = [sum(getattr(s, of) for s in paying) for of in ("charged", "epsilon", "delta")]
        for part in {s.part for s in self.stages if s.free}:
            own = [s for s in self.stages if s.part == part]
            spent = (sum(getattr(s, of) for s in own) for of in PRICES)
            dear = any(one > most for one, most in zip(spent, paid, strict=True))
            if part == "all" or dear or not all(s.parallel for s in own):
                raise BudgetError(f"nothing pays for the stages of part {part!r}")

    @property
    def rho(self) -> int:
        return sum(s.charged for s in self.stages)

    def cost(self, stage: Stage) -> Cost:
        """What the ledger is charged for a stage."""
        own = (0, 0) if stage.free else (stage.epsilon, stage.delta)
        return Cost(stage.charged, *own, self.gdp and stage.rho > 0)

    @property
    def epsilon(self) -> int:
        return sum(s.epsilon for s in self.stages if not s.free)

    @property
    def delta(self) -> int:
        return sum(s.delta for s in self.stages if not s.free)

    def stage(self, key: StageKey) -> Stage:
        for stage in self.stages:
            if stage.name == key:
                return stage
        raise BudgetError(f"the plan has no stage {key!r}")

    def has(self, key: StageKey) -> bool:
        return any(s.name == key for s in self.stages)

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
        if formula.response is not None:
            raise CapabilityError(
                f"SQL is not written for {formula.response}: make it a column of the table, with "
                "bounds of its own"
            )
        schema = self.request.schema
        labels = text_columns(schema.columns)
        query = CellQuery(
            formula.outcome, formula.treatment, formula.variables, schema, self.partition, labels
        )
        return translated(query.for_owner(table), dialect)

    def __str__(self) -> str:
        lines = [f"{self.learner} on base {self.base}: {self.request.formula}"]
        lines += [
            f"  {s.name:<28} rho {at_most(s.rho / PICO):<9}  rows {s.rows:.2f}" for s in self.stages
        ]
        return "\n".join(lines)


PER_ROW = (
    "a table of cells protects one row: SQL does not see which rows of a unit= count, so such a "
    "plan has none. Plan the fit without unit=, for data with one row per person"
)


def divide(defaults: Mapping[str, float], given: Mapping[str, float] | None) -> dict[str, float]:
    """Shares that sum to one: the given ones, and the others in proportion of what these leave.

    Raises
    ------
    BudgetError
        Unknown names, shares below 0 or above 1, a sum above one, or all four below one.
    """
    given = dict(given or {})
    known = ", ".join(map(repr, defaults))
    for name, value in given.items():
        if name not in KNOWN_SHARES:
            raise BudgetError(f"shares has no {str(name)!r}; this fit has {known}")
        if not (is_real(value) and 0 <= value <= 1):
            raise BudgetError(f"shares[{name!r}] must be a number from 0 to 1")
    if given.get("average") and "average" not in defaults:
        raise BudgetError("shares has no 'average' here: the average is the effect itself")
    left = 1.0 - sum(given.values())
    rest = {name: share for name, share in defaults.items() if name not in given}
    if left < -SHARE_TOLERANCE or (set(KNOWN_SHARES) <= set(given) and abs(left) > SHARE_TOLERANCE):
        raise BudgetError("shares must sum to 1")
    if left <= SHARE_TOLERANCE and "average" in rest:
        # all of rho was divided among the others: the averages keep their default share
        left = rest["average"]
        given = {name: value * (1 - left) for name, value in given.items()}
        rest = {"average": left}
    scale = max(left, 0.0) / sum(rest.values()) if rest else 0.0
    shares = {n: float(given[n]) if n in given else defaults[n] * scale for n in defaults}
    total = sum(shares.values())
    if total <= 0:
        raise BudgetError(f"shares leave nothing to spend: all this fit has is {known}")
    # a share that this fit does not need (bounds, where all are declared) goes to the others
    return {name: share / total for name, share in shares.items()}


KNOWN_SHARES = ("bounds", "nuisance", "effect", "average")


def portions(total: int, shares: Sequence[float]) -> list[int]:
    """Whole amounts in proportion to `shares` whose sum is at most `total`."""
    whole = sum(shares)
    return [math.floor(total * (share / whole) * (1 - 1e-12)) for share in shares]


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


SPREADS_PER_RANGE = 4.0
"""A numeric outcome is taken to span this many of its standard deviations."""

PROPENSITY_SPREAD = 0.15
"""Standard deviation of e(x) over the covariates, where it is not known."""

LEVELS = 4
"""Labels that a column of undeclared labels is taken to hold, equally often."""

LEAST_SPREAD = 1e-4
"""Least standard deviation of the outcome, as a share of its range."""


@dataclass(frozen=True)
class Assumptions:
    """The law of invented rows: outcome, arms and covariates, all of it public.

    Covariates are independent and uniform over their domains. The outcome given treatment and
    covariates has a beta law over its range, so that any standard deviation up to half the range
    is possible; there a value is one of the two ends. Treatment has no effect, and nothing is
    missing.

    Attributes
    ----------
    width : float
        Of the outcome's domain.
    outcome_sd : float
        Standard deviation of the outcome within an arm, in its own units; of an outcome of two
        labels it says how often the rarer one occurs.
    r2 : float
        Share of its variance that the covariates explain alike in both arms, in [0, 1).
    treated : float
        Share of rows treated, where the propensity is not known.
    """

    width: float
    outcome_sd: float
    r2: float = 0.0
    treated: float = 0.5

    def __post_init__(self) -> None:
        most = 0.5 * self.width
        least = LEAST_SPREAD * self.width
        if not (is_real(self.outcome_sd) and least <= self.outcome_sd <= most * (1 + 1e-9)):
            raise CapabilityError(
                f"outcome_sd must be a number from {least:.4g} to {most:.4g}: no outcome in its "
                "bounds has a standard deviation above half their width"
            )
        if not (is_real(self.r2) and 0 <= self.r2 <= 0.99):
            raise CapabilityError("r2 must be a number from 0 to 0.99")
        if not (is_real(self.treated) and 0.01 <= self.treated <= 0.99):
            raise CapabilityError("treated must be a number from 0.01 to 0.99")

    @property
    def worst(self) -> Assumptions:
        """The most variable outcome its bounds allow, with nothing explained."""
        return replace(self, outcome_sd=0.5 * self.width, r2=0.0)


def assume(
    request: Request, outcome_sd: float | None = None, r2: float = 0.0, treated: float = 0.5
) -> Assumptions:
    """The user's assumptions, completed.

    An outcome of two labels is taken to have both equally often, and so is one with bounds (0, 1),
    which most often holds 0 and 1; any other, a standard deviation of a quarter of its declared
    width.

    Raises
    ------
    CapabilityError
        A number that no outcome within the bounds can have, or no bounds and no `outcome_sd`.
    """
    name = request.formula.outcome
    domain = request.schema.get(name)
    if domain is None:
        if outcome_sd is None or not (is_real(outcome_sd) and 0 < outcome_sd < math.inf):
            raise CapabilityError(
                f"a plan needs the scale of the outcome {name!r}: declare its bounds, "
                f"bounds={{{name!r}: (lo, hi)}}, or give outcome_sd="
            )
        return Assumptions(SPREADS_PER_RANGE * outcome_sd, outcome_sd, r2, treated)
    width, usual = 1.0, 0.5
    if isinstance(domain, Interval):
        one_or_none = (domain.lo, domain.hi) == (0.0, 1.0)
        width, usual = domain.width, domain.width / (2.0 if one_or_none else SPREADS_PER_RANGE)
    return Assumptions(width, usual if outcome_sd is None else outcome_sd, r2, treated)
