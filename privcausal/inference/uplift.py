"""Uplift and Qini curves of a ranking of cells, from noisy counts and sums of other rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcausal.inference.cells import CellTotals
from privcausal.typing import Matrix, Vector

DRAWS, MOST_NUMBERS = 4000, 4_000_000
"""Simulated tables of the bands: fewer where a table has many cells."""

_PUBLIC_SEED = 20_211_210  # quadrature points of the bands, not noise; they are public


@dataclass(frozen=True, eq=False)
class Curve:
    """A gain by the share of rows that is treated, best cells first, and the area under it.

    Attributes
    ----------
    share : Vector
        From 0 to 1, shape (cells + 1,).
    gain, spread : Vector
        In units of the outcome for each row of all; standard deviations.
    random : Vector
        The gain of treating as many rows by chance: a straight line to the overall effect.
    area, area_spread, random_area : float
    """

    share: Vector
    gain: Vector
    spread: Vector
    random: Vector
    area: float
    area_spread: float
    random_area: float


def curves(found: CellTotals, ranking: Vector) -> dict[str, Curve]:
    """Curves "uplift" and "qini" of treating cells in the order of `ranking`, largest first.

    With counts N and means Y by arm among the share phi of rows that is ranked highest,
    uplift(phi) = phi (Y_1 - Y_0), as in Jaskowski and Jaroszewicz (2012), and
    qini(phi) = N_1(phi) / N_1 (Y_1 - Y_0) (Radcliffe 2007, for each treated row). Standard
    deviations hold the noise and the sampling of the rows, by simulation.
    """
    order = np.argsort(-ranking, kind="stable")
    count, total = found.count[order], found.total[order]
    rng = np.random.default_rng(_PUBLIC_SEED)
    rows = np.maximum(count, 1.0)
    sampled = found.total_variance + found.sampled * rows
    size = (min(DRAWS, max(MOST_NUMBERS // count.size, 100)), *count.shape)
    # a cell's noise on its count and the sampling of who is in it; its sum moves with both
    mean = np.clip(total / rows, -found.half, found.half)
    moved = rng.standard_normal(size) * np.sqrt(found.most_rows * rows)
    counts = count + moved + rng.standard_normal(size) * np.sqrt(found.count_variance)
    totals = total + mean * moved + rng.standard_normal(size) * np.sqrt(sampled)
    return {
        name: _curve(
            _gains(count, total, found.half, name), _gains(counts, totals, found.half, name)
        )
        for name in ("uplift", "qini")
    }


def _gains(count: Matrix, total: Matrix, half: float, name: str) -> tuple[Vector, Vector]:
    """Shares and gains at the ends of cells, shape (..., cells + 1), from 0."""
    n = np.cumsum(np.maximum(count, 0.0), axis=-2)
    mean = np.clip(np.cumsum(total, axis=-2) / np.maximum(n, 1.0), -half, half)
    effect = mean[..., 1] - mean[..., 0]
    both = n.sum(axis=-1)
    share = both / np.maximum(both[..., -1:], 1.0)
    scale = share if name == "uplift" else n[..., 1] / np.maximum(n[..., -1:, 1], 1.0)
    start = np.zeros((*share.shape[:-1], 1))
    return np.concatenate([start, share], axis=-1), np.concatenate([start, scale * effect], axis=-1)


def _curve(found: tuple[Vector, Vector], drawn: tuple[Vector, Vector]) -> Curve:
    share, gain = found
    areas = _area(*drawn)
    return Curve(
        share, gain, np.asarray(drawn[1].std(axis=0)), share * gain[-1],
        float(_area(share, gain)), float(areas.std()), 0.5 * float(gain[-1]),
    )  # fmt: skip


def _area(share: Vector, gain: Vector) -> Vector:
    """By trapezia along the last axis."""
    step, height = np.diff(share, axis=-1), 0.5 * (gain[..., 1:] + gain[..., :-1])
    return np.asarray((step * height).sum(axis=-1))
