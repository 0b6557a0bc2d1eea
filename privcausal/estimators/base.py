"""The contract of a learner and the steps that learners share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from privcausal import accounting
from privcausal.errors import CapabilityError
from privcausal.estimators import averages as averages_of
from privcausal.estimators import budget, estimands, first_stages
from privcausal.estimators import nuisances as nu
from privcausal.estimators.averages import (
    STAGES,
    RequestedAverage,
    WeightedNuisances,
    average_target,
    choose_limits,
    release_averages,
)
from privcausal.estimators.bases import DPEBM, AnyBase, PrivateBase, moment_base, private_base
from privcausal.estimators.budget import Step
from privcausal.estimators.estimands import ESTIMANDS
from privcausal.estimators.nuisances import FoldFit, Folds
from privcausal.features.functions import Triples
from privcausal.inference.effects import USUAL_Z, AverageEstimate, Effect
from privcausal.inference.regression import Remainder
from privcausal.request.formula import ATE_TERM, ResultTerm
from privcausal.request.request import Plan, Request
from privcausal.request.schema import Schema
from privcausal.vault import Vault


@dataclass(frozen=True, eq=False)
class Learner(ABC):
    """Plans its releases from a request, and fits by asking a vault for these releases.

    Attributes
    ----------
    name : str
        Name that users write and that saved fits store.
    title : str
        Name in results. Defaults to `name`.
    bands : str
        Text on the coverage of the bands for the effect.
    whole : str
        Why the learner needs all rows, for learners without nuisances and base. Shown to users who
        ask for a split.
    shares : Mapping of str to float
        Default division of rho among the groups of stages.
    steps : tuple of Step
        The releases after the bounds.
    fixed_base : PrivateBase or None
        The base that learns from sums, whichever base the call gives.
    """

    name: ClassVar[str]
    title: ClassVar[str] = ""
    bands: ClassVar[str] = estimands.BANDS
    whole: ClassVar[str] = ""
    shares: ClassVar[Mapping[str, float]] = budget.TOP
    steps: ClassVar[tuple[Step, ...]] = ()
    fixed_base: ClassVar[PrivateBase | None] = None

    def steps_on(self, base: AnyBase) -> tuple[Step, ...]:
        """The steps on this base, with those that several learners share."""
        return self.steps

    def stages(self, request: Request, base: PrivateBase) -> budget.Weights:
        """The stages of a fit after the bounds, with their weights."""
        return budget.stage_weights(self.steps_on(base), request, base)

    @abstractmethod
    def run(self, fit: first_stages.Fit) -> estimands.Estimate:
        """Release the stages of the plan, in the order that the learner needs, and estimate."""

    def accepted(self, base: AnyBase) -> PrivateBase:
        """The base, if this learner accepts it."""
        return self.fixed_base or moment_base(base)

    def plan(self, request: Request, base: AnyBase, undeclared: budget.Undeclared) -> Plan:
        """Stages with integer budgets; this needs no data."""
        base = self.accepted(base)
        if self.whole and request.split != "full":
            raise CapabilityError(
                f"split={request.split!r} fits nuisance models to separate rows, but {self.whole}. "
                "Use split='full'."
            )
        if request.queries is not None:
            raise CapabilityError(
                f"queries= requires learner='dpcate'. Learner {self.name!r} releases a function "
                "that you can evaluate at any point, at no further cost."
            )
        weights, name = self.stages(request, base), "none" if self.whole else base.name
        return budget.make_plan(request, self.name, name, weights, self.top(request), undeclared)

    def counted(self, plan: Plan) -> tuple[float, int]:
        """Noise sd of the count of a group of rows that are compared, and the number of groups.

        A number of 0 groups stands for other needs: the sd is a third of the rows that noise hides.
        """
        # Two groups that use the whole budget. A row, or unit, that moves changes both counts.
        # Gaussian noise has the sd 1 / sqrt(rho), and Laplace noise the sd sqrt(8) / epsilon.
        rho, epsilon = (part / accounting.PICO for part in (plan.rho, plan.epsilon))
        return float((rho + epsilon**2 / 8) ** -0.5), 2

    def top(self, request: Request) -> Mapping[str, float]:
        """Division of rho among the groups of stages, before the user's shares."""
        return self.shares

    def fit(
        self, plan: Plan, vault: Vault, schema: Schema, undeclared: budget.Undeclared, base: AnyBase
    ) -> estimands.Estimate:
        """Run the plan: the only call of a learner that sees the vault."""
        accepted = self.accepted(base)
        steps = self.steps_on(accepted)
        return self.run(first_stages.Fit(plan, vault, schema, undeclared, accepted, base, steps))

    @classmethod
    def describe(cls, estimate: estimands.Estimate) -> estimands.Description:
        """Description of a fit by this learner, for results."""
        title = cls.title or estimate.plan.learner
        method = cls.method(title, estimate.plan)
        return estimands.adjusted(estimate, title=title, method=method, bands=cls.bands)

    @classmethod
    def method(cls, title: str, plan: Plan) -> str:
        """A paragraph on how the effect was computed."""
        the = "the " if "learner" in title else ""
        return f"The estimator was {the}{title} with base {plan.base!r}. {estimands.SUMS}"


class EffectLearner(Learner):
    """A learner of tau(x), as accepted by `privcate`."""


CATE_MARGINALS = Step(first_stages.MARGINALS, partial(budget.for_marginals, least=0.04))


EFFECT_ROWS, KNOWN_NUISANCES = 4_000.0, 0.6
"""Number of rows times epsilon from which tau(x) has its whole share, and the part of the share of
nuisances if the propensity is known. Everyday laws, effect laws."""


class CateLearner(EffectLearner):
    """A learner of tau(x): nuisances, an effect, then averages from doubly robust scores.

    Its `steps` are those of the nuisances and the effect, and `recipe` has their counterparts on
    base "dpebm".
    """

    recipe: ClassVar[Recipe | None] = None

    @abstractmethod
    def learn(self, state: first_stages.FitState) -> EffectFit:
        """Learn the nuisances and tau(x)."""

    def boosted(self) -> Recipe:
        """The recipe, if there is one."""
        if self.recipe is None:
            raise CapabilityError(f"Learner {self.name!r} does not support base='dpebm'.")
        return self.recipe

    def accepted(self, base: AnyBase) -> PrivateBase:
        return self.fixed_base or private_base(base)

    def plan(self, request: Request, base: AnyBase, undeclared: budget.Undeclared) -> Plan:
        plan = super().plan(request, base, undeclared)
        if not isinstance(base, DPEBM):
            return plan
        budget.check_levels(request)
        return replace(plan, least_part=0 if request.split == "full" else budget.LEAST_PART)

    def steps_on(self, base: AnyBase) -> tuple[Step, ...]:
        steps = self.boosted().steps if isinstance(base, DPEBM) else self.steps
        return CATE_MARGINALS, *steps, *averages_of.AVERAGE_STEPS

    def top(self, request: Request) -> Mapping[str, float]:
        """Give the average what tau(x) cannot use, with few rows or a known propensity.

        Noise then hides tau(x), or there is no propensity to learn. At n eps = 1,000, intervals of
        the average are 30% narrower in everyday laws, and the squared error of tau(x) is 8 +- 6%
        larger. A factor that falls from 10,000 on costs tau(x) 13% at 4,000.
        """
        if "effect" not in self.shares:  # the arms' regressions give tau(x), and are nuisances
            return self.shares
        kept = {"effect": min(max((budget.n_eps(request) / EFFECT_ROWS) ** 0.5, 0.4), 1.0)}
        if request.propensity is not None:
            kept["nuisance"] = KNOWN_NUISANCES
        shares = {key: share * kept.get(key, 1.0) for key, share in self.shares.items()}
        left = sum(self.shares.values()) - sum(shares.values())
        return shares | {"average": shares["average"] + left}

    def run(self, fit: first_stages.Fit) -> estimands.Estimate:
        # a best linear projection would need weighted products of its columns
        linear = fit.request.weights is None
        state = first_stages.prepare(fit, linear_terms=linear)
        boosts = isinstance(state.base, DPEBM)
        learned = self.boosted().learn(state) if boosts else self.learn(state)
        state, effect = learned.state, learned.effect
        if not state.plan.has(STAGES[1]):
            return finish(state, effect, learned.reported, None, learned.notes)
        # the averages, from doubly robust scores with this effect and these nuisances
        state = nu.with_outcomes(state, averages_of.AVERAGE_RANGE, look=True)
        scored = WeightedNuisances(learned.nuisances, learned.remainder)
        if learned.pilot is not None:
            folds, nuisances = learned.partials, learned.nuisances
            scored = choose_limits(state, folds, nuisances, learned.pilot, STAGES[1])
            scored = scored._replace(remainder=scored.remainder + learned.remainder)
        tau, centre = None, learned.centre
        if centre is None:
            tau, centre = effect, float(np.mean(effect(state.rows)))
        target = average_target(state, scored.nuisances, centre, tau)
        requested = [RequestedAverage(ATE_TERM, target, scored.remainder)]
        estimate = release_averages(state, requested, STAGES, scored.weight)
        estimate = with_adjustment(state, learned.partials, estimate)
        # The effect plus a constant, so that its mean is near the average. The two means are
        # weighed by their variances. If their distance shows a larger error of the effect's mean,
        # that error counts. The new mean is then within one sd of the average, if no value reaches
        # the clip. The bands keep their widths, because the same rows cause both sampling errors.
        average, variance = estimate.estimate[0], estimate.cov[0, 0] + estimate.clipping[0] ** 2
        usable = bool(effect.pieces) and np.isfinite([average, variance]).all()
        if usable and not state.population.atoms:  # the share of the rows at a point is a guess
            rows, ones = state.rows, np.ones(len(state.rows))
            away = float(average) - float(np.mean(effect(rows)))
            off = max(effect.mean_sd(rows, ones) ** 2, away**2 - float(variance))
            weights = [ones if p.weight is None else p.weight(rows) for p in effect.pieces]
            shares = np.linalg.lstsq(np.column_stack(weights), ones, rcond=None)[0]
            steps = shares * away * off / (off + float(variance))
            pieces = []
            for piece, step in zip(effect.pieces, steps.tolist(), strict=True):
                additive = replace(piece.additive, offset=piece.additive.offset + step)
                pieces.append(replace(piece, additive=additive))
            effect = replace(effect, pieces=tuple(pieces))
        return finish(state, effect, learned.reported, estimate, learned.notes)


class EffectFit(NamedTuple):
    """Result of the nuisance and effect stages."""

    state: first_stages.FitState
    effect: Effect
    nuisances: Triples  # One per fold, or one for all rows
    reported: estimands.Nuisances
    # Distribution of the bias of an average from nuisance errors. If propensity and mean outcome
    # were learned together, it is only the part beyond the distribution that `partials` gives.
    remainder: Remainder
    partials: Folds = ()  # One per fold, if propensity and mean outcome were learned together
    pilot: Effect | None = None  # The effect that the nuisances contain
    notes: tuple[str, ...] = ()
    centre: float | None = None  # Center of the scores, if it is not the effect

    @classmethod
    def of(
        cls,
        state: first_stages.FitState,
        doubt: Remainder,
        partials: Folds,
        effect: Effect,
        pilot: Effect | None = None,
    ) -> EffectFit:
        """From nuisances that were learned together; the pilot defaults to `effect`."""
        pilot = pilot or effect
        nuisances = tuple(nu.nuisance_of(p, pilot, state.outcome) for p in partials)
        functions = reported_nuisances(partials, nuisances)
        return cls(state, effect, nuisances, functions, doubt, partials, pilot)


class Recipe(NamedTuple):
    """The counterparts of a learner's `steps` and `learn` on base "dpebm"."""

    steps: tuple[Step, ...]
    learn: Callable[[first_stages.FitState], EffectFit]


def reported_nuisances(partials: Folds, nuisances: Triples) -> estimands.Nuisances:
    """Nuisances as functions of new data; under cross-fitting, the mean over the folds."""
    return estimands.Nuisances(
        nu.mixed(part.e for part in partials),
        nu.mixed(part.eta for part in partials),
        nu.mixed(triple.mu0 for triple in nuisances),
        nu.mixed(triple.mu1 for triple in nuisances),
    )


def finish(
    state: first_stages.FitState,
    effect: Effect | None,
    nuisances: estimands.Nuisances | None,
    estimate: AverageEstimate | None,
    notes: tuple[str, ...] = (),
) -> estimands.Estimate:
    """The fit, with alerts and notes on its averages, overlap, and covariates."""
    alerts, request = state.alerts, state.request
    e = np.full(1, np.nan) if nuisances is None else nuisances.propensity(state.rows)
    if request.formula.terms and not state.design.columns:
        alerts["covariates"] = COVARIATES_ALERT.format(
            names=estimands.listed(state.design.variables)
        )
    if estimate is not None:
        doubts, more = average_doubts(estimate)
        alerts |= doubts
        notes = (*notes, *more)
        half, reach = USUAL_Z * float(estimate.sd[0]), 2 * state.outcome.bound
        if request.bounded and half > MOST_EFFECTS * reach and "arm" not in alerts:
            alerts["noise"] = HIDDEN_ALERT.format(estimand=estimate.terms[0])
        if state.propensity is None:  # a known propensity was declared, not counted
            estimate = replace(estimate, treated=float(np.mean(e)))
        names = [name for name in ESTIMANDS if name in request.estimands]
        # share of each one's rows where a propensity that its scores divide by is clipped
        most, clipped = state.clip * (1 + 1e-9), []
        for estimand in (ESTIMANDS[name] for name in names):
            small = (estimand.by_e & (e <= most)) | (estimand.by_rest & (1 - e <= most))
            clipped.append(float(np.average(small, weights=estimand.tilt(e))))
        share = max(clipped, default=0.0)
        if share > POOR_OVERLAP and state.propensity is None and "arm" not in alerts:
            name = names[clipped.index(share)]
            text = OVERLAP_NOTE.format(
                about=NOT_ESTIMABLE.format(name) if share > MOST_CUT else "about",
                share=share,
                rows=ESTIMANDS[name].rows,
                where=f"below {state.clip:.2g} or " if ESTIMANDS[name].by_e else "",
                high=1 - state.clip,
                estimand=name,
            )
            if share > MOST_CUT:
                alerts["overlap"] = text
            else:
                notes = (text, *notes)
    return state.finished(state.design, state.population, effect, nuisances, estimate, notes)


MOST_EFFECTS = 0.9
"""Half-width of an interval, over the width of the outcome's range, above which there is an alert:
it then contains almost all possible effects. By hand."""

HIDDEN_ALERT = (
    "Noise hides the {estimand}: its interval contains almost all possible effects. Use more rows "
    "or budget, or narrower bounds."
)

COVARIATES_ALERT = (
    "No covariates remain, so the estimate is unadjusted. No level or range of {names} could be "
    "distinguished from noise. Declare them in bounds=."
)

NOTED_REMAINDER, MOST_REMAINDER = 0.5, 0.95
"""Shares of an average's variance due to nuisance errors that add a note or an alert.

Half is common if n eps is small, and the interval includes it. Named laws without confounding
beyond additive functions stay below 0.95.
"""

NUISANCE_NOTE = (
    "Errors of the models for adjustment cause {share:.0%} of the variance of the {estimand}. Use "
    "more rows or budget, fewer covariates, or a known propensity. If confounding is unusually "
    "strong, the interval undercovers."
)


MOST_PRODUCTS = 0.6
"""Confounding by products and thresholds, in standard errors, above which there is an alert. With
20,000 rows and eps = 4, it is at most 0.55 in a law of additive functions, and at least 3 in laws
of thresholds or hidden transforms. Named laws.
"""

PRODUCTS_NOTE = (
    "Products of covariates or thresholds confound the treatment effect in these data. The fit "
    "adjusts for those that it detected. If others confound as well, the interval of the "
    "{estimand} may undercover. Add the products that you expect to the formula."
)


MOST_CLIPPING = 0.5
"""Bound on the clipping bias, in standard errors, above which the result notes it."""

CLIPPING_NOTE = (
    "Clipping the scores may bias the {estimand} by up to {share:.1f} standard errors. Use "
    "narrower outcome bounds, more rows, or more budget."
)


POOR_OVERLAP, MOST_CUT = 0.1, 0.5
"""Shares of rows with clipped propensities above which the result adds a note or an alert."""

OVERLAP_NOTE = (
    "Poor overlap: {about} {share:.0%} of the {rows} have a propensity {where}above {high:.4g}. "
    "For these rows, the {estimand} extrapolates from the outcome model. Consider estimand='ATO', "
    "which weights rows by overlap."
)
NOT_ESTIMABLE = "these data hardly show the {}; estimand='ATO' is the effect in the overlap. About"


def average_doubts(estimate: AverageEstimate) -> tuple[dict[str, str], tuple[str, ...]]:
    """Alerts and notes on nuisance errors and clipping bias, as shares of a finite variance."""
    total = float(estimate.cov[0, 0])
    if not (np.isfinite(total) and total > 0):
        return {}, ()
    share, estimand = float(estimate.remainder[0]) ** 2 / total, estimate.terms[0]
    note = NUISANCE_NOTE.format(share=share, estimand=estimand)
    notes = [note] if NOTED_REMAINDER < share <= MOST_REMAINDER else []
    clipping = float(estimate.clipping[0]) / np.sqrt(total)
    if clipping > MOST_CLIPPING:
        notes.append(CLIPPING_NOTE.format(share=clipping, estimand=estimand))
    return {"nuisances": note} if share > MOST_REMAINDER else {}, tuple(notes)


HIDDEN_ADJUSTMENT = (
    "Noise hides about {share:.0%} of the confounding by covariates at this budget. The estimate "
    "is closer to the unadjusted difference than it would be without noise, and the interval "
    "allows for it. Use more rows or budget, or fewer covariates."
)
MOSTLY_HIDDEN = 0.5  # Share from which there is an alert: most of the adjustment is not made
MOST_DIFFERENT = 2.0
"""If two estimates of the plain difference are further apart, in standard errors, it is not shown:
in 3% to 6% of the fits on public data sets, most of them with poor overlap."""


def with_adjustment(
    state: first_stages.FitState,
    parts: Sequence[FoldFit],
    estimate: AverageEstimate,
    term: ResultTerm = ATE_TERM,
) -> AverageEstimate:
    """The averages, with what adjustment did, and with what strong interactions would do.

    `removed` is the estimated confounding that was removed, `hidden` the share that noise hides,
    and `differs` how much a second estimate of the first differs from it; NaN if unknown. A
    difference in means exceeds a constant effect tau by Cov(e, b) / (P(T = 1) P(T = 0)) for the
    baseline b = Y - tau T. The second estimate is from the released moments and not from synthetic
    rows: beta_e' Cov(phi, b) + Cov(phi, T)' beta_b - beta_e' Cov(phi) beta_b, which leaves out the
    product of both errors only. The results are means over folds.
    """
    alerts, strong, shares = state.alerts, [np.nan] * len(parts), []
    alerts |= product_alert(state, parts, estimate, term)
    effect = float(estimate.estimate[0])
    for part in parts:
        if part.pair is None or not state.features.blocks:
            break
        e, y = part.pair.mean
        b, gram, with_t = y - effect * e, part.pair.e.gram, part.pair.e.cross
        with_b = part.pair.y.cross - effect * with_t
        count = max(float(gram[0, 0]), 1e-9)  # noise can hide all rows, and then share is extreme
        cov = np.cov(state.rows.phi(state.features), rowvar=False, bias=True)
        confounding, lost = float(e @ cov @ b), part.pair.hidden(cov)
        # the first feature is 1
        share, means = 0.5 + float(with_t[0]) / count, gram[0] / count
        again = e @ (with_b - means * with_b[0]) + b @ (with_t - means * with_t[0])
        again -= e @ (gram - np.outer(means, gram[0])) @ b
        gap = abs(confounding - again / count)
        if part.beyond is not None:
            psi, pair = part.beyond
            e, y = pair.mean
            cov = np.cov(state.rows.phi(psi), rowvar=False, bias=True)
            confounding += float(e @ cov @ (y - effect * e))
        both = share * (1 - share) if 0 < share < 1 else np.nan
        shares.append((confounding / both, lost, gap / both))
    means_of = np.mean(shares, axis=0) if shares else np.full(3, np.nan)
    removed, hidden, differs = map(float, means_of)
    if not differs <= MOST_DIFFERENT * float(np.sqrt(estimate.cov[0, 0])):
        removed = np.nan
    if hidden > MOSTLY_HIDDEN and "arm" not in alerts:
        alerts["adjustment"] = HIDDEN_ADJUSTMENT.format(share=hidden)
    # rms of the bias from interactions if their prior sds are `STRONG` times as large, by fold
    for k, part in enumerate(parts):
        if part.beyond is not None:
            psi, joint = part.beyond
            weight = nu.remainder_weight(state, psi, part.propensity(term), term)
            strong[k] = joint.stronger(STRONG).remainder(weight, used=joint).rms
    return replace(
        estimate,
        strong=float(np.mean(strong or [np.nan])),
        unadjusted=effect + removed,
        hidden=hidden,
    )


STRONG = 2.0
"""Strong interactions, in the usual prior sds, which hold in four of five public data sets."""

FAVORED = 3.0
"""Log of the Bayes factor, 20, above which releases show interactions: by Markov's inequality, they
show them in at most 5% of the fits where there are none.
"""


def product_alert(
    state: first_stages.FitState,
    parts: Sequence[FoldFit],
    estimate: AverageEstimate,
    term: ResultTerm = ATE_TERM,
    unit: float = 1.0,
) -> dict[str, str]:
    """An alert if interactions that the releases show confound much of a standard error.

    The maximum of their confounding is the root of E[w e_psi^2] E[w b_psi^2], the mean over folds.
    Here e_psi = psi'beta_e and b_psi = psi'(beta_y - tau beta_e), with w as for the remainder. A
    fold counts as 0 if its releases do not favor interactions over none. `unit` divides the
    confounding of a slope of a partially linear model.
    """
    most = [0.0] * len(parts)
    for k, part in enumerate(parts):
        if part.beyond is not None and part.beyond[1].support > FAVORED:
            psi, joint = part.beyond
            weight = nu.remainder_weight(state, psi, part.propensity(term), term)
            e, b = joint.slopes
            most[k] = float(np.sqrt((e @ weight @ e) * (b @ weight @ b)))
    if not float(np.mean(most or [0.0])) / unit > MOST_PRODUCTS * np.sqrt(estimate.cov[0, 0]):
        return {}
    return {"products": PRODUCTS_NOTE.format(estimand=estimate.terms[0])}
