"""Scores of weighted average effects, on the treated and in the overlap, and their masses.

A weighted average effect is E[q tau(X)] / E[q] for a mass q; the estimate is c + sum(score) /
sum(mass), with scores centred at a public number c. Both are divided by a public `scale` near the
mean mass, so that scores are in units of the outcome and masses near 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcausal.spec.features import Rows
from privcausal.spec.functions import Function
from privcausal.typing import Vector
from privcausal.vault.batch import Batch
from privcausal.vault.transforms.scores import Outcome


@dataclass(frozen=True)
class OverlapScore:
    """(T - e) (Y - eta - (T - e) c) / scale: the ATO's score (Robinson 1988).

    The effect by overlap weights e (1 - e) (Crump et al. 2006; Li, Morgan and Zaslavsky 2018) is
    the slope of Y - eta on T - e, and this is its efficient score: with Y - eta = (T - e) tau + u
    and (T - e)^2 = h + (1 - 2e) (T - e) for h = e (1 - e), it is
    h (tau - c) + (T - e) u + (1 - 2e) (T - e) (tau - c), the influence function for weights h(e).
    Nothing is divided by e. With e in [s, 1 - s] and Y, eta in [a, b], |T - e| <= 1 - s and
    |Y - eta| <= R, so |score| <= (1 - s) (R + (1 - s) |c|) / scale.
    """

    e: Function
    eta: Function
    outcome: Outcome
    clip: float
    centre: float
    scale: float

    @property
    def bound(self) -> float:
        most = 1 - self.clip
        return most * (2 * self.outcome.bound + most * abs(self.centre)) / self.scale

    def at(self, rows: Rows, t: Vector | float, y: Vector | float) -> Vector:
        """The score of rows that had this treatment and outcome."""
        left = t - self.e(rows)
        return np.asarray(left * (y - self.eta(rows) - left * self.centre) / self.scale)

    def __call__(self, batch: Batch) -> Vector:
        return self.at(batch.rows, batch.t, batch.y)


@dataclass(frozen=True)
class OverlapMass:
    """(T - e)^2 / scale, of mean h / scale where e is right. In [0, (1 - s)^2 / scale]."""

    e: Function
    clip: float
    scale: float

    @property
    def bound(self) -> float:
        return (1 - self.clip) ** 2 / self.scale

    def __call__(self, batch: Batch) -> Vector:
        return np.asarray((batch.t - self.e(batch.rows)) ** 2 / self.scale)


@dataclass(frozen=True)
class TreatedScore:
    """[(T - e)/(1 - e) (Y - mu0) - T c] / scale: the ATT's doubly robust score (Hahn 1998).

    (T - e)/(1 - e) is 1 for the treated and -e/(1 - e) for the others: those are weighted to look
    like the treated. With e in [0, 1 - k] and Y, mu0 in [a, b], a treated row gives at most
    R + |c|, and another at most R (1 - k)/k. Small e are harmless: nothing is divided by them.
    """

    e: Function
    mu0: Function
    outcome: Outcome
    clip: float
    centre: float
    scale: float

    @property
    def bound(self) -> float:
        reach = 2 * self.outcome.bound
        return max(reach + abs(self.centre), reach * (1 - self.clip) / self.clip) / self.scale

    def at(self, rows: Rows, t: Vector | float, y: Vector | float) -> Vector:
        """The score of rows that had this treatment and outcome."""
        e = self.e(rows)
        weight = (t - e) / (1 - e)
        return np.asarray((weight * (y - self.mu0(rows)) - t * self.centre) / self.scale)

    def __call__(self, batch: Batch) -> Vector:
        return self.at(batch.rows, batch.t, batch.y)


@dataclass(frozen=True)
class TreatedMass:
    """T / scale: 0 or 1 / scale."""

    scale: float

    @property
    def bound(self) -> float:
        return 1 / self.scale

    def __call__(self, batch: Batch) -> Vector:
        return np.asarray(batch.t / self.scale)
