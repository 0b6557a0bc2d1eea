"""DP-CATE (Schroeder et al. 2025): the whole effect function, by private kernel regression."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from privcausal.accounting import PICO
from privcausal.errors import CapabilityError
from privcausal.features.expansions import Fourier
from privcausal.features.functions import Additive, Constant, Function, Nuisance
from privcausal.features.points import read_queries
from privcausal.features.rows import Rows
from privcausal.inference import cuts
from privcausal.inference.effect import Answers, Effect, Piece
from privcausal.inference.kernel import LEFT_SPREAD, SPREAD, KernelPrior, denoised
from privcausal.inference.priors import PRIORS
from privcausal.learners.averages import STAGES, One, average_target, averages
from privcausal.learners.base import CateLearner, Learnt, average_doubts, finish, shown
from privcausal.learners.bases import AnyBase, Base, Gam
from privcausal.learners.budget import StageWeight, Undeclared, make_plan
from privcausal.learners.description import Description
from privcausal.learners.estimate import Estimate
from privcausal.learners.networks import learn_networks, network_plan
from privcausal.learners.nuisances import (
    FoldNuisances,
    by_fold,
    cross_noise,
    nuisance_of,
    read_sizes,
    remainder,
    sizes_of,
)
from privcausal.learners.options import NN, Kernel
from privcausal.learners.orthogonal import (
    conditional,
    nuisance_needs,
    orthogonal_effect,
    residual_moments,
    residual_sizes,
)
from privcausal.learners.orthogonal import nuisances as nuisances_of
from privcausal.learners.paper.dpcate import describe_published
from privcausal.learners.second_stage import basis, second_stage
from privcausal.learners.shares import SHARES, Stages
from privcausal.learners.state import CATE_LOOKS, FitState, Session, look_at_outcome, prepare
from privcausal.request.plan import Plan, StageKey
from privcausal.request.request import Request
from privcausal.request.schema import Schema
from privcausal.typing import Frame, Vector
from privcausal.vault import (
    Aipw,
    KernelAnswers,
    KernelRegression,
    OfCovariates,
    OverlapMass,
    ResidualProduct,
    Transform,
    Vault,
    proven_lipschitz,
)

ORTHOGONAL = 1e-9
"""Queries this near to orthogonal in the RKHS get independent noise."""

LEAST_RIDGE = 1e-4
"""Least ridge that is chosen, as a share of the most curvature that rows can have: the solver's
steps grow with one over its root, and next to nothing is shrunk there."""

KERNEL = StageKey("effect", "kernel weights")

FAILING = 1
"""pico-delta: bounds the chance that there are more rows than `_most` says."""

OTHER_HALF = 200
"""Rows by which half of the rows may pass four times the other half: see `_most`."""

NETWORK_NEEDS = (
    StageWeight(Stages.MARGINALS, SHARES.networks_marginals),
    StageWeight(Stages.SCORE_SIZES, SHARES.networks_sizes),
    StageWeight(KERNEL, SHARES.networks_kernel),
)
"""What is left to pay for in rho where networks learn the nuisances."""


@dataclass(frozen=True)
class DPCATE(CateLearner):
    """tau(x) by Gaussian-kernel regression of a pseudo-outcome, released as one function.

    Second stage of the paper's Theorem 3, with the sensitivity corrected and without state: the
    function's weights on a public finite basis leave the vault once, with discrete Gaussian noise
    for the l2 distance by which one row can move them (`vault.KernelRegression`). All predictions
    are functions of these numbers. Nuisances are private (base "gam"), and so is a first additive
    effect, that of learner "r": the regression learns what it leaves, and shrinks towards it.

    Parameters
    ----------
    score : {"r", "dr"}
        The pseudo-outcome: (Y - eta) / (T - e) with weight (T - e)^2, or the doubly robust score.
    queries : data frame, optional
        Public points at which alone the effect is released. Default: the whole function.
    """

    score: Literal["r", "dr"] = "r"
    queries: Frame | None = field(default=None, repr=False, compare=False)
    name: ClassVar[str] = "dpcate"
    title: ClassVar[str] = "DP-CATE"
    bands: ClassVar[str] = (
        "Bands of the effect are approximate, and right on average over x. They add the law of its "
        "first, additive part to that of the rest, which they take for a draw of the kernel's "
        "Gaussian process whose size was read from released numbers."
    )

    def __post_init__(self) -> None:
        if self.score not in ("r", "dr"):
            raise CapabilityError("DPCATE(score=) is 'r' or 'dr'")

    def effect_needs(self, request: Request, base: Base) -> list[StageWeight]:
        return [
            *nuisance_needs(request, base),
            StageWeight(Stages.RESIDUAL_SIZES, SHARES.dpcate_first_sizes),
            StageWeight(Stages.RESIDUALS, SHARES.dpcate_first),
            StageWeight(Stages.SCORE_SIZES, SHARES.dpcate_sizes),
            StageWeight(
                KERNEL,
                SHARES.dpcate_kernel,
                FAILING if request.trust.neighbors == "add_remove" else 0,
            ),
        ]

    def plan(self, request: Request, base: AnyBase, undeclared: Undeclared) -> Plan:
        """Stages with integer budgets; no data are needed."""
        kernel = second_stage(base)
        if kernel.loss == "squared" and request.trust.neighbors != "substitute":
            raise CapabilityError(
                "Kernel(loss='squared') needs a public number of rows, which "
                "neighbors='add_remove' protects; write loss='huber'"
            )
        if isinstance(base, NN):
            return network_plan(request, self.name, NETWORK_NEEDS, undeclared)
        needs = self.needs(request, Gam())
        return make_plan(request, self.name, kernel.name, needs, self.shares, undeclared)

    def fit(
        self, plan: Plan, vault: Vault, schema: Schema, undeclared: Undeclared, base: AnyBase
    ) -> Estimate:
        return self._run(Session(plan, vault, schema, undeclared, Gam()), base)

    def run(self, session: Session) -> Estimate:
        return self._run(session, Kernel())

    def learn(self, state: FitState) -> Learnt:
        return self._learn(state, Kernel())[0]

    def _run(self, session: Session, base: AnyBase) -> Estimate:
        """As every learner, but averages are centred on the first effect's mean."""
        learnt, centre = self._learn(prepare(session, modelled=True, looks=CATE_LOOKS), base)
        state, found = learnt.state, None
        if session.plan.has(STAGES[1]):
            state = look_at_outcome(state, Stages.AVERAGE_RANGE)
            scored = learnt.weighed(state)
            target = average_target(state, scored.nuisances, centre)
            asked = [One("ATE", target, scored.remainder)]
            found = averages(state, asked, STAGES, scored.weight)
        notes = () if found is None else average_doubts(found)
        return finish(state, learnt.effect, learnt.shown, found, notes)

    def _learn(self, state: FitState, base: AnyBase) -> tuple[Learnt, float]:
        """The effect, and the mean of the first one."""
        kernel = second_stage(base)
        if isinstance(base, NN):
            networks = learn_networks(state.session, state.design, state.clip, base)
            part, nuisance = (networks.partial,), (networks.nuisance,)
            score = _scored(self.score, state, part, nuisance, networks.pilot)
            effect = _kernel_effect(state, kernel, score, networks.partial)
            rest = remainder(state, part)
            learnt = Learnt(state, effect, nuisance, shown(part, nuisance), rest)
            return learnt, score.centre
        known = nuisances_of(state)
        state, partials = known.state, known.partials
        found = residual_moments(known)
        first, partials = orthogonal_effect(state, partials, found, conditional(state))
        nuisances = tuple(nuisance_of(p, first, state.outcome) for p in partials)
        score = _scored(self.score, state, partials, nuisances, first)
        effect = _kernel_effect(state, kernel, score, partials[0])
        return Learnt.of(known, partials, effect, first), score.centre

    @classmethod
    def describe(cls, estimate: Estimate) -> Description:
        found = super().describe(estimate)
        if estimate.plan.request.mode == "paper":
            return describe_published(found, estimate)
        return found

    @classmethod
    def method(cls, title: str, plan: Plan) -> str:
        where = (
            "answers at the declared points" if plan.request.queries else "weights on that basis"
        )
        networks = "nuisances by networks (private gradient descent)"
        nuisances = networks if plan.base == NN.name else "private additive nuisances"
        left = "" if plan.base == NN.name else "less a first additive effect (learner 'r') "
        return (
            f"{title} (Schroeder et al. 2025, Theorem 3, with the sensitivity put right) with "
            f"{nuisances}. The second stage is a Gaussian-kernel regression of a pseudo-outcome "
            f"{left}on a public finite basis, ridge-regularised and with a bounded pull of each "
            f"row; its {where} were released once, with discrete Gaussian noise (OpenDP) for the "
            "distance by which one row can move them. All else was read through sums of bounded "
            "row vectors with noise. Everything after that is post-processing."
        )


def _kernel_effect(
    state: FitState, kernel: Kernel, score: _Score, partial: FoldNuisances
) -> Effect:
    features = basis(state, kernel)
    # the usual law of residual products helps: by itself a small budget sees no sizes
    sizes = (
        read_sizes(state, sizes_of(score.target), Stages.SCORE_SIZES)
        if score.doubly_robust
        else residual_sizes(state, score.target, Stages.SCORE_SIZES, partial)
    )
    count, most = state.population.count, _most(state)
    cut = cuts.threshold_for_effect(sizes, cross_noise(state, KERNEL, 1.0) / count)
    below = max(sizes.below(cut), PRIORS.least_below)
    mass = count * score.weight * below
    residual = (sizes.rms(cut) / below) ** 2 / score.weight
    spread = LEFT_SPREAD if score.first else SPREAD
    law = KernelPrior.of(features, state.rows, mass, residual, spread)

    def regression(ridge: float) -> KernelRegression:
        order = features, score.curvature, score.target
        if kernel.loss == "huber":
            return KernelRegression(*order, cut, ridge, rows=most)
        reach = min(score.reach, cut) if score.doubly_robust else score.reach
        lipschitz = proven_lipschitz(score.curvature.bound, reach, cut, most, ridge)
        return KernelRegression(*order, lipschitz, ridge, "squared", cut, rows=most)

    def noise(ridge: float) -> float:
        """Noise sd of a weight, as the vault will draw it."""
        plan, wanted = state.session.plan, regression(ridge)
        trust = plan.request.trust
        moved = wanted.sensitivity(trust.neighbors) * trust.max_rows * float(wanted.units[0])
        return float(moved / np.sqrt(2 * plan.stage(KERNEL).rho / PICO))

    if kernel.ridge is None:
        ridge = max(law.best_ridge(noise), LEAST_RIDGE * score.curvature.bound * most)
    else:
        ridge = 2 * kernel.ridge * count
    return _released(state, regression(ridge), law, score)


def _released(state: FitState, order: KernelRegression, law: KernelPrior, score: _Score) -> Effect:
    """The function, or its answers at the queries."""
    session, reach = state.session, 2 * state.outcome.bound
    queries = session.plan.request.queries
    rows = None if queries is None else read_queries(queries, state.design)
    phi = None if rows is None else rows.phi(order.features)
    if rows is not None and phi is not None and np.linalg.norm(phi, 2) <= 1 + ORTHOGONAL:
        return _answers(state, order, law, score, rows)
    release = session.release(KERNEL, order)
    coef, cov = denoised(law, release.value, order.ridge, float(release.noise_sd[0]))
    kernel = Piece(Additive(order.features, coef, 0.0 if score.first else score.centre), cov)
    function = Effect((*score.first, kernel), reach)
    if rows is None:
        return function
    return _at_points(state, order.features, rows, function(rows), function.sd(rows))


def _answers(
    state: FitState, order: KernelRegression, law: KernelPrior, score: _Score, rows: Rows
) -> Answers:
    """Independent noise on each answer, where it is as small as that of a process."""
    session = state.session
    phi = rows.phi(order.features)
    wanted = KernelAnswers(
        order.features, order.curvature, order.target, order.lipschitz, order.ridge, order.loss,
        order.cut, phi, rows=order.rows,
    )  # fmt: skip
    release = session.release(KERNEL, wanted)
    cov = law.cov(order.ridge, 0.0)
    known = Effect(score.first, np.inf).sd(rows)
    spread = np.sqrt(
        np.maximum(np.einsum("ij,jk,ik->i", phi, cov, phi), 0) + release.noise_sd**2 + known**2
    )
    return _at_points(state, order.features, rows, score.around(rows) + release.value, spread)


def _at_points(
    state: FitState, features: Fourier, rows: Rows, value: Vector, spread: Vector
) -> Answers:
    points = np.ascontiguousarray(rows.scaled(state.design)[:, features.columns])
    reach = 2 * state.outcome.bound
    return Answers((), reach, state.design, features.columns, points, value, spread)


@dataclass(frozen=True, eq=False)
class _Score:
    """A pseudo-outcome less a released effect, times its weight, as bounded row maps.

    Attributes
    ----------
    around : Function
        That effect, cut to the outcome's range.
    first : tuple of Piece
        Its pieces, to which the kernel's function adds. Their errors count in full, though the
        function may mend some of them. Empty where the effect is the constant `centre`.
    centre : float
        Its mean over the synthetic population.
    weight : float
        Mean weight over the synthetic population.
    reach : float
        Bound of |target| / sqrt(weight) of a row.
    doubly_robust : bool
        Or that of the R-learner.
    """

    curvature: Transform
    target: Transform
    around: Function
    first: tuple[Piece, ...]
    centre: float
    weight: float
    reach: float
    doubly_robust: bool


def _scored(
    score: str,
    state: FitState,
    partials: tuple[FoldNuisances, ...],
    nuisances: tuple[Nuisance, ...],
    found: Effect,
) -> _Score:
    outcome, rows = state.outcome, state.rows
    limit = 2 * outcome.bound
    centre = float(np.clip(np.mean(found(rows)), -limit, limit))
    first = tuple(
        replace(piece, additive=replace(piece.additive, lo=-limit, hi=limit))
        for piece in found.pieces
    )
    around: Function = Effect(first, limit) if first else Constant(centre)
    most = limit if first else abs(centre)
    if score == "dr":
        one = OfCovariates(Constant(1.0), 1.0)
        target = by_fold(lambda n: Aipw(n, outcome, state.clip, around, most), nuisances)
        return _Score(one, target, around, first, centre, 1.0, target.bound, True)
    soft = state.soft_clip
    e = partials[0].e_soft(rows)
    return _Score(
        by_fold(lambda p: OverlapMass(p.e_soft, soft), partials),
        by_fold(lambda p: ResidualProduct(p.e_soft, p.eta, outcome, soft, around, most), partials),
        around,
        first,
        centre,
        float(np.mean(e * (1 - e))),
        limit + (1 - soft) * most,
        False,
    )


def _most(state: FitState) -> float:
    """Public bound N on the number of rows that count; with add_remove, but for a chance in delta.

    Privacy
    -------
    With add_remove N is 2 (c + 10 s) k rows more than twice over, where c = n + Z is the noisy
    count of the marginals, Z the mean of their sums of discrete Gaussians, sub-Gaussian with
    parameter s (Canonne et al. 2020), and k = max_rows. Two tables that differ in one unit have n
    and at most n + k rows. Unless Z < -10 s, which has a chance of exp(-50) < 2e-22, N >= 2 n + k
    >= n + k: it holds for both. With ``split="disjoint"`` n is the number of rows of the first
    half, m that of the other, where the function is learnt, and N = 4 (c + 10 s) + 401 k >=
    4 n + 401 k. Units go to a half by fair coins: m > 4 n + 200 k means that the n + m rows, those
    of W = (n + m) / k full units at least, have less than a fifth in the first half, and W > 200.
    By Chernoff's bound (the worst weights are full units, as log E exp(-t w B) is convex in w) its
    chance is at most exp(-W KL(1/5 || 1/2)) <= exp(-.19 x 200) < 1e-16. Together less than
    `FAILING` = 1e-12.

    Let an output be good where N bounds the rows of both tables, which depends on what was
    released, and on coins that are the same for both. On good outputs the release is proven, so
    P(S) <= P(S, good) + 1e-12 <= e^epsilon P'(S, good) + delta + 1e-12 for every set S of outputs:
    the chance adds to delta once, and whatever happens otherwise costs nothing more.
    """
    session = state.session
    size, plan = session.vault.size, session.plan
    k = plan.request.trust.max_rows
    if size is not None:
        return float(size * k)
    count = state.population.count + 10 * state.population.count_sd
    if plan.request.split == "disjoint":
        return 4 * count + (2 * OTHER_HALF + 1) * k
    return 2 * count + k
