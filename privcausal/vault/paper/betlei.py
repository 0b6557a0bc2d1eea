"""Betlei et al. (2021) as printed: noisy sums by cell, and logistic regressions for visits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from privcausal.accounting.charge import PICO
from privcausal.errors import CapabilityError
from privcausal.features.expansions import Polynomials
from privcausal.request.partition import Partition
from privcausal.request.plan import Stage
from privcausal.typing import Integers, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.exit import ONE_FACTOR, ClaimedNoise, Mechanism
from privcausal.vault.paper.private import stacked
from privcausal.vault.queries.cells import CELL_UNIT
from privcausal.vault.transforms import Outcome


@dataclass(frozen=True, eq=False)
class PrintedCells(Mechanism):
    """COUNT + Lap(2/eps) and SUM + Lap(2 D_y/eps) of y itself in each cell and arm (Algorithm 1).

    D_y is the width of the outcome's bounds. Numbers are on grids of 2^-30 (counts) and
    2^-30 max|y| (sums). A noisy count is therefore zero with probability of only about 2^-31.

    Privacy
    -------
    The claim, for either neighboring relation: counts have sensitivity 1 and sums have sensitivity
    D_y, at epsilon / 2 each. In fact, adding a row changes the count by 1 and the sum by |y|. This
    costs epsilon (1 + max|y| / D_y) / 2, which is at most epsilon only if max|y| <= D_y, that is,
    if 0 is within the bounds. Replacing a row removes it from one cell and adds it to another,
    which costs twice as much. `CellSums` has scales that are proven.
    """

    partition: Partition
    outcome: Outcome

    label = "COUNT and SUM by arm in {self.partition.size} cells"

    @property
    def largest(self) -> float:
        """max|y| within the outcome's bounds."""
        return max(abs(self.outcome.lo), abs(self.outcome.hi))

    @property
    def _groups(self) -> int:
        return 2 * self.partition.size

    @property
    def weights(self) -> Vector:
        total = self.largest / (self.outcome.hi - self.outcome.lo)
        return np.repeat([1.0, total], self._groups)

    @property
    def units(self) -> Vector:
        return np.repeat([1.0 / CELL_UNIT, self.largest / CELL_UNIT], self._groups)

    def sensitivity(self, neighbors: Neighbors) -> float:
        raise CapabilityError("The paper's mechanism supports only Laplace noise.")

    def l1_sensitivity(self, neighbors: Neighbors) -> float:
        """The claimed value: 1 for a count and 1 for a sum over D_y."""
        return 2.0 * CELL_UNIT

    def integers(self, batch: Batch) -> Integers:
        lo, hi = self.outcome.lo, self.outcome.hi
        y = np.clip(self.outcome(batch) + 0.5 * (lo + hi), lo, hi)
        cell = self.partition.cell(batch.rows.frame)
        counted = batch.complete & (cell >= 0) & (cell < self.partition.size)
        at = 2 * cell[counted] + (batch.t[counted] == 1)
        count = np.bincount(at, minlength=self._groups) * CELL_UNIT
        total = np.bincount(
            at, np.rint(y[counted] / self.largest * CELL_UNIT), minlength=self._groups
        )
        return np.concatenate([count, total.astype(np.int64)])

    def split(self, values: Vector) -> tuple[Matrix, Matrix]:
        """Counts and sums of y, shape (cells, 2) each: control and treated."""
        count, total = values.reshape(2, -1, 2)
        return count, total


CURVATURE = 0.25
"""c of the paper: the maximum curvature of the logistic loss."""

RIDGE_SHARE = 0.1
"""Share of epsilon that the ridge costs by default. In the paper, users choose the ridge's size."""

MOST_SPENT = 3.0
"""Maximum epsilon spent on making the ridge small. Without a ridge, a minimum may not exist."""

STEPS = 100
"""Maximum number of Newton steps; a dozen are usual."""


@dataclass(frozen=True, eq=False)
class PublishedLogits:
    """Coefficients of P(Y = 1 | x, T = t), each arm by Chaudhuri et al. (2011, Algorithm 2).

    Let s = 2y - 1, and scale rows phi so that ||phi|| <= 1. The w of an arm minimizes

        sum_i log(1 + exp(-s_i phi_i'w)) + (Lambda / 2) ||w||^2 + b'w,

    with b of density proportional to exp(-beta ||b||). The paper's n Lambda is this Lambda, and b
    is the same. With this notation, the formula does not depend on the private number of rows of
    an arm.

    Privacy
    -------
    The claim, for exact numbers: at the same w, adding or removing a row changes b by at most one,
    because the loss has slopes of at most one. It changes the determinant of the Jacobian of b in w
    by a factor of at most 1 + c / Lambda, c = `CURVATURE` (a matrix of rank one). This costs
    beta + log(1 + c / Lambda). Replacing a row, in one arm or across arms, costs twice that.

    Let k = 1 (add or remove) or k = 2 (replace). Then beta = epsilon / k - log(1 + c / Lambda) and
    Lambda = c / (exp(a) - 1), with a the smaller of `RIDGE_SHARE` epsilon / k and `MOST_SPENT`.

    If `C` is given, Lambda = 1 / C, and beta would be zero or less if `ridge_price` reaches
    epsilon. The paper then takes Lambda = c / (exp(epsilon / 4) - 1) and beta = epsilon / 4. Such a
    `C` is refused earlier.

    The claim is not proven for floats: the density ratio needs a continuous b and an exact minimum.
    The digits of w reveal which b of a grid can have led to w (Mironov 2012). There is also no sum
    on a grid to which noise could be added.
    """

    polynomials: Polynomials
    neighbors: Neighbors
    C: float | None = None

    name = "objective perturbation"

    @property
    def query(self) -> str:
        return f"logistic regression by arm, p = {self.polynomials.size}"

    @property
    def size(self) -> int:
        return 2 * self.polynomials.size

    def law(self, epsilon: float) -> tuple[float, float]:
        """beta and Lambda."""
        share = epsilon / (2 if self.neighbors == "substitute" else 1)
        ridge = CURVATURE / math.expm1(min(RIDGE_SHARE * share, MOST_SPENT))
        ridge = ridge if self.C is None else 1 / self.C
        return share - math.log1p(CURVATURE / ridge), ridge

    def answer(
        self, first: Sequence[Batch], second: Sequence[Batch], stage: Stage, add_noise: ClaimedNoise
    ) -> Vector:
        """Coefficients of phi, control before treated, shape (2 p,)."""
        beta, ridge = self.law(stage.epsilon / PICO)
        length = math.sqrt(self.polynomials.bound)  # phi_j^2 <= |phi_j|
        coefficients = []
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            both, t, y = stacked([*first, *second])
            phi = self.polynomials.of(both.frame)
            for arm in (0, 1):
                b = drawn(self.polynomials.size, add_noise) / beta
                rows = t == arm
                w = minimum(phi[rows] / length, 2 * y[rows] - 1, ridge, b)
                coefficients.append(w / length)
        return np.concatenate(coefficients)


def ridge_price(c: float, neighbors: Neighbors) -> float:
    """The part of epsilon that a ridge of 1 / c costs: log(1 + c / 4) for each row that changes."""
    return (2 if neighbors == "substitute" else 1) * math.log1p(CURVATURE * c)


def drawn(size: int, add_noise: ClaimedNoise) -> Vector:
    """A vector of density proportional to exp(-||b||): its length is Gamma with shape `size`.

    The length is half of a chi-square with 2 x `size` degrees of freedom. The direction is uniform.
    """
    unit = 2.0**-ONE_FACTOR
    radius = 0.5 * float((add_noise("length", np.zeros(2 * size), unit, 1.0) ** 2).sum())
    direction = add_noise("direction", np.zeros(size), unit, 1.0)
    norm = float(np.linalg.norm(direction))
    return radius * direction / norm if norm > 0 else np.zeros(size)


def minimum(phi: Matrix, sign: Vector, ridge: float, b: Vector) -> Vector:
    """The w of `PublishedLogits`, by Newton steps that are halved until the objective decreases."""

    def objective(w: Vector) -> float:
        loss = np.logaddexp(0.0, -sign * (phi @ w)).sum()
        return float(loss + 0.5 * ridge * (w @ w) + b @ w)

    w = np.zeros(len(b))
    value = objective(w)
    for _ in range(STEPS):
        p = expit(-sign * (phi @ w))
        slope = ridge * w + b - phi.T @ (sign * p)
        hessian = (phi.T * (p * (1 - p))) @ phi + ridge * np.eye(len(w))
        step = np.linalg.solve(hessian, slope)
        length = 1.0
        while length > 1e-9 and not objective(w - length * step) < value:
            length *= 0.5
        if length <= 1e-9:
            return w
        w = w - length * step
        value = objective(w)
    return w
