"""Whether an effect varies with covariates at all: one answer from slopes, groups and curves."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import ncx2, norm

from privcausal.report.view import Shape
from privcausal.report.words import clean
from privcausal.results.base import ReleasedFit

LEVEL = 0.05
"""Chance that variation is reported where there is none: Bonferroni over all that is looked at."""

FLAT = (
    "No variation of the effect with covariates can be distinguished from noise at this budget: "
    "quote the average for everybody."
)
VARIES = "The effect varies with {names}, by more than noise explains (level {level:.0%})."


def variation(result: ReleasedFit, shapes: Sequence[Shape], alpha: float) -> str:
    """One sentence: with which modifiers the effect varies, as far as noise lets it be seen.

    Slopes are tested by their intervals, each factor's groups by Cochran's (1954) Q, curves by how
    far they leave their own mean in standard errors. All share `LEVEL`, and biases by clipping are
    taken at their worst. Empty for a fit without any of these.
    """
    found, averages = dict[str, float](), result.estimate.averages
    if averages is not None:
        slopes = result.tidy(alpha).iloc[result._level_terms :]
        found |= dict(zip(slopes["term"], slopes["p_value"], strict=True))
    if averages is not None and averages.groups:
        gates = result._table(groups=True, z=1.0)
        for stem in dict.fromkeys(str(name).partition("[")[0] for name in gates.index):
            own = gates[[str(name).partition("[")[0] == stem for name in gates.index]]
            found[f"groups {stem}"] = _heterogeneity(own)
    z = float(norm.isf(alpha / 2))
    found |= {f"curve {shape.name}": _curve(shape, z) for shape in shapes}
    if not found:
        return ""
    most = LEVEL / len(found)
    seen = [name for name, p in found.items() if p < most]
    if not seen:
        return FLAT
    names = ", ".join(clean(name) for name in dict.fromkeys(map(_modifier, seen)))
    return VARIES.format(names=names, level=LEVEL)


def _modifier(name: str) -> str:
    """The column of a slope, of groups or of a curve."""
    bare = name.removeprefix("groups ").removeprefix("curve ")
    return re.sub(r"^C\((.+?)\)\[.*|\[.*", r"\1", bare)


def _heterogeneity(groups: pd.DataFrame) -> float:
    """P value of equal effects in all groups of a factor."""
    known = groups[np.isfinite(groups["std_error"]) & (groups["std_error"] > 0)]
    if len(known) < 2:
        return 1.0
    weight = 1 / known["std_error"].to_numpy() ** 2
    value = known["estimate"].to_numpy()
    q = float(weight @ (value - np.average(value, weights=weight)) ** 2)
    away = float(weight @ (2 * known["max_bias"].to_numpy()) ** 2)
    return float(ncx2.sf(q, len(known) - 1, away))


def _curve(shape: Shape, z: float) -> float:
    """P value of the point that lies furthest from the curve's mean, times the points' number."""
    values = np.asarray(shape.estimate, float)
    sd = (np.asarray(shape.conf_high, float) - np.asarray(shape.conf_low, float)) / (2 * z)
    known = np.isfinite(values) & np.isfinite(sd) & (sd > 0)
    if not known.any():
        return 1.0
    away = np.abs(values - values[known].mean())[known] / sd[known]
    points = 1 if shape.kind == "continuous" else int(known.sum())
    return min(1.0, 2 * points * float(norm.sf(away.max())))
