"""Counts, histograms, Gram matrices, and cross moments, for regressions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from privcausal.features import functions
from privcausal.features.design import Rows
from privcausal.features.functions import Features
from privcausal.request.schema import Interval, Levels, Schema
from privcausal.typing import Integers, Matrix, Neighbors, Singles, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.exit import ONE_FACTOR, TWO_FACTOR, Mechanism, grid_scale, on_grid
from privcausal.vault.queries import sums
from privcausal.vault.queries.sums import HistogramQuery, symmetric, triangle_weights
from privcausal.vault.transforms import Outcome, RegressionRow, Transform

PRODUCT_UNIT = float(1 << TWO_FACTOR)


def grid_rows(features: Features, rows: Rows, weight: Vector, cut: float | None = None) -> Matrix:
    """weight phi on an integer grid, with sum of squares always <= 4^TWO_FACTOR, shape (n, p).

    ||weight phi|| is at most `cut`, by default the features' own. Rounding to nearest changes a row
    by at most sqrt(p)/2, and the scale leaves room for this change. Therefore the integer check
    fails only on a fault. Such a row counts as zero, since an exception would depend on the data.
    The function works column by column, so that each column stays in cache.
    """
    factor = weight * (row_scale(features.size) / (features.cut if cut is None else cut))
    ints = rows.matrix(features.size, np.float64)
    for column, out in zip(functions.columns_of(features, rows), ints.T, strict=True):
        np.rint(np.multiply(column, factor, out=out), out=out)
    return surely(ints)


def surely(ints: Matrix) -> Matrix:
    """Set rows of whole numbers to zero if their norm exceeds the bound."""
    # Sums of whole numbers below 2^53 are exact in any order. Other sums are not below
    # 4^TWO_FACTOR.
    norm2 = np.einsum("ji,ji->i", ints.T, ints.T)
    fine = norm2 <= PRODUCT_UNIT * PRODUCT_UNIT  # False for NaN
    if not fine.all():
        ints[~fine] = 0.0
    return ints


def kept_rows(features: Features, rows: Rows) -> Iterator[tuple[slice, Matrix]]:
    """`grid_rows` at the features' own weights, part by part. Each part is valid until the next.

    Several cross moments share these values. Therefore rows that stay in memory keep them, as whole
    numbers of at most 2^TWO_FACTOR, which 32-bit floats hold. Features built for one release are
    not kept.

    Products of features are computed as 32-bit floats, which hold these whole numbers. `row_scale`
    leaves room for the error of the rows' norm before rounding. Therefore the integer check again
    fails only on a fault.
    """
    size, key = features.size, (features, grid_rows)
    keeps = rows.keeps_matrices and rows.by_column
    keeps = keeps and not isinstance(features, functions.RescaledFeatures)
    whole: Singles | None = rows.kept(*key) if keeps else None
    if whole is not None:
        ints = rows.matrix(size, np.float64)
        np.copyto(ints, whole)
        yield slice(0, len(rows)), ints
        return
    if keeps:  # The array is kept with the rows.
        whole = rows.space.lasting(len(rows), size) if rows.space else rows.matrix(size, np.float32)
    both = functions.Interactions | functions.RescaledFeatures
    products = features if isinstance(features, both) else None
    for at, part in products.parts(rows) if products else [(slice(0, len(rows)), rows)]:
        if products:
            values, weight = products.weighted(part)
            factor = (weight * (row_scale(size) / features.cut)).astype(np.float32)
            turned, ints = values.T, part.matrix(size, np.float64)  # Row-major in memory.
            np.rint(np.multiply(turned, factor, out=turned), out=turned)
            np.copyto(ints, values)
            ints = surely(ints)
        else:
            ints = grid_rows(features, rows, functions.row_weights(features, rows))
        if whole is not None:
            whole[at] = ints
        yield at, ints
    if keeps:
        rows.keep(key, whole)


def row_scale(size: int) -> float:
    """Integers per bound of a row of `size` entries.

    The scale leaves room for rounding, and for a norm summed in 32-bit floats. Each of `size` steps
    and a few more has a relative error of at most 2^-24. The relative error of a norm is half the
    error of its square.
    """
    return grid_scale(TWO_FACTOR, np.sqrt(size) / 2 + PRODUCT_UNIT * (size / 2 + 4) / 2**24)


class RowProducts(Mechanism):
    """Sum of u u' over complete rows (upper triangle), for vectors u of bounded norm.

    Privacy
    -------
    u is on the grid, with ||u||^2 <= 4^k in integers; `surely` checks each row. The upper
    triangle, with weights 1 on the diagonal and sqrt(2) off it, has the Frobenius norm of u u'. Two
    such matrices are PSD, so their inner product is nonnegative. Therefore replacing a row changes
    the sum by at most sqrt(2) 4^k, and adding a row changes it by at most 4^k.
    """

    @property
    @abstractmethod
    def limits(self) -> tuple[int, float]:
        """Length of u, and the largest norm of u before scaling to the grid."""

    @abstractmethod
    def rows(self, batch: Batch) -> Matrix:
        """Vectors u in whole numbers, shape (n, size)."""

    label = "moments, p = {self.limits[0]}"
    units: Vector

    def __post_init__(self) -> None:
        size, bound = self.limits
        units = np.full(size * (size + 1) // 2, (bound / row_scale(size)) ** 2)
        vars(self).update(weights=triangle_weights(size), units=units)
        self.weights.setflags(write=False)
        self.units.setflags(write=False)

    def sensitivity(self, neighbors: Neighbors) -> float:
        return (np.sqrt(2.0) if neighbors == "substitute" else 1.0) * PRODUCT_UNIT * PRODUCT_UNIT

    def integers(self, batch: Batch) -> Integers:
        u = self.rows(batch)
        if not batch.complete.all():
            u = u * batch.complete[:, None]
        # All values are whole numbers below 2^53, so the float64 product is exact in any order. The
        # two halves avoid multiplying a table by itself, which computes the whole square and is no
        # faster.
        half = (u.shape[1] + 1) // 2
        gram = np.zeros((u.shape[1],) * 2)
        gram[:half] = functions.by_rows(u[:, :half], u)
        gram[half:, half - 1 :] = functions.by_rows(u[:, half:], u[:, half - 1 :])
        return np.asarray(gram[np.triu_indices(len(gram))], np.int64)

    def matrix(self, values: Vector) -> Matrix:
        """The symmetric matrix of a release's values, shape (size, size)."""
        return symmetric(values, self.limits[0])


@dataclass(frozen=True, eq=False)
class Gram(RowProducts):
    """Sum of w r^2 phi phi' over rows: u = sqrt(w) r phi, whose norm is at most the features' cut.

    r is 1, or a row map with |r| <= 1 (the R-learner's T - e).
    """

    features: Features
    factor: Transform | None = None

    @property
    def limits(self) -> tuple[int, float]:
        return self.features.size, self.features.cut

    def rows(self, batch: Batch) -> Matrix:
        root = np.sqrt(functions.row_weights(self.features, batch.rows))
        if self.factor is not None:
            root = root * np.clip(self.factor(batch), -1.0, 1.0)
        return grid_rows(self.features, batch.rows, root)


@dataclass(frozen=True, eq=False)
class Cross(Mechanism):
    """Sum of w r phi over rows, for a target r clipped to `[-cut, cut]`; all rows or per arm.

    Privacy
    -------
    v = w phi / C has ||v||^2 <= 4^k and |r| <= 2^k in integers, so one row's vector has norm at
    most 4^k. Therefore replacing a row changes the sum by at most 2 4^k, and adding a row changes
    it by at most 4^k. With `by_arm`, the row's vector is in one of two blocks, and the same bounds
    hold.
    """

    features: Features
    target: Transform
    cut: float
    what: str
    by_arm: bool = False
    query: str = field(init=False)
    units: Vector = field(init=False)

    def __post_init__(self) -> None:
        size, (arms, by) = self.features.size, (2, " per arm") if self.by_arm else (1, "")
        unit = self.features.cut / row_scale(size) * self.cut / PRODUCT_UNIT
        vars(self).update(query=f"{self.what}, p = {size}{by}", units=np.full(size * arms, unit))

    def sensitivity(self, neighbors: Neighbors) -> float:
        return (2.0 if neighbors == "substitute" else 1.0) * PRODUCT_UNIT * PRODUCT_UNIT

    def integers(self, batch: Batch) -> Integers:
        r = on_grid(self.target(batch), self.cut, TWO_FACTOR)
        complete = batch.complete
        counted = [complete & (batch.t == a) for a in (0, 1)] if self.by_arm else [complete]
        targets = [np.where(rows, r, 0.0) for rows in counted]
        sums = np.zeros((len(targets), self.features.size))
        for at, v in kept_rows(self.features, batch.rows):
            sums += [v.T @ target[at] for target in targets]
        return sums.ravel().astype(np.int64)


BINS = 16
"""Public bins over a declared interval. Estimates from them are smooth, so few bins are enough."""


@dataclass(frozen=True, eq=False)
class Marginals(HistogramQuery, Mechanism):
    """One histogram for each of d variables: equal bins of an interval, or the levels.

    Rows with missing values add nothing.
    """

    variables: tuple[str, ...]
    schema: Schema
    parts: int = BINS
    query: str = field(init=False)
    # Number of bins of each variable. Without covariates, one cell counts the rows.
    sizes: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        many = len(self.variables)
        query = f"{many} histogram{'s' * (many > 1)}" if many else "count"
        sizes = tuple(bins(self.schema, name, self.parts) for name in self.variables) or (1,)
        vars(self).update(query=query, sizes=sizes)

    def sensitivity(self, neighbors: Neighbors) -> float:
        if not self.variables:
            return 1.0  # One cell: a complete row becomes incomplete.
        return super().sensitivity(neighbors)

    def integers(self, batch: Batch) -> Integers:
        if not self.variables:
            return np.array([np.count_nonzero(batch.complete)], np.int64)
        missing = ~batch.complete
        counts = []
        for name, size in zip(self.variables, self.sizes, strict=True):
            domain, values = self.schema[name], batch.rows.frame[name]
            if isinstance(domain, Interval):
                position = values - domain.lo
                position /= domain.width
                position *= self.parts
                np.clip(position, 0, self.parts - 1, out=position)
                # Truncation rounds down here. Two casts are faster than one.
                cell = position.astype(np.int32).astype(np.int64)
            else:
                cell = values.astype(np.int64)
                if isinstance(domain, Levels):
                    cell[cell < 0] = len(domain.labels)
            cell[missing] = size  # Beyond the last cell.
            counts.append(np.bincount(cell, minlength=size + 1)[:size])
        return np.concatenate(counts).astype(np.int64)


def bins(schema: Schema, name: str, parts: int = BINS) -> int:
    """Number of cells of a variable's histogram. For levels, the last is for undeclared labels."""
    domain = schema[name]
    if isinstance(domain, Interval):
        return parts
    return len(domain.labels) + 1 if isinstance(domain, Levels) else 2


@dataclass(frozen=True, eq=False)
class SizeHistogram(HistogramQuery, Mechanism):
    """Counts of |r| between public `edges` (ascending; the last is the bound of r)."""

    target: Transform
    edges: Vector
    what: str = "|score|"

    sizes: tuple[int, ...] = field(init=False)

    label = "histogram of {self.what}"

    def __post_init__(self) -> None:
        vars(self).update(sizes=(len(self.edges),))

    def integers(self, batch: Batch) -> Integers:
        size = np.abs(self.target(batch))
        # |r| > -1 holds for every row. NaN counts in the last cell.
        size[~batch.complete] = -1.0
        beyond = np.empty(len(size), bool)
        above = [np.count_nonzero(batch.complete)]
        for edge in self.edges[:-1].tolist():
            at_most = np.count_nonzero(np.less_equal(size, edge, out=beyond))
            above.append(len(size) - at_most)
        return -np.diff([*above, 0]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class PolynomialSums(Mechanism):
    """Sums of x phi and of the upper triangle of phi phi' by arm: the functional mechanism.

    x in [-1, 1] is the position of the outcome between its bounds. phi are polynomials of a row's
    features with |phi_j| <= 1 and sum |phi_j| <= A (Zhang et al. 2012, Algorithm 1).

    Privacy
    -------
    A complete row adds only to the entries of its arm. Its two parts have l1 norms sum |x phi_j| <=
    A, and sum over i <= j of |phi_i phi_j| = (|phi|_1^2 + |phi|_2^2) / 2 <= (A^2 + A) / 2, since
    phi_j^2 <= |phi_j|. All other rows add zero. Therefore adding a row changes the sums by at most
    A + (A^2 + A) / 2 in l1, and replacing a row changes them by at most twice that amount. The grid
    leaves room for rounding each entry.
    """

    polynomials: functions.Polynomials
    outcome: Outcome

    label = "squared loss by arm, p = {self.polynomials.size}"

    @cached_property
    def units(self) -> Vector:
        m = self.polynomials.size
        entries = m + m * (m + 1) // 2
        return np.full(2 * entries, 1.0 / grid_scale(ONE_FACTOR, 0.5 * entries))

    def sensitivity(self, neighbors: Neighbors) -> float:
        return self.l1_sensitivity(neighbors)  # An l2 norm is at most the l1 norm.

    def l1_sensitivity(self, neighbors: Neighbors) -> float:
        a, rows = self.polynomials.bound, 2.0 if neighbors == "substitute" else 1.0
        return rows * (a + 0.5 * (a * a + a)) * float(1 << ONE_FACTOR)

    def integers(self, batch: Batch) -> Integers:
        phi = self.polynomials.of(batch.rows.frame)
        x = np.clip(self.outcome(batch) / self.outcome.bound, -1.0, 1.0)[:, None]
        i, j = np.triu_indices(phi.shape[1])
        entries = np.hstack([x * phi, phi[:, i] * phi[:, j]])
        scale = grid_scale(ONE_FACTOR, 0.5 * entries.shape[1])
        rows = np.rint(entries * scale).astype(np.int64)
        arms = [rows[batch.complete & (batch.t == arm)].sum(axis=0) for arm in (0, 1)]
        return np.concatenate(arms)

    def split(self, values: Vector) -> tuple[Matrix, Matrix]:
        """Sums of x phi, shape (2, m), and of phi phi', shape (2, m, m)."""
        m, arms = self.polynomials.size, np.split(values, 2)
        grams = np.stack([symmetric(part[m:], m) for part in arms])
        return np.stack([part[:m] for part in arms]), grams


# -- moments of rows and residuals of a regression ---------------------------------------------


@dataclass(frozen=True, eq=False)
class RegressionMoments(RowProducts):
    """Sum of z z' over rows, for the vectors z of `joint`: the normal equations of a regression.

    Privacy
    -------
    z = (w u, t e) with ||w u|| <= L and t |e| <= sqrt(C^2 - ||w u||^2). Hence ||z|| <= C, as
    the `limits` state, and the rule of `RowProducts` applies.
    """

    joint: RegressionRow

    @property
    def limits(self) -> tuple[int, float]:
        return self.joint.features.size + 1, self.joint.cut

    def rows(self, batch: Batch) -> Matrix:
        weight, last = self.joint.parts(batch)
        size, bound = self.limits
        scale = row_scale(size) / bound
        out, root = batch.rows.matrix(size, np.float64), weight * scale
        phi = functions.columns_of(self.joint.features, batch.rows)
        for column, ints in zip(phi, out[:, :-1].T, strict=True):
            np.rint(np.multiply(column, root, out=ints), out=ints)
        np.rint(np.multiply(last, self.joint.scale * scale, out=out[:, -1]), out=out[:, -1])
        return surely(out)


@dataclass(frozen=True, eq=False)
class ResidualMoments(RowProducts):
    """Sum of v v' over rows: v = w u (e - w u'delta), shortened to norm `cut` (a sandwich's meat).

    Privacy
    -------
    ||v|| <= `cut`, as the `limits` state, and the rule of `RowProducts` applies.
    """

    joint: RegressionRow
    delta: Vector
    cut: float

    @property
    def limits(self) -> tuple[int, float]:
        return self.joint.features.size, self.cut

    def rows(self, batch: Batch) -> Matrix:
        weight, left = self.joint.left(batch, self.delta)
        root = weight * left
        size = np.abs(root) * np.sqrt(functions.squared_norm(batch.rows.phi(self.joint.features)))
        root *= np.minimum(1.0, self.cut / np.maximum(size, functions.TINY))
        return grid_rows(self.joint.features, batch.rows, root, self.cut)


@dataclass(frozen=True, eq=False)
class OutlierSums(sums.BlockSums):
    """Sums of w u g over rows with residuals above `at`, and over rows below -`at`.

    g = min((|r| - at) / at, 1). With u whitened columns, the two sums are the directions to which
    clipping residuals moves a regression.

    Privacy
    -------
    The rule of `BlockSums` applies, with the two signs of r as arms. A row has one sign. It adds a
    vector of norm ||w u|| g / L <= 1 to the sums of its sign, in units of L. Two rows of one sign
    differ by at most 2.
    """

    joint: RegressionRow
    at: float

    arms = 2
    label = "outliers, p = {self.joint.features.size}"

    @cached_property
    def blocks(self) -> tuple[sums.QueryBlock, ...]:
        shape, most = (self.joint.features.size,), self.joint.features.cut
        return (sums.QueryBlock(shape, 1.0, 4.0, unit=most),)

    def integers(self, batch: Batch) -> Integers:
        weight, rest, _ = self.joint.weighted(batch)
        beyond = np.minimum((np.abs(rest) - self.at) / self.at, 1.0) / self.joint.features.cut
        u = batch.rows.phi(self.joint.features)
        sums_by_sign = []
        for sign in (1, -1):
            far = np.flatnonzero(batch.complete & (sign * rest > self.at))  # false for NaN
            outliers, root = u[far], weight[far] * beyond[far]

            def columns(
                scale: float, outliers: Matrix = outliers, root: Vector = root
            ) -> Iterator[Vector]:
                yield from (column * (root * scale) for column in outliers.T)

            sums_by_sign.append(self.summed(columns, np.ones(len(far), bool)))
        return np.concatenate(sums_by_sign)
