"""Least squares from one noisy matrix of moments: coefficients, their covariance, and clips.

The released matrix is the sum of w z z' for z = (v, t r), with whitened columns v, the residual r
of a first fit, and the row weight w = min(1, (C / ||z||)^2). Its noise is known because it was
chosen. The matrix without noise is positive definite, so the coefficients are those of random draws
from its distribution given the release, held to positive definite matrices. Every draw has
coefficients. A direction of the columns that noise hides therefore gives a wide interval, not a
missing one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cholesky
from scipy.special import stdtr
from scipy.stats import norm

from privcausal.features.basis import TINY
from privcausal.inference import averages, intervals, ranges
from privcausal.inference.regression import likelihoods, positive_part, signal_share
from privcausal.typing import Integers, Matrix, Vector

# -- the first fit ----------------------------------------------------------------------------


def whitening(gram: Matrix, noise_sd: float, rows: float) -> Matrix:
    """Symmetric W with W gram W = rows x 1 in the directions that noise leaves detectable (p, p).

    Directions hidden by noise are scaled by the largest curvature that the noise may hide. W is
    symmetric, so that each new column stays close to one old column.
    """
    values, vectors = np.linalg.eigh(gram / rows)
    least = averages.FEW_SDS * noise_sd * np.sqrt(len(gram)) / rows
    root = np.sqrt(np.maximum(values, max(least, 1e-12 * values[-1])))
    return np.asarray((vectors / root) @ vectors.T)


# -- the clip of rows -------------------------------------------------------------------------
#
# A row beyond C is scaled down as a whole, like a row of a multivariate t estimate (Lange, Little,
# and Taylor 1989). If z has elliptical contours, the coefficients stay the same at every C, because
# the weight depends on ||z|| only. Otherwise they move. By Cauchy-Schwarz, and if the variance of r
# does not depend on v, a mean of v r moves by at most sd(r) E[(1 - w)^2]^(1/2) along any direction.
# On public data sets it moved by a small share of this bound, except for outliers: their residuals
# grow with the fitted values. Outliers therefore count at their worst: all in one direction, with
# the usual ||v|| and, in the weight, the largest ||v|| of all rows. A mean of v r moves by at most
# E[(1 - w) ||v|| |r|; |r| > OUTLIER sd(r)], for any dependence of residuals and columns.

CLIP_BIAS = 0.15
"""Bias of a coefficient by clipped rows, as a share of its bound (Cauchy-Schwarz). Public data."""

OUTLIER = 4.0
"""Residual sds beyond which a residual is an outlier. With five, intervals are narrower, but cover
a tail that grows with a column in half of the fits only (5,000 rows, eps = 1)."""

CELLS_PER_OCTAVE = 4
"""Cells of the sizes of rows, from an eighth of the usual size without survey weights."""

MOST_OCTAVES = 40
"""Octaves of cells below the bound, if the usual size is 0."""

NORMAL_SIZES = norm.isf((np.arange(20) + 0.5) / 40)
"""Sizes of standard normal numbers, equally likely."""


def row_edges(usual: float, bound: float) -> Vector:
    """Upper borders of the cells of the rows' sizes, ascending to the bound, shape (K,)."""
    bound = max(bound, TINY)
    least = min(max(usual / 8, bound * 2.0**-MOST_OCTAVES), bound)
    cells = max(int(np.ceil(CELLS_PER_OCTAVE * np.log2(bound / least))), 1)
    return np.asarray(bound * 2.0 ** (-np.arange(cells, -1, -1) / CELLS_PER_OCTAVE))


class ResidualTail(NamedTuple):
    """Where residuals that noise hides may be.

    They are at most `top`. If most rows are at single values, detected residuals do not show the
    scale of the others, which then are `even` up to `top`. If they may be `anywhere`, all are at
    the end.
    """

    top: float
    even: bool
    anywhere: bool


@dataclass(frozen=True)
class RowClip:
    """Clip C of the rows, scale t of their residuals, and the effects of the clip.

    `sd` is the sd of r, from its sizes. `bias` is the allowance for the change of a mean of v r
    along any direction, in units of r. `kept` is the share of the mean squared size `mean` that
    remains.
    """

    at: float
    scale: float
    sd: float
    bias: float
    kept: float
    mean: float


def row_clip(
    columns: ranges.LookCounts,
    residuals: ranges.LookCounts,
    noise: float,
    usual: float,
    sd: float,
    count: float,
    tail: ResidualTail,
) -> RowClip:
    """The clip of least half-width, from noisy counts of ||v|| and |r|.

    Sizes of columns and residuals are assumed to be independent, and for outliers ordered alike.

    Parameters
    ----------
    noise : float
        Noise sd of a mean of products of z, per unit of C^2.
    usual, sd : float
        Root of the mean of ||v||^2, and a first value of the sd of r.
    tail : ResidualTail
        Where hidden residuals may be.
    """
    told = noise if columns.noise_sd else 0.0  # in tests without noise, nothing is clipped
    v, of_v = _shares(columns, usual, count, tail._replace(top=np.inf, even=False))
    r, of_r = _shares(residuals, sd, count, tail)
    share = np.outer(of_v, of_r / of_r.sum()).ravel()
    sd = math.sqrt(of_r @ r**2 / of_r.sum())
    far_v, far_r, of_far = _ordered_alike(v, of_v, r, of_r)
    outlier = np.where(far_r > OUTLIER * sd, of_far * far_r * np.minimum(far_v, usual), 0.0)
    found = []
    for scale in SCALES * usual / sd:
        square = np.add.outer(v**2, (scale * r) ** 2).ravel()
        middle = math.sqrt(_median(square, share))
        most = math.sqrt(square[share > 0].max()) / CELL_MIDDLE
        cuts = ranges.cuts_between(LEAST_CLIP * middle, most)
        weight = np.minimum(1.0, cuts[:, None] ** 2 / square)
        lost = 1 - np.minimum(1.0, cuts[:, None] ** 2 / (far_v**2 + (scale * far_r) ** 2))
        bias = CLIP_BIAS * sd * np.sqrt((1 - weight) ** 2 @ share) + lost @ outlier
        mean = float(square @ share)
        kept = weight @ (square * share) / mean
        # v has variances `kept` after the clip, and so the error of a coefficient grows
        error = np.hypot(told * cuts**2 / scale, sd / math.sqrt(count))
        width = intervals.covering(intervals.USUAL_Z, bias, error) / kept
        i = int(np.argmin(width))
        clip = RowClip(cuts[i], scale, sd, float(bias[i]), float(kept[i]), mean)
        found.append((float(width[i]), clip))
    return min(found, key=lambda pair: pair[0])[1]


def _ordered_alike(
    one: Vector, of_one: Vector, two: Vector, of_two: Vector
) -> tuple[Vector, Vector, Vector]:
    """Pairs of sizes with their shares, if the larger sizes of `one` meet the larger of `two`."""
    ends = np.cumsum(of_one) / of_one.sum(), np.cumsum(of_two) / of_two.sum()
    at = np.unique(np.r_[ends])
    i, j = (np.searchsorted(own[:-1], at) for own in ends)
    return one[i], two[j], np.diff(at, prepend=0.0)


def _median(values: Vector, share: Vector) -> float:
    order = np.argsort(values)
    return float(values[order][np.searchsorted(np.cumsum(share[order]), 0.5 * share.sum())])


def outliers_matter(residuals: ranges.LookCounts) -> bool:
    """Whether outliers are more than `LONG_SHARE` of the squares of all detected residuals."""
    seen = ranges.visible_cells(residuals.value, residuals.noise_sd, 1)
    size, rows = residuals.ends[:-1][seen], residuals.value[seen]
    far = size**2 * rows.sum() > OUTLIER**2 * float(rows @ size**2)
    return bool(rows[far] @ size[far] ** 2 > LONG_SHARE * rows @ size**2)


LONG_SHARE = 0.1
"""Share of the squared residuals above which outliers raise an alert. By hand."""

SCALES = 0.4 * 2.0 ** (-0.5 * np.arange(9))
"""Values of t that are tried, times sd(r) over the usual norm of v. Public data."""

LEAST_CLIP = 0.7
"""Least clip, relative to the median size."""


def _shares(
    sizes: ranges.LookCounts, usual: float, rows: float, tail: ResidualTail
) -> tuple[Vector, Vector]:
    """Sizes and the shares of the rows with them: detected cells, then a hidden tail.

    If noise hides all rows, the sizes follow a normal distribution with the sd `usual`.
    """
    counts, noise_sd, ends = sizes.value, sizes.noise_sd, sizes.ends
    seen = np.flatnonzero(ranges.visible_cells(counts, noise_sd, 1))
    if not len(seen):
        return usual * NORMAL_SIZES, np.full(len(NORMAL_SIZES), 1 / len(NORMAL_SIZES))
    last = int(seen[-1]) + 1
    held, beyond = np.maximum(counts[:last], 0.0), counts[last:]
    held *= min(1.0, rows / max(held.sum(), 1.0))
    if tail.anywhere or not noise_sd or not len(beyond):
        hidden = np.r_[np.zeros(len(beyond) - 1), beyond.sum()] if len(beyond) else beyond
    elif tail.even:
        widths = np.clip(np.diff(np.minimum(ends[last:], tail.top)), 0.0, None)
        mass = max(float(beyond.sum()), 0.0) + noise_sd * math.sqrt(len(beyond))
        hidden = widths * min(mass, rows) / max(float(widths.sum()), TINY)
    else:
        hidden = _hidden_tail(sizes, held, tail.top)
    return CELL_MIDDLE * ends[1:], np.r_[held, np.maximum(hidden, 0.0)] / rows


def _hidden_tail(sizes: ranges.LookCounts, held: Vector, top: float) -> Vector:
    """Mean rows of the cells after `held`, shape (K - len(held),).

    Sizes beyond the quantile `START_AT` follow Student's t up to `top`, with unknown scale and
    degrees of freedom. Counts of all these cells are the evidence, also those that noise hides.
    """
    ends, last = sizes.ends, len(held)
    first = int(np.searchsorted(np.cumsum(held), START_AT * held.sum()))
    scales = ends[first + 1] * TAIL_SCALES
    freedom, spread = (one.ravel()[:, None] for one in np.meshgrid(FREEDOM, scales, indexing="ij"))
    below = stdtr(freedom, ends / spread)
    below[:, ends >= min(top, ends[-1])] = 1.0
    cells, counts = np.diff(below[:, first:], axis=1), sizes.value[first:]
    cells *= counts.sum() / np.maximum(cells.sum(axis=1, keepdims=True), TINY)
    sd = np.sqrt(sizes.noise_sd**2 + np.maximum(counts, 1.0))
    prior = np.repeat(np.log(0.5) * np.arange(len(FREEDOM)), len(scales))
    chance = likelihoods(counts / sd, 1.0, cells / sd, prior)
    return np.asarray(np.maximum(chance @ cells[:, last - first :] / chance.sum(), 0.0))


FREEDOM = (100.0, 12.0, 6.0, 4.0, 3.0, 2.0, 1.5)
"""Degrees of freedom that a tail may have, each half as likely as the last. By hand. 1.5 has no
variance: with a heavier tail, an interval would not hold without privacy either."""

TAIL_SCALES = 2.0 ** np.arange(1, -2, -0.5)
"""Scales of a tail, relative to its start."""

START_AT = 0.75
"""Quantile from which sizes follow Student's t. Public data."""

CELL_MIDDLE = 2 ** (-0.5 / CELLS_PER_OCTAVE)
"""Middle of a cell, relative to its upper border."""

# -- the second fit ---------------------------------------------------------------------------

MOMENTS_SD = 0.5
"""Prior sd of a moment of whitened columns and residuals, relative to their sds. By hand."""

DRAWS, BURN = 400, 50
"""Draws of the moments, and draws dropped before them: quantiles to within a few percent."""

_PUBLIC_SEED = 20_261_125


@lru_cache(maxsize=8)
def _normals(size: int) -> tuple[Matrix, Matrix]:
    """Public random numbers of the draws. They do not depend on the data."""
    rng = np.random.default_rng(_PUBLIC_SEED)
    normals = rng.standard_normal((DRAWS + BURN, size))
    return normals, rng.uniform(size=(DRAWS + BURN, 2 + SHRINKS))


SHRINKS = 40
"""Most proposals of a draw; the range of proposals shrinks towards the last draw."""


def indicator_equations(lift: Matrix, factors: Integers) -> Matrix | None:
    """Equations E m = 0 for the moments m of (v, r), upper triangle, shape (equations, m).

    v = lift'x for x = (1, columns). An indicator equals its square, and the product of two
    indicators of one factor is 0. Any weighted sum over rows satisfies these equations, so they are
    public. None without indicators, or if x does not follow from v.

    Parameters
    ----------
    factors : Integers
        Number of the factor of an indicator, and -1 for any other x, shape (k,).
    """
    k, p = lift.shape
    if k != p or (factors < 0).all() or np.linalg.matrix_rank(lift) < k:
        return None
    of = np.r_[np.linalg.inv(lift), np.zeros((1, k))]  # x_i = v'g_i; r has no part in it
    upper, found = np.triu_indices(p + 1), []
    for i in np.flatnonzero(factors >= 0):
        others = np.flatnonzero(factors[:i] == factors[i])
        for other in (of[:, i] - of[:, 0], *of[:, others].T):
            square = np.outer(of[:, i], other)
            square += np.tril(square, -1).T
            found.append(square[upper] / np.linalg.norm(square[upper]))
    return np.array(found[:MOST_EQUATIONS])


MOST_EQUATIONS = 2_000
"""Most equations that are used, for speed. A factor with 63 levels has 1,953."""


def _given(equations: Matrix | None, sd: Matrix) -> Callable[[Matrix], Matrix]:
    """Map from symmetric normal matrices with sds `sd` to their values given the equations."""
    if equations is None:
        return lambda matrices: matrices
    upper = np.triu_indices(len(sd))
    own = sd[upper]
    span = np.linalg.qr((equations * own).T)[0]

    def given(matrices: Matrix) -> Matrix:
        out, unit = np.empty_like(matrices), matrices[..., *upper] / own
        out[..., *upper] = out[..., upper[1], upper[0]] = (unit - unit @ span @ span.T) * own
        return out

    return given


def positive_draws(mean: Matrix, sd: Matrix, equations: Matrix | None = None) -> Matrix:
    """Draws of a symmetric normal matrix, held to positive definite ones, shape (DRAWS, q, q).

    Entries are independent with these means and sds, given the equations. The density is multiplied
    by the determinant of the matrix's correlations, which is zero at its border. Elliptical slice
    sampling (Murray, Adams, and MacKay 2010) needs no tuning.
    """
    if not sd.any():
        return mean[None]
    size = len(mean)
    upper = np.triu_indices(size)
    given = _given(equations, sd)
    mean = start = given(mean)
    for _ in range(ALTERNATIONS):
        values, vectors = np.linalg.eigh(start)
        if values[0] >= 0.5 * START * values[-1]:
            break
        start = given((vectors * np.maximum(values, START * float(values[-1]))) @ vectors.T)
    now, here = start - mean, _log_volume(start)
    normals, uniforms = _normals(len(upper[0]))
    out = np.empty((DRAWS, size, size))
    others = np.zeros((len(normals), size, size))
    others[:, upper[0], upper[1]] = others[:, upper[1], upper[0]] = normals
    others = given(others * sd)
    for step, (other, uniform) in enumerate(zip(others, uniforms, strict=True)):
        level = here + np.log(uniform[0])
        low, high = -2 * np.pi * uniform[1], 2 * np.pi * (1 - uniform[1])
        angle = 0.0
        for share in uniform[2:]:
            angle = low + (high - low) * share
            tried = now * np.cos(angle) + other * np.sin(angle)
            there = _log_volume(mean + tried)
            if there > level:
                now, here = tried, there
                break
            low, high = (angle, high) if angle < 0 else (low, angle)
        if step >= BURN:
            out[step - BURN] = mean + now
    return out


ALTERNATIONS = 100
"""Most alternations between matrices that satisfy the equations and positive definite ones."""

START = 0.02
"""Least eigenvalue of the first draw, relative to the largest."""


def _log_volume(matrix: Matrix) -> float:
    """Log determinant of the correlations of a matrix; -inf if it is not positive definite."""
    diagonal = matrix.diagonal()
    if diagonal.min() <= 0:
        return -np.inf
    root = np.sqrt(diagonal)
    try:
        lower = cholesky(matrix / np.outer(root, root), lower=True, check_finite=False)
    except LinAlgError:
        return -np.inf
    return 2 * float(np.log(lower.diagonal()).sum())


@dataclass(frozen=True, eq=False)
class Released:
    """Mean of w z z', shape (p + 1, p + 1), with the noise sd of an entry off the diagonal.

    `usual` (p + 1,) are the sds of z that whitening aims at, and `clip` is the clip of the rows.
    `meat` is the mean of (w r)^2 v v' after the second fit (None: not released), with noise sd
    `meat_sd`. For HC1 both have the factor n / (n - p). `equations` hold for the moments
    (`indicator_equations`).
    """

    moments: Matrix
    noise_sd: float
    usual: Vector
    clip: RowClip
    rows: float
    meat: Matrix | None = None
    meat_sd: float = 0.0
    equations: Matrix | None = None


@dataclass(frozen=True, eq=False)
class Rest:
    """The second fit: mean and covariance of the coefficients that it adds, shape (p,).

    `inverse` is the mean inverse of the mean w v v', and `square` the mean squared residual.
    """

    mean: Vector
    cov: Matrix
    inverse: Matrix
    square: float


def second_fit(found: Released) -> Rest:
    """Coefficients of r on v over draws of the moments.

    The prior of a moment is normal with a wide sd. Its mean is the value for perfect whitening and
    a perfect first fit. It matters only if the noise is as large.
    """
    own, clip, t = found.usual, found.clip, found.clip.scale
    left = clip.kept * clip.mean / float(own @ own)  # mean square of z, relative to the usual
    wide = left * MOMENTS_SD * np.outer(own, own) * np.sqrt(1 + np.eye(len(own)))
    noise = found.noise_sd * np.sqrt(1 + np.eye(len(own)))
    keep = wide**2 / (wide**2 + noise**2)
    mean = keep * found.moments + (1 - keep) * left * np.diag(own**2)
    draws = positive_draws(mean, np.sqrt(keep) * noise, found.equations)
    gram, cross = draws[:, :-1, :-1], draws[:, :-1, -1]
    inverse = np.linalg.pinv(gram, rcond=1e-12, hermitian=True)
    slopes = np.einsum("kij,kj->ki", inverse, cross)
    rest = draws[:, -1, -1] - np.einsum("ki,ki->k", slopes, cross)
    centre = slopes.mean(axis=0)
    cov = (slopes - centre).T @ (slopes - centre) / len(slopes)
    square = float(rest.mean()) / clip.kept
    return Rest(centre / t, cov / t**2, inverse.mean(axis=0), square / t**2)


def estimate_coefficients(
    names: tuple[str, ...],
    first: Vector,
    lift: Matrix,
    found: Released,
    rest: Rest,
    bias: float,
) -> averages.AverageEstimate:
    """Coefficients `first` + `lift` delta, with delta from the second fit.

    Under homoskedasticity, residuals have the variance s2 = sum r^2 / (n - p), and G^-1 s2 is the
    sampling covariance. With `Released.meat` the sampling covariance is G^-1 meat G^-1.

    Parameters
    ----------
    first : Vector
        Coefficients of the first fit, shape (k,), in natural units.
    lift : Matrix
        Map from whitened to natural coefficients, shape (k, p).
    bias : float
        Bound of the change of a mean of v r along any direction by clipping.
    """
    n, p = found.rows, len(rest.mean)
    by, gram = lift @ rest.inverse, np.asarray(np.linalg.pinv(rest.inverse, hermitian=True))
    meat: Matrix = rest.square * n / max(n - p, 1.0) * gram
    if found.meat is not None:
        meat = _shrunken_meat(found, meat)
    sampling, moved = by @ meat @ by.T / n, bias * by
    estimate = first + lift @ rest.mean
    return averages.AverageEstimate(
        names, (), estimate, sampling, lift @ rest.cov @ lift.T,
        np.linalg.norm(moved, axis=1), np.zeros(len(names)), n, moved=moved,
        r2=_explained(estimate, lift, gram, rest.square),
    )  # fmt: skip


def _explained(estimate: Vector, lift: Matrix, gram: Matrix, square: float) -> float:
    """R squared: v = lift'x for the natural columns x, the first of which is 1."""
    back = np.linalg.pinv(lift)
    second = back.T @ gram @ back  # of x x', up to a factor
    square, second = square / second[0, 0], second / second[0, 0]
    fitted = float(estimate @ second @ estimate) - float(second[0] @ estimate) ** 2
    return max(fitted, 0.0) / max(max(fitted, 0.0) + square, TINY)


def _shrunken_meat(found: Released, model: Matrix) -> Matrix:
    """The mean of r^2 v v', shrunken towards the homoskedastic model, and raised by one noise sd.

    The difference between the meat and this model is multiplied by the share of its mean square
    that noise does not explain. The root of this share times the noise remains in any direction
    (its posterior sd).
    """
    assert found.meat is not None
    gap, sd = found.meat - model, found.meat_sd
    noise = np.full_like(gap, sd**2) + np.diag(np.full(len(gap), sd**2))
    upper = np.triu_indices(len(gap))
    keep = signal_share(gap[upper], float(noise[upper].mean()))
    raised_by = float(np.sqrt(2 * keep)) * sd
    return positive_part(model + keep * gap) + raised_by * np.eye(len(gap))
