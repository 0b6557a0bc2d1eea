"""Private linear regression: a first fit with wide clips, then residual moments with narrow clips.

The private version of ``smf.ols("Y ~ X", data).fit()``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privcausal import vault
from privcausal.estimators import bases, budget, survey, words
from privcausal.estimators.base import Learner
from privcausal.features import basis
from privcausal.features.functions import Additive, Constant
from privcausal.inference.averages import AverageEstimate, with_design_effect
from privcausal.inference.cuts import Sizes, score_edges
from privcausal.inference.least_squares import (
    Released,
    estimate_coefficients,
    least_seen,
    whitening,
)
from privcausal.inference.priors import PRIORS
from privcausal.inference.ranges import outcome_edges
from privcausal.inference.regression import Moments, least_squares
from privcausal.request.plan import StageKey
from privcausal.request.request import Request
from privcausal.request.schema import Interval
from privcausal.typing import Matrix, Vector

ROW_SIZES = StageKey("effect", "sizes of rows")
SIZE_STAGES = (ROW_SIZES, budget.Stages.RESIDUAL_SIZES, budget.Stages.SCORE_SIZES)
REGRESSION_MOMENTS = StageKey("effect", "moments")
SQUARES = StageKey("effect", "squared residuals", heading="variance")
MEAT = StageKey("effect", "squared residual moments", heading="variance")


@dataclass(frozen=True)
class LeastSquares(Learner):
    """Ordinary or weighted least squares with private coefficients and standard errors."""

    name: ClassVar[str] = "regress"
    title: ClassVar[str] = "least squares"
    whole: ClassVar[str] = "a regression has no nuisance models"
    shares: ClassVar[Mapping[str, float]] = {
        "bounds": budget.SHARES.top_bounds,
        "nuisance": budget.SHARES.regress_first,
        "effect": budget.SHARES.regress_moments,
    }

    def needs(self, request: Request, base: bases.PrivateBase) -> list[budget.StageWeight]:
        needs = [
            budget.StageWeight(budget.Stages.MARGINALS, budget.SHARES.private_marginals),
            budget.StageWeight(budget.Stages.GRAM, budget.SHARES.regress_rough_gram),
            budget.StageWeight(budget.Stages.OUTCOME, budget.SHARES.regress_rough_outcome),
            budget.StageWeight(budget.Stages.RESIDUAL_SIZES, budget.SHARES.regress_sizes),
            budget.StageWeight(ROW_SIZES, budget.SHARES.regress_sizes),
            budget.StageWeight(budget.Stages.SCORE_SIZES, budget.SHARES.regress_scores),
            budget.StageWeight(REGRESSION_MOMENTS, budget.SHARES.regress_gram),
            budget.StageWeight(budget.Stages.RESIDUALS, budget.SHARES.regress_cross),
            budget.StageWeight(SQUARES, budget.SHARES.regress_squares),
        ]
        if not survey.is_binary(request):
            needs.append(
                budget.StageWeight(budget.Stages.OUTCOME_RANGE, budget.SHARES.private_marginals)
            )
        if request.cov_type == "HC0":
            needs.append(budget.StageWeight(MEAT, budget.SHARES.regress_meat))
        return needs

    def accepted(self, base: bases.AnyBase) -> bases.PrivateBase:
        return bases.Linear()

    def run(self, session: survey.FitRun) -> words.Estimate:
        looks = {budget.Stages.OUTCOME_RANGE: outcome_edges}
        state = survey.prepare(session, linear_terms=False, looks=looks)
        state = survey.look_at_outcome(state, budget.Stages.OUTCOME_RANGE)
        rough = _first_fit(state)
        found = _second_fit(state, rough)
        lost = [t for t, b in zip(found.terms, found.estimate, strict=True) if np.isnan(b)]
        if lost:
            session.alerts["columns"] = LOST.format(names=words.listed(lost))
        return words.Estimate(
            session.plan, session.schema, state.design, state.population, None, None, found,
            tuple(session.releases), session.vault.size, session.vault.real_noise,
            alerts=tuple(session.alerts.items()),
        )  # fmt: skip

    @classmethod
    def describe(cls, estimate: words.Estimate) -> words.Description:
        request = estimate.plan.request
        weighted = () if request.weights is None else (("Weights", request.weights),)
        robust = request.cov_type == "HC0"
        return words.Description(
            title="weighted least squares" if weighted else cls.title,
            rows=(("Covariance", "HC0" if robust else "nonrobust"), *weighted),
            reading=(COEFFICIENT_READING,),
            assumptions=(
                PROJECTION,
                *(() if robust else (HOMOSKEDASTIC,)),
                FAR_ROWS,
                words.BOUNDED,
            ),
            methods=(*REGRESSION_METHODS, *words.tails(estimate), words.MISSING),
            adjusts=False,
            stages=(("nuisance", "first fit"), ("effect", "coefficients")),
        )


COEFFICIENT_READING = (
    "Coefficients are associations: each compares rows that differ in one column and are equal in "
    "the others. A coefficient is a causal effect only if no other variable confounds its column."
)

LOST = (
    "No estimate for {names}: noise prevents separating these columns from the others. Use more "
    "rows or budget, fewer columns, or products of scale(x) instead of x."
)

PROJECTION = (
    "Coefficients describe the best linear prediction of the outcome in the sampled population. "
    "The outcome need not be linear in the columns."
)

HOMOSKEDASTIC = (
    "Equal variances: the residual variance is the same at all values of the columns "
    "(cov_type='nonrobust'). control=pc.Control(cov_type='HC0') avoids this assumption."
)

FAR_ROWS = (
    "Outlying rows that the noise hides are downweighted. The interval allows for a mean residual "
    "of at most one standard deviation among these rows."
)

REGRESSION_METHODS = (
    f"The estimator was least squares in two steps. {words.SUMS}",
    "The first step used wide clipping limits to learn the scales and correlations of the columns "
    "and to center the outcome. The second step released moments of the whitened columns and of "
    "the residuals with narrow clipping limits.",
    "Coefficients are not shrunk. Standard errors combine sampling and the privacy noise on both "
    "sides of the normal equations. Confidence intervals and p-values allow for the largest bias "
    "that clipped residuals and outlying rows can cause (Armstrong and Kolesár 2018).",
)


@dataclass(frozen=True, eq=False)
class _Rough:
    """The first fit: coefficients of the features, and the whitening of their rows."""

    eta: Additive
    residual: vault.OutcomeResidual
    turned: basis.Turned


def _first_fit(state: survey.Survey) -> _Rough:
    outcome = state.outcome
    seen = state.look.window if state.look is not None else Interval(outcome.lo, outcome.hi)
    window = vault.Outcome(seen.lo, seen.hi)
    target = vault.OutcomeResidual(Constant(seen.mid), outcome)
    crosses = {budget.Stages.OUTCOME: vault.Cross(state.features, target, window.bound, "outcome")}
    state, grams = survey.gram_of(state, dict(crosses))
    session, gram = state.session, grams.whole
    release = session.release(budget.Stages.OUTCOME, crosses[budget.Stages.OUTCOME])
    spread = np.full(state.features.size, window.bound)
    variance = (0.5 * window.bound) ** 2
    sd = float(release.noise_sd[0])
    fit = least_squares(Moments(gram.value, release.value, gram.sd, sd, variance), spread)
    eta = Additive(state.features, fit.mean, seen.mid)
    rows = max(float(gram.value[0, 0]), 1.0)
    turned = basis.Turned(state.features, whitening(gram.value, gram.sd, rows), np.inf)
    return _Rough(eta, _residual(state.features, eta, outcome), turned)


def _residual(
    features: basis.FeatureMap, eta: Additive, outcome: vault.Outcome
) -> vault.OutcomeResidual:
    """Y - eta, with a range that contains both: eta is not clipped to the outcome's bounds."""
    ends = np.array([1.0, *(b.reach for b, _ in features.owner)])
    far = float(np.abs(eta.coef) @ ends)
    lo, hi = min(outcome.lo, eta.offset - far), max(outcome.hi, eta.offset + far)
    return vault.OutcomeResidual(eta, vault.Outcome(lo, hi))


def _second_fit(state: survey.Survey, rough: _Rough) -> AverageEstimate:
    session, request = state.session, state.session.plan.request
    turned, residual = rough.turned, rough.residual
    anywhere, count = request.tails == "any", max(state.population.count, 1.0)
    norm = vault.FeatureNorm(turned, turned.reach)
    far, spread = _sizes(state, {ROW_SIZES: norm, budget.Stages.RESIDUAL_SIZES: residual})
    turned = replace(turned, cut=norm.bound if anywhere else _norm_cut(state, far, turned.size))
    # Sensitivity of the normal equations to one row, along a vector of norm one.
    score = vault.TransformProduct(vault.FeatureNorm(turned, turned.cut), residual)
    (scores,) = _sizes(state, {budget.Stages.SCORE_SIZES: score})
    unit = vault.VectorScores(score, 1.0, basis.Directions(turned), "")
    change = unit.sensitivity(request.trust.neighbors)
    noise = session.noise_sd(budget.Stages.RESIDUALS, change, float(unit.units[0])) / count
    # The root mean square norm of whitened rows is the square root of their length.
    sparse = state.look is not None and state.look.mostly
    least = state.look.reach * float(np.sqrt(turned.size)) if state.look and sparse else 0.0
    cut = scores.cut(noise, count, least, anywhere=anywhere)
    found = _moments(state, turned, residual, score, (cut.at, 2 * spread.reach))
    lift, first = _natural(state, rough)
    names = ("Intercept", *(c.name for c in state.design.columns))
    floor = PRIORS.least_square * spread.rms(2 * spread.reach) ** 2
    if request.cov_type == "HC0":
        found = _with_meat(state, rough, turned, found)
    bias = cut.bias
    if session.beyond is not None:  # Add the bias beyond estimated bounds.
        bias += turned.cut * session.beyond.lost / count
    out = estimate_coefficients(names, first, lift, found, bias, count, floor)
    return with_design_effect(out, request.trust.max_rows)


def _norm_cut(state: survey.Survey, far: Sizes, size: int) -> float:
    """Clip of the rows' norms: the largest detected norm.

    The noise of the Gram matrix grows with the square of the clip. If this noise would hide rows of
    usual norm in all directions, cells that may be false detections are ignored.
    """
    session, cut = state.session, far.reach
    change = math.sqrt(2.0) if session.plan.request.trust.neighbors == "substitute" else 1.0
    noise = session.noise_sd(REGRESSION_MOMENTS, change) * cut**2
    hidden = least_seen(noise, size) > MOST_LOST * state.population.count
    return far.sure if hidden else cut


MOST_LOST = 0.5
"""Share of the rows that the noise of a whitened Gram matrix may hide in any direction."""


def _sizes(state: survey.Survey, of: Mapping[StageKey, vault.Transform]) -> list[Sizes]:
    asked = {k: vault.SizeHistogram(t, score_edges(t.bound), k.query) for k, t in of.items()}
    state.session.gather(dict(asked))
    found = []
    for stage, query in asked.items():
        release = state.session.release(stage, query)
        found.append(
            Sizes(release.value, float(release.noise_sd[0]), query.edges, len(SIZE_STAGES))
        )
    return found


def _moments(
    state: survey.Survey,
    turned: basis.Turned,
    residual: vault.Transform,
    score: vault.Transform,
    cuts: tuple[float, float],
) -> Released:
    """Run the second release, with survey weights divided by the largest weight."""
    session, root = state.session, _survey(state, root=True)
    weight = _survey(state)
    gram = vault.Gram(turned, root)
    cross = vault.VectorScores(_times(weight, score), cuts[0], basis.Directions(turned), "residual")
    size = vault.CutScore(_times(root, residual), cuts[1])
    squares = vault.ScoreSquares(size, vault.Regressors(state.linear, 0, 0))
    asked = {REGRESSION_MOMENTS: gram, budget.Stages.RESIDUALS: cross, SQUARES: squares}
    session.gather(dict(asked))
    g, c, s = (session.release(stage, query) for stage, query in asked.items())
    return Released(
        gram.matrix(g.value), c.value, float(s.value[0]),
        survey.off_diagonal_sd(gram, g), float(c.noise_sd[0]), float(s.noise_sd[0]), cuts[0],
    )  # fmt: skip


def _survey(state: survey.Survey, *, root: bool = False) -> vault.SurveyWeight | None:
    name = state.session.plan.request.weights
    if name is None:
        return None
    domain = state.session.schema[name]
    assert isinstance(domain, Interval)
    return vault.SurveyWeight(name, domain.hi, root)


def _times(weight: vault.Transform | None, score: vault.Transform) -> vault.Transform:
    return score if weight is None else vault.TransformProduct(weight, score)


def _with_meat(
    state: survey.Survey, rough: _Rough, turned: basis.Turned, found: Released
) -> Released:
    """Add the squared residuals of the second fit, at all columns."""
    coef = rough.eta.coef + turned.turn @ found.solution[0]
    eta = Additive(state.features, coef, rough.eta.offset)
    residual = _residual(state.features, eta, state.outcome)
    score = _times(
        _survey(state), vault.TransformProduct(vault.FeatureNorm(turned, turned.cut), residual)
    )
    share = vault.TransformProduct(
        score, vault.OfCovariates(Constant(1 / found.cut), 1 / found.cut)
    )
    meat = vault.Gram(basis.Directions(turned), share)
    release, whole = state.session.release(MEAT, meat), found.cut**2
    matrix, sd = meat.matrix(release.value), survey.off_diagonal_sd(meat, release)
    return replace(found, meat=whole * matrix, meat_sd=whole * sd)


def _natural(state: survey.Survey, rough: _Rough) -> tuple[Matrix, Vector]:
    """Map from whitened to natural coefficients, shape (k, p), and the first fit's, shape (k,)."""
    columns, blocks = state.design.columns, state.features.blocks
    out = np.zeros((1 + len(columns), state.features.size))
    out[0, 0] = 1.0
    for j, block in enumerate(blocks, 1):
        column = columns[block.column]
        slope = block.gain * column.per_unit
        out[1 + block.column, j] = slope
        out[0, j] = -slope * column.middle - block.gain * block.shift
    first = out @ rough.eta.coef
    first[0] += rough.eta.offset
    return out @ rough.turned.turn, first
