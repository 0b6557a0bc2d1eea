"""Errors, grouped by the phase that raises them.

A message says what is wrong, where, and what to write instead. It never holds a value
taken from a row: messages are built from the call's own arguments, column names, data
types and released numbers only.
"""

from __future__ import annotations


class PrivcausalError(Exception):
    """Base of every error this package raises on purpose."""


class FormulaError(PrivcausalError, ValueError):
    """The formula cannot be read, or asks for something that is not row-local and public."""


class SchemaError(PrivcausalError, ValueError):
    """A declared domain (bounds, levels, coding) is wrong."""


class DataError(PrivcausalError, ValueError):
    """The data have the wrong shape, columns or types (never: the wrong values)."""


class BudgetError(PrivcausalError, ValueError):
    """The privacy budget is impossible, badly divided or not left."""


class LedgerError(PrivcausalError, RuntimeError):
    """The ledger cannot be trusted or used; nothing is released."""


class CapabilityError(PrivcausalError, NotImplementedError):
    """This learner, base or source cannot do what was asked, or has an unknown name."""


class PrivacyBreach(PrivcausalError, TypeError):
    """Code tried to look inside the vault (repr, iteration, pickling of private values)."""


class PrivcausalWarning(UserWarning):
    """A warning computed from public or released numbers only.

    Where a filter makes it an error, `fit` has the result, which was paid for.
    """

    fit: object = None
