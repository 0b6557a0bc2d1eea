"""The one exit: what may be asked, how far one row moves the answer, and the noise that hides it.

A `Query` has whole numbers for its answer, and states and proves its sensitivity. `ExactSum` adds
them up without rounding. `Exit.noisy` adds noise by the stage's planned price; nothing else asks
the noise source.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from privcausal.accounting.charge import PICO, Charge, Cost, Release
from privcausal.accounting.price import NUMBERS
from privcausal.errors import CapabilityError
from privcausal.request.plan import Plan, Stage
from privcausal.request.request import FOLDS
from privcausal.typing import Integers, Neighbors, Vector
from privcausal.vault import noise
from privcausal.vault.batch import Batch, Layout, RawBatch
from privcausal.vault.guard import Opaque

TWO_FACTOR = 16
"""Bits per factor in sums of products: 2^32 per row, exact in float64 for 2^21 rows a batch."""

ONE_FACTOR = 30
"""Bits in sums of single numbers."""

SAFETY = 1.0 + 2.0**-40
"""Noise scales are raised by this factor, far more than the rounding of the floats in them."""

UNKNOWN = float("nan")
"""A sensitivity or noise scale that is not told, or not known yet."""

SAFE_BLOCKS = 1 << 8
"""Blocks whose sums int64 surely holds, as a block's are below 2^53."""

LIMB = 32

ClaimedNoise = Callable[[str, Vector, float, float], Vector]
"""(name, exact values, grid unit, noise sd) to noisy values, of a scale that is not proven."""


# -- what may be asked -----------------------------------------------------------------------


class Query(ABC):
    """What leaves the vault: a vector of integers, and how far one row moves it.

    What may never change about a query:

    - It is public: a frozen value, made of what was declared and of earlier releases. How many
      numbers it has, their units, weights and sensitivity do not depend on the rows.
    - It is total: every table has an answer, that of no rows too, and no value in a row raises.
    - Rows are added up, each by a map of that row alone (or the docstring proves more).
    - The sensitivity is one of the whole numbers that leave, after rounding. It may be lowered by a
      new proof only.
    - It adds no noise, and its answer leaves by `Exit.release` alone.

    Subclasses state `sensitivity` and prove it in their docstring under ``Privacy``. Noise on
    coordinate j has sd sigma / weights[j]. The discrete Gaussian loses at most d_j^2 / (2 sd_j^2)
    on coordinate j, so the release is rho-zCDP with
    rho = ||weights * d||^2 / (2 sigma^2) <= sensitivity^2 / (2 sigma^2).
    """

    name: str = "discrete Gaussian"

    @property
    @abstractmethod
    def query(self) -> str:
        """Words for the budget table; public."""

    @property
    @abstractmethod
    def units(self) -> Vector:
        """Natural units per integer of each coordinate, shape (m,)."""

    @property
    def weights(self) -> Vector:
        """Relative weights of the coordinates in the sensitivity norm, shape (m,)."""
        return np.ones(len(self.units))

    @abstractmethod
    def sensitivity(self, neighbors: Neighbors) -> float:
        """Largest weighted l2 change of the integers when one row is replaced or added."""

    def l1_sensitivity(self, neighbors: Neighbors) -> float:
        """Largest weighted l1 change of the integers when one row is replaced or added.

        Laplace noise of scale b / weights[j] on coordinate j then loses at most this over b, so
        the release is epsilon-DP with epsilon = l1_sensitivity / b.
        """
        raise CapabilityError(f"the release {self.query!r} has no price in pure epsilon")


class Mechanism(Query):
    """A sum over rows of integer vectors with bounded (weighted) l2 norm."""

    @abstractmethod
    def integers(self, batch: Batch) -> Integers:
        """Exact sums over the batch, shape (m,)."""

    def by_part(self, batch: Batch, parts: Sequence[int | None]) -> Integers:
        """Exact sums over the rows of each part (None: all), one after another, shape (k m,)."""
        each = [self.integers(batch if p is None else batch.only(p)) for p in parts]
        return np.concatenate(each)

    def counted(
        self, layout: Layout, labels: frozenset[str], ask: Callable[[str], Integers | None]
    ) -> Integers | None:
        """The same sums to the bit by SQL over the table `data`; None where there is none.

        `labels` are the columns read as texts, and `ask` gives the rows of a query, or None.
        """
        return None


@dataclass(frozen=True, eq=False)
class Together:
    """Some mechanisms' sums, each over parts of the rows of its own, in one pass over them."""

    asked: tuple[tuple[Mechanism, tuple[int | None, ...]], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of sums of each."""
        return tuple(len(parts) * len(m.units) for m, parts in self.asked)

    @property
    def width(self) -> int:
        """Most columns of a matrix that one of them makes of the rows."""
        return max(getattr(getattr(m, "features", None), "size", 0) for m, _ in self.asked)

    def integers(self, batch: Batch) -> Integers:
        """Exact sums over the batch, one mechanism and part after another."""
        return np.concatenate([m.by_part(batch, parts) for m, parts in self.asked])


class RawMechanism(Query):
    """A sum over rows of their raw columns, before domains are known."""

    variables: tuple[str, ...]

    @abstractmethod
    def integers(self, batch: RawBatch) -> Integers:
        """Exact sums over the batch, shape (m,)."""


class Solution(Query):
    """A vector found by several passes over the rows, on an integer grid."""

    @abstractmethod
    def solve(self, batches: Iterable[Batch]) -> Integers:
        """The exact answer, shape (m,): a total map of the rows."""


def on_grid(values: Vector, bound: float, bits: int) -> Vector:
    """values / bound cut to [-1, 1] on multiples of 2^-bits, as whole float64 numbers; NaN is 0."""
    ints = values / bound
    ints[np.isnan(ints)] = 0.0
    np.clip(ints, -1.0, 1.0, out=ints)
    ints *= float(1 << bits)
    return np.rint(ints, out=ints)


def grid_scale(bits: int, room: float) -> float:
    """Integers per unit on a grid of 2^bits to the unit, less the room that rounding needs.

    `room` is by how many integers rounding may lengthen a vector of bound one unit; one more pays
    for the floats of the scaling itself.
    """
    return float((1 << bits) - np.ceil(room) - 1.0)


class ExactSum(Opaque):
    """Sum of int64 vectors of shape (m,), as Python's integers where int64 might not hold it.

    Privacy
    -------
    What leaves is cut to +-2^62 in each coordinate. A cut moves no two sums further apart, so every
    sensitivity holds for any number of rows. Below 2^30 rows nothing is cut, because a row adds at
    most 2^32 to a coordinate.
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
        if self._blocks == SAFE_BLOCKS:
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
        return np.array([max(-noise.LIMIT, min(noise.LIMIT, v)) for v in self._far], np.int64)


# -- how it leaves ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Exit:
    """Noise by the plan's prices, and the charges that tell of it. It holds no rows."""

    plan: Plan
    source: noise.NoiseSource

    @property
    def neighbors(self) -> Neighbors:
        return self.plan.request.trust.neighbors

    def noisy(self, exact: Integers, query: noise.NoiseQuery) -> Vector:
        """The one place where private integers get their noise: nothing leaves but through here."""
        draw = self.source.laplace if query.law == "laplace" else self.source.gaussian
        return draw(exact, query)

    def noise_query(
        self,
        stage: Stage,
        name: str,
        weights: Vector,
        sensitivity: float,
        law: noise.Law = "gaussian",
    ) -> noise.NoiseQuery:
        """Noise for one stage; Delta = max_rows x one row's change, in l2 or for Laplace in l1.

        Gaussian noise has sigma = Delta / sqrt(2 rho). A stage priced in epsilon has Laplace noise,
        b = Delta / epsilon.
        """
        delta = sensitivity * self.plan.request.trust.max_rows
        price = np.sqrt(2 * stage.rho / PICO) if law == "gaussian" else stage.epsilon / PICO
        return noise.NoiseQuery(name, weights, delta, float(delta / price * SAFETY), law)

    def claimed(self, name: str, exact: Vector, unit: float, sd: float) -> Vector:
        """Values with noise of a scale that is not proven, and not told, on a grid of `unit`."""
        whole = np.rint(exact / unit).astype(np.int64)
        query = noise.NoiseQuery(name, np.ones(len(whole)), UNKNOWN, float(sd / unit * SAFETY))
        return np.asarray(self.noisy(whole, query) * unit)

    def release(self, stage: Stage, mechanism: Query, exact: Integers) -> Release:
        """The answer to one query with its noise, in natural units, and its charge."""
        law: noise.Law = "gaussian" if stage.rho else "laplace"
        moved = mechanism.sensitivity if stage.rho else mechanism.l1_sensitivity
        query = self.noise_query(
            stage, mechanism.query, mechanism.weights, moved(self.neighbors), law
        )
        name, spread = mechanism.name, query.scale
        if law == "laplace":
            name = "discrete Laplace"
            spread = float(noise.standard_deviation(query)[0] * query.weights[0])
        self.check_size(len(exact))
        noisy = self.noisy(exact, query)
        units = mechanism.units
        first = float(units[0])
        charge = self.charge(stage, query.name, name, query.sensitivity * first, spread * first)
        return Release(noisy * units, self.source.sd(query) * units, charge)

    def check_size(self, numbers: int) -> None:
        """Refuse a release of more numbers than its price allows."""
        if self.plan.gdp and numbers * FOLDS > NUMBERS:
            raise CapabilityError(
                f"a stage releases {NUMBERS // FOLDS:,} numbers at most; write fewer terms"
            )

    def claim(self, stage: Stage, query: str, mechanism: str, values: Vector) -> Release:
        """Values that have their noise already, of a scale that is not told."""
        return Release(values, np.full(len(values), UNKNOWN), self.charge(stage, query, mechanism))

    def charge(
        self,
        stage: Stage,
        query: str,
        mechanism: str,
        sensitivity: float = UNKNOWN,
        noise_sd: float = UNKNOWN,
    ) -> Charge:
        """What the budget table and the ledger say of a release."""
        return Charge(
            stage.heading,
            query,
            mechanism,
            self.neighbors,
            float(sensitivity),
            float(noise_sd),
            self.plan.cost(stage),
            stage.rows,
            self.plan.request.trust.protected,
            parallel=stage.parallel,
            price=Cost(0, stage.epsilon, stage.delta) if stage.free else None,
        )

    def planned(self, stage: Stage) -> Charge:
        """The charge before anything but the plan is known."""
        return self.charge(stage, stage.query, "planned")
