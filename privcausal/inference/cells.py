"""Effects by cell from noisy counts and sums: plain, or shrunk towards neighboring cells.

All of it is post-processing. In cell k and arm t, the model of the shrunken estimate is

    S_kt - m C_kt = n_kt (mu_kt - m) + e_kt,   Var(e_kt) = s_t^2 n_kt + v_S + m^2 v_C,
    mu_k0 = a + g(k),   mu_k1 = mu_k0 + c + h(k),

with m the overall mean and v_S, v_C the known noise variances. g and h are Gaussian processes over
the positions of cells: linear, smooth, rough, or independent. Their kind and size are averaged over
by marginal likelihood. With much noise, the cells are therefore pooled into one."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from privcausal.features.design import Rows
from privcausal.inference.ranges import lacks_arm
from privcausal.request.partition import Partition
from privcausal.typing import Matrix, Vector

MOST_POINTS = 300
"""If there are more cells, this many of them span the processes."""

LENGTHS = {"smooth": 1.0, "rough": 0.3}
"""Length scales of the processes for positions in [-1, 1] (times the root of the axes)."""

CELL_SDS = (0.03, 0.1, 0.4)
"""Standard deviations of g and h over the cells, in half ranges of the outcome."""

AVERAGE_SDS = (0.03, 0.3)
"""Prior standard deviations of the average effect, in half ranges."""

NO_VARIATION = 0.3
"""Prior probability of a constant effect; the rest is spread evenly."""

LEAST_WEIGHT = 1e-5
"""Models with a lower posterior probability are omitted."""

ALONE_UP_TO = 400
"""Up to this many cells, each cell may have a deviation of its own."""


@dataclass(frozen=True, eq=False)
class CellTotals:
    """Noisy numbers of a partition, in natural units."""

    # `count`, `total`: rows, and sums of y - middle, shape (cells, 2): control and treated
    count: Matrix
    total: Matrix
    # Sums of (y - middle)^2 by arm, shape (2,); None for an outcome of two values
    square: Vector | None
    # `count_variance`, `total_variance`, `square_variance`: variances of the noise on one entry
    count_variance: float
    total_variance: float
    square_variance: float
    half: float  # Half of the outcome's range
    most_rows: int = 1  # Maximum number of rows of one unit

    # By arm: rows, at least one; the mean of y - middle; and the noise variance of this mean, by
    # the delta method
    rows: Vector = field(init=False)
    means: Vector = field(init=False)
    mean_noise: Vector = field(init=False)
    # Sampling variance of a sum of n rows over n, from the variance within an arm. The variance of
    # y is raised by one sd of its own noise, so that intervals do not become too narrow. It is at
    # most the variance that the bounds allow a variable of this mean. It includes differences
    # between cells.
    sampled: Vector = field(init=False)
    unseen: bool = field(init=False)  # Whether an arm is empty, or too small to detect

    def __post_init__(self) -> None:
        rows = np.maximum(self.count.sum(axis=0), 1.0)
        means = np.clip(self.total.sum(axis=0) / rows, -self.half, self.half)
        mean_noise = len(self.count) * (self.total_variance + means**2 * self.count_variance)
        mean_noise = mean_noise / rows**2
        variance = np.maximum(self.half**2 - means**2, 1e-3 * self.half**2)
        if self.square is not None:
            noise = np.sqrt(self.square_variance / rows**2 + 4 * means**2 * mean_noise)
            detected = np.maximum(self.square / rows - means**2, 0.0) + noise
            variance = np.clip(detected, 1e-4 * self.half**2, variance)
        sampled = self.most_rows * variance
        count_noise = float(np.sqrt(len(self.count) * self.count_variance))
        unseen = lacks_arm(self.count.sum(axis=0), count_noise)
        vars(self).update(rows=rows, means=means, mean_noise=mean_noise, sampled=sampled)
        vars(self).update(unseen=unseen)


@dataclass(frozen=True, eq=False)
class CellEffect:
    """tau(x) of the cell that contains x; a row outside all cells gets the average."""

    partition: Partition
    value: Vector  # Shape (cells,)
    root: Matrix  # root root' is the covariance of `value`, shape (cells, r)
    count: Matrix  # Noisy rows by cell and arm, shape (cells, 2)
    reach: float
    share: Vector = field(init=False)  # Share of the rows in each cell, from the noisy counts
    spread: Vector = field(init=False)  # Standard deviation of each cell's value
    drawn: ClassVar[bool] = True

    def __post_init__(self) -> None:
        size = np.maximum(self.count.sum(axis=1), 0.0)
        share = size / size.sum() if size.sum() > 0 else np.full(len(size), 1.0 / len(size))
        vars(self).update(share=share, spread=np.sqrt((self.root**2).sum(axis=1)))

    def __call__(self, rows: Rows) -> Vector:
        return np.array([*self.value, self.share @ self.value])[self.partition.cell(rows.frame)]

    def sd(self, rows: Rows) -> Vector:
        average = float(np.linalg.norm(self.share @ self.root))
        return np.array([*self.spread, average])[self.partition.cell(rows.frame)]


# -- shrunk -----------------------------------------------------------------------------------


def shrunk(totals: CellTotals, points: Matrix, propensity: float | None) -> tuple[Vector, Matrix]:
    """Effects and a root of their covariance, shapes (cells,) and (cells, r).

    Parameters
    ----------
    points : Matrix
        Positions of the cells, shape (cells, k).
    propensity : float or None
        A trial's known share of treated rows; it links the counts of the two arms.
    """
    noise, half = totals.count_variance, totals.half
    # functions over the cells that span each process, of mean square one, shape (cells, r)
    centred = points - points.mean(axis=0)
    spread = np.sqrt((centred**2).mean(axis=0))
    varying = centred[:, spread > 0] / spread[spread > 0]
    spans = {"linear": varying / np.sqrt(max(varying.shape[1], 1))}
    at = np.unique(np.linspace(0, len(points) - 1, min(len(points), MOST_POINTS)).astype(np.int64))
    distance = ((points[:, None, :] - points[at][None, :, :]) ** 2).sum(axis=2)
    for name, scale in LENGTHS.items():
        # leading functions of a Gaussian kernel over the cells
        length = scale * np.sqrt(points.shape[1])
        kernel = np.exp(-0.5 * distance / length**2)
        values, vectors = np.linalg.eigh(kernel[at])
        keep = values > 1e-4 * values[-1]
        span = kernel @ (vectors[:, keep] / np.sqrt(values[keep]))
        span = span - span.mean(axis=0)
        size = np.sqrt((span**2).sum(axis=1).mean())
        spans[name] = span / size if size > 1e-9 else np.zeros((len(points), 0))
    if len(points) <= ALONE_UP_TO:
        spans["alone"] = np.eye(len(points))
    spans = {name: span for name, span in spans.items() if span.size}
    # noisy counts become rows, and sums are standardized
    if propensity is None:
        rows = np.stack([_smooth(totals.count[:, t], noise, spans) for t in (0, 1)], axis=1)
    else:
        both = _smooth(totals.count.sum(axis=1), 2 * noise, spans)
        rows = both[:, None] * np.array([1 - propensity, propensity])
    overall = totals.total.sum() / max(float(totals.count.sum()), 1.0)
    middle = float(np.clip(overall, -half, half))
    sd = np.sqrt(totals.sampled * rows + totals.total_variance + middle**2 * noise)
    sums = (totals.total - middle * totals.count) / sd
    effect, root = _average(sums, rows / sd, spans, half)
    return np.clip(effect, -2 * half, 2 * half), root


def _smooth(count: Vector, noise: float, spans: dict[str, Matrix]) -> Vector:
    """Posterior mean of counts, above zero: a smooth density plus Poisson variation."""
    cells = len(count)
    level = max(float(count.sum()), 1.0) / cells
    ones = np.ones((cells, 1))
    best, chosen = -np.inf, np.full(cells, level)
    for name, size, alone in itertools.product(("linear", "smooth", "rough"), (0.1, 0.5), (0, 0.5)):
        if name not in spans:
            continue
        variance = level + (alone * level) ** 2  # of a count around the smooth density
        scale = 1.0 / np.sqrt(noise + variance)
        # regression of observations of variance one, with the prior N(0, I) of coefficients
        design = np.hstack([ones, size * spans[name]]) * (level * scale)
        target = (count - level) * scale
        factor = cho_factor(design.T @ design + np.eye(design.shape[1]), lower=True)
        cross = design.T @ target
        mean = cho_solve(factor, cross)
        log_det = 2 * float(np.log(np.diag(factor[0])).sum())
        evidence = -0.5 * (float(target @ target) - float(cross @ mean) + log_det)
        evidence += cells * np.log(scale)
        if evidence > best:
            density = level + design @ mean / scale
            best, chosen = evidence, density + variance / (variance + noise) * (count - density)
    return np.asarray(np.maximum(chosen, 0.02 * level))


def _average(
    sums: Matrix, weight: Matrix, spans: dict[str, Matrix], half: float
) -> tuple[Vector, Matrix]:
    """Mean of the effects and a root of their covariance, over all models weighted by evidence.

    `sums` are standardized, and `weight` is n / sd, shape (cells, 2).
    """
    functions = np.hstack([np.ones((len(sums), 1)), *spans.values()])
    owner = np.repeat(["average", *spans], [1, *(s.shape[1] for s in spans.values())])
    # moments of both arms, computed once for all models
    grams = [(functions.T * weight[:, t] ** 2) @ functions for t in (0, 1)]
    crosses = [functions.T @ (weight[:, t] * sums[:, t]) for t in (0, 1)]
    gram = np.block([[grams[0] + grams[1], grams[1]], [grams[1], grams[1]]])
    cross = np.concatenate([crosses[0] + crosses[1], crosses[1]])
    # prior sds of all functions for each structure, and its log prior probability
    size, variations = len(owner), list(itertools.product(spans, CELL_SDS))
    structures = [(np.zeros(size), np.log(NO_VARIATION))]
    for name, cell_sd in variations:
        # smooth and rough processes may have a linear trend too
        sd = cell_sd * half * ((owner == name) | ((owner == "linear") & (name != "alone")))
        structures.append((sd, np.log((1 - NO_VARIATION) / len(variations))))
    models = []
    for (base, _), (effect, log_prior), average in itertools.product(
        structures, structures, AVERAGE_SDS
    ):
        sd = np.concatenate([base, effect])
        sd[0], sd[size] = half, average * half
        at = np.flatnonzero(sd > 0)
        scale = sd[at]
        factor = np.linalg.cholesky(gram[np.ix_(at, at)] * np.outer(scale, scale) + np.eye(len(at)))
        shift = np.linalg.solve(factor, cross[at] * scale)
        evidence = 0.5 * float(shift @ shift) - float(np.log(np.diag(factor)).sum()) + log_prior
        models.append((evidence, scale * np.linalg.solve(factor.T, shift), factor, scale, at))
    top = max(model[0] for model in models)
    chances = np.array([np.exp(model[0] - top) for model in models])
    chances /= chances.sum()
    keep = [k for k in np.argsort(-chances) if chances[k] > LEAST_WEIGHT]
    chances = chances[keep] / chances[keep].sum()
    values, roots = [], []
    for chance, k in zip(chances, keep, strict=True):
        _, mean, factor, scale, at = models[k]
        mine = at >= size  # the effect's coefficients
        phi = functions[:, at[mine] - size]
        values.append(phi @ mean[mine])
        root = np.asarray((scale[:, None] * np.linalg.inv(factor).T)[mine])
        roots.append(np.sqrt(chance) * phi @ root)
    effects = np.array(values)
    mean = chances @ effects
    between = (effects - mean).T * np.sqrt(chances)
    # a root of the covariance with as few columns as needed
    left, sizes, _ = np.linalg.svd(np.hstack([*roots, between]), full_matrices=False)
    used = sizes > 1e-7 * max(float(sizes[0]), 1e-300)
    return mean, np.asarray(left[:, used] * sizes[used])


# -- uplift curves ----------------------------------------------------------------------------

BAND_DRAWS, MOST_NUMBERS = 4000, 4_000_000
"""Number of simulated tables for the bands; tables with many cells get fewer."""

_PUBLIC_SEED = 20_211_210  # fixed quadrature points of the bands, public, not privacy noise


class Curve(NamedTuple):
    """The gain by the share of rows treated, best cells first, and the area under the curve."""

    share: Vector  # From 0 to 1, shape (cells + 1,)
    # `gain`, `spread`: gain per row of the population, in units of the outcome, and its standard
    # deviation
    gain: Vector
    spread: Vector
    # The gain of treating as many rows at random: a straight line to the overall effect
    random: Vector
    area: float
    area_spread: float
    random_area: float


def curves(totals: CellTotals, ranking: Vector) -> dict[str, Curve]:
    """Curves "uplift" and "qini" of treating cells in the order of `ranking`, largest first.

    N are the counts and Y the means by arm, among the share phi of rows ranked highest. Then
    uplift(phi) = phi (Y_1 - Y_0), as in Jaskowski and Jaroszewicz (2012), and
    qini(phi) = N_1(phi) / N_1 (Y_1 - Y_0) (Radcliffe 2007, for each treated row). Standard
    deviations include the noise and the sampling of the rows, by simulation.
    """
    order, half = np.argsort(-ranking, kind="stable"), totals.half
    count, total = totals.count[order], totals.total[order]
    rng = np.random.default_rng(_PUBLIC_SEED)
    rows = np.maximum(count, 1.0)
    sampled = totals.total_variance + totals.sampled * rows
    size = (min(BAND_DRAWS, max(MOST_NUMBERS // count.size, 100)), *count.shape)
    # a count varies by its noise and by the sampling of rows; the sampling also changes the sums
    mean = np.clip(total / rows, -half, half)
    moved = rng.standard_normal(size) * np.sqrt(totals.most_rows * rows)
    counts_drawn = count + moved + rng.standard_normal(size) * np.sqrt(totals.count_variance)
    totals_drawn = total + mean * moved + rng.standard_normal(size) * np.sqrt(sampled)
    by_name = {}
    for name in ("uplift", "qini"):
        share, gain, area = _gains(count, total, half, name)
        _, gains_drawn, areas_drawn = _gains(counts_drawn, totals_drawn, half, name)
        end = float(gain[-1])
        by_name[name] = Curve(
            share=share,
            gain=gain,
            spread=np.asarray(gains_drawn.std(axis=0)),
            random=share * end,
            area=float(area),
            area_spread=float(areas_drawn.std()),
            random_area=0.5 * end,
        )
    return by_name


def _gains(count: Matrix, total: Matrix, half: float, name: str) -> tuple[Vector, Vector, Vector]:
    """Shares and gains at the ends of cells, shape (..., cells + 1), from 0, and the area below."""
    n = np.cumsum(np.maximum(count, 0.0), axis=-2)
    mean = np.clip(np.cumsum(total, axis=-2) / np.maximum(n, 1.0), -half, half)
    effect = mean[..., 1] - mean[..., 0]
    both = n.sum(axis=-1)
    share = both / np.maximum(both[..., -1:], 1.0)
    scale = share if name == "uplift" else n[..., 1] / np.maximum(n[..., -1:, 1], 1.0)
    start = np.zeros((*share.shape[:-1], 1))
    share = np.concatenate([start, share], axis=-1)
    gain = np.concatenate([start, scale * effect], axis=-1)
    # by the trapezoidal rule
    step, height = np.diff(share, axis=-1), 0.5 * (gain[..., 1:] + gain[..., :-1])
    return share, gain, np.asarray((step * height).sum(axis=-1))


# -- how many cells ---------------------------------------------------------------------------

FAILURE = 0.01
"""Delta of Corollary 1: the bound holds with probability 1 - Delta."""

LEAST_DEFAULT_CELLS, MOST_DEFAULT_CELLS = 3, 64
"""Range of the default's number of cells along one axis."""

SPAN = 5.5
"""The default has sqrt(n epsilon) / SPAN cells; half or twice as many cost little."""

UNKNOWN_ROWS_CELLS = 32
"""Cells of the default if the number of rows is not public."""


def bound(
    groups: Vector, rows: float, epsilon: float, lipschitz: float, sigma: float, width: float
) -> Vector:
    """The right-hand side of Betlei et al. (2021), Eq. 7, for equal groups (beta = 1).

    Parameters
    ----------
    lipschitz : float
        (L_C^2 + L_T^2) D_x^2, the squared slopes over the whole domain, in units of the outcome.
    sigma : float
        Standard deviation of the outcome about its mean.
    width : float
        D_y, the width of the outcome's bounds.
    """
    bias = 2 * lipschitz / groups**2
    variance = 4 * (2 * sigma**2 + lipschitz) * groups / rows
    noise = (24 * width) ** 2 * groups**2 / (rows * epsilon) ** 2
    return np.asarray(bias + variance + noise)


def by_bound(
    rows: float, epsilon: float, lipschitz: float, sigma: float, width: float, most: int
) -> int:
    """Number of groups with the least bound, if the bound holds for them (Corollary 1).

    If noise dominates, the number grows like sqrt(n epsilon), as the derivatives 4 L / p^3 and
    2 (24 D)^2 p / (n epsilon)^2 then balance. (Section 2.4.2 prints n epsilon, which does not
    follow from Eq. 7.) Otherwise the number grows like n^(1/3).
    """
    allowed = rows * epsilon / (8 * math.log(1 / FAILURE))
    groups = np.arange(1.0, max(1, min(most, math.floor(allowed))) + 1)
    return int(groups[np.argmin(bound(groups, rows, epsilon, lipschitz, sigma, width))])


def fine(rows: float | None, epsilon: float) -> int:
    """Cells of the default: a finer grid than tuning would choose, because cells are shrunk."""
    if rows is None:
        return UNKNOWN_ROWS_CELLS
    cells = round(math.sqrt(rows * epsilon) / SPAN)
    return min(max(cells, LEAST_DEFAULT_CELLS), MOST_DEFAULT_CELLS)
