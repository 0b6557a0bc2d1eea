"""Counts: marginal histograms of covariates, and a histogram of a score's size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from privcausal.spec.schema import Interval, Levels, Schema
from privcausal.typing import Integers, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.mechanisms.base import Mechanism
from privcausal.vault.transforms.scores import Transform

BINS = 16
"""Public bins over a declared interval."""


@dataclass(frozen=True)
class Marginals(Mechanism):
    """One histogram for each of d variables: equal bins of an interval, or the levels.

    Privacy
    -------
    A row adds one to one bin of each histogram: replacing it moves the joint vector by at most
    sqrt(2 d) in l2, adding it by sqrt(d). Rows with missing values add nothing.
    """

    variables: tuple[str, ...]
    schema: Schema
    parts: int = BINS

    @property
    def query(self) -> str:
        return f"{len(self.variables)} histograms" if self.variables else "count"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of bins of each variable; a study without covariates counts its rows."""
        return tuple(bins(self.schema, name, self.parts) for name in self.variables) or (1,)

    @property
    def units(self) -> Vector:
        return np.ones(sum(self.sizes))

    def sensitivity(self, neighbors: Neighbors) -> float:
        d = len(self.sizes)
        if not self.variables and neighbors == "substitute":
            return 1.0  # one cell: replacing a complete row by an incomplete one
        return float(np.sqrt(2 * d if neighbors == "substitute" else d))

    def integers(self, batch: Batch) -> Integers:
        if not self.variables:
            return np.array([np.count_nonzero(batch.complete)], np.int64)
        missing = ~batch.complete
        counts = []
        for name, size in zip(self.variables, self.sizes, strict=True):
            cell = self._bin(name, batch.rows.frame)
            cell[missing] = size  # beyond the last one
            counts.append(np.bincount(cell, minlength=size + 1)[:size])
        return np.concatenate(counts).astype(np.int64)

    def _bin(self, name: str, frame: Mapping[str, Vector | Integers]) -> Integers:
        domain, values = self.schema[name], frame[name]
        if isinstance(domain, Interval):
            position = values - domain.lo
            position /= domain.width
            position *= self.parts
            np.clip(position, 0, self.parts - 1, out=position)
            # towards zero, which is down here; in two steps, of which each is fast
            return position.astype(np.int32).astype(np.int64)
        codes = values.astype(np.int64)
        if isinstance(domain, Levels):
            return np.where(codes < 0, len(domain.labels), codes)
        return codes


def bins(schema: Schema, name: str, parts: int = BINS) -> int:
    """Cells of a variable's histogram; the last of a level's is for undeclared labels."""
    domain = schema[name]
    if isinstance(domain, Interval):
        return parts
    return len(domain.labels) + 1 if isinstance(domain, Levels) else 2


@dataclass(frozen=True)
class SizeHistogram(Mechanism):
    """Counts of |r| between public `edges` (ascending; the last is the bound of r).

    Privacy
    -------
    One histogram: replacing a row moves it by at most sqrt(2) in l2, adding one by 1.
    """

    target: Transform
    edges: Vector

    @property
    def query(self) -> str:
        return "histogram of |score|"

    @property
    def units(self) -> Vector:
        return np.ones(len(self.edges))

    def sensitivity(self, neighbors: Neighbors) -> float:
        return float(np.sqrt(2.0)) if neighbors == "substitute" else 1.0

    def integers(self, batch: Batch) -> Integers:
        size = np.abs(self.target(batch))
        # |r| > -1 holds for every row, what is no number counts in the last cell
        size[~batch.complete] = -1.0
        beyond = np.empty(len(size), bool)
        above = [np.count_nonzero(batch.complete)]
        for edge in self.edges[:-1].tolist():
            at_most = np.count_nonzero(np.less_equal(size, edge, out=beyond))
            above.append(len(size) - at_most)
        return -np.diff([*above, 0]).astype(np.int64)
