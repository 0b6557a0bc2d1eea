"""The plain values that a fit shows, their text, and the tables that all formats write.

A view holds only released values, public values, and values computed from released ones. Names in a
view (columns, levels, groups) are untrusted text. Code that prints names must clean and escape
them.

Numbers are stored as text, so all formats show the same numbers. Names are stored in full. Only the
text and LaTeX formats shorten names, because they have little room.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, SupportsFloat, TypeAlias

import numpy as np

from privcausal.errors import CapabilityError, DataError
from privcausal.prices import DELTA_DIGITS, at_most, column, odds
from privcausal.typing import Kind, Neighbors, Vector

if TYPE_CHECKING:
    import pandas as pd

# The values of a fit, filled by the results and read by this subpackage.

Pair: TypeAlias = tuple[str, str]


class VarianceSource(NamedTuple):
    """One source of the first effect's uncertainty; squared `std_error`s add up.

    `share` is its part of the variance in [0, 1]. `meaning` is a short explanation; about 30
    characters fit a text summary. List sampling first: intervals add up in this order.
    """

    label: str
    std_error: float
    share: float
    meaning: str


class Check(NamedTuple):
    """A block of the report, such as survival or overlap: a caption, a sentence, a small frame.

    `draw(ax=...)` draws it on axes `height` inches high. If the plot names rows, `rows` are
    their numbers instead, one for each of the axes that `draw` takes.
    """

    caption: str
    sentence: str
    frame: pd.DataFrame
    draw: Callable[..., object] | None = None
    rows: tuple[int, ...] = ()
    height: float = 3.2


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """The estimated effect as a function of one modifier, averaged over the others."""

    name: str  # The modifier
    kind: Literal["continuous", "levels"]
    grid: Sequence[float] | Sequence[str]  # Public points, in the modifier's own units
    estimate: Sequence[float]
    conf_low: Sequence[float]
    conf_high: Sequence[float]
    interval_label: str = "95% interval"  # Meaning of the band or bars: ``"approximate 95% band"``

    def __post_init__(self) -> None:
        if self.kind not in ("continuous", "levels"):
            raise CapabilityError(
                f"kind={self.kind!r} of an effect curve must be 'continuous' or 'levels'."
            )
        lengths = {len(v) for v in (self.grid, self.estimate, self.conf_low, self.conf_high)}
        if len(lengths) != 1 or 0 in lengths:
            raise DataError(
                "grid, estimate and limits of an effect curve must have the same nonzero length."
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FitView:
    """All values that summary, plots and report show of one fit.

    `effects`, `gates` and `cells` have the columns estimate std_error conf_low conf_high for terms
    (the headline effect first), groups and cells.

    - `effects` and `gates` also have max_bias.
    - `effects` also has p_value and `mark`: ``dp`` (released), ``post`` (computed from releases) or
      ``pub`` (declared public).
    - `gates` also has se_sampling.
    - `cells` also has treated and control.
    """

    title: str
    outcome: str
    treatment: str
    left: tuple[Pair, ...]  # Left and right half of the summary's head
    right: tuple[Pair, ...]
    effects: pd.DataFrame | None
    # One line per release: stage query mechanism neighbors sensitivity noise_sd rho epsilon delta
    # rows parallel. `noise_sd` is nan without noise.
    budget: pd.DataFrame
    total: str  # ``"(0.5, 1e-05)-DP"``
    guarantee: tuple[str, ...]  # Sentences; `tables.odds_sentence` writes the sentence on odds
    promise: tuple[str, ...]  # The guarantee, without its meaning
    kind: Kind
    epsilon: float
    delta: float
    rho: float | None  # None if the fit is priced in pure epsilon
    unit_sentence: str  # The protected unit: ``"One row is one patient."``
    # Three plain sentences: the effect, its uncertainty, and its guarantee
    headline: tuple[str, ...]
    call: str  # Python code that reproduces the fit
    neighbors: Neighbors = "substitute"
    # Maximum power of the best test between two neighboring tables at each false_alarms, both as
    # shares; or None without a proven trade-off function.
    attack: pd.DataFrame | None = None
    lead: int = 0
    alpha: float = 0.05  # Intervals are at level 1 - alpha
    gates: pd.DataFrame | None = None
    cells: pd.DataFrame | None = None
    shapes: tuple[Shape, ...] = ()
    figures: tuple[Check, ...] = ()  # Only this kind of fit has them; before the tables
    second: str = ""  # Title of the report's second section, if not its usual one
    scale: str = "predicted outcome"  # The scale that coefficients of a regression change
    grouped: str = "Average effect by group"  # Title of the groups in that section
    variation: str = ""  # A sentence on whether the effect varies by `shapes`
    varies: bool = True  # False if that sentence says that noise hides any variation
    # Expected gain of treating the cells with the largest effect first: share, gain, conf_low,
    # conf_high, random
    gains: pd.DataFrame | None = None
    uncertainty: tuple[VarianceSource, ...] = ()  # Parts of the standard error in row `lead`
    bias: str = ""  # That row's maximum bias from clipping, and how its interval allows for it
    adjustment: str = ""  # How far adjustment moved the estimate, and how much noise hides
    region: str = ""  # A confidence set that is not one interval
    tails: str = ""  # Assumption behind the maximum bias of clipped scores
    parallel: str = ""  # One line on costs in brackets, if there are any
    ledger: str | None = None  # ``"Ledger 'rhc': 1.91 of 2 left."``
    averages: int = 1  # Number of leading `effects` that are not slopes
    notes: tuple[str, ...] = ()
    reading: tuple[str, ...] = ()  # Notes that `assumptions` say in full
    serious: int = 0  # Number of leading notes that the fit also warned about
    assumptions: tuple[str, ...] = ()
    robustness: str = ""  # How strong an unmeasured confounder would have to be
    checks: tuple[Check, ...] = ()
    methods: tuple[str, ...] = ()
    versions: tuple[Pair, ...] = ()  # Names and versions of packages

    @property
    def more(self) -> bool:
        """Whether the interval includes sources other than sampling and privacy noise."""
        return len(self.uncertainty) > 2 or bool(self.bias)


# Numbers as text: at most ten characters, ASCII, the same in every format.

FIXED_WIDTH = 9
"""Maximum characters of a fixed-point number; longer numbers use scientific notation."""


def number(value: SupportsFloat, digits: int = 4) -> str:
    """One number to `digits` significant digits, never longer than ten characters."""
    x = float(value)
    if not math.isfinite(x):
        return "nan" if math.isnan(x) else ("inf" if x > 0 else "-inf")
    if x == 0:
        return "0"
    exponent = math.floor(math.log10(abs(x)))
    if not -4 <= exponent < 7:
        return f"{x:.{min(digits - 1, 2)}e}"
    return fixed(x, max(0, digits - 1 - exponent))


def fixed(value: float, decimals: int) -> str:
    """Fixed-point text without a negative zero."""
    text = f"{value:.{decimals}f}"
    return text.lstrip("-") if text.strip("-0.") == "" else text


def alike(values: Sequence[float], spread: float, digits: int = 3) -> tuple[str, ...]:
    """Numbers on one scale: as many decimals as show `spread` to `digits` digits.

    An estimate, its standard error and its limits read best with the same decimals. If the texts
    would be too long (a tiny spread around a huge number), each number has its own format.
    """
    if not (math.isfinite(spread) and spread > 0):
        return tuple(number(v) for v in values)
    decimals = max(0, digits - 1 - math.floor(math.log10(spread)))
    # Four decimals are easy to read; use more only if two digits need them.
    decimals = max(min(decimals, 4), decimals + 2 - digits)
    largest = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    # Compare sizes first: 1e300 in fixed point has three hundred digits.
    if decimals <= FIXED_WIDTH - 3 and largest < 10**FIXED_WIDTH:
        texts = tuple(fixed(v, decimals) if math.isfinite(v) else number(v) for v in values)
        if all(len(text) <= FIXED_WIDTH for text in texts):
            return texts
    ratio = math.log10(largest) - math.log10(spread) if largest > 0 else 0.0
    return tuple(number(v, min(4, max(2, 2 + math.floor(ratio)))) for v in values)


def interval(row: Any, digits: int = 3) -> tuple[str, ...]:
    """Estimate and both limits of a row of estimates, on the scale of its standard error."""
    values = [float(row[name]) for name in ("estimate", "conf_low", "conf_high")]
    return alike(values, float(row["std_error"]), digits)


def p_value_text(value: float) -> str:
    """Three decimals; below 0.001 the exact value is not useful."""
    if math.isnan(value):
        return "--"
    return "<0.001" if value < 0.001 else fixed(value, 3)


def share_percent(share: float) -> str:
    """A share as a percentage; only exactly 0 and 1 are shown as 0% and 100%."""
    if not math.isfinite(share):
        return "nan"
    if 0 < share < 0.005:
        return "<1%"
    if 0.995 < share < 1:
        return ">99%"
    return f"{100 * share:.0f}%" if abs(share) < 1e6 else number(share, 3)


def confidence(alpha: float) -> str:
    """The level of an interval, ``"95%"``."""
    return f"{100 * (1 - alpha):.4g}%"


def point_text(value: float) -> str:
    """A position on an axis, without meaningless digits."""
    text = number(value)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


# Display names instead of column names: ``labels={"dth30": "30-day mortality"}``.

Labels = Mapping[str, str]


def check_labels(labels: Labels | None, columns: tuple[str, ...]) -> dict[str, str]:
    """The labels, if they are texts for these columns; `CapabilityError` otherwise."""
    names = {} if labels is None else labels
    if not isinstance(names, Mapping) or not all(
        isinstance(k, str) and isinstance(v, str) and v.strip() for k, v in names.items()
    ):
        raise CapabilityError(
            "labels= must map columns to texts, for example {'dth30': '30-day mortality'}."
        )
    for name in names:
        if name not in columns:
            choices = ", ".join(map(repr, columns[:10]))
            raise CapabilityError(
                f"labels= contains {name!r}, which is not a column of the fit. Columns: {choices}."
            )
    return dict(names)


def relabelled(text: str, labels: Labels, whole: Labels = MappingProxyType({})) -> str:
    """A term with its columns' labels: ``C(ward)[T.north]`` and ``ward[north]`` as Ward: north.

    `whole` has the display names of whole texts.
    """
    if not labels or whole.get(text):
        return whole.get(text) or text
    names = "|".join(map(re.escape, sorted(labels, key=len, reverse=True)))
    column = rf"(?:C\((?P<inside>{names})(?:, (?:[^()]|\([^()]*\))*)?\)|(?P<name>{names})(?![\w(]))"

    def labelled(match: re.Match[str]) -> str:
        label = labels[match["inside"] or match["name"]]
        return label if match["level"] is None else f"{label}: {match['level']}"

    return re.sub(rf"(?<![\w.]){column}(?:\[(?:T\.)?(?P<level>[^\]]*)\])?", labelled, text)


def with_labels(view: FitView, labels: Labels, names: Labels = MappingProxyType({})) -> FitView:
    """The same fit with display names. The formula and the call stay as typed.

    `labels` are of columns, wherever they occur; `names` of whole texts.
    """
    if not labels and not names:
        return view

    label = partial(relabelled, labels=labels, whole=names)
    changed = dict[str, Any]()
    for name in ("effects", "gates", "cells"):
        frame = getattr(view, name)
        changed[name] = frame if frame is None else frame.rename(index=lambda t: label(str(t)))
    changed["left"] = tuple((k, v if k == "Formula" else label(v)) for k, v in view.left)
    changed["shapes"] = tuple(replace(shape, name=label(shape.name)) for shape in view.shapes)
    changed["headline"] = tuple(map(label, view.headline))
    changed["bias"] = BIAS_OF.sub(lambda match: label(match[0]), view.bias)
    changed |= {name: label(getattr(view, name)) for name in ("outcome", "treatment")}
    return replace(view, **changed)


BIAS_OF = re.compile(r"(?<=this can bias ).*?(?=, its interval )")
"""The term whose bias a summary tells."""

COMPLETE = "Complete cases"
"""Label of the noisy number of complete rows."""


# Text: functions that make untrusted text safe to print, and sentences shared by fits.

ALERTS: dict[Kind, str] = {
    "proven": "",
    "published": "CLAIMED, NOT PROVEN: privcausal has not verified this privacy guarantee",
    "none": "NOT PRIVATE: computed with test noise; do not publish",
}
"""The alert that every output of such a fit prints at its top and bottom."""

SYMBOLS = str.maketrans(
    {
        "‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "--", "−": "-", "…": "...",
        "≤": "<=", "≥": ">=", "≠": "!=", "×": "x", "±": "+/-", "·": "*", "ß": "ss", "ø": "o",
        "Ø": "O", "æ": "ae", "Æ": "AE", "œ": "oe", "ł": "l", "Ł": "L", "ε": "eps", "δ": "delta",
        "ρ": "rho", "τ": "tau", "β": "beta", "α": "alpha", "σ": "sigma",
    }
)  # fmt: skip

ODDS = {
    "substitute": "one person's data were used in place of another's",
    "add_remove": "one person's data were used at all",
}


def clean(text: object) -> str:
    r"""Text on one line, with every character visible.

    White space becomes a blank. Control characters, direction characters and half characters become
    escapes (``\x1b``). A name can therefore neither break a layout nor imitate another name.
    """
    return "".join(
        " " if c.isspace() else c if c.isprintable() else c.encode("unicode_escape").decode("ascii")
        for c in str(text)
    )


def ascii_only(text: object) -> str:
    r"""Clean text in ASCII: accents dropped, known symbols spelled out, the rest as ``\u5e74``."""
    spelt = clean(text).translate(SYMBOLS)
    plain = "".join(c for c in unicodedata.normalize("NFKD", spelt) if not unicodedata.combining(c))
    return clean(plain).encode("ascii", "backslashreplace").decode("ascii")


def effects_on(index: pd.Index[Any]) -> str:
    """The outcome that a table's effects are on, if its index has that name; otherwise empty."""
    return "" if index.name in (None, "term", "contrast") else clean(index.name)


def cut(text: str, width: int) -> str:
    """Shorten `text` to at most `width` characters; ``..`` replaces its middle.

    The ends stay, because terms of one factor differ in their last characters.
    """
    if len(text) <= width:
        return text
    if width <= 2:
        return text[: max(0, width)]
    tail = (width - 2) // 2
    return text[: width - 2 - tail] + ".." + text[len(text) - tail :]


def first_sentence(text: str) -> str:
    """The first sentence of a note, without the reasons."""
    head, dot, _ = text.partition(". ")
    return head + "." if dot else text


def odds_sentence(epsilon: float, delta: float, neighbors: Neighbors) -> str:
    """How much epsilon lets a belief about one person change, as odds (`FitView.guarantee`)."""
    most = odds(0.5, epsilon)
    slack = f", up to a slack of {at_most(delta, DELTA_DIGITS)} in the probability of any set"
    return (
        f"If someone believes 50:50 that {ODDS[neighbors]}, this result can move that belief to at "
        f"most {most}{f'{slack} of results' if delta else ''}."
    )


def shape_line(shape: Shape) -> str:
    """Text on the course of a curve, or on the range over levels."""
    values = np.asarray(shape.estimate, dtype=float)
    if not np.isfinite(values).any():
        return "No estimate."
    positions = [int(np.nanargmin(values)), int(np.nanargmax(values))]
    if shape.kind != "levels":  # both ends, and the turns between them
        far = TURN * float(np.nanmax(values) - np.nanmin(values))
        turns = [i for i in positions if all(np.abs(values[i] - values[[0, -1]]) > far)]
        positions = [0, *sorted(turns), len(values) - 1]
    limits = np.column_stack([values, shape.conf_low, shape.conf_high])[positions].astype(float)
    spread = float(np.nanmax(limits) - np.nanmin(limits)) / 4
    numbers = iter(alike(limits.ravel().tolist(), spread, digits=2))
    names = ("lowest ", "highest ") if shape.kind == "levels" else ("",) * len(positions)
    labels = (f"{clean(shape.interval_label)} ", *("" for _ in positions[1:]))
    places = [clean(p) if isinstance(p, str) else point_text(p) for p in shape.grid]
    parts = (
        f"{name}{next(numbers)} ({label}{next(numbers)} to {next(numbers)}) at {places[i]}"
        for name, label, i in zip(names, labels, positions, strict=True)
    )
    return f"{'; '.join(parts)}."


TURN = 0.25
"""A turn is reported if it lies beyond both ends by this part of the curve's spread."""


class Rule(str):
    """A line across, of ``=`` or ``-``; LaTeX and HTML have their own rules."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Pairs:
    """Labels with their values, in two columns."""

    caption: str
    left: tuple[tuple[str, str], ...]
    right: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column: its short head, its alignment, and a longer head for use when there is room.

    Left-aligned text may be shortened to fit; right-aligned and centered numbers never are. In
    plain text, centered numbers line up, with or without brackets.
    """

    head: str
    align: Literal["left", "right", "center"] = "right"
    words: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class TableGrid:
    """Rows of cells under columns; the first column names the row.

    `headed=False` omits the heads in plain text, and prints the caption above the rows instead.
    `frame` keeps the numbers behind the cells, unrounded, with full names. A light rule is drawn
    above each row whose number is in `breaks`.
    """

    caption: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[str, ...], ...]
    frame: pd.DataFrame | None = None
    headed: bool = True
    breaks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(
                f"Every row of the table {self.caption!r} must have one cell per column."
            )


@dataclass(frozen=True, slots=True)
class Prose:
    """Wrapped paragraphs, indented under a heading. `console`: printed in plain text only."""

    paragraphs: tuple[str, ...]
    heading: str = ""
    console: bool = False


TableBlock: TypeAlias = Rule | Pairs | TableGrid | Prose


# -- from frames to grids --------------------------------------------------------------------------

Filled: TypeAlias = tuple[TableColumn, Iterable[str]]
"""A column with its cells."""


def filled(
    caption: str, *columns: Filled, frame: pd.DataFrame | None = None, headed: bool = True
) -> TableGrid:
    """The grid of these columns, from left to right; the first names the rows."""
    heads, cells = zip(*columns, strict=True)
    return TableGrid(caption, heads, tuple(zip(*cells, strict=True)), frame, headed)


def labelled_names(head: str, cells: Iterable[object], words: str = "") -> Filled:
    """A column of text."""
    return TableColumn(head, "left", words), map(str, cells)


def scaled(frame: pd.DataFrame, heads: Mapping[str, TableColumn], spread: Any) -> list[Filled]:
    """Columns of a frame; numbers in a row have equal decimals, which `spread` determines."""
    values = frame[list(heads)].to_numpy(dtype=float)
    spreads = np.broadcast_to(np.asarray(spread, dtype=float), len(frame))
    cells = [alike(row, s) for row, s in zip(values.tolist(), spreads.tolist(), strict=True)]
    texts = list(zip(*cells, strict=True)) or [()] * len(heads)
    return list(zip(heads.values(), texts, strict=True))


ESTIMATES = ("estimate", "std_error", "conf_low", "conf_high")
BIASED = ("estimate", "std_error", "max_bias", "conf_low", "conf_high")
SAMPLED = ("estimate", "std_error", "se_sampling", "max_bias", "conf_low", "conf_high")


def estimate_heads(alpha: float) -> dict[str, TableColumn]:
    """Heads of `SAMPLED`, for intervals at level 1 - alpha."""
    level = confidence(alpha)
    return {
        "estimate": TableColumn("estimate"),
        "std_error": TableColumn("std err", words="standard error"),
        "se_sampling": TableColumn("sampling", words="standard error from sampling alone"),
        "max_bias": TableColumn("max bias", words="maximum bias from clipping"),
        "conf_low": TableColumn(f"[{alpha / 2:.4g}", words=f"{level} interval, low"),
        "conf_high": TableColumn(f"{1 - alpha / 2:.4g}]", words=f"{level} interval, high"),
    }


def estimated(
    frame: pd.DataFrame, alpha: float, columns: Sequence[str] = BIASED, value: str = "estimate"
) -> list[Filled]:
    """Columns of estimates with equal decimals; `value` is the head of the first."""
    heads = estimate_heads(alpha) | {"estimate": TableColumn(value)}
    cells = [estimates(row, columns) for row in frame.to_dict("records")]
    texts = list(zip(*cells, strict=True)) or [()] * len(columns)
    return list(zip([heads[c] for c in columns], texts, strict=True))


def estimates(row: Mapping[Any, Any], columns: Sequence[str] = BIASED) -> tuple[str, ...]:
    """Estimate, standard error and limits with equal decimals, or only the available limits."""
    values = [float(row[column]) for column in columns]
    if math.isnan(values[0]):
        limits = alike(values[-2:], (values[-1] - values[-2]) / 4)
        return (*("--" for _ in columns[:-2]), *("--" if t == "nan" else t for t in limits))
    return alike(values, float(row["std_error"]))


def effect_grid(
    effects: pd.DataFrame, alpha: float, caption: str = "Effects", head: str | None = None
) -> TableGrid:
    """Coefficients: estimate, standard error, maximum bias, p value and limits.

    The head of the names is by default the outcome of the effects, if the index has its name.
    """
    head = effects_on(effects.index) if head is None else head
    *values, low, high = estimated(effects, alpha)
    tests = TableColumn("p-value"), map(p_value_text, effects["p_value"])
    names = labelled_names(head, effects.index, "term")
    return filled(caption, names, *values, tests, low, high, frame=effects)


def fit_grids(
    view: FitView,
    effects: pd.DataFrame | None,
    slopes: pd.DataFrame | None,
    caption: str = "Effects",
) -> dict[str, TableGrid]:
    """The tables that a fit has, by name: its effects, groups, slopes and cells."""
    grids, alpha, gates, cells = dict[str, TableGrid](), view.alpha, view.gates, view.cells
    if effects is not None and len(effects):
        grids["effects"] = effect_grid(effects, alpha, caption)
    if gates is not None and len(gates):  # with the standard error from sampling alone
        names = labelled_names("Groups (noisy)", gates.index, "group")
        columns = names, *estimated(gates, alpha, SAMPLED)
        grids["groups"] = filled("Average effect by group", *columns, frame=gates)
    if slopes is not None and len(slopes):
        grids["slopes"] = effect_grid(slopes, alpha, "Slopes of the effect", "Slopes")
    if cells is not None and len(cells):  # with noisy counts per arm
        names = labelled_names("Cells (noisy)", cells.index, "cell")
        columns = names, *noisy_counts(cells), *estimated(cells, alpha, ESTIMATES, "uplift")
        grids["cells"] = filled("Uplift by cell", *columns, frame=cells)
    return grids


def noisy_counts(frame: pd.DataFrame) -> list[Filled]:
    """The columns treated and control, to the nearest whole number."""
    columns = list[Filled]()
    for arm in ("treated", "control"):
        texts = [fixed(n, 0) if abs(n) < 10**FIXED_WIDTH else number(n) for n in frame[arm]]
        columns.append((TableColumn(arm, words=f"{arm} (noisy count)"), texts))
    return columns


def source_grid(
    sources: Sequence[VarianceSource], of: str = "", *, packed: bool = True
) -> TableGrid:
    """Sources of the uncertainty, of one term if there are several.

    `packed`: without heads, standard error and share in one column.
    """
    import pandas as pd

    frame = pd.DataFrame(list(sources), columns=list(VarianceSource._fields)).set_index("label")
    errors = alike([s.std_error for s in sources], min(s.std_error for s in sources))
    shares = [share_percent(s.share) for s in sources]
    both = (f"se {e} ({share} of variance)" for e, share in zip(errors, shares, strict=True))
    columns: list[Filled] = [(TableColumn("standard error"), errors)]
    columns.append((TableColumn("share of variance"), shares))
    caption = f"Sources of uncertainty{of}"
    if not packed:  # Three columns fit a narrow page.
        names = labelled_names("source", (f"{s.label}: {s.meaning}" for s in sources))
        return filled(caption, names, *columns, frame=frame)
    first, last = labelled_names("source", frame.index), labelled_names("meaning", frame["meaning"])
    columns = [labelled_names("standard error, share of variance", both)]
    return filled(caption, first, *columns, last, frame=frame, headed=False)


def budget_grid(budget: pd.DataFrame, *, mechanisms: bool = True) -> TableGrid:
    """One line per release with its cost, in the currencies that were paid.

    A cost in brackets is the cost of a parallel release alone; it is not charged. If `mechanisms`
    is true, mechanisms have a column; otherwise the only mechanism is printed elsewhere.
    """
    currencies = [c for c in ("rho", "epsilon", "delta") if bool((budget[c] > 0).any())] or ["rho"]
    noise = TableColumn("noise sd", words="noise (standard deviation)")
    prices = list[Filled]()
    for currency in currencies:
        values, free = budget[currency].to_numpy(dtype=float), budget["parallel"]
        if currency == "rho":
            rho = own_rho(budget)
            free = rho / 2 > np.nan_to_num(values)
            values = np.where(np.isnan(values), values, rho)
        texts: Iterable[str] = column(values)
        if currency == "delta":  # Powers of ten are the natural format of a failure probability.
            texts = (at_most(v, 2) if v > 0 else "" for v in values)
            free = budget["rho"].isna() & free
        cells = [f"({text})" if f else text for text, f in zip(texts, free, strict=True)]
        prices.append((TableColumn(currency), cells))
    lines = (f"{line} {stage}" for line, stage in enumerate(budget["stage"], 1))
    return filled(
        "Privacy budget by release",
        labelled_names("Privacy budget", lines, "stage"),
        labelled_names("query", budget["query"]),
        *([labelled_names("mechanism", budget["mechanism"])] if mechanisms else []),
        (noise, ("" if math.isnan(sd) else number(sd, 3) for sd in budget["noise_sd"])),
        *prices,
        frame=budget,
    )


def price_frame(budget: pd.DataFrame) -> pd.DataFrame:
    """stage query currency price share, a row for each release, all in one currency.

    If the fit also pays in rho, pure epsilon is counted at the zCDP that it implies, rho =
    epsilon^2 / 2. The epsilon of a release with a rho is the same cost in another unit. Shares sum
    to 1.
    """
    rho, epsilon = own_rho(budget), np.nan_to_num(budget["epsilon"].to_numpy(dtype=float))
    pure = bool(epsilon.any() and not rho.any())
    prices = epsilon if pure else np.where(rho > 0, rho, epsilon**2 / 2)
    shares = prices / (float(prices.sum()) or 1.0)
    currency = "epsilon" if pure else "rho"
    return budget[["stage", "query"]].assign(currency=currency, price=prices, share=shares)


def stage_shares(budget: pd.DataFrame) -> dict[str, float]:
    """Share of the cost by group of stages, for stages that cost something."""
    shares = price_frame(budget).groupby("stage", sort=False)["share"].sum()
    return {str(stage): share for stage, share in shares.items() if share > 0}


def own_rho(budget: pd.DataFrame) -> Vector:
    """rho of each release; for parallel releases, the rho of their noise: (Delta / sd)^2 / 2."""
    rho, change, noise = (
        np.nan_to_num(budget[c].to_numpy(dtype=float)) for c in ("rho", "sensitivity", "noise_sd")
    )
    in_rho = budget["rho"].notna().to_numpy() & budget["parallel"].to_numpy(dtype=bool)
    marked = in_rho & (noise > 0)
    return np.asarray(np.where(marked, (change / np.where(marked, noise, 1.0)) ** 2 / 2, rho))
