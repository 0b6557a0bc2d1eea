"""Sizes of scores and residuals from noisy counts, and what may lie beyond the detected ones.

Up to a border x0, sizes are as counted. Beyond, they fall as the Weibull distributions that fit the
counts: P(|r| > x) = N exp((x0 / s)^g - (x / s)^g), up to the last border. The posterior is a grid
over g and s, with N fitted. It allows for tails from normal ones to much heavier than exponential
ones. The rows that a threshold clips are therefore bounded by an allowance, not by a proof."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm

from privcausal.features.basis import TINY
from privcausal.inference import ranges
from privcausal.request.schema import Interval, least_width
from privcausal.typing import Matrix, Vector

SHAPES = np.r_[np.linspace(0.1, 0.5, 7), np.linspace(0.6, 2.2, 9)]
"""Shapes of the Weibull distributions that a tail may have: from stretched to normal."""

SCALES = 60
"""Scales that are tried, from a thousandth of the first border to the last."""

START_SDS, LEAST_START = 12.0, 3
"""The tail starts at the last border with more rows beyond it than this many noise sds, and after
this many cells at the earliest."""

MISFIT = 0.2
"""Sd of the count of a cell around the Weibull distribution, relative to the count. Public data."""

TAIL_SDS, LONG_TAIL_SDS = 0.5, 1.5
"""Posterior sds that are added to the mean excess beyond a threshold. The second is for a long
tail, where the distributions that fit the detected sizes underestimate it. Public data."""

LONG_FROM = 0.2
"""Share of the squares beyond `OUTLIER` root mean squares in a long tail. By hand."""

OUTLIER = 4.0
"""Root mean squares beyond which a size is an outlier."""

SIZE_SD, SPARSE_SIZE_SD = 0.7, 2.5
"""Prior sd of the log mean square around half the outcome's variance. Tails that no count shows are
then as far out as that variance lets them be. If most outcomes have one value, the variance is
mostly of the others, few of which are detected: with 0.7, the set affairs is covered in 33% of 12
fits in place of 83%. With 0.5, widths are 8% smaller than with 1, and coverage is 88% in place of
91%. Building half."""


SHOWN_SIZE_SD = 0.3
"""As `SIZE_SD`, around the mean square of the detected outcomes. With 0.7 and the allowance of a
long tail, intervals of trials of 1,000 and 2,000 rows are 25% wider and cover as often. Without any
allowance, half of the clipping bias of LaLonde's trial is left at eps = 4. Building half."""

COMMON = 0.99
"""Prior probability that the arms have one tail. With 0.5, widths at 1,000 rows are 19% larger.
Arms that differ by a factor of three are told apart all the same. Building half."""

LEAST_COUNT_SDS = 3.0
"""The rows of an arm are at least this many noise sds of their number."""


def held_rows(counts: Vector | Matrix, noise_sd: float | Vector | Matrix) -> float:
    """The number of rows in these cells, at least `LEAST_COUNT_SDS` noise sds and 1."""
    sd = float(np.linalg.norm(np.broadcast_to(noise_sd, counts.shape)))
    return max(float(counts.sum()), LEAST_COUNT_SDS * sd, 1.0)


class SizeLaw(NamedTuple):
    """Means over all rows of (size - x)+ and of min(size, x)^2 at each x of `at`, by arm: (A, X).

    `over` includes an allowance. `far` is the share of the squares beyond `OUTLIER` root mean
    squares.
    """

    at: Vector
    over: Matrix
    kept: Matrix

    @property
    def far(self) -> float:
        squares = self.kept.sum(axis=0)
        total = float(squares[-1])
        return 1 - float(np.interp(OUTLIER * total**0.5, self.at, squares)) / max(total, TINY)


def size_law(
    counts: Matrix,
    noise_sd: float | Matrix,
    ends: Vector,
    count: float,
    *,
    sparse: bool = False,
    anywhere: bool = False,
    usual: float = 0.0,
    shown: bool = False,
    start: int | None = None,
) -> SizeLaw:
    """Sizes of the rows in A arms, which may have the same tail or different ones.

    Parameters
    ----------
    counts : Matrix
        Noisy counts in the cells between `ends`, shapes (A, K) and (K + 1,); the first end is 0.
    noise_sd : float or Matrix
        Of all counts, or of each.
    count : float
        (Noisy) number of rows, in these arms.
    sparse : bool
        Whether most outcomes have one value. The tail then starts one cell later, where few rows
        are left: the sizes of these rows do not show the sizes of the others.
    anywhere : bool
        Whether hidden rows may lie at the end.
    usual : float
        The usual mean square of the sizes in these arms; 0 if it is unknown.
    shown : bool
        Whether `usual` is the mean square of detected outcomes. The tail is then not a long one:
        clipping biases both arms, and intervals allow for the worst pair of signs.
    start : int, optional
        Number of cells that are taken as counted. By default it follows from the counts. If it is
        given, few rows show the tail, and the allowance is that of a long tail.
    """
    at = np.r_[0.0, np.geomspace(ends[1] / 5, ends[-1], 300)]
    middle, share = (ends[1:] + ends[:-1]) / 2, np.maximum(counts, 0.0) / count
    sd = np.broadcast_to(noise_sd, counts.shape)
    if not sd.any():
        over = share @ np.maximum(ends[1:, None] - at, 0.0)
        return SizeLaw(at, over, share @ np.minimum(middle[:, None], at) ** 2)
    few = start is not None
    if start is None:
        # Cells are taken as counted while the rows beyond are distinguishable from noise.
        cells = len(counts.T)
        beyond, variance = (np.cumsum(x.sum(axis=0)[::-1])[::-1] for x in (counts, sd**2))
        least = START_SDS * np.sqrt(variance)
        start = min(LEAST_START, cells - 1)
        while start + 3 < cells and beyond[start + 1] > least[start + 1]:
            start += 1
        start += sparse and start + 2 < cells
    low, tail = share[:, :start], counts[:, start:]
    if anywhere:
        margin = norm.isf(ranges.ERROR / len(tail)) * np.linalg.norm(sd[:, start:], axis=1)
        rows = np.clip((tail.sum(axis=1) + margin) / count, 0.0, 1.0)[:, None]
        over, square = rows * np.maximum(ends[-1] - at, 0.0), rows * np.minimum(ends[-1], at) ** 2
        spread = np.zeros_like(over)
    else:
        near = low @ middle[:start] ** 2
        by_arm = np.array([held_rows(c, s) for c, s in zip(counts, sd, strict=True)])
        prior = usual, SHOWN_SIZE_SD if shown else SPARSE_SIZE_SD if sparse else SIZE_SD
        rows, x, curves = _weibull(
            tail, sd[:, start:], ends[start:], count, near, by_arm / by_arm.sum(), prior
        )
        over, spread, square = (np.stack([np.interp(at, x, c) for c in curve]) for curve in curves)
        over += rows * np.maximum(ends[start] - at, 0.0)
        square += rows * np.minimum(at, ends[start]) ** 2
    over += low @ np.maximum(middle[:start, None] - at, 0.0)
    low = low * max(1 - float(rows.sum()), 0.0) / max(float(low.sum()), TINY)
    law = SizeLaw(at, over, square + low @ np.minimum(middle[:start, None], at) ** 2)
    long = 0.0 if shown else 1.0 if few else min(law.far / LONG_FROM, 1.0)
    return law._replace(over=over + (TAIL_SDS + long * (LONG_TAIL_SDS - TAIL_SDS)) * spread)


def _mixed(common: Vector, by_arm: Matrix) -> Matrix:
    """Probabilities of laws (G, A), from log likelihoods of a common law (G,) and of each arm's."""

    def posterior(log: Matrix) -> tuple[Matrix, Vector]:
        most = log.max(axis=0)
        if not np.isfinite(most).all():
            return np.full(log.shape, 1 / len(log)), np.zeros(log.shape[1])
        chance = np.exp(log - most)
        return chance / chance.sum(axis=0), most + np.log(chance.mean(axis=0))

    (joint, one_log), (separate, several_log) = posterior(common[:, None]), posterior(by_arm)
    share = float(expit(logit(COMMON) + one_log.sum() - several_log.sum()))
    return share * joint + (1 - share) * separate


def _weibull(
    counts: Matrix,
    sd: Matrix,
    ends: Vector,
    count: float,
    near: Vector,
    shares: Vector,
    usual: tuple[float, float],
) -> tuple[Matrix, Vector, tuple[Matrix, Matrix, Matrix]]:
    """Shares of rows beyond the first border (A, 1), and curves at x (X,), each of shape (A, X).

    The curves are the mean excess of these rows, its posterior sd, and their mean squares. `near`
    is the mean over all rows of the squares up to the first border, and `shares` are the rows, by
    arm. `usual` are the usual mean square, or 0, and the sd of its log.
    """
    scales = np.geomspace(1e-3 * ends[0], ends[-1], SCALES)
    shape, scale = (grid.ravel()[:, None] for grid in np.meshgrid(SHAPES, scales))
    first = (ends[0] / scale) ** shape

    # Cells without noise are beyond the bounds of their row, where its distribution is truncated.
    inside = sd > 0
    lasts = ends[np.where(inside, np.arange(1, len(ends)), 0).max(axis=1)]  # (A,)

    def survival(x: Vector) -> Vector:
        """P(r > x) in each row, shape (G, A, X)."""
        upto = np.exp(np.clip(first - (np.r_[x, lasts] / scale) ** shape, -500.0, 0.0))
        within, beyond = upto[:, None, : len(x)], upto[:, len(x) :, None]
        out = np.clip((within - beyond) / np.maximum(1 - beyond, TINY), 0.0, 1.0)
        return np.asarray(np.where(x < lasts[:, None], out, 0.0))

    upto = survival(ends)
    law = -np.diff(upto, axis=2)  # (G, A, K)
    rows = np.tile(np.maximum(counts.sum(axis=1), 1.0), (len(law), 1))
    for _ in range(3):
        mean = rows[..., None] * law
        variance = np.where(inside, sd**2, 1.0) + mean + (MISFIT * mean) ** 2
        precision = np.maximum((law**2 / variance).sum(axis=-1), TINY)
        rows = np.clip((counts * law / variance).sum(axis=-1) / precision, 1.0, count)
    nowhere = ~inside.any(axis=1)
    rows[:, nowhere], precision[:, nowhere] = 0.0, np.inf
    gap = inside * (counts - rows[..., None] * law)
    log = -0.5 * (gap**2 / variance + np.log(variance)).sum(axis=2)
    falls = np.exp(np.clip(first - (ends[1] / scale) ** shape, -500.0, 0.0))[:, 0]
    log[(falls > 1 - 1e-4) | (falls < 1e-8)] = -np.inf  # not told apart from a point
    x = np.geomspace(ends[0], ends[-1], 160)
    curve = survival(x)
    pieces = (curve[..., 1:] + curve[..., :-1]) / 2 * np.diff(x)
    none = np.zeros((*rows.shape, 1))
    over = np.concatenate([np.cumsum(pieces[..., ::-1], axis=2)[..., ::-1], none], axis=2)
    square = np.concatenate([none, np.cumsum(pieces * (x[1:] + x[:-1]), axis=2)], axis=2)
    prior, by_arm = np.zeros(len(log)), np.zeros_like(log)
    if usual[0]:
        mean2 = rows * (ends[0] ** 2 + square[..., -1]) / count + near
        prior = -0.5 * (np.log(mean2.sum(axis=1) / usual[0]) / usual[1]) ** 2
        some = ~nowhere  # an empty side cannot compare one law with several
        by_arm[:, some] = -0.5 * (np.log(mean2[:, some] / shares[some] / usual[0]) / usual[1]) ** 2
    chance = _mixed(log.sum(axis=1) + prior, log + by_arm)
    mean, squares = (np.einsum("ga,gax->ax", chance * rows, curve) for curve in (over, square))
    spread = np.einsum("ga,gax->ax", chance * (rows**2 + 1 / precision), over**2) - mean**2
    curves = mean / count, np.sqrt(np.maximum(spread, 0.0)) / count, squares / count
    return (chance * rows).sum(axis=0)[:, None] / count, x, curves


# -- outcomes -------------------------------------------------------------------------------------

HIDDEN_MORE = 1e-9
"""Chance that more rows hide beyond the core than lie within it. With 1e-6, intervals of trials of
1,000 rows are 11% narrower and cover 91% in place of 93%. Building half."""


class OutcomeLaw(NamedTuple):
    """Distances of the outcomes from the middle of their core, by side (low, high) and arm."""

    core: ranges.Core
    ends: Vector  # Of the cells of Y - lo, ascending from 0 to the width of the bounds, (K + 1,)
    held: Matrix  # Counts of the detected cells, by arm, shape (A, K)
    # `reach`, `lasts`: of the core and of the bounds, from the middle, by side, shape (2,)
    reach: Vector
    lasts: Vector
    units: Vector  # Of the sizes in `sizes`, by side, shape (2,)
    sizes: SizeLaw  # By side, then by arm, over the rows of all arms
    arms: Vector  # (Noisy) numbers of detected rows, shape (A,)

    @property
    def variance(self) -> float:
        """Variance of the outcomes of all arms, with the tails that the counts allow for."""
        sizes, squares = self.sizes.over[:, 0].reshape(2, -1), self.sizes.kept[:, -1].reshape(2, -1)
        low, high = self.units * sizes.sum(axis=1)
        return max(float(self.units**2 @ squares.sum(axis=1) - (high - low) ** 2), 0.0)


def outcome_law(
    counts: Matrix, noise_sd: float, bounds: Interval, *, anywhere: bool = False
) -> OutcomeLaw | None:
    """The law of the outcomes, from noisy counts by arm in the cells of `ranges.heights`.

    There is none if only the ends and zero are distinguishable from noise (an outcome of two
    values, rare events), because the scale is then unknown. The core is that of `Core.stretched`,
    because few rows may show one mode of several, or the middle of a flat distribution. Distances
    beyond it, on both sides and in each arm, are sets of sizes as of `size_law`. If many rows
    may be outside the core, the law is that of the sizes beyond it alone. A law that fits the core,
    too, would have no tail if the core is one value that most rows have.
    """
    if bounds.width * 2.0**-ranges.OCTAVES <= least_width(bounds.lo, bounds.hi):
        return None  # too narrow to divide into intervals
    ends = np.r_[0.0, ranges.heights(bounds), bounds.width]  # of cells k: ends[k] to ends[k + 1]
    pooled, pooled_sd = counts.sum(axis=0), float(np.sqrt(len(counts))) * noise_sd
    looks = [(arm, noise_sd) for arm in counts] + [(pooled, pooled_sd)] * (len(counts) > 1)
    seen = np.logical_or.reduce([ranges.visible_cells(c, s, len(looks)) for c, s in looks])
    core = ranges.Core.of(seen, pooled, ends)
    if core is None:
        return None
    held = np.where(seen, np.maximum(counts, 0.0), 0.0)
    core = core.stretched(pooled, pooled_sd, ends, HIDDEN_MORE)
    arms = np.array([max(float(arm.sum()), noise_sd, 1.0) for arm in counts[:, seen]])
    rows, away = float(arms.sum()), 0.5 * (ends[1:] + ends[:-1]) - core.middle
    lasts = np.array([core.middle, bounds.width - core.middle])
    reach = np.maximum([core.below, core.above], ranges.POINT * bounds.width)
    outside = (ends[1:] <= core.middle - core.below) | (ends[:-1] >= core.middle + core.above)
    many, units = ranges.many(pooled[outside], pooled_sd, rows), np.ones(2)
    sizes = ranges.heights(Interval(0.0, float(lasts.max())))
    if many:  # sizes in units of the reach of their side
        units, room = reach, lasts > reach * (1 + 1e-9)
        last = float((lasts / reach)[room].max(initial=1.0))
        step = bounds.width / ranges.PARTS / float(reach[room].min(initial=bounds.width))
        # cells from 0 to the core's end, 1, and in half octaves to `last` or beyond; these cells
        # have at least the width of a counted cell
        borders = [1.0]
        while borders[-1] < last or len(borders) <= LEAST_CELLS:
            borders.append(max(ranges.MERGE_RATIO * borders[-1], borders[-1] + step))
        sizes = np.concatenate([np.arange(CORE_CELLS) / CORE_CELLS, borders])
    inside = (
        _shared(np.r_[-np.inf, core.middle - units[0] * sizes[-2::-1]], ends)[::-1],
        _shared(np.r_[core.middle + units[1] * sizes[:-1], np.inf], ends),
    )
    noise_sds = np.stack([np.sqrt((share**2).sum(axis=1)) for share in inside])
    square = held.sum(axis=0) @ (away / np.where(away < 0, *units)) ** 2
    law = size_law(
        np.concatenate([counts @ share.T for share in inside]),
        noise_sd * np.repeat(noise_sds, len(counts), axis=0),
        sizes,
        rows,
        usual=float(square) / max(float(held.sum()), 1.0),
        anywhere=anywhere,
        shown=int(seen.sum()) >= SCALE_CELLS,
        start=CORE_CELLS if many else None,
    )
    return OutcomeLaw(core, ends, held, reach, lasts, units, law, arms)


SCALE_CELLS = 4
"""Detected cells that show the scale of an outcome. Fewer may hold one value of most rows."""

CORE_CELLS, LEAST_CELLS = 8, 4
"""Cells of the core, which are taken as counted, and the least number of cells beyond."""


def _shared(borders: Vector, ends: Vector) -> Matrix:
    """The share of each cell between `ends` that lies between two borders, shape (bins, cells).

    A cell may be a point.
    """
    low, high, width = borders[:-1, None], borders[1:, None], np.diff(ends)
    inside = np.minimum(high, ends[1:]) - np.maximum(low, ends[:-1])
    share = np.clip(inside / np.where(width > 0, width, 1.0), 0.0, 1.0)
    return np.where(width > 0, share, (low <= ends[:-1]) & (ends[:-1] < high))
