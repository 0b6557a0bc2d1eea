"""Uplift learners of Betlei et al. (2021): ADUM (by cell) and TM (polynomial regressions).

ADUM needs only counts and sums by cell, so it can also be fitted to a table of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from privcausal.accounting import PICO, Charge, Cost, Release
from privcausal.accounting.price import check_epsilon, exact
from privcausal.errors import BudgetError, CapabilityError, DataError, SchemaError, is_number, named
from privcausal.estimators import bases, budget, estimands
from privcausal.estimators.base import EffectLearner
from privcausal.estimators.budget import Undeclared, as_coded, resolve_domains
from privcausal.estimators.first_stages import Fit, outcome_of
from privcausal.features.design import Design
from privcausal.features.functions import Polynomials
from privcausal.inference.cells import CellEffect, CellTotals, by_bound, fine, shrunk
from privcausal.inference.effects import ArmPolynomials, AverageEstimate, trimmed
from privcausal.inference.population import Population
from privcausal.request import partition as partitions
from privcausal.request.checks import check_request
from privcausal.request.formula import ATE_TERM, CausalFormula
from privcausal.request.partition import Coordinates, Nearest
from privcausal.request.request import (
    PER_ROW,
    Budget,
    Plan,
    Request,
    Stage,
    StageKey,
    Trust,
    divide,
    portions,
)
from privcausal.request.schema import Binary, Header, Interval, Schema
from privcausal.typing import Frame, Neighbors
from privcausal.vault import (
    MOST_COUNT,
    CellSums,
    CellTable,
    ClusterSums,
    PolynomialSums,
    Vault,
    opening,
    public_centres,
    read_cells,
)

# -- ADUM: cells shrunk toward neighbors -------------------------------------------------------

CELL_STAGE = StageKey("effect", "cells")

CLUSTER_CELLS = 32
"""Default number of clusters for ``partition="kmeans"``."""

SLOPE_PRIORS, SIGMA = 1.0, 0.25
"""Assumptions of ``cells="bound"``, in widths of the outcome's bounds.

They are the rise of the mean outcomes over the domain, and the outcome's standard deviation.
"""

GRID_POINTS = 1 << 16
"""Number of public grid points for evaluating a user's partition function."""

FINE_PARTS = 1024
"""Maximum number of grid points along one axis."""

MOST_AXES = 8
"""Maximum number of features of a regular grid; with more, two parts each are too many cells."""

MOST_CLUSTERS, MOST_ROUNDS = 10_000, 1000
"""Limits for ``partition="kmeans"``: each round is a stage of the plan; each cluster takes time."""

FEW_IN_CLUSTER = 2.0
"""A cluster whose count is below this many noise sds keeps its center."""


@named
@dataclass(frozen=True)
class ADUM(EffectLearner):
    """Uplift by cell: difference of the arms' mean outcomes, from noisy counts and sums.

    Cells depend only on covariates, and outcomes are clipped only at their bounds. The average
    over all cells is therefore unbiased if the bounds are declared. Estimated bounds can clip
    outcomes; the interval of the average allows for the resulting bias.

    Parameters
    ----------
    cells : int, "bound" or None
        Number of grid cells or clusters. Default: a fine grid, or 32 clusters. "bound" minimizes
        the bound of Corollary 1 for one feature, given `slopes` and `sigma`.
    partition : "grid", "kmeans", dict or callable
        How cells are formed:

        - "grid": equal parts of every effect modifier;
        - "kmeans": private clusters, which use half of the budget;
        - dict: parts of some modifiers, ``{"age": [30, 50], "income": 8, "region": "levels"}``;
        - callable: a function of a data frame of feature values. It is evaluated on a public
          grid and never on a row.
    noise : {"laplace", "gaussian"}
        "laplace" gives pure epsilon-DP, "gaussian" zCDP.
    release : {"ends", "count_sum"}
        "ends" releases the distances from both bounds of the outcome. "count_sum" releases counts
        and sums as in the paper, at twice the variance. Gaussian noise always uses counts and sums.
    shrink : bool
        Shrink cells toward their neighbors by marginal likelihood. False gives the paper's
        estimate.
    rounds : int
        Rounds of k-means.
    rows : int, optional
        Approximate number of rows, if the number is not public. "bound" requires it, and the
        default grid uses it.
    slopes, sigma : float
        For "bound", in widths of the outcome's bounds. `slopes` is the root of L_C^2 + L_T^2
        times the width of the feature. `sigma` is the outcome's standard deviation.

    References
    ----------
    Betlei et al. (2021), Algorithm 1 and Corollary 1. `CellSums` proves the sensitivities.
    """

    cells: int | Literal["bound"] | None = None
    partition: str | Mapping[str, object] | Callable[[Any], Any] = "grid"
    noise: Literal["laplace", "gaussian"] = "laplace"
    release: Literal["ends", "count_sum"] = "ends"
    shrink: bool = True
    rounds: int = 5
    rows: int | None = None
    slopes: float = SLOPE_PRIORS
    sigma: float = SIGMA
    name: ClassVar[str] = "adum"
    title: ClassVar[str] = "uplift by cells"
    called: ClassVar[str] = "Learner 'adum' with Laplace noise"
    instead: ClassVar[str] = ", or use pc.learners.ADUM(noise='gaussian')"
    shares: ClassVar[Mapping[str, float]] = {"bounds": 0.1, "nuisance": 0.5, "effect": 0.5}

    def __post_init__(self) -> None:
        custom = isinstance(self.partition, Mapping) or callable(self.partition)
        if not custom and self.partition not in ("grid", "kmeans"):
            raise CapabilityError(
                "partition= must be 'grid', 'kmeans', a dict such as {'age': [30, 50]}, or a "
                "function."
            )
        bases.check_one_of("noise", self.noise, ("laplace", "gaussian"))
        bases.check_one_of("release", self.release, ("ends", "count_sum"))
        bases.check_switch("shrink", self.shrink)
        kmeans = self.partition == "kmeans"
        bases.check_whole("rounds", self.rounds, 1, MOST_ROUNDS if kmeans else None)
        if self.rows is not None:
            bases.check_whole("rows", self.rows, 1)
        if self.cells not in (None, "bound"):
            bases.check_whole("cells", self.cells, 1, MOST_CLUSTERS if kmeans else None)
        if isinstance(self.cells, int):
            partitions.check_size(float(self.cells))
        if self.partition != "grid" and self.cells == "bound":
            raise CapabilityError("cells='bound' requires partition='grid'.")
        if self.cells is not None and custom:
            raise CapabilityError("cells= requires partition='grid' or partition='kmeans'.")
        for name in ("slopes", "sigma"):
            value = getattr(self, name)
            if not is_number(value) or not 0 < value < math.inf:
                raise CapabilityError(f"{name}= must be a number above 0.")

    # -- planning ----------------------------------------------------------------------------

    def stages(self, request: Request, base: bases.PrivateBase) -> budget.Weights:
        rounds = range(1, self.rounds + 1) if self.partition == "kmeans" else ()
        clusters = (StageKey("nuisance", f"clusters, round {number}") for number in rounds)
        return dict.fromkeys((*clusters, CELL_STAGE), 1.0)

    def plan(self, request: Request, base: bases.AnyBase, undeclared: budget.Undeclared) -> Plan:
        """Plan the stages, in pure epsilon for Laplace noise or in rho for Gaussian noise.

        Refuse requests that cells cannot provide, and pure fits that would have to estimate bounds.
        """
        formula = request.formula
        unsupported = {
            "extra controls (after the second | of the formula)": bool(formula.controls),
            "groups=, because its cells are the groups (set partition= instead)": bool(
                request.groups
            ),
            f"split={request.split!r}, because it has no nuisance models": request.split != "full",
            "a column of known propensities": isinstance(request.propensity, str),
            "weights=": request.weights is not None,
        }
        bases.refuse(unsupported, f"Learner {self.name!r} does not support {{}}.")
        if not formula.effect_variables:
            raise CapabilityError(
                f"Learner {self.name!r} requires at least one effect modifier, for example "
                "'visit ~ treatment | age'. For the average effect alone, use pc.private()."
            )
        if request.trust.neighbors == "add_remove" and self.cells == "bound" and not self.rows:
            raise CapabilityError(
                "cells='bound' requires the number of rows, which is private with "
                "neighbors='add_remove'. Give an approximate number: "
                "ADUM(cells='bound', rows=20_000)."
            )
        # Check the partition, as far as possible before bounds are estimated.
        schema, variables = request.schema, formula.effect_variables
        if isinstance(self.partition, Mapping):
            for name in self.partition:
                if name not in variables:
                    known = ", ".join(map(repr, variables))
                    raise SchemaError(
                        f"partition= names {str(name)[:40]!r}, which is not an effect modifier of "
                        f"the formula. Choose from {known}."
                    )
            if all(name in schema for name in self.partition):
                partitions.product_of(schema, self.partition)
        elif all(name in schema for name in variables):
            if callable(self.partition):
                _tabulated(schema, variables, self.partition)
            elif self.partition == "grid":
                _regular_grid(schema, variables, self.cells if isinstance(self.cells, int) else 1)
        weights = self.stages(request, bases.moment_base(base))
        if self.noise == "gaussian":
            return budget.make_plan(request, self.name, "none", weights, self.shares, undeclared)
        if undeclared:
            names = ", ".join(map(repr, (*undeclared.numbers, *undeclared.labels)))
            raise SchemaError(
                f"{self.called} cannot estimate bounds. Declare the bounds of {names}, for example "
                f"bounds={{'age': (18, 95), 'region': ['a', 'b']}}{self.instead}."
            )
        # Epsilons of the stages never sum to more than the request's.
        groups = dict.fromkeys(key.group for key in weights)
        shares = divide({group: self.shares[group] for group in groups}, request.budget.shares)
        total = math.floor(exact(check_epsilon(request.budget.epsilon)) * PICO)
        amounts = [total]
        if len(weights) > 1:
            amounts = portions(total, list(budget.divided(weights, shares).values()))
        pairs = zip(weights, amounts, strict=True)
        stages = tuple(Stage(key, 0, epsilon=amount) for key, amount in pairs)
        return Plan(request, self.name, "none", stages, 0)

    # -- fitting -----------------------------------------------------------------------------

    def run(self, fit: Fit) -> estimands.Estimate:
        fit.estimate_bounds()
        schema, request = fit.schema, fit.request
        fit.vault.set_layout(schema, (), ())
        partition = self._partition(fit)
        sums = CellSums(
            partition,
            outcome_of(request, schema),
            request.trust.neighbors,
            self.noise,
            form=self.release if self.noise == "laplace" else "count_sum",
            squares=isinstance(schema[request.formula.outcome], Interval),
        )
        totals = cell_totals(sums, fit.release(CELL_STAGE, sums), request.trust.max_rows)
        plan = replace(fit.plan, request=replace(request, schema=schema), partition=partition)
        releases, size, real = fit.releases, fit.vault.size, fit.vault.real_noise
        estimate = assembled(plan, totals, tuple(releases), size, real, shrink=self.shrink)
        if fit.beyond is None or estimate.averages is None:
            return estimate
        bias = fit.beyond.bias(totals.rows[:, None])
        return replace(estimate, averages=replace(estimate.averages, clipping=bias))

    def _partition(self, fit: Fit) -> partitions.Partition:
        request, schema = fit.request, fit.schema
        variables, whole = request.formula.effect_variables, fit.undeclared.integers
        if isinstance(self.partition, Mapping):
            return partitions.product_of(schema, self.partition)
        if callable(self.partition):
            return _tabulated(schema, variables, self.partition)
        if self.partition == "kmeans":
            cells = self.cells if isinstance(self.cells, int) else CLUSTER_CELLS
            # private k-means: centers move to noisy means for a fixed number of rounds
            coordinates = Coordinates(schema, variables)
            nearest = Nearest(coordinates, public_centres(coordinates, cells))
            *rounds, _ = self.stages(request, fit.base)
            for stage in rounds:
                law = "gaussian" if fit.plan.stage(stage).rho else "laplace"
                sums = ClusterSums(nearest, law)
                release = fit.release(stage, sums)
                (total, count), noise = sums.split(release.value), float(release.noise_sd[-1])
                seen = count > max(FEW_IN_CLUSTER * noise, 1.0)
                centres = nearest.centres.copy()
                centres[seen] = np.clip(total[seen] / count[seen, None], -1.0, 1.0)
                nearest = Nearest(coordinates, centres)
            return nearest
        if isinstance(self.cells, int):
            return _regular_grid(schema, variables, self.cells, whole)
        rows = float(self.rows or fit.vault.size or 0) or None
        trust, planned = request.trust, fit.plan.stage(CELL_STAGE)
        epsilon = (planned.epsilon / PICO or math.sqrt(2 * planned.rho / PICO)) / trust.max_rows
        if self.cells == "bound":
            assert rows is not None
            cells = by_bound(rows, epsilon, self.slopes**2, self.sigma, 1.0, 10_000)
            return _regular_grid(schema, variables, cells, whole)
        ease = 2.0 if trust.neighbors == "add_remove" else 1.0
        return _regular_grid(schema, variables, fine(rows, ease * epsilon), whole)

    @classmethod
    def describe(cls, estimate: estimands.Estimate) -> estimands.Description:
        plan, effect = estimate.plan, estimate.effect
        cells = effect.partition.description if isinstance(effect, CellEffect) else "none"
        propensity = plan.request.propensity
        share = f"known, {propensity:g}" if isinstance(propensity, float | int) else "by cell"
        law = "discrete Laplace" if plan.pure else "discrete Gaussian"
        how = SHRUNK if estimate.notes else AS_RELEASED
        methods = tuple(text.format(noise=law, how=how) for text in ADUM_METHODS)
        return within_cells(cls.title, (("Cells", cells), ("Propensity", share)), methods)


def within_cells(
    title: str, rows: estimands.TextPairs, methods: tuple[str, ...]
) -> estimands.Description:
    """Describe a learner that compares a trial's arms within cells, without other adjustment."""
    return estimands.Description(
        title=title,
        rows=rows,
        reading=(CELL_READING,),
        assumptions=(RANDOMISED_CELLS, estimands.NO_INTERFERENCE, estimands.BOUNDED),
        methods=methods,
        adjusts=False,
    )


CELL_READING = "Causal reading requires randomization within cells and no interference."

RANDOMISED_CELLS = (
    "Randomized treatment: treatment was assigned at random within each cell. There was no other "
    "adjustment, so in an observational study the result is not a causal effect."
)

ADUM_METHODS = (
    "Uplift was estimated from aggregates (Betlei et al. 2021): the count and the sum of the "
    "clipped outcome in each cell and arm, computed once and exactly on an integer grid. OpenDP's "
    "{noise} noise was added to each number; all further steps are post-processing.",
    "The effect in a cell is the difference between the means of its arms. {how}",
    "The average effect is the difference between the means of the arms over all cells. Standard "
    "errors combine sampling and privacy noise (delta method).",
    "Rows with a missing value or an undeclared label were excluded; their number is not reported.",
)

SHRUNK = (
    "Cell means were shrunk toward neighboring cells by a Gaussian-process prior over the "
    "positions of the cells; several priors were averaged by their marginal likelihood given the "
    "released numbers."
)

AS_RELEASED = "A noisy count below one was replaced by one."


ADUM_NOTE = (
    "Cell effects are shrunk toward similar neighboring cells. Intervals are posterior intervals "
    "and are valid on average over cells."
)


def cell_totals(sums: CellSums, release: Release, most_rows: int = 1) -> CellTotals:
    """Convert the noisy sums to natural units."""
    noise = sums.variances(release.noise_sd)
    return CellTotals(*sums.split(release.value), *noise, sums.outcome.bound, most_rows)


def assembled(
    plan: Plan,
    totals: CellTotals,
    releases: tuple[Release, ...],
    size: int | None,
    real: bool,
    *,
    shrink: bool,
) -> estimands.Estimate:
    """Build the estimate for a plan with a partition and a complete schema."""
    request, partition = plan.request, plan.partition
    assert partition is not None
    propensity = request.propensity if isinstance(request.propensity, int | float) else None
    if shrink:
        value, root = shrunk(totals, partition.points, propensity)
    else:
        # Algorithm 1 of Betlei et al. (2021): S / C by cell and arm, and the arms' difference. A
        # noisy count below one is replaced by one, and means are clipped to the outcome's bounds.
        rows = np.maximum(totals.count, 1.0)
        mean = np.clip(totals.total / rows, -totals.half, totals.half)
        noise = (totals.total_variance + mean**2 * totals.count_variance) / rows**2
        variance = np.minimum(noise + totals.sampled / rows, totals.half**2)
        value, root = mean[:, 1] - mean[:, 0], np.diag(np.sqrt(variance.sum(axis=1)))
    average = average_of(totals)
    return estimands.Estimate(
        plan,
        request.schema,
        Design(request.formula.modifiers, request.schema, full_rank=True),
        Population(request.schema, {}, np.eye(0), average.size),
        CellEffect(partition, value, root, totals.count, 2 * totals.half),
        None,
        average,
        releases,
        size,
        real,
        (ADUM_NOTE,) if shrink else (),
        (("arm", estimands.UNSEEN_ARM),) if totals.unseen else (),
    )


def average_of(totals: CellTotals) -> AverageEstimate:
    """Difference of the arms' means over all cells, with its sampling and privacy variances."""
    sampling = (totals.sampled / np.maximum(totals.rows - 1, 1)).sum()
    privacy = np.minimum(totals.mean_noise, totals.half**2).sum()
    return AverageEstimate(
        (ATE_TERM,),
        (),
        np.array([totals.means[1] - totals.means[0]]),
        np.full((1, 1), sampling),
        np.full((1, 1), privacy),
        np.zeros(1),
        np.zeros(1),
        float(totals.rows.sum()),
        size_sd=float(np.sqrt(totals.count.size * totals.count_variance)),
        treated=float(totals.rows[1] / totals.rows.sum()),
    )


# -- partitions --------------------------------------------------------------------------------


def _regular_grid(
    schema: Schema, variables: tuple[str, ...], cells: int, whole: frozenset[str] = frozenset()
) -> partitions.Product:
    """Grid of about `cells` cells: equal parts of numeric features, all labels of the others.

    A feature of whole numbers has one cell per number if it has at most as many numbers as parts.
    """
    numbers, labels = _numbers_and_labels(schema, variables)
    if len(numbers) > MOST_AXES:
        raise CapabilityError(
            f"A grid over {len(numbers)} numeric features has too many cells. Use fewer modifiers, "
            "partition only some of the features with partition={'age': 8}, or use "
            "partition='kmeans'."
        )
    parts = max((cells / labels) ** (1 / max(len(numbers), 1)), 2.0)
    domains = {n: d for n in numbers if n in whole and isinstance(d := schema[n], Interval)}
    # The whole numbers except the last; borders are half a unit above each. Count them before
    # listing them: declared bounds may be 1e15 apart.
    integers = {n: range(math.ceil(d.lo), math.floor(d.hi)) for n, d in domains.items()}
    few = {n: [k + 0.5 for k in below] for n, below in integers.items() if 0 < len(below) < parts}
    rest, labels = len(numbers) - len(few), labels * math.prod(len(c) + 1 for c in few.values())
    parts = max((cells / labels) ** (1 / max(rest, 1)), 1.0)
    least = 1 if len(numbers) == 1 else 2
    even = dict.fromkeys(variables, max(round(parts), least))
    return partitions.product_of(schema, {**even, **few})


def _numbers_and_labels(schema: Schema, variables: tuple[str, ...]) -> tuple[list[str], float]:
    """Names of the numeric features, and the number of label combinations of the others."""
    numbers = [name for name in variables if isinstance(schema[name], Interval)]
    labels = [partitions.axis_of(name, schema, 1).size for name in variables if name not in numbers]
    return numbers, float(np.prod(labels))


def _tabulated(
    schema: Schema, variables: tuple[str, ...], function: Callable[[Any], Any]
) -> partitions.Tabulated:
    """Tabulate the user's function on a public grid; the function never sees a row.

    The function is called once, with a data frame of the midpoints of a fine grid over the
    declared domains (labels as strings). It returns a cell for each point, as a number or string,
    or None for no cell.
    """
    import pandas as pd

    numbers, labels = _numbers_and_labels(schema, variables)
    parts = int((GRID_POINTS / labels) ** (1 / max(len(numbers), 1)))
    parts = int(np.clip(parts, 2, FINE_PARTS))
    grid = partitions.product_of(schema, dict.fromkeys(variables, parts))
    columns: dict[str, Any] = {}  # midpoints of numbers, and labels
    places = np.unravel_index(np.arange(grid.size), [axis.size for axis in grid.axes])
    for axis, place in zip(grid.axes, places, strict=True):
        if axis.parts:
            columns[axis.name] = axis.lo + (place + 0.5) * ((axis.hi - axis.lo) / axis.parts)
        else:
            names = [axis.label(k).partition(" = ")[2] for k in range(axis.size)]
            columns[axis.name] = np.array(names, object)[place]
    frame = pd.DataFrame(columns)
    try:
        labeled = pd.Series(list(function(frame))).map(str, na_action="ignore")
        codes, cells = pd.factorize(labeled, sort=False)
    except Exception as error:  # The user's own code, on public values.
        raise CapabilityError(
            f"The partition= function failed with {type(error).__name__}. It must take a data "
            "frame of feature values and return one cell, a number or text, for each of its rows."
        ) from error
    if len(codes) != grid.size:
        raise CapabilityError(
            "The partition= function must take a data frame of feature values and return one cell "
            "for each of its rows."
        )
    partitions.check_size(float(len(cells)))
    if not len(cells):
        raise CapabilityError("The partition= function returned no cells.")
    return partitions.Tabulated(grid, codes.astype(np.int64), tuple(str(cell) for cell in cells))


# -- tables of counts and sums by cell, without the rows ----------------------------------------

MOST_NOISE = 40
"""Limit of noise in standard deviations; Laplace noise is beyond with probability below e^-56."""

LEAST_NOISE = 2.0**-60
"""Smallest standard deviation, relative to the largest possible count or sum."""

BY_CELL = "outcome ~ arm | C(cell)"
"""Formula of a table whose cells have only names."""


@dataclass(frozen=True, eq=False)
class CellRequest:
    """A request for an aggregated table."""

    request: Request
    parts: Mapping[str, object]
    learner: ADUM
    rounding: float = 0.0  # Sensitivity added by the types of an exact table's sums
    noise: Mapping[str, float] | None = None  # Noise of a table that its producer released
    # `count`, `total`: the counts and sums of such a table; empty for an exact table, which is
    # private
    count: tuple[float, ...] = ()
    total: tuple[float, ...] = ()
    names: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def partition(self) -> partitions.Product:
        return partitions.product_of(self.request.schema, self.parts)

    @property
    def outcome(self) -> Interval:
        domain = self.request.schema[self.request.formula.outcome]
        return domain if isinstance(domain, Interval) else Interval(0.0, 1.0)

    @property
    def header(self) -> Header:
        """Columns of the underlying rows, which are not available."""
        labels = partitions.text_columns(self.request.schema.columns)
        kinds = {n: "text" if n in labels else "numeric" for n in self.request.formula.variables}
        return Header(kinds)  # type: ignore[arg-type]  # two of the literals

    @opening
    def read(self, frame: Frame, *, noisy: bool) -> CellTable:
        """Read the table; its numbers are as private as rows until noise is added."""
        arms = self.request.schema[self.request.formula.treatment]
        assert isinstance(arms, Binary)
        return read_cells(frame, self.names, arms, self.outcome, noisy=noisy)

    def with_table(self, table: CellTable) -> CellRequest:
        """The request with what is public of its table."""
        if self.noise is None:
            return replace(self, rounding=table.rounding)
        count, total = (tuple(part.ravel().tolist()) for part in (table.count, table.total))
        return replace(self, count=count, total=total)

    def planned(self) -> tuple[Plan, Callable[[Vault], estimands.Estimate]]:
        """The plan, after all checks, and the fit by the answers of a vault."""
        schema, undeclared = resolve_domains(self.request, self.header)
        by_modifiers = set(self.parts) <= set(self.request.formula.effect_variables)
        if undeclared or schema != self.request.schema or not by_modifiers or self.rounding < 0:
            raise SchemaError("An aggregated table requires declared domains of its columns.")
        if self.noise is None:
            plan = self.plan()
            return plan, lambda vault: from_exact(self, plan, vault)
        estimate = from_noisy(self)
        return estimate.plan, lambda _: estimate

    def plan(self) -> Plan:
        """Plan the single stage of an exact table."""
        plan = self.learner.plan(self.request, bases.BASES["gam"], Undeclared((), ()))
        return replace(plan, partition=self.partition, aggregated=True)


def cell_request(
    cells: Sequence[Any] | Plan,
    outcome: object,
    learner: ADUM,
    neighbors: Neighbors,
    propensity: float | None,
    *,
    eps: float | None,
    delta: float | None,
    noisy: bool,
) -> CellRequest:
    """Request for cells named by hand, or for the cells of a fit's plan.

    `eps` and `delta` are the cost of an exact table, or the producer's claim for a `noisy` table.
    """
    if noisy and eps is None:
        raise BudgetError("A noisy table requires eps=, the epsilon that its producer claims.")
    usual = 0.0 if noisy else 1e-5
    budget = Budget(1.0 if eps is None else eps, usual if delta is None else delta, given=noisy)
    if not isinstance(learner, ADUM):
        raise CapabilityError("from_cells() requires learner=pc.learners.ADUM(...).")
    if learner.partition != "grid" or learner.cells is not None:
        raise CapabilityError("The table defines the cells. Omit cells= and partition= of ADUM.")
    trust = Trust(neighbors)
    if isinstance(cells, Plan):
        if not isinstance(cells.partition, partitions.Product):
            raise CapabilityError("This plan has no cells, so it has no SQL query.")
        if cells.request.trust.unit is not None:
            raise CapabilityError(PER_ROW)
        request = replace(cells.request, budget=budget, trust=trust, propensity=propensity)
        check_request(request)
        names = tuple(map(str, range(cells.partition.size)))
        parts: dict[str, object] = {
            axis.name: axis.parts or axis.cuts or "levels" for axis in cells.partition.axes
        }
        return CellRequest(request, parts, learner, names=names)
    if isinstance(cells, str) or not isinstance(cells, Sequence):
        raise SchemaError("cells= must list all declared cells, including cells without rows.")
    request = Request(CausalFormula.parse(BY_CELL), Schema(), budget, trust, propensity=propensity)
    declared = Schema({"outcome": outcome, "arm": Binary(), "cell": list(cells)})
    request = replace(request, schema=as_coded(declared, request))
    check_request(request)
    table = CellRequest(request, {"cell": "levels"}, learner)
    labels = (label.removeprefix("cell = ") for label in table.partition.labels)
    return replace(table, names=tuple(labels))


def from_exact(cells: CellRequest, plan: Plan, vault: Vault) -> estimands.Estimate:
    """Add noise to an exact table, then proceed as for rows."""
    schema, pure = cells.request.schema, plan.pure
    vault.set_layout(schema, (), ())
    sums = CellSums(
        cells.partition,
        outcome_of(cells.request, schema),
        cells.request.trust.neighbors,
        "laplace" if pure else "gaussian",
        form=cells.learner.release if pure else "count_sum",
        squares=False,
        rounding=cells.rounding,
    )
    release = vault.release(CELL_STAGE, sums)
    totals, shrink = cell_totals(sums, release), cells.learner.shrink
    return assembled(plan, totals, (release,), None, vault.real_noise, shrink=shrink)


def from_noisy(cells: CellRequest) -> estimands.Estimate:
    """Post-process a noisy table; `noise` holds the standard deviations added by its producer."""
    noise, shape = cells.noise, (cells.partition.size, 2)
    if not isinstance(noise, Mapping) or set(noise) != {"count", "sum"}:
        raise DataError("noise= must be {'count': sd, 'sum': sd}, the noise added by the producer.")
    half, middle = 0.5 * cells.outcome.width, cells.outcome.mid
    most = {"count": MOST_COUNT, "sum": MOST_COUNT * (half + abs(middle))}
    for name, limit in most.items():
        sd = noise[name]
        if not (is_number(sd) and LEAST_NOISE * limit <= sd <= limit):
            raise DataError(
                f"noise= must hold standard deviations above 0: {name!r} from "
                f"{LEAST_NOISE * limit:.2g} to {limit:.2g}."
            )
    count, total = float(noise["count"]), float(noise["sum"])
    # Noise sd of sum - middle x count.
    centred = float(np.hypot(total, abs(middle) * count))
    rows, sums = (np.array(part).reshape(shape) for part in (cells.count, cells.total))
    room = MOST_NOISE * np.array([count, centred + half * count])
    outside = (
        (rows < -room[0]) | (rows > MOST_COUNT) | (abs(sums) > half * np.maximum(rows, 0) + room[1])
    )
    if outside.any():
        raise DataError(
            f"The table of cells has a count or a sum that is more than {MOST_NOISE} standard "
            "deviations of its noise from any possible one. Check the table, the bounds of the "
            "outcome, and noise=."
        )
    totals = CellTotals(rows, sums, None, count**2, centred**2, 0.0, half)
    charge = Charge(
        "effect",
        f"counts and sums in {cells.partition.size} cells",
        "noise added by producer",
        cells.request.trust.neighbors,
        float("nan"),
        total,
        Cost(),
    )
    release = Release(np.zeros(0), np.zeros(0), charge)
    plan = Plan(cells.request, ADUM.name, "none", (), 0, partition=cells.partition)
    return assembled(plan, totals, (release,), None, True, shrink=cells.learner.shrink)


# -- TM: a polynomial regression by arm ---------------------------------------------------------

LOSS = StageKey("effect", "squared loss")

MOST_DEGREE = 12


@named
@dataclass(frozen=True)
class TM(EffectLearner):
    """Difference of two polynomial regressions, one per arm, by the functional mechanism.

    This learner implements epsilon-TM of Betlei et al. (2021) in pure epsilon. Laplace noise is
    added to the coefficients of each arm's squared loss (Zhang et al. 2012). The noisy loss is then
    minimized with the regularization and spectral trimming of that paper. TM is a baseline and has
    no intervals for tau(x).

    A binary outcome is regressed as a number (a linear probability model). For the paper's logistic
    regressions by objective perturbation (Chaudhuri et al. 2011), use `privcausal.paper.tm`. Its
    guarantee is "published", not proven, because the proof assumes real numbers and exact minima
    (see `vault.PublishedLogits`). The logistic regressions release no average effect.

    Parameters
    ----------
    degree : int
        Degree of the polynomials of every numeric modifier.
    """

    degree: int = 1
    name: ClassVar[str] = "tm"
    title: ClassVar[str] = "two regressions (TM)"
    shares: ClassVar[Mapping[str, float]] = {"effect": 1.0}
    steps: ClassVar[tuple[budget.Step, ...]] = (budget.Step(LOSS, 1.0),)

    def __post_init__(self) -> None:
        bases.check_whole("degree", self.degree, 1, MOST_DEGREE)

    def plan(self, request: Request, base: bases.AnyBase, undeclared: budget.Undeclared) -> Plan:
        """Plan in pure epsilon; refuse what ADUM would refuse, except for reasons of its grid."""
        checked = _Pure(partition={}).plan(request, base, undeclared)
        if self.polynomials(request, request.schema).size > budget.MOST_COLUMNS:
            raise CapabilityError(
                f"Polynomials of degree {self.degree} of this formula have more than "
                f"{budget.MOST_COLUMNS:,} columns. Use TM(degree=1), or fewer modifiers."
            )
        return replace(checked, learner=self.name, stages=(replace(checked.stages[-1], name=LOSS),))

    def polynomials(self, request: Request, schema: Schema) -> Polynomials:
        return Polynomials(Coordinates(schema, request.formula.effect_variables), self.degree)

    def run(self, fit: Fit) -> estimands.Estimate:
        request, schema = fit.request, fit.schema
        fit.vault.set_layout(schema, (), ())
        polynomials = self.polynomials(request, schema)
        design = Design(request.formula.modifiers, schema, full_rank=True)
        outcome = outcome_of(request, schema)
        sums = PolynomialSums(polynomials, outcome)
        release = fit.release(LOSS, sums)
        cross, grams = sums.split(release.value)
        sd, half = float(release.noise_sd[0]), outcome.bound
        coef = np.stack([trimmed(g, half * c, sd) for g, c in zip(grams, cross, strict=True)])
        totals = CellTotals(
            grams[:, 0, 0][None],
            half * cross[:, 0][None],
            None,
            sd**2,
            (half * sd) ** 2,
            0.0,
            half,
            request.trust.max_rows,
        )
        average = average_of(totals)
        if totals.unseen:
            fit.note((("arm", estimands.UNSEEN_ARM),))
        binary = not isinstance(schema[request.formula.outcome], Interval)
        middle = TM_NOTE.format(middle=0.5 * (outcome.lo + outcome.hi))
        return fit.finished(
            design,
            Population(schema, {}, np.eye(0), average.size),
            ArmPolynomials(polynomials, coef, half),
            None,
            average,
            (middle, BINARY_NOTE) if binary else (middle,),
        )

    @classmethod
    def describe(cls, estimate: estimands.Estimate) -> estimands.Description:
        effect = estimate.effect
        degree = effect.polynomials.degree if isinstance(effect, ArmPolynomials) else 1
        rows = (("Means", f"polynomials, degree {degree}"), ("Propensity", "not used"))
        return within_cells(cls.title, rows, LINEAR)


class _Pure(ADUM):
    """ADUM's checks of a request in pure epsilon, under this learner's name."""

    name = TM.name
    called = "Learner 'tm'"
    instead = ", or use learner='s' with base='linear'"


LINEAR = (
    "One linear regression on polynomials was fitted in each arm (the baseline of Betlei et al. "
    "2021). The data were used once, through the coefficients of both squared losses: sums over "
    "bounded rows, computed exactly on an integer grid. Discrete Laplace noise (OpenDP) was added "
    "to each coefficient (functional mechanism, Zhang et al. 2012); all further steps are "
    "post-processing.",
    "A ridge of four noise standard deviations was added to each loss, and directions without "
    "curvature were dropped. The effect is the difference between the regressions, each clipped to "
    "the outcome bounds.",
    estimands.MISSING,
)

TM_NOTE = (
    "The outcome was centered at {middle:g}, the middle of its bounds. The regressions have no "
    "bands."
)

BINARY_NOTE = (
    "The outcome has two values, but the regressions are linear. Logistic regressions by objective "
    "perturbation (pc.paper.tm) have no privacy proof for floating-point arithmetic."
)
