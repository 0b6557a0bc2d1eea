"""Networks learned by differentially private stochastic gradient descent (Abadi et al. 2016)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from privcausal.features import functions
from privcausal.features.design import Design
from privcausal.typing import Integers, Mask, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.exit import ONE_FACTOR, grid_scale, on_grid
from privcausal.vault.guard import Opaque
from privcausal.vault.queries.sums import UNIT
from privcausal.vault.transforms import Transform

# Private boosting of step functions: rounds of noisy sums of clipped residuals (Nori et al. 2021).
#
# Each round clips every row's residual under the shapes so far and sums it within a few leaves of
# every axis; leaves are unions of public bins, drawn without the rows. The shapes move by a small
# step towards the noisy mean residual of each leaf.


@dataclass(eq=False, repr=False, slots=True)
class Boosted(Opaque):
    """One batch of rows during boosting; `shape` is the value of the shapes so far.

    A cell is the arm with the bins of two axes, so that rows are read half as often.
    """

    cells: list[Integers]
    arm: Integers
    target: Vector
    factor: Vector | None
    complete: Vector
    shape: Vector


@dataclass(frozen=True, eq=False)
class Shapes:
    """What rounds of noisy sums have made so far; public.

    Attributes
    ----------
    constant : Vector, shape (arms,)
    scores : Matrix, shape (arms, M)
        Mean zero on each axis, weighted by the bins' weights.
    """

    constant: Vector
    scores: Matrix


@dataclass(frozen=True, eq=False, kw_only=True)
class BoostedRegression:
    """What is boosted on what.

    Attributes
    ----------
    target, factor : Transform
        z and a of a row's residual a (z - a f); without a factor a is one.
    bound : float
        Residuals are cut to it; public, or from released numbers.
    what : str
        The query's name in the budget.
    logistic : bool
        The residual is z - expit(f).
    by_arm : bool
        Each arm has shapes of its own.
    with_treatment : bool
        The treatment is one more axis, of two bins.
    """

    target: Transform
    bound: float
    what: str
    factor: Transform | None = None
    logistic: bool = False
    by_arm: bool = False
    with_treatment: bool = False


@dataclass(frozen=True, eq=False)
class Boosting(BoostedRegression):
    """Shapes f(x) = constant + sum of f_j(bin_j(x)) that minimise a loss, one sum a round.

    The residual of a row is r = a (z - a f) with a target z and a factor a (the R-learner's T - e),
    or z - expit(f) with `logistic`; clipped to [-bound, bound] and put on the grid of 2^-k.

    Attributes
    ----------
    weight : Matrix
        Public estimate of the sum of a^2 (logistic: of e (1 - e)) over each bin's rows, shape
        (arms, M). It sets the length of steps and nothing else.
    leaf : Integers
        Number of each bin's leaf on its axis in every round, shape (rounds, M); public.
    rate : float
        Step length.

    Privacy
    -------
    Take p axes. In one round a complete row adds a whole number u, |u| <= 2^k, to exactly one leaf
    of each axis (with `by_arm`: of its own arm), so a vector of norm at most sqrt(p) 2^k; an
    incomplete one adds nothing. Adding a row moves the sums by at most that, replacing one by at
    most twice that. A row's vector depends on that row and on public values: bins, leaves, weights,
    and the shapes, made of earlier rounds' noisy sums. So the rounds are an adaptive composition: T
    rounds with noise of sd sigma are (T Delta^2 / (2 sigma^2))-zCDP (Bun and Steinke 2016, Lemma
    2.3), as one Gaussian query of sensitivity sqrt(T) Delta is.
    """

    bins: functions.Bins
    weight: Matrix
    leaf: Integers
    rate: float

    name = "discrete Gaussian"

    @property
    def rounds(self) -> int:
        return len(self.leaf)

    @property
    def query(self) -> str:
        return f"{self.what}, {self.rounds} rounds, {self.axes} shapes"

    @property
    def axes(self) -> int:
        """Axes that a row has a leaf on; one without covariates, for the constant."""
        return max(len(self.bins.axes) + int(self.with_treatment), 1)

    @property
    def arms(self) -> int:
        return 2 if self.by_arm else 1

    @cached_property
    def start(self) -> Integers:
        """Each axis's first bin, and the number of bins, shape (axes + 1,)."""
        start = self.bins.start
        if self.with_treatment:
            return np.append(start, start[-1] + 2)
        return start if len(start) > 1 else np.array([0, 1], np.int64)

    @cached_property
    def leaves(self) -> int:
        return int(self.leaf.max(initial=0)) + 1

    @property
    def unit(self) -> float:
        """Residual per integer."""
        return self.bound / UNIT

    @property
    def width(self) -> int:
        """Numbers a round releases."""
        return self.arms * self.axes * self.leaves

    @property
    def shape(self) -> tuple[int, int]:
        """(arms, M)."""
        return self.arms, int(self.start[-1])

    def sensitivity(self, neighbors: Neighbors, *, whole: bool = False) -> float:
        """Largest l2 change of one round's integers when one row is replaced or added.

        With `whole`, that of the one query that costs as much as all rounds.
        """
        size = self.axes * (self.rounds if whole else 1)
        return (2.0 if neighbors == "substitute" else 1.0) * float(np.sqrt(size)) * UNIT

    # -- rows --------------------------------------------------------------------------------

    def learn(
        self,
        batches: Iterable[Batch],
        add_noise: Callable[[Integers], Vector],
        told: Callable[[float], None],
    ) -> Vector:
        """Noisy sums of all rounds, shape (rounds * width,); each is answered before the next."""
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
            told(len(answers) / self.rounds)
        return np.concatenate(answers)

    def prepare(self, batch: Batch) -> Boosted:
        """What the rounds need of a batch."""
        codes = [
            c - first for c, first in zip(self.bins.codes(batch.rows), self.start, strict=False)
        ]
        if self.with_treatment:
            codes.append(batch.t.astype(np.int64))
        codes += [np.zeros(len(batch.t), np.int64)] * (2 * len(self._pairs) - len(codes))
        arm = batch.t.astype(np.int64) * int(self.by_arm)
        cells = [
            (arm * (one.stop - one.start) + codes[2 * k]) * max(two.stop - two.start, 1)
            + codes[2 * k + 1]
            for k, (one, two) in enumerate(self._pairs)
        ]
        return Boosted(
            cells,
            arm,
            np.nan_to_num(self.target(batch)),
            None if self.factor is None else np.nan_to_num(self.factor(batch)),
            batch.complete.astype(np.float64),
            np.zeros(len(batch.t)),
        )

    @cached_property
    def _pairs(self) -> list[tuple[slice, slice]]:
        """The bins of two axes each; of an odd last one, and none."""
        bins = [slice(int(a), int(b)) for a, b in zip(self.start[:-1], self.start[1:], strict=True)]
        if len(bins) % 2:
            bins.append(slice(int(self.start[-1]), int(self.start[-1])))
        return list(zip(bins[::2], bins[1::2], strict=True))

    def integers(self, rows: Boosted) -> Integers:
        """Exact sums of the residuals within each bin under the rows' shapes, shape (arms, M)."""
        fitted = functions.expit(rows.shape) if self.logistic else rows.shape
        if rows.factor is None:
            residual = rows.target - fitted
        else:
            residual = rows.factor * (rows.target - rows.factor * fitted)
        whole = on_grid(residual, self.bound, ONE_FACTOR) * rows.complete
        out = np.empty(self.shape, np.int64)
        for cell, (one, two) in zip(rows.cells, self._pairs, strict=True):
            shape = self.arms, one.stop - one.start, max(two.stop - two.start, 1)
            # sums of whole numbers below 2^53 are exact: a batch has far less than 2^23 rows
            sums = np.bincount(cell, whole, int(np.prod(shape))).reshape(shape)
            out[:, one] = sums.sum(axis=2)
            out[:, two] = sums.sum(axis=1)[:, : two.stop - two.start]
        return out

    def advance(self, rows: Boosted, step: Shapes) -> None:
        """Add a step to the value of the shapes at each row."""
        for cell, (one, two) in zip(rows.cells, self._pairs, strict=True):
            second = step.scores[:, None, two]
            table = step.scores[:, one, None] + (second if second.size else 0.0)
            rows.shape += table.ravel()[cell]
        rows.shape += step.constant[rows.arm] if self.by_arm else step.constant[0]

    # -- public ------------------------------------------------------------------------------

    def by_leaf(self, sums: Any, number: int) -> Any:
        """Sums within bins, (arms, M), as sums within a round's leaves, (arms, axes, leaves)."""
        out = np.zeros((self.arms, self.axes * self.leaves), sums.dtype)
        at = self._axis * self.leaves + self.leaf[number]
        for arm in range(self.arms):
            np.add.at(out[arm], at, sums[arm])
        return out.reshape(self.arms, self.axes, self.leaves)

    @cached_property
    def _axis(self) -> Integers:
        """Axis of each bin."""
        return np.repeat(np.arange(self.axes), np.diff(self.start))

    @cached_property
    def _share(self) -> Matrix:
        """Weight of each bin within its axis, shape (arms, M)."""
        whole = np.add.reduceat(self.weight, self.start[:-1], axis=1)
        return np.asarray(self.weight / whole[:, self._axis])

    def path(self, noisy: Vector) -> list[Shapes]:
        """The shapes before each round and after the last; `noisy` has shape (rounds * width,)."""
        rounds = noisy.reshape(self.rounds, self.arms, self.axes, self.leaves)
        made = [Shapes(np.zeros(self.arms), np.zeros(self.shape))]
        for number, sums in enumerate(rounds):
            step = self.step(sums, number)
            made.append(Shapes(made[-1].constant + step.constant, made[-1].scores + step.scores))
        return made

    def step(self, noisy: Matrix, number: int) -> Shapes:
        """The step that a round's noisy sums (natural units) ask for.

        Each leaf moves by `rate` times its mean residual. What the leaves of an axis have in common
        goes into the constant, of which every axis has a noisy sum.
        """
        weight = self.by_leaf(self.weight, number)
        leaf = self.rate * noisy / np.maximum(weight, 1e-300)
        at = self._axis, self.leaf[number]
        scores = np.stack([move[at] for move in leaf])
        means = np.add.reduceat(self._share * scores, self.start[:-1], axis=1)
        scores -= means[:, self._axis]
        total = noisy.sum(axis=2).mean(axis=1)
        return Shapes(self.constant_rate * total / weight[:, 0].sum(axis=1), scores)

    @property
    def constant_rate(self) -> float:
        """Faster than the shapes' rate: a constant is what the rounds must find for certain."""
        return min(3.0 * self.rate, 0.5)


CLIP_UNIT = float(1 << ONE_FACTOR)
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
    grid = CLIP_UNIT

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
        learner = Adam(functions.start(self.width), self.learning_rate)
        moved, sd = self.sensitivity(neighbors) * CLIP_UNIT, self.multiplier * CLIP_UNIT
        for _ in range(self.steps):
            at = np.flatnonzero(coins(len(z), self.rate) & complete)
            exact = row_gradients(learner.weights, z[at], y[at], self.share).sum(axis=1)
            noisy = add_noise(exact, moved, sd)
            learner.step(noisy / (CLIP_UNIT * self.expected))
        told = learner.weights.copy()
        told[-functions.NETWORK_WIDTH - 1 : -1] *= (
            functions.NETWORK_WIDTH**-0.5
        )  # as `Network` writes them, without the root of 32
        return told

    def _stacked(self, batches: Sequence[Batch]) -> tuple[Matrix, Vector, Mask]:
        z = [functions.inputs(b.rows, self.design, b.t if self.with_arm else None) for b in batches]
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
