"""Tests of released numbers that raise alerts, with the chance of a false alarm."""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from privcausal.inference import ranges
from privcausal.inference.averages import FEW_SDS
from privcausal.request.schema import Domain, Interval
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


MANY_AT_END, MOST_AT_END, PILED = 0.1, 0.5, 4.0
"""Shares of the rows at a bound that trigger a report.

A bound with a share above `MANY_AT_END` is reported if its cell has over `PILED` times the rows
of the nearest occupied cell, which indicates a pile-up. If no other cell is occupied, a bound with
a share above `MOST_AT_END` is reported. The intervals of averages are then infinite.
"""

RARER, MISSED_BOUNDS = 0.1, 1e-4
"""Share of the rarer of two values that noise may not take for none, and the chance that an alert
on a bound that holds three quarters of the rows or more is missed."""


def clipped_share(
    declared: Domain | None, domain: Domain, counts: Vector, noise_sd: float, public: float | None
) -> tuple[float, float] | None:
    """The bound with too many rows, and its share of them, because bounds or units are wrong.

    There is none for a bound at 0, common for counts and amounts, or for bounds declared as
    natural. For whole numbers the cells between values are empty, so the test uses the nearest
    occupied cell. A column of two values has no other cells and lies at its bounds naturally. If
    the other bound holds `RARER` of the rows, an alert has at most the chance `FALSE_ALARMS`. If
    it holds none, `RARER` of the rows are six noise sds, and the number of rows is public, the
    alert is missed with at most the chance `MISSED_BOUNDS`.
    """
    if not (isinstance(declared, Interval) and isinstance(domain, Interval)) or declared.natural:
        return None
    ends, inside, quantile = counts[[0, -1]], counts[1:-1], float(norm.isf(MISSED_BOUNDS))
    rows, total_sd = ranges.present_rows(counts, noise_sd, public), noise_sd * len(counts) ** 0.5
    if rows == public:
        total_sd = 0.0

    def exceeds(share: float) -> Mask:
        return np.asarray(ends > share * rows + quantile * np.hypot(noise_sd, share * total_sd))

    occupied = inside[inside > float(norm.isf(FALSE_ALARMS / 2 / len(counts))) * noise_sd]
    hidden = inside.sum() <= FEW_SDS * noise_sd * len(counts) ** 0.5 and not len(occupied)
    doubt = float(norm.isf(FALSE_ALARMS)) * np.hypot(noise_sd, RARER * total_sd)
    rarer = min(quantile * noise_sd, RARER * rows - doubt)
    beside = occupied[[0, -1]] if len(occupied) else np.full(2, FEW_SDS * noise_sd)
    piled = exceeds(MANY_AT_END) & (ends > PILED * beside)
    too_many = exceeds(MOST_AT_END) & (ends.min() <= rarer) if hidden else piled
    for end, clip, at in ((declared.lo, domain.lo, 0), (declared.hi, domain.hi, 1)):
        if too_many[at] and end == clip != 0:
            return end, min(float(ends[at]) / rows, 1.0)
    return None


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
    exact = (lower < 1e-6 * limit) & (upper < limit)
    return exact & seen, exact & ~seen
