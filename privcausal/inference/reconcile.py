"""Sums over all rows and over groups that partition them, reconciled by least squares."""

from __future__ import annotations

import numpy as np

from privcausal.request.factors import Partitions
from privcausal.typing import Integers, Matrix, Vector


def reconcile(reading: Vector, sd: Vector, identities: Matrix) -> tuple[Vector, Matrix]:
    """Readings made to satisfy A s = 0, and the covariance of their errors.

    A reading is x = s + e with independent errors of variances V = diag(sd^2). Generalised least
    squares gives x - V A'(A V A')^- A x, of covariance V - V A'(A V A')^- A V. It follows from V
    and A alone and is the linear unbiased estimate of least variance (Aitken 1935). No variance
    rises, and a reading without error stays as it is.

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
    """The same where the first number is known to lie within limits.

    Outside, it is moved to the limit and the others follow: least squares under the inequality. The
    covariance is that without limits, which is no less.
    """
    found, cov = reconcile(reading, sd, identities)
    held = np.r_[np.clip(found[0], *limits), reading[1:]]
    return reconcile(held, np.r_[0.0, sd[1:]], identities)[0], cov


def upheld(parts: Partitions, size: Vector, sd: Vector, few: float) -> Matrix:
    """The identities that hold: all but those with a remainder large enough to be seen.

    Declared levels are taken to be exhaustive: a remainder counts as empty where its count is
    within `few` sd of zero. That neglects at most as many rows, times the distance of their mean
    score from the centre: no more than the noise, unless these rows differ from the others by about
    the cut.

    Parameters
    ----------
    size, sd : Vector
        Rows (or masses) of all and of each group, and their noise, shape (1 + G,).
    """
    rest, noise = parts.identities @ size, np.sqrt(parts.identities**2 @ sd**2)
    return parts.identities[parts.certain | (np.abs(rest) <= few * noise)]


def terms_first(terms: int, places: int) -> Integers:
    """The order of terms before their groups, of arrays that have each term with its own groups."""
    first = np.arange(terms) * places
    return np.asarray(np.r_[first, np.setdiff1d(np.arange(terms * places), first)])


def joint_sampling(terms: Matrix, groups: Vector, share: Vector, identities: Matrix) -> Matrix:
    """Sampling covariance of the terms (the average first) and groups' averages, (m + G, m + G).

    Rows of a group with the share p of all rows move its average by 1 / p times as much as the
    overall one, so their covariance is p times the group's variance. (Groups' variances are raised
    for noise; shares are lowered until the parts do not exceed the whole.) Groups of one column
    have no row in common. What groups of two columns share, or a group and a slope, no release
    tells: they are taken as independent given the average, the law of largest entropy with these
    covariances (Dempster 1972). Zeros in their place need not be positive semidefinite.

    Parameters
    ----------
    terms : Matrix
        Covariance of the terms, shape (m, m).
    groups, share : Vector
        Variances, infinite where there is no estimate, and shares of the rows, shape (G,).
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
