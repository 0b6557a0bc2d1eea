"""Plots of one kind of fit, plans, sensitivity, and diagnostics, in the style of `plots`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from privcausal.prices import at_most
from privcausal.report import plots, tables
from privcausal.report.tables import confidence, share_percent

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

LINES = (
    (plots.BLUE, "o"),
    (plots.VERMILION, "s"),
    ("#009E73", "^"),
    ("#CC79A7", "D"),
    (plots.INK, "v"),
    ("#B07900", "P"),
)
"""Color and marker of each line of a plan; markers identify the lines without color."""

DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1, 2)))


def plan_plot(
    plan: pd.DataFrame, *, by: str = "eps", ax: Axes | None = None, alpha: float = 0.05
) -> Axes:
    """Planned half-width against epsilon, a line per n, or against n, a line per epsilon.

    Parameters
    ----------
    plan : DataFrame
        Columns n, eps, half-width, sampling (the half-width without privacy noise), and planned.
        Planned points are the requested points, and are marked.
    by : {"eps", "n"}
        The horizontal axis; both axes are logarithmic.
    """
    ax = plots.axes_of(ax, height=3.6)
    plots.calm(ax, across="both")
    other = "n" if by == "eps" else "eps"
    values = plan[other].unique().tolist()
    for number, value in enumerate(values):
        line = plan[plan[other] == value]
        color, marker = LINES[number % len(LINES)]
        x, width = plots.finite(line[by]), plots.finite(line["half-width"])
        name = f"n = {value:,.0f}" if other == "n" else f"eps = {at_most(value)}"
        ax.plot(x, width, color=color, linewidth=1.8, zorder=3)
        planned = line["planned"].to_numpy(dtype=bool)
        ax.plot(
            x[planned],
            width[planned],
            marker,
            color=color,
            markersize=6,
            markeredgecolor="white",
            label=name,
            zorder=4,
        )
        if other == "n" or number == len(values) - 1:
            floor = color if other == "n" else plots.GREY
            ax.plot(
                x, plots.finite(line["sampling"]), linestyle=(0, (4, 3)), color=floor, linewidth=1
            )
    ax.set_xscale("log")
    ax.set_yscale("log")
    _plain_ticks(ax.xaxis, plan[by].min(), plan[by].max())
    least, most = ax.get_ylim()
    _plain_ticks(ax.yaxis, least, most)
    ax.set_xlabel("epsilon" if by == "eps" else "number of rows n")
    ax.set_ylabel(f"half-width of the {confidence(alpha)} interval")
    ax.legend(frameon=False, fontsize=9, loc="upper right", labelcolor=plots.INK)
    plots.titles(ax, "Planned half-width", "dashed: without privacy noise")
    return ax


def utility_plot(curve: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Weighted utility of privacy and precision against epsilon, a line per weight.

    Parameters
    ----------
    curve : DataFrame
        Columns n, eps, weight (of privacy), utility (0 to 1). The best epsilon of each line is
        marked.
    """
    ax = plots.axes_of(ax, height=3.6)
    plots.calm(ax, across="both")
    for number, weight in enumerate(curve["weight"].unique().tolist()):
        line = curve[curve["weight"] == weight]
        color, marker = LINES[number % len(LINES)]
        x, utility = plots.finite(line["eps"]), plots.finite(line["utility"])
        best = int(np.nanargmax(utility))
        # At an end of the curve, the true optimum may lie beyond the curve.
        sign = "≤" if best == 0 else "≥" if best == len(x) - 1 else "="
        ax.plot(
            x, utility, linestyle=DASHES[number % len(DASHES)], color=color, linewidth=1.8, zorder=3
        )
        ax.plot(
            x[best],
            utility[best],
            marker,
            color=color,
            markersize=8,
            markeredgecolor="white",
            label=f"privacy weight {share_percent(weight)}: best eps {sign} {at_most(x[best])}",
            zorder=4,
        )
    ax.set_xscale("log")
    _plain_ticks(ax.xaxis, curve["eps"].min(), curve["eps"].max())
    ax.set_ylim(0, 1.45)  # This leaves space for the legend above the lines.
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1])
    ax.set_xlabel("epsilon")
    ax.set_ylabel("utility of privacy and precision")
    ax.legend(frameon=False, fontsize=9, loc="upper left", labelcolor=plots.INK)
    rows = f"n = {float(curve['n'].iloc[0]):,.0f}"
    plots.titles(ax, f"Weighted utility, {rows}", "precision: noise-free width / planned width")
    return ax


TICK_STEPS = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7))
"""Multiples of powers of ten for ticks; the first set with three ticks or more is used."""


def _plain_ticks(axis: Axis, low: float, high: float) -> None:
    """Ticks within the range of a logarithmic axis, written as plain numbers."""
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    candidates = [[m * 10.0**k for k in powers for m in steps] for steps in TICK_STEPS]
    candidates.append([float(tick) for tick in MaxNLocator(5).tick_values(low, high)])
    inside = [[t for t in ticks if 0.99 * low <= t <= 1.01 * high] for ticks in candidates]
    chosen = next((ticks for ticks in inside if len(ticks) >= 3), inside[-1])
    axis.set_major_locator(FixedLocator(chosen))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1000 else f"{value:.6g}")


def sensitivity_plot(
    frame: pd.DataFrame, robustness: pd.Series[float], ax: Axes | None = None, alpha: float = 0.05
) -> Axes:
    """Possible estimates under an unmeasured confounder, by its strength.

    Parameters
    ----------
    frame : DataFrame
        Columns strength (0 to 1), low, high, conf_low, conf_high.
    robustness : Series
        Strengths at which the interval and the estimate reach zero; each is marked.
    """
    ax = plots.axes_of(ax, height=3.4)
    plots.calm(ax, across="y")
    x = 100 * plots.finite(frame["strength"])
    for names, alpha_of in ((("conf_low", "conf_high"), 0.25), (("low", "high"), 0.45)):
        low, high = (plots.finite(frame[name]) for name in names)
        ax.fill_between(x, low, high, color=plots.SKY, alpha=alpha_of, linewidth=0)
    for name in ("low", "high", "conf_low", "conf_high"):
        inner = not name.startswith("conf")
        ax.plot(x, plots.finite(frame[name]), color=plots.BLUE, linewidth=1.6 if inner else 0.8)
    ax.axhline(0, **plots.ZERO_LINE)
    ax.set_xlim(0, x[-1])
    for name, marker in (("interval", "o"), ("estimate", "D")):
        value = float(robustness[name])
        if 0 < value < 1:
            ax.plot(
                [100 * value],
                [0],
                marker,
                color=plots.VERMILION,
                markersize=7,
                markeredgecolor="white",
                clip_on=False,
                zorder=5,
                label=f"{name} reaches zero at {share_percent(value)}",
            )
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, fontsize=9, loc="best", labelcolor=plots.INK)
    ax.set_xlabel(
        "residual variance that a confounder explains,\nin both outcome and treatment (%)"
    )
    ax.set_ylabel("average effect")
    plots.titles(ax, "Sensitivity", f"dark: possible estimates; light: {confidence(alpha)} limits")
    return ax


# -- event studies, survival, instruments, regressions ----------------------------------------


def event_plot(
    events: pd.DataFrame, time: str, *, ax: Axes | None = None, alpha: float = 0.05
) -> Axes:
    """Effects by time since treatment: pointwise intervals and simultaneous bands.

    Parameters
    ----------
    events : DataFrame
        Index: event times as text; columns estimate, conf_low, conf_high, band_low, band_high.
    """
    ax = plots.axes_of(ax, height=3.6)
    plots.calm(ax, across="y")
    x = events.index.to_numpy(dtype=float)
    ax.axhline(0, **plots.ZERO_LINE)
    for kind, color, width in (("band", plots.SKY, 1.4), ("conf", plots.BLUE, 3.4)):
        low, high = (plots.finite(events[f"{kind}_{side}"]) for side in ("low", "high"))
        ax.vlines(x, low, high, color=color, linewidth=width, zorder=2)
    before = x < 0
    for part, face, label in (
        (before, "white", "before treatment"),
        (~before, plots.BLUE, "from treatment on"),
    ):
        ax.plot(
            x[part],
            plots.finite(events["estimate"])[part],
            "o",
            color=plots.BLUE,
            markersize=6,
            markerfacecolor=face,
            markeredgewidth=1.6,
            label=label,
            zorder=4,
        )
    if before.any() and not before.all():
        last, first = x[before][-1], x[~before][0]
        ax.axvline((last + first) / 2, color=plots.VERMILION, linewidth=1.2, zorder=1)
    ax.set_xticks(x, list(events.index))
    ax.margins(x=0.08)
    plots.xlabel(ax, f"time since treatment ({time})")
    ax.set_ylabel("average effect", **plots.AS_TYPED)
    bottom, top = ax.get_ylim()
    ax.set_ylim(bottom, top + 0.2 * (top - bottom))  # room for the legend
    ax.legend(
        framealpha=1, edgecolor="none", fontsize=9, loc="upper left", ncols=2, labelcolor=plots.INK
    )
    level = confidence(alpha)
    label = f"thick: {level}; thin: {level} for all together; vertical line: treatment"
    plots.titles(ax, "Effect by time since treatment", label)
    return ax


def survival_plot(
    curves: pd.DataFrame, time: str, *, ax: Axes | None = None, alpha: float = 0.05, mean: bool
) -> Axes:
    """Survival curves by arm as steps, with simultaneous bands and numbers at risk.

    Parameters
    ----------
    curves : DataFrame
        Columns arm, time, survival, band_low, band_high, at_risk.
    mean : bool
        Whether to shade the area between the curves, the difference of mean survival times.
    """
    ax = plots.axes_of(ax, height=4.2)
    plots.calm(ax, across="y")
    arms = [(tables.clean(arm), curve) for arm, curve in curves.groupby("arm", sort=False)]
    x = plots.finite(arms[0][1]["time"])
    for (arm, curve), color, width in zip(arms, (plots.INK, plots.BLUE), (1.2, 2.4), strict=True):
        low, high = (plots.finite(curve[f"band_{side}"]) for side in ("low", "high"))
        ax.fill_between(x, low, high, step="post", color=color, alpha=0.25, linewidth=0)
        label = tables.cut(arm, plots.PICTURE_NAME)
        ax.step(x, curve["survival"], where="post", color=color, linewidth=width, label=label)
    if mean:
        first, second = (plots.finite(curve["survival"]) for _, curve in arms)
        ax.fill_between(x, first, second, step="post", color=plots.PALE, linewidth=0, zorder=0)
    ax.set_ylim(0, 1)
    ax.set_xlim(0, x[-1])
    risk = at_risk(curves)
    ax.set_xticks(list(risk.index), [f"{t:g}" for t in risk.index])
    plots.xlabel(ax, time)
    ax.set_ylabel("probability of no event")
    ax.legend(frameon=False, fontsize=9, labelcolor=plots.INK)
    area = "; between the curves: difference of means" if mean else ""
    reading = f"bands: {confidence(alpha)} simultaneous{area}"
    plots.titles(ax, "Survival by arm, not adjusted", reading)
    below: dict[str, Any] = {
        "textcoords": "offset points", "annotation_clip": False, "fontsize": 8.5,
        "color": plots.INK, "va": "top", **plots.AS_TYPED,
    }  # fmt: skip
    for row, (arm, _) in enumerate(arms):
        name = f"At risk (noisy), {tables.cut(arm, plots.PICTURE_NAME)}:"
        ax.annotate(name, (0, 0), (-26, -34 - 27 * row), xycoords="axes fraction", **below)
        for t, value in zip(risk.index, risk.iloc[:, row], strict=True):
            ax.annotate(
                f"{value:,.0f}",
                (t, 0),
                (0, -46 - 27 * row),
                ha="center",
                xycoords=("data", "axes fraction"),
                **below,
            )
    return ax


def at_risk(curves: pd.DataFrame) -> pd.DataFrame:
    """Noisy numbers at risk at a few times, one column for each arm."""
    from matplotlib.ticker import MaxNLocator

    wide = curves.pivot(index="time", columns="arm", values="at_risk")[curves["arm"].unique()]
    ticks = np.asarray(MaxNLocator(5).tick_values(0, wide.index[-1]))
    near = np.abs(wide.index.to_numpy()[:, None] - ticks[(ticks >= 0) & (ticks <= wide.index[-1])])
    return wide.iloc[np.unique(near.argmin(axis=0))].rename_axis(columns=None)


# -- diagnostic releases ---------------------------------------------------------------------

NOISE_95 = 1.96

IMBALANCE = 0.1
"""A standardized difference beyond this is commonly called an imbalance (Austin 2009)."""


def overlap_plot(
    frame: pd.DataFrame, ax: Axes | None = None, arms: Sequence[str] = ("control", "treated")
) -> Axes:
    """Rows by propensity: treated upward, controls downward, whiskers for the noise.

    Parameters
    ----------
    frame : DataFrame
        Columns low, high, treated, control, std_error. The outer cells hold clipped propensities.
    arms : (str, str)
        Names of the control arm and of the treated arm.
    """
    ax = plots.axes_of(ax, height=3.4)
    plots.calm(ax, across="y")
    places = np.arange(len(frame), dtype=float)
    places[[0, -1]] += [-0.5, 0.5]  # Set the cells of clipped propensities apart.
    noise = NOISE_95 * plots.finite(frame["std_error"])
    for name, sign, color, hatch in (
        ("treated", 1, plots.BLUE, ""),
        ("control", -1, plots.SKY, "///"),
    ):
        counts = plots.finite(frame[name])
        ax.bar(
            places,
            sign * np.maximum(counts, 0.0),
            width=0.9,
            color=color,
            hatch=hatch,
            edgecolor="white" if not hatch else plots.INK,
            linewidth=0.5,
            zorder=2,
        )
        low, high = np.maximum(counts - noise, 0.0), np.maximum(counts + noise, 0.0)
        ax.vlines(places, sign * low, sign * high, color=plots.INK, linewidth=1, zorder=3)
    ax.axhline(0, color=plots.INK, linewidth=0.8, zorder=4)
    # Arm names in the corners instead of a legend, and counts without a sign.
    most = float(np.nanmax(np.r_[frame["treated"] + noise, frame["control"] + noise, 1.0]))
    ax.set_ylim(-1.3 * most, 1.3 * most)
    ax.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    control, treated = (tables.cut(tables.clean(arm), plots.PICTURE_NAME) for arm in arms)
    for text, height in ((treated, 0.96), (f"{control} (hatched)", 0.04)):
        ax.annotate(
            text,
            (0.01, height),
            xycoords="axes fraction",
            va="top" if height > 0.5 else "bottom",
            color=plots.INK,
            fontsize=9.5,
            fontweight="bold",
            bbox={"color": "white", "pad": 1.5},
            **plots.AS_TYPED,
        )
    ax.set_ylabel("rows (noisy count)")
    # Cell borders as ticks, and names of the two cells of clipped propensities.
    borders = frame["high"].to_numpy()[:-1]
    step = max(1, (len(borders) - 1) // 4)
    ticked = np.arange(0, len(borders), step)
    ticks = np.r_[places[0], ticked + 0.5, places[-1]]
    ends = (f"≤ {borders[0]:.2g}", f"≥ {borders[-1]:.2g}")
    inner = [f"{borders[k]:.2g}" for k in ticked]
    inner[0] = inner[-1] = ""  # The labels of the outer cells show these borders.
    ax.set_xticks(ticks, [ends[0], *inner, ends[1]])
    ax.set_xlabel("estimated propensity")
    plots.titles(ax, "Rows by propensity and arm", "lines: 95% noise range")
    return ax


def balance_plot(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Standardized differences: hollow before weighting, filled after.

    Parameters
    ----------
    frame : DataFrame
        Index: terms; columns before, std_error_before, after, std_error_after.
    """
    ax, places = plots.row_axes(ax, frame.index)
    ax.axvline(0, color=plots.GREY, linewidth=0.8, zorder=1)
    for reference in (-IMBALANCE, IMBALANCE):
        ax.axvline(reference, color=plots.GREY, linewidth=0.6, zorder=1)
    limits = [-IMBALANCE, IMBALANCE]
    for name, shift, color, marker, face in (
        ("before", 0.14, plots.VERMILION, "D", "white"),
        ("after", -0.14, plots.BLUE, "o", plots.BLUE),
    ):
        value = plots.finite(frame[name])
        noise = NOISE_95 * plots.finite(frame[f"std_error_{name}"])
        ax.hlines(places + shift, value - noise, value + noise, color=color, linewidth=1.4)
        ax.plot(
            value,
            places + shift,
            marker,
            color=color,
            markerfacecolor=face,
            markersize=6,
            zorder=4,
        )
        limits += [*(value - noise), *(value + noise)]
    plots.include(ax, limits)
    plots.xlabel(ax, "standardized difference, treated minus control")
    reading = "hollow: before weighting; filled: after; lines: noise"
    plots.titles(ax, "Balance of covariates", reading)
    return ax
