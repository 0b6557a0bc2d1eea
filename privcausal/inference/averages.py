"""Average effects, groups and best linear projection, from one release of scores.

Every mean is a ratio of noisy sums. Covariances add sampling and privacy noise (delta method).
Allowances cover the bias from clipped scores and from nuisance error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from privcausal.inference import reconcile as reconcile_of
from privcausal.inference.confounding import Remainder
from privcausal.inference.intervals import covering, p_value
from privcausal.inference.priors import PRIORS
from privcausal.inference.reconcile import upheld
from privcausal.inference.regression import positive_part, signal_share
from privcausal.request.factors import Partitions
from privcausal.request.terms import Place, ResultTerm, in_places
from privcausal.typing import Matrix, Vector

FEW_SDS = 3.0
"""A group gets no estimate if its noisy mass is below this many noise sds."""


@dataclass(frozen=True, eq=False)
class ScoreData:
    """Released sums of one average, or the noise sds of their entries.

    There are P = 1 + G places: all rows, then the groups.

    Attributes
    ----------
    score, square : Vector
        Sums of the centered score, and of its square, shape (P,).
    slope : Vector
        Sums of the centered score times z, shape (k - 1,).
    outer : Matrix
        Sum of a a', shape (k, k); its first entry counts complete rows.
    mass : float
        Sum of the masses (balances of the AIPW score), about 1 a row.
    group_size : Vector
        Complete rows in each group, or the sum of their masses, shape (G,).
    meat : Matrix
        Sum of the squared score times a a' (0 x 0 if not released).
    """

    score: Vector
    square: Vector
    slope: Vector
    outer: Matrix
    mass: float
    group_size: Vector
    meat: Matrix


@dataclass(frozen=True, eq=False)
class SumsContext:
    """Public or released quantities that are needed in addition to the sums.

    Attributes
    ----------
    centre, size : float
        Constant subtracted from the scores; the (noisy) number of complete rows.
    points : Matrix
        Regressors a of a synthetic population, shape (N, k).
    units : Vector
        Natural slope per slope on a, shape (k - 1,).
    clipping : float
        Bound of the bias from clipped scores, in units of the outcome.
    remainder : Remainder
        Bias from nuisance errors. Intervals allow for its second moment. Its mean is not
        subtracted: the mean depends on a prior of confounding, and subtracting it raised errors
        more often than not.
    least_square : float
        Floor of the mean squared score.
    mass_spread : float
        Prior sd of the mean mass around 1.
    group_masses : bool
        Whether `ScoreData.group_size` sums masses.
    kept : float
        Share that clipping keeps of the slope of the scores in their center.
    pilot : Vector, optional
        Coefficients p, shape (k,). If given, products with z use scores centered at a'p.
    parts : Partitions, optional
        Sets of groups whose sums add up to the sums over all rows.
    size_limits : (float, float)
        Known limits of the number of complete rows; equal if this number is public.
    middle : float
        Distance of `centre` from a value near the average. It is not 0 if scores are clipped at
        different distances on the two sides.
    """

    centre: float
    size: float
    points: Matrix
    units: Vector
    clipping: float
    remainder: Remainder
    least_square: float
    mass_spread: float = PRIORS.balance_sd
    group_masses: bool = False
    kept: float = 1.0
    pilot: Vector | None = None
    parts: Partitions | None = None
    size_limits: tuple[float, float] = (1.0, np.inf)
    middle: float = 0.0

    def least_variance(self, square: float, mean: float) -> float:
        """Floor of the variance, from the mean and the mean square of the centered scores."""
        near = square + 2 * self.middle * mean + self.middle**2
        return PRIORS.least_spread * max(near, 0.0)

    @cached_property
    def model(self) -> Matrix:
        """Sum of a a' in the synthetic population, scaled to the study's size, shape (k, k)."""
        return self.weighted(np.ones(len(self.points)))

    def weighted(self, weight: Vector) -> Matrix:
        """Sum of a a' as in `model`, with a weight for each point."""
        scale = self.size / len(self.points)
        return np.asarray((self.points.T * weight) @ self.points * scale)


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
    their sums. For coefficients and an instrument's
    slopes, clipped scores change the estimates by `moved` times a vector of norm at most 1, shape
    (m, k). `r2` is the share of the outcome's variance that a regression explains. `clusters` is
    the number of clusters, if the standard errors are cluster-robust. Critical values are then
    quantiles of Student's t distribution. `design_effect` is the factor that dependent rows give to
    the sampling variance of the first term. `weighting` is the design effect of survey weights, and
    `most_weight` the largest weight in use; both are NaN without weights. `strong` is the root mean
    square of the first term's bias if products and thresholds confound strongly, or NaN.
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
    moved: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    r2: float = np.nan
    clusters: float = np.nan
    design_effect: float = 1.0
    weighting: float = np.nan
    most_weight: float = np.nan
    strong: float = np.nan

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(str, (*self.terms, *self.groups)))

    @property
    def unseen(self) -> tuple[str, ...]:
        """Groups without an estimate."""
        every = [*zip(self.names, np.isnan(self.estimate), strict=True)]
        return tuple(name for name, lost in every[len(self.terms) :] if lost)

    @property
    def cov(self) -> Matrix:
        """Covariance of the random parts; nuisance biases have unknown covariances, set to 0."""
        return np.asarray(self.sampling + self.privacy + np.diag(self.remainder**2))

    @property
    def sd(self) -> Vector:
        """Standard errors, shape (m,)."""
        variance = np.diag(self.sampling) + np.diag(self.privacy) + self.remainder**2
        return np.asarray(np.sqrt(variance))

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
        known = np.isfinite(sd) & (sd > 0)
        share = np.divide(sampling, sd**2, out=np.ones(len(sd)), where=known)
        return np.asarray(max(self.clusters - 1, 1.0) / np.maximum(share, 1e-6) ** 2)

    @property
    def degrees(self) -> Vector | float:
        """Degrees of freedom of each estimate, shape (m,), or infinity without clusters."""
        return self.degrees_of(np.diag(self.sampling), self.sd)

    @property
    def p(self) -> Vector:
        """P values of the null hypothesis of no effect, shape (m,)."""
        return p_value(self.estimate, self.clipping, self.sd, self.degrees)


def estimate_average(
    terms: tuple[ResultTerm, ...],
    groups: tuple[Place, ...],
    value: ScoreData,
    sd: ScoreData,
    frame: SumsContext,
    *,
    robust: bool = False,
) -> tuple[AverageEstimate, Sums]:
    """Average, slopes and groups with their covariance, and the sums that were used.

    The average is c + d with d = S / M, for the sums S of the score and M of the mass. Row i
    changes it by (score_i - d mass_i) / M. If the nuisances are right and the effect is constant,
    the mean square of this change, times M^2, is E[score^2] - d^2 E[mass^2]. We subtract
    d^2 E[mass]^2, which is at most d^2 E[mass^2]. For groups with their own masses we subtract
    d^2 E[mass]. This too is at most d^2 E[mass^2]. For the ATT, mass = T / m with m <= 1. For the
    ATO, mass = (T - e)^2 / m with m <= 1/4, and E[(T - e)^4] = h (1 - 3h) >= h m for
    h = e (1 - e) <= 1/4.

    If groups partition the rows, the sums are first made to agree. The average then equals the
    size-weighted mean of the groups' effects, and groups and terms have covariances.
    """
    sums = _sums(value, sd, frame)
    value, sd, frame, mass, mass_sd = sums.value, sums.sd, sums.frame, sums.mass, sums.mass_sd
    mean = float(value.score[0]) / mass
    square = raised(float(value.square[0]), float(sd.square[0]), frame.least_square * frame.size)
    square /= frame.size
    apart = mean * mass / frame.size
    variance = max(square - apart**2, frame.least_variance(square, apart))
    lift, slopes, slope_noise = _slopes(value, sd, frame, mass)
    sampling = lift @ _meat(sums, slopes, variance, robust=robust) @ lift.T
    sampling[0, 0] = variance * frame.size / mass**2
    privacy = lift @ np.diag(np.r_[sd.score[0], sd.slope] ** 2) @ lift.T
    privacy += np.diag([(mean * mass_sd / mass) ** 2, *slope_noise])
    clipping = float(np.hypot(frame.clipping, mean * (1 - frame.kept) / PRIORS.slope_doubt))
    own = np.r_[mean + frame.centre, frame.units * slopes[1:]]
    squares = np.maximum(np.diag(lift @ frame.model @ lift.T)[1:], 0) * frame.size
    spread = np.r_[1.0, np.sqrt(squares)]
    out = AverageEstimate(
        terms, (), own, sampling, privacy,
        clipping * spread, frame.remainder.rms * spread, frame.size,
        size_sd=float(sd.outer[0, 0]),
    )  # fmt: skip
    if not groups:
        return out, sums
    found, noise, m = _with_groups(out, groups, sums), sums.noise, len(terms)
    if noise is None:
        return found, sums
    # delta method; in S_g / (n_g M / n) the noise of n counts too
    by_score, by_size, by_mass = slopes_in_sums(found, mean, lift[:, 0], sums)
    privacy = by_score @ noise.score @ by_score.T + by_size @ noise.size @ by_size.T
    privacy += mass_sd**2 * np.outer(by_mass, by_mass)
    privacy[:m, :m] = out.privacy
    own, share = np.diag(found.sampling)[m:], sums.share(found)
    sampling = reconcile_of.joint_sampling(out.sampling, own, share, noise.identities)
    return replace(found, sampling=sampling, privacy=privacy), sums


@dataclass(frozen=True, eq=False)
class GroupNoise:
    """Noise covariances of sums over all rows and the groups, shape (1 + G, 1 + G).

    `size` covers masses if groups have them, otherwise counts. The sums satisfy `identities`.
    """

    score: Matrix
    size: Matrix
    identities: Matrix


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums and mass that are used; `noise` is None if no groups partition the rows."""

    value: ScoreData
    sd: ScoreData
    frame: SumsContext
    mass: float
    mass_sd: float
    noise: GroupNoise | None = None

    def share(self, found: AverageEstimate) -> Vector:
        """Groups' shares of the rows, or of the masses, (G,); meaningless if not estimated."""
        seen = np.isfinite(found.estimate[len(found.terms) :])
        rows = np.where(seen, self.value.group_size, 1.0)
        if self.frame.group_masses:
            return np.asarray(self.frame.kept * rows / self.mass)
        return np.asarray(rows / self.frame.size)


def _sums(value: ScoreData, sd: ScoreData, frame: SumsContext) -> Sums:
    """The sums; if groups partition the rows, their sums add up to those over all rows."""
    plain = Sums(value, sd, frame, *shrunken_mass(value.mass, sd.mass, frame))
    if frame.parts is None:
        return plain
    if frame.group_masses:
        total, total_sd = value.mass, sd.mass
    elif frame.size_limits[0] == frame.size_limits[1]:
        total, total_sd = frame.size, 0.0
    else:
        total, total_sd = float(value.outer[0, 0]), float(sd.outer[0, 0])
    size, size_sd = np.r_[total, value.group_size], np.r_[total_sd, sd.group_size]
    identities = upheld(frame.parts, size, size_sd, FEW_SDS)
    if not len(identities):
        return plain
    score, score_cov = reconcile_of.reconcile(value.score, sd.score, identities)
    square, square_cov = reconcile_of.reconcile(value.square, sd.square, identities)
    if frame.group_masses:
        # the prior of the whole mass is one more measurement of the mass
        size[0], size_sd[0] = plain.mass / frame.kept, plain.mass_sd / frame.kept
        least = PRIORS.least_mass * frame.size
        size, size_cov = reconcile_of.reconcile_within(size, size_sd, identities, (least, np.inf))
        mass, mass_sd = frame.kept * float(size[0]), frame.kept * float(_sd(size_cov)[0])
    else:
        size, size_cov = reconcile_of.reconcile_within(size, size_sd, identities, frame.size_limits)
        frame = replace(frame, size=float(size[0]))
        mass, mass_sd = shrunken_mass(value.mass, sd.mass, frame)
    value = replace(value, score=score, square=square, group_size=size[1:])
    sds = [_sd(cov) for cov in (score_cov, square_cov, size_cov)]
    sd = replace(sd, score=sds[0], square=sds[1], group_size=sds[2][1:])
    return Sums(value, sd, frame, mass, mass_sd, GroupNoise(score_cov, size_cov, identities))


def _sd(cov: Matrix) -> Vector:
    """Standard deviations; rounding may make a zero variance negative."""
    return np.asarray(np.sqrt(np.maximum(np.diag(cov), 0.0)))


def with_design_effect(found: AverageEstimate, max_rows: int) -> AverageEstimate:
    """`found` with sampling variances for units of up to `max_rows` rows, however similar.

    A unit's k rows have E[(sum x)(sum x)'] <= k sum E[x x'] (Cauchy-Schwarz), with equality for
    identical rows. This is a design effect (Kish 1965) of at most `max_rows`. The release does not
    show which rows belong together, so the maximum is used.
    """
    return replace(found, sampling=max_rows * found.sampling, design_effect=float(max_rows))


def total_mass(value: JointData, sd: JointData, asked: JointAverage) -> float:
    """The sum of the masses by which an average divides its sum of scores."""
    return _sums(value.of(asked, noise=False), sd.of(asked, noise=True), asked.frame).mass


def raised(total: float, noise_sd: float, floor: float) -> float:
    """A noisy sum of squares, at least `floor`, plus one noise sd.

    Standard errors that are too small as often as too large undercover. Adding one sd more than
    compensates.
    """
    return max(total, floor) + noise_sd


def shrunken_mass(total: float, noise_sd: float, frame: SumsContext) -> tuple[float, float]:
    """Precision-weighted mean of the noisy sum of masses and its prior mean, and its noise sd.

    The result is at least the share `PRIORS.least_mass` of the prior mean. With almost no treated
    rows, this floor decides the width of the ATT's interval.
    """
    prior, prior_var = frame.size, (frame.size * frame.mass_spread) ** 2
    keep = prior_var / (prior_var + noise_sd**2)
    mass = max(prior + keep * (total - prior), PRIORS.least_mass * prior)
    return frame.kept * mass, float(frame.kept * np.sqrt(keep) * noise_sd)


def _slopes(
    value: ScoreData, sd: ScoreData, frame: SumsContext, mass: float
) -> tuple[Matrix, Vector, list[float]]:
    """Map from sum(score a) to (average, natural slopes); slopes on a; noise variances via a a'.

    With a pilot, products with z use scores less a'pilot. The released sums of a turn the sum of
    (psi - center) into the sum of (psi - a'pilot). Then H^-1 sum a (psi - a'pilot) + pilot is the
    projection of psi for any pilot. The noise in H multiplies only the effect that the pilot
    missed. The sums of a also turn distances from the middle of the clipping interval into
    distances from a value near the average: H is shrunk, and its error multiplies the intercept.
    """
    total, k = np.r_[value.score[0], value.slope], 1 + len(value.slope)
    lift = np.zeros((k, k))
    lift[0, 0] = 1.0 / mass
    if k == 1:
        return lift, total / mass, []
    gram, keep = well_conditioned(value.outer, frame.model, sd.outer)
    inverse = np.asarray(np.linalg.pinv(gram, hermitian=True), float)
    lift[1:] = frame.units[:, None] * inverse[1:]
    pilot, middle = frame.pilot, frame.middle
    near = frame.centre - middle
    away = np.zeros(k) if pilot is None else np.r_[pilot[0] - near, pilot[1:]]
    total += middle * value.outer[0]
    total[0] -= value.outer[0] @ away
    slopes = inverse @ total
    noise = keep**2 * lift[1:] ** 2 @ (sd.outer**2 @ slopes**2)
    noise += (middle * lift[1:] - np.outer(lift[1:, 0], away)) ** 2 @ sd.outer[0] ** 2
    if pilot is not None:
        slopes = slopes + pilot
        slopes[0] -= near
    slopes[0] -= middle
    return lift, slopes, noise.tolist()


def _meat(sums: Sums, slopes: Vector, variance: float, *, robust: bool) -> Matrix:
    """Sampling covariance of sum(score a): HC0's sum of squared residuals times a a', or s2 H.

    The rows give sum(score^2 a a'). The mean over the synthetic population gives its fitted part
    (a'b)^2 a a', which is subtracted, as E[score | a] = a'b under the projection.
    """
    value, sd, frame, model = sums.value, sums.sd, sums.frame, sums.frame.model
    if robust and value.meat.size:
        fitted = frame.weighted((frame.points @ slopes) ** 2)
        values, vectors = np.linalg.eigh(value.meat - fitted)
        # raised by its own noise: eigenvalues of a noisy matrix err by about sqrt(k) sd
        lift = float(sd.meat.mean()) * np.sqrt(len(model))
        least = PRIORS.least_spread * float(np.linalg.eigvalsh(value.meat)[0])
        return np.asarray((vectors * np.maximum(values + lift, max(least, 0.0))) @ vectors.T)
    centred = model - np.outer(model[0], model[0]) / model[0, 0]
    explained = float(slopes[1:] @ centred[1:, 1:] @ slopes[1:]) / frame.size
    return np.asarray(max(variance - explained, PRIORS.least_unexplained * variance) * model)


def _with_groups(out: AverageEstimate, groups: tuple[Place, ...], sums: Sums) -> AverageEstimate:
    """`out` with the groups added; a group that is too small to detect is NaN.

    Groups without masses of their own use the mean mass of all rows, M / n. A group's effect is
    then S_g / (n_g M / n). The noise of all three sums counts, and row i changes the effect by
    (score_i - d mass_i) / (n_g M / n).
    """
    value, sd, frame, mass, mass_sd = sums.value, sums.sd, sums.frame, sums.mass, sums.mass_sd
    m, k = len(out.terms), len(groups)
    estimate = np.r_[out.estimate, np.full(k, np.nan)]
    sampling, privacy = np.zeros((m + k, m + k)), np.zeros((m + k, m + k))
    sampling[:m, :m], privacy[:m, :m] = out.sampling, out.privacy
    overall = mass / out.size
    variance = float(out.sampling[0, 0]) * out.size * overall**2
    balance, balance_sd, kept = overall, mass_sd / out.size, 1.0
    if frame.group_masses:
        balance, balance_sd, kept = 1.0, 0.0, frame.kept
    for j, at in enumerate(range(m, m + k), 1):
        rows, rows_sd = kept * float(value.group_size[j - 1]), kept * float(sd.group_size[j - 1])
        if rows <= FEW_SDS * rows_sd:
            sampling[at, at] = np.inf
            continue
        mean = float(value.score[j]) / (rows * balance)
        floor = PRIORS.least_unexplained * variance * rows
        total = raised(float(value.square[j]), float(sd.square[j]), floor)
        estimate[at] = frame.centre + mean
        square, apart = total / rows, mean * balance
        left = max(square - apart**2, frame.least_variance(square, apart))
        sampling[at, at] = left / (rows * balance**2)
        noise = (float(sd.score[j]) / balance) ** 2 + (mean * rows_sd) ** 2
        privacy[at, at] = noise / rows**2 + (mean * balance_sd / balance) ** 2
    whole = sums.mass / kept if frame.group_masses else frame.size
    return AverageEstimate(
        out.terms, in_places(out.terms[:1], groups), estimate, sampling, privacy,
        np.r_[out.clipping, np.full(k, frame.clipping)],
        np.r_[out.remainder, np.full(k, frame.remainder.rms)], out.size, size_sd=out.size_sd,
        shares=sums.value.group_size / whole, shares_sd=sums.sd.group_size / whole,
    )  # fmt: skip


def slopes_in_sums(
    found: AverageEstimate, mean: float, by_score: Vector, sums: Sums
) -> tuple[Matrix, Matrix, Vector]:
    """Derivatives of the terms and groups in the sums of scores and sizes, and in the mass.

    `mean` is the average less the center, and `by_score` the terms' slopes in the sum of all
    scores. Sums are over all rows, then the groups: shape (m + G, 1 + G) twice, and (m + G,). If
    groups have masses, the first size is the mass.
    """
    frame, mass = sums.frame, sums.mass
    m, k = len(found.terms), len(found.groups)
    own = found.estimate[m:] - frame.centre
    seen = np.isfinite(own)
    own = np.where(seen, own, 0.0)
    rows = np.where(seen, sums.value.group_size, 1.0)
    if frame.group_masses:
        rows, whole, balance = frame.kept * rows, mass, 1.0
    else:
        whole, balance = frame.size, mass / frame.size
    score, size, by_mass = np.zeros((m + k, 1 + k)), np.zeros((m + k, 1 + k)), np.zeros(m + k)
    score[:m, 0] = by_score
    score[m:, 1:] = np.diag(seen / (rows * balance))
    size[m:, 1:] = np.diag(-own / rows)
    if frame.group_masses:
        size[0, 0] = -mean / mass
        size *= frame.kept
    else:
        size[m:, 0] = own / whole
        by_mass[0], by_mass[m:] = -mean / mass, -own / mass
    return score, size, by_mass


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
    held = (vectors * np.clip(values, *PRIORS.eigenvalues)) @ vectors.T
    back = np.linalg.inv(factor)
    return np.asarray(back @ held @ back.T), keep


# -- several averages from one release --------------------------------------------------------

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

    Parameters
    ----------
    points : Matrix
        Shape (n, J).
    weights : Matrix
        W, positive definite: the weights of the averages' variances.
    """
    root, inverse = (matrix_power(weights, p) for p in (0.5, -0.5))
    x = points @ root
    law = np.full(len(x), 1.0 / len(x))
    for _ in range(SHAPE_ROUNDS):
        moments = (x.T * law) @ x
        moments += THIN * np.trace(moments) * np.eye(len(moments))
        shape = matrix_power(moments, 0.5)
        reach = (x @ np.linalg.inv(shape) * x).sum(axis=1)
        law = law * np.maximum(reach, 0.0)
        law /= law.sum()
    return np.asarray(inverse @ (shape * reach.max()) @ inverse)


def matrix_power(matrix: Matrix, power: float) -> Matrix:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 1e-300) ** power) @ vectors.T)


@dataclass(frozen=True, eq=False)
class JointAverage:
    """One of the averages of a release.

    Attributes
    ----------
    terms : tuple of ResultTerm
        The average, then its slopes; only an average released alone has slopes.
    parts : Vector
        Its score as a combination of the released scores, shape (J,).
    mass : int
        The place of its mass among the released sizes; the first size counts rows.
    """

    terms: tuple[ResultTerm, ...]
    parts: Vector
    mass: int
    frame: SumsContext


@dataclass(frozen=True, eq=False)
class JointData:
    """Released sums, or the noise sds of their entries; P = 1 + G places: all rows, then groups.

    The shapes are `score` (J, P), `size` (1 + K, P) of rows and masses, and `square` (P, J, J). If
    there is only one score, `slope` (k - 1,) has its products with z, and `outer` and `meat` are as
    in `ScoreData`.
    """

    score: Matrix
    size: Matrix
    square: Matrix
    slope: Vector
    outer: Matrix
    meat: Matrix

    def of(self, asked: JointAverage, *, noise: bool) -> ScoreData:
        """Sums of one average, or their noise sds; the parts of a noise sd add up in squares."""
        own, pairs = asked.parts, np.outer(asked.parts, asked.parts)
        if noise:
            score = np.sqrt(own**2 @ self.score**2)
            twice = np.triu(2 * pairs) - np.diag(np.diag(pairs))
            square = np.sqrt((twice**2 * self.square**2).sum(axis=(1, 2)))
        else:
            score, square = own @ self.score, (pairs * self.square).sum(axis=(1, 2))
        mass, sizes = float(self.size[asked.mass, 0]), self.size[:, 1:]
        sizes = sizes[asked.mass if asked.frame.group_masses else 0]
        return ScoreData(score, square, self.slope, self.outer, mass, sizes, self.meat)


def estimate_averages(
    asked: Sequence[JointAverage],
    groups: tuple[Place, ...],
    value: JointData,
    sd: JointData,
    *,
    robust: bool = False,
) -> AverageEstimate:
    """Averages, then the groups of each, with their joint covariance.

    Estimates and variances are as in `estimate_average`. Privacy noise: the released scores have
    independent noise of one sd, so covariances follow by the delta method. Sizes and masses that
    averages share are treated in the same way. Sampling: covariances follow from the released
    products of scores.
    """
    found, sums = [], []
    for a in asked:
        parts = value.of(a, noise=False), sd.of(a, noise=True)
        one, own = estimate_average(a.terms, groups, *parts, a.frame, robust=robust)
        found.append(one)
        sums.append(own)
    if len(found) == 1:
        return found[0]
    privacy = _privacy(asked, found, sums, sd)
    sampling = _sampling(asked, found, sums, value)
    r, places = len(asked), 1 + len(groups)
    order = reconcile_of.terms_first(r, places)
    estimate, clipping, remainder = (
        np.concatenate([getattr(one, name) for one in found])[order]
        for name in ("estimate", "clipping", "remainder")
    )
    terms = tuple(a.terms[0] for a in asked)
    return AverageEstimate(
        terms, in_places(terms, groups), estimate, sampling[np.ix_(order, order)],
        privacy[np.ix_(order, order)], clipping, remainder, found[0].size, size_sd=found[0].size_sd,
        shares=np.concatenate([one.shares for one in found]),
        shares_sd=np.concatenate([one.shares_sd for one in found]),
    )  # fmt: skip


def _privacy(
    asked: Sequence[JointAverage], found: list[AverageEstimate], sums: list[Sums], sd: JointData
) -> Matrix:
    """Noise covariance, average by average, each with its groups; shape (R P, R P)."""
    places, noise_sd = sd.score.shape[1], float(sd.score[0, 0])
    by_score, by_size, sizes = [], [], [a.mass if a.frame.group_masses else 0 for a in asked]
    for a, one, own in zip(asked, found, sums, strict=True):
        mean = float(one.estimate[0]) - a.frame.centre
        score, size, mass = slopes_in_sums(one, mean, np.array([1 / own.mass]), own)
        if own.noise is None:
            whole = own.mass_sd / a.frame.kept if a.frame.group_masses else sd.size[0, 0]
            cov = np.diag(np.r_[whole, own.sd.group_size] ** 2)
        else:  # for readings of one sd, least squares is a projection
            scale = noise_sd**2 * float(a.parts @ a.parts)
            score = score @ own.noise.score / scale if scale > 0 else score
            cov = own.noise.size
        by_score.append(np.kron(a.parts, score))
        by_size.append(np.hstack([size @ matrix_power(cov, 0.5), own.mass_sd * mass[:, None]]))
    slopes = np.vstack(by_score) * noise_sd
    same = np.repeat(np.repeat(np.equal.outer(sizes, sizes), places, 0), places, 1)
    every = np.vstack(by_size)
    out = slopes @ slopes.T + same * (every @ every.T)
    own_variance = np.concatenate([np.diag(one.privacy) for one in found])
    return np.asarray(out + np.diag(np.maximum(own_variance - np.diag(out), 0.0)))


def _sampling(
    asked: Sequence[JointAverage], found: list[AverageEstimate], sums: list[Sums], value: JointData
) -> Matrix:
    """Sampling covariance, average by average, by the rules of `reconcile.joint_sampling`.

    At each place the released products give the covariance of the averages. It is raised to the
    variances that each average has when estimated alone. A group's rows change an average by their
    share p times the change of their own average. The covariance of the averages with a group is
    therefore diag(p) times the group's covariance. It is lowered until the parts of a column do not
    exceed the whole. Other pairs of groups are independent given the averages.
    """
    r, places = len(asked), value.score.shape[1]
    parts = np.stack([a.parts for a in asked])
    own = np.stack([np.diag(one.sampling) for one in found])  # (R, P)
    at = [_moments(a, one, s) for a, one, s in zip(asked, found, sums, strict=True)]
    weight, mean = (np.stack(one) for one in zip(*at, strict=True))
    blocks, out = np.zeros((places, r, r)), np.zeros((r, places, r, places))
    for p in range(places):
        products = np.outer(weight[:, p], weight[:, p]) * (parts @ value.square[p] @ parts.T)
        # the nearest covariance, with at least the variances that are finite
        nearest = positive_part(products - np.outer(mean[:, p], mean[:, p]))
        lacking = np.where(np.isfinite(own[:, p]), own[:, p], 0.0) - np.diag(nearest)
        blocks[p] = out[:, p, :, p] = nearest + np.diag(np.maximum(lacking, 0.0))
    noise = sums[0].noise
    if noise is not None and all(one.noise is not None for one in sums):
        share = np.stack([s.share(one) for s, one in zip(sums, found, strict=True)])
        with_groups = np.zeros((places, r, r))  # covariances of averages and groups
        same = np.eye(places, dtype=bool)
        inverse = np.linalg.pinv(blocks[0], hermitian=True)
        for identity in noise.identities:
            column = np.flatnonzero(identity[1:]) + 1
            part = share[:, column - 1].T[:, :, None] * blocks[column]
            total = np.einsum("gij,jg->ij", part, share[:, column - 1])
            most = float(np.linalg.eigvals(inverse @ total).real.max())
            with_groups[column] += part / max(most, 1.0)
            same[np.ix_(column, column)] = True
        for g in range(1, places):
            out[:, 0, :, g], out[:, g, :, 0] = with_groups[g], with_groups[g].T
            for h in range(1, places):
                if not same[g, h]:
                    out[:, g, :, h] = with_groups[g].T @ inverse @ with_groups[h]
    cov = out.reshape(r * places, r * places)
    cov[np.diag_indices_from(cov)] = np.where(np.isfinite(own.ravel()), np.diag(cov), np.inf)
    return cov


def _moments(asked: JointAverage, found: AverageEstimate, sums: Sums) -> tuple[Vector, Vector]:
    """By place: the slope in a row's score, and the mean score in standard errors of one row."""
    score, _, _ = slopes_in_sums(found, 0.0, np.array([1 / sums.mass]), sums)
    mean = found.estimate - asked.frame.centre
    rows = np.r_[sums.frame.size, sums.share(found) * sums.frame.size]
    return np.diag(score).copy(), np.where(np.isfinite(mean), mean, 0.0) / np.sqrt(rows)
