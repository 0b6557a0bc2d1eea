"""Slopes on treatments, and the ratio of two on an instrument, from one release of vector scores.

As in `average`, covariances add sampling, privacy noise, and allowances.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import eigh

from privcausal.inference.average import AverageEstimate
from privcausal.inference.priors import PRIORS
from privcausal.typing import Matrix, Vector

VectorSums = tuple[Vector, Matrix, Matrix]
"""Of the scores s, of d d' and of s s', for residuals d of several treatments."""


def estimate_slopes(
    terms: tuple[str, ...],
    value: VectorSums,
    sd: VectorSums,
    centre: Vector,
    bias: float,
    remainder: Vector,
    *,
    model: Matrix,
    size: float,
    lost: float = 0.0,
    unit: float = 1.0,
) -> AverageEstimate:
    """theta = c + (sum d d')^-1 sum s for scores centred at c, over the treatments' unit.

    The sampling covariance is the sandwich, HC0 in the regression of residuals. A cut moves the
    mean of the scores by at most `bias` in norm, so by Cauchy and Schwarz a slope by that times the
    norm of a row of the inverse; and a slope by at most the share `lost` of itself. The mean of s_j
    errs by `remainder`, by the nuisances. `model` is sum d d' as the nuisances say: a prior.
    """
    total, mass, square = value
    inverse, keep = _inverse(mass, sd[1], model, size)
    left = inverse @ total
    meat = _spread(total, square, sd[2], size)
    sampling = inverse @ meat @ inverse / unit**2
    privacy = inverse @ np.diag(sd[0] ** 2 + keep * sd[1] ** 2 @ left**2) @ inverse / unit**2
    theta = (centre + left) / unit
    clipping = size * bias * np.linalg.norm(inverse, axis=1) / unit
    clipping += lost * (np.abs(theta) + np.sqrt(np.diag(sampling + privacy)))
    errors = size * np.abs(inverse) @ remainder / unit
    return AverageEstimate(terms, (), theta, sampling, privacy, clipping, errors, size)


def _inverse(mass: Matrix, noise_sd: Matrix, model: Matrix, size: float) -> tuple[Matrix, float]:
    """Inverse of the sum d d', shrunk towards the `model`, and the share of it that is kept."""
    typical = max(float(np.trace(model)) / len(model), 1e-6 * size)
    keep = 1 / (1 + float((noise_sd**2).mean()) / (PRIORS.mass_sd * typical) ** 2)
    prior = model + 1e-3 * typical * np.eye(len(model))
    values, vectors = eigh(model + keep * (mass - model), prior)
    return (vectors / np.maximum(values, PRIORS.eigenvalues[0])) @ vectors.T, keep


def _spread(total: Vector, square: Matrix, noise_sd: Matrix, size: float) -> Matrix:
    """Covariance of the sum of s, raised by its own noise."""
    values, vectors = np.linalg.eigh(square - np.outer(total, total) / size)
    # eigenvalues of a noisy matrix err by about sqrt(J) sd
    lift = float(noise_sd.mean()) * np.sqrt(len(total))
    least = PRIORS.least_spread * float(np.trace(square)) / len(total)
    return np.asarray((vectors * (np.maximum(values, max(least, 0.0)) + lift)) @ vectors.T)


REDUCED = ("LATE", "reduced form", "first stage")
"""The ratio of the slopes of the outcome and of the treatment on an instrument, and these."""


def estimate_reduced(
    value: VectorSums,
    sd: VectorSums,
    centre: tuple[float, float],
    bias: float,
    remainder: Vector,
    *,
    model: float,
    size: float,
    units: Sequence[float],
) -> AverageEstimate:
    """The LATE, reduced form and first stage, from scores d (Y - eta - c (T - e)), k d (T - e).

    `centre` is (c, k), `remainder` the root mean square errors of the means of d (Y - eta) and of
    d (T - e), `units` the widths that the instrument and the treatment were divided by. Else as
    `estimate_slopes`. The noise of sum d^2 is in both alike, and not in their ratio, whose row is
    by the delta method: for its limits see `contrasts.late_limits`.
    """
    total, mass, square = value
    inverse, keep = _inverse(mass, sd[1], np.array([[model]]), size)
    (c, k), (by, taken) = centre, units
    back = np.array([[1.0, c / k], [0.0, taken / k]]) * float(inverse[0, 0]) / by
    reduced, first = back @ total
    late = reduced / first if first else 0.0
    by_first = np.array([1.0, -late]) / (first or 1e-300)
    all_ = np.vstack([by_first, np.eye(2)])
    errors = size * float(inverse[0, 0]) / by * remainder * np.array([1.0, taken])
    back, errors = all_ @ back, np.abs(all_) @ errors
    # in units in which both are alike, or the floor of the larger would be the other's
    unit = np.sqrt(np.maximum(np.diag(square), np.diag(sd[2])))
    units_ = np.outer(unit, unit)
    spread = units_ * _spread(total / unit, square / units_, sd[2] / units_, size)
    sampling = back @ spread @ back.T
    common = np.array([0.0, reduced, first]) * np.sqrt(keep) * float(inverse[0, 0] * sd[1][0, 0])
    privacy = back @ np.diag(sd[0] ** 2) @ back.T + np.outer(common, common)
    moved = size * bias * back
    return AverageEstimate(
        REDUCED, (), np.array([late, reduced, first]), sampling, privacy,
        np.linalg.norm(moved, axis=1), errors, size, moved=moved,
    )  # fmt: skip
