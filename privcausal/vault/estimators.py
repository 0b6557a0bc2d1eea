"""Estimators supplied by the user, fitted on rows inside the vault.

These fits alone are not private. Fitted nuisances are used by one mechanism and deleted with it. A
private estimator is released under the guarantee that it declares.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from privcausal.features import functions
from privcausal.features.design import Design, Rows
from privcausal.typing import Matrix, Neighbors, Vector
from privcausal.vault import noise
from privcausal.vault.batch import Batch
from privcausal.vault.guard import REPEAT, Opaque, shielded
from privcausal.vault.transforms import Transform


class Estimators(NamedTuple):
    """Estimators for the nuisances, with the scikit-learn interface."""

    # An estimator with ``fit`` and ``predict_proba``. Not used if `known` is given.
    propensity: Any
    outcome: Any  # An estimator with ``fit`` and ``predict``. It is fitted once in each arm.
    known: functions.Function | None = None  # The known propensity


@dataclass(frozen=True, eq=False, repr=False)
class FittedEstimators(Opaque):
    """A fitted estimator as a function of rows, clipped to [lo, hi]. NaN becomes the midpoint.

    An estimator may store rows that it was fitted on. Therefore it can be called, but not copied,
    pickled, or shown.
    """

    estimator: Any
    design: Design
    lo: float
    hi: float
    # The estimator's method; of ``predict_proba``, the second column is used. A function supplied
    # by the user, declared to be public or already private, is called.
    method: Literal["predict", "predict_proba", "__call__"] = "predict"
    arm: float | None = None  # Value of the treatment, if the treatment is the first column
    who: str = ""  # Type and stage of a private estimator, in place of its own errors

    def __call__(self, rows: Rows) -> Vector:
        if self.who:
            bare = replace(self, who="")
            return np.asarray(hiding(lambda: bare(rows), f"{self.who}, in predict"))
        x = unit_columns(rows, self.design)
        if self.arm is not None:
            x = np.column_stack([np.full(len(x), self.arm), x])
        values = np.asarray(getattr(self.estimator, self.method)(x), np.float64)
        values = values[:, 1] if self.method == "predict_proba" else values.reshape(len(x))
        middle = 0.5 * (self.lo + self.hi)
        return np.clip(np.where(np.isnan(values), middle, values), self.lo, self.hi)


def hiding(step: Callable[[], Any], who: str) -> Any:
    """Run a step of a user's estimator. Errors contain only `who`."""
    if not noise.current().real:
        return step()  # Test noise gives no privacy, so show the error.
    return shielded(step, f"{who}. Its message is hidden because it could quote a row. {REPEAT}")


def unit_columns(rows: Rows, design: Design) -> Matrix:
    """Design columns, scaled to [0, 1] by their public ranges; indicators unchanged. Shape (n, q).

    An empty design gives one column of zeros, because scikit-learn refuses a matrix without
    columns.
    """
    if not len(design):
        return np.zeros((len(rows), 1))
    numeric = np.array([c.kind != "indicator" for c in design.columns])
    scaled = np.nan_to_num(rows.scaled(design))
    return np.where(numeric, 0.5 * (scaled + 1.0), scaled)


def learn_nuisances(
    wanted: Estimators | functions.NuisanceTriple,
    rows: Rows,
    t: Vector,
    y: Vector,
    *,
    design: Design,
    clip: float,
    bounds: tuple[float, float],
) -> functions.NuisanceTriple:
    """Fit e(x), mu_0(x), and mu_1(x) on these rows, unless they are given.

    The fit is defined for all rows. e is clipped to [clip, 1 - clip], and mu to the outcome's
    `bounds`.
    """
    if isinstance(wanted, functions.NuisanceTriple):
        return wanted
    from sklearn.base import clone

    x = unit_columns(rows, design)
    # Fit unfitted copies, so that the user's own objects do not learn from the rows.
    e, arms = wanted.known, np.unique(t)
    if e is None and len(arms) < 2:  # A classifier's error would reveal this.
        share = float(arms[0]) if len(arms) else 0.5
        e = functions.Constant(min(max(share, clip), 1 - clip))
    elif e is None:
        classifier = clone(wanted.propensity, safe=False).fit(x, t.astype(np.int64))
        e = FittedEstimators(classifier, design, clip, 1 - clip, "predict_proba")
    means: list[functions.Function] = []
    for arm in (0, 1):
        if not (t == arm).any():
            means.append(functions.Constant(0.5 * sum(bounds)))
            continue
        regressor = clone(wanted.outcome, safe=False).fit(x[t == arm], y[t == arm])
        means.append(FittedEstimators(regressor, design, *bounds))
    return functions.NuisanceTriple(e, *means)


# -- private estimators, released under their declared guarantee -----------------------------
#
# The vault guarantees which rows such an estimator sees and that their values are clipped first.
# Two properties are declared and not checked: the fit satisfies its guarantee, and the fitted
# estimator and any user-supplied transform map each row separately.


@dataclass(frozen=True, eq=False)
class RowMap:
    """A number for each row, computed as a function of (y, t, first).

    A user-supplied function is declared to map each row separately. `first` holds released
    functions, passed as their values at the rows. `bound` is the largest expected absolute value.
    """

    function: Callable[[Vector, Vector, Mapping[str, Vector]], Vector]
    first: Mapping[str, functions.Function]
    bound: float

    def __call__(self, batch: Batch) -> Vector:
        at = {name: value(batch.rows) for name, value in self.first.items()}
        return np.asarray(self.function(batch.y, batch.t, at), np.float64)


@dataclass(frozen=True, eq=False)
class DeclaredFit:
    """One stage of the meta-algorithm: regress a row's target on its columns, and on the treatment.

    A row's target depends only on that row and on released functions. Therefore tables that differ
    in one row give the estimator tables that differ in one row (Niu et al. 2022, proof of Theorem
    6: the transformation is 1-stable). Targets are clipped to `bounds`, weights to [0, `most`].

    Under substitution, the number of rows must not change either, because the estimator's guarantee
    is for tables that differ in one row. Therefore an incomplete row of the part is kept as a fixed
    public row: numeric columns at the midpoint of their domains, no level, treatment 0, target
    `filler`, and weight `most`. Under add_remove, an incomplete row is dropped. There, a row that
    becomes incomplete is one row fewer, and adding an incomplete row changes nothing.
    """

    estimator: Any
    design: Design
    target: Transform
    bounds: tuple[float, float]  # Public bounds of the target
    weight: Transform | None = None
    most: float = 1.0
    with_treatment: bool = False
    # Target of an incomplete row. The default is the midpoint of `bounds`.
    filler: float | None = None
    name: str = "as declared"

    def run(self, batches: Sequence[Batch], neighbors: Neighbors, stage: str) -> FittedEstimators:
        """Fit a copy, so that the user's own object does not learn from the rows.

        Its errors could quote a row. Only its name and the stage are shown, which are public.
        """
        lo, hi = self.bounds
        filler = 0.5 * (lo + hi) if self.filler is None else self.filler
        columns: list[Matrix] = []
        targets: list[Vector] = []
        weights: list[Vector] = []
        blank = np.array([0.5 * (c.kind != "indicator") for c in self.design.columns] or [0.0])
        if self.with_treatment:
            blank = np.append(0.0, blank)
        for batch in batches:
            counted = batch.chosen if neighbors == "substitute" else batch.complete
            gone = ~batch.complete
            x = unit_columns(batch.rows, self.design)
            if self.with_treatment:
                x = np.column_stack([batch.t, x])
            columns.append(np.where(gone[:, None], blank, x)[counted])
            targets.append(np.where(gone, filler, self.target(batch))[counted])
            if self.weight is not None:
                weights.append(np.where(gone, self.most, self.weight(batch))[counted])
        x, target = np.concatenate(columns), np.concatenate(targets)
        target = np.clip(np.nan_to_num(target), lo, hi)
        weight: Vector | None = None
        if self.weight is not None:
            weight = np.clip(np.nan_to_num(np.concatenate(weights)), 0.0, self.most)
        estimator = copy.deepcopy(self.estimator)
        who = f"{self.name.partition(',')[0]} failed in the stage '{stage}'"
        # Warnings could reveal rows.
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            hiding(lambda: estimator.fit(x, target, bounds=self.bounds, weight=weight), who)
        return FittedEstimators(estimator, self.design, lo, hi, who=who)
