"""Clipping thresholds from noisy histograms of sizes: least squared noise plus squared bias.

The bias of clipping is estimated if a shape or a nuisance is learned. It may bias these directly,
but it biases an average only by the product with the error of the propensity. Averages and
regressions allow for it in their intervals (`tails`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import norm

from privcausal.inference import ranges, tails
from privcausal.inference.averages import folded_quantile
from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import likelihoods, signal_share
from privcausal.request.schema import Interval
from privcausal.typing import Matrix, Vector

SCORE_HALF_OCTAVES = 40
"""Bins of a score's size below its bound, down to a millionth of the bound."""


SIGNED_HALF_OCTAVES = 24
"""Bins of a score of one sign, down to a 4,000th of the bound."""


def score_edges(bound: float, bins: int = SCORE_HALF_OCTAVES) -> Vector:
    """Upper borders of bins of half an octave each, ascending to the bound, shape (bins + 1,)."""
    return np.asarray(bound * 2.0 ** (-0.5 * np.arange(bins, -1, -1)))


@dataclass(frozen=True)
class Cut:
    """A clipping threshold, and the maximum change of the mean score.

    Scores are clipped at the distance `threshold` from the `middle`. `rms` is the root mean square
    of the clipped scores, or 0 if it is unknown.
    """

    threshold: float
    bias: float
    middle: float = 0.0
    rms: float = 0.0

    @classmethod
    def least(cls, cuts: Vector, noise: float, bias: Vector, weight: float = 1.0) -> Cut:
        """The threshold of least squared error.

        `noise` is an sd per unit of the threshold; its square has this `weight`.
        """
        best = int(np.argmin(weight * (noise * cuts) ** 2 + bias**2))
        return cls(float(cuts[best]), float(bias[best]))

    @classmethod
    def narrowest(
        cls,
        cuts: Vector,
        bias: Matrix,
        square: Matrix,
        noise: float,
        rows: float,
        *,
        centred: bool,
    ) -> Cut:
        """The two thresholds with the narrowest 95% interval that allows for the bias.

        Scores below the lower threshold raise the mean if they are clipped, and scores above the
        upper threshold lower it. The bias is therefore at most the larger of the two changes.

        `noise` is as in `least`. If `centred`, the thresholds are at equal distances from zero.

        Parameters
        ----------
        cuts : Vector
            Candidate thresholds, as distances from zero, shape (K,).
        bias, square : Matrix
            Below and above zero, shape (2, K): bounds of the mean over all rows of the scores
            beyond a threshold, and the mean over all rows of the side's squared clipped scores.
        """
        at = np.arange(len(cuts))
        i, j = (at, at) if centred else (np.repeat(at, len(at)), np.tile(at, len(at)))
        largest = np.maximum(bias[0, i], bias[1, j])
        cut, middle = 0.5 * (cuts[j] + cuts[i]), 0.5 * (cuts[j] - cuts[i])
        squares = square[0, i] + square[1, j]
        sd = np.sqrt((noise * cut) ** 2 + squares / rows)
        best = int(np.argmin(sd * folded_quantile(largest / sd)))
        return cls(*(float(x[best]) for x in (cut, largest, middle, np.sqrt(squares))))


# -- shapes and nuisances ---------------------------------------------------------------------

SHAPE_OCTAVES = 16
"""Bins, from a 256th of the bound on: lower thresholds are never useful."""

SHAPE_CUTS = 60
"""Clipping thresholds that are tried, 9% apart."""

TAIL, COMPANY, LONE = 3.0, 2.0, 4.0
"""A tail bin counts at TAIL noise sds if the bin below it has at least COMPANY noise sds. Otherwise
it counts at LONE noise sds. With 17 bins, one release in a thousand invents a tail."""

NEAR_BINS = 4
"""Bins (two octaves) beyond the last detected bin; their total count shows a tail."""


def size_edges(bound: float) -> Vector:
    """Bin borders in half octaves, from bound / 2^8 to the bound."""
    return score_edges(bound, SHAPE_OCTAVES)


@dataclass(frozen=True, eq=False)
class AbsHistogram:
    """Cleaned counts of |score| by bin; `silent` if no bin is detectable.

    `tail` is the noisy number of scores in the `NEAR_BINS` bins beyond the last detected bin.
    """

    edges: Vector
    counts: Vector
    noise_sd: float
    silent: bool = False
    tail: float = 0.0

    @property
    def total(self) -> float:
        return float(max(self.counts.sum(), 1.0))

    @property
    def cuts(self) -> Vector:
        """Clipping thresholds that are tried, shape (SHAPE_CUTS,)."""
        return np.geomspace(self.edges[2], self.edges[-1], SHAPE_CUTS)

    def excess(self, cut: float) -> float:
        """Mean of (|score| - cut)+ according to the histogram."""
        typical = PRIORS.bin_typical * self.edges  # a value inside each bin
        return float(self.counts @ np.maximum(typical - cut, 0.0)) / self.total

    def rms(self, cut: float) -> float:
        """Root mean square of the score clipped at `cut`."""
        typical = PRIORS.bin_typical * self.edges
        return float(np.sqrt(self.counts @ np.minimum(typical, cut) ** 2 / self.total))

    def below(self, cut: float) -> float:
        """Share of scores below `cut`."""
        return float(np.interp(cut, self.edges, np.cumsum(self.counts) / self.total))

    @property
    def reach(self) -> float:
        """Upper border of the last detected bin."""
        return float(self.edges[np.flatnonzero(self.counts > 0)[-1]])


def without_noise_tail(counts: Vector, noise_sd: float, borders: Vector) -> AbsHistogram:
    """Drop tail bins that cannot be distinguished from the noise."""
    cells = counts.copy()
    for i in range(len(cells) - 1, -1, -1):
        lone = i > 0 and cells[i - 1] < COMPANY * noise_sd
        if cells[i] >= (LONE if lone else TAIL) * noise_sd and cells[i] > 0:
            break
        cells[i] = 0.0
    silent = not cells.any()
    last = len(cells) if silent else int(np.flatnonzero(cells)[-1])
    tail = float(counts[last + 1 : last + 1 + NEAR_BINS].sum())
    if silent:  # all noise: assume the widest bin; it costs accuracy, not validity
        cells[-1] = 1.0
    return AbsHistogram(borders, np.maximum(cells, 0.0), noise_sd, silent, tail)


def threshold_for_effect(
    sizes: AbsHistogram, noise_per_cut: float, *, bias: float = PRIORS.cut_bias
) -> float:
    """Threshold M minimizing cut_noise (noise_per_cut M)^2 + (bias x excess(M))^2, for tau(x)."""
    lost = np.array([bias * sizes.excess(m) for m in sizes.cuts])
    return Cut.least(sizes.cuts, noise_per_cut, lost, PRIORS.cut_noise).threshold


def unseen_bias(sizes: AbsHistogram, cut: float) -> float:
    """Allowance for clipping bias, as a standard deviation, if a shape is learned.

    Scores beyond the threshold that the histogram shows count in full, because a skewed outcome's
    scores have one sign there. Each score that no bin shows counts by half the threshold, times
    `Priors.one_sided`. The assumed number of such scores is half of a detectable count, or the
    total of the bins beyond if that is more. It is at most the share 4/9 (rms/cut)^2 that a
    unimodal distribution can have there (Vysochanskij and Petunin 1980).
    """
    if cut >= sizes.edges[-1]:
        return 0.0
    unseen = max(0.5 * TAIL * sizes.noise_sd, sizes.tail) / sizes.total
    hidden = min(unseen, (4.0 / 9.0) * (sizes.rms(cut) / cut) ** 2)
    return sizes.excess(cut) + PRIORS.one_sided * 0.5 * hidden * cut


RESIDUAL_SCALES = 60
"""Residual sds that are tried: a grid from the first border of the bins to the last."""


def denoise_normal(
    counts: Vector, noise_sd: float, borders: Vector, count: float, e: Vector
) -> AbsHistogram:
    """Cleaned counts of |(T - e)(Y - eta)|, shrunk towards the counts for a normal residual.

    With few rows or little budget the histogram is mostly noise, and a threshold based on it may be
    very inaccurate. For a residual N(0, s^2), the product is normal within each arm, with sd s e(x)
    or s (1 - e(x)). The model averages over s by its likelihood. Counts beyond noise are kept:
    heavier tails count as soon as they are detectable.

    Parameters
    ----------
    counts, borders : Vector
        Noisy counts per bin and upper borders, shape (K,).
    count : float
        (Noisy) number of rows.
    e : Vector
        Propensities of a synthetic population, shape (N,).
    """
    seen = without_noise_tail(counts, noise_sd, borders)
    if noise_sd == 0 or (seen.silent and counts.sum() <= noise_sd):
        return seen
    scales = np.geomspace(borders[0], borders[-1], RESIDUAL_SCALES)
    arms, weight = np.concatenate([e, 1 - e]), np.concatenate([1 - e, e]) / len(e)
    below = 2 * ndtr(borders[:, None, None] / (scales[:, None] * arms)) - 1
    upto = (below @ weight).T
    upto[:, -1] = 1.0
    law = count * np.diff(upto, axis=1, prepend=0.0)  # by bin for every scale, (SCALES, K)
    chance = likelihoods(counts, noise_sd, law)
    model = chance @ law / chance.sum()
    keep = 0.0 if seen.silent else signal_share(counts - model, noise_sd**2)
    return replace(seen, counts=(1 - keep) * model + keep * seen.counts, silent=False)


# -- scores of averages -----------------------------------------------------------------------
#
# Scores of the smaller arm are larger, because they are divided by its share of the rows. Each arm
# therefore has its own sizes, divided by the weight of an outcome in its scores. This puts both
# arms on the same scale. Unless the counts tell them apart, the arms have one tail.


@dataclass(frozen=True, eq=False)
class ArmSizes:
    """Noisy counts of |score| x factor of the row's arm, up to each of `edges` (K,), shape (R, K).

    There are rows for A = 2 arms, or one for all rows of the study; their `factors` (R,) are in
    (0, 1]. If scores are counted by sign, `sides` (R,) are -1 or 1, `arms` are the positions of
    the arms. Sizes of one of the `kinds` may share their tail: scores of high outcomes, those
    of low outcomes, and on each side scores of an arm whose outcomes do not enter.
    """

    counts: Matrix
    noise_sd: float
    edges: Vector
    factors: Vector
    sides: tuple[int, ...] = ()
    arms: tuple[int, ...] = ()
    kinds: tuple[int, ...] = ()

    @classmethod
    def by_sign(
        cls, counts: Matrix, noise_sd: float, edges: Vector, factors: Vector, weights: Matrix
    ) -> ArmSizes:
        """From counts by arm in ascending cells of the signed score, shape (A, 2 K).

        `weights` are as in `Extremes`.
        """
        k, slopes = len(edges), weights.sum(axis=1)
        rows = [side for arm in counts for side in (arm[:k][::-1], arm[k:])]
        arms = tuple(np.repeat(np.arange(len(counts)), 2).tolist())
        sides = (-1, 1) * len(counts)
        kinds = tuple(
            int((side > 0) == (slopes[arm] >= 0)) + 2 * int(slopes[arm] == 0)
            for side, arm in zip(sides, arms, strict=True)
        )
        return cls(np.stack(rows), noise_sd, edges, np.repeat(factors, 2), sides, arms, kinds)

    @property
    def reach(self) -> float:
        """Largest detected size of all; 0 if no size is detected."""
        counts, sd = self.counts.sum(axis=0), np.sqrt(len(self.counts)) * self.noise_sd
        seen = np.flatnonzero(ranges.visible_cells(counts, float(sd), 1))
        return float(self.edges[seen[-1]]) if len(seen) else 0.0

    def beyond(
        self,
        rows: float,
        *,
        anywhere: bool = False,
        sparse: bool = False,
        usual: float = 0.0,
        shifts: Vector | float = 0.0,
    ) -> Callable[[Vector], tuple[Matrix, Matrix]]:
        """Means over all `rows` of (|score| - cut)+ and of min(|score|, cut)^2, for cuts (C,).

        Both have shape (R, C); the first includes an allowance. `usual` is the usual mean square of
        sizes, if it is not 0. Sizes of arm a may be `shifts[a]` larger on one side than they are
        on both, by an error of the arm's mean outcome. See `tails.size_law` for the rest.
        """
        kinds = np.array(self.kinds or (1,) * len(self.counts))
        groups = [np.flatnonzero(kinds == kind) for kind in np.unique(kinds)]
        sizes = np.array([tails.held_rows(self.counts[group], self.noise_sd) for group in groups])
        ends, shares = np.r_[0.0, self.edges], sizes / sizes.sum()
        laws = [
            tails.size_law(
                self.counts[group],
                self.noise_sd,
                ends,
                share * rows,
                sparse=sparse,
                anywhere=anywhere,
                usual=usual,
            )
            for group, share in zip(groups, shares, strict=True)
        ]

        arms = list(self.arms or (0,) * len(self.counts))
        shift = (np.zeros(max(arms) + 1) + shifts)[arms]

        def means(cuts: Vector) -> tuple[Matrix, Matrix]:
            over, square = np.zeros((2, len(kinds), len(cuts)))
            for group, share, law in zip(groups, shares, laws, strict=True):
                for row, excess, clipped in zip(group, law.over, law.kept, strict=True):
                    factor = float(self.factors[row])
                    near = np.maximum(cuts * factor - shift[row], 0.0)
                    over[row] = share * np.interp(near, law.at, excess) / factor
                    square[row] = share * np.interp(cuts * factor, law.at, clipped) / factor**2
            return over, square

        return means


@dataclass(frozen=True, eq=False)
class Extremes:
    """Possible scores of a synthetic population, by arm, shape (A, N) each.

    `sizes` are the largest |score| for outcomes within their bounds. `weights` are the slopes of
    the score in the outcome, and `chances` the probabilities of the arms. If they are known, `ends`
    are the scores of the lowest and the highest outcome, shape (A, 2, N), `means` the mean outcomes
    from 0 (lowest) to 1 (highest), and `span` has the smallest and the largest score of all.
    """

    sizes: Matrix
    weights: Matrix
    chances: Matrix
    span: tuple[float, float] | None = None
    ends: Matrix | None = None
    means: Matrix | None = None

    @cached_property
    def units(self) -> Vector:
        """One unit of the outcome in scores of each arm, by the mean weight, shape (A,)."""
        shares = np.maximum(self.chances.mean(axis=1), 1e-12)
        weighed = (self.chances * np.abs(self.weights)).mean(axis=1)
        # scores of one arm's mean do not include outcomes of the other arm
        units = np.maximum(weighed / shares, 1e-12)
        return np.asarray(np.where(weighed > 0, units, units.max()))

    @property
    def factors(self) -> Vector:
        """Factors that make the outcome's mean weight equal in both arms; the larger is 1."""
        return np.asarray(self.units.min() / self.units)

    def excess(self, cuts: Vector, doubt: float, local: float = 1e12) -> Matrix:
        """Maximum means over all rows of (|score| - cut)+, by arm and sign, shape (A, 2, C).

        (|score| - cut)+ is convex in the outcome. Among all outcomes with a given mean, those at
        the two ends therefore lose most. The share of all rows at an end is at most `MEAN_FACTOR`
        times the share that the estimated overall mean implies, plus `doubt`. These rows may have
        the largest scores, because the mean outcome of rows with rare propensities is uncertain.
        The share at each point is at most `local` times the estimate.
        """
        if self.ends is None or self.means is None:
            arms = zip(self.sizes, self.chances, strict=True)
            lost = [_excess(size, chance, cuts) for size, chance in arms]
            return np.repeat(np.array(lost)[:, None], 2, axis=1)
        high = float((self.chances * self.means).mean(axis=1).sum())
        shares = [(1 - high + doubt, 1 - self.means), (high + doubt, self.means)]
        out = np.zeros((len(self.ends), 2, len(cuts)))
        for arm, chance in enumerate(self.chances):
            for side, sign in enumerate((-1.0, 1.0)):
                size = np.maximum(sign * self.ends[arm], 0.0)
                most = [_excess(size.max(axis=0), chance, cuts), np.zeros(len(cuts))]
                for end, (share, means) in zip(size, shares, strict=True):
                    by_point = np.minimum(local * np.maximum(means[arm], share), 1.0) * chance
                    most[1] += _excess(end, by_point, cuts, MEAN_FACTOR * share)
                out[arm, side] = np.minimum(*most)
        return out


MEAN_FACTOR = 2.0
"""Largest mean outcome, relative to its estimate, if it limits what is clipped: overall, and at a
point if noisy counts of the scores show the tail, too. By hand."""


def _excess(size: Vector, chance: Vector, cuts: Vector, most: float = 1.0) -> Vector:
    """Mean of chance (size - cut)+ at each cut, for the largest sizes of a total chance `most`."""
    order = np.argsort(-size)
    size, chance = size[order], chance[order] / len(size)
    chance = np.clip(most - (np.cumsum(chance) - chance), 0.0, chance)
    rows, amount = (np.r_[0.0, np.cumsum(x)] for x in (chance, chance * size))
    above = np.searchsorted(-size, -cuts)
    return np.asarray(np.maximum(amount[above] - cuts * rows[above], 0.0))


# -- outcomes of a difference in means ---------------------------------------------------------


def trial_window(
    counts: Matrix, noise_sd: float, bounds: Interval, noise: float, *, anywhere: bool = False
) -> ranges.Window:
    """One interval for both arms, of the narrowest 95% interval that allows for the bias.

    The interval equals the bounds if the outcomes have no `outcome_law`.

    Parameters
    ----------
    counts : Matrix
        Noisy counts by arm in the cells between `heights`, and at both ends, shape (2, K).
    noise : float
        Noise sd of an arm's sum per unit of half the interval's width.
    anywhere : bool
        Whether hidden outcomes may lie anywhere in the bounds.
    """
    law = tails.outcome_law(counts, noise_sd, bounds, anywhere=anywhere)
    if law is None:
        return ranges.Window(bounds)
    sizes, rows, arms = law.sizes, float(law.arms.sum()), law.arms
    away = 0.5 * (law.ends[1:] + law.ends[:-1]) - law.core.middle
    cuts, lost, squares = [], [], []
    for side, (unit, last) in enumerate(zip(law.units.tolist(), law.lasts.tolist(), strict=True)):
        distances = ranges.cuts_between(float(law.reach[side]), last)
        over, clipped = (
            np.stack([np.interp(np.r_[distances, last] / unit, sizes.at, arm) for arm in curve])
            for curve in (sizes.over[2 * side :][:2], sizes.kept[2 * side :][:2])
        )
        # detected rows may contradict the law, and without noise they are all
        seen = law.held @ np.maximum((2 * side - 1) * away[:, None] - distances, 0.0)
        beyond = rows * unit * (over[:, :-1] - over[:, -1:])
        cuts.append(distances)
        lost.append(np.maximum(beyond, seen) if noise_sd else seen)
        squares.append(rows * unit**2 * clipped[:, :-1])
    i, j = (index.ravel() for index in np.indices((len(cuts[0]), len(cuts[1]))))
    amount = np.stack([lost[0][:, i], lost[1][:, j]], axis=1)  # (arms, sides, pairs)
    sampling = ((squares[0][:, i] + squares[1][:, j]) / arms[:, None] ** 2).sum(axis=0)
    privacy = noise * 0.5 * (cuts[0][i] + cuts[1][j]) * float(np.sqrt((1 / arms**2).sum()))
    error = np.sqrt(privacy**2 + sampling)
    bias = ranges.pulled(amount / arms[:, None, None])
    k = int(np.argmin(error * folded_quantile(bias / error)))
    near, middle = np.array([cuts[0][i[k]], cuts[1][j[k]]]), bounds.lo + law.core.middle
    excess = np.maximum(law.lasts - near, 0.0)
    most = np.divide(amount[:, :, k], excess, out=np.zeros((2, 2)), where=excess > 0)
    low, high = max(middle - float(near[0]), bounds.lo), min(middle + float(near[1]), bounds.hi)
    return ranges.Window(Interval(low, high), most, excess)


UNFORESEEN = 2.0
"""Largest possible score, over the largest detected one, if the synthetic population has none as
large. By hand."""

MEAN_SDS = 2.0
"""Doubt about the overall mean outcome, as noise sds of a mean score per unit. By hand."""

NEAREST = 0.25
"""Least threshold that is tried, as a share of the root mean square of the scores."""


def score_cut(
    extremes: Extremes,
    noise_per_cut: float,
    sizes: ArmSizes | None,
    look: ranges.Look | None,
    rows: float,
    *,
    anywhere: bool = False,
    movable: bool = False,
    doubt: float = 0.0,
) -> Cut:
    """The thresholds of the narrowest interval.

    If the outcome's scale is unknown (two values, rare events), the bias is at most that for any
    outcomes. The threshold then has the least squared noise plus squared bias.

    Parameters
    ----------
    noise_per_cut : float
        Noise sd of the mean score per unit of the threshold.
    look : Look or None
        Summary of an exploratory histogram of the outcome. Half of its variance is the usual mean
        square of a residual.
    rows : float
        (Noisy) number of rows.
    anywhere : bool
        Whether hidden scores may have any size.
    movable : bool
        Whether the two thresholds may be at different distances from zero.
    doubt : float
        Sd of the first effect, which centers the scores. An arm's mean outcome has this error times
        the share of the other arms.
    """
    largest = float(extremes.sizes.max())
    scaled = look is None or look.scaled
    variance = 0.0 if look is None else look.variance
    if sizes is None or not scaled or not (variance or sizes.reach):
        cuts = ranges.cuts_between(PRIORS.lowest_cut * largest, largest)
        lost = extremes.excess(cuts, MEAN_SDS * noise_per_cut).sum(axis=0).max(axis=0)
        cut = Cut.least(cuts, noise_per_cut, lost)
        if not movable or extremes.span is None:
            return cut
        least_score, most_score = extremes.span
        half, middle = 0.5 * (most_score - least_score), 0.5 * (most_score + least_score)
        whole = Cut(half, 0.0, middle=middle)
        return min(cut, whole, key=lambda c: (noise_per_cut * c.threshold) ** 2 + c.bias**2)
    sparse, unit = look is not None and look.mostly, float(extremes.units.min())
    usual = 0.5 * variance * unit**2
    # scores detected beyond the largest possible score contradict the synthetic population, which
    # then has scores as much larger
    grown, ends = 1.0, extremes.sizes.max(axis=1)
    end = float(((ends[list(sizes.arms)] if sizes.arms else ends) * sizes.factors).max())
    if sizes.reach > np.sqrt(2.0) * end:
        grown = UNFORESEEN * sizes.reach / end
    largest = min(grown * largest, float((sizes.edges[-1] / sizes.factors).max()))
    shifts = doubt * unit * (1 - extremes.chances.mean(axis=1))
    beyond = sizes.beyond(rows, anywhere=anywhere, sparse=sparse, usual=usual, shifts=shifts)
    start = NEAREST * float(np.sqrt(beyond(np.array([largest]))[1].sum()))
    # detected amounts among zeros are not clipped
    start = max(start, look.reach * unit if look and sparse else 0.0)
    cuts = ranges.cuts_between(min(start, largest), largest)
    most = grown * extremes.excess(cuts / grown, MEAN_SDS * noise_per_cut, MEAN_FACTOR)
    over, square = beyond(cuts)
    for row, (arm, side) in enumerate(zip(sizes.arms, sizes.sides, strict=True)):
        over[row] = np.minimum(over[row], most[arm, int(side > 0)])
    bias, squares, share = [], [], 1.0 if sizes.sides else 0.5
    for k, sign in enumerate((-1, 1)):
        on_side = np.array([float(side in (0, sign)) for side in sizes.sides or (0,) * len(over)])
        bias.append(np.minimum(on_side @ over, most[:, k].sum(axis=0)))
        squares.append(share * on_side @ square)
    return Cut.narrowest(
        cuts, np.array(bias), np.array(squares), noise_per_cut, rows, centred=not movable
    )


LEAST_KEPT = 0.5
"""At most half the slope is assumed to be lost, because the model is too rough for more."""


def slope_kept(weights: Matrix, slopes: Matrix, chances: Matrix, cut: float, rms: float) -> float:
    """The share of the slope that remains after clipping, for normal residuals.

    A score s = w (Y - m) is clipped at M. If a wrong constant effect shifts the means m, scores
    below M change in full and clipped scores do not change. The sum of clipped scores falls by
    E[slope 1(|s| < M)], although the mass implies a larger fall, E[slope]. The ratio of sum and
    mass would then stay near the center that scores were clipped around. Dividing by the remaining
    share corrects this to first order, as Newton's step to Huber's (1964) estimate would.

    Parameters
    ----------
    weights, slopes, chances : Matrix
        w, the slope of its score, and the probability of the arm, by arm and point of the synthetic
        population, shape (2, N).
    cut, rms : float
        M, and the root mean square of the clipped scores.
    """
    sizes = np.abs(weights) / cut

    def excess(log_sd: float) -> float:
        x = 1 / (sizes * np.exp(log_sd) + 1e-12)
        inside = 1 - 2 * norm.sf(x)
        # E min((z / x)^2, 1) for a standard normal z
        square = (inside - 2 * x * norm.pdf(x)) / x**2 + 2 * norm.sf(x)
        return float((chances * square).mean() * len(chances) - (rms / cut) ** 2)

    scale = np.log(cut / np.abs(weights).max())
    low, high = scale - 12.0, scale + 12.0
    if excess(high) <= 0:
        return LEAST_KEPT
    sd = np.exp(brentq(excess, low, high)) if excess(low) < 0 else np.exp(low)
    inside = 1 - 2 * norm.sf(1 / (sizes * sd + 1e-12))
    share = float((chances * slopes * inside).sum() / (chances * slopes).sum())
    return max(share, LEAST_KEPT)
