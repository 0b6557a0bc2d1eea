"""Sums of a cut score, alone, against linear terms and within groups, and sums of its square."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcausal.spec.features import Design, squared_norm
from privcausal.typing import Integers, Mask, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.mechanisms.base import ONE_FACTOR, Mechanism, grid_scale
from privcausal.vault.transforms.scores import Transform

UNIT = float(1 << ONE_FACTOR)


@dataclass(frozen=True, eq=False)
class Regressors:
    """The small vector (a, g): a = (1, alpha z) with z scaled design columns, g group indicators.

    alpha = 1/sqrt(largest ||z||^2), so ||a||^2 <= 2 whatever the number of columns, and the mean
    itself pays little for the slopes. `group_sets` is the largest number of groups a row is in.
    """

    design: Design
    groups: int
    group_sets: int

    @cached_property
    def width(self) -> int:
        return 1 + len(self.design.columns)

    @cached_property
    def alpha(self) -> float:
        columns = self.design.columns
        factors = {c.term for c in columns if c.kind == "indicator"}
        free = sum(c.kind != "indicator" for c in columns)
        return float(1.0 / np.sqrt(max(free + len(factors), 1)))

    @property
    def norm2(self) -> float:
        """Largest ||a||^2."""
        return 2.0 if self.width > 1 else 1.0

    def a(self, batch: Batch) -> Matrix:
        z = batch.rows.scaled(self.design)
        out = np.empty((len(z), self.width), order="F")
        out[:, 0] = 1.0
        np.multiply(z, self.alpha, out=out[:, 1:])
        if not self.design.plain:
            out[np.isnan(out)] = 0.0
        return out


def share(values: Vector, bound: float, least: float) -> Vector:
    """values / bound, cut to [least, 1]; NaN is 0."""
    out = values / bound
    out[np.isnan(out)] = 0.0
    return np.clip(out, least, 1.0, out=out)


Columns = Callable[[float], Iterator[Vector]]
"""From a scale to the scaled coordinates of the rows' vectors, each valid until the next."""


def grid_sum(
    columns: Columns, weights: Vector, norm: float, counted: Mask, fine: Mask | None = None
) -> Integers:
    """Exact integer sum of `counted` rows whose weighted norm is at most `norm`.

    A row that fails the check of its norm in integers (a fault) counts zero. Where a mechanism has
    checked the factors of its products, `fine` says which rows passed, and their products are not
    squared: a row whose norm is at most `norm` before it is rounded passes, by `sum_scale`.

    Sums of floats are exact here, in any order: no entry is above 2^30 norm / weight, and with
    blocks of 2^15 rows there is room below 2^53 for a norm of 200 times a weight.
    """
    scale, rows = sum_scale(weights, norm), counted.astype(np.float64)
    ints = np.empty(len(rows))
    # sums of squares by weight
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

    Rounding moves a row by at most r/2 in the weighted norm, r = ||weights||, and so the difference
    of two rows by at most r. With r / norm taken off, one row stays within 2^k norm; and so does
    the difference of two within 2^k Delta wherever Delta >= norm bounds it before rounding. (The
    outer products are rounded entry by entry and need not be PSD any more: this pays for it.)
    """
    return grid_scale(ONE_FACTOR, float(np.sqrt(squared_norm(weights[None, :])[0])) / norm)


MASS_COST = 0.2
"""Extra squared sensitivity paid for the masses: a tenth more noise on the scores."""


@dataclass(frozen=True, eq=False)
class ScoreSums(Mechanism):
    """Sums of x (a, g), of the upper triangle of a a', of q and of g, over complete rows.

    x is the score divided by its cut, in [-1, 1]; q in [0, 1] is the mass, the estimand's
    denominator divided by its bound. With `group_masses`, sums of q g stand in for those of g.
    With `slope_score`, products with z are of that score, over the same cut.

    Privacy
    -------
    Let A = ||a||^2 and m = ||g||^2 at most, and give everything but the scores the weight beta.
    Scores: a row has norm at most C, C^2 = A + m, and two rows differ by at most 2C. The rest: a
    row has norm at most S, S^2 = A^2 + 1 + m. Two rows differ in a a' by at most sqrt(2) A (PSD
    matrices have non-negative inner product; not at all where a = 1), in q by 1, in g by
    sqrt(2 m) (non-negative vectors); call the sum of squares D^2. The same holds for q g, which is
    non-negative and no longer than g. (Nothing here asks for one x: with |x| <= 1 and |x'| <= 1,
    (x, x' alpha z, x g) has norm at most C too.) A complete row against a missing one: C and S. So
    substitution moves the sums by at most Delta,
    Delta^2 = max(4 C^2 + beta^2 D^2, C^2 + beta^2 S^2), and adding a row by the second.

    `share` holds x, x' and q in their ranges, whatever the row; A and m are checked for each row,
    by the floats that are multiplied (`_bounded`).
    """

    score: Transform
    cut: float
    mass: Transform
    regressors: Regressors
    neighbors: Neighbors
    group_masses: bool = False
    slope_score: Transform | None = None

    @property
    def query(self) -> str:
        return "sums of scores"

    @cached_property
    def _upper(self) -> tuple[Integers, Integers]:
        return np.triu_indices(self.regressors.width)

    @property
    def _places(self) -> Integers:
        """Where the parts after the first begin."""
        r = self.regressors
        return np.cumsum([r.width, r.groups, len(self._upper[0]), 1])

    @property
    def _c2(self) -> float:
        return self.regressors.norm2 + self.regressors.group_sets

    @property
    def _s2(self) -> float:
        return self.regressors.norm2**2 + 1.0 + self.regressors.group_sets

    @property
    def _d2(self) -> float:
        r = self.regressors
        slopes = 0.0 if r.width == 1 else 2 * r.norm2**2
        return slopes + 1.0 + 2.0 * r.group_sets

    @cached_property
    def beta(self) -> float:
        """Weight of the masses."""
        if self.neighbors == "add_remove":
            return float(np.sqrt(MASS_COST * self._c2 / self._s2))
        return float(np.sqrt(MASS_COST * 4 * self._c2 / self._d2))

    @property
    def weights(self) -> Vector:
        i, j = self._upper
        r = self.regressors
        outer = self.beta * np.where(i == j, 1.0, np.sqrt(2.0))
        return np.concatenate(
            [np.ones(r.width + r.groups), outer, np.full(1 + r.groups, self.beta)]
        )

    def _norm(self, neighbors: Neighbors) -> float:
        one = self._c2 + self.beta**2 * self._s2
        if neighbors == "add_remove":
            return float(np.sqrt(one))
        return float(np.sqrt(max(one, 4 * self._c2 + self.beta**2 * self._d2)))

    def sensitivity(self, neighbors: Neighbors) -> float:
        return self._norm(neighbors) * UNIT

    @property
    def _row_norm(self) -> float:
        return self._norm("add_remove")

    @property
    def units(self) -> Vector:
        r, one = self.regressors, 1.0 / sum_scale(self.weights, self._row_norm)
        sizes = [r.width + r.groups, len(self._upper[0]), 1, r.groups]
        whole = self.mass.bound * one
        return np.repeat([self.cut * one, one, whole, whole if self.group_masses else one], sizes)

    def integers(self, batch: Batch) -> Integers:
        x = share(self.score(batch), self.cut, -1.0)
        own = x if self.slope_score is None else share(self.slope_score(batch), self.cut, -1.0)
        q = share(self.mass(batch), self.mass.bound, 0.0)
        a, g = self.regressors.a(batch).T, batch.member.T
        part = np.empty(len(x))

        def columns(scale: float) -> Iterator[Vector]:
            x1, own1, q1, a1 = x * scale, own * scale, q * scale, a * scale
            yield x1
            yield from (np.multiply(z, own1, out=part) for z in a[1:])
            yield from (np.multiply(member, x1, out=part) for member in g)
            for i, j in zip(*self._upper, strict=True):
                yield a1[j] if i == 0 else np.multiply(a[i], a1[j], out=part)  # a_0 is 1
            yield q1
            for member in g:
                yield np.multiply(q1 if self.group_masses else scale, member, out=part)

        return grid_sum(
            columns, self.weights, self._row_norm, batch.complete, self._bounded(a.T, g.T)
        )

    def _bounded(self, a: Matrix, g: Matrix) -> Mask:
        """The rows with ||a||^2 <= A and ||g||^2 <= m, but for the floats' own rounding.

        That moves a product by a share of 2^-50 and the row's norm by as much, for which the one
        integer of 2^30 is there that `grid_scale` takes off besides the rounding.
        """
        # False for NaN
        inside = squared_norm(a) <= self.regressors.norm2 * (1 + 2.0**-40)
        if g.shape[1]:
            inside &= squared_norm(g) <= self.regressors.group_sets
        return inside

    def split(self, values: Vector) -> tuple[Vector, Vector, Matrix, float, Vector]:
        """Sums of x a and x g (natural units), of a a' as a matrix, of the mass and of (q) g."""
        xa, xg, upper, q, qg = np.split(values, self._places)
        return xa, xg, symmetric(upper, self.regressors.width), float(q[0]), qg


def symmetric(upper: Vector, size: int) -> Matrix:
    """The symmetric matrix with this upper triangle (row by row)."""
    out = np.zeros((size, size))
    i, j = np.triu_indices(size)
    out[i, j] = upper
    out[j, i] = upper
    return out


@dataclass(frozen=True, eq=False)
class ScoreSquares(Mechanism):
    """Sums of x^2, of x^2 g, and with `meat` of the upper triangle of x^2 a a'.

    Privacy
    -------
    x^2 in [0, 1]. One number moves by at most 1. With groups or meat the row's vector has norm at
    most N, N^2 = 1 + ||g||^2 (+ ||a||^4), and any two have non-negative inner product (all parts
    are non-negative or PSD), so replacing a row moves the sum by at most sqrt(2) N, adding by N.
    (With m = ||g||^2 and without meat the distance of (s, s g) and (s', s' g') is convex in s and
    s' and largest at their ends, sqrt(max(1 + m, 2 m)): the stated bound is never below it.)
    """

    score: Transform
    cut: float
    regressors: Regressors
    meat: bool = False

    @property
    def query(self) -> str:
        return "sums of squared scores"

    @cached_property
    def _upper(self) -> tuple[Integers, Integers]:
        return np.triu_indices(self.regressors.width if self.meat else 0)

    @property
    def _row_norm(self) -> float:
        r = self.regressors
        return float(np.sqrt(1.0 + r.group_sets + (r.norm2**2 if self.meat else 0.0)))

    @property
    def weights(self) -> Vector:
        i, j = self._upper
        off = np.where(i == j, 1.0, np.sqrt(2.0))
        return np.concatenate([np.ones(1 + self.regressors.groups), off])

    def sensitivity(self, neighbors: Neighbors) -> float:
        alone = self.regressors.group_sets == 0 and not self.meat
        factor = np.sqrt(2.0) if neighbors == "substitute" and not alone else 1.0
        return float(factor) * self._row_norm * UNIT

    @property
    def units(self) -> Vector:
        one = self.cut**2 / sum_scale(self.weights, self._row_norm)
        return np.full(len(self.weights), one)

    def integers(self, batch: Batch) -> Integers:
        x2 = share(self.score(batch), self.cut, -1.0) ** 2
        a = self.regressors.a(batch).T if self.meat else np.zeros((0, len(x2)))

        def columns(scale: float) -> Iterator[Vector]:
            scaled = x2 * scale
            yield scaled
            yield from (scaled * member for member in batch.member.T)
            yield from (scaled * a[i] * a[j] for i, j in zip(*self._upper, strict=True))

        return grid_sum(columns, self.weights, self._row_norm, batch.complete)

    def split(self, values: Vector) -> tuple[float, Vector, Matrix]:
        """Sum of the squares, by group, and the meat (0 x 0 without `meat`)."""
        groups = self.regressors.groups
        size = self.regressors.width if self.meat else 0
        return float(values[0]), values[1 : 1 + groups], symmetric(values[1 + groups :], size)
