"""Slopes on several arms from released sums, with their joint covariance."""

from __future__ import annotations

import numpy as np

from privcausal.inference.average import AverageEstimate, well_conditioned
from privcausal.inference.priors import PRIORS
from privcausal.typing import Matrix, Vector

Sums = tuple[Vector, Matrix, Matrix]
"""Of the scores s, of d d' and of s s'."""


def estimate_contrasts(
    terms: tuple[str, ...],
    value: Sums,
    sd: Sums,
    *,
    centre: Vector,
    model: Matrix,
    size: float,
    bias: float,
    remainder: Vector,
) -> AverageEstimate:
    """theta = c + (sum d d')^-1 sum s, for scores centred at c.

    The sampling covariance is the sandwich, HC0 of the residuals' regression. A cut moves the mean
    of the scores by at most `bias` in norm; by Cauchy and Schwarz it moves a slope by that times
    the norm of a row of the inverse. The mean of s_j errs by `remainder`, by nuisances.

    Parameters
    ----------
    model : Matrix
        sum d d' as the released propensities say, shape (J, J).
    size : float
        (Noisy) number of rows.
    """
    total, mass, square = value
    gram, keep = well_conditioned(mass, model, sd[1])
    inverse = np.linalg.inv(gram)
    left = inverse @ total
    values, vectors = np.linalg.eigh(square - np.outer(total, total) / size)
    # raised by its own noise: eigenvalues of a noisy matrix err by about sqrt(J) sd
    lift = float(sd[2].mean()) * np.sqrt(len(total))
    least = PRIORS.least_spread * max(float(np.trace(square)), 0.0) / len(total)
    meat = (vectors * (np.maximum(values, least * (lift > 0)) + lift)) @ vectors.T
    noise = np.diag(sd[0] ** 2 + keep**2 * sd[1] ** 2 @ left**2)
    return AverageEstimate(
        terms,
        (),
        centre + left,
        inverse @ meat @ inverse,
        inverse @ noise @ inverse,
        size * bias * np.linalg.norm(inverse, axis=1),
        size * np.abs(inverse) @ remainder,
        size,
    )
