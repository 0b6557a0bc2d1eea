"""The effect along each modifier, the others averaged over the synthetic population."""

from __future__ import annotations

from typing import Any

import numpy as np

from privcausal.inference.effect import Effect
from privcausal.inference.population import Population
from privcausal.report import Shape
from privcausal.spec.features import Rows
from privcausal.spec.functions import Known
from privcausal.spec.schema import Interval, Levels
from privcausal.typing import Integers, Vector

POINTS, SAMPLE = 41, 200
BAND = "approximate {level:g}% band"


def shapes_of(
    effect: Effect,
    population: Population,
    variables: tuple[str, ...],
    known: Known | None,
    z: float,
    level: float,
) -> tuple[Shape, ...]:
    """One shape per modifier, with the posterior band of the averaged effect."""
    rows = population.rows(known)
    sample = {name: values[:SAMPLE] for name, values in rows.frame.items()}
    return tuple(_shape(effect, population, sample, rows, name, z, level) for name in variables)


def _shape(
    effect: Effect,
    population: Population,
    sample: dict[str, Vector | Integers],
    rows: Rows,
    name: str,
    z: float,
    level: float,
) -> Shape:
    domain = population.schema[name]
    if isinstance(domain, Interval):
        points = np.linspace(domain.lo, domain.hi, POINTS)
        grid: list[float] | list[str] = points.tolist()
    else:
        labels = domain.labels if isinstance(domain, Levels) else (domain.zero, domain.one)
        points = np.arange(
            len(labels), dtype=np.int64 if isinstance(domain, Levels) else np.float64
        )
        grid = list(labels)
    mean, sd = _averaged(effect, sample, rows, name, points)
    return Shape(
        name,
        "continuous" if isinstance(domain, Interval) else "levels",
        grid,
        mean.tolist(),
        np.clip(mean - z * sd, -effect.reach, effect.reach).tolist(),
        np.clip(mean + z * sd, -effect.reach, effect.reach).tolist(),
        BAND.format(level=level) if effect.pieces else "no band",
    )


def _averaged(
    effect: Effect, sample: dict[str, Vector | Integers], rows: Rows, name: str, points: Vector
) -> tuple[Vector, Vector]:
    """Mean effect and its posterior sd at each point, shape (m,)."""
    m, size = len(points), len(next(iter(sample.values())))
    frame: dict[str, Any] = {v: np.tile(values, m) for v, values in sample.items()}
    frame[name] = np.repeat(points, size)
    propensity = None if rows.propensity is None else np.tile(rows.propensity[:size], m)
    at = Rows(frame, m * size, propensity)
    mean = effect(at).reshape(m, size).mean(axis=1)
    variance = np.zeros(m) if effect.pieces else np.full(m, np.nan)  # nothing is known of it
    for piece in effect.pieces:
        phi = at.phi(piece.additive.features)
        if piece.weight is not None:
            phi = phi * piece.weight(at)[:, None]
        average = phi.reshape(m, size, -1).mean(axis=1)
        variance += np.einsum("ij,jk,ik->i", average, piece.cov, average)
    return mean, np.sqrt(np.maximum(variance, 0.0))
