"""Grids of a fit: each released frame, with its numbers written out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from privcausal.report import numbers
from privcausal.report.table import Column, Grid
from privcausal.report.view import Shape, Source
from privcausal.typing import Vector

if TYPE_CHECKING:
    import pandas as pd

ESTIMATES = ("estimate", "std_error", "conf_low", "conf_high")


def effect_grid(effects: pd.DataFrame, alpha: float) -> Grid:
    """Coefficients: estimate, standard error, z, p and limits."""
    low, high = numbers.limits(alpha)
    columns = (
        Column("", "left", "term"),
        Column("", "left", "origin"),
        Column("estimate"),
        Column("std err", words="standard error"),
        Column("z"),
        Column("P>|z|", words="p value"),
        *_limit_columns(low, high, alpha),
    )
    rows = tuple(_effect_row(name, row) for name, row in _records(effects))
    return Grid("Effects", columns, rows, effects)


def _effect_row(name: str, row: Mapping[str, object]) -> tuple[str, ...]:
    estimate, error, lower, upper = estimates(row)
    z, p = (numbers.statistic(_real(row, "statistic")), numbers.p_value(_real(row, "p_value")))
    return (name, mark(row["mark"]), estimate, error, z, p, lower, upper)


def mark(value: object) -> str:
    """``dp`` as ``[dp]``."""
    return f"[{str(value).strip('[]')}]"


def gate_grid(gates: pd.DataFrame, alpha: float) -> Grid:
    """Group averages; the last column tells how much of the variance is privacy noise."""
    low, high = numbers.limits(alpha)
    columns = (
        Column("Groups [dp]", "left", "group"),
        Column("estimate"),
        Column("std err", words="standard error"),
        *_limit_columns(low, high, alpha),
        Column("privacy", words="variance due to privacy noise"),
    )
    rows = tuple(
        (name, *estimates(row), numbers.percent(_real(row, "privacy_share")))
        for name, row in _records(gates)
    )
    return Grid("Average effect by group", columns, rows, gates)


def cell_grid(cells: pd.DataFrame, alpha: float) -> Grid:
    """Cells of a partition: noisy counts per arm, uplift, limits."""
    low, high = numbers.limits(alpha)
    columns = (
        Column("Cells [dp]", "left", "cell"),
        Column("treated", words="treated (noisy count)"),
        Column("control", words="control (noisy count)"),
        Column("uplift"),
        Column("std err", words="standard error"),
        *_limit_columns(low, high, alpha),
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
    return Grid("Uplift by cell", columns, rows, cells)


def _limit_columns(low: str, high: str, alpha: float) -> tuple[Column, Column]:
    level = numbers.level(alpha)
    return (
        Column(low, words=f"{level} interval, low"),
        Column(high, words=f"{level} interval, high"),
    )


def source_grid(sources: Sequence[Source], of: str = "") -> Grid:
    """Where the uncertainty (of one term, where there are several) comes from."""
    import pandas as pd

    of = f" of {of}" if of else ""

    frame = pd.DataFrame(list(sources), columns=list(Source._fields)).set_index("label")
    columns = (
        Column("source", "left"),
        Column("standard error, share of variance", "left"),
        Column("meaning", "left"),
    )
    errors = numbers.alike([s.std_error for s in sources], min(s.std_error for s in sources))
    rows = tuple(
        (s.label, f"se {error} ({numbers.percent(s.share)} of variance)", s.meaning)
        for s, error in zip(sources, errors, strict=True)
    )
    return Grid(f"Where the uncertainty{of} comes from", columns, rows, frame, headed=False)


def variance_grid(sources: Sequence[Source]) -> Grid:
    """The same where there is room for a column each."""
    packed = source_grid(sources)
    columns = (
        packed.columns[0],
        Column("standard error"),
        Column("share of variance"),
        packed.columns[2],
    )
    rows = tuple(
        (row[0], row[1].split()[1], numbers.percent(source.share), row[2])
        for row, source in zip(packed.rows, sources, strict=True)
    )
    return Grid(packed.caption, columns, rows, packed.frame)


CURRENCIES = ("rho", "epsilon", "delta")

PARALLEL = "(parallel)"
"""Ends the query of a release from rows of its own, beside others that have paid as much."""


def budget_grid(budget: pd.DataFrame) -> Grid:
    """A line per release with its price, in the currencies that were paid.

    A price in brackets is what a parallel release would cost by itself; it is not charged.
    """
    paid = [c for c in CURRENCIES if bool((budget[c] > 0).any())] or ["rho"]
    columns = (
        Column("Privacy budget", "left", "stage"),
        Column("query", "left"),
        Column("mechanism", "left"),
        Column("noise sd", words="noise (standard deviation)"),
        *(Column(currency) for currency in paid),
    )
    prices = zip(*(_prices(budget, currency) for currency in paid), strict=True)
    rows = tuple(
        (
            f"{line} {row['stage']}",
            str(row["query"]).removesuffix(f" {PARALLEL}"),  # the brackets say it
            str(row["mechanism"]),
            numbers.noise(_real(row, "noise_sd")),
            *price,
        )
        for line, ((_, row), price) in enumerate(zip(_records(budget), prices, strict=True), 1)
    )
    return Grid("Privacy budget, release by release", columns, rows, budget)


def _prices(budget: pd.DataFrame, currency: str) -> tuple[str, ...]:
    values = budget[currency].to_numpy(dtype=float)
    if currency == "delta":  # a failure chance is read by its power of ten
        return tuple(numbers.number(v, 2) if v > 0 else "" for v in values)
    if currency == "epsilon":
        parallel = budget["query"].astype(str).str.endswith(PARALLEL)
        texts = numbers.amounts(values)
        return tuple(f"({text})" if p else text for text, p in zip(texts, parallel, strict=True))
    own = own_rho(budget)
    texts = numbers.amounts(np.where(np.isnan(values), values, own))
    free = own / 2 > np.nan_to_num(values)
    return tuple(f"({text})" if f else text for text, f in zip(texts, free, strict=True))


def share_grid(budget: pd.DataFrame) -> Grid:
    """Each release with its share of the price, for readers who do not count in rho."""
    _, prices = budget_prices(budget)
    total = float(prices.sum()) or 1.0
    columns = (
        Column("stage", "left", "step"),
        Column("query", "left", "what was asked of the data"),
        Column("share", words="share of the price"),
    )
    asked = zip(budget["stage"], budget["query"], prices, strict=True)
    rows = tuple((str(s), str(q), numbers.percent(price / total)) for s, q, price in asked)
    return Grid("Where the privacy budget went", columns, rows)


def budget_prices(budget: pd.DataFrame) -> tuple[str, Vector]:
    """One currency for all releases, and the price of each by itself, shape (lines,).

    Pure epsilon beside rho is counted at the zCDP it implies, rho = epsilon^2 / 2. A release with
    a rho has an epsilon too, which is the same price again.
    """
    rho, epsilon = own_rho(budget), np.nan_to_num(budget["epsilon"].to_numpy(dtype=float))
    if epsilon.any() and not rho.any():
        return "epsilon", epsilon
    return "rho", np.where(rho > 0, rho, epsilon**2 / 2)


def own_rho(budget: pd.DataFrame) -> Vector:
    """rho of each release, and where others have paid, that of its noise: (Delta / sd)^2 / 2."""
    rho, change, noise = (
        np.nan_to_num(budget[c].to_numpy(dtype=float)) for c in ("rho", "sensitivity", "noise_sd")
    )
    marked = np.array([str(q).endswith(PARALLEL) for q in budget["query"]], bool) & (noise > 0)
    return np.asarray(np.where(marked, (change / np.where(marked, noise, 1.0)) ** 2 / 2, rho))


def shape_grid(shape: Shape, most: int = 11) -> Grid:
    """A shape at up to `most` points, ends included."""
    last = len(shape.grid) - 1
    steps = min(most - 1, last)
    points = [round(i * last / steps) for i in range(steps + 1)] if steps else [0]
    if shape.kind == "levels":  # levels have no points between them: all are shown
        points = list(range(last + 1))
    columns = (
        Column(shape.name, "left"),
        Column("estimate"),
        Column("low"),
        Column("high"),
    )
    rows = tuple(_shape_row(shape, i) for i in points)
    return Grid(f"Effect by {shape.name} ({shape.interval_label})", columns, rows)


def _shape_row(shape: Shape, index: int) -> tuple[str, ...]:
    point = shape.grid[index]
    low, high = float(shape.conf_low[index]), float(shape.conf_high[index])
    values = numbers.alike([float(shape.estimate[index]), low, high], (high - low) / 4)
    return (point if isinstance(point, str) else numbers.point(point), *values)


def estimates(row: Mapping[str, object]) -> tuple[str, ...]:
    """Estimate, standard error and limits with equal decimals."""
    return numbers.alike([_real(row, name) for name in ESTIMATES], _real(row, "std_error"))


def gain_grid(gains: pd.DataFrame, most: int = 11) -> Grid:
    """A curve of gains at up to `most` points, ends included."""
    last = len(gains) - 1
    steps = min(most - 1, last)
    shown = gains.iloc[[round(i * last / steps) for i in range(steps + 1)]]
    columns = (
        Column("treated", "left"),
        Column("gain"),
        Column("low"),
        Column("high"),
        Column("by chance"),
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
    return Grid("Expected gain by share treated", columns, rows)


def plain_grid(caption: str, frame: pd.DataFrame) -> Grid:
    """Any small frame: its index as names, floats with equal decimals, the rest as text."""
    columns = (
        Column(str(frame.index.name or ""), "left", str(frame.index.name or "row")),
        *(
            Column(str(name), _alignment(frame.iloc[:, place]))
            for place, name in enumerate(frame.columns)
        ),
    )
    rows = tuple(
        (str(name), *cells) for name, cells in zip(frame.index, _cells(frame), strict=True)
    )
    return Grid(caption, columns, rows, frame)


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
