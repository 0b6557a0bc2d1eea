"""What is refused before any row is read, as far as the request and the header of the table show.

`check_request` refuses a request that no table can answer, and `check_table` a request that this
table cannot answer. `check_domains` refuses terms and groups that do not fit their columns, which
is known when each column has a domain or has none. Each lists its subjects in the order of the
checks. Syntax is checked where a formula, a domain, or an option is read. A learner refuses what it
cannot estimate when it plans.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import cast

from privcausal.errors import CapabilityError, DataError, SchemaError, is_number
from privcausal.request import formula
from privcausal.request.request import (
    COHORTS,
    HORIZONS,
    LEAST_PROPENSITY,
    OVER_ROWS,
    SLOPES,
    SURVIVAL,
    Request,
    check_choice,
    check_details,
)
from privcausal.request.schema import (
    NO_SUCH_FIELD,
    OTHER,
    Binary,
    Header,
    Interval,
    Levels,
    Schema,
    is_numeral,
    level_names,
    number_key,
)

# -- the request alone -------------------------------------------------------------------------


def check_request(request: Request) -> None:
    """Refuse a request that no table can answer.

    Raises
    ------
    CapabilityError
        For an unknown choice, or options that exclude each other.
    SchemaError
        For a column whose declared domain does not suit its use.
    """
    # Unknown choices, and options that exclude each other
    if request.more and request.cov_type != "nonrobust":
        raise CapabilityError(
            f"cov_type={request.cov_type!r} applies to slopes, which a fit of several estimands "
            "does not have."
        )
    check_choice("mode", request.mode, ("proven", "paper"))
    check_choice("below_minimum", request.below_minimum, ("refuse", "published"))
    if request.mode == "proven" and request.below_minimum != "refuse":
        raise CapabilityError(
            "below_minimum='published' applies only to published mechanisms. Proven guarantees "
            "hold for any number of rows."
        )
    check_details(request.split, request.clip, request.tails, request.cov_type)
    if request.cov_type == "HC1" and not request.regression:
        raise CapabilityError("cov_type='HC1' applies only to regressions. Use 'HC0'.")
    if (request.regression or request.estimand == COHORTS) == bool(request.formula.treatment):
        raise CapabilityError("A regression has no treatment, but every effect requires one.")
    check_propensity(request)
    check_weights(request)
    check_clusters(request)
    check_survival(request)
    if request.formula.treatment:
        check_treatment(request)
    domain = request.schema.get(request.formula.outcome)
    if isinstance(domain, Levels) and len(domain.values) != 2:
        raise SchemaError(
            f"Outcome {request.formula.outcome!r} requires numeric bounds (lo, hi) or two labels."
        )
    two = isinstance(domain, (Binary, Levels))
    if request.estimand == "logit" and not two:
        raise SchemaError(
            f"logit() requires an outcome with two declared values, for example "
            f"bounds={{{request.formula.outcome!r}: [0, 1]}} or its two labels."
        )
    count = isinstance(domain, Binary) or (isinstance(domain, Interval) and domain.lo == 0)
    if request.estimand == "poisson" and not count:
        raise SchemaError(
            f"poisson() requires declared bounds of the outcome that start at 0, for example "
            f"bounds={{{request.formula.outcome!r}: (0, 40)}}."
        )
    if request.trust.panel and len({name.casefold() for name in request.read}) < len(request.read):
        raise SchemaError(
            "The names of two columns differ only in upper and lower case. Rename one."
        )
    if request.trust.unit in request.formula.variables:
        raise SchemaError(f"Unit column {request.trust.unit!r} cannot also be in the formula.")


COPY = "Copy it to a column with another name."
"""Remedy for a column with two uses that the formula names."""

SUM_TOLERANCE = 1e-6
"""Rounding of shares that add up to 1, such as 0.333333."""


def check_propensity(request: Request) -> None:
    p = request.propensity
    if p is None:
        return
    least, most = LEAST_PROPENSITY, 1 - LEAST_PROPENSITY
    if isinstance(p, str):
        domain = request.schema.get(p)
        if not isinstance(domain, Interval):
            raise SchemaError(
                f"Propensity column {p!r} requires declared bounds inside (0, 1), for example "
                f"bounds={{{p!r}: (0.1, 0.9)}}."
            )
        if not least <= domain.lo < domain.hi <= most:
            raise SchemaError(
                f"The bounds of propensity column {p!r} must be inside (0, 1), at least "
                f"{LEAST_PROPENSITY:g} from 0 and 1."
            )
    elif isinstance(p, Mapping):
        arms = request.arms
        if not arms:
            raise SchemaError(
                "propensity= by arm requires a treatment with at least three declared arms. "
                "For two arms, give the share of the treated, for example propensity=0.5."
            )
        numbers = all(is_number(share) and least <= share <= most for share in p.values())
        if {*p} != {*arms} or not numbers or abs(sum(p.values()) - 1) > SUM_TOLERANCE:
            raise SchemaError(
                "propensity= must give a share in (0, 1) for each of the arms "
                f"{', '.join(arms)}. The shares must add up to 1."
            )
    elif not (is_number(p) and least <= p <= most):
        raise SchemaError(
            "propensity must be a number in (0, 1) or the name of a column. A number must be "
            f"at least {LEAST_PROPENSITY:g} from 0 and 1."
        )


def check_weights(request: Request) -> None:
    if request.weights is None:
        return
    domain = request.schema.get(request.weights) if isinstance(request.weights, str) else None
    if not (isinstance(domain, Interval) and domain.lo >= 0):
        raise SchemaError(
            "weights= must be the name of a column with nonnegative declared bounds, for "
            "example bounds={'weight': (0, 5000)}."
        )
    if request.weights in (*request.formula.variables, request.propensity, request.trust.unit):
        dot = request.weights in request.formula.rest
        remedy = f"Write '. - {formula.quoted(request.weights)}' in the formula." if dot else COPY
        raise SchemaError(
            f"Weights column {request.weights!r} cannot also be in the formula, the propensity, "
            f"or the unit. {remedy}"
        )
    if request.cov_type == "HC0" and not request.regression:
        raise CapabilityError(
            "cov_type='HC0' applies to slopes, which a fit with weights= does not have."
        )


def check_clusters(request: Request) -> None:
    if request.cluster is None:
        return
    if request.cov_type != "nonrobust" or request.split != "full":
        raise CapabilityError(
            "cluster= sets the covariance and uses all rows. Leave out cov_type= and split=."
        )
    column, panel = request.cluster.column, request.trust.panel
    taken = [*request.columns, *([panel.time] if panel else [])]
    if column in taken and column != request.trust.unit:
        dot = column in request.formula.rest
        remedy = f"Write '. - {formula.quoted(column)}' in the formula." if dot else COPY
        raise SchemaError(
            f"Cluster column {column!r} cannot also be in the formula, in groups= or the time. "
            f"{remedy}"
        )
    alone = request.regression or request.estimand in OVER_ROWS
    alone = alone and not (request.more or request.arms)
    if not alone or request.mode == "paper":
        *names, last = map(repr, OVER_ROWS)
        raise CapabilityError(
            "cluster= requires regress(), did(), or private() with two arms and one of the "
            f"estimands {', '.join(names)} and {last}. Fit several estimands separately."
        )


def check_survival(request: Request) -> None:
    formula, horizon = request.formula, request.horizon
    if (
        horizon is None
        and not formula.event
        and not {*SURVIVAL} & {request.estimand, *request.more}
    ):
        return
    if formula.event and request.estimand in SURVIVAL and horizon is None:
        raise CapabilityError(
            f"estimand={request.estimand!r} requires the end of the follow-up, for example "
            f"horizon=180, in the units of {formula.outcome!r}."
        )
    if not (formula.event and request.estimand in SURVIVAL and horizon is not None):
        raise CapabilityError(
            "A survival outcome, a horizon, and one of the estimands 'RMST' and 'risk' of "
            "private() require each other. Write pc.private('Surv(days, died) ~ T | X', data, "
            "estimand='RMST', horizon=180)."
        )
    others = (
        request.more or request.groups or request.cluster or request.weights or request.trust.panel
    )
    if others or formula.instruments or request.split != "full" or request.cov_type != "nonrobust":
        raise CapabilityError(
            f"estimand={request.estimand!r} cannot be combined with other estimands, groups=, "
            "weights=, an instrument, clusters, split=, or cov_type=. Fit each estimand or "
            "group separately. The survival() of one fit also shows unadjusted risks by arm "
            "and time, at no cost."
        )
    if not (is_number(horizon) and HORIZONS[0] <= horizon <= HORIZONS[1]):
        raise SchemaError(
            "horizon= must be a positive number in the units of the time, "
            f"{HORIZONS[0]:.1e} to {HORIZONS[1]:.1e}."
        )
    time = request.schema.get(formula.outcome)
    raw = getattr(time, "raw", time)
    if isinstance(raw, Interval) and 0 <= raw.lo < raw.hi <= horizon:
        raise SchemaError(
            f"No row can be followed to the horizon {horizon:g}, because the survival time "
            f"{formula.outcome!r} ends at {raw.hi:g}. Use a horizon below {raw.hi:g}, or omit "
            "the bounds if they are wrong."
        )
    if not (isinstance(raw, Interval) and raw.lo >= 0):
        raise SchemaError(
            f"The bounds of the survival time {formula.outcome!r} must be (0, hi), with hi "
            f"beyond the horizon. Leave them out, or write bounds={{{formula.outcome!r}: "
            f"(0, {2 * horizon:g})}}."
        )
    check_arms(request, "Event", formula.event, allowed=False)


def check_treatment(request: Request) -> None:
    name = request.formula.treatment
    if (request.estimand == "LATE") != bool(request.formula.instruments):
        raise CapabilityError(
            "An instrument and estimand='LATE' require each other. Write "
            "pc.private('Y ~ T | X1 + X2 | T ~ Z', data, estimand='LATE')."
        )
    if SLOPES & {*request.estimands} and (request.groups or request.more):
        also = " For two arms, use 'ATO' instead." if request.estimand == "PLR" else ""
        raise CapabilityError(
            f"estimand={request.estimand!r} cannot be combined with groups= or with other "
            f"estimands.{also}"
        )
    if request.arms and request.more:
        raise CapabilityError(
            f"Treatment {name!r} has more than two arms, so estimand='ATE' cannot be combined "
            "with other estimands. It includes all mean outcomes."
        )
    adjusted = request.formula.terms or request.estimand == "ATE"
    shares = request.arms and request.estimand == "ATE" and isinstance(request.propensity, Mapping)
    unusable = request.propensity is not None and not shares
    if (request.dose or request.arms) and (unusable or not adjusted):
        raise CapabilityError(
            f"{request.formula.assigned!r} is numeric or has more than two arms. It requires "
            "covariates, 'Y ~ T | X', and no propensity=. For several arms of a trial, give "
            "their shares: propensity={'control': 0.5, 'low': 0.25, 'high': 0.25}."
        )
    check_arms(request, "Treatment", name, allowed=request.per_unit or request.arms)
    several = len(request.formula.instruments) > 1
    if several and (request.propensity is not None or not request.formula.terms):
        raise CapabilityError(
            "Several instruments require covariates, 'Y ~ T | X | T ~ Z1 + Z2', and no propensity=."
        )
    for instrument in request.formula.instruments:
        number = several and isinstance(request.schema.get(instrument), Interval)
        check_arms(request, "Instrument", instrument, allowed=request.dose or number)


MOST_CODES = 10
"""An error suggests that a number codes two arms if its bounds are at most this wide."""


def check_arms(request: Request, role: str, name: str, *, allowed: object) -> None:
    """Require two arms, unless `allowed` says that a number or several arms are allowed."""
    domain = request.schema.get(name)
    coded = isinstance(domain, Interval) and (domain.lo, domain.hi) == (0.0, 1.0)
    two = isinstance(domain, Levels) and len(domain.values) == 2
    if allowed or domain is None or isinstance(domain, Binary) or coded or two:
        return
    labels = ["no", "yes"]
    if isinstance(domain, Interval):  # for example, a treatment coded 1 and 2
        labels = [str(number_key(code)) for code in (domain.lo, domain.hi)]
    declared = f"the reference first: bounds={{{name!r}: {labels!r}}}"
    if isinstance(domain, Interval) and domain.width != 1:
        outcome, end = request.formula.outcome, ". For a slope, use estimand='PLR'."
        if domain.width <= MOST_CODES:
            end = f". If {name!r} has two values, declare them, {declared}."
        raise SchemaError(
            f"{role} {name!r} must be binary, but it has numeric bounds. If "
            f"{outcome!r} is the treatment, write {name} ~ {outcome}{end}"
        )
    several = isinstance(domain, Levels) and len(domain.values) > 2
    end = " For more arms, use estimand='ATE' or 'PLR' of pc.private." if several else ""
    raise SchemaError(
        f"{role} {name!r} must be binary. Leave it undeclared if it is bool or 0/1, or "
        f"declare its two labels, {declared}.{end}"
    )


# -- the header of the table -------------------------------------------------------------------


def check_table(request: Request, header: Header) -> None:
    """Refuse a table whose columns are absent, or of a type that does not suit their domain.

    Names and data types are public, so errors may show them.

    Raises
    ------
    DataError
        For an absent or unreadable column, and for units or clusters that could merge.
    SchemaError
        For a column that does not have the type of its declared domain.
    """
    # Every column exists and has a readable type.
    convert = "Convert it to numbers or labels first, for example a date to days since January 1."
    for name in request.read:
        if name not in header.kinds:
            if name in header.advice:
                raise DataError(f"{name!r} is not a column. {header.advice[name]}")
            if header.untyped:
                raise DataError(f"Column {name!r} {NO_SUCH_FIELD}")
            columns = ", ".join(map(repr, header.names[:20]))
            raise DataError(f"Column {name!r} is not in the data. Columns of the data: {columns}.")
        if header.kinds[name] == "other":
            advice = header.advice.get(name, convert)
            raise DataError(f"Column {name!r} has a type that cannot be read. {advice}")
    check_types(request, header)


def check_types(request: Request, header: Header) -> None:
    """Types keep units and clusters distinct, and suit the declared domains."""
    for role, column in request.keys.items():
        if column in header.inexact:
            raise DataError(
                f"{role} column {column!r} is a decimal with more than 38 digits. DuckDB reads it "
                f"as a float, so two {role.lower()}s could become one. Store the column as text."
            )
    # columns with numeric bounds are numeric, and columns with labels may hold these labels
    for name in request.columns:
        domain = request.declared.get(name)
        text = header.kinds[name] == "text" and name not in header.objects
        if isinstance(domain, Interval) and text:
            raise SchemaError(
                f"Column {name!r} contains text but has numeric bounds. Convert the column to "
                f"numbers, or declare its levels: bounds={{{name!r}: ['a', 'b']}}."
            )
        if not isinstance(domain, Levels | Binary):
            continue
        # every column of a CSV is text, and its numerals are numbers
        if text and not header.untyped and domain.numeric:
            raise SchemaError(
                f"Column {name!r} contains text, but its declared labels are numbers. Write the "
                f"labels as in the data: bounds={{{name!r}: ['a', 'b']}}. If the texts are digits, "
                f"quote them: bounds={{{name!r}: ['0', '1']}}."
            )
        levels = level_names(domain)
        numbers = header.kinds[name] == "numeric"
        if numbers and OTHER not in levels and not any(map(is_numeral, levels)):
            raise SchemaError(
                f"Column {name!r} contains numbers, but its declared labels are texts. Declare its "
                f"values, for example bounds={{{name!r}: ['1', '2']}}, or convert the column."
            )
    # treatment, instruments and event have declared labels if they hold text
    formula = request.formula
    roles = {formula.treatment: "Treatment", **dict.fromkeys(formula.instruments, "Instrument")}
    for name, role in (roles | {formula.event: "Event"}).items():
        labels = ["censored", "event"] if role == "Event" else ["control", "treated"]
        if not name or name in request.schema:
            continue
        if header.kinds[name] == "text":
            raise SchemaError(
                f"{role} {name!r} contains text, objects or categories. Declare its two labels, "
                f"the reference first: bounds={{{name!r}: {labels}}}, or [0, 1] for numbers."
            )
        if header.untyped:
            raise SchemaError(
                f"The file has no column types, so it does not show whether {role.lower()} "
                f"{name!r} is 0/1 or text. Declare its two labels: bounds={{{name!r}: [0, 1]}}, or "
                f"bounds={{{name!r}: {labels}}}. No budget was spent."
            )


def check_spelling(request: Request, header: Header | None = None) -> None:
    """Refuse a domain whose name is probably a misspelling of a column that the request needs.

    Such a name is not among the columns of the data. It is refused if the domain of a needed column
    would have to be estimated. It is also refused if it is close to a needed column without a
    domain, ignoring case. Otherwise, the schema may contain domains of other tables' columns.
    Without a header, the needed columns are the columns of the data, and no domain is estimated.
    """
    schema, needed = request.schema, request.columns
    names, free = needed, needed
    if header is not None:
        binary = [name for name, kind in header.kinds.items() if kind == "bool"]
        names, free = header.names, (*binary, *request.formula.coded, *request.keys.values())
    bare = {name.casefold(): name for name in needed if name not in schema}
    estimated = {key: name for key, name in bare.items() if name not in free}
    for name in (name for name in schema if name not in names):
        close = get_close_matches(name.casefold(), bare, 1, 0.75)
        if close:
            raise SchemaError(
                f"bounds= has an entry for {name!r}, which is not in the data, but none for "
                f"{bare[close[0]]!r}. Rename the key if both are the same column. Otherwise, "
                "remove it."
            )
        if estimated:
            (near,) = get_close_matches(name.casefold(), estimated, 1, 0.0)
            raise SchemaError(
                f"bounds= has an entry for {name!r}, which is not in the data, but none for "
                f"{estimated[near]!r}. Correct the key, or remove it to have the domain of "
                f"{estimated[near]!r} estimated privately."
            )


# -- the domain of each column -----------------------------------------------------------------


def check_domains(
    request: Request,
    schema: Schema,
    numbers: Collection[str],
    labels: Collection[str],
    *,
    quote: bool,
) -> None:
    """Refuse terms and groups that do not fit their columns.

    Parameters
    ----------
    schema : Schema
        The domains of the columns, declared or known by their type.
    numbers, labels : collection of str
        Columns whose bounds or labels will be estimated.
    quote : bool
        Whether errors may show columns that the formula does not name.

    Raises
    ------
    CapabilityError, SchemaError
    """
    outcome = request.formula.outcome
    if outcome in labels:
        raise SchemaError(
            f"Outcome {outcome!r} holds text. Declare its two labels, the reference "
            f"first: bounds={{{outcome!r}: ['no', 'yes']}}."
        )
    if outcome in numbers and request.tails == "any":
        raise SchemaError(
            "tails='any' requires declared outcome bounds, because values outside estimated "
            f"bounds have no limit. Write bounds={{{outcome!r}: (lo, hi)}}."
        )
    check_factors(request, schema, numbers, labels)
    check_groups(request, schema, numbers, labels)
    # The columns that ``.`` denotes have domains, but for a few.
    estimated = [name for name in request.formula.rest if name in (*numbers, *labels)]
    if len(estimated) > MOST_BOUGHT:
        raise SchemaError(
            f"'.' includes {len(estimated)} columns without a declared domain"
            f"{f' ({first_names(estimated)})' if quote else ''}. Declare their domains, or name "
            "the covariates."
        )


def check_factors(
    request: Request, schema: Schema, numbers: Collection[str], labels: Collection[str]
) -> None:
    """Terms are finite on the domains of their columns, and dummies have levels."""
    # the label that ``C(x, ref=...)`` names
    for name, ref in request.formula.references.items():
        domain = schema.get(name)
        if not isinstance(domain, Levels) or ref not in domain.values:
            raise SchemaError(
                f"C({name}, ref={ref!r}): {ref!r} is not a declared level of {name!r}. Declare "
                "all levels in bounds=."
            )
    for factor in request.formula.factors:
        for name in factor.variables:
            declared = request.schema.get(name)
            if factor.kind in formula.LABEL_KINDS and isinstance(declared, Interval):
                raise SchemaError(
                    f"C({name}) requires levels, but {name!r} has numeric bounds. Declare its "
                    f"levels: bounds={{{name!r}: ['1', '2']}}."
                )
            if name in numbers and not factor.total:
                raise SchemaError(
                    f"Term {factor.expr!r} is not finite for all values of {name!r}. Declare "
                    f"bounds within which it is finite: bounds={{{name!r}: (lo, hi)}}."
                )
            if isinstance(declared, Interval) and factor.kind == "spline":
                knots = cast("tuple[float, ...]", dict(factor.options).get("knots", ()))
                if not all(declared.lo < knot < declared.hi for knot in knots):
                    raise SchemaError(
                        f"Term {factor.expr!r} has knots outside the bounds "
                        f"({declared.lo:g}, {declared.hi:g}) of {name!r}. Move the knots inside."
                    )
            text = isinstance(declared, Levels) or name in labels
            if text and factor.kind not in ("numeric", *formula.LABEL_KINDS):
                raise SchemaError(f"Term {factor.expr!r} needs numbers, but {name!r} is text.")
    for term in request.formula.terms:
        smooth = [f for f in term.factors if f.kind == "smooth"]
        if smooth and (len(term.factors) > 1 or "knots" in dict(smooth[0].options)):
            raise CapabilityError(
                f"Term {term.name!r}: s() takes one column and k=. For products or custom knots, "
                "use bs(x, knots=[...])."
            )


MOST_GROUPS = 2000
"""Maximum number of groups of all averages; their joint covariance has as many rows."""


def check_groups(
    request: Request, schema: Schema, numbers: Collection[str], labels: Collection[str]
) -> None:
    """Columns of groups have a domain, and the groups are not too many."""
    estimated = {*numbers, *labels} & set(request.formula.variables)
    declared = []
    for text in request.groups:
        group = formula.parse_group(text)
        for name in group.columns:
            if name in numbers and name in estimated and group.parts[0].value == "":
                raise formula.numeric_group(name)
            if name not in estimated and name not in schema:
                raise SchemaError(
                    f"Group {text!r} requires a declared domain for {name!r}. Write "
                    f"bounds={{{name!r}: [0, 1]}} if it is 0/1; otherwise declare (lo, hi) or its "
                    "labels."
                )
        if not estimated & {*group.columns}:
            declared.append(text)
    groups = len(formula.resolve_groups(declared, schema))
    averages = max(len(request.arms) - 1, len(request.averages), 1)
    if groups * averages > MOST_GROUPS:
        of = f" for each of {averages} averages" if averages > 1 else ""
        raise CapabilityError(
            f"groups= makes {groups} groups{of}; the maximum is {MOST_GROUPS:,} in total. Name "
            "only the levels that you need, for example groups=['ward == north', 'age >= 65']."
        )


def first_names(names: Sequence[str]) -> str:
    """The first five names, each with at most 20 characters."""
    shown = ", ".join(repr(name[:20]) for name in names[:5])
    return shown + (", ..." if len(names) > 5 else "")


MOST_BOUGHT = 5
"""Maximum number of columns taken by ``.`` whose domains may be estimated. A user who names no
covariate may have overlooked an identifier or a text column, and each domain costs budget."""
