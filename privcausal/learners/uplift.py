"""A priced look at other rows through the cells of a fit: what its ranking gains."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, replace

from privcausal.accounting import PICO, Ledger, Release
from privcausal.accounting.charge import exact
from privcausal.accounting.conversion import check_epsilon
from privcausal.errors import CapabilityError, LedgerError
from privcausal.inference.cells import CellEffect, CellTotals
from privcausal.inference.uplift import Curve, curves
from privcausal.learners.estimate import Estimate
from privcausal.spec.plan import Plan, Stage
from privcausal.spec.request import Budget
from privcausal.spec.schema import Interval
from privcausal.typing import Frame
from privcausal.vault import (
    CellSums,
    Outcome,
    check_columns,
    check_types,
    open_vault,
    read,
    typed,
)

STAGE = "uplift: cells"


@dataclass(frozen=True, eq=False)
class UpliftCurves:
    """Curves by name and the release that they come from."""

    plan: Plan
    release: Release
    real: bool
    curves: dict[str, Curve]


def uplift(estimate: Estimate, frame: Frame, epsilon: float, ledger: Ledger | None) -> UpliftCurves:
    """Counts and sums of `frame` in the fit's cells, in pure epsilon, and the curves they give."""
    effect = estimate.effect
    if not isinstance(effect, CellEffect):
        raise CapabilityError(
            f"uplift curves are of effects by cell: learner='adum', not {estimate.plan.learner!r}"
        )
    budget = Budget(epsilon, estimate.plan.request.budget.delta)
    request = replace(estimate.plan.request, budget=budget)
    amount = math.floor(exact(check_epsilon(epsilon)) * PICO)
    stage = Stage(STAGE, 0, epsilon=amount)
    plan = replace(estimate.plan, request=request, stages=(stage,), rho_cap=0)
    if ledger is not None and not estimate.real:
        raise LedgerError("a ledger takes no look at a fit made with test noise")
    source = typed(read(frame), request.label_columns)
    check_columns(source.header, request.columns)
    check_types(source.header, request)
    domain = estimate.schema[request.formula.outcome]
    numeric = isinstance(domain, Interval)
    outcome = Outcome(domain.lo, domain.hi) if isinstance(domain, Interval) else Outcome(0.0, 1.0)
    sums = CellSums(effect.partition, outcome, request.trust.neighbors, "laplace", squares=numeric)
    vault = open_vault(source, plan, ledger, secrets.token_hex(8))
    vault.arrange(estimate.schema, (), ())
    release = vault.release(STAGE, sums)
    count, total, square = sums.split(release.value)
    noise = sums.variances(release.noise_sd)
    found = CellTotals(count, total, square, *noise, outcome.bound, request.trust.max_rows)
    real = estimate.real and vault.real_noise
    return UpliftCurves(plan, release, real, curves(found, effect.value))
