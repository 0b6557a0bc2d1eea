"""A small network as a public function of a row: one hidden layer of rectified units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcausal.spec.features import Design, Rows, combine
from privcausal.typing import Matrix, Vector

WIDTH = 32


@dataclass(frozen=True, eq=False)
class Network:
    """offset + gain f(z), cut to [lo, hi], f = w2' max(0, W1 z + b1) + b2 (sigmoid(f) for a share).

    z are the scaled design columns, followed by `arm` where that is not None.

    Attributes
    ----------
    weights : Vector
        W1 (32 x q, by rows), b1, w2, b2.
    share : bool
        Pass f through the logistic function.
    """

    design: Design
    weights: Vector
    lo: float
    hi: float
    offset: float = 0.0
    gain: float = 1.0
    arm: float | None = None
    share: bool = False

    def __call__(self, rows: Rows) -> Vector:
        z = inputs(rows, self.design, self.arm)
        w1, b1, w2, b2 = split(self.weights, z.shape[1])
        hidden = np.column_stack([combine(z, w1[k]) + b1[k] for k in range(WIDTH)])
        value = combine(np.maximum(hidden, 0.0), w2) + b2
        if self.share:
            value = 1.0 / (1.0 + np.exp(-np.clip(value, -40, 40)))
        return np.clip(self.offset + self.gain * value, self.lo, self.hi)


def inputs(rows: Rows, design: Design, arm: float | Vector | None = None) -> Matrix:
    """Scaled columns, finite for every row, with the arm as the last where it is given."""
    z = np.nan_to_num(rows.scaled(design))
    return z if arm is None else np.column_stack([z, np.broadcast_to(arm, len(z))])


def size(width: int) -> int:
    """Number of weights for `width` inputs."""
    return WIDTH * (width + 2) + 1


def split(weights: Vector, width: int) -> tuple[Matrix, Vector, Vector, float]:
    """W1, b1, w2 and b2 of flat weights."""
    w1, b1, w2, b2 = np.split(weights, np.cumsum([WIDTH * width, WIDTH, WIDTH]))
    return w1.reshape(WIDTH, width), b1, w2, float(b2[0])
