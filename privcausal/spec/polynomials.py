"""Polynomials of a row's features, each in [-1, 1] on the declared domain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcausal.spec.partition import Coordinates
from privcausal.spec.schema import Interval
from privcausal.typing import Integers, Matrix, Vector


@dataclass(frozen=True)
class Polynomials:
    """1, then Legendre polynomials up to `degree` of every number, and the labels' dummies.

    A sum of functions of one feature each; there are no products of features.
    """

    coordinates: Coordinates
    degree: int

    @cached_property
    def _numeric(self) -> tuple[bool, ...]:
        """Which features are numbers."""
        schema = self.coordinates.schema
        return tuple(isinstance(schema[n], Interval) for n in self.coordinates.variables)

    @property
    def size(self) -> int:
        return 1 + self.coordinates.size + (self.degree - 1) * sum(self._numeric)

    @property
    def bound(self) -> float:
        """Largest sum of sizes: of a column with labels one dummy is 1 at most."""
        return float(1 + sum(self.degree if numeric else 1 for numeric in self._numeric))

    def of(self, frame: Mapping[str, Vector | Integers]) -> Matrix:
        """Shape (n, size); cut to [-1, 1], so that no rounding passes the bound."""
        columns: list[Matrix] = []
        for name, numeric in zip(self.coordinates.variables, self._numeric, strict=True):
            z = Coordinates(self.coordinates.schema, (name,)).of(frame)
            columns.append(_legendre(z[:, 0], self.degree) if numeric else z)
        ones = np.ones((len(columns[0]), 1))
        return np.asarray(np.clip(np.hstack([ones, *columns]), -1.0, 1.0))


def _legendre(z: Vector, degree: int) -> Matrix:
    """P_1 to P_degree, shape (n, degree), by their three-term recurrence."""
    found = [np.ones_like(z), z]
    for k in range(1, degree):
        found.append(((2 * k + 1) * z * found[k] - k * found[k - 1]) / (k + 1))
    return np.stack(found[1:], axis=1)
