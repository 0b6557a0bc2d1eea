"""`PlanResult`: forecasts of interval widths and costs before there are rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from privcausal import accounting
from privcausal.errors import BudgetError, CapabilityError, LedgerError, is_number
from privcausal.estimators import estimands
from privcausal.estimators.estimands import ESTIMANDS, EVENT_STUDY
from privcausal.estimators.planner import (
    LEAST_EPSILON,
    LEAST_ROWS,
    MOST_EPSILON,
    MOST_PLANNED_ROWS,
    Planner,
)
from privcausal.prices import DELTA_DIGITS, as_typed, at_most
from privcausal.report import plots, tables
from privcausal.report.summary import Printed, Summary
from privcausal.request.request import COHORTS, GENERALIZED, LEVELS, WITH_EVENT, Plan
from privcausal.request.schema import Interval, Levels
from privcausal.results.frames import budget_lines, check_alpha
from privcausal.results.guarantee import ALL_NUMBERS, neighboring, promise
from privcausal.results.view import PACKAGES, outcome_name, version_of

CURVE_POINTS = 7
"""Points of a curve, in addition to the requested points."""

CURVE_REACH = 4.0
"""A curve through one point extends by this factor to each side."""

PRIVACY_WEIGHTS = (0.25, 0.5, 0.75)
"""Weights of privacy in the utility curve."""

ENDS = ("half-width from", "half-width to")
"""Columns of the range of half-widths."""

_KINDS = ("eps", "n", "utility")


@dataclass(frozen=True)
class Question:
    """Numbers of rows and epsilons, or the half-width that determines one of them.

    If `rows` or `epsilons` is empty, it follows from `width`. Intervals are at level 1 - alpha, and
    detectable effects are computed for `power`.
    """

    rows: tuple[int, ...]
    epsilons: tuple[float, ...]
    width: float | None = None
    alpha: float = 0.05
    power: float = 0.8

    @classmethod
    def of(cls, n: Any, eps: Any, width: Any, alpha: float, power: float) -> Question:
        """A question from user input; raises `BudgetError` or `CapabilityError`."""
        check_alpha(alpha)
        if not (is_number(power) and alpha / 2 < power < 1):
            raise CapabilityError("power must be a number in (alpha / 2, 1), for example 0.8.")
        rows = () if n is None else _listed("n", n)
        for value in rows:
            in_range = is_number(value) and LEAST_ROWS <= value <= MOST_PLANNED_ROWS
            if not (in_range and value == int(value)):
                raise CapabilityError(
                    f"n must be a whole number from {LEAST_ROWS} to {MOST_PLANNED_ROWS:,}."
                )
        epsilons = () if eps is None else _listed("eps", eps)
        for value in epsilons:
            if not (is_number(value) and 0 < value < np.inf):
                raise BudgetError("eps must be a finite number above 0.")
        rows, epsilons = tuple(map(int, rows)), tuple(map(float, epsilons))
        if width is None:
            if not rows:
                raise CapabilityError(
                    "n= is missing. Give the number of rows, or give width= and eps= to find it."
                )
            return cls(rows, epsilons or (1.0,), None, alpha, power)
        if not (is_number(width) and 0 < width < np.inf):
            raise CapabilityError(
                "width must be a finite number above 0. It is the half-width of the interval."
            )
        if bool(rows) == bool(epsilons):
            raise CapabilityError(
                "width= finds eps for a given n, or n for a given eps. Give only one of n= and "
                "eps=."
            )
        return cls(rows, epsilons, float(width), alpha, power)


@dataclass(frozen=True, eq=False)
class PlanResult(Printed):
    """The result of `privcausal.plan`: forecasts of the average effect's interval.

    Attributes
    ----------
    planner : Planner
    question : Question
    points : tuple of (n, eps)
        The rows of `table`.

    Examples
    --------
    >>> study = pc.datasets.clinic(10)
    >>> plan = pc.plan(study.formula, n=5000, eps=[0.5, 1], bounds=study.bounds)
    >>> list(plan.table.index)
    [0, 1]
    """

    planner: Planner
    question: Question
    points: tuple[tuple[int, float], ...] = field(init=False)

    def __post_init__(self) -> None:
        # As requested, or with one of n and eps found from the half-width
        question, planner = self.question, self.planner
        width, alpha = question.width, question.alpha
        points: Iterable[tuple[int, float]] = product(question.rows, question.epsilons)
        if width is not None and question.rows:
            points = ((n, planner.epsilon_for(width, n, alpha)) for n in question.rows)
        elif width is not None:
            points = ((planner.rows_for(width, eps, alpha), eps) for eps in question.epsilons)
        object.__setattr__(self, "points", tuple(points))
        for n, eps in self.points:  # Refuse points that cannot be planned here, not when printing.
            self.planner.at(n, eps)
        if self.planner.assumed.like:
            # All forecasts are made here. Names of columns of public rows are kept, but no values.
            _ = self.table
            names = dict.fromkeys(self.planner.assumed.like)
            assumed = replace(self.planner.assumed, like=names)
            object.__setattr__(self, "planner", replace(self.planner, assumed=assumed))

    # -- numbers -----------------------------------------------------------------------------

    @property
    def table(self) -> pd.DataFrame:
        """Forecasts for the average effect, one row per n and epsilon.

        Columns: n, eps, delta, rho, half-width from, half-width to, detectable, se_sampling,
        se_privacy, se_nuisances, max_bias.

        The half-width is a range that holds in about 80% of fits. Use its upper end to choose a
        budget. Both ends fall, or stay, as n or eps grows.

        `detectable` is the smallest effect whose interval, at the upper end, excludes zero with the
        requested power, if clipping causes no bias. `max_bias` bounds the bias from clipping, and
        the half-width allows for it. `se_sampling` is the standard error from sampling alone. These
        parts are from one simulated fit, so they may grow a little. The half-width is infinite if a
        fit would be refused. In pure epsilon, rho is NaN.

        Examples
        --------
        >>> plan.table["half-width to"].is_monotonic_decreasing
        True
        """
        planner, question, rows = self.planner, self.question, []
        for n, eps in self.points:
            forecast, falling = planner.at(n, eps), planner.falling(n, eps)
            least, most = planner.first(n, eps, question.alpha)
            lead, more = forecast.lead, float(norm.ppf(question.power))
            detectable = falling.half_width(question.alpha) + more * np.sqrt(falling.variance)
            pure, delta = forecast.plan.pure, forecast.plan.request.budget.delta
            row: dict[str, Any] = {"n": n, "eps": eps, "delta": 0.0 if pure else delta}
            row["rho"] = np.nan if pure else forecast.plan.rho / accounting.PICO
            row |= {"half-width from": least, "half-width to": most}
            row["detectable"] = planner.ends[1] * float(detectable[falling.lead])
            for source in ("sampling", "privacy", "nuisances"):
                row[f"se_{source}"] = float(np.sqrt(getattr(forecast, source)[lead]))
            rows.append(row | {"max_bias": float(forecast.bias[lead])})
        return pd.DataFrame(rows)

    @property
    def terms(self) -> pd.DataFrame:
        """The ranges of the average effect, slopes of the projection, and groups.

        Examples
        --------
        >>> plan.terms.columns.tolist()
        ['n', 'eps', 'term', 'half-width from', 'half-width to']
        """
        rows = []
        for n, eps in self.points:
            forecast, ends = self.planner.half_widths(n, eps, self.question.alpha)
            rows += [(n, eps, *term) for term in zip(forecast.terms, *ends.tolist(), strict=True)]
        return pd.DataFrame(rows, columns=["n", "eps", "term", *ENDS])

    @property
    def budget(self) -> pd.DataFrame:
        """A line per release of each planned fit: n, eps, then the columns of a fit's `budget`."""
        frames = []
        for n, eps in self.points:
            forecast = self.planner.at(n, eps)
            lines = budget_lines(forecast.releases, forecast.plan.request.budget.delta)
            frames.append(lines.assign(n=n, eps=eps)[["n", "eps", *lines.columns]])
        return pd.concat(frames, ignore_index=True)

    @property
    def passes(self) -> int:
        """How many times a fit reads all rows."""
        return max(self.planner.at(n, eps).passes for n, eps in self.points)

    def fits(self, ledger: accounting.Ledger, besides: Iterable[PlanResult] = ()) -> pd.DataFrame:
        """Whether a ledger can pay, one row per planned fit: n eps rho affordable left.

        Parameters
        ----------
        ledger : Ledger
            The ledger is only read, and no budget is spent.
        besides : sequence of PlanResult
            Other analyses to be paid from the same ledger, each planned for one n and one eps.

        Returns
        -------
        DataFrame
            `left` is the epsilon that would remain, or NaN if the ledger cannot pay. `rho` is NaN
            for a fit in pure epsilon.

        Raises
        ------
        LedgerError
            The ledger uses another delta, other neighbors or another unit.

        Examples
        --------
        >>> ledger = pc.Ledger("study.db", dataset="clinic", eps=2)
        >>> plan.fits(ledger)["affordable"].tolist()
        [True, True]
        """
        before: list[accounting.Cost] = []
        for other in besides:
            if len(other.points) != 1:
                raise CapabilityError("Each plan in besides= must have one n and one eps.")
            before += other._costs(other.points[0][1], ledger)
        rows = []
        for n, eps in self.points:
            costs = self._costs(eps, ledger)
            left = ledger.after(*before, *costs)
            rho = sum(cost.rho for cost in costs) / accounting.PICO or np.nan
            rows.append((n, eps, rho, left is not None, np.nan if left is None else left.epsilon))
        return pd.DataFrame(rows, columns=["n", "eps", "rho", "affordable", "left"])

    def _costs(self, eps: float, ledger: accounting.Ledger) -> list[accounting.Cost]:
        plan = self.planner.plan(eps, None)
        trust, delta = plan.request.trust, plan.request.budget.delta
        # As for a fit, the deltas must agree only if rho is converted.
        if plan.rho > 0 and ledger.delta != delta:
            raise LedgerError(
                f"The ledger uses delta={as_typed(ledger.delta)}, but this plan uses "
                f"delta={as_typed(delta)}. Plan with the delta of the ledger."
            )
        history = ledger.history
        if {*history["neighbors"]} - {trust.neighbors} or {*history["unit"]} - {trust.protected}:
            raise LedgerError(
                f"Ledger {ledger.dataset!r} contains fits with other neighbors or another unit. "
                "Keep a separate ledger for each."
            )
        return [plan.cost(stage) for stage in plan.stages]

    @property
    def weak(self) -> tuple[str, ...]:
        """Warnings about the weakest planned guarantee; empty if there are none."""
        request = self.planner.request
        rows, epsilons = zip(*self.points, strict=True)
        pure = self.planner.plan(max(epsilons), None).pure
        public = max(rows) if request.trust.neighbors == "substitute" else None
        return accounting.weak_promise(max(epsilons), 0.0 if pure else request.budget.delta, public)

    # -- plots -----------------------------------------------------------------------------

    def plot(
        self, kind: str = "eps", *, ax: Any = None, weights: Sequence[float] = PRIVACY_WEIGHTS
    ) -> Any:
        """Draw a curve; returns matplotlib axes.

        Parameters
        ----------
        kind : {"eps", "n", "utility"}
            "eps": half-width against epsilon, a line per n. "n": half-width against n, a line per
            epsilon. Lines are the upper ends of the ranges. "utility": the weighted utility of
            privacy and precision against epsilon, for the first n.
        weights : sequence of float
            Weights of privacy in the utility, from 0 to 1.

        Notes
        -----
        Utility is "a weighted sum of privacy and interval width" (Schroeder et al. 2025, Supplement
        D, which gives no formula). The formula here is w P + (1 - w) W. Both terms range from 0 to
        1 and have no free parameters.

        P = 1 - tanh(eps / 2) measures privacy. Start with even odds on whether a person's data were
        used. P is twice the uncertainty that remains after the release: 1 if the release reveals
        nothing about anyone, and 0 if it reveals everything.

        W is the half-width without privacy noise over the planned half-width: 1 if privacy costs no
        precision.

        Examples
        --------
        >>> ax = plan.plot("eps")
        """
        frame = self.plot_data(kind, weights)
        if kind == "utility":
            return plots.utility_plot(frame[frame["n"] == self.points[0][0]], ax=ax)
        return plots.plan_plot(frame, by=kind, ax=ax, alpha=self.question.alpha)

    def plot_data(
        self, kind: str = "eps", weights: Sequence[float] = PRIVACY_WEIGHTS
    ) -> pd.DataFrame:
        """The numbers behind `plot`.

        Returns
        -------
        DataFrame
            ``"eps"`` and ``"n"``: n, eps, half-width from, half-width to, sampling (the upper end
            without privacy noise), planned (whether it is a row of `table`). ``"utility"``: n eps
            weight privacy precision utility.

        Examples
        --------
        >>> plan.plot_data("eps").columns.tolist()
        ['n', 'eps', 'half-width from', 'half-width to', 'sampling', 'planned']
        """
        if kind not in _KINDS:
            kinds = ", ".join(map(repr, _KINDS))
            raise CapabilityError(
                f"plot(kind={str(kind)[:40]!r}) is not available. Choices: {kinds}."
            )
        chosen = [float(w) for w in weights] if kind == "utility" else [0.0]
        if not chosen or not all(0 <= w <= 1 for w in chosen):
            raise CapabilityError(
                "weights must be numbers from 0 to 1, for example (0.25, 0.5, 0.75)."
            )
        sizes, epsilons = ({point[k] for point in self.points} for k in (0, 1))
        # Points on a log scale, over the requested points or around a single one
        values, low, high = epsilons, LEAST_EPSILON, MOST_EPSILON
        if kind == "n":
            values, low, high = sizes, LEAST_ROWS, MOST_PLANNED_ROWS
        least, most = min(values), max(values)
        if least == most:
            least, most = max(low, least / CURVE_REACH), min(high, most * CURVE_REACH)
        between = np.geomspace(least, most, CURVE_POINTS).tolist()
        if kind == "n":
            sizes |= {round(n) for n in between}
        else:
            epsilons |= {float(f"{e:.3g}") for e in between}
        rows, alpha, ends = [], self.question.alpha, self.planner.first
        for n, eps in sorted(product(sizes, epsilons)):
            _, free = ends(int(n), MOST_EPSILON, alpha)
            rows.append((int(n), eps, *ends(int(n), eps, alpha), free, (n, eps) in self.points))
        curve = pd.DataFrame(rows, columns=["n", "eps", *ENDS, "sampling", "planned"])
        if kind != "utility":
            return curve
        privacy = 1 - np.tanh(curve["eps"] / 2)
        precision = np.minimum(curve["sampling"] / curve["half-width to"], 1.0)
        parts = {"n": curve["n"], "eps": curve["eps"], "privacy": privacy, "precision": precision}
        frames = [
            pd.DataFrame({**parts, "weight": w, "utility": w * privacy + (1 - w) * precision})
            for w in dict.fromkeys(chosen)
        ]
        columns = ["n", "eps", "weight", "privacy", "precision", "utility"]
        return pd.concat(frames, ignore_index=True)[columns]

    # -- text ------------------------------------------------------------------------------

    def summary(self) -> Summary:
        planner, frame = self.planner, self.table
        request, learner, formula = planner.request, planner.learner, planner.request.formula
        domain, trust = request.schema.get(formula.outcome), request.trust
        left = [("Dep. variable", outcome_name(request, planner.schema))]
        if formula.treatment:
            left.append(("Treatment", formula.treatment))
        if isinstance(domain, Interval):
            left.append(("Outcome bounds", f"[{domain.lo:.6g}, {domain.hi:.6g}]"))
        left.append(("Formula", str(formula)))
        neighbors = neighboring(trust.neighbors, f"one {trust.protected}")
        left.append(("Neighboring data", neighbors))
        # For effects by covariates, the first term is the plain average.
        first = "ATE" if request.estimand == "CATE" else request.estimand
        averages = "ATE" if request.estimand == "CATE" else ", ".join(request.estimands)
        title = learner.title or learner.name
        if request.estimand in GENERALIZED:
            title = "Newton's step"
        right = [("Estimand", averages), ("Estimator", title)]
        if planner.has_nuisances:
            models = f"{planner.base.name}, {estimands.SPLIT_WORDS[request.split]}"
            right.append(("Nuisance models", models))
            right.append(("Propensity", estimands.propensity_words(request, request.arm_clip)))
        line, head = tables.Rule("="), tables.Pairs("The analysis", tuple(left), tuple(right))
        reading = tables.Prose(_reading(self, frame)), tables.Rule("-")
        assumptions = tables.Prose((f"Assumptions: {'; '.join(_assumed(self))}.",))
        cost = planner.plan(request.budget.epsilon, None)
        delta = at_most(request.budget.delta, DELTA_DIGITS)
        price = "eps-DP (pure)" if cost.pure else f"(eps, {delta})-DP"
        change = neighboring(trust.neighbors, f"one {tables.clean(trust.protected)}")
        often = "once" if self.passes == 1 else f"{self.passes} times"
        notes = [f"Cost of each line: {price}. Neighboring data sets: {change}.", *self.weak]
        notes.append(f"A fit reads the rows {often}.")
        shares = [planner.at(n, eps).hidden for n, eps in self.points]
        if np.isfinite(shares).all():  # it is NaN without nuisances
            least, most = f"{min(shares):.0%}", f"{max(shares):.0%}"
            between = most if least == most else f"{least} to {most}"
            notes.append(f"Noise hides about {between} of the confounding by covariates.")
        notes.append(_SOURCES[bool(planner.assumed.like)])
        notes += [text] if (text := getattr(planner.base, "planned", "")) else []
        last = tables.Prose((" ".join(notes),))
        blocks = line, head, line, _grid(self, frame), line, *reading, assumptions, line, last
        title = ESTIMANDS[first].title if first in ESTIMANDS else EVENT_STUDY.title
        return Summary(f"Plan of a {title}", blocks, alert="")

    def checklist(self) -> Summary:
        """NIST SP 800-226 checklist for one planned fit, with a reference for each answer.

        Examples
        --------
        >>> print(plan.checklist())
        Checklist Based on NIST SP 800-226
        ...
        """
        answers, level = [], f"{1 - self.question.alpha:.0%}"
        for (n, eps), row in zip(self.points, self.table.to_dict("records"), strict=True):
            plan, lines = self.planner.plan(eps, n), self.budget
            budget = lines[(lines["n"] == n) & (lines["eps"] == eps)]
            guarantee = promise(plan, kind="proven", what=ALL_NUMBERS)
            price = f"epsilon {at_most(guarantee.epsilon)}"
            if guarantee.delta:
                price += f", delta {at_most(guarantee.delta, DELTA_DIGITS)}"
            variant = "Approximate DP" if guarantee.delta else "Pure DP"
            unit = f"{guarantee.unit[:1].upper()}{guarantee.unit[1:]}"
            change = neighboring(guarantee.neighbors, guarantee.unit)
            units = "rows" if plan.request.trust.unit is None else "units"
            size = f"the number of {units}, " if guarantee.neighbors == "substitute" else ""
            estimated = len(budget) > 0 and bool((budget["stage"] == "bounds").any())
            domains = "the domains that were declared" if estimated else "the declared domains"
            tuning = "Some bounds were estimated privately and charged. " if estimated else ""
            names = ", ".join(sorted({str(name) for name in budget["mechanism"]}))
            software = ", ".join(f"{name} {version_of(name)}" for name in PACKAGES)
            point = f" at eps = {at_most(row['eps'])}" if len(self.points) > 1 else ""
            sampling = float(row["se_sampling"])
            total = math.hypot(sampling, row["se_privacy"], row["se_nuisances"])
            answers.append(
                {
                    "Privacy parameters": (
                        f"{variant}: {price}.",
                        guarantee.statement.replace("Budget used:", "Budget of a fit:"),
                    ),
                    "Unit of privacy": (
                        f"{unit}. Neighboring data sets: {change} ({guarantee.neighbors}).",
                    ),
                    "Unprotected quantities": (
                        f"Public: {size}{domains}, the names and types of columns, the formula, "
                        "and all options of the call.",
                    ),
                    "Composition and budget": (_composition(plan, budget), SPENDING),
                    "Algorithms and their correctness": (
                        f"{names[:1].upper()}{names[1:]}. {FLOATS} Software: {software}.",
                        PROVEN,
                    ),
                    "Data before noise": (tuning + ROWS,),
                    "Utility and bias": (
                        f"With {row['n']:,.0f} rows{point}, the expected {level} interval of the "
                        f"average effect is the estimate +/- {row['half-width from']:.3g} to "
                        f"{row['half-width to']:.3g} (in about 80% of fits). The simulated "
                        f"standard error is {total:.3g}; {sampling:.3g} from sampling alone.",
                        BIAS_DISCLOSURE,
                    ),
                    "Trust model and queries": (f"Central, not interactive. {READER}",),
                    "Security and access": (ACCESS,),
                    "Data collection": (COLLECTION,),
                }
            )
        # An answer that is the same for all fits is printed once.
        parts = {
            head: dict.fromkeys(t for answer in answers for t in answer[head])
            for head in answers[0]
        }
        blocks = [
            tables.Prose((*map(tables.clean, texts), f"See {EVIDENCE[head]}."), head)
            for head, texts in parts.items()
        ]
        title, line = "Checklist Based on NIST SP 800-226", tables.Rule("=")
        return Summary(title, (line, *blocks, line), tables.ALERTS["proven"])

    def __repr__(self) -> str:
        count = len(self.points)
        return (
            f"<PlanResult {self.planner.request.formula!s}: learner "
            f"{self.planner.learner.name!r}, {count} fit{'s' * (count != 1)} planned>"
        )


def _listed(name: str, value: Any) -> tuple[Any, ...]:
    """A number or several numbers, without repeats."""
    if isinstance(value, str | bytes | Mapping):
        raise CapabilityError(f"{name} must be a number or a list of numbers.")
    listed = [value] if np.ndim(value) == 0 else list(value)
    if not listed:
        raise CapabilityError(f"{name} is an empty list. Give at least one number.")
    return tuple(dict.fromkeys(listed))


# -- text of the table --------------------------------------------------------------------------


def _grid(result: PlanResult, frame: pd.DataFrame) -> tables.TableGrid:
    question = result.question
    level, power = tables.confidence(question.alpha), tables.share_percent(question.power)
    heads = {
        "n": tables.TableColumn("n", "left"),
        "eps": tables.TableColumn("eps"),
        "half-width": tables.TableColumn("half-width", words=f"half-width of the {level} interval"),
    }
    words = f"smallest effect detected with {power} power"
    heads["detectable"] = tables.TableColumn("detectable", words=words)
    sources = {"sampling": "sampling", "privacy": "privacy noise"}
    if result.planner.has_nuisances:
        sources["nuisances"] = "the nuisance models"
    for source, words in sources.items():
        heads[f"se_{source}"] = tables.TableColumn(source, words=f"standard error from {words}")
    heads["max_bias"] = tables.TableColumn("max bias", words="maximum bias from clipping")
    texts = {
        name: [tables.number(v, 2 if name in ENDS else 3) for v in column.astype(float)]
        for name, column in frame.items()
    }
    texts |= {"n": [f"{n:,.0f}" for n in frame["n"]], "eps": [at_most(e) for e in frame["eps"]]}
    texts["half-width"] = [
        a if a == b else f"{a} - {b}" for a, b in zip(*(texts[end] for end in ENDS), strict=True)
    ]
    columns = [(head, texts[name]) for name, head in heads.items()]
    return tables.filled("Planned intervals", *columns, frame=frame)


def _reading(result: PlanResult, frame: pd.DataFrame) -> tuple[str, ...]:
    question, effect, lines = result.question, "the average effect", []
    if result.planner.request.regression:
        forecast = result.planner.at(*result.points[0])
        effect = tables.clean(forecast.terms[forecast.lead])
    elif result.planner.request.estimand == COHORTS:
        effect = "the overall effect"
    if question.width is not None:
        lines.append(
            f"{'eps' if question.rows else 'n'} is close to the smallest value with a half-width "
            f"of at most {tables.point_text(question.width)} at the upper end of the range."
        )
    nuisances = result.planner.has_nuisances
    errors = "nuisances: standard errors from sampling, privacy noise, and the nuisance models"
    lines.append(
        f"half-width: half the width of the {tables.confidence(question.alpha)} interval of "
        f"{effect}, a range that holds in about 80% of fits; detectable: smallest effect detected "
        f"with {tables.share_percent(question.power)} power at the upper end; sampling, privacy"
        + (f", {errors}" if nuisances else ": standard errors from sampling and privacy noise")
        + "; max bias: maximum bias from clipping."
    )
    if result.planner.assumed.scale_source == "bounds":
        lines.append("The range is narrower if you give outcome_sd= or, better, like=.")
    if not np.isfinite(frame["half-width to"]).all():
        lines.append("inf: no finite interval. Plan more rows or more budget.")
    return tuple(lines)


def _assumed(result: PlanResult) -> list[str]:
    planner = result.planner
    request, assumed = planner.request, planner.assumed
    shape = assumed.population
    has_covariates = bool(request.formula.terms)
    within = " within each arm" if request.formula.treatment else ""
    spread = tables.point_text(assumed.outcome_sd)
    noun = "outcome" if request.horizon is None else "time"
    outcome = f"the {noun} has standard deviation {spread}{within}"
    if assumed.scale_source == "bounds":
        share = assumed.outcome_sd / assumed.width
        outcome += f" ({'a quarter' if share < 0.5 else 'half'} of its range)"
    if has_covariates:
        outcome += f", and covariates explain {tables.share_percent(assumed.r2)} of its variance"
    formula, resampled = request.formula, assumed.like
    parts = [outcome] if formula.outcome not in resampled else []
    if formula.instruments:
        parts.append("the instrument changes the treatment by half its range")
    elif request.arms:
        if request.propensity is None:
            parts.append("all arms are equally frequent")
    elif request.propensity is None and formula.treatment and formula.treatment not in resampled:
        treated = f"{tables.share_percent(assumed.treated)} of the rows are treated"
        varies = (
            f", and the propensity explains {shape.confounding:.0%} of the variance of treatment"
        )
        parts.append(treated + (varies if has_covariates else ""))
    invented = {*formula.variables} - {formula.outcome, *formula.coded, *resampled}
    schema = planner.schema
    labels = {n for n in invented if isinstance(schema.get(n), Levels) or n in formula.categorical}
    if invented - labels:
        parts.append(
            f"numeric covariates have a mean of {shape.mean:.0%} and a standard deviation of "
            f"{shape.sd:.0%} of the width of their bounds, and correlations of "
            f"{shape.correlation:g}"
        )
    if labels:
        parts.append(
            f"each level of a covariate has {shape.next_level:.0%} of the rows of the one before"
        )
    if request.weights is not None and request.weights not in resampled:
        parts.append("weights are spread evenly over their bounds")
    if resampled:
        listed = ", ".join(tables.clean(name) for name in resampled)
        parts.append(f"the values of {listed} are resampled from like=")
    parts.append("no value is missing")
    for names, kind in (
        (planner.undeclared.numbers, "numeric; bounds"),
        (planner.undeclared.labels, f"{LEVELS} labels each; labels"),
    ):
        if names:
            listed = ", ".join(tables.clean(name) for name in names)
            parts.append(f"not declared: {listed} ({kind} estimated privately)")
    return [*parts, *_dependence(planner)]


def _dependence(planner: Planner) -> Iterator[str]:
    clusters, trust, assumed = planner.request.cluster, planner.request.trust, planner.assumed
    if trust.panel is not None:
        yield (
            f"{tables.share_percent(assumed.r2)} of the outcome's variance is constant within "
            f"units, {tables.share_percent(assumed.treated)} of the units are treated, and each "
            f"cohort has {assumed.population.next_level:.0%} of the units of the one before"
        )
    if planner.request.formula.event:
        yield f"{WITH_EVENT:.0%} of the times end with the event"
    if clusters is not None:
        yield (
            f"each {tables.clean(clusters.column)} has {clusters.max_rows} rows, whose influences "
            f"have a correlation of {assumed.icc:g}"
        )
    if trust.unit is not None:
        rows = "one row" if trust.max_rows == 1 else f"{trust.max_rows} rows"
        period = "" if trust.panel is None else " in each period"
        yield f"each {tables.clean(trust.unit)} has {rows}{period}"


_SOURCES = {
    False: "This plan used no data and no budget.",
    True: "This plan used no budget. It was computed from the rows of like= without noise, so "
    "these rows must be public. The plan is not private.",
}


def _composition(plan: Plan, budget: pd.DataFrame) -> str:
    """How the costs of the stages of a planned fit add up, and their shares."""
    if plan.trade_off is not None:
        law = "The trade-off functions declared by its estimators are composed."
    elif not plan.rho:
        law = "Their epsilons and deltas add up."
    else:
        law = "rho adds up over stages and is converted once to epsilon and delta"
        law += " by the Gaussian trade-off function." if plan.gdp else " as zCDP."
        law += " Costs of stages in epsilon and delta are added." * bool(plan.epsilon)
    if any(stage.parallel for stage in plan.stages):
        law += " Stages that read disjoint rows are charged once (parallel composition)."
    shares = tables.stage_shares(budget).items()
    return (
        f"{len(plan.stages)} stage{'s' * (len(plan.stages) != 1)}, charged before rows are read. "
        f"{law} Shares of the cost: {', '.join(f'{name} {share:.0%}' for name, share in shares)}."
    )


# The constant answers of the checklist.

READER = (
    "The curator holds the rows and runs the package. The curator and all code in the same process "
    "are trusted. No other party is trusted: a reader of the released results may know every other "
    "row and have unlimited computing power."
)
FLOATS = (
    "Noise is discrete. OpenDP draws it from the operating system's entropy and adds it to whole "
    "numbers, so the low-order bits of floating-point numbers reveal no data. Running time, "
    "memory, and power consumption are not protected."
)
PROVEN = (
    "The call fixes the share of the budget for each stage. The documentation (Guarantees) proves "
    "the sensitivity of each release for any data. Tests repeat fits on neighboring data sets, "
    "check the distribution of the noise, and audit releases for excess privacy loss."
)
ROWS = (
    "Each row is processed separately. Unreadable values count as missing, values outside their "
    "bounds are clipped, and no count is exact. The formula, options, and stages were fixed before "
    "rows were read, and tuning uses released numbers only. The guarantee assumes that the formula "
    "and the declared domains were chosen without looking at the rows."
)
ACCESS = (
    "The package keeps no copy of the rows, and results contain released numbers only. The curator "
    "decides who may read the table."
)
SPENDING = (
    "The costs of fits of the same rows add up. With ledger=, each fit is charged against one cap "
    "before rows are read. Charges are never refunded."
)
COLLECTION = (
    "Differential privacy protects released results. It does not protect rows in storage or in "
    "transit."
)
BIAS_DISCLOSURE = (
    "The interval is wider to allow for bias from clipping and from nuisance models. The noise is "
    "the same for groups of any size, so small groups get wide intervals."
)

EVIDENCE = {
    "Privacy parameters": "tests/accounting/test_conversion.py",
    "Unit of privacy": "vignettes/explanation/threat-model.md, tests/privacy/test_replay.py",
    "Unprotected quantities": "vignettes/explanation/threat-model.md",
    "Composition and budget": "tests/accounting/test_ledger.py",
    "Algorithms and their correctness": "vignettes/explanation/guarantees.md, tests/vault",
    "Data before noise": "tests/test_bad_input.py, tests/privacy/test_noninterference.py",
    "Utility and bias": "vignettes/explanation/coverage.md",
    "Trust model and queries": "vignettes/explanation/threat-model.md",
    "Security and access": "SECURITY.md, tests/privacy/test_canary.py",
    "Data collection": "vignettes/explanation/known-limits.md",
}
"""Where in the repository the answer is documented."""
