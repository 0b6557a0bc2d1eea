"""The public calls: no arithmetic, only the order of the steps."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from privcausal import accounting, estimators, results
from privcausal.errors import CapabilityError, named
from privcausal.estimators import aggregates
from privcausal.estimators.bases import AnyBase
from privcausal.estimators.planner import Planner
from privcausal.features.rows import declare_queries
from privcausal.request.formula import CausalFormula
from privcausal.request.plan import Plan, assume
from privcausal.request.request import Control, Trust, estimands_of, panel_of
from privcausal.request.schema import Binary, Schema, with_levels
from privcausal.results.base import cells_call
from privcausal.results.guarantee import ledger_line
from privcausal.results.plan import Question
from privcausal.run import (
    DEFAULT,
    Bounds,
    groups_of,
    parse,
    request_of,
    run,
    strict,
    warn_each,
    warn_of_weak,
    with_warnings,
)
from privcausal.typing import Average, Frame, Neighbors, Ratio
from privcausal.vault import file_labels, from_table, open_source, open_vault, paid, typed
from privcausal.vault import inspect as look_at_rows

if TYPE_CHECKING:
    from privcausal.vault import Findings


@strict
def privcate(
    formula: str,
    data: Frame,
    *,
    learner: str | estimators.Learner = "r",
    base: str | AnyBase = "gam",
    eps: float = 1.0,
    delta: float = 1e-5,
    bounds: Bounds = None,
    neighbors: Neighbors = "substitute",
    unit: str | None = None,
    max_rows: int = 1,
    propensity: float | str | None = None,
    groups: Sequence[str] = (),
    control: Control = DEFAULT,
    ledger: accounting.Ledger | None = None,
    progress: bool = False,
) -> results.CateResult:
    """Conditional average treatment effects under (eps, delta)-differential privacy.

    Parameters
    ----------
    formula : str
        ``"outcome ~ treatment | effect modifiers | extra controls"``; modifiers also control.
    data : data frame
        pandas, polars, pyarrow, or a dict of arrays; the path of a Stata, SPSS or R file (.dta,
        .sav, .rds; see `declare_labels`); or the path of a Parquet or CSV file, of a
        folder or a pattern of them, a DuckDB relation, or a polars LazyFrame, whose rows are
        streamed and never held in memory together; or a Spark DataFrame, whose rows stay on its
        executors. Rows stay in the vault.
    learner : str or option object
        ``"r"``, ``"dr"``, ``"s"``, ``"t"``, ``"x"``, ``"dpcate"``; for trials ``"adum"`` and
        ``"tm"``, in pure epsilon; or e.g. ``learners.S(interactions=False)``, and
        ``learners.DPCATE(queries=points)`` for the effect at public points alone.
    base : str or option object
        ``"gam"`` (smooth, empirical Bayes), ``"linear"`` (the formula's own columns), ``"dpebm"``
        (private explainable boosting, ``bases.DPEBM(rounds=300, smooth=True)``); for ``"dpcate"``
        ``"kernel"`` (its default) or ``"nn"``.
    eps, delta : float
        The privacy price of everything in the result together.
    bounds : dict or Schema, optional
        Public domains: ``{"age": (18, 95), "ward": ["A", "B"]}``. What is missing is bought
        privately and shows in the budget.
    neighbors : {"substitute", "add_remove"}
        Which tables must look alike: one unit's data replaced (the number of rows is public), or
        one unit's data added or removed.
    unit, max_rows : str, int
        Protect all rows of a unit, of which at most `max_rows` are used. A unit's rows may be
        alike in any way, so sampling variances of averages, slopes, groups and cells are `max_rows`
        times what independent rows would have; the allowance for nuisances, and bands of the
        effect's shape, take rows to be independent.
    propensity : float or str, optional
        Known treatment probability (a trial): a number, or a column with declared bounds.
    groups : sequence of str
        Subgroups whose average effects are wanted: columns with levels, or ``"age >= 65"``. Where
        those of a column partition the rows, groups and average are made to agree.
    control : Control
        Details: sample splitting, the clip of propensities, shares of the budget, tails, and the
        covariance of the best linear projection. See `Control`.
    ledger : Ledger, optional
        Charged before any row is read; refuses what it has not left.
    progress : bool
        Whether a bar on stderr (in a notebook, below the cell) follows the stages.

    Returns
    -------
    CateResult

    Raises
    ------
    FormulaError, SchemaError, DataError, BudgetError, LedgerError, CapabilityError
        Before anything is spent, unless the message says otherwise.

    Examples
    --------
    >>> study = pc.datasets.clinic()
    >>> fit = pc.privcate(study.formula, study.frame, eps=1, bounds=study.bounds)
    >>> print(fit.summary())
    """
    with open_source(data) as source:
        parsed = parse(formula, source)
        asked, chosen = estimators.for_effect(learner), estimators.base_of(base)
        points = getattr(asked, "queries", None)
        request = request_of(
            parsed, bounds, eps, delta, Trust(neighbors, unit, max_rows), control,
            propensity=propensity,
            groups=groups_of(groups),
            queries=None if points is None else declare_queries(points, parsed.effect_variables),
        )  # fmt: skip
        return run(asked, chosen, source, request, ledger, results.CateResult, progress)


@strict
def private(
    formula: str,
    data: Frame,
    *,
    base: str | AnyBase = "gam",
    estimand: Average | Ratio | Sequence[Average | Ratio] = "ATE",
    eps: float = 1.0,
    delta: float = 1e-5,
    bounds: Bounds = None,
    neighbors: Neighbors = "substitute",
    unit: str | None = None,
    max_rows: int = 1,
    propensity: float | str | None = None,
    groups: Sequence[str] = (),
    control: Control = DEFAULT,
    ledger: accounting.Ledger | None = None,
    progress: bool = False,
) -> results.AteResult:
    """An average treatment effect with a private confidence interval.

    Parameters
    ----------
    formula : str
        ``"outcome ~ treatment | covariates"``; covariates of a further part are controls as well. A
        formula without covariates, ``"Y ~ T"`` or ``"Y ~ T | 1"``, gives the difference in means of
        a randomised trial, with Welch's (HC2) standard error and the noise.
    base : str or option object
        What nuisances are learned by: ``"gam"`` or ``"linear"``.
    estimand : {"ATE", "ATT", "ATO", "PLR", "LATE", "RR", "OR"} or sequence of these
        Several are released together, at the charge of one, with their joint covariance; the first
        average is the headline. ``"RR"`` and ``"OR"``, of an outcome of two values or declared as
        0 and 1, are the ratios of E[Y(1)] and E[Y(0)], and of their odds; with them come both means
        and the ATE. Averages of the effect are over everyone; over the treated; or by overlap
        weights e(x) (1 - e(x)) (Li, Morgan and Zaslavsky 2018), which is over those who might as
        well have been treated as not. Prefer the ATO where overlap is poor: nothing is divided by
        the propensity, so its score has the smallest range, and hardly any propensity is cut; with
        good overlap widths are alike. It answers for a population that the treatment itself
        defines. The three coincide where the effect is the same for all, or the
        propensity is: without covariates each is the difference in means. ``"PLR"``, alone, is the
        slope of the partially linear model Y = theta T + g(X) + u (Robinson 1988): of two arms the
        ATO; per unit of a treatment with declared bounds; or of each declared arm but the first.
        Several declared arms, ``bounds={"T": ["none", "low", "high"]}``, also have an ATE, alone:
        each arm's effect against the first, and all mean outcomes, in all rows and in groups.
        ``"LATE"``, alone, is the effect by the instrument Z of ``"Y ~ T | X | T ~ Z"``: two-stage
        least squares, with limits of Anderson and Rubin (1949), infinite where the first stage may
        be zero. Treatment and instrument are 0/1, of two labels, or have declared bounds.
    propensity : float or str, optional
        Known treatment probability (a trial), or the instrument's: a number, or a column with
        declared bounds. The difference in means needs none, so a number changes nothing there; with
        a column the doubly robust score weighs by it.
    data, eps, delta, bounds, neighbors, unit, max_rows, groups, control, ledger, progress
        As for `privcate`, which raises the same errors.

    Returns
    -------
    AteResult
    """
    first, more = estimands_of(estimand)
    with open_source(data) as source:
        request = request_of(
            parse(formula, source), bounds, eps, delta, Trust(neighbors, unit, max_rows), control,
            estimand=first,
            more=more,
            propensity=propensity,
            groups=groups_of(groups),
        )  # fmt: skip
        asked, chosen = estimators.for_average(request), estimators.base_of(base, ("gam", "linear"))
        return run(asked, chosen, source, request, ledger, results.AteResult, progress)


@strict
def did(
    formula: str,
    data: Frame,
    *,
    unit: str,
    time: str,
    periods: Sequence[Any] | None = None,
    base: str | AnyBase = "gam",
    eps: float = 1.0,
    delta: float = 1e-5,
    bounds: Bounds = None,
    neighbors: Neighbors = "substitute",
    groups: Sequence[str] = (),
    control: Control = DEFAULT,
    ledger: accounting.Ledger | None = None,
    progress: bool = False,
) -> results.AteResult:
    """Differences in differences of two periods: the average effect on the treated.

    A unit's change of outcome is one row, made in the vault, so all rows of a unit are protected.
    Without covariates it is the difference of the arms' mean changes, with covariates the doubly
    robust estimator for panels of Sant'Anna and Zhao (2020): the ATT of `private` on changes.

    Parameters
    ----------
    formula : str
        ``"outcome ~ treatment | covariates"``; the treatment is that of a row's period, and must be
        0 before: a unit that has it then counts as missing. Of a column `treated` that is 1 in both
        periods, write the product ``df["T"] = df["treated"] * df["post"]``. Covariates and groups
        are those of the row before.
    data : data frame
        As for `private`. A unit counts if it has one row of each of both periods, with nothing
        missing; rows of other periods are ignored, and no order matters.
    unit, time : str
        The columns of units and of periods.
    periods : (before, after), optional
        Left out: the two levels that `bounds` declares for the column of periods.
    bounds : dict or Schema
        As for `private`. Those of the outcome, (lo, hi), have to be declared: they bound its change
        by (lo - hi, hi - lo).

    Other parameters are those of `private`, as are results and errors. It is planned as that is:
    ``plan("Y ~ T | X", n=units, unit="id", estimand="ATT", bounds={"Y": (lo - hi, hi - lo)})``.
    """
    with open_source(data) as source:
        parsed, header = parse(formula, source), source.header
        schema = with_levels(Schema.of(bounds), parsed.levels)
        schema, panel = panel_of(parsed, schema, header.kinds, unit, time, periods, groups)
        request = request_of(
            parsed, schema, eps, delta, Trust(neighbors, unit, panel=panel), control,
            estimand="ATT",
            groups=groups_of(groups),
        )  # fmt: skip
        asked, chosen = estimators.for_average(request), estimators.base_of(base, ("gam", "linear"))
        return run(asked, chosen, source, request, ledger, results.AteResult, progress)


@strict
def regress(
    formula: str,
    data: Frame,
    *,
    weights: str | None = None,
    eps: float = 1.0,
    delta: float = 1e-5,
    bounds: Bounds = None,
    neighbors: Neighbors = "substitute",
    unit: str | None = None,
    max_rows: int = 1,
    control: Control = DEFAULT,
    ledger: accounting.Ledger | None = None,
    progress: bool = False,
) -> results.RegressionResult:
    """A linear regression with private coefficients, standard errors and intervals.

    Parameters
    ----------
    formula : str
        ``"Y ~ X1 + C(g)"``, with an intercept; terms as for `privcate`. ``"Y ~ 1"`` is a mean.
    weights : str, optional
        A column of survey weights with declared bounds that are not negative: weighted least
        squares. Take ``cov_type="HC0"`` then, unless a residual's variance falls as 1 / weight.
    control : Control
        `cov_type`, ``"nonrobust"`` or ``"HC0"``; shares of the budget; tails.
    data, eps, delta, bounds, neighbors, unit, max_rows, ledger, progress
        As for `privcate`, which raises the same errors.

    Returns
    -------
    RegressionResult
        Without noise it is least squares, as in statsmodels: no coefficient is shrunken. Rows
        whose columns lie far from all others, which noise hides, count for less.
    """
    with open_source(data) as source:
        request = request_of(
            parse(formula, source, regression=True), bounds, eps, delta,
            Trust(neighbors, unit, max_rows), control,
            estimand="OLS",
            weights=weights,
        )  # fmt: skip
        asked, chosen = estimators.for_average(request), estimators.base_of("linear")
        return run(asked, chosen, source, request, ledger, results.RegressionResult, progress)


@strict
def plan(
    formula: str,
    *,
    n: int | Sequence[int] | None = None,
    eps: float | Sequence[float] | None = None,
    width: float | None = None,
    bounds: Bounds = None,
    learner: str | estimators.Learner = "private",
    estimand: Average | Ratio | Sequence[Average | Ratio] = "ATE",
    base: str | AnyBase = "gam",
    delta: float = 1e-5,
    neighbors: Neighbors = "substitute",
    unit: str | None = None,
    max_rows: int = 1,
    propensity: float | str | None = None,
    groups: Sequence[str] = (),
    control: Control = DEFAULT,
    outcome_sd: float | None = None,
    r2: float = 0.0,
    treated: float = 0.5,
    alpha: float = 0.05,
    power: float = 0.8,
) -> results.PlanResult:
    """How wide the interval of the average effect will be, before there are data.

    The fit is simulated on invented rows, so its stages, cuts, noise and allowances are those of
    the fit itself: the part of privacy is exact for the cut that the assumptions lead to. The part
    of sampling rests on `outcome_sd`, `r2` and `treated`. Nothing is read, charged or released.

    A fit divides its noise by the released mass of its scores, one for each row where its
    propensity is right. That is what is planned, but it depends on the rows: on base ``"dpebm"``,
    whose rounds do not come all the way, a treatment that depends strongly on correlated covariates
    leaves some 3 % less, and the part of privacy as much wider.

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
        ``"private"`` plans `privcausal.private`, ``"regress"`` the first slope of
        `privcausal.regress`, any other name `privcausal.privcate`.
    estimand : {"ATE", "ATT", "ATO", "PLR", "LATE", "RR", "OR"} or sequence of these
        As for `private`, and the widths are those of the first; `privcate` has the ATE only.
    outcome_sd : float, optional
        Standard deviation of the outcome within an arm. Default: a quarter of its declared width,
        or half of it for two labels and for bounds (0, 1), as of an outcome that is 0 or 1; the
        worst case, half the width, is then shown too.
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
    average, regression = learner == "private", learner == "regress"
    if not average and estimand != "ATE":
        raise CapabilityError("estimand= belongs to learner='private'; `privcate` has the ATE only")
    first, more = estimands_of(estimand)
    read = CausalFormula.regression if regression else CausalFormula.parse
    request = request_of(
        read(formula), bounds, question.first_epsilon, delta,
        Trust(neighbors, unit, max_rows), control,
        estimand=first if average else "OLS" if regression else "CATE",
        more=more,
        propensity=propensity,
        groups=groups_of(groups),
    )  # fmt: skip
    request.schema.refuse_misspelt(request.columns, request.columns, request.columns)
    planner = Planner.of(
        estimators.for_average(request)
        if average or regression
        else estimators.find(learner, "private", "regress"),
        estimators.base_of(base),
        request,
        assume(request, outcome_sd, r2, treated),
    )
    worst = planner.worst() if outcome_sd is None else None
    found = results.PlanResult(planner, question, question.points(planner), worst)
    warn_each(found.weak)
    return found


@named
def from_cells(
    frame: Frame,
    cells: Sequence[Any] | Plan,
    *,
    outcome: Any = (0, 1),
    eps: float | None = None,
    delta: float | None = None,
    noise: Mapping[str, float] | None = None,
    learner: estimators.ADUM | None = None,
    neighbors: Neighbors = "substitute",
    propensity: float | None = None,
    ledger: accounting.Ledger | None = None,
) -> results.CateResult:
    """Effects by cell from a table that is aggregated already: uplift without the rows.

    Parameters
    ----------
    frame : data frame
        The columns cell, arm, count and sum (of outcomes cut to their bounds), a line per cell and
        arm; or steps in place of sum, as ``fit.plan.sql()`` gives them. At most 2^31 rows a line.
    cells : sequence of labels, or Plan
        The declared cells; one that is absent from the frame has no rows, and still gets noise. Or
        the plan of a fit by cells, whose SQL made the table.
    outcome : (lo, hi) or two labels
        The outcome's bounds, with labels those of a 0/1 outcome. Not used with a plan.
    eps, delta : float
        What the noise costs, 1 and 1e-5 unless given. For a table with noise, what its maker says
        that it promises: `eps` must then be given, and `delta` is 0 otherwise.
    noise : dict, optional
        ``{"count": sd, "sum": sd}``: the table holds noise of these standard deviations already.
        Then nothing is added and nothing is charged. None: the table is exact and private.
    learner : option object, optional
        ``pc.learners.ADUM(...)`` without cells and partition.
    propensity : float, optional
        A trial's known share of treated rows.
    ledger : Ledger, optional
        For an exact table.

    Returns
    -------
    CateResult
        One row is one person in the guarantee. Sums are taken to be exact, and floats to have been
        rounded once: what that adds to what one row moves them by is paid for, and where it would
        be much they are refused. The last digits of a warehouse's sum of floats may depend on the
        order of its rows; those of `steps`, of integers and of decimals do not.

    Raises
    ------
    DataError, SchemaError, BudgetError, LedgerError, CapabilityError
        Nothing was spent.
    """
    budget = aggregates.cell_budget(eps, delta, noise)
    asked = aggregates.cell_request(
        cells, outcome, learner or estimators.ADUM(), budget, neighbors, propensity
    )
    table = asked.read(frame, noisy=noise is not None)
    if noise is not None:
        if ledger is not None:
            raise CapabilityError("a table with noise costs nothing more: leave ledger= out")
        warn_each(accounting.weak_promise(budget.epsilon, budget.delta, None))
        estimate = aggregates.from_noisy(asked, table, noise)
        return with_warnings(results.CateResult(estimate, cells_call(asked, noise)))
    plan = asked.plan()
    warn_of_weak(plan, None)
    vault = open_vault(
        from_table(table, asked.header), plan, ledger, accounting.run_name("from_cells")
    )
    estimate = paid(aggregates.from_exact)(asked, plan, vault, table.rounding)
    return with_warnings(results.CateResult(estimate, cells_call(asked, None), ledger_line(ledger)))


@named
def declare_labels(
    path: str | os.PathLike[str], columns: str | Sequence[str], bounds: Bounds = None
) -> Schema:
    """A schema with the labels of these columns of a Stata, SPSS or R file as their levels.

    Calling this is a declaration: **the labels of these columns become public.** Nothing can tell
    whether they say something of the rows. Those of a codebook do not; those that a program made of
    the labels it saw do, as R's ``factor()``, Stata's ``encode`` and categories of pandas. So no
    label of a file counts unless it is declared, here or by hand. In Stata and SPSS files the rows
    are not looked at.

    Parameters
    ----------
    path : str or path
        A file whose name ends in .dta, .sav or .rds; needs the extra ``privcausal[files]``.
    columns : str or sequence of str
        Columns with value labels, or R's factors. A fit with this schema reads the labels in place
        of the codes. Columns of which only missing values or exceptions are labelled are numbers:
        declare bounds for these.
    bounds : dict or Schema, optional
        Domains of other columns.

    Returns
    -------
    Schema
        Levels in the order of their codes, the first the reference; without codes that the file
        calls missing, which are missing in every fit. Codes with one text are one level.

    Raises
    ------
    DataError, SchemaError, CapabilityError
        The file cannot be read, a column has no labels, or a package is not installed.

    Notes
    -----
    Without labels declared, a column of such a file holds its codes. What the file calls missing is
    missing, and in Stata and SPSS the empty text too.
    """
    wanted = [columns] if isinstance(columns, str) else list(columns)
    found = file_labels(path, wanted)
    return Schema.of(bounds).with_columns({name: {"labels": found[name]} for name in wanted})


@named
def check_data(data: Frame, formula: str | None = None, bounds: Bounds = None) -> Findings:
    """For the person who holds the data: what will be clipped, missing or undeclared, row by row.

    This is the curator channel. It is exact and costs no budget, so it must not be published; its
    output says so.

    Parameters
    ----------
    data : data frame
        As for `privcate`.
    formula : str, optional
        Only the columns that it uses are looked at. Left out: all of the data and of `bounds`.
    bounds : dict or Schema, optional
        The domains to be declared.

    Raises
    ------
    FormulaError, SchemaError, DataError
    """
    if formula is not None and not isinstance(formula, str):
        raise CapabilityError("check_data takes data, a formula and bounds=, in this order")
    domains = Schema.of(bounds)
    with open_source(data) as source:
        if formula is None:
            known = typed(source, lambda _: domains.label_columns(()))
            return look_at_rows(known, domains, (*domains, *source.header.names))
        read = parse(formula, source)
        domains = with_levels(domains, read.levels)
        if read.treatment not in domains and source.header.kinds[read.treatment] != "text":
            domains = domains.with_columns({read.treatment: Binary()})  # as a fit reads it
        known = typed(source, lambda _: domains.label_columns(read.categorical))
        return look_at_rows(known, domains, read.variables)
