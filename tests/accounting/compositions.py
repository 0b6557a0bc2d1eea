"""Random compositions of Gaussian and Laplace noise, priced by the ledger and by dp-accounting."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from privcausal.accounting import PICO, Cost, Events, delta_after, epsilon_of, total_epsilon


def least_total(events: Events, delta: float) -> float:
    """The least over all subsets of the pure events counted as they are, all else as zCDP."""
    left, found = delta_after(delta, events.delta), []
    for chosen in itertools.product([False, True], repeat=len(events.pure)):
        pure = sum(e for e, keep in zip(events.pure, chosen, strict=True) if keep)
        squares = [e for e, keep in zip(events.pure, chosen, strict=True) if not keep]
        rho = events.rho + events.gdp + sum(-(-e * e // (2 * PICO)) for e in squares)
        found.append(pure / PICO + epsilon_of(rho, left))
    return min(found)


@dataclass(frozen=True)
class Composition:
    """Noise scales at sensitivity one: sigma of Gaussians, b of Laplace laws; and a delta."""

    sigmas: tuple[float, ...]
    scales: tuple[float, ...]
    delta: float

    @property
    def events(self) -> Events:
        costs = [Cost(rho=math.ceil(PICO / (2 * s * s))) for s in self.sigmas]
        return Events.of([*costs, *(Cost(epsilon=math.ceil(PICO / b)) for b in self.scales)])

    @property
    def ours(self) -> float:
        return total_epsilon(self.events, self.delta)

    def least(self) -> float:
        return least_total(self.events, self.delta)

    def truth(self, interval: float) -> float:
        """A lower bound of the true epsilon, by privacy loss distributions (Google)."""
        from dp_accounting.pld import privacy_loss_distribution as pld

        options: dict[str, Any] = {
            "pessimistic_estimate": False, "value_discretization_interval": interval,
            "use_connect_dots": False,
        }  # fmt: skip
        parts = [pld.from_gaussian_mechanism(s, **options) for s in self.sigmas]
        parts += [pld.from_laplace_mechanism(b, **options) for b in self.scales]
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.compose(part)
        return float(whole.get_epsilon_for_delta(self.delta))


def random(count: int, seed: int = 20_26) -> Iterator[Composition]:
    """A fifth Gaussian alone, a tenth Laplace alone; sigma 1.5 to 30, b 1 to 100, one to nine."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        gaussians = 0 if number % 10 == 9 else rng.integers(1, 6)
        laplaces = 0 if number % 5 == 0 else rng.integers(1, 5)
        yield Composition(
            tuple(np.exp(rng.uniform(math.log(1.5), math.log(30), gaussians)).tolist()),
            tuple(np.exp(rng.uniform(0, math.log(100), laplaces)).tolist()),
            float(rng.choice([1e-7, 1e-6, 1e-5, 1e-4])),
        )
