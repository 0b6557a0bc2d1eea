"""Estimators of the user's own, fitted on rows inside the vault: what they learn stays here.

Nothing in this file is private by itself. Fitted nuisances serve one mechanism of the vault and are
dropped with it; they never leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from privcausal.spec.features import Design, Rows
from privcausal.spec.functions import Constant, Function, Nuisance
from privcausal.typing import Matrix, Vector
from privcausal.vault.sealed import Sealed


@dataclass(frozen=True, eq=False)
class Estimators:
    """Which estimators learn the nuisances, as scikit-learn has them.

    Attributes
    ----------
    propensity
        With ``fit`` and ``predict_proba``. It is not used where `known` is given.
    outcome
        With ``fit`` and ``predict``; fitted once in each arm.
    known : Function, optional
        The known propensity.
    """

    propensity: Any
    outcome: Any
    known: Function | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Fitted(Sealed):
    """A fitted estimator as a function of rows, cut to [lo, hi]; NaN becomes the middle."""

    estimator: Any
    design: Design
    lo: float
    hi: float
    probability: bool = False

    def __call__(self, rows: Rows) -> Vector:
        x = unit_columns(rows, self.design)
        if self.probability:
            values = np.asarray(self.estimator.predict_proba(x), np.float64)[:, 1]
        else:
            values = np.asarray(self.estimator.predict(x), np.float64).reshape(len(x))
        middle = 0.5 * (self.lo + self.hi)
        return np.clip(np.where(np.isnan(values), middle, values), self.lo, self.hi)


def unit_columns(rows: Rows, design: Design) -> Matrix:
    """Design columns on [0, 1] by their public ranges, indicators as they are, shape (n, q).

    One column of zeros where there are none: scikit-learn refuses a matrix without columns.
    """
    if not len(design):
        return np.zeros((len(rows), 1))
    numeric = np.array([c.kind != "indicator" for c in design.columns])
    scaled = np.nan_to_num(rows.scaled(design))
    return np.where(numeric, 0.5 * (scaled + 1.0), scaled)


def learn(
    wanted: Estimators,
    rows: Matrix,
    t: Vector,
    y: Vector,
    *,
    design: Design,
    clip: float,
    bounds: tuple[float, float],
) -> Nuisance:
    """e(x), mu_0(x) and mu_1(x) fitted on all rows; a total map, whatever the rows are.

    Parameters
    ----------
    rows : Matrix
        `unit_columns`, shape (n, q).
    t, y : Vector
        Treatment 0/1 and outcome, shape (n,).
    clip : float
        e is cut to [clip, 1 - clip].
    bounds : (float, float)
        The outcome's; mu is cut to them.
    """
    e = wanted.known or _propensity(wanted.propensity, rows, t, design, clip)
    mu0, mu1 = (_mean(wanted.outcome, rows[t == a], y[t == a], design, bounds) for a in (0, 1))
    return Nuisance(e, mu0, mu1)


def _propensity(estimator: Any, rows: Matrix, t: Vector, design: Design, clip: float) -> Function:
    arms = np.unique(t)
    if len(arms) < 2:  # a classifier refuses one class, and a refusal would tell of the rows
        share = float(arms[0]) if len(arms) else 0.5
        return Constant(min(max(share, clip), 1 - clip))
    fitted = _clone(estimator).fit(rows, t.astype(np.int64))
    return Fitted(fitted, design, clip, 1 - clip, probability=True)


def _mean(
    estimator: Any, rows: Matrix, y: Vector, design: Design, bounds: tuple[float, float]
) -> Function:
    if not len(y):
        return Constant(0.5 * sum(bounds))
    return Fitted(_clone(estimator).fit(rows, y), design, *bounds)


def _clone(estimator: Any) -> Any:
    """An unfitted copy: the user's own object must not learn from the rows."""
    from sklearn.base import clone

    return clone(estimator, safe=False)
