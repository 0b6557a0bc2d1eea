"""The public calls: no arithmetic, only the order of the steps."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from threadpoolctl import threadpool_limits

from privcausal.errors import BudgetError, CapabilityError
from privcausal.learners import Learner, Private, find
from privcausal.learners.bases import Base, find_base
from privcausal.learners.needs import Undeclared, settle
from privcausal.results import AteResult, CateResult, Result
from privcausal.results.call import call_text, ledger_line
from privcausal.spec.formula import CausalFormula
from privcausal.spec.plan import Plan
from privcausal.spec.request import Budget, Request, Trust
from privcausal.spec.schema import Schema
from privcausal.typing import Frame, Neighbors, Split
from privcausal.vault import Source, check_columns, check_types, inspect, open_vault, read

if TYPE_CHECKING:
    from privcausal.accounting import Ledger
    from privcausal.vault import Findings

Bounds = Mapping[str, Any] | Schema | None
ResultT = TypeVar("ResultT", bound=Result)


def privcate(
    formula: str,
    data: Frame,
    *,
    learner: str | Learner = "r",
    base: str | Base = "gam",
    eps: float = 1.0,
    delta: float = 1e-5,
    bounds: Bounds = None,
    neighbors: Neighbors = "substitute",
    unit: str | None = None,
    max_rows: int = 1,
    propensity: float | str | None = None,
    propensity_clip: float = 0.1,
    split: Split = "full",
    groups: Sequence[str] = (),
    shares: Mapping[str, float] | None = None,
    cov_type: Literal["nonrobust", "HC0"] = "nonrobust",
    ledger: Ledger | None = None,
) -> CateResult:
    """Conditional average treatment effects under (eps, delta)-differential privacy.

    Parameters
    ----------
    formula : str
        ``"outcome ~ treatment | effect modifiers | extra controls"``; modifiers also control.
    data : data frame
        pandas, polars, pyarrow, or a dict of arrays. Rows stay in the vault.
    learner : str or option object
        ``"r"``, ``"dr"``, ``"s"``, ``"t"``, ``"x"``, or e.g. ``learners.S(interactions=False)``.
    base : str or option object
        ``"gam"`` (smooth, empirical Bayes) or ``"linear"`` (the formula's own columns).
    eps, delta : float
        The privacy price of everything in the result together.
    bounds : dict or Schema, optional
        Public domains: ``{"age": (18, 95), "ward": ["A", "B"]}``. What is missing is bought
        privately and shows in the budget.
    neighbors : {"substitute", "add_remove"}
        Which tables must look alike: one unit's data replaced (the number of rows is public), or
        one unit's data added or removed.
    unit, max_rows : str, int
        Protect all rows of a unit, of which at most `max_rows` are used.
    propensity : float or str, optional
        Known treatment probability (a trial): a number, or a column with declared bounds.
    propensity_clip : float
        Estimated propensities are cut to [clip, 1 - clip].
    split : {"full", "disjoint", "crossfit"}
    groups : sequence of str
        Subgroups whose average effects are wanted: columns with levels, or ``"age >= 65"``.
    shares : dict, optional
        How rho is divided among ``"bounds"``, ``"nuisance"``, ``"effect"``, ``"average"``.
    cov_type : {"nonrobust", "HC0"}
        Covariance of the best linear projection; HC0 releases its meat.
    ledger : Ledger, optional
        Charged before any row is read; refuses what it has not left.

    Returns
    -------
    CateResult

    Raises
    ------
    FormulaError, SchemaError, DataError, BudgetError, LedgerError, CapabilityError
        Before anything is spent, unless the message says otherwise.
    """
    source = read(data)
    request = Request(
        CausalFormula.parse(formula, source.header.names),
        Schema.of(bounds),
        _budget(eps, delta, shares),
        Trust(neighbors, unit, max_rows),
        propensity=propensity,
        clip=propensity_clip,
        split=split,
        groups=_groups(groups),
        cov_type=cov_type,
    )
    return _fit(find(learner), find_base(base), source, request, ledger, CateResult)


def private(
    formula: str,
    data: Frame,
    *,
    base: str | Base = "gam",
    eps: float = 1.0,
    delta: float = 1e-5,
    bounds: Bounds = None,
    neighbors: Neighbors = "substitute",
    unit: str | None = None,
    max_rows: int = 1,
    propensity: float | str | None = None,
    propensity_clip: float = 0.1,
    split: Split = "full",
    groups: Sequence[str] = (),
    shares: Mapping[str, float] | None = None,
    ledger: Ledger | None = None,
) -> AteResult:
    """The average treatment effect with a private confidence interval.

    Parameters are those of `privcate`; covariates of both parts of the formula are controls.

    Returns
    -------
    AteResult
    """
    source = read(data)
    request = Request(
        CausalFormula.parse(formula, source.header.names),
        Schema.of(bounds),
        _budget(eps, delta, shares),
        Trust(neighbors, unit, max_rows),
        estimand="ATE",
        propensity=propensity,
        clip=propensity_clip,
        split=split,
        groups=_groups(groups),
    )
    return _fit(Private(), find_base(base), source, request, ledger, AteResult)


def check_data(data: Frame, schema: Bounds) -> Findings:
    """For the person who holds the data: what will be clipped, missing or undeclared, row by row.

    This is the curator channel. It is exact and costs no budget, so it must not be published; its
    output says so.
    """
    return inspect(read(data), Schema.of(schema))


def _budget(eps: float, delta: float, shares: Mapping[str, float] | None) -> Budget:
    if shares is not None and not isinstance(shares, Mapping):
        raise BudgetError("shares is a dict such as {'nuisance': 0.4, 'effect': 0.6}")
    return Budget(eps, delta, dict(shares or {}))


def _groups(groups: Sequence[str]) -> tuple[str, ...]:
    if isinstance(groups, str):
        return (groups,)
    if not isinstance(groups, Sequence):
        raise CapabilityError("groups is a list of column names or comparisons")
    return tuple(groups)


def _fit(
    learner: Learner,
    base: Base,
    source: Source,
    request: Request,
    ledger: Ledger | None,
    result: type[ResultT],
) -> ResultT:
    plan, schema, undeclared = _planned(learner, base, source, request)
    run = secrets.token_hex(8)
    vault = open_vault(source, plan, ledger, run)
    # the matrices are small: handing them to several BLAS threads takes five times as long
    with threadpool_limits(limits=1, user_api="blas"):
        estimate = learner.fit(plan, vault, schema, undeclared, base)
    return result(estimate, call_text(learner, base, request), ledger_line(ledger))


def _planned(
    learner: Learner, base: Base, source: Source, request: Request
) -> tuple[Plan, Schema, Undeclared]:
    """Everything that can be checked without rows, in one place."""
    check_columns(source.header, request.columns)
    check_types(source.header, request)
    schema, undeclared = settle(request, source.header)
    return learner.plan(request, base, undeclared), schema, undeclared
