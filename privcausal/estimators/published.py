"""Mechanisms as printed in their papers (`privcausal.paper`), with the guarantees that these claim.

PrivATE and DP-CATE (Schroeder et al. 2025), and ADUM and TM (Betlei et al. 2021).
"""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import numpy as np
from scipy.stats.qmc import Sobol

from privcausal import vault
from privcausal.accounting import PICO, rho_of
from privcausal.accounting.price import check_epsilon, exact
from privcausal.errors import (
    BudgetError,
    CapabilityError,
    PrivcausalWarning,
    SchemaError,
    is_number,
)
from privcausal.estimators import bases, dpcate, estimands, first_stages, private, uplift
from privcausal.estimators import nuisances as nu
from privcausal.estimators.base import Learner, finish, reported_nuisances
from privcausal.estimators.bases import (
    NN,
    AnyBase,
    Given,
    Kernel,
    Sklearn,
    check_one_of,
    check_whole,
    refuse,
)
from privcausal.estimators.budget import Step, Undeclared, Weights
from privcausal.estimators.estimands import SPLIT_WORDS, Estimate, TextPairs, nuisance_rows
from privcausal.estimators.first_stages import Fit, outcome_of, prepare
from privcausal.features.design import Design, read_queries
from privcausal.features.functions import NuisanceTriple, fourier
from privcausal.inference.cells import CellEffect
from privcausal.inference.effects import ArmPolynomials, AverageEstimate, Effect, Predicted, trimmed
from privcausal.prices import as_typed, at_most
from privcausal.request.formula import ATE_TERM
from privcausal.request.request import Plan, Request, Stage, StageKey, portions
from privcausal.request.schema import Interval
from privcausal.typing import Matrix, Neighbors, Vector
from privcausal.vault import Estimators, PublishedAte

# -- shared checks and nuisances -------------------------------------------------------------------

_PUBLIC_SEED = 20_250_521  # Public corners where an optimizer starts; not privacy noise.


CUBE_STARTS, CORNER_VARIABLES = 1024, 10
"""Number of starts that fill the cube, and maximum number of variables with starts at all corners.
"""


def starting_points(design: Design) -> Matrix:
    """Starting points of the search for gamma: points that fill the unit cube, and its corners.

    PrivATE's supplement C.2 has ten random points. They can miss a maximum, which is often at a
    corner. The noise is then smaller than the theorem requires.
    """
    k = len(design.variables)
    if k == 0:
        return np.zeros((1, 0))
    inside = Sobol(k, scramble=False).random(CUBE_STARTS)
    if k <= CORNER_VARIABLES:
        ends = np.stack(np.meshgrid(*[[0.0, 1.0]] * k), axis=-1).reshape(-1, k)
    else:
        ends = np.random.default_rng(_PUBLIC_SEED).integers(0, 2, (CUBE_STARTS, k)).astype(float)
    return np.vstack([inside, ends])


def least_rows(stage: Stage, numbers: int = 1) -> int:
    """max(55, 8 (d + 2 ln(2/delta)) / epsilon) for the d `numbers` that a stage releases.

    gamma sqrt(ln n) / n must be a smooth upper bound of the local sensitivity. It is not, even for
    a mean of fixed scores, below e^4 rows, or if this beta of Nissim et al. (2007) is exceeded.
    """
    epsilon, delta = stage.epsilon / PICO, stage.delta / PICO
    return max(55, math.ceil(8 * (numbers + 2 * math.log(2 / delta)) / epsilon))


def claimed_stage(
    key: StageKey, request: Request, share: float = 1.0, *, whole: bool = False
) -> Stage:
    """A stage with a share of epsilon and delta, on one half of the rows or on all rows.

    An (epsilon, delta) mechanism is dominated by one that fails with probability delta and is
    otherwise epsilon-private (Kairouz, Oh and Viswanath 2015). The stage is therefore charged in
    both, and sums of such charges are a valid total. Charges are rounded down, so that shares never
    sum to more than the whole.
    """
    epsilon, delta = (
        math.floor(exact(amount) * exact(share) * PICO)
        for amount in (request.budget.epsilon, request.budget.delta)
    )
    check_epsilon(epsilon / PICO)
    if delta < 1:
        raise BudgetError("delta is too small to be divided among the stages (units of 1e-12).")
    rows, part = (1.0, "all") if whole else (0.5, "effect")
    return Stage(key, 0, delta, 0, rows, part, epsilon)


def refuse_published(refused: Mapping[str, bool], why: str, undeclared: Undeclared) -> None:
    """Refuse the first requested option; `why` states the reason it is outside the theorems."""
    refuse(refused, f"The published mechanism does not support {{}}; {why}.")
    if undeclared:
        names = ", ".join(map(repr, (*undeclared.numbers, *undeclared.labels)))
        raise SchemaError(
            f"Mechanisms in pc.paper cannot estimate bounds. Declare the bounds of {names}, for "
            "example bounds={'age': (18, 95), 'ward': ['a', 'b']}."
        )


PUBLISHED_STEPS = (
    *private.MOMENTS,
    private.FIRST_EFFECT,
    private.UNKNOWN_TREATMENT,
    private.EFFECT_GRAM,
)
"""Releases of private nuisances from moments, on their half."""


def on_one_half(request: Request, weights: Weights) -> tuple[tuple[Stage, ...], int]:
    """Stages of the nuisances' half, and the rho they share.

    The stages are in parallel with the other half, which is charged (epsilon, delta). They are
    therefore not charged again.
    """
    cap = rho_of(request.budget.epsilon, request.budget.delta)
    stages = tuple(
        Stage(key, amount, charged=0, rows=0.5, part="nuisance")
        for key, amount in zip(weights, portions(cap, list(weights.values())), strict=True)
    )
    return stages, cap


def published_rows(estimate: Estimate) -> TextPairs:
    """Summary rows: the source of the nuisances, and whether they are private."""
    split = estimate.plan.request.split
    if split == "disjoint" and estimate.plan.base != "sklearn":
        return nuisance_rows(estimate, SPLIT_WORDS[split])
    if estimate.plan.base == "given":
        return nuisance_rows(estimate, "user-supplied")
    rows = "separate half" if split == "disjoint" else "all rows"
    return nuisance_rows(estimate, f"{rows}, not private")


# -- PrivATE ---------------------------------------------------------------------------------------

AIPW_MEAN = StageKey("effect", "AIPW mean")
VARIANCE = StageKey("effect", "squared error", heading="variance")

PUBLISHED_SHARES = {"effect": 0.5, "variance": 0.5}
"""Shares of epsilon and of delta: eps_1 = eps_2 and delta_1 = delta_2 (supplement C.2)."""


class Published(Learner):
    """PrivATE's Theorems 4.3, 4.5 and 4.6, with the guarantee that the paper claims.

    *Base* `Sklearn`. Estimators fit the nuisances on all rows without protection, as printed. The
    AIPW mean uses the same rows, because the paper does not cross-fit.

    *Base "gam" or "linear"*. As remarked in section 4.2 of the paper, one half of the rows provides
    private nuisances, and the paper's noise is added on the other half. The paper gives these
    nuisances half of epsilon_1. Here they have all of epsilon at no extra cost, because the halves
    are disjoint.
    """

    name: ClassVar[str] = "published"
    title: ClassVar[str] = "PrivATE as published"
    steps: ClassVar[tuple[Step, ...]] = PUBLISHED_STEPS

    def plan(self, request: Request, base: bases.AnyBase, undeclared: Undeclared) -> Plan:
        """Plan stages charged in epsilon and delta, plus stages of private nuisances.

        Refuse requests that the theorems, or this base, do not cover.
        """
        refused = {
            f"estimand={request.estimand!r}": request.estimand != "ATE",
            "neighbors='add_remove'": request.trust.neighbors != "substitute",
            "unit=": request.trust.unit is not None,
            "groups=": bool(request.groups),
            "a column of known propensities": isinstance(request.propensity, str),
        }
        why = "its theorems cover only the ATE, for data sets that differ in one replaced row"
        refuse_published(refused, why, undeclared)
        nuisances: tuple[Stage, ...] = ()
        cap, whole = 0, isinstance(base, Sklearn)
        if not whole:
            nuisances, cap = on_one_half(request, self.stages(request, self.accepted(base)))
        # If only one share is declared, the other is the rest.
        declared = request.budget.shares
        for name, share in declared.items():
            if name not in PUBLISHED_SHARES:
                raise BudgetError(
                    f"shares= has no entry {str(name)[:40]!r}. Use {', '.join(PUBLISHED_SHARES)}."
                )
            if not is_number(share) or not 0 < share < 1:
                raise BudgetError(
                    f"shares[{name!r}] must be a number strictly between 0 and 1, because the "
                    "effect and its variance both need budget."
                )
        if len(declared) == 2 and abs(sum(declared.values()) - 1) > 1e-9:
            raise BudgetError("shares= of effect and variance must sum to 1.")
        effect_share = declared.get(
            "effect", 1 - declared.get("variance", PUBLISHED_SHARES["variance"])
        )
        shares = effect_share, declared.get("variance", 1 - effect_share)
        effect, variance = (
            claimed_stage(key, request, share, whole=whole)
            for key, share in zip((AIPW_MEAN, VARIANCE), shares, strict=True)
        )
        least = (1 if whole else 2) * max(least_rows(effect), least_rows(variance))
        stages = (*nuisances, effect, variance)
        return Plan(request, self.name, base.name, stages, cap, least)

    def accepted(self, base: bases.AnyBase) -> bases.PrivateBase:
        return bases.Gam() if isinstance(base, Sklearn) else bases.moment_base(base)

    def run(self, fit: first_stages.Fit) -> estimands.Estimate:
        """Learn nuisances from all rows, or privately from one half, then add the paper's noise.

        The variance is reported as one number. Its parts, sampling and privacy, would reveal gamma.
        """
        base, request, formula = fit.option, fit.request, fit.request.formula
        nuisances: Estimators | NuisanceTriple
        if isinstance(base, Sklearn):  # The user's own estimators; none is released.
            clip, design = request.arm_clip, Design(formula.terms, fit.schema, full_rank=False)
            fit.vault.set_layout(fit.schema, [design], ())
            propensity = first_stages.declared_propensity(request, fit.schema)
            nuisances = Estimators(base.propensity, base.outcome, propensity)
        else:
            # private nuisances from the releases of `PUBLISHED_STEPS`
            state, partials = nu.additive_nuisances(prepare(fit, linear_terms=False))
            tau = nu.residual_effect(state, partials)
            nuisances = nu.nuisance_of(partials[0], tau, state.outcome)
            design, clip = state.design, state.clip
        outcome = first_stages.outcome_of(request, fit.schema)
        query = PublishedAte(nuisances, design, outcome, clip, starting_points(design))
        effect, error = fit.vault.release_published(AIPW_MEAN, VARIANCE, query)
        fit.releases += [effect, error]
        ate = AverageEstimate(
            (ATE_TERM,),
            (),
            effect.value,
            error.value[None],
            np.full((1, 1), 0.0),
            np.zeros(1),
            np.zeros(1),
            float(fit.vault.size or 0),
        )
        if isinstance(nuisances, Estimators):
            return fit.finished(design, averages=ate)
        return finish(state, None, reported_nuisances(partials, (nuisances,)), ate)

    @classmethod
    def describe(cls, estimate: estimands.Estimate) -> estimands.Description:
        request, clip = estimate.plan.request, estimate.plan.request.arm_clip
        where = "scikit-learn nuisance models fitted to the same rows, without cross-fitting"
        private = request.split == "disjoint" and estimate.plan.base != "sklearn"
        if private:
            where = "private nuisance models from the other half of the rows"
        cut = f"Propensities were clipped to [{clip:.2f}, {1 - clip:.2f}]."
        if isinstance(request.propensity, float | int):
            cut = f"The propensity is known to be {request.propensity:g}."
        method = (
            f"The estimator was PrivATE as printed by {PUBLISHED_SOURCE}: the mean of AIPW scores "
            f"with {where}. Noise was added to the mean and to the mean squared deviation "
            "(OpenDP's discrete Gaussian on a fine grid). Its standard deviation is 5 sqrt(2 ln(n) "
            "ln(2/delta)) / (epsilon n) times the gross error sensitivity. This sensitivity is the "
            "largest influence in the declared domain that L-BFGS-B found, with starting points "
            "throughout the domain and at its corners. The reported variance includes the noise "
            "(their Eq. 16)."
        )
        clipped = f"{cut} Outcome, outcome means, and covariates were clipped to their bounds."
        return replace(
            super().describe(estimate),
            rows=published_rows(estimate),
            methods=(method, clipped, estimands.LEFT_OUT),
            notes=(ONE_VARIANCE,),
            doubts=(HALVED if private else UNPROTECTED, WIDTH_NOTE),
            claim=f"is claimed by {PUBLISHED_SOURCE} for this mechanism",
        )


PUBLISHED_SOURCE = "Schroeder et al. (2025, Theorems 4.3, 4.5 and 4.6)"

HALVED = (
    "The nuisance models use one half of the rows and are private, which is proven. On the other "
    "half, the claim depends on the largest influence of a row, which a local search approximates "
    "without a bound."
)

UNPROTECTED = (
    "The claim assumes that one row does not change the nuisance models (their Lemma 4.2). Here, "
    "the nuisance models are estimated on the same rows, so the claim is false: there are data "
    "sets that differ in one row for which the actual epsilon is in the tens when 1 is claimed."
)

WIDTH_NOTE = (
    "The width of the interval also depends on the rows. It includes the largest influence that a "
    "row could have on this estimate, without added noise."
)

ONE_VARIANCE = (
    "Sampling and privacy noise are reported as one variance, because separate values would reveal "
    "the noise scale, which depends on the rows."
)


# -- DP-CATE ---------------------------------------------------------------------------------------

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


class ProcessEffect(Predicted):
    """tau drawn point by point from a process that stays in the vault (Algorithm 2).

    Values at new points depend on earlier queries; a repeated point has the same value. Only the
    noise is known, not the error.
    """

    drawn: ClassVar[bool] = False
    unsaved: ClassVar[str] = (
        "This fit cannot be saved, because it keeps the effect without noise. Declare queries=, or "
        "use privcate(learner='dpcate')."
    )


Second = Literal["kernel", "exact", "linear", "network"]


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
    steps: ClassVar[tuple[Step, ...]] = PUBLISHED_STEPS
    fixed_base: ClassVar[bases.PrivateBase | None] = bases.Gam()

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
        refuse_published(refused, why, undeclared)
        nuisances: tuple[Stage, ...] = ()
        if isinstance(base, NN):
            nuisances = tuple(dpcate.network_stages(request, undeclared, own_half=True))
        if not isinstance(base, Sklearn | Given):
            dpcate.second_stage(base)  # Refuses other bases.
        if request.queries is None and self.second != "kernel":
            raise CapabilityError(
                f"second={self.second!r} requires queries=. Without queries=, use second='kernel'."
            )
        if self.noise == "process" and self.second != "kernel":
            raise CapabilityError("noise='process' requires second='kernel'.")
        if self.second == "network" and importlib.util.find_spec("torch") is None:
            raise CapabilityError(
                "second='network' requires PyTorch. Run pip install 'privcausal[nn]'."
            )
        cap, name, whole = 0, base.name, isinstance(base, Given)
        if not isinstance(base, NN | Sklearn | Given):
            nuisances, cap = on_one_half(request, self.stages(request, bases.Gam()))
            name = dpcate.second_stage(base).name
        noisy, parts = claimed_stage(PROCESS_STAGE, request, whole=whole), 1 if whole else 2
        least = 0  # Theorem 3 requires no minimum.
        if self.noise == "gross_error" and request.queries is not None:
            least = parts * least_rows(noisy, len(request.queries))
        most = EXACT_ROWS if self.second == "exact" else 0
        return Plan(request, self.name, name, (*nuisances, noisy), cap, least, most_rows=most)

    def run(self, fit: first_stages.Fit) -> estimands.Estimate:
        """Learn nuisances on one half of the rows, and add the paper's noise on the other."""
        base, request = fit.option, fit.request
        kernel = Kernel() if isinstance(base, Sklearn | Given) else dpcate.second_stage(base)
        nuisances: vault.Estimators | NuisanceTriple
        if isinstance(base, Kernel | bases.Gam):
            # Use a copy: the result keeps the declared schema.
            state, partials = nu.additive_nuisances(prepare(replace(fit)))
            tau = nu.residual_effect(state, partials)
            nuisances = nu.nuisance_of(partials[0], tau, state.outcome)
            design = state.design
        else:
            design = Design(request.formula.terms, fit.schema, full_rank=False)
            fit.vault.set_layout(fit.schema, [design], ())
        if isinstance(base, Sklearn):
            propensity = first_stages.declared_propensity(request, fit.schema)
            nuisances = vault.Estimators(base.propensity, base.outcome, propensity)
        elif isinstance(base, Given):
            outcome, clip = first_stages.outcome_of(request, design.schema), request.arm_clip
            ends = outcome.lo, outcome.hi
            nuisances = NuisanceTriple(
                vault.FittedEstimators(base.propensity, design, clip, 1 - clip, "__call__"),
                vault.FittedEstimators(base.control, design, *ends, "__call__"),
                vault.FittedEstimators(base.treated, design, *ends, "__call__"),
            )
        elif isinstance(base, NN):
            _, nuisances, _ = dpcate.learn_networks(fit, design, request.arm_clip, base)
        effect = self._released(fit, kernel, nuisances, design)
        notes = (base.declared,) if isinstance(base, Given) else ()
        return fit.finished(design, effect=effect, notes=notes)

    @classmethod
    def describe(cls, estimate: estimands.Estimate) -> estimands.Description:
        plan = estimate.plan
        where = {
            "sklearn": "one half of the rows, with scikit-learn nuisance models from the other "
            "half",
            "given": "all rows, with nuisance models supplied by the user",
        }.get(plan.base, "one half of the rows, with private nuisance models from the other half")
        theorem, noise, doubts = "Theorem 3", PROCESS_NOISE, [PRINTED_BOUND]
        if plan.least_rows > 0:
            theorem, noise, doubts = "Theorem 1", INFLUENCE_NOISE, [LOCAL_SEARCH]
        elif plan.request.queries is None:
            doubts.append(KEPT_STATE)
        source = f"Schroeder et al. (2025, DP-CATE, {theorem})"
        method = (
            f"The estimator was DP-CATE as printed by {source}: a regression for the "
            f"pseudo-outcome on {where}. {noise}"
        )
        return replace(
            super().describe(estimate),
            rows=published_rows(estimate),
            methods=(method, estimands.LEFT_OUT),
            doubts=(NUISANCE_DOUBTS.get(plan.base, PRIVATE_HALF), *doubts),
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
        assert fit.vault.size is not None  # Guaranteed by `plan`.
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
            return ProcessEffect((), np.inf, process.ask)
        query: vault.PublishedAnswers | vault.PublishedProcess
        if self.noise == "process":
            features = fourier(design, columns, bandwidth, PAPER_FUNCTIONS)
            query = vault.PublishedProcess(*shared, features, ridge, rows)
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
            query = vault.PublishedAnswers(*shared, second, rows, starting_points(design))
        # No clipping and no standard errors, because the noise scale depends on the rows.
        value = fit.release(PROCESS_STAGE, query).value
        return dpcate.answers_at(design, columns, rows, np.inf, value, np.full(len(value), np.nan))


PRIVATE_HALF = (
    "The nuisance models use the other half of the rows and are private, which is proven."
)

NUISANCE_DOUBTS = {
    "sklearn": "The nuisance models were fitted to the other half of the rows without privacy "
    "protection, so the claim does not cover that half: the theorem requires private nuisance "
    "models.",
    "given": "The nuisance models were supplied by the user, whose declaration that they are "
    "public or private was not checked. If they were learned from the same people, their "
    "privacy cost adds to the cost stated here.",
}
"""Caveats on nuisances that are not private."""

LOCAL_SEARCH = (
    "The noise is scaled by the largest influence of a row on this fit, which a local "
    "search approximates without a bound. It is not proven for fitted second stages "
    "that this influence bounds the effect of replacing a row."
)

PRINTED_BOUND = (
    "The noise is too small by a factor (sqrt(2 pi) h)^(q/2) for a bandwidth h above 0.4: the "
    "printed bound (Lemma 1) has the exponent q, but its proof gives q/2. The squared loss has "
    "no Lipschitz constant unless the function is bounded."
)

KEPT_STATE = (
    "The process keeps the effect without noise and all drawn noise in memory. The claim "
    "covers answers only, and does not hold against anyone who can read this memory."
)

INFLUENCE_NOISE = (
    "The noise (OpenDP's discrete Gaussian on a fine grid) was added to the effects at the "
    "queries. Its standard deviation is 5 sqrt(2 ln(n) ln(2/delta)) / (epsilon n) times the "
    "gross error sensitivity. This sensitivity is the largest influence in the declared domain "
    "that L-BFGS-B found, with starting points throughout the domain and at its corners."
)

PROCESS_NOISE = (
    "The noise added to the effects at the queries is a Gaussian process with the "
    "kernel's covariance (OpenDP's discrete Gaussian on a fine grid). It was drawn point by "
    "point given the noise at earlier points; the printed algorithm conditions on past answers "
    "instead."
)


# -- ADUM and TM -----------------------------------------------------------------------------------

GRID_STEP = 2.0**-30
"""Replaces a noisy count of exactly zero in divisions; one step of the count's grid."""


@dataclass(frozen=True)
class PublishedADUM(uplift.ADUM):
    """Algorithm 1 with the noise and the quotients of the paper, without clipping or smoothing."""

    release: Literal["ends", "count_sum"] = "count_sum"
    shrink: bool = False
    name: ClassVar[str] = "adum-printed"
    title: ClassVar[str] = "ADUM as published"
    called: ClassVar[str] = "pc.paper.adum"
    instead: ClassVar[str] = ""

    def run(self, fit: Fit) -> estimands.Estimate:
        request, schema = fit.request, fit.schema
        fit.vault.set_layout(schema, (), ())
        partition = self._partition(fit)
        outcome = outcome_of(request, schema)
        sums = vault.PrintedCells(partition, outcome)
        release = fit.release(uplift.CELL_STAGE, sums)
        count, total = release.value.reshape(2, -1, 2)
        noise, total_noise = (part[0, 0] ** 2 for part in release.noise_sd.reshape(2, -1, 2))
        rows = np.where(count == 0, GRID_STEP, count)
        mean = total / rows
        # Not in the paper: the delta method, with the largest variance that the bounds allow.
        variance = (total_noise + mean**2 * noise) / rows**2 + outcome.bound**2 / np.abs(rows)
        root, width = np.diag(np.sqrt(variance.sum(axis=1))), 2 * outcome.bound
        effect = CellEffect(partition, mean[:, 1] - mean[:, 0], root, count, width)
        fit.plan = replace(fit.plan, partition=partition)
        design = Design(request.formula.modifiers, schema, full_rank=True)
        return fit.finished(design, None, effect)

    @classmethod
    def describe(cls, estimate: estimands.Estimate) -> estimands.Description:
        # the cost of the printed noise with these bounds and neighbors
        outcome = outcome_of(estimate.plan.request, estimate.schema)
        width, most = 2 * outcome.bound, max(abs(outcome.lo), abs(outcome.hi))
        added = 0.5 + 0.5 * most / width
        cost = (
            "replacing a row moves it from one cell to another and costs up to "
            f"{at_most(2 * added)} times the stated epsilon of the cells"
        )
        if estimate.plan.request.trust.neighbors == "add_remove":
            cost = f"adding a row costs {at_most(added)} times the stated epsilon of its cells"
        return replace(
            super().describe(estimate),
            methods=CELL_METHODS,
            notes=(CELL_BANDS,),
            claim=CELL_CLAIM,
            doubts=(CELL_DOUBT.format(cost=cost),),
        )


CELL_METHODS = (
    "Uplift was estimated from aggregates as printed by Betlei et al. (2021, Algorithm 1). The "
    "mean in each cell and arm is SUM + Lap(2 D/eps) over COUNT + Lap(2/eps), with D the width of "
    "the outcome bounds, however small the noisy count. The effect is the difference between the "
    "means of the arms.",
    estimands.LEFT_OUT,
)

CELL_BANDS = (
    "The paper gives no intervals and no average effect. The intervals by cell are an addition of "
    "privcausal (delta method). They are meaningless if a noisy count is near zero or negative."
)

CELL_CLAIM = "is claimed by Betlei et al. (2021, Algorithm 1) for this mechanism"


CELL_DOUBT = (
    "One row changes a count by 1 and a sum by |y|, but the noise is scaled to the width of the "
    "outcome bounds. With these bounds, {cost}. learner='adum' has proven noise scales."
)


class PrintedLoss(vault.PolynomialSums):
    """Squared losses by arm with the noise that Zhang et al. (2012, Algorithm 1) print.

    Features are divided by the root of A = `polynomials.bound`, so that their length is at most 1.
    For p features and outcomes in [-1, 1], each coefficient -2 sum x phi and sum phi phi' has noise
    of scale Delta / epsilon, Delta = 2 (1 + 2p + p^2), whether a row is replaced or added.

    Privacy
    -------
    The claim is true: replacing a row changes the coefficients by at most 2 (2 sqrt(A) + (A + 1) /
    2) in l1, which is below Delta because A <= p. The difference exceeds the rounding on the grid.
    """

    @property
    def weights(self) -> Vector:
        """One over the factors of the noise of sum x phi and sum phi phi' before the division."""
        size, bound = self.polynomials.size, self.polynomials.bound
        squares = size * (size + 1) // 2
        factors = [np.full(size, 2 / math.sqrt(bound)), np.full(squares, 1 / bound)]
        return np.tile(np.concatenate(factors), 2)

    def l1_sensitivity(self, neighbors: Neighbors) -> float:
        """The printed Delta, for both relations, in steps of the grid."""
        a = self.polynomials.bound
        step = super().l1_sensitivity("add_remove") / (a + 0.5 * (a * a + a))
        return 2.0 * (1 + self.polynomials.size) ** 2 * step


@dataclass(frozen=True)
class PublishedTM(uplift.TM):
    """Two regressions, which release only their coefficients.

    A numeric outcome has linear regressions by the functional mechanism. An outcome of two values
    has logistic regressions by objective perturbation.

    Parameters
    ----------
    C : float, optional
        One over the ridge of each arm's summed logistic loss. Default: the value that a tenth of
        epsilon allows.
    """

    C: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.C is not None and not (is_number(self.C) and 0 < self.C < math.inf):
            raise CapabilityError("C= must be a number above 0.")

    def plan(self, request: Request, base: AnyBase, undeclared: Undeclared) -> Plan:
        """Plan for one row per unit, a declared outcome, and a ridge within epsilon."""
        unit = {"unit=": request.trust.unit is not None}
        refuse_published(unit, "its theorem covers data sets that differ in one row", undeclared)
        domain = request.schema.get(request.formula.outcome)
        if self.C is not None and isinstance(domain, Interval):
            raise CapabilityError(
                "C= belongs to logistic regressions. Omit it for a numeric outcome, or declare two "
                f"values: bounds={{{request.formula.outcome!r}: pc.Binary()}}."
            )
        price = 0.0 if self.C is None else vault.ridge_price(self.C, request.trust.neighbors)
        if price >= request.budget.epsilon:
            raise CapabilityError(
                f"C={self.C:g} is too large for eps={as_typed(request.budget.epsilon)}: a ridge of "
                f"1/C costs epsilon {at_most(price)}. Use a smaller C."
            )
        return super().plan(request, base, undeclared)

    def run(self, fit: Fit) -> estimands.Estimate:
        request, schema = fit.request, fit.schema
        fit.vault.set_layout(schema, (), ())
        polynomials = self.polynomials(request, schema)
        design = Design(request.formula.modifiers, schema, full_rank=True)
        if not isinstance(schema[request.formula.outcome], Interval):
            query = vault.PublishedLogits(polynomials, request.trust.neighbors, self.C)
            release = fit.release(uplift.LOSS, query)
            coef = release.value.reshape(2, -1)
            logits = ArmPolynomials(polynomials, coef, 0.5, logistic=True)
            return fit.finished(design, effect=logits)
        outcome = outcome_of(request, schema)
        sums = PrintedLoss(polynomials, outcome)
        release = fit.release(uplift.LOSS, sums)
        cross, grams = sums.split(release.value)
        scale, sd = polynomials.bound, sums.split(release.noise_sd)[1][0, 0, 0]
        # Regress on phi / sqrt(A), and divide the coefficients by sqrt(A) for those on phi.
        pairs = zip(grams / scale, outcome.bound * cross / scale, strict=True)
        coef = np.stack([trimmed(gram, linear, sd / scale) for gram, linear in pairs])
        return fit.finished(design, effect=ArmPolynomials(polynomials, coef, UNCLIPPED))

    @classmethod
    def describe(cls, estimate: estimands.Estimate) -> estimands.Description:
        methods, claim, doubts = FUNCTIONAL, LINEAR_CLAIM, (LARGER,)
        if isinstance(estimate.effect, ArmPolynomials) and estimate.effect.logistic:
            methods, claim, doubts = LOGISTIC, LOGISTIC_CLAIM, (EXACT,)
        return replace(
            super().describe(estimate), methods=methods, notes=(BARE,), claim=claim, doubts=doubts
        )


UNCLIPPED = 1e100
"""Bound of predictions that are not clipped."""

FUNCTIONAL = (
    "One linear regression on Legendre polynomials was fitted in each arm by the functional "
    "mechanism (Zhang et al. 2012, Algorithm 1; the baseline of Betlei et al. 2021). Features have "
    "a length of at most 1, and outcomes are scaled to [-1, 1]. Noise Lap(2 (1 + p)^2 / eps), with "
    "p the number of features, was added to each coefficient of both squared losses. A ridge of "
    "four noise standard deviations was added, and directions without curvature were dropped. The "
    "effect is the difference between the regressions, without clipping.",
    estimands.LEFT_OUT,
)

LINEAR_CLAIM = (
    "is claimed by Zhang et al. (2012, Theorem 1) for this mechanism, here with the two models of "
    "Betlei et al. (2021)"
)

LARGER = (
    "The printed noise is larger than required, and no failure of the claim is known. "
    "learner='tm' is proven and has less noise."
)

LOGISTIC = (
    "One logistic regression on polynomials was fitted in each arm by objective perturbation "
    "(Chaudhuri et al. 2011, Algorithm 2; the baseline of Betlei et al. 2021 for binary outcomes). "
    "The inner product of the coefficients with a random vector, whose length has a Gamma "
    "distribution, was added to each penalized log-likelihood. Newton's method found the optimum. "
    "The ridge is public: 1/C, or by default the value that costs a tenth of epsilon. The effect "
    "is the difference between the two probabilities.",
    estimands.LEFT_OUT,
)

LOGISTIC_CLAIM = (
    "is claimed by Chaudhuri et al. (2011, Algorithm 2) for this mechanism, here with the two "
    "models of Betlei et al. (2021)"
)

EXACT = (
    "Their proof assumes a continuous random vector and an exact minimum. A computer provides only "
    "floating-point numbers: the digits of the computed minimum show which random vectors are "
    "possible, and the proof does not cover this leak."
)

BARE = "The regressions have no bands, and no average effect was released."
