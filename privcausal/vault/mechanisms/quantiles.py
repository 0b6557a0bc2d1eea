"""Bounds for undeclared numbers: noisy histograms, first on powers of four, then on a grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcausal.spec.schema import Interval
from privcausal.typing import Integers, Neighbors, Vector
from privcausal.vault.batch import RawBatch
from privcausal.vault.mechanisms.base import Mechanism

LOWEST, STEPS = -20, 30
"""Sizes told apart: below 2^-20 counts as zero; then steps by a factor of four, to 2^40."""

CELLS = 64
"""Cells of the second histogram."""


class _Histograms(Mechanism):
    """Histograms of raw columns.

    Privacy
    -------
    A row adds one to one cell of each of d histograms (none where its value is missing): replacing
    it moves the joint vector by at most sqrt(2 d) in l2, adding it by sqrt(d).
    """

    variables: tuple[str, ...]

    def sensitivity(self, neighbors: Neighbors) -> float:
        d = len(self.variables)
        return float(np.sqrt(2 * d if neighbors == "substitute" else d))

    def cell(self, name: str, values: Vector) -> Integers:
        raise NotImplementedError

    @property
    def cells(self) -> int:
        raise NotImplementedError

    @property
    def units(self) -> Vector:
        return np.ones(self.cells * len(self.variables))

    def integers(self, batch: RawBatch) -> Integers:  # type: ignore[override]  # before a schema
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

    @property
    def query(self) -> str:
        return f"magnitudes of {len(self.variables)} columns"

    @property
    def cells(self) -> int:
        return 2 * STEPS + 1

    def cell(self, name: str, values: Vector) -> Integers:
        """Cells from the most negative through zero to the most positive."""
        with np.errstate(divide="ignore"):
            exponent = np.floor((np.log2(np.abs(values)) - LOWEST) / 2)
        size = np.clip(exponent + 1, 0, STEPS)
        return np.asarray(STEPS + np.sign(values) * size, np.int64)

    def edges(self) -> Vector:
        """Cell borders, shape (cells + 1,)."""
        positive = 2.0 ** (LOWEST + 2.0 * np.arange(STEPS + 1))
        return np.concatenate([-positive[::-1], positive])


@dataclass(frozen=True)
class Grid(_Histograms):
    """Histogram of each variable on `CELLS` equal cells of a released range."""

    variables: tuple[str, ...]
    ranges: tuple[Interval, ...]

    @property
    def query(self) -> str:
        return f"grid of {len(self.variables)} columns"

    @property
    def cells(self) -> int:
        return CELLS

    def cell(self, name: str, values: Vector) -> Integers:
        interval = self.ranges[self.variables.index(name)]
        # what lies beyond the coarse range is piled up at its ends: it was seen there, coarsely
        inside = np.clip(values, interval.lo, interval.hi)
        position = np.floor((inside - interval.lo) / interval.width * CELLS)
        return np.clip(position, 0, CELLS - 1).astype(np.int64)
