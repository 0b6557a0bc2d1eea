"""Where noise comes from: OpenDP's exact samplers, fed by the operating system's entropy.

Coins that decide which rows enter a noisy step are as secret as noise, and come from there too.
Tests may use another source (`privcausal.testing`); its `real` is False, and then every result says
NOT PRIVATE.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np

from privcausal.accounting.price import FINEST
from privcausal.typing import Integers, Mask, Vector

Law = Literal["gaussian", "laplace"]

LIMIT = 1 << 62
"""Bound of a sum that leaves, so that int64 holds it with its noise."""


@dataclass(frozen=True)
class NoiseQuery:
    """What the noise source is told of a query; all of it is public.

    `weights` (shape (m,)) and `sensitivity` belong together: a change of one unit moves the exact
    answer q by at most `sensitivity` in the norm ||weights * (q - q')||, which is the l2 norm for
    Gaussian noise and the l1 norm for Laplace noise. `scale` is that of the noise on a coordinate
    of weight 1: the standard deviation of the Gaussian, b of the Laplace law exp(-|k|/b).
    """

    name: str
    weights: Vector
    sensitivity: float
    scale: float
    law: Law = "gaussian"


class NoiseSource(Protocol):
    """Adds noise to exact integers."""

    real: bool

    def gaussian(self, exact: Integers, query: NoiseQuery) -> Vector:
        """Plus discrete Gaussian noise of sd query.scale / query.weights."""

    def laplace(self, exact: Integers, query: NoiseQuery) -> Vector:
        """Plus discrete Laplace noise of scale query.scale / query.weights."""

    def sd(self, query: NoiseQuery) -> Vector:
        """Standard deviation of what the query's law adds, shape (m,)."""

    def entropy(self) -> int:
        """Entropy for splits of the rows (independent of the data; not for noise)."""

    def coins(self, size: int, rate: float) -> Mask:
        """A coin for each of `size` rows, true with a probability of at most `rate` in (0, 1]."""


class OperatingSystem:
    """Discrete noise by OpenDP (Canonne, Kamath and Steinke 2020, Algorithms 2 and 3)."""

    real = True

    def gaussian(self, exact: Integers, query: NoiseQuery) -> Vector:
        """Noise on a grid so fine that its standard deviation is `FINEST` steps or more."""
        return _noisy(_gaussian, exact, query, FINEST)

    def laplace(self, exact: Integers, query: NoiseQuery) -> Vector:
        return _noisy(_laplace, exact, query, 0.0)

    def sd(self, query: NoiseQuery) -> Vector:
        return standard_deviation(query)

    def entropy(self) -> int:
        return int.from_bytes(os.urandom(16), "little")

    def coins(self, size: int, rate: float) -> Mask:
        """Whether 64 bits of each row's own are below floor(2^64 rate): never above `rate`.

        Seven of the eight bytes are drawn only where the first leaves it open, to be fast.
        """
        top, rest = divmod(int(rate * 2.0**64), 1 << 56)  # a float times a power of two is exact
        first = np.frombuffer(os.urandom(size), np.uint8)
        heads = first < top
        tied = np.flatnonzero(first == top)
        last = np.frombuffer(os.urandom(8 * len(tied)), np.uint64) >> np.uint64(8)
        heads[tied] = last < rest
        return heads


def standard_deviation(query: NoiseQuery) -> Vector:
    """Of the noise of a query, shape (m,).

    The discrete Laplace law has variance 1 / (2 sinh(1/(2b))^2). That of the discrete Gaussian is
    below its scale squared, by next to nothing from a scale of 1 on.
    """
    scale = query.scale / query.weights
    if query.law == "gaussian":
        return np.asarray(scale)
    with np.errstate(over="ignore"):  # at a tiny scale nothing is added
        return np.asarray(1.0 / (np.sqrt(2.0) * np.sinh(0.5 / scale)))


def _noisy(
    sampler: Callable[[float], Any], exact: Integers, query: NoiseQuery, finest: float
) -> Vector:
    """Noise of at least `finest` steps of the grid.

    Privacy
    -------
    The integers, their sensitivity and the scale are made 2^k times as large, for the least k that
    is fine enough, which is public; what is drawn is divided by 2^k. Integers beyond 2^(62 - k) are
    cut first, which moves no two answers further apart.
    """
    noisy = np.empty(len(exact))
    for weight in np.unique(query.weights):
        at, scale = query.weights == weight, query.scale / float(weight)
        factor = _refinement(finest, scale)
        most = LIMIT // factor
        whole = [int(v) * factor for v in np.clip(exact[at], -most, most)]
        noisy[at] = np.array(sampler(scale * factor)(whole), np.float64) / factor
    return noisy


def _refinement(finest: float, scale: float) -> int:
    """The least power of two, times which a scale is `finest` at least; 1 for what is no scale."""
    ratio = finest / scale if scale > 0 else 0.0
    return 1 << math.ceil(math.log2(ratio)) if 1 < ratio < math.inf else 1


@lru_cache(maxsize=256)
def _gaussian(scale: float) -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return _checked(dp.m.make_gaussian(*space, scale=scale), 1.0)


@lru_cache(maxsize=256)
def _laplace(scale: float) -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    return _checked(dp.m.make_laplace(*space, scale=scale), 1)


def _checked(sampler: Any, distance: float) -> Any:
    # OpenDP accepts a scale of zero and then promises an infinite loss: refuse it here
    loss = float(sampler.map(distance))
    if not 0 < loss < float("inf"):
        raise ArithmeticError("the noise scale is not a positive finite number")
    return sampler


_REAL = OperatingSystem()
_SOURCE: ContextVar[NoiseSource | None] = ContextVar("noise", default=None)


def current() -> NoiseSource:
    """The operating system's noise, unless a test put another in its place."""
    source = _SOURCE.get()
    return _REAL if source is None else source


@contextmanager
def replaced(source: NoiseSource) -> Iterator[NoiseSource]:
    """Use another noise source within a block; for `privcausal.testing` only."""
    token = _SOURCE.set(source)
    try:
        yield source
    finally:
        _SOURCE.reset(token)
