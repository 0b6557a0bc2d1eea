"""Private estimators of the user's own, fitted on rows inside the vault: released as they declare.

The vault vouches for which rows such an estimator sees, and for what is cut before it sees them.
That its fit satisfies the guarantee it declares, it declares; and so is it declared, not checked,
that what it has learned, and a transform of the user's own, map each row by itself.
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
from privcausal.typing import Matrix, Neighbors, Vector
from privcausal.vault.batch import Batch
from privcausal.vault.estimators import unit_columns
from privcausal.vault.sealed import Sealed
from privcausal.vault.transforms.scores import Transform


@dataclass(frozen=True, eq=False, repr=False)
class Declared(Sealed):
    """What a private estimator has learned, as a function of rows, cut to [lo, hi].

    An estimator may keep what it has seen, so it can be asked, but not copied, pickled or shown.

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
    """A number for each row by a function of (y, t, first); a user's is declared to map each alone.

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

    Targets are row maps, built in or declared: what a row's target is depends on that row and on
    released functions alone, so tables that differ in one row give the estimator tables that differ
    in one row (Niu et al. 2022, proof of Theorem 6: the transformation is 1-stable). They are cut
    to `bounds`, weights to [0, `most`].

    How many rows the estimator gets must not move where one row is replaced by another: its
    declaration is of tables that differ in one row. So under substitution a row of the part that is
    not complete stays, as the same public row whatever else it holds: numeric columns in the middle
    of their domains, no level, treatment 0, the target `filler`, weight `most`. Under add_remove,
    where a table may gain or lose a row anyway, it is left out: a row that becomes incomplete is
    one row fewer, and an incomplete row that is added changes nothing.

    Attributes
    ----------
    bounds : (float, float)
        Public bounds of the target.
    filler : float, optional
        Target of an incomplete row; default the middle of `bounds`.
    """

    estimator: Any
    design: Design
    target: Transform
    bounds: tuple[float, float]
    weight: Transform | None = None
    most: float = 1.0
    with_treatment: bool = False
    filler: float | None = None
    name: str = "as declared"

    def run(self, batches: Sequence[Batch], neighbors: Neighbors) -> Declared:
        """The fitted copy: the user's own object learns nothing."""
        lo, hi = self.bounds
        filler = 0.5 * (lo + hi) if self.filler is None else self.filler
        columns: list[Matrix] = []
        targets: list[Vector] = []
        weights: list[Vector] = []
        for batch in batches:
            counted = batch.chosen if neighbors == "substitute" else batch.complete
            gone = ~batch.complete
            x = np.where(gone[:, None], self._blank, self._columns(batch))
            columns.append(x[counted])
            targets.append(np.where(gone, filler, self.target(batch))[counted])
            if self.weight is not None:
                weights.append(np.where(gone, self.most, self.weight(batch))[counted])
        x, target = np.concatenate(columns), np.concatenate(targets)
        target = np.clip(np.nan_to_num(target), lo, hi)
        weight: Vector | None = None
        if self.weight is not None:
            weight = np.clip(np.nan_to_num(np.concatenate(weights)), 0.0, self.most)
        own = copy.deepcopy(self.estimator)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # an estimator warns of what it saw in the rows
            own.fit(x, target, bounds=self.bounds, weight=weight)
        return Declared(own, self.design, lo, hi)

    def _columns(self, batch: Batch) -> Matrix:
        x = unit_columns(batch.rows, self.design)
        return np.column_stack([batch.t, x]) if self.with_treatment else x

    @property
    def _blank(self) -> Vector:
        """The columns of an incomplete row."""
        x = np.array([0.5 * (c.kind != "indicator") for c in self.design.columns] or [0.0])
        return np.concatenate([[0.0], x]) if self.with_treatment else x
