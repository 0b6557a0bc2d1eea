"""Cluster-robust variances from noisy squared sums of scores by cluster (Liang and Zeger 1986)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from privcausal.inference.averages import AverageEstimate, raised
from privcausal.inference.priors import PRIORS
from privcausal.typing import Vector

MIN_CLUSTERS = 30.0
"""Number of clusters below which a result warns: standard errors are then too small."""

ASSUMED_CORRELATION = 0.1
"""Correlation within clusters for which `cluster_cap` clips few sums. By hand."""

CAP_SDS = 2.5
"""Limit of a cluster's sum, in its standard deviations at that correlation. By hand."""

MAX_CORRECTION = 2.7
"""Largest factor for clipped sums: at a correlation of 1, normal sums need 2.7 at most."""


def cluster_cap(rms: float, max_rows: int) -> float:
    """Limit of the sum of up to `max_rows` scores with this root mean square.

    At any correlation, the limit is at least 0.8 standard deviations of the sum. `correction` makes
    up for clipped sums.
    """
    variance = max_rows * (1 + (max_rows - 1) * ASSUMED_CORRELATION)
    return float(min(CAP_SDS * rms * math.sqrt(variance), max_rows))


def correction(share: float) -> float:
    """Variance of a normal sum over its mean square after clipping.

    `share` is that mean square over the squared limit, E[min(Z^2, c^2)] / c^2 for a limit of c
    standard deviations. It decreases with c.
    """
    c = np.geomspace(8.0, 0.5, 400)
    kept = 1 - 2 * norm.sf(c) - 2 * c * norm.pdf(c) + 2 * c**2 * norm.sf(c)
    return float(min(np.interp(share, kept / c**2, 1 / kept), MAX_CORRECTION))


@dataclass(frozen=True, eq=False)
class ClusterData:
    """Released squared cluster sums of the scores of each estimate, shape (m,), natural units."""

    # `squares`, `squares_sd`: sums of squares, and the standard deviations of their noise
    squares: Vector
    squares_sd: Vector
    limits: Vector  # Limits of the cluster sums
    mass: Vector  # Divisors of the sums of scores
    # `clusters`, `clusters_sd`: noisy number of clusters
    clusters: float
    clusters_sd: float


def with_clusters(
    found: AverageEstimate, sums: ClusterData, max_rows: int, limit: float
) -> AverageEstimate:
    """`found` with cluster-robust sampling variances, and the number of clusters.

    An estimate is a sum of scores over a mass M. Its variance is G / (G - 1) sum_c S_c^2 / M^2 for
    the sums S_c over G clusters. Sums are assumed normal to correct for their limits. The variance
    is raised by the noise of its squares. It is at most `limit` times the variance for independent
    rows: `max_rows` times by Cauchy-Schwarz, unless that variance assumes homoskedasticity.
    Correlations of estimates are those for independent rows.

    There are at least n / `max_rows` clusters. Degrees of freedom use a lower limit of the number
    of clusters.
    """
    rows = np.diag(found.sampling)
    least = max(found.size / max_rows, 2.0)
    clusters = max(sums.clusters, least)
    variance = rows.copy()
    for j in np.flatnonzero(np.isfinite(rows) & (rows > 0) & (sums.mass > 0)):
        floor = PRIORS.least_unexplained * rows[j] * sums.mass[j] ** 2
        share = max(float(sums.squares[j]), floor) / (clusters * sums.limits[j] ** 2)
        total = raised(float(sums.squares[j]), float(sums.squares_sd[j]), floor)
        total *= correction(share)
        robust = total / sums.mass[j] ** 2 * clusters / (clusters - 1)
        variance[j] = min(robust, limit * rows[j] * clusters / (clusters - 1))
    change = np.sqrt(np.divide(variance, rows, out=np.ones(len(rows)), where=variance != rows))
    with np.errstate(invalid="ignore"):
        sampling = np.where(found.sampling == 0, 0.0, found.sampling * np.outer(change, change))
    lowest = max(sums.clusters - sums.clusters_sd, least)
    effect = float(change[0] ** 2)
    return replace(found, sampling=sampling, clusters=float(lowest), design_effect=effect)
