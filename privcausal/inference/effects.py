"""Average and conditional effects, contrasts, slopes, and sensitivity to unmeasured confounders.

Every mean is a ratio of noisy sums. Covariances add sampling and privacy noise (delta method:
numbers computed from released sums carry their derivatives in these sums). Allowances cover the
bias from clipped scores and from nuisance error.

The sensitivity analysis asks how strong a confounder would have to be. It uses the output of a fit.
Let theta = E[Y alpha] for a weight alpha (its Riesz representer), and let g be a regression.
Omitting a confounder biases theta by at most

    S sqrt(C_Y^2 C_D^2),    S^2 = E[(Y - g)^2] E[alpha^2].

C_Y^2 is the share of the residual variance of Y that the confounder explains. C_D^2 equals
r / (1 - r), where r is the share of the variance of alpha that the confounder would add
(Chernozhukov, Cinelli, Newey, Sharma and Syrgkanis 2022, "Long Story Short", Theorem 2 and
Corollary 1). In a linear model of the treatment, r is the share of the treatment's residual
variance (Cinelli and Hazlett 2020).

S itself is not released. The score of the estimate is tau(x) - theta + alpha (Y - g), with
n Var = Var(tau) + E[alpha^2 (Y - g)^2]. This is at least S^2 if the residual variance does not
fall with the weight. We therefore take S from the sampling variance of the estimate. That variance
also counts the variation of the effects and is raised by its own noise, so S tends to be too
large rather than too small. A larger S gives a smaller robustness value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize_scalar
from scipy.special import expit
from scipy.stats import ncx2, norm, t

from privcausal.errors import CapabilityError
from privcausal.features.design import Design, Rows
from privcausal.features.functions import Additive, Function, Polynomials, combine
from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import Remainder, positive_part, signal_share
from privcausal.request.formula import Partitions, Place, ResultTerm, in_places
from privcausal.typing import Integers, Mask, Matrix, Vector

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


# -- conditional effects with the standard deviation of their error ---------------------------


@dataclass(frozen=True, eq=False)
class Piece:
    """weight(x) x additive(x), with the covariance of the additive function's coefficients.

    `cov` is for bands. `usual` is for averages, whose prior is of effects of the usual size; the
    default is `cov`.
    """

    additive: Additive
    cov: Matrix
    weight: Function | None = None
    usual: Matrix | None = None


@dataclass(frozen=True, eq=False)
class Effect:
    """tau(x) as a sum of independent pieces, clipped to [-reach, reach] (the outcome's range)."""

    pieces: tuple[Piece, ...]
    reach: float
    drawn: ClassVar[bool] = True
    """Whether the effect can be drawn along each modifier."""

    def __call__(self, rows: Rows) -> Vector:
        total: Vector | None = rows.kept(self)
        if total is None:
            total = np.zeros(len(rows))
            for piece in self.pieces:
                value = piece.additive(rows)
                total += value if piece.weight is None else value * piece.weight(rows)
            rows.keep((self,), np.clip(total, -self.reach, self.reach, out=total), "pass")
        return total

    def sd(self, rows: Rows) -> Vector:
        """Posterior standard deviation, shape (n,)."""
        total = np.zeros(len(rows))
        for piece in self.pieces:
            phi = np.asfortranarray(rows.phi(piece.additive.features))  # the loop reads columns
            values, vectors = np.linalg.eigh(piece.cov)
            spread = np.zeros(len(rows))
            for value, vector in zip(values, vectors.T, strict=True):
                spread += max(value, 0.0) * combine(phi, vector) ** 2
            total += spread if piece.weight is None else spread * piece.weight(rows) ** 2
        return np.sqrt(total)

    def mean_sd(self, rows: Rows, weight: Vector) -> float:
        """Posterior standard deviation of the mean of weight x tau(x)."""
        total = 0.0
        for piece in self.pieces:
            weights = weight if piece.weight is None else weight * piece.weight(rows)
            lead = rows.phi(piece.additive.features).T @ weights / len(rows)
            total += float(lead @ (piece.cov if piece.usual is None else piece.usual) @ lead)
        return float(np.sqrt(max(total, 0.0)))


@dataclass(frozen=True, eq=False)
class Predicted(Effect):
    """tau(x) as a function whose error distribution is unknown: its sd is NaN."""

    function: Function

    def __call__(self, rows: Rows) -> Vector:
        return np.minimum(np.maximum(self.function(rows), -self.reach), self.reach)

    def sd(self, rows: Rows) -> Vector:
        return np.full(len(rows), np.nan)


# -- at declared points -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Answers(Effect):
    """tau at declared points; tau is unknown at all other points."""

    design: Design
    columns: Integers  # Design columns that the effect uses
    points: Matrix  # Scaled columns of the points, shape (d, q)
    # `value`, `spread`: tau and the sd of its error, shape (d,). The sd is NaN if it would reveal
    # data of the rows.
    value: Vector
    spread: Vector
    drawn: ClassVar[bool] = False

    def __call__(self, rows: Rows) -> Vector:
        """tau; NaN at other points, as an error would reveal that a row is not a declared point."""
        value = np.append(self.value, np.nan)[self.point_of(rows)]
        return np.asarray(np.minimum(np.maximum(value, -self.reach), self.reach))

    def sd(self, rows: Rows) -> Vector:
        return np.asarray(np.append(self.spread, np.nan)[self.point_of(rows)])

    def point_of(self, rows: Rows) -> Integers:
        """Index of each row's point; -1 for a row at no point."""
        position = {point.tobytes(): i for i, point in enumerate(self.points)}
        points = np.ascontiguousarray(rows.scaled(self.design)[:, self.columns])
        return np.array([position.get(point.tobytes(), -1) for point in points], np.int64)


# -- polynomials by arm -----------------------------------------------------------------------

RIDGE = 4.0
"""Ridge in noise standard deviations (Zhang et al. 2012, section 6.1)."""


def trimmed(gram: Matrix, cross: Vector, noise_sd: float) -> Vector:
    """Coefficients of a noisy squared loss, with a ridge and without directions of no curvature."""
    values, vectors = np.linalg.eigh(gram + RIDGE * noise_sd * np.eye(len(gram)))
    curved = values > 1e-9 * max(float(values[-1]), 0.0)
    if not curved.any():
        return np.zeros(len(cross))
    inner = vectors[:, curved]
    return np.asarray(inner @ ((inner.T @ cross) / values[curved]))


@dataclass(frozen=True, eq=False)
class ArmPolynomials:
    """tau(x) as the difference of two regressions, each clipped to the outcome's bounds.

    `coef` (2, size) are the coefficients of y less the middle of its bounds, control and treated.
    `half` is half of the outcome's range. If `logistic`, the regressions give probabilities.
    """

    polynomials: Polynomials
    coef: Matrix
    half: float
    logistic: bool = False
    drawn: ClassVar[bool] = True

    def __call__(self, rows: Rows) -> Vector:
        phi = self.polynomials.of(rows.frame)
        control, treated = (combine(phi, coef) for coef in self.coef)
        if self.logistic:
            return np.asarray(expit(treated) - expit(control))
        control, treated = (np.clip(m, -self.half, self.half) for m in (control, treated))
        return np.asarray(treated - control)

    def sd(self, rows: Rows) -> Vector:
        """NaN: the sd is unknown, because the mechanism's own regularization biases the effect."""
        return np.full(len(rows), np.nan)


# -- linear contrasts of released averages, and ratios of two risks ---------------------------

ANGLES = 720
"""Number of points of an ellipse in the first search for a ratio's extremes."""


class Contrasted(NamedTuple):
    """Estimates of contrasts, standard errors, bounds of the bias, and covariance of the noise.

    `degrees` are the degrees of freedom of the errors, as of `AverageEstimate`.
    """

    estimate: Vector
    sd: Vector
    bias: Vector
    cov: Matrix
    degrees: Vector | float = np.inf

    def columns(self, z: float) -> dict[str, Vector]:
        """estimate std_error max_bias conf_low conf_high, as of `AverageEstimate`."""
        half = covering(z, self.bias, self.sd, self.degrees)
        return {
            "estimate": self.estimate,
            "std_error": self.sd,
            "max_bias": self.bias,
            "conf_low": self.estimate - half,
            "conf_high": self.estimate + half,
        }


def contrasted(averages: AverageEstimate, weights: Matrix, more: Vector) -> Contrasted:
    """Sums of the averages by `weights`, shape (k, m).

    Sampling and noise variances use the joint covariance. The dependence between the biases of two
    averages is unknown. By Minkowski's inequality, the bound for clipped scores of a sum is at most
    the sum of the bounds. The root mean square of the nuisance bias has the same property. If the
    joint change of the estimates is known (`moved`), the bound of a sum is its largest change.
    `more` are further sds, of released weights, shape (k,); they are added in the same way.
    """
    joint = averages.sampling + averages.privacy
    seen = np.isfinite(averages.estimate) & np.isfinite(np.diag(joint))
    both = np.outer(seen, seen)
    joint, sampling = (np.where(both, v, 0.0) for v in (joint, averages.sampling))
    lost = (weights[:, ~seen] != 0).any(axis=1)
    size = np.abs(weights)
    cov = weights @ joint @ weights.T
    estimate = weights @ np.where(seen, averages.estimate, 0.0)
    noise = np.sqrt(np.maximum(np.diag(cov), 0.0)) + more
    sd = np.hypot(noise, size @ averages.remainder)
    # A term that is not in a sum may have no bound.
    bias = np.where(size > 0, size * np.where(size > 0, averages.clipping, 0.0), 0.0).sum(axis=1)
    if len(averages.moved):
        bias = np.linalg.norm(weights @ averages.moved, axis=2).max(axis=0)
    degrees = averages.degrees_of(np.einsum("ij,jk,ik->i", weights, sampling, weights), sd)
    sd, estimate = np.where(lost, np.inf, sd), np.where(lost, np.nan, estimate)
    return Contrasted(estimate, sd, bias, cov, degrees)


def largest_noncentrality(
    averages: AverageEstimate, at: Integers, matrix: Matrix, spread: Matrix
) -> float:
    """Bound of b' V^-1 b for all biases b of `matrix` times the estimates `at`, of covariance V.

    Let Q = R' V^-1 R for the matrix R. For a joint change M u with |u| <= 1, the largest value is
    the largest eigenvalue of M'QM. Otherwise b = R diag(c) s with |s_j| <= 1. With P = diag(c) Q
    diag(c) and D the roots of its diagonal, s'Ps is at most the largest eigenvalue of
    D^-1/2 P D^-1/2 times s'Ds, and s'Ds is at most the trace of D.
    """
    if not np.isfinite(averages.clipping[at]).all():
        return np.inf
    inner = matrix.T @ np.linalg.solve(spread, matrix)
    if len(averages.moved):
        moved = averages.moved[:, at]
        whole = moved.swapaxes(1, 2) @ inner @ moved
        return float(np.linalg.norm(whole, 2, axis=(1, 2)).max())
    scaled = inner * np.outer(averages.clipping[at], averages.clipping[at])
    lengths = np.sqrt(np.maximum(np.diag(scaled), 0.0))
    by = np.sqrt(np.where(lengths > 0, lengths, 1.0))
    return float(np.linalg.norm(scaled / np.outer(by, by), 2) * lengths.sum())


class RatioLimits(NamedTuple):
    """Estimate of a ratio, standard error, bound of the bias, and limits (maybe 0 or infinite)."""

    estimate: float
    std_error: float
    max_bias: float
    low: float
    high: float
    se_sampling: float


def ratio_limits(
    averages: AverageEstimate, at: tuple[int, int], kind: str, z: float
) -> RatioLimits:
    """Limits of E[Y(1)] / E[Y(0)], or of the ratio of their odds, by their joint distribution.

    The limits are the ratio's extremes over the risks within `z` standard errors of the released
    risks (an ellipse). For the plain ratio they are Fieller's (1954) limits, which are valid for
    any number of events. If the ellipse contains a risk of 0 (or, for odds, 1), there is no limit
    on that side. The standard error is by the delta method.

    Parameters
    ----------
    at : (int, int)
        Places of E[Y(0)] and E[Y(1)] in `averages`.
    kind : {"RR", "OR"}
    """
    rows = list(at)
    risk, sampling = averages.estimate[rows], averages.sampling[np.ix_(rows, rows)]
    # twice the squared bounds of bias: at least the squared bound for any difference of the two
    random = (
        sampling + averages.privacy[np.ix_(rows, rows)] + np.diag(averages.remainder[rows] ** 2)
    )
    cov = random + 2 * np.diag(averages.clipping[rows] ** 2)
    none = RatioLimits(np.nan, np.nan, np.nan, 0.0, np.inf, np.nan)
    if not (np.isfinite(risk).all() and np.isfinite(cov).all()):
        return none
    # extremes of the logarithm over the ellipse, which may contain risks of 0 or 1
    values, vectors = np.linalg.eigh(cov)
    root = z * vectors * np.sqrt(np.maximum(values, 0.0))
    reach = np.sqrt((root**2).sum(axis=1))

    def log_at(angle: float, sign: float = 1.0) -> float:
        return sign * _log_ratio(kind, risk + root @ np.array([np.cos(angle), np.sin(angle)]))

    least, most = risk - reach, risk + reach
    no_low = least[1] <= 0 or (kind == "OR" and most[0] >= 1)
    no_high = least[0] <= 0 or (kind == "OR" and most[1] >= 1)
    step = 2 * np.pi / ANGLES
    angles = np.arange(ANGLES) * step
    logs = np.array([log_at(angle) for angle in angles]) if not (no_low and no_high) else angles
    ends = [-np.inf, np.inf]
    for end, (sign, unlimited) in enumerate(((1.0, no_low), (-1.0, no_high))):
        if not unlimited:
            inside = np.where(np.isfinite(logs), sign * logs, np.inf)
            middle = float(angles[int(np.argmin(inside))])
            near = minimize_scalar(
                log_at,
                args=(sign,),
                bounds=(middle - step, middle + step),
                method="bounded",
                options={"xatol": 1e-10},
            )
            ends[end] = sign * min(float(near.fun), float(inside.min()))
    low, high = (float(np.exp(end)) for end in ends)
    if not ((risk > 0) & ((risk < 1) | (kind == "RR"))).all():
        return none._replace(low=low, high=high)
    slope = np.array([-1.0, 1.0]) / (risk * (1 - risk) if kind == "OR" else risk)
    value = float(np.exp(_log_ratio(kind, risk)))
    error, alone = (value * float(np.sqrt(slope @ part @ slope)) for part in (random, sampling))
    bias = value * float(np.abs(slope) @ averages.clipping[rows])
    return RatioLimits(value, error, bias, low, high, alone)


def _log_ratio(kind: str, risk: Vector) -> float:
    """Logarithm of the ratio of the risks, or of their odds."""
    with np.errstate(divide="ignore", invalid="ignore"):
        control, treated = np.log(np.maximum(risk, 0.0))
        ratio = float(treated - control)
        if kind == "RR":
            return ratio
        control, treated = np.log(np.maximum(1 - risk, 0.0))
        return ratio - float(treated - control)


# -- slopes on treatments, and the ratio of two slopes on an instrument -----------------------
#
# One release of vector scores. As in `averages`, covariances add sampling, privacy noise, and
# allowances.


LEAST_DISTINCT = 1e-3
"""Least share of an instrument that the others do not explain. Errors of the nuisance models of
equal instruments may leave less. By hand."""


class SlopeTotals(NamedTuple):
    """Sums of the scores s, of d d' and of s s', for residuals d of several treatments."""

    score: Reading
    mass: Reading
    square: Reading

    def solvable(
        self, model: Matrix, size: float, doubt: float = 0.0
    ) -> tuple[Noisy, Noisy, Matrix]:
        """The sums of the scores and of d d' with its posterior, and an inverse of the latter.

        An entry (i, j) of d d' is also the entry (j, i), and both have its noise. The inverse has
        eigenvalues relative to the `model` above their noise.
        """
        mass = posterior_mass(self.mass, model, size, doubt)
        diagonal = np.maximum(np.diag(model), 1e-6 * size)
        relative = float(np.linalg.norm(mass.sd / np.sqrt(np.outer(diagonal, diagonal))))
        floor = np.clip(FEW_SDS * relative, LEAST_DISTINCT, PRIORS.eigenvalues[0])
        values, vectors = eigh(mass.value, model + np.diag(1e-3 * diagonal))
        inverse = np.asarray((vectors / np.maximum(values, floor)) @ vectors.T)
        at = np.triu_indices(len(model))
        score, upper = Noisy.inputs(self.score, Reading(mass.value[at], mass.sd[at]))
        # Each entry's position in the upper triangle, row by row.
        entry = np.zeros(model.shape, int)
        entry[at] = np.arange(len(upper.value))
        return score, upper[np.maximum(entry, entry.T)], inverse


def estimate_slopes(
    terms: tuple[ResultTerm, ...],
    sums: SlopeTotals,
    centre: Vector,
    bias: float,
    remainder: Vector,
    *,
    model: Matrix,
    size: float,
    lost: float = 0.0,
    doubt: float = 0.0,
    unit: float = 1.0,
) -> AverageEstimate:
    """theta = c + (sum d d')^-1 sum s for scores centered at c, over the treatments' unit.

    The sampling covariance is the sandwich, HC0 in the regression of residuals. Clipping changes
    the mean of the scores by at most `bias` in norm. By Cauchy and Schwarz it changes a slope by at
    most this bias times the norm of a row of the inverse. It also changes a slope by at most the
    share `lost` of its distance from c. Nuisance error changes the mean of s_j by `remainder`.
    `model` is sum d d' as the nuisance models predict it, and serves as a prior; see
    `posterior_mass`.
    """
    score, mass, inverse = sums.solvable(model, size, doubt)
    left = mass.solve(score, inverse) / unit
    sampling = inverse @ raised_covariance(sums.score.value, sums.square, size) @ inverse / unit**2
    clipping = size * bias * np.linalg.norm(inverse, axis=1) / unit
    clipping += lost * (np.abs(left.value) + np.sqrt(np.diag(sampling + left.cov)))
    errors = size * np.abs(inverse) @ remainder / unit
    theta = centre / unit + left.value
    return AverageEstimate(
        terms=terms,
        groups=(),
        estimate=theta,
        sampling=sampling,
        privacy=left.cov,
        clipping=clipping,
        remainder=errors,
        size=size,
    )


def posterior_mass(mass: Reading, model: Matrix, size: float, doubt: float = 0.0) -> Reading:
    """The sum d d', shrunk towards the `model`, and the sds of its entries.

    The model has the relative sd `PRIORS.mass_sd`, or the sd `doubt` if that is more, or the sd
    that a release shows which contradicts it.
    """
    scale = np.sqrt(np.maximum(np.diag(model), 1e-6 * size))
    least = np.maximum(PRIORS.mass_sd * np.outer(scale, scale), doubt) ** 2
    gap = mass.value - model
    keep = 1 / (1 + mass.sd**2 / np.maximum(least, gap**2 - mass.sd**2))
    return Reading(model + keep * gap, np.sqrt(keep) * mass.sd)


def raised_covariance(total: Vector, square: Reading, size: float) -> Matrix:
    """Covariance of the sum of s, raised by its own noise."""
    values, vectors = np.linalg.eigh(square.value - np.outer(total, total) / size)
    # eigenvalues of a noisy matrix err by about sqrt(J) sd
    lift = float(square.sd.mean()) * np.sqrt(len(total))
    least = PRIORS.least_spread * float(np.trace(square.value)) / len(total)
    return np.asarray((vectors * (np.maximum(values, max(least, 0.0)) + lift)) @ vectors.T)


def largest_bias(scale: float, r2_outcome: float, r2_treatment: float) -> float:
    """Largest change of the estimate by a confounder, S sqrt(C_Y^2 C_D^2).

    Parameters
    ----------
    r2_outcome : float
        Share of the outcome's residual variance that the confounder explains, in [0, 1].
    r2_treatment : float
        Share of the treatment's residual variance (of the weight's variance), in [0, 1).
    """
    for name, share, open_ in (("outcome", r2_outcome, False), ("treatment", r2_treatment, True)):
        if not (0 <= share <= 1) or (open_ and share == 1):
            end = "[0, 1)" if open_ else "[0, 1]"
            raise CapabilityError(f"r2_{name}= must be a share in {end}, for example 0.1.")
    return scale * math.sqrt(r2_outcome * r2_treatment / (1 - r2_treatment))


def robustness_value(distance: float, scale: float) -> float:
    """The share r, for both outcome and treatment, whose largest bias is `distance`.

    S r / sqrt(1 - r) = distance, so r = (sqrt(f^4 + 4 f^2) - f^2) / 2 with f = distance / S.
    """
    if distance <= 0:
        return 0.0
    if scale <= 0 or not math.isfinite(distance / scale):
        return 1.0
    f = distance / scale
    # 2 / (1 + sqrt(1 + 4 / f^2)) equals r without a difference of large numbers
    return 2.0 / (1.0 + math.sqrt(1.0 + 4.0 / f**2))
