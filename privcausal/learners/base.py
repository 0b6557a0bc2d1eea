"""The contract of a learner and the steps they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privcausal.errors import CapabilityError, Made
from privcausal.features.functions import Nuisance
from privcausal.inference.average import FEW, AverageEstimate
from privcausal.inference.confounding import Remainder
from privcausal.inference.effect import Effect
from privcausal.learners.alerts import PANEL_ARM, listed
from privcausal.learners.averages import (
    STAGES,
    One,
    Weighed,
    average_target,
    averages,
    averages_needs,
    weighed,
)
from privcausal.learners.bases import AnyBase, Base, PrivateBase, moment_base, private_base
from privcausal.learners.boosting import DPEBM
from privcausal.learners.budget import (
    LEAST_PART,
    TOP,
    StageWeight,
    Undeclared,
    check_levels,
    make_plan,
)
from privcausal.learners.description import BANDS, Description, adjusted, sums_method
from privcausal.learners.estimate import Estimate, Nuisances
from privcausal.learners.nuisances import FoldNuisances, mixed, nuisance_of, overall
from privcausal.learners.orthogonal import Learned
from privcausal.learners.shares import SHARES, Stages
from privcausal.learners.state import (
    CATE_LOOKS,
    FitState,
    Session,
    look_at_outcome,
    prepare,
    range_needs,
)
from privcausal.request.plan import Plan
from privcausal.request.request import Request
from privcausal.request.schema import Schema
from privcausal.vault import Vault


class Learner(Made, ABC):
    """Plans its releases from a request, and fits by asking a vault for them.

    Attributes
    ----------
    name : str
        What users write, and what a saved fit is known by.
    title : str
        What results call it; its name unless given.
    bands : str
        What the bands for its effect cover.
    whole : str
        Where it has neither nuisances nor a base: why all rows are needed, for who asks to split.
    """

    name: ClassVar[str]
    title: ClassVar[str] = ""
    bands: ClassVar[str] = BANDS
    whole: ClassVar[str] = ""
    shares: ClassVar[Mapping[str, float]] = TOP

    @abstractmethod
    def needs(self, request: Request, base: PrivateBase) -> list[StageWeight]:
        """The releases after bounds, with their weights."""

    @abstractmethod
    def run(self, session: Session) -> Estimate:
        """Spend the plan's stages in order and return the estimate."""

    def accepted(self, base: AnyBase) -> PrivateBase:
        """The base, if this learner takes it."""
        return moment_base(base)

    def plan(self, request: Request, base: AnyBase, undeclared: Undeclared) -> Plan:
        """Stages with integer budgets; no data are needed."""
        base = self.accepted(base)
        if self.whole and request.split != "full":
            raise CapabilityError(
                f"split={request.split!r} keeps the rows of nuisances apart, and {self.whole}: "
                "leave split='full'"
            )
        if request.queries is not None:
            raise CapabilityError(
                f"queries= is for learner='dpcate': learner {self.name!r} releases a function, "
                "which can be asked anywhere and without limit"
            )
        needs, name = self.needs(request, base), "none" if self.whole else base.name
        return make_plan(request, self.name, name, needs, self.top(request), undeclared)

    def top(self, request: Request) -> Mapping[str, float]:
        """Division of rho among the groups of stages, before the user's shares."""
        return self.shares

    def fit(
        self, plan: Plan, vault: Vault, schema: Schema, undeclared: Undeclared, base: AnyBase
    ) -> Estimate:
        return self.run(Session(plan, vault, schema, undeclared, self.accepted(base)))

    @classmethod
    def describe(cls, estimate: Estimate) -> Description:
        """What results say of a fit by this learner."""
        title = cls.title or estimate.plan.learner
        return adjusted(
            estimate, title=title, method=cls.method(title, estimate.plan), bands=cls.bands
        )

    @classmethod
    def method(cls, title: str, plan: Plan) -> str:
        """How the effect was computed, in a paragraph."""
        return sums_method(title, plan.base)


class EffectLearner(Learner):
    """A learner of tau(x): what `privcate` takes."""


@dataclass(frozen=True)
class CateLearner(EffectLearner):
    """A learner of tau(x): nuisances, an effect, then averages from doubly robust scores."""

    @abstractmethod
    def effect_needs(self, request: Request, base: Base) -> list[StageWeight]:
        """Releases of the nuisance and effect stages."""

    @abstractmethod
    def learn(self, state: FitState) -> Learnt:
        """Nuisances and tau(x)."""

    def boosted_needs(self, request: Request) -> list[StageWeight]:
        """Releases of the nuisance and effect stages on base "dpebm"."""
        raise CapabilityError(f"learner {self.name!r} takes no base 'dpebm'")

    def boost(self, state: FitState) -> Learnt:
        """Nuisances and tau(x) on base "dpebm"."""
        raise CapabilityError(f"learner {self.name!r} takes no base 'dpebm'")

    def accepted(self, base: AnyBase) -> PrivateBase:
        return private_base(base)

    def plan(self, request: Request, base: AnyBase, undeclared: Undeclared) -> Plan:
        plan = super().plan(request, base, undeclared)
        if not isinstance(base, DPEBM):
            return plan
        check_levels(request)
        return replace(plan, least_part=0 if request.split == "full" else LEAST_PART)

    def needs(self, request: Request, base: PrivateBase) -> list[StageWeight]:
        if isinstance(base, DPEBM):
            needs = self.boosted_needs(request)
        else:
            needs = [*range_needs(request, SHARES.ranges), *self.effect_needs(request, base)]
        return [StageWeight(Stages.MARGINALS, SHARES.marginals), *needs, *averages_needs(request)]

    def run(self, session: Session) -> Estimate:
        state = prepare(session, modelled=True, looks=CATE_LOOKS)
        boosted = isinstance(session.base, DPEBM)
        learnt = self.boost(state) if boosted else self.learn(state)
        state = learnt.state
        found = None
        if session.plan.has(STAGES[1]):
            state = look_at_outcome(state, Stages.AVERAGE_RANGE)
            centre = float(np.mean(learnt.effect(state.rows)))
            scored = learnt.weighed(state)
            target = average_target(state, scored.nuisances, centre, learnt.effect)
            asked = [One("ATE", target, scored.remainder)]
            found = averages(state, asked, STAGES, scored.weight)
        notes = learnt.notes + (() if found is None else average_doubts(found))
        return finish(state, learnt.effect, learnt.shown, found, notes)


@dataclass(frozen=True, eq=False)
class Learnt:
    """The outcome of the nuisance and effect stages. `nuisances` holds one per fold, or one.

    `remainder` is the law of the bias by their errors in an average. Where propensity and mean
    outcome were learned together, it is what that law says beyond the one of `partials`, one per
    fold, and `pilot` is the effect that the nuisances have.
    """

    state: FitState
    effect: Effect
    nuisances: tuple[Nuisance, ...]
    shown: Nuisances
    remainder: Remainder
    partials: tuple[FoldNuisances, ...] = ()
    pilot: Effect | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        known: Learned,
        partials: tuple[FoldNuisances, ...],
        effect: Effect,
        pilot: Effect | None = None,
    ) -> Learnt:
        """From nuisances learned together, whose effect is `effect` unless there is a pilot."""
        state, pilot = known.state, pilot or effect
        nuisances = tuple(nuisance_of(p, pilot, state.outcome) for p in partials)
        return cls(
            state, effect, nuisances, shown(partials, nuisances), known.doubt, partials, pilot
        )

    def weighed(self, state: FitState) -> Weighed:
        """What averages are made of, and the law of the bias by its errors."""
        if self.pilot is None:
            return Weighed(self.nuisances, self.remainder)
        found = weighed(state, self.partials, self.nuisances, self.pilot, STAGES[1])
        return found._replace(remainder=found.remainder + self.remainder)


def shown(partials: tuple[FoldNuisances, ...], nuisances: tuple[Nuisance, ...]) -> Nuisances:
    """Nuisances as functions of new data: the folds' mean under cross-fitting."""
    whole = overall(partials)
    if len(nuisances) == 1:
        return Nuisances(whole.e, whole.eta, nuisances[0].mu0, nuisances[0].mu1)
    one, two = nuisances
    return Nuisances(whole.e, whole.eta, mixed(one.mu0, two.mu0), mixed(one.mu1, two.mu1))


def finish(
    state: FitState,
    effect: Effect | None,
    nuisances: Nuisances | None,
    found: AverageEstimate | None,
    notes: tuple[str, ...] = (),
) -> Estimate:
    session = state.session
    e = np.full(1, np.nan) if nuisances is None else nuisances.propensity(state.rows)
    cut = float(np.mean(np.minimum(e, 1 - e) <= state.clip * (1 + 1e-9)))
    alerts = _alerts(state, found, cut)
    if found is not None:
        if state.known is None:  # a known one was declared, not counted
            found = replace(found, treated=float(np.mean(e)))
        if POOR_OVERLAP < cut <= MOST_CUT and _divides(state, found) and "arm" not in alerts:
            notes = (OVERLAP_NOTE.format(share=cut, **_ends(state)), *notes)
    return Estimate(
        session.plan, session.schema, state.design, state.population, effect, nuisances, found,
        tuple(session.releases), session.vault.size, session.vault.real_noise, notes,
        tuple(alerts.items()),
    )  # fmt: skip


COVARIATES_ALERT = (
    "No covariate is left, so nothing was adjusted for. No level or range of {names} could be told "
    "from noise: declare them in bounds=."
)

MOST_INCOMPLETE = 0.5
COMPLETE_ALERT = (
    "Fewer than half of the rows are complete; the others add nothing. By a noisy count: are the "
    "labels of the data those of bounds=?"
)

UNSEEN_NOTE = (
    "One arm has too few rows to be told from none: is it coded 0 and 1, or by declared labels? "
    "Other values count as missing. If the arm is empty, the interval of the effect means nothing: "
    "its outcomes are those of a model."
)


MOST_REMAINDER = 0.5
"""Share of an average's variance by nuisance errors above which the result says so."""

NUISANCE_NOTE = (
    "What is not known of confounding is {share:.0%} of the variance of the {estimand}. More rows "
    "or budget, fewer covariates or a known propensity would help (by released numbers). "
    "The allowance rests on a prior of how covariates confound: usually wide, but where they "
    "confound more strongly than it thinks, intervals cover less than they say."
)


MOST_PRODUCTS = 0.5
"""Confounding by products of covariates, in standard errors, above which the result says so."""

PRODUCTS_NOTE = (
    "Products of covariates confound here (from released numbers). Interactions of other forms "
    "than those learned may be left in the {estimand}, and its interval can then cover less "
    "than it says."
)


MOST_CLIPPING = 0.5
"""Bound of the bias by clipping, in standard errors, above which the result says so."""

CLIPPING_NOTE = (
    "Clipping the scores may bias the {estimand} by up to {share:.1f} standard errors. More rows "
    "or budget, or narrower bounds of the outcome, would help."
)


POOR_OVERLAP, MOST_CUT = 0.1, 0.5
"""Shares of the rows with propensities at the clip above which the result says so, and warns."""

OVERLAP_NOTE = (
    "About {share:.0%} of the rows have a propensity below {clip:.2g} or above {other:.2g}. By "
    "released numbers they are in one arm nearly always, and the ATE rests on a model of what "
    "the other would have given them. estimand='ATO' asks about those who could be in either."
)


def average_doubts(found: AverageEstimate, products: float = 0.0) -> tuple[str, ...]:
    """Notes on an average whose scores are cut a lot, or that products confound."""
    total = float(found.cov[0, 0])
    if not (np.isfinite(total) and total > 0):
        return ()
    estimand, notes = found.terms[0], []
    cut = float(found.clipping[0]) / np.sqrt(total)
    if cut > MOST_CLIPPING:
        notes.append(CLIPPING_NOTE.format(share=cut, estimand=estimand))
    if products > MOST_PRODUCTS * np.sqrt(total):
        notes.append(PRODUCTS_NOTE.format(estimand=estimand))
    return tuple(notes)


def _alerts(state: FitState, found: AverageEstimate | None, cut: float) -> dict[str, str]:
    """What is serious of a fit, by code; from released numbers."""
    request, alerts = state.session.plan.request, dict(state.session.alerts)
    if request.formula.terms and not state.design.columns:
        alerts["covariates"] = COVARIATES_ALERT.format(names=listed(state.design.variables))
    if state.session.unseen:
        alerts["arm"] = UNSEEN_NOTE if request.trust.panel is None else PANEL_ARM
    if found is None:
        return alerts
    rows, whole = found.size + FEW * found.size_sd, state.session.vault.size
    if whole is not None and request.trust.unit is None:
        share = state.session.plan.stages[-1].rows
        if rows < MOST_INCOMPLETE * share * whole:
            alerts["complete"] = COMPLETE_ALERT
    alerts |= nuisance_alert(found)
    if cut > MOST_CUT and _divides(state, found) and "arm" not in alerts:
        alerts["overlap"] = OVERLAP_NOTE.format(share=cut, **_ends(state))
    return alerts


def nuisance_alert(found: AverageEstimate) -> dict[str, str]:
    total, part = float(found.cov[0, 0]), float(found.remainder[0]) ** 2
    if not np.isfinite(total) or part <= MOST_REMAINDER * total:
        return {}
    return {"nuisances": NUISANCE_NOTE.format(share=part / total, estimand=found.terms[0])}


def _divides(state: FitState, found: AverageEstimate) -> bool:
    """Whether the average divides by an estimated propensity."""
    return "ATE" in found.terms and state.known is None


def _ends(state: FitState) -> dict[str, float]:
    return {"clip": state.clip, "other": 1 - state.clip}
