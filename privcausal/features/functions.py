"""Public functions of a row: nuisances, effects, step functions, and a small network.

The network has one hidden layer of rectified units. For each row it computes a fixed sequence of
operations that IEEE 754 rounds correctly: sums, products, quotients, comparisons, and roundings to
whole numbers. The result therefore has the same bits for any other rows, instructions and threads.
Sums over the columns of a row are loops over whole columns. NumPy's own sums and matrix products
depend on the shape, and its exponential differs between processors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from privcausal.errors import DataError
from privcausal.features import basis
from privcausal.features.design import Design
from privcausal.features.rows import FINE_BINS, Rows, fine_bins
from privcausal.typing import Integers, Matrix, Vector

# Public functions of a row's covariates: nuisances and effects made from released numbers.


Function: TypeAlias = Callable[[Rows], Vector]
"""A map from covariates to a number; calling it returns shape (n,)."""


@dataclass(frozen=True)
class Constant:
    """A constant: one number for all rows."""

    value: float

    def __call__(self, rows: Rows) -> Vector:
        return np.full(len(rows), self.value)


@dataclass(frozen=True)
class Known:
    """A value supplied with the row (a trial's propensity), clipped to declared bounds."""

    lo: float
    hi: float

    def __call__(self, rows: Rows) -> Vector:
        if rows.propensity is None:
            raise DataError("The new data must contain the column of known propensities.")
        return np.minimum(np.maximum(rows.propensity, self.lo), self.hi)


@dataclass(frozen=True, eq=False)
class Additive:
    """offset + phi(x)' coef, clipped to [lo, hi]."""

    features: basis.Features
    coef: Vector
    offset: float = 0.0
    lo: float = -np.inf
    hi: float = np.inf

    @cached_property
    def _sum(self) -> Callable[[Rows], Vector]:
        if isinstance(self.features, basis.FeatureMap):
            return self.features.total(self.coef)
        if isinstance(self.features, basis.Interactions):
            return self.features.total(np.zeros(self.features.features.size), self.coef)
        return lambda rows: basis.combine(rows.phi(self.features), self.coef)

    def __call__(self, rows: Rows) -> Vector:
        value: Vector | None = rows.kept(self)
        if value is None:
            total = rows.kept(self.features, self.coef)
            if total is None:
                total = rows.keep((self.features, self.coef), self._sum(rows))
            value = self.offset + total
            rows.keep((self,), np.clip(value, self.lo, self.hi, out=value), "pass")
        return value


@dataclass(frozen=True, eq=False)
class Extended:
    """A function plus psi(x)' coef, clipped to the function's [lo, hi] if that is additive."""

    base: Function
    features: basis.Interactions
    coef: Vector
    # The base's coefficients in the features of the products, and the rest, not clipped
    shared: Vector | None = field(init=False)
    rest: Function | float = field(init=False)
    total: basis.Extra = field(init=False)  # Of the shared coefficients and the products

    def __post_init__(self) -> None:
        base, shared = self.base, None
        rest: Function | float = base
        if type(base) is Additive and isinstance(base.features, basis.FeatureMap):
            shared, rest = base.coef, base.offset
        elif isinstance(base, Additive):
            rest = replace(base, lo=-np.inf, hi=np.inf)
        coef = np.zeros(self.features.features.size) if shared is None else shared
        vars(self).update(shared=shared, rest=rest, total=self.features.total(coef, self.coef))

    def __call__(self, rows: Rows) -> Vector:
        value: Vector | None = rows.kept(self)
        if value is None:
            key = self.shared, self.features, self.coef
            total = rows.kept(*key)
            if total is None:
                total = rows.keep(key, self.total(rows))
            value = (self.rest(rows) if callable(self.rest) else self.rest) + total
            if isinstance(self.base, Additive):
                np.clip(value, self.base.lo, self.base.hi, out=value)
            rows.keep((self,), value, "pass")
        return value

    @staticmethod
    def together(rows: Rows, functions: Sequence[Function]) -> None:
        """Compute and cache the sums of functions that share the same products."""
        new: list[tuple[Extended, tuple[object, ...]]] = []
        for f in functions:
            if isinstance(f, Extended):
                key: tuple[object, ...] = f.shared, f.features, f.coef
                if rows.by_column and rows.kept(*key) is None:
                    new.append((f, key))
        if len(new) > 1 and all(f.features is new[0][0].features for f, _ in new):
            values = basis.extras(rows, [f.total for f, _ in new])
            for (_, key), value in zip(new, values, strict=True):
                rows.keep(key, value)


@dataclass(frozen=True)
class ArmMean:
    """mu_t(x) = eta(x) + (t - e(x)) tau(x), clipped to the outcome's bounds [lo, hi].

    The mean of Y is eta = mu_0 + e tau (Nie and Wager 2021, Eq. 1). The formula is therefore exact
    wherever eta, e and tau are exact.
    """

    arm: float
    eta: Function
    e: Function
    tau: Function
    lo: float
    hi: float

    def __call__(self, rows: Rows) -> Vector:
        value: Vector | None = rows.kept(self)
        if value is None:
            Extended.together(rows, (self.e, self.eta))
            value = self.arm - self.e(rows)
            value *= self.tau(rows)
            value += self.eta(rows)
            rows.keep((self,), np.clip(value, self.lo, self.hi, out=value), "pass")
        return value


@dataclass(frozen=True)
class Mixture:
    """e(x) mu1(x) + (1 - e(x)) mu0(x): the mean outcome eta, or the X-learner's combined effect."""

    e: Function
    at_one: Function
    at_zero: Function

    def __call__(self, rows: Rows) -> Vector:
        e = self.e(rows)
        return e * self.at_one(rows) + (1.0 - e) * self.at_zero(rows)


@dataclass(frozen=True, eq=False)
class LinearFunction:
    """offset + z'coef, z the scaled columns of a design; |.| <= |offset| + sum |coef|."""

    design: Design
    coef: Vector
    offset: float

    def __call__(self, rows: Rows) -> Vector:
        scaled = rows.scaled(self.design)
        finite = scaled if self.design.plain else np.nan_to_num(scaled)
        return self.offset + basis.combine(finite, self.coef)


@dataclass(frozen=True)
class Pointwise:
    """A NumPy function of two values, such as their minimum or their difference."""

    operation: np.ufunc
    first: Function
    second: Function

    def __call__(self, rows: Rows) -> Vector:
        return np.asarray(self.operation(self.first(rows), self.second(rows)))


class Ranks(NamedTuple):
    """Cells between the `borders` of an effect, which is a function of the row to the last bit."""

    effect: Function
    borders: Vector

    @property
    def size(self) -> int:
        return len(self.borders) + 1

    def cell(self, frame: Mapping[str, Vector | Integers]) -> Integers:
        rows = Rows(frame, len(next(iter(frame.values()))))
        return np.searchsorted(self.borders, self.effect(rows))


@dataclass(frozen=True)
class NuisanceTriple:
    """e(x) = P(T = 1 | x) and the arm means mu_0(x), mu_1(x)."""

    e: Function
    mu0: Function
    mu1: Function

    def values(self, rows: Rows) -> tuple[Vector, Vector, Vector]:
        """e, mu_0 and mu_1 of the rows."""
        return self.e(rows), self.mu0(rows), self.mu1(rows)


Triples = tuple[NuisanceTriple, ...]
"""Nuisances by fold, or one triple for all rows."""


# Step functions on public bins of columns, which boosting learns.

SYNTHETIC_CELLS = 16
"""Cells of the histogram behind synthetic rows; each has FINE_BINS / SYNTHETIC_CELLS fine bins."""

LUMP = 0.04
"""Minimum share of rows in a lump's cell. Smaller lumps cannot be distinguished from noise."""


@dataclass(frozen=True, eq=False)
class TermBins:
    """The bins of one term: of a numeric column, or one for each level of a factor."""

    # Design columns: one numeric column, or the indicators of a factor's levels
    columns: tuple[int, ...]
    # Bin of each public fine bin of a numeric column, shape (FINE_BINS,). A factor has None; its
    # bin 0 is for rows with none of its levels, and its bin k for the k-th level.
    bin_of: Integers | None
    size: int  # Number of bins

    @property
    def position(self) -> Vector | None:
        """Middle of each bin on the column's scale of [-1, 1], shape (size,); None for a factor."""
        if self.bin_of is None:
            return None
        middles = (np.arange(FINE_BINS) + 0.5) * (2.0 / FINE_BINS) - 1.0
        return np.asarray(np.bincount(self.bin_of, middles) / np.bincount(self.bin_of))

    def codes(self, scaled: Matrix) -> Integers:
        """Bin of each row, shape (n,); every value has a bin."""
        if self.bin_of is not None:
            return np.asarray(self.bin_of[fine_bins(scaled[:, self.columns[0]])])
        code = np.zeros(len(scaled), np.int64)
        for k, column in enumerate(self.columns, start=1):
            code[scaled[:, column] > 0.5] = k
        return code


@dataclass(frozen=True, eq=False)
class Bins:
    """Public bins of all terms of a design, numbered consecutively over all axes."""

    design: Design
    axes: tuple[TermBins, ...]
    # Public estimate of each bin's share of the rows, shape (M,). It sums to one on each axis.
    share: Vector
    size: int = field(init=False)  # Number of bins
    start: Integers = field(init=False)  # Each axis's first bin, then their number, shape (p + 1,)

    def __post_init__(self) -> None:
        start = np.cumsum([0, *(axis.size for axis in self.axes)]).astype(np.int64)
        vars(self).update(size=int(start[-1]), start=start)

    @cached_property
    def features(self) -> basis.FeatureMap:
        """Indicators of all bins as features, except a factor's bin 0, whose shape is zero."""
        blocks: list[basis.Block] = []
        columns = self.design.columns
        for axis in self.axes:
            term = columns[axis.columns[0]].term
            if axis.bin_of is not None:
                table = np.zeros((FINE_BINS, axis.size))
                table[np.arange(FINE_BINS), axis.bin_of] = 1.0
                blocks.append(basis.Block(axis.columns[0], (1,) * axis.size, term, table=table))
            else:
                blocks += [basis.Block(j, (1,), term) for j in axis.columns]
        return basis.FeatureMap(self.design, tuple(blocks), np.inf)

    @cached_property
    def to_coef(self) -> Matrix:
        """Matrix from (constant, shapes), shape (1 + M,), to coefficients of `features`.

        The value of a factor's bin 0 is added to the constant and subtracted from its levels.
        """
        rows = [np.eye(1 + self.size)[0]]
        for k, axis in enumerate(self.axes):
            first = 1 + int(self.start[k])
            bins = np.eye(1 + self.size)[first : first + axis.size]
            if axis.bin_of is None:
                rows[0] = rows[0] + bins[0]
                rows += list(bins[1:] - bins[0])
            else:
                rows += list(bins)
        return np.array(rows)

    def restricted(self, terms: Collection[str]) -> Bins:
        """Keep only the axes of some terms."""
        columns = self.design.columns
        places = [k for k, axis in enumerate(self.axes) if columns[axis.columns[0]].term in terms]
        shares = [self.share[self.start[k] : self.start[k + 1]] for k in places]
        axes = tuple(self.axes[k] for k in places)
        return Bins(self.design, axes, np.concatenate([np.zeros(0), *shares]))

    def within(self, other: Bins) -> Integers:
        """Positions of (constant, shapes) of these bins in the order of `other`, shape (1 + M,)."""
        first = {axis: other.start[k] for k, axis in enumerate(other.axes)}
        bins = [1 + first[axis] + np.arange(axis.size) for axis in self.axes]
        return np.concatenate([[0], *bins]).astype(np.int64)

    def codes(self, rows: Rows) -> list[Integers]:
        """Bin of each row on each axis, by its number over all axes."""
        scaled = rows.scaled(self.design)
        pairs = zip(self.axes, self.start[:-1], strict=True)
        return [axis.codes(scaled) + int(first) for axis, first in pairs]


def make_bins(design: Design, rows: Rows, most: int) -> Bins:
    """About `most` bins of equal shares of the public synthetic `rows` on each numeric column."""
    scaled = rows.scaled(design)
    axes, shares = [], []
    # Columns of each axis: all indicators of a factor together, any other column alone
    groups: dict[str | int, list[int]] = {}
    for j, column in enumerate(design.columns):
        groups.setdefault(column.term if column.kind == "indicator" else j, []).append(j)
    for columns in map(tuple, groups.values()):
        if design.columns[columns[0]].kind == "indicator":
            axis = TermBins(columns, None, 1 + len(columns))
        else:
            # Join fine bins into about `most` bins of equal shares of the rows.
            fine = np.bincount(fine_bins(scaled[:, columns[0]]), minlength=FINE_BINS)
            share = fine / max(len(scaled), 1)
            # Lump of each fine bin, numbered from 1; 0 means no lump. A lump is a cell of the
            # released histogram with most of the rows in its neighborhood. Such a cell holds many
            # rows of one value, for example 0 or 1 of a 0/1 column. The position of that value in
            # the cell is unknown, and smoothing may have moved an unknown amount to the next cell.
            # A border there could make a bin that seems to have rows but is empty.
            cells = np.pad(share.reshape(SYNTHETIC_CELLS, -1).sum(axis=1), 2)
            center, nearest = cells[2:-2], np.maximum(cells[1:-3], cells[3:-1])
            second = np.maximum(cells[:-4], cells[4:])
            alone = (center > LUMP) & (nearest < 0.6 * center) & (second < 0.15 * center)
            lumps = np.zeros(SYNTHETIC_CELLS, np.int64)
            for number, cell in enumerate(np.flatnonzero(alone), start=1):
                lumps[max(cell - 1, 0) : cell + 2] = number
            lump = np.repeat(lumps, FINE_BINS // SYNTHETIC_CELLS)
            # Mix with the uniform distribution, so that an empty stretch of the domain is not one
            # bin.
            share = 0.9 * share + 0.1 / FINE_BINS
            middle = np.cumsum(share) - 0.5 * share
            place = np.minimum(np.floor(middle * most), most - 1).astype(np.int64)
            border = np.r_[True, (np.diff(place) > 0) & ((lump[1:] == 0) | (lump[:-1] == 0))]
            border[1:] |= lump[1:] != lump[:-1]
            bin_of = np.cumsum(border) - 1
            axis = TermBins(columns, bin_of.astype(np.int64), int(bin_of[-1]) + 1)
        counts = np.bincount(axis.codes(scaled), minlength=axis.size).astype(np.float64)
        axes.append(axis)
        shares.append((counts + 0.5) / (counts + 0.5).sum())
    return Bins(design, tuple(axes), np.concatenate([np.zeros(0), *shares]))


@dataclass(frozen=True, eq=False)
class Steps(Additive):
    """offset + sum of step functions, passed through 1 / (1 + e^-z) if `logistic`."""

    features: basis.FeatureMap
    logistic: bool = False

    @cached_property
    def _whole(self) -> basis.Sum:
        """The sum including the offset, which is added first."""
        total = self.features.total(self.coef)
        return replace(total, constant=self.offset + total.constant)

    def __call__(self, rows: Rows) -> Vector:
        value = self._whole(rows)
        if self.logistic:
            value = expit(value)
        return np.asarray(np.minimum(np.maximum(value, self.lo), self.hi))


def expit(z: Vector) -> Vector:
    """1 / (1 + e^-z), without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * z)))


@dataclass(frozen=True)
class Family:
    """Outcomes with a canonical link: the mean mu has logit(mu) = eta, or log(mu) = eta.

    eta is clipped to [`lo`, `hi`]. V = d mu / d eta is the variance of an outcome, up to a factor.
    Weights of rows are V, but at least `least`.
    """

    name: Literal["logit", "poisson"]
    lo: float = -np.inf
    hi: float = np.inf
    least: float = 0.0

    def mean(self, eta: Vector) -> Vector:
        eta = np.clip(eta, self.lo, self.hi)
        return expit(eta) if self.name == "logit" else np.exp(eta)

    def variance(self, mean: Vector) -> Vector:
        return mean * (1 - mean) if self.name == "logit" else mean

    def weight(self, mean: Vector) -> Vector:
        return np.maximum(self.variance(mean), self.least)

    @property
    def most(self) -> float:
        """Largest weight."""
        return 0.25 if self.name == "logit" else float(np.exp(self.hi))


NETWORK_WIDTH = 32
"""Number of hidden units. It must be a power of two for `folded`."""

_LN2 = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""log 2 in two parts. The first is short enough that its product with a small integer is exact."""

_EXP = [1 / math.factorial(k) for k in range(13, -1, -1)]
"""1/13!, ..., 1/1!, 1/0!. The next term is below 2^-57 for |r| <= log(2) / 2."""


@dataclass(frozen=True, eq=False)
class Network:
    """A network of one hidden layer, offset + gain f(z), clipped to [lo, hi].

    f = w2' max(0, W1 z + b1) + b2, or sigmoid(f) for a share. z are the scaled design columns,
    followed by `arm` unless it is None.
    """

    design: Design
    weights: Vector  # W1 (32 x q, by rows), b1, w2, b2
    lo: float
    hi: float
    offset: float = 0.0
    gain: float = 1.0
    arm: float | None = None
    share: bool = False  # Whether f is passed through the logistic function

    def __call__(self, rows: Rows) -> Vector:
        z = inputs(rows, self.design, self.arm)
        w1, b1, w2, b2 = split(self.weights, z.shape[1])
        value = folded(w2[:, None] * np.maximum(before(w1, b1, z), 0.0)) + b2
        if self.share:
            value = logistic(value)
        return np.clip(self.offset + self.gain * value, self.lo, self.hi)


def inputs(rows: Rows, design: Design, arm: float | Vector | None = None) -> Matrix:
    """Scaled columns, finite for every row, followed by the arm if it is given."""
    z = np.nan_to_num(rows.scaled(design))
    return z if arm is None else np.column_stack([z, np.broadcast_to(arm, len(z))])


def before(w1: Matrix, b1: Vector, z: Matrix) -> Matrix:
    """W1 z + b1 of each row, the input of the hidden units, shape (32, n)."""
    total = np.repeat(b1[:, None], len(z), axis=1)
    part = np.empty_like(total)
    for j in range(z.shape[1]):
        total += np.multiply(w1[:, j, None], z[None, :, j], out=part)
    return total


def folded(parts: Matrix) -> Vector:
    """Sums over the first axis by halves: (m, n) -> (n,). m must be a power of two."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = parts[:half] + parts[half:]
    return np.asarray(parts[0])


def logistic(f: Vector) -> Vector:
    """1 / (1 + e^-f), f clipped to [-40, 40], accurate to a few units in the last place."""
    x = -np.minimum(np.abs(f), 40.0)
    twos = np.rint(x / _LN2[0])
    r = (x - twos * _LN2[0]) - twos * _LN2[1]
    series = np.full_like(r, _EXP[0])
    for c in _EXP[1:]:
        series = series * r + c
    small = np.ldexp(series, twos.astype(np.int32))
    return np.asarray(np.where(f < 0, small, 1.0) / (1.0 + small))


def start(width: int) -> Vector:
    """Public starting weights for training, flat, drawn with a fixed seed. They are not noise.

    W1 is normal with variance 2/q, w2 is standard normal, and b1 and b2 are zero.
    """
    weights = np.random.default_rng(20_250_601).standard_normal(size(width))
    w1, b1, _, _ = split(weights, width)
    w1 *= np.sqrt(2.0 / max(width, 1))
    b1[:] = weights[-1] = 0.0
    return weights


def size(width: int) -> int:
    """Number of weights for `width` inputs."""
    return NETWORK_WIDTH * (width + 2) + 1


def split(weights: Vector, width: int) -> tuple[Matrix, Vector, Vector, float]:
    """W1, b1, w2 and b2 of flat weights."""
    ends = np.cumsum([NETWORK_WIDTH * width, NETWORK_WIDTH, NETWORK_WIDTH])
    w1, b1, w2, b2 = np.split(weights, ends)
    return w1.reshape(NETWORK_WIDTH, width), b1, w2, float(b2[0])
