"""A small network as a public function of a row: one hidden layer of rectified units.

Of a row it computes a fixed sequence of operations that IEEE 754 rounds correctly: sums, products,
quotients, comparisons, and roundings to whole numbers. So the result has the same bits whatever
other rows there are, and on any instructions and threads. Sums over the columns of a row are loops
over whole columns: NumPy's own sums depend on the shape, matrix products even more, and NumPy's
exponential differs between processors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privcausal.features.design import Design
from privcausal.features.rows import Rows
from privcausal.stored import stored
from privcausal.typing import Matrix, Vector

WIDTH = 32
"""A power of two, for `folded`."""

_LN2 = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""log 2 in two parts; the first has so few bits that its product with a small integer is exact."""

_EXP = [1 / math.factorial(k) for k in range(13, -1, -1)]
"""1/13!, ..., 1/1!, 1/0!: the next term is below 2^-57 for |r| <= log(2) / 2."""


@stored
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
        value = folded(w2[:, None] * np.maximum(before(w1, b1, z), 0.0)) + b2
        if self.share:
            value = logistic(value)
        return np.clip(self.offset + self.gain * value, self.lo, self.hi)


def inputs(rows: Rows, design: Design, arm: float | Vector | None = None) -> Matrix:
    """Scaled columns, finite for every row, and the arm as the last if it is given."""
    z = np.nan_to_num(rows.scaled(design))
    return z if arm is None else np.column_stack([z, np.broadcast_to(arm, len(z))])


def before(w1: Matrix, b1: Vector, z: Matrix) -> Matrix:
    """W1 z + b1 of each row, the input of the hidden units, shape (32, n)."""
    total = np.repeat(b1[:, None], len(z), axis=1)
    part = np.empty_like(total)
    for j in range(z.shape[1]):
        total += np.multiply(w1[:, j, None], z[None, :, j], out=part)
    return total


def folded(parts: Matrix) -> Vector:
    """Sums over the first axis, whose length is a power of two, by halves: (m, n) -> (n,)."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = parts[:half] + parts[half:]
    return np.asarray(parts[0])


def logistic(f: Vector) -> Vector:
    """1 / (1 + e^-f), f clipped to [-40, 40], to a few units in the last place."""
    x = -np.minimum(np.abs(f), 40.0)
    twos = np.rint(x / _LN2[0])
    r = (x - twos * _LN2[0]) - twos * _LN2[1]
    series = np.full_like(r, _EXP[0])
    for c in _EXP[1:]:
        series = series * r + c
    small = np.ldexp(series, twos.astype(np.int32))
    return np.asarray(np.where(f < 0, small, 1.0) / (1.0 + small))


def start(width: int) -> Vector:
    """Public weights that training starts from, flat, drawn with a fixed seed; they are no noise.

    W1 is normal with variance 2/q, w2 standard normal, and b1 and b2 are zero.
    """
    weights = np.random.default_rng(20_250_601).standard_normal(size(width))
    w1, b1, _, _ = split(weights, width)
    w1 *= np.sqrt(2.0 / max(width, 1))
    b1[:] = weights[-1] = 0.0
    return weights


def size(width: int) -> int:
    """Number of weights for `width` inputs."""
    return WIDTH * (width + 2) + 1


def split(weights: Vector, width: int) -> tuple[Matrix, Vector, Vector, float]:
    """W1, b1, w2 and b2 of flat weights."""
    w1, b1, w2, b2 = np.split(weights, np.cumsum([WIDTH * width, WIDTH, WIDTH]))
    return w1.reshape(WIDTH, width), b1, w2, float(b2[0])
