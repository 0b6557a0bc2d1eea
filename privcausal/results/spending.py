"""A ledger in words: what was spent by which run, and what is left. Prices only, no answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privcausal.report import numbers
from privcausal.report.summary import Summary
from privcausal.report.table import Column, Grid, Pairs, Prose, Rule, Table
from privcausal.report.words import ALERTS, clean
from privcausal.typing import Kind

if TYPE_CHECKING:
    import pandas as pd

    from privcausal.accounting import Ledger

TITLE = "Privacy Ledger"

RUN = 8
"""Characters of a run's name that the table shows; `tables` has it whole."""

EITHER = (
    "What is left is one or the other, in rho (as eps of a fit with Gaussian noise) or in pure "
    "epsilon. Fits priced in rho cost less together than the sum of their eps, so more can be left "
    "than the cap less what was spent. Charges are never refunded."
)


def spending(ledger: Ledger) -> Summary:
    """The summary of a ledger: a line for each run in order, then what is spent and left."""
    runs = _runs(ledger.history)
    spent = ledger.spent
    blocks = (
        Rule("="), Pairs("The ledger", *_heads(ledger)), Rule("="), _grid(runs), Rule("="),
        Prose((f"Spent: {_price(spent.epsilon, ledger.delta)} in {_count(len(runs))}.", EITHER)),
        Rule("="),
    )  # fmt: skip
    kind: Kind = "published" if spent.kind == "published" else "proven"
    return Summary(Table(TITLE, blocks, ALERTS[kind]))


def _heads(ledger: Ledger) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    history, left = ledger.history, ledger.remaining
    protected = (
        f"one {clean(history['unit'].iloc[0])}" if len(history) else "any, until the first fit"
    )
    neighbours = history["neighbors"].iloc[0].replace("_", "/") if len(history) else "any"
    return (
        ("Data set", clean(ledger.dataset)),
        ("Cap", _price(ledger.epsilon, ledger.delta)),
        ("Protected", protected),
    ), (
        ("Left, in rho", f"eps {left.epsilon:.4g}"),
        ("Left, pure", f"eps {left.pure_epsilon:.4g}"),
        ("Neighbours", neighbours),
    )


def _price(epsilon: float, delta: float) -> str:
    return f"({epsilon:.4g}, {delta:.3g})-DP" if delta else f"{epsilon:.4g}-DP (pure)"


def _count(runs: int) -> str:
    return f"{runs} run{'s' * (runs != 1)}"


def _runs(history: pd.DataFrame) -> pd.DataFrame:
    """day releases rho epsilon delta, a row for each run in the order of the first charge."""
    return history.groupby("run", sort=False).agg(
        day=("day", "first"), releases=("stage", "size"), rho=("rho", "sum"),
        epsilon=("epsilon", "sum"), delta=("delta", "sum"),
    )  # fmt: skip


def _grid(runs: pd.DataFrame) -> Grid:
    columns = (
        Column("Run", "left", "run"),
        Column("day", "left"),
        Column("releases"),
        Column("rho"),
        Column("epsilon", words="epsilon (pure)"),
        Column("delta"),
    )
    paid = (runs[name].where(runs[name] > 0) for name in ("rho", "epsilon"))
    prices = zip(*(numbers.amounts(amounts) for amounts in paid), strict=True)
    rows = tuple(
        (
            str(run)[:RUN],
            str(row["day"]),
            str(row["releases"]),
            *price,
            numbers.number(row["delta"], 2) if row["delta"] else "",
        )
        for (run, row), price in zip(runs.iterrows(), prices, strict=True)
    )
    return Grid("Runs", columns, rows, runs)
