"""What results say of DP-CATE's proven release, in sentences."""

from __future__ import annotations

from privcausal.spec.plan import Plan

NAME = "dpcate"

BANDS = (
    "Bands for the effect take it for a draw of the kernel's Gaussian process whose size was read "
    "from released numbers: they are approximate, and on average over x."
)


def method(plan: Plan) -> str:
    """How the effect was computed."""
    where = "answers at the declared points" if plan.request.queries else "weights on that basis"
    return (
        "DP-CATE (Schroeder et al. 2025, Theorem 3, with the sensitivity put right) with private "
        "additive nuisances. The second stage is a Gaussian-kernel regression of the pseudo-outcome "
        "on a public finite basis, ridge-regularised and with a bounded pull of each row; its "
        f"{where} were released once, with discrete Gaussian noise (OpenDP) for the distance by "
        "which one row can move them. All else was read through sums of bounded row vectors with "
        "noise. Everything after that is post-processing."
    )
