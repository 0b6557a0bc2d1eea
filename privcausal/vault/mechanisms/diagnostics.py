"""What balance needs of the rows: bounded sums of design columns within the arms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcausal.features.basis import squared_norm
from privcausal.features.functions import Function
from privcausal.typing import Integers, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.exit import Mechanism
from privcausal.vault.mechanisms.scores import UNIT, Regressors, sum_scale


@dataclass(frozen=True, eq=False)
class ArmMeans(Mechanism):
    """Sums of a and of h a over the rows of each arm; a = (1, alpha z), z scaled design columns.

    h = clip / e(x) for the treated and clip / (1 - e(x)) for the controls: the inverse-propensity
    weight times its bound, so h lies in [0, 1]. The mean of z in an arm is a ratio of its sums,
    with weights or without.

    Privacy
    -------
    ||a||^2 <= A (1 without columns, else 2, see `Regressors`). Let gamma be the norm's weight of
    the weighted sums. A row adds v = (a, h a) to the block of its arm, of weighted norm at most N,
    N^2 = (1 + gamma^2) A. Rows of different arms are orthogonal. For two rows of one arm
    a . a' = 1 + alpha^2 z . z' >= 0, since alpha ||z|| <= 1, and h >= 0, so v . v' >= 0. So
    replacing a row moves the sums by at most sqrt(2) N, adding one by N.

    On the grid, v times a scale s moves by at most r / 2, r the norm of a block's weights. So a row
    has norm at most s N + r / 2, and two rows differ by at most sqrt(2) s N + r: within the bounds
    for s <= 2^k - r / N. A row that fails the check of its norm (a fault), or has no propensity,
    counts zero.
    """

    e: Function
    clip: float
    regressors: Regressors

    @property
    def query(self) -> str:
        return f"means by arm, {self.regressors.width - 1} columns"

    @cached_property
    def gamma(self) -> float:
        """gamma^2 = 1 / (2 clip), which with equal arms gives the least sum of both variances.

        The noise sd of an arm's mean is sd / (rows of the arm) without weights and
        sd / (gamma clip x all rows) with them, and sd^2 is proportional to 1 + gamma^2.
        """
        return float(np.sqrt(0.5 / self.clip))

    @property
    def weights(self) -> Vector:
        return np.tile(self._block, 2)

    @property
    def _block(self) -> Vector:
        """Weights of one arm's coordinates in the norm, shape (2 width,)."""
        return np.repeat([1.0, self.gamma], self.regressors.width)

    @property
    def _norm(self) -> float:
        return float(np.sqrt((1 + self.gamma**2) * self.regressors.norm2))

    @cached_property
    def _scale(self) -> float:
        return sum_scale(self._block, self._norm)

    def sensitivity(self, neighbors: Neighbors) -> float:
        return (np.sqrt(2.0) if neighbors == "substitute" else 1.0) * self._norm * UNIT

    @property
    def units(self) -> Vector:
        """Natural units: the weighted sums are given with the weight 1 / e itself."""
        one = np.repeat([1.0, 1.0 / self.clip], self.regressors.width) / self._scale
        return np.tile(one, 2)

    def integers(self, batch: Batch) -> Integers:
        a, e = self.regressors.a(batch), self.e(batch.rows)
        own = np.where(batch.t == 1, e, 1.0 - e)
        h = np.minimum(np.maximum(self.clip / own, 0.0), 1.0)[:, None]
        ints = np.rint(np.nan_to_num(np.hstack([a, h * a])) * self._scale)
        fine = squared_norm(ints * self._block) <= (self._norm * UNIT) ** 2
        fine &= batch.complete & ~np.isnan(e)
        arms = [fine & (batch.t == arm) for arm in (0, 1)]
        return np.concatenate([ints[rows].astype(np.int64).sum(axis=0) for rows in arms])

    def split(self, values: Vector) -> Matrix:
        """Sums by arm (control, treated) and weighting (plain, weighted), shape (2, 2, width).

        Entry 0 of the last axis is the sum of weights, the others are sums of alpha z.
        """
        return values.reshape(2, 2, self.regressors.width)
