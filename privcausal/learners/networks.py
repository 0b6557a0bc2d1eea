"""Base "nn": nuisances by networks learned with differentially private gradient descent."""

from __future__ import annotations

import importlib.util
import math
import warnings
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from privcausal.accounting import PICO, delta_after, rho_of
from privcausal.accounting.charge import exact
from privcausal.errors import BudgetError, CapabilityError
from privcausal.inference.effect import Effect
from privcausal.learners.ground import Ground
from privcausal.learners.kernels import NN
from privcausal.learners.needs import Need, Undeclared
from privcausal.learners.nuisances import RESIDUAL_CLIP, Partial
from privcausal.spec.features import Rows
from privcausal.spec.functions import Difference, Function, Mixture, Nuisance
from privcausal.spec.networks import Network
from privcausal.spec.plan import Plan, Stage, portions
from privcausal.spec.request import Request
from privcausal.typing import Vector
from privcausal.vault import PrivateNetwork, Treatment

BATCH, RATE = 128, 0.01
"""Rows of a step, on average, and Adam's step size (Schroeder et al. 2025, supplement G.3)."""

PROPENSITY, OUTCOME = "nuisance: network of the treatment", "nuisance: network of the outcome"
ORDERS = [*(1 + k / 10 for k in range(1, 100)), *range(12, 64), *(2**k for k in range(6, 13))]
"""Orders of the Renyi divergences; opacus' own end at 63, which a small epsilon passes."""

MARGIN = 1.01
"""On the noise. Gradients come out of products of whole matrices, whose last bits may depend on
which other rows are in the step: where one of them lies at a tie of the grid of 2^-16, it moves by
a grid step. This pays for 655 such moves of one coordinate, by one row, in every step."""

SHARE = 0.5
"""Of epsilon, and of delta, for the networks where all stages read all rows."""


def check(request: Request, undeclared: Undeclared) -> None:
    """What the networks cannot do, and what has to be installed.

    Raises
    ------
    CapabilityError
    """
    missing = [m for m in ("torch", "opacus") if importlib.util.find_spec(m) is None]
    if missing:
        raise CapabilityError(
            f"base='nn' needs {' and '.join(missing)}: pip install 'privcausal[nn]'"
        )
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
    size = max(math.floor(planned.rows * session.vault.size), 1)
    rate = min(1.0, BATCH / size)
    steps = math.ceil(base.epochs / rate)
    order = PrivateNetwork(
        ground.design,
        Treatment() if treatment else ground.outcome,
        treatment,
        not treatment,
        steps,
        rate,
        rate * size,
        RATE,
        multiplier(planned.epsilon / PICO, planned.delta / PICO, rate, steps),
        "treatment" if treatment else "outcome",
    )
    release = session.vault.release_network(stage, order)
    session.releases.append(release)
    return release.value


def multiplier(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """Noise sd per clipping norm for (epsilon, delta) when one row is *replaced*.

    Opacus counts a row added or removed; a replaced one is both, so with eps0 = epsilon / 2 and
    delta0 = delta / (1 + e^eps0) group privacy gives (epsilon, delta).

    Raises
    ------
    BudgetError
        No noise that opacus considers is enough.
    """
    from opacus.accountants.utils import get_noise_multiplier

    half = 0.5 * epsilon
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the orders of the divergences
            found = get_noise_multiplier(
                target_epsilon=half,
                target_delta=delta / (1 + math.exp(half)),
                sample_rate=rate,
                steps=steps,
                accountant="rdp",
                alphas=ORDERS,
            )
    except ValueError:
        raise BudgetError(
            "eps is too small for base='nn': no noise is enough. base='kernel' takes it"
        ) from None
    return float(found) * MARGIN
