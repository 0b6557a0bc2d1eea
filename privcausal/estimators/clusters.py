"""Cluster-robust standard errors: one more release, of squared sums of scores by cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from privcausal.estimators import budget, survey, words
from privcausal.inference.averages import AverageEstimate, raised, with_design_effect
from privcausal.inference.priors import PRIORS
from privcausal.request.plan import StageKey
from privcausal.typing import Vector
from privcausal.vault import ClusterSquares, CutScore, Influence, Transform

# -- intervals from squared cluster sums -------------------------------------------------------

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


def are_larger(found: AverageEstimate, sums: ClusterData, max_rows: int) -> bool:
    """Whether the mean cluster has more than `max_rows` rows; noise says so with chance 1e-6."""
    size_sd = float(np.nan_to_num(found.size_sd, posinf=0.0))
    margin = float(norm.isf(1e-6)) * math.hypot(sums.clusters_sd, size_sd / max_rows)
    return sums.clusters + margin < found.size / max_rows


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
    of clusters. If the noisy number shows that there are fewer, sums were clipped too far. The
    variance is then that of equal rows in clusters of one size, its largest for this size.
    """
    rows, larger = np.diag(found.sampling), are_larger(found, sums, max_rows)
    least = 2.0 if larger else max(found.size / max_rows, 2.0)
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
    if larger:
        sampling = found.sampling * found.size / lowest * clusters / (clusters - 1)
        change = np.full_like(change, np.sqrt(found.size / lowest))
    effect = float(change[0] ** 2)
    return replace(found, sampling=sampling, clusters=float(lowest), design_effect=effect)


# -- the release -------------------------------------------------------------------------------

CLUSTER_SQUARES = StageKey("effect", "squared cluster sums", heading="variance")

FEW_CLUSTERS = (
    "Fewer than {least:g} clusters (about {clusters:.0f}, by a noisy count). Cluster-robust "
    "standard errors may be too small. Use data with more clusters."
)


LARGER_CLUSTERS = (
    "The mean cluster has about {mean:,.0f} rows, by noisy counts, but max_cluster_rows={most} was "
    "declared, so cluster sums were clipped too far. Standard errors are those of clusters of one "
    "size with equal rows. Repeat the fit with a larger max_cluster_rows=. "
)


CLUSTER_USE = budget.Use(
    CLUSTER_SQUARES, 0.4, "Its noise is added to the variance. Least mean width of 0.1, 0.2, 0.4, "
    "and 0.8, on the distributions of `tests/benchmarks/clusters.py`.",
    lambda request, _: request.cluster is not None,
)  # fmt: skip


@dataclass(frozen=True)
class ClusterScore:
    """The score of one estimate, its place, and the mass that the estimate divides it by.

    `place` is 0 for all rows and k for group k - 1; `rows` is the (noisy) number of its rows. The
    score's middle is its mean, so that the scores are the influences of the rows on the estimate.
    """

    score: CutScore
    place: int
    mass: float
    rows: float


def influences(
    found: AverageEstimate, score: CutScore, mass: Transform | None, centre: float
) -> list[ClusterScore]:
    """Scores of an average and its groups, whose masses are shares of the total mass.

    The estimates are ratios of sums of the clipped `score` and of the `mass`, plus the `centre`.
    """
    out = []
    for place, share in enumerate(np.r_[1.0, found.shares]):
        mean = float(np.nan_to_num(found.estimate[place] - centre))
        own = Influence(score.score, mass, mean)
        own_cut = CutScore(own, score.cut + abs(mean), score.middle)
        out.append(ClusterScore(own_cut, place, share * found.mass, share * found.size))
    return out


def with_dependence(
    session: survey.FitRun,
    found: AverageEstimate,
    scores_of: Callable[[], Sequence[ClusterScore]],
    most: int,
) -> AverageEstimate:
    """`found` with sampling variances for dependent rows of a cluster, or of a unit.

    A row has at most `most` of the scores, which only clusters need.
    """
    request = session.plan.request
    if request.cluster is None:
        return with_design_effect(found, request.trust.max_rows)
    rows, neighbors, scores = request.cluster.max_rows, request.trust.neighbors, scores_of()
    variances = np.diag(found.sampling)
    rms = [
        np.sqrt(variance / max(one.rows, 1.0)) * one.mass / one.score.unit
        for variance, one in zip(variances, scores, strict=True)
        if 0 < variance < np.inf and one.mass > 0
    ]
    query = ClusterSquares(
        tuple(one.score for one in scores), tuple(one.place for one in scores), most,
        cluster_cap(max(rms, default=1.0), rows), neighbors,
    )  # fmt: skip
    if not np.diag(found.privacy).any():
        query = replace(query, cap=float(rows))  # In tests without noise, nothing is clipped.
    release = session.release(CLUSTER_SQUARES, query)
    data = ClusterData(
        release.value[:-1], release.noise_sd[:-1],
        query.cap * np.array([one.score.unit for one in scores]),
        np.array([one.mass for one in scores]),
        float(release.value[-1]), float(release.noise_sd[-1]),
    )  # fmt: skip
    limit = np.inf if request.estimand == "OLS" else float(rows)
    out = with_clusters(found, data, rows, limit)
    clusters, alert = max(data.clusters, out.clusters), ""
    if are_larger(found, data, rows):
        alert = LARGER_CLUSTERS.format(mean=found.size / clusters, most=rows)
    if clusters < MIN_CLUSTERS:
        alert += FEW_CLUSTERS.format(least=MIN_CLUSTERS, clusters=clusters)
    if alert:
        session.alerts["clusters"] = alert.strip()
    return out


def clusters_described(said: words.Description, estimate: words.Estimate) -> words.Description:
    """The description with the clusters of the standard errors, and what these assume."""
    clusters = estimate.plan.request.cluster
    if clusters is None:
        return said
    rows = [row for row in said.rows if row[0] != "Covariance"]
    assumed = (
        f"Clusters: rows of different {clusters.column!r} are independent, and no cluster has more "
        f"than {clusters.max_rows:,} rows."
    )
    return replace(
        said, rows=(*rows, ("Std err clustered by", clusters.column)),
        assumptions=(*said.assumptions, assumed), notes=(*said.notes, assumed),
        methods=(*said.methods, METHOD.format(name=clusters.column)),
    )  # fmt: skip


METHOD = (
    "Sampling standard errors are cluster-robust by {name!r} (Liang and Zeger 1986), from noisy "
    "sums of the squared sums of scores by cluster. Intervals use Student's t distribution with "
    "the number of clusters less one as its degrees of freedom. Cluster sums were clipped at "
    f"{CAP_SDS:g} standard deviations for a correlation of {ASSUMED_CORRELATION:g} within "
    "clusters; a correction for clipped sums assumes that the sums are normal. The allowance for "
    "nuisance errors treats rows as independent."
)
