"""What results say of DP-CATE's proven release, in sentences."""

from __future__ import annotations

from privcausal.spec.plan import Plan

NAME = "dpcate"

BANDS = (
    "Bands for the effect add the law of its first, additive part to that of the rest, which they "
    "take for a draw of the kernel's Gaussian process whose size was read from released numbers: "
    "they are approximate, and on average over x."
)


def method(plan: Plan) -> str:
    """How the effect was computed."""
    where = "answers at the declared points" if plan.request.queries else "weights on that basis"
    networks = "nuisances by networks (private gradient descent)"
    nuisances = networks if plan.base == "nn" else "private additive nuisances"
    left = "" if plan.base == "nn" else "less a first additive effect (learner 'r') "
    return (
        "DP-CATE (Schroeder et al. 2025, Theorem 3, with the sensitivity put right) with "
        f"{nuisances}. The second stage is a Gaussian-kernel regression of a pseudo-outcome {left}"
        "on a public finite basis, ridge-regularised and with a bounded pull of each row; its "
        f"{where} were released once, with discrete Gaussian noise (OpenDP) for the distance by "
        "which one row can move them. All else was read through sums of bounded row vectors with "
        "noise. Everything after that is post-processing."
    )


# -- as published ----------------------------------------------------------------------------


def finite(plan: Plan) -> bool:
    """Whether the noise is that of Theorem 1, and not a process."""
    return plan.least_rows > 0


def source(plan: Plan) -> str:
    """Who claims it."""
    theorem = "Theorem 1" if finite(plan) else "Theorem 3"
    return f"Schroeder et al. (2025, DP-CATE, {theorem})"


def doubts(plan: Plan) -> tuple[str, ...]:
    """What the claim rests on, and where it is known to fail."""
    nuisances = (
        "The nuisances were fitted on the other half of the rows without any protection, so "
        "nothing at all is claimed for the rows of that half: the theorem asks for private ones."
        if plan.base == "sklearn"
        else "The nuisances come from the other half of the rows and are private, which is proven."
    )
    if finite(plan):
        return (
            nuisances,
            "The noise is scaled by the largest influence of a row on this very fit, which a local "
            "search finds and nothing bounds; that it bounds what replacing a row does is not "
            "shown for fitted second stages.",
        )
    found = (
        nuisances,
        "The noise is too small by a factor (sqrt(2 pi) h)^(q/2) for a bandwidth h above 0.4: the "
        "printed bound (Lemma 1) has the exponent q where its own proof has q/2. The squared loss "
        "has no Lipschitz constant unless the function is bounded.",
    )
    if plan.request.queries is None:
        return (
            *found,
            "The process keeps the effect without noise and all noise drawn so far in memory: "
            "the claim is about answers only, and fails for whoever sees that state.",
        )
    return found


def published_methods(plan: Plan) -> tuple[str, ...]:
    """How it was computed, in paragraphs."""
    where = (
        "scikit-learn estimators fitted on one half of the rows"
        if plan.base == "sklearn"
        else "private nuisances from one half of the rows"
    )
    noise = (
        "independent noise of standard deviation 5 sqrt(2 ln(n) ln(2/delta)) / (epsilon n) times "
        "the gross error sensitivity: the largest influence over the declared domain that L-BFGS-B "
        "finds from ten random starts"
        if finite(plan)
        else "a Gaussian process with the kernel's covariance, drawn point by point given the "
        "noise at the points before (as printed the algorithm conditions on past answers instead)"
    )
    return (
        f"DP-CATE as printed by {source(plan)}: a regression of the pseudo-outcome on the other "
        f"half of the rows, with {where}. To the effects at the queries was added {noise} "
        "(OpenDP's discrete Gaussian on a fine grid).",
        "Rows with a missing value were left out; how many there were is not shown.",
    )


PUBLISHED_NOTE = "The effects have no standard errors: the noise scale depends on the rows."
