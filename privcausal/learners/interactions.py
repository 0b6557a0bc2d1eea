"""Second pass of the nuisances: what the additive fits leave of products of covariates.

Residuals of treatment and outcome are regressed on `spec.interactions.Interactions`: powers of the
two fitted indices, and products of the columns that matter most. Both are chosen from released
numbers; how much of them is believed, by marginal likelihood.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np

from privcausal.inference.additive import Moments, Posterior, Prior, fit
from privcausal.inference.confounding import Pair
from privcausal.inference.gram import population_gram
from privcausal.learners.ground import Ground, complements
from privcausal.learners.needs import Need
from privcausal.learners.nuisances import (
    OUTCOME_SPREAD,
    PROPENSITY_SPREAD,
    RESIDUAL_CLIP,
    Partial,
    by_fold,
    extended,
)
from privcausal.spec.interactions import Index, Interactions
from privcausal.typing import Integers, Matrix, Vector
from privcausal.vault import Cross, OutcomeResidual, Transform, TreatmentResidual

TREATMENT, OUTCOME = "nuisance: treatment interactions", "nuisance: outcome interactions"

POWERS = 7
"""The second and third powers of the indices u and v, with their products, come first."""

MOST_COLUMNS = 8
"""Products are taken of this many columns, those that matter most to both nuisances."""

INDEX_SIZE, PAIRS_SIZE = 0.4, 0.7
"""Root of the summed variances of the index powers (each) and of all products together."""

INDEX_SPREAD, PAIRS_SPREAD = 0.5, 0.3
"""Public prior sds of the interactions' parts of a nuisance, against that of the additive part."""

PULL = 0.25
"""How strongly prior variances are held near their public centres, as for additive nuisances."""

RESIDUAL_RANGE = 1.5
"""Outcome residuals are cut at this share of half the outcome's range."""

NORM_QUANTILE = 0.8
"""The norm cut is this quantile of the synthetic population's norms."""


def interaction_needs(treatment: float, outcome: float) -> list[Need]:
    return [Need(TREATMENT, treatment, "nuisance"), Need(OUTCOME, outcome, "nuisance")]


def refine(ground: Ground, partials: tuple[Partial, ...]) -> tuple[Partial, ...]:
    """The same nuisances with interactions."""
    psi = interactions(ground, partials)
    if psi is None:
        return partials
    soft = min(RESIDUAL_CLIP, ground.clip)
    # the nuisance of a fold's rows was learned on the other folds': those are its own residuals
    own = partials[::-1]
    treatment = by_fold(lambda p: TreatmentResidual(p.e_soft, soft), own)
    outcome = by_fold(lambda p: OutcomeResidual(p.eta, ground.outcome), own)
    half = ground.outcome.bound
    es = _fits(ground, psi, TREATMENT, treatment, 1 - soft, 0.25, PROPENSITY_SPREAD)
    ys = _fits(
        ground,
        psi,
        OUTCOME,
        outcome,
        RESIDUAL_RANGE * half,
        (half / 4) ** 2,
        OUTCOME_SPREAD * half,
    )
    return tuple(_extended(p, psi, e, y) for p, e, y in zip(partials, es, ys, strict=True))


def interactions(ground: Ground, partials: tuple[Partial, ...]) -> Interactions | None:
    """The map psi, built over the synthetic population from released fits."""
    phi = ground.rows.phi(ground.features)
    e, y = (np.mean([p.pair.mean[k] for p in partials if p.pair], axis=0) for k in (0, 1))
    free = ground.features.order > 0
    indices = (_index(phi, np.where(free, e, 0.0)), _index(phi, np.where(free, y, 0.0)))
    pairs = _pairs(ground, phi, e, y)
    start = Interactions(
        ground.features,
        indices,
        pairs,
        phi.std(axis=0) + 1e-12,
        np.zeros((0, 0)),
        np.zeros(POWERS + len(pairs)),
        1.0,
    )
    raw = start.raw(phi)
    lift = np.asarray(np.linalg.lstsq(phi, raw, rcond=1e-6)[0], float)
    left = (raw - phi @ lift).std(axis=0)
    size = np.r_[
        np.full(POWERS, INDEX_SIZE), np.full(len(pairs), PAIRS_SIZE / np.sqrt(len(pairs) or 1))
    ]
    # what is additive already (a square of a binary column) has nothing left to scale up
    gain = np.where(left > 0.05, size / np.maximum(left, 0.05), 0.0)
    psi = replace(start, lift=lift, gain=gain)
    norms = np.linalg.norm(psi.of(ground.rows), axis=1)
    cut = float(np.quantile(norms, NORM_QUANTILE))
    return replace(psi, cut=cut) if cut > 0 else None


def _index(phi: Matrix, coef: Vector) -> Index:
    value = phi @ coef
    return Index(coef, float(value.mean()), max(float(value.std()), 1e-6))


def _pairs(ground: Ground, phi: Matrix, e: Vector, y: Vector) -> tuple[tuple[int, int], ...]:
    """Pairs of linear functions of different terms, of the columns with the largest slopes."""
    features = ground.features
    linear = np.flatnonzero((features.order == 1) & (phi.std(axis=0) > 1e-6))
    strength = sum((c * phi.std(axis=0)) ** 2 / max(float(c @ c), 1e-300) for c in (e, y))
    kept = sorted(linear, key=lambda j: -float(np.asarray(strength)[j]))[:MOST_COLUMNS]
    return tuple(
        (int(i), int(j))
        for i, j in combinations(sorted(kept), 2)
        if features.group[i] != features.group[j]
    )


def _fits(
    ground: Ground,
    psi: Interactions,
    stage: str,
    target: Transform,
    cut: float,
    noise_var: float,
    spread: float,
) -> list[Posterior]:
    releases = ground.session.moments(stage, Cross(psi, target, cut, stage.partition(": ")[2]))
    sd = float(releases[0].noise_sd[0])
    return [
        _fit(ground, psi, cross, noise, noise_var, spread, share)
        for cross, noise, share in complements([r.value for r in releases], sd)
    ]


def _fit(
    ground: Ground,
    psi: Interactions,
    cross: Vector,
    sd: float,
    noise_var: float,
    spread: float,
    share: float,
) -> Posterior:
    """One variance for the index powers, and one for the products or one for each."""
    rows = ground.rows
    gram = population_gram(psi, rows, ground.population.count * share, np.ones(len(rows)))
    moments = Moments(gram, cross, 0.0, sd, noise_var)
    powers, products = np.ones(POWERS), np.arange(psi.size - POWERS)
    fits = [
        fit(moments, _prior(psi, np.r_[powers, group + 2].astype(np.int64), spread))
        for group in (0 * products, products)
    ]
    return max(fits, key=lambda f: f.evidence)


def _prior(psi: Interactions, group: Integers, spread: float) -> Prior:
    var = (
        spread**2
        * np.r_[
            INDEX_SPREAD**2 / (POWERS * INDEX_SIZE**2),
            np.full(group.max() - 1, (PAIRS_SPREAD / PAIRS_SIZE) ** 2),
        ]
    )
    return Prior(
        group,
        np.ones(psi.size),
        1.0,
        np.log(var),
        PULL,
        fit_noise=True,
    )


def _extended(part: Partial, psi: Interactions, e: Posterior, y: Posterior) -> Partial:
    assert e.regression is not None
    assert y.regression is not None
    group = np.where(np.arange(psi.size) < POWERS, 1, 2)
    return extended(part, psi, Pair(e.regression, y.regression, group))
