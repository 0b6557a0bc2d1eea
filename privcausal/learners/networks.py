"""Base "nn": nuisances by networks learned with differentially private gradient descent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from privcausal.accounting import PICO, delta_after, multiplier_for_replaced, rho_of
from privcausal.accounting.charge import exact
from privcausal.errors import BudgetError, CapabilityError
from privcausal.inference.effect import Effect
from privcausal.learners.ground import Ground
from privcausal.learners.kernels import NN
from privcausal.learners.needs import Need, Undeclared
from privcausal.learners.nuisances import RESIDUAL_CLIP, Partial
from privcausal.spec.features import Rows
from privcausal.spec.functions import Difference, Function, Mixture, Nuisance
from privcausal.spec.networks import Network, size
from privcausal.spec.plan import Plan, Stage, portions
from privcausal.spec.request import Request
from privcausal.typing import Vector
from privcausal.vault import PrivateNetwork, Treatment

BATCH, RATE = 128, 0.01
"""Rows of a step, on average, and Adam's step size (Schroeder et al. 2025, supplement G.3)."""

PROPENSITY, OUTCOME = "nuisance: network of the treatment", "nuisance: network of the outcome"
SHARE = 0.5
"""Of epsilon, and of delta, for the networks where all stages read all rows."""


def check(request: Request, undeclared: Undeclared) -> None:
    """What the networks cannot do.

    Raises
    ------
    CapabilityError
    """
    refused = {
        "neighbors='add_remove'": request.trust.neighbors != "substitute",
        "unit=": request.trust.unit is not None,
        f"split={request.split!r}": request.split != "full" and request.mode != "paper",
        "shares=": bool(request.budget.shares),
        "bounds to be bought": bool(undeclared),
        "groups=": bool(request.groups),
    }
    for what, asked in refused.items():
        if asked:
            raise CapabilityError(f"base='nn' does not take {what}; base='kernel' may")


def plan(request: Request, learner: str, needs: list[Need], undeclared: Undeclared) -> Plan:
    """Networks priced in (epsilon, delta), the other stages in rho; all rows, so both add up."""
    check(request, undeclared)
    networks = stages(request)
    spent, failing = (sum(getattr(n, of) for n in networks) for of in ("epsilon", "delta"))
    rest = float(exact(request.budget.epsilon) - Fraction(spent, PICO))
    cap = rho_of(rest * (1 - 1e-12), delta_after(request.budget.delta, failing))
    amounts = portions(cap, [need.weight for need in needs])
    first, *others = [Stage(n.name, a) for n, a in zip(needs, amounts, strict=True)]
    return Plan(request, learner, NN.name, (first, *networks, *others), cap)


def stages(request: Request, *, rows: float = 1.0, part: str = "all") -> list[Stage]:
    """The networks', with their share of epsilon and delta."""
    names = [OUTCOME] if request.propensity is not None else [PROPENSITY, OUTCOME]
    each, failing = (
        math.floor(exact(amount) * exact(SHARE) * PICO) // len(names)
        for amount in (request.budget.epsilon, request.budget.delta)
    )
    if each < 1 or failing < 1:
        raise BudgetError("eps or delta is too small to be shared: they are counted in 1e-12")
    return [Stage(name, 0, failing, 0, rows, part, each) for name in names]


@dataclass(frozen=True, eq=False)
class Learned:
    """What the second stage needs of nuisances."""

    partial: Partial
    nuisance: Nuisance
    pilot: Effect


@dataclass(frozen=True, eq=False)
class ArmDifference(Effect):
    """mu1 - mu0 as an effect, cut to its reach."""

    difference: Function

    def __call__(self, rows: Rows) -> Vector:
        return np.clip(self.difference(rows), -self.reach, self.reach)


def learn(ground: Ground, base: NN) -> Learned:
    """Train the networks on the rows of their stages; their weights are released."""
    outcome, design = ground.outcome, ground.design
    soft, clip = min(RESIDUAL_CLIP, ground.clip), ground.clip
    e: Function
    if ground.known is None:
        treated = _weights(ground, base, PROPENSITY)
        e = Network(design, treated, clip, 1 - clip, share=True)
        e_soft: Function = Network(design, treated, soft, 1 - soft, share=True)
    else:
        e = e_soft = ground.known
    low, high, half = outcome.lo, outcome.hi, outcome.bound
    weights = _weights(ground, base, OUTCOME)
    mu0, mu1 = (
        Network(design, weights, low, high, 0.5 * (low + high), half, arm) for arm in (0.0, 1.0)
    )
    part = Partial(e, e_soft, Mixture(e_soft, mu1, mu0), None)
    return Learned(part, Nuisance(e, mu0, mu1), ArmDifference((), 2 * half, Difference(mu1, mu0)))


def _weights(ground: Ground, base: NN, stage: str) -> Vector:
    session = ground.session
    planned, treatment = session.plan.stage(stage), stage == PROPENSITY
    assert session.vault.size is not None  # by `check`
    rows = max(math.floor(planned.rows * session.vault.size), 1)
    rate = min(1.0, BATCH / rows)
    steps = math.ceil(base.epochs / rate)
    sd = multiplier_for_replaced(
        planned.epsilon / PICO,
        planned.delta / PICO,
        rate,
        steps,
        size(len(ground.design) + (not treatment)),
        PrivateNetwork.grid,
    )
    order = PrivateNetwork(
        ground.design,
        Treatment() if treatment else ground.outcome,
        treatment,
        not treatment,
        steps,
        rate,
        rate * rows,
        RATE,
        sd,
        "treatment" if treatment else "outcome",
    )
    release = session.vault.release_network(stage, order)
    session.releases.append(release)
    return release.value
