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
from typing import ClassVar

import numpy as np
from scipy.special import logit, ndtr
from scipy.stats import norm

from privcausal import vault
from privcausal.errors import DataError
from privcausal.estimators import bases, budget, estimands, first_stages
from privcausal.estimators.averages import CLUSTER_STEP, ClusterScore, with_dependence, with_weights
from privcausal.estimators.base import Learner
from privcausal.estimators.budget import Step
from privcausal.estimators.estimands import Linked
from privcausal.features import functions
from privcausal.features.functions import TINY, Additive, Constant, Family, FeatureMap
from privcausal.inference import cuts, ranges
from privcausal.inference.effects import (
    FEW_SDS,
    USUAL_Z,
    AverageEstimate,
    covering,
    folded_quantile,
)
from privcausal.inference.population import GramEstimate, population_gram, shrunken
from privcausal.inference.ranges import (
    FALSE_ALARMS,
    LookCounts,
    outcome_edges,
    sparse,
    visible_cells,
)
from privcausal.inference.regression import likelihoods
from privcausal.request.formula import ResultTerm
from privcausal.request.request import GENERALIZED, Plan, StageKey
from privcausal.request.schema import Interval
from privcausal.typing import Mask, Matrix, Vector

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
    """Noisy means of u u', u e and e^2, from the mean of z z' for z = (u, t e).

    `sd` is the noise sd of an entry of the mean of z z' off the diagonal, and `scale` is t.
    """

    gram: Matrix
    cross: Vector
    square: float
    sd: float
    scale: float


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
    moments: RowMoments,
    shrunk: GramEstimate,
    usual: Vector,
    spread: float,
    focus: int | None = None,
) -> FirstFit:
    """Ridge regression on centered features, by the share of the slopes that is not noise.

    `shrunk` are the moments of the features, shrunken towards those of the marginals, per row.
    `usual` (p,) are usual sizes of the features, and `spread` is the sd of the outcome. The feature
    `focus` is whitened last: its u is its part that the others do not explain, with a larger size.
    """
    # Features have the size 1 and the outcome has its sd, so larger moments are noise. If it were
    # left, products of noise would be taken for slopes.
    gram = shrunk.model + (shrunk.value - shrunk.model) / (1 + shrunk.sd**2)
    gap = float(moments.gram[0, 0] - shrunk.model[0, 0])
    rows = float(shrunk.model[0, 0]) + gap / (1 + 2 * (moments.sd / LEVEL_SD) ** 2)
    centre, level = gram[0, 1:] / rows, float(moments.cross[0]) / rows
    level /= 1 + (moments.sd / moments.scale / spread) ** 2
    cov = gram[1:, 1:] / rows - np.outer(centre, centre)
    root = np.sqrt(np.maximum(np.diag(cov), LEAST_SQUARE * usual[1:] ** 2))
    corr = cov / np.outer(root, root)
    np.fill_diagonal(corr, 1.0)
    values, vectors = np.linalg.eigh(corr)
    floor = float(np.clip(shrunk.sd * math.sqrt(len(cov)), LEAST_CORRELATED, 0.5))
    cov = (vectors * np.maximum(values, floor)) @ vectors.T * np.outer(root, root)
    cross = moments.cross[1:] / rows - centre * level
    left = moments.square / rows - level**2
    left, noise = max(left, 0.05 * spread**2), (moments.sd / moments.scale) ** 2
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


@dataclass(frozen=True, eq=False)
class ResidualLaw:
    """Mean of (|r| - c)+ and of min(|r|, c)^2 at some `thresholds`, interpolated between them.

    The first is an upper bound. `far` is the share of the squares beyond `OUTLIER` sds.
    """

    thresholds: Vector
    over: Vector
    kept: Vector
    far: float

    def excess(self, cut: Vector | float) -> Vector:
        return np.asarray(np.interp(cut, self.thresholds, self.over))

    def square(self, cut: Vector | float) -> Vector:
        return np.asarray(np.interp(cut, self.thresholds, self.kept))

    def grown(self, start: float, cut: Vector | float) -> Vector:
        """How much stronger amounts beyond `cut` depend on the columns than rows beyond `start`.

        If the scale of r is exp(a'u), a mean of u over rows that are weighted by a function of |r|
        is a times the elasticity of the mean weight in this scale. The weights are (|r| - c)+ for
        the threshold c, and `outlier_share` beyond the start.
        """
        x = np.maximum(cut, start)
        scaled = STEP * self.excess(x / STEP)  # the excess if all residuals had this factor
        clipped = np.maximum(scaled, TINY) / np.maximum(self.excess(x), TINY)
        beyond = outlier_share(self, start, STEP) / np.maximum(outlier_share(self, start), TINY)
        growth = np.log(clipped) / max(float(np.log(max(float(beyond), 1.0))), 1e-3)
        return np.asarray(np.clip(growth, 1.0, MOST_GROWTH))


STEP, MOST_GROWTH = 1.05, 3.0
"""Factor of residuals for the elasticity, and the most that a pull grows towards the threshold."""


def residual_law(
    sizes: LookCounts, count: float, *, sparse: bool = False, anywhere: bool = False
) -> ResidualLaw:
    """The law of |r|, from noisy counts of its cells; see `cuts.size_law`."""
    law = cuts.size_law(
        sizes.value[None], sizes.noise_sd, sizes.ends, count, sparse=sparse, anywhere=anywhere
    )
    over = law.over[0]
    # Outcomes with few values leave many rows in the last detected cell, and any may be at its end.
    seen = np.flatnonzero(sizes.value > cuts.START_SDS * sizes.noise_sd)
    last = int(seen.max(initial=0))
    share, density = sizes.value[last] / count, sizes.value / np.diff(sizes.ends)
    if last and share > ONE_VALUE and density[last] > density[last - 1]:
        over = np.maximum(over, share * np.maximum(sizes.ends[last + 1] - law.at, 0.0))
    return ResidualLaw(law.at, over, law.kept[0], law.far)


ONE_VALUE = 0.1
"""Share of rows in the last detected cell of residuals, above which they may be at one value. With
it, an outcome of 0 and 1 declared (0, 1) has an intercept as wide as declared [0, 1], in place of
3.6 times; slopes of public data sets are 1% wider. By hand."""


@dataclass(frozen=True, eq=False)
class Leverage:
    """Sizes ||u|| of detected rows with their shares, and the share `hidden` beyond `start`.

    `laws` are the sizes and shares of all rows, with the hidden ones just beyond the start.
    """

    sizes: Vector
    share: Vector
    start: float
    hidden: float
    square: float
    laws: tuple[Vector, Vector]

    @classmethod
    def read(cls, sizes: LookCounts, count: float, square: float) -> Leverage:
        """From noisy counts of the cells of ||u||, for the usual squared size Q."""
        counts, sd, ends = sizes.value, sizes.noise_sd, sizes.ends
        cells = len(counts)
        beyond, noise = np.cumsum(counts[::-1])[::-1], sd * np.sqrt(cells - np.arange(cells))
        last = 1
        while last + 1 < cells and beyond[last + 1] > SEEN_SDS * noise[last + 1]:
            last += 1
        # In tests without noise, all detected rows are within the last cell that has any.
        start = (
            min(max(last, 2), cells - 1) if sd else int(np.flatnonzero(np.r_[1, 1, counts[1:]])[-1])
        )
        hidden = 0.0
        if start < cells:
            hidden = min(max(float(beyond[start]), 0.0) + 0.5 * float(noise[start]), count) / count
        middle, end = (ends[1:] + ends[:-1]) / 2, float(ends[start])
        share = np.maximum(counts[:start], 0.0) / count
        every, shares = np.r_[middle[:start], 1.2 * end], np.r_[share, hidden]
        laws = every, shares / max(float(shares.sum()), TINY)
        return cls(middle[:start], share, end, hidden, square, laws)

    def lost(self, most: float) -> float:
        """Mean of (1 - w^2) ||u|| / sqrt(Q), for w = min(1, `most` / ||u||)."""
        x = np.linspace(self.start, 4 * self.start, 60)
        left = [np.maximum(1 - (most / size) ** 2, 0.0) * size for size in (self.sizes, x)]
        hidden = -np.diff(self.hidden * (self.start / x) ** LEVERAGE_INDEX)
        out = self.share @ left[0] + hidden @ (left[1][1:] + left[1][:-1]) / 2
        return float(out) / math.sqrt(self.square)


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
"""Rows are clipped at this squared leverage in the sums of outliers, in units of Q."""

LEAST_PULL, MOST_PULL = 0.15, 0.4
"""Prior sd of the mean of a coefficient's direction among outliers. The second is for outcomes that
mostly have one value, because their outliers are few, and along the fit if residuals have a long
tail, because its scale often grows with the fit. Public data, and by hand."""


PULL_SDS = 0.35
"""Posterior sds that are added to the size of this mean. Public data."""


def outlier_share(law: ResidualLaw, start: Vector | float, scale: float = 1.0) -> Vector:
    """Share of rows beyond a size x, each counting by min((|r| - x) / x, 1), at a scale of r."""
    x = np.asarray(start) / scale
    return np.asarray((law.excess(x) - law.excess(2 * x)) / x)


@dataclass(frozen=True, eq=False)
class Pull:
    """Bounds of the mean of a coefficient's direction over clipped amounts, shape (k,).

    `detected` is the part that grows from the `start` of outliers to the cut. `lever` has bounds
    for rows with leverage, relative to the usual.
    """

    size: Vector
    detected: Vector
    start: float
    lever: Vector

    @classmethod
    def read(
        cls, sums: Matrix, noise_sd: float, rows: float, across: Matrix, start: float, prior: Vector
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
        for side in sums:
            mean = across @ side / max(rows, 1.0)
            seen = np.maximum(mean**2 - 3 * noise**2, 0.0)
            size = np.maximum(prior**2, seen)
            share = size / (size + noise**2)
            mean, sd = share * mean, np.sqrt(share) * noise + TINY
            ratio = np.minimum(np.abs(mean) / sd, 40.0)  # exp(-800) is 0
            total += sd * np.sqrt(2 / np.pi) * np.exp(-0.5 * ratio**2)
            total += np.abs(mean) * (1 - 2 * ndtr(-ratio)) + PULL_SDS * sd
            detected += share * np.sqrt(seen)
        return cls(total, detected, start, np.asarray(np.maximum(1.0, total / 0.5) ** 2))

    def bound(self, growth: float | Vector) -> Vector:
        """Bounds for clipped amounts, if the detected part grows by this factor."""
        return np.asarray(self.size + np.multiply.outer(np.asarray(growth) - 1, self.detected))


# -- thresholds --------------------------------------------------------------------------------

USUAL_PULL = 0.8
"""Mean size of a coefficient's direction over all rows, for normal columns."""

LEVERAGE_GAP, GAP_ALONG = 0.2, 0.3
"""Mean distance of rows with leverage from the line, in residual sds: in any direction, and along
the fit. Public data."""

LEVERS = (1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
"""Rows may be clipped at these squared leverages h, in units of Q."""

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
    norm: float
    scale: float
    residual: float
    excess: float
    missed: float
    weight: float
    growth: float


def row_cut(
    law: ResidualLaw,
    leverage: Leverage,
    pull: Pull,
    unit: float,
    first_variance: float,
    first_excess: float,
    sampling: float,
) -> RowCut:
    """The thresholds of least half-width, for typical coefficients.

    `unit` is the noise sd of a mean of products off the diagonal, per unit of C^2. The first step
    has the mean squared noise `first_variance` in units of the second, and the mean clipped amount
    `first_excess`. `sampling` is one over the number of rows, times the design effect.
    """
    square, top = leverage.square, float(law.thresholds[-1])
    if not unit:  # in tests without noise, there is no clipping
        lever = float(leverage.start)
        beyond_all = np.flatnonzero(law.over <= 0)
        cut = float(law.thresholds[beyond_all[0]]) if len(beyond_all) else top
        return RowCut(
            lever=lever,
            norm=math.hypot(lever, lever),
            scale=lever / cut,
            residual=cut,
            excess=0.0,
            missed=0.0,
            weight=1.0,
            growth=1.0,
        )
    slopes, (sizes, share) = max(len(pull.size) - 1, 1), leverage.laws
    far = float(np.sqrt(np.mean(pull.lever[-slopes:] ** 2)))
    along = math.sqrt(1 - 1 / slopes + (GAP_ALONG / LEVERAGE_GAP) ** 2 / slopes)
    cuts = np.minimum(np.geomspace(1.0, max(1.5 * top, 1.01), 40), max(1.5 * top, 1.0))
    weight = np.array(FIRST_WEIGHTS)[:, None]
    growth = law.grown(pull.start, cuts)
    size = np.sqrt(np.mean(pull.bound(growth)[:, -slopes:] ** 2, axis=1))
    second, least, best = law.square(cuts), np.inf, None
    for h in LEVERS:
        most, norm2 = math.sqrt(h * square), (2 * h - 1) * square
        missed = LEVERAGE_GAP * leverage.lost(most)
        shrink = np.minimum(1.0, most / sizes)
        room = np.sqrt(np.maximum(norm2 - (shrink * sizes) ** 2, 0.0) / (norm2 - square)) / shrink
        excess = (share * shrink) @ law.excess(room[:, None] * cuts)
        noise = norm2 / math.sqrt(norm2 - square) * cuts * unit
        error = np.sqrt(
            second * sampling + (weight * noise) ** 2 + (1 - weight) ** 2 * first_variance
        )
        bias = size * (weight * excess + (1 - weight) * first_excess) + missed * far * along
        # a row with weight w has w^2 of its information
        half = folded_quantile(bias / error) * error / (share @ (shrink * sizes) ** 2)
        i, j = np.unravel_index(int(np.argmin(half)), half.shape)
        if best is None or half[i, j] < least:
            least, cut = float(half[i, j]), float(cuts[j])
            best = RowCut(
                lever=most,
                norm=math.sqrt(norm2),
                scale=math.sqrt(norm2 - square) / cut,
                residual=cut,
                excess=float(excess[j]),
                missed=missed,
                weight=FIRST_WEIGHTS[i],
                growth=float(growth[j]),
            )
    assert best is not None
    return best


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


def second_fit(second: RowMoments, weight: float, first: RowMoments, fit: FirstFit) -> SecondFit:
    """Coefficients of r on u / usual, from the second step and, by `weight`, the first.

    The moments of u are shrunken to the identity by the share of their noise. Directions with low
    eigenvalues are lifted, and the interval shows that their slope is known to that share only.
    """
    usual, size = fit.usual, len(fit.usual)
    eye, sizes = np.eye(size), np.outer(usual, usual)
    other, missed = 1 - weight, first.cross - first.gram @ fit.coef
    gram = weight * second.gram / sizes + other * fit.turn @ first.gram @ fit.turn.T
    cross = weight * second.cross / usual + other * fit.turn @ missed / fit.scale
    norm2 = (fit.turn**2).sum(axis=1)
    variance = (weight * second.sd / sizes) ** 2 + (other * first.sd) ** 2 * np.outer(norm2, norm2)
    variance = variance * (1 + eye)
    gap = gram - eye
    wide = max(float((gap**2).sum() - variance.sum()), 0.0) / (size * size + size) * (1 + eye)
    keep = wide / np.maximum(wide + variance, TINY)
    values, vectors = np.linalg.eigh(eye + keep * gap)
    left = keep * variance
    lift = float(np.clip(LIFT * math.sqrt(size * left.mean()), LEAST_LIFT, MOST_LIFT))
    lift = lift if second.sd else 0.0
    raised = np.maximum(values, lift + TINY)
    gram = (vectors * raised) @ vectors.T
    delta = (vectors / raised) @ vectors.T @ cross
    noise = weight**2 * np.diag((second.sd / second.scale / usual) ** 2)
    noise += (other * first.sd / first.scale / fit.scale) ** 2 * fit.turn @ fit.turn.T
    slope = float(fit.coef @ fit.coef) / fit.scale**2
    noise += (other * first.sd) ** 2 * slope * np.diag(norm2)
    entry = left / (1 + eye)
    noise += np.diag(entry @ delta**2) + entry * np.outer(delta, delta)
    short = np.where(lift > values, lift - np.maximum(values, 0.0), 0.0)
    unknown = 2 * float(delta @ delta) / size + 0.1
    noise += (vectors * (short**2 * unknown)) @ vectors.T
    total = max(second.square, 0.02 if second.sd else 0.0)
    least = 0.05 * total if second.sd else ROUNDING
    return SecondFit(delta, gram, noise, max(total - float(delta @ cross), least))


MEAT_GAP, LEAST_MEAT = 0.3, 0.3
"""Prior sd of the meat's distance from equal variances, and its least eigenvalue, both relative."""

ROUNDING = 1e-9
"""Least mean squared residual without noise: that of rounding to the grid, by hand."""


def robust_meat(
    released: Matrix, noise_sd: float, usual: Vector, square: float, model: Matrix
) -> Matrix:
    """The released mean of v v', shrunken to the `model`, such as that for equal variances."""
    sizes, eye = np.outer(usual, usual), np.eye(len(usual))
    gap, variance = released / sizes - model, (noise_sd / sizes) ** 2 * (1 + eye)
    count = len(usual) * (len(usual) + 1)
    wide = max(float((gap**2).sum() - variance.sum()) / count, (MEAT_GAP * square) ** 2)
    meat = model + wide * (1 + eye) / (wide * (1 + eye) + variance) * gap
    root = np.sqrt(np.diag(model))
    values, vectors = np.linalg.eigh(meat / np.outer(root, root))
    least = LEAST_MEAT if noise_sd else min(ROUNDING / square, 1.0)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T * np.outer(root, root))


def estimate_coefficients(
    terms: tuple[ResultTerm, ...],
    first: Vector,
    lift: Matrix,
    second: SecondFit,
    meat: Matrix,
    count: float,
    bias: Vector,
    hidden: Vector,
) -> AverageEstimate:
    """Coefficients `first` + `lift` delta, with their covariance and the bounds of their bias.

    `lift` (k, p) maps delta to natural coefficients, and `meat` is the covariance of sqrt(n) times
    the normal equations, by sampling. `bias` bounds the change of each coefficient by clipping, per
    unit of the norm of its row. `hidden` is the sampling variance of the clipped amounts, per
    squared unit of the norm. Least squares on all rows has it, and no interval is narrower.
    """
    by = lift @ np.linalg.inv(second.gram)
    estimate, moved = first + lift @ second.delta, by * bias[:, None]
    sampling, privacy = by @ meat @ by.T / count, by @ second.noise @ by.T
    clipped, norm2 = np.linalg.norm(moved, axis=1), (by**2).sum(axis=1)
    half = covering(USUAL_Z, clipped, np.sqrt(np.diag(sampling + privacy)))
    least = USUAL_Z**2 * (np.diag(sampling) + norm2 * hidden)
    sampling += np.diag(np.maximum(least - half**2, 0.0) / USUAL_Z**2)
    # R squared: u = lift'x for the natural columns x. The first one is 1.
    # The variance that noise in the coefficients adds to the fit is subtracted.
    back = np.linalg.pinv(lift)
    natural = back.T @ second.gram @ back  # of x x', up to a factor
    square, natural = second.square / float(natural[0, 0]), natural / natural[0, 0]
    centred = natural - np.outer(natural[0], natural[0])
    whole, noise = float(estimate @ centred @ estimate), float(np.trace(centred @ privacy))
    r2 = np.nan  # if noise is more than half of the variance of the fit
    if noise <= 0.5 * whole:
        r2 = (whole - noise) / max(whole - noise + square, TINY)
    return AverageEstimate(
        terms,
        (),
        estimate,
        sampling,
        privacy,
        clipped,
        np.zeros(len(terms)),
        count,
        moved=moved[None],
        r2=r2,
    )


# -- the steps --------------------------------------------------------------------------------

MOST_HIDDEN = 0.5
"""Share of detected rows below which the outcome is taken to be normal."""

LEAST_DEVIATION = 1e-3
"""Least sd of the outcome, relative to half of its range, if all rows have one value."""

RAREST = 0.01
"""Least share of a value of a column with two values, for its scale."""


def _outcome_scale(state: first_stages.FitState) -> tuple[float, float, bool]:
    """Mean and sd of the detected outcomes, and whether most of them are at single values.

    Rows that are hidden by noise may lie at an eighth of the range.
    """
    outcome, stage = state.outcome, first_stages.OUTCOME_RANGE
    name, rows = state.request.formula.outcome, _rows(state)
    release = state.release(stage, state.queries[stage])
    counts, noise_sd = release.value, float(release.noise_sd[0])
    state.check_domain(name, counts, noise_sd, stage)
    hidden = noise_sd / rows
    if not isinstance(state.schema[name], Interval):
        least = max(RAREST, 0.5 * hidden)
        share = float(np.clip(counts[-1] / rows, min(least, 0.5), max(1 - least, 0.5)))
        return share, math.sqrt(share * (1 - share)), False
    ends = outcome.lo + np.r_[0.0, outcome_edges(Interval(outcome.lo, outcome.hi))]
    detected = np.where(visible_cells(counts, noise_sd, 1), np.maximum(counts, 0.0), 0.0)
    if detected.sum() < MOST_HIDDEN * rows and noise_sd:
        # posterior means of the mean and the sd of a normal outcome
        laws, middles, sds = ranges.normal_laws(ends)
        chance = likelihoods(counts, noise_sd, rows * laws)
        chance /= chance.sum()
        return float(chance @ middles), float(chance @ sds), False
    middles, shares = 0.5 * (ends[1:] + ends[:-1]), detected / detected.sum()
    mean = float(shares @ middles)
    hidden = min(max(ranges.HIDDEN_SDS * hidden, 1 - float(detected.sum()) / rows), 1.0)
    least = outcome.bound * max(0.25 * math.sqrt(hidden), LEAST_DEVIATION)
    sd = max(math.sqrt(float(shares @ (middles - mean) ** 2)), least)
    return mean, sd, sparse(detected, ends)


@dataclass(frozen=True, eq=False)
class _FirstStep:
    """The first step: its moments, the fit and its residuals.

    Q = `square` is the squared norm of the sizes of whitened features. The response
    was clipped at `reach`. `natural` maps coefficients of the features to natural ones, and
    `params` are the natural coefficients of the fit. `mean` is the mean outcome. `sparse`: most
    outcomes are at single values. A row has the weight (`unit` root)^2. `start` belongs to a
    generalized linear model; the fit then has its coefficients.
    """

    features: FeatureMap
    moments: RowMoments
    reach: float
    fit: FirstFit
    square: float
    residual: vault.OutcomeResidual | vault.WorkingResidual
    natural: Matrix
    params: Vector
    mean: float
    sparse: bool
    root: vault.Transform | None
    unit: float
    start: _Start | None = None

    def turned(self, lever: float) -> functions.Turned:
        """Whitened columns u, with a limit of their norm."""
        return functions.Turned(self.features, self.fit.turn.T * self.fit.usual, lever)


def _scaled_features(state: first_stages.FitState) -> tuple[FeatureMap, Vector, Matrix]:
    """Features of sd 1 in the population, their usual sizes, and the map to natural coefficients.

    Of a column with two values, the rare one has a large distance from the mean: at a share of 1%,
    ten sds. Its feature is smaller, so that the distance equals the usual norm of all features.
    """
    features, columns = state.features, state.design.columns
    blocks, usual, root = [], [1.0], math.sqrt(state.features.size)
    scaled = state.rows.scaled(state.design)
    natural = np.zeros((1 + len(columns), features.size))
    natural[0, 0] = 1.0
    for j, block in enumerate(features.blocks, 1):
        values, column, size = scaled[:, block.column], columns[block.column], 1.0
        low, sd = 0.0 if column.kind == "indicator" else -1.0, float(values.std())
        if ((values == low) | (values == 1.0)).all() or not np.ptp(values):
            share = float(np.clip((block.shift - low) / (1.0 - low), RAREST, 1 - RAREST))
            sd = math.sqrt(share * (1 - share))
            size = min(1.0, root * sd / max(share, 1 - share))
            sd *= 1.0 - low
        gain = size / sd
        blocks.append(replace(block, gain=gain))
        usual.append(size)
        slope = gain * column.per_unit
        natural[1 + block.column, j] = slope
        natural[0, j] = -slope * column.middle - gain * block.shift
    lever = math.sqrt(LEVER * float(np.square(usual).sum()))
    return FeatureMap(features.design, tuple(blocks), lever), np.array(usual), natural


def _first_step(state: first_stages.FitState) -> _FirstStep:
    outcome, columns, request = state.outcome, state.design.columns, state.request
    mean, spread, single = _outcome_scale(state)
    features, usual, natural = _scaled_features(state)
    farthest = 1.02 * max(mean - outcome.lo, outcome.hi - mean)
    reach = min(REACH * spread, farthest)
    if request.estimand in GENERALIZED:
        # One step from the start asks for less bias, and clipping two values would scale the
        # slopes. At the largest leverage, a row has sqrt(2) times less room for its outcome.
        farthest *= math.sqrt(2)
        noise = 3 * _unit(state, budget.GRAM) * math.sqrt(float(usual @ usual) / 2)
        quiet = START_NOISE / max(noise, TINY) * spread
        reach = farthest if request.estimand == "logit" else max(reach, min(quiet, farthest))
    # roots of the survey weights over their largest, and the factor that makes their mean 1
    weight, unit, law = None, 1.0, state.weights
    if law is not None:
        weight = vault.SurveyWeight(law.column, law.top, root=True)
        unit = math.sqrt(law.top / law.mean)
    root = features.cut / math.sqrt(LEVER)
    row = vault.RegressionRow(
        features,
        vault.OutcomeResidual(Constant(mean), outcome),
        weight,
        unit,
        root * math.sqrt(2 * (LEVER - 1)) / reach,
        root * math.sqrt(2 * LEVER - 1),
    )
    moments = _moments(state, budget.GRAM, row, row.scale)
    scaled = replace(state, features=features, weights=None)
    count = scaled.count
    dependent = first_stages.dependent(scaled, count * moments.gram, count * moments.sd)
    model = population_gram(features, dependent.rows, count, np.ones(len(dependent.rows)))
    shrunk = shrunken(moments.gram, model / count, moments.sd, features)
    # The feature of the first term is whitened last if it has one column of two values, as a
    # treatment has.
    formula, focus = request.formula, None
    first = next((t.name for t in (*formula.modifiers, *formula.controls)), None)
    owners = [columns[block.column] for block in features.blocks]
    places = [j for j, column in enumerate(owners, 1) if column.term == first]
    if len(places) == 1:
        focus = places[0] if owners[places[0] - 1].kind == "indicator" else None
    fit = first_fit(moments, shrunk, usual, spread, focus)
    eta = Additive(features, fit.coef, mean)
    far = float(np.abs(fit.coef) @ features.ends)  # eta is not clipped to the outcome's bounds
    wide = vault.Outcome(min(outcome.lo, mean - far), max(outcome.hi, mean + far))
    params = natural @ fit.coef
    params[0] += mean
    return _FirstStep(
        features=features,
        moments=moments,
        reach=reach,
        fit=fit,
        square=float(fit.usual @ fit.usual),
        residual=vault.OutcomeResidual(eta, wide),
        natural=natural,
        params=params,
        mean=mean,
        sparse=single,
        root=weight,
        unit=unit,
    )


# -- generalized linear models -----------------------------------------------------------------

MOST_ODDS, MOST_LOG, LEAST_PROPORTION = 6.0, 4.0, 0.01
"""Log odds are clipped to [-6, 6], and logarithms of means to 4 around the overall one. The
overall share of a value is at least a hundredth."""

START_RIDGE, STEP_RIDGE = 0.02, 0.1
"""Ridges of the start and of the full step, relative to the moments. Public data."""

BENT = 0.5
"""Share of the step's curvature that counts as its error. Public data."""

START_NOISE = 0.015
"""Noise of the first step's moments, in sds of the outcome, up to which the start of a Poisson
regression clips larger outcomes than least squares. Simulated laws: coverage of .85 becomes .92."""

LEAST_WEIGHTS = {"logit": 0.6, "poisson": 0.8}
"""Least weight of a row in Newton's step, relative to the variance at the overall mean. Rows where
the model expects one value have the largest working residuals, and clipping them biases the step.
Larger weights ask more of the synthetic population. Public data."""

TINY_RIDGE = 1e-6
"""Added to moments of the synthetic population, so that constant columns do not stop the fit."""

OTHER_MODEL = 1e9
"""Variance of the first step's moments, which are not moments of a generalized linear model."""


@dataclass(frozen=True, eq=False)
class _Start:
    """The family, and whitened columns u (N, p) and eta (N,) of the synthetic population.

    `most` is the largest working residual times the root of its weight.
    """

    family: Family
    u: Matrix
    eta: Vector
    most: float


def _linked(state: first_stages.FitState, first: _FirstStep) -> _FirstStep:
    """The start of Newton's step: coefficients b with the moments of the linear fit.

    In the synthetic population, E[w u mu(u'b)] is the linear fit's E[w u Y], with the weights w
    that distant rows have in that fit. Newton's step at b is least squares of the working residual
    (Y - mu) / V with the weights V (McCullagh and Nelder 1989, section 2.5). Here, no weight is
    below a constant: the scores are the same, and `_full_step` replaces their moments by those
    under V. Columns are whitened under the weights.
    """
    sizes, turn = first.fit.usual, first.fit.turn
    # The columns of the synthetic population become white, like the columns of the rows.
    phi = np.asarray(state.rows.phi(first.features))
    u = phi @ turn.T
    u[:, 1:] -= u[:, 1:].mean(axis=0)
    u[:, 1:] = u[:, 1:] @ _whitening(u[:, 1:].T @ u[:, 1:] / len(u), None).T
    linear = np.linalg.solve(turn.T, first.fit.coef)
    mean, outcome = first.mean + float(linear[0]), state.outcome
    if state.request.estimand == "logit":
        mean = min(max(mean, LEAST_PROPORTION), 1 - LEAST_PROPORTION)
        family, scale = Family("logit", -MOST_ODDS, MOST_ODDS), 1.0
        centre = float(logit(mean))
    else:
        least = max(first.mean, LEAST_DEVIATION * outcome.hi)
        mean = max(mean, LEAST_PROPORTION * least)
        centre = math.log(mean)
        family = Family("poisson", centre - MOST_LOG, centre + MOST_LOG)
        scale = first.fit.scale / math.sqrt(mean)  # the root of the dispersion
    near = np.zeros(len(sizes))
    linear[0], near[0] = mean, centre
    usual = float(family.variance(np.array(mean)))
    family = replace(family, least=LEAST_WEIGHTS[family.name] * usual)
    ridge = START_RIDGE * usual * np.eye(len(sizes))
    weighted = u * first.features.weight(phi)[:, None]
    target = weighted.T @ (u @ linear) / len(u)
    b = _solved(family, u, weighted, np.zeros(len(u)), target, near, ridge)
    offset, coef = u @ b, turn.T @ b
    last = int(np.argmax(sizes)) if sizes.max() > 1.0 else None
    again = _whitening((u.T * family.weight(family.mean(offset))) @ u / len(u), last)
    eta, residual = Additive(first.features, coef), (outcome.lo, outcome.hi)
    ends = family.mean(np.array([family.lo, family.hi]))
    far = np.abs(np.subtract.outer(residual, ends)) / np.sqrt(family.weight(ends))
    root: vault.Transform = vault.LinkWeight(family, eta)
    if first.root is not None:
        root = vault.TransformProduct(first.root, root)
    return replace(
        first,
        fit=FirstFit(coef, again @ turn, sizes, scale),
        residual=vault.WorkingResidual(family, eta, state.outcome),
        params=first.natural @ coef,
        root=root,
        unit=first.unit * math.sqrt(family.most),
        start=_Start(family, u @ again.T, offset, float(far.max())),
    )


def _whitening(gram: Matrix, last: int | None) -> Matrix:
    """W with W gram W' = 1, lower triangular with the column `last` at the end."""
    order = np.argsort(np.arange(len(gram)) == last, kind="stable")
    at, out = np.ix_(order, order), np.zeros_like(gram)
    out[at] = np.linalg.inv(np.linalg.cholesky(gram[at] + TINY_RIDGE * np.eye(len(gram))))
    return out


def _solved(
    family: Family,
    u: Matrix,
    weighted: Matrix,
    offset: Vector,
    target: Vector,
    near: Vector,
    ridge: Matrix,
) -> Vector:
    """d with E[w u mu(offset + u'd)] + ridge (d - near) = target, by damped Newton steps.

    `weighted` are the rows w u.
    """
    d, rows = near, weighted.T / len(u)
    mean = family.mean(offset + u @ d)
    score = rows @ mean - target
    for _ in range(25):
        hessian = (rows * family.variance(mean)) @ u + ridge
        step, share = np.linalg.solve(hessian, score), 1.0
        while share > 1e-3:
            new = d - share * step
            mean = family.mean(offset + u @ new)
            left = rows @ mean + ridge @ (new - near) - target
            if np.linalg.norm(left) < np.linalg.norm(score):
                break
            share /= 2
        if share <= 1e-3:
            break
        d, score = new, left
        if np.linalg.norm(score) < 1e-8:
            break
    return d


def _full_step(start: _Start, delta: Vector) -> tuple[Vector, Matrix, Vector, Matrix]:
    """The change d whose score in the synthetic population is `delta`, and what follows from it.

    `delta` are least-squares coefficients of the whitened columns, which equal the score. The bend
    is the distance of d from Newton's step, which is exact for small changes. The last matrix is
    the mean of squared scores if the variance is V, relative to the mean squared residual.

    Returns
    -------
    tuple
        d, its slope in `delta`, the bend, and the squared scores.
    """
    family, u = start.family, start.u
    mean = family.mean(start.eta)
    curvature = (u.T * family.variance(mean)) @ u / len(u) + TINY_RIDGE * np.eye(len(delta))
    newton = np.asarray(np.linalg.solve(curvature, delta))
    target = u.T @ mean / len(u) + delta
    d = _solved(family, u, u, start.eta, target, newton, STEP_RIDGE * curvature)
    v = family.variance(family.mean(start.eta + u @ d))
    hessian = (u.T * v) @ u / len(u)
    slope = np.asarray((1 + STEP_RIDGE) * np.linalg.inv(hessian + STEP_RIDGE * curvature))
    return d, slope, d - newton, hessian / np.mean(v / family.weight(mean))


def _rows(state: first_stages.FitState) -> float:
    """Complete rows: the public number of rows, unless a count shows that some lack values."""
    population, size = state.population, state.vault.size
    if size is None or state.request.trust.unit is not None:
        return max(population.count, 1.0)
    public = size - population.count <= 2 * population.count_sd
    return float(size) if public else max(population.count, 1.0)


def _moments(
    state: first_stages.FitState, stage: StageKey, row: vault.RegressionRow, scale: float
) -> RowMoments:
    query, count = vault.RegressionMoments(row), _rows(state)
    release = state.release(stage, query)
    mean, sd = query.matrix(release.value) / count, first_stages.off_diagonal_sd(query, release)
    cross, square = np.asarray(mean[:-1, -1] / scale), float(mean[-1, -1]) / scale**2
    return RowMoments(mean[:-1, :-1], cross, square, sd / count, scale)


def _unit(state: first_stages.FitState, stage: StageKey) -> float:
    """Noise sd of a mean of products off the diagonal, per unit of a row's squared norm.

    An entry off the diagonal has the weight sqrt(2) in the norm of the whole matrix.
    """
    substitute = state.request.trust.neighbors == "substitute"
    change = math.sqrt(2.0) if substitute else 1.0
    silent = not state.releases[-1].noise_sd.any()
    sd = 0.0 if silent else budget.noise_sd(state.plan, stage, change) / math.sqrt(2.0)
    return sd / _rows(state)


def _second_step(state: first_stages.FitState, first: _FirstStep) -> AverageEstimate:
    request, fit = state.request, first.fit
    count, scale = _rows(state), fit.scale
    effect = 1.0 if state.weights is None else state.weights.design_effect
    lift = first.natural @ fit.turn.T
    law, leverage, pull = _sizes(state, first, lift)
    # Mean squared noise of the first step in units of the second, and its mean clipped amount.
    first_excess, norm2 = float(law.excess(first.reach / scale)), (fit.turn**2).sum(axis=1)
    variances = norm2 * ((1 / first.moments.scale) ** 2 + float(fit.coef @ fit.coef))
    variances *= (first.moments.sd / scale * fit.usual) ** 2
    first_variance = float(variances[1:].mean() if len(variances) > 1 else variances[0])
    if first.start is not None:
        first_variance, first_excess = OTHER_MODEL, 0.0
    unit = _unit(state, SECOND_MOMENTS)
    cut = row_cut(law, leverage, pull, unit, first_variance, first_excess, effect / count)
    row = vault.RegressionRow(
        first.turned(cut.lever), first.residual, first.root, first.unit, cut.scale / scale, cut.norm
    )
    moments = _moments(state, SECOND_MOMENTS, row, cut.scale)
    # Note collinear and constant columns. Absent levels have another alert.
    columns, noisy = state.design.columns, moments.sd > 0
    half = np.array([0.0 if noisy and c.kind == "indicator" else 1 / c.per_unit for c in columns])
    masks = collinear(moments.gram, moments.sd, lift * fit.usual, half)
    for mask, text in zip(masks, COLLINEAR, strict=True):
        if mask.any():
            names = estimands.listed([columns[k].name for k in np.flatnonzero(mask)])
            if not noisy:  # a test without noise, where the moments are singular
                raise DataError(text.format(names=names))
            state.note((("collinear", text.format(names=names)),))
    second = second_fit(moments, cut.weight, first.moments, fit)
    positive = count * (1.0 if state.weights is None else state.weights.positive)
    delta, step, model = second.delta, lift * scale, second.square * second.gram
    if first.start is not None:
        delta, slope, bend, squares = _full_step(first.start, scale * second.delta)
        step, model = lift @ slope * scale, second.square * squares
    meat: Matrix = model * count / max(positive - len(lift), 1.0)
    if request.cov_type != "nonrobust":
        meat = _meat(state, first, row, cut, second, model)
    # The bias of each coefficient, per unit of the norm of its row.
    pulls = pull.bound(cut.growth)
    share = fit.along(lift @ np.linalg.inv(second.gram)) ** 2
    gap = np.sqrt(1 - share + share * (GAP_ALONG / LEVERAGE_GAP) ** 2)
    lost = cut.weight * cut.excess + (1 - cut.weight) * first_excess
    bias = np.asarray(lost * pulls + cut.missed * pull.lever * gap)
    if state.beyond is not None:  # Add the bias beyond estimated bounds.
        bias += cut.lever * state.beyond.lost / count / scale
    # Mean squares of residuals beyond the threshold, at most, for each coefficient.
    beyond = max(float(law.kept[-1] - law.square(cut.residual)), 0.0)
    hidden = np.asarray(beyond * np.maximum(1.0, pulls / USUAL_PULL) ** 2) * effect / count
    terms = (ResultTerm("coefficient", "Intercept"), *(c.slope for c in state.design.columns))
    estimate = estimate_coefficients(terms, first.params, step, second, meat, count, bias, hidden)
    if first.start is not None:
        bend = BENT * lift @ bend
        privacy = estimate.privacy + np.outer(bend, bend)
        values = first.params + lift @ delta
        estimate = replace(estimate, estimate=values, privacy=privacy, r2=np.nan)
    state.alerts |= _alerts(state, first, estimate, law, leverage, delta)
    scores = partial(_influences, row, first, second, estimate, step)
    return with_weights(state, with_dependence(state, estimate, scores, len(terms)))


def _sizes(
    state: first_stages.FitState, first: _FirstStep, lift: Matrix
) -> tuple[ResidualLaw, Leverage, Pull]:
    """Sizes of residuals and rows, and how outliers pull each coefficient: one pass."""
    count, scale = _rows(state), first.fit.scale
    root, unit = first.root, first.unit
    residual = vault.TransformProduct(root, first.residual) if root else first.residual
    top = residual.bound * unit
    if root is None:
        top = min(top, 1.05 * 2 * state.outcome.bound)
    if first.start is not None:
        top = min(top, first.start.most * unit / math.sqrt(first.start.family.most))
    # upper borders of the cells of |r|, ascending to the largest |r|
    longest, borders = top / scale, list(RESIDUAL_EDGES)
    while 2 * borders[-1] < 0.9 * longest:
        borders.append(2 * borders[-1])
    edges = np.array([edge for edge in borders if edge < 0.9 * longest] + [longest])
    starts = edges[(edges >= 1.0) & (edges < edges[-1])]
    starts = starts if len(starts) else edges[:1]
    plain = vault.RegressionRow(first.turned(np.inf), first.residual, root, unit)
    most = math.sqrt(OUTLIER_REACH * first.square)
    row = replace(plain, features=first.turned(most))
    norm_edges = np.sqrt(first.square * np.array(LEVERAGE_EDGES))
    norm_edges = np.r_[norm_edges[norm_edges < 0.99 * plain.bound], plain.bound]
    histograms = {
        FIRST_SIZES: vault.SizeHistogram(residual, edges * scale / unit, FIRST_SIZES.query),
        ROW_SIZES: vault.SizeHistogram(plain, norm_edges, ROW_SIZES.query),
    }
    outliers = [vault.OutlierSums(row, start * scale) for start in starts.tolist()]
    state.gather({**histograms, OUTLIERS: outliers})
    releases = [state.release(stage, query) for stage, query in histograms.items()]
    sizes, norms = (
        LookCounts(release.value, float(release.noise_sd[0]), np.r_[0.0, upper])
        for release, upper in zip(releases, (edges, norm_edges), strict=True)
    )
    anywhere = state.request.tails == "any"
    law = residual_law(sizes, count, sparse=first.sparse, anywhere=anywhere)
    leverage = Leverage.read(norms, count, first.square)
    # Outliers start beyond the last size where they exceed the noise of their sums.
    change = 2.0 if state.request.trust.neighbors == "substitute" else 1.0
    noise = budget.noise_sd(state.plan, OUTLIERS, change) * most if sizes.noise_sd else 0.0
    seen = np.flatnonzero(outlier_share(law, starts) * count > OUTLIER_SDS * noise)
    last = int(seen[-1]) if len(seen) else 0
    release = state.release(OUTLIERS, outliers[last])
    sums = outliers[last].split(release.value)[0]
    across = lift / np.linalg.norm(lift, axis=1, keepdims=True) / first.fit.usual
    rows = float(outlier_share(law, starts[last])) * count
    along = np.abs(first.fit.along(lift))
    share = 1.0 if first.sparse else along * min(law.far / cuts.LONG_FROM, 1.0)
    prior = np.asarray(np.hypot(LEAST_PULL, MOST_PULL * share) + 0 * along)
    return law, leverage, Pull.read(sums, noise, rows, across, float(starts[last]), prior)


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
    # mean squares of the columns that the other columns do not explain
    upper, lower = (
        np.asarray(1 / (into @ (1 / np.maximum(curvature, 1e-12 * values[-1])))[1:])
        for curvature in (values + most, values - FEW_SDS * direction)
    )
    back = np.linalg.pinv(lift)
    second = back.T @ moments @ back
    centred = (back - np.outer(back[:, 0], second[0] / second[0, 0]))[:, 1:]
    doubt = norm.isf(FALSE_ALARMS / 2 / p) * direction * (centred**2).sum(axis=0)
    variance = np.einsum("ij,ik,kj->j", centred, moments, centred) - doubt
    seen = variance > 1e-9 * np.diag(second)[1:]
    limit = np.where(seen, variance / INFLATION, (CONSTANT * half) ** 2)
    exact = (lower < 1e-6 * limit) & (upper < limit)
    return exact & seen, exact & ~seen


FEW_EVENTS, SEPARATED_SHARE = 50, 0.02
"""Expected events of an alert, and share of rows whose log odds are far from the mean. By hand."""

LOG_SPREAD = 0.5
"""Residual sd as a share of the mean, above which the logarithm of an amount changes its tail."""

LONG_SHARE = 0.1
"""Share of the squares of residuals, or of columns, that few rows may have. By hand."""


def _alerts(
    state: first_stages.FitState,
    first: _FirstStep,
    estimate: AverageEstimate,
    law: ResidualLaw,
    leverage: Leverage,
    delta: Vector,
) -> dict[str, str]:
    alerts, outcome, start = dict[str, str](), state.request.formula.outcome, first.start
    two = start is not None and start.family.name == "logit"
    if start is not None and two:
        if min(first.mean, 1 - first.mean) * estimate.size < FEW_EVENTS:
            alerts["events"] = RARE_EVENTS.format(outcome=outcome, few=FEW_EVENTS)
        middle = float(logit(min(max(first.mean, 1e-6), 1 - 1e-6)))
        distance = np.abs(start.eta + start.u @ delta - middle)
        if np.mean(distance >= MOST_ODDS) > SEPARATED_SHARE:
            alerts["separation"] = SEPARATION.format(outcome=outcome)
    if law.far > LONG_SHARE and not state.unlimited and not two:
        # Advise the logarithm if the outcome is not negative and not a logarithm already.
        amount = state.outcome.lo >= 0 and first.fit.scale > LOG_SPREAD * first.mean
        amount &= start is None
        logged = re.match(r"(\w+\.)?(log|ln)(\d|_|\b|p)", outcome)
        advice = LOGARITHM if amount and not logged else OTHERWISE
        alerts["tail"] = LONG_TAIL.format(outcome=outcome, advice=advice)
    sizes, share = leverage.laws
    squares = sizes**2 * share
    distant = float(squares[sizes > FAR * math.sqrt(leverage.square)].sum())
    if distant / max(squares.sum(), TINY) > LONG_SHARE:
        alerts["leverage"] = ISOLATED
    far = estimate.clipping > 2 * estimate.sd
    if far.any():
        biased = estimands.listed([estimate.names[k] for k in np.flatnonzero(far)])
        alerts["bias"] = CLIPPING.format(names=biased)
    return alerts


def _meat(
    state: first_stages.FitState,
    first: _FirstStep,
    row: vault.RegressionRow,
    cut: RowCut,
    second: SecondFit,
    model: Matrix,
) -> Matrix:
    """Squared residuals of the second fit, at all columns."""
    count, scale = _rows(state), first.fit.scale
    # Clip rows at a norm whose noise is a tenth of the squares, within limits.
    noise, usual = _unit(state, MEAT), math.sqrt(first.square)
    most = cut.lever * (cut.residual + cut.norm / cut.scale)
    if noise:
        low, high = 0.8 * usual * cut.residual, cut.lever * cut.residual
        most = float(np.clip(math.sqrt(0.1 * second.square / noise), low, max(low, high)))
    query = vault.ResidualMoments(row, second.delta / first.fit.usual * scale, scale * most)
    release, unit = state.release(MEAT, query), 1 / (count * scale**2)
    if state.request.cov_type == "HC1":
        unit *= count / max(count - len(second.delta), 1.0)
    matrix, sd = query.matrix(release.value), first_stages.off_diagonal_sd(query, release)
    return robust_meat(unit * matrix, unit * sd, first.fit.usual, second.square, model)


INFLUENCE_CUT = 5.0
"""Largest influence of a row on a coefficient in squared cluster sums, in root mean squares of the
influences. Normal columns and residuals exceed it for three rows in a thousand. By hand."""


def _influences(
    row: vault.RegressionRow,
    first: _FirstStep,
    second: SecondFit,
    estimate: AverageEstimate,
    lift: Matrix,
) -> list[ClusterScore]:
    """Influences of rows on each coefficient, times the number of rows."""
    n, scores, scale = estimate.size, [], first.fit.scale
    most = INFLUENCE_CUT if estimate.privacy.any() else np.inf
    delta = second.delta / first.fit.usual * scale
    by_each = lift @ np.linalg.inv(second.gram) / first.fit.usual / scale
    for by, variance in zip(by_each, np.diag(estimate.sampling), strict=True):
        cut = float(min(most, np.sqrt(n)) * np.sqrt(n * variance))  # No influence exceeds sqrt(n).
        influence = vault.RegressionInfluence(row, delta, by, cut)
        scores.append(ClusterScore(vault.CutScore(influence, cut), 0, n, n))
    return scores


# -- the learner ------------------------------------------------------------------------------


class LeastSquares(Learner):
    """Ordinary or weighted least squares with private coefficients and standard errors."""

    name: ClassVar[str] = "regress"
    title: ClassVar[str] = "least squares"
    whole: ClassVar[str] = "a regression has no nuisance models"
    fixed_base: ClassVar[bases.PrivateBase | None] = bases.Linear()
    shares: ClassVar[Mapping[str, float]] = {
        "bounds": budget.TOP_BOUNDS,
        "nuisance": 0.2,  # Everything before the whitened moments. Public data.
        "effect": 0.8,  # The coefficients themselves. Public data.
    }
    steps: ClassVar[tuple[Step, ...]] = (
        Step(first_stages.MARGINALS, 0.035),
        Step(budget.GRAM, 0.15),
        Step(first_stages.OUTCOME_RANGE, 0.02, borders=outcome_edges),
        Step(FIRST_SIZES, 0.0675),
        Step(ROW_SIZES, 0.0225),
        Step(OUTLIERS, 0.03),
        Step(SECOND_MOMENTS, 0.655),
        Step(MEAT, 0.02, ("robust errors",)),
        Step(budget.ROW_WEIGHTS, 0.02, ("weights",)),
        CLUSTER_STEP,
    )

    def counted(self, plan: Plan) -> tuple[float, int]:
        sd, groups = super().counted(plan)  # A mean compares no groups: a row changes one count.
        if not plan.request.formula.terms:
            sd, groups = sd / np.sqrt(2.0), 1
        if plan.request.estimand in GENERALIZED:
            # Newton's step divides by moments: the largest eigenvalue of their noise, for rows of
            # twice the usual squared norm p, is 4 p^1.5 noise sds, over the number of rows.
            p = 1 + len(plan.request.formula.terms)
            noise = budget.noise_sd(plan, SECOND_MOMENTS, 1.0)
            sd, groups = max(sd, 4 * p**1.5 * noise / (MOST_MOMENT_NOISE * FEW_SDS)), 0
        return sd, groups

    def run(self, fit: first_stages.Fit) -> estimands.Estimate:
        state = first_stages.prepare(fit, linear_terms=False)
        first = _first_step(state)
        if state.request.estimand in GENERALIZED:
            first = _linked(state, first)
        averages = _second_step(state, first)
        return state.finished(state.design, state.population, averages=averages)

    @classmethod
    def describe(cls, estimate: estimands.Estimate) -> estimands.Description:
        request = estimate.plan.request
        robust = request.cov_type != "nonrobust" or request.cluster is not None
        linear = request.estimand == "OLS"
        r2 = np.nan if estimate.averages is None else estimate.averages.r2
        explained = f"{r2:.3f}" if np.isfinite(r2) else "hidden by noise"
        shown, scale = linear and estimate.averages is not None, estimands.words_of(request)
        reading = [COEFFICIENT_READING]
        if isinstance(scale, Linked):
            reading.append(EXPONENTIALS.format(scale=scale.name, ratio=scale.exponential))
        return estimands.Description(
            title=cls.title if linear else "Newton's step",
            rows=(
                ("Covariance", request.cov_type),
                *((("R-squared (noisy)", explained),) if shown else ()),
            ),
            reading=tuple(reading),
            assumptions=(
                PROJECTION if linear else MOMENTS_OF_MEAN,
                *(() if robust else (HOMOSKEDASTIC,)),
                CLIPPED_ROWS,
                *(() if linear else (ONE_STEP,)),
                estimands.BOUNDED,
            ),
            methods=(
                REGRESSION_METHODS[0].format(estimator=cls.title if linear else "Newton's method"),
                *REGRESSION_METHODS[1:],
                *(() if linear else (NEWTON,)),
                estimands.MISSING,
            ),
            adjusts=False,
            stages=(("nuisance", "first fit"), ("effect", "coefficients")),
        )


MOST_MOMENT_NOISE = 0.2
"""Noise of the moments, relative to them, above which generalized linear models are refused: widths
of public data sets are then 5 to 15 times those without privacy. By hand."""

COEFFICIENT_READING = (
    "Coefficients are associations: each compares rows that differ in one column and are equal in "
    "the others. A coefficient is a causal effect only if no other variable confounds its column."
)

EXPONENTIALS = "Coefficients are changes of the {scale}; their exponentials are {ratio}s."

LONG_TAIL = (
    "{outcome!r} has a long tail, or its bounds are far too wide. Intervals are wide, because they "
    "allow for the residuals that are clipped. Declare narrower bounds if its values allow it. "
    "{advice}"
)
LOGARITHM = "Use its logarithm as the outcome."
OTHERWISE = "Use more rows or budget, or an outcome with fewer outliers."

RARE_EVENTS = (
    "Fewer than {few} rows have the rarer value of {outcome!r}. Estimates of log odds from so few "
    "events are biased, and their intervals are too short."
)

SEPARATION = (
    "The columns nearly separate the two values of {outcome!r}: log odds are extreme for "
    "some rows. Leave out the columns that determine the outcome."
)

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

MOMENTS_OF_MEAN = (
    "Coefficients are those for which each column has the same mean product with the outcome as "
    "with the fitted mean (quasi-maximum likelihood). The mean need not have this form."
)

ONE_STEP = (
    "Newton's step is made once. Half of its curvature, computed in a synthetic population of the "
    "released moments, counts as an error. Log odds are between -6 and 6. Logarithms of means "
    "differ from that of the overall mean by at most 4."
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
    f"The estimator was {{estimator}} in two steps. {estimands.SUMS}",
    "The first step learned the scales and correlations of the columns and a first fit. The second "
    "step released one matrix of moments of the whitened columns and the residuals. Distant "
    "rows were downweighted, and residuals were clipped, at limits of least width. The "
    "limits follow from released histograms of both sizes and from sums over rows with large "
    "residuals.",
    "Moments of the columns were shrunk by the share of their noise. Standard errors combine "
    "sampling and privacy noise. Confidence intervals and p-values include an allowance for the "
    "bias of clipping.",
)

NEWTON = (
    "The first fit became coefficients with the same moments of a synthetic population. The second "
    "step is Newton's step of the quasi-likelihood from there: least squares of working residuals "
    "(McCullagh and Nelder 1989). Moments of the columns under the model's variance, and the "
    "completion of the step, are those of the synthetic population."
)
