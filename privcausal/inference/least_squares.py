"""Least squares from noisy moments of bounded rows: coefficients and their covariance.

There is no shrinkage and no prior. If noise hides a combination of columns in the moments, its
coefficients have no estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcausal.inference import averages
from privcausal.inference.regression import positive_part, signal_share
from privcausal.typing import Matrix, Vector


def whitening(gram: Matrix, noise_sd: float, rows: float) -> Matrix:
    """W with W' gram W = rows x 1 in the directions that noise leaves detectable, shape (p, p).

    Directions hidden by noise are scaled by the largest curvature that the noise may hide.
    """
    values, vectors = np.linalg.eigh(gram / rows)
    least = averages.FEW_SDS * noise_sd * np.sqrt(len(gram)) / rows
    return np.asarray(vectors / np.sqrt(np.maximum(values, max(least, 1e-12 * values[-1]))))


def least_seen(gram_sd: float, size: int) -> float:
    """Least detectable eigenvalue of a noisy Gram (size, size) (Wigner 1958)."""
    return float(2 * gram_sd * np.sqrt(size))


@dataclass(frozen=True, eq=False)
class Released:
    """Moments of whitened rows u: sums of u u', u r and r^2, with r the residual of a first fit.

    `gram_sd` is the noise sd of an entry of the Gram off its diagonal. `cross_sd` and `square_sd`
    are the noise sds of the other moments, and `cut` is the clipping threshold of ||u r||. `meat`
    is the sum of r^2 u u' (None: not released), with noise sd `meat_sd`.
    """

    gram: Matrix
    cross: Vector
    square: float
    gram_sd: float
    cross_sd: float
    square_sd: float
    cut: float
    meat: Matrix | None = None
    meat_sd: float = 0.0

    @cached_property
    def solution(self) -> tuple[Vector, Matrix, Matrix]:
        """delta, the inverse of the Gram in its detectable directions, and the other directions."""
        values, vectors = np.linalg.eigh(self.gram)
        least = max(least_seen(self.gram_sd, len(values)), 1e-9 * float(values[-1]))
        seen = values > least
        inverse = (vectors[:, seen] / values[seen]) @ vectors[:, seen].T
        return inverse @ self.cross, inverse, vectors[:, ~seen]


def estimate_coefficients(
    names: tuple[str, ...],
    first: Vector,
    lift: Matrix,
    found: Released,
    bias: float,
    rows: float,
    floor: float,
) -> averages.AverageEstimate:
    """Coefficients `first` + `lift` delta, where delta solves gram delta = cross.

    With delta = G^-1 b, the error is G^-1 (E_b - E_G delta) plus sampling. The noise of the Gram is
    multiplied only by the coefficients that remain after the first fit. Under homoskedasticity,
    residuals have the variance s2 = sum r^2 / (n - p), and G^-1 s2 is the sampling covariance. With
    `Released.meat` the sampling covariance is G^-1 meat G^-1 (HC0).

    Parameters
    ----------
    first : Vector
        Coefficients of the first fit, shape (k,), in natural units.
    lift : Matrix
        Map from whitened to natural coefficients, shape (k, p).
    bias : float
        Bound of the mean over the rows of ||u r|| beyond its clipping threshold.
    rows : float
        The (noisy) number of rows.
    floor : float
        Least mean squared residual.
    """
    n, p = rows, len(found.cross)
    delta, inverse, hidden_in = found.solution
    square = averages.raised(found.square - float(found.cross @ delta), found.square_sd, floor * n)
    scale = square / max(n - p, 1.0)
    by = lift @ inverse
    noise = (found.cross_sd**2 + found.gram_sd**2 * float(delta @ delta)) * np.eye(p)
    noise += found.gram_sd**2 * np.outer(delta, delta)
    sampling = scale * by @ positive_part(found.gram) @ by.T
    if found.meat is not None:
        sampling = by @ _shrunken_meat(found, scale) @ by.T
    moved = bias * n * by
    estimate, privacy = first + lift @ delta, by @ noise @ by.T
    # a coefficient that depends on hidden directions is missing
    lost = np.linalg.norm(lift @ hidden_in, axis=1)
    unknown = lost > 1e-6 * np.linalg.norm(lift, axis=1)
    estimate[unknown] = np.nan
    sampling[unknown] = sampling[:, unknown] = 0.0
    sampling[unknown, unknown] = np.inf
    return averages.AverageEstimate(
        names, (), estimate, sampling, privacy, np.linalg.norm(moved, axis=1),
        np.zeros(len(names)), n, moved=moved,
    )  # fmt: skip


def _shrunken_meat(found: Released, scale: float) -> Matrix:
    """The meat, shrunken towards the homoskedastic `scale` gram, and raised by one sd of its noise.

    The difference between the meat and this model is multiplied by the share of its mean square
    that noise does not explain. The root of this share times the noise remains in any direction
    (its posterior sd).
    """
    assert found.meat is not None
    model = scale * positive_part(found.gram)
    gap = found.meat - model
    noise = np.full_like(gap, found.meat_sd**2) + np.diag(np.full(len(gap), found.meat_sd**2))
    upper = np.triu_indices(len(gap))
    keep = signal_share(gap[upper], float(noise[upper].mean()))
    raised_by = float(np.sqrt(2 * keep)) * found.meat_sd
    return positive_part(model + keep * gap) + raised_by * np.eye(len(gap))
