"""Private linear regression: a first fit, then whitened moments of the columns and its residuals.

The private version of ``smf.ols("Y ~ X", data).fit()``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privcausal import vault
from privcausal.estimators import bases, budget, survey, words
from privcausal.estimators.base import Learner
from privcausal.estimators.clusters import ClusterScore, cluster_needs, with_dependence
from privcausal.estimators.weights import with_weights
from privcausal.features import basis
from privcausal.features.functions import Additive, Constant
from privcausal.inference.alerts import collinear
from privcausal.inference.averages import AverageEstimate
from privcausal.inference.least_squares import (
    Released,
    ResidualTail,
    Rest,
    estimate_coefficients,
    indicator_equations,
    outliers_matter,
    row_clip,
    row_edges,
    second_fit,
    whitening,
)
from privcausal.inference.ranges import LookCounts, outcome_edges, read_look, visible_cells
from privcausal.inference.regression import Moments, least_squares
from privcausal.request.plan import StageKey
from privcausal.request.request import Request
from privcausal.request.schema import Interval
from privcausal.typing import Integers, Matrix, Vector

ROW_SIZES = StageKey("effect", "sizes of rows")
SECOND_MOMENTS = StageKey("effect", "moments")
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
            budget.StageWeight(budget.Stages.MARGINALS, budget.SHARES.regress_marginals),
            budget.StageWeight(budget.Stages.GRAM, budget.SHARES.regress_first_moments),
            budget.StageWeight(ROW_SIZES, budget.SHARES.regress_sizes),
            budget.StageWeight(budget.Stages.RESIDUAL_SIZES, budget.SHARES.regress_sizes),
            budget.StageWeight(SECOND_MOMENTS, budget.SHARES.regress_second_moments),
        ]
        if not survey.is_binary(request):
            needs.append(
                budget.StageWeight(budget.Stages.OUTCOME_RANGE, budget.SHARES.regress_range)
            )
        if request.cov_type != "nonrobust":
            needs.append(budget.StageWeight(MEAT, budget.SHARES.regress_meat))
        needs += survey.weight_needs(request, budget.SHARES.row_weights)
        return [*needs, *cluster_needs(request)]

    def accepted(self, base: bases.AnyBase) -> bases.PrivateBase:
        return bases.Linear()

    def run(self, session: survey.FitRun) -> words.Estimate:
        looks = {budget.Stages.OUTCOME_RANGE: outcome_edges}
        state = survey.prepare(session, linear_terms=False, modelled=True, looks=looks)
        found = _second_fit(state, _first_fit(state, *_outcome(state)))
        return session.finished(state.design, state.population, averages=found)

    @classmethod
    def describe(cls, estimate: words.Estimate) -> words.Description:
        request = estimate.plan.request
        robust, found = request.cov_type != "nonrobust", estimate.averages
        robust |= request.cluster is not None
        return words.Description(
            title=cls.title if request.weights is None else "weighted least squares",
            rows=(
                ("Covariance", request.cov_type),
                *(() if found is None else (("R-squared (noisy)", f"{found.r2:.3f}"),)),
            ),
            reading=(COEFFICIENT_READING,),
            assumptions=(
                PROJECTION,
                *(() if robust else (HOMOSKEDASTIC,)),
                CLIPPED_ROWS,
                words.BOUNDED,
            ),
            methods=(*REGRESSION_METHODS, words.MISSING),
            adjusts=False,
            stages=(("nuisance", "first fit"), ("effect", "coefficients")),
        )


COEFFICIENT_READING = (
    "Coefficients are associations: each compares rows that differ in one column and are equal in "
    "the others. A coefficient is a causal effect only if no other variable confounds its column."
)

LONG_TAIL = (
    "{outcome!r} has a long tail. Intervals are wide, because they allow for all outliers at one "
    "end of the columns. {advice}"
)
LOGARITHM = "Use its logarithm as the outcome."
OTHERWISE = "Use more rows or budget, or an outcome with fewer outliers."

LOG_SPREAD = 0.5
"""Residual sd as a share of the mean, above which the logarithm of an amount changes its tail."""


def _advice(state: survey.Survey, middle: float, sd: float) -> str:
    """Advice on a long tail; the logarithm, if the outcome is not negative and not one already."""
    amount = state.outcome.lo >= 0 and sd > LOG_SPREAD * middle
    logged = re.match(r"(\w+\.)?(log|ln)(\d|_|\b|p)", state.session.plan.request.formula.outcome)
    return LOGARITHM if amount and not logged else OTHERWISE


COLLINEAR = (
    "Collinear columns: {names}. Released moments cannot tell each of them from a linear function "
    "of other columns, so their coefficients are imprecise. Leave one of them out.",
    "Nearly constant columns: {names}. Leave them out, or declare narrower bounds.",
)

PROJECTION = (
    "Coefficients describe the best linear prediction of the outcome in the sampled population. "
    "The outcome need not be linear in the columns."
)

HOMOSKEDASTIC = (
    "Equal variances: the residual variance is the same at all values of the columns "
    "(cov_type='nonrobust'). control=pc.Control(cov_type='HC1') avoids this assumption."
)

CLIPPED_ROWS = (
    "Rows at a large distance from the center get less weight; the distance includes the residual. "
    "The interval has an allowance for the resulting bias. For residuals beyond four sds it is the "
    "worst case, if their columns have the usual distance from the center. For other rows it was "
    "chosen on public data sets and is not a bound. Elliptically distributed rows have zero bias."
)

REGRESSION_METHODS = (
    f"The estimator was least squares in two steps. {words.SUMS}",
    "The first step learned the scales and correlations of the columns and a first fit. The second "
    "step released one matrix of moments of the whitened columns and the residuals, with rows "
    "downweighted beyond a clipping limit of their norm. The limit follows from released "
    "histograms of the norms of the columns and of the sizes of the residuals.",
    "Coefficients are means over random draws of the moments without noise, held to positive "
    "definite matrices, and their standard errors combine sampling and the spread of the draws. "
    "Confidence intervals and p-values include an allowance for the bias of downweighting.",
)


def _outcome(state: survey.Survey) -> tuple[float, float, bool]:
    """Mean and sd of the outcome, from its detected values and the rows that noise hides.

    If most rows are at single values, these do not show the spread of the others. The sd then
    comes from a uniform distribution over the window of the outcome, and the last value is True.
    """
    release = survey.outcome_histogram(state, budget.Stages.OUTCOME_RANGE)
    lo, hi = state.outcome.lo, state.outcome.hi
    if release is None:
        return 0.5 * (lo + hi), 0.5 * (hi - lo), False
    counts, noise_sd = release.value, float(release.noise_sd[0])
    look = read_look(counts, noise_sd, Interval(lo, hi))
    even = look.window.width / math.sqrt(12)
    ends = lo + np.r_[0.0, outcome_edges(Interval(lo, hi))]
    held = np.where(visible_cells(counts, noise_sd, 1), np.maximum(counts, 0.0), 0.0)
    if look.mostly or not look.scaled or np.count_nonzero(held) < 2:
        return look.window.mid, even, True
    at, mass = 0.5 * (ends[1:] + ends[:-1]), held / held.sum()
    middle = float(mass @ at)
    hidden = max(1 - float(held.sum() / max(counts.sum(), 1.0)), 0.0)
    variance = (1 - hidden) * float(mass @ (at - middle) ** 2) + hidden * even**2
    return middle, math.sqrt(variance), False


@dataclass(frozen=True, eq=False)
class _First:
    """The first fit: its coefficients of the features, and the whitened columns.

    `spread` are the sds that whitening gives to the columns, and `sd` is the residual sd. `even`:
    most outcomes are at single values.
    """

    eta: Additive
    residual: vault.OutcomeResidual
    turned: basis.Turned
    spread: Vector
    sd: float
    even: bool


def _first_fit(state: survey.Survey, middle: float, sd: float, even: bool) -> _First:
    outcome, features = state.outcome, state.features
    response = vault.OutcomeResidual(Constant(middle), outcome)
    scale = _scale(features.cut, sd)
    row = vault.RegressionRow(features, response, scale, _survey(state, root=True))
    query = vault.RegressionMoments(row, float(np.hypot(features.cut, scale * sd)))
    release = state.session.release(budget.Stages.GRAM, query)
    moments, noise = query.matrix(release.value), survey.off_diagonal_sd(query, release)
    gram = survey.shrunken_gram(state, moments[:-1, :-1], noise)
    rows = max(float(gram.value[0, 0]), 1.0)
    floor, top = (LEAST_RESIDUAL * sd) ** 2, sd**2
    variance = float(np.clip(moments[-1, -1] / scale**2 / rows, floor, top))
    fit = least_squares(
        Moments(gram.value, moments[:-1, -1] / scale, gram.sd, noise / scale, variance),
        np.full(features.size, sd),
    )
    explained = max(float(fit.mean @ gram.value @ fit.mean) / rows - fit.mean[0] ** 2, 0.0)
    left = variance - explained
    eta = Additive(features, fit.mean, middle)
    turn = whitening(gram.value, gram.sd, rows)
    spread = _spread(state, turn)
    return _First(
        eta, _residual(features, eta, outcome), basis.Turned(features, turn * spread, np.inf),
        spread, float(np.sqrt(np.clip(left, floor, top))), even,
    )  # fmt: skip


LEAST_RESIDUAL = 0.3
"""Least residual sd of the first fit, relative to the outcome's sd. A guard."""

RESPONSE_SHARE = 0.15
"""Mean square of the response relative to the mean squared norm of the columns. Public data."""


def _scale(usual: float, sd: float) -> float:
    """t, from the usual norm of the columns and the sd of the response."""
    return usual * math.sqrt(RESPONSE_SHARE) / sd


def _spread(state: survey.Survey, turn: Matrix) -> Vector:
    """Scales of the whitened columns, at most 1, so that rare levels do not set the norm.

    A rare level has a large distance from the mean: at a share of 1%, ten sds. Its column is scaled
    down until the distance equals the norm of all other columns.
    """
    columns = state.design.columns
    rare = [columns[b.column].kind == "indicator" for b, _ in state.features.owner]
    far = np.abs(state.rows.phi(state.features) @ turn).max(axis=0)
    root = np.sqrt(len(far))
    return np.where([False, *rare], np.minimum(1.0, root / np.maximum(far, 1e-9)), 1.0)


def _residual(
    features: basis.FeatureMap, eta: Additive, outcome: vault.Outcome
) -> vault.OutcomeResidual:
    """Y - eta, with a range that contains both: eta is not clipped to the outcome's bounds."""
    far = float(np.abs(eta.coef) @ features.ends)
    lo, hi = min(outcome.lo, eta.offset - far), max(outcome.hi, eta.offset + far)
    return vault.OutcomeResidual(eta, vault.Outcome(lo, hi))


def _second_fit(state: survey.Survey, first: _First) -> AverageEstimate:
    session, request = state.session, state.session.plan.request
    tail = ResidualTail(2 * state.outcome.bound, first.even, request.tails == "any")
    count = max(state.population.count, 1.0)
    usual, root = float(np.linalg.norm(first.spread)), _survey(state, root=True)
    columns = vault.RegressionRow(first.turned, first.residual, 0.0, root)
    residual = vault.TransformProduct(root, first.residual) if root else first.residual
    change = math.sqrt(2.0) if request.trust.neighbors == "substitute" else 1.0
    # an entry off the diagonal has the weight sqrt(2) in the norm of the whole matrix
    unit = session.noise_sd(SECOND_MOMENTS, change) / math.sqrt(2.0) / count
    of = {ROW_SIZES: (columns, usual), budget.Stages.RESIDUAL_SIZES: (residual, first.sd)}
    rows, residuals = _sizes(state, of)
    clip = row_clip(rows, residuals, unit, usual, first.sd, count, tail)
    if outliers_matter(residuals):
        advice = _advice(state, first.eta.offset, first.sd)
        session.alerts["tail"] = LONG_TAIL.format(outcome=request.formula.outcome, advice=advice)
    row = replace(columns, scale=clip.scale)
    lift, own = _natural(state, first)
    query = vault.RegressionMoments(row, clip.at)
    release = session.release(SECOND_MOMENTS, query)
    found = Released(
        query.matrix(release.value) / count, survey.off_diagonal_sd(query, release) / count,
        np.r_[first.spread, clip.scale * clip.sd], clip, count,
        equations=indicator_equations(lift, _factors(state)),
    )  # fmt: skip
    _look_at_columns(state, found, lift)
    rest = second_fit(found)
    if request.cov_type != "nonrobust":
        found = _with_meat(state, first, row, found, rest)
    bias = clip.bias
    if session.beyond is not None:  # Add the bias beyond estimated bounds.
        bias += clip.at * session.beyond.lost / count
    names = ("Intercept", *(c.name for c in state.design.columns))
    out = estimate_coefficients(names, own, lift, found, rest, bias)
    scores = [] if request.cluster is None else _influences(state, first, found, rest, out, lift)
    return with_weights(state, with_dependence(session, out, scores, len(names)))


def _look_at_columns(state: survey.Survey, found: Released, lift: Matrix) -> None:
    """Note collinear and constant columns. Absent levels have an alert of their own."""
    columns = state.design.columns
    half = np.array([0.0 if c.kind == "indicator" else 1 / c.per_unit for c in columns])
    own = found.moments[:-1, :-1]
    for mask, text in zip(collinear(own, found.noise_sd, lift, half), COLLINEAR, strict=True):
        if mask.any():
            names = words.listed([c.name for c, one in zip(columns, mask, strict=True) if one])
            state.session.note((("collinear", text.format(names=names)),))


def _sizes(
    state: survey.Survey, of: Mapping[StageKey, tuple[vault.Transform, float]]
) -> list[LookCounts]:
    """Counts of the sizes of transforms, with their usual sizes."""
    asked = {
        stage: vault.SizeHistogram(one, row_edges(usual, one.bound), stage.query)
        for stage, (one, usual) in of.items()
    }
    state.session.gather(dict(asked))
    found = [state.session.release(stage, query) for stage, query in asked.items()]
    ends = [np.r_[0.0, query.edges] for query in asked.values()]
    return [LookCounts(f.value, float(f.noise_sd[0]), e) for f, e in zip(found, ends, strict=True)]


def _survey(state: survey.Survey, *, root: bool = False) -> vault.SurveyWeight | None:
    law = state.weights
    return None if law is None else vault.SurveyWeight(law.column, law.top, root)


def _with_meat(
    state: survey.Survey, first: _First, row: vault.RegressionRow, found: Released, rest: Rest
) -> Released:
    """Add the squared residuals of the second fit, at all columns."""
    residual, most = _left(state, first, rest), found.clip.at**2 / 2 / row.scale
    score = vault.RegressionScore(row, found.clip.at, residual, most)
    share = vault.TransformProduct(score, vault.OfCovariates(Constant(1 / most), 1 / most))
    meat = vault.Gram(basis.Directions(first.turned), share)
    release, unit = state.session.release(MEAT, meat), most**2 / found.rows
    if state.session.plan.request.cov_type == "HC1":
        unit *= found.rows / max(found.rows - len(rest.mean), 1.0)
    matrix, sd = meat.matrix(release.value), survey.off_diagonal_sd(meat, release)
    return replace(found, meat=unit * matrix, meat_sd=unit * sd)


def _left(state: survey.Survey, first: _First, rest: Rest) -> vault.OutcomeResidual:
    """Residuals of the second fit."""
    coef = first.eta.coef + first.turned.turn @ rest.mean
    return _residual(
        state.features, Additive(state.features, coef, first.eta.offset), state.outcome
    )


INFLUENCE_CUT = 5.0
"""Largest influence of a row on a coefficient in squared cluster sums, in root mean squares of the
influences. Normal columns and residuals exceed it for three rows in a thousand. By hand."""


def _influences(
    state: survey.Survey,
    first: _First,
    found: Released,
    rest: Rest,
    out: AverageEstimate,
    lift: Matrix,
) -> list[ClusterScore]:
    """Influences of rows on each coefficient, times the number of rows."""
    row = vault.RegressionRow(
        first.turned, first.residual, found.clip.scale, _survey(state, root=True)
    )
    n, left, scores = found.rows, _left(state, first, rest), []
    most = INFLUENCE_CUT if out.privacy.any() else np.inf
    for by, variance in zip(lift @ rest.inverse, np.diag(out.sampling), strict=True):
        cut = float(min(most, np.sqrt(n)) * np.sqrt(n * variance))  # No influence exceeds sqrt(n).
        score = vault.RegressionScore(row, found.clip.at, left, cut)
        own = vault.CutScore(vault.RegressionInfluence(score, by), cut)
        scores.append(ClusterScore(own, 0, n, n))
    return scores


def _factors(state: survey.Survey) -> Integers:
    """Number of the factor of each indicator, -1 for all other columns and the intercept."""
    terms = [c.term if c.kind == "indicator" else "" for c in state.design.columns]
    order = dict.fromkeys(terms)
    numbers = {term: i for i, term in enumerate(order) if term}
    return np.array([-1, *(numbers.get(term, -1) for term in terms)])


def _natural(state: survey.Survey, first: _First) -> tuple[Matrix, Vector]:
    """Map from whitened to natural coefficients, shape (k, p), and the first fit, shape (k,)."""
    columns, blocks = state.design.columns, state.features.blocks
    out = np.zeros((1 + len(columns), state.features.size))
    out[0, 0] = 1.0
    for j, block in enumerate(blocks, 1):
        column = columns[block.column]
        slope = block.gain * column.per_unit
        out[1 + block.column, j] = slope
        out[0, j] = -slope * column.middle - block.gain * block.shift
    own = out @ first.eta.coef
    own[0] += first.eta.offset
    return out @ first.turned.turn, own
