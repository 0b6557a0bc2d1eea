"""Where noise comes from: OpenDP's exact samplers, fed by the operating system's entropy.

Tests may put another source in place (`privcausal.testing`); its `real` is False, and then every
result says NOT PRIVATE.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from privcausal.typing import Integers, Vector


@dataclass(frozen=True)
class Query:
    """What the noise source is told of a query; all of it is public.

    `weights` (shape (m,)) and `sensitivity` belong together: a change of one unit moves the exact
    answer q by at most `sensitivity` in the norm ||weights * (q - q')||_2. `scale` is the standard
    deviation of the noise on a coordinate of weight 1.
    """

    name: str
    weights: Vector
    sensitivity: float
    scale: float


class NoiseSource(Protocol):
    """Adds noise to exact integers."""

    real: bool

    def gaussian(self, exact: Integers, query: Query) -> Integers:
        """exact + discrete Gaussian noise of sd query.scale / query.weights."""

    def sd(self, query: Query) -> Vector:
        """Standard deviation of what `gaussian` adds, shape (m,)."""

    def entropy(self) -> int:
        """Entropy for splits of the rows (independent of the data; not for noise)."""


class OperatingSystem:
    """Discrete Gaussian noise by OpenDP (Canonne, Kamath and Steinke 2020, Algorithm 3)."""

    real = True

    def gaussian(self, exact: Integers, query: Query) -> Integers:
        noisy = np.empty_like(exact)
        for weight in np.unique(query.weights):
            at = query.weights == weight
            noisy[at] = _sampler(query.scale / float(weight))([int(v) for v in exact[at]])
        return noisy

    def sd(self, query: Query) -> Vector:
        return np.asarray(query.scale / query.weights)

    def entropy(self) -> int:
        return int.from_bytes(os.urandom(16), "little")


@lru_cache(maxsize=256)
def _sampler(scale: float) -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    sampler = dp.m.make_gaussian(*space, scale=scale)
    # OpenDP accepts a scale of zero and then promises an infinite rho: refuse it here
    rho = float(sampler.map(1.0))  # type: ignore[no-untyped-call]  # OpenDP ships no types
    if not 0 < rho < float("inf"):
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
