"""Sums over all rows and over groups that partition them, reconciled by least squares."""

from __future__ import annotations

import numpy as np

from privcausal.request.factors import Partitions
from privcausal.typing import Integers, Matrix, Vector


def reconcile(reading: Vector, sd: Vector, identities: Matrix) -> tuple[Vector, Matrix]:
    """Readings adjusted to satisfy A s = 0, and the covariance of their errors.

    A reading is x = s + e with independent errors of variances V = diag(sd^2). Generalized least
    squares gives x - V A'(A V A')^- A x, of covariance V - V A'(A V A')^- A V. The covariance
    depends on V and A alone. The result is the linear unbiased estimate of least variance (Aitken
    1935). No variance rises, and a reading without error does not change.

    Parameters
    ----------
    reading, sd : Vector
        Shape (m,).
    identities : Matrix
        A, shape (q, m); rows may be linearly dependent.
    """
    shared = sd[:, None] ** 2 * identities.T  # V A'
    gain = shared @ np.linalg.pinv(identities @ shared, hermitian=True)
    return reading - gain @ (identities @ reading), np.diag(sd**2) - gain @ shared.T


def reconcile_within(
    reading: Vector, sd: Vector, identities: Matrix, limits: tuple[float, float]
) -> tuple[Vector, Matrix]:
    """`reconcile` if the first number is known to lie within limits.

    If the first number falls outside, it is set to the limit and the others are adjusted: least
    squares under the inequality. The covariance is the one without limits, which is at least as
    large.
    """
    found, cov = reconcile(reading, sd, identities)
    held = np.r_[np.clip(found[0], *limits), reading[1:]]
    return reconcile(held, np.r_[0.0, sd[1:]], identities)[0], cov


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


def joint_sampling(terms: Matrix, groups: Vector, share: Vector, identities: Matrix) -> Matrix:
    """Sampling covariance of the terms (the average first) and groups' averages, (m + G, m + G).

    Let a group have the share p of all rows. Its rows change its own average 1 / p times as much as
    the overall average. The covariance of the two averages is therefore p times the group's
    variance. (Groups' variances are raised for noise; shares are lowered until the parts do not
    exceed the whole.) Groups of one column have no row in common. The release does not show the
    overlap of groups of two columns, or of a group and a slope. These pairs are assumed independent
    given the average, the distribution of largest entropy with the known covariances (Dempster
    1972). If these pairs had zero covariance instead, the matrix need not be positive semidefinite.

    Parameters
    ----------
    terms : Matrix
        Covariance of the terms, shape (m, m).
    groups, share : Vector
        Variances, infinite if there is no estimate, and shares of the rows, shape (G,).
    """
    m, whole = len(terms), float(terms[0, 0])
    out = np.zeros((m + len(groups),) * 2)
    out[:m, :m] = terms
    with_average, same = np.zeros(len(groups)), np.eye(len(groups), dtype=bool)
    for identity in identities:
        own = (identity[1:] != 0) & np.isfinite(groups)
        part = np.where(own, share * np.where(own, groups, 0.0), 0.0)
        total = float(part @ share)
        with_average += part * (min(1.0, whole / total) if total > 0 else 0.0)
        same |= np.outer(own, own)
    if whole > 0:
        out[m:, m:] = np.where(same, 0.0, np.outer(with_average, with_average) / whole)
        out[:m, m:] = np.outer(terms[:, 0], with_average) / whole
        out[m:, :m] = out[:m, m:].T
    out[np.arange(m, len(out)), np.arange(m, len(out))] = groups
    return out
