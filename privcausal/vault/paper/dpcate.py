"""DP-CATE as printed in its paper (Schroeder et al. 2025): effects at points, with its noise."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist

from privcausal.accounting.charge import PICO
from privcausal.features.design import Design
from privcausal.features.expansions import Fourier
from privcausal.features.functions import NuisanceTriple
from privcausal.features.rows import Rows
from privcausal.request.plan import Stage
from privcausal.typing import Integers, Matrix, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.estimators import Estimators
from privcausal.vault.exit import ONE_FACTOR, ClaimedNoise
from privcausal.vault.guard import Opaque
from privcausal.vault.paper.private import FEWEST_ROWS, Supremum, noise_scale, nuisances_on, stacked
from privcausal.vault.transforms import Outcome

Weight = Literal["overlap", "one", "treated", "control", "entropy"]
RealFunction = Callable[[Vector], Vector]

WEIGHT_CURVES: dict[str, tuple[RealFunction, RealFunction]] = {
    "overlap": (lambda p: p * (1 - p), lambda p: 1 - 2 * p),
    "one": (np.ones_like, np.zeros_like),
    "treated": (lambda p: p, np.ones_like),
    "control": (lambda p: 1 - p, lambda p: -np.ones_like(p)),
    "entropy": (lambda p: -p * np.log(p) - (1 - p) * np.log(1 - p), lambda p: np.log((1 - p) / p)),
}
"""lambda(pi) and its slope. All are concave and not negative on [0, 1]. rho(a, pi) is the height of
the tangent at a. It is therefore not negative, and is largest where pi is furthest from a."""


@dataclass(frozen=True, eq=False)
class SecondStageScores:
    """rho and rho phi for a weight lambda(pi) (the paper's Eqs. 4 and 5).

        rho = (a - e) lambda'(e) + lambda(e)
        rho phi = lambda(e) (a - e) / (e (1 - e)) (y - mu_a) + rho (mu_1 - mu_0)

    "overlap" is the R-learner, with rho = (a - e)^2, and "one" the DR-learner (Eq. 21).
    """

    nuisance: NuisanceTriple
    weight: Weight

    def __call__(self, rows: Rows, t: Vector, y: Vector) -> tuple[Vector, Vector]:
        return self.from_values(self.at(rows), t, y)

    def at(self, rows: Rows) -> tuple[Vector, Vector, Vector]:
        """e, mu_0 and mu_1 of the rows."""
        n = self.nuisance
        return n.e(rows), n.mu0(rows), n.mu1(rows)

    def from_values(
        self, at: tuple[Vector, Vector, Vector], t: Vector, y: Vector
    ) -> tuple[Vector, Vector]:
        e, mu0, mu1 = at
        value, residual = WEIGHT_CURVES[self.weight][0](e), y - np.where(t == 1, mu1, mu0)
        rho = tangent(self.weight, e, t)
        return rho, value * (t - e) / (e * (1 - e)) * residual + rho * (mu1 - mu0)


def tangent(weight: Weight, e: Vector, t: Vector) -> Vector:
    """rho(t, e), kept nonnegative under rounding."""
    value, slope = WEIGHT_CURVES[weight]
    return np.asarray(np.maximum((t - e) * slope(e) + value(e), 0.0))


@dataclass(frozen=True, eq=False)
class _Published:
    """Shared base of both releases: nuisance models from one part of the rows, g from the other.

    If `whole`, the nuisance models are given, and g is fitted on all rows.
    """

    nuisances: Estimators | NuisanceTriple
    design: Design
    outcome: Outcome
    clip: float
    weight: Weight
    whole: bool

    name = "discrete Gaussian"

    def _fitted(
        self, first: Sequence[Batch], second: Sequence[Batch], stage: SecondStage, queries: Rows
    ) -> tuple[SecondStageScores, FittedStage, int]:
        nuisance = nuisances_on(
            self.nuisances, self.design, self.outcome, self.clip, *stacked(first)
        )
        scores = SecondStageScores(nuisance, self.weight)
        rows, t, y = stacked([*first, *second] if self.whole else second)
        return (scores, stage.fit(rows, *scores(rows, t, y), queries), max(len(t), FEWEST_ROWS))


@dataclass(frozen=True, eq=False)
class PublishedAnswers(_Published):
    """g(queries) + gamma 5 sqrt(2 ln(n) ln(2/delta)) / (eps n) U, U ~ N(0, I_d) (Theorem 1).

    gamma = sup over z of ||h(x)||_2 |rho (phi(z) - g(x))| (Eqs. 11 and 22). It is exact in
    treatment and outcome, because the residual is linear in them. In the covariates it is found by
    `Supremum`.

    Attributes
    ----------
    starts : Matrix
        Public starting points of the search for gamma.

    Privacy
    -------
    Privacy is not proven. The theorem takes the influence of one row on g from the influence
    function at the sample, and takes gamma as a smooth bound of the sensitivity. Neither is shown
    for a fitted second stage, and gamma is found by a local search. Nonprivate nuisance models
    change with a row of their own part, without any noise. Noise scales depend on the rows, so this
    function does not return them.
    """

    second: SecondStage
    queries: Rows
    starts: Matrix

    query = "effect at the queries"

    @property
    def size(self) -> int:
        return len(self.queries)

    def answer(
        self, first: Sequence[Batch], second: Sequence[Batch], stage: Stage, add_noise: ClaimedNoise
    ) -> Vector:
        """Noisy effects at the queries, shape (d,)."""
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            # Suppress warnings: an estimator's warning may describe values of the rows.
            scores, fitted, size = self._fitted(first, second, self.second, self.queries)
            gamma = Supremum(self.design, self.starts).of(
                lambda rows: self._reach(scores, fitted, rows)
            )
            exact = fitted.g(self.queries)
        unit = 2 * self.outcome.bound * 2.0**-ONE_FACTOR
        limit = 2 * self.outcome.bound / self.clip
        sd = max(gamma * noise_scale(size, stage), unit)
        return add_noise("answers", np.clip(np.nan_to_num(exact), -limit, limit), unit, sd)

    def _reach(self, scores: SecondStageScores, fitted: FittedStage, rows: Rows) -> Vector:
        """max over t and y of ||h(x)|| |rho (phi - g)| at given covariates, shape (n,)."""
        g, size, at = fitted.g(rows), np.ones(len(rows)), scores.at(rows)
        ends = []
        for t in (0.0, 1.0):
            for y in (self.outcome.lo, self.outcome.hi):
                rho, target = scores.from_values(at, t * size, y * size)
                ends.append(np.abs(target - rho * g))
        return np.asarray(fitted.influence(rows) * np.max(ends, axis=0))


@dataclass(frozen=True, eq=False)
class PublishedProcess(_Published):
    """g + r U with U a Gaussian process of covariance K (Theorem 3; Algorithms 1 and 2).

    K = (sqrt(2 pi) h)^-q k, with k the unit Gaussian kernel. g minimizes
    (1/n) sum rho (phi - g)^2 + ridge ||g||^2 over its RKHS. As printed (Eq. 19),
    r = sup rho 4 L sqrt(2 ln(2/delta)) / ((sqrt(2 pi) h)^q ridge n eps), with L the largest |y| of
    the declared outcome (supplement G.3).

    Privacy
    -------
    Privacy is not proven, and it fails. The exponent of sqrt(2 pi) h should be q/2 (Hall, Rinaldo
    and Wasserman 2013). The noise is therefore too small by a factor of (sqrt(2 pi) h)^(q/2)
    wherever this factor is above one. Moreover, the squared loss has no Lipschitz constant on an
    unbounded g.
    """

    features: Fourier
    ridge: float

    query = "Gaussian process"

    @property
    def density(self) -> float:
        """K(x, x)."""
        q = self.features.frequencies.shape[1]
        return float((math.sqrt(2 * math.pi) * self.features.bandwidth) ** -q)

    def scale(self, size: int, stage: Stage) -> float:
        """r of Eq. 19."""
        epsilon, delta = stage.epsilon / PICO, stage.delta / PICO
        ends = np.array([self.clip, 1 - self.clip])
        largest = float(tangent(self.weight, ends, np.array([1.0, 0.0])).max())
        lipschitz = max(abs(self.outcome.lo), abs(self.outcome.hi))
        spread = 4 * lipschitz * math.sqrt(2 * math.log(2 / delta))
        return largest * spread * self.density / (self.ridge * size * epsilon)

    def process(
        self, first: Sequence[Batch], second: Sequence[Batch], stage: Stage, add_noise: ClaimedNoise
    ) -> Process:
        """g and its noise, to be queried point by point. The process itself is secret."""
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            model = Ridge(self.features, self.ridge / self.density)
            none = Rows({}, 0, None, {self.design: np.zeros((0, len(self.design)))})
            _, fitted, size = self._fitted(first, second, model, none)
        return Process(fitted, self.features, self.density, self.scale(size, stage), add_noise)


@dataclass(frozen=True, eq=False)
class PublishedCurve(PublishedProcess):
    """The process at declared points, after which it is dropped (Algorithm 1)."""

    queries: Rows

    @property
    def size(self) -> int:
        return len(self.queries)

    def answer(
        self, first: Sequence[Batch], second: Sequence[Batch], stage: Stage, add_noise: ClaimedNoise
    ) -> Vector:
        return self.process(first, second, stage, add_noise).ask(self.queries)


@dataclass(eq=False, repr=False)
class Process(Opaque):
    """g(x) + r U(x), with U drawn point by point given the earlier draws (Algorithm 2).

    As printed, the algorithm conditions on past private *answers*, and therefore loses g after the
    first query. This class conditions on past *noise* instead. The noise must stay secret, and so
    must g, because an answer minus its noise is g(x). Repeating a point repeats its answer
    to the bit: answers are kept, because g may differ in the last bit among other points.
    """

    fitted: FittedStage
    features: Fourier
    density: float
    scale: float
    add_noise: ClaimedNoise
    _points: list[Vector] = field(default_factory=list)
    _root: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    _standard: list[float] = field(default_factory=list)
    _answers: dict[bytes, float] = field(default_factory=dict)

    def ask(self, rows: Rows) -> Vector:
        """Noisy effects at points, one after another, shape (n,)."""
        z = np.ascontiguousarray(rows.scaled(self.features.design)[:, self.features.columns])
        for point, g in zip(z, self.fitted.g(rows), strict=True):
            if (key := point.tobytes()) not in self._answers:
                self._answers[key] = g + self.scale * self._noise(point)
        return np.array([self._answers[point.tobytes()] for point in z])

    def _noise(self, point: Vector) -> float:
        """U at a point given U at the earlier points.

        Let C = R R' be the covariance at the earlier points, and U = R u there. The value is
        w'u + sd u' for R w = K(., point). This is the conditional distribution given U, since
        C^-1 U = R'^-1 u.
        """
        # The next row of R, shape (points so far + 1,).
        if self._points:
            v = self.density * self.features.kernel(np.array(self._points), point)
            w = solve_triangular(self._root[: len(v), : len(v)], v, lower=True)
            # a lower limit, in case points are close together
            left = max(self.density - float(w @ w), 1e-9 * self.density)
            row = np.append(w, math.sqrt(left))
        else:
            row = np.array([math.sqrt(self.density)])
        unit = 2.0**-ONE_FACTOR
        standard = float(self.add_noise("process", np.zeros(1), unit, 1.0)[0])
        noise: float = float(row[:-1] @ self._standard) + row[-1] * standard
        self._points.append(point)
        self._standard.append(standard)
        k = len(row)
        if k > len(self._root):  # The storage doubles when it is full.
            self._root = np.pad(self._root, (0, k))
        self._root[k - 1, :k] = row
        return noise


# -- second stages; a fitted stage serves one mechanism and is then discarded --------------------


@dataclass(frozen=True, eq=False, repr=False)
class FittedStage(Opaque):
    """g, and the change of g at the queries per unit of residual at x, both of shape (n,).

    The change is ||h(x)||_2 over the queries (Schroeder et al. 2025, Eqs. 13 and 14).
    """

    g: Callable[[Rows], Vector]
    influence: Callable[[Rows], Vector]


class SecondStage(ABC):
    """Learns g from weights rho and weighted pseudo-outcomes rho phi."""

    @abstractmethod
    def fit(self, rows: Rows, rho: Vector, target: Vector, queries: Rows) -> FittedStage: ...


@dataclass(frozen=True, eq=False)
class _Columns:
    """The design columns that a stage learns from."""

    design: Design
    columns: Integers

    def scaled(self, rows: Rows) -> Matrix:
        return np.nan_to_num(rows.scaled(self.design)[:, self.columns])


class Affine(_Columns):
    """(1, z) of the named columns."""

    def of(self, rows: Rows) -> Matrix:
        z = self.scaled(rows)
        return np.hstack([np.ones((len(z), 1)), z])


@dataclass(frozen=True, eq=False)
class Ridge(SecondStage):
    """g = f(x)'w minimizing (1/n) sum rho (phi - g)^2 + ridge ||w||^2: Corollaries 1 and 2.

    On the kernel's basis this is kernel ridge regression: h(x) = (L_rho + lambda I)^-1 K(., x) at
    the queries. That equals Z G^-1 f(x), with G = F'RF / n + ridge I and Z = f(queries). On (1, z)
    this is the linear model. Its h(x) = 2 J H^-1 grad g(x), H = 2 G, is the same expression.
    """

    features: Fourier | Affine
    ridge: float

    def fit(self, rows: Rows, rho: Vector, target: Vector, queries: Rows) -> FittedStage:
        of = self.features.of
        f, n = of(rows), max(len(rho), 1)
        gram = (f.T * rho) @ f / n + self.ridge * np.eye(f.shape[1])
        weights: Vector = np.asarray(np.linalg.solve(gram, f.T @ target / n), np.float64)
        moves = np.linalg.solve(gram, of(queries).T).T
        # ||A f|| = ||R f|| for A = QR
        short = len(moves) <= moves.shape[1]
        root: Matrix = np.asarray(moves if short else np.linalg.qr(moves, mode="r"), np.float64)
        return FittedStage(
            lambda rows: np.asarray(of(rows) @ weights),
            lambda rows: np.asarray(np.linalg.norm(of(rows) @ root.T, axis=1)),
        )


@dataclass(frozen=True, eq=False)
class ExactRidge(_Columns, SecondStage):
    """Corollary 2 on the Gaussian kernel itself: g = K(., X) a, (RK + n ridge I) a = rho phi.

    h(x) = (K(., x) - K(., X) (RK + n ridge I)^-1 R K(X, x)) / ridge at the queries. Time grows with
    the third power of the number of rows, memory with its square.
    """

    bandwidth: float
    ridge: float

    def fit(self, rows: Rows, rho: Vector, target: Vector, queries: Rows) -> FittedStage:
        points, at_queries = self.scaled(rows), self.scaled(queries)
        system = rho[:, None] * self.kernel(points, points)
        system[np.diag_indices(len(rho))] += max(len(rho), 1) * self.ridge
        weights: Vector = np.asarray(np.linalg.solve(system, target), np.float64)
        moves = np.linalg.solve(system.T, self.kernel(points, at_queries)).T * rho

        def influence(rows: Rows) -> Vector:
            z = self.scaled(rows)
            at = self.kernel(at_queries, z) - moves @ self.kernel(points, z)
            return np.asarray(np.linalg.norm(at, axis=0) / self.ridge)

        return FittedStage(
            lambda rows: np.asarray(self.kernel(self.scaled(rows), points) @ weights), influence
        )

    def kernel(self, z: Matrix, other: Matrix) -> Matrix:
        return np.asarray(np.exp(-cdist(z, other, "sqeuclidean") / (2 * self.bandwidth**2)))


TANH_WIDTH, TANH_RATE, TANH_BATCH = 32, 0.01, 128
"""Schroeder et al. (2025), supplement G.3."""

# public seed of starting weights and of the order of batches, not of noise
_PUBLIC_SEED = 20_250_601


@dataclass(frozen=True, eq=False)
class TanhNetwork(_Columns, SecondStage):
    """g by Adam on the mean weighted squared error; h by the exact Jacobian and Hessian.

    h(x) = 2 J(queries) (H + damping I)^-1 grad g(x) (Corollary 1). H is the Hessian of the mean
    loss, from exact Hessian-vector products.
    """

    scale: float  # Public size of the effect: the network learns g / scale
    epochs: int  # The paper does not state its value
    # Added to the Hessian after it was made positive, as a share of its largest eigenvalue
    damping: float

    def fit(self, rows: Rows, rho: Vector, target: Vector, queries: Rows) -> FittedStage:
        import torch

        x = torch.from_numpy(self.scaled(rows).copy())
        weight = torch.from_numpy(rho.copy())
        goal = torch.from_numpy(target / self.scale)
        theta = _trained(x, weight, goal, self.epochs)
        hessian = _hessian(theta, x, weight, goal)
        ends = np.linalg.eigvalsh(hessian)
        damping = self.damping * max(float(ends[-1]), 1e-12) - min(float(ends[0]), 0.0)
        jacobian = _gradients(theta, self.scaled(queries))
        damped = hessian + damping * np.eye(len(hessian))
        moves: Matrix = np.asarray(2 * np.linalg.solve(damped, jacobian.T).T, np.float64)

        def g(rows: Rows) -> Vector:
            with torch.no_grad():
                inside = torch.from_numpy(self.scaled(rows).copy())
                return np.asarray(_forward(theta, inside).numpy() * self.scale)

        def influence(rows: Rows) -> Vector:
            slopes = _gradients(theta, self.scaled(rows))
            # The scale of g cancels with the scale of the residual that it is multiplied with.
            return np.asarray(np.linalg.norm(slopes @ moves.T, axis=1))

        return FittedStage(g, influence)


def _sizes(inputs: int) -> tuple[tuple[int, ...], ...]:
    width = TANH_WIDTH
    return (inputs, width), (width,), (width, width), (width,), (width,), (1,)


def _layers(theta: Any, inputs: int) -> Any:
    """Split flat weights, an array or a tensor, into weights and biases."""
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
    """Mean of rho (phi - g)^2 minus rho phi^2, for goal = rho phi; rho may be zero."""
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
    optimiser = torch.optim.Adam([theta], lr=TANH_RATE)
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator)
        for at in torch.split(order, TANH_BATCH):
            optimiser.zero_grad()
            _loss(theta, x[at], weight[at], goal[at]).backward()
            optimiser.step()
    return theta.detach()


def _hessian(theta: Any, x: Any, weight: Any, goal: Any) -> Matrix:
    """Hessian of the mean loss, by Hessian-vector products in blocks of directions; (p, p)."""
    import torch
    from torch.func import grad, jvp, vmap

    slope = grad(_loss)

    def product(v: Any) -> Any:
        return jvp(lambda w: slope(w, x, weight, goal), (theta,), (v,))[1]

    directions = torch.split(torch.eye(len(theta), dtype=torch.float64), 64)
    blocks = [vmap(product)(v) for v in directions]
    hessian = np.nan_to_num(torch.cat(blocks).numpy())  # without rows the mean is NaN
    return np.asarray(0.5 * (hessian + hessian.T))


def _gradients(theta: Any, x: Matrix) -> Matrix:
    """grad_theta g / scale at points, shape (n, p), by the chain rule."""
    w1, b1, w2, b2, w3, _ = _layers(theta.numpy(), x.shape[1])
    first = np.tanh(x @ w1 + b1)
    second = np.tanh(first @ w2 + b2)
    at_second = (1 - second**2) * w3
    at_first = (1 - first**2) * (at_second @ w2.T)
    parts = [_outer(x, at_first), at_first, _outer(first, at_second), at_second, second]
    return np.hstack([*parts, np.ones((len(x), 1))])


def _outer(a: Matrix, b: Matrix) -> Matrix:
    """The outer product of each pair of rows, flattened; also works without rows."""
    return (a[:, :, None] * b[:, None, :]).reshape(len(a), a.shape[1] * b.shape[1])
