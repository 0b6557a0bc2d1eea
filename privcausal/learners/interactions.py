"""Second pass of the nuisances: what the additive fits leave of products of covariates.

Residuals of treatment and outcome are regressed on `features.products.Interactions`: products of
the columns that matter most, chosen from released numbers. How much of them is believed follows
from marginal likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from privcausal.features.products import Interactions
from privcausal.features.rows import Rows
from privcausal.inference.confounding import Pair
from privcausal.inference.cuts import cut_of_least_error
from privcausal.inference.population import population_gram
from privcausal.inference.priors import PRIORS
from privcausal.inference.regression import Moments, Prior, Regression, fit
from privcausal.learners.budget import StageWeight
from privcausal.learners.nuisances import (
    FoldNuisances,
    by_fold,
    cross_noise,
    extended,
    read_sizes,
    sizes_of,
)
from privcausal.learners.shares import Stages
from privcausal.learners.state import FitState, complements
from privcausal.request.plan import StageKey
from privcausal.request.request import Request
from privcausal.typing import Matrix, Vector
from privcausal.vault import Cross, OutcomeResidual, TreatmentResidual

INTERACTIONS = (
    Stages.INTERACTION_SIZES,
    Stages.TREATMENT_INTERACTIONS,
    Stages.OUTCOME_INTERACTIONS,
)
"""Their stages."""

CURVES = 3
"""Products with curvatures that each pair has."""

ADDITIVE = 0.05
"""Columns of which additive functions leave no larger sd are additive, but for rounding."""


def interaction_needs(
    request: Request, treatment: float, outcome: float, sizes: float
) -> list[StageWeight]:
    if len(request.formula.terms) < 2:  # products are of two terms
        return []
    return [
        StageWeight(Stages.INTERACTION_SIZES, sizes),
        StageWeight(Stages.TREATMENT_INTERACTIONS, treatment),
        StageWeight(Stages.OUTCOME_INTERACTIONS, outcome),
    ]


def refine(
    state: FitState, partials: tuple[FoldNuisances, ...], spread: float | None = None
) -> tuple[FoldNuisances, ...]:
    """The same nuisances with interactions, where they are planned.

    `spread` is a prior sd of the mean outcome over the rows, where its fit does not give it.
    """
    if not state.session.plan.has(Stages.TREATMENT_INTERACTIONS):
        return partials
    psi = interactions(state, partials)
    if psi is None:  # the covariates have no products
        state.session.unused(*INTERACTIONS)
        return partials
    soft = state.residual_clip
    # the nuisance of a fold's rows was learned on the other folds': those are its own residuals
    own = partials[::-1]
    treatment = by_fold(lambda p: TreatmentResidual(p.e_soft, soft), own)
    outcome = by_fold(lambda p: OutcomeResidual(p.eta, state.outcome), own)
    half = state.centre.bound
    first = Cross(psi, treatment, 1 - soft, Stages.TREATMENT_INTERACTIONS.query)
    sizing = replace(sizes_of(outcome), what="|residual|")
    state.session.gather({Stages.INTERACTION_SIZES: sizing}, {Stages.TREATMENT_INTERACTIONS: first})
    es = _regressions(
        state, psi, Stages.TREATMENT_INTERACTIONS, first,
        noise_var=PRIORS.treatment_variance, spread=PRIORS.propensity_sd,
    )  # fmt: skip
    sizes = read_sizes(state, sizing, Stages.INTERACTION_SIZES)
    spread = spread or _outcome_spread(state, partials)
    cut = cut_of_least_error(sizes, _noise_per_cut(state, psi))
    ys = _regressions(
        state, psi, Stages.OUTCOME_INTERACTIONS,
        Cross(psi, outcome, cut.at, Stages.OUTCOME_INTERACTIONS.query),
        noise_var=(PRIORS.outcome_noise_sd * half) ** 2, spread=spread,
        lost=cut.bias,
    )  # fmt: skip
    pairs = [Pair(e, y, np.full(psi.size, True)) for e, y in zip(es, ys, strict=True)]
    return tuple(extended(p, psi, pair) for p, pair in zip(partials, pairs, strict=True))


def _noise_per_cut(state: FitState, psi: Interactions) -> float:
    """Noise sd of a mean outcome along one direction of psi, per unit of the residuals' cut.

    Without shrinkage its mean square is that of a cross moment times the mean eigenvalue of
    E[psi psi']^-1. What a cut takes off is of the same unit.
    """
    moments = population_gram(psi, state.rows, 1.0, np.ones(len(state.rows)))
    inverse = np.linalg.pinv(moments, rcond=1e-6, hermitian=True)
    noise = cross_noise(state, Stages.OUTCOME_INTERACTIONS, psi.cut)
    return noise * float(np.sqrt(np.trace(inverse) / psi.size)) / state.population.count


def _outcome_spread(state: FitState, partials: tuple[FoldNuisances, ...]) -> float:
    """Prior sd of the additive part: the public one, or that of the fits where it is less.

    The declared range of an outcome says little of its spread.
    """
    phi = state.rows.phi(state.features)
    fitted = np.mean([p.pair.y.prior for p in partials if p.pair], axis=0)
    found = float(np.sqrt((fitted * phi.var(axis=0))[state.features.order > 0].sum()))
    return min(PRIORS.outcome_sd * state.centre.bound, found)


def interactions(state: FitState, partials: tuple[FoldNuisances, ...]) -> Interactions | None:
    """The map psi, built over the synthetic population from released fits."""
    phi = state.rows.phi(state.features)
    means = [_slopes(p, phi, state.rows) for p in partials]
    e, y = np.mean([m[0] for m in means], axis=0), np.mean([m[1] for m in means], axis=0)
    pairs, curved = _pairs(state, phi, e, y)
    if not pairs:
        return None
    start = Interactions(
        state.features,
        None,
        pairs,
        curved,
        phi.std(axis=0) + 1e-12,
        np.zeros((0, 0)),
        np.zeros(len(pairs) + CURVES * len(curved)),
        1.0,
    )
    lift, left = regressed_out(start, state.rows)
    many = CURVES * len(curved)
    size = np.r_[
        np.full(len(pairs), PRIORS.pairs_size / np.sqrt(len(pairs))),
        np.full(many, PRIORS.curved_size / np.sqrt(many or 1)),
    ]
    psi = replace(start, lift=lift, gain=gains(size, left.std(axis=0)))
    norms = np.linalg.norm(psi.of(state.rows), axis=1)
    cut = float(np.quantile(norms, PRIORS.interaction_norm_quantile))
    return replace(psi, cut=cut) if cut > 0 else None


def _slopes(part: FoldNuisances, phi: Matrix, rows: Rows) -> tuple[Vector, Vector]:
    """Coefficients of propensity and mean outcome: of shapes, those of the nearest functions."""
    if part.pair is not None:
        return part.pair.mean
    values = np.stack([part.e_soft(rows), part.eta(rows)], axis=1)
    e, y = np.linalg.lstsq(phi, values, rcond=1e-6)[0].T
    return e, y


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
    return np.where(left > ADDITIVE, size / np.maximum(left, ADDITIVE), 0.0)


Pairs = tuple[tuple[int, int], ...]


def _pairs(state: FitState, phi: Matrix, e: Vector, y: Vector) -> tuple[Pairs, Pairs]:
    """Pairs of linear functions of different terms, of the columns with the largest slopes.

    The second are those whose curvatures are multiplied too.
    """
    features = state.features
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

    return pairs(kept[: PRIORS.interaction_columns]), pairs(bent[: PRIORS.curved_columns])


def _regressions(
    state: FitState,
    psi: Interactions,
    stage: StageKey,
    order: Cross,
    *,
    noise_var: float,
    spread: float,
    lost: float = 0.0,
) -> list[Regression]:
    """Of a nuisance's residuals for each fold, from prior variance of noise and additive part's sd.

    There is one variance for products of pairs and one for curved products. A cut may take any
    function of the covariates of root mean square `lost` off: by Cauchy and Schwarz a moment
    v'E[psi h] is at most that times the root of v'E[psi psi']v, and errs by as much.
    """
    releases = state.session.moments(stage, order)
    ones, found = np.ones(len(state.rows)), []
    noise_sd = float(releases[0].noise_sd[0])
    for cross, sd, share in complements([r.value for r in releases], noise_sd):
        rows = state.population.count * share
        gram = population_gram(psi, state.rows, rows, ones)
        moments = Moments(gram, cross, 0.0, sd, noise_var, lost**2 * rows * gram)
        regression = fit(moments, _prior(psi, spread)).regression
        assert regression is not None
        found.append(regression)
    return found


def _prior(psi: Interactions, spread: float) -> Prior:
    # 0 for products of pairs, 1 for those with curvatures
    kinds = np.repeat(np.array([0, 1]), (len(psi.pairs), CURVES * len(psi.curved)))
    sizes = np.array([PRIORS.pairs_size, PRIORS.curved_size])
    of_kind = (np.array([PRIORS.pairs_spread, PRIORS.curved_spread]) / sizes) ** 2
    var = np.log(spread**2 * of_kind[kinds])
    centre = np.bincount(kinds, var) / np.bincount(kinds)
    return Prior(kinds + 1, np.ones(psi.size), 1.0, centre, PRIORS.kinds_pull, fit_noise=True)
