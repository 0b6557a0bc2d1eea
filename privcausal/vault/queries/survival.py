"""Counts of survival times by arm, and the score of a row in place of its censored outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from privcausal.typing import Integers, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.exit import Mechanism

WHOLE_BINS, EQUAL_BINS = 400, 250
"""A horizon of at most `WHOLE_BINS` whole units has one bin a unit; others have `EQUAL_BINS`."""

ROOT_BITS = 20
"""Bits of the weights of a bin in `SurvivalCounts`."""


@dataclass(frozen=True)
class FollowUp:
    """The public cell of a row by its arm, its kind of end, and the bin of its time.

    With K bins of one width up to the horizon, times at or below 0 are in bin 0, and a time in
    (k - 1, k] widths is in bin k <= K. Rows with an event by the horizon are in one of the cells of
    `events`. All others are in one of the cells of `ends`, where bin K also has the rows followed
    beyond the horizon. Rows censored in bin K count as followed to the horizon.
    """

    event: str
    horizon: float

    @property
    def bins(self) -> int:
        whole = self.horizon == round(self.horizon) and self.horizon <= WHOLE_BINS
        return round(self.horizon) if whole else EQUAL_BINS

    @property
    def shape(self) -> tuple[int, int, int]:
        """Arms, kinds (event, or other end), and bins."""
        return 2, 2, self.bins + 1

    def cell(self, time: Vector, event: Vector, arm: Vector) -> Integers:
        """Position in an array of `shape`, for any finite times, shape (n,)."""
        place = np.ceil(np.clip(time, 0.0, self.horizon) * (self.bins / self.horizon))
        at = np.minimum(place, self.bins)
        other = 1 - (event == 1) * (time <= self.horizon)
        return np.asarray((2 * (arm == 1) + other) * (self.bins + 1) + at, np.int64)


@dataclass(frozen=True)
class SurvivalCounts(Mechanism):
    """Weighted suffix sums, over the bins of time, of counts by arm and kind of end.

    For the counts x of one arm and kind, the release is y = M x. M is an upper triangular Toeplitz
    matrix with entries a_k = C(2k, k) / 4^k at distance k from the diagonal, rounded to multiples
    of 2^-20. Without rounding, M M x are the suffix sums of x, so M y are the numbers with a time
    in bin k or later. Their noise sd grows with the logarithm of the number of bins, and the noise
    of sums over a histogram with its square root (Fichtenberger, Henzinger, and Upadhyay 2023,
    "Constant matters").

    Privacy
    -------
    A row's cell (`FollowUp`) depends only on that row. A complete row adds the column of its bin,
    in whole numbers, to the entries of its arm and kind; all other rows add nothing. Entries are
    nonnegative, and those of a column are among the entries of the last column, in which every
    diagonal ends. Therefore adding a row changes the sums by at most the norm r of the last column.
    Replacing a row changes them by u - v for two columns, or one column and zero. Since u'v >= 0,
    |u - v|^2 <= |u|^2 + |v|^2 <= 2 r^2.
    """

    follow: FollowUp

    @property
    def query(self) -> str:
        return f"survival times by arm, {self.follow.bins + 1} bins"

    @cached_property
    def whole(self) -> Integers:
        """The matrix M in steps of 2^-20, shape (bins, bins)."""
        size = self.follow.shape[2]
        k = np.arange(1.0, size)
        a = np.rint(np.cumprod(np.r_[1.0, (2 * k - 1) / (2 * k)]) * (1 << ROOT_BITS))
        away = np.arange(size) - np.arange(size)[:, None]
        return np.where(away >= 0, a[np.abs(away)], 0.0).astype(np.int64)

    @property
    def root(self) -> Matrix:
        """The matrix M, shape (bins, bins)."""
        return self.whole / float(1 << ROOT_BITS)

    @property
    def units(self) -> Vector:
        return np.full(int(np.prod(self.follow.shape)), 2.0**-ROOT_BITS)

    def sensitivity(self, neighbors: Neighbors) -> float:
        most = float(np.sqrt(np.sum(self.whole[:, -1].astype(np.float64) ** 2)))
        return most * (float(np.sqrt(2.0)) if neighbors == "substitute" else 1.0)

    def integers(self, batch: Batch) -> Integers:
        event = np.asarray(batch.rows.frame[self.follow.event], np.float64)
        cell = self.follow.cell(batch.y, event, batch.t)
        counts = np.bincount(cell[batch.complete], minlength=len(self.units))
        return np.asarray(counts.reshape(-1, self.follow.shape[2]) @ self.whole.T, np.int64).ravel()

    def split(self, values: Vector) -> Matrix:
        """The release, by arm, kind and bin."""
        return values.reshape(self.follow.shape)


@dataclass(frozen=True, eq=False)
class SurvivalScore:
    """The score of a row that replaces its censored outcome: a public number for each cell.

    `table` has shape `follow.shape`. The score of any row lies in [lo, hi], the range of the table,
    because the row's cell is one of the table's.
    """

    follow: FollowUp
    table: Matrix = field(repr=False)

    @property
    def lo(self) -> float:
        return float(self.table.min())

    @property
    def hi(self) -> float:
        return float(self.table.max())

    def __call__(self, time: Vector, event: Vector, arm: Vector) -> Vector:
        return np.asarray(self.table.ravel()[self.follow.cell(time, event, arm)])
