"""The one table value from which every format is written, and the grids of a fit.

Numbers are text already, so the formats cannot disagree; names are whole, and only text and LaTeX,
which have little room, cut them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

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


# -- grids ----------------------------------------------------------------------------------------

ESTIMATES = ("estimate", "std_error", "conf_low", "conf_high")
BIASED = ("estimate", "std_error", "max_bias", "conf_low", "conf_high")

ESTIMATE_COLUMNS = (
    TableColumn("estimate"),
    TableColumn("std err", words="standard error"),
    TableColumn("max bias", words="largest bias that clipping can cause"),
)


def effect_grid(effects: pd.DataFrame, alpha: float) -> TableGrid:
    """Coefficients: estimate, standard error, bound of the bias, p value and limits.

    An index with a name other than "term" says what the effects are on.
    """
    columns = (
        TableColumn(effects_on(effects.index), "left", "term"),
        TableColumn("", "left", "origin"),
        *ESTIMATE_COLUMNS,
        TableColumn("p-value"),
        *limit_columns(alpha),
    )
    rows = tuple(
        (
            name,
            f"[{row['mark']}]",
            *estimates(row, BIASED)[:3],
            numbers.p_value(_real(row, "p_value")),
            *estimates(row, BIASED)[3:],
        )
        for name, row in _records(effects)
    )
    return TableGrid("Effects", columns, rows, effects)


def slope_grid(slopes: pd.DataFrame, alpha: float) -> TableGrid:
    """The best linear projection of the effect, below an average and groups."""
    grid = effect_grid(slopes, alpha)
    head = replace(grid.columns[0], head="Slopes")
    return replace(grid, caption="Slopes of the effect", columns=(head, *grid.columns[1:]))


def gate_grid(gates: pd.DataFrame, alpha: float) -> TableGrid:
    """Group averages; the last column tells how much of the variance is privacy noise."""
    columns = (
        TableColumn("Groups [dp]", "left", "group"),
        *ESTIMATE_COLUMNS,
        *limit_columns(alpha),
        TableColumn("privacy", words="variance due to privacy noise"),
    )
    rows = tuple((name, *estimates(row, BIASED), _privacy(row)) for name, row in _records(gates))
    return TableGrid("Average effect by group", columns, rows, gates)


def _privacy(row: Mapping[str, object]) -> str:
    share = _real(row, "privacy_share")
    return "--" if math.isnan(share) else numbers.percent(share)


def cell_grid(cells: pd.DataFrame, alpha: float) -> TableGrid:
    """Cells of a partition: noisy counts per arm, uplift, limits."""
    columns = (
        TableColumn("Cells [dp]", "left", "cell"),
        TableColumn("treated", words="treated (noisy count)"),
        TableColumn("control", words="control (noisy count)"),
        TableColumn("uplift"),
        TableColumn("std err", words="standard error"),
        *limit_columns(alpha),
    )
    rows = tuple(
        (
            name,
            numbers.count(_real(row, "treated")),
            numbers.count(_real(row, "control")),
            *estimates(row),
        )
        for name, row in _records(cells)
    )
    return TableGrid("Uplift by cell", columns, rows, cells)


def limit_columns(alpha: float) -> tuple[TableColumn, TableColumn]:
    """Of the limits of intervals at level 1 - alpha."""
    level, (low, high) = numbers.level(alpha), numbers.limits(alpha)
    return (
        TableColumn(low, words=f"{level} interval, low"),
        TableColumn(high, words=f"{level} interval, high"),
    )


def source_grid(sources: Sequence[VarianceSource], of: str = "") -> TableGrid:
    """Where the uncertainty (of one term, where there are several) comes from."""
    import pandas as pd

    frame = pd.DataFrame(list(sources), columns=list(VarianceSource._fields)).set_index("label")
    columns = (
        TableColumn("source", "left"),
        TableColumn("standard error, share of variance", "left"),
        TableColumn("meaning", "left"),
    )
    errors = numbers.alike([s.std_error for s in sources], min(s.std_error for s in sources))
    rows = tuple(
        (s.label, f"se {error} ({numbers.percent(s.share)} of variance)", s.meaning)
        for s, error in zip(sources, errors, strict=True)
    )
    return TableGrid(f"Where the uncertainty{of} comes from", columns, rows, frame, headed=False)


def variance_grid(sources: Sequence[VarianceSource]) -> TableGrid:
    """The same where there is room for a column each."""
    packed = source_grid(sources)
    columns = (
        packed.columns[0],
        TableColumn("standard error"),
        TableColumn("share of variance"),
        packed.columns[2],
    )
    rows = tuple(
        (row[0], row[1].split()[1], numbers.percent(source.share), row[2])
        for row, source in zip(packed.rows, sources, strict=True)
    )
    return TableGrid(packed.caption, columns, rows, packed.frame)


CURRENCIES = ("rho", "epsilon", "delta")


def budget_grid(budget: pd.DataFrame, *, mechanisms: bool = True) -> TableGrid:
    """A line per release with its price, in the currencies that were paid.

    A price in brackets is what a parallel release would cost by itself; it is not charged.
    `mechanisms` are a column of their own, unless they are told elsewhere (`only_mechanism`).
    """
    paid = [c for c in CURRENCIES if bool((budget[c] > 0).any())] or ["rho"]
    columns = (
        TableColumn("Privacy budget", "left", "stage"),
        TableColumn("query", "left"),
        *([TableColumn("mechanism", "left")] if mechanisms else []),
        TableColumn("noise sd", words="noise (standard deviation)"),
        *(TableColumn(currency) for currency in paid),
    )
    prices = zip(*(_prices(budget, currency) for currency in paid), strict=True)
    rows = tuple(
        (
            f"{line} {row['stage']}",
            str(row["query"]),
            *([str(row["mechanism"])] if mechanisms else []),
            numbers.noise(_real(row, "noise_sd")),
            *price,
        )
        for line, ((_, row), price) in enumerate(zip(_records(budget), prices, strict=True), 1)
    )
    return TableGrid("Privacy budget, release by release", columns, rows, budget)


def only_mechanism(budget: pd.DataFrame) -> str | None:
    """The mechanism of all releases, if they have one."""
    found = {str(name) for name in budget["mechanism"] if name}
    return found.pop() if len(found) == 1 else None


def _prices(budget: pd.DataFrame, currency: str) -> tuple[str, ...]:
    values = budget[currency].to_numpy(dtype=float)
    if currency == "delta":  # a failure chance is read by its power of ten
        texts = tuple(at_most(v, 2) if v > 0 else "" for v in values)
        marked = zip(texts, budget["rho"].isna() & budget["parallel"], strict=True)
        return tuple(f"({text})" if parallel else text for text, parallel in marked)
    if currency == "epsilon":
        marked = zip(column(values), budget["parallel"], strict=True)
        return tuple(f"({text})" if parallel else text for text, parallel in marked)
    own = own_rho(budget)
    texts = column(np.where(np.isnan(values), values, own))
    free = own / 2 > np.nan_to_num(values)
    return tuple(f"({text})" if f else text for text, f in zip(texts, free, strict=True))


def share_grid(budget: pd.DataFrame) -> TableGrid:
    """Each release with its share of the price, for readers who do not count in rho."""
    _, prices = budget_prices(budget)
    total = float(prices.sum()) or 1.0
    columns = (
        TableColumn("stage", "left", "step"),
        TableColumn("query", "left", "what was asked of the data"),
        TableColumn("share", words="share of the price"),
    )
    asked = zip(budget["stage"], budget["query"], prices, strict=True)
    rows = tuple((str(s), str(q), numbers.percent(price / total)) for s, q, price in asked)
    return TableGrid("Where the privacy budget went", columns, rows)


def budget_prices(budget: pd.DataFrame) -> tuple[str, Vector]:
    """One currency for all releases, and the price of each by itself, shape (lines,).

    Pure epsilon beside rho is counted at the zCDP it implies, rho = epsilon^2 / 2. A release with
    a rho has an epsilon too, which is the same price again.
    """
    rho, epsilon = own_rho(budget), np.nan_to_num(budget["epsilon"].to_numpy(dtype=float))
    if epsilon.any() and not rho.any():
        return "epsilon", epsilon
    return "rho", np.where(rho > 0, rho, epsilon**2 / 2)


def stage_shares(budget: pd.DataFrame) -> dict[str, float]:
    """Share of the price by group of stages, of those that cost something."""
    _, prices = budget_prices(budget)
    found: dict[str, float] = {}
    for stage, price in zip(budget["stage"], prices / (prices.sum() or 1.0), strict=True):
        found[str(stage)] = found.get(str(stage), 0.0) + float(price)
    return {stage: share for stage, share in found.items() if share > 0}


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
    # levels have no points between them: all are shown
    points = range(len(shape.grid)) if shape.kind == "levels" else _some(len(shape.grid), most)
    columns = (
        TableColumn(shape.name, "left"),
        TableColumn("estimate"),
        TableColumn("low"),
        TableColumn("high"),
    )
    rows = tuple(_shape_row(shape, i) for i in points)
    return TableGrid(f"Effect by {shape.name} ({shape.interval_label})", columns, rows)


def _some(count: int, most: int) -> list[int]:
    """At most so many places of a sequence, both ends included."""
    steps = min(most, count) - 1
    return [round(i * (count - 1) / steps) for i in range(steps + 1)] if steps else [0]


def _shape_row(shape: Shape, index: int) -> tuple[str, ...]:
    point = shape.grid[index]
    low, high = float(shape.conf_low[index]), float(shape.conf_high[index])
    values = numbers.alike([float(shape.estimate[index]), low, high], (high - low) / 4)
    return (point if isinstance(point, str) else numbers.point(point), *values)


def estimates(row: Mapping[str, object], names: Sequence[str] = ESTIMATES) -> tuple[str, ...]:
    """Estimate, standard error and limits with equal decimals; limits alone if there is no more."""
    if math.isnan(_real(row, "estimate")):
        ends = [_real(row, name) for name in names[-2:]]
        limits = numbers.alike(ends, (ends[1] - ends[0]) / 4)
        return (*("--" for _ in names[:-2]), *("--" if t == "nan" else t for t in limits))
    return numbers.alike([_real(row, name) for name in names], _real(row, "std_error"))


def gain_grid(gains: pd.DataFrame, most: int = 11) -> TableGrid:
    """A curve of gains at up to `most` points, ends included."""
    shown = gains.iloc[_some(len(gains), most)]
    columns = (
        TableColumn("treated", "left"),
        TableColumn("gain"),
        TableColumn("low"),
        TableColumn("high"),
        TableColumn("by chance"),
    )
    spread = float((gains["conf_high"] - gains["conf_low"]).max()) / 4
    rows = tuple(
        (
            numbers.percent(_real(row, "share")),
            *numbers.alike(
                [_real(row, name) for name in ("gain", "conf_low", "conf_high", "random")], spread
            ),
        )
        for _, row in _records(shown)
    )
    return TableGrid("Expected gain by share treated", columns, rows)


def attack_grid(curve: pd.DataFrame) -> TableGrid:
    """The power at most at a few shares of false alarms."""
    columns = (TableColumn("false alarms", "left"), TableColumn("detected at most"))
    found = np.interp(ALARMS, curve["false_alarms"], curve["power"])
    rows = tuple(
        (numbers.percent(alarms), f"{percent(power)}%")
        for alarms, power in zip(ALARMS, found.tolist(), strict=True)
    )
    return TableGrid("Power of the best attack, at most", columns, rows)


ALARMS = (0.01, 0.05, 0.1, 0.25, 0.5)
"""Shares of false alarms in the table; all are points of the curve."""


def plain_grid(caption: str, frame: pd.DataFrame) -> TableGrid:
    """Any small frame: its index as names, floats with equal decimals, the rest as text."""
    columns = (
        TableColumn(str(frame.index.name or ""), "left", str(frame.index.name or "row")),
        *(
            TableColumn(str(name), _alignment(frame.iloc[:, place]))
            for place, name in enumerate(frame.columns)
        ),
    )
    rows = tuple(
        (str(name), *cells) for name, cells in zip(frame.index, _cells(frame), strict=True)
    )
    return TableGrid(caption, columns, rows, frame)


def _alignment(column: pd.Series[float]) -> Literal["left", "right"]:
    return "right" if column.dtype.kind in "iuf" else "left"


def _cells(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    columns = [_plain(frame.iloc[:, place]) for place in range(frame.shape[1])]
    return list(zip(*columns, strict=True)) if columns else [()] * len(frame)


def _plain(column: pd.Series[float]) -> tuple[str, ...]:
    if column.dtype.kind != "f":
        return tuple(str(value) for value in column)
    values = [float(value) for value in column]
    return numbers.alike(values, max((abs(v) for v in values if math.isfinite(v)), default=1.0))


def _real(row: Mapping[str, object], name: str) -> float:
    return float(cast(float, row[name]))


def _records(frame: pd.DataFrame) -> list[tuple[str, dict[str, object]]]:
    """Rows as (name, values); names need not be unique."""
    values = frame.to_dict("records")
    named = zip(frame.index, values, strict=True)
    return [(str(name), {str(k): v for k, v in row.items()}) for name, row in named]
