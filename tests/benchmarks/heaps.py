"""Coverage of sparse, heaped amounts: what most did not pay, and many who did paid one price.

Run ``python tests/benchmarks/heaps.py [--quick] [repetitions]``. The cells were fixed before any of
them was fitted: 0.3 to 10 % of the rows are not zero, of these 0 to 90 % at one to four prices, the
others uniform, log-normal or with a heavy tail (index 1.5, cut at 500); 2 to 5 arms, eps 0.5 to 4.
*width* is the half-width over that of the difference of the arms' means without privacy, *sd* the
mean standard error over the same difference's, *alerts* the mean number of alerts of a fit.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import privcausal as pc
from privcausal.testing import seeded_noise

WHOLE, CAP, LABELS = 3_000_000, 500, "abcde"


class Law(NamedTuple):
    """`heap` of the amounts are at `prices` values; `pull` is how much covariates move the arm."""

    n: int
    arms: int
    columns: int
    nonzero: float
    heap: float
    prices: int
    rest: str
    pull: float = 0.0


class Cell(NamedTuple):
    law: Law
    eps: float
    call: str = "private"


MAIL = Law(64_000, 3, 7, 0.009, 0.26, 1, "lognormal")
"""As in a public e-mail trial."""

CELLS = (
    *(Cell(MAIL, eps) for eps in (0.5, 0.7, 1.0, 1.4, 4.0)),
    Cell(MAIL._replace(heap=0.7), 1.4),
    Cell(MAIL._replace(heap=0.5, rest="heavy"), 1.0),
    Cell(MAIL._replace(nonzero=0.003, n=100_000), 1.0),
    Cell(Law(20_000, 4, 3, 0.1, 0.9, 4, "uniform", 0.3), 0.5),
    Cell(Law(20_000, 5, 2, 0.05, 0.5, 2, "heavy", 0.3), 2.0),
    Cell(Law(30_000, 3, 4, 0.03, 0.5, 2, "lognormal", 0.3), 1.0),
    Cell(Law(30_000, 2, 4, 0.03, 0.5, 2, "lognormal", 0.3), 1.0),
    Cell(MAIL._replace(arms=2, heap=0.7), 1.0),
    Cell(MAIL._replace(arms=2, heap=0.7), 1.0, "trial"),
    Cell(MAIL, 1.0, "trial"),
    Cell(MAIL._replace(arms=2, heap=0.7), 1.0, "plr"),
    Cell(MAIL._replace(arms=2, heap=0.7), 1.0, "r"),
    Cell(MAIL._replace(arms=2, heap=0.7), 1.0, "regress"),
    Cell(MAIL._replace(arms=2, heap=0.7, columns=2), 1.0, "bought"),
)


def draw(law: Law, seed: int, n: int | None = None, arm: int | None = None) -> pd.DataFrame:
    rng, fixed = np.random.default_rng([seed, 1]), np.random.default_rng(law.columns)
    n = n or law.n
    x = rng.standard_normal((n, law.columns)).clip(-3, 3)
    size = np.sqrt(law.columns)
    slopes = 0.5 * fixed.standard_normal(law.columns) / size
    lift = law.pull * x @ fixed.standard_normal((law.columns, law.arms)) / size
    gumbel = rng.gumbel(size=(n, law.arms))
    t = np.argmax(lift + gumbel, axis=1) if arm is None else np.full(n, arm)
    chance = law.nonzero * np.exp(x @ slopes - slopes @ slopes / 2) * (1 + 0.3 * t)
    prices = np.round(29.99 * 1.7 ** np.arange(law.prices), 2)
    rest = {
        "uniform": lambda: rng.uniform(10, 120, n),
        "lognormal": lambda: rng.lognormal(4.5, 0.75, n),
        "heavy": lambda: 15 + 20 * rng.pareto(1.5, n),
    }[law.rest]()
    amount = np.where(rng.random(n) < law.heap, rng.choice(prices, n), rest)
    y = np.where(rng.random(n) < chance, amount, 0.0).clip(0, CAP)
    frame = pd.DataFrame(x, columns=[f"X{j + 1}" for j in range(law.columns)])
    return frame.assign(Y=y, T=t if law.arms == 2 else np.array(list(LABELS))[t])


def fitted(cell: Cell, rows: pd.DataFrame) -> Any:
    law, eps = cell.law, cell.eps
    names = [c for c in rows if c not in ("Y", "T")]
    bounds: dict[str, Any] = {"Y": (0, CAP), **dict.fromkeys(names, (-3, 3))}
    if law.arms > 2:
        bounds["T"] = list(LABELS[: law.arms])
    formula = f"Y ~ T | {' + '.join(names)}"
    if cell.call == "trial":
        return pc.private("Y ~ T", rows, eps=eps, bounds=bounds)
    if cell.call == "plr":
        return pc.private(formula, rows, eps=eps, bounds=bounds, estimand="PLR")
    if cell.call == "r":
        return pc.privcate(formula, rows, eps=eps, bounds=bounds)
    if cell.call == "regress":
        formula = f"Y ~ T + {' + '.join(names)}"
        return pc.regress(formula, rows, eps=eps, bounds={**bounds, "T": (0, 1)})
    if cell.call == "bought":
        del bounds["Y"]
    return pc.private(formula, rows, eps=eps, bounds=bounds)


def truth(law: Law) -> Any:
    share = WHOLE // law.arms
    means = [draw(law, 10**6 + arm, share, arm)["Y"].mean() for arm in range(law.arms)]
    return np.array(means[1:]) - means[0]


def line(cell: Cell, repetitions: int) -> str:
    """The cell with what was found in it."""
    law, known, rows_ = cell.law, truth(cell.law), []
    for seed in range(repetitions):
        rows = draw(law, seed)
        with seeded_noise(seed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                fit = fitted(cell, rows)
            except pc.BudgetError:  # nothing but zeros is seen where bounds are bought
                continue
        table = fit.tidy()
        at = slice(1, 2) if cell.call == "regress" else slice(law.arms - 1)
        table = table.iloc[at]
        arms = rows.groupby("T")["Y"]
        plain = np.sqrt((arms.var() / arms.size()).to_numpy())
        plain = np.hypot(plain[0], plain[1:])
        low, high = table["conf_low"].to_numpy(), table["conf_high"].to_numpy()
        held = (low <= known) & (known <= high)
        sd = table["std_error"].to_numpy() / plain
        rows_.append(
            (held.mean(), ((high - low) / 3.92 / plain).mean(), sd.mean(), len(fit.alerts))
        )
    if not rows_:
        return f"{_named(cell)}  no fit: refused"
    held, width, sd, alerts = np.mean(rows_, axis=0)
    return f"{_named(cell)} {len(rows_):5d} {held:8.3f} {width:6.2f} {sd:6.2f} {alerts:6.2f}"


def _named(cell: Cell) -> str:
    law = cell.law
    return (
        f"{cell.call:8s} {law.n:7d} {law.arms:4d} {law.columns:3d} {law.nonzero:7.3f} "
        f"{law.heap:5.2f} {law.prices:6d} {law.rest:>10s} {cell.eps:4.1f}"
    )


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[1:] if a.isdigit()]
    quick = "--quick" in sys.argv
    print(
        "call         n arms  p nonzero  heap prices       rest  eps  fits  covered  width     sd"
        " alerts"
    )
    for one in CELLS[:: 10 if quick else 1]:
        print(line(one, 2 if quick else (numbers or [200])[0]), flush=True)
