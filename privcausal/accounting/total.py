"""The total epsilon of releases priced in rho, in pure epsilon and in delta.

Each of these is a valid total, and the least of them is reported:

1. *All as zCDP.* Events in rho add up; a pure event is counted as it is, or as rho = epsilon^2 / 2
   (Bun and Steinke 2016, Proposition 1.4). For every choice of the pure events that are counted as
   they are, sum of their epsilon + epsilon_of(rho of all the rest, delta - sum of delta events).
2. *As Gaussian noise.* Events whose rho is mu^2 / 2 of discrete Gaussian noise, and pure events,
   have the joint delta of `gaussian.delta_of`. What other events in rho there are is converted at a
   part of delta of its own (`SPLITS`), and epsilons and deltas of both add up.

Amounts are integers of pico-units, and compared as such. A float that a person typed stands for
its shortest decimal, so that three spends of 0.1 fit a cap of 0.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from privcausal.accounting.charge import PICO, Cost, exact
from privcausal.accounting.conversion import (
    MIN_EPSILON,
    epsilon_of,
    largest_gaussian,
    largest_rho,
)
from privcausal.accounting.gaussian import EVENTS, delta_of, epsilon_at
from privcausal.typing import Vector

SPLITS = (0.5, 0.1, 0.01)
"""Parts of delta, tried for either side where zCDP stands beside Gaussian noise: each is valid."""


@dataclass(frozen=True, slots=True)
class Events:
    """What was spent, in pico-units.

    `rho` is the total of events that are zCDP alone, `gdp` that of `releases` with Gaussian
    noise; `pure` are epsilons one by one, `delta` is a total.
    """

    rho: int = 0
    pure: tuple[int, ...] = ()
    delta: int = 0
    gdp: int = 0
    releases: int = 0

    @classmethod
    def of(cls, costs: Iterable[Cost]) -> Events:
        """The events of several releases; a cost of zero is no event."""
        costs = tuple(costs)
        return cls(
            sum(cost.rho for cost in costs if not cost.gdp),
            tuple(sorted((cost.epsilon for cost in costs if cost.epsilon), reverse=True)),
            sum(cost.delta for cost in costs),
            sum(cost.rho for cost in costs if cost.gdp),
            sum(cost.gdp for cost in costs),
        )

    @property
    def converted(self) -> bool:
        """Whether there is rho, which takes a delta to convert."""
        return self.rho + self.gdp > 0


@dataclass(frozen=True, slots=True)
class Remaining:
    """What a cap leaves, in natural units; any one of the first three may be spent, not all.

    Attributes
    ----------
    epsilon : float
        What the rho that is left converts to: a fit with Gaussian noise may ask for this much.
    pure_epsilon : float
        What is left for a fit of pure epsilon.
    rho : float
        What is left for Gaussian noise; a fit priced in zCDP alone may find less.
    delta : float
        What is left for selecting labels, and at which `epsilon` holds.
    """

    epsilon: float
    pure_epsilon: float
    rho: float
    delta: float


class Assignment(NamedTuple):
    """`pure`: the sum counted as epsilon; `rho`: that of all the rest (pico-units)."""

    pure: int
    rho: int


def delta_after(delta: float, spent: int) -> float:
    """The delta at which rho is converted, less `spent` pico-units; rounded down."""
    left = exact(delta) - Fraction(spent, PICO)
    found = float(left) if spent else float(delta)
    return found if not spent or Fraction(found) <= left else math.nextafter(found, -math.inf)


def total_epsilon(events: Events, delta: float) -> float:
    """The least total epsilon at `delta`; infinite where no finite one is known."""
    left = delta_after(delta, events.delta)
    as_zcdp = min(float(_total(choice, left)) for choice in _shortlist(events, left))
    return min(
        [as_zcdp]
        + [
            before + epsilon_at(own, events.gdp, events.releases, events.pure)
            for before, own in _beside(events, left)
        ]
    )


def within(events: Events, epsilon: float, delta: float) -> bool:
    """Whether the total is at most `epsilon` at `delta`; every rounding is towards no."""
    left = delta_after(delta, events.delta)
    # `rho_of` searches by these very comparisons: a plan that takes the cap's whole rho fits
    return left >= 0 and (
        any(
            delta_of(_less(epsilon, before), events.gdp, events.releases, events.pure) <= own
            for before, own in _beside(events, left)
        )
        or any(_total(choice, left) <= exact(epsilon) for choice in _shortlist(events, left))
    )


def remaining(events: Events, epsilon: float, delta: float) -> Remaining:
    """What a cap of (`epsilon`, `delta`) leaves after `events`."""
    left = max(0.0, delta_after(delta, events.delta))
    as_zcdp = max(_room(choice, epsilon, left) for choice in _shortlist(events, left, epsilon))
    releases = events.releases + EVENTS
    gaussian = [
        largest_gaussian(_less(epsilon, before), own, releases, events.pure) - events.gdp
        for before, own in _beside(events, left)
    ]
    rho = max([as_zcdp, *gaussian])
    gap = float(exact(epsilon) - exact(min(total_epsilon(events, delta), epsilon)))
    return Remaining(
        epsilon=_payable(rho, left) if left else 0.0,
        # a pure event is counted on top of the total, or as rho = epsilon^2 / 2
        pure_epsilon=max(gap, math.sqrt(2 * as_zcdp / PICO)),
        rho=rho / PICO,
        delta=left,
    )


def _payable(rho: int, delta: float) -> float:
    """Epsilon of a fit with Gaussian noise that needs no more than `rho`."""
    epsilon = epsilon_of(rho, delta, gdp=True)
    whole = round(epsilon, 9)  # 1 and not 0.99999999998, where that is what was meant
    if whole > MIN_EPSILON and largest_rho(whole, delta, gdp=True) <= rho:
        return whole
    while epsilon > MIN_EPSILON and largest_rho(epsilon, delta, gdp=True) > rho:
        epsilon *= 1 - 1e-12
    return epsilon


def _beside(events: Events, delta: float) -> Iterator[tuple[float, float]]:
    """Epsilon of the events that are zCDP alone, and the delta that is left to the others."""
    if not delta > 0:
        return
    if not events.rho:
        yield 0.0, delta
        return
    for part in SPLITS:
        for own in (part, 1 - part):
            first = math.nextafter(own * delta, 0)
            before = epsilon_of(events.rho, first)
            if before < math.inf:
                yield before, math.nextafter(delta - first, 0)


def _less(epsilon: float, before: float) -> float:
    """epsilon - before, rounded down."""
    return math.nextafter(epsilon - before, -math.inf) if before else epsilon


def _total(choice: Assignment, delta: float) -> Fraction | float:
    if choice.rho and not delta > 0:
        return math.inf
    converted = epsilon_of(choice.rho, delta) if choice.rho else 0.0
    return Fraction(choice.pure, PICO) + exact(converted) if converted < math.inf else math.inf


def _room(choice: Assignment, epsilon: float, delta: float) -> int:
    """The rho that may be added to `choice`, in pico-units."""
    rest = exact(epsilon) - Fraction(choice.pure, PICO)
    if rest < 0 or not delta > 0:
        return 0
    return max(0, largest_rho(float(rest), delta) - choice.rho)


def _assignments(events: Events) -> list[Assignment]:
    """Every assignment that counts the largest pure events as epsilon and the others as rho.

    Others need no look. `epsilon_of` is a least of lines s rho + c(s) (one for each Renyi order
    s), so the least total is the least over s of

        c(s) + s rho + sum over pure events of min(epsilon_j, s epsilon_j^2 / 2),

    and the inner minimum takes epsilon_j itself exactly when epsilon_j >= 2/s: a threshold.
    """
    as_epsilon = accumulate(events.pure, initial=0)
    as_rho = list(accumulate((_pure_as_rho(e) for e in events.pure), initial=0))
    return [
        Assignment(pure, events.rho + events.gdp + as_rho[-1] - rho)
        for pure, rho in zip(as_epsilon, as_rho, strict=True)
    ]


def _pure_as_rho(epsilon: int) -> int:
    """epsilon^2 / 2 in pico-units, rounded up."""
    return -(-(epsilon**2) // (2 * PICO))


def _shortlist(events: Events, delta: float, cap: float | None = None) -> Sequence[Assignment]:
    """The few assignments worth an exact conversion: both ends, and the best by a float formula.

    The formula only chooses: each assignment is valid, so a poor choice costs budget, not privacy.
    With a `cap` the best is the one that leaves the most rho below it, else the least total.
    """
    choices = _assignments(events)
    if len(choices) <= 2 or not delta > 0:
        return choices
    pure, rho = np.array(choices, dtype=np.float64).T[:, :, None] / PICO
    order, line = _lines(delta)
    if cap is None:
        best = np.argmin((pure + order * rho + line).min(axis=1))
    else:
        best = np.argmax(((cap - pure - line) / order - rho).max(axis=1))
    return choices[0], choices[int(best)], choices[-1]


def _lines(delta: float) -> tuple[Vector, Vector]:
    """Renyi orders s and c(s): epsilon <= s rho + c(s) at `delta` (Canonne et al., Prop. 12)."""
    order = 1 + np.geomspace(1e-2, 1e7, 400)
    return order, np.log1p(-1 / order) - (math.log(delta) + np.log(order)) / (order - 1)
