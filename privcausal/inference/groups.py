"""How many groups: the bound of Betlei et al. (2021), Corollary 1, and the rule of the default."""

from __future__ import annotations

import math

import numpy as np

from privcausal.typing import Vector

FAILURE = 0.01
"""Delta of Corollary 1: the bound holds with probability 1 - Delta."""

LEAST_CELLS, MOST_CELLS = 3, 64
"""Range of the default's number of cells along one axis."""

SPAN = 5.5
"""The default has sqrt(n epsilon) / SPAN cells; half or twice as many cost little."""

UNKNOWN = 32
"""Cells of the default where the number of rows is not public."""


def bound(
    groups: Vector, rows: float, epsilon: float, lipschitz: float, sigma: float, width: float
) -> Vector:
    """The right-hand side of Eq. 7 for equal groups (beta = 1).

    Parameters
    ----------
    lipschitz : float
        (L_C^2 + L_T^2) D_x^2, the squared slopes over the whole domain, in units of the outcome.
    sigma : float
        Standard deviation of the outcome about its mean.
    width : float
        D_y, the width of the outcome's bounds.
    """
    bias = 2 * lipschitz / groups**2
    variance = 4 * (2 * sigma**2 + lipschitz) * groups / rows
    noise = (24 * width) ** 2 * groups**2 / (rows * epsilon) ** 2
    return np.asarray(bias + variance + noise)


def by_bound(
    rows: float, epsilon: float, lipschitz: float, sigma: float, width: float, most: int
) -> int:
    """The number of groups with the least bound among those it holds for.

    It grows like n epsilon where noise counts most, and like n^(1/3) where it does not.
    """
    allowed = rows * epsilon / (8 * math.log(1 / FAILURE))
    groups = np.arange(1.0, max(1.0, min(float(most), allowed)) + 1)
    return int(groups[np.argmin(bound(groups, rows, epsilon, lipschitz, sigma, width))])


def fine(rows: float | None, epsilon: float) -> int:
    """Cells of the default: a grid finer than any one would tune it, since cells are shrunk."""
    if rows is None:
        return UNKNOWN
    return int(np.clip(round(math.sqrt(rows * epsilon) / SPAN), LEAST_CELLS, MOST_CELLS))
