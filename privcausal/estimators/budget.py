"""From a learner's needs to a plan: stages with their integer shares of rho."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from privcausal import accounting
from privcausal.accounting.charge import exact
from privcausal.errors import BudgetError, CapabilityError, SchemaError
from privcausal.features.design import design_of
from privcausal.features.rows import read_queries, warn_beyond
from privcausal.inference.bought import rows_to_find
from privcausal.prices import DELTA_DIGITS, at_most
from privcausal.request import factors, plan
from privcausal.request.plan import Stage
from privcausal.request.request import Request
from privcausal.request.schema import Binary, Domain, Header, Interval, Levels, Schema

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
# - *public data*: the data sets `BUILDING` in `tests/benchmarks/regress.py`;
# - *by hand*: without a recorded comparison.


class Stages:
    """The stages that learners share. Each stage is named only here."""

    MAGNITUDES = plan.StageKey("bounds", "magnitudes")
    GRID = plan.StageKey("bounds", "grid")

    RANGES = plan.StageKey("nuisance", "ranges")
    ROW_WEIGHTS = plan.StageKey("nuisance", "survey weights")
    MARGINALS = plan.StageKey("nuisance", "marginals")
    GRAM = plan.StageKey("nuisance", "moments")
    OUTCOME_RANGE = plan.StageKey("nuisance", "outcome range")
    PROPENSITY = plan.StageKey("nuisance", "propensity")
    TREATMENT = plan.StageKey("nuisance", "treatment")
    INSTRUMENT = plan.StageKey("nuisance", "instrument")
    OUTCOME = plan.StageKey("nuisance", "outcome")
    TREATMENT_INTERACTIONS = plan.StageKey("nuisance", "treatment interactions")
    INTERACTION_SIZES = plan.StageKey("nuisance", "residual sizes")
    OUTCOME_INTERACTIONS = plan.StageKey("nuisance", "outcome interactions")
    NUISANCE_RESIDUALS = plan.StageKey("nuisance", "residual moments")
    NUISANCE_WEIGHTS = plan.StageKey("nuisance", "weights")

    RESIDUAL_SIZES = plan.StageKey("effect", "residual sizes")
    RESIDUALS = plan.StageKey("effect", "residual moments")
    REMAINING = plan.StageKey("effect", "remaining moments")
    WEIGHTS = plan.StageKey("effect", "weights")
    SCORE_SIZES = plan.StageKey("effect", "score sizes")

    AVERAGE_RANGE = plan.StageKey("average", "outcome range")
    AVERAGE_SIZES = plan.StageKey("average", "score sizes")
    AVERAGE_SCORES = plan.StageKey("average", "scores")
    AVERAGE_SQUARES = plan.StageKey("average", "squared scores")

    @staticmethod
    def levels(column: str) -> plan.StageKey:
        """Labels of an undeclared column."""
        return plan.StageKey("bounds", f"levels of {column}")


class BudgetShares:
    """Shares of the groups (`top_...`) and weights of the stages, by kind of release.

    If several learners make the same release for the same reason, they share one entry.
    """

    __slots__ = ()

    # groups of stages, for learners of tau(x)
    top_bounds = 0.1
    """Privately estimated bounds: they come first, and all later stages depend on them. By hand."""
    top_nuisance = 0.375
    """As much as for the effect; 0.33 against 0.42 made errors of tau(x) larger. Effect laws."""
    top_effect = 0.375
    """The main result of the fit. Sketch."""
    top_average = 0.25
    """With 0.15, intervals of averages are 16% wider and errors of tau(x) 3% smaller. Library."""
    labels_delta = 0.1
    """Part of delta for labels found by threshold; the other stages lose almost no rho."""

    # groups of other learners, which omit groups that they do not need
    private_nuisance = 0.38
    """Share of the group; the rest is `private_effect` and bounds. With the prior spreads of public
    data sets, less than before is to be learned. Library."""
    private_effect = 0.52
    """Share of the scores, their sizes and squares. Library."""
    private_nuisance_known = 0.24
    """A known propensity removes half of the nuisance stages. Building half."""
    private_effect_known = 0.66
    """The budget of the removed nuisance stages goes to the scores. Building half."""
    arms_nuisance = 0.75
    """Learners "s" and "t": nuisances and arms together, without a second stage. By hand."""
    regress_first = 0.2
    """Everything before the whitened moments. Public data."""
    regress_moments = 0.8
    """The coefficients themselves. Public data."""
    trial_effect = 0.9
    """The whole budget except the bounds, because there are no other stages."""

    # ranges and marginals
    ranges = 0.02
    """64 cells locate the covariates; as much as for the outcome's range. Building half."""
    outcome_range = 0.02
    """One histogram of 32 cells, worth its cost by a narrower outcome range. Effect laws."""
    average_range = trial_range = 0.08
    """A histogram of the outcome, so that loose bounds cost little. Building half."""
    private_ranges = 0.06
    """Two to three percent of rho, the amount that a few columns need. Building half."""
    row_weights = 0.02
    """As much as for the outcome's range. By hand."""
    private_row_weights = 0.06
    """As `private_ranges`. By hand."""
    private_range = 0.12
    """One histogram of the outcome for both nuisances and scores; 0.18 and 0.08 did worse. Library.
    """
    marginals = 0.04
    """16 cells per column are enough, because they are smoothed. Sketch."""
    private_marginals = 0.08
    """As `marginals`, within a larger group. Sketch."""
    networks_marginals = 0.06
    """If networks learn the nuisances, the group has only this stage. By hand."""

    regress_marginals = 0.035
    """Centers and scales of the columns: the first fit depends on them. Public data."""
    regress_range = 0.02
    """One histogram: center and scale of the outcome. Public data."""

    # Gram matrices
    gram = 0.14
    """The Gram matrix tolerates noise, because it is shrunken to the population's. Sketch."""
    private_gram = 0.20
    """More than `gram`: its noise is half of the error of both nuisances, whose product is the bias
    of an average. 0.10 made intervals 5% wider, 0.35 2%. Library."""
    r_weights = 0.08
    """Base "linear" only: its second Gram matrix, as large as the first. By hand."""
    arms_weights = 0.06
    """Base "linear" only: the Gram matrix of the weights. By hand."""
    private_weights = dr_first_weights = 0.04
    """Half of `r_weights`, because the first effect only centers the scores. By hand."""

    # nuisances
    treatment = 0.07
    """Less than for the outcome, because e(x) is known to vary little. Sketch."""
    private_treatment = late_treatment = 0.31
    """The bias of an average is its errors times the outcome's errors. Random laws; the instrument
    has as much as the treatment, by hand.
    """
    boosted_propensity = 0.25
    """Its errors times the outcome's errors bias the effect. By hand."""
    boosted_arms_propensity = 0.15
    """It only weights the arms, so its errors matter least. By hand."""
    outcome = 0.25
    """Its errors widen the residual product's range, and thereby all later noise. Sketch."""
    private_outcome = 0.45
    """The largest weight: weight limits turn errors of the mean outcome into bias. Random laws."""
    boosted_outcome = 0.67
    """As `outcome`: the residual's range falls with its errors. By hand."""
    interactions_treatment = 0.06
    """Half of it lost 14% in squared error at n = 4,000. Effect laws."""
    interactions_outcome = 0.14
    """As `interactions_treatment`; three times the weight did not improve on it. Effect laws."""
    private_interactions_treatment = 0.16
    """Products that confound bias an average, so more than for tau(x). Random laws."""
    private_interactions_outcome = 0.22
    """As `private_interactions_treatment`. Random laws."""
    private_interactions_sizes = 0.03
    """As `interactions_sizes`, scaled to this group. Random laws."""
    boosted_interactions_treatment = 0.11
    """With the outcome's interactions and the sizes, 28% of the group, as for learner "r". By hand.
    """
    boosted_interactions_outcome = 0.25
    """As `boosted_interactions_treatment`. By hand."""

    # sizes: one histogram, used to choose one number
    interactions_sizes = boosted_interactions_sizes = 0.01
    """One histogram, used for one quantile. By hand."""
    r_sizes = 0.02
    """One histogram, used to choose one clipping threshold. Sketch."""
    dpcate_first_sizes = dpcate_sizes = 0.02
    """As `r_sizes`. By hand."""
    dr_first_sizes = dr_sizes = x_sizes = x_imputed_sizes = 0.01
    """Half of `r_sizes`, because there are two. By hand."""
    arms_sizes = boosted_arms_sizes = 0.03
    """As `r_sizes`, in a larger group. By hand."""
    boosted_sizes = boosted_effect_sizes = networks_sizes = 0.04
    """As `r_sizes`, with few other stages. By hand."""

    # effects
    r_moments = 0.17
    """A third of the sketch's 0.48; a half and a quarter were not better. Effect laws."""
    r_rest = 0.31
    """Two thirds of the sketch's 0.48: the remaining product has a smaller range. Effect laws."""
    dr_first = dr_scores = x_outcomes = x_imputed = 0.24
    """Half of the sketch's 0.48, for a first effect or for scores minus a first effect. These
    scores have as large a range. By hand.
    """
    arms_outcomes = 0.7
    """Their effect is a difference of these moments. By hand."""
    dpcate_first = 0.35
    """The first effect is most of the estimate; the kernel learns the rest. By hand."""
    dpcate_kernel = 0.15
    """Its noise covers the whole function; a larger weight would seldom help. By hand."""
    networks_kernel = 0.90
    """Everything except the sizes. By hand."""
    boosted_arms_outcome = 0.78
    """The estimate itself, or the rest of it after a mean effect. By hand."""
    boosted_mean_outcome = 0.66
    """`boosted_arms_outcome` minus `boosted_mean`. By hand."""
    boosted_mean = 0.12
    """One number, the mean effect. By hand."""
    boosted_effect = 0.96
    """The effect itself. By hand."""
    regress_first_moments = 0.15
    """The first fit whitens columns and centers the outcome. Public data."""
    regress_second_moments = 0.655
    """The coefficients. Public data."""
    regress_sizes = 0.0675
    """The maximum bias by clipping falls with its noise. Public data."""
    regress_row_sizes = 0.0225
    """A third of `regress_sizes`: leverage has shorter tails. Public data."""
    regress_outliers = 0.03
    """The directions of clipped residuals. Public data."""
    regress_meat = 0.02
    """The residual variance at all columns, if requested. By hand."""
    private_moments = 0.06
    """The first effect only centers the scores. Random laws."""
    plr_first = 0.12
    """Its slope centers the scores and its mass scales them, so twice `private_moments`. By hand.
    """

    # averages
    average_sizes = 0.12
    """Sizes of scores by arm; the maximum clipping bias falls with its noise. Building half."""
    private_sizes = 0.10
    """As `average_sizes`; 0.16 and 0.07 gave wider intervals. Library."""
    known_arms = 0.01
    """With a known propensity, counts the arms to 1% of the rows at n = 5,000 and eps = 1."""
    average_scores = 0.66
    """The estimate itself. Building half."""
    private_scores = 0.78
    """The estimate itself. Random laws."""
    trial_sums = 0.92
    """The estimate itself, next to `trial_range`."""
    private_survival_counts = 0.3
    """At eps = 0.5, 0.08 and 0.15 gave wider intervals, and 0.5 equally wide ones, on seeds from 0
    of `tests/benchmarks/survival.py`."""
    private_cluster_squares = 0.4
    """Its noise is added to the variance. Least mean width of 0.1, 0.2, 0.4, and 0.8, on the
    distributions of `tests/benchmarks/clusters.py`."""
    average_squares = 0.14
    """Its noise is added to the variance, so a small weight widens intervals. Building half."""
    private_squares = 0.10
    """As `average_squares`. Random laws."""


SHARES = BudgetShares()


TOP = {
    "bounds": SHARES.top_bounds,
    "nuisance": SHARES.top_nuisance,
    "effect": SHARES.top_effect,
    "average": SHARES.top_average,
}


LEAST_PART = 20
"""Minimum number of rows in a part of a split for boosting or a user's estimator."""


@dataclass(frozen=True)
class StageWeight:
    """A planned release of a learner, with its weight inside the group of its key.

    `failing` is in pico-delta: the probability that an assumption of its proof fails.
    """

    key: plan.StageKey
    weight: float
    failing: int = 0


@dataclass(frozen=True)
class Undeclared:
    """Columns with privately estimated domains: intervals for numbers, levels for labels.

    `integers` are columns that hold whole numbers by their public type, declared or not.
    """

    numbers: tuple[str, ...]
    labels: tuple[str, ...]
    integers: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.numbers or self.labels)


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
        if name in (formula.treatment, *formula.instruments, formula.event) or kind == "bool":
            free[name] = Binary([False, True] if kind == "bool" else [0, 1])
        elif kind == "text" or name in formula.categorical:
            labels.append(name)
        else:
            numbers.append(name)
    if formula.outcome in labels:
        raise SchemaError(
            f"Outcome {formula.outcome!r} holds text. Declare its two labels, the reference "
            f"first: bounds={{{formula.outcome!r}: ['no', 'yes']}}."
        )
    undeclared = Undeclared(tuple(numbers), tuple(labels), header.integers)
    if formula.outcome in numbers and request.tails == "any":
        raise SchemaError(
            f"tails='any' requires declared outcome bounds, because values outside estimated "
            f"bounds have no limit. Write bounds={{{formula.outcome!r}: (lo, hi)}}."
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
    formula = request.formula
    coded = (formula.event,) if request.asked.per_unit else (formula.treatment, formula.event)
    changed |= {name: Binary() for name in coded if isinstance(schema.get(name), Interval)}
    treated = () if request.asked.arms else (formula.treatment,)
    for name in (*treated, *formula.instruments, formula.outcome, formula.event):
        domain = schema.get(name)
        if isinstance(domain, Levels):
            changed[name] = Binary(list(domain.values))
    return schema.with_columns(changed) if changed else schema


def _referenced(schema: Schema, request: Request) -> Schema:
    """Move the level that ``C(x, ref=...)`` names to the front."""
    changed = {}
    for name, ref in request.formula.references.items():
        domain = schema.get(name)
        if not isinstance(domain, Levels) or ref not in domain.values:
            raise SchemaError(
                f"C({name}, ref={ref!r}): {ref!r} is not a declared level of {name!r}. Declare "
                "all levels in bounds=."
            )
        values = [ref, *(v for v in domain.values if v != ref)]
        changed[name] = Levels(values, other=domain.other)
    return schema.with_columns(changed) if changed else schema


def _check_factors(request: Request, undeclared: Undeclared) -> None:
    """Check a factor's requirements on its column's domain before budget is spent.

    A function that is not finite everywhere needs declared bounds; dummies need levels.
    """
    for term in request.formula.terms:
        for factor in term.factors:
            for name in factor.variables:
                declared = request.schema.get(name)
                if factor.kind in factors.LABEL_KINDS and isinstance(declared, Interval):
                    raise SchemaError(
                        f"C({name}) requires levels, but {name!r} has numeric bounds. Declare its "
                        f"levels: bounds={{{name!r}: ['1', '2']}}."
                    )
                if name in undeclared.numbers and not factor.total:
                    raise SchemaError(
                        f"Term {factor.expr!r} is not finite for all values of {name!r}. Declare "
                        f"bounds within which it is finite: bounds={{{name!r}: (lo, hi)}}."
                    )
                if isinstance(declared, Interval) and factor.kind == "spline":
                    knots = cast("tuple[float, ...]", dict(factor.options).get("knots", ()))
                    if not all(declared.lo < knot < declared.hi for knot in knots):
                        raise SchemaError(
                            f"Term {factor.expr!r} has knots outside the bounds "
                            f"({declared.lo:g}, {declared.hi:g}) of {name!r}. Move the knots "
                            "inside."
                        )
                text = isinstance(declared, Levels) or name in undeclared.labels
                if text and factor.kind not in ("numeric", *factors.LABEL_KINDS):
                    raise SchemaError(f"Term {factor.expr!r} needs numbers, but {name!r} is text.")


def _check_smooths(request: Request) -> None:
    for term in request.formula.terms:
        smooth = [f for f in term.factors if f.kind == "smooth"]
        if smooth and (len(term.factors) > 1 or "knots" in dict(smooth[0].options)):
            raise CapabilityError(
                f"Term {term.name!r}: s() takes one column and k=. For products or custom knots, "
                "use bs(x, knots=[...])."
            )


MOST_COLUMNS = 1000
"""Maximum number of columns; the noise of a wider Gram would take minutes and gigabytes."""


def _check_finite(request: Request, schema: Schema) -> None:
    """Check that terms with declared domains are finite there: `Design` evaluates a grid.

    Dummies of all declared levels, and their products, are counted before they are created.
    """
    terms = request.formula.terms
    wide = sum(
        math.prod(len(d.labels) for v in t.variables if isinstance(d := schema.get(v), Levels))
        for t in terms
    )
    if wide > MOST_COLUMNS:
        raise CapabilityError(
            f"The declared levels in this formula make more than {MOST_COLUMNS:,} columns. Declare "
            "fewer levels (with other=True for the rest), or remove products of factors."
        )
    known = tuple(t for t in terms if all(v in schema for v in t.variables))
    design_of(known, schema, full_rank=False)


def check_plan(found: plan.Plan, schema: Schema, functions: int) -> None:
    """Refuse a kind of covariance that no release serves, and a Gram with too many columns."""
    kind = found.request.cov_type
    if kind != "nonrobust" and not any("squared" in stage.query for stage in found.stages):
        raise CapabilityError(
            f"cov_type={kind!r} has no use here, because all standard errors of this fit allow for "
            "unequal variances. Omit cov_type=."
        )
    if found.has(Stages.GRAM):
        check_features(found.request, schema, functions)


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
    asked = [design.smooth.get(c.variable or "") or functions for c in smooth]
    count = len(design.columns) + sum(asked) - len(smooth)
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


MOST_GROUPS = 2000
"""Maximum number of groups of all averages; their joint covariance has as many rows."""


def _check_groups(request: Request, schema: Schema, undeclared: Undeclared) -> None:
    bought = {*undeclared.numbers, *undeclared.labels} & set(request.formula.variables)
    known = []
    for text in request.groups:
        group = factors.parse_group(text)
        for name in group.columns:
            if name in undeclared.numbers and name in bought and group.bare:
                raise factors.numeric_group(name)
            if name not in bought and name not in schema:
                raise SchemaError(
                    f"Group {text!r} requires a declared domain for {name!r}. Write "
                    f"bounds={{{name!r}: [0, 1]}} if it is 0/1; otherwise declare (lo, hi) or its "
                    "labels."
                )
        if not bought & {*group.columns}:
            known.append(text)
    groups = len(factors.resolve_groups(known, schema))
    averages = max(len(request.asked.arms) - 1, len(request.asked.averages), 1)
    if groups * averages > MOST_GROUPS:
        of = f" for each of {averages} averages" if averages > 1 else ""
        raise CapabilityError(
            f"groups= makes {groups} groups{of}; the maximum is {MOST_GROUPS:,} in total. Name "
            "only the levels that you need, for example groups=['ward == north', 'age >= 65']."
        )


def _check_queries(request: Request, schema: Schema, undeclared: Undeclared) -> None:
    """Check that the points are readable before budget is spent: this needs declared domains."""
    if request.queries is None:
        return
    bought = {*undeclared.numbers, *undeclared.labels} & set(request.queries.columns)
    if bought:
        raise SchemaError(
            f"queries= requires declared bounds for {', '.join(map(repr, sorted(bought)))}, "
            "because the points are read before any budget is spent."
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
) -> plan.Plan:
    """Integer budgets for every stage; their sum never exceeds what (eps, delta) allows."""
    name = request.formula.outcome
    domain = request.schema.get(name)
    wide = isinstance(domain, Interval) and (domain.lo, domain.hi) != (0.0, 1.0)
    if request.asked.ratios and (wide or name in (*undeclared.numbers, *undeclared.labels)):
        raise CapabilityError(
            f"{request.asked.ratios[0]} compares risks. Declare outcome {name!r} as two labels, or "
            f"as 0 and 1: bounds={{{name!r}: (0, 1)}}."
        )
    if request.weights is not None and Stages.ROW_WEIGHTS not in [need.key for need in needs]:
        raise CapabilityError(
            "weights= requires regress(), one of the estimands 'ATE', 'ATT', 'ATO', 'RR' and 'OR' "
            "of private(), or one of the learners 'r', 'dr', 's', 't', 'x' and 'auto' of "
            "privcate(), with base 'gam' or 'linear'."
        )
    selection = _selection_delta(request, undeclared)
    budget = request.budget
    failing = sum(need.failing for need in needs)
    if failing and failing >= exact(budget.delta) * accounting.PICO:
        raise BudgetError(
            f"delta is too small for learner {learner!r} with neighbors={request.trust.neighbors!r}"
            f". The learner reserves {at_most(failing / accounting.PICO, DELTA_DIGITS)} of delta "
            "for the failure probability of its proof. Use a larger delta."
        )
    spent = selection * len(undeclared.labels) + failing
    total = accounting.rho_of(budget.epsilon, accounting.delta_after(budget.delta, spent), gdp=True)
    groups = list(dict.fromkeys(need.key.group for need in needs))
    defaults = {g: top[g] for g in groups} | ({"bounds": top["bounds"]} if undeclared else {})
    shares = plan.divide({k: defaults[k] for k in top if k in defaults}, budget.shares)
    stages = list(_bounds_stages(undeclared, int(total * shares.get("bounds", 0.0)), selection))
    left = total - sum(s.rho for s in stages)
    for name, share in shares.items():
        if share <= 0 and name != "average":
            raise BudgetError(f"shares= must leave budget for {name!r}, which this fit requires.")
    wanted = [n for n in needs if shares[n.key.group] > 0]
    if request.split != "disjoint":
        stages += _sequential(wanted, _weights(wanted, shares), left)
    elif request.trust.unit is None or request.trust.neighbors == "add_remove":
        stages += _parallel(wanted, shares, left)
    else:
        # Two disjoint halves that share rho: for units under substitution. Units are assigned to
        # the halves by pseudorandom bits keyed on their names. On average over the key, the halves
        # compose in parallel. For a given key, replacing a unit may change both halves. Because the
        # halves share rho, the guarantee holds for every key, even if the key becomes known.
        halves = zip(_sequential(wanted, _weights(wanted, shares), left), wanted, strict=True)
        stages += [
            replace(s, rows=0.5, part="nuisance" if n.key.group == "nuisance" else "effect")
            for s, n in halves
        ]
    return plan.Plan(request, learner, base, tuple(stages), total, gdp=True)


def check_rows(fit: plan.Plan, undeclared: Undeclared, rows: int | None) -> None:
    """Refuse bounds that noise would hide among this public number of rows, before any charge.

    The required number falls with the budget of the bounds, and grows with the number of columns.

    Raises
    ------
    BudgetError
        There are fewer rows than `bought.rows_to_find`.
    """
    columns, trust = len(undeclared.numbers), fit.request.trust
    if rows is None or not fit.has(Stages.MAGNITUDES):
        return
    change = np.sqrt((2.0 if trust.neighbors == "substitute" else 1.0) * columns) * trust.max_rows
    rho = fit.stage(Stages.MAGNITUDES).rho / accounting.PICO
    needed = rows_to_find(float(change / np.sqrt(2 * rho)))
    if rows < needed:
        raise BudgetError(
            f"The data have too few rows to estimate bounds of {columns} "
            f"{'column' if columns == 1 else 'columns'} with this budget: about {needed:,.0f} rows "
            f"are required, or eps={fit.request.budget.epsilon * needed / rows:.2g}. No budget was "
            "spent. Declare the bounds of numeric columns: "
            f"bounds={{{undeclared.numbers[0]!r}: (lo, hi), ...}}."
        )


def _selection_delta(request: Request, undeclared: Undeclared) -> int:
    """pico-delta for each column with selected labels."""
    if not undeclared.labels:
        return 0
    whole = int(request.budget.delta * SHARES.labels_delta * accounting.PICO)
    each = whole // len(undeclared.labels)
    if each < 1:
        raise BudgetError(
            "delta is too small to select labels. Declare the levels of text columns."
        )
    return each


def _bounds_stages(undeclared: Undeclared, total: int, selection: int) -> list[Stage]:
    if not undeclared:
        return []
    columns = len(undeclared.numbers)
    needs = [StageWeight(Stages.levels(name), 1.0, selection) for name in undeclared.labels]
    if columns:
        needs += [StageWeight(key, 0.5 * columns) for key in (Stages.MAGNITUDES, Stages.GRID)]
    return _sequential(needs, [need.weight for need in needs], total)


def _weights(needs: Sequence[StageWeight], shares: Mapping[str, float]) -> list[float]:
    whole = {g: sum(n.weight for n in needs if n.key.group == g) for g in shares}
    return [shares[n.key.group] * n.weight / whole[n.key.group] for n in needs]


def _sequential(needs: Sequence[StageWeight], weights: list[float], total: int) -> list[Stage]:
    """Every stage reads all rows (or every fold) and has its share of rho."""
    pairs = zip(needs, plan.portions(total, weights), strict=True)
    return [Stage(need.key, amount, delta=need.failing) for need, amount in pairs]


def _parallel(needs: Sequence[StageWeight], shares: Mapping[str, float], total: int) -> list[Stage]:
    """Two disjoint halves of the rows, each with all of rho: together they cost rho once.

    The stages of the second half are charged zero, because the first half has already paid the same
    amount. The zCDP cost of an adaptive sequence on disjoint rows is the cost of the most expensive
    part.
    """
    stages = []
    for part, wanted in (("nuisance", True), ("effect", False)):
        own = [n for n in needs if (n.key.group == "nuisance") == wanted]
        if not own:
            raise CapabilityError("split='disjoint' requires a nuisance stage and an effect stage.")
        amounts = plan.portions(total, _weights(own, shares))
        stages += [
            Stage(n.key, amount, n.failing, amount if wanted else 0, 0.5, part)
            for n, amount in zip(own, amounts, strict=True)
        ]
    paid = [sum(s.rho for s in stages if s.part == part) for part in ("nuisance", "effect")]
    if paid[1] > paid[0]:  # rounding: the more expensive part pays
        last = stages[-1]
        stages[-1] = replace(last, charged=paid[1] - paid[0])
    return stages
