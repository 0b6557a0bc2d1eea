"""Survival curves from noisy counts, and the scores that replace censored outcomes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcausal.typing import Matrix, Vector

LEAST_FOLLOWED = 0.25
"""Least divisor of a score, a probability of no censoring. It bounds the scores.

0.1 let noise in the last bins widen intervals twofold at eps = 0.5, on seeds from 0 of
`tests/benchmarks/survival.py`. 0.4 would be reached in many studies.
"""

REPLICAS = 200
"""Replicas of the noise, for its effect on curves and means. Their variances have 10% error."""

_PUBLIC_SEED = 7_072  # Public seed of the quadrature points for the effect of the noise.


@dataclass(frozen=True, eq=False)
class ArmCurve:
    """Kaplan-Meier curves of one arm by bin of time, or of its replicas, shape (..., bins)."""

    counts: Matrix  # Rows by kind of end (an event, or another end) and bin, shape (..., 2, bins)

    @property
    def risk(self) -> Vector:
        """Rows whose time is in the bin or later."""
        return np.cumsum(self.counts.sum(axis=-2)[..., ::-1], axis=-1)[..., ::-1]

    @property
    def hazard(self) -> Vector:
        """Share of the rows at risk with an event in the bin."""
        return _ratio(self.counts[..., 0, :], self.risk)

    @property
    def survival(self) -> Vector:
        """Probability of no event by the end of the bin."""
        return np.asarray(np.cumprod(1 - self.hazard, axis=-1))

    @property
    def followed(self) -> Vector:
        """Probability of no censoring before the bin; events precede censorings in a bin."""
        events, others = self.counts[..., 0, :], self.counts[..., 1, :]
        censored = _ratio(others, self.risk - events)[..., :-1]
        whole = np.ones((*censored.shape[:-1], 1))
        return np.cumprod(np.concatenate([whole, 1 - censored], axis=-1), axis=-1)

    def replicas(self, noise_sd: float, root: Matrix) -> ArmCurve:
        """Curves of these counts with new noise, shape (`REPLICAS`, bins)."""
        rng = np.random.default_rng(_PUBLIC_SEED)
        noise = noise_sd * rng.standard_normal((REPLICAS, *self.counts.shape))
        return arm_curve(self.counts @ root.T + noise, root)

    def cov(self, replicas: ArmCurve, design_effect: float) -> Matrix:
        """Covariance of `survival`, shape (bins, bins): Greenwood's (1926), and of the noise.

        `design_effect` multiplies Greenwood's part.
        """
        left = np.maximum(self.risk * (1 - self.hazard), 1.0)
        greenwood = design_effect * np.cumsum(self.hazard / left)
        place = np.arange(len(greenwood))
        log = greenwood[np.minimum(place, place[:, None])]
        noise = replicas.survival - self.survival
        return np.asarray(log * np.outer(self.survival, self.survival) + noise.T @ noise / REPLICAS)


def _ratio(part: Vector, whole: Vector) -> Vector:
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)


def arm_curve(released: Matrix, root: Matrix) -> ArmCurve:
    """Curves from released sums of events and other ends, shape (..., 2, bins).

    ``root @ released`` are suffix sums of the counts. They are made nonnegative and monotone.
    Without noise, the curves are Kaplan-Meier curves (Kaplan and Meier 1958).
    """
    sums = released @ root.T
    down = np.minimum.accumulate(sums, axis=-1)
    up = np.maximum.accumulate(sums[..., ::-1], axis=-1)[..., ::-1]
    return ArmCurve(-np.diff(np.maximum((down + up) / 2, 0.0), axis=-1, append=0.0))


def scores(curve: ArmCurve, value: Vector, last: float) -> Matrix:
    """Scores of rows by their kind of end and bin, shape (..., 2, bins).

    `value` is the outcome f of an event in each bin, and `last` is f without an event.
    The score is the mean of f plus an augmented inverse probability weighted error (Robins and
    Rotnitzky 1992; Tsiatis 2006, Chapter 10):

        m + sum_k (1(event in k) - 1(at risk in k) hazard_k) (f_k - m_k) / G_k,

    where m is the mean of f, m_k its mean after bin k, and G_k = `followed`, which is held above
    `LEAST_FOLLOWED`. If G is right, the mean score equals the mean of f given any covariates, for
    any hazard. If the hazard is right, both means over the arm are equal for any G. Without noise,
    the mean over the arm is the Kaplan-Meier estimate.
    """
    hazard = curve.hazard
    after = np.full(hazard.shape, last)  # m_k
    for k in range(len(value) - 2, -1, -1):
        after[..., k] = after[..., k + 1] + hazard[..., k + 1] * (value[k + 1] - after[..., k + 1])
    first = after[..., :1] + hazard[..., :1] * (value[0] - after[..., :1])
    step = (value - after) / np.maximum(curve.followed, LEAST_FOLLOWED)
    ended = first - np.cumsum(hazard * step, axis=-1)
    return np.stack([ended + step, ended], axis=-2)


def noise_square(curve: ArmCurve, replicas: ArmCurve, value: Vector, last: float) -> float:
    """Mean square of the error that noise in the counts adds to the mean score of an arm.

    It is the mean over replicas of the noise, for rows as in `curve`. The mean score is the sum of
    products of errors of the hazard and of `followed`, so noise has no effect of first order.
    """
    both = scores(curve, value, last), scores(replicas, value, last)
    own, other = (np.sum(one * curve.counts, axis=(-2, -1)) for one in both)
    return float(np.mean((other - own) ** 2) / max(float(curve.counts.sum()), 1.0) ** 2)
