"""Effects by cell from aggregated tables, without the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from privcausal import accounting
from privcausal.errors import BudgetError, CapabilityError, DataError, SchemaError, is_number
from privcausal.estimators import check_object
from privcausal.estimators.bases import BASES
from privcausal.estimators.budget import Undeclared, as_coded, resolve_domains
from privcausal.estimators.survey import outcome_of
from privcausal.estimators.uplift import ADUM, CELL_STAGE, assembled, cell_totals
from privcausal.estimators.words import Estimate
from privcausal.inference.cells import CellTotals
from privcausal.request.formula import CausalFormula
from privcausal.request.partition import Product, product_of, text_columns
from privcausal.request.plan import PER_ROW, Plan
from privcausal.request.request import Budget, Request, Trust
from privcausal.request.schema import Binary, Header, Interval, Schema
from privcausal.typing import Frame, Neighbors
from privcausal.vault import MOST_COUNT, CellSums, CellTable, Vault, opening, read_cells

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
    def partition(self) -> Product:
        return product_of(self.request.schema, self.parts)

    @property
    def outcome(self) -> Interval:
        domain = self.request.schema[self.request.formula.outcome]
        return domain if isinstance(domain, Interval) else Interval(0.0, 1.0)

    @property
    def header(self) -> Header:
        """Columns of the underlying rows, which are not available."""
        labels = text_columns(self.request.schema.columns)
        kinds = {n: "text" if n in labels else "numeric" for n in self.request.formula.variables}
        return Header(kinds)  # type: ignore[arg-type]  # two of the literals

    @opening
    def read(self, frame: Frame, *, noisy: bool) -> CellTable:
        """Read the table; its numbers are as private as rows until noise is added."""
        arms = self.request.schema[self.request.formula.treatment]
        assert isinstance(arms, Binary)
        return read_cells(frame, self.names, arms, self.outcome, noisy=noisy)

    def told(self, table: CellTable) -> CellRequest:
        """The request with what is public of its table."""
        if self.noise is None:
            return replace(self, rounding=table.rounding)
        count, total = (tuple(part.ravel().tolist()) for part in (table.count, table.total))
        return replace(self, count=count, total=total)

    def planned(self) -> tuple[Plan, Callable[[Vault], Estimate]]:
        """The plan, after all checks, and the fit by the answers of a vault."""
        schema, undeclared = resolve_domains(self.request, self.header)
        own = set(self.parts) <= set(self.request.formula.effect_variables)
        if undeclared or schema != self.request.schema or not own or self.rounding < 0:
            raise SchemaError("An aggregated table requires declared domains of its columns.")
        if self.noise is None:
            plan = self.plan()
            return plan, lambda vault: from_exact(self, plan, vault)
        found = from_noisy(self)
        return found.plan, lambda _: found

    def plan(self) -> Plan:
        """Plan the single stage of an exact table."""
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
    """Request for cells named by hand, or for the cells of a fit's plan."""
    check_object("learner", learner)
    if not isinstance(learner, ADUM):
        raise CapabilityError("from_cells() requires learner=pc.learners.ADUM(...).")
    if learner.partition != "grid" or learner.cells is not None:
        raise CapabilityError("The table defines the cells. Omit cells= and partition= of ADUM.")
    trust = Trust(neighbors)
    if isinstance(cells, Plan):
        if not isinstance(cells.partition, Product):
            raise CapabilityError("This plan has no cells, so it has no SQL query.")
        if cells.request.trust.unit is not None:
            raise CapabilityError(PER_ROW)
        request = replace(cells.request, budget=budget, trust=trust, propensity=propensity)
        names = tuple(map(str, range(cells.partition.size)))
        parts: dict[str, object] = {
            axis.name: getattr(axis, "parts", getattr(axis, "cuts", "levels"))
            for axis in cells.partition.axes
        }
        return CellRequest(request, parts, learner, names=names)
    if isinstance(cells, str) or not isinstance(cells, Sequence):
        raise SchemaError("cells= must list all declared cells, including cells without rows.")
    request = Request(CausalFormula.parse(BY_CELL), Schema(), budget, trust, propensity=propensity)
    declared = Schema({"outcome": outcome, "arm": Binary(), "cell": list(cells)})
    request = replace(request, schema=as_coded(declared, request))
    made = CellRequest(request, {"cell": "levels"}, learner)
    own = (label.removeprefix("cell = ") for label in made.partition.labels())
    return replace(made, names=tuple(own))


def cell_budget(eps: float | None, delta: float | None, noise: object) -> Budget:
    """Cost of an exact table, or the cost declared by the producer of a noisy table.

    Raise `BudgetError` for a noisy table without the epsilon of its producer.
    """
    if noise is None:
        return Budget(1.0 if eps is None else eps, 1e-5 if delta is None else delta)
    if eps is None:
        raise BudgetError("A noisy table requires eps=, the epsilon that its producer claims.")
    return Budget(eps, 0.0 if delta is None else delta, given=True)


def from_exact(asked: CellRequest, plan: Plan, vault: Vault) -> Estimate:
    """Add noise to an exact table, then proceed as for rows."""
    schema, pure = asked.request.schema, plan.pure
    vault.set_layout(schema, (), ())
    sums = CellSums(
        asked.partition, outcome_of(asked.request, schema), asked.request.trust.neighbors,
        "laplace" if pure else "gaussian",
        form=asked.learner.release if pure else "count_sum", squares=False, rounding=asked.rounding,
    )  # fmt: skip
    release = vault.release(CELL_STAGE, sums)
    found = cell_totals(sums, release)
    return assembled(plan, found, (release,), None, vault.real_noise, shrink=asked.learner.shrink)


def from_noisy(asked: CellRequest) -> Estimate:
    """Post-process a noisy table; `noise` holds the standard deviations added by its producer."""
    noise, shape = asked.noise, (asked.partition.size, 2)
    if not isinstance(noise, Mapping) or set(noise) != {"count", "sum"}:
        raise DataError("noise= must be {'count': sd, 'sum': sd}, the noise added by the producer.")
    half, middle = 0.5 * asked.outcome.width, asked.outcome.mid
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
    rows, sums = (np.array(part).reshape(shape) for part in (asked.count, asked.total))
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
    found = CellTotals(rows, sums, None, count**2, centred**2, 0.0, half)
    charge = accounting.Charge(
        "effect", f"counts and sums in {asked.partition.size} cells", "noise added by producer",
        asked.request.trust.neighbors, float("nan"), total, accounting.Cost(),
    )  # fmt: skip
    release = accounting.Release(np.zeros(0), np.zeros(0), charge)
    plan = Plan(asked.request, ADUM.name, "none", (), 0, partition=asked.partition)
    return assembled(plan, found, (release,), None, True, shrink=asked.learner.shrink)
