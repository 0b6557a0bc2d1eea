"""Convert a result to the plain values of its summary, plots and report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import cast

import numpy as np
import pandas as pd

from privcausal import estimators
from privcausal.accounting import weak_promise
from privcausal.estimators.estimands import Linked, complete_rows, tails, words_of
from privcausal.estimators.slopes import late_set
from privcausal.estimators.survival import measured
from privcausal.inference.cells import CellEffect
from privcausal.prices import at_most, pair, percent
from privcausal.report import tables
from privcausal.request.request import COHORTS, Request
from privcausal.request.schema import Binary, Interval, Levels, Schema
from privcausal.results import base, frames, guarantee, looks


def view_of(
    result: base.ReleasedFit, shapes: tuple[tables.Shape, ...], alpha: float
) -> tables.FitView:
    """All values that summary, plots and report show of a fit with these effect curves."""
    estimate, plan, promise = result.estimate, result.plan, result.guarantee
    request, z = plan.request, frames.quantile(alpha)
    trust, averages, words = request.trust, estimate.averages, words_of(request)
    region = ""
    if words.in_set and averages is not None:  # a set that is not one bounded interval
        parts = late_set(averages, z)
        if len(parts) != 1 or not np.isfinite(parts[0]).all():
            region = set_words(parts, alpha)
    description = estimators.describe(estimate)
    cohorts = request.estimand == COHORTS
    outcome = outcome_name(request, estimate.schema)
    left, right = _header(result, description, outcome)
    effects, gates = _effects(result, alpha, outcome)
    slopes = 0 if effects is None else sum(bool(row.column) for row in result._rows())
    cells = estimate.effect if isinstance(estimate.effect, CellEffect) else None
    persons = "One row is one person."
    if trust.unit is not None:
        used = f"at most {trust.max_rows} rows used" if trust.panel is None else "all of its rows"
        persons = f"The guarantee is for one {trust.unit}, with {used}."
    total = guarantee.price_text(promise.epsilon, promise.delta)
    if not estimate.real:
        total = "not private"
    elif promise.delta == 0:
        total = f"epsilon {at_most(promise.epsilon)}, pure"
    elif promise.kind == "published":
        total += " (claimed)"
    attack = None
    if promise.kind == "proven" and promise.trade_off is not None:
        alarms = np.linspace(0.0, 1.0, 101)
        attack = pd.DataFrame({"false_alarms": alarms, "power": 1 - promise.trade_off(alarms)})
    budget = result.budget
    if "bounds" not in set(budget["stage"]):  # a free first line if bounds were declared
        line = dict.fromkeys(budget.columns, 0.0) | {"stage": "bounds", "query": "declared"}
        line |= {"mechanism": "", "noise_sd": np.nan, "parallel": False}
        line["neighbors"] = budget["neighbors"].iloc[0]
        budget = pd.concat([pd.DataFrame([line]), budget], ignore_index=True)
    # A joint trade-off function of all stages is charged as a whole, without brackets.
    brackets = plan.trade_off is None and any(stage.parallel for stage in plan.stages)
    # Sensitivity is a sentence for studies that assume all confounders are measured.
    robustness, bare = "", request.mode == "paper" or request.regression
    bare = bare or request.estimand in ("LATE", COHORTS)
    if averages is not None and not bare:
        sensitivity = looks.sensitivity_of(result, alpha)
        robustness = "" if sensitivity.randomised else sensitivity.sentence
    variation = looks.variation(result, alpha) if shapes else ""
    sources, bias, adjustment = _uncertainty(result, z)
    brief, meaning, protected = _promise(result)
    # The assumption behind a finding; none if treatment was randomized.
    assumption = next(iter(description.assumptions), "").partition(":")[0].partition(" (")[0]
    only_if = f", if {CONDITIONS[assumption]}" if assumption in CONDITIONS else ""
    return tables.FitView(
        title="Private Average Treatment Effects" if len(request.averages) > 1 else words.title,
        outcome=measured(request) or outcome,
        treatment="treatment" if cohorts else request.formula.treatment,
        left=left,
        right=right,
        effects=effects,
        gates=gates,
        averages=0 if effects is None else len(effects) - slopes,
        cells=None if cells is None else frames.cell_table(cells, z),
        gains=None if cells is None else frames.gain_frame(cells, z),
        shapes=shapes,
        second="Coefficients" * request.regression or "Effects over time" * cohorts,
        scale=words.predicted if isinstance(words, Linked) else "predicted outcome",
        grouped="Effects by cohort and period" if cohorts else "Average effect by group",
        variation=variation,
        varies=variation != looks.FLAT,
        uncertainty=sources,
        bias=f"{bias} {region}".strip(),
        region=region,
        adjustment=adjustment,
        tails=" ".join(tails(estimate)),
        parallel=BRACKETS * brackets,
        budget=budget.replace({"stage": dict(description.stages)}),
        total=total,
        ledger=result.ledger_line,
        guarantee=meaning,
        promise=brief,
        attack=attack,
        kind=promise.kind,
        epsilon=promise.epsilon,
        delta=promise.delta,
        rho=promise.rho,
        neighbors=promise.neighbors,
        unit_sentence=persons,
        headline=(*_finding(result, alpha, only_if), protected),
        notes=_notes(result, description),
        serious=len(result.alerts),
        reading=() if request.regression else description.reading,
        assumptions=description.assumptions,
        robustness=robustness,
        methods=description.methods,
        call=result.call,
        versions=tuple((name, version_of(name)) for name in PACKAGES),
        alpha=alpha,
        lead=0 if averages is None or cohorts else result._lead,
    )


BRACKETS = (
    "Costs in brackets are not charged again: these releases read disjoint rows, and an equal cost "
    "is already charged (parallel composition)."
)


def _header(
    result: base.ReleasedFit, description: estimators.Description, outcome: str
) -> tuple[tuple[tables.Pair, ...], tuple[tables.Pair, ...]]:
    """The facts above the estimates, in two columns."""
    estimate, request, schema = result.estimate, result.plan.request, result.estimate.schema
    averages, formula, trust = estimate.averages, request.formula, request.trust
    periods = None if trust.panel is None else cast("Levels", schema[trust.panel.time]).values
    changes = periods is not None and request.estimand != COHORTS
    left = [("Dep. variable", f"change in {outcome}" if changes else outcome)]
    if periods:
        left.append(("Periods", f"{periods[0]} to {periods[-1]}"))
    if formula.treatment:
        coding, arms = schema[formula.treatment], " (1 vs. 0)"
        if isinstance(coding, Interval):
            raw = getattr(coding, "raw", coding)
            arms = f" in [{raw.lo:.6g}, {raw.hi:.6g}]"
        elif isinstance(coding, Levels):
            arms = f" ({len(coding.labels) - 1} arms vs. {coding.labels[0]})"
        elif isinstance(coding, Binary):
            arms = f" ({coding.one} vs. {coding.zero})"
        left.append(("Treatment", f"{formula.treatment}{arms}"))
    if formula.instruments:
        left.append(("Instrument", " + ".join(formula.instruments)))
    # The noisy number of complete rows with the sd of its noise, and the share of treated.
    complete = list[tables.Pair]()
    size, sd = complete_rows(estimate)
    if sd > 0:
        complete.append((tables.COMPLETE, f"{size:,.0f} (noise sd {tables.number(sd, 2)})"))
        if averages is not None and not np.isnan(averages.treated):
            complete.append(("Treated (noisy)", f"{averages.treated:.0%}"))
    rows = "Observations" if trust.unit is None else "Units"
    if estimate.size is not None:
        bound = "" if schema.complete or complete else "at most "
        left.append((rows, f"{bound}{estimate.size:,}"))
        left += [] if schema.complete else complete
    elif complete:
        left += [(rows, complete[0][1]), *complete[1:]]
    else:
        left.append((f"{rows} (noisy)", f"{estimate.population.count:,.0f}"))
    if outcome == formula.effect_on:
        low, high = result._outcomes
        left.append(("Outcome bounds", f"[{low:.6g}, {high:.6g}]"))
    left.append(("Formula", str(formula)))
    right = (
        ("Estimand", ", ".join(request.estimands)),
        ("Estimator", description.title),
        *description.rows,
        ("Bounds", "some estimated privately" if result._bought else "declared"),
        ("Neighboring data", guarantee.neighboring(trust.neighbors, result.guarantee.unit)),
    )
    return tuple(left), right


def _effects(
    result: base.ReleasedFit, alpha: float, outcome: str
) -> tuple[pd.DataFrame | None, pd.DataFrame | None]:
    """Estimates, and averages by group, if there are any.

    Of an event study: the overall average and the effects by event time; then all other effects.
    """
    request, averages = result.plan.request, result.estimate.averages
    if averages is None:
        return None, None
    gates = result._effects(alpha, groups=True) if averages.groups else None
    if request.estimand == COHORTS and gates is not None:
        tests = result._tests(alpha, groups=True).assign(mark="dp")
        places = [row.place.factor for row in result._rows(groups=True)]
        first = [tests[np.isin(places, [kind])] for kind in ("overall", "event")]
        gates = gates[np.isin(places, ["cohort", "calendar"])]
        return pd.concat(first), pd.concat([gates, result._effects(alpha, groups=False)])
    effects = result._tests(alpha)
    if outcome != request.formula.effect_on:
        effects.index.name = outcome
    derived = [row.kind in ("ratio", "late") for row in result._rows()]
    return effects.assign(mark=np.where(derived, "post", "dp")), gates


def outcome_name(request: Request, schema: Schema) -> str:
    """Name of the outcome; for an outcome of two labels, the probability of the second."""
    name, domain = request.formula.effect_on, schema.get(request.formula.outcome)
    if isinstance(domain, Binary) and domain.labels is not None:
        return f"P({name} = {domain.one!r})"
    return name


PACKAGES = ("privcausal", "opendp", "numpy", "formulaic")


def version_of(name: str) -> str:
    """The installed version of a package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _uncertainty(
    result: base.ReleasedFit, z: float
) -> tuple[tuple[tables.VarianceSource, ...], str, str]:
    """About the first number: sources of its error, its interval, and what adjustment did."""
    averages, lead, bias = result.estimate.averages, result._lead, ""
    sources: tuple[tables.VarianceSource, ...] = ()
    if averages is None:
        return (), "", ""
    # A published mechanism has only one number; the notes explain it.
    total = float(averages.cov[lead, lead])
    if result.plan.request.mode != "paper" and np.isfinite(total):
        parts = (
            ("sampling", float(averages.sampling[lead, lead]), "random sampling of rows"),
            ("privacy", float(averages.privacy[lead, lead]), "noise added for privacy"),
            ("nuisances", float(averages.remainder[lead] ** 2), "error of the nuisance models"),
        )
        sources = tuple(
            tables.VarianceSource(name, float(np.sqrt(v)), v / total, words)
            for name, v, words in parts
            if v > 0
        )
    # How the interval allows for bias, or how the interval of a LATE is made.
    if words_of(result.plan.request).in_set:
        bias = "The interval inverts the test of Anderson and Rubin, so it need not be symmetric."
    elif 0 < averages.clipping[lead] < np.inf and 0 < averages.sd[lead] < np.inf:
        several = len(averages.terms) + len(averages.groups) > 1
        of = averages.names[lead] if several else "the estimate"
        factor, normal = f"{averages.half_widths(z)[lead] / averages.sd[lead]:.2f}", f"{z:.2f}"
        if factor != normal:
            bias = (
                "Max bias: the influence of extreme rows was limited (clipped). Because this can "
                f"bias {of}, its interval extends {factor} standard errors to each side, not "
                f"{normal}."
            )
    # How far adjustment moved the first average, and the share that noise hides.
    adjustment = ""
    if np.isfinite(averages.hidden):
        if np.isfinite(averages.unadjusted):
            ends = [averages.unadjusted, float(averages.estimate[0])]
            before, after = tables.alike(ends, averages.sd[0])
            adjustment = (
                f"Adjustment for covariates moved the estimate from about {before} to {after}. "
            )
        share = "less than 1%" if averages.hidden < 0.005 else f"about {averages.hidden:.0%}"
        adjustment += (
            f"Noise hides {share} of the covariates' confounding; the interval allows for it."
        )
    return sources, bias, adjustment


def set_words(parts: Sequence[tuple[float, float]], alpha: float) -> str:
    """A confidence set of the LATE as a sentence."""
    listed = " or ".join(part_words(low, high) for low, high in parts) or "empty"
    return f"{tables.confidence(alpha)} confidence set of the LATE: {listed}."


def part_words(low: float, high: float) -> str:
    """One interval of a confidence set in words."""
    ends = [tables.number(x, 3) for x in (low, high)]
    if np.isinf(low):
        return "any value" if np.isinf(high) else f"below {ends[1]}"
    return f"above {ends[0]}" if np.isinf(high) else f"from {ends[0]} to {ends[1]}"


def _promise(result: base.ReleasedFit) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """The guarantee: with its caveats, also with its meaning for a person, and in a sentence."""
    promise = result.guarantee
    if promise.kind == "none":
        return (promise.statement,), (promise.statement,), "NOT PRIVATE: computed with test noise."
    change = guarantee.neighboring(promise.neighbors, promise.unit)
    head = f"{promise.short}, {change}."
    weak = weak_promise(promise.epsilon, promise.delta, result.estimate.size)
    price = at_most(promise.epsilon) if promise.delta == 0 else pair(promise.epsilon, promise.delta)
    price += "-differential privacy"
    level = f"{price} at the level of {promise.unit}"
    odds = tables.odds_sentence(promise.epsilon, promise.delta, promise.neighbors)
    if promise.kind == "published":
        why: tuple[str, ...] = (guarantee.HANDED_OVER,)
        if result.plan.stages:
            why = guarantee.published_doubts(result.estimate)
        if promise.statement == guarantee.HANDED_OVER:
            claim = f"The publisher of the table claims {price}. This claim is not proven."
        elif promise.trade_off is None:
            claim = f"The method's paper claims {level}. This claim is not proven, and it is false "
            claim += "in known cases."
        else:
            claim = f"The estimators used declare {level}. This claim is not proven."
        odds = f"If the claim is true, the following holds. {odds}"
        return (head, *why, *weak), (head, *why, odds, *weak), claim
    if promise.trade_off is not None:
        # Maximum success rate of a guess between two neighboring tables.
        row = promise.unit == "one row"
        if promise.neighbors == "substitute":
            others = "every row but one" if row else f"all data except those of {promise.unit}"
            rest = "this row is" if row else "these are"
            facts = f"{others}, and knows that {rest} one of two candidates, each equally likely"
            guess = "they identify the right one"
        else:
            included = "one given row is" if row else f"the data of {promise.unit} are"
            facts = (
                f"all other data and considers it equally likely that {included} included or not"
            )
            guess = "they decide correctly"
        right = percent(0.5 * (1 + promise.trade_off.delta(0.0)))
        odds = (
            f"Suppose someone knows {facts}. From all output of this fit, {guess} with probability "
            f"at most {right}% (chance: 50%)."
        )
    satisfied = f"All results of this fit together satisfy {level}."
    return (head, *weak), (head, odds, *weak), satisfied


NO_LIMITS = (
    "most outcomes are at one of the declared bounds.",
    "the instrument may have no effect on the treatment.",
)


CONDITIONS = {
    "No unmeasured confounding": "the covariates include all common causes of treatment and "
    "outcome",
    "Conditional parallel trends": "the treated would otherwise have changed like untreated "
    "units with the same covariates",
    "Parallel trends": "the treated would otherwise have changed like the untreated",
    "Exclusion": "the instrument is as good as random and acts only through the treatment",
}
"""Short forms of the assumptions that make a difference a causal effect, by their first words."""


def _finding(result: base.ReleasedFit, alpha: float, only_if: str) -> tuple[str, ...]:
    """Sentences on the effect and its uncertainty; `only_if` ends the claim of an effect."""
    estimate = result.estimate
    request = estimate.plan.request
    outcome = measured(request) or outcome_name(request, estimate.schema)
    treatment = request.formula.treatment
    if estimate.averages is None:
        return (f"The effect of {treatment} on {outcome} was estimated by covariates.",)
    table, row = result._table(alpha), result._headline(alpha)
    # Sampling variances are noisy, and raised by their noise.
    total, sampling = tables.alike([row["std_error"], row["se_sampling"]], row["std_error"])
    error = f"{total} (at most {sampling} from sampling alone)"
    if request.regression:
        terms = ", ".join(map(str, request.formula.terms)) or "a constant"
        value, low, high = tables.interval(row)
        limits = f"{tables.confidence(alpha)} interval {low} to {high}"
        words, ratio = words_of(request), ""
        if isinstance(words, Linked):
            article = "an" if words.exponential[0] in "aeiou" else "a"
            ratio = f" This is {article} {words.exponential} of {np.exp(row['estimate']):.3g}."
        return (
            f"{outcome} was regressed on {terms}.",
            f"The coefficient of {row.name} is {value} ({limits}). Its standard error is {error}."
            f"{ratio}",
        )
    if request.estimand == COHORTS:
        treatment = "treatment"
        if np.isnan(row["estimate"]):
            return ("No cohort and its controls are large enough to detect.",)
    noise = (
        "The interval accounts for sampling and for privacy noise."
        if request.mode == "paper"
        else f"The standard error is {error}."
    )
    population = words_of(request).over
    if request.per_unit:
        treatment = f"one more unit of {treatment}"
    elif request.arms:
        treatment = f"{treatment} {request.arms[1]} instead of {request.arms[0]}"
    value, low, high = tables.interval(row, digits=2)
    level = tables.confidence(alpha)
    limits = f"with {level} confidence, the true effect is between {low} and {high}"
    significant = row["conf_low"] * row["conf_high"] > 0
    if np.isnan(row["conf_low"]):
        none = f"no effect of {treatment} on {outcome} is compatible with all instruments."
        return (f"{population}, {none}",)
    if not significant and np.isinf(row["conf_low"]):
        return (
            f"{population}, the effect of {treatment} on {outcome} has no finite {level} interval: "
            + NO_LIMITS[estimate.averages.limited],
        )
    if significant:
        verb = "raises" if row["estimate"] > 0 else "lowers"
        first = f"{population}, {treatment} {verb} {outcome} by {value.lstrip('-')}{only_if}."
        second = f"{limits[:1].upper()}{limits[1:]}. {noise}"
    else:  # The direction of the effect is not established.
        population = f"{population[:1].lower()}{population[1:]}"
        first = f"The data do not show whether {treatment} raises or lowers {outcome} {population}."
        second = f"The estimate is {value}; {limits}{only_if}. {noise}"
    sentences, treatment = [first, second], request.formula.treatment
    names = [f"{treatment} {arm} instead of {request.arms[0]}" for arm in request.arms[2:]]
    for place, name in enumerate([*names, *request.averages[1:]], 1):  # not covered above
        value, low, high = tables.interval(table.iloc[place], digits=2)
        sentences.append(f"{name}: {value} ({low} to {high}).")
    return tuple(sentences)


def _notes(result: base.ReleasedFit, description: estimators.Description) -> tuple[str, ...]:
    estimate, request = result.estimate, result.plan.request
    notes = [*result.alerts.values()]
    if request.ratios:  # whose interval may have an infinite side
        frame = result._table()
        sides = {"lower": frame["conf_low"] <= 0, "upper": frame["conf_high"] == np.inf}
        unlimited = [
            f"{row} has no {side} limit"
            for row in result._rows()
            for side, has_none in sides.items()
            if row.kind == "ratio" and has_none[str(row)]
        ]
        why = "the noise is too large to rule out a risk of 0 (for an odds ratio, also of 1)"
        notes += [f"{' and '.join(unlimited)}: {why}."] if unlimited else []
    # The public inputs and the noisy releases.
    clipped = description.adjusts and request.propensity is None and request.divides
    counted = "rows" if request.trust.unit is None else "units"
    inputs = {
        f"the number of {counted}": estimate.size is not None,
        "the bounds": not result._bought,
        "the propensity": isinstance(request.propensity, float),
        "the arms' shares": isinstance(request.propensity, Mapping),
        "the clipping limits": clipped,
    }
    public = [name for name, is_public in inputs.items() if is_public]
    sentence = NOISY
    if public:
        *most, last = public
        listed = f"{', '.join(most)}{',' * (len(most) > 1)} and {last}" if most else last
        plural = most or (last.endswith("s") and "number of" not in last)
        sentence = f"{listed} {'are public inputs' if plural else 'is a public input'}; {NOISY}"
    notes.append(f"{sentence[:1].upper()}{sentence[1:]}")
    return (*notes, *description.reading, *description.bands, *description.notes, *estimate.notes)


NOISY = "all numbers computed from the rows are noisy releases or derived from them."
