"""The record of a fit: what was asked, and the releases that answered. Both are public."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from privcausal.accounting import Release
from privcausal.errors import SchemaError
from privcausal.estimators.aggregates import CellRequest, from_exact, from_noisy
from privcausal.estimators.base import Learner
from privcausal.estimators.bases import AnyBase
from privcausal.estimators.budget import check_plan, resolve_domains
from privcausal.estimators.words import Estimate
from privcausal.request.plan import Plan
from privcausal.request.request import Request
from privcausal.request.schema import ColumnKind, Header
from privcausal.vault import CellTable, Vault

Fit = Callable[[Vault], Estimate]
"""A fit by the answers of a vault."""


@dataclass(frozen=True, eq=False)
class AskedOfRows:
    """What a fit of rows was asked.

    Attributes
    ----------
    kinds : mapping of str to str
        Public types of the columns that have no declared domain.
    integers : tuple of str
        Columns of an integer type.
    """

    request: Request
    learner: Learner
    base: AnyBase
    kinds: Mapping[str, ColumnKind]
    integers: tuple[str, ...]

    @classmethod
    def of(cls, request: Request, learner: Learner, base: AnyBase, header: Header) -> AskedOfRows:
        own = [name for name in request.columns if name in header.kinds]
        free = [n for n in own if n not in request.schema and n != request.trust.unit]
        integers = tuple(name for name in own if name in header.integers)
        return cls(request, learner, base, {n: header.kinds[n] for n in free}, integers)

    def planned(self) -> tuple[Plan, Fit]:
        """The plan, after all checks that need no rows, and the fit."""
        header = Header(self.kinds, integers=frozenset(self.integers))
        schema, undeclared = resolve_domains(self.request, header)
        plan = self.learner.plan(self.request, self.base, undeclared)
        check_plan(plan, schema, self.learner.accepted(self.base).functions)
        return plan, lambda vault: self.learner.fit(plan, vault, schema, undeclared, self.base)


@dataclass(frozen=True, eq=False)
class AskedOfCells:
    """What a fit of an aggregated table was asked.

    Attributes
    ----------
    rounding : float
        What the types of an exact table's sums add to their sensitivity.
    noise : dict, optional
        Noise of a table that its producer released.
    count, total : tuple of float
        The counts and sums of such a table; empty for an exact table, which is private.
    """

    asked: CellRequest
    rounding: float = 0.0
    noise: Mapping[str, float] | None = None
    count: tuple[float, ...] = ()
    total: tuple[float, ...] = ()

    @property
    def learner(self) -> Learner:
        return self.asked.learner

    @property
    def request(self) -> Request:
        return self.asked.request

    def planned(self) -> tuple[Plan, Fit]:
        """The plan, after all checks that need no rows, and the fit."""
        asked = self.asked
        schema, undeclared = resolve_domains(asked.request, asked.header)
        own = set(asked.parts) <= set(asked.request.formula.effect_variables)
        if undeclared or schema != asked.request.schema or not own or self.rounding < 0:
            raise SchemaError("An aggregated table needs declared domains of all its columns.")
        if self.noise is None:
            plan = asked.plan()
            return plan, lambda vault: from_exact(asked, plan, vault, self.rounding)
        count, total = (
            np.array(n).reshape(asked.partition.size, 2) for n in (self.count, self.total)
        )
        found = from_noisy(asked, CellTable(count, total, np.zeros((0, 2), np.int64)), self.noise)
        return found.plan, lambda _: found


@dataclass(frozen=True, eq=False)
class Record:
    """From this, a fit can be computed again without rows.

    Attributes
    ----------
    answers : mapping of str to tuple of Release
        The releases of each stage, one for each fold.
    silent : bool
        Whether the noise was zero, in a test.
    """

    asked: AskedOfRows | AskedOfCells
    answers: Mapping[str, tuple[Release, ...]]
    silent: bool = False
