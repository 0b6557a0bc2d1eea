"""Regression from noisy moments when few of many coefficients may matter, and by unknown amounts.

The model of `additive.Moments` with one prior variance per coefficient, on a grid from negligible
to large. Which values are common is learned: within a class (linear functions, curved ones) the
shares of the grid's values have a Dirichlet prior (base weight on negligible ones). The variances
are drawn by collapsed Gibbs sampling, coefficients integrated out: given the other variances, the
moments say of beta_j only what a normal likelihood of some precision p and centre h / p says, and

    log p(b | t_j, others) = const - log(1 + t_j p) / 2 + h^2 t_j / (2 (1 + t_j p)).

Draws are public numbers (a quadrature rule): all of it is post-processing. What is not known of the
variances widens the posterior covariance.
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

CONCENTRATION = 3.0
"""Strength of the base weights, in coefficients: a class shares its scales for the most part."""

SWEEPS, WORK = (30, 100), 30_000
"""Sweeps of the first and of the last round (the noise depends on the coefficients), while the
number of updates stays below `WORK`."""

_PUBLIC_SEED = 20_251_121


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
    mean = np.zeros(len(moments.cross))
    found = Posterior(mean, np.diag(mean), 0.0)
    for sweeps in SWEEPS:
        error = moments.noise_var * gram + noise_cov(moments, found.mean)
        found = _Chain(gram, moments.cross, error, law).run(max(min(sweeps, WORK // len(mean)), 10))
    return found


class _Chain:
    """The state of the sampler: scales, and the coefficients' posterior given them."""

    def __init__(self, gram: Matrix, cross: Vector, error: Matrix, law: Law) -> None:
        self.gram, self.cross, self.error, self.law = gram, cross, error, law
        solved = np.linalg.solve(error, np.c_[gram, cross])
        precision = gram.T @ solved[:, :-1]
        self.precision, self.centre = 0.5 * (precision + precision.T), gram.T @ solved[:, -1]
        self.free = np.flatnonzero(law.kind >= 0)
        self.scale = np.zeros(len(cross), np.int64)
        base = np.full(len(SCALES), (1 - NEGLIGIBLE) / (len(SCALES) - 1))
        base[0] = NEGLIGIBLE
        self.base = CONCENTRATION * base
        self.used = np.zeros((law.kind.max(initial=0) + 1, len(SCALES)))
        for j in self.free:
            self.used[law.kind[j], 0] += 1
        self.tried = (law.unit[:, None] * SCALES) ** 2
        self._refresh()

    def _prior(self, scale: Integers) -> Vector:
        variance = (self.law.unit * SCALES[scale]) ** 2
        return np.where(self.law.kind < 0, self.law.fixed, variance)

    def _refresh(self) -> None:
        """From scratch, so that rounding does not pile up."""
        self.prior = self._prior(self.scale)
        self.cov = np.linalg.inv(self.precision + np.diag(1 / self.prior))
        self.mean = self.cov @ self.centre

    def run(self, sweeps: int) -> Posterior:
        uniform = np.random.default_rng(_PUBLIC_SEED).random((sweeps, len(self.cross)))
        p = len(self.cross)
        first = np.zeros(p)
        second, chance = np.zeros((p, p)), np.zeros((p, len(SCALES)))
        kept = range(sweeps // 4, sweeps)
        free = self.free.tolist()
        for sweep, draws in enumerate(uniform.tolist()):
            for j in free:
                weight = self._update(j, draws[j])
                if sweep in kept:
                    chance[j] += weight
            self._refresh()
            if sweep in kept:
                first += self.mean
                second += self.cov + np.outer(self.mean, self.mean)
        mean = first / len(kept)
        cov = second / len(kept) - np.outer(mean, mean)
        return Posterior(mean, 0.5 * (cov + cov.T), self._evidence(chance / len(kept)))

    def _update(self, j: int, uniform: float) -> Vector:
        """Draw the scale of coefficient j given all others'; its chances."""
        own, prior, tried = float(self.cov[j, j]), float(self.prior[j]), self.tried[j]
        used, old = self.used[self.law.kind[j]], int(self.scale[j])
        pull = float(self.mean[j]) / own
        used[old] -= 1
        slack = tried * max(1 / own - 1 / prior, 0.0)
        slack += 1
        log = tried / slack
        log *= 0.5 * pull**2
        log -= log[-1]  # the largest of the part that may overflow
        chance = np.exp(log, out=log)
        chance *= used + self.base
        chance /= np.sqrt(slack, out=slack)
        total = chance.cumsum()
        chance /= total[-1]
        new = min(int(total.searchsorted(uniform * total[-1])), len(SCALES) - 1)
        used[new] += 1
        if new != old:
            change = 1 / tried[new] - 1 / prior
            column = self.cov[:, j].copy()
            step = change / (1 + change * own) * column
            self.mean -= step * self.mean[j]
            self.cov -= np.multiply.outer(step, column)
            self.scale[j], self.prior[j] = new, tried[new]
        return chance

    def _evidence(self, chance: Matrix) -> float:
        """log p(b | k) + log p(k) - log p(k | b) at the likeliest scales k (Chib 1995, Eq. 5).

        The last term is taken to factor over the coefficients.
        """
        best = np.where(self.law.kind < 0, 0, chance.argmax(axis=1))
        prior = self._prior(best)
        factor = factored(self.error + (self.gram * prior) @ self.gram.T)
        whitened = solve(factor, self.cross)
        log = -float(np.log(factor.diagonal()).sum()) - 0.5 * float(self.cross @ whitened)
        used = np.zeros_like(self.used)
        for j in self.free:
            kind, k = self.law.kind[j], best[j]
            share = (used[kind, k] + self.base[k]) / (used[kind].sum() + CONCENTRATION)
            log += float(np.log(share) - np.log(chance[j, k]))
            used[kind, k] += 1
        return log
