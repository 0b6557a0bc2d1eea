"""The report's pictures as SVG: each with words for who cannot see it, and its numbers.

The same figure gives the same bytes, and many fit on one page.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from privcausal.prices import column
from privcausal.report import plots, tables
from privcausal.report.numbers import alike, level, percent
from privcausal.report.tables import TableGrid
from privcausal.report.view import Check, FitView, Shape
from privcausal.report.words import clean, cut, interval_sentence, shape_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# inches; at 72 units an inch, 9 point type is still 9 pixels high on a phone 360 pixels wide
WIDE, PANEL = 4.6, 3.3

MOST_SHAPES, MOST_LABEL = 12, 40
"""Panels that a report draws; a page of a hundred curves is read by nobody."""

MOST_BARS = 40
"""Rows that a forest or the budget draws; the table under it has them all."""


@dataclass(frozen=True, slots=True)
class Picture:
    """An `svg` element, its caption, and the table behind it (None: it stands beside it)."""

    svg: str
    caption: str
    grid: TableGrid | None = None


def interval_picture(view: FitView) -> Picture | None:
    """The headline interval with sampling nested in it."""
    if view.effects is None or view.effects.empty or not view.uncertainty:
        return None
    effect = view.effects.iloc[view.lead]
    if not np.isfinite(effect["conf_high"] - effect["conf_low"]):
        return None
    bars = "; ".join(
        f"{label} {' to '.join(alike([low, high], float(effect['std_error'])))}"
        for label, low, high in plots.nested(effect, view.uncertainty)
    )
    words = f"Nested bars: the estimate is {interval_sentence(view)}. Intervals by source: {bars}."
    more = view.more
    svg = _draw(
        "interval", words, (WIDE, 2.2 if more else 1.9),
        lambda ax: plots.interval_plot(
            effect, view.uncertainty, ax=ax, alpha=view.alpha,
            name=f"average effect on {cut(clean(view.outcome), MOST_LABEL)}"
            if view.treatment
            else f"coefficient of {effect.name}",
        ),
    )  # fmt: skip
    caption = (
        f"The {level(view.alpha)} interval. Solid: its width if only sampling mattered. "
        "Hatched: what the noise added for privacy makes of it."
        + (" Pale: what allowances for errors of the method add." if more else "")
    )
    return Picture(svg, caption)


def shape_pictures(view: FitView) -> list[Picture]:
    """A panel per modifier, all on one scale."""
    shown = view.shapes[:MOST_SHAPES]
    limits = plots.effect_limits(shown)
    return [_shape_picture(shape, i, limits) for i, shape in enumerate(shown)]


def _shape_picture(shape: Shape, index: int, limits: tuple[float, float]) -> Picture:
    words = f"Effect by {clean(shape.name)}: {shape_line(shape)}"
    svg = _draw(
        f"shape{index}", words, (PANEL, 2.55),
        lambda ax: plots.effect_plot([shape], ax=ax, ylim=limits),
    )  # fmt: skip
    return Picture(svg, words, tables.shape_grid(shape))


def gate_picture(view: FitView) -> Picture | None:
    """The forest of group averages."""
    if view.gates is None or view.gates.empty:
        return None
    gates = view.gates.iloc[:MOST_BARS]
    ends = gates["estimate"].astype(float)
    low, high = alike([float(ends.min()), float(ends.max())], float(gates["std_error"].min()))
    words = (
        f"Average effects of {len(gates)} groups with {level(view.alpha)} intervals, from {low} "
        f"to {high}; the table below has every number."
    )
    svg = _draw(
        "groups", words, (WIDE, 0.9 + 0.3 * len(gates)),
        lambda ax: plots.gate_plot(gates, ax=ax, alpha=view.alpha),
    )  # fmt: skip
    caption = (
        f"Average effect by group. Thin line: {level(view.alpha)} interval. Thick line: what it "
        "would be without privacy noise."
    )
    return Picture(svg, caption)


def gain_picture(view: FitView) -> Picture | None:
    """The gain of treating the cells with the largest effect first."""
    gains = view.gains
    if gains is None or len(gains) < 2:
        return None
    last = gains.iloc[-1]
    spread = float(last["conf_high"] - last["conf_low"]) / 4
    (value,) = alike([float(last["gain"])], spread)
    caption = (
        f"Expected gain for each person when the cells with the largest estimated effect are "
        f"treated first; it ends at {value}, where all are treated. Shaded: {level(view.alpha)} "
        "band. Dashed: the same number treated by chance."
    )
    svg = _draw(
        "gains", caption, (WIDE, 2.9),
        lambda ax: plots.uplift_plot(
            gains, ax=ax, alpha=view.alpha, title="Expected uplift",
            ylabel="gain for each person",
        ),
    )  # fmt: skip
    return Picture(svg, caption, tables.gain_grid(gains))


def attack_picture(view: FitView) -> Picture | None:
    """The proven trade-off function, as the power of the best test."""
    if view.attack is None:
        return None
    grid = tables.attack_grid(view.attack)
    alarms, most = grid.rows[1]
    caption = (
        "Someone tests which of two neighbouring tables this fit was made of, all else known. At "
        f"{alarms} false alarms the best test detects {most} at most."
    )
    curve = view.attack
    svg = _draw("attack", caption, (WIDE, 2.9), lambda ax: plots.attack_plot(curve, ax=ax))
    return Picture(svg, caption, grid)


def check_picture(check: Check, index: int) -> Picture | None:
    """A diagnostic as it draws itself; its table stands below."""
    if check.draw is None or check.rows > MOST_BARS:
        return None
    height = 0.9 + 0.3 * check.rows if check.rows else 3.0
    words = f"{clean(check.caption)}: {clean(check.sentence)}"
    svg = _draw(f"check{index}", words, (WIDE, height), check.draw)
    return Picture(svg, f"{check.caption}. The table has its numbers.")


def budget_picture(view: FitView) -> Picture | None:
    """What each release cost."""
    if view.budget.empty:
        return None
    lines = view.budget.iloc[:MOST_BARS]
    paid = tables.price_frame(lines)
    currency = paid["currency"].iloc[0]
    spent = "; ".join(
        f"{stage} {text} ({percent(share)})"
        for stage, text, share in zip(
            paid["stage"], column(paid["price"]), paid["share"], strict=True
        )
    )
    words = f"Bars: the price of each release in {currency}: {clean(spent)}."
    svg = _draw(
        "budget", words, (WIDE, 0.8 + 0.3 * len(lines)),
        lambda ax: plots.budget_plot(lines, ax=ax),
    )  # fmt: skip
    return Picture(svg, f"What each release cost, in {currency}, and its share of the whole.")


def _draw(ident: str, words: str, size: tuple[float, float], plot: Callable[[Axes], object]) -> str:
    """A picture in the report's own style, whatever the user has set for their notebooks."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        params: Any = matplotlib.rcParams  # typed by its own list of names, from 3.11 on
        params.update(STYLE)
        figure = Figure(figsize=size, layout="constrained")  # pyplot neither shows nor keeps it
        plot(figure.add_subplot())
        return figure_svg(figure, ident=ident, label=words)


STYLE: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text: searchable, small, in the page's own font
    "svg.hashsalt": "privcausal",
    "font.size": 9.5,
    "axes.labelsize": 9.5,
    "hatch.linewidth": 0.8,
    "hatch.color": "#D55E00",
    "text.parse_math": False,
}


def figure_svg(fig: Figure, *, ident: str = "figure", label: str = "") -> str:
    """One `svg` element: no date, no script, no style sheet.

    Parameters
    ----------
    fig : Figure
    ident : str
        Unique on the page: ids start with it.
    label : str
        What a screen reader says in place of the picture.
    """
    import matplotlib

    buffer = io.StringIO()
    saving: Any = {key: STYLE[key] for key in ("svg.fonttype", "svg.hashsalt")}
    with matplotlib.rc_context(saving), warnings.catch_warnings():
        # the browser has the fonts that matplotlib lacks
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        fig.savefig(buffer, format="svg", metadata={"Date": None})
    body = buffer.getvalue()
    body = body[body.index("<svg") :]
    # a style sheet inside would apply to the whole page; its two lines move to the root
    for unwanted in (
        r"<metadata>.*?</metadata>\s*",
        r"<defs>\s*<style.*?</style>\s*</defs>\s*",
        r"<!--.*?-->\s*",
    ):
        body = re.sub(unwanted, "", body, flags=re.DOTALL)
    # references are matched inside tags only: text may hold anything that looks like one
    body = re.sub(r"<[^>]*>", lambda tag: _prefixed(tag.group(), ident), body)
    head = re.search(r'viewBox="[^"]*"', body)
    root = (
        f'<svg role="img" aria-label="{escape(label)}" {head.group() if head else ""} '
        'stroke-linejoin="round" stroke-linecap="butt" xmlns="http://www.w3.org/2000/svg" '
        'xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    return re.sub(r"^<svg[^>]*>", lambda _: root, body, count=1).strip()


def _prefixed(tag: str, ident: str) -> str:
    tag = re.sub(r'(?<=\sid=")', f"{ident}-", tag)
    return re.sub(r'(?<=url\(#)|(?<=href="#)', f"{ident}-", tag)
