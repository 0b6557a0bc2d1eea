"""Effects by instruments: two-stage least squares, and the confidence set of Anderson and Rubin.

An effect theta is in the set if the reduced forms less theta times the first stages are compatible
with zero, for all instruments together (Anderson and Rubin 1949). The set is valid for weak
instruments too. It is an interval, two half-lines, or all numbers. With several instruments it may
have more parts, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import chi2, norm

from privcausal.inference import effects
from privcausal.inference.averages import FEW_SDS, AverageEstimate
from privcausal.inference.intervals import covering, p_value
from privcausal.request.terms import late_terms
from privcausal.typing import Integers, Matrix, Vector

SET_ANGLES = 720
"""Angles that are tried for the ends of a set, a quarter of a degree apart."""


def estimate_reduced(
    instruments: Sequence[str],
    value: effects.VectorSums,
    sd: effects.VectorSums,
    centre: tuple[float, float],
    bias: float,
    remainder: Matrix,
    *,
    model: Matrix,
    size: float,
    units: tuple[Sequence[float], float],
) -> AverageEstimate:
    """The LATE, reduced forms and first stages, from scores d (Y - eta - c (T - e)), k d (T - e).

    With several instruments, slopes are the coefficients of regressions on all residuals d, and the
    LATE is two-stage least squares: the slopes' ratio, each weighted by the covariance of its
    instrument with the fitted treatment.

    Slopes are unknown for instruments that are combinations of others (`not_collinear`).

    `centre` is (c, k). `remainder` has the root mean square errors of the means of d (Y - eta) and
    d (T - e), shape (2, J). `units` are the widths that scaled the instruments and the treatment.
    The rest is as in `estimate_slopes`. The noise of sum d d' is common to all slopes. The ratio's
    row is by the delta method, which also holds if instruments have different effects (Lee 2018);
    for its limits see `late_set`.
    """
    total, mass, square = value
    mass, mass_sd = effects.posterior_mass(mass, sd[1], model, size)
    used = not_collinear(mass, mass_sd)
    both = np.r_[used, used + len(mass)]
    mass, mass_sd, model = (m[np.ix_(used, used)] for m in (mass, mass_sd, model))
    total, noise_sd, remainder = total[both], sd[0][both], remainder[:, used]
    square, square_sd = (m[np.ix_(both, both)] for m in (square, sd[2]))
    inverse = effects.bounded_inverse(mass, mass_sd, model, size)
    (c, k), taken, by, many = centre, units[1], np.array(units[0])[used], len(used)
    back = np.kron(np.array([[1.0, c / k], [0.0, taken / k]]), inverse) / np.tile(by, 2)[:, None]
    slopes = back @ total
    reduced, first = np.split(slopes, 2)
    # the covariance of each instrument with the treatment, up to a factor
    along = by * total[many:]
    norm = float(np.linalg.norm(along)) or 1.0
    along = along / norm if along.any() else np.ones(many)
    strength = float(along @ first)
    late = float(along @ reduced) / strength if strength else 0.0
    by_slopes = np.vstack([np.r_[along, -late * along] / (strength or 1e-300), np.eye(2 * many)])
    size_of = size * np.abs(inverse) / by[:, None]
    errors = np.r_[size_of @ remainder[0], size_of @ remainder[1] * taken]
    common = effects.mass_changes(np.stack([reduced, first]) * by, inverse, mass_sd)
    common = by_slopes @ (common / np.tile(by, 2)[:, None])
    back, errors = by_slopes @ back, np.abs(by_slopes) @ errors
    # the weights of the instruments change with the covariances
    back[0, many:] += by * (reduced - late * first) / (norm * (strength or 1e-300))
    # scale all scores to the same unit, or the floor of the largest would apply to the others
    unit = np.sqrt(np.maximum(np.diag(square), np.diag(square_sd)))
    units_ = np.outer(unit, unit)
    scaled = total / unit, square / units_, square_sd / units_
    spread = units_ * effects.raised_covariance(*scaled, size)
    sampling = back @ spread @ back.T
    privacy = back @ np.diag(noise_sd**2) @ back.T + common @ common.T
    moved, at, terms = size * bias * back, np.r_[0, 1 + both], late_terms(instruments)

    def placed(values: Vector, fill: float = 0.0) -> Vector:
        """Entries for all terms, given the entries for the terms in use, along the first axis."""
        out = np.full((len(terms), *values.shape[1:]), fill)
        out[at] = values
        return out

    unknown = np.diag(placed(np.zeros(len(at)), np.inf))
    return AverageEstimate(
        terms, (), placed(np.r_[late, slopes], np.nan), placed(placed(sampling).T) + unknown,
        placed(placed(privacy).T), placed(np.linalg.norm(moved, axis=1)), placed(errors), size,
        moved=placed(moved),
    )  # fmt: skip


def not_collinear(mass: Matrix, sd: Matrix) -> Integers:
    """Positions of instruments that are not combinations of earlier instruments.

    `sd` has the sds of the entries of `mass`, the sum d d'. An instrument is excluded if noise may
    explain its distance from all combinations of the instruments in use.
    """
    scale = np.sqrt(np.maximum(np.diag(mass), np.diag(sd)))
    scale = np.where(scale > 0, scale, 1.0)
    gram, error = mass / np.outer(scale, scale), sd / np.outer(scale, scale)
    used = list[int]()
    for k in range(len(mass)):
        apart = np.zeros(len(mass))
        apart[k] = 1.0
        apart[used] = -np.linalg.lstsq(gram[np.ix_(used, used)], gram[used, k], rcond=None)[0]
        apart /= np.linalg.norm(apart)
        weights = np.outer(apart, apart) * (2 - np.eye(len(mass)))
        noise = float(np.linalg.norm(np.triu(weights * error)))
        if apart @ gram @ apart > max(FEW_SDS * noise, effects.LEAST_DISTINCT):
            used.append(k)
    return np.array(used or [0])


@dataclass(frozen=True, eq=False)
class SlopeMoments:
    """Joint estimates of J reduced forms and J first stages, each in its own standard error.

    J counts the instruments in use. At an angle, the moments are cos(angle) reduced - sin(angle)
    first. They are 0 at the angle whose tangent is the effect, relative to `ratio`.
    """

    estimate: Matrix
    joint: Matrix
    moved: Matrix
    remainder: Matrix
    ratio: float

    @classmethod
    def of(cls, found: AverageEstimate) -> SlopeMoments | None:
        """None if no slope is known."""
        slopes = 1 + np.flatnonzero(np.isfinite(found.estimate[1:]))
        estimate = found.estimate[slopes]
        joint = (found.sampling + found.privacy)[np.ix_(slopes, slopes)]
        if not (len(slopes) and np.isfinite(joint).all()):
            return None
        bound, many = found.clipping[slopes] ** 2, len(estimate) // 2
        sds = np.sqrt(np.maximum(np.diag(found.cov)[slopes] + bound, 1e-300))
        # one scale for each instrument, because slopes depend on its unit
        by = sds[many:] / sds[many:].mean()
        # one scale for all reduced forms and one for all first stages, so that angles are the same
        own, first = (float(np.sqrt(np.mean((part / by) ** 2))) for part in np.split(sds, 2))
        scale = np.outer([own, first], by).ravel()
        return cls(
            (estimate / scale).reshape(2, many), joint / np.outer(scale, scale),
            found.moved[slopes] / scale[:, None],
            (found.remainder[slopes] / scale).reshape(2, many), own / first,
        )  # fmt: skip

    def at(self, angles: Vector) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        """Moments (N, J), covariances (N, J, J), changes by clipped scores, and nuisance errors."""
        many, weights = self.estimate.shape[1], np.stack([np.cos(angles), -np.sin(angles)], axis=1)
        mix = np.kron(weights, np.eye(many)).reshape(len(angles), many, -1)
        return (
            weights @ self.estimate, mix @ self.joint @ mix.transpose(0, 2, 1), mix @ self.moved,
            np.abs(weights) @ self.remainder,
        )  # fmt: skip

    def excess(self, angles: Vector, z: float) -> Vector:
        """Distance of the moments from 0 in standard errors, less its limit, shape (N,).

        With one instrument, the limit is that of an interval with a bounded bias. With J of them,
        it is the root of a quantile of chi-squared, plus the largest change by clipped scores. The
        dependence of nuisance errors is unknown, and (sum v_j r_j)^2 <= J sum v_j^2 r_j^2.
        """
        mean, cov, moved, errors = self.at(angles)
        many = mean.shape[1]
        if many == 1:
            spread = np.sqrt(np.maximum(cov[:, 0, 0], 0.0) + errors[:, 0] ** 2)
            limit = covering(z, np.linalg.norm(moved[:, 0], axis=1), spread)
            return np.asarray(np.abs(mean[:, 0]) - limit)
        total = cov + (many * errors**2 + LEAST_VARIANCE)[:, :, None] * np.eye(many)
        root = np.linalg.cholesky(total)
        away = np.linalg.norm(np.linalg.solve(root, mean[:, :, None])[:, :, 0], axis=1)
        shift = np.linalg.norm(np.linalg.solve(root, moved), 2, axis=(1, 2))
        return np.asarray(away - np.sqrt(chi2.isf(2 * norm.sf(z), many)) - shift)

    def one(self, angle: float, z: float) -> float:
        return float(self.excess(np.array([angle]), z)[0])

    def distance(self, angle: float) -> float:
        """The statistic of Anderson and Rubin less what clipped scores may add, at least 0."""
        return max(self.one(angle, 0.0), 0.0) ** 2


LEAST_VARIANCE = 1e-12
"""Added to variances of moments near 1, so that they can be factored without noise."""


class Fit(NamedTuple):
    """Tests of an effect by instruments."""

    strength: float  # Mean squared first stage over its variance (an F statistic), noise included
    # P value of the hypothesis that all instruments give one effect (Anderson and Rubin's statistic
    # at its least, J - 1 degrees of freedom); nan with one instrument
    p_agree: float
    p_zero: float  # P value of the effect 0, with J degrees of freedom


@lru_cache(maxsize=8)
def instrument_tests(found: AverageEstimate) -> Fit:
    own = SlopeMoments.of(found)
    if own is None:
        return Fit(np.nan, np.nan, np.nan)
    many = own.estimate.shape[1]
    mean, cov, _, errors = (part[0] for part in own.at(np.array([np.pi / 2])))
    total = cov + (many * errors**2 + LEAST_VARIANCE) * np.eye(many)
    strength = float(mean @ np.linalg.solve(total, mean)) / many
    if many == 1:
        at = 1 + np.flatnonzero(np.isfinite(found.estimate[1:]))[:1]
        p_zero = p_value(found.estimate[at], found.clipping[at], found.sd[at])
        return Fit(strength, np.nan, float(p_zero[0]))
    least = own.distance(_nearest(own)[1])
    return Fit(strength, float(chi2.sf(least, many - 1)), float(chi2.sf(own.distance(0.0), many)))


def _nearest(own: SlopeMoments) -> tuple[Vector, float]:
    """Angles to try, and the angle of the least distance."""
    angles = np.linspace(-np.pi / 2, np.pi / 2, SET_ANGLES, endpoint=False)
    near, step = float(angles[int(np.argmin(own.excess(angles, 0.0)))]), np.pi / SET_ANGLES
    ends = near - step, near + step
    best = minimize_scalar(lambda angle: own.one(angle, 0.0), bounds=ends, method="bounded")
    return angles, float(best.x)


@lru_cache(maxsize=8)
def late_set(found: AverageEstimate, z: float) -> tuple[tuple[float, float], ...]:
    """Intervals of effects that are within the limit for the quantile `z`, in ascending order.

    An interval without an end has an infinite limit.
    """
    own = SlopeMoments.of(found)
    if own is None:
        return ((-np.inf, np.inf),)
    angles, best = _nearest(own)
    angles = np.unique(np.r_[angles, (best + np.pi / 2) % np.pi - np.pi / 2])
    held = own.excess(angles, z) <= 0
    if held.all():
        return ((-np.inf, np.inf),)

    def end(inside: float, outside: float) -> float:
        return float(brentq(lambda angle: own.one(angle, z), inside, outside, xtol=1e-14))

    # start at an angle that is not held; the circle of angles has the length pi
    start = int(np.flatnonzero(~held)[0])
    order = np.r_[np.arange(start, len(angles)), np.arange(start + 1)]
    turned = angles[order] + np.pi * (np.arange(len(order)) >= len(angles) - start)
    inside, parts = held[order], list[tuple[float, float]]()
    for first in np.flatnonzero(~inside[:-1] & inside[1:]):
        last = first + 1 + int(np.argmin(inside[first + 1 :]))
        ends = end(turned[first + 1], turned[first]), end(turned[last - 1], turned[last])
        low, high = (own.ratio * float(np.tan(x)) for x in ends)
        crosses = any(ends[0] < right < ends[1] for right in (np.pi / 2, 3 * np.pi / 2))
        parts += [(-np.inf, high), (low, np.inf)] if crosses else [(low, high)]
    return tuple(sorted(parts))


def late_limits(found: AverageEstimate, z: float) -> tuple[float, float]:
    """Least and largest effect of `late_set`; nan if the set is empty."""
    parts = late_set(found, z)
    return (parts[0][0], parts[-1][1]) if parts else (np.nan, np.nan)
