"""Average effects from one release of doubly robust scores: ATE, groups, best linear projection.

Every mean is a ratio of noisy sums; covariances add sampling and privacy by the delta method.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcausal.typing import Matrix, Vector


@dataclass(frozen=True, eq=False)
class Averages:
    """Estimates with the two parts of their covariance.

    Attributes
    ----------
    estimate : Vector
        Shape (m,).
    sampling, privacy : Matrix
        Shape (m, m); their sum and bias**2 on the diagonal is the covariance.
    bias : Vector
        Allowance for clipping bias, shape (m,).
    """

    estimate: Vector
    sampling: Matrix
    privacy: Matrix
    bias: Vector

    @property
    def cov(self) -> Matrix:
        return np.asarray(self.sampling + self.privacy + np.diag(self.bias**2))


def raised(total: float, noise_sd: float, floor: float) -> float:
    """A noisy sum of squares plus one noise sd, and not below `floor`.

    The z interval of a standard error that is too small as often as too large undercovers; one sd
    of upward allowance more than makes up for it.
    """
    return max(total, floor) + noise_sd


def ratio(
    total: float, total_sd: float, mass: float, mass_sd: float, variance: float, centre: float,
    bias: float,
) -> Averages:
    """centre + total/mass, with variance of one score `variance`.

    The delta method on (total, mass), independent noise: var = (sd_t^2 + r^2 sd_m^2) / mass^2.
    """
    r = total / mass
    privacy = (total_sd**2 + (r * mass_sd) ** 2) / mass**2
    return Averages(
        np.array([centre + r]), np.array([[variance / mass]]), np.array([[privacy]]),
        np.array([bias]),
    )


def projection(
    cross: Vector, cross_sd: Vector, gram: Matrix, gram_sd: Matrix, meat: Matrix, centre: float,
    bias: float,
) -> Averages:
    """Best linear projection H^-1 sum(psi a), with V = H^-1 (meat + noise) H^-1.

    `gram` is the (noisy, positive) sum of a a' and `meat` the sampling covariance of sum(psi a).
    The noise in H enters with the coefficients: its row i has sd `gram_sd[i]`.
    """
    inverse = np.linalg.inv(gram)
    slopes = inverse @ cross
    noise = np.diag(cross_sd**2 + gram_sd**2 @ slopes**2)
    estimate = slopes.copy()
    estimate[0] += centre
    return Averages(
        estimate, inverse @ meat @ inverse, inverse @ noise @ inverse,
        bias * np.sqrt(np.diag(inverse) * gram[0, 0]),
    )


def well_conditioned(gram: Matrix, model: Matrix, noise_sd: Matrix) -> Matrix:
    """A noisy Gram moved towards the population's so far as the noise asks, and positive."""
    gap = gram - model
    variance = float((noise_sd**2).mean())
    signal = max(float((gap**2).mean()) - variance, 0.0)
    keep = signal / (signal + variance) if signal > 0 else 0.0
    mixed = model + keep * gap
    values, vectors = np.linalg.eigh(mixed)
    floor = 0.05 * np.linalg.eigvalsh(model)[0]
    return np.asarray((vectors * np.maximum(values, max(floor, 1e-9))) @ vectors.T)
