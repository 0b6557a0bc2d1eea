"""Tests of released numbers that raise alerts, with the chance of a false alarm."""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from privcausal.inference.averages import FEW_SDS
from privcausal.typing import Mask, Matrix, Vector

FALSE_ALARMS = 0.01
"""Largest chance that noise alone raises an alert on harmless data."""

SMALL_ARM = 0.1
"""Share of the rows above which an arm is harmless. Many trials treat a tenth of the rows."""


def lacks_arm(arms: Vector, noise_sd: float) -> bool:
    """Whether an arm may be empty and is small, from noisy counts or shares of all arms.

    The noise cannot explain a harmless arm: if all arms have a share of `SMALL_ARM` or more, a
    false alarm has at most the chance `FALSE_ALARMS`. If the noise hides all arms, there is no
    alert.
    """
    margin = float(norm.isf(FALSE_ALARMS)) * noise_sd
    least, rows = float(np.min(arms)), float(np.sum(arms))
    return least <= FEW_SDS * noise_sd and least + margin <= SMALL_ARM * rows


INFLATION, CONSTANT = 10.0, 0.05
"""Variance inflation of collinear columns, and the sd of a constant column in half-widths."""


def collinear(moments: Matrix, noise_sd: float, lift: Matrix, half: Vector) -> tuple[Mask, Mask]:
    """Columns that may be linear functions of the others, and columns that may be constant.

    The released moments cannot tell the columns from exact ones, although the noise cannot explain
    a variance inflation below `INFLATION`, or an sd above `CONSTANT`: for columns below and above
    these limits, a false alarm has at most the chance `FALSE_ALARMS`. The largest eigenvalue of the
    noise is sqrt(2) noise sds around at most 2 sqrt(p) (Davidson and Szarek 2001).

    Parameters
    ----------
    moments : Matrix
        Noisy mean of v v', shape (p, p). The intercept is a linear function of v.
    noise_sd : float
        Noise sd of an entry off the diagonal; entries on it have sqrt(2) times as much.
    lift : Matrix
        v = lift'x for the columns x with the intercept first, shape (p, p).
    half : Vector
        Half the width of the range of each column but the intercept, shape (p - 1,).
    """
    p, direction = len(moments), np.sqrt(2.0) * noise_sd
    most = 2 * np.sqrt(p) * noise_sd + norm.isf(FALSE_ALARMS / 2) * direction
    values, vectors = np.linalg.eigh(moments)
    into = (lift @ vectors) ** 2

    def left(curvature: Vector) -> Vector:
        """Mean squares of the columns that the other columns do not explain."""
        return np.asarray(1 / (into @ (1 / np.maximum(curvature, 1e-12 * values[-1])))[1:])

    upper, lower = left(values + most), left(values - FEW_SDS * direction)
    back = np.linalg.pinv(lift)
    second = back.T @ moments @ back
    centred = (back - np.outer(back[:, 0], second[0] / second[0, 0]))[:, 1:]
    doubt = norm.isf(FALSE_ALARMS / 2 / p) * direction * (centred**2).sum(axis=0)
    variance = np.einsum("ij,ik,kj->j", centred, moments, centred) - doubt
    seen = variance > 1e-9 * np.diag(second)[1:]
    limit = np.where(seen, variance / INFLATION, (CONSTANT * half) ** 2)
    found = (lower < 1e-6 * limit) & (upper < limit)
    return found & seen, found & ~seen
