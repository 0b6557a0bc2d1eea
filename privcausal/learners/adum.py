"""Uplift from aggregates: epsilon-ADUM (Betlei et al. 2021), with cells shrunk to neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from privcausal.accounting import PICO, Release
from privcausal.accounting.charge import exact, is_number
from privcausal.accounting.conversion import check_epsilon
from privcausal.errors import CapabilityError, SchemaError
from privcausal.inference.average import AverageEstimate
from privcausal.inference.cells import CellEffect, CellTotals, plain, shrunk
from privcausal.inference.groups import by_bound, fine
from privcausal.inference.population import Population
from privcausal.learners.base import EffectLearner
from privcausal.learners.bases import AnyBase, PrivateBase, moment_base
from privcausal.learners.cells import (
    CLUSTERS,
    check_names,
    clustered,
    declared,
    regular,
    tabulated,
)
from privcausal.learners.estimate import Estimate
from privcausal.learners.ground import Session
from privcausal.learners.needs import Need, Undeclared, make_plan
from privcausal.spec.features import Design
from privcausal.spec.partition import Partition, check_size
from privcausal.spec.plan import Plan, Stage, divide, portions
from privcausal.spec.request import Request
from privcausal.spec.schema import Interval, Schema
from privcausal.vault import CellSums, Outcome

CELLS = "effect: cells"

CLUSTER_CELLS = 32
"""Clusters of ``partition="kmeans"`` where no number is given."""

SLOPES, SIGMA = 1.0, 0.25
"""What ``cells="bound"`` takes the outcome's means to rise by over the domain, and its standard
deviation, both in widths of its bounds."""


@dataclass(frozen=True)
class ADUM(EffectLearner):
    """Mean outcomes by cell and arm from noisy counts and sums; the uplift is their difference.

    Parameters
    ----------
    cells : int, "bound" or None
        Number of cells of a grid, or of clusters. None: a fine grid, or 32 clusters; "bound": the
        least of Corollary 1's bound for one feature, with `slopes` and `sigma`.
    partition : "grid", "kmeans", dict or callable
        Equal parts of every effect modifier; private clusters, on half of the budget; parts of
        some of them, ``{"age": [30, 50], "income": 8, "region": "levels"}``; or a function of a
        data frame of feature values, which is asked on a public grid and never sees a row.
    noise : {"laplace", "gaussian"}
        Pure epsilon, or zCDP.
    release : {"ends", "count_sum"}
        What is released: distances from both bounds of the outcome, or counts and sums as in the
        paper, which cost twice the variance. Gaussian noise is always on counts and sums.
    shrink : bool
        Shrink cells towards their neighbours, by marginal likelihood. False: the paper's estimate.
    rounds : int
        Of k-means.
    rows : int, optional
        About how many rows there are: needed by "bound", and used by the default, where the number
        is not public.
    slopes, sigma : float
        For "bound": the root of L_C^2 + L_T^2 times the feature's width, and the outcome's standard
        deviation, in widths of the outcome's bounds.

    References
    ----------
    Betlei et al. (2021), Algorithm 1 and Corollary 1; sensitivities as proven in `CellSums`.
    """

    cells: int | Literal["bound"] | None = None
    partition: str | Mapping[str, object] | Callable[[Any], Any] = "grid"
    noise: Literal["laplace", "gaussian"] = "laplace"
    release: Literal["ends", "count_sum"] = "ends"
    shrink: bool = True
    rounds: int = 5
    rows: int | None = None
    slopes: float = SLOPES
    sigma: float = SIGMA
    name: ClassVar[str] = "adum"
    shares: ClassVar[Mapping[str, float]] = {"bounds": 0.1, "nuisance": 0.5, "effect": 0.5}

    def __post_init__(self) -> None:
        known = isinstance(self.partition, Mapping) or callable(self.partition)
        if not known and self.partition not in ("grid", "kmeans"):
            raise CapabilityError(
                "partition is 'grid', 'kmeans', a dict such as {'age': [30, 50]}, or a function"
            )
        _choice("noise", self.noise, ("laplace", "gaussian"))
        _choice("release", self.release, ("ends", "count_sum"))
        if not isinstance(self.shrink, bool):
            raise CapabilityError("shrink is True or False")
        for name in ("cells", "rounds", "rows"):
            value = getattr(self, name)
            free = value is None or (name == "cells" and value == "bound")
            if not free and not (type(value) is int and value >= 1):
                raise CapabilityError(f"{name} is a whole number of at least 1")
        if isinstance(self.cells, int):
            check_size(float(self.cells))
        if self.partition != "grid" and self.cells == "bound":
            raise CapabilityError("cells='bound' belongs to partition='grid'")
        if self.cells is not None and self.partition not in ("grid", "kmeans"):
            raise CapabilityError("cells= belongs to partition='grid' or 'kmeans'")
        for name in ("slopes", "sigma"):
            value = getattr(self, name)
            if not is_number(value) or not 0 < value < math.inf:
                raise CapabilityError(f"{name} is a number above 0")

    # -- planning ----------------------------------------------------------------------------

    def needs(self, request: Request, base: PrivateBase) -> list[Need]:
        rounds = range(1, self.rounds + 1) if self.partition == "kmeans" else ()
        clusters = [Need(CLUSTERS.format(k), 1.0, "nuisance") for k in rounds]
        return [*clusters, Need(CELLS, 1.0, "effect")]

    def plan(self, request: Request, base: AnyBase, undeclared: Undeclared) -> Plan:
        """Stages in pure epsilon, or in rho for Gaussian noise.

        Raises
        ------
        CapabilityError, SchemaError
            What is asked is not what cells can give; or a pure fit would have to buy bounds.
        """
        self._check(request)
        needs = self.needs(request, moment_base(base))
        if self.noise == "gaussian":
            return make_plan(request, self.name, "none", needs, self.shares, undeclared)
        if undeclared:
            names = ", ".join(map(repr, (*undeclared.numbers, *undeclared.labels)))
            raise SchemaError(
                f"learner {self.name!r} in pure epsilon buys no bounds: declare those of {names}, "
                "such as bounds={'age': (18, 95), 'region': ['a', 'b']}, or fit with "
                "pc.learners.ADUM(noise='gaussian')"
            )
        return Plan(request, self.name, "none", pure_stages(request, needs, self.shares), 0)

    def _check(self, request: Request) -> None:
        formula = request.formula
        refused = {
            "extra controls (the second | of the formula)": bool(formula.controls),
            "groups=: the cells are its groups, declare them by partition=": bool(request.groups),
            f"split={request.split!r}: it has no nuisances": request.split != "full",
            "a column of known propensities": isinstance(request.propensity, str),
        }
        for what, asked in refused.items():
            if asked:
                raise CapabilityError(f"learner {self.name!r} does not take {what}")
        if not formula.effect_variables:
            raise CapabilityError(
                f"learner {self.name!r} needs at least one effect modifier, as in "
                "'visit ~ treatment | age'; for the average alone use pc.private"
            )
        if request.trust.neighbors == "add_remove" and self.cells == "bound" and not self.rows:
            raise CapabilityError(
                "cells='bound' needs the number of rows, which is private under add_remove: say "
                "about how many there are, ADUM(cells='bound', rows=20_000)"
            )
        self._check_partition(request.schema, formula.effect_variables)

    def _check_partition(self, schema: Schema, variables: tuple[str, ...]) -> None:
        """What a partition would refuse, as far as it is known before bounds are bought."""
        if isinstance(self.partition, Mapping):
            check_names(variables, self.partition)
            if all(name in schema for name in self.partition):
                declared(schema, variables, self.partition)
        elif all(name in schema for name in variables):
            if callable(self.partition):
                tabulated(schema, variables, self.partition)
            elif self.partition == "grid":
                regular(schema, variables, self.cells if isinstance(self.cells, int) else 1)

    # -- fitting -----------------------------------------------------------------------------

    def run(self, session: Session) -> Estimate:
        session.buy_bounds()
        session.vault.arrange(session.schema, (), ())
        partition = self._partition(session)
        outcome, binary = outcome_of(session)
        law: Literal["laplace", "gaussian"] = self.noise
        sums = CellSums(
            partition, outcome, session.plan.request.trust.neighbors, law,
            form=self.release if law == "laplace" else "count_sum", squares=not binary,
        )  # fmt: skip
        release = session.release(CELLS, sums)
        count, total, square = sums.split(release.value)
        noise = sums.variances(release.noise_sd)
        found = CellTotals(
            count, total, square, *noise, outcome.bound, session.plan.request.trust.max_rows
        )
        return estimate_of(session, partition, found, shrink=self.shrink)

    def _partition(self, session: Session) -> Partition:
        request, schema = session.plan.request, session.schema
        variables = request.formula.effect_variables
        if isinstance(self.partition, Mapping):
            return declared(schema, variables, self.partition)
        if callable(self.partition):
            return tabulated(schema, variables, self.partition)
        if self.partition == "kmeans":
            cells = self.cells if isinstance(self.cells, int) else CLUSTER_CELLS
            return clustered(session, variables, cells, self.rounds)
        if isinstance(self.cells, int):
            return regular(schema, variables, self.cells)
        rows = float(self.rows or session.vault.size or 0) or None
        trust, stage = request.trust, session.plan.stage(CELLS)
        epsilon = (stage.epsilon / PICO or math.sqrt(2 * stage.rho / PICO)) / trust.max_rows
        if self.cells == "bound":
            assert rows is not None
            found = by_bound(rows, epsilon, self.slopes**2, self.sigma, 1.0, 10_000)
            return regular(schema, variables, found)
        ease = 2.0 if trust.neighbors == "add_remove" else 1.0
        return regular(schema, variables, fine(rows, ease * epsilon))


def _choice(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise CapabilityError(f"{name} is one of {', '.join(map(repr, known))}")


def pure_stages(
    request: Request, needs: list[Need], defaults: Mapping[str, float]
) -> tuple[Stage, ...]:
    """Stages whose epsilons never sum above the request's."""
    groups = list(dict.fromkeys(need.group for need in needs))
    shares = divide({g: defaults[g] for g in groups}, request.budget.shares)
    total = math.floor(exact(check_epsilon(request.budget.epsilon)) * PICO)
    size = {g: sum(n.weight for n in needs if n.group == g) for g in groups}
    weights = [shares[n.group] * n.weight / size[n.group] for n in needs]
    amounts = portions(total, weights) if len(needs) > 1 else [total]
    return tuple(
        Stage(need.name, 0, epsilon=amount) for need, amount in zip(needs, amounts, strict=True)
    )


def outcome_of(session: Session) -> tuple[Outcome, bool]:
    """Bounds of the outcome, and whether it has two values only."""
    domain = session.schema[session.plan.request.formula.outcome]
    if isinstance(domain, Interval):
        return Outcome(domain.lo, domain.hi), False
    return Outcome(0.0, 1.0), True


NOTE = (
    "Cells are shrunk towards their neighbours as far as the released numbers say that these are "
    "alike; an interval is one of the posterior, right on average over cells."
)


def estimate_of(
    session: Session, partition: Partition, found: CellTotals, *, shrink: bool
) -> Estimate:
    """Effects by cell, and the average effect, from the noisy totals."""
    request, schema = session.plan.request, session.schema
    plan = replace(session.plan, request=replace(request, schema=schema), partition=partition)
    return assembled(
        plan, found, tuple(session.releases), session.vault.size, session.vault.real_noise,
        shrink=shrink,
    )  # fmt: skip


def assembled(
    plan: Plan,
    found: CellTotals,
    releases: tuple[Release, ...],
    size: int | None,
    real: bool,
    *,
    shrink: bool,
) -> Estimate:
    """The estimate of a plan with its partition and a complete schema."""
    request, partition = plan.request, plan.partition
    assert partition is not None
    known = request.propensity if isinstance(request.propensity, int | float) else None
    value, root = shrunk(found, partition.points(), known) if shrink else plain(found)
    average = average_of(found)
    return Estimate(
        plan,
        request.schema,
        Design(request.formula.modifiers, request.schema, full_rank=True),
        Population(request.schema, {}, np.eye(0), average.size),
        CellEffect(partition, value, root, found.count, 2 * found.half),
        None,
        average,
        releases,
        size,
        real,
        (NOTE,) if shrink else (),
    )


def average_of(found: CellTotals) -> AverageEstimate:
    """The difference of the arms' means over all cells, with its sampling and privacy variance."""
    sampling = (found.sampled / np.maximum(found.rows - 1, 1)).sum()
    privacy = np.minimum(found.mean_noise, found.half**2).sum()
    return AverageEstimate(
        ("ATE",), (), np.array([found.means[1] - found.means[0]]), np.full((1, 1), sampling),
        np.full((1, 1), privacy), np.zeros(1), np.zeros(1), float(found.rows.sum()),
    )  # fmt: skip
