"""DP-CATE as printed in its paper (Schroeder et al. 2025): `privcausal.paper.dpcate`."""

from __future__ import annotations

import importlib.util
import math
import warnings
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import numpy as np

from privcausal import vault
from privcausal.errors import CapabilityError, PrivcausalWarning, is_number
from privcausal.estimators import bases, dpcate, first_stages, paper, words
from privcausal.estimators.base import Learner
from privcausal.estimators.bases import NN, Given, Kernel, Sklearn, check_one_of, check_whole
from privcausal.estimators.budget import Step, Undeclared
from privcausal.features.basis import fourier
from privcausal.features.design import Design
from privcausal.features.functions import NuisanceTriple
from privcausal.features.rows import Rows, read_queries
from privcausal.inference.effects import Effect
from privcausal.request.plan import Plan, Stage, StageKey
from privcausal.request.request import Request
from privcausal.typing import Vector

PROCESS_STAGE = StageKey("effect", "second stage")

PAPER_FUNCTIONS = 50
"""Number of basis functions of the functional release (supplement G.3).

The paper's "default regularization parameter lambda = 1" is read as a ridge for the sum of the
losses, as in scikit-learn. On the mean loss of Eq. 18, it would shrink the effect to almost
zero, with or without noise.
"""

EXACT_ROWS = 4000
"""Maximum table size for exact kernel regression; half of the rows learn, with a 32 MB kernel."""

EPOCHS, DAMPING = 60, 1e-3
"""Defaults for second='network'; the paper does not state them."""

LINEAR_DAMPING = 1e-8
"""Ridge that keeps the linear model's Hessian invertible if columns are collinear."""

STATE_WARNING = (
    "pc.paper.dpcate without queries= keeps the exact effect and the noise in memory. Anyone who "
    "can read this memory can recover private values. The result cannot be saved. Use "
    "privcate(learner='dpcate') instead."
)


@dataclass(frozen=True, eq=False)
class ProcessEffect(Effect):
    """tau drawn point by point from a process that stays in the vault (Algorithm 2).

    Values at new points depend on earlier queries; a repeated point has the same value.
    """

    process: vault.Process
    drawn: ClassVar[bool] = False
    unsaved: ClassVar[str] = (
        "This fit cannot be saved, because it keeps the effect without noise. Declare queries=, or "
        "use privcate(learner='dpcate')."
    )

    def __call__(self, rows: Rows) -> Vector:
        return np.clip(self.process.ask(rows), -self.reach, self.reach)

    def sd(self, rows: Rows) -> Vector:
        """Not available: only the noise is known, not the error."""
        return np.full(len(rows), np.nan)


Second = Literal["kernel", "exact", "linear", "network"]


def _is_finite(plan: Plan) -> bool:
    """Whether the noise follows Theorem 1, not a process."""
    return plan.least_rows > 0


def _doubts(plan: Plan) -> tuple[str, ...]:
    nuisances = {
        "sklearn": "The nuisance models were fitted to the other half of the rows without privacy "
        "protection, so the claim does not cover that half: the theorem requires private nuisance "
        "models.",
        "given": "The nuisance models were supplied by the user, whose declaration that they are "
        "public or private was not checked. If they were learned from the same people, their "
        "privacy cost adds to the cost stated here.",
    }.get(
        plan.base,
        "The nuisance models use the other half of the rows and are private, which is proven.",
    )
    if _is_finite(plan):
        return (
            nuisances,
            "The noise is scaled by the largest influence of a row on this fit, which a local "
            "search approximates without a bound. It is not proven for fitted second stages "
            "that this influence bounds the effect of replacing a row.",
        )
    doubts = (
        nuisances,
        "The noise is too small by a factor (sqrt(2 pi) h)^(q/2) for a bandwidth h above 0.4: the "
        "printed bound (Lemma 1) has the exponent q, but its proof gives q/2. The squared loss has "
        "no Lipschitz constant unless the function is bounded.",
    )
    if plan.request.queries is not None:
        return doubts
    return (
        *doubts,
        "The process keeps the effect without noise and all drawn noise in memory. The claim "
        "covers answers only, and does not hold against anyone who can read this memory.",
    )


def _methods(plan: Plan, source: str) -> tuple[str, ...]:
    where = {
        "sklearn": "one half of the rows, with scikit-learn nuisance models from the other half",
        "given": "all rows, with nuisance models supplied by the user",
    }.get(plan.base, "one half of the rows, with private nuisance models from the other half")
    noise = (
        "The noise (OpenDP's discrete Gaussian on a fine grid) was added to the effects at the "
        "queries. Its standard deviation is 5 sqrt(2 ln(n) ln(2/delta)) / (epsilon n) times the "
        "gross error sensitivity. This sensitivity is the largest influence in the declared domain "
        "that L-BFGS-B found, with starting points throughout the domain and at its corners."
        if _is_finite(plan)
        else "The noise added to the effects at the queries is a Gaussian process with the "
        "kernel's covariance (OpenDP's discrete Gaussian on a fine grid). It was drawn point by "
        "point given the noise at earlier points; the printed algorithm conditions on past answers "
        "instead."
    )
    return (
        f"The estimator was DP-CATE as printed by {source}: a regression for the pseudo-outcome on "
        f"{where}. {noise}",
        words.LEFT_OUT,
    )


@dataclass(frozen=True)
class PublishedDPCATE(Learner):
    """The paper's second stages, with the guarantees that the paper claims.

    Parameters
    ----------
    weight, second, noise, epochs, damping
        As for `privcausal.paper.dpcate`.
    """

    weight: vault.Weight = "overlap"
    second: Second = "kernel"
    noise: Literal["gross_error", "process"] = "gross_error"
    epochs: int = EPOCHS
    damping: float = DAMPING
    name: ClassVar[str] = "dpcate"
    title: ClassVar[str] = "DP-CATE"
    steps: ClassVar[tuple[Step, ...]] = paper.PUBLISHED_STEPS

    def __post_init__(self) -> None:
        check_one_of("weight", self.weight, get_args(vault.Weight))
        check_one_of("second", self.second, get_args(Second))
        check_one_of("noise", self.noise, ("gross_error", "process"))
        check_whole("epochs", self.epochs, 1, 10_000)
        if not (is_number(self.damping) and 0 < self.damping < math.inf):
            raise CapabilityError("damping= must be a number above 0.")
        changed = (self.epochs, self.damping) != (EPOCHS, DAMPING)
        if changed and self.second != "network":
            raise CapabilityError("epochs= and damping= require second='network'.")

    def plan(self, request: Request, base: bases.AnyBase, undeclared: Undeclared) -> Plan:
        """Plan one stage charged in epsilon and delta, plus stages of private nuisances.

        Private nuisances come from other rows, in parallel. Together they can use the whole budget
        and are not charged again. Refuse requests that the theorems, or this base, do not cover.
        """
        _check(self, request, base, undeclared)
        nuisances: tuple[Stage, ...] = ()
        cap, name, whole = 0, base.name, isinstance(base, Given)
        if isinstance(base, NN):
            nuisances = tuple(dpcate.network_stages(request, own_half=True))
        elif not isinstance(base, Sklearn | Given):
            nuisances, cap = paper.on_one_half(request, self.stages(request, bases.Gam()))
            name = dpcate.second_stage(base).name
        noisy, parts = paper.claimed_stage(PROCESS_STAGE, request, whole=whole), 1 if whole else 2
        least = 0  # Theorem 3 requires no minimum.
        if self.noise == "gross_error" and request.queries is not None:
            least = parts * paper.least_rows(noisy, len(request.queries))
        most = EXACT_ROWS if self.second == "exact" else 0
        return Plan(request, self.name, name, (*nuisances, noisy), cap, least, most_rows=most)

    def accepted(self, base: bases.AnyBase) -> bases.PrivateBase:
        return bases.Gam()

    def run(self, fit: first_stages.Fit) -> words.Estimate:
        """Learn nuisances on one half of the rows, and add the paper's noise on the other."""
        base, request = fit.option, fit.request
        kernel = Kernel() if isinstance(base, Sklearn | Given) else dpcate.second_stage(base)
        nuisances: vault.Estimators | NuisanceTriple
        if isinstance(base, Kernel | bases.Gam):
            # Use a copy: the result keeps the declared schema.
            state, _, nuisances = paper.private_nuisance(replace(fit))
            design = state.design
        else:
            design = paper.plain_design(fit)
        if isinstance(base, Sklearn):
            propensity = first_stages.declared_propensity(request, fit.schema)
            nuisances = vault.Estimators(base.propensity, base.outcome, propensity)
        elif isinstance(base, Given):
            outcome, clip = first_stages.outcome_of(request, design.schema), request.arm_clip
            ends = outcome.lo, outcome.hi
            mu0, mu1 = (vault.GivenFunction(f, design, *ends) for f in (base.control, base.treated))
            e = vault.GivenFunction(base.propensity, design, clip, 1 - clip)
            nuisances = NuisanceTriple(e, mu0, mu1)
        elif isinstance(base, NN):
            _, nuisances, _ = dpcate.learn_networks(fit, design, request.arm_clip, base)
        effect = self._released(fit, kernel, nuisances, design)
        notes = (base.declared,) if isinstance(base, Given) else ()
        return fit.finished(design, effect=effect, notes=notes)

    @classmethod
    def describe(cls, estimate: words.Estimate) -> words.Description:
        plan = estimate.plan
        theorem = "Theorem 1" if _is_finite(plan) else "Theorem 3"
        source = f"Schroeder et al. (2025, DP-CATE, {theorem})"
        return replace(
            super().describe(estimate),
            rows=paper.published_rows(estimate),
            methods=_methods(plan, source),
            doubts=_doubts(plan),
            notes=(
                "The effects have no standard errors, because the noise scale depends on the rows.",
            ),
            claim=f"is claimed by {source} for this mechanism",
        )

    def _released(
        self,
        fit: first_stages.Fit,
        kernel: Kernel,
        nuisances: vault.Estimators | NuisanceTriple,
        design: Design,
    ) -> Effect:
        plan = fit.plan
        request, share = plan.request, plan.stage(PROCESS_STAGE).rows
        outcome = first_stages.outcome_of(request, design.schema)
        # positions of the design columns that the effect depends on
        terms = Design(request.formula.modifiers, design.schema, full_rank=False).terms
        modifiers = {term.name for term in terms}
        columns = np.flatnonzero([column.term in modifiers for column in design.columns])
        shared = (nuisances, design, outcome, request.arm_clip, self.weight, share == 1)
        assert fit.vault.size is not None  # Guaranteed by `_check`.
        # scikit-learn's default: alpha = 1 added to the sum over the rows.
        ridge = kernel.ridge or 1 / max(share * fit.vault.size, 1.0)
        # scikit-learn's default: gamma = 1 / q on columns in [0, 1].
        bandwidth = kernel.bandwidth or math.sqrt(2 * dpcate.width(design, columns))
        rows = None if request.queries is None else read_queries(request.queries, design)
        if rows is None:
            features = fourier(design, columns, bandwidth, PAPER_FUNCTIONS)
            drawn = vault.PublishedProcess(*shared, features, ridge)
            release, process = fit.vault.release_process(PROCESS_STAGE, drawn)
            fit.releases.append(release)
            warnings.warn(STATE_WARNING, PrivcausalWarning, stacklevel=2)
            return ProcessEffect((), np.inf, process)
        query: vault.PublishedAnswers | vault.PublishedCurve
        if self.noise == "process":
            features = fourier(design, columns, bandwidth, PAPER_FUNCTIONS)
            query = vault.PublishedCurve(*shared, features, ridge, rows)
        else:
            second: vault.SecondStage
            if self.second == "linear":
                second = vault.Ridge(vault.Affine(design, columns), LINEAR_DAMPING)
            elif self.second == "network":
                training = self.epochs, self.damping
                second = vault.TanhNetwork(design, columns, outcome.bound, *training)
            elif self.second == "exact":
                second = vault.ExactRidge(design, columns, bandwidth, ridge)
            else:
                second = vault.Ridge(fourier(design, columns, bandwidth, kernel.functions), ridge)
            query = vault.PublishedAnswers(*shared, second, rows, paper.starting_points(design))
        # No clipping and no standard errors, because the noise scale depends on the rows.
        value = fit.release(PROCESS_STAGE, query).value
        return dpcate.answers_at(design, columns, rows, np.inf, value, np.full(len(value), np.nan))


def _check(
    learner: PublishedDPCATE, request: Request, base: bases.AnyBase, undeclared: Undeclared
) -> None:
    """Refuse requests that the theorems do not cover."""
    refused = {
        "neighbors='add_remove'": request.trust.neighbors != "substitute",
        "unit=": request.trust.unit is not None,
        "groups=": bool(request.groups),
        "shares=": bool(request.budget.shares),
        "a column of known propensities": isinstance(request.propensity, str),
        "propensity= together with Given(propensity=)": isinstance(base, Given)
        and request.propensity is not None,
    }
    why = "its theorems cover data sets that differ in one replaced row"
    paper.refuse_published(refused, why, undeclared)
    if isinstance(base, NN):
        dpcate.check_networks(request, undeclared)
    if not isinstance(base, Sklearn | Given):
        dpcate.second_stage(base)  # Refuses other bases.
    if request.queries is None and learner.second != "kernel":
        raise CapabilityError(
            f"second={learner.second!r} requires queries=. Without queries=, use second='kernel'."
        )
    if learner.noise == "process" and learner.second != "kernel":
        raise CapabilityError("noise='process' requires second='kernel'.")
    if learner.second == "network" and importlib.util.find_spec("torch") is None:
        raise CapabilityError(
            "second='network' requires PyTorch. Run pip install 'privcausal[nn]'."
        )
