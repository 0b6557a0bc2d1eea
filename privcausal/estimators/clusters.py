"""Cluster-robust standard errors: one more release, of squared sums of scores by cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from privcausal.estimators import budget, survey, words
from privcausal.inference import clusters as clusters_of
from privcausal.inference.averages import AverageEstimate, with_design_effect
from privcausal.inference.clusters import ASSUMED_CORRELATION, CAP_SDS
from privcausal.request.plan import StageKey
from privcausal.request.request import Clusters
from privcausal.vault import ClusterSquares, CutScore, Influence, Transform

CLUSTER_SQUARES = StageKey("effect", "squared cluster sums", heading="variance")

FEW_CLUSTERS = (
    "Fewer than {least:g} clusters (about {clusters:.0f}, by a noisy count). Cluster-robust "
    "standard errors may be too small. Use data with more clusters."
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
    found: AverageEstimate, score: CutScore, mass: Transform | None, centre: float, total: float
) -> list[ClusterScore]:
    """Scores of an average and its groups, whose masses are shares of the `total` mass.

    The estimates are ratios of sums of the clipped `score` and of the `mass`, plus the `centre`.
    """
    out = []
    for place, share in enumerate(np.r_[1.0, found.shares]):
        mean = float(np.nan_to_num(found.estimate[place] - centre))
        own = Influence(score.score, mass, mean)
        own_cut = CutScore(own, score.cut + abs(mean), score.middle)
        out.append(ClusterScore(own_cut, place, share * total, share * found.size))
    return out


def with_dependence(
    session: survey.FitRun, found: AverageEstimate, scores: Sequence[ClusterScore], most: int
) -> AverageEstimate:
    """`found` with sampling variances for dependent rows of a cluster, or of a unit.

    A row has at most `most` of the scores. Without clusters, the scores are not used.
    """
    request = session.plan.request
    if request.cluster is None:
        return with_design_effect(found, request.trust.max_rows)
    rows, neighbors = request.cluster.max_rows, request.trust.neighbors
    variances = np.diag(found.sampling)
    rms = [
        np.sqrt(variance / max(one.rows, 1.0)) * one.mass / one.score.unit
        for variance, one in zip(variances, scores, strict=True)
        if 0 < variance < np.inf and one.mass > 0
    ]
    query = ClusterSquares(
        tuple(one.score for one in scores), tuple(one.place for one in scores), most,
        clusters_of.cluster_cap(max(rms, default=1.0), rows), neighbors,
    )  # fmt: skip
    if not np.diag(found.privacy).any():
        query = replace(query, cap=float(rows))  # In tests without noise, nothing is clipped.
    release = session.release(CLUSTER_SQUARES, query)
    data = clusters_of.ClusterData(
        release.value[:-1], release.noise_sd[:-1],
        query.cap * np.array([one.score.unit for one in scores]),
        np.array([one.mass for one in scores]),
        float(release.value[-1]), float(release.noise_sd[-1]),
    )  # fmt: skip
    limit = np.inf if request.estimand == "OLS" else float(rows)
    out = clusters_of.with_clusters(found, data, rows, limit)
    clusters = max(data.clusters, out.clusters)
    if clusters < clusters_of.MIN_CLUSTERS:
        least = clusters_of.MIN_CLUSTERS
        session.alerts["clusters"] = FEW_CLUSTERS.format(least=least, clusters=clusters)
    return out


def described(said: words.Description, clusters: Clusters | None) -> words.Description:
    """The description with the clusters of the standard errors, and what these assume."""
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
