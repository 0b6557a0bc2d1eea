"""What balance needs of the rows: bounded sums of design columns within the arms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from privcausal.features.functions import Function
from privcausal.typing import Integers, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.mechanisms.blocks import Block, BlockSums
from privcausal.vault.mechanisms.scores import Regressors


@dataclass(frozen=True, eq=False)
class ArmMeans(BlockSums):
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

    A row without a propensity counts zero, as one that fails the check of its norm (a fault) does.
    """

    e: Function
    clip: float
    regressors: Regressors

    arms: ClassVar[int] = 2

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
    def blocks(self) -> tuple[Block, ...]:
        """Sums of weights, then of alpha z: plain, and with the weight 1 / e itself."""
        width, norm2 = self.regressors.width, self.regressors.norm2
        plain = Block((width,), norm2)
        return plain, replace(plain, weight=self.gamma**2, unit=1.0 / self.clip)

    def integers(self, batch: Batch) -> Integers:
        a, e = self.regressors.a(batch).T, self.e(batch.rows)
        own = np.where(batch.t == 1, e, 1.0 - e)
        h = np.minimum(np.maximum(self.clip / own, 0.0), 1.0)

        def columns(scale: float) -> Iterator[Vector]:
            yield from (one * scale for one in a)
            yield from (h * one * scale for one in a)

        arms = [batch.complete & (batch.t == arm) for arm in (0, 1)]
        return np.concatenate([self.summed(columns, rows) for rows in arms])
