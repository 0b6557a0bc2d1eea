"""One figure for each paper on the page of the papers, from the rows that its study stored."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

ROWS = Path(__file__).parents[1] / "tests" / "benchmarks"
NIU = re.compile(r"MSE, A, n ([\d,]+), learner (\w+), eps (\d+)")


def niu() -> None:
    """Figure 2 on setup A: printed errors as lines, ours as points with 2.6 standard errors."""
    table = pd.read_csv(ROWS / "niu" / "verdicts.csv")
    table = table[table["item"] == "Figure 2"].set_index("says")
    found = {
        (learner, int(n.replace(",", "")), int(eps)): table.loc[says]
        for says in table.index
        if (match := NIU.fullmatch(says)) and (n := match[1]) and (learner := match[2])
        and (eps := match[3])
    }  # fmt: skip
    cells = pd.DataFrame(found).T.rename_axis(["learner", "n", "eps"])
    _, axes = plt.subplots(1, 3, figsize=(9, 3.2), sharey=True, layout="constrained")
    names = {"dr": "DR-learner", "r": "R-learner", "s": "S-learner"}
    for axis, (learner, name) in zip(axes, names.items(), strict=True):
        for k, n in enumerate((500, 2000, 8000, 32_000)):
            part = cells.loc[learner].loc[n].sort_index()
            x, printed, ours = part.index, part["printed"], part["measured"].astype(float)
            low, high = (
                ours * np.exp(sign * 2.6 * part["error"].astype(float)) for sign in (-1, 1)
            )
            axis.plot(x, printed, color=f"C{k}", label=f"n = {n:,}")
            axis.errorbar(x, ours, [ours - low, high - ours], fmt="o", ms=3, color=f"C{k}", lw=0.8)
        axis.set(xscale="log", yscale="log", title=name, xlabel="ε", xticks=[1, 2, 4, 8, 16])
        axis.set_xticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
        axis.minorticks_off()
    axes[0].set_ylabel("MSE (line: printed, points: ours)")
    axes[0].legend(fontsize=7)


def dpcate() -> None:
    """Figures 3 and 4: errors by epsilon, and those without noise."""
    rows = pd.read_csv(ROWS / "dpcate" / "runs.csv")
    _, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
    panels = {"dataset 1": "dataset 1", "dataset 1, DR": "dataset 1, DR-learner"}
    for axis, (figure, name) in zip(axes, panels.items(), strict=True):
        for k, method in enumerate(("finite, KR", "finite, NN", "functional")):
            own = rows[(rows["figure"] == figure) & (rows["method"] == method)]
            logs = np.log(own["pehe"]).groupby(own["eps"])
            mean, error = logs.mean(), logs.sem().fillna(0)
            noisy = mean[np.isfinite(mean.index)]
            _points(
                axis, noisy, error[noisy.index], f"C{k}", f"{method} ({logs.size().min()} runs)"
            )
            axis.axhline(np.exp(mean[np.inf]), color=f"C{k}", ls=":", lw=1)
        axis.set(xscale="log", yscale="log", title=name, xlabel="ε")
        axis.legend(fontsize=7)
    axes[0].set_ylabel("PEHE (dotted: without noise)")


def adum() -> None:
    """Figure 1: errors of both methods by epsilon, on the printed surface and on sin(pi x)."""
    rows = pd.read_csv(ROWS / "adum" / "figure1.csv")
    _, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    for axis, surface in zip(axes, ("sin x", "sin pi x"), strict=True):
        for k, method in enumerate(("ADUM, printed", "TM, printed", "TM, library")):
            own = rows[(rows["method"] == method) & (rows["surface"] == surface)]
            own = own.set_index("epsilon").sort_index()
            error = own["sd"] / own["pehe"] / np.sqrt(own["runs"] - 1)
            _points(axis, np.log(own["pehe"]), error, f"C{k}", method)
        axis.axvline(5, color="0.5", ls="--", lw=1, label="paper: ADUM is better up to here")
        axis.set(xscale="log", yscale="log", title=surface.replace("pi", "π"), xlabel="ε")
    axes[0].set_ylabel("PEHE")
    axes[0].legend(fontsize=7)


def private() -> None:
    """Table 1: our coverage against the printed coverage, with 2.6 standard errors."""
    rows = pd.read_csv(ROWS / "private" / "verdicts.csv")
    rows = rows[rows["item"] == "Table 1"]
    _, axis = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
    axis.plot([0, 1], [0, 1], color="0.6", lw=1)
    for k, method in enumerate(("PrivATE", "without privacy", "naive")):
        own = rows[rows["says"].str.contains(f", {method},", regex=False)]
        axis.errorbar(
            own["printed"], own["measured"], 2.6 * own["error"], fmt="o", ms=3, lw=0.8,
            color=f"C{k}", label=method,
        )  # fmt: skip
    axis.set(xlabel="printed coverage", ylabel="our coverage")
    axis.legend()


def _points(axis: Any, logs: Any, error: Any, color: str, label: str) -> None:
    """Means on a logarithmic axis, with 2.6 standard errors."""
    middle = np.exp(logs)
    low, high = np.exp(logs - 2.6 * error), np.exp(logs + 2.6 * error)
    axis.errorbar(
        middle.index, middle, [middle - low, high - middle], fmt="o-", ms=3, lw=1, color=color,
        label=label,
    )  # fmt: skip
