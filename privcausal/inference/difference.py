"""The difference of two arms' means and its standard error, from noisy sums within the arms.

Every mean is a ratio of noisy sums. Without noise the standard error is Welch's (1947), which
equals MacKinnon and White's (1985) HC2 in the regression of Y on T.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from privcausal.inference.averages import FEW_SDS, AverageEstimate
from privcausal.inference.ranges import Window
from privcausal.inference.reconcile import joint_sampling, reconcile, terms_first, upheld
from privcausal.request.factors import Partitions
from privcausal.request.schema import Interval
from privcausal.request.terms import Place, ResultTerm, in_places
from privcausal.typing import Mask, Matrix, Vector


@dataclass(frozen=True, eq=False)
class ArmTotals:
    """Noisy sums over the rows of the control and the treated arm, shape (2, 1 + G) each.

    The columns are all rows, then the groups. `total` sums Y minus the middle of the clipping
    interval, and `square` its square. If the outcome has two values, the square is known and
    `square` is None.
    """

    total: Matrix
    count: Matrix
    square: Matrix | None


@dataclass(frozen=True, eq=False)
class JointNoise:
    """Noise covariances of reconciled totals and counts, shape (2, 1 + G, 1 + G) each.

    Each arm's sums over all rows and the groups satisfy `identities`.
    """

    total: Vector
    count: Vector
    identities: Matrix


def agreed(
    value: ArmTotals, sd: ArmTotals, parts: Partitions
) -> tuple[ArmTotals, ArmTotals, JointNoise | None]:
    """Sums of each arm, made to add up over groups that partition the rows; noise sds; joint noise.

    If no groups partition the rows, the sums are unchanged and the joint noise is None.
    """
    rows, rows_sd = value.count.sum(axis=0), np.sqrt((sd.count**2).sum(axis=0))
    identities = upheld(parts, rows, rows_sd, FEW_SDS)
    if not len(identities):
        return value, sd, None

    def both(reading: Matrix, noise: Matrix) -> tuple[Matrix, Matrix, Vector]:
        arms = [reconcile(x, s, identities) for x, s in zip(reading, noise, strict=True)]
        found, covs = (np.stack(one) for one in zip(*arms, strict=True))
        return found, np.sqrt(np.maximum(np.einsum("ajj->aj", covs), 0.0)), covs

    total, total_sd, total_cov = both(value.total, sd.total)
    count, count_sd, count_cov = both(value.count, sd.count)
    value = replace(value, total=total, count=count)
    sd = replace(sd, total=total_sd, count=count_sd)
    if value.square is not None and sd.square is not None:
        square, square_sd, _ = both(value.square, sd.square)
        value, sd = replace(value, square=square), replace(sd, square=square_sd)
    return value, sd, JointNoise(total_cov, count_cov, identities)


def unseen(value: ArmTotals, sd: ArmTotals) -> Mask:
    """Which arms (of all rows, of each group) have too few rows to distinguish from the noise."""
    return np.asarray(value.count <= FEW_SDS * sd.count)


def estimate_difference(
    terms: tuple[ResultTerm, ...],
    groups: tuple[Place, ...],
    value: ArmTotals,
    sd: ArmTotals,
    window: Window,
    bounds: Interval,
    noise: JointNoise | None = None,
) -> AverageEstimate:
    """Treated minus control mean, overall and in each group, with the parts of its variance.

    A group has no estimate if one of its arms has too few rows to detect. If an arm as a whole has
    too few rows, its mean is the middle of the bounds, with a standard error of half their width.
    `value` has the sums and `sd` the noise sds of their entries. If `noise` is given, the sums were
    reconciled, and the average and groups have covariances. `terms` are the difference under one or
    several names, and the means of the arms. Each term has its own groups.
    """
    mean, sampling, privacy = _means(value, sd, window.interval)
    lost = unseen(value, sd)
    mean[lost], sampling[lost], privacy[lost] = np.nan, np.inf, 0.0
    arms = lost[:, 0]
    mean[arms, 0], sampling[arms, 0], privacy[arms, 0] = bounds.mid, 0.0, 0.25 * bounds.width**2
    parts = [(np.diag(s), np.diag(p)) for s, p in zip(sampling, privacy, strict=True)]
    if noise is not None:
        parts = _joint(value, lost, mean - window.interval.mid, sampling, privacy, noise)
    rows = float(max(value.count[:, 0].sum(), 1.0))
    empty = lost.any(axis=0)
    bias = np.where(empty, 0.0, window.bias(value.count))
    signs = {0: (1.0, 0.0), 1: (0.0, 1.0), None: (-1.0, 1.0)}
    arms = np.array([signs[term.arm] for term in terms])
    order = terms_first(len(terms), len(groups) + 1)
    sampled, noisy = (
        sum((_spread(w, part[kind]) for w, part in zip(arms.T, parts, strict=True)), np.zeros(1))
        for kind in (0, 1)
    )
    both = np.where(arms[:, :, None] == 0, 0.0, arms[:, :, None] * mean).sum(axis=1)
    shares = np.maximum(value.count[:, 1:].sum(axis=0), 0.0) / rows
    return AverageEstimate(
        terms, in_places(terms, groups), both.ravel()[order], sampled[np.ix_(order, order)],
        noisy[np.ix_(order, order)], np.tile(bias, len(terms))[order], np.zeros(len(order)), rows,
        size_sd=float(np.linalg.norm(sd.count[:, 0])),
        treated=float(np.clip(value.count[1, 0] / rows, 0.0, 1.0)),
        shares=np.tile(shares, len(terms)),
        shares_sd=np.tile(np.linalg.norm(sd.count[:, 1:], axis=0) / rows, len(terms)),
    )  # fmt: skip


def _spread(weight: Vector, cov: Matrix) -> Matrix:
    """Covariance of multiples of one arm's means, (R P, R P); zero for an arm of weight 0."""
    finite = np.where(np.isfinite(cov), cov, 0.0)
    out = np.kron(np.outer(weight, weight), finite)
    lost = np.kron(weight != 0, ~np.isfinite(np.diag(cov)))
    out[lost, lost] = np.inf
    return np.asarray(out)


def _joint(
    value: ArmTotals, lost: Mask, mean: Matrix, sampling: Matrix, privacy: Matrix, noise: JointNoise
) -> list[tuple[Matrix, Matrix]]:
    """Sampling and privacy covariances of each arm's means; no row is in both arms."""
    lost = lost | np.r_[False, lost[:, 1:].any(axis=0)]
    rows = np.where(lost, 1.0, value.count)
    found = []
    for arm in (0, 1):
        by_total = np.where(lost[arm], 0.0, 1.0 / rows[arm])
        by_count = np.where(lost[arm], 0.0, -mean[arm] / rows[arm])
        own = by_total[:, None] * noise.total[arm] * by_total
        own += by_count[:, None] * noise.count[arm] * by_count
        np.fill_diagonal(own, privacy[arm])
        variances = np.where(lost[arm, 1:], np.inf, sampling[arm, 1:])
        first, share = sampling[arm, :1, None], rows[arm, 1:] / rows[arm, 0]
        found.append((joint_sampling(first, variances, share, noise.identities), own))
    return found


def _means(value: ArmTotals, sd: ArmTotals, window: Interval) -> tuple[Matrix, Matrix, Matrix]:
    """Means with their sampling and privacy variances, shape (2, 1 + G) each."""
    middle, half = window.mid, 0.5 * window.width
    rows = np.maximum(value.count, np.maximum(FEW_SDS * sd.count, 1.0))
    mean = np.clip(value.total / rows, -half, half)
    privacy = (sd.total**2 + (mean * sd.count) ** 2) / rows**2  # delta method
    square, square_sd = np.full(rows.shape, half**2), np.zeros(rows.shape)
    if value.square is not None and sd.square is not None:
        square, square_sd = np.clip(value.square / rows, 0.0, half**2), sd.square / rows
    # Every variance is at least zero, and raised by one sd of its own noise (see
    # `averages.raised`). This noise combines the noise of the square and of mean^2. The noise's
    # variance also makes mean^2 too large. A floor relative to the square would depend on the
    # distance of the mean from the middle of the window.
    slack = np.hypot(square_sd, 2 * np.abs(mean) * np.sqrt(privacy))
    variance = np.maximum(square - np.maximum(mean**2 - privacy, 0.0), 0.0) + slack
    return mean + middle, variance / np.maximum(rows - 1, 1), privacy
