"""Diagnostics of overlap and balance, through the propensity that a fit released.

A result holds no rows, so the user passes the table again. Each diagnostic is one release, with
a charge in addition to the charge of the fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from privcausal import accounting
from privcausal.accounting.price import rho_of
from privcausal.errors import CapabilityError, LedgerError
from privcausal.estimators.words import Estimate
from privcausal.features.design import Design
from privcausal.features.functions import Constant, Function
from privcausal.request.plan import Plan, Stage, StageKey
from privcausal.request.request import Budget
from privcausal.typing import Frame, Kind, Matrix, Vector
from privcausal.vault import (
    ArmHistogram,
    ArmMeans,
    Mechanism,
    OfCovariates,
    Regressors,
    Vault,
    check_columns,
    check_types,
    open_source,
    open_vault,
    typed,
)

OVERLAP = StageKey("look", "propensity", heading="overlap")
BALANCE = StageKey("look", "means", heading="balance")

OVERLAP_CELLS = 16
"""Equal cells between the limits of e(x); one more cell on each side holds clipped values."""

FEW_IN_ARM = 3.0
"""An arm has no mean if its noisy sum of weights is below this many noise sds."""

LEAST_SD = 0.05
"""Minimum standard deviation of a column, in scaled units; a rare level has almost none."""


@dataclass(frozen=True, eq=False)
class OverlapCounts:
    """Noisy counts by arm (control, treated) in cells of the propensity, shape (2, cells).

    `kind` is the kind of guarantee: never better than the guarantee of the fit whose propensity it
    uses. `edges`, shape (cells - 1,), are the borders between cells.
    """

    plan: Plan
    release: accounting.Release
    kind: Kind
    edges: Vector
    counts: Matrix
    noise_sd: float


@dataclass(frozen=True, eq=False)
class BalanceMeans:
    """Standardized differences of the arms' means, and their noise sds, shape (q,) each.

    `kind` is defined as for `OverlapCounts`.
    """

    plan: Plan
    release: accounting.Release
    kind: Kind
    terms: tuple[str, ...]
    before: Vector
    before_sd: Vector
    after: Vector
    after_sd: Vector


def overlap(
    estimate: Estimate, frame: Frame, budget: Budget, ledger: accounting.Ledger | None
) -> OverlapCounts:
    """Release the distribution of the propensity among each arm's rows.

    Raises
    ------
    CapabilityError
        The propensity is one known number, or the fit released none.
    LedgerError
        The fit was made with test noise.
    """
    e, known = _propensity(estimate), estimate.known
    clip = estimate.clip
    if isinstance(e, Constant):
        raise CapabilityError(
            f"The propensity is known to be {e.value:g} for all rows, so overlap holds by design. "
            "Check the balance instead. No budget was spent."
        )
    low, high = (clip, 1.0 - clip) if known is None else (known.lo, known.hi)
    edges = np.linspace(low, high, OVERLAP_CELLS + 1)
    mechanism = ArmHistogram(OfCovariates(e, 1.0), edges, "propensity")
    designs = [estimate.design]
    plan, release, kind = _look(estimate, frame, budget, ledger, OVERLAP, mechanism, designs)
    counts, noise_sd = mechanism.split(release.value), float(release.noise_sd[0])
    return OverlapCounts(plan, release, kind, mechanism.edges, counts, noise_sd)


def balance(
    estimate: Estimate, frame: Frame, budget: Budget, ledger: accounting.Ledger | None
) -> BalanceMeans:
    """Release the arms' means of every design column, plain and weighted by 1/e and 1/(1 - e).

    Raises
    ------
    CapabilityError
        The formula has no covariates.
    LedgerError
        The fit was made with test noise.
    """
    request = estimate.plan.request
    terms = (*request.formula.modifiers, *request.formula.controls)
    design = Design(terms, estimate.schema, full_rank=True)
    if not design.columns:
        raise CapabilityError(
            "The formula has no covariates, so balance cannot be checked. No budget was spent."
        )
    regressors = Regressors(design, 0, 0)
    mechanism = ArmMeans(_propensity(estimate), estimate.clip, regressors)
    designs = [estimate.design, design]
    plan, release, kind = _look(estimate, frame, budget, ledger, BALANCE, mechanism, designs)
    sums, sds = mechanism.split(release.value), mechanism.split(release.noise_sd)
    unit = regressors.alpha * _spread(estimate, design)
    plain, weighted = (_difference(*of, unit) for of in zip(sums, sds, strict=True))
    names = tuple(column.name for column in design.columns)
    return BalanceMeans(plan, release, kind, names, *plain, *weighted)


def _propensity(estimate: Estimate) -> Function:
    if estimate.nuisances is None:
        raise CapabilityError(
            f"Learner {estimate.plan.learner!r} released no propensity, so this check is not "
            "available. No budget was spent."
        )
    return estimate.nuisances.propensity


def _look(
    estimate: Estimate,
    frame: Frame,
    budget: Budget,
    ledger: accounting.Ledger | None,
    stage: StageKey,
    mechanism: Mechanism,
    designs: Sequence[Design],
) -> tuple[Plan, accounting.Release, Kind]:
    """Run one stage with the whole budget, with the neighbors, unit, and domains of the fit."""
    request = replace(
        estimate.plan.request, schema=estimate.schema, budget=budget, split="full", groups=(),
        cov_type="nonrobust", mode="proven", below_minimum="refuse", tails="cubic",
    )  # fmt: skip
    rho = rho_of(budget.epsilon, budget.delta, gdp=True)
    learner, base = estimate.plan.learner, estimate.plan.base
    plan = Plan(request, learner, base, (Stage(stage, rho),), rho, gdp=True)
    with open_look(estimate, plan, frame, ledger) as vault:
        vault.set_layout(estimate.schema, designs, ())
        release = vault.release(stage, mechanism)
    return plan, release, look_kind(estimate, vault)


def look_kind(estimate: Estimate, vault: Vault) -> Kind:
    """Kind of guarantee of a diagnostic that uses a fit's released functions."""
    return estimate.kind if vault.real_noise else "none"


@contextmanager
def open_look(
    estimate: Estimate, plan: Plan, frame: Frame, ledger: accounting.Ledger | None
) -> Iterator[Vault]:
    """Run the checks that need no rows, charge the ledger, and open the vault.

    The released counts depend on functions of the fit. If these functions are not proven to be
    private, the diagnostic is not proven to be private. A ledger therefore accepts the diagnostic
    on the same terms as the fit.

    Raises
    ------
    LedgerError
        The fit was made with test noise, or is published and the ledger is for proven fits.
    """
    if ledger is not None and estimate.kind == "none":
        raise LedgerError(
            "A ledger does not accept diagnostics of a fit made with test noise, because they are "
            "not private. No budget was spent."
        )
    published = estimate.kind == "published"
    with open_source(frame) as opened:
        source = typed(opened, plan.request.label_columns)
        check_columns(source.header, plan.request.read)
        check_types(source.header, plan.request)
        (stage, *_), formula = plan.stages, plan.request.formula
        run = accounting.run_name(f"fit.{stage.heading} of {formula.text!r}")
        yield open_vault(source, plan, ledger, run, published=published)


def _spread(estimate: Estimate, design: Design) -> Vector:
    """Standard deviation of each scaled column in the released population, shape (q,)."""
    rows = estimate.population.rows(estimate.known)
    return np.asarray(np.maximum(rows.scaled(design).std(axis=0), LEAST_SD))


def _difference(sums: Matrix, sds: Matrix, unit: Vector) -> tuple[Vector, Vector]:
    """Treated minus control mean in multiples of `unit`, and its noise sd, shape (q,) each.

    `sums` has one row per arm (control, treated). Its first column is the sum of weights; the other
    columns are weighted sums of the design columns. A mean is a ratio of noisy sums. By the delta
    method its variance is (sd_sum^2 + mean^2 sd_mass^2) / mass^2.
    """
    mass, mass_sd = sums[:, :1], sds[:, :1]
    if (mass <= FEW_IN_ARM * mass_sd).any():
        return np.full(len(unit), np.nan), np.full(len(unit), np.nan)
    means = sums[:, 1:] / mass
    variance = (sds[:, 1:] ** 2 + (means * mass_sd) ** 2) / mass**2
    return (means[1] - means[0]) / unit, np.sqrt(variance.sum(axis=0)) / unit
