"""Survey weights of averages: what results say about them, and an alert if they vary much."""

from __future__ import annotations

from dataclasses import replace

from privcausal.estimators import survey, words
from privcausal.inference.averages import AverageEstimate
from privcausal.inference.population import LARGEST_USUAL

MOST_DESIGN_EFFECT = 2.0
"""Design effect of weights that raises an alert. Common surveys have 1.2 to 2."""

VARIED = (
    "Weights vary much: their design effect is {effect:.1f}, and the largest weight in use is "
    "{most:.0f} times the mean. Intervals are therefore wider than without weights. If covariates "
    "explain the weights, add these covariates to the formula and leave weights= out."
)


def with_weights(state: survey.Survey, found: AverageEstimate) -> AverageEstimate:
    """`found` with the design effect and the largest weight, and an alert if weights vary much."""
    law = state.weights
    if law is None:
        return found
    if law.design_effect > MOST_DESIGN_EFFECT:
        told = VARIED.format(effect=law.design_effect, most=law.top / law.mean)
        state.session.alerts["weights"] = told
    return replace(found, weighting=law.design_effect, most_weight=law.top)


def weights_described(said: words.Description, estimate: words.Estimate) -> words.Description:
    """The description with the weights, their design effect, and what they assume."""
    name, found = estimate.plan.request.weights, estimate.averages
    if name is None or found is None:
        return said
    most, assumed = f"{found.most_weight:.4g}", ASSUMED.format(name=name)
    effect = ("Design effect", f"{found.weighting:.2f} (of the weights)")
    regression = estimate.plan.request.estimand == "OLS"
    return replace(
        said, title="weighted least squares" if regression else said.title,
        rows=(*said.rows, ("Weights", f"{name}, at most {most}"), effect),
        assumptions=(*said.assumptions, assumed), notes=(*said.notes, assumed),
        methods=(
            *said.methods, WEIGHING.format(name=name, most=most) + NUISANCES * (not regression),
        ),
    )  # fmt: skip


ASSUMED = (
    "Estimates describe the population that the rows represent with the weights {name!r}. A weight "
    "is inversely proportional to the chance that a row is in the data."
)

WEIGHING = (
    "Rows were weighted by {name!r}. A noisy histogram located the weights; weights above {most} "
    "counted as {most}. The design effect of the weights is the ratio of their mean square to the "
    "square of their mean (Kish 1965)."
)

NUISANCES = (
    f" In propensity and mean outcome, weights above {LARGEST_USUAL:g} times the mean counted as "
    f"{LARGEST_USUAL:g} times the mean."
)
