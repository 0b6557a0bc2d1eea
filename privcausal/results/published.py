"""What results say of ``mode="paper"``: a claim and where it fails, in sentences."""

from __future__ import annotations

from privcausal.results import dpcate, meta, tm
from privcausal.spec.plan import Plan

SOURCE = "Schroeder et al. (2025, Theorems 4.3, 4.5 and 4.6)"


def claim(plan: Plan, change: str) -> str:
    """What the paper claims of two tables that `change`."""
    if meta.is_meta(plan):
        return meta.claim(plan, change)
    if plan.learner == tm.NAME:
        return tm.claim(plan, change)
    budget = plan.request.budget
    source = dpcate.source(plan) if plan.learner == dpcate.NAME else SOURCE
    return (
        f"({budget.epsilon:g}, {budget.delta:g})-differential privacy for two tables that {change} "
        f"is what {source} claim of this mechanism; it is published, not proven."
    )


def doubts(plan: Plan, size: int | None) -> tuple[str, ...]:
    """What the claim rests on, and where it is known to fail."""
    if meta.is_meta(plan):
        return meta.doubts(plan)
    if plan.learner == tm.NAME:
        return tm.DOUBTS
    found = [_on_nuisances(plan)]
    if plan.learner == dpcate.NAME:
        found = list(dpcate.doubts(plan))
    else:
        found.append(
            "The width of the interval depends on the rows too: it holds the largest influence "
            "that a row could have under this very estimate, without noise of its own."
        )
    if size is not None and size < plan.least_rows:
        found.append(
            f"BELOW THE MINIMUM: with fewer than {plan.least_rows} rows the claim fails even for "
            "nuisances known beforehand."
        )
    elif plan.least_rows:
        found.append(
            f"The minimum of {plan.least_rows} rows was checked on all rows, complete or not: how "
            "many are complete is private, and the claim needs that many of them."
        )
    return tuple(found)


def _on_nuisances(plan: Plan) -> str:
    if private_nuisances(plan):
        return (
            "The nuisances come from one half of the rows and are private, which is proven; on the "
            "other half the claim rests on the largest influence of a row, which a local search "
            "finds and nothing bounds."
        )
    return (
        "It rests on nuisances that one row does not move (their Lemma 4.2). Nuisances estimated "
        "on the rows, as here, break it: there are tables that differ in one row whose estimates "
        "lie so far apart that the real epsilon is in the tens where 1 is claimed."
    )


def private_nuisances(plan: Plan) -> bool:
    return plan.request.split == "disjoint" and plan.base != "sklearn"


def methods(plan: Plan) -> tuple[str, ...]:
    """How it was computed, in paragraphs."""
    if meta.is_meta(plan):
        return meta.methods(plan)
    if plan.learner == tm.NAME:
        return tm.METHODS
    if plan.learner == dpcate.NAME:
        return dpcate.published_methods(plan)
    request = plan.request
    where = (
        "private nuisances from the other half of the rows"
        if private_nuisances(plan)
        else "nuisances by scikit-learn estimators fitted on the same rows, without cross-fitting"
    )
    clip = request.arm_clip
    cut = (
        f"The propensity is known to be {request.propensity:g}."
        if request.propensity is not None
        else f"Propensities are cut to [{clip:.2f}, {1 - clip:.2f}]."
    )
    return (
        f"PrivATE as printed by {SOURCE}: the mean of AIPW scores with {where}. To the mean and to "
        "the mean squared deviation noise was added (OpenDP's discrete Gaussian on a fine grid) of "
        "standard deviation 5 sqrt(2 ln(n) ln(2/delta)) / (epsilon n) times the gross error "
        "sensitivity: the largest influence over the declared domain that L-BFGS-B finds from ten "
        "random starts. The variance adds that of the noise (their Eq. 16).",
        f"{cut} Outcome, outcome means and covariates are cut to the outcome's and their own "
        "bounds.",
        "Rows with a missing value were left out; how many there were is not shown.",
    )


def note(plan: Plan) -> str:
    """What is not told of the errors, and why."""
    own = {dpcate.NAME: dpcate.PUBLISHED_NOTE, tm.NAME: tm.NOTE}
    return own.get(plan.learner, NOTE)


NOTE = (
    "Sampling and privacy noise are one variance here: their parts would tell the noise scale, "
    "which depends on the rows."
)
