"""The one table value from which every format is written, and the grids of a fit.

Numbers are text already, so the formats cannot disagree; names are whole, and only text and LaTeX,
which have little room, cut them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from privcausal.prices import at_most, column, percent
from privcausal.report import numbers
from privcausal.report.view import Shape, VarianceSource
from privcausal.report.words import effects_on
from privcausal.typing import Vector

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across, of ``=`` or ``-``; LaTeX and HTML have their own rules."""

    character: Literal["=", "-"] = "-"


@dataclass(frozen=True, slots=True)
class Pairs:
    """Labels with their values, in two columns."""

    caption: str
    left: tuple[tuple[str, str], ...]
    right: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column: its short head, its alignment, and the head where there is room for words.

    Text to the left may be cut to fit, numbers to the right or in the centre never are; in plain
    text numbers of the centre stand one above the other, with or without brackets.
    """

    head: str
    align: Literal["left", "right", "center"] = "right"
    words: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class TableGrid:
    """Rows of cells under columns; the first column names the row.

    `headed=False` drops the heads in text, where the caption stands above the rows instead.
    `frame` keeps the numbers behind the cells, unrounded, with whole names. `breaks` are the
    numbers of rows that a light rule stands above.
    """

    caption: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[str, ...], ...]
    frame: pd.DataFrame | None = None
    headed: bool = True
    breaks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"every row of the table {self.caption!r} needs a cell per column")


@dataclass(frozen=True, slots=True)
class Prose:
    """Paragraphs, wrapped; under a heading they are indented. `console`: in plain text only."""

    paragraphs: tuple[str, ...]
    heading: str = ""
    console: bool = False


Block: TypeAlias = Rule | Pairs | TableGrid | Prose


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A title and blocks; `alert` is printed first and last in every format."""

    title: str
    blocks: tuple[Block, ...]
    alert: str = ""


# -- from frames to grids --------------------------------------------------------------------------

Filled: TypeAlias = tuple[TableColumn, Iterable[str]]
"""A column with its cells."""


def filled(
    caption: str, *columns: Filled, frame: pd.DataFrame | None = None, headed: bool = True
) -> TableGrid:
    """The grid of these columns, from left to right; the first names the rows."""
    heads, cells = zip(*columns, strict=True)
    return TableGrid(caption, heads, tuple(zip(*cells, strict=True)), frame, headed)


def named(head: str, cells: Iterable[object], words: str = "") -> Filled:
    """A column of text."""
    return TableColumn(head, "left", words), map(str, cells)


def scaled(frame: pd.DataFrame, heads: Mapping[str, TableColumn], spread: Any) -> list[Filled]:
    """These columns of a frame, the numbers of a row with equal decimals, by its `spread`."""
    values = frame[list(heads)].to_numpy(dtype=float)
    spreads = np.broadcast_to(np.asarray(spread, dtype=float), len(frame))
    cells = [
        numbers.alike(row, s) for row, s in zip(values.tolist(), spreads.tolist(), strict=True)
    ]
    return list(zip(heads.values(), _columns(cells, len(heads)), strict=True))


def _columns(cells: Sequence[tuple[str, ...]], count: int) -> list[tuple[str, ...]]:
    return list(zip(*cells, strict=True)) or [()] * count


ESTIMATES = ("estimate", "std_error", "conf_low", "conf_high")
BIASED = ("estimate", "std_error", "max_bias", "conf_low", "conf_high")


def estimate_heads(alpha: float) -> dict[str, TableColumn]:
    """Heads of `BIASED`, of intervals at level 1 - alpha."""
    level, (low, high) = numbers.level(alpha), numbers.limits(alpha)
    return {
        "estimate": TableColumn("estimate"),
        "std_error": TableColumn("std err", words="standard error"),
        "max_bias": TableColumn("max bias", words="largest bias that clipping can cause"),
        "conf_low": TableColumn(low, words=f"{level} interval, low"),
        "conf_high": TableColumn(high, words=f"{level} interval, high"),
    }


def estimated(
    frame: pd.DataFrame, alpha: float, columns: Sequence[str] = BIASED, value: str = "estimate"
) -> list[Filled]:
    """Columns of estimates with equal decimals; `value` is the head of the first."""
    heads = estimate_heads(alpha) | {"estimate": TableColumn(value)}
    cells = [estimates(row, columns) for row in frame.to_dict("records")]
    return list(zip([heads[c] for c in columns], _columns(cells, len(columns)), strict=True))


def estimates(row: Mapping[Any, Any], columns: Sequence[str] = BIASED) -> tuple[str, ...]:
    """Estimate, standard error and limits with equal decimals; limits alone if there is no more."""
    values = [float(row[column]) for column in columns]
    if math.isnan(values[0]):
        limits = numbers.alike(values[-2:], (values[-1] - values[-2]) / 4)
        return (*("--" for _ in columns[:-2]), *("--" if t == "nan" else t for t in limits))
    return numbers.alike(values, float(row["std_error"]))


def effect_grid(effects: pd.DataFrame, alpha: float) -> TableGrid:
    """Coefficients: estimate, standard error, bound of the bias, p value and limits.

    An index with a name other than "term" says what the effects are on.
    """
    return _effects("Effects", effects_on(effects.index), effects, alpha)


def slope_grid(slopes: pd.DataFrame, alpha: float) -> TableGrid:
    """The best linear projection of the effect, below an average and groups."""
    return _effects("Slopes of the effect", "Slopes", slopes, alpha)


def _effects(caption: str, head: str, effects: pd.DataFrame, alpha: float) -> TableGrid:
    *values, low, high = estimated(effects, alpha)
    marks = named("", (f"[{mark}]" for mark in effects["mark"]), "origin")
    tests = TableColumn("p-value"), map(numbers.p_value, effects["p_value"])
    names = named(head, effects.index, "term")
    return filled(caption, names, marks, *values, tests, low, high, frame=effects)


def gate_grid(gates: pd.DataFrame, alpha: float) -> TableGrid:
    """Group averages; the last column tells how much of the variance is privacy noise."""
    noise = TableColumn("privacy", words="variance due to privacy noise")
    shares = ("--" if math.isnan(s) else numbers.percent(s) for s in gates["privacy_share"])
    names = named("Groups [dp]", gates.index, "group")
    columns = names, *estimated(gates, alpha), (noise, shares)
    return filled("Average effect by group", *columns, frame=gates)


def cell_grid(cells: pd.DataFrame, alpha: float) -> TableGrid:
    """Cells of a partition: noisy counts per arm, uplift, limits."""
    names = named("Cells [dp]", cells.index, "cell")
    columns = names, *noisy_counts(cells), *estimated(cells, alpha, ESTIMATES, "uplift")
    return filled("Uplift by cell", *columns, frame=cells)


def noisy_counts(frame: pd.DataFrame) -> list[Filled]:
    """The columns treated and control."""
    return [
        (TableColumn(arm, words=f"{arm} (noisy count)"), map(numbers.count, frame[arm]))
        for arm in ("treated", "control")
    ]


def source_grid(
    sources: Sequence[VarianceSource], of: str = "", *, packed: bool = True
) -> TableGrid:
    """Where the uncertainty (of one term, where there are several) comes from.

    `packed`: without heads, standard error and share in one column.
    """
    import pandas as pd

    frame = pd.DataFrame(list(sources), columns=list(VarianceSource._fields)).set_index("label")
    errors = numbers.alike([s.std_error for s in sources], min(s.std_error for s in sources))
    shares = [numbers.percent(s.share) for s in sources]
    both = (f"se {e} ({share} of variance)" for e, share in zip(errors, shares, strict=True))
    columns: list[Filled] = [(TableColumn("standard error"), errors)]
    columns.append((TableColumn("share of variance"), shares))
    if packed:
        columns = [named("standard error, share of variance", both)]
    first, last = named("source", frame.index), named("meaning", frame["meaning"])
    caption = f"Where the uncertainty{of} comes from"
    return filled(caption, first, *columns, last, frame=frame, headed=not packed)


CURRENCIES = ("rho", "epsilon", "delta")


def budget_grid(budget: pd.DataFrame, *, mechanisms: bool = True) -> TableGrid:
    """A line per release with its price, in the currencies that were paid.

    A price in brackets is what a parallel release would cost by itself; it is not charged.
    `mechanisms` are a column of their own, unless they are told elsewhere (`only_mechanism`).
    """
    paid = [c for c in CURRENCIES if bool((budget[c] > 0).any())] or ["rho"]
    noise = TableColumn("noise sd", words="noise (standard deviation)")
    lines = (f"{line} {stage}" for line, stage in enumerate(budget["stage"], 1))
    return filled(
        "Privacy budget, release by release",
        named("Privacy budget", lines, "stage"),
        named("query", budget["query"]),
        *([named("mechanism", budget["mechanism"])] if mechanisms else []),
        (noise, map(numbers.noise, budget["noise_sd"])),
        *((TableColumn(currency), _prices(budget, currency)) for currency in paid),
        frame=budget,
    )


def only_mechanism(budget: pd.DataFrame) -> str | None:
    """The mechanism of all releases, if they have one."""
    found = {str(name) for name in budget["mechanism"] if name}
    return found.pop() if len(found) == 1 else None


def _prices(budget: pd.DataFrame, currency: str) -> list[str]:
    """Prices, those in brackets that are not charged."""
    values, free = budget[currency].to_numpy(dtype=float), budget["parallel"]
    if currency == "rho":
        own = own_rho(budget)
        free = own / 2 > np.nan_to_num(values)
        values = np.where(np.isnan(values), values, own)
    texts: Iterable[str] = column(values)
    if currency == "delta":  # a failure chance is read by its power of ten
        texts = (at_most(v, 2) if v > 0 else "" for v in values)
        free = budget["rho"].isna() & free
    return [f"({text})" if f else text for text, f in zip(texts, free, strict=True)]


def share_grid(budget: pd.DataFrame) -> TableGrid:
    """Each release with its share of the price, for readers who do not count in rho."""
    shares = price_frame(budget)["share"]
    return filled(
        "Where the privacy budget went",
        named("stage", budget["stage"], "step"),
        named("query", budget["query"], "what was asked of the data"),
        (TableColumn("share", words="share of the price"), map(numbers.percent, shares)),
    )


def price_frame(budget: pd.DataFrame) -> pd.DataFrame:
    """stage query currency price share, a row for each release, all in one currency.

    Pure epsilon beside rho is counted at the zCDP it implies, rho = epsilon^2 / 2. A release with
    a rho has an epsilon too, which is the same price again. Shares sum to 1.
    """
    rho, epsilon = own_rho(budget), np.nan_to_num(budget["epsilon"].to_numpy(dtype=float))
    pure = bool(epsilon.any() and not rho.any())
    prices = epsilon if pure else np.where(rho > 0, rho, epsilon**2 / 2)
    shares = prices / (float(prices.sum()) or 1.0)
    currency = "epsilon" if pure else "rho"
    return budget[["stage", "query"]].assign(currency=currency, price=prices, share=shares)


def stage_shares(budget: pd.DataFrame) -> dict[str, float]:
    """Share of the price by group of stages, of those that cost something."""
    shares = price_frame(budget).groupby("stage", sort=False)["share"].sum()
    return {str(stage): share for stage, share in shares.items() if share > 0}


def own_rho(budget: pd.DataFrame) -> Vector:
    """rho of each release, and where others have paid, that of its noise: (Delta / sd)^2 / 2."""
    rho, change, noise = (
        np.nan_to_num(budget[c].to_numpy(dtype=float)) for c in ("rho", "sensitivity", "noise_sd")
    )
    in_rho = budget["rho"].notna().to_numpy() & budget["parallel"].to_numpy(dtype=bool)
    marked = in_rho & (noise > 0)
    return np.asarray(np.where(marked, (change / np.where(marked, noise, 1.0)) ** 2 / 2, rho))


def shape_grid(shape: Shape, most: int = 11) -> TableGrid:
    """A shape at up to `most` points, ends included."""
    import pandas as pd

    values = {"estimate": shape.estimate, "low": shape.conf_low, "high": shape.conf_high}
    frame = pd.DataFrame(values, index=pd.Index(list(shape.grid)), dtype=float)
    # levels have no points between them: all are shown
    frame = frame if shape.kind == "levels" else frame.iloc[_some(len(frame), most)]
    heads = {name: TableColumn(name) for name in values}
    points = (p if isinstance(p, str) else numbers.point(p) for p in frame.index)
    return filled(
        f"Effect by {shape.name} ({shape.interval_label})",
        named(shape.name, points),
        *scaled(frame, heads, (frame["high"] - frame["low"]) / 4),
    )


def _some(count: int, most: int) -> list[int]:
    """At most so many places of a sequence, both ends included."""
    steps = min(most, count) - 1
    return [round(i * (count - 1) / steps) for i in range(steps + 1)] if steps else [0]


def gain_grid(gains: pd.DataFrame, most: int = 11) -> TableGrid:
    """A curve of gains at up to `most` points, ends included."""
    shown = gains.iloc[_some(len(gains), most)]
    heads = {"gain": "gain", "conf_low": "low", "conf_high": "high", "random": "by chance"}
    return filled(
        "Expected gain by share treated",
        named("treated", map(numbers.percent, shown["share"])),
        *scaled(
            shown,
            {name: TableColumn(head) for name, head in heads.items()},
            float((gains["conf_high"] - gains["conf_low"]).max()) / 4,
        ),
    )


def attack_grid(curve: pd.DataFrame) -> TableGrid:
    """The power at most at a few shares of false alarms."""
    found = np.interp(ALARMS, curve["false_alarms"], curve["power"])
    return filled(
        "Power of the best attack, at most",
        named("false alarms", map(numbers.percent, ALARMS)),
        (TableColumn("detected at most"), (f"{percent(power)}%" for power in found.tolist())),
    )


ALARMS = (0.01, 0.05, 0.1, 0.25, 0.5)
"""Shares of false alarms in the table; all are points of the curve."""


def plain_grid(caption: str, frame: pd.DataFrame) -> TableGrid:
    """Any small frame: its index as names, floats with equal decimals, the rest as text."""
    first = named(str(frame.index.name or ""), frame.index, str(frame.index.name or "row"))
    return filled(caption, first, *(_plain(series) for _, series in frame.items()), frame=frame)


def _plain(series: pd.Series[Any]) -> Filled:
    head = TableColumn(str(series.name), "right" if series.dtype.kind in "iuf" else "left")
    if series.dtype.kind != "f":
        return head, map(str, series)
    values = [float(value) for value in series]
    most = max((abs(v) for v in values if math.isfinite(v)), default=1.0)
    return head, numbers.alike(values, most)
