"""Basis functions of design columns, and the map to a feature vector of bounded norm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from privcausal.features.design import Design
from privcausal.features.rows import Features, Rows, looked_up
from privcausal.typing import Integers, Matrix, Singles, Vector


@dataclass(frozen=True)
class Block:
    """Basis functions of one design column.

    A smooth column has a lookup `table` of shape (FINE_BINS, K). Any other column has one function,
    ``gain * (column - shift)``. `order` is 1 for linear, and 2, 3, ... in order of roughness.
    Functions of the same `group` share a prior variance.
    """

    column: int
    order: tuple[int, ...]
    group: str
    gain: float = 1.0
    shift: float = 0.0
    table: Matrix | None = None

    @cached_property
    def tables(self) -> tuple[Vector, ...]:
        """The columns of `table`, each contiguous in memory."""
        assert self.table is not None
        return tuple(np.ascontiguousarray(self.table.T))

    @property
    def reach(self) -> float:
        """Maximum absolute value of the functions."""
        if self.table is None:
            return abs(self.gain) * (1.0 + abs(self.shift))
        return float(np.abs(self.table).max())

    def function(self, rows: Rows, design: Design, number: int, out: Vector) -> Vector:
        """Write one function of the block to `out`."""
        if self.table is not None:
            return looked_up(self.tables[number], rows.bins(design, self.column), out)
        np.subtract(rows.column(design, self.column), self.shift, out=out)
        return np.multiply(self.gain, out, out=out)


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """phi(x) = (1, basis functions), with row weight w = min(1, (C / ||phi||)^2).

    Then ||sqrt(w) phi|| <= C and ||w phi|| <= C, which bounds the Gram matrix and the cross
    moments. Predictions use phi without weights.
    """

    design: Design
    blocks: tuple[Block, ...]
    cut: float

    @cached_property
    def size(self) -> int:
        return 1 + sum(len(b.order) for b in self.blocks)

    @cached_property
    def order(self) -> Integers:
        """0 for the intercept, otherwise the order of roughness of each function."""
        return np.array([0, *(o for b in self.blocks for o in b.order)], np.int64)

    @cached_property
    def group(self) -> tuple[str, ...]:
        return ("", *(b.group for b in self.blocks for _ in b.order))

    @cached_property
    def variables(self) -> tuple[tuple[str, ...], ...]:
        """Variables of each function; the intercept has no variables."""
        of = {term.name: term.variables for term in self.design.terms}
        return tuple(of[self.design.columns[c].term] if c >= 0 else () for c in self.column)

    @cached_property
    def column(self) -> Integers:
        """Design column of each function; -1 for the intercept."""
        return np.array([-1, *(b.column for b in self.blocks for _ in b.order)], np.int64)

    def of(self, rows: Rows) -> Matrix:
        """phi, shape (n, p)."""
        out = rows.matrix(self.size)
        for number in range(self.size):
            self.fill(rows, number, out[:, number])
        return out

    def columns(self, rows: Rows) -> Iterator[Vector]:
        """Yield features one by one, each valid until the next; the buffer stays in CPU cache."""
        out = np.empty(len(rows))
        for number in range(self.size):
            yield self.fill(rows, number, out)

    def norm2(self, rows: Rows) -> Vector:
        """||phi(x)||^2, shape (n,)."""
        total, part = np.ones(len(rows)), np.empty(len(rows))
        for block, squares in zip(self.blocks, self._squares, strict=True):
            if squares is None:
                np.square(block.function(rows, self.design, 0, part), out=part)
            else:
                looked_up(squares, rows.bins(self.design, block.column), part)
            total += part
        return total

    @cached_property
    def _squares(self) -> tuple[Vector | None, ...]:
        """Sum of squares of each block's functions on the fine bins."""
        return tuple(None if b.table is None else squared_norm(b.table) for b in self.blocks)

    @cached_property
    def owner(self) -> list[tuple[Block, int]]:
        """The block of each function after the first, and its number within the block."""
        return [(block, k) for block in self.blocks for k in range(len(block.order))]

    def fill(self, rows: Rows, number: int, out: Vector) -> Vector:
        """Write the feature of this number to `out`."""
        if number == 0:
            out[:] = 1.0
            return out
        block, place = self.owner[number - 1]
        return block.function(rows, self.design, place, out)

    @cached_property
    def ends(self) -> Vector:
        """Largest absolute value of each function, shape (p,)."""
        return np.array([1.0, *(block.reach for block, _ in self.owner)])

    @property
    def reach(self) -> float:
        """An upper bound of ||phi||."""
        return float(np.linalg.norm(self.ends))

    def total(self, coef: Vector) -> Sum:
        """phi(x)'coef as a function of rows."""
        constant = float(coef[0])
        parts: list[tuple[int, Vector | float]] = []
        ends = np.cumsum([1, *(len(b.order) for b in self.blocks)]).tolist()
        for block, (first, stop) in zip(self.blocks, pairwise(ends), strict=True):
            weights = coef[first:stop]
            if block.table is None:
                slope = float(block.gain * weights[0])
                constant -= slope * block.shift
                parts.append((block.column, slope))
            else:
                parts.append((block.column, combine(np.asfortranarray(block.table), weights)))
        return Sum(self.design, constant, tuple(parts))

    def weight(self, phi: Matrix) -> Vector:
        """Row weights, shape (n,), in (0, 1]."""
        return np.minimum(1.0, self.cut**2 / squared_norm(phi))

    def norm_of(self, rows: Rows, quantile: float) -> float:
        """A quantile of ||phi(x)|| over the rows."""
        phi = np.ascontiguousarray(self.of(rows))  # the norm sums along rows
        return float(np.quantile(np.linalg.norm(phi, axis=1), quantile))

    def restricted(self, terms: Sequence[str]) -> FeatureMap:
        """Keep only the functions of some terms, with the same tables and clip."""
        columns = self.design.columns
        blocks = tuple(b for b in self.blocks if columns[b.column].term in terms)
        return FeatureMap(self.design, blocks, self.cut)


@dataclass(frozen=True, eq=False)
class Turned:
    """Linear combinations of features, turn'phi of shape (k,), with weights as in `FeatureMap`.

    Features are summed in a fixed order, so that a row's values do not depend on its block.
    """

    features: FeatureMap
    turn: Matrix
    cut: float

    @property
    def size(self) -> int:
        return int(self.turn.shape[1])

    @property
    def reach(self) -> float:
        """An upper bound of ||turn'phi||."""
        return float(np.linalg.norm(np.abs(self.turn).T @ self.features.ends))

    def of(self, rows: Rows) -> Matrix:
        phi = self.features.of(rows)
        out = np.empty((len(phi), self.size), order="F")
        for column, coef in zip(out.T, self.turn.T, strict=True):
            column[:] = combine(phi, coef)
        return out

    def weight(self, phi: Matrix) -> Vector:
        return norm_weight(squared_norm(phi), self.cut)


TINY = 1e-300
"""Lower limit of squared norms used as divisors."""


def norm_weight(norm2: Vector, cut: float) -> Vector:
    """w = min(1, (cut / norm)^2) of rows with these squared norms."""
    return np.minimum(1.0, cut**2 / np.maximum(norm2, TINY))


@dataclass(frozen=True, eq=False)
class Sum:
    """A constant plus a function of each design column: a slope, or a table on the fine bins.

    The basis functions of a column are summed once, in its table, in a fixed order. All engines,
    blocks and machines therefore give the same bits.
    """

    design: Design
    constant: float
    parts: tuple[tuple[int, Vector | float], ...]

    def __call__(self, rows: Rows) -> Vector:
        total, part = np.full(len(rows), self.constant), np.empty(len(rows))
        for column, effect in self.parts:
            if isinstance(effect, float):
                np.multiply(rows.column(self.design, column), effect, out=part)
            else:
                looked_up(effect, rows.bins(self.design, column), part)
            total += part
        return total


def squared_norm(phi: Matrix | Singles) -> Vector:
    """Squared row norms, summed in a fixed order for every engine and batch."""
    total, square = np.zeros(len(phi), phi.dtype), np.empty(len(phi), phi.dtype)
    for j in range(phi.shape[1]):
        total += np.multiply(phi[:, j], phi[:, j], out=square)
    return np.asarray(total, np.float64)


SMALL_PRODUCT = 1 << 10
"""Number of rows that OpenBLAS multiplies without making its own copies."""


def by_rows(left: Matrix, right: Matrix) -> Matrix:
    """left' right, for inputs whose sums are exact in any order."""
    pieces = len(left) // SMALL_PRODUCT
    rows, p, q = pieces * SMALL_PRODUCT, left.shape[1], right.shape[1]
    total = left[rows:].T @ right[rows:]
    if rows:
        # Give all sizes, because NumPy cannot infer one for a table without columns.
        parts = (
            left[:rows].T.reshape(p, pieces, SMALL_PRODUCT),
            right[:rows].T.reshape(q, pieces, SMALL_PRODUCT),
        )
        total += np.matmul(parts[0].swapaxes(0, 1), parts[1].transpose(1, 2, 0)).sum(axis=0)
    return total


def onto(phi: Matrix, lift: Matrix, out: Matrix) -> None:
    """Write phi lift to `out`. Both are Fortran-ordered, and sums are exact in any order."""
    pieces = len(phi) // SMALL_PRODUCT
    rows, (p, k) = pieces * SMALL_PRODUCT, lift.shape
    np.matmul(lift.T, phi[rows:].T, out=out[rows:].T)
    if rows:
        blocks = phi[:rows].T.reshape(p, pieces, SMALL_PRODUCT).swapaxes(0, 1)
        np.matmul(lift.T, blocks, out=out[:rows].T.reshape(k, pieces, SMALL_PRODUCT).swapaxes(0, 1))


FEW_ROWS = 256
"""Up to this number of rows, one call on a table of products is faster than one per column."""


def combine(phi: Matrix, coef: Vector) -> Vector:
    """phi @ coef in a fixed order, so that the batch size does not matter."""
    if len(phi) <= FEW_ROWS and phi.shape[1]:
        return np.asarray(np.add.accumulate(phi * coef, axis=1)[:, -1] + 0.0)  # the same order
    total, part = np.zeros(len(phi)), np.empty(len(phi))
    for j in range(phi.shape[1]):
        total += np.multiply(phi[:, j], coef[j], out=part)
    return total


def columns_of(features: Features, rows: Rows) -> Iterator[Vector]:
    """Columns of phi one after another; each is valid until the next is read."""
    if isinstance(features, FeatureMap):
        return features.columns(rows)
    return iter(rows.phi(features).T)


def row_weights(features: Features, rows: Rows) -> Vector:
    """Row weights of the features, shape (n,)."""
    if isinstance(features, FeatureMap):
        return np.minimum(1.0, features.cut**2 / features.norm2(rows))
    return features.weight(rows.phi(features))
