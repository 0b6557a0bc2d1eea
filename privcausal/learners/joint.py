"""Several averages and risks of one effect, from one release of their scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from privcausal.features.functions import Nuisance
from privcausal.inference.average import FEW, AverageEstimate, Frame, with_design_effect
from privcausal.inference.confounding import Remainder
from privcausal.inference.effect import Effect
from privcausal.inference.joint import Asked, JointData, estimate_together, noise_shape
from privcausal.inference.priors import PRIORS
from privcausal.inference.score_cut import Cut, Extremes, score_cut, slope_kept
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
from privcausal.learners.state import FitState, is_binary
from privcausal.request.groups import partitions
from privcausal.request.plan import StageKey
from privcausal.request.request import RISKS
from privcausal.typing import Matrix, Vector
from privcausal.vault import ByFold, JointSquares, JointSums, ScoreVector, Transform


class One(NamedTuple):
    """An average that is asked for: its score combines those of the components by `parts`."""

    name: str
    target: Target
    remainder: Remainder
    parts: Vector

    @property
    def component(self) -> bool:
        return bool((np.sort(self.parts)[:-1] == 0).all() and self.parts.max() == 1)


@dataclass(frozen=True, eq=False)
class Cloud:
    """What a row's vector of scores could be, and the shape of the noise that hides it.

    Attributes
    ----------
    asked, components : tuple of One
        All averages, and those whose scores are the vector's entries, in their order.
    """

    state: FitState
    asked: tuple[One, ...]
    nuisance: Nuisance
    stages: Keys

    @cached_property
    def components(self) -> tuple[One, ...]:
        found = [one for one in self.asked if one.component]
        return tuple(sorted(found, key=lambda one: int(np.argmax(one.parts))))

    @cached_property
    def whole(self) -> Matrix:
        """The vectors by arm and end of the outcome's bounds, shape (2, 2, N, J)."""
        rows, ends, found = self.state.rows, (self.state.outcome.lo, self.state.outcome.hi), []
        for one in self.components:
            score = one.target.score
            first: Any = score.transforms[0] if isinstance(score, ByFold) else score
            found.append(np.array([[first.at(rows, t, y) for y in ends] for t in (0.0, 1.0)]))
        return np.stack(found, axis=-1)

    @cached_property
    def shape(self) -> Matrix:
        """V: rows with s'V^-1 s <= 1 are hidden by noise of this covariance, shape (J, J).

        It holds what scores are for outcomes where they are seen, each cut as it would be alone,
        and has the least sum of variances, each in what its average has alone of noise and bias.
        """
        ends, worth, cuts = self.seen, np.zeros((len(self.components),) * 2), {}
        for one in self.asked:
            noise = noise_per_cut(self.state, rough_sums(self.state, one.target), self.stages[1])
            cut = self.alone(np.abs(ends @ one.parts), one.target.extremes, noise)
            alone = (noise * cut.at) ** 2 + cut.bias**2 + one.remainder.rms**2
            worth += np.outer(one.parts, one.parts) / alone
            cuts[one.name] = cut.at
        most = np.array([cuts[one.name] for one in self.components])
        return noise_shape(np.clip(ends.reshape(-1, len(most)), -most, most), worth)

    @cached_property
    def seen(self) -> Matrix:
        """The vectors at the ends of where outcomes are, shape (2, 2, N, J).

        That is all of the bounds, or the means by arm and what is seen of outcomes around them.
        """
        look, outcome, whole = self.state.look, self.state.outcome, self.whole
        if look is None or not look.scaled:
            return whole
        means = np.stack([m(self.state.rows) for m in (self.nuisance.mu0, self.nuisance.mu1)])
        at = means[:, None] + np.array([-1.0, 1.0])[:, None] * look.reach
        place = np.clip((at - outcome.lo) / (2 * outcome.bound), 0.0, 1.0)[..., None]
        return np.asarray(whole[:, :1] * (1 - place) + whole[:, 1:] * place)

    def alone(self, sizes: Matrix, extremes: Extremes, noise: float) -> Cut:
        """About where a score would be cut by itself, for its sizes at the ends, (2, 2, N).

        Where sizes of scores are counted, it is near the largest that can be told from noise: we
        take normal outcomes of which `Look.reach` is three standard deviations.
        """
        state, look = self.state, self.state.look
        if look is None or not look.scaled or not state.session.plan.has(self.stages[0]):
            own = replace(extremes, sizes=sizes.max(axis=1))
            return score_cut(own, noise, None, None, state.population.count)
        hidden = state.session.noise_sd(self.stages[0], np.sqrt(2.0)) / state.population.count
        chance = np.broadcast_to(extremes.chances[:, None], sizes.shape) / 2

        def beyond(cut: float) -> float:
            z = 3.0 * cut / np.maximum(sizes, 1e-12)
            return float((chance * 2 * norm.sf(z)).sum(axis=(0, 1)).mean()) - FEW * hidden

        most = float(sizes.max())
        at = brentq(beyond, 0.0, most) if beyond(0.0) > 0 > beyond(most) else most
        return Cut(float(at), 0.0)

    @cached_property
    def basis(self) -> Matrix:
        """B with ||B s||^2 = s'V^-1 s."""
        return np.asarray(np.linalg.inv(np.linalg.cholesky(self.shape)))

    @cached_property
    def norms(self) -> Matrix:
        """||B s|| at the ends of the outcome's bounds, shape (2, 2, N)."""
        return np.asarray(np.linalg.norm(self.whole @ self.basis.T, axis=-1))

    @cached_property
    def extremes(self) -> Extremes:
        """Those of the norm, which is convex in the outcome."""
        slopes = np.linalg.norm((self.whole[:, 1] - self.whole[:, 0]) @ self.basis.T, axis=-1)
        slopes /= 2 * self.state.outcome.bound
        return Extremes(self.norms.max(axis=1), slopes, self.components[0].target.extremes.chances)

    @property
    def joint(self) -> Target:
        """The norm as if it were a score, to find its sizes."""
        vector = ScoreVector(tuple(one.target.score for one in self.components), self.basis)
        first = self.components[0].target
        return replace(first, score=vector, extremes=self.extremes, pilot=None, group_masses=False)

    @cached_property
    def masses(self) -> tuple[Transform, ...]:
        return tuple({id(one.target.mass): one.target.mass for one in self.asked}.values())

    def place(self, one: One) -> int:
        """Of its mass."""
        return next(k for k, mass in enumerate(self.masses) if mass is one.target.mass)

    def lost(self, one: One, cut: Cut) -> float:
        """Most that its mean score loses by the cut of the norm.

        A row's score is at most its norm times the noise's sd, so it loses at most as many times
        what the norm does. An outcome of two values is at one of the ends, where it is known.
        """
        bound = float(np.sqrt(one.parts @ self.shape @ one.parts)) * cut.bias
        if is_binary(self.state.session.plan.request):
            share = np.maximum(1 - cut.at / np.maximum(self.norms, cut.at), 0.0)
            lost = (np.abs(self.whole @ one.parts) * share).max(axis=1)
            bound = min(bound, float((self.extremes.chances * lost).sum(axis=0).mean()))
        beyond = self.state.session.beyond
        if beyond is not None:
            bound += one.target.extremes.unit_most * beyond.lost / self.state.population.count
        return bound

    def frame(self, one: One, cut: Cut, rms: float, limits: tuple[float, float]) -> Frame:
        """What is known of an average beside the sums."""
        state, own, whole = self.state, one.target.extremes, self.extremes
        typical = np.sqrt([(x.chances * x.weights**2).sum() for x in (own, whole)])
        kept = 1.0
        if one.target.group_masses and rms > 0:
            left = np.stack([-own.chances[1], own.chances[0]])  # T - e
            kept = slope_kept(whole.weights, own.weights * left, own.chances, cut.at, rms)
        request = state.session.plan.request
        return Frame(
            one.target.centre, 1.0, points(state), np.zeros(0), self.lost(one, cut), one.remainder,
            PRIORS.least_square * (rms * float(typical[0] / typical[1])) ** 2,
            (1.0, one.target.mass_spread), one.target.group_masses, kept,
            parts=partitions(state.groups, state.session.schema, request.needed),
            size_limits=limits,
        )  # fmt: skip


def together(
    state: FitState,
    partials: tuple[FoldNuisances, ...],
    nuisances: tuple[Nuisance, ...],
    tau: Effect,
    stages: Keys,
) -> AverageEstimate:
    """All averages of the request, and the risks that its ratios are of, with their covariance.

    A row's scores are released as one vector, whose norm in a public shape is cut: noise of that
    shape hides them all at once (`Cloud`).
    """
    request, session = state.session.plan.request, state.session
    asked, weight = _asked(state, partials, nuisances, tau, stages[1])
    cloud = Cloud(state, asked, nuisances[0], stages)
    joint = cloud.joint
    sizes = score_sizes(state, joint, stages[0])
    assert isinstance(joint.score, ScoreVector)
    grouped = tuple(sorted({cloud.place(one) for one in asked if one.target.group_masses}))
    sums = JointSums(joint.score, cloud.masses, grouped, state.regressors, request.trust.neighbors)
    cut = score_cut(
        cloud.extremes,
        noise_per_cut(state, sums, stages[1]),
        sizes,
        state.look,
        state.population.count,
        anywhere=request.tails == "any",
    )
    sums = replace(sums, vector=replace(joint.score, basis=cloud.basis / cut.at))
    squares = JointSquares(sums.vector, state.regressors)
    session.gather({stages[1]: sums, stages[2]: squares})
    first, second = session.release(stages[1], sums), session.release(stages[2], squares)
    value, sd = (
        JointData(*sums.split(a), squares.split(b))
        for a, b in ((first.value, second.value), (first.noise_sd, second.noise_sd))
    )
    limits = size_limits(state, float(sd.size[0, 0]), session.plan.stage(stages[1]).rows)
    size = float(np.clip(value.size[0, 0], *limits))
    rms, back = 0.0 if sizes is None else sizes.rms(cut.at), np.linalg.inv(sums.vector.basis)
    rows = [
        Asked(
            one.name, one.parts @ back, 1 + cloud.place(one),
            replace(cloud.frame(one, cut, rms, limits), size=size),
        )
        for one in asked
    ]  # fmt: skip
    found = estimate_together(rows, tuple(g.label for g in state.groups), value, sd)
    return replace(with_design_effect(found, request.trust.max_rows), weight=weight)


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
