"""What each estimand is called, and what is said of it."""

from __future__ import annotations

from privcausal.learners.nuisances import RESIDUAL_CLIP
from privcausal.spec.request import Request

NAMES = {
    "CATE": "conditional average treatment effect",
    "ATE": "average treatment effect",
    "ATT": "average treatment effect on the treated",
    "ATO": "average treatment effect in the overlap population",
}

TITLES = {
    "CATE": "Private Conditional Average Treatment Effect",
    "ATE": "Private Average Treatment Effect",
    "ATT": "Private Average Treatment Effect on the Treated",
    "ATO": "Private Overlap-Weighted Average Treatment Effect",
}

OVER = {
    "CATE": "On average",
    "ATE": "On average",
    "ATT": "On average over the treated",
    "ATO": "On average over those who might as well have been treated as not (overlap weights)",
}
"""How a sentence about the effect begins."""

METHODS = {
    "CATE": "doubly robust scores",
    "ATE": "doubly robust scores",
    "ATT": "doubly robust scores of the effect on the treated, by the number of treated",
    "ATO": "residual products (T - e)(Y - eta), by (T - e)^2: the effect weighted by e (1 - e)",
}
"""What the averages are ratios of."""

_PLAIN = "Causal reading needs no unmeasured confounding, overlap and no interference."

NOTE = {
    "CATE": _PLAIN,
    "ATE": _PLAIN,
    "ATT": "Causal reading needs no unmeasured confounding, untreated units like each treated one "
    "and no interference.",
    "ATO": "Causal reading needs no unmeasured confounding and no interference; the average is "
    "over the overlap population, each unit counting as e (1 - e).",
}

_OVERLAP = "Overlap: every kind of unit could have been treated and could have been left untreated."

_OVERLAPS = {
    "ATT": "Overlap: every kind of unit among the treated could have been left untreated.",
    "ATO": "Overlap: the average counts units as e (1 - e), so that kinds of units that were "
    "surely treated, or surely not, have no part in it.",
}


def assumptions(request: Request) -> tuple[str, ...]:
    """What a causal reading of the estimand takes for granted."""
    return (
        "No unmeasured confounding: given the listed covariates, who was treated does not depend "
        "on what the outcome would have been.",
        _OVERLAPS.get(request.estimand, _OVERLAP),
        "No interference: one unit's treatment does not change another's outcome.",
        "The outcome lies within its bounds; what lies outside was cut to them.",
    )


def cut(request: Request, clip: float) -> tuple[float, float]:
    """Limits of an estimated propensity in the score: only what it divides by is cut far."""
    soft = min(RESIDUAL_CLIP, clip)
    low = clip if request.estimand in ("CATE", "ATE") else soft
    high = soft if request.estimand == "ATO" else clip
    return low, 1 - high


def propensity(request: Request, clip: float) -> str:
    """What is done about the propensity, in words."""
    if request.propensity is not None:
        column = isinstance(request.propensity, str)
        return f"known, {'column ' if column else ''}{request.propensity}"
    low, high = cut(request, clip)
    return f"clipped to [{share(low)}, {share(high)}]"


def share(value: float) -> str:
    """A limit of a propensity, to two places or as many as it needs."""
    places = 2 if 0.01 <= value <= 0.99 else 4
    return f"{value:.{places}f}"
