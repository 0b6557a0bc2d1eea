"""Conditional effects, contrasts, slopes, and sensitivity to unmeasured confounders.

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
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize_scalar
from scipy.special import expit

from privcausal.errors import CapabilityError
from privcausal.features.basis import Polynomials, combine
from privcausal.features.design import Design
from privcausal.features.functions import Additive, Function
from privcausal.features.rows import Rows
from privcausal.inference.averages import FEW_SDS, AverageEstimate, Noisy, Reading, covering
from privcausal.inference.priors import PRIORS
from privcausal.request.formula import ResultTerm
from privcausal.typing import Integers, Matrix, Vector

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
