"""The delta method: numbers computed from released sums, with their derivatives in these sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from privcausal.request.factors import Partitions
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
        noise = np.concatenate([np.ravel(reading.sd) ** 2 for reading in readings])
        ends = np.cumsum([np.size(reading.value) for reading in readings])[:-1]
        slopes = np.split(np.eye(len(noise)), ends)
        return [
            cls(reading.value, slope.reshape(*np.shape(reading.value), len(noise)), noise)
            for reading, slope in zip(readings, slopes, strict=True)
        ]

    @classmethod
    def joined(cls, parts: Sequence[Noisy]) -> Noisy:
        """Numbers along the first axis; a number without an axis has length 1."""
        values = np.concatenate([np.atleast_1d(part.value) for part in parts])
        noise = parts[0].noise
        slopes = [part.slope.reshape(-1, *values.shape[1:], len(noise)) for part in parts]
        return cls(values, np.concatenate(slopes), noise)

    def __add__(self, other: Number) -> Noisy:
        value, slope = _parts(other)
        return replace(self, value=self.value + value, slope=self.slope + slope)

    def __sub__(self, other: Number) -> Noisy:
        value, slope = _parts(other)
        return replace(self, value=self.value - value, slope=self.slope - slope)

    def __mul__(self, other: Number) -> Noisy:
        value, slope = _parts(other)
        product = self.slope * value[..., None] + self.value[..., None] * slope
        return replace(self, value=self.value * value, slope=product)

    def __truediv__(self, other: Number) -> Noisy:
        value, slope = _parts(other)
        out = np.asarray(self.value / value)
        quotient = (self.slope - out[..., None] * slope) / value[..., None]
        return replace(self, value=out, slope=quotient)

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
        residual = right.slope - np.einsum("ijx,j->ix", self.slope, out)
        return replace(self, value=out, slope=np.tensordot(inverse, residual, 1))

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


# -- sums over groups that partition the rows --------------------------------------------------


def reconciling(sd: Vector, identities: Matrix) -> Matrix:
    """The matrix P for which P x are readings x, adjusted to satisfy A s = 0; shape (m, m).

    A reading is x = s + e with independent errors of variances V = diag(sd^2). Generalized least
    squares gives P = I - V A'(A V A')^- A, which depends on V and A alone. P x is the linear
    unbiased estimate of least variance (Aitken 1935). No variance rises, and a reading without
    error does not change.

    Parameters
    ----------
    sd : Vector
        Shape (m,).
    identities : Matrix
        A, shape (q, m); rows may be linearly dependent.
    """
    shared = sd[:, None] ** 2 * identities.T  # V A'
    gain = shared @ np.linalg.pinv(identities @ shared, hermitian=True)
    return np.asarray(np.eye(len(sd)) - gain @ identities)


def reconciled(reading: Noisy, identities: Matrix) -> Noisy:
    """Independent readings, adjusted to satisfy the identities."""
    return reconciling(reading.sd, identities) @ reading


def reconciled_within(reading: Noisy, identities: Matrix, limits: tuple[float, float]) -> Noisy:
    """`reconciled` if the first number is known to lie within limits.

    If the first number falls outside, it is set to the limit and the others are adjusted: least
    squares under the inequality. The derivatives are those without limits, so that the variance is
    not too small.
    """
    free = reconciled(reading, identities)
    first = np.clip(free.value[0], *limits)
    others = reconciling(np.r_[0.0, reading.sd[1:]], identities)
    return free.held(others @ np.r_[first, reading.value[1:]])


def upheld(parts: Partitions, size: Vector, sd: Vector, few: float) -> Matrix:
    """The identities that hold: all except those with a detectable remainder.

    Declared levels are assumed to be exhaustive: a remainder counts as empty if its count is within
    `few` sd of zero. This neglects at most about `few` sd rows, times the distance of their mean
    score from the center. The error is at most the noise, unless these rows differ from the others
    by about the clipping threshold.

    Parameters
    ----------
    size, sd : Vector
        Rows (or masses) of all and of each group, and their noise, shape (1 + G,).
    """
    rest, noise = parts.identities @ size, np.sqrt(parts.identities**2 @ sd**2)
    return parts.identities[parts.certain | (np.abs(rest) <= few * noise)]


def joint_sampling(terms: Matrix, groups: Vector, share: Matrix, identities: Matrix) -> Matrix:
    """Sampling covariance of the terms, the first R of them averages, then each average's groups.

    Let a group have the share p of all rows. Its rows change its own average 1 / p times as much as
    the overall average. The covariance of the averages with a group is therefore diag(p) times the
    group's covariance. (Groups' variances are raised for noise; shares are lowered until the parts
    of a column do not exceed the whole.) Groups of one column have no row in common. The release
    does not show the overlap of groups of two columns, or of a group and a slope. These pairs are
    assumed independent given the averages, the distribution of largest entropy with the known
    covariances (Dempster 1972). If these pairs had zero covariance instead, the matrix need not be
    positive semidefinite.

    Parameters
    ----------
    terms : Matrix
        Covariance of the terms, shape (m, m).
    groups : Vector
        Covariances of the averages in each group, shape (G, R, R), with infinite variances where
        there is no estimate.
    share : Matrix
        Shares of the rows, shape (R, G).
    """
    r, many = share.shape
    finite = np.where(np.isfinite(groups), groups, 0.0)
    inverse = np.linalg.pinv(terms[:r, :r], hermitian=True)
    with_averages, same = np.zeros(groups.shape), np.eye(many, dtype=bool)
    for identity in identities:
        column = np.flatnonzero(identity[1:])
        part = share.T[column, :, None] * finite[column]
        total = np.einsum("gij,jg->ij", part, share[:, column])
        most = float(np.linalg.eigvals(inverse @ total).real.max())
        with_averages[column] += part / max(most, 1.0)
        same[np.ix_(column, column)] = True
    across = with_averages.transpose(1, 2, 0).reshape(r, r * many)  # groups of each average
    lead = terms[:, :r] @ inverse @ across
    between = np.where(np.tile(same, (r, r)), 0.0, across.T @ inverse @ across)
    between += np.einsum("gij,gh->igjh", finite, np.eye(many)).reshape(between.shape)
    out = np.block([[terms, lead], [lead.T, between]])
    lost = len(terms) + np.flatnonzero(~np.isfinite(np.einsum("gii->ig", groups)))
    out[lost, lost] = np.inf
    return np.asarray(out)
