"""Boosted shapes from noisy sums, and networks learned by DP-SGD (Abadi et al. 2016)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from privcausal.features import functions
from privcausal.features.design import Design
from privcausal.typing import Integers, Mask, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.exit import ONE_FACTOR, Named, grid_scale, on_grid
from privcausal.vault.guard import Opaque
from privcausal.vault.queries.sums import UNIT
from privcausal.vault.transforms import Transform

# Private boosting of step functions: rounds of noisy sums of clipped residuals (Nori et al. 2021).
#
# Each round clips every row's residual under the current shapes. It then sums the residuals within
# a few leaves on every axis. Leaves are unions of public bins, drawn without the rows. The shapes
# take a small step towards the noisy mean residual of each leaf.


@dataclass(eq=False, repr=False, slots=True)
class Boosted(Opaque):
    """One batch of rows during boosting. `shape` is the current value of the shapes.

    A cell combines the arm with the bins of two axes. This halves the number of passes over the
    rows.
    """

    cells: list[Integers]
    arm: Integers
    target: Vector
    factor: Vector | None
    complete: Vector
    shape: Vector


class Shapes(NamedTuple):
    """Current shapes, made from rounds of noisy sums. Public."""

    constant: Vector  # shape (arms,)
    scores: Matrix  # Mean zero on each axis, weighted by the bins' weights, shape (arms, M)


@dataclass(frozen=True, eq=False, kw_only=True)
class BoostedRegression:
    """Specification of a boosted regression.

    Attributes
    ----------
    target, factor : Transform
        z and a of a row's residual a (z - a f). Without a factor, a is one.
    bound : float
        Residuals are clipped to [-bound, bound]. Public, or from released numbers.
    what : str
        The query's name in the budget.
    logistic : bool
        The residual is z - expit(f).
    by_arm : bool
        Each arm has its own shapes.
    with_treatment : bool
        The treatment is an additional axis with two bins.
    """

    target: Transform
    bound: float
    what: str
    factor: Transform | None = None
    logistic: bool = False
    by_arm: bool = False
    with_treatment: bool = False


@dataclass(frozen=True, eq=False)
class Boosting(BoostedRegression, Named):
    """Shapes f(x) = constant + sum of f_j(bin_j(x)) that minimize a loss, with one sum per round.

    The residual of a row is r = a (z - a f) with a target z and a factor a (the R-learner's T - e).
    With `logistic`, it is z - expit(f). It is clipped to [-bound, bound] and rounded to the grid of
    2^-k.

    Attributes
    ----------
    weight : Matrix
        Public estimate of the sum of a^2 (logistic: of e (1 - e)) over each bin's rows, shape
        (arms, M). It affects only the length of steps.
    leaf : Integers
        Number of each bin's leaf on its axis in every round, shape (rounds, M); public.
    rate : float
        Step length.

    Privacy
    -------
    Take p axes. In one round, a complete row adds a whole number u, |u| <= 2^k, to exactly one leaf
    of each axis (with `by_arm`: of its own arm). This is a vector of norm at most sqrt(p) 2^k. An
    incomplete row adds zero. Therefore adding a row changes the sums by at most sqrt(p) 2^k, and
    replacing a row changes them by at most twice that amount. A row's vector depends only on that
    row and on public values: bins, leaves, weights, and the shapes, which are made of earlier
    rounds' noisy sums. Therefore the rounds are an adaptive composition. T rounds with noise of sd
    sigma are (T Delta^2 / (2 sigma^2))-zCDP (Bun and Steinke 2016, Lemma 2.3). One Gaussian query
    of sensitivity sqrt(T) Delta has the same bound.
    """

    bins: functions.Bins
    weight: Matrix
    leaf: Integers
    rate: float
    rounds: int = field(init=False)
    axes: int = field(init=False)  # With a leaf for each row; without covariates, the constant's
    leaves: int = field(init=False)  # Number for each axis
    arms: int = field(init=False)
    shape: tuple[int, int] = field(init=False)  # (arms, M)
    start: Integers = field(init=False)  # Each axis's first bin, then their number, (axes + 1,)
    axis: Integers = field(init=False)  # Axis of each bin
    # The bins of two axes each. An odd last axis is paired with an empty slice.
    pairs: list[tuple[slice, slice]] = field(init=False)
    unit: float = field(init=False)  # Residual per integer
    width: int = field(init=False)  # Number of values that a round releases
    # Step length of the constant. It exceeds `rate`: the rounds must find the constant.
    constant_rate: float = field(init=False)

    name = "discrete Gaussian"
    label = "{self.what}, {self.rounds} rounds, {self.axes} shapes"

    def __post_init__(self) -> None:
        start, arms = self.bins.start, 2 if self.by_arm else 1
        if self.with_treatment:
            start = np.append(start, start[-1] + 2)
        elif len(start) == 1:
            start = np.array([0, 1], np.int64)
        axes, leaves = len(start) - 1, int(self.leaf.max(initial=0)) + 1
        slices = [slice(a, b) for a, b in pairwise(start.tolist())]
        slices += [slice(int(start[-1]), int(start[-1]))] * (axes % 2)
        vars(self).update(
            rounds=len(self.leaf),
            axes=axes,
            leaves=leaves,
            arms=arms,
            shape=(arms, int(start[-1])),
            start=start,
            axis=np.repeat(np.arange(axes), np.diff(start)),
            pairs=list(zip(slices[::2], slices[1::2], strict=True)),
            unit=self.bound / UNIT,
            width=arms * axes * leaves,
            constant_rate=min(3.0 * self.rate, 0.5),
        )

    def sensitivity(self, neighbors: Neighbors, *, whole: bool = False) -> float:
        """Largest l2 change of one round's integers when one row is replaced or added.

        With `whole`, the sensitivity of the single query that costs as much as all rounds.
        """
        size = self.axes * (self.rounds if whole else 1)
        return (2.0 if neighbors == "substitute" else 1.0) * float(np.sqrt(size)) * UNIT

    # -- rows --------------------------------------------------------------------------------

    def learn(
        self,
        batches: Iterable[Batch],
        add_noise: Callable[[Integers], Vector],
        progress: Callable[[float], None],
    ) -> Vector:
        """Noisy sums of all rounds, shape (rounds * width,).

        Each round's sums are released before the next round starts.
        """
        rows = [self.prepare(batch) for batch in batches]
        answers = []
        for number in range(self.rounds):
            total = sum((self.integers(r) for r in rows), np.zeros(self.shape, np.int64))
            exact = self.by_leaf(total, number)
            noisy = add_noise(exact.ravel()) * self.unit
            step = self.step(noisy.reshape(exact.shape), number)
            for batch in rows:
                self.advance(batch, step)
            answers.append(noisy)
            progress(len(answers) / self.rounds)
        return np.concatenate(answers)

    def prepare(self, batch: Batch) -> Boosted:
        """Values of a batch that the rounds need."""
        codes = [
            c - first for c, first in zip(self.bins.codes(batch.rows), self.start, strict=False)
        ]
        if self.with_treatment:
            codes.append(batch.t.astype(np.int64))
        codes += [np.zeros(len(batch.t), np.int64)] * (2 * len(self.pairs) - len(codes))
        arm = batch.t.astype(np.int64) * int(self.by_arm)
        cells = [
            (arm * (left.stop - left.start) + codes[2 * k]) * max(right.stop - right.start, 1)
            + codes[2 * k + 1]
            for k, (left, right) in enumerate(self.pairs)
        ]
        return Boosted(
            cells=cells,
            arm=arm,
            target=np.nan_to_num(self.target(batch)),
            factor=None if self.factor is None else np.nan_to_num(self.factor(batch)),
            complete=batch.complete.astype(np.float64),
            shape=np.zeros(len(batch.t)),
        )

    def integers(self, rows: Boosted) -> Integers:
        """Exact sums of the residuals within each bin under the rows' shapes, shape (arms, M)."""
        fitted = functions.expit(rows.shape) if self.logistic else rows.shape
        if rows.factor is None:
            residual = rows.target - fitted
        else:
            residual = rows.factor * (rows.target - rows.factor * fitted)
        whole = on_grid(residual, self.bound, ONE_FACTOR) * rows.complete
        out = np.empty(self.shape, np.int64)
        for cell, (left, right) in zip(rows.cells, self.pairs, strict=True):
            shape = self.arms, left.stop - left.start, max(right.stop - right.start, 1)
            # Sums of whole numbers below 2^53 are exact. A batch has far fewer than 2^23 rows.
            sums = np.bincount(cell, whole, int(np.prod(shape))).reshape(shape)
            out[:, left] = sums.sum(axis=2)
            out[:, right] = sums.sum(axis=1)[:, : right.stop - right.start]
        return out

    def advance(self, rows: Boosted, step: Shapes) -> None:
        """Add a step to the value of the shapes at each row."""
        for cell, (left, right) in zip(rows.cells, self.pairs, strict=True):
            other = step.scores[:, None, right]
            table = step.scores[:, left, None] + (other if other.size else 0.0)
            rows.shape += table.ravel()[cell]
        rows.shape += step.constant[rows.arm] if self.by_arm else step.constant[0]

    # -- public ------------------------------------------------------------------------------

    def by_leaf(self, sums: Any, number: int) -> Any:
        """Add up sums within bins, (arms, M), to sums within a round's leaves.

        The result has shape (arms, axes, leaves).
        """
        out = np.zeros((self.arms, self.axes * self.leaves), sums.dtype)
        at = self.axis * self.leaves + self.leaf[number]
        for arm in range(self.arms):
            np.add.at(out[arm], at, sums[arm])
        return out.reshape(self.arms, self.axes, self.leaves)

    def path(self, noisy: Vector) -> list[Shapes]:
        """The shapes before each round and after the last; `noisy` has shape (rounds * width,)."""
        rounds = noisy.reshape(self.rounds, self.arms, self.axes, self.leaves)
        made = [Shapes(np.zeros(self.arms), np.zeros(self.shape))]
        for number, sums in enumerate(rounds):
            step = self.step(sums, number)
            made.append(Shapes(made[-1].constant + step.constant, made[-1].scores + step.scores))
        return made

    def step(self, noisy: Matrix, number: int) -> Shapes:
        """Step of the shapes from a round's noisy sums (natural units).

        Each leaf changes by `rate` times its mean residual. The part that all leaves of an axis
        share goes into the constant. Every axis has a noisy sum of this part.
        """
        weight = self.by_leaf(self.weight, number)
        leaf = self.rate * noisy / np.maximum(weight, 1e-300)
        at = self.axis, self.leaf[number]
        scores = np.stack([move[at] for move in leaf])
        # Weight of each bin as a share of its axis
        share = self.weight / np.add.reduceat(self.weight, self.start[:-1], axis=1)[:, self.axis]
        means = np.add.reduceat(share * scores, self.start[:-1], axis=1)
        scores -= means[:, self.axis]
        total = noisy.sum(axis=2).mean(axis=1)
        return Shapes(self.constant_rate * total / weight[:, 0].sum(axis=1), scores)


CLIP_UNIT = float(1 << ONE_FACTOR)
"""Grid steps per clipping norm.

The grid is fine enough that the discrete Gaussian of sd CLIP_UNIT / 4 or more equals the rounded
continuous Gaussian up to a negligible slack. It is coarse enough that int64 holds a sum.
"""

_CHECK = 20
"""Number of low bits dropped, rounding up, from the squares of a row's whole numbers, so that int64
holds their sum.
"""

AddNoise = Callable[[Integers, float, float], Vector]
"""Map (exact sums, sensitivity, noise sd), all in grid steps, to noisy sums."""

Coins = Callable[[int, float], Mask]
"""Map (rows, rate) to a mask of the rows in a step, each drawn independently."""


@dataclass(frozen=True, eq=False)
class PrivateNetwork(Named):
    """Weights of a network with one layer of 32 rectified units after `steps` of Adam.

    Attributes
    ----------
    target : Transform
        The learned quantity, in [-bound, bound]. With `share`, it is a treatment (bound 1/2) with
        logistic loss. Otherwise it is divided by its bound and has squared loss.
    with_arm : bool
        The treatment is an input.
    rate : float
        Public probability that a row enters a step.
    multiplier : float
        Noise sd over the clipping norm, 1/4 or more.

    Privacy
    -------
    *Rows.* In each step, every row of the part enters by its own random bit, with a probability of
    at most the public `rate`. Its gradient is a function only of the row and the weights, to the
    last bit (`row_gradients`). The gradient consists of whole numbers and has norm at most 2^30.
    Fix the random bits. Then adding or removing a row changes the step's sum by at most 2^30 grid
    steps. Replacing a row changes it by at most twice that amount. An incomplete row adds zero.
    2^30 rows have sums of at most 2^60. Noise of a multiplier of 2^20 then has a margin of about
    7,000 standard deviations in int64. OpenDP's sampler stops at the ends of int64, which is
    post-processing. The number of rows enters `rate` and is public under substitution.

    *Noise.* Suppose first that the noise is continuous, of sd sigma = multiplier 2^30 >= 2^28 grid
    steps. Then each step is the Poisson-subsampled Gaussian mechanism. All steps together, with
    Adam in between, are its adaptive composition, whose (epsilon, delta) `accounting.price` bounds.
    Rounding that noise is post-processing: q + round(G) = round(q + G) for a whole q. The actual
    noise is the discrete Gaussian, which is near the rounded noise. `rounding_slack` in that module
    proves how near, also for secret random bits. `multiplier_for_replaced` accounts for this
    difference.
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
    width: int = field(init=False)  # Number of inputs
    size: int = field(init=False)  # Number of weights

    name = "DP-SGD"
    label = "network of the {self.what}"
    grid = CLIP_UNIT

    def __post_init__(self) -> None:
        width = len(self.design) + self.with_arm
        vars(self).update(width=width, size=functions.size(width))

    def sensitivity(self, neighbors: Neighbors) -> float:
        """Sensitivity of one step's sum, in clipping norms, for fixed random bits."""
        return 2.0 if neighbors == "substitute" else 1.0

    def train(
        self, batches: Sequence[Batch], neighbors: Neighbors, coins: Coins, add_noise: AddNoise
    ) -> Vector:
        """Weights after all steps, shape (p,)."""
        z = np.concatenate(
            [functions.inputs(b.rows, self.design, b.t if self.with_arm else None) for b in batches]
        )
        bound = self.target.bound
        y = np.concatenate([np.clip(self.target(b) / bound, -1, 1) for b in batches])
        complete = np.concatenate([b.complete for b in batches])
        learner = Adam(functions.start(self.width), self.learning_rate)
        moved, sd = self.sensitivity(neighbors) * CLIP_UNIT, self.multiplier * CLIP_UNIT
        for _ in range(self.steps):
            at = np.flatnonzero(coins(len(z), self.rate) & complete)
            exact = row_gradients(learner.weights, z[at], y[at], self.share).sum(axis=1)
            noisy = add_noise(exact, moved, sd)
            learner.step(noisy / (CLIP_UNIT * self.expected))
        weights = learner.weights.copy()
        # `Network` stores them without the factor sqrt(32).
        weights[-functions.NETWORK_WIDTH - 1 : -1] *= functions.NETWORK_WIDTH**-0.5
        return weights


def row_gradients(weights: Vector, z: Matrix, y: Vector, share: bool) -> Integers:
    """Each row's gradient clipped to norm one, in steps of 2^-30, shape (p, n).

    The network is f = w2' h + b2, h = max(0, W1 z + b1) / sqrt(32). `weights` are W1 (by rows), b1,
    w2, and b2. Without the factor 1 / sqrt(32), most gradients would be longer than one. Clipping
    them all to one length turns a probability of 0.55 into 0.8.

    Privacy
    -------
    *Locality.* Column i is a function only of `weights`, z[i], and y[i]. Every float in it comes
    from a fixed sequence of operations that IEEE 754 rounds correctly. This matters, because at the
    kink of a unit the last bit of a sum decides whether the unit is active.

    *Norm.* The norm of a column is at most 2^30. Let d be the derivative of the loss by f. Let v_k
    be w2_k / sqrt(32) if unit k is above zero, and 0 otherwise. The gradient is d (v z', v, h, 1),
    with squared norm d^2 (1 + sum h_k^2 + (1 + |z|^2) sum v_k^2). All its terms have one sign, so
    in floats it is off by a factor of 1 +- (q + 20) 2^-52 for q inputs. The gradient is divided by
    its norm if the norm is above one. It is then multiplied by a number below 2^30. The result is
    too long by less than a grid step for q < 10^6. Rounding p whole numbers adds sqrt(p) / 2.
    `grid_scale` leaves room for both errors.

    *Check.* The norm is checked all the same, in whole numbers. Each number is at most 2^30 in
    size. Therefore its square in units of 2^20, rounded up, is at most 2^40, and int64 holds the
    sum of 2^22 such squares. If the sum is at most 2^40, the squares add up to at most 2^60.
    Rounding up adds at most p 2^20 to a squared norm, or p / 2^11 to the norm. The scale has room
    for this too, so no row fails. A row whose floats are not finite would count as zero. No such
    row occurs, since |z| and |y| are at most 1 and Adam's steps are bounded.
    """
    w1, b1, w2, b2 = functions.split(weights, z.shape[1])
    n, count = len(z), len(weights)
    above = functions.before(w1, b1, z)
    h = np.maximum(above, 0.0) * functions.NETWORK_WIDTH**-0.5
    v = np.where(above > 0.0, (w2 * functions.NETWORK_WIDTH**-0.5)[:, None], 0.0)
    f = functions.folded(w2[:, None] * h) + b2
    d = functions.logistic(f) - 0.5 * (y + 1.0) if share else f - y
    z2 = np.zeros(n)
    for j in range(z.shape[1]):
        z2 += z[:, j] * z[:, j]
    norm = np.abs(d) * np.sqrt(1.0 + functions.folded(h * h) + (1.0 + z2) * functions.folded(v * v))
    scale = grid_scale(ONE_FACTOR, np.sqrt(count) / 2 + count / 2.0 ** (31 - _CHECK))
    d = d * (scale / np.maximum(norm, 1.0))

    grid = np.empty((count, n))
    of_w1, of_b1, of_w2, of_b2 = np.split(
        grid, np.cumsum([w1.size, functions.NETWORK_WIDTH, functions.NETWORK_WIDTH])
    )
    np.multiply(v, d, out=of_b1)
    np.multiply(of_b1[:, None], z.T[None], out=of_w1.reshape(*w1.shape, n))
    np.multiply(h, d, out=of_w2)
    of_b2[0] = d
    np.clip(np.rint(grid, out=grid), -CLIP_UNIT, CLIP_UNIT, out=grid)
    whole = grid.astype(np.int64)
    squares = whole * whole
    squares += (1 << _CHECK) - 1
    squares >>= _CHECK
    whole *= np.isfinite(norm) & (squares.sum(axis=0) <= 1 << (2 * ONE_FACTOR - _CHECK))
    return whole


class Adam:
    """Adam steps (Kingma and Ba 2015) on noisy gradients, with the paper's constants."""

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
