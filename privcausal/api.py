"""The public calls: no arithmetic, only the order of the steps."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from threadpoolctl import threadpool_limits

from privcausal.accounting import BudgetExhaustedError
from privcausal.errors import BudgetError, CapabilityError
from privcausal.learners import Learner, find, for_average
from privcausal.learners.bases import AnyBase, find_base
from privcausal.learners.forecast import Planner
from privcausal.learners.needs import Undeclared, settle
from privcausal.results import AteResult, CateResult, PlanResult, Result
from privcausal.results.call import call_text, ledger_line
from privcausal.results.question import Question
from privcausal.results.refusal import with_plan
from privcausal.spec.assumed import assume
from privcausal.spec.formula import CausalFormula
from privcausal.spec.plan import Plan
from privcausal.spec.queries import Queries
from privcausal.spec.request import BelowMinimum, Budget, Mode, Request, Trust
from privcausal.spec.schema import Schema
from privcausal.typing import Frame, Neighbors, Split
from privcausal.vault import (
    Source,
    check_columns,
    check_types,
    inspect,
    open_vault,
    public_size,
    read,
)

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
    base: str | AnyBase = "gam",
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
    queries: Frame | None = None,
    shares: Mapping[str, float] | None = None,
    mode: Mode = "proven",
    below_minimum: BelowMinimum = "refuse",
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
        ``"r"``, ``"dr"``, ``"s"``, ``"t"``, ``"x"``, ``"dpcate"``, or e.g.
        ``learners.S(interactions=False)``.
    base : str or option object
        ``"gam"`` (smooth, empirical Bayes), ``"linear"`` (the formula's own columns), or
        ``"kernel"`` (``"dpcate"`` only, and its default).
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
    queries : data frame, optional
        ``"dpcate"`` only: public points at which alone the effect is released. Default: the whole
        function.
    shares : dict, optional
        How rho is divided among ``"bounds"``, ``"nuisance"``, ``"effect"``, ``"average"``.
    mode : {"proven", "paper"}
        "paper" runs ``learner="dpcate"`` (Schroeder et al. 2025) as printed, for comparison, with
        ``split="disjoint"``: with `queries` its Theorem 1, or Algorithm 1 for
        ``learners.DPCATE(noise="process")``; without them its Algorithm 2, which keeps secret
        state. What it promises is the paper's claim, which `guarantee.statement` tells where to
        doubt; a ledger takes it only if opened with ``allow_published=True``.
    below_minimum : {"refuse", "published"}
        "published": run the paper's mechanism on fewer rows than its claim needs.
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
    parsed = CausalFormula.parse(formula, source.header.names)
    request = Request(
        parsed,
        Schema.of(bounds),
        _budget(eps, delta, shares),
        Trust(neighbors, unit, max_rows),
        propensity=propensity,
        clip=propensity_clip,
        split=split,
        groups=_groups(groups),
        cov_type=cov_type,
        mode=mode,
        below_minimum=below_minimum,
        queries=None if queries is None else Queries.of(queries, parsed.effect_variables),
    )
    return _fit(find(learner), find_base(base), source, request, ledger, CateResult)


def private(
    formula: str,
    data: Frame,
    *,
    base: str | AnyBase = "gam",
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
    mode: Mode = "proven",
    below_minimum: BelowMinimum = "refuse",
    ledger: Ledger | None = None,
) -> AteResult:
    """The average treatment effect with a private confidence interval.

    Parameters are those of `privcate`; covariates of both parts of the formula are controls. A
    formula without covariates, ``"Y ~ T"`` or ``"Y ~ T | 1"``, gives the difference in means of a
    randomised trial, with Welch's (HC2) standard error and the noise. It needs no propensity, so
    a known number changes nothing; with a column of known ones, which differ between rows, the
    doubly robust score weighs by them.

    Parameters
    ----------
    mode : {"proven", "paper"}
        "paper" runs PrivATE (Schroeder et al. 2025) as printed, for comparison: the AIPW mean with
        the noise of its Theorems 4.3, 4.5 and 4.6. It takes ``base=pc.bases.Sklearn(...)``
        (``Sklearn.kernel()`` and ``Sklearn.network()`` are the paper's own), or a private base with
        ``split="disjoint"``, and ``shares={"effect": .5, "variance": .5}``. What it promises is the
        paper's claim, which `guarantee.statement` tells where to doubt; a ledger takes it only if
        opened with ``allow_published=True``.
    below_minimum : {"refuse", "published"}
        "published": run the paper's mechanism on fewer rows than its claim needs.

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
        mode=mode,
        below_minimum=below_minimum,
    )
    return _fit(for_average(request), find_base(base), source, request, ledger, AteResult)


def plan(
    formula: str,
    *,
    n: int | Sequence[int] | None = None,
    eps: float | Sequence[float] | None = None,
    width: float | None = None,
    bounds: Bounds = None,
    learner: str | Learner = "private",
    base: str | AnyBase = "gam",
    delta: float = 1e-5,
    neighbors: Neighbors = "substitute",
    unit: str | None = None,
    max_rows: int = 1,
    propensity: float | str | None = None,
    propensity_clip: float = 0.1,
    split: Split = "full",
    groups: Sequence[str] = (),
    shares: Mapping[str, float] | None = None,
    cov_type: Literal["nonrobust", "HC0"] = "nonrobust",
    outcome_sd: float | None = None,
    r2: float = 0.0,
    treated: float = 0.5,
    alpha: float = 0.05,
    power: float = 0.8,
) -> PlanResult:
    """How wide the interval of the average effect will be, before there are data.

    The fit is rehearsed on invented rows, so its stages, cuts, noise and allowances are those of
    the fit itself: the part of privacy is exact for the cut that the assumptions lead to. The part
    of sampling rests on `outcome_sd`, `r2` and `treated`. Nothing is read, charged or released.

    Parameters
    ----------
    formula : str
        As for `private` and `privcate`.
    n : int or sequence of int, optional
        Numbers of rows. Left out: found from `width` and `eps`.
    eps : float or sequence of float, optional
        Default 1; with `width` and `n`, it is what is looked for.
    width : float, optional
        The half-width wanted, in units of the outcome.
    bounds : dict or Schema, optional
        A column without bounds is taken to hold numbers, or labels where the formula has C(), and
        its bounds are bought as in a fit.
    learner : str or option object
        ``"private"`` plans `privcausal.private`, any other name `privcausal.privcate`.
    outcome_sd : float, optional
        Standard deviation of the outcome within an arm. Default: a quarter of its declared width
        (half of it for two labels); the worst case, half the width, is then shown too.
    r2 : float
        Share of that variance which the covariates explain alike in both arms. The default 0 is
        cautious.
    treated : float
        Share of rows treated, where the propensity is estimated.
    alpha, power : float
        Intervals are at level 1 - alpha; detectable effects are found with this power.

    Other parameters are those of the fit.

    Returns
    -------
    PlanResult

    Raises
    ------
    FormulaError, SchemaError, BudgetError, CapabilityError
        As the fit would on its arguments; or no eps or n reaches the width.
    """
    question = Question.of(n, eps, width, alpha, power)
    average = learner == "private"
    request = Request(
        CausalFormula.parse(formula),
        Schema.of(bounds),
        _budget(question.first_epsilon, delta, shares),
        Trust(neighbors, unit, max_rows),
        estimand="ATE" if average else "CATE",
        propensity=propensity,
        clip=propensity_clip,
        split=split,
        groups=_groups(groups),
        cov_type=cov_type,
    )
    planner = Planner.of(
        for_average(request) if average else find(learner, "private"),
        find_base(base),
        request,
        assume(request, outcome_sd, r2, treated),
    )
    worst = planner.worst() if outcome_sd is None else None
    return PlanResult(planner, question, question.points(planner), worst)


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
    base: AnyBase,
    source: Source,
    request: Request,
    ledger: Ledger | None,
    result: type[ResultT],
) -> ResultT:
    plan, schema, undeclared = _planned(learner, base, source, request)
    run = secrets.token_hex(8)
    try:
        vault = open_vault(source, plan, ledger, run)
    except BudgetExhaustedError as refused:
        # where units are protected, their number is public and that of the rows is not
        rows = public_size(source, request) if request.trust.unit is None else None

        def planner() -> Planner:
            return Planner(learner, base, request, schema, undeclared, assume(request))

        raise with_plan(refused, planner, request.budget.epsilon, rows) from None
    # the matrices are small: handing them to several BLAS threads takes five times as long
    with threadpool_limits(limits=1, user_api="blas"):
        estimate = learner.fit(plan, vault, schema, undeclared, base)
    return result(estimate, call_text(learner, base, request), ledger_line(ledger))


def _planned(
    learner: Learner, base: AnyBase, source: Source, request: Request
) -> tuple[Plan, Schema, Undeclared]:
    """Everything that can be checked without rows, in one place."""
    check_columns(source.header, request.columns)
    check_types(source.header, request)
    schema, undeclared = settle(request, source.header)
    return learner.plan(request, base, undeclared), schema, undeclared
