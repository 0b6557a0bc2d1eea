"""Second stages of DP-CATE as published, with their influence functions. Nothing here is private.

What is fitted serves one mechanism of the vault and is dropped with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from privcausal.spec.features import Design, Rows
from privcausal.spec.fourier import Fourier
from privcausal.typing import Integers, Matrix, Vector
from privcausal.vault.sealed import Sealed


class Fitted(Sealed, ABC):
    """g, and how far a unit of residual at x moves it at the queries."""

    @abstractmethod
    def g(self, rows: Rows) -> Vector:
        """Shape (n,)."""

    @abstractmethod
    def influence(self, rows: Rows) -> Vector:
        """||h(x)||_2 over the queries (Schroeder et al. 2025, Eqs. 13 and 14), shape (n,)."""


class SecondStage(ABC):
    """Learns g from weights rho and weighted pseudo-outcomes rho phi."""

    @abstractmethod
    def fit(self, rows: Rows, rho: Vector, target: Vector, queries: Rows) -> Fitted: ...


@dataclass(frozen=True, eq=False)
class Affine:
    """(1, z) of the design columns named."""

    design: Design
    columns: Integers

    def of(self, rows: Rows) -> Matrix:
        z = np.nan_to_num(rows.scaled(self.design)[:, self.columns])
        return np.hstack([np.ones((len(z), 1)), z])


@dataclass(frozen=True, eq=False)
class Ridge(SecondStage):
    """g = f(x)'w minimising (1/n) sum rho (phi - g)^2 + ridge ||w||^2: Corollaries 1 and 2.

    On the kernel's basis it is kernel ridge regression, h(x) = (L_rho + lambda I)^-1 K(., x) at
    the queries: Z G^-1 f(x), with G = F'RF / n + ridge I and Z = f(queries). On (1, z) it is the
    linear model, with h(x) = 2 J H^-1 grad g(x), H = 2 G: the same.

    Attributes
    ----------
    ridge : float
        Per row; `total` divides it by the number of rows.
    """

    features: Fourier | Affine
    ridge: float
    total: bool = False

    def fit(self, rows: Rows, rho: Vector, target: Vector, queries: Rows) -> Fitted:
        f, n = self.features.of(rows), max(len(rho), 1)
        ridge = self.ridge / n if self.total else self.ridge
        gram = (f.T * rho) @ f / n + ridge * np.eye(f.shape[1])
        weights: Vector = np.asarray(np.linalg.solve(gram, f.T @ target / n), np.float64)
        moves = np.linalg.solve(gram, self.features.of(queries).T).T
        # ||A f|| = ||R f|| for A = QR
        short = len(moves) <= moves.shape[1]
        root: Matrix = np.asarray(moves if short else np.linalg.qr(moves, mode="r"), np.float64)
        return FittedRidge(self.features, weights, root)


@dataclass(frozen=True, eq=False, repr=False)
class FittedRidge(Fitted):
    """Weights, and the matrix whose product with f(x) is as long as h(x)."""

    features: Fourier | Affine
    weights: Vector
    root: Matrix

    def g(self, rows: Rows) -> Vector:
        return np.asarray(self.features.of(rows) @ self.weights)

    def influence(self, rows: Rows) -> Vector:
        return np.asarray(np.linalg.norm(self.features.of(rows) @ self.root.T, axis=1))
