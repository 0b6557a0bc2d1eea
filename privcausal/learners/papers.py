"""What the published mechanisms (``mode="paper"``) share: refusals, and nuisances on one half."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from privcausal.accounting import rho_of
from privcausal.errors import CapabilityError, SchemaError
from privcausal.learners.ground import Ground, Session, gram_of, lay
from privcausal.learners.needs import Need, Undeclared
from privcausal.learners.nuisances import Partial, nuisance_of, partial, residual_effect
from privcausal.learners.private import MOMENTS, WEIGHTS
from privcausal.spec.functions import Nuisance
from privcausal.spec.plan import Stage, portions
from privcausal.spec.request import Request


def refuse(asked: Mapping[str, bool], why: str) -> None:
    """Refuse the first option that was asked for; `why` it is outside the published theorems."""
    for what, is_asked in asked.items():
        if is_asked:
            raise CapabilityError(f"mode='paper' does not take {what}: {why}. mode='proven' does")


def refuse_undeclared(undeclared: Undeclared) -> None:
    if undeclared:
        names = ", ".join(map(repr, (*undeclared.numbers, *undeclared.labels)))
        raise SchemaError(
            f"mode='paper' buys no bounds: declare those of {names}, such as "
            "bounds={'age': (18, 95), 'ward': ['a', 'b']}"
        )


def nuisance_needs(request: Request, *, released_weights: bool = False) -> list[Need]:
    """Releases of private nuisances from moments."""
    needs = [
        Need("nuisance: marginals", 0.08, "nuisance"),
        Need("nuisance: moments", 0.10, "nuisance"),
        Need("nuisance: outcome", 0.45, "nuisance"),
        Need(MOMENTS, 0.06, "nuisance"),
    ]
    if request.propensity is None:
        needs.append(Need("nuisance: treatment", 0.31, "nuisance"))
    if released_weights:
        needs.append(Need(WEIGHTS, 0.04, "nuisance"))
    return needs


def private_nuisance(
    session: Session, *, linear_terms: bool = True
) -> tuple[Ground, tuple[Partial, ...], Nuisance]:
    """e, mu_0 and mu_1 from the releases of `nuisance_needs`."""
    ground, grams = gram_of(lay(session, linear_terms=linear_terms))
    partials = partial(ground, grams)
    weights = WEIGHTS if session.plan.has(WEIGHTS) else None
    tau = residual_effect(ground, grams, partials, moments=MOMENTS, weights=weights)
    return ground, partials, nuisance_of(partials[0], tau, ground.outcome)


def on_one_half(request: Request, needs: Sequence[Need]) -> tuple[tuple[Stage, ...], int]:
    """Stages of the nuisances' half, and the rho they share.

    They are in parallel with the other half, which pays (epsilon, delta): charged nothing more.
    """
    cap = rho_of(request.budget.epsilon, request.budget.delta)
    amounts = portions(cap, [need.weight for need in needs])
    stages = tuple(
        Stage(need.name, amount, charged=0, rows=0.5, part="nuisance")
        for need, amount in zip(needs, amounts, strict=True)
    )
    return stages, cap
