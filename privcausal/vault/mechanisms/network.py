"""Networks learned by differentially private stochastic gradient descent (Abadi et al. 2016)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from privcausal.features.design import Design
from privcausal.features.networks import (
    WIDTH,
    before,
    folded,
    inputs,
    logistic,
    split,
    start,
)
from privcausal.typing import Integers, Mask, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.exit import ONE_FACTOR, grid_scale
from privcausal.vault.transforms import Transform

UNIT = float(1 << ONE_FACTOR)
"""Grid steps per clipping norm. So fine that the discrete Gaussian of sd UNIT / 4 or more is the
rounded continuous one but for a slack of no account; so coarse that int64 holds a sum."""

_CHECK = 20
"""Bits dropped of the squares of a row's whole numbers, upwards, so that int64 holds their sum."""

AddNoise = Callable[[Integers, float, float], Vector]
"""(exact sums, sensitivity, noise sd), all in grid steps, to noisy sums."""

Coins = Callable[[int, float], Mask]
"""(rows, rate) to which of them enter a step, each by a coin of its own."""


@dataclass(frozen=True, eq=False)
class PrivateNetwork:
    """Weights of a network with one layer of 32 rectified units after `steps` of Adam.

    Attributes
    ----------
    target : Transform
        What is learned, in [-bound, bound]; a treatment (bound 1/2) by logistic loss, with `share`,
        anything else divided by its bound by squared loss.
    with_arm : bool
        The treatment is an input.
    rate : float
        Public probability with which each row enters a step.
    multiplier : float
        Noise sd over the clipping norm, 1/4 or more.

    Privacy
    -------
    *Rows.* In each step every row of the part enters by a coin of its own, of a probability that is
    at most the public `rate`. Its gradient is a function of the row and the weights alone, to the
    last bit (`row_gradients`), in whole numbers of norm at most 2^30. So with the coins fixed,
    adding or removing a row moves the step's sum by at most 2^30 grid steps, replacing one by twice
    that; an incomplete row adds zero. 2^30 rows have sums of at most 2^60, which leaves noise of a
    multiplier of 2^20 some 7,000 standard deviations in int64; OpenDP's sampler stops at its ends,
    which is post-processing. The number of rows enters `rate` and is public under substitution.

    *Noise.* Were it continuous, of sd sigma = multiplier 2^30 >= 2^28 grid steps, each step would
    be the Poisson-subsampled Gaussian mechanism, and all of them together, with Adam in between,
    its adaptive composition, whose (epsilon, delta) `accounting.subsampled` bounds. Rounded it is
    post-processing of that: q + round(G) = round(q + G) for a whole q. What is drawn is the
    discrete Gaussian, which is near the rounded one: `rounding_slack` there proves how near, for
    secret coins too, and `multiplier_for_replaced` pays for it.
    """

    design: Design
    target: Transform
    share: bool
    with_arm: bool
    steps: int
    rate: float
    expected: float
    learning_rate: float
    multiplier: float
    what: str

    name = "DP-SGD"
    grid = UNIT

    @property
    def query(self) -> str:
        return f"network of the {self.what}"

    @property
    def width(self) -> int:
        return len(self.design) + self.with_arm

    def sensitivity(self, neighbors: Neighbors) -> float:
        """Of one step's sum, in clipping norms, for the same coins."""
        return 2.0 if neighbors == "substitute" else 1.0

    def train(
        self, batches: Sequence[Batch], neighbors: Neighbors, coins: Coins, add_noise: AddNoise
    ) -> Vector:
        """Weights after all steps, shape (p,)."""
        z, y, complete = self._stacked(batches)
        learner = Adam(start(self.width), self.learning_rate)
        moved, sd = self.sensitivity(neighbors) * UNIT, self.multiplier * UNIT
        for _ in range(self.steps):
            at = np.flatnonzero(coins(len(z), self.rate) & complete)
            exact = row_gradients(learner.weights, z[at], y[at], self.share).sum(axis=1)
            noisy = add_noise(exact, moved, sd)
            learner.step(noisy / (UNIT * self.expected))
        told = learner.weights.copy()
        told[-WIDTH - 1 : -1] *= WIDTH**-0.5  # as `Network` writes them, without the root of 32
        return told

    def _stacked(self, batches: Sequence[Batch]) -> tuple[Matrix, Vector, Mask]:
        z = [inputs(b.rows, self.design, b.t if self.with_arm else None) for b in batches]
        y = [np.clip(self.target(b) / self.target.bound, -1, 1) for b in batches]
        return np.concatenate(z), np.concatenate(y), np.concatenate([b.complete for b in batches])


def row_gradients(weights: Vector, z: Matrix, y: Vector, share: bool) -> Integers:
    """Each row's gradient cut to norm one, in steps of 2^-30, shape (p, n).

    The network is f = w2' h + b2, h = max(0, W1 z + b1) / sqrt(32), of which `weights` are W1 (by
    rows), b1, w2 and b2. Without the root most gradients would be longer than one, and cutting them
    all to one length makes of a probability of 0.55 one of 0.8.

    Privacy
    -------
    Column i is a function of `weights`, z[i] and y[i] alone, since every float in it is one of a
    fixed sequence of operations that IEEE 754 rounds correctly (`features.networks` says why: at a
    kink of a unit the last bit of a sum decides whether the unit counts at all).

    Its norm is at most 2^30. With d the derivative of the loss by f, and v_k the factor w2_k /
    sqrt(32) where unit k is above zero and 0 elsewhere, the gradient is d (v z', v, h, 1), whose
    squared norm d^2 (1 + sum h_k^2 + (1 + |z|^2) sum v_k^2) has only terms of one sign: in floats
    it is off by a factor of 1 +- (q + 20) 2^-52 for q inputs. So the gradient, divided by its norm
    where that is above one and multiplied by a number below 2^30, is too long by less than a grid
    step for q < 10^6; rounding p whole numbers adds sqrt(p) / 2; `grid_scale` leaves room for both.
    All the same the norm is checked, in whole numbers: each is at most 2^30 in size, so a square in
    units of 2^20, rounded up, is at most 2^40, and int64 holds the sum of 2^22 of them; where it is
    at most 2^40, the squares add up to at most 2^60. Rounding up adds p 2^20 at most to a squared
    norm, or p / 2^11 to the norm, for which there is room too: no row fails. One whose floats are
    not finite counts as zero; none is, as |z| and |y| are at most 1 and Adam's steps are bounded.
    """
    w1, b1, w2, b2 = split(weights, z.shape[1])
    n, count = len(z), len(weights)
    above = before(w1, b1, z)
    h = np.maximum(above, 0.0) * WIDTH**-0.5
    v = np.where(above > 0.0, (w2 * WIDTH**-0.5)[:, None], 0.0)
    f = folded(w2[:, None] * h) + b2
    d = logistic(f) - 0.5 * (y + 1.0) if share else f - y
    z2 = np.zeros(n)
    for j in range(z.shape[1]):
        z2 += z[:, j] * z[:, j]
    norm = np.abs(d) * np.sqrt(1.0 + folded(h * h) + (1.0 + z2) * folded(v * v))
    scale = grid_scale(ONE_FACTOR, np.sqrt(count) / 2 + count / 2.0 ** (31 - _CHECK))
    d = d * (scale / np.maximum(norm, 1.0))

    grid = np.empty((count, n))
    of_w1, of_b1, of_w2, of_b2 = np.split(grid, np.cumsum([w1.size, WIDTH, WIDTH]))
    np.multiply(v, d, out=of_b1)
    np.multiply(of_b1[:, None], z.T[None], out=of_w1.reshape(*w1.shape, n))
    np.multiply(h, d, out=of_w2)
    of_b2[0] = d
    np.clip(np.rint(grid, out=grid), -UNIT, UNIT, out=grid)
    whole = grid.astype(np.int64)
    squares = whole * whole
    squares += (1 << _CHECK) - 1
    squares >>= _CHECK
    whole *= np.isfinite(norm) & (squares.sum(axis=0) <= 1 << (2 * ONE_FACTOR - _CHECK))
    return whole


class Adam:
    """Steps by Kingma and Ba (2015) on noisy gradients, with their constants."""

    def __init__(self, weights: Vector, learning_rate: float) -> None:
        self.weights = weights
        self._rate = learning_rate
        self._mean, self._square = np.zeros_like(weights), np.zeros_like(weights)
        self._steps = 0

    def step(self, gradient: Vector) -> None:
        self._steps += 1
        self._mean = 0.9 * self._mean + 0.1 * gradient
        self._square = 0.999 * self._square + 0.001 * gradient**2
        mean = self._mean / (1 - 0.9**self._steps)
        root = np.sqrt(self._square / (1 - 0.999**self._steps))
        self.weights = self.weights - self._rate * mean / (root + 1e-8)
