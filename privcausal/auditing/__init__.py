"""Privacy audits: lower bounds on the privacy loss of a fit, on invented tables. No real rows."""

from privcausal.auditing.audits import (
    CASES,
    AuditResult,
    Line,
    audit,
    audit_all,
    audit_case,
    epsilon_bound,
    mu_bound,
    product_bound,
)

__all__ = [
    "CASES", "AuditResult", "Line", "audit", "audit_all", "audit_case", "epsilon_bound", "mu_bound",
    "product_bound",
]  # fmt: skip
