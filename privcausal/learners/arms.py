"""S-, T- and X-learner (Kuenzel et al. 2019): regressions within the arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import block_diag

from privcausal.errors import CapabilityError
from privcausal.inference import cut as cuts
from privcausal.inference.additive import Moments, Posterior
from privcausal.inference.confounding import Remainder, unrelated
from privcausal.inference.effect import Effect, Piece
from privcausal.inference.gram import GramEstimate
from privcausal.learners import boosted
from privcausal.learners.base import CateLearner, Learnt, mixed
from privcausal.learners.bases import Base
from privcausal.learners.estimate import Nuisances
from privcausal.learners.ground import Ground, arm_grams, complements
from privcausal.learners.needs import TOP, Need
from privcausal.learners.nuisances import (
    LEAST_BELOW,
    Propensity,
    by_fold,
    cross_noise,
    floored,
    known_propensity,
    over_folds,
    propensity,
    read_sizes,
    remainder_weight,
)
from privcausal.spec.functions import Additive, Constant, Difference, Mixture, Nuisance
from privcausal.spec.request import Request
from privcausal.typing import Matrix, Vector
from privcausal.vault import Cross, ImputedEffect

GRAMS, OUTCOMES = "nuisance: arm moments", "nuisance: arm outcomes"
FIRST_OUTCOMES = "nuisance: arm outcomes"


@dataclass(frozen=True, eq=False)
class ArmData:
    """Grams (arms, p, p) and cross moments (arms, p) of one set of rows, with noise sds."""

    grams: tuple[GramEstimate, GramEstimate]
    cross: Vector
    cross_sd: float


@dataclass(frozen=True)
class _Arms(CateLearner):
    """What the three share: moments of the outcome within each arm."""

    name: ClassVar[str] = "arms"
    shares: ClassVar[Mapping[str, float]] = {"bounds": 0.1, "nuisance": 0.75, "average": 0.15}

    def effect_needs(self, request: Request, base: Base) -> list[Need]:
        return [Need(GRAMS, 0.24, "nuisance"), Need(OUTCOMES, 0.72, "nuisance")]

    def boosted_needs(self, request: Request) -> list[Need]:
        return boosted.one_stage_needs(request)

    def boost(self, ground: Ground) -> Learnt:
        return boosted.arms(ground, joint=False)

    def means(self, ground: Ground, found: ArmData) -> Posterior:
        """Coefficients (2p,) of both arms' means around the midpoint of the outcome."""
        raise NotImplementedError

    def learn(self, ground: Ground) -> Learnt:
        ground, folds, whole = arm_data(ground, OUTCOMES)
        effect = contrast(ground, self.means(ground, whole))
        nuisances, rest = self._nuisances(ground, folds)
        return Learnt(ground, effect, nuisances, shown_arms(nuisances), rest)

    def _nuisances(
        self, ground: Ground, folds: tuple[ArmData, ...]
    ) -> tuple[tuple[Nuisance, ...], Remainder]:
        """Nuisances of each fold, and the law of the bias that their errors leave."""
        fitted = [self.means(ground, fold) for fold in folds]
        es = [propensity_of(ground, fold) for fold in folds]
        nuisances = tuple(arm_nuisance(ground, f, e) for f, e in zip(fitted, es, strict=True))
        return nuisances, arm_remainder(ground, fitted, es)


@dataclass(frozen=True)
class S(_Arms):
    """One regression on (T, phi(x)) and, by default, T phi(x).

    Parameters
    ----------
    interactions : bool
        False gives the constant effect of Niu et al. (2022).
    """

    interactions: bool = True
    name: ClassVar[str] = "s"

    def __post_init__(self) -> None:
        if not isinstance(self.interactions, bool):
            raise CapabilityError("S(interactions=) must be True or False")

    def boosted_needs(self, request: Request) -> list[Need]:
        return boosted.one_stage_needs(request, mean=self.interactions)

    def boost(self, ground: Ground) -> Learnt:
        if self.interactions:
            return boosted.arms(ground, joint=True)
        return boosted.constant_effect(ground)

    def means(self, ground: Ground, found: ArmData) -> Posterior:
        half = ground.outcome.bound
        gram, sd = joined(found)
        moments = Moments(gram, found.cross, sd, found.cross_sd, (half / 4) ** 2)
        kept = ground.effect_index if self.interactions else ground.effect_index[:1]
        return ground.session.regression.arms(
            moments, ground.features, half**2 / 4, half**2 / 100, half**2 / 400, kept=kept
        )


@dataclass(frozen=True)
class T(_Arms):
    """One regression per arm; tau is their difference."""

    name: ClassVar[str] = "t"

    def means(self, ground: Ground, found: ArmData) -> Posterior:
        half = ground.outcome.bound
        p = ground.features.size
        fits = [
            ground.session.regression.nuisance(
                Moments(g.value, c, g.sd, found.cross_sd, (half / 4) ** 2),
                ground.features,
                half**2 / 4,
                half**2 / 100,
                fit_noise=True,
            )
            for g, c in zip(found.grams, (found.cross[:p], found.cross[p:]), strict=True)
        ]
        mean = np.concatenate([f.mean for f in fits])
        return Posterior(mean, block_diag(*(f.cov for f in fits)), sum(f.evidence for f in fits))


@dataclass(frozen=True)
class X(T):
    """Imputed effects regressed within each arm and joined: tau = e tau_0 + (1 - e) tau_1."""

    name: ClassVar[str] = "x"
    shares: ClassVar[Mapping[str, float]] = TOP

    def effect_needs(self, request: Request, base: Base) -> list[Need]:
        return [
            Need(GRAMS, 0.2, "nuisance"),
            Need(FIRST_OUTCOMES, 0.25, "nuisance"),
            Need("effect: imputed sizes", 0.02, "effect"),
            Need("effect: imputed effects", 0.48, "effect"),
        ]

    def boosted_needs(self, request: Request) -> list[Need]:
        return boosted.two_stage_needs(request)

    def boost(self, ground: Ground) -> Learnt:
        return boosted.imputed(ground)

    def learn(self, ground: Ground) -> Learnt:
        ground, folds, whole = arm_data(ground, FIRST_OUTCOMES)
        nuisances, rest = self._nuisances(ground, folds)
        target = by_fold(lambda n: ImputedEffect(n, ground.outcome), nuisances)
        sizes = read_sizes(ground, target, "effect: imputed sizes")
        features = ground.effect_features
        per_cut = cross_noise(ground, "effect: imputed effects", features.cut)
        cut = cuts.trade(sizes, per_cut / ground.population.count)
        mechanism = Cross(features, target, cut, "imputed effects", by_arm=True)
        release = ground.session.release("effect: imputed effects", mechanism)
        effect = self._joined(ground, whole, release.value, float(release.noise_sd[0]), sizes, cut)
        return Learnt(ground, effect, nuisances, shown_arms(nuisances), rest)

    def _joined(
        self,
        ground: Ground,
        found: ArmData,
        value: Vector,
        sd: float,
        sizes: cuts.Sizes,
        cut: float,
    ) -> Effect:
        below = max(sizes.below(cut), LEAST_BELOW)
        variance = max(sizes.rms(cut), 1e-3 * cut) ** 2
        e = propensity_of(ground, found).e
        one = Difference(Constant(1.0), e)
        pieces = []
        for gram, cross, weight in zip(found.grams, np.split(value, 2), (e, one), strict=True):
            own = gram.sub(ground.effect_index)
            moments = Moments(own.value, cross / below, own.sd, sd / below, variance)
            fitted = ground.session.regression.effect(
                moments, ground.effect_features, 4 * cut**2, cut**2 / 10
            )
            additive = Additive(ground.effect_features, fitted.mean)
            pieces.append(Piece(additive, fitted.cov, weight))
        return Effect(tuple(pieces), 2 * ground.outcome.bound)


def arm_data(ground: Ground, stage: str) -> tuple[Ground, tuple[ArmData, ...], ArmData]:
    """Grams and outcome moments by arm: for each fold the other folds', and over all rows."""
    ground, whole, outside = arm_grams(ground, GRAMS)
    if ground.known is None:
        control, treated = (float(gram.value[0, 0]) for gram in whole)
        rows = max(control + treated, 1e-9)
        ground = floored(ground, treated / rows, np.sqrt(2.0) * whole[1].sd / rows)
    outcome = ground.outcome
    mechanism = Cross(ground.features, outcome, outcome.bound, "outcome", by_arm=True)
    releases = ground.session.moments(stage, mechanism)
    sd = float(releases[0].noise_sd[0])
    values = [r.value for r in releases]
    folds = tuple(
        ArmData(g, cross, noise)
        for g, (cross, noise, _) in zip(outside, complements(values, sd), strict=True)
    )
    total = ArmData(whole, np.sum(values, axis=0), sd * np.sqrt(len(values)))
    return ground, folds, total


def joined(found: ArmData) -> tuple[Matrix, float]:
    """Block-diagonal Gram of both arms."""
    zero, one = found.grams
    return np.asarray(block_diag(zero.value, one.value)), float(
        np.hypot(zero.sd, one.sd) / np.sqrt(2)
    )


def contrast(ground: Ground, fitted: Posterior) -> Effect:
    """tau = mu_1 - mu_0 on the effect's features (the controls' parts cancel or are left out)."""
    p, keep = ground.features.size, ground.effect_index
    pick = np.hstack([-np.eye(p), np.eye(p)])[keep]
    function = Additive(ground.effect_features, pick @ fitted.mean)
    cov = pick @ fitted.cov @ pick.T
    return Effect((Piece(function, cov),), 2 * ground.outcome.bound)


def arm_nuisance(ground: Ground, fitted: Posterior, e: Propensity) -> Nuisance:
    outcome, p = ground.outcome, ground.features.size
    middle = 0.5 * (outcome.lo + outcome.hi)
    mu0, mu1 = (
        Additive(ground.features, part, middle, outcome.lo, outcome.hi)
        for part in (fitted.mean[:p], fitted.mean[p:])
    )
    return Nuisance(e.e, mu0, mu1)


def propensity_of(ground: Ground, found: ArmData) -> Propensity:
    """e(x) for free: sum w T phi is the first row of the treated arm's Gram."""
    if ground.known is not None:
        return known_propensity(ground, ground.known)
    zero, one = found.grams
    gram = GramEstimate(zero.value + one.value, float(np.hypot(zero.sd, one.sd)), zero.model)
    cross = 0.5 * (one.value[0] - zero.value[0])
    return propensity(ground, gram, cross, 0.5 * float(np.hypot(zero.sd, one.sd)))


def arm_remainder(
    ground: Ground, fitted: Sequence[Posterior], es: Sequence[Propensity]
) -> Remainder:
    """The product of nuisance errors, with the two arms' covariances averaged; over the folds."""
    p = ground.features.size
    laws = []
    for law, e in zip(fitted, es, strict=True):
        mean_cov = 0.5 * (law.cov[:p, :p] + law.cov[p:, p:])
        weight = remainder_weight(ground, ground.features, e.e)
        laws.append(unrelated(weight, e.cov, mean_cov))
    return over_folds(laws)


def shown_arms(nuisances: tuple[Nuisance, ...]) -> Nuisances:
    if len(nuisances) == 1:
        n = nuisances[0]
        e, mu0, mu1 = n.e, n.mu0, n.mu1
    else:
        first, second = nuisances
        e, mu0, mu1 = (
            mixed(first.e, second.e),
            mixed(first.mu0, second.mu0),
            mixed(first.mu1, second.mu1),
        )
    return Nuisances(e, Mixture(e, mu1, mu0), mu0, mu1)
