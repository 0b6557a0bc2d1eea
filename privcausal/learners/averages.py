"""Average effects of any learner: one release of doubly robust scores gives ATE, groups and BLP."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from privcausal.inference.average import (
    AverageEstimate,
    Frame,
    ScoreData,
    clustered,
    estimate_averages,
)
from privcausal.inference.confounding import Remainder
from privcausal.inference.score_cut import ArmSizes, edges, score_cut
from privcausal.learners.estimands import Target
from privcausal.learners.ground import Ground, is_binary
from privcausal.learners.needs import Need
from privcausal.spec.functions import Nuisance
from privcausal.spec.groups import partitions
from privcausal.spec.request import Request
from privcausal.spec.schema import Interval
from privcausal.typing import Matrix
from privcausal.vault import ArmHistogram, ArmSize, ScoreSquares, ScoreSums

Stages = tuple[str, str, str]
STAGES: Stages = ("average: score sizes", "average: scores", "average: squared scores")

RANGE = "average: outcome range"


def averages_needs(request: Request) -> list[Need]:
    """Releases of the averages of a learner of tau(x); two values have no sizes to look at."""
    looks = [Need(RANGE, 0.08, "average"), Need(STAGES[0], 0.12, "average")]
    return [
        *([] if is_binary(request) else looks),
        Need(STAGES[1], 0.66, "average"),
        Need(STAGES[2], 0.14, "average"),
    ]


class Weighed(NamedTuple):
    """What the scores of an average are made of.

    `nuisances` are one per fold, `remainder` is the law of what their errors leave, and `weight`
    the most that a row weighs, in weights of a difference of means (infinite without a limit).
    """

    nuisances: tuple[Nuisance, ...]
    remainder: Remainder
    weight: float = np.inf


def averages(
    ground: Ground, target: Target, weighed: Weighed, stages: Stages, name: str
) -> AverageEstimate:
    """Release sums of the score (1, z, g) and of its squares; estimates with covariances.

    Parameters
    ----------
    target : Target
        Score and mass of the estimand.
    weighed : Weighed
        What is known of the bias of scores.
    """
    request = ground.session.plan.request
    sizes = _sizes(ground, target, stages[0])
    regressors, robust = ground.regressors, request.cov_type == "HC0"
    rough = rough_sums(ground, target)
    chosen = score_cut(
        target.extremes,
        noise_per_cut(ground, rough, stages[1]),
        sizes,
        ground.look,
        ground.population.count,
        anywhere=request.tails == "any",
    )
    cut = chosen.at
    rms = 0.0 if sizes is None else sizes.rms(cut)
    sums = replace(rough, cut=cut)
    first = ground.session.release(stages[1], sums)
    squares = ScoreSquares(target.score, cut, regressors, meat=robust)
    second = ground.session.release(stages[2], squares)
    value, sd = (
        ScoreData(*sums.split(a), *squares.split(b))
        for a, b in ((first.value, second.value), (first.noise_sd, second.noise_sd))
    )
    limits = _size_limits(ground, sd, ground.session.plan.stage(stages[1]).rows)
    columns = ground.linear.columns
    frame = Frame(
        target.centre,
        float(np.clip(value.outer[0, 0], *limits)),
        _points(ground),
        regressors.alpha * np.array([c.per_unit for c in columns]),
        chosen.bias,
        weighed.remainder,
        0.25 * rms**2,
        (1.0, target.mass_spread),
        target.group_masses,
        target.kept(cut, rms),
        None if target.pilot is None else target.pilot.coef,
        partitions(ground.groups, ground.session.schema, request.needed),
        limits,
    )
    terms = (name, *(c.name for c in columns))
    groups = tuple(g.label for g in ground.groups)
    found = estimate_averages(terms, groups, value, sd, frame, robust=robust)
    return replace(clustered(found, request.trust.max_rows), weight=weighed.weight)


def _sizes(ground: Ground, target: Target, stage: str) -> ArmSizes | None:
    """Sizes of the scores by arm; None for an outcome of two values, whose sizes are known."""
    session = ground.session
    if not session.plan.has(stage):
        return None
    if not isinstance(session.schema[session.plan.request.formula.outcome], Interval):
        session.unused(stage)
        return None
    factors = target.extremes.factors
    size = ArmSize(target.score, (float(factors[0]), float(factors[1])))
    borders = edges(size.bound)
    histogram = ArmHistogram(size, borders[:-1], "score sizes")
    release = ground.session.release(stage, histogram)
    counts = histogram.split(release.value)
    return ArmSizes(counts, float(release.noise_sd[0]), borders, factors)


def rough_sums(ground: Ground, target: Target) -> ScoreSums:
    """The sums of scores that are cut at 1."""
    return ScoreSums(
        target.score,
        1.0,
        target.mass,
        ground.regressors,
        ground.session.plan.request.trust.neighbors,
        target.group_masses,
        None if target.pilot is None else target.pilot.score,
    )


def noise_per_cut(ground: Ground, sums: ScoreSums, stage: str) -> float:
    """Noise sd of the mean score per unit of its cut."""
    plan = ground.session.plan
    trust = plan.request.trust
    change = sums.sensitivity(trust.neighbors) * trust.max_rows * float(sums.units[0])
    return float(change / np.sqrt(2 * plan.stage(stage).rho / 1e12) / ground.population.count)


def _size_limits(ground: Ground, sd: ScoreData, share: float) -> tuple[float, float]:
    """Of the complete rows: the declared size where nothing can be missing, else as far as known.

    Where no number is public, at least the noise: what is divided by it has an end.
    """
    session = ground.session
    public = session.vault.size
    if public is None or session.plan.request.trust.unit is not None:
        return max(float(sd.outer[0, 0]), 1.0), np.inf
    if session.schema.complete and share == 1.0:
        return float(public), float(public)
    return 1.0, public * share


def _points(ground: Ground) -> Matrix:
    """Regressors a of the synthetic population."""
    z = ground.rows.scaled(ground.linear)
    return np.hstack([np.ones((len(z), 1)), ground.regressors.alpha * z])
