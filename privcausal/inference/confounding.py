"""Propensity and mean outcome learned together, and the bias their errors leave in an average.

The mean outcome is eta = b + e tau with a baseline b. What confounds drives both e(x) and b(x), so
their coefficients are taken to be correlated, by an unknown rho that is uniform on (-1, 1) until
the moments speak:

    (beta_e, beta_b)_j ~ N(0, [[t_e, rho sqrt(t_e t_b)], [., t_b]]_j),
    beta_y = beta_b + tau beta_e,   moments_k ~ N(G_k beta_k, N_k) for k = e, y.

An average from doubly robust scores errs by the remainder d_e' W (d_y - tau d_e), d the errors of
the coefficients and W = E[phi phi' / (e (1 - e))]. Learned apart, both are pulled to zero where
noise is large, the remainder is what was pulled away, and nobody knows of it: the average becomes
the unadjusted difference with a narrow interval. Learned together, the remainder has a mean and a
spread, from released moments only, and both widen the interval.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, product

import numpy as np

from privcausal.inference.cholesky import factor as cholesky
from privcausal.inference.cholesky import solve
from privcausal.typing import Integers, Matrix, Vector

CORRELATIONS = (-0.9, -0.6, -0.3, 0.0, 0.3, 0.6, 0.9)
"""Values of each rho that are averaged over."""

ALIKE = 0.3
"""Public prior sd of the difference of two groups' rho: what confounds by slopes confounds by
curves too, mostly, and curves alone say too little of their rho."""

FITTED = 1.4
"""Spreads are this much wider than the laws say. For one thing, prior variances are fitted to the
moments rather than averaged over. For another, a bias stays where it is when the study is repeated:
1.96 root-sum-of-squares standard errors cover a bias of one spread in 95 % of repetitions, and with
this factor one of 1.4 spreads, which five laws of six stay below (intervals that hold at a given
bias: Armstrong and Kolesar 2018)."""

UNLIKE = 3 * ALIKE
"""Groups whose rho differ by this much or more are left out, as next to impossible."""


@dataclass(frozen=True, eq=False)
class Regression:
    """cross ~ N(gram beta, error), beta ~ N(0, diag(prior)); shapes (p,), (p, p), (p, p), (p,).

    `gram_sd` is the noise sd of an entry of `gram`, where it has noise.
    """

    gram: Matrix
    cross: Vector
    error: Matrix
    prior: Vector
    gram_sd: float = 0.0


@dataclass(frozen=True)
class Remainder:
    """Mean and standard deviation of the bias that errors of nuisances leave, given the moments."""

    mean: float
    sd: float

    @property
    def rms(self) -> float:
        return float(np.hypot(self.mean, self.sd))

    def __add__(self, other: Remainder) -> Remainder:
        return Remainder(self.mean + other.mean, float(np.hypot(self.sd, other.sd)))


@dataclass(frozen=True, eq=False)
class Pair:
    """Two regressions learned together, given the constant part of the effect.

    `group` (p,) is 0 for coefficients that share nothing (the intercept), else tells whose rho is
    theirs: linear terms may confound where rough ones do not.
    """

    e: Regression
    y: Regression
    group: Integers
    effect: float = 0.0

    @cached_property
    def _laws(self) -> list[tuple[float, Vector, Matrix]]:
        """For each choice of correlations: log likelihood, joint mean (2p,), covariance."""
        used = int(self.group.max(initial=0))
        return [
            _posterior(self.e, self.y, self._prior(np.array([0.0, *rhos])[self.group]), rhos)
            for rhos in product(CORRELATIONS, repeat=used)
            if max(rhos, default=0.0) - min(rhos, default=0.0) < UNLIKE
        ]

    def _prior(self, rho: Vector) -> tuple[Vector, Vector, Vector]:
        """Var(beta_e), Cov(beta_e, beta_y), Var(beta_y), beta_y = beta_b + effect beta_e; (p,)."""
        e, effect = self.e.prior, self.effect
        baseline = np.maximum(self.y.prior - effect**2 * e, 0.25 * self.y.prior)
        across = rho * np.sqrt(e * baseline) + effect * e
        own = baseline + 2 * effect * across - effect**2 * e
        return e, across, own

    @cached_property
    def _weights(self) -> Vector:
        logs = np.array([law[0] for law in self._laws])
        weights = np.exp(logs - logs.max())
        return np.asarray(weights / weights.sum())

    def laws(self, least: float) -> list[tuple[float, Vector, Matrix]]:
        """Weight, joint mean (2p,) and covariance of every law of at least this weight."""
        kept = self._weights * (self._weights >= least)
        kept = kept / kept.sum()
        pairs = zip(kept, self._laws, strict=True)
        return [(float(w), mean, cov) for w, (_, mean, cov) in pairs if w > 0]

    @property
    def support(self) -> float:
        """Log marginal likelihood of both regressions against coefficients that are all zero."""
        return _gain(self.e) + _gain(self.y)

    def without(self) -> Pair:
        """The same, certain that all coefficients are zero."""
        none = np.zeros_like(self.e.prior)
        e, y = replace(self.e, prior=none), replace(self.y, prior=none)
        return replace(self, e=e, y=y, group=np.zeros_like(self.group))

    @cached_property
    def mean(self) -> tuple[Vector, Vector]:
        """Posterior means of beta_e and beta_y."""
        whole = self._weights @ np.array([law[1] for law in self._laws])
        return whole[: len(self.group)], whole[len(self.group) :]

    @property
    def slopes(self) -> tuple[Vector, Vector]:
        """Posterior mean of beta_e, and of beta_b that follows."""
        e, y = self.mean
        return e, y - self.effect * e

    def confounding(self, weight: Matrix) -> float:
        """beta_e' W beta_b: what the fitted coefficients confound."""
        e, b = self.slopes
        return float(e @ weight @ b)

    def remainder(self, weight: Matrix, gap: Vector | float = 0.0) -> Remainder:
        """Law of (d_e' W + gap') (d_y - effect d_e) under the posterior.

        Parameters
        ----------
        weight : Matrix
            W, shape (p, p).
        gap : Vector
            E[w g phi], shape (p,), where the propensity in use is the fitted one less g.
        """
        p = len(self.group)
        one = np.eye(p)
        turn = np.block([[one, 0 * one], [-self.effect * one, one]])
        centre = turn @ np.concatenate(self.mean)
        first, second = [], []
        for _, joint_mean, joint_cov in self._laws:
            away = turn @ joint_mean - centre
            cov = turn @ joint_cov @ turn.T
            gap_e, gap_y = weight @ away[:p] + gap, weight @ away[p:]
            v_e, v_y, across = weight @ cov[:p, :p], weight @ cov[p:, p:], weight @ cov[p:, :p]
            own = float(np.trace(across) + gap_e @ away[p:])
            spread = np.trace(v_e @ v_y) + np.trace(across @ across)
            spread += gap_e @ cov[p:, p:] @ gap_e + gap_y @ cov[:p, :p] @ gap_y
            first.append(own)
            second.append(float(spread) + own**2)
        mean = float(self._weights @ first)
        variance = float(self._weights @ second) - mean**2
        return Remainder(mean, FITTED * float(np.sqrt(max(variance, 0.0))))


def _posterior(
    e: Regression, y: Regression, prior: tuple[Vector, Vector, Vector], rhos: tuple[float, ...]
) -> tuple[float, Vector, Matrix]:
    """Log of marginal likelihood times the prior of rhos; mean and covariance of coefficients."""
    p = len(e.cross)
    one, across, two = prior
    # the joint prior covariance has diagonal blocks, and the joint design has none across
    lead, total = np.empty((2 * p, 2 * p)), np.empty((2 * p, 2 * p))
    lead[:p, :p], lead[:p, p:] = e.gram * one, e.gram * across
    lead[p:, :p], lead[p:, p:] = y.gram * across, y.gram * two
    np.matmul(lead[:, :p], e.gram.T, out=total[:, :p])
    np.matmul(lead[:, p:], y.gram.T, out=total[:, p:])
    total[:p, :p] += e.error
    total[p:, p:] += y.error
    # both regressions in their own units, or rounding decides
    scale = 1.0 / np.sqrt(total.diagonal())
    total *= scale
    total *= scale[:, None]
    total.flat[:: 2 * p + 1] += 1e-10
    lower = cholesky(total)
    lead *= scale[:, None]
    cross = np.concatenate((e.cross, y.cross)) * scale
    solved = solve(lower, np.concatenate((lead, cross[:, None]), axis=1))
    gain, z = solved[:, :-1].T, solved[:, -1]
    cov = gain @ lead
    np.negative(cov, out=cov)
    at = np.arange(p)
    cov[at, at] += one
    cov[at, at + p] += across
    cov[at + p, at] += across
    cov[at + p, at + p] += two
    apart = sum((first - second) ** 2 for first, second in combinations(rhos, 2))
    value = -np.log(lower.diagonal()).sum() - 0.5 * float(cross @ z) - 0.5 * apart / ALIKE**2
    return float(value), gain @ cross, cov


def _gain(one: Regression) -> float:
    """log N(cross; 0, error + G T G') - log N(cross; 0, error)."""
    values = []
    for total in (one.error + (one.gram * one.prior) @ one.gram.T, one.error):
        scale = 1.0 / np.sqrt(np.diag(total))
        lower = cholesky(total * np.outer(scale, scale) + 1e-10 * np.eye(len(total)))
        z = solve(lower, one.cross * scale)
        logdet = np.log(lower.diagonal()).sum() - np.log(scale).sum()
        values.append(-logdet - 0.5 * float(one.cross * scale @ z))
    return float(values[0] - values[1])


def unrelated(weight: Matrix, e_cov: Matrix, y_cov: Matrix) -> Remainder:
    """The same where the two were learned apart: errors correlated by a rho uniform on (-1, 1).

    Var = tr(W V_e W V_y) + E[rho^2] (sum of the roots of the eigenvalues of W V_e W V_y)^2.
    """
    product = weight @ e_cov @ weight @ y_cov
    along = float(np.sqrt(np.maximum(np.linalg.eigvals(product).real, 0.0)).sum())
    return Remainder(0.0, float(np.sqrt(max(float(np.trace(product)), 0.0) + along**2 / 3)))
