"""What every additive mechanism is: exact integer sums of a bounded row map, and their proof."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

import numpy as np

from privcausal.errors import CapabilityError
from privcausal.typing import Integers, Neighbors, Vector
from privcausal.vault.batch import Batch, Layout

TWO_FACTOR = 16
"""Bits per factor in sums of products: 2^32 per row, exact in float64 for 2^21 rows a batch."""

ONE_FACTOR = 30
"""Bits in sums of single numbers."""


class Query(ABC):
    """What leaves the vault: a vector of integers, and how far one row moves it.

    Subclasses state `sensitivity` and prove it in their docstring under ``Privacy``. Noise on
    coordinate j has sd sigma / weights[j]; since the discrete Gaussian loses at most
    d_j^2 / (2 sd_j^2) on coordinate j, the release is rho-zCDP with
    rho = ||weights * d||^2 / (2 sigma^2) <= sensitivity^2 / (2 sigma^2).
    """

    name: str = "discrete Gaussian"

    @property
    @abstractmethod
    def query(self) -> str:
        """Words for the budget table; public."""

    @property
    @abstractmethod
    def units(self) -> Vector:
        """Natural units per integer of each coordinate, shape (m,)."""

    @property
    def weights(self) -> Vector:
        """Relative weights of the coordinates in the sensitivity norm, shape (m,)."""
        return np.ones(len(self.units))

    @abstractmethod
    def sensitivity(self, neighbors: Neighbors) -> float:
        """Largest weighted l2 change of the integers when one row is replaced or added."""

    def l1_sensitivity(self, neighbors: Neighbors) -> float:
        """Largest weighted l1 change of the integers when one row is replaced or added.

        Laplace noise of scale b / weights[j] on coordinate j then loses at most this over b, so
        the release is epsilon-DP with epsilon = l1_sensitivity / b.
        """
        raise CapabilityError(f"the release {self.query!r} has no price in pure epsilon")


class Mechanism(Query):
    """A sum over rows of integer vectors with bounded (weighted) l2 norm."""

    @abstractmethod
    def integers(self, batch: Batch) -> Integers:
        """Exact sums over the batch, shape (m,)."""

    def statement(self, layout: Layout, labels: frozenset[str]) -> str | None:
        """SQL over the table `data` for the same sums to the bit; None where there is none.

        `labels` are the columns read as texts.
        """
        return None

    def tallied(self, rows: Integers) -> Integers:
        """The sums, shape (m,), from the rows of `statement`."""
        raise NotImplementedError


class Solution(Query):
    """A vector found by several passes over the rows, on an integer grid."""

    @abstractmethod
    def solve(self, batches: Iterable[Batch]) -> Integers:
        """The exact answer, shape (m,): a total map of the rows."""


def on_grid(values: Vector, bound: float, bits: int) -> Vector:
    """values / bound cut to [-1, 1] on multiples of 2^-bits, as whole float64 numbers; NaN is 0."""
    ints = values / bound
    ints[np.isnan(ints)] = 0.0
    np.clip(ints, -1.0, 1.0, out=ints)
    ints *= float(1 << bits)
    return np.rint(ints, out=ints)


def grid_scale(bits: int, room: float) -> float:
    """Integers per unit on a grid of 2^bits to the unit, less the room that rounding needs.

    `room` is by how many integers rounding may lengthen a vector whose bound is one unit; one
    more pays for the floats of the scaling itself.
    """
    return float((1 << bits) - np.ceil(room) - 1.0)
