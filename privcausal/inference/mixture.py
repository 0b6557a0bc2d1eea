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

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import exp, sqrt

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
        # numbers of Python's own: arrays of ten take longer to call than to compute
        self.kind = law.kind.tolist()
        self.free = [j for j, kind in enumerate(self.kind) if kind >= 0]
        self.scale = [0] * len(cross)
        rest = (1 - NEGLIGIBLE) / (len(SCALES) - 1)
        self.base = [CONCENTRATION * NEGLIGIBLE] + [CONCENTRATION * rest] * (len(SCALES) - 1)
        self.tried = ((law.unit[:, None] * SCALES) ** 2).tolist()
        self.used = [[0] * len(SCALES) for _ in range(max(self.kind, default=-1) + 1)]
        for j in self.free:
            self.used[self.kind[j]][0] += 1
        self._refresh()

    def _prior(self, scale: Sequence[int]) -> list[float]:
        fixed, tried = self.law.fixed, self.tried
        return [
            fixed if kind < 0 else tried[j][k]
            for j, (kind, k) in enumerate(zip(self.kind, scale, strict=True))
        ]

    def _refresh(self) -> None:
        """From scratch, so that rounding does not pile up."""
        self.prior = self._prior(self.scale)
        inverse = self.precision.copy()
        inverse.flat[:: len(inverse) + 1] += 1 / np.array(self.prior)
        self.cov = np.linalg.inv(inverse)
        self.mean = self.cov @ self.centre

    def run(self, sweeps: int) -> Posterior:
        uniform = np.random.default_rng(_PUBLIC_SEED).random((sweeps, len(self.cross)))
        p = len(self.cross)
        first = np.zeros(p)
        second, chance = np.zeros((p, p)), [[0.0] * len(SCALES) for _ in range(p)]
        kept = range(sweeps // 4, sweeps)
        for sweep, draws in enumerate(uniform.tolist()):
            for j in self.free:
                weight = self._update(j, draws[j])
                if sweep in kept:
                    chance[j] = [a + b for a, b in zip(chance[j], weight, strict=True)]
            self._refresh()
            if sweep in kept:
                first += self.mean
                second += self.cov
                second += np.multiply.outer(self.mean, self.mean)
        mean = first / len(kept)
        cov = second / len(kept) - np.outer(mean, mean)
        return Posterior(mean, 0.5 * (cov + cov.T), self._evidence(np.array(chance) / len(kept)))

    def _update(self, j: int, uniform: float) -> list[float]:
        """Draw the scale of coefficient j given all others'; its chances."""
        own, prior, tried = float(self.cov[j, j]), self.prior[j], self.tried[j]
        used, old = self.used[self.kind[j]], self.scale[j]
        mean = float(self.mean[j])
        precision, half = max(1 / own - 1 / prior, 0.0), 0.5 * (mean / own) ** 2
        used[old] -= 1
        top = half * tried[-1] / (1 + tried[-1] * precision)  # the largest, so that none overflows
        weight = []
        for variance, many, base in zip(tried, used, self.base, strict=True):
            slack = 1 + variance * precision
            weight.append((many + base) * exp(half * variance / slack - top) / sqrt(slack))
        upto = list(accumulate(weight))
        new = min(bisect_left(upto, uniform * upto[-1]), len(SCALES) - 1)
        used[new] += 1
        if new != old:
            change = 1 / tried[new] - 1 / prior
            column = self.cov[:, j].copy()
            step = change / (1 + change * own) * column
            self.mean -= mean * step
            self.cov -= np.multiply.outer(step, column)
            self.scale[j], self.prior[j] = new, tried[new]
        return [one / upto[-1] for one in weight]

    def _evidence(self, chance: Matrix) -> float:
        """log p(b | k) + log p(k) - log p(k | b) at the likeliest scales k (Chib 1995, Eq. 5).

        The last term is taken to factor over the coefficients.
        """
        best = np.where(self.law.kind < 0, 0, chance.argmax(axis=1)).tolist()
        prior = np.array(self._prior(best))
        factor = factored(self.error + (self.gram * prior) @ self.gram.T)
        whitened = solve(factor, self.cross)
        log = -float(np.log(factor.diagonal()).sum()) - 0.5 * float(self.cross @ whitened)
        used = [[0] * len(SCALES) for _ in self.used]
        for j in self.free:
            kind, k = self.kind[j], best[j]
            share = (used[kind][k] + self.base[k]) / (sum(used[kind]) + CONCENTRATION)
            log += float(np.log(share) - np.log(chance[j, k]))
            used[kind][k] += 1
        return log
