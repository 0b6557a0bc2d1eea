"""privcausal: causal inference under differential privacy, by one formula call.

>>> import privcausal as pc
>>> study = pc.datasets.clinic(2000)
>>> fit = pc.privcate(study.formula, study.frame, learner="dr", eps=1, bounds=study.bounds)
>>> print(fit.summary())
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "api": (
        "check_data", "declare_labels", "did", "from_cells", "logit", "plan", "poisson", "private",
        "privcate", "regress",
    ),
    "results": (
        "AteResult", "CateResult", "EventStudyResult", "GeneralizedResult", "PlanResult",
        "RegressionResult", "compare", "load",
    ),
    "auditing": ("AuditResult", "audit"),
    "accounting": ("Ledger", "TradeOff"),
    "request.request": ("Control",),
    "request.schema": ("Binary", "Interval", "Levels", "Schema"),
    "errors": (
        "BudgetError", "CapabilityError", "DataError", "FormulaError", "LedgerError",
        "PrivacyBreach", "PrivcausalError", "PrivcausalWarning", "SchemaError",
    ),
}  # fmt: skip
"""Public names by their module, which is imported when one is first used."""

_HOMES = {name: f"privcausal.{module}" for module, names in _PUBLIC.items() for name in names}
_MODULES = {
    name: f"privcausal.{name}" for name in ("datasets", "errors", "learners", "paper", "testing")
} | {"bases": "privcausal.estimators.bases"}

__all__ = [*sorted(_HOMES | _MODULES), "__version__"]  # noqa: PLE0604  # text only

if TYPE_CHECKING:
    from privcausal import datasets as datasets
    from privcausal import errors as errors
    from privcausal import learners as learners
    from privcausal import paper as paper
    from privcausal import testing as testing
    from privcausal.accounting import Ledger as Ledger
    from privcausal.accounting import TradeOff as TradeOff
    from privcausal.api import check_data as check_data
    from privcausal.api import declare_labels as declare_labels
    from privcausal.api import did as did
    from privcausal.api import from_cells as from_cells
    from privcausal.api import logit as logit
    from privcausal.api import plan as plan
    from privcausal.api import poisson as poisson
    from privcausal.api import private as private
    from privcausal.api import privcate as privcate
    from privcausal.api import regress as regress
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
    from privcausal.estimators import bases as bases
    from privcausal.request.request import Control as Control
    from privcausal.request.schema import Binary as Binary
    from privcausal.request.schema import Interval as Interval
    from privcausal.request.schema import Levels as Levels
    from privcausal.request.schema import Schema as Schema
    from privcausal.results import AteResult as AteResult
    from privcausal.results import CateResult as CateResult
    from privcausal.results import EventStudyResult as EventStudyResult
    from privcausal.results import GeneralizedResult as GeneralizedResult
    from privcausal.results import PlanResult as PlanResult
    from privcausal.results import RegressionResult as RegressionResult
    from privcausal.results import load as load
    from privcausal.results.comparison import compare as compare


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = importlib.import_module(_MODULES[name])
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'privcausal' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
