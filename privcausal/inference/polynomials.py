"""Regressions from a noisy squared loss: what is done to make it convex, and the difference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from privcausal.spec.features import Rows
from privcausal.spec.polynomials import Polynomials
from privcausal.typing import Matrix, Vector

RIDGE = 4.0
"""Regularisation in noise standard deviations (Zhang et al. 2012, section 6.1)."""


def trimmed(gram: Matrix, cross: Vector, noise_sd: float) -> Vector:
    """Coefficients of the noisy loss: a ridge, then directions of no curvature are left out."""
    values, vectors = np.linalg.eigh(gram + RIDGE * noise_sd * np.eye(len(gram)))
    kept = values > 1e-9 * max(float(values[-1]), 0.0)
    if not kept.any():
        return np.zeros(len(cross))
    inner = vectors[:, kept]
    return np.asarray(inner @ ((inner.T @ cross) / values[kept]))


@dataclass(frozen=True, eq=False)
class ArmPolynomials:
    """tau(x) as the difference of two regressions, each cut to the outcome's bounds.

    Attributes
    ----------
    coef : Matrix
        Of y less the middle of its bounds, shape (2, size): control and treated.
    half : float
        Half of the outcome's range.
    """

    polynomials: Polynomials
    coef: Matrix
    half: float

    def __call__(self, rows: Rows) -> Vector:
        phi = self.polynomials.of(rows.frame)
        means = [np.clip(phi @ coef, -self.half, self.half) for coef in self.coef]
        return np.asarray(means[1] - means[0])

    def sd(self, rows: Rows) -> Vector:
        """Not known: the mechanism's own regularisation biases it."""
        return np.full(len(rows), np.nan)


@dataclass(frozen=True, eq=False)
class ArmLogits(ArmPolynomials):
    """tau(x) as the difference of two probabilities, of logistic regressions; `half` is 1/2."""

    def __call__(self, rows: Rows) -> Vector:
        phi = self.polynomials.of(rows.frame)
        control, treated = (expit(phi @ coef) for coef in self.coef)
        return np.asarray(treated - control)
