"""The guarantee of one fit, as a value and as text; and the summary of a ledger."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from privcausal import accounting
from privcausal.errors import LedgerError
from privcausal.estimators import Estimate, describe
from privcausal.prices import at_least, at_most, column, pair
from privcausal.report import summary, tables
from privcausal.request.request import Plan
from privcausal.typing import Kind, Neighbors


@dataclass(frozen=True)
class Guarantee:
    """The privacy guarantee of a fit.

    Attributes
    ----------
    epsilon, delta : float
        The requested cost; the fit spent at most this.
    rho : float or None
        The amount spent: mu^2 / 2 if all noise is Gaussian, otherwise zCDP. None if the cost is in
        epsilon and delta.
    neighbors : {"substitute", "add_remove"}
    unit : str
        Whose data are protected: ``"one row"``, or ``"one patient_id (at most 3 rows)"``.
    kind : {"proven", "published", "none"}
    statement : str
    trade_off : TradeOff or None
        If all noise is Gaussian: the smallest type II error, at each level, of any test between two
        neighboring tables. For `pc.paper.two_stage`: the composition of the trade-off functions
        that the stages of Algorithm 1 declare, min{f_1, ..., f_k}**.
    """

    epsilon: float
    delta: float
    rho: float | None
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
        return f"{price_text(self.epsilon, self.delta)}, {KINDS[self.kind]}"

    def _repr_html_(self) -> str:
        alert, statement = map(summary.escape_html, (tables.ALERTS[self.kind], self.statement))
        return f"<div>{alert and summary.ALERT_HTML.format(alert)}<p>{statement}</p></div>"


def price_text(epsilon: float, delta: float) -> str:
    """``"(1, 1e-05)-DP"``, or ``"1-DP (pure)"``."""
    if delta == 0:
        return f"{at_most(epsilon)}-DP (pure)"
    return f"{pair(epsilon, delta)}-DP"


def guarantee_of(estimate: Estimate) -> Guarantee:
    """The guarantee of a finished fit."""
    plan = estimate.plan
    if plan.request.mode == "paper":
        price, change = _words(plan)
        claim = f"{price} with {change} {describe(estimate).claim}."
        claim = f"{claim} This guarantee is claimed, not proven."
        statement, curve = " ".join((claim, *published_doubts(estimate))), plan.trade_off
        if not estimate.real:
            statement, curve = NOT_PRIVATE, None
        guarantee = _guarantee(plan, estimate.kind, statement)
        return replace(guarantee, delta=0.0 if plan.pure else guarantee.delta, trade_off=curve)
    if not plan.stages:
        return _guarantee(plan, "published", HANDED_OVER)
    return promise(plan, kind=estimate.kind, what=ALL_NUMBERS)


ALL_NUMBERS = "all numbers of this fit together"

KINDS: dict[Kind, str] = {
    "proven": "proven",
    "published": "claimed, not proven",
    "none": "NOT PRIVATE",
}
"""Kinds of guarantees as text."""

HANDED_OVER = (
    "The table of cells already contained noise. Its privacy guarantee is a claim by its "
    "publisher. privcausal read no other data, added no noise, and charged no budget."
)


def _guarantee(plan: Plan, kind: Kind, statement: str) -> Guarantee:
    trust, budget = plan.request.trust, plan.request.budget
    unit = f"one {trust.protected}"
    return Guarantee(budget.epsilon, budget.delta, None, trust.neighbors, unit, kind, statement)


def published_doubts(estimate: Estimate) -> tuple[str, ...]:
    """Assumptions behind a published claim, and known cases where it fails."""
    least, size = estimate.plan.least_rows, estimate.size
    doubts = describe(estimate).doubts
    if size is not None and size < least:
        return (
            *doubts,
            f"BELOW THE MINIMUM: with fewer than {least:,} rows the claim is false even if the "
            "nuisance models are known in advance. No valid epsilon is known for this fit. Treat "
            "it as not private.",
        )
    if not least:
        return doubts
    return (
        *doubts,
        f"The claim requires at least {least:,} complete rows. The number of complete rows is "
        "private, so this minimum was checked against all rows.",
    )


def promise(plan: Plan, *, kind: Kind, what: str) -> Guarantee:
    """The guarantee of a plan that has been spent; `what` names the released output, as text.

    `kind` is "published" if a proven mechanism was evaluated through a function whose own privacy
    is only claimed.
    """
    price, change = _words(plan)
    spent, law = plan.epsilon / accounting.PICO, "Gaussian noise" if plan.gdp else "zCDP"
    cost, cap = (at_most(rho / accounting.PICO) for rho in (plan.rho, plan.rho_cap))
    paid = f"rho = {cost} of {cap} ({law})"
    if plan.pure:
        paid = f"epsilon = {at_most(spent)}"
    elif plan.epsilon:
        paid += f", plus {pair(spent, plan.delta / accounting.PICO)}-DP"
    statement = (
        f"{price}, proven. The guarantee covers {what} and holds for any data. Neighboring data "
        f"sets: {change}.{AGGREGATED * plan.aggregated} Budget used: {paid}."
    )
    if kind == "none":
        statement = NOT_PRIVATE
    elif kind == "published":
        statement = (
            f"{statement.replace(', proven.', '.', 1)} It evaluated functions of a fit whose "
            "guarantee is only claimed. No guarantee has been established for the two together."
        )
    guarantee = _guarantee(plan, kind, statement)
    budget = plan.request.budget
    if plan.pure:
        return replace(guarantee, epsilon=spent, delta=0.0)
    delta = accounting.delta_after(budget.delta, plan.delta)
    epsilon = min(spent + accounting.epsilon_of(plan.rho, delta, plan.gdp), budget.epsilon)
    guarantee = replace(guarantee, epsilon=epsilon, rho=plan.rho / accounting.PICO)
    if not plan.gdp or plan.epsilon or kind != "proven" or plan.rho > 450 * accounting.PICO:
        return guarantee  # Beyond mu = 30 every guess may be right.
    curve = accounting.TradeOff.from_noise(plan.rho, len(plan.stages), plan.delta / accounting.PICO)
    return replace(guarantee, trade_off=curve)


AGGREGATED = (
    " It assumes that each row was counted once, with its outcome clipped to its bounds, and that "
    "the sums are exact (a 64-bit floating-point sum may be the exact sum rounded once)."
)
"""Assumptions about sums that were formed outside the package."""

NOT_PRIVATE = "NOT PRIVATE: computed with test noise, without any privacy guarantee."


def neighboring(neighbors: Neighbors, unit: str) -> str:
    """``"one row replaced"``: the difference between two neighboring data sets."""
    return f"{unit} {'replaced' if neighbors == 'substitute' else 'added or removed'}"


def _words(plan: Plan) -> tuple[str, str]:
    """The requested cost, and the difference between two neighboring data sets."""
    budget, trust = plan.request.budget, plan.request.trust
    price = f"{pair(budget.epsilon, budget.delta)}-differential privacy"
    if plan.pure:
        price = f"{at_most(budget.epsilon)}-differential privacy (pure, delta = 0)"
    return price, neighboring(trust.neighbors, f"one {trust.protected}")


# -- the ledger ------------------------------------------------------------------------------------

RUN = 8
"""Characters of a run's name in the printed table; `tables` has the full name."""

LESS = "fits with Gaussian noise cost less together than the sum of their epsilons"
EITHER = (
    "The remaining budget can be spent as rho (Gaussian noise) or as pure epsilon, not both. "
    f"{LESS[0].upper()}{LESS[1:]}, so more may remain than the cap minus these epsilons. "
    "Charges are never refunded."
)


def ledger_summary(ledger: accounting.Ledger) -> summary.Summary:
    """Summary of a ledger: a line for each run in order, then the spent and remaining budget."""
    history, spent, left = ledger.history, ledger.spent, ledger.remaining
    runs = ledger.runs.set_index("run")
    protected, neighbors = "any, until the first fit", "any"
    if len(history):
        protected = f"one {tables.clean(history['unit'].iloc[0])}"
        neighbors = history["neighbors"].iloc[0].replace("_", "/")
    name, cap = tables.clean(ledger.dataset), price_text(ledger.epsilon, ledger.delta)
    rest = (
        ("Remaining (Gaussian)", f"eps {at_least(left.epsilon)}"),
        ("Remaining (pure)", f"eps {at_least(left.pure_epsilon)}"),
        ("Neighboring data", neighbors),
    )
    facts = (("Data set", name), ("Cap", cap), ("Protected unit", protected))
    head = tables.Pairs("The ledger", facts, rest)
    price = price_text(spent.epsilon, ledger.delta)
    cost = tables.Prose((f"Spent: {price} in {len(runs)} run{'s' * (len(runs) != 1)}.", EITHER))
    # The query of each run has lines of its own, because a formula is too long for a column.
    queries = tuple(
        f"{str(run)[:RUN]}: {tables.clean(text)}" for run, text in runs["question"].items() if text
    )
    finite = runs.replace({"epsilon": np.inf}, np.nan)
    rho, pure, epsilon = (
        column(finite[name].where(finite[name] > 0)) for name in ("rho", "pure", "epsilon")
    )
    grid = tables.filled(
        "Runs",
        tables.labelled_names("Run", (str(run)[:RUN] for run in runs.index), "run"),
        tables.labelled_names("day", runs["day"]),
        (tables.TableColumn("releases"), map(str, runs["releases"])),
        (tables.TableColumn("rho"), rho),
        (tables.TableColumn("pure eps", words="pure epsilon"), pure),
        (tables.TableColumn("delta"), (at_most(d, 2) if d else "" for d in runs["delta"])),
        (tables.TableColumn("epsilon", words="epsilon of this run alone"), epsilon),
        frame=runs,
    )
    line = tables.Rule("=")
    listed = (tables.Prose(queries, "Queries"), line) if queries else ()
    blocks = (line, head, line, grid, line, *listed, cost, line)
    alert = tables.ALERTS["published" if spent.kind == "published" else "proven"]
    return summary.Summary("Privacy Ledger", blocks, alert)


def ledger_line(ledger: accounting.Ledger | None) -> str | None:
    """``Ledger 'rhc': epsilon 1.91 of 2 remaining.``, as the summary prints it."""
    if ledger is None:
        return None
    try:
        remaining, simple = ledger.remaining.epsilon, ledger.epsilon - ledger.spent.epsilon
    except LedgerError as error:  # the fit is paid for, and keeps its result
        return f"Ledger {ledger.dataset!r} was charged, and cannot be read now: {error}"
    left, less, cap = at_least(remaining), at_least(max(simple, 0.0)), at_most(ledger.epsilon)
    more = remaining > simple and left != less
    why = f" More remains than {less}, because {LESS}." if more else ""
    return f"Ledger {ledger.dataset!r}: epsilon {left} of {cap} remaining.{why}"
