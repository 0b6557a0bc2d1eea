"""Least squares in two steps from noisy moments: fits, clipping, and intervals.

The first step gives a rough fit and whitens the columns. Vectors u have the usual squared size Q,
and residuals r are in units of their first scale. The second step releases the moments of rows
(w u, t e): w keeps ||w u|| at most at L, L^2 = h Q, and e is w r, clipped so that the whole row has
norm at most C, C^2 = (2 h - 1) Q. Its coefficients delta correct the first fit. Noise in the
moments of u therefore multiplies small residuals.

Clipping biases a coefficient. The bias is bounded under two conditions. Beyond the last size that
is detected, residuals fall as the Weibull distributions that fit the detected sizes. Among rows
that are clipped for their leverage, residuals are on average at most `LEVERAGE_GAP` from the line.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from privcausal.features.basis import TINY
from privcausal.inference import averages, ranges, tails
from privcausal.inference.averages import USUAL_Z, covering, folded_quantile
from privcausal.inference.population import GramEstimate
from privcausal.inference.regression import likelihoods
from privcausal.request.terms import ResultTerm
from privcausal.typing import Matrix, Vector

# -- the first step ---------------------------------------------------------------------------

LEVER, REACH = 2.0, 2.5
"""Limits of the first step: squared leverage in units of Q, and the outcome in sds."""

LEAST_SQUARE = 0.15
"""Least variance of a column after the first step, relative to its histogram's."""

LEAST_LEFT = 0.3
"""Least share of the outcome's variance that the first fit leaves. A guard."""


@dataclass(frozen=True, eq=False)
class RowMoments:
    """Noisy mean of z z' for z = (u, t e), shape (p + 1, p + 1), and its noise sd off the diagonal.

    `scale` is t.
    """

    value: Matrix
    sd: float
    scale: float

    @property
    def gram(self) -> Matrix:
        return self.value[:-1, :-1]

    @property
    def cross(self) -> Vector:
        return np.asarray(self.value[:-1, -1] / self.scale)


def normal_outcome(
    counts: Vector, noise_sd: float, ends: Vector, count: float
) -> tuple[float, float]:
    """Posterior mean of the mean and the sd of a normal outcome, from noisy counts of cells."""
    width = float(ends[-1] - ends[0])
    middle = np.repeat(np.linspace(ends[0], ends[-1], ranges.CENTRES), ranges.SPREADS)
    spread = np.tile(width * np.geomspace(1 / 64, 0.5, ranges.SPREADS), ranges.CENTRES)
    below = ndtr((ends - middle[:, None]) / spread[:, None])
    below[:, 0], below[:, -1] = 0.0, 1.0
    chance = likelihoods(counts, noise_sd, count * np.diff(below, axis=1))
    chance /= chance.sum()
    return float(chance @ middle), float(chance @ spread)


@dataclass(frozen=True, eq=False)
class FirstFit:
    """Coefficients of the features (p,), a map to whitened ones (p, p), and a residual scale.

    `usual` are the sizes of the whitened features u, shape (p,).
    """

    coef: Vector
    turn: Matrix
    usual: Vector
    scale: float

    def along(self, by: Matrix) -> Vector:
        """Cosines of the rows of `by`, shape (k, p), with the direction of the fit."""
        slopes = np.zeros(len(self.coef))
        slopes[1:] = np.linalg.solve(self.turn[1:, 1:].T, self.coef[1:])
        size = np.linalg.norm(by, axis=1) * float(np.linalg.norm(slopes))
        return np.asarray(np.clip(by @ slopes / np.maximum(size, TINY), -1.0, 1.0))


def first_fit(
    found: RowMoments, shrunk: GramEstimate, usual: Vector, spread: float, focus: int | None = None
) -> FirstFit:
    """Ridge regression on centered features, by the share of the slopes that is not noise.

    The feature `focus` is whitened last: its u is its part that the others do not explain, with a
    larger size.

    Parameters
    ----------
    shrunk : GramEstimate
        The moments of the features, shrunken towards those of the marginals, per row.
    usual : Vector
        Usual size of each feature, shape (p,).
    spread : float
        Sd of the outcome.
    """
    # Features have the size 1 and the outcome has its sd, so larger moments are noise. If it were
    # left, products of noise would be taken for slopes.
    gram = shrunk.model + (shrunk.value - shrunk.model) / (1 + shrunk.sd**2)
    gap = float(found.gram[0, 0] - shrunk.model[0, 0])
    rows = float(shrunk.model[0, 0]) + gap / (1 + 2 * (found.sd / LEVEL_SD) ** 2)
    centre, level = gram[0, 1:] / rows, float(found.cross[0]) / rows
    level /= 1 + (found.sd / found.scale / spread) ** 2
    cov = gram[1:, 1:] / rows - np.outer(centre, centre)
    root = np.sqrt(np.maximum(np.diag(cov), LEAST_SQUARE * usual[1:] ** 2))
    corr = cov / np.outer(root, root)
    np.fill_diagonal(corr, 1.0)
    values, vectors = np.linalg.eigh(corr)
    floor = float(np.clip(shrunk.sd * math.sqrt(len(cov)), LEAST_CORRELATED, 0.5))
    cov = (vectors * np.maximum(values, floor)) @ vectors.T * np.outer(root, root)
    cross = found.cross[1:] / rows - centre * level
    left = float(found.value[-1, -1]) / found.scale**2 / rows - level**2
    left, noise = max(left, 0.05 * spread**2), (found.sd / found.scale) ** 2
    inverse = np.linalg.inv(cov)
    signal = float(cross @ inverse @ cross - noise * np.trace(inverse)) / max(len(cross), 1)
    slopes = np.zeros(len(cross))
    if signal > 0:
        slopes = np.linalg.solve(cov + noise / signal * np.eye(len(cross)), cross)
        slopes /= max(1.0, math.sqrt(slopes @ cov @ slopes) / (MOST_FITTED * spread))
    rest = max(left - 2 * slopes @ cross + slopes @ cov @ slopes, LEAST_LEFT * left)
    turn, sizes = np.eye(len(usual)), usual.copy()
    others = np.arange(1, len(usual))
    if focus is not None:
        others, k = others[others != focus], focus - 1
        beside = cov[np.ix_(others - 1, others - 1)]
        along = np.linalg.solve(beside, cov[others - 1, k])
        turn[focus, others] = -along
        turn[focus] /= math.sqrt(cov[k, k] - along @ cov[others - 1, k])
        sizes[focus] = math.sqrt(FOCUS * (1 + float(usual[others] @ usual[others])))
    values, vectors = np.linalg.eigh(cov[np.ix_(others - 1, others - 1)])
    turn[np.ix_(others, others)] = (vectors / np.sqrt(values)) @ vectors.T
    turn[1:, 0] = -turn[1:, 1:] @ centre
    return FirstFit(np.r_[level - centre @ slopes, slopes], turn, sizes, math.sqrt(rest))


FOCUS = 0.3
"""Squared size of the first column's u, relative to all others together. Public data."""


MOST_FITTED = 2.0
"""Largest sd of fitted values, in sds of the outcome. A guard against noise."""

LEVEL_SD = 0.1
"""Prior sd of the mean squared weight of rows, around the marginals' value. By hand."""

LEAST_CORRELATED = 0.002
"""Least eigenvalue of the correlations of columns, so that whitening stays within floats."""

# -- sizes ------------------------------------------------------------------------------------

RESIDUAL_EDGES = (0.25, 0.5, 1.0, 1.5, 2.0, 2.75, 4.0, 6.0, 9.0)
"""Borders of the sizes of residuals, in units of their first scale; then each is doubled."""

LEVERAGE_EDGES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.5, 7.0, 11.0, 17.0, 27.0, 45.0)
"""Borders of the squared leverage ||u||^2, in units of Q."""


def residual_edges(top: float) -> Vector:
    """Upper borders of the cells of |r|, ascending to the largest |r|."""
    edges = list(RESIDUAL_EDGES)
    while 2 * edges[-1] < 0.9 * top:
        edges.append(2 * edges[-1])
    return np.array([edge for edge in edges if edge < 0.9 * top] + [top])


def leverage_edges(square: float, top: float) -> Vector:
    """Upper borders of the cells of ||u||, for the usual squared size Q."""
    edges = np.sqrt(square * np.array(LEVERAGE_EDGES))
    return np.asarray(np.r_[edges[edges < 0.99 * top], top])


@dataclass(frozen=True, eq=False)
class ResidualLaw:
    """Mean of (|r| - c)+ and of min(|r|, c)^2 at the thresholds `at`, interpolated between them.

    The first is an upper bound. `far` is the share of the squares beyond `OUTLIER` sds.
    """

    at: Vector
    over: Vector
    kept: Vector
    far: float

    def excess(self, cut: Vector | float) -> Vector:
        return np.asarray(np.interp(cut, self.at, self.over))

    def square(self, cut: Vector | float) -> Vector:
        return np.asarray(np.interp(cut, self.at, self.kept))

    def grown(self, start: float, cut: Vector | float) -> Vector:
        """How much stronger amounts beyond `cut` depend on the columns than rows beyond `start`.

        If the scale of r is exp(a'u), a mean of u over rows that are weighted by a function of |r|
        is a times the elasticity of the mean weight in this scale. The weights are (|r| - c)+ for
        the threshold c, and `outlier_share` beyond the start.
        """
        x = np.maximum(cut, start)
        one = np.maximum(self._scaled(x, STEP), TINY) / np.maximum(self._scaled(x, 1.0), TINY)
        two = outlier_share(self, start, STEP) / np.maximum(outlier_share(self, start), TINY)
        growth = np.log(one) / max(float(np.log(max(float(two), 1.0))), 1e-3)
        return np.asarray(np.clip(growth, 1.0, MOST_GROWTH))

    def _scaled(self, cut: Vector | float, scale: float) -> Vector:
        """The excess if all residuals had this factor."""
        return np.asarray(scale * self.excess(np.asarray(cut) / scale))


STEP, MOST_GROWTH = 1.05, 3.0
"""Factor of residuals for the elasticity, and the most that a pull grows towards the threshold."""


def residual_law(
    sizes: ranges.LookCounts, count: float, *, sparse: bool = False, anywhere: bool = False
) -> ResidualLaw:
    """The law of |r|, from noisy counts of its cells; see `tails.size_law`."""
    law = tails.size_law(
        sizes.value[None], sizes.noise_sd, sizes.ends, count, sparse=sparse, anywhere=anywhere
    )
    return ResidualLaw(law.at, law.over[0], law.kept[0], law.far)


@dataclass(frozen=True, eq=False)
class Leverage:
    """Sizes ||u|| of detected rows with their shares, and the share `hidden` beyond `start`."""

    sizes: Vector
    share: Vector
    start: float
    hidden: float
    square: float

    @classmethod
    def read(cls, sizes: ranges.LookCounts, count: float, square: float) -> Leverage:
        """From noisy counts of the cells of ||u||, for the usual squared size Q."""
        counts, sd, ends = sizes.value, sizes.noise_sd, sizes.ends
        cells = len(counts)
        beyond, noise = np.cumsum(counts[::-1])[::-1], sd * np.sqrt(cells - np.arange(cells))
        last = 1
        while last + 1 < cells and beyond[last + 1] > SEEN_SDS * noise[last + 1]:
            last += 1
        start = min(max(last, 2), cells - 1) if sd else cells
        hidden = 0.0
        if start < cells:
            hidden = min(max(float(beyond[start]), 0.0) + 0.5 * float(noise[start]), count) / count
        middle = (ends[1:] + ends[:-1]) / 2
        share = np.maximum(counts[:start], 0.0) / count
        return cls(middle[:start], share, float(ends[start]), hidden, square)

    def lost(self, most: float) -> float:
        """Mean of (1 - w^2) ||u|| / sqrt(Q), for w = min(1, `most` / ||u||)."""
        x = np.linspace(self.start, 4 * self.start, 60)
        left = [np.maximum(1 - (most / one) ** 2, 0.0) * one for one in (self.sizes, x)]
        hidden = -np.diff(self.hidden * (self.start / x) ** LEVERAGE_INDEX)
        out = self.share @ left[0] + hidden @ (left[1][1:] + left[1][:-1]) / 2
        return float(out) / math.sqrt(self.square)

    @property
    def far(self) -> float:
        """Share of the squares of rows beyond `FAR` times the usual size."""
        sizes, share = self.laws
        each = sizes**2 * share
        return float(each[sizes > FAR * math.sqrt(self.square)].sum() / max(each.sum(), TINY))

    @property
    def laws(self) -> tuple[Vector, Vector]:
        """Sizes and shares of all rows, with the hidden ones just beyond the start."""
        sizes, share = np.r_[self.sizes, 1.2 * self.start], np.r_[self.share, self.hidden]
        return sizes, share / max(float(share.sum()), TINY)


FAR = 3.0
"""Size of a row, relative to the usual one, that is rare for most columns. By hand."""

SEEN_SDS = 2.5
"""Noise sds above which a count beyond a border is detected."""

LEVERAGE_INDEX = 6.0
"""Leverage that noise hides falls as its inverse to this power."""

# -- directions of outliers -------------------------------------------------------------------

OUTLIER_SDS = 4.0
"""Outliers are looked for beyond the last size with this many noise sds of them."""

OUTLIER_REACH = 1.5
"""Squared leverage at which rows are clipped in the sums of outliers, in units of Q."""

LEAST_PULL, MOST_PULL = 0.15, 0.4
"""Prior sd of the mean of a coefficient's direction among outliers. The second is for outcomes that
mostly have one value, because their outliers are few, and along the fit if residuals have a long
tail, because its scale often grows with the fit. Public data, and by hand."""


def prior_pull(law: ResidualLaw, along: Vector, *, sparse: bool) -> Vector:
    """Prior sd of the pull of coefficients whose directions have these cosines with the fit."""
    share = 1.0 if sparse else np.abs(along) * min(law.far / tails.LONG_FROM, 1.0)
    return np.asarray(np.hypot(LEAST_PULL, MOST_PULL * share) + 0 * along)


PULL_SDS = 0.35
"""Posterior sds that are added to the size of this mean. Public data."""


def outlier_start(law: ResidualLaw, starts: Vector, noise_sd: float, count: float) -> int:
    """The last of the `starts` beyond which outliers exceed the noise of their sums."""
    seen = np.flatnonzero(outlier_share(law, starts) * count > OUTLIER_SDS * noise_sd)
    return int(seen[-1]) if len(seen) else 0


def outlier_share(law: ResidualLaw, start: Vector | float, scale: float = 1.0) -> Vector:
    """Share of rows beyond a size x, each counting by min((|r| - x) / x, 1), at a scale of r."""
    x = np.asarray(start) / scale
    return np.asarray((law.excess(x) - law.excess(2 * x)) / x)


@dataclass(frozen=True, eq=False)
class Pull:
    """Bounds of the mean of a coefficient's direction over clipped amounts, shape (k,).

    `detected` is the part that grows from the `start` of outliers to the cut.
    """

    size: Vector
    detected: Vector
    start: float

    @classmethod
    def read(
        cls,
        sums: Matrix,
        noise_sd: float,
        rows: float,
        across: Matrix,
        start: float,
        prior: Vector,
    ) -> Pull:
        """From sums of u over outliers above and below the fit, shape (2, p).

        Parameters
        ----------
        rows : float
            The number of outliers of both kinds.
        across : Matrix
            Directions of the coefficients, shape (k, p).
        """
        noise = np.linalg.norm(across, axis=1) * noise_sd / max(rows, 1.0)
        total, detected = np.zeros((2, len(across)))
        for one in sums:
            mean = across @ one / max(rows, 1.0)
            seen = np.maximum(mean**2 - 3 * noise**2, 0.0)
            size = np.maximum(prior**2, seen)
            keep = size / (size + noise**2)
            mean, sd = keep * mean, np.sqrt(keep) * noise + TINY
            total += sd * np.sqrt(2 / np.pi) * np.exp(-0.5 * (mean / sd) ** 2)
            total += np.abs(mean) * (1 - 2 * ndtr(-np.abs(mean) / sd)) + PULL_SDS * sd
            detected += keep * np.sqrt(seen)
        return cls(total, detected, start)

    def at(self, growth: float | Vector) -> Vector:
        """Bounds for clipped amounts, if the detected part grows by this factor."""
        return np.asarray(self.size + np.multiply.outer(np.asarray(growth) - 1, self.detected))

    @property
    def lever(self) -> Vector:
        """Bounds for rows with leverage, relative to the usual."""
        return np.asarray(np.maximum(1.0, self.size / 0.5) ** 2)


# -- the cuts ---------------------------------------------------------------------------------

USUAL_PULL = 0.8
"""Mean size of a coefficient's direction over all rows, for normal columns."""

LEVERAGE_GAP, GAP_ALONG = 0.2, 0.3
"""Mean distance of rows with leverage from the line, in residual sds: in any direction, and along
the fit. Public data."""

LEVERS = (1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
"""Squared leverages h at which rows may be clipped, in units of Q."""

FIRST_WEIGHTS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Weights of the second step that are tried. The first step has the rest."""


@dataclass(frozen=True)
class RowCut:
    """Leverage L, norm C and scale t of the second step, and the mean excess that it clips.

    `missed` is the mean distance of rows with clipped leverage from the line. The second step's
    moments have the `weight`, and the first step's have 1 - `weight`. A detected pull is `growth`
    times as large at the threshold.
    """

    lever: float
    at: float
    scale: float
    residual: float
    excess: float
    missed: float
    weight: float
    growth: float

    def hidden(self, law: ResidualLaw, pull: Pull) -> Vector:
        """Mean squares of residuals beyond the threshold, at most, for each coefficient."""
        beyond = max(float(law.kept[-1] - law.square(self.residual)), 0.0)
        return np.asarray(beyond * np.maximum(1.0, pull.at(self.growth) / USUAL_PULL) ** 2)

    def bias(self, pull: Pull, first: FirstNoise, by: Matrix, fit: FirstFit) -> Vector:
        """Bound of the bias of each coefficient, per unit of the norm of its row of `by`."""
        share = fit.along(by) ** 2
        gap = np.sqrt(1 - share + share * (GAP_ALONG / LEVERAGE_GAP) ** 2)
        lost = self.weight * self.excess + (1 - self.weight) * first.excess
        return np.asarray(lost * pull.at(self.growth) + self.missed * pull.lever * gap)


class FirstNoise(NamedTuple):
    """Mean squared noise of the first step in units of the second, and its mean clipped amount."""

    variance: float
    excess: float


def first_noise(first: RowMoments, fit: FirstFit, excess: float) -> FirstNoise:
    norm2 = (fit.turn**2).sum(axis=1)
    each = norm2 * ((1 / first.scale) ** 2 + float(fit.coef @ fit.coef))
    each *= (first.sd / fit.scale * fit.usual) ** 2
    return FirstNoise(float(each[1:].mean() if len(each) > 1 else each[0]), excess)


def row_cut(
    law: ResidualLaw,
    leverage: Leverage,
    pull: Pull,
    unit: float,
    first: FirstNoise,
    sampling: float,
) -> RowCut:
    """The thresholds of least half-width, for typical coefficients.

    Parameters
    ----------
    unit : float
        Noise sd of a mean of products off the diagonal, per unit of C^2.
    sampling : float
        One over the number of rows, times the design effect of weights.
    """
    square, top = leverage.square, float(law.at[-1])
    if not unit:  # in tests without noise, nothing is clipped
        lever = float(leverage.start)
        held = np.flatnonzero(law.over <= 0)
        cut = float(law.at[held[0]]) if len(held) else top
        return RowCut(lever, math.hypot(lever, lever), lever / cut, cut, 0.0, 0.0, 1.0, 1.0)
    many, (at, share) = max(len(pull.size) - 1, 1), leverage.laws
    far = float(np.sqrt(np.mean(pull.lever[-many:] ** 2)))
    along = math.sqrt(1 - 1 / many + (GAP_ALONG / LEVERAGE_GAP) ** 2 / many)
    cuts = np.minimum(np.geomspace(1.0, max(1.5 * top, 1.01), 40), max(1.5 * top, 1.0))
    weight = np.array(FIRST_WEIGHTS)[:, None]
    growth = law.grown(pull.start, cuts)
    size = np.sqrt(np.mean(pull.at(growth)[:, -many:] ** 2, axis=1))
    second, best, found = law.square(cuts), np.inf, None
    for h in LEVERS:
        most, norm2 = math.sqrt(h * square), (2 * h - 1) * square
        missed = LEVERAGE_GAP * leverage.lost(most)
        kept = np.minimum(1.0, most / at)
        room = np.sqrt(np.maximum(norm2 - (kept * at) ** 2, 0.0) / (norm2 - square)) / kept
        excess = (share * kept) @ law.excess(room[:, None] * cuts)
        noise = norm2 / math.sqrt(norm2 - square) * cuts * unit
        error = np.sqrt(
            second * sampling + (weight * noise) ** 2 + (1 - weight) ** 2 * first.variance
        )
        bias = size * (weight * excess + (1 - weight) * first.excess) + missed * far * along
        # a row with weight w has w^2 of its information
        half = folded_quantile(bias / error) * error / (share @ (kept * at) ** 2)
        i, j = np.unravel_index(int(np.argmin(half)), half.shape)
        if found is None or half[i, j] < best:
            best, cut = float(half[i, j]), float(cuts[j])
            found = RowCut(
                most, math.sqrt(norm2), math.sqrt(norm2 - square) / cut, cut,
                float(excess[j]), missed, FIRST_WEIGHTS[i], float(growth[j]),
            )  # fmt: skip
    assert found is not None
    return found


# -- the second step --------------------------------------------------------------------------

LIFT, LEAST_LIFT, MOST_LIFT = 1.2, 0.1, 0.6
"""Eigenvalues of whitened moments are lifted to this many sds of their noise, within limits."""


@dataclass(frozen=True, eq=False)
class SecondFit:
    """Coefficients delta of u that the second step adds, and the parts of their covariance.

    `gram` are the moments of u, `noise` the covariance of the noise in their normal equations, and
    `square` the mean squared residual.
    """

    delta: Vector
    gram: Matrix
    noise: Matrix
    square: float


def second_fit(found: RowMoments, weight: float, first: RowMoments, fit: FirstFit) -> SecondFit:
    """Coefficients of r on u / usual, from the second step and, by `weight`, the first.

    The moments of u are shrunken to the identity by the share of their noise. Directions with low
    eigenvalues are lifted, and the interval shows that their slope is known to that share only.
    """
    usual, size = fit.usual, len(fit.usual)
    eye, sizes = np.eye(size), np.outer(usual, usual)
    other, missed = 1 - weight, first.cross - first.gram @ fit.coef
    gram = weight * found.gram / sizes + other * fit.turn @ first.gram @ fit.turn.T
    cross = weight * found.cross / usual + other * fit.turn @ missed / fit.scale
    norm2 = (fit.turn**2).sum(axis=1)
    variance = (weight * found.sd / sizes) ** 2 + (other * first.sd) ** 2 * np.outer(norm2, norm2)
    variance = variance * (1 + eye)
    gap = gram - eye
    wide = max(float((gap**2).sum() - variance.sum()), 0.0) / (size * size + size) * (1 + eye)
    keep = wide / np.maximum(wide + variance, TINY)
    values, vectors = np.linalg.eigh(eye + keep * gap)
    left = keep * variance
    lift = float(np.clip(LIFT * math.sqrt(size * left.mean()), LEAST_LIFT, MOST_LIFT))
    lift = lift if found.sd else 0.0
    raised = np.maximum(values, lift + TINY)
    gram = (vectors * raised) @ vectors.T
    delta = (vectors / raised) @ vectors.T @ cross
    noise = weight**2 * np.diag((found.sd / found.scale / usual) ** 2)
    noise += (other * first.sd / first.scale / fit.scale) ** 2 * fit.turn @ fit.turn.T
    slope = float(fit.coef @ fit.coef) / fit.scale**2
    noise += (other * first.sd) ** 2 * slope * np.diag(norm2)
    one = left / (1 + eye)
    noise += np.diag(one @ delta**2) + one * np.outer(delta, delta)
    short = np.where(lift > values, lift - np.maximum(values, 0.0), 0.0)
    unknown = 2 * float(delta @ delta) / size + 0.1
    noise += (vectors * (short**2 * unknown)) @ vectors.T
    total = max(float(found.value[-1, -1]) / found.scale**2, 0.02 if found.sd else 0.0)
    least = 0.05 * total if found.sd else ROUNDING
    return SecondFit(delta, gram, noise, max(total - float(delta @ cross), least))


MEAT_GAP, LEAST_MEAT = 0.3, 0.3
"""Prior sd of the meat's distance from equal variances, and its least eigenvalue, both relative."""

ROUNDING = 1e-9
"""Least mean squared residual without noise: that of rounding to the grid, by hand."""


def meat_cut(unit: float, square: float, cut: RowCut, usual: float) -> float:
    """Norm at which rows of the meat are clipped: noise a tenth of the squares, within limits."""
    if not unit:
        return cut.lever * (cut.residual + cut.at / cut.scale)
    least, most = 0.8 * usual * cut.residual, cut.lever * cut.residual
    return float(np.clip(math.sqrt(0.1 * square / unit), least, max(least, most)))


def robust_meat(found: Matrix, noise_sd: float, usual: Vector, rest: SecondFit) -> Matrix:
    """The released mean of v v', shrunken to that for equal variances."""
    sizes, eye, model = np.outer(usual, usual), np.eye(len(usual)), rest.square * rest.gram
    gap, variance = found / sizes - model, (noise_sd / sizes) ** 2 * (1 + eye)
    count = len(usual) * (len(usual) + 1)
    wide = max(float((gap**2).sum() - variance.sum()) / count, (MEAT_GAP * rest.square) ** 2)
    meat = model + wide * (1 + eye) / (wide * (1 + eye) + variance) * gap
    root = np.sqrt(np.diag(model))
    values, vectors = np.linalg.eigh(meat / np.outer(root, root))
    least = LEAST_MEAT if noise_sd else min(ROUNDING / rest.square, 1.0)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T * np.outer(root, root))


def estimate_coefficients(
    terms: tuple[ResultTerm, ...],
    own: Vector,
    lift: Matrix,
    rest: SecondFit,
    meat: Matrix,
    count: float,
    bias: Vector,
    hidden: Vector,
) -> averages.AverageEstimate:
    """Coefficients `own` + `lift` delta, with their covariance and the bounds of their bias.

    Parameters
    ----------
    lift : Matrix
        Map from delta to natural coefficients, shape (k, p).
    meat : Matrix
        Covariance of sqrt(n) times the normal equations, by sampling.
    bias : Vector
        Bound of the change of each coefficient by clipping, per unit of the norm of its row.
    hidden : Vector
        Sampling variance of the clipped amounts, per squared unit of the norm. Least squares on
        all rows has it, and no interval is narrower than with it.
    """
    by = lift @ np.linalg.inv(rest.gram)
    estimate, moved = own + lift @ rest.delta, by * bias[:, None]
    sampling, privacy = by @ meat @ by.T / count, by @ rest.noise @ by.T
    clipped, norm2 = np.linalg.norm(moved, axis=1), (by**2).sum(axis=1)
    half = covering(USUAL_Z, clipped, np.sqrt(np.diag(sampling + privacy)))
    least = USUAL_Z**2 * (np.diag(sampling) + norm2 * hidden)
    sampling += np.diag(np.maximum(least - half**2, 0.0) / USUAL_Z**2)
    return averages.AverageEstimate(
        terms, (), estimate, sampling, privacy, clipped, np.zeros(len(terms)), count, moved=moved,
        r2=_explained(estimate, lift, rest, privacy),
    )  # fmt: skip


def _explained(estimate: Vector, lift: Matrix, rest: SecondFit, privacy: Matrix) -> float:
    """R squared: u = lift'x for the natural columns x, the first of which is 1.

    What noise in the coefficients adds to the variance of the fit is subtracted. If it is more
    than half of this variance, R squared is NaN.
    """
    back = np.linalg.pinv(lift)
    second = back.T @ rest.gram @ back  # of x x', up to a factor
    square, second = rest.square / float(second[0, 0]), second / second[0, 0]
    centred = second - np.outer(second[0], second[0])
    whole, noise = float(estimate @ centred @ estimate), float(np.trace(centred @ privacy))
    if noise > 0.5 * whole:
        return np.nan
    return (whole - noise) / max(whole - noise + square, TINY)
