"""Average effects with private confidence intervals: PrivATE (Schroeder et al. 2025), proven."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np

from privcausal import vault
from privcausal.estimators import averages, budget, first_stages, survival
from privcausal.estimators import base as learners
from privcausal.estimators import nuisances as nu
from privcausal.estimators.averages import (
    CLUSTER_STEP,
    RequestedAverage,
    Target,
    choose_limits,
    requested_averages,
)
from privcausal.estimators.budget import Step
from privcausal.estimators.estimands import Estimate
from privcausal.estimators.survival import SURVIVAL_STEP, with_survival_noise
from privcausal.features.functions import Constant
from privcausal.inference.ranges import NARROW, MeanWindow, outcome_edges
from privcausal.inference.regression import Remainder
from privcausal.request.request import Request, StageKey
from privcausal.request.schema import Interval

# Average effects of several arms, by doubly robust scores of the mean outcome in each.
#
# Arm k is compared with all other arms, as in a two-arm study with A = 1(T = k). The mean outcome
# is E[Y(k)] = E[mu + A (Y - mu)/e] for e(x) = P(A = 1 | x) and mu(x) = E[Y | x, A = 1]. The scores
# of all arms are one release. The effects are differences of arm means and have a joint covariance
# (Cattaneo 2010).


def arm_stages(request: Request, what: str = "treatment") -> list[StageKey]:
    """A stage for each arm, the reference arm first."""
    return [StageKey("nuisance", f"{what} {arm}") for arm in request.arms]


HARDLY = (
    "Poor overlap: about {share:.0%} of the rows have a propensity below {clip:.2g} for arm {arm}, "
    "so its mean outcome relies on extrapolation. Consider estimand='PLR'."
)


def arm_effects(
    state: first_stages.FitState, stage: StageKey
) -> tuple[list[RequestedAverage], tuple[str, ...]]:
    """Effects relative to the first arm, then the arms' mean outcomes, and notes on poor overlap.

    `stage` is the stage of the scores.
    """
    request = state.request
    shares = request.propensity if isinstance(request.propensity, Mapping) else None
    # propensity and mean outcome of each arm, as in a study of this arm against all others
    stages = [] if shares else arm_stages(request)
    indicators = {stage: vault.OfArm(vault.Assigned(), arm) for arm, stage in enumerate(stages)}
    state = nu.moments_of(state, indicators)
    etas, folds, crosses = nu.outcomes(state), [], dict[StageKey, vault.Cross]()
    pairs = zip(arm_stages(request), arm_stages(request, "residual moments"), strict=True)
    for arm, (treatment, residual) in enumerate(pairs):
        if shares:
            known = Constant(float(shares[request.arms[arm]]))
            partials = tuple(nu.FoldFit(known, known, nu.mean(state, e.mean), None) for e in etas)
        else:
            partials = nu.paired(state, nu.propensities(state, treatment), etas)
        folds.append(nu.with_lower_clip(state, partials))
        crosses[residual] = nu.residual_cross(*folds[-1], arm)
    state.gather(dict(crosses))
    # each arm's mean outcome, with the distribution of its bias from nuisance errors
    means, notes = list[tuple[Target, Remainder]](), list[str]()
    # each row counts as 1, or as its survey weight
    mass = averages.weighted_mass(state, None) or vault.OfCovariates(Constant(1.0), 1.0)
    for arm, ((own_state, partials), cross) in enumerate(zip(folds, crosses.items(), strict=True)):
        tau = nu.residual_effect(own_state, partials, cross)
        nuisances = tuple(nu.nuisance_of(p, tau, own_state.outcome) for p in partials)
        scored = choose_limits(own_state, partials, nuisances, tau, stage, (arm, mass))
        target = averages.arm_target(own_state, scored.nuisances, arm, mass, several=True)
        means.append((target, scored.remainder))
        if shares:  # known shares are not clipped
            continue
        clipped = np.mean([p.e(state.rows) <= own_state.clip * (1 + 1e-9) for p in partials])
        if clipped > learners.POOR_OVERLAP:
            text = HARDLY.format(share=clipped, arm=request.arms[arm], clip=own_state.clip)
            if clipped > learners.MOST_CUT:
                state.alerts["overlap"] = text
            else:
                notes.append(text)
    # differences from the first arm; the arm with the larger outcome weight supplies the extremes
    (base, base_bias), units, effects = means[0], np.eye(len(means)), []
    for (target, bias), unit in zip(means[1:], units[1:], strict=True):
        worse = max(target, base, key=lambda mean: float(mean.extremes.units.max()))
        less = replace(target, centre=target.centre - base.centre, extremes=worse.extremes)
        # The errors of two arms may have equal or opposite signs: by Minkowski's inequality.
        effects.append((less, Remainder(0.0, bias.rms + base_bias.rms), unit - units[0]))
    every = [*effects, *((*mean, unit) for mean, unit in zip(means, units, strict=True))]
    requested = [RequestedAverage(term, *x) for term, x in zip(request.terms, every, strict=True)]
    return requested, tuple(notes)


AVERAGE_STAGES = (
    nu.SCORE_SIZES,
    StageKey("effect", "scores"),
    StageKey("effect", "squared scores", heading="variance"),
)

COVARIATE_RANGES = Step(first_stages.COLUMN_RANGES, 0.06, ("loose bounds",))
MOMENTS = (
    Step(first_stages.MARGINALS, partial(budget.for_marginals, least=0.08)),
    Step(budget.GRAM, 0.20),
    Step(nu.OUTCOME, 0.45),
)
FIRST_EFFECT = Step(nu.NUISANCE_RESIDUALS, 0.06, ("not arms",))
UNKNOWN_TREATMENT = Step(nu.TREATMENT, 0.31, ("not known propensity", "not arms"))


UNKNOWN_PROPENSITY = (UNKNOWN_TREATMENT, *nu.interaction_steps(0.03, 0.16, 0.22))
EFFECT_GRAM = Step(nu.NUISANCE_WEIGHTS, 0.04, ("not arms", "released weights"))


class AverageLearner(learners.Learner):
    """A learner of average effects only, with its own nuisances."""

    # The group "average" is missing, because the effect itself is the average.
    shares: ClassVar[Mapping[str, float]] = {
        "bounds": budget.TOP_BOUNDS,
        # With the prior spreads of public data sets, less than before is to be learned. Library.
        "nuisance": 0.38,
        "effect": 0.52,  # The scores, their sizes and squares. Library.
    }

    def top(self, request: Request) -> Mapping[str, float]:
        """Give the scores more if the propensity is known or no covariates are used.

        A known propensity makes half of the nuisance stages unnecessary. Without covariates, the
        nuisances are constants.
        """
        if request.propensity is None and request.formula.terms:
            return self.shares
        # The budget of the removed nuisance stages goes to the scores, and errors of the mean
        # outcome only add to the variance: with many rows they need less. Trials.
        share = 0.24
        if request.formula.terms:
            share = budget.by_nobs(request, most=0.24, least=0.12, rows=2000.0)
        return {**self.shares, "nuisance": share, "effect": 0.90 - share}


class Private(AverageLearner):
    """AIPW mean with private nuisances, private variance, and a noise-aware interval.

    The paper's noise (Theorems 4.3 to 4.6) assumes nuisances whose estimation is not protected.
    Here, the nuisances are private and the score is bounded by public numbers. The standard error
    uses only released numbers.
    """

    name: ClassVar[str] = "private"
    title: ClassVar[str] = "doubly robust (AIPW)"
    steps: ClassVar[tuple[Step, ...]] = (
        COVARIATE_RANGES,
        Step(budget.ROW_WEIGHTS, 0.06, ("weights",)),
        *MOMENTS,
        FIRST_EFFECT,
        Step(AVERAGE_STAGES[1], 0.78),
        Step(AVERAGE_STAGES[2], 0.10, ("sandwich",)),
        CLUSTER_STEP,
        SURVIVAL_STEP,
        Step(AVERAGE_STAGES[0], 0.10, ("sized", "not known propensity")),
        Step(
            AVERAGE_STAGES[0],
            partial(budget.by_nobs, most=0.20, least=0.06, rows=2000.0),
            ("sized", "known propensity"),
        ),
        Step(AVERAGE_STAGES[0], 0.01, ("not sized", "known propensity")),  # only counts of arms
        # one histogram of the outcome, for both nuisances and scores
        Step(
            first_stages.OUTCOME_RANGE,
            partial(budget.by_nobs, most=0.40, least=0.20, rows=2000.0),
            ("wide", "known propensity"),
            outcome_edges,
        ),
        Step(first_stages.OUTCOME_RANGE, 0.18, ("wide", "not known propensity"), outcome_edges),
        Step(arm_stages, 0.31, ("not known propensity", "arms")),
        Step(partial(arm_stages, what="residual moments"), 0.06, ("arms",)),
        *UNKNOWN_PROPENSITY,
        EFFECT_GRAM,
    )

    def run(self, fit: first_stages.Fit) -> Estimate:
        state = prepared(fit)  # ranges, survey weights, marginals, basis, outcome range
        if fit.request.arms:
            requested, notes = arm_effects(state, AVERAGE_STAGES[1])
            estimate = averages.release_averages(state, requested, AVERAGE_STAGES)
            return learners.finish(state, None, None, estimate, notes)
        # Gram matrix, propensity and mean outcome, with their interactions
        state, partials = nu.additive_nuisances(state)
        state, partials = nu.with_lower_clip(state, partials)
        partials = nu.refine(state, partials)
        # a first effect, which only centers the scores
        tau = nu.residual_effect(state, partials)
        nuisances = tuple(nu.nuisance_of(p, tau, state.outcome) for p in partials)
        # limits of the weights, then sizes of the scores and their sums
        requested, weight = requested_averages(state, partials, nuisances, tau, AVERAGE_STAGES[1])
        estimate = averages.release_averages(state, requested, AVERAGE_STAGES, weight)
        estimate = with_survival_noise(fit.request, fit.curves, estimate)
        estimate = learners.with_adjustment(state, partials, estimate, estimate.terms[0])
        models = learners.reported_nuisances(partials, nuisances)
        return learners.finish(state, None, models, estimate)


def prepared(fit: first_stages.Fit) -> first_stages.FitState:
    """The stages before the Gram; outcomes are clipped to their detected range.

    Most scores of survival times may have one value, that of rows followed to the horizon. Their
    range is known, and they are not clipped to less.
    """
    state, curves = first_stages.prepare(fit, linear_terms=False), fit.curves
    scored = bool(curves)
    stage = first_stages.OUTCOME_RANGE
    state = nu.with_outcomes(state, stage, window=not scored, look=not scored)
    if scored:
        # variance of the scores within the arms, according to the released times
        bounds = Interval(state.outcome.lo, state.outcome.hi)
        value, counts = survival.values(fit.request), [curve.counts for curve, _ in curves]
        tables = [survival.scores(curve, *value) for curve, _ in curves]
        squares = []
        for table, count in zip(tables, counts, strict=True):
            mean = np.sum(table * count) / max(count.sum(), 1.0)
            squares.append(np.sum((table - mean) ** 2 * count))
        spread = float(sum(squares)) / max(sum(float(count.sum()) for count in counts), 1.0)
        least = (NARROW * bounds.width) ** 2
        return replace(state, window=MeanWindow(bounds, 1.0, max(spread, least)))
    return replace(state, window=None) if state.look is not None and state.look.lone else state
