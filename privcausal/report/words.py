"""Words: untrusted text made safe to print, and the sentences that fits share."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

import numpy as np

from privcausal.prices import DELTA_DIGITS, at_most, odds, percent
from privcausal.report.numbers import alike, interval, level, point
from privcausal.report.view import FitView, Shape
from privcausal.typing import Kind, Neighbors, Vector

if TYPE_CHECKING:
    import pandas as pd

ALERTS: dict[Kind, str] = {
    "proven": "",
    "published": "PUBLISHED GUARANTEE, NOT PROVEN: it rests on the paper's own claim",
    "none": "NOT PRIVATE: made with a test noise source; do not publish",
}
"""The line that every output of such a fit carries at its top and at its bottom."""

MARKS = {
    "pub": "declared public",
    "dp": "released with noise",
    "post": "from releases",
}

SYMBOLS = str.maketrans(
    {
        "‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "--", "−": "-", "…": "...",
        "≤": "<=", "≥": ">=", "≠": "!=", "×": "x", "±": "+-", "·": "*", "ß": "ss", "ø": "o",
        "Ø": "O", "æ": "ae", "Æ": "AE", "œ": "oe", "ł": "l", "Ł": "L", "ε": "eps", "δ": "delta",
        "ρ": "rho", "τ": "tau", "β": "beta", "α": "alpha", "σ": "sigma",
    }
)  # fmt: skip

ODDS = {
    "substitute": "one person's data were used in place of another's",
    "add_remove": "one person's data were used at all",
}


def clean(text: object) -> str:
    r"""Text on one line in which every character is visible.

    White space becomes a blank; control, direction and half characters become escapes
    (``\x1b``), so a name can neither break a layout nor pose as another.
    """
    return "".join(_visible(c) for c in str(text))


def _visible(character: str) -> str:
    if character.isspace():
        return " "
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")


def ascii_only(text: object) -> str:
    r"""Clean text in ASCII: accents dropped, known symbols spelt, the rest as ``\u5e74``."""
    spelt = clean(text).translate(SYMBOLS)
    plain = "".join(c for c in unicodedata.normalize("NFKD", spelt) if not unicodedata.combining(c))
    return clean(plain).encode("ascii", "backslashreplace").decode("ascii")


def effects_on(index: pd.Index[Any]) -> str:
    """What the effects of a table are on, where its index is named after it; else empty."""
    return "" if index.name in (None, "term", "contrast") else clean(index.name)


def cut(text: str, width: int) -> str:
    """`text` in at most `width` characters, its middle replaced by ``..``.

    The ends stay, because terms of one factor differ in their last characters.
    """
    if len(text) <= width:
        return text
    if width <= 2:
        return text[: max(0, width)]
    tail = (width - 2) // 2
    return text[: width - 2 - tail] + ".." + text[len(text) - tail :]


def first_sentence(text: str) -> str:
    """What a note says, without why."""
    head, dot, _ = text.partition(". ")
    return head + "." if dot else text


def odds_sentence(epsilon: float, delta: float, neighbors: Neighbors) -> str:
    """What epsilon lets anyone learn about one person, as odds (for `FitView.guarantee`)."""
    most = odds(0.5, epsilon)
    slack = f" (up to a {at_most(delta, DELTA_DIGITS)} failure chance)" if delta else ""
    return f"Someone who holds it 50:50 that {ODDS[neighbors]} can move at most to {most}{slack}."


def guess_sentence(right: float, unit: str, neighbors: Neighbors) -> str:
    """How often a guess between two neighbouring tables is right, at most; `right` is a share."""
    change = "replaced by any other" if neighbors == "substitute" else "there or not"
    return (
        f"Someone who gives equal chances to two tables, the data of {unit} {change}, guesses "
        f"right at most {percent(right)} % of the time; a coin is right 50 %."
    )


def shape_line(shape: Shape) -> str:
    """From where to where a shape goes."""
    values = np.asarray(shape.estimate, dtype=float)
    if not np.isfinite(values).any():
        return "no estimate."
    told = _extremes(values) if shape.kind == "levels" else _course(values)
    limits = np.column_stack([values, shape.conf_low, shape.conf_high])[told].astype(float)
    spread = float(np.nanmax(limits) - np.nanmin(limits)) / 4
    shown = iter(alike(limits.ravel().tolist(), spread, digits=2))
    first, *turns, last = (
        f"{next(shown)} [{next(shown)}, {next(shown)}] at {_point(shape, i)}" for i in told
    )
    via = "".join(f" via {turn}" for turn in turns)
    return f"from {first}{via} to {last} ({clean(shape.interval_label)})."


TURN = 0.25
"""A curve that turns is told where it does, if this part of its spread lies beyond its ends."""


def _extremes(values: Vector) -> list[int]:
    """Where the least and the greatest are."""
    return [int(np.nanargmin(values)), int(np.nanargmax(values))]


def _course(values: Vector) -> list[int]:
    """Both ends, and between them where the curve turns."""
    far = TURN * float(np.nanmax(values) - np.nanmin(values))
    turns = [i for i in _extremes(values) if all(np.abs(values[i] - values[[0, -1]]) > far)]
    return [0, *sorted(turns), len(values) - 1]


def _point(shape: Shape, index: int) -> str:
    place = shape.grid[index]
    return clean(place) if isinstance(place, str) else point(place)


def interval_sentence(view: FitView) -> str:
    """The headline effect with its interval: ``0.0532 (95% interval 0.009 to 0.097)``."""
    if view.effects is None or view.effects.empty:
        return "no average effect was released"
    row = view.effects.iloc[view.lead]
    estimate, low, high = interval(row)
    if np.isinf(row["conf_high"] - row["conf_low"]):
        return f"{estimate} (no limits at {level(view.alpha)})"
    return f"{estimate} ({level(view.alpha)} interval {low} to {high})"
