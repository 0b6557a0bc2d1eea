"""Sums of whole numbers that are exact for any number of rows, in blocks, threads and machines."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from privcausal.typing import Integers
from privcausal.vault.sealed import Sealed

S = TypeVar("S")
T = TypeVar("T")

NEAR = 1 << 8
"""Blocks whose sums int64 surely holds: a block's are below 2^53."""

LIMIT = 1 << 62
"""A sum that leaves is cut to this size, so that int64 holds it with its noise."""

LIMB = 32

_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1

THREADS = max(1, min(4, _CORES // 2))
"""Threads that work on blocks; NumPy lets go of the interpreter inside each operation.

One for two cores: operations are short, and two threads hand the interpreter to each other so often
that a fit is no sooner done, for half as much work again.
"""


class ExactSum(Sealed):
    """Sum of int64 vectors of shape (m,), as Python's integers where int64 might not hold it.

    Privacy
    -------
    What leaves is cut to +-2^62, coordinate by coordinate. A cut moves no two sums further apart,
    so every sensitivity holds for any number of rows; below 2^30 rows nothing is cut, because a row
    adds at most 2^32 to a coordinate.
    """

    __slots__ = ("_blocks", "_far", "_near")

    def __init__(self, size: int) -> None:
        self._near = np.zeros(size, np.int64)
        self._far = np.zeros(size, object)
        self._blocks = 0

    def add(self, block: Integers) -> None:
        """Add one block's sums, each below 2^53 in size."""
        self._near += block
        self._blocks += 1
        if self._blocks == NEAR:
            self._carry()

    def _carry(self) -> None:
        self._far += self._near.astype(object)
        self._near[:] = 0
        self._blocks = 0

    def packed(self) -> bytes:
        """The sum so far as two int64 a coordinate, for another machine's `merge`."""
        self._carry()
        low = (1 << LIMB) - 1
        limbs = [[v >> LIMB for v in self._far], [v & low for v in self._far]]
        return np.array(limbs, np.int64).tobytes()

    def merge(self, packed: bytes) -> None:
        """Add what another machine packed."""
        high, low = np.frombuffer(packed, np.int64).reshape(2, -1).astype(object)
        self._far += high * (1 << LIMB) + low

    def value(self) -> Integers:
        """The sum, cut to +-2^62."""
        self._carry()
        return np.array([max(-LIMIT, min(LIMIT, v)) for v in self._far], np.int64)


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    """The process's libraries with threads of their own: to look for NumPy's takes milliseconds."""
    return ThreadpoolController()


def in_threads(step: Callable[[S], T], blocks: Iterable[S], threads: int) -> Iterator[T]:
    """step(block) of each block, in order, a few of them at a time.

    Blocks are read by the caller's own thread, and few more of them than are worked on. It works on
    blocks too: a thread that waits makes the others hand over the interpreter to it in vain.
    """
    if threads == 1:
        yield from map(step, blocks)
        return
    # each thread's products are its own: OpenBLAS would make threads of threads wait for each other
    with _libraries().limit(limits=1, user_api="blas"), ThreadPoolExecutor(threads - 1) as pool:
        waiting: deque[Future[T]] = deque()
        for block in blocks:
            if sum(not one.done() for one in waiting) < threads:
                waiting.append(pool.submit(step, block))
            else:  # the others have enough to do
                waiting.append(Future())
                waiting[-1].set_result(step(block))
            while waiting and (waiting[0].done() or len(waiting) > threads + 1):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
