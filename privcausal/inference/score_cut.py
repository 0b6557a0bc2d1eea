"""Where to cut the scores of an average: least squared noise plus squared bound of the bias.

Scores of the smaller arm are the larger ones, as they are divided by its share of the rows. So
sizes are told apart by arm, over the weight of an outcome in its scores. That makes both arms'
alike: what reaches far in one of them is taken to reach as far in the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from privcausal.inference.outcome import Look
from privcausal.inference.tail import Tail, cuts_between, hidden, told
from privcausal.typing import Matrix, Vector

HALF_OCTAVES = 40
"""Bins of a score's size below its bound, down to a millionth of it."""

LOOKS = 3
"""Histograms that are looked at, and bounds of hidden rows: each arm's and their sum."""

TYPICAL = 0.85
"""A value inside a bin, as a share of its upper border."""

LOWEST = 0.1
"""Where no scale is known, cuts are tried from this share of the largest score."""


def edges(bound: float) -> Vector:
    """Upper borders of the bins, ascending to the bound, shape (K,)."""
    return np.asarray(bound * 2.0 ** (-0.5 * np.arange(HALF_OCTAVES, -1, -1)))


@dataclass(frozen=True, eq=False)
class ArmSizes:
    """Noisy counts of |score| x factor of the row's arm, in the bins up to each of `edges`.

    Attributes
    ----------
    counts : Matrix
        Shape (2, K).
    edges : Vector
        Shape (K,).
    factors : Vector
        In (0, 1], shape (2,).
    """

    counts: Matrix
    noise_sd: float
    edges: Vector
    factors: Vector

    @property
    def _looked(self) -> tuple[tuple[Vector, float], ...]:
        pooled = self.counts.sum(axis=0), float(np.sqrt(2.0)) * self.noise_sd
        return (self.counts[0], self.noise_sd), (self.counts[1], self.noise_sd), pooled

    @property
    def reach(self) -> float:
        """How far sizes are seen, in one arm or both together; 0 if nowhere."""
        found = (told(counts, noise_sd, LOOKS) for counts, noise_sd in self._looked)
        seen = np.flatnonzero(np.logical_or.reduce(list(found)))
        return float(self.edges[seen[-1]]) if len(seen) else 0.0

    def rms(self, cut: float) -> float:
        """Root mean square of the scores cut at `cut`, of the sizes that are seen; 0 if none."""
        seen = np.where(self.edges <= self.reach, np.maximum(self.counts, 0.0), 0.0)
        size = np.minimum(TYPICAL * self.edges / self.factors[:, None], cut)
        return float(np.sqrt((seen * size**2).sum() / max(seen.sum(), 1.0)))

    def hidden(self, reach: Vector, anywhere: bool) -> tuple[Vector, float]:
        """Most rows beyond `reach` in each arm, and in both."""
        found = []
        for (counts, noise_sd), start in zip(self._looked, [*reach, reach.max()], strict=True):
            first = int(np.searchsorted(self.edges, start, side="right"))
            ends = np.r_[start, self.edges[first:]]
            found.append(hidden(counts[first:], noise_sd, ends, LOOKS, anywhere=anywhere))
        return np.array(found[:2]), found[2]


@dataclass(frozen=True, eq=False)
class Extremes:
    """What the scores of a synthetic population could be, by arm, shape (2, N) each.

    `sizes` are the largest |score| that outcomes within their bounds can give, `weights` the slopes
    of the score in the outcome, `chances` the probabilities of the arms.
    """

    sizes: Matrix
    weights: Matrix
    chances: Matrix

    @property
    def shares(self) -> Vector:
        """Of the arms among the rows, shape (2,)."""
        return np.asarray(self.chances.mean(axis=1))

    @property
    def largest(self) -> Vector:
        """By arm, shape (2,)."""
        return np.asarray(self.sizes.max(axis=1))

    @property
    def unit(self) -> float:
        """What one unit of the outcome is in sizes that are made alike by `factors`."""
        return float(self._typical.min())

    @property
    def factors(self) -> Vector:
        """Makes the weights of an outcome in both arms alike on average; the larger is 1."""
        return np.asarray(self._typical.min() / self._typical)

    @property
    def _typical(self) -> Vector:
        weighed = (self.chances * np.abs(self.weights)).mean(axis=1)
        return np.asarray(np.maximum(weighed / np.maximum(self.shares, 1e-12), 1e-12))

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
    start = LOWEST * largest
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

    What is seen in the bin that holds an arm's largest score lies below that; scores that are seen
    further out speak against the synthetic population.
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
        dear = int(np.argmax(each))
        first = min(most[dear], both)
        second = min(most[1 - dear], both - first)
        by_tail = float(first * each[dear] + second * each[1 - dear]) / rows
        return min(by_tail, extremes.excess(cut)) if within.all() else by_tail

    return float((reach / factors).max()), float((ends / factors).max()), bias
