"""Estimands: their weights, scores and masses, the bias by nuisance errors, and their texts.

An average is theta = E[h tau(X)] / E[h] with a tilt h(e(X)): 1 for the ATE, e(X) for the ATT, and
e(X) (1 - e(X)) for the ATO, the effect in the overlap population (Li, Morgan and Zaslavsky 2018).
The estimate is c + sum(score) / sum(mass). A new estimand is a class and a row of `ESTIMANDS` here,
its name in `typing.Average`, and a score in `vault.transforms` if none there suits it.

Bias by nuisance errors: let the truth be e + d_e, eta + d_y, with E[Y | X, T] = eta + d_y +
(T - e - d_e) tau, and let the effect tau be right. Then with d_b = d_y - tau d_e the mean of each
score errs by E[w d_e d_b]; `Estimand.bias_weight` is w.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from privcausal import vault
from privcausal.features.functions import Constant, Function, Pointwise
from privcausal.features.rows import Rows
from privcausal.request.formula import ResultTerm
from privcausal.typing import Vector
from privcausal.vault import Outcome, Transform


class Score(Transform, Protocol):
    """A transform that can also be evaluated at covariates that belong to no row."""

    def at(self, rows: Rows, t: Vector | float, y: Vector | float) -> Vector: ...


class ScoreParts(NamedTuple):
    """Nuisances of one fold, the range of the outcome, and the limits of e where scores divide by
    it, and elsewhere. The effect times e is eta - mu0.
    """

    e: Function
    eta: Function
    mu0: Function
    mu1: Function
    outcome: Outcome
    clip: float
    soft_clip: float


@dataclass(frozen=True)
class Estimand:
    """What a fit estimates, and the texts about it. Its rows have equal masses."""

    # `name`, `title`: name inside a sentence, and title of a table
    name: str
    title: str
    # `over`, `ratio`: first words of a sentence about the effect, and the terms whose sums form the
    # ratios that give the averages
    over: str = "On average"
    ratio: str = "doubly robust scores"
    # `reading`, `overlap`: conditions for a causal interpretation, and the overlap assumption
    reading: str = "Causal reading requires unconfoundedness, overlap, and no interference."
    overlap: str = "Overlap: every kind of unit could have been treated or untreated."
    # Other assumptions under which a difference of the arms is a causal effect
    identified: tuple[str, ...] = (
        "No unmeasured confounding (unconfoundedness): given the listed covariates, treatment does "
        "not depend on the potential outcomes.",
    )
    methods: tuple[str, ...] = ()  # Steps before all others

    # Whether scores divide by e, and by 1 - e. If they divide by neither, the limits are wide.
    by_e, by_rest = False, False
    compared: str = "treatment"  # The variable that is compared given the covariates
    in_set: bool = False  # Whether the interval is a confidence set, which may be unbounded

    rows = "rows"  # Those whose average it is
    powers = (0, 0)  # Of e and 1 - e in the tilt

    def tilt(self, e: Vector) -> Vector:
        """Weight of each row in the average."""
        return np.asarray(e ** self.powers[0] * (1 - e) ** self.powers[1])

    def bias_weight(self, e: Vector, clip: float) -> Vector:
        """With several arms, the mean of the score of arm j errs by E[d_j (d_y - sum_i tau_i d_i)],
        and slopes by E[(T - e)(T - e)']^-1 times this vector.
        """
        return np.ones_like(e)


class ATE(Estimand):
    """E[tau], from the scores `vault.Aipw` and the mass "balance" of `vault.OfTreatment`."""

    by_e, by_rest = True, True

    def bias_weight(self, e: Vector, clip: float) -> Vector:
        """Y - mu_T has mean d_b in both arms, because mu_T = eta + (T - e) tau. Further,
        E[(T - e)/(e (1 - e)) | X] = d_e / (e (1 - e)).

        If the effect has an error d_tau too, there is the additional error
        E[d_e d_tau (1 - 2e)/(e (1 - e))]. The ratio to the balance removes the part due to a
        constant d_tau.
        """
        return np.asarray(1 / (e * (1 - e)))


class Tilted(Estimand):
    """An estimand whose rows have unequal masses, the tilt h over its mean `scale`."""

    def score(self, k: ScoreParts, centre: float, scale: float) -> Score:
        raise NotImplementedError

    def mass(self, k: ScoreParts, scale: float) -> Transform:
        """Mass m >= 0 of each row, whose mean is h / scale if e is right.

        Sums clip negative masses to 0. Standard errors in groups need E[m^2 | X] >= E[m | X] for
        each scale up to the largest tilt (`_sampling` of
        `inference.averages`).
        """
        raise NotImplementedError


class ATT(Tilted):
    by_rest = True
    rows = "treated rows"
    powers = (1, 0)

    def bias_weight(self, e: Vector, clip: float) -> Vector:
        """Y - mu0 = Y - eta + e tau has mean T tau + d_b. E[(T - e)/(1 - e) | X] = d_e / (1 - e),
        and T (T - e)/(1 - e) = T. Therefore sum(score) / sum(T) has mean E[T tau]/E[T] +
        E[d_e d_b / (1 - e)]/E[T].

        An error d_tau of the effect adds -E[d_e d_tau e/(1 - e)]/E[T], which is zero for constant
        d_tau and e.
        """
        return np.asarray(1 / ((1 - np.minimum(e, 1 - clip)) * np.mean(e)))

    def score(self, k: ScoreParts, centre: float, scale: float) -> Score:
        e = Pointwise(np.minimum, k.e, Constant(1 - k.clip))
        return vault.TreatedScore(e, k.mu0, k.outcome, k.clip, centre, scale)

    def mass(self, k: ScoreParts, scale: float) -> Transform:
        return vault.OfTreatment("treated", k.e, scale=scale)


class ATO(Tilted):
    powers = (1, 1)

    def bias_weight(self, e: Vector, clip: float) -> Vector:
        """(T - e)(Y - eta) = (T - e)(d_y + (T - e - d_e) tau + u) has mean E[h tau] + E[d_e d_y].
        (T - e)^2 has mean E[h] + E[d_e^2], for h = Var(T | X). The ratio therefore errs by
        E[d_e (d_y - tau d_e)] / E[(T - e)^2] for the tau it estimates. This gives
        w = 1 / E[(T - e)^2], approximated by 1 / E[e (1 - e)]. An error of the effect adds none.
        """
        return np.full_like(e, 1 / np.mean(e * (1 - e)))

    def score(self, k: ScoreParts, centre: float, scale: float) -> Score:
        return vault.ResidualProduct(k.e, k.eta, k.outcome, k.soft_clip, centre, scale=scale)

    def mass(self, k: ScoreParts, scale: float) -> Transform:
        return vault.OfTreatment("overlap", k.e, k.soft_clip, scale)


@dataclass(frozen=True)
class Linked(Estimand):
    """Coefficients of a generalized linear model; the `name` is the scale that they change."""

    over: str = ""
    ratio: str = ""
    reading: str = ""
    overlap: str = ""
    # `predicted`, `axis`: this scale in sentences on predictions, and on plots
    predicted: str = ""
    axis: str = ""
    exponential: str = ""  # Of a coefficient


ESTIMANDS: dict[str, Estimand] = {
    "CATE": ATE(
        "conditional average treatment effect", "Private Conditional Average Treatment Effect"
    ),
    "ATE": ATE("average treatment effect", "Private Average Treatment Effect"),
    "ATT": ATT(
        "average treatment effect on the treated",
        "Private Average Treatment Effect on the Treated",
        "On average over the treated",
        "doubly robust scores of the treated over their number",
        "Causal reading requires unconfoundedness, overlap, and no interference. Each treated unit "
        "needs comparable untreated units.",
        "Overlap: every kind of treated unit could have been untreated.",
    ),
    "ATO": ATO(
        "average treatment effect in the overlap population",
        "Private Overlap-Weighted Average Treatment Effect",
        "On average over units that could have received either treatment (overlap weights)",
        "residual products (T - e)(Y - eta) over (T - e)^2, with weights e (1 - e)",
        "Causal reading requires unconfoundedness and no interference. The average is over the "
        "overlap population: each unit has the weight e (1 - e). It is also the slope of the "
        "partially linear model (PLR).",
        "Overlap: each unit has the weight e (1 - e). Units that are certain to be treated, or "
        "certain to be untreated, have weight zero.",
    ),
    "PLR": Estimand(
        "partially linear effect",
        "Private Partially Linear Effect",
        "With the covariates held fixed",
        "residual products (T - e)(Y - eta) over (T - e)^2",
        "Causal reading requires unconfoundedness and no interference. If the effect varies with "
        "x, the estimate is its average weighted by Var(T | x).",
        "Partially linear model: given the covariates, the outcome is linear in the treatment. If "
        "the slope varies with x, the estimate is its average weighted by Var(T | x).",
    ),
    "LATE": Estimand(
        "local average treatment effect",
        "Private Local Average Treatment Effect",
        "On average over units whose treatment the instrument changes",
        "residual products (Z - m)(Y - eta) and (Z - m)(T - e), each over (Z - m)^2",
        "Causal reading requires a valid instrument. Given the covariates, it must be as good as "
        "random, affect the outcome only through the treatment, and change the treatment of all "
        "units in the same direction, if at all.",
        "Relevance: the instrument affects the treatment. The interval is valid even if the "
        "instrument is weak.",
        (
            "Exclusion: the instrument affects the outcome only through the treatment.",
            "Independence: given the listed covariates, the instrument does not depend on the "
            "potential outcomes or the potential treatments.",
            "Monotonicity: the instrument changes the treatment of all units in the same "
            "direction, if at all. Units whose treatment changes are weighted by Var(Z | x), and "
            "for a numeric treatment also by the size of the change.",
        ),
        compared="instrument",
        in_set=True,
    ),
    "RMST": ATE(
        "average effect on the restricted mean survival time",
        "Private Effect on the Restricted Mean Survival Time",
    ),
    "risk": ATE("average effect on the risk", "Private Effect on the Risk of an Event"),
    "OLS": Estimand("best linear prediction", "Private Linear Regression", "", "", "", ""),
    "logit": Linked(
        "log odds",
        "Private Logit Regression",
        predicted="predicted log odds of the outcome",
        axis="log odds",
        exponential="odds ratio",
    ),
    "poisson": Linked(
        "logarithm of the mean",
        "Private Poisson Regression",
        predicted="logarithm of the predicted outcome",
        axis="log mean",
        exponential="rate ratio",
    ),
}


def bias_weight(term: ResultTerm, e: Vector, clip: float) -> Vector:
    """`Estimand.bias_weight` of a term. A mean outcome has its arm's part of the ATE's weight.

    E[Y(0)] and E[Y(1)] are from the scores `vault.ArmScore`; their difference is the ATE's.
    """
    if term.arm is None:
        return ESTIMANDS[term.of].bias_weight(e, clip)
    return np.asarray(1 / (e if term.arm else 1 - e))


DID = replace(
    ESTIMANDS["ATT"],
    name="average treatment effect on the treated, by difference-in-differences",
    title="Private Difference-in-Differences",
    ratio="doubly robust scores of changes over the number of treated units",
    reading="Causal reading requires conditional parallel trends, no anticipation, and no "
    "interference. Each treated unit needs comparable untreated units.",
    identified=(
        "Conditional parallel trends: without treatment, treated units would on average have "
        "changed like untreated units with the same listed covariates.",
        "No anticipation: treatment does not affect outcomes in the period before it.",
    ),
    methods=(
        "Differences in differences (Sant'Anna and Zhao 2020) were estimated from the change of "
        "each unit's outcome between the two periods. A unit counts as missing if it was treated "
        "in the first period, or does not have exactly one row in each period.",
    ),
)

UNADJUSTED_DID = replace(
    DID,
    reading="Causal reading requires parallel trends, no anticipation, and no interference. Each "
    "treated unit needs comparable untreated units.",
    identified=(
        "Parallel trends: without treatment, treated units would on average have changed like "
        "untreated units.",
        DID.identified[1],
    ),
)


EVENT_STUDY = replace(
    DID,
    name="group-time average treatment effects on the treated",
    title="Private Event Study",
    over="On average over treated units and periods",
    ratio="",
    reading="Causal reading requires parallel trends, no anticipation, and no interference.",
    identified=(
        "Parallel trends: without treatment, the outcomes of each cohort would on average have "
        "changed like those of its controls.",
        DID.identified[1],
    ),
    methods=(
        "ATT(g, t) is the mean change of cohort g from the period before treatment to t, less that "
        "of the controls (Callaway and Sant'Anna 2021). Before treatment, it is the change from "
        "the period before t. Averages over cohorts weight by size. A unit counts if it has one "
        "row in each period, and the same cohort in all of them.",
    ),
)
