"""Empirical-Bayes additive regression from noisy moments, with the noise in the likelihood.

Given G ~ sum w phi phi' + noise and b = sum w y phi + noise, the model is

    b | beta ~ N(G+ beta, s2 G+ + (sd_b^2 + sd_G^2 ||beta||^2) I + sd_G^2 beta beta'),
    beta ~ N(0, diag(prior variances)),

G+ the positive part of G; the noise levels are known because they were chosen. Prior variances
and s2 maximise the marginal likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from privcausal.inference.cholesky import factor as cholesky
from privcausal.inference.cholesky import solve
from privcausal.inference.confounding import Regression
from privcausal.typing import Integers, Matrix, Vector

ROUNDS = 3
"""Fixed-point rounds: the noise term depends on the current beta, where the Gram has noise."""


LEAST_SHARE = 1e-2
"""Least-squares priors are no wider than this makes them where they are read again jointly:
far wider than any coefficient, and narrow enough for floats."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Noisy moments of one regression; `gram_sd` and `cross_sd` are noise sds of an entry.

    `cross_sd` may be one for each entry of `cross`, shape (p,).
    `noise_var` is the variance of the target around its mean, per unit of Gram weight; `extra`
    (p, p) the covariance of what else errs in `cross`.
    """

    gram: Matrix
    cross: Vector
    gram_sd: float
    cross_sd: float | Vector
    noise_var: float
    extra: Matrix | None = None


@dataclass(frozen=True, eq=False)
class Prior:
    """Independent normal coefficients with one variance per group.

    Attributes
    ----------
    group : Integers
        0 for coefficients of fixed variance `fixed`, else 1..G.
    scale : Vector
        Relative prior sd of each coefficient within its group.
    fixed : float
        Prior variance of group 0 (the intercept).
    log_var : Vector
        Centre of the log prior variance of groups 1..G, shape (G,).
    pull : float
        Strength with which log variances are held near `log_var`.
    fit_noise : bool
        Also fit the noise variance s2.
    basis : Matrix, optional
        Coefficients are ``basis @ theta`` with theta independent a priori.
    """

    group: Integers
    scale: Vector
    fixed: float
    log_var: Vector
    pull: float = 0.03
    fit_noise: bool = False
    basis: Matrix | None = None


@dataclass(frozen=True, eq=False)
class Posterior:
    """Coefficients with posterior covariance, log marginal likelihood, and the model they are of.

    `regression` is None where the coefficients are a mixture, or made of others (``basis``).
    """

    mean: Vector
    cov: Matrix
    evidence: float
    regression: Regression | None = None


def positive_part(matrix: Matrix) -> Matrix:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def fit(moments: Moments, prior: Prior) -> Posterior:
    """Posterior under the prior variances of greatest marginal likelihood."""
    gram = positive_part(moments.gram)
    basis = np.eye(len(moments.cross)) if prior.basis is None else prior.basis
    design = gram @ basis
    start = np.r_[prior.log_var, 0.0]
    beta = np.zeros(len(moments.cross))
    theta, cov, value = np.zeros(basis.shape[1]), np.eye(basis.shape[1]), 0.0
    for _ in range(ROUNDS if moments.gram_sd else 1):
        problem = _Problem(moments, prior, gram, design, noise_cov(moments, beta))
        start, value = problem.maximise(start)
        theta, cov = problem.posterior(start)
        beta = basis @ theta
    regression = problem.regression(start) if prior.basis is None else None
    return Posterior(beta, basis @ cov @ basis.T, value, regression)


def noise_cov(moments: Moments, beta: Vector) -> Matrix:
    """Covariance of the noise in b - G beta: that of b, and that of G times beta."""
    p, g2 = len(beta), moments.gram_sd**2
    # a floor far below any noise, so that the covariance can be factored where noise is tiny
    tiny = 1e-9 * max(float(np.trace(moments.gram)), 1e-300) * moments.noise_var / p
    diagonal = moments.cross_sd**2 + g2 * float(beta @ beta) + tiny
    noise = np.asarray(diagonal * np.eye(p) + g2 * np.outer(beta, beta))
    return noise if moments.extra is None else noise + moments.extra


def of_nothing(moments: Moments) -> float:
    """Log marginal likelihood of moments whose coefficients are all zero."""
    zero = np.zeros(len(moments.cross))
    lower = factored(moments.noise_var * positive_part(moments.gram) + noise_cov(moments, zero))
    z = solve(lower, moments.cross)
    return -float(np.log(lower.diagonal()).sum()) - 0.5 * float(moments.cross @ z)


@dataclass(frozen=True, eq=False)
class _Problem:
    moments: Moments
    prior: Prior
    gram: Matrix
    design: Matrix
    noise: Matrix

    def maximise(self, start: Vector) -> tuple[Vector, float]:
        if len(start) == 1 and not self.prior.fit_noise:
            return start, -self._objective(start)[0]
        best = minimize(
            self._objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 60}
        )
        return best.x, -float(best.fun)

    def _unpack(self, x: Vector) -> tuple[Vector, float]:
        variances = np.empty(len(x))
        variances[0] = self.prior.fixed
        centre = self.prior.log_var  # in whatever unit the outcome has
        variances[1:] = np.exp(np.minimum(np.maximum(x[:-1], centre - 30.0), centre + 30.0))
        noise = np.exp(min(max(float(x[-1]), -5.0), 5.0)) if self.prior.fit_noise else 1.0
        t = variances[self.prior.group] * self.prior.scale**2
        return t, float(self.moments.noise_var * noise)

    def _objective(self, x: Vector) -> tuple[float, Vector]:
        """Negative log marginal likelihood and its gradient in (log variances, log noise)."""
        t, s2 = self._unpack(x)
        b, shift = self.moments.cross, x[:-1] - self.prior.log_var
        factor = factored(self._total(t, s2))
        # without a basis the design is the Gram
        same, d = self.prior.basis is None, self.design.shape[1]
        right = (self.design, b[:, None]) if same else (self.design, self.gram, b[:, None])
        solved = solve(factor, np.concatenate(right, axis=1))
        inv_design, inv_gram, z = solved[:, :d], solved[:, -1 - len(b) : -1], solved[:, -1]
        value = 2 * np.log(factor.diagonal()).sum() + b @ z + self.prior.pull * shift @ shift
        by_coef = t * ((inv_design * self.design).sum(0) - (self.design.T @ z) ** 2)
        grad = np.bincount(self.prior.group, by_coef, len(x))[1:] + 2 * self.prior.pull * shift
        noise_grad = 0.0
        if self.prior.fit_noise:
            value += 0.5 * x[-1] ** 2
            noise_grad = s2 * float(inv_gram.trace() - z @ self.gram @ z) + x[-1]
        return 0.5 * float(value), 0.5 * np.append(grad, noise_grad)

    def _total(self, t: Vector, s2: float) -> Matrix:
        """Covariance of the cross moments."""
        return np.asarray(s2 * self.gram + self.noise + (self.design * t) @ self.design.T)

    def regression(self, x: Vector) -> Regression:
        t, s2 = self._unpack(x)
        error = s2 * self.gram + self.noise
        return Regression(self.gram, self.moments.cross, error, t, self.moments.gram_sd)

    def posterior(self, x: Vector) -> tuple[Vector, Matrix]:
        t, s2 = self._unpack(x)
        factor = factored(self._total(t, s2))
        gain = t[:, None] * self.design.T
        mean = gain @ solve(factor, self.moments.cross)
        return mean, np.diag(t) - gain @ solve(factor, gain.T)


def factored(cov: Matrix) -> Matrix:
    """Cholesky factor, after a ridge far below what floats can tell from the prior's part.

    Where noise is tiny and prior variances are huge, rounding alone makes eigenvalues negative.
    """
    raised = cov.copy()
    raised.flat[:: len(cov) + 1] += 1e-10 * float(cov.diagonal().max())
    return cholesky(raised)


def average(posteriors: Sequence[Posterior]) -> Posterior:
    """Mixture of posteriors weighted by marginal likelihood (same moments, several priors)."""
    weight = np.exp([p.evidence - max(q.evidence for q in posteriors) for p in posteriors])
    weight /= weight.sum()
    mean = sum((w * p.mean for w, p in zip(weight, posteriors, strict=True)), np.zeros(1))
    cov = sum(
        w * (p.cov + np.outer(p.mean - mean, p.mean - mean))
        for w, p in zip(weight, posteriors, strict=True)
    )
    return Posterior(mean, np.asarray(cov), max(p.evidence for p in posteriors))


def least_squares(moments: Moments, spread: Vector, basis: Matrix | None = None) -> Posterior:
    """Regression for base "linear": a wide normal prior that fades with the privacy noise.

    Without noise this is least squares; with noise, coefficients far beyond their `spread` are
    held back in proportion to how much of the error is noise. With `basis` the coefficients are
    ``basis @ theta``.
    """
    gram = positive_part(moments.gram)
    basis = np.eye(len(moments.cross)) if basis is None else basis
    design = gram @ basis
    theta = np.zeros(basis.shape[1])
    cov: Matrix = np.eye(basis.shape[1])
    for _ in range(ROUNDS):
        noise = noise_cov(moments, basis @ theta)
        share = np.trace(noise) / (np.trace(noise) + moments.noise_var * np.trace(gram))
        error = moments.noise_var * gram + noise
        inverse = np.linalg.pinv(error, hermitian=True)
        precision = design.T @ inverse @ design + np.diag(share / spread**2)
        cov = np.asarray(np.linalg.pinv(precision, hermitian=True))
        theta = cov @ design.T @ inverse @ moments.cross
    wide = spread**2 / max(share, LEAST_SHARE)
    regression = Regression(gram, moments.cross, error, wide, moments.gram_sd)
    return Posterior(basis @ theta, basis @ cov @ basis.T, 0.0, regression)
