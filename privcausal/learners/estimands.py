"""Which average of tau(x): the scores, masses and centre that estimate it from one release.

Every estimand is E[q tau(X)] / E[q] for a weight q(X): 1 for the ATE, e(X) for the ATT, the effect
on the treated, and e(X) (1 - e(X)) for the ATO, the effect in the overlap population (Li, Morgan
and Zaslavsky 2018). The estimate is c + sum(score) / sum(mass) for scores centred at c, near the
average itself, so that scores are small and noise in the mass matters little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from privcausal.inference.average import BALANCE_SPREAD
from privcausal.inference.huber import slope_kept
from privcausal.inference.score_cut import Extremes
from privcausal.learners.ground import Ground
from privcausal.learners.nuisances import RESIDUAL_CLIP, Partial, by_fold
from privcausal.spec.features import Rows
from privcausal.spec.functions import Capped, Constant, Function, Linear, Nuisance
from privcausal.typing import Estimand, Matrix, Vector
from privcausal.vault import (
    Aipw,
    Balance,
    Outcome,
    OverlapMass,
    OverlapScore,
    Transform,
    TreatedMass,
    TreatedScore,
)

MASS_SPREAD = 0.3
"""Prior sd of a mean mass relative to what the released propensity says of it."""


class Score(Transform, Protocol):
    """A transform that can be asked of covariates of no row."""

    def at(self, rows: Rows, t: Vector | float, y: Vector | float) -> Vector: ...


@dataclass(frozen=True, eq=False)
class Slope:
    """How scores depend on the outcome and on a constant effect, over the synthetic population.

    By arm, shape (2, N): weights of Y in the score, T - e, and the probability of the arm.
    """

    weights: Matrix
    left: Matrix
    chances: Matrix


@dataclass(frozen=True, eq=False)
class Pilot:
    """The projection a'coef of an effect that is known already, and scores centred at it.

    Slopes are the pilot's plus those of what is left, which is exact: both are linear in the score.
    What is left has a range that does not grow with the effect's, and so the cut takes less of it.
    """

    score: Transform
    coef: Vector


@dataclass(frozen=True, eq=False)
class Target:
    """What is summed for an average effect.

    Attributes
    ----------
    centre : float
        c, in units of the outcome.
    score, mass : Transform
        Of each row, by the nuisances of its own fold; the mass is near 1 on average.
    extremes : Extremes
        What scores could be.
    mass_spread : float
        Prior sd of the mean mass around 1.
    group_masses : bool
        Whether groups are weighed by their own mass; else by their rows.
    pilot : Pilot or None
        What scores are centred at for the slopes.
    """

    centre: float
    score: Transform
    mass: Transform
    extremes: Extremes
    mass_spread: float
    group_masses: bool
    slope: Slope | None = None
    pilot: Pilot | None = None

    def kept(self, cut: float, rms: float) -> float:
        """Share of the slope that is left after a cut; taken to be all of it for the ATE.

        `rms` is the root mean square of the scores, 0 where it is not known.
        """
        if self.slope is None or rms == 0:
            return 1.0
        s = self.slope
        return slope_kept(s.weights, s.weights * s.left, s.chances, cut, rms)


def target(
    estimand: Estimand,
    ground: Ground,
    partials: Sequence[Partial],
    nuisances: Sequence[Nuisance],
    tau: Function,
) -> Target:
    """The score and mass of an estimand, around the mean of tau(x) by the estimand's own weight."""
    weight = _weight(estimand, partials[0].e_soft(ground.rows))
    centre = float(np.average(tau(ground.rows), weights=weight))
    if estimand == "ATE":
        return average_target(ground, nuisances, centre)
    centre, scale = _held(ground, centre), float(np.mean(weight))
    pairs = list(zip(partials, nuisances, strict=True))
    if estimand == "ATT":
        treated = [_treated(ground, *pair, centre, scale) for pair in pairs]
        return _target(ground, treated, [TreatedMass(scale)] * len(pairs), centre, treated[0].e)
    soft = min(RESIDUAL_CLIP, ground.clip)
    overlap = [OverlapScore(p.e_soft, p.eta, ground.outcome, soft, centre, scale) for p in partials]
    masses = [OverlapMass(p.e_soft, soft, scale) for p in partials]
    return _target(ground, overlap, masses, centre, overlap[0].e)


def average_target(
    ground: Ground,
    nuisances: Sequence[Nuisance],
    centre: float,
    tau: Function | None = None,
    within: Outcome | None = None,
) -> Target:
    """That of the ATE: psi - c and its balance; `tau` also centres the scores of the slopes.

    Extremes are those of outcomes `within` a range, or anywhere in their bounds.
    """
    clip, centre = ground.clip, _held(ground, centre)
    scores = [Aipw(n, ground.outcome, clip, Constant(centre), abs(centre)) for n in nuisances]
    masses = [Balance(n.e, clip) for n in nuisances]
    return Target(
        centre,
        by_fold(lambda s: s, scores),
        by_fold(lambda m: m, masses),
        _extremes(ground, scores[0], nuisances[0].e, within or ground.outcome),
        BALANCE_SPREAD,
        group_masses=False,
        pilot=None if tau is None or not len(ground.linear) else _pilot(ground, nuisances, tau),
    )


def _pilot(ground: Ground, nuisances: Sequence[Nuisance], tau: Function) -> Pilot:
    """The projection of tau on the linear terms over the synthetic population."""
    z = ground.rows.scaled(ground.linear)
    middle = z.mean(axis=0)
    slopes = np.linalg.lstsq(z - middle, tau(ground.rows), rcond=1e-6)[0]
    centre = Linear(ground.linear, slopes, float(np.mean(tau(ground.rows)) - middle @ slopes))
    scores = [Aipw(n, ground.outcome, ground.clip, centre, centre.bound) for n in nuisances]
    coef = np.r_[centre.offset, slopes / ground.regressors.alpha]
    return Pilot(by_fold(lambda s: s, scores), coef)


def _treated(
    ground: Ground, part: Partial, nuisance: Nuisance, centre: float, scale: float
) -> TreatedScore:
    e = Capped(part.e_soft, 1 - ground.clip)
    return TreatedScore(e, nuisance.mu0, ground.outcome, ground.clip, centre, scale)


def _target(
    ground: Ground,
    scores: Sequence[Score],
    masses: Sequence[Transform],
    centre: float,
    e: Function,
) -> Target:
    extremes = _extremes(ground, scores[0], e, ground.outcome)
    return Target(
        centre,
        by_fold(lambda s: s, scores),
        by_fold(lambda m: m, masses),
        extremes,
        MASS_SPREAD,
        group_masses=True,
        slope=_slope(ground, extremes, e),
    )


def _weight(estimand: Estimand, e: Vector) -> Vector:
    """q(x) of an estimand, by its propensity."""
    if estimand == "ATT":
        return e
    return np.asarray(e * (1 - e)) if estimand == "ATO" else np.ones_like(e)


def _held(ground: Ground, centre: float) -> float:
    """Inside the range that an effect can have."""
    reach = 2 * ground.outcome.bound
    return float(np.clip(centre, -reach, reach))


def _slope(ground: Ground, extremes: Extremes, e: Function) -> Slope:
    p = e(ground.rows)
    return Slope(extremes.weights, np.stack([-p, 1 - p]), extremes.chances)


def _extremes(ground: Ground, score: Score, e: Function, outcome: Outcome) -> Extremes:
    rows, p = ground.rows, e(ground.rows)
    ends = [[score.at(rows, t, y) for y in (outcome.lo, outcome.hi)] for t in (0.0, 1.0)]
    return Extremes(
        np.stack([np.maximum(np.abs(low), np.abs(high)) for low, high in ends]),
        np.stack([(high - low) / (2 * outcome.bound) for low, high in ends]),
        np.stack([1 - p, p]),
    )
