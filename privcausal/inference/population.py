"""A synthetic population from released marginals, with its features and Gram matrices.

Marginals come from noisy histograms. The dependence between numeric variables comes from a
Gaussian copula fitted to the noisy Gram matrix. All of it is post-processing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from scipy.linalg import eigh
from scipy.special import ndtr
from scipy.stats import chi2

from privcausal.features.design import FINE_BINS, Design, Rows, fine_bins
from privcausal.features.functions import (
    SYNTHETIC_CELLS,
    Block,
    FeatureMap,
    Features,
    Function,
    Known,
)
from privcausal.inference.cuts import score_edges
from privcausal.inference.priors import PRIORS
from privcausal.inference.ranges import UNIFORM_ODDS, visible_cells
from privcausal.inference.regression import likelihoods, signal_share
from privcausal.request.schema import Interval, Levels, Schema
from privcausal.typing import Matrix, Vector

# -- survey weights ----------------------------------------------------------------------------

WEIGHT_HALF_OCTAVES = 24
"""Bins of the weights below their upper bound, down to a 4,000th of the bound."""

HEADROOM = 2.0
"""Largest weight in use, relative to the largest detected weight: few rows have larger weights."""

LARGEST_USUAL = 2.0
"""Largest weight in the nuisances, relative to the mean weight.

The noise of the nuisances, relative to their moments, grows with this number. Larger weights count
as this weight there. This matters only if weights depend on treatment or outcome among rows with
equal covariates.
"""


@dataclass(frozen=True, eq=False)
class WeightLaw:
    """Weights of a column: uniform between neighboring `edges` (K + 1,), with chances `p` (K,)."""

    column: str
    edges: Vector
    p: Vector
    top: float  # Largest weight in use; larger weights count as this weight
    mean: float
    # E[w^2] / E[w]^2: the factor of a mean's variance, for equal variances (Kish 1965)
    design_effect: float
    positive: float  # Share of rows with weights above the first bin
    # `usual`, `usual_mean`: largest weight in the nuisances, where larger weights count as this
    # weight, and the mean of these weights relative to it
    usual: float
    usual_mean: float

    @classmethod
    def read(
        cls, column: str, counts: Vector, noise_sd: float, bound: float, most: float = LARGEST_USUAL
    ) -> WeightLaw:
        """From noisy counts in bins up to the `bound`; counts hidden by noise are dropped.

        `most` is the largest weight in the nuisances, relative to the mean.
        """
        upper = score_edges(bound, WEIGHT_HALF_OCTAVES)
        edges = np.r_[0.0, upper]
        seen = np.where(visible_cells(counts, noise_sd, 1), np.maximum(counts, 0.0), 0.0)
        if not seen.any():  # all noise: weights may be anything
            seen = np.diff(edges)
        top = min(HEADROOM * float(upper[np.flatnonzero(seen)[-1]]), float(upper[-1]))
        p, low, high = seen / seen.sum(), edges[:-1], edges[1:]
        mean = float(p @ (high + low)) / 2
        usual = min(most * mean, top)
        # mean of min(w, usual) for w uniform between low and high
        cut = np.clip(usual, low, high)
        inside = (cut - low) * (cut + low) / 2 + (high - cut) * usual
        return cls(
            column,
            edges,
            p,
            top,
            mean,
            design_effect=float(p @ (low**2 + low * high + high**2)) / 3 / mean**2,
            positive=1.0 - float(p[0]),
            usual=usual,
            usual_mean=float(p @ (inside / (high - low))) / usual,
        )


# -- the population ----------------------------------------------------------------------------

SIZE = 3000
"""Synthetic rows: a quadrature rule, coarser than data and finer than their noise."""

_PUBLIC_SEED = 20_250_711  # a public seed: the points are public

ALL_NOISE = 3.0
"""Counts of levels are all noise if their positive sum is below this many of its noise sds."""

HIDDEN = 2.0
"""Noise sds of the rows that levels may hide; undeclared labels must exceed it to be detected."""

LEAST_EIGENVALUE = 0.05
"""Least eigenvalue of a correlation matrix, so that it has a Cholesky factor despite noise."""

NARROWEST_MARGINAL, WIDEST_MARGINAL = 0.03, 0.4
"""Sds of the normal marginals, as shares of the range: half a cell, and nearly uniform."""


@dataclass(frozen=True, eq=False)
class Population:
    """Variables of a population."""

    schema: Schema
    # By variable, shape (FINE_BINS,) over its interval or (levels + 1,) over codes
    probabilities: Mapping[str, Vector]
    # Correlations of the numeric variables' normal scores, in the order of `numeric`
    correlation: Matrix
    # `count`, `count_sd`: (Noisy) number of complete rows, and an upper bound of its noise sd
    count: float
    count_sd: float = 0.0
    # Values where a column of the design jumps; see `Design`
    atoms: Mapping[str, Vector] = field(default_factory=dict)

    @property
    def numeric(self) -> tuple[str, ...]:
        return tuple(v for v in self.probabilities if isinstance(self.schema[v], Interval))

    def rows(self, known: Function | None = None, weights: WeightLaw | None = None) -> Rows:
        """`SIZE` synthetic rows. A column of propensities spreads evenly over its declared bounds.

        (Known propensities are not released. At the midpoint of the bounds, the clipping of scores
        would ignore the propensities that make scores large.) Survey `weights` are independent of
        the covariates.
        """
        scores = _normal_scores(len(self.probabilities)).copy()
        numeric = self.numeric
        if numeric:
            root = np.linalg.cholesky(self.correlation)
            scores[:, : len(numeric)] = scores[:, : len(numeric)] @ root.T
        order = [*numeric, *(v for v in self.probabilities if v not in numeric)]
        frame: dict[str, Vector] = {}
        for j, name in enumerate(order):
            p, domain = self.probabilities[name], self.schema[name]
            at = np.minimum(np.searchsorted(np.cumsum(p), ndtr(scores[:, j])), len(p) - 1)
            if isinstance(domain, Levels):  # the last code is for undeclared labels
                frame[name] = np.where(at == len(p) - 1, -1, at).astype(np.int64)
            elif not isinstance(domain, Interval):
                frame[name] = at.astype(float)
            else:
                # the value of a fine bin is its middle; atoms have half of the bins in their cell
                values = domain.lo + (np.arange(FINE_BINS) + 0.5) * (domain.width / FINE_BINS)
                atoms, width = self.atoms.get(name, np.zeros(0)), FINE_BINS // SYNTHETIC_CELLS
                place = (atoms - domain.lo) / domain.width * SYNTHETIC_CELLS
                cells = np.minimum(place.astype(np.int64), SYNTHETIC_CELLS - 1)
                for cell in np.unique(cells):
                    every_other = values[cell * width : (cell + 1) * width : 2]
                    every_other[:] = np.resize(atoms[cells == cell], len(every_other))
                frame[name] = np.asarray(values, np.float64)[at]
        even = np.arange(0.5, SIZE) * np.sqrt(5.0) % 1.0  # in an order unrelated to the covariates
        propensity = None
        if isinstance(known, Known):
            propensity = known.lo + (known.hi - known.lo) * even
        if weights is not None:
            chances = np.arange(0.5, SIZE) * np.sqrt(3.0) % 1.0
            upto = np.r_[0.0, np.cumsum(weights.p)]
            frame[weights.column] = np.interp(chances, upto, weights.edges)
        return Rows(frame, SIZE, propensity, by_column=True)


def uniform_population(schema: Schema, variables: Sequence[str], size: int | None) -> Population:
    """Independent variables, each uniform over its declared domain."""
    probabilities: dict[str, Vector] = {}
    for name in variables:
        domain = schema[name]
        if isinstance(domain, Interval):
            probabilities[name] = np.full(FINE_BINS, 1.0 / FINE_BINS)
        elif isinstance(domain, Levels):
            levels = len(domain.labels)
            probabilities[name] = np.r_[np.full(levels, 1.0 / levels), 0.0]
        else:
            probabilities[name] = np.full(2, 0.5)
    numeric = sum(isinstance(schema[name], Interval) for name in variables)
    return Population(schema, probabilities, np.eye(numeric), float(size or 1))


@lru_cache(maxsize=8)
def _normal_scores(width: int) -> Matrix:
    draws = np.random.default_rng(_PUBLIC_SEED).standard_normal((SIZE, max(width, 1)))
    return np.asarray((draws - draws.mean(0)) / draws.std(0))


MARGINAL_CENTRES, MARGINAL_SPREADS = 61, 25
"""Numbers of means and standard deviations of the normal marginals: finer than the noise."""


def interval_probabilities(counts: Vector, noise_sd: float, count: float) -> Vector:
    """Fine-bin probabilities, shape (FINE_BINS,), combined with the usual shapes of marginals.

    With few rows a histogram is mostly noise. A uniform distribution over declared bounds makes a
    column vary far more than it does. Normal distributions and the uniform are averaged by their
    likelihood. Counts beyond noise are kept, and a little mass is spread evenly.
    """
    bins, even = len(counts), PRIORS.spread_evenly
    cells = np.maximum(counts, 0.0)
    if noise_sd > 0:
        # Smooth the histogram, unless a spike, such as many zeros, is larger than the noise.
        smooth = np.convolve(np.pad(cells, 1, mode="edge"), [0.25, 0.5, 0.25], "valid")
        cells = smooth + signal_share(cells - smooth, 0.375 * noise_sd**2) * (cells - smooth)
    share = cells / cells.sum() if cells.sum() > 0 else np.full(bins, 1.0 / bins)
    mixed = np.repeat(share / (FINE_BINS // bins), FINE_BINS // bins)
    if noise_sd > 0:
        laws, likely = _usual_laws()
        expected = count * laws.reshape(len(laws), bins, -1).sum(axis=-1)
        chance = likelihoods(counts, noise_sd, expected, likely)
        chance /= chance.sum()
        normal = chance[:-1].reshape(MARGINAL_CENTRES, MARGINAL_SPREADS)
        # The spread is a normal's, and does not grow with the doubt about its mean.
        mean = np.linspace(0.0, 1.0, MARGINAL_CENTRES) @ normal.sum(axis=1)
        mean /= max(float(normal.sum()), np.finfo(float).tiny)
        law = normal.sum(axis=0) @ _normals(np.array([mean]))[0] + chance[-1] / FINE_BINS
        gap = counts - count * law.reshape(bins, -1).sum(axis=1)
        # A histogram that is all noise is kept, in part, in 5% of the cases.
        keep = signal_share(gap, chi2.isf(0.05, bins) / bins * noise_sd**2)
        mixed = (1 - keep) * law + keep * mixed
    return np.asarray((1 - even) * mixed + even / FINE_BINS)


@lru_cache(maxsize=1)
def _usual_laws() -> tuple[Matrix, Vector]:
    """Fine-bin probabilities of normal distributions and, last, the uniform; log prior weights."""
    normal = _normals(np.linspace(0.0, 1.0, MARGINAL_CENTRES)).reshape(-1, FINE_BINS)
    laws = np.r_[normal, np.full((1, FINE_BINS), 1.0 / FINE_BINS)]
    return laws, np.r_[np.zeros(len(normal)), np.log(len(normal) / UNIFORM_ODDS)]


def _normals(centres: Vector) -> Matrix:
    """Fine-bin probabilities of normal distributions, shape (centres, spreads, FINE_BINS)."""
    grid = np.arange(FINE_BINS + 1) / FINE_BINS
    spreads = np.geomspace(NARROWEST_MARGINAL, WIDEST_MARGINAL, MARGINAL_SPREADS)[None, :, None]
    mass = np.diff(ndtr((grid - centres[:, None, None]) / spreads), axis=-1)
    return np.asarray(mass / mass.sum(axis=-1, keepdims=True))


def level_probabilities(counts: Vector, noise_sd: float, *, undeclared: bool) -> Vector:
    """Probabilities of level codes from noisy counts; the last cell may be undeclared labels."""
    rows = np.maximum(counts, 0.0)
    if undeclared and rows[-1] <= HIDDEN * noise_sd:
        rows[-1] = 0.0
    levels = len(rows) - 1 if undeclared else len(rows)
    if rows.sum() <= ALL_NOISE * noise_sd * np.sqrt(len(rows)):
        return np.asarray(np.r_[np.full(levels, 1.0 / levels), np.zeros(len(rows) - levels)])
    share = rows / rows.sum()
    # the mass that noise might hide is spread over the levels, so that no level is treated as empty
    hidden = min(PRIORS.spread_evenly, HIDDEN * noise_sd / float(rows.sum()))
    floor = np.r_[np.full(levels, hidden / levels), np.zeros(len(rows) - levels)]
    return np.asarray((1 - hidden) * share + floor)


# -- basis functions --------------------------------------------------------------------------


def amplitude(blocks: int) -> float:
    """Size of a basis function relative to the intercept; with many functions it is smaller.

    This keeps the norm bound, and with it the noise of the intercept, bounded as columns are added.
    """
    return float(min(PRIORS.feature_sd, PRIORS.features_sd / np.sqrt(max(blocks, 1))))


_KNOTS = 81  # knots of the functions on a column: far more than functions
_REACH = 2.5  # standard deviations; beyond this range the basis is constant, which limits outliers
_EMPTY = 2e-4  # weight of a knot without rows, so that its curve is defined
_LEAST_SD = 0.05  # least sd of a scaled column; prevents blowing up a constant column


def smooth_table(p: Vector, functions: int) -> Matrix:
    """Functions on the fine bins, shape (FINE_BINS, functions), orthonormal under `p` and to 1.

    The first is linear. Then come the Demmler-Reinsch functions of a second-difference penalty,
    from smooth to rough.
    """
    z = (np.arange(FINE_BINS) + 0.5) / FINE_BINS
    mean = float(p @ z)
    sd = max(float(np.sqrt(p @ (z - mean) ** 2)), 1.0 / FINE_BINS)
    z = np.clip((z - mean) / sd, -_REACH, _REACH)
    # nonlinear functions of least curvature per variance: a generalized eigenproblem
    grid = np.linspace(-_REACH, _REACH, _KNOTS)
    half = 0.5 * (grid[1] - grid[0])
    weight = np.histogram(z, np.r_[grid - half, grid[-1] + half], weights=p)[0] + _EMPTY
    second = np.diff(np.eye(_KNOTS), 2, axis=0)
    _, vectors = eigh(second.T @ second, np.diag(weight), subset_by_index=[0, functions])
    rough = [np.interp(z, grid, vectors[:, k]) for k in range(2, functions + 1)]
    raw = np.stack([np.ones(FINE_BINS), z, *rough], axis=1)
    q, r = np.linalg.qr(raw * np.sqrt(p)[:, None])
    q *= np.sign(np.diag(r)) + (np.diag(r) == 0)
    return np.asarray((q / np.sqrt(p)[:, None])[:, 1 : functions + 1])


def feature_map(
    design: Design, population: Population, functions: int, quantile: float
) -> FeatureMap:
    """Basis of every design column, with C a quantile of the population's feature norms.

    `functions` is the number for a smooth numeric column; 1 keeps columns linear.
    """
    rows = population.rows()
    scaled, size = rows.scaled(design), amplitude(len(design.columns))
    blocks = []
    for j, column in enumerate(design.columns):
        values = scaled[:, j]
        # the number that ``s(x, k=...)`` requests; a linear base stays linear
        smooth = design.smooth.get(column.variable or "")
        number = functions if smooth is None or functions == 1 else smooth
        if column.kind == "indicator":
            # 2 x 0/1 has the sd of a standard variable at probability one half
            block = Block(j, (1,), column.term, 2 * size, float(values.mean()))
        elif column.kind != "numeric" or number == 1:
            sd = max(float(values.std()), _LEAST_SD)
            block = Block(j, (1,), column.term, size / sd, float(values.mean()))
        else:
            p = np.bincount(fine_bins(values), minlength=FINE_BINS).astype(float)
            # A little kernel smoothing, because the population is a finite sample of its marginal.
            kernel = np.hanning(19)[1:-1]
            padded = np.pad(p / p.sum(), 8, mode="reflect")
            wide = np.convolve(padded, kernel / kernel.sum(), "valid")
            wide = (1 - PRIORS.spread_evenly) * wide + PRIORS.spread_evenly / FINE_BINS
            table = smooth_table(wide / wide.sum(), number)
            table = table * (size * PRIORS.feature_decay ** np.arange(number))
            block = Block(j, tuple(range(1, number + 1)), column.term, table=table)
        blocks.append(block)
    uncut = FeatureMap(design, tuple(blocks), np.inf)
    return replace(uncut, cut=uncut.norm_of(rows, quantile))


# -- Gram matrices ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GramEstimate:
    """Estimate of sum w phi phi', with a typical sd of the remaining noise in an entry."""

    value: Matrix
    sd: float
    model: Matrix


def population_gram(features: Features, rows: Rows, count: float, weight: Vector) -> Matrix:
    """count x mean of weight w phi phi' over the synthetic rows."""
    phi = rows.phi(features)
    w = features.weight(phi) * weight
    return np.asarray((phi.T * w) @ phi * (count / len(rows)))


def alignment(model: Matrix, seen: Matrix, noise_sd: float) -> Matrix:
    """A linear map that moves synthetic features to the directions that the released Gram contains.

    Synthetic rows spread within the cells of a histogram. If a column takes few values, its curves
    are collinear on the real rows but not on the synthetic rows. The synthetic rows then have
    variance in directions without any. In the model's metric, the released Gram has eigenvalues l,
    with the noise sd s of their directions. Along each direction, features are scaled by the root
    of min(l + 2 s, 1).

    `model` (p, p) is the mean of w phi phi' over the synthetic rows, and `seen` the released Gram
    on the same scale, with noise sd `noise_sd` off the diagonal.
    """
    values, vectors = np.linalg.eigh(model)
    values = np.maximum(values, 1e-9 * values[-1])
    inverse, root = vectors / np.sqrt(values), vectors * np.sqrt(values)
    shares, turn = np.linalg.eigh(inverse.T @ seen @ inverse)
    noise = np.sqrt(2.0) * noise_sd * np.sum((inverse @ turn) ** 2, axis=0)
    scale = np.sqrt(np.clip(shares + 2 * noise, 0.0, 1.0))
    return np.asarray(root @ (turn * scale) @ turn.T @ inverse.T)


def correlated(
    population: Population, features: FeatureMap, gram: Matrix, gram_sd: float
) -> Population:
    """The population with the dependence estimated from the noisy Gram's linear entries.

    The correlations are shrunk towards independence.
    """
    columns = features.design.columns
    linear = {
        columns[c].variable: j
        for j, (c, order) in enumerate(zip(features.column, features.order, strict=True))
        if order == 1 and columns[c].kind == "numeric"
    }
    numeric = population.numeric
    correlation = np.eye(len(numeric))
    matched = [i for i, v in enumerate(numeric) if v in linear]
    if len(matched) < 2:
        return population
    at = [linear[numeric[i]] for i in matched]
    rows = population.rows()
    model = population_gram(features, rows, population.count, np.ones(len(rows)))
    block = gram[np.ix_(at, at)]
    diagonal = np.maximum(np.diag(model)[at], 1e-9 * population.count)
    size = np.sqrt(np.outer(diagonal, diagonal))
    noisy, noise_sd = block / size, gram_sd / float(size.mean())
    shrunk = noisy * signal_share(noisy[~np.eye(len(at), dtype=bool)], noise_sd**2)
    np.fill_diagonal(shrunk, 1.0)
    values, vectors = np.linalg.eigh(shrunk)
    positive = (vectors * np.maximum(values, LEAST_EIGENVALUE)) @ vectors.T
    scale = np.sqrt(np.diag(positive))
    correlation[np.ix_(matched, matched)] = positive / np.outer(scale, scale)
    return replace(population, correlation=correlation)


def shrunken(noisy: Matrix, model: Matrix, noise_sd: float, features: FeatureMap) -> GramEstimate:
    """The noisy Gram shrunk towards the population's Gram, by one factor per class of entries.

    `noise_sd` is the noise sd of an off-diagonal entry; on the diagonal it is sqrt(2) times larger.
    """
    diagonal = np.eye(features.size, dtype=bool)
    intercept = np.zeros_like(diagonal)
    intercept[0] = intercept[:, 0] = True
    column, linear, inner = features.column, features.order == 1, ~intercept
    same = column[:, None] == column[None]
    both = linear[:, None] & linear[None] & ~same
    value, left = model.copy(), np.zeros_like(model)
    for entries, factor in (
        (intercept & ~diagonal, 1.0),
        (intercept & diagonal, 2.0),
        (same & inner & ~diagonal, 1.0),
        (diagonal & inner, 2.0),
        (both & inner, 1.0),
        (~same & ~both & inner, 1.0),
    ):
        if not entries.any():
            continue
        variance = factor * noise_sd**2
        gap = (noisy - model)[entries]
        keep = signal_share(gap, variance)
        value[entries] += keep * gap
        left[entries] = keep * variance
    return GramEstimate(value, float(np.sqrt(left.mean())), model)
