"""The difference of two arms' means and its standard error, from noisy sums within the arms.

Every mean is a ratio of noisy sums. Without noise the standard error is that of Welch (1947), which
is also MacKinnon and White's (1985) HC2 in the regression of Y on T.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcausal.inference import cut as cuts
from privcausal.inference.average import FEW, AverageEstimate
from privcausal.inference.ranges import fine_range
from privcausal.spec.schema import Interval, least_width
from privcausal.typing import Matrix, Vector


@dataclass(frozen=True, eq=False)
class Totals:
    """Noisy sums over the rows of the control (first) and the treated arm, shape (2, 1 + G) each.

    Columns: all rows, then the groups. `total` and `square` sum Y minus the middle of the arm's
    window, and its square. `square` is None for an outcome of two values, whose square is known.
    """

    total: Matrix
    count: Matrix
    square: Matrix | None


@dataclass(frozen=True)
class Window:
    """Where an arm's outcomes are cut, and the sd allowed for the bias of what is cut off."""

    interval: Interval
    clipping: float = 0.0


def window(counts: Vector, noise_sd: float, whole: Interval) -> Window:
    """Cells of a noisy histogram of one arm that hold nearly all its rows; else the whole range.

    Parameters
    ----------
    counts : Vector
        In equal cells of the outcome's bounds `whole`, shape (cells,).
    """
    if whole.width / len(counts) <= least_width(whole.lo, whole.hi):
        return Window(whole)  # no part of it would be an interval
    found = fine_range(counts, noise_sd, whole, max(float(counts.sum()), 1.0))
    if found == whole:
        return Window(whole)
    edges = np.linspace(whole.lo, whole.hi, len(counts) + 1)
    distance = np.maximum(np.abs(edges[:-1] - found.mid), np.abs(edges[1:] - found.mid))
    order = np.argsort(distance, kind="stable")
    sizes = cuts.read(counts[order], noise_sd, distance[order])
    return Window(found, cuts.unseen_bias(sizes, 0.5 * found.width))


def unseen(value: Totals, sd: Totals) -> Matrix:
    """Which arms (of all rows, of each group) have too few rows to be told from the noise."""
    return np.asarray(value.count <= FEW * sd.count)


def estimate_difference(
    term: str,
    groups: tuple[str, ...],
    value: Totals,
    sd: Totals,
    windows: tuple[Window, Window],
    bounds: Interval,
) -> AverageEstimate:
    """Treated minus control mean, overall and in each group, with the parts of its variance.

    A group with too few rows to see in one of its arms has no estimate. Of an arm with too few
    rows only the bounds are known: its mean is their middle, give or take half their width.

    Parameters
    ----------
    value, sd : Totals
        Sums and the noise sds of their entries.
    windows : (Window, Window)
        Of the controls and of the treated.
    bounds : Interval
        Of the outcome.
    """
    mean, sampling, privacy = _means(value, sd, windows)
    lost = unseen(value, sd)
    mean[lost], sampling[lost], privacy[lost] = np.nan, np.inf, 0.0
    arms = lost[:, 0]
    mean[arms, 0], sampling[arms, 0], privacy[arms, 0] = bounds.mid, 0.0, 0.25 * bounds.width**2
    size = len(groups) + 1
    return AverageEstimate(
        (term,),
        groups,
        mean[1] - mean[0],
        np.diag(sampling.sum(axis=0)),
        np.diag(privacy.sum(axis=0)),
        np.full(size, np.hypot(windows[0].clipping, windows[1].clipping)),
        np.zeros(size),
        float(max(value.count[:, 0].sum(), 1.0)),
    )


def _means(
    value: Totals, sd: Totals, windows: tuple[Window, Window]
) -> tuple[Matrix, Matrix, Matrix]:
    """Means with their sampling and privacy variances, shape (2, 1 + G) each."""
    middle = np.array([[w.interval.mid] for w in windows])
    half = np.array([[0.5 * w.interval.width] for w in windows])
    rows = np.maximum(value.count, np.maximum(FEW * sd.count, 1.0))
    mean = np.clip(value.total / rows, -half, half)
    privacy = (sd.total**2 + (mean * sd.count) ** 2) / rows**2  # delta method
    square, square_sd, least = np.broadcast_to(half**2, rows.shape), np.zeros(rows.shape), 0.0
    if value.square is not None and sd.square is not None:
        square, square_sd = np.clip(value.square / rows, 0.0, half**2), sd.square / rows
        least = 0.1
    # raised by one sd of its own noise, as every variance here (see `average.raised`): that of the
    # square, and that of mean^2, which is also too large by the noise's variance
    slack = np.hypot(square_sd, 2 * np.abs(mean) * np.sqrt(privacy))
    variance = square + slack - np.maximum(mean**2 - privacy, 0.0)
    variance = np.maximum(variance, least * square)
    return mean + middle, variance / np.maximum(rows - 1, 1), privacy
