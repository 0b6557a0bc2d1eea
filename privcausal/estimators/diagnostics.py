"""Later releases with functions that a fit released: overlap, balance and uplift.

A result holds no rows, so the user passes a table again. Each of these is one release, with a
charge in addition to the charge of the fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from privcausal import accounting, vault
from privcausal.accounting.price import check_epsilon, exact, rho_of
from privcausal.errors import CapabilityError, LedgerError
from privcausal.estimators.estimands import Estimate
from privcausal.estimators.first_stages import outcome_of
from privcausal.estimators.uplift import cell_totals
from privcausal.features.design import Design
from privcausal.features.functions import Constant, Function, Ranks
from privcausal.inference.cells import CellEffect, Curve, curves
from privcausal.inference.effects import Answers
from privcausal.inference.population import uniform_population
from privcausal.request.checks import check_table
from privcausal.request.partition import Partition
from privcausal.request.request import Budget, Plan, Stage, StageKey
from privcausal.request.schema import Interval
from privcausal.typing import Frame, Kind, Matrix, Vector

OVERLAP = StageKey("look", "propensity", heading="overlap")
BALANCE = StageKey("look", "means", heading="balance")
UPLIFT = StageKey("look", "cells", heading="uplift")

RANKS = 10
"""Number of ranges of the effect in uplift curves of effects without cells. By hand."""

OVERLAP_CELLS = 16
"""Equal cells between the limits of e(x); one more cell on each side holds clipped values."""

FEW_IN_ARM = 3.0
"""An arm has no mean if its noisy sum of weights is below this many noise sds."""

LEAST_SD = 0.05
"""Minimum standard deviation of a column, in scaled units; a rare level has almost none."""


# Each has its plan, its release, and the `kind` of its guarantee, never better than the fit's.


class OverlapCounts(NamedTuple):
    """Noisy counts by arm (control, treated) in cells of the propensity, shape (2, cells).

    `edges`, shape (cells - 1,), are the borders between cells.
    """

    plan: Plan
    release: accounting.Release
    kind: Kind
    edges: Vector
    counts: Matrix
    noise_sd: float


class BalanceMeans(NamedTuple):
    """Standardized differences of the arms' means, and their noise sds, shape (q,) each."""

    plan: Plan
    release: accounting.Release
    kind: Kind
    terms: tuple[str, ...]
    before: Vector
    before_sd: Vector
    after: Vector
    after_sd: Vector


class UpliftCurves(NamedTuple):
    """Curves by name."""

    plan: Plan
    release: accounting.Release
    kind: Kind
    curves: dict[str, Curve]


def overlap(
    estimate: Estimate, frame: Frame, budget: Budget, ledger: accounting.Ledger | None
) -> OverlapCounts:
    """Release the distribution of the propensity among each arm's rows.

    Raise `CapabilityError` if the propensity is one known number or was not released, and
    `LedgerError` if the fit was made with test noise.
    """
    e, known, clip = _propensity(estimate), estimate.propensity, estimate.clip
    if isinstance(e, Constant):
        raise CapabilityError(
            f"The propensity is known to be {e.value:g} for all rows, so overlap holds by design. "
            "Check the balance instead. No budget was spent."
        )
    low, high = (clip, 1.0 - clip) if known is None else (known.lo, known.hi)
    edges = np.linspace(low, high, OVERLAP_CELLS + 1)
    mechanism = vault.ArmHistogram(vault.OfCovariates(e, 1.0), edges, "propensity")
    designs = [estimate.design]
    plan, release, kind = _look(estimate, frame, budget, ledger, OVERLAP, mechanism, designs)
    counts, noise_sd = release.value.reshape(2, -1), float(release.noise_sd[0])
    return OverlapCounts(plan, release, kind, mechanism.edges, counts, noise_sd)


def balance(
    estimate: Estimate, frame: Frame, budget: Budget, ledger: accounting.Ledger | None
) -> BalanceMeans:
    """Release the arms' means of every design column, plain and weighted by 1/e and 1/(1 - e).

    Raise `CapabilityError` if the formula has no covariates, and `LedgerError` if the fit was made
    with test noise.
    """
    request = estimate.plan.request
    terms = (*request.formula.modifiers, *request.formula.controls)
    design = Design(terms, estimate.schema, full_rank=True)
    if not design.columns:
        raise CapabilityError(
            "The formula has no covariates, so balance cannot be checked. No budget was spent."
        )
    regressors = vault.Regressors(design, 0, 0)
    mechanism = vault.ArmMeans(_propensity(estimate), estimate.clip, regressors)
    designs = [estimate.design, design]
    plan, release, kind = _look(estimate, frame, budget, ledger, BALANCE, mechanism, designs)
    sums, sds = mechanism.split(release.value), mechanism.split(release.noise_sd)
    rows = estimate.population.rows(estimate.propensity)
    unit = regressors.alpha * np.maximum(rows.scaled(design).std(axis=0), LEAST_SD)
    # Plain, then weighted: the first number of an arm is its sum of weights, the others are sums of
    # the design columns. By the delta method, the variance of a mean, a ratio of noisy sums, is
    # (sd_sum^2 + mean^2 sd_mass^2) / mass^2.
    differences = list[Vector]()
    for total, sd in zip(sums, sds, strict=True):
        mass, mass_sd = total[:, :1], sd[:, :1]
        if (mass <= FEW_IN_ARM * mass_sd).any():
            differences += [np.full(len(unit), np.nan)] * 2
            continue
        means = total[:, 1:] / mass
        variance = (sd[:, 1:] ** 2 + (means * mass_sd) ** 2) / mass**2
        differences += [(means[1] - means[0]) / unit, np.sqrt(variance.sum(axis=0)) / unit]
    names = tuple(column.name for column in design.columns)
    return BalanceMeans(plan, release, kind, names, *differences)


def uplift(
    estimate: Estimate, frame: Frame, epsilon: float, ledger: accounting.Ledger | None
) -> UpliftCurves:
    """Counts and sums of `frame` in cells of the effect, in pure epsilon, and the curves.

    The cells are those of the fit, or else `RANKS` ranges of the estimated effect with equal shares
    of the population that the fit knows.

    Raise `CapabilityError` if no effect is known at other rows, if it does not vary, or if arms
    cannot be compared within a range because the treatment is not randomized with one probability.
    """
    effect, request = estimate.effect, estimate.plan.request
    names = request.formula.effect_variables
    cells: Partition | Ranks
    if isinstance(effect, CellEffect):
        cells, ranking = effect.partition, effect.value
    elif isinstance(effect, Answers) or not (effect and names):
        raise CapabilityError(
            "Uplift curves rank other rows by their effects, but this fit has no effect at other "
            "points. Use pc.privcate with modifiers and without queries=. No budget was spent."
        )
    elif not isinstance(request.propensity, int | float):
        raise CapabilityError(
            "Uplift curves compare the arms' means, so treatment must be randomized with one "
            "probability. In a trial, declare propensity=. No budget was spent."
        )
    else:
        population = estimate.population
        if not set(names) <= set(population.probabilities):
            population = uniform_population(estimate.schema, names, None)
        values, rows = np.unique(effect(population.rows()), return_counts=True)
        at = np.searchsorted(np.cumsum(rows), np.arange(1, RANKS) / RANKS * rows.sum())
        at = np.unique(at[at < len(values) - 1])
        if not len(at):
            raise CapabilityError(
                "The estimated effect is the same for all rows, so they have no rank. No budget "
                "was spent."
            )
        # between two values, so that no value of the population is at a border
        cells = Ranks(effect, (values[at] + values[at + 1]) / 2)
        ranking = np.arange(float(cells.size))
    budget = Budget(epsilon, request.budget.delta)
    sums = vault.CellSums(
        cells, outcome_of(request, estimate.schema), request.trust.neighbors, "laplace",
        squares=isinstance(estimate.schema[request.formula.outcome], Interval),
    )  # fmt: skip
    plan, release, kind = _look(
        estimate, frame, budget, ledger, UPLIFT, sums, [estimate.design], pure=True
    )
    totals = cell_totals(sums, release, request.trust.max_rows)
    return UpliftCurves(plan, release, kind, curves(totals, ranking))


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
    key: StageKey,
    mechanism: vault.Mechanism,
    designs: Sequence[Design],
    *,
    pure: bool = False,
) -> tuple[Plan, accounting.Release, Kind]:
    """Release one query with the whole budget, with the neighbors, unit, and domains of the fit.

    The query contains functions of the fit. If these functions are not proven to be private, the
    release is not proven to be private. A ledger therefore accepts the release on the same terms as
    the fit. Raise `LedgerError` if the fit was made with test noise, or is published and the ledger
    is for proven fits.
    """
    request = replace(
        estimate.plan.request, schema=estimate.schema, budget=budget, split="full", groups=(),
        cov_type="nonrobust", mode="proven", below_minimum="refuse", tails="fitted",
    )  # fmt: skip
    rho = epsilon = 0
    if pure:
        epsilon = math.floor(exact(check_epsilon(budget.epsilon)) * accounting.PICO)
    else:
        rho = rho_of(budget.epsilon, budget.delta, gdp=True)
    stage = Stage(key, rho, epsilon=epsilon)
    plan = Plan(request, estimate.plan.learner, estimate.plan.base, (stage,), rho, gdp=not pure)
    if ledger is not None and estimate.kind == "none":
        raise LedgerError(
            "A ledger does not accept diagnostics of a fit made with test noise, because they are "
            "not private. No budget was spent."
        )
    with vault.open_source(frame) as opened:
        source = vault.typed(opened, request.label_columns)
        check_table(request, source.header)
        question = f"fit.{stage.heading} of {request.formula.text!r}"
        published = estimate.kind == "published"
        handle = vault.open_vault(source, plan, ledger, question, published=published)
        handle.set_layout(estimate.schema, designs, ())
        release = handle.release(key, mechanism)
    return plan, release, estimate.kind if handle.real_noise else "none"
