"""Sums by cell and arm, and by cluster, for uplift from aggregates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from privcausal.errors import CapabilityError
from privcausal.features.functions import Ranks
from privcausal.request.partition import GRID_BITS, Coordinates, Nearest, Partition
from privcausal.request.schema import Interval
from privcausal.typing import Integers, Mask, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch, RawColumn
from privcausal.vault.exit import Mechanism, Named
from privcausal.vault.queries.sums import HistogramQuery
from privcausal.vault.transforms import Outcome

# Domains estimated privately: ranges of undeclared numbers, levels of undeclared texts.

LOWEST, SIZE_STEPS = -20, 30
"""Range of sizes: values below 2^-20 count as zero; cells then grow by a factor of 4, to 2^40."""

SIZES = 2.0 ** (LOWEST + 2.0 * np.arange(SIZE_STEPS + 1))

FINE_CELLS = 64
"""Cells of the second histogram."""


@dataclass(frozen=True)
class ColumnHistograms(HistogramQuery):
    """A histogram of each raw column, before domains are known.

    The cells are signs and sizes, in steps of a factor of four. With `ranges`, which are released
    intervals, they are `FINE_CELLS` equal cells of the column's range. A row without a value is in
    none of the column's cells. A row whose `weight`, if there is such a column, is not positive is
    in no cell at all.
    """

    variables: tuple[str, ...]
    weight: str | None = None
    ranges: tuple[Interval, ...] | None = None
    query: str = field(init=False)
    sizes: tuple[int, ...] = field(init=False)

    # Borders of the cells of signs and sizes, shape (cells + 1,)
    edges = np.concatenate([-SIZES[::-1], SIZES])
    edges.setflags(write=False)

    def __post_init__(self) -> None:
        what, cells, many = "magnitudes", 2 * SIZE_STEPS + 1, len(self.variables)
        if self.ranges is not None:
            what, cells = "grid", FINE_CELLS
        vars(self).update(query=f"{what} of {many} columns", sizes=(cells,) * many)

    def integers(self, columns: Mapping[str, RawColumn], keep: Mask) -> Integers:
        """Exact counts over the kept rows of a block, shape (m,)."""
        counts = []
        if self.weight is not None:
            weights = columns[self.weight].numbers
            assert weights is not None
            keep = keep & (weights > 0)
        for k, (name, size) in enumerate(zip(self.variables, self.sizes, strict=True)):
            values = columns[name].numbers
            assert values is not None
            values = values[keep & np.isfinite(values)]
            if self.ranges is None:
                # Cells from the most negative values through zero to the most positive.
                with np.errstate(divide="ignore"):
                    exponent = np.floor((np.log2(np.abs(values)) - LOWEST) / 2)
                place = SIZE_STEPS + np.sign(values) * np.clip(exponent + 1, 0, SIZE_STEPS)
            else:
                interval = self.ranges[k]
                # Values beyond the coarse range are counted at its ends.
                inside = np.clip(values, interval.lo, interval.hi)
                position = np.floor((inside - interval.lo) / interval.width * FINE_CELLS)
                place = np.clip(position, 0, FINE_CELLS - 1)
            counts.append(np.bincount(place.astype(np.int64), minlength=size))
        return np.concatenate(counts).astype(np.int64)


@dataclass(frozen=True)
class LabelSelection(Named):
    """Labels of one column whose noisy count passes a threshold, and these noisy counts.

    Privacy
    -------
    Let k = max_rows. Labels present in both neighboring data sets form a histogram of l2
    sensitivity sqrt(2) k (substitution) or k. With discrete Gaussian noise of sd sigma, this
    histogram is rho-zCDP. A label present in only one neighbor comes from one unit. Its count is at
    most k, and there are at most k such labels. Each passes the threshold k + z sigma with
    probability at most delta_label. Here, exp(-z^2/2) = delta_label bounds the discrete Gaussian's
    tail (Canonne, Kamath, and Steinke 2020, Fact 7 with a subgaussian bound). Together, the release
    is (rho, k delta_label)-approximate zCDP. Noisy counts of released labels are part of it.
    Labels are sorted by their text, so their order carries no information. The noise also counts as
    Gaussian noise: among the labels present in both data sets, at most 2 k have different counts.
    Only these labels need the slack of discrete noise.
    """

    column: str
    max_rows: int
    delta: float

    name = "noisy threshold"
    label = "levels of {self.column}"

    def sensitivity(self, neighbors: Neighbors) -> float:
        return (math.sqrt(2.0) if neighbors == "substitute" else 1.0) * self.max_rows

    def threshold(self, sigma: float) -> int:
        """Smallest noisy count that passes."""
        per_label = self.delta / self.max_rows
        return math.ceil(self.max_rows + sigma * math.sqrt(2 * math.log(1 / per_label))) + 1


CELL_UNIT = 1 << GRID_BITS

CellArray = Vector | Integers

SQUARES_WEIGHT = 0.1
"""Weight of the sums of squares in the l1 norm. These sums use a twentieth of epsilon."""

L2_WEIGHTS: dict[Neighbors, tuple[float, float]] = {
    "substitute": (0.9, 0.1),
    "add_remove": (0.5, 0.05),
}
"""Squared weights (beta^2, gamma^2) of counts and squares in the l2 norm. Under substitution, they
are free while their sum is at most 1. Under add_remove, each adds to the sensitivity.
"""


@dataclass(frozen=True, eq=False)
class CellSums(Mechanism):
    """Sums by cell and arm of a row's outcome, and sums of its square by arm.

    x in [-1, 1] is the position of the outcome between its bounds, on a grid of 2^-30. With
    ``form="count_sum"``, the entries are sums of x and of 1 (Betlei et al. 2021, Algorithm 1). With
    ``"ends"``, they are sums of the distances (1 + x)/2 and (1 - x)/2 from both bounds. The sum of
    these two is the count, and their difference is the sum of x. `squares` adds sums of x^2 by arm.

    Privacy
    -------
    *l1.* A row's cell depends only on that row. A complete row in a cell adds only to the entries
    of one cell and arm. All other rows add zero. Counts are weighted so that one row counts as much
    as the largest x. In units of 2^30 grid steps, a row adds 1 + |x| <= 2 for count and sum, or (1
    + x) + (1 - x) = 2 for both ends. It adds w x^2 <= w for its square. Therefore adding a row
    changes the sums by at most 2 + w, and replacing a row changes them by at most twice that
    amount. If a row is added, the noise is Lap(2/eps) for counts and Lap(D/eps) for sums of an
    outcome of range D. If a row is replaced, the noise scales are twice as large. Noise on both
    ends, Lap(1/eps) or Lap(2/eps), has half the variance of noise on count and sum.

    The paper prints Lap(2/eps) and Lap(2D/eps) for sums of y itself. One row changes these sums by
    up to max|y|. If a row is added, the paper's noise is epsilon-DP for outcomes in [0, 1] but 1.5
    epsilon-DP for [5, 10]. If a row is replaced, it is 2 and 3 epsilon-DP.

    *l2* (counts and sums). Let beta and gamma be the weights of counts and squares. A row has
    squared norm at most S = 1 + beta^2 + gamma^2. Replacement by a row of another cell or arm
    changes the sums by at most 2 S in squared norm. Either all entries are separate, or only the
    entry of x^2 is shared. In that case, both values are nonnegative. Replacement by a row of the
    same cell and arm changes the sums by (x - x')^2 (1 + gamma^2 (x + x')^2) <= 4 for gamma <= 1,
    since |x + x'| <= 2 - |x - x'|. Therefore Delta^2 = max(4, 2 S), and Delta^2 = S if a row is
    added.

    *Rounding.* If the rows were aggregated by another party, the sum of x in each cell and arm that
    changes may change by a further `rounding` grid steps (see `CellTable`). This affects one entry
    of the sums, or both ends. It affects one cell and arm if a row is added, and at most two if a
    row is replaced. By the triangle inequality, this adds at most 2 or 4 `rounding` in l1, and 1 or
    sqrt(2) `rounding` in l2.
    """

    partition: Partition | Ranks
    outcome: Outcome
    neighbors: Neighbors
    law: Literal["laplace", "gaussian"]
    form: Literal["ends", "count_sum"] = "ends"
    squares: bool = True
    rounding: float = 0.0
    query: str = field(init=False)
    square_weight: float = field(init=False)  # Weight of squares, if any; sums have 1
    weights: Vector = field(init=False)
    units: Vector = field(init=False)

    def __post_init__(self) -> None:
        if self.form == "ends" and self.law == "gaussian":
            raise CapabilityError(
                "Distances from both bounds require Laplace noise. Their l2 sensitivity exceeds "
                "the one proven for counts and sums."
            )

        size, half = self.partition.size, self.outcome.bound
        # Weights of counts and of squares
        count, square = float(CELL_UNIT), SQUARES_WEIGHT * self.squares
        if self.law == "gaussian":
            beta2, gamma2 = L2_WEIGHTS[self.neighbors]
            count = float(np.sqrt(beta2)) * CELL_UNIT
            square = float(np.sqrt(gamma2)) * self.squares
        what, weights, units = "counts and sums", (1.0, count), (half / CELL_UNIT, 1.0)
        if self.form == "ends":
            what, weights, units = "distances from both bounds", (1.0, 1.0), (0.5 / CELL_UNIT,) * 2
        entries = [2 * size, 2 * size, 2 * self.squares]
        vars(self).update(
            query=f"{what} by arm in {size} cells",
            square_weight=square,
            weights=np.repeat([*weights, square], entries),
            units=np.repeat([*units, half**2 / CELL_UNIT], entries),
        )
        self.weights.setflags(write=False)
        self.units.setflags(write=False)

    def l1_sensitivity(self, neighbors: Neighbors) -> float:
        places = 2.0 if neighbors == "substitute" else 1.0
        return places * ((2.0 + self.square_weight) * CELL_UNIT + 2.0 * self.rounding)

    def sensitivity(self, neighbors: Neighbors) -> float:
        beta2 = L2_WEIGHTS[self.neighbors][0]
        row_norm2 = 1.0 + beta2 + self.square_weight**2
        if neighbors == "substitute":
            norm = float(np.sqrt(max(4.0, 2 * row_norm2)))
            return norm * CELL_UNIT + math.sqrt(2.0) * self.rounding
        return float(np.sqrt(row_norm2)) * CELL_UNIT + self.rounding

    # -- exact sums --------------------------------------------------------------------------

    def integers(self, batch: Batch) -> Integers:
        place = np.clip(self.outcome(batch) / self.outcome.bound, -1.0, 1.0)
        x, square = np.rint(place * CELL_UNIT), np.rint(place * place * CELL_UNIT)
        cell = self.partition.cell(batch.rows.frame)
        counted = batch.complete & (cell >= 0) & (cell < self.partition.size)
        arm = (batch.t[counted] == 1).astype(np.int64)
        group, groups = 2 * cell[counted] + arm, 2 * self.partition.size
        # All sums are whole numbers below 2^53, so float sums are exact in any order.
        count = np.bincount(group, minlength=groups)
        total = np.bincount(group, x[counted], minlength=groups)
        squares = np.bincount(arm, square[counted], minlength=2)
        return self.entries(count, total, squares)

    def entries(self, count: CellArray, total: CellArray, squares: CellArray) -> Integers:
        """The sums from counts and sums of x by cell and arm, and sums of x^2 by arm."""
        n, s = count.astype(np.int64), total.astype(np.int64)
        both = [n * CELL_UNIT + s, n * CELL_UNIT - s] if self.form == "ends" else [s, n]
        return np.concatenate([*both, squares.astype(np.int64)[: 2 if self.squares else 0]])

    # -- reading a release -------------------------------------------------------------------

    def split(self, values: Vector) -> tuple[Matrix, Matrix, Vector | None]:
        """Counts and sums of y - middle, shape (cells, 2) each, and sums of (y - middle)^2.

        Columns are control and treated, in natural units.
        """
        m = 2 * self.partition.size
        first, second = values[:m], values[m : 2 * m]
        if self.form == "ends":
            half = self.outcome.bound
            first, second = half * (first - second), first + second
        squares = values[2 * m :] if self.squares else None
        return second.reshape(-1, 2), first.reshape(-1, 2), squares

    def variances(self, noise_sd: Vector) -> tuple[float, float, float]:
        """Noise variances of a count, of a sum, and of a sum of squares, in natural units."""
        m = 2 * self.partition.size
        first, second = float(noise_sd[0]) ** 2, float(noise_sd[m]) ** 2
        if self.form == "ends":
            both = first + second
            first, second = self.outcome.bound**2 * both, both
        return second, first, float(noise_sd[-1]) ** 2 if self.squares else 0.0


@dataclass(frozen=True, eq=False)
class ClusterSums(Mechanism):
    """Sums of z, and of 1, over the rows nearest to each center (DP-Lloyd, Su et al. 2016).

    z has one coordinate in [-1, 1] for each number. For each column with labels, z has one
    coordinate of 0 or 1 per label, and at most one of these is 1.

    Privacy
    -------
    A complete row adds only to the entries of one cluster. All other rows add nothing. With m
    columns, a row's point has sum |z_j| <= m and sum z_j^2 <= m. This also holds on the grid, since
    whole numbers bound each coordinate. The count has weight sqrt(m) in l2 and weight m in l1.
    Therefore a row has squared l2 norm at most 2 m and l1 norm at most 2 m. Adding a row changes
    the sums by at most sqrt(2 m) in l2 and 2 m in l1. Replacing a row changes them by at most twice
    that amount in l1. In l2, it changes them by at most 2 sqrt(m). For two clusters, the squared
    change is at most 2 m + 2 m. For the same cluster, |z - z'|^2 <= 4 m, and the count stays the
    same.
    """

    nearest: Nearest
    law: str
    weights: Vector = field(init=False)
    units: Vector = field(init=False)

    label = "sums in {self.nearest.size} clusters"

    def __post_init__(self) -> None:
        m, size = len(self.nearest.variables), self.nearest.size
        count = float(m) if self.law == "laplace" else float(np.sqrt(m))
        entries = [size * self.nearest.coordinates.size, size]
        weights = np.repeat([1.0, count * CELL_UNIT], entries)
        vars(self).update(weights=weights, units=np.repeat([1.0 / CELL_UNIT, 1.0], entries))

    def sensitivity(self, neighbors: Neighbors) -> float:
        change2 = (4.0 if neighbors == "substitute" else 2.0) * len(self.nearest.variables)
        return float(np.sqrt(change2)) * CELL_UNIT

    def l1_sensitivity(self, neighbors: Neighbors) -> float:
        rows = 4.0 if neighbors == "substitute" else 2.0
        return rows * len(self.nearest.variables) * CELL_UNIT

    def integers(self, batch: Batch) -> Integers:
        frame, size = batch.rows.frame, self.nearest.size
        cell = self.nearest.cell(frame)[batch.complete]
        z = np.rint(self.nearest.coordinates.of(frame)[batch.complete] * CELL_UNIT)
        sums = [np.bincount(cell, z[:, j], minlength=size) for j in range(z.shape[1])]
        count = np.bincount(cell, minlength=size)
        return np.concatenate([*sums, count]).astype(np.int64)

    def split(self, values: Vector) -> tuple[Matrix, Vector]:
        """Sums of z, shape (clusters, coordinates), and counts."""
        size = self.nearest.size
        return values[:-size].reshape(-1, size).T, values[-size:]


def public_centres(coordinates: Coordinates, size: int) -> Matrix:
    """Starting centers: public points spread over the domain, shape (size, coordinates)."""
    steps = np.arange(1.0, size + 1)[:, None]
    # Fractional parts of multiples of the square roots of primes fill a cube evenly.
    primes = [p for p in range(2, 10_000) if all(p % q for q in range(2, int(p**0.5) + 1))]
    roots = np.sqrt(np.array(primes[: coordinates.size], np.float64))
    return np.asarray(2.0 * ((steps * roots) % 1.0) - 1.0)


# -- counts of survival times ------------------------------------------------------------------


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
    bins: int = field(init=False)
    shape: tuple[int, int, int] = field(init=False)  # Arms, kinds (event, or other end), and bins

    def __post_init__(self) -> None:
        whole = self.horizon == round(self.horizon) and self.horizon <= WHOLE_BINS
        bins = round(self.horizon) if whole else EQUAL_BINS
        vars(self).update(bins=bins, shape=(2, 2, bins + 1))

    def cell(self, time: Vector, event: Vector, arm: Vector) -> Integers:
        """Position in an array of `shape`, for any finite times, shape (n,)."""
        place = np.ceil(np.clip(time, 0.0, self.horizon) * (self.bins / self.horizon))
        at = np.minimum(place, self.bins)
        other = 1 - (event == 1) * (time <= self.horizon)
        return np.asarray((2 * (arm == 1) + other) * (self.bins + 1) + at, np.int64)


@dataclass(frozen=True, eq=False)
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
    whole: Integers = field(init=False)  # The matrix M in steps of 2^-20, shape (bins, bins)
    root: Matrix = field(init=False)  # M itself
    units: Vector = field(init=False)

    label = "survival times by arm, {self.follow.shape[2]} bins"

    def __post_init__(self) -> None:
        size = self.follow.shape[2]
        k = np.arange(1.0, size)
        a = np.rint(np.cumprod(np.r_[1.0, (2 * k - 1) / (2 * k)]) * (1 << ROOT_BITS))
        away = np.arange(size) - np.arange(size)[:, None]
        whole = np.where(away >= 0, a[np.abs(away)], 0.0).astype(np.int64)
        units = np.full(4 * size, 2.0**-ROOT_BITS)
        vars(self).update(whole=whole, root=whole / float(1 << ROOT_BITS), units=units)

    def sensitivity(self, neighbors: Neighbors) -> float:
        most = float(np.sqrt(np.sum(self.whole[:, -1].astype(np.float64) ** 2)))
        return most * (float(np.sqrt(2.0)) if neighbors == "substitute" else 1.0)

    def integers(self, batch: Batch) -> Integers:
        event = np.asarray(batch.rows.frame[self.follow.event], np.float64)
        cell = self.follow.cell(batch.y, event, batch.t)
        counts = np.bincount(cell[batch.complete], minlength=len(self.units))
        return np.asarray(counts.reshape(-1, self.follow.shape[2]) @ self.whole.T, np.int64).ravel()


@dataclass(frozen=True, eq=False)
class SurvivalScore:
    """The score of a row that replaces its censored outcome: a public number for each cell.

    `table` has shape `follow.shape`. The score of any row lies in [lo, hi], the range of the table,
    because the row's cell is one of the table's.
    """

    follow: FollowUp
    table: Matrix = field(repr=False)
    lo: float = field(init=False)
    hi: float = field(init=False)

    def __post_init__(self) -> None:
        vars(self).update(lo=float(self.table.min()), hi=float(self.table.max()))

    def __call__(self, time: Vector, event: Vector, arm: Vector) -> Vector:
        return np.asarray(self.table.ravel()[self.follow.cell(time, event, arm)])
