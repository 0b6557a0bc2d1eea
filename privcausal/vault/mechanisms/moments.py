"""Gram matrices and cross moments of bounded features: what regressions need of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcausal.spec.features import FeatureMap, Features, Rows, by_rows
from privcausal.spec.interactions import Interactions
from privcausal.spec.stretched import Stretched
from privcausal.typing import Integers, Mask, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.mechanisms.base import TWO_FACTOR, Mechanism, grid_scale, on_grid
from privcausal.vault.transforms.scores import Transform

UNIT = float(1 << TWO_FACTOR)


def grid_rows(features: Features, rows: Rows, weight: Vector) -> Matrix:
    """weight phi on an integer grid, with sum of squares <= 4^TWO_FACTOR for sure, shape (n, p).

    ||weight phi|| <= cut. Rounding to nearest (unbiased for varying values) moves a row by at most
    sqrt(p)/2, so the scale leaves that much room; the integer check then only fails on a fault, and
    such a row counts zero, which keeps the proof without an exception that would depend on the
    data. Column by column, so that each is in cache while it is worked on.
    """
    factor = weight * (row_scale(features.size) / features.cut)
    ints = rows.matrix(features.size)
    for column, own in zip(rows.columns(features), ints.T, strict=True):
        np.rint(np.multiply(column, factor, out=own), out=own)
    return _surely(ints)


def _made_rows(features: Interactions | Stretched, rows: Rows) -> Matrix:
    """The same at the features' own weights, of those that are made as floats of 32 bits.

    These hold the whole numbers, and `row_scale` leaves room for what their norm is off by before
    it is rounded (again, but for a fault the integer check never fails).
    """
    values, weight = features.weighted(rows)
    factor = (weight * (row_scale(features.size) / features.cut)).astype(np.float32)
    turned, ints = values.T, rows.matrix(features.size)  # row by row in memory
    np.rint(np.multiply(turned, factor, out=turned), out=turned)
    np.copyto(ints, values)
    return _surely(ints)


def _surely(ints: Matrix) -> Matrix:
    """Whole numbers, those rows zero whose norm is beyond the bound."""
    # sums of whole numbers below 2^53 are exact in any order, and others are not below 4^TWO_FACTOR
    norm2 = np.einsum("ji,ji->i", ints.T, ints.T)
    fine = norm2 <= UNIT * UNIT  # False for NaN
    if not fine.all():
        ints[~fine] = 0.0
    return ints


def kept_rows(features: Features, rows: Rows) -> Iterator[tuple[slice, Matrix]]:
    """`grid_rows` at the features' own weights, part by part, each valid until the next.

    Several cross moments have them in common, and rows that stay keep them: whole numbers of at
    most 2^TWO_FACTOR, which 32-bit floats hold. Features that are laid out for one release do not.
    """
    if not rows.roomy or not rows.by_column or isinstance(features, Stretched):
        yield from _fresh(features, rows)
        return
    key = features, grid_rows
    if rows.made(key):
        ints = rows.matrix(features.size)
        np.copyto(ints, rows.once(key, lambda: ints))
        yield slice(0, len(rows)), ints
        return
    kept = rows.lasting(features.size)
    for at, ints in _fresh(features, rows):
        kept[at] = ints
        yield at, ints
    rows.keep(key, kept)


def _fresh(features: Features, rows: Rows) -> Iterator[tuple[slice, Matrix]]:
    if isinstance(features, Interactions | Stretched):
        for at, part in features.parts(rows):
            yield at, _made_rows(features, part)
    else:
        yield slice(0, len(rows)), grid_rows(features, rows, rows.weight(features))


def row_scale(size: int) -> float:
    """Integers per bound of a row of `size` entries.

    With room for rounding, and for a norm summed in floats of 32 bits: each of `size` steps, and a
    few more, is off by a part in 2^24 at most, and a norm by half as much as its square.
    """
    return grid_scale(TWO_FACTOR, np.sqrt(size) / 2 + UNIT * (size / 2 + 4) / 2**24)


def arms(batch: Batch, by_arm: bool) -> list[Mask]:
    """The complete rows, or those of each arm."""
    if not by_arm:
        return [batch.complete]
    return [batch.complete & (batch.t == arm) for arm in (0, 1)]


def of(ints: Matrix, rows: Mask) -> Matrix:
    """`ints` with the other rows zero."""
    return ints if rows.all() else ints * rows[:, None]


@dataclass(frozen=True)
class Gram(Mechanism):
    """Sum of w r^2 phi phi' over rows (upper triangle).

    r is 1, or a row map with |r| <= 1 (the R-learner's T - e).

    Privacy
    -------
    With u = sqrt(w) r phi / C on the grid, ||u||^2 <= 4^k in integers. The upper triangle with
    weights 1 on the diagonal and sqrt(2) off it has the Frobenius norm of u u'. Two such matrices
    are PSD, so their inner product is not negative and replacing a row moves the sum by at most
    sqrt(2) 4^k, adding one by 4^k.
    """

    features: FeatureMap
    factor: Transform | None = None

    @property
    def query(self) -> str:
        return f"moments, p = {self.features.size}"

    @cached_property
    def _upper(self) -> tuple[Integers, Integers]:
        return np.triu_indices(self.features.size)

    @property
    def weights(self) -> Vector:
        i, j = self._upper
        return np.where(i == j, 1.0, np.sqrt(2.0))

    @property
    def units(self) -> Vector:
        unit = (self.features.cut / row_scale(self.features.size)) ** 2
        return np.full(len(self._upper[0]), unit)

    def sensitivity(self, neighbors: Neighbors) -> float:
        return (np.sqrt(2.0) if neighbors == "substitute" else 1.0) * UNIT * UNIT

    def integers(self, batch: Batch) -> Integers:
        root = np.sqrt(batch.rows.weight(self.features))
        if self.factor is not None:
            root = root * np.clip(self.factor(batch), -1.0, 1.0)
        u = of(grid_rows(self.features, batch.rows, root), batch.complete)
        # whole numbers below 2^53: the float64 product is exact in any order. In two halves, of
        # which neither is a table with itself: that would be the whole square, and no faster
        half = (u.shape[1] + 1) // 2
        gram = np.zeros((u.shape[1],) * 2)
        gram[:half] = by_rows(u[:, :half], u)
        gram[half:, half - 1 :] = by_rows(u[:, half:], u[:, half - 1 :])
        return np.asarray(gram[self._upper], np.int64)

    def matrix(self, values: Vector) -> Matrix:
        """The symmetric matrix of a release's values, shape (p, p)."""
        out = np.zeros((self.features.size,) * 2)
        i, j = self._upper
        out[i, j] = out[j, i] = values
        return out


@dataclass(frozen=True)
class Cross(Mechanism):
    """Sum of w r phi over rows, r a bounded target cut to [-cut, cut]; all rows or per arm.

    Privacy
    -------
    v = w phi / C has ||v||^2 <= 4^k and |r| <= 2^k in integers, so one row's vector has norm at
    most 4^k: replacing it moves the sum by at most 2 4^k, adding it by 4^k. With `by_arm` the
    row's vector sits in one of two blocks: same bounds.
    """

    features: Features
    target: Transform
    cut: float
    what: str
    by_arm: bool = False

    @property
    def query(self) -> str:
        return f"{self.what}, p = {self.features.size}" + (" per arm" if self.by_arm else "")

    @property
    def units(self) -> Vector:
        unit = self.features.cut / row_scale(self.features.size) * self.cut / UNIT
        return np.full(self.features.size * (2 if self.by_arm else 1), unit)

    def sensitivity(self, neighbors: Neighbors) -> float:
        return (2.0 if neighbors == "substitute" else 1.0) * UNIT * UNIT

    def integers(self, batch: Batch) -> Integers:
        r = on_grid(self.target(batch), self.cut, TWO_FACTOR)
        own = [r if rows.all() else np.where(rows, r, 0.0) for rows in arms(batch, self.by_arm)]
        sums = np.zeros((len(own), self.features.size))
        for at, v in kept_rows(self.features, batch.rows):
            sums += [v.T @ values[at] for values in own]
        return sums.ravel().astype(np.int64)
