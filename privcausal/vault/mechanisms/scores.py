"""Sums of cut scores and of outcomes by arm: what average effects need of the rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcausal.features.basis import squared_norm
from privcausal.features.design import Design
from privcausal.features.rows import Features
from privcausal.request.schema import Interval
from privcausal.typing import Integers, Mask, Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.exit import ONE_FACTOR, Mechanism, grid_scale
from privcausal.vault.mechanisms.moments import symmetric, triangle_weights
from privcausal.vault.transforms import Transform

UNIT = float(1 << ONE_FACTOR)


@dataclass(frozen=True, eq=False)
class Regressors:
    """The small vector (a, g): a = (1, alpha z) with z scaled design columns, g group indicators.

    alpha = 1/sqrt(largest ||z||^2), so ||a||^2 <= 2 for any number of columns. `group_sets` is the
    largest number of groups a row is in.
    """

    design: Design
    groups: int
    group_sets: int

    @cached_property
    def width(self) -> int:
        return 1 + len(self.design.columns)

    @cached_property
    def alpha(self) -> float:
        columns = self.design.columns
        factors = {c.term for c in columns if c.kind == "indicator"}
        free = sum(c.kind != "indicator" for c in columns)
        return float(1.0 / np.sqrt(max(free + len(factors), 1)))

    @property
    def norm2(self) -> float:
        """Largest ||a||^2."""
        return 2.0 if self.width > 1 else 1.0

    def a(self, batch: Batch) -> Matrix:
        z = batch.rows.scaled(self.design)
        out = np.empty((len(z), self.width), order="F")
        out[:, 0] = 1.0
        np.multiply(z, self.alpha, out=out[:, 1:])
        if not self.design.plain:
            out[np.isnan(out)] = 0.0
        return out


def cut_share(values: Vector, bound: float, least: float) -> Vector:
    """values / bound, cut to [least, 1]; NaN is 0."""
    out = values / bound
    out[np.isnan(out)] = 0.0
    return np.clip(out, least, 1.0, out=out)


Columns = Callable[[float], Iterator[Vector]]
"""From a scale to the scaled coordinates of the rows' vectors, each valid until the next."""


def grid_sum(
    columns: Columns, weights: Vector, norm: float, counted: Mask, fine: Mask | None = None
) -> Integers:
    """Exact integer sum of `counted` rows whose weighted norm is at most `norm`.

    A row that fails the check of its norm in integers (a fault) counts zero. A mechanism that has
    checked the factors of its products says by `fine` which rows passed: a row whose norm is at
    most `norm` before rounding passes, by `sum_scale`, and its products need no check.

    Sums of floats are exact here: no entry is above 2^30 norm / weight, and with blocks of 2^15
    rows there is room below 2^53 for a norm of 200 times a weight.
    """
    scale, rows = sum_scale(weights, norm), counted.astype(np.float64)
    ints = np.empty(len(rows))
    # sums of squares by weight
    squares = {} if fine is not None else {w: np.zeros(len(rows)) for w in weights.tolist()}
    sums = np.empty(len(weights))
    for k, (column, weight) in enumerate(zip(columns(scale), weights.tolist(), strict=True)):
        np.rint(column, out=ints)
        sums[k] = rows @ ints
        if fine is None:
            squares[weight] += np.multiply(ints, ints, out=ints)
    if fine is None:
        norm2 = sum((weight**2 * square for weight, square in squares.items()), np.zeros(len(rows)))
        fine = norm2 <= (norm * UNIT) ** 2  # False for NaN
    if not fine.all():
        for k, column in enumerate(columns(scale)):
            sums[k] = rows @ np.where(fine, np.rint(column), 0.0)
    return sums.astype(np.int64)


def sum_scale(weights: Vector, norm: float) -> float:
    """Integers per unit of a row of weighted norm at most `norm`.

    Rounding moves a row by at most r/2 in the weighted norm, r = ||weights||, and the difference of
    two rows by at most r. With r / norm taken off, one row stays within 2^k norm, and two differ by
    at most 2^k Delta wherever Delta >= norm bounds that before rounding. (Outer products are
    rounded entry by entry and need no longer be PSD: this pays for it.)
    """
    return grid_scale(ONE_FACTOR, float(np.sqrt(squared_norm(weights[None, :])[0])) / norm)


MASS_COST = 0.2
"""Extra squared sensitivity paid for the masses: a tenth more noise on the scores."""


class ScoresAndMasses(Mechanism):
    """Sums of two blocks of each complete row: scores, and all else with the weight `beta`.

    Privacy
    -------
    A subclass proves three bounds. Scores: a row has norm at most C, so two rows differ by at most
    2C. All else: a row has norm at most S, and two complete rows differ by at most D. So replacing
    a complete row by another moves the sums by at most the root of 4 C^2 + beta^2 D^2; replacing it
    by an incomplete one, or adding it, by the root of C^2 + beta^2 S^2. Substitution may be either:
    the larger of the two.
    """

    neighbors: Neighbors

    @property
    def query(self) -> str:
        return "sums of scores"

    @property
    @abstractmethod
    def _c2(self) -> float:
        """C^2."""

    @property
    @abstractmethod
    def _s2(self) -> float:
        """S^2."""

    @property
    @abstractmethod
    def _d2(self) -> float:
        """D^2."""

    @cached_property
    def beta(self) -> float:
        """Weight of all but the scores."""
        if self.neighbors == "add_remove":
            return float(np.sqrt(MASS_COST * self._c2 / self._s2))
        return float(np.sqrt(MASS_COST * 4 * self._c2 / self._d2))

    def _norm(self, neighbors: Neighbors) -> float:
        one = self._c2 + self.beta**2 * self._s2
        if neighbors == "add_remove":
            return float(np.sqrt(one))
        return float(np.sqrt(max(one, 4 * self._c2 + self.beta**2 * self._d2)))

    def sensitivity(self, neighbors: Neighbors) -> float:
        return self._norm(neighbors) * UNIT

    @property
    def _row_norm(self) -> float:
        return self._norm("add_remove")


@dataclass(frozen=True, eq=False)
class ScoreSums(ScoresAndMasses):
    """Sums of x (a, g), of the upper triangle of a a', of q and of g, over complete rows.

    x is the score over its cut, in [-1, 1]; q in [0, 1] is the mass, the estimand's denominator
    over its bound. With `group_masses`, sums of q g replace those of g. With `slope_score`,
    products with z are of that score, over the same cut.

    Privacy
    -------
    The rule is that of `ScoresAndMasses`. Let A = ||a||^2 and m = ||g||^2 at most. Scores:
    C^2 = A + m; with `slope_score`, (x, x' alpha z, x g) has norm at most C too, since |x'| <= 1.
    All else: S^2 = A^2 + 1 + m. Two rows differ in a a' by at most sqrt(2) A (PSD matrices have
    non-negative inner product; not at all where a = 1), in q by 1, in g, or q g, which is no
    longer, by sqrt(2 m) (non-negative vectors); D^2 is the sum of squares.

    `share` holds x, x' and q in their ranges, whatever the row; A and m are checked for each row,
    by the floats that are multiplied (`_bounded`).
    """

    score: Transform
    cut: float
    mass: Transform
    regressors: Regressors
    neighbors: Neighbors
    group_masses: bool = False
    slope_score: Transform | None = None

    @cached_property
    def _upper(self) -> tuple[Integers, Integers]:
        return np.triu_indices(self.regressors.width)

    @property
    def _places(self) -> Integers:
        """Where the parts after the first begin."""
        r = self.regressors
        return np.cumsum([r.width, r.groups, len(self._upper[0]), 1])

    @property
    def _c2(self) -> float:
        return self.regressors.norm2 + self.regressors.group_sets

    @property
    def _s2(self) -> float:
        return self.regressors.norm2**2 + 1.0 + self.regressors.group_sets

    @property
    def _d2(self) -> float:
        r = self.regressors
        slopes = 0.0 if r.width == 1 else 2 * r.norm2**2
        return slopes + 1.0 + 2.0 * r.group_sets

    @property
    def weights(self) -> Vector:
        r = self.regressors
        outer = self.beta * triangle_weights(r.width)
        return np.concatenate(
            [np.ones(r.width + r.groups), outer, np.full(1 + r.groups, self.beta)]
        )

    @property
    def units(self) -> Vector:
        r, one = self.regressors, 1.0 / sum_scale(self.weights, self._row_norm)
        sizes = [r.width + r.groups, len(self._upper[0]), 1, r.groups]
        whole = self.mass.bound * one
        return np.repeat([self.cut * one, one, whole, whole if self.group_masses else one], sizes)

    def integers(self, batch: Batch) -> Integers:
        x = cut_share(self.score(batch), self.cut, -1.0)
        own = x if self.slope_score is None else cut_share(self.slope_score(batch), self.cut, -1.0)
        q = cut_share(self.mass(batch), self.mass.bound, 0.0)
        a, g = self.regressors.a(batch).T, batch.member.T
        part = np.empty(len(x))

        def columns(scale: float) -> Iterator[Vector]:
            x1, own1, q1, a1 = x * scale, own * scale, q * scale, a * scale
            yield x1
            yield from (np.multiply(z, own1, out=part) for z in a[1:])
            yield from (np.multiply(member, x1, out=part) for member in g)
            for i, j in zip(*self._upper, strict=True):
                yield a1[j] if i == 0 else np.multiply(a[i], a1[j], out=part)  # a_0 is 1
            yield q1
            for member in g:
                yield np.multiply(q1 if self.group_masses else scale, member, out=part)

        return grid_sum(
            columns, self.weights, self._row_norm, batch.complete, self._bounded(a.T, g.T)
        )

    def _bounded(self, a: Matrix, g: Matrix) -> Mask:
        """The rows with ||a||^2 <= A and ||g||^2 <= m, but for the floats' own rounding.

        That moves a product, and so the row's norm, by a share of 2^-50, for which `grid_scale`
        takes off one integer of 2^30 beyond the rounding.
        """
        # False for NaN
        inside = squared_norm(a) <= self.regressors.norm2 * (1 + 2.0**-40)
        if g.shape[1]:
            inside &= squared_norm(g) <= self.regressors.group_sets
        return inside

    def split(self, values: Vector) -> tuple[Vector, Vector, Matrix, float, Vector]:
        """Sums of x a and x g (natural units), of a a' as a matrix, of the mass and of (q) g."""
        xa, xg, upper, q, qg = np.split(values, self._places)
        return xa, xg, symmetric(upper, self.regressors.width), float(q[0]), qg


@dataclass(frozen=True, eq=False)
class VectorScores(Mechanism):
    """Sum of x v over complete rows: x a score over its cut, in [-1, 1], v a vector of features.

    Privacy
    -------
    With the features' own weight w, ||w v|| <= C, and |x| <= 1. So a row has norm at most C, which
    `grid_sum` checks in integers: adding one moves the sum by at most C, replacing one by 2 C.
    """

    score: Transform
    cut: float
    features: Features
    what: str

    @property
    def query(self) -> str:
        return f"{self.what}, p = {self.features.size}"

    @property
    def weights(self) -> Vector:
        return np.ones(self.features.size)

    def sensitivity(self, neighbors: Neighbors) -> float:
        return (2.0 if neighbors == "substitute" else 1.0) * self.features.cut * UNIT

    @property
    def units(self) -> Vector:
        return np.full(self.features.size, self.cut / sum_scale(self.weights, self.features.cut))

    def integers(self, batch: Batch) -> Integers:
        x = cut_share(self.score(batch), self.cut, -1.0)
        phi = batch.rows.phi(self.features)
        x *= self.features.weight(phi)

        def columns(scale: float) -> Iterator[Vector]:
            scaled = x * scale
            yield from (scaled * column for column in phi.T)

        return grid_sum(columns, self.weights, self.features.cut, batch.complete)


@dataclass(frozen=True, eq=False)
class ScoreSquares(Mechanism):
    """Sums of x^2, of x^2 g, and with `meat` of the upper triangle of x^2 a a'.

    Privacy
    -------
    x^2 in [0, 1]. One number moves by at most 1. With groups or meat the row's vector has norm at
    most N, N^2 = 1 + ||g||^2 (+ ||a||^4), and any two have non-negative inner product (all parts
    are non-negative or PSD), so replacing a row moves the sum by at most sqrt(2) N, adding by N.
    (With m = ||g||^2 and without meat the distance of (s, s g) and (s', s' g') is convex in s and
    s' and largest at their ends, sqrt(max(1 + m, 2 m)): the stated bound is never below it.)
    """

    score: Transform
    cut: float
    regressors: Regressors
    meat: bool = False

    @property
    def query(self) -> str:
        return "sums of squared scores"

    @cached_property
    def _upper(self) -> tuple[Integers, Integers]:
        return np.triu_indices(self.regressors.width if self.meat else 0)

    @property
    def _row_norm(self) -> float:
        r = self.regressors
        return float(np.sqrt(1.0 + r.group_sets + (r.norm2**2 if self.meat else 0.0)))

    @property
    def weights(self) -> Vector:
        outer = triangle_weights(self.regressors.width if self.meat else 0)
        return np.concatenate([np.ones(1 + self.regressors.groups), outer])

    def sensitivity(self, neighbors: Neighbors) -> float:
        alone = self.regressors.group_sets == 0 and not self.meat
        factor = np.sqrt(2.0) if neighbors == "substitute" and not alone else 1.0
        return float(factor) * self._row_norm * UNIT

    @property
    def units(self) -> Vector:
        one = self.cut**2 / sum_scale(self.weights, self._row_norm)
        return np.full(len(self.weights), one)

    def integers(self, batch: Batch) -> Integers:
        x2 = cut_share(self.score(batch), self.cut, -1.0) ** 2
        a = self.regressors.a(batch).T if self.meat else np.zeros((0, len(x2)))

        def columns(scale: float) -> Iterator[Vector]:
            scaled = x2 * scale
            yield scaled
            yield from (scaled * member for member in batch.member.T)
            yield from (scaled * a[i] * a[j] for i, j in zip(*self._upper, strict=True))

        return grid_sum(columns, self.weights, self._row_norm, batch.complete)

    def split(self, values: Vector) -> tuple[float, Vector, Matrix]:
        """Sum of the squares, by group, and the meat (0 x 0 without `meat`)."""
        groups = self.regressors.groups
        size = self.regressors.width if self.meat else 0
        return float(values[0]), values[1 : 1 + groups], symmetric(values[1 + groups :], size)


@dataclass(frozen=True, eq=False)
class ArmHistogram(Mechanism):
    """Counts of a number of each row in public cells, in an `arm` and out of it.

    The cells are (-inf, edges[0]], (edges[k], edges[k + 1]], the last of these open, and
    [edges[-1], inf). Where the number was cut to the edges, the outer cells hold what was cut.

    Privacy
    -------
    A row's cell depends on that row alone. A complete row adds one to one cell of one arm; any
    other row, or one whose number is NaN, adds nothing. So replacing a row moves the counts by at
    most sqrt(2) in l2, adding one by 1.
    """

    target: Transform
    edges: Vector
    what: str
    arm: int = 1

    @property
    def query(self) -> str:
        return f"{self.what} by arm, {self.cells} cells"

    @property
    def cells(self) -> int:
        return len(self.edges) + 1

    @property
    def units(self) -> Vector:
        return np.ones(2 * self.cells)

    def sensitivity(self, neighbors: Neighbors) -> float:
        return float(np.sqrt(2.0)) if neighbors == "substitute" else 1.0

    def integers(self, batch: Batch) -> Integers:
        value = self.target(batch)
        inner = np.searchsorted(self.edges, value, side="left")
        cell = np.where(value >= self.edges[-1], len(self.edges), inner)
        at = np.where(batch.t == self.arm, self.cells, 0) + cell
        counted = batch.complete & ~np.isnan(value)
        return np.bincount(at[counted], minlength=2 * self.cells).astype(np.int64)

    def split(self, values: Vector) -> Matrix:
        """Counts of the control and of the treated arm, shape (2, cells)."""
        return values.reshape(2, self.cells)


WEIGHTS: dict[Neighbors, dict[bool, tuple[float, float]]] = {
    "substitute": {True: (0.5, 0.5), False: (1.0, 0.0)},
    "add_remove": {True: (0.25, 0.15), False: (0.5, 0.0)},
}
"""Squared weights (beta^2, gamma^2) of counts and squares in the norm, with squares or without.

Under substitution they are free while their sum is at most 1. Where a row is added each is paid
for: the variance of a mean x is then proportional to (1 + beta^2 + gamma^2) (1 + x^2 / beta^2),
least at beta^2 = |x|, and not much larger at half or twice that.
"""


@dataclass(frozen=True, eq=False)
class ArmSums(Mechanism):
    """Sums of x, of 1 and (with `squares`) of x^2 by arm, over all its rows and in each group.

    x is Y's place in the window of the row's arm, a public interval: -1 at its lower end and
    below, 1 at its upper end and above.

    Privacy
    -------
    Let beta and gamma <= 1 be the norm's weights of counts and squares, m the largest number of
    groups a row is in. A row adds v = (x, beta, gamma x^2), squared norm at most
    S = 1 + beta^2 + gamma^2, to the entries of its arm and of each of its groups there: squared
    norm at most (1 + m) S, which is the bound for adding a row.

    Replaced by a row of the other arm, which moves other entries: at most 2 (1 + m) S. By a row of
    the same arm that shares k groups: in 1 + k places v moves to v', whose count stays, and in up
    to 2 (m - k) others one of them appears or is gone. With d = |x - x'| and |x + x'| <= 2 - d,
    |v - v'|^2 <= d^2 (1 + gamma^2 (2 - d)^2) <= 4, because gamma^2 d^2 (2 - d) <= 32/27 < 2 + d.
    Together at most 4 (1 + k) + 2 (m - k) S. So replacing a row moves the sums by at most Delta,
    Delta^2 = (1 + m) max(4, 2 S): counts and squares are free while beta^2 + gamma^2 <= 1.
    """

    windows: tuple[Interval, Interval]
    groups: int
    group_sets: int
    neighbors: Neighbors
    squares: bool = True

    @property
    def query(self) -> str:
        return "sums by arm"

    @property
    def _squared_weights(self) -> tuple[float, float]:
        return WEIGHTS[self.neighbors][self.squares]

    @property
    def _kinds(self) -> int:
        """Sums, counts, and squares where they are asked for."""
        return 3 if self.squares else 2

    @property
    def weights(self) -> Vector:
        one = np.sqrt([1.0, *self._squared_weights])[: self._kinds]
        return np.tile(np.repeat(one, 1 + self.groups), 2)

    @property
    def _half(self) -> Vector:
        """Half the width of each arm's window, shape (2,)."""
        return np.array([0.5 * w.width for w in self.windows])

    @property
    def _row_norm2(self) -> float:
        return (1 + self.group_sets) * (1.0 + sum(self._squared_weights))

    def sensitivity(self, neighbors: Neighbors) -> float:
        if neighbors == "add_remove":
            return float(np.sqrt(self._row_norm2)) * UNIT
        return float(np.sqrt(max(4.0 * (1 + self.group_sets), 2 * self._row_norm2))) * UNIT

    @property
    def units(self) -> Vector:
        one = 1.0 / sum_scale(self.weights, float(np.sqrt(self._row_norm2)))
        half = self._half
        kinds = np.stack([half, np.ones(2), half**2], axis=1)[:, : self._kinds]
        return np.repeat(kinds.ravel() * one, 1 + self.groups)

    def integers(self, batch: Batch) -> Integers:
        arm = (batch.t == 1).astype(np.int64)
        middle = np.array([w.mid for w in self.windows])
        x = np.clip((batch.y - middle[arm]) / self._half[arm], -1.0, 1.0)
        kinds = np.stack([x, np.ones_like(x), x**2], axis=1)[:, : self._kinds]
        places = np.hstack([np.ones((len(x), 1)), batch.member])
        row = (kinds[:, :, None] * places[:, None, :]).reshape(
            len(x), self._kinds * places.shape[1]
        )
        vectors = np.hstack([row * (1 - arm)[:, None], row * arm[:, None]])
        norm = float(np.sqrt(self._row_norm2))
        return grid_sum(lambda scale: iter(vectors.T * scale), self.weights, norm, batch.complete)

    def split(self, values: Vector) -> tuple[Matrix, Matrix, Matrix | None]:
        """Sums of Y - middle of the window, counts, sums of (Y - middle)^2 or None.

        In natural units; each of shape (2, 1 + groups): control and treated, all rows and groups.
        """
        found = values.reshape(2, self._kinds, 1 + self.groups)
        return found[:, 0], found[:, 1], found[:, 2] if self.squares else None
