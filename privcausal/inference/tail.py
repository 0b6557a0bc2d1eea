"""What may lie beyond a cut, bounded from noisy counts.

A cut saves noise and costs the bias of what lies beyond it. Noise hides small masses, so that a
guess of that bias is far too small just where outcomes are rare, sparse or skewed. It is bounded
instead, under one condition on the tail:

    beyond x0, the last border up to which counts can be told from noise, the mass beyond x falls
    at least as fast as (x / x0)^-INDEX.

The mass at x0 is an upper confidence bound. So the bound of the bias holds in all but `ERROR` of
fits for every law that meets the condition, and it goes into the interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from privcausal.typing import Integers, Mask, Vector

INDEX = 3.0
"""The heaviest tail that the condition allows. A normal interval rests on third moments (Berry
1941, Esseen 1942): where a tail is heavier, it would not hold without privacy either."""

ERROR = 1e-3
"""Chance that a mass is above its bound in one fit, or that cells beside others are told from
noise by luck."""

LUCK, APART = 1e-6, 8
"""Chance that cells far from others are told from noise by luck: one of them makes an interval
hundreds of times too wide, while a real one that is missed is in the bound of what is hidden. Far
is further than this many cells."""

RUNS = (1, 2, 4, 8, 16)
"""Neighbouring cells that are looked at together, the shortest runs first."""

STEP = float(np.sqrt(2.0))
"""Cells beyond x0 are put together until their borders differ by this factor."""


def told(
    counts: Vector, noise_sd: float, looks: int, error: float = ERROR, luck: float = LUCK
) -> Mask:
    """Which cells can be told from noise, alone or in a run without such cells; shape (K,).

    At the chance `error` no further than `APART` cells from cells that are told at the chance
    `luck`, or where there are none; elsewhere at the chance `luck`.

    Parameters
    ----------
    looks : int
        Histograms of a fit that are looked at like this: they share the chances.
    """
    sure, likely = (_told(counts, noise_sd, looks, chance) for chance in (luck, error))
    if not sure.any():
        return likely
    at = np.flatnonzero(sure | likely)
    near = np.cumsum(np.diff(at, prepend=at[0]) > APART)  # which chain a cell belongs to
    found = sure.copy()
    found[at[np.isin(near, near[sure[at]])]] = True
    return found


def _told(counts: Vector, noise_sd: float, looks: int, chance: float) -> Mask:
    size = len(counts)
    tests = sum(max(size - length + 1, 0) for length in RUNS)
    stands_out = float(norm.isf(chance / (looks * tests))) * noise_sd
    found = np.zeros(size, bool)
    for length in RUNS:
        for start in range(size - length + 1):
            run = slice(start, start + length)
            total = float(counts[run].sum())
            if total > max(stands_out * np.sqrt(length), 0.0) and not found[run].any():
                # the last cells of a run that hold less than noise does tell nothing themselves
                held = int(np.flatnonzero(counts[run] > noise_sd)[-1])
                found[start : start + held + 1] = True
    return found


def hidden(
    counts: Vector, noise_sd: float, edges: Vector, looks: int, *, anywhere: bool = False
) -> float:
    """Upper confidence bound of the rows beyond x0 = edges[0]; `counts` are those between `edges`.

    Let p_k be the mass that (x / x0)^-INDEX has in cell k, the last of which holds all that lies
    beyond. A tail that falls at least as fast has its mass in nearer cells. So for weights w_k
    that do not rise, and a mass A beyond x0, E[sum w c] >= A sum w p.

    Parameters
    ----------
    counts : Vector
        Shape (K,).
    edges : Vector
        Distances, ascending from x0 > 0, shape (K + 1,).
    looks : int
        Bounds like this one in a fit: they share `ERROR`.
    anywhere : bool
        Whether the mass may lie anywhere beyond x0, whatever the condition says.
    """
    if not len(counts):
        return 0.0
    if anywhere:
        most = float(norm.isf(ERROR / looks)) * noise_sd * float(np.sqrt(len(counts)))
        return max(float(counts.sum()) + most, 0.0)
    first = _together(edges)
    mass = -np.diff(np.r_[(edges[first] / edges[0]) ** -INDEX, 0.0])
    cells = np.diff(np.r_[first, len(counts)])
    weight = np.minimum.accumulate(mass / cells)
    noise = float(norm.isf(ERROR / looks)) * noise_sd * float(np.sqrt(weight**2 @ cells))
    seen = float(weight @ np.add.reduceat(counts, first))
    return max((seen + noise) / float(weight @ mass), 0.0)


def _together(edges: Vector) -> Integers:
    """Numbers of the cells at which groups of them begin."""
    first = [0]
    for k in range(1, len(edges) - 1):
        if edges[k] >= STEP * (1 - 1e-9) * edges[first[-1]]:
            first.append(k)
    return np.array(first, np.int64)


@dataclass(frozen=True)
class Tail:
    """Rows beyond `start` as the tail condition has them at most, and none beyond `end`.

    `anywhere` is for tails without a condition: all of them may lie at the end.
    """

    start: float
    end: float
    anywhere: bool = False

    def excess(self, cut: float | Vector) -> Vector:
        """Largest mean of (x - cut)+ over the rows, for cuts from `start` on.

        The integral of (x / start)^-INDEX from the cut to the end.
        """
        if self.end <= self.start:
            return np.zeros_like(cut, dtype=float)
        held = np.clip(cut, self.start, self.end)
        if self.anywhere:
            return np.asarray(self.end - held)
        last = (self.end / self.start) ** (1 - INDEX)
        return np.asarray(self.start * ((held / self.start) ** (1 - INDEX) - last) / (INDEX - 1))


CUTS = 40
"""Cuts that are tried, in equal steps of the logarithm."""


def cuts_between(start: float, end: float) -> Vector:
    """From `start` to `end`; shape (CUTS,), or (1,) where nothing lies between."""
    return np.geomspace(start, end, CUTS) if end > start else np.array([start])
