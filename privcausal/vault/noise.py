"""Noise source: OpenDP's exact samplers, fed by the operating system's entropy.

Random bits that choose the rows of a noisy step must be as secret as the noise. They come from the
operating system too. Tests may use another source (`privcausal.testing`). Its `real` is False, and
every result then says NOT PRIVATE.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from privcausal.accounting.price import FINEST
from privcausal.typing import Integers, Mask, Vector

Law = Literal["gaussian", "laplace"]

LIMIT = 1 << 62
"""Bound of a released sum, so that int64 holds the sum with its noise."""


@dataclass(frozen=True)
class NoiseQuery:
    """Public facts about a query that the noise source receives.

    `weights` (shape (m,)) and `sensitivity` belong together. Changing one unit changes the exact
    answer q by at most `sensitivity` in the norm ||weights * (q - q')||. This is the l2 norm for
    Gaussian noise and the l1 norm for Laplace noise. `scale` is the noise scale on a coordinate of
    weight 1: the standard deviation of the Gaussian, or b of the Laplace distribution exp(-|k|/b).
    """

    name: str
    weights: Vector
    sensitivity: float
    scale: float
    law: Law = "gaussian"


class OperatingSystem:
    """Discrete noise by OpenDP (Canonne, Kamath, and Steinke 2020, Algorithms 2 and 3).

    Noise for tests and plans comes from subclasses, whose `real` is False.
    """

    real: bool = True

    def with_noise(self, exact: Integers, query: NoiseQuery) -> Vector:
        """Add discrete noise of the query's law and of scale query.scale / query.weights.

        The step of a Gaussian's grid is at most its sd divided by `FINEST`.

        Privacy
        -------
        The integers, their sensitivity, and the scale are multiplied by 2^k. Here k is the smallest
        number that makes the grid fine enough, and k is public. The noisy result is divided by 2^k.
        Integers beyond 2^(62 - k) are clipped first, which never increases the distance between two
        answers.
        """
        finest = FINEST if query.law == "gaussian" else 0.0
        noisy = np.empty(len(exact))
        for weight in np.unique(query.weights):
            at, scale = query.weights == weight, query.scale / float(weight)
            ratio = finest / scale if scale > 0 else 0.0
            # An invalid scale, which the sampler refuses, gets the factor 1.
            factor = 1 << math.ceil(math.log2(ratio)) if 1 < ratio < math.inf else 1
            most = LIMIT // factor
            whole = [int(v) * factor for v in np.clip(exact[at], -most, most)]
            sampler = _sampler(query.law, scale * factor)
            noisy[at] = np.array(sampler(whole), np.float64) / factor
        return noisy

    def sd(self, query: NoiseQuery) -> Vector:
        """Standard deviation of a query's noise, shape (m,).

        The discrete Laplace distribution has variance 1 / (2 sinh(1/(2b))^2). The variance of the
        discrete Gaussian is below its squared scale. The difference is negligible for scales of 1
        or more.
        """
        scale = query.scale / query.weights
        if query.law == "gaussian":
            return np.asarray(scale)
        with np.errstate(over="ignore"):  # At a tiny scale, the noise is zero.
            return np.asarray(1.0 / (np.sqrt(2.0) * np.sinh(0.5 / scale)))

    def entropy(self) -> int:
        """Entropy for splits of the rows. It is independent of the data and not used for noise."""
        return int.from_bytes(os.urandom(16), "little")

    def coins(self, size: int, rate: float) -> Mask:
        """One random bit for each of `size` rows, true with probability at most `rate` in (0, 1].

        It is true if a row's own 64 bits are below floor(2^64 rate), never more often than `rate`.
        For speed, seven of the eight bytes are drawn only if the first byte does not decide.
        """
        top, rest = divmod(int(rate * 2.0**64), 1 << 56)  # This product is exact.
        first = np.frombuffer(os.urandom(size), np.uint8)
        heads = first < top
        tied = np.flatnonzero(first == top)
        last = np.frombuffer(os.urandom(8 * len(tied)), np.uint64) >> np.uint64(8)
        heads[tied] = last < rest
        return heads


@lru_cache(maxsize=512)
def _sampler(law: Law, scale: float) -> Any:
    """OpenDP's sampler of discrete noise of this law and scale."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    sampler: Any
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if law == "gaussian":
        sampler = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)
        loss = float(sampler.map(1.0))
    else:
        sampler = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
        loss = float(sampler.map(1))
    # OpenDP accepts a scale of zero and then reports an infinite loss, so refuse it here.
    if not 0 < loss < float("inf"):
        raise ArithmeticError("The noise scale must be a positive finite number.")
    return sampler


_REAL = OperatingSystem()
_SOURCE: ContextVar[OperatingSystem] = ContextVar("noise", default=_REAL)


def current() -> OperatingSystem:
    """The operating system's noise, unless a test has replaced it."""
    return _SOURCE.get()


@contextmanager
def replaced(source: OperatingSystem) -> Iterator[OperatingSystem]:
    """Use another noise source within a block. For `privcausal.testing` only."""
    token = _SOURCE.set(source)
    try:
        yield source
    finally:
        _SOURCE.reset(token)
