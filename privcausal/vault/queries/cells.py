"""Sums by cell and arm, and by cluster: what uplift from aggregates needs of the rows."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from privcausal.errors import CapabilityError
from privcausal.request.partition import (
    GRID_BITS,
    CellQuery,
    Coordinates,
    Nearest,
    Partition,
    Product,
)
from privcausal.request.schema import Interval
from privcausal.typing import Integers, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch, Layout, RawBatch
from privcausal.vault.exit import Mechanism, RawMechanism
from privcausal.vault.queries.sums import HistogramQuery
from privcausal.vault.transforms import Outcome

# Domains that are bought: ranges of undeclared numbers, levels of undeclared texts.

LOWEST, SIZE_STEPS = -20, 30
"""Sizes told apart: below 2^-20 counts as zero; then steps by a factor of four, to 2^40."""

FINE_CELLS = 64
"""Cells of the second histogram."""


class _Histograms(HistogramQuery, RawMechanism):
    """A histogram of each raw column; a row without a value is in none of its cells."""

    cells: ClassVar[int]

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.cells,) * len(self.variables)

    @abstractmethod
    def cell(self, name: str, values: Vector) -> Integers:
        """The cell of each value of a variable."""

    def integers(self, batch: RawBatch) -> Integers:
        counts = []
        for name in self.variables:
            values = batch.columns[name].numbers
            assert values is not None
            values = values[batch.keep & ~np.isnan(values)]
            counts.append(np.bincount(self.cell(name, values), minlength=self.cells))
        return np.concatenate(counts).astype(np.int64)


@dataclass(frozen=True)
class Magnitudes(_Histograms):
    """Histogram of the sign and size of each variable, in steps of a factor of four."""

    variables: tuple[str, ...]
    cells: ClassVar[int] = 2 * SIZE_STEPS + 1

    @property
    def query(self) -> str:
        return f"magnitudes of {len(self.variables)} columns"

    def cell(self, name: str, values: Vector) -> Integers:
        """Cells from the most negative through zero to the most positive."""
        with np.errstate(divide="ignore"):
            exponent = np.floor((np.log2(np.abs(values)) - LOWEST) / 2)
        size = np.clip(exponent + 1, 0, SIZE_STEPS)
        return np.asarray(SIZE_STEPS + np.sign(values) * size, np.int64)

    def edges(self) -> Vector:
        """Cell borders, shape (cells + 1,)."""
        positive = 2.0 ** (LOWEST + 2.0 * np.arange(SIZE_STEPS + 1))
        return np.concatenate([-positive[::-1], positive])


@dataclass(frozen=True)
class Grid(_Histograms):
    """Histogram of each variable on `CELLS` equal cells of a released range."""

    variables: tuple[str, ...]
    ranges: tuple[Interval, ...]
    cells: ClassVar[int] = FINE_CELLS

    @property
    def query(self) -> str:
        return f"grid of {len(self.variables)} columns"

    def cell(self, name: str, values: Vector) -> Integers:
        interval = self.ranges[self.variables.index(name)]
        # what lies beyond the coarse range is piled up at its ends: it was seen there, coarsely
        inside = np.clip(values, interval.lo, interval.hi)
        position = np.floor((inside - interval.lo) / interval.width * FINE_CELLS)
        return np.clip(position, 0, FINE_CELLS - 1).astype(np.int64)


@dataclass(frozen=True)
class LabelSelection:
    """Labels of one column whose noisy count passes a threshold.

    Privacy
    -------
    Labels present in both neighbours form a histogram of l2 sensitivity sqrt(2) k (substitution)
    or k, with k = max_rows: rho-zCDP with discrete Gaussian noise of sd sigma. A label present in
    one neighbour only comes from one unit, so its count is at most k, and there are at most k such
    labels; each passes the threshold k + z sigma with probability at most delta_label, where
    exp(-z^2/2) = delta_label bounds the discrete Gaussian's tail (Canonne, Kamath and Steinke
    2020, Fact 7 with a subgaussian bound). Together: (rho, k delta_label)-approximate zCDP.
    Released labels are sorted by their text, so their order says nothing. It is Gaussian noise
    as well: of the labels present in both, 2 k at most have other counts, and only these need the
    slack of discrete noise.
    """

    column: str
    max_rows: int
    delta: float
    name: str = "noisy threshold"

    @property
    def query(self) -> str:
        return f"levels of {self.column}"

    def sensitivity(self, neighbors: Neighbors) -> float:
        return (math.sqrt(2.0) if neighbors == "substitute" else 1.0) * self.max_rows

    def threshold(self, sigma: float) -> int:
        """Smallest noisy count that is let through."""
        per_label = self.delta / self.max_rows
        return math.ceil(self.max_rows + sigma * math.sqrt(2 * math.log(1 / per_label))) + 1


CELL_UNIT = 1 << GRID_BITS

CellArray = Vector | Integers

Form = Literal["ends", "count_sum"]

SQUARES_WEIGHT = 0.1
"""Weight of the sums of squares in the l1 norm; they take a twentieth of epsilon."""

L2_WEIGHTS: dict[Neighbors, tuple[float, float]] = {
    "substitute": (0.9, 0.1),
    "add_remove": (0.5, 0.05),
}
"""Squared weights (beta^2, gamma^2) of counts and squares in the l2 norm. Under substitution they
are free while their sum is at most 1; where a row is added each is paid for."""


@dataclass(frozen=True, eq=False)
class CellSums(Mechanism):
    """Sums by cell and arm of a row's outcome, and its square by arm.

    x in [-1, 1] is the outcome's place between its bounds, on a grid of 2^-30. With
    ``form="count_sum"`` the entries are sums of x and of 1 (Betlei et al. 2021, Algorithm 1); with
    ``"ends"`` sums of the distances (1 + x)/2 and (1 - x)/2 from both bounds, whose sum is the
    count and whose difference is the sum of x. `squares` adds sums of x^2 by arm.

    Privacy
    -------
    A row's cell depends on that row alone. A complete row in a cell adds to the entries of one cell
    and arm only; any other row adds nothing. In l1, with counts weighted so that one row counts as
    much as the largest x, it adds 1 + |x| <= 2 for count and sum, or (1 + x) + (1 - x) = 2 for both
    ends (in units of 2^30 grid steps), and w x^2 <= w for its square. So adding a row moves the
    sums by at most 2 + w, replacing one by at most twice that. This is Lap(2/eps) for counts and
    Lap(D/eps) for sums of an outcome of range D when a row is added, and twice as much when one is
    replaced. Noise on both ends, Lap(1/eps) or Lap(2/eps), has half the variance of that on count
    and sum.

    The paper prints Lap(2/eps) and Lap(2D/eps) for sums of y itself, which one row moves by up to
    max|y|. Where a row is added this is epsilon-DP for outcomes in [0, 1] but 1.5 epsilon for
    [5, 10]; where one is replaced it is 2 and 3 epsilon.

    In l2 (counts and sums), with weights beta and gamma of counts and squares, a row has squared
    norm at most S = 1 + beta^2 + gamma^2. Replaced by a row of another cell or arm it moves the
    sums by at most 2 S (all entries apart, or those of x^2 in common and both not negative), by one
    of the same by (x - x')^2 (1 + gamma^2 (x + x')^2) <= 4 for gamma <= 1, since
    |x + x'| <= 2 - |x - x'|. So Delta^2 = max(4, 2 S), and S where a row is added.

    Where somebody else has added the rows up, the sum of x in each cell and arm that changes may
    move by `rounding` grid steps more (see `CellTable`): one entry of the sums, or both ends, in
    one cell and arm where a row is added, in two at most where one is replaced. By the triangle
    inequality this adds at most 2 or 4 `rounding` in l1, and 1 or sqrt(2) `rounding` in l2.
    """

    partition: Partition
    outcome: Outcome
    neighbors: Neighbors
    law: Literal["laplace", "gaussian"]
    form: Form = "ends"
    squares: bool = True
    rounding: float = 0.0

    def __post_init__(self) -> None:
        if self.form == "ends" and self.law == "gaussian":
            raise CapabilityError(
                "distances from both bounds are released with Laplace noise: in l2 one row moves "
                "them by more than is proven for counts and sums"
            )

    @property
    def query(self) -> str:
        what = "distances from both bounds" if self.form == "ends" else "counts and sums"
        return f"{what} by arm in {self.partition.size} cells"

    @property
    def _groups(self) -> int:
        return 2 * self.partition.size

    @property
    def _sizes(self) -> tuple[int, int, int]:
        """Numbers of sums or ends, of counts or other ends, and of squares."""
        return self._groups, self._groups, 2 if self.squares else 0

    @property
    def _kinds(self) -> tuple[float, float]:
        """Weights of counts and of squares; of the sums it is 1."""
        if self.law == "laplace":
            return float(CELL_UNIT), SQUARES_WEIGHT
        beta2, gamma2 = L2_WEIGHTS[self.neighbors]
        return float(np.sqrt(beta2)) * CELL_UNIT, float(np.sqrt(gamma2))

    @property
    def weights(self) -> Vector:
        count, square = self._kinds
        return np.repeat([1.0, 1.0 if self.form == "ends" else count, square], self._sizes)

    @property
    def _square_bound(self) -> float:
        return self._kinds[1] if self.squares else 0.0

    def l1_sensitivity(self, neighbors: Neighbors) -> float:
        places = 2.0 if neighbors == "substitute" else 1.0
        return places * ((2.0 + self._square_bound) * CELL_UNIT + 2.0 * self.rounding)

    def sensitivity(self, neighbors: Neighbors) -> float:
        beta2 = L2_WEIGHTS[self.neighbors][0]
        one = 1.0 + beta2 + self._square_bound**2
        if neighbors == "substitute":
            return float(np.sqrt(max(4.0, 2 * one))) * CELL_UNIT + math.sqrt(2.0) * self.rounding
        return float(np.sqrt(one)) * CELL_UNIT + self.rounding

    @property
    def units(self) -> Vector:
        half = self.outcome.bound
        first, second = (
            (0.5 / CELL_UNIT, 0.5 / CELL_UNIT) if self.form == "ends" else (half / CELL_UNIT, 1.0)
        )
        return np.repeat([first, second, half**2 / CELL_UNIT], self._sizes)

    # -- exact sums --------------------------------------------------------------------------

    def integers(self, batch: Batch) -> Integers:
        place = np.clip(self.outcome(batch) / self.outcome.bound, -1.0, 1.0)
        x, square = np.rint(place * CELL_UNIT), np.rint(place * place * CELL_UNIT)
        cell = self.partition.cell(batch.rows.frame)
        counted = batch.complete & (cell >= 0) & (cell < self.partition.size)
        arm = (batch.t[counted] == 1).astype(np.int64)
        at = 2 * cell[counted] + arm
        # whole numbers below 2^53: sums of floats are exact in any order
        count = np.bincount(at, minlength=self._groups)
        total = np.bincount(at, x[counted], minlength=self._groups)
        squares = np.bincount(arm, square[counted], minlength=2)
        return self._entries(count, total, squares)

    def counted(
        self, layout: Layout, labels: frozenset[str], ask: Callable[[str], Integers | None]
    ) -> Integers | None:
        """None where SQL is not exact."""
        formula = layout.request.formula
        if not isinstance(self.partition, Product) or formula.response is not None:
            return None
        query = CellQuery(
            formula.outcome, formula.treatment, layout.needed, layout.schema, self.partition, labels
        )
        rows = ask(query.exact("data", squares=self.squares))
        if rows is None:
            return None
        found = np.zeros((3, self._groups), np.int64)
        found[:, 2 * rows[:, 0] + rows[:, 1]] = rows[:, 2:].T
        return self._entries(found[0], found[1], found[2].reshape(-1, 2).sum(axis=0))

    def _entries(self, count: Integers, total: CellArray, squares: CellArray) -> Integers:
        n, s = count.astype(np.int64), total.astype(np.int64)
        both = [n * CELL_UNIT + s, n * CELL_UNIT - s] if self.form == "ends" else [s, n]
        return np.concatenate([*both, squares.astype(np.int64)[: 2 if self.squares else 0]])

    # -- reading a release -------------------------------------------------------------------

    def split(self, values: Vector) -> tuple[Matrix, Matrix, Vector | None]:
        """Counts and sums of y - middle, shape (cells, 2) each, and sums of (y - middle)^2.

        Columns are control and treated, in natural units.
        """
        m = self._groups
        first, second = values[:m], values[m : 2 * m]
        if self.form == "ends":
            half = self.outcome.bound
            first, second = half * (first - second), first + second
        squares = values[2 * m :] if self.squares else None
        return second.reshape(-1, 2), first.reshape(-1, 2), squares

    def variances(self, noise_sd: Vector) -> tuple[float, float, float]:
        """Noise variances of a count, of a sum, and of a sum of squares, in natural units."""
        m = self._groups
        first, second = float(noise_sd[0]) ** 2, float(noise_sd[m]) ** 2
        if self.form == "ends":
            both = first + second
            first, second = self.outcome.bound**2 * both, both
        return second, first, float(noise_sd[-1]) ** 2 if self.squares else 0.0


@dataclass(frozen=True, eq=False)
class ClusterSums(Mechanism):
    """Sums of z, and of 1, over the rows nearest to each centre (DP-Lloyd, Su et al. 2016).

    z has one coordinate in [-1, 1] for each number, and for each column with labels one corner,
    0 or 1 a label, of which one is 1 at most.

    Privacy
    -------
    A complete row adds to the entries of one cluster only, any other row nothing. With m columns
    its point has sum |z_j| <= m and sum z_j^2 <= m, on the grid too, since whole numbers bound each
    coordinate. With the count weighted by the root of m in l2 (by m in l1) a row has squared norm
    at most 2 m (norm at most 2 m). So adding a row moves the sums by at most sqrt(2 m) in l2 and
    2 m in l1. Replacing it moves them by at most twice that in l1; in l2 by 2 sqrt(m): two
    clusters, 2 m + 2 m; the same cluster, |z - z'|^2 <= 4 m, the count stays.
    """

    nearest: Nearest
    law: str

    @property
    def query(self) -> str:
        return f"sums in {self.nearest.size} clusters"

    @property
    def _columns(self) -> int:
        return len(self.nearest.variables)

    @property
    def weights(self) -> Vector:
        count = float(self._columns) if self.law == "laplace" else float(np.sqrt(self._columns))
        entries = self.nearest.size * self.nearest.coordinates.size
        return np.repeat([1.0, count * CELL_UNIT], [entries, self.nearest.size])

    def sensitivity(self, neighbors: Neighbors) -> float:
        return (
            float(np.sqrt((4.0 if neighbors == "substitute" else 2.0) * self._columns)) * CELL_UNIT
        )

    def l1_sensitivity(self, neighbors: Neighbors) -> float:
        return (4.0 if neighbors == "substitute" else 2.0) * self._columns * CELL_UNIT

    @property
    def units(self) -> Vector:
        entries = self.nearest.size * self.nearest.coordinates.size
        return np.repeat([1.0 / CELL_UNIT, 1.0], [entries, self.nearest.size])

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
    """Where the centres start: public points spread over the domain, shape (size, coordinates)."""
    steps = np.arange(1.0, size + 1)[:, None]
    # fractions of multiples of the roots of primes, which fill a cube evenly
    primes = [p for p in range(2, 10_000) if all(p % q for q in range(2, int(p**0.5) + 1))]
    roots = np.sqrt(np.array(primes[: coordinates.size], np.float64))
    return np.asarray(2.0 * ((steps * roots) % 1.0) - 1.0)
