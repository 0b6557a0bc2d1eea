"""Conditional effects as functions of covariates, with the standard deviation of their error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit

from privcausal.features.basis import combine
from privcausal.features.design import Design
from privcausal.features.expansions import Polynomials
from privcausal.features.functions import Additive, Function
from privcausal.features.rows import Rows
from privcausal.stored import stored
from privcausal.typing import Integers, Mask, Matrix, Vector


@stored
@dataclass(frozen=True, eq=False)
class Piece:
    """weight(x) x additive(x), with the covariance of the additive function's coefficients."""

    additive: Additive
    cov: Matrix
    weight: Function | None = None


@stored
@dataclass(frozen=True, eq=False)
class Effect:
    """tau(x) as a sum of independent pieces, cut to [-reach, reach] (the outcome's range)."""

    pieces: tuple[Piece, ...]
    reach: float
    drawn: ClassVar[bool] = True
    """Whether it can be drawn along each modifier."""

    def __call__(self, rows: Rows) -> Vector:
        return rows.scratch((self,), lambda: self._of(rows))

    def _of(self, rows: Rows) -> Vector:
        total = np.zeros(len(rows))
        for piece in self.pieces:
            value = piece.additive(rows)
            total += value if piece.weight is None else value * piece.weight(rows)
        return np.clip(total, -self.reach, self.reach, out=total)

    def sd(self, rows: Rows) -> Vector:
        """Posterior standard deviation, shape (n,)."""
        total = np.zeros(len(rows))
        for piece in self.pieces:
            phi = np.asfortranarray(rows.phi(piece.additive.features))  # read by column
            values, vectors = np.linalg.eigh(piece.cov)
            spread = sum(
                (max(v, 0.0) * combine(phi, vectors[:, k]) ** 2 for k, v in enumerate(values)),
                np.zeros(len(rows)),
            )
            total += spread if piece.weight is None else spread * piece.weight(rows) ** 2
        return np.sqrt(total)

    def mean_sd(self, rows: Rows, weight: Vector) -> float:
        """Posterior standard deviation of the mean of weight x tau(x)."""
        total = 0.0
        for piece in self.pieces:
            own = weight if piece.weight is None else weight * piece.weight(rows)
            lead = rows.phi(piece.additive.features).T @ own / len(rows)
            total += float(lead @ piece.cov @ lead)
        return float(np.sqrt(max(total, 0.0)))


@stored
@dataclass(frozen=True, eq=False)
class Predicted(Effect):
    """tau(x) as a function without a law of its error: its sd is NaN."""

    function: Function

    def __call__(self, rows: Rows) -> Vector:
        return np.minimum(np.maximum(self.function(rows), -self.reach), self.reach)

    def sd(self, rows: Rows) -> Vector:
        return np.full(len(rows), np.nan)


# -- at declared points -----------------------------------------------------------------------


@stored
@dataclass(frozen=True, eq=False)
class Answers(Effect):
    """tau at declared points; nothing is known elsewhere.

    Attributes
    ----------
    columns : Integers
        Design columns on which the effect depends.
    points : Matrix
        Scaled columns of the points, shape (d, q).
    value, spread : Vector
        tau and the sd of its error (NaN where that would tell of rows), shape (d,).
    """

    design: Design
    columns: Integers
    points: Matrix
    value: Vector
    spread: Vector
    drawn: ClassVar[bool] = False

    def __call__(self, rows: Rows) -> Vector:
        """tau; NaN elsewhere, as an error would tell that a row is no such point."""
        value = np.append(self.value, np.nan)[self._at(rows)]
        return np.asarray(np.minimum(np.maximum(value, -self.reach), self.reach))

    def sd(self, rows: Rows) -> Vector:
        return np.asarray(np.append(self.spread, np.nan)[self._at(rows)])

    def knows(self, rows: Rows) -> Mask:
        """Which rows are at one of the points."""
        return self._at(rows) >= 0

    def _at(self, rows: Rows) -> Integers:
        """Index of each row's point, -1 for none."""
        position = {point.tobytes(): i for i, point in enumerate(self.points)}
        asked = np.ascontiguousarray(rows.scaled(self.design)[:, self.columns])
        return np.array([position.get(point.tobytes(), -1) for point in asked], np.int64)


# -- polynomials by arm -----------------------------------------------------------------------

RIDGE = 4.0
"""Regularisation in noise standard deviations (Zhang et al. 2012, section 6.1)."""


def trimmed(gram: Matrix, cross: Vector, noise_sd: float) -> Vector:
    """Coefficients of a noisy squared loss, by a ridge and without directions of no curvature."""
    values, vectors = np.linalg.eigh(gram + RIDGE * noise_sd * np.eye(len(gram)))
    kept = values > 1e-9 * max(float(values[-1]), 0.0)
    if not kept.any():
        return np.zeros(len(cross))
    inner = vectors[:, kept]
    return np.asarray(inner @ ((inner.T @ cross) / values[kept]))


@stored
@dataclass(frozen=True, eq=False)
class ArmPolynomials:
    """tau(x) as the difference of two regressions, each cut to the outcome's bounds.

    `coef` (2, size) are those of y less the middle of its bounds, control and treated; `half` is
    half of the outcome's range.
    """

    polynomials: Polynomials
    coef: Matrix
    half: float
    drawn: ClassVar[bool] = True

    def __call__(self, rows: Rows) -> Vector:
        phi = self.polynomials.of(rows.frame)
        means = [np.clip(phi @ coef, -self.half, self.half) for coef in self.coef]
        return np.asarray(means[1] - means[0])

    def sd(self, rows: Rows) -> Vector:
        """Not known: the mechanism's own regularisation biases it."""
        return np.full(len(rows), np.nan)


@stored
@dataclass(frozen=True, eq=False)
class ArmLogits(ArmPolynomials):
    """tau(x) as the difference of two probabilities, of logistic regressions; `half` is 1/2."""

    def __call__(self, rows: Rows) -> Vector:
        phi = self.polynomials.of(rows.frame)
        control, treated = (expit(phi @ coef) for coef in self.coef)
        return np.asarray(treated - control)
