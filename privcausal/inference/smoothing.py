"""Shape functions of known noise, smoothed across neighbouring bins by empirical Bayes.

Boosting is linear in its data as long as no residual is clipped. With S_t the sums over the leaves
of round t, h the bins' masses (sums of a^2 over their rows) and U_t the step that leaf sums ask
for, the shape g of an axis follows

    g <- g + U_t (S_t (h (g* - g) + e) + noise),

g* the shape that the loss is least at and e the sums of what rows differ by around it, of variance
s^2 h. So after all rounds g = D (h g* + e) + error, where D and the covariance C of the error
follow from the public leaves, the masses and the noise scale:

    D <- D + U_t S_t (I - h D),   C <- (I - U_t S_t h) C (I - U_t S_t h)' + sd^2 U_t U_t'.

Steps are divided by weights that are never near zero, so that no step is long. Where hardly a row
is, these are no masses: a bin that nobody is in says nothing of g*.

Each axis is taken alone: correlated columns change how fast the rounds converge, and not to what.
Where there are few rows for the noise, it alone moves rows' values by much of the cut, residuals
are clipped, and shapes come out smaller than this says: effects then lean towards what they are
without adjustment.

The prior of g* is a mixture of Gaussian processes along the axis, from flat to rough and from
small to large, weighted by marginal likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import block_diag, cho_factor, cho_solve, null_space

from privcausal.inference.additive import Posterior
from privcausal.typing import Integers, Matrix, Vector

REACH = 2.5
"""Positions on an axis are cut to this many standard deviations, which tames outliers."""

SIZES = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Prior sds of a shape, as shares of the target's size."""

ROUGHNESS = ((1.0, 0.0, 0.0), (1.0, 0.3, 0.0), (0.5, 1.0, 0.0), (0.5, 0.5, 0.3))
"""Prior variances of a shape's linear, smooth and rough part, up to its size."""

DOUBT = 0.3
"""Relative sd of what the rounds are thought to have left of a shape. How rows lie within a bin and
how columns go together is not known, and a small part must not be blown up by what is guessed."""

APART = (0.02, 0.1, 0.5)
"""Prior sds of the two arms' difference, as shares of the shape's own size; shared shapes."""


@dataclass(frozen=True, eq=False)
class Course:
    """What one boosting did on one axis of one arm.

    Attributes
    ----------
    raw : Vector
        The shape it ended with, shape (K,), mean zero under `weight`.
    weight : Vector
        Public weights of the bins that steps were divided by, shape (K,).
    mass : Vector
        Public estimate of h, shape (K,).
    position : Vector or None
        Place of each bin along the axis; None for a factor.
    carried, noise : Matrix
        D and C, shape (K, K).
    """

    raw: Vector
    weight: Vector
    mass: Vector
    position: Vector | None
    carried: Matrix
    noise: Matrix

    @property
    def shrunk(self) -> Matrix:
        """What the rounds made of g*: raw is this times g* and an error."""
        return self.carried * self.mass

    def error(self, dispersion: float) -> Matrix:
        """Covariance of raw around what was made of g*; `dispersion` is s^2."""
        return self.noise + dispersion * (self.carried * self.mass) @ self.carried.T


@dataclass(frozen=True, eq=False)
class Fitted:
    """Posterior law of a boosting: mean and covariance of (constant, shapes), shape (1 + M,)."""

    mean: Vector
    cov: Matrix

    def through(self, to_coef: Matrix) -> Posterior:
        """The same of coefficients made of them."""
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
        Of one leaf's sum.
    """
    size, leaves = len(weight), int(leaf.max(initial=0)) + 1
    carried, noise = np.zeros((size, size)), np.zeros((size, size))
    share = weight / weight.sum()
    for own in leaf:
        member = (own[:, None] == np.arange(leaves)).astype(np.float64)
        up = member / np.maximum(weight @ member, 1e-300)
        up = rate * (up - share @ up)
        lead = member.T * mass  # sums over the leaves
        carried = carried + up @ (member.T - lead @ carried)
        seen = lead @ noise
        move = up @ seen
        inner = seen @ lead.T + noise_sd**2 * np.eye(leaves)
        noise = noise - move - move.T + up @ inner @ up.T
    return carried, 0.5 * (noise + noise.T)


def raw_law(course: Course, dispersion: float) -> tuple[Vector, Matrix]:
    """The shape as it came, with the covariance of its error."""
    return course.raw, course.error(dispersion)


def smooth(course: Course, size: float, dispersion: float) -> tuple[Vector, Matrix]:
    """Posterior mean and covariance of g*; `size` is the target's typical size."""
    priors = [(size * s) ** 2 * kernel for s in SIZES for kernel in _kernels(course)]
    return _mixture(course.raw, course.shrunk, course.error(dispersion), priors, [course.weight])


def smooth_arms(
    first: Course, second: Course, size: float, dispersion: float, *, apart: bool
) -> tuple[Vector, Matrix]:
    """The same for both arms' shapes together, (control, treated), whose difference is smaller.

    Both are m -+ d / 2 with independent m and d (d = 0 unless `apart`), each centred under its own
    arm's weights. Where the arms differ in the column, the two centres differ, and m says by how
    much: that is what confounds, and a prior of two centred shapes would shrink it away.
    """
    pooled = _kernels(replace(first, mass=first.mass + second.mass))
    keep = block_diag(_keep(first.weight), _keep(second.weight))
    priors = [
        (size * s) ** 2 * keep @ _arms_prior(mean, 0.25 * ratio**2 * difference) @ keep.T
        for s in SIZES
        for mean in pooled
        for difference in (pooled[::2] if apart else pooled[:1])
        for ratio in (APART if apart else (0.0,))
    ]
    raw = np.r_[first.raw, second.raw]
    shrunk = block_diag(first.shrunk, second.shrunk)
    error = block_diag(first.error(dispersion), second.error(dispersion))
    return _mixture(raw, shrunk, error, priors, [first.weight, second.weight])


def _keep(weight: Vector) -> Matrix:
    """The projection that takes a shape's weighted mean off."""
    return np.asarray(np.eye(len(weight)) - weight / weight.sum())


def _arms_prior(mean: Matrix, quarter: Matrix) -> Matrix:
    """Covariance of (m - d/2, m + d/2); `quarter` is a quarter of that of d."""
    alike, unlike = mean + quarter, mean - quarter
    return np.asarray(np.block([[alike, unlike], [unlike, alike]]))


def _kernels(course: Course) -> list[Matrix]:
    """Prior covariances of unit size, centred under the masses."""
    size = len(course.mass)
    share = course.mass / course.mass.sum()
    if course.position is None:
        return [_centred(np.eye(size), share)]
    place = course.position
    mean = float(share @ place)
    sd = max(float(np.sqrt(share @ (place - mean) ** 2)), 1e-9)
    z = np.clip((place - mean) / sd, -REACH, REACH)
    gap = np.abs(z[:, None] - z)
    parts = [
        _centred(part, share)
        for part in (np.outer(z, z), np.exp(-0.5 * gap**2), np.exp(-2.0 * gap))
    ]
    return [
        sum((v * part for v, part in zip(mix, parts, strict=True)), np.zeros((size, size)))
        for mix in ROUGHNESS
    ]


def _centred(kernel: Matrix, share: Vector) -> Matrix:
    """Of mean-zero functions, with mean variance 1."""
    keep = _keep(share)
    out = keep @ kernel @ keep.T
    return np.asarray(out / max(float(share @ np.diag(out)), 1e-12))


def _mixture(
    raw: Vector, shrunk: Matrix, error: Matrix, priors: Sequence[Matrix], weights: list[Vector]
) -> tuple[Vector, Matrix]:
    """Mean and covariance of g*, over priors weighted by marginal likelihood."""
    # raw shapes have mean zero: one direction of each says nothing
    free = block_diag(*(null_space((w / w.sum())[None, :]) for w in weights))
    seen, base = free.T @ raw, free.T @ error @ free
    lead = free.T @ shrunk
    left = free.T - lead  # what the rounds are thought to have left out
    ridge = 1e-9 * max(float(np.trace(base)), 1e-300) / max(len(base), 1)
    base = base + ridge * np.eye(len(base))
    logs, means, covs = [], [], []
    for prior in priors:
        across = lead @ prior
        doubt = DOUBT**2 * left @ prior @ left.T
        factor = cho_factor(base + doubt + across @ lead.T, lower=True, check_finite=False)
        solved = cho_solve(factor, np.c_[seen, across], check_finite=False)
        logs.append(-np.log(np.diag(factor[0])).sum() - 0.5 * float(seen @ solved[:, 0]))
        means.append(across.T @ solved[:, 0])
        covs.append(prior - across.T @ solved[:, 1:])
    chance = np.exp(np.array(logs) - max(logs))
    chance /= chance.sum()
    mean = np.asarray(chance @ np.array(means))
    cov = np.zeros_like(shrunk)
    for c, own, spread in zip(chance, means, covs, strict=True):
        cov += c * (spread + np.outer(own - mean, own - mean))
    return mean, cov


def constant_law(
    raw: float, rate: float, rounds: int, noise_sd: float, weight: float, dispersion: float
) -> tuple[float, float, float]:
    """The constant as it came, the same at convergence, and its variance.

    `noise_sd` is that of one round's total.
    """
    left = (1.0 - rate) ** rounds
    kept = (rate / (2.0 - rate)) * (1.0 - left**2)
    variance = kept * (noise_sd / weight) ** 2 + dispersion / weight
    return raw, raw / (1.0 - left), variance


def assemble(constant: tuple[float, float], shapes: Sequence[tuple[Vector, Matrix]]) -> Fitted:
    """(constant, shapes) of one arm, taken to be independent between axes."""
    mean = np.concatenate([[constant[0]], *(m for m, _ in shapes)])
    return Fitted(
        mean, np.asarray(block_diag(np.full((1, 1), constant[1]), *(c for _, c in shapes)))
    )


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
    for width, (own, spread) in zip(widths, shapes, strict=True):
        at = np.r_[first : first + width, size + first : size + first + width]
        mean[at], cov[np.ix_(at, at)] = own, spread
        first += width
    return Fitted(mean, cov)
