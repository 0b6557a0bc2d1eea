"""DP-CATE as its paper prints it (Schroeder et al. 2025): `privcausal.paper.dpcate`."""

from __future__ import annotations

import importlib.util
import math
import warnings
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from privcausal.accounting import PICO, Release, rho_of
from privcausal.accounting.charge import exact
from privcausal.errors import BudgetError, CapabilityError, PrivcausalWarning
from privcausal.features.design import Design
from privcausal.features.expansions import fourier
from privcausal.features.functions import Nuisance
from privcausal.features.points import read_queries
from privcausal.features.rows import Rows
from privcausal.inference.effect import Answers, Effect
from privcausal.inference.population import Population
from privcausal.learners.base import Learner
from privcausal.learners.bases import AnyBase, Gam, PrivateBase
from privcausal.learners.budget import StageWeight, Undeclared
from privcausal.learners.description import LEFT_OUT, Description
from privcausal.learners.estimate import Estimate
from privcausal.learners.networks import check_networks, learn_networks, network_stages
from privcausal.learners.options import NN, Kernel, Sklearn
from privcausal.learners.paper import (
    least_rows,
    on_one_half,
    private_needs,
    private_nuisance,
    published_rows,
    refuse_published,
    refuse_undeclared,
    starting_points,
)
from privcausal.learners.second_stage import effect_columns, second_stage, width
from privcausal.learners.shares import Stages
from privcausal.learners.state import Session, declared_propensity, outcome_of, prepare
from privcausal.request.plan import Plan, Stage, StageKey
from privcausal.request.request import Request
from privcausal.request.schema import Schema
from privcausal.typing import Integers, Vector
from privcausal.vault import (
    Affine,
    Estimators,
    Process,
    PublishedAnswers,
    PublishedProcess,
    Ridge,
    SecondStage,
    TanhNetwork,
    Vault,
)

EFFECT = StageKey("effect", "second stage")

PAPER_RIDGE, PAPER_FUNCTIONS = 1.0, 50
"""Of the functional release (supplement G.3)."""

LINEAR_DAMPING = 1e-8
"""Keeps the linear model's Hessian invertible where columns are collinear."""

STATE_WARNING = (
    "pc.paper.dpcate without queries= keeps secret state: the effect without noise and the noise "
    "of each answer stay in this process's memory, and who reads them reads the rows' effect. The "
    "result cannot be saved. privcate(learner='dpcate') releases the function once, without state"
)


@dataclass(frozen=True, eq=False)
class Asked(Effect):
    """tau drawn point by point from a process that stays in the vault (Algorithm 2).

    Values at new points depend on what was asked before; a point asked again has the same one.
    """

    process: Process
    drawn: ClassVar[bool] = False
    unsaved: ClassVar[str] = (
        "this fit cannot be saved: its process keeps the effect without noise. Declare queries=, "
        "or take privcate(learner='dpcate')"
    )

    def __call__(self, rows: Rows) -> Vector:
        return np.clip(self.process.ask(rows), -self.reach, self.reach)

    def sd(self, rows: Rows) -> Vector:
        """Not told: only the noise is known, not the error."""
        return np.full(len(rows), np.nan)


OPTIONS: dict[str, tuple[str, ...]] = {
    "score": ("r", "dr"),
    "second": ("kernel", "linear", "network"),
    "noise": ("gross_error", "process"),
}


def describe_published(found: Description, estimate: Estimate) -> Description:
    """The description of a fit as published, from that of one that is proven."""
    plan = estimate.plan
    theorem = "Theorem 1" if _is_finite(plan) else "Theorem 3"
    source = f"Schroeder et al. (2025, DP-CATE, {theorem})"
    return replace(
        found,
        rows=published_rows(estimate),
        methods=_methods(plan, source),
        notes=("The effects have no standard errors: the noise scale depends on the rows.",),
        claim=f"is what {source} claim of this mechanism",
        doubts=_doubts(plan),
    )


def _is_finite(plan: Plan) -> bool:
    """Whether the noise is that of Theorem 1, and not a process."""
    return plan.least_rows > 0


def _doubts(plan: Plan) -> tuple[str, ...]:
    nuisances = (
        "The nuisances come from the other half of the rows and are private, which is proven."
        if plan.base != "sklearn"
        else "The nuisances were fitted on the other half of the rows without any protection, so "
        "nothing at all is claimed for the rows of that half: the theorem asks for private ones."
    )
    if _is_finite(plan):
        return (
            nuisances,
            "The noise is scaled by the largest influence of a row on this very fit, which a local "
            "search finds and nothing bounds; that it bounds what replacing a row does is not "
            "shown for fitted second stages.",
        )
    found = (
        nuisances,
        "The noise is too small by a factor (sqrt(2 pi) h)^(q/2) for a bandwidth h above 0.4: the "
        "printed bound (Lemma 1) has the exponent q where its own proof has q/2. The squared loss "
        "has no Lipschitz constant unless the function is bounded.",
    )
    if plan.request.queries is not None:
        return found
    return (
        *found,
        "The process keeps the effect without noise and all noise drawn so far in memory: "
        "the claim is about answers only, and fails for whoever sees that state.",
    )


def _methods(plan: Plan, source: str) -> tuple[str, ...]:
    where = (
        "scikit-learn estimators fitted on one half of the rows"
        if plan.base == "sklearn"
        else "private nuisances from one half of the rows"
    )
    noise = (
        "independent noise of standard deviation 5 sqrt(2 ln(n) ln(2/delta)) / (epsilon n) times "
        "the gross error sensitivity: the largest influence over the declared domain that L-BFGS-B "
        "finds from points that fill the domain and its corners"
        if _is_finite(plan)
        else "a Gaussian process with the kernel's covariance, drawn point by point given the "
        "noise at the points before (as printed the algorithm conditions on past answers instead)"
    )
    return (
        f"DP-CATE as printed by {source}: a regression of the pseudo-outcome on the other "
        f"half of the rows, with {where}. To the effects at the queries was added {noise} "
        "(OpenDP's discrete Gaussian on a fine grid).",
        LEFT_OUT,
    )


@dataclass(frozen=True)
class PublishedDPCATE(Learner):
    """The paper's second stages, with the guarantees that it claims.

    Parameters
    ----------
    score, second, noise
        As for `privcausal.paper.dpcate`.
    """

    score: Literal["r", "dr"] = "r"
    second: Literal["kernel", "linear", "network"] = "kernel"
    noise: Literal["gross_error", "process"] = "gross_error"
    name: ClassVar[str] = "dpcate"

    def __post_init__(self) -> None:
        for name, known in OPTIONS.items():
            if getattr(self, name) not in known:
                raise CapabilityError(f"{name} is one of {', '.join(map(repr, known))}")

    def needs(self, request: Request, base: PrivateBase) -> list[StageWeight]:
        """Releases of the private nuisances, on their half."""
        return private_needs(request)

    def plan(self, request: Request, base: AnyBase, undeclared: Undeclared) -> Plan:
        """One stage priced in epsilon and delta; for private nuisances, more of them beside.

        An (epsilon, delta) mechanism is dominated by one that fails with probability delta and is
        else epsilon-private, so it is charged in epsilon and delta. Private nuisances come from
        other rows, in parallel: those of moments are given all of the budget and charged nothing
        more; networks, which are priced in epsilon and delta too, have half of it.

        Raises
        ------
        CapabilityError, SchemaError, BudgetError
            The theorems, or this base, do not cover what is asked.
        """
        _check_asked(self, request, base, undeclared)
        nuisances: tuple[Stage, ...] = ()
        cap, name, networks = 0, base.name, list[Stage]()
        if isinstance(base, NN):
            networks = network_stages(request, rows=0.5, part="nuisance")
        elif not isinstance(base, Sklearn):
            nuisances, cap = on_one_half(request, self.needs(request, Gam()))
            name = second_stage(base).name
        noisy = _noisy(request, networks)
        if networks:  # their half of the rows has as much left for the marginals
            cap = rho_of(noisy.epsilon / PICO, noisy.delta / PICO)
            marginals = Stage(Stages.MARGINALS, cap, charged=0, rows=0.5, part="nuisance")
            nuisances = (marginals, *networks)
        least = 0  # Theorem 3 asks for none
        if self.noise == "gross_error" and request.queries is not None:
            least = 2 * least_rows(noisy, len(request.queries))
        return Plan(request, self.name, name, (*nuisances, noisy), cap, least)

    def fit(
        self, plan: Plan, vault: Vault, schema: Schema, undeclared: Undeclared, base: AnyBase
    ) -> Estimate:
        """Nuisances on one half of the rows, the paper's noise on the other."""
        request = plan.request
        design = Design(
            (*request.formula.modifiers, *request.formula.controls), schema, full_rank=False
        )
        releases: list[Release] = []
        nuisances: Estimators | Nuisance
        if isinstance(base, Sklearn):
            vault.set_layout(schema, [design], ())
            known = declared_propensity(request, schema)
            nuisances = Estimators(base.propensity, base.outcome, known)
            kernel = Kernel()
        else:
            session = Session(plan, vault, schema, Undeclared((), ()), Gam(), releases)
            if isinstance(base, NN):
                state = prepare(session)
                nuisances = learn_networks(state, base).nuisance
            else:
                state, _, nuisances = private_nuisance(session)
            design, kernel = state.design, second_stage(base)
        effect, release = self._released(vault, request, kernel, nuisances, design)
        releases.append(release)
        nobody = Population(schema, {}, np.eye(0), float(vault.size or 0))
        return Estimate(
            plan, schema, design, nobody, effect, None, None, tuple(releases), vault.size,
            vault.real_noise,
        )  # fmt: skip

    def run(self, session: Session) -> Estimate:
        raise CapabilityError("what is published has no stages of sums")

    def _released(
        self,
        vault: Vault,
        request: Request,
        kernel: Kernel,
        nuisances: Estimators | Nuisance,
        design: Design,
    ) -> tuple[Effect, Release]:
        outcome, columns = outcome_of(request, design.schema), effect_columns(design, request)
        shared = (nuisances, design, outcome, request.arm_clip, self.score)
        # scikit-learn's default: gamma = 1 / q on columns in [0, 1]
        bandwidth = kernel.bandwidth or math.sqrt(2 * width(design, columns))
        rows = None if request.queries is None else read_queries(request.queries, design)
        if rows is not None and self.noise == "gross_error":
            second: SecondStage
            if self.second == "linear":
                second = Ridge(Affine(design, columns), LINEAR_DAMPING)
            elif self.second == "network":
                second = TanhNetwork(design, columns, outcome.bound)
            else:
                features = fourier(design, columns, bandwidth, kernel.functions)
                alone = kernel.ridge is None  # then scikit-learn's alpha = 1
                second = Ridge(features, kernel.ridge or 1.0, total=alone)
            order = PublishedAnswers(*shared, second, rows, starting_points(design))
            release = vault.release(EFFECT, order)
            return _answers(design, columns, rows, release.value), release
        features = fourier(design, columns, bandwidth, PAPER_FUNCTIONS)
        ridge = kernel.ridge or PAPER_RIDGE
        release, process = vault.release_process(EFFECT, PublishedProcess(*shared, features, ridge))
        if rows is not None:  # Algorithm 1: asked once, and then forgotten
            return _answers(design, columns, rows, process.ask(rows)), release
        warnings.warn(STATE_WARNING, PrivcausalWarning, stacklevel=2)
        return Asked((), np.inf, process), release


def _noisy(request: Request, others: list[Stage]) -> Stage:
    """The second stage's, with what others priced in epsilon and delta leave."""
    epsilon, delta = (
        math.floor(exact(amount) * PICO) - sum(getattr(stage, of) for stage in others)
        for of, amount in (("epsilon", request.budget.epsilon), ("delta", request.budget.delta))
    )
    if delta < 1:
        raise BudgetError("delta is too small: it is counted in units of 1e-12")
    return Stage(EFFECT, 0, delta, 0, 0.5, "effect", epsilon)


def _check_asked(
    learner: PublishedDPCATE, request: Request, base: AnyBase, undeclared: Undeclared
) -> None:
    """What the theorems are about, and nothing else."""
    refused = {
        "neighbors='add_remove'": request.trust.neighbors != "substitute",
        "unit=": request.trust.unit is not None,
        "groups=": bool(request.groups),
        "shares=": bool(request.budget.shares),
        "a column of known propensities": isinstance(request.propensity, str),
    }
    why = "its theorems are about effects in tables that differ in one replaced row"
    refuse_published(refused, why)
    refuse_undeclared(undeclared)
    if isinstance(base, NN):
        check_networks(request, undeclared)
    if not isinstance(base, Sklearn):
        second_stage(base)  # refuses others
    if request.queries is None and learner.second != "kernel":
        raise CapabilityError(
            f"second={learner.second!r} needs queries=: a process has the kernel's effect"
        )
    if learner.noise == "process" and learner.second != "kernel":
        raise CapabilityError("noise='process' is for second='kernel' only")
    if learner.second == "network" and importlib.util.find_spec("torch") is None:
        raise CapabilityError("second='network' needs PyTorch: pip install 'privcausal[nn]'")


def _answers(design: Design, columns: Integers, rows: Rows, value: Vector) -> Answers:
    """As they are, not cut; without standard errors: the noise scale depends on the rows."""
    points = np.ascontiguousarray(rows.scaled(design)[:, columns])
    return Answers((), np.inf, design, columns, points, value, np.full(len(value), np.nan))
