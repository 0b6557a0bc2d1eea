"""The stages of a fit, the budget of each stage, and the assumptions of a forecast."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from privcausal.accounting.price import EVENTS, NUMBERS, PICO, Cost
from privcausal.accounting.tradeoff import TradeOff
from privcausal.errors import BudgetError, CapabilityError, is_number
from privcausal.prices import at_most
from privcausal.request.partition import Partition, Product, cell_sql
from privcausal.request.request import FOLDS, Request
from privcausal.request.schema import Domain, Interval, label_key

if TYPE_CHECKING:
    import pandas as pd

SHARE_TOLERANCE = 1e-9

PRICES = ("rho", "epsilon", "delta")

StageGroup = Literal["bounds", "nuisance", "effect", "average", "look"]
"""Purpose of a stage. Each of the first four has a share of the budget, and each "look" (a
histogram or diagnostic release) has a share of its own."""


class StageKey(str):
    """Identifier of a stage: its group, which has a share of the budget, and its query.

    As text it is ``"group: query"``, or ``"heading: query"`` if a heading is given. Plans, files
    and budget tables show this text. Each stage is named once, and found by its key.
    """

    group: StageGroup
    query: str

    def __new__(cls, group: StageGroup, query: str, *, heading: str = "") -> StageKey:
        key = super().__new__(cls, f"{heading or group}: {query}")
        key.group, key.query = group, query
        return key


@dataclass(frozen=True, slots=True)
class Stage:
    """One planned release."""

    name: str  # The text of its key, unique within the plan: ``"nuisance: outcome"``
    rho: int  # pico-rho that sets its noise; 0 if `epsilon` sets it
    # pico-delta of label selection, of a mechanism with a cost in (epsilon, delta), or of the event
    # that a proof in rho fails
    delta: int = 0
    # pico-rho added to the total; 0 for a stage in parallel with an equally expensive part
    charged: int = -1
    rows: float = 1.0  # Public share of the rows that the stage reads
    # The rows read: ``"all"``, or the name of a part, such as ``"nuisance"`` or ``"effect"``
    part: str = "all"
    epsilon: int = 0  # pico-epsilon of a mechanism with a cost in (epsilon, delta) instead of rho
    # Whether its epsilon and delta are left out of the total, because a part with other rows is
    # charged at least as much
    free: bool = False
    # `heading`, `query`: name of the stage in the budget table, and its query
    heading: str = field(init=False, repr=False, compare=False)
    query: str = field(init=False, repr=False, compare=False)
    # Whether the charge of an equally expensive part covers this stage
    parallel: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.rho <= 0 and self.epsilon <= 0:
            raise BudgetError(
                f"Stage {self.name!r} would get no budget. eps, delta or its share is too small, "
                "because costs are whole multiples of 1e-12."
            )
        object.__setattr__(self, "name", str(self.name))  # files hold plain text
        if self.charged < 0:
            object.__setattr__(self, "charged", self.rho)
        heading, _, query = self.name.partition(": ")
        object.__setattr__(self, "heading", heading)
        object.__setattr__(self, "query", query or self.name)
        object.__setattr__(self, "parallel", self.charged < self.rho or self.free)


@dataclass(frozen=True)
class Plan:
    """The stages of one fit. `rho`, `epsilon` and `delta` are its totals in pico-units."""

    request: Request
    learner: str
    base: str
    stages: tuple[Stage, ...]
    rho_cap: int  # Maximum pico-rho that the budget allows
    least_rows: int = 0  # Minimum number of rows that a published claim needs; otherwise 0
    # Cells of the aggregates, if the learner reads only aggregates
    partition: Partition | None = None
    least_part: int = 0  # Minimum number of rows in each part of a split
    trade_off: TradeOff | None = None  # Joint guarantee of the stages with declared guarantees
    aggregated: bool = False  # Whether the input was already added up by cell
    # Whether every stage in rho is one release of discrete Gaussian noise on the vault's fine grid,
    # so that rho is mu^2 / 2
    gdp: bool = False
    most_rows: int = 0  # Maximum number of rows that the learner can use; 0 for no limit
    # Totals in pico-units
    rho: int = field(init=False, repr=False, compare=False)
    epsilon: int = field(init=False, repr=False, compare=False)
    delta: int = field(init=False, repr=False, compare=False)
    # Whether all costs are in epsilon alone
    pure: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rho = sum(s.charged for s in self.stages)
        epsilon, delta = (
            sum(getattr(s, of) for s in self.stages if not s.free) for of in ("epsilon", "delta")
        )
        pure = rho == 0 and delta == 0
        vars(self).update(rho=rho, epsilon=epsilon, delta=delta, pure=pure)
        names = [s.name for s in self.stages]
        if len(set(names)) != len(names):
            raise BudgetError("Two stages of a plan have the same name.")
        if self.rho > self.rho_cap:
            raise BudgetError("The stages of a plan cost more than its budget.")
        if self.gdp and len(self.stages) > EVENTS:
            raise BudgetError(
                f"This fit would have {len(self.stages):,} stages. The maximum is {EVENTS:,}. "
                "Declare bounds=, or use fewer arms or rounds."
            )

        # Free stages use separate rows and cost no more than the charged parts. Each row is in one
        # part, so tables that differ in one row differ in one part only. The stages on the other
        # parts then follow from released numbers. The total cost is therefore the cost of the most
        # expensive part, in each of rho, epsilon and delta. A stage on all rows also reads the rows
        # of a free part, so its charge does not cover a free part.
        paying = [s for s in self.stages if not s.free and s.part != "all"]
        paid = [sum(getattr(s, of) for s in paying) for of in ("charged", "epsilon", "delta")]
        for part in {s.part for s in self.stages if s.free}:
            members = [s for s in self.stages if s.part == part]
            spent = (sum(getattr(s, of) for s in members) for of in PRICES)
            dear = any(cost > most for cost, most in zip(spent, paid, strict=True))
            if part == "all" or dear or not all(s.parallel for s in members):
                raise BudgetError(f"The stages of part {part!r} are not covered by the charges.")

    def cost(self, stage: Stage) -> Cost:
        """The ledger's charge for a stage."""
        epsilon, delta = (0, 0) if stage.free else (stage.epsilon, stage.delta)
        return Cost(stage.charged, epsilon, delta, self.gdp and stage.rho > 0)

    def stage(self, key: StageKey) -> Stage:
        for stage in self.stages:
            if stage.name == key:
                return stage
        raise BudgetError(f"The plan has no stage {key!r}.")

    def has(self, key: StageKey) -> bool:
        return any(s.name == key for s in self.stages)

    def sql(self, dialect: str = "duckdb", table: str = "data") -> str:
        """Return SQL for the exact aggregates by cell and arm, to be run by the data holder.

        `privcausal.from_cells` takes the result: cell, arm, count, sum, and the sum in whole steps.
        The result is exact and private until noise is added.

        Parameters
        ----------
        dialect : str
            ``"duckdb"``, or a dialect of sqlglot: ``"snowflake"``, ``"bigquery"``, ``"spark"``.
        table : str
            Name of the table, in SQL syntax.

        Raises
        ------
        CapabilityError
            If the plan protects units of several rows, the learner reads more than aggregates, or
            its cells are not a product of parts. Also if sqlglot is not installed or does not know
            the dialect.
        """
        if not isinstance(self.partition, Product):
            raise CapabilityError(
                "SQL is available only for cells that are parts of features. Use learner='adum' "
                "with partition='grid' or declared parts."
            )
        if self.request.trust.unit is not None:
            raise CapabilityError(PER_ROW)
        formula = self.request.formula
        if formula.response is not None:
            raise CapabilityError(
                f"SQL is not available for {formula.response}. Make it a column of the table, with "
                "its own bounds."
            )
        statement = cell_sql(
            table,
            self.partition,
            self.request.schema,
            outcome=formula.outcome,
            treatment=formula.treatment,
            variables=formula.variables,
        )
        if dialect == "duckdb":
            return statement
        try:
            import sqlglot
        except ImportError:
            raise CapabilityError(
                f"SQL for {dialect!r} requires sqlglot. Run pip install 'privcausal[sql]'."
            ) from None
        try:
            return str(sqlglot.transpile(statement, read="duckdb", write=dialect, pretty=True)[0])
        except ValueError:
            raise CapabilityError(
                f"dialect={str(dialect)[:40]!r} is unknown to sqlglot. Common dialects are "
                "'duckdb', 'postgres', 'snowflake', 'bigquery' and 'spark'."
            ) from None

    def __str__(self) -> str:
        lines = [f"{self.learner}, base={self.base!r}: {self.request.formula}"]
        lines += [
            f"  {s.name:<28} rho {at_most(s.rho / PICO):<9}  rows {s.rows:.2f}" for s in self.stages
        ]
        return "\n".join(lines)


PER_ROW = (
    "A table of cells protects single rows, because SQL cannot limit the rows of each unit. Plan "
    "the fit without unit=, for data with one row per person."
)


def divide(defaults: Mapping[str, float], chosen: Mapping[str, float] | None) -> dict[str, float]:
    """Return shares that sum to one: the given shares, and the others in their default proportions.

    Raise `BudgetError` for unknown names, shares below 0 or above 1, a sum above one, or all four
    below one.
    """
    chosen = dict(chosen or {})
    names = ", ".join(map(repr, defaults))
    for name, value in chosen.items():
        if name not in KNOWN_SHARES:
            raise BudgetError(
                f"shares= cannot contain {str(name)!r}. The shares of this fit are {names}."
            )
        if not (is_number(value) and 0 <= value <= 1):
            raise BudgetError(f"shares[{name!r}] must be a number from 0 to 1.")
    if chosen.get("average") and "average" not in defaults:
        raise BudgetError(
            "shares= cannot contain 'average' here, because the effect is itself an average."
        )
    left = 1.0 - sum(chosen.values())
    rest = {name: share for name, share in defaults.items() if name not in chosen}
    if left < -SHARE_TOLERANCE or (
        set(KNOWN_SHARES) <= set(chosen) and abs(left) > SHARE_TOLERANCE
    ):
        raise BudgetError("shares must sum to 1.")
    if left <= SHARE_TOLERANCE and "average" in rest:
        # The given shares use all of rho, so the averages keep their default share.
        left = rest["average"]
        chosen = {name: value * (1 - left) for name, value in chosen.items()}
        rest = {"average": left}
    scale = max(left, 0.0) / sum(rest.values()) if rest else 0.0
    shares = {n: float(chosen[n]) if n in chosen else defaults[n] * scale for n in defaults}
    total = sum(shares.values())
    if total <= 0:
        raise BudgetError(f"shares must leave a budget for this fit, which uses only {names}.")
    # Redistribute shares that this fit does not need (for example, bounds if all are declared).
    return {name: share / total for name, share in shares.items()}


LARGEST_RELEASE = NUMBERS // FOLDS
"""Maximum count of numbers in one release."""


def check_release(numbers: int, what: str) -> None:
    """Refuse a release of more numbers than its cost allows; `what` it has too many of."""
    if numbers > LARGEST_RELEASE:
        raise CapabilityError(
            f"A release would have {numbers:,} numbers, but at most {LARGEST_RELEASE:,} are "
            f"allowed. Use fewer {what}."
        )


KNOWN_SHARES = ("bounds", "nuisance", "effect", "average")


def portions(total: int, shares: Sequence[float]) -> list[int]:
    """Whole amounts in proportion to `shares`, with a sum of at most `total`."""
    whole = sum(shares)
    return [math.floor(total * (share / whole) * (1 - 1e-12)) for share in shares]


SPREADS_PER_RANGE = 4.0
"""Assumed number of standard deviations in the range of a numeric outcome."""


@dataclass(frozen=True)
class PopulationShape:
    """Shapes of simulated columns."""

    # `mean`, `sd`: of a numeric column, as shares of the width of its bounds
    mean: float
    sd: float
    # Share of ones in a column with two values, and of rows at a value where a term jumps
    ones: float
    correlation: float  # Correlation of any two columns, after a transformation to normal columns
    confounding: float  # Share of an unknown treatment's variance that the covariates explain
    # Maximum distance of a numeric outcome's mean from its lower bound, in standard deviations. A
    # small number gives a skewed outcome.
    tail: float
    next_level: float = 1.0  # Frequency of each level relative to that of the level before


USUAL = PopulationShape(
    mean=0.26, sd=0.12, ones=0.15, correlation=0.2, confounding=0.12, tail=3.0, next_level=0.65
)
"""Medians of the columns of public data sets with bounds from codebooks."""

CLUSTER_CORRELATION = 0.1
"""Assumed correlation within clusters: common in schools, and high for health outcomes."""

LEVELS = 4
"""Assumed number of labels in a column without declared labels."""

WITH_EVENT = 0.6
"""Assumed share of survival times that end with the event, whatever the time."""

LEAST_SPREAD = 1e-4
"""Minimum standard deviation of the outcome, as a share of its range."""


@dataclass(frozen=True)
class Assumptions:
    """Public distribution of simulated rows: outcome, arms and covariates.

    Numeric covariates have beta distributions within their bounds, and `population` gives their
    shapes and the frequencies of levels. The propensity is a beta-distributed function of the
    covariates. Given treatment and covariates, the outcome has a beta distribution over its
    range. Any standard deviation up to half the range is then possible; at half the range, each
    value is one of the two ends. Treatment has no effect, and values are never missing. Columns of
    `like` are resampled instead.
    """

    width: float  # Width of the outcome's domain
    # Standard deviation of the outcome within an arm, in the outcome's units. For an outcome with
    # two labels, it determines the frequency of the rarer label.
    outcome_sd: float
    # Share of the outcome's variance that the covariates explain, in [0, 1), equal in both arms
    r2: float = 0.0
    treated: float = 0.5  # Share of rows treated, if the propensity is unknown
    population: PopulationShape = USUAL  # Shapes of the invented columns
    # Public rows, by column, of equal lengths
    like: Mapping[str, Any] = field(default_factory=dict, compare=False)
    # Correlation of the rows' influences on the estimate within a cluster of declared clusters
    icc: float = CLUSTER_CORRELATION
    # Source of the outcome's scale: its "bounds", "outcome_sd", or public rows ("like")
    scale_source: str = "bounds"

    def __post_init__(self) -> None:
        most = 0.5 * self.width
        least = LEAST_SPREAD * self.width
        if not (is_number(self.outcome_sd) and least <= self.outcome_sd <= most * (1 + 1e-9)):
            raise CapabilityError(
                f"outcome_sd must be a number from {least:.4g} to {most:.4g}. A standard deviation "
                "cannot exceed half the width of the outcome bounds."
            )
        if not (is_number(self.r2) and 0 <= self.r2 <= 0.99):
            raise CapabilityError("r2 must be a number from 0 to 0.99.")
        if not (is_number(self.icc) and 0 <= self.icc <= 1):
            raise CapabilityError("icc must be a number from 0 to 1.")
        if not (is_number(self.treated) and 0.01 <= self.treated <= 0.99):
            raise CapabilityError("treated must be a number from 0.01 to 0.99.")


def assume(
    request: Request,
    outcome_sd: float | None = None,
    r2: float = 0.0,
    treated: float = 0.5,
    like: pd.DataFrame | None = None,
    icc: float = CLUSTER_CORRELATION,
) -> Assumptions:
    """Complete the user's assumptions.

    If `like` holds the treatment or the outcome, these determine `treated` and `outcome_sd`.

    An outcome with two labels is assumed to have both equally often. An outcome with bounds (0, 1)
    is treated the same way, because most such outcomes hold only 0 and 1. Any other outcome is
    assumed to have a standard deviation of a quarter of its declared width.

    Raises
    ------
    CapabilityError
        If no outcome within the bounds can have the number, or if bounds and `outcome_sd` are
        both absent. Also if `like` has no complete row of the formula's columns.
    """
    name, arm = request.formula.outcome, request.formula.assigned
    domain = request.schema.get(name)
    public = {} if like is None else _public_rows(request, like)
    source = "like" if name in public else "bounds" if outcome_sd is None else "outcome_sd"
    if domain is None:
        if outcome_sd is None or not (is_number(outcome_sd) and 0 < outcome_sd < math.inf):
            raise CapabilityError(
                f"A plan requires the scale of the outcome {name!r}. Declare its bounds, "
                f"bounds={{{name!r}: (lo, hi)}}, or pass outcome_sd=."
            )
        width = SPREADS_PER_RANGE * outcome_sd
        return Assumptions(
            width, outcome_sd, r2, treated, like=public, icc=icc, scale_source=source
        )
    width, usual = 1.0, 0.5
    if isinstance(domain, Interval):
        coded = (domain.lo, domain.hi) == (0.0, 1.0)
        width, usual = domain.width, domain.width / (2.0 if coded else SPREADS_PER_RANGE)
    if name in public and request.formula.response is None:
        spread = float(np.std(_numbers(public[name], domain)))
        usual = min(max(spread, LEAST_SPREAD * width), 0.5 * width)
    if arm in public:
        share = float(np.mean(_numbers(public[arm], request.schema.get(arm))))
        treated = min(max(share, 0.01), 0.99)
    sd = usual if outcome_sd is None else outcome_sd
    return Assumptions(width, sd, r2, treated, like=public, icc=icc, scale_source=source)


def _public_rows(request: Request, like: pd.DataFrame) -> dict[str, Any]:
    """The complete rows of `like`, restricted to the formula's columns."""
    import pandas as pd

    if not isinstance(like, pd.DataFrame):
        raise CapabilityError("like= must be a pandas DataFrame of public rows.")
    unit = request.trust.unit
    like = like.loc[:, ~like.columns.duplicated()]
    frame = like[[name for name in request.columns if name in like and name != unit]].copy()
    if frame.empty:
        raise CapabilityError(
            "like= must have rows and at least one column of the formula, with the same name."
        )
    for name in map(str, frame):
        domain = request.schema.get(name)
        text = domain is None and name in request.formula.categorical
        if not text and getattr(domain, "labels", None) is None:
            frame[name] = pd.to_numeric(frame[name], errors="coerce") * 1.0
    complete = frame.dropna()
    if complete.empty:
        raise CapabilityError(
            "like= has no complete rows. Leave out the columns with missing values. Columns with "
            "labels must have levels in bounds=, or C() in the formula."
        )
    return {str(name): rows.to_numpy() for name, rows in complete.items()}


def _numbers(column: Any, domain: Domain | None) -> Any:
    """Clipped values, or 1 for the last label and 0 for all other labels."""
    labels = getattr(domain, "labels", None)
    if labels is not None:
        return np.array([label_key(value) == label_key(labels[-1]) for value in column])
    lo, hi = (domain.lo, domain.hi) if isinstance(domain, Interval) else (0.0, 1.0)
    return np.clip(column, lo, hi)
