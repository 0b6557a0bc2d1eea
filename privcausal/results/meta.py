"""What results say of Algorithm 1 of Niu et al. (2022): what it rests on, and what leaks."""

from __future__ import annotations

from privcausal.spec.plan import Plan

SOURCE = "Niu et al. (2022, Theorem 6)"

INTERPRET = (
    "The stages are interpret's DP-EBM, whose guarantee does not hold: its regressor never cuts "
    "residuals and starts from the outcome itself, so that outcomes far from zero tell of one row "
    "(an audit of one round gives at least 5.3 on [99, 100] where 1 is claimed); bounds of columns "
    "and outcome are taken from the rows; the number of rows and the largest weight show exactly; "
    "sums of floats and noise are not put on a grid."
)

DECLARED = (
    "The stages are estimators of the user's own: that each satisfies what it declares was not "
    "checked, nor was that what it has learned gives each row's number from that row alone. What "
    "was: each saw rows of its own, in a part drawn without regard to any value."
)

OWN = (
    "So is the transform, a function of the user's own: that it gives each row's target from that "
    "row alone was declared, not checked."
)

BUILT_IN = "Targets come from each row and what earlier stages give for it."


def is_meta(plan: Plan) -> bool:
    return plan.trade_off is not None


def claim(plan: Plan, change: str) -> str:
    """What the stages declare together of two tables that `change`."""
    budget = plan.request.budget
    return (
        f"({budget.epsilon:g}, {budget.delta:g})-differential privacy for two tables that {change} "
        f"follows by {SOURCE} from what each stage declares; it is published, not proven."
    )


def doubts(plan: Plan) -> tuple[str, ...]:
    """What the claim rests on."""
    if plan.base == "dpebm":
        return (INTERPRET,)
    return (DECLARED, OWN if plan.learner == "two-stage own" else BUILT_IN)


def methods(plan: Plan) -> tuple[str, ...]:
    """How it was computed, in paragraphs."""
    shares = ", ".join(f"{s.rows:.2g} {s.name.partition(': ')[2]}" for s in plan.stages)
    by = "interpret's DP-EBM" if plan.base == "dpebm" else "private estimators of the user's own"
    clip = plan.request.arm_clip
    return (
        f"Algorithm 1 of Niu et al. (2022) with {by}. Parts of the rows, drawn at random without "
        f"regard to their values, by share: {shares}. The whole promises the greatest convex "
        "function below the least of the stages' trade-off functions.",
        f"Propensities are cut to [{clip:.2f}, {1 - clip:.2f}], outcome and columns to their "
        "bounds. The effect comes without a band.",
        "Rows with a missing value count as one and the same public row, in the middle of all "
        "domains; how many there were is not shown."
        if plan.request.trust.neighbors == "substitute"
        else "Rows with a missing value were left out; how many there were is not shown.",
    )
