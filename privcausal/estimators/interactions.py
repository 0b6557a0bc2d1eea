"""Nuisances of the learners of tau(x): additive fits, and interactions of the covariates.

After the additive fits, residuals of treatment and outcome are regressed on products of covariates
and on steps of the two fitted indices (`features.basis.Interactions`). The products use the
columns that matter most, chosen from released numbers. Marginal likelihood determines how much
these regressions are shrunk. How much of the norm each kind of function gets follows from the
noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np

from privcausal import vault
from privcausal.estimators import first_stages
from privcausal.estimators import nuisances as nu
from privcausal.estimators.budget import (
    GRAM,
    ROW_WEIGHTS,
    Step,
    for_products,
    learned_propensity,
    products,
    weighted,
    wide,
)
from privcausal.estimators.first_stages import FitState
from privcausal.features import basis
from privcausal.features.basis import Interactions
from privcausal.features.rows import Rows
from privcausal.inference import cuts, population
from privcausal.inference.confounding import RegressionPair, Remainder
from privcausal.inference.priors import PRIORS
from privcausal.inference.ranges import window_borders
from privcausal.inference.regression import Moments, Prior, Regression, fit
from privcausal.request.plan import StageKey
from privcausal.typing import Matrix, Vector

INTERACTION_SIZES = StageKey("nuisance", "residual sizes")
TREATMENT_INTERACTIONS = StageKey("nuisance", "treatment interactions")
OUTCOME_INTERACTIONS = StageKey("nuisance", "outcome interactions")


def interaction_steps(sizes: float, treatment: float, outcome: float) -> tuple[Step, ...]:
    """The releases of interactions, with their largest weights."""
    weights = {
        INTERACTION_SIZES: sizes,
        TREATMENT_INTERACTIONS: treatment,
        OUTCOME_INTERACTIONS: outcome,
    }
    return tuple(
        Step(key, partial(for_products, most=most), (products,)) for key, most in weights.items()
    )


CURVES = 3
"""Number of products with curvatures for each pair."""

ADDITIVE = 0.05
"""Residual sd below which a column counts as additive, to allow for rounding."""


def refine(state: FitState, partials: nu.Folds, size: float | None = None) -> nu.Folds:
    """The same nuisances, with interactions if they are planned.

    `size` is a typical size of the outcome's residuals. It gives the prior sd of the mean outcome
    over the rows if the fit does not.
    """
    if not state.plan.has(TREATMENT_INTERACTIONS):
        return partials
    psi = interactions(state, partials)
    if psi is None:  # no products of these covariates
        state.unused(INTERACTION_SIZES, TREATMENT_INTERACTIONS, OUTCOME_INTERACTIONS)
        return partials
    # T - e is in [soft - 1, 1 - soft]: by the limits of e, or by clipping if T is a number
    soft = 1 - state.most if state.request.dose else state.soft_clip
    # A fold's nuisance was learned on the other fold. Its own residuals are at those rows.
    swapped = partials[::-1]
    treatment = nu.by_fold(vault.OfTreatment("residual", p.e_soft, soft) for p in swapped)
    outcome = nu.by_fold(vault.OutcomeResidual(p.eta, state.outcome) for p in swapped)
    first = vault.Cross(psi, state.weigh(treatment), 1 - soft, TREATMENT_INTERACTIONS.query)
    edges = cuts.size_edges(outcome.bound)
    sizing = vault.SizeHistogram(outcome, edges, "|residual|")
    state.gather({INTERACTION_SIZES: sizing}, {TREATMENT_INTERACTIONS: first})
    even = 1.0
    if not state.request.dose:
        even = nu.evenness(float(np.mean([p.e_soft(state.rows).mean() for p in partials])))
    es = _regressions(
        state,
        psi,
        TREATMENT_INTERACTIONS,
        first,
        noise_var=PRIORS.treatment_variance * even,
        spread=PRIORS.propensity_sd * np.sqrt(even),
    )
    look = state.release(INTERACTION_SIZES, sizing)
    sizes = cuts.without_noise_tail(look.value, float(look.noise_sd[0]), edges)
    if size:
        spread = float(np.sqrt(PRIORS.window_explained)) * size
    else:
        # prior sd of the additive part: its usual sd, or the sd of the fits if it is smaller
        prior = np.mean([p.pair.y.prior for p in partials if p.pair], axis=0)
        variances = prior * state.rows.phi(state.features).var(axis=0)
        fitted = float(np.sqrt(variances[state.features.order > 0].sum()))
        spread = min(PRIORS.outcome_sd * float(np.sqrt(state.variance)), fitted)
    # noise of a cross moment over the root of the mean eigenvalue of E[psi psi']; directions with
    # much smaller ones are shrunk, so their noise does not matter
    typical = float(np.sqrt((psi.of(state.rows) ** 2).mean()))
    noise = nu.cross_noise(state, OUTCOME_INTERACTIONS, psi.cut) / (typical * state.count)
    lost = np.array([cuts.unseen_bias(sizes, threshold) for threshold in sizes.cuts])
    cut = cuts.Cut.least(sizes.cuts, noise, lost)
    ys = _regressions(
        state,
        psi,
        OUTCOME_INTERACTIONS,
        vault.Cross(psi, state.weigh(outcome), cut.threshold, OUTCOME_INTERACTIONS.query),
        noise_var=PRIORS.outcome_noise_sd**2 * state.variance,
        spread=spread,
        lost=cut.bias,
    )
    every = np.full(psi.size, True)
    pairs = [RegressionPair(e, y, every, one_factor=True) for e, y in zip(es, ys, strict=True)]
    return tuple(nu.extended(p, psi, pair) for p, pair in zip(partials, pairs, strict=True))


NUISANCE_STEPS = (
    Step(first_stages.COLUMN_RANGES, 0.02, (first_stages.loose,)),
    Step(
        first_stages.OUTCOME_RANGE,
        0.02,
        (wide, lambda _, base: not base.released_weights),
        window_borders,
    ),
    Step(GRAM, 0.14),
    Step(nu.TREATMENT, 0.07, (learned_propensity,)),
    Step(nu.OUTCOME, 0.25),
    *interaction_steps(0.01, 0.06, 0.14),
)
"""Both nuisances, with their interactions if the base learns interactions."""

WEIGHTED_STEPS = (
    NUISANCE_STEPS[0],
    Step(ROW_WEIGHTS, 0.02, (weighted,)),
    *NUISANCE_STEPS[1:],
)
"""Nuisances that accept survey weights."""


def fit_nuisances(
    state: FitState,
) -> tuple[FitState, nu.Folds, Remainder]:
    """Run every stage that `NUISANCE_STEPS` planned.

    Returns the nuisances by fold, and the bias of averages beyond the bias
    that the distributions of the nuisances describe.
    """
    release = first_stages.outcome_histogram(state, first_stages.OUTCOME_RANGE)
    state, partials = nu.additive_nuisances(nu.windowed(state, release))
    state, partials = nu.clipped(state, partials)
    return state, *refine_supported(state, partials)


def refine_supported(
    state: FitState, partials: nu.Folds, size: float | None = None
) -> tuple[nu.Folds, Remainder]:
    """Add planned interactions if the evidence of some fold supports them.

    If interactions are dropped, the averages allow for the confounding that they may cause.
    """
    extended = refine(state, partials, size)
    beyond = [p.beyond for p in extended if p.beyond is not None]
    supported = any(pair.support > 0 for _, pair in beyond)
    if extended is partials or supported or len(beyond) < len(extended):
        return extended, Remainder(0.0, 0.0)
    biases, without = [], []
    for part, (psi, pair) in zip(extended, beyond, strict=True):
        weight = nu.remainder_weight(state, psi, part.e)
        bias = pair.remainder(weight)
        shift = pair.confounding(weight) + bias.mean
        biases.append(Remainder(0.0, float(np.hypot(bias.sd, shift))))
        # Interactions of zero keep the structure of saved results unchanged.
        without.append(nu.extended(part, psi, pair.without()))
    return tuple(without), nu.over_folds(biases)


def interactions(state: FitState, partials: nu.Folds) -> Interactions | None:
    """The map psi, built over the synthetic population from released fits."""
    phi, slopes = state.rows.phi(state.features), []
    for part in partials:  # coefficients; boosted shapes use the nearest functions
        if part.pair is not None:
            slopes.append(part.pair.mean)
        else:
            values = np.stack([part.e_soft(state.rows), part.eta(state.rows)], axis=1)
            e, y = np.linalg.lstsq(phi, values, rcond=1e-6)[0].T
            slopes.append((e, y))
    e, y = (np.mean(coefs, axis=0) for coefs in zip(*slopes, strict=True))
    pairs, curved = _pairs(state, phi, e, y)
    if not pairs:
        return None
    indices, splits = basis.index_splits(state.features, (e, y), state.rows, PRIORS.index_steps)
    start = Interactions(
        state.features,
        indices,
        pairs,
        curved,
        phi.std(axis=0) + 1e-12,
        np.zeros((0, 0)),
        np.zeros(0),
        1.0,
        splits,
    )
    lift, left = regressed_out(start, state.rows)
    # factors of the columns: a mean square of one for each kind, times its share of the norm
    gain, spectra, kinds = np.zeros(left.shape[1]), [], _kinds(start)
    for columns, _, alike in kinds:
        residuals = left[:, columns]
        if alike:
            gain[columns] = gains(1 / np.sqrt(residuals.shape[1]), residuals.std(axis=0))
        else:  # steps are correlated
            gain[columns] = gains(1.0, np.sqrt((residuals**2).sum(axis=1).mean()))
        scaled = residuals * gain[columns]
        spectra.append(np.maximum(np.linalg.eigvalsh(scaled.T @ scaled / len(residuals)), 0.0))
    spreads = PRIORS.propensity_sd * np.array([spread for _, spread, _ in kinds])
    noise = nu.cross_noise(state, TREATMENT_INTERACTIONS, 1.0) / state.count
    shares = shares_of_norm(spectra, spreads, noise)
    for (columns, _, _), share in zip(kinds, shares, strict=True):
        gain[columns] *= np.sqrt(share)
    psi = replace(start, lift=lift, gain=gain)
    norms = np.linalg.norm(psi.of(state.rows), axis=1)
    cut = float(np.quantile(norms, PRIORS.interaction_norm_quantile))
    return replace(psi, cut=cut) if cut > 0 else None


def _kinds(psi: Interactions) -> list[tuple[slice, float, bool]]:
    """Products of pairs, products with curvatures, and steps of an index.

    The columns of a kind have one prior variance. The prior sd of their sum is relative to the
    additive part. The columns of some kinds get equal sds.
    """
    many = len(psi.pairs), CURVES * len(psi.curved), len(psi.splits)
    spreads = PRIORS.pairs_spread, PRIORS.curved_spread, PRIORS.steps_spread
    ends = np.cumsum((0, *many)).tolist()
    return [
        (slice(ends[k], ends[k + 1]), spread, k < 2) for k, spread in enumerate(spreads) if many[k]
    ]


SHARE_ROUNDS = 40
"""Rounds of `shares_of_norm`; the shares then change by less than a hundredth."""

LEAST_SHARE = 0.01
"""Smallest share of a kind: its columns stay measurable, at a cost below 1% of the noise each."""


def shares_of_norm(spectra: Sequence[Vector], spreads: Vector, noise: float) -> Vector:
    """Shares of the squared norm of psi that leave the smallest expected error of the propensity.

    The noise of a moment grows with the norm of the whole psi. Along an eigenvector of eigenvalue
    l, a kind with the share a of the squared norm is known with the precision a l / noise^2, beside
    its prior variance spread^2 l. If n eps is small, the norm goes to few, likely functions. The
    shares are found by the multiplicative algorithm of
    optimal design (Silvey, Titterington and Torsney 1978).

    Parameters
    ----------
    spectra : sequence of Vector
        Eigenvalues of each kind's mean squares, with a sum of 1 (0 for a kind of additive columns).
    spreads : Vector
        Prior sd of each kind, in units of the propensity.
    noise : float
        Noise sd of a mean of propensity residuals times a column of norm 1.
    """
    shares = np.full(len(spectra), 1 / len(spectra))
    for _ in range(SHARE_ROUNDS):
        slopes = np.zeros(len(shares))
        for k, (squares, spread) in enumerate(zip(spectra, spreads, strict=True)):
            left = 1 / (1 / (spread**2 * squares + 1e-300) + shares[k] * squares / noise**2)
            slopes[k] = np.sum(left**2 * squares) / noise**2
        shares = shares * np.sqrt(slopes)
        shares = np.maximum(shares / max(shares.sum(), 1e-300), LEAST_SHARE)
    return np.asarray(shares / shares.sum())


def regressed_out(
    start: Interactions, rows: Rows, weight: Vector | None = None
) -> tuple[Matrix, Matrix]:
    """Regress the raw columns on phi: coefficients, shape (p, K), and residuals, shape (N, K)."""
    phi = rows.phi(start.features)
    raw = np.stack([column.copy() for column in start.raw(rows)], axis=1)
    root = 1.0 if weight is None else np.sqrt(weight)[:, None]
    lift = np.asarray(np.linalg.lstsq(phi * root, raw * root, rcond=1e-6)[0], float)
    return lift, raw - phi @ lift


def gains(size: Vector | float, left: Vector) -> Vector:
    """Factors that scale columns with these sds to the desired sds, shape (K,).

    A column that is already additive has a residual of zero and is not scaled up. Examples are the
    square of a binary column and the product of two levels of one factor.
    """
    return np.where(left > ADDITIVE, size / np.maximum(left, ADDITIVE), 0.0)


ColumnPairs = tuple[tuple[int, int], ...]


def _pairs(state: FitState, phi: Matrix, e: Vector, y: Vector) -> tuple[ColumnPairs, ColumnPairs]:
    """Pairs of linear functions of different terms, for the columns with the largest slopes.

    The second result holds the pairs whose curvatures are multiplied too.
    """
    features = state.features
    linear = np.flatnonzero(features.order == 1)
    strength = sum((c * phi.std(axis=0)) ** 2 / max(float(c @ c), 1e-300) for c in (e, y))
    kept = sorted(linear, key=lambda j: -float(np.asarray(strength)[j]))
    columns = features.design.columns
    bent = [j for j in kept if columns[features.column[j]].kind != "indicator"]
    pairs, curved = (
        tuple(
            (int(i), int(j))
            for i, j in combinations(sorted(chosen), 2)
            if features.group[i] != features.group[j]
        )
        for chosen in (kept[: PRIORS.interaction_columns], bent[: PRIORS.curved_columns])
    )
    return pairs, curved


def _regressions(
    state: FitState,
    psi: Interactions,
    stage: StageKey,
    order: vault.Cross,
    *,
    noise_var: float,
    spread: float,
    lost: float = 0.0,
) -> list[Regression]:
    """Regress a nuisance's residuals for each fold, given the noise variance and the prior sd.

    `spread` is the prior sd of the additive part. Products of pairs and curved products each have
    one prior variance. Clipping may remove any function h of the covariates with root mean square
    of at most `lost`. By the Cauchy-Schwarz inequality, a moment v'E[psi h] is at most `lost` times
    the root of v'E[psi psi']v, and has an error of at most this size.
    """
    # one prior variance for each kind; its center gives the kind its spread, relative to `spread`
    values, centre, group = psi.of(state.rows), [], np.zeros(psi.size, int)
    for columns, relative, _ in _kinds(psi):
        square = (values[:, columns] ** 2).sum(axis=1).mean()
        if square > 0:  # otherwise all columns are additive
            centre.append(2 * np.log(spread * relative) - np.log(square))
        group[columns] = max(len(centre), 1)
    unsure = np.ones(psi.size, bool)
    prior = Prior(
        group,
        np.ones(psi.size),
        1.0,
        np.array(centre),
        PRIORS.kinds_pull,
        fit_noise=True,
        unsure=unsure,
    )
    releases, regressions = state.moments(stage, order), []
    noise_sd, ones = float(releases[0].noise_sd[0]), np.ones(len(state.rows))
    for cross, sd, share in first_stages.complements([r.value for r in releases], noise_sd):
        rows = state.count * share
        gram = population.population_gram(psi, state.rows, rows, ones)
        moments = Moments(gram, cross, 0.0, sd, noise_var, lost**2 * rows * gram)
        regression = fit(moments, prior).regression
        assert regression is not None
        regressions.append(regression)
    return regressions
