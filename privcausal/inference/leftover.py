"""What the errors of two nuisances leave in the residual product, as a function of x.

With errors d_e of the propensity and d_y of the mean outcome, (T - e)(Y - eta) has the conditional
mean E[(T - e)^2 | x] tau(x) + d_e(x) d_b(x), d_b = d_y - tau d_e (Nie and Wager 2021, Section 2:
the product is what orthogonality leaves). Under the joint law of `confounding.Pair` that product
has a mean, which is taken off, and a covariance between points, which is noise to the regression.
Both are functions of released numbers only.
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
    """(d_e, d_b) at the points for coefficients `mean` (2p,) of (e, y)."""
    p = len(source.e)
    d_e = mean[:p] - source.e
    return source.phi @ d_e, source.phi @ (mean[p:] - source.y - source.pair.effect * d_e)


def _centre(source: Source) -> tuple[Vector, Vector]:
    return _turned(source, np.concatenate(source.pair.mean))


def _of_pair(source: Source) -> Leftover:
    phi, p = source.phi, len(source.e)
    means, kept, within = [], [], np.zeros((len(phi), len(phi)))
    for weight, mean, cov in source.pair.laws(NEGLIGIBLE):
        e, b = _turned(source, mean)
        tau = source.pair.effect
        ee = phi @ cov[:p, :p] @ phi.T
        ey = phi @ cov[:p, p:] @ phi.T
        eb = ey - tau * ee
        bb = phi @ cov[p:, p:] @ phi.T - tau * (ey + ey.T) + tau**2 * ee
        means.append(np.diag(eb) + e * b)
        kept.append(weight)
        around = np.outer(e, e) * bb + np.outer(b, b) * ee
        around += np.outer(e, b) * eb.T + np.outer(b, e) * eb
        within += weight * (ee * bb + eb * eb.T + around)
    weights, values = np.array(kept), np.array(means)
    mean = weights @ values
    away = (values - mean) * np.sqrt(weights)[:, None]
    return Leftover(np.asarray(mean), np.asarray(within + away.T @ away))
