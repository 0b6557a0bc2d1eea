"""Average effects of any learner: one release of doubly robust scores gives ATE, groups and BLP."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from privcausal.inference import cut as cuts
from privcausal.inference.average import (
    AverageEstimate,
    Frame,
    ScoreData,
    clustered,
    estimate_averages,
)
from privcausal.inference.confounding import Remainder
from privcausal.learners.estimands import Target
from privcausal.learners.ground import Ground
from privcausal.learners.nuisances import read_sizes
from privcausal.typing import Matrix
from privcausal.vault import ScoreSquares, ScoreSums

Stages = tuple[str, str, str]
STAGES: Stages = ("average: score sizes", "average: scores", "average: squared scores")


def averages(
    ground: Ground,
    target: Target,
    remainder: Remainder,
    stages: Stages,
    name: str,
) -> AverageEstimate:
    """Release sums of the score (1, z, g) and of its squares; estimates with covariances.

    Parameters
    ----------
    target : Target
        Score and mass of the estimand.
    remainder : Remainder
        Bias from the nuisances' errors, as far as it is known.
    """
    request = ground.session.plan.request
    score = target.score
    sizes = read_sizes(ground, score, stages[0], target.reach)
    regressors, robust = ground.regressors, request.cov_type == "HC0"
    rough = ScoreSums(
        score,
        1.0,
        target.mass,
        regressors,
        request.trust.neighbors,
        target.group_masses,
        None if target.pilot is None else target.pilot.score,
    )
    cut = cuts.for_average(sizes, _noise_per_cut(ground, rough, stages[1]), target.ceiling)
    sums = replace(rough, cut=cut)
    first = ground.session.release(stages[1], sums)
    squares = ScoreSquares(score, cut, regressors, meat=robust)
    second = ground.session.release(stages[2], squares)
    value, sd = (
        ScoreData(*sums.split(a), *squares.split(b))
        for a, b in ((first.value, second.value), (first.noise_sd, second.noise_sd))
    )
    size = _size(ground, value, sd, ground.session.plan.stage(stages[1]).rows)
    columns = ground.linear.columns
    frame = Frame(
        target.centre,
        size,
        _points(ground),
        regressors.alpha * np.array([c.per_unit for c in columns]),
        cuts.unseen_bias(sizes, cut, target.ceiling),
        remainder,
        0.0 if sizes.silent else 0.25 * sizes.rms(cut) ** 2,
        (1.0, target.mass_spread),
        target.group_masses,
        target.kept(cut, sizes),
        None if target.pilot is None else target.pilot.coef,
    )
    terms = (name, *(c.name for c in columns))
    groups = tuple(g.label for g in ground.groups)
    found = estimate_averages(terms, groups, value, sd, frame, robust=robust)
    return clustered(found, request.trust.max_rows)


def _noise_per_cut(ground: Ground, sums: ScoreSums, stage: str) -> float:
    """Noise sd of the mean score per unit of its cut."""
    plan = ground.session.plan
    trust = plan.request.trust
    change = sums.sensitivity(trust.neighbors) * trust.max_rows * float(sums.units[0])
    return float(change / np.sqrt(2 * plan.stage(stage).rho / 1e12) / ground.population.count)


def _size(ground: Ground, value: ScoreData, sd: ScoreData, share: float) -> float:
    """Complete rows: the noisy count, or the declared size where nothing can be missing."""
    session = ground.session
    noisy, noise = float(value.outer[0, 0]), float(sd.outer[0, 0])
    public = session.vault.size
    if public is None or session.plan.request.trust.unit is not None:
        return float(max(noisy, noise, 1.0))
    if session.schema.complete and share == 1.0:
        return float(public)
    return float(np.clip(noisy, 1.0, public * share))


def _points(ground: Ground) -> Matrix:
    """Regressors a of the synthetic population."""
    z = ground.rows.scaled(ground.linear)
    return np.hstack([np.ones((len(z), 1)), ground.regressors.alpha * z])
