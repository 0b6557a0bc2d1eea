"""Private linear regression: a first fit, then whitened moments of the columns and its residuals.

The private version of ``smf.ols("Y ~ X", data).fit()``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from privcausal import vault
from privcausal.errors import DataError
from privcausal.estimators import bases, budget, survey, words
from privcausal.estimators.averages import with_weights
from privcausal.estimators.base import Learner
from privcausal.estimators.budget import Use
from privcausal.estimators.clusters import CLUSTER_USE, ClusterScore, with_dependence
from privcausal.features import basis
from privcausal.features.basis import FeatureMap
from privcausal.features.functions import Additive, Constant
from privcausal.inference import least_squares as ls
from privcausal.inference.alerts import collinear
from privcausal.inference.averages import AverageEstimate
from privcausal.inference.ranges import LookCounts, outcome_edges, sparse, visible_cells
from privcausal.request.plan import StageKey
from privcausal.request.schema import Interval
from privcausal.request.terms import ResultTerm
from privcausal.typing import Matrix, Vector

FIRST_SIZES = StageKey("effect", "residual sizes")
ROW_SIZES = StageKey("effect", "sizes of rows")
SECOND_MOMENTS = StageKey("effect", "moments")
OUTLIERS = StageKey("effect", "outliers")
MEAT = StageKey("effect", "squared residual moments", heading="variance")


@dataclass(frozen=True)
class LeastSquares(Learner):
    """Ordinary or weighted least squares with private coefficients and standard errors."""

    name: ClassVar[str] = "regress"
    title: ClassVar[str] = "least squares"
    whole: ClassVar[str] = "a regression has no nuisance models"
    shares: ClassVar[Mapping[str, float]] = {
        "bounds": budget.TOP_BOUNDS,
        "nuisance": 0.2,  # Everything before the whitened moments. Public data.
        "effect": 0.8,  # The coefficients themselves. Public data.
    }
    uses: ClassVar[tuple[Use, ...]] = (
        Use(survey.MARGINALS, 0.035, "Centers and scales of the columns: the first fit depends on "
            "them. Public data."),
        Use(budget.GRAM, 0.15, "The first fit whitens columns and centers the outcome. Public "
            "data."),
        Use(survey.OUTCOME_RANGE, 0.02, "One histogram: center and scale of the outcome. Public "
            "data."),
        Use(FIRST_SIZES, 0.0675, "The maximum bias by clipping falls with its noise. Public "
            "data."),
        Use(ROW_SIZES, 0.0225, "A third of the residuals' weight: leverage has shorter tails. "
            "Public data."),
        Use(OUTLIERS, 0.03, "The directions of clipped residuals. Public data."),
        Use(SECOND_MOMENTS, 0.655, "The coefficients. Public data."),
        Use(MEAT, 0.02, "The residual variance at all columns, if requested. By hand.",
            lambda request, _: request.cov_type != "nonrobust"),
        Use(budget.ROW_WEIGHTS, 0.02, "As much as for the outcome's range. By hand.",
            budget.weighted),
        CLUSTER_USE,
    )  # fmt: skip

    def accepted(self, base: bases.AnyBase) -> bases.PrivateBase:
        return bases.Linear()

    def run(self, session: survey.FitRun) -> words.Estimate:
        looks = {survey.OUTCOME_RANGE: outcome_edges}
        state = survey.prepare(session, linear_terms=False, looks=looks)
        found = _second_fit(state, _first_fit(state))
        return session.finished(state.design, state.population, averages=found)

    @classmethod
    def describe(cls, estimate: words.Estimate) -> words.Description:
        request = estimate.plan.request
        robust, found = request.cov_type != "nonrobust", estimate.averages
        robust |= request.cluster is not None
        r2 = np.nan if found is None else found.r2
        explained = f"{r2:.3f}" if np.isfinite(r2) else "hidden by noise"
        return words.Description(
            title=cls.title,
            rows=(
                ("Covariance", request.cov_type),
                *(() if found is None else (("R-squared (noisy)", explained),)),
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
    "{outcome!r} has a long tail, or its bounds are far too wide. Intervals are wide, because they "
    "allow for the residuals that are clipped. Declare narrower bounds if its values allow it. "
    "{advice}"
)
LOGARITHM = "Use its logarithm as the outcome."
OTHERWISE = "Use more rows or budget, or an outcome with fewer outliers."

LOG_SPREAD = 0.5
"""Residual sd as a share of the mean, above which the logarithm of an amount changes its tail."""


def _advice(state: survey.Survey, first: _First) -> str:
    """Advice on a long tail; the logarithm, if the outcome is not negative and not one already."""
    amount = state.outcome.lo >= 0 and first.fit.scale > LOG_SPREAD * first.middle
    logged = re.match(r"(\w+\.)?(log|ln)(\d|_|\b|p)", state.session.plan.request.formula.outcome)
    return LOGARITHM if amount and not logged else OTHERWISE


ISOLATED = (
    "A few rows at a large distance from all others determine coefficients. Declare "
    "narrower bounds for columns with a long tail, or transform these columns."
)

CLIPPING = (
    "Clipping may bias {names} by more than two standard errors. The intervals allow for this bias."
)

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
    "Large residuals, and rows at a large distance from the center, are clipped. The interval "
    "allows for the resulting bias. Beyond the largest detected residuals, sizes fall as the "
    "Weibull distributions that fit the detected sizes. Distant rows are on average near the "
    "line that fits the other rows."
)

REGRESSION_METHODS = (
    f"The estimator was least squares in two steps. {words.SUMS}",
    "The first step learned the scales and correlations of the columns and a first fit. The second "
    "step released one matrix of moments of the whitened columns and the residuals. Distant "
    "rows were downweighted, and residuals were clipped, at limits of least width. The "
    "limits follow from released histograms of both sizes and from sums over rows with large "
    "residuals.",
    "Moments of the columns were shrunk by the share of their noise. Standard errors combine "
    "sampling and privacy noise. Confidence intervals and p-values include an allowance for the "
    "bias of clipping.",
)


def _outcome(state: survey.Survey) -> tuple[float, float, bool]:
    """Mean and sd of the detected outcomes, and whether most of them are at single values.

    Rows that are hidden by noise may lie at an eighth of the range.
    """
    session, outcome, stage = state.session, state.outcome, survey.OUTCOME_RANGE
    release = session.release(stage, session.queries[stage])
    counts, noise_sd = release.value, float(release.noise_sd[0])
    session.look_at(session.plan.request.formula.outcome, counts, noise_sd, stage)
    hidden = noise_sd / _rows(state)
    if not isinstance(session.schema[session.plan.request.formula.outcome], Interval):
        least = max(RAREST, 0.5 * hidden)
        share = float(np.clip(counts[-1] / _rows(state), min(least, 0.5), max(1 - least, 0.5)))
        return share, math.sqrt(share * (1 - share)), False
    ends = outcome.lo + np.r_[0.0, outcome_edges(Interval(outcome.lo, outcome.hi))]
    held = np.where(visible_cells(counts, noise_sd, 1), np.maximum(counts, 0.0), 0.0)
    if held.sum() < MOST_HIDDEN * _rows(state) and noise_sd:
        return *ls.normal_outcome(counts, noise_sd, ends, _rows(state)), False
    at, mass = 0.5 * (ends[1:] + ends[:-1]), held / held.sum()
    middle = float(mass @ at)
    hidden = min(max(HIDDEN_SDS * hidden, 1 - float(held.sum()) / _rows(state)), 1.0)
    least = outcome.bound * max(0.25 * math.sqrt(hidden), LEAST_DEVIATION)
    return middle, max(math.sqrt(float(mass @ (at - middle) ** 2)), least), sparse(held, ends)


MOST_HIDDEN = 0.5
"""Share of detected rows below which the outcome is taken to be normal."""

HIDDEN_SDS = 3.0
"""Noise sds of rows that may hide at an eighth of the outcome's range. Public data."""

LEAST_DEVIATION = 1e-3
"""Least sd of the outcome, relative to half of its range, if all rows have one value."""

RAREST = 0.01
"""Least share of a value of a column with two values, for its scale."""


@dataclass(frozen=True, eq=False)
class _First:
    """The first step: its moments, the fit and its residuals.

    Q = `square` is the squared norm of the sizes of whitened features. The response
    was cut at `reach`. `natural` maps coefficients of the features to natural ones, and `own` are
    the natural coefficients of the fit. `middle` is the mean outcome. `sparse`: most outcomes are
    at single values.
    """

    features: FeatureMap
    moments: ls.RowMoments
    reach: float
    fit: ls.FirstFit
    residual: vault.OutcomeResidual
    natural: Matrix
    own: Vector
    middle: float
    sparse: bool

    @property
    def square(self) -> float:
        return float(self.fit.usual @ self.fit.usual)

    def turned(self, lever: float) -> basis.Turned:
        """Whitened columns u, with a cut of their norm."""
        return basis.Turned(self.features, self.fit.turn.T * self.fit.usual, lever)


def _scaled(state: survey.Survey) -> tuple[FeatureMap, Vector]:
    """Features of sd 1 in the population, and their usual sizes.

    Of a column with two values, the rare one has a large distance from the mean: at a share of 1%,
    ten sds. Its feature is smaller, so that the distance equals the usual norm of all features.
    """
    features, columns = state.features, state.design.columns
    blocks, usual, root = [], [1.0], math.sqrt(state.features.size)
    scaled = state.rows.scaled(state.design)
    for block in features.blocks:
        own, size = scaled[:, block.column], 1.0
        low, sd = 0.0 if columns[block.column].kind == "indicator" else -1.0, float(own.std())
        if ((own == low) | (own == 1.0)).all() or not np.ptp(own):
            share = float(np.clip((block.shift - low) / (1.0 - low), RAREST, 1 - RAREST))
            sd = math.sqrt(share * (1 - share))
            size = min(1.0, root * sd / max(share, 1 - share))
            sd *= 1.0 - low
        blocks.append(replace(block, gain=size / sd))
        usual.append(size)
    lever = math.sqrt(ls.LEVER * float(np.square(usual).sum()))
    return FeatureMap(features.design, tuple(blocks), lever), np.array(usual)


def _first_fit(state: survey.Survey) -> _First:
    outcome = state.outcome
    middle, spread, single = _outcome(state)
    features, usual = _scaled(state)
    reach = min(ls.REACH * spread, 1.02 * max(middle - outcome.lo, outcome.hi - middle))
    root = features.cut / math.sqrt(ls.LEVER)
    row = vault.RegressionRow(
        features, vault.OutcomeResidual(Constant(middle), outcome), *_survey(state),
        root * math.sqrt(2 * (ls.LEVER - 1)) / reach, root * math.sqrt(2 * ls.LEVER - 1),
    )  # fmt: skip
    found = _moments(state, budget.GRAM, row)
    scaled = replace(state, features=features, weights=None)
    shrunk = survey.shrunken_gram(scaled, found.gram, found.sd)
    fit = ls.first_fit(found, shrunk, usual, spread, _focus(state))
    eta, natural = Additive(features, fit.coef, middle), _natural(features)
    far = float(np.abs(fit.coef) @ features.ends)  # eta is not clipped to the outcome's bounds
    wide = vault.Outcome(min(outcome.lo, middle - far), max(outcome.hi, middle + far))
    own = natural @ fit.coef
    own[0] += middle
    residual = vault.OutcomeResidual(eta, wide)
    return _First(features, found, reach, fit, residual, natural, own, middle, single)


def _rows(state: survey.Survey) -> float:
    """Complete rows: the public number of rows, unless a count shows that some lack values."""
    found, size = state.population, state.session.vault.size
    if size is None or state.session.plan.request.trust.unit is not None:
        return max(found.count, 1.0)
    return float(size) if size - found.count <= 2 * found.count_sd else max(found.count, 1.0)


def _focus(state: survey.Survey) -> int | None:
    """The feature of the first term, if it has one column of two values, as a treatment has.

    Whole numbers within (0, 1) are two values.
    """
    formula, columns = state.session.plan.request.formula, state.design.columns
    first = next((t.name for t in (*formula.modifiers, *formula.controls)), None)
    owners = [columns[block.column] for block in state.features.blocks]
    places = [j for j, column in enumerate(owners, 1) if column.term == first]
    if len(places) != 1:
        return None
    treatment = owners[places[0] - 1]
    name = treatment.variable or ""
    whole = name in state.session.undeclared.integers
    two = whole and state.session.plan.request.schema.get(name) == Interval(0.0, 1.0)
    return places[0] if two or treatment.kind == "indicator" else None


def _survey(state: survey.Survey) -> tuple[vault.SurveyWeight | None, float]:
    """Roots of the survey weights over their largest, and the factor that makes their mean 1."""
    law = state.weights
    if law is None:
        return None, 1.0
    return vault.SurveyWeight(law.column, law.top, root=True), math.sqrt(law.top / law.mean)


def _moments(state: survey.Survey, stage: StageKey, row: vault.RegressionRow) -> ls.RowMoments:
    query = vault.RegressionMoments(row)
    release = state.session.release(stage, query)
    count = _rows(state)
    sd = survey.off_diagonal_sd(query, release)
    return ls.RowMoments(query.matrix(release.value) / count, sd / count, row.scale)


def _unit(state: survey.Survey, stage: StageKey) -> float:
    """Noise sd of a mean of products off the diagonal, per unit of a row's squared norm.

    An entry off the diagonal has the weight sqrt(2) in the norm of the whole matrix.
    """
    session = state.session
    substitute = session.plan.request.trust.neighbors == "substitute"
    change = math.sqrt(2.0) if substitute else 1.0
    silent = not state.session.releases[-1].noise_sd.any()
    sd = 0.0 if silent else session.noise_sd(stage, change) / math.sqrt(2.0)
    return sd / _rows(state)


def _second_fit(state: survey.Survey, first: _First) -> AverageEstimate:
    session, request = state.session, state.session.plan.request
    count, scale = _rows(state), first.fit.scale
    lift = first.natural @ first.fit.turn.T
    law, leverage, pull = _looked_at(state, first, lift)
    effect = state.design_effect
    lost = float(law.excess(first.reach / scale))
    step = ls.first_noise(first.moments, first.fit, lost)
    cut = ls.row_cut(law, leverage, pull, _unit(state, SECOND_MOMENTS), step, effect / count)
    row = vault.RegressionRow(
        first.turned(cut.lever), first.residual, *_survey(state), cut.scale / scale, cut.at
    )
    found = _moments(state, SECOND_MOMENTS, row)
    found = replace(found, scale=cut.scale)
    _look_at_columns(state, found, lift * first.fit.usual)
    rest = ls.second_fit(found, cut.weight, first.moments, first.fit)
    used = count * (1.0 if state.weights is None else state.weights.positive)
    meat: Matrix = rest.square * rest.gram * count / max(used - len(lift), 1.0)
    if request.cov_type != "nonrobust":
        meat = _meat(state, first, row, cut, rest)
    bias = cut.bias(pull, step, lift @ np.linalg.inv(rest.gram), first.fit)
    if session.beyond is not None:  # Add the bias beyond estimated bounds.
        bias += cut.lever * session.beyond.lost / count / scale
    terms = (ResultTerm("coefficient", "Intercept"), *(c.slope for c in state.design.columns))
    out = ls.estimate_coefficients(
        terms,
        first.own,
        lift * scale,
        rest,
        meat,
        count,
        bias,
        cut.hidden(law, pull) * effect / count,
    )
    session.alerts |= _alerts(state, first, out, law, leverage)
    scores = partial(_influences, row, first, rest, out, lift * scale)
    return with_weights(state, with_dependence(session, out, scores, len(terms)))


def _looked_at(
    state: survey.Survey, first: _First, lift: Matrix
) -> tuple[ls.ResidualLaw, ls.Leverage, ls.Pull]:
    """Sizes of residuals and rows, and how outliers pull each coefficient: one pass."""
    session, count, scale = state.session, _rows(state), first.fit.scale
    root, unit = _survey(state)
    residual = vault.TransformProduct(root, first.residual) if root else first.residual
    top = residual.bound * unit
    if root is None:
        top = min(top, 1.05 * 2 * state.outcome.bound)
    edges = ls.residual_edges(top / scale)
    starts = edges[(edges >= 1.0) & (edges < edges[-1])]
    starts = starts if len(starts) else edges[:1]
    plain = vault.RegressionRow(first.turned(np.inf), first.residual, root, unit)
    most = math.sqrt(ls.OUTLIER_REACH * first.square)
    row = replace(plain, features=first.turned(most))
    asked = {
        FIRST_SIZES: vault.SizeHistogram(residual, edges * scale / unit, FIRST_SIZES.query),
        ROW_SIZES: vault.SizeHistogram(
            plain, ls.leverage_edges(first.square, plain.bound), ROW_SIZES.query
        ),
    }
    outliers = [vault.OutlierSums(row, start * scale) for start in starts.tolist()]
    session.gather({**asked, OUTLIERS: outliers})
    found = [session.release(stage, query) for stage, query in asked.items()]
    ends = [edges, asked[ROW_SIZES].edges]
    sizes, norms = (
        LookCounts(f.value, float(f.noise_sd[0]), np.r_[0.0, e])
        for f, e in zip(found, ends, strict=True)
    )
    anywhere = session.plan.request.tails == "any"
    law, leverage = (
        ls.residual_law(sizes, count, sparse=first.sparse, anywhere=anywhere),
        ls.Leverage.read(norms, count, first.square),
    )
    change = 2.0 if session.plan.request.trust.neighbors == "substitute" else 1.0
    noise = session.noise_sd(OUTLIERS, change) * most if sizes.noise_sd else 0.0
    at = ls.outlier_start(law, starts, noise, count)
    release = session.release(OUTLIERS, outliers[at])
    sums = outliers[at].split(release.value)[0]
    across = lift / np.linalg.norm(lift, axis=1, keepdims=True) / first.fit.usual
    rows = float(ls.outlier_share(law, starts[at])) * count
    prior = ls.prior_pull(law, first.fit.along(lift), sparse=first.sparse)
    pull = ls.Pull.read(sums, noise, rows, across, float(starts[at]), prior)
    return law, leverage, pull


def _look_at_columns(state: survey.Survey, found: ls.RowMoments, lift: Matrix) -> None:
    """Note collinear and constant columns. Absent levels have an alert of their own.

    Raises
    ------
    DataError
        In tests without noise, where the moments of such columns are singular.
    """
    columns, noisy = state.design.columns, found.sd > 0
    half = np.array([0.0 if noisy and c.kind == "indicator" else 1 / c.per_unit for c in columns])
    for mask, text in zip(collinear(found.gram, found.sd, lift, half), COLLINEAR, strict=True):
        if mask.any():
            names = words.listed([c.name for c, one in zip(columns, mask, strict=True) if one])
            if not noisy:
                raise DataError(text.format(names=names))
            state.session.note((("collinear", text.format(names=names)),))


def _alerts(
    state: survey.Survey,
    first: _First,
    out: AverageEstimate,
    law: ls.ResidualLaw,
    leverage: ls.Leverage,
) -> dict[str, str]:
    outcome = state.session.plan.request.formula.outcome
    biased = [name for name, far in zip(out.names, out.clipping > 2 * out.sd, strict=True) if far]
    told = {
        "tail": LONG_TAIL.format(outcome=outcome, advice=_advice(state, first))
        if law.far > LONG_SHARE and not state.session.unlimited
        else "",
        "leverage": ISOLATED if leverage.far > LONG_SHARE else "",
        "bias": CLIPPING.format(names=words.listed(biased)) if biased else "",
    }
    return {code: text for code, text in told.items() if text}


LONG_SHARE = 0.1
"""Share of the squares of residuals, or of columns, that few rows may have. By hand."""


def _meat(
    state: survey.Survey,
    first: _First,
    row: vault.RegressionRow,
    cut: ls.RowCut,
    rest: ls.SecondFit,
) -> Matrix:
    """Squared residuals of the second fit, at all columns."""
    count, scale = _rows(state), first.fit.scale
    usual = math.sqrt(first.square)
    most = scale * ls.meat_cut(_unit(state, MEAT), rest.square, cut, usual)
    query = vault.ResidualMoments(row, rest.delta / first.fit.usual * scale, most)
    release, unit = state.session.release(MEAT, query), 1 / (count * scale**2)
    if state.session.plan.request.cov_type == "HC1":
        unit *= count / max(count - len(rest.delta), 1.0)
    matrix, sd = query.matrix(release.value), survey.off_diagonal_sd(query, release)
    return ls.robust_meat(unit * matrix, unit * sd, first.fit.usual, rest)


INFLUENCE_CUT = 5.0
"""Largest influence of a row on a coefficient in squared cluster sums, in root mean squares of the
influences. Normal columns and residuals exceed it for three rows in a thousand. By hand."""


def _influences(
    row: vault.RegressionRow, first: _First, rest: ls.SecondFit, out: AverageEstimate, lift: Matrix
) -> list[ClusterScore]:
    """Influences of rows on each coefficient, times the number of rows."""
    n, scores, scale = out.size, [], first.fit.scale
    most = INFLUENCE_CUT if out.privacy.any() else np.inf
    delta = rest.delta / first.fit.usual * scale
    by_each = lift @ np.linalg.inv(rest.gram) / first.fit.usual / scale
    for by, variance in zip(by_each, np.diag(out.sampling), strict=True):
        cut = float(min(most, np.sqrt(n)) * np.sqrt(n * variance))  # No influence exceeds sqrt(n).
        influence = vault.RegressionInfluence(row, delta, by, cut)
        scores.append(ClusterScore(vault.CutScore(influence, cut), 0, n, n))
    return scores


def _natural(features: FeatureMap) -> Matrix:
    """Map from coefficients of the features to natural ones, shape (k, p)."""
    columns = features.design.columns
    out = np.zeros((1 + len(columns), features.size))
    out[0, 0] = 1.0
    for j, block in enumerate(features.blocks, 1):
        column = columns[block.column]
        slope = block.gain * column.per_unit
        out[1 + block.column, j] = slope
        out[0, j] = -slope * column.middle - block.gain * block.shift
    return out
