"""Average effects of any learner: one release of doubly robust scores gives ATE, groups and BLP."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcausal.inference import cut as cuts
from privcausal.inference.average import raised, well_conditioned
from privcausal.learners.ground import Ground
from privcausal.learners.nuisances import read_sizes
from privcausal.spec.functions import Constant, Nuisance
from privcausal.typing import Matrix, Vector
from privcausal.vault import Aipw, ByFold, Regressors, ScoreSquares, ScoreSums, Transform

FEW = 3.0
"""A group whose noisy size is below this many noise sd has no estimate."""


Stages = tuple[str, str, str]
STAGES: Stages = ("average: score sizes", "average: scores", "average: squared scores")


@dataclass(frozen=True, eq=False)
class AverageEstimate:
    """Names, estimates and the two parts of their covariance, in natural units.

    `size` is the (noisy) number of complete rows. `terms` come first (the average effect, then
    the slopes), then the groups.
    """

    terms: tuple[str, ...]
    groups: tuple[str, ...]
    estimate: Vector
    sampling: Matrix
    privacy: Matrix
    clipping: Vector
    size: float

    @property
    def cov(self) -> Matrix:
        return np.asarray(self.sampling + self.privacy + np.diag(self.clipping**2))


def averages(
    ground: Ground, nuisances: tuple[Nuisance, ...], centre: float, stages: Stages, name: str
) -> AverageEstimate:
    """Release sums of psi (1, z, g) and of their squares; return estimates with covariances.

    Parameters
    ----------
    nuisances : one per fold, or one.
    centre : float
        Public number near the average effect; scores are cut around it.
    """
    request = ground.session.plan.request
    outcome, clip = ground.outcome, ground.clip
    reach = 2 * outcome.bound
    centre = float(np.clip(centre, -reach, reach))
    made = tuple(Aipw(n, outcome, clip, Constant(centre), abs(centre)) for n in nuisances)
    score: Transform = made[0] if len(made) == 1 else ByFold(made)
    sizes = read_sizes(ground, score, stages[0])
    cut = cuts.generous(sizes)
    regressors = ground.regressors
    sums = ScoreSums(score, cut, regressors, request.trust.neighbors)
    first = ground.session.release(stages[1], sums)
    squares = ScoreSquares(score, cut, regressors, meat=request.cov_type == "HC0")
    second = ground.session.release(stages[2], squares)
    parts = _Parts(
        *sums.split(first.value), *sums.split(first.noise_sd),
        *squares.split(second.value), *squares.split(second.noise_sd),
    )
    bias = cuts.unseen_bias(sizes, cut)
    return _assemble(ground, parts, regressors, centre, bias, name, sizes.rms(cut))


@dataclass(frozen=True, eq=False)
class _Parts:
    """Released sums, then the noise sds in the same order."""

    xa: Vector
    xg: Vector
    mass: Matrix
    group_mass: Vector
    xa_sd: Vector
    xg_sd: Vector
    mass_sd: Matrix
    group_mass_sd: Vector
    square: float
    group_square: Vector
    meat: Matrix
    square_sd: float
    group_square_sd: Vector
    meat_sd: Matrix


def _assemble(
    ground: Ground, p: _Parts, regressors: Regressors, centre: float, bias: float, name: str,
    rms: float,
) -> AverageEstimate:
    size = _public_mass(ground, float(p.mass[0, 0]), float(p.mass_sd[0, 0]))
    size_sd = float(p.mass_sd[0, 0])
    # ---- the average: a ratio of noisy sums
    mean = float(p.xa[0]) / size
    second = raised(p.square, p.square_sd, 0.25 * rms**2 * size) / size
    variance = max(second - mean**2, 0.1 * second)
    rows = [np.r_[1.0 / size, np.zeros(regressors.width - 1)]]
    estimate, extra = [centre + mean], [(mean * size_sd / size) ** 2]
    # ---- slopes: H^-1 sum(psi a), in natural units
    sampling_a = variance * p.mass
    columns = ground.linear.columns
    if columns:
        model = _model_mass(ground, regressors, size)
        gram = well_conditioned(p.mass, model, p.mass_sd)
        inverse = np.linalg.inv(gram)
        slopes = inverse @ p.xa
        explained = float(slopes[1:] @ (gram - np.outer(gram[0], gram[0]) / gram[0, 0])[1:, 1:]
                          @ slopes[1:]) / size
        residual = max(variance - explained, 0.25 * variance)
        sampling_a = _meat(ground, p, gram, residual)
        scale = regressors.alpha * np.array([c.per_unit for c in columns])
        for j, unit in enumerate(scale, start=1):
            rows.append(unit * inverse[j])
            estimate.append(unit * slopes[j])
            extra.append(float(unit**2 * inverse[j] ** 2 @ (p.mass_sd**2 @ slopes**2)))
    lift = np.array(rows)
    sampling = lift @ sampling_a @ lift.T
    sampling[0, 0] = variance / size
    privacy = lift @ np.diag(p.xa_sd**2) @ lift.T + np.diag(extra)
    terms = (name, *(c.name for c in columns))
    clipping = bias * np.r_[1.0, np.sqrt(np.diag(lift @ p.mass @ lift.T)[1:] * size).clip(0)]
    out = AverageEstimate(terms, (), np.array(estimate), sampling, privacy, clipping, size)
    return _with_groups(ground, out, p, centre, bias)


def _public_mass(ground: Ground, noisy: float, sd: float) -> float:
    """Complete rows: the noisy count, or the declared size where nothing can be missing."""
    session = ground.session
    share = session.plan.stages[-1].rows
    request = session.plan.request
    if session.vault.size is not None and request.trust.unit is None:
        whole = session.vault.size * share
        return float(whole) if session.schema.complete and share == 1.0 else float(
            np.clip(noisy, 1.0, whole)
        )
    return float(max(noisy, sd, 1.0))


def _model_mass(ground: Ground, regressors: Regressors, size: float) -> Matrix:
    """Sum of a a' in the synthetic population."""
    z = ground.rows.scaled(ground.linear)
    a = np.hstack([np.ones((len(z), 1)), regressors.alpha * z])
    return np.asarray(a.T @ a * (size / len(z)))


def _meat(ground: Ground, p: _Parts, gram: Matrix, residual: float) -> Matrix:
    if ground.session.plan.request.cov_type == "nonrobust":
        return residual * gram
    values, vectors = np.linalg.eigh(p.meat)
    # raised by its own noise: eigenvalues of a noisy matrix err by about sqrt(m) sd
    lift = float(p.meat_sd.mean()) * np.sqrt(len(gram))
    return np.asarray((vectors * np.maximum(values + lift, 0.1 * residual)) @ vectors.T)


def _with_groups(
    ground: Ground, out: AverageEstimate, p: _Parts, centre: float, bias: float
) -> AverageEstimate:
    if not ground.groups:
        return out
    m = len(out.terms)
    k = len(ground.groups)
    estimate = np.r_[out.estimate, np.full(k, np.nan)]
    sampling, privacy = np.zeros((m + k, m + k)), np.zeros((m + k, m + k))
    sampling[:m, :m], privacy[:m, :m] = out.sampling, out.privacy
    clipping = np.r_[out.clipping, np.full(k, bias)]
    for j in range(k):
        mass, sd = float(p.group_mass[j]), float(p.group_mass_sd[j])
        at = m + j
        if mass <= FEW * sd:
            sampling[at, at] = np.inf
            continue
        mean = float(p.xg[j]) / mass
        overall = out.sampling[0, 0] * out.size
        second = raised(float(p.group_square[j]), float(p.group_square_sd[j]), 0.25 * overall * mass)
        estimate[at] = centre + mean
        sampling[at, at] = max(second / mass - mean**2, 0.1 * second / mass) / mass
        privacy[at, at] = (float(p.xg_sd[j]) ** 2 + (mean * sd) ** 2) / mass**2
    return AverageEstimate(
        out.terms, tuple(g.label for g in ground.groups), estimate, sampling, privacy, clipping,
        out.size,
    )
