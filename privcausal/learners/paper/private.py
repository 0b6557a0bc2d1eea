"""PrivATE as its paper prints it (Schroeder et al. 2025): `privcausal.paper.private`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privcausal.accounting import PICO, Release
from privcausal.accounting.charge import exact, is_number
from privcausal.accounting.conversion import check_epsilon
from privcausal.errors import BudgetError
from privcausal.features.design import Design
from privcausal.inference.average import AverageEstimate
from privcausal.inference.population import Population
from privcausal.learners.base import Learner, finish, shown
from privcausal.learners.bases import AnyBase, PrivateBase, moment_base
from privcausal.learners.budget import StageWeight, Undeclared
from privcausal.learners.description import LEFT_OUT, Description
from privcausal.learners.estimate import Estimate
from privcausal.learners.options import Sklearn
from privcausal.learners.paper import (
    has_private_nuisances,
    least_rows,
    on_one_half,
    private_needs,
    private_nuisance,
    published_rows,
    refuse_published,
    refuse_undeclared,
    starting_points,
)
from privcausal.learners.state import Session, declared_propensity, outcome_of
from privcausal.request.plan import Plan, Stage, StageKey
from privcausal.request.request import Request
from privcausal.request.schema import Schema
from privcausal.vault import Estimators, PublishedAte, Vault

EFFECT = StageKey("effect", "AIPW mean")
VARIANCE = StageKey("effect", "squared error", heading="variance")

SHARES = {"effect": 0.5, "variance": 0.5}
"""Of epsilon and of delta: eps_1 = eps_2 and delta_1 = delta_2 (supplement C.2)."""


@dataclass(frozen=True)
class Published(Learner):
    """PrivATE's Theorems 4.3, 4.5 and 4.6, with the guarantee that the paper claims.

    Base `Sklearn`: nuisances by estimators on all rows, not protected, as printed; the AIPW mean is
    taken over the same rows (the paper does not cross-fit). Base "gam" or "linear": the paper's
    remark in section 4.2, private nuisances on one half of the rows, its noise on the other. (The
    paper gives them half of epsilon_1; here they have all of epsilon at no extra cost, since the
    halves are disjoint.)

    An (epsilon, delta) mechanism is dominated by one that fails with probability delta and is else
    epsilon-private (Kairouz, Oh and Viswanath 2015), so both stages are charged in epsilon and
    delta, and their sums are a valid total.
    """

    name: ClassVar[str] = "published"
    title: ClassVar[str] = "PrivATE as published"

    def needs(self, request: Request, base: PrivateBase) -> list[StageWeight]:
        """Releases of the private nuisances, on their half."""
        return private_needs(request, released_weights=base.released_weights)

    def plan(self, request: Request, base: AnyBase, undeclared: Undeclared) -> Plan:
        """Stages priced in epsilon and delta; for private nuisances, more of them beside.

        Raises
        ------
        CapabilityError, SchemaError, BudgetError
            The theorems, or this base, do not cover what is asked.
        """
        _check_request(request, undeclared)
        if isinstance(base, Sklearn):
            noisy = _priced(request, 1.0)
            return Plan(request, self.name, base.name, noisy, 0, max(map(least_rows, noisy)))
        base, noisy = moment_base(base), _priced(request, 0.5)
        nuisances, cap = on_one_half(request, self.needs(request, base))
        least = 2 * max(map(least_rows, noisy))
        return Plan(request, self.name, base.name, (*nuisances, *noisy), cap, least)

    def fit(
        self, plan: Plan, vault: Vault, schema: Schema, undeclared: Undeclared, base: AnyBase
    ) -> Estimate:
        if isinstance(base, Sklearn):
            return _by_estimators(plan, vault, schema, base)
        return self.run(Session(plan, vault, schema, undeclared, moment_base(base)))

    def run(self, session: Session) -> Estimate:
        """Private nuisances on one half, the paper's noise on the other."""
        state, partials, nuisance = private_nuisance(session, linear_terms=False)
        starts = starting_points(state.design)
        order = PublishedAte(nuisance, state.design, state.outcome, state.clip, starts)
        found = _averages(session.vault, order, session.releases)
        return finish(state, None, shown(partials, (nuisance,)), found)

    @classmethod
    def describe(cls, estimate: Estimate) -> Description:
        return replace(
            super().describe(estimate),
            rows=published_rows(estimate),
            methods=_methods(estimate.plan),
            notes=(ONE_VARIANCE,),
            claim=f"is what {SOURCE} claim of this mechanism",
            doubts=(HALVED if has_private_nuisances(estimate.plan) else UNPROTECTED, WIDTH),
        )


SOURCE = "Schroeder et al. (2025, Theorems 4.3, 4.5 and 4.6)"

HALVED = (
    "The nuisances come from one half of the rows and are private, which is proven; on the "
    "other half the claim rests on the largest influence of a row, which a local search "
    "finds and nothing bounds."
)

UNPROTECTED = (
    "It rests on nuisances that one row does not move (their Lemma 4.2). Nuisances estimated "
    "on the rows, as here, break it: there are tables that differ in one row whose estimates "
    "lie so far apart that the real epsilon is in the tens where 1 is claimed."
)

WIDTH = (
    "The width of the interval depends on the rows too: it holds the largest influence "
    "that a row could have under this very estimate, without noise of its own."
)

ONE_VARIANCE = (
    "Sampling and privacy noise are one variance here. Their parts would tell the noise scale, "
    "which depends on the rows."
)


def _methods(plan: Plan) -> tuple[str, ...]:
    request = plan.request
    where = (
        "private nuisances from the other half of the rows"
        if has_private_nuisances(plan)
        else "nuisances by scikit-learn estimators fitted on the same rows, without cross-fitting"
    )
    clip = request.arm_clip
    cut = (
        f"The propensity is known to be {request.propensity:g}."
        if isinstance(request.propensity, float | int)
        else f"Propensities are cut to [{clip:.2f}, {1 - clip:.2f}]."
    )
    return (
        f"PrivATE as printed by {SOURCE}: the mean of AIPW scores with {where}. To the mean and to "
        "the mean squared deviation noise was added (OpenDP's discrete Gaussian on a fine grid) of "
        "standard deviation 5 sqrt(2 ln(n) ln(2/delta)) / (epsilon n) times the gross error "
        "sensitivity: the largest influence over the declared domain that L-BFGS-B finds from "
        "points that fill the domain and its corners. The variance adds that of the "
        "noise (their Eq. 16).",
        f"{cut} Outcome, outcome means and covariates are cut to the outcome's and their own "
        "bounds.",
        LEFT_OUT,
    )


def _by_estimators(plan: Plan, vault: Vault, schema: Schema, base: Sklearn) -> Estimate:
    """Nuisances by the user's estimators on all rows; none of them is released."""
    request = plan.request
    design = Design(request.formula.terms, schema, full_rank=False)
    vault.set_layout(schema, [design], ())
    order = PublishedAte(
        Estimators(base.propensity, base.outcome, declared_propensity(request, schema)),
        design,
        outcome_of(request, schema),
        request.arm_clip,
        starting_points(design),
    )
    releases: list[Release] = []
    found = _averages(vault, order, releases)
    nobody = Population(schema, {}, np.eye(0), found.size)  # no marginals were released
    return Estimate(
        plan, schema, design, nobody, None, None, found, tuple(releases), vault.size,
        vault.real_noise,
    )  # fmt: skip


def _averages(vault: Vault, order: PublishedAte, releases: list[Release]) -> AverageEstimate:
    """The two releases as an estimate with its variance.

    The variance is one number: its parts, sampling and privacy, would tell gamma exactly.
    """
    effect, error = vault.release_published(EFFECT, VARIANCE, order)
    releases += [effect, error]
    return AverageEstimate(
        ("ATE",), (), effect.value, error.value[None], np.full((1, 1), 0.0), np.zeros(1),
        np.zeros(1), float(vault.size or 0),
    )  # fmt: skip


def _priced(request: Request, rows: float) -> tuple[Stage, Stage]:
    """The two stages with their shares of epsilon and delta, which never sum above the whole."""
    stages = []
    part = "all" if rows == 1.0 else "effect"
    for name, share in zip((EFFECT, VARIANCE), _shares(request.budget.shares), strict=True):
        epsilon, delta = (
            math.floor(exact(amount) * exact(share) * PICO)
            for amount in (request.budget.epsilon, request.budget.delta)
        )
        check_epsilon(epsilon / PICO)
        if delta < 1:
            raise BudgetError("delta is too small to be shared: it is counted in units of 1e-12")
        stages.append(Stage(name, 0, delta, 0, rows, part, epsilon))
    return stages[0], stages[1]


def _shares(given: Mapping[str, float]) -> tuple[float, float]:
    """Shares of the effect and of the variance; one of them leaves the rest to the other."""
    for name, share in given.items():
        if name not in SHARES:
            raise BudgetError(f"shares has no {str(name)[:40]!r}; use {', '.join(SHARES)}")
        if not is_number(share) or not 0 < share < 1:
            raise BudgetError(
                f"shares[{name!r}] must be a number strictly between 0 and 1: both the effect and "
                "its variance need a budget"
            )
    if len(given) == 2 and abs(sum(given.values()) - 1) > 1e-9:
        raise BudgetError("shares of effect and variance must sum to 1")
    effect = given.get("effect", 1 - given.get("variance", SHARES["variance"]))
    return effect, given.get("variance", 1 - effect)


def _check_request(request: Request, undeclared: Undeclared) -> None:
    """What the theorems are about, and nothing else."""
    refused = {
        f"estimand={request.estimand!r}": request.estimand != "ATE",
        "neighbors='add_remove'": request.trust.neighbors != "substitute",
        "unit=": request.trust.unit is not None,
        "groups=": bool(request.groups),
        "a column of known propensities": isinstance(request.propensity, str),
    }
    why = "its theorems are about the ATE of tables that differ in one replaced row"
    refuse_published(refused, why)
    refuse_undeclared(undeclared)
