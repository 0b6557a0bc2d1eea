"""Domains that are bought: ranges of undeclared numbers, levels of undeclared texts."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privcausal.request.schema import Interval
from privcausal.typing import Integers, Neighbors, Vector
from privcausal.vault.batch import RawBatch
from privcausal.vault.exit import RawMechanism
from privcausal.vault.mechanisms.blocks import Counts

LOWEST, STEPS = -20, 30
"""Sizes told apart: below 2^-20 counts as zero; then steps by a factor of four, to 2^40."""

CELLS = 64
"""Cells of the second histogram."""


class _Histograms(Counts, RawMechanism):
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
    cells: ClassVar[int] = 2 * STEPS + 1

    @property
    def query(self) -> str:
        return f"magnitudes of {len(self.variables)} columns"

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
    cells: ClassVar[int] = CELLS

    @property
    def query(self) -> str:
        return f"grid of {len(self.variables)} columns"

    def cell(self, name: str, values: Vector) -> Integers:
        interval = self.ranges[self.variables.index(name)]
        # what lies beyond the coarse range is piled up at its ends: it was seen there, coarsely
        inside = np.clip(values, interval.lo, interval.hi)
        position = np.floor((inside - interval.lo) / interval.width * CELLS)
        return np.clip(position, 0, CELLS - 1).astype(np.int64)


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
