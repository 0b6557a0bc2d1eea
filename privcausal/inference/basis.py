"""Basis functions built from released marginals: linear first, then by roughness."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.linalg import eigh

from privcausal.inference.population import Population
from privcausal.spec.features import FINE, Block, Column, Design, FeatureMap, fine_bins
from privcausal.typing import Matrix, Vector


def amplitude(blocks: int) -> float:
    """Size of a basis function against the intercept's 1: smaller where there are many.

    So the norm cut, and with it the noise on the intercept, stays bounded as columns are added.
    """
    return float(min(0.5, 1.2 / np.sqrt(max(blocks, 1))))


DECAY = 0.6
"""Each further order is this much smaller: rough functions may cost less of the norm cut."""

_KNOTS = 81
_REACH = 2.5  # standard deviations; beyond, the basis is constant, which tames outliers


def smooth_table(p: Vector, functions: int) -> Matrix:
    """Functions on the fine bins, shape (FINE, functions), orthonormal under `p` and to 1.

    Linear first, then the Demmler-Reinsch functions of a second-difference penalty, from smooth
    to rough.
    """
    z = (np.arange(FINE) + 0.5) / FINE
    mean = float(p @ z)
    sd = max(float(np.sqrt(p @ (z - mean) ** 2)), 1.0 / FINE)
    z = np.clip((z - mean) / sd, -_REACH, _REACH)
    raw = np.stack([np.ones(FINE), z, *_rough(z, p, functions)], axis=1)
    q, r = np.linalg.qr(raw * np.sqrt(p)[:, None])
    q *= np.sign(np.diag(r)) + (np.diag(r) == 0)
    return np.asarray((q / np.sqrt(p)[:, None])[:, 1 : functions + 1])


def _rough(z: Vector, p: Vector, functions: int) -> list[Vector]:
    """Nonlinear functions of least curvature per variance: a generalised eigenproblem."""
    grid = np.linspace(-_REACH, _REACH, _KNOTS)
    half = 0.5 * (grid[1] - grid[0])
    weight = np.histogram(z, np.r_[grid - half, grid[-1] + half], weights=p)[0] + 2e-4
    _, vectors = eigh(_curvature(), np.diag(weight), subset_by_index=[0, functions])
    return [np.interp(z, grid, vectors[:, k]) for k in range(2, functions + 1)]


@lru_cache(maxsize=1)
def _curvature() -> Matrix:
    second = np.diff(np.eye(_KNOTS), 2, axis=0)
    return np.asarray(second.T @ second)


def feature_map(
    design: Design, population: Population, functions: int, quantile: float
) -> FeatureMap:
    """Basis of every design column, with C at a quantile of the population's feature norms.

    `functions` counts the basis functions of a smooth numeric column; 1 keeps columns linear.
    """
    rows = population.rows()
    scaled = rows.scaled(design)
    size = amplitude(len(design.columns))
    blocks = tuple(
        _block(j, column, scaled[:, j], _functions(design, column, functions), size)
        for j, column in enumerate(design.columns)
    )
    uncut = FeatureMap(design, blocks, np.inf)
    norms = np.linalg.norm(uncut.phi(scaled), axis=1)
    return FeatureMap(design, blocks, float(np.quantile(norms, quantile)))


def _functions(design: Design, column: Column, default: int) -> int:
    """As many as ``s(x, k=...)`` asks for; a linear base stays linear."""
    asked = design.smooth.get(column.variable or "")
    return default if asked is None or default == 1 else asked


def _block(j: int, column: Column, values: Vector, functions: int, size: float) -> Block:
    if column.kind == "indicator":
        # 2 x 0/1 has the sd of a standard variable at probability one half
        return Block(j, (1,), column.term, 2 * size, float(values.mean()))
    if column.kind != "numeric" or functions == 1:
        sd = max(float(values.std()), 0.05)
        return Block(j, (1,), column.term, size / sd, float(values.mean()))
    p = np.bincount(fine_bins(values), minlength=FINE).astype(float)
    p = _smoothed(p / p.sum())
    sizes = size * DECAY ** np.arange(functions)
    return Block(
        j, tuple(range(1, functions + 1)), column.term, table=smooth_table(p, functions) * sizes
    )


def _smoothed(p: Vector) -> Vector:
    """A little kernel smoothing: the population is a finite sample of its marginal."""
    kernel = np.hanning(19)[1:-1]
    wide = np.convolve(np.pad(p, 8, mode="reflect"), kernel / kernel.sum(), "valid")
    wide = 0.98 * wide + 0.02 / FINE
    return np.asarray(wide / wide.sum())
