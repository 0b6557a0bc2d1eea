"""From a learner's needs to a plan: stages with their integer shares of rho."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from privcausal import accounting
from privcausal.accounting.price import exact
from privcausal.errors import BudgetError, CapabilityError, FormulaError, SchemaError
from privcausal.estimators.bases import PrivateBase
from privcausal.features.design import design_of, read_queries, warn_beyond
from privcausal.inference.effects import FEW_SDS
from privcausal.inference.ranges import COARSE_STANDS_OUT, ROOM, USUAL_SHARE
from privcausal.prices import DELTA_DIGITS, at_most
from privcausal.request.checks import check_domains
from privcausal.request.formula import group_columns, quoted
from privcausal.request.panels import Staggered
from privcausal.request.request import (
    OVER_ROWS,
    RATIOS,
    Plan,
    Request,
    Stage,
    StageKey,
    divide,
    portions,
)
from privcausal.request.schema import Binary, Domain, Header, Interval, Levels, Schema
from privcausal.typing import Vector

# -- division of rho ---------------------------------------------------------------------------
#
# Rho is divided among the groups of stages, then among the stages of a group. A stage's share of
# its group is its weight over the sum of the weights of the group's planned stages. These numbers
# do not follow from a theorem. They come from trials on simulated distributions, with these names:
#
# - *sketch*: setups A to E of Niu et al. (2022); halving or doubling one weight changed little;
# - *random laws*: `tests/benchmarks/coverage/random_laws.py`;
# - *named laws*: `tests/benchmarks/rough_laws.py`;
# - *effect laws*: `tests/benchmarks/effect_laws.py`, with all trials in `cate/log.md` there;
# - *building half*: the first half of the scenarios in `tests/benchmarks/lab`;
# - *library*: estimates on public data sets, `tests/benchmarks/everyday.py`;
# - *public data*: the data sets `BUILDING` in `tests/benchmarks/regress.py`;
# - *by hand*: without a recorded comparison.

TOP_BOUNDS = 0.1
"""Privately estimated bounds: they come first, and all later stages depend on them. By hand."""
TOP_NUISANCE = 0.375
"""As much as for the effect; 0.33 against 0.42 made errors of tau(x) larger. Effect laws."""
TOP_EFFECT = 0.375
"""The main result of the fit. Sketch."""
TOP_AVERAGE = 0.25
"""With 0.15, intervals of averages are 16% wider and errors of tau(x) 3% smaller. Library."""

TOP = {
    "bounds": TOP_BOUNDS, "nuisance": TOP_NUISANCE, "effect": TOP_EFFECT, "average": TOP_AVERAGE,
}  # fmt: skip
"""Shares of the groups of learners of tau(x)."""

LABELS_DELTA = 0.1
"""Part of delta for labels found by threshold; the other stages lose almost no rho."""

# The stages that a plan itself must know. All others stand where they are released.
MAGNITUDES, GRID = StageKey("bounds", "magnitudes"), StageKey("bounds", "grid")
ROW_WEIGHTS = StageKey("nuisance", "survey weights")
GRAM = StageKey("nuisance", "moments")


def levels(column: str) -> StageKey:
    """The stage of an undeclared column's labels."""
    return StageKey("bounds", f"levels of {column}")


LEAST_PART = 20
"""Minimum number of rows in a part of a split for boosting or a user's estimator."""


Borders = Callable[[Interval], Vector]
"""From an outcome's bounds to the borders of the cells for its height above the lower bound."""


class Step(NamedTuple):
    """A release in a learner's list of steps. The page of constants gives reasons of weights."""

    # The stage, or the stages of a request, such as one for each arm
    key: StageKey | Callable[[Request], Sequence[StageKey]]
    # The weight inside the group of the stage, or the weight for a request
    weight: float | Callable[[Request], float]
    # Conditions of request and base (`conditions`), all of which must hold; "not " negates one
    when: tuple[str, ...] = ()
    # Borders of a histogram of the outcome, which the first pass over the rows then computes
    borders: Borders | None = None


Weights = dict[StageKey, float]
"""The planned stages in order, with their weights inside their groups."""


def stage_weights(steps: Sequence[Step], request: Request, base: PrivateBase) -> Weights:
    """The planned stages of a fit.

    The noise sd falls with the square root of a stage's weight. Each of several stages gets the
    weight of one stage divided by the square root of their number. For one stage per arm, the total
    weight therefore grows in proportion to the arms' errors.
    """
    weights: Weights = {}
    holds = conditions(request, base)
    for step in steps:
        if all(holds[c.removeprefix("not ")] != c.startswith("not ") for c in step.when):
            keys = [step.key] if isinstance(step.key, StageKey) else step.key(request)
            weight = step.weight(request) if callable(step.weight) else step.weight
            weights |= dict.fromkeys(keys, weight / math.sqrt(len(keys)))
    return weights


def conditions(request: Request, base: PrivateBase) -> dict[str, bool]:
    """What the steps of a learner may depend on."""
    domain, arms = request.schema.get(request.formula.outcome), bool(request.arms)
    propensity, weights = request.propensity is not None, request.weights is not None
    # an outcome of unknown range: no two values, and no scores of survival times
    wide = request.horizon is None and (domain is None or isinstance(domain, Interval))
    several = base.interactions and len(request.formula.terms) > 1
    return {
        "wide": wide,
        "sized": wide or weights,  # Sizes of a binary outcome's scores are known without weights
        "wide or arms": wide or arms,
        "arms": arms,  # Several of them
        "known propensity": propensity,
        "products": not propensity and not arms and several,  # Learned, by the base
        "weights": weights,
        "released weights": base.released_weights,  # The base releases their Gram matrix
        "loose bounds": bool(ranged(request, request.schema)),  # Declared, of any covariate
        "clusters": request.cluster is not None,
        "horizon": request.horizon is not None,
        "dose": request.dose,
        "robust errors": request.cov_type != "nonrobust",
        # Only an average released alone has slopes, so has a sandwich
        "sandwich": request.cov_type == "HC0" and not arms,
    }


def ranged(request: Request, schema: Schema) -> tuple[str, ...]:
    """Numeric covariates, treatment and instrument whose declared bounds may be narrowed.

    Excluded are columns of groups, a column with a known propensity, and columns of a term whose
    options fix points in the range (the knots of a spline).
    """
    formula = request.formula
    terms = (*formula.modifiers, *formula.controls)
    factors = [f for t in terms for f in t.factors]
    fixed = {v for f in factors if f.options and f.kind != "smooth" for v in f.variables}
    fixed |= {*group_columns(request.groups)}
    if isinstance(request.propensity, str):  # a known propensity must not change
        fixed.add(request.propensity)
    names = dict.fromkeys((*(v for f in factors for v in f.variables), *of_slopes(request)))
    declared = (v for v in names if isinstance(request.schema.get(v), Interval))
    return tuple(v for v in declared if v not in fixed and isinstance(schema[v], Interval))


def of_slopes(request: Request) -> tuple[str, ...]:
    """The treatment and the instruments, if they are numbers."""
    taken: tuple[str, ...] = (request.formula.treatment,) if request.per_unit else ()
    several = request.formula.instruments if len(request.formula.instruments) > 1 else ()
    taken += tuple(z for z in several if isinstance(request.schema.get(z), Interval))
    return tuple(dict.fromkeys((*taken, request.formula.assigned) if request.dose else taken))


def for_products(request: Request, most: float) -> float:
    """The weight of a release of products: `most` from this n eps on, and proportional to it below.

    It is at least a hundredth of `most`. With few rows noise hides most products, and the additive
    part gains more from their budget. Product laws of 1,000 and 4,000 rows at eps = 1 are covered
    70% of the time, 62% without these releases, and 63% with weights that fall with the square.
    """
    return most * min(max(n_eps(request) / PRODUCT_ROWS, 0.01), 1.0)


PRODUCT_ROWS = 10_000.0
"""Number of rows times epsilon from which products have their whole budget. Everyday laws."""


def n_eps(request: Request) -> float:
    """Number of rows times epsilon; infinite if the number of rows is private."""
    return math.inf if request.nobs is None else max(request.nobs, 1) * request.budget.epsilon


def by_nobs(request: Request, most: float, least: float, rows: float) -> float:
    """The weight of a histogram: `most` up to this n eps, then falling as its noise does.

    Its squared noise, relative to the rows, falls as 1 / (n eps)^2. Private numbers of rows and
    several arms have `most`.
    """
    if request.nobs is None or request.arms:
        return most
    return max(most * min(rows / n_eps(request), 1.0) ** 2, least)


def for_marginals(request: Request, least: float) -> float:
    """The weight that makes the noise of a histogram's cell about 6% of the rows, or `least`.

    A row changes a cell of each column, so that the squared noise, relative to the rows, grows with
    the number of columns over (n eps)^2. The spread of a column whose bounds are at five standard
    deviations is then known to about a third.
    """
    columns = {v for term in request.formula.terms for v in term.variables}
    needed = MARGINALS_WEIGHT * len(columns) / n_eps(request) ** 2
    return min(max(needed, least), MOST_MARGINALS)


MARGINALS_WEIGHT, MOST_MARGINALS = 30_000.0, 0.5
"""Factor and largest weight of the histograms. Everyday laws."""


class Undeclared(NamedTuple):
    """Columns with privately estimated domains: intervals for numbers, levels for labels.

    `integers` are columns that hold whole numbers by their public type, declared or not.
    """

    numbers: tuple[str, ...]
    labels: tuple[str, ...]
    integers: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.numbers or self.labels)


def whole_covariates(request: Request, header: Header) -> Request:
    """The request, with two values for covariates of whole numbers that have bounds (0, 1).

    Their other values are missing. Two values need fewer features than a range of numbers: over
    117 everyday laws at eps = 1, intervals of regressions are 19% narrower and those of averages
    4%. Outcomes stay numbers, because the histogram of a rare outcome narrows its scores.
    """
    formula = request.formula
    fixed = {*group_columns(request.groups), *formula.coded, formula.outcome}
    fixed.add(str(request.propensity))
    fixed |= set(request.queries.columns) if request.queries is not None else set()
    columns = {
        name: Binary([False, True] if header.kinds[name] == "bool" else [0, 1])
        for name in formula.variables
        if request.schema.get(name) == Interval(0.0, 1.0)
        and (name in header.integers or header.kinds[name] == "bool")
        and name not in fixed
    }
    return replace(request, schema=request.schema.with_columns(columns)) if columns else request


def resolve_domains(request: Request, header: Header) -> tuple[Schema, Undeclared]:
    """Known domains, and the columns whose domains must be estimated; checked against data types.

    An undeclared bool column is 0/1. An undeclared treatment of bool or numeric type is 0/1 too,
    and its other values count as missing.
    """
    formula, free = request.formula, {}
    numbers, labels = [], []
    for name in request.columns:
        if name in request.schema or name == request.trust.unit:
            continue
        kind = header.kinds[name]
        if name in formula.coded or kind == "bool":
            free[name] = Binary([False, True] if kind == "bool" else [0, 1])
        elif kind == "text" or name in formula.categorical:
            labels.append(name)
        else:
            numbers.append(name)
    undeclared = Undeclared(tuple(numbers), tuple(labels), header.integers)
    schema = as_coded(request.schema.with_columns(free), request)
    check_domains(request, schema, numbers, labels, quote=not header.untyped)
    # the level that ``C(x, ref=...)`` names comes first
    reordered = {}
    for name, ref in formula.references.items():
        domain = schema[name]
        assert isinstance(domain, Levels)
        values = [ref, *(v for v in domain.values if v != ref)]
        reordered[name] = Levels(values, other=domain.other)
    schema = schema.with_columns(reordered) if reordered else schema
    # Dummies of all declared levels, and their products, are counted before they are created.
    columns = [[schema.get(v) for v in term.variables] for term in formula.terms]
    sizes = [math.prod(len(d.labels) for d in term if isinstance(d, Levels)) for term in columns]
    if sum(sizes) > MOST_COLUMNS:
        raise CapabilityError(
            f"The declared levels in this formula make more than {MOST_COLUMNS:,} columns. Declare "
            "fewer levels (with other=True for the rest), or remove products of factors."
        )
    # Terms with declared domains must be finite there: `Design` evaluates a grid. Regressions
    # cannot tell columns apart that are linearly dependent there, so they refuse them.
    declared = tuple(t for t in formula.terms if all(v in schema for v in t.variables))
    design = design_of(declared, schema, full_rank=not formula.treatment)
    if not formula.treatment and (names := design.dependent()):
        raise FormulaError(
            f"Collinear columns: {', '.join(map(repr, names))}. Whatever the data, one of them is "
            "a linear function of the others and the intercept. Leave one of them out."
        )
    # the points must be readable before budget is spent: this needs declared domains
    if request.queries is not None:
        estimated = {*undeclared.numbers, *undeclared.labels} & set(request.queries.columns)
        if estimated:
            raise SchemaError(
                f"queries= requires declared bounds for {', '.join(map(repr, sorted(estimated)))}, "
                "because the points are read before any budget is spent."
            )
        design = design_of(formula.modifiers, schema, full_rank=False)
        read_queries(request.queries, design)
        warn_beyond(design, request.queries.columns)
    return schema, undeclared


def as_coded(schema: Schema, request: Request) -> Schema:
    """Treatment, instrument and a two-label outcome as 0/1."""
    changed: dict[str, Binary] = {}
    formula = request.formula
    coded = (formula.event,) if request.per_unit else (formula.treatment, formula.event)
    changed |= {name: Binary() for name in coded if isinstance(schema.get(name), Interval)}
    for name in (*formula.coded, formula.outcome):
        domain = schema.get(name)
        if isinstance(domain, Levels) and not (request.arms and name == formula.treatment):
            changed[name] = Binary(list(domain.values))
    return schema.with_columns(changed) if changed else schema


MOST_COLUMNS = 1000
"""Maximum number of columns; the noise of a wider Gram would take minutes and gigabytes."""


def check_plan(fit: Plan, schema: Schema, functions: int) -> None:
    """Refuse a kind of covariance that no release serves, and a Gram with too many columns."""
    kind = fit.request.cov_type
    if kind != "nonrobust" and not any("squared" in stage.query for stage in fit.stages):
        raise CapabilityError(
            f"cov_type={kind!r} has no use here, because all standard errors of this fit allow for "
            "unequal variances. Omit cov_type=."
        )
    if fit.has(GRAM):
        check_features(fit.request, schema, functions)


def check_features(request: Request, schema: Schema, functions: int) -> None:
    """Refuse more columns of a Gram than `MOST_COLUMNS`; smooth columns have several functions.

    A column without a domain counts as a number, or as one level.
    """
    terms = (*request.formula.modifiers, *request.formula.controls)
    names = {name for term in terms for name in term.variables if name not in schema}
    labels = set(request.formula.categorical) & names
    some: dict[str, Domain] = dict.fromkeys(names, Interval(0.0, 1.0))
    some |= dict.fromkeys(labels, Levels(["other"], other=True))
    design = design_of(terms, schema.with_columns(some), full_rank=functions == 1)
    smooth = [c for c in design.columns if c.kind == "numeric" and functions > 1]
    sizes = [design.smooth.get(c.variable or "") or functions for c in smooth]
    count = len(design.columns) + sum(sizes) - len(smooth)
    if count > MOST_COLUMNS:
        raise CapabilityError(
            f"The formula makes {count:,} columns with this base, but at most {MOST_COLUMNS:,} are "
            "allowed. Use fewer covariates or levels, or base='linear', which has one column per "
            "number."
        )


def check_levels(request: Request) -> None:
    """Refuse a factor with one declared level, because a shape needs at least two bins."""
    for term in request.formula.terms:
        for name in term.variables:
            domain = request.schema.get(name)
            if isinstance(domain, Levels) and len(domain.labels) < 2:
                raise SchemaError(
                    f"{name!r} has only one declared level. Declare all its levels, or remove it "
                    "from the formula."
                )


def _check_estimands(
    request: Request, learner: str, weights: Weights, undeclared: Undeclared
) -> None:
    """Refuse ratios and means of a numeric outcome, and weights that no stage would use."""
    name = request.formula.outcome
    domain = request.schema.get(name)
    wide = isinstance(domain, Interval) and (domain.lo, domain.hi) != (0.0, 1.0)
    if request.ratios and (wide or name in (*undeclared.numbers, *undeclared.labels)):
        limit, rest = "limit", f" If it holds only 0 and 1, declare bounds={{{name!r}: [0, 1]}}."
        if isinstance(domain, Interval):
            middle = f"{0.5 * (domain.lo + domain.hi):g}"
            limit, rest = middle if request.formula.response is None else limit, ""
        raise CapabilityError(
            f"{request.ratios[0]} compares risks, which need an outcome of two values. Compare "
            f"{name!r} with a limit, and declare its bounds: 'I({quoted(name)} > {limit}) ~ ...'."
            f"{rest}"
        )
    wide = wide or name in undeclared.numbers
    if "means" in request.more and wide and learner != "difference":
        raise CapabilityError(
            f"estimand='means' of the numeric outcome {name!r} requires a trial without covariates "
            f"or weights, {f'{name} ~ {request.formula.treatment}'!r}, where means are free. "
            "Otherwise they would widen the interval of the ATE."
        )
    if request.weights is not None and ROW_WEIGHTS not in weights:
        *names, last = map(repr, (*OVER_ROWS, *RATIOS))
        raise CapabilityError(
            f"weights= requires regress(), one of the estimands {', '.join(names)} and {last} of "
            "private(), or one of the learners 'r', 'dr', 's', 't', 'x' and 'auto' of privcate(), "
            "with base 'gam' or 'linear'."
        )


def make_plan(
    request: Request,
    learner: str,
    base: str,
    weights: Weights,
    top: Mapping[str, float],
    undeclared: Undeclared,
    failing: Mapping[StageKey, int] | None = None,
) -> Plan:
    """Integer budgets for every stage; their sum never exceeds what (eps, delta) allows.

    `failing` holds, in pico-delta, the probability that the proof of a stage fails if the number of
    rows is not public.
    """
    _check_estimands(request, learner, weights, undeclared)
    budget, selection = request.budget, 0  # pico-delta for each column with selected labels
    if undeclared.labels:
        delta = int(budget.delta * LABELS_DELTA * accounting.PICO)
        selection = delta // len(undeclared.labels)
        if selection < 1:
            raise BudgetError(
                "delta is too small to select labels. Declare the levels of text columns."
            )
    deltas = dict(failing or {}) if request.trust.neighbors == "add_remove" else {}
    reserved = sum(deltas.values())
    if reserved and reserved >= exact(budget.delta) * accounting.PICO:
        raise BudgetError(
            f"delta is too small for learner {learner!r} with neighbors={request.trust.neighbors!r}"
            f". The learner reserves {at_most(reserved / accounting.PICO, DELTA_DIGITS)} of delta "
            "for the failure probability of its proof. Use a larger delta."
        )
    spent = selection * len(undeclared.labels) + reserved
    total = accounting.rho_of(budget.epsilon, accounting.delta_after(budget.delta, spent), gdp=True)
    groups = list(dict.fromkeys(key.group for key in weights))
    defaults = {g: top[g] for g in groups} | ({"bounds": top["bounds"]} if undeclared else {})
    shares = divide({k: defaults[k] for k in top if k in defaults}, budget.shares)
    stages: list[Stage] = []
    if undeclared:  # labels of text columns, then bounds of numbers
        columns = len(undeclared.numbers)
        labels = dict.fromkeys(map(levels, undeclared.labels), selection)
        bounds = dict.fromkeys(labels, 1.0)
        bounds |= {key: 0.5 * columns for key in (MAGNITUDES, GRID) if columns}
        stages = _sequential(bounds, int(total * shares.get("bounds", 0.0)), labels)
    left = total - sum(s.rho for s in stages)
    for name, share in shares.items():
        if share <= 0 and name != "average":
            raise BudgetError(f"shares= must leave budget for {name!r}, which this fit requires.")
    parts = divided({key: w for key, w in weights.items() if shares[key.group] > 0}, shares)
    if request.split != "disjoint":
        stages += _sequential(parts, left, deltas)
    elif request.trust.unit is None or request.trust.neighbors == "add_remove":
        stages += _parallel(parts, left, deltas)
    else:
        # Two disjoint halves that share rho: for units under substitution. Units are assigned to
        # the halves by pseudorandom bits keyed on their names. On average over the key, the halves
        # compose in parallel. For a given key, replacing a unit may change both halves. Because the
        # halves share rho, the guarantee holds for every key, even if the key becomes known.
        halves = zip(parts, _sequential(parts, left, deltas), strict=True)
        stages += [
            replace(stage, rows=0.5, part="nuisance" if key.group == "nuisance" else "effect")
            for key, stage in halves
        ]
    return Plan(request, learner, base, tuple(stages), total, gdp=True)


def noise_sd(fit: Plan, stage: StageKey, change: float, unit: float = 1.0) -> float:
    """Noise sd of a sum at the stage's budget, if one row changes the sum by `change` units."""
    largest = change * fit.request.trust.max_rows * unit
    return float(largest / np.sqrt(2 * fit.stage(stage).rho / accounting.PICO))


def check_rows(
    fit: Plan, undeclared: Undeclared, size: int | None, counted: tuple[float, int]
) -> None:
    """Refuse a fit that noise would hide with this public number of rows or units.

    This is the only such rule, and it comes before any charge. Estimated bounds need as many rows
    as show the size of a usual column. A comparison needs two groups of more than `FEW_SDS` noise
    sds each, and a mean needs one. `counted` is the learner's noise sd of the count of a group, and
    number of groups.

    Raises
    ------
    BudgetError
        There are too few rows or units.
    """
    if size is None:
        return
    columns, (sd, groups), trust = len(undeclared.numbers), counted, fit.request.trust
    kind = "rows" if trust.unit is None else "units"
    if not groups and 0 < size <= FEW_SDS * sd:
        raise BudgetError(
            f"The data have too few {kind} for this budget: noise would be large relative to the "
            f"moments of the columns. With these columns, {_enough(fit, size, FEW_SDS * sd, kind)}."
        )
    if 0 < size <= min(groups, 2) * FEW_SDS * sd:
        what = "cohorts" if isinstance(trust.panel, Staggered) else "groups"
        which = f"compare any two {what}" if groups > 1 else "estimate a mean"
        equal = f". For {groups} {what} of equal size, " if groups > 1 else ": "
        raise BudgetError(
            f"The data have too few {kind} to {which} with this budget{equal}"
            f"{_enough(fit, size, groups * FEW_SDS * sd, kind)}."
        )
    if not fit.has(MAGNITUDES):
        return
    change = np.sqrt((2.0 if trust.neighbors == "substitute" else 1.0) * columns)
    # so many rows show the size of a usual column, positive and negative together
    noise = noise_sd(fit, MAGNITUDES, float(change))
    needed = (COARSE_STANDS_OUT + ROOM) * float(np.sqrt(2.0)) * noise / USUAL_SHARE
    if size < (needed := needed / trust.max_rows):
        raise BudgetError(
            f"The data have too few {kind} to estimate bounds of {columns} "
            f"{'column' if columns == 1 else 'columns'} with this budget: "
            f"{_enough(fit, size, needed, kind)}. Declare the bounds of numeric columns: "
            f"bounds={{{undeclared.numbers[0]!r}: (lo, hi), ...}}, and [0, 1] if it has no other "
            "values."
        )


def _enough(fit: Plan, size: int, needed: float, kind: str) -> str:
    """The number of rows or units, or the epsilon, that would do."""
    eps, delta = fit.request.budget.epsilon, fit.request.budget.delta

    def precision(eps: float) -> float:
        return accounting.rho_of(eps, delta, fit.gdp) if fit.rho else eps**2

    enough = precision(eps) * (needed / max(size, 1)) ** 2
    while precision(eps) < enough and eps < LARGEST_REMEDY:
        eps = math.ceil(101 * eps) / 100
    remedy = f", or eps={eps:g}" if eps < LARGEST_REMEDY else ""
    return f"about {math.floor(needed) + 1:,} {kind} are required{remedy}. No budget was spent"


LARGEST_REMEDY = 32.0
"""Largest epsilon that an error message names."""


def divided(weights: Weights, shares: Mapping[str, float]) -> Weights:
    """Shares of the stages, from those of their groups."""
    whole = {g: sum(w for key, w in weights.items() if key.group == g) for g in shares}
    return {key: shares[key.group] * w / whole[key.group] for key, w in weights.items()}


def _sequential(parts: Weights, total: int, deltas: Mapping[StageKey, int]) -> list[Stage]:
    """Every stage reads all rows (or every fold) and has its share of rho."""
    amounts = portions(total, list(parts.values()))
    pairs = zip(parts, amounts, strict=True)
    return [Stage(key, amount, delta=deltas.get(key, 0)) for key, amount in pairs]


def _parallel(parts: Weights, total: int, deltas: Mapping[StageKey, int]) -> list[Stage]:
    """Two disjoint halves of the rows, each with all of rho: together they cost rho once.

    The stages of the second half are charged zero, because the first half has already paid the same
    amount. The zCDP cost of an adaptive sequence on disjoint rows is the cost of the most expensive
    part.
    """
    stages = []
    for part, first in (("nuisance", True), ("effect", False)):
        of_part = {key: w for key, w in parts.items() if (key.group == "nuisance") == first}
        if not of_part:
            raise CapabilityError("split='disjoint' requires a nuisance stage and an effect stage.")
        stages += [
            replace(stage, charged=stage.rho if first else 0, rows=0.5, part=part)
            for stage in _sequential(of_part, total, deltas)
        ]
    paid = [sum(s.rho for s in stages if s.part == part) for part in ("nuisance", "effect")]
    if paid[1] > paid[0]:  # rounding: the more expensive part pays
        last = stages[-1]
        stages[-1] = replace(last, charged=paid[1] - paid[0])
    return stages
