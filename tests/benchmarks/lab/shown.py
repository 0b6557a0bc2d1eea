"""Tables of rows: coverage and width by kind, A/A tests, what varies with n, eps and bounds."""

from __future__ import annotations

import re
from typing import Any

import fits
import numpy as np
import pandas as pd
from kinds import LAWS, TRIALS, drawn
from scipy.stats import binom
from scipy.stats import t as student
from verdicts import CELL, verdicts

TOTALS = ["without confounding", "ALL"]


def text(rows: pd.DataFrame, worst: int) -> str:
    """All tables that the rows have."""
    rows = rows[rows["failed"] != "CapabilityError"]  # a pair of method and data that is refused
    parts = [f"{len(rows)} fits; code {_said(rows, 'code')}; lab {_said(rows, 'lab')}; "
             f"commit {_said(rows, 'commit')}"]  # fmt: skip
    rows = rows.sort_values("kind", key=_places, kind="stable")  # not in the order of processes
    rest, aa = rows[rows["study"] != "aa"], rows[rows["study"] == "aa"]
    if len(rest):
        found = by_cell(rest)
        for (study, method, eps), part in found.groupby(["study", "method", "budget"], sort=False):
            table = by_kind(part, found)
            shown = table.to_string(float_format="{:.2f}".format)
            said = map(str, verdicts(part, table.drop(index=TOTALS)))
            parts.append("\n".join([f"{study}, {method}, eps = {eps}", shown, *said]))
        parts += [
            _varied(found, name) for name in ("eps", "n", "loose_outcome", "loose_covariates")
        ]
        parts.append(_worst(found, worst))
    if len(aa):
        parts.append("A/A tests at 5 %\n" + rejections(aa).to_string(float_format="{:.3f}".format))
    return "\n\n".join(part for part in parts if part)


def _places(kinds: pd.Series) -> pd.Series:
    return kinds.map({kind: place for place, kind in enumerate([*LAWS, *TRIALS])})


def _said(rows: pd.DataFrame, column: str) -> str:
    return ", ".join(map(str, rows[column].unique()))


# --- cells -------------------------------------------------------------------------------------


def by_cell(rows: pd.DataFrame) -> pd.DataFrame:
    """A line per cell, method and budget."""
    rows = rows.assign(
        error=rows["estimate"] - rows["truth"],
        half=(rows["high"] - rows["low"]) / 2,
        held=_held(rows, "low", "high"),
        held80=_held(rows, "low80", "high80"),
        oracle_error=rows["oracle"] - rows["truth"],
        noted=(rows["notes"] > 0).astype(float),
        failed=rows["failed"] != "",
    )
    found = []
    for key, part in rows.groupby(fits.KEYS[:-1], sort=False):
        ratio = np.abs(part["estimate"] - part["aim"]) / part["half"]
        missed = part[~part["held"]]
        found.append(
            dict(zip(fits.KEYS[:-1], key, strict=True))
            | {
                "confounding": part["confounding"].iloc[0],
                "reps": len(part),
                "failed": int(part["failed"].sum()),
                "cover": part["held"].mean(),
                "cover80": part["held80"].mean(),
                "oracle_cover": (part["oracle_error"].abs() <= part["oracle_half"]).mean(),
                "half": part["half"].mean(),
                "width": (part["half"] / part["oracle_half"]).mean(),
                "factor": _factor(ratio.dropna()),
                "rmse": float(np.sqrt(np.mean(part["error"] ** 2))),
                "rmse_oracle": float(np.sqrt(np.mean(part["oracle_error"] ** 2))),
                "bias": part["error"].mean() / part["oracle_half"].mean(),
                "noted": part["noted"].mean(),
                "missed_silently": float(1 - missed["noted"].mean()) if len(missed) else 0.0,
                "seconds": part["seconds"].mean(),
            }
        )
    cells = pd.DataFrame(found)
    few = cells["eps"].nunique() <= 6  # else every cell has its own
    cells["budget"] = cells["eps"].map("{:g}".format) if few else "drawn"
    return cells


def _held(rows: pd.DataFrame, low: str, high: str) -> Any:
    return (rows[low] <= rows["aim"]) & (rows["aim"] <= rows[high])


def _factor(ratio: Any) -> float:
    """What half-widths would have to be multiplied by for a coverage of exactly 95 %."""
    return float(np.quantile(ratio, 0.95, method="median_unbiased")) if len(ratio) else np.nan


# --- kinds -------------------------------------------------------------------------------------


def by_kind(part: pd.DataFrame, everything: pd.DataFrame) -> pd.DataFrame:
    """A line per kind, and one over all cells."""
    plain = everything[everything["method"] == "plain"]
    beside = ["study", "kind", "cell", "n", "loose_outcome", "loose_covariates", "eps"]
    found = part.merge(plain[[*beside, "rmse"]], on=beside, how="left", suffixes=("", "_plain"))
    lines = {kind: _line(cells) for kind, cells in found.groupby("kind", sort=False)}
    totals = found[found["confounding"] == "none"], found
    lines |= {name: _line(cells) for name, cells in zip(TOTALS, totals, strict=True)}
    return pd.DataFrame.from_dict(lines, orient="index")


def _line(cells: pd.DataFrame) -> dict[str, Any]:
    silent = (1 - cells["cover"]) * cells["missed_silently"]
    return {
        "cells": len(cells),
        "fits": int(cells["reps"].sum()),
        "failed": int(cells["failed"].sum()),
        "cover": cells["cover"].mean(),
        f">={CELL:.2f}": (cells["cover"] >= CELL).mean(),
        "silent": silent.mean(),
        "cover80": cells["cover80"].median(),
        "width": _geometric(cells["width"]),
        "below 1": int((cells["width"] < 1).sum()),
        "factor": cells["factor"].median(),
        "rmse/or": _geometric(cells["rmse"] / cells["rmse_oracle"]),
        "rmse/plain": _geometric(cells["rmse"] / cells["rmse_plain"]),
        "or cover": cells["oracle_cover"].mean(),
        "noted": cells["noted"].mean(),
        "sec": cells["seconds"].mean(),
    }


def _geometric(values: Any) -> float:
    values = values[np.isfinite(values) & (values > 0)]
    return float(np.exp(np.log(values).mean())) if len(values) else float("nan")


def beside(new: pd.DataFrame, old: pd.DataFrame) -> str:
    """Two versions of the code on the cells and repetitions that both have."""
    shared = [*fits.KEYS]
    keys = new[shared].merge(old[shared])
    new, old = (by_cell(rows.merge(keys)) for rows in (new, old))
    found = new.merge(old, on=fits.KEYS[:-1], suffixes=("", "_old"))
    lines = []
    for (study, method, budget), part in found.groupby(["study", "method", "budget"], sort=False):
        groups = [*part.groupby("kind", sort=False), ("ALL", part)]
        lines += [
            {
                "study": study,
                "method": method,
                "eps": budget,
                "kind": kind,
                "cells": len(cells),
                "cover": f"{cells['cover_old'].mean():.2f} -> {cells['cover'].mean():.2f}",
                "half-width": f"x {_geometric(cells['half'] / cells['half_old']):.2f}",
                "rmse": f"x {_geometric(cells['rmse'] / cells['rmse_old']):.2f}",
            }
            for kind, cells in groups
        ]
    return pd.DataFrame(lines).to_string(index=False)


# --- what varies within a cell -----------------------------------------------------------------


def _varied(found: pd.DataFrame, name: str) -> str:
    """Half-widths and RMSE over those at the first value, in the cells that have both."""
    same = [k for k in fits.KEYS[:-1] if k != name]
    many = found.groupby(same)[name].transform("nunique") > 1
    if not many.any():
        return ""
    lines = []
    part = found[many]
    for (method, kind), cells in part.groupby(["method", "kind"], sort=False):
        wide = cells.pivot_table(index=[k for k in same if k not in ("method", "kind")],
                                 columns=name, values=["half", "rmse"])  # fmt: skip
        first, *others = sorted(cells[name].unique())
        line: dict[str, Any] = {"method": method, "kind": kind, "cells": len(wide)}
        for value in others:
            for what in ("half", "rmse"):
                ratio = np.log(wide[what][value] / wide[what][first]).dropna()
                line[f"{what} {value:g}"] = f"{np.exp(ratio.mean()):.2f}{_star(ratio)}"
        lines.append(line)
    table = pd.DataFrame(lines).to_string(index=False)
    return f"By {name}, over that at {first:g} (*: more than 1, at 1 %)\n{table}"


def _star(ratio: Any) -> str:
    if len(ratio) < 3 or ratio.std() == 0:
        return ""
    z = ratio.mean() / (ratio.std() / np.sqrt(len(ratio)))
    return "*" if student.sf(z, len(ratio) - 1) < 0.01 else ""


# --- single cells ------------------------------------------------------------------------------


def _worst(found: pd.DataFrame, size: int) -> str:
    low = found[(found["cover"] < CELL) & (found["method"] != "plain")]
    low = low.sort_values("cover").head(size)
    if low.empty:
        return ""
    lines = []
    for row in low.to_dict("records"):
        cell = drawn(row["study"], row["kind"], int(row["cell"]))
        lines.append(
            f"{row['cover']:.2f} of {row['reps']} (width {row['width']:.2f}, bias "
            f"{row['bias']:+.2f} oracle half-widths, noted {row['noted']:.0%}) {row['method']} at "
            f"eps {row['eps']:g}, {row['kind']} #{row['cell']}: n {row['n']}, p {cell.p}, "
            f"{_rounded(cell.law.family)}, {cell.confounding}, treated {cell.law.share:.3g}"
            f"{' known' if cell.propensity else ''}, pull {cell.law.pull:.2f}, bounds x"
            f"{row['loose_outcome']:g}, x{row['loose_covariates']:g}; {cell.formula[:70]}"
        )
    return f"Cells covered in less than {CELL:.0%}, the worst first\n" + "\n".join(lines)


def _rounded(family: object) -> str:
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.3g}", repr(family))


# --- A/A tests ---------------------------------------------------------------------------------


def rejections(rows: pd.DataFrame) -> pd.DataFrame:
    """How often no effect is found to be one, pooled and in the worst cell.

    `p` is the chance of so many among all fits if each rejects with probability .05; `cells above`
    are those in which so many would be one chance in a thousand.
    """
    rows = rows.assign(rejected=~_held(rows, "low", "high"))
    lines = []
    for (method, eps), part in rows.groupby(["method", "eps"], sort=False):
        lines += [
            {"method": method, "eps": eps, "kind": kind, **_rejected(cells)}
            for kind, cells in part.groupby("kind", sort=False)
        ]
        lines.append({"method": method, "eps": eps, "kind": "ALL", **_rejected(part)})
    return pd.DataFrame(lines).set_index(["method", "eps", "kind"])


def _rejected(rows: pd.DataFrame) -> dict[str, Any]:
    hit, size = int(rows["rejected"].sum()), len(rows)
    cells = rows.groupby([k for k in fits.KEYS[:-1] if k not in ("method", "eps")])["rejected"]
    single = [binom.sf(c.sum() - 1, len(c), 0.05) < 0.001 for _, c in cells]
    return {
        "fits": size,
        "rejects": hit / size,
        "p": float(binom.sf(hit - 1, size, 0.05)),
        "cells": len(single),
        "cells above": int(sum(single)),
    }
