"""Cluster-robust standard errors: one more release, of squared sums of scores by cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from privcausal.estimators import budget, first_stages, words
from privcausal.inference.averages import AverageEstimate, raised, with_design_effect
from privcausal.inference.noisy import Reading
from privcausal.inference.priors import PRIORS
from privcausal.request.plan import StageKey
from privcausal.typing import Vector
from privcausal.vault import ClusterSquares, CutScore, Influence, Transform

# -- intervals from squared cluster sums -------------------------------------------------------

MIN_CLUSTERS = 30.0
"""Number of clusters below which a result warns: standard errors are then too small."""

ASSUMED_CORRELATION = 0.1
"""With this correlation within clusters, `cluster_cap` clips few sums. By hand."""

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
    square = 1 - 2 * norm.sf(c) - 2 * c * norm.pdf(c) + 2 * c**2 * norm.sf(c)
    return float(min(np.interp(share, square / c**2, 1 / square), MAX_CORRECTION))


def with_clusters(
    estimate: AverageEstimate,
    released: Reading,
    limits: Vector,
    masses: Vector,
    max_rows: int,
    limit: float,
) -> tuple[AverageEstimate, bool]:
    """The estimate with cluster-robust sampling variances, and whether clusters are too large.

    An estimate is a sum of scores over a mass M. Its variance is G / (G - 1) sum_c S_c^2 / M^2 for
    the sums S_c over G clusters. Sums are assumed normal to correct for their limits. The variance
    is raised by the noise of its squares. It is at most `limit` times the variance for independent
    rows: `max_rows` times by Cauchy-Schwarz, unless that variance assumes homoskedasticity.
    Correlations of estimates are those for independent rows.

    There are at least n / `max_rows` clusters. Degrees of freedom use a lower limit of the number
    of clusters. If the noisy number shows that there are fewer, sums were clipped too far. The
    variance is then that of equal rows in clusters of one size, its largest for this size.

    Parameters
    ----------
    released : Reading
        Squared cluster sums of the scores of each estimate, then the number of clusters.
    limits, masses : Vector
        Limits of the cluster sums, and divisors of the sums of scores, shape (m,).
    """
    number, number_sd = (float(part[-1]) for part in released)
    # Noise shows fewer clusters than there are with chance 1e-6.
    size_sd = float(np.nan_to_num(estimate.size_sd, posinf=0.0))
    margin = float(norm.isf(1e-6)) * math.hypot(number_sd, size_sd / max_rows)
    rows, larger = np.diag(estimate.sampling), number + margin < estimate.size / max_rows
    least = 2.0 if larger else max(estimate.size / max_rows, 2.0)
    clusters = max(number, least)
    variance = rows.copy()
    for j in np.flatnonzero(np.isfinite(rows) & (rows > 0) & (masses > 0)):
        floor = PRIORS.least_unexplained * rows[j] * masses[j] ** 2
        share = max(float(released.value[j]), floor) / (clusters * limits[j] ** 2)
        total = raised(float(released.value[j]), float(released.sd[j]), floor)
        total *= correction(share)
        robust = total / masses[j] ** 2 * clusters / (clusters - 1)
        variance[j] = min(robust, limit * rows[j] * clusters / (clusters - 1))
    change = np.sqrt(np.divide(variance, rows, out=np.ones(len(rows)), where=variance != rows))
    independent = estimate.sampling
    with np.errstate(invalid="ignore"):
        sampling = np.where(independent == 0, 0.0, independent * np.outer(change, change))
    lowest = max(number - number_sd, least)
    if larger:
        sampling = independent * estimate.size / lowest * clusters / (clusters - 1)
        change = np.full_like(change, np.sqrt(estimate.size / lowest))
    effect = float(change[0] ** 2)
    out = replace(estimate, sampling=sampling, clusters=float(lowest), design_effect=effect)
    return out, larger


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


CLUSTER_STEP = budget.Step(CLUSTER_SQUARES, 0.4, (lambda request, _: request.cluster is not None,))


class ClusterScore(NamedTuple):
    """The score of one estimate, its place, and the mass that the estimate divides it by.

    `place` is 0 for all rows and k for group k - 1; `rows` is the (noisy) number of its rows. The
    score's middle is its mean, so that the scores are the influences of the rows on the estimate.
    """

    score: CutScore
    place: int
    mass: float
    rows: float


def influences(
    estimate: AverageEstimate, score: CutScore, mass: Transform | None, centre: float
) -> list[ClusterScore]:
    """Scores of an average and its groups, whose masses are shares of the total mass.

    The estimates are ratios of sums of the clipped `score` and of the `mass`, plus the `centre`.
    """
    out = []
    for place, share in enumerate(np.r_[1.0, estimate.shares]):
        mean = float(np.nan_to_num(estimate.estimate[place] - centre))
        influence = Influence(score.score, mass, mean)
        clipped = CutScore(influence, score.cut + abs(mean), score.middle)
        out.append(ClusterScore(clipped, place, share * estimate.mass, share * estimate.size))
    return out


def with_dependence(
    fit: first_stages.Fit,
    estimate: AverageEstimate,
    scores_of: Callable[[], Sequence[ClusterScore]],
    most: int,
) -> AverageEstimate:
    """The estimate with sampling variances for dependent rows of a cluster, or of a unit.

    A row has at most `most` of the scores, which only clusters need.
    """
    request = fit.request
    if request.cluster is None:
        return with_design_effect(estimate, request.trust.max_rows)
    rows, scores = request.cluster.max_rows, scores_of()
    units = np.array([score.score.unit for score in scores])
    masses = np.array([score.mass for score in scores])
    rms = [
        np.sqrt(variance / max(score.rows, 1.0)) * score.mass / score.score.unit
        for variance, score in zip(np.diag(estimate.sampling), scores, strict=True)
        if 0 < variance < np.inf and score.mass > 0
    ]
    cap = cluster_cap(max(rms, default=1.0), rows)
    if not np.diag(estimate.privacy).any():
        cap = float(rows)  # Tests without noise clip no influence.
    query = ClusterSquares(
        tuple(score.score for score in scores),
        tuple(score.place for score in scores),
        most,
        cap,
        request.trust.neighbors,
    )
    release = fit.release(CLUSTER_SQUARES, query)
    released = Reading(release.value, release.noise_sd)
    limit = np.inf if request.regression else float(rows)
    out, larger = with_clusters(estimate, released, query.cap * units, masses, rows, limit)
    clusters, alert = max(float(released.value[-1]), out.clusters), ""
    if larger:
        alert = LARGER_CLUSTERS.format(mean=estimate.size / clusters, most=rows)
    if clusters < MIN_CLUSTERS:
        alert += FEW_CLUSTERS.format(least=MIN_CLUSTERS, clusters=clusters)
    if alert:
        fit.alerts["clusters"] = alert.strip()
    return out


def clusters_described(
    description: words.Description, estimate: words.Estimate
) -> words.Description:
    """The description with the clusters of the standard errors, and what these assume."""
    clusters = estimate.plan.request.cluster
    if clusters is None:
        return description
    rows = [row for row in description.rows if row[0] != "Covariance"]
    assumed = (
        f"Clusters: rows of different {clusters.column!r} are independent, and no cluster has more "
        f"than {clusters.max_rows:,} rows."
    )
    return replace(
        description,
        rows=(*rows, ("Std err clustered by", clusters.column)),
        assumptions=(*description.assumptions, assumed),
        notes=(*description.notes, assumed),
        methods=(*description.methods, METHOD.format(name=clusters.column)),
    )


METHOD = (
    "Sampling standard errors are cluster-robust by {name!r} (Liang and Zeger 1986), from noisy "
    "sums of the squared sums of scores by cluster. Intervals use Student's t distribution with "
    "the number of clusters less one as its degrees of freedom. Cluster sums were clipped at "
    f"{CAP_SDS:g} standard deviations for a correlation of {ASSUMED_CORRELATION:g} within "
    "clusters; a correction for clipped sums assumes that the sums are normal. The allowance for "
    "nuisance errors treats rows as independent."
)
