"""What a fit by cells shows: a line per cell, and the effect along each feature."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privcausal.inference.cells import CellEffect
from privcausal.report import Shape
from privcausal.spec.partition import Axis, CutAxis, LevelAxis, Product, RegularAxis
from privcausal.typing import Integers, Vector

if TYPE_CHECKING:
    import pandas as pd

NAMES = ("adum",)
"""Learners whose effect is one number for each cell."""

METHODS = (
    "Uplift from aggregates (Betlei et al. 2021). The rows were read once, through counts and sums "
    "of the outcome, cut to its bounds, in each cell and arm, computed exactly on an integer grid; "
    "{noise} noise (OpenDP) was added to each number. Everything after that is post-processing.",
    "The effect in a cell is the difference of its arms' means. {how}",
    "The average effect is the difference of the arms' means over all cells; standard errors add "
    "sampling and privacy noise (delta method).",
    "A row with a missing value, or with a label that was not declared, adds nothing to any sum; "
    "how many there were is not shown.",
)

SHRUNK = (
    "Cells are shrunk towards their neighbours: means are a Gaussian process over where cells lie, "
    "and its kind and size are averaged over by the marginal likelihood of the released numbers."
)

AS_RELEASED = "A cell with less than one row by its noisy count is divided by one."

POLYNOMIALS = (
    "Two linear regressions on polynomials, one for each arm (the baseline of Betlei et al. 2021). "
    "The rows were read once, through the coefficients of both squared losses, sums over bounded "
    "rows computed exactly on an integer grid; discrete Laplace noise (OpenDP) was added to each "
    "(the functional mechanism, Zhang et al. 2012). Everything after that is post-processing.",
    "Each loss got a ridge of four noise standard deviations, and directions without curvature "
    "were left out. The effect is the difference of both regressions, cut to the outcome's bounds.",
    "A row with a missing value adds nothing to any sum; how many there were is not shown.",
)

ASSUMPTIONS = (
    "Randomised treatment: within each cell chance decided who was treated. Nothing else was "
    "adjusted for, so in a study that observed treatment this is no causal effect.",
    "No interference: one unit's treatment does not change another's outcome.",
    "The outcome lies within its bounds; what lies outside was cut to them.",
)

BAND = "{level:g}% interval by cell"


def cell_table(effect: CellEffect, z: float) -> pd.DataFrame:
    """treated control estimate std_error conf_low conf_high, a row per cell; counts are noisy."""
    import pandas as pd

    return pd.DataFrame(
        {
            "treated": effect.count[:, 1], "control": effect.count[:, 0],
            "estimate": effect.value, "std_error": effect.spread,
            "conf_low": effect.value - z * effect.spread,
            "conf_high": effect.value + z * effect.spread,
        },
        index=pd.Index(effect.partition.labels(), name="cell"),
    )  # fmt: skip


def cell_shapes(effect: CellEffect, z: float, level: float) -> tuple[Shape, ...]:
    """The effect along each axis, averaged over the others by the noisy counts.

    None for cells that are no product of parts.
    """
    if not isinstance(effect.partition, Product):
        return ()
    axes = effect.partition.axes
    sizes = [axis.size for axis in axes]
    parts = np.unravel_index(np.arange(effect.partition.size), sizes)
    return tuple(_shape(effect, a, p, z, level) for a, p in zip(axes, parts, strict=True))


def _shape(effect: CellEffect, axis: Axis, part: Integers, z: float, level: float) -> Shape:
    weights = (part == np.arange(axis.size)[:, None]) * (effect.share + 1e-12)
    weights = weights / weights.sum(axis=1, keepdims=True)
    value, spread = weights @ effect.value, np.sqrt(((weights @ effect.root) ** 2).sum(axis=1))
    at = np.arange(axis.size)
    grid: list[float] | list[str]
    if isinstance(axis, LevelAxis):
        kind, grid = "levels", list(axis.labels)
    else:
        # each part is drawn from its lower to its upper end
        kind, at = "continuous", np.repeat(at, 2)
        grid = np.repeat(_ends(axis), 2)[1:-1].tolist()
    return Shape(
        axis.name, kind, grid, value[at].tolist(),  # type: ignore[arg-type]  # the two literals
        (value - z * spread)[at].tolist(), (value + z * spread)[at].tolist(),
        BAND.format(level=level),
    )  # fmt: skip


def _ends(axis: Axis) -> Vector:
    if isinstance(axis, RegularAxis):
        return np.linspace(axis.lo, axis.hi, axis.parts + 1)
    assert isinstance(axis, CutAxis)
    return np.array([axis.lo, *axis.cuts, axis.hi])
