"""The promise of one fit, as a value and as sentences."""

from __future__ import annotations

import math
from dataclasses import dataclass

from privcausal.accounting import PICO, TradeOff, delta_after, epsilon_of
from privcausal.learners import Estimate
from privcausal.results import published
from privcausal.spec.plan import Plan
from privcausal.typing import Kind, Neighbors


@dataclass(frozen=True)
class Guarantee:
    """What a fit promises.

    Attributes
    ----------
    epsilon, delta : float
        The price as asked for: what was spent is at most this.
    rho : float
        What was spent, in zCDP; NaN where the price is in epsilon and delta.
    neighbors : {"substitute", "add_remove"}
    unit : str
        Whose data are protected: ``"one row"``, or ``"one patient_id (at most 3 rows)"``.
    kind : {"proven", "published", "none"}
    statement : str
    trade_off : TradeOff or None
        What the stages of Algorithm 1 declare together, min{f_1, ..., f_k}**.
    """

    epsilon: float
    delta: float
    rho: float
    neighbors: Neighbors
    unit: str
    kind: Kind
    statement: str
    trade_off: TradeOff | None = None

    @property
    def short(self) -> str:
        """``"(1, 1e-05)-DP, proven"``."""
        if self.kind == "none":
            return "NOT PRIVATE, guarantee none"
        return f"{price_text(self.epsilon, self.delta, 3)}, {self.kind}"

    def _repr_html_(self) -> str:
        from privcausal.report.html import alert_html, escape
        from privcausal.report.words import ALERTS

        alert = alert_html(ALERTS[self.kind]) if ALERTS[self.kind] else ""
        return f"<div>{alert}<p>{escape(self.statement)}</p></div>"


def price_text(epsilon: float, delta: float, digits: int) -> str:
    """``"(1, 1e-05)-DP"``, or ``"1-DP (pure)"``."""
    if delta == 0:
        return f"{epsilon:.{digits}g}-DP (pure)"
    return f"({epsilon:.{digits}g}, {delta:.3g})-DP"


def guarantee_of(estimate: Estimate) -> Guarantee:
    if estimate.plan.request.mode == "paper":
        return _published(estimate)
    if not estimate.plan.stages:
        return _handed_over(estimate.plan)
    return promise(estimate.plan, kind=estimate.kind, what="all numbers of this fit together,")


HANDED_OVER = (
    "The table of cells came with noise of its maker. What it promises is its maker's word: "
    "nothing was read beside it, and nothing was added to it or charged here."
)


def _handed_over(plan: Plan) -> Guarantee:
    trust, budget = plan.request.trust, plan.request.budget
    return Guarantee(
        epsilon=budget.epsilon,
        delta=budget.delta,
        rho=math.nan,
        neighbors=trust.neighbors,
        unit=f"one {trust.protected}",
        kind="published",
        statement=HANDED_OVER,
    )


def _published(estimate: Estimate) -> Guarantee:
    plan = estimate.plan
    trust, budget = plan.request.trust, plan.request.budget
    unit = f"one {trust.protected}"
    change = _VERBS[trust.neighbors].format(unit=unit)
    sentences = (published.claim(plan, change), *published.doubts(plan, estimate.size))
    return Guarantee(
        epsilon=budget.epsilon,
        delta=0.0 if plan.pure else budget.delta,
        rho=math.nan,
        neighbors=trust.neighbors,
        unit=unit,
        kind=estimate.kind,
        statement=" ".join(sentences) if estimate.real else NOT_PRIVATE,
        trade_off=plan.trade_off if estimate.real else None,
    )


def promise(plan: Plan, *, kind: Kind, what: str) -> Guarantee:
    """The guarantee of a plan that was spent; `what` it speaks of, in words.

    `kind` is "published" where a proven mechanism was asked through a function that is only claimed
    to be private.
    """
    if plan.pure:
        return _pure(plan, kind=kind, what=what)
    trust, budget = plan.request.trust, plan.request.budget
    epsilon = plan.epsilon / PICO + epsilon_of(plan.rho, delta_after(budget.delta, plan.delta))
    unit = f"one {trust.protected}"
    return Guarantee(
        epsilon=min(epsilon, budget.epsilon),
        delta=budget.delta,
        rho=plan.rho / PICO,
        neighbors=trust.neighbors,
        unit=unit,
        kind=kind,
        statement=_told(_statement(plan, unit, what), kind),
    )


BORROWED = (
    "It was asked through functions of a published fit, whose own guarantee is a claim and no "
    "proof: of both together nothing is proven."
)


def _told(proven: str, kind: Kind) -> str:
    """The statement of a proof, as far as `kind` lets it stand."""
    if kind == "none":
        return NOT_PRIVATE
    return proven if kind == "proven" else f"{proven.replace(', proven:', ':', 1)} {BORROWED}"


def _pure(plan: Plan, *, kind: Kind, what: str) -> Guarantee:
    trust, epsilon = plan.request.trust, plan.epsilon / PICO
    unit = f"one {trust.protected}"
    change = _VERBS[trust.neighbors].format(unit=unit)
    statement = (
        f"{plan.request.budget.epsilon:g}-differential privacy (pure, delta = 0), proven: {what} "
        f"for two tables that {change}, whatever the data are{_proviso(plan)}. Spent: epsilon "
        f"{epsilon:.3g}."
    )
    return Guarantee(
        epsilon=epsilon,
        delta=0.0,
        rho=math.nan,
        neighbors=trust.neighbors,
        unit=unit,
        kind=kind,
        statement=_told(statement, kind),
    )


def _proviso(plan: Plan) -> str:
    """What a proof for rows takes for granted where somebody else has added them up."""
    if not plan.aggregated:
        return ""
    return (
        ", provided each row was counted once with its outcome cut to its bounds, and sums are "
        "exact (those of 64-bit floats may be the exact sum rounded once)"
    )


NOT_PRIVATE = "NOT PRIVATE: made with a test noise source; nothing is guaranteed."

_VERBS = {
    "substitute": "have the data of {unit} replaced by any other",
    "add_remove": "gain or lose the data of {unit}",
}


def _statement(plan: Plan, unit: str, what: str) -> str:
    budget = plan.request.budget
    change = _VERBS[plan.request.trust.neighbors].format(unit=unit)
    return (
        f"({budget.epsilon:g}, {budget.delta:g})-differential privacy, proven: {what} for two "
        f"tables that {change}, whatever the data are{_proviso(plan)}. "
        f"Spent: {plan.rho / PICO:.3g} zCDP of the {plan.rho_cap / PICO:.3g} this allows"
        + (
            f", beside ({plan.epsilon / PICO:.3g}, {plan.delta / PICO:.3g})-DP."
            if plan.epsilon
            else "."
        )
    )
