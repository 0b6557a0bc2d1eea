"""What surrounds a private kernel regression: which ridge to ask for, and how to read its weights.

Both use released numbers only: the synthetic population gives the spectrum of the basis, and with
it the law of the weights for effects drawn from a Gaussian process of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from privcausal.features.expansions import Fourier
from privcausal.features.rows import Rows
from privcausal.typing import Matrix, Vector

SPREAD, LEFT_SPREAD = 1.0, 0.25
"""Public prior sds of the effect over covariates, and of what a first additive effect leaves,
against the outcome's residual sd."""

PULL = 1.0
"""Sd of the prior sd's logarithm around its public value, at which sparse data leave it."""

_RIDGES = np.geomspace(1e-6, 1.0, 49)
"""Tried as shares of the summed curvature of all rows."""


@dataclass(frozen=True, eq=False)
class KernelPrior:
    """The weights that a regression with ridge lambda finds, in directions of the population.

    With w ~ N(0, s^2 I) and total curvature a_j along direction j, the exact weights are
    b_j w_j + N(0, sigma^2 a_j / (a_j + lambda)^2), b_j = a_j / (a_j + lambda).

    Attributes
    ----------
    values, vectors : Vector, Matrix
        Eigenvalues of E[phi phi'] over the synthetic population, and its directions.
    mass : float
        Rows times their mean weight: a = mass x values.
    residual, spread : float
        sigma^2, the pseudo-outcome's residual variance per unit of weight; and s^2.
    """

    values: Vector
    vectors: Matrix
    mass: float
    residual: float
    spread: float

    @classmethod
    def of(
        cls, features: Fourier, rows: Rows, mass: float, residual: float, spread: float
    ) -> KernelPrior:
        """Of the synthetic population `rows`; `spread` in residual standard deviations."""
        phi = rows.phi(features)
        values, vectors = np.linalg.eigh(phi.T @ phi / len(phi))
        residual = max(residual, 1e-12)
        return cls(np.maximum(values, 0.0), vectors, mass, residual, spread**2 * residual)

    def _shrunken(self, ridge: float) -> tuple[Vector, Vector]:
        """b_j, and the sampling variance of exact weights."""
        a = self.mass * self.values
        return a / (a + ridge), self.residual * a / (a + ridge) ** 2

    def filter(self, ridge: float, noise_sd: float) -> Vector:
        """Share of signal in each noisy weight, in [0, 1]; 1 without noise."""
        b, sampling = self._shrunken(ridge)
        signal = np.maximum(self.spread * b**2 + sampling, 1e-300)
        return np.asarray(signal / (signal + noise_sd**2))

    def risk(self, ridge: float, noise_sd: float) -> Vector:
        """Mean squared error of each filtered weight, shape (p,)."""
        b, sampling = self._shrunken(ridge)
        f = self.filter(ridge, noise_sd)
        return np.asarray(self.spread * (1 - f * b) ** 2 + f**2 * (sampling + noise_sd**2))

    def cov(self, ridge: float, noise_sd: float) -> Matrix:
        """Second moments of the filtered weights' error, shape (p, p)."""
        cov = (self.vectors * self.risk(ridge, noise_sd)) @ self.vectors.T
        return np.asarray(0.5 * (cov + cov.T))

    def best_ridge(self, noise_sd: Callable[[float], float]) -> float:
        """lambda of least expected error over the population, given the noise it brings."""
        grid = max(self.mass, 1.0) * _RIDGES
        loss = [self.values @ self.risk(ridge, noise_sd(ridge)) for ridge in grid.tolist()]
        return float(grid[int(np.argmin(loss))])

    def fitted(self, weights: Vector, ridge: float, noise_sd: float) -> KernelPrior:
        """The same with s^2 by marginal likelihood of noisy weights, near its public value."""
        seen = (self.vectors.T @ weights) ** 2
        b, sampling = self._shrunken(ridge)
        steps = np.linspace(-3.0, 3.0, 61)

        def deviance(step: float) -> float:
            variance = self.spread * np.exp(2 * step) * b**2 + sampling + noise_sd**2
            variance = np.maximum(variance, 1e-30)
            return float(np.sum(np.log(variance) + seen / variance)) + (step / PULL) ** 2

        best = min(steps.tolist(), key=deviance)
        return replace(self, spread=float(self.spread * np.exp(2 * best)))


def denoised(
    law: KernelPrior, weights: Vector, ridge: float, noise_sd: float
) -> tuple[Vector, Matrix]:
    """Weights with their noise shrunk, and the covariance of their error."""
    law = law.fitted(weights, ridge, noise_sd)
    vectors = law.vectors
    if noise_sd > 0:
        weights = vectors @ (law.filter(ridge, noise_sd) * (vectors.T @ weights))
    return np.asarray(weights), law.cov(ridge, noise_sd)
