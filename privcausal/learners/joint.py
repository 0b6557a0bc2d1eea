"""Several averages and risks of one effect, from one release of their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from privcausal.features.functions import Nuisance
from privcausal.inference.average import AverageEstimate, Frame, with_design_effect
from privcausal.inference.confounding import Remainder
from privcausal.inference.cuts import score_cut
from privcausal.inference.effect import Effect
from privcausal.inference.joint import Asked, JointData, estimate_together, noise_shape
from privcausal.inference.priors import PRIORS
from privcausal.learners.averages import (
    Keys,
    Target,
    Weighed,
    arm_targets,
    average_target,
    noise_per_cut,
    points,
    rough_sums,
    score_sizes,
    size_limits,
    target,
    weighed,
)
from privcausal.learners.nuisances import FoldNuisances, limited, remainder
from privcausal.learners.state import FitState
from privcausal.request.groups import partitions
from privcausal.request.plan import StageKey
from privcausal.request.request import RISKS
from privcausal.typing import Vector
from privcausal.vault import ByFold, JointSquares, JointSums, ScoreVector, Transform


class One(NamedTuple):
    """An average that is asked for: its score combines those of the components by `parts`."""

    name: str
    target: Target
    remainder: Remainder
    parts: Vector


class Chosen(NamedTuple):
    """Where the score of an average is cut, the most that its mean loses, and the scores' rms."""

    cut: float
    bias: float
    rms: float
    noise: float


def together(
    state: FitState,
    partials: tuple[FoldNuisances, ...],
    nuisances: tuple[Nuisance, ...],
    tau: Effect,
    stages: Keys,
) -> AverageEstimate:
    """All averages of the request, and the risks that its ratios are of, with their covariance."""
    asked, weight = _asked(state, partials, nuisances, tau, stages[1])
    return replace(released(state, asked, stages), weight=weight)


def released(state: FitState, asked: Sequence[One], stages: Keys) -> AverageEstimate:
    """Averages from one release of the scores of their components, with their covariance.

    Each component is cut as it would be alone, by sizes of its own. Then a row's cut scores are
    released as one vector, with noise of the shape that hides all that they can be.
    """
    request, session = state.session.plan.request, state.session
    chosen = _chosen(state, asked, stages)
    scores = _vector(state, asked, chosen)
    masses = tuple({id(one.target.mass): one.target.mass for one in asked}.values())
    place = [[id(mass) for mass in masses].index(id(one.target.mass)) for one in asked]
    grouped = sorted({k for k, one in zip(place, asked, strict=True) if one.target.group_masses})
    sums = JointSums(scores, masses, tuple(grouped), state.regressors, request.trust.neighbors)
    squares = JointSquares(scores, state.regressors)
    session.gather({stages[1]: sums, stages[2]: squares})
    first, second = session.release(stages[1], sums), session.release(stages[2], squares)
    value, sd = (
        JointData(*sums.split(a), squares.split(b))
        for a, b in ((first.value, second.value), (first.noise_sd, second.noise_sd))
    )
    limits = size_limits(state, float(sd.size[0, 0]), session.plan.stage(stages[1]).rows)
    back, parts = (
        np.linalg.inv(scores.basis),
        partitions(state.groups, session.schema, request.needed),
    )
    rows = []
    for one, own, k in zip(asked, chosen, place, strict=True):
        aim, lost = one.target, 0.0 if session.beyond is None else session.beyond.lost
        frame = Frame(
            aim.centre, float(np.clip(value.size[0, 0], *limits)), points(state), np.zeros(0),
            own.bias + aim.extremes.unit_most * lost / state.population.count, one.remainder,
            PRIORS.least_square * own.rms**2, (1.0, aim.mass_spread), aim.group_masses,
            aim.kept(own.cut, own.rms), parts=parts, size_limits=limits,
        )  # fmt: skip
        rows.append(Asked(one.name, one.parts @ back, 1 + k, frame))
    found = estimate_together(rows, tuple(g.label for g in state.groups), value, sd)
    return with_design_effect(found, request.trust.max_rows)


def _components(asked: Sequence[One]) -> list[int]:
    """The places of the averages whose scores are entries of the vector, in its order."""
    found = [k for k, one in enumerate(asked) if one.parts.min() == 0]
    return sorted(found, key=lambda k: int(np.argmax(asked[k].parts)))


def _chosen(state: FitState, asked: Sequence[One], stages: Keys) -> list[Chosen]:
    """The cut of each component as if it were alone; another loses what its components do."""
    components = _components(asked)
    sizes = score_sizes(state, [asked[k].target for k in components], stages[0])
    found = []
    for k, one in enumerate(asked):
        noise = noise_per_cut(state, rough_sums(state, one.target), stages[1])
        own = sizes[components.index(k)] if k in components else None
        cut = score_cut(
            one.target.extremes, noise, own, state.look, state.population.count,
            anywhere=state.session.plan.request.tails == "any",
        )  # fmt: skip
        rms = 0.0 if own is None else own.rms(cut.at)
        found.append(Chosen(cut.at, cut.bias, rms, noise * cut.at))
    bias = np.array([found[k].bias for k in components])
    return [
        own._replace(bias=float(np.abs(one.parts) @ bias))
        for one, own in zip(asked, found, strict=True)
    ]


def _vector(state: FitState, asked: Sequence[One], chosen: Sequence[Chosen]) -> ScoreVector:
    """The scores in a basis in which no row's norm is above 1, of least predicted variances.

    Each variance counts in what its average has alone of noise and bias. A convex function of the
    outcome, as the norm of the cut scores is between the places where one meets its cut, is largest
    at these or at the ends of the outcome's bounds: the shape holds what scores are there.
    """
    components, found = _components(asked), []
    arms = range(len(state.session.plan.request.arms) or 2)
    for k in components:
        aim = asked[k].target
        first: Any = aim.score.transforms[0] if isinstance(aim.score, ByFold) else aim.score
        treated = [float(arm == aim.arm) for arm in arms]
        ends = state.outcome.lo, state.outcome.hi
        found.append([[first.at(state.rows, t, y) for t in treated] for y in ends])
    low, high = np.moveaxis(np.array(found), 0, -1)  # (2, N, J) each
    cuts = np.array([chosen[k].cut for k in components])
    slope = np.where(high == low, np.inf, high - low)
    meets = np.concatenate([(s * cuts - low) / slope for s in (-1.0, 1.0)], axis=-1)
    at = np.moveaxis(np.clip(meets, 0.0, 1.0), -1, 0)[..., None]
    at = np.concatenate([at, np.zeros_like(at[:1]), np.ones_like(at[:1])])
    all_ = np.clip(low + at * (high - low), -cuts, cuts).reshape(-1, len(cuts))
    worth = np.zeros((len(cuts),) * 2)
    for one, own in zip(asked, chosen, strict=True):
        worth += np.outer(one.parts, one.parts) / (
            own.noise**2 + own.bias**2 + one.remainder.rms**2
        )
    some = all_[:: max(THINNED, len(all_) // MOST)]
    basis = np.linalg.inv(np.linalg.cholesky(noise_shape(some, worth)))
    basis /= max(1.0, float(np.linalg.norm(all_ @ basis.T, axis=1).max()))
    return ScoreVector(tuple(asked[k].target.score for k in components), cuts, basis)


THINNED, MOST = 4, 10_000
"""One of so many points, and about so many at most, find the shape; it is then scaled to hold all
of them."""


def _asked(
    state: FitState,
    partials: tuple[FoldNuisances, ...],
    nuisances: tuple[Nuisance, ...],
    tau: Effect,
    stage: StageKey,
) -> tuple[tuple[One, ...], float]:
    """The averages, then the risks; and the most that a row weighs in the ATE."""
    request, weight, found = state.session.plan.request, np.inf, dict[str, One]()
    vectors = np.eye(len(request.averages) + bool(request.ratios))
    for name, parts in zip(request.averages, vectors, strict=False):
        if name != "ATE":
            aim = target(name, state, partials, nuisances, tau)
            found[name] = One(name, aim, remainder(state, partials, name), parts)
            continue
        scored = weighed(state, partials, nuisances, tau, stage)
        weight = scored.weight
        aim = average_target(state, scored.nuisances, float(np.mean(tau(state.rows))))
        found[name] = One(name, aim, scored.remainder, parts)
        if request.ratios:
            found |= _risks(state, partials, scored, tau, (parts, vectors[-1]), aim.mass)
            centre = found[RISKS[1]].target.centre - found[RISKS[0]].target.centre
            aim = replace(average_target(state, scored.nuisances, centre), mass=aim.mass)
            found[name] = One(name, aim, scored.remainder, vectors[-1] - parts)
    order = (*request.averages, *(RISKS if request.ratios else ()))
    return tuple(found[name] for name in order), weight


def _risks(
    state: FitState,
    partials: tuple[FoldNuisances, ...],
    scored: Weighed,
    tau: Effect,
    parts: tuple[Vector, Vector],
    mass: Transform,
) -> dict[str, One]:
    """E[Y(0)] and E[Y(1)], by the nuisances of the ATE."""
    share = float(np.mean([p.e(state.rows).mean() for p in partials]))
    limits = share / scored.weight, 1 - (1 - share) / scored.weight
    used = tuple(limited(p, *limits) for p in partials)
    return {
        name: One(name, aim, remainder(state, used, name, tau), own)
        for name, aim, own in zip(
            RISKS, arm_targets(state, scored.nuisances, mass), parts, strict=True
        )
    }
