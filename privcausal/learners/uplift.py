"""A priced look at other rows through the cells of a fit: what its ranking gains."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from privcausal.accounting import PICO, Ledger, Release
from privcausal.accounting.charge import exact
from privcausal.accounting.conversion import check_epsilon
from privcausal.errors import CapabilityError
from privcausal.inference.cells import CellEffect, CellTotals
from privcausal.inference.uplift import Curve, curves
from privcausal.learners.diagnostics import look_kind, open_look
from privcausal.learners.estimate import Estimate
from privcausal.spec.plan import Plan, Stage
from privcausal.spec.request import Budget
from privcausal.spec.schema import Interval
from privcausal.typing import Frame, Kind
from privcausal.vault import CellSums, Outcome

STAGE = "uplift: cells"


@dataclass(frozen=True, eq=False)
class UpliftCurves:
    """Curves by name and the release that they come from."""

    plan: Plan
    release: Release
    kind: Kind
    curves: dict[str, Curve]


def uplift(estimate: Estimate, frame: Frame, epsilon: float, ledger: Ledger | None) -> UpliftCurves:
    """Counts and sums of `frame` in the fit's cells, in pure epsilon, and the curves they give."""
    effect = estimate.effect
    if not isinstance(effect, CellEffect):
        raise CapabilityError(
            f"uplift curves are of effects by cell: learner='adum', not {estimate.plan.learner!r}"
        )
    budget = Budget(epsilon, estimate.plan.request.budget.delta)
    request = replace(
        estimate.plan.request, schema=estimate.schema, budget=budget, split="full", groups=(),
        mode="proven", below_minimum="refuse",
    )  # fmt: skip
    amount = math.floor(exact(check_epsilon(epsilon)) * PICO)
    stage = Stage(STAGE, 0, epsilon=amount)
    plan = Plan(request, estimate.plan.learner, estimate.plan.base, (stage,), 0)
    domain = estimate.schema[request.formula.outcome]
    numeric = isinstance(domain, Interval)
    outcome = Outcome(domain.lo, domain.hi) if isinstance(domain, Interval) else Outcome(0.0, 1.0)
    sums = CellSums(effect.partition, outcome, request.trust.neighbors, "laplace", squares=numeric)
    with open_look(estimate, plan, frame, ledger) as vault:
        vault.arrange(estimate.schema, (), ())
        release = vault.release(STAGE, sums)
    count, total, square = sums.split(release.value)
    noise = sums.variances(release.noise_sd)
    found = CellTotals(count, total, square, *noise, outcome.bound, request.trust.max_rows)
    kind = look_kind(estimate, vault)
    return UpliftCurves(plan, release, kind, curves(found, effect.value))
