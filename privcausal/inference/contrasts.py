"""Linear contrasts of released averages, and ratios of two risks: functions of their joint law."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from privcausal.inference.average import AverageEstimate, covering
from privcausal.typing import Matrix, Vector

ANGLES = 720
"""Points of an ellipse at which a ratio's extremes are first looked for."""


class Contrasted(NamedTuple):
    """Estimates of contrasts, standard errors, bounds of the bias, and covariance of the noise."""

    estimate: Vector
    sd: Vector
    bias: Vector
    cov: Matrix

    def half_widths(self, z: float) -> Vector:
        """As `AverageEstimate.half_widths`."""
        return covering(z, self.bias, self.sd)


def contrasted(found: AverageEstimate, weights: Matrix, more: Vector) -> Contrasted:
    """Sums of the averages by `weights`, shape (k, m).

    Sampling and noise by their joint covariance. How biases of two averages go together is not
    known: the bound for clipped scores, and the root mean square of the bias by nuisances, of a sum
    is at most the sum of theirs (Minkowski). If one vector of clipped scores moves all estimates,
    the bound of a sum is the largest move along it. `more` are further sds, of weights that were
    released, shape (k,), which are added likewise.
    """
    joint = found.sampling + found.privacy
    seen = np.isfinite(found.estimate) & np.isfinite(np.diag(joint))
    known = np.where(np.outer(seen, seen), joint, 0.0)
    lost = (weights[:, ~seen] != 0).any(axis=1)
    size = np.abs(weights)
    cov = weights @ known @ weights.T
    estimate = weights @ np.where(seen, found.estimate, 0.0)
    noise = np.sqrt(np.maximum(np.diag(cov), 0.0)) + more
    sd = np.hypot(noise, size @ found.remainder)
    joined = found.moved.size > 0
    bias = np.linalg.norm(weights @ found.moved, axis=1) if joined else size @ found.clipping
    return Contrasted(np.where(lost, np.nan, estimate), np.where(lost, np.inf, sd), bias, cov)


class RatioLimits(NamedTuple):
    """Estimate of a ratio, standard error, bound of the bias, and limits (0 and infinite too)."""

    estimate: float
    std_error: float
    max_bias: float
    low: float
    high: float
    privacy_share: float


def ratio_limits(found: AverageEstimate, at: tuple[int, int], kind: str, z: float) -> RatioLimits:
    """Limits of E[Y(1)] / E[Y(0)], or of the ratio of their odds, by the joint law of both.

    They are the ratio's extremes over the risks within `z` standard errors of the released ones
    (an ellipse), which for the plain ratio are Fieller's (1954) limits and hold however few events
    there are. Where a risk within reach is 0 (or, for odds, 1) there is no limit on that side. The
    standard error is by the delta method.

    Parameters
    ----------
    at : (int, int)
        Places of E[Y(0)] and E[Y(1)] in `found`.
    kind : {"RR", "OR"}
    """
    rows = list(at)
    risk, privacy = found.estimate[rows], found.privacy[np.ix_(rows, rows)]
    # twice the squared bounds of bias: of any difference of the two they are no less than its own
    random = found.sampling[np.ix_(rows, rows)] + privacy + np.diag(found.remainder[rows] ** 2)
    cov = random + 2 * np.diag(found.clipping[rows] ** 2)
    none = RatioLimits(np.nan, np.nan, np.nan, 0.0, np.inf, np.nan)
    if not (np.isfinite(risk).all() and np.isfinite(cov).all()):
        return none
    log: Callable[[Vector], float] = _log_odds_ratio if kind == "OR" else _log_ratio
    low, high = _extremes(log, risk, cov, z)
    if not ((risk > 0) & ((risk < 1) | (kind == "RR"))).all():
        return none._replace(low=float(np.exp(low)), high=float(np.exp(high)))
    slope = np.array([-1.0, 1.0]) / (risk * (1 - risk) if kind == "OR" else risk)
    variance, value = float(slope @ random @ slope), float(np.exp(log(risk)))
    share = float(slope @ privacy @ slope) / variance if variance > 0 else np.nan
    bias = value * float(np.abs(slope) @ found.clipping[rows])
    return RatioLimits(
        value, value * float(np.sqrt(variance)), bias, float(np.exp(low)), float(np.exp(high)),
        share,
    )  # fmt: skip


def late_limits(found: AverageEstimate, z: float) -> tuple[float, float]:
    """Limits of Anderson and Rubin (1949) for the ratio of an instrument's slopes.

    They hold every theta at which reduced form - theta first stage is within `z` standard errors
    of 0, the bound of cut scores and the remainder included; which holds however weak the
    instrument is. Where a first stage of 0 is within reach, there is no limit.
    """
    slopes = slice(1, 3)
    estimate, joint = found.estimate[slopes], (found.sampling + found.privacy)[slopes, slopes]
    moved, remainder = found.moved[slopes], found.remainder[slopes]
    if not (np.isfinite(estimate).all() and np.isfinite(joint).all()):
        return -np.inf, np.inf
    bound = found.clipping[slopes] ** 2
    scale = np.sqrt(np.maximum(np.diag(found.cov)[slopes] + bound, 1e-300))

    def beyond(angle: Vector) -> Vector:
        """How far cos(angle) reduced - sin(angle) first, in their sds, is outside of its limits."""
        weight = np.column_stack([np.cos(angle), -np.sin(angle)]) / scale
        variance = np.maximum(((weight @ joint) * weight).sum(axis=1), 0.0)
        spread = np.sqrt(variance + (np.abs(weight) @ remainder) ** 2)
        limit = covering(z, np.linalg.norm(weight @ moved, axis=1), spread)
        return np.asarray(np.abs(weight @ estimate) - limit)

    # theta is tan(angle) by the sds' ratio, and has no end where the right angle is not beyond
    if beyond(np.array([np.pi / 2]))[0] <= 0:
        return -np.inf, np.inf
    middle = float(np.arctan2(*(estimate / scale * np.sign(estimate[1]))))
    low, high = (_end(beyond, middle, end) for end in (-np.pi / 2, np.pi / 2))
    ratio = float(scale[0] / scale[1])
    return ratio * float(np.tan(low)), ratio * float(np.tan(high))


def _end(beyond: Callable[[Vector], Vector], inside: float, outside: float) -> float:
    """The furthest angle that is not beyond, between one that is not and one that is."""
    angles = np.linspace(inside, outside, ANGLES)
    held = beyond(angles) <= 0
    if not held[0]:  # without spread
        return inside
    last = int(np.flatnonzero(held)[-1])
    near, far = angles[last : last + 2]
    return float(brentq(lambda angle: float(beyond(np.array([angle]))[0]), near, far, xtol=1e-14))


def _log_ratio(risk: Vector) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        control, treated = np.log(np.maximum(risk, 0.0))
        return float(treated - control)


def _log_odds_ratio(risk: Vector) -> float:
    return _log_ratio(risk) - _log_ratio(1 - risk)


def _extremes(
    log: Callable[[Vector], float], risk: Vector, cov: Matrix, z: float
) -> tuple[float, float]:
    """Least and largest logarithm over the ellipse; both risks of it may be 0, or 1."""
    values, vectors = np.linalg.eigh(cov)
    root = z * vectors * np.sqrt(np.maximum(values, 0.0))
    reach = np.sqrt((root**2).sum(axis=1))

    def at(angle: float) -> float:
        return log(risk + root @ np.array([np.cos(angle), np.sin(angle)]))

    low, high = risk - reach, risk + reach
    odds = log is _log_odds_ratio
    no_low = low[1] <= 0 or (odds and high[0] >= 1)
    no_high = low[0] <= 0 or (odds and high[1] >= 1)
    step = 2 * np.pi / ANGLES
    angles = np.arange(ANGLES) * step
    found = np.array([at(angle) for angle in angles]) if not (no_low and no_high) else angles

    def best(sign: float) -> float:
        inside = np.where(np.isfinite(found), sign * found, np.inf)
        middle = float(angles[int(np.argmin(inside))])
        near = minimize_scalar(
            lambda angle: sign * at(angle),
            bounds=(middle - step, middle + step),
            method="bounded",
            options={"xatol": 1e-10},
        )
        return sign * min(float(near.fun), float(inside.min()))

    return -np.inf if no_low else best(1.0), np.inf if no_high else best(-1.0)
