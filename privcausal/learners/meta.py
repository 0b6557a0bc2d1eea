"""Algorithm 1 of Niu et al. (2022): private stages on disjoint random parts of the rows.

Why the whole costs no more than its dearest stage (their Theorem 6), in our words
----------------------------------------------------------------------------------
Which part a row goes to is drawn without regard to any value: by position under substitution, by
a coin of its own under add_remove. Fix the draw. Two neighbouring tables then differ in one part
only. The stages on the other parts get the same rows, and so do what they release; a later stage
on equal rows is a random function of earlier releases, which costs nothing (post-processing). The
one stage whose part differs is f_i-DP by its declaration: its first step, the transform, maps each
row by itself with released functions, so its input differs in one row too, and under substitution
has as many rows: one that becomes incomplete stays as a public one (`vault.DeclaredFit`). So any
test between the two tables errs at least as often as f_i says, whichever i it is: T(M(S), M(S')) >=
min{f_1..f_k}, and as a trade-off function is convex it also lies above the greatest convex function
below that minimum, min{f_1, ..., f_k}**. The draw itself says nothing of the tables, and a mixture
over it is no easier to tell apart than its worst member.

It fails where the part depends on values. A split that is stratified by treatment moves many other
rows when one treatment changes, and fixed sizes do so when a row leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from privcausal.accounting import PICO, Release, TradeOff, rho_of
from privcausal.accounting.charge import exact, is_number
from privcausal.errors import BudgetError, CapabilityError
from privcausal.inference.effect import Predicted
from privcausal.inference.population import uniform_population
from privcausal.learners.base import Learner
from privcausal.learners.bases import AnyBase, PrivateBase
from privcausal.learners.estimate import Estimate, Nuisances
from privcausal.learners.needs import LEAST_PART, Need, Undeclared, check_levels
from privcausal.learners.papers import refuse, refuse_undeclared
from privcausal.learners.published_ebm import PublishedEBM
from privcausal.spec.features import Design
from privcausal.spec.functions import (
    ArmMean,
    Constant,
    Difference,
    Function,
    Known,
    Mixture,
    Nuisance,
)
from privcausal.spec.plan import Plan, Stage
from privcausal.spec.request import Request
from privcausal.spec.schema import Interval, Schema
from privcausal.typing import Matrix, Vector
from privcausal.vault import (
    Aipw,
    Declared,
    DeclaredFit,
    Outcome,
    OutcomeResidual,
    RowMap,
    Transform,
    TreatmentResidual,
    Vault,
)

PROPENSITY, OUTCOME = "nuisance: propensity", "nuisance: outcome"
EFFECT = "effect: regression"


class PrivateEstimator(Protocol):
    """A private estimator to plug in. It runs inside the vault, on a copy.

    Attributes
    ----------
    guarantee : TradeOff or (epsilon, delta)
        What its fit promises for tables that differ as the call's ``neighbors=`` says.

    Methods
    -------
    fit(x, target, *, bounds, weight)
        `x` has shape (n, q): the formula's columns on [0, 1] by their declared bounds and 0/1 for
        each level, with the treatment before them where it is regressed on too; `target` (n,) lies
        in `bounds`, a public pair; `weight` (n,) is None or in [0, 1]. It must not raise for any
        rows, keep them, or print what it sees.
    predict(x)
        Shape (n,), each row's number from that row of `x` alone: the guarantee of the whole rests
        on it. For a propensity: the probability of treatment.
    """

    @property
    def guarantee(self) -> Any: ...

    def fit(
        self, x: Matrix, target: Vector, *, bounds: tuple[float, float], weight: Vector | None
    ) -> Any: ...

    def predict(self, x: Matrix) -> Vector: ...


RowFunction = Callable[[Vector, Vector, Mapping[str, Vector]], Vector]


@dataclass(frozen=True, eq=False)
class TwoStage(Learner):
    """Private stages on disjoint parts, a row-local transform, and a private regression of it.

    Its guarantee is min{f_1, ..., f_k}** of what the estimators declare; `guarantee.kind` is
    "published", since nothing here proves what they declare. Take it as
    ``privcate(..., learner=pc.learners.TwoStage(...), mode="paper")``.

    Parameters
    ----------
    effect : PrivateEstimator
        Regresses the transformed outcome on the effect modifiers. With ``transform="s"`` it
        regresses the outcome on treatment and columns, and the effect is the difference.
    propensity : PrivateEstimator, optional
        Regresses the treatment; not needed where the propensity is known.
    outcome : PrivateEstimator, optional
        Regresses the outcome; on treatment and columns for "dr" and functions of your own.
    transform : {"dr", "r", "s"} or callable
        "dr": the doubly robust score; "r": (Y - eta) / (T - e) with weight (T - e)^2; "s": no
        first stage. A function of (y, t, first), shapes (n,), with `first` holding "e", "mu0" and
        "mu1", must give each row's number from that row's values alone; it needs `target_bounds`.
    sample_shares : (float, float, float)
        Shares of the rows for propensity, outcome and effect.
    target_bounds : (float, float), optional
        Public bounds of the transformed outcome. Default: those the built-in transforms have.

    Raises
    ------
    CapabilityError
        An estimator is missing, or lacks what the protocol asks for.
    """

    effect: Any
    propensity: Any = None
    outcome: Any = None
    transform: str | RowFunction = "dr"
    sample_shares: tuple[float, float, float] = (0.25, 0.25, 0.5)
    target_bounds: tuple[float, float] | None = None
    name: ClassVar[str] = "two-stage"

    def __post_init__(self) -> None:
        if self.transform not in ("dr", "r", "s") and not callable(self.transform):
            raise CapabilityError("TwoStage(transform=) is 'dr', 'r', 's' or a function")
        if callable(self.transform) and self.target_bounds is None:
            raise CapabilityError(
                "TwoStage(transform=<function>) needs target_bounds=(lo, hi), the public bounds of "
                "what it gives"
            )
        if self.target_bounds is not None and not _is_interval(self.target_bounds):
            raise CapabilityError("TwoStage(target_bounds=) is a pair of numbers (lo, hi), lo < hi")
        shares = self.sample_shares
        if not (
            len(shares) == 3
            and all(is_number(share) and 0 < share < 1 for share in shares)
            and abs(sum(shares) - 1) < 1e-9
        ):
            raise CapabilityError(
                "TwoStage(sample_shares=) holds three numbers above 0 that sum to 1"
            )
        for name in ("effect", "propensity", "outcome"):
            if getattr(self, name) is not None:
                _check(name, getattr(self, name))
        if self.effect is None or (self.transform != "s" and self.outcome is None):
            raise CapabilityError("TwoStage needs effect=, and outcome= unless transform='s'")

    @property
    def source(self) -> str:
        """Python that makes it, as far as the estimators show themselves."""
        if isinstance(self.effect, PublishedEBM):
            return repr(self.transform)
        return "pc.learners.TwoStage(...)"

    @classmethod
    def published(cls, transform: str, request: Request) -> TwoStage:
        """The paper's own, with interpret's DP-EBM in every stage."""
        price = request.budget.epsilon, request.budget.delta
        regressor = PublishedEBM(*price)
        return cls(regressor, PublishedEBM(*price, classification=True), regressor, transform)

    # -- plan --------------------------------------------------------------------------------

    def needs(self, request: Request, base: PrivateBase) -> list[Need]:
        """The stages, by the rows they read."""
        if self.transform == "s":
            return [Need(EFFECT, 1.0, "effect")]
        first, second, last = self.sample_shares
        needs = [Need(PROPENSITY, first, "nuisance")] if request.propensity is None else []
        if needs and self.propensity is None:
            raise CapabilityError(
                "TwoStage needs propensity=, an estimator of the probability of treatment, unless "
                "it is known: privcate(..., propensity=0.5)"
            )
        needs += [Need(OUTCOME, second, "nuisance"), Need(EFFECT, last, "effect")]
        whole = sum(need.weight for need in needs)
        return [replace(need, weight=need.weight / whole) for need in needs]

    def plan(self, request: Request, base: AnyBase, undeclared: Undeclared) -> Plan:
        """Stages on parts of their own; the whole is charged once.

        Raises
        ------
        CapabilityError, SchemaError
            What Algorithm 1 does not cover.
        BudgetError
            The estimators declare more than `eps` and `delta`.
        """
        _check_request(request, undeclared)
        needs = self.needs(request, base)  # type: ignore[arg-type]  # no base has a part in it
        whole = TradeOff.minimum(*(self._declared(need.name) for need in needs))
        budget = request.budget
        if whole.delta(budget.epsilon) > budget.delta * (1 + 1e-6):
            raise BudgetError(
                f"the stages declare ({whole.epsilon(budget.delta):.4g}, {budget.delta:g})-DP "
                f"together, more than eps={budget.epsilon:g}: ask for that eps, or build the "
                "estimators with less"
            )
        epsilon = math.ceil(exact(budget.epsilon) * PICO)
        # what the stages declare, less the rounding of a trade-off's floats, where that is more
        declared = exact(max(whole.delta(budget.epsilon) - 1e-13, 0.0))
        delta = math.ceil(max(exact(budget.delta), declared) * PICO)
        nominal = max(rho_of(budget.epsilon, budget.delta), 1)
        parts = len(needs) > 1
        stages = tuple(
            Stage(need.name, 0, delta, 0, need.weight, need.name if parts else "all", epsilon)
            if need.name == EFFECT
            # in parallel with the part of the effect, which pays
            else Stage(need.name, nominal, charged=0, rows=need.weight, part=need.name)
            for need in needs
        )
        split = replace(request, split="disjoint" if parts else "full")
        base_name = "dpebm" if isinstance(self.effect, PublishedEBM) else "declared"
        return Plan(split, self._name, base_name, stages, 0, least_part=LEAST_PART, trade_off=whole)

    @property
    def _name(self) -> str:
        return f"two-stage {self.transform if isinstance(self.transform, str) else 'own'}"

    def _declared(self, stage: str) -> TradeOff:
        estimators = {PROPENSITY: self.propensity, OUTCOME: self.outcome, EFFECT: self.effect}
        return tradeoff_of(estimators[stage].guarantee)

    # -- fit ---------------------------------------------------------------------------------

    def fit(
        self, plan: Plan, vault: Vault, schema: Schema, undeclared: Undeclared, base: AnyBase
    ) -> Estimate:
        run = _Run(self, plan, vault, schema)
        effect, nuisances = run.single() if self.transform == "s" else run.two_stages()
        return Estimate(
            plan, schema, run.design, uniform_population(schema, run.design.variables, vault.size),
            Predicted((), 2 * run.outcome.bound, effect), nuisances, None, tuple(run.releases),
            vault.size, vault.real_noise,
        )  # fmt: skip

    def run(self, session: Any) -> Estimate:
        raise CapabilityError("TwoStage has no stages of sums")


class _Run:
    """One fit in progress."""

    def __init__(self, option: TwoStage, plan: Plan, vault: Vault, schema: Schema) -> None:
        self.option, self.plan, self.vault = option, plan, vault
        formula = plan.request.formula
        self.design = Design((*formula.modifiers, *formula.controls), schema, full_rank=False)
        self.modifiers = Design(formula.modifiers, schema, full_rank=False)
        domain = schema[formula.outcome]
        bounds = domain if isinstance(domain, Interval) else Interval(0.0, 1.0)
        self.outcome = Outcome(bounds.lo, bounds.hi)
        self.known = _known(plan.request, schema)
        self.clip = plan.request.arm_clip
        self.releases: list[Release] = []
        vault.arrange(schema, [self.design, self.modifiers], ())

    def stage(self, name: str, order: DeclaredFit) -> Declared:
        learned, release = self.vault.fit_declared(name, order)
        self.releases.append(release)
        return learned

    def _regress_outcome(self, stage: str, estimator: Any, *, with_treatment: bool) -> Declared:
        bounds = self.outcome.lo, self.outcome.hi
        target = OutcomeResidual(Constant(0.0), self.outcome)  # Y itself
        return self.stage(
            stage,
            DeclaredFit(
                estimator, self.design, target, bounds, with_treatment=with_treatment,
                name=_label(estimator),
            ),
        )  # fmt: skip

    def single(self) -> tuple[Function, Nuisances | None]:
        """S-learner: the outcome on treatment and columns."""
        mu = self._regress_outcome(EFFECT, self.option.effect, with_treatment=True)
        return Difference(mu.at(1.0), mu.at(0.0)), None

    def two_stages(self) -> tuple[Function, Nuisances]:
        option = self.option
        e = self.known or self._propensity()
        residual = option.transform == "r"
        mu = self._regress_outcome(OUTCOME, option.outcome, with_treatment=not residual)
        if residual:
            reach = 2 * self.outcome.bound / self.clip
            target: Transform = RowMap(_residual_ratio, {"e": e, "eta": mu}, reach)
            weight: Transform | None = RowMap(_residual_weight, {"e": e}, 1.0)
            nuisances = Nuisances(e, mu, mu, mu)
        else:
            mu0, mu1 = mu.at(0.0), mu.at(1.0)
            nuisance = Nuisance(e, mu0, mu1)
            score = Aipw(nuisance, self.outcome, self.clip)
            target, weight, reach = score, None, score.bound
            if callable(option.transform):
                first = {"e": e, "mu0": mu0, "mu1": mu1}
                target = RowMap(option.transform, first, score.bound)
            nuisances = Nuisances(e, Mixture(e, mu1, mu0), mu0, mu1)
        bounds = option.target_bounds or (-reach, reach)
        order = DeclaredFit(
            option.effect, self.modifiers, target, bounds, weight, name=_label(option.effect)
        )
        learned = self.stage(EFFECT, order)
        if residual:
            # the arms' means follow from eta and the effect: mu_t = eta + (t - e) tau
            nuisances = replace(
                nuisances, mu0=_arm(mu, e, learned, 0.0), mu1=_arm(mu, e, learned, 1.0)
            )
        return learned, nuisances

    def _propensity(self) -> Function:
        estimator = self.option.propensity
        target = TreatmentResidual(Constant(0.0), 0.0)  # T itself
        learned = self.stage(
            PROPENSITY,
            DeclaredFit(
                estimator, self.design, target, (0.0, 1.0), filler=0.0, name=_label(estimator)
            ),
        )
        return replace(learned, lo=self.clip, hi=1 - self.clip)


def _arm(eta: Declared, e: Function, tau: Function, arm: float) -> Function:
    return ArmMean(arm, eta, e, tau, eta.lo, eta.hi)


def _residual_ratio(y: Vector, t: Vector, first: Mapping[str, Vector]) -> Vector:
    """(Y - eta) / (T - e); e is cut to [c, 1 - c], so its size is at most R / c."""
    return (y - first["eta"]) / (t - first["e"])


def _residual_weight(_: Vector, t: Vector, first: Mapping[str, Vector]) -> Vector:
    return (t - first["e"]) ** 2


def tradeoff_of(declared: Any) -> TradeOff:
    """A declared guarantee as a trade-off function."""
    if isinstance(declared, TradeOff):
        return declared
    pair = tuple(declared) if isinstance(declared, tuple | list) else ()
    if len(pair) == 2 and all(is_number(v) for v in pair):
        return TradeOff.from_dp(*pair)
    raise CapabilityError("a guarantee is a pc.TradeOff, or a pair (epsilon, delta)")


def _check(name: str, estimator: Any) -> None:
    kind = type(estimator).__name__
    missing = [m for m in ("fit", "predict") if not callable(getattr(estimator, m, None))]
    if isinstance(estimator, type) or missing:
        raise CapabilityError(
            f"TwoStage({name}=) takes an object with fit(x, target, *, bounds, weight) and "
            f"predict(x), not {kind}"
        )
    if not hasattr(estimator, "guarantee"):
        raise CapabilityError(
            f"TwoStage({name}=): {kind} declares no guarantee, a pc.TradeOff or (epsilon, delta)"
        )
    tradeoff_of(estimator.guarantee)


def _is_interval(pair: Any) -> bool:
    numbers = isinstance(pair, tuple) and len(pair) == 2 and all(is_number(v) for v in pair)
    return bool(numbers and np.isfinite(pair).all() and pair[0] < pair[1])


def _label(estimator: Any) -> str:
    return f"{type(estimator).__name__}, as declared"


def _known(request: Request, schema: Schema) -> Function | None:
    if isinstance(request.propensity, str):
        domain = schema[request.propensity]
        assert isinstance(domain, Interval)
        return Known(domain.lo, domain.hi)
    return None if request.propensity is None else Constant(float(request.propensity))


def _check_request(request: Request, undeclared: Undeclared) -> None:
    check_levels(request)
    refused = {
        "unit=": request.trust.unit is not None,
        "groups=": bool(request.groups),
        "split='crossfit'": request.split == "crossfit",
        "shares=": bool(request.budget.shares),
        "tails=": request.tails != "cubic",
        "cov_type=": request.cov_type != "nonrobust",
    }
    refuse(refused, "each stage has its own rows, and all of the budget")
    refuse_undeclared(undeclared)
