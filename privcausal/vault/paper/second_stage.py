"""Second stages of DP-CATE as published, with their influence functions. Nothing here is private.

What is fitted serves one mechanism of the vault and is dropped with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from privcausal.features.design import Design
from privcausal.features.expansions import Fourier
from privcausal.features.rows import Rows
from privcausal.typing import Integers, Matrix, Vector
from privcausal.vault.guard import Opaque


class FittedStage(Opaque, ABC):
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
    def fit(self, rows: Rows, rho: Vector, target: Vector, queries: Rows) -> FittedStage: ...


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
    """

    features: Fourier | Affine
    ridge: float

    def fit(self, rows: Rows, rho: Vector, target: Vector, queries: Rows) -> FittedStage:
        f, n = self.features.of(rows), max(len(rho), 1)
        gram = (f.T * rho) @ f / n + self.ridge * np.eye(f.shape[1])
        weights: Vector = np.asarray(np.linalg.solve(gram, f.T @ target / n), np.float64)
        moves = np.linalg.solve(gram, self.features.of(queries).T).T
        # ||A f|| = ||R f|| for A = QR
        short = len(moves) <= moves.shape[1]
        root: Matrix = np.asarray(moves if short else np.linalg.qr(moves, mode="r"), np.float64)
        return FittedRidge(self.features, weights, root)


@dataclass(frozen=True, eq=False, repr=False)
class FittedRidge(FittedStage):
    """Weights, and the matrix whose product with f(x) is as long as h(x)."""

    features: Fourier | Affine
    weights: Vector
    root: Matrix

    def g(self, rows: Rows) -> Vector:
        return np.asarray(self.features.of(rows) @ self.weights)

    def influence(self, rows: Rows) -> Vector:
        return np.asarray(np.linalg.norm(self.features.of(rows) @ self.root.T, axis=1))


@dataclass(frozen=True, eq=False)
class ExactRidge(SecondStage):
    """Corollary 2 on the Gaussian kernel itself: g = K(., X) a, (RK + n ridge I) a = rho phi.

    h(x) = (K(., x) - K(., X) (RK + n ridge I)^-1 R K(X, x)) / ridge at the queries. Time grows with
    the third power of the number of rows, memory with its square.
    """

    design: Design
    columns: Integers
    bandwidth: float
    ridge: float

    def fit(self, rows: Rows, rho: Vector, target: Vector, queries: Rows) -> FittedStage:
        points, asked = self.scaled(rows), self.scaled(queries)
        system = rho[:, None] * self.kernel(points, points)
        system[np.diag_indices(len(rho))] += max(len(rho), 1) * self.ridge
        weights: Vector = np.asarray(np.linalg.solve(system, target), np.float64)
        moves = np.linalg.solve(system.T, self.kernel(points, asked)).T * rho
        return FittedExact(self, points, weights, asked, np.asarray(moves, np.float64))

    def scaled(self, rows: Rows) -> Matrix:
        return np.nan_to_num(rows.scaled(self.design)[:, self.columns])

    def kernel(self, z: Matrix, other: Matrix) -> Matrix:
        return np.asarray(np.exp(-cdist(z, other, "sqeuclidean") / (2 * self.bandwidth**2)))


@dataclass(frozen=True, eq=False, repr=False)
class FittedExact(FittedStage):
    """Weights of the rows' points, and K(queries, X) (RK + n ridge I)^-1 R, shape (d, n)."""

    stage: ExactRidge
    points: Matrix
    weights: Vector
    asked: Matrix
    moves: Matrix

    def g(self, rows: Rows) -> Vector:
        return np.asarray(self.stage.kernel(self.stage.scaled(rows), self.points) @ self.weights)

    def influence(self, rows: Rows) -> Vector:
        z, kernel = self.stage.scaled(rows), self.stage.kernel
        at = kernel(self.asked, z) - self.moves @ kernel(self.points, z)
        return np.asarray(np.linalg.norm(at, axis=0) / self.stage.ridge)


WIDTH, RATE, BATCH = 32, 0.01, 128
"""Schroeder et al. (2025), supplement G.3."""

CHUNK = 64
_PUBLIC_SEED = 20_250_601  # starting weights and the order of batches: public, and no noise


@dataclass(frozen=True, eq=False)
class TanhNetwork(SecondStage):
    """g by Adam on the mean weighted squared error; h by the exact Jacobian and Hessian.

    h(x) = 2 J(queries) (H + damping I)^-1 grad g(x) (Corollary 1), H from exact Hessian-vector
    products of the mean loss.

    Attributes
    ----------
    scale : float
        Public size of the effect: the network learns g / scale.
    epochs : int
        The paper does not tell it.
    damping : float
        Added to the Hessian beyond what makes it positive, as a share of its largest eigenvalue.
    """

    design: Design
    columns: Integers
    scale: float
    epochs: int
    damping: float

    def _inputs(self, rows: Rows) -> Matrix:
        return np.nan_to_num(rows.scaled(self.design)[:, self.columns])

    def fit(self, rows: Rows, rho: Vector, target: Vector, queries: Rows) -> FittedStage:
        import torch

        x = torch.from_numpy(self._inputs(rows).copy())
        weight = torch.from_numpy(rho.copy())
        goal = torch.from_numpy(target / self.scale)
        theta = _trained(x, weight, goal, self.epochs)
        hessian = _hessian(theta, x, weight, goal)
        ends = np.linalg.eigvalsh(hessian)
        damping = self.damping * max(float(ends[-1]), 1e-12) - min(float(ends[0]), 0.0)
        jacobian = _gradients(theta, self._inputs(queries))
        damped = hessian + damping * np.eye(len(hessian))
        moves: Matrix = np.asarray(2 * np.linalg.solve(damped, jacobian.T).T, np.float64)
        return FittedNetwork(self, theta, moves)


@dataclass(frozen=True, eq=False, repr=False)
class FittedNetwork(FittedStage):
    """Flat weights theta, and 2 J H^-1 of shape (d, p)."""

    stage: TanhNetwork
    theta: Any
    moves: Matrix

    def g(self, rows: Rows) -> Vector:
        import torch

        x = torch.from_numpy(self.stage._inputs(rows).copy())
        with torch.no_grad():
            return np.asarray(_forward(self.theta, x).numpy() * self.stage.scale)

    def influence(self, rows: Rows) -> Vector:
        slopes = _gradients(self.theta, self.stage._inputs(rows))
        # the scale of g and that of the residual it is multiplied with cancel
        return np.asarray(np.linalg.norm(slopes @ self.moves.T, axis=1))


def _sizes(inputs: int) -> tuple[tuple[int, ...], ...]:
    return (inputs, WIDTH), (WIDTH,), (WIDTH, WIDTH), (WIDTH,), (WIDTH,), (1,)


def _layers(theta: Any, inputs: int) -> Any:
    """Weights and biases of flat weights, an array or a tensor."""
    shapes = _sizes(inputs)
    ends = np.cumsum([int(np.prod(s)) for s in shapes])
    starts = [0, *ends[:-1]]
    return (theta[a:b].reshape(s) for a, b, s in zip(starts, ends, shapes, strict=True))


def _forward(theta: Any, x: Any) -> Any:
    """g / scale of points x, shape (n, q) -> (n,)."""
    w1, b1, w2, b2, w3, b3 = _layers(theta, x.shape[-1])
    hidden = (x @ w1 + b1).tanh()
    return ((hidden @ w2 + b2).tanh() @ w3) + b3.squeeze(0)


def _loss(theta: Any, x: Any, weight: Any, goal: Any) -> Any:
    """Mean of rho (phi - g)^2 less rho phi^2, for goal = rho phi: rho may be zero."""
    g = _forward(theta, x)
    return (weight * g**2 - 2 * goal * g).mean()


def _trained(x: Any, weight: Any, goal: Any, epochs: int) -> Any:
    import torch

    generator = torch.Generator().manual_seed(_PUBLIC_SEED)
    parts = [
        torch.randn(int(np.prod(s)), generator=generator, dtype=torch.float64)
        * (float(s[0]) ** -0.5 if len(s) == 2 or i == 4 else 0.0)
        for i, s in enumerate(_sizes(x.shape[1]))
    ]
    theta = torch.cat(parts).requires_grad_(True)
    optimiser = torch.optim.Adam([theta], lr=RATE)
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator)
        for at in torch.split(order, BATCH):
            optimiser.zero_grad()
            _loss(theta, x[at], weight[at], goal[at]).backward()
            optimiser.step()
    return theta.detach()


def _hessian(theta: Any, x: Any, weight: Any, goal: Any) -> Matrix:
    """Of the mean loss, by Hessian-vector products in blocks of directions, shape (p, p)."""
    import torch
    from torch.func import grad, jvp, vmap

    slope = grad(_loss)

    def product(v: Any) -> Any:
        return jvp(lambda w: slope(w, x, weight, goal), (theta,), (v,))[1]

    directions = torch.split(torch.eye(len(theta), dtype=torch.float64), CHUNK)
    blocks = [vmap(product)(v) for v in directions]
    found = np.nan_to_num(torch.cat(blocks).numpy())  # without any row the mean is no number
    return np.asarray(0.5 * (found + found.T))


def _gradients(theta: Any, x: Matrix) -> Matrix:
    """grad_theta g / scale at points, shape (n, p), by the chain rule."""
    w1, b1, w2, b2, w3, _ = _layers(theta.numpy(), x.shape[1])
    first = np.tanh(x @ w1 + b1)
    second = np.tanh(first @ w2 + b2)
    at_second = (1 - second**2) * w3
    at_first = (1 - first**2) * (at_second @ w2.T)
    parts = [_outer(x, at_first), at_first, _outer(first, at_second), at_second, second]
    return np.hstack([*parts, np.ones((len(x), 1))])


def _outer(one: Matrix, other: Matrix) -> Matrix:
    """The outer product in each row, flat; of no rows too."""
    products = one[:, :, None] * other[:, None, :]
    return products.reshape(len(one), one.shape[1] * other.shape[1])
