"""DP-CATE (Schroeder et al. 2025): the whole effect function, by private kernel regression."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from privcausal import accounting, vault
from privcausal.accounting.price import exact
from privcausal.errors import BudgetError, CapabilityError, named
from privcausal.estimators import bases, budget, first_stages, meta
from privcausal.estimators import nuisances as nu
from privcausal.estimators.base import CateLearner, EffectFit, reported_nuisances
from privcausal.estimators.budget import Step
from privcausal.features import functions
from privcausal.features.design import Design, Rows, read_queries
from privcausal.features.functions import Constant, Triples, fourier
from privcausal.inference import cuts, effects
from privcausal.inference.priors import PRIORS
from privcausal.request.request import Plan, Request, Stage, StageKey, portions
from privcausal.typing import Frame, Integers, Matrix, Vector

# -- the kernel regression's prior, from released numbers ------------------------------------------
#
# The synthetic population gives the spectrum of the basis. The spectrum gives the distribution of
# the weights, for effects drawn from a Gaussian process of the kernel. The ridge has the least
# expected error.

EFFECT_SPREAD, LEFT_SPREAD = 1.0, 0.25
"""Public prior sds, relative to the outcome's residual sd: of the effect over covariates, and of
the part that a first additive effect misses."""

PULL = 1.0
"""Sd of the log of the prior sd around its public value, where it stays if data are sparse."""

_RIDGES = np.geomspace(1e-6, 1.0, 49)
"""Candidate ridges, as shares of the summed curvature of all rows."""


class KernelPrior(NamedTuple):
    """Distribution of a ridge regression's weights, in directions of the population.

    The ridge is lambda. With w ~ N(0, s^2 I) and total curvature a_j along direction j, the exact
    weights are b_j w_j + N(0, sigma^2 a_j / (a_j + lambda)^2), b_j = a_j / (a_j + lambda).
    """

    # Eigenvalues of E[phi phi'] over the synthetic population, and its directions
    values: Vector
    vectors: Matrix
    mass: float  # Rows times their mean weight: a = mass x values
    # sigma^2, the pseudo-outcome's residual variance per unit of weight; and s^2
    residual: float
    spread: float

    def shrunken(self, ridge: float) -> tuple[Vector, Vector]:
        """b_j, and the sampling variance of exact weights."""
        a = self.mass * self.values
        return a / (a + ridge), self.residual * a / (a + ridge) ** 2

    def risk(self, ridge: float, noise_sd: float) -> tuple[Vector, Vector]:
        """Share of signal in each noisy weight, which filters it, and its mean squared error then.

        The share is in [0, 1], and 1 without noise. Both have shape (p,).
        """
        b, sampling = self.shrunken(ridge)
        signal = np.maximum(self.spread * b**2 + sampling, 1e-300)
        f = signal / (signal + noise_sd**2)
        return f, self.spread * (1 - f * b) ** 2 + f**2 * (sampling + noise_sd**2)

    def cov(self, ridge: float, noise_sd: float) -> Matrix:
        """Second moments of the filtered weights' error, shape (p, p)."""
        cov = (self.vectors * self.risk(ridge, noise_sd)[1]) @ self.vectors.T
        return np.asarray(0.5 * (cov + cov.T))


# Base "nn": nuisance networks trained by differentially private gradient descent.

NETWORK_BATCH, NETWORK_RATE = 128, 0.01
"""Mean minibatch size and Adam's step size (Schroeder et al. 2025, supplement G.3)."""

TREATMENT_NETWORK = StageKey("nuisance", "network of the treatment")
OUTCOME_NETWORK = StageKey("nuisance", "network of the outcome")
SHARE = 0.5
"""Share of epsilon and of delta for the networks, if all stages read all rows."""


def network_stages(
    request: Request, undeclared: budget.Undeclared, *, own_half: bool = False
) -> list[Stage]:
    """Stages of the networks, with their shares of epsilon and delta.

    Networks on their own half of the rows use all of epsilon and delta. If there are two, each has
    (epsilon / 2, delta / 2) (Schroeder et al. 2025, Theorem 1). Refuse requests that the networks
    do not support.
    """
    unsupported = {
        "neighbors='add_remove'": request.trust.neighbors != "substitute",
        "unit=": request.trust.unit is not None,
        f"split={request.split!r}": request.split != "full" and request.mode != "paper",
        "shares=": bool(request.budget.shares),
        "undeclared bounds": bool(undeclared),
        "groups=": bool(request.groups),
    }
    bases.refuse(unsupported, "base='nn' does not support {}. Try base='kernel'.")
    unknown = request.propensity is None
    names = [TREATMENT_NETWORK, OUTCOME_NETWORK] if unknown else [OUTCOME_NETWORK]
    share = Fraction(1) if own_half else exact(SHARE)
    epsilon, delta = (
        math.floor(exact(amount) * share * accounting.PICO) // len(names)
        for amount in (request.budget.epsilon, request.budget.delta)
    )
    if epsilon < 1 or delta < 1:
        raise BudgetError(
            "eps or delta is too small to be divided among the stages (units of 1e-12)."
        )
    rows, part = (0.5, "nuisance") if own_half else (1.0, "all")
    return [Stage(name, 0, delta, 0, rows, part, epsilon, own_half) for name in names]


def learn_networks(
    fit: first_stages.Fit, design: Design, clip: float, base: bases.NN
) -> tuple[nu.FoldFit, functions.NuisanceTriple, effects.Effect]:
    """Train the networks on the rows of their stages and release their weights.

    The last returned value is the effect implied by the networks, mu1 - mu0.
    """
    request, schema = fit.request, fit.schema
    outcome = first_stages.outcome_of(request, schema)
    propensity = first_stages.declared_propensity(request, schema)
    soft = min(PRIORS.residual_clip, clip)
    e: functions.Function
    e_soft: functions.Function
    if propensity is None:
        treated = _weights(fit, design, base, TREATMENT_NETWORK, vault.Assigned())
        e = functions.Network(design, treated, clip, 1 - clip, share=True)
        e_soft = functions.Network(design, treated, soft, 1 - soft, share=True)
    else:
        e = e_soft = propensity
    low, high, half = outcome.lo, outcome.hi, outcome.bound
    means = _weights(fit, design, base, OUTCOME_NETWORK, outcome)
    mu0, mu1 = (
        functions.Network(design, means, low, high, 0.5 * (low + high), half, arm)
        for arm in (0.0, 1.0)
    )
    part = nu.FoldFit(e, e_soft, functions.Mixture(e_soft, mu1, mu0), None)
    pilot = effects.Predicted((), 2 * half, functions.Pointwise(np.subtract, mu1, mu0))
    return part, functions.NuisanceTriple(e, mu0, mu1), pilot


def _weights(
    fit: first_stages.Fit, design: Design, base: bases.NN, stage: StageKey, target: vault.Transform
) -> Vector:
    """Weights of the network for this target; that of the outcome has the treatment as an input."""
    by_arm = stage == OUTCOME_NETWORK
    planned = fit.plan.stage(stage)
    assert fit.vault.size is not None  # Guaranteed by `network_stages`.
    rows = max(math.floor(planned.rows * fit.vault.size), 1)
    rate = min(1.0, NETWORK_BATCH / rows)
    steps = math.ceil(base.epochs / rate)
    sd = accounting.multiplier_for_replaced(
        planned.epsilon / accounting.PICO,
        planned.delta / accounting.PICO,
        rate,
        steps,
        functions.size(len(design) + by_arm),
        vault.PrivateNetwork.grid,
    )
    what = "outcome" if by_arm else "treatment"
    pace = steps, rate, rate * rows, NETWORK_RATE
    query = vault.PrivateNetwork(design, target, not by_arm, by_arm, *pace, sd, what)
    return fit.release(stage, query).value


ORTHOGONAL = 1e-9
"""Queries within this distance of orthogonality in the RKHS get independent noise."""

LEAST_RIDGE = 1e-4
"""Minimum chosen ridge, as a share of the largest possible curvature of the rows.

The solver's steps grow with one over the root of the ridge, and this ridge hardly shrinks.
"""

KERNEL = StageKey("effect", "kernel weights")

FAILING = 1
"""Bound, in units of 1e-12, for the probability that there are more rows than `_most` returns."""

OTHER_HALF = 200
"""One half may exceed four times the other half by this number of rows; see `_most`."""

NETWORK_STEPS = (Step(first_stages.MARGINALS, 0.06), Step(nu.SCORE_SIZES, 0.04), Step(KERNEL, 0.90))
"""Stages charged in rho if networks learn the nuisances."""


@named
@dataclass(frozen=True)
class DPCATE(CateLearner):
    """Effect function tau(x) by Gaussian-kernel regression of a pseudo-outcome.

    This is the second stage of the paper's Theorem 3, with the sensitivity corrected and without
    state. The function has weights on a public finite basis. The weights are released once, with
    discrete Gaussian noise. Its scale is proportional to the largest l2 change that one row can
    cause (`vault.KernelRegression`). All predictions are functions of the released weights.

    Nuisances are private (base "gam"). A first additive effect, as in learner "r", is also private.
    The kernel regression learns the difference from the first effect, and shrinks toward it.

    Parameters
    ----------
    score : {"r", "dr"}
        The pseudo-outcome: (Y - eta) / (T - e) with weight (T - e)^2, or the doubly robust score.
    queries : data frame, optional
        Public points. If given, the effect is released only there. Default: the whole function.
    """

    score: Literal["r", "dr"] = "r"
    queries: Frame | None = field(default=None, repr=False, compare=False)
    name: ClassVar[str] = "dpcate"
    title: ClassVar[str] = "DP-CATE"
    fixed_base: ClassVar[bases.PrivateBase | None] = bases.Gam()
    bands: ClassVar[str] = (
        "Effect bands are approximate and valid on average over x. They combine the uncertainty of "
        "the additive first effect with the uncertainty of the remainder. The remainder is modeled "
        "as a Gaussian process with the kernel's covariance, scaled by released numbers."
    )
    steps: ClassVar[tuple[Step, ...]] = (
        *nu.NUISANCE_STEPS,
        Step(meta.RESIDUAL_SIZES, 0.02),
        Step(meta.RESIDUALS, 0.35),
        Step(nu.SCORE_SIZES, 0.02),
        Step(KERNEL, 0.15),
    )

    def __post_init__(self) -> None:
        bases.check_one_of("DPCATE(score=)", self.score, ("r", "dr"))

    def plan(self, request: Request, base: bases.AnyBase, undeclared: budget.Undeclared) -> Plan:
        """Plan stages with integer budgets, without data."""
        kernel = second_stage(base)
        if kernel.loss == "squared" and request.trust.neighbors != "substitute":
            raise CapabilityError(
                "Kernel(loss='squared') requires a public number of rows, but "
                "neighbors='add_remove' keeps it private. Use loss='huber'."
            )
        if isinstance(base, bases.NN):
            # Networks are charged in (epsilon, delta), and other stages in rho. All stages read all
            # rows, so both charges add up.
            networks = network_stages(request, undeclared)
            spent = sum(stage.epsilon for stage in networks)
            rest = float(exact(request.budget.epsilon) - Fraction(spent, accounting.PICO))
            failing = sum(stage.delta for stage in networks)
            delta = accounting.delta_after(request.budget.delta, failing)
            cap = accounting.rho_of(rest * (1 - 1e-12), delta, gdp=True)
            weights = budget.stage_weights(NETWORK_STEPS, request, bases.Gam())
            amounts = portions(cap, list(weights.values()))
            first, *others = map(Stage, weights, amounts)
            stages = (first, *networks, *others)
            return Plan(request, self.name, bases.NN.name, stages, cap, gdp=True)
        return budget.make_plan(
            request,
            self.name,
            kernel.name,
            self.stages(request, bases.Gam()),
            self.shares,
            undeclared,
            failing={KERNEL: FAILING},
        )

    def learn(self, state: first_stages.FitState) -> EffectFit:
        """Learn the effect; averages are centered at the mean of the first effect."""
        base = state.option
        if isinstance(base, bases.NN):
            part, nuisance, first = learn_networks(state, state.design, state.clip, base)
            partials: nu.Folds = (part,)
            nuisances: Triples = (nuisance,)
            doubt = nu.remainder(state, partials)
        else:
            state, partials, doubt = nu.fit_nuisances(state)
            moments = meta.residual_moments(state, partials)
            prior = state.regression.conditional
            first, partials = meta.orthogonal_effect(state, partials, moments, prior)
            nuisances = tuple(nu.nuisance_of(p, first, state.outcome) for p in partials)
        score = _scored(self.score, state, partials, nuisances, first)
        effect = _kernel_effect(state, second_stage(base), score, partials[0])
        models, centre = reported_nuisances(partials, nuisances), score.centre
        return EffectFit(state, effect, nuisances, models, doubt, partials, first, centre=centre)

    @classmethod
    def method(cls, title: str, plan: Plan) -> str:
        where = "predictions at the declared points" if plan.request.queries else "basis weights"
        networks = "neural-network nuisance models (private gradient descent)"
        nuisances = networks if plan.base == bases.NN.name else "private additive nuisance models"
        left = "" if plan.base == bases.NN.name else "minus a first additive effect (learner 'r') "
        return (
            f"The estimator was {title} (Schroeder et al. 2025, Theorem 3, with corrected "
            f"sensitivity) with {nuisances}. The second stage is a ridge regression of a "
            f"pseudo-outcome {left}on a public finite basis of the Gaussian kernel, in which each "
            f"row has bounded influence. Its {where} were released once, with discrete Gaussian "
            "noise (OpenDP) scaled to the largest change that one row can cause. The other steps "
            "used noisy sums of bounded row vectors and post-processing only."
        )


def _kernel_effect(
    state: first_stages.FitState, kernel: bases.Kernel, score: _Score, partial: nu.FoldFit
) -> effects.Effect:
    # Fourier features of the effect modifiers.
    columns = np.array(sorted({b.column for b in state.effect_features.blocks}), np.int64)
    default = 0.5 * float(np.sqrt(width(state.design, columns)))
    features = fourier(state.design, columns, kernel.bandwidth or default, kernel.functions)
    # Use the usual prior of residual products: a small budget detects no sizes without it.
    sizes = (
        nu.read_sizes(state, score.target)
        if score.doubly_robust
        else meta.residual_sizes(state, score.target, nu.SCORE_SIZES, partial)
    )
    count, most = state.population.count, _most(state)
    cut = cuts.threshold_for_effect(sizes, nu.cross_noise(state, KERNEL, 1.0) / count)
    below = max(sizes.below(cut), PRIORS.least_below)
    mass = count * score.weight * below
    residual = max((sizes.rms(cut) / below) ** 2 / score.weight, 1e-12)
    spread = LEFT_SPREAD if score.first else EFFECT_SPREAD  # in residual sds
    phi = state.rows.phi(features)
    values, vectors = np.linalg.eigh(phi.T @ phi / len(phi))
    law = KernelPrior(np.maximum(values, 0.0), vectors, mass, residual, spread**2 * residual)

    def regression(ridge: float) -> vault.KernelRegression:
        parts = features, score.curvature, score.target
        if kernel.loss == "huber":
            return vault.KernelRegression(*parts, cut, ridge, rows=most)
        reach = min(score.reach, cut) if score.doubly_robust else score.reach
        lipschitz = vault.proven_lipschitz(score.curvature.bound, reach, cut, most, ridge)
        return vault.KernelRegression(*parts, lipschitz, ridge, "squared", cut, rows=most)

    if kernel.ridge is not None:
        return _released(state, regression(2 * kernel.ridge * count), law, score)
    # the ridge of least expected error, with the noise of a weight as drawn in the vault
    trust, rho = state.request.trust, state.plan.stage(KERNEL).rho / accounting.PICO
    losses, ridges = [], (max(mass, 1.0) * _RIDGES).tolist()
    for ridge in ridges:
        query = regression(ridge)
        change = query.sensitivity(trust.neighbors) * trust.max_rows * float(query.units[0])
        losses.append(law.values @ law.risk(ridge, float(change / np.sqrt(2 * rho)))[1])
    best = max(ridges[int(np.argmin(losses))], LEAST_RIDGE * score.curvature.bound * most)
    return _released(state, regression(best), law, score)


def _released(
    state: first_stages.FitState, query: vault.KernelRegression, law: KernelPrior, score: _Score
) -> effects.Effect:
    """The released function, or its released answers at the queries."""
    reach = 2 * state.outcome.bound
    queries, columns = state.request.queries, query.features.columns
    rows = None if queries is None else read_queries(queries, state.design)
    phi = None if rows is None else rows.phi(query.features)
    if rows is not None and phi is not None and np.linalg.norm(phi, 2) <= 1 + ORTHOGONAL:
        # Answers with independent noise, if that noise is as small as the noise of a process.
        release = state.release(KERNEL, replace(query, points=phi))
        first_sd = effects.Effect(score.first, np.inf).sd(rows)
        variance = np.maximum(np.einsum("ij,jk,ik->i", phi, law.cov(query.ridge, 0.0), phi), 0)
        spread = np.sqrt(variance + release.noise_sd**2 + first_sd**2)
        value = score.around(rows) + release.value
        return answers_at(state.design, columns, rows, reach, value, spread)
    release = state.release(KERNEL, query)
    coef, noise_sd = np.asarray(release.value), float(release.noise_sd[0])
    # the prior's s^2, from the marginal likelihood of the noisy weights, near its public value
    squares = (law.vectors.T @ coef) ** 2
    b, sampling = law.shrunken(query.ridge)
    deviances, steps = [], np.linspace(-3.0, 3.0, 61).tolist()
    for step in steps:
        variance = law.spread * np.exp(2 * step) * b**2 + sampling + noise_sd**2
        variance = np.maximum(variance, 1e-30)
        deviance = float(np.sum(np.log(variance) + squares / variance))
        deviances.append(deviance + (step / PULL) ** 2)
    best = steps[int(np.argmin(deviances))]
    law = law._replace(spread=float(law.spread * np.exp(2 * best)))
    # weights with their noise shrunk, and the covariance of their error
    if noise_sd > 0:
        coef = law.vectors @ (law.risk(query.ridge, noise_sd)[0] * (law.vectors.T @ coef))
    cov = law.cov(query.ridge, noise_sd)
    left = functions.Additive(query.features, coef, 0.0 if score.first else score.centre)
    function = effects.Effect((*score.first, effects.Piece(left, cov)), reach)
    if rows is None:
        return function
    return answers_at(state.design, columns, rows, reach, function(rows), function.sd(rows))


class _Score(NamedTuple):
    """A pseudo-outcome minus a released effect, times its weight, as bounded row maps."""

    curvature: vault.Transform
    target: vault.Transform
    around: functions.Function  # The released effect, clipped to the outcome's range
    # Pieces of the released effect; the kernel's function is added. Their errors count in
    # full, although the function may correct some errors. Empty if the effect is the constant
    # `centre`.
    first: tuple[effects.Piece, ...]
    centre: float  # Mean of the released effect over the synthetic population
    weight: float  # Mean weight over the synthetic population
    reach: float  # Bound of |target| / sqrt(weight) over all possible rows
    doubly_robust: bool  # True for the doubly robust score, False for the score of the R-learner


def _scored(
    score: str,
    state: first_stages.FitState,
    partials: nu.Folds,
    nuisances: Triples,
    effect: effects.Effect,
) -> _Score:
    outcome, rows = state.outcome, state.rows
    limit = 2 * outcome.bound
    centre = float(np.clip(np.mean(effect(rows)), -limit, limit))
    first = tuple(
        replace(piece, additive=replace(piece.additive, lo=-limit, hi=limit))
        for piece in effect.pieces
    )
    around: functions.Function = effects.Effect(first, limit) if first else Constant(centre)
    most = limit if first else abs(centre)
    if score == "dr":
        ones = vault.OfCovariates(Constant(1.0), 1.0)
        target = nu.by_fold(vault.Aipw(n, outcome, state.clip, around, most) for n in nuisances)
        return _Score(ones, target, around, first, centre, 1.0, target.bound, True)
    soft = state.soft_clip
    e = partials[0].e_soft(rows)
    return _Score(
        curvature=nu.by_fold(vault.OfTreatment("overlap", p.e_soft, soft) for p in partials),
        target=nu.by_fold(
            vault.ResidualProduct(p.e_soft, p.eta, outcome, soft, around, most) for p in partials
        ),
        around=around,
        first=first,
        centre=centre,
        weight=float(np.mean(e * (1 - e))),
        reach=limit + (1 - soft) * most,
        doubly_robust=False,
    )


def _most(state: first_stages.FitState) -> float:
    """Public bound N on the number of complete rows.

    With add_remove the bound can fail, with a probability that delta includes.

    Privacy
    -------
    Notation: k = max_rows, and c = n + Z is the noisy count of the marginals. Z is the mean of
    their sums of discrete Gaussians, sub-Gaussian with parameter s (Canonne et al. 2020).

    *Full sample, add_remove.* N = 2 (c + 10 s) + k. Two tables that differ in one unit have n
    and at most n + k rows. The event Z < -10 s has probability at most exp(-50) < 2e-22. Otherwise
    N >= 2 n + k >= n + k, so N bounds the rows of both tables.

    *``split="disjoint"``.* Let n be the number of rows of the first half, and m the number of rows
    of the other half; the function is learned there. N = 4 (c + 10 s) + 401 k >= 4 n + 401 k.
    Units go to a half by fair coins. The n + m rows come from at least W = (n + m) / k units. The
    event m > 4 n + 200 k means that less than a fifth of the rows are in the first half, and that
    W > 200. By Chernoff's bound its probability is at most
    exp(-W KL(1/5 || 1/2)) <= exp(-.19 x 200) < 1e-16. The worst weights are full units, because
    log E exp(-t w B) is convex in w. All these probabilities sum to less than `FAILING` = 1e-12.

    *Effect on delta.* Call an output good if N bounds the rows of both tables. Whether it does
    depends on released numbers, and on coins that are the same for both tables. The release is
    proven on good outputs, so for every set S of outputs
    P(S) <= P(S, good) + 1e-12 <= e^epsilon P'(S, good) + delta + 1e-12.
    The probability is therefore added to delta once. Outputs that are not good cost no more than
    that.
    """
    size, plan = state.vault.size, state.plan
    k = plan.request.trust.max_rows
    if size is not None:
        return float(size * k)
    count = state.population.count + 10 * state.population.count_sd
    if plan.request.split == "disjoint":
        return 4 * count + (2 * OTHER_HALF + 1) * k
    return 2 * count + k


# -- the kernel on a study's effect modifiers -----------------------------------------------------


def second_stage(base: bases.AnyBase) -> bases.Kernel:
    """The kernel of a base.

    "gam", the default of `privcate`, gives the default kernel; the nuisances use "gam" in any case.
    """
    if isinstance(base, bases.Kernel):
        return base
    if isinstance(base, bases.NN):
        return base.second
    if base == bases.Gam():
        return bases.Kernel()
    raise CapabilityError(
        f"learner='dpcate' does not support base={base.name!r}. Use base='kernel', base='nn', or "
        "base=pc.bases.Kernel(...)."
    )


def width(design: Design, columns: Integers) -> int:
    """Number of numeric columns and factors, at least one; squared distances grow with it."""
    kinds = [design.columns[j] for j in columns.tolist()]
    numeric = sum(1 for c in kinds if c.kind != "indicator")
    return max(numeric + len({c.term for c in kinds if c.kind == "indicator"}), 1)


def answers_at(
    design: Design, columns: Integers, rows: Rows, reach: float, value: Vector, sd: Vector
) -> effects.Answers:
    """The effect at public points only."""
    points = np.ascontiguousarray(rows.scaled(design)[:, columns])
    return effects.Answers((), reach, design, columns, points, value, sd)
