"""Estimands: weights, scores, masses, the bias by nuisance errors, and the words of results.

An average is theta = E[h tau(X)] / E[h] with a tilt h(e(X)): 1 for the ATE, e(X) for the ATT, and
e(X) (1 - e(X)) for the ATO, the effect in the overlap population (Li, Morgan and Zaslavsky 2018).
The estimate is c + sum(score) / sum(mass). A new estimand is a class and a row of `ESTIMANDS` here,
its name in `typing.Average`, and a score in `vault.transforms` if none there suits it.

Bias by nuisance errors: let the truth be e + d_e, eta + d_y, with E[Y | X, T] = eta + d_y +
(T - e - d_e) tau, and let the effect tau be right. Then with d_b = d_y - tau d_e the mean of each
score errs by E[w d_e d_b]; `Estimand.bias_weight` is w.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from privcausal import vault
from privcausal.accounting import Release
from privcausal.estimators import bases
from privcausal.features import functions
from privcausal.features.design import Design, Rows
from privcausal.features.functions import Constant, Function, Interactions, Pointwise
from privcausal.inference.cells import CellEffect
from privcausal.inference.effects import FEW_SDS, ArmPolynomials, AverageEstimate, Effect
from privcausal.inference.population import Population
from privcausal.inference.priors import PRIORS
from privcausal.inference.ranges import MOST_AT_END, clipped_share
from privcausal.request.formula import ResultTerm
from privcausal.request.request import Plan, Request
from privcausal.request.schema import Binary, Domain, Interval, Levels, Schema
from privcausal.typing import Kind, Vector
from privcausal.vault import Outcome, Transform


class Score(Transform, Protocol):
    """A transform that can also be evaluated at covariates that belong to no row."""

    def at(self, rows: Rows, t: Vector | float, y: Vector | float) -> Vector: ...


class ScoreParts(NamedTuple):
    """Nuisances of one fold, the range of the outcome, and the limits of e where scores divide by
    it, and elsewhere. The effect times e is eta - mu0.
    """

    e: Function  # Limited by `soft_clip`
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

    # Whether scores divide by e, and by 1 - e, which then limit it. If they divide by neither, the
    # limits are wide.
    by_e, by_rest = False, False
    compared: str = "treatment"  # The variable that is compared given the covariates
    in_set: bool = False  # Whether the interval is a confidence set, which may be unbounded

    rows = "rows"  # Those whose average it is
    powers = (0, 0)  # Powers of e and 1 - e in the tilt; other tilts override `tilt`

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
        `inference.effects`).
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
    exponential: str = ""  # Name of exp(coefficient)


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


# -- estimates and the words about them ------------------------------------------------------------


# The finished fit: public functions, and averages with their costs.

Alerts = tuple[tuple[str, str], ...]
"""Pairs of code and sentence."""

AnyEffect = Effect | CellEffect | ArmPolynomials


@dataclass(frozen=True, eq=False)
class Nuisances:
    """Released nuisances as functions of covariates; each may be absent."""

    propensity: functions.Function
    outcome: functions.Function
    mu0: functions.Function
    mu1: functions.Function


@dataclass(frozen=True, eq=False)
class Estimate:
    """A finished fit: only released numbers and functions of released numbers."""

    plan: Plan
    schema: Schema
    design: Design
    population: Population
    effect: AnyEffect | None  # tau(x) with its posterior; absent if only averages are fitted
    nuisances: Nuisances | None  # Absent if not learned, or not private
    averages: AverageEstimate | None  # Absent without a budget for averages
    releases: tuple[Release, ...]
    size: int | None  # Public number of rows or units
    real: bool  # False if the noise was not real; the fit then has no guarantee
    notes: tuple[str, ...] = ()  # Notes on this fit, from released numbers
    alerts: Alerts = ()  # Serious notes; the call warns about them

    @property
    def clip(self) -> float:
        """c such that e lies in [c, 1 - c] if a score divides by e."""
        clip = self.plan.request.arm_clip
        return clip if self.nuisances is None else min(clip, _least(self.nuisances.propensity))

    def __repr__(self) -> str:
        return f"<released numbers of {self.plan.request.formula!s}: {len(self.releases)} releases>"

    @property
    def kind(self) -> Kind:
        """Kind of guarantee of the released numbers, and at best of numbers computed from them."""
        if not self.real:
            return "none"
        # A noisy table from elsewhere has no stage: its guarantee is only declared.
        claimed = self.plan.request.mode == "paper" or not self.plan.stages
        return "published" if claimed else "proven"

    @property
    def propensity(self) -> functions.Known | None:
        """The declared range of a known propensity column."""
        name = self.plan.request.propensity
        domain = self.schema[name] if isinstance(name, str) else None
        return functions.Known(domain.lo, domain.hi) if isinstance(domain, Interval) else None


def _least(e: functions.Function) -> float:
    """Lower limit of a propensity; one half if the propensity is not additive."""
    if isinstance(e, functions.Mixture):
        return min(_least(e.at_one), _least(e.at_zero))
    if isinstance(e, functions.Extended):
        e = e.base
    return e.lo if isinstance(e, functions.Additive) else 0.5


# Descriptions of a fit: sentences that learners share.

TextPairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Description:
    """Text about one fit; everything except title and rows is whole sentences."""

    title: str  # Name of the estimator
    rows: TextPairs  # How confounding was addressed, for the head of the summary
    reading: tuple[str, ...]  # Conditions for a causal interpretation
    # `assumptions`, `methods`: assumptions, and how the fit was computed, with references
    assumptions: tuple[str, ...]
    methods: tuple[str, ...]
    # `bands`, `notes`: text on the effect's bands and shape, and other notes
    bands: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    # Source of a guarantee that is not proven; the end of a sentence about that guarantee
    claim: str = "is claimed for this mechanism"
    doubts: tuple[str, ...] = ()  # Caveats: conditions of such a claim, and known cases of failure
    # Whether the fit adjusted for anything; False for a trial that is assumed to be randomized
    adjusts: bool = True
    # Display names of groups of stages that do not use their own names
    stages: tuple[tuple[str, str], ...] = ()


NO_INTERFERENCE = (
    "No interference: the treatment of one unit does not affect the outcome of another."
)
BOUNDED = "Bounded outcome: the outcome lies within its bounds. Values outside were clipped."

SUMS = (
    "The data were used only through sums of bounded row vectors, released with discrete Gaussian "
    "noise (OpenDP); all further steps are post-processing."
)
MISSING = (
    "Rows with a missing value were excluded; the number of complete rows is reported with noise, "
    "whose standard deviation (noise sd) is shown."
)
TOGETHER = (
    "The scores of all estimands were clipped separately and released as one vector. The shape of "
    "its Gaussian noise minimizes the predicted variances; covariances use the same releases."
)
SEVERAL = (
    "Each arm has its own propensity and outcome models, fitted as in a study of this arm against "
    "all others; effects are differences between the doubly robust means of the arms (Cattaneo "
    "2010)."
)
RATIO = (
    "Confidence limits of risk and odds ratios are their extremes over the joint confidence "
    "ellipse of E[Y(0)] and E[Y(1)]; for the risk ratio, these are Fieller's limits."
)
LEFT_OUT = "Rows with a missing value were excluded; their number is not reported."

BANDS = (
    "Effect curves are smooth and shrunk; for a group, report the group average. Bands are "
    "approximate: they cover the smooth part of the effect, on average over x, but not steps or "
    "peaks. On public data with rough effects, 95% bands held 70% of the points on average. Slopes "
    "of the best linear projection are not shrunk; with a small budget they are mostly noise."
)

SPLIT_WORDS = {
    "full": "all rows",
    "disjoint": "separate half of the rows",
    "crossfit": "cross-fitted, 2 folds",
}

SPLIT_METHODS = {
    "full": "Nuisance models were fitted to all rows. ",
    "disjoint": "Nuisance models were fitted to a separate half of the rows. ",
    "crossfit": "Nuisance models were cross-fitted with two folds. ",
}


def adjusted(estimate: Estimate, *, title: str, method: str, bands: str) -> Description:
    """Describe a learner with private nuisances and averages of doubly robust scores.

    `method` is a paragraph on how the effect was computed, and `bands` a text on their coverage.
    """
    plan = estimate.plan
    request, words = plan.request, words_of(plan.request)
    every = [words, *(words_of(request, name) for name in request.averages[1:])]
    banded = request.estimand == "CATE" and request.mode == "proven"
    products = _products_note(estimate)
    named = [*zip(request.averages or (request.estimand,), every, strict=True)]
    overlaps = dict.fromkeys(
        f"{name}: {e.overlap}" if len(named) > 1 else e.overlap for name, e in named
    )
    readings: tuple[str, ...] = (words.reading,)
    if any(e.reading != words.reading for e in every):
        readings = tuple(f"{name}: {e.reading}" for name, e in named)
    # the limit of the weights of the average effect
    limit, averages = "", estimate.averages
    if averages is not None and np.isfinite(averages.weight):
        most = (
            "the weights of the average effect were limited to "
            f"{averages.weight:g} times the weight of a row in a difference in means"
            if averages.weight > 1
            else "all rows have the weights of a difference in means, so only the outcome model "
            "adjusts for covariates"
        )
        limit = (
            f"To minimize the predicted error, {most}; the nuisance variance covers the resulting "
            "bias. "
        )
    return Description(
        title=title,
        rows=nuisance_rows(estimate, SPLIT_WORDS[request.split]),
        reading=readings,
        assumptions=(*words.identified, *overlaps, NO_INTERFERENCE, BOUNDED),
        methods=(
            *(*words.methods, method),
            *getattr({**bases.BASES, **bases.OTHERS}.get(plan.base), "methods", ()),
            SPLIT_METHODS[request.split]
            + _propensity_text(request, estimate.clip)
            + limit
            + "Outcome and covariates were clipped to their bounds.",
            f"Averages are ratios of noisy sums ({'; '.join(e.ratio for e in every)}). "
            "Standard errors combine sampling error, privacy noise, and nuisance estimation error. "
            "Confidence intervals and p-values allow for the largest bias that clipping the scores "
            "can cause (Armstrong and Kolesár 2018). "
            + " ".join((*tails(estimate), *((BOUNDED_EFFECT,) if request.bounded else ()))),
            *((LIMITS,) if words.in_set else ()),
            *((SEVERAL,) if request.arms and request.jointly else ()),
            *((TOGETHER,) if request.jointly else ()),
            *((RATIO,) if request.ratios else ()),
            MISSING,
        ),
        bands=(*((bands,) if banded else ()), *((products,) if products else ())),
    )


def nuisance_rows(estimate: Estimate, rows: str) -> TextPairs:
    """Summary rows: the nuisances' base, the `rows` they used, and treatment of the propensity."""
    plan = estimate.plan
    # Some bases are only for the effect; they name the base of the nuisances.
    by = getattr({**bases.BASES, **bases.OTHERS}.get(plan.base), "nuisances", plan.base)
    return (
        ("Nuisance models", f"{by}, {rows}" if plan.request.formula.terms else "none"),
        ("Propensity", propensity_words(plan.request, estimate.clip)),
    )


BOUNDED_EFFECT = "Estimates and confidence limits respect the outcome bounds."
LIMITS = (
    "The LATE has the confidence interval of Anderson and Rubin (1949), which is valid for weak "
    "instruments. It contains each value such that the reduced form minus this value times the "
    "first stage is compatible with zero, and is infinite if the first stage may be zero."
)


# -- sentences on one fit ----------------------------------------------------------------------


def _propensity_text(request: Request, clip: float) -> str:
    if isinstance(request.propensity, str):
        return f"Known propensities were taken from column {request.propensity!r}. "
    if isinstance(request.propensity, Mapping):
        shares = ", ".join(f"{arm} {share:.3g}" for arm, share in request.propensity.items())
        return f"The arms' shares are known: {shares}. "
    if request.propensity is not None:
        return f"The propensity is known to be {request.propensity:.4g}. "
    if not request.divides:
        return "Propensities were not clipped, because no score divides by a propensity. "
    low, high = propensity_limits(request, clip)
    soft = min(PRIORS.residual_clip, clip)
    if (low, high) == (soft, 1 - soft):
        return f"Propensities were clipped to [{limit_words(low)}, {limit_words(high)}]. "
    return (
        f"Propensities were clipped to [{limit_words(low)}, {limit_words(high)}] in divisions and "
        f"to [{limit_words(soft)}, {limit_words(1 - soft)}] elsewhere. "
    )


ANY_TAIL = "The maximum bias makes no assumption about tails within the bounds."


def tails(estimate: Estimate) -> tuple[str, ...]:
    """Assumption behind the bias bound of clipped scores; empty if none were clipped."""
    averages, request = estimate.averages, estimate.plan.request
    if averages is None or not averages.clipping[0] > 0 or request.mode == "paper":
        return ()
    if request.regression:
        return (ALLOWANCE,)
    if request.tails == "any":
        return (ANY_TAIL,)
    kinds = {"difference": "outcomes", "cohorts": "outcome paths"}
    clipped = kinds.get(estimate.plan.learner, "contributions of single rows")
    return HIDDEN_SIZES.format(clipped), ALLOWANCE


HIDDEN_SIZES = (
    "Noise can hide a few extreme {}. They are assumed to become rarer with size as the visible "
    "ones do."
)
ALLOWANCE = "The maximum bias is an allowance chosen on public data sets. It is not a proven bound."


SHOWN_PRODUCTS, LEAST_PRODUCT = 5, 0.1
"""Maximum number of products to name, and minimum size of one relative to the largest."""


def _products_note(estimate: Estimate) -> str:
    """Text that names products in the effect, with the sd of each part beyond additive terms.

    The sd is over the released population. It combines all products of the same two terms,
    including products of their levels.
    """
    sds: dict[str, float] = {}
    for piece in estimate.effect.pieces if isinstance(estimate.effect, Effect) else ():
        psi = piece.additive.features
        if isinstance(psi, Interactions):
            parts = estimate.population.rows().phi(psi) * piece.additive.coef
            names = np.array(psi.names)
            sds = {n: float(parts[:, names == n].sum(axis=1).std()) for n in psi.names}
    if not sds:
        return ""
    largest = max(sds.values())
    products = [name for name in sds if sds[name] >= LEAST_PRODUCT * largest]
    products.sort(key=lambda name: -sds[name])
    named = ", ".join(f"{name} (sd {sds[name]:.2g})" for name in products[:SHOWN_PRODUCTS])
    more = " and smaller ones" if len(products) > SHOWN_PRODUCTS else ""
    return (
        f"The effect includes products of modifiers: {named}{more}. Each effect curve averages "
        "over the other modifiers."
    )


def words_of(request: Request, estimand: str = "") -> Estimand:
    """Texts for a request's first estimand, or for another estimand of the request."""
    if request.trust.panel is not None:
        adjusted = DID if request.formula.terms else UNADJUSTED_DID
        return adjusted if request.estimand == "ATT" else EVENT_STUDY
    words = ESTIMANDS[estimand or request.estimand]
    if request.arms and not request.formula.terms:
        return replace(words, reading=BY_LOT, identified=(RANDOMISED,))
    if request.propensity is None or words.in_set:
        return words
    reading = words.reading.replace("unconfoundedness, overlap,", KNOWN)
    reading = reading.replace("unconfoundedness", KNOWN)
    return replace(words, reading=reading, identified=(ASSIGNED,))


KNOWN = "randomized treatment with the declared propensity"
ASSIGNED = "Known propensity: treatment was assigned at random, with the declared propensity."
BY_LOT = (
    "Causal reading requires randomized treatment and no interference. The probability of "
    "treatment must be the same for all rows, because no covariates are adjusted for."
)
RANDOMISED = (
    "Randomized treatment: treatment was assigned at random, with the same probability for all "
    "rows. No covariates were adjusted for, so in an observational study the result is not a "
    "causal effect."
)


def propensity_limits(request: Request, clip: float) -> tuple[float, float]:
    """Limits of an estimated propensity in a score; only divisors (e, 1 - e) need a strong clip."""
    soft = min(PRIORS.residual_clip, clip)
    estimands = [ESTIMANDS[name] for name in (request.estimand, *request.averages)]
    low = clip if any(e.by_e for e in estimands) else soft
    high = clip if any(e.by_rest for e in estimands) else soft
    return low, 1 - high


def propensity_words(request: Request, clip: float) -> str:
    """Text on how the propensity is handled."""
    if request.propensity is not None:
        if isinstance(request.propensity, Mapping):
            shares = (f"{arm} {share:.3g}" for arm, share in request.propensity.items())
            return f"known, {', '.join(shares)}"
        if isinstance(request.propensity, str):
            return f"known, column {request.propensity}"
        return f"known, {request.propensity:.4g}"
    if request.dose or request.arms:
        of = ESTIMANDS[request.estimand].compared
        return f"mean of the {of}" if request.dose else "one for each arm"
    if ESTIMANDS[request.estimand].in_set:
        return "of the instrument"
    low, high = propensity_limits(request, clip)
    return f"clipped to [{limit_words(low)}, {limit_words(high)}]"


def limit_words(value: float) -> str:
    """Format a propensity limit with two decimals, or four near 0 or 1."""
    places = 2 if 0.01 <= value <= 0.99 else 4
    return f"{value:.{places}f}"


UNSEEN_ARM = (
    "One treatment arm is empty or too small to detect; check its 0/1 coding. Values other than "
    "0/1 or the declared labels count as missing. If the arm is empty, the interval is meaningless."
)

PANEL_ARM = (
    "One treatment arm is empty or too small to detect. The treatment must be 0 in the first "
    "period: if a column is 1 in both periods, use df['T'] = df['treated'] * df['post']."
)
"""Text for differences in differences, instead of a fit's text about an arm."""

SEEN = 6.0
"""Minimum count of a label of average frequency, in noise sds, for testing labels."""

RARE = 0.02
"""A label is reported as absent only if its share is below this, allowing for noise, and undeclared
labels are reported if their share is above it."""

ABSENT = (
    "Fewer than {share:.0%} of the rows, possibly none, have the level {labels} of {name} (noisy "
    "counts). Check its spelling."
)
UNDECLARED = (
    "About {share:.0%} of the rows have an undeclared level of {name}. They are used without their "
    "level, which can bias estimates, and are in no group. Declare all levels, or use "
    "pc.Levels([...], other=True)."
)
ALL_ABSENT = (
    "Almost no rows have any of the declared levels of {name} (noisy counts). Check their spelling."
)

LOOKS_BINARY = (
    "By noisy counts, outcome {name!r} is 0 or 1. Its bounds are (0, 1), and other values were "
    "clipped. Declare bounds={{{name!r}: [0, 1]}} at no cost. If there are other values, declare "
    "(lo, hi)."
)

NO_LEVEL = (
    "No level of {name} is frequent enough to be released, so it is not adjusted for. Declare its "
    "levels: bounds={{{name}: ['a', 'b']}}."
)

POOLED = (
    "The estimated levels of {names} lack {shares} of the rows (noisy counts): levels of "
    "fewer than about {least:,d} rows cannot be found. All other levels count as one, which may "
    "leave confounding. Declare the levels: bounds={{{first!r}: ['a', 'b']}}."
)

CLIPPED = (
    "About {share:.0%} of the rows have {name} at or near {end:g}, one of its bounds. {intervals} "
    "Check the bounds and units. If no value can lie beyond, declare {natural}."
)

ALLOCATION = (
    "About {share:.0%} of the rows have {name} = {arm} (noisy count: {count:.0f}, standard error "
    "{spread:.0f}), but propensity= declares {declared}. With a wrong propensity, the "
    "estimate and its interval are wrong. Correct propensity=, or omit it to estimate it."
)

LEAST_COMPLETE = 0.75
"""Share of complete rows below which there is an alert.

Three equally frequent treatments coded 0, 1, and 2 leave two thirds of the rows, whether 0/1 is
declared or not.
"""

INCOMPLETE = (
    "About {share:.0%} of the rows are complete (noisy count); incomplete rows are ignored. "
    "Check {names} for missing values, undeclared labels{coding}, and numbers written as 1,234.5 "
    "or $5."
)
CODING = " ({names}: other than 0/1)"


def complete_rows(estimate: Estimate) -> tuple[float, float]:
    """The released number of complete rows and its noise sd, which is 0 if none was released.

    If averages use a random share of all rows, the number is scaled up to all rows. The noise of
    published mechanisms is not proven, so their numbers are not used.
    """
    averages, size, sd = estimate.averages, estimate.population.count, estimate.population.count_sd
    if estimate.plan.request.mode == "paper":
        return size, 0.0
    if averages is not None and np.isfinite(averages.size_sd):
        share = estimate.plan.stages[-1].rows if estimate.plan.stages else 1.0
        size = averages.size / share
        sd = float(np.sqrt(averages.size_sd**2 + averages.size * (1 - share))) / share
    # A public size includes all complete rows.
    return (size if estimate.size is None else min(size, estimate.size)), sd


def complete_alert(estimate: Estimate) -> dict[str, str]:
    """An alert if many rows or units are incomplete; a false alarm needs three sds of noise."""
    request, (rows, sd) = estimate.plan.request, complete_rows(estimate)
    # The number of rows of units is not public, except that a unit of a panel is one row.
    several = request.trust.unit is not None and request.trust.panel is None
    if estimate.size is None or several or not sd > 0:
        return {}
    coded = [name for name in request.formula.coded if estimate.schema.get(name) == Binary()]
    if rows + FEW_SDS * sd >= LEAST_COMPLETE * estimate.size:
        return {}
    coding = CODING.format(names=listed(coded)) if coded else ""
    names = listed([name for name in request.needed if name not in request.wide])
    share = max(rows, 0.0) / estimate.size
    return {"complete": INCOMPLETE.format(share=share, names=names, coding=coding)}


MOST_NAMES, LONGEST_NAME = 3, 24
"""Limits of a list of names in a sentence; a warning has three lines."""


def listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name[:LONGEST_NAME]) for name in names[:MOST_NAMES])
    return shown + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")


INTERVALS = (
    "Intervals do not allow for values clipped there.",
    "Most values may be clipped there, so intervals are infinite or withheld.",
)


def domain_alerts(
    name: str,
    declared: Domain | None,
    used: Domain,
    counts: Vector,
    noise_sd: float,
    public: float | None = None,
    *,
    outcome: bool = False,
) -> Alerts:
    """Alerts on a column, from its noisy counts in the cells of its domain or labels.

    The domain `used` may differ from the `declared` one, because a range may have been narrowed.
    Estimated domains give no alert. `public` is the number of rows, if it is public. `outcome`
    says whether the column is the outcome of the averages.
    """
    if not (isinstance(declared, Levels) and isinstance(used, Levels)):
        clipped = clipped_share(declared, used, counts, noise_sd, public)
        if clipped is None:
            return ()
        assert isinstance(declared, Interval)
        end, share = clipped
        text = CLIPPED.format(
            share=share,
            name=listed([name]),
            end=end,
            natural="[0, 1] for two values, or " * ((declared.lo, declared.hi) == (0, 1))
            + f"pc.Interval({declared.lo:g}, {declared.hi:g}, natural=True)",
            intervals=INTERVALS[outcome and share > MOST_AT_END],
        )
        return (("clip", text),)
    # labels that seem absent, if usual labels are detectable, and other labels
    labels = used.values  # The level "other" may be empty.
    if counts.sum() < SEEN * len(labels) * noise_sd:
        return ()
    declared_counts, margin = counts[: len(labels)], FEW_SDS * noise_sd
    rows, others = float(counts.sum()), float(counts[-1])  # The last cell counts all other labels.
    present = declared_counts > margin
    lacking = ~present & (declared_counts + margin < RARE * rows)
    absent = [label for label, lacks in zip(labels, lacking, strict=True) if lacks]
    texts = []
    if absent or not present.any():
        text = ABSENT if present.any() else ALL_ABSENT
        texts.append(text.format(name=listed([name]), labels=listed(absent), share=RARE))
    if present.any() and not used.other and others > RARE * rows + FEW_SDS * noise_sd:
        texts.append(UNDECLARED.format(share=others / rows, name=listed([name])))
    return (("levels", " ".join(texts)),) if texts else ()


def allocation_alert(
    name: str, arm: str, counts: Vector, noise_sd: float, declared: tuple[float, float]
) -> Alerts:
    """Alert on a known propensity with a mean in the range `declared`, from counts of both arms.

    It allows for three sds of noise, three of chance, and `OFF`: at most 0.3% false alarms.
    """
    rows, (low, high) = max(float(counts.sum()), 1.0), declared
    near = float(np.clip(counts[1] / rows, low, high))
    chance = FEW_SDS * float(np.sqrt(rows * near * (1 - near)))
    if abs(counts[1] - near * rows) <= FEW_SDS * noise_sd + chance + OFF * rows:
        return ()
    share = float(np.clip(counts[1] / rows, 0.0, 1.0))
    text = ALLOCATION.format(
        share=share,
        count=max(counts[1], 0.0),
        spread=noise_sd,
        name=listed([name]),
        arm=arm,
        declared=f"{low:.0%}" if low == high else f"{low:.0%} to {high:.0%}",
    )
    return (("allocation", text),)


OFF = 0.02
"""Deviation of the arms, as a share of the rows, that gives no alert."""
