"""Steps shared by all calls that fit: check the arguments, plan, charge the budget, fit."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from functools import wraps
from threading import Event, Thread
from traceback import clear_frames
from typing import Any, ParamSpec, TypeVar, Unpack

import numpy as np

from privcausal import accounting, errors, vault
from privcausal.accounting.price import PICO
from privcausal.estimators import Learner
from privcausal.estimators.bases import AnyBase
from privcausal.estimators.budget import (
    Undeclared,
    check_plan,
    check_rows,
    levels,
    resolve_domains,
    whole_covariates,
)
from privcausal.estimators.planner import LEAST_EPSILON, Planner
from privcausal.features.design import transformed
from privcausal.prices import as_typed, at_least, at_most
from privcausal.report import tables
from privcausal.request import checks
from privcausal.request.checks import first_names
from privcausal.request.formula import CausalFormula
from privcausal.request.request import (
    Budget,
    Clusters,
    Control,
    Options,
    Plan,
    Request,
    Trust,
    assume,
    followed,
)
from privcausal.request.schema import Interval, Levels, Schema, with_levels
from privcausal.results import Result
from privcausal.results.base import Record, RowRequest, written_call
from privcausal.results.guarantee import ledger_line
from privcausal.vault import Source, open_vault

Bounds = Mapping[str, Any] | Schema | None
ResultT = TypeVar("ResultT", bound=Result)
P = ParamSpec("P")
R = TypeVar("R")

DEFAULT = Control()

_UNITS = "Write unit='person', max_rows=5. Privacy and intervals then refer to units."
_CLUSTERS = (
    "For cluster-robust standard errors, write control=pc.Control(cluster='village', "
    "max_cluster_rows=20). To protect all rows of a person, write unit='person', max_rows=5."
)
_INTERVALS = "Choose the level after the fit: fit.conf_int(alpha=0.05)."
_ROLES = "The formula names the columns. Write 'outcome ~ treatment | covariates'."
_WEIGHTED = "Write weights='w', the name of a column with declared bounds."
_DUMMIES = "Write C(ward) in the formula for one effect per level."
_ESTIMAND = (
    "For an average effect, use pc.private(..., estimand='ATT'). privcate() estimates the CATE, "
    "and did() the ATT."
)
_COHORTS = (
    "Only did() and plan() have it, for event studies: pc.did('Y ~ 1', data, cohort='first', ...)."
)

MOVED = {
    **{name: f"Write control=pc.Control({name}=...)." for name in DEFAULT.__dataclass_fields__},
    "learner": "Write pc.privcate(..., learner=...). base= selects the nuisance models.",
    "queries": "Write learner=pc.learners.DPCATE(queries=...).",
    "mode": "Use pc.paper, which has a function for each published mechanism.",
    "weighting": "Only pc.paper.dpebm has it. Proven boosting uses no row weights.",
    "below_minimum": "Only the published mechanisms in pc.paper have it.",
    "epsilon": "Write eps=1.0.",
    "estimand": _ESTIMAND,
    "subset": "Pass only the rows that you want as data.",
    "instrument": "Write pc.private('Y ~ T | X | T ~ Z', data, estimand='LATE').",
    "horizon": "Only pc.private and pc.plan have it, for 'Surv(days, died) ~ T'.",
    "bootstrap": "Intervals do not need a bootstrap, and each draw would spend budget.",
    "id": _UNITS,
    **dict.fromkeys(("cohort", "time", "periods"), _COHORTS),
    **dict.fromkeys(("cluster", "clusters", "cluster_var", "cov_kwds"), _CLUSTERS),
    **dict.fromkeys(("sample_weight", "sample_weights", "wts"), _WEIGHTED),
    **dict.fromkeys(("alpha", "level", "conf_level", "ci"), _INTERVALS),
    **dict.fromkeys(("outcome", "treatment", "treat", "covariates", "X", "W", "Y"), _ROLES),
    **dict.fromkeys(("fixed_effects", "fe", "absorb", "entity_effects"), _DUMMIES),
    **dict.fromkeys(("vcov", "se_type", "robust"), "Write control=pc.Control(cov_type='HC0')."),
    **dict.fromkeys(("n_estimators", "num_trees"), "Use base='gam', which has no trees."),
}
"""Keywords that these calls do not have, and the advice for each."""


def strict(call: Callable[P, R], moved: Mapping[str, str] = MOVED) -> Callable[P, R]:
    """Wrap a call: its arguments pass `as_plain`, and unknown keywords raise an own error."""
    parameters = inspect.signature(call).parameters
    first = [name for name, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]

    @wraps(call)
    # The calls name this argument `data`. It may hold rows.
    def checked(*data: P.args, **options: P.kwargs) -> R:
        try:
            formulas = [
                isinstance(value, str) and "~" in value
                for value in (*data[:2], *map(options.get, first[len(data) :]))
            ]
            if first[:2] == ["formula", "data"] and formulas[:2] == [False, True]:
                raise errors.CapabilityError(
                    f"{call.__name__}() expects the formula first and the data second. Write "
                    f"{call.__name__}('Y ~ T | X', data)."
                )
            errors.refuse_arguments(call.__name__, parameters, len(data), list(options), moved)
            if len(data) > len(first):
                instead = "It does not use data."
                if "data" in first:
                    instead = "Pass the other arguments by name: bounds=..., eps=..."
                raise errors.CapabilityError(
                    f"{call.__name__}() accepts only {' and '.join(first)} by position. {instead}"
                )
            if "bounds" in options:  # first, because it may have been swapped with the data
                cohort = options.get("cohort")  # a column of labels, as an event is
                labels = [cohort] if isinstance(cohort, str) else []
                # Two numbers declared for an event are labels, whatever the rest of the formula.
                formula = data[0] if data else options.get("formula")
                if isinstance(formula, str):
                    labels += re.findall(r"^\s*Surv\s*\([^,()]*,\s*`?([^,()`]+?)`?\s*\)", formula)
                options["bounds"] = Schema.of(options["bounds"], labels)
            return call(
                *map(errors.as_plain, data), **{k: errors.as_plain(v) for k, v in options.items()}
            )
        except BaseException as error:
            clear_frames(error.__traceback__)  # variables may be rows, and some tools print them
            raise
        finally:
            del data, options

    return checked


def parse(formula: str, source: Source, *, regression: bool = False) -> CausalFormula:
    """Parse the formula and check it against the columns of the data."""
    header = source.header
    read = CausalFormula.regression if regression else CausalFormula.parse
    return read(formula, header.names, quote=not header.untyped, advice=header.advice)


def request_of(
    formula: CausalFormula,
    bounds: Bounds,
    eps: float,
    delta: float,
    trust: Trust,
    control: Control,
    **options: Unpack[Options],
) -> Request:
    """Build the request of a call."""
    if not isinstance(control, Control):
        raise errors.CapabilityError(
            "control= must be a pc.Control, for example pc.Control(split='crossfit')."
        )
    if control.shares is not None and not isinstance(control.shares, Mapping):
        raise errors.BudgetError(
            "shares= must be a dict, for example {'nuisance': 0.4, 'effect': 0.6}."
        )
    schema = followed(Schema.of(bounds), formula, options.get("horizon"))
    schema = transformed(with_levels(schema, formula.levels), formula)
    domain = schema.get(formula.treatment)
    several = isinstance(domain, Levels) and len(domain.values) > 2
    if options.get("estimand") == "PLR" and not (several or isinstance(domain, Interval)):
        options["estimand"] = "ATO"  # the same number: the slope of two arms (Angrist 1998)
    budget = Budget(eps, delta, dict(control.shares or {}))
    settings: dict[str, Any] = {"clip": control.propensity_clip, "split": control.split}
    settings |= {"tails": control.tails, "cov_type": control.cov_type}
    settings["cluster"] = Clusters.of(control.cluster, control.max_cluster_rows)
    request = Request(formula, schema, budget, trust, **settings, **options)
    checks.check_request(request)
    return request


def groups_of(groups: Sequence[str]) -> tuple[str, ...]:
    if isinstance(groups, str):
        return (groups,)
    if not isinstance(groups, Sequence):
        raise errors.CapabilityError("groups= must be a list of column names or comparisons.")
    return tuple(groups)


def run(
    learner: Learner,
    base: AnyBase,
    source: Source,
    request: Request,
    ledger: accounting.Ledger | None,
    result: type[ResultT],
    progress: bool,
) -> ResultT:
    """Plan the stages, charge the ledger, and fit."""
    # First, check everything that does not need rows.
    source = vault.typed(source, request.label_columns)
    checks.check_table(request, source.header)
    checks.check_spelling(request, source.header)
    strange = [n for n in request.declared if n not in source.header.names]
    # Other names may belong to other tables that share this schema.
    if strange := [n for n in strange if get_close_matches(n, source.header.names, 1, 0.75)]:
        errors.warn(
            "bounds= has entries that are not in the data and were ignored: "
            f"{first_names(strange)}. Correct or remove them."
        )
    request = whole_covariates(request, source.header)
    schema, undeclared = resolve_domains(request, source.header)
    vault.check_row_order(source, request)  # units are counted only in a table that has an order
    size = vault.public_size(source, request)
    request = replace(request, nobs=size if request.trust.unit is None else None)
    row_request = RowRequest.of(request, learner, base, source.header)
    plan = learner.plan(request, base, undeclared)
    check_plan(plan, schema, learner.accepted(base).functions)
    check_rows(plan, undeclared, size, learner.counted(plan))
    delta, public = (0.0, None) if plan.pure else (request.budget.delta, size)
    errors.warn(*accounting.weak_promise(request.budget.epsilon, delta, public))
    errors.warn(*_forewarned(plan, undeclared.labels, quote=not source.header.untyped))
    call, query = written_call(learner, base, request)
    with stage_bar([stage.name for stage in plan.stages], progress) as watch:
        try:
            opened = open_vault(source, plan, ledger, query, watch)
        except accounting.BudgetExhaustedError as refused:
            # If units are protected, their number is public and the number of rows is not.
            rows = size if request.trust.unit is None else None
            call_plan = learner, base, request, schema, undeclared
            raise _with_plan(refused, rows, *call_plan) from None
        # The matrices are small; using several BLAS threads makes the fit five times slower. A
        # likelihood that underflows counts as zero, whatever the caller's numpy.seterr says.
        stopped: tuple[type[errors.PrivcausalError], str] | None = None
        with vault.single_blas_thread(), np.errstate(under="ignore"):
            try:
                estimate = vault.paid(learner.fit)(plan, opened, schema, undeclared, base)
            except (errors.BudgetError, errors.CapabilityError, errors.SchemaError) as error:
                stopped = type(error), str(error)
    if stopped is not None:  # raised here, so that it does not keep the first error as context
        error_type, text = stopped
        left, whole = opened.unspent, plan.rho or plan.epsilon
        used = whole - sum(stage.charged if plan.rho else stage.epsilon for stage in left)
        text += f" The fit stopped after {len(plan.stages) - len(left)} of {len(plan.stages)} "
        text += f"stages, with {used / whole:.0%} of its budget."
        if ledger is not None:
            text += " The ledger was charged for all stages before the first and returns nothing."
        raise error_type(text)
    record = Record(row_request, opened.answers, opened.silent)
    line = None if ledger is None else ledger_line(ledger)
    return with_warnings(result(estimate, record, call, line))


def with_warnings(result: ResultT) -> ResultT:
    """Return the result after issuing its serious alerts as warnings at the user's line."""
    for text in result.alerts.values():
        # The first sentences, up to three lines; the summary shows the whole text.
        end = text.rfind(". ", 0, LONGEST_WARNING) + 1
        brief = text[:end] if end else f"{text[: LONGEST_WARNING - 3]}..."
        try:
            errors.warn(text if len(text) <= LONGEST_WARNING else brief)
        except errors.PrivcausalWarning as error:
            error.fit = result
            raise
    return result


def _forewarned(plan: Plan, labels: Sequence[str], *, quote: bool) -> Iterator[str]:
    """Warnings issued before any charge: the columns taken by ``.``, and the cost of levels."""
    if rest := plan.request.formula.rest:
        yield f"'.' expands to {len(rest)} columns{f': {first_names(rest)}' if quote else ''}."
    bought = [plan.stage(key) for key in map(levels, labels) if plan.has(key)]
    if bought:
        share = sum(stage.rho for stage in bought) / plan.rho
        delta = sum(stage.delta for stage in bought) / PICO
        example = repr(labels[0] if quote else "ward")
        yield (
            f"The levels of {first_names(labels) if quote else 'text columns'} will be estimated "
            f"privately, at {share:.1%} of the budget and {at_most(delta, 1)} of delta. If they "
            f"are public, declare them at no cost: bounds={{{example}: ['a', 'b']}}."
        )
    formula, schema = plan.request.formula, plan.request.schema
    typed = {formula.treatment, *schema, *formula.categorical, *formula.rest}
    unsure = [name for name in formula.variables if name not in typed]
    if unsure and not quote:
        yield (
            "The file has no column types. These columns are read as numbers: "
            f"{first_names(unsure)}. If a column holds labels, declare them, or write C(column)."
        )


LONGEST_WARNING = 3 * 80 - len("PrivcausalWarning: ")  # characters of three lines


def _with_plan(
    refused: accounting.BudgetExhaustedError,
    rows: int | None,
    learner: Learner,
    base: AnyBase,
    request: Request,
    schema: Schema,
    undeclared: Undeclared,
) -> accounting.BudgetExhaustedError:
    """Add to the refusal the planned half-widths of a fit that the ledger can still pay for.

    `rows` is the public number of rows. If it is private (None), no plan is made.
    """
    eps = request.budget.epsilon
    left = float(at_least(refused.payable))  # as shown in the refusal
    if rows is None or not LEAST_EPSILON <= left < eps:
        return refused
    try:
        fits = Planner(learner, base, request, schema, undeclared, assume(request))
        smaller, now = (
            " to ".join(tables.number(end, 2) for end in fits.first(rows, e, 0.05))
            for e in (left, eps)
        )
    except errors.PrivcausalError:  # no plan can be made, so return the refusal unchanged
        return refused
    text = f"{refused} At eps={as_typed(left)} the planned 95% half-width is {smaller} ({now} at "
    text += f"eps={as_typed(eps)}) in about 80% of fits."
    amounts = refused.requested, refused.remaining, refused.payable
    return accounting.BudgetExhaustedError(text, *amounts)


# -- the progress bar ------------------------------------------------------------------------------

TICK = 1.0
"""Seconds between updates of the elapsed time, also within a long stage such as boosting."""

PROGRESS_BAR = "{desc}: {bar}| {n_fmt}/{total_fmt} stages [{elapsed}]"

Tell = Callable[[str, float | None, str], None]


@contextmanager
def stage_bar(names: Sequence[str], shown: bool) -> Iterator[Tell | None]:
    """Yield a function that reports each stage and the share of its rows or rounds done.

    Yields None if no bar is shown. `names` are all planned stages. A stage that turns out to be
    unnecessary is skipped.
    """
    if not shown:
        yield None
        return
    bars: list[Any] = []

    def tell(name: str, share: float | None, of: str) -> None:
        if not bars:  # wait for the first stage, because arguments may still be refused
            # Without widgets, a notebook shows a plain bar.
            with warnings.catch_warnings(action="ignore"):
                from tqdm.auto import tqdm
            bars.append(tqdm(total=len(names), dynamic_ncols=True, bar_format=PROGRESS_BAR))
        (bar,) = bars
        text = name if not share or share == 1 else f"{name}, {share:.0%} of the {of}"
        if text == bar.desc:
            return
        bar.set_description_str(text, refresh=False)
        bar.n = max(bar.n, names.index(name))
        bar.refresh()

    def tick() -> None:  # the elapsed time goes on, whatever the fit is doing
        while not over.wait(TICK):
            for bar in bars:
                bar.refresh()

    over = Event()
    clock = Thread(target=tick, name="privcausal progress", daemon=True)
    clock.start()
    try:
        try:
            yield tell
        finally:
            over.set()
            clock.join()
        for bar in bars:
            bar.set_description_str("done", refresh=False)
            bar.n = bar.total
            bar.refresh()
    finally:
        for bar in bars:
            bar.close()
