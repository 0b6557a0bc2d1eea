"""The public functions. Each one only orders the steps and does no arithmetic."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from privcausal import accounting, estimators, results
from privcausal.errors import CapabilityError, named, warn
from privcausal.estimators import uplift
from privcausal.estimators.bases import AnyBase
from privcausal.estimators.planner import Planner
from privcausal.features.design import declare_queries
from privcausal.request.checks import check_spelling
from privcausal.request.cohorts import cohorts_of
from privcausal.request.formula import CausalFormula
from privcausal.request.panels import ControlGroup, panel_of
from privcausal.request.request import (
    CLUSTER_CORRELATION,
    COHORTS,
    Control,
    Options,
    Plan,
    Special,
    Trust,
    assume,
    estimands_of,
)
from privcausal.request.schema import Binary, Schema, with_levels
from privcausal.results.base import Record, cells_call
from privcausal.results.guarantee import ledger_line
from privcausal.results.plan import Question
from privcausal.run import (
    DEFAULT,
    Bounds,
    ResultT,
    groups_of,
    parse,
    request_of,
    run,
    strict,
    with_warnings,
)
from privcausal.typing import Average, Frame, Neighbors, OfMeans
from privcausal.vault import file_labels, from_table, open_source, open_vault, paid, typed
from privcausal.vault import inspect as look_at_rows

if TYPE_CHECKING:
    import pandas as pd

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
    max_rows: int | None = None,
    propensity: float | str | Mapping[str, float] | None = None,
    weights: str | None = None,
    groups: Sequence[str] = (),
    control: Control = DEFAULT,
    ledger: accounting.Ledger | None = None,
    progress: bool = False,
) -> results.CateResult:
    """Estimate conditional average treatment effects under (eps, delta)-differential privacy.

    Parameters
    ----------
    formula : str
        ``"outcome ~ treatment | effect modifiers | extra controls"``. Effect modifiers are controls
        too.
    data : data frame
        One of the following. Rows never leave the vault, the only code that reads them.

        - a pandas, polars or pyarrow table, or a dict of arrays;
        - the path of a Stata, SPSS or R file (.dta, .sav, .rds; see `declare_labels`);
        - the path of a Parquet or CSV file, or of a folder or pattern of such files, a DuckDB
          relation, or a polars LazyFrame. Their rows are streamed, and never held in memory
          together;
        - a Spark DataFrame, whose rows stay on its executors.
    learner : str or option object
        An option object sets details, for example ``learners.S(interactions=False)``.

        - ``"r"`` (default), ``"dr"``, ``"s"``, ``"t"``, ``"x"``: see `learners`.
        - ``"dpcate"``: ``learners.DPCATE(queries=points)`` releases the effect at public points
          only.
        - ``"adum"``, ``"tm"``: for trials, in pure epsilon.
    base : str or option object
        The basis of the nuisance models.

        - ``"gam"``: smooth, empirical Bayes.
        - ``"linear"``: the formula's own columns.
        - ``"dpebm"``: private explainable boosting, ``bases.DPEBM(rounds=300, smooth=True)``.
        - Learner ``"dpcate"`` takes ``"kernel"`` (its default) or ``"nn"``.
    eps, delta : float
        The privacy cost of the whole result.
    bounds : dict or Schema, optional
        Public domains of the columns: ``{"age": (18, 95), "ward": ["A", "B"]}``. Domains that you
        do not declare are estimated privately, and the budget table lists their cost.
    neighbors : {"substitute", "add_remove"}
        The neighboring data sets that the guarantee compares.

        - ``"substitute"``: one unit's data are replaced, and the number of rows is public.
        - ``"add_remove"``: one unit's data are added or removed.
    unit, max_rows : str, int
        Protect all rows of a unit, and use at most `max_rows` rows of each unit: the first ones.
        Rows of a unit may depend on one another in any way.

        - Averages, slopes, groups and cells: sampling variances are therefore `max_rows` times the
          variances for independent rows.
        - The allowance for nuisance errors and the bands of effect curves still treat rows as
          independent.
    propensity : float or str, optional
        The known treatment probability of a trial: a number, or a column with declared bounds.
    weights : str, optional
        A column of survey or attrition weights, with declared bounds that are not negative. See
        `private`. The result then has no best linear projection.
    groups : sequence of str
        Subgroups whose average effects you want: columns with levels, or comparisons such as
        ``"age >= 65"``, ``"18 <= age < 65"``, and ``"age >= 65 & sex == F"``. If the
        groups of a column partition the rows, the group effects and the average are made to
        agree.
    control : Control
        Sample splitting, clipping of propensities, budget shares, tail conditions, and the
        covariance of the best linear projection. See `Control`.
    ledger : Ledger, optional
        Charged before any row is read. It refuses a fit that costs more than its remaining budget.
    progress : bool
        Whether to show the stages in a progress bar, on stderr or below the notebook cell.

    Returns
    -------
    CateResult

    Raises
    ------
    FormulaError, SchemaError, DataError, BudgetError, LedgerError, CapabilityError
        Raised before any budget is spent, unless the message says otherwise.

    Examples
    --------
    >>> study = pc.datasets.clinic(2000)
    >>> fit = pc.privcate(study.formula, study.frame, eps=1, bounds=study.bounds)
    >>> print(fit.summary())
    Private Conditional Average Treatment Effect
    ...
    """
    with open_source(data) as source:
        parsed = parse(formula, source)
        method, chosen = estimators.for_effect(learner), estimators.base_of(base)
        points = getattr(method, "queries", None)
        trust = Trust.of(neighbors, unit, max_rows)
        options: Options = {"propensity": propensity, "weights": weights}
        options["groups"] = groups_of(groups)
        if points is not None:
            options["queries"] = declare_queries(points, parsed.effect_variables)
        request = request_of(parsed, bounds, eps, delta, trust, control, **options)
        return run(method, chosen, source, request, ledger, results.CateResult, progress)


@strict
def private(
    formula: str,
    data: Frame,
    *,
    base: str | AnyBase = "gam",
    estimand: Average | OfMeans | Sequence[Average | OfMeans] = "ATE",
    eps: float = 1.0,
    delta: float = 1e-5,
    bounds: Bounds = None,
    neighbors: Neighbors = "substitute",
    unit: str | None = None,
    max_rows: int | None = None,
    propensity: float | str | Mapping[str, float] | None = None,
    weights: str | None = None,
    groups: Sequence[str] = (),
    horizon: float | None = None,
    control: Control = DEFAULT,
    ledger: accounting.Ledger | None = None,
    progress: bool = False,
) -> results.AteResult:
    """Estimate an average treatment effect with a private confidence interval.

    Parameters
    ----------
    formula : str
        ``"outcome ~ treatment | covariates"``. Covariates in a further part are controls as well. A
        formula without covariates, ``"Y ~ T"`` or ``"Y ~ T | 1"``, gives the difference in means of
        a randomized trial. Its standard error is Welch's (HC2) plus the privacy noise.
    base : str or option object
        The basis of the nuisance models: ``"gam"`` or ``"linear"``.
    estimand : {"ATE", "ATT", "ATO", "means", "RR", "OR", "PLR", "LATE", "RMST", "risk"} or list
        Several estimands are released together at the cost of one, with their joint covariance. The
        first average is the headline.

        - ``"ATE"``: the average effect over all rows.
        - ``"ATT"``: the average effect over the treated.
        - ``"ATO"``: the average with overlap weights e(x) (1 - e(x)) (Li, Morgan and Zaslavsky
          2018). It describes the rows whose treatment could have gone either way.
        - ``"means"``: E[Y(0)], E[Y(1)], and their difference, the ATE. They are free in a trial,
          ``"Y ~ T"``: the ATE is the same number as without them. With covariates, the outcome must
          have two values or the bounds (0, 1), and the interval of the ATE is slightly wider.
        - ``"RR"``, ``"OR"``: the ratio of E[Y(1)] and E[Y(0)], and of their odds. The outcome must
          have two values, or be declared as 0 and 1. The result also has both means and the ATE.
        - ``"PLR"``, alone: the slope of the partially linear model Y = theta T + g(X) + u (Robinson
          1988). For two arms this is the ATO, and is called so. For a treatment with bounds it is
          the slope per unit; for several declared arms, one slope for each but the first.
        - ``"LATE"``, alone: the effect by the instrument Z of ``"Y ~ T | X | T ~ Z"``, or by
          several, ``T ~ Z1 + Z2``, by two-stage least squares. The confidence set is that of
          Anderson and Rubin (1949): see `confidence_set`. Its ends are infinite if the first stage
          may be zero. Treatment and instruments must be 0/1, have two labels, or have declared
          bounds.
        - ``"RMST"``, ``"risk"``, alone: for a right-censored outcome
          ``"Surv(days, died) ~ T | X"``. The effect on the mean of the survival time up to the
          horizon h, E[min(T, h)], or on the probability P(T <= h) of an event, over all rows.
          The scores are doubly robust also for censoring (Robins and Rotnitzky 1992), which must
          be independent of survival within each arm. See `AteResult.survival` for the curves.
          The event is 1 and a censored time 0; other values are missing. Declare other codes, the
          censored one first: ``bounds={"died": [1, 2]}``. Times below 0 count as 0. Competing
          events, such as codes 0, 1, and 2, have no estimand here.

        To choose among ATE, ATT and ATO:

        - Poor overlap: prefer the ATO. Its score does not divide by the propensity, so the score
          has the smallest range and almost no propensity is clipped.
        - Good overlap: the interval widths are similar.
        - The treatment itself defines the population of the ATO.
        - The three coincide if the effect or the propensity is constant.
        - Without covariates each is the difference in means.

        Several declared arms, ``bounds={"T": ["none", "low", "high"]}``, also have an ATE, but only
        as a single estimand. It gives each arm's effect against the first arm, and all mean
        outcomes, over all rows and in groups.
    propensity : float, str or dict, optional
        The known probability of the treatment (in a trial) or of the instrument: a number, or a
        column with declared bounds. For several arms, the share of each:
        ``{"control": 0.5, "low": 0.25, "high": 0.25}``. The difference in means does not use a
        number. With a column, the doubly robust score weights by that column.
    weights : str, optional
        A column of survey or attrition weights, with declared bounds that are not negative. The
        averages then describe the population that the weights represent, as with the
        ``sample.weights`` of grf: the ATE is E[w tau(X)] / E[w]. Without weights they describe the
        population from which the rows were sampled. Weights also apply to propensity and mean
        outcome, where weights above twice the mean count as twice the mean. A noisy histogram
        locates the weights. Weights beyond twice the largest detected weight are trimmed; the
        summary shows the limit, and the design effect E[w^2] / E[w]^2 (Kish 1965). A weight must
        be part of its own row: the guarantee does not cover weights estimated from these rows.
    horizon : float, optional
        End of the follow-up for ``"RMST"`` and ``"risk"``, in units of the time. It is public.
        Choose it without looking at the data.
    data, eps, delta, bounds, neighbors, unit, max_rows, groups, control, ledger, progress
        As for `privcate`, which raises the same errors.

    Returns
    -------
    AteResult

    Examples
    --------
    >>> study = pc.datasets.clinic(2000)
    >>> fit = pc.private(study.formula, study.frame, eps=1, bounds=study.bounds)
    >>> fit.conf_int().shape
    (1, 2)
    """
    first, more = estimands_of(estimand)
    with open_source(data) as source:
        parsed, trust = parse(formula, source), Trust.of(neighbors, unit, max_rows)
        options: Options = {"estimand": first, "more": more, "horizon": horizon}
        options |= {"propensity": propensity, "weights": weights, "groups": groups_of(groups)}
        request = request_of(parsed, bounds, eps, delta, trust, control, **options)
        method = estimators.for_average(request)
        chosen = estimators.base_of(base, ("gam", "linear"))
        return run(method, chosen, source, request, ledger, results.AteResult, progress)


@strict
def did(
    formula: str,
    data: Frame,
    *,
    unit: str,
    time: str,
    periods: Sequence[Any] | None = None,
    cohort: str | None = None,
    control_group: ControlGroup = "nevertreated",
    base: str | AnyBase = "gam",
    eps: float = 1.0,
    delta: float = 1e-5,
    bounds: Bounds = None,
    neighbors: Neighbors = "substitute",
    groups: Sequence[str] = (),
    control: Control = DEFAULT,
    ledger: accounting.Ledger | None = None,
    progress: bool = False,
) -> results.AteResult | results.EventStudyResult:
    """Estimate effects on the treated by differences in differences.

    The vault turns each unit into one row, the unit's change of the outcome. The guarantee
    therefore protects all rows of a unit. The estimate is the ATT of `private` on these changes.
    Without covariates it is the difference between the arms' mean changes. With covariates it is
    the doubly robust panel estimator of Sant'Anna and Zhao (2020). With `cohort`, estimates are the
    effects ATT(g, t) of all cohorts in all periods (Callaway and Sant'Anna 2021), and their
    averages by event time, cohort, and period.

    Parameters
    ----------
    formula : str
        ``"outcome ~ treatment | covariates"``, or ``"outcome ~ 1"`` with cohorts.

        - The treatment is the treatment in the row's period, and must be 0 in the period before. A
          unit treated before counts as missing.
        - If a column `treated` is 1 in both periods, use the product
          ``df["T"] = df["treated"] * df["post"]``.
        - Covariates and groups are taken from the row before.
    data : data frame
        As for `private`. A unit is used if it has one row in each period and no missing
        value. Rows of other periods are ignored. The order of the rows does not matter.
    unit, time : str
        The columns that identify units and periods.
    periods : (before, after), optional
        Default: the two levels that `bounds` declares for the column of periods. With cohorts, all
        periods in ascending order; each unit must have one row in each.
    cohort : str, optional
        The column of the first treated period, the same in all rows of a unit. Declare its levels,
        for example ``[0, 2004, 2006]``. The level outside the periods marks never-treated units: 0,
        text such as "never", or a time after the last period. Units with other values, and units
        treated in the first period, are left out.
    control_group : {"nevertreated", "notyettreated"}
        Cohorts that are compared with cohort g in period t: never treated, or treated later.
    bounds : dict or Schema
        As for `private`. Outcome bounds (lo, hi) are required, because they bound the change by
        ``(lo - hi, hi - lo)``.

    Returns
    -------
    AteResult or EventStudyResult
        `EventStudyResult` with cohorts. A cohort that is too small to detect raises an alert.

    Notes
    -----
    Other parameters and errors are the same as for `private`. Cohorts allow neither covariates nor
    groups. To plan a fit of two periods, plan the ATT of the changes: ``plan("Y ~ T | X", n=units,
    unit="id", max_rows=1, estimand="ATT", bounds={"Y": (lo - hi, hi - lo)})``.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> treated = rng.random(500) < 0.5
    >>> before = pd.DataFrame({"id": range(500), "year": 2019, "T": 0, "Y": rng.random(500)})
    >>> after = before.assign(year=2020, T=1 * treated, Y=before["Y"] + 0.3 * treated)
    >>> frame = pd.concat([before, after])
    >>> at = {"unit": "id", "time": "year", "periods": (2019, 2020)}
    >>> fit = pc.did("Y ~ T", frame, **at, eps=1, bounds={"Y": (0, 2)})
    >>> list(fit.params.index)
    ['ATT']
    """
    with open_source(data) as source:
        parsed, header = parse(formula, source, regression=cohort is not None), source.header
        schema = with_levels(Schema.of(bounds), parsed.levels)
        staggered = cohort is not None
        if staggered:
            schema, panel = cohorts_of(
                parsed, schema, unit, time, periods, cohort, control_group, groups
            )
        else:
            schema, panel = panel_of(
                parsed, schema, header.kinds, unit, time, periods, groups, control_group
            )
        trust = Trust(neighbors, unit, panel=panel)
        options: Options = {"estimand": COHORTS if staggered else "ATT"}
        options["groups"] = groups_of(groups)
        request = request_of(parsed, schema, eps, delta, trust, control, **options)
        method = estimators.for_average(request)
        chosen = estimators.base_of(base, ("gam",) if staggered else ("gam", "linear"))
        if staggered:
            return run(method, chosen, source, request, ledger, results.EventStudyResult, progress)
        return run(method, chosen, source, request, ledger, results.AteResult, progress)


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
    max_rows: int | None = None,
    control: Control = DEFAULT,
    ledger: accounting.Ledger | None = None,
    progress: bool = False,
) -> results.RegressionResult:
    """Fit a linear regression with private coefficients, standard errors and intervals.

    Parameters
    ----------
    formula : str
        ``"Y ~ X1 + C(g)"``, with an intercept; terms as for `privcate`. ``"Y ~ 1"`` is a mean.
    weights : str, optional
        A column of survey weights, with declared bounds that are not negative, for weighted least
        squares. Use ``cov_type="HC1"`` with weights, unless residual variances are proportional to
        1 / weight. Rows of weight 0, or below a 4,000th of the upper bound, are not counted there.
    control : Control
        - `cov_type`: ``"nonrobust"``, ``"HC0"``, or ``"HC1"``.
        - Budget shares and tail conditions.
    data, eps, delta, bounds, neighbors, unit, max_rows, ledger, progress
        As for `privcate`, which raises the same errors.

    Returns
    -------
    RegressionResult
        Without noise the estimates equal least squares in statsmodels; coefficients are not
        shrunken. Rows that lie far from all others are downweighted, because noise hides such rows.

    Examples
    --------
    >>> study = pc.datasets.clinic(2000)
    >>> fit = pc.regress("recovery ~ programme + age", study.frame, eps=1, bounds=study.bounds)
    >>> list(fit.params.index)
    ['Intercept', 'programme', 'age']
    """
    return _regressed(
        "OLS",
        results.RegressionResult,
        formula,
        data,
        bounds=bounds,
        eps=eps,
        delta=delta,
        trust=Trust.of(neighbors, unit, max_rows),
        control=control,
        weights=weights,
        ledger=ledger,
        progress=progress,
    )


@strict
def logit(
    formula: str,
    data: Frame,
    *,
    weights: str | None = None,
    eps: float = 1.0,
    delta: float = 1e-5,
    bounds: Bounds = None,
    neighbors: Neighbors = "substitute",
    unit: str | None = None,
    max_rows: int | None = None,
    control: Control = DEFAULT,
    ledger: accounting.Ledger | None = None,
    progress: bool = False,
) -> results.GeneralizedResult:
    """Fit a logit regression of a 0/1 outcome with private coefficients and robust intervals.

    Parameters
    ----------
    control : Control
        `cov_type`: ``"HC0"`` (the default of this call) or ``"HC1"``.
    formula, data, weights, eps, delta, bounds, neighbors, unit, max_rows, ledger, progress
        As for `regress`, which raises the same errors. A `BudgetError` is raised, too, if noise
        would be large relative to the moments of the columns: Newton's step is then not defined.

    Returns
    -------
    GeneralizedResult
        `params` are changes of the log odds. ``summary(exponentiate=True)`` prints odds ratios,
        `predict` probabilities, and `get_margeff` average marginal effects.

    Examples
    --------
    >>> survey = pc.datasets.clinic(20_000)
    >>> frame = survey.frame.assign(well=(survey.frame["recovery"] > 50) * 1)
    >>> bounds = {**survey.bounds, "well": [0, 1]}
    >>> fit = pc.logit("well ~ programme + age", frame, eps=1, bounds=bounds)
    >>> list(fit.params.index)
    ['Intercept', 'programme', 'age']
    """
    return _regressed(
        "logit",
        results.GeneralizedResult,
        formula,
        data,
        bounds=bounds,
        eps=eps,
        delta=delta,
        trust=Trust.of(neighbors, unit, max_rows),
        control=control,
        weights=weights,
        ledger=ledger,
        progress=progress,
    )


@strict
def poisson(
    formula: str,
    data: Frame,
    *,
    weights: str | None = None,
    eps: float = 1.0,
    delta: float = 1e-5,
    bounds: Bounds = None,
    neighbors: Neighbors = "substitute",
    unit: str | None = None,
    max_rows: int | None = None,
    control: Control = DEFAULT,
    ledger: accounting.Ledger | None = None,
    progress: bool = False,
) -> results.GeneralizedResult:
    """Fit a Poisson regression with private coefficients and robust intervals.

    Parameters
    ----------
    formula, data, control, weights, eps, delta, bounds, neighbors, unit, max_rows, ledger, progress
        As for `logit`. The outcome's lower bound is 0. It may have fractions, and any variance.

    Returns
    -------
    GeneralizedResult
        `params` are changes of the logarithm of the mean. ``summary(exponentiate=True)`` prints
        rate ratios.

    Examples
    --------
    >>> survey = pc.datasets.clinic(20_000)
    >>> fit = pc.poisson("recovery ~ programme + age", survey.frame, eps=1, bounds=survey.bounds)
    >>> list(fit.params.index)
    ['Intercept', 'programme', 'age']
    """
    return _regressed(
        "poisson",
        results.GeneralizedResult,
        formula,
        data,
        bounds=bounds,
        eps=eps,
        delta=delta,
        trust=Trust.of(neighbors, unit, max_rows),
        control=control,
        weights=weights,
        ledger=ledger,
        progress=progress,
    )


def _regressed(
    estimand: Special,
    kind: type[ResultT],
    formula: str,
    data: Frame,
    *,
    bounds: Bounds,
    eps: float,
    delta: float,
    trust: Trust,
    control: Control,
    weights: str | None,
    ledger: accounting.Ledger | None,
    progress: bool,
) -> ResultT:
    alone = isinstance(control, Control) and control.cluster is None
    if estimand != "OLS" and alone and control.cov_type == "nonrobust":
        control = replace(control, cov_type="HC0")
    with open_source(data) as source:
        parsed = parse(formula, source, regression=True)
        options: Options = {"estimand": estimand, "weights": weights}
        request = request_of(parsed, bounds, eps, delta, trust, control, **options)
        method, chosen = estimators.for_average(request), estimators.base_of("linear")
        return run(method, chosen, source, request, ledger, kind, progress)


@strict
def plan(
    formula: str,
    *,
    n: int | Sequence[int] | None = None,
    eps: float | Sequence[float] | None = None,
    width: float | None = None,
    bounds: Bounds = None,
    learner: str | estimators.Learner = "private",
    estimand: Average | OfMeans | Sequence[Average | OfMeans] = "ATE",
    base: str | AnyBase = "gam",
    delta: float = 1e-5,
    neighbors: Neighbors = "substitute",
    unit: str | None = None,
    max_rows: int | None = None,
    propensity: float | str | Mapping[str, float] | None = None,
    weights: str | None = None,
    groups: Sequence[str] = (),
    horizon: float | None = None,
    control: Control = DEFAULT,
    outcome_sd: float | None = None,
    r2: float = 0.0,
    treated: float = 0.5,
    icc: float = CLUSTER_CORRELATION,
    like: pd.DataFrame | None = None,
    time: str | None = None,
    cohort: str | None = None,
    periods: Any = None,
    control_group: ControlGroup = "nevertreated",
    alpha: float = 0.05,
    power: float = 0.8,
) -> results.PlanResult:
    """Forecast the width of the average effect's interval before there are data.

    The fit is simulated on invented rows with the stages, clipping, noise and allowances of the
    real fit. The privacy part of the width is exact for the clipping threshold that the assumptions
    imply. The sampling part depends on `outcome_sd`, `r2` and `treated`. Nothing is read, charged
    or released.

    The half-width is a range. On public data sets that it was not chosen on, it held about 80% of
    the half-widths of fits. The range is narrower if you give `outcome_sd`, and narrowest with
    `like`. Neither end grows with n or eps. Choose a budget by the upper end.

    A fit divides its noise by the released sum of its score weights, which is one per row if the
    propensity is right. The plan assumes this value, but the actual sum depends on the rows. On
    base ``"dpebm"`` the boosting rounds do not converge fully. A treatment that depends strongly on
    correlated covariates then has a sum about 3% smaller, so the privacy part is about 3% wider.

    Parameters
    ----------
    formula : str
        As for `private` and `privcate`.
    n : int or sequence of int, optional
        Numbers of rows. If omitted, n is found from `width` and `eps`.
    eps : float or sequence of float, optional
        Default 1. If `width` and `n` are given and `eps` is not, eps is found from them.
    width : float, optional
        The target half-width, in units of the outcome. It applies to the upper end of the range.
    bounds : dict or Schema, optional
        A column without bounds is assumed to hold labels if the formula has C(), and numbers
        otherwise. Its bounds are estimated privately, as in a fit.
    learner : str or option object
        - ``"private"`` plans `privcausal.private`.
        - ``"regress"``, ``"logit"`` and ``"poisson"`` plan the first slope of these calls.
        - Any other name plans `privcausal.privcate`.
    estimand : str or list of str
        As for `private`; the widths are for the first estimand. `privcate` has the ATE only. "RMST"
        and "risk" require a `horizon`.
    outcome_sd : float, optional
        Standard deviation of the outcome, or of a survival time, within an arm. The default is:

        - a quarter of the declared range;
        - half of the range for two labels and for bounds (0, 1), as for a 0/1 outcome.
    r2 : float
        Share of the outcome variance that the covariates explain, the same in both arms. The
        default 0 is conservative.
    treated : float
        Share of rows treated, if the propensity is estimated.
    icc : float
        Correlation of the rows' influences on the estimate within the clusters of
        ``control=pc.Control(cluster=..., max_cluster_rows=...)``. If treatment is assigned by
        cluster, this is about the intra-cluster correlation of the outcome. Each cluster is assumed
        to have `max_cluster_rows` rows.
    like : pandas.DataFrame, optional
        Public rows, such as an earlier survey, with columns named as in the formula. The simulated
        fits resample its complete rows. Columns that it lacks are invented. Its outcome and
        treatment replace `outcome_sd`, `r2`, and `treated`. Never pass private rows: the plan is
        computed from them without noise. The result holds no rows.
    time, cohort, periods, control_group
        As for `did` with cohorts: plans an event study of n units for its overall effect, from
        ``"outcome ~ 1"``; `terms` has all others. `treated` is the share of units ever treated, and
        `r2` the share of the outcome's variance that is constant within units.
    alpha, power : float
        Intervals are at level 1 - alpha. Detectable effects are computed for this power.

    Other parameters are the parameters of the fit.

    Returns
    -------
    PlanResult

    Raises
    ------
    FormulaError, SchemaError, BudgetError, CapabilityError
        The fit would raise the same error, or no eps or n achieves the width.

    Examples
    --------
    >>> study = pc.datasets.clinic(10)
    >>> plan = pc.plan(study.formula, n=5000, eps=1, bounds=study.bounds)
    >>> plan.table.columns.tolist()
    ['n', 'eps', 'delta', 'rho', 'half-width from', 'half-width to', 'detectable', 'se_sampling',
     'se_privacy', 'se_nuisances', 'max_bias']
    >>> survey = study.frame[["age", "severity"]]  # if these rows are public
    >>> plan = pc.plan(study.formula, n=5000, eps=1, bounds=study.bounds, like=survey)
    """
    question = Question.of(n, eps, width, alpha, power)
    regressions = {"regress": "OLS", "logit": "logit", "poisson": "poisson"}
    average, regression = learner == "private", regressions.get(str(learner), "")
    if not average and estimand != "ATE":
        raise CapabilityError(
            "estimand= requires learner='private'. privcate() releases only the ATE."
        )
    first, more = estimands_of(estimand)
    of: Any = first if average else regression or "CATE"
    staggered = time is not None or cohort is not None or periods is not None
    others = (max_rows, weights, propensity, horizon, like)
    other = any(option is not None for option in others) or (of, *more) != ("ATE",)
    if staggered and (cohort is None or other):
        raise CapabilityError(
            "time= and periods= plan an event study. They require cohort= and unit=, without "
            "learner=, estimand=, max_rows=, weights=, propensity=, horizon=, and like=. To plan "
            "two periods, plan the ATT of the changes."
        )
    read = CausalFormula.regression if regression or staggered else CausalFormula.parse
    parsed, schema = read(formula), Schema.of(bounds)
    if staggered:
        of = COHORTS
        schema, panel = cohorts_of(
            parsed, schema, unit, time, periods, cohort, control_group, groups
        )
        trust = Trust(neighbors, unit, panel=panel)
    else:
        trust = Trust.of(neighbors, unit, max_rows)
    options: Options = {"estimand": of, "more": more, "horizon": horizon}
    options |= {"propensity": propensity, "weights": weights, "groups": groups_of(groups)}
    first_eps = next(iter(question.epsilons), 1.0)
    request = request_of(parsed, schema, first_eps, delta, trust, control, **options)
    check_spelling(request)
    if average or regression:
        method = estimators.for_average(request)
    else:
        method = estimators.find(learner, "private", *regressions)
    assumed = assume(request, outcome_sd, r2, treated, like, icc)
    planner = Planner.of(method, estimators.base_of(base), request, assumed)
    planned = results.PlanResult(planner, question)
    warn(*planned.weak)
    return planned


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
    """Estimate effects by cell (uplift) from an aggregated table, without the rows.

    Parameters
    ----------
    frame : data frame
        One line per cell and arm, with the columns cell, arm, count and sum. The sum is over
        outcomes clipped to their bounds. A column ``steps`` may replace sum, as ``fit.plan.sql()``
        returns it. A line may aggregate at most 2^31 rows.
    cells : sequence of labels, or Plan
        The declared cells. A declared cell that is absent from the frame has no rows, and still
        gets noise. Or the plan of a fit by cells whose SQL produced the table.
    outcome : (lo, hi) or two labels
        The outcome's bounds, or the two labels of a 0/1 outcome. Not used with a plan.
    eps, delta : float
        The cost of the noise; default 1 and 1e-5. For a table with noise, the promise of whoever
        made the table: `eps` is then required, and `delta` defaults to 0.
    noise : dict, optional
        ``{"count": sd, "sum": sd}``: the table already holds noise with these standard deviations.
        No noise is added and nothing is charged. None: the table is exact and private.
    learner : option object, optional
        ``pc.learners.ADUM(...)`` without cells and partition.
    propensity : float, optional
        The known share of treated rows in a trial.
    ledger : Ledger, optional
        For an exact table.

    Returns
    -------
    CateResult
        The guarantee treats one row as one person. Sums are taken to be exact, or floats rounded
        once. The fit also pays for what this rounding adds to the sensitivity of a sum to one row.
        A table is refused if that addition would be large. The last digits of a float sum from a
        data warehouse may depend on the order of its rows. Sums of `steps`, integers and decimals
        do not depend on the order.

    Raises
    ------
    DataError, SchemaError, BudgetError, LedgerError, CapabilityError
        No budget was spent.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"cell": ["a", "a", "b", "b"], "arm": [0, 1, 0, 1],
    ...                       "count": [90, 110, 105, 95], "sum": [30, 44, 21, 40]})
    >>> fit = pc.from_cells(table, ["a", "b"], eps=1)
    >>> fit.cells.index.tolist()
    ['cell = a', 'cell = b']
    """
    estimators.check_object("learner", learner)
    noisy, adum = noise is not None, learner or estimators.ADUM()
    request = uplift.cell_request(
        cells, outcome, adum, neighbors, propensity, eps=eps, delta=delta, noisy=noisy
    )
    table, budget = request.read(frame, noisy=noisy), request.request.budget
    if noise is not None:
        if ledger is not None:
            raise CapabilityError("A noisy table has no further cost. Remove ledger=.")
        warn(*accounting.weak_promise(budget.epsilon, budget.delta, None))
        request = replace(request, noise=noise).with_table(table)
        estimate, call = uplift.from_noisy(request), cells_call(request, noise)
        return with_warnings(results.CateResult(estimate, Record(request, {}), call))
    request = request.with_table(table)
    plan = request.plan()
    budget = plan.request.budget
    warn(*accounting.weak_promise(budget.epsilon, 0.0 if plan.pure else budget.delta, None))
    vault = open_vault(from_table(table, request.header), plan, ledger, "from_cells")
    estimate = paid(uplift.from_exact)(request, plan, vault)
    record = Record(request, vault.answers, vault.silent)
    call, line = cells_call(request, None), ledger_line(ledger)
    return with_warnings(results.CateResult(estimate, record, call, line))


@named
def declare_labels(
    path: str | os.PathLike[str], columns: str | Sequence[str], bounds: Bounds = None
) -> Schema:
    """Declare the labels of columns in a Stata, SPSS or R file as levels of a schema.

    Calling this function is a declaration: **the labels of these columns become public.** No
    program can check whether the labels reveal something about the rows. Labels from a codebook do
    not. Labels that a program made from the values it saw do: R's ``factor()``, Stata's ``encode``,
    and pandas categories. For this reason a label in a file is used only if you declare it, here or
    by hand. In Stata and SPSS files this function does not read the rows.

    Parameters
    ----------
    path : str or path
        A file whose name ends in .dta, .sav or .rds; needs the extra ``privcausal[files]``.
    columns : str or sequence of str
        Columns with value labels, or R factors. A fit with this schema reads labels instead of
        codes. If only missing values or exceptions of a column are labeled, the column is numeric:
        declare its bounds instead.
    bounds : dict or Schema, optional
        Domains of other columns.

    Returns
    -------
    Schema
        Levels in the order of their codes; the first is the reference. Codes that the file marks as
        missing are left out, and are missing in every fit. Codes with the same text are one level.

    Raises
    ------
    DataError, SchemaError, CapabilityError
        The file cannot be read, a column has no labels, or a package is not installed.

    Notes
    -----
    If labels are not declared, a column of such a file holds its codes. Values that the file marks
    as missing are missing. In Stata and SPSS files the empty text is missing too.

    Examples
    --------
    >>> wards = pc.datasets.clinic(100).frame[["ward"]].astype("category")
    >>> wards.to_stata("wards.dta", write_index=False)
    >>> pc.declare_labels("wards.dta", "ward")["ward"].labels
    ('east', 'north', 'south', 'west')
    """
    wanted = [columns] if isinstance(columns, str) else list(columns)
    labels = file_labels(path, wanted)
    return Schema.of(bounds).with_columns({name: {"labels": labels[name]} for name in wanted})


@named
def check_data(data: Frame, formula: str | None = None, bounds: Bounds = None) -> Findings:
    """Show the data holder which values will be clipped, missing or undeclared, row by row.

    This function is the data-holder channel. Its output is exact and costs no budget, so you must
    not publish it. The output says so.

    Parameters
    ----------
    data : data frame
        As for `privcate`.
    formula : str, optional
        Check only the columns in the formula. Default: all columns of the data and of `bounds`.
    bounds : dict or Schema, optional
        The domains that you intend to declare.

    Raises
    ------
    FormulaError, SchemaError, DataError

    Examples
    --------
    >>> study = pc.datasets.clinic(200)
    >>> findings = pc.check_data(study.frame, study.formula, study.bounds)
    >>> list(findings.frame.columns)
    ['column', 'type', 'problem', 'consequence', 'rows', 'examples']
    """
    if formula is not None and not isinstance(formula, str):
        raise CapabilityError("check_data() expects data, formula and bounds=, in this order.")
    domains = Schema.of(bounds)
    with open_source(data) as source:
        if formula is None:
            rows = typed(source, lambda _: domains.label_columns(()))
            return look_at_rows(rows, domains, (*domains, *source.header.names))
        read = parse(formula, source)
        domains = with_levels(domains, read.levels)
        if read.treatment not in domains and source.header.kinds[read.treatment] != "text":
            domains = domains.with_columns({read.treatment: Binary()})  # a fit reads it this way
        rows = typed(source, lambda _: domains.label_columns(read.categorical))
        return look_at_rows(rows, domains, read.variables)
