"""Right-censored outcomes: counts of times by arm, and scores in place of the outcomes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from privcausal import vault
from privcausal.accounting import Release
from privcausal.estimators import budget, words
from privcausal.inference.averages import FEW_SDS, AverageEstimate
from privcausal.inference.survival import (
    LEAST_FOLLOWED,
    ArmCurve,
    arm_curve,
    noise_square,
    scores,
)
from privcausal.request.plan import StageKey
from privcausal.request.request import Request
from privcausal.request.schema import Interval, Transformed
from privcausal.typing import Vector

if TYPE_CHECKING:
    from privcausal.estimators.survey import FitRun

SURVIVAL_COUNTS = StageKey("effect", "survival times")

FEW_FOLLOWED = (
    "Few rows of an arm are followed to the horizon {horizon:g}, possibly none (noisy counts). "
    "Estimates beyond the last follow-up rely on noise. Use a shorter horizon."
)


def survival_needs(request: Request) -> list[budget.StageWeight]:
    """The release of survival times by arm, if the outcome is one."""
    if request.horizon is None:
        return []
    return [budget.StageWeight(SURVIVAL_COUNTS, budget.SHARES.survival_counts)]


def follow_up(request: Request) -> vault.FollowUp:
    """The cells of the rows of a request with a horizon."""
    assert request.horizon is not None
    return vault.FollowUp(request.formula.event, float(request.horizon))


def values(request: Request) -> tuple[Vector, float]:
    """The outcome of an event in each bin of time, and of no event by the horizon."""
    at = times(request)
    return (np.ones(len(at)), 0.0) if request.estimand == "risk" else (at, float(at[-1]))


def times(request: Request) -> Vector:
    """The end of each bin of time, from 0 to the horizon."""
    follow = follow_up(request)
    return np.linspace(0.0, follow.horizon, follow.bins + 1)


def released_times(estimate: words.Estimate) -> Release:
    """The release of the times by arm of a fit with a horizon."""
    query = vault.SurvivalCounts(follow_up(estimate.plan.request)).query
    (found,) = (one for one in estimate.releases if one.charge.query == query)
    return found


def arm_curves(request: Request, release: Release) -> list[tuple[ArmCurve, ArmCurve]]:
    """The curves of the controls and of the treated with replicas, from the released times."""
    query, sd = vault.SurvivalCounts(follow_up(request)), float(release.noise_sd[0])
    found = [arm_curve(one, query.root) for one in query.split(release.value)]
    return [(curve, curve.replicas(sd, query.root)) for curve in found]


def replace_outcome(session: FitRun) -> None:
    """Release the times by arm, and replace the outcome by a score with public bounds."""
    request = session.plan.request
    if request.horizon is None:
        return
    session.vault.set_layout(session.schema, (), ())
    query = vault.SurvivalCounts(follow_up(request))
    release = session.release(SURVIVAL_COUNTS, query)
    session.curves = arm_curves(request, release)
    table = np.stack([scores(curve, *values(request)) for curve, _ in session.curves])
    score = vault.SurvivalScore(query.follow, table)
    name, raw = request.formula.outcome, session.schema[request.formula.outcome]
    assert isinstance(raw, Interval)
    session.schema = session.schema.with_columns({name: Transformed(score.lo, score.hi, raw)})
    session.vault.score_survival(score)
    noise = float(release.noise_sd[0]) * np.linalg.norm(query.root[-1]) * np.sqrt(2.0)
    least = min(float(curve.risk[-1]) for curve, _ in session.curves)
    held = any(curve.followed[-1] <= LEAST_FOLLOWED for curve, _ in session.curves)
    if held or least <= FEW_SDS * noise:
        session.alerts["censoring"] = FEW_FOLLOWED.format(horizon=request.horizon)


def with_noise(session: FitRun, found: AverageEstimate) -> AverageEstimate:
    """`found` with the variance that noise in the survival times adds to the effect."""
    if not session.curves:
        return found
    own = values(session.plan.request)
    added = sum(noise_square(*pair, *own) for pair in session.curves)
    return replace(found, privacy=found.privacy + added)


def measured(request: Request) -> str:
    """The outcome of a request with a horizon, within a sentence; otherwise an empty text."""
    if request.horizon is None:
        return ""
    formula, horizon = request.formula, f"{request.horizon:g}"
    if request.estimand == "risk":
        return f"the risk of {formula.event} by {formula.outcome} = {horizon}"
    return f"the mean of {formula.outcome}, restricted to {horizon},"


def described(said: words.Description, request: Request) -> words.Description:
    """The description with the horizon, and with assumptions and methods on censoring."""
    if request.horizon is None:
        return said
    return replace(
        said,
        rows=(*said.rows, ("Horizon", f"{request.horizon:g}")),
        assumptions=(*said.assumptions, CENSORING),
        notes=(*said.notes, CENSORING),
        methods=(*METHODS, *said.methods),
    )


CENSORING = (
    "Independent censoring: within each treatment arm, the time of censoring does not depend on "
    "the time of the event or on the covariates."
)

METHODS = (
    "Right-censored outcomes were replaced by augmented inverse probability of censoring weighted "
    "scores (Robins and Rotnitzky 1992), which are numbers for each arm, kind of end, and bin of "
    "time. They come from Kaplan-Meier curves of events and of censoring in each arm, from one "
    "noisy release of the times by arm. In an arm, noise changes the mean score only by products "
    "of an error of the event curve and an error of the censoring curve. Standard errors include "
    "the expected square of this change.",
)
