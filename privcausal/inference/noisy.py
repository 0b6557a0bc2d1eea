"""The delta method: numbers computed from released sums, with their derivatives in these sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from privcausal.typing import Mask, Matrix, Vector


class Reading(NamedTuple):
    """Released sums, and the noise sds of their entries. Noise is independent across entries."""

    value: Vector
    sd: Vector

    def at(self, place: Any) -> Reading:
        return Reading(self.value[place], self.sd[place])

    def over(self, divisor: Vector | float) -> Reading:
        return Reading(self.value / divisor, self.sd / divisor)

    def through(self, matrix: Matrix) -> Reading:
        """Linear combinations along the last axis; their noise is dependent."""
        return Reading(self.value @ matrix.T, np.sqrt(self.sd**2 @ matrix.T**2))


@dataclass(frozen=True, eq=False)
class Noisy:
    """Numbers of any shape, computed from X released sums.

    Formulas are written with +, -, *, / and @. Derivatives follow by the chain rule.

    Attributes
    ----------
    value : Vector
        The numbers.
    slope : Matrix
        Their derivatives in the sums; the last axis has length X.
    noise : Vector
        Variances of the sums' noise, shape (X,).
    """

    value: Vector
    slope: Matrix
    noise: Vector
    __array_ufunc__: ClassVar[None] = None  # NumPy leaves products with arrays to this class

    @classmethod
    def inputs(cls, *readings: Reading) -> list[Noisy]:
        """The sums themselves, in the order of their noise."""
        noise = np.concatenate([np.ravel(one.sd) ** 2 for one in readings])
        ends = np.cumsum([np.size(one.value) for one in readings])[:-1]
        slopes = np.split(np.eye(len(noise)), ends)
        return [
            cls(one.value, slope.reshape(*np.shape(one.value), len(noise)), noise)
            for one, slope in zip(readings, slopes, strict=True)
        ]

    @classmethod
    def joined(cls, parts: Sequence[Noisy]) -> Noisy:
        """Numbers along the first axis; a number without an axis has length 1."""
        values = np.concatenate([np.atleast_1d(one.value) for one in parts])
        noise = parts[0].noise
        slopes = [one.slope.reshape(-1, *values.shape[1:], len(noise)) for one in parts]
        return cls(values, np.concatenate(slopes), noise)

    def __add__(self, other: Number) -> Noisy:
        value, slope = _parts(other)
        return replace(self, value=self.value + value, slope=self.slope + slope)

    def __sub__(self, other: Number) -> Noisy:
        value, slope = _parts(other)
        return replace(self, value=self.value - value, slope=self.slope - slope)

    def __mul__(self, other: Number) -> Noisy:
        value, slope = _parts(other)
        own = self.slope * value[..., None] + self.value[..., None] * slope
        return replace(self, value=self.value * value, slope=own)

    def __truediv__(self, other: Number) -> Noisy:
        value, slope = _parts(other)
        out = np.asarray(self.value / value)
        own = (self.slope - out[..., None] * slope) / value[..., None]
        return replace(self, value=out, slope=own)

    def __rmatmul__(self, matrix: Matrix) -> Noisy:
        slope = np.tensordot(matrix, self.slope, (-1, 0))
        return replace(self, value=matrix @ self.value, slope=slope)

    def __getitem__(self, at: Any) -> Noisy:
        return replace(self, value=self.value[at], slope=self.slope[at])

    def sum(self) -> Noisy:
        """The sum along the first axis."""
        return replace(self, value=self.value.sum(axis=0), slope=self.slope.sum(axis=0))

    def solve(self, right: Noisy, inverse: Matrix) -> Noisy:
        """A^-1 b for this matrix A, given an inverse that may be regularized."""
        out = inverse @ right.value
        return replace(self, value=out, slope=np.tensordot(
            inverse, right.slope - np.einsum("ijx,j->ix", self.slope, out), 1
        ))  # fmt: skip

    def held(self, value: Vector | float) -> Noisy:
        """Another value, such as a clipped one, with the derivatives of this one."""
        return replace(self, value=np.asarray(value, float))

    @property
    def cov(self) -> Matrix:
        """Covariance of the noise in the numbers of a vector."""
        return np.asarray(self.slope * self.noise @ self.slope.T)

    @property
    def sd(self) -> Vector:
        """Noise sds of the numbers."""
        return np.asarray(np.sqrt(self.slope**2 @ self.noise))


Number: TypeAlias = "Noisy | Vector | Mask | float"


def _parts(other: Number) -> tuple[Vector, Matrix]:
    if isinstance(other, Noisy):
        return other.value, other.slope
    return np.asarray(other, float), np.zeros((*np.shape(other), 1))


def symmetric_matrix(upper: Noisy) -> Noisy:
    """The symmetric matrix with this upper triangle, row by row: an entry counts on both sides."""
    many = int(np.sqrt(2 * len(upper.value)))
    at = np.zeros((many, many), int)
    at[np.triu_indices(many)] = np.arange(len(upper.value))
    return upper[np.maximum(at, at.T)]
