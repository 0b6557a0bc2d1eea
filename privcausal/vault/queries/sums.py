"""Sums of clipped scores and of outcomes by arm or cluster, for average effects."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from privcausal.features.design import Design
from privcausal.features.functions import squared_norm
from privcausal.request.schema import Interval
from privcausal.typing import Integers, Mask, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.exit import ONE_FACTOR, Mechanism, Query, Solution, grid_scale
from privcausal.vault.noise import LIMIT
from privcausal.vault.transforms import ScoreVector, Transform

# Queries as lists of blocks. They share sensitivity rules, and each rule is proven once.
#
# A row's vector consists of blocks, and a query states the bounds of each block. `BlockSums`
# derives the coordinates, weights, sensitivity, exact sum, and layout of a release.
# `HistogramQuery` has the rule for histograms.

UNIT = float(1 << ONE_FACTOR)


class HistogramQuery(Query):
    """Counts of rows in public cells, of one histogram or of several.

    Privacy
    -------
    A row's cell depends only on that row. A row adds one to at most one cell of each of d
    histograms. A row that is not counted adds nothing. Therefore adding a row changes the joint
    vector by at most sqrt(d) in l2, and replacing a row changes it by at most sqrt(2 d).
    """

    sizes: tuple[int, ...]  # Number of cells of each histogram

    @cached_property
    def units(self) -> Vector:
        return np.ones(sum(self.sizes))

    def sensitivity(self, neighbors: Neighbors) -> float:
        d = len(self.sizes)
        return float(np.sqrt(2 * d if neighbors == "substitute" else d))


@dataclass(frozen=True, eq=False)
class QueryBlock:
    """Adjacent entries of a row's vector."""

    shape: tuple[int, ...]
    added: float  # Largest squared norm of a row's entries
    # Largest squared distance between two complete rows' entries. None means that their inner
    # product is never negative, which bounds the squared distance by twice `added`.
    replaced: float | None = None
    weight: float = 1.0  # Squared weight of the entries in the norm of the whole vector
    unit: Any = 1.0  # Natural units of an entry of 1, by `shape` or broadcast to it
    # Each entry of `shape` is a symmetric matrix of this size. It is stored as its upper triangle
    # (row by row) and measured by its Frobenius norm.
    matrix: int | None = None

    @property
    def entries(self) -> tuple[int, ...]:
        """Shape of the block's numbers."""
        if self.matrix is None:
            return self.shape
        return *self.shape, self.matrix * (self.matrix + 1) // 2


def squared_change(blocks: Iterable[QueryBlock], neighbors: Neighbors) -> float:
    """Largest squared norm of the change if a row is added, or replaced by a complete row."""
    by_weight: dict[float, float] = {}  # Unweighted values are small whole numbers.
    for block in blocks:
        change = block.added
        if neighbors == "substitute":
            change = 2 * block.added if block.replaced is None else block.replaced
        by_weight[block.weight] = by_weight.get(block.weight, 0.0) + change
    return sum(weight * change for weight, change in by_weight.items())


class BlockSums(Mechanism):
    """Sums over complete rows of vectors that consist of blocks, on one grid.

    Privacy
    -------
    Block b has the weight w_b. A subclass proves two bounds for each block: a row has norm at most
    A_b there, and two complete rows differ by at most R_b. All other rows add zero. Blocks are
    different coordinates, so squares add up. Adding a row, or replacing it by one that adds zero,
    changes the sums by at most A, A^2 = sum of w_b^2 A_b^2. Replacing a complete row by another
    changes them by at most R, R^2 = sum of w_b^2 R_b^2. Substitution covers both cases, so its
    bound is the larger of A and R.

    In some blocks, the inner product of any two rows' entries is never negative. Examples are
    nonnegative numbers and positive semidefinite matrices. There |v - v'|^2 <= |v|^2 + |v'|^2, so
    R_b^2 = 2 A_b^2.

    With several `arms`, each arm has its own sums, and a row adds only to the sums of its arm. Two
    rows of different arms share no coordinates, so they differ by at most sqrt(2) A.

    `sum_scale` shows that whole numbers on the grid stay within these bounds. `grid_sum` checks
    each row's norm, unless the query checks the factors of the row's vector.
    """

    arms: int = 1  # Number of arms with sums of their own
    row_weights: Vector  # Weights of a row's numbers in the norm
    row_norm: float  # The bound A of a row's weighted norm
    natural: Vector  # Natural units per unit of each number in a row's vector
    units: Vector

    @cached_property
    def blocks(self) -> tuple[QueryBlock, ...]:
        """Blocks of a row's vector, in this order. Each query defines them."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        """Set the fields that follow from the blocks; subclasses call this from their own."""
        weights = []
        for block in self.blocks:
            entry = np.ones(1) if block.matrix is None else triangle_weights(block.matrix)
            weight = np.sqrt(block.weight) * entry
            weights.append(np.broadcast_to(weight, block.entries).ravel())
        row_weights = np.concatenate(weights)
        row_norm = float(np.sqrt(squared_change(self.blocks, "add_remove")))
        natural = [np.broadcast_to(b.unit, b.entries).ravel() for b in self.blocks]
        units = np.concatenate(natural) / sum_scale(row_weights, row_norm)
        vars(self).update(
            row_weights=row_weights,
            row_norm=row_norm,
            natural=np.concatenate(natural),
            weights=np.tile(row_weights, self.arms),
            units=np.tile(units, self.arms),
        )
        for array in (self.row_weights, self.natural, self.weights, self.units):
            array.setflags(write=False)

    def sensitivity(self, neighbors: Neighbors) -> float:
        if neighbors == "add_remove":
            return self.row_norm * UNIT
        if all(block.replaced is None for block in self.blocks):
            return float(np.sqrt(2.0)) * self.row_norm * UNIT
        added = min(self.arms, 2) * squared_change(self.blocks, "add_remove")
        return float(np.sqrt(max(added, squared_change(self.blocks, neighbors)))) * UNIT

    def summed(self, columns: Columns, counted: Mask, fine: Mask | None = None) -> Integers:
        """Exact sum of the `counted` rows, from their scaled `columns` (see `grid_sum`)."""
        return grid_sum(columns, self.row_weights, self.row_norm, counted, fine)

    def split(self, values: Vector) -> tuple[Any, ...]:
        """Split a release (natural units), or its noise sds, into blocks with their shapes.

        With several arms, the first axis of each block is the arm: control and treated if two.
        """
        ends = np.cumsum([math.prod(block.entries) for block in self.blocks])[:-1]
        if self.arms > 1:
            values = values.reshape(self.arms, -1)
        parts = []
        for block, part in zip(self.blocks, np.split(values, ends, axis=-1), strict=True):
            shaped = part.reshape((*part.shape[:-1], *block.entries))
            parts.append(shaped if block.matrix is None else symmetric(shaped, block.matrix))
        return tuple(parts)


def symmetric(upper: Vector, size: int) -> Matrix:
    """The symmetric matrices with these upper triangles (row by row, along the last axis)."""
    out = np.zeros((*upper.shape[:-1], size, size))
    i, j = np.triu_indices(size)
    out[..., i, j] = out[..., j, i] = upper
    return out


def triangle_weights(size: int) -> Vector:
    """Weights that give the upper triangle the Frobenius norm of the whole matrix."""
    i, j = np.triu_indices(size)
    return np.where(i == j, 1.0, np.sqrt(2.0))


# -- the grid --------------------------------------------------------------------------------


def cut_share(values: Vector, bound: float, least: float) -> Vector:
    """values / bound, clipped to [least, 1]. NaN becomes 0."""
    out = values / bound
    out[np.isnan(out)] = 0.0
    return np.clip(out, least, 1.0, out=out)


Columns = Callable[[float], Iterator[Vector]]
"""Map a scale to the scaled coordinates of the rows' vectors. Each is valid until the next."""


def grid_sum(
    columns: Columns, weights: Vector, norm: float, counted: Mask, fine: Mask | None = None
) -> Integers:
    """Exact integer sum of `counted` rows whose weighted norm is at most `norm`.

    A row whose integers fail the norm check (a fault) counts as zero. A mechanism that has checked
    the factors of its products passes a mask of the accepted rows as `fine`. By `sum_scale`, a row
    whose norm is at most `norm` before rounding passes the check, so its products need no check.

    Sums of floats are exact here. No entry is above 2^30 norm / weight. With blocks of 2^15 rows,
    sums stay below 2^53 for a norm of up to 200 times a weight.
    """
    scale, rows = sum_scale(weights, norm), counted.astype(np.float64)
    ints = np.empty(len(rows))
    # Sums of squares by weight.
    squares = {} if fine is not None else {w: np.zeros(len(rows)) for w in weights.tolist()}
    sums = np.empty(len(weights))
    for k, (column, weight) in enumerate(zip(columns(scale), weights.tolist(), strict=True)):
        np.rint(column, out=ints)
        sums[k] = rows @ ints
        if fine is None:
            squares[weight] += np.multiply(ints, ints, out=ints)
    if fine is None:
        norm2 = sum((weight**2 * square for weight, square in squares.items()), np.zeros(len(rows)))
        fine = norm2 <= (norm * UNIT) ** 2  # False for NaN
    if not fine.all():
        for k, column in enumerate(columns(scale)):
            sums[k] = rows @ np.where(fine, np.rint(column), 0.0)
    return sums.astype(np.int64)


def sum_scale(weights: Vector, norm: float) -> float:
    """Integers per unit of a row of weighted norm at most `norm`.

    Rounding changes a row by at most r/2 in the weighted norm, r = ||weights||. It changes the
    difference of two rows by at most r. The scale is reduced by r / norm. Then one row stays within
    2^k norm. Two rows differ by at most 2^k Delta if Delta >= norm bounds the difference before
    rounding. (Outer products are rounded entry by entry and may stop being PSD. The reduced scale
    covers this case.)
    """
    return grid_scale(ONE_FACTOR, float(np.sqrt(squared_norm(weights[None, :])[0])) / norm)


@dataclass(frozen=True, eq=False)
class Regressors:
    """The small vector (a, g): a = (1, alpha z) with z scaled design columns, g group indicators.

    alpha = 1/sqrt(largest ||z||^2), so ||a||^2 <= 2 for any number of columns. `group_sets` is the
    largest number of groups that contain a row.
    """

    design: Design
    groups: int
    group_sets: int

    width: int = field(init=False)
    alpha: float = field(init=False)
    norm2: float = field(init=False)  # Largest ||a||^2

    def __post_init__(self) -> None:
        columns = self.design.columns
        factors = {c.term for c in columns if c.kind == "indicator"}
        free = sum(c.kind != "indicator" for c in columns)
        alpha = float(1.0 / np.sqrt(max(free + len(factors), 1)))
        vars(self).update(width=1 + len(columns), alpha=alpha, norm2=2.0 if columns else 1.0)

    def a(self, batch: Batch) -> Matrix:
        z = batch.rows.scaled(self.design)
        out = np.empty((len(z), self.width), order="F")
        out[:, 0] = 1.0
        np.multiply(z, self.alpha, out=out[:, 1:])
        if not self.design.plain:
            out[np.isnan(out)] = 0.0
        return out


@dataclass(frozen=True, eq=False)
class CutScore:
    """Distance of one score from a public `middle`, divided by its clipping threshold.

    It is in [-1, 1], and a vector of one entry.
    """

    score: Transform
    cut: float
    middle: float = 0.0

    size = 1

    def __call__(self, batch: Batch) -> Matrix:
        """Shape (n, 1)."""
        return cut_share(self.score(batch) - self.middle, self.cut, -1.0)[:, None]


Scores = CutScore | ScoreVector
"""A vector of norm at most 1 for each row."""

MASS_COST = 0.2
"""Extra squared sensitivity for the masses. It adds a tenth to the noise of the scores."""

FREE_SQUARES = {"alone": 2.5, "groups": 1.0, "vector": 0.5}
"""Squared weights of squares under substitution: of one score alone, with groups or linear terms,
and of several scores. Each is at most the weight up to which squares are free."""

ADDED_SQUARES = 0.1
"""Squared weight of squares under add_remove, where squares add to the sensitivity."""

FREE_COUNT = 0.5
"""Squared weight of the count alone under substitution. With `FREE_SQUARES`, it is free."""


@dataclass(frozen=True, eq=False)
class ScoreSums(BlockSums):
    """Sums over rows of x_j (a, g), of a a', masses, sums in groups, and of x x' (1, g).

    x in R^J is the row's vector of scores, or its one score. q_k in [0, 1] are the masses: the
    estimands' denominator weights, divided by their bounds. `by_group` lists the quantities that
    are also summed in groups, in addition to the scores, by position in (1, q_1, q_2, ...).
    `slopes` requires a single score. Products with z then use the score `slopes`, clipped around
    the same middle at the same threshold. With `squares`, the query also sums the upper triangle of
    x x' over all rows and in each group.

    Privacy
    -------
    The rule of `BlockSums` applies. Let A and m be the largest ||a||^2 and ||g||^2. A replaced row
    changes the scores by at most 2 sqrt(A + m), in units of their cut. The other blocks add at most
    the share `MASS_COST` to the square of this sensitivity. The bounds are:

    - Scores: ||x (a, g)||^2 <= A + m. With `slopes`, (x, x' alpha z, x g) has the same bound, since
      |x'| <= 1. Two rows differ by at most 4 (A + m) in squared norm.
    - All other blocks except squares share one weight. ||a a'||^2 = ||a||^4 <= A^2 (and two rows
      have distance zero if a = 1).
    - K masses: each is at most 1, and two rows' masses differ by at most 1.
    - Each sum in groups: ||g||^2 <= m or ||q_k g||^2 <= m. All entries are nonnegative.

    *Squares* have the squared weight w. A row's squares have squared norm at most 1 + m. Adding a
    row therefore adds w (1 + m) to the bound of the scores. Two complete rows' scores and squares
    together differ by at most 4 (A + m) in squared norm, the bound of the scores alone:

    - One score, without groups: the number x and its square. With d = |x - y| and |x + y| <= 2 - d,
      they differ by d^2 (1 + w (2 - d)^2), which is at most 4 if w <= (2 + d) / (d^2 (2 - d)). The
      right side is smallest at d = sqrt(5) - 1, where it is (11 + 5 sqrt(5)) / 8 > 2.77. Products
      with z change by at most 4 (A - 1) more, as without squares.
    - One score, with groups. In 1 + k places (all rows, and k groups that both rows are in), the
      change is as above, at most 4 each. In at most 2 (m - k) other places, a row's entries appear
      or disappear, with squared norm at most 1 + w. The total is at most 4 (A + m) if w <= 1.
    - Several scores. Let c = x'y for rows with scores x, y, and s = a'b + k for their regressors a,
      b, so 0 <= s <= A + m. The squared distance is at most |x|^2 (A + m) + |y|^2 (A + m) - 2 c s +
      w ((1 + m) (|x|^4 + |y|^4) - 2 (1 + k) c^2). For given c, it grows with |x| and |y|, so let
      both be 1. If c >= 0, it is at most 2 (A + m) + 2 w (1 + m) <= 4 (A + m) for w <= 1. If c < 0,
      it grows with a'b, and with k for w <= 1. At their largest values A and m it is 2 (A + m) (1 +
      |c|) + 2 w (1 + m) (1 - c^2). This is at most 4 (A + m) if w (1 + m) (1 + |c|) <= A + m, hence
      if w <= 1/2.

    `scores` and `cut_share` clip x, x', and q to their ranges, for every row. A, m, and the norm of
    x are checked for each row, on the floats that are multiplied. Float rounding changes a product,
    and thus the row's norm, by a factor within 2^-50 of one. `grid_scale` covers this change: it
    takes off one integer of 2^30 beyond the rounding.
    """

    scores: Scores
    masses: tuple[Transform, ...]
    regressors: Regressors
    neighbors: Neighbors
    by_group: tuple[int, ...] = (0,)
    slopes: Transform | None = None
    squares: bool = False

    label = "sums of scores"

    @cached_property
    def blocks(self) -> tuple[QueryBlock, ...]:
        r, masses, sums = self.regressors, len(self.masses), len(self.by_group)
        bounds = np.array([1.0, *(q.bound for q in self.masses)])
        norm2 = r.norm2 + r.group_sets
        scores = QueryBlock(
            (self.scores.size, r.width + r.groups), norm2, 4 * norm2, unit=self.scores.cut
        )
        rest = (
            QueryBlock((), r.norm2**2, 0.0 if r.width == 1 else None, matrix=r.width),
            QueryBlock((masses,), masses, masses, unit=bounds[1:]),
            QueryBlock(
                (sums, r.groups), r.group_sets * sums, unit=bounds[list(self.by_group), None]
            ),
        )
        first = [scores]
        if self.squares:  # Under substitution, the bound of the scores covers the squares.
            size = self.scores.size
            kind = "vector" if size > 1 else "groups" if r.group_sets else "alone"
            square = FREE_SQUARES[kind] if self.neighbors == "substitute" else ADDED_SQUARES
            shape, unit = (1 + r.groups,), self.scores.cut**2
            first.append(QueryBlock(shape, 1.0 + r.group_sets, 0.0, square, unit, matrix=size))
        moved = [squared_change(blocks, self.neighbors) for blocks in (first, rest)]
        # two complete rows have the same count
        weight = float(np.sqrt(MASS_COST * moved[0] / moved[1])) ** 2 if moved[1] else FREE_COUNT
        return *first, *(replace(block, weight=weight) for block in rest)

    def __post_init__(self) -> None:
        super().__post_init__()
        scale = sum_scale(self.row_weights, self.row_norm)
        vars(self).update(units=self.natural * (1.0 / scale))  # Keeps the last digit of releases.

    def integers(self, batch: Batch) -> Integers:
        x = self.scores(batch)
        q = [cut_share(mass(batch), mass.bound, 0.0) for mass in self.masses]
        a, g = self.regressors.a(batch).T, batch.member.T
        slopes = x
        if self.slopes is not None and isinstance(self.scores, CutScore):
            slopes = replace(self.scores, score=self.slopes)(batch)
        upper = list(zip(*np.triu_indices(len(a)), strict=True))
        pairs = list(zip(*np.triu_indices(x.shape[1]), strict=True)) if self.squares else []
        part = np.empty(len(x))

        def columns(scale: float) -> Iterator[Vector]:
            a1, q1 = a * scale, [mass * scale for mass in q]
            for score, slope in zip(x.T, slopes.T, strict=True):
                x1, slope1 = score * scale, slope * scale
                yield x1
                yield from (np.multiply(z, slope1, out=part) for z in a[1:])
                yield from (np.multiply(member, x1, out=part) for member in g)
            for member in (scale, *(member * scale for member in g)) if pairs else ():
                yield from (x.T[i] * x.T[j] * member for i, j in pairs)
            for i, j in upper:
                yield a1[j] if i == 0 else np.multiply(a[i], a1[j], out=part)  # a_0 is 1
            yield from q1
            for k in self.by_group:
                of = q1[k - 1] if k else scale
                yield from (np.multiply(of, member, out=part) for member in g)

        # Rows with ||x|| <= 1, ||a||^2 <= A, and ||g||^2 <= m, up to float rounding; false for NaN
        inside = squared_norm(a.T) <= self.regressors.norm2 * (1 + 2.0**-40)
        inside &= squared_norm(x) <= 1 + 2.0**-40
        if len(g):
            inside &= squared_norm(g.T) <= self.regressors.group_sets
        return self.summed(columns, batch.complete, inside)


@dataclass(frozen=True, eq=False)
class ScoreSquares(BlockSums):
    """Sums of the upper triangle of x x' over all rows and in each group; x as in `ScoreSums`.

    With `meat`, which requires a single score, the query also sums the upper triangle of x^2 a a'.

    Privacy
    -------
    ||x x'||_F = ||x||^2 <= 1. Therefore x x' (1, g) has squared norm at most 1 + ||g||^2, and
    x^2 a a' at most ||a||^4. Any two rows have nonnegative inner products: the inner product of x
    x' and y y' is (x'y)^2, and all other factors are nonnegative or positive semidefinite. One
    number x^2 in [0, 1], without groups or meat, changes by at most 1. (Let m = ||g||^2, without
    meat. The distance between (s, s g) and (s', s' g') is convex in s and s'. It is largest at
    their ends: sqrt(max(1 + m, 2 m)). The stated bound is never below this value.)
    """

    scores: Scores
    regressors: Regressors
    meat: bool = False

    label = "sums of squared scores"

    @cached_property
    def blocks(self) -> tuple[QueryBlock, ...]:
        r, size, unit = self.regressors, self.scores.size, self.scores.cut**2
        number = size == 1 and r.group_sets == 0 and not self.meat
        squares = QueryBlock(
            (1 + r.groups,), 1.0 + r.group_sets, 1.0 if number else None, unit=unit, matrix=size
        )
        if not self.meat:
            return (squares,)
        return squares, QueryBlock((), r.norm2**2, unit=unit, matrix=r.width)

    def integers(self, batch: Batch) -> Integers:
        x = self.scores(batch).T
        a = self.regressors.a(batch).T if self.meat else x[:0]
        pairs, upper = (list(zip(*np.triu_indices(len(of)), strict=True)) for of in (x, a))

        def columns(scale: float) -> Iterator[Vector]:
            for member in (scale, *(member * scale for member in batch.member.T)):
                yield from (x[i] * x[j] * member for i, j in pairs)
            square = x[0] * x[0] * scale
            yield from (square * a[i] * a[j] for i, j in upper)

        return self.summed(columns, batch.complete)


@dataclass(frozen=True, eq=False)
class ArmHistogram(HistogramQuery, Mechanism):
    """Counts of a number of each row in public cells, inside and outside an `arm`.

    The cells are (-inf, edges[0]], (edges[k], edges[k + 1]] with the last of these open, and
    [edges[-1], inf). If the number was clipped to the edges, the outer cells hold the clipped rows.
    A row whose number is NaN is in no cell.
    """

    target: Transform
    edges: Vector
    what: str
    arm: int = 1
    cells: int = field(init=False)  # Number for each arm
    sizes: tuple[int, ...] = field(init=False)  # Cells of both arms; a row is in one

    label = "{self.what} by arm, {self.cells} cells"

    def __post_init__(self) -> None:
        cells = len(self.edges) + 1
        vars(self).update(cells=cells, sizes=(2 * cells,))

    def integers(self, batch: Batch) -> Integers:
        value = self.target(batch)
        inner = np.searchsorted(self.edges, value, side="left")
        cell = np.where(value >= self.edges[-1], len(self.edges), inner)
        at = np.where(batch.t == self.arm, self.cells, 0) + cell
        counted = batch.complete & ~np.isnan(value)
        return np.bincount(at[counted], minlength=2 * self.cells).astype(np.int64)


@dataclass(frozen=True, eq=False)
class ArmHistograms(Mechanism):
    """Histograms of several numbers of each row, within each arm.

    Privacy
    -------
    Each part is an `ArmHistogram`. Therefore squared sensitivities add up.
    """

    parts: tuple[ArmHistogram, ...]
    query: str = field(init=False)
    units: Vector = field(init=False)

    def __post_init__(self) -> None:
        query = f"{self.parts[0].query}, {len(self.parts)} times"
        vars(self).update(query=query, units=np.concatenate([part.units for part in self.parts]))

    def sensitivity(self, neighbors: Neighbors) -> float:
        return float(np.sqrt(sum(part.sensitivity(neighbors) ** 2 for part in self.parts)))

    def integers(self, batch: Batch) -> Integers:
        return np.concatenate([part.integers(batch) for part in self.parts])


MASS_WEIGHTS: dict[Neighbors, dict[bool, tuple[float, float]]] = {
    "substitute": {True: (0.5, 0.5), False: (1.0, 0.0)},
    "add_remove": {True: (0.25, 0.15), False: (0.5, 0.0)},
}
"""Squared weights (beta^2, gamma^2) of counts and squares in the norm, with squares or without.

Under substitution, counts and squares are free while the sum of their weights is at most 1. Under
add_remove, each adds to the sensitivity. The variance of a mean x is then proportional to (1 +
beta^2 + gamma^2) (1 + x^2 / beta^2). It is smallest at beta^2 = |x|, and not much larger at half or
twice that value.
"""


@dataclass(frozen=True, eq=False)
class ArmSums(Mechanism):
    """Sums of x, of 1, and (with `squares`) of x^2 by arm, in total and in each group.

    x is the position of Y in the public clipping interval of the row's arm. It is -1 at or below
    the lower end, and 1 at or above the upper end.

    Privacy
    -------
    Let beta and gamma <= 1 be the norm's weights of counts and squares. Let m be the largest number
    of groups that contain a row. A row adds v = (x, beta, gamma x^2) to the entries of its arm and
    of each of its groups there. v has squared norm at most S = 1 + beta^2 + gamma^2. In total, the
    row adds squared norm at most (1 + m) S. This is the bound for adding a row.

    Replacement by a row of the other arm changes other entries, by at most 2 (1 + m) S in squared
    norm. Now consider replacement by a row of the same arm that shares k groups. In 1 + k places, v
    changes to v', and its count stays the same. In up to 2 (m - k) other places, v or v' appears or
    disappears. With d = |x - x'| and |x + x'| <= 2 - d, |v - v'|^2 <= d^2 (1 + gamma^2 (2 - d)^2)
    <= 4, because gamma^2 d^2 (2 - d) <= 32/27 < 2 + d. In total, the squared change is at most 4
    (1 + k) + 2 (m - k) S. Therefore replacing a row changes the sums by at most Delta, Delta^2 =
    (1 + m) max(4, 2 S). Counts and squares are free while beta^2 + gamma^2 <= 1. `BlockSums` would
    add changes that cannot occur together, so this proof bounds x and x^2 jointly.
    """

    windows: tuple[Interval, Interval]
    groups: int
    group_sets: int
    neighbors: Neighbors
    squares: bool = True
    weights: Vector = field(init=False)
    units: Vector = field(init=False)
    added: float = field(init=False)  # Largest squared norm that a row adds
    row_norm: float = field(init=False)  # Its root

    label = "sums by arm"

    def __post_init__(self) -> None:
        # Sums, counts, and squares if requested
        kinds = np.sqrt([1.0, *MASS_WEIGHTS[self.neighbors][self.squares]])[: 2 + self.squares]
        weights = np.tile(np.repeat(kinds, 1 + self.groups), 2)
        added = (1 + self.group_sets) * (1.0 + sum(MASS_WEIGHTS[self.neighbors][self.squares]))
        row_norm = float(np.sqrt(added))
        half = np.array([0.5 * w.width for w in self.windows])
        natural = np.stack([half, np.ones(2), half**2], axis=1)[:, : 2 + self.squares]
        units = np.repeat(natural.ravel() * (1.0 / sum_scale(weights, row_norm)), 1 + self.groups)
        vars(self).update(weights=weights, units=units, row_norm=row_norm, added=added)

    def sensitivity(self, neighbors: Neighbors) -> float:
        if neighbors == "add_remove":
            return self.row_norm * UNIT
        return float(np.sqrt(max(4.0 * (1 + self.group_sets), 2 * self.added))) * UNIT

    def integers(self, batch: Batch) -> Integers:
        treated = batch.t == 1
        middle = np.array([w.mid for w in self.windows])
        half = np.array([0.5 * w.width for w in self.windows])
        arm = treated.astype(np.int64)
        x = np.clip((batch.y - middle[arm]) / half[arm], -1.0, 1.0)

        def columns(scale: float) -> Iterator[Vector]:
            for in_arm in (~treated, treated):
                for kind in (x, np.ones_like(x), x**2)[: 2 + self.squares]:
                    column = kind * in_arm * scale
                    yield column
                    yield from (column * member for member in batch.member.T)

        return grid_sum(columns, self.weights, self.row_norm, batch.complete)

    def split(self, values: Vector) -> tuple[Matrix, Matrix, Matrix | None]:
        """Sums of Y - middle of the interval, counts, and sums of (Y - middle)^2 or None.

        Natural units. Each has shape (2, 1 + groups): control and treated, by all rows and groups.
        """
        sums = values.reshape(2, 2 + self.squares, 1 + self.groups)
        return sums[:, 0], sums[:, 1], sums[:, 2] if self.squares else None


# -- squared sums by cluster, for cluster-robust standard errors --------------------------------

CLUSTER_BITS = 12
"""Bits of a score. Squared sums of clusters with thousands of rows then fit into 62 bits."""

LEAST_CAP = 2.0
"""Least limit of a cluster's sum, in scores. The proof below needs at least one."""

ONE = 1 << CLUSTER_BITS


@dataclass(frozen=True, eq=False)
class ClusterSquares(Solution):
    """Sums over clusters of the squared sum of a score, for several scores; number of clusters.

    Score j is summed over the rows of place `places[j]`: 0 is all rows, and k is group k - 1. The
    sum of a cluster is clipped to [-cap, cap], in units of the score's own clipping threshold. No
    row is dropped, so a cluster may have any number of rows. A cluster is counted if it has a
    complete row.

    Privacy
    -------
    This is not a sum over rows. Let K >= h be the integers of `cap` and of the largest score. The
    answer is sum_c T_c^2 for each score, with T_c = clip(S_c, -K, K) and the sum S_c of integers in
    [-h, h] over the rows of cluster c. A row is in at most `most` of the places; a row in more
    places counts as zero. Rows that are incomplete or lack a cluster also count as zero.

    *Adding or removing a row* changes S_c of one cluster by at most h. Clipping does not increase
    differences, so T_c changes by at most h, between -K and K. Then T_c^2 changes by at most
    K^2 - (K - h)^2 = (2K - h) h. This holds for at most `most` scores. If the row is alone in its
    cluster, T_c was 0, and T_c^2 changes by at most h^2. The number of clusters changes by one in
    this case only.

    *Replacing a row* removes one row and adds another, perhaps in another cluster. Let M = `most`
    and let beta be the weight of the number of clusters.

    - If this number stays the same, the answer changes by at most 2 sqrt(M) (2K - h) h.
    - If it changes by one, either the removed row was alone in its cluster and the new row joins
      another, or the reverse. The squared change is at most M (h^2 + (2K - h) h)^2 + beta^2, which
      is M (2 K h)^2 + beta^2.

    The weight beta makes both bounds equal. Replacing a row by one that counts as zero is a
    removal, with a squared change of at most M h^4 + beta^2, which is smaller because h <= 2 K. For
    adding or removing, the bounds are sqrt(M) (2K - h) h and the root of M h^4 + beta^2, and beta
    makes them equal too. Therefore the number of clusters has no cost. beta is positive because
    K >= 2 h.

    The sum is clipped at 2^62, which does not increase differences either. The proof is for one
    row. `max_rows` rows of a unit are replaced one by one, so they change the answer by at most
    `max_rows` times as much.
    """

    scores: tuple[CutScore, ...]
    places: tuple[int, ...]
    most: int
    cap: float
    neighbors: Neighbors
    whole_cap: int = field(init=False)  # K
    changed: float = field(init=False)  # (2K - h) h
    weights: Vector = field(init=False)
    units: Vector = field(init=False)

    label = "squared cluster sums"

    def __post_init__(self) -> None:
        most = int(max(self.cap, LEAST_CAP) * ONE)
        # Largest change of one T_c^2 by a row, and by a row that is alone in its cluster
        changed = joins = float((2 * most - ONE) * ONE)
        alone = float(ONE**2)
        if self.neighbors == "substitute":
            joins, alone = 2 * joins, joins + alone
        beta = np.sqrt(self.most * (joins - alone) * (joins + alone)) * (1 - 2.0**-40)
        vars(self).update(
            whole_cap=most,
            changed=changed,
            weights=np.array([*np.ones(len(self.scores)), beta]),
            # Natural units of a squared sum, and 1 for the number of clusters
            units=np.array([*((score.cut / ONE) ** 2 for score in self.scores), 1.0]),
        )

    def sensitivity(self, neighbors: Neighbors) -> float:
        rows = 2.0 if neighbors == "substitute" else 1.0
        return float(rows * np.sqrt(self.most) * self.changed)

    def solve(self, batches: Iterable[Batch]) -> Integers:
        sums = np.zeros((1 + len(self.scores), 0))  # Whole numbers far below 2^53; last, rows.
        for batch in batches:  # Transforms may divide by zero in rows that do not count.
            assert batch.cluster is not None
            inside = np.column_stack([np.ones(len(batch.cluster)), batch.member])[:, self.places]
            counted = batch.complete & (batch.cluster >= 0)
            at = np.where(counted, batch.cluster, 0)
            new = max(int(at.max(initial=-1)) + 1 - sums.shape[1], 0)
            sums = np.pad(sums, ((0, 0), (0, new)))
            few = counted & (inside.sum(axis=1) <= self.most)
            with np.errstate(all="ignore"):
                rows = [
                    np.where(few, np.rint(score(batch)[:, 0] * ONE) * member, 0.0)
                    for score, member in zip(self.scores, inside.T, strict=True)
                ]
            for k, values in enumerate((*rows, counted)):
                sums[k] += np.bincount(at, values, minlength=sums.shape[1])
        clipped = np.clip(sums[:-1], -self.whole_cap, self.whole_cap).astype(np.int64) ** 2
        # Exact sums, clipped at 2^62: squares below 2^51 are added in two parts of fewer bits.
        high, low = clipped >> 20, clipped & ((1 << 20) - 1)
        parts = zip(high.sum(axis=1).tolist(), low.sum(axis=1).tolist(), strict=True)
        totals = [min((above << 20) + below, LIMIT) for above, below in parts]
        return np.array([*totals, int((sums[-1] > 0).sum())], np.int64)
