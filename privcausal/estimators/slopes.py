"""Slopes: the partially linear model, and the effect by an instrument.

Partially linear model: Y = theta'T + g(X) + u (Robinson 1988), by its partialled-out score. theta
solves sum (T - e)(Y - eta - theta'(T - e)) = 0 with e(x) = E[T | x] and eta(x) = E[Y | x]
(Chernozhukov et al. 2018, Eq. 4.4). T is a number, scaled to its place in its range, or consists of
the indicators of all arms except the first. For two arms, theta is the ATO of learner "private".

Instrument: Y = theta T + g(X) + u, where E[u | X, Z] = 0 (Wright 1928). theta is the reduced form
divided by the first stage, E[(Z - m)(Y - eta)] / E[(Z - m)(T - e)] for m(x) = E[Z | x]
(Chernozhukov et al. 2018, Eq. 4.8). This is two-stage least squares with controls that need not be
linear. If effects differ, theta is an average over the units whose treatment the instrument
changes, weighted by Var(Z | x) (Imbens and Angrist 1994; Angrist and Imbens 1995).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
from scipy.stats import norm

from privcausal import vault
from privcausal.estimators import averages, budget, interactions, private, survey
from privcausal.estimators import nuisances as nu
from privcausal.estimators.base import average_doubts, finish, product_alert
from privcausal.estimators.bases import PrivateBase
from privcausal.estimators.budget import Use, several_arms
from privcausal.estimators.words import Description, Estimate, listed
from privcausal.features import functions
from privcausal.inference import effects
from privcausal.inference import instruments as instruments_of
from privcausal.inference.averages import FEW_SDS, with_design_effect
from privcausal.inference.confounding import unrelated
from privcausal.inference.cuts import Extremes, score_cut
from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import Posterior
from privcausal.request import schema
from privcausal.request.plan import StageKey
from privcausal.request.request import Request
from privcausal.request.terms import PLR_TERM
from privcausal.typing import Matrix, Vector

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

_SIZES = private.AVERAGE_STAGES[0], 0.10, "As in private(). Library."
_DOSES = Use(SLOPE_SIZES, 0.10, "As the sizes of scores.", lambda request, _: request.dose)
SLOPE_USES = (
    private.COVARIATE_RANGES,
    *private.MOMENTS,
    Use(nu.NUISANCE_RESIDUALS, 0.12, "Its slope centers the scores and its mass scales them, so "
        "twice the weight in private(). By hand."),
    Use(private.AVERAGE_STAGES[1], 0.88, "The estimate itself, with its squares. Random laws."),
    Use(*private.OUTCOME_LOOK),
)  # fmt: skip
"""Releases for slopes, without sizes and assignment."""


def _sized_first(request: Request, base: PrivateBase) -> bool:
    return budget.wide(request, base) or several_arms(request, base)


@dataclass(frozen=True)
class PartiallyLinear(private.AverageLearner):
    """Residual on residual, with private nuisances and a noise-aware interval."""

    name: ClassVar[str] = "plr"
    title: ClassVar[str] = "partialling-out (PLR)"
    uses: ClassVar[tuple[Use, ...]] = (
        *SLOPE_USES,
        Use(*_SIZES, _sized_first),
        Use(lambda own: private.arm_stages(own)[1:], 0.31, "As for two arms.", several_arms),
        *private.UNKNOWN_PROPENSITY,
        Use(*_SIZES, lambda request, base: not _sized_first(request, base)),
        _DOSES,
    )

    def run(self, session: survey.FitRun) -> Estimate:
        request = session.plan.request
        state, parts, share, (lost, doubt) = _learnt(private.looked(session))
        rows = max(state.population.count, 1.0)
        unit = width_of(session.schema[request.formula.treatment])
        model = rows * share
        known = partial(effects.estimate_slopes, request.terms, model=model, size=rows, doubt=doubt)
        none, reach = np.zeros(len(parts)), 2 * state.outcome.bound
        # half the outcome range times the typical residual of T
        cut = 4 * nu.RESIDUAL_SHARE * state.centre.bound * float(np.sqrt(np.trace(share)))
        sums = vault.SlopeSums(_scores(state, parts, none), cut)
        value, sd = released_slopes(state, nu.NUISANCE_RESIDUALS, sums)
        slopes = np.clip(known(value, sd, none, 0.0, none).estimate, -reach, reach)
        mass, mass_sd = effects.posterior_mass(value[1], sd[1], model, rows, doubt)
        own_shares = np.diag(mass + mass_sd) / rows  # not less than the rows may have
        typical = float(own_shares.sum())
        masses = np.maximum(own_shares, PRIORS.least_mass * typical).tolist()
        parts = [_reread(state, *one) for one in zip(parts, masses, slopes.tolist(), strict=True)]
        sums, bias = cut_sums(state, _scores(state, parts, slopes), typical)
        value, sd = released_slopes(state, private.AVERAGE_STAGES[1], sums)
        if (np.diag(value[1]) <= FEW_SDS * np.diag(sd[1])).any():
            session.alerts["treatment"] = UNSEEN_SLOPE
        left = _remainders(state, parts, slopes)
        found = known(value, sd, slopes, bias, left, lost=lost, unit=unit)
        found = with_design_effect(found, request.trust.max_rows)
        found = replace(found, size_sd=state.population.count_sd)
        session.alerts |= product_alert(state, parts[0], found, PLR_TERM, masses[0] * unit)
        return finish(state, None, None, found, average_doubts(found))


def _learnt(
    state: survey.Survey,
) -> tuple[survey.Survey, FoldsByArm, Matrix, tuple[float, float]]:
    """Nuisances by arm, the model's E[(T - e)(T - e)'], and the last two results of `residual_cut`.

    These are zero for several arms.
    """
    request, state = state.session.plan.request, replace(state, floor=0.0)
    if request.arms:
        stages = private.arm_indicators(request)
        stages.pop(next(iter(stages)))  # drop the reference arm
        state, grams = nu.moments_of(state, stages)
        etas = nu.outcomes(state, grams)
        parts = [nu.paired(state, nu.propensities(state, grams, stage), etas) for stage in stages]
        e = np.stack([own[0].e(state.rows) for own in parts], axis=1)
        e /= np.maximum(e.sum(axis=1, keepdims=True), 1.0)
        return state, parts, np.diag(e.mean(axis=0)) - e.T @ e / len(e), (0.0, 0.0)
    state, _, partials = nu.additive_nuisances(state)
    state, mass, lost, doubt = residual_cut(state, partials)
    parts = [interactions.refine(state, partials)]
    return state, parts, np.full((1, 1), mass), (lost, doubt)


def residual_cut(
    state: survey.Survey, partials: nu.Folds
) -> tuple[survey.Survey, float, float, float]:
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
    session, anywhere = state.session, state.session.plan.request.tails == "any"
    of = "Z - m" if session.plan.request.formula.instruments else "T - e"
    most = largest_residual(session.schema[session.plan.request.formula.assigned])
    target = nu.by_fold(lambda p: vault.TreatmentResidual(p.e_soft, 1 - most), partials)
    sizes = averages.row_sizes(session, SLOPE_SIZES, target, f"|{of}|")
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


def width_of(domain: schema.Domain) -> float:
    """The divisor that scaled a number; 1 for two arms."""
    return domain.width if isinstance(domain, schema.Interval) else 1.0


def _scores(state: survey.Survey, parts: FoldsByArm, centre: Vector) -> vault.SlopeScores:
    folds = list(zip(*parts, strict=True))
    e = tuple(tuple(part.e_soft for part in fold) for fold in folds)
    eta = tuple(tuple(part.eta for part in fold) for fold in folds)
    if not state.session.plan.request.dose:
        return vault.SlopeScores(e, eta, state.outcome, centre)
    most = largest_residual(state.session.schema[state.session.plan.request.formula.treatment])
    return vault.SlopeScores(e, eta, state.outcome, centre, state.most, most)


def released_slopes(
    state: survey.Survey, stage: StageKey, sums: vault.SlopeSums
) -> tuple[effects.VectorSums, effects.VectorSums]:
    """Sums and their noise sds."""
    release = state.session.release(stage, sums)
    return sums.split(release.value), sums.split(release.noise_sd)


def cut_sums(
    state: survey.Survey, scores: vault.SlopeScores | vault.InstrumentScores, typical: float
) -> tuple[vault.SlopeSums, float]:
    """Clipped sums, and the maximum change of their mean; `typical` is E|T - e|^2."""
    rough, rows = vault.SlopeSums(scores, 1.0), state.population.count
    known, stage = averages.declared_shares(state), private.AVERAGE_STAGES[0]
    sizes = averages.row_sizes(state.session, stage, scores, declared=known)
    sizes_of, weights, chances = (np.full((1, 1), x) for x in (scores.bound, np.sqrt(typical), 1.0))
    extremes = Extremes(sizes_of, weights, chances)
    noise = averages.noise_per_cut(state, rough, private.AVERAGE_STAGES[1])
    anywhere = state.session.plan.request.tails == "any"
    cut = score_cut(extremes, noise, sizes, state.look, rows, anywhere=anywhere)
    beyond = state.session.beyond
    lost = 0.0 if beyond is None else extremes.unit_most * beyond.lost / rows
    return replace(rough, cut=cut.at), cut.bias + lost


def _reread(state: survey.Survey, partials: nu.Folds, mass: float, slope: float) -> nu.Folds:
    """Refit the nuisances and their distribution for this slope, corrected for errors of e.

    If e has error d, the slope is attenuated by the factor E[(T - e)^2] / (E[(T - e)^2] + E[d^2]).
    """
    weight = nu.remainder_weight(state, state.features, partials[0].e_soft, PLR_TERM)
    errors = [(weight * part.pair.e_cov).sum() / mass for part in partials if part.pair is not None]
    raised = slope / max(1 - sum(errors) / len(partials), LEAST_SLOPE_SHARE)
    return nu.updated_for_effect(state, partials, functions.Constant(raised))


def _remainders(state: survey.Survey, parts: FoldsByArm, slopes: Vector) -> Vector:
    """Root mean squares of E[d_j (d_y - sum_i theta_i d_i)] for errors d, shape (J,).

    The pair of arm j covers d_j (d_y - theta_j d_j). The correlation with errors of other arms may
    be arbitrary.
    """
    own = [nu.remainder(state, part, PLR_TERM).rms for part in parts]
    if len(parts) == 1:
        return np.array(own)
    weight = nu.remainder_weight(state, state.features, parts[0][0].e, PLR_TERM)
    covs = [part[0].pair.e_cov for part in parts if part[0].pair is not None]
    others = np.array([[unrelated(weight, one, two).rms for two in covs] for one in covs])
    np.fill_diagonal(others, 0.0)
    return np.asarray(np.linalg.norm(np.column_stack([own, others * np.abs(slopes)]), axis=1))


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


@dataclass(frozen=True)
class LocalAverage(private.AverageLearner):
    """Two-stage least squares on residuals, with the limits of Anderson and Rubin (1949)."""

    name: ClassVar[str] = "late"
    title: ClassVar[str] = "two-stage least squares (2SLS)"
    uses: ClassVar[tuple[Use, ...]] = (
        *SLOPE_USES,
        Use(*_SIZES),
        _DOSES,
        Use(instrument_stages, 0.31, "As the treatment. By hand.", budget.learned),
        Use(nu.TREATMENT, 0.31, "The bias of an average is its errors times the outcome's errors. "
            "Random laws."),
    )  # fmt: skip

    def run(self, session: survey.FitRun) -> Estimate:
        request, formula = session.plan.request, session.plan.request.formula
        state = replace(private.looked(session), floor=0.0)
        state, instruments, treatments, e, squares = _late_learnt(state)
        squares = np.maximum(squares, LEAST_INSTRUMENT).tolist()
        rows, domain = max(state.population.count, 1.0), session.schema[formula.treatment]
        taken, widths = width_of(domain), [width_of(session.schema[z]) for z in formula.instruments]
        both = instruments, treatments
        doubts = [[nu.remainder(state, one, PLR_TERM).rms for one in each] for each in both]
        known = partial(
            instruments_of.estimate_reduced, formula.instruments, remainder=np.array(doubts),
            model=rows * np.diag(squares), size=rows, units=(widths, taken),
        )  # fmt: skip
        # twice the typical residual of an outcome: the residual of a treatment in [0, 1] is a half
        scale = 4 * nu.RESIDUAL_SHARE * state.centre.bound
        scores = vault.InstrumentScores(
            tuple(tuple(p.e_soft for p in each) for each in zip(*instruments, strict=True)),
            tuple((one,) for one in e), tuple((part.eta,) for part in instruments[0]),
            state.outcome, 0.0, scale, largest_residual(domain), _widest(session, state.most),
        )  # fmt: skip
        square = float(np.sum(squares))
        sums = vault.SlopeSums(scores, scale * float(np.sqrt(square)))
        value, sd = released_slopes(state, nu.NUISANCE_RESIDUALS, sums)
        first = known(value, sd, (0.0, scale), 0.0)
        # The limits are valid for any center. A good center makes the scores small.
        strong, sd_of = np.split(first.estimate[1:], 2)[1], np.sqrt(np.diag(first.cov))[1:]
        seen = (np.abs(strong) > FEW_SDS * np.split(sd_of, 2)[1]).any()
        reach = 2 * state.outcome.bound
        centre = float(np.clip(first.estimate[0] * taken if seen else 0.0, -reach, reach))
        scale *= _ratio(np.diag(value[2]), np.diag(sd[2]))
        sums, bias = cut_sums(state, replace(scores, centre=centre, scale=scale), square)
        value, sd = released_slopes(state, private.AVERAGE_STAGES[1], sums)
        own = known(value, sd, (centre, scale), bias)
        own = with_design_effect(own, request.trust.max_rows)
        own = replace(own, size_sd=state.population.count_sd)
        low, high = instruments_of.late_limits(own, float(norm.ppf(0.975)))
        slopes = zip(formula.instruments, own.estimate[1:].tolist(), strict=False)
        if same := [name for name, slope in slopes if np.isnan(slope)]:
            session.alerts["collinear"] = REDUNDANT.format(names=listed(same))
        if np.isnan(low):
            session.alerts["instrument"] = CONTRADICT
        elif np.isinf(low) or np.isinf(high):
            session.alerts["instrument"] = WEAK
        return finish(state, None, None, own, average_doubts(own))

    @classmethod
    def describe(cls, estimate: Estimate) -> Description:
        said, found = super().describe(estimate), estimate.averages
        if found is None:
            return said
        tests = instruments_of.instrument_tests(found)
        p = "p < 0.001" if tests.p_agree < 0.0005 else f"p = {tests.p_agree:.3f}"
        agree = (("Instruments agree", p),) if np.isfinite(tests.p_agree) else ()
        strength = ("First-stage F", f"{tests.strength:.1f} (noisy)")
        return replace(said, rows=(*said.rows, strength, *agree))


REDUNDANT = (
    "Given the covariates, {names} cannot be distinguished from combinations of the instruments "
    "before. The fit left them out, so their slopes have no estimates. Remove them from the "
    "formula, or use more rows or budget."
)

CONTRADICT = (
    "The instruments contradict each other: no effect is compatible with all of them, so there is "
    "no interval. At least one of them may affect the outcome in another way, or effects differ."
)


def _widest(session: survey.FitRun, most: float) -> float:
    """Clipping threshold of Z - m: 0 for 0/1, and for several numbers the largest possible."""
    request = session.plan.request
    if len(request.formula.instruments) == 1:
        return most if request.dose else 0.0
    domains = [session.schema[name] for name in request.formula.instruments]
    numbers = [largest_residual(d) for d in domains if isinstance(d, schema.Interval)]
    return max([1.0, *numbers]) if numbers else 0.0


def _ratio(squares: Vector, sd: Vector) -> float:
    """Root of the ratio of two noisy sums of squares, each raised by its noise.

    The first half of the squares belongs to the outcome, the other half to the treatment. If both
    scores have a similar size, the noise of each is sqrt(2) times its noise alone.
    """
    one, two = (np.maximum(squares, 0.0) + sd).reshape(2, -1).sum(axis=1)
    return float(np.sqrt(one / two)) if two > 0 else 1.0


def _late_learnt(
    state: survey.Survey,
) -> tuple[survey.Survey, FoldsByArm, FoldsByArm, tuple[functions.Function, ...], list[float]]:
    """Nuisances of instruments and treatment by fold, e(x), and the model's E[(Z - m)^2].

    The second nuisances pair each instrument with the treatment in place of the outcome.
    """
    request, known = state.session.plan.request, state.known
    stages: dict[StageKey, vault.Transform] = {nu.TREATMENT: vault.Received()}
    own, names = instrument_stages(request), request.formula.instruments
    if known is None:
        stages = {stage: vault.Instrument(k) for k, stage in enumerate(own)} | stages
    state, grams = nu.moments_of(state, stages)
    etas = nu.outcomes(state, grams)

    def means(stage: StageKey, number: bool) -> list[Posterior]:
        return (
            nu.means(state, grams, stage, 0.5) if number else nu.propensities(state, grams, stage)
        )

    taken = means(nu.TREATMENT, request.per_unit)
    e = tuple(functions.Additive(state.features, one.mean, 0.5, 0.0, 1.0) for one in taken)
    if known is not None:
        parts = tuple(nu.FoldFit(known, known, nu.mean(state, y.mean), None) for y in etas)
        chance = known(state.rows)
        return state, [parts], [parts], e, [float(np.mean(chance * (1 - chance)))]
    numbers = [isinstance(state.session.schema[name], schema.Interval) for name in names]
    moved = [means(stage, number) for stage, number in zip(own, numbers, strict=True)]
    pairs = [nu.paired(state, one, etas) for one in moved]
    others = [nu.paired(state, one, taken) for one in moved]
    if request.dose:
        # Clipping Z - m causes an error of m, which enters through its products with other errors.
        state, square, *_ = residual_cut(state, pairs[0])
        return state, pairs, others, e, [square]
    squares = []
    for one, number in zip(pairs, numbers, strict=True):
        chance = one[0].e_soft(state.rows)
        spread = float(np.mean(chance * (1 - chance)))
        squares.append(NUMBER_SHARE * spread if number else spread)
    return state, pairs, others, e, squares


NUMBER_SHARE = 0.25
"""Variance of a numeric instrument around its mean, relative to its largest possible variance, as a
prior: that of a value spread over half of its range."""
