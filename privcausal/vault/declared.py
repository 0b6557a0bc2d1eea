"""Private estimators of the user's own, fitted on rows inside the vault: released as they declare.

The vault vouches for which rows such an estimator sees, and for what is cut before it sees them.
That its fit satisfies the guarantee it declares, it declares.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privcausal.spec.features import Design, Rows
from privcausal.spec.functions import Function
from privcausal.typing import Matrix, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.estimators import unit_columns
from privcausal.vault.transforms.scores import Transform


@dataclass(frozen=True, eq=False)
class Declared:
    """What a private estimator has learned, as a function of rows, cut to [lo, hi].

    Attributes
    ----------
    arm : float, optional
        Value of the treatment, where it is the first column.
    """

    estimator: Any
    design: Design
    lo: float
    hi: float
    arm: float | None = None

    def __call__(self, rows: Rows) -> Vector:
        x = unit_columns(rows, self.design)
        if self.arm is not None:
            x = np.column_stack([np.full(len(x), self.arm), x])
        value = np.asarray(self.estimator.predict(x), np.float64).reshape(len(x))
        value = np.where(np.isnan(value), 0.5 * (self.lo + self.hi), value)
        return np.asarray(np.minimum(np.maximum(value, self.lo), self.hi))

    def at(self, arm: float) -> Declared:
        """The same with the treatment at this value."""
        return replace(self, arm=arm)


@dataclass(frozen=True, eq=False)
class RowMap:
    """A number for each row by a function of (y, t, first), which maps each row by itself.

    Attributes
    ----------
    first : mapping
        Released functions, whose values at the rows it is given by name.
    bound : float
        Largest size that is expected of it.
    """

    function: Callable[[Vector, Vector, Mapping[str, Vector]], Vector]
    first: Mapping[str, Function]
    bound: float

    def __call__(self, batch: Batch) -> Vector:
        at = {name: value(batch.rows) for name, value in self.first.items()}
        return np.asarray(self.function(batch.y, batch.t, at), np.float64)


@dataclass(frozen=True, eq=False)
class DeclaredFit:
    """One stage of the meta-algorithm: regress a row's target on its columns, and the treatment.

    Targets are row maps: what a row's target is depends on that row and on released functions
    alone, so tables that differ in one row give the estimator tables that differ in one row (Niu
    et al. 2022, proof of Theorem 6: the transformation is 1-stable). They are cut to `bounds`,
    weights to [0, `most`].

    Attributes
    ----------
    bounds : (float, float)
        Public bounds of the target.
    """

    estimator: Any
    design: Design
    target: Transform
    bounds: tuple[float, float]
    weight: Transform | None = None
    most: float = 1.0
    with_treatment: bool = False
    name: str = "as declared"

    def run(self, batches: Sequence[Batch]) -> Declared:
        """The fitted copy: the user's own object learns nothing."""
        x = np.concatenate([self._columns(b)[b.complete] for b in batches])
        target = np.concatenate([self.target(b)[b.complete] for b in batches])
        lo, hi = self.bounds
        target = np.clip(np.nan_to_num(target), lo, hi)
        weight = None
        if self.weight is not None:
            weight = np.concatenate([self.weight(b)[b.complete] for b in batches])
            weight = np.clip(np.nan_to_num(weight), 0.0, self.most)
        own = copy.deepcopy(self.estimator)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # an estimator warns of what it saw in the rows
            own.fit(x, target, bounds=self.bounds, weight=weight)
        return Declared(own, self.design, lo, hi)

    def _columns(self, batch: Batch) -> Matrix:
        x = unit_columns(batch.rows, self.design)
        return np.column_stack([batch.t, x]) if self.with_treatment else x
