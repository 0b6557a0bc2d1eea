"""The plan in words: its table, what it answers and what it takes for granted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privcausal.learners.dpebm import DPEBM
from privcausal.learners.forecast import Planner
from privcausal.report import numbers
from privcausal.report.table import Column, Grid, Pairs, Prose, Rule, Table
from privcausal.report.words import clean
from privcausal.results import estimands
from privcausal.results.view import LEARNERS, NEIGHBORS, SPLITS
from privcausal.spec.assumed import LEVELS, PROPENSITY_SPREAD
from privcausal.spec.schema import Interval

if TYPE_CHECKING:
    import pandas as pd

    from privcausal.report.view import Pair
    from privcausal.results.plan import PlanResult


def tabulate(result: PlanResult) -> Table:
    """The table value of a plan."""
    planner = result.planner
    frame = result.table
    blocks = (
        Rule("="), Pairs("The analysis", _left(planner), _right(planner)), Rule("="),
        _grid(result, frame), Rule("="), Prose(_reading(result, frame)), Rule("-"),
        Prose((f"Assumed: {'; '.join(_assumed(result))}.",)), Rule("="), Prose((_notes(result),)),
    )  # fmt: skip
    # a learner of effects by covariates has the plain average
    asked = planner.request.estimand
    title = estimands.TITLES["ATE" if asked == "CATE" else asked]
    return Table(f"Plan of a {title}", blocks)


def _left(planner: Planner) -> tuple[Pair, ...]:
    request = planner.request
    domain = request.schema.get(request.formula.outcome)
    bounds = f" in [{domain.lo:.4g},{domain.hi:.4g}]" if isinstance(domain, Interval) else ""
    return (
        ("Outcome", f"{request.formula.outcome}{bounds}"),
        ("Treatment", request.formula.treatment),
        ("Formula", str(request.formula)),
        ("Neighbours", request.trust.neighbors.replace("_", "/")),
    )


def _right(planner: Planner) -> tuple[Pair, ...]:
    request, name = planner.request, planner.learner.name
    asked = "ATE" if request.estimand == "CATE" else request.estimand
    head = (("Estimand", asked), ("Estimator", LEARNERS.get(name, name)))
    if not planner.has_nuisances:
        return head
    return (
        *head,
        ("Nuisances", f"{planner.base.name}, {SPLITS[request.split]}"),
        ("Propensity", estimands.propensity(request, request.arm_clip)),
    )


def _grid(result: PlanResult, frame: pd.DataFrame) -> Grid:
    question = result.question
    level, power = numbers.level(question.alpha), numbers.percent(question.power)
    heads = {
        "n": Column("n", "left"),
        "eps": Column("eps"),
        "half-width": Column("half-width", words=f"half-width of the {level} interval"),
        "detectable": Column("detectable", words=f"effect detectable with {power} power"),
        "se_sampling": Column("sampling", words="standard error, sampling"),
        "se_privacy": Column("privacy", words="standard error, privacy noise"),
        "allowance": Column("bias", words="standard error, allowance for bias"),
        "privacy_share": Column("noise", words="share of privacy noise in the variance"),
        "worst_case": Column("worst", words="half-width for the most variable outcome"),
    }
    shown = frame.assign(allowance=np.hypot(frame["se_clipping"], frame["se_nuisances"]))
    names = [name for name in heads if name in shown.columns]
    cells = [[_cell(name, float(value)) for value in shown[name]] for name in names]
    columns = tuple(heads[name] for name in names)
    return Grid("Planned intervals", columns, tuple(zip(*cells, strict=True)), frame)


def _cell(name: str, value: float) -> str:
    if name == "n":
        return f"{value:,.0f}"
    if name == "eps":
        return numbers.point(float(f"{value:.4g}"))
    return numbers.percent(value) if name == "privacy_share" else numbers.number(value, 3)


def _reading(result: PlanResult, frame: pd.DataFrame) -> tuple[str, ...]:
    """What was asked, and how to read the table."""
    question = result.question
    lines = []
    if question.sought:
        lines.append(
            f"{question.sought} is the least, to three digits, whose half-width is at most "
            f"{numbers.point(question.width or 0.0)}."
        )
    lines.append(
        f"half-width: of the {numbers.level(question.alpha)} interval of the average effect; "
        f"detectable: the effect found with {numbers.percent(question.power)} power; sampling, "
        "privacy, bias: standard errors, the last an allowance for cut scores and errors of the "
        "nuisances; noise: the share of privacy noise in the variance."
    )
    if result.worst is not None:
        lines.append(
            "worst: half-width for the most variable outcome within its bounds. State outcome_sd= "
            "to plan for yours."
        )
    if not np.isfinite(frame["half-width"]).all():
        lines.append("inf: with so few rows and so little budget the fit would find nothing.")
    return tuple(lines)


def _assumed(result: PlanResult) -> list[str]:
    """What was taken for granted."""
    planner = result.planner
    request, assumed = planner.request, planner.assumed
    has_covariates = bool(request.formula.terms)
    outcome = f"an outcome of standard deviation {numbers.point(assumed.outcome_sd)} within an arm"
    if result.worst is not None:
        share = assumed.outcome_sd / assumed.width
        outcome += f" ({'a quarter' if share < 0.5 else 'half'} of its range)"
    if has_covariates:
        outcome += f", of whose variance covariates explain {numbers.percent(assumed.r2)}"
    parts = [outcome]
    if request.propensity is None:
        treated = f"{numbers.percent(assumed.treated)} treated"
        varies = f", with a propensity of standard deviation {PROPENSITY_SPREAD:g}"
        parts.append(treated + (varies if has_covariates else ""))
    if has_covariates:
        parts.append("independent covariates, spread evenly over their domains")
    parts.append("nothing missing")
    for names, kind, what in (
        (planner.undeclared.numbers, "numbers", "bounds"),
        (planner.undeclared.labels, f"{LEVELS} labels", "labels"),
    ):
        if names:
            listed = ", ".join(clean(name) for name in names)
            parts.append(f"{kind} in {listed}, whose {what} are bought")
    if request.trust.unit is not None:
        parts.append(f"{request.trust.max_rows} rows of each {clean(request.trust.unit)}")
    return parts


def _notes(result: PlanResult) -> str:
    request = result.planner.request
    trust = request.trust
    differ = NEIGHBORS[trust.neighbors].format(unit=f"one {clean(trust.protected)}")
    plan = result.planner.plan(request.budget.epsilon)
    price = "eps-DP (pure)" if plan.pure else f"(eps, {request.budget.delta:.3g})-DP"
    often = "once" if result.passes == 1 else f"{result.passes} times"
    return (
        f"Price of each line: {price}; {differ} A fit reads the rows {often}. "
        f"This plan saw no data and cost nothing.{MASS if plan.base == DPEBM.name else ''}"
    )


MASS = (
    " On base dpebm noise counts some 3% more where treatment depends strongly on correlated "
    "covariates: its propensity does not come all the way there."
)
