"""Where to cut the scores of an average: least squared noise plus squared bound of the bias.

Scores of the smaller arm are larger, as they are divided by its share of the rows. So sizes are
kept apart by arm, each over the weight of an outcome in its scores. That makes the arms alike: what
reaches far in one is taken to reach as far in the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from privcausal.inference.priors import PRIORS
from privcausal.inference.ranges import Look, Tail, cuts_between, hidden, told
from privcausal.typing import Matrix, Vector

HALF_OCTAVES = 40
"""Bins of a score's size below its bound, down to a millionth of it."""

LOOKS = 3
"""Histograms that are looked at, and bounds of hidden rows: each arm's and their sum."""


def score_edges(bound: float) -> Vector:
    """Upper borders of the bins, ascending to the bound, shape (K,)."""
    return np.asarray(bound * 2.0 ** (-0.5 * np.arange(HALF_OCTAVES, -1, -1)))


@dataclass(frozen=True, eq=False)
class ArmSizes:
    """Noisy counts of |score| x factor of the row's arm, up to each of `edges` (K,), shape (A, K).

    There are A = 2 arms, or one for all rows; their `factors` are in (0, 1].
    """

    counts: Matrix
    noise_sd: float
    edges: Vector
    factors: Vector

    @property
    def _looked(self) -> tuple[tuple[Vector, float], ...]:
        pooled = self.counts.sum(axis=0), float(np.sqrt(len(self.counts))) * self.noise_sd
        return (*((counts, self.noise_sd) for counts in self.counts), pooled)

    @cached_property
    def reach(self) -> float:
        """How far sizes are seen, in one arm or both together; 0 if nowhere."""
        found = (told(counts, noise_sd, LOOKS) for counts, noise_sd in self._looked)
        seen = np.flatnonzero(np.logical_or.reduce(list(found)))
        return float(self.edges[seen[-1]]) if len(seen) else 0.0

    def rms(self, cut: float) -> float:
        """Root mean square of the scores cut at `cut`, of the sizes that are seen; 0 if none."""
        seen = np.where(self.edges <= self.reach, np.maximum(self.counts, 0.0), 0.0)
        size = np.minimum(PRIORS.bin_typical * self.edges / self.factors[:, None], cut)
        return float(np.sqrt((seen * size**2).sum() / max(seen.sum(), 1.0)))

    def hidden(self, reach: Vector, anywhere: bool) -> tuple[Vector, float]:
        """Most rows beyond `reach` in each arm, and in both."""
        found = []
        for (counts, noise_sd), start in zip(self._looked, [*reach, reach.max()], strict=True):
            first = int(np.searchsorted(self.edges, start, side="right"))
            ends = np.r_[start, self.edges[first:]]
            found.append(hidden(counts[first:], noise_sd, ends, LOOKS, anywhere=anywhere))
        return np.array(found[:-1]), found[-1]


@dataclass(frozen=True, eq=False)
class Extremes:
    """What the scores of a synthetic population could be, by arm, shape (A, N) each.

    `sizes` are the largest |score| for outcomes within their bounds, `weights` the slopes of the
    score in the outcome, `chances` the probabilities of the arms.
    """

    sizes: Matrix
    weights: Matrix
    chances: Matrix

    @property
    def shares(self) -> Vector:
        """Of the arms among the rows, shape (A,)."""
        return np.asarray(self.chances.mean(axis=1))

    @property
    def largest(self) -> Vector:
        """By arm, shape (A,)."""
        return np.asarray(self.sizes.max(axis=1))

    @property
    def unit(self) -> float:
        """One unit of the outcome, in sizes that `factors` make alike."""
        return float(self._typical.min())

    @property
    def unit_most(self) -> float:
        """One unit of the outcome, in scores of the arm where it weighs most."""
        return float(self._typical.max())

    @property
    def factors(self) -> Vector:
        """Make the outcome's mean weights alike in both arms; the larger is 1."""
        return np.asarray(self._typical.min() / self._typical)

    @property
    def _typical(self) -> Vector:
        weighed = (self.chances * np.abs(self.weights)).mean(axis=1)
        typical = np.maximum(weighed / np.maximum(self.shares, 1e-12), 1e-12)
        # scores of one arm's mean have no outcomes of the other
        return np.asarray(np.where(weighed > 0, typical, typical.max()))

    def excess(self, cut: float) -> float:
        """Most that the mean of the scores can lose by a cut, whatever the outcomes."""
        lost = np.maximum(self.sizes - cut, 0.0)
        return float((self.chances * lost).sum(axis=0).mean())


@dataclass(frozen=True)
class Cut:
    """A cut and the most that it moves the mean score."""

    at: float
    bias: float


def score_cut(
    extremes: Extremes,
    noise_per_cut: float,
    sizes: ArmSizes | None,
    look: Look | None,
    rows: float,
    *,
    anywhere: bool = False,
) -> Cut:
    """The cut of least squared noise plus squared bound of the bias.

    Where the outcome has no scale (two values, rare events) the bound is that for any outcomes.

    Parameters
    ----------
    noise_per_cut : float
        Noise sd of the mean score per unit of the cut.
    look : Look or None
        A first look at the outcome.
    rows : float
        (Noisy) number of rows.
    anywhere : bool
        Whether hidden scores may be as large as any (no condition on their tail).
    """
    bias: Callable[[float], float] = extremes.excess
    largest = float(extremes.largest.max())
    start = PRIORS.lowest_cut * largest
    scaled = look is None or look.scaled
    # where most outcomes are alike, or scores too few to be seen, outcomes tell how far they reach
    least = look.reach if look and sizes and (look.mostly or not sizes.reach) else 0.0
    if sizes is not None and scaled and max(sizes.reach, least) > 0:
        start, largest, bias = _tails(extremes, sizes, least, rows, anywhere)
    cuts = cuts_between(start, largest)
    biases = np.array([bias(float(cut)) for cut in cuts])
    best = int(np.argmin((noise_per_cut * cuts) ** 2 + biases**2))
    return Cut(float(cuts[best]), float(biases[best]))


def _tails(
    extremes: Extremes, sizes: ArmSizes, least: float, rows: float, anywhere: bool
) -> tuple[float, float, Callable[[float], float]]:
    """The least and the largest cut, and the bound of the bias by the tail condition.

    What is seen in the bin of an arm's largest possible score lies below that score. What is seen
    further out speaks against the synthetic population.
    """
    factors = sizes.factors
    ends = extremes.largest * factors
    reach = np.maximum(sizes.reach, np.minimum(least * extremes.unit, ends))
    within = reach / np.sqrt(2.0) < ends
    reach = np.where(within, np.minimum(reach, ends), reach)
    ends = np.maximum(ends, reach)
    most, both = sizes.hidden(reach, anywhere)
    most = np.minimum(most, rows * extremes.shares)
    laws = [Tail(float(s), float(e), anywhere) for s, e in zip(reach, ends, strict=True)]

    def bias(cut: float) -> float:
        each = [float(law.excess(cut * f)) / f for law, f in zip(laws, factors, strict=True)]
        # as many hidden rows as there may be, where they weigh most
        left, lost = both, 0.0
        for arm in np.argsort(np.negative(each), kind="stable").tolist():
            own = min(float(most[arm]), left)
            left, lost = left - own, lost + own * each[arm]
        by_tail = lost / rows
        return min(by_tail, extremes.excess(cut)) if within.all() else by_tail

    return float((reach / factors).max()), float((ends / factors).max()), bias


# -- the slope of cut scores ------------------------------------------------------------------

LEAST_KEPT = 0.5
"""At most half the slope is taken to be lost: the model is too rough for more."""


def slope_kept(weights: Matrix, slopes: Matrix, chances: Matrix, cut: float, rms: float) -> float:
    """The share of the slope that a cut leaves, for normal residuals.

    A score s = w (Y - m) is cut at M. If a wrong constant effect shifts the means m, uncut scores
    tell of it in full and cut ones not at all: the sum of cut scores falls by E[slope 1(|s| < M)],
    where by the mass, E[slope], it should fall by more. The ratio by the mass would then stay near
    the centre that scores were cut around. Dividing by the share that is left mends that to first
    order, as Newton's step to Huber's (1964) estimate would.

    Parameters
    ----------
    weights, slopes, chances : Matrix
        w, the slope of its score, and the probability of the arm, by arm and point of the synthetic
        population, shape (2, N).
    cut, rms : float
        M, and the root mean square of the scores after the cut.
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
    kept = float((chances * slopes * inside).sum() / (chances * slopes).sum())
    return max(kept, LEAST_KEPT)
