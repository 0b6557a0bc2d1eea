"""Curves of a plan: half-width and utility against epsilon, half-width against n."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from privcausal.report.axes import BLUE, GREY, INK, VERMILION, axes_of, calm, finite, titles
from privcausal.report.numbers import level, percent, point

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

LINES = (
    (BLUE, "o"), (VERMILION, "s"), ("#009E73", "^"), ("#CC79A7", "D"), (INK, "v"), ("#B07900", "P"),
)  # fmt: skip
"""Colour and marker of each line of a plan; markers tell the lines apart without colour."""

DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1, 2)))


def plan_plot(
    plan: pd.DataFrame, *, by: str = "eps", ax: Axes | None = None, alpha: float = 0.05
) -> Axes:
    """Planned half-width against epsilon, a line per n, or against n, a line per epsilon.

    Parameters
    ----------
    plan : DataFrame
        Columns n, eps, half-width, sampling (the half-width without privacy noise), and planned:
        which points were asked for; they are marked.
    by : {"eps", "n"}
        The axis across; both axes are logarithmic.
    """
    ax = axes_of(ax, height=3.6)
    calm(ax, across="both")
    other = "n" if by == "eps" else "eps"
    values = plan[other].unique().tolist()
    for number, value in enumerate(values):
        line = plan[plan[other] == value]
        color, marker = LINES[number % len(LINES)]
        x, width = finite(line[by]), finite(line["half-width"])
        name = f"n = {value:,.0f}" if other == "n" else f"eps = {point(value)}"
        ax.plot(x, width, color=color, linewidth=1.8, zorder=3)
        asked = line["planned"].to_numpy(dtype=bool)
        ax.plot(
            x[asked], width[asked], marker, color=color, markersize=6, markeredgecolor="white",
            label=name, zorder=4,
        )  # fmt: skip
        if other == "n" or number == len(values) - 1:
            floor = color if other == "n" else GREY
            ax.plot(x, finite(line["sampling"]), linestyle=(0, (4, 3)), color=floor, linewidth=1)
    _log_axes(ax, plan[by].min(), plan[by].max())
    ax.set_xlabel("epsilon" if by == "eps" else "number of rows n")
    ax.set_ylabel(f"half-width of the {level(alpha)} interval")
    ax.legend(frameon=False, fontsize=9, loc="upper right", labelcolor=INK)
    titles(ax, "Planned half-width", "dashed: without privacy noise")
    return ax


def utility_plot(curve: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Weighted utility of privacy and precision against epsilon, a line per weight.

    Parameters
    ----------
    curve : DataFrame
        Columns n, eps, weight (of privacy), utility (0 to 1). The best epsilon of each line is
        marked.
    """
    ax = axes_of(ax, height=3.6)
    calm(ax, across="both")
    for number, weight in enumerate(curve["weight"].unique().tolist()):
        line = curve[curve["weight"] == weight]
        color, marker = LINES[number % len(LINES)]
        x, utility = finite(line["eps"]), finite(line["utility"])
        best = int(np.nanargmax(utility))
        # at an end of the curve the best may lie beyond it
        sign = "≤" if best == 0 else "≥" if best == len(x) - 1 else "="
        ax.plot(
            x, utility, linestyle=DASHES[number % len(DASHES)], color=color, linewidth=1.8, zorder=3
        )
        ax.plot(
            x[best], utility[best], marker, color=color, markersize=8, markeredgecolor="white",
            label=f"privacy weighs {percent(weight)}: best at eps {sign} {point(x[best])}",
            zorder=4,
        )  # fmt: skip
    ax.set_xscale("log")
    _plain_ticks(ax.xaxis, curve["eps"].min(), curve["eps"].max())
    ax.set_ylim(0, 1.45)  # the legend stands above the lines, whatever they do
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1])
    ax.set_xlabel("epsilon")
    ax.set_ylabel("utility of privacy and precision")
    ax.legend(frameon=False, fontsize=9, loc="upper left", labelcolor=INK)
    rows = f"n = {float(curve['n'].iloc[0]):,.0f}"
    titles(ax, f"Weighted utility, {rows}", "precision: width without noise / planned")
    return ax


def _log_axes(ax: Axes, low: float, high: float) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    _plain_ticks(ax.xaxis, low, high)
    least, most = ax.get_ylim()
    _plain_ticks(ax.yaxis, least, most)


STEPS = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7))
"""Multiples of powers of ten that may be ticks: the first that give enough do."""

ENOUGH = 3


def _plain_ticks(axis: Axis, low: float, high: float) -> None:
    """Ticks within the range of a logarithmic axis, written as plain numbers."""
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    candidates = [[m * 10.0**k for k in powers for m in steps] for steps in STEPS]
    candidates.append([float(tick) for tick in MaxNLocator(5).tick_values(low, high)])
    inside = [[t for t in ticks if 0.99 * low <= t <= 1.01 * high] for ticks in candidates]
    kept = next((ticks for ticks in inside if len(ticks) >= ENOUGH), inside[-1])
    axis.set_major_locator(FixedLocator(kept))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1000 else f"{value:.6g}")
