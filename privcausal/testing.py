"""Noise sources for tests only. Their results are not private, and every output says this.

Examples
--------
>>> study = pc.datasets.clinic(500)
>>> with pc.testing.zero_noise():
...     fit = pc.private("recovery ~ programme", study.frame, eps=1, bounds=study.bounds)
>>> fit.guarantee.kind
'none'
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from privcausal.typing import Integers, Mask, Matrix, Vector
from privcausal.vault import noise


@dataclass
class _Seeded(noise.OperatingSystem):
    """Noise from a NumPy generator, or none at all. It is repeatable, fast and not private."""

    seed: int
    real: bool = False
    silent: bool = False  # Adds no noise: the result is the textbook estimator

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def with_noise(self, exact: Integers, query: noise.NoiseQuery) -> Vector:
        if self.silent:
            return np.asarray(exact, np.float64)
        if query.law == "gaussian":
            return np.asarray(exact + self._rng.standard_normal(len(exact)) * self.sd(query))
        draws = self._rng.laplace(size=len(exact)) * (query.scale / query.weights)
        return np.asarray(exact + np.rint(draws))

    def sd(self, query: noise.NoiseQuery) -> Vector:
        return np.zeros_like(query.weights) if self.silent else super().sd(query)

    def entropy(self) -> int:
        return int(self._rng.integers(2**62))

    def coins(self, size: int, rate: float) -> Mask:
        return self._rng.random(size) < rate


@dataclass(frozen=True)
class Call:
    """One query as the noise source received it. All fields except `exact` are public."""

    query: noise.NoiseQuery
    exact: Integers
    noisy: Vector


@dataclass(kw_only=True)
class Recorder(_Seeded):
    """Records all queries and answers, or replays recorded answers (`frozen`).

    On a neighboring table, a replay must show equal public parts of each query. The exact answers
    may differ by at most the stated sensitivity. `drawn` is the noise source for everything that
    is not replayed. A recorded fit shows exact answers, so it is never private.
    """

    drawn: noise.OperatingSystem
    frozen: Sequence[Call] | None = None
    calls: list[Call] = field(default_factory=list)

    def with_noise(self, exact: Integers, query: noise.NoiseQuery) -> Vector:
        """The answer with the noise of the query's own law."""
        if self.frozen is not None:
            noisy = self.frozen[len(self.calls)].noisy
        else:
            noisy = self.drawn.with_noise(exact, query)
        self.calls.append(Call(query, exact, noisy))
        return noisy

    def entropy(self) -> int:
        return self.seed


def zero_noise() -> AbstractContextManager[noise.OperatingSystem]:
    """Inside this block, fits add no noise and are marked NOT PRIVATE."""
    return noise.replaced(_Seeded(0, silent=True))


def seeded_noise(seed: int) -> AbstractContextManager[noise.OperatingSystem]:
    """Inside this block, noise comes from a seed, and every fit is marked NOT PRIVATE."""
    return noise.replaced(_Seeded(seed))


@contextmanager
def recorded(
    seed: int = 0, frozen: Sequence[Call] | None = None, *, system: bool = False
) -> Iterator[Recorder]:
    """Inside this block, queries are recorded, or answered from the `frozen` ones.

    With `system`, answers get the noise of a real fit; `seed` only controls splits of the rows.
    """
    source = noise.OperatingSystem() if system else _Seeded(seed)
    recorder = Recorder(seed, frozen=frozen, drawn=source)
    with noise.replaced(recorder):
        yield recorder


def drawn_again(query: noise.NoiseQuery, exact: Integers, times: int) -> Matrix:
    """Draw `times` answers to one query with the noise of a real fit, shape (times, m)."""
    source = noise.OperatingSystem()
    many = replace(query, weights=np.tile(query.weights, times))
    return source.with_noise(np.tile(exact, times), many).reshape(times, len(exact))


def drawn_noise(law: noise.Law, scale: float, times: int) -> Vector:
    """Draw the noise that a real fit of this scale adds to one number, `times` times."""
    query = noise.NoiseQuery("noise", np.ones(1), 1.0, scale, law)
    return drawn_again(query, np.zeros(1, np.int64), times)[:, 0]
