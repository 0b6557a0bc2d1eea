"""What the errors of two nuisances leave in the residual product, as a function of x.

With errors d_e of the propensity and d_y of the mean outcome, (T - e)(Y - eta) has the conditional
mean E[(T - e)^2 | x] tau(x) + d_e(x) d_b(x), d_b = d_y - tau d_e (Nie and Wager 2021, Section 2:
the product is what orthogonality leaves). Under the joint law of `confounding.Pair` that product
has a mean and a covariance between points, both functions of released numbers only; what of them is
taken off, and what is noise to the regression, is for `learners.orthogonal` to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privcausal.inference.confounding import FITTED, Pair
from privcausal.typing import Matrix, Vector

NEGLIGIBLE = 1e-3
"""Laws of less weight than this are left out."""


@dataclass(frozen=True, eq=False)
class Source:
    """One pair of regressions: features at the points (N, p), and the coefficients in use (p,)."""

    phi: Matrix
    pair: Pair
    e: Vector
    y: Vector


@dataclass(frozen=True, eq=False)
class Leftover:
    """Mean of d_e d_b at the points, shape (N,), and its covariance between them, (N, N)."""

    mean: Vector
    cov: Matrix


def leftover(sources: Sequence[Source]) -> Leftover:
    """Law of d_e d_b at the points; errors of different pairs are independent.

    Given the correlations, the errors at two points are normal with covariances
    C_ee, C_bb, C_eb and means m_e, m_b. By Isserlis' theorem the products there have the mean
    C_eb(x, x) + m_e m_b and the covariance C_ee C_bb + C_eb C_be plus terms of the means. What the
    mean does from one choice of correlations to the next is added.
    """
    size = len(sources[0].phi)
    gap_e, gap_b = np.zeros(size), np.zeros(size)
    total, spread = np.zeros(size), np.zeros((size, size))
    for source in sources:
        own = _of_pair(source)
        total += own.mean
        spread += own.cov
        e, b = _centre(source)
        total += e * gap_b + gap_e * b  # the products of one pair's mean with another's
        gap_e, gap_b = gap_e + e, gap_b + b
    return Leftover(total, FITTED**2 * spread)


def _turned(source: Source, mean: Vector) -> tuple[Vector, Vector]:
    """Errors of the coefficients of e and of b, for coefficients `mean` (2p,) of (e, y)."""
    p = len(source.e)
    d_e = mean[:p] - source.e
    return d_e, mean[p:] - source.y - source.pair.effect * d_e


def _centre(source: Source) -> tuple[Vector, Vector]:
    d_e, d_b = _turned(source, np.concatenate(source.pair.mean))
    return source.phi @ d_e, source.phi @ d_b


def _of_pair(source: Source) -> Leftover:
    """With the second moments A_ee = C_ee + m_e m_e', and so A_bb and A_eb, the covariance is

    A_ee A_bb + A_eb A_be - 2 v v' entry by entry, v = m_e m_b at the points.
    """
    phi, p, tau = source.phi, len(source.e), source.pair.effect
    turned = np.ascontiguousarray(phi.T)
    means, kept, products = [], [], []
    within = np.zeros((len(phi), len(phi)))
    for weight, mean, cov in source.pair.laws(NEGLIGIBLE):
        d_e, d_b = _turned(source, mean)
        c_ee, c_ey = cov[:p, :p], cov[:p, p:]
        c_bb = cov[p:, p:] - tau * (c_ey + c_ey.T) + tau**2 * c_ee
        ee = phi @ (c_ee + np.multiply.outer(d_e, d_e)) @ turned
        eb = phi @ (c_ey - tau * c_ee + np.multiply.outer(d_e, d_b)) @ turned
        ee *= phi @ (c_bb + np.multiply.outer(d_b, d_b)) @ turned
        means.append(np.diag(eb).copy())
        ee += eb * eb.T
        ee *= weight
        within += ee
        kept.append(weight)
        products.append((phi @ d_e) * (phi @ d_b))
    weights, values, twice = np.array(kept), np.array(means), np.array(products)
    mean = weights @ values
    away = values - mean
    within += (away.T * weights) @ away - 2 * (twice.T * weights) @ twice
    return Leftover(np.asarray(mean), within)
