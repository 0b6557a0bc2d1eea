"""The promise of one fit, as a value and as sentences; and what a ledger has left."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from privcausal import accounting
from privcausal.estimators import Estimate, describe
from privcausal.prices import at_least, at_most, column, pair
from privcausal.report import tables
from privcausal.report.formats import alert_html, escape_html
from privcausal.report.summary import Summary
from privcausal.request.plan import Plan
from privcausal.typing import Kind, Neighbors


@dataclass(frozen=True)
class Guarantee:
    """What a fit promises.

    Attributes
    ----------
    epsilon, delta : float
        The price as asked for: what was spent is at most this.
    rho : float
        What was spent: mu^2 / 2 of Gaussian noise, else zCDP; NaN where the price is in epsilon and
        delta.
    neighbors : {"substitute", "add_remove"}
    unit : str
        Whose data are protected: ``"one row"``, or ``"one patient_id (at most 3 rows)"``.
    kind : {"proven", "published", "none"}
    statement : str
    trade_off : TradeOff or None
        Where all noise is Gaussian, the least error of type II that a test between two neighbouring
        tables has at each level. Of `pc.paper.two_stage`, what the stages of Algorithm 1 declare
        together, min{f_1, ..., f_k}**.
    """

    epsilon: float
    delta: float
    rho: float
    neighbors: Neighbors
    unit: str
    kind: Kind
    statement: str
    trade_off: accounting.TradeOff | None = None

    @property
    def short(self) -> str:
        """``"(1, 1e-05)-DP, proven"``."""
        if self.kind == "none":
            return "NOT PRIVATE, guarantee none"
        return f"{price_text(self.epsilon, self.delta)}, {self.kind}"

    def _repr_html_(self) -> str:
        alert = alert_html(tables.ALERTS[self.kind]) if tables.ALERTS[self.kind] else ""
        return f"<div>{alert}<p>{escape_html(self.statement)}</p></div>"


def price_text(epsilon: float, delta: float) -> str:
    """``"(1, 1e-05)-DP"``, or ``"1-DP (pure)"``."""
    if delta == 0:
        return f"{at_most(epsilon)}-DP (pure)"
    return f"{pair(epsilon, delta)}-DP"


def guarantee_of(estimate: Estimate) -> Guarantee:
    if estimate.plan.request.mode == "paper":
        return _published(estimate)
    if not estimate.plan.stages:
        return _guarantee(estimate.plan, "published", HANDED_OVER)
    return promise(estimate.plan, kind=estimate.kind, what="all numbers of this fit together,")


HANDED_OVER = (
    "The table of cells came with noise of its maker. What it promises is its maker's word: "
    "nothing was read beside it, and nothing was added to it or charged here."
)


def _published(estimate: Estimate) -> Guarantee:
    plan = estimate.plan
    price, change = _words(plan)
    claim = (
        f"{price} for two tables that {change} {describe(estimate).claim}; it is published, not "
        "proven."
    )
    statement = " ".join((claim, *published_doubts(estimate))) if estimate.real else NOT_PRIVATE
    made = _guarantee(plan, estimate.kind, statement)
    return replace(
        made,
        delta=0.0 if plan.pure else made.delta,
        trade_off=plan.trade_off if estimate.real else None,
    )


def _guarantee(plan: Plan, kind: Kind, statement: str) -> Guarantee:
    """A guarantee at the price that was asked for."""
    trust, budget = plan.request.trust, plan.request.budget
    unit = f"one {trust.protected}"
    return Guarantee(budget.epsilon, budget.delta, math.nan, trust.neighbors, unit, kind, statement)


def published_doubts(estimate: Estimate) -> tuple[str, ...]:
    """What a published claim rests on, and where it is known to fail."""
    least, size = estimate.plan.least_rows, estimate.size
    found = describe(estimate).doubts
    if size is not None and size < least:
        return (
            *found,
            f"BELOW THE MINIMUM: with fewer than {least} rows the claim fails even for "
            "nuisances known beforehand.",
        )
    if not least:
        return found
    return (
        *found,
        f"The minimum of {least} rows was checked on all rows, complete or not: how "
        "many are complete is private, and the claim needs that many of them.",
    )


def promise(plan: Plan, *, kind: Kind, what: str) -> Guarantee:
    """The guarantee of a plan that was spent; `what` it speaks of, in words.

    `kind` is "published" where a proven mechanism was asked through a function that is only claimed
    to be private.
    """
    made = _guarantee(plan, kind, _told_guarantee(_statement(plan, what), kind))
    spent, budget = plan.epsilon / accounting.PICO, plan.request.budget
    if plan.pure:
        return replace(made, epsilon=spent, delta=0.0)
    epsilon = spent + accounting.epsilon_of(
        plan.rho, accounting.delta_after(budget.delta, plan.delta), plan.gdp
    )
    made = replace(made, epsilon=min(epsilon, budget.epsilon), rho=plan.rho / accounting.PICO)
    if not plan.gdp or plan.epsilon or kind != "proven" or plan.rho > 450 * accounting.PICO:
        return made  # beyond mu = 30 every guess may be right
    curve = accounting.TradeOff.from_noise(plan.rho, len(plan.stages), plan.delta / accounting.PICO)
    return replace(made, trade_off=curve)


BORROWED = (
    "It was asked through functions of a published fit, whose own guarantee is a claim and no "
    "proof: of both together nothing is proven."
)


def _told_guarantee(proven: str, kind: Kind) -> str:
    """The statement of a proof, as far as `kind` lets it stand."""
    if kind == "none":
        return NOT_PRIVATE
    return proven if kind == "proven" else f"{proven.replace(', proven:', ':', 1)} {BORROWED}"


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


def _words(plan: Plan) -> tuple[str, str]:
    """The price that was asked for, and how the two tables differ."""
    budget, trust = plan.request.budget, plan.request.trust
    price = f"{pair(budget.epsilon, budget.delta)}-differential privacy"
    if plan.pure:
        price = f"{at_most(budget.epsilon)}-differential privacy (pure, delta = 0)"
    return price, _VERBS[trust.neighbors].format(unit=f"one {trust.protected}")


def _statement(plan: Plan, what: str) -> str:
    price, change = _words(plan)
    spent = plan.epsilon / accounting.PICO
    law = "rho of Gaussian noise" if plan.gdp else "zCDP"
    cost, cap = (at_most(rho / accounting.PICO) for rho in (plan.rho, plan.rho_cap))
    paid = f"{cost} {law} of the {cap} this allows"
    if plan.pure:
        paid = f"epsilon {at_most(spent)}"
    elif plan.epsilon:
        paid += f", beside {pair(spent, plan.delta / accounting.PICO)}-DP"
    return (
        f"{price}, proven: {what} for two tables that {change}, whatever the data are"
        f"{_proviso(plan)}. Spent: {paid}."
    )


# -- the ledger ------------------------------------------------------------------------------------

RUN = 8
"""Characters of a run's name that the table shows; `tables` has it whole."""

EITHER = (
    "What is left is one or the other, in rho (as eps of a fit with Gaussian noise) or in pure "
    "epsilon. Fits priced in rho cost less together than the sum of their eps, so more can be left "
    "than the cap less what was spent. Charges are never refunded."
)


def ledger_summary(ledger: accounting.Ledger) -> Summary:
    """The summary of a ledger: a line for each run in order, then what is spent and left."""
    history, spent, left = ledger.history, ledger.spent, ledger.remaining
    runs = ledger.runs.set_index("run")
    protected, neighbours = "any, until the first fit", "any"
    if len(history):
        protected = f"one {tables.clean(history['unit'].iloc[0])}"
        neighbours = history["neighbors"].iloc[0].replace("_", "/")
    head = tables.Pairs(
        "The ledger",
        (
            ("Data set", tables.clean(ledger.dataset)),
            ("Cap", price_text(ledger.epsilon, ledger.delta)),
            ("Protected", protected),
        ),
        (
            ("Left, in rho", f"eps {at_least(left.epsilon)}"),
            ("Left, pure", f"eps {at_least(left.pure_epsilon)}"),
            ("Neighbours", neighbours),
        ),
    )
    price = price_text(spent.epsilon, ledger.delta)
    told = tables.Prose((f"Spent: {price} in {len(runs)} run{'s' * (len(runs) != 1)}.", EITHER))
    line = tables.Rule("=")
    blocks = (line, head, line, _runs_grid(runs), line, *_asked(runs), told, line)
    alert = tables.ALERTS["published" if spent.kind == "published" else "proven"]
    return Summary(tables.Table("Privacy Ledger", blocks, alert))


def _asked(runs: pd.DataFrame) -> tuple[tables.TableBlock, ...]:
    """What each run asked, in lines of their own: a formula is longer than a column."""
    lines = [
        f"{str(run)[:RUN]}: {tables.clean(text)}" for run, text in runs["question"].items() if text
    ]
    return (tables.Prose(tuple(lines), "Questions"), tables.Rule("=")) if lines else ()


def _runs_grid(runs: pd.DataFrame) -> tables.TableGrid:
    shown = runs.replace({"epsilon": np.inf}, np.nan)
    rho, pure, epsilon = (
        column(shown[name].where(shown[name] > 0)) for name in ("rho", "pure", "epsilon")
    )
    return tables.filled(
        "Runs",
        tables.labelled_names("Run", (str(run)[:RUN] for run in runs.index), "run"),
        tables.labelled_names("day", runs["day"]),
        (tables.TableColumn("releases"), map(str, runs["releases"])),
        (tables.TableColumn("rho"), rho),
        (tables.TableColumn("pure eps", words="pure epsilon"), pure),
        (
            tables.TableColumn("delta"),
            (at_most(delta, 2) if delta else "" for delta in runs["delta"]),
        ),
        (tables.TableColumn("epsilon", words="epsilon (of this run alone)"), epsilon),
        frame=runs,
    )


def ledger_line(ledger: accounting.Ledger | None) -> str | None:
    """``Ledger 'rhc': 1.91 of 2 left.`` as the summary prints it."""
    if ledger is None:
        return None
    left, cap = at_least(ledger.remaining.epsilon), at_most(ledger.epsilon)
    return f"Ledger {ledger.dataset!r}: {left} of {cap} left."
