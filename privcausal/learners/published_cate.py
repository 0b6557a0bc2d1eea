"""DP-CATE as its paper prints it (Schroeder et al. 2025): ``privcate(..., mode="paper")``."""

from __future__ import annotations

import importlib.util
import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privcausal.accounting import PICO, Release, rho_of
from privcausal.accounting.charge import exact
from privcausal.errors import (
    BudgetError,
    CapabilityError,
    PrivcausalWarning,
)
from privcausal.inference.answers import Answers
from privcausal.inference.effect import Effect
from privcausal.inference.population import Population
from privcausal.learners import networks
from privcausal.learners.bases import AnyBase, Gam
from privcausal.learners.estimate import Estimate
from privcausal.learners.estimators import Sklearn
from privcausal.learners.ground import Session, lay
from privcausal.learners.kernels import NN, Kernel
from privcausal.learners.needs import Undeclared
from privcausal.learners.papers import (
    nuisance_needs,
    on_one_half,
    private_nuisance,
    refuse,
    refuse_undeclared,
)
from privcausal.learners.second_stage import effect_columns, second_stage, width
from privcausal.spec.features import Design, Rows
from privcausal.spec.fourier import fourier
from privcausal.spec.functions import Constant, Nuisance
from privcausal.spec.plan import Plan, Stage
from privcausal.spec.request import Request
from privcausal.spec.schema import Interval, Schema
from privcausal.typing import Vector
from privcausal.vault import (
    Affine,
    Estimators,
    Outcome,
    Process,
    PublishedAnswers,
    PublishedProcess,
    Ridge,
    SecondStage,
    TanhNetwork,
    Vault,
)

if TYPE_CHECKING:
    from privcausal.learners.dpcate import DPCATE

EFFECT = "effect: second stage"

STARTS = 10
"""Random starting points of the search for gamma (PrivATE's supplement C.2)."""

PAPER_RIDGE, PAPER_FUNCTIONS = 1.0, 50
"""Of the functional release (supplement G.3)."""

LINEAR_DAMPING = 1e-8
"""Keeps the linear model's Hessian invertible where columns are collinear."""

_PUBLIC_SEED = 20_250_521  # starting points of an optimiser, not noise; they are public

STATE_WARNING = (
    "mode='paper' without queries= keeps secret state: the effect without noise and the noise of "
    "each answer stay in this process's memory, and who reads them reads the rows' effect. The "
    "result cannot be saved. mode='proven' releases the function once and keeps nothing"
)


@dataclass(frozen=True, eq=False)
class Asked(Effect):
    """tau drawn point by point from a process that stays in the vault (Algorithm 2).

    Values at new points depend on what was asked before; a point asked again has the same one.
    """

    process: Process

    def __call__(self, rows: Rows) -> Vector:
        return np.clip(self.process.ask(rows), -self.reach, self.reach)

    def sd(self, rows: Rows) -> Vector:
        """Not told: only the noise is known, not the error."""
        return np.full(len(rows), np.nan)


def plan(learner: DPCATE, request: Request, base: AnyBase, undeclared: Undeclared) -> Plan:
    """One stage priced in epsilon and delta; for private nuisances, more of them beside.

    An (epsilon, delta) mechanism is dominated by one that fails with probability delta and is else
    epsilon-private, so it is charged in epsilon and delta. Private nuisances come from other rows,
    in parallel: those of moments are given all of the budget and charged nothing more; networks,
    which are priced in epsilon and delta too, have half of it, as in the paper.

    Raises
    ------
    CapabilityError, SchemaError, BudgetError
        The theorems, or this base, do not cover what is asked.
    """
    _check(learner, request, base, undeclared)
    nuisances: tuple[Stage, ...] = ()
    networks_stages: list[Stage] = []
    cap, name = 0, base.name
    if isinstance(base, NN):
        networks_stages = networks.stages(request, rows=0.5, part="nuisance")
    elif not isinstance(base, Sklearn):
        nuisances, cap = on_one_half(request, nuisance_needs(request))
        name = second_stage(base).name
    noisy = _noisy(request, networks_stages)
    if networks_stages:  # their half of the rows has as much left for the marginals
        cap = rho_of(noisy.epsilon / PICO, noisy.delta / PICO)
        marginals = Stage("nuisance: marginals", cap, charged=0, rows=0.5, part="nuisance")
        nuisances = (marginals, *networks_stages)
    least = 0  # Theorem 3 asks for none
    if learner.noise == "gross_error" and request.queries is not None:
        least = 2 * least_rows(noisy, len(request.queries))
    return Plan(request, learner.name, name, (*nuisances, noisy), cap, least)


def _noisy(request: Request, others: list[Stage]) -> Stage:
    """The second stage's, with what others priced in epsilon and delta leave."""
    epsilon, delta = (
        math.floor(exact(amount) * PICO) - sum(getattr(stage, of) for stage in others)
        for of, amount in (("epsilon", request.budget.epsilon), ("delta", request.budget.delta))
    )
    if delta < 1:
        raise BudgetError("delta is too small: it is counted in units of 1e-12")
    return Stage(EFFECT, 0, delta, 0, 0.5, "effect", epsilon)


def least_rows(stage: Stage, queries: int) -> int:
    """max(55, 8 (d + 2 ln(2/delta)) / epsilon): fewest rows of the second stage.

    Below e^4 rows, or where this beta of Nissim et al. (2007) for d numbers is passed, gamma
    sqrt(ln n) / n is not a smooth upper bound of the local sensitivity even of a mean.
    """
    epsilon, delta = stage.epsilon / PICO, stage.delta / PICO
    return max(55, math.ceil(8 * (queries + 2 * math.log(2 / delta)) / epsilon))


def _check(learner: DPCATE, request: Request, base: AnyBase, undeclared: Undeclared) -> None:
    """What the theorems are about, and nothing else."""
    refused = {
        "neighbors='add_remove'": request.trust.neighbors != "substitute",
        "unit=": request.trust.unit is not None,
        "groups=": bool(request.groups),
        "shares=": bool(request.budget.shares),
        "a column of known propensities": isinstance(request.propensity, str),
    }
    refuse(
        refused,
        "its theorems are about effects in tables that differ in one replaced row",
    )
    if request.split != "disjoint":
        raise CapabilityError(
            "mode='paper' of learner='dpcate' learns nuisances on one half of the rows and the "
            "effect on the other, as the paper does: write split='disjoint'"
        )
    refuse_undeclared(undeclared)
    if isinstance(base, NN):
        networks.check(request, undeclared)
    if not isinstance(base, Sklearn):
        second_stage(base)  # refuses others
    if request.queries is None and learner.second != "kernel":
        raise CapabilityError(
            f"DPCATE(second={learner.second!r}) needs queries=: a process has the kernel's effect"
        )
    if learner.noise == "process" and learner.second != "kernel":
        raise CapabilityError("DPCATE(noise='process') is for second='kernel' only")
    if learner.second == "network" and importlib.util.find_spec("torch") is None:
        raise CapabilityError(
            "DPCATE(second='network') needs PyTorch: pip install 'privcausal[nn]'"
        )


def fit(learner: DPCATE, plan: Plan, vault: Vault, schema: Schema, base: AnyBase) -> Estimate:
    """Nuisances on one half of the rows, the paper's noise on the other."""
    request = plan.request
    design = Design(
        (*request.formula.modifiers, *request.formula.controls), schema, full_rank=False
    )
    releases: list[Release] = []
    known = None if request.propensity is None else Constant(float(request.propensity))
    nuisances: Estimators | Nuisance
    if isinstance(base, Sklearn):
        vault.arrange(schema, [design], ())
        nuisances = Estimators(base.propensity, base.outcome, known)
        kernel = Kernel()
    else:
        session = Session(plan, vault, schema, Undeclared((), ()), Gam(), releases)
        if isinstance(base, NN):
            ground = lay(session)
            nuisances = networks.learn(ground, base).nuisance
        else:
            ground, _, nuisances = private_nuisance(session)
        design, kernel = ground.design, second_stage(base)
    domain = schema[request.formula.outcome]
    outcome = Outcome(domain.lo, domain.hi) if isinstance(domain, Interval) else Outcome(0.0, 1.0)
    effect = _effect(learner, vault, design, kernel, request, nuisances, outcome, releases)
    nobody = Population(schema, {}, np.eye(0), float(vault.size or 0))
    return Estimate(
        plan, schema, design, nobody, effect, None, None, tuple(releases), vault.size,
        vault.real_noise,
    )  # fmt: skip


def _effect(
    learner: DPCATE,
    vault: Vault,
    design: Design,
    kernel: Kernel,
    request: Request,
    nuisances: Estimators | Nuisance,
    outcome: Outcome,
    releases: list[Release],
) -> Effect:
    columns, reach = effect_columns(design, request), 2 * outcome.bound
    shared = (nuisances, design, outcome, request.arm_clip, learner.score)
    if request.queries is not None and learner.noise == "gross_error":
        rows = request.queries.rows(design)
        stage = _second(learner, design, kernel, request, reach)
        starts = np.random.default_rng(_PUBLIC_SEED).random((STARTS, len(design.variables)))
        release = vault.release_answers(EFFECT, PublishedAnswers(*shared, stage, rows, starts))
        releases.append(release)
        return _answers(design, request, rows, release.value)
    default = math.sqrt(2 * width(design, columns))
    features = fourier(design, columns, kernel.bandwidth or default, PAPER_FUNCTIONS)
    order = PublishedProcess(*shared, features, kernel.ridge or PAPER_RIDGE)
    release, process = vault.release_process(EFFECT, order)
    releases.append(release)
    if request.queries is not None:  # Algorithm 1: asked once, and then forgotten
        rows = request.queries.rows(design)
        return _answers(design, request, rows, process.ask(rows))
    warnings.warn(STATE_WARNING, PrivcausalWarning, stacklevel=2)
    return Asked((), np.inf, process)


def _answers(design: Design, request: Request, rows: Rows, value: Vector) -> Answers:
    """As they are, not cut; without standard errors: the noise scale depends on the rows."""
    columns = effect_columns(design, request)
    points = np.ascontiguousarray(rows.scaled(design)[:, columns])
    return Answers((), np.inf, design, columns, points, value, np.full(len(value), np.nan))


def _second(
    learner: DPCATE, design: Design, kernel: Kernel, request: Request, reach: float
) -> SecondStage:
    columns = effect_columns(design, request)
    if learner.second == "linear":
        return Ridge(Affine(design, columns), LINEAR_DAMPING)
    if learner.second == "network":
        return TanhNetwork(design, columns, reach / 2)
    # scikit-learn's defaults: gamma = 1 / q on columns in [0, 1], and alpha = 1
    default = math.sqrt(2 * width(design, columns))
    features = fourier(design, columns, kernel.bandwidth or default, kernel.functions)
    if kernel.ridge is None:
        return Ridge(features, 1.0, total=True)
    return Ridge(features, kernel.ridge)
