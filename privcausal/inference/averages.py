"""Average effects, groups and best linear projection, from one release of scores.

Every mean is a ratio of noisy sums. Covariances add sampling and privacy noise (delta method:
numbers computed from released sums carry their derivatives in these sums). Allowances cover the
bias from clipped scores and from nuisance error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from scipy.stats import ncx2, norm, t

from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import Remainder, positive_part, signal_share
from privcausal.request.formula import Partitions, Place, ResultTerm, in_places
from privcausal.typing import Mask, Matrix, Vector

# -- the delta method -------------------------------------------------------------------------


class Reading(NamedTuple):
    """Released sums, and the noise sds of their entries. Noise is independent across entries."""

    value: Vector
    sd: Vector

    def at(self, place: Any) -> Reading:
        return Reading(self.value[place], self.sd[place])

    def over(self, divisor: Vector | float) -> Reading:
        return Reading(self.value / divisor, self.sd / divisor)

    def through(self, matrix: Matrix) -> Reading:
        """Linear combinations along the last axis; their noise is dependent."""
        return Reading(self.value @ matrix.T, np.sqrt(self.sd**2 @ matrix.T**2))


@dataclass(frozen=True, eq=False)
class Noisy:
    """Numbers of any shape, computed from X released sums.

    Formulas are written with +, -, *, / and @. Derivatives follow by the chain rule.

    Attributes
    ----------
    value : Vector
        The numbers.
    slope : Matrix
        Their derivatives in the sums; the last axis has length X.
    noise : Vector
        Variances of the sums' noise, shape (X,).
    """

    value: Vector
    slope: Matrix
    noise: Vector
    __array_ufunc__: ClassVar[None] = None  # NumPy leaves products with arrays to this class

    @classmethod
    def inputs(cls, *readings: Reading) -> list[Noisy]:
        """The sums themselves, in the order of their noise."""
        noise = np.concatenate([np.ravel(reading.sd) ** 2 for reading in readings])
        ends = np.cumsum([np.size(reading.value) for reading in readings])[:-1]
        slopes = np.split(np.eye(len(noise)), ends)
        return [
            cls(reading.value, slope.reshape(*np.shape(reading.value), len(noise)), noise)
            for reading, slope in zip(readings, slopes, strict=True)
        ]

    @classmethod
    def joined(cls, parts: Sequence[Noisy]) -> Noisy:
        """Numbers along the first axis; a number without an axis has length 1."""
        values = np.concatenate([np.atleast_1d(part.value) for part in parts])
        noise = parts[0].noise
        slopes = [part.slope.reshape(-1, *values.shape[1:], len(noise)) for part in parts]
        return cls(values, np.concatenate(slopes), noise)

    def __add__(self, other: Number) -> Noisy:
        value, slope = _parts(other)
        return replace(self, value=self.value + value, slope=self.slope + slope)

    def __sub__(self, other: Number) -> Noisy:
        value, slope = _parts(other)
        return replace(self, value=self.value - value, slope=self.slope - slope)

    def __mul__(self, other: Number) -> Noisy:
        value, slope = _parts(other)
        product = self.slope * value[..., None] + self.value[..., None] * slope
        return replace(self, value=self.value * value, slope=product)

    def __truediv__(self, other: Number) -> Noisy:
        value, slope = _parts(other)
        out = np.asarray(self.value / value)
        quotient = (self.slope - out[..., None] * slope) / value[..., None]
        return replace(self, value=out, slope=quotient)

    def __rmatmul__(self, matrix: Matrix) -> Noisy:
        slope = np.tensordot(matrix, self.slope, (-1, 0))
        return replace(self, value=matrix @ self.value, slope=slope)

    def __getitem__(self, at: Any) -> Noisy:
        return replace(self, value=self.value[at], slope=self.slope[at])

    def sum(self) -> Noisy:
        """The sum along the first axis."""
        return replace(self, value=self.value.sum(axis=0), slope=self.slope.sum(axis=0))

    def solve(self, right: Noisy, inverse: Matrix) -> Noisy:
        """A^-1 b for this matrix A, given an inverse that may be regularized."""
        out = inverse @ right.value
        residual = right.slope - np.einsum("ijx,j->ix", self.slope, out)
        return replace(self, value=out, slope=np.tensordot(inverse, residual, 1))

    def held(self, value: Vector | float) -> Noisy:
        """Another value, such as a clipped one, with the derivatives of this one."""
        return replace(self, value=np.asarray(value, float))

    @property
    def cov(self) -> Matrix:
        """Covariance of the noise in the numbers of a vector."""
        return np.asarray(self.slope * self.noise @ self.slope.T)

    @property
    def sd(self) -> Vector:
        """Noise sds of the numbers."""
        return np.asarray(np.sqrt(self.slope**2 @ self.noise))


Number: TypeAlias = "Noisy | Vector | Mask | float"


def _parts(other: Number) -> tuple[Vector, Matrix]:
    if isinstance(other, Noisy):
        return other.value, other.slope
    return np.asarray(other, float), np.zeros((*np.shape(other), 1))


# -- sums over groups that partition the rows --------------------------------------------------


def reconciling(sd: Vector, identities: Matrix) -> Matrix:
    """The matrix P for which P x are readings x, adjusted to satisfy A s = 0; shape (m, m).

    A reading is x = s + e with independent errors of variances V = diag(sd^2). Generalized least
    squares gives P = I - V A'(A V A')^- A, which depends on V and A alone. P x is the linear
    unbiased estimate of least variance (Aitken 1935). No variance rises, and a reading without
    error does not change.

    `sd` has shape (m,), and A (`identities`) the shape (q, m); rows may be linearly dependent.
    """
    shared = sd[:, None] ** 2 * identities.T  # V A'
    gain = shared @ np.linalg.pinv(identities @ shared, hermitian=True)
    return np.asarray(np.eye(len(sd)) - gain @ identities)


def reconciled(reading: Noisy, identities: Matrix) -> Noisy:
    """Independent readings, adjusted to satisfy the identities."""
    return reconciling(reading.sd, identities) @ reading


def reconciled_within(reading: Noisy, identities: Matrix, limits: tuple[float, float]) -> Noisy:
    """`reconciled` if the first number is known to lie within limits.

    If the first number falls outside, it is set to the limit and the others are adjusted: least
    squares under the inequality. The derivatives are those without limits, so that the variance is
    not too small.
    """
    free = reconciled(reading, identities)
    first = np.clip(free.value[0], *limits)
    others = reconciling(np.r_[0.0, reading.sd[1:]], identities)
    return free.held(others @ np.r_[first, reading.value[1:]])


def upheld(parts: Partitions, size: Vector, sd: Vector, few: float) -> Matrix:
    """The identities that hold: all except those with a detectable remainder.

    Declared levels are assumed to be exhaustive: a remainder counts as empty if its count is within
    `few` sd of zero. This neglects at most about `few` sd rows, times the distance of their mean
    score from the center. The error is at most the noise, unless these rows differ from the others
    by about the clipping threshold.

    `size` and `sd` (1 + G,) are the rows (or masses) of all and of each group, and their noise.
    """
    rest, noise = parts.identities @ size, np.sqrt(parts.identities**2 @ sd**2)
    return parts.identities[parts.certain | (np.abs(rest) <= few * noise)]


def joint_sampling(terms: Matrix, groups: Vector, share: Matrix, identities: Matrix) -> Matrix:
    """Sampling covariance of the terms, the first R of them averages, then each average's groups.

    Let a group have the share p of all rows. Its rows change its own average 1 / p times as much as
    the overall average. The covariance of the averages with a group is therefore diag(p) times the
    group's covariance. (Groups' variances are raised for noise; shares are lowered until the parts
    of a column do not exceed the whole.) Groups of one column have no row in common. The release
    does not show the overlap of groups of two columns, or of a group and a slope. These pairs are
    assumed independent given the averages, the distribution of largest entropy with the known
    covariances (Dempster 1972). If these pairs had zero covariance instead, the matrix need not be
    positive semidefinite.

    `terms` (m, m) is the covariance of the terms, and `groups` (G, R, R) are those of the averages
    in each group, with infinite variances where there is no estimate. `share` (R, G) are shares of
    the rows.
    """
    r, many = share.shape
    finite = np.where(np.isfinite(groups), groups, 0.0)
    inverse = np.linalg.pinv(terms[:r, :r], hermitian=True)
    with_averages, same = np.zeros(groups.shape), np.eye(many, dtype=bool)
    for identity in identities:
        column = np.flatnonzero(identity[1:])
        part = share.T[column, :, None] * finite[column]
        total = np.einsum("gij,jg->ij", part, share[:, column])
        most = float(np.linalg.eigvals(inverse @ total).real.max())
        with_averages[column] += part / max(most, 1.0)
        same[np.ix_(column, column)] = True
    across = with_averages.transpose(1, 2, 0).reshape(r, r * many)  # groups of each average
    lead = terms[:, :r] @ inverse @ across
    between = np.where(np.tile(same, (r, r)), 0.0, across.T @ inverse @ across)
    between += np.einsum("gij,gh->igjh", finite, np.eye(many)).reshape(between.shape)
    out = np.block([[terms, lead], [lead.T, between]])
    lost = len(terms) + np.flatnonzero(~np.isfinite(np.einsum("gii->ig", groups)))
    out[lost, lost] = np.inf
    return np.asarray(out)


# -- averages ---------------------------------------------------------------------------------

FEW_SDS = 3.0
"""A group gets no estimate if its noisy mass is below this many noise sds."""


class ScoreTotals(NamedTuple):
    """Released sums of J scores and K masses at P = 1 + G places: all rows, then the groups."""

    score: Reading  # Sums of the centered scores, shape (J, P)
    # Complete rows, then sums of the masses, about 1 a row, shape (1 + K, P). A group has either
    # rows or a mass.
    size: Reading
    square: Reading  # Sums of the products of the scores, shape (P, J, J)
    slope: Reading  # Sums of a single score times z, shape (k - 1,)
    # `outer`, `meat`: sums of a a' and of the squared score times a a', shape (k, k). The first
    # entry of `outer` counts complete rows. `meat` is 0 x 0 if it was not released.
    outer: Reading
    meat: Reading
    points: Matrix  # Regressors a of a synthetic population, shape (N, k)
    units: Vector  # Natural slope per slope on a, shape (k - 1,)
    parts: Partitions | None = None  # Sets of groups whose sums add up to the sums over all rows
    # Known limits of the number of complete rows; equal if this number is public
    limits: tuple[float, float] = (1.0, np.inf)

    @property
    def rows(self) -> Reading:
        """Complete rows at each place; their number is exact if it is public."""
        (low, high), (value, sd) = self.limits, self.size.at(0)
        if low == high:
            value, sd = np.r_[low, value[1:]], np.r_[0.0, sd[1:]]
        return Reading(value, sd)


class ScoreAverage(NamedTuple):
    """One of the averages of a release, and what is known about it besides the sums."""

    # The average, then its slopes; only an average released alone has slopes
    terms: tuple[ResultTerm, ...]
    parts: Vector  # Its score as a combination of the released scores, shape (J,)
    mass: int  # The place of its mass among the sizes; 0 if rows have the mass 1
    centre: float  # Constant subtracted from the scores
    clipping: float  # Bound of the bias from clipped scores, in units of the outcome
    # Bias from nuisance errors. Intervals allow for its second moment. Its mean is not subtracted:
    # it depends on a prior of confounding, and subtracting it raised errors more often than not.
    remainder: Remainder
    least_square: float  # Floor of the mean squared score
    mass_spread: float = PRIORS.balance_sd  # Prior sd of the mean mass around 1
    group_masses: bool = False  # Whether groups are weighted by their masses, and not by rows
    kept: float = 1.0  # Share that clipping keeps of the slope of the scores in their center
    # Coefficients p, shape (k,). If given, products with z use scores centered at a'p.
    pilot: Vector | None = None
    # Distance of `centre` from a value near the average. It is not 0 if scores are clipped at
    # different distances on the two sides.
    middle: float = 0.0


@dataclass(frozen=True, eq=False)
class AverageEstimate:
    """Terms, estimates and the parts of their covariance, in natural units.

    `terms` (the average effect, then slopes) come before the groups. `clipping` bounds the bias of
    clipped scores. `remainder` is the root mean square of the bias from nuisance errors. Both have
    shape (m,). The standard error includes the random parts and `remainder`. `clipping` is a bias
    of unknown sign, so it enters intervals and p values only.

    The weight of any row is at most `weight` times its weight in a difference of means. `size` is
    the number of complete rows, `size_sd` its noise, and `treated` the released share of treated
    rows. `shares` are the groups' shares of the rows or masses, and `shares_sd` the noise sds of
    their sums. For coefficients, an instrument's slopes, and event studies, clipped scores change
    the estimates by a mean of vectors, each one of the matrices `moved`, shape (s, m, k), times a
    vector of norm at most 1. `r2` is the share of the outcome's variance that a regression
    explains. `clusters` is the number of clusters, if the standard errors are cluster-robust.
    Critical values are then quantiles of Student's t distribution. `design_effect` is the factor
    that dependent rows give to the sampling variance of the first term. `weighting` is the design
    effect of survey weights, and `most_weight` the largest weight in use; both are NaN without
    weights. `strong` is the root mean square of the first term's bias if products and thresholds
    confound strongly, or NaN. `mass` is the sum of the masses by which the first average divides
    its sum of scores. `unadjusted` is the first estimate plus the estimated confounding that
    adjustment removed, and `hidden` the share of adjustment that noise hides; both are NaN without
    learned propensity and mean outcome.
    """

    terms: tuple[ResultTerm, ...]
    groups: tuple[ResultTerm, ...]
    estimate: Vector
    sampling: Matrix
    privacy: Matrix
    clipping: Vector
    remainder: Vector
    size: float
    weight: float = np.inf
    size_sd: float = np.nan
    treated: float = np.nan
    shares: Vector = field(default_factory=lambda: np.zeros(0))
    shares_sd: Vector = field(default_factory=lambda: np.zeros(0))
    moved: Vector = field(default_factory=lambda: np.zeros((0, 0, 0)))
    r2: float = np.nan
    clusters: float = np.nan
    design_effect: float = 1.0
    weighting: float = np.nan
    most_weight: float = np.nan
    strong: float = np.nan
    mass: float = np.nan
    unadjusted: float = np.nan
    hidden: float = np.nan

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(str, (*self.terms, *self.groups)))

    @property
    def unseen(self) -> tuple[str, ...]:
        """Groups without an estimate."""
        lost = np.isnan(self.estimate[len(self.terms) :])
        return tuple(str(group) for group, no in zip(self.groups, lost, strict=True) if no)

    @property
    def cov(self) -> Matrix:
        """Covariance of the random parts; nuisance biases have unknown covariances, set to 0."""
        return np.asarray(self.sampling + self.privacy + np.diag(self.remainder**2))

    @property
    def sd(self) -> Vector:
        """Standard errors, shape (m,)."""
        variance = np.diag(self.sampling) + np.diag(self.privacy) + self.remainder**2
        return np.asarray(np.sqrt(variance))

    @property
    def limited(self) -> bool:
        """Whether the bias of clipped scores has a bound."""
        return not np.isinf(self.clipping).any()

    def half_widths(self, z: float) -> Vector:
        """Half-widths of intervals, shape (m,); `z` is the critical value without bias.

        The bias of clipped scores is fixed, and at most `clipping`. The critical value is the
        quantile of |N(b, 1)|, where b is the bound in standard errors. The interval then covers for
        every bias within the bound (Armstrong and Kolesar 2018, Eq. 4).
        """
        return covering(z, self.clipping, self.sd, self.degrees)

    def degrees_of(self, sampling: Vector, sd: Vector) -> Vector | float:
        """Degrees of freedom of errors with these sampling variances, shape (m,), or infinity.

        They are clusters - 1 for the sampling error alone. The variance of the privacy noise is
        known (Welch 1947; Satterthwaite 1946).
        """
        if not np.isfinite(self.clusters):
            return np.inf
        defined = np.isfinite(sd) & (sd > 0)
        share = np.divide(sampling, sd**2, out=np.ones(len(sd)), where=defined)
        return np.asarray(max(self.clusters - 1, 1.0) / np.maximum(share, 1e-6) ** 2)

    @property
    def degrees(self) -> Vector | float:
        """Degrees of freedom of each estimate, shape (m,), or infinity without clusters."""
        return self.degrees_of(np.diag(self.sampling), self.sd)

    @property
    def p(self) -> Vector:
        """P values of the null hypothesis of no effect, shape (m,)."""
        return p_value(self.estimate, self.clipping, self.sd, self.degrees)


class Ratios(NamedTuple):
    """Sums of a score, divided by sums of its mass, at P = 1 + G places: all rows, the groups.

    `sizes` are rows, or masses if these weigh the groups, and `rows` is the number of complete
    rows. The sums satisfy the `identities`, shape (q, P). Places `seen` are not too small to
    detect; the first is all rows. `mean` is the average less the center of the scores, and 0 where
    it is not seen.
    """

    score: Noisy
    mass: Noisy
    sizes: Noisy
    identities: Matrix
    rows: float
    seen: Mask
    mean: Noisy


def estimate_averages(
    averages: Sequence[ScoreAverage],
    groups: tuple[Place, ...],
    sums: ScoreTotals,
    *,
    robust: bool = False,
) -> AverageEstimate:
    """Averages, slopes, and the groups of each average, with their joint covariance.

    An average is c + d with d = S / M, for the sums S of the score and M of the mass. The noise of
    all sums enters by the delta method. If groups partition the rows, the sums are first made to
    agree. The average then equals the size-weighted mean of the groups' effects.
    """
    ratios, products = _ratios(averages, sums)
    values = [
        ratio.mean + np.where(ratio.seen, average.centre, np.nan)
        for average, ratio in zip(averages, ratios, strict=True)
    ]
    blocks = _sampling(averages, sums, ratios)
    leading, terms, more, spread = (
        [value[0] for value in values],
        blocks[0],
        np.zeros(1),
        np.ones(1),
    )
    if len(averages[0].terms) > 1:  # a single average with slopes
        slopes, terms, more, spread = _slopes(
            averages[0], sums, ratios[0], products, blocks[0, 0, 0], robust=robust
        )
        leading.append(slopes)
    estimate = Noisy.joined([*leading, *(value[1:] for value in values)])
    privacy = estimate.cov
    privacy[np.diag_indices(len(more))] += more
    # groups' shares of the rows or masses, shape (R, G)
    sizes = [Reading(ratio.sizes.value, ratio.sizes.sd) for ratio in ratios]
    shares = [size.at(np.s_[1:]).over(size.value[0]) for size in sizes]
    seen = np.stack([ratio.seen[1:] for ratio in ratios])
    identities = min((ratio.identities for ratio in ratios), key=len)
    seen_shares = np.where(seen, np.stack([share.value for share in shares]), 1.0)
    clipping = np.array([average.clipping for average in averages])
    lost = np.array(
        [
            ratio.mean.value[0] * (1 - average.kept) / PRIORS.slope_doubt
            for average, ratio in zip(averages, ratios, strict=True)
        ]
    )
    rms = np.array([average.remainder.rms for average in averages])
    return AverageEstimate(
        terms=tuple(term for average in averages for term in average.terms),
        groups=in_places([average.terms[0] for average in averages], groups),
        estimate=estimate.value,
        sampling=joint_sampling(terms, blocks[1:], seen_shares, identities),
        privacy=privacy,
        clipping=np.r_[np.hypot(clipping, lost) * spread, np.repeat(clipping, len(groups))],
        remainder=np.r_[rms * spread, np.repeat(rms, len(groups))],
        size=ratios[0].rows,
        size_sd=float(sums.size.sd[0, 0]),
        mass=float(ratios[0].mass.value[0]),
        shares=np.concatenate([share.value for share in shares]),
        shares_sd=np.concatenate([share.sd for share in shares]),
    )


def _ratios(averages: Sequence[ScoreAverage], sums: ScoreTotals) -> tuple[list[Ratios], Noisy]:
    """The sums of each average, and the products with z.

    Sums over groups that partition the rows agree with the whole. Groups without masses of their
    own use the mean mass of all rows, M / n.
    """
    value, sd = (np.nan_to_num(np.vstack([part, part[:1]])) for part in sums.size)
    # Over all rows, a mass is its posterior. A last row of sizes has the posterior of the number
    # of rows, for averages of the mass 1.
    value[0], sd[0] = sums.rows
    constraints = []
    for average in averages:
        sizes = sums.size.at(average.mass) if average.group_masses else sums.rows
        rows = float(np.clip(sums.size.value[0, 0], *sums.limits))
        identities = np.zeros((0, len(sizes.value)))
        if sums.parts is not None:
            identities = upheld(sums.parts, *sizes, FEW_SDS)
        if len(identities) and not average.group_masses:
            (counts,) = Noisy.inputs(sizes)
            rows = float(reconciled_within(counts, identities, sums.limits).value[0])
        constraints.append((identities, rows))
        # The posterior is the precision-weighted mean of the noisy mass and of its prior mean, the
        # number of rows. It has a floor: with almost no treated rows, the floor decides the width
        # of the ATT's interval.
        place, (total, noise) = average.mass or -1, map(float, sums.size.at((average.mass, 0)))
        prior_variance = (rows * average.mass_spread) ** 2
        keep = prior_variance / (prior_variance + noise**2)
        value[place, 0] = max(rows + keep * (total - rows), PRIORS.least_mass * rows)
        sd[place, 0] = np.sqrt(keep) * noise
    scores, size, products = Noisy.inputs(sums.score, Reading(value, sd), sums.slope)
    ratios = []
    for average, (identities, rows) in zip(averages, constraints, strict=True):
        score = reconciled(average.parts @ scores, identities)
        if average.group_masses:
            # the posterior of the whole mass is one more measurement of the mass
            limits = PRIORS.least_mass * rows, np.inf
            mass = reconciled_within(size[average.mass], identities, limits) * average.kept
            counts = mass
        else:
            counts = reconciled_within(size[0], identities, sums.limits)
            whole = size[average.mass or -1, 0] * average.kept
            mass = Noisy.joined([whole, counts[1:] * (whole / counts[0])])
        seen = np.asarray(np.r_[True, counts.value[1:] > FEW_SDS * counts.sd[1:]])
        mean = score * seen / mass.held(np.where(seen, mass.value, 1.0))
        ratios.append(Ratios(score, mass, counts, identities, rows, seen, mean))
    return ratios, products


def _sampling(
    averages: Sequence[ScoreAverage], sums: ScoreTotals, ratios: Sequence[Ratios]
) -> Vector:
    """Sampling covariances of the averages at each place, shape (P, R, R); infinite if not seen.

    Row i changes the average by (score_i - d mass_i) / M. If the nuisances are right and the effect
    is constant, the mean square of this change, times M^2, is E[score^2] - d^2 E[mass^2]. We
    subtract d^2 E[mass]^2, which is at most d^2 E[mass^2]. For groups with their own masses we
    subtract d^2 E[mass]. This too is at most d^2 E[mass^2]. For the ATT, mass = T / m with m <= 1.
    For the ATO, mass = (T - e)^2 / m with m <= 1/4, and E[(T - e)^4] = h (1 - 3h) >= h m for
    h = e (1 - e) <= 1/4.

    The released products give the covariance of several averages. It is raised to the variances
    that each average has when estimated alone.
    """
    square, sd = sums.square
    variances = np.full((len(averages), len(square)), np.inf)
    for average, ratio, variance in zip(averages, ratios, variances, strict=True):
        pairs = np.outer(average.parts, average.parts)
        twice = np.triu(2 * pairs) - np.diag(np.diag(pairs))
        noise = np.sqrt((twice**2 * sd**2).sum(axis=(1, 2)))  # the parts of an sd add up in squares
        total = Reading((pairs * square).sum(axis=(1, 2)), noise)
        total = total.through(reconciling(total.sd, ratio.identities))
        rows, mass = np.r_[ratio.rows, ratio.sizes.value[1:]], ratio.mass.value
        floor = average.least_square
        for i in np.flatnonzero(ratio.seen):
            second = raised(float(total.value[i]), float(total.sd[i]), floor * rows[i]) / rows[i]
            first = float(ratio.mean.value[i]) * mass[i] / rows[i]
            near = second + 2 * average.middle * first + average.middle**2
            spread = max(second - first**2, PRIORS.least_spread * max(near, 0.0))
            variance[i] = spread * rows[i] / mass[i] ** 2
            floor = floor if i else PRIORS.least_unexplained * spread  # of groups
    if len(averages) == 1:
        return variances.T[:, :, None]
    blocks, parts = [], np.stack([average.parts for average in averages])
    for p, products in enumerate(square):
        seen = np.array([ratio.seen[p] for ratio in ratios])
        mass = np.array([ratio.mass.value[p] if ratio.seen[p] else 1.0 for ratio in ratios])
        counts = [ratio.rows * ratio.sizes.value[p] / ratio.sizes.value[0] for ratio in ratios]
        mean = [ratio.mean.value[p] for ratio in ratios] / np.sqrt(np.where(seen, counts, 1.0))
        slope = seen / mass
        changes = np.outer(slope, slope) * (parts @ products @ parts.T)
        # the nearest covariance, with at least the variances that are finite
        nearest = positive_part(changes - np.outer(mean, mean))
        lacking = np.maximum(np.where(seen, variances[:, p], 0.0) - np.diag(nearest), 0.0)
        blocks.append(nearest + np.diag(np.where(seen, lacking, np.inf)))
    return np.stack(blocks)


def with_design_effect(estimate: AverageEstimate, max_rows: int) -> AverageEstimate:
    """`estimate` with sampling variances for units of up to `max_rows` rows, however similar.

    A unit's k rows have E[(sum x)(sum x)'] <= k sum E[x x'] (Cauchy-Schwarz), with equality for
    identical rows. This is a design effect (Kish 1965) of at most `max_rows`. The release does not
    show which rows belong together, so the maximum is used.
    """
    return replace(estimate, sampling=max_rows * estimate.sampling, design_effect=float(max_rows))


def raised(total: float, noise_sd: float, floor: float) -> float:
    """A noisy sum of squares, at least `floor`, plus one noise sd.

    Standard errors that are too small as often as too large undercover. Adding one sd more than
    compensates.
    """
    return max(total, floor) + noise_sd


def _slopes(
    average: ScoreAverage,
    sums: ScoreTotals,
    ratio: Ratios,
    products: Noisy,
    variance: float,
    *,
    robust: bool,
) -> tuple[Noisy, Matrix, Vector, Vector]:
    """Natural slopes, and for average and slopes three parts of their errors.

    These are the sampling covariance, the noise variances via a a', and the factors of the biases.

    With a pilot, products with z use scores less a'pilot. The released sums of a turn the sum of
    (psi - center) into the sum of (psi - a'pilot). Then H^-1 sum a (psi - a'pilot) + pilot is the
    projection of psi for any pilot. The noise in H multiplies only the effect that the pilot
    missed. The sums of a also turn distances from the middle of the clipping interval into
    distances from a value near the average: H is shrunk, and its error multiplies the intercept.
    """
    (outer, sd), rows, mass, pilot = sums.outer, ratio.rows, ratio.mass.value[0], average.pilot
    points, scale = sums.points, rows / len(sums.points)  # with the study's size
    model = np.asarray((points.T * np.ones(len(points))) @ points * scale)
    released, k = Noisy.joined([ratio.score[0], products]), len(outer)
    gram, keep = well_conditioned(outer, model, sd)
    inverse = np.asarray(np.linalg.pinv(gram, hermitian=True), float)
    lift = np.zeros((k, k))
    lift[0, 0], lift[1:] = 1.0 / mass, sums.units[:, None] * inverse[1:]
    near = average.centre - average.middle
    away = np.zeros(k) if pilot is None else np.r_[pilot[0] - near, pilot[1:]]
    total = released.value + average.middle * outer[0]
    total[0] -= outer[0] @ away
    slopes = inverse @ total
    noise = keep**2 * lift[1:] ** 2 @ (sd**2 @ slopes**2)
    noise += (average.middle * lift[1:] - np.outer(lift[1:, 0], away)) ** 2 @ sd[0] ** 2
    if pilot is not None:
        slopes = slopes + pilot
        slopes[0] -= near
    slopes[0] -= average.middle
    # Sampling covariance of sum(score a): HC0's sum of squared residuals times a a', or s2 H
    if robust and sums.meat.value.size:
        # The rows give sum(score^2 a a'). The mean over the synthetic population gives its fitted
        # part (a'b)^2 a a', which is subtracted, as E[score | a] = a'b under the projection.
        squares, squares_sd = sums.meat
        fitted = (points.T * (points @ slopes) ** 2) @ points * scale
        values, vectors = np.linalg.eigh(squares - fitted)
        # raised by its own noise: eigenvalues of a noisy matrix err by about sqrt(k) sd
        error = float(squares_sd.mean()) * np.sqrt(len(model))
        least = PRIORS.least_spread * float(np.linalg.eigvalsh(squares)[0])
        meat = (vectors * np.maximum(values + error, max(least, 0.0))) @ vectors.T
    else:
        row_variance = variance * mass**2 / rows
        centred = model - np.outer(model[0], model[0]) / model[0, 0]
        explained = float(slopes[1:] @ centred[1:, 1:] @ slopes[1:]) / rows
        meat = max(row_variance - explained, PRIORS.least_unexplained * row_variance) * model
    sampling = lift @ meat @ lift.T
    sampling[0, 0] = variance
    spread = np.maximum(np.diag(lift @ model @ lift.T)[1:], 0) * rows
    natural = (lift[1:] @ released).held(sums.units * slopes[1:])
    return natural, sampling, np.r_[0.0, noise], np.r_[1.0, np.sqrt(spread)]


def well_conditioned(gram: Matrix, model: Matrix, noise_sd: Matrix) -> tuple[Matrix, float]:
    """A noisy Gram shrunk towards the population's Gram, and the share of the gap that is kept.

    In the metric L^-1 (.) L^-T with model = L L', the model is the identity. In this metric, the
    shrunken Gram's eigenvalues are clipped to `PRIORS.eigenvalues`.
    """
    factor = np.linalg.inv(np.linalg.cholesky(model + 1e-9 * np.trace(model) * np.eye(len(model))))
    gap = factor @ (gram - model) @ factor.T
    noise = float((factor**2 @ noise_sd**2 @ factor.T**2).mean())
    if noise == 0:
        return gram, 1.0
    keep = signal_share(gap, noise)
    values, vectors = np.linalg.eigh(np.eye(len(model)) + keep * gap)
    clipped = (vectors * np.clip(values, *PRIORS.eigenvalues)) @ vectors.T
    back = np.linalg.inv(factor)
    return np.asarray(back @ clipped @ back.T), keep


# -- the noise of several averages ------------------------------------------------------------

SHAPE_ROUNDS = 200
"""Steps towards the best shape; the last step is scaled so that the shape holds all points."""

THIN = 1e-6
"""Least squared half-axis, as a share of the longest: scores may be multiples of each other."""


def noise_shape(points: Matrix, weights: Matrix) -> Matrix:
    """V of (nearly) least trace(W V) with x'V^-1 x <= 1 for all points x, shape (J, J).

    Gaussian noise of covariance V hides rows whose scores lie among the points as well as standard
    noise hides rows of norm 1. The problem is the dual of an A-optimal design (Pukelsheim 1993, ch.
    7): V = W^-1/2 (W^1/2 M W^1/2)^1/2 W^-1/2 for the moments M of a distribution on the points.
    Multiplicative steps find this distribution.

    `points` has shape (n, J). W (`weights`), positive definite, weighs the averages' variances.
    """
    root, inverse = (_power(weights, p) for p in (0.5, -0.5))
    x = points @ root
    law = np.full(len(x), 1.0 / len(x))
    for _ in range(SHAPE_ROUNDS):
        moments = (x.T * law) @ x
        moments += THIN * np.trace(moments) * np.eye(len(moments))
        shape = _power(moments, 0.5)
        reach = (x @ np.linalg.inv(shape) * x).sum(axis=1)
        law = law * np.maximum(reach, 0.0)
        law /= law.sum()
    return np.asarray(inverse @ (shape * reach.max()) @ inverse)


def _power(matrix: Matrix, power: float) -> Matrix:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 1e-300) ** power) @ vectors.T)


# -- intervals and tests of one estimate -------------------------------------------------------


USUAL_Z = float(norm.isf(0.025))
"""Clipping thresholds minimize the half-widths of 95% intervals."""

FAR_BOUND = 20.0
"""If a bound exceeds this many standard errors, the other tail is too small for floats."""


def p_value(
    estimate: Vector, bound: Vector, sd: Vector, degrees: Vector | float = np.inf
) -> Vector:
    """P(|N(bound, sd^2)| >= |estimate|): the test that `covering` inverts."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio, far = np.abs(estimate) / sd, bound / sd
        p = np.asarray(norm.sf(ratio - far) + norm.sf(ratio + far))
    return np.asarray(2 * t.sf(norm.isf(p / 2), degrees)) if np.isfinite(degrees).any() else p


def covering(
    z: Vector | float, bound: Vector, sd: Vector, degrees: Vector | float = np.inf
) -> Vector:
    """sd times the quantile of |N(bound / sd, 1)| at the level that `z` has for |N(0, 1)|.

    With finite degrees of freedom, `z` is first replaced by the quantile of Student's t
    distribution at its level.
    """
    z = t.isf(norm.sf(z), degrees) if np.isfinite(degrees).any() else z
    ratio = np.divide(bound, sd, out=np.full_like(sd, np.inf), where=sd > 0)
    far = ratio > FAR_BOUND  # all of the error lies on one side
    folded = np.sqrt(ncx2.isf(2 * norm.sf(z), 1, np.where(far, 0.0, ratio) ** 2))
    critical = np.where(ratio == 0, z, folded)
    return np.where(far, bound + norm.isf(2 * norm.sf(z)) * sd, critical * sd)


BIAS_RATIOS = np.r_[np.linspace(0.0, 5.0, 101), FAR_BOUND]
BIAS_QUANTILES = covering(USUAL_Z, BIAS_RATIOS, np.ones(len(BIAS_RATIOS)))
"""`folded_quantile` is exact at these ratios of bias and standard error."""


def folded_quantile(ratio: Vector) -> Vector:
    """The 95% quantile of |N(ratio, 1)|, interpolated linearly (`covering`)."""
    beyond = np.maximum(ratio - FAR_BOUND, 0.0)
    return np.asarray(np.interp(ratio, BIAS_RATIOS, BIAS_QUANTILES) + beyond)
