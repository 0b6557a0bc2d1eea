"""Shared parts of the published mechanisms (`privcausal.paper`): checks and nuisances."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from scipy.stats.qmc import Sobol

from privcausal.accounting import PICO, rho_of
from privcausal.accounting.charge import exact
from privcausal.accounting.price import check_epsilon
from privcausal.errors import BudgetError, SchemaError
from privcausal.estimators import nuisances as nu
from privcausal.estimators import private
from privcausal.estimators.bases import refuse
from privcausal.estimators.budget import Undeclared, Weights
from privcausal.estimators.first_stages import Fit, FitState, prepare
from privcausal.estimators.words import SPLIT_WORDS, Estimate, TextPairs, nuisance_rows
from privcausal.features.design import Design
from privcausal.features.functions import NuisanceTriple
from privcausal.request.plan import Plan, Stage, StageKey, portions
from privcausal.request.request import Request
from privcausal.typing import Matrix

_PUBLIC_SEED = 20_250_521  # Public corners where an optimizer starts; not privacy noise.


CUBE_STARTS, CORNER_VARIABLES = 1024, 10
"""Number of starts that fill the cube, and maximum number of variables with starts at all corners.
"""


def starting_points(design: Design) -> Matrix:
    """Starting points of the search for gamma: points that fill the unit cube, and its corners.

    PrivATE's supplement C.2 has ten random points. They can miss a maximum, which is often at a
    corner. The noise is then smaller than the theorem requires.
    """
    k = len(design.variables)
    if k == 0:
        return np.zeros((1, 0))
    inside = Sobol(k, scramble=False).random(CUBE_STARTS)
    if k <= CORNER_VARIABLES:
        ends = np.stack(np.meshgrid(*[[0.0, 1.0]] * k), axis=-1).reshape(-1, k)
    else:
        ends = np.random.default_rng(_PUBLIC_SEED).integers(0, 2, (CUBE_STARTS, k)).astype(float)
    return np.vstack([inside, ends])


def least_rows(stage: Stage, numbers: int = 1) -> int:
    """max(55, 8 (d + 2 ln(2/delta)) / epsilon) for the d `numbers` that a stage releases.

    gamma sqrt(ln n) / n must be a smooth upper bound of the local sensitivity. It is not, even for
    a mean of fixed scores, below e^4 rows, or if this beta of Nissim et al. (2007) is exceeded.
    """
    epsilon, delta = stage.epsilon / PICO, stage.delta / PICO
    return max(55, math.ceil(8 * (numbers + 2 * math.log(2 / delta)) / epsilon))


def claimed_stage(
    key: StageKey, request: Request, share: float = 1.0, *, whole: bool = False
) -> Stage:
    """A stage with a share of epsilon and delta, on one half of the rows or on all rows.

    An (epsilon, delta) mechanism is dominated by one that fails with probability delta and is
    otherwise epsilon-private (Kairouz, Oh and Viswanath 2015). The stage is therefore charged in
    both, and sums of such charges are a valid total. Charges are rounded down, so that shares never
    sum to more than the whole.
    """
    epsilon, delta = (
        math.floor(exact(amount) * exact(share) * PICO)
        for amount in (request.budget.epsilon, request.budget.delta)
    )
    check_epsilon(epsilon / PICO)
    if delta < 1:
        raise BudgetError("delta is too small to be divided among the stages (units of 1e-12).")
    rows, part = (1.0, "all") if whole else (0.5, "effect")
    return Stage(key, 0, delta, 0, rows, part, epsilon)


def refuse_published(refused: Mapping[str, bool], why: str, undeclared: Undeclared) -> None:
    """Refuse the first requested option; `why` states the reason it is outside the theorems."""
    refuse(refused, f"The published mechanism does not support {{}}; {why}.")
    if undeclared:
        names = ", ".join(map(repr, (*undeclared.numbers, *undeclared.labels)))
        raise SchemaError(
            f"Mechanisms in pc.paper cannot estimate bounds. Declare the bounds of {names}, for "
            "example bounds={'age': (18, 95), 'ward': ['a', 'b']}."
        )


PUBLISHED_STEPS = (
    *private.MOMENTS,
    private.FIRST_EFFECT,
    private.UNKNOWN_TREATMENT,
    private.EFFECT_GRAM,
)
"""Releases of private nuisances from moments, on their half."""


def plain_design(fit: Fit) -> Design:
    """The formula's columns, arranged for nuisances that release no sums."""
    design = Design(fit.request.formula.terms, fit.schema, full_rank=False)
    fit.vault.set_layout(fit.schema, [design], ())
    return design


def private_nuisance(
    fit: Fit, *, linear_terms: bool = True
) -> tuple[FitState, nu.Folds, NuisanceTriple]:
    """e, mu_0 and mu_1 from the releases of `PUBLISHED_STEPS`."""
    state, grams, partials = nu.additive_nuisances(prepare(fit, linear_terms=linear_terms))
    tau = nu.residual_effect(state, grams, partials)
    return state, partials, nu.nuisance_of(partials[0], tau, state.outcome)


def on_one_half(request: Request, weights: Weights) -> tuple[tuple[Stage, ...], int]:
    """Stages of the nuisances' half, and the rho they share.

    The stages are in parallel with the other half, which is charged (epsilon, delta). They are
    therefore not charged again.
    """
    cap = rho_of(request.budget.epsilon, request.budget.delta)
    stages = tuple(
        Stage(key, amount, charged=0, rows=0.5, part="nuisance")
        for key, amount in zip(weights, portions(cap, list(weights.values())), strict=True)
    )
    return stages, cap


def has_private_nuisances(plan: Plan) -> bool:
    """Whether the nuisances come from one half of the rows, by sums with noise."""
    return plan.request.split == "disjoint" and plan.base != "sklearn"


def published_rows(estimate: Estimate) -> TextPairs:
    """Summary rows: the source of the nuisances, and whether they are private."""
    split = estimate.plan.request.split
    if has_private_nuisances(estimate.plan):
        return nuisance_rows(estimate, SPLIT_WORDS[split])
    if estimate.plan.base == "given":
        return nuisance_rows(estimate, "user-supplied")
    rows = "separate half" if split == "disjoint" else "all rows"
    return nuisance_rows(estimate, f"{rows}, not private")
