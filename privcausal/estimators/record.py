"""The record of a fit: what was asked, and the releases that answered. Both are public."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from privcausal.accounting import Release
from privcausal.estimators.base import Learner
from privcausal.estimators.bases import AnyBase
from privcausal.estimators.budget import check_plan, resolve_domains
from privcausal.estimators.uplift import ADUM, CellRequest
from privcausal.estimators.words import Estimate
from privcausal.request.plan import Plan
from privcausal.request.request import Request
from privcausal.request.schema import ColumnKind, Header, Interval
from privcausal.vault import Vault


@dataclass(frozen=True, eq=False)
class RowRequest:
    """What a fit of rows was asked.

    `kinds` are the public types of the columns without a declared domain. `integers` are those of
    them, those that form cells, and those with bounds (0, 1), which have an integer type.
    """

    request: Request
    learner: Learner
    base: AnyBase
    kinds: Mapping[str, ColumnKind]
    integers: tuple[str, ...]

    @classmethod
    def of(cls, request: Request, learner: Learner, base: AnyBase, header: Header) -> RowRequest:
        own = [n for n in request.columns if n not in (*request.schema, request.trust.unit)]
        # Other types decide nothing, and a missing value may change the type of a column.
        formula = request.formula
        cells = formula.effect_variables if isinstance(learner, ADUM) else ()
        two = [n for n in formula.variables if request.schema.get(n) == Interval(0.0, 1.0)]
        integers = tuple(
            n
            for n in dict.fromkeys((*own, *cells, *two))
            if n in header.integers and n not in formula.coded
        )
        return cls(request, learner, base, {n: header.kinds[n] for n in own}, integers)

    def planned(self) -> tuple[Plan, Callable[[Vault], Estimate]]:
        """The plan, after all checks that need no rows, and the fit by the answers of a vault."""
        header = Header(self.kinds, integers=frozenset(self.integers))
        schema, undeclared = resolve_domains(self.request, header)
        plan = self.learner.plan(self.request, self.base, undeclared)
        check_plan(plan, schema, self.learner.accepted(self.base).functions)
        return plan, lambda vault: self.learner.fit(plan, vault, schema, undeclared, self.base)


@dataclass(frozen=True, eq=False)
class Record:
    """From this, a fit can be computed again without rows.

    `answers` holds the releases of each stage, one for each fold. `silent` is True if the noise was
    zero, in a test.
    """

    call: RowRequest | CellRequest
    answers: Mapping[str, tuple[Release, ...]]
    silent: bool = False
