"""The complete, data-free request of one call, checked before any row is read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, get_args

from privcausal.errors import BudgetError, CapabilityError, SchemaError, is_number, named
from privcausal.request.formula import CausalFormula, ResultTerm, group_columns, late_terms
from privcausal.request.panels import Panel, Staggered
from privcausal.request.schema import Interval, Levels, Schema
from privcausal.typing import Average, Neighbors, OfMeans, Ratio, Split

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
    # Number of rows, if it is public. It divides the budget, and never what is computed.
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
