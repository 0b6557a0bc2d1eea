"""Right-censored outcomes: counts of times by arm, and scores in place of the outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from privcausal.accounting import Release
from privcausal.estimators import budget
from privcausal.inference.effects import FEW_SDS, AverageEstimate
from privcausal.request.request import Request, StageKey
from privcausal.typing import Matrix, Vector
from privcausal.vault import FollowUp, SurvivalCounts

# -- curves and areas --------------------------------------------------------------------------

LEAST_FOLLOWED = 0.25
"""Least divisor of a score, a probability of no censoring. It bounds the scores.

0.1 let noise in the last bins widen intervals twofold at eps = 0.5, on seeds from 0 of
`tests/benchmarks/survival.py`. 0.4 would be reached in many studies.
"""

REPLICAS = 200
"""Replicas of the noise, for its effect on curves and means. Their variances have 10% error."""

_PUBLIC_SEED = 7_072  # Public seed of the quadrature points for the effect of the noise.


class ArmCurve(NamedTuple):
    """Kaplan-Meier curves of one arm by bin of time, or of its replicas, shape (..., bins)."""

    counts: Matrix  # Rows by kind of end (an event, or another end) and bin, shape (..., 2, bins)
    risk: Vector  # Rows whose time is in the bin or later
    hazard: Vector  # Share of the rows at risk with an event in the bin
    survival: Vector  # Probability of no event by the end of the bin
    # Probability of no censoring before the bin; events precede censorings in a bin
    followed: Vector

    def replicas(self, noise_sd: float, root: Matrix) -> ArmCurve:
        """Curves of these counts with new noise, shape (`REPLICAS`, bins)."""
        rng = np.random.default_rng(_PUBLIC_SEED)
        noise = noise_sd * rng.standard_normal((REPLICAS, *self.counts.shape))
        return arm_curve(self.counts @ root.T + noise, root)

    def cov(self, replicas: ArmCurve, design_effect: float) -> Matrix:
        """Covariance of `survival`, shape (bins, bins): Greenwood's (1926), and of the noise.

        `design_effect` multiplies Greenwood's part.
        """
        left = np.maximum(self.risk * (1 - self.hazard), 1.0)
        greenwood = design_effect * np.cumsum(self.hazard / left)
        place = np.arange(len(greenwood))
        log = greenwood[np.minimum(place, place[:, None])]
        noise = replicas.survival - self.survival
        return np.asarray(log * np.outer(self.survival, self.survival) + noise.T @ noise / REPLICAS)


def arm_curve(released: Matrix, root: Matrix) -> ArmCurve:
    """Curves from released sums of events and other ends, shape (..., 2, bins).

    ``root @ released`` are suffix sums of the counts. They are made nonnegative and monotone.
    Without noise, the curves are Kaplan-Meier curves (Kaplan and Meier 1958).
    """
    sums = released @ root.T
    down = np.minimum.accumulate(sums, axis=-1)
    up = np.maximum.accumulate(sums[..., ::-1], axis=-1)[..., ::-1]
    counts = -np.diff(np.maximum((down + up) / 2, 0.0), axis=-1, append=0.0)
    risk = np.cumsum(counts.sum(axis=-2)[..., ::-1], axis=-1)[..., ::-1]
    events, others = counts[..., 0, :], counts[..., 1, :]
    hazard = np.divide(events, risk, out=np.zeros_like(risk), where=risk > 0)
    left = risk - events
    censored = np.divide(others, left, out=np.zeros_like(left), where=left > 0)[..., :-1]
    whole = np.ones((*censored.shape[:-1], 1))
    return ArmCurve(
        counts=counts,
        risk=risk,
        hazard=hazard,
        survival=np.asarray(np.cumprod(1 - hazard, axis=-1)),
        followed=np.cumprod(np.concatenate([whole, 1 - censored], axis=-1), axis=-1),
    )


def scores(curve: ArmCurve, value: Vector, last: float) -> Matrix:
    """Scores of rows by their kind of end and bin, shape (..., 2, bins).

    `value` is the outcome f of an event in each bin, and `last` is f without an event.
    The score is the mean of f plus an augmented inverse probability weighted error (Robins and
    Rotnitzky 1992; Tsiatis 2006, Chapter 10):

        m + sum_k (1(event in k) - 1(at risk in k) hazard_k) (f_k - m_k) / G_k,

    where m is the mean of f, m_k its mean after bin k, and G_k = `followed`, which is held above
    `LEAST_FOLLOWED`. If G is right, the mean score equals the mean of f given any covariates, for
    any hazard. If the hazard is right, both means over the arm are equal for any G. Without noise,
    the mean over the arm is the Kaplan-Meier estimate.
    """
    hazard = curve.hazard
    after = np.full(hazard.shape, last)  # m_k
    for k in range(len(value) - 2, -1, -1):
        after[..., k] = after[..., k + 1] + hazard[..., k + 1] * (value[k + 1] - after[..., k + 1])
    first = after[..., :1] + hazard[..., :1] * (value[0] - after[..., :1])
    step = (value - after) / np.maximum(curve.followed, LEAST_FOLLOWED)
    ended = first - np.cumsum(hazard * step, axis=-1)
    return np.stack([ended + step, ended], axis=-2)


def noise_square(curve: ArmCurve, replicas: ArmCurve, value: Vector, last: float) -> float:
    """Mean square of the error that noise in the counts adds to the mean score of an arm.

    It is the mean over replicas of the noise, for rows as in `curve`. The mean score is the sum of
    products of errors of the hazard and of `followed`, so noise has no effect of first order.
    """
    total, noisy = (
        np.sum(scores(curves, value, last) * curve.counts, axis=(-2, -1))
        for curves in (curve, replicas)
    )
    return float(np.mean((noisy - total) ** 2) / max(float(curve.counts.sum()), 1.0) ** 2)


# -- the estimator -----------------------------------------------------------------------------

SURVIVAL_COUNTS = StageKey("effect", "survival times")

FEW_FOLLOWED = (
    "Few rows of an arm are followed to the horizon {horizon:g}, possibly none (noisy counts). "
    "Estimates beyond the last follow-up rely on noise. Use a shorter horizon."
)


SURVIVAL_STEP = budget.Step(SURVIVAL_COUNTS, 0.3, ("horizon",))


def follow_up(request: Request) -> FollowUp:
    """The cells of the rows of a request with a horizon."""
    assert request.horizon is not None
    return FollowUp(request.formula.event, float(request.horizon))


def values(request: Request) -> tuple[Vector, float]:
    """The outcome of an event in each bin of time, and of no event by the horizon."""
    ends = times(request)
    return (np.ones(len(ends)), 0.0) if request.estimand == "risk" else (ends, float(ends[-1]))


def times(request: Request) -> Vector:
    """The end of each bin of time, from 0 to the horizon."""
    follow = follow_up(request)
    return np.linspace(0.0, follow.horizon, follow.bins + 1)


def arm_curves(request: Request, releases: Sequence[Release]) -> list[tuple[ArmCurve, ArmCurve]]:
    """The curves of the controls and of the treated with replicas, from a fit's releases."""
    query = SurvivalCounts(follow_up(request))
    (release,) = (part for part in releases if part.charge.query == query.query)
    sd = float(release.noise_sd[0])
    curves = [arm_curve(sums, query.root) for sums in release.value.reshape(query.follow.shape)]
    return [(curve, curve.replicas(sd, query.root)) for curve in curves]


def survival_alerts(
    request: Request, curves: Sequence[tuple[ArmCurve, ArmCurve]], release: Release
) -> dict[str, str]:
    """Alerts on follow-up and on the coding of times and events.

    Few rows are followed to the horizon: by the curve, or compared with noise. No row is censored,
    or many times are not above 0, and noise does not hide it.
    """
    alerts = {}
    for curve, replicas in curves:
        noise_sd = FEW_SDS * float(np.std(replicas.risk[:, -1]))
        if curve.followed[-1] <= LEAST_FOLLOWED or curve.risk[-1] <= noise_sd:
            alerts["censoring"] = FEW_FOLLOWED.format(horizon=request.horizon)
    query = SurvivalCounts(follow_up(request))
    root, released = query.root, release.value.reshape(query.follow.shape)
    before, at_zero = root[0] - root[-1], root[0] - root[1]  # weights of the two counts
    censored, early = float(np.sum(released[:, 1] @ before)), float(np.sum(released @ at_zero))
    noise = FEW_SDS * float(release.noise_sd[0]) * np.linalg.norm([before, at_zero], axis=1)
    limit = MOST_UNTOLD * float(np.sum(released @ root[0]))
    names = {"time": request.formula.outcome, "event": request.formula.event}
    if abs(censored) <= np.sqrt(2) * noise[0] <= limit:  # two arms
        alerts["events"] = NONE_CENSORED.format(**names)
    if early - 2 * noise[1] > limit:  # two arms, two kinds of end
        alerts["times"] = NOT_POSITIVE.format(**names)
    return alerts


MOST_UNTOLD = 0.1
"""Share of rows that noise may hide, and of times at or below 0, for an alert on the coding."""

NONE_CENSORED = (
    "No row is censored before the horizon (noisy counts). Check the coding of {event!r}: 1 is an "
    "event, 0 a censored time, and all other values are missing. If it is coded 1 and 2, declare "
    "the censored label first: bounds={{{event!r}: ['1', '2']}}."
)

NOT_POSITIVE = (
    "Many times {time!r} are 0 or negative (noisy counts). They count as 0. Check their origin and "
    "their unit."
)


def with_survival_noise(
    request: Request, curves: Sequence[tuple[ArmCurve, ArmCurve]], estimate: AverageEstimate
) -> AverageEstimate:
    """The estimate with the variance that noise in the survival times adds, if there are curves."""
    if not curves:
        return estimate
    added = sum(noise_square(*pair, *values(request)) for pair in curves)
    return replace(estimate, privacy=estimate.privacy + added)


def measured(request: Request) -> str:
    """The outcome of a request with a horizon, within a sentence; otherwise an empty text."""
    if request.horizon is None:
        return ""
    formula, horizon = request.formula, f"{request.horizon:g}"
    if request.estimand == "risk":
        return f"the risk of {formula.event} by {formula.outcome} = {horizon}"
    return f"the mean of {formula.outcome} up to {horizon}"


CENSORING = (
    "Independent censoring: within each treatment arm, the time of censoring does not depend on "
    "the time of the event or on the covariates."
)

SURVIVAL_METHODS = (
    "Right-censored outcomes were replaced by augmented inverse probability of censoring weighted "
    "scores (Robins and Rotnitzky 1992), which are numbers for each arm, kind of end, and bin of "
    "time. They come from Kaplan-Meier curves of events and of censoring in each arm, from one "
    "noisy release of the times by arm. In an arm, noise changes the mean score only by products "
    "of an error of the event curve and an error of the censoring curve. Standard errors include "
    "the expected square of this change.",
)
