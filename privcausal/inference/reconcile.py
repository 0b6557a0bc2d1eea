"""Sums over all rows and over groups that partition them, reconciled by least squares."""

from __future__ import annotations

import numpy as np

from privcausal.inference.noisy import Noisy
from privcausal.request.factors import Partitions
from privcausal.typing import Integers, Matrix, Vector


def reconciling(sd: Vector, identities: Matrix) -> Matrix:
    """The matrix P for which P x are readings x, adjusted to satisfy A s = 0; shape (m, m).

    A reading is x = s + e with independent errors of variances V = diag(sd^2). Generalized least
    squares gives P = I - V A'(A V A')^- A, which depends on V and A alone. P x is the linear
    unbiased estimate of least variance (Aitken 1935). No variance rises, and a reading without
    error does not change.

    Parameters
    ----------
    sd : Vector
        Shape (m,).
    identities : Matrix
        A, shape (q, m); rows may be linearly dependent.
    """
    shared = sd[:, None] ** 2 * identities.T  # V A'
    gain = shared @ np.linalg.pinv(identities @ shared, hermitian=True)
    return np.asarray(np.eye(len(sd)) - gain @ identities)


def reconciled(reading: Noisy, identities: Matrix) -> Noisy:
    """Independent readings, adjusted to satisfy the identities."""
    return reconciling(reading.sd, identities) @ reading


def reconciled_within(reading: Noisy, identities: Matrix, limits: tuple[float, float]) -> Noisy:
    """`reconciled` if the first number is known to lie within limits.

    If the first number falls outside, it is set to the limit and the others are adjusted: least
    squares under the inequality. The derivatives are those without limits, so that the variance is
    not too small.
    """
    found = reconciled(reading, identities)
    first = np.clip(found.value[0], *limits)
    others = reconciling(np.r_[0.0, reading.sd[1:]], identities)
    return found.held(others @ np.r_[first, reading.value[1:]])


def upheld(parts: Partitions, size: Vector, sd: Vector, few: float) -> Matrix:
    """The identities that hold: all except those with a detectable remainder.

    Declared levels are assumed to be exhaustive: a remainder counts as empty if its count is within
    `few` sd of zero. This neglects at most about `few` sd rows, times the distance of their mean
    score from the center. The error is at most the noise, unless these rows differ from the others
    by about the clipping threshold.

    Parameters
    ----------
    size, sd : Vector
        Rows (or masses) of all and of each group, and their noise, shape (1 + G,).
    """
    rest, noise = parts.identities @ size, np.sqrt(parts.identities**2 @ sd**2)
    return parts.identities[parts.certain | (np.abs(rest) <= few * noise)]


def terms_first(terms: int, places: int) -> Integers:
    """Indices that put terms before groups, for arrays that list each term with its own groups."""
    first = np.arange(terms) * places
    return np.asarray(np.r_[first, np.setdiff1d(np.arange(terms * places), first)])


def joint_sampling(terms: Matrix, groups: Vector, share: Matrix, identities: Matrix) -> Matrix:
    """Sampling covariance of the terms, the first R of them averages, then each average's groups.

    Let a group have the share p of all rows. Its rows change its own average 1 / p times as much as
    the overall average. The covariance of the averages with a group is therefore diag(p) times the
    group's covariance. (Groups' variances are raised for noise; shares are lowered until the parts
    of a column do not exceed the whole.) Groups of one column have no row in common. The release
    does not show the overlap of groups of two columns, or of a group and a slope. These pairs are
    assumed independent given the averages, the distribution of largest entropy with the known
    covariances (Dempster 1972). If these pairs had zero covariance instead, the matrix need not be
    positive semidefinite.

    Parameters
    ----------
    terms : Matrix
        Covariance of the terms, shape (m, m).
    groups : Vector
        Covariances of the averages in each group, shape (G, R, R), with infinite variances where
        there is no estimate.
    share : Matrix
        Shares of the rows, shape (R, G).
    """
    r, many = share.shape
    known = np.where(np.isfinite(groups), groups, 0.0)
    inverse = np.linalg.pinv(terms[:r, :r], hermitian=True)
    with_averages, same = np.zeros(groups.shape), np.eye(many, dtype=bool)
    for identity in identities:
        column = np.flatnonzero(identity[1:])
        part = share.T[column, :, None] * known[column]
        total = np.einsum("gij,jg->ij", part, share[:, column])
        most = float(np.linalg.eigvals(inverse @ total).real.max())
        with_averages[column] += part / max(most, 1.0)
        same[np.ix_(column, column)] = True
    across = with_averages.transpose(1, 2, 0).reshape(r, r * many)  # groups of each average
    lead = terms[:, :r] @ inverse @ across
    between = np.where(np.tile(same, (r, r)), 0.0, across.T @ inverse @ across)
    between += np.einsum("gij,gh->igjh", known, np.eye(many)).reshape(between.shape)
    out = np.block([[terms, lead], [lead.T, between]])
    lost = len(terms) + np.flatnonzero(~np.isfinite(np.einsum("gii->ig", groups)))
    out[lost, lost] = np.inf
    return np.asarray(out)
