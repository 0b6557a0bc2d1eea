"""From what a learner needs to a plan: stages with their integer shares of rho."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from privcausal.accounting import PICO, delta_after, rho_of
from privcausal.accounting.charge import exact
from privcausal.errors import BudgetError, CapabilityError, SchemaError
from privcausal.features.design import design_of
from privcausal.features.points import read_queries, warn_beyond
from privcausal.learners.shares import SHARES, Stages
from privcausal.prices import DELTA_DIGITS, at_most
from privcausal.request.factors import LABELLED, Factor
from privcausal.request.groups import numeric_group, parse_group, resolve_groups
from privcausal.request.header import Header
from privcausal.request.plan import Plan, Stage, StageKey, divide, portions
from privcausal.request.request import Request
from privcausal.request.schema import Binary, Interval, Levels, Schema

TOP = {
    "bounds": SHARES.top_bounds,
    "nuisance": SHARES.top_nuisance,
    "effect": SHARES.top_effect,
    "average": SHARES.top_average,
}


LEAST_PART = 20
"""Fewest rows in a part of a split where boosting or a user's estimator learns from it."""


@dataclass(frozen=True)
class StageWeight:
    """A release a learner will ask for, with its weight inside the group of its key.

    `failing` is in pico-delta: the chance that an assumption of its proof fails.
    """

    key: StageKey
    weight: float
    failing: int = 0


@dataclass(frozen=True)
class Undeclared:
    """Columns whose domain must be bought: intervals for numbers, levels for labels.

    `integers` are columns that hold whole numbers by their public type, bought or not.
    """

    numbers: tuple[str, ...]
    labels: tuple[str, ...]
    integers: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.numbers or self.labels)


def resolve_domains(request: Request, header: Header) -> tuple[Schema, Undeclared]:
    """Domains that need no purchase, and the columns that do; checked against data types.

    An undeclared bool column is 0/1; so is an undeclared treatment of bool or numeric type, any
    other value of which counts as missing.
    """
    formula, free = request.formula, {}
    numbers, labels = [], []
    for name in request.columns:
        if name in request.schema or name == request.trust.unit:
            continue
        kind = header.kinds[name]
        if name in (formula.treatment, formula.instrument) or kind == "bool":
            free[name] = Binary()
        elif kind == "text" or name in formula.categorical:
            labels.append(name)
        else:
            numbers.append(name)
    if formula.outcome in labels:
        raise SchemaError(
            f"outcome {formula.outcome!r} holds text; declare its two labels, the reference "
            f"first: bounds={{{formula.outcome!r}: ['no', 'yes']}}"
        )
    undeclared = Undeclared(tuple(numbers), tuple(labels), header.integers)
    if formula.outcome in numbers and request.tails == "any":
        raise SchemaError(
            f"tails='any' needs declared bounds of the outcome {formula.outcome!r}, such as "
            f"bounds={{{formula.outcome!r}: (lo, hi)}}: beyond bought ones it may be anything"
        )
    schema = _referenced(as_coded(request.schema.with_columns(free), request), request)
    _check_factors(request, undeclared)
    _check_smooths(request)
    _check_finite(request, schema)
    _check_groups(request, schema, undeclared)
    _check_queries(request, schema, undeclared)
    return schema, undeclared


def as_coded(schema: Schema, request: Request) -> Schema:
    """Treatment, instrument and a two-label outcome as 0/1."""
    changed: dict[str, Binary] = {}
    treatment = schema.get(request.formula.treatment)
    if isinstance(treatment, Interval) and not request.asked.per_unit:
        changed[request.formula.treatment] = Binary()
    treated = () if request.asked.arms else (request.formula.treatment,)
    for name in (*treated, request.formula.instrument, request.formula.outcome):
        domain = schema.get(name)
        if isinstance(domain, Levels):
            changed[name] = Binary(list(domain.values))
    return schema.with_columns(changed) if changed else schema


def _referenced(schema: Schema, request: Request) -> Schema:
    """The level that ``C(x, ref=...)`` names comes first."""
    changed = {}
    for name, ref in request.formula.references.items():
        domain = schema.get(name)
        if not isinstance(domain, Levels) or ref not in domain.values:
            raise SchemaError(
                f"C({name}, ref={ref!r}) needs {ref!r} among declared levels of {name!r}"
            )
        values = [ref, *(v for v in domain.values if v != ref)]
        changed[name] = Levels(values, other=domain.other)
    return schema.with_columns(changed) if changed else schema


def _check_factors(request: Request, undeclared: Undeclared) -> None:
    """What a factor needs of its column's domain, before anything is spent.

    A function that is not finite everywhere needs declared bounds; dummies need levels.
    """
    for term in request.formula.terms:
        for factor in term.factors:
            for name in factor.variables:
                declared = request.schema.get(name)
                if factor.kind in LABELLED and isinstance(declared, Interval):
                    raise SchemaError(
                        f"C({name}) needs levels, but {name!r} has numeric bounds; declare its "
                        f"levels: bounds={{{name!r}: ['1', '2']}}"
                    )
                if name in undeclared.numbers and not factor.total:
                    raise SchemaError(
                        f"term {factor.expr!r} needs declared bounds for {name!r} on which it is "
                        f"finite: bounds={{{name!r}: (lo, hi)}}"
                    )
                if isinstance(declared, Interval) and factor.kind == "spline":
                    _check_knots(name, declared, factor)
                text = isinstance(declared, Levels) or name in undeclared.labels
                if text and factor.kind not in ("numeric", *LABELLED):
                    raise SchemaError(f"term {factor.expr!r} needs numbers, but {name!r} is text")


def _check_knots(name: str, domain: Interval, spline: Factor) -> None:
    knots = cast("tuple[float, ...]", dict(spline.options).get("knots", ()))
    if not all(domain.lo < knot < domain.hi for knot in knots):
        raise SchemaError(
            f"term {spline.expr!r} has knots outside of the bounds ({domain.lo:g}, {domain.hi:g}) "
            f"of {name!r}; move them inside"
        )


def _check_smooths(request: Request) -> None:
    for term in request.formula.terms:
        smooth = [f for f in term.factors if f.kind == "smooth"]
        if smooth and (len(term.factors) > 1 or "knots" in dict(smooth[0].options)):
            raise CapabilityError(
                f"term {term.name!r}: s() takes one column and k=; for products or knots of your "
                "own write bs(x, knots=[...])"
            )


MOST_COLUMNS = 1000
"""A wider design's Gram would take minutes and gigabytes for its noise alone."""


def _check_finite(request: Request, schema: Schema) -> None:
    """Terms whose domains are all declared must be finite on them: `Design` looks on a grid.

    First, dummies of all declared levels, and products of them, are counted before any is made.
    """
    terms = request.formula.terms
    wide = sum(
        math.prod(len(d.labels) for v in t.variables if isinstance(d := schema.get(v), Levels))
        for t in terms
    )
    if wide > MOST_COLUMNS:
        raise CapabilityError(
            f"the declared levels of this formula's terms make more than {MOST_COLUMNS} columns; "
            "declare fewer levels (with other=True for the rest), or leave out products of them"
        )
    known = tuple(t for t in terms if all(v in schema for v in t.variables))
    design_of(known, schema, full_rank=False)


def check_levels(request: Request) -> None:
    """A shape needs two bins at least: a factor of one declared level has none."""
    for term in request.formula.terms:
        for name in term.variables:
            domain = request.schema.get(name)
            if isinstance(domain, Levels) and len(domain.labels) < 2:
                raise SchemaError(
                    f"{name!r} has one declared level, which says nothing of an effect; declare "
                    "all its levels, or leave it out of the formula"
                )


MOST_GROUPS = 2000
"""Groups of all averages together: their joint covariance has as many rows and columns."""


def _check_groups(request: Request, schema: Schema, undeclared: Undeclared) -> None:
    bought = {*undeclared.numbers, *undeclared.labels} & set(request.formula.variables)
    known = []
    for text in request.groups:
        group = parse_group(text)
        if group.column in bought:
            if group.column in undeclared.numbers and group.value == "":
                raise numeric_group(group.column)
            continue
        if group.column not in schema:
            raise SchemaError(
                f"group {text!r} needs a declared domain for {group.column!r}, such as "
                f"bounds={{{group.column!r}: [0, 1]}} if it is 0/1, else (lo, hi) or its labels"
            )
        known.append(text)
    groups = len(resolve_groups(known, schema))
    averages = max(len(request.asked.arms) - 1, len(request.asked.averages), 1)
    if groups * averages > MOST_GROUPS:
        of = f" of each of {averages} averages" if averages > 1 else ""
        raise CapabilityError(
            f"groups= makes {groups} groups{of}, and {MOST_GROUPS} in all are the most; name the "
            "levels that you need, such as groups=['ward == north', 'age >= 65']"
        )


def _check_queries(request: Request, schema: Schema, undeclared: Undeclared) -> None:
    """Points must be readable before anything is spent: their columns need declared domains."""
    if request.queries is None:
        return
    bought = {*undeclared.numbers, *undeclared.labels} & set(request.queries.columns)
    if bought:
        raise SchemaError(
            f"queries= needs declared bounds for {', '.join(map(repr, sorted(bought)))}, so that "
            "the points can be read before anything is spent"
        )
    design = design_of(request.formula.modifiers, schema, full_rank=False)
    read_queries(request.queries, design)
    warn_beyond(design, request.queries.columns)


def make_plan(
    request: Request,
    learner: str,
    base: str,
    needs: Sequence[StageWeight],
    top: Mapping[str, float],
    undeclared: Undeclared,
) -> Plan:
    """Integer budgets for every stage; their sum never exceeds what (eps, delta) allows."""
    _check_ratios(request, undeclared)
    selection = _selection_delta(request, undeclared)
    budget = request.budget
    failing = sum(need.failing for need in needs)
    if failing and failing >= exact(budget.delta) * PICO:
        raise BudgetError(
            f"delta is too small for learner {learner!r} with neighbors={request.trust.neighbors!r}"
            f": {at_most(failing / PICO, DELTA_DIGITS)} of it pays for the chance that a proof "
            "fails; ask for more"
        )
    spent = selection * len(undeclared.labels) + failing
    total = rho_of(budget.epsilon, delta_after(budget.delta, spent), gdp=True)
    groups = list(dict.fromkeys(need.key.group for need in needs))
    defaults = {g: top[g] for g in groups} | ({"bounds": top["bounds"]} if undeclared else {})
    shares = divide({k: defaults[k] for k in top if k in defaults}, budget.shares)
    stages = list(_bounds_stages(undeclared, int(total * shares.get("bounds", 0.0)), selection))
    left = total - sum(s.rho for s in stages)
    for name, share in shares.items():
        if share <= 0 and name != "average":
            raise BudgetError(f"shares leave nothing for {name!r}, which every such fit needs")
    wanted = [n for n in needs if shares[n.key.group] > 0]
    if request.split != "disjoint":
        stages += _sequential(wanted, shares, left)
    elif request.trust.unit is None or request.trust.neighbors == "add_remove":
        stages += _parallel(wanted, shares, left)
    else:
        stages += _in_parts(wanted, shares, left)
    return Plan(request, learner, base, tuple(stages), total, gdp=True)


def _check_ratios(request: Request, undeclared: Undeclared) -> None:
    """Refuse ratios of what are no risks."""
    name = request.formula.outcome
    domain = request.schema.get(name)
    wide = isinstance(domain, Interval) and (domain.lo, domain.hi) != (0.0, 1.0)
    if request.asked.ratios and (wide or name in (*undeclared.numbers, *undeclared.labels)):
        raise CapabilityError(
            f"{request.asked.ratios[0]} is of risks: outcome {name!r} must be declared as two "
            f"labels, or as 0 and 1: bounds={{{name!r}: (0, 1)}}"
        )


def _selection_delta(request: Request, undeclared: Undeclared) -> int:
    """pico-delta for each column whose labels are selected."""
    if not undeclared.labels:
        return 0
    each = int(request.budget.delta * SHARES.labels_delta * PICO) // len(undeclared.labels)
    if each < 1:
        raise BudgetError("delta is too small to select labels; declare the levels of text columns")
    return each


def _bounds_stages(undeclared: Undeclared, total: int, selection: int) -> list[Stage]:
    if not undeclared:
        return []
    columns = len(undeclared.numbers)
    needs = [StageWeight(Stages.levels(name), 1.0, selection) for name in undeclared.labels]
    if columns:
        needs += [StageWeight(key, 0.5 * columns) for key in (Stages.MAGNITUDES, Stages.GRID)]
    amounts = portions(total, [need.weight for need in needs])
    return [Stage(n.key, a, delta=n.failing) for n, a in zip(needs, amounts, strict=True)]


def _weights(needs: Sequence[StageWeight], shares: Mapping[str, float]) -> list[float]:
    whole = {g: sum(n.weight for n in needs if n.key.group == g) for g in shares}
    return [shares[n.key.group] * n.weight / whole[n.key.group] for n in needs]


def _sequential(
    needs: Sequence[StageWeight], shares: Mapping[str, float], total: int
) -> list[Stage]:
    """Every stage reads all rows (or every fold) and has its share of rho."""
    amounts = portions(total, _weights(needs, shares))
    return [Stage(n.key, amount, delta=n.failing) for n, amount in zip(needs, amounts, strict=True)]


def _in_parts(needs: Sequence[StageWeight], shares: Mapping[str, float], total: int) -> list[Stage]:
    """Two disjoint halves that share rho: for units under substitution.

    Units go to the halves by coins keyed on their names. On average over the key the halves compose
    in parallel; for a given key, replacing a unit may change both. Sharing rho makes the guarantee
    hold for every key, also for one that became known.
    """
    return [
        replace(s, rows=0.5, part="nuisance" if n.key.group == "nuisance" else "effect")
        for s, n in zip(_sequential(needs, shares, total), needs, strict=True)
    ]


def _parallel(needs: Sequence[StageWeight], shares: Mapping[str, float], total: int) -> list[Stage]:
    """Two disjoint halves of the rows, each with all of rho: together they cost it once.

    The second half's stages are charged zero, as the first half's have paid as much (zCDP of an
    adaptive sequence on disjoint rows is that of the dearest part).
    """
    stages = []
    for part, wanted in (("nuisance", True), ("effect", False)):
        own = [n for n in needs if (n.key.group == "nuisance") == wanted]
        if not own:
            raise CapabilityError("split='disjoint' needs a nuisance and an effect stage")
        amounts = portions(total, _weights(own, shares))
        stages += [
            Stage(n.key, amount, n.failing, amount if wanted else 0, 0.5, part)
            for n, amount in zip(own, amounts, strict=True)
        ]
    paid = [sum(s.rho for s in stages if s.part == part) for part in ("nuisance", "effect")]
    if paid[1] > paid[0]:  # rounding: the dearer part pays
        last = stages[-1]
        stages[-1] = replace(last, charged=paid[1] - paid[0])
    return stages
