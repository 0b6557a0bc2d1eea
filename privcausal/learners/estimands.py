"""What results say of each estimand, and of the propensity."""

from __future__ import annotations

from dataclasses import dataclass, replace

from privcausal.inference.priors import PRIORS
from privcausal.request.request import Request


@dataclass(frozen=True)
class Words:
    """How results speak of an estimand.

    Attributes
    ----------
    name, title : str
        Inside a sentence, and at the head of a table.
    over, ratio : str
        How a sentence about the effect begins; what the averages are ratios of.
    reading, overlap : str
        What a causal reading needs, and what is assumed of overlap.
    identified : tuple of str
        What else is assumed, for a difference of the arms to be an effect.
    methods : tuple of str
        What was done before anything else.
    """

    name: str
    title: str
    over: str = "On average"
    ratio: str = "doubly robust scores"
    reading: str = "Causal reading: no unmeasured confounding, overlap, no interference."
    overlap: str = (
        "Overlap: every kind of unit could have been treated and could have been left untreated."
    )
    identified: tuple[str, ...] = (
        "No unmeasured confounding: given the listed covariates, who was treated does not depend "
        "on what the outcome would have been.",
    )
    methods: tuple[str, ...] = ()


ESTIMANDS = {
    "CATE": Words(
        "conditional average treatment effect", "Private Conditional Average Treatment Effect"
    ),
    "ATE": Words("average treatment effect", "Private Average Treatment Effect"),
    "ATT": Words(
        "average treatment effect on the treated",
        "Private Average Treatment Effect on the Treated",
        "On average over the treated",
        "doubly robust scores of the effect on the treated, by the number of treated",
        "Causal reading: no unmeasured confounding, no interference. Each treated unit has "
        "untreated ones like it.",
        "Overlap: every kind of unit among the treated could have been left untreated.",
    ),
    "ATO": Words(
        "average treatment effect in the overlap population",
        "Private Overlap-Weighted Average Treatment Effect",
        "On average over those who might as well have been treated as not (overlap weights)",
        "residual products (T - e)(Y - eta), by (T - e)^2: the effect weighted by e (1 - e)",
        "Causal reading: no unmeasured confounding, no interference. The average is over the "
        "overlap population, each unit counting as e (1 - e).",
        "Overlap: the average counts units as e (1 - e), so that kinds of units that were "
        "surely treated, or surely not, have no part in it.",
    ),
    "PLR": Words(
        "partially linear effect",
        "Private Partially Linear Effect",
        "With all else equal",
        "residual products (T - e)(Y - eta), by (T - e)^2",
        "Causal reading: no unmeasured confounding, no interference. The effect is the same for "
        "all x, or else an average that counts units by Var(T | x); for two arms it is the ATO.",
        "Partially linear: the outcome is linear in the treatment, given the covariates. Where "
        "slopes differ by x, the effect is their average weighted by Var(T | x).",
    ),
    "LATE": Words(
        "local average treatment effect",
        "Private Local Average Treatment Effect",
        "On average over those whom the instrument moves",
        "residual products (Z - m)(Y - eta) and (Z - m)(T - e), by (Z - m)^2",
        "Causal reading: given the covariates, the instrument is as good as random, acts on the "
        "outcome through the treatment alone, and moves nobody's treatment the other way.",
        "Relevance: the instrument moves the treatment. The limits hold however little it does.",
        (
            "Exclusion: the instrument changes the outcome through the treatment alone.",
            "Independence: given the listed covariates, the instrument does not depend on what the "
            "outcome and the treatment would have been.",
            "Monotonicity: the instrument moves nobody's treatment the other way. The average "
            "counts those whom it moves by Var(Z | x), and of a number by each of its units.",
        ),
    ),
    "OLS": Words("best linear prediction", "Private Linear Regression", "", "", "", ""),
}

DID = replace(
    ESTIMANDS["ATT"],
    name="average treatment effect on the treated, by differences in differences",
    title="Private Difference in Differences",
    ratio="doubly robust scores of changes, by the number of treated",
    reading="Causal reading: parallel trends of units with the same covariates, no anticipation, "
    "no interference. Each treated unit has untreated ones like it.",
    identified=(
        "Conditional parallel trends: had they not been treated, treated units would on average "
        "have changed as untreated ones with the same listed covariates did.",
        "No anticipation: treatment changes no outcome of the period before it.",
    ),
    methods=(
        "Differences in differences (Sant'Anna and Zhao 2020): a unit's change of outcome between "
        "two periods is one row, missing where it has not one row of each or was treated before.",
    ),
)


def words_of(request: Request, estimand: str = "") -> Words:
    """How results speak of what a call asks for: of its first estimand, or another."""
    if request.trust.panel is not None:
        return DID
    words = ESTIMANDS[estimand or request.estimand]
    if request.asked.arms and not request.formula.terms:
        return replace(words, reading=BY_LOT, identified=(RANDOMISED,))
    if request.propensity is None or request.formula.instrument:
        return words
    reading = words.reading.replace("no unmeasured confounding, overlap,", KNOWN).replace(
        "no unmeasured confounding,", KNOWN
    )
    return replace(words, reading=reading, identified=(ASSIGNED,))


KNOWN = "treatment given with the propensity that was stated,"
ASSIGNED = "Each unit was treated by chance, with the propensity that was stated."
BY_LOT = (
    "Causal reading: treatment given at random, no interference. One probability holds for all "
    "rows, and nothing is adjusted for."
)
RANDOMISED = (
    "Randomised treatment: chance decided who was treated, with one probability for all. Nothing "
    "was adjusted for, so in a study that observed treatment this is no causal effect."
)


def propensity_limits(request: Request, clip: float) -> tuple[float, float]:
    """Limits of an estimated propensity in the score: only what it divides by is cut far."""
    soft = min(PRIORS.residual_clip, clip)
    asked = {request.estimand, *request.asked.averages}
    low = clip if asked & {"CATE", "ATE"} else soft
    high = soft if asked in ({"ATO"}, {"PLR"}) else clip
    return low, 1 - high


def propensity_words(request: Request, clip: float) -> str:
    """What is done about the propensity, in words."""
    if request.propensity is not None:
        column = isinstance(request.propensity, str)
        return f"known, {'column ' if column else ''}{request.propensity}"
    if request.asked.dose or request.asked.arms:
        of = "instrument" if request.formula.instrument else "treatment"
        return f"mean of the {of}" if request.asked.dose else "one for each arm"
    if request.formula.instrument:
        return "of the instrument"
    low, high = propensity_limits(request, clip)
    return f"clipped to [{limit_words(low)}, {limit_words(high)}]"


def limit_words(value: float) -> str:
    """A limit of a propensity, to two places or as many as it needs."""
    places = 2 if 0.01 <= value <= 0.99 else 4
    return f"{value:.{places}f}"
