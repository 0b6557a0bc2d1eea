"""Slopes of the partially linear model, and of one with instruments.

Y = theta'T + g(X) + u (Robinson 1988), by its partialled-out score. theta solves
sum (T - e)(Y - eta - theta'(T - e)) = 0 with e(x) = E[T | x] and eta(x) = E[Y | x]
(Chernozhukov et al. 2018, Eq. 4.4). T is a number, scaled to its place in its range, or consists of
the indicators of all arms except the first. For two arms, theta is the ATO of learner "private".

With instruments, E[u | X, Z] = 0 (Wright 1928). theta is the reduced form divided by the first
stage, E[(Z - m)(Y - eta)] / E[(Z - m)(T - e)] for m(x) = E[Z | x] (Chernozhukov et al. 2018, Eq.
4.8). This is two-stage least squares with controls that need not be linear. If effects
differ, theta is an average over the units whose treatment the instrument changes, weighted by
Var(Z | x) (Imbens and Angrist 1994; Angrist and Imbens 1995).

An effect theta is in the set if the reduced forms less theta times the first stages are compatible
with zero, for all instruments together (Anderson and Rubin 1949). The set is valid for weak
instruments too. It is an interval, two half-lines, or all numbers. With several instruments it may
have more parts, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import chi2, norm

from privcausal import vault
from privcausal.estimators import averages, first_stages, private
from privcausal.estimators import nuisances as nu
from privcausal.estimators.base import finish, product_alert
from privcausal.estimators.budget import Step
from privcausal.estimators.estimands import Description, Estimate, listed, words_of
from privcausal.features import functions
from privcausal.inference import effects
from privcausal.inference.cuts import Extremes, score_cut
from privcausal.inference.effects import (
    FEW_SDS,
    AverageEstimate,
    Noisy,
    Reading,
    covering,
    p_value,
    with_design_effect,
)
from privcausal.inference.priors import PRIORS
from privcausal.inference.ranges import outcome_edges
from privcausal.inference.regression import unrelated
from privcausal.request import schema
from privcausal.request.formula import PLR_TERM, late_terms
from privcausal.request.request import Request, StageKey
from privcausal.typing import Integers, Matrix, Vector

# -- the partially linear model ----------------------------------------------------------------

UNSEEN_SLOPE = (
    "Given the covariates, the treatment or one of its arms varies too little to be distinguished "
    "from noise, so slopes may be far off. Check the bounds and labels, or use more rows or budget."
)

LEAST_SLOPE_SHARE = 1 / 3
"""Minimum share of a slope that errors of e leave.

The distribution of the errors is too rough for a smaller share.
"""

SLOPE_SIZES = StageKey("effect", "residual sizes")

FoldsByArm = Sequence[nu.Folds]
"""Nuisances by arm and fold."""

DOSES = Step(SLOPE_SIZES, 0.10, ("dose",))
SLOPE_STEPS = (
    private.COVARIATE_RANGES,
    *private.MOMENTS,
    Step(nu.NUISANCE_RESIDUALS, 0.12),
    Step(private.AVERAGE_STAGES[1], 0.88),
    Step(first_stages.OUTCOME_RANGE, 0.18, ("wide",), outcome_edges),
)
"""Releases for slopes, without sizes and assignment."""


class PartiallyLinear(private.AverageLearner):
    """Residual on residual, with private nuisances and a noise-aware interval."""

    name: ClassVar[str] = "plr"
    title: ClassVar[str] = "partialling-out (PLR)"
    steps: ClassVar[tuple[Step, ...]] = (
        *SLOPE_STEPS,
        Step(private.AVERAGE_STAGES[0], 0.10, ("wide or arms",)),
        Step(lambda request: private.arm_stages(request)[1:], 0.31, ("arms",)),
        *private.UNKNOWN_PROPENSITY,
        Step(private.AVERAGE_STAGES[0], 0.10, ("not wide or arms",)),
        DOSES,
    )

    def run(self, fit: first_stages.Fit) -> Estimate:
        request = fit.request
        state, parts, share, (lost, doubt) = _slope_nuisances(private.prepared(fit))
        rows = max(state.population.count, 1.0)
        domain = fit.schema[request.formula.treatment]
        unit = domain.width if isinstance(domain, schema.Interval) else 1.0
        model = rows * share
        estimate = partial(
            effects.estimate_slopes, request.terms, model=model, size=rows, doubt=doubt
        )
        none, reach = np.zeros(len(parts)), 2 * state.outcome.bound
        # half the outcome range times the typical residual of T
        cut = 4 * nu.RESIDUAL_SHARE * state.mean_range.bound * float(np.sqrt(np.trace(share)))
        sums = vault.SlopeSums(_scores(state, parts, none), cut)
        totals = effects.SlopeTotals(*fit.read(nu.NUISANCE_RESIDUALS, sums))
        slopes = np.clip(estimate(totals, none, 0.0, none).estimate, -reach, reach)
        mass = effects.posterior_mass(totals.mass, model, rows, doubt)
        shares = np.diag(mass.value + mass.sd) / rows  # not less than the rows may have
        typical = float(shares.sum())
        masses = np.maximum(shares, PRIORS.least_mass * typical).tolist()
        # Refit the nuisances and their distribution for these slopes, corrected for errors of e. If
        # e has error d, a slope is attenuated by the factor E[(T - e)^2] / (E[(T - e)^2] + E[d^2]).
        refitted = []
        for folds, square, slope in zip(parts, masses, slopes.tolist(), strict=True):
            weight = nu.remainder_weight(state, state.features, folds[0].e_soft, PLR_TERM)
            pairs = [fold.pair for fold in folds if fold.pair is not None]
            attenuation = sum((weight * pair.e_cov).sum() / square for pair in pairs) / len(folds)
            raised = functions.Constant(slope / max(1 - attenuation, LEAST_SLOPE_SHARE))
            refitted.append(nu.updated_for_effect(state, folds, raised))
        parts = refitted
        sums, bias = cut_sums(state, _scores(state, parts, slopes), typical)
        totals = effects.SlopeTotals(*fit.read(private.AVERAGE_STAGES[1], sums))
        if (np.diag(totals.mass.value) <= FEW_SDS * np.diag(totals.mass.sd)).any():
            fit.alerts["treatment"] = UNSEEN_SLOPE
        # root mean squares of E[d_j (d_y - sum_i theta_i d_i)] for errors d: the pair of arm j
        # covers d_j (d_y - theta_j d_j), and errors of other arms may have any correlation with it
        errors = np.array([nu.remainder(state, part, PLR_TERM).rms for part in parts])
        if len(parts) > 1:
            weight = nu.remainder_weight(state, state.features, parts[0][0].e, PLR_TERM)
            covs = [part[0].pair.e_cov for part in parts if part[0].pair is not None]
            others = np.array([[unrelated(weight, row, col).rms for col in covs] for row in covs])
            np.fill_diagonal(others, 0.0)
            errors = np.linalg.norm(np.column_stack([errors, others * np.abs(slopes)]), axis=1)
        theta = estimate(totals, slopes, bias, errors, lost=lost, unit=unit)
        theta = with_design_effect(theta, request.trust.max_rows)
        theta = replace(theta, size_sd=state.population.count_sd)
        fit.alerts |= product_alert(state, parts[0], theta, PLR_TERM, masses[0] * unit)
        return finish(state, None, None, theta)


def _slope_nuisances(
    state: first_stages.FitState,
) -> tuple[first_stages.FitState, FoldsByArm, Matrix, tuple[float, float]]:
    """Nuisances by arm, the model's E[(T - e)(T - e)'], and the last two results of `residual_cut`.

    These are zero for several arms.
    """
    request, state = state.request, replace(state, clip=0.0)
    if request.arms:
        stages = private.arm_stages(request)[1:]  # without the reference arm
        arms = {stage: vault.OfArm(vault.Assigned(), arm) for arm, stage in enumerate(stages, 1)}
        state = nu.moments_of(state, arms)
        etas = nu.outcomes(state)
        parts = [nu.paired(state, nu.propensities(state, stage), etas) for stage in stages]
        e = np.stack([folds[0].e(state.rows) for folds in parts], axis=1)
        e /= np.maximum(e.sum(axis=1, keepdims=True), 1.0)
        return state, parts, np.diag(e.mean(axis=0)) - e.T @ e / len(e), (0.0, 0.0)
    state, partials = nu.additive_nuisances(state)
    state, mass, lost, doubt = residual_cut(state, partials)
    parts = [nu.refine(state, partials)]
    return state, parts, np.full((1, 1), mass), (lost, doubt)


def residual_cut(
    state: first_stages.FitState, partials: nu.Folds
) -> tuple[first_stages.FitState, float, float, float]:
    """Clipping threshold of T - e for a numeric T, its mean square, and the effect on the slope.

    The last result is the sum of squares of as many rows at the threshold as noise hides in a cell.

    Let V be the clipped T - e, and c the center of the scores V (Y - eta - c (T - e)). The slope
    errs by (theta - c) E[V (T - e - V)] / E[V^2]. Relative to theta - c, this error is at most the
    threshold times the mean excess over the threshold, divided by the mean square (`tails`). The
    threshold is not below the largest detected size, and minimizes this error plus the last result
    as a share of the sum of squares.

    e(x) is learned from a T that is clipped to its effective range. This causes an error of e,
    which enters through its product with an error of eta.
    """
    anywhere = state.request.tails == "any"
    name = {"treatment": "T - e", "instrument": "Z - m"}[words_of(state.request).compared]
    most = largest_residual(state.schema[state.request.formula.assigned])
    target = nu.by_fold(vault.OfTreatment("residual", p.e_soft, 1 - most) for p in partials)
    sizes = averages.row_sizes(state, SLOPE_SIZES, target, f"|{name}|")
    if not sizes.reach:
        return replace(state, most=most), 0.25, 0.0, 0.0  # Popoviciu (1935)
    count = state.population.count
    cuts = np.geomspace(most if anywhere else min(sizes.reach, most), most, 200)
    (excess,), (square,) = sizes.beyond(count, anywhere=anywhere)(cuts)
    lost, doubt = cuts * excess / square, sizes.noise_sd * cuts**2
    k = int(np.argmin(lost + doubt / (count * square)))
    return replace(state, most=float(cuts[k])), float(square[k]), float(lost[k]), float(doubt[k])


def largest_residual(domain: schema.Domain) -> float:
    """Maximum |T - e|: e is in the effective range, T anywhere in the declared range."""
    if not isinstance(domain, schema.Interval):
        return 1.0
    raw = domain.raw if isinstance(domain, schema.Transformed) else domain
    return max(raw.hi - domain.lo, domain.hi - raw.lo) / domain.width


def _scores(state: first_stages.FitState, parts: FoldsByArm, centre: Vector) -> vault.SlopeScores:
    folds = list(zip(*parts, strict=True))
    e = tuple(tuple(part.e_soft for part in fold) for fold in folds)
    eta = tuple(tuple(part.eta for part in fold) for fold in folds)
    if not state.request.dose:
        return vault.SlopeScores(e, eta, state.outcome, centre)
    most = largest_residual(state.schema[state.request.formula.treatment])
    return vault.SlopeScores(e, eta, state.outcome, centre, state.most, most)


def cut_sums(
    state: first_stages.FitState, scores: vault.SlopeScores | vault.InstrumentScores, typical: float
) -> tuple[vault.SlopeSums, float]:
    """Clipped sums, and the maximum change of their mean; `typical` is E|T - e|^2."""
    rough, rows = vault.SlopeSums(scores, 1.0), state.population.count
    shares, stage = averages.declared_shares(state), private.AVERAGE_STAGES[0]
    released = averages.row_sizes(state, stage, scores, declared=shares)
    # noise may hide the residual of the treatment, and with it the scale
    sizes = released if typical > 0 else None
    unit = np.sqrt(max(typical, 0.0))
    sizes_of, weights, chances = (np.full((1, 1), x) for x in (scores.bound, unit, 1.0))
    extremes = Extremes(sizes_of, weights, chances)
    noise = averages.noise_per_cut(state, rough, private.AVERAGE_STAGES[1])
    anywhere = state.request.tails == "any"
    cut = score_cut(extremes, noise, sizes, state.look, rows, anywhere=anywhere)
    beyond = state.beyond
    lost = 0.0 if beyond is None else float(extremes.units.max()) * beyond.lost / rows
    return replace(rough, cut=cut.threshold), cut.bias + lost


# -- instruments: the confidence set ---------------------------------------------------------------

SET_ANGLES = 720
"""Angles that are tried for the ends of a set, a quarter of a degree apart."""


def estimate_reduced(
    instruments: Sequence[str],
    sums: effects.SlopeTotals,
    centre: tuple[float, float],
    bias: float,
    remainder: Matrix,
    *,
    model: Matrix,
    size: float,
    units: tuple[Sequence[float], float],
) -> AverageEstimate:
    """The LATE, reduced forms and first stages, from scores d (Y - eta - c (T - e)), k d (T - e).

    With several instruments, slopes are the coefficients of regressions on all residuals d, and the
    LATE is two-stage least squares: the slopes' ratio, each weighted by the covariance of its
    instrument with the fitted treatment.

    Slopes are unknown for instruments that are combinations of others (`not_collinear`).

    `centre` is (c, k). `remainder` has the root mean square errors of the means of d (Y - eta) and
    d (T - e), shape (2, J). `units` are the widths that scaled the instruments and the treatment.
    The rest is as in `estimate_slopes`. The noise of sum d d' is common to all slopes. The ratio's
    row is by the delta method, which also holds if instruments have different effects (Lee 2018);
    for its limits see `late_set`.
    """
    used = not_collinear(effects.posterior_mass(sums.mass, model, size))
    both, square = np.r_[used, used + len(model)], np.ix_(used, used)
    sums = effects.SlopeTotals(
        sums.score.at(both), sums.mass.at(square), sums.square.at(np.ix_(both, both))
    )
    (c, k), taken, by, many = centre, units[1], np.array(units[0])[used], len(used)
    score, mass, inverse = sums.solvable(model[square], size)
    outcome, treatment = score[:many] + score[many:] * (c / k), score[many:] * (taken / k)
    reduced, first = (mass.solve(side, inverse) / by for side in (outcome, treatment))
    # the covariance of each instrument with the treatment, up to a factor
    along = score[many:] * by
    if not along.value.any():
        along = along.held(np.ones(many))
    above, strength = (along * reduced).sum(), (along * first).sum()
    if not strength.value:
        above, strength = above.held(0.0), strength.held(1e-300)
    late = above / strength
    estimates = Noisy.joined([late, reduced, first])
    shares = along.value / strength.value
    by_slopes = np.vstack([np.r_[shares, -late.value * shares], np.eye(2 * many)])
    size_of = size * np.abs(inverse) / by[:, None]
    errors = np.r_[size_of @ remainder[0, used], size_of @ remainder[1, used] * taken]
    # scale all scores to the same unit, or the floor of the largest would apply to the others
    unit = np.sqrt(np.maximum(np.diag(sums.square.value), np.diag(sums.square.sd)))
    unit = np.where(unit > 0, unit, 1.0)
    scaled = sums.square.over(np.outer(unit, unit))
    spread = effects.raised_covariance(sums.score.value / unit, scaled, size)
    back = estimates.slope[:, : 2 * many]  # derivatives in the scores
    sampling = back @ (np.outer(unit, unit) * spread) @ back.T
    moved, rows, terms = size * bias * back, np.r_[0, 1 + both], late_terms(instruments)

    def placed(values: Vector, fill: float = 0.0) -> Vector:
        """Entries for all terms, given the entries for the terms in use, along the first axis."""
        out = np.full((len(terms), *values.shape[1:]), fill)
        out[rows] = values
        return out

    unknown = np.diag(placed(np.zeros(len(rows)), np.inf))
    return AverageEstimate(
        terms,
        (),
        placed(estimates.value, np.nan),
        placed(placed(sampling).T) + unknown,
        placed(placed(estimates.cov).T),
        placed(np.linalg.norm(moved, axis=1)),
        placed(np.abs(by_slopes) @ errors),
        size,
        moved=placed(moved)[None],
    )


def not_collinear(mass: Reading) -> Integers:
    """Positions of instruments that are not combinations of earlier instruments.

    `mass` is the sum d d'. An instrument is excluded if noise may explain its distance from all
    combinations of the instruments in use.
    """
    scale = np.sqrt(np.maximum(np.diag(mass.value), np.diag(mass.sd)))
    scale = np.where(scale > 0, scale, 1.0)
    gram, error = mass.over(np.outer(scale, scale))
    used = list[int]()
    for k in range(len(gram)):
        apart = np.zeros(len(gram))
        apart[k] = 1.0
        apart[used] = -np.linalg.lstsq(gram[np.ix_(used, used)], gram[used, k], rcond=None)[0]
        apart /= np.linalg.norm(apart)
        weights = np.outer(apart, apart) * (2 - np.eye(len(gram)))
        noise = float(np.linalg.norm(np.triu(weights * error)))
        if apart @ gram @ apart > max(FEW_SDS * noise, effects.LEAST_DISTINCT):
            used.append(k)
    return np.array(used or [0])


class SlopeMoments(NamedTuple):
    """Joint estimates of J reduced forms and J first stages, each in its own standard error.

    J counts the instruments in use. At an angle, the moments are cos(angle) reduced - sin(angle)
    first. They are 0 at the angle whose tangent is the effect, relative to `ratio`.
    """

    estimate: Matrix
    joint: Matrix
    moved: Matrix
    remainder: Matrix
    ratio: float

    @classmethod
    def of(cls, averages: AverageEstimate) -> SlopeMoments | None:
        """None if no slope is known."""
        slopes = 1 + np.flatnonzero(np.isfinite(averages.estimate[1:]))
        estimate = averages.estimate[slopes]
        joint = (averages.sampling + averages.privacy)[np.ix_(slopes, slopes)]
        if not (len(slopes) and np.isfinite(joint).all() and averages.limited):
            return None
        bound, many = averages.clipping[slopes] ** 2, len(estimate) // 2
        sds = np.sqrt(np.maximum(np.diag(averages.cov)[slopes] + bound, 1e-300))
        # one scale for each instrument, because slopes depend on its unit
        by = sds[many:] / sds[many:].mean()
        # one scale for all reduced forms and one for all first stages, so that angles are the same
        reduced, first = (float(np.sqrt(np.mean((part / by) ** 2))) for part in np.split(sds, 2))
        scale = np.outer([reduced, first], by).ravel()
        return cls(
            estimate=(estimate / scale).reshape(2, many),
            joint=joint / np.outer(scale, scale),
            moved=averages.moved[0, slopes] / scale[:, None],
            remainder=(averages.remainder[slopes] / scale).reshape(2, many),
            ratio=reduced / first,
        )

    def at(self, angles: Vector) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        """Moments (N, J), covariances (N, J, J), changes by clipped scores, and nuisance errors."""
        many, weights = self.estimate.shape[1], np.stack([np.cos(angles), -np.sin(angles)], axis=1)
        mix = np.kron(weights, np.eye(many)).reshape(len(angles), many, -1)
        return (
            weights @ self.estimate,
            mix @ self.joint @ mix.transpose(0, 2, 1),
            mix @ self.moved,
            np.abs(weights) @ self.remainder,
        )

    def excess(self, angles: Vector, z: float) -> Vector:
        """Distance of the moments from 0 in standard errors, less its limit, shape (N,).

        With one instrument, the limit is that of an interval with a bounded bias. With J of them,
        it is the root of a quantile of chi-squared, plus the largest change by clipped scores. The
        dependence of nuisance errors is unknown, and (sum v_j r_j)^2 <= J sum v_j^2 r_j^2.
        """
        mean, cov, moved, errors = self.at(angles)
        many = mean.shape[1]
        if many == 1:
            spread = np.sqrt(np.maximum(cov[:, 0, 0], 0.0) + errors[:, 0] ** 2)
            limit = covering(z, np.linalg.norm(moved[:, 0], axis=1), spread)
            return np.asarray(np.abs(mean[:, 0]) - limit)
        total = cov + (many * errors**2 + LEAST_VARIANCE)[:, :, None] * np.eye(many)
        root = np.linalg.cholesky(total)
        away = np.linalg.norm(np.linalg.solve(root, mean[:, :, None])[:, :, 0], axis=1)
        shift = np.linalg.norm(np.linalg.solve(root, moved), 2, axis=(1, 2))
        return np.asarray(away - np.sqrt(chi2.isf(2 * norm.sf(z), many)) - shift)

    def excess_at(self, angle: float, z: float) -> float:
        return float(self.excess(np.array([angle]), z)[0])


LEAST_VARIANCE = 1e-12
"""Added to variances of moments near 1, so that they can be factored without noise."""


class ReducedForm(NamedTuple):
    """Tests of an effect by instruments."""

    strength: float  # Mean squared first stage over its variance (an F statistic), noise included
    # P value of the hypothesis that all instruments give one effect (Anderson and Rubin's statistic
    # at its least, J - 1 degrees of freedom); nan with one instrument
    p_agree: float
    p_zero: float  # P value of the effect 0, with J degrees of freedom


@lru_cache(maxsize=8)
def instrument_tests(averages: AverageEstimate) -> ReducedForm:
    moments = SlopeMoments.of(averages)
    if moments is None:
        return ReducedForm(np.nan, np.nan, np.nan)
    many = moments.estimate.shape[1]
    mean, cov, _, errors = (part[0] for part in moments.at(np.array([np.pi / 2])))
    total = cov + (many * errors**2 + LEAST_VARIANCE) * np.eye(many)
    strength = float(mean @ np.linalg.solve(total, mean)) / many
    if many == 1:
        slope = 1 + np.flatnonzero(np.isfinite(averages.estimate[1:]))[:1]
        p_zero = p_value(averages.estimate[slope], averages.clipping[slope], averages.sd[slope])
        return ReducedForm(strength, np.nan, float(p_zero[0]))
    # the statistic of Anderson and Rubin less what clipped scores may add, at least 0
    least, at_zero = (
        max(moments.excess_at(angle, 0.0), 0.0) ** 2 for angle in (_nearest(moments)[1], 0.0)
    )
    return ReducedForm(strength, float(chi2.sf(least, many - 1)), float(chi2.sf(at_zero, many)))


def _nearest(moments: SlopeMoments) -> tuple[Vector, float]:
    """Angles to try, and the angle of the least distance."""
    angles = np.linspace(-np.pi / 2, np.pi / 2, SET_ANGLES, endpoint=False)
    near, step = float(angles[int(np.argmin(moments.excess(angles, 0.0)))]), np.pi / SET_ANGLES
    ends = near - step, near + step
    best = minimize_scalar(moments.excess_at, args=(0.0,), bounds=ends, method="bounded")
    return angles, float(best.x)


@lru_cache(maxsize=8)
def late_set(averages: AverageEstimate, z: float) -> tuple[tuple[float, float], ...]:
    """Intervals of effects that are within the limit for the quantile `z`, in ascending order.

    An interval without an end has an infinite limit.
    """
    moments = SlopeMoments.of(averages)
    if moments is None:
        return ((-np.inf, np.inf),)
    angles, best = _nearest(moments)
    angles = np.unique(np.r_[angles, (best + np.pi / 2) % np.pi - np.pi / 2])
    within = moments.excess(angles, z) <= 0
    if within.all():
        return ((-np.inf, np.inf),)
    # start at an angle outside the set; the circle of angles has the length pi
    start = int(np.flatnonzero(~within)[0])
    order = np.r_[np.arange(start, len(angles)), np.arange(start + 1)]
    turned = angles[order] + np.pi * (np.arange(len(order)) >= len(angles) - start)
    inside, parts = within[order], list[tuple[float, float]]()
    for first in np.flatnonzero(~inside[:-1] & inside[1:]):
        last = first + 1 + int(np.argmin(inside[first + 1 :]))
        around = (turned[first + 1], turned[first]), (turned[last - 1], turned[last])
        ends = [float(brentq(moments.excess_at, *at, args=(z,), xtol=1e-14)) for at in around]
        low, high = (moments.ratio * float(np.tan(x)) for x in ends)
        crosses = any(ends[0] < right < ends[1] for right in (np.pi / 2, 3 * np.pi / 2))
        parts += [(-np.inf, high), (low, np.inf)] if crosses else [(low, high)]
    return tuple(sorted(parts))


def late_limits(averages: AverageEstimate, z: float) -> tuple[float, float]:
    """Least and largest effect of `late_set`; nan if the set is empty."""
    parts = late_set(averages, z)
    return (parts[0][0], parts[-1][1]) if parts else (np.nan, np.nan)


# -- instruments: the learner ----------------------------------------------------------------------

LEAST_INSTRUMENT = 1e-3
"""Least E[(Z - m)^2] of the model, for Z in [0, 1]: noise may leave a chance of 0 or 1. By hand."""

WEAK = (
    "The first stage cannot be distinguished from zero, so the LATE has no finite interval. Use "
    "more rows or budget, narrower bounds, or a stronger instrument."
)


def instrument_stages(request: Request) -> list[StageKey]:
    """A stage for each instrument."""
    names = request.formula.instruments
    if len(names) == 1:
        return [StageKey("nuisance", "instrument")]
    return [StageKey("nuisance", f"instrument {name}") for name in names]


class LocalAverage(private.AverageLearner):
    """Two-stage least squares on residuals, with the limits of Anderson and Rubin (1949)."""

    name: ClassVar[str] = "late"
    title: ClassVar[str] = "two-stage least squares (2SLS)"
    steps: ClassVar[tuple[Step, ...]] = (
        *SLOPE_STEPS,
        Step(private.AVERAGE_STAGES[0], 0.10),
        DOSES,
        Step(instrument_stages, 0.31, ("not known propensity",)),
        Step(nu.TREATMENT, 0.31),
    )

    def run(self, fit: first_stages.Fit) -> Estimate:
        request, formula = fit.request, fit.request.formula
        state = replace(private.prepared(fit), clip=0.0)
        state, instruments, treatments, e, squares = _instrument_nuisances(state)
        squares = np.maximum(squares, LEAST_INSTRUMENT).tolist()
        rows, domain = max(state.population.count, 1.0), fit.schema[formula.treatment]
        domains = [fit.schema[name] for name in formula.instruments]
        # the divisors that scaled numbers; 1 for two arms
        *widths, taken = (
            z.width if isinstance(z, schema.Interval) else 1.0 for z in (*domains, domain)
        )
        errors = [
            [nu.remainder(state, folds, PLR_TERM).rms for folds in parts]
            for parts in (instruments, treatments)
        ]
        estimate = partial(
            estimate_reduced,
            formula.instruments,
            remainder=np.array(errors),
            model=rows * np.diag(squares),
            size=rows,
            units=(widths, taken),
        )
        # Clipping threshold of Z - m: 0 for 0/1, and for several numbers the largest possible.
        widest = state.most if request.dose else 0.0
        if len(domains) > 1:
            numbers = [largest_residual(z) for z in domains if isinstance(z, schema.Interval)]
            widest = max([1.0, *numbers]) if numbers else 0.0
        # twice the typical residual of an outcome: the residual of a treatment in [0, 1] is a half
        scale = 4 * nu.RESIDUAL_SHARE * state.mean_range.bound
        scores = vault.InstrumentScores(
            tuple(tuple(part.e_soft for part in fold) for fold in zip(*instruments, strict=True)),
            tuple((function,) for function in e),
            tuple((part.eta,) for part in instruments[0]),
            state.outcome,
            0.0,
            scale,
            largest_residual(domain),
            widest,
        )
        square = float(np.sum(squares))
        sums = vault.SlopeSums(scores, scale * float(np.sqrt(square)))
        totals = effects.SlopeTotals(*fit.read(nu.NUISANCE_RESIDUALS, sums))
        first = estimate(totals, (0.0, scale), 0.0)
        # The limits are valid for any center. A good center makes the scores small.
        strong, sds = np.split(first.estimate[1:], 2)[1], np.sqrt(np.diag(first.cov))[1:]
        seen = (np.abs(strong) > FEW_SDS * np.split(sds, 2)[1]).any()
        reach = 2 * state.outcome.bound
        centre = float(np.clip(first.estimate[0] * taken if seen else 0.0, -reach, reach))
        # Give the scores of the outcome and of the treatment a similar size. Squares are raised by
        # their noise: if sizes are similar, the noise of each is sqrt(2) times its noise alone.
        noisy = np.maximum(np.diag(totals.square.value), 0.0) + np.diag(totals.square.sd)
        of_outcome, of_treatment = noisy.reshape(2, -1).sum(axis=1)
        if min(of_outcome, of_treatment) > 0:
            scale *= float(np.sqrt(of_outcome / of_treatment))
        sums, bias = cut_sums(state, replace(scores, centre=centre, scale=scale), square)
        totals = effects.SlopeTotals(*fit.read(private.AVERAGE_STAGES[1], sums))
        late = estimate(totals, (centre, scale), bias)
        late = with_design_effect(late, request.trust.max_rows)
        late = replace(late, size_sd=state.population.count_sd)
        low, high = late_limits(late, float(norm.ppf(0.975)))
        slopes = zip(formula.instruments, late.estimate[1:].tolist(), strict=False)
        if redundant := [name for name, slope in slopes if np.isnan(slope)]:
            fit.alerts["collinear"] = REDUNDANT.format(names=listed(redundant))
        if np.isnan(low):
            fit.alerts["instrument"] = CONTRADICT
        elif np.isinf(low) or np.isinf(high):
            fit.alerts["instrument"] = WEAK
        return finish(state, None, None, late)

    @classmethod
    def describe(cls, estimate: Estimate) -> Description:
        description = super().describe(estimate)
        if estimate.averages is None:
            return description
        tests = instrument_tests(estimate.averages)
        p = "p < 0.001" if tests.p_agree < 0.0005 else f"p = {tests.p_agree:.3f}"
        agree = (("Instruments agree", p),) if np.isfinite(tests.p_agree) else ()
        strength = ("First-stage F", f"{tests.strength:,.1f} (noisy)")
        return replace(description, rows=(*description.rows, strength, *agree))


REDUNDANT = (
    "Given the covariates, {names} cannot be distinguished from combinations of the instruments "
    "before. The fit left them out, so their slopes have no estimates. Remove them from the "
    "formula, or use more rows or budget."
)

CONTRADICT = (
    "The instruments contradict each other: no effect is compatible with all of them, so there is "
    "no interval. At least one of them may affect the outcome in another way, or effects differ."
)


def _instrument_nuisances(
    state: first_stages.FitState,
) -> tuple[
    first_stages.FitState, FoldsByArm, FoldsByArm, tuple[functions.Function, ...], list[float]
]:
    """Nuisances of instruments and treatment by fold, e(x), and the model's E[(Z - m)^2].

    The second nuisances pair each instrument with the treatment in place of the outcome.
    """
    request, chance = state.request, state.propensity
    stages: dict[StageKey, vault.Transform] = {nu.TREATMENT: vault.Assigned("received")}
    instruments, names = instrument_stages(request), request.formula.instruments
    if chance is None:
        stages = {stage: vault.Assigned(k) for k, stage in enumerate(instruments)} | stages
    state = nu.moments_of(state, stages)
    etas = nu.outcomes(state)
    numbers = [isinstance(state.schema[name], schema.Interval) for name in names]
    by_stage = {nu.TREATMENT: request.per_unit}
    if chance is None:
        by_stage |= dict(zip(instruments, numbers, strict=True))
    treatment, *fits = (
        nu.means(state, stage, 0.5) if number else nu.propensities(state, stage)
        for stage, number in by_stage.items()
    )
    e = tuple(functions.Additive(state.features, fit.mean, 0.5, 0.0, 1.0) for fit in treatment)
    if chance is not None:
        folds = tuple(nu.FoldFit(chance, chance, nu.mean(state, y.mean), None) for y in etas)
        m = chance(state.rows)
        return state, [folds], [folds], e, [float(np.mean(m * (1 - m)))]
    with_outcome = [nu.paired(state, fit, etas) for fit in fits]
    with_treatment = [nu.paired(state, fit, treatment) for fit in fits]
    if request.dose:
        # Clipping Z - m causes an error of m, which enters through its products with other errors.
        state, square, *_ = residual_cut(state, with_outcome[0])
        return state, with_outcome, with_treatment, e, [square]
    squares = []
    for folds, number in zip(with_outcome, numbers, strict=True):
        m = folds[0].e_soft(state.rows)
        spread = float(np.mean(m * (1 - m)))
        squares.append(NUMBER_SHARE * spread if number else spread)
    return state, with_outcome, with_treatment, e, squares


NUMBER_SHARE = 0.25
"""Variance of a numeric instrument around its mean, relative to its largest possible variance, as a
prior: that of a value spread over half of its range."""
