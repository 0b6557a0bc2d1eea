"""The only exit from the vault: queries, their sensitivities, and the noise.

A `Query` has whole numbers as its answer. It states and proves its sensitivity. `ExactSum` adds the
whole numbers without rounding. `Exit.noisy` adds noise according to the stage's planned cost. Only
`Exit.noisy` draws noise from the noise source.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeAlias

import numpy as np

from privcausal.accounting.price import PICO, Charge, Cost, Release
from privcausal.errors import CapabilityError
from privcausal.request.request import Plan, Stage
from privcausal.typing import Integers, Neighbors, Vector
from privcausal.vault import noise
from privcausal.vault.batch import Batch
from privcausal.vault.guard import Opaque

TWO_FACTOR = 16
"""Bits per factor in sums of products: 2^32 per row, exact in float64 for 2^21 rows a batch."""

ONE_FACTOR = 30
"""Bits in sums of single numbers."""

SAFETY = 1.0 + 2.0**-40
"""Every noise scale is multiplied by this factor, to cover the float rounding in the scale.

The increase is far larger than the rounding.
"""

UNKNOWN = float("nan")
"""Marks a sensitivity or noise scale that is not reported or not yet known."""

SAFE_BLOCKS = 1 << 8
"""Number of blocks whose sums always fit into int64, because each block's sums are below 2^53."""

LIMB = 32

ClaimedNoise = Callable[[str, Vector, float, float], Vector]
"""Map (name, exact values, grid unit, noise sd) to noisy values whose scale is not proven."""


# -- queries ---------------------------------------------------------------------------------


class Named:
    """A query with a public label in the budget table."""

    label: ClassVar[str]  # The text of `query`, which may hold fields of the query in braces

    @cached_property
    def query(self) -> str:
        """Label of this query in the budget table. Public."""
        return self.label.format(self=self)


class Query(Named, ABC):
    """A query releases a vector of integers and bounds its change when one row changes.

    Every query must keep these invariants:

    - It is public: a frozen value, made of declarations and earlier releases. Its length, units,
      weights, and sensitivity do not depend on the rows.
    - It is total: every table has an answer, including the empty table. No value in a row raises an
      error.
    - It maps each row separately and adds the results. Otherwise its docstring contains a further
      proof.
    - Its sensitivity is the sensitivity of the whole numbers that are released, after rounding.
      Lowering the sensitivity requires a new proof.
    - It adds no noise. `Vault.release` releases its answer, with the noise of `Exit.noisy`.

    Subclasses state `sensitivity` and prove it in their docstring under ``Privacy``. The noise on
    coordinate j has sd sigma / weights[j]. The discrete Gaussian loses at most d_j^2 / (2 sd_j^2)
    on coordinate j. Therefore the release is rho-zCDP with rho = ||weights * d||^2 / (2 sigma^2)
    <= sensitivity^2 / (2 sigma^2).
    """

    name: str = "discrete Gaussian"

    @cached_property
    def units(self) -> Vector:
        """Natural units per integer of each coordinate, shape (m,). Each query defines them."""
        raise NotImplementedError

    @cached_property
    def weights(self) -> Vector:
        """Relative weights of the coordinates in the sensitivity norm, shape (m,)."""
        return np.ones(len(self.units))

    @abstractmethod
    def sensitivity(self, neighbors: Neighbors) -> float:
        """Largest weighted l2 change of the integers when one row is replaced or added."""

    def l1_sensitivity(self, neighbors: Neighbors) -> float:
        """Largest weighted l1 change of the integers when one row is replaced or added.

        Laplace noise of scale b / weights[j] on coordinate j loses at most this sensitivity divided
        by b. Therefore the release is epsilon-DP with epsilon = l1_sensitivity / b.
        """
        raise CapabilityError(f"The release {self.query!r} has no cost in pure epsilon.")


class Mechanism(Query):
    """A sum over rows of integer vectors with bounded (weighted) l2 norm."""

    @abstractmethod
    def integers(self, batch: Batch) -> Integers:
        """Exact sums over the batch, shape (m,)."""


SummedQueries: TypeAlias = Sequence[tuple[Mechanism, tuple[int | None, ...]]]
"""Mechanisms, and the parts of the rows that each is summed over (None: all rows)."""


class Solution(Query):
    """A vector on an integer grid, found by several passes over the rows."""

    @abstractmethod
    def solve(self, batches: Iterable[Batch]) -> Integers:
        """The exact answer, shape (m,). It is defined for all possible rows."""


def on_grid(values: Vector, bound: float, bits: int) -> Vector:
    """Clip values / bound to [-1, 1] and round to multiples of 2^-bits; NaN becomes 0.

    The result counts grid steps, as whole float64 numbers.
    """
    ints = values / bound
    ints[np.isnan(ints)] = 0.0
    np.clip(ints, -1.0, 1.0, out=ints)
    ints *= float(1 << bits)
    return np.rint(ints, out=ints)


def grid_scale(bits: int, room: float) -> float:
    """Integers per unit on a grid of 2^bits steps per unit, reduced by the margin for rounding.

    `room` is the number of integers by which rounding may lengthen a vector of bound one unit. One
    more integer covers the float rounding in the scaling itself.
    """
    return float((1 << bits) - np.ceil(room) - 1.0)


class ExactSum(Opaque):
    """Exact sum of int64 vectors, shape (m,). It uses Python integers if int64 might overflow.

    Privacy
    -------
    The released sum is clipped to +-2^62 in each coordinate. Clipping never increases the distance
    between two sums, so every sensitivity holds for any number of rows. Below 2^30 rows, clipping
    has no effect, because a row adds at most 2^32 to a coordinate.
    """

    __slots__ = ("_blocks", "_far", "_near")

    def __init__(self, size: int) -> None:
        self._near = np.zeros(size, np.int64)
        self._far = np.zeros(size, object)
        self._blocks = 0

    def add(self, block: Integers) -> None:
        """Add one block's sums, each below 2^53 in absolute value."""
        self._near += block
        self._blocks += 1
        if self._blocks == SAFE_BLOCKS:
            self._carry()

    def _carry(self) -> None:
        self._far += self._near.astype(object)
        self._near[:] = 0
        self._blocks = 0

    def packed(self) -> bytes:
        """Pack the current sum as two int64 per coordinate, for `merge` on another machine."""
        self._carry()
        low = (1 << LIMB) - 1
        limbs = [[v >> LIMB for v in self._far], [v & low for v in self._far]]
        return np.array(limbs, np.int64).tobytes()

    def merge(self, packed: bytes) -> None:
        """Add a sum that another machine packed."""
        high, low = np.frombuffer(packed, np.int64).reshape(2, -1).astype(object)
        self._far += high * (1 << LIMB) + low

    def value(self) -> Integers:
        """The sum, clipped to +-2^62."""
        self._carry()
        return np.array([max(-noise.LIMIT, min(noise.LIMIT, v)) for v in self._far], np.int64)


# -- noise and charges -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Exit:
    """Noise according to the plan's costs, and a charge for each release. Holds no rows."""

    plan: Plan
    source: noise.OperatingSystem

    @property
    def neighbors(self) -> Neighbors:
        return self.plan.request.trust.neighbors

    def noisy(self, exact: Integers, query: noise.NoiseQuery) -> Vector:
        """Add noise to private integers. They are released only with noise from this method."""
        return self.source.with_noise(exact, query)

    def noise_query(
        self,
        stage: Stage,
        name: str,
        weights: Vector,
        sensitivity: float,
        law: noise.Law = "gaussian",
    ) -> noise.NoiseQuery:
        """Noise for one stage, for Delta = max_rows times one row's change (l2, or l1 for Laplace).

        Gaussian noise has sigma = Delta / sqrt(2 rho). A stage with a cost in epsilon has Laplace
        noise with b = Delta / epsilon.
        """
        delta = sensitivity * self.plan.request.trust.max_rows
        price = np.sqrt(2 * stage.rho / PICO) if law == "gaussian" else stage.epsilon / PICO
        return noise.NoiseQuery(name, weights, delta, float(delta / price * SAFETY), law)

    def claimed(self, name: str, exact: Vector, unit: float, sd: float) -> Vector:
        """Values on a grid of `unit` with noise. The noise scale is neither proven nor reported."""
        whole = np.rint(exact / unit).astype(np.int64)
        query = noise.NoiseQuery(name, np.ones(len(whole)), UNKNOWN, float(sd / unit * SAFETY))
        return np.asarray(self.noisy(whole, query) * unit)

    def noise_of(self, stage: Stage, mechanism: Query) -> noise.NoiseQuery:
        """Noise of one query at the cost of its stage."""
        law: noise.Law = "gaussian" if stage.rho else "laplace"
        moved = mechanism.sensitivity if stage.rho else mechanism.l1_sensitivity
        return self.noise_query(
            stage, mechanism.query, mechanism.weights, moved(self.neighbors), law
        )

    def with_charge(self, stage: Stage, mechanism: Query, values: Vector) -> Release:
        """A noisy answer with its noise and its charge, which follow from stage and query."""
        query, units = self.noise_of(stage, mechanism), mechanism.units
        name, spread = mechanism.name, query.scale
        if query.law == "laplace":
            name = "discrete Laplace"
            spread = float(noise.OperatingSystem().sd(query)[0] * query.weights[0])
        first = float(units[0])
        charge = self.charge(stage, query.name, name, query.sensitivity * first, spread * first)
        return Release(values, self.source.sd(query) * units, charge)

    def claim(self, stage: Stage, query: str, mechanism: str, values: Vector) -> Release:
        """Release values that already contain their noise. Their noise scale is not reported."""
        return Release(values, np.full(len(values), UNKNOWN), self.charge(stage, query, mechanism))

    def charge(
        self,
        stage: Stage,
        query: str,
        mechanism: str,
        sensitivity: float = UNKNOWN,
        noise_sd: float = UNKNOWN,
    ) -> Charge:
        """Entry for a release in the budget table and the ledger."""
        return Charge(
            stage=stage.heading,
            query=query,
            mechanism=mechanism,
            neighbors=self.neighbors,
            sensitivity=float(sensitivity),
            noise_sd=float(noise_sd),
            cost=self.plan.cost(stage),
            rows=stage.rows,
            unit=self.plan.request.trust.protected,
            parallel=stage.parallel,
            price=Cost(0, stage.epsilon, stage.delta) if stage.free else None,
        )
