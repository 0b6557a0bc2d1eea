"""Axes in one style: colours, names of rows, limits; what every picture here starts from.

Colours are Okabe and Ito's. Names are drawn as they are: a dollar sign starts no formula.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from privcausal.errors import CapabilityError
from privcausal.report.words import clean, cut
from privcausal.typing import Vector

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, VERMILION, SKY = "#0072B2", "#D55E00", "#56B4E9"
MIDDLE = "#3a8fc4"  # between blue and sky: 3.5 to 1 on white, as a shape without an edge needs
INK, GREY, PALE = "#1d2733", "#4a5664", "#d9dee3"

NAME = 30
"""Characters of a name that a picture shows; tables have it whole."""

PLAIN: dict[str, Any] = {"parse_math": False}


def axes_of(ax: Axes | None, height: float) -> Axes:
    """The axes handed in, or new ones of pyplot's with this height in inches."""
    if ax is not None:
        if not hasattr(ax, "spines"):
            raise CapabilityError(
                f"ax= takes matplotlib axes, not a value of type {type(ax).__name__}"
            )
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6.4, height), layout="constrained")[1]


def calm(ax: Axes, across: str) -> None:
    """Few lines: no box, light grid lines across one direction, dark labels."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GREY)
    ax.tick_params(colors=INK, labelsize=9, color=GREY)
    ax.xaxis.label.set_color(INK)
    ax.yaxis.label.set_color(INK)
    ax.set_axisbelow(True)
    if across:
        ax.grid(axis=across, color=PALE, linewidth=0.7)  # type: ignore[arg-type]  # "x" or "y"


def titles(ax: Axes, title: str, below: str) -> None:
    """A bold title with a small line below it, which says how to read the picture."""
    ax.set_title(
        cut(title, NAME), loc="left", fontsize=10.5, fontweight="bold", color=INK, pad=20, **PLAIN
    )
    note = ax.annotate(
        cut(below, 44), (0, 1), xytext=(0, 6), xycoords="axes fraction",
        textcoords="offset points", fontsize=8.5, color=GREY, **PLAIN,
    )  # fmt: skip
    note.set_in_layout(False)  # a long name must not squeeze the panel


def name_rows(ax: Axes, names: list[str], *, grid: bool = True) -> Vector:
    """A row per name, from the top; returns their heights."""
    calm(ax, across="x" if grid else "")
    places = -np.arange(len(names), dtype=float)
    ax.set_yticks(places, [cut(clean(name), NAME) for name in names], **PLAIN)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(-len(names) + 0.4, 0.6)
    return places


def height_of(rows: int) -> float:
    """Inches that a picture with so many named rows needs."""
    return 1.0 + 0.34 * max(rows, 1)


def include(ax: Axes, values: Iterable[float]) -> None:
    """Limits across that hold all finite values, with some air."""
    seen = finite(list(values))
    low, high = float(np.nanmin(seen)), float(np.nanmax(seen))
    air = 0.05 * (high - low) or 1.0
    ax.set_xlim(low - air, high + air)
    ax.locator_params(axis="x", nbins=5)


def finite(values: Any) -> Vector:
    """Floats with infinities as gaps: matplotlib cannot scale an axis to them."""
    array = np.asarray(values, dtype=float)
    # beyond 1e300 the span of an axis overflows
    return np.where(np.abs(array) < 1e300, array, np.nan)
