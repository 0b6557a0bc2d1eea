"""privcausal: causal inference under differential privacy, by one formula call.

>>> import privcausal as pc
>>> fit = pc.privcate("Y ~ T | X1 + X2", data, learner="dr", eps=1)
>>> print(fit.summary())
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# public name -> (module, attribute or None for the module itself); imported when first used
_PUBLIC: dict[str, tuple[str, str | None]] = {
    "privcate": ("privcausal.api", "privcate"),
    "private": ("privcausal.api", "private"),
    "plan": ("privcausal.api", "plan"),
    "from_cells": ("privcausal.api", "from_cells"),
    "check_data": ("privcausal.api", "check_data"),
    "compare": ("privcausal.results", "compare"),
    "audit": ("privcausal.auditing", "audit"),
    "AuditResult": ("privcausal.auditing", "AuditResult"),
    "load": ("privcausal.results", "load"),
    "Ledger": ("privcausal.accounting", "Ledger"),
    "TradeOff": ("privcausal.accounting", "TradeOff"),
    "Schema": ("privcausal.spec.schema", "Schema"),
    "Interval": ("privcausal.spec.schema", "Interval"),
    "Levels": ("privcausal.spec.schema", "Levels"),
    "Binary": ("privcausal.spec.schema", "Binary"),
    "AteResult": ("privcausal.results", "AteResult"),
    "PlanResult": ("privcausal.results", "PlanResult"),
    "CateResult": ("privcausal.results", "CateResult"),
    "learners": ("privcausal.learners", None),
    "bases": ("privcausal.learners.bases", None),
    "datasets": ("privcausal.datasets", None),
    "errors": ("privcausal.errors", None),
    "testing": ("privcausal.testing", None),
}
_ERRORS = (
    "BudgetError", "CapabilityError", "DataError", "FormulaError", "LedgerError",
    "PrivacyBreach", "PrivcausalError", "PrivcausalWarning", "SchemaError",
)  # fmt: skip
_PUBLIC |= {name: ("privcausal.errors", name) for name in _ERRORS}

__all__ = [*sorted(_PUBLIC), "__version__"]  # noqa: PLE0604  # the table above holds text only

if TYPE_CHECKING:
    from privcausal import datasets as datasets
    from privcausal import errors as errors
    from privcausal import learners as learners
    from privcausal import testing as testing
    from privcausal.accounting import Ledger as Ledger
    from privcausal.accounting import TradeOff as TradeOff
    from privcausal.api import check_data as check_data
    from privcausal.api import from_cells as from_cells
    from privcausal.api import plan as plan
    from privcausal.api import private as private
    from privcausal.api import privcate as privcate
    from privcausal.auditing import AuditResult as AuditResult
    from privcausal.auditing import audit as audit
    from privcausal.errors import BudgetError as BudgetError
    from privcausal.errors import CapabilityError as CapabilityError
    from privcausal.errors import DataError as DataError
    from privcausal.errors import FormulaError as FormulaError
    from privcausal.errors import LedgerError as LedgerError
    from privcausal.errors import PrivacyBreach as PrivacyBreach
    from privcausal.errors import PrivcausalError as PrivcausalError
    from privcausal.errors import PrivcausalWarning as PrivcausalWarning
    from privcausal.errors import SchemaError as SchemaError
    from privcausal.learners import bases as bases
    from privcausal.results import AteResult as AteResult
    from privcausal.results import CateResult as CateResult
    from privcausal.results import PlanResult as PlanResult
    from privcausal.results import compare as compare
    from privcausal.results import load as load
    from privcausal.spec.schema import Binary as Binary
    from privcausal.spec.schema import Interval as Interval
    from privcausal.spec.schema import Levels as Levels
    from privcausal.spec.schema import Schema as Schema


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'privcausal' has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    found = importlib.import_module(module)
    value = found if attribute is None else getattr(found, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
