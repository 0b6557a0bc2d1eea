"""The complete, data-free request of one call, and the plan of stages and budgets that answers it.

Both are checked before any row is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

import numpy as np

from privcausal.accounting.price import EVENTS, NUMBERS, PICO, Cost
from privcausal.accounting.tradeoff import TradeOff
from privcausal.errors import BudgetError, CapabilityError, SchemaError, is_number, named
from privcausal.prices import at_most
from privcausal.request.formula import CausalFormula, ResultTerm, group_columns, late_terms
from privcausal.request.panels import Panel, Staggered
from privcausal.request.partition import Partition, Product, cell_sql
from privcausal.request.schema import Domain, Interval, Levels, Schema, label_key
from privcausal.typing import Average, Neighbors, OfMeans, Ratio, Split

if TYPE_CHECKING:
    import pandas as pd


# -- survival times ----------------------------------------------------------------------------

SURVIVAL: tuple[Average, ...] = ("RMST", "risk")
"""Averages of survival outcomes, which need a horizon."""

HORIZONS = 2.0**-59, 2.0**59
"""Smallest and largest horizon. Bounds of the time are twice as wide, and at most 2^60."""


def followed(schema: Schema, formula: CausalFormula, horizon: Any) -> Schema:
    """The schema with bounds of a survival time, which need only extend beyond the horizon."""
    name = formula.outcome
    usable = is_number(horizon) and HORIZONS[0] <= horizon <= HORIZONS[1]
    if not (formula.event and usable) or name in schema:
        return schema
    return schema.with_columns({name: Interval(0.0, 2.0 * horizon)})


# -- the request -------------------------------------------------------------------------------

Special = Literal["CATE", "OLS", "logit", "poisson", "ATT(g, t)"]
"""Estimands that are not averages of `private`."""

COHORTS: Special = "ATT(g, t)"
GENERALIZED: tuple[Special, ...] = ("logit", "poisson")
REGRESSIONS: tuple[Special, ...] = ("OLS", *GENERALIZED)
AVERAGES: tuple[Average, ...] = get_args(Average)
RATIOS: tuple[Ratio, ...] = get_args(Ratio)
OF_MEANS: tuple[OfMeans, ...] = ("means", *RATIOS)
RISKS = ("E[Y(0)]", "E[Y(1)]")
"""Names of the mean outcomes in results; risk and odds ratios compare them."""
Mode = Literal["proven", "paper"]
BelowMinimum = Literal["refuse", "published"]
Tails = Literal["fitted", "any"]
CovType = Literal["nonrobust", "HC0", "HC1"]
SPLITS: tuple[Split, ...] = ("full", "disjoint", "crossfit")
FOLDS = 2
LEAST_PROPENSITY = 1e-6
"""If a propensity is nearer to 0 or 1, scores that divide by it are useless; their bounds nearly
overflow."""


@dataclass(frozen=True)
class Budget:
    """(epsilon, delta) of one fit and the division of its rho.

    `shares` maps ``"bounds"``, ``"nuisance"``, ``"effect"``, ``"average"`` to fractions. Parts
    that are not named divide the rest in their default proportions.
    """

    epsilon: float
    delta: float = 1e-5
    shares: Mapping[str, float] = field(default_factory=dict)
    given: bool = False
    """Whether a third party states the guarantee. It may then be pure (delta = 0)."""

    def __post_init__(self) -> None:
        # A whole number may be too large for a float, so compare it without converting it.
        eps: Any = self.epsilon
        if not (is_number(eps) and 0 < eps < math.inf):
            raise BudgetError(
                f"eps must be a finite number above 0, not {_public(eps)}. Write eps=1.0."
            )
        delta: Any = self.delta
        if self.given and delta == 0:
            return
        if not (is_number(delta) and 0 < delta < 1):
            raise BudgetError(
                f"delta must be a number in (0, 1), not {_public(delta)}. Write delta=1e-5."
            )


def _public(value: Any) -> str:
    """Short text of an argument, for a message; objects other than plain scalars show a type."""
    plain = value is None or isinstance(value, str | int | float | bool)
    return repr(value)[:40] if plain else f"an object of type {type(value).__name__}"


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        near = [k for k in choices if isinstance(value, str) and k.lower() == value.lower()]
        write = f"Write {near[0]!r}" if near else f"Choose one of {', '.join(map(repr, choices))}"
        raise CapabilityError(f"{name}={_public(value)} is unknown. {write}.")


@dataclass(frozen=True)
class Trust:
    """The neighboring relation and the unit that the guarantee protects.

    With a `panel`, the guarantee covers all rows of a unit.
    """

    neighbors: Neighbors = "substitute"
    unit: str | None = None
    max_rows: int = 1
    panel: Panel | None = None
    # The protected unit as text: ``"row"``, or ``"patient_id (at most 3 rows)"``
    protected: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_choice("neighbors", self.neighbors, get_args(Neighbors))
        if type(self.max_rows) is not int or not 1 <= self.max_rows <= 10_000:
            raise BudgetError("max_rows must be a whole number from 1 to 10,000.")
        if self.unit is None and self.max_rows != 1:
            raise BudgetError(
                "max_rows= requires unit=. Name the column that identifies the unit: unit='id'."
            )
        if self.unit is not None and not (isinstance(self.unit, str) and self.unit):
            raise BudgetError("unit= must be the name of a column.")
        protected = "row" if self.unit is None else f"{self.unit} (at most {self.max_rows} rows)"
        protected = protected if self.panel is None else f"{self.unit} (all rows)"
        object.__setattr__(self, "protected", protected)

    @classmethod
    def of(cls, neighbors: Any, unit: Any, max_rows: Any) -> Trust:
        """The relation of a call. Its units must state their number of rows."""
        trust = cls(neighbors, unit, 1 if max_rows is None else max_rows)
        if unit is not None and max_rows is None:
            raise BudgetError(
                "unit= requires max_rows=, the largest number of rows used of each unit. Write "
                f"unit={unit!r}, max_rows=5. With max_rows=1, only the first row is used."
            )
        return trust


@dataclass(frozen=True)
class Clusters:
    """Rows of one cluster may depend on one another; clusters are independent.

    Standard errors allow for this dependence. The guarantee still protects the row, or the unit.
    """

    column: str  # Column that names the cluster of each row
    max_rows: int  # Declared largest number of rows of a cluster

    def __post_init__(self) -> None:
        if not (isinstance(self.column, str) and self.column):
            raise CapabilityError("cluster= must be the name of a column, for example 'village'.")
        if type(self.max_rows) is not int or not 1 <= self.max_rows <= MAX_CLUSTER_ROWS:
            raise CapabilityError(
                "max_cluster_rows= must be a whole number from 1 to "
                f"{MAX_CLUSTER_ROWS:,}: the largest number of rows of a cluster. It is public."
            )

    @classmethod
    def of(cls, column: Any, max_rows: Any) -> Clusters | None:
        if column is None and max_rows is None:
            return None
        if column is None or max_rows is None:
            raise CapabilityError(
                "cluster= and max_cluster_rows= require each other. Write cluster='village', "
                "max_cluster_rows=20. The largest number of rows of a cluster is public."
            )
        return cls(column, max_rows)


MAX_CLUSTER_ROWS = 10_000


@named
@dataclass(frozen=True)
class Control:
    """Details of a fit that most calls leave at their defaults: ``control=pc.Control(...)``.

    Parameters
    ----------
    split : {"full", "disjoint", "crossfit"}
        "full" learns nuisances and effect from all rows and divides the budget between them.
        "disjoint" uses separate parts of the rows, each with the whole budget. "crossfit" uses
        cross-fitting over two folds.
    propensity_clip : float
        Estimated propensities are clipped to [clip, 1 - clip]. If the rarer arm has less than 40%
        of the rows (by released numbers), the clip decreases in proportion to its share.
    shares : dict, optional
        Fractions of rho for ``"bounds"``, ``"nuisance"``, ``"effect"``, ``"average"``.
    tails : {"fitted", "any"}
        Outcomes and scores are clipped if clipping reduces noise by more than it adds bias. Noise
        hides the values beyond the clip. "fitted" assumes that they fall as the Weibull
        distributions that fit the detected sizes. "any" makes no assumption within the bounds. The
        interval allows for the bias. With "any", the interval is rarely narrow.
    cov_type : {"nonrobust", "HC0", "HC1"}
        Covariance of a regression or of the best linear projection. "HC0" releases the meat of the
        sandwich. "HC1" is HC0 times n / (n - p), and applies only to `regress`. All other standard
        errors are robust, without this option.
    cluster, max_cluster_rows : str, int, optional
        Column of clusters whose rows may depend on one another, and the largest number of rows of a
        cluster, which is public. Standard errors are then cluster-robust, also if treatment is
        assigned by cluster. The guarantee still protects the row, or the unit. Only for `regress`,
        for `did`, which takes the cluster from the row before, and for averages over rows by
        `private` with two arms, such as "ATE" and "ATT".

    Raises
    ------
    CapabilityError, SchemaError
        For an unknown choice, or a clip outside (0, 0.5).

    Examples
    --------
    >>> pc.Control(split="crossfit", propensity_clip=0.05)
    Control(split='crossfit', propensity_clip=0.05, shares=None, tails='fitted',
     cov_type='nonrobust', cluster=None, max_cluster_rows=None)
    """

    split: Split = "full"
    propensity_clip: float = 0.1
    shares: Mapping[str, float] | None = None
    tails: Tails = "fitted"
    cov_type: CovType = "nonrobust"
    cluster: str | None = None
    max_cluster_rows: int | None = None

    def __post_init__(self) -> None:
        check_details(self.split, self.propensity_clip, self.tails, self.cov_type)
        Clusters.of(self.cluster, self.max_cluster_rows)


def check_details(split: str, clip: float, tails: str, cov_type: str) -> None:
    check_choice("split", split, SPLITS)
    if cov_type in ("HC2", "HC3"):
        raise CapabilityError(
            f"cov_type={cov_type!r} needs the leverage of each row, which sums over rows do not "
            "contain. Use 'HC1' for a regression and 'HC0' for an effect."
        )
    if cov_type == "cluster":
        raise CapabilityError(
            "Clusters have their own options. Write control=pc.Control(cluster='village', "
            "max_cluster_rows=20)."
        )
    check_choice("cov_type", cov_type, get_args(CovType))
    check_choice("tails", tails, ("fitted", "any"))
    if not (is_number(clip) and LEAST_PROPENSITY <= clip < 0.5):
        raise SchemaError(
            f"propensity_clip must be a number below 0.5 and at least {LEAST_PROPENSITY:g}."
        )


@dataclass(frozen=True, eq=False)
class Queries:
    """Points where an effect is requested. They are declared in the call, so they are public."""

    columns: Mapping[str, tuple[Any, ...]]  # Column name to a tuple of numbers or labels

    def __len__(self) -> int:
        return max((len(values) for values in self.columns.values()), default=1)


def estimands_of(
    estimand: object,
) -> tuple[Literal["CATE"] | Average, tuple[Average | OfMeans, ...]]:
    """Return the first average requested, then the other estimands.

    Means and ratios add their difference, the ATE. Raise `CapabilityError` for an unknown name, a
    repeated name, or an empty list.
    """
    if estimand == "CATE":
        return "CATE", ()  # a later check refuses it by name
    names = [estimand] if isinstance(estimand, str) else estimand
    if not isinstance(names, Sequence) or not names:
        raise CapabilityError("estimand must be a name or a list of names, such as ['ATE', 'ATT'].")
    choices = (*AVERAGES, *OF_MEANS)
    for name in names:
        check_choice("estimand", name, choices)
    if len(set(names)) < len(names):
        raise CapabilityError("An estimand is listed twice. List each estimand once.")
    derived = [name for name in names if name in OF_MEANS]
    averages = [name for name in names if name in AVERAGES]
    if derived and "ATE" not in averages:
        averages.append("ATE")
    first, *more = averages
    return first, (*more, *derived)


class Options(TypedDict, total=False):
    """Fields of a request that not all calls have."""

    estimand: Special | Average
    more: tuple[Average | OfMeans, ...]
    propensity: float | str | Mapping[str, float] | None
    weights: str | None
    groups: tuple[str, ...]
    horizon: float | None
    queries: Queries | None
    mode: Mode
    below_minimum: BelowMinimum


SLOPES = frozenset(("PLR", "LATE"))
"""Estimands that allow a numeric treatment or a numeric instrument."""

OVER_ROWS = tuple(name for name in AVERAGES if name not in (*SLOPES, *SURVIVAL))
"""Weighted averages of the effect over rows, which allow clusters and survey weights."""


@dataclass(frozen=True)
class Request:
    """All settings of one call. It holds no data."""

    formula: CausalFormula
    schema: Schema
    budget: Budget
    trust: Trust = Trust()
    # "CATE" is the effect as a function of covariates. "ATE", "ATT" and "ATO" are its averages.
    # "PLR" is the slope of the partially linear model, and "LATE" uses an instrument. "RMST" and
    # "risk" are averages of functions of a survival time. "OLS" is a linear regression. "ATT(g, t)"
    # are the effects by cohort and period.
    estimand: Special | Average = "CATE"
    # Estimated if None. If known, a number in (0, 1), a column with declared bounds, or the share
    # of each arm.
    propensity: float | str | Mapping[str, float] | None = None
    clip: float = 0.1  # Propensities are clipped to [clip, 1 - clip] (0 < clip < 0.5)
    split: Split = "full"
    # Column names or comparisons; average effects are reported for each group
    groups: tuple[str, ...] = ()
    cov_type: CovType = "nonrobust"
    # "paper" runs a published mechanism as printed; its guarantee is the paper's claim
    mode: Mode = "proven"
    # Behavior if the data have fewer rows than the paper's claim needs
    below_minimum: BelowMinimum = "refuse"
    tails: Tails = "fitted"  # Assumption on values hidden by noise beyond a clip
    # Public points where the effect is evaluated; None for the whole function
    queries: Queries | None = None
    # Further averages, ``"means"``, and ratios ``"RR"`` and ``"OR"``, from the same releases
    more: tuple[Average | OfMeans, ...] = ()
    # Column of survey weights. Its declared bounds must not be negative.
    weights: str | None = None
    cluster: Clusters | None = None  # Clusters of rows that standard errors allow for
    # End of the follow-up that "RMST" and "risk" describe, in units of the survival time
    horizon: float | None = None
    # Number of rows, if it is public. It divides the budget, and never changes a computation.
    nobs: int | None = None
    # All estimands, and the averages and the ratios among them, the first one requested first
    estimands: tuple[Special | Average | OfMeans, ...] = field(
        init=False, repr=False, compare=False
    )
    averages: tuple[Average, ...] = field(init=False, repr=False, compare=False)
    ratios: tuple[Ratio, ...] = field(init=False, repr=False, compare=False)
    divides: bool = field(
        init=False, repr=False, compare=False
    )  # Whether a score may divide by an estimated propensity
    # Columns that a row needs: it counts as zero if one of their values is missing
    needed: tuple[str, ...] = field(init=False, repr=False, compare=False)
    # Columns of a unit's row that the table does not have
    wide: tuple[str, ...] = field(init=False, repr=False, compare=False)
    # Columns that identify the unit and the cluster of a row
    keys: Mapping[str, str] = field(init=False, repr=False, compare=False)
    # Labels of a treatment with more than two arms, the reference first; otherwise empty
    arms: tuple[str, ...] = field(init=False, repr=False, compare=False)
    # `per_unit`: whether the treatment is numeric, so that effects are per unit of treatment
    # `dose`: whether the compared variable, the treatment or its only instrument, is numeric
    per_unit: bool = field(init=False, repr=False, compare=False)
    dose: bool = field(init=False, repr=False, compare=False)
    # Whether all terms are averages from one release of their scores
    jointly: bool = field(init=False, repr=False, compare=False)
    # Whether effects and limits are clipped to the width of the outcome's bounds
    bounded: bool = field(init=False, repr=False, compare=False)
    # Whether terms are coefficients, without a treatment
    regression: bool = field(init=False, repr=False, compare=False)
    # Effects, then mean outcomes. A regression and an event study have terms of their own.
    terms: tuple[ResultTerm, ...] = field(init=False, repr=False, compare=False)
    # Domains of the table's columns. They describe the outcome, not its change.
    declared: Schema = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        formula, panel, estimands = self.formula, self.trust.panel, (self.estimand, *self.more)
        averages = tuple(a for a in estimands if a in AVERAGES)
        # columns
        extra = [name for name in (self.propensity, self.weights) if isinstance(name, str)]
        wide = panel.wide if isinstance(panel, Staggered) else ()
        extra += [panel.cohort, *wide] if isinstance(panel, Staggered) else []
        keys = {"Unit": self.trust.unit, "Cluster": self.cluster and self.cluster.column}
        declared = self.schema
        if panel is not None:
            columns = {name: domain for name, domain in declared.domains if name not in wide}
            declared = Schema(columns, declared.complete).with_columns(panel.outcome.columns)
        # arms and doses; several instruments have clips of their own
        treatment = self.schema.get(formula.treatment)
        labels = treatment.labels if isinstance(treatment, Levels) else ()
        several = self.mode == "proven" and self.estimand in ("ATE", "PLR") and len(labels) > 2
        arms = labels if several else ()
        per_unit = self.estimand in SLOPES and isinstance(treatment, Interval)
        numeric = isinstance(self.schema.get(formula.assigned), Interval)
        dose = self.estimand in SLOPES and numeric and len(formula.instruments) < 2
        # terms
        names = [f"{formula.treatment}[T.{arm}]" for arm in arms[1:]] or averages or ["ATE"]
        compared = arms if self.estimand == "ATE" else ()
        if {*OF_MEANS} & {*self.more}:
            compared = "0", "1"
        terms = [ResultTerm("effect", name) for name in names]
        terms += [ResultTerm("mean", f"E[Y({arm})]", arm=k) for k, arm in enumerate(compared)]
        if formula.instruments:
            terms = [*late_terms(formula.instruments)]
        elif self.estimand in (*REGRESSIONS, COHORTS):
            terms = []
        jointly = bool(self.more) or (several and self.estimand == "ATE")
        vars(self).update(
            estimands=estimands,
            averages=averages,
            ratios=tuple(r for r in estimands if r in RATIOS),
            divides=self.estimand not in SLOPES,
            needed=tuple(dict.fromkeys([*formula.variables, *extra])),
            wide=wide,
            keys={role: column for role, column in keys.items() if column},
            arms=arms,
            per_unit=per_unit,
            dose=dose,
            jointly=jointly or self.estimand == COHORTS,
            bounded=self.mode == "proven" and not per_unit and self.estimand != "LATE",
            regression=self.estimand in REGRESSIONS,
            terms=tuple(terms),
            declared=declared,
        )

    @property
    def arm_clip(self) -> float:
        """c with e in [c, 1 - c], taken from the propensity if it is known."""
        if self.propensity is None:
            return float(self.clip)
        if isinstance(self.propensity, str):
            domain = self.schema[self.propensity]
            assert isinstance(domain, Interval)
            return min(domain.lo, 1 - domain.hi)
        p = self.propensity
        shares = p.values() if isinstance(p, Mapping) else [p]
        return min(min(float(p), 1 - float(p)) for p in shares)

    @property
    def control(self) -> Control:
        """The details of the call."""
        clusters = (self.cluster.column, self.cluster.max_rows) if self.cluster else ()
        shares = dict(self.budget.shares) or None
        return Control(self.split, self.clip, shares, self.tails, self.cov_type, *clusters)

    @property
    def call_options(self) -> dict[str, Any]:
        """The options of a call that differ from their defaults."""
        trust = self.trust
        options: dict[str, tuple[Any, Any]] = {  # value, default
            "neighbors": (trust.neighbors, Trust().neighbors),
            "unit": (trust.unit, None),
            "max_rows": (trust.max_rows, 1 if trust.unit is None or trust.panel else None),
            "propensity": (self.propensity, None),
            "weights": (self.weights, None),
            "groups": (list(self.groups), []),
            "horizon": (self.horizon, None),
        }
        return {name: value for name, (value, default) in options.items() if value != default}

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns of a row of the table."""
        extra = [self.trust.unit] if self.trust.unit else []
        every = dict.fromkeys([*self.needed, *extra, *group_columns(self.groups)])
        return tuple(name for name in every if name not in self.wide)

    @property
    def read(self) -> tuple[str, ...]:
        """All columns of the table that the call reads, including periods and clusters."""
        times = [self.trust.panel.time] if self.trust.panel else []
        return tuple(dict.fromkeys([*self.columns, *times, *self.keys.values()]))

    def label_columns(self, names: Sequence[str]) -> Mapping[str, frozenset[str]]:
        """Columns of labels in an untyped table; see `Schema.label_columns`."""
        unit = [self.trust.unit] if self.trust.unit else []
        return self.declared.label_columns([*self.formula.categorical, *unit])


# -- the plan: stages and their budgets ------------------------------------------------------------


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
    next_level: float = 1.0  # Frequency of each level relative to the level before


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
