"""The averages of a call, with limits of the weights by which scores divide by the propensity."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from privcausal import vault
from privcausal.estimators import averages, survey
from privcausal.estimators.estimands import ESTIMANDS, Tilted, estimand_of
from privcausal.estimators.nuisances import Folds, compare_arms, limited, remainder
from privcausal.features import functions
from privcausal.features.functions import Triples
from privcausal.inference.confounding import Remainder
from privcausal.inference.cuts import score_cut
from privcausal.inference.effects import Effect
from privcausal.inference.priors import PRIORS
from privcausal.request.plan import StageKey
from privcausal.request.terms import ATE_TERM, ResultTerm
from privcausal.typing import Vector


class WeightedNuisances(NamedTuple):
    """The nuisances for the scores of an average.

    `nuisances` holds one entry per fold. `remainder` is the distribution of the bias from their
    errors. `weight` is the maximum weight of a row, relative to its weight in a difference of
    means.
    """

    nuisances: Triples
    remainder: Remainder
    weight: float = np.inf


FACTORS = (np.inf, 4.0, 3.2, 2.5, 2.0, 1.6, 1.25, 1.0)
"""Maximum weights of a row, relative to a difference of means; the first has no limit. The entry of
this grid with the smallest predicted error is used.
"""


def weighed(
    state: survey.Survey,
    partials: Folds,
    nuisances: Triples,
    tau: Effect,
    stage: StageKey,
    arm: tuple[int, vault.Transform] | None = None,
) -> WeightedNuisances:
    """Choose the weight limits with the smallest predicted squared error.

    A score divides by the propensity. If the propensity is small, the score and the noise it needs
    are large. Limits on the propensity reduce this noise but add a bias. The bias is the part of
    the fitted propensity beyond the limits, times the error of the mean outcome. The distribution
    of that bias is known from the releases and enters the interval. If the arms' shares are the
    only weights, the average is the difference of the arms' means, adjusted by the mean outcome
    alone.

    Parameters
    ----------
    partials, nuisances : tuple of FoldFit, tuple of NuisanceTriple
        By fold: propensity and mean outcome, and the nuisances of the scores. A known propensity
        has no limits.
    tau : Effect
        The effect that is already known.
    stage : StageKey
        Stage of the scores.
    arm : (int, Transform), optional
        One of several arms, for its mean outcome, and the mass of its score. The default is the
        ATE.

    Returns
    -------
    WeightedNuisances
        The nuisances with these limits, and the distribution of their bias.
    """
    if partials[0].pair is None:
        if state.known is not None and averages.two_valued(state) and arm is None:
            nuisances = narrowed(state, nuisances, stage)
        return WeightedNuisances(nuisances, remainder(state, partials))
    share = float(np.mean([p.e(state.rows).mean() for p in partials]))
    if arm is None:
        compare_arms(state, partials, share)
    term = ATE_TERM if arm is None else ResultTerm("mean", "E[Y(1)]", arm=1)  # against all others
    centre, found, best = float(np.mean(tau(state.rows))), None, np.inf
    window = state.look.window if state.look is not None else state.outcome
    within = vault.Outcome(window.lo, window.hi)
    for factor in FACTORS:
        most = 1 - (1 - share) / factor if arm is None else 1.0
        parts = tuple(limited(p, share / factor, most) for p in partials)
        scored = tuple(replace(n, e=p.e) for n, p in zip(nuisances, parts, strict=True))
        if arm is None:
            aim = averages.average_target(state, scored, centre, within=within)
        else:
            aim = averages.one_arm_target(state, scored, *arm, within)
        rest = remainder(state, parts, term, tau)
        loss = rest.rms**2 + _noise(state, aim, stage) + _sampling(state, parts, term)
        if found is None or loss < best:
            best, found = loss, WeightedNuisances(scored, rest, factor)
    assert found is not None
    return found


MODEL_ENDS = 7
"""Quantiles of the fitted means that are tried on each side."""


def narrowed(state: survey.Survey, nuisances: Triples, stage: StageKey) -> Triples:
    """Arm means within the limits of least predicted variance, for two values and a known e.

    Scores then lie between public numbers, and nothing else is clipped. Wide means shrink the
    residuals but need noise for a wide range of scores. With a known propensity, any means leave
    the average without bias, so the limits cost only the variance that the means would explain. If
    even wide limits explain little, the means become constant.
    """
    rows, p = state.rows, nuisances[0].e(state.rows)
    count = state.population.count

    def mixed(one: functions.NuisanceTriple) -> Vector:
        return np.asarray((1 - p) * one.mu1(rows) + p * one.mu0(rows))

    full, found, best = mixed(nuisances[0]), nuisances, np.inf
    means = np.r_[nuisances[0].mu0(rows), nuisances[0].mu1(rows)]
    ends = np.quantile(means, np.linspace(0.0, 1.0, 2 * MODEL_ENDS - 1))
    for low in ends[:MODEL_ENDS]:
        for high in ends[MODEL_ENDS - 1 :]:
            scored = tuple(_within(n, float(low), float(high)) for n in nuisances)
            aim = averages.average_target(state, scored, 0.0)
            noise = averages.noise_per_cut(state, averages.summed_scores(state, aim), stage)
            cut = score_cut(aim.extremes, noise, None, None, count, movable=True)
            lost = float(np.mean((mixed(scored[0]) - full) ** 2 / (p * (1 - p)))) / count
            loss = (noise * cut.at) ** 2 + cut.bias**2 + lost
            if loss < best:
                best, found = loss, scored
    return found


def _within(one: functions.NuisanceTriple, low: float, high: float) -> functions.NuisanceTriple:
    """Arm means, clipped to these limits too."""
    means = one.mu0, one.mu1
    if not all(isinstance(m, functions.ArmMean) for m in means):
        return one
    mu0, mu1 = (replace(m, lo=low, hi=high) for m in means)  # type: ignore[type-var]  # as checked
    return replace(one, mu0=mu0, mu1=mu1)


def _sampling(state: survey.Survey, parts: Folds, term: ResultTerm) -> float:
    """Sampling variance of an average whose outcomes vary as usual around their means."""
    weigh = np.mean([estimand_of(term).error(p.e(state.rows), state.clip).mean() for p in parts])
    return float(PRIORS.outcome_noise_sd**2 * state.variance * weigh / state.population.count)


def _noise(state: survey.Survey, target: averages.Target, stage: StageKey) -> float:
    """Squared noise plus squared bias of the best threshold, for any sizes within the extremes."""
    noise = averages.noise_per_cut(state, averages.summed_scores(state, target), stage)
    cut = score_cut(target.extremes, noise, None, None, state.population.count)
    return float((noise * cut.at) ** 2 + cut.bias**2)


# -- the averages of a call --------------------------------------------------------------------


def asked_averages(
    state: survey.Survey, partials: Folds, nuisances: Triples, tau: Effect, stage: StageKey
) -> tuple[list[averages.One], float]:
    """The requested averages, then the risks for ratios; and a row's maximum weight in the ATE.

    `stage` is the stage of the scores.
    """
    terms, weight = state.session.plan.request.terms, np.inf
    effects, means = ([one for one in terms if one.kind == kind] for kind in ("effect", "mean"))
    found, risks = list[averages.One](), list[averages.One]()
    vectors = np.eye(len(effects) + bool(means))
    for term, own in zip(effects, vectors, strict=False):
        if isinstance(tilted := ESTIMANDS[term.of], Tilted):
            aim = averages.target(tilted, state, partials, nuisances, tau)
            found.append(averages.One(term, aim, remainder(state, partials, term), own))
            continue
        scored = weighed(state, partials, nuisances, tau, stage)
        centre, weight = float(np.mean(tau(state.rows))), scored.weight
        aim = averages.average_target(state, scored.nuisances, centre)
        if means:
            share = float(np.mean([p.e(state.rows).mean() for p in partials]))
            limits = share / weight, 1 - (1 - share) / weight
            used = tuple(limited(p, *limits) for p in partials)
            for arm, (mean, parts) in enumerate(zip(means, (own, vectors[-1]), strict=True)):
                one = averages.arm_target(state, scored.nuisances, arm, aim.mass)
                risks.append(averages.One(mean, one, remainder(state, used, mean, tau), parts))
            centre = risks[1].target.centre - risks[0].target.centre
            aim = replace(averages.average_target(state, scored.nuisances, centre), mass=aim.mass)
        parts = vectors[-1] - own if means else own
        found.append(averages.One(term, aim, scored.remainder, parts))
    return [*found, *risks], weight
