"""DP-CATE (Schroeder et al. 2025): the whole effect function, by private kernel regression."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from privcausal.accounting import PICO
from privcausal.errors import CapabilityError
from privcausal.inference import cut as cuts
from privcausal.inference.answers import Answers
from privcausal.inference.effect import Effect, Piece
from privcausal.inference.kernel import LEFT_SPREAD, SPREAD, Law, denoised
from privcausal.learners import networks, published_cate
from privcausal.learners.averages import RANGE, STAGES, averages
from privcausal.learners.base import CateLearner, Learnt, doubts, finish, shown, weighed
from privcausal.learners.bases import AnyBase, Base, Gam
from privcausal.learners.estimands import average_target
from privcausal.learners.estimate import Estimate
from privcausal.learners.ground import Ground, Session, lay, look_at_outcome
from privcausal.learners.kernels import NN, Kernel
from privcausal.learners.needs import Need, Undeclared, make_plan
from privcausal.learners.nuisances import (
    LEAST_BELOW,
    RESIDUAL_CLIP,
    Partial,
    by_fold,
    cross_noise,
    nuisance_of,
    read_sizes,
    remainder,
)
from privcausal.learners.orthogonal import (
    conditional,
    nuisance_needs,
    orthogonal_effect,
    residual_sizes,
    residuals,
)
from privcausal.learners.orthogonal import nuisances as nuisances_of
from privcausal.learners.second_stage import basis, second_stage
from privcausal.spec.features import Rows
from privcausal.spec.fourier import Fourier
from privcausal.spec.functions import Additive, Constant, Function, Nuisance
from privcausal.spec.plan import Plan
from privcausal.spec.request import Request
from privcausal.spec.schema import Schema
from privcausal.typing import Vector
from privcausal.vault import (
    Aipw,
    CentredProduct,
    KernelAnswers,
    KernelRegression,
    OfCovariates,
    SquaredTreatmentResidual,
    Transform,
    Vault,
    proven_lipschitz,
)

ORTHOGONAL = 1e-9
"""Queries this near to orthogonal in the RKHS get independent noise."""

LEAST_RIDGE = 1e-4
"""Of the most curvature that rows can have: a ridge that is chosen is no smaller, since the number
of the solver's steps grows with one over its root. Next to nothing is shrunk there."""

OPTIONS: dict[str, tuple[str, ...]] = {
    "score": ("r", "dr"),
    "second": ("kernel", "linear", "network"),
    "noise": ("gross_error", "process"),
}

FIRST_SIZES, FIRST = "effect: residual sizes", "effect: residual moments"
SIZES, KERNEL = "effect: score sizes", "effect: kernel weights"

FAILING = 1
"""pico-delta: how often, at most, there are more rows than `_most` takes there to be."""

OTHER_HALF = 200
"""Rows by which half of the rows may pass four times the other half: see `_most`."""

NETWORK_NEEDS = (
    Need("nuisance: marginals", 0.06, "nuisance"),
    Need(SIZES, 0.04, "effect"),
    Need(KERNEL, 0.90, "effect"),
)
"""What is left to pay for in rho where networks learn the nuisances."""


@dataclass(frozen=True)
class DPCATE(CateLearner):
    """tau(x) by Gaussian-kernel regression of a pseudo-outcome, released as one function.

    Second stage of the paper's Theorem 3, with the sensitivity put right and without state: the
    weights of the function on a public finite basis leave the vault once, with discrete Gaussian
    noise for the l2 norm that one row can move them by (`vault.KernelRegression`). Whatever is
    predicted is a function of these numbers. Nuisances are private (base "gam"), and so is a first
    additive effect, that of learner "r", around which the regression is centred: it learns what
    that leaves, and shrinks towards it.

    Parameters
    ----------
    score : {"r", "dr"}
        The pseudo-outcome: (Y - eta) / (T - e) with weight (T - e)^2, or the doubly robust score.
    second : {"kernel", "linear", "network"}
        Only for ``mode="paper"`` with ``queries=``: what is fitted to it (the paper's Corollaries 2
        and 1). "network" has two layers of 32 tanh units and needs the extra ``privcausal[nn]``.
    noise : {"gross_error", "process"}
        Only for ``mode="paper"`` with ``queries=``: the noise of Theorem 1, or of Algorithm 1.
    """

    score: Literal["r", "dr"] = "r"
    second: Literal["kernel", "linear", "network"] = "kernel"
    noise: Literal["gross_error", "process"] = "gross_error"
    name: ClassVar[str] = "dpcate"

    def __post_init__(self) -> None:
        for name, known in OPTIONS.items():
            if getattr(self, name) not in known:
                raise CapabilityError(f"DPCATE({name}=) is one of {', '.join(map(repr, known))}")

    def effect_needs(self, request: Request, base: Base) -> list[Need]:
        return [
            *nuisance_needs(request, base),
            Need(FIRST_SIZES, 0.02, "effect"),
            Need(FIRST, 0.35, "effect"),
            Need(SIZES, 0.02, "effect"),
            Need(KERNEL, 0.15, "effect", FAILING if request.trust.neighbors == "add_remove" else 0),
        ]

    def plan(self, request: Request, base: AnyBase, undeclared: Undeclared) -> Plan:
        """Stages with integer budgets; no data are needed."""
        if request.mode == "paper":
            return published_cate.plan(self, request, base, undeclared)
        if (self.second, self.noise) != ("kernel", "gross_error"):
            raise CapabilityError(
                "DPCATE(second=, noise=) belong to mode='paper': what is proven is the kernel's"
            )
        kernel = second_stage(base)
        if kernel.loss == "squared" and request.trust.neighbors != "substitute":
            raise CapabilityError(
                "Kernel(loss='squared') needs a public number of rows, which "
                "neighbors='add_remove' protects; write loss='huber'"
            )
        if isinstance(base, NN):
            return networks.plan(request, self.name, list(NETWORK_NEEDS), undeclared)
        needs = self.needs(request, Gam())
        return make_plan(request, self.name, kernel.name, needs, self.shares, undeclared)

    def fit(
        self, plan: Plan, vault: Vault, schema: Schema, undeclared: Undeclared, base: AnyBase
    ) -> Estimate:
        if plan.request.mode == "paper":
            return published_cate.fit(self, plan, vault, schema, base)
        session = Session(plan, vault, schema, undeclared, Gam())
        own = base if isinstance(base, NN) else None
        return _WithKernel(self.score, kernel=second_stage(base), networks=own).run(session)

    @property
    def _kernel(self) -> Kernel:
        return Kernel()

    @property
    def _networks(self) -> NN | None:
        return None

    def run(self, session: Session) -> Estimate:
        """As every learner, but averages are centred on the first effect's mean."""
        learnt, centre = self._learn(lay(session, modelled=True))
        ground, found = learnt.ground, None
        if session.plan.has(STAGES[1]):
            ground = look_at_outcome(ground, RANGE)
            scored = weighed(ground, learnt)
            target = average_target(ground, scored.nuisances, centre)
            found = averages(ground, target, scored, STAGES, "ATE")
        notes = () if found is None else doubts(found)
        return finish(ground, learnt.effect, learnt.shown, found, notes)

    def learn(self, ground: Ground) -> Learnt:
        return self._learn(ground)[0]

    def _learn(self, ground: Ground) -> tuple[Learnt, float]:
        if self._networks is not None:
            return self._after_networks(ground, networks.learn(ground, self._networks))
        known = nuisances_of(ground)
        ground, grams, partials = known.ground, known.grams, known.partials
        found = residuals(ground, grams, partials, sizes=FIRST_SIZES, moments=FIRST, weights=None)
        first, partials = orthogonal_effect(ground, partials, found, conditional(ground))
        nuisances = tuple(nuisance_of(p, first, ground.outcome) for p in partials)
        score = _scored(self.score, ground, partials, nuisances, first)
        effect = self._effect(ground, score, partials[0])
        learnt = Learnt(
            ground, effect, nuisances, shown(partials, nuisances), known.doubt, partials, first
        )
        return learnt, score.centre

    def _after_networks(self, ground: Ground, found: networks.Learned) -> tuple[Learnt, float]:
        partials, nuisances = (found.partial,), (found.nuisance,)
        score = _scored(self.score, ground, partials, nuisances, found.pilot)
        effect = self._effect(ground, score, found.partial)
        rest = remainder(ground, partials)
        return Learnt(ground, effect, nuisances, shown(partials, nuisances), rest), score.centre

    def _effect(self, ground: Ground, score: _Score, partial: Partial) -> Effect:
        kernel = self._kernel
        features = basis(ground, kernel)
        sizes = _sizes(ground, score.target, None if self.score == "dr" else partial)
        count, most = ground.population.count, _most(ground)
        cut = cuts.trade(sizes, cross_noise(ground, KERNEL, 1.0) / count)
        below = max(sizes.below(cut), LEAST_BELOW)
        mass = count * score.weight * below
        residual = (sizes.rms(cut) / below) ** 2 / score.weight
        spread = LEFT_SPREAD if score.first else SPREAD
        law = Law.of(features, ground.rows, mass, residual, spread)

        def regression(ridge: float) -> KernelRegression:
            if kernel.loss == "huber":
                return KernelRegression(
                    features, score.curvature, score.target, cut, ridge, rows=most
                )
            reach = min(score.reach, cut) if self.score == "dr" else score.reach
            lipschitz = proven_lipschitz(score.curvature.bound, reach, cut, most, ridge)
            return KernelRegression(
                features, score.curvature, score.target, lipschitz, ridge, "squared", cut, rows=most
            )

        def noise(ridge: float) -> float:
            return _noise_sd(ground, regression(ridge))

        if kernel.ridge is None:
            ridge = max(law.best_ridge(noise), LEAST_RIDGE * score.curvature.bound * most)
        else:
            ridge = 2 * kernel.ridge * count
        return _released(ground, regression(ridge), law, score)


@dataclass(frozen=True)
class _WithKernel(DPCATE):
    """The learner with the options of its second stage."""

    kernel: Kernel = field(default_factory=Kernel)
    networks: NN | None = None

    @property
    def _kernel(self) -> Kernel:
        return self.kernel

    @property
    def _networks(self) -> NN | None:
        return self.networks


def _released(ground: Ground, order: KernelRegression, law: Law, score: _Score) -> Effect:
    """The function, or its answers at the queries."""
    session, reach = ground.session, 2 * ground.outcome.bound
    queries = session.plan.request.queries
    rows = None if queries is None else queries.rows(ground.design)
    phi = None if rows is None else rows.phi(order.features)
    if rows is not None and phi is not None and np.linalg.norm(phi, 2) <= 1 + ORTHOGONAL:
        return _answers(ground, order, law, score, rows)
    release = session.vault.release_solution(KERNEL, order)
    session.releases.append(release)
    coef, cov = denoised(law, release.value, order.ridge, float(release.noise_sd[0]))
    kernel = Piece(Additive(order.features, coef, 0.0 if score.first else score.centre), cov)
    function = Effect((*score.first, kernel), reach)
    if rows is None:
        return function
    return _at_points(ground, order.features, rows, function(rows), function.sd(rows))


def _answers(
    ground: Ground, order: KernelRegression, law: Law, score: _Score, rows: Rows
) -> Answers:
    """Independent noise on each answer, where it is as small as that of a process."""
    session = ground.session
    phi = rows.phi(order.features)
    wanted = KernelAnswers(
        order.features, order.curvature, order.target, order.lipschitz, order.ridge, order.loss,
        order.cut, phi, rows=order.rows,
    )  # fmt: skip
    release = session.vault.release_solution(KERNEL, wanted)
    session.releases.append(release)
    cov = law.cov(order.ridge, 0.0)
    known = Effect(score.first, np.inf).sd(rows)
    spread = np.sqrt(
        np.maximum(np.einsum("ij,jk,ik->i", phi, cov, phi), 0) + release.noise_sd**2 + known**2
    )
    return _at_points(ground, order.features, rows, score.around(rows) + release.value, spread)


def _at_points(
    ground: Ground, features: Fourier, rows: Rows, value: Vector, spread: Vector
) -> Answers:
    points = np.ascontiguousarray(rows.scaled(ground.design)[:, features.columns])
    reach = 2 * ground.outcome.bound
    return Answers((), reach, ground.design, features.columns, points, value, spread)


@dataclass(frozen=True, eq=False)
class _Score:
    """A pseudo-outcome less a released effect, times its weight, as bounded row maps.

    Attributes
    ----------
    around : Function
        That effect, cut to the outcome's range.
    first : tuple of Piece
        What it is made of: what the kernel's function adds to. Its errors count in full, though the
        function may mend some of them. None: it is the constant `centre`.
    centre : float
        Its mean over the synthetic population.
    weight : float
        Mean weight over the synthetic population.
    reach : float
        Bound of |target| / sqrt(weight) of a row.
    """

    curvature: Transform
    target: Transform
    around: Function
    first: tuple[Piece, ...]
    centre: float
    weight: float
    reach: float


def _scored(
    score: str,
    ground: Ground,
    partials: tuple[Partial, ...],
    nuisances: tuple[Nuisance, ...],
    found: Effect,
) -> _Score:
    outcome, rows = ground.outcome, ground.rows
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
        target = by_fold(lambda n: Aipw(n, outcome, ground.clip, around, most), nuisances)
        return _Score(one, target, around, first, centre, 1.0, target.bound)
    soft = min(RESIDUAL_CLIP, ground.clip)
    e = partials[0].e_soft(rows)
    return _Score(
        by_fold(lambda p: SquaredTreatmentResidual(p.e_soft, soft), partials),
        by_fold(lambda p: CentredProduct(p.e_soft, p.eta, outcome, soft, around, most), partials),
        around,
        first,
        centre,
        float(np.mean(e * (1 - e))),
        limit + (1 - soft) * most,
    )


def _sizes(ground: Ground, target: Transform, partial: Partial | None) -> cuts.Sizes:
    """Noisy histogram of the target's size: of residual products (with `partial`), whose usual law
    is known, helped by it. Else a small budget sees none, and takes them to be all the range."""
    if partial is None:
        return read_sizes(ground, target, SIZES)
    return residual_sizes(ground, target, SIZES, partial)


def _noise_sd(ground: Ground, regression: KernelRegression) -> float:
    """Noise sd of a weight, as the vault will draw it."""
    plan = ground.session.plan
    trust = plan.request.trust
    moved = regression.sensitivity(trust.neighbors) * trust.max_rows * float(regression.units[0])
    return float(moved / np.sqrt(2 * plan.stage(KERNEL).rho / PICO))


def _most(ground: Ground) -> float:
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
    session = ground.session
    size, plan = session.vault.size, session.plan
    k = plan.request.trust.max_rows
    if size is not None:
        return float(size * k)
    count = ground.population.count + 10 * ground.population.count_sd
    if plan.request.split == "disjoint":
        return 4 * count + (2 * OTHER_HALF + 1) * k
    return 2 * count + k
