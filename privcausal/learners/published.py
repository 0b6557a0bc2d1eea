"""PrivATE as its paper prints it (Schroeder et al. 2025): ``private(..., mode="paper")``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privcausal.accounting import PICO, Release
from privcausal.accounting.charge import exact, is_number
from privcausal.accounting.conversion import check_epsilon
from privcausal.errors import BudgetError, CapabilityError
from privcausal.inference.average import AverageEstimate
from privcausal.inference.population import Population
from privcausal.learners.base import Learner, finish, shown
from privcausal.learners.bases import AnyBase, PrivateBase, moment_base
from privcausal.learners.estimate import Estimate
from privcausal.learners.estimators import Sklearn
from privcausal.learners.ground import Session
from privcausal.learners.needs import Need, Undeclared
from privcausal.learners.papers import (
    nuisance_needs,
    on_one_half,
    private_nuisance,
    refuse,
    refuse_undeclared,
)
from privcausal.spec.features import Design
from privcausal.spec.functions import Constant
from privcausal.spec.plan import Plan, Stage
from privcausal.spec.request import Request
from privcausal.spec.schema import Interval, Schema
from privcausal.typing import Matrix
from privcausal.vault import Estimators, Outcome, PublishedAte, Vault

EFFECT, VARIANCE = "effect: AIPW mean", "variance: squared error"

SHARES = {"effect": 0.5, "variance": 0.5}
"""Of epsilon and of delta: eps_1 = eps_2 and delta_1 = delta_2 (supplement C.2)."""

STARTS = 10
"""Random starting points of the search for gamma (supplement C.2)."""

_PUBLIC_SEED = 20_250_521  # starting points of an optimiser, not noise; they are public

HALVES = "base='gam', split='disjoint'"


@dataclass(frozen=True)
class Published(Learner):
    """PrivATE's Theorems 4.3, 4.5 and 4.6, with the guarantee that the paper claims.

    Base `Sklearn`: nuisances by estimators on all rows, not protected, as printed; the AIPW mean is
    taken over the same rows (the paper does not cross-fit). Base "gam" or "linear" with
    ``split="disjoint"``: the paper's remark in section 4.2, private nuisances on one half of the
    rows (the paper gives them half of epsilon_1; here they have all of epsilon, which costs nothing
    more, since the halves are disjoint), its noise on the other.

    An (epsilon, delta) mechanism is dominated by one that fails with probability delta and is else
    epsilon-private (Kairouz, Oh and Viswanath 2015), so both stages are charged in epsilon and
    delta, and their sums are a valid total.
    """

    name: ClassVar[str] = "published"

    def needs(self, request: Request, base: PrivateBase) -> list[Need]:
        """Releases of the private nuisances, on their half."""
        return nuisance_needs(request, released_weights=base.released_weights)

    def plan(self, request: Request, base: AnyBase, undeclared: Undeclared) -> Plan:
        """Stages priced in epsilon and delta; for private nuisances, more of them beside.

        Raises
        ------
        CapabilityError, SchemaError, BudgetError
            The theorems, or this base, do not cover what is asked.
        """
        _check_request(request, undeclared)
        if isinstance(base, Sklearn):
            return self._on_all_rows(request, base)
        return self._on_halves(request, moment_base(base))

    def _on_all_rows(self, request: Request, base: Sklearn) -> Plan:
        if request.split != "full":
            raise CapabilityError(
                "mode='paper' with base Sklearn(...) reads all rows for nuisances and effect, as "
                f"the paper does: leave split out, or write {HALVES} for private nuisances"
            )
        noisy = _priced(request, 1.0)
        return Plan(request, self.name, base.name, noisy, 0, max(map(least_rows, noisy)))

    def _on_halves(self, request: Request, base: PrivateBase) -> Plan:
        if request.split != "disjoint":
            raise CapabilityError(
                "mode='paper' takes estimators of your own, base=pc.bases.Sklearn.kernel(), or "
                f"private nuisances on half of the rows: {HALVES}"
            )
        noisy = _priced(request, 0.5)
        least = 2 * max(map(least_rows, noisy))
        nuisances, cap = on_one_half(request, self.needs(request, base))
        return Plan(request, self.name, base.name, (*nuisances, *noisy), cap, least)

    def fit(
        self, plan: Plan, vault: Vault, schema: Schema, undeclared: Undeclared, base: AnyBase
    ) -> Estimate:
        if isinstance(base, Sklearn):
            return _by_estimators(plan, vault, schema, base)
        return self.run(Session(plan, vault, schema, undeclared, moment_base(base)))

    def run(self, session: Session) -> Estimate:
        """Private nuisances on one half, the paper's noise on the other."""
        ground, partials, nuisance = private_nuisance(session, linear_terms=False)
        order = PublishedAte(
            nuisance, ground.design, ground.outcome, ground.clip, _starts(ground.design)
        )
        found = _averages(session.vault, order, session.releases)
        return finish(ground, None, shown(partials, (nuisance,)), found)


def _by_estimators(plan: Plan, vault: Vault, schema: Schema, base: Sklearn) -> Estimate:
    """Nuisances by the user's estimators on all rows; none of them is released."""
    request = plan.request
    design = Design(request.formula.terms, schema, full_rank=False)
    vault.arrange(schema, [design], ())
    domain = schema[request.formula.outcome]
    outcome = Outcome(domain.lo, domain.hi) if isinstance(domain, Interval) else Outcome(0.0, 1.0)
    known = None if request.propensity is None else Constant(float(request.propensity))
    order = PublishedAte(
        Estimators(base.propensity, base.outcome, known),
        design,
        outcome,
        request.arm_clip,
        _starts(design),
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


def _starts(design: Design) -> Matrix:
    return np.random.default_rng(_PUBLIC_SEED).random((STARTS, len(design.variables)))


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
            raise BudgetError(
                f"shares has no {str(name)[:40]!r} in mode='paper'; use {', '.join(SHARES)}"
            )
        if not is_number(share) or not 0 < share < 1:
            raise BudgetError(
                f"shares[{name!r}] must be a number strictly between 0 and 1: both the effect and "
                "its variance need a budget"
            )
    if len(given) == 2 and abs(sum(given.values()) - 1) > 1e-9:
        raise BudgetError("shares of effect and variance must sum to 1")
    if len(given) == 1:
        ((name, share),) = given.items()
        return (share, 1 - share) if name == "effect" else (1 - share, share)
    shares = {**SHARES, **given}
    return shares["effect"], shares["variance"]


def least_rows(stage: Stage) -> int:
    """max(55, 8 (1 + 2 ln(2/delta)) / epsilon), for the stage's own epsilon and delta.

    Below e^4 rows, or where this beta of Nissim et al. (2007) is passed, gamma sqrt(ln n) / n is
    not a smooth upper bound of the local sensitivity of a mean of fixed scores.
    """
    epsilon, delta = stage.epsilon / PICO, stage.delta / PICO
    return max(55, math.ceil(8 * (1 + 2 * math.log(2 / delta)) / epsilon))


def _check_request(request: Request, undeclared: Undeclared) -> None:
    """What the theorems are about, and nothing else."""
    refused = {
        f"estimand={request.estimand!r}": request.estimand != "ATE",
        "neighbors='add_remove'": request.trust.neighbors != "substitute",
        "unit=": request.trust.unit is not None,
        "groups=": bool(request.groups),
        "a column of known propensities": isinstance(request.propensity, str),
    }
    refuse(
        refused,
        "its theorems are about the ATE of tables that differ in one replaced row",
    )
    refuse_undeclared(undeclared)
