"""Fits from aggregated tables: exact ones get noise, noisy ones are taken as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privcausal.accounting import Charge, Cost, Release
from privcausal.accounting.charge import is_number
from privcausal.errors import BudgetError, CapabilityError, DataError, SchemaError
from privcausal.inference.cells import CellTotals
from privcausal.learners.adum import ADUM, CELLS, assembled
from privcausal.learners.bases import BASES
from privcausal.learners.estimate import Estimate
from privcausal.learners.ground import Session
from privcausal.learners.needs import Undeclared, as_coded
from privcausal.learners.options import check_object
from privcausal.spec.cell_query import labels_of
from privcausal.spec.cell_table import CellTable, read_cells
from privcausal.spec.columns import Header
from privcausal.spec.formula import CausalFormula
from privcausal.spec.partition import LevelAxis, Product, check_size
from privcausal.spec.plan import PER_ROW, Plan
from privcausal.spec.request import Budget, Request, Trust
from privcausal.spec.schema import Binary, Interval, Schema
from privcausal.typing import Frame, Neighbors
from privcausal.vault import CellSums, Outcome, Vault, opening

BY_CELL = "outcome ~ arm | C(cell)"
"""The formula of a table whose cells have names only."""


@dataclass(frozen=True, eq=False)
class CellRequest:
    """What is asked of an aggregated table."""

    request: Request
    partition: Product
    learner: ADUM
    names: tuple[str, ...]

    @property
    def outcome(self) -> Interval:
        domain = self.request.schema[self.request.formula.outcome]
        return domain if isinstance(domain, Interval) else Interval(0.0, 1.0)

    @property
    def binary(self) -> bool:
        return not isinstance(self.request.schema[self.request.formula.outcome], Interval)

    @property
    def header(self) -> Header:
        """Columns of the rows that are not here."""
        labels = labels_of(self.request.schema.columns)
        kinds = {n: "text" if n in labels else "numeric" for n in self.request.formula.variables}
        return Header(kinds)  # type: ignore[arg-type]  # two of the literals

    @opening
    def read(self, frame: Frame, *, noisy: bool) -> CellTable:
        """The table, whose numbers are as private as rows until noise is added."""
        arms = self.request.schema[self.request.formula.treatment]
        assert isinstance(arms, Binary)
        return read_cells(frame, self.names, arms, self.outcome, noisy=noisy)

    def plan(self) -> Plan:
        """The one stage of an exact table."""
        found = self.learner.plan(self.request, BASES["gam"], Undeclared((), ()))
        return replace(found, partition=self.partition, aggregated=True)


def cell_request(
    cells: Sequence[Any] | Plan,
    outcome: object,
    learner: ADUM,
    budget: Budget,
    neighbors: Neighbors,
    propensity: float | None,
) -> CellRequest:
    """The request for cells named by hand, or those of a fit's plan."""
    check_object("learner", learner)
    if not isinstance(learner, ADUM):
        raise CapabilityError("from_cells takes learner=pc.learners.ADUM(...), without its cells")
    if learner.partition != "grid" or learner.cells is not None:
        raise CapabilityError("the cells of a table are given: leave cells= and partition= out")
    trust = Trust(neighbors)
    if isinstance(cells, Plan):
        return _of_plan(cells, learner, budget, trust, propensity)
    if isinstance(cells, str) or not isinstance(cells, Sequence):
        raise SchemaError("cells= lists the declared cells, also those without rows")
    schema = as_coded(
        Schema({"outcome": outcome, "arm": Binary(), "cell": list(cells)}), _bare(budget)
    )
    request = Request(CausalFormula.parse(BY_CELL), schema, budget, trust, propensity=propensity)
    axis = LevelAxis("cell", _labels(schema))
    check_size(float(axis.size))
    return CellRequest(request, Product((axis,)), learner, axis.labels)


def cell_budget(eps: float | None, delta: float | None, noise: object) -> Budget:
    """What an exact table is to cost, or what a noisy one's maker says of it.

    Raises
    ------
    BudgetError
        A table with noise comes without its maker's epsilon.
    """
    if noise is None:
        return Budget(1.0 if eps is None else eps, 1e-5 if delta is None else delta)
    if eps is None:
        raise BudgetError("a table with noise needs eps=: what its maker says that it promises")
    return Budget(eps, 0.0 if delta is None else delta, given=True)


def _bare(budget: Budget) -> Request:
    return Request(CausalFormula.parse(BY_CELL), Schema(), budget)


def _labels(schema: Schema) -> tuple[str, ...]:
    labels: tuple[str, ...] = getattr(schema["cell"], "labels", None) or ("0", "1")
    return labels


def _of_plan(
    plan: Plan, learner: ADUM, budget: Budget, trust: Trust, propensity: float | None
) -> CellRequest:
    if not isinstance(plan.partition, Product):
        raise CapabilityError("this plan has no cells that SQL was written for")
    if plan.request.trust.unit is not None:
        raise CapabilityError(PER_ROW)
    request = replace(plan.request, budget=budget, trust=trust, propensity=propensity)
    names = tuple(map(str, range(plan.partition.size)))
    return CellRequest(request, plan.partition, learner, names)


def from_exact(asked: CellRequest, plan: Plan, vault: Vault, rounding: float) -> Estimate:
    """Noise on an exact table, then as for rows; `rounding` is that of its sums."""
    session = Session(plan, vault, asked.request.schema, Undeclared((), ()), BASES["gam"])
    vault.arrange(asked.request.schema, (), ())
    pure = plan.pure
    sums = CellSums(
        asked.partition, Outcome(asked.outcome.lo, asked.outcome.hi),
        asked.request.trust.neighbors, "laplace" if pure else "gaussian",
        form=asked.learner.release if pure else "count_sum", squares=False, rounding=rounding,
    )  # fmt: skip
    release = session.release(CELLS, sums)
    count, total, _ = sums.split(release.value)
    noise = sums.variances(release.noise_sd)
    found = CellTotals(count, total, None, *noise, 0.5 * asked.outcome.width)
    return assembled(plan, found, (release,), None, vault.real_noise, shrink=asked.learner.shrink)


def from_noisy(asked: CellRequest, table: CellTable, noise: Mapping[str, float]) -> Estimate:
    """Post-processing of a table whose maker added noise of these standard deviations."""
    count, total = _spreads(noise)
    middle = abs(asked.outcome.mid)
    spread = float(np.hypot(total, middle * count))  # of sum - middle x count
    found = CellTotals(
        table.count, table.total, None, count**2, spread**2, 0.0, 0.5 * asked.outcome.width
    )
    charge = Charge(
        "effect", f"counts and sums in {asked.partition.size} cells", "handed over with noise",
        asked.request.trust.neighbors, float("nan"), total, Cost(),
    )  # fmt: skip
    release = Release(np.zeros(0), np.zeros(0), charge)
    plan = Plan(asked.request, ADUM.name, "none", (), 0, partition=asked.partition)
    return assembled(plan, found, (release,), None, True, shrink=asked.learner.shrink)


def _spreads(noise: object) -> tuple[float, float]:
    if not isinstance(noise, Mapping) or set(noise) != {"count", "sum"}:
        raise DataError("noise= is {'count': sd, 'sum': sd}: what the table's maker added")
    for value in noise.values():
        if not is_number(value) or not 0 < value < float("inf"):
            raise DataError("noise= holds standard deviations, numbers above 0")
    return float(noise["count"]), float(noise["sum"])
