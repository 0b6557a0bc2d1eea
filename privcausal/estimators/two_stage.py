"""Algorithm 1 of Niu et al. (2022): private stages on disjoint random parts of the rows.

Privacy
-------
The whole costs no more than its most expensive stage (their Theorem 6).

Each row's part is drawn independently of all values: by position under substitution, by a coin
for each row under add_remove. Fix the draw. Two neighboring tables then differ in one part only.

Stages on the other parts receive the same rows, so their releases have the same distribution. A
later stage on equal rows is a random function of earlier releases. It is post-processing and has
no cost.

Let stage i be the stage whose part differs. It is f_i-DP by its declaration. Its first step, the
transform, maps each row separately with released functions, so its input also differs in one row.
Under substitution the input also has the same number of rows: a row that becomes incomplete
remains as a public row (`vault.DeclaredFit`). Any test between the two tables therefore errs at
least as often as f_i states. The index i may be any stage, so
T(M(S), M(S')) >= min{f_1..f_k}. A trade-off function is convex, so it also lies above the greatest
convex function below that minimum, min{f_1, ..., f_k}**.

The draw has the same distribution for both tables. A mixture over draws is no easier to distinguish
than the worst draw.

The proof fails if the part depends on values. If a split is stratified by treatment, changing one
treatment moves many other rows. Parts of fixed sizes have the same problem if a row leaves.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from privcausal import accounting, vault
from privcausal.accounting import TradeOff
from privcausal.accounting.price import exact
from privcausal.errors import BudgetError, CapabilityError, as_plain, is_number, named
from privcausal.estimators import bases, estimands, nuisances
from privcausal.estimators.base import Learner
from privcausal.estimators.boosting import PROPENSITY
from privcausal.estimators.budget import LEAST_PART, Undeclared, Weights, check_levels
from privcausal.estimators.first_stages import Fit, declared_propensity, outcome_of
from privcausal.estimators.published import refuse_published
from privcausal.features import functions
from privcausal.features.design import Design
from privcausal.features.functions import ArmMean
from privcausal.inference.effects import Predicted
from privcausal.inference.population import uniform_population
from privcausal.prices import as_typed, pair
from privcausal.request.request import Plan, Request, Stage, StageKey
from privcausal.typing import Matrix, Vector

TWO_STAGE_EFFECT = StageKey("effect", "regression")


class PrivateEstimator(Protocol):
    """Protocol of a user-supplied private estimator, which runs inside the vault on a copy.

    Attributes
    ----------
    guarantee : TradeOff or (epsilon, delta)
        Guarantee of its fit for tables that differ as stated by the call's ``neighbors=``.

    Methods
    -------
    fit(x, target, *, bounds, weight)
        `x` has shape (n, q): the formula's columns, scaled to [0, 1] by their declared bounds, with
        0/1 for each level. If the regression includes the treatment, it is the first column.
        `target` (n,) lies in `bounds`, a public pair. `weight` (n,) is None or in [0, 1]. The
        method must not raise for any rows, keep rows, or print its input.
    predict(x)
        Shape (n,). Each row's value must depend on that row of `x` only, because the guarantee of
        the whole fit requires it. For a propensity, the value is the probability of treatment.
    """

    @property
    def guarantee(self) -> Any: ...

    def fit(
        self, x: Matrix, target: Vector, *, bounds: tuple[float, float], weight: Vector | None
    ) -> Any: ...

    def predict(self, x: Matrix) -> Vector: ...


@dataclass(frozen=True, eq=False)
class WithGuarantee:
    """A private estimator with scikit-learn's interface, and the guarantee that you declare for it.

    The estimator gets columns in [0, 1]. A regression gets the target scaled to [-1, 1] by its
    public bounds, and its predictions are scaled back. Construct it with these bounds. A classifier
    gets 0 and 1, plus one public row of each class in the middle of the domain, so that it always
    sees both. Its prediction is the probability of 1.

    Parameters
    ----------
    estimator
        Has ``fit(X, y)`` and ``predict(X)`` or, for a classifier, ``predict_proba(X)``. As the
        effect of ``TwoStage(transform="r")`` it needs ``fit(X, y, sample_weight)``.
    eps, delta : float
        Its guarantee for tables that differ as stated by the call's ``neighbors=``.

    Raises
    ------
    CapabilityError, BudgetError
        The estimator lacks a method, or the guarantee is not valid.

    Examples
    --------
    >>> from interpret.privacy import DPExplainableBoostingRegressor
    >>> box = [(0, 1)] * 2
    >>> boosted = DPExplainableBoostingRegressor(
    ...     epsilon=1, delta=1e-5, privacy_bounds=box, privacy_target_min=-1, privacy_target_max=1
    ... )
    >>> pc.learners.WithGuarantee(boosted, eps=1, delta=1e-5).guarantee.epsilon(1e-5)
    1.0
    """

    estimator: Any
    eps: float
    delta: float = 0.0
    _bounds: list[tuple[float, float]] = field(default_factory=list, init=False, repr=False)
    classifies: bool = field(init=False, repr=False)
    guarantee: TradeOff = field(init=False, repr=False)

    def __post_init__(self) -> None:
        vars(self).update(classifies=hasattr(self.estimator, "predict_proba"))
        for method in ("fit", "predict_proba" if self.classifies else "predict"):
            if isinstance(self.estimator, type) or not callable(getattr(self.estimator, method, 0)):
                raise CapabilityError(
                    "WithGuarantee(estimator=) must be an object with fit and predict, not "
                    f"{type(self.estimator).__name__}."
                )
        vars(self).update(guarantee=TradeOff.from_dp(self.eps, self.delta))

    @property
    def weighs(self) -> bool:
        """Whether the estimator takes weights of rows."""
        return "sample_weight" in inspect.signature(self.estimator.fit).parameters

    def fit(
        self, x: Matrix, target: Vector, *, bounds: tuple[float, float], weight: Vector | None
    ) -> Self:
        self._bounds[:] = [bounds]
        lo, hi = bounds
        y = (2 * target - lo - hi) / (hi - lo)
        if self.classifies:
            x = np.vstack([x, np.full((2, x.shape[1]), 0.5)])
            y = (np.append(y, [-1, 1]) > 0).astype(np.int64)
        self.estimator.fit(x, y, **({} if weight is None else {"sample_weight": weight}))
        return self

    def predict(self, x: Matrix) -> Vector:
        lo, hi = self._bounds[0]
        if self.classifies:
            return np.asarray(self.estimator.predict_proba(x), np.float64)[:, 1]
        scaled = np.asarray(self.estimator.predict(x), np.float64).reshape(len(x))
        return 0.5 * (lo + hi + (hi - lo) * scaled)


RowFunction = Callable[[Vector, Vector, Mapping[str, Vector]], Vector]


@dataclass(frozen=True, eq=False)
class FirstStage:
    """One of the k nuisances A_1 ... A_k of Algorithm 1, learned on its own part of the rows.

    Parameters
    ----------
    estimator : PrivateEstimator
        Regresses the target on all columns of the formula.
    target : {"outcome", "treatment"} or callable
        A callable has arguments (y, t, first) of shapes (n,), where `first` holds the values of
        earlier stages. It must compute each row's number from that row's values only, and requires
        `target_bounds`.
    with_treatment : bool
        Also regress on the treatment. A stage "mu" then gives "mu0" and "mu1", its values with the
        treatment at 0 and at 1. Otherwise it gives "mu".
    target_bounds : (float, float), optional
        Public bounds of a callable's values.

    Raises
    ------
    CapabilityError
        The estimator lacks a part of the protocol, or a callable target lacks bounds.
    """

    estimator: Any
    target: str | RowFunction = "outcome"
    with_treatment: bool = False
    target_bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_estimator("FirstStage(estimator=)", self.estimator)
        if self.target not in ("outcome", "treatment") and not callable(self.target):
            raise CapabilityError(
                "FirstStage(target=) must be 'outcome', 'treatment', or a function."
            )
        if callable(self.target) != (self.target_bounds is not None):
            raise CapabilityError(
                "FirstStage requires target_bounds=(lo, hi), the bounds of its values, if target= "
                "is a function. If target= is a name, omit target_bounds=."
            )
        if self.target_bounds is not None:
            as_bounds(self.target_bounds)
        if self.target != "treatment":
            refuse_classifier(self.estimator)
        if self.with_treatment and self.target == "treatment":
            raise CapabilityError(
                "FirstStage(target='treatment') does not support with_treatment=True."
            )

    def names(self, name: str) -> tuple[str, ...]:
        """Names of the stage's values in `first`."""
        return (f"{name}0", f"{name}1") if self.with_treatment else (name,)


@named
@dataclass(frozen=True, eq=False)
class TwoStage(Learner):
    """Private stages on disjoint parts, a row-local transform, and a private regression.

    The guarantee is min{f_1, ..., f_k}** of the guarantees that the estimators declare.
    `guarantee.kind` is "published", because the package does not prove these declarations. Fit it
    with ``pc.paper.two_stage(formula, data, pc.learners.TwoStage(...))``.

    Parameters
    ----------
    effect : PrivateEstimator
        Regresses the transformed outcome on the effect modifiers. With ``transform="s"`` it
        regresses the outcome on treatment and columns, and the effect is the difference.
    propensity : PrivateEstimator, optional
        Regresses the treatment; not needed if the propensity is known.
    outcome : PrivateEstimator, optional
        Regresses the outcome, on treatment and columns for "dr" and for callable transforms.
    transform : {"dr", "r", "s"} or callable
        How the outcome is transformed:

        - "dr": the doubly robust score;
        - "r": (Y - eta) / (T - e) with weight (T - e)^2;
        - "s": no first stage;
        - callable: a function of (y, t, first), shapes (n,), where `first` holds "e", "mu0" and
          "mu1". It must compute each row's number from that row's values only, and requires
          `target_bounds`.
    sample_shares : sequence of float, optional
        Shares of the rows for the first stages, in their order, and for the effect. Default: half
        for the effect, as in the paper, and equal parts of the other half.
    target_bounds : (float, float), optional
        Public bounds of the transformed outcome. Default: the bounds of the built-in transforms.
    first : dict of str to FirstStage, optional
        Any number k of first stages for a callable transform. They replace `propensity` and
        `outcome`, which are ``{"e": FirstStage(propensity, "treatment"), "mu": FirstStage(outcome,
        with_treatment=True)}``. Each stage is learned on its own part, may use the earlier stages,
        and adds its values to `first` by name. A known propensity is "e".

    Raises
    ------
    CapabilityError
        An estimator is missing, or lacks a part of the protocol.
    """

    effect: Any
    propensity: Any = None
    outcome: Any = None
    transform: str | RowFunction = "dr"
    sample_shares: Sequence[float] | None = None
    target_bounds: tuple[float, float] | None = None
    first: Mapping[str, FirstStage] | None = None
    name: ClassVar[str] = "two-stage"
    fixed_base: ClassVar[bases.PrivateBase | None] = bases.Gam()  # The fit uses no base.
    unsaved: ClassVar[str] = (
        "This fit contains estimators from other packages or your own code, which cannot be "
        "saved as JSON. Save its predictions instead."
    )

    def __post_init__(self) -> None:
        if self.transform not in ("dr", "r", "s") and not callable(self.transform):
            raise CapabilityError("TwoStage(transform=) must be 'dr', 'r', 's', or a function.")
        if callable(self.transform) and self.target_bounds is None:
            raise CapabilityError(
                "TwoStage(transform=<function>) requires target_bounds=(lo, hi), the public bounds "
                "of its values."
            )
        if self.target_bounds is not None:
            as_bounds(self.target_bounds)
        for name in ("effect", "propensity", "outcome"):
            if getattr(self, name) is not None:
                check_estimator(f"TwoStage({name}=)", getattr(self, name))
        needed = self.transform != "s" and self.first is None
        if self.effect is None or (needed and self.outcome is None):
            raise CapabilityError("TwoStage requires effect=, and outcome= unless transform='s'.")
        refuse_classifier(self.effect)
        wrapped = isinstance(self.effect, WithGuarantee)
        if wrapped and self.transform == "r" and not self.effect.weighs:
            raise CapabilityError(
                "TwoStage(transform='r') requires an effect= whose fit has sample_weight. Use "
                "transform='dr', which has no weights."
            )
        stages = self.first or {}
        if self.first is not None and not (
            callable(self.transform) and self.propensity is self.outcome is None
        ):
            raise CapabilityError(
                "TwoStage(first=) requires a function as transform=, and replaces propensity= and "
                "outcome=."
            )
        if not all(k.isidentifier() and isinstance(s, FirstStage) for k, s in stages.items()):
            raise CapabilityError("TwoStage(first=) must map names to pc.learners.FirstStage(...).")
        names = [value for name, stage in stages.items() for value in stage.names(name)]
        if len(set(names)) < len(names):
            raise CapabilityError("Two values of TwoStage(first=) have the same name.")
        shares, number = self._shares(), len(self._first()) + 1
        positive = len(shares) == number and all(is_number(s) and 0 < s <= 1 for s in shares)
        if not positive or abs(sum(shares) - 1) >= 1e-9:
            raise CapabilityError(
                f"TwoStage(sample_shares=) must hold {number} numbers above 0 that sum to 1: one "
                "for each first stage, then one for the effect."
            )

    def _first(self) -> dict[str, tuple[StageKey, FirstStage | None]]:
        """The first stages by name, with None for a propensity that must be known."""
        if self.first is not None:
            return {name: (StageKey("nuisance", name), stage) for name, stage in self.first.items()}
        if self.transform == "s":
            return {}
        e = None if self.propensity is None else FirstStage(self.propensity, "treatment")
        name, arms = ("eta", False) if self.transform == "r" else ("mu", True)
        outcome = FirstStage(self.outcome, with_treatment=arms)
        return {"e": (PROPENSITY, e), name: (nuisances.OUTCOME, outcome)}

    def _shares(self) -> tuple[float, ...]:
        if self.sample_shares is not None and self.transform != "s":
            return tuple(self.sample_shares)
        k = len(self._first())
        return (*[0.5 / k] * k, 0.5) if k else (1.0,)

    def first_stages(self, request: Request) -> dict[str, tuple[StageKey, FirstStage]]:
        """Stages that are learned before the effect, by name.

        Raise `CapabilityError` for an unknown propensity without an estimator.
        """
        stages = {}
        for name, (key, stage) in self._first().items():
            if name == "e" and request.propensity is not None:
                continue
            if stage is None:
                raise CapabilityError(
                    "TwoStage requires propensity=, an estimator of the probability of treatment. "
                    "If this probability is known, pass it to the call: propensity=0.5."
                )
            stages[name] = key, stage
        return stages

    @property
    def source(self) -> str:
        """Python code that creates this object, as far as the estimators' reprs show it."""
        if self.own is None:
            return "pc.learners.TwoStage(...)"
        return repr(self.transform) + (", clip=True" if self.own.clip else "")

    @property
    def own(self) -> vault.PublishedEBM | None:
        """The paper's own regression; None for user-supplied stages."""
        return self.effect if isinstance(self.effect, vault.PublishedEBM) else None

    @classmethod
    def published(cls, transform: str, eps: float, delta: float, **options: Any) -> TwoStage:
        """The paper's own estimator, with interpret's DP-EBM in every stage."""
        regressor = vault.PublishedEBM(eps, delta, **options)
        classifier = vault.PublishedEBM(eps, delta, classification=True)
        return cls(regressor, classifier, regressor, transform)

    # -- plan --------------------------------------------------------------------------------

    def stages(self, request: Request, base: bases.PrivateBase) -> Weights:
        """The stages, with the shares of rows they read."""
        *first, last = self._shares()
        share = dict(zip(self._first(), first, strict=True))
        weights = {key: share[name] for name, (key, _) in self.first_stages(request).items()}
        weights[TWO_STAGE_EFFECT] = last
        whole = sum(weights.values())
        return {key: weight / whole for key, weight in weights.items()}

    def plan(self, request: Request, base: bases.AnyBase, undeclared: Undeclared) -> Plan:
        """Plan stages on disjoint parts; the whole is charged once.

        Refuse requests that Algorithm 1 does not cover, and estimators that declare more than `eps`
        and `delta`.
        """
        check_levels(request)
        refused = {
            "unit=": request.trust.unit is not None,
            "groups=": bool(request.groups),
            "split='crossfit'": request.split == "crossfit",
            "shares=": bool(request.budget.shares),
            "tails=": request.tails != "fitted",
            "cov_type=": request.cov_type != "nonrobust",
        }
        refuse_published(refused, "each stage uses separate rows and the whole budget", undeclared)
        weights = self.stages(request, self.accepted(base))
        estimators = [stage.estimator for _, stage in self.first_stages(request).values()]
        whole = TradeOff.minimum(*(tradeoff_of(e.guarantee) for e in (*estimators, self.effect)))
        budget = request.budget
        if whole.delta(budget.epsilon) > budget.delta * (1 + 1e-6):
            raise BudgetError(
                "The stages together declare "
                f"{pair(whole.epsilon(budget.delta), budget.delta)}-DP, more than "
                f"eps={as_typed(budget.epsilon)}. Use that eps, or estimators with less budget."
            )
        epsilon = math.ceil(exact(budget.epsilon) * accounting.PICO)
        # Charge the declared delta if it is larger, minus rounding of the trade-off's floats.
        declared = exact(max(whole.delta(budget.epsilon) - 1e-13, 0.0))
        delta = math.ceil(max(exact(budget.delta), declared) * accounting.PICO)
        nominal = max(accounting.rho_of(budget.epsilon, budget.delta), 1)
        # In parallel with the effect's part, which is charged.
        first = [
            Stage(key, nominal, charged=0, rows=rows, part=str(key))
            for key, rows in weights.items()
            if key != TWO_STAGE_EFFECT
        ]
        part = str(TWO_STAGE_EFFECT) if first else "all"
        last = Stage(TWO_STAGE_EFFECT, 0, delta, 0, weights[TWO_STAGE_EFFECT], part, epsilon)
        split = replace(request, split="disjoint" if first else "full")
        name = f"two-stage {self.transform if isinstance(self.transform, str) else 'own'}"
        by = "dpebm" if isinstance(self.effect, vault.PublishedEBM) else "declared"
        stages = (*first, last)
        return Plan(split, name, by, stages, 0, least_part=LEAST_PART, trade_off=whole)

    # -- fit ---------------------------------------------------------------------------------

    def run(self, fit: Fit) -> estimands.Estimate:
        request, schema, formula = fit.request, fit.schema, fit.request.formula
        design = Design((*formula.modifiers, *formula.controls), schema, full_rank=False)
        modifiers = Design(formula.modifiers, schema, full_rank=False)
        outcome, propensity = outcome_of(request, schema), declared_propensity(request, schema)
        fit.vault.set_layout(schema, [design, modifiers], ())
        first: dict[str, functions.Function] = {} if propensity is None else {"e": propensity}
        for name, (key, stage) in self.first_stages(request).items():
            values = _learned(fit, design, key, stage, dict(first))
            first |= dict(zip(stage.names(name), values, strict=True))
        effect, models = self._effect(fit, design, modifiers, first)
        population = uniform_population(schema, design.variables, fit.vault.size)
        reach = 2 * outcome.bound if _clips(self.effect) else vault.PublishedEBM.unclipped[1]
        return fit.finished(design, population, Predicted((), reach, effect), models)

    def _effect(
        self, fit: Fit, design: Design, modifiers: Design, first: dict[str, functions.Function]
    ) -> tuple[functions.Function, estimands.Nuisances | None]:
        """The effect, and the functions of the first stages that a built-in transform reports."""
        clip, outcome = fit.request.arm_clip, outcome_of(fit.request, fit.schema)
        if self.transform == "s":  # Regress the outcome on treatment and columns.
            only = FirstStage(self.effect, with_treatment=True)
            mu0, mu1 = _learned(fit, design, TWO_STAGE_EFFECT, only, {})
            return functions.Pointwise(np.subtract, mu1, mu0), None
        target: vault.Transform
        weight: vault.Transform | None = None
        if self.transform == "r":
            # If eta is clipped, the size is at most R / c for e in [c, 1 - c].
            reach = 2 * outcome.bound / clip
            target = vault.RowMap(
                lambda y, t, first: (y - first["eta"]) / (t - first["e"]), first, reach
            )
            weight = vault.RowMap(lambda _, t, first: (t - first["e"]) ** 2, {"e": first["e"]}, 1.0)
        elif callable(self.transform):
            reach = max(map(abs, as_bounds(self.target_bounds)))
            target = vault.RowMap(self.transform, first, reach)
        else:
            three = functions.NuisanceTriple(first["e"], first["mu0"], first["mu1"])
            target = vault.Aipw(three, outcome, clip)
            reach = target.bound
        bounds = self.target_bounds or (-reach, reach)
        # without modifiers, the effect is learned from all columns
        tau = _regressed(
            fit, TWO_STAGE_EFFECT, self.effect, target, bounds, modifiers or design, weight=weight
        )
        if {"e", "mu0", "mu1"} <= first.keys():
            e, mu0, mu1 = (first[name] for name in ("e", "mu0", "mu1"))
            return tau, estimands.Nuisances(e, functions.Mixture(e, mu1, mu0), mu0, mu1)
        if self.transform != "r":
            return tau, None
        # The arms' means follow from eta and the effect: mu_t = eta + (t - e) tau.
        e, eta, lo, hi = first["e"], first["eta"], outcome.lo, outcome.hi
        mu0, mu1 = (ArmMean(arm, eta, e, tau, lo, hi) for arm in (0.0, 1.0))
        return tau, estimands.Nuisances(e, eta, mu0, mu1)

    @classmethod
    def describe(cls, estimate: estimands.Estimate) -> estimands.Description:
        plan, request = estimate.plan, estimate.plan.request
        split = "separate rows" if request.split == "disjoint" else "all rows"
        declared = (DECLARED, OWN if plan.learner == "two-stage own" else BUILT_IN)
        shares = ", ".join(f"{s.rows:.2g} {s.query}" for s in plan.stages)
        by = "interpret's DP-EBM" if plan.base == "dpebm" else "private estimators of the user"
        clip = request.arm_clip
        missing = estimands.LEFT_OUT
        if request.trust.neighbors == "substitute":
            missing = (
                "Each row with a missing value was replaced by a public row in the middle of all "
                "domains; the number of such rows is not reported."
            )
        return replace(
            super().describe(estimate),
            title=TITLES.get(plan.learner, plan.learner),
            rows=estimands.nuisance_rows(estimate, split),
            methods=(
                f"The estimator was Algorithm 1 of Niu et al. (2022) with {by}. Rows were assigned "
                "to the stages at random, without regard to their values (shares: "
                f"{shares}). The trade-off function of the whole fit is the greatest convex "
                "function below the trade-off functions of all stages.",
                f"Propensities were clipped to [{clip:.2g}, {1 - clip:.6g}], and outcome and "
                "covariates to their bounds. The effect has no confidence band.",
                missing,
            ),
            claim="follows from the declared guarantees of the stages (Niu et al. 2022, Theorem 6)",
            doubts=(INTERPRET,) if plan.base == "dpebm" else declared,
        )


TITLES = {
    "two-stage dr": "DR-learner, two-stage", "two-stage r": "R-learner, two-stage",
    "two-stage s": "S-learner, one effect", "two-stage own": "two-stage",
}  # fmt: skip

INTERPRET = (
    "The stages are interpret's DP-EBM, whose guarantee does not hold for four reasons. (1) Its "
    "regressor starts from the outcome and never clips residuals, so outcomes far from zero reveal "
    "single rows: an audit of one round finds epsilon of at least 5.3 on [99, 100] when 1 is "
    "claimed. (2) The types and bounds of columns and the bounds of outcomes are computed from the "
    "rows. (3) The number of rows and the largest weight are released exactly. (4) Sums and noise "
    "are floating-point numbers without a grid."
)

DECLARED = (
    "The stages are estimators supplied by the user. The package did not check their declared "
    "guarantees, or that each prediction depends on one row only. It ensured that each stage used "
    "separate rows, assigned without regard to their values."
)

OWN = (
    "The transform is a function supplied by the user. The package did not check that the target "
    "of each row depends on that row only."
)

BUILT_IN = (
    "The target of each row depends only on that row and on its predictions from earlier stages."
)


def _regressed(
    fit: Fit,
    key: StageKey,
    estimator: Any,
    target: vault.Transform,
    bounds: tuple[float, float],
    design: Design,
    **options: Any,
) -> vault.FittedEstimators:
    wrapped = estimator.estimator if isinstance(estimator, WithGuarantee) else estimator
    name = f"{type(wrapped).__name__}, as declared"
    if not _clips(estimator):
        options.setdefault("filler", 0.5 * sum(bounds))
        bounds = vault.PublishedEBM.unclipped
    query = vault.DeclaredFit(estimator, design, target, bounds, name=name, **options)
    learned, release = fit.vault.fit_declared(key, query)
    fit.releases.append(release)
    return learned


def _learned(
    fit: Fit,
    design: Design,
    key: StageKey,
    stage: FirstStage,
    first: Mapping[str, functions.Function],
) -> tuple[functions.Function, ...]:
    """Values of a first stage, in the order of `FirstStage.names`."""
    clip, outcome = fit.request.arm_clip, outcome_of(fit.request, fit.schema)
    target: vault.Transform
    if stage.target == "treatment":
        target = vault.OfTreatment("residual", functions.Constant(0.0), 0.0)  # T itself.
        learned = _regressed(fit, key, stage.estimator, target, (0.0, 1.0), design, filler=0.0)
        return (replace(learned, lo=clip, hi=1 - clip),)
    if callable(stage.target):
        bounds = as_bounds(stage.target_bounds)
        target = vault.RowMap(stage.target, first, max(map(abs, bounds)))
    else:
        target = vault.OutcomeResidual(functions.Constant(0.0), outcome)  # Y itself.
        bounds = outcome.lo, outcome.hi
    both = stage.with_treatment
    learned = _regressed(fit, key, stage.estimator, target, bounds, design, with_treatment=both)
    return tuple(replace(learned, arm=arm) for arm in (0.0, 1.0)) if both else (learned,)


def _clips(estimator: Any) -> bool:
    """Whether targets and predictions are clipped; the paper's own regressions do not clip."""
    published = isinstance(estimator, vault.PublishedEBM)
    return not published or estimator.clip or estimator.classification


def tradeoff_of(declared: Any) -> TradeOff:
    """A declared guarantee as a trade-off function."""
    if isinstance(declared, TradeOff):
        return declared
    pair = tuple(as_plain(declared)) if isinstance(declared, tuple | list) else ()
    if len(pair) == 2 and all(is_number(v) for v in pair):
        return TradeOff.from_dp(*pair)
    raise CapabilityError("guarantee must be a pc.TradeOff, or a pair (epsilon, delta).")


def check_estimator(name: str, estimator: Any) -> None:
    kind = type(estimator).__name__
    missing = [m for m in ("fit", "predict") if not callable(getattr(estimator, m, None))]
    if isinstance(estimator, type) or missing:
        raise CapabilityError(
            f"{name} must be an object with fit(x, target, *, bounds, weight) and predict(x), not "
            f"{kind}."
        )
    if not hasattr(estimator, "guarantee"):
        raise CapabilityError(
            f"{name}: {kind} declares no guarantee. Set guarantee to a pc.TradeOff or a pair "
            "(epsilon, delta)."
        )
    tradeoff_of(estimator.guarantee)


def refuse_classifier(estimator: Any) -> None:
    if isinstance(estimator, WithGuarantee) and estimator.classifies:
        raise CapabilityError(
            f"{type(estimator.estimator).__name__} is a classifier, which can learn only the "
            "treatment. Use a regression for outcomes and effects."
        )


def as_bounds(pair: Any) -> tuple[float, float]:
    """Check a target's public bounds, and return them as floats."""
    numbers = isinstance(pair, tuple) and len(pair) == 2 and all(is_number(v) for v in pair)
    if not numbers or not -math.inf < pair[0] < pair[1] < math.inf:
        raise CapabilityError("target_bounds= must be a pair of numbers (lo, hi) with lo < hi.")
    return float(pair[0]), float(pair[1])
