"""Other noise sources, for tests only: nothing made with them is private, and every output says so.

>>> with privcausal.testing.zero_noise():
...     fit = privcausal.privcate("Y ~ T | X1", data, eps=1, bounds=bounds)
>>> fit.guarantee.kind
'none'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from privcausal.typing import Integers, Mask, Matrix, Vector
from privcausal.vault import noise

Draw = Callable[[Integers, noise.NoiseQuery], Vector]


@dataclass
class _Seeded:
    """Noise from a NumPy generator: repeatable, fast and not private."""

    seed: int
    real: bool = False

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def gaussian(self, exact: Integers, query: noise.NoiseQuery) -> Vector:
        return np.asarray(exact + self._rng.standard_normal(len(exact)) * self.sd(query))

    def laplace(self, exact: Integers, query: noise.NoiseQuery) -> Vector:
        draws = self._rng.laplace(size=len(exact)) * (query.scale / query.weights)
        return np.asarray(exact + np.rint(draws))

    def sd(self, query: noise.NoiseQuery) -> Vector:
        return noise.standard_deviation(query)

    def entropy(self) -> int:
        return int(self._rng.integers(2**62))

    def coins(self, size: int, rate: float) -> Mask:
        return self._rng.random(size) < rate


class _Zero(_Seeded):
    """No noise at all: the textbook estimator."""

    def gaussian(self, exact: Integers, query: noise.NoiseQuery) -> Vector:
        return np.asarray(exact, np.float64)

    laplace = gaussian

    def sd(self, query: noise.NoiseQuery) -> Vector:
        return np.zeros_like(query.weights)


@dataclass(frozen=True)
class Call:
    """One query as the noise source saw it: all of it but `exact` is public."""

    query: noise.NoiseQuery
    exact: Integers
    noisy: Vector


@dataclass
class Recorder:
    """Records every query and its answer, or plays recorded answers back (`frozen`).

    Played back on a neighbouring table, every public part of each query must be the same, and the
    exact answers may differ by no more than the stated sensitivity. `drawn` is the source of what
    is not played back; whatever it is, a recorded fit shows exact answers and is not private.
    """

    seed: int = 0
    frozen: Sequence[Call] | None = None
    drawn: noise.NoiseSource | None = None
    real: bool = False
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._inner = _Seeded(self.seed) if self.drawn is None else self.drawn
        self._coins = np.random.default_rng(self.seed)

    def gaussian(self, exact: Integers, query: noise.NoiseQuery) -> Vector:
        return self._answer(self._inner.gaussian, exact, query)

    def laplace(self, exact: Integers, query: noise.NoiseQuery) -> Vector:
        return self._answer(self._inner.laplace, exact, query)

    def _answer(self, draw: Draw, exact: Integers, query: noise.NoiseQuery) -> Vector:
        told = self.frozen
        noisy = draw(exact, query) if told is None else told[len(self.calls)].noisy
        self.calls.append(Call(query, exact, noisy))
        return noisy

    def sd(self, query: noise.NoiseQuery) -> Vector:
        return self._inner.sd(query)

    def entropy(self) -> int:
        return self.seed

    def coins(self, size: int, rate: float) -> Mask:
        """Of the seed, as splits are: the same whatever is drawn or played back in between."""
        return self._coins.random(size) < rate


def zero_noise() -> AbstractContextManager[noise.NoiseSource]:
    """Within this block every fit is made without noise and is marked NOT PRIVATE."""
    return noise.replaced(_Zero(0))


def seeded_noise(seed: int) -> AbstractContextManager[noise.NoiseSource]:
    """Within this block noise comes from a seed; every fit is marked NOT PRIVATE."""
    return noise.replaced(_Seeded(seed))


@contextmanager
def recorded(
    seed: int = 0, frozen: Sequence[Call] | None = None, *, system: bool = False
) -> Iterator[Recorder]:
    """Within this block queries are recorded, or answered from `frozen` ones.

    With `system` they get the noise of a real fit, and `seed` is for splits of the rows.
    """
    recorder = Recorder(seed, frozen, noise.OperatingSystem() if system else None)
    with noise.replaced(recorder):
        yield recorder


def drawn_again(query: noise.NoiseQuery, exact: Integers, times: int) -> Matrix:
    """Answers to one query as a real fit would give them, drawn `times` times, shape (times, m)."""
    source = noise.OperatingSystem()
    many = replace(query, weights=np.tile(query.weights, times))
    draw = source.laplace if query.law == "laplace" else source.gaussian
    return draw(np.tile(exact, times), many).reshape(times, len(exact))


def drawn_noise(law: noise.Law, scale: float, times: int) -> Vector:
    """Noise of a scale as a real fit adds it to one number, drawn `times` times."""
    query = noise.NoiseQuery("noise", np.ones(1), 1.0, scale, law)
    return drawn_again(query, np.zeros(1, np.int64), times)[:, 0]
