"""Convert a result to the plain values of its summary, plots and report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import cast

import numpy as np
import pandas as pd

from privcausal import estimators
from privcausal.accounting import weak_promise
from privcausal.estimators.instruments import late_set
from privcausal.estimators.survival import measured
from privcausal.estimators.words import complete_rows, tails, words_of
from privcausal.inference.averages import AverageEstimate
from privcausal.inference.cells import CellEffect
from privcausal.prices import at_most, pair
from privcausal.report import tables, view
from privcausal.request.plan import Plan
from privcausal.request.request import COHORTS, Request
from privcausal.request.schema import Binary, Domain, Interval, Levels, Schema
from privcausal.results import base, frames, guarantee, looks


def view_of(result: base.ReleasedFit, shapes: tuple[view.Shape, ...], alpha: float) -> view.FitView:
    """All values that summary, plots and report show of a fit with these effect curves."""
    estimate, plan, promise = result.estimate, result.plan, result.guarantee
    request, schema, z = plan.request, estimate.schema, frames.quantile(alpha)
    formula, trust = request.formula, request.trust
    averages, words, said = estimate.averages, words_of(request), estimators.describe(estimate)
    terms = result._rows() if averages is not None else ()
    cells = estimate.effect if isinstance(estimate.effect, CellEffect) else None
    bought = result._bought
    complete = _complete(estimate)
    rows = "Observations" if trust.unit is None else "Units"
    if estimate.size is not None:
        all_used = schema.complete or bool(complete)
        size = f"{estimate.size:,}" if all_used else f"at most {estimate.size:,}"
        counts = ((rows, size), *(() if schema.complete else complete))
    elif complete:
        counts = ((f"{rows} (noisy)", complete[0][1]), *complete[1:])
    else:
        counts = ((f"{rows} (noisy)", f"{estimate.population.count:,.0f}"),)
    named = outcome_name(request, schema)
    effects = gates = None
    cohorts = request.estimand == COHORTS
    if averages is not None:
        effects = result._tests(alpha)
        if named != formula.effect_on:
            effects.index.name = named
        effects["mark"] = ["post" if row.kind in ("ratio", "late") else "dp" for row in terms]
        gates = result._effects(alpha, groups=True) if averages.groups else None
        if cohorts:
            effects, gates = _by_event_time(result, alpha)
    persons = "One row is one person."
    if trust.unit is not None:
        used = f"at most {trust.max_rows} rows used" if trust.panel is None else "all of its rows"
        persons = f"The guarantee is for one {trust.unit}, with {used}."
    numeric = named == formula.effect_on
    panel = None if trust.panel is None else cast("Levels", schema[trust.panel.time]).values
    changes = panel is not None and not cohorts
    interval = _bias(result, z)
    if averages is not None and words.in_set:
        interval = _late_interval(averages, z, alpha)
    several, attack = len(request.averages) > 1, None
    total = guarantee.price_text(promise.epsilon, promise.delta)
    if promise.delta == 0:
        total = f"epsilon {at_most(promise.epsilon)}, pure"
    elif promise.kind == "published":
        total += " (claimed)"
    if promise.kind == "proven" and promise.trade_off is not None:
        alarms = np.linspace(0.0, 1.0, 101)
        attack = pd.DataFrame({"false_alarms": alarms, "power": 1 - promise.trade_off(alarms)})
    left = (
        ("Dep. variable", f"change in {named}" if changes else named),
        *((("Periods", f"{panel[0]} to {panel[-1]}"),) if panel else ()),
        *_arms(formula.treatment, schema),
        *((("Instrument", " + ".join(formula.instruments)),) if formula.instruments else ()),
        *counts,
        *((("Outcome bounds", _range(Interval(*result._outcomes))),) if numeric else ()),
        ("Formula", str(formula)),
    )
    right = (
        ("Estimand", ", ".join(request.estimands)),
        ("Estimator", said.title),
        *said.rows,
        ("Bounds", "some estimated privately" if bought else "declared"),
        ("Neighboring data", guarantee.neighboring(trust.neighbors, promise.unit)),
    )
    return view.FitView(
        title="Private Average Treatment Effects" if several else words.title,
        outcome=measured(request) or named,
        treatment="treatment" if cohorts else formula.treatment,
        left=left, right=right, effects=effects, gates=gates,
        averages=0 if effects is None else len(effects) - sum(bool(row.column) for row in terms),
        cells=None if cells is None else frames.cell_table(cells, z),
        gains=None if cells is None else frames.gain_frame(cells, z),
        shapes=shapes,
        third={"OLS": "Coefficients", COHORTS: "Effects over time"}.get(request.estimand, ""),
        grouped="Effects by cohort and period" if cohorts else "Average effect by group",
        variation=looks.variation(result, alpha) if shapes else "",
        uncertainty=_sources(result), bias=interval,
        adjustment=_adjustment(averages), tails=" ".join(tails(estimate)), parallel=_parallel(plan),
        budget=_with_declared(result.budget).replace({"stage": dict(said.stages)}),
        total=total if estimate.real else "not private", ledger=result.ledger_line,
        guarantee=_promise(result), attack=attack, kind=promise.kind,
        epsilon=promise.epsilon, delta=promise.delta, rho=promise.rho, neighbors=promise.neighbors,
        unit_sentence=persons, headline=(*_found(result, alpha), _protected(promise)),
        notes=_notes(result, said, bought), serious=len(result.alerts),
        assumptions=said.assumptions, robustness=_robustness(result, alpha), methods=said.methods,
        call=result.call, versions=tuple((name, version_of(name)) for name in PACKAGES),
        alpha=alpha,
        lead=0 if averages is None or cohorts else result._lead,
    )  # fmt: skip


def _by_event_time(result: base.ReleasedFit, alpha: float) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The overall average and the effects by event time; then all other effects."""
    found = result._tests(alpha, groups=True).assign(mark="dp")
    places = [row.place.factor for row in result._rows(groups=True)]
    first = found[np.isin(places, ["overall"])]
    events = found[np.isin(places, ["event"])]
    gates = result._effects(alpha, groups=True)[np.isin(places, ["cohort", "calendar"])]
    return pd.concat([first, events]), pd.concat([gates, result._effects(alpha, groups=False)])


def outcome_name(request: Request, schema: Schema) -> str:
    """Name of the outcome; for an outcome of two labels, the probability of the second."""
    name, domain = request.formula.effect_on, schema.get(request.formula.outcome)
    if isinstance(domain, Binary) and domain.labels is not None:
        return f"P({name} = {domain.one!r})"
    return name


def _arms(treatment: str, schema: Schema) -> tuple[tuple[str, str], ...]:
    if not treatment:
        return ()
    coding, arms = schema[treatment], "1 vs. 0"
    if isinstance(coding, Interval):
        return (("Treatment", f"{treatment} in {_range(getattr(coding, 'raw', coding))}"),)
    if isinstance(coding, Levels):
        arms = f"{len(coding.labels) - 1} arms vs. {coding.labels[0]}"
    if isinstance(coding, Binary):
        arms = f"{coding.one} vs. {coding.zero}"
    return (("Treatment", f"{treatment} ({arms})"),)


PACKAGES = ("privcausal", "opendp", "numpy", "formulaic")


def version_of(name: str) -> str:
    """The installed version of a package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _robustness(result: base.ReleasedFit, alpha: float) -> str:
    """The sensitivity sentence, for studies that assume all confounders are measured."""
    request = result.plan.request
    bare = request.mode == "paper" or request.estimand in ("OLS", "LATE", COHORTS)
    if result.estimate.averages is None or bare:
        return ""
    found = looks.sensitivity_of(result, alpha)
    return "" if found.randomised else found.sentence


def _range(domain: Domain) -> str:
    if isinstance(domain, Interval):
        return f"[{domain.lo:.6g}, {domain.hi:.6g}]"
    return "[0, 1]"


def _sources(result: base.ReleasedFit) -> tuple[view.VarianceSource, ...]:
    found = result.estimate.averages
    # There is only one number; the notes explain it.
    if found is None or result.plan.request.mode == "paper":
        return ()
    at = result._lead
    total = float(found.cov[at, at])
    parts = (
        ("sampling", float(found.sampling[at, at]), "random sampling of rows"),
        ("privacy", float(found.privacy[at, at]), "noise added for privacy"),
        ("nuisances", float(found.remainder[at] ** 2), "error of the nuisance models"),
    )
    if not np.isfinite(total):
        return ()
    return tuple(
        view.VarianceSource(name, float(np.sqrt(v)), v / total, words)
        for name, v, words in parts
        if v > 0
    )


def _bias(result: base.ReleasedFit, z: float) -> str:
    found, at = result.estimate.averages, result._lead
    if found is None or not 0 < found.clipping[at] < np.inf or not 0 < found.sd[at] < np.inf:
        return ""
    of = f" of {found.names[at]}" if len(found.terms) + len(found.groups) > 1 else ""
    factor, normal = f"{found.half_widths(z)[at] / found.sd[at]:.2f}", f"{z:.2f}"
    said = f"to cover it, the interval uses {factor} std err, not {normal}"
    return "" if factor == normal else f"Max bias{of} from clipping: {said}."


def _late_interval(found: AverageEstimate, z: float, alpha: float) -> str:
    """How the interval of the LATE is made, and its confidence set if that is not finite."""
    parts = late_set(found, z)
    closed = len(parts) == 1 and np.isfinite(parts[0]).all()
    said = "The interval inverts the test of Anderson and Rubin, so it need not be symmetric."
    return said if closed else f"{said} {set_words(parts, alpha)}"


def set_words(parts: Sequence[tuple[float, float]], alpha: float) -> str:
    """A confidence set of the LATE as a sentence."""
    shown = " or ".join(part_words(low, high) for low, high in parts) or "empty"
    return f"{tables.confidence(alpha)} confidence set of the LATE: {shown}."


def part_words(low: float, high: float) -> str:
    """One interval of a confidence set in words."""
    ends = [tables.number(x, 3) for x in (low, high)]
    if np.isinf(low):
        return "any value" if np.isinf(high) else f"below {ends[1]}"
    return f"above {ends[0]}" if np.isinf(high) else f"from {ends[0]} to {ends[1]}"


def _with_declared(budget: pd.DataFrame) -> pd.DataFrame:
    """The budget with a free first line if bounds were declared."""
    if (budget["stage"] == "bounds").any():
        return budget
    line = dict.fromkeys(budget.columns, 0.0) | {
        "stage": "bounds", "query": "declared", "mechanism": "", "noise_sd": np.nan,
        "neighbors": budget["neighbors"].iloc[0], "rows": 0.0, "parallel": False,
    }  # fmt: skip
    return pd.concat([pd.DataFrame([line]), budget], ignore_index=True)


def _promise(result: base.ReleasedFit) -> tuple[str, ...]:
    promise = result.guarantee
    if promise.kind == "none":
        return (promise.statement,)
    change = guarantee.neighboring(promise.neighbors, promise.unit)
    head = f"{promise.short}. Neighboring data sets: {change}."
    weak = weak_promise(promise.epsilon, promise.delta, result.estimate.size)
    if promise.kind == "proven" and promise.trade_off is not None:
        right = 0.5 * (1 + promise.trade_off.delta(0.0))
        return (head, tables.guess_sentence(right, promise.unit, promise.neighbors), *weak)
    odds = tables.odds_sentence(promise.epsilon, promise.delta, promise.neighbors)
    if promise.kind == "published":
        why: tuple[str, ...] = (guarantee.HANDED_OVER,)
        if result.plan.stages:
            why = guarantee.published_doubts(result.estimate)
        return (head, *why, f"If the claim is true, the following holds. {odds}", *weak)
    return head, odds, *weak


NO_LIMITS = (
    "most outcomes are at one of the declared bounds.",
    "the instrument may have no effect on the treatment.",
)


def _found(result: base.ReleasedFit, alpha: float) -> tuple[str, ...]:
    estimate = result.estimate
    request = estimate.plan.request
    outcome = measured(request) or outcome_name(request, estimate.schema)
    treatment = request.formula.treatment
    if estimate.averages is None:
        return (f"The effect of {treatment} on {outcome} was estimated by covariates.",)
    table, row = result._table(alpha), result._headline(alpha)
    if request.estimand == "OLS":
        told = tables.error_text(row["std_error"], row["se_sampling"])
        terms = ", ".join(map(str, request.formula.terms)) or "a constant"
        return (
            f"{outcome} was regressed on {terms}.",
            f"The standard error of {row.name} is {told}.",
        )
    if request.estimand == COHORTS:
        treatment = "treatment"
        if np.isnan(row["estimate"]):
            return ("No cohort and its controls are large enough to detect.",)
    noise = (
        "The interval accounts for sampling and for privacy noise."
        if request.mode == "paper"
        else f"The standard error is {tables.error_text(row['std_error'], row['se_sampling'])}."
    )
    over = words_of(request).over
    if request.per_unit:
        treatment = f"one more unit of {treatment}"
    elif request.arms:
        treatment = f"{treatment} {request.arms[1]} instead of {request.arms[0]}"
    value, low, high = tables.interval(row, digits=2)
    level = tables.confidence(alpha)
    between = f"with {level} confidence, the true effect is between {low} and {high}."
    settled = row["conf_low"] * row["conf_high"] > 0
    if np.isnan(row["conf_low"]):
        return (
            f"{over}, no effect of {treatment} on {outcome} is compatible with all instruments.",
        )
    if not settled and np.isinf(row["conf_low"]):
        return (
            f"{over}, the effect of {treatment} on {outcome} has no finite {level} interval: "
            + NO_LIMITS[estimate.averages.limited],
        )
    if settled:
        verb = "raises" if row["estimate"] > 0 else "lowers"
        first = f"{over}, {treatment} {verb} {outcome} by {value.lstrip('-')}."
        second = f"{between[:1].upper()}{between[1:]} {noise}"
    else:  # The direction of the effect is not established.
        over = f"{over[:1].lower()}{over[1:]}"
        first = f"The data do not show whether {treatment} raises or lowers {outcome} {over}."
        second = f"The estimate is {value}; {between} {noise}"
    found, treatment = [first, second], request.formula.treatment
    others = [f"{treatment} {arm} instead of {request.arms[0]}" for arm in request.arms[2:]]
    for place, name in enumerate([*others, *request.averages[1:]], 1):  # not covered above
        value, low, high = tables.interval(table.iloc[place], digits=2)
        found.append(f"{name}: {value} ({low} to {high}).")
    return tuple(found)


def _adjustment(averages: AverageEstimate | None) -> str:
    """How far adjustment for covariates moved the first average, and what noise hides of it."""
    if averages is None or not np.isfinite(averages.unadjusted):
        return ""
    values = tables.alike([averages.unadjusted, float(averages.estimate[0])], averages.sd[0])
    return (
        f"Adjustment for covariates moved the estimate from about {values[0]} to {values[1]}. "
        f"Noise hides about {averages.hidden:.0%} of what adjustment could do; the interval allows "
        "for it."
    )


def _protected(promise: guarantee.Guarantee) -> str:
    price = at_most(promise.epsilon) if promise.delta == 0 else pair(promise.epsilon, promise.delta)
    price += "-differential privacy"
    if promise.statement == guarantee.HANDED_OVER:
        return f"The publisher of the table claims {price}. This claim is not proven."
    return {
        "proven": f"All results of this fit together satisfy {price} at the level of "
        f"{promise.unit}.",
        "published": f"The method's paper claims {price} at the level of {promise.unit}. This "
        "claim is not proven, and it is false in known cases."
        if promise.trade_off is None
        else f"The estimators used declare {price} at the level of {promise.unit}. This claim is "
        "not proven.",
        "none": "NOT PRIVATE: computed with test noise.",
    }[promise.kind]


def _notes(result: base.ReleasedFit, said: estimators.Description, bought: bool) -> tuple[str, ...]:
    estimate, request = result.estimate, result.plan.request
    clipped = said.adjusts and request.propensity is None and request.divides
    counted = "rows" if request.trust.unit is None else "units"
    public = {
        f"the number of {counted}": estimate.size is not None,
        "the bounds": not bought,
        "the propensity": isinstance(request.propensity, float),
        "the arms' shares": isinstance(request.propensity, Mapping),
        "the clipping limits": clipped,
    }
    inputs = _public_inputs([name for name, is_public in public.items() if is_public])
    alerts = (*result.alerts.values(), *_unlimited(result), inputs)
    return (*alerts, *said.reading, *said.bands, *said.notes, *estimate.notes)


def _unlimited(result: base.ReleasedFit) -> tuple[str, ...]:
    """The ratios whose interval has an infinite side."""
    if not result.plan.request.ratios:
        return ()
    frame = result._table()
    lacks = {"lower": frame["conf_low"] <= 0, "upper": frame["conf_high"] == np.inf}
    open_ = [
        f"{row} has no {side} limit"
        for row in result._rows()
        for side, lack in lacks.items()
        if row.kind == "ratio" and lack[str(row)]
    ]
    why = "the noise is too large to rule out a risk of 0 (for an odds ratio, also of 1)"
    return (f"{' and '.join(open_)}: {why}.",) if open_ else ()


NOISY = "all numbers computed from the rows are noisy releases or derived from them."


def _public_inputs(names: list[str]) -> str:
    """A sentence that says which numbers are public inputs and which are noisy releases."""
    if not names:
        return f"{NOISY[:1].upper()}{NOISY[1:]}"
    *most, last = names
    comma = "," * (len(most) > 1)
    said = f"{', '.join(most)}{comma} and {last}" if most else last
    plural = len(names) > 1 or (last.endswith("s") and "number of" not in last)
    inputs = "are public inputs" if plural else "is a public input"
    return f"{said[:1].upper()}{said[1:]} {inputs}; {NOISY}"


def _complete(estimate: estimators.Estimate) -> tuple[view.Pair, ...]:
    """The released number of complete rows ± two noise sds, and the share of treated."""
    size, sd = complete_rows(estimate)
    if not sd > 0:
        return ()
    found, count = estimate.averages, (COMPLETE, f"{size:,.0f} ± {2 * sd:,.0f}")
    if found is None or np.isnan(found.treated):
        return (count,)
    return count, ("Treated (noisy)", f"{found.treated:.0%}")


COMPLETE = "Complete (noisy)"
"""Label of the noisy number of complete rows."""


def _parallel(plan: Plan) -> str:
    # A joint trade-off function of all stages is charged as a whole, without brackets.
    if plan.trade_off is not None or not any(stage.parallel for stage in plan.stages):
        return ""
    return (
        "Costs in brackets are not charged again: these releases read disjoint rows, and an equal "
        "cost is already charged (parallel composition)."
    )
