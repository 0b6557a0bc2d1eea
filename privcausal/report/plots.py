"""Plots of released numbers on matplotlib axes, readable without color.

The colors are from Okabe and Ito. Every plot with intervals states what they mean. Names are drawn
literally: a dollar sign does not start a formula. Without `ax`, functions use a pyplot figure, so a
notebook shows it. The report passes its own axes.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from privcausal.errors import CapabilityError, DataError
from privcausal.prices import at_most, column, percent
from privcausal.report import tables
from privcausal.report.tables import FitView, Shape, VarianceSource
from privcausal.typing import Vector

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# The report's plots as SVG, each with alternative text and its numbers. The same figure gives the
# same bytes, and many figures fit on one page.

# Inches. At 72 units an inch, 9 point type is still 9 pixels high on a phone 360 pixels wide.
WIDE, PANEL = 4.6, 3.3

MOST_SHAPES = 12
"""Maximum panels in a report; a hundred curves are unreadable."""

MOST_BARS = 40
"""Maximum rows of a forest or budget plot; the table below the plot has all rows."""


class Picture(NamedTuple):
    """An `svg` element, its caption, and its table (None if the table is printed elsewhere)."""

    svg: str
    caption: str
    grid: tables.TableGrid | None = None


def effect_pictures(view: FitView) -> dict[str, Picture]:
    """The first interval by source, the averages of groups, and gains by share treated, if any."""
    pictures, level = dict[str, Picture](), tables.confidence(view.alpha)
    effects, gains = view.effects, view.gains
    # The headline interval, with the interval from sampling alone first
    effect = None if effects is None or effects.empty else effects.iloc[view.lead]
    width = np.nan if effect is None else effect["conf_high"] - effect["conf_low"]
    if effect is not None and view.uncertainty and np.isfinite(width):
        outcome = view.outcome if view.treatment else None
        bars = nested(effect, view.uncertainty).rename_axis(outcome)
        value, low, high = tables.interval(effect)
        words = f"The estimate is {value} ({level} interval {low} to {high}). Intervals by source: "
        caption = "All sources include allowances for clipping and for noisy models." * view.more
        of = "the overall effect" if effect.name == "overall" else effect.name
        plot = partial(coef_plot, bars, alpha=view.alpha, title=f"Uncertainty of {of}")
        size, label = (WIDE, 1.1 + 0.42 * len(bars)), f"{words}{'; '.join(bars.index)}."
        pictures["interval"] = drawn_picture("interval", caption, size, plot, label)
    if view.gates is not None and len(view.gates):  # a forest plot of group averages
        gates = view.gates.iloc[:MOST_BARS].rename_axis(tables.clean(view.outcome))
        ends = gates["estimate"].astype(float)
        spread = float(gates["std_error"].min())
        low, high = tables.alike([float(ends.min()), float(ends.max())], spread)
        words = (
            f"Average effects of {len(gates)} groups with {level} intervals. "
            f"The estimates range from {low} to {high}. The table below shows all numbers."
        )
        plot = partial(gate_plot, gates, alpha=view.alpha, title="")
        size = WIDE, 1.0 + 0.3 * len(gates)
        pictures["groups"] = drawn_picture("groups", "", size, plot, words)
    if gains is not None and len(gains) > 1:  # of treating the cells with the largest effect first
        widths = (gains["conf_high"] - gains["conf_low"]).astype(float) / 4
        (value,) = tables.alike([float(gains["gain"].iloc[-1])], float(widths.iloc[-1]))
        caption = (
            "Expected gain per person if the cells with the largest estimated effect are treated "
            f"first. If everyone is treated, the gain is {value}. Shaded: {level} band. Dashed: "
            "the same number of people chosen at random."
        )
        labels: dict[str, Any] = {"title": "Expected uplift", "ylabel": "gain per person"}
        plot = partial(uplift_plot, gains, alpha=view.alpha, **labels)
        rows = gains.iloc[_some(len(gains))]
        heads = {"gain": "gain", "conf_low": "low", "conf_high": "high", "random": "at random"}
        columns = {name: tables.TableColumn(head) for name, head in heads.items()}
        grid = tables.filled(
            "Expected gain by share treated",
            tables.labelled_names("treated", map(tables.share_percent, rows["share"])),
            *tables.scaled(rows, columns, float(widths.max())),
        )
        pictures["gains"] = drawn_picture("gains", caption, (WIDE, 2.9), plot, grid=grid)
    return pictures


def shape_pictures(view: FitView) -> list[Picture]:
    """One panel per modifier, all on one scale."""
    import pandas as pd

    shapes, pictures = view.shapes[:MOST_SHAPES], []
    limits = effect_limits(shapes)
    for i, shape in enumerate(shapes):
        # The curve at a few points. Levels have no points between them, so all are shown.
        values = {"estimate": shape.estimate, "low": shape.conf_low, "high": shape.conf_high}
        frame = pd.DataFrame(values, index=pd.Index(list(shape.grid)), dtype=float)
        frame = frame if shape.kind == "levels" else frame.iloc[_some(len(frame))]
        points = (p if isinstance(p, str) else tables.point_text(p) for p in frame.index)
        heads = {name: tables.TableColumn(name) for name in values}
        grid = tables.filled(
            f"Effect by {shape.name} ({shape.interval_label})",
            tables.labelled_names(shape.name, points),
            *tables.scaled(frame, heads, (frame["high"] - frame["low"]) / 4),
        )
        words = tables.shape_line(shape)
        plot = partial(effect_plot, [shape], ylim=limits)
        name = tables.clean(shape.name)
        label = f"Effect by {name}: {words}"
        pictures.append(drawn_picture(f"shape{i}", words, (PANEL, 2.55), plot, label, grid))
    return pictures


CURVE_ROWS = 11
"""Maximum rows of the table of a curve, which includes its ends."""


def _some(count: int) -> list[int]:
    """At most `CURVE_ROWS` positions of a sequence, including both ends."""
    steps = min(CURVE_ROWS, count) - 1
    return [round(i * (count - 1) / steps) for i in range(steps + 1)] if steps else [0]


ALARMS = (0.01, 0.05, 0.1, 0.25, 0.5)
"""Shares of false alarms in the table; all are points of the curve."""


def privacy_pictures(view: FitView) -> dict[str, Picture]:
    """The proven trade-off function, as the power of the best test; the cost of each release."""
    pictures = dict[str, Picture]()
    if view.attack is not None:
        powers = np.interp(ALARMS, view.attack["false_alarms"], view.attack["power"]).tolist()
        grid = tables.filled(
            "Detection power of the strongest attack",
            tables.labelled_names("false positive rate", map(tables.share_percent, ALARMS)),
            (tables.TableColumn("detection power, at most"), (f"{percent(p)}%" for p in powers)),
        )
        alarms, most = grid.rows[1]
        caption = (
            "Strongest possible attack: someone who knows everything but the data of one person "
            "tests which of two neighboring data sets was used. At a false positive rate of "
            f"{alarms}, the test detects a difference at most {most} of the time."
        )
        plot = partial(attack_plot, view.attack)
        pictures["attack"] = drawn_picture("attack", caption, (WIDE, 2.9), plot, grid=grid)
    if len(view.budget):
        lines = view.budget.iloc[:MOST_BARS]
        prices = tables.price_frame(lines)
        costs = zip(prices["stage"], column(prices["price"]), prices["share"], strict=True)
        spent = "; ".join(
            f"{stage} {text} ({tables.share_percent(share)})" for stage, text, share in costs
        )
        currency = prices["currency"].iloc[0]
        words = f"Bars show the cost of each release in {currency}: {tables.clean(spent)}."
        several = len({*view.budget["mechanism"]} - {""}) > 1
        grid = tables.budget_grid(view.budget, mechanisms=several)
        size, plot = (WIDE, 1.2 + 0.3 * len(lines)), partial(budget_plot, lines)
        pictures["budget"] = drawn_picture("budget", "", size, plot, words, grid)
    return pictures


def drawn_picture(
    ident: str,
    caption: str,
    size: tuple[float, float],
    plot: Callable[..., object],
    words: str = "",
    grid: tables.TableGrid | None = None,
    stacked: Sequence[int] = (),
) -> Picture:
    """A plot in the report's own style, independent of the user's notebook settings.

    It is one `svg` element without date, script or style sheet. Its ids start with `ident`, which
    is unique on the page. Its alternative text is `words`, or the caption.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        # From 3.11 on, rcParams is typed by its own list of names.
        params: Any = matplotlib.rcParams
        params.update(PICTURE_STYLE)
        # pyplot does not show or keep this figure
        figure = Figure(figsize=size, layout="constrained")
        plot(ax=_stacked(stacked, figure) if stacked else figure.add_subplot())
        buffer = io.StringIO()
        with warnings.catch_warnings():
            # The browser has the fonts that matplotlib lacks.
            warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
            figure.savefig(buffer, format="svg", metadata={"Date": None})
    body = buffer.getvalue()
    body = body[body.index("<svg") :]
    # A style sheet inside would apply to the whole page, so its two lines move to the root.
    unwanted = r"<metadata>.*?</metadata>\s*|<defs>\s*<style.*?</style>\s*</defs>\s*|<!--.*?-->\s*"
    body = re.sub(unwanted, "", body, flags=re.DOTALL)
    # Match references inside tags only, because text may contain anything similar.
    places = r'(?<=\sid=")|(?<=url\(#)|(?<=href="#)'
    body = re.sub(r"<[^>]*>", lambda tag: re.sub(places, f"{ident}-", tag.group()), body)
    head = re.search(r'viewBox="[^"]*"', body)
    root = (
        f'<svg role="img" aria-label="{escape(words or caption)}" {head.group() if head else ""} '
        'stroke-linejoin="round" stroke-linecap="butt" xmlns="http://www.w3.org/2000/svg" '
        'xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    svg = re.sub(r"^<svg[^>]*>", lambda _: root, body, count=1).strip()
    return Picture(svg, caption, grid)


PICTURE_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text: searchable, small, in the page's own font
    "svg.hashsalt": "privcausal",
    "font.size": 9.5,
    "axes.labelsize": 9.5,
    "text.parse_math": False,
}


BLUE, VERMILION, SKY = "#0072B2", "#D55E00", "#56B4E9"
MIDDLE = "#3a8fc4"  # between blue and sky; contrast 3.5 to 1, as a shape without an edge needs
INK, GREY, PALE = "#1d2733", "#4a5664", "#d9dee3"

PICTURE_NAME = 30
"""Maximum characters of a name in a plot; tables have the full name."""

AS_TYPED: dict[str, Any] = {"parse_math": False}


def axes_of(ax: Axes | None, height: float, *, grid: str = "y") -> Axes:
    """The given axes, or new pyplot axes with this height in inches, in a plain style.

    They have no box, dark labels, and light grid lines across the direction `grid`, if any.
    """
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(6.4, height), layout="constrained")[1]
    elif not hasattr(ax, "spines"):
        raise CapabilityError(
            f"ax= must be matplotlib axes, not a value of type {type(ax).__name__}."
        )
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GREY)
    ax.tick_params(colors=INK, labelsize=9, color=GREY)
    ax.xaxis.label.set_color(INK)
    ax.yaxis.label.set_color(INK)
    ax.set_axisbelow(True)
    if grid:
        # Mypy wants the literals "x" and "y".
        ax.grid(axis=grid, color=PALE, linewidth=0.7)  # type: ignore[arg-type]
    return ax


def titles(ax: Axes, title: str, below: str) -> None:
    """A bold title, and small lines below it that explain how to read the plot."""
    from matplotlib.transforms import ScaledTranslation

    left = _names_width(ax)
    spec = ax.get_subplotspec()
    width = ax.figure.bbox.width / ax.figure.dpi / (spec.get_gridspec().ncols if spec else 1)
    room = 72 * width - (0 if left else AXIS_WIDTH)
    head, reading = (_wrapped(text, room / size) for text, size in ((title, 6.6), (below, 4.9)))
    font: dict[str, Any] = {"fontsize": 10.5, "fontweight": "bold", "color": INK}
    pad = 9 + 11 * len(reading.splitlines())
    bold = ax.set_title(head, loc="left", pad=pad, **font, **AS_TYPED)
    shift = ScaledTranslation(-left / 72, 0, ax.figure.dpi_scale_trans)
    bold.set_transform(bold.get_transform() + shift)
    place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
    note = ax.annotate(reading, (0, 1), (-left, 6), fontsize=8.5, color=GREY, **place, **AS_TYPED)
    note.set_in_layout(not title)  # A long name must not shrink the panel.


AXIS_WIDTH = 40
"""Points that the labels of a numeric vertical axis take."""


def _names_width(ax: Axes) -> float:
    """Width of the row names in points; 0 if the axis has numbers."""
    from matplotlib.ticker import FixedLocator

    if not isinstance(ax.yaxis.get_major_locator(), FixedLocator):
        return 0.0
    lines = "\n".join(label.get_text() for label in ax.get_yticklabels()).split("\n")
    return 4.6 * max(map(len, lines))


def _wrapped(text: str, most: float) -> str:
    """Text on at most two lines of about `most` characters, not broken in ``p = 4``, ``1 to 2``."""
    width, joined = max(int(most), 12), re.sub(r" (=|to) (?=[-\d])", "\xa0\\1\xa0", text)
    lines = textwrap.wrap(joined, width, break_long_words=False) or [""]
    parts = lines[:2] if len(lines) < 3 else [lines[0], " ".join(lines[1:])]
    return "\n".join(tables.cut(line, width) for line in parts).replace("\xa0", " ")


def xlabel(ax: Axes, text: str) -> None:
    """A label below the axes, on two lines if they are narrow."""
    room = 72 * ax.figure.bbox.width / ax.figure.dpi - (_names_width(ax) or AXIS_WIDTH)
    ax.set_xlabel(_wrapped(tables.clean(text), room / 5.6), **AS_TYPED)


def row_axes(ax: Axes | None, names: Iterable[object], *, grid: bool = True) -> tuple[Axes, Vector]:
    """Axes with a row per name from the top, and the rows' heights."""
    labels = [_wrapped(tables.clean(name), PICTURE_NAME) for name in names]
    height = 1.2 + 0.34 * max(len(labels), 1)
    ax = axes_of(ax, height, grid="x" if grid else "")
    places = -np.arange(len(labels), dtype=float)
    ax.set_yticks(places, labels, **AS_TYPED)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(-len(labels) + 0.4, 0.6)
    return ax, places


def draw_band(ax: Axes, x: Vector, low: Any, high: Any, middle: Any) -> None:
    """A curve with its band; the band has edges, so it prints in gray."""
    low, high = finite(low), finite(high)
    ax.fill_between(x, low, high, color=SKY, alpha=0.35, linewidth=0)
    for limit in (low, high):
        ax.plot(x, limit, color=BLUE, linewidth=0.6)
    ax.plot(x, finite(middle), color=BLUE, linewidth=2)


ZERO_LINE: dict[str, Any] = {"color": GREY, "linewidth": 0.9, "zorder": 1}
"""The line of no effect."""

ABOVE: dict[str, Any] = {"markeredgecolor": "white", "zorder": 4}
"""Points above the lines of a plot, set apart by a white edge."""

BESIDE: dict[str, Any] = {
    "xytext": (6, 0), "xycoords": ("axes fraction", "data"), "textcoords": "offset points",
    "va": "center", "color": INK, "fontsize": 9,
}  # fmt: skip
"""Text in a column next to the axes, which works for every length of bar or interval."""


def include(ax: Axes, values: Iterable[float]) -> None:
    """Set horizontal limits that contain all finite values, with some margin."""
    array = finite(list(values))
    low, high = float(np.nanmin(array)), float(np.nanmax(array))
    air = 0.05 * (high - low) or 1.0
    ax.set_xlim(low - air, high + air)
    ax.locator_params(axis="x", nbins=5)


def finite(values: Any) -> Vector:
    """Floats with infinities as gaps, because matplotlib cannot scale an axis to infinities."""
    array = np.asarray(values, dtype=float)
    # Beyond 1e300 the span of an axis overflows.
    return np.where(np.abs(array) < 1e300, array, np.nan)


# -- plots of a fit ----------------------------------------------------------------------------

AxesIn: TypeAlias = "Axes | Sequence[Axes] | np.ndarray[Any, Any] | None"


def effect_plot(
    shapes: Sequence[Shape],
    *,
    ax: AxesIn = None,
    ylim: tuple[float, float] | None = None,
    what: str = "Effect",
) -> Axes | np.ndarray[Any, Any]:
    """The effect along each modifier: one panel each, a band for curves, bars for levels.

    `ax` has Axes for each shape. By default, `ylim` is one scale that contains all intervals.
    `what` says what the curves show. Several shapes give an array of Axes, in their order.
    """
    count = len(shapes)
    if count == 0:
        raise DataError("The fit has no effect curve to plot.")
    if ax is None:
        import matplotlib.pyplot as plt

        columns = min(3, count)
        rows = -(-count // columns)
        size = (3.4 * columns, 2.8 * rows)
        style: dict[str, Any] = {"figsize": size, "layout": "constrained", "squeeze": False}
        figure, axes = plt.subplots(rows, columns, **style)
        for empty in axes.ravel()[count:]:
            figure.delaxes(empty)
        panels = list(axes.ravel()[:count])
    else:
        panels = list(np.ravel(np.asarray(ax, dtype=object)))
        if len(panels) < count:
            raise DataError(
                f"ax= contains {len(panels)} axes, but {count} effect curves require {count}."
            )
    low, high = ylim or effect_limits(shapes)
    for shape, panel in zip(shapes, panels[:count], strict=True):
        axes_of(panel, 2.8)
        panel.axhline(0, **ZERO_LINE)
        if shape.kind == "levels":
            places, band = np.arange(len(shape.grid), dtype=float), "bars"
            ends = finite(shape.conf_low), finite(shape.conf_high)
            panel.vlines(places, *ends, color=BLUE, linewidth=2)
            dots: dict[str, Any] = {"markersize": 6, "markeredgecolor": "white"}
            panel.plot(places, finite(shape.estimate), "o", color=BLUE, **dots)
            names = [tables.cut(tables.clean(point), 14) for point in shape.grid]
            long = sum(len(name) for name in names) > 26
            turned: dict[str, Any] = {"rotation": 35 * long, "ha": "right" if long else "center"}
            panel.set_xticks(places, names, **turned, **AS_TYPED)
            panel.tick_params(axis="x", length=0)
            panel.set_xlim(-0.6, len(places) - 0.4)
        else:
            points, band = finite([float(point) for point in shape.grid]), "shaded"
            draw_band(panel, points, shape.conf_low, shape.conf_high, shape.estimate)
            panel.margins(x=0.02)
            panel.locator_params(axis="x", nbins=4)
        panel.set_ylim(low, high)
        panel.set_ylabel(tables.cut(what[:1].lower() + what[1:], PICTURE_NAME), **AS_TYPED)
        label = f"{band}: {tables.clean(shape.interval_label)}"
        titles(panel, f"{what} by {tables.clean(shape.name)}", label)
    return panels[0] if count == 1 else np.array(panels[:count], dtype=object)


def effect_limits(shapes: Iterable[Shape]) -> tuple[float, float]:
    """One scale for several shapes: all finite limits, zero, and some margin."""
    parts = [finite(v) for s in shapes for v in (s.estimate, s.conf_low, s.conf_high)]
    values = np.concatenate([np.zeros(1), *parts])
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    air = 0.06 * (high - low) or 1.0
    return low - air, high + air


def coef_plot(
    effects: pd.DataFrame,
    *,
    ax: AxesIn = None,
    alpha: float = 0.05,
    slopes: Sequence[bool] = (),
    title: str = "Estimated effects",
) -> Any:
    """Coefficients with their intervals, one row each, the first on top.

    `effects` has terms as its index, and the columns estimate, conf_low and conf_high. `slopes`
    says which terms are per unit of a column. Each of them gets its own axis, after the axis of all
    other terms, unless `ax` is one.
    """
    single = ax is not None and not isinstance(ax, list)
    separate = (
        np.array(slopes, bool) if any(slopes) and not single else np.zeros(len(effects), bool)
    )
    of = tables.effects_on(effects.index)
    parts = [(effects[~separate], f"effect on {of}" if of else "estimate")]
    if separate.any():
        parts = [(effects[~separate], f"in units of {of or 'the outcome'}")]
        parts += [
            (effects.loc[[t]], f"per unit of {tables.clean(t)}") for t in effects.index[separate]
        ]
    parts = [part for part in parts if len(part[0])] or parts
    panels = list(np.ravel(np.array(ax, dtype=object)))
    if ax is None and len(parts) > 1:
        panels = _stacked([len(frame) for frame, _ in parts])
    for place, (frame, words) in enumerate(parts):
        panels[place], places = row_axes(panels[place], frame.index)
        _intervals(panels[place], places, frame)
        xlabel(panels[place], words)
    titles(panels[0], title, f"lines: {tables.confidence(alpha)} intervals")
    return panels[0] if len(panels) == 1 else np.array(panels, dtype=object)


def _stacked(rows: Sequence[int], figure: Figure | None = None) -> list[Any]:
    """Axes one below another, with room for the given number of rows each."""
    heights = [0.75 + 0.34 * count for count in rows]
    if figure is None:
        import matplotlib.pyplot as plt

        figure = plt.figure(figsize=(6.4, sum(heights) + 0.4), layout="constrained")
    return list(figure.subplots(len(rows), 1, height_ratios=heights))


def gate_plot(
    gates: pd.DataFrame,
    *,
    ax: Axes | None = None,
    alpha: float = 0.05,
    overall: pd.DataFrame | None = None,
    title: str = "Average effect by group",
) -> Axes:
    """Group averages: a thin line for the interval, a thick line for its part from sampling.

    With `overall`, which has the same columns, this is a forest plot. Its diamond spans the
    interval of the overall average. A group without an estimate has no line, because its interval
    is the whole range. `gates` has the columns estimate, std_error, conf_low, conf_high and
    se_sampling.
    """
    average = gates.iloc[:0] if overall is None else overall
    ax, rows = row_axes(ax, [*gates.index, *average.index])
    places, gates = rows[: len(gates)], gates.where(gates["estimate"].notna())
    _intervals(ax, places, gates, [*average["conf_low"], *average["conf_high"]])
    for place, (_, row) in zip(rows[len(gates) :], average.iterrows(), strict=True):
        left, middle, right = (float(row[k]) for k in ("conf_low", "estimate", "conf_high"))
        heights = [place, place + 0.22, place, place - 0.22]
        ax.fill([left, middle, right, middle], heights, color=VERMILION, alpha=0.9, zorder=3)
        ax.axvline(middle, color=VERMILION, linewidth=0.8, zorder=1)
    estimate = finite(gates["estimate"])
    with np.errstate(all="ignore"):
        share = np.clip(finite(gates["se_sampling"]) / finite(gates["std_error"]), 0, 1)
    low = estimate - share * (estimate - finite(gates["conf_low"]))
    high = estimate + share * (finite(gates["conf_high"]) - estimate)
    ax.hlines(places, low, high, color=MIDDLE, linewidth=7, zorder=2)
    of = tables.effects_on(gates.index)
    xlabel(ax, f"average effect{of and f' on {of}'}")
    titles(ax, title, f"thin: {tables.confidence(alpha)} interval; thick: from sampling alone")
    return ax


def forest_plot(
    frame: pd.DataFrame, *, ax: Axes | None = None, alpha: float = 0.05, term: str = ""
) -> Axes:
    """One estimate of each of several fits, with its interval; the numbers are printed next to it.

    `frame` has fits as its index, and the columns estimate, std_error, conf_low and conf_high.
    """
    ax, places = row_axes(ax, frame.index)
    _intervals(ax, places, frame)
    for place, row in zip(places, frame.to_dict("records"), strict=True):
        value, low, high = tables.interval(row)
        ax.annotate(f"{value} [{low}, {high}]", (1, place), **BESIDE)
    xlabel(ax, term)
    titles(ax, f"{tables.clean(term)} by fit", f"lines: {tables.confidence(alpha)} intervals")
    return ax


def nested(effect: pd.Series[float], sources: Sequence[VarianceSource]) -> pd.DataFrame:
    """Intervals of the first source alone, with the second, and of all sources together.

    `effect` has estimate, std_error, max_bias, conf_low and conf_high. Of `sources`, sampling is
    first, and each source adds to the ones before it.
    """
    import pandas as pd

    estimate, low, high = (float(effect[k]) for k in ("estimate", "conf_low", "conf_high"))
    bias = float(effect["max_bias"])
    total = math.sqrt(sum(s.std_error**2 for s in sources) + bias**2) or 1.0
    rows, names, variance = [], [], 0.0
    for source in sources[: max(min(2, len(sources) - (bias <= 0)), 0)]:
        variance += source.std_error**2
        names.append(source.label)
        share = math.sqrt(variance) / total
        label = " and ".join(names) + (" alone" if len(names) == 1 else "")
        low_part, high_part = (estimate + share * (end - estimate) for end in (low, high))
        rows.append((label, estimate, low_part, high_part))
    # The last row is the printed interval itself; a sum might round differently.
    rows.append(("all sources", estimate, low, high))
    spread = float(effect["std_error"])
    index = [f"{name}: {' to '.join(tables.alike(ends, spread))}" for name, _, *ends in rows]
    return pd.DataFrame([row[1:] for row in rows], index, ["estimate", "conf_low", "conf_high"])


def budget_plot(budget: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """The cost of each release, one bar each, with its cost and share as text.

    If the fit also pays in rho, releases in pure epsilon are drawn at the zCDP that they imply, rho
    = epsilon^2 / 2. Otherwise they are drawn in epsilon.
    """
    prices = tables.price_frame(budget)
    costs, names = prices["price"].to_numpy(), prices["stage"] + ": " + prices["query"]
    ax, places = row_axes(ax, names, grid=False)
    ax.barh(places, costs, height=0.55, color=BLUE, edgecolor=INK, linewidth=0.6, zorder=2)
    for place, text, share in zip(places, column(costs), prices["share"], strict=True):
        label = f"{text} ({tables.share_percent(share)})" if share else "free"
        ax.annotate(label, (1, place), **BESIDE)
    ax.set_xlim(0, 1.05 * (float(costs.max()) if len(costs) else 0) or 1.0)
    ax.locator_params(axis="x", nbins=3)  # Costs have many digits, and more ticks would overlap.
    xlabel(ax, f"cost ({prices['currency'].iloc[0]})")
    titles(ax, "Privacy budget by release", "bars: cost; numbers: cost and its share of the total")
    return ax


def uplift_plot(
    curve: pd.DataFrame,
    *,
    ax: Axes | None = None,
    alpha: float = 0.05,
    title: str = "Uplift",
    ylabel: str = "gain",
) -> Axes:
    """Gain from treating the share x with the largest predicted effect, with its band.

    `curve` has the columns share (0 to 1), gain, conf_low, conf_high and random (the gain of
    treating the same share at random).
    """
    ax = axes_of(ax, height=3.2)
    x = 100 * finite(curve["share"])
    draw_band(ax, x, curve["conf_low"], curve["conf_high"], curve["gain"])
    ax.plot(x, finite(curve["random"]), color=GREY, linewidth=1.2, linestyle=(0, (4, 3)))
    ax.set_xlim(0, 100)
    ax.set_xlabel("share treated, largest predicted effect first (%)")
    ax.set_ylabel(ylabel)
    titles(ax, title, f"shaded: {tables.confidence(alpha)} band; dashed: at random")
    return ax


def attack_plot(curve: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Largest power of a test between neighboring tables, by false_alarms; both are shares."""
    ax = axes_of(ax, height=3.2)
    x, y = (100 * finite(curve[name]) for name in ("false_alarms", "power"))
    ax.fill_between(x, x, y, color=BLUE, alpha=0.15, linewidth=0)
    ax.plot(x, y, color=BLUE, linewidth=1.8)
    ax.plot([0, 100], [0, 100], color=GREY, linewidth=1.2, linestyle=(0, (4, 3)))
    ax.set_xlim(0, 100)
    ax.set_ylim(0, 100)
    ax.set_xlabel("false positive rate (%)")
    ax.set_ylabel("detection power (%)")
    titles(ax, "Strongest attack", "solid: upper limit; dashed: random guessing")
    return ax


def _intervals(ax: Axes, places: Vector, frame: pd.DataFrame, others: Iterable[float] = ()) -> None:
    """Estimates with intervals; the axis also contains `others`."""
    include(ax, [0.0, *frame["estimate"], *frame["conf_low"], *frame["conf_high"], *others])
    ax.axvline(0, **ZERO_LINE)
    left, right = ax.get_xlim()
    for place, low, high in zip(places, frame["conf_low"], frame["conf_high"], strict=True):
        # An interval within the axes; an infinite side ends in an arrow.
        ax.hlines(place, max(low, left), min(high, right), color=BLUE, linewidth=1.6, zorder=3)
        for end, x, arrow in ((low, left, "<"), (high, right, ">")):
            if math.isinf(end):
                ax.plot([x], [place], arrow, color=BLUE, clip_on=False, markersize=7, zorder=4)
    ax.plot(finite(frame["estimate"]), places, "o", color=BLUE, markersize=6.5, **ABOVE)


# -- plans, sensitivity, and plots of one kind of fit ----------------------------------------------

LINES = tuple(zip((BLUE, VERMILION, "#009E73", "#CC79A7", INK, "#B07900"), "os^DvP", strict=True))
"""Color and marker of each line of a plan; markers identify the lines without color."""

DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1, 2)))


def plan_plot(
    plan: pd.DataFrame, *, by: str = "eps", ax: Axes | None = None, alpha: float = 0.05
) -> Axes:
    """Planned half-width against epsilon, a line per n, or against n, a line per epsilon.

    `plan` has the columns n, eps, half-width from, half-width to, sampling (without privacy noise)
    and planned. Planned points are the requested points, and are marked. `by` is the horizontal
    axis; both axes are logarithmic.
    """
    ax = axes_of(ax, height=3.6, grid="both")
    other = "n" if by == "eps" else "eps"
    values = plan[other].unique().tolist()
    for number, value in enumerate(values):
        line = plan[plan[other] == value]
        color, marker = LINES[number % len(LINES)]
        x, width = finite(line[by]), finite(line["half-width to"])
        ax.fill_between(x, finite(line["half-width from"]), width, color=color, alpha=0.12, lw=0)
        name = f"n = {value:,.0f}" if other == "n" else f"eps = {at_most(value)}"
        ax.plot(x, width, color=color, linewidth=1.8, zorder=3)
        planned = line["planned"].to_numpy(dtype=bool)
        points = x[planned], width[planned]
        ax.plot(*points, marker, color=color, markersize=6, label=name, **ABOVE)
        if other == "n" or number == len(values) - 1:
            floor = color if other == "n" else GREY
            ax.plot(x, finite(line["sampling"]), linestyle=(0, (4, 3)), color=floor, linewidth=1)
    ax.set_xscale("log")
    ax.set_yscale("log")
    _plain_ticks(ax.xaxis, plan[by].min(), plan[by].max())
    least, most = ax.get_ylim()
    _plain_ticks(ax.yaxis, least, most)
    ax.set_xlabel("epsilon" if by == "eps" else "number of rows n")
    ax.set_ylabel(f"half-width of the {tables.confidence(alpha)} interval")
    ax.legend(frameon=False, fontsize=9, loc="upper right", labelcolor=INK)
    titles(ax, "Planned half-width", "shaded: in about 80% of fits; dashed: without privacy noise")
    return ax


def utility_plot(curve: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Weighted utility of privacy and precision against epsilon, a line per weight.

    `curve` has the columns n, eps, weight (of privacy) and utility (0 to 1). The best epsilon of
    each line is marked.
    """
    ax = axes_of(ax, height=3.6, grid="both")
    for number, weight in enumerate(curve["weight"].unique().tolist()):
        line = curve[curve["weight"] == weight]
        color, marker = LINES[number % len(LINES)]
        x, utility = finite(line["eps"]), finite(line["utility"])
        best = int(np.nanargmax(utility))
        # At an end of the curve, the true optimum may lie beyond the curve.
        sign = "≤" if best == 0 else "≥" if best == len(x) - 1 else "="
        share = tables.share_percent(weight)
        ax.plot(
            x, utility, linestyle=DASHES[number % len(DASHES)], color=color, linewidth=1.8, zorder=3
        )
        label = f"privacy weight {share}: best eps {sign} {at_most(x[best])}"
        point = x[best], utility[best]
        ax.plot(*point, marker, color=color, markersize=8, label=label, **ABOVE)
    ax.set_xscale("log")
    _plain_ticks(ax.xaxis, curve["eps"].min(), curve["eps"].max())
    ax.set_ylim(0, 1.45)  # This leaves space for the legend above the lines.
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1])
    ax.set_xlabel("epsilon")
    ax.set_ylabel("utility of privacy and precision")
    ax.legend(frameon=False, fontsize=9, loc="upper left", labelcolor=INK)
    rows = f"n = {float(curve['n'].iloc[0]):,.0f}"
    titles(ax, f"Weighted utility, {rows}", "precision: noise-free width / planned width")
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

    `frame` has the columns strength (0 to 1), low, high, conf_low and conf_high. `robustness` has
    the strengths that move the interval and the estimate to zero; each is marked.
    """
    ax = axes_of(ax, height=3.4)
    x = 100 * finite(frame["strength"])
    for names, alpha_of in ((("conf_low", "conf_high"), 0.25), (("low", "high"), 0.45)):
        low, high = (finite(frame[name]) for name in names)
        ax.fill_between(x, low, high, color=SKY, alpha=alpha_of, linewidth=0)
    for name in ("low", "high", "conf_low", "conf_high"):
        inner = not name.startswith("conf")
        ax.plot(x, finite(frame[name]), color=BLUE, linewidth=1.6 if inner else 0.8)
    ax.axhline(0, **ZERO_LINE)
    ax.set_xlim(0, x[-1])
    for name, marker in (("interval", "o"), ("estimate", "D")):
        value = float(robustness[name])
        if 0 < value < 1:
            label = f"{name} reaches zero at {tables.share_percent(value)}"
            style: dict[str, Any] = {**ABOVE, "zorder": 5, "clip_on": False, "label": label}
            ax.plot([100 * value], [0], marker, color=VERMILION, markersize=7, **style)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, fontsize=9, loc="best", labelcolor=INK)
    ax.set_xlabel(
        "residual variance that a confounder explains,\nin both outcome and treatment (%)"
    )
    ax.set_ylabel("average effect")
    titles(ax, "Sensitivity", f"dark: possible estimates; light: {tables.confidence(alpha)} limits")
    return ax


# -- event studies, survival, instruments, regressions ----------------------------------------


def event_plot(
    events: pd.DataFrame, time: str, *, ax: Axes | None = None, alpha: float = 0.05
) -> Axes:
    """Effects by time since treatment: pointwise intervals and simultaneous bands.

    `events` has event times as text as its index; columns estimate, conf_low, conf_high, band_low,
    band_high.
    """
    ax = axes_of(ax, height=3.6)
    x = events.index.to_numpy(dtype=float)
    ax.axhline(0, **ZERO_LINE)
    for kind, color, width in (("band", SKY, 1.4), ("conf", BLUE, 3.4)):
        low, high = (finite(events[f"{kind}_{side}"]) for side in ("low", "high"))
        ax.vlines(x, low, high, color=color, linewidth=width, zorder=2)
    before = x < 0
    estimate = finite(events["estimate"])
    dots: dict[str, Any] = {"color": BLUE, "markersize": 6, "markeredgewidth": 1.6, "zorder": 4}
    kinds = (before, "white", "before treatment"), (~before, BLUE, "from treatment on")
    for part, face, label in kinds:
        ax.plot(x[part], estimate[part], "o", markerfacecolor=face, label=label, **dots)
    if before.any() and not before.all():
        last, first = x[before][-1], x[~before][0]
        ax.axvline((last + first) / 2, color=VERMILION, linewidth=1.2, zorder=1)
    ax.set_xticks(x, list(events.index))
    ax.margins(x=0.08)
    xlabel(ax, f"time since treatment ({time})")
    ax.set_ylabel("average effect", **AS_TYPED)
    bottom, top = ax.get_ylim()
    ax.set_ylim(bottom, top + 0.2 * (top - bottom))  # room for the legend
    ax.legend(framealpha=1, edgecolor="none", fontsize=9, loc="upper left", ncols=2, labelcolor=INK)
    level = tables.confidence(alpha)
    label = f"thick: {level}; thin: {level} for all together; line: treatment"
    titles(ax, "Effect by time since treatment", label)
    return ax


def survival_plot(
    curves: pd.DataFrame, time: str, *, ax: Axes | None = None, alpha: float = 0.05, mean: bool
) -> Axes:
    """Survival curves by arm as steps, with simultaneous bands and numbers at risk.

    `curves` has the columns arm, time, survival, band_low, band_high and at_risk. With `mean`, the
    area between the curves is shaded: the difference of mean survival times.
    """
    ax = axes_of(ax, height=4.2)
    arms = [(tables.clean(arm), curve) for arm, curve in curves.groupby("arm", sort=False)]
    x = finite(arms[0][1]["time"])
    for (arm, curve), color, width in zip(arms, (INK, BLUE), (1.2, 2.4), strict=True):
        low, high = (finite(curve[f"band_{side}"]) for side in ("low", "high"))
        ax.fill_between(x, low, high, step="post", color=color, alpha=0.25, linewidth=0)
        label = tables.cut(arm, PICTURE_NAME)
        ax.step(x, curve["survival"], where="post", color=color, linewidth=width, label=label)
    if mean:
        first, second = (finite(curve["survival"]) for _, curve in arms)
        ax.fill_between(x, first, second, step="post", color=PALE, linewidth=0, zorder=0)
    ax.set_ylim(0, 1)
    ax.set_xlim(0, x[-1])
    risk = at_risk(curves)
    ax.set_xticks(list(risk.index), [f"{t:g}" for t in risk.index])
    xlabel(ax, time)
    ax.set_ylabel("probability of no event")
    ax.legend(frameon=False, fontsize=9, labelcolor=INK)
    area = "; between: difference of means" if mean else ""
    reading = f"bands: {tables.confidence(alpha)} simultaneous{area}"
    titles(ax, "Survival by arm, not adjusted", reading)
    below: dict[str, Any] = {
        "textcoords": "offset points", "annotation_clip": False, "fontsize": 8.5,
        "color": INK, "va": "top", **AS_TYPED,
    }  # fmt: skip
    for row, (arm, _) in enumerate(arms):
        name = f"At risk (noisy), {tables.cut(arm, PICTURE_NAME)}:"
        below["xycoords"] = "axes fraction"
        ax.annotate(name, (0, 0), (-26, -34 - 27 * row), **below)
        for t, value in zip(risk.index, risk.iloc[:, row], strict=True):
            below["xycoords"], ends = ("data", "axes fraction"), ((t, 0), (0, -46 - 27 * row))
            ax.annotate(f"{value:,.0f}", *ends, ha="center", **below)
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

    `frame` has the columns low, high, treated, control and std_error. The outer cells hold clipped
    propensities. `arms` are names of the control arm and of the treated arm.
    """
    ax = axes_of(ax, height=3.4)
    places = np.arange(len(frame), dtype=float)
    places[[0, -1]] += [-0.5, 0.5]  # Set the cells of clipped propensities apart.
    noise = NOISE_95 * finite(frame["std_error"])
    for name, sign, color, hatch in (("treated", 1, BLUE, ""), ("control", -1, SKY, "///")):
        counts = finite(frame[name])
        style: dict[str, Any] = {"hatch": hatch, "edgecolor": INK if hatch else "white"}
        heights = sign * np.maximum(counts, 0.0)
        ax.bar(places, heights, width=0.9, color=color, linewidth=0.5, zorder=2, **style)
        low, high = np.maximum(counts - noise, 0.0), np.maximum(counts + noise, 0.0)
        ax.vlines(places, sign * low, sign * high, color=INK, linewidth=1, zorder=3)
    ax.axhline(0, color=INK, linewidth=0.8, zorder=4)
    # Arm names in the corners instead of a legend, and counts without a sign.
    most = float(np.nanmax(np.r_[frame["treated"] + noise, frame["control"] + noise, 1.0]))
    ax.set_ylim(-1.3 * most, 1.3 * most)
    ax.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    control, treated = (tables.cut(tables.clean(arm), PICTURE_NAME) for arm in arms)
    for text, height in ((treated, 0.96), (f"{control} (hatched)", 0.04)):
        style = {"va": "top" if height > 0.5 else "bottom", "fontsize": 9.5, "fontweight": "bold"}
        style |= {"color": INK, "bbox": {"color": "white", "pad": 1.5}, **AS_TYPED}
        ax.annotate(text, (0.01, height), xycoords="axes fraction", **style)
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
    titles(ax, "Rows by propensity and arm", "lines: 95% noise range")
    return ax


def balance_plot(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Standardized differences of terms: hollow before weighting, filled after.

    `frame` has the columns before, std_error_before, after and std_error_after.
    """
    ax, places = row_axes(ax, frame.index)
    ax.axvline(0, color=GREY, linewidth=0.8, zorder=1)
    for reference in (-IMBALANCE, IMBALANCE):
        ax.axvline(reference, color=GREY, linewidth=0.6, zorder=1)
    limits = [-IMBALANCE, IMBALANCE]
    for name, shift, color, marker, face in (
        ("before", 0.14, VERMILION, "D", "white"),
        ("after", -0.14, BLUE, "o", BLUE),
    ):
        value = finite(frame[name])
        noise = NOISE_95 * finite(frame[f"std_error_{name}"])
        ax.hlines(places + shift, value - noise, value + noise, color=color, linewidth=1.4)
        ax.plot(
            value, places + shift, marker, color=color, markerfacecolor=face, markersize=6, zorder=4
        )
        limits += [*(value - noise), *(value + noise)]
    include(ax, limits)
    xlabel(ax, "standardized difference, treated minus control")
    reading = "hollow: before weighting; filled: after; lines: noise"
    titles(ax, "Balance of covariates", reading)
    return ax
