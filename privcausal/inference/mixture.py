"""Regression from noisy moments when few of many coefficients may matter, and by unknown amounts.

The model of `additive.Moments`, each coefficient with a prior variance from a grid of scales from
negligible to large. Which scales are common is learned: within a class (linear functions, curved
ones) their shares have a Dirichlet prior (base weight on negligible ones).

A coefficient's prior is so a mixture of normals, and its posterior is found by expectation
propagation (Minka 2001, Section 3): each prior stands as a normal factor of precision tau_j and
centre nu_j / tau_j, chosen so that with what everything else says of beta_j, N(m, s2), it has the
mean and variance of the mixture

    sum_k r_k N(m v_k / (v_k + s2), v_k s2 / (v_k + s2)),    r_k ~ share_k N(m; 0, v_k + s2).

Shares are the base weights and the other coefficients' r_k (Asuncion et al. 2009, "CVB0"). All
factors are renewed at once, a fixed number of times: post-processing of public numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcausal.inference.additive import (
    Moments,
    Posterior,
    factored,
    noise_cov,
    positive_part,
)
from privcausal.inference.cholesky import solve
from privcausal.typing import Integers, Matrix, Vector

SCALES = np.geomspace(3e-3, 10.0, 10)
"""Prior sds of a coefficient, against its unit."""

NEGLIGIBLE = 0.8
"""Base weight of the least scale; the others share the rest alike."""

CONCENTRATION = 6.0
"""Strength of the base weights, in coefficients: a class shares its scales for the most part."""

ROUNDS, STEPS = 2, 20
"""Noise of the Gram depends on the coefficients, hence rounds; steps within each."""

KEPT = 0.5
"""Of a factor, what a step leaves as it was: all at once would swing."""


@dataclass(frozen=True, eq=False)
class Law:
    """Intercept of prior variance `fixed`, coefficients of prior sds `unit` x a scale.

    `kind` (p,) is -1 for the intercept and else the class of a coefficient, 0..K-1.
    """

    fixed: float
    unit: Vector
    kind: Integers


def mixture(moments: Moments, law: Law) -> Posterior:
    """Posterior mean and covariance of coefficients, and an estimate of the log evidence."""
    gram = positive_part(moments.gram)
    factors = _Factors(law)
    mean = np.zeros(len(moments.cross))
    for _ in range(ROUNDS if moments.gram_sd else 1):
        error = moments.noise_var * gram + noise_cov(moments, mean)
        solved = np.linalg.solve(error, np.c_[gram, moments.cross])
        precision = gram.T @ solved[:, :-1]
        precision, centre = 0.5 * (precision + precision.T), gram.T @ solved[:, -1]
        for _ in range(STEPS):
            mean, cov = factors.posterior(precision, centre)
            factors.renew(mean, cov.diagonal())
    mean, cov = factors.posterior(precision, centre)
    log = _likelihood(moments.cross, error, centre + factors.shift, mean, cov)
    return Posterior(mean, cov, log + factors.evidence(mean, cov.diagonal()))


class _Factors:
    """Normal factors in place of the coefficients' priors, and each scale's chances."""

    def __init__(self, law: Law) -> None:
        self.law = law
        self.free = law.kind >= 0
        self.tried = (law.unit[self.free, None] * SCALES) ** 2
        rest = (1 - NEGLIGIBLE) / (len(SCALES) - 1)
        self.base = CONCENTRATION * np.r_[NEGLIGIBLE, np.full(len(SCALES) - 1, rest)]
        kind = law.kind[self.free]
        self.same = (kind[:, None] == kind).astype(float)
        np.fill_diagonal(self.same, 0.0)
        self.chance = np.tile(self.base / CONCENTRATION, (len(kind), 1))
        self.precision = np.full(len(law.kind), 1 / law.fixed)
        self.precision[self.free] = 1 / (self.chance * self.tried).sum(1)
        self.shift = np.zeros(len(law.kind))

    def posterior(self, precision: Matrix, centre: Vector) -> tuple[Vector, Matrix]:
        inverse = precision.copy()
        inverse.flat[:: len(inverse) + 1] += self.precision
        cov = np.asarray(np.linalg.inv(inverse), np.float64)
        return cov @ (centre + self.shift), cov

    def _without(self, mean: Vector, var: Vector) -> tuple[Vector, Vector]:
        """Mean and variance of what all but its own prior says of each free coefficient."""
        own = 1 / var[self.free]
        s2 = 1 / np.maximum(own - self.precision[self.free], 1e-9 * own)
        return s2 * (own * mean[self.free] - self.shift[self.free]), s2

    def renew(self, mean: Vector, var: Vector) -> None:
        """Every factor moved towards the one that the mixture asks for."""
        m, s2 = self._without(mean, var)
        total = self.tried + s2[:, None]
        log = np.log(self.same @ self.chance + self.base)
        log -= 0.5 * (np.log(total) + (m**2)[:, None] / total)
        chance = np.exp(log - log.max(1, keepdims=True))
        self.chance = chance / chance.sum(1, keepdims=True)
        kept = self.tried / total
        first = m * (self.chance * kept).sum(1)
        square = (self.chance * (kept * s2[:, None] + (m[:, None] * kept) ** 2)).sum(1)
        spread = np.maximum(square - first**2, 1e-12 * s2)
        # a mixture may be wider than what it multiplies, a factor may not
        precision = np.maximum(1 / spread - 1 / s2, 1 / self.tried[:, -1])
        shift = first * (precision + 1 / s2) - m / s2
        free = self.free
        self.precision[free] += (1 - KEPT) * (precision - self.precision[free])
        self.shift[free] += (1 - KEPT) * (shift - self.shift[free])

    def evidence(self, mean: Vector, var: Vector) -> float:
        """What the factors lack in height: log of the integral of prior times N(m, s2), for each.

        Shares are of the coefficients before it in its class, so that those of all are a chain.
        """
        m, s2 = self._without(mean, var)
        own = 1 / var[self.free]
        before = np.tril(self.same)
        share = (before @ self.chance + self.base) / (before.sum(1) + CONCENTRATION)[:, None]
        total = self.tried + s2[:, None]
        each = np.log(share) - 0.5 * ((m**2)[:, None] / total + np.log(total))
        log = np.logaddexp.reduce(each, axis=1) + 0.5 * (m**2 / s2 + np.log(s2))
        log -= 0.5 * (own * mean[self.free] ** 2 - np.log(own))
        return float(log.sum()) - 0.5 * float(np.log(self.law.fixed)) * int((~self.free).sum())


def _likelihood(cross: Vector, error: Matrix, right: Vector, mean: Vector, cov: Matrix) -> float:
    """Log of the integral of N(cross; G beta, error) times the normal factors, each of height 1."""
    lower = factored(error)
    log = -float(np.log(lower.diagonal()).sum()) - 0.5 * float(cross @ solve(lower, cross))
    return log + 0.5 * float(right @ mean) + 0.5 * float(np.linalg.slogdet(cov)[1])
