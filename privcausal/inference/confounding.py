"""Propensity and mean outcome learned together, and the bias from their errors.

The mean outcome is eta = b + e tau with a baseline b. Confounders affect both e(x) and b(x), so
the model lets their coefficients correlate, with an unknown rho of prior sd
`Priors.correlation_sd`:

    (beta_e, beta_b)_j ~ N(0, [[t_e, rho sqrt(t_e t_b)], [., t_b]]_j),
    beta_y = beta_b + tau beta_e,   moments_k ~ N(G_k beta_k, N_k) for k = e, y.

The average of doubly robust scores has the error d_e' W (d_y - tau d_e), called the remainder.
Here d are the errors of the coefficients and W = E[phi phi' / (e (1 - e))]. If e and y are learned
separately, both shrink to zero with large noise, and a narrow interval hides the bias. If they are
learned together, the remainder has a mean and a spread, and both widen the interval.

In the residual product (T - e)(Y - eta), the errors add d_e(x) d_b(x) to
E[(T - e)^2 | x] tau(x), where d_b = d_y - tau d_e (Nie and Wager 2021, Section 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np

from privcausal.inference import regression
from privcausal.inference.priors import PRIORS
from privcausal.typing import Mask, Matrix, Vector


@dataclass(frozen=True)
class Remainder:
    """Mean and standard deviation of the bias from nuisance errors, given the moments."""

    mean: float
    sd: float

    @property
    def rms(self) -> float:
        return float(np.hypot(self.mean, self.sd))

    def __add__(self, other: Remainder) -> Remainder:
        return Remainder(self.mean + other.mean, float(np.hypot(self.sd, other.sd)))


@dataclass(frozen=True, eq=False)
class RegressionPair:
    """Two regressions learned together, given the constant part of the effect.

    `shared` (p,) is true if two coefficients have the correlation rho, and false if they are
    uncorrelated (the intercept's). `before` is the pair before its coefficients were set to zero.
    With `one_factor`, the unknown factors of both prior variances are equal. So are those of
    interactions: both nuisances are rough or smooth in the same columns.
    """

    e: regression.Regression
    y: regression.Regression
    shared: Mask
    effect: float = 0.0
    before: RegressionPair | None = None
    one_factor: bool = False

    @cached_property
    def _laws(self) -> list[tuple[float, Vector, Matrix]]:
        """For each rho: log of prior and likelihood, joint mean (2p,) and covariance.

        Each is a mixture over the prior variances that the two regressions try: all pairs, or
        pairs with one factor.
        """
        e, y, p, effect, laws = self.e, self.y, len(self.shared), self.effect, []
        tried, at = (e.tried(), y.tried()), np.arange(p)
        pairs = list(zip(*tried, strict=True) if self.one_factor else product(*tried))
        for rho in PRIORS.correlations if self.shared.any() else (0.0,):
            mixture = []
            for (e_log, e_variance), (y_log, y_tried) in pairs:
                # Var(beta_e), Cov(beta_e, beta_y) and Var(beta_y) for beta_y = beta_b + tau beta_e
                least = PRIORS.baseline_least * y_tried
                baseline = np.maximum(y_tried - effect**2 * e_variance, least)
                across = np.where(self.shared, rho, 0.0) * np.sqrt(e_variance * baseline)
                across = across + effect * e_variance
                y_variance = baseline + 2 * effect * across - effect**2 * e_variance
                # the joint prior covariance has diagonal blocks; the joint design is block diagonal
                lead, total = np.empty((2 * p, 2 * p)), np.empty((2 * p, 2 * p))
                lead[:p, :p], lead[:p, p:] = e.gram * e_variance, e.gram * across
                lead[p:, :p], lead[p:, p:] = y.gram * across, y.gram * y_variance
                np.matmul(lead[:, :p], e.gram.T, out=total[:, :p])
                np.matmul(lead[:, p:], y.gram.T, out=total[:, p:])
                total[:p, :p] += e.error
                total[p:, p:] += y.error
                # each regression in its own units, to avoid rounding errors
                scale = 1.0 / np.sqrt(total.diagonal())
                total *= scale
                total *= scale[:, None]
                total.flat[:: 2 * p + 1] += 1e-10
                lower = regression.cholesky(total)
                lead *= scale[:, None]
                cross = np.concatenate((e.cross, y.cross)) * scale
                solved = regression.solve(lower, np.concatenate((lead, cross[:, None]), axis=1))
                gain, z = solved[:, :-1].T, solved[:, -1]
                # the posterior covariance: that of the prior less what the moments explain
                cov = gain @ lead
                np.negative(cov, out=cov)
                cov[at, at] += e_variance
                cov[at, at + p] += across
                cov[at + p, at] += across
                cov[at + p, at + p] += y_variance
                log = float(-np.log(lower.diagonal()).sum() - 0.5 * float(cross @ z))
                mixture.append((log + e_log + y_log, gain @ cross, cov))
            log, mean, cov = regression.mixture_law(mixture)
            laws.append((log - 0.5 * (rho / PRIORS.correlation_sd) ** 2, mean, cov))
        return laws

    @cached_property
    def _weights(self) -> Vector:
        logs = np.array([law[0] for law in self._laws])
        weights = np.exp(logs - logs.max())
        return np.asarray(weights / weights.sum())

    def laws(self, least: float) -> list[tuple[float, Vector, Matrix]]:
        """Weight, joint mean (2p,) and covariance of every rho with at least this weight."""
        weights = self._weights * (self._weights >= least)
        weights = weights / weights.sum()
        pairs = zip(weights, self._laws, strict=True)
        return [(float(w), mean, cov) for w, (_, mean, cov) in pairs if w > 0]

    @property
    def support(self) -> float:
        """Log marginal likelihood of both regressions, minus its value for zero coefficients."""
        gains = []
        for fit in (self.e, self.y):
            # log N(cross; 0, error + G T G') - log N(cross; 0, error)
            values = []
            for total in (fit.error + (fit.gram * fit.prior) @ fit.gram.T, fit.error):
                scale = 1.0 / np.sqrt(np.diag(total))
                ridge = 1e-10 * np.eye(len(total))
                lower = regression.cholesky(total * np.outer(scale, scale) + ridge)
                z = regression.solve(lower, fit.cross * scale)
                logdet = np.log(lower.diagonal()).sum() - np.log(scale).sum()
                values.append(-logdet - 0.5 * float(fit.cross * scale @ z))
            gains.append(float(values[0] - values[1]))
        return gains[0] + gains[1]

    def stronger(self, factor: float) -> RegressionPair:
        """This pair with prior sds `factor` times as large; coefficients are not set to zero."""
        pair = self.before or self
        e, y = (replace(fit, prior=factor**2 * fit.prior) for fit in (pair.e, pair.y))
        return replace(pair, e=e, y=y)

    def without(self) -> RegressionPair:
        """This pair with all coefficients known to be zero."""
        none = np.zeros_like(self.e.prior)
        e, y = (replace(fit, prior=none, unsure=None) for fit in (self.e, self.y))
        return replace(self, e=e, y=y, shared=np.zeros_like(self.shared), before=self)

    @cached_property
    def _whole(self) -> tuple[Vector, Matrix]:
        """Mean (2p,) and covariance of both regressions' coefficients, over all rho."""
        return regression.mixture_law(self._laws)[1:]

    @property
    def mean(self) -> tuple[Vector, Vector]:
        """Posterior means of beta_e and beta_y."""
        whole = self._whole[0]
        return whole[: len(self.shared)], whole[len(self.shared) :]

    @property
    def slopes(self) -> tuple[Vector, Vector]:
        """Posterior means of beta_e and of beta_b."""
        e, y = self.mean
        return e, y - self.effect * e

    def confounding(self, weight: Matrix) -> float:
        """beta_e' W beta_b: the confounding that the fitted coefficients imply."""
        e, b = self.slopes
        return float(e @ weight @ b)

    def most_confounding(self, weight: Matrix) -> float:
        """Root of (beta_e' W beta_e)(beta_b' W beta_b): at least the size of `confounding`."""
        e, b = self.slopes
        return float(np.sqrt((e @ weight @ e) * (b @ weight @ b)))

    def hidden(self, cov: Matrix) -> float:
        """Share of the confounding that noise hides: the part that the fit does not remove.

        A doubly robust mean leaves the product of both errors. A coefficient that is shrunken by
        the factor k has an error of 1 - k times its size, so the product of both 1 - k is left.
        For each regression, 1 - k is the variance of the unknown part of its function over that of
        the whole function, fitted or as usual. `cov` is Cov(phi), (p, p).
        """
        p, (mean, whole), share = len(self.shared), self._whole, 1.0
        for at, prior in ((slice(p), self.e.prior), (slice(p, None), self.y.prior)):
            left = float(np.sum(cov * whole[at, at]))
            share *= left / max(
                float(mean[at] @ cov @ mean[at]) + left, float(prior @ np.diag(cov))
            )
        return share

    @property
    def e_cov(self) -> Matrix:
        """Posterior covariance of beta_e, shape (p, p)."""
        p = len(self.shared)
        return self._whole[1][:p, :p]

    def remainder(
        self, weight: Matrix, gap: Vector | float = 0.0, used: RegressionPair | None = None
    ) -> Remainder:
        """Mean and sd of (d_e' W + gap') (d_y - effect d_e) under the posterior.

        Parameters
        ----------
        weight : Matrix
            W, shape (p, p).
        gap : Vector
            E[w g phi], shape (p,), if the propensity in use is the fitted propensity minus g.
        used : RegressionPair, optional
            Its means are the coefficients in use. The default is this pair.
        """
        p, tau, (e, y) = len(self.shared), self.effect, (used or self).mean
        first, second = [], []
        for _, mean, cov in self._laws:
            ee, by_e = cov[:p, :p], cov[p:, :p] - tau * cov[:p, :p]  # d_b = d_y - tau d_e
            bb = cov[p:, p:] - tau * (cov[p:, :p] + by_e.T)
            d_e, d_b = mean[:p] - e, mean[p:] - y - tau * (mean[:p] - e)
            gap_e, gap_b = weight @ d_e + gap, weight @ d_b
            v_e, v_b, across = weight @ ee, weight @ bb, weight @ by_e
            bias = float(np.trace(across) + gap_e @ d_b)
            traces = np.sum(v_e * v_b.T) + np.sum(across * across.T)  # of products of matrices
            spread = float(traces + gap_e @ bb @ gap_e + gap_b @ ee @ gap_b)
            first.append(bias)
            second.append(spread + bias**2)
        mean_bias = float(self._weights @ first)
        variance = float(self._weights @ second) - mean_bias**2
        return Remainder(mean_bias, float(np.sqrt(max(variance, 0.0))))


def unrelated(weight: Matrix, e_cov: Matrix, y_cov: Matrix) -> Remainder:
    """`RegressionPair.remainder` if both are learned apart, with the same prior of rho.

    Var = tr(W V_e W V_y) + E[rho^2] (sum of the roots of the eigenvalues of W V_e W V_y)^2.
    """
    product = weight @ e_cov @ weight @ y_cov
    along = float(np.sqrt(np.maximum(np.linalg.eigvals(product).real, 0.0)).sum())
    variance = max(float(np.trace(product)), 0.0) + (PRIORS.correlation_sd * along) ** 2
    return Remainder(0.0, float(np.sqrt(variance)))


# -- in the residual product ------------------------------------------------------------------

NEGLIGIBLE = 1e-3
"""Distributions with less weight are skipped: each costs a covariance and adds little."""


class BiasSource(NamedTuple):
    """A pair of regressions: features at the points (N, p), coefficients in use (p,)."""

    phi: Matrix
    pair: RegressionPair
    e: Vector
    y: Vector


class ProductBias(NamedTuple):
    """Mean of d_e d_b at the points, shape (N,), and covariance between the points, (N, N)."""

    mean: Vector
    cov: Matrix


def leftover(sources: Sequence[BiasSource]) -> ProductBias:
    """Mean and covariance of d_e d_b at the points; errors of different pairs are independent.

    Given rho, the errors at two points are normal with covariances C_ee, C_bb, C_eb
    and means m_e, m_b. By Isserlis' theorem, their products have the mean C_eb(x, x) + m_e m_b and
    the covariance C_ee C_bb + C_eb C_be plus terms of the means. Let A_ee = C_ee + m_e m_e' be the
    second moments, and define A_bb and A_eb in the same way. With v = m_e m_b at the points, the
    covariance is A_ee A_bb + A_eb A_be - 2 v v', entry by entry. The variation of the mean with rho
    is added.
    """
    size = len(sources[0].phi)
    gap_e, gap_b = np.zeros(size), np.zeros(size)
    total, spread = np.zeros(size), np.zeros((size, size))
    for source in sources:
        phi, p, tau = source.phi, len(source.e), source.pair.effect
        turned = np.ascontiguousarray(phi.T)
        weights, means, products = [], [], []
        within = np.zeros((size, size))
        for weight, mean, cov in source.pair.laws(NEGLIGIBLE):
            d_e = mean[:p] - source.e
            d_b = mean[p:] - source.y - tau * d_e
            c_ee, c_ey = cov[:p, :p], cov[:p, p:]
            c_bb = cov[p:, p:] - tau * (c_ey + c_ey.T) + tau**2 * c_ee
            ee = phi @ (c_ee + np.multiply.outer(d_e, d_e)) @ turned
            eb = phi @ (c_ey - tau * c_ee + np.multiply.outer(d_e, d_b)) @ turned
            ee *= phi @ (c_bb + np.multiply.outer(d_b, d_b)) @ turned
            means.append(np.diag(eb).copy())
            ee += eb * eb.T
            ee *= weight
            within += ee
            weights.append(weight)
            products.append((phi @ d_e) * (phi @ d_b))
        share, values, twice = np.array(weights), np.array(means), np.array(products)
        pair_mean = share @ values
        away = values - pair_mean
        within += (away.T * share) @ away - 2 * (twice.T * share) @ twice
        total += pair_mean
        spread += within
        # the products of one pair's mean with another's
        e_mean, y_mean = source.pair.mean
        d_e = e_mean - source.e
        e, b = phi @ d_e, phi @ (y_mean - source.y - tau * d_e)
        total += e * gap_b + gap_e * b
        gap_e, gap_b = gap_e + e, gap_b + b
    return ProductBias(total, spread)
