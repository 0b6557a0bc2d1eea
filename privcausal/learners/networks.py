"""Base "nn": nuisances by networks learned with differentially private gradient descent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from privcausal.accounting import PICO, delta_after, multiplier_for_replaced, rho_of
from privcausal.accounting.charge import exact
from privcausal.errors import BudgetError
from privcausal.features.design import Design
from privcausal.features.functions import Difference, Function, Mixture, Nuisance
from privcausal.features.networks import Network, size
from privcausal.features.rows import Rows
from privcausal.inference.effect import Effect
from privcausal.inference.priors import PRIORS
from privcausal.learners.budget import StageWeight, Undeclared
from privcausal.learners.nuisances import FoldNuisances
from privcausal.learners.options import NN, refuse
from privcausal.learners.state import Session, declared_propensity, outcome_of
from privcausal.request.plan import Plan, Stage, StageKey, portions
from privcausal.request.request import Request
from privcausal.stored import stored
from privcausal.typing import Vector
from privcausal.vault import PrivateNetwork, Transform, Treatment

BATCH, RATE = 128, 0.01
"""Rows of a step, on average, and Adam's step size (Schroeder et al. 2025, supplement G.3)."""

PROPENSITY = StageKey("nuisance", "network of the treatment")
OUTCOME = StageKey("nuisance", "network of the outcome")
SHARE = 0.5
"""Of epsilon, and of delta, for the networks where all stages read all rows."""


def check_networks(request: Request, undeclared: Undeclared) -> None:
    """Refuse what the networks cannot do.

    Raises
    ------
    CapabilityError
    """
    asked = {
        "neighbors='add_remove'": request.trust.neighbors != "substitute",
        "unit=": request.trust.unit is not None,
        f"split={request.split!r}": request.split != "full" and request.mode != "paper",
        "shares=": bool(request.budget.shares),
        "bounds to be bought": bool(undeclared),
        "groups=": bool(request.groups),
    }
    refuse(asked, "base='nn' does not take {}; base='kernel' may")


def network_plan(
    request: Request, learner: str, needs: Sequence[StageWeight], undeclared: Undeclared
) -> Plan:
    """Networks priced in (epsilon, delta), the other stages in rho; all rows, so both add up."""
    check_networks(request, undeclared)
    networks = network_stages(request)
    spent, failing = (sum(getattr(n, of) for n in networks) for of in ("epsilon", "delta"))
    rest = float(exact(request.budget.epsilon) - Fraction(spent, PICO))
    cap = rho_of(rest * (1 - 1e-12), delta_after(request.budget.delta, failing), gdp=True)
    amounts = portions(cap, [need.weight for need in needs])
    first, *others = [Stage(n.key, a) for n, a in zip(needs, amounts, strict=True)]
    return Plan(request, learner, NN.name, (first, *networks, *others), cap, gdp=True)


def network_stages(request: Request, *, own_half: bool = False) -> list[Stage]:
    """Those of the networks, with their share of epsilon and delta.

    On a half of their own they have all of both: (epsilon / 2, delta / 2) each where there are two
    (Schroeder et al. 2025, Theorem 1).
    """
    names = [OUTCOME] if request.propensity is not None else [PROPENSITY, OUTCOME]
    share = Fraction(1) if own_half else exact(SHARE)
    each, failing = (
        math.floor(exact(amount) * share * PICO) // len(names)
        for amount in (request.budget.epsilon, request.budget.delta)
    )
    if each < 1 or failing < 1:
        raise BudgetError("eps or delta is too small to be shared: they are counted in 1e-12")
    rows, part = (0.5, "nuisance") if own_half else (1.0, "all")
    return [Stage(name, 0, failing, 0, rows, part, each, own_half) for name in names]


@stored
@dataclass(frozen=True, eq=False)
class ArmDifference(Effect):
    """mu1 - mu0 as an effect, cut to its reach."""

    difference: Function

    def __call__(self, rows: Rows) -> Vector:
        return np.clip(self.difference(rows), -self.reach, self.reach)


def learn_networks(
    session: Session, design: Design, clip: float, base: NN
) -> tuple[FoldNuisances, Nuisance, Effect]:
    """Train the networks on the rows of their stages; their weights are released.

    The last is the effect that they have, mu1 - mu0.
    """
    request, schema = session.plan.request, session.schema
    outcome, known = outcome_of(request, schema), declared_propensity(request, schema)
    soft = min(PRIORS.residual_clip, clip)
    e: Function
    e_soft: Function
    if known is None:
        treated = _weights(session, design, base, PROPENSITY, Treatment(), by_arm=False)
        e = Network(design, treated, clip, 1 - clip, share=True)
        e_soft = Network(design, treated, soft, 1 - soft, share=True)
    else:
        e = e_soft = known
    low, high, half = outcome.lo, outcome.hi, outcome.bound
    means = _weights(session, design, base, OUTCOME, outcome, by_arm=True)
    mu0, mu1 = (
        Network(design, means, low, high, 0.5 * (low + high), half, arm) for arm in (0.0, 1.0)
    )
    part = FoldNuisances(e, e_soft, Mixture(e_soft, mu1, mu0), None)
    pilot = ArmDifference((), 2 * half, Difference(mu1, mu0))
    return part, Nuisance(e, mu0, mu1), pilot


def _weights(
    session: Session, design: Design, base: NN, stage: StageKey, target: Transform, *, by_arm: bool
) -> Vector:
    """Of the network that learns this target; `by_arm` from the treatment too."""
    planned = session.plan.stage(stage)
    assert session.vault.size is not None  # by `check_networks`
    rows = max(math.floor(planned.rows * session.vault.size), 1)
    rate = min(1.0, BATCH / rows)
    steps = math.ceil(base.epochs / rate)
    sd = multiplier_for_replaced(
        planned.epsilon / PICO,
        planned.delta / PICO,
        rate,
        steps,
        size(len(design) + by_arm),
        PrivateNetwork.grid,
    )
    what = "outcome" if by_arm else "treatment"
    order = PrivateNetwork(
        design, target, not by_arm, by_arm, steps, rate, rate * rows, RATE, sd, what
    )
    return session.release(stage, order).value
