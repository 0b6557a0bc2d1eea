"""Algorithm 1 of Niu et al. (2022): private stages on disjoint random parts of the rows.

Why the whole costs no more than its dearest stage (their Theorem 6)
--------------------------------------------------------------------
Each row's part is drawn without regard to any value: by position under substitution, by a coin of
its own under add_remove. Fix the draw. Two neighbouring tables then differ in one part only. Stages
on the other parts get the same rows, and so release the same; a later stage on equal rows is a
random function of earlier releases, which costs nothing (post-processing). The stage whose part
differs is f_i-DP by its declaration: its first step, the transform, maps each row by itself with
released functions, so its input differs in one row too, and under substitution has as many rows:
one that becomes incomplete stays as a public one (`vault.DeclaredFit`). So any test between the two
tables errs at least as often as f_i says, whichever i it is: T(M(S), M(S')) >= min{f_1..f_k}. A
trade-off function is convex, so it also lies above the greatest convex function below that
minimum, min{f_1, ..., f_k}**. The draw itself says nothing of the tables, and a mixture over it is
no easier to tell apart than its worst member.

It fails where the part depends on values. A split that is stratified by treatment moves many other
rows when one treatment changes, and fixed sizes do so when a row leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from privcausal.accounting import PICO, Release, TradeOff, rho_of
from privcausal.accounting.charge import exact, is_number
from privcausal.errors import BudgetError, CapabilityError
from privcausal.features.design import Design
from privcausal.features.functions import (
    ArmMean,
    Constant,
    Difference,
    Function,
    Mixture,
    Nuisance,
)
from privcausal.inference.effect import Predicted
from privcausal.inference.population import uniform_population
from privcausal.learners.base import Learner
from privcausal.learners.bases import AnyBase, PrivateBase
from privcausal.learners.budget import LEAST_PART, StageWeight, Undeclared, check_levels
from privcausal.learners.description import LEFT_OUT, Description, nuisance_rows
from privcausal.learners.estimate import Estimate, Nuisances
from privcausal.learners.paper import refuse_published, refuse_undeclared
from privcausal.learners.shares import Stages
from privcausal.learners.state import declared_propensity, outcome_of
from privcausal.request.plan import Plan, Stage, StageKey
from privcausal.request.request import Request
from privcausal.request.schema import Schema
from privcausal.typing import Matrix, Vector
from privcausal.vault import (
    Aipw,
    Declared,
    DeclaredFit,
    OutcomeResidual,
    RowMap,
    Transform,
    TreatmentResidual,
    Vault,
)

EFFECT = StageKey("effect", "regression")


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


@dataclass(frozen=True, eq=False)
class PublishedEBM:
    """interpret's private explainable boosting with its defaults, and the guarantee it claims.

    Bounds of columns and target are taken from the rows, as in the paper's experiments; interpret
    warns that this leaks, and `INTERPRET` tells what else does. With `classification` it learns
    the probability of a 0/1 target.
    """

    epsilon: float
    delta: float
    classification: bool = False
    _state: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def guarantee(self) -> TradeOff:
        return TradeOff.from_dp(self.epsilon, self.delta)

    def fit(
        self, x: Matrix, target: Vector, *, bounds: tuple[float, float], weight: Vector | None
    ) -> Self:
        """Learn; `bounds` are left unused, as the paper left interpret's."""
        from interpret.privacy import (
            DPExplainableBoostingClassifier,
            DPExplainableBoostingRegressor,
        )

        self._state.clear()
        x, target, weight = self._with_public_rows(x, target, bounds, weight)
        kinds = DPExplainableBoostingRegressor, DPExplainableBoostingClassifier
        model = kinds[self.classification](
            feature_types=["continuous"] * x.shape[1], epsilon=self.epsilon, delta=self.delta,
            n_jobs=1,
        )  # fmt: skip
        y = target.astype(np.int64) if self.classification else target
        model.fit(x, y, sample_weight=weight)
        self._state["model"] = model
        return self

    def _with_public_rows(
        self, x: Matrix, target: Vector, bounds: tuple[float, float], weight: Vector | None
    ) -> tuple[Matrix, Vector, Vector | None]:
        """The rows, and public ones where it could not learn from them.

        It refuses a table of no rows, and its classifier one of a single class; a refusal, or a
        constant in place of a noisy model, would tell of the rows. So there is one public row in
        the middle of the domain for each class that is missing, or for no rows at all.
        """
        wanted = (0.0, 1.0) if self.classification else () if len(target) else (0.5 * sum(bounds),)
        added = [value for value in wanted if not (target == value).any()]
        middle = np.full((len(added), x.shape[1]), 0.5)
        if weight is not None:
            weight = np.append(weight, np.ones(len(added)))
        return np.vstack([x, middle]), np.append(target, added), weight

    def predict(self, x: Matrix) -> Vector:
        model = self._state["model"]
        if self.classification:
            return np.asarray(model.predict_proba(x)[:, 1], np.float64)
        return np.asarray(model.predict(x), np.float64)


RowFunction = Callable[[Vector, Vector, Mapping[str, Vector]], Vector]


@dataclass(frozen=True, eq=False)
class TwoStage(Learner):
    """Private stages on disjoint parts, a row-local transform, and a private regression of it.

    Its guarantee is min{f_1, ..., f_k}** of what the estimators declare; `guarantee.kind` is
    "published", since nothing here proves what they declare. Take it as
    ``pc.paper.two_stage(formula, data, pc.learners.TwoStage(...))``.

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
        positive = len(shares) == 3 and all(is_number(s) and 0 < s < 1 for s in shares)
        if not positive or abs(sum(shares) - 1) >= 1e-9:
            raise CapabilityError(
                "TwoStage(sample_shares=) holds three numbers above 0 that sum to 1"
            )
        for name in ("effect", "propensity", "outcome"):
            if getattr(self, name) is not None:
                _check_estimator(name, getattr(self, name))
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

    def needs(self, request: Request, base: PrivateBase) -> list[StageWeight]:
        """The stages, by the rows they read."""
        if self.transform == "s":
            return [StageWeight(EFFECT, 1.0)]
        first, second, last = self.sample_shares
        needs = [StageWeight(Stages.PROPENSITY, first)] if request.propensity is None else []
        if needs and self.propensity is None:
            raise CapabilityError(
                "TwoStage needs propensity=, an estimator of the probability of treatment, unless "
                "it is known: propensity=0.5"
            )
        needs += [StageWeight(Stages.OUTCOME, second), StageWeight(EFFECT, last)]
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
        made = {
            Stages.PROPENSITY: self.propensity, Stages.OUTCOME: self.outcome, EFFECT: self.effect,
        }  # fmt: skip
        whole = TradeOff.minimum(*(tradeoff_of(made[need.key].guarantee) for need in needs))
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
        # in parallel with the part of the effect, which pays
        first = [
            Stage(need.key, nominal, charged=0, rows=need.weight, part=str(need.key))
            for need in needs[:-1]
        ]
        part = str(EFFECT) if first else "all"
        last = Stage(EFFECT, 0, delta, 0, needs[-1].weight, part, epsilon)
        split = replace(request, split="disjoint" if first else "full")
        name = f"two-stage {self.transform if isinstance(self.transform, str) else 'own'}"
        by = "dpebm" if isinstance(self.effect, PublishedEBM) else "declared"
        stages = (*first, last)
        return Plan(split, name, by, stages, 0, least_part=LEAST_PART, trade_off=whole)

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

    @classmethod
    def describe(cls, estimate: Estimate) -> Description:
        plan = estimate.plan
        split = "own parts of rows" if plan.request.split == "disjoint" else "all rows"
        own = (DECLARED, OWN if plan.learner == "two-stage own" else BUILT_IN)
        return replace(
            super().describe(estimate),
            title=TITLES.get(plan.learner, plan.learner),
            rows=nuisance_rows(estimate, split),
            methods=_methods(plan),
            claim="follows by Niu et al. (2022, Theorem 6) from what each stage declares",
            doubts=(INTERPRET,) if plan.base == "dpebm" else own,
        )


TITLES = {
    "two-stage dr": "DR-learner, two-stage", "two-stage r": "R-learner, two-stage",
    "two-stage s": "S-learner, one effect", "two-stage own": "two-stage",
}  # fmt: skip

INTERPRET = (
    "The stages are interpret's DP-EBM, whose guarantee does not hold: its regressor never cuts "
    "residuals and starts from the outcome itself, so that outcomes far from zero tell of one row "
    "(an audit of one round gives at least 5.3 on [99, 100] where 1 is claimed); bounds of columns "
    "and outcome are taken from the rows; the number of rows and the largest weight show exactly; "
    "sums of floats and noise are not put on a grid."
)

DECLARED = (
    "The stages are estimators of the user's own: that each satisfies what it declares was not "
    "checked, nor was that what it has learned gives each row's number from that row alone. What "
    "was: each saw rows of its own, in a part drawn without regard to any value."
)

OWN = (
    "So is the transform, a function of the user's own: that it gives each row's target from that "
    "row alone was declared, not checked."
)

BUILT_IN = "Targets come from each row and what earlier stages give for it."


def _methods(plan: Plan) -> tuple[str, ...]:
    shares = ", ".join(f"{s.rows:.2g} {s.query}" for s in plan.stages)
    by = "interpret's DP-EBM" if plan.base == "dpebm" else "private estimators of the user's own"
    clip = plan.request.arm_clip
    return (
        f"Algorithm 1 of Niu et al. (2022) with {by}. Parts of the rows, drawn at random without "
        f"regard to their values, by share: {shares}. The whole promises the greatest convex "
        "function below the least of the stages' trade-off functions.",
        f"Propensities are cut to [{clip:.2f}, {1 - clip:.2f}], outcome and columns to their "
        "bounds. The effect comes without a band.",
        "Rows with a missing value count as one and the same public row, in the middle of all "
        "domains; how many there were is not shown."
        if plan.request.trust.neighbors == "substitute"
        else LEFT_OUT,
    )


class _Run:
    """One fit in progress."""

    def __init__(self, option: TwoStage, plan: Plan, vault: Vault, schema: Schema) -> None:
        self.option, self.plan, self.vault = option, plan, vault
        request = plan.request
        formula, self.clip = request.formula, request.arm_clip
        self.design = Design((*formula.modifiers, *formula.controls), schema, full_rank=False)
        self.modifiers = Design(formula.modifiers, schema, full_rank=False)
        self.outcome = outcome_of(request, schema)
        self.known = declared_propensity(request, schema)
        self.releases: list[Release] = []
        vault.set_layout(schema, [self.design, self.modifiers], ())

    def regress(
        self,
        key: StageKey,
        estimator: Any,
        target: Transform,
        bounds: tuple[float, float],
        design: Design | None = None,
        **options: Any,
    ) -> Declared:
        name = f"{type(estimator).__name__}, as declared"
        order = DeclaredFit(estimator, design or self.design, target, bounds, name=name, **options)
        learned, release = self.vault.fit_declared(key, order)
        self.releases.append(release)
        return learned

    def _outcome(self, key: StageKey, estimator: Any, *, with_treatment: bool) -> Declared:
        target = OutcomeResidual(Constant(0.0), self.outcome)  # Y itself
        bounds = self.outcome.lo, self.outcome.hi
        return self.regress(key, estimator, target, bounds, with_treatment=with_treatment)

    def _propensity(self) -> Function:
        target = TreatmentResidual(Constant(0.0), 0.0)  # T itself
        learned = self.regress(
            Stages.PROPENSITY, self.option.propensity, target, (0.0, 1.0), filler=0.0
        )
        return replace(learned, lo=self.clip, hi=1 - self.clip)

    def single(self) -> tuple[Function, Nuisances | None]:
        """S-learner: the outcome on treatment and columns."""
        mu = self._outcome(EFFECT, self.option.effect, with_treatment=True)
        return Difference(mu.at(1.0), mu.at(0.0)), None

    def two_stages(self) -> tuple[Function, Nuisances]:
        option = self.option
        e = self.known or self._propensity()
        residual = option.transform == "r"
        mu = self._outcome(Stages.OUTCOME, option.outcome, with_treatment=not residual)
        target: Transform
        weight: Transform | None = None
        if residual:
            reach = 2 * self.outcome.bound / self.clip
            target = RowMap(_residual_ratio, {"e": e, "eta": mu}, reach)
            weight = RowMap(_residual_weight, {"e": e}, 1.0)
        else:
            mu0, mu1 = mu.at(0.0), mu.at(1.0)
            target = Aipw(Nuisance(e, mu0, mu1), self.outcome, self.clip)
            reach = target.bound
            if callable(option.transform):
                target = RowMap(option.transform, {"e": e, "mu0": mu0, "mu1": mu1}, reach)
        bounds = option.target_bounds or (-reach, reach)
        tau = self.regress(EFFECT, option.effect, target, bounds, self.modifiers, weight=weight)
        if residual:  # the arms' means follow from eta and the effect: mu_t = eta + (t - e) tau
            arms = (ArmMean(arm, mu, e, tau, mu.lo, mu.hi) for arm in (0.0, 1.0))
            return tau, Nuisances(e, mu, *arms)
        return tau, Nuisances(e, Mixture(e, mu1, mu0), mu0, mu1)


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


def _check_estimator(name: str, estimator: Any) -> None:
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
    refuse_published(refused, "each stage has its own rows, and all of the budget")
    refuse_undeclared(undeclared)
