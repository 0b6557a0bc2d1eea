"""Public functions of a row's covariates: nuisances and effects made from released numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from privcausal.errors import DataError
from privcausal.features.basis import FeatureMap, combine
from privcausal.features.design import Design
from privcausal.features.products import Extra, Interactions, extras
from privcausal.features.rows import Features, Rows
from privcausal.stored import stored
from privcausal.typing import Vector


class Function(Protocol):
    """A map from covariates to a number; calling it gives shape (n,)."""

    def __call__(self, rows: Rows) -> Vector: ...


@stored
@dataclass(frozen=True)
class Constant:
    """The same number for every row."""

    value: float

    def __call__(self, rows: Rows) -> Vector:
        return np.full(len(rows), self.value)


@stored
@dataclass(frozen=True)
class Known:
    """A value that comes with the row (a trial's propensity), clipped to declared bounds."""

    lo: float
    hi: float

    def __call__(self, rows: Rows) -> Vector:
        if rows.propensity is None:
            raise DataError("this needs the column of known propensities in the new data")
        return np.minimum(np.maximum(rows.propensity, self.lo), self.hi)


@stored
@dataclass(frozen=True, eq=False)
class Additive:
    """offset + phi(x)' coef, clipped to [lo, hi]."""

    features: Features
    coef: Vector
    offset: float = 0.0
    lo: float = -np.inf
    hi: float = np.inf

    @cached_property
    def _sum(self) -> Callable[[Rows], Vector]:
        if isinstance(self.features, FeatureMap):
            return self.features.total(self.coef)
        if isinstance(self.features, Interactions):
            return self.features.total(np.zeros(self.features.features.size), self.coef)
        return lambda rows: combine(rows.phi(self.features), self.coef)

    def __call__(self, rows: Rows) -> Vector:
        return rows.scratch((self,), lambda: self._of(rows))

    def _of(self, rows: Rows) -> Vector:
        value = self.offset + rows.memo((self.features, self.coef), lambda: self._sum(rows))
        return np.clip(value, self.lo, self.hi, out=value)


@stored
@dataclass(frozen=True, eq=False)
class Extended:
    """A function plus psi(x)' coef, clipped to its [lo, hi] if it is additive."""

    base: Function
    features: Interactions
    coef: Vector

    @cached_property
    def _sum(self) -> Extra:
        own = self._own
        base = np.zeros(self.features.features.size) if own is None else own.coef
        return self.features.total(base, self.coef)

    @cached_property
    def _own(self) -> Additive | None:
        """The base, if it is additive in the features that the products are made of."""
        base = self.base
        own = type(base) is Additive and isinstance(base.features, FeatureMap)
        return base if own else None  # type: ignore[return-value]

    @cached_property
    def _uncut(self) -> Function:
        base = self.base
        return replace(base, lo=-np.inf, hi=np.inf) if isinstance(base, Additive) else base

    def __call__(self, rows: Rows) -> Vector:
        return rows.scratch((self,), lambda: self._of(rows))

    def _of(self, rows: Rows) -> Vector:
        start = self._uncut(rows) if self._own is None else self._own.offset
        value = start + rows.memo(self._key, lambda: self._sum(rows))
        if isinstance(self.base, Additive):
            np.clip(value, self.base.lo, self.base.hi, out=value)
        return value

    @property
    def _key(self) -> tuple[object, ...]:
        return None if self._own is None else self._own.coef, self.features, self.coef

    @staticmethod
    def together(rows: Rows, functions: Sequence[Function]) -> None:
        """Cache the sums of those with the same products, which are then computed once."""
        new = [f for f in functions if isinstance(f, Extended) and not rows.has(f._key)]
        if len(new) > 1 and all(f.features is new[0].features for f in new):
            for function, value in zip(new, extras(rows, [f._sum for f in new]), strict=True):
                rows.store(function._key, value)


@stored
@dataclass(frozen=True)
class ArmMean:
    """mu_t(x) = eta(x) + (t - e(x)) tau(x), clipped to the outcome's bounds [lo, hi].

    The mean of Y is eta = mu_0 + e tau (Nie and Wager 2021, Eq. 1), so this is exact where eta,
    e and tau are.
    """

    arm: float
    eta: Function
    e: Function
    tau: Function
    lo: float
    hi: float

    def __call__(self, rows: Rows) -> Vector:
        return rows.scratch((self,), lambda: self._of(rows))

    def _of(self, rows: Rows) -> Vector:
        Extended.together(rows, (self.e, self.eta))
        value = self.arm - self.e(rows)
        value *= self.tau(rows)
        value += self.eta(rows)
        return np.clip(value, self.lo, self.hi, out=value)


@stored
@dataclass(frozen=True)
class Mixture:
    """e(x) mu1(x) + (1 - e(x)) mu0(x): the mean outcome eta, or the X-learner's joined effect."""

    e: Function
    at_one: Function
    at_zero: Function

    def __call__(self, rows: Rows) -> Vector:
        e = self.e(rows)
        return e * self.at_one(rows) + (1.0 - e) * self.at_zero(rows)


@dataclass(frozen=True, eq=False)
class LinearFunction:
    """offset + z'coef, z the scaled columns of a design; |.| <= |offset| + sum |coef|."""

    design: Design
    coef: Vector
    offset: float

    @property
    def bound(self) -> float:
        return abs(self.offset) + float(np.abs(self.coef).sum())

    def __call__(self, rows: Rows) -> Vector:
        scaled = rows.scaled(self.design)
        finite = scaled if self.design.plain else np.nan_to_num(scaled)
        return self.offset + combine(finite, self.coef)


@dataclass(frozen=True)
class Capped:
    """The smaller of a function and a number."""

    base: Function
    hi: float

    def __call__(self, rows: Rows) -> Vector:
        return np.minimum(self.base(rows), self.hi)


@stored
@dataclass(frozen=True)
class Difference:
    """first(x) - second(x)."""

    first: Function
    second: Function

    def __call__(self, rows: Rows) -> Vector:
        return self.first(rows) - self.second(rows)


@dataclass(frozen=True)
class Nuisance:
    """e(x) = P(T = 1 | x) and the arm means mu_0(x), mu_1(x)."""

    e: Function
    mu0: Function
    mu1: Function
