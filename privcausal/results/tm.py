"""What results say of logistic regressions by objective perturbation (``mode="paper"``)."""

from __future__ import annotations

from privcausal.spec.plan import Plan

NAME = "tm"

SOURCE = "Chaudhuri et al. (2011, Algorithm 2), for the two models of Betlei et al. (2021),"


def claim(plan: Plan, change: str) -> str:
    """What is claimed of two tables that `change`."""
    return (
        f"{plan.request.budget.epsilon:g}-differential privacy (pure, delta = 0) for two tables "
        f"that {change} is what {SOURCE} claim of this mechanism; it is published, not proven."
    )


DOUBTS = (
    "Their proof is of a continuous random vector inside an optimisation and of its exact "
    "minimum. A computer has neither: the digits of a minimum in floating point tell which random "
    "vectors of its grid can have led there, and their proof does not cover that.",
)

METHODS = (
    "Two logistic regressions on polynomials, one for each arm, by objective perturbation "
    "(Chaudhuri et al. 2011, Algorithm 2; the baseline of Betlei et al. 2021 for binary "
    "outcomes). To each arm's penalised log-likelihood was added the product of its coefficients "
    "with a random vector whose length has a Gamma law; the minimum was found by Newton's method. "
    "The ridge is public: it is what a tenth of epsilon pays for. The effect is the difference of "
    "both probabilities.",
    "Rows with a missing value were left out; how many there were is not shown.",
)

NOTE = "The regressions have no bands, and no average effect was released."
