"""Step functions on public bins of columns, which boosting learns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from privcausal.features.basis import Block, FeatureMap, Sum
from privcausal.features.design import Design
from privcausal.features.functions import Additive
from privcausal.features.rows import FINE, Rows, fine_bins
from privcausal.stored import stored
from privcausal.typing import Integers, Matrix, Vector

CELLS = 16
"""Cells of the histogram that synthetic rows come from; each has FINE / CELLS fine bins."""

LUMP = 0.04
"""Least share of the rows in a lump's cell: smaller ones do not stand out from noise."""


@dataclass(frozen=True, eq=False)
class TermBins:
    """The bins of one term: of a numeric column, or one for each level of a factor.

    Attributes
    ----------
    columns : tuple of int
        Design columns: a numeric one, or the indicators of a factor's levels.
    bin_of : Integers or None
        Bin of each public fine bin of a numeric column, shape (FINE,). None for a factor, whose
        bin 0 is for rows of none of its levels and bin k for its k-th level.
    size : int
        Number of bins.
    """

    columns: tuple[int, ...]
    bin_of: Integers | None
    size: int

    @property
    def position(self) -> Vector | None:
        """Middle of each bin on the column's scale of [-1, 1], shape (size,); None for a factor."""
        if self.bin_of is None:
            return None
        middles = (np.arange(FINE) + 0.5) * (2.0 / FINE) - 1.0
        return np.asarray(np.bincount(self.bin_of, middles) / np.bincount(self.bin_of))

    def codes(self, scaled: Matrix) -> Integers:
        """Bin of each row, shape (n,); some bin for every value."""
        if self.bin_of is not None:
            return np.asarray(self.bin_of[fine_bins(scaled[:, self.columns[0]])])
        code = np.zeros(len(scaled), np.int64)
        for k, column in enumerate(self.columns, start=1):
            code[scaled[:, column] > 0.5] = k
        return code


@dataclass(frozen=True, eq=False)
class Bins:
    """Public bins of every term of a design, numbered consecutively over all axes.

    Attributes
    ----------
    share : Vector
        Public estimate of each bin's share of the rows, shape (M,): it sums to one on each axis.
    """

    design: Design
    axes: tuple[TermBins, ...]
    share: Vector

    @cached_property
    def size(self) -> int:
        return sum(axis.size for axis in self.axes)

    @cached_property
    def start(self) -> Integers:
        """Number of each axis's first bin, and the number of bins, shape (p + 1,)."""
        return np.cumsum([0, *(axis.size for axis in self.axes)]).astype(np.int64)

    @cached_property
    def features(self) -> FeatureMap:
        """Indicators of all bins as features; a factor's bin 0 has none, its shape is zero."""
        blocks: list[Block] = []
        columns = self.design.columns
        for axis in self.axes:
            first = columns[axis.columns[0]]
            if axis.bin_of is not None:
                table = np.zeros((FINE, axis.size))
                table[np.arange(FINE), axis.bin_of] = 1.0
                blocks.append(Block(axis.columns[0], (1,) * axis.size, first.term, table=table))
            else:
                blocks += [Block(j, (1,), first.term) for j in axis.columns]
        return FeatureMap(self.design, tuple(blocks), np.inf)

    @cached_property
    def to_coef(self) -> Matrix:
        """Matrix from (constant, shapes), shape (1 + M,), to coefficients of `features`.

        What a factor's bin 0 holds goes into the constant and off its levels.
        """
        rows = [np.eye(1 + self.size)[0]]
        for k, axis in enumerate(self.axes):
            at = 1 + int(self.start[k])
            own = np.eye(1 + self.size)[at : at + axis.size]
            if axis.bin_of is None:
                rows[0] = rows[0] + own[0]
                rows += list(own[1:] - own[0])
            else:
                rows += list(own)
        return np.array(rows)

    def restricted(self, terms: Collection[str]) -> Bins:
        """The axes of some terms only."""
        columns = self.design.columns
        kept = [k for k, axis in enumerate(self.axes) if columns[axis.columns[0]].term in terms]
        shares = [self.share[self.start[k] : self.start[k + 1]] for k in kept]
        axes = tuple(self.axes[k] for k in kept)
        return Bins(self.design, axes, np.concatenate([np.zeros(0), *shares]))

    def within(self, other: Bins) -> Integers:
        """Where (constant, shapes) of these bins stand among those of `other`, shape (1 + M,)."""
        at = {axis: other.start[k] for k, axis in enumerate(other.axes)}
        own = [1 + at[axis] + np.arange(axis.size) for axis in self.axes]
        return np.concatenate([[0], *own]).astype(np.int64)

    def codes(self, rows: Rows) -> list[Integers]:
        """Bin of each row on each axis, by its number over all axes."""
        scaled = rows.scaled(self.design)
        return [
            axis.codes(scaled) + int(first)
            for axis, first in zip(self.axes, self.start[:-1], strict=True)
        ]


def make_bins(design: Design, rows: Rows, most: int) -> Bins:
    """About `most` bins of equal shares of the public synthetic `rows` on each numeric column."""
    scaled = rows.scaled(design)
    axes, shares = [], []
    for columns in _terms(design):
        factor = design.columns[columns[0]].kind == "indicator"
        axis = (
            TermBins(columns, None, 1 + len(columns))
            if factor
            else _numeric(columns[0], scaled[:, columns[0]], most)
        )
        counts = np.bincount(axis.codes(scaled), minlength=axis.size).astype(np.float64)
        axes.append(axis)
        shares.append((counts + 0.5) / (counts + 0.5).sum())
    return Bins(design, tuple(axes), np.concatenate([np.zeros(0), *shares]))


def _terms(design: Design) -> list[tuple[int, ...]]:
    """Columns of each axis: the indicators of a factor together, every other column alone."""
    factors: dict[str, list[int]] = {}
    found: list[list[int]] = []
    for j, column in enumerate(design.columns):
        if column.kind == "indicator" and column.term in factors:
            factors[column.term].append(j)
            continue
        found.append([j])
        if column.kind == "indicator":
            factors[column.term] = found[-1]
    return [tuple(columns) for columns in found]


def _numeric(column: int, values: Vector, most: int) -> TermBins:
    """Fine bins joined into about `most` bins of equal shares of the rows."""
    share = np.bincount(fine_bins(values), minlength=FINE) / max(len(values), 1)
    lump = _lumps(share)
    # mixed with the uniform, so that no stretch of the domain is one bin for lack of rows
    share = 0.9 * share + 0.1 / FINE
    middle = np.cumsum(share) - 0.5 * share
    place = np.minimum(np.floor(middle * most), most - 1).astype(np.int64)
    border = np.r_[True, (np.diff(place) > 0) & ((lump[1:] == 0) | (lump[:-1] == 0))]
    border[1:] |= lump[1:] != lump[:-1]
    number = np.cumsum(border) - 1
    return TermBins((column,), number.astype(np.int64), int(number[-1]) + 1)


def _lumps(share: Vector) -> Integers:
    """Which lump each fine bin is in, from 1; 0 for none. Shape (FINE,).

    A cell of the released histogram with most of the rows near it holds many rows of one value, as
    those of 0 and 1 do for a 0/1 column. The place of that value in its cell is not known, nor what
    smoothing has moved to the next one: a border there could make a bin that seems to have rows
    and has none.
    """
    cells = np.pad(share.reshape(CELLS, -1).sum(axis=1), 2)
    own, nearest = cells[2:-2], np.maximum(cells[1:-3], cells[3:-1])
    second = np.maximum(cells[:-4], cells[4:])
    alone = (own > LUMP) & (nearest < 0.6 * own) & (second < 0.15 * own)
    found = np.zeros(CELLS, np.int64)
    for number, cell in enumerate(np.flatnonzero(alone), start=1):
        found[max(cell - 1, 0) : cell + 2] = number
    return np.repeat(found, FINE // CELLS)


@stored
@dataclass(frozen=True, eq=False)
class Steps(Additive):
    """offset + sum of step functions, passed through 1 / (1 + e^-z) if `logistic`."""

    features: FeatureMap
    logistic: bool = False

    @cached_property
    def _whole(self) -> Sum:
        """With the offset, which is added first."""
        total = self.features.total(self.coef)
        return replace(total, constant=self.offset + total.constant)

    def __call__(self, rows: Rows) -> Vector:
        value = self._whole(rows)
        if self.logistic:
            value = expit(value)
        return np.asarray(np.minimum(np.maximum(value, self.lo), self.hi))


def expit(z: Vector) -> Vector:
    """1 / (1 + e^-z), without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * z)))
