"""Posteriors of functions under Gaussian processes: boosted shapes, and kernel regressions.

Both use released numbers only. For a kernel regression, the synthetic population gives the spectrum
of the basis. The spectrum gives the distribution of the weights, for effects drawn from a Gaussian
process of the kernel. The ridge has the least expected error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import block_diag, cho_factor, cho_solve, null_space

from privcausal.features.basis import Fourier
from privcausal.features.rows import Rows
from privcausal.inference.regression import Posterior, mixture_law
from privcausal.typing import Integers, Matrix, Vector

# -- shapes from boosting with noise of known size: raw, or smoothed by empirical Bayes --------
#
# Boosting is linear in its data as long as no residual is clipped. Let S_t be the sums over the
# leaves of round t, h the bins' masses (sums of a^2 over their rows), U_t the step computed from
# leaf sums, and f_t the constant and the shape before the step. Round t releases, for an axis,
#
#     y_t = S_t (h (f* - f_t) + e) + noise_t.
#
# The loss is least at f*. The sums of rows' deviations from f* are e, of variance s^2 h.
#
# Raw shapes add up the steps U_t y_t. They end at g = D (h g* + e) + error, where D and the
# covariance C of the error follow from the public leaves, the masses and the noise scale:
#
#     D <- D + U_t S_t (I - h D),   C <- (I - U_t S_t h) C (I - U_t S_t h)' + sd^2 U_t U_t'.
#
# Smoothed shapes use that f_t is public: adding S_t h f_t gives S_t (h f* + e) and noise that is
# new in every round. All rounds therefore measure one vector of totals, h f* + e. Least squares
# extracts more information on it than the last shape, which has half forgotten the early rounds and
# has not fully converged. The first quarter of the rounds is omitted for two reasons. Other
# columns' shapes have not yet been removed from the residuals, which matters for correlated
# columns. Residuals are also clipped most often in these
# rounds.
#
# Masses are not weights. Steps are divided by weights that are never close to zero, so that every
# step is short, but an empty bin contains no information on f*. Each axis is treated separately.
# If the rows are few for the noise, the noise alone changes rows' values by a large part of the
# clipping threshold. Residuals are then clipped, and shapes are smaller than this model predicts:
# effects lean towards their unadjusted values.
#
# The prior of a shape is a mixture of Gaussian processes along the axis, from flat to rough and
# from small to large, weighted by marginal likelihood. The difference of two arms' shapes is zero
# with substantial probability, so that an effect is constant if the data contain no information.

POSITION_SDS = 2.5
"""Positions on an axis are clipped to this many standard deviations, to limit outliers."""

SHAPE_SDS = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Prior sds of a shape, as shares of the target's size."""

ROUGHNESS = ((1.0, 0.0, 0.0), (1.0, 0.3, 0.0), (0.5, 1.0, 0.0), (0.5, 0.5, 0.3))
"""Prior variances of a shape's linear, smooth and rough part, up to its size."""

ARM_DIFFERENCES = ((0.0, 0.65), (0.1, 0.25), (0.5, 0.10))
"""Prior sds of the arms' difference, as shares of the shape's own size, and their chances."""


@dataclass(frozen=True, eq=False)
class Course:
    """Result of one boosting on one axis of one arm.

    Attributes
    ----------
    raw : Vector
        The final shape, shape (K,), of mean zero under `weight`.
    weight, mass : Vector
        Public weights that divided the steps, and estimate of h, shape (K,).
    carried, noise : Matrix
        D and C, shape (K, K).
    """

    raw: Vector
    weight: Vector
    mass: Vector
    carried: Matrix
    noise: Matrix

    def error(self, dispersion: float) -> Matrix:
        """Covariance of raw around its signal D h g*; `dispersion` is s^2."""
        return self.noise + dispersion * (self.carried * self.mass) @ self.carried.T


@dataclass(frozen=True, eq=False)
class Totals:
    """Estimate from all rounds together of the totals h f* + e on one axis of one arm.

    Attributes
    ----------
    value, noise : Vector, Matrix
        Least squares estimate, shape (K,), and the covariance of its error.
    basis : Matrix
        Orthonormal directions that the rounds measured, shape (K, r): all, unless rounds are few.
    mass : Vector
        Public estimate of h, shape (K,).
    position : Vector or None
        Position of each bin along the axis; None for a factor.
    """

    value: Vector
    noise: Matrix
    basis: Matrix
    mass: Vector
    position: Vector | None

    @property
    def free(self) -> Matrix:
        """Directions without information on the constant, shape (K, r - 1)."""
        return np.asarray(self.basis @ null_space((self.basis.T @ self.mass)[None, :]))

    def error(self, dispersion: float) -> Matrix:
        """Covariance of value around h f*; `dispersion` is s^2."""
        return self.noise + dispersion * np.diag(self.mass)


@dataclass(frozen=True, eq=False)
class Fitted:
    """Posterior distribution of a boosting: mean and covariance of (constant, shapes), (1 + M,)."""

    mean: Vector
    cov: Matrix

    def through(self, to_coef: Matrix) -> Posterior:
        """Posterior of the coefficients `to_coef` @ (constant, shapes)."""
        return Posterior(to_coef @ self.mean, to_coef @ self.cov @ to_coef.T, 0.0)


def propagate(
    leaf: Integers, weight: Vector, mass: Vector, rate: float, noise_sd: float
) -> tuple[Matrix, Matrix]:
    """D and C of one axis.

    Parameters
    ----------
    leaf : Integers
        Leaf of each bin in every round, shape (rounds, K).
    weight, mass : Vector
        Shape (K,).
    noise_sd : float
        Noise sd of one leaf's sum.
    """
    size, leaves = len(weight), int(leaf.max(initial=0)) + 1
    carried, noise = np.zeros((size, size)), np.zeros((size, size))
    share = weight / weight.sum()
    for leaves_of in leaf:
        member = (leaves_of[:, None] == np.arange(leaves)).astype(np.float64)
        up = member / np.maximum(weight @ member, 1e-300)
        up = rate * (up - share @ up)
        lead = member.T * mass  # sums over the leaves
        carried = carried + up @ (member.T - lead @ carried)
        seen = lead @ noise
        move = up @ seen
        inner = seen @ lead.T + noise_sd**2 * np.eye(leaves)
        noise = noise - move - move.T + up @ inner @ up.T
    return carried, 0.5 * (noise + noise.T)


def totals(
    leaf: Integers,
    sums: Matrix,
    before: Matrix,
    mass: Vector,
    noise_sd: float,
    position: Vector | None,
) -> Totals:
    """Totals of one axis, from the rounds after the first quarter.

    Parameters
    ----------
    leaf, sums
        Leaf of each bin, shape (rounds, K), and noisy sums of residuals in the leaves, shape
        (rounds, leaves).
    before : Matrix
        Constant and shape that a round's residuals subtract, shape (rounds, K).
    mass, position : Vector
        Shape (K,); position is None for a factor.
    noise_sd : float
        Noise sd of one leaf's sum.
    """
    used = slice(len(leaf) // 4, None)
    leaf, sums, before = leaf[used], sums[used], before[used]
    member = (leaf[:, None, :] == np.arange(sums.shape[1])[:, None]).astype(np.float64)
    seen = sums + (member @ (mass * before)[:, :, None])[:, :, 0]
    member = member.reshape(-1, len(mass))
    precision, basis = np.linalg.eigh(member.T @ member)
    measured = precision > 1e-9 * precision[-1]
    precision, basis = precision[measured], basis[:, measured]
    inverse = (basis / precision) @ basis.T
    value = inverse @ (member.T @ seen.ravel())
    return Totals(value, noise_sd**2 * inverse, basis, mass, position)


def smooth(arm: Totals, size: float, dispersion: float) -> tuple[Vector, Matrix]:
    """Posterior mean and covariance of the shape; `size` is the target's typical size."""
    kernels = _kernels(arm.mass, arm.position)
    priors = [((size * s) ** 2 * kernel, 1.0) for s in SHAPE_SDS for kernel in kernels]
    return _mixture([arm], dispersion, priors)


def smooth_arms(
    first: Totals, second: Totals, size: float, dispersion: float, *, apart: bool
) -> tuple[Vector, Matrix]:
    """`smooth` for both arms' shapes together, (control, treated), whose difference is smaller.

    Both are m -+ d / 2 with independent m and d (d = 0 unless `apart`), each centered under its own
    arm's masses. If the arms differ in the column, the two centers differ, and m determines by how
    much. This difference is confounding, which a prior of two centered shapes would shrink away.
    """
    pooled = _kernels(first.mass + second.mass, first.position)
    keep = block_diag(_keep(first.mass), _keep(second.mass))
    rough, apart_by = pooled[::2], [(np.zeros_like(pooled[0]), 1.0)]
    if apart:
        apart_by = [
            (ratio**2 * kernel, chance / len(rough))
            for ratio, chance in ARM_DIFFERENCES
            for kernel in rough
        ]
    priors = [
        ((size * s) ** 2 * keep @ np.block([[m + q, m - q], [m - q, m + q]]) @ keep.T, chance)
        for s in SHAPE_SDS
        for m in pooled
        for difference, chance in apart_by
        for q in [0.25 * difference]  # Cov(m - d/2, m + d/2) in blocks
    ]
    return _mixture([first, second], dispersion, priors)


def _keep(mass: Vector) -> Matrix:
    """The projection that subtracts a shape's mean."""
    return np.asarray(np.eye(len(mass)) - mass / mass.sum())


def _kernels(mass: Vector, place: Vector | None) -> list[Matrix]:
    """Prior covariances of unit size, centered under the masses."""
    size, share = len(mass), mass / mass.sum()
    if place is None:
        raw: tuple[Matrix, ...] = (np.eye(size),)
    else:
        mean = float(share @ place)
        sd = max(float(np.sqrt(share @ (place - mean) ** 2)), 1e-9)
        z = np.clip((place - mean) / sd, -POSITION_SDS, POSITION_SDS)
        gap = np.abs(z[:, None] - z)
        raw = (np.outer(z, z), np.exp(-0.5 * gap**2), np.exp(-2.0 * gap))
    keep, parts = _keep(share), []
    for kernel in raw:
        part = keep @ kernel @ keep.T
        parts.append(part / max(float(share @ np.diag(part)), 1e-12))
    if place is None:
        return parts
    none = np.zeros((size, size))
    return [sum((v * part for v, part in zip(mix, parts, strict=True)), none) for mix in ROUGHNESS]


def _mixture(
    arms: Sequence[Totals], dispersion: float, priors: Sequence[tuple[Matrix, float]]
) -> tuple[Vector, Matrix]:
    """Mean and covariance of the arms' shapes, over (prior, chance) and marginal likelihood."""
    free = block_diag(*(arm.free for arm in arms))
    seen = free.T @ np.concatenate([arm.value for arm in arms])
    base = free.T @ block_diag(*(arm.error(dispersion) for arm in arms)) @ free
    lead = free.T * np.concatenate([arm.mass for arm in arms])
    ridge = 1e-9 * max(float(np.trace(base)), 1e-300) / max(len(base), 1)
    base = base + ridge * np.eye(len(base))
    laws = []
    for prior, chance in priors:
        across = lead @ prior
        factor = cho_factor(base + across @ lead.T, lower=True, check_finite=False)
        solved = cho_solve(factor, np.c_[seen, across], check_finite=False)
        fit = -np.log(np.diag(factor[0])).sum() - 0.5 * float(seen @ solved[:, 0])
        cov = prior - across.T @ solved[:, 1:]
        laws.append((np.log(chance) + fit, across.T @ solved[:, 0], cov))
    return mixture_law(laws)[1:]


def constant_law(
    raw: float, rate: float, rounds: int, noise_sd: float, weight: float, dispersion: float
) -> tuple[float, float, float]:
    """The raw constant, the constant at convergence, and its variance."""
    left = (1.0 - rate) ** rounds
    gain = (rate / (2.0 - rate)) * (1.0 - left**2)
    variance = gain * (noise_sd / weight) ** 2 + dispersion / weight
    return raw, raw / (1.0 - left), variance


def assemble(constant: tuple[float, float], shapes: Sequence[tuple[Vector, Matrix]]) -> Fitted:
    """(constant, shapes) of one arm, assumed independent between axes."""
    mean = np.concatenate([[constant[0]], *(m for m, _ in shapes)])
    cov = block_diag(np.full((1, 1), constant[1]), *(c for _, c in shapes))
    return Fitted(mean, np.asarray(cov))


def assemble_arms(
    constants: Sequence[tuple[float, float]], shapes: Sequence[tuple[Vector, Matrix]]
) -> Fitted:
    """(constant, shapes) of the control arm, then of the treated one, shape (2 (1 + M),).

    `shapes` holds both arms' shapes of one axis together, shape (2 K,).
    """
    widths = [len(mean) // 2 for mean, _ in shapes]
    size = 1 + sum(widths)
    mean, cov = np.zeros(2 * size), np.zeros((2 * size, 2 * size))
    for arm, (value, variance) in enumerate(constants):
        mean[arm * size], cov[arm * size, arm * size] = value, variance
    first = 1
    for width, (shape, spread) in zip(widths, shapes, strict=True):
        at = np.r_[first : first + width, size + first : size + first + width]
        mean[at], cov[np.ix_(at, at)] = shape, spread
        first += width
    return Fitted(mean, cov)


EFFECT_SPREAD, LEFT_SPREAD = 1.0, 0.25
"""Public prior sds, relative to the outcome's residual sd: of the effect over covariates, and of
the part that a first additive effect misses."""

PULL = 1.0
"""Sd of the log of the prior sd around its public value, where it stays if data are sparse."""

_RIDGES = np.geomspace(1e-6, 1.0, 49)
"""Candidate ridges, as shares of the summed curvature of all rows."""


@dataclass(frozen=True, eq=False)
class KernelPrior:
    """Distribution of a ridge regression's weights, in directions of the population.

    The ridge is lambda. With w ~ N(0, s^2 I) and total curvature a_j along direction j, the exact
    weights are b_j w_j + N(0, sigma^2 a_j / (a_j + lambda)^2), b_j = a_j / (a_j + lambda).

    Attributes
    ----------
    values, vectors : Vector, Matrix
        Eigenvalues of E[phi phi'] over the synthetic population, and its directions.
    mass : float
        Rows times their mean weight: a = mass x values.
    residual, spread : float
        sigma^2, the pseudo-outcome's residual variance per unit of weight; and s^2.
    """

    values: Vector
    vectors: Matrix
    mass: float
    residual: float
    spread: float

    @classmethod
    def of(
        cls, features: Fourier, rows: Rows, mass: float, residual: float, spread: float
    ) -> KernelPrior:
        """The prior for the synthetic population `rows`; `spread` is in residual sds."""
        phi = rows.phi(features)
        values, vectors = np.linalg.eigh(phi.T @ phi / len(phi))
        residual = max(residual, 1e-12)
        return cls(np.maximum(values, 0.0), vectors, mass, residual, spread**2 * residual)

    def shrunken(self, ridge: float) -> tuple[Vector, Vector]:
        """b_j, and the sampling variance of exact weights."""
        a = self.mass * self.values
        return a / (a + ridge), self.residual * a / (a + ridge) ** 2

    def filter(self, ridge: float, noise_sd: float) -> Vector:
        """Share of signal in each noisy weight, in [0, 1]; 1 without noise."""
        b, sampling = self.shrunken(ridge)
        signal = np.maximum(self.spread * b**2 + sampling, 1e-300)
        return np.asarray(signal / (signal + noise_sd**2))

    def risk(self, ridge: float, noise_sd: float) -> Vector:
        """Mean squared error of each filtered weight, shape (p,)."""
        b, sampling = self.shrunken(ridge)
        f = self.filter(ridge, noise_sd)
        return np.asarray(self.spread * (1 - f * b) ** 2 + f**2 * (sampling + noise_sd**2))

    def cov(self, ridge: float, noise_sd: float) -> Matrix:
        """Second moments of the filtered weights' error, shape (p, p)."""
        cov = (self.vectors * self.risk(ridge, noise_sd)) @ self.vectors.T
        return np.asarray(0.5 * (cov + cov.T))

    def best_ridge(self, noise_sd: Callable[[float], float]) -> float:
        """lambda of least expected error over the population, given the noise at each lambda."""
        grid = max(self.mass, 1.0) * _RIDGES
        loss = [self.values @ self.risk(ridge, noise_sd(ridge)) for ridge in grid.tolist()]
        return float(grid[int(np.argmin(loss))])


def denoised(
    law: KernelPrior, weights: Vector, ridge: float, noise_sd: float
) -> tuple[Vector, Matrix]:
    """Weights with their noise shrunk, and the covariance of their error.

    The prior's s^2 is fitted by the marginal likelihood of the noisy weights, near its public
    value.
    """
    squares = (law.vectors.T @ weights) ** 2
    b, sampling = law.shrunken(ridge)
    deviances, steps = [], np.linspace(-3.0, 3.0, 61).tolist()
    for step in steps:
        variance = law.spread * np.exp(2 * step) * b**2 + sampling + noise_sd**2
        variance = np.maximum(variance, 1e-30)
        deviance = float(np.sum(np.log(variance) + squares / variance))
        deviances.append(deviance + (step / PULL) ** 2)
    best = steps[int(np.argmin(deviances))]
    law = replace(law, spread=float(law.spread * np.exp(2 * best)))
    if noise_sd > 0:
        weights = law.vectors @ (law.filter(ridge, noise_sd) * (law.vectors.T @ weights))
    return np.asarray(weights), law.cov(ridge, noise_sd)
