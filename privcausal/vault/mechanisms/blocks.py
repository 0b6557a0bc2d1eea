"""Queries as lists of blocks: rules of sensitivity that several queries share, each proven once.

A row's vector consists of blocks, of which a query states the bounds. The coordinates, their
weights, the sensitivity, the exact sum and how a release is read follow (`BlockSums`). `Counts` is
the rule of histograms.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from privcausal.features.basis import squared_norm
from privcausal.typing import Integers, Mask, Matrix, Neighbors, Vector
from privcausal.vault.exit import ONE_FACTOR, Mechanism, Query, grid_scale

UNIT = float(1 << ONE_FACTOR)


class Counts(Query):
    """Counts of rows in public cells, of one histogram or of several.

    Privacy
    -------
    A row's cell depends on that row alone. A row adds one to at most one cell of each of d
    histograms, and to none where it does not count: adding it moves the joint vector by at most
    sqrt(d) in l2, replacing it by sqrt(2 d).
    """

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """Number of cells of each histogram."""

    @property
    def units(self) -> Vector:
        return np.ones(sum(self.sizes))

    def sensitivity(self, neighbors: Neighbors) -> float:
        d = len(self.sizes)
        return float(np.sqrt(2 * d if neighbors == "substitute" else d))


@dataclass(frozen=True, eq=False)
class Block:
    """Entries of a row's vector that lie next to each other.

    Attributes
    ----------
    shape : tuple of int
    added : float
        Largest squared norm of a row's entries.
    replaced : float, optional
        Largest squared distance of two complete rows' entries. None: their inner product is never
        negative, which makes it twice `added`.
    weight : float
        Squared weight of the entries in the norm of the whole vector.
    unit : float or array
        Natural units of an entry of 1, by `shape` or broadcast to it.
    matrix : int, optional
        Each entry of `shape` is a symmetric matrix of this size, held by its upper triangle (row by
        row), and measured by its Frobenius norm.
    """

    shape: tuple[int, ...]
    added: float
    replaced: float | None = None
    weight: float = 1.0
    unit: Any = 1.0
    matrix: int | None = None

    @property
    def entries(self) -> tuple[int, ...]:
        """The shape of its numbers."""
        if self.matrix is None:
            return self.shape
        return *self.shape, self.matrix * (self.matrix + 1) // 2

    def moved(self, neighbors: Neighbors) -> float:
        """Largest squared change when a row is added, or replaced by a complete one."""
        twice = 2 * self.added if self.replaced is None else self.replaced
        return twice if neighbors == "substitute" else self.added

    @property
    def weights(self) -> Vector:
        """Of each number in the norm, shape (size,)."""
        own = np.ones(1) if self.matrix is None else triangle_weights(self.matrix)
        return np.broadcast_to(np.sqrt(self.weight) * own, self.entries).ravel()

    def read(self, values: Vector) -> Vector:
        """Its part of a release along the last axis, in its shape."""
        shaped = values.reshape((*values.shape[:-1], *self.entries))
        return shaped if self.matrix is None else symmetric(shaped, self.matrix)


def squared_change(blocks: Iterable[Block], neighbors: Neighbors) -> float:
    """Largest squared norm of what moves when a row is added, or replaced by a complete one."""
    by_weight: dict[float, float] = {}  # before they are weighed these are small whole numbers
    for block in blocks:
        by_weight[block.weight] = by_weight.get(block.weight, 0.0) + block.moved(neighbors)
    return sum(weight * change for weight, change in by_weight.items())


class BlockSums(Mechanism):
    """Sums over complete rows of vectors that consist of blocks, on one grid.

    Privacy
    -------
    Block b has the weight w_b. A subclass proves of each that a row has norm at most A_b there, and
    that two complete rows differ by at most R_b; any other row adds nothing. Blocks are different
    coordinates, so squares add up. Adding a row, or replacing it by one that adds nothing, moves
    the sums by at most A, A^2 = sum of w_b^2 A_b^2. Replacing a complete row by another moves them
    by at most R, R^2 = sum of w_b^2 R_b^2. Substitution may be either: the larger of the two.

    Where the inner product of any two rows' entries is never negative (numbers that are not, and
    positive semidefinite matrices), |v - v'|^2 <= |v|^2 + |v'|^2, so R_b^2 = 2 A_b^2.

    With two `arms` each has sums of its own, and a row adds to those of its arm. Two rows of
    different arms have nothing in common: they differ by at most sqrt(2) A.

    `sum_scale` shows that whole numbers on the grid keep within these bounds, and `grid_sum` checks
    each row's norm, or the query the factors that it is made of.
    """

    arms: ClassVar[int] = 1

    @property
    @abstractmethod
    def blocks(self) -> tuple[Block, ...]:
        """What a row's vector consists of, in this order."""

    @cached_property
    def row_weights(self) -> Vector:
        """Weights of a row's numbers in the norm."""
        return np.concatenate([block.weights for block in self.blocks])

    @property
    def weights(self) -> Vector:
        return np.tile(self.row_weights, self.arms)

    @cached_property
    def row_norm(self) -> float:
        """A."""
        return float(np.sqrt(squared_change(self.blocks, "add_remove")))

    @property
    def scale(self) -> float:
        """Whole numbers per unit of a row's vector."""
        return sum_scale(self.row_weights, self.row_norm)

    @property
    def natural(self) -> Vector:
        """Natural units of a row's numbers where these are 1."""
        return np.concatenate([np.broadcast_to(b.unit, b.entries).ravel() for b in self.blocks])

    @property
    def units(self) -> Vector:
        return np.tile(self.natural / self.scale, self.arms)

    def sensitivity(self, neighbors: Neighbors) -> float:
        if neighbors == "add_remove":
            return self.row_norm * UNIT
        if all(block.replaced is None for block in self.blocks):
            return float(np.sqrt(2.0)) * self.row_norm * UNIT
        added = self.arms * squared_change(self.blocks, "add_remove")
        return float(np.sqrt(max(added, squared_change(self.blocks, neighbors)))) * UNIT

    def summed(self, columns: Columns, counted: Mask, fine: Mask | None = None) -> Integers:
        """Exact sum of the rows that are counted, by their scaled `columns` (see `grid_sum`)."""
        return grid_sum(columns, self.row_weights, self.row_norm, counted, fine)

    def split(self, values: Vector) -> tuple[Any, ...]:
        """A release (natural units), or its noise sds, by blocks and in their shapes.

        Two arms are the first axis of each: control and treated.
        """
        ends = np.cumsum([math.prod(block.entries) for block in self.blocks])[:-1]
        if self.arms > 1:
            values = values.reshape(self.arms, -1)
        parts = zip(self.blocks, np.split(values, ends, axis=-1), strict=True)
        return tuple(block.read(part) for block, part in parts)


def symmetric(upper: Vector, size: int) -> Matrix:
    """The symmetric matrices with these upper triangles (row by row, along the last axis)."""
    out = np.zeros((*upper.shape[:-1], size, size))
    i, j = np.triu_indices(size)
    out[..., i, j] = out[..., j, i] = upper
    return out


def triangle_weights(size: int) -> Vector:
    """By which the upper triangle has the Frobenius norm of the whole matrix."""
    i, j = np.triu_indices(size)
    return np.where(i == j, 1.0, np.sqrt(2.0))


# -- the grid --------------------------------------------------------------------------------


def cut_share(values: Vector, bound: float, least: float) -> Vector:
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

    A row that fails the check of its norm in integers (a fault) counts zero. A mechanism that has
    checked the factors of its products says by `fine` which rows passed: a row whose norm is at
    most `norm` before rounding passes, by `sum_scale`, and its products need no check.

    Sums of floats are exact here: no entry is above 2^30 norm / weight, and with blocks of 2^15
    rows there is room below 2^53 for a norm of 200 times a weight.
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

    Rounding moves a row by at most r/2 in the weighted norm, r = ||weights||, and the difference of
    two rows by at most r. With r / norm taken off, one row stays within 2^k norm, and two differ by
    at most 2^k Delta wherever Delta >= norm bounds that before rounding. (Outer products are
    rounded entry by entry and need no longer be PSD: this pays for it.)
    """
    return grid_scale(ONE_FACTOR, float(np.sqrt(squared_norm(weights[None, :])[0])) / norm)
