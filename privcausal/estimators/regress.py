"""Private linear regression: a first fit, then whitened moments of the columns and its residuals.

The private version of ``smf.ols("Y ~ X", data).fit()``.

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
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import ndtr

from privcausal import vault
from privcausal.errors import DataError
from privcausal.estimators import bases, budget, survey, words
from privcausal.estimators.base import Learner
from privcausal.estimators.budget import Use
from privcausal.estimators.clusters import CLUSTER_USE, ClusterScore, with_dependence
from privcausal.estimators.weights import with_weights
from privcausal.features import basis
from privcausal.features.basis import TINY, FeatureMap
from privcausal.features.functions import Additive, Constant
from privcausal.inference import ranges, tails
from privcausal.inference.alerts import collinear
from privcausal.inference.averages import USUAL_Z, AverageEstimate, covering, folded_quantile
from privcausal.inference.population import GramEstimate
from privcausal.inference.ranges import LookCounts, outcome_edges, sparse, visible_cells
from privcausal.inference.regression import likelihoods
from privcausal.request.plan import StageKey
from privcausal.request.schema import Interval
from privcausal.request.terms import ResultTerm
from privcausal.typing import Matrix, Vector

# -- the releases -----------------------------------------------------------------------------

FIRST_SIZES = StageKey("effect", "residual sizes")
ROW_SIZES = StageKey("effect", "sizes of rows")
SECOND_MOMENTS = StageKey("effect", "moments")
OUTLIERS = StageKey("effect", "outliers")
MEAT = StageKey("effect", "squared residual moments", heading="variance")

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
    sizes: LookCounts, count: float, *, sparse: bool = False, anywhere: bool = False
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
    def read(cls, sizes: LookCounts, count: float, square: float) -> Leverage:
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
) -> AverageEstimate:
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
    return AverageEstimate(
        terms, (), estimate, sampling, privacy, clipped, np.zeros(len(terms)), count,
        moved=moved[None], r2=_explained(estimate, lift, rest, privacy),
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


# -- the steps --------------------------------------------------------------------------------


def _outcome(state: survey.Survey) -> tuple[float, float, bool]:
    """Mean and sd of the detected outcomes, and whether most of them are at single values.

    Rows that are hidden by noise may lie at an eighth of the range.
    """
    session, outcome, stage = state.session, state.outcome, survey.OUTCOME_RANGE
    release = session.release(stage, session.queries[stage])
    counts, noise_sd = release.value, float(release.noise_sd[0])
    session.look_at(session.plan.request.formula.outcome, counts, noise_sd, stage)
    hidden = noise_sd / _rows(state)
    if not isinstance(session.schema[session.plan.request.formula.outcome], Interval):
        least = max(RAREST, 0.5 * hidden)
        share = float(np.clip(counts[-1] / _rows(state), min(least, 0.5), max(1 - least, 0.5)))
        return share, math.sqrt(share * (1 - share)), False
    ends = outcome.lo + np.r_[0.0, outcome_edges(Interval(outcome.lo, outcome.hi))]
    held = np.where(visible_cells(counts, noise_sd, 1), np.maximum(counts, 0.0), 0.0)
    if held.sum() < MOST_HIDDEN * _rows(state) and noise_sd:
        return *normal_outcome(counts, noise_sd, ends, _rows(state)), False
    at, mass = 0.5 * (ends[1:] + ends[:-1]), held / held.sum()
    middle = float(mass @ at)
    hidden = min(max(HIDDEN_SDS * hidden, 1 - float(held.sum()) / _rows(state)), 1.0)
    least = outcome.bound * max(0.25 * math.sqrt(hidden), LEAST_DEVIATION)
    return middle, max(math.sqrt(float(mass @ (at - middle) ** 2)), least), sparse(held, ends)


MOST_HIDDEN = 0.5
"""Share of detected rows below which the outcome is taken to be normal."""

HIDDEN_SDS = 3.0
"""Noise sds of rows that may hide at an eighth of the outcome's range. Public data."""

LEAST_DEVIATION = 1e-3
"""Least sd of the outcome, relative to half of its range, if all rows have one value."""

RAREST = 0.01
"""Least share of a value of a column with two values, for its scale."""


@dataclass(frozen=True, eq=False)
class _First:
    """The first step: its moments, the fit and its residuals.

    Q = `square` is the squared norm of the sizes of whitened features. The response
    was cut at `reach`. `natural` maps coefficients of the features to natural ones, and `own` are
    the natural coefficients of the fit. `middle` is the mean outcome. `sparse`: most outcomes are
    at single values.
    """

    features: FeatureMap
    moments: RowMoments
    reach: float
    fit: FirstFit
    residual: vault.OutcomeResidual
    natural: Matrix
    own: Vector
    middle: float
    sparse: bool

    @property
    def square(self) -> float:
        return float(self.fit.usual @ self.fit.usual)

    def turned(self, lever: float) -> basis.Turned:
        """Whitened columns u, with a cut of their norm."""
        return basis.Turned(self.features, self.fit.turn.T * self.fit.usual, lever)


def _scaled(state: survey.Survey) -> tuple[FeatureMap, Vector]:
    """Features of sd 1 in the population, and their usual sizes.

    Of a column with two values, the rare one has a large distance from the mean: at a share of 1%,
    ten sds. Its feature is smaller, so that the distance equals the usual norm of all features.
    """
    features, columns = state.features, state.design.columns
    blocks, usual, root = [], [1.0], math.sqrt(state.features.size)
    scaled = state.rows.scaled(state.design)
    for block in features.blocks:
        own, size = scaled[:, block.column], 1.0
        low, sd = 0.0 if columns[block.column].kind == "indicator" else -1.0, float(own.std())
        if ((own == low) | (own == 1.0)).all() or not np.ptp(own):
            share = float(np.clip((block.shift - low) / (1.0 - low), RAREST, 1 - RAREST))
            sd = math.sqrt(share * (1 - share))
            size = min(1.0, root * sd / max(share, 1 - share))
            sd *= 1.0 - low
        blocks.append(replace(block, gain=size / sd))
        usual.append(size)
    lever = math.sqrt(LEVER * float(np.square(usual).sum()))
    return FeatureMap(features.design, tuple(blocks), lever), np.array(usual)


def _first_fit(state: survey.Survey) -> _First:
    outcome = state.outcome
    middle, spread, single = _outcome(state)
    features, usual = _scaled(state)
    reach = min(REACH * spread, 1.02 * max(middle - outcome.lo, outcome.hi - middle))
    root = features.cut / math.sqrt(LEVER)
    row = vault.RegressionRow(
        features, vault.OutcomeResidual(Constant(middle), outcome), *_survey(state),
        root * math.sqrt(2 * (LEVER - 1)) / reach, root * math.sqrt(2 * LEVER - 1),
    )  # fmt: skip
    found = _moments(state, budget.GRAM, row)
    scaled = replace(state, features=features, weights=None)
    shrunk = survey.shrunken_gram(scaled, found.gram, found.sd)
    fit = first_fit(found, shrunk, usual, spread, _focus(state))
    eta, natural = Additive(features, fit.coef, middle), _natural(features)
    far = float(np.abs(fit.coef) @ features.ends)  # eta is not clipped to the outcome's bounds
    wide = vault.Outcome(min(outcome.lo, middle - far), max(outcome.hi, middle + far))
    own = natural @ fit.coef
    own[0] += middle
    residual = vault.OutcomeResidual(eta, wide)
    return _First(features, found, reach, fit, residual, natural, own, middle, single)


def _rows(state: survey.Survey) -> float:
    """Complete rows: the public number of rows, unless a count shows that some lack values."""
    found, size = state.population, state.session.vault.size
    if size is None or state.session.plan.request.trust.unit is not None:
        return max(found.count, 1.0)
    return float(size) if size - found.count <= 2 * found.count_sd else max(found.count, 1.0)


def _focus(state: survey.Survey) -> int | None:
    """The feature of the first term, if it has one column of two values, as a treatment has.

    Whole numbers within (0, 1) are two values.
    """
    formula, columns = state.session.plan.request.formula, state.design.columns
    first = next((t.name for t in (*formula.modifiers, *formula.controls)), None)
    owners = [columns[block.column] for block in state.features.blocks]
    places = [j for j, column in enumerate(owners, 1) if column.term == first]
    if len(places) != 1:
        return None
    treatment = owners[places[0] - 1]
    name = treatment.variable or ""
    whole = name in state.session.undeclared.integers
    two = whole and state.session.plan.request.schema.get(name) == Interval(0.0, 1.0)
    return places[0] if two or treatment.kind == "indicator" else None


def _survey(state: survey.Survey) -> tuple[vault.SurveyWeight | None, float]:
    """Roots of the survey weights over their largest, and the factor that makes their mean 1."""
    law = state.weights
    if law is None:
        return None, 1.0
    return vault.SurveyWeight(law.column, law.top, root=True), math.sqrt(law.top / law.mean)


def _moments(state: survey.Survey, stage: StageKey, row: vault.RegressionRow) -> RowMoments:
    query = vault.RegressionMoments(row)
    release = state.session.release(stage, query)
    count = _rows(state)
    sd = survey.off_diagonal_sd(query, release)
    return RowMoments(query.matrix(release.value) / count, sd / count, row.scale)


def _unit(state: survey.Survey, stage: StageKey) -> float:
    """Noise sd of a mean of products off the diagonal, per unit of a row's squared norm.

    An entry off the diagonal has the weight sqrt(2) in the norm of the whole matrix.
    """
    session = state.session
    substitute = session.plan.request.trust.neighbors == "substitute"
    change = math.sqrt(2.0) if substitute else 1.0
    silent = not state.session.releases[-1].noise_sd.any()
    sd = 0.0 if silent else session.noise_sd(stage, change) / math.sqrt(2.0)
    return sd / _rows(state)


def _second_fit(state: survey.Survey, first: _First) -> AverageEstimate:
    session, request = state.session, state.session.plan.request
    count, scale = _rows(state), first.fit.scale
    lift = first.natural @ first.fit.turn.T
    law, leverage, pull = _looked_at(state, first, lift)
    effect = state.design_effect
    lost = float(law.excess(first.reach / scale))
    step = first_noise(first.moments, first.fit, lost)
    cut = row_cut(law, leverage, pull, _unit(state, SECOND_MOMENTS), step, effect / count)
    row = vault.RegressionRow(
        first.turned(cut.lever), first.residual, *_survey(state), cut.scale / scale, cut.at
    )
    found = _moments(state, SECOND_MOMENTS, row)
    found = replace(found, scale=cut.scale)
    _look_at_columns(state, found, lift * first.fit.usual)
    rest = second_fit(found, cut.weight, first.moments, first.fit)
    used = count * (1.0 if state.weights is None else state.weights.positive)
    meat: Matrix = rest.square * rest.gram * count / max(used - len(lift), 1.0)
    if request.cov_type != "nonrobust":
        meat = _meat(state, first, row, cut, rest)
    bias = cut.bias(pull, step, lift @ np.linalg.inv(rest.gram), first.fit)
    if session.beyond is not None:  # Add the bias beyond estimated bounds.
        bias += cut.lever * session.beyond.lost / count / scale
    terms = (ResultTerm("coefficient", "Intercept"), *(c.slope for c in state.design.columns))
    out = estimate_coefficients(
        terms,
        first.own,
        lift * scale,
        rest,
        meat,
        count,
        bias,
        cut.hidden(law, pull) * effect / count,
    )
    session.alerts |= _alerts(state, first, out, law, leverage)
    scores = partial(_influences, row, first, rest, out, lift * scale)
    return with_weights(state, with_dependence(session, out, scores, len(terms)))


def _looked_at(
    state: survey.Survey, first: _First, lift: Matrix
) -> tuple[ResidualLaw, Leverage, Pull]:
    """Sizes of residuals and rows, and how outliers pull each coefficient: one pass."""
    session, count, scale = state.session, _rows(state), first.fit.scale
    root, unit = _survey(state)
    residual = vault.TransformProduct(root, first.residual) if root else first.residual
    top = residual.bound * unit
    if root is None:
        top = min(top, 1.05 * 2 * state.outcome.bound)
    edges = residual_edges(top / scale)
    starts = edges[(edges >= 1.0) & (edges < edges[-1])]
    starts = starts if len(starts) else edges[:1]
    plain = vault.RegressionRow(first.turned(np.inf), first.residual, root, unit)
    most = math.sqrt(OUTLIER_REACH * first.square)
    row = replace(plain, features=first.turned(most))
    asked = {
        FIRST_SIZES: vault.SizeHistogram(residual, edges * scale / unit, FIRST_SIZES.query),
        ROW_SIZES: vault.SizeHistogram(
            plain, leverage_edges(first.square, plain.bound), ROW_SIZES.query
        ),
    }
    outliers = [vault.OutlierSums(row, start * scale) for start in starts.tolist()]
    session.gather({**asked, OUTLIERS: outliers})
    found = [session.release(stage, query) for stage, query in asked.items()]
    ends = [edges, asked[ROW_SIZES].edges]
    sizes, norms = (
        LookCounts(f.value, float(f.noise_sd[0]), np.r_[0.0, e])
        for f, e in zip(found, ends, strict=True)
    )
    anywhere = session.plan.request.tails == "any"
    law, leverage = (
        residual_law(sizes, count, sparse=first.sparse, anywhere=anywhere),
        Leverage.read(norms, count, first.square),
    )
    change = 2.0 if session.plan.request.trust.neighbors == "substitute" else 1.0
    noise = session.noise_sd(OUTLIERS, change) * most if sizes.noise_sd else 0.0
    at = outlier_start(law, starts, noise, count)
    release = session.release(OUTLIERS, outliers[at])
    sums = outliers[at].split(release.value)[0]
    across = lift / np.linalg.norm(lift, axis=1, keepdims=True) / first.fit.usual
    rows = float(outlier_share(law, starts[at])) * count
    prior = prior_pull(law, first.fit.along(lift), sparse=first.sparse)
    pull = Pull.read(sums, noise, rows, across, float(starts[at]), prior)
    return law, leverage, pull


def _look_at_columns(state: survey.Survey, found: RowMoments, lift: Matrix) -> None:
    """Note collinear and constant columns. Absent levels have an alert of their own.

    Raises
    ------
    DataError
        In tests without noise, where the moments of such columns are singular.
    """
    columns, noisy = state.design.columns, found.sd > 0
    half = np.array([0.0 if noisy and c.kind == "indicator" else 1 / c.per_unit for c in columns])
    for mask, text in zip(collinear(found.gram, found.sd, lift, half), COLLINEAR, strict=True):
        if mask.any():
            names = words.listed([c.name for c, one in zip(columns, mask, strict=True) if one])
            if not noisy:
                raise DataError(text.format(names=names))
            state.session.note((("collinear", text.format(names=names)),))


LOG_SPREAD = 0.5
"""Residual sd as a share of the mean, above which the logarithm of an amount changes its tail."""


def _advice(state: survey.Survey, first: _First) -> str:
    """Advice on a long tail; the logarithm, if the outcome is not negative and not one already."""
    amount = state.outcome.lo >= 0 and first.fit.scale > LOG_SPREAD * first.middle
    logged = re.match(r"(\w+\.)?(log|ln)(\d|_|\b|p)", state.session.plan.request.formula.outcome)
    return LOGARITHM if amount and not logged else OTHERWISE


def _alerts(
    state: survey.Survey,
    first: _First,
    out: AverageEstimate,
    law: ResidualLaw,
    leverage: Leverage,
) -> dict[str, str]:
    outcome = state.session.plan.request.formula.outcome
    biased = [name for name, far in zip(out.names, out.clipping > 2 * out.sd, strict=True) if far]
    told = {
        "tail": LONG_TAIL.format(outcome=outcome, advice=_advice(state, first))
        if law.far > LONG_SHARE and not state.session.unlimited
        else "",
        "leverage": ISOLATED if leverage.far > LONG_SHARE else "",
        "bias": CLIPPING.format(names=words.listed(biased)) if biased else "",
    }
    return {code: text for code, text in told.items() if text}


LONG_SHARE = 0.1
"""Share of the squares of residuals, or of columns, that few rows may have. By hand."""


def _meat(
    state: survey.Survey,
    first: _First,
    row: vault.RegressionRow,
    cut: RowCut,
    rest: SecondFit,
) -> Matrix:
    """Squared residuals of the second fit, at all columns."""
    count, scale = _rows(state), first.fit.scale
    usual = math.sqrt(first.square)
    most = scale * meat_cut(_unit(state, MEAT), rest.square, cut, usual)
    query = vault.ResidualMoments(row, rest.delta / first.fit.usual * scale, most)
    release, unit = state.session.release(MEAT, query), 1 / (count * scale**2)
    if state.session.plan.request.cov_type == "HC1":
        unit *= count / max(count - len(rest.delta), 1.0)
    matrix, sd = query.matrix(release.value), survey.off_diagonal_sd(query, release)
    return robust_meat(unit * matrix, unit * sd, first.fit.usual, rest)


INFLUENCE_CUT = 5.0
"""Largest influence of a row on a coefficient in squared cluster sums, in root mean squares of the
influences. Normal columns and residuals exceed it for three rows in a thousand. By hand."""


def _influences(
    row: vault.RegressionRow, first: _First, rest: SecondFit, out: AverageEstimate, lift: Matrix
) -> list[ClusterScore]:
    """Influences of rows on each coefficient, times the number of rows."""
    n, scores, scale = out.size, [], first.fit.scale
    most = INFLUENCE_CUT if out.privacy.any() else np.inf
    delta = rest.delta / first.fit.usual * scale
    by_each = lift @ np.linalg.inv(rest.gram) / first.fit.usual / scale
    for by, variance in zip(by_each, np.diag(out.sampling), strict=True):
        cut = float(min(most, np.sqrt(n)) * np.sqrt(n * variance))  # No influence exceeds sqrt(n).
        influence = vault.RegressionInfluence(row, delta, by, cut)
        scores.append(ClusterScore(vault.CutScore(influence, cut), 0, n, n))
    return scores


def _natural(features: FeatureMap) -> Matrix:
    """Map from coefficients of the features to natural ones, shape (k, p)."""
    columns = features.design.columns
    out = np.zeros((1 + len(columns), features.size))
    out[0, 0] = 1.0
    for j, block in enumerate(features.blocks, 1):
        column = columns[block.column]
        slope = block.gain * column.per_unit
        out[1 + block.column, j] = slope
        out[0, j] = -slope * column.middle - block.gain * block.shift
    return out


# -- the learner ------------------------------------------------------------------------------


@dataclass(frozen=True)
class LeastSquares(Learner):
    """Ordinary or weighted least squares with private coefficients and standard errors."""

    name: ClassVar[str] = "regress"
    title: ClassVar[str] = "least squares"
    whole: ClassVar[str] = "a regression has no nuisance models"
    shares: ClassVar[Mapping[str, float]] = {
        "bounds": budget.TOP_BOUNDS,
        "nuisance": 0.2,  # Everything before the whitened moments. Public data.
        "effect": 0.8,  # The coefficients themselves. Public data.
    }
    uses: ClassVar[tuple[Use, ...]] = (
        Use(survey.MARGINALS, 0.035, "Centers and scales of the columns: the first fit depends on "
            "them. Public data."),
        Use(budget.GRAM, 0.15, "The first fit whitens columns and centers the outcome. Public "
            "data."),
        Use(survey.OUTCOME_RANGE, 0.02, "One histogram: center and scale of the outcome. Public "
            "data."),
        Use(FIRST_SIZES, 0.0675, "The maximum bias by clipping falls with its noise. Public "
            "data."),
        Use(ROW_SIZES, 0.0225, "A third of the residuals' weight: leverage has shorter tails. "
            "Public data."),
        Use(OUTLIERS, 0.03, "The directions of clipped residuals. Public data."),
        Use(SECOND_MOMENTS, 0.655, "The coefficients. Public data."),
        Use(MEAT, 0.02, "The residual variance at all columns, if requested. By hand.",
            lambda request, _: request.cov_type != "nonrobust"),
        Use(budget.ROW_WEIGHTS, 0.02, "As much as for the outcome's range. By hand.",
            budget.weighted),
        CLUSTER_USE,
    )  # fmt: skip

    def accepted(self, base: bases.AnyBase) -> bases.PrivateBase:
        return bases.Linear()

    def run(self, session: survey.FitRun) -> words.Estimate:
        looks = {survey.OUTCOME_RANGE: outcome_edges}
        state = survey.prepare(session, linear_terms=False, looks=looks)
        found = _second_fit(state, _first_fit(state))
        return session.finished(state.design, state.population, averages=found)

    @classmethod
    def describe(cls, estimate: words.Estimate) -> words.Description:
        request = estimate.plan.request
        robust, found = request.cov_type != "nonrobust", estimate.averages
        robust |= request.cluster is not None
        r2 = np.nan if found is None else found.r2
        explained = f"{r2:.3f}" if np.isfinite(r2) else "hidden by noise"
        return words.Description(
            title=cls.title,
            rows=(
                ("Covariance", request.cov_type),
                *(() if found is None else (("R-squared (noisy)", explained),)),
            ),
            reading=(COEFFICIENT_READING,),
            assumptions=(
                PROJECTION,
                *(() if robust else (HOMOSKEDASTIC,)),
                CLIPPED_ROWS,
                words.BOUNDED,
            ),
            methods=(*REGRESSION_METHODS, words.MISSING),
            adjusts=False,
            stages=(("nuisance", "first fit"), ("effect", "coefficients")),
        )


COEFFICIENT_READING = (
    "Coefficients are associations: each compares rows that differ in one column and are equal in "
    "the others. A coefficient is a causal effect only if no other variable confounds its column."
)

LONG_TAIL = (
    "{outcome!r} has a long tail, or its bounds are far too wide. Intervals are wide, because they "
    "allow for the residuals that are clipped. Declare narrower bounds if its values allow it. "
    "{advice}"
)
LOGARITHM = "Use its logarithm as the outcome."
OTHERWISE = "Use more rows or budget, or an outcome with fewer outliers."

ISOLATED = (
    "A few rows at a large distance from all others determine coefficients. Declare "
    "narrower bounds for columns with a long tail, or transform these columns."
)

CLIPPING = (
    "Clipping may bias {names} by more than two standard errors. The intervals allow for this bias."
)

COLLINEAR = (
    "Collinear columns: {names}. Released moments cannot tell each of them from a linear function "
    "of other columns, so their coefficients are imprecise. Leave one of them out.",
    "Nearly constant columns: {names}. Leave them out, or declare narrower bounds.",
)

PROJECTION = (
    "Coefficients describe the best linear prediction of the outcome in the sampled population. "
    "The outcome need not be linear in the columns."
)

HOMOSKEDASTIC = (
    "Equal variances: the residual variance is the same at all values of the columns "
    "(cov_type='nonrobust'). control=pc.Control(cov_type='HC1') avoids this assumption."
)

CLIPPED_ROWS = (
    "Large residuals, and rows at a large distance from the center, are clipped. The interval "
    "allows for the resulting bias. Beyond the largest detected residuals, sizes fall as the "
    "Weibull distributions that fit the detected sizes. Distant rows are on average near the "
    "line that fits the other rows."
)

REGRESSION_METHODS = (
    f"The estimator was least squares in two steps. {words.SUMS}",
    "The first step learned the scales and correlations of the columns and a first fit. The second "
    "step released one matrix of moments of the whitened columns and the residuals. Distant "
    "rows were downweighted, and residuals were clipped, at limits of least width. The "
    "limits follow from released histograms of both sizes and from sums over rows with large "
    "residuals.",
    "Moments of the columns were shrunk by the share of their noise. Standard errors combine "
    "sampling and privacy noise. Confidence intervals and p-values include an allowance for the "
    "bias of clipping.",
)
