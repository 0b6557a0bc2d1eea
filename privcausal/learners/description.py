"""What results say of a fit, in sentences: the learners' common ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privcausal.features.products import Interactions
from privcausal.inference.effect import Effect
from privcausal.inference.priors import PRIORS
from privcausal.inference.ranges import INDEX
from privcausal.learners.bases import BASES, OTHERS, AnyBase
from privcausal.learners.estimands import (
    Words,
    limit_words,
    propensity_limits,
    propensity_words,
    words_of,
)
from privcausal.learners.estimate import Estimate
from privcausal.request.plan import Plan
from privcausal.request.request import Request

Rows = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Description:
    """What is said of one fit; all but its title and rows are whole sentences.

    Attributes
    ----------
    title : str
        Of the estimator.
    rows : tuple of (label, value)
        How confounding was dealt with, for the head of the summary.
    reading : tuple of str
        What a causal reading needs.
    assumptions, methods : tuple of str
        What is assumed, and how the fit was computed, with its papers.
    bands, notes : tuple of str
        On the effect's bands and shape, and on anything else.
    claim : str
        Who claims a guarantee that is not proven: the end of a sentence that begins with it.
    doubts : tuple of str
        What such a claim rests on, and where it is known to fail.
    adjusts : bool
        Whether anything was adjusted for; not where a trial is taken at its word.
    stages : tuple of (group, name)
        What groups of stages are called, where not by their own names.
    """

    title: str
    rows: Rows
    reading: tuple[str, ...]
    assumptions: tuple[str, ...]
    methods: tuple[str, ...]
    bands: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    claim: str = "is claimed of this mechanism"
    doubts: tuple[str, ...] = ()
    adjusts: bool = True
    stages: tuple[tuple[str, str], ...] = ()


NO_INTERFERENCE = "No interference: one unit's treatment does not change another's outcome."
BOUNDED = "The outcome lies within its bounds; what lies outside was cut to them."

MISSING = (
    "A row with a missing value adds nothing to any sum. The number of complete rows is shown as "
    "it was released, give or take two standard deviations of its noise."
)
TOGETHER = (
    "The scores of a row, each cut by itself, were released as one vector, with Gaussian noise of "
    "the shape that hides it with least predicted variances; covariances are of the same releases."
)
SEVERAL = (
    "Each arm has a propensity and a mean outcome of its own, learned from it and all others "
    "together; effects are differences of the arms' doubly robust means (Cattaneo 2010)."
)
RATIO = (
    "Limits of the risk and odds ratios are their extremes over the joint confidence ellipse of "
    "E[Y(0)] and E[Y(1)] (for the risk ratio Fieller's)."
)
LEFT_OUT = "Rows with a missing value were left out; how many there were is not shown."

BANDS = (
    "Effects by modifier are shrunken: for a group, quote its own average. Their bands cover the "
    "projection of the effect on the basis, on average over x, and are approximate. Slopes are of "
    "the best linear projection and not shrunken: with little budget they are mostly noise. All "
    "agree within their uncertainty."
)

SPLITS = {
    "full": "all rows",
    "disjoint": "own half of the rows",
    "crossfit": "cross-fitted, 2 folds",
}


def adjusted(estimate: Estimate, *, title: str, method: str, bands: str) -> Description:
    """Of a learner with private nuisances whose averages are those of doubly robust scores.

    Parameters
    ----------
    method : str
        How the effect was computed, in a paragraph.
    bands : str
        What the bands for the effect cover.
    """
    plan = estimate.plan
    request, words = plan.request, words_of(plan.request)
    every = [words, *(words_of(request, name) for name in request.asked.averages[1:])]
    banded = request.estimand == "CATE" and request.mode == "proven"
    products = _products_note(estimate)
    return Description(
        title=title,
        rows=nuisance_rows(estimate, SPLITS[request.split]),
        reading=_readings(request, every),
        assumptions=(
            *words.identified,
            *dict.fromkeys(one.overlap for one in every),
            NO_INTERFERENCE,
            BOUNDED,
        ),
        methods=(
            *(*words.methods, method),
            *getattr(_base(plan), "methods", ()),
            _propensity_text(request, estimate.clip)
            + _weight_text(estimate)
            + f"Outcome and covariates are cut to their bounds. Split: {SPLITS[request.split]}.",
            f"Averages are ratios of noisy sums of {'; of '.join(one.ratio for one in every)}; "
            "standard errors add sampling, privacy noise (delta method) and the product of the "
            "nuisances' errors. Clipping the scores causes a bias of unknown sign, which is "
            "bounded; intervals and p values are those of a normal estimate with the largest bias "
            "(Armstrong and Kolesár 2018). "
            + " ".join((*tails(estimate), *((BOUNDED_EFFECT,) if request.asked.bounded else ()))),
            *((LIMITS,) if request.formula.instrument else ()),
            *((SEVERAL,) if request.asked.arms and request.asked.jointly else ()),
            *((TOGETHER,) if request.asked.jointly else ()),
            *((RATIO,) if request.asked.ratios else ()),
            MISSING,
        ),
        bands=(*((bands,) if banded else ()), *((products,) if products else ())),
    )


def _readings(request: Request, every: Sequence[Words]) -> tuple[str, ...]:
    """Each with the name of its estimand, where there are several."""
    if len({one.reading for one in every}) == 1:
        return (every[0].reading,)
    named = zip(request.asked.averages, every, strict=True)
    return tuple(f"{name}: {one.reading}" for name, one in named)


def nuisance_rows(estimate: Estimate, rows: str) -> Rows:
    """What learned the nuisances, from which `rows`, and what became of the propensity."""
    plan = estimate.plan
    # some bases are the effect's only, and say what the nuisances were learned by
    by = getattr(_base(plan), "nuisances", plan.base)
    return (
        ("Nuisances", f"{by}, {rows}" if plan.request.formula.terms else "none"),
        ("Propensity", propensity_words(plan.request, estimate.clip)),
    )


def _base(plan: Plan) -> AnyBase | None:
    return {**BASES, **OTHERS}.get(plan.base)


BOUNDED_EFFECT = "Effects and limits are held within the width of the outcome's bounds."
LIMITS = (
    "Limits of the LATE are those of Anderson and Rubin: every value at which reduced form less "
    "value times first stage is within its own limits of 0, noise and allowances included. They "
    "hold however weak the instrument is, and there are none where a first stage of 0 is possible."
)


def sums_method(title: str, base: str) -> str:
    """How an effect was computed from sums, by a learner of this title."""
    return (
        f"{title[:1].upper()}{title[1:]} with base {base!r}. The rows were read through sums of "
        "bounded row vectors only, computed exactly on an integer grid; discrete Gaussian noise "
        "(OpenDP) was added to each sum. Everything after that is post-processing."
    )


# -- sentences on one fit ----------------------------------------------------------------------


def _propensity_text(request: Request, clip: float) -> str:
    if isinstance(request.propensity, str):
        return f"Propensities are known, from column {request.propensity!r}. "
    if request.propensity is not None:
        return f"The propensity is known to be {request.propensity:g}. "
    if not request.asked.divides:
        return "Nothing is divided by a propensity, and none is cut. "
    low, high = propensity_limits(request, clip)
    soft = min(PRIORS.residual_clip, clip)
    if (low, high) == (soft, 1 - soft):
        return f"Propensities are cut to [{limit_words(low)}, {limit_words(high)}]. "
    return (
        f"Propensities are cut to [{limit_words(low)}, {limit_words(high)}] where a score "
        f"divides by them, and to [{limit_words(soft)}, {limit_words(1 - soft)}] elsewhere. "
    )


def _weight_text(estimate: Estimate) -> str:
    found = estimate.averages
    if found is None or not np.isfinite(found.weight):
        return ""
    most = (
        f"no row weighs more than {found.weight:g} times what it does in a difference of means"
        if found.weight > 1
        else "rows weigh what they do in a difference of means, and the mean outcome alone adjusts"
    )
    return (
        f"In the average effect {most}: least predicted error by released numbers, whose bias is "
        "in the allowance for nuisances. "
    )


TAILS = {
    "cubic": "Tails that noise hides are taken to fall as 1/x^{index:.0f} or faster.",
    "any": "What noise hides may lie anywhere within the bounds.",
}


def tails(estimate: Estimate) -> tuple[str, ...]:
    """What the bound of the bias of cut scores rests on; nothing where none were cut."""
    found, request = estimate.averages, estimate.plan.request
    if found is None or not found.clipping[0] > 0 or request.mode == "paper":
        return ()
    return (TAILS[request.tails].format(index=INDEX),)


SHOWN, LEAST = 5, 0.1
"""Largest number of products that are named, and the least size of one against the largest."""


def _products_note(estimate: Estimate) -> str:
    """Names products in the effect, with the sd of what each adds beyond what is additive.

    It is that of all products of two terms together, levels too, over the released population.
    """
    found: dict[str, float] = {}
    for piece in estimate.effect.pieces if isinstance(estimate.effect, Effect) else ():
        psi = piece.additive.features
        if isinstance(psi, Interactions):
            parts = estimate.population.rows().phi(psi) * piece.additive.coef
            names = np.array(psi.names)
            found = {n: float(parts[:, names == n].sum(axis=1).std()) for n in psi.names}
    if not found:
        return ""
    largest = max(found.values())
    kept = sorted((n for n in found if found[n] >= LEAST * largest), key=lambda n: -found[n])
    named = ", ".join(f"{name} (sd {found[name]:.2g})" for name in kept[:SHOWN])
    more = " and smaller ones" if len(kept) > SHOWN else ""
    return (
        f"The effect has products of modifiers, as the moments say: "
        f"{named}{more}. Effects by modifier are averages over the others."
    )
