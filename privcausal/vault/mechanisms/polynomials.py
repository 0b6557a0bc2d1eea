"""Coefficients of the squared loss of a polynomial regression in each arm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcausal.spec.polynomials import Polynomials
from privcausal.typing import Integers, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.mechanisms.base import ONE_FACTOR, Mechanism, grid_scale
from privcausal.vault.transforms.scores import Outcome

UNIT = float(1 << ONE_FACTOR)


@dataclass(frozen=True, eq=False)
class PolynomialSums(Mechanism):
    """Sums of x phi and of the upper triangle of phi phi' by arm: the functional mechanism.

    x in [-1, 1] is the outcome's place between its bounds, phi polynomials of a row's features
    with |phi_j| <= 1 and sum |phi_j| <= A (Zhang et al. 2012, Algorithm 1).

    Privacy
    -------
    A complete row adds to the entries of its arm sum |x phi_j| <= A and
    sum over i <= j of |phi_i phi_j| = (|phi|_1^2 + |phi|_2^2) / 2 <= (A^2 + A) / 2, since
    phi_j^2 <= |phi_j|; any other row nothing. So adding a row moves the sums by at most
    A + (A^2 + A) / 2 in l1, replacing one by at most twice that. The grid leaves room for rounding
    each entry.
    """

    polynomials: Polynomials
    outcome: Outcome

    @property
    def query(self) -> str:
        return f"squared loss by arm, p = {self.polynomials.size}"

    @property
    def _entries(self) -> int:
        m = self.polynomials.size
        return m + m * (m + 1) // 2

    @property
    def _scale(self) -> float:
        return grid_scale(ONE_FACTOR, 0.5 * self._entries)

    @property
    def units(self) -> Vector:
        return np.full(2 * self._entries, 1.0 / self._scale)

    def sensitivity(self, neighbors: Neighbors) -> float:
        return self.l1_sensitivity(neighbors)  # an l2 norm is at most the l1 norm

    def l1_sensitivity(self, neighbors: Neighbors) -> float:
        a = self.polynomials.bound
        return (2.0 if neighbors == "substitute" else 1.0) * (a + 0.5 * (a * a + a)) * UNIT

    def integers(self, batch: Batch) -> Integers:
        phi = self.polynomials.of(batch.rows.frame)
        x = np.clip(self.outcome(batch) / self.outcome.bound, -1.0, 1.0)[:, None]
        i, j = np.triu_indices(phi.shape[1])
        rows = np.rint(np.hstack([x * phi, phi[:, i] * phi[:, j]]) * self._scale).astype(np.int64)
        arms = [rows[batch.complete & (batch.t == arm)].sum(axis=0) for arm in (0, 1)]
        return np.concatenate(arms)

    def split(self, values: Vector) -> tuple[Matrix, Matrix]:
        """Sums of x phi, shape (2, m), and of phi phi', shape (2, m, m)."""
        m = self.polynomials.size
        cross, grams = np.zeros((2, m)), np.zeros((2, m, m))
        i, j = np.triu_indices(m)
        for arm, part in enumerate(np.split(values, 2)):
            cross[arm] = part[:m]
            grams[arm, i, j] = grams[arm, j, i] = part[m:]
        return cross, grams
