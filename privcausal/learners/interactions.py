"""Second pass of the nuisances: what the additive fits leave of products of covariates.

Residuals of treatment and outcome are regressed on `spec.interactions.Interactions`: powers of the
two fitted indices, and products of the columns that matter most. Both are chosen from released
numbers; how much of them is believed, by marginal likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

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
    read_sizes,
)
from privcausal.spec.features import Rows
from privcausal.spec.interactions import Index, Interactions
from privcausal.typing import Integers, Matrix, Vector
from privcausal.vault import Cross, OutcomeResidual, Transform, TreatmentResidual

TREATMENT, OUTCOME = "nuisance: treatment interactions", "nuisance: outcome interactions"
SIZES = "nuisance: residual sizes"

POWERS = 7
"""The second and third powers of the indices u and v, with their products, come first."""

MOST_COLUMNS = 8
"""Products are taken of this many columns, those that matter most to both nuisances."""

CURVED_COLUMNS, CURVES = 3, 3
"""Products with curvatures are taken of this many columns; each pair has this many."""

INDEX_SIZE, PAIRS_SIZE, CURVED_SIZE = 0.4, 0.7, 0.5
"""Standard deviation of each index power, and root of the summed variances of all products of
pairs, and of all products with curvatures."""

INDEX_SPREAD, PAIRS_SPREAD, CURVED_SPREAD = 0.5, 0.6, 0.2
"""Public prior sds of the interactions' parts of a nuisance, against that of the additive part."""

PULL, PULL_APART = 0.25, 0.15
"""How strongly log prior variances are held near their centres: those of whole kinds, as for
additive nuisances, and those of single products, of which few may matter, but much."""

RESIDUAL_RANGE = 1.5
"""Outcome residuals are cut at no more than this share of half the outcome's range."""

UNCUT = 0.98
"""Share of outcome residuals that the cut leaves as they are, by a noisy histogram of sizes."""

NORM_QUANTILE = 0.8
"""The norm cut is this quantile of the synthetic population's norms."""


def interaction_needs(treatment: float, outcome: float, sizes: float) -> list[Need]:
    return [
        Need(SIZES, sizes, "nuisance"),
        Need(TREATMENT, treatment, "nuisance"),
        Need(OUTCOME, outcome, "nuisance"),
    ]


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
    half = ground.centre.bound
    believed = (
        Belief(0.25, PROPENSITY_SPREAD),
        Belief((half / 4) ** 2, _outcome_spread(ground, partials)),
    )
    es = _fits(ground, psi, TREATMENT, treatment, 1 - soft, believed[0])
    sizes = read_sizes(ground, outcome, SIZES)
    cut = min(sizes.quantile(UNCUT), RESIDUAL_RANGE * half)
    ys = _fits(ground, psi, OUTCOME, outcome, cut, believed[1])
    return tuple(_extended(p, psi, e, y) for p, e, y in zip(partials, es, ys, strict=True))


def _outcome_spread(ground: Ground, partials: tuple[Partial, ...]) -> float:
    """Prior sd of the additive part: the public one, or what moments have made of it if less.

    The declared range of an outcome says little of its spread.
    """
    phi = ground.rows.phi(ground.features)
    fitted = np.mean([p.pair.y.prior for p in partials if p.pair], axis=0)
    found = float(np.sqrt((fitted * phi.var(axis=0))[ground.features.order > 0].sum()))
    return min(OUTCOME_SPREAD * ground.centre.bound, found)


def interactions(ground: Ground, partials: tuple[Partial, ...]) -> Interactions | None:
    """The map psi, built over the synthetic population from released fits."""
    phi = ground.rows.phi(ground.features)
    e, y = (np.mean([p.pair.mean[k] for p in partials if p.pair], axis=0) for k in (0, 1))
    free = ground.features.order > 0
    indices = (_index(phi, np.where(free, e, 0.0)), _index(phi, np.where(free, y, 0.0)))
    pairs, curved = _pairs(ground, phi, e, y)
    start = Interactions(
        ground.features,
        indices,
        pairs,
        curved,
        phi.std(axis=0) + 1e-12,
        np.zeros((0, 0)),
        np.zeros(POWERS + len(pairs) + CURVES * len(curved)),
        1.0,
    )
    lift, left = regressed_out(start, ground.rows)
    many = CURVES * len(curved)
    size = np.r_[
        np.full(POWERS, INDEX_SIZE),
        np.full(len(pairs), PAIRS_SIZE / np.sqrt(len(pairs) or 1)),
        np.full(many, CURVED_SIZE / np.sqrt(many or 1)),
    ]
    psi = replace(start, lift=lift, gain=gains(size, left.std(axis=0)))
    norms = np.linalg.norm(psi.of(ground.rows), axis=1)
    cut = float(np.quantile(norms, NORM_QUANTILE))
    return replace(psi, cut=cut) if cut > 0 else None


def regressed_out(
    start: Interactions, rows: Rows, weight: Vector | None = None
) -> tuple[Matrix, Matrix]:
    """Regression of the raw columns on phi, shape (p, K), and what it leaves of them, (N, K)."""
    phi = rows.phi(start.features)
    raw = np.stack([column.copy() for column in start.raw(rows)], axis=1)
    root = 1.0 if weight is None else np.sqrt(weight)[:, None]
    lift = np.asarray(np.linalg.lstsq(phi * root, raw * root, rcond=1e-6)[0], float)
    return lift, raw - phi @ lift


def gains(size: Vector | float, left: Vector) -> Vector:
    """Factors that give columns of these sds the wanted ones, shape (K,).

    What is additive already (a square of a binary column, a product of levels of one factor) has
    nothing left to scale up.
    """
    return np.where(left > 0.05, size / np.maximum(left, 0.05), 0.0)


def _index(phi: Matrix, coef: Vector) -> Index:
    value = phi @ coef
    least = max(1e-6 * float(np.abs(coef).max()), 1e-300)  # in the outcome's unit, or none
    return Index(coef, float(value.mean()), max(float(value.std()), least))


Pairs = tuple[tuple[int, int], ...]


def _pairs(ground: Ground, phi: Matrix, e: Vector, y: Vector) -> tuple[Pairs, Pairs]:
    """Pairs of linear functions of different terms, of the columns with the largest slopes.

    The second are those of which curvatures are multiplied too.
    """
    features = ground.features
    linear = np.flatnonzero(features.order == 1)
    strength = sum((c * phi.std(axis=0)) ** 2 / max(float(c @ c), 1e-300) for c in (e, y))
    kept = sorted(linear, key=lambda j: -float(np.asarray(strength)[j]))
    columns = features.design.columns
    bent = [j for j in kept if columns[features.column[j]].kind != "indicator"]

    def pairs(chosen: Sequence[Any]) -> Pairs:
        return tuple(
            (int(i), int(j))
            for i, j in combinations(sorted(chosen), 2)
            if features.group[i] != features.group[j]
        )

    return pairs(kept[:MOST_COLUMNS]), pairs(bent[:CURVED_COLUMNS])


@dataclass(frozen=True, eq=False)
class Belief:
    """What is thought of a nuisance before its moments are seen.

    Attributes
    ----------
    noise_var : float
        Variance of the residual.
    spread : float
        Standard deviation of the additive part.
    """

    noise_var: float
    spread: float


def _fits(
    ground: Ground,
    psi: Interactions,
    stage: str,
    target: Transform,
    cut: float,
    belief: Belief,
) -> list[Posterior]:
    releases = ground.session.moments(stage, Cross(psi, target, cut, stage.partition(": ")[2]))
    sd = float(releases[0].noise_sd[0])
    return [
        _fit(ground, psi, cross, noise, belief, share)
        for cross, noise, share in complements([r.value for r in releases], sd)
    ]


def _fit(
    ground: Ground, psi: Interactions, cross: Vector, sd: float, belief: Belief, share: float
) -> Posterior:
    """A variance for index powers, one for curved products, and one for pairs or one for each."""
    rows = ground.rows
    gram = population_gram(psi, rows, ground.population.count * share, np.ones(len(rows)))
    moments = Moments(gram, cross, 0.0, sd, belief.noise_var)
    fits = [fit(moments, _prior(psi, belief, apart=apart)) for apart in (False, True)]
    return max(fits, key=lambda f: f.evidence)


def _prior(psi: Interactions, belief: Belief, *, apart: bool) -> Prior:
    kinds = _kinds(psi)
    group = np.where(kinds == 2, 2 + np.arange(psi.size), kinds) if apart else kinds
    group = np.unique(group, return_inverse=True)[1] + 1
    var = np.log(_variances(psi, belief.spread))
    centre = np.bincount(group, var)[1:] / np.bincount(group)[1:]
    pull = PULL_APART if apart else PULL
    return Prior(group, np.ones(psi.size), 1.0, centre, pull, fit_noise=True)


def _kinds(psi: Interactions) -> Integers:
    """1 for powers of indices, 2 for products of pairs, 3 for those with curvatures; shape (K,)."""
    counts = (POWERS, len(psi.pairs), CURVES * len(psi.curved))
    return np.repeat(np.array([1, 2, 3]), counts)


def _variances(psi: Interactions, spread: float) -> Vector:
    """Public centres of the prior variances, shape (K,)."""
    of_kind = np.array(
        [
            (INDEX_SPREAD / INDEX_SIZE) ** 2 / POWERS,
            (PAIRS_SPREAD / PAIRS_SIZE) ** 2,
            (CURVED_SPREAD / CURVED_SIZE) ** 2,
        ]
    )
    return np.asarray(spread**2 * of_kind[_kinds(psi) - 1])


def _extended(part: Partial, psi: Interactions, e: Posterior, y: Posterior) -> Partial:
    assert e.regression is not None
    assert y.regression is not None
    group = np.minimum(_kinds(psi), 2)
    return extended(part, psi, Pair(e.regression, y.regression, group))
