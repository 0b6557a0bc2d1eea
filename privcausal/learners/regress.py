"""Linear regression: a first fit on wide cuts, then moments of its residuals on narrow ones.

What ``smf.ols("Y ~ X", data).fit()`` gives, privately.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privcausal.features.basis import Directions, FeatureMap, Turned
from privcausal.features.functions import Additive, Constant
from privcausal.inference.average import AverageEstimate, with_design_effect
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
from privcausal.learners.alerts import listed
from privcausal.learners.base import Learner
from privcausal.learners.bases import AnyBase, Linear, PrivateBase
from privcausal.learners.budget import StageWeight
from privcausal.learners.description import BOUNDED, MISSING, Description, tails
from privcausal.learners.estimate import Estimate
from privcausal.learners.shares import SHARES, Stages
from privcausal.learners.state import (
    FitState,
    Session,
    gram_of,
    is_binary,
    look_at_outcome,
    off_diagonal_sd,
    prepare,
)
from privcausal.request.plan import StageKey
from privcausal.request.request import Request
from privcausal.request.schema import Interval
from privcausal.typing import Matrix, Vector
from privcausal.vault import (
    Cross,
    FeatureNorm,
    Gram,
    OfCovariates,
    Outcome,
    OutcomeResidual,
    Regressors,
    ScoreSquares,
    SizeHistogram,
    SurveyWeight,
    Transform,
    TransformProduct,
    VectorScores,
)

FAR = StageKey("effect", "sizes of rows")
SIZES = (FAR, Stages.RESIDUAL_SIZES, Stages.SCORE_SIZES)
MOMENTS = StageKey("effect", "moments")
SQUARES = StageKey("effect", "squared residuals", heading="variance")
MEAT = StageKey("effect", "squared residual moments", heading="variance")


@dataclass(frozen=True)
class LeastSquares(Learner):
    """Ordinary or weighted least squares with private coefficients and standard errors."""

    name: ClassVar[str] = "regress"
    title: ClassVar[str] = "least squares"
    whole: ClassVar[str] = "a regression has none"
    shares: ClassVar[Mapping[str, float]] = {
        "bounds": SHARES.top_bounds,
        "nuisance": SHARES.regress_first,
        "effect": SHARES.regress_moments,
    }

    def needs(self, request: Request, base: PrivateBase) -> list[StageWeight]:
        needs = [
            StageWeight(Stages.MARGINALS, SHARES.private_marginals),
            StageWeight(Stages.GRAM, SHARES.regress_rough_gram),
            StageWeight(Stages.OUTCOME, SHARES.regress_rough_outcome),
            StageWeight(Stages.RESIDUAL_SIZES, SHARES.regress_sizes),
            StageWeight(FAR, SHARES.regress_sizes),
            StageWeight(Stages.SCORE_SIZES, SHARES.regress_scores),
            StageWeight(MOMENTS, SHARES.regress_gram),
            StageWeight(Stages.RESIDUALS, SHARES.regress_cross),
            StageWeight(SQUARES, SHARES.regress_squares),
        ]
        if not is_binary(request):
            needs.append(StageWeight(Stages.OUTCOME_RANGE, SHARES.private_marginals))
        if request.cov_type == "HC0":
            needs.append(StageWeight(MEAT, SHARES.regress_meat))
        return needs

    def accepted(self, base: AnyBase) -> PrivateBase:
        return Linear()

    def run(self, session: Session) -> Estimate:
        looks = {Stages.OUTCOME_RANGE: outcome_edges}
        state = prepare(session, linear_terms=False, looks=looks)
        state = look_at_outcome(state, Stages.OUTCOME_RANGE)
        rough = _first_fit(state)
        found = _second_fit(state, rough)
        lost = [t for t, b in zip(found.terms, found.estimate, strict=True) if np.isnan(b)]
        if lost:
            session.alerts["columns"] = LOST.format(names=listed(lost))
        return Estimate(
            session.plan, session.schema, state.design, state.population, None, None, found,
            tuple(session.releases), session.vault.size, session.vault.real_noise,
            alerts=tuple(session.alerts.items()),
        )  # fmt: skip

    @classmethod
    def describe(cls, estimate: Estimate) -> Description:
        request = estimate.plan.request
        weighted = () if request.weights is None else (("Weights", request.weights),)
        robust = request.cov_type == "HC0"
        return Description(
            title="weighted least squares" if weighted else cls.title,
            rows=(("Covariance", "HC0" if robust else "nonrobust"), *weighted),
            reading=(READING,),
            assumptions=(PROJECTION, *(() if robust else (HOMOSKEDASTIC,)), FAR_ROWS, BOUNDED),
            methods=(*METHODS, *tails(estimate), MISSING),
            adjusts=False,
            stages=(("nuisance", "first fit"), ("effect", "coefficients")),
        )


READING = (
    "No causal reading by itself: a coefficient compares rows that differ in one column and agree "
    "in the others. It is an effect only where nothing else confounds that column."
)

LOST = (
    "No estimate for {names}: by released numbers, noise hides what tells these columns from the "
    "others. More rows or budget, fewer columns, or products of scale(x) in place of x would help."
)

PROJECTION = (
    "Coefficients are those of the best linear prediction of the outcome in the population that "
    "the rows are from. The outcome need not be linear in the columns."
)

HOMOSKEDASTIC = (
    "Residuals vary alike at all values of the columns (cov_type='nonrobust'); "
    "control=pc.Control(cov_type='HC0') does without this."
)

FAR_ROWS = (
    "Rows far from the others, which noise hides, count for less; the interval allows for a mean "
    "residual there of at most one standard deviation."
)

METHODS = (
    "Least squares. A first fit from noisy moments on wide cuts tells the columns' scales and "
    "correlations and centres the outcome. Columns are then whitened, and moments of what the "
    "first fit leaves are released on narrow cuts. The rows were read through sums of bounded row "
    "vectors only, computed exactly on an integer grid; discrete Gaussian noise (OpenDP) was added "
    "to each sum.",
    "No coefficient is shrunken. Standard errors add sampling and the noise of both sides of the "
    "normal equations. Intervals and p values allow for the largest bias that clipped residuals "
    "and far rows can cause (Armstrong and Kolesár 2018).",
)


@dataclass(frozen=True, eq=False)
class _Rough:
    """The first fit: coefficients of the features, and the whitening of their rows."""

    eta: Additive
    residual: OutcomeResidual
    turned: Turned


def _first_fit(state: FitState) -> _Rough:
    outcome = state.outcome
    seen = state.look.window if state.look is not None else Interval(outcome.lo, outcome.hi)
    window = Outcome(seen.lo, seen.hi)
    target = OutcomeResidual(Constant(seen.mid), outcome)
    crosses = {Stages.OUTCOME: Cross(state.features, target, window.bound, "outcome")}
    state, grams = gram_of(state, dict(crosses))
    session, gram = state.session, grams.whole
    release = session.release(Stages.OUTCOME, crosses[Stages.OUTCOME])
    spread = np.full(state.features.size, window.bound)
    variance = (0.5 * window.bound) ** 2
    sd = float(release.noise_sd[0])
    fit = least_squares(Moments(gram.value, release.value, gram.sd, sd, variance), spread)
    eta = Additive(state.features, fit.mean, seen.mid)
    rows = max(float(gram.value[0, 0]), 1.0)
    turned = Turned(state.features, whitening(gram.value, gram.sd, rows), np.inf)
    return _Rough(eta, _residual(state.features, eta, outcome), turned)


def _residual(features: FeatureMap, eta: Additive, outcome: Outcome) -> OutcomeResidual:
    """Y - eta, in a range that holds both: eta is linear, and not cut to the outcome's bounds."""
    ends = np.array([1.0, *(b.reach for b, _ in features.owner)])
    far = float(np.abs(eta.coef) @ ends)
    lo, hi = min(outcome.lo, eta.offset - far), max(outcome.hi, eta.offset + far)
    return OutcomeResidual(eta, Outcome(lo, hi))


def _second_fit(state: FitState, rough: _Rough) -> AverageEstimate:
    session, request = state.session, state.session.plan.request
    turned, residual = rough.turned, rough.residual
    anywhere, count = request.tails == "any", max(state.population.count, 1.0)
    norm = FeatureNorm(turned, turned.reach)
    far, spread = _sizes(state, {FAR: norm, Stages.RESIDUAL_SIZES: residual})
    turned = replace(turned, cut=norm.bound if anywhere else _norm_cut(state, far, turned.size))
    # how far one row moves the normal equations, along a vector of norm one
    score = TransformProduct(FeatureNorm(turned, turned.cut), residual)
    (scores,) = _sizes(state, {Stages.SCORE_SIZES: score})
    unit = VectorScores(score, 1.0, Directions(turned), "")
    change = unit.sensitivity(request.trust.neighbors)
    noise = session.noise_sd(Stages.RESIDUALS, change, float(unit.units[0])) / count
    # of whitened rows the root mean square norm is the root of their length
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
    if session.beyond is not None:  # beyond bounds that were bought
        bias += turned.cut * session.beyond.lost / count
    out = estimate_coefficients(names, first, lift, found, bias, count, floor)
    return with_design_effect(out, request.trust.max_rows)


def _norm_cut(state: FitState, far: Sizes, size: int) -> float:
    """Where rows' norms are clipped: as far as any are seen.

    The Gram's noise grows with the square of that. Where it would hide rows of usual norm in all
    directions, cells that luck may have shown do not count.
    """
    session, cut = state.session, far.reach
    change = math.sqrt(2.0) if session.plan.request.trust.neighbors == "substitute" else 1.0
    noise = session.noise_sd(MOMENTS, change) * cut**2
    hidden = least_seen(noise, size) > MOST_LOST * state.population.count
    return far.sure if hidden else cut


MOST_LOST = 0.5
"""Share of the rows that the noise of a whitened Gram may hide in any direction."""


def _sizes(state: FitState, of: Mapping[StageKey, Transform]) -> list[Sizes]:
    asked = {k: SizeHistogram(t, score_edges(t.bound), k.query) for k, t in of.items()}
    state.session.gather(dict(asked))
    found = []
    for stage, query in asked.items():
        release = state.session.release(stage, query)
        found.append(Sizes(release.value, float(release.noise_sd[0]), query.edges, len(SIZES)))
    return found


def _moments(
    state: FitState,
    turned: Turned,
    residual: Transform,
    score: Transform,
    cuts: tuple[float, float],
) -> Released:
    """The second release, weighted by the survey's weights over the largest."""
    session, root = state.session, _survey(state, root=True)
    weight = _survey(state)
    gram = Gram(turned, root)
    cross = VectorScores(_times(weight, score), cuts[0], Directions(turned), "residual")
    squares = ScoreSquares(_times(root, residual), cuts[1], Regressors(state.linear, 0, 0))
    asked = {MOMENTS: gram, Stages.RESIDUALS: cross, SQUARES: squares}
    session.gather(dict(asked))
    g, c, s = (session.release(stage, query) for stage, query in asked.items())
    return Released(
        gram.matrix(g.value), c.value, squares.split(s.value)[0],
        off_diagonal_sd(gram, g), float(c.noise_sd[0]), float(s.noise_sd[0]), cuts[0],
    )  # fmt: skip


def _survey(state: FitState, *, root: bool = False) -> SurveyWeight | None:
    name = state.session.plan.request.weights
    if name is None:
        return None
    domain = state.session.schema[name]
    assert isinstance(domain, Interval)
    return SurveyWeight(name, domain.hi, root)


def _times(weight: Transform | None, score: Transform) -> Transform:
    return score if weight is None else TransformProduct(weight, score)


def _with_meat(state: FitState, rough: _Rough, turned: Turned, found: Released) -> Released:
    """With the squared residuals of the second fit at all columns."""
    coef = rough.eta.coef + turned.turn @ found.solution[0]
    eta = Additive(state.features, coef, rough.eta.offset)
    residual = _residual(state.features, eta, state.outcome)
    score = _times(_survey(state), TransformProduct(FeatureNorm(turned, turned.cut), residual))
    share = TransformProduct(score, OfCovariates(Constant(1 / found.cut), 1 / found.cut))
    meat = Gram(Directions(turned), share)
    release, whole = state.session.release(MEAT, meat), found.cut**2
    matrix, sd = meat.matrix(release.value), off_diagonal_sd(meat, release)
    return replace(found, meat=whole * matrix, meat_sd=whole * sd)


def _natural(state: FitState, rough: _Rough) -> tuple[Matrix, Vector]:
    """From whitened to natural coefficients, shape (k, p); and the first fit's, shape (k,)."""
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
